/* The fake driver's streams, each with a thread that does its work in order; events; graphs. */
#include "tests/fakecuda/fake.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct cuda_stream {
    struct fake_handle handle;
    struct cuda_stream *next;
    struct fake_work *first, **last;
    u64 submitted, done;
    struct cuda_graph *capture; /* or NULL */
};

struct cuda_event {
    struct fake_handle handle;
    u32 flags;
    u64 submitted, done; /* records */
    struct timespec time;
};

struct cuda_graph {
    struct fake_handle handle;
    struct fake_work *first, **last;
};

struct cuda_graph_exec {
    struct fake_handle handle;
    const struct cuda_graph *graph;
};

static struct cuda_stream *streams, *stream_of_null;

/* --- kernels --------------------------------------------------------------------------------- */

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER; /* one grid at a time */
static volatile pid_t running_thread;                           /* the thread that runs a grid */
static sigjmp_buf back;
static volatile uintptr_t touched;

/* A kernel touched what it must not: its launch is over. Anybody else's fault is not ours. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (running_thread == (pid_t)syscall(SYS_gettid)) {
        touched = (uintptr_t)info->si_addr;
        siglongjmp(back, 1);
    }
    sigaction(sig, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

static void catch_faults(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS};
    static u8 stacks[64][64 << 10];
    static u32 n;
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    stack_t stack = {.ss_sp = stacks[__atomic_fetch_add(&n, 1, __ATOMIC_RELAXED) % 64],
                     .ss_size = sizeof stacks[0]};
    sigset_t set;
    sigaltstack(&stack, NULL);
    sigemptyset(&set);
    for (u32 i = 0; i < COUNTOF(signals); i++) {
        sigaction(signals[i], &action, NULL);
        sigaddset(&set, signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static enum cuda_result illegal_address(const struct emulated *kernel)
{
    char words[128];
    pthread_mutex_lock(&fake_lock);
    fake_describe(touched, words);
    fake_misuse(CUDA_ERROR_ILLEGAL_ADDRESS, "kernel %s touches %#llx: %s", kernel->name,
                (unsigned long long)touched, words);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static enum cuda_result run_kernel(const struct fake_work *w)
{
    volatile bool fault = true;
    pthread_mutex_lock(&device_lock);
    if (sigsetjmp(back, 0) == 0) {
        running_thread = (pid_t)syscall(SYS_gettid);
        (w->launch.together ? emulate_grid
                            : emulate_each)(w->launch.kernel, w->launch.blocks, w->launch.threads,
                                            w->launch.shared_bytes, w->launch.params);
        fault = false;
    }
    running_thread = 0;
    pthread_mutex_unlock(&device_lock);
    return fault ? illegal_address(w->launch.kernel) : CUDA_SUCCESS;
}

static enum cuda_result launch(const struct fake_work *w)
{
    pthread_mutex_lock(&fake_lock);
    int wanted = fake_failure("kernel");
    pthread_mutex_unlock(&fake_lock);
    while (wanted == FAKE_HANG)
        pause();
    return wanted ? (enum cuda_result)wanted : run_kernel(w);
}

/* --- work ------------------------------------------------------------------------------------ */

static void sleep_us(u64 us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (us)
        nanosleep(&t, NULL);
}

static void run_fill(const struct fake_work *w)
{
    if (w->fill.unit_bytes == 1)
        memset(w->fill.to, (int)w->fill.value, w->fill.n);
    else
        for (size_t i = 0; i < w->fill.n; i++)
            ((u32 *)w->fill.to)[i] = w->fill.value;
}

static void record(struct cuda_event *event, u64 ticket)
{
    pthread_mutex_lock(&fake_lock);
    event->done = MAX(event->done, ticket);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    pthread_mutex_unlock(&fake_lock);
}

