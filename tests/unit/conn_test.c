/* The real conn, wire, http and ws code over peers that exist only here: a socket hands out as many
 * bytes as chance says, takes as few, fails at any call, and the clock is a number.
 */
#include "net/conn.h"
#include "tests/unit/unit.h"

#include <errno.h>

enum { PEERS = 12, SLOTS = 5, OUT_MAX = 1 << 16, FD = 100 };

struct peer {
    const char *in;
    size_t n_in, at;
    size_t n_out;
    char out[OUT_MAX];
    size_t room; /* takes so much more until its next turn; 0: no bound */
    u64 id;
    u32 watch;
    bool connected, closed_by_us, closes, deaf;
    bool app_open;
};

struct world {
    struct peer peers[PEERS];
    struct conns *conns;
    u64 now_ns, random, calls, fail_at; /* fail_at: the call of the sockets that fails; 0: none */
    bool whole;                         /* no short reads or writes */
    u64 requests, gone;
    conn_id waiting[PEERS * 8]; /* for a reply in a later turn */
    u32 n_waiting;
    bool wrong;
};

static u64 chance(struct world *w, u64 n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (w->random >> 33) % n;
}

static bool fails(struct world *w)
{
    return ++w->calls == w->fail_at;
}

static ssize_t fake_read(void *arg, int fd, void *p, size_t n)
{
    struct world *w = arg;
    struct peer *q = &w->peers[fd - FD];
    w->wrong |= !q->connected || q->closed_by_us;
    if (fails(w))
        return -ECONNRESET;
    n = MIN(n, q->n_in - q->at);
    n = w->whole || n == 0 ? n : chance(w, n + 1);
    if (n == 0)
        return q->at == q->n_in && q->closes ? 0 : -EAGAIN;
    memcpy(p, q->in + q->at, n);
    q->at += n;
    return (ssize_t)n;
}

static ssize_t fake_write(void *arg, int fd, const struct iovec *v, int n)
{
    struct world *w = arg;
    struct peer *q = &w->peers[fd - FD];
    size_t total = 0, done = 0;
    w->wrong |= !q->connected || q->closed_by_us;
    if (fails(w))
        return -EPIPE;
    for (int i = 0; i < n; i++)
        total += v[i].iov_len;
    size_t room = q->deaf ? 0 : MIN(total, OUT_MAX - q->n_out);
    room = q->room ? MIN(room, q->room - 1) : room;
    q->room -= q->room ? room : 0;
    room = w->whole || room == 0 ? room : chance(w, room + 1);
    for (int i = 0; i < n && done < room; i++) {
        size_t k = MIN(v[i].iov_len, room - done);
        if (k)
            memcpy(q->out + q->n_out + done, v[i].iov_base, k);
        done += k;
    }
    q->n_out += done;
    return done ? (ssize_t)done : -EAGAIN;
}

static void fake_end(void *arg, int fd)
{
    struct world *w = arg;
    w->peers[fd - FD].closes = true; /* a peer that sees the end closes, too */
}

static void fake_close(void *arg, int fd)
{
    struct world *w = arg;
    struct peer *q = &w->peers[fd - FD];
    w->wrong |= !q->connected || q->closed_by_us;
    q->closed_by_us = true;
}

static bool fake_watch(void *arg, int fd, u64 id, u32 what, bool first)
{
    struct world *w = arg;
    struct peer *q = &w->peers[fd - FD];
    w->wrong |= q->closed_by_us || (!first && q->id != id);
    if (fails(w))
        return false;
    q->id = id;
    q->watch = what;
    return true;
}

static u64 world_now(void *arg)
{
    return ((struct world *)arg)->now_ns;
}

static i64 world_wall(void *arg)
{
    return 1700000000 + (i64)(world_now(arg) / 1000000000);
}

/* --- the app: every request is counted open until it is answered or gone ---------------------- */

static struct peer *peer_of(struct world *w, conn_id id)
{
    for (u32 i = 0; i < PEERS; i++)
        if (w->peers[i].id == id)
            return &w->peers[i];
    w->wrong = true;
    return &w->peers[0];
}

