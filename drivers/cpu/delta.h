/* Gated delta nets and Mamba 2 in a forward pass on the CPU (core/model/model.h, struct delta_net).
 * Each worker takes some value heads of all sequences through the tokens of a tile, one after
 * another: a sum depends on nothing but the tokens before.
 */
#ifndef ZIGCUDA_DELTA_H
#define ZIGCUDA_DELTA_H

#include "drivers/cpu/pass.h"

enum { DELTA_TOKENS = 32 }; /* that a head goes through while parts of its state are near */

/* Floats of what a worker has in hand. */
static inline u32 delta_work_floats(const struct delta_shape *d)
{
    return DELTA_TOKENS * (2 * d->key_dim + d->value_dim + 2);
}

/* From rows of f->qkv that are products to rows of f->attention that the layer's `o` takes. Ends
 * with a barrier. */
void delta_pass(const struct pass *p, const struct forward_layer *l);

#endif
