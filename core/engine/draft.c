#include "core/engine/draft.h"

enum {
    BITS_MIN = 8,
    BITS_MAX = 16,
    LENGTH_FIRST = 2,
    LENGTH_MAX = 64,
    REST_DOUBLES = 3,
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

void draft_begin(struct draft *d, u32 n_prompt, u32 n_likely, u32 end)
{
    *d = (struct draft){.places = d->places,
                        .bits = d->bits,
                        .likely = end - n_likely,
                        .end = end,
                        .source = end - n_likely, /* as it begins */
                        .at = n_prompt,
                        .length = LENGTH_FIRST};
    memset(d->places, 0, sizeof *d->places << d->bits);
}

/* Of the tokens that end before tokens[end]. */
static u32 *place(struct draft *d, const u32 *tokens, u32 end)
{
    u32 h = 0;
    for (u32 i = end - DRAFT_GRAM; i < end; i++)
        h = (h ^ tokens[i]) * 0x9e3779b1u;
    return &d->places[h >> (32 - d->bits)];
}

static void learn(struct draft *d, const u32 *tokens, u32 from, u32 to)
{
    for (u32 end = from; end < to; end++)
        *place(d, tokens, end) = end;
}

static void learn_all(struct draft *d, const u32 *tokens, u32 n)
{
    learn(d, tokens, d->known ? d->known : DRAFT_GRAM, n);
    if (!d->known) /* behind the prompt, which often has the same text before it is changed */
        learn(d, tokens, MAX(d->likely, n) + DRAFT_GRAM, d->end);
    d->known = n;
}

/* Does tokens[n] stand behind the same tokens as tokens[from]? At the prediction's beginning there
 * are fewer. */
static bool follows(const struct draft *d, const u32 *tokens, u32 from, u32 n)
{
    bool predicted = from >= MAX(d->likely, n);
    u32 gram = predicted ? MIN(from - d->likely, (u32)DRAFT_GRAM) : DRAFT_GRAM;
    return (predicted ? from < d->end : from < n && from >= gram) &&
           memcmp(tokens + from - gram, tokens + n - gram, gram * sizeof *tokens) == 0;
}

u32 draft_find(struct draft *d, const u32 *tokens, u32 n, u32 most, u32 *out)
{
    u32 count = MIN(d->length, most), from = d->source + (n - d->at);
    if (d->rest || n < DRAFT_GRAM || !count)
        return 0;
    learn_all(d, tokens, n);
    if (!follows(d, tokens, from, n))
        from = *place(d, tokens, n);
    if (!follows(d, tokens, from, n))
        return 0;
    d->source = from;
    d->at = n;
    if (from >= n)
        count = MIN(count, d->end - from);
    for (u32 i = 0; i < count; i++) /* what is at the end may go on as a period */
        out[i] = from >= n || from + i < n ? tokens[from + i] : out[from + i - n];
    return count;
}

void draft_judge(struct draft *d, u32 n, u32 stayed)
{
    d->length = stayed == n ? MIN(2 * n, (u32)LENGTH_MAX) : MAX(stayed + 1, n / 2);
    d->misses = stayed ? 0 : d->misses + 1;
    d->rest = stayed ? 0 : 1u << MIN(d->misses, (u32)REST_DOUBLES);
}

void draft_pass(struct draft *d)
{
    d->rest -= d->rest > 0;
}
