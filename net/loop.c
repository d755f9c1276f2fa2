#include "net/loop.h"

#include "core/base/log.h"
#include "net/notify.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* SPARE_DESCRIPTORS: ours, the listeners', LIMIT_PARTING and a driver's. ACCEPTS: from one listener
 * in one turn. PAUSE_NS: after the kernel had no descriptor left. */
enum { SPARE_DESCRIPTORS = 64, ACCEPTS = 64, PAUSE_NS = 100000000, SECOND_NS = 1000000000 };

struct source {
    int fd;
    void (*ready)(void *arg);
    void *arg;
};

struct door { /* a listener, as a source's argument */
    struct loop *loop;
    struct listener *listener;
};

struct loop {
    struct loop_config g;
    struct clock clock;
    struct conns *conns;
    struct listeners listeners;
    struct notify notify;
    struct door doors[LIMIT_LISTENERS];
    struct source sources[LIMIT_LOOP_SOURCES + LIMIT_LISTENERS];
    u32 n_sources;
    struct loop_calls calls;
    int epoll, signals, timer;
    u64 armed_ns; /* the timer fires then; UINT64_MAX: it is not armed */
    enum loop_state state;
    u64 drain_ns;    /* the drain ends then */
    u64 watchdog_ns; /* next message */
    u64 paused_ns;   /* until then nobody is accepted; 0: not paused */
    struct epoll_event events[LIMIT_LOOP_EVENTS];
};

/* --- the kernel's sockets -------------------------------------------------------------------- */

static ssize_t socket_read(void *arg, int fd, void *p, size_t n)
{
    (void)arg;
    ssize_t r = recv(fd, p, n, 0);
    return r < 0 ? -errno : r;
}

static ssize_t socket_write(void *arg, int fd, const struct iovec *v, int n)
{
    (void)arg;
    struct msghdr m = {.msg_iov = (struct iovec *)v, .msg_iovlen = n};
    ssize_t r = sendmsg(fd, &m, MSG_NOSIGNAL);
    return r < 0 ? -errno : r;
}

static void socket_end(void *arg, int fd)
{
    (void)arg;
    shutdown(fd, SHUT_WR);
}

static void socket_close(void *arg, int fd)
{
    (void)arg;
    close(fd); /* which also takes it out of epoll */
}

static bool socket_watch(void *arg, int fd, u64 id, u32 what, bool first)
{
    struct loop *l = arg;
    struct epoll_event e = {.data.u64 = id};
    e.events |= what & WIRE_IN ? EPOLLIN : 0u;
    e.events |= what & WIRE_OUT ? EPOLLOUT : 0u;
    e.events |= what & WIRE_GONE ? EPOLLRDHUP : 0u;
    return epoll_ctl(l->epoll, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e) == 0;
}

struct sockets loop_sockets(struct loop *l)
{
    return (struct sockets){socket_read, socket_write, socket_end, socket_close, socket_watch, l};
}

static void accept_some(void *arg);

/* --- sources --------------------------------------------------------------------------------- */

/* The low half of an event's number is 0 for a source, and a slot's for a connection. */
static bool add_source(struct loop *l, int fd, u32 edge, void (*ready)(void *arg), void *arg)
{
    struct epoll_event e = {.events = EPOLLIN | edge, .data.u64 = (u64)l->n_sources << 32};
    if (l->n_sources == COUNTOF(l->sources) || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) != 0)
        return false;
    l->sources[l->n_sources++] = (struct source){fd, ready, arg};
    return true;
}

bool loop_watch(struct loop *l, int fd, void (*ready)(void *arg), void *arg)
{
    return l->n_sources < LIMIT_LOOP_SOURCES && add_source(l, fd, EPOLLET, ready, arg);
}

/* ADD comes from add_source. DEL is needed although closing follows: a descriptor that the service
 * manager holds, too, would stay in epoll. */
static void listeners_ctl(struct loop *l, int op, u32 events)
{
    for (u32 i = 0; i < l->n_sources; i++)
        if (l->sources[i].ready == accept_some) {
            struct epoll_event e = {.events = events, .data.u64 = (u64)i << 32};
            epoll_ctl(l->epoll, op, l->sources[i].fd, &e);
        }
}

/* At most `most`, so that those who are connected are not kept waiting. */
static void accept_up_to(struct door *d, u32 most)
{
    struct loop *l = d->loop;
    char peer[LIMIT_PEER_BYTES];
    for (u32 i = 0; i < most; i++) {
        int fd = listen_accept(&l->listeners, d->listener, peer);
        if (fd >= 0) {
            conns_add(l->conns, fd, d->listener->tls, d->listener->loopback, peer);
            continue;
        }
        if (fd == -EAGAIN)
            return;
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
            log_event(LOG_ERROR, "accept", "text=\"the kernel has no descriptor or memory left\"");
            l->paused_ns = clock_now_ns(&l->clock) + PAUSE_NS;
            listeners_ctl(l, EPOLL_CTL_MOD, 0);
            return;
        } /* others are about that one peer */
    }
}

