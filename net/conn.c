#include "net/conn.h"

#include "core/base/log.h"
#include "net/slot.h"
#include "net/tls.h"

#include <stdio.h>

/* Reads of one connection in one turn: others wait meanwhile. */
enum { READS = 4, ALIGN = 64 };

/* --- memory ---------------------------------------------------------------------------------- */

static size_t slot_bytes(const struct conns_config *g)
{
    size_t peer = g->tls ? ROUND_UP(tls_peer_bytes(), (size_t)ALIGN) : 0;
    return sizeof(struct slot) + 4 * sizeof(u32) + INPUT_BYTES + peer +
           ROUND_UP(g->output_bytes, (size_t)ALIGN);
}

size_t conns_bytes(const struct conns_config *g)
{
    size_t body = ROUND_UP(g->body_bytes, (size_t)ALIGN) + sizeof(char *);
    return sizeof(struct conns) + g->connections * slot_bytes(g) + g->bodies * body + 8 * ALIGN;
}

static void slots_open(struct conns *c, struct arena *a)
{
    const struct conns_config *g = &c->g;
    for (u32 i = 0; i < g->connections; i++) {
        struct slot *s = &c->slots[i];
        s->in = arena_alloc(a, INPUT_BYTES, ALIGN);
        s->out = arena_alloc(a, ROUND_UP(g->output_bytes, (size_t)ALIGN), ALIGN);
        s->peer = g->tls ? arena_alloc(a, ROUND_UP(tls_peer_bytes(), (size_t)ALIGN), ALIGN) : NULL;
        c->free[c->n_free++] = g->connections - 1 - i;
    }
    for (u32 i = 0; i < g->bodies; i++)
        c->bodies[c->n_bodies++] = arena_alloc(a, ROUND_UP(g->body_bytes, (size_t)ALIGN), ALIGN);
}

struct conns *conns_open(struct arena *a, const struct conns_config *g,
                         const struct sockets *sockets, const struct clock *clock,
                         const struct conn_events *events, void *app)
{
    ASSERT(g->connections && g->connections <= LIMIT_CONNECTIONS && g->bodies && g->body_bytes);
    if (a->cap_bytes - a->used_bytes < conns_bytes(g))
        return NULL;
    struct conns *c = arena_alloc(a, sizeof *c, ALIGN);
    *c = (struct conns){.g = *g, .sockets = *sockets, .clock = *clock, .events = *events};
    c->app = app;
    c->flights = LIMIT_TLS_FLIGHTS_PER_TURN;
    c->next_ns = UINT64_MAX;
    c->date_of_s = INT64_MIN;
    c->slots = arena_alloc(a, g->connections * sizeof *c->slots, ALIGN);
    c->free = ARENA_NEW(a, u32, g->connections);
    c->todo = ARENA_NEW(a, u32, 2 * g->connections); /* one turn's and the next one's */
    c->held = ARENA_NEW(a, u32, g->connections);
    c->bodies = ARENA_NEW(a, char *, g->bodies);
    slots_open(c, a);
    return c;
}

bool slot_may_say(struct conns *c, enum said kind)
{
    u64 now = clock_now_ns(&c->clock);
    if (now < c->said_ns[kind])
        return false;
    c->said_ns[kind] = now + 1000000000u;
    return true;
}

char *slot_body_take(struct conns *c)
{
    if (!c->n_bodies) {
        if (slot_may_say(c, SAID_BODIES))
            log_event(LOG_WARN, "refused", "text=\"all server.bodies = %u are in use; raise it\"",
                      c->g.bodies);
        return NULL;
    }
    c->counts.bodies_used++;
    return c->bodies[--c->n_bodies];
}

void slot_body_give(struct conns *c, char **body)
{
    if (!*body)
        return;
    c->bodies[c->n_bodies++] = *body;
    *body = NULL;
    c->counts.bodies_used--;
}

/* --- slots ----------------------------------------------------------------------------------- */

struct slot *slot_find(struct conns *c, conn_id id)
{
    u32 at = (u32)id - 1;
    if ((u32)id == 0 || at >= c->g.connections)
        return NULL;
    struct slot *s = &c->slots[at];
    bool live = s->phase != SLOT_FREE && s->phase != SLOT_DEAD;
    return live && s->generation == id >> 32 ? s : NULL;
}

