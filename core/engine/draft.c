#include "core/engine/draft.h"

enum {
    BITS_MIN = 8,
    BITS_MAX = 16,
    LENGTH_FIRST = 4,
    LENGTH_MAX = 64,
    REST_DOUBLES = 3,
    FOLLOW_GRAM = 2, /* tokens that have to be the same where the next ones are expected */
    SAME_MAX = 32    /* tokens that are compared to see which of two places is more alike */
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

bool draft_open(struct draft *d, struct arena *a, u32 context, const struct recall *recall)
{
    *d = (struct draft){.bits = bits_of(context), .recall = recall};
    d->places = ARENA_NEW(a, u32, (size_t)1 << d->bits);
    return d->places != NULL;
}

void draft_begin(struct draft *d, u32 n_prompt, u32 n_likely, u32 end)
{
    *d = (struct draft){.places = d->places,
                        .bits = d->bits,
                        .recall = d->recall,
                        .likely = end - n_likely,
                        .end = end,
                        .source = end - n_likely, /* as it begins */
                        .at = n_prompt,
                        .length = LENGTH_FIRST};
    memset(d->places, 0, sizeof *d->places << d->bits);
}

/* --- places ------------------------------------------------------------------------------------
 */

static u32 *place(const struct draft *d, const u32 *end)
{
    return &d->places[recall_hash(end) >> (32 - d->bits)];
}

static void learn(struct draft *d, const u32 *tokens, u32 from, u32 to)
{
    for (u32 end = from; end < to; end++)
        *place(d, tokens + end) = end;
}

static void learn_all(struct draft *d, const u32 *tokens, u32 n)
{
    learn(d, tokens, d->known ? d->known : DRAFT_GRAM, n);
    if (!d->known) /* behind the prompt, which often has the same text before it is changed */
        learn(d, tokens, MAX(d->likely, n) + DRAFT_GRAM, d->end);
    d->known = n;
}

/* A place that may go on as the sequence does: so many tokens before it and behind it are to be
 * had. Nowhere: `behind` is 0. */
struct lead {
    const u32 *at;
    u32 before, behind;
    bool repeats; /* behind these it goes on as a period */
};

static struct lead own(const struct draft *d, const u32 *tokens, u32 n, u32 i)
{
    if (i < n)
        return (struct lead){tokens + i, i, n - i, true};
    if (i >= d->likely && i < d->end)
        return (struct lead){tokens + i, i - d->likely, d->end - i, false};
    return (struct lead){0};
}

static struct lead recalled(const struct draft *d, u32 i)
{
    if (!d->recall || i >= RECALL_TOKENS)
        return (struct lead){0};
    return (struct lead){d->recall->tokens + i, i, RECALL_TOKENS - i, false};
}

/* How many tokens before tokens[n] stand before it, too. */
static u32 same(const struct lead *l, const u32 *tokens, u32 n)
{
    u32 k = 0, most = l->behind ? MIN(MIN(l->before, n), (u32)SAME_MAX) : 0;
    while (k < most && l->at[-1 - (i64)k] == tokens[n - 1 - k])
        k++;
    return k;
}

/* Where the last draft was taken from, if that is right still. */
static bool follow(struct draft *d, const u32 *tokens, u32 n, struct lead *l)
{
    u32 i = d->source + (n - d->at);
    *l = d->recalls ? recalled(d, i) : own(d, tokens, n, i);
    /* at the beginning of the prediction there are fewer tokens */
    return l->behind && same(l, tokens, n) >= MIN(l->before, (u32)FOLLOW_GRAM);
}

/* The newest place of the newest tokens, here or in another answer: where more are the same. */
static bool search(struct draft *d, const u32 *tokens, u32 n, struct lead *l)
{
    u32 here = *place(d, tokens + n), there = 0;
    if (d->recall)
        there = d->recall->places[recall_hash(tokens + n) >> (32 - RECALL_BITS)];
    struct lead mine = own(d, tokens, n, here), other = recalled(d, there);
    u32 like_mine = same(&mine, tokens, n), like_other = same(&other, tokens, n);
    if (MAX(like_mine, like_other) < DRAFT_GRAM)
        return false;
    d->recalls = like_other > like_mine;
    d->source = d->recalls ? there : here;
    d->at = n;
    *l = d->recalls ? other : mine;
    return true;
}

/* --- drafts ------------------------------------------------------------------------------------
 */

u32 draft_find(struct draft *d, const u32 *tokens, u32 n, u32 most, u32 *out)
{
    u32 count = MIN(d->length, most);
    struct lead l;
    if (d->rest || n < DRAFT_GRAM || !count)
        return 0;
    learn_all(d, tokens, n);
    if (!follow(d, tokens, n, &l) && !search(d, tokens, n, &l))
        return 0;
    count = l.repeats ? count : MIN(count, l.behind);
    for (u32 i = 0; i < count; i++)
        out[i] = i < l.behind ? l.at[i] : out[i - l.behind];
    return count;
}

void draft_judge(struct draft *d, u32 n, u32 stayed)
{
    d->length = MIN(MAX(2 * (stayed + 1), n / 2), (u32)LENGTH_MAX);
    d->misses = stayed ? 0 : d->misses + 1;
    d->rest = stayed ? 0 : 1u << MIN(d->misses, (u32)REST_DOUBLES);
}

void draft_pass(struct draft *d)
{
    d->rest -= d->rest > 0;
}
