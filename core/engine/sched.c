#include "core/engine/sched.h"

enum { RESERVE = 4 }; /* one part in this of a step's prompt tokens is for those behind the first */

/* Gives seqs[i] what there is room for, by what its tokens count; returns how much room is left. */
static u32 give(const struct sched_seq *seqs, const struct sched_budget *b, u32 *take, u32 i,
                u32 room)
{
    const u64 one = 2 * (u64)b->even, counts = MAX((u64)b->even + seqs[i].pos, one);
    u32 may = room;
    if (counts > one && one > 0) {
        may = (u32)(room * one / counts);
        may = may > b->deep ? may - may % b->deep : MIN(room, b->deep);
    }
    take[i] = MIN(seqs[i].left, may);
    return room - (one ? (u32)MIN(take[i] * counts / one, (u64)room) : take[i]);
}

/* The prompt behind `first` with the least left that has got nothing yet; n when there is none. */
static u32 shortest(const struct sched_seq *seqs, u32 n, u32 first, const u32 *take)
{
    u32 best = n;
    for (u32 i = first + 1; i < n; i++)
        if (!seqs[i].decodes && seqs[i].left && !take[i] &&
            (best == n || seqs[i].left < seqs[best].left))
            best = i;
    return best;
}

/* How many of all that decode may do so in one step. alone: there are no prompts. */
static u32 most_decodes(const struct sched_budget *b, u32 all, bool alone)
{
    u32 most = alone && b->tile ? b->tile : UINT32_MAX;
    for (u32 i = 0; alone && i < SCHED_PARTS; i++)
        if (all > b->part[i].tokens && all <= b->part[i].most)
            most = b->part[i].tokens;
    return MIN(most, b->step_tokens);
}

/* One token each for at most so many of `all` that decode. */
static u32 give_decodes(const struct sched_seq *seqs, u32 n, u32 *take, u32 all, u32 most)
{
    u32 used = 0;
    if (all <= most) {
        for (u32 i = 0; i < n; i++)
            take[i] = seqs[i].decodes;
        return all;
    }
    for (u64 fewest = 0, next; used < most && fewest != UINT64_MAX; fewest = next) {
        next = UINT64_MAX;
        for (u32 i = 0; i < n && used < most; i++) {
            if (!seqs[i].decodes || seqs[i].turns < fewest)
                continue;
            if (seqs[i].turns == fewest)
                used += take[i] = 1;
            else
                next = MIN(next, seqs[i].turns);
        }
    }
    return used;
}

u32 sched_plan(const struct sched_seq *seqs, u32 n, struct sched_budget budget, u32 *take)
{
    u32 first = n, decodes = 0;
    for (u32 i = n; i-- > 0;) {
        take[i] = 0;
        decodes += seqs[i].decodes;
        if (!seqs[i].decodes)
            first = i;
    }
    u32 used = give_decodes(seqs, n, take, decodes, most_decodes(&budget, decodes, first == n));
    u32 room = budget.step_tokens - used;
    if (used > 0)
        room = MIN(room, budget.prefill_beside);
    if (budget.tile && used + room > budget.tile && (used + room) % budget.tile < room / 2)
        room -= (used + room) % budget.tile;
    if (first == n || room == 0)
        return used;
    u32 behind = shortest(seqs, n, first, take), reserve = behind < n ? room / RESERVE : 0;
    u32 rest = reserve + give(seqs, &budget, take, first, room - reserve), left = rest;
    for (; behind < n && left > 0; behind = shortest(seqs, n, first, take))
        left = give(seqs, &budget, take, behind, left);
    if (left > 0) /* of what was put by */
        give(seqs, &budget, take, first, room - (rest - left));
    used = 0;
    for (u32 i = 0; i < n; i++)
        used += take[i];
    return used;
}
