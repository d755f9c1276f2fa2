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

/* Where the kernel says what cgroups may take, and how. */
struct hierarchy {
    const char *mount, *name;         /* its line in /proc/self/cgroup: number, name, path */
    const char *limits[2];            /* the lower one counts; or NULL */
    const char *used, *active, *rest; /* pages of files, which the kernel drops first */
};

/* Version 2; version 1, as Ubuntu 20.04 and JetPack 5 have it: docs.kernel.org/admin-guide,
 * cgroup-v2.rst and cgroup-v1/memory.rst. */
static const struct hierarchy hierarchies[] = {
    {"/sys/fs/cgroup", "::", {"max", "high"}, "current", "active_file ", "inactive_file "},
    {"/sys/fs/cgroup/memory",
     ":memory:",
     {"limit_in_bytes", NULL},
     "usage_in_bytes",
     "total_active_file ",
     "total_inactive_file "}};

static bool read_memory(const char *root, const struct hierarchy *h, const char *cgroup,
                        const char *what, char *text, size_t cap)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s/memory.%s", h->mount, cgroup, what);
    return n > 0 && (size_t)n < sizeof path && read_below(root, path, text, cap);
}

/* What one cgroup has left: of the lower one of its two limits; pages of files count as free.
 * SIZE_MAX: it has no limit. */
static size_t left_in(const char *root, const struct hierarchy *h, const char *cgroup)
{
    char text[8192];
    size_t limit = SIZE_MAX, used;
    for (u32 i = 0; i < COUNTOF(h->limits); i++)
        if (h->limits[i] && read_memory(root, h, cgroup, h->limits[i], text, sizeof text) &&
            text[0] >= '0' && text[0] <= '9')
            limit = MIN(limit, (size_t)strtoull(text, NULL, 10));
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    used = read_memory(root, h, cgroup, h->used, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
    if (read_memory(root, h, cgroup, "stat", text, sizeof text))
        used = saturating_sub(used, field(text, h->active) + field(text, h->rest));
    return MAX(saturating_sub(limit, used), (size_t)1); /* 0 means that nobody knows */
}

/* This process's own cgroup as /proc has it, "" for the root; of a container without a namespace
 * for them the path leads nowhere, and the root is its own. */
static void own_cgroup(const char *root, const struct hierarchy *h, char out[PATH_BYTES / 2])
{
    char text[PATH_BYTES / 2];
    out[0] = 0;
    if (!read_below(root, "/proc/self/cgroup", text, sizeof text))
        return;
    for (char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        const char *name = strchr(line, ':'), *path = strchr(line, '/');
        if (name && strncmp(name, h->name, strlen(h->name)) == 0 && path && path[1])
            snprintf(out, PATH_BYTES / 2, "%s", path);
    }
}

size_t box_available_bytes_of(const char *root)
{
    size_t available = free_bytes(root);
    for (u32 i = 0; i < COUNTOF(hierarchies); i++) {
        char cgroup[PATH_BYTES / 2];
        own_cgroup(root, &hierarchies[i], cgroup);
        for (char *slash = cgroup; slash;) { /* a limit holds for all that is below it */
            size_t left = left_in(root, &hierarchies[i], cgroup);
            if (left != SIZE_MAX)
                available = available ? MIN(available, left) : left;
            slash = strrchr(cgroup, '/');
            if (slash)
                *slash = 0;
        }
    }
    return available;
}

size_t box_available_bytes(void)
{
    return box_available_bytes_of("");
}
