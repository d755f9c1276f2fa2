/* Grammars of requests in work: those of the same schema share one, and one that was used lately is
 * found again, so that what is known of it (masks) helps the next one. Compiled in a spare place,
 * compared, and taken. One thread; its memory is taken once.
 */
#ifndef ZIGCUDA_GRAMMAR_POOL_H
#define ZIGCUDA_GRAMMAR_POOL_H

#include "core/engine/grammar.h"

struct grammar_place {
    struct grammar grammar;
    u32 users;
    u64 used; /* when it was last taken; 0: never */
};

struct grammar_pool {
    struct grammar_place *places; /* [n] */
    u32 n;
    u64 taken;
};

/* For so many requests at once. */
size_t grammar_pool_bytes(u32 requests);
/* False: no room. */
MUST bool grammar_pool_open(struct grammar_pool *p, struct arena *a, u32 requests);

/* Where the next one is to be compiled: in the place that nobody has used for longest. */
struct grammar *grammar_pool_spare(struct grammar_pool *p);
/* What was compiled there, or one that is the same, until it is given back. */
const struct grammar *grammar_pool_take(struct grammar_pool *p, const struct grammar *spare);
void grammar_pool_give(struct grammar_pool *p, const struct grammar *g);

#endif