static void wait_for(const struct cuda_event *event, u64 ticket)
{
    pthread_mutex_lock(&fake_lock);
    while (event->done < ticket && !fake_sticky)
        pthread_cond_wait(&fake_changed, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
}

/* Without the lock. */
static enum cuda_result run_work(const struct fake_work *w)
{
    sleep_us(fake.delay_us);
    switch (w->kind) {
    case WORK_COPY:
        memmove(w->copy.to, w->copy.from, w->copy.bytes);
        break;
    case WORK_FILL:
        run_fill(w);
        break;
    case WORK_LAUNCH:
        return launch(w);
    case WORK_HOST:
        fake_in_callback = true;
        w->host.run(w->host.arg);
        fake_in_callback = false;
        break;
    case WORK_RECORD:
        record(w->event.event, w->event.ticket);
        break;
    case WORK_WAIT:
        wait_for(w->event.event, w->event.ticket);
    }
    return CUDA_SUCCESS;
}

static void free_work(struct fake_work *w)
{
    free(w->owned);
    free(w);
}

/* Does the stream's work until it is closed and done. After a sticky error work is dropped. */
static void *serve(void *arg)
{
    struct cuda_stream *s = arg;
    catch_faults();
    pthread_mutex_lock(&fake_lock);
    while (s->first || !s->handle.closed) {
        struct fake_work *w = s->first;
        if (!w) {
            pthread_cond_wait(&fake_changed, &fake_lock);
            continue;
        }
        s->first = w->next;
        if (!s->first)
            s->last = &s->first;
        enum cuda_result r = CUDA_SUCCESS;
        if (!fake_sticky) {
            pthread_mutex_unlock(&fake_lock);
            r = run_work(w);
            pthread_mutex_lock(&fake_lock);
        }
        if (r != CUDA_SUCCESS && !fake_sticky)
            fake_sticky = r;
        free_work(w);
        s->done++;
        pthread_cond_broadcast(&fake_changed);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

/* --- streams --------------------------------------------------------------------------------- */

static enum cuda_result new_stream(struct cuda_stream **out)
{
    pthread_t thread;
    struct cuda_stream *s = fake_open(FAKE_STREAM, sizeof *s);
    s->last = &s->first;
    s->next = streams;
    streams = s;
    *out = s;
    if (pthread_create(&thread, NULL, serve, s) != 0)
        return fake_misuse(CUDA_ERROR_OUT_OF_MEMORY, "no thread for a stream");
    pthread_detach(thread);
    return CUDA_SUCCESS;
}

/* NULL is a stream as well. */
static enum cuda_result resolve(struct cuda_stream **s)
{
    if (*s)
        return fake_check(*s, FAKE_STREAM);
    enum cuda_result r = stream_of_null ? CUDA_SUCCESS : new_stream(&stream_of_null);
    *s = stream_of_null;
    return r;
}

static void append(struct fake_work ***last, const struct fake_work *w)
{
    struct fake_work *copy = malloc(sizeof *copy);
    if (!copy)
        abort();
    *copy = *w;
    copy->next = NULL;
    **last = copy;
    *last = &copy->next;
}

enum cuda_result fake_submit(struct cuda_stream *s, const struct fake_work *w)
{
    enum cuda_result r = resolve(&s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->capture) {
        append(&s->capture->last, w);
        return CUDA_SUCCESS;
    }
    append(&s->last, w);
    s->submitted++;
    pthread_cond_broadcast(&fake_changed);
    return CUDA_SUCCESS;
}

bool fake_capturing(struct cuda_stream *s)
{
    return resolve(&s) == CUDA_SUCCESS && s->capture;
}

enum cuda_result fake_wait_stream(struct cuda_stream *s)
{
    enum cuda_result r = resolve(&s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->capture)
        return fake_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a wait while work is captured");
    for (u64 until = s->submitted; s->done < until;)
        pthread_cond_wait(&fake_changed, &fake_lock);
    return fake_sticky;
}

void fake_wait_all(void)
{
    for (struct cuda_stream *s = streams; s; s = s->next)
        while (s->done < s->submitted)
            pthread_cond_wait(&fake_changed, &fake_lock);
}

enum cuda_result fake_stream_open(struct cuda_stream **out, u32 flags)
{
    if (flags & ~(u32)CU_STREAM_NON_BLOCKING)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "stream flags %#x", flags);
    return new_stream(out);
}

enum cuda_result fake_stream_close(struct cuda_stream *s)
{
    enum cuda_result r = fake_check(s, FAKE_STREAM);
    if (r != CUDA_SUCCESS)
        return r;
    s->handle.closed = true;
    pthread_cond_broadcast(&fake_changed);
    return CUDA_SUCCESS;
}

enum cuda_result fake_stream_query(struct cuda_stream *s)
{
    enum cuda_result r = resolve(&s);
    return r || s->done == s->submitted ? r : CUDA_ERROR_NOT_READY;
}

enum cuda_result fake_stream_wait(struct cuda_stream *s)
{
    return fake_wait_stream(s);
}

enum cuda_result fake_call_host(struct cuda_stream *stream, void (*run)(void *), void *arg)
{
    struct fake_work w = {.kind = WORK_HOST, .host = {run, arg}};
    return fake_submit(stream, &w);
}

/* --- events ---------------------------------------------------------------------------------- */

enum cuda_result fake_event_open(struct cuda_event **out, u32 flags)
{
    if (flags & ~(u32)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "event flags %#x", flags);
    *out = fake_open(FAKE_EVENT, sizeof **out);
    (*out)->flags = flags;
    return CUDA_SUCCESS;
}

enum cuda_result fake_event_close(struct cuda_event *event)
{
    enum cuda_result r = fake_check(event, FAKE_EVENT);
    if (r == CUDA_SUCCESS)
        event->handle.closed = true;
    return r;
}

enum cuda_result fake_event_record(struct cuda_event *event, struct cuda_stream *stream)
{
    enum cuda_result r = fake_check(event, FAKE_EVENT);
    if (r != CUDA_SUCCESS)
        return r;
    struct fake_work w = {.kind = WORK_RECORD, .event = {event, ++event->submitted}};
    return fake_submit(stream, &w);
}

enum cuda_result fake_stream_wait_event(struct cuda_stream *stream, struct cuda_event *event,
                                        u32 flags)
{
    enum cuda_result r = fake_check(event, FAKE_EVENT);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuStreamWaitEvent: flags %#x", flags);
    struct fake_work w = {.kind = WORK_WAIT, .event = {event, event->submitted}};
    return fake_submit(stream, &w);
}

enum cuda_result fake_event_query(struct cuda_event *event)
{
    enum cuda_result r = fake_check(event, FAKE_EVENT);
    return r || event->done == event->submitted ? r : CUDA_ERROR_NOT_READY;
}

enum cuda_result fake_event_wait(struct cuda_event *event)
{
    enum cuda_result r = fake_check(event, FAKE_EVENT);
    if (r != CUDA_SUCCESS)
        return r;
    for (u64 until = event->submitted; event->done < until && !fake_sticky;)
        pthread_cond_wait(&fake_changed, &fake_lock);
    return fake_sticky;
}

enum cuda_result fake_event_elapsed(float *ms, struct cuda_event *from, struct cuda_event *to)
{
    struct cuda_event *both[] = {from, to};
    for (u32 i = 0; i < 2; i++) {
        enum cuda_result r = fake_check(both[i], FAKE_EVENT);
        if (r != CUDA_SUCCESS)
            return r;
        if (both[i]->flags & CU_EVENT_DISABLE_TIMING || both[i]->submitted == 0)
            return fake_misuse(CUDA_ERROR_INVALID_HANDLE, "an event without a time");
        if (both[i]->done < both[i]->submitted)
            return CUDA_ERROR_NOT_READY;
    }
    *ms = (float)((double)(to->time.tv_sec - from->time.tv_sec) * 1e3 +
                  (double)(to->time.tv_nsec - from->time.tv_nsec) / 1e6);
    return CUDA_SUCCESS;
}

/* --- graphs: a line of work ------------------------------------------------------------------ */

enum cuda_result fake_capture_begin(struct cuda_stream *s, enum cuda_capture_mode mode)
{
    enum cuda_result r = fake_check(s, FAKE_STREAM);
    if (r != CUDA_SUCCESS)
        return r;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED || s->capture)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "a capture in a capture, or mode %u", mode);
    s->capture = fake_open(FAKE_GRAPH, sizeof *s->capture);
    s->capture->last = &s->capture->first;
    return CUDA_SUCCESS;
}

