#include "config/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct unit {
    const char *name;
    u64 of; /* the smallest unit */
};

/* Largest first. */
static const struct unit size_units[] = {{"TiB", (u64)1 << 40},
                                         {"GiB", (u64)1 << 30},
                                         {"MiB", (u64)1 << 20},
                                         {"KiB", (u64)1 << 10},
                                         {"B", 1},
                                         {"", 1}};
static const struct unit time_units[] = {{"s", 1000}, {"ms", 1}};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at the start of *s, which are taken off. */
static bool take_digits(struct str *s, u64 *out)
{
    u64 v = 0;
    size_t n = 0;
    for (; n < s->n && digit(s->p[n]); n++)
        if (__builtin_mul_overflow(v, (u64)10, &v) ||
            __builtin_add_overflow(v, (u64)(s->p[n] - '0'), &v))
            return false;
    s->p += n;
    s->n -= n;
    *out = v;
    return n > 0;
}

bool value_int(struct str s, u64 *out)
{
    u64 v;
    if (!take_digits(&s, &v) || s.n > 0)
        return false;
    *out = v;
    return true;
}

static bool with_unit(struct str s, const struct unit *units, size_t n, u64 *out)
{
    u64 v;
    if (!take_digits(&s, &v))
        return false;
    while (s.n > 0 && s.p[0] == ' ') {
        s.p++;
        s.n--;
    }
    for (size_t i = 0; i < n; i++)
        if (str_is(s, units[i].name))
            return !__builtin_mul_overflow(v, units[i].of, out);
    return false;
}

bool value_size(struct str s, u64 *bytes)
{
    u64 v;
    if (!with_unit(s, size_units, COUNTOF(size_units), &v))
        return false;
    *bytes = v;
    return true;
}

bool value_time(struct str s, u64 *ms)
{
    u64 v = 0;
    if (!str_is(s, "0") && !with_unit(s, time_units, COUNTOF(time_units), &v))
        return false;
    *ms = v;
    return true;
}

bool value_mode(struct str s, u64 *out)
{
    u64 v = 0;
    if (s.n == 0 || s.n > 4)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '7')
            return false;
        v = v * 8 + (u64)(s.p[i] - '0');
    }
    *out = v;
    return true;
}

bool value_float(struct str s, double *out)
{
    char text[64];
    if (s.n == 0 || s.n >= sizeof text)
        return false;
    for (size_t i = 0; i < s.n; i++) /* strtod also knows blanks, hex, inf and nan */
        if (!digit(s.p[i]) && !memchr("+-.eE", s.p[i], 5))
            return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    char *end;
    double v = strtod(text, &end);
    if (*end || end == text || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool value_bool(struct str s, bool *out)
{
    static const char *const on[] = {"on", "true", "yes", "1"};
    static const char *const off[] = {"off", "false", "no", "0"};
    for (size_t i = 0; i < COUNTOF(on); i++)
        if (str_is(s, on[i]) || str_is(s, off[i])) {
            *out = str_is(s, on[i]);
            return true;
        }
    return false;
}

static const char *put(u64 v, const struct unit *units, size_t n, char *out)
{
    size_t i = 0;
    while (i + 1 < n && v % units[i].of != 0)
        i++;
    if (v == 0)
        snprintf(out, VALUE_TEXT_MAX, "0");
    else
        snprintf(out, VALUE_TEXT_MAX, "%llu %s", (unsigned long long)(v / units[i].of),
                 units[i].name);
    return out;
}

const char *value_put_size(u64 bytes, char out[VALUE_TEXT_MAX])
{
    return put(bytes, size_units, COUNTOF(size_units) - 1, out);
}

const char *value_put_time(u64 ms, char out[VALUE_TEXT_MAX])
{
    return put(ms, time_units, COUNTOF(time_units), out);
}

const char *value_put_float(double v, char out[VALUE_TEXT_MAX])
{
    for (int digits = 1; digits <= 17; digits++) { /* 17 are enough for every double */
        snprintf(out, VALUE_TEXT_MAX, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    return out;
}
