#include "core/engine/sched.h"

enum { RESERVE = 4 }; /* one part in this of a step's prompt tokens is for those behind the first */

static u32 give(const struct sched_seq *seqs, u32 *take, u32 i, u32 room)
{
    u32 more = MIN(seqs[i].left - take[i], room);
    take[i] += more;
    return more;
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

u32 sched_plan(const struct sched_seq *seqs, u32 n, struct sched_budget budget, u32 *take)
{
    u32 used = 0, first = n;
    for (u32 i = 0; i < n; i++) {
        take[i] = seqs[i].decodes && used < budget.step_tokens;
        used += take[i];
        if (!seqs[i].decodes && first == n)
            first = i;
    }
    u32 room = budget.step_tokens - used;
    if (used > 0)
        room = MIN(room, budget.prefill_beside);
    if (budget.tile && used + room > budget.tile && (used + room) % budget.tile < room / 2)
        room -= (used + room) % budget.tile;
    if (first == n || room == 0)
        return used;
    u32 behind = shortest(seqs, n, first, take), reserve = behind < n ? room / RESERVE : 0;
    used += room;
    room -= give(seqs, take, first, room - reserve);
    for (; behind < n && room > 0; behind = shortest(seqs, n, first, take))
        room -= give(seqs, take, behind, room);
    return used - (room - give(seqs, take, first, room));
}
