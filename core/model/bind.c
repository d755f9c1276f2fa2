#include "core/model/bind.h"

#include "core/base/half.h"
#include "core/model/quant.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* How modules are called: within a layer, and at the ends. leaf: gate, up, down of an MLP, and the
 * first two in one. */
struct names {
    const char *attention, *mamba, *norm_q, *norm_k, *o, *mlp, *shared, *leaf[4], *embed,
        *norm_final;
};
static const struct names usual_names = {
    .attention = "self_attn",
    .norm_q = "q_norm",
    .norm_k = "k_norm",
    .o = "o_proj",
    .mlp = "mlp",
    .shared = "mlp.shared_experts",
    .leaf = {"gate_proj", "up_proj", "down_proj", "gate_up_proj"},
    .embed = "model.embed_tokens",
    .norm_final = "model.norm",
};
static const struct names lfm2_names = {
    .attention = "self_attn",
    .norm_q = "q_layernorm",
    .norm_k = "k_layernorm",
    .o = "out_proj",
    .mlp = "feed_forward",
    .leaf = {"w1", "w3", "w2", ""},
    .embed = "model.embed_tokens",
    .norm_final = "model.embedding_norm",
};
static const struct names hunyuan_names = {
    .attention = "self_attn",
    .norm_q = "query_layernorm",
    .norm_k = "key_layernorm",
    .o = "o_proj",
    .mlp = "mlp",
    .leaf = {"gate_proj", "up_proj", "down_proj", ""},
    .embed = "model.embed_tokens",
    .norm_final = "model.norm",
};
static const struct names granite_hybrid_names = {
    .attention = "self_attn",
    .mamba = "mamba",
    .o = "o_proj",
    .mlp = "shared_mlp",
    .shared = "shared_mlp",
    .leaf = {"gate_proj", "up_proj", "output_linear", "input_linear"},
    .embed = "model.embed_tokens",
    .norm_final = "model.norm",
};
static const struct names nemotron_names = {
    .attention = "mixer",
    .mamba = "mixer",
    .o = "o_proj",
    .mlp = "mixer",
    .shared = "mixer.shared_experts",
    .leaf = {"", "", "down_proj", "up_proj"},
    .embed = "model.embeddings",
    .norm_final = "model.norm_f",
};

/* The dot-terminated prefix of one layer's tensors. */
struct place_name {
    char text[96];
};

PRINTF_LIKE(2, 3) static const char *format(struct place_name *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(name->text, sizeof name->text, fmt, args);
    va_end(args);
    return name->text;
}

static bool module_stored(const struct opening *o, const char *module)
{
    static const char *const kinds[] = {"weight", "qweight", "weight_packed"};
    struct place_name s;
    for (size_t i = 0; i < COUNTOF(kinds); i++)
        if (tensors_find(&o->tensors, format(&s, "%s.%s", module, kinds[i])))
            return true;
    return false;
}

/* Phi-3 fuses q, k, v and gate, up; some quantizers (GPTQModel 7.7) write them apart. */
static void find_fused(struct opening *o)
{
    if (o->config.fused && module_stored(o, "model.layers.0.self_attn.q_proj"))
        o->m->n_qkv = 3;
    if (o->config.fused && module_stored(o, "model.layers.0.mlp.gate_proj"))
        o->m->n_gate_up = 2;
}

/* In names of tensors. */
static u32 mlp_number(const struct opening *o, u32 layer)
{
    return o->config.block[layer] + o->config.blocks;
}

