#include "core/main/fault.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>

static const struct model *watched;

/* The path of the file that the address is mapped from; NULL: of none. */
static const char *file_at(const char *address)
{
    for (u32 i = 0; i < watched->files_n; i++)
        if (address >= watched->files[i].p && address < watched->files[i].p + watched->files[i].n)
            return watched->paths[i];
    return NULL;
}

/* Nobody waits for the reader of a full pipe. */
static void say(const char *path)
{
    static const char why[] =
        " cannot be read any more: it was cut short or overwritten, or its disk has failed. "
        "Nothing can be computed without its weights: restore it and start again\n";
    struct iovec line[] = {{(char *)"zigcuda: ", 9},
                           {(char *)(uintptr_t)path, strlen(path)},
                           {(char *)(uintptr_t)why, sizeof why - 1}};
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&fd, 1, 0) != 0)
        (void)!writev(STDERR_FILENO, line, COUNTOF(line));
}

/* Nothing but system calls: what was interrupted may be anything. Back from here the same access
 * faults again, with the default action now; a signal that somebody sent has to be sent again. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    static atomic_flag taken = ATOMIC_FLAG_INIT;
    const bool fault = info->si_code > 0;
    const char *path = fault ? file_at(info->si_addr) : NULL;
    (void)context;
    while (atomic_flag_test_and_set(&taken)) /* other workers read the same file */
        pause();
    if (path)
        say(path);
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    if (!fault)
        raise(number);
}

void fault_watch(const struct model *m)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    watched = m;
    sigaction(SIGBUS, &action, NULL);
}
