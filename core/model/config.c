#include "core/model/config.h"

#include "core/model/family.h"
#include "core/model/gemma4.h"
#include "core/model/mixers.h"
#include "core/model/mixtures.h"
#include "core/model/rope.h"

#include <math.h>
#include <stdio.h>

/* Models that see as well: the language model's keys are those of text_config, its class there
 * this one unless it says another; or `flat`, in older files, these keys are beside those of the
 * rest. Images are for others to look at; only text is computed. */
static const struct seeing {
    const char *name, *text;
    bool flat;
} seeing[] = {
    {"gemma3", "gemma3_text", false},     {"mistral3", "mistral", false},
    {"gemma4", "gemma4_text", false},     {"gemma4_unified", "gemma4_unified_text", false},
    {"qwen2_vl", "qwen2_vl_text", true},  {"qwen2_5_vl", "qwen2_5_vl_text", true},
    {"qwen3_vl", "qwen3_vl_text", false}, {"qwen3_vl_moe", "qwen3_vl_moe_text", false},
    {"qwen3_5", "qwen3_5_text", false},   {"qwen3_5_moe", "qwen3_5_moe_text", false}};

static const struct seeing *find_seeing(const struct fields *k)
{
    struct str type = fields_str(k, "model_type", "");
    for (size_t i = 0; i < COUNTOF(seeing); i++)
        if (str_is(type, seeing[i].name))
            return &seeing[i];
    return NULL;
}

/* --- shape ------------------------------------------------------------------------------------ */

static void read_head_dim(const struct fields *k, const struct family *f, struct model *m)
{
    m->head_dim = fields_u32(k, "head_dim", f->head_dim, 2, LIMIT_HEAD_DIM);
    if (m->head_dim == 0) {
        if (m->hidden % m->heads)
            fields_refuse(k, "num_attention_heads", "hidden_size %u is no multiple of it",
                          m->hidden);
        m->head_dim = MAX(m->hidden / m->heads, 2);
        if (m->head_dim > LIMIT_HEAD_DIM)
            fields_refuse(k, "num_attention_heads",
                          "heads of %u dimensions; at most %u are "
                          "supported",
                          m->head_dim, LIMIT_HEAD_DIM);
    }
    if (f->blocks && fields_u32(k, "attention_head_dim", m->head_dim, 1, UINT32_MAX) != m->head_dim)
        fields_refuse(k, "attention_head_dim", "head_dim says otherwise (%u)", m->head_dim);
    if (m->head_dim % 2)
        fields_refuse(k, "head_dim", "%u dimensions; an even number is needed", m->head_dim);
}

static u32 or_required(u32 absent)
{
    return absent ? absent : KEY_U32_REQUIRED;
}

/* lfm2: the MLP is two thirds as wide as the key says, times a factor, rounded up. */
static u32 adjusted(const struct fields *k, u32 wide)
{
    const char *key = "block_ffn_dim_multiplier";
    const struct json *factor = json_get(k->object, key);
    if (!fields_bool(k, "block_auto_adjust_ff_dim", true))
        return wide;
    double n = floor(2.0 * wide / 3), unit = fields_u32(k, "block_multiple_of", 256, 1, 1 << 16);
    if (!factor || factor->type != JSON_NULL)
        n = ceil(floor(n * fields_f64(k, key, 1, 1e-3, 1e3)) / unit) * unit;
    if (n >= 1 && n <= LIMIT_INTERMEDIATE)
        return (u32)n;
    fields_refuse(k, key, "an MLP of %.0f features; 1 to %u are supported", n, LIMIT_INTERMEDIATE);
    return wide;
}

static void read_shape(const struct fields *k, const struct family *f, struct model *m)
{
    m->hidden = fields_u32(k, "hidden_size", KEY_U32_REQUIRED, 1, LIMIT_HIDDEN);
    const bool experts_only = f->delta && f->mixtures && !fields_get(k, "intermediate_size");
    const bool adjusts = f->short_conv && !f->mixtures;
    const char *wide = experts_only                               ? "moe_intermediate_size"
                       : adjusts && fields_get(k, "block_ff_dim") ? "block_ff_dim"
                       : f->granite_hybrid                        ? "shared_intermediate_size"
                                                                  : "intermediate_size";
    m->intermediate = fields_u32(k, wide, KEY_U32_REQUIRED, 1, LIMIT_INTERMEDIATE);
    if (adjusts)
        m->intermediate = adjusted(k, m->intermediate);
    m->layers_n = f->blocks ? mixers_blocks(k)
                            : fields_u32(k, "num_hidden_layers", KEY_U32_REQUIRED, 1, LIMIT_LAYERS);
    m->heads = fields_u32(k, "num_attention_heads", or_required(f->heads), 1, LIMIT_HEADS);
    m->vocab = fields_u32(k, "vocab_size", or_required(f->vocab), 1, LIMIT_VOCAB);
    m->context =
        fields_u32(k, "max_position_embeddings", or_required(f->context), 1, LIMIT_CONTEXT);
    bool kv_null = json_get(k->object, "num_key_value_heads") != NULL;
    u32 kv_absent = f->kv_heads && !kv_null ? f->kv_heads : m->heads;
    m->kv_heads = fields_u32(k, "num_key_value_heads", kv_absent, 1, LIMIT_HEADS);
    if (m->heads % m->kv_heads)
        fields_refuse(k, "num_key_value_heads", "num_attention_heads %u is no multiple of it (%u)",
                      m->heads, m->kv_heads);
    read_head_dim(k, f, m);
}

