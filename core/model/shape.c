/* Models of known shapes with random weights, for benchmarks: the config.json of the shape goes
 * through the same reader as a folder's, then one mapping is carved into weights and filled. */
#include "core/base/box.h"
#include "core/model/config.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

#define LLAMA3_ROPE(factor)                                                                     \
    "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" factor "," \
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                                         \
    "\"original_max_position_embeddings\":8192},"

#define GEMMA4(context)                                                                    \
    "\"vocab_size\":262144,\"max_position_embeddings\":" context ",\"rms_norm_eps\":1e-6," \
    "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","             \
    "\"partial_rotary_factor\":0.25,\"rope_theta\":1000000},\"sliding_attention\":{"       \
    "\"rope_type\":\"default\",\"rope_theta\":10000}},\"final_logit_softcapping\":30,"     \
    "\"head_dim\":256,\"global_head_dim\":512,\"tie_word_embeddings\":true}"

/* Of layer_types, between and around the layers that attend. */
#define MAMBA4 "\"mamba\",\"mamba\",\"mamba\",\"mamba\""
#define MAMBA5 MAMBA4 ",\"mamba\""
#define MAMBA9 MAMBA4 "," MAMBA5
#define ATTENTION ",\"attention\","

/* From the published config.json of each model; 100m and moe-2b are this project's own. */
static const struct {
    const char *name, *config;
} shapes[] = {
    {"llama-3.1-8b",
     "{\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":14336,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5," LLAMA3_ROPE(
         "8.0") "\"tie_word_embeddings\":false}"},
    {"llama-3.2-1b",
     "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
     "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5," LLAMA3_ROPE(
         "32.0") "\"tie_word_embeddings\":true}"},
    {"qwen3-4b", "{\"model_type\":\"qwen3\",\"hidden_size\":2560,\"intermediate_size\":9728,"
                 "\"num_hidden_layers\":36,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
                 "\"head_dim\":128,\"vocab_size\":151936,\"max_position_embeddings\":40960,"
                 "\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,\"tie_word_embeddings\":true}"},
    {"qwen3-30b-a3b",
     "{\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,\"intermediate_size\":6144,"
     "\"num_hidden_layers\":48,\"num_attention_heads\":32,\"num_key_value_heads\":4,"
     "\"head_dim\":128,\"vocab_size\":151936,\"max_position_embeddings\":40960,"
     "\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,\"tie_word_embeddings\":false,"
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,"
     "\"norm_topk_prob\":true}"},
    {"qwen3.5-9b",
     "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":4096,\"intermediate_size\":12288,"
     "\"num_hidden_layers\":32,\"num_attention_heads\":16,\"num_key_value_heads\":4,"
     "\"head_dim\":256,\"vocab_size\":248320,\"max_position_embeddings\":262144,"
     "\"rms_norm_eps\":1e-6,\"rope_theta\":10000000,\"tie_word_embeddings\":false}"},
    {"lfm2-1.2b", "{\"model_type\":\"lfm2\",\"hidden_size\":2048,\"block_ff_dim\":12288,"
                  "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
                  "\"vocab_size\":65536,\"max_position_embeddings\":128000,\"norm_eps\":1e-5,"
                  "\"rope_theta\":1000000,\"full_attn_idxs\":[2,5,8,10,12,14]}"},
    {"granite-4.0-h-tiny",
     "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":1536,\"intermediate_size\":512,"
     "\"num_hidden_layers\":40,\"num_attention_heads\":12,\"num_key_value_heads\":4,"
     "\"vocab_size\":100352,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
     "\"embedding_multiplier\":12,\"attention_multiplier\":0.0078125,"
     "\"residual_multiplier\":0.22,\"logits_scaling\":6,\"position_embedding_type\":\"nope\","
     "\"tie_word_embeddings\":true,\"num_local_experts\":64,\"num_experts_per_tok\":6,"
     "\"shared_intermediate_size\":1024,\"mamba_n_heads\":48,\"mamba_d_head\":64,"
     "\"mamba_d_state\":128,\"layer_types\":[" MAMBA5 ATTENTION MAMBA9 ATTENTION MAMBA9 ATTENTION
         MAMBA9 ATTENTION MAMBA4 "]}"},
    {"nemotron-nano-9b-v2",
     "{\"model_type\":\"nemotron_h\",\"hidden_size\":4480,\"intermediate_size\":15680,"
     "\"num_hidden_layers\":56,\"num_attention_heads\":40,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"vocab_size\":131072,\"max_position_embeddings\":131072,"
     "\"layer_norm_epsilon\":1e-5,\"mamba_num_heads\":128,\"mamba_head_dim\":80,"
     "\"ssm_state_size\":128,\"n_groups\":8,\"conv_kernel\":4,\"hybrid_override_pattern\":"
     "\"M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-\"}"},
    {"nemotron-3-nano-30b-a3b",
     "{\"model_type\":\"nemotron_h\",\"hidden_size\":2688,\"intermediate_size\":1856,"
     "\"num_hidden_layers\":52,\"num_attention_heads\":32,\"num_key_value_heads\":2,"
     "\"head_dim\":128,\"vocab_size\":131072,\"max_position_embeddings\":262144,"
     "\"layer_norm_epsilon\":1e-5,\"mamba_num_heads\":64,\"mamba_head_dim\":64,"
     "\"ssm_state_size\":128,\"n_groups\":8,\"conv_kernel\":4,\"n_routed_experts\":128,"
     "\"num_experts_per_tok\":6,\"moe_intermediate_size\":1856,"
     "\"moe_shared_expert_intermediate_size\":3712,\"routed_scaling_factor\":2.5,"
     "\"hybrid_override_pattern\":\"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME\"}"},
    {"gpt-oss-20b",
     "{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"intermediate_size\":2880,"
     "\"num_hidden_layers\":24,\"num_attention_heads\":64,\"num_key_value_heads\":8,"
     "\"head_dim\":64,\"vocab_size\":201088,\"max_position_embeddings\":131072,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\","
     "\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
     "\"original_max_position_embeddings\":4096},\"tie_word_embeddings\":false,"
     "\"num_local_experts\":32,\"num_experts_per_tok\":4,\"sliding_window\":128,"
     "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"},
    {"gemma-4-e4b",
     "{\"model_type\":\"gemma4_text\",\"hidden_size\":2560,\"intermediate_size\":10240,"
     "\"num_hidden_layers\":42,\"num_attention_heads\":8,\"num_key_value_heads\":2,"
     "\"sliding_window\":512,\"num_kv_shared_layers\":18,\"hidden_size_per_layer_input\":"
     "256," GEMMA4("131072")},
    {"gemma-4-26b-a4b",
     "{\"model_type\":\"gemma4_text\",\"hidden_size\":2816,\"intermediate_size\":2112,"
     "\"num_hidden_layers\":30,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
     "\"num_global_key_value_heads\":2,\"attention_k_eq_v\":true,\"sliding_window\":1024,"
     "\"hidden_size_per_layer_input\":0,\"enable_moe_block\":true,\"num_experts\":128,"
     "\"top_k_experts\":8,\"moe_intermediate_size\":704," GEMMA4("262144")},
    {"moe-2b", "{\"model_type\":\"qwen3_moe\",\"hidden_size\":1024,\"intermediate_size\":3072,"
               "\"num_hidden_layers\":16,\"num_attention_heads\":16,\"num_key_value_heads\":4,"
               "\"head_dim\":128,\"vocab_size\":32000,\"max_position_embeddings\":8192,"
               "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"tie_word_embeddings\":true,"
               "\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":384,"
               "\"norm_topk_prob\":true}"},
    {"100m", "{\"model_type\":\"llama\",\"hidden_size\":768,\"intermediate_size\":2048,"
             "\"num_hidden_layers\":12,\"num_attention_heads\":12,\"num_key_value_heads\":4,"
             "\"vocab_size\":32000,\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"
             "\"rope_theta\":10000.0,\"tie_word_embeddings\":true}"},
};

