/* One connection's bytes: a socket behind a table of functions, TLS or not, and what the peer has
 * not taken yet. Reading goes straight into the caller's buffer; writing goes straight to the
 * socket (or the TLS record) while nothing is waiting, and only the rest is copied.
 *
 * The table is the seam: net/loop fills it with system calls, a simulator with its own peers. The
 * caller owns all memory; a wire never allocates and never blocks.
 */
#ifndef ZIGCUDA_WIRE_H
#define ZIGCUDA_WIRE_H

#include "core/base/base.h"

#include <sys/uio.h>

struct tls;
struct tls_peer;

enum { WIRE_IN = 1, WIRE_OUT = 2, WIRE_GONE = 4 }; /* GONE: the peer has closed or reset */

struct sockets {
    /* Bytes, 0 at the end of the stream, or -errno (-EAGAIN: nothing now). */
    ssize_t (*read)(void *arg, int fd, void *p, size_t n);
    ssize_t (*write)(void *arg, int fd, const struct iovec *v, int n);
    void (*end)(void *arg, int fd); /* no more will be written */
    void (*close)(void *arg, int fd);
    /* conns_ready is called with `id` when `what` (WIRE_IN | WIRE_OUT) is possible, and always for
     * WIRE_GONE. The first call for a descriptor adds it. False: the kernel refused. */
    bool (*watch)(void *arg, int fd, u64 id, u32 what, bool first);
    void *arg;
};

struct wire {
    int fd;
    u8 *out; /* what waits: out[at .. at + n) */
    size_t at, n, cap;
    struct tls_peer *tls; /* NULL: plain */
    u64 bytes_in, bytes_out;
    bool failed; /* sticks: the socket or TLS is beyond use */
    bool ended;  /* the peer sends no more */
};

enum { WIRE_NOTHING = 0, WIRE_END = -1, WIRE_FAILED = -2 };

/* Up to n bytes into p: how many, or WIRE_NOTHING now, WIRE_END, WIRE_FAILED. With TLS, *flights is
 * how many steps of handshakes may still be computed; it is counted down. */
ssize_t wire_read(struct wire *w, const struct sockets *s, void *p, size_t n, u32 *flights);

/* All pieces, or false: failed, or the rest does not fit `out` (then nothing is kept). */
bool wire_write(struct wire *w, const struct sockets *s, const struct iovec *v, int n);

/* Keeps all pieces in `out` behind what waits there; false: they do not fit, nothing is kept. */
bool wire_keep(struct wire *w, const struct iovec *v, int n);

/* Writes what waits. False: failed. */
bool wire_flush(struct wire *w, const struct sockets *s);

/* Bytes that wire_write takes for certain. */
size_t wire_room(const struct wire *w);

/* True while something waits to be written (TLS records too). */
bool wire_waiting(const struct wire *w);

/* True when bytes can be read without the socket becoming readable. */
bool wire_holds(const struct wire *w);

/* True when TLS has bytes of the peer that cannot be read yet: a record in pieces. */
bool wire_arriving(const struct wire *w);

/* Says goodbye (TLS close_notify) and ends the writing side, once nothing waits. */
void wire_end(struct wire *w, const struct sockets *s);

#endif