static enum err bind_norms(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[][4] = {
        [NORMS_BEFORE] = {"input_layernorm", "post_attention_layernorm", NULL, NULL},
        [NORMS_LFM2] = {"operator_norm", "ffn_norm", NULL, NULL},
        [NORMS_AFTER] = {NULL, NULL, "post_attention_layernorm", "post_feedforward_layernorm"},
        [NORMS_AROUND] = {"input_layernorm", "pre_feedforward_layernorm",
                          "post_attention_layernorm", "post_feedforward_layernorm"},
        [NORMS_GLM] = {"input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm",
                       "post_mlp_layernorm"},
        [NORMS_BLOCKS] = {"norm", "norm", NULL, NULL}};
    const struct tensor **norms[] = {&l->norm_attention, &l->norm_mlp, &l->norm_after_attention,
                                     &l->norm_after_mlp};
    struct place_name s;
    for (u32 j = 0; j < COUNTOF(norms); j++) {
        const char *name = names[o->config.norms][j];
        const bool of_mlp = norms[j] == &l->norm_mlp;
        if (name && (!of_mlp || layer_has_mlp(l)))
            TRY(bind_vector(b,
                            format(&s, "model.layers.%u.%s.weight",
                                   of_mlp ? mlp_number(o, i) : o->config.block[i], name),
                            o->m->hidden, norms[j]));
    }
    if (o->m->qk_norm && layer_attends(l)) {
        TRY(bind_vector(b, format(&s, "model.layers.%u.self_attn.%s.weight", i, o->names->norm_q),
                        layer_qk_norm_n(o->m, l, o->m->heads), &l->norm_q));
        TRY(bind_vector(
            b, format(&s, "model.layers.%u.self_attn.%s.weight", l->kv_layer, o->names->norm_k),
            layer_qk_norm_n(o->m, l, l->kv_heads), &l->norm_k));
    }
    return ERR_OK;
}

static enum err bind_attention(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    struct place_name s;
    u32 hidden = o->m->hidden, out = o->m->heads * l->head_dim;
    u32 q = out * (1 + o->m->attention_gated), kv = l->kv_heads * l->head_dim;
    const u32 at = o->config.block[i];
    const char *of = o->names->attention;
    u32 matrices = !layer_stores(o->m, l) ? 1 : o->config.values_are_keys && !l->window ? 2 : 3;
    if (o->m->n_qkv == 1)
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.qkv_proj", at, of), q + 2 * kv, hidden,
                        o->config.qkv_bias, &l->qkv[0]));
    for (u32 j = 0; o->m->n_qkv == 3 && j < matrices; j++)
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.%s", at, of, names[j]), j ? kv : q,
                        hidden, o->config.qkv_bias, &l->qkv[j]));
    if (matrices == 2)
        l->qkv[2] = l->qkv[1];
    if (o->config.gpt_oss)
        TRY(bind_vector(b, format(&s, "model.layers.%u.%s.sinks", at, of), o->m->heads, &l->sinks));
    return bind_linear(b, format(&s, "model.layers.%u.%s.%s", at, of, o->names->o), hidden, out,
                       o->config.o_bias, &l->o);
}

static enum err bind_delta(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[][DELTA_INPUTS] = {
        {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"},
        {"in_proj_qkvz", "in_proj_ba"},
        {"in_proj"}};
    const struct delta_shape *d = &o->m->delta;
    const char *const *inputs = names[d->mamba ? 2 : d->joined];
    const char *of = d->mamba ? o->names->mamba : "linear_attn";
    const u32 at = o->config.block[i];
    struct delta_net *net = l->delta;
    struct place_name s;
    for (u32 j = 0; j < delta_inputs(d); j++)
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.%s", at, of, inputs[j]),
                        delta_outputs(d, j), o->m->hidden, false, &net->in[j]));
    TRY(bind_stack(b, format(&s, "model.layers.%u.%s.conv1d.weight", at, of), delta_channels(d), 1,
                   d->taps, &net->conv));
    if (o->config.conv_bias)
        TRY(bind_vector(b, format(&s, "model.layers.%u.%s.conv1d.bias", at, of), delta_channels(d),
                        &net->conv_bias));
    if (d->mamba)
        TRY(bind_vector(b, format(&s, "model.layers.%u.%s.D", at, of), d->value_heads, &net->skip));
    TRY(bind_vector(b, format(&s, "model.layers.%u.%s.A_log", at, of), d->value_heads,
                    &net->a_log));
    TRY(bind_vector(b, format(&s, "model.layers.%u.%s.dt_bias", at, of), d->value_heads,
                    &net->dt_bias));
    TRY(bind_vector(b, format(&s, "model.layers.%u.%s.norm.weight", at, of),
                    d->mamba ? delta_values(d) : d->value_dim, &net->norm));
    return bind_linear(b, format(&s, "model.layers.%u.%s.out_proj", at, of), o->m->hidden,
                       delta_values(d), false, &l->o);
}

