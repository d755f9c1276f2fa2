#include "core/base/log.h"

#include "core/base/clock.h"
#include "core/base/date.h"
#include "core/base/err.h"
#include "core/base/json.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
    enum log_level level;
    enum log_format format;
    u32 rate;
    i64 second; /* of the monotonic clock that `lines` counts in */
    u32 lines;
    u64 suppressed;
} config = {.level = LOG_WARN, .format = LOG_TEXT};

void log_configure(enum log_level level, enum log_format format, u32 rate)
{
    config.level = level;
    config.format = format;
    config.rate = rate;
}

bool log_is_text(void)
{
    return config.format == LOG_TEXT;
}

/* --- key=value pairs ------------------------------------------------------------------------ */

static bool is_key(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* True where a quoted value may end: at the end, or before ` key=`. */
static bool ends_value(const char *p, const char *end)
{
    if (p == end)
        return true;
    if (*p++ != ' ')
        return false;
    const char *key = p;
    while (p < end && is_key(*p))
        p++;
    return p > key && p < end && *p == '=';
}

static bool next_pair(struct str *rest, struct str *key, struct str *value)
{
    const char *p = rest->p, *end = p + rest->n;
    while (p < end && *p == ' ')
        p++;
    key->p = p;
    while (p < end && is_key(*p))
        p++;
    key->n = (size_t)(p - key->p);
    if (key->n == 0 || p == end || *p != '=')
        return false;
    bool quoted = ++p < end && *p == '"';
    value->p = p += quoted;
    while (p < end && !(quoted ? *p == '"' && ends_value(p + 1, end) : *p == ' '))
        p++;
    value->n = (size_t)(p - value->p);
    p += quoted && p < end;
    *rest = (struct str){p, (size_t)(end - p)};
    return true;
}

static bool is_number(struct str v)
{
    size_t digits = 0, points = 0;
    for (size_t i = v.n && v.p[0] == '-'; i < v.n; i++) {
        digits += v.p[i] >= '0' && v.p[i] <= '9';
        points += v.p[i] == '.';
        if ((v.p[i] < '0' || v.p[i] > '9') && v.p[i] != '.')
            return false;
    }
    bool leading_zero = v.n > 1 && v.p[0] == '0' && v.p[1] != '.';
    return digits && points <= 1 && !leading_zero && v.p[0] != '.' && v.p[v.n - 1] != '.';
}

/* --- the three forms -------------------------------------------------------------------------- */

static void put(struct json_out *o, const char *p, size_t n)
{
    n = MIN(n, o->cap - o->n); /* a long line is cut */
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

static void put_logfmt(struct json_out *o, struct str key, struct str v)
{
    bool plain = v.n > 0;
    for (size_t i = 0; i < v.n; i++)
        plain &= (u8)v.p[i] > ' ' && v.p[i] != '"' && v.p[i] != '=' && v.p[i] != '\\';
    put(o, " ", 1);
    put(o, key.p, key.n);
    put(o, plain ? "=" : "=\"", plain ? 1 : 2);
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] == '"' || v.p[i] == '\\')
            put(o, "\\", 1);
        put(o, (u8)v.p[i] < ' ' || v.p[i] == 0x7f ? "?" : v.p + i, 1); /* one event, one line */
    }
    put(o, "\"", !plain);
}

static void put_json(struct json_out *o, struct str key, struct str v)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)MIN(key.n, sizeof name - 1), key.p);
    struct json_out before = *o;
    json_key(o, name);
    if (is_number(v)) {
        put(o, v.p, v.n);
        o->comma = true;
    } else {
        json_put_str(o, v);
    }
    if (o->full || o->cap - o->n < 2) /* what does not fit is left out whole: still JSON */
        *o = before;
}

static void put_text(struct json_out *o, struct str pairs)
{
    for (size_t i = 0; i < pairs.n; i++)
        put(o, (u8)pairs.p[i] < ' ' || pairs.p[i] == 0x7f ? "?" : pairs.p + i, 1);
}

size_t log_line(char *out, size_t cap, enum log_format format, enum log_level level, u64 time_ns,
                const char *event, struct str pairs)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct date d = date_of((i64)(time_ns / 1000000000));
    struct json_out o = json_out_over(out, cap);
    struct str key, value;
    char time[64];
    snprintf(time, sizeof time, "%04lld-%02u-%02uT%02u:%02u:%02u.%03uZ", (long long)d.year, d.month,
             d.day, d.hour, d.minute, d.second, (u32)(time_ns / 1000000 % 1000));
    if (format == LOG_TEXT) {
        put(&o, "zigcuda: ", 9);
        put(&o, event, strlen(event));
        put(&o, " ", pairs.n > 0);
        put_text(&o, pairs);
        return o.n;
    }
    void (*pair)(struct json_out *, struct str, struct str) = put_json;
    if (format == LOG_LOGFMT) {
        pair = put_logfmt;
        put(&o, "time=", 5);
        put(&o, time, strlen(time));
    } else {
        json_open(&o, '{');
        put_json(&o, STR("time"), str_of(time));
    }
    pair(&o, STR("level"), str_of(names[level]));
    pair(&o, STR("event"), str_of(event));
    while (next_pair(&pairs, &key, &value))
        pair(&o, key, value);
    if (format == LOG_JSON)
        json_close(&o, '}');
    return o.n;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* False when nobody reads what was written before, such as the other end of a full pipe: whoever
 * logs does not wait for that. */
static bool write_event(enum log_level level, const char *event, struct str pairs)
{
    char line[4096]; /* PIPE_BUF: a pipe that can be written to has room for it */
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    struct timespec t;
    if (poll(&fd, 1, 0) == 0)
        return false;
    clock_gettime(CLOCK_REALTIME, &t);
    u64 ns = (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
    size_t n = log_line(line, sizeof line - 1, config.format, level, ns, event, pairs);
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n); /* a log nobody can read is no reason to stop */
    return true;
}

/* False when this second's lines are used up. */
static bool has_room(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (t.tv_sec != config.second) {
        config.second = t.tv_sec;
        config.lines = 0;
        if (config.suppressed) {
            char pairs[32];
            int n =
                snprintf(pairs, sizeof pairs, "lines=%llu", (unsigned long long)config.suppressed);
            if (write_event(LOG_WARN, "suppressed", (struct str){pairs, (size_t)n}))
                config.suppressed = 0;
        }
    }
    return config.rate == 0 || config.lines++ < config.rate;
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    char pairs[ERR_TEXT_MAX + 64];
    if (level > config.level)
        return;
    if (!has_room() && level != LOG_ERROR) {
        config.suppressed++;
        return;
    }
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(pairs, sizeof pairs, fmt, args);
    va_end(args);
    struct str all = {pairs, MIN((size_t)MAX(n, 0), sizeof pairs - 1)};
    config.suppressed += !write_event(level, event, all);
}

void log_phase(const char *name)
{
    static u64 before;
    struct clock clock = clock_system();
    u64 now = clock_now_ns(&clock);
    if (before)
        log_event(LOG_DEBUG, "phase", "name=%s ms=%.2f", name, (double)(now - before) / 1e6);
    before = now;
}
