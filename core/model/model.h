/* A model folder, read and checked: hyper-parameters, families as flags, and views of every weight
 * inside the mapped files. Everything here lives in the boot arena and is read-only after boot.
 *
 * model_open reads config.json (transformers 4 and 5 forms), generation_config.json and the
 * safetensors headers, and refuses whatever it would not compute exactly, with a sentence that
 * names file, key and value. It maps the weight files; of their data it reads only the quantized
 * formats' zero points and group indices, to check them.
 */
#ifndef ZIGCUDA_MODEL_H
#define ZIGCUDA_MODEL_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/base/weight.h"

/* Rotary embedding: x'[i] = x[i] cos(p f_i) - x[i+d/2] sin(p f_i), and so on (half split), for the
 * first `dims` of a head; cos and sin are multiplied by `scale` (attention factor). */
struct rope {
    u32 dims;          /* rotated dimensions d; 0: none */
    float scale;       /* 1 unless yarn or longrope */
    const float *freq; /* [d/2] angle per position, scaling already in it */
};

enum { ROPE_FULL, ROPE_LOCAL, ROPE_SETS };

/* One of many small MLPs. */
struct expert {
    struct weight gate_up[2]; /* gate, up: [expert_intermediate][hidden]; ungated, up alone */
    struct weight down;       /* [hidden][expert_intermediate] */
};

/* A mixture of experts: p = softmax(router x) over all of them, in f32; the `experts_used` largest
 * (of equals the first) are taken, and y = sum of p[e] * expert e (x), in order of e. With a bias p
 * = sigmoid(router x), unless the model keeps to softmax, and those are taken whose p + bias is
 * largest. Where the model has shared
 * experts, theirs is the layer's gate_up and down, and what they say is added. */
struct mixture {
    struct weight router;        /* [experts][hidden] */
    const struct tensor *bias;   /* [experts], or NULL */
    struct expert *experts;      /* [experts] */
    struct weight share;         /* [1][hidden], with shared_gated: what the shared ones say is
                                    multiplied by sigmoid(share x) */
    struct mixture_norms *norms; /* not NULL: gemma4 */
};

/* Norms of [hidden] of a mixture's own: before the router, where x is also divided by sqrt(hidden);
 * before the experts; behind what the shared one says, which has the layer's norm_mlp before it,
 * and behind what they say. The sum of these goes through norm_after_mlp. */
struct mixture_norms {
    const struct tensor *router, *experts, *after_shared, *after_experts;
    const struct tensor *scale; /* [experts] what p is multiplied by in the end */
};

/* A gated delta net (Yang, Kautz, Hatamizadeh, arXiv:2412.06464), in place of attention: a layer
 * whose tokens see those before them through a state of fixed size. From its input x a token has
 * q, k, v = silu(conv(in_qkv x)), a sum for each channel over it and the tokens before it; z = in_z
 * x; and of each value head, which sees q and k of key head h key_heads / value_heads,
 *   decay = exp(-exp(a_log) softplus(in_a x + dt_bias)), beta = sigmoid(in_b x).
 * q and k are made vectors of length 1, q is then divided by sqrt(key_dim), and with S, the head's
 * state, [key_dim][value_dim] and zeros at first,
 *   S *= decay; S += k (beta (v - S^T k))^T; y = rmsnorm(S^T q) * norm * silu(z).
 * The layer's `o` takes the y of all heads.
 *
 * Mamba 2 (Dao and Gu, arXiv:2405.21060) is told in the same words: its groups are key heads, C is
 * q, B is k, x is v and dt is a; it has neither b nor vectors of length 1, and the convolution has
 * a bias. With dt = softplus(in_a x + dt_bias) and decay = exp(-exp(a_log) dt),
 *   S = decay S + k (dt v)^T; u = (S^T q + skip v) * silu(z),
 * and y = rmsnorm(u) * norm, of all of a token's heads together, or of each of norm_groups parts.
 */
