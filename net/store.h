/* Memory of replies that are sent whole, of streams whose end repeats them, and of what comes back
 * of requests: blocks of one size, lent as chains. A request takes all it can need before it
 * begins, so that no reply runs out half way; it writes records in order and reads them in order.
 * Another one is that of conversations (net/converse), which grow. Owned by net/api; planned and
 * taken at boot.
 */
#ifndef ZIGCUDA_STORE_H
#define ZIGCUDA_STORE_H

#include "core/base/arena.h"

enum { STORE_BLOCK_BYTES = 1024 };

struct store {
    u8 *blocks; /* [n][STORE_BLOCK_BYTES] */
    u32 *next;  /* [n] the block behind this one */
    u32 n, free, first_free;
};

struct chain {
    u32 first, last, blocks; /* last: where bytes are added; blocks 0: nothing was taken */
    size_t n;                /* bytes in it */
};

struct chain_reader {
    u32 block;
    size_t at;
};

size_t store_bytes(u32 blocks);
MUST bool store_open(struct store *s, struct arena *a, u32 blocks);

/* Blocks that a chain of so many bytes takes. */
size_t store_need(size_t bytes);

/* A chain with room for `bytes`; the blocks have to be free. */
void store_take(struct store *s, struct chain *c, size_t bytes);
void store_give(struct store *s, struct chain *c);

/* Room for `bytes` more in a chain that may have none yet, and the blocks that this takes, which
 * have to be free. */
size_t store_lacks(const struct chain *c, size_t bytes);
void store_grow(struct store *s, struct chain *c, size_t bytes);

/* Appends; more than was taken is a bug. */
void store_put(struct store *s, struct chain *c, const void *p, size_t n);

/* Writes to bytes [at, at + n) of what was taken; those before them are there, or will be. */
void store_set(struct store *s, struct chain *c, size_t at, const void *p, size_t n);

struct chain_reader store_from(const struct chain *c);
/* The next n bytes; false when they are not there. */
MUST bool store_get(const struct store *s, const struct chain *c, struct chain_reader *r, void *p,
                    size_t n);

#endif
