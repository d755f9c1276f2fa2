#include "core/model/quant.h"

#include <stdarg.h>
#include <stdio.h>

/* --- the configuration ----------------------------------------------------------------------- */

static u32 read_bits(const struct fields *k, const char *key)
{
    u32 bits = fields_u32(k, key, KEY_U32_REQUIRED, 1, 64);
    if (!*k->failed && bits != 4 && bits != 8)
        fields_refuse(k, key, "4 and 8 bits are supported");
    return bits;
}

/* Group size: 0 for one group a row (-1 in the file). */
static u32 read_group(const struct fields *k, const char *key)
{
    const struct json *v = fields_get(k, key);
    i64 g = 0;
    if (json_i64(v, &g) && (g == -1 || (g > 0 && g < INT32_MAX && g % 8 == 0)))
        return g == -1 ? 0 : (u32)g;
    fields_refuse(k, key, "-1 or a multiple of 8 input features is expected");
    return 0;
}

static bool present(const struct fields *k, const char *key)
{
    const struct json *v = fields_get(k, key);
    return v && v->type != JSON_FALSE &&
           !((v->type == JSON_OBJECT || v->type == JSON_ARRAY) && v->n == 0);
}

static void refuse_present(const struct fields *k, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (present(k, names[i]))
            fields_refuse(k, names[i], "not supported");
}

/* Rules that override single modules. "-:" rules say which stay plain, and that shows in the
 * tensors; the others change bits or groups. */
static void check_dynamic(const struct fields *k)
{
    struct fields dynamic = fields_in(k, "dynamic");
    if (!dynamic.object)
        return;
    for (const struct json *rule = dynamic.object->child; rule; rule = rule->next)
        if (!str_starts(rule->key, STR("-:")))
            fields_refuse(k, "dynamic",
                          "its rule \"%.*s\" overrides settings of single modules, "
                          "which is not supported",
                          STR_ARG(rule->key));
}

/* The first of several spellings that is there; "" when none. */
static const char *spelling(const struct fields *k, const char *const *names)
{
    for (; **names; names++)
        if (fields_get(k, *names))
            return *names;
    return "";
}

static void read_gptq(const struct fields *k, struct quant *q)
{
    static const char *const unsupported[] = {"is_marlin_format", "adapter", "lora", "rotation"};
    q->method = QUANT_GPTQ;
    q->bits = read_bits(k, "bits");
    q->group = read_group(k, "group_size");
    q->symmetric = fields_bool(k, "sym", true);
    q->act_order = fields_bool(k, "desc_act", false);
    q->act_order_said = fields_get(k, "desc_act") != NULL;
    q->zero_plus_one = true;
    static const char *const formats[] = {"checkpoint_format", "format"};
    for (size_t i = 0; i < COUNTOF(formats); i++) {
        struct str format = fields_str(k, formats[i], "gptq");
        if (str_is(format, "gptq_v2"))
            q->zero_plus_one = false;
        else if (!str_is(format, "gptq"))
            fields_refuse(k, formats[i],
                          "the layouts gptq and gptq_v2 are supported; save the "
                          "model in one of them");
    }
    if (fields_get(k, "checkpoint_format") && fields_get(k, "format") &&
        !str_eq(fields_str(k, "checkpoint_format", ""), fields_str(k, "format", "")))
        fields_refuse(k, "format", "checkpoint_format says otherwise");
    if (!str_is(fields_str(k, "pack_dtype", "int32"), "int32"))
        fields_refuse(k, "pack_dtype", "only int32 is supported");
    refuse_present(k, unsupported, COUNTOF(unsupported));
    check_dynamic(k);
}