static void read_activation(const struct fields *k, const struct family *f, struct model *m)
{
    static const struct {
        const char *name;
        enum activation activation;
    } known[] = {
        {"silu", ACT_SILU},          {"swish", ACT_SILU}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_new", ACT_GELU_TANH}, {"gelu", ACT_GELU},
    };
    const char *key = f->activation_key ? f->activation_key : "hidden_act";
    bool first_gemma = f->gemma && !f->activation_key;
    if (first_gemma && fields_get(k, "hidden_activation"))
        key = "hidden_activation"; /* versions that know this key let it win */
    struct str name = fields_str(k, key, f->gemma || f->gemma4 ? "gelu_pytorch_tanh" : "silu");
    if (first_gemma && str_is(name, "gelu")) {
        if (str_is(str_of(key), "hidden_activation"))
            fields_refuse(k, key,
                          "versions of transformers differ in what gemma makes of it; write "
                          "\"gelu_pytorch_tanh\", which it was trained with");
        name = STR("gelu_pytorch_tanh"); /* what the first files meant, and all versions take */
    }
    if (f->blocks) {
        m->activation = ACT_RELU;
        m->mlp_ungated = true;
        if (fields_get(k, key) && !str_is(name, "relu2"))
            fields_refuse(k, key, "only relu2 is supported");
        return;
    }
    if (f->mixtures == MIXTURES_GPT_OSS || f->short_conv) {
        m->activation = f->short_conv ? ACT_SILU : ACT_GPT_OSS;
        if (!str_is(name, "silu"))
            fields_refuse(k, key, "only silu is supported");
        return;
    }
    for (size_t i = 0; i < COUNTOF(known); i++)
        if (str_is(name, known[i].name)) {
            m->activation = known[i].activation;
            return;
        }
    fields_refuse(k, key, "silu, gelu and gelu_pytorch_tanh are supported");
}

/* A number above 0, or null for none (0). A missing key gives `absent`. */
static float read_softcap(const struct fields *k, const char *key, double absent)
{
    if (json_get(k->object, key))
        absent = 0;
    return (float)fields_f64(k, key, absent, 1e-3, 1e9);
}

/* granite's multipliers. What attention and MLP give is multiplied by r before it is added to x.
 * All that reads x is a norm, so x is kept divided by r instead: then its mean square is smaller by
 * r^2, which is what eps is added to. */
static void multiply(double r, double embed, double logits, double eps, struct model *m)
{
    m->norm_eps = (float)(eps / (r * r));
    m->embed_scale = (float)(embed / r);
    m->logit_scale = (float)logits;
}

enum { MULTIPLIER_MOST = 10000 }; /* what is beyond would leave the range of floats */

static void read_multipliers(const struct fields *k, double eps, struct model *m)
{
    const double most = MULTIPLIER_MOST, least = 1 / most;
    const double r = fields_f64(k, "residual_multiplier", 1, least, most),
                 embed = fields_f64(k, "embedding_multiplier", 1, least, most);
    m->attention_scale = (float)fields_f64(k, "attention_multiplier", 1, least, most);
    multiply(r, embed, 1 / fields_f64(k, "logits_scaling", 1, least, most), eps, m);
}

/* Those of MiniCPM (its own code, as transformers has no class): r = scale_depth / sqrt(layers).
 * Of those whose attention is sparse beyond dense_len positions, only so many are served. */
