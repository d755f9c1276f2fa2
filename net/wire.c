#include "net/wire.h"

#include "net/tls.h"

#include <errno.h>

/* TLS_READS: of one call that gave no data: pieces of records. */
enum { TLS_READS = 4, TLS_HEAD_BYTES = 5 };

static bool again(ssize_t r)
{
    return r == -EAGAIN || r == -EINTR;
}

/* Sends TLS records until none waits or the socket takes no more. */
static bool send_records(struct wire *w, const struct sockets *s)
{
    size_t n;
    for (const u8 *p; !w->failed && (p = tls_waiting(w->tls, &n));) {
        struct iovec v = {(void *)p, n};
        ssize_t r = s->write(s->arg, w->fd, &v, 1);
        if (again(r))
            return true;
        if (r <= 0) {
            w->failed = true;
            break;
        }
        w->bytes_out += (u64)r;
        tls_sent(w->tls, (size_t)r);
    }
    return !w->failed;
}

static ssize_t read_socket(struct wire *w, const struct sockets *s, void *p, size_t n)
{
    ssize_t r = s->read(s->arg, w->fd, p, n);
    if (r > 0) {
        w->bytes_in += (u64)r;
        return r;
    }
    if (again(r))
        return WIRE_NOTHING;
    w->ended |= r == 0;
    w->failed |= r < 0;
    return r == 0 ? WIRE_END : WIRE_FAILED;
}

static ssize_t read_tls(struct wire *w, const struct sockets *s, void *p, size_t n, u32 *flights)
{
    for (u32 i = 0; i < TLS_READS; i++) {
        size_t got = tls_read(w->tls, p, n), room, waiting;
        if (got)
            return (ssize_t)got;
        bool sent = send_records(w, s); /* of our goodbye, too: then it is closed */
        enum tls_state state = tls_state(w->tls);
        if (!sent || state == TLS_FAILED) {
            w->failed = true;
            return WIRE_FAILED;
        }
        if (state == TLS_CLOSED) {
            w->ended = true;
            return WIRE_END;
        }
        u8 *to = tls_room(w->tls, &room);
        if (!to && state == TLS_OPEN) { /* has said goodbye, and does not take what waits for it */
            w->ended = true;
            return WIRE_END;
        }
        if (!to || (state == TLS_HANDSHAKE && *flights == 0))
            return WIRE_NOTHING;
        ssize_t r = read_socket(w, s, to, room);
        if (r <= 0)
            return r;
        tls_came(w->tls, (size_t)r);
        /* An answer of ours in a handshake is what public keys were needed for. */
        if (state == TLS_HANDSHAKE && *flights && tls_waiting(w->tls, &waiting))
            --*flights;
    }
    return WIRE_NOTHING;
}

ssize_t wire_read(struct wire *w, const struct sockets *s, void *p, size_t n, u32 *flights)
{
    if (w->failed)
        return WIRE_FAILED;
    if (w->ended)
        return WIRE_END;
    return w->tls ? read_tls(w, s, p, n, flights) : read_socket(w, s, p, n);
}

/* How much of the pieces was taken, by the socket or by a TLS record; on failure w->failed. */
static size_t push(struct wire *w, const struct sockets *s, const struct iovec *v, int n)
{
    size_t taken = 0;
    if (!w->tls) {
        ssize_t r = s->write(s->arg, w->fd, v, n);
        w->failed |= r < 0 && !again(r);
        w->bytes_out += r > 0 ? (u64)r : 0;
        return r > 0 ? (size_t)r : 0;
    }
    for (int i = 0; i < n && !w->failed; i++)
        for (size_t at = 0; at < v[i].iov_len;) {
            const u8 *p = v[i].iov_base;
            size_t k = tls_write(w->tls, p + at, v[i].iov_len - at);
            if (k == 0) { /* the record is full */
                tls_flush(w->tls);
                if (!send_records(w, s))
                    return taken;
                k = tls_write(w->tls, p + at, v[i].iov_len - at);
            }
            if (k == 0)
                return taken;
            at += k;
            taken += k;
        }
    tls_flush(w->tls);
    send_records(w, s);
    return taken;
}

/* Copies the pieces behind `skip` bytes of them. */
static bool keep(struct wire *w, const struct iovec *v, int n, size_t skip)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += v[i].iov_len;
    ASSERT(skip <= total);
    if (total - skip > w->cap - w->n)
        return false;
    if (w->at && total - skip > w->cap - w->at - w->n) {
        memmove(w->out, w->out + w->at, w->n);
        w->at = 0;
    }
    for (int i = 0; i < n; i++) {
        size_t past = MIN(skip, v[i].iov_len), k = v[i].iov_len - past;
        skip -= past;
        if (k)
            memcpy(w->out + w->at + w->n, (const u8 *)v[i].iov_base + past, k);
        w->n += k;
    }
    return true;
}

bool wire_write(struct wire *w, const struct sockets *s, const struct iovec *v, int n)
{
    if (w->failed)
        return false;
    size_t taken = w->n ? 0 : push(w, s, v, n);
    return !w->failed && keep(w, v, n, taken);
}

bool wire_keep(struct wire *w, const struct iovec *v, int n)
{
    return keep(w, v, n, 0);
}

bool wire_flush(struct wire *w, const struct sockets *s)
{
    if (w->tls && !send_records(w, s))
        return false;
    while (w->n && !w->failed) {
        struct iovec v = {w->out + w->at, w->n};
        size_t taken = push(w, s, &v, 1);
        w->n -= taken;
        w->at = w->n ? w->at + taken : 0;
        if (!taken)
            break;
    }
    return !w->failed;
}

size_t wire_room(const struct wire *w)
{
    return w->failed ? 0 : w->cap - w->n;
}

bool wire_waiting(const struct wire *w)
{
    size_t n;
    return w->n || (w->tls && tls_waiting(w->tls, &n));
}

bool wire_holds(const struct wire *w)
{
    return w->tls && tls_holds(w->tls);
}

bool wire_arriving(const struct wire *w)
{
    size_t room; /* the engine asks for a record's head, and then for what that says */
    return w->tls && tls_room(w->tls, &room) && room != TLS_HEAD_BYTES;
}

void wire_end(struct wire *w, const struct sockets *s)
{
    if (w->failed)
        return;
    if (w->tls) {
        tls_close(w->tls);
        send_records(w, s);
    }
    s->end(s->arg, w->fd);
}
