#include "net/listen.h"

#include "core/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, KEEPALIVE_S = 60, INHERITED_FIRST = 3 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};

static bool number(struct str s, u32 max, u32 *out)
{
    u64 n = 0;
    if (!s.n || s.n > 10)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        n = n * 10 + (u64)(s.p[i] - '0');
    }
    *out = (u32)n;
    return n <= max;
}

/* Cuts the first element off a comma-separated list, without blanks around it. */
static struct str next(struct str *list)
{
    const char *comma = memchr(list->p, ',', list->n);
    struct str s = {list->p, comma ? (size_t)(comma - list->p) : list->n};
    size_t n = s.n + (comma != NULL);
    *list = (struct str){list->p + n, list->n - n};
    while (s.n && s.p[0] == ' ')
        s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* --- addresses ------------------------------------------------------------------------------- */

/* 1.2.3.4:80 and [::1]:80 */
static bool parse_tcp(struct str s, union address *a, socklen_t *n)
{
    char host[64];
    u32 port;
    bool v6 = s.n && s.p[0] == '[';
    size_t end = s.n;
    while (end && s.p[end - 1] != ':')
        end--;
    if (end < 2 || !number((struct str){s.p + end, s.n - end}, 65535, &port))
        return false;
    struct str h = {s.p + v6, end - 1 - v6};
    if (v6 && (h.n == 0 || h.p[--h.n] != ']'))
        return false;
    if (h.n >= sizeof host)
        return false;
    memcpy(host, h.p, h.n);
    host[h.n] = 0;
    memset(a, 0, sizeof *a);
    if (v6) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((u16)port);
        *n = sizeof a->v6;
        return inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1;
    }
    a->v4.sin_family = AF_INET;
    a->v4.sin_port = htons((u16)port);
    *n = sizeof a->v4;
    return inet_pton(AF_INET, host, &a->v4.sin_addr) == 1;
}

static bool is_loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static void address_text(int fd, char *out, size_t cap)
{
    union address a = {0};
    socklen_t n = sizeof a;
    char host[64] = "?";
    getsockname(fd, &a.any, &n);
    if (a.any.sa_family == AF_UNIX) {
        snprintf(out, cap, "unix:%.107s", a.un.sun_path);
    } else if (a.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof host);
        snprintf(out, cap, "[%s]:%u", host, ntohs(a.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof host);
        snprintf(out, cap, "%s:%u", host, ntohs(a.v4.sin_port));
    }
}

/* --- opening --------------------------------------------------------------------------------- */

/* Takes over fd; what every listener has to pass. */
static enum err adopt(struct listeners *l, const struct listen_config *g, int fd, bool plain,
                      const char *path, struct err_text *e)
{
    union address a = {0};
    socklen_t n = sizeof a;
    char text[160];
    if (l->n == LIMIT_LISTENERS) {
        close(fd);
        return err_set(e, ERR_CONFIG, "server.listen: more than %d listeners", LIMIT_LISTENERS);
    }
    struct listener *to = &l->at[l->n++];
    *to = (struct listener){.fd = fd};
    snprintf(to->path, sizeof to->path, "%s", path);
    if (getsockname(fd, &a.any, &n) != 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot ask a listener for its address");
    to->is_unix = a.any.sa_family == AF_UNIX;
    to->loopback = is_loopback(&a);
    to->tls = g->tls && !plain && !to->is_unix;
    address_text(fd, text, sizeof text);
    const char *lacks = to->loopback || to->is_unix    ? NULL
                        : !to->tls && !g->without_tls  ? "TLS (tls.certificate, tls.key)"
                        : !g->keys && !g->without_keys ? "keys (keys.file)"
                                                       : NULL;
    if (lacks)
        return err_set(e, ERR_CONFIG,
                       "server.listen: other machines can reach %s, which has no %s; configure "
                       "that, or allow it by name with server.expose",
                       text, lacks);
    if (listen(fd, BACKLOG) != 0)
        return err_set_errno(e, ERR_SYSTEM, "server.listen: cannot listen on %s", text);
    log_event(LOG_INFO, "listening", "address=%s tls=%s", text, to->tls ? "yes" : "no");
    return ERR_OK;
}

/* --- listeners of the process before -----------------------------------------------------------
 */

static void read_kept(struct listeners *l)
{
    struct str list = str_of(getenv(LISTEN_KEPT) ? getenv(LISTEN_KEPT) : "");
    const char *colon = memchr(list.p, ':', list.n);
    u32 pid, fd;
    if (!colon || !number((struct str){list.p, (size_t)(colon - list.p)}, INT32_MAX, &pid) ||
        pid != (u32)getpid())
        return;
    list = (struct str){colon + 1, list.n - (size_t)(colon + 1 - list.p)};
    while (list.n && l->n_kept < LIMIT_LISTENERS && number(next(&list), INT32_MAX, &fd))
        if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0)
            l->kept[l->n_kept++] = (int)fd;
}