enum delta_input { DELTA_QKV, DELTA_Z, DELTA_B, DELTA_A, DELTA_INPUTS };
struct delta_net {
    struct weight in[DELTA_INPUTS];       /* [delta_outputs()][hidden], as many as delta_inputs() */
    struct weight conv;                   /* WEIGHT_PLAIN [channels][taps], the newest token last */
    const struct tensor *a_log, *dt_bias; /* [value_heads] */
    const struct tensor *norm; /* [value_dim], no 1 is added; of Mamba [delta_values()] */
    const struct tensor *conv_bias, *skip; /* of Mamba: [channels], or NULL; [value_heads] */
};

/* Of all of a model's; value_heads 0: it has none. */
struct delta_shape {
    u32 key_heads, value_heads, key_dim, value_dim, taps;
    float eps;   /* of its norms; norm_eps may be of what was divided, see read_multipliers */
    bool joined; /* qwen3_next: two matrices, of which the first has of each key head its q, k, v
                    and z, the other its b and a */
    bool mamba;  /* one matrix, of z, v, k, q, a in that order */
    u32 norm_groups; /* of Mamba: its norm is of each of so many parts of a token for itself */
};

static inline u32 delta_values(const struct delta_shape *d)
{
    return d->value_heads * d->value_dim;
}

/* Of the convolution: q and k of all key heads, then v of all value heads. */
static inline u32 delta_channels(const struct delta_shape *d)
{
    return 2 * d->key_heads * d->key_dim + delta_values(d);
}

/* The row of a delta net's conv and conv_bias that is a channel's. Mamba's are v, k, q. */
static inline u32 delta_conv_row(const struct delta_shape *d, u32 channel)
{
    const u32 keys = d->key_heads * d->key_dim, values = delta_values(d);
    if (!d->mamba)
        return channel;
    return channel >= 2 * keys ? channel - 2 * keys : values + (channel + keys) % (2 * keys);
}

static inline u32 delta_inputs(const struct delta_shape *d)
{
    return d->mamba ? 1 : d->joined ? 2 : DELTA_INPUTS;
}

/* The outputs of all inputs, side by side. */
static inline u32 delta_row_n(const struct delta_shape *d)
{
    return delta_channels(d) + delta_values(d) + (d->mamba ? 1 : 2) * d->value_heads;
}

static inline u32 delta_outputs(const struct delta_shape *d, u32 input)
{
    if (d->mamba)
        return delta_row_n(d);
    if (d->joined)
        return input == 0 ? delta_channels(d) + delta_values(d) : 2 * d->value_heads;
    return input == DELTA_QKV ? delta_channels(d)
           : input == DELTA_Z ? delta_values(d)
                              : d->value_heads;
}

/* Where parts of a key head begin in such a row: `at` of the first head, `step` to the next. What
 * is of value heads lies side by side. */
enum delta_part {
    DELTA_PART_Q,
    DELTA_PART_K,
    DELTA_PART_V,
    DELTA_PART_Z,
    DELTA_PART_B,
    DELTA_PART_A,
    DELTA_PARTS
};
struct delta_place {
    u32 at, step;
};
struct delta_place delta_place(const struct delta_shape *d, enum delta_part part);

/* What a slot keeps of a layer, in floats: of all heads S, and the inputs of the convolution of the
 * taps - 1 newest tokens, [taps - 1][channels]. */
static inline u32 delta_state_floats(const struct delta_shape *d)
{
    return d->value_heads * d->key_dim * d->value_dim + (d->taps - 1) * delta_channels(d);
}

/* Norms of q and k: of each head for itself, or of a token's heads together. */
/* Norms of queries and keys: of each head, before it is rotated or behind that; of all at once. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEADS, QK_NORM_TURNED, QK_NORM_ROWS };

/* A gated short convolution (Liquid AI's LFM2) is in place of attention, too: of what a token has
 * of its input, b, c and x side by side, each [hidden], it makes y = c * conv(b * x), a sum for
 * each channel over the token and those before it, which the layer's `o` takes. A slot keeps b * x
 * of the conv_taps - 1 newest tokens, [conv_taps - 1][hidden]. */
