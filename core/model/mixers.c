#include "core/model/mixers.h"

bool mixers_has(const struct family *f)
{
    return f->delta || f->short_conv || f->granite_hybrid || f->blocks;
}

static void read_delta_shape(const struct fields *k, const struct family *f, struct model *m)
{
    struct delta_shape *d = &m->delta;
    struct str gate = fields_str(k, "output_gate_type", "swish");
    d->joined = f->joined_delta;
    d->key_heads = fields_u32(k, "linear_num_key_heads", 16, 1, LIMIT_HEADS);
    d->value_heads = fields_u32(k, "linear_num_value_heads", 32, 1, LIMIT_HEADS);
    d->key_dim = fields_u32(k, "linear_key_head_dim", 128, 1, LIMIT_DELTA_DIM);
    d->value_dim = fields_u32(k, "linear_value_head_dim", 128, 1, LIMIT_DELTA_DIM);
    d->taps = fields_u32(k, "linear_conv_kernel_dim", 4, 2, LIMIT_DELTA_TAPS);
    if (d->value_heads % MAX(d->key_heads, 1u))
        fields_refuse(k, "linear_num_value_heads", "no multiple of linear_num_key_heads (%u)",
                      d->key_heads);
    if (d->key_dim % 16)
        fields_refuse(k, "linear_key_head_dim", "a multiple of 16 is needed");
    if (d->value_dim % 16)
        fields_refuse(k, "linear_value_head_dim", "a multiple of 16 is needed");
    if (!str_is(gate, "swish") && !str_is(gate, "silu"))
        fields_refuse(k, "output_gate_type", "only swish is supported");
    m->attention_gated = fields_bool(k, "attn_output_gate", true);
    if (!m->attention_gated)
        fields_refuse(k, "attn_output_gate", "only true is supported");
}

static bool is_infinite(const struct json *v)
{
    if (v && v->type == JSON_OBJECT) /* as transformers 5 writes it */
        v = json_get(v, "__float__");
    return v && (v->type == JSON_STRING || v->type == JSON_NUMBER) && str_is(v->text, "Infinity");
}

/* transformers applies limits of dt in some of its ways to compute it, but not in others; of
 * nemotron_h it takes time_step_min for the lower one, which others of the family's
 * implementations, and its own of single tokens, know for training only. */
static void check_time_step(const struct fields *k)
{
    const char *key = "time_step_limit";
    const struct json *list = fields_get(k, key);
    const struct json *least = list && list->type == JSON_ARRAY ? list->child : NULL;
    const struct json *most = least && list->n == 2 ? least->next : NULL;
    double from = -1;
    if (list && (!is_infinite(most) || !json_f64(least, &from) || from != 0))
        fields_refuse(k, key, "only [0.0, Infinity] is supported");
}

/* Of granitemoehybrid; m->delta.value_dim is what follows from the other keys. */
static void read_granite_heads(const struct fields *k, struct model *m)
{
    struct delta_shape *d = &m->delta;
    const struct json *dim = fields_get(k, "mamba_d_head");
    const u32 wide = m->hidden * fields_u32(k, "mamba_expand", 2, 1, 16);
    d->key_heads = fields_u32(k, "mamba_n_groups", 1, 1, LIMIT_HEADS);
    d->value_heads = fields_u32(k, "mamba_n_heads", 128, 1, LIMIT_HEADS);
    d->value_dim = wide / d->value_heads;
    if (d->value_heads % d->key_heads)
        fields_refuse(k, "mamba_n_heads", "no multiple of mamba_n_groups (%u)", d->key_heads);
    if (wide % d->value_heads)
        fields_refuse(k, "mamba_n_heads", "mamba_expand * hidden_size %u is no multiple of it",
                      wide);
    if (dim && (dim->type != JSON_STRING || !str_is(dim->text, "auto")) &&
        fields_u32(k, "mamba_d_head", 0, 1, LIMIT_DELTA_DIM) != d->value_dim)
        fields_refuse(k, "mamba_d_head",
                      "mamba_n_heads %u times it is not mamba_expand * hidden_size %u",
                      d->value_heads, wide);
    if (d->value_dim > LIMIT_DELTA_DIM || d->value_dim % 16)
        fields_refuse(k, "mamba_d_head",
                      "heads of %u dimensions; multiples of 16 up to %u are supported",
                      d->value_dim, LIMIT_DELTA_DIM);
}

