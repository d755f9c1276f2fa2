/* Worker threads that all run one function together (SPMD): pool_start hands it over, each worker
 * calls it with its number, and inside it they meet at pool_barrier. The thread that starts a job
 * never computes; it asks or waits with pool_done, or watches pool.event. Asking takes nothing out
 * of the event, which costs a system call: watch it for edges (EPOLLET), a job makes one each.
 *
 * At most LIMIT_THREADS workers, made once in pool_open with all signals but SIGBUS blocked, on
 * stacks from the caller's memory; nothing is allocated afterwards. Between jobs workers sleep in
 * the kernel. At a barrier they spin first: the barriers of a decode step are much closer together
 * than a sleep and a wake. With `spin` they never sleep, so that no job waits for the kernel to
 * wake them; each then needs a CPU that nobody else wants.
 */
#ifndef ZIGCUDA_POOL_H
#define ZIGCUDA_POOL_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/err.h"

#include <pthread.h>
#include <stdatomic.h>

#define POOL_STACK_BYTES ((size_t)256 << 10) /* a worker; its lowest whole page is a guard */

struct pool;
typedef void pool_job(void *arg, u32 worker);

struct pool_worker {
    struct pool *pool;
    pthread_t thread;
    u32 id;
    int cpu; /* to pin to, or -1 */
    u8 *stack;
};

struct pool {
    u32 n;
    int event; /* eventfd: written when a job is finished */
    pool_job *job;
    void *arg;
    bool closing, running, spin;
    u64 done_ns; /* when the newest job finished, on CLOCK_MONOTONIC; valid after pool_done */
    struct pool_worker workers[LIMIT_THREADS];
    /* Words that every worker polls, each on a cache line of its own. */
    _Alignas(64) _Atomic u32 jobs;    /* jobs started so far */
    _Alignas(64) _Atomic u32 idle;    /* workers asleep on `jobs` */
    _Alignas(64) _Atomic u32 phase;   /* barriers passed so far */
    _Alignas(64) _Atomic u32 asleep;  /* workers asleep on `phase` */
    _Alignas(64) _Atomic u32 arrived; /* at the current barrier */
    _Alignas(64) _Atomic u32 left;    /* workers still in the job */
    _Alignas(64) _Atomic u32 ended;   /* jobs finished so far */
};

/* CPUs this process may run on, or fewer: as many as a quota gives it the time of (box_cpu_quota).
 * *own, unless it is NULL: no quota makes them fewer. */
u32 pool_cpus(bool *own);

struct pool_options {
    u32 threads;
    bool pin;  /* worker i runs on the i-th CPU this process may use, modulo their number */
    bool spin; /* workers never sleep */
};

/* Makes the workers on stacks[threads][POOL_STACK_BYTES] (aligned to 16). ERR_SYSTEM. */
MUST enum err pool_open(struct pool *p, const struct pool_options *o, void *stacks,
                        struct err_text *e);

/* Starts a job on all workers; none may be running. */
void pool_start(struct pool *p, pool_job *job, void *arg);

/* True once after each job has finished. timeout_ms: 0 asks, -1 waits for the end. */
bool pool_done(struct pool *p, int timeout_ms);

/* For jobs: returns when all workers have called it. What each wrote before is seen by all after.
 */
void pool_barrier(struct pool *p);

/* Ends and joins the workers; their stacks are plain memory again. */
void pool_close(struct pool *p);

#endif
