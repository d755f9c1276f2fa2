#include "net/conn.h"

#include "net/slot.h"

/* Output that conn_room keeps back for the frame around a piece. */
enum { FRAME_MAX = 24, HEAD_MAX = 512 };

bool slot_write(struct conns *c, struct slot *s, const struct iovec *v, int n)
{
    if (wire_write(&s->w, &c->sockets, v, n))
        return true;
    c->counts.dropped_slow += s->slow = !s->w.failed;
    c->counts.gone += s->w.failed && s->app_open;
    slot_lose(c, s);
    return false;
}

bool slot_hold(struct conns *c, struct slot *s, const struct iovec *v, int n)
{
    if (!wire_keep(&s->w, v, n)) { /* too much for one turn */
        wire_flush(&s->w, &c->sockets);
        return slot_write(c, s, v, n);
    }
    if (!s->held)
        c->held[c->n_held++] = (u32)(s - c->slots);
    s->held = true;
    return true;
}

/* --- heads ----------------------------------------------------------------------------------- */

struct head {
    char text[HEAD_MAX];
    size_t n;
};

static void add(struct head *h, const char *text, size_t n)
{
    ASSERT(n <= sizeof h->text - h->n);
    memcpy(h->text + h->n, text, n);
    h->n += n;
}

static void add_text(struct head *h, const char *text)
{
    add(h, text, strlen(text));
}

static void add_number(struct head *h, u64 v, u32 base)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = "0123456789abcdef"[v % base];
    while (v /= base);
    add(h, digits + at, sizeof digits - at);
}

/* Everything but `extra` and the empty line. length: UINT64_MAX for none. */
static void build_head(struct conns *c, const struct slot *s, struct head *h, int status,
                       const char *content_type, u64 length)
{
    i64 wall = c->clock.wall_s(c->clock.arg);
    if (wall != c->date_of_s) {
        http_date(wall, c->date);
        c->date_of_s = wall;
    }
    h->n = 0;
    add_text(h, "HTTP/1.1 ");
    add_number(h, (u64)status, 10);
    add_text(h, " ");
    add_text(h, http_status_text(status));
    add_text(h, "\r\nDate: ");
    add(h, c->date, HTTP_DATE_BYTES - 1);
    if (content_type) {
        add_text(h, "\r\nContent-Type: ");
        add_text(h, content_type);
    }
    if (length != UINT64_MAX) {
        add_text(h, "\r\nContent-Length: ");
        add_number(h, length, 10);
    } else if (s->chunked) {
        add_text(h, "\r\nTransfer-Encoding: chunked");
    }
    const char *option = s->close_after ? "close" : s->http10 ? "keep-alive" : NULL;
    bool offers = status == 426; /* its Upgrade field has to be named: RFC 9110 section 7.8 */
    if (option || offers)
        add_text(h, "\r\nConnection: ");
    if (option)
        add_text(h, option);
    if (offers)
        add_text(h, option ? ", Upgrade" : "Upgrade");
    add_text(h, "\r\n");
}

/* --- replies --------------------------------------------------------------------------------- */

static struct slot *answering(struct conns *c, conn_id id, bool begun)
{
    struct slot *s = slot_find(c, id);
    if (!s || s->phase != SLOT_APP)
        return NULL;
    ASSERT(s->answered == begun);
    return s;
}

/* The reply is complete: the connection waits for its next request, or ends. */
static bool finish(struct conns *c, struct slot *s)
{
    s->app_open = false;
    s->served = true;
    if (s->close_after) {
        s->phase = SLOT_FLUSH;
        s->until_ns = UINT64_MAX;
    } else {
        s->phase = SLOT_HEAD;
        slot_limit(c, s, c->g.idle_ms);
        /* Where the parser has not forgotten the request yet, its own bytes lie there, and who
         * reads them goes on to the next one by himself. */
        if (s->http.at == 0 && s->in_n > s->in_at)
            slot_later(c, s);
    }
    slot_settle(c, s);
    return true;
}

/* A reply that neither socket nor output buffer may take gets the buffer of its request's body, or
 * borrows one of the pool; its output buffer's bytes come first in it. False: there is none. */
static bool widen(struct conns *c, struct slot *s, size_t bytes, struct str body)
{
    if (bytes <= wire_room(&s->w) || s->w.out != s->out || s->w.n + bytes > c->g.body_bytes)
        return true;
    bool own = s->body && (body.p < s->body || body.p >= s->body + c->g.body_bytes);
    char *wide = own ? s->body : slot_body_take(c);
    if (!wide)
        return false;
    if (own)
        s->body = NULL;
    memcpy(wide, s->w.out + s->w.at, s->w.n);
    s->w.out = (u8 *)wide;
    s->w.at = 0;
    s->w.cap = c->g.body_bytes;
    return true;
}

