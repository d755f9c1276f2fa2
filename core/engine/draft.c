#include "core/engine/draft.h"

enum {
    DRAFT_GRAM = 3, /* tokens that have to be the same: fewer are found where nothing follows */
    BITS_MIN = 8,
    BITS_MAX = 16,
    LENGTH_FIRST = 2,
    LENGTH_MAX = 64,
    REST_DOUBLES = 6,
};

static u32 bits_of(u32 context)
{
    u32 bits = BITS_MIN;
    while (bits < BITS_MAX && 1u << bits < context)
        bits++;
    return bits;
}

size_t draft_bytes(u32 context)
{
    return sizeof(u32) << bits_of(context);
}

bool draft_open(struct draft *d, struct arena *a, u32 context)
{
    *d = (struct draft){.bits = bits_of(context)};
    d->places = ARENA_NEW(a, u32, (size_t)1 << d->bits);
    return d->places != NULL;
}

void draft_begin(struct draft *d)
{
    memset(d->places, 0, sizeof *d->places << d->bits);
    d->known = DRAFT_GRAM;
    d->length = LENGTH_FIRST;
    d->rest = d->misses = 0;
}

/* Of the tokens that end before tokens[end]. */
static u32 *place(struct draft *d, const u32 *tokens, u32 end)
{
    u32 h = 0;
    for (u32 i = end - DRAFT_GRAM; i < end; i++)
        h = (h ^ tokens[i]) * 0x9e3779b1u;
    return &d->places[h >> (32 - d->bits)];
}

u32 draft_find(struct draft *d, const u32 *tokens, u32 n, u32 most, u32 *out)
{
    u32 count = MIN(d->length, most);
    if (d->rest || n < DRAFT_GRAM || !count)
        return 0;
    for (; d->known < n; d->known++)
        *place(d, tokens, d->known) = d->known;
    u32 from = *place(d, tokens, n);
    if (!from || memcmp(tokens + from - DRAFT_GRAM, tokens + n - DRAFT_GRAM,
                        DRAFT_GRAM * sizeof *tokens) != 0)
        return 0;
    for (u32 i = 0; i < count; i++) /* what is at the end may go on as a period */
        out[i] = from + i < n ? tokens[from + i] : out[from + i - n];
    return count;
}

void draft_judge(struct draft *d, u32 n, u32 stayed)
{
    d->length = stayed == n ? MIN(2 * n, (u32)LENGTH_MAX) : stayed + 1;
    d->misses = stayed ? 0 : d->misses + 1;
    d->rest = stayed ? 0 : 1u << MIN(d->misses, (u32)REST_DOUBLES);
}

void draft_pass(struct draft *d)
{
    d->rest -= d->rest > 0;
}