static void read_awq(const struct fields *k, struct quant *q)
{
    static const char *const bits[] = {"bits", "w_bit", ""};
    static const char *const group[] = {"group_size", "q_group_size", ""};
    static const char *const formats[] = {"version", "format", "checkpoint_format"};
    const char *key = spelling(k, bits);
    q->method = QUANT_AWQ;
    q->bits = read_bits(k, *key ? key : "bits");
    if (!*k->failed && q->bits != 4)
        fields_refuse(k, key, "AWQ has 4 bits");
    key = spelling(k, group);
    q->group = read_group(k, *key ? key : "group_size");
    q->symmetric = !fields_bool(k, "zero_point", true);
    for (size_t i = 0; i < COUNTOF(formats); i++) {
        struct str format = fields_str(k, formats[i], "gemm");
        if (!str_is(format, "gemm") && !str_is(format, "GEMM"))
            fields_refuse(k, formats[i], "only the gemm layout is supported");
    }
    check_dynamic(k);
}

/* Settings that AutoRound has for the whole model and again in extra_config, for single modules. */
static void check_auto_round(const struct fields *k, const char *kind)
{
    static const char *const unsupported[] = {"super_bits", "super_group_size", "rotation_config"};
    if (!str_is(fields_str(k, "data_type", "int"), "int"))
        fields_refuse(k, "data_type", "%s of type int are supported", kind);
    if (fields_u32(k, "act_bits", 16, 1, 64) < 16)
        fields_refuse(k, "act_bits", "%s with inputs of 16 bits are supported", kind);
    refuse_present(k, unsupported, COUNTOF(unsupported));
}

/* A module that stays plain shows in the tensors; one with settings of its own is refused. */
static void check_extra(const struct fields *k, const struct quant *q)
{
    struct fields extra = fields_in(k, "extra_config");
    for (const struct json *v = extra.object ? extra.object->child : NULL; v; v = v->next) {
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)MIN(v->key.n, sizeof name - 1), v->key.p);
        struct fields own = fields_in(&extra, name);
        u32 bits = fields_u32(&own, "bits", q->bits, 1, 64);
        if (bits >= 16)
            continue;
        if (bits != q->bits ||
            (fields_get(&own, "group_size") && read_group(&own, "group_size") != q->group))
            fields_refuse(&extra, name,
                          "it has other bits or groups than the whole model, which is not "
                          "supported");
        check_auto_round(&own, "modules");
    }
}

/* AutoRound's own name for three layouts: GPTQ with zero points stored less one or as they are, and
 * AWQ. Which blocks are quantized (block_name_to_quantize) shows in the tensors. */
static void read_auto_round(const struct fields *k, struct quant *q)
{
    static const struct {
        const char *name;
        enum quant_method method;
        bool zero_plus_one;
    } layouts[] = {
        {"auto_round:auto_gptq", QUANT_GPTQ, true},  {"auto_round:gptq", QUANT_GPTQ, true},
        {"auto_round:gptqmodel", QUANT_GPTQ, false}, {"auto_round", QUANT_GPTQ, false},
        {"auto_round:auto_awq", QUANT_AWQ, false},   {"auto_round:awq", QUANT_AWQ, false},
    };
    struct str packing = fields_str(k, "packing_format", "");
    u32 i = 0;
    while (i < COUNTOF(layouts) && !str_is(packing, layouts[i].name))
        i++;
    if (i == COUNTOF(layouts)) {
        fields_refuse(k, "packing_format",
                      "auto_round:auto_gptq, auto_round:gptqmodel, auto_round and "
                      "auto_round:auto_awq are supported");
        return;
    }
    q->method = layouts[i].method;
    q->zero_plus_one = layouts[i].zero_plus_one;
    q->bits = read_bits(k, "bits");
    if (!*k->failed && q->method == QUANT_AWQ && q->bits != 4)
        fields_refuse(k, "bits", "AWQ has 4 bits");
    q->group = read_group(k, "group_size");
    q->symmetric = fields_bool(k, "sym", true);
    check_auto_round(k, "weights");
    check_extra(k, q);
    check_dynamic(k);
}

