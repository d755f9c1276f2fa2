/* What the host tells the card of one step: rows, tokens, tiles of attention, and the tokens whose
 * logits are wanted, written into pinned memory to be fetched in one copy.
 */
#ifndef ZIGCUDA_CUDA_DESCRIBE_H
#define ZIGCUDA_CUDA_DESCRIBE_H

#include "drivers/cuda/list.h"

/* `passes` of struct gpu_step on the card, each with as many wants as there are rows of logits, and
 * the last marks the step as done. */
struct description {
    size_t bytes;
    u64 passes_card;
    u32 passes;
    const struct gpu_want *wants;
    u32 n_wants, n_results, n_masks; /* of these some yield results, of which some have masks */
};

/* Bytes of one at most. */
size_t description_bytes(const struct list *l);

/* Where it is written, and the tokens of results that are given; where the card will have it, and
 * where results, its clock and the step's serial go. */
struct description_places {
    u8 *host;
    struct gpu_result *given;
    u64 card, results, stamps, done; /* done: two words; the second is for passes but the last */
};

struct description describe(const struct list *l, const struct step *step, u32 serial,
                            const struct description_places *to);

#endif
