#include "core/base/clock.h"

#include <time.h>

static u64 monotonic_ns(void *arg)
{
    (void)arg;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

static i64 wall_s(void *arg)
{
    (void)arg;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec;
}

struct clock clock_system(void)
{
    return (struct clock){monotonic_ns, wall_s, NULL};
}