static void answer(struct world *w, conn_id id)
{
    struct peer *q = peer_of(w, id);
    w->wrong |= !q->app_open;
    if (conn_reply(w->conns, id, 200, "text/plain", STR("ok\n"), NULL))
        q->app_open = false;
}

static const char wide_bytes[20000];
static const struct str wide_reply = {wide_bytes, sizeof wide_bytes};

static void app_request(void *arg, conn_id id, const struct http_request *r)
{
    struct world *w = arg;
    struct peer *q = peer_of(w, id);
    w->wrong |= q->app_open;
    q->app_open = true;
    w->requests++;
    if (str_is(r->path, "/later")) {
        w->waiting[w->n_waiting++] = id;
    } else if (str_is(r->path, "/stream")) {
        bool good = conn_begin(w->conns, id, 200, "text/plain", NULL);
        for (u32 i = 0; i < 5; i++)
            good = good && conn_write(w->conns, id, STR("piece of a stream\n"));
        if (good && conn_end(w->conns, id))
            q->app_open = false;
    } else if (str_is(r->path, "/ws")) {
        q->app_open = conn_ws_accept(w->conns, id, r) || w->fail_at;
    } else if (str_is(r->path, "/wide")) {
        w->wrong |= !conn_takes(w->conns, id, wide_reply);
        if (conn_reply(w->conns, id, 200, "text/plain", wide_reply, NULL))
            q->app_open = false;
    } else if (str_is(r->path, "/echo")) {
        if (conn_reply(w->conns, id, 200, "text/plain", r->body, NULL))
            q->app_open = false;
    } else {
        answer(w, id);
    }
}

static void app_text(void *arg, conn_id id, struct str message)
{
    struct world *w = arg;
    w->wrong |= !peer_of(w, id)->app_open;
    conn_ws_send(w->conns, id, message);
}

static void app_gone(void *arg, conn_id id)
{
    struct world *w = arg;
    struct peer *q = peer_of(w, id);
    w->wrong |= !q->app_open;
    q->app_open = false;
    w->gone++;
    for (u32 i = 0; i < w->n_waiting; i++)
        if (w->waiting[i] == id)
            w->waiting[i--] = w->waiting[--w->n_waiting];
}

/* --- running --------------------------------------------------------------------------------- */

static struct world *world_new(u64 seed, u32 slots)
{
    arena_reset(&unit_arena, 0);
    struct world *w = ARENA_NEW(&unit_arena, struct world, 1);
    struct conns_config g = {.connections = slots,
                             .bodies = 2,
                             .body_bytes = 40000,
                             .output_bytes = 4096,
                             .header_ms = 1000,
                             .body_ms = 1000,
                             .idle_ms = 1000,
                             .write_ms = 1000};
    struct sockets sockets = {fake_read, fake_write, fake_end, fake_close, fake_watch, w};
    struct clock clock = {world_now, world_wall, w};
    struct conn_events events = {NULL, app_request, app_text, app_gone, NULL};
    w->random = seed;
    w->conns = conns_open(&unit_arena, &g, &sockets, &clock, &events, w);
    ASSERT(w->conns);
    return w;
}

static void connect_peer(struct world *w, u32 i, struct str in)
{
    w->peers[i].in = in.p;
    w->peers[i].n_in = in.n;
    w->peers[i].connected = true;
    conns_add(w->conns, FD + (int)i, false, true, "127.0.0.1");
}

static void turn(struct world *w, u64 ns)
{
    w->now_ns += ns;
    for (u32 i = 0; i < PEERS; i++) {
        struct peer *q = &w->peers[i];
        if (!q->connected || q->closed_by_us || !q->id)
            continue;
        bool end = q->at == q->n_in && q->closes;
        u32 what = (q->at < q->n_in || end ? WIRE_IN : 0) | (q->deaf ? 0 : WIRE_OUT) |
                   (end ? WIRE_GONE : 0);
        if (what & q->watch)
            conns_ready(w->conns, q->id, what & q->watch);
    }
    while (w->n_waiting && chance(w, 2)) {
        conn_id id = w->waiting[--w->n_waiting];
        answer(w, id);
    }
    conns_turn(w->conns);
    conns_flush(w->conns);
}