static bool bodyless(const struct slot *s, int status)
{
    return s->bodyless || status < 200 || status == 204 || status == 304;
}

bool conn_takes(struct conns *c, conn_id id, struct str body)
{
    struct slot *s = answering(c, id, false);
    return !s || s->bodyless || widen(c, s, 2 * (size_t)HEAD_MAX + body.n, body);
}

bool conn_reply(struct conns *c, conn_id id, int status, const char *content_type, struct str body,
                const char *extra)
{
    struct slot *s = answering(c, id, false);
    struct head h;
    if (!s)
        return false;
    bool has_length = status != 204 && status != 304;
    build_head(c, s, &h, status, content_type, has_length ? body.n : UINT64_MAX);
    struct str more = str_of(extra ? extra : "");
    struct iovec v[4] = {{h.text, h.n},
                         {(void *)more.p, more.n},
                         {(char *)"\r\n", 2},
                         {(void *)body.p, bodyless(s, status) ? 0 : body.n}};
    s->answered = true;
    widen(c, s, h.n + more.n + 2 + v[3].iov_len, body); /* where not: perhaps the socket takes it */
    return slot_write(c, s, v, 4) && finish(c, s);
}

bool conn_begin(struct conns *c, conn_id id, int status, const char *content_type,
                const char *extra)
{
    struct slot *s = answering(c, id, false);
    struct head h;
    if (!s)
        return false;
    s->chunked = !s->http10;
    s->close_after |= s->http10; /* the end of the body is the end of the connection */
    build_head(c, s, &h, status, content_type, UINT64_MAX);
    struct str more = str_of(extra ? extra : "");
    struct iovec v[3] = {{h.text, h.n}, {(void *)more.p, more.n}, {(char *)"\r\n", 2}};
    s->answered = true;
    s->bodyless = bodyless(s, status);
    if (!slot_hold(c, s, v, 3))
        return false;
    slot_settle(c, s);
    return slot_find(c, id) != NULL;
}

bool conn_write(struct conns *c, conn_id id, struct str bytes)
{
    struct slot *s = answering(c, id, true);
    struct head size = {.n = 0};
    if (!s)
        return false;
    if (s->bodyless || bytes.n == 0)
        return true;
    add_number(&size, bytes.n, 16);
    add_text(&size, "\r\n");
    struct iovec v[3] = {{size.text, size.n}, {(void *)bytes.p, bytes.n}, {(char *)"\r\n", 2}};
    if (!(s->chunked ? slot_hold(c, s, v, 3) : slot_hold(c, s, v + 1, 1)))
        return false;
    slot_settle(c, s);
    return slot_find(c, id) != NULL;
}

void conn_widen(struct conns *c, conn_id id, size_t bytes)
{
    struct slot *s = slot_find(c, id);
    if (s && s->phase == SLOT_WS) /* its body is of a message that still comes */
        (void)widen(c, s, bytes + FRAME_MAX, (struct str){s->body, 0});
    else if ((s = answering(c, id, true)) && !s->bodyless)
        (void)widen(c, s, bytes + FRAME_MAX, (struct str){0});
}

bool conn_end(struct conns *c, conn_id id)
{
    struct slot *s = answering(c, id, true);
    struct iovec v = {(char *)"0\r\n\r\n", 5};
    if (!s || (s->chunked && !s->bodyless && !slot_hold(c, s, &v, 1)))
        return false;
    return finish(c, s);
}

size_t conn_room(const struct conns *c, conn_id id)
{
    const struct slot *s = slot_find((struct conns *)c, id);
    size_t room = s ? wire_room(&s->w) : 0;
    return room > FRAME_MAX ? room - FRAME_MAX : 0;
}

void slot_error(struct conns *c, struct slot *s, int status, const char *why, const char *more)
{
    struct conn_refusal f = {"text/plain; charset=utf-8", more, str_of(why)};
    if (c->events.refused)
        f = c->events.refused(c->app, &s->http.r, status, why, more);
    conn_reply(c, slot_id(c, s), status, f.content_type, f.body, f.extra);
}

void slot_refuse(struct conns *c, struct slot *s, int status, const char *why)
{
    slot_body_give(c, &s->body); /* others wait for it, and this peer may take his time */
    s->phase = SLOT_APP;
    s->answered = s->chunked = false;
    s->bodyless = s->http.r.method == HTTP_HEAD; /* of this request, however far it was read */
    s->http10 = s->http.http10;
    s->close_after = true;
    slot_error(c, s, status, why,
               status == 503   ? "Retry-After: 1\r\n"
               : status == 415 ? "Accept-Encoding: identity\r\n" /* it is about the encoding */
                               : "");
}
