#include "drivers/cpu/pool.h"

#include "core/base/box.h"
#include "core/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pauses before a worker sleeps: some tens of microseconds at a barrier. After a job it sleeps at
 * once, since the thread that decides what comes next may need its CPU. */
enum { BARRIER_SPINS = 2000, JOB_SPINS = 0 };
#define SPINS_FOR_EVER UINT64_MAX

/* From the kernel's futex interface (musl ships no kernel headers). */
enum { FUTEX_WAIT_PRIVATE = 0 | 128, FUTEX_WAKE_PRIVATE = 1 | 128 };

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* most cores take yield for a nop */
#endif
}

/* Returns when *word is no longer `old`: spins, then sleeps, counted in *sleepers. Counter and word
 * are sequentially consistent, so that change_word sees every sleeper that could miss its change.
 */
static void await_change(_Atomic u32 *word, u32 old, _Atomic u32 *sleepers, u64 spins)
{
    for (u64 i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        relax();
    }
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(sleepers, 1);
}

static void change_word(_Atomic u32 *word, u32 value, _Atomic u32 *sleepers)
{
    atomic_store(word, value);
    if (atomic_load(sleepers) != 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void pool_barrier(struct pool *p)
{
    u32 phase = atomic_load_explicit(&p->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) + 1 < p->n) {
        await_change(&p->phase, phase, &p->asleep, p->spin ? SPINS_FOR_EVER : BARRIER_SPINS);
        return;
    }
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    change_word(&p->phase, phase + 1, &p->asleep);
}

static void finish(struct pool *p, u32 jobs)
{
    if (atomic_fetch_sub_explicit(&p->left, 1, memory_order_acq_rel) != 1)
        return;
    struct clock clock = clock_system();
    u64 one = 1;
    p->done_ns = clock_now_ns(&clock);
    atomic_store_explicit(&p->ended, jobs, memory_order_release);
    while (write(p->event, &one, sizeof one) < 0)
        ASSERT(errno == EINTR);
}

static void *worker_main(void *arg)
{
    struct pool_worker *w = arg;
    struct pool *p = w->pool;
    if (w->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(w->cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    for (u32 done = 0;; done++) {
        await_change(&p->jobs, done, &p->idle, p->spin ? SPINS_FOR_EVER : JOB_SPINS);
        if (p->closing)
            return NULL;
        p->job(p->arg, w->id);
        finish(p, done + 1);
    }
}

u32 pool_cpus(bool *own)
{
    cpu_set_t set;
    u32 n = sched_getaffinity(0, sizeof set, &set) == 0 ? (u32)CPU_COUNT(&set) : 1;
    u32 quota = box_cpu_quota();
    if (own)
        *own = quota >= n;
    return MIN(n, quota);
}

/* The i-th CPU this process may run on, modulo their number; -1 when that is unknown. */
static int nth_cpu(u32 i)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) == 0)
        return -1;
    i %= (u32)CPU_COUNT(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && i-- == 0)
            return cpu;
    return -1;
}

/* Forbids, or allows again, the lowest whole page of a stack, and returns what is above it; NULL:
 * the kernel refuses. Stacks begin at multiples of 4096, and some kernels of arm64 have pages of 64
 * KiB. */
static u8 *guard(u8 *stack, int protection)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    u8 *lowest = stack + (-(uintptr_t)stack & (page - 1));
    return mprotect(lowest, page, protection) == 0 ? lowest + page : NULL;
}

static int start_worker(struct pool_worker *w)
{
    pthread_attr_t attr;
    u8 *low = guard(w->stack, PROT_NONE), *end = w->stack + POOL_STACK_BYTES;
    if (!low)
        return errno;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, low, (size_t)(end - low));
    int error = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_attr_destroy(&attr);
    return error;
}

enum err pool_open(struct pool *p, const struct pool_options *o, void *stacks, struct err_text *e)
{
    ASSERT(o->threads > 0 && o->threads <= LIMIT_THREADS);
    *p = (struct pool){.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .spin = o->spin};
    if (p->event < 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot make an eventfd for the CPU workers");
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* it is about what they read: core/main/fault */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (p->n < o->threads && error == 0) {
        struct pool_worker *w = &p->workers[p->n];
        *w = (struct pool_worker){.pool = p, .id = p->n, .cpu = o->pin ? nth_cpu(p->n) : -1};
        w->stack = (u8 *)stacks + (size_t)p->n * POOL_STACK_BYTES;
        error = start_worker(w);
        p->n += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ERR_OK;
    u32 made = p->n;
    pool_close(p);
    errno = error;
    return err_set_errno(e, ERR_SYSTEM, "cannot start CPU worker %u of %u; lower cpu.threads",
                         made + 1, o->threads);
}

void pool_start(struct pool *p, pool_job *job, void *arg)
{
    ASSERT(!p->running);
    p->running = true;
    p->job = job;
    p->arg = arg;
    atomic_store_explicit(&p->left, p->n, memory_order_relaxed);
    change_word(&p->jobs, atomic_load_explicit(&p->jobs, memory_order_relaxed) + 1, &p->idle);
}

static bool ended(struct pool *p)
{
    return atomic_load_explicit(&p->ended, memory_order_acquire) ==
           atomic_load_explicit(&p->jobs, memory_order_relaxed);
}

/* Sleeps until the event is written. What earlier jobs have written is taken out before the job is
 * looked at: should it end after that, the event is readable. */
static void await_event(struct pool *p, int timeout_ms)
{
    struct pollfd fd = {.fd = p->event, .events = POLLIN};
    u64 count;
    do {
        if (read(p->event, &count, sizeof count) < 0)
            ASSERT(errno == EAGAIN || errno == EINTR);
        if (!ended(p) && poll(&fd, 1, timeout_ms) < 0)
            ASSERT(errno == EINTR);
    } while (timeout_ms < 0 && !ended(p));
}

bool pool_done(struct pool *p, int timeout_ms)
{
    if (!p->running)
        return false;
    if (timeout_ms != 0 && !ended(p))
        await_event(p, timeout_ms);
    if (!ended(p))
        return false;
    p->running = false;
    return true;
}

void pool_close(struct pool *p)
{
    while (p->running)
        pool_done(p, -1);
    p->closing = true;
    change_word(&p->jobs, atomic_load_explicit(&p->jobs, memory_order_relaxed) + 1, &p->idle);
    for (u32 i = 0; i < p->n; i++) {
        pthread_join(p->workers[i].thread, NULL);
        (void)!guard(p->workers[i].stack, PROT_READ | PROT_WRITE);
    }
    close(p->event);
    *p = (struct pool){.event = -1};
}
