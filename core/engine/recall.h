/* The newest answers, for guesses (core/engine/draft.h): who asks the same kind of thing again and
 * again gets answers that are alike. A guess is checked before it is said, so nothing that somebody
 * else was told is ever said that would not have been said anyhow: it only comes sooner.
 */
#ifndef ZIGCUDA_RECALL_H
#define ZIGCUDA_RECALL_H

#include "core/base/arena.h"

enum {
    RECALL_GRAM = 4, /* tokens by which a place is found */
    RECALL_BITS = 16,
    RECALL_TOKENS = 1 << RECALL_BITS
};

struct recall {
    u32 *tokens; /* [RECALL_TOKENS], answer behind answer, and again from the beginning */
    u32 *
        places; /* [RECALL_TOKENS] by hash of RECALL_GRAM tokens: where the newest such end; or 0 */
    u32 n;      /* here the next answer begins */
};

u32 recall_hash(const u32 *end); /* of the RECALL_GRAM tokens before it; its highest bits count */

size_t recall_bytes(void);
bool recall_open(struct recall *r, struct arena *a); /* false: no room for recall_bytes */

/* An answer, with some tokens that stood before it. Of one that is too long the beginning. */
void recall_add(struct recall *r, const u32 *tokens, u32 n);

#endif