static enum err bind_conv(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    struct place_name s;
    const u32 hidden = o->m->hidden;
    TRY(bind_linear(b, format(&s, "model.layers.%u.conv.in_proj", i), 3 * hidden, hidden, false,
                    &l->qkv[0]));
    TRY(bind_stack(b, format(&s, "model.layers.%u.conv.conv.weight", i), hidden, 1, o->m->conv_taps,
                   l->conv));
    return bind_linear(b, format(&s, "model.layers.%u.conv.out_proj", i), hidden, hidden, false,
                       &l->o);
}

/* The MLP whose modules are called model.layers.I.OF... */
static enum err bind_mlp(struct opening *o, struct binder *b, u32 layer, const char *of, u32 wide,
                         struct layer *l)
{
    struct place_name s;
    u32 hidden = o->m->hidden, i = mlp_number(o, layer);
    bool bias = o->config.mlp_bias;
    if (o->m->n_gate_up == 1) {
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.%s", i, of, o->names->leaf[3]),
                        o->m->mlp_ungated ? wide : 2 * wide, hidden, bias, &l->gate_up[0]));
    } else {
        for (u32 j = 0; j < 2; j++)
            TRY(bind_linear(b, format(&s, "model.layers.%u.%s.%s", i, of, o->names->leaf[j]), wide,
                            hidden, bias, &l->gate_up[j]));
    }
    return bind_linear(b, format(&s, "model.layers.%u.%s.%s", i, of, o->names->leaf[2]), hidden,
                       wide, bias, &l->down);
}

/* How the modules of a mixture are called: `of` within the layer, then the router, gate, up and
 * down of an expert, and those of all experts joined (gate and up in one). Those of Mixtral come
 * mixed, too, as transformers 5 has other names in memory than in its files: GPTQModel writes the
 * first, llm-compressor the third. The last three are gemma4's, granite's and nemotron_h's, whose
 * experts have no gates. bias: see struct mixture. */
static const struct mixture_names {
    const char *of, *router, *leaf[3], *joined[2], *bias;
} mixture_names[] = {{"mlp.",
                      "gate",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      "gate.e_score_correction_bias"},
                     {"block_sparse_moe.",
                      "gate",
                      {"w1", "w3", "w2"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      "gate.e_score_correction_bias"},
                     {"block_sparse_moe.",
                      "gate",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      "gate.e_score_correction_bias"},
                     {"feed_forward.",
                      "gate",
                      {"w1", "w3", "w2"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      "expert_bias"},
                     {"feed_forward.",
                      "gate",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      "expert_bias"},
                     {"",
                      "router.proj",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"},
                      NULL},
                     {"block_sparse_moe.",
                      "router.layer",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"input_linear.weight", "output_linear.weight"},
                      "gate.e_score_correction_bias"},
                     {"mixer.",
                      "gate",
                      {"up_proj", "", "down_proj"},
                      {"experts.up_proj", "experts.down_proj"},
                      "gate.e_score_correction_bias"}};

static const struct mixture_names ernie_mixture = {"mlp.",
                                                   "gate",
                                                   {"gate_proj", "up_proj", "down_proj"},
                                                   {"experts.gate_up_proj", "experts.down_proj"},
                                                   "moe_statics.e_score_correction_bias"};

/* The names that layer i has; where it has none, those of the family's files. */
static const struct mixture_names *find_names(const struct opening *o, u32 i)
{
    struct place_name s;
    const struct mixture_names *usual = &mixture_names[str_is(o->m->model_type, "mixtral")];
    if (o->names == &lfm2_names)
        usual = &mixture_names[3]; /* of w1, w3, w2 */
    if (o->m->experts_softmax)
        return &ernie_mixture;
    if (str_starts(o->m->model_type, STR("granitemoe")))
        return &mixture_names[COUNTOF(mixture_names) - 2];
    if (o->config.blocks)
        return &mixture_names[COUNTOF(mixture_names) - 1];
    for (const struct mixture_names *m = mixture_names; m < mixture_names + COUNTOF(mixture_names);
         m++) {
        format(&s, "model.layers.%u.%sexperts.0.%s", i, m->of, m->leaf[2]);
        if (module_stored(o, s.text))
            return m;
        format(&s, "model.layers.%u.%s%s", i, m->of, m->joined[0]);
        if (tensors_find(&o->tensors, s.text))
            return m;
    }
    return usual;
}

/* n rows of a plain matrix or one of MXFP4, from `first` on, every one or every second. */
static struct weight rows_of(const struct weight *w, size_t first, u32 n, u32 step)
{
    const size_t value_bytes = w->kind == WEIGHT_PLAIN ? 2 * dtype_bytes(w->type) : 1;
    struct weight part = *w;
    part.data = (const u8 *)w->data + first * w->k * value_bytes / 2;
    part.n = n;
    if (w->kind == WEIGHT_PLAIN)
        return part;
    part.scales = (const u8 *)w->scales + first * w->groups;
    part.bias = (const u8 *)w->bias + first * dtype_bytes(w->bias_type);
    part.row_step = step;
    return part;
}

/* All experts of a layer in two tensors, [experts][gate, up][wide][hidden] (without gates
 * [experts][wide][hidden]) and [experts][hidden][wide]: as transformers 5 has them in memory, and
 * saves them where it is told not to keep to the usual form of files. */
static enum err bind_joined(struct opening *o, struct binder *b, u32 i,
                            const struct mixture_names *names, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    u32 wide = m->expert_intermediate, parts = model_expert_parts(m);
    struct weight gate_up, down;
    TRY(bind_stack(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[0]),
                   m->experts, parts * wide, m->hidden, &gate_up));
    TRY(bind_stack(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[1]),
                   m->experts, m->hidden, wide, &down));
    for (u32 e = 0; e < m->experts; e++) {
        for (u32 j = 0; j < parts; j++)
            x->experts[e].gate_up[j] = rows_of(&gate_up, (parts * (size_t)e + j) * wide, wide, 1);
        x->experts[e].down = rows_of(&down, (size_t)e * m->hidden, m->hidden, 1);
    }
    return ERR_OK;
}

