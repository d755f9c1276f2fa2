#include "core/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

void assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr,
            "zigcuda: bug: assertion '%s' failed at %s:%d. Please report this line together with "
            "the output of 'zigcuda version'.\n",
            cond, file, line);
    abort();
}

struct str str_of(const char *z)
{
    return (struct str){z, strlen(z)};
}

bool str_eq(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    size_t i = 0;
    for (u64 x, y; i + 8 <= a.n; i += 8) { /* musl's memcmp goes byte by byte */
        memcpy(&x, a.p + i, 8);
        memcpy(&y, b.p + i, 8);
        if (x != y)
            return false;
    }
    while (i < a.n && a.p[i] == b.p[i])
        i++;
    return i == a.n;
}

u64 str_hash(struct str s)
{
    static u64 seed;
    const void *random = seed ? NULL : (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(&seed, random, sizeof seed);
    u64 h = seed ^ s.n;
    for (size_t i = 0; i < s.n; i += 8) {
        u64 x = 0;
        if (s.n - i >= 8)
            memcpy(&x, s.p + i, 8);
        else
            memcpy(&x, s.p + i, s.n - i);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

bool str_starts(struct str a, struct str prefix)
{
    return a.n >= prefix.n && str_eq((struct str){a.p, prefix.n}, prefix);
}

bool str_ends(struct str a, struct str suffix)
{
    return a.n >= suffix.n && str_eq((struct str){a.p + a.n - suffix.n, suffix.n}, suffix);
}

u32 str_distance(struct str a, struct str b)
{
    enum { LOOK = 64 };
    u32 row[LOOK + 1];
    u32 an = (u32)MIN(a.n, (size_t)LOOK), bn = (u32)MIN(b.n, (size_t)LOOK);
    for (u32 j = 0; j <= bn; j++)
        row[j] = j;
    for (u32 i = 1; i <= an; i++) {
        u32 diagonal = row[0];
        row[0] = i;
        for (u32 j = 1; j <= bn; j++) {
            u32 change = diagonal + (a.p[i - 1] != b.p[j - 1]);
            diagonal = row[j];
            row[j] = MIN(change, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[bn];
}

void base64(char *out, const u8 *in, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        u32 v = (u32)in[i] << 16 | (i + 1 < n ? (u32)in[i + 1] << 8 : 0) |
                (i + 2 < n ? (u32)in[i + 2] : 0);
        *out++ = letters[v >> 18];
        *out++ = letters[v >> 12 & 63];
        *out++ = i + 1 < n ? letters[v >> 6 & 63] : '=';
        *out++ = i + 2 < n ? letters[v & 63] : '=';
    }
    *out = 0;
}