static bool strategy_is(const struct fields *k, const char *name)
{
    struct str said = fields_str(k, "strategy", "");
    if (said.n)
        return str_is(said, name);
    /* a missing strategy follows from the group size */
    const struct json *v = fields_get(k, "group_size");
    i64 g;
    return json_i64(v, &g) ? str_is(str_of(g > 0 ? "group" : "channel"), name)
                           : str_is(STR("tensor"), name);
}

static void check_int(const struct fields *k)
{
    if (!str_is(fields_str(k, "type", "int"), "int"))
        fields_refuse(k, "type", "only int is supported");
}

static void read_ct_weights(const struct fields *k, struct quant *q)
{
    q->bits = read_bits(k, "num_bits");
    q->symmetric = fields_bool(k, "symmetric", true);
    check_int(k);
    if (present(k, "dynamic"))
        fields_refuse(k, "dynamic", "weights are quantised when they are saved");
    if (present(k, "block_structure"))
        fields_refuse(k, "block_structure", "not supported");
    if (q->method == QUANT_PACKED && strategy_is(k, "group"))
        q->group = read_group(k, "group_size");
    else if (!strategy_is(k, "channel"))
        fields_refuse(k, "strategy",
                      q->method == QUANT_PACKED ? "channel and group are supported"
                                                : "channel is supported");
    const struct json *order = fields_get(k, "actorder");
    q->act_order_said = true;
    if (!order || order->type == JSON_FALSE || str_is(order->text, "weight") ||
        str_is(order->text, "static"))
        return;
    q->act_order = true;
    if (q->method != QUANT_PACKED || (order->type != JSON_TRUE && !str_is(order->text, "group") &&
                                      !str_is(order->text, "dynamic")))
        fields_refuse(k, "actorder", "group and weight are supported, for pack-quantized weights");
}

static void read_ct_inputs(const struct fields *k, struct quant *q)
{
    if (!k->object)
        return;
    if (q->method != QUANT_INT8)
        fields_refuse(k, "num_bits", "quantised inputs are supported with int-quantized weights");
    if (fields_u32(k, "num_bits", 8, 1, 64) != 8)
        fields_refuse(k, "num_bits", "inputs of 8 bits are supported");
    check_int(k);
    if (!fields_bool(k, "symmetric", true))
        fields_refuse(k, "symmetric", "symmetric inputs are supported");
    if (!fields_bool(k, "dynamic", false))
        fields_refuse(k, "dynamic", "inputs with scales chosen at run time are supported");
    if (!str_is(fields_str(k, "strategy", "tensor"), "token"))
        fields_refuse(k, "strategy", "inputs with a scale a token are supported");
    q->int8_activations = true;
}

static void read_ct_format(const struct fields *k, struct quant *q)
{
    struct str format = fields_str(k, "format", "");
    if (str_is(format, "pack-quantized"))
        q->method = QUANT_PACKED;
    else if (str_is(format, "int-quantized"))
        q->method = QUANT_INT8;
    else
        fields_refuse(k, "format", "pack-quantized and int-quantized are supported");
}

static void read_compressed_tensors(const struct fields *k, struct quant *q)
{
    static const char *const unsupported[] = {"kv_cache_scheme", "transform_config"};
    refuse_present(k, unsupported, COUNTOF(unsupported));
    struct fields sparsity = fields_in(k, "sparsity_config");
    if (!str_is(fields_str(&sparsity, "format", "dense"), "dense"))
        fields_refuse(&sparsity, "format", "sparse weights are not supported");
    struct str status = fields_str(k, "quantization_status", "compressed");
    if (!str_is(status, "compressed") && !str_is(status, "frozen"))
        fields_refuse(k, "quantization_status", "finished (compressed, frozen) weights are needed");
    struct fields groups = fields_in(k, "config_groups");
    if (!groups.object || groups.object->n != 1) {
        fields_refuse(k, "config_groups", "exactly one group is supported");
        return;
    }
    read_ct_format(k, q);
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)MIN(groups.object->child->key.n, (size_t)31),
             groups.object->child->key.p);
    struct fields group = fields_in(&groups, name);
    if (fields_get(&group, "format") &&
        !str_eq(fields_str(&group, "format", ""), fields_str(k, "format", "")))
        fields_refuse(&group, "format", "the format of the whole model is another one");
    if (present(&group, "output_activations"))
        fields_refuse(&group, "output_activations", "not supported");
    struct fields weights = fields_in(&group, "weights"),
                  inputs = fields_in(&group, "input_activations");
    if (!weights.object) {
        fields_refuse(&group, "weights", "their settings are missing");
        return;
    }
    read_ct_weights(&weights, q);
    read_ct_inputs(&inputs, q);
    if (!*k->failed && q->method == QUANT_INT8 && q->bits != 8)
        fields_refuse(&weights, "num_bits", "int-quantized has 8 bits");
}