/* gpt-oss: of each expert, gates and ups take turns. */
static enum err bind_gpt_oss(struct opening *o, struct binder *b, u32 i, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    u32 wide = m->expert_intermediate;
    struct weight gate_up, down;
    TRY(bind_linear(b, format(&s, "model.layers.%u.mlp.router", i), m->experts, m->hidden, true,
                    &x->router));
    TRY(bind_mxfp4(b, format(&s, "model.layers.%u.mlp.experts.gate_up_proj", i), m->experts,
                   2 * wide, m->hidden, &gate_up));
    TRY(bind_mxfp4(b, format(&s, "model.layers.%u.mlp.experts.down_proj", i), m->experts, m->hidden,
                   wide, &down));
    for (u32 e = 0; e < m->experts; e++) {
        for (u32 j = 0; j < 2; j++)
            x->experts[e].gate_up[j] = rows_of(&gate_up, 2 * (size_t)e * wide + j, wide, 2);
        x->experts[e].down = rows_of(&down, (size_t)e * m->hidden, m->hidden, 1);
    }
    return ERR_OK;
}

static enum err bind_mixture_norms(struct opening *o, struct binder *b, u32 i,
                                   struct mixture_norms *x)
{
    const u32 hidden = o->m->hidden;
    const struct {
        const char *name;
        u32 n;
        const struct tensor **to;
    } vectors[] = {{"router.scale", hidden, &x->router},
                   {"router.per_expert_scale", o->m->experts, &x->scale},
                   {"pre_feedforward_layernorm_2.weight", hidden, &x->experts},
                   {"post_feedforward_layernorm_1.weight", hidden, &x->after_shared},
                   {"post_feedforward_layernorm_2.weight", hidden, &x->after_experts}};
    struct place_name s;
    for (u32 j = 0; j < COUNTOF(vectors); j++)
        TRY(bind_vector(b, format(&s, "model.layers.%u.%s", i, vectors[j].name), vectors[j].n,
                        vectors[j].to));
    return ERR_OK;
}