static bool same_address(const union address *have, const union address *want)
{
    if (have->any.sa_family != want->any.sa_family)
        return false;
    if (have->any.sa_family == AF_UNIX)
        return strcmp(have->un.sun_path, want->un.sun_path) == 0;
    if (have->any.sa_family == AF_INET)
        return have->v4.sin_addr.s_addr == want->v4.sin_addr.s_addr &&
               (want->v4.sin_port == 0 || have->v4.sin_port == want->v4.sin_port);
    return memcmp(&have->v6.sin6_addr, &want->v6.sin6_addr, sizeof want->v6.sin6_addr) == 0 &&
           (want->v6.sin6_port == 0 || have->v6.sin6_port == want->v6.sin6_port);
}

/* The kept listener of that address, or -1. */
static int take_kept(struct listeners *l, const union address *want)
{
    for (u32 i = 0; i < l->n_kept; i++) {
        union address have = {0};
        socklen_t n = sizeof have;
        int fd = l->kept[i];
        if (fd < 0 || getsockname(fd, &have.any, &n) != 0 || !same_address(&have, want))
            continue;
        l->kept[i] = -1;
        return fd;
    }
    return -1;
}

static void close_kept(struct listeners *l)
{
    for (u32 i = 0; i < l->n_kept; i++)
        if (l->kept[i] >= 0)
            close(l->kept[i]);
    l->n_kept = 0;
}

void listen_keep(const struct listeners *l, char out[LISTEN_KEPT_BYTES])
{
    size_t at = (size_t)snprintf(out, LISTEN_KEPT_BYTES, "%d:", (int)getpid());
    for (u32 i = 0; i < l->n; i++) {
        fcntl(l->at[i].fd, F_SETFD, 0);
        if (!l->at[i].inherited) /* those are found by LISTEN_FDS again */
            at += (size_t)snprintf(out + at, LISTEN_KEPT_BYTES - at, "%d,", l->at[i].fd);
    }
}

/* Accepted sockets inherit these. */
static void stream_options(int fd)
{
    int on = 1, idle = KEEPALIVE_S;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

/* absent: NULL, or set where the box has no such address, which is no error then. */
static enum err open_tcp(struct listeners *l, const struct listen_config *g, struct str s,
                         bool plain, bool *absent, struct err_text *e)
{
    union address a;
    socklen_t n;
    int on = 1;
    if (!parse_tcp(s, &a, &n))
        return err_set(e, ERR_CONFIG,
                       "server.listen: '%.*s' is none of 127.0.0.1:8080, [::1]:8080, "
                       "localhost:8080, :8080 (all addresses), unix:/path and systemd (other names "
                       "are not looked up)",
                       STR_ARG(s));
    int fd = take_kept(l, &a);
    if (fd >= 0)
        return adopt(l, g, fd, plain, "", e);
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 && absent && errno == EAFNOSUPPORT) {
        *absent = true;
        return ERR_OK;
    }
    if (fd < 0)
        return err_set_errno(e, ERR_SYSTEM, "server.listen: no socket for %.*s", STR_ARG(s));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    stream_options(fd);
    if (bind(fd, &a.any, n) != 0) {
        enum err r = ERR_OK;
        if (absent && errno == EADDRNOTAVAIL)
            *absent = true;
        else
            r = err_set_errno(e, ERR_SYSTEM, "server.listen: cannot bind %.*s", STR_ARG(s));
        close(fd);
        return r;
    }
    return adopt(l, g, fd, plain, "", e);
}

