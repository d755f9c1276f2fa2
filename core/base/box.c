#include "core/base/box.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

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

static size_t saturating_sub(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

size_t box_available_bytes(void)
{
    char text[4096], current[64];
    size_t available = 0;
    const char *line;
    if (read_text("/proc/meminfo", text, sizeof text) && (line = strstr(text, "MemAvailable:")))
        available = strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024;
    if (read_text("/sys/fs/cgroup/memory.max", text, sizeof text) && text[0] != 'm' &&
        read_text("/sys/fs/cgroup/memory.current", current, sizeof current)) {
        size_t room = saturating_sub(strtoull(text, NULL, 10), strtoull(current, NULL, 10));
        available = available ? MIN(available, room) : room;
    }
    return available;
}
