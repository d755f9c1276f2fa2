/* The strings of a tokenizer and the way back to their ids: one text pool in id order, and an
 * open-addressed table. At most LIMIT_VOCAB ids; one that was left out has an empty string, and no
 * string leads to it. The arrays belong to the arena they were built in.
 */
#ifndef ZIGCUDA_VOCAB_H
#define ZIGCUDA_VOCAB_H

#include "core/base/arena.h"

struct vocab {
    u32 n, n_max;
    size_t text_max; /* bytes */
    char *text;
    u32 *at;    /* [n + 1] offsets in text */
    u32 *slots; /* 0, or hash tag << VOCAB_ID_BITS | id + 1 */
    u32 mask;
    u64 seed; /* of the hash: the kernel's random bytes, so that no file can choose collisions */
};

/* An empty vocabulary with room for n_max strings of text_max bytes (< 4 GiB) together; false when
 * the arena is full. */
MUST bool vocab_open(struct vocab *v, struct arena *a, u32 n_max, size_t text_max);

/* Adds a string under the next id and returns that, or UINT32_MAX when it is there already. */
u32 vocab_add(struct vocab *v, struct str s);

/* Leaves the next id without a string. */
void vocab_skip(struct vocab *v);

/* The id of a string, or UINT32_MAX. */
u32 vocab_find(const struct vocab *v, struct str s);

static inline struct str vocab_str(const struct vocab *v, u32 id)
{
    return (struct str){v->text + v->at[id], v->at[id + 1] - v->at[id]};
}

#endif