void quant_read(const struct fields *k, struct quant *q)
{
    static const char supported[] =
        "gptq, awq, auto-round, compressed-tensors and mxfp4 are supported";
    *q = (struct quant){0};
    const char *key = fields_get(k, "quant_method") ? "quant_method" : "method";
    struct str method = fields_str(k, key, fields_get(k, "w_bit") ? "awq" : "gptq");
    if (k->within[0] && !fields_get(k, key)) /* the default holds for quantize_config.json only */
        fields_refuse(k, "quant_method", "%s", supported);
    else if (str_is(method, "gptq"))
        read_gptq(k, q);
    else if (str_is(method, "awq"))
        read_awq(k, q);
    else if (str_is(method, "compressed-tensors"))
        read_compressed_tensors(k, q);
    else if (str_is(method, "mxfp4"))
        *q = (struct quant){.method = QUANT_MXFP4, .bits = 4, .group = MXFP4_GROUP};
    else if (str_is(method, "auto-round") || str_is(method, "intel/auto-round"))
        read_auto_round(k, q);
    else
        fields_refuse(k, key, "%s", supported);
}

void quant_describe(const struct quant *q, enum dtype plain, char *out, size_t cap)
{
    static const char *const names[] = {"", "gptq", "awq", "packed", "int8", "mxfp4"};
    if (q->method == QUANT_NONE)
        snprintf(out, cap, "%s", dtype_name(plain));
    else if (q->group)
        snprintf(out, cap, "%s %u-bit group %u%s", names[q->method], q->bits, q->group,
                 q->act_order ? " act-order" : "");
    else
        snprintf(out, cap, "%s %u-bit per channel%s", names[q->method], q->bits,
                 q->int8_activations ? ", 8-bit inputs" : "");
}

/* --- views ------------------------------------------------------------------------------------ */

enum {
    F32 = 1 << DTYPE_F32,
    FLOATS = F32 | 1 << DTYPE_F16 | 1 << DTYPE_BF16,
    INT32 = 1 << DTYPE_I32,
    INT8 = 1 << DTYPE_I8,
    UINT8 = 1 << DTYPE_U8,
    INT64 = 1 << DTYPE_I64,
};

enum { NAME_BYTES = 256 };

