#include "core/engine/sched.h"

u32 sched_plan(const struct sched_seq *seqs, u32 n, struct sched_budget budget, u32 *take)
{
    u32 used = 0;
    for (u32 i = 0; i < n; i++) {
        take[i] = seqs[i].decodes && used < budget.step_tokens;
        used += take[i];
    }
    u32 room = budget.step_tokens - used;
    if (used > 0)
        room = MIN(room, budget.prefill_beside);
    for (u32 i = 0; i < n && room > 0; i++) {
        if (seqs[i].decodes)
            continue;
        take[i] = MIN(seqs[i].left, room);
        room -= take[i];
        used += take[i];
    }
    return used;
}
