/* Listeners: TCP over IPv4 and IPv6, Unix sockets, and those the service manager has opened for us
 * (LISTEN_FDS). An address that is reachable from other machines is refused without TLS and keys
 * unless the option server.expose says so by name. Numeric addresses only: no resolver is asked.
 *
 *   127.0.0.1:8080  [::1]:8080  plain:127.0.0.1:8081  unix:/run/zigcuda.sock  systemd
 *
 * With TLS on, TCP speaks TLS, but where "plain:" stands; Unix sockets are plain always.
 *
 * A process that executes itself again hands its listeners over in the environment (LISTEN_KEPT),
 * so that no peer is refused meanwhile: each entry takes the one of its address instead of a new
 * one.
 */
#ifndef ZIGCUDA_LISTEN_H
#define ZIGCUDA_LISTEN_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/err.h"

#define LISTEN_KEPT "ZIGCUDA_LISTENERS" /* PID:FD,FD,... */
enum { LISTEN_KEPT_BYTES = 16 + 12 * LIMIT_LISTENERS };

struct listen_config {
    const char *list;               /* server.listen: commas between */
    bool tls, keys;                 /* TLS is configured; requests need a key */
    bool without_tls, without_keys; /* allowed off loopback, too */
    u32 unix_mode;                  /* permission bits of a Unix socket's file */
    const char *unix_uids;          /* "": its mode decides; else user ids that may connect */
};

struct listener {
    int fd;
    bool tls, is_unix;
    bool loopback; /* an address that only this machine reaches */
    bool inherited;
    char path[108]; /* of a Unix socket we made: removed at the end */
};

struct listeners {
    struct listener at[LIMIT_LISTENERS];
    u32 n;
    u32 uids[LIMIT_UNIX_UIDS], n_uids;
    int kept[LIMIT_LISTENERS]; /* from the process before; -1: taken */
    u32 n_kept;
};

/* Opens all or none. Each is logged with its true address (event=listening). */
MUST enum err listen_open(struct listeners *l, const struct listen_config *g, struct err_text *e);

/* A new connection's descriptor, and the peer's address without its port ("-" on a Unix socket);
 * -errno when there is none (-EPERM: a user not allowed). */
int listen_accept(const struct listeners *l, const struct listener *from,
                  char peer[LIMIT_PEER_BYTES]);

void listen_close(struct listeners *l);

/* Lets the descriptors live through the next exec; `out` becomes the value of LISTEN_KEPT. */
void listen_keep(const struct listeners *l, char out[LISTEN_KEPT_BYTES]);

#endif