static enum err bind_mixture(struct opening *o, struct binder *b, u32 layer, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    const u32 i = mlp_number(o, layer), wide = m->expert_intermediate, hidden = m->hidden;
    const struct mixture_names *names = find_names(o, i);
    if (o->config.gpt_oss)
        return bind_gpt_oss(o, b, i, x);
    TRY(bind_linear(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->router), m->experts,
                    hidden, false, &x->router));
    if (o->config.router_bias)
        TRY((names == &ernie_mixture ? bind_row : bind_vector)(
            b, format(&s, "model.layers.%u.%s%s", i, names->of, names->bias), m->experts,
            &x->bias));
    if (x->norms)
        TRY(bind_mixture_norms(o, b, i, x->norms));
    format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[0]);
    if (tensors_find(&o->tensors, s.text))
        return bind_joined(o, b, i, names, x);
    for (u32 e = 0; e < m->experts; e++)
        for (u32 j = 0; j < 3; j++) {
            if (j == 1 && m->mlp_ungated)
                continue;
            struct weight *to = j < 2 ? &x->experts[e].gate_up[j] : &x->experts[e].down;
            format(&s, "model.layers.%u.%sexperts.%u.%s", i, names->of, e, names->leaf[j]);
            TRY(bind_linear(b, s.text, j < 2 ? wide : hidden, j < 2 ? hidden : wide, false, to));
        }
    return ERR_OK;
}

/* What a mixture has beside its experts: one more, and what its answer may be multiplied by. */
static enum err bind_shared(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    struct place_name s;
    struct weight *share = &l->mixture->share;
    bool gated = o->m->shared_gated;
    TRY(bind_mlp(o, b, i,
                 gated               ? "mlp.shared_expert"
                 : l->mixture->norms ? o->names->mlp
                                     : o->names->shared,
                 o->m->shared_intermediate, l));
    if (!gated)
        return ERR_OK;
    TRY(bind_linear(b, format(&s, "model.layers.%u.mlp.shared_expert_gate", i), 1, o->m->hidden,
                    false, share));
    if (share->int8_activations)
        return err_set(o->e, ERR_MODEL,
                       "%s/config.json: quantization_config: int8 activations of %s are not "
                       "supported; it has to be among those that are ignored",
                       o->dir, share->name);
    return ERR_OK;
}

/* What a layer ends with, where the family has it. */
static enum err bind_layer_end(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    struct place_name s;
    const struct tensor *scale;
    u32 n = o->m->own.n, hidden = o->m->hidden;
    if (o->config.gemma4) {
        TRY(bind_vector(b, format(&s, "model.layers.%u.layer_scalar", i), 1, &scale));
        l->scale = half_load(scale->data, scale->type, 0);
    }
    if (!n)
        return ERR_OK;
    TRY(bind_linear(b, format(&s, "model.layers.%u.per_layer_input_gate", i), n, hidden, false,
                    &l->own_gate));
    TRY(bind_linear(b, format(&s, "model.layers.%u.per_layer_projection", i), hidden, n, false,
                    &l->own_out));
    return bind_vector(b, format(&s, "model.layers.%u.post_per_layer_input_norm.weight", i), hidden,
                       &l->norm_after_own);
}

static float round_f16(float x)
{
    int exponent;
    float fraction = frexpf(x, &exponent); /* 11 significant bits; sqrt(hidden) is in range */
    return ldexpf(rintf(ldexpf(fraction, 11)), exponent - 11);
}

static float round_bf16(float x)
{
    int exponent;
    float fraction = frexpf(x, &exponent); /* 8 significant bits */
    return ldexpf(rintf(ldexpf(fraction, 8)), exponent - 8);
}

static float round_to(enum dtype type, float x)
{
    return type == DTYPE_BF16 ? round_bf16(x) : type == DTYPE_F16 ? round_f16(x) : x;
}

static enum err bind_own_inputs(struct opening *o, struct binder *b, struct binder *unquantized)
{
    struct own_inputs *own = &o->m->own;
    u32 all = o->m->layers_n * own->n;
    if (!all)
        return ERR_OK;
    TRY(bind_linear(unquantized, "model.embed_tokens_per_layer", o->m->vocab, all, false,
                    &own->embed));
    TRY(bind_linear(b, "model.per_layer_model_projection", all, o->m->hidden, false,
                    &own->project));
    own->scale = round_to(own->embed.type, sqrtf((float)own->n));
    return bind_vector(b, "model.per_layer_projection_norm.weight", own->n, &own->norm);
}

