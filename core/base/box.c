#include "core/base/box.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { PATH_BYTES = 8192 };

/* Files of /proc and /sys say no size: read what comes, up to the buffer. */
static bool read_text(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, cap - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool read_below(const char *root, const char *path, char *out, size_t cap)
{
    char whole[PATH_BYTES];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof whole && read_text(whole, out, cap);
}

static size_t saturating_sub(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

/* The number behind `name` at the start of a line; 0 where there is none. */
static size_t field(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, n) == 0)
            return strtoull(line + n, NULL, 10);
    return 0;
}

static size_t free_bytes(const char *root)
{
    char text[4096];
    struct sysinfo info;
    if (read_below(root, "/proc/meminfo", text, sizeof text))
        return field(text, "MemAvailable:") * 1024;
    if (sysinfo(&info) != 0) /* a chroot, or ProcSubset=pid */
        return 0;
    return ((size_t)info.freeram + info.bufferram) * info.mem_unit;
}

/* --- cgroups: docs.kernel.org/admin-guide, cgroup-v2.rst, cgroup-v1/memory.rst, and scheduler/
 * sched-bwc.rst. Version 1 is what Ubuntu 20.04 and JetPack 5 have. ------------------------- */

/* The number in a file of a cgroup; SIZE_MAX: there is none, or "max". *second: the one behind it.
 */
static size_t number_in(const char *root, const char *folder, const char *file, size_t *second)
{
    char path[PATH_BYTES], text[64], *end;
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (n < 0 || (size_t)n >= sizeof path || !read_below(root, path, text, sizeof text) ||
        text[0] < '0' || text[0] > '9')
        return SIZE_MAX;
    size_t number = strtoull(text, &end, 10);
    if (second)
        *second = strtoull(end, NULL, 10);
    return number;
}

/* What a limit leaves; pages of files count as free, as the kernel drops them first: `active` and
 * `rest` of memory.stat. */
static size_t left_of(const char *root, const char *folder, size_t limit, const char *used_file,
                      const char *active, const char *rest)
{
    char path[PATH_BYTES], text[8192];
    size_t used = number_in(root, folder, used_file, NULL);
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    used = used == SIZE_MAX ? 0 : used;
    int n = snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (n > 0 && (size_t)n < sizeof path && read_below(root, path, text, sizeof text))
        used = saturating_sub(used, field(text, active) + field(text, rest));
    return MAX(saturating_sub(limit, used), (size_t)1); /* 0 means that nobody knows */
}

static size_t memory_left(const char *root, const char *folder)
{
    size_t limit = MIN(number_in(root, folder, "memory.max", NULL),
                       number_in(root, folder, "memory.high", NULL));
    return left_of(root, folder, limit, "memory.current", "active_file ", "inactive_file ");
}

static size_t memory_left_1(const char *root, const char *folder)
{
    size_t limit = number_in(root, folder, "memory.limit_in_bytes", NULL);
    return left_of(root, folder, limit, "memory.usage_in_bytes", "total_active_file ",
                   "total_inactive_file ");
}

static size_t cpus(size_t quota, size_t period)
{
    return quota == SIZE_MAX || !period ? SIZE_MAX : MAX(quota / period, (size_t)1);
}

static size_t cpu_quota(const char *root, const char *folder)
{
    size_t period = 0, quota = number_in(root, folder, "cpu.max", &period);
    return cpus(quota, period);
}

static size_t cpu_quota_1(const char *root, const char *folder)
{
    return cpus(number_in(root, folder, "cpu.cfs_quota_us", NULL), /* -1: none */
                number_in(root, folder, "cpu.cfs_period_us", NULL));
}

/* Is `name` one of a list with commas? */
static bool lists(const char *list, size_t n, const char *name)
{
    for (const char *end = list + n; list <= end;) {
        size_t one = strcspn(list, ",:");
        if (one == strlen(name) && strncmp(list, name, one) == 0)
            return true;
        list += one + 1;
    }
    return false;
}

/* This process's own cgroup as /proc has it, "" for the root; of a container without a namespace
 * for them the path leads nowhere, and the root is its own. controller: "" in version 2. */
static void own_cgroup(const char *root, const char *controller, char out[PATH_BYTES / 2])
{
    char text[PATH_BYTES / 2];
    out[0] = 0;
    if (!read_below(root, "/proc/self/cgroup", text, sizeof text))
        return;
    for (char *line = text, *end; line; line = end) { /* number:controllers:path */
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        const char *list = strchr(line, ':'), *path = list ? strchr(++list, ':') : NULL;
        if (path && lists(list, (size_t)(path - list), controller) && path[1] == '/' && path[2])
            snprintf(out, PATH_BYTES / 2, "%s", path + 1);
    }
}

/* The least that its cgroup and those above it allow, as `of` has it of one; SIZE_MAX: no limit. */
static size_t least(const char *root, const char *mount, const char *controller,
                    size_t (*of)(const char *root, const char *folder))
{
    char cgroup[PATH_BYTES / 2], folder[PATH_BYTES];
    size_t all = SIZE_MAX;
    own_cgroup(root, controller, cgroup);
    for (char *slash = cgroup; slash;) {
        snprintf(folder, sizeof folder, "%s%s", mount, cgroup);
        all = MIN(all, of(root, folder));
        slash = strrchr(cgroup, '/');
        if (slash)
            *slash = 0;
    }
    return all;
}

size_t box_available_bytes_of(const char *root)
{
    size_t left = MIN(least(root, "/sys/fs/cgroup", "", memory_left),
                      least(root, "/sys/fs/cgroup/memory", "memory", memory_left_1));
    size_t available = free_bytes(root);
    return left == SIZE_MAX ? available : available ? MIN(available, left) : left;
}

u32 box_cpu_quota_of(const char *root)
{
    size_t quota = MIN(least(root, "/sys/fs/cgroup", "", cpu_quota),
                       least(root, "/sys/fs/cgroup/cpu", "cpu", cpu_quota_1));
    return (u32)MIN(quota, (size_t)UINT32_MAX);
}

u32 box_cpu_quota(void)
{
    return box_cpu_quota_of("");
}

size_t box_available_bytes(void)
{
    return box_available_bytes_of("");
}
