#include "core/model/gemma4.h"

#include <stdlib.h>

static void check_heads(const struct fields *k, const struct model *m, const struct layer *l,
                        const char *dim_key, const char *kv_key)
{
    if (l->head_dim % 2)
        fields_refuse(k, dim_key, "%u dimensions; an even number is needed", l->head_dim);
    if (m->heads % MAX(l->kv_heads, 1u))
        fields_refuse(k, kv_key, "num_attention_heads %u is no multiple of it (%u)", m->heads,
                      l->kv_heads);
}

/* per_layer_config, of which newer versions of transformers make the keys below: {"5": {"head_dim":
 * 512, ...}}. */
static void read_layer_config(const struct fields *k, const struct fields *all, struct model *m)
{
    for (const struct json *v = all->object->child; v && !*k->failed; v = v->next) {
        char *end, key[16] = "";
        if (v->key.n < sizeof key)
            memcpy(key, v->key.p, v->key.n);
        unsigned long i = strtoul(key, &end, 10);
        struct fields one = fields_in(all, key);
        if (end == key || *end || i >= m->layers_n || !one.object) {
            fields_refuse(k, "per_layer_config", "numbers of layers with an object are expected");
            return;
        }
        for (const struct json *x = one.object->child; x; x = x->next)
            if (!str_is(x->key, "head_dim") && !str_is(x->key, "num_key_value_heads"))
                fields_refuse(k, "per_layer_config",
                              "head_dim and num_key_value_heads are supported in it");
        struct layer *l = &m->layers[i];
        l->head_dim = fields_u32(&one, "head_dim", l->head_dim, 2, LIMIT_HEAD_DIM);
        l->kv_heads = fields_u32(&one, "num_key_value_heads", l->kv_heads, 1, LIMIT_HEADS);
        check_heads(&one, m, l, "head_dim", "num_key_value_heads");
    }
}

/* Devices plan attention once for all layers of a window. */
static void check_alike(const struct fields *k, const struct model *m)
{
    for (u32 i = 1; i < m->layers_n; i++)
        for (u32 j = 0; j < i; j++) {
            const struct layer *a = &m->layers[i], *b = &m->layers[j];
            if (a->window == b->window &&
                (a->head_dim != b->head_dim || a->kv_heads != b->kv_heads)) {
                fields_refuse(k, "per_layer_config",
                              "layers %u and %u are of one type, but have other heads", j, i);
                return;
            }
        }
}

/* Heads of the layers that see all. */
static void read_heads(const struct fields *k, struct model *m)
{
    struct fields each = fields_in(k, "per_layer_config");
    struct layer full = {0};
    full.head_dim = fields_u32(k, "global_head_dim", 512, 2, LIMIT_HEAD_DIM);
    full.kv_heads = fields_u32(k, "num_global_key_value_heads", m->kv_heads, 1, LIMIT_HEADS);
    if (!fields_bool(k, "attention_k_eq_v", false))
        full.kv_heads = m->kv_heads; /* the other key is not looked at then */
    if (each.object) {
        read_layer_config(k, &each, m);
        check_alike(k, m);
        return;
    }
    check_heads(k, m, &full, "global_head_dim", "num_global_key_value_heads");
    for (u32 i = 0; i < m->layers_n; i++)
        if (!m->layers[i].window) {
            m->layers[i].head_dim = full.head_dim;
            m->layers[i].kv_heads = full.kv_heads;
        }
}

/* The last layers see what the last one before them wrote that is of their kind. */
static void share_keys(const struct fields *k, struct model *m)
{
    const char *key = "num_kv_shared_layers";
    u32 shared = fields_u32(k, key, 0, 0, m->layers_n - 1), own = m->layers_n - shared;
    bool wide = fields_bool(k, "use_double_wide_mlp", false);
    if (wide && shared && fields_bool(k, "enable_moe_block", false))
        fields_refuse(k, "use_double_wide_mlp", "beside experts it is not supported");
    for (u32 i = own; i < m->layers_n; i++) {
        struct layer *l = &m->layers[i], *from = &m->layers[own - 1];
        while (from > m->layers && (from->window != 0) != (l->window != 0))
            from--;
        if (from->window != l->window) {
            fields_refuse(k, key, "layer %u has none of its kind before it", i);
            return;
        }
        l->kv_layer = (u32)(from - m->layers);
        l->intermediate *= 1 + wide;
    }
}

static void read_own_inputs(const struct fields *k, const struct family *f, struct model *m)
{
    const char *key = "hidden_size_per_layer_input";
    const bool null = json_get(k->object, key) && !fields_get(k, key);
    m->own.n = fields_u32(k, key, f->own_inputs && !null ? 256 : 0, 0,
                          LIMIT_INTERMEDIATE / MAX(m->layers_n, 1u));
    if (m->own.n &&
        fields_u32(k, "vocab_size_per_layer_input", 262144, 1, UINT32_MAX - 1) != m->vocab)
        fields_refuse(k, "vocab_size_per_layer_input", "vocab_size (%u) is expected", m->vocab);
}

void gemma4_read(const struct fields *k, const struct family *f, struct model *m, struct config *c)
{
    struct layer *last = &m->layers[m->layers_n - 1];
    struct str both = fields_str(k, "use_bidirectional_attention", "vision");
    if (*k->failed)
        return;
    if (!str_is(both, "vision")) /* of text, that leaves it as it is */
        fields_refuse(k, "use_bidirectional_attention", "not supported");
    last->window = 0; /* whatever layer_types says, as in transformers */
    last->rope = ROPE_FULL;
    c->values_are_keys = fields_bool(k, "attention_k_eq_v", false);
    read_heads(k, m);
    share_keys(k, m);
    read_own_inputs(k, f, m);
    for (u32 i = 0; i < m->layers_n; i++) {
        m->head_dim = MAX(m->head_dim, m->layers[i].head_dim);
        m->kv_heads = MAX(m->kv_heads, m->layers[i].kv_heads);
        m->intermediate = MAX(m->intermediate, m->layers[i].intermediate);
    }
    if (m->intermediate > LIMIT_INTERMEDIATE)
        fields_refuse(k, "use_double_wide_mlp", "%u features; at most %u are supported",
                      m->intermediate, LIMIT_INTERMEDIATE);
}
