/* Times of repeated work on a stream, measured on the device by a pair of events: fewest, mean and
 * most milliseconds, and with the bytes that one turn reads and writes its GB/s. For benchmarks,
 * profiles and `zigcuda kernel run`. The struct owns its two events between open and close; a turn
 * is begin, work, end, and later read.
 */
#ifndef ZIGCUDA_CUDA_TIMER_H
#define ZIGCUDA_CUDA_TIMER_H

#include "drivers/cuda/driver.h"

struct cuda_timer {
    struct cuda_event *from, *to;
    u64 bytes; /* that one turn moves; 0: not known */
    u32 n;     /* turns read */
    double min_ms, max_ms, sum_ms;
};

MUST enum err cuda_timer_open(struct cuda_timer *t, u64 bytes, struct err_text *e);
void cuda_timer_close(struct cuda_timer *t);

MUST enum err cuda_timer_begin(struct cuda_timer *t, struct cuda_stream *stream,
                               struct err_text *e);
MUST enum err cuda_timer_end(struct cuda_timer *t, struct cuda_stream *stream, struct err_text *e);

/* Waits for the end of the turn and counts it. An error of the work shows itself here. */
MUST enum err cuda_timer_read(struct cuda_timer *t, struct err_text *e);

/* The same with a time that was measured elsewhere. */
void cuda_timer_add(struct cuda_timer *t, double ms);

static inline double cuda_timer_mean_ms(const struct cuda_timer *t)
{
    return t->n ? t->sum_ms / t->n : 0;
}

/* 10^9 bytes a second at `ms` a turn; 0 where bytes or time are not known. */
static inline double cuda_timer_gb_s(const struct cuda_timer *t, double ms)
{
    return ms > 0 ? (double)t->bytes / ms / 1e6 : 0;
}

#endif
