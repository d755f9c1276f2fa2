/* What this machine can give, as the kernel says it: memory now, CPU time. */
#ifndef ZIGCUDA_BOX_H
#define ZIGCUDA_BOX_H

#include "core/base/base.h"

/* Bytes that can be taken without swapping: MemAvailable of /proc/meminfo (without /proc, what is
 * free), or less when a cgroup (version 1 or 2) of this process or one above it says so. 0 when the
 * kernel tells nothing. Below `root`, which is "" but in tests. */
size_t box_available_bytes_of(const char *root);
size_t box_available_bytes(void);

/* Whole CPUs whose time the cgroups (version 1 or 2) of this process and above it allow, one at the
 * least; UINT32_MAX without a limit. More threads than these are stopped for most of a period,
 * often 100 ms, when they have used it up. */
u32 box_cpu_quota_of(const char *root);
u32 box_cpu_quota(void);

#endif
