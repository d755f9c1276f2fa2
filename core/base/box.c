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

/* What one cgroup has left: of the lower one of its two limits; pages of files count as free, as
 * the kernel drops them first. SIZE_MAX: it has no limit. */
static size_t left_in(const char *root, const char *cgroup)
{
    static const char *const limits[] = {"max", "high"};
    char path[PATH_BYTES], text[8192];
    size_t limit = SIZE_MAX, used;
    for (u32 i = 0; i < COUNTOF(limits); i++) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.%s", cgroup, limits[i]);
        if (read_below(root, path, text, sizeof text) && text[0] >= '0' && text[0] <= '9')
            limit = MIN(limit, (size_t)strtoull(text, NULL, 10));
    }
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", cgroup);
    used = read_below(root, path, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", cgroup);
    if (read_below(root, path, text, sizeof text))
        used = saturating_sub(used, field(text, "active_file ") + field(text, "inactive_file "));
    return MAX(saturating_sub(limit, used), (size_t)1); /* 0 means that nobody knows */
}

/* This process's own cgroup as /proc has it, "" for the root; of a container without a namespace
 * for them the path leads nowhere, and the root is its own. */
static void own_cgroup(const char *root, char out[PATH_BYTES / 2])
{
    char text[PATH_BYTES / 2];
    out[0] = 0;
    if (!read_below(root, "/proc/self/cgroup", text, sizeof text))
        return;
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return;
    line = strchr(line, '/');
    if (line && line[1] != '\n')
        snprintf(out, PATH_BYTES / 2, "%.*s", (int)strcspn(line, "\n"), line);
}

size_t box_available_bytes_of(const char *root)
{
    size_t available = free_bytes(root);
    char cgroup[PATH_BYTES / 2];
    own_cgroup(root, cgroup);
    for (;;) { /* a limit holds for all that is below it */
        size_t left = left_in(root, cgroup);
        if (left != SIZE_MAX)
            available = available ? MIN(available, left) : left;
        char *slash = strrchr(cgroup, '/');
        if (!slash)
            return available;
        *slash = 0;
    }
}

size_t box_available_bytes(void)
{
    return box_available_bytes_of("");
}