/* Groups of 128 inputs, or of 32 where that does not go. */
enum { HUGE_PAGE_BYTES = 2 << 20, GROUP = 128, SMALL_GROUP = 32 };

/* One walk over the model carves its weights out of the mapping. Walked once with base NULL to
 * learn the size, then again to fill. */
struct carver {
    u8 *base;
    size_t used;
    u64 seed;
    bool gpt_oss; /* experts of MXFP4, all else bf16 */
    bool gemma4, router_bias;
    struct arena *keep;
    struct err_text *e;
};

typedef u64 u64x8 __attribute__((vector_size(64)));

/* Random 64-bit words, each `mask`ed and `set`: eight xorshift64 (Marsaglia 2003, 13/7/17) side by
 * side, so that filling runs at the speed of memory. bytes is rounded up to 64. */
static void fill(u8 *p, size_t bytes, u64 seed, u64 mask, u64 set)
{
    u64x8 x;
    for (u32 i = 0; i < 8; i++) {
        u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15u; /* splitmix64: no lane starts at 0 */
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        x[i] = (z ^ z >> 31) | 1;
    }
    for (size_t at = 0; at < bytes; at += 64) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        u64x8 out = (x & mask) | set;
        memcpy(p + at, &out, 64);
    }
}

static void *carve(struct carver *c, size_t bytes, u64 mask, u64 set)
{
    u8 *p = c->base ? c->base + c->used : NULL;
    if (p)
        fill(p, bytes, c->seed++, mask, set);
    c->used += ROUND_UP(bytes, (size_t)64);
    return p;
}

