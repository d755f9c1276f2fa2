/* Connections, as the API above them sees them: a request comes in whole, a reply goes out at once
 * or as a stream. Below are HTTP/1.1 (net/http), WebSocket (net/ws), TLS (net/tls) and the sockets
 * (net/wire); above is net/api. Everything is bounded: header, body, output, time; a reader slower
 * than its output buffer is dropped and counted, never waited for.
 *
 * A connection is a slot in a fixed array and is named by a handle that is never reused for
 * another peer, so that a late token for a connection that has gone finds nobody.
 *
 * All memory comes from one arena at boot: a slot with its input and output buffer (and TLS engine
 * and records where TLS is on) for each connection, and a smaller pool of body buffers, which a
 * connection borrows for a POST's body that does not fit its input buffer, for a WebSocket message
 * in pieces, and for the rest of a whole reply that neither the socket nor its output buffer took.
 */
#ifndef ZIGCUDA_CONN_H
#define ZIGCUDA_CONN_H

#include "core/base/arena.h"
#include "core/base/clock.h"
#include "net/http.h"
#include "net/wire.h"

typedef u64 conn_id; /* slot and generation; 0 is nobody */

struct conns;

/* How a refusal is sent: what conn_reply takes. */
struct conn_refusal {
    const char *content_type, *extra;
    struct str body;
};

/* What the layer above provides. No call comes from inside a conn_* function. Every request that
 * was given to `request` ends in one of two ways: the app ends its reply (conn_reply, conn_end), or
 * `gone` is called, once. A client that closes, even half, before it has its answer has gone: until
 * something is written to it both look the same (RFC 9112 section 9.6 would have the half
 * answered), and of a whole reply nothing is written before all of it was computed. */
struct conn_events {
    /* Head only, before the body is read, so that a refusal costs nothing. 0: go on. A status (401,
     * 404, 415, ...): refused as below. CONN_ANSWERED: refused by conn_reply in here (with Allow
     * for a 405). */
    int (*admit)(void *app, conn_id id, const struct http_request *head_only);
    /* A whole request; it is valid during the call, the reply may come then or later. A body that
     * is not a POST's may be missing. */
    void (*request)(void *app, conn_id id, const struct http_request *r);
    void (*ws_text)(void *app, conn_id id, struct str message); /* one whole text message */
    /* Disconnected or dropped with a request open (or the WebSocket open): cancel its work. */
    void (*gone)(void *app, conn_id id);
    /* A refusal made here or by admit is about to be sent, `more` (complete header lines, or "")
     * with it; the answer is valid until the next call. r is what was read of the request: its
     * path.p is NULL when that was not even the first line. NULL: text/plain. */
    struct conn_refusal (*refused)(void *app, const struct http_request *r, int status,
                                   const char *why, const char *more);
};

enum { CONN_ANSWERED = -1 };

/* A whole reply. `extra` is NULL or complete header lines ("Retry-After: 1\r\n"), content_type NULL
 * for none. Date, Content-Length and Connection are added; HEAD, 204 and 304 send no body. False:
 * the connection has gone. */
bool conn_reply(struct conns *c, conn_id id, int status, const char *content_type, struct str body,
                const char *extra);

/* Whether a whole reply with this body reaches the peer however slowly he reads; asked before
 * conn_reply, as what is half sent can not be taken back. False: it is longer than the output
 * buffer, and all buffers of the pool are in use, which is logged. The body of the request is not
 * valid behind this, unless the reply's is of it: its buffer may have been taken. */
bool conn_takes(struct conns *c, conn_id id, struct str body);

/* A reply in pieces: chunked, or ended by closing for HTTP/1.0. What these and conn_ws_send write
 * is put off until conns_flush: the pieces of one turn go out together, and no system call stands
 * between a result and the next step. False: the connection has gone (a slow reader is dropped by
 * this very call). */