bool conn_was_slow(const struct conns *c, conn_id id)
{
    u32 at = (u32)id - 1;
    return at < c->g.connections && c->slots[at].generation == id >> 32 && c->slots[at].slow;
}

void slot_later(struct conns *c, struct slot *s)
{
    if (s->todo)
        return;
    s->todo = true;
    c->todo[c->n_todo++] = (u32)(s - c->slots);
}

static u64 from_now(const struct conns *c, u64 ms)
{
    return clock_now_ns(&c->clock) + ms * 1000000u;
}

void slot_limit(struct conns *c, struct slot *s, u64 ms)
{
    s->until_ns = from_now(c, ms);
    c->next_ns = MIN(c->next_ns, s->until_ns);
}

static void free_slot(struct conns *c, struct slot *s)
{
    s->phase = SLOT_FREE;
    c->free[c->n_free++] = (u32)(s - c->slots);
    c->counts.open--;
}

/* The pool's buffer goes back once what waited in it is written. */
static void own_output(struct conns *c, struct slot *s)
{
    if (s->w.out == s->out)
        return;
    char *borrowed = (char *)s->w.out;
    slot_body_give(c, &borrowed);
    s->w.out = s->out;
    s->w.at = 0;
    s->w.cap = c->g.output_bytes;
}

static void count_bytes(struct conns *c, struct slot *s)
{
    c->counts.bytes_in += s->w.bytes_in;
    c->counts.bytes_out += s->w.bytes_out;
    s->w.bytes_in = s->w.bytes_out = 0;
}

void slot_lose(struct conns *c, struct slot *s)
{
    ASSERT(s->phase != SLOT_FREE && s->phase != SLOT_DEAD);
    count_bytes(c, s);
    c->counts.tls_failures += s->w.tls && !s->tls_open && tls_state(s->w.tls) == TLS_FAILED;
    c->counts.open_ws -= s->phase == SLOT_WS || s->phase == SLOT_WS_CLOSING;
    if (s->tls_open) /* says goodbye, where the socket takes it (RFC 9112 section 9.8) */
        wire_end(&s->w, &c->sockets);
    c->sockets.close(c->sockets.arg, s->w.fd);
    if (s->w.tls)
        tls_peer_end(s->w.tls);
    slot_body_give(c, &s->body);
    s->w.n = 0;
    own_output(c, s);
    if (s->app_open) {
        s->phase = SLOT_DEAD;
        slot_later(c, s);
    } else {
        free_slot(c, s);
    }
}

static bool handshaking(const struct slot *s)
{
    return s->w.tls && !s->tls_open;
}

/* The next request is waited for, but the peer has yet to take what it was answered. */
static bool taking(const struct slot *s)
{
    return s->phase == SLOT_HEAD && !handshaking(s) && wire_waiting(&s->w);
}

/* Between two requests, with nothing of either under way. */
static bool idle(const struct slot *s)
{
    return s->phase == SLOT_HEAD && s->served && s->in_n == s->in_at && !wire_waiting(&s->w) &&
           !wire_holds(&s->w) && !wire_arriving(&s->w);
}

/* Whether bytes of the peer are read now. */
static bool wants_input(const struct slot *s)
{
    switch (s->phase) {
    case SLOT_HEAD: /* a peer that does not take its answers is asked for no more requests */
        return !taking(s);
    case SLOT_BODY:
    case SLOT_LINGER:
        return true;
    case SLOT_APP: /* to see that the peer has gone */
        return s->in_n < INPUT_BYTES;
    case SLOT_WS:
    case SLOT_WS_CLOSING: /* there has to be room for a pong and a close */
        return wire_room(&s->w) > 2 * (WS_CONTROL_MAX + WS_HEAD_MAX);
    default:
        return false;
    }
}

static void watch(struct conns *c, struct slot *s)
{
    bool out = wire_waiting(&s->w), stuck = out && handshaking(s);
    u32 what = (wants_input(s) && !stuck ? WIRE_IN : 0) | (out ? WIRE_OUT : 0);
    /* Between requests as in them: no system call for each. Who has gone while his answers wait
     * gets them first. */
    if (s->phase == SLOT_BODY || s->phase == SLOT_APP || s->phase == SLOT_WS ||
        (s->phase == SLOT_HEAD && (what & WIRE_IN)))
        what |= WIRE_GONE;
    if (what == s->watching)
        return;
    s->watching = what;
    if (!c->sockets.watch(c->sockets.arg, s->w.fd, slot_id(c, s), what, false))
        slot_lose(c, s);
}