/* Nobody is left after all times have passed, and everything is where it was. */
static bool at_rest(struct world *w)
{
    for (u32 i = 0; i < 40; i++)
        turn(w, 500000000);
    const struct conn_counts *n = conns_counts(w->conns);
    bool open = w->wrong || n->open || n->bodies_used || n->open_ws || w->n_waiting;
    for (u32 i = 0; i < PEERS; i++)
        open |= w->peers[i].app_open || (w->peers[i].connected && !w->peers[i].closed_by_us);
    return !open;
}

#define HEAD " HTTP/1.1\r\nHost: a\r\n"

static const char scripts[][400] = {
    "GET /" HEAD "\r\nGET /later" HEAD "\r\nGET /stream" HEAD "\r\nGET /" HEAD "\r\n",
    "POST /echo" HEAD "Content-Length: 5\r\n\r\nhelloGET /later" HEAD "\r\n",
    "POST /echo" HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /" HEAD "\r\n",
    "POST /echo" HEAD "Content-Length: 30000\r\n\r\nnever all of it",
    "POST /echo" HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET /ws" HEAD "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    "\x81\x82zzzz\x12\x13\x01\x81zzzz\x12\x89\x80zzzz\x80\x81zzzz\x13\x88\x82zzzz\x79\x92",
    "GET /stre",
    "",
};

static size_t script_bytes(u64 i)
{
    size_t n = sizeof scripts[0];
    while (n && !scripts[i][n - 1])
        n--;
    return n;
}

static void play(struct world *w)
{
    for (u32 i = 0; i < PEERS; i++) {
        u64 k = chance(w, COUNTOF(scripts));
        connect_peer(w, i, (struct str){scripts[k], script_bytes(k)});
        w->peers[i].closes = chance(w, 3) == 0;
        w->peers[i].deaf = chance(w, 6) == 0;
        for (u64 n = chance(w, 4); n; n--)
            turn(w, 1000000);
    }
}

void conn_random_peers(void)
{
    u64 requests = 0, evicted = 0;
    for (u64 seed = 1; seed <= 400; seed++) {
        struct world *w = world_new(seed, SLOTS);
        play(w);
        CHECK(at_rest(w));
        requests += w->requests;
        evicted += conns_counts(w->conns)->evicted;
    }
    CHECK(requests > 2000 && evicted > 400);
}

/* The Nth call of a socket fails, for every N of a run: nobody else notices, nothing stays. */
void conn_every_call_fails(void)
{
    for (u64 seed = 1; seed <= 4; seed++) {
        u64 calls = 1;
        for (u64 n = 0; n <= calls; n++) {
            struct world *w = world_new(seed, PEERS);
            w->fail_at = n;
            play(w);
            CHECK(at_rest(w));
            calls = n == 0 ? w->calls : calls;
        }
        CHECK(calls > 50);
    }
}

static u32 occurrences(const struct peer *q, const char *what)
{
    u32 n = 0;
    size_t k = strlen(what);
    for (size_t i = 0; i + k <= q->n_out; i++)
        n += memcmp(q->out + i, what, k) == 0;
    return n;
}

/* However the bytes come and go, each script gets the same bytes in answer. */
void conn_cuts_change_nothing(void)
{
    static char first[COUNTOF(scripts)][1024];
    static const u32 replies[COUNTOF(scripts)] = {4, 2, 2, 1, 1, 1, 0, 1, 0};
    for (u64 seed = 0; seed < 60; seed++)
        for (u32 k = 0; k < COUNTOF(scripts); k++) {
            struct world *w = world_new(seed, 1);
            w->whole = seed == 0;
            connect_peer(w, 0, (struct str){scripts[k], script_bytes(k)});
            for (u32 i = 0; i < 300; i++)
                turn(w, 30000000);
            CHECK(at_rest(w));
            struct peer *q = &w->peers[0];
            CHECK(occurrences(q, "\r\nDate: ") == replies[k] && q->n_out < sizeof first[k]);
            for (size_t i = 0; i + 8 < q->n_out; i++) /* the clock has gone on: not the date */
                if (memcmp(q->out + i, "\r\nDate: ", 8) == 0)
                    memset(q->out + i + 8, '-', 29);
            if (seed == 0)
                memcpy(first[k], q->out, q->n_out);
            CHECK(memcmp(first[k], q->out, q->n_out) == 0 && !first[k][q->n_out]);
        }
}

