/* Choosing a token from logits: the scalar reference that every device's sampler is held against.
 * Pure: the result depends on the logits, the sampling, the counts and the position only.
 *
 * Order: logprobs from the raw logits; mask; that of min_tokens; logit_bias; repetition, frequency
 * and presence penalties; temperature (0: greedy); top_k; typical_p; top_p; min_p; draw. The draw
 * is Gumbel-max with one Philox4x32-10 number a token id (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", 2011): token = argmax(z + noise(seed, position, id)), so there is no running
 * state, and no normalisation whose sum order could matter.
 */
#ifndef ZIGCUDA_SAMPLE_H
#define ZIGCUDA_SAMPLE_H

#include "core/engine/device.h"

/* Per slot: what the penalties count. Cleared and filled by the device at slot_begin. */
struct sample_counts {
    u16 *output; /* [vocab] times a token was produced, saturating */
    u8 *prompt;  /* [vocab] 1 when the prompt has it */
};

/* Work space of one sampling, any content. */
struct sample_scratch {
    float *z;   /* [vocab] processed logits */
    float *key; /* [vocab] probabilities or sort keys of candidates */
    u32 *index; /* [vocab] candidates */
};

/* logits[vocab] are read only. `mask`: NULL, or MASK_WORDS(vocab) words, whose bits say which
 * tokens may come. `position` is the position of the last input token, `outputs` the number of
 * tokens produced before. Fills out->token, and logprob, top and n_top when asked for. Counts are
 * not changed: the caller adds the token (sample_count). */
void sample_token(const struct sampling *s, const float *logits, u32 vocab, const u64 *mask,
                  u32 position, u32 outputs, const struct sample_counts *counts,
                  struct sample_scratch *scratch, struct step_result *out);

/* logprob and top (sampling.top_logprobs) of out->token, from raw logits. */
void sample_logprobs(const struct sampling *s, const float *logits, u32 vocab,
                     struct step_result *out);

/* Counts one produced token. */
void sample_count(struct sample_counts *counts, u32 token);

/* The neutral sampling: temperature 1, everything else off. */
struct sampling sampling_neutral(void);

/* Philox4x32-10: counter and key in, four words out. */
void philox4x32(const u32 counter[4], const u32 key[2], u32 out[4]);

#endif
