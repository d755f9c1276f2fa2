#include "drivers/cuda/timer.h"

enum err cuda_timer_open(struct cuda_timer *t, u64 bytes, struct err_text *e)
{
    *t = (struct cuda_timer){.bytes = bytes};
    CUDA_TRY(cuda_event_open(&t->from, CU_EVENT_DEFAULT), e, "make an event");
    enum cuda_result r = cuda_event_open(&t->to, CU_EVENT_DEFAULT);
    if (r == CUDA_SUCCESS)
        return ERR_OK;
    cuda_timer_close(t);
    return cuda_failed(r, e, "make an event");
}

void cuda_timer_close(struct cuda_timer *t)
{
    struct cuda_event *events[] = {t->from, t->to};
    for (u32 i = 0; i < COUNTOF(events); i++)
        if (events[i] && cuda_event_close(events[i]) != CUDA_SUCCESS)
            break; /* a lost context: its events went with it */
    t->from = t->to = NULL;
}

enum err cuda_timer_begin(struct cuda_timer *t, struct cuda_stream *stream, struct err_text *e)
{
    CUDA_TRY(cuda_event_record(t->from, stream), e, "record the start of a turn");
    return ERR_OK;
}

enum err cuda_timer_end(struct cuda_timer *t, struct cuda_stream *stream, struct err_text *e)
{
    CUDA_TRY(cuda_event_record(t->to, stream), e, "record the end of a turn");
    return ERR_OK;
}

enum err cuda_timer_read(struct cuda_timer *t, struct err_text *e)
{
    float ms;
    CUDA_TRY(cuda_event_wait(t->to), e, "finish the work on the device");
    CUDA_TRY(cuda_event_elapsed(&ms, t->from, t->to), e, "read the time of a turn");
    cuda_timer_add(t, (double)ms);
    return ERR_OK;
}

void cuda_timer_add(struct cuda_timer *t, double ms)
{
    t->min_ms = t->n ? MIN(t->min_ms, ms) : ms;
    t->max_ms = t->n ? MAX(t->max_ms, ms) : ms;
    t->sum_ms += ms;
    t->n++;
}
