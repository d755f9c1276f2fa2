/* A layer's mixture of experts on the CPU: which experts each token of a tile takes, and what they
 * say. Of the weights only the chosen experts' are read, each once a tile: tokens are sorted by
 * expert. Four barriers where tokens are few: behind the router, gate and up, down, and the sum.
 *
 * A row's arithmetic depends on no other row, and a token's experts are summed in order of their
 * numbers, so the bits do not depend on the tile. Limits: LIMIT_EXPERTS, LIMIT_EXPERTS_USED.
 */
#ifndef ZIGCUDA_MIXTURE_H
#define ZIGCUDA_MIXTURE_H

#include "drivers/cpu/pass.h"

/* What the answer of the shared expert is multiplied by, for a row that is normed. */
float mixture_share(const struct forward_mixture *x, const float *row, u32 n);

/* x += mixture(norm x) for the tile's rows. Ends with a barrier. */
void mixture_pass(const struct pass *p, const struct forward_layer *l, float scale);

#endif
