/* What this machine can give: memory now, as the kernel says it. */
#ifndef ZIGCUDA_BOX_H
#define ZIGCUDA_BOX_H

#include "core/base/base.h"

/* Bytes that can be taken without swapping: MemAvailable of /proc/meminfo, or less when a cgroup
 * (version 2) of this process says so. 0 when the kernel tells nothing. */
size_t box_available_bytes(void);

#endif