bool conn_begin(struct conns *c, conn_id id, int status, const char *content_type,
                const char *extra);
bool conn_write(struct conns *c, conn_id id, struct str bytes);
bool conn_end(struct conns *c, conn_id id);

/* Before a piece that is longer than others: where the output buffer has no room for it, one of the
 * pool is borrowed, if there is one, as for a whole reply. */
void conn_widen(struct conns *c, conn_id id, size_t bytes);

/* Inside `request` only. Switches to WebSocket (when the request is no valid upgrade, it is
 * answered here with 400 or 426 and false comes back). Then conn_ws_send sends text messages;
 * conn_ws_close begins the close handshake, after which neither messages nor `gone` come. */
bool conn_ws_accept(struct conns *c, conn_id id, const struct http_request *r);
bool conn_ws_send(struct conns *c, conn_id id, struct str text);
bool conn_ws_close(struct conns *c, conn_id id, u16 code, struct str reason);

/* Of one that has gone, until its `gone` is over: it was dropped, as it read too slowly. */
bool conn_was_slow(const struct conns *c, conn_id id);

/* Bytes of output that can be written now without the peer being dropped. */
size_t conn_room(const struct conns *c, conn_id id);

/* --- for whoever assembles the server ------------------------------------------------------- */

struct conns_config {
    u32 connections;   /* slots, 1..LIMIT_CONNECTIONS */
    u32 bodies;        /* body buffers */
    size_t body_bytes; /* longest body and WebSocket message: the size of a body buffer */
    size_t output_bytes;
    u64 header_ms, body_ms, idle_ms, write_ms; /* server.*_time */
    struct tls *tls;                           /* NULL: no TLS */
};

/* For metrics; they only grow, but for the first three. */
struct conn_counts {
    u64 open, open_ws, bodies_used;
    u64 accepted, evicted, refused; /* refused: every slot was answering */
    u64 requests, bad_requests;
    u64 gone, dropped_slow;
    u64 timeout_header, timeout_body, timeout_idle, timeout_write;
    u64 tls_handshakes, tls_resumed, tls_failures;
    u64 bytes_in, bytes_out;
    u64 ws_messages_in, ws_messages_out;
};

size_t conns_bytes(const struct conns_config *g);

/* `a` has to have conns_bytes free; NULL if it has not. The tables are copied. */
struct conns *conns_open(struct arena *a, const struct conns_config *g,
                         const struct sockets *sockets, const struct clock *clock,
                         const struct conn_events *events, void *app);

/* Takes over a connected descriptor; when there is no slot the peer gets a 503 (with TLS nothing)
 * and false comes back: then every slot is answering. Idle peers and those that are still sending
 * are dropped to make room. peer: its address, for the log. */
bool conns_add(struct conns *c, int fd, bool tls, bool loopback, const char *peer);

/* The descriptor that was watched as `id` can be read or written (WIRE_* of net/wire.h). */
void conns_ready(struct conns *c, conn_id id, u32 what);

/* Once a turn: what was left to do, timeouts, and `gone`. */
void conns_turn(struct conns *c);

/* Sends the pieces that were put off: at the end of each turn, before the loop waits. */
void conns_flush(struct conns *c);

/* When the next turn has something to do, in nanoseconds of the clock: 0 is now, UINT64_MAX never.
 */
u64 conns_next_ns(const struct conns *c);

/* Begins the end, after the listeners are closed: requests that are here or on their way over open
 * connections are still answered, with "Connection: close". A peer between two requests is let go
 * at once; one that has only connected, or has sent a part, has LIMIT_LINGER_MS for the rest.
 * WebSockets are the app's to close. */
void conns_drain(struct conns *c);
bool conns_drained(const struct conns *c); /* nobody is left */

const struct conn_counts *conns_counts(const struct conns *c);

/* When the certificate ends, in seconds since 1970; 0: there is no TLS. */
i64 conns_certificate_ends_s(const struct conns *c);

#endif
