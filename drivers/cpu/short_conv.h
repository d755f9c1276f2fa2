/* Gated short convolutions in a forward pass on the CPU (core/model/model.h, struct layer). Each
 * worker takes some channels of all sequences through the tokens of a tile: no channel sees another
 * one.
 */
#ifndef ZIGCUDA_SHORT_CONV_H
#define ZIGCUDA_SHORT_CONV_H

#include "drivers/cpu/pass.h"

/* From rows of f->qkv that are b, c and x to rows of f->attention that the layer's `o` takes. Ends
 * with a barrier. */
void short_conv_pass(const struct pass *p, const struct forward_layer *l);

#endif
