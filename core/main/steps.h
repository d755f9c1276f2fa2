/* Steps made straight on the device, without the engine and without prompts: every row begins at a
 * given depth, on KV pages of its own that hold whatever is there. For benchmarks: the time of a
 * step and of the host's part in it do not depend on what was read, and so a batch of long contexts
 * needs no minutes of prefill.
 */
#ifndef ZIGCUDA_STEPS_H
#define ZIGCUDA_STEPS_H

#include "core/base/clock.h"
#include "core/engine/device.h"

struct steps_shape {
    u32 batch, depth; /* rows; positions before each */
    u32 n;            /* tokens a row: 1 decodes, and every step follows the one before */
    u32 guesses;      /* of n: those behind the first; each is sampled, and each step waited for */
    u32 warm, steps;  /* not counted, counted */
};

struct steps_times {
    double step_s;           /* from step to step */
    double host_s, host_max; /* of that: in the calls of the device that do not wait */
};

/* ERR_USAGE when the device has not the slots, pages or context. `work` must have room for the
 * rows and page tables; no step may be in flight. */
MUST enum err steps_run(struct device *d, struct arena *work, const struct clock *clock,
                        const struct steps_shape *shape, struct steps_times *out,
                        struct err_text *e);

/* Of work memory for any shape that fits the limits. */
size_t steps_work_bytes(const struct device_limits *limits);

#endif