struct layer {
    u32 rope;               /* index into model.rope, or ROPE_SETS: this layer does not rotate */
    u32 window;             /* keys seen: i - window < j <= i; 0: all */
    u32 kv_heads, head_dim; /* of its attention; the same in all layers of a window */
    u32 kv_layer;     /* the layer whose keys and values it sees: itself, or an earlier one whose
                         rope, window and heads are the same. Then it has neither k nor v, but
                         that one's norm_k */
    u32 intermediate; /* of its plain MLP; 0 and no mixture: it has none, nor norm_mlp */
    float scale;      /* what it makes of x is multiplied by this */
    const struct tensor *norm_attention, *norm_mlp;             /* before them: [hidden], or NULL */
    const struct tensor *norm_after_attention, *norm_after_mlp; /* behind them, or NULL */
    const struct tensor *norm_q, *norm_k; /* [model_qk_norm_n(heads)], [..(kv_heads)], or NULL */
    struct weight qkv[3]; /* q, k, v; or one fused matrix of rows Q,K,V with n_qkv = 1; none of a
                             delta net, of a short convolution one of b, c, x. Where attention is
                             gated, q has of each head its dimensions, then as many gates */
    struct weight o;
    const struct tensor *sinks; /* [heads], or NULL: scores of a key that every query of the head
                                   sees and whose value is 0 (Xiao et al., arXiv:2309.17453) */
    struct delta_net *delta;    /* not NULL: in place of attention */
    struct weight *conv;        /* likewise: WEIGHT_PLAIN [hidden][conv_taps], the newest last */
    struct weight gate_up[2];   /* gate, up; or one fused matrix with n_gate_up = 1 */
    struct weight down;
    struct mixture *mixture; /* not NULL: in place of gate_up and down, or beside a shared expert */
    struct weight own_gate;  /* of models with own_inputs: [n][hidden], */
    struct weight own_out;   /* [hidden][n], */
    const struct tensor *norm_after_own; /* and [hidden] */
};

/* Gemma 4's per-layer inputs: each layer has n features of a token to itself, p = (rmsnorm(project
 * x / sqrt(hidden)) * norm + embed[token] scale) / sqrt(2), the norm of each layer's n for
 * themselves and x as the first layer gets it. A layer ends with x += rmsnorm(own_out (act(own_gate
 * x) * p)) * norm_after_own. */
struct own_inputs {
    u32 n;                     /* 0: there are none */
    float scale;               /* sqrt(n), rounded to the type of embed */
    struct weight embed;       /* WEIGHT_PLAIN [vocab][layers_n * n] */
    struct weight project;     /* [layers_n * n][hidden] */
    const struct tensor *norm; /* [n] */
};

/* What an embedding is made of, by the files of sentence-transformers and config.json. All zero:
 * the last token's hidden state behind the final norm, normalised, of any size up to `hidden`. */
struct embedding {
    const char *refused; /* why there are none of this model, with the file; NULL: there are */
    bool raw;            /* not normalised */
    u32 sizes[LIMIT_EMBEDDING_SIZES], n_sizes; /* those that may be asked for; 0: any */
};

