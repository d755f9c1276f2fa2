/* The clock seam: everything that needs the time is handed one of these, so that a simulator can
 * be the clock. Times are nanoseconds; `now` never runs backwards, `wall` is seconds since 1970.
 */
#ifndef ZIGCUDA_CLOCK_H
#define ZIGCUDA_CLOCK_H

#include "core/base/base.h"

struct clock {
    u64 (*now_ns)(void *arg);
    i64 (*wall_s)(void *arg);
    void *arg;
};

/* CLOCK_MONOTONIC and CLOCK_REALTIME. */
struct clock clock_system(void);

static inline u64 clock_now_ns(const struct clock *c)
{
    return c->now_ns(c->arg);
}

#endif