/* bf16 numbers of absolute value [1, 2) * 2^e whose root mean square is about `rms`. */
static void *carve_bf16(struct carver *c, size_t n, double rms, bool sign)
{
    int e = (int)lrint(log2(rms / 1.53)) + 127; /* 1.53: root mean square over [1, 2) */
    u64 lanes = 0x0001000100010001u;
    return carve(c, n * 2, lanes * (sign ? 0x807fu : 0x7fu), lanes * ((u64)e << 7));
}

static void carve_bias(struct carver *c, struct weight *w)
{
    w->bias_type = DTYPE_BF16;
    w->bias = carve(c, w->n * sizeof(u16), 0, 0);
}

/* n ones or zeros. */
static enum err carve_vector(struct carver *c, u32 n, bool ones, const struct tensor **out)
{
    struct tensor *t = ARENA_NEW(c->keep, struct tensor, 1);
    if (!t)
        return arena_full(c->keep, "vector", c->e);
    *t = (struct tensor){.name = STR("vector"), .file = "random weights", .type = DTYPE_BF16};
    t->rank = 1;
    t->shape[0] = n;
    t->bytes = (size_t)n * 2;
    t->data = carve(c, t->bytes, 0, ones ? 0x3f803f803f803f80u : 0);
    *out = t;
    return ERR_OK;
}

static enum err carve_norm(struct carver *c, const struct model *m, u32 n,
                           const struct tensor **out)
{
    return carve_vector(c, n, !m->norm_plus_one, out);
}

/* bits 16: bf16. Otherwise symmetric GPTQ, group 128; the words are uniform, so a field has mean
 * -1/2 and variance (4^bits - 1) / 12 around the zero point. */
static void carve_linear(struct carver *c, const char *name, u32 n, u32 k, u32 bits,
                         struct weight *w)
{
    double rms = 1 / sqrt(k);
    *w = (struct weight){.name = name, .n = n, .k = k, .group = k, .groups = 1};
    if (bits == 16) {
        w->kind = WEIGHT_PLAIN;
        w->type = DTYPE_BF16;
        w->data = carve_bf16(c, (size_t)n * k, rms, true);
        return;
    }
    w->kind = WEIGHT_GPTQ;
    w->bits = bits;
    w->group = k % GROUP ? SMALL_GROUP : GROUP;
    w->groups = k / w->group;
    w->zero_plus_one = true;
    w->data = carve(c, (size_t)n * k * bits / 8, ~(u64)0, 0);
    w->scale_type = DTYPE_BF16;
    w->scales =
        carve_bf16(c, (size_t)n * w->groups, rms / sqrt((exp2(2.0 * bits) - 1) / 12), false);
}