void conn_drain_ends(void)
{
    for (u64 seed = 1; seed <= 50; seed++) {
        struct world *w = world_new(seed, PEERS);
        for (u32 i = 0; i < PEERS; i++)
            connect_peer(w, i, (struct str){scripts[i % 3], script_bytes(i % 3)});
        for (u64 n = chance(w, 12); n; n--)
            turn(w, 1000);
        conns_drain(w->conns);
        for (u32 i = 0; i < 200 && !conns_drained(w->conns); i++)
            turn(w, 20000000);
        CHECK(conns_drained(w->conns) && at_rest(w));
        CHECK(w->gone == 0); /* every request that was begun is answered */
    }
}

/* A reader that keeps up is never dropped, though something always waits; one that takes less than
 * LIMIT_WRITE_STEP_BYTES in each write_ms is. */
void conn_steady_reader(void)
{
    static const char piece[1000] = {'x'};
    for (u32 rate = 1; rate <= 1000; rate += 999) {
        struct world *w = world_new(1, 1);
        struct peer *q = &w->peers[0];
        w->whole = true;
        connect_peer(w, 0, STR("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"));
        turn(w, 0);
        while (!w->requests)
            turn(w, 0);
        w->n_waiting = 0;
        q->app_open = true;
        q->room = 1;
        CHECK(conn_begin(w->conns, q->id, 200, NULL, NULL));
        CHECK(conn_write(w->conns, q->id, (struct str){piece, 1000}));
        u32 steps = 0;
        for (; steps < 50 && !q->closed_by_us; steps++) {
            q->room = rate + 1;
            turn(w, 100000000);
            q->n_out = 0;
            if (rate == 1000)
                CHECK(conn_write(w->conns, q->id, (struct str){piece, rate - 7}));
        }
        CHECK(rate == 1000 ? steps == 50 : steps < 15);
    }
}

/* A late answer to who has gone does not reach who has his slot now. */
void conn_handles_are_not_reused(void)
{
    struct world *w = world_new(1, 1);
    w->whole = true;
    for (u32 i = 0; i < 2; i++) {
        connect_peer(w, i, STR("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"));
        conns_ready(w->conns, w->peers[i].id, WIRE_IN);
        CHECK(w->requests == i + 1);
        if (i == 0)
            conns_ready(w->conns, w->peers[i].id, WIRE_GONE);
        conns_turn(w->conns);
    }
    conn_id old = w->peers[0].id, now = w->peers[1].id;
    CHECK(w->gone == 1 && old != now);
    CHECK(!conn_reply(w->conns, old, 200, NULL, STR("late"), NULL) && w->peers[1].n_out == 0);
    CHECK(conn_reply(w->conns, now, 200, NULL, STR("mine"), NULL));
}

/* Who is refused in the middle of his body, and takes no answer, holds no buffer meanwhile. */
void conn_refused_bodies_are_given_back(void)
{
    static const struct str in[] = {
        STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\nsome"),
        STR("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno!!"),
    };
    for (u32 i = 0; i < COUNTOF(in); i++) {
        struct world *w = world_new(1, 1);
        struct peer *q = &w->peers[0];
        w->whole = q->deaf = true;
        connect_peer(w, 0, in[i]);
        conns_ready(w->conns, q->id, WIRE_IN);
        CHECK(i == 1 || conns_counts(w->conns)->bodies_used == 1);
        turn(w, i == 1 ? 0 : 1100000000);
        CHECK(conns_counts(w->conns)->open == 1 && conns_counts(w->conns)->bodies_used == 0);
        q->deaf = false;
        turn(w, 0);
        CHECK(q->n_out && memcmp(q->out, i == 1 ? "HTTP/1.1 400" : "HTTP/1.1 408", 12) == 0);
    }
}

/* A request that is answered at once costs one read and one write; one that came with it behind
 * it, one write more. */
