/* What this machine can give: memory now, as the kernel says it. */
#ifndef ZIGCUDA_BOX_H
#define ZIGCUDA_BOX_H

#include "core/base/base.h"

/* Bytes that can be taken without swapping: MemAvailable of /proc/meminfo (without /proc, what is
 * free), or less when a cgroup (version 1 or 2) of this process or one above it says so. 0 when the
 * kernel tells nothing. Below `root`, which is "" but in tests. */
size_t box_available_bytes_of(const char *root);
size_t box_available_bytes(void);

#endif