/* `step` matrices whose rows take turns; biases are 0. Nibbles have a root mean square of 2.93. */
static void carve_mxfp4(struct carver *c, const char *const *names, u32 step, u32 n, u32 k,
                        struct weight *w)
{
    const u32 groups = k / MXFP4_GROUP;
    const size_t rows = (size_t)n * step;
    const u64 scale = (u64)(127 + lrint(log2(1 / sqrt(k) / 2.93)));
    const u8 *data = carve(c, rows * k / 2, ~(u64)0, 0);
    const u8 *scales = carve(c, rows * groups, 0, scale * 0x0101010101010101u);
    const u8 *bias = carve(c, rows * sizeof(u16), 0, 0);
    for (u32 i = 0; i < step; i++)
        w[i] = (struct weight){.name = names[i],
                               .kind = WEIGHT_MXFP4,
                               .n = n,
                               .k = k,
                               .bits = 4,
                               .group = MXFP4_GROUP,
                               .groups = groups,
                               .row_step = step,
                               .scale_type = DTYPE_E8M0,
                               .bias_type = DTYPE_BF16,
                               .data = data ? data + (size_t)i * k / 2 : NULL,
                               .scales = scales ? scales + (size_t)i * groups : NULL,
                               .bias = bias ? bias + i * sizeof(u16) : NULL};
}

static void carve_mlp(struct carver *c, const struct model *m, u32 bits, u32 wide, u32 n_gate_up,
                      struct weight gate_up[2], struct weight *down)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    if (c->gpt_oss) {
        carve_mxfp4(c, names, 2, wide, m->hidden, gate_up);
        carve_mxfp4(c, names + 2, 1, m->hidden, wide, down);
        return;
    }
    for (u32 i = 0; i < n_gate_up; i++)
        carve_linear(c, names[i], m->mlp_ungated ? wide : wide * 2 / n_gate_up, m->hidden, bits,
                     &gate_up[i]);
    carve_linear(c, names[2], m->hidden, wide, bits, down);
}

static enum err carve_delta(struct carver *c, const struct model *m, u32 bits, struct layer *l)
{
    static const char *const names[] = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"};
    const struct delta_shape *d = &m->delta;
    struct delta_net *net = l->delta;
    if (d->mamba) {
        TRY(carve_vector(c, delta_channels(d), false, &net->conv_bias));
        TRY(carve_vector(c, d->value_heads, true, &net->skip));
    }
    for (u32 i = 0; i < delta_inputs(d); i++)
        carve_linear(c, names[i], delta_outputs(d, i), m->hidden, i < DELTA_B ? bits : 16,
                     &net->in[i]);
    carve_linear(c, "conv1d", delta_channels(d), d->taps, 16, &net->conv);
    carve_linear(c, "out_proj", m->hidden, delta_values(d), bits, &l->o);
    TRY(carve_vector(c, d->value_heads, false, &net->a_log));
    TRY(carve_vector(c, d->value_heads, false, &net->dt_bias));
    return carve_vector(c, d->mamba ? delta_values(d) : d->value_dim, true, &net->norm);
}

static void carve_conv(struct carver *c, const struct model *m, u32 bits, struct layer *l)
{
    carve_linear(c, "in_proj", 3 * m->hidden, m->hidden, bits, &l->qkv[0]);
    carve_linear(c, "conv", m->hidden, m->conv_taps, 16, l->conv);
    carve_linear(c, "out_proj", m->hidden, m->hidden, bits, &l->o);
}

static enum err carve_attention(struct carver *c, const struct model *m, u32 bits, struct layer *l)
{
    static const char *const qkv[] = {"q_proj", "k_proj", "v_proj"};
    u32 q = m->heads * l->head_dim, kv = l->kv_heads * l->head_dim;
    if (m->qk_norm) {
        TRY(carve_norm(c, m, layer_qk_norm_n(m, l, m->heads), &l->norm_q));
        TRY(carve_norm(c, m, layer_qk_norm_n(m, l, l->kv_heads), &l->norm_k));
    }
    for (u32 j = 0; j < (layer_stores(m, l) ? 3 : 1); j++)
        carve_linear(c, qkv[j], j ? kv : q * (1 + m->attention_gated), m->hidden, bits, &l->qkv[j]);
    carve_linear(c, "o_proj", m->hidden, q, bits, &l->o);
    if (!c->gpt_oss)
        return ERR_OK;
    for (u32 j = 0; j < 3; j++)
        carve_bias(c, &l->qkv[j]);
    carve_bias(c, &l->o);
    return carve_vector(c, m->heads, false, &l->sinks);
}

