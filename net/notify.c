#include "net/notify.h"

#include "core/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool variable(const char *name, u64 *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return false;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    *out = v;
    return errno == 0 && !*end && *text != '-';
}

void notify_open(struct notify *n)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    u64 usec, pid;
    *n = (struct notify){.fd = -1};
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof un.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(un.sun_path, path, length);
    if (*path == '@') /* the abstract namespace */
        un.sun_path[0] = 0;
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (n->fd >= 0 && connect(n->fd, (struct sockaddr *)&un, size) != 0) {
        log_event(LOG_WARN, "notify", "text=\"cannot reach NOTIFY_SOCKET\"");
        notify_close(n);
        return;
    }
    bool ours = !variable("WATCHDOG_PID", &pid) || pid == (u64)getpid();
    if (ours && variable("WATCHDOG_USEC", &usec) && usec && usec < UINT64_MAX / 1000)
        n->watchdog_ns = usec * 1000 / 2;
}

void notify_send(const struct notify *n, const char *state)
{
    if (n->fd >= 0 && send(n->fd, state, strlen(state), MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        log_event(LOG_WARN, "notify", "text=\"the service manager takes no message\"");
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
}
