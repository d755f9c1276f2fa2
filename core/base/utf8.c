#include "core/base/utf8.h"

/* Bytes in a character by its lead byte, 0 for none; and the range of its second byte
 * (Unicode 15, table 3-7). */
static u32 lead(u8 b, u8 *lo, u8 *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (b < 0x80)
        return 1;
    if (b < 0xc2)
        return 0;
    if (b < 0xe0)
        return 2;
    if (b < 0xf0) {
        if (b == 0xe0)
            *lo = 0xa0;
        if (b == 0xed)
            *hi = 0x9f;
        return 3;
    }
    if (b > 0xf4)
        return 0;
    if (b == 0xf0)
        *lo = 0x90;
    if (b == 0xf4)
        *hi = 0x8f;
    return 4;
}

/* How many bytes at p agree with one character; *want is its full length (0: bad lead). */
static u32 agree(const u8 *p, size_t n, u32 *want)
{
    u8 lo, hi;
    *want = lead(p[0], &lo, &hi);
    if (*want == 0)
        return 0;
    u32 i = 1;
    while (i < *want && i < n && p[i] >= lo && p[i] <= hi) {
        lo = 0x80;
        hi = 0xbf;
        i++;
    }
    return i;
}

u32 utf8_decode(const char *s, size_t n, u32 *cp)
{
    const u8 *p = (const u8 *)s;
    u32 want;
    if (agree(p, n, &want) != want || want == 0)
        return 0;
    u32 c = want == 1 ? p[0] : p[0] & (0x7fu >> want);
    for (u32 i = 1; i < want; i++)
        c = c << 6 | (p[i] & 0x3f);
    *cp = c;
    return want;
}

u32 utf8_encode(u32 c, char *out)
{
    ASSERT(c <= 0x10ffff && (c < 0xd800 || c > 0xdfff));
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    u32 n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (u32 i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)((0xf00u >> n) | c);
    return n;
}

bool utf8_valid(struct str s)
{
    for (size_t i = 0; i < s.n;) {
        u32 cp, n = utf8_decode(s.p + i, s.n - i, &cp);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

u32 utf8_bad_length(const char *s, size_t n)
{
    u32 want, good = agree((const u8 *)s, n, &want);
    return MAX(good, 1u);
}

bool utf8_incomplete(const char *s, size_t n)
{
    if (n == 0)
        return false;
    u32 want, good = agree((const u8 *)s, n, &want);
    return want > good && good == n;
}
