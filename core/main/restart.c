#include "core/main/restart.h"

#include "config/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CLOSE_RANGE_ON_EXEC = 4, FIRST = 3 }; /* CLOSE_RANGE_CLOEXEC of linux/close_range.h */

static cpu_set_t cores;
static bool cores_known;

void restart_begin(void)
{
    cores_known = sched_getaffinity(0, sizeof cores, &cores) == 0;
}

void restart_close_all(void)
{
    struct rlimit r;
    if (syscall(SYS_close_range, FIRST, ~0u, CLOSE_RANGE_ON_EXEC) == 0)
        return; /* Linux 5.11 */
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    for (rlim_t fd = FIRST; fd < r.rlim_cur; fd++)
        fcntl((int)fd, F_SETFD, FD_CLOEXEC);
}

enum err restart_exec(char **argv, const char *variable, const char *value, struct err_text *e)
{
    /* the guest has refused a larger environment */
    static char *environment[LIMIT_GUEST_ENVIRONMENT + 2];
    static char mine[1024];
    size_t n = strlen(variable), count = 0;
    int written = snprintf(mine, sizeof mine, "%s=%s", variable, value);
    ASSERT(written > 0 && (size_t)written < sizeof mine);
    for (char **at = environ; *at && count < LIMIT_GUEST_ENVIRONMENT; at++)
        if (strncmp(*at, variable, n) != 0 || (*at)[n] != '=')
            environment[count++] = *at;
    environment[count] = mine;
    if (cores_known)
        (void)!sched_setaffinity(0, sizeof cores, &cores);
    execve("/proc/self/exe", argv, environment);
    return err_set_errno(e, ERR_SYSTEM, "cannot start again (is /proc mounted?)");
}
