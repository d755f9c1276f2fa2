#include "core/base/log.h"

#include "core/base/date.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static enum log_level max_level = LOG_WARN;
static enum log_format line_format = LOG_TEXT;

void log_configure(enum log_level level, enum log_format format)
{
    max_level = level;
    line_format = format;
}

static int head(char *line, size_t cap, enum log_level level, const char *event)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct timespec t;
    if (line_format == LOG_TEXT)
        return snprintf(line, cap, "zigcuda: %s", event);
    clock_gettime(CLOCK_REALTIME, &t);
    struct date d = date_of(t.tv_sec);
    return snprintf(line, cap, "time=%04lld-%02u-%02uT%02u:%02u:%02u.%03ldZ level=%s event=%s",
                    (long long)d.year, d.month, d.day, d.hour, d.minute, d.second,
                    t.tv_nsec / 1000000, names[level], event);
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[1024];
    if (level > max_level)
        return;
    size_t n = (size_t)head(line, sizeof line - 2, level, event);
    line[n++] = ' ';
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(line + n, sizeof line - 1 - n, fmt, args);
    va_end(args);
    n = MIN(n + (size_t)MAX(more, 0), sizeof line - 2);
    for (size_t i = 0; i < n; i++) /* one event, one line */
        if ((u8)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n); /* a log nobody can read is no reason to stop */
}
