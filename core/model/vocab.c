#include "core/model/vocab.h"

#include "config/limits.h"

#include <sys/auxv.h>

enum { VOCAB_ID_BITS = 21 }; /* id + 1 */
_Static_assert(LIMIT_VOCAB < 1u << VOCAB_ID_BITS, "ids must fit beside the hash tag");

static u64 load64(const char *p)
{
    u64 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static u64 mix(u64 h, u64 part)
{
    h = (h ^ part) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

/* Eight bytes a step, multiply and fold; the last step overlaps the one before it. */
static u64 hash(const struct vocab *v, struct str s)
{
    u64 h = v->seed ^ s.n, tail = 0;
    if (s.n >= 8) {
        for (size_t i = 0; i + 8 < s.n; i += 8)
            h = mix(h, load64(s.p + i));
        tail = load64(s.p + s.n - 8);
    } else {
        for (size_t i = 0; i < s.n; i++)
            tail = tail << 8 | (u8)s.p[i];
    }
    h = mix(h, tail) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static u32 tag(u64 h)
{
    return (u32)(h >> 32) << VOCAB_ID_BITS;
}

/* The id of s, or UINT32_MAX with *slot where it belongs. */
static u32 find(const struct vocab *v, struct str s, u64 h, u32 *slot)
{
    const u32 id_mask = (1u << VOCAB_ID_BITS) - 1;
    for (u32 i = (u32)h & v->mask;; i = (i + 1) & v->mask) {
        u32 entry = v->slots[i];
        *slot = i;
        if (entry == 0)
            return UINT32_MAX;
        if ((entry & ~id_mask) == tag(h) && str_eq(vocab_str(v, (entry & id_mask) - 1), s))
            return (entry & id_mask) - 1;
    }
}

bool vocab_open(struct vocab *v, struct arena *a, u32 n_max, size_t text_max)
{
    size_t slots = 16;
    while (slots < 2 * (size_t)n_max)
        slots *= 2;
    ASSERT(n_max <= LIMIT_VOCAB && text_max < UINT32_MAX);
    *v = (struct vocab){.n_max = n_max, .text_max = text_max, .mask = (u32)slots - 1};
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(&v->seed, random, sizeof v->seed);
    v->text = ARENA_NEW(a, char, text_max + 1);
    v->at = ARENA_NEW(a, u32, (size_t)n_max + 1);
    v->slots = ARENA_NEW(a, u32, slots);
    return v->text && v->at && v->slots;
}

u32 vocab_add(struct vocab *v, struct str s)
{
    u64 h = hash(v, s);
    u32 slot;
    if (find(v, s, h, &slot) != UINT32_MAX)
        return UINT32_MAX;
    ASSERT(v->n < v->n_max && s.n <= v->text_max - v->at[v->n]);
    memcpy(v->text + v->at[v->n], s.p, s.n);
    v->at[v->n + 1] = v->at[v->n] + (u32)s.n;
    v->slots[slot] = tag(h) | (v->n + 1);
    return v->n++;
}

void vocab_skip(struct vocab *v)
{
    ASSERT(v->n < v->n_max);
    v->at[v->n + 1] = v->at[v->n];
    v->n++;
}

u32 vocab_find(const struct vocab *v, struct str s)
{
    u32 slot;
    return find(v, s, hash(v, s), &slot);
}
