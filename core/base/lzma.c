#include "core/base/lzma.h"

enum {
    HALF = 1024, /* a chance of 1/2 */
    LEAST_LENGTH = 2,
    FIRST_CODED_SLOT = 4, /* distances below are their slot */
    FIRST_ALIGNED_SLOT = 14,
    END = 0xffffffff, /* a distance that ends the stream */
};

/* The range coder: `code` is where in `range` the stream points. What has one is INLINE, so that it
 * stays in registers: a sixth of the time. */
struct coder {
    u32 range, code;
    const u8 *in, *end;
    bool over; /* more was read than there is */
};

INLINE void refill(struct coder *c)
{
    if (c->range >= 1 << 24)
        return;
    c->range <<= 8;
    c->code <<= 8;
    if (c->in < c->end)
        c->code |= *c->in++;
    else
        c->over = true;
}

INLINE u32 bit(struct coder *c, u16 *chance)
{
    refill(c);
    u32 bound = (c->range >> 11) * *chance;
    if (c->code < bound) {
        c->range = bound;
        *chance += (2048 - *chance) >> 5;
        return 0;
    }
    c->range -= bound;
    c->code -= bound;
    *chance -= *chance >> 5;
    return 1;
}

/* n bits, the highest first, each with chances that depend on those before. */
INLINE u32 bits(struct coder *c, u16 *chances, u32 n)
{
    u32 at = 1;
    for (u32 i = 0; i < n; i++)
        at = at << 1 | bit(c, &chances[at]);
    return at - (1u << n);
}

/* The same, the lowest first. */
INLINE u32 bits_upward(struct coder *c, u16 *chances, u32 n)
{
    u32 at = 1, value = 0;
    for (u32 i = 0; i < n; i++) {
        u32 b = bit(c, &chances[at]);
        at = at << 1 | b;
        value |= b << i;
    }
    return value;
}

/* n bits of equal chances. */
INLINE u32 even_bits(struct coder *c, u32 n)
{
    u32 value = 0;
    for (u32 i = 0; i < n; i++) {
        refill(c);
        c->range >>= 1;
        u32 b = c->code >= c->range;
        c->code -= b ? c->range : 0;
        value = value << 1 | b;
    }
    return value;
}

INLINE u32 length(struct coder *c, struct lzma_length *l, u32 place)
{
    if (!bit(c, &l->longer))
        return LEAST_LENGTH + bits(c, l->low[place], 3);
    if (!bit(c, &l->longest))
        return LEAST_LENGTH + 8 + bits(c, l->mid[place], 3);
    return LEAST_LENGTH + 16 + bits(c, l->high, 8);
}

/* How many bytes further back than the last one. */
INLINE u32 distance(struct coder *c, struct lzma *z, u32 n)
{
    u32 slot = bits(c, z->slot[MIN(n - LEAST_LENGTH, 3u)], 6), low = (slot >> 1) - 1;
    if (slot < FIRST_CODED_SLOT)
        return slot;
    u32 high = (2 | (slot & 1)) << low;
    if (slot < FIRST_ALIGNED_SLOT)
        return high + bits_upward(c, z->near + high - slot, low);
    high += even_bits(c, low - 4) << 4;
    return high + bits_upward(c, z->align, 4);
}

/* A byte; behind a match (`beside`: what the match would go on with, else NULL) with chances of
 * their own as long as it agrees with that. */
INLINE u8 literal(struct coder *c, u16 *chances, const u8 *beside)
{
    u32 at = 1;
    for (u32 other = beside ? *beside : 0; beside && at < 0x100;) {
        u32 guess = other >> 7 & 1, b = bit(c, &chances[((1 + guess) << 8) + at]);
        other <<= 1;
        at = at << 1 | b;
        if (b != guess)
            break;
    }
    while (at < 0x100)
        at = at << 1 | bit(c, &chances[at]);
    return (u8)at;
}

/* Which of the last four distances is used again, which comes to the front. */
INLINE u32 again(struct coder *c, struct lzma *z, u32 state, u32 back[4])
{
    u32 which = 1;
    if (bit(c, &z->not_second[state]))
        which = 2 + bit(c, &z->not_third[state]);
    u32 found = back[which];
    for (; which; which--)
        back[which] = back[which - 1];
    return back[0] = found;
}

static void begin(struct lzma *z)
{
    u16 *chances = (u16 *)z;
    for (size_t i = 0; i < sizeof *z / sizeof *chances; i++)
        chances[i] = HALF;
}

/* The state remembers the kinds of what came last: below 7 a byte. */
enum { AFTER_BYTES = 7 };

static u32 after_byte(u32 state)
{
    return state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
}

static u32 after(u32 state, u32 match)
{
    return state < AFTER_BYTES ? match : match == AFTER_BYTES ? 10 : 11;
}

bool lzma_unpack(struct lzma *z, const u8 *in, size_t in_bytes, u8 *out, size_t out_bytes)
{
    struct coder c = {0xffffffff, 0, in, in + in_bytes, false};
    u32 back[4] = {0}, state = 0, n;
    if (in_bytes < 5 || in[0] != 0)
        return false;
    begin(z);
    for (c.in++; c.in < in + 5;)
        c.code = c.code << 8 | *c.in++;
    for (size_t at = 0; at < out_bytes && !c.over;) {
        u32 place = at % LZMA_PLACES;
        if (!bit(&c, &z->match[state][place])) {
            const u8 *beside = state < AFTER_BYTES ? NULL : &out[at - back[0] - 1];
            out[at++] = literal(&c, z->literal[place], beside);
            state = after_byte(state);
            continue;
        }
        if (!bit(&c, &z->again[state])) {
            memmove(back + 1, back, 3 * sizeof *back);
            n = length(&c, &z->length, place);
            back[0] = distance(&c, z, n);
            state = after(state, 7);
        } else if (bit(&c, &z->not_first[state])) {
            again(&c, z, state, back);
            n = length(&c, &z->length_again, place);
            state = after(state, 8);
        } else if (bit(&c, &z->first_longer[state][place])) {
            n = length(&c, &z->length_again, place);
            state = after(state, 8);
        } else {
            n = 1;
            state = after(state, 9);
        }
        if (back[0] == END || back[0] >= at)
            return false;
        for (n = (u32)MIN(n, out_bytes - at); n; n--, at++)
            out[at] = out[at - back[0] - 1];
    }
    return !c.over;
}