static void accept_some(void *arg)
{
    accept_up_to(arg, ACCEPTS);
}

/* --- signals --------------------------------------------------------------------------------- */

static void our_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

void loop_block_signals(void)
{
    sigset_t set;
    our_signals(&set);
    sigaddset(&set, SIGPIPE); /* nobody reads our log: no reason to die, */
    sigaddset(&set, SIGUSR1); /* nor is what others mean by these */
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* All that has been accepted by the kernel is ours to answer; then nobody new. */
static void drain(struct loop *l)
{
    notify_send(&l->notify, "STOPPING=1");
    for (u32 i = 0; i < l->listeners.n; i++)
        accept_up_to(&l->doors[i], UINT32_MAX);
    listeners_ctl(l, EPOLL_CTL_DEL, 0);
    listen_close(&l->listeners);
    l->state = LOOP_DRAIN;
    l->paused_ns = 0;
    l->drain_ns = clock_now_ns(&l->clock) + l->g.drain_ms * 1000000u;
    conns_drain(l->conns);
    if (l->calls.drain)
        l->calls.drain(l->calls.arg);
    log_event(LOG_INFO, "drain", "open=%llu limit_ms=%llu", /* who reads it finds no /ready */
              (unsigned long long)conns_counts(l->conns)->open, (unsigned long long)l->g.drain_ms);
}

static void do_reload(struct loop *l)
{
    char text[80];
    if (!l->calls.reload || l->state != LOOP_RUN)
        return;
    u64 usec = clock_now_ns(&l->clock) / 1000;
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)usec);
    notify_send(&l->notify, text);
    l->calls.reload(l->calls.arg);
    notify_send(&l->notify, "READY=1");
}

/* Whatever is open. */
static void end(struct loop *l, const char *why)
{
    log_event(LOG_WARN, "drain", "text=\"%s\" open=%llu", why,
              l->conns ? (unsigned long long)conns_counts(l->conns)->open : 0);
    l->state = LOOP_END;
}

static void read_signals(void *arg)
{
    struct loop *l = arg;
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP)
            do_reload(l);
        else if (l->state == LOOP_RUN && l->conns)
            drain(l);
        else
            end(l, "told to end at once");
    }
}

/* --- time ------------------------------------------------------------------------------------ */

static void timer_fired(void *arg)
{
    struct loop *l = arg;
    l->armed_ns = UINT64_MAX;
}

static void timer_arm(struct loop *l, u64 at_ns)
{
    struct timespec at = {(time_t)(at_ns / SECOND_NS), (long)(at_ns % SECOND_NS)};
    struct itimerspec once = {.it_value = at};
    ASSERT(timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &once, NULL) == 0);
    l->armed_ns = at_ns;
}

/* --- opening --------------------------------------------------------------------------------- */

static enum err check_descriptors(const struct loop_config *g, struct err_text *e)
{
    struct rlimit r;
    rlim_t need = g->connections + SPARE_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot ask for the limit of open files");
    if (r.rlim_cur >= need)
        return ERR_OK;
    r.rlim_cur = need;
    if (need > r.rlim_max || setrlimit(RLIMIT_NOFILE, &r) != 0)
        return err_set(e, ERR_SYSTEM,
                       "server.connections = %u needs %llu open files, and this process may have "
                       "%llu (ulimit -n, LimitNOFILE=)",
                       g->connections, (unsigned long long)need, (unsigned long long)r.rlim_max);
    return ERR_OK;
}

static enum err open_kernel(struct loop *l, struct err_text *e)
{
    sigset_t set;
    our_signals(&set);
    TRY(check_descriptors(&l->g, e));
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0)
        return err_set_errno(e, ERR_SYSTEM, "no epoll");
    l->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (l->signals < 0 || !add_source(l, l->signals, 0, read_signals, l))
        return err_set_errno(e, ERR_SYSTEM, "no signalfd");
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (l->timer < 0 || !add_source(l, l->timer, EPOLLET, timer_fired, l))
        return err_set_errno(e, ERR_SYSTEM, "no timerfd");
    return listen_open(&l->listeners, &l->g.listen, e);
}

enum err loop_open(struct arena *a, const struct loop_config *g, const struct clock *clock,
                   struct loop **out, struct err_text *e)
{
    struct loop *l = ARENA_NEW(a, struct loop, 1);
    if (!l)
        return arena_full(a, "the loop", e);
    loop_block_signals();
    *l = (struct loop){.g = *g, .clock = *clock, .epoll = -1, .signals = -1, .timer = -1};
    l->notify.fd = -1;
    l->watchdog_ns = l->armed_ns = UINT64_MAX;
    enum err r = open_kernel(l, e);
    if (r != ERR_OK)
        loop_close(l);
    *out = l;
    return r;
}

void loop_call(struct loop *l, const struct loop_calls *calls)
{
    l->calls = *calls;
}