/* What stands for one address of each kind. IPv6 may be missing on a box, as it is in many
 * containers; the log then says so. */
static enum err open_host(struct listeners *l, const struct listen_config *g, struct str s,
                          bool plain, struct err_text *e)
{
    static const struct {
        const char *name, *v4, *v6;
    } hosts[] = {
        {":", "0.0.0.0", "[::]"}, {"*:", "0.0.0.0", "[::]"}, {"localhost:", "127.0.0.1", "[::1]"}};
    for (u32 i = 0; i < COUNTOF(hosts); i++) {
        struct str name = str_of(hosts[i].name);
        char v4[32], v6[32];
        u32 port;
        bool absent = false;
        if (!str_starts(s, name) || !number((struct str){s.p + name.n, s.n - name.n}, 65535, &port))
            continue;
        snprintf(v4, sizeof v4, "%s:%u", hosts[i].v4, port);
        snprintf(v6, sizeof v6, "%s:%u", hosts[i].v6, port);
        TRY(open_tcp(l, g, str_of(v4), plain, NULL, e));
        TRY(open_tcp(l, g, str_of(v6), plain, &absent, e));
        if (absent)
            log_event(LOG_INFO, "not_listening", "address=%s text=\"this box has no IPv6 there\"",
                      v6);
        return ERR_OK;
    }
    return open_tcp(l, g, s, plain, NULL, e);
}

/* A socket file nobody listens on any more (its owner was killed) is removed; one in use is not. */
static bool remove_stale(const struct sockaddr_un *un)
{
    struct stat st;
    if (lstat(un->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)un, sizeof *un) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale && unlink(un->sun_path) == 0;
}

static enum err open_unix(struct listeners *l, const struct listen_config *g, struct str path,
                          struct err_text *e)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (path.n >= sizeof un.sun_path || !path.n || path.p[0] != '/')
        return err_set(e, ERR_CONFIG,
                       "server.listen: unix:%.*s needs an absolute path of at most %zu bytes",
                       STR_ARG(path), sizeof un.sun_path - 1);
    memcpy(un.sun_path, path.p, path.n);
    int fd = take_kept(l, &(union address){.un = un});
    if (fd >= 0)
        return adopt(l, g, fd, true, un.sun_path, e);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set_errno(e, ERR_SYSTEM, "server.listen: no socket for %s", un.sun_path);
    mode_t mask = umask((mode_t)(0777 & ~g->unix_mode)); /* never, not even shortly, more open */
    int r = bind(fd, (struct sockaddr *)&un, sizeof un);
    if (r != 0 && errno == EADDRINUSE && remove_stale(&un))
        r = bind(fd, (struct sockaddr *)&un, sizeof un);
    umask(mask);
    if (r != 0) {
        enum err code = err_set_errno(e, ERR_SYSTEM, "server.listen: cannot bind %s", un.sun_path);
        close(fd);
        return code;
    }
    return adopt(l, g, fd, true, un.sun_path, e);
}

/* sd_listen_fds(3): descriptors from 3 on, if they are meant for this process. */
static enum err open_inherited(struct listeners *l, const struct listen_config *g,
                               struct err_text *e)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    u32 p, n;
    if (!pid || !fds || !number(str_of(pid), INT32_MAX, &p) || p != (u32)getpid() ||
        !number(str_of(fds), LIMIT_LISTENERS, &n) || n == 0)
        return err_set(e, ERR_CONFIG,
                       "server.listen: systemd, but no sockets were handed over (LISTEN_FDS); "
                       "start it by a .socket unit");
    for (u32 i = 0; i < n; i++) {
        int fd = INHERITED_FIRST + (int)i, kind = 0, flags = fcntl(fd, F_GETFL);
        socklen_t size = sizeof kind;
        if (flags < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 ||
            kind != SOCK_STREAM)
            return err_set(e, ERR_CONFIG,
                           "server.listen: inherited descriptor %d is no stream "
                           "socket",
                           fd);
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        stream_options(fd); /* a .socket unit sets none of them by itself */
        TRY(adopt(l, g, fd, false, "", e));
        l->at[l->n - 1].inherited = true;
    }
    return ERR_OK;
}

