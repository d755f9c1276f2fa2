#include "net/conn.h"

#include "net/slot.h"

static struct slot *talking(struct conns *c, conn_id id)
{
    struct slot *s = slot_find(c, id);
    return s && s->phase == SLOT_WS ? s : NULL;
}

static bool send_frame(struct conns *c, struct slot *s, enum ws_opcode opcode, struct str payload)
{
    u8 head[WS_HEAD_MAX];
    struct iovec v[2] = {{head, ws_head(head, opcode, payload.n)}, {(void *)payload.p, payload.n}};
    return slot_write(c, s, v, 2);
}

/* --- the handshake (RFC 6455 section 4.2) ------------------------------------------------------
 */

static const char *not_an_upgrade(const struct slot *s, const struct http_request *r)
{
    if (s->http10 || r->method != HTTP_GET)
        return "a WebSocket is opened by GET with HTTP/1.1";
    if (!http_list_has(http_header(r, "upgrade"), "websocket"))
        return "Upgrade: websocket is missing";
    if (!s->http.connection_upgrade)
        return "Connection: Upgrade is missing";
    return NULL;
}

bool conn_ws_accept(struct conns *c, conn_id id, const struct http_request *r)
{
    static const char switching[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                    "Connection: Upgrade\r\nSec-WebSocket-Accept: ";
    static const char need[] = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    char key[WS_ACCEPT_BYTES];
    struct slot *s = slot_find(c, id);
    if (!s || s->phase != SLOT_APP)
        return false;
    ASSERT(!s->answered && r == &s->http.r);
    const char *why = not_an_upgrade(s, r);
    bool version = str_is(http_header(r, "sec-websocket-version"), "13");
    if (why || !version) {
        slot_error(c, s, 426, why ? why : "WebSocket version 13 is spoken here", need);
        return false;
    }
    if (!ws_accept(http_header(r, "sec-websocket-key"), key)) {
        slot_refuse(c, s, 400, "Sec-WebSocket-Key is not valid");
        return false;
    }
    struct iovec v[3] = {{(char *)switching, sizeof switching - 1},
                         {key, WS_ACCEPT_BYTES - 1},
                         {(char *)"\r\n\r\n", 4}};
    s->answered = true;
    if (!slot_write(c, s, v, 3))
        return false;
    s->phase = SLOT_WS;
    s->ws = (struct ws){0};
    s->pinged = false;
    c->counts.open_ws++;
    slot_limit(c, s, c->g.idle_ms);
    slot_settle(c, s);
    return slot_find(c, id) != NULL;
}

bool conn_ws_send(struct conns *c, conn_id id, struct str text)
{
    u8 head[WS_HEAD_MAX];
    struct slot *s = talking(c, id);
    struct iovec v[2] = {{head, ws_head(head, WS_TEXT, text.n)}, {(void *)text.p, text.n}};
    if (!s || !slot_hold(c, s, v, 2))
        return false;
    c->counts.ws_messages_out++;
    slot_settle(c, s);
    return slot_find(c, id) != NULL;
}

/* --- the end (section 7) -----------------------------------------------------------------------
 */

void slot_ws_end(struct conns *c, struct slot *s, u16 code, struct str reason)
{
    u8 payload[WS_CONTROL_MAX] = {(u8)(code >> 8), (u8)code};
    size_t n = code == WS_NO_CODE ? 0 : 2 + MIN(reason.n, sizeof payload - 2);
    if (n > 2)
        memcpy(payload + 2, reason.p, n - 2);
    slot_body_give(c, &s->body);
    if (!send_frame(c, s, WS_CLOSE, (struct str){(char *)payload, n}))
        return;
    s->phase = SLOT_WS_CLOSING;
    slot_limit(c, s, LIMIT_LINGER_MS);
}

bool conn_ws_close(struct conns *c, conn_id id, u16 code, struct str reason)
{
    struct slot *s = talking(c, id);
    if (!s)
        return false;
    s->app_open = false;
    slot_ws_end(c, s, code, reason);
    slot_settle(c, s);
    return true;
}

void slot_ws_ping(struct conns *c, struct slot *s)
{
    s->pinged = true;
    if (!send_frame(c, s, WS_PING, (struct str){"", 0}))
        return;
    slot_limit(c, s, c->g.idle_ms);
    slot_settle(c, s);
}

/* After both close frames: the server closes first (section 7.1.1). */
static void both_closed(struct conns *c, struct slot *s)
{
    c->counts.open_ws--;
    s->phase = SLOT_FLUSH;
    s->until_ns = UINT64_MAX;
}

/* The app is told that its WebSocket is over, in the next turn, while the rest is still written. */
static void close_for_peer(struct conns *c, struct slot *s, u16 code)
{
    conn_id id = slot_id(c, s);
    bool open = s->app_open;
    s->app_open = false;
    slot_ws_end(c, s, code, (struct str){0});
    if (open)
        c->events.gone(c->app, id);
}

void slot_ws_late(struct conns *c, struct slot *s)
{
    close_for_peer(c, s, WS_POLICY);
    slot_settle(c, s);
}

/* --- messages ----------------------------------------------------------------------------------
 */

static void message(struct conns *c, struct slot *s, struct str text)
{
    c->counts.ws_messages_in++;
    c->events.ws_text(c->app, slot_id(c, s), text);
}

/* A message that comes in pieces is put together in a buffer of the pool. */
static void collect(struct conns *c, struct slot *s, const struct ws_part *part)
{
    if (part->first) {
        slot_body_give(c, &s->body);
        s->body_n = 0;
        s->body = slot_body_take(c);
        if (!s->body) {
            close_for_peer(c, s, WS_TRY_LATER);
            return;
        }
        slot_limit(c, s, c->g.body_ms);
    }
    memcpy(s->body + s->body_n, part->bytes.p, part->bytes.n);
    s->body_n += part->bytes.n;
    if (!part->last)
        return;
    slot_limit(c, s, c->g.idle_ms);
    message(c, s, (struct str){s->body, s->body_n});
    slot_body_give(c, &s->body);
}

static void on_part(struct conns *c, struct slot *s, const struct ws_part *part)
{
    if (s->phase != SLOT_WS)
        return; /* after our close frame nothing is read any more but the answer */
    size_t have = part->first ? 0 : s->body_n;
    if (part->opcode == WS_BINARY)
        close_for_peer(c, s, WS_UNSUPPORTED);
    else if (part->to_come > c->g.body_bytes ||
             part->bytes.n + part->to_come > c->g.body_bytes - have)
        close_for_peer(c, s, WS_TOO_BIG);
    else if (part->first && part->last)
        message(c, s, part->bytes);
    else
        collect(c, s, part);
}

static void on_control(struct conns *c, struct slot *s, const struct ws_part *part)
{
    if (part->opcode == WS_PING && s->phase == SLOT_WS)
        send_frame(c, s, WS_PONG, part->bytes);
    if (part->opcode != WS_CLOSE)
        return;
    if (s->phase == SLOT_WS)
        close_for_peer(c, s, ws_close_code(part->bytes));
    if (s->phase == SLOT_WS_CLOSING)
        both_closed(c, s);
}

bool slot_ws_input(struct conns *c, struct slot *s)
{
    struct ws_part part;
    size_t used;
    if (s->in_at == s->in_n || wire_room(&s->w) <= 2 * (WS_CONTROL_MAX + WS_HEAD_MAX))
        return false;
    int r = ws_next(&s->ws, (u8 *)s->in + s->in_at, s->in_n - s->in_at, &used, &part);
    s->in_at += (u32)used;
    if (s->phase == SLOT_WS) {
        s->pinged = false;
        if (!s->body) /* a message in pieces has server.body_time, however they come */
            slot_limit(c, s, c->g.idle_ms);
    }
    if (r == WS_PART)
        on_part(c, s, &part);
    else if (r == WS_CONTROL)
        on_control(c, s, &part);
    else if (r != WS_MORE) { /* protocol broken: nothing behind this can be read */
        if (s->phase == SLOT_WS)
            close_for_peer(c, s, (u16)r);
        if (s->phase == SLOT_WS_CLOSING)
            both_closed(c, s);
    }
    if (s->in_at == s->in_n)
        s->in_at = s->in_n = 0;
    return s->phase == SLOT_WS || s->phase == SLOT_WS_CLOSING || s->phase == SLOT_FLUSH;
}
