/* Which tokens go into the next step: a pure function of what is running and the budget, so that a
 * schedule can be replayed from its inputs. It decides nothing about memory: a sequence is listed
 * here only once its pages are there.
 */
#ifndef ZIGCUDA_SCHED_H
#define ZIGCUDA_SCHED_H

#include "core/base/base.h"

struct sched_seq {
    u32 left; /* tokens not computed yet; 1 for one that decodes; 0: not in this step */
    bool decodes;
    u32 pos;   /* of the first of them */
    u64 turns; /* how often it has had one; counts where not all that decode are in one step */
};

/* Without prompts, more than `tokens` and up to `most` that decode take turns in steps of so many
 * tokens: that takes less time for each of them than a step of all would. */
struct sched_part {
    u32 tokens, most;
};

enum { SCHED_PARTS = 2 };

struct sched_budget {
    u32 step_tokens;    /* of one step, all sequences together */
    u32 prefill_beside; /* prefill tokens when something decodes too: bounds the gap it sees */
    u32 tile; /* longer steps have whole tiles of so many, where that is not half of what prompts
                 may have; and without prompts no step is longer: a part of a tile takes as long as
                 a whole one. 0: steps have as many as they may */
    u32 even; /* here a token takes twice as long as at the beginning, as it attends to those before
                 it; further on it counts as (even + pos) / (2 even) tokens, so that no step takes
                 longer than that; 0: tokens count as one anywhere */
    u32 deep; /* then it has a multiple of so many */
    struct sched_part part[SCHED_PARTS]; /* of a tile, in any order; none: 0, 0 */
};

/* seqs[n] stand in the order of service. take[i] becomes the number of tokens of seqs[i] in the
 * next step (0: not this time). Decodes go first, one token each; where that is more than a tile
 * (or a part of one, see above), those who have had fewest turns. What is left of the budget is for
 * prompts, by what their tokens count: the first in order gets all but a quarter; the quarter goes
 * to the others, shortest first, so that a short prompt does not wait until a long one has been
 * read; what they do not need goes to the first as well. The first always moves, so nobody starves.
 * Returns the step's tokens.
 */
u32 sched_plan(const struct sched_seq *seqs, u32 n, struct sched_budget budget, u32 *take);

#endif