static void read_minicpm(const struct fields *k, double eps, struct model *m)
{
    const double most = MULTIPLIER_MOST, least = 1 / most;
    const struct fields sparse = fields_in(k, "sparse_config");
    const double depth = fields_f64(k, "scale_depth", KEY_REQUIRED, least, most),
                 embed = fields_f64(k, "scale_emb", KEY_REQUIRED, least, most),
                 base = fields_u32(k, "dim_model_base", KEY_U32_REQUIRED, 1, LIMIT_HIDDEN);
    multiply(depth / sqrt(m->layers_n), embed, base / m->hidden, eps, m);
    if (fields_u32(k, "num_experts", 0, 0, UINT32_MAX))
        fields_refuse(k, "num_experts", "mixtures are not supported");
    if (fields_get(k, "sparse_config"))
        m->context =
            MIN(m->context, fields_u32(&sparse, "dense_len", KEY_U32_REQUIRED, 1, UINT32_MAX));
}

static void read_biases(const struct fields *k, const struct family *f, struct config *c)
{
    bool bias = fields_bool(k, "attention_bias", f->attention_bias),
         mlp_bias = fields_bool(k, "mlp_bias", false);
    if (bias && !f->attention_bias_key && !f->qkv_bias)
        fields_refuse(k, "attention_bias", "%s has none", f->name);
    if (mlp_bias && !f->mlp_bias_key)
        fields_refuse(k, "mlp_bias", "%s has none", f->name);
    c->qkv_bias = (bias && f->attention_bias_key) || f->qkv_bias;
    if (f->qkv_bias_key)
        c->qkv_bias = fields_bool(k, f->qkv_bias_key, true);
    c->o_bias = bias && f->attention_bias_key && !f->plain_o;
    c->mlp_bias = mlp_bias;
    if (f->o_bias_key)
        c->o_bias = fields_bool(k, f->o_bias_key, false);
    if (f->bias_key)
        c->qkv_bias = c->o_bias = c->mlp_bias = fields_bool(k, f->bias_key, false);
}

/* Keys that other code of the family goes by; the transformers class may not know them. */
static void refuse_unsupported(const struct fields *k, const struct family *f)
{
    if (f->mixtures == MIXTURES_OLMOE && fields_get(k, "clip_qkv"))
        fields_refuse(k, "clip_qkv", "not supported");
    if (f->mixtures == MIXTURES_GPT_OSS && fields_f64(k, "swiglu_limit", 7, 0, 1e9) != 7)
        fields_refuse(k, "swiglu_limit", "7 is supported, which transformers has whatever it says");
    if (f->eps_key && fields_f64(k, "rms_norm_eps", family_eps(k, f), 0, 1) != family_eps(k, f))
        fields_refuse(k, "rms_norm_eps", "%s says otherwise", f->eps_key);
    if (f->qk_norm == QK_NORM_TURNED && fields_bool(k, "use_cla", false))
        fields_refuse(k, "use_cla", "layers that see keys of others are not supported");
    if (f->qk_norm == QK_NORM_TURNED && !fields_bool(k, "use_qk_norm", true))
        fields_refuse(k, "use_qk_norm", "only true is supported");
    if (f->bias_key && fields_f64(k, "compression_ratio", 1, 1e-6, 1e6) != 1)
        fields_refuse(k, "compression_ratio", "not supported"); /* of positions: Baidu's own code */
}

static void read_arithmetic(const struct fields *k, const struct family *f, struct model *m,
                            struct config *c)
{
    read_activation(k, f, m);
    const double eps = family_eps(k, f);
    m->norm_eps = (float)eps;
    m->norm_plus_one = f->gemma || f->plus_one;
    m->qk_norm = f->qk_norm;
    if (f->qk_norm_key && !fields_bool(k, f->qk_norm_key, false))
        m->qk_norm = QK_NORM_NONE;
    m->n_qkv = f->fused ? 1 : 3;
    m->n_gate_up = f->fused || f->fused_gate_up || f->blocks ? 1 : 2;
    m->rope_pairs = f->rope_pairs;
    m->embed_scale = f->gemma || f->gemma4 ? sqrtf((float)m->hidden) : 1;
    c->rounds_embed_scale = f->gemma || f->gemma4;
    double scalar = m->head_dim;
    if (f->gemma && f->norms == NORMS_AROUND) {
        scalar = fields_f64(k, "query_pre_attn_scalar", 256, 1e-3, 1e9);
        m->attention_softcap = read_softcap(k, "attn_logit_softcapping", f->attention_softcap);
        m->logit_softcap = read_softcap(k, "final_logit_softcapping", f->logit_softcap);
    }
    if (f->gemma && fields_bool(k, "use_bidirectional_attention", false))
        fields_refuse(k, "use_bidirectional_attention", "not supported");
    if (f->gemma4) {
        scalar = 1;
        m->v_norm = true;
        m->logit_softcap = read_softcap(k, "final_logit_softcapping", 0);
    }
    m->attention_scale = (float)(1 / sqrt(scalar));
    m->logit_scale = 1;
    if (f->multipliers)
        read_multipliers(k, eps, m);
    if (f->minicpm)
        read_minicpm(k, eps, m);
    const bool older = f->short_conv && fields_get(k, "tie_embedding");
    m->tied = fields_bool(k, older ? "tie_embedding" : "tie_word_embeddings", f->tied);
    c->fused = f->fused || f->fused_gate_up;
    c->norms = f->norms;
    c->gemma4 = f->gemma4;
    c->shared_mlp = f->granite_hybrid;
    c->blocks = f->blocks;
    read_biases(k, f, c);
    refuse_unsupported(k, f);
}

