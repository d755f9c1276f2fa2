/* Where a step's time goes: each operation is launched alone, between two events, and counted by
 * its label. What the one launch of a plain step saves (meetings of all blocks instead of launches,
 * copies ahead across operations) does not show here; the step's own time stands beside it.
 *
 * The events are made by profile_open; the struct lives in the boot arena. For benchmarks.
 */
#ifndef ZIGCUDA_CUDA_PROFILE_H
#define ZIGCUDA_CUDA_PROFILE_H

#include "drivers/cuda/list.h"
#include "drivers/cuda/timer.h"

enum { PROFILE_ROWS = 24 };

struct profile_row {
    const char *label;
    struct cuda_timer time; /* without events; bytes: of one operation */
};

struct profile {
    const struct list *list;
    struct cuda_event **events; /* one before each operation, and one behind the last */
    u32 *ops;                   /* [events] */
    u32 n, n_rows;
    u64 positions; /* of all rows, whose keys and values attention reads */
    struct profile_row rows[PROFILE_ROWS];
};

MUST enum err profile_open(struct arena *keep, const struct list *l, struct profile **out,
                           struct err_text *e);
void profile_clear(struct profile *p);
void profile_close(struct profile *p);

/* One step: what it reads of the KV cache, each operation, the end, and when it is done. */
void profile_step(struct profile *p, const struct step *step);
MUST enum err profile_begin(struct profile *p, struct cuda_stream *stream, u32 op,
                            struct err_text *e);
MUST enum err profile_end(struct profile *p, struct cuda_stream *stream, struct err_text *e);
MUST enum err profile_read(struct profile *p, struct err_text *e);

#endif