enum err loop_claim(const struct loop *l, struct err_text *e)
{
    const struct loop_config *g = &l->g;
    cpu_set_t set;
    struct sched_param param = {.sched_priority = g->fifo};
    if (g->core >= 0) {
        CPU_ZERO(&set);
        if (g->core < CPU_SETSIZE)
            CPU_SET((size_t)g->core, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0)
            return err_set_errno(e, ERR_CONFIG, "server.core = %d", g->core);
    }
    /* What is there now, and what comes: ONFAULT leaves alone what is only reserved (the boot
     * arena) and what was let go (pages of the model's files that are packed). */
    if (g->lock && mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0)
        return err_set_errno(e, ERR_SYSTEM, "server.lock (ulimit -l, LimitMEMLOCK=)");
    /* by number, as musl's sched_setscheduler does nothing but fail */
    if (g->fifo && syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param) != 0)
        return err_set_errno(e, ERR_SYSTEM, "server.fifo = %d (CAP_SYS_NICE)", g->fifo);
    return ERR_OK;
}

enum err loop_start(struct loop *l, struct conns *c, struct err_text *e)
{
    l->conns = c;
    for (u32 i = 0; i < l->listeners.n; i++) {
        l->doors[i] = (struct door){l, &l->listeners.at[i]};
        if (!add_source(l, l->listeners.at[i].fd, 0, accept_some, &l->doors[i]))
            return err_set_errno(e, ERR_SYSTEM, "cannot watch a listener");
    }
    notify_open(&l->notify);
    /* what loop_keep said of the process before is over */
    notify_send(&l->notify, getenv(LISTEN_KEPT) ? "STATUS=\nREADY=1" : "READY=1");
    if (l->notify.watchdog_ns)
        l->watchdog_ns = clock_now_ns(&l->clock);
    return ERR_OK;
}

/* --- turning --------------------------------------------------------------------------------- */

/* The nearest of all times. */
static u64 next_ns(const struct loop *l, u64 until_ns)
{
    u64 next = MIN(MIN(until_ns, conns_next_ns(l->conns)), l->watchdog_ns);
    if (l->paused_ns)
        next = MIN(next, l->paused_ns);
    if (l->state == LOOP_DRAIN)
        next = conns_drained(l->conns) ? 0 : MIN(next, l->drain_ns);
    return next;
}

/* The timeout of epoll_wait: none, or for ever, as the timer ends it. Most deadlines are put off
 * again and again and never come (heartbeats, idle peers), so a timer that is too early stays:
 * waking once for nothing and arming it then costs less than arming it at every change. */
static int timeout(struct loop *l, u64 until_ns)
{
    if (l->g.spin)
        return 0;
    u64 next = next_ns(l, until_ns);
    if (next <= clock_now_ns(&l->clock))
        return 0;
    if (next < l->armed_ns)
        timer_arm(l, next);
    return -1;
}

static void dispatch(struct loop *l, const struct epoll_event *e)
{
    if ((u32)e->data.u64 == 0) {
        struct source *s = &l->sources[e->data.u64 >> 32];
        s->ready(s->arg);
        return;
    }
    bool over = e->events & (EPOLLHUP | EPOLLERR);
    u32 what = e->events & EPOLLIN || over ? WIRE_IN : 0;
    what |= e->events & EPOLLOUT || over ? WIRE_OUT : 0;
    what |= e->events & EPOLLRDHUP || over ? WIRE_GONE : 0;
    conns_ready(l->conns, e->data.u64, what);
}

static void keep_time(struct loop *l)
{
    u64 now = clock_now_ns(&l->clock);
    if (now >= l->watchdog_ns) {
        notify_send(&l->notify, "WATCHDOG=1");
        l->watchdog_ns = now + l->notify.watchdog_ns;
    }
    if (l->paused_ns && now >= l->paused_ns) {
        l->paused_ns = 0;
        listeners_ctl(l, EPOLL_CTL_MOD, EPOLLIN);
    }
    if (l->state == LOOP_DRAIN && conns_drained(l->conns))
        l->state = LOOP_END;
    else if (l->state == LOOP_DRAIN && now >= l->drain_ns)
        end(l, "server.drain_time is over");
}

enum loop_state loop_turn(struct loop *l, u64 until_ns)
{
    int n = epoll_wait(l->epoll, l->events, COUNTOF(l->events), timeout(l, until_ns));
    ASSERT(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++)
        dispatch(l, &l->events[i]);
    conns_turn(l->conns);
    keep_time(l);
    return l->state;
}

void loop_close(struct loop *l)
{
    listen_close(&l->listeners);
    notify_close(&l->notify);
    int *fds[] = {&l->signals, &l->timer, &l->epoll};
    for (u32 i = 0; i < COUNTOF(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void loop_keep(struct loop *l, char out[LISTEN_KEPT_BYTES])
{
    notify_send(&l->notify, "STATUS=the compute device has failed; starting again\nWATCHDOG=1");
    listen_keep(&l->listeners, out);
}
