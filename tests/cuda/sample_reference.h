#ifndef ZIGCUDA_SAMPLE_REFERENCE_H
#define ZIGCUDA_SAMPLE_REFERENCE_H

#include "kernels/cuda/step.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Samples with the engine's scalar reference and counts the token, if it counts. mask: NULL, or a
 * bit a token. Work space: z, key and index, [vocab] each. */
void reference_sample(const struct gpu_sampling *g, const float *logits, u32 vocab, const u64 *mask,
                      u32 position, u32 outputs, u16 *counts, u8 *prompt, float *z, float *key,
                      u32 *index, struct gpu_result *out);

/* What it says of a token that is given. */
void reference_given(const struct gpu_sampling *g, const float *logits, u32 vocab, u32 token,
                     struct gpu_result *out);

#ifdef __cplusplus
}
#endif

#endif