void conn_answers_cost_no_more_calls(void)
{
    static const struct {
        struct str in;
        u64 calls;
        u32 replies;
    } cases[] = {
        {STR("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 3, 1},
        {STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"), 3, 1},
        {STR("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 4, 2},
    };
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        struct world *w = world_new(1, 1);
        w->whole = true;
        connect_peer(w, 0, cases[i].in);
        turn(w, 0);
        turn(w, 0);
        CHECK(occurrences(&w->peers[0], "HTTP/1.1 200") == cases[i].replies);
        CHECK(w->calls == cases[i].calls); /* the first: to watch the socket */
    }
}

/* Pieces wait for the end of the turn and then go out by one call, but never because of that is a
 * reader dropped that takes all there is. */
void conn_pieces_go_together(void)
{
    static const char piece[1500] = {'x'};
    for (u32 pieces = 2; pieces <= 9; pieces += 7) { /* 9: more than the output buffer */
        struct world *w = world_new(1, 1);
        struct peer *q = &w->peers[0];
        w->whole = true;
        connect_peer(w, 0,
                     STR("GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /stream HTTP/1.1\r\nHost: a"
                         "\r\n\r\n"));
        while (!w->requests)
            turn(w, 0);
        w->n_waiting = 0;
        q->app_open = true;
        u64 calls = w->calls;
        CHECK(conn_begin(w->conns, q->id, 200, NULL, NULL));
        for (u32 i = 0; i < pieces; i++)
            CHECK(conn_write(w->conns, q->id, (struct str){piece, sizeof piece}));
        q->app_open = false;
        CHECK(conn_end(w->conns, q->id));
        CHECK(pieces > 2 || (q->n_out == 0 && w->calls == calls));
        conns_flush(w->conns);
        CHECK(pieces > 2 || w->calls == calls + 1);
        CHECK(q->n_out > pieces * sizeof piece &&
              memcmp(q->out + q->n_out - 5, "0\r\n\r\n", 5) == 0);
        turn(w, 0); /* and the request behind it has its turn */
        CHECK(w->requests == 2 && occurrences(q, "piece of a stream") == 5);
    }
}

/* A reply that a slow reader could not get all of: known before any of it is sent. The buffer of
 * the body that it answers is one for it. */
void conn_says_what_it_can_not_keep(void)
{
    static char in[30100] = "POST /wide HTTP/1.1\r\nHost: a\r\nContent-Length: 30000\r\n\r\n";
    struct world *w = world_new(1, PEERS);
    struct peer *q = w->peers;
    size_t head = strlen(in);
    w->whole = true;
    connect_peer(w, 0, (struct str){in, head + 30000});
    connect_peer(w, 1, (struct str){in, head + 100});
    connect_peer(w, 2, STR("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"));
    connect_peer(w, 3, STR("HEAD /later HTTP/1.1\r\nHost: a\r\n\r\n"));
    for (u32 i = 0; i < 4; i++) {
        q[i].deaf = true;
        for (u32 k = 0; k < 4; k++)
            conns_ready(w->conns, q[i].id, WIRE_IN);
    }
    CHECK(w->requests == 3 && !w->wrong && conns_counts(w->conns)->bodies_used == 2);
    w->n_waiting = 0; /* they are answered here */
    CHECK(!conn_takes(w->conns, q[2].id, wide_reply) && conn_takes(w->conns, q[2].id, STR("no")));
    CHECK(conn_takes(w->conns, q[3].id, wide_reply)); /* of which nothing is sent */
    q[0].deaf = false;
    for (u32 k = 0; k < 4; k++)
        turn(w, 0);
    CHECK(q[0].n_out > sizeof wide_bytes && conns_counts(w->conns)->bodies_used == 1);
    CHECK(conn_takes(w->conns, q[2].id, wide_reply) && conns_counts(w->conns)->bodies_used == 2);
    q[2].app_open = q[3].app_open = false;
    CHECK(conn_reply(w->conns, q[2].id, 200, NULL, wide_reply, NULL) && q[2].n_out == 0);
    CHECK(conn_reply(w->conns, q[3].id, 200, NULL, wide_reply, NULL));
    q[2].deaf = false;
    turn(w, 0);
    CHECK(q[2].n_out > sizeof wide_bytes && at_rest(w));
}