static enum err carve_own(struct carver *c, const struct model *m, u32 bits, struct layer *l)
{
    carve_linear(c, "per_layer_input_gate", m->own.n, m->hidden, bits, &l->own_gate);
    carve_linear(c, "per_layer_projection", m->hidden, m->own.n, bits, &l->own_out);
    return carve_norm(c, m, m->hidden, &l->norm_after_own);
}

static enum err carve_mixture_norms(struct carver *c, const struct model *m,
                                    struct mixture_norms *x)
{
    TRY(carve_norm(c, m, m->hidden, &x->router));
    TRY(carve_norm(c, m, m->hidden, &x->experts));
    TRY(carve_norm(c, m, m->hidden, &x->after_shared));
    TRY(carve_norm(c, m, m->hidden, &x->after_experts));
    return carve_vector(c, m->experts, true, &x->scale);
}

static enum err carve_layer(struct carver *c, const struct model *m, u32 bits, struct layer *l)
{
    TRY(carve_norm(c, m, m->hidden, &l->norm_attention));
    if (layer_has_mlp(l))
        TRY(carve_norm(c, m, m->hidden, &l->norm_mlp));
    if (c->gemma4) {
        TRY(carve_norm(c, m, m->hidden, &l->norm_after_attention));
        TRY(carve_norm(c, m, m->hidden, &l->norm_after_mlp));
    }
    if (m->own.n)
        TRY(carve_own(c, m, bits, l));
    if (l->conv)
        carve_conv(c, m, bits, l);
    else
        TRY(l->delta ? carve_delta(c, m, bits, l) : carve_attention(c, m, bits, l));
    struct mixture *x = l->mixture;
    if (!layer_has_mlp(l))
        return ERR_OK;
    if (!x) {
        carve_mlp(c, m, bits, l->intermediate, m->n_gate_up, l->gate_up, &l->down);
        return ERR_OK;
    }
    if (x->norms)
        TRY(carve_mixture_norms(c, m, x->norms));
    if (m->shared_intermediate)
        carve_mlp(c, m, bits, m->shared_intermediate, m->n_gate_up, l->gate_up, &l->down);
    carve_linear(c, "gate", m->experts, m->hidden, 16, &x->router);
    if (c->gpt_oss)
        carve_bias(c, &x->router);
    if (c->router_bias)
        TRY(carve_vector(c, m->experts, false, &x->bias));
    for (u32 e = 0; e < m->experts; e++)
        carve_mlp(c, m, bits, m->expert_intermediate, model_expert_parts(m), x->experts[e].gate_up,
                  &x->experts[e].down);
    return ERR_OK;
}

static enum err carve_model(struct carver *c, struct model *m, u32 bits, u32 head_bits)
{
    carve_linear(c, "embed_tokens", m->vocab, m->hidden, 16, &m->embed);
    if (m->tied) {
        m->head = m->embed;
        m->head.name = "lm_head";
    } else {
        carve_linear(c, "lm_head", m->vocab, m->hidden, head_bits, &m->head);
    }
    TRY(carve_norm(c, m, m->hidden, &m->norm_final));
    if (m->own.n) {
        const u32 all = m->layers_n * m->own.n;
        m->own.scale = sqrtf((float)m->own.n);
        carve_linear(c, "embed_tokens_per_layer", m->vocab, all, 16, &m->own.embed);
        carve_linear(c, "per_layer_model_projection", all, m->hidden, bits, &m->own.project);
        TRY(carve_norm(c, m, m->own.n, &m->own.norm));
    }
    for (u32 i = 0; i < m->layers_n; i++)
        TRY(carve_layer(c, m, bits, &m->layers[i]));
    return ERR_OK;
}

