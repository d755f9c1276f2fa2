/* Choosing a token from logits: the scalar reference that every device's sampler is held against.
 * Pure: the result depends on the logits, the sampling, the counts and the position only.
 * Order and definitions: see struct sampling in device.h; the draw is Gumbel-max with one
 * Philox4x32-10 number a token id (Salmon et al. 2011), so it needs no running state.
 */
#ifndef ZIGCUDA_SAMPLE_H
#define ZIGCUDA_SAMPLE_H

#include "core/engine/device.h"

/* Per slot: what penalties count. */
struct sample_counts {
    u16 *output; /* [vocab] times a token was produced, saturating */
    u8 *prompt;  /* [vocab] 1 when the prompt has it */
};

struct sample_scratch {
    float *z;   /* [vocab] */
    u32 *index; /* [vocab] */
};

/* logits[vocab] are read only. `position` is the position of the last input token, `outputs` the
 * number of tokens produced before. Counts are not changed: the caller adds the token. */
void sample_token(const struct sampling *s, const float *logits, u32 vocab, u32 position,
                  u32 outputs, const struct sample_counts *counts, struct sample_scratch *scratch,
                  struct step_result *out);

/* Philox4x32-10: counter and key in, four words out. */
void philox4x32(const u32 counter[4], const u32 key[2], u32 out[4]);

#endif