/* A peer has to take LIMIT_WRITE_STEP_BYTES, or all that waits, in each write_ms. */
static void limit_writing(struct conns *c, struct slot *s, u64 written)
{
    if (!wire_waiting(&s->w)) {
        s->write_until_ns = UINT64_MAX;
        own_output(c, s);
        return;
    }
    if (s->write_until_ns != UINT64_MAX && written < s->write_left) {
        s->write_left -= written;
        return;
    }
    s->write_left = MAX(MIN(s->w.n, (size_t)LIMIT_WRITE_STEP_BYTES), (size_t)1);
    s->write_until_ns = from_now(c, c->g.write_ms);
    c->next_ns = MIN(c->next_ns, s->write_until_ns);
}

static void slot_end(struct conns *c, struct slot *s)
{
    wire_end(&s->w, &c->sockets);
    if (s->w.ended || s->w.failed) {
        slot_lose(c, s);
        return;
    }
    s->phase = SLOT_LINGER;
    s->in_at = s->in_n = 0;
    slot_limit(c, s, LIMIT_LINGER_MS);
}

void slot_settle(struct conns *c, struct slot *s)
{
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD || s->held)
        return; /* conns_flush comes back to it */
    u64 written = s->w.bytes_out;
    count_bytes(c, s);
    if (s->phase == SLOT_FLUSH && !wire_waiting(&s->w))
        slot_end(c, s);
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
        return;
    limit_writing(c, s, written);
    watch(c, s);
}

/* --- requests -------------------------------------------------------------------------------- */

/* What its bytes do not say: from here on it can be answered. */
static void identify(struct conns *c, struct slot *s, u64 read_ns)
{
    struct http_request *r = &s->http.r;
    r->request_number = ++c->number;
    r->read_ns = read_ns;
    r->peer = s->peer_text;
}

/* Forgets the request's bytes; what is behind them is the next one's. */
static void request_done(struct conns *c, struct slot *s, size_t bytes)
{
    slot_body_give(c, &s->body);
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD || s->phase == SLOT_LINGER)
        return;
    s->in_at += (u32)bytes;
    ASSERT(s->in_at <= s->in_n);
    if (s->in_at == s->in_n)
        s->in_at = s->in_n = 0;
    http_begin(&s->http);
}

static void deliver(struct conns *c, struct slot *s, struct str body, size_t bytes)
{
    struct http_request *r = &s->http.r;
    r->body = body;
    r->loopback = s->loopback;
    r->read_ns = c->serve_ns;
    c->counts.requests++;
    s->phase = SLOT_APP;
    s->until_ns = UINT64_MAX;
    s->app_open = true;
    c->events.request(c->app, slot_id(c, s), r);
    request_done(c, s, bytes);
}

/* True when the head (and the body if it is there) lies at the front of the input. */
static bool to_front(struct slot *s)
{
    if (s->in_at == 0)
        return false;
    memmove(s->in, s->in + s->in_at, s->in_n - s->in_at);
    s->in_n -= s->in_at;
    s->in_at = 0;
    http_begin(&s->http);
    return true;
}

/* Who sends a body that nobody will read needs no key: he gets no buffer that others wait for. */
static const char only_post[] = "only the body of a POST may be so long";

/* Where a body goes: into the input behind its head, or a buffer of the pool. */
static void body_begin(struct conns *c, struct slot *s)
{
    struct http_parser *p = &s->http;
    s->phase = SLOT_BODY;
    slot_limit(c, s, c->g.body_ms);
    s->decoder = (struct http_chunked){0};
    s->body_n = 0;
    if (p->has_length && p->length_bytes > c->g.body_bytes) {
        slot_refuse(c, s, 413, "the body is longer than server.body_max");
        return;
    }
    bool fits = !p->chunked && p->at + p->length_bytes <= INPUT_BYTES;
    if (!fits && p->r.method != HTTP_POST && !p->chunked) {
        slot_refuse(c, s, 413, only_post);
        return;
    }
    if (!fits && p->r.method == HTTP_POST) {
        s->body = slot_body_take(c);
        if (!s->body) {
            slot_refuse(c, s, 503, "all body buffers are in use (server.bodies); try again");
            return;
        }
    }
    if (s->body && p->has_length) {
        s->body_n = s->in_n - p->at;
        memcpy(s->body, s->in + p->at, s->body_n);
        s->in_n = (u32)p->at;
    }
    struct iovec v = {(char *)"HTTP/1.1 100 Continue\r\n\r\n", 25};
    if (p->expect_continue && s->in_n == p->at && !s->body_n)
        slot_write(c, s, &v, 1);
}

