/* Where a step's operations leave what they make: rows of activations, partial sums and counters on
 * the card, and how wide their rows are. Part of list_build.
 */
#ifndef ZIGCUDA_CUDA_BUFFERS_H
#define ZIGCUDA_CUDA_BUFFERS_H

#include "drivers/cuda/list.h"

/* Where blocks leave inputs (struct input). */
struct prepared {
    u16 *inputs;
    float *scale, *factor;
};

struct buffers {
    u32 x_stride, in_stride, qkv_stride, attention_stride, h_stride, raw_stride;
    /* [step_tokens][stride]; in: what short convolutions, delta nets and gated attention are made
     * of; raw: gate and up apart */
    float *x, *y, *in, *qkv, *attention, *h, *raw;
    float
        *qkv_window; /* of layers that see a window, where some see keys and values of others: so
                        that their k and v stay until the last of them has stored the same again */
    u32 own_stride;
    float *own, *own_made; /* [step_tokens][layers_n][n], and what goes into them; own_made of a
                              layer also [n], before its gate */
    float *attention_partial, *linear_partial, *linear_awaited;
    u32 partial_rows;
    u32 *attention_arrived, *linear_arrived, *sample_arrived;
    u32 *sample_work;
    /* Behind a norm; and without. In `mid_..` these are two: slices of attention's rows are awaited
     * one by one, when other blocks may still read what was prepared for qkv. */
    struct prepared prepared, prepared_rows;
    u32 room;   /* inputs of a token there */
    bool turns; /* of a list for kernels whose blocks turn heads for themselves */
    /* Awaited rows. Of `one_token`, and the next of them, NULL in other lists; of `mid_..`,
     * MID_TOKENS at most, and where the next x goes, NULL in other lists. */
    float *places, *place;
    /* Of experts; and rows of pairs of a token and an expert, [step_tokens x used][stride]. */
    struct routes routes;
    float *pair_h, *pair_y;
    float *said; /* [step_tokens][x_stride]: by a token's experts, where that is normed */
    u32 pair_stride, pair_room; /* pair_room: inputs of a prepared one */
    struct prepared prepared_pairs;
    float *mid_x[2], *mid_qkv, *mid_attention, *next_x;
    struct prepared mid_prepared;
    struct gpu_rope rope[ROPE_SETS + 1], rope_long[ROPE_SETS + 1]; /* the last rotates nothing */
    const float *query_scale, *ones; /* ones: [head_dim], of heads that are weighted later */
};

/* Floats from row to row of n. */
static inline u32 row_stride(u32 n)
{
    return ROUND_UP(n, 16u);
}

static inline float *carve_rows(struct vram *s, u32 rows, u32 stride)
{
    return vram_pointer(s, (size_t)rows * stride * sizeof(float));
}

/* Words that must be zero before the first step, and are left zero by each; what stays from step to
 * step; activations; logits and what sampling works with. */
void buffers_zeros(struct list *l, struct vram *s, struct buffers *b);
void buffers_state(struct list *l, struct vram *s);
void buffers_activations(struct list *l, struct vram *s, struct buffers *b);
void buffers_sampling(struct list *l, struct vram *s, struct op_sample *op);

/* Floats of the rows that a step of one token writes, each in a place of its own. */
u32 buffers_places(const struct list *l, const struct buffers *b);

#endif