enum cuda_result fake_capture_end(struct cuda_stream *s, struct cuda_graph **out)
{
    enum cuda_result r = fake_check(s, FAKE_STREAM);
    if (r != CUDA_SUCCESS)
        return r;
    if (!s->capture)
        return fake_misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "no capture to end");
    *out = s->capture;
    s->capture = NULL;
    return CUDA_SUCCESS;
}

enum cuda_result fake_graph_instantiate(struct cuda_graph_exec **out, struct cuda_graph *graph,
                                        u64 flags)
{
    enum cuda_result r = fake_check(graph, FAKE_GRAPH);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "graph flags %#llx",
                           (unsigned long long)flags);
    *out = fake_open(FAKE_GRAPH_EXEC, sizeof **out);
    (*out)->graph = graph; /* its work stays: handles are not freed */
    return CUDA_SUCCESS;
}

enum cuda_result fake_graph_upload(struct cuda_graph_exec *graph, struct cuda_stream *stream)
{
    enum cuda_result r = fake_check(graph, FAKE_GRAPH_EXEC);
    return r ? r : resolve(&stream);
}

enum cuda_result fake_graph_launch(struct cuda_graph_exec *graph, struct cuda_stream *stream)
{
    enum cuda_result r = fake_check(graph, FAKE_GRAPH_EXEC);
    for (const struct fake_work *w = r ? NULL : graph->graph->first; w && !r; w = w->next) {
        struct fake_work copy = *w;
        copy.owned = NULL; /* the graph's */
        if (copy.kind == WORK_RECORD)
            copy.event.ticket = ++copy.event.event->submitted;
        r = fake_submit(stream, &copy);
    }
    return r;
}

static enum cuda_result shut(void *handle, enum fake_kind kind)
{
    enum cuda_result r = fake_check(handle, kind);
    if (r == CUDA_SUCCESS)
        ((struct fake_handle *)handle)->closed = true;
    return r;
}

enum cuda_result fake_graph_close(struct cuda_graph *graph)
{
    return shut(graph, FAKE_GRAPH);
}

enum cuda_result fake_graph_exec_close(struct cuda_graph_exec *graph)
{
    return shut(graph, FAKE_GRAPH_EXEC);
}
