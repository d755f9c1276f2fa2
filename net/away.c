#include "net/conn.h"
#include "net/slot.h"

#include <stdio.h>

/* READS of DROP_BYTES: what a peer can have sent by the time that he is let go. */
enum { DROP_BYTES = 4096, READS = 64 };

/* Of no request in particular, so no app words it: the form is that of the API's errors. */
static const char full[] =
    "{\"error\":{\"message\":\"all connections of this server are in use (server.connections); "
    "try again\",\"type\":\"server_error\",\"param\":null,\"code\":\"connections_full\"}}";

/* What was not read would make a reset of the end, which can overtake the answer. */
static void let_go(struct conns *c, int fd)
{
    char drop[DROP_BYTES];
    for (u32 i = 0; i < READS && c->sockets.read(c->sockets.arg, fd, drop, sizeof drop) > 0; i++) {
    }
    c->sockets.close(c->sockets.arg, fd);
}

void away_send(struct conns *c, int fd)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 503 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Retry-After: 1\r\nConnection: close\r\n\r\n%s",
                     http_status_text(503), sizeof full - 1, full);
    ASSERT(n > 0 && (size_t)n < sizeof text);
    struct iovec v = {text, (size_t)n};
    if (c->sockets.write(c->sockets.arg, fd, &v, 1) != n) {
        c->sockets.close(c->sockets.arg, fd);
        return;
    }
    c->sockets.end(c->sockets.arg, fd);
    if (c->n_parting == LIMIT_PARTING) {
        let_go(c, c->parting[0].fd);
        memmove(c->parting, c->parting + 1, --c->n_parting * sizeof *c->parting);
    }
    u64 until = clock_now_ns(&c->clock) + LIMIT_LINGER_MS * (u64)1000000;
    c->parting[c->n_parting++] = (struct parting){fd, until};
    c->next_ns = MIN(c->next_ns, until);
}

void away_turn(struct conns *c, u64 now)
{
    u32 n = 0;
    while (n < c->n_parting && c->parting[n].until_ns <= now)
        let_go(c, c->parting[n++].fd);
    c->n_parting -= n;
    memmove(c->parting, c->parting + n, c->n_parting * sizeof *c->parting);
    if (c->n_parting)
        c->next_ns = MIN(c->next_ns, c->parting[0].until_ns);
}
