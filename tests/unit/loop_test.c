/* The loop over the kernel's own epoll and timer: when it comes back, and that it does not come
 * back before it has to.
 */
#include "net/loop.h"
#include "tests/unit/unit.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* LATE_NS: on a busy machine a turn can be late by any time, but the best of TRIES is not. */
enum { TRIES = 200, LATE_NS = 200000, MS = 1000000, NEVER_MS = 600000 };

struct rig {
    struct clock clock;
    struct conns *conns;
    struct loop *loop;
    sigset_t before;
    u64 requests;
};

static void count_request(void *app, conn_id id, const struct http_request *r)
{
    struct rig *rig = app;
    (void)id;
    (void)r;
    rig->requests++;
}

static void no_gone(void *app, conn_id id)
{
    (void)app;
    (void)id;
}

static bool rig_open(struct rig *rig, bool spin, u64 header_ms)
{
    static const struct conn_events events = {.request = count_request, .gone = no_gone};
    struct err_text e = {0};
    struct loop_config g = {.listen = {.list = "127.0.0.1:0", .unix_uids = ""},
                            .connections = 4,
                            .core = -1,
                            .spin = spin};
    struct conns_config c = {.connections = 4,
                             .bodies = 1,
                             .body_bytes = 1024,
                             .output_bytes = 4096,
                             .header_ms = header_ms,
                             .body_ms = NEVER_MS,
                             .idle_ms = NEVER_MS,
                             .write_ms = NEVER_MS};
    *rig = (struct rig){.clock = clock_system()};
    sigprocmask(SIG_SETMASK, NULL, &rig->before);
    if (loop_open(&unit_arena, &g, &rig->clock, &rig->loop, &e) != ERR_OK)
        return false;
    struct sockets sockets = loop_sockets(rig->loop);
    rig->conns = conns_open(&unit_arena, &c, &sockets, &rig->clock, &events, rig);
    return rig->conns && loop_start(rig->loop, rig->conns, &e) == ERR_OK;
}

static void rig_close(struct rig *rig)
{
    loop_close(rig->loop);
    sigprocmask(SIG_SETMASK, &rig->before, NULL);
}

static u64 now_ns(const struct rig *rig)
{
    return clock_now_ns(&rig->clock);
}

/* Turns until then; how many turns that took. */
static u32 turns_until(struct rig *rig, u64 until_ns)
{
    u32 turns = 0;
    for (; now_ns(rig) < until_ns; turns++)
        loop_turn(rig->loop, until_ns);
    return turns;
}

/* Deadlines that are no whole milliseconds away. */
void loop_is_on_time(void)
{
    struct rig rig;
    u64 best = UINT64_MAX;
    u32 turns = 0;
    CHECK(rig_open(&rig, false, NEVER_MS));
    for (u32 i = 0; i < TRIES; i++) {
        u64 until = now_ns(&rig) + MS + (1 + i % 9) * (MS / 20);
        turns += turns_until(&rig, until);
        best = MIN(best, now_ns(&rig) - until);
    }
    CHECK(best < LATE_NS);
    CHECK(turns < TRIES + TRIES / 10); /* it slept all the time, but for a debugger's signals */
    rig_close(&rig);
}

static void note(void *arg)
{
    *(u32 *)arg += 1;
}

/* A deadline that comes nearer moves the timer, one that is put off costs one turn too many. */
void loop_deadlines_change(void)
{
    static const u64 one = 1;
    struct rig rig;
    u32 noted = 0;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(event >= 0 && rig_open(&rig, false, NEVER_MS));
    CHECK(loop_watch(rig.loop, event, note, &noted));
    u64 begin = now_ns(&rig), minute = 60000ull * MS;
    for (u32 i = 0; i < 20; i++) {
        CHECK(write(event, &one, sizeof one) == sizeof one);
        loop_turn(rig.loop, begin + minute); /* armed for then, ended by the event */
        CHECK(noted == i + 1);
        turns_until(&rig, now_ns(&rig) + MS);
    }
    CHECK(now_ns(&rig) - begin < minute);
    CHECK(write(event, &one, sizeof one) == sizeof one);
    loop_turn(rig.loop, now_ns(&rig) + 10 * MS);
    u32 turns = turns_until(&rig, now_ns(&rig) + 40 * MS);
    CHECK(turns >= 1 && turns <= 3 && noted == 21);
    close(event);
    rig_close(&rig);
}

/* The connections' own deadlines end the longest wait. */
void loop_ends_silent_peers(void)
{
    struct rig rig;
    int pair[2];
    char byte;
    CHECK(rig_open(&rig, false, 5));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    u64 begin = now_ns(&rig);
    CHECK(conns_add(rig.conns, pair[0], false, true, "127.0.0.1"));
    while (conns_counts(rig.conns)->open)
        loop_turn(rig.loop, UINT64_MAX);
    CHECK(now_ns(&rig) - begin >= 5 * MS);
    CHECK(conns_counts(rig.conns)->timeout_header == 1 && read(pair[1], &byte, 1) == 0);
    close(pair[1]);
    rig_close(&rig);
}

void loop_spins(void)
{
    struct rig rig;
    CHECK(rig_open(&rig, true, NEVER_MS));
    for (u32 i = 0; i < 1000; i++)
        CHECK(loop_turn(rig.loop, UINT64_MAX) == LOOP_RUN);
    rig_close(&rig);
}
