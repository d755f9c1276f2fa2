/* The forward pass on the CPU: one step takes the new tokens of all sequences through the model
 * and yields logits and sampled tokens.
 *
 * A step is cut into tiles of at most `tile` tokens (so that memory does not grow with the step),
 * and each tile passes all layers. Every worker runs forward_run; matrices are cut by output
 * features, attention by (block of tokens, KV head), the rest by rows, with a barrier wherever one
 * worker needs another's results. No sum is ever shared by two workers and no row's arithmetic
 * depends on its neighbours, so the bits depend on neither cut.
 *
 * forward_layout declares all memory; the caller (cpu.c) takes it and owns it. Nothing here
 * allocates. Limits: LIMIT_THREADS, LIMIT_PAGE_TOKENS and those in struct device_limits.
 */
#ifndef ZIGCUDA_FORWARD_H
#define ZIGCUDA_FORWARD_H

#include "core/engine/device.h"
#include "core/engine/sample.h"
#include "drivers/cpu/pool.h"
#include "kernels/kernels.h"

enum {
    FORWARD_TILE = 256,    /* tokens of one pass */
    FORWARD_HEAD_ROWS = 32 /* rows of logits at a time */
};

enum {
    NORM_ATTENTION,
    NORM_MLP,
    NORM_AFTER_ATTENTION,
    NORM_AFTER_MLP,
    NORM_AFTER_OWN,
    NORM_Q,
    NORM_K,
    NORMS
};

struct forward_expert {
    struct packed gate_up[2], down;
};

struct forward_mixture {
    struct weight plain; /* the router's, where it is quantized: its values, so that routes are
                            exact in every kernel set */
    struct packed router;
    struct forward_expert *experts; /* [experts] */
    const float *share;             /* [hidden] of a shared expert that is gated, or NULL */
    const float *bias;              /* [experts] or NULL: see struct mixture */
    /* of mixtures with norms of their own (struct mixture_norms), else NULL */
    const float *norm_router, *norm_experts, *norm_after_shared, *norm_after_experts, *scale;
};

struct forward_delta {
    struct packed in[DELTA_INPUTS]; /* delta_inputs() of them */
    u32 taps;                       /* rows of conv: one more, times 1, where there is a bias */
    const float *conv;              /* [taps][channels] */
    const float *rate, *dt_bias;    /* [value_heads]: -exp(a_log); as it is */
    const float *norm;              /* [value_dim], of Mamba [delta_values()] */
    const float *skip;              /* of Mamba [value_heads], else NULL */
};

struct forward_layer {
    const float *norm[NORMS]; /* f32, 1 already added for gemma; NULL where the family has none */
    struct packed qkv[3], o, gate_up[2], down, own_gate, own_out;
    const float *sinks;              /* [heads] or NULL: see struct layer */
    struct forward_mixture *mixture; /* not NULL: as in struct layer; */
    struct forward_delta *delta;     /* likewise */
    const float *conv;               /* likewise: [taps][hidden] */
    float *state;                    /* [slots, checkpoints][layer_state_floats()] */
    struct kv_layer kv;
};

/* Consecutive tokens of one row, within a tile and within a KV page. */
struct forward_block {
    u32 row, token, n; /* token: index in step.tokens */
};

/* A token whose logits are wanted. */
struct forward_want {
    u32 row, token;
    struct step_result *result; /* NULL: only its logits are wanted */
};

struct forward_tile {
    u32 token, n;           /* step.tokens[token .. token + n) */
    u32 block, blocks;      /* its share of f->blocks */
    u32 want, wants;        /* and of f->wants */
    bool one_block_per_row; /* then no block needs keys that another one writes */
    bool hands_over;        /* x of some token */
};

/* One of the experts that a token takes. Those of a token come in order of `expert`. */
struct forward_route {
    u32 expert;
    float weight;
};

/* The routes of a tile, by expert. Route r of token t is number t * experts_used + r; sorted by
 * expert, then token, they have rows in the buffers of the mixture. Every worker sorts for itself.
 */