/* --- layers ----------------------------------------------------------------------------------- */

/* smollm3: layers without rope. */
static void read_nope(const struct fields *k, struct model *m)
{
    const struct json *list = fields_get(k, "no_rope_layers");
    u32 interval = fields_u32(k, "no_rope_layer_interval", 4, 1, LIMIT_LAYERS);
    if (!list) {
        for (u32 i = 0; i < m->layers_n; i++)
            m->layers[i].rope = (i + 1) % interval ? ROPE_FULL : ROPE_SETS;
        return;
    }
    if (list->type != JSON_ARRAY || list->n < m->layers_n) {
        fields_refuse(k, "no_rope_layers", "a list of %u numbers is expected", m->layers_n);
        return;
    }
    const struct json *v = list->child;
    for (u32 i = 0; i < m->layers_n; i++, v = v->next) {
        u64 rotates;
        if (!json_u64(v, &rotates) || rotates > 1) {
            fields_refuse(k, "no_rope_layers", "it must hold 0 and 1 only");
            return;
        }
        m->layers[i].rope = rotates ? ROPE_FULL : ROPE_SETS;
    }
}

/* granitemoehybrid: all layers that attend rotate, or none. */
static void read_position_type(const struct fields *k, struct model *m)
{
    struct str position = fields_str(k, "position_embedding_type", "nope");
    bool rotates = str_is(position, "rope");
    for (u32 i = 0; i < m->layers_n; i++)
        m->layers[i].rope = rotates ? ROPE_FULL : ROPE_SETS;
    if (!rotates && !str_is(position, "nope"))
        fields_refuse(k, "position_embedding_type", "rope and nope are supported");
}

static bool slides(const struct family *f, const struct model *m, u32 i, u32 max_window_layers,
                   u32 pattern)
{
    switch (f->windows) {
    case WINDOWS_NONE:
    case WINDOWS_UNSURE:
        return false;
    case WINDOWS_ALL:
    case WINDOWS_LISTED:
        return true;
    case WINDOWS_QWEN:
        return i >= max_window_layers;
    case WINDOWS_SMOLLM3:
        return m->layers[i].rope == ROPE_SETS;
    case WINDOWS_PATTERN:
    case WINDOWS_EXAONE4:
        return (i + 1) % pattern != 0;
    }
    return false;
}

/* layer_types, when given, against what the family makes of its other keys: where only some layers
 * slide it is followed, else it must agree. */
static void read_layer_types(const struct fields *k, const struct family *f, u32 window,
                             struct model *m)
{
    const struct json *list = fields_get(k, "layer_types");
    if (!list || mixers_has(f))
        return;
    if (list->type != JSON_ARRAY || list->n != m->layers_n) {
        fields_refuse(k, "layer_types", "a list of %u names is expected", m->layers_n);
        return;
    }
    bool follows = f->windows != WINDOWS_NONE && f->windows != WINDOWS_ALL;
    const struct json *v = list->child;
    for (u32 i = 0; i < m->layers_n; i++, v = v->next) {
        bool sliding = v->type == JSON_STRING && str_is(v->text, "sliding_attention");
        bool full = v->type == JSON_STRING && str_is(v->text, "full_attention");
        if (!sliding && !full)
            fields_refuse(k, "layer_types", "full_attention and sliding_attention are supported");
        else if (sliding && window == 0)
            fields_refuse(k, "layer_types", "layer %u slides, but no sliding_window is in force",
                          i);
        else if (!follows && sliding != (m->layers[i].window != 0))
            fields_refuse(k, "layer_types", "%s cannot do that in layer %u", f->name, i);
        if (*k->failed)
            return;
        m->layers[i].window = sliding ? window : 0;
    }
}

/* Every how manieth layer is full. exaone4 may write letters as well, that are not read; files have
 * layer_types then. */
static u32 read_pattern(const struct fields *k, const struct family *f)
{
    const char *key = "sliding_window_pattern";
    u32 absent = json_get(k->object, key) ? KEY_U32_REQUIRED : f->pattern;
    if (f->gemma && f->local_rope)
        return fields_u32(k, key, f->pattern, 1, LIMIT_LAYERS);
    if (f->windows == WINDOWS_EXAONE4 && !fields_get(k, "layer_types"))
        return fields_u32(k, key, absent, 1, LIMIT_LAYERS);
    return MAX(f->pattern, 1);
}