static void read_nemotron_heads(const struct fields *k, struct delta_shape *d)
{
    d->key_heads = fields_u32(k, "n_groups", 8, 1, LIMIT_HEADS);
    d->value_heads = fields_u32(k, "mamba_num_heads", KEY_U32_REQUIRED, 1, LIMIT_HEADS);
    d->value_dim = fields_u32(k, "mamba_head_dim", KEY_U32_REQUIRED, 1, LIMIT_DELTA_DIM);
    if (d->value_heads % MAX(d->key_heads, 1u))
        fields_refuse(k, "mamba_num_heads", "no multiple of n_groups (%u)", d->key_heads);
    if (d->value_dim % 16)
        fields_refuse(k, "mamba_head_dim", "a multiple of 16 is needed");
}

/* What transformers takes for other names of nemotron_h's keys, though no file has them. */
static void refuse_nemotron_names(const struct fields *k)
{
    static const char *const names[][2] = {{"mamba_n_groups", "n_groups"},
                                           {"mamba_d_conv", "conv_kernel"},
                                           {"mamba_conv_bias", "use_conv_bias"},
                                           {"mamba_dt_limit", "time_step_limit"}};
    for (size_t i = 0; i < COUNTOF(names); i++)
        if (fields_get(k, names[i][0]))
            fields_refuse(k, names[i][0], "only the name %s is supported", names[i][1]);
}

static void read_mamba_shape(const struct fields *k, const struct family *f, struct model *m,
                             struct config *c)
{
    struct delta_shape *d = &m->delta;
    const char *state = f->blocks ? "ssm_state_size" : "mamba_d_state";
    const bool silu = f->blocks ? str_is(fields_str(k, "mamba_hidden_act", "silu"), "silu")
                                : m->activation == ACT_SILU;
    d->mamba = true;
    if (f->blocks)
        read_nemotron_heads(k, d);
    else
        read_granite_heads(k, m);
    d->norm_groups = f->blocks ? d->key_heads : 1;
    d->key_dim = fields_u32(k, state, KEY_U32_REQUIRED, 1, LIMIT_DELTA_DIM);
    d->taps = fields_u32(k, f->blocks ? "conv_kernel" : "mamba_d_conv", 4, 2, LIMIT_DELTA_TAPS);
    c->conv_bias = fields_bool(k, f->blocks ? "use_conv_bias" : "mamba_conv_bias", true);
    if (d->key_dim % 16)
        fields_refuse(k, state, "a multiple of 16 is needed");
    if (fields_bool(k, "mamba_proj_bias", false))
        fields_refuse(k, "mamba_proj_bias", "only false is supported");
    if (f->blocks && fields_bool(k, "use_bias", false))
        fields_refuse(k, "use_bias", "only false is supported");
    if (f->blocks)
        refuse_nemotron_names(k);
    if (!silu)
        fields_refuse(k, f->blocks ? "mamba_hidden_act" : "hidden_act",
                      "of layers of Mamba only silu is supported");
    check_time_step(k);
}

static void read_conv_shape(const struct fields *k, struct model *m)
{
    m->conv_taps = fields_u32(k, "conv_L_cache", 3, 2, LIMIT_DELTA_TAPS);
    if (fields_bool(k, "conv_bias", false))
        fields_refuse(k, "conv_bias", "only false is supported");
    if (m->hidden % 16)
        fields_refuse(k, "hidden_size", "a multiple of 16 is needed");
}

