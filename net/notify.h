/* The service manager's protocol (sd_notify(3)): one datagram a message to NOTIFY_SOCKET, and the
 * watchdog's period. Where there is no service manager nothing happens.
 */
#ifndef ZIGCUDA_NOTIFY_H
#define ZIGCUDA_NOTIFY_H

#include "core/base/base.h"

struct notify {
    int fd;          /* connected; -1: nobody listens */
    u64 watchdog_ns; /* say "WATCHDOG=1" so often; 0: not asked for */
};

void notify_open(struct notify *n);

/* "READY=1", "STOPPING=1", ... */
void notify_send(const struct notify *n, const char *state);

void notify_close(struct notify *n);

#endif