/* A POST that does not say whether a body follows (RFC 9110 section 15.5.12). */
static bool says_no_length(const struct http_parser *p)
{
    return p->r.method == HTTP_POST && !p->chunked && !p->has_length;
}

static bool admitted(struct conns *c, struct slot *s)
{
    struct http_parser *p = &s->http;
    bool body = p->chunked || p->length_bytes || says_no_length(p);
    s->phase = SLOT_APP;
    s->answered = s->chunked = false;
    s->bodyless = p->r.method == HTTP_HEAD;
    s->http10 = p->http10;
    s->keep_alive = p->keep_alive;
    s->close_after = !p->keep_alive || c->draining;
    p->r.loopback = s->loopback;
    bool close_after = s->close_after;
    s->close_after |= body; /* answered in here, a body is not read: no next head behind it */
    if (str_is(p->r.path, "*")) {
        conn_reply(c, slot_id(c, s), 204, NULL, (struct str){0},
                   "Allow: GET, HEAD, POST, OPTIONS\r\n");
        return false;
    }
    int status = c->events.admit ? c->events.admit(c->app, slot_id(c, s), &p->r) : 0;
    if (status > 0 && s->phase == SLOT_APP)
        slot_error(c, s, status, http_status_text(status), "");
    if (status != 0)
        return false;
    ASSERT(s->phase == SLOT_APP && !s->answered);
    s->close_after = close_after;
    return true;
}

/* A TLS handshake where there is no TLS: its client can not read why, so the log says it. */
static bool is_hello(struct conns *c, const struct slot *s)
{
    const char *p = s->in + s->in_at;
    if (s->w.tls || s->http.started || s->in_n - s->in_at < 2 || p[0] != 0x16 || p[1] != 0x03)
        return false;
    if (slot_may_say(c, SAID_TLS))
        log_event(LOG_WARN, "refused",
                  "text=\"a TLS handshake came to a port without TLS; call it by http://, or %s\" "
                  "peer=%s",
                  c->g.tls ? "by an address of server.listen without plain: or unix:"
                           : "set tls.certificate and tls.key",
                  s->peer_text);
    return true;
}

/* True when something was done, and more may be. */
static bool on_head(struct conns *c, struct slot *s)
{
    struct http_parser *p = &s->http;
    if (s->in_n == s->in_at || wire_waiting(&s->w))
        return false;
    bool first = p->at == 0 && p->scanned == 0; /* bytes of this request */
    int r = http_parse(p, s->in + s->in_at, s->in_n - s->in_at);
    bool whole = r == HTTP_DONE && !p->chunked && s->in_n - s->in_at - p->at >= p->length_bytes;
    if (r <= HTTP_DONE && !whole && to_front(s))
        r = http_parse(p, s->in, s->in_n);
    if (r == HTTP_MORE && first)
        slot_limit(c, s, c->g.header_ms);
    if (r == HTTP_MORE)
        return false;
    identify(c, s, c->serve_ns);
    if (r == HTTP_DONE && p->r.https && !s->w.tls) { /* RFC 9110 section 7.4 */
        r = 421;
        p->why = "what is https: is not given away without TLS";
    }
    if (r != HTTP_DONE) {
        c->counts.bad_requests++;
        slot_refuse(c, s, r,
                    is_hello(c, s) ? "this port speaks HTTP without TLS: use http://" : p->why);
        return true;
    }
    size_t bytes = p->at + (whole ? (size_t)p->length_bytes : 0);
    if (!admitted(c, s)) {
        request_done(c, s, p->at);
    } else if (says_no_length(p)) {
        c->counts.bad_requests++;
        slot_refuse(c, s, 411, "the body is missing: POST needs a Content-Length or chunks");
    } else if (whole)
        deliver(c, s, (struct str){s->in + s->in_at + p->at, p->length_bytes}, bytes);
    else
        body_begin(c, s);
    return true;
}