/* exaone4: where some layers slide, those that see all do not rotate. Where there is a window and
 * none slides, transformers rotates nothing, while others rotate everything. */
static void rotate_sliding(const struct fields *k, struct model *m)
{
    bool some = false;
    for (u32 i = 0; i < m->layers_n; i++) {
        some |= m->layers[i].window != 0;
        m->layers[i].rope = m->layers[i].window ? ROPE_FULL : ROPE_SETS;
    }
    if (!some)
        fields_refuse(k, "sliding_window", "no layer slides; null is expected then");
}

static void read_windows(const struct fields *k, const struct family *f, struct model *m)
{
    u32 absent = json_get(k->object, "sliding_window") ? 0 : f->window;
    bool asked =
        f->windows == WINDOWS_QWEN || f->windows == WINDOWS_SMOLLM3 || f->windows == WINDOWS_UNSURE;
    bool off = asked && !fields_bool(k, "use_sliding_window", false); /* then it may be 0 as well */
    u32 window = fields_u32(k, "sliding_window", absent, !off, LIMIT_CONTEXT);
    u32 pattern = window ? read_pattern(k, f) : 1;
    u32 from = fields_u32(k, "max_window_layers", 28, 0, UINT32_MAX - 1);
    if (off)
        window = 0;
    if (f->windows == WINDOWS_UNSURE && window)
        fields_refuse(k, "use_sliding_window",
                      "versions of transformers differ in which layers of %s slide", f->name);
    if (f->windows == WINDOWS_NONE && window)
        fields_refuse(k, "sliding_window", "%s has none", f->name);
    if (f->windows == WINDOWS_PATTERN && window == 0)
        fields_refuse(k, "sliding_window", "%s needs one", f->name);
    for (u32 i = 0; i < m->layers_n; i++)
        if (slides(f, m, i, from, pattern))
            m->layers[i].window = window;
    read_layer_types(k, f, window, m);
    if (f->windows == WINDOWS_EXAONE4 && window)
        rotate_sliding(k, m);
    for (u32 i = 0; f->local_rope && i < m->layers_n; i++)
        m->layers[i].rope = m->layers[i].window ? ROPE_LOCAL : ROPE_FULL;
}

/* --- rope ------------------------------------------------------------------------------------- */

/* The rope object of transformers 4 (rope_scaling) or 5 (rope_parameters, flat). */
static struct fields rope_object(const struct fields *k)
{
    return fields_in(k, fields_get(k, "rope_scaling") ? "rope_scaling" : "rope_parameters");
}

static bool nested_rope(const struct fields *object)
{
    return fields_get(object, "full_attention") || fields_get(object, "sliding_attention");
}

/* ministral3 multiplies the query at position p by 1 + beta ln(1 + floor(p / original)): by 1
 * within the positions that it was trained with first. */
static void read_query_scaling(struct arena *keep, const struct fields *rope, struct model *m)
{
    double beta = fields_f64(rope, "llama_4_scaling_beta", KEY_REQUIRED, 0, 1e3);
    u32 original =
        fields_u32(rope, "original_max_position_embeddings", KEY_U32_REQUIRED, 1, LIMIT_CONTEXT);
    if (*rope->failed || beta == 0 || original >= m->context)
        return;
    u32 n = CEIL_DIV(m->context, original);
    float *scale = ARENA_NEW(keep, float, n);
    if (!scale) {
        arena_full(keep, rope->file, rope->e);
        *rope->failed = true;
        return;
    }
    for (u32 i = 0; i < n; i++)
        scale[i] = (float)(1 + beta * log(1 + i));
    m->query_scale = scale;
    m->query_span = original;
}

/* Of the layers that rotate by it. */
static u32 rope_head_dim(const struct model *m, u32 set)
{
    for (u32 i = 0; i < m->layers_n; i++)
        if (m->layers[i].rope == set)
            return m->layers[i].head_dim;
    return m->head_dim;
}

