/* What a model becomes on the card: its matrices in packed form, everything else that stays there,
 * and the list of operations of a step (kernels/cuda/step.h), with fixed addresses.
 *
 * list_build goes through the model once and carves each thing from the memory in the order in
 * which a step uses it; the first time to measure. The packed form pads a matrix: outputs to 16,
 * inputs to MATRIX_K_UNIT, and groups that are no multiple of 16 to one. Where that or act-order
 * moves inputs, the matrix comes with an `order`; matrices that want the same order share it and
 * their input.
 *
 * Host memory is the boot arena's. Limits: LIMIT_LAYERS and those of struct device_limits.
 */
#ifndef ZIGCUDA_CUDA_LIST_H
#define ZIGCUDA_CUDA_LIST_H

#include "core/base/arena.h"
#include "core/engine/device.h"
#include "drivers/cuda/vram.h"
#include "kernels/cuda/step.h"

enum {
    LIST_LAYER_WEIGHTS = 10,
    /* at most: qkv apart, gated, normed, in pairs, gate and up apart, norms after both; experts and
     * a shared one, with its gate and up apart; a norm of v, per-layer inputs, norms
     * around experts */
    LIST_LAYER_OPS = 28,
    LIST_LAYER_VECTORS = 18, /* norms, sinks, router and its bias, share or bias; of a delta net */
    LIST_OPS_BESIDE = 7,     /* those of no layer */
    LIST_WEIGHTS_BESIDE = 4, /* embedding and head, and of per-layer inputs */
    LIST_VECTORS_BESIDE = 8, /* norms, rotations, scales of queries, ones */
    LIST_STRETCHES = 4,      /* lists of them */
    LIST_HEAD_ROWS = 16,     /* rows of logits, or as many as samples */
};

/* Outputs [first, first + n) of a weight and where they are packed to; gate and up have one matrix
 * in common. */
struct list_weight {
    const struct weight *from;
    u32 first, n;
    struct matrix to;
    u32 *order;       /* on the card; NULL: the inputs as they are */
    bool makes_order; /* the first that uses it */
    u32 below;        /* rows of the matrix above its own; not 0: it shares an earlier one's */
    u32 run, step, at, group; /* see struct gpu_pack */
    u8 *host; /* not NULL: to.data is pinned memory of the host, which has it there */
};

/* A table of which a step reads few rows: it may lie in pinned memory of the host, whose rows the
 * card reads over the bus. */
struct list_table {
    bool in_host;
    size_t bytes; /* packed */
    u8 *host;     /* that memory, where the host has it and where the card; before it is taken 0 */
    u64 card;
};

/* A norm's weights (with gemma's 1 added, and scaled), sinks, a router's weights or its bias, the
 * frequencies of a rotation, scales of queries, or what a delta net, or a short convolution, has
 * but for its linears: f32 on the card. */
struct list_vector {
    const struct tensor *tensor; /* one of these five */
    const struct weight *router;
    const struct weight *biased; /* whose bias it is */
    const struct weight *conv;   /* there are [k][n] */
    const float *values;
    float *to;
    float scale;  /* of `tensor` */
    bool as_is;   /* no 1 is added */
    bool of_conv; /* [channels], which are in the tensor in the order of conv's rows */
    u32 n;
};

/* What the memory is for, as the plan shows it. */
enum list_piece {
    LIST_WEIGHTS,
    LIST_OPS, /* operations, norms, page tables, what the host sends */
    LIST_ACTIVATIONS,
    LIST_SAMPLING,
    LIST_STATES, /* of layers without attention */
    LIST_KV,     /* staging for the upload lies there too, until the first step */
    LIST_PIECES
};

struct list_stretch {
    u32 first, head, last; /* head: from where on more logits are made */
    const float *x;        /* on the card, [tokens][list.x_stride]: what the layers leave */
};

struct list {
    /* set by the caller */
    const struct model *model;
    struct device_limits limits;
    u32 blocks;        /* thread blocks of a step */
    size_t step_bytes; /* of one step's description, and how many there are */
    u32 steps;
    size_t staging_bytes;  /* from upload_staging_bytes */
    bool awaits;           /* there are kernels `one_token` and `mid_..` */
    u32 shared_bytes;      /* of a block, for operations of `step` and `decode` */
    bool kv_int8;          /* keys and values in 8 bits instead of 16 */
    struct list_table own; /* struct own_inputs.embed */

    struct list_weight *weights;
    struct list_vector *vectors;
    struct op *ops;      /* the host's copy */
    const char **labels; /* of each, for profiles: "qkv" */
    u32 n_weights, n_vectors, n_ops;
    size_t most_weights, most_vectors, most_ops;
    struct list_stretch step, mid, decode, one; /* of ops: what each kernel runs */
    u32 k_max;                                  /* the most packed inputs of a linear */
    u32 few_rows;                               /* the fewest of experts' few_rows */
    u32 head_rows, logits_stride, x_stride;
    size_t bytes[LIST_PIECES];

    /* on the card */
    struct op *card_ops;
    struct gpu_state state;
    u64 card_steps[2];
    u64 staging;
    u64 packed; /* packed weights: all, or those of the first allocation */
    size_t packed_bytes;
    float *logits;
    const u32 *masks;
    u64 states;       /* [slots, checkpoints][state_floats] of all layers without attention */
    u32 state_floats; /* 0: there are none */
    u64 zeros, unset; /* words that must be zero before the first step, or NOT_YET */
    size_t n_zeros, n_unset;
};

/* Has the model operations that only the kernel `delta` does? */
bool list_has_delta(const struct model *m);

/* Memory for the arrays. */
MUST enum err list_open(struct list *l, struct arena *keep, struct err_text *e);

/* Carves and lists everything; may be called again, with other limits or taken memory. */
void list_build(struct list *l, struct vram *s);

/* Bytes of one KV page, all layers; and of one of these: 0 unless layer_stores. */
size_t list_kv_page_bytes(const struct list *l);
size_t list_kv_layer_bytes(const struct list *l, const struct layer *layer);

#endif
