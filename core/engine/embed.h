/* From what a model's layers leave of a text's last token to its embedding. Host arithmetic, f32
 * with sums in f64, in one order: the same bits on every device that gives the same hidden state.
 */
#ifndef ZIGCUDA_EMBED_H
#define ZIGCUDA_EMBED_H

#include "core/model/model.h"

/* The final norm, in place: v[hidden], which is returned. */
float *embed_norm(const struct model *m, float *v);

/* Length 1 (0 stays 0) unless it is to be left raw, in place. False: a value is not finite. */
MUST bool embed_finish(float *v, u32 n, bool raw);

#endif