static enum err read_rope(struct arena *keep, const struct fields *k, const struct family *f,
                          struct model *m)
{
    struct rope_setting s = {
        .theta = fields_f64(k, "rope_theta", f->theta, 1.001, 1e12),
        .partial = fields_f64(k, "partial_rotary_factor", f->partial > 0 ? f->partial : 1, 1e-3, 1),
        .partial_allowed = f->fused || f->partial > 0,
        .head_dim = rope_head_dim(m, ROPE_FULL),
        .context = m->context,
        .phi3 = f->fused,
        .mrope = f->mrope,
        .turned = f->qk_norm == QK_NORM_TURNED};
    s.original =
        fields_u32(k, "original_max_position_embeddings", f->fused ? 4096 : 0, 1, LIMIT_CONTEXT);
    struct fields full = rope_object(k), local = {.file = k->file, .failed = k->failed, .e = k->e};
    bool nested = nested_rope(&full), v4 = fields_get(k, "rope_scaling") != NULL;
    if (nested && !f->local_rope)
        return fields_refuse(k, "rope_parameters", "%s has one set for all layers", f->name);
    bool needs = f->gemma4 || fields_get(k, "rope_parameters");
    if (f->local_rope && needs && (v4 || !nested))
        return fields_refuse(k, "rope_parameters",
                             "%s needs full_attention and sliding_attention in it%s", f->name,
                             f->gemma4 ? "" : ", or rope_scaling in its place");
    if (nested) {
        local = fields_in(&full, "sliding_attention");
        full = fields_in(&full, "full_attention");
    }
    TRY(rope_build(keep, &full, &s, &m->rope[ROPE_FULL], &m->rope_long[ROPE_FULL],
                   &m->rope_long_from));
    if (f->query_scaling)
        read_query_scaling(keep, &full, m);
    m->rope[ROPE_LOCAL] = m->rope[ROPE_FULL];
    m->rope_long[ROPE_LOCAL] = m->rope_long[ROPE_FULL];
    if (!f->local_rope)
        return ERR_OK;
    u32 long_from;
    if (!f->gemma && !nested && fields_f64(k, "rope_theta", 0, 0, 1e12) != f->theta)
        return fields_refuse(
            k, "rope_theta",
            "versions of transformers differ in what %s makes of it, unless it is "
            "%.0f; write rope_parameters with full_attention and sliding_attention",
            f->name, f->theta);
    s.theta = f->gemma ? fields_f64(k, "rope_local_base_freq", 1e4, 1.001, 1e12) : f->theta;
    s.head_dim = rope_head_dim(m, ROPE_LOCAL);
    TRY(rope_build(keep, &local, &s, &m->rope[ROPE_LOCAL], &m->rope_long[ROPE_LOCAL], &long_from));
    if (long_from)
        return fields_refuse(&local, "rope_type", "longrope is supported for full attention only");
    return ERR_OK;
}

/* --- token ids -------------------------------------------------------------------------------- */

static enum err add_eos(const struct fields *k, const char *key, const struct json *v,
                        struct model *m)
{
    u64 id;
    if (!json_u64(v, &id) || id >= m->vocab)
        return fields_refuse(k, key, "token ids from 0 to %u are expected (vocab_size is %u)",
                             m->vocab - 1, m->vocab);
    for (u32 i = 0; i < m->n_eos; i++)
        if (m->eos[i] == id)
            return ERR_OK;
    if (m->n_eos == LIMIT_STOP_IDS)
        return fields_refuse(k, key, "more than %d end ids (LIMIT_STOP_IDS in config/limits.h)",
                             LIMIT_STOP_IDS);
    m->eos[m->n_eos++] = (u32)id;
    return ERR_OK;
}

/* eos_token_id: one id or a list. */
static enum err read_eos(const struct fields *k, struct model *m)
{
    const struct json *v = fields_get(k, "eos_token_id");
    if (!v)
        return ERR_OK;
    if (v->type != JSON_ARRAY)
        return add_eos(k, "eos_token_id", v, m);
    for (const struct json *id = v->child; id; id = id->next)
        TRY(add_eos(k, "eos_token_id", id, m));
    return ERR_OK;
}

static void read_bos(const struct fields *k, struct model *m)
{
    const struct json *v = fields_get(k, "bos_token_id");
    u64 id;
    if (!v)
        return;
    if (json_u64(v, &id) && id < m->vocab)
        m->bos = (i64)id;
    else
        fields_refuse(k, "bos_token_id", "a token id from 0 to %u is expected (vocab_size is %u)",
                      m->vocab - 1, m->vocab);
}

/* A checkpoint of another class than ...ForCausalLM, or of a model that sees
 * ...ForConditionalGeneration: with a head of another kind, or none. */
static bool is_headless(const struct fields *k, bool sees)
{
    const char *causal = sees ? "ForConditionalGeneration" : "ForCausalLM";
    const struct json *list = fields_get(k, "architectures");
    if (!list || list->type != JSON_ARRAY || list->n == 0)
        return false;
    for (const struct json *v = list->child; v; v = v->next)
        for (size_t i = 0; v->type == JSON_STRING && i < v->text.n; i++)
            if (str_starts((struct str){v->text.p + i, v->text.n - i}, str_of(causal)))
                return false;
    return true;
}

