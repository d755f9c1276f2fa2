/* The loop: the only file set that knows epoll. One thread waits for (or, spinning, polls) sockets,
 * listeners (net/listen), signals and any other descriptor with a callback, hands bytes to
 * connections, and keeps the service manager informed (net/notify). It calls; it decides nothing.
 *
 * Time: who waits sleeps until a descriptor has something, or until the one timerfd fires, which is
 * armed for the nearest deadline of all (an absolute time, to the nanosecond); where there is none
 * it does not wake up. Who spins looks at the clock and never touches the timer.
 *
 * Signals: SIGTERM and SIGINT drain (listeners close, what was asked is answered, then LOOP_END), a
 * second one ends at once; SIGHUP calls the reload function. They are blocked and read by signalfd,
 * so that no handler ever runs: loop_block_signals has to come before any thread is made. SIGPIPE,
 * SIGUSR1 and SIGUSR2 do nothing.
 *
 * Limits: LIMIT_LISTENERS, LIMIT_LOOP_SOURCES, LIMIT_LOOP_EVENTS. The arena given to loop_open
 * holds the loop; nothing is allocated later.
 */
#ifndef ZIGCUDA_LOOP_H
#define ZIGCUDA_LOOP_H

#include "core/base/arena.h"
#include "core/base/clock.h"
#include "net/conn.h"
#include "net/listen.h"

struct loop_config {
    struct listen_config listen;
    u32 connections; /* descriptors that have to be possible */
    bool spin;       /* never sleep */
    int core;        /* to run on; -1: any */
    int fifo;        /* SCHED_FIFO priority; 0: none */
    bool lock;       /* mlockall */
    u64 drain_ms;    /* longest drain */
};

enum loop_state { LOOP_RUN, LOOP_DRAIN, LOOP_END };

struct loop;

void loop_block_signals(void);

/* Binds all listeners: from here on peers can connect, and wait. The clock counts as
 * CLOCK_MONOTONIC does: the timer goes by that. ERR_CONFIG, ERR_SYSTEM. */
MUST enum err loop_open(struct arena *a, const struct loop_config *g, const struct clock *clock,
                        struct loop **out, struct err_text *e);

/* The sockets of conns_open. */
struct sockets loop_sockets(struct loop *l);

/* Calls ready(arg) whenever fd becomes readable (EPOLLET: it need not be read); false: no room, or
 * the kernel refused. */
MUST bool loop_watch(struct loop *l, int fd, void (*ready)(void *arg), void *arg);

/* What signals ask for, either may be NULL: `reload` at SIGHUP, `drain` once at SIGTERM, after all
 * that had come by then was passed on. */
struct loop_calls {
    void (*reload)(void *arg);
    void (*drain)(void *arg);
    void *arg;
};
void loop_call(struct loop *l, const struct loop_calls *calls);

/* Core, scheduling class and locked memory for this thread; its threads made before keep theirs.
 * What the box may refuse: before anybody is told that the server is ready. */
MUST enum err loop_claim(const struct loop *l, struct err_text *e);

/* The last step of boot: peers are accepted, and READY goes to the service manager. */
MUST enum err loop_start(struct loop *l, struct conns *c, struct err_text *e);

/* One turn: waits until until_ns of the clock (0: not at all, UINT64_MAX: as long as nothing
 * happens), handles what came. It may come back early with nothing. After LOOP_END: loop_close. */
enum loop_state loop_turn(struct loop *l, u64 until_ns);

void loop_close(struct loop *l);

/* Before an exec: the listeners stay open in it (listen_keep), and the service manager hears of it.
 */
void loop_keep(struct loop *l, char out[LISTEN_KEPT_BYTES]);

#endif