static bool on_chunks(struct conns *c, struct slot *s)
{
    size_t at = s->http.at, used, got;
    char *to = s->body ? s->body + s->body_n : s->in + at; /* where the next read overwrites it */
    size_t most = s->body ? c->g.body_bytes : INPUT_BYTES - at;
    int r = http_chunk(&s->decoder, s->in + at, s->in_n - at, &used, to, most - s->body_n, &got);
    s->body_n += got;
    s->in_n -= (u32)used;
    memmove(s->in + at, s->in + at + used, s->in_n - at);
    if (r == HTTP_MORE)
        return false;
    if (r == HTTP_DONE) {
        deliver(c, s, (struct str){s->body, s->body ? s->body_n : 0}, at);
        return true;
    }
    c->counts.bad_requests++;
    slot_refuse(c, s, r,
                r == 413   ? s->body ? "the body is longer than server.body_max" : only_post
                : r == 431 ? "chunk extensions or trailers are too long"
                           : "the chunks are not valid");
    return true;
}

static bool on_body(struct conns *c, struct slot *s)
{
    struct http_parser *p = &s->http;
    if (p->chunked)
        return on_chunks(c, s);
    if (s->body && s->body_n == p->length_bytes) {
        deliver(c, s, (struct str){s->body, s->body_n}, p->at);
        return true;
    }
    if (s->body || s->in_n - p->at < p->length_bytes)
        return false;
    deliver(c, s, (struct str){s->in + p->at, p->length_bytes}, p->at + (size_t)p->length_bytes);
    return true;
}

/* --- input ----------------------------------------------------------------------------------- */

static void advance(struct conns *c, struct slot *s)
{
    for (bool more = true; more;) {
        switch (s->phase) {
        case SLOT_HEAD:
            more = on_head(c, s);
            break;
        case SLOT_BODY:
            more = on_body(c, s);
            break;
        case SLOT_WS:
        case SLOT_WS_CLOSING:
            more = slot_ws_input(c, s);
            break;
        case SLOT_FLUSH:
        case SLOT_LINGER:
            s->in_at = s->in_n = 0;
            more = false;
            break;
        default:
            more = false;
        }
    }
}

static ssize_t read_some(struct conns *c, struct slot *s, bool *full)
{
    bool direct = s->phase == SLOT_BODY && s->body && !s->http.chunked;
    char *to = direct ? s->body + s->body_n : s->in + s->in_n;
    size_t room = direct ? (size_t)s->http.length_bytes - s->body_n : INPUT_BYTES - s->in_n;
    ASSERT(room);
    ssize_t n = wire_read(&s->w, &c->sockets, to, room, &c->flights);
    *full = n == (ssize_t)room;
    if (n > 0 && direct)
        s->body_n += (size_t)n;
    else if (n > 0)
        s->in_n += (u32)n;
    if (handshaking(s) && tls_state(s->w.tls) == TLS_OPEN) {
        s->tls_open = true;
        c->counts.tls_handshakes++;
        c->counts.tls_resumed += tls_resumed(s->w.tls);
    }
    return n;
}

/* The peer sends no more. Answers to what it has asked before still go out. */
static void ended(struct conns *c, struct slot *s)
{
    if (s->phase == SLOT_HEAD && !s->w.failed && wire_waiting(&s->w)) {
        s->phase = SLOT_FLUSH;
        return;
    }
    c->counts.gone += s->app_open;
    slot_lose(c, s);
}

/* HTTP without TLS where there is TLS: answered in the language that its client understands. */
static void refuse_plain(struct conns *c, struct slot *s)
{
    if (slot_may_say(c, SAID_PLAIN))
        log_event(LOG_WARN, "refused",
                  "text=\"HTTP without TLS came to a port with TLS; call it by https://, or by an "
                  "address of server.listen with plain:\" peer=%s",
                  s->peer_text);
    c->counts.tls_failures++;
    c->counts.bad_requests++;
    tls_peer_end(s->w.tls);
    s->w.tls = NULL;
    s->w.failed = false;
    identify(c, s, c->serve_ns);
    slot_refuse(c, s, 400, "this port speaks TLS: use https://");
}