/* The list under `key`: full_attention, and what the others are called; granite's first files have
 * shorter names for both. */
static void read_types(const struct fields *k, const char *key, const struct family *f,
                       const char *other, const struct model *m, bool is_other[LIMIT_LAYERS])
{
    const struct json *list = fields_get(k, key);
    const char *full = "full_attention", *older = f->granite_hybrid ? "attention" : full;
    const char *older_other = f->granite_hybrid ? "mamba" : other;
    if (!list || list->type != JSON_ARRAY || list->n != m->layers_n) {
        fields_refuse(k, key, "a list of %u names is expected", m->layers_n);
        return;
    }
    const struct json *v = list->child;
    for (u32 i = 0; i < m->layers_n; i++, v = v->next) {
        const struct str type = v->type == JSON_STRING ? v->text : STR("");
        is_other[i] = str_is(type, other) || str_is(type, older_other);
        if (!is_other[i] && !str_is(type, full) && !str_is(type, older))
            fields_refuse(k, key, "%s and %s are supported", older, older_other);
    }
}

/* full_attn_idxs: which layers of lfm2 have attention, by their numbers; all, where there is none.
 */
static void read_attending(const struct fields *k, const struct model *m,
                           bool is_other[LIMIT_LAYERS])
{
    const char *key = "full_attn_idxs";
    const struct json *list = fields_get(k, key);
    bool fits = !list || list->type == JSON_ARRAY;
    u64 i;
    memset(is_other, list != NULL, m->layers_n * sizeof *is_other);
    for (const struct json *v = list ? list->child : NULL; v && fits; v = v->next) {
        fits = json_u64(v, &i) && i < m->layers_n;
        if (fits)
            is_other[i] = false;
    }
    if (!fits)
        fields_refuse(k, key, "a list of numbers below %u is expected", m->layers_n);
}

/* What says which block of nemotron_h is what. */
static const char *blocks_key(const struct fields *k)
{
    static const char *const lists[] = {"layers_block_type", "layer_types"};
    for (size_t i = 0; i < COUNTOF(lists); i++)
        if (fields_get(k, lists[i]))
            return lists[i];
    return "hybrid_override_pattern";
}

u32 mixers_blocks(const struct fields *k)
{
    const char *key = blocks_key(k), *count = "num_hidden_layers";
    const struct json *v = fields_get(k, key);
    const size_t n = !v ? 0 : v->type == JSON_STRING ? v->text.n : v->n;
    if (n < 1 || n > LIMIT_LAYERS)
        fields_refuse(k, key, "1 to %d blocks are supported", LIMIT_LAYERS);
    else if (fields_u32(k, count, (u32)n, 1, UINT32_MAX) != n)
        fields_refuse(k, count, "%s has %zu blocks", key, n);
    return (u32)n;
}