static bool is_bare(const struct fields *k)
{
    const struct json *list = fields_get(k, "architectures");
    const struct json *one = list && list->type == JSON_ARRAY ? list->child : NULL;
    return one && one->type == JSON_STRING && str_ends(one->text, STR("Model")) &&
           !memmem(one->text.p, one->text.n, "For", 3);
}

/* What embeddings of the model may be like, and whether it makes any: not where a token sees what
 * comes after it. */
static enum err read_embedding(struct arena *keep, const struct fields *k, struct embedding *out)
{
    const struct json *sizes = fields_get(k, "matryoshka_dimensions");
    if (!fields_bool(k, "is_causal", true)) {
        struct str why = {0};
        char text[LIMIT_PATH_BYTES + 128];
        why.n = (size_t)snprintf(text, sizeof text,
                                 "%s: is_causal is false: attention in both directions is not "
                                 "supported",
                                 k->file);
        why.p = text;
        out->refused = arena_str(keep, why).p;
        return out->refused ? ERR_OK : arena_full(keep, k->file, k->e);
    }
    for (const struct json *v = sizes ? sizes->child : NULL; v; v = v->next) {
        u64 n = 0;
        if (!json_u64(v, &n) || n == 0 || n > LIMIT_HIDDEN || out->n_sizes == LIMIT_EMBEDDING_SIZES)
            return fields_refuse(k, "matryoshka_dimensions",
                                 "a list of at most %u sizes up to %u is expected",
                                 LIMIT_EMBEDDING_SIZES, LIMIT_HIDDEN);
        out->sizes[out->n_sizes++] = (u32)n;
    }
    return ERR_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Experts of gpt_oss are of MXFP4, and nothing else is. k: of the whole file; quant: its settings.
 */
static enum err check_mxfp4(const struct fields *k, const struct fields *quant, const char *family,
                            const struct model *m, const struct config *c)
{
    const bool has = c->quant.method == QUANT_MXFP4;
    if (!c->gpt_oss && has)
        return fields_refuse(quant, "quant_method", "of %s it is not supported", family);
    if (c->gpt_oss && !has)
        return fields_refuse(quant->object ? quant : k,
                             quant->object ? "quant_method" : "quantization_config",
                             "gpt_oss is supported with experts in mxfp4, as it was published");
    if (has && (m->hidden % MXFP4_GROUP || m->intermediate % MXFP4_GROUP))
        return fields_refuse(k, m->hidden % MXFP4_GROUP ? "hidden_size" : "intermediate_size",
                             "of MXFP4 a multiple of %d is needed", MXFP4_GROUP);
    return ERR_OK;
}

static enum err read_config(struct arena *keep, const struct fields *outer, struct model *m,
                            struct config *c)
{
    const struct seeing *sees = find_seeing(outer);
    bool flat = !sees || (sees->flat && !fields_get(outer, "text_config"));
    struct fields text = flat ? *outer : fields_in(outer, "text_config"), *k = &text;
    struct str absent = str_of(sees ? sees->text : "");
    const struct family *f =
        family_find(k, sees && flat ? absent : fields_str(k, "model_type", absent.p));
    if (!f)
        return k->e->code;
    c->sees = sees != NULL;
    m->model_type = str_of(f->name);
    m->bos = -1;
    m->gen_temperature = m->gen_top_p = m->gen_min_p = m->gen_repetition_penalty = -1;
    m->gen_top_k = -1;
    read_shape(k, f, m);
    read_arithmetic(k, f, m, c);
    if (*k->failed)
        return k->e->code;
    m->layers = ARENA_NEW(keep, struct layer, m->layers_n);
    if (!m->layers)
        return arena_full(keep, k->file, k->e);
    for (u32 i = 0; i < m->layers_n; i++) {
        c->block[i] = i;
        m->layers[i] = (struct layer){.kv_heads = m->kv_heads,
                                      .head_dim = m->head_dim,
                                      .kv_layer = i,
                                      .intermediate = m->intermediate,
                                      .scale = 1};
    }
    if (f->nope)
        read_nope(k, m);
    if (f->granite_hybrid)
        read_position_type(k, m);
    read_windows(k, f, m);
    if (f->gemma4)
        gemma4_read(k, f, m, c);
    if (mixers_has(f))
        TRY(mixers_read(keep, k, f, m, c));
    if (f->mixtures)
        TRY(mixtures_read(keep, k, f, m, c));
    TRY(read_rope(keep, k, f, m));
    TRY(read_eos(outer, m));
    read_bos(outer, m);
    if (sees)
        TRY(read_eos(k, m));
    if (m->bos < 0)
        read_bos(k, m);
    c->headless = is_headless(outer, sees);
    c->bare = is_bare(outer);
    TRY(read_embedding(keep, outer, &m->embedding));
    struct fields quant = fields_in(outer, "quantization_config");
    if (sees && !quant.object)
        quant = fields_in(k, "quantization_config");
    if (quant.object)
        quant_read(&quant, &c->quant);
    c->gpt_oss = f->mixtures == MIXTURES_GPT_OSS;
    if (!*k->failed)
        TRY(check_mxfp4(k, &quant, f->name, m, c));
    return *k->failed ? k->e->code : ERR_OK;
}

/* Parses one JSON file and lets `read` take what it wants from its keys. */
static enum err with_keys(struct arena *scratch, struct str text, const char *path,
                          void (*read)(const struct fields *k, void *arg), void *arg,
                          struct err_text *e)
{
    const struct json *root;
    bool failed = false;
    size_t mark = scratch->used_bytes;
    enum err r = json_parse(scratch, text, path, ERR_MODEL, &root, e);
    if (r == ERR_OK) {
        struct fields k = fields_of(root, path, &failed, e);
        if (!failed)
            read(&k, arg);
        r = failed ? e->code : ERR_OK;
    }
    arena_reset(scratch, mark);
    return r;
}

struct config_arg {
    struct arena *keep;
    struct model *m;
    struct config *c;
};

static void read_config_arg(const struct fields *k, void *arg)
{
    struct config_arg *a = arg;
    if (read_config(a->keep, k, a->m, a->c) != ERR_OK)
        *k->failed = true;
}

enum err config_parse(struct arena *keep, struct arena *scratch, struct str text, const char *path,
                      struct model *m, struct config *c, struct err_text *e)
{
    struct config_arg arg = {keep, m, c};
    ASSERT(keep != scratch);
    *c = (struct config){0};
    return with_keys(scratch, text, path, read_config_arg, &arg, e);
}

static void read_generation(const struct fields *k, void *arg)
{
    struct model *m = arg;
    const struct json *top_k = fields_get(k, "top_k");
    i64 n = -1;
    if (read_eos(k, m) != ERR_OK)
        return;
    if (m->bos < 0)
        read_bos(k, m);
    m->gen_repetition_penalty = (float)fields_f64(k, "repetition_penalty", -1, 1e-3, 1000);
    if (fields_get(k, "do_sample") && !fields_bool(k, "do_sample", true)) {
        m->gen_temperature = 0; /* the folder asks for greedy decoding */
        return;
    }
    m->gen_temperature = (float)fields_f64(k, "temperature", -1, 0, 100);
    m->gen_top_p = (float)fields_f64(k, "top_p", -1, 0, 1);
    m->gen_min_p = (float)fields_f64(k, "min_p", -1, 0, 1);
    if (top_k && (!json_i64(top_k, &n) || n < -1 || n > LIMIT_VOCAB))
        fields_refuse(k, "top_k", "an integer from -1 (off) to %u is expected", LIMIT_VOCAB);
    if (top_k)
        m->gen_top_k = (i32)MAX(n, 0);
}

enum err config_generation_parse(struct arena *scratch, struct str text, const char *path,
                                 struct model *m, struct err_text *e)
{
    return with_keys(scratch, text, path, read_generation, m, e);
}

static bool content_is(const struct json *token, struct str text)
{
    const struct json *content = token->type == JSON_OBJECT ? json_get(token, "content") : token;
    return content && content->type == JSON_STRING && str_eq(content->text, text);
}

/* eos_token is text; its id stands in added_tokens_decoder: {"2": {"content": "</s>"}}. */
static void read_tokenizer_eos(const struct fields *k, void *arg)
{
    const struct json *eos = fields_get(k, "eos_token");
    struct fields added = fields_in(k, "added_tokens_decoder");
    if (eos && eos->type == JSON_OBJECT)
        eos = json_get(eos, "content");
    if (!eos || eos->type != JSON_STRING || !added.object)
        return;
    for (const struct json *t = added.object->child; t; t = t->next) {
        struct json id = {.type = JSON_NUMBER, .text = t->key};
        if (content_is(t, eos->text) && t->key.n && add_eos(k, "eos_token", &id, arg) != ERR_OK)
            return;
    }
}

enum err config_tokenizer_parse(struct arena *scratch, struct str text, const char *path,
                                struct model *m, struct err_text *e)
{
    return with_keys(scratch, text, path, read_tokenizer_eos, m, e);
}

static void read_quant(const struct fields *k, void *arg)
{
    quant_read(k, arg);
}

enum err config_quant_parse(struct arena *scratch, struct str text, const char *path,
                            struct quant *q, struct err_text *e)
{
    return with_keys(scratch, text, path, read_quant, q, e);
}