static void serve(struct conns *c, struct slot *s)
{
    ssize_t n = 1;
    bool full = true;
    c->serve_ns = clock_now_ns(&c->clock);
    advance(c, s);
    for (u32 i = 0; i < READS && n > 0 && wants_input(s) && (full || s->w.tls); i++) {
        n = read_some(c, s, &full);
        if (n > 0)
            advance(c, s);
        else if (n == WIRE_FAILED && handshaking(s) && tls_was_http(s->w.tls))
            refuse_plain(c, s);
        else if (n < 0)
            ended(c, s);
    }
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
        return;
    if (wants_input(s) && wire_holds(&s->w))
        slot_later(c, s);
    slot_settle(c, s);
}

void conns_ready(struct conns *c, conn_id id, u32 what)
{
    struct slot *s = slot_find(c, id);
    if (!s)
        return;
    bool failed = (what & WIRE_OUT) && !wire_flush(&s->w, &c->sockets);
    if (failed || ((what & WIRE_GONE) && (s->phase == SLOT_APP || !wants_input(s)))) {
        c->counts.gone += s->app_open;
        slot_lose(c, s);
        return;
    }
    serve(c, s);
}

/* --- coming and going ------------------------------------------------------------------------ */

/* Who is given up first when every slot is taken; 0 is never. */
static u32 dispensable(const struct slot *s)
{
    switch (s->phase) {
    case SLOT_LINGER:
        return 4;
    case SLOT_HEAD:
        return taking(s) ? 1 : s->served && s->in_n == 0 ? 3 : 2;
    case SLOT_BODY:
    case SLOT_FLUSH:
    case SLOT_WS_CLOSING:
        return 1;
    default:
        return 0;
    }
}

/* Drops the most dispensable peer, of several the one that has been waited for longest. */
static bool evict(struct conns *c)
{
    struct slot *victim = NULL;
    for (u32 i = 0; i < c->g.connections; i++) {
        struct slot *s = &c->slots[i];
        u32 rank = dispensable(s), best = victim ? dispensable(victim) : 0;
        if (rank > best || (rank && rank == best && s->until_ns < victim->until_ns))
            victim = s;
    }
    if (!victim)
        return false;
    c->counts.evicted++;
    slot_lose(c, victim);
    return true;
}

bool conns_add(struct conns *c, int fd, bool tls, bool loopback, const char *peer)
{
    ASSERT(!tls || c->g.tls);
    if (!c->n_free)
        evict(c);
    if (!c->n_free) { /* an evicted one may have to wait for its `gone`, too */
        c->counts.refused++;
        if (slot_may_say(c, SAID_FULL))
            log_event(
                LOG_WARN, "refused",
                "text=\"all server.connections = %u are in use; raise it\" refused_total=%llu",
                c->g.connections, (unsigned long long)c->counts.refused);
        if (tls) /* a handshake costs more than there is to say */
            c->sockets.close(c->sockets.arg, fd);
        else
            away_send(c, fd);
        return false;
    }
    struct slot *s = &c->slots[c->free[--c->n_free]];
    struct slot fresh = {.generation = s->generation + 1,
                         .in = s->in,
                         .out = s->out,
                         .peer = s->peer,
                         .todo = s->todo,
                         .held = s->held};
    memcpy(s, &fresh, offsetof(struct slot, http));
    http_begin(&s->http);
    s->w = (struct wire){.fd = fd, .out = s->out, .cap = c->g.output_bytes};
    s->w.tls = tls ? s->peer : NULL;
    s->loopback = loopback;
    snprintf(s->peer_text, sizeof s->peer_text, "%s", peer);
    s->phase = SLOT_HEAD;
    s->write_until_ns = UINT64_MAX;
    s->watching = WIRE_IN | WIRE_GONE;
    c->counts.accepted++;
    c->counts.open++;
    if (tls)
        tls_peer_begin(c->g.tls, s->peer);
    slot_limit(c, s, c->g.header_ms);
    if (!c->sockets.watch(c->sockets.arg, fd, slot_id(c, s), s->watching, true)) {
        slot_lose(c, s);
        return false;
    }
    return true;
}

/* --- time ------------------------------------------------------------------------------------ */

