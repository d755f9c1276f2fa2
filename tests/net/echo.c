/* A small server on net/: what the end-to-end tests of the transport talk to. Its app holds no
 * engine and decides nothing, so that what is seen is the transport.
 *
 *   GET /health            "ok"            GET /counts   counters as JSON
 *   POST /echo             the body        GET /after?N  "late" after N ms
 *   GET /stream?N          N pieces        GET /big?N    N bytes at once
 *   GET /flood             without end     GET /ws       WebSocket: echoes text
 *
 *   echo KEY=VALUE...      see tests/net/echo.def
 */
#include "core/base/log.h"
#include "net/loop.h"
#include "net/tls.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORK_MAX = 1024 };

struct work {
    conn_id id;
    enum { STREAM, FLOOD, AFTER } kind;
    u64 left, at_ns;
};

struct echo {
    struct conns *conns;
    struct loop *loop;
    struct tls *tls;
    struct clock clock;
    struct work work[WORK_MAX];
    u32 n_work;
    u64 gone, reloads;
    char *big;
};

enum { BIG_BYTES = 4 << 20 };

static struct {
#define NUMBER(name, value) u64 name;
#define TEXT(name, value) const char *name;
#include "tests/net/echo.def"
#undef NUMBER
#undef TEXT
} settings = {
#define NUMBER(name, value) .name = value,
#define TEXT(name, value) .name = value,
#include "tests/net/echo.def"
#undef NUMBER
#undef TEXT
};