struct model {
    struct str dir, name;  /* folder; its last path component, or what the hub calls it */
    struct str revision;   /* of the hub, where the folder is in its cache; else empty */
    struct str model_type; /* "llama" */
    u32 layers_n, hidden, heads, vocab;
    u32 intermediate, kv_heads, head_dim;           /* the most of a layer */
    u32 context;                                    /* max_position_embeddings */
    u32 n_qkv, n_gate_up;                           /* 3 or 1; 2 or 1 */
    u32 experts, experts_used, expert_intermediate; /* of layers with a mixture; else 0 */
    u32 shared_intermediate;   /* of the shared expert of such a layer; 0: there is none */
    bool shared_gated;         /* see struct mixture */
    bool experts_softmax;      /* with a bias, too; see struct mixture */
    bool experts_renormalized; /* p is divided by its sum over the experts used, */
    float experts_least;       /* plus this, as sigmoids may all be 0 */
    float experts_scale;       /* and multiplied by this, 1 without a bias */
    enum activation activation;
    bool mlp_ungated; /* gate_up[0] is up alone, n_gate_up 1, and h = act(up x) * up x: with
                         ACT_RELU the square of relu */
    float norm_eps;
    bool norm_plus_one; /* gemma: multiply by (1 + w) */
    enum qk_norm qk_norm;
    bool v_norm;       /* of each head of v: x / rms(x) */
    bool rope_pairs;   /* dimensions 2i and 2i + 1 of q and k are what rope has as i and i + d/2 */
    float embed_scale; /* gemma: sqrt(hidden) rounded to the weight type; granite; else 1 */
    struct delta_shape delta;
    struct own_inputs own;
    u32 conv_taps;                          /* of short convolutions; 0: it has none */
    bool attention_gated;                   /* its outputs times sigmoid(gate), see struct layer */
    float attention_scale;                  /* head_dim^-0.5 unless the config says otherwise */
    float attention_softcap, logit_softcap; /* 0: none */
    const float *query_scale; /* ministral3: a query at position p is multiplied by entry
                                 p / query_span, once it is rotated; NULL: by none */
    u32 query_span;
    float logit_scale; /* what logits are multiplied by; in the head's norm, so that neither devices
                          nor kernels have to know more. 1 unless the family has multipliers */

    struct rope rope[ROPE_SETS];
    struct rope rope_long[ROPE_SETS]; /* longrope: for sequences longer than rope_long_from */
    u32 rope_long_from;   /* 0: no long form. A sequence whose prompt + output can pass this
                             many positions is rotated by rope_long from its first token on */
    struct layer *layers; /* [layers_n] */
    struct weight embed;  /* WEIGHT_PLAIN [vocab][hidden] */
    struct weight head;   /* [vocab][hidden]; when tied the same bytes as embed */
    bool tied;
    bool headless; /* there is no head, and nothing says that the embedding is one: head is the
                      embedding all the same, but what it gives are no words */
    const struct tensor *norm_final;
    struct embedding embedding;

    u32 eos[LIMIT_STOP_IDS], n_eos; /* union of generation_config, config and tokenizer_config */
    i64 bos;                        /* -1: none */
    /* defaults of generation_config.json; negative: not given */
    float gen_temperature, gen_top_p, gen_min_p, gen_repetition_penalty;
    i32 gen_top_k;

    struct str quant;  /* "gptq 4-bit group 128", "bf16" ... for people */
    size_t file_bytes; /* mapped weights, all regions together */
    u32 files_n;
    struct str *files;  /* [files_n] whole mapped files, for madvise */
    const char **paths; /* [files_n] theirs; NULL where there is none */
    bool random;        /* model_shape: the one region in `files` is anonymous memory, no file */
    struct str made;    /* core/model/head.h: anonymous memory, too; n 0: none */
};

/* Features of the norms of a layer's q and k, of so many heads. */
static inline u32 layer_qk_norm_n(const struct model *m, const struct layer *l, u32 heads)
{
    return (m->qk_norm == QK_NORM_ROWS ? heads : 1) * l->head_dim;
}

/* A layer has attention, with keys and values of every position, or a state of fixed size. */
static inline bool layer_attends(const struct layer *l)
{
    return !l->delta && !l->conv;
}

static inline bool layer_has_mlp(const struct layer *l)
{
    return l->mixture || l->intermediate;
}

/* Matrices of an expert before its down. */
static inline u32 model_expert_parts(const struct model *m)
{
    return m->mlp_ungated ? 1 : 2;
}