static void shape_text(char *out, size_t cap, u32 rank, const u64 *shape)
{
    size_t n = (size_t)snprintf(out, cap, "[");
    for (u32 i = 0; i < rank && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)shape[i]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

static bool same_shape(const struct tensor *t, u32 rank, const u64 *shape)
{
    bool same = t->rank == rank;
    for (u32 i = 0; same && i < rank; i++)
        same = t->shape[i] == shape[i];
    return same;
}

/* Both are ours, and short. */
static void join(char name[NAME_BYTES], const char *module, const char *suffix)
{
    size_t n = strlen(module), more = strlen(suffix);
    ASSERT(n + more < NAME_BYTES);
    memcpy(name, module, n);
    memcpy(name + n, suffix, more + 1);
}

/* Takes MODULE + SUFFIX, which must have one of `types` and this shape. */
static enum err want_shape(struct binder *b, const char *module, const char *suffix, int types,
                           u32 rank, const u64 *shape, const struct tensor **out)
{
    char name[NAME_BYTES], is[128], should[96];
    join(name, module, suffix);
    const struct tensor *t = tensors_take(b->tensors, name);
    if (!t)
        return err_set(b->e, ERR_MODEL, "%s: tensor \"%s\" is missing; config.json asks for it",
                       b->dir, name);
    if (!(types >> t->type & 1))
        return err_set(b->e, ERR_MODEL, "%s: tensor \"%s\" has dtype %s; %s expected", t->file,
                       name, t->type_name,
                       types & F32     ? "f32, f16 or bf16 is"
                       : types & INT32 ? "i32 is"
                       : types & INT64 ? "i64 is"
                       : types & UINT8 ? "u8 is"
                                       : "i8 is");
    if (!same_shape(t, rank, shape)) {
        shape_text(is, sizeof is, t->rank, t->shape);
        shape_text(should, sizeof should, rank, shape);
        return err_set(b->e, ERR_MODEL,
                       "%s: tensor \"%s\" has shape %s; config.json asks for %s (%s)", t->file,
                       name, is, should, b->shape);
    }
    *out = t;
    return ERR_OK;
}

/* The same, of shape [d0] (d1 = 0) or [d0, d1]. */
static enum err want(struct binder *b, const char *module, const char *suffix, int types, u64 d0,
                     u64 d1, const struct tensor **out)
{
    return want_shape(b, module, suffix, types, d1 ? 2 : 1, (const u64[]){d0, d1}, out);
}

static bool there(const struct binder *b, const char *module, const char *suffix)
{
    char name[NAME_BYTES];
    join(name, module, suffix);
    return tensors_find(b->tensors, name) != NULL;
}

/* True when every 32-bit word of t is `word`. */
static bool all_words(const struct tensor *t, u32 word)
{
    u32 v;
    for (size_t i = 0; i + 4 <= t->bytes; i += 4) {
        memcpy(&v, (const char *)t->data + i, 4);
        if (v != word)
            return false;
    }
    return true;
}

/* Sets out->zeros, or leaves it NULL when all zero points are the middle anyway. What is stored
 * counts, also where the config says or leaves out that it is symmetric; but a symmetric file whose
 * zero points are the middle in the other version of GPTQ is of that version. */
static enum err set_zeros(struct binder *b, const struct tensor *t, struct weight *out)
{
    u32 v2 = out->bits == 4 ? 0x88888888u : 0x80808080u;
    u32 v1 = v2 - (out->bits == 4 ? 0x11111111u : 0x01010101u);
    bool symmetric = b->quant->symmetric && out->kind == WEIGHT_GPTQ;
    if (all_words(t, out->zero_plus_one ? v1 : v2))
        return ERR_OK;
    if (symmetric && all_words(t, out->zero_plus_one ? v2 : v1))
        return err_set(b->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" holds the zero points of symmetric %s, but "
                       "checkpoint_format in the quantization config says %s",
                       t->file, STR_ARG(t->name), out->zero_plus_one ? "gptq_v2" : "gptq",
                       out->zero_plus_one ? "gptq" : "gptq_v2");
    out->zeros = t->data;
    return ERR_OK;
}

enum order { ORDER_NONE, ORDER_PLAIN, ORDER_ALL_ZERO, ORDER_OTHER };

/* What a group index says; false when an entry is no group. -1 (unused) counts as none. */
static bool classify_order(const struct tensor *t, const struct weight *w, enum order *out)
{
    bool zero = true, plain = true, none = false;
    i32 usual = 0; /* i / group, without a division for each */
    for (u32 i = 0, left = w->group; i < w->k; i++, left--) {
        i32 g;
        memcpy(&g, (const char *)t->data + 4 * (size_t)i, 4);
        if (g < -1 || g >= (i32)w->groups || (g < 0 && w->kind != WEIGHT_PACKED))
            return false;
        none |= g < 0;
        zero &= g == 0;
        if (left == 0) {
            left = w->group;
            usual++;
        }
        plain &= g == usual;
    }
    *out = none ? ORDER_NONE : plain ? ORDER_PLAIN : zero ? ORDER_ALL_ZERO : ORDER_OTHER;
    return true;
}

/* Act-order permutes rows and then cuts groups, so each has its full size: kernels rely on it. */
static enum err check_members(struct binder *b, const struct tensor *t, const struct weight *w)
{
    size_t mark = b->keep->used_bytes;
    u32 *members = ARENA_NEW(b->keep, u32, w->groups);
    if (!members)
        return arena_full(b->keep, w->name, b->e);
    for (u32 i = 0; i < w->k; i++) {
        i32 g;
        memcpy(&g, (const char *)t->data + 4 * (size_t)i, 4);
        members[g]++;
    }
    u32 bad = 0;
    while (bad < w->groups && members[bad] == MIN(w->group, w->k - bad * w->group))
        bad++;
    u32 has = bad < w->groups ? members[bad] : 0;
    arena_reset(b->keep, mark);
    if (bad < w->groups)
        return err_set(b->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" gives %u inputs to group %u; groups have %u (%s)",
                       t->file, STR_ARG(t->name), has, bad, w->group, b->shape);
    return ERR_OK;
}

/* The group index `suffix` of a module. Files without act-order hold k / group, all zeros, or
 * none at all: that is group_index NULL. */
static enum err set_order(struct binder *b, const char *module, const char *suffix,
                          struct weight *out)
{
    const struct tensor *t;
    enum order order;
    if (!there(b, module, suffix)) {
        if (b->quant->act_order && out->groups > 1)
            return want(b, module, suffix, INT32, out->k, 0, &t);
        return ERR_OK;
    }
    TRY(want(b, module, suffix, INT32, out->k, 0, &t));
    if (!classify_order(t, out, &order))
        return err_set(b->e, ERR_MODEL, "%s: tensor \"%.*s\" names a group outside 0 to %u",
                       t->file, STR_ARG(t->name), out->groups - 1);
    if (order != ORDER_OTHER)
        return ERR_OK;
    if (b->quant->act_order_said && !b->quant->act_order)
        return err_set(b->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" holds an activation order, though the quantization "
                       "config says none",
                       t->file, STR_ARG(t->name));
    TRY(check_members(b, t, out));
    if ((uintptr_t)t->data % _Alignof(i32) == 0) {
        out->group_index = t->data;
        return ERR_OK;
    }
    i32 *copy = ARENA_NEW(b->keep, i32, out->k);
    if (!copy)
        return arena_full(b->keep, module, b->e);
    memcpy(copy, t->data, out->k * sizeof *copy);
    out->group_index = copy;
    return ERR_OK;
}

static void set_scales(struct weight *out, const struct tensor *t)
{
    out->scales = t->data;
    out->scale_type = t->type;
}

static enum err odd_size(struct binder *b, const char *module, const struct weight *w,
                         const char *rule)
{
    return err_set(b->e, ERR_MODEL,
                   "%s: \"%s\" has %u inputs and %u outputs in groups of %u; %s (config.json: %s)",
                   b->dir, module, w->k, w->n, w->group, rule, b->shape);
}

static enum err bind_gptq(struct binder *b, const char *module, struct weight *w)
{
    const struct tensor *data, *zeros, *scales;
    u32 fields = 32 / w->bits;
    w->kind = WEIGHT_GPTQ;
    w->zero_plus_one = b->quant->zero_plus_one;
    if (w->k % fields || w->n % fields)
        return odd_size(b, module, w, "GPTQ needs both to be multiples of 32 / bits");
    TRY(want(b, module, ".qweight", INT32, w->k / fields, w->n, &data));
    TRY(want(b, module, ".qzeros", INT32, w->groups, w->n / fields, &zeros));
    TRY(want(b, module, ".scales", FLOATS, w->groups, w->n, &scales));
    w->data = data->data;
    set_scales(w, scales);
    TRY(set_zeros(b, zeros, w));
    return set_order(b, module, ".g_idx", w);
}

static enum err bind_awq(struct binder *b, const char *module, struct weight *w)
{
    const struct tensor *data, *zeros, *scales;
    w->kind = WEIGHT_AWQ;
    if (w->k % w->group || w->n % 8)
        return odd_size(b, module, w, "AWQ needs whole groups and outputs in multiples of 8");
    TRY(want(b, module, ".qweight", INT32, w->k, w->n / 8, &data));
    TRY(want(b, module, ".qzeros", INT32, w->groups, w->n / 8, &zeros));
    TRY(want(b, module, ".scales", FLOATS, w->groups, w->n, &scales));
    w->data = data->data;
    set_scales(w, scales);
    return set_zeros(b, zeros, w);
}

static enum err check_weight_shape(struct binder *b, const char *module, const struct weight *w)
{
    const struct tensor *t;
    i64 shape[2];
    TRY(want(b, module, ".weight_shape", INT64 | INT32, 2, 0, &t));
    if (t->type == DTYPE_I32) {
        i32 narrow[2];
        memcpy(narrow, t->data, sizeof narrow);
        shape[0] = narrow[0], shape[1] = narrow[1];
    } else {
        memcpy(shape, t->data, sizeof shape);
    }
    if (shape[0] != w->n || shape[1] != w->k)
        return err_set(b->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" holds [%lld, %lld]; config.json asks for [%u, %u]",
                       t->file, STR_ARG(t->name), (long long)shape[0], (long long)shape[1], w->n,
                       w->k);
    return ERR_OK;
}

static enum err bind_packed(struct binder *b, const char *module, struct weight *w)
{
    const struct tensor *data, *zeros, *scales;
    u32 fields = 32 / w->bits;
    w->kind = WEIGHT_PACKED;
    if (w->k % w->group)
        return odd_size(b, module, w, "compressed-tensors needs whole groups");
    TRY(want(b, module, ".weight_packed", INT32, w->n, CEIL_DIV(w->k, fields), &data));
    TRY(want(b, module, ".weight_scale", FLOATS, w->n, w->groups, &scales));
    TRY(check_weight_shape(b, module, w));
    w->data = data->data;
    set_scales(w, scales);
    if (!b->quant->symmetric) {
        TRY(want(b, module, ".weight_zero_point", INT32, CEIL_DIV(w->n, fields), w->groups,
                 &zeros));
        w->zeros = zeros->data;
    }
    return set_order(b, module, ".weight_g_idx", w);
}

static enum err bind_int8(struct binder *b, const char *module, struct weight *w)
{
    const struct tensor *data, *zeros, *scales;
    w->kind = WEIGHT_INT8;
    w->int8_activations = b->quant->int8_activations;
    TRY(want(b, module, ".weight", INT8, w->n, w->k, &data));
    TRY(want(b, module, ".weight_scale", FLOATS, w->n, 1, &scales));
    w->data = data->data;
    set_scales(w, scales);
    if (!b->quant->symmetric) {
        TRY(want(b, module, ".weight_zero_point", INT8, w->n, 1, &zeros));
        w->zeros = zeros->data;
    }
    return ERR_OK;
}

static void set_plain(struct weight *w, const struct tensor *t)
{
    w->kind = WEIGHT_PLAIN;
    w->bits = 0;
    w->group = w->k;
    w->groups = 1;
    w->type = t->type;
    w->data = t->data;
}

static enum err bind_plain(struct binder *b, const char *module, struct weight *w)
{
    const struct tensor *data;
    if (there(b, module, ".qweight") || there(b, module, ".weight_packed"))
        return err_set(b->e, ERR_MODEL,
                       "%s: \"%s\" is quantized, but neither config.json nor "
                       "quantize_config.json says how",
                       b->dir, module);
    TRY(want(b, module, ".weight", FLOATS, w->n, w->k, &data));
    set_plain(w, data);
    return ERR_OK;
}

static enum err bind_data(struct binder *b, const char *module, struct weight *w)
{
    switch (b->quant->method) {
    case QUANT_GPTQ:
        return there(b, module, ".qweight") ? bind_gptq(b, module, w) : bind_plain(b, module, w);
    case QUANT_AWQ:
        return there(b, module, ".qweight") ? bind_awq(b, module, w) : bind_plain(b, module, w);
    case QUANT_PACKED:
        return there(b, module, ".weight_packed") ? bind_packed(b, module, w)
                                                  : bind_plain(b, module, w);
    case QUANT_INT8:
        return there(b, module, ".weight_scale") ? bind_int8(b, module, w)
                                                 : bind_plain(b, module, w);
    case QUANT_MXFP4: /* bind_mxfp4 has what is */
    case QUANT_NONE:
        break;
    }
    return bind_plain(b, module, w);
}

enum err bind_linear(struct binder *b, const char *module, u32 n, u32 k, bool bias,
                     struct weight *out)
{
    u32 group = b->quant->group && b->quant->group < k ? b->quant->group : k;
    *out = (struct weight){.name = arena_str(b->keep, str_of(module)).p,
                           .n = n,
                           .k = k,
                           .bits = b->quant->bits,
                           .group = group,
                           .groups = CEIL_DIV(k, group)};
    if (!out->name)
        return arena_full(b->keep, module, b->e);
    TRY(bind_data(b, module, out));
    const struct tensor *t;
    if (bias) {
        TRY(want(b, module, ".bias", FLOATS, n, 0, &t));
        out->bias = t->data;
        out->bias_type = t->type;
    }
    return ERR_OK;
}

enum err bind_stack(struct binder *b, const char *name, u32 count, u32 n, u32 k, struct weight *out)
{
    const struct tensor *t;
    *out = (struct weight){.name = arena_str(b->keep, str_of(name)).p, .n = count * n, .k = k};
    if (!out->name)
        return arena_full(b->keep, name, b->e);
    TRY(want_shape(b, name, "", FLOATS, 3, (const u64[]){count, n, k}, &t));
    set_plain(out, t);
    return ERR_OK;
}

enum err bind_mxfp4(struct binder *b, const char *name, u32 count, u32 n, u32 k, struct weight *out)
{
    const struct tensor *data, *scales, *bias;
    const u32 groups = k / MXFP4_GROUP;
    const u64 blocks[] = {count, n, groups, MXFP4_GROUP / 2};
    *out = (struct weight){.name = arena_str(b->keep, str_of(name)).p,
                           .kind = WEIGHT_MXFP4,
                           .n = count * n,
                           .k = k,
                           .bits = 4,
                           .group = MXFP4_GROUP,
                           .groups = groups,
                           .row_step = 1,
                           .scale_type = DTYPE_E8M0};
    if (!out->name)
        return arena_full(b->keep, name, b->e);
    TRY(want_shape(b, name, "_blocks", UINT8, 4, blocks, &data));
    TRY(want_shape(b, name, "_scales", UINT8, 3, blocks, &scales));
    TRY(want(b, name, "_bias", FLOATS, count, n, &bias));
    out->data = data->data;
    out->scales = scales->data;
    out->bias = bias->data;
    out->bias_type = bias->type;
    return ERR_OK;
}

enum err bind_vector(struct binder *b, const char *name, u32 n, const struct tensor **out)
{
    return want(b, name, "", FLOATS, n, 0, out);
}

enum err bind_row(struct binder *b, const char *name, u32 n, const struct tensor **out)
{
    return want(b, name, "", FLOATS, 1, n, out);
}
