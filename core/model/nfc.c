#include "core/model/nfc.h"

#include "core/base/utf8.h"
#include "core/model/unicode.h"

/* Hangul syllables by arithmetic (Unicode 15, section 3.12). */
enum { S0 = 0xac00, L0 = 0x1100, V0 = 0x1161, T0 = 0x11a7, LN = 19, VN = 21, TN = 28 };

bool nfc_is_plain(struct str s)
{
    u32 cp;
    for (size_t i = 0; i < s.n;) {
        if ((u8)s.p[i] < 0x80) {
            i++;
            continue;
        }
        i += unicode_next(s.p + i, &cp);
        if (unicode_of(cp).bits & UNICODE_COMBINES)
            return false;
    }
    return true;
}

static size_t decompose(u32 cp, u32 *out)
{
    if (cp - S0 < LN * VN * TN) {
        u32 s = cp - S0;
        out[0] = L0 + s / (VN * TN);
        out[1] = V0 + s % (VN * TN) / TN;
        out[2] = T0 + s % TN;
        return s % TN ? 3 : 2;
    }
    size_t lo = 0, hi = unicode_decomposed_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (unicode_wide(unicode_decomposed[mid].cp) < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == unicode_decomposed_count || unicode_wide(unicode_decomposed[lo].cp) != cp) {
        out[0] = cp;
        return 1;
    }
    const u32 place = unicode_decomposed[lo].at, n = place % UNICODE_DECOMPOSED_MAX + 1;
    for (u32 i = 0; i < n; i++)
        out[i] = unicode_wide(unicode_pool[place / UNICODE_DECOMPOSED_MAX + i]);
    return n;
}

/* The composite of two characters, or 0. */
static u32 compose(u32 a, u32 b)
{
    if (a - L0 < LN && b - V0 < VN)
        return S0 + ((a - L0) * VN + (b - V0)) * TN;
    if (a - S0 < LN * VN * TN && (a - S0) % TN == 0 && b - T0 - 1 < TN - 1)
        return a + (b - T0);
    size_t lo = 0, hi = unicode_pair_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        const struct unicode_pair *p = &unicode_pairs[mid];
        const u32 first = unicode_wide(p->first);
        if (first < a || (first == a && unicode_wide(p->second) < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == unicode_pair_count)
        return 0;
    const struct unicode_pair *p = &unicode_pairs[lo];
    const bool found = unicode_wide(p->first) == a && unicode_wide(p->second) == b;
    return found ? unicode_wide(p->composed) : 0;
}

/* Stable sort of marks by combining class: counting sort, so that a megabyte of marks is no
 * problem. Short runs, the usual case, by insertion. */
static void sort_marks(u32 *cps, size_t n, u32 *spare)
{
    if (n < 16) {
        for (size_t i = 1; i < n; i++)
            for (size_t j = i; j > 0; j--) {
                u32 left = cps[j - 1], right = cps[j];
                if (unicode_of(left).combining <= unicode_of(right).combining)
                    break;
                cps[j - 1] = right;
                cps[j] = left;
            }
        return;
    }
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[unicode_of(cps[i]).combining + 1]++;
    for (size_t i = 1; i < COUNTOF(at); i++)
        at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++)
        spare[at[unicode_of(cps[i]).combining]++] = cps[i];
    memcpy(cps, spare, n * sizeof *cps);
}

/* Canonical ordering, then composition, in place (UAX 15, D117). */
static size_t recompose(u32 *cps, size_t n, u32 *spare)
{
    for (size_t i = 0; i < n;) {
        size_t j = i;
        while (j < n && unicode_of(cps[j]).combining)
            j++;
        if (j - i > 1)
            sort_marks(cps + i, j - i, spare);
        i = j + 1;
    }
    size_t out = 0, starter = SIZE_MAX; /* of the output */
    for (size_t i = 0; i < n; i++) {
        u32 class = unicode_of(cps[i]).combining;
        if (starter != SIZE_MAX) {
            u32 before = out - 1 == starter ? 0 : unicode_of(cps[out - 1]).combining;
            bool blocked = out - 1 != starter && before >= class;
            u32 joined = blocked ? 0 : compose(cps[starter], cps[i]);
            if (joined) {
                cps[starter] = joined;
                continue;
            }
        }
        if (class == 0)
            starter = out;
        cps[out++] = cps[i];
    }
    return out;
}

/* One stretch: a character that begins anew, and all behind it that may join or move. */
static size_t stretch(struct str s, size_t *at, char *out, u32 *work)
{
    u32 cp, *cps = work, *spare = work + 2 * s.n;
    size_t n = 0, written = 0;
    do {
        *at += unicode_next(s.p + *at, &cp);
        n += decompose(cp, cps + n);
        if (*at < s.n)
            unicode_next(s.p + *at, &cp);
    } while (*at < s.n && (unicode_of(cp).bits & UNICODE_COMBINES));
    n = recompose(cps, n, spare);
    for (size_t i = 0; i < n; i++)
        written += utf8_encode(cps[i], out + written);
    return written;
}

size_t nfc_normalize(struct str s, char *out, u32 *work)
{
    size_t n = 0;
    for (size_t at = 0; at < s.n;)
        n += stretch(s, &at, out + n, work);
    return n;
}
