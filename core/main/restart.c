#include "core/main/restart.h"

#include "config/limits.h"
#include "core/base/file.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CLOSE_RANGE_ON_EXEC = 4, FIRST = 3 }; /* CLOSE_RANGE_CLOEXEC of linux/close_range.h */

static cpu_set_t cores;
static bool cores_known;

void restart_begin(void)
{
    cores_known = sched_getaffinity(0, sizeof cores, &cores) == 0;
}

static void mark(const char *name, void *unused)
{
    int fd = (int)strtol(name, NULL, 10); /* 0 of "." and ".." */
    (void)unused;
    if (fd >= FIRST)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void restart_close_all(void)
{
    if (syscall(SYS_close_range, FIRST, ~0u, CLOSE_RANGE_ON_EXEC) != 0)
        file_names("/proc/self/fd", mark, NULL); /* before Linux 5.11; there may be a thousand
                                                  * million others below RLIMIT_NOFILE */
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