/* A head of its own beside tie_word_embeddings: transformers 4 lets the embedding win, 5 the head,
 * so it has to be a copy. */
static enum err check_tied(struct opening *o, const struct weight *embed)
{
    const struct tensor *head = tensors_take(&o->tensors, "lm_head.weight");
    if (!head || (head->type == embed->type && head->bytes == weight_data_bytes(embed) &&
                  memcmp(head->data, embed->data, head->bytes) == 0))
        return ERR_OK;
    return err_set(o->e, ERR_MODEL,
                   "%s/config.json: tie_word_embeddings is true, but lm_head.weight is no copy of "
                   "%s.weight; say false to use it, or remove the tensor",
                   o->dir, o->names->embed);
}

/* The embedding is always plain: rows are looked up, not multiplied. The head shares it when the
 * config ties them and when the file has no head. */
static enum err bind_ends(struct opening *o, struct binder *b)
{
    struct model *m = o->m;
    static const struct quant plain = {0};
    struct binder unquantized = *b;
    unquantized.quant = &plain;
    TRY(bind_linear(&unquantized, o->names->embed, m->vocab, m->hidden, false, &m->embed));
    if (o->config.rounds_embed_scale)
        m->embed_scale = round_to(m->embed.type, m->embed_scale);
    TRY(bind_own_inputs(o, b, &unquantized));
    struct place_name s;
    TRY(bind_vector(b, format(&s, "%s.weight", o->names->norm_final), m->hidden, &m->norm_final));
    bool stored = module_stored(o, "lm_head");
    m->headless = !m->tied && !stored && (o->config.headless || o->pools);
    if (m->headless && !o->config.bare && !o->pools)
        return err_set(o->e, ERR_MODEL,
                       "%s/config.json: architectures names no ...ForCausalLM, and the weights "
                       "have no lm_head: this model does not predict tokens",
                       o->dir);
    if (m->tied)
        TRY(check_tied(o, &m->embed));
    m->tied |= !stored;
    if (!m->tied)
        return bind_linear(b, "lm_head", m->vocab, m->hidden, false, &m->head);
    m->head = m->embed;
    m->head.name = "lm_head";
    return ERR_OK;
}

static bool all_zero(const struct tensor *t)
{
    for (size_t i = 0; i < t->bytes; i++)
        if (((const u8 *)t->data)[i])
            return false;
    return true;
}

/* Some files have k and v of layers that do not use them. */
static bool is_unused_key(const struct opening *o, struct str name)
{
    static const char *const parts[] = {"k_proj.", "v_proj.", "k_norm.", "v_norm."};
    struct place_name s;
    for (u32 i = 0; i < o->m->layers_n; i++)
        for (u32 j = 0; o->m->layers[i].kv_layer != i && j < COUNTOF(parts); j++)
            if (str_starts(name, str_of(format(&s, "model.layers.%u.self_attn.%s", i, parts[j]))))
                return true;
    return false;
}

static bool of_more_layers(const struct opening *o, struct str name)
{
    struct place_name s;
    for (u32 i = 0; i < o->config.more_layers; i++)
        if (str_starts(name, str_of(format(&s, "model.layers.%u.", o->m->layers_n + i))))
            return true;
    return o->m->experts_softmax && str_starts(name, STR("model.mtp_"));
}

/* Tensors that nothing asked for. Tables that old versions saved are ignored, and so are biases
 * that add nothing (some GPTQ writers store them everywhere). Any other tensor of the text model
 * would mean that the config describes another model than the file. */
