/* Inside of connections, shared by net/conn.c (slots, input, time), net/reply.c (output),
 * net/talk.c (WebSocket) and net/away.c (who gets no slot). Nobody else includes this. A slot is
 * one connection; its phase says what is being waited for, and every function that can end a
 * connection leaves it in SLOT_DEAD (the app has yet to be told) or SLOT_FREE, which callers check
 * before they go on.
 */
#ifndef ZIGCUDA_SLOT_H
#define ZIGCUDA_SLOT_H

#include "net/conn.h"
#include "net/ws.h"

enum { INPUT_BYTES = LIMIT_HTTP_HEAD_BYTES + 4096 };

enum slot_phase {
    SLOT_FREE,
    SLOT_HEAD,       /* for a request: also the TLS handshake, and idle between requests */
    SLOT_BODY,       /* for the rest of a body */
    SLOT_APP,        /* for the app's reply */
    SLOT_WS,         /* for frames */
    SLOT_WS_CLOSING, /* for the peer's close frame */
    SLOT_FLUSH,      /* until the last bytes are written */
    SLOT_LINGER,     /* for the peer to close: a reset could overtake our last bytes */
    SLOT_DEAD        /* until the app has been told */
};

struct slot {
    struct wire w;
    u32 generation;
    enum slot_phase phase;
    bool todo;     /* is on the list of the next turn */
    bool held;     /* is on the list of conns_flush */
    bool app_open; /* the app has a request or WebSocket of it */
    bool answered; /* a reply has begun */
    bool chunked;  /* that reply is chunked */
    bool bodyless; /* the request was HEAD: replies have no body */
    bool http10, keep_alive, close_after;
    bool loopback, served, tls_open, pinged;
    bool slow; /* is being lost for that */
    char peer_text[LIMIT_PEER_BYTES];
    u32 watching;
    u64 until_ns; /* input has to come before this; UINT64_MAX: no limit */
    u64 write_until_ns;
    u64 write_left; /* bytes to be taken before write_until_ns */
    char *in;       /* [INPUT_BYTES], used from in_at to in_n */
    u32 in_at, in_n;
    char *body; /* from the pool, or NULL */
    size_t body_n;
    u8 *out; /* own output buffer: w.out may be one of the pool meanwhile */
    struct tls_peer *peer;
    struct http_parser http;
    struct http_chunked decoder;
    struct ws ws;
};

/* What the log says at most once a second each, whatever log.rate lets through: a flood of peers is
 * one fact. */
enum said { SAID_FULL, SAID_BODIES, SAID_TLS, SAID_PLAIN, SAID_KINDS };

/* A peer without a slot, who was told so and has yet to take it. */
struct parting {
    int fd;
    u64 until_ns;
};

struct conns {
    struct conns_config g;
    struct sockets sockets;
    struct clock clock;
    struct conn_events events;
    void *app;
    struct slot *slots;
    u32 *free, n_free;
    u32 *todo, n_todo;
    u32 *held, n_held; /* whose output waits for conns_flush */
    u64 serve_ns;      /* when the connection in work began to be served */
    char **bodies;
    u32 n_bodies;                          /* free ones */
    u32 flights;                           /* TLS_FLIGHTS left in this turn */
    u64 next_ns;                           /* no deadline is earlier */
    u64 said_ns[SAID_KINDS];               /* before this none of that kind is said again */
    u64 number;                            /* the last that a request got */
    struct parting parting[LIMIT_PARTING]; /* in the order of their ends */
    u32 n_parting;
    bool draining;
    i64 date_of_s;
    char date[HTTP_DATE_BYTES];
    struct conn_counts counts;
};

static inline conn_id slot_id(const struct conns *c, const struct slot *s)
{
    return (u64)s->generation << 32 | (u64)(s - c->slots + 1);
}

/* True when it is time for a line of that kind. */
bool slot_may_say(struct conns *c, enum said kind);

/* The slot of a live connection, or NULL. */
struct slot *slot_find(struct conns *c, conn_id id);

/* Takes over the descriptor of a peer for whom there is no slot: one write, a 503, and the end. */
void away_send(struct conns *c, int fd);
void away_turn(struct conns *c, u64 now);

/* Ends it now, whatever it was doing. */
void slot_lose(struct conns *c, struct slot *s);

/* Has it served in the next turn. */
void slot_later(struct conns *c, struct slot *s);

/* Input has to come within ms. */
void slot_limit(struct conns *c, struct slot *s, u64 ms);

/* Output and what is watched after something happened: every path ends here. */
void slot_settle(struct conns *c, struct slot *s);

/* From the pool; NULL when all are in use, which is logged. */
char *slot_body_take(struct conns *c);
void slot_body_give(struct conns *c, char **body);

/* The whole reply of an error, as the app words it; `more`: complete header lines, or "". */
void slot_error(struct conns *c, struct slot *s, int status, const char *why, const char *more);

/* The same for a request that is not read to its end: then close. */
void slot_refuse(struct conns *c, struct slot *s, int status, const char *why);

/* The bytes of one reply, request or frame; false when the connection ended. */
bool slot_write(struct conns *c, struct slot *s, const struct iovec *v, int n);

/* The same, put off until conns_flush unless there is no room. */
bool slot_hold(struct conns *c, struct slot *s, const struct iovec *v, int n);

/* Looks at WebSocket input; true when there may be more to do. */
bool slot_ws_input(struct conns *c, struct slot *s);
void slot_ws_ping(struct conns *c, struct slot *s);

/* A message in pieces took too long. */
void slot_ws_late(struct conns *c, struct slot *s);

/* Our close frame, and what follows. */
void slot_ws_end(struct conns *c, struct slot *s, u16 code, struct str reason);

#endif