static enum err map_region(struct carver *c, size_t bytes, const char *shape, struct err_text *e)
{
    size_t have = box_available_bytes();
    if (have && bytes > have)
        return err_set(e, ERR_MEMORY,
                       "shape %s needs %zu MiB for its weights and %zu MiB are available; take a "
                       "smaller shape or fewer bits",
                       shape, bytes / MIB, have / MIB);
    u8 *p = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return memory_unmapped(e, bytes, shape);
    p += -(uintptr_t)p & (HUGE_PAGE_BYTES - 1);
    madvise(p, bytes, MADV_HUGEPAGE); /* advice only: small pages are as good, but slower */
    c->base = p;
    c->used = 0;
    return ERR_OK;
}

static enum err describe_shape(struct arena *keep, const char *shape, u32 bits, struct model *m,
                               struct carver *c)
{
    char quant[64];
    if (c->gpt_oss)
        snprintf(quant, sizeof quant, "mxfp4, random");
    else if (bits == 16)
        snprintf(quant, sizeof quant, "bf16, random");
    else
        snprintf(quant, sizeof quant, "gptq %u-bit group %d, random", bits, GROUP);
    m->quant = arena_str(keep, str_of(quant));
    m->name = arena_str(keep, str_of(shape));
    m->dir = STR("");
    m->files = ARENA_NEW(keep, struct str, 1);
    m->paths = ARENA_NEW(keep, const char *, 1);
    if (!m->quant.p || !m->name.p || !m->files || !m->paths)
        return arena_full(keep, shape, c->e);
    m->files_n = 1;
    m->files[0] = (struct str){(const char *)c->base, c->used};
    m->file_bytes = c->used;
    m->random = c->base != NULL;
    return ERR_OK;
}

static enum err find_shape(const char *name, struct str *config, struct err_text *e)
{
    for (size_t i = 0; i < COUNTOF(shapes); i++)
        if (strcmp(name, shapes[i].name) == 0) {
            *config = str_of(shapes[i].config);
            return ERR_OK;
        }
    return err_set(e, ERR_USAGE,
                   "unknown shape \"%.100s\"; llama-3.1-8b, llama-3.2-1b, qwen3-4b, qwen3-30b-a3b, "
                   "qwen3.5-9b, lfm2-1.2b, granite-4.0-h-tiny, nemotron-nano-9b-v2, "
                   "nemotron-3-nano-30b-a3b, gpt-oss-20b, gemma-4-e4b, gemma-4-26b-a4b, moe-2b and "
                   "100m are known",
                   name);
}

static enum err check_bits(const char *what, u32 bits, struct err_text *e)
{
    if (bits == 4 || bits == 8 || bits == 16)
        return ERR_OK;
    return err_set(e, ERR_USAGE, "%s of %u bits: 4, 8 and 16 are possible", what, bits);
}

enum err model_shape(struct arena *keep, struct arena *scratch, const char *shape, u32 bits,
                     u32 head_bits, u64 seed, struct model **out, struct err_text *e)
{
    struct str text;
    struct config config;
    struct carver c = {.seed = seed << 20, .keep = keep, .e = e};
    struct model *m = ARENA_NEW(keep, struct model, 1);
    *out = NULL;
    if (!m)
        return arena_full(keep, shape, e);
    TRY(find_shape(shape, &text, e));
    TRY(check_bits("weights", bits, e));
    TRY(check_bits("head", head_bits, e));
    TRY(config_parse(keep, scratch, text, shape, m, &config, e));
    m->tied &= head_bits == 16;
    c.gpt_oss = config.gpt_oss;
    c.gemma4 = config.gemma4;
    c.router_bias = config.router_bias;
    if (c.gpt_oss)
        bits = head_bits = 16; /* what is not experts; these have their own form */
    TRY(carve_model(&c, m, bits, head_bits));
    if (seed) {
        TRY(map_region(&c, c.used, shape, e));
        TRY(carve_model(&c, m, bits, head_bits));
    }
    TRY(describe_shape(keep, shape, bits, m, &c));
    *out = m;
    return ERR_OK;
}
