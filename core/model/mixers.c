#include "core/model/mixers.h"

bool mixers_has(const struct family *f)
{
    return f->delta || f->short_conv;
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

static void read_conv_shape(const struct fields *k, struct model *m)
{
    m->conv_taps = fields_u32(k, "conv_L_cache", 3, 2, LIMIT_DELTA_TAPS);
    if (fields_bool(k, "conv_bias", false))
        fields_refuse(k, "conv_bias", "only false is supported");
    if (m->hidden % 16)
        fields_refuse(k, "hidden_size", "a multiple of 16 is needed");
}

/* layer_types: full_attention, and what the others are called. */
static void read_types(const struct fields *k, const struct json *list, const char *other,
                       struct model *m, bool is_other[LIMIT_LAYERS])
{
    if (!list || list->type != JSON_ARRAY || list->n != m->layers_n) {
        fields_refuse(k, "layer_types", "a list of %u names is expected", m->layers_n);
        return;
    }
    const struct json *v = list->child;
    for (u32 i = 0; i < m->layers_n; i++, v = v->next) {
        is_other[i] = v->type == JSON_STRING && str_is(v->text, other);
        if (!is_other[i] && (v->type != JSON_STRING || !str_is(v->text, "full_attention")))
            fields_refuse(k, "layer_types", "full_attention and %s are supported", other);
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

static void read_others(const struct fields *k, const struct family *f, struct model *m,
                        bool is_other[LIMIT_LAYERS])
{
    const struct json *list = fields_get(k, "layer_types");
    const u32 every = fields_u32(k, "full_attention_interval", 4, 1, LIMIT_LAYERS);
    if (list || (f->short_conv && f->mixtures))
        read_types(k, list, f->delta ? "linear_attention" : "conv", m, is_other);
    else if (f->short_conv)
        read_attending(k, m, is_other);
    for (u32 i = 0; i < m->layers_n && f->delta && !list; i++)
        is_other[i] = (i + 1) % every != 0;
}

enum err mixers_read(struct arena *keep, const struct fields *k, const struct family *f,
                     struct model *m)
{
    bool is_other[LIMIT_LAYERS] = {0};
    if (f->delta)
        read_delta_shape(k, f, m);
    else
        read_conv_shape(k, m);
    read_others(k, f, m, is_other);
    for (u32 i = 0; i < m->layers_n && !*k->failed; i++) {
        struct layer *l = &m->layers[i];
        if (is_other[i] && f->delta)
            l->delta = ARENA_NEW(keep, struct delta_net, 1);
        else if (is_other[i])
            l->conv = ARENA_NEW(keep, struct weight, 1);
        if (is_other[i] && layer_attends(l))
            return arena_full(keep, k->file, k->e);
    }
    const u32 attending = model_attention_layers(m);
    if (!*k->failed && attending == 0)
        fields_refuse(k,
                      fields_get(k, "layer_types") ? "layer_types"
                      : f->delta                   ? "full_attention_interval"
                                                   : "full_attn_idxs",
                      "no layer has full_attention; at least one is needed");
    if (attending == m->layers_n) {
        m->delta = (struct delta_shape){0};
        m->conv_taps = 0;
    }
    return *k->failed ? k->e->code : ERR_OK;
}