static enum err check_leftovers(struct opening *o)
{
    for (u32 i = 0; i < o->tensors.n; i++) {
        const struct tensor *t = o->tensors.v[i];
        bool ours = str_starts(t->name, STR("model.")) || str_starts(t->name, STR("lm_head."));
        if (o->tensors.used[i] || !ours || str_ends(t->name, STR("rotary_emb.inv_freq")) ||
            str_ends(t->name, STR("rotary_emb.cos_cached")) ||
            str_ends(t->name, STR("rotary_emb.sin_cached")) ||
            (str_ends(t->name, STR(".bias")) && all_zero(t)) || of_more_layers(o, t->name) ||
            is_unused_key(o, t->name))
            continue;
        return err_set(o->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" has no place in the %.*s model that config.json "
                       "describes; leaving it out would change the results",
                       t->file, STR_ARG(t->name), STR_ARG(o->m->model_type));
    }
    return ERR_OK;
}

/* The numbers that a wrong shape may come from, by their names in config.json. */
static void describe_shape(const struct opening *o, char *out, size_t cap)
{
    const struct model *m = o->m;
    char group[32] = "", experts[96] = "", shared[64] = "", delta[192] = "";
    if (o->config.quant.group)
        snprintf(group, sizeof group, ", group_size %u", o->config.quant.group);
    if (m->experts)
        snprintf(experts, sizeof experts, ", %u experts of intermediate size %u", m->experts,
                 m->expert_intermediate);
    if (m->shared_intermediate && !o->config.gemma4 && !o->config.shared_mlp)
        snprintf(shared, sizeof shared, ", %s %u",
                 m->shared_gated    ? "shared_expert_intermediate_size"
                 : o->config.blocks ? "moe_shared_expert_intermediate_size"
                                    : "n_shared_experts",
                 m->shared_gated || o->config.blocks
                     ? m->shared_intermediate
                     : m->shared_intermediate / m->expert_intermediate);
    if (m->delta.value_heads)
        snprintf(delta, sizeof delta,
                 o->config.blocks
                     ? ", n_groups %u, mamba_num_heads %u, ssm_state_size %u, mamba_head_dim %u, "
                       "conv_kernel %u"
                 : m->delta.mamba
                     ? ", mamba_n_groups %u, mamba_n_heads %u, mamba_d_state %u, mamba_d_head %u, "
                       "mamba_d_conv %u"
                     : ", linear_num_key_heads %u, linear_num_value_heads %u, linear_key_head_dim "
                       "%u, linear_value_head_dim %u, linear_conv_kernel_dim %u",
                 m->delta.key_heads, m->delta.value_heads, m->delta.key_dim, m->delta.value_dim,
                 m->delta.taps);
    if (m->conv_taps)
        snprintf(delta, sizeof delta, ", conv_L_cache %u", m->conv_taps);
    snprintf(
        out, cap,
        "hidden_size %u, %sintermediate_size %u, num_attention_heads %u, num_key_value_heads %u, "
        "head_dim %u, vocab_size %u%s%s%s%s",
        m->hidden, o->config.shared_mlp ? "shared_" : "", m->intermediate, m->heads, m->kv_heads,
        m->head_dim, m->vocab, experts, shared, delta, group);
}

enum err bind_model(struct opening *o)
{
    char shape[512];
    struct binder b = {&o->tensors, o->keep, &o->config.quant, o->dir, shape, o->e};
    describe_shape(o, shape, sizeof shape);
    o->names = o->m->qk_norm == QK_NORM_TURNED ? &hunyuan_names
               : o->config.norms == NORMS_LFM2 ? &lfm2_names
               : o->config.shared_mlp          ? &granite_hybrid_names
               : o->config.blocks              ? &nemotron_names
                                               : &usual_names;
    find_fused(o);
    TRY(bind_ends(o, &b));
    for (u32 i = 0; i < o->m->layers_n; i++) {
        struct layer *l = &o->m->layers[i];
        TRY(bind_norms(o, &b, i, l));
        TRY(l->delta  ? bind_delta(o, &b, i, l)
            : l->conv ? bind_conv(o, &b, i, l)
                      : bind_attention(o, &b, i, l));
        if (l->mixture)
            TRY(bind_mixture(o, &b, i, l->mixture));
        else if (layer_has_mlp(l))
            TRY(bind_mlp(o, &b, i, o->names->mlp, l->intermediate, l));
        if (l->mixture && o->m->shared_intermediate)
            TRY(bind_shared(o, &b, i, l));
        TRY(bind_layer_end(o, &b, i, l));
    }
    return check_leftovers(o);
}
