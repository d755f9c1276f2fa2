#include "drivers/cpu/pool.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { THREADS = 5, ROUNDS = 300 };

static struct pool pool;
static u32 seen[THREADS], missed[THREADS];
static u64 blocked[THREADS];

static bool open_pool(u32 threads, bool spin)
{
    struct err_text e = {0};
    struct pool_options o = {.threads = threads, .pin = true, .spin = spin};
    enum { OFF = 1024 }; /* from a page's begin, as multiples of 4096 are where pages are larger */
    u8 *stacks = arena_alloc(&unit_arena, OFF + threads * POOL_STACK_BYTES, 4096);
    return stacks && pool_open(&pool, &o, stacks + OFF, &e) == ERR_OK;
}

/* After each barrier every worker must see what all others wrote before it. */
static void rounds_job(void *arg, u32 worker)
{
    u32 base = *(u32 *)arg;
    for (u32 round = 1; round <= ROUNDS; round++) {
        seen[worker] = base + round;
        pool_barrier(&pool);
        for (u32 i = 0; i < THREADS; i++)
            missed[worker] += seen[i] != base + round;
        pool_barrier(&pool);
        if (round % 97 == 0 && worker == round % THREADS)
            usleep(2000); /* long enough that the others sleep */
    }
}

void pool_barriers_order_everything(void)
{
    CHECK(open_pool(THREADS, false));
    memset(missed, 0, sizeof missed);
    for (u32 job = 0; job < 4; job++) {
        u32 base = job * 1000;
        pool_start(&pool, rounds_job, &base);
        while (!pool_done(&pool, -1))
            ;
        for (u32 i = 0; i < THREADS; i++)
            CHECK(seen[i] == base + ROUNDS && missed[i] == 0);
    }
    pool_close(&pool);
}

static void mask_job(void *arg, u32 worker)
{
    sigset_t set;
    (void)arg;
    sigemptyset(&set);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    for (int s = 1; s < 32; s++)
        blocked[worker] |= (u64)(sigismember(&set, s) == 1) << s;
}

void pool_workers_take_no_signals(void)
{
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    CHECK(open_pool(THREADS, false));
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int s = 1; s < 32; s++)
        CHECK(sigismember(&before, s) == sigismember(&after, s));
    memset(blocked, 0, sizeof blocked);
    pool_start(&pool, mask_job, NULL);
    while (!pool_done(&pool, -1))
        ;
    for (u32 i = 0; i < THREADS; i++) {
        CHECK(blocked[i] & 1u << SIGINT && blocked[i] & 1u << SIGTERM);
        CHECK(blocked[i] & 1u << SIGUSR1 && blocked[i] & 1u << SIGALRM);
        CHECK(!(blocked[i] & 1u << SIGBUS));
    }
    pool_close(&pool);
}

static void slow_job(void *arg, u32 worker)
{
    (void)arg;
    if (worker == 0)
        usleep(30000);
}

void pool_done_is_said_once(void)
{
    for (u32 spin = 0; spin < 2; spin++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET};
        CHECK(open_pool(2, spin));
        int epoll = epoll_create1(0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pool.event, &event) == 0);
        CHECK(!pool_done(&pool, 0)); /* nothing was started */
        for (u32 i = 0; i < 3; i++) {
            pool_start(&pool, slow_job, NULL);
            CHECK(!pool_done(&pool, 0));
            CHECK(epoll_wait(epoll, &event, 1, 5000) == 1);
            CHECK(pool_done(&pool, 0));
            CHECK(!pool_done(&pool, 0));
            CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
        }
        for (u32 i = 0; i < 3; i++) { /* what was not taken out of the event misleads nobody */
            pool_start(&pool, slow_job, NULL);
            CHECK(pool_done(&pool, -1));
        }
        pool_start(&pool, slow_job, NULL);
        pool_close(&pool); /* waits for it */
        close(epoll);
    }
}