struct forward_routes {
    u32 *first;  /* [experts + 1] row of the first route of each expert */
    u32 *active; /* [experts] those with any */
    u32 n_active;
    u32 *route; /* [routes] of each row: its number */
    u32 *row;   /* [routes] of each number: its row */
};

/* What one worker has to itself. */
struct forward_worker {
    float *rows;                      /* a few normed rows */
    void *prepared;                   /* and what linear_ops makes of them */
    void *scratch;                    /* of matmul */
    void *attention;                  /* of attention */
    float *delta;                     /* see delta.h */
    struct forward_route *few_routes; /* [a few tokens][experts_used] */
    struct forward_routes routes;
    struct sample_scratch sample;
};

struct forward {
    const struct model *model;
    const struct linear_ops *linear;
    const struct vector_ops *vector;
    struct pool *pool;
    struct device_limits limits;
    enum dtype kv_type;
    u32 threads, tile, head_rows;

    /* weights */
    struct forward_layer *layers;
    struct packed embed, own_head, own_embed, own_project;
    const struct packed *head;
    const float *norm_final;
    const float *norm_own;                    /* divided by sqrt(2) */
    const float *ones;                        /* [head_dim], or of a delta net, the longest */
    const float *delta_unit_q, *delta_unit_k; /* [key_dim] what makes vectors of length 1, and q
                                                 shorter, of a norm by the mean of squares */
    /* a slot's counts for penalties */
    struct sample_counts *counts; /* [slots] */

    /* activations of a tile, shared by the workers; strides in floats */
    u32 x_stride, qkv_stride, attention_stride, mlp_stride, logits_stride, rope_stride;
    float *x, *y, *h; /* [tile][hidden] residual, matrix result, normed */
    float *qkv; /* [tile][q heads, k heads, v heads][head_dim], of some layers without k and v; or
                   delta_row_n(), or b, c, x */
    float *attention; /* [tile][heads][head_dim], or [value_heads][value_dim], or [hidden] */
    float *mlp;       /* [tile][gate, up][intermediate], or up alone; of a mixture [routes]... */
    u32 own_stride;
    float *own, *own_made; /* [tile][layers_n][n] per-layer inputs, and what they are made of */
    void *prepared;        /* act_bytes(tile, largest k); of a mixture act_bytes(routes, k) */
    u32 expert_stride, router_stride;
    u32 prepares;                   /* forms in which gate and up want their inputs: 1 or 2 */
    float *routed;                  /* [routes][hidden] inputs, and later outputs, of experts */
    float *router;                  /* [tile][experts] logits */
    float *share;                   /* [tile] what a shared expert's answer is multiplied by */
    struct forward_route *routes;   /* [tile][experts_used] */
    float *angles;                  /* [tile][ROPE_SETS] tables of rope */
    float *logits;                  /* [head_rows][vocab] */
    struct forward_worker *workers; /* [threads] */

    /* the step in flight, cut up by forward_begin */
    const struct step *step;
    u32 *token_row;  /* [step_tokens] */
    u32 *want_index; /* [step_tokens] of each want: its token within the tile */
    struct forward_block *blocks;
    struct forward_want *wants;
    struct forward_tile *tiles;
    _Atomic u64 ticket; /* see struct deal in forward.c */
    u32 n_tiles, n_results;
    struct step_result *results; /* [samples + scores] */
};

/* Memory is laid out twice by the same code: with base NULL to learn the sizes, then for real. */
struct carve {
    u8 *base;
    size_t bytes;
};
void *carve(struct carve *c, size_t bytes); /* 64-byte aligned */

/* Buffers of the pass; and of the sampling. The fields model ... tile, head_rows are set. */
void forward_layout(struct forward *f, struct carve *c);
void forward_layout_sampling(struct forward *f, struct carve *c);

/* Cuts a step into tiles, blocks and wants. `step` stays the caller's. */
void forward_begin(struct forward *f, const struct step *step);

/* pool_job: the whole step, called by every worker with the same struct forward. */
void forward_run(void *f, u32 worker);

#endif
