/* Where the weights and vectors of a layer are on the card. Part of list_build, which goes through
 * the model: each function adds to l->weights or l->vectors, and carves.
 */
#ifndef ZIGCUDA_CUDA_PLACE_H
#define ZIGCUDA_CUDA_PLACE_H

#include "drivers/cuda/list.h"

/* Where the parts of one layer are. */
struct parts {
    struct list_weight *qkv, *o, *gate_up, *down, *expert_up, *expert_down, *own_gate, *own_out;
    const float *norm_attention, *norm_mlp, *norm_after_attention, *norm_after_mlp, *norm_after_own;
    const float *norm_mixed; /* before `o`: of Mamba */
    const float *norm_q, *norm_k, *sinks, *router, *router_bias, *bias, *share;
    const float *norm_router, *norm_experts, *norm_after_shared, *norm_after_experts, *by_expert;
    struct op_delta delta; /* its vectors and state; of a short convolution conv and state */
    u8 *k, *v;
};

/* Features of the layer's plain MLP, or shared expert; 0: it has none. */
u32 place_mlp_n(const struct model *m, const struct layer *layer);

/* Are gate and up of it one matrix? */
bool place_shares(const struct model *m, const struct layer *layer);

/* f32 on the card. */
const float *place_vector(struct list *l, struct vram *s, struct list_vector v);
struct gpu_rope place_rope(struct list *l, struct vram *s, const struct rope *r);

/* Packed matrices first, of all layers, then the rest. */
void place_weights(struct list *l, struct vram *s, const struct layer *from, struct parts *to);
void place_vectors(struct list *l, struct vram *s, const struct layer *from, struct parts *to);

#endif