static enum err open_one(struct listeners *l, const struct listen_config *g, struct str s,
                         struct err_text *e)
{
    struct str un = STR("unix:"), plain = STR("plain:");
    if (str_is(s, "systemd"))
        return open_inherited(l, g, e);
    if (str_starts(s, un))
        return open_unix(l, g, (struct str){s.p + un.n, s.n - un.n}, e);
    if (str_starts(s, plain))
        return open_host(l, g, (struct str){s.p + plain.n, s.n - plain.n}, true, e);
    return open_host(l, g, s, false, e);
}

static enum err read_uids(struct listeners *l, const struct listen_config *g, struct err_text *e)
{
    struct str list = str_of(g->unix_uids);
    while (list.n) {
        struct str s = next(&list);
        if (l->n_uids == LIMIT_UNIX_UIDS || !number(s, UINT32_MAX, &l->uids[l->n_uids]))
            return err_set(e, ERR_CONFIG,
                           "server.unix_uids: '%.*s': at most %d user ids (numbers), with commas",
                           STR_ARG(s), LIMIT_UNIX_UIDS);
        l->n_uids++;
    }
    return ERR_OK;
}

enum err listen_open(struct listeners *l, const struct listen_config *g, struct err_text *e)
{
    *l = (struct listeners){0};
    read_kept(l);
    enum err r = read_uids(l, g, e);
    struct str list = str_of(g->list);
    if (r == ERR_OK && !list.n)
        r = err_set(e, ERR_CONFIG, "server.listen is empty: nobody could connect");
    while (r == ERR_OK && list.n)
        r = open_one(l, g, next(&list), e);
    close_kept(l);
    if (r != ERR_OK)
        listen_close(l);
    return r;
}

/* --- accepting ------------------------------------------------------------------------------- */

static bool may_connect(const struct listeners *l, int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (!l->n_uids)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return false;
    for (u32 i = 0; i < l->n_uids; i++)
        if (l->uids[i] == peer.uid)
            return true;
    log_event(LOG_WARN, "unix_denied", "uid=%u pid=%d", peer.uid, peer.pid);
    return false;
}

/* IPv4 in IPv6 (::ffff:1.2.3.4) is written as what it is. */
static void peer_text(const union address *a, char out[LIMIT_PEER_BYTES])
{
    const struct in6_addr *v6 = &a->v6.sin6_addr;
    snprintf(out, LIMIT_PEER_BYTES, "-");
    if (a->any.sa_family == AF_INET)
        inet_ntop(AF_INET, &a->v4.sin_addr, out, LIMIT_PEER_BYTES);
    else if (a->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        inet_ntop(AF_INET, &v6->s6_addr[12], out, LIMIT_PEER_BYTES);
    else if (a->any.sa_family == AF_INET6)
        inet_ntop(AF_INET6, v6, out, LIMIT_PEER_BYTES);
}

int listen_accept(const struct listeners *l, const struct listener *from,
                  char peer[LIMIT_PEER_BYTES])
{
    union address a = {0};
    socklen_t n = sizeof a;
    int fd = accept4(from->fd, &a.any, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return -errno;
    peer_text(&a, peer);
    if (from->is_unix && !may_connect(l, fd)) {
        close(fd);
        return -EPERM;
    }
    return fd;
}

void listen_close(struct listeners *l)
{
    for (u32 i = 0; i < l->n; i++) {
        if (l->at[i].path[0])
            unlink(l->at[i].path);
        close(l->at[i].fd);
    }
    l->n = 0;
}