static void input_late(struct conns *c, struct slot *s)
{
    bool begun = s->in_n > s->in_at;
    switch (s->phase) {
    case SLOT_HEAD:
        if (taking(s)) { /* as long as server.write_time lets him */
            slot_limit(c, s, c->draining ? LIMIT_LINGER_MS : c->g.idle_ms);
            return;
        }
        c->counts.timeout_idle += s->served && !begun;
        c->counts.timeout_header += !s->served || begun;
        if (begun && !handshaking(s)) {
            identify(c, s, clock_now_ns(&c->clock));
            slot_refuse(c, s, 408, "the head of the request took too long");
            slot_settle(c, s);
        } else {
            slot_lose(c, s);
        }
        return;
    case SLOT_BODY:
        c->counts.timeout_body++;
        slot_refuse(c, s, 408, "the body took too long");
        slot_settle(c, s);
        return;
    case SLOT_WS:
        if (s->body) {
            c->counts.timeout_body++;
            slot_ws_late(c, s);
            return;
        }
        if (!s->pinged) {
            slot_ws_ping(c, s);
            return;
        }
        c->counts.timeout_idle++;
        c->counts.gone++;
        slot_lose(c, s);
        return;
    default:
        slot_lose(c, s);
    }
}

static void check_time(struct conns *c, struct slot *s, u64 now)
{
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
        return;
    if (s->write_until_ns <= now) {
        c->counts.timeout_write++;
        c->counts.dropped_slow++;
        s->slow = true;
        slot_lose(c, s);
    } else if (s->until_ns <= now && s->phase != SLOT_FLUSH) {
        input_late(c, s);
    }
    if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
        return;
    u64 until = s->phase == SLOT_FLUSH ? UINT64_MAX : s->until_ns;
    c->next_ns = MIN(c->next_ns, MIN(until, s->write_until_ns));
}

void conns_turn(struct conns *c)
{
    c->flights = LIMIT_TLS_FLIGHTS_PER_TURN;
    u32 n = c->n_todo;
    for (u32 i = 0; i < n; i++) {
        struct slot *s = &c->slots[c->todo[i]];
        s->todo = false;
        if (s->phase == SLOT_DEAD) {
            c->events.gone(c->app, slot_id(c, s));
            free_slot(c, s);
        } else if (s->phase != SLOT_FREE) {
            serve(c, s);
        }
    }
    memmove(c->todo, c->todo + n, (c->n_todo - n) * sizeof *c->todo);
    c->n_todo -= n; /* what was added meanwhile waits for the next turn */
    u64 now = clock_now_ns(&c->clock);
    if (now < c->next_ns)
        return;
    c->next_ns = UINT64_MAX;
    for (u32 i = 0; i < c->g.connections; i++)
        check_time(c, &c->slots[i], now);
    away_turn(c, now);
}

void conns_flush(struct conns *c)
{
    for (u32 i = 0; i < c->n_held; i++) {
        struct slot *s = &c->slots[c->held[i]];
        s->held = false;
        if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
            continue;
        if (wire_flush(&s->w, &c->sockets)) {
            if (s->phase != SLOT_APP && s->in_n > s->in_at) /* had to wait for this */
                slot_later(c, s);
            slot_settle(c, s);
            continue;
        }
        c->counts.gone += s->app_open;
        slot_lose(c, s);
    }
    c->n_held = 0;
}

u64 conns_next_ns(const struct conns *c)
{
    return c->n_todo ? 0 : c->next_ns;
}

void conns_drain(struct conns *c)
{
    c->draining = true;
    for (u32 i = 0; i < c->g.connections; i++) {
        struct slot *s = &c->slots[i];
        if (s->phase == SLOT_FREE || s->phase == SLOT_DEAD)
            continue;
        serve(c, s); /* a request that is already here is answered */
        s->close_after = true;
        if (taking(s) && s->in_n == s->in_at) {
            s->phase = SLOT_FLUSH;
            slot_settle(c, s);
        } else if (idle(s)) {
            slot_lose(c, s); /* has taken all: nothing to linger for */
        } else if (s->phase == SLOT_HEAD) {
            slot_limit(c, s, LIMIT_LINGER_MS);
        }
    }
}

bool conns_drained(const struct conns *c)
{
    return c->counts.open == 0;
}

const struct conn_counts *conns_counts(const struct conns *c)
{
    return &c->counts;
}

i64 conns_certificate_ends_s(const struct conns *c)
{
    return c->g.tls ? tls_expires_s(c->g.tls) : 0;
}