/* A block as a letter of hybrid_override_pattern. */
static char block_letter(const struct json *v)
{
    static const struct {
        const char *name;
        char letter;
    } names[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    for (size_t i = 0; i < COUNTOF(names) && v->type == JSON_STRING; i++)
        if (str_is(v->text, names[i].name))
            return names[i].letter;
    return 0;
}

/* m->layers_n of them: M, *, - and E. */
static void read_letters(const struct fields *k, const char *key, const struct model *m,
                         char letters[LIMIT_LAYERS])
{
    const struct json *blocks = fields_get(k, key), *v = blocks->child;
    const bool text = blocks->type == JSON_STRING;
    const struct json *pattern = fields_get(k, "hybrid_override_pattern");
    for (u32 i = 0; i < m->layers_n && !*k->failed; i++, v = v ? v->next : NULL) {
        letters[i] = text ? blocks->text.p[i] : v ? block_letter(v) : 0;
        if (!memchr("M*-E", letters[i], 4))
            fields_refuse(k, key,
                          "block %u: Mamba 2 (M, linear_attention, mamba), attention (*, "
                          "full_attention, attention), MLPs (-, mlp) and experts (E, moe) are "
                          "supported",
                          i);
    }
    if (pattern && !*k->failed &&
        (pattern->type != JSON_STRING ||
         !str_eq(pattern->text, (struct str){letters, m->layers_n})))
        fields_refuse(k, "hybrid_override_pattern", "%s says otherwise", key);
}

static bool is_mixer(char letter)
{
    return letter == 'M' || letter == '*';
}

/* Makes layers of blocks: each of a mixer, and of the MLP or the experts behind it where there are
 * any. */
static void join_blocks(const struct fields *k, const char *key, struct model *m, struct config *c,
                        bool is_other[LIMIT_LAYERS])
{
    char letters[LIMIT_LAYERS + 1] = {0};
    u32 n = 0;
    read_letters(k, key, m, letters);
    for (u32 i = 0; i < m->layers_n && !*k->failed; i++) {
        const bool mixes = is_mixer(letters[i]);
        if (!mixes && (i == 0 || !is_mixer(letters[i - 1])))
            fields_refuse(
                k, key, "block %u: an MLP or experts that no mixer is before are not supported", i);
        if (!mixes)
            continue;
        struct layer *l = &m->layers[n];
        l->rope = ROPE_SETS;
        l->intermediate = letters[i + 1] == '-' ? m->intermediate : 0;
        c->block[n] = i;
        c->mixed[n] = letters[i + 1] == 'E';
        is_other[n++] = letters[i] == 'M';
    }
    m->layers_n = n;
}

/* Returns the key that says which layers attend. */
static const char *read_others(const struct fields *k, const struct family *f, struct model *m,
                               struct config *c, bool is_other[LIMIT_LAYERS])
{
    if (f->blocks) {
        join_blocks(k, blocks_key(k), m, c, is_other);
        return blocks_key(k);
    }
    const bool listed = fields_get(k, "layer_types") || f->granite_hybrid;
    const char *key = f->granite_hybrid && fields_get(k, "layers_block_type") ? "layers_block_type"
                                                                              : "layer_types";
    if (listed || (f->short_conv && f->mixtures)) {
        read_types(k, key, f, f->short_conv ? "conv" : "linear_attention", m, is_other);
        return key;
    }
    if (f->short_conv) {
        read_attending(k, m, is_other);
        return "full_attn_idxs";
    }
    const u32 every = fields_u32(k, "full_attention_interval", 4, 1, LIMIT_LAYERS);
    for (u32 i = 0; i < m->layers_n; i++)
        is_other[i] = (i + 1) % every != 0;
    return "full_attention_interval";
}

enum err mixers_read(struct arena *keep, const struct fields *k, const struct family *f,
                     struct model *m, struct config *c)
{
    bool is_other[LIMIT_LAYERS] = {0};
    if (f->delta)
        read_delta_shape(k, f, m);
    if (f->short_conv)
        read_conv_shape(k, m);
    m->delta.eps = (float)family_eps(k, f);
    const char *key = read_others(k, f, m, c, is_other);
    for (u32 i = 0; i < m->layers_n && !*k->failed; i++) {
        struct layer *l = &m->layers[i];
        if (is_other[i] && !f->short_conv)
            l->delta = ARENA_NEW(keep, struct delta_net, 1);
        else if (is_other[i])
            l->conv = ARENA_NEW(keep, struct weight, 1);
        if (is_other[i] && layer_attends(l))
            return arena_full(keep, k->file, k->e);
    }
    const u32 attending = model_attention_layers(m);
    if (!*k->failed && attending == 0)
        fields_refuse(k, key, "no layer has full_attention; at least one is needed");
    if (attending < m->layers_n && (f->granite_hybrid || f->blocks))
        read_mamba_shape(k, f, m, c);
    if (attending == m->layers_n) {
        m->delta = (struct delta_shape){0};
        m->conv_taps = 0;
    }
    return *k->failed ? k->e->code : ERR_OK;
}