static bool set(const char *arg)
{
    const char *value = strchr(arg, '=');
    struct str name = {arg, value ? (size_t)(value - arg) : 0};
    if (!value++)
        return false;
#define NUMBER(key, v)      \
    if (str_is(name, #key)) \
        return settings.key = strtoull(value, NULL, 0), true;
#define TEXT(key, v)        \
    if (str_is(name, #key)) \
        return settings.key = value, true;
#include "tests/net/echo.def"
#undef NUMBER
#undef TEXT
    return false;
}

/* --- the app --------------------------------------------------------------------------------- */

static int admit(void *app, conn_id id, const struct http_request *r)
{
    struct echo *a = app;
    if (str_is(r->path, "/echo") && r->method != HTTP_POST) {
        conn_reply(a->conns, id, 405, "text/plain", STR("only POST\n"), "Allow: POST\r\n");
        return CONN_ANSWERED;
    }
    return str_is(r->path, "/forbidden") ? 403 : 0;
}

static u64 number_of(struct str s)
{
    u64 n = 0;
    for (size_t i = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        n = n * 10 + (u64)(s.p[i] - '0');
    return n;
}

static void counts(struct echo *a, conn_id id)
{
    char text[1024];
    const struct conn_counts *c = conns_counts(a->conns);
    const struct {
        const char *name;
        u64 n;
    } rows[] = {
#define COUNT(name) {#name, c->name}
        COUNT(open),           COUNT(open_ws),          COUNT(bodies_used),
        COUNT(accepted),       COUNT(evicted),          COUNT(refused),
        COUNT(requests),       COUNT(bad_requests),     COUNT(gone),
        COUNT(dropped_slow),   COUNT(timeout_header),   COUNT(timeout_body),
        COUNT(timeout_idle),   COUNT(timeout_write),    COUNT(tls_handshakes),
        COUNT(tls_resumed),    COUNT(tls_failures),     COUNT(bytes_in),
        COUNT(bytes_out),      COUNT(ws_messages_in),   COUNT(ws_messages_out),
        {"app_gone", a->gone}, {"reloads", a->reloads},
#undef COUNT
    };
    int n = 0;
    for (size_t i = 0; i < COUNTOF(rows); i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%c\"%s\":%llu", i ? ',' : '{',
                      rows[i].name, (unsigned long long)rows[i].n);
    text[n++] = '}';
    conn_reply(a->conns, id, 200, "application/json", (struct str){text, (size_t)n}, NULL);
}

static void later(struct echo *a, struct work w)
{
    if (a->n_work == WORK_MAX)
        conn_reply(a->conns, w.id, 503, "text/plain", STR("too much work\n"), NULL);
    else
        a->work[a->n_work++] = w;
}

static void request(void *app, conn_id id, const struct http_request *r)
{
    struct echo *a = app;
    u64 n = number_of(r->query);
    const char *type = "text/plain";
    if (str_is(r->path, "/health"))
        conn_reply(a->conns, id, 200, type, STR("ok\n"), NULL);
    else if (str_is(r->path, "/echo"))
        conn_reply(a->conns, id, 200, "application/octet-stream", r->body, "X-Echo: yes\r\n");
    else if (str_is(r->path, "/counts"))
        counts(a, id);
    else if (str_is(r->path, "/big"))
        conn_reply(a->conns, id, 200, type, (struct str){a->big, MIN(n, (u64)BIG_BYTES)}, NULL);
    else if (str_is(r->path, "/after"))
        later(a, (struct work){id, AFTER, 0, clock_now_ns(&a->clock) + n * 1000000u});
    else if (str_is(r->path, "/ws"))
        conn_ws_accept(a->conns, id, r);
    else if (str_is(r->path, "/stream") || str_is(r->path, "/flood")) {
        if (conn_begin(a->conns, id, 200, "text/event-stream", NULL))
            later(a, (struct work){id, r->path.p[1] == 's' ? STREAM : FLOOD, n, 0});
    } else
        conn_reply(a->conns, id, 404, type, STR("nothing here\n"), NULL);
}

static void ws_text(void *app, conn_id id, struct str message)
{
    struct echo *a = app;
    if (str_is(message, "close"))
        conn_ws_close(a->conns, id, 1000, STR("as you said"));
    else
        conn_ws_send(a->conns, id, message);
}

static void gone(void *app, conn_id id)
{
    struct echo *a = app;
    a->gone++;
    for (u32 i = 0; i < a->n_work; i++)
        if (a->work[i].id == id)
            a->work[i--] = a->work[--a->n_work];
}

/* One piece of one work; false when it is over. */
static bool step(struct echo *a, struct work *w, u64 now)
{
    char text[64];
    switch (w->kind) {
    case AFTER:
        if (now < w->at_ns)
            return true;
        conn_reply(a->conns, w->id, 200, "text/plain", STR("late\n"), NULL);
        return false;
    case FLOOD:
        return conn_write(a->conns, w->id, (struct str){a->big, 4096});
    default:
        if (w->left == 0) {
            conn_end(a->conns, w->id);
            return false;
        }
        int n = snprintf(text, sizeof text, "data: %llu\n\n", (unsigned long long)w->left--);
        return conn_write(a->conns, w->id, (struct str){text, (size_t)n});
    }
}

/* Does what is due; answers when to come back. */
static u64 pump(struct echo *a)
{
    u64 until = UINT64_MAX, now = clock_now_ns(&a->clock);
    for (u32 i = 0; i < a->n_work;) {
        if (!step(a, &a->work[i], now)) {
            a->work[i] = a->work[--a->n_work];
            continue;
        }
        until = MIN(until, a->work[i].at_ns);
        i++;
    }
    conns_flush(a->conns);
    return until;
}

static void reload(void *arg)
{
    struct echo *a = arg;
    struct err_text e = {0};
    if (a->tls && tls_reload(a->tls, &e) != ERR_OK)
        fprintf(stderr, "echo: reload: %s\n", e.text);
    else
        a->reloads++;
}

/* --- assembly -------------------------------------------------------------------------------- */

static const struct conn_events events = {admit, request, ws_text, gone, NULL};

static enum err boot(struct echo *a, struct arena *arena, struct err_text *e)
{
    struct loop_config g = {.connections = (u32)settings.connections,
                            .core = (int)settings.core,
                            .spin = settings.spin,
                            .fifo = (int)settings.fifo,
                            .lock = settings.lock,
                            .drain_ms = settings.drain_ms};
    g.listen = (struct listen_config){.list = settings.listen,
                                      .tls = *settings.certificate,
                                      .keys = settings.keys,
                                      .without_tls = settings.expose,
                                      .without_keys = settings.expose,
                                      .unix_mode = (u32)settings.unix_mode,
                                      .unix_uids = settings.unix_uids};
    struct tls_config t = {settings.certificate, settings.key, settings.client_ca};
    a->clock = clock_system();
    TRY(arena_open(arena, "echo", 1 * GIB, false, e));
    if (g.listen.tls)
        TRY(tls_open(arena, &t, &a->clock, &a->tls, e));
    TRY(loop_open(arena, &g, &a->clock, &a->loop, e));
    struct conns_config c = {.connections = (u32)settings.connections,
                             .bodies = (u32)settings.bodies,
                             .body_bytes = settings.body_max,
                             .output_bytes = settings.output,
                             .header_ms = settings.header_ms,
                             .body_ms = settings.body_ms,
                             .idle_ms = settings.idle_ms,
                             .write_ms = settings.write_ms,
                             .tls = a->tls};
    struct sockets sockets = loop_sockets(a->loop);
    a->conns = conns_open(arena, &c, &sockets, &a->clock, &events, a);
    a->big = arena_alloc(arena, BIG_BYTES, 64);
    if (!a->conns || !a->big)
        return arena_full(arena, "echo", e);
    memset(a->big, 'b', BIG_BYTES);
    loop_call(a->loop, &(struct loop_calls){.reload = reload, .arg = a});
    memory_seal();
    TRY(loop_claim(a->loop, e));
    return loop_start(a->loop, a->conns, e);
}

int main(int argc, char **argv)
{
    static struct echo a;
    struct arena arena;
    struct err_text e = {0};
    log_configure(LOG_INFO, LOG_TEXT, 0);
    for (int i = 1; i < argc; i++)
        if (!set(argv[i])) {
            fprintf(stderr, "echo: what is '%s'?\n", argv[i]);
            return EXIT_USAGE;
        }
    enum err r = boot(&a, &arena, &e);
    if (r != ERR_OK) {
        fprintf(stderr, "echo: %s\n", e.text);
        return err_exit_class(r);
    }
    fprintf(stderr, "echo: ready\n");
    while (loop_turn(a.loop, pump(&a)) != LOOP_END) {
    }
    loop_close(a.loop);
    fprintf(stderr, "echo: bye\n");
    return 0;
}