/* Has it keys and values of its own? */
static inline bool layer_stores(const struct model *m, const struct layer *l)
{
    return layer_attends(l) && l == &m->layers[l->kv_layer];
}

/* The matrices that a layer's input goes into, *n of them. */
static inline const struct weight *layer_inputs(const struct model *m, const struct layer *l,
                                                u32 *n)
{
    *n = l->delta ? delta_inputs(&m->delta) : l->conv ? 1 : layer_stores(m, l) ? m->n_qkv : 1;
    return l->delta ? l->delta->in : l->qkv;
}

/* Outputs of q, k and v together. */
static inline u32 layer_qkv_n(const struct model *m, const struct layer *l)
{
    return (m->heads * (1 + m->attention_gated) + 2 * l->kv_heads) * l->head_dim;
}

/* The most of any layer. */
static inline u32 model_qkv_n(const struct model *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->layers_n; i++)
        n = MAX(n, layer_qkv_n(m, &m->layers[i]));
    return n;
}

/* The outputs of all inputs of a layer, of the widest. */
static inline u32 model_row_n(const struct model *m)
{
    return MAX(MAX(model_qkv_n(m), delta_row_n(&m->delta)), m->conv_taps ? 3 * m->hidden : 0);
}

/* What goes into the `o` of a layer, of the widest. */
static inline u32 model_mixed_n(const struct model *m)
{
    return MAX(MAX(m->heads * m->head_dim, delta_values(&m->delta)), m->conv_taps ? m->hidden : 0);
}

/* What a slot keeps of a layer, in floats. */
static inline u32 layer_state_floats(const struct model *m, const struct layer *l)
{
    return l->delta ? delta_state_floats(&m->delta) : l->conv ? (m->conv_taps - 1) * m->hidden : 0;
}

static inline bool model_has_states(const struct model *m)
{
    return m->delta.value_heads || m->conv_taps;
}

/* Layers with attention. */
static inline u32 model_attention_layers(const struct model *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->layers_n; i++)
        n += layer_attends(&m->layers[i]);
    return n;
}

/* What a sequence has beside keys and values: the states of all layers, in f32. */
size_t model_state_bytes(const struct model *m);

/* How many positions a token attends to in as many operations as all products of the layers take; 0
 * where windows bound all of them. */
u32 model_even_pos(const struct model *m);

/* Opens and checks `dir`. Keeps what stays in `keep`; `scratch` is free again afterwards. The
 * weight files stay mapped for the life of the process, also when the folder is refused. */
MUST enum err model_open(struct arena *keep, struct arena *scratch, const char *dir,
                         struct model **out, struct err_text *e);

/* A model of a known shape ("llama-3.1-8b", "llama-3.2-1b", "qwen3-4b", "100m" ...) whose weights
 * are `bits`-bit symmetric GPTQ group 128 (bits 4 or 8; 16: bf16), filled from `seed`; embedding in
 * bf16; head in head_bits (16: bf16, tied to the embedding where the shape ties it; 4 or 8: GPTQ
 * of its own); of gpt-oss as published: experts of MXFP4, all else bf16. Activations stay of order
 * 1. For benchmarks.
 *
 * The weights lie in one anonymous mapping of their own (huge pages advised), which is
 * out->files[0] and lives as long as the process: it belongs into the plan as PLACE_HOST. More
 * than the machine has available is refused before anything is taken. seed 0: there are none, for
 * whoever only plans; their size is known, as that of a folder's files. */
MUST enum err model_shape(struct arena *keep, struct arena *scratch, const char *shape, u32 bits,
                          u32 head_bits, u64 seed, struct model **out, struct err_text *e);

/* madvise over the whole pages of [p, p + n), where they are the model's: for weights that are
 * about to be read, or were copied elsewhere. Should these be read again, a file's pages are
 * fetched anew, while those of a random model are gone. */
void model_advise(const struct model *m, const void *p, size_t n, int advice);

#endif
