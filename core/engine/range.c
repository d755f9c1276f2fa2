#include "core/engine/range.h"

#define HUGE_SIZE 1000000000000000u /* 10^RANGE_DIGITS */

static u64 power(u32 n)
{
    u64 p = 1;
    while (n--)
        p *= 10;
    return p;
}

/* --- bounds ----------------------------------------------------------------------------------- */

/* The digits of a JSON number without zeros on either side, and where their point is; false: more
 * than RANGE_DIGITS. */
static bool digits_of(struct str s, u64 *digits, u32 *n, i32 *point)
{
    u32 zeros = 0; /* that count if another digit comes */
    bool behind = false, exact = true;
    *digits = *n = 0;
    *point = 0;
    for (size_t i = 0; i < s.n && (s.p[i] | 0x20) != 'e'; i++) {
        u32 digit = (u32)(s.p[i] - '0');
        if (s.p[i] == '.') {
            behind = true;
        } else if (*n == 0 && digit == 0) {
            *point -= behind;
        } else {
            *point += !behind;
            zeros++;
            if (digit == 0)
                continue;
            exact = exact && *n + zeros <= RANGE_DIGITS;
            *digits = exact ? *digits * power(zeros) + digit : 0;
            *n += zeros;
            zeros = 0;
        }
    }
    return exact;
}

static i32 exponent_of(struct str s)
{
    size_t i = 0;
    i32 e = 0;
    while (i < s.n && (s.p[i] | 0x20) != 'e')
        i++;
    bool negative = i + 1 < s.n && s.p[i + 1] == '-';
    for (; i < s.n; i++)
        if (s.p[i] >= '0' && s.p[i] <= '9')
            e = MIN(e * 10 + (s.p[i] - '0'), 1000000);
    return negative ? -e : e;
}

bool range_end_of(struct str number, bool open, struct range_end *out)
{
    u64 digits;
    u32 n;
    i32 point;
    *out = (struct range_end){.bound = {.set = true, .open = open, .whole = 1, .n = 1}};
    out->negative = number.p[0] == '-';
    number = (struct str){number.p + out->negative, number.n - out->negative};
    bool exact = digits_of(number, &digits, &n, &point);
    if (n == 0) {
        out->negative = false;
        return true;
    }
    point += exponent_of(number);
    out->huge = point > RANGE_DIGITS;
    if (out->huge)
        return true;
    i32 before = MAX(point, 1), all = before + MAX((i32)n - point, 0);
    if (!exact || all > RANGE_DIGITS - open)
        return false;
    out->bound.whole = (u8)before;
    out->bound.n = (u8)all;
    out->bound.digits = digits * power((u32)MAX(point - (i32)n, 0));
    return true;
}

/* Below, equal, above: of two sizes. */
static int compare(const struct range_bound *a, const struct range_bound *b)
{
    u64 x = a->digits * power(RANGE_DIGITS - a->n), y = b->digits * power(RANGE_DIGITS - b->n);
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool is_zero(const struct range_bound *b)
{
    return b->digits == 0;
}

/* The integer next to a bound, inwards: that is away from 0, or towards it. False: there is none
 * of so many digits, or none on this side of 0. */
static bool to_whole(struct range_bound *b, bool away)
{
    u64 unit = power((u32)(b->n - b->whole)), size = b->digits / unit;
    bool fraction = b->digits % unit;
    if (away)
        size += fraction || b->open;
    else if (b->open && !fraction && size == 0)
        return false;
    else
        size -= b->open && !fraction;
    *b = (struct range_bound){.digits = size, .n = 1, .set = true};
    while (b->n < RANGE_DIGITS && size >= power(b->n))
        b->n++;
    b->whole = b->n;
    return size < HUGE_SIZE;
}

/* One side of 0: sizes from low to high. NULL: no such bound. False: nothing is between them. */
static bool side(const struct range_bound *low, const struct range_bound *high, bool whole,
                 struct range_bound *to_low, struct range_bound *to_high)
{
    *to_low = low ? *low : (struct range_bound){0};
    *to_high = high ? *high : (struct range_bound){0};
    if ((low && whole && !to_whole(to_low, true)) || (high && whole && !to_whole(to_high, false)))
        return false;
    if (!high)
        return true;
    if (!low)
        return !(to_high->open && is_zero(to_high));
    int order = compare(to_low, to_high);
    return order < 0 || (order == 0 && !to_low->open && !to_high->open);
}

bool range_of(const struct range_end *low, const struct range_end *high, bool whole,
              struct range *out)
{
    *out = (struct range){0};
    for (u32 i = 0; i < 2; i++) {
        const struct range_end *near = i ? high : low, *far = i ? low : high;
        bool sign = i, out_of = near && near->huge && near->negative == sign;
        /* Below 0 there are no numbers where 0 is the lowest one: -0 is not asked for. */
        bool none = far && (far->negative != sign) && (sign || !is_zero(&far->bound) || far->huge);
        const struct range_bound *inner = near && (near->negative == sign) ? &near->bound : NULL;
        if (near && !near->huge && is_zero(&near->bound))
            inner = near->bound.open ? &near->bound : NULL;
        const struct range_bound *outer = far && !far->huge ? &far->bound : NULL;
        out->none[i] = none || out_of || !side(inner, outer, whole, &out->low[i], &out->high[i]);
    }
    return !out->none[0] || !out->none[1];
}

static bool same_bound(const struct range_bound *a, const struct range_bound *b)
{
    return a->digits == b->digits && a->n == b->n && a->whole == b->whole && a->open == b->open &&
           a->set == b->set;
}

bool range_same(const struct range *a, const struct range *b)
{
    bool same = true;
    for (u32 i = 0; i < 2; i++)
        same = same && a->none[i] == b->none[i] && same_bound(&a->low[i], &b->low[i]) &&
               same_bound(&a->high[i], &b->high[i]);
    return same;
}

/* --- digits ----------------------------------------------------------------------------------- */

enum { BELOW, EQUAL, ABOVE }; /* in the order of numbers */
enum { LOW_SHIFT = 0, HIGH_SHIFT = 2, SIGN_SHIFT = 4 };

static u32 against(const struct range_at *at, u32 shift)
{
    return at->compare >> shift & 3;
}

static void set_against(struct range_at *at, u32 shift, u32 how)
{
    at->compare = (u16)((at->compare & ~(3u << shift)) | how << shift);
}

static bool sign_of(const struct range_at *at)
{
    return at->compare >> SIGN_SHIFT;
}

static u32 digit_of(const struct range_bound *b, u32 i)
{
    return i < b->n ? (u32)(b->digits / power(b->n - 1 - i) % 10) : 0;
}

/* Is one of the digits behind the first i not 0? */
static bool has_more(const struct range_bound *b, u32 i)
{
    return i < b->n && b->digits % power(b->n - i);
}

struct range_at range_begin(bool negative)
{
    return (struct range_at){.compare = (u16)(EQUAL << LOW_SHIFT | EQUAL << HIGH_SHIFT |
                                              (negative ? 1 : 0) << SIGN_SHIFT)};
}

/* Can it be a number at or above `low`, with `whole` digits before the point? */
static bool reaches(const struct range_bound *low, const struct range_at *at, u32 whole)
{
    u32 how = against(at, LOW_SHIFT);
    if (!low->set || whole != low->whole)
        return !low->set || whole > low->whole;
    return how == ABOVE || (how == EQUAL && (!low->open || at->digits < RANGE_DIGITS));
}

static bool stays(const struct range_bound *high, const struct range_at *at, u32 whole)
{
    u32 how = against(at, HIGH_SHIFT);
    if (!high->set || whole != high->whole)
        return !high->set || whole < high->whole;
    return how == BELOW || (how == EQUAL && (!high->open || has_more(high, at->digits)));
}

static bool goes_on(const struct range *r, const struct range_at *at, bool may_grow)
{
    bool sign = sign_of(at);
    u32 from = at->whole ? at->whole : at->digits, to = may_grow ? RANGE_DIGITS : from;
    for (u32 whole = from; whole <= to && !r->none[sign]; whole++)
        if (reaches(&r->low[sign], at, whole) && stays(&r->high[sign], at, whole))
            return true;
    return false;
}

static void compare_digit(const struct range_bound *b, struct range_at *at, u32 shift, u32 digit)
{
    u32 of_bound = digit_of(b, at->digits);
    if (against(at, shift) == EQUAL && digit != of_bound)
        set_against(at, shift, digit < of_bound ? BELOW : ABOVE);
}

bool range_digit(const struct range *r, struct range_at *at, u8 digit, bool may_grow)
{
    bool sign = sign_of(at);
    if (at->digits == RANGE_DIGITS)
        return false;
    compare_digit(&r->low[sign], at, LOW_SHIFT, digit - '0');
    compare_digit(&r->high[sign], at, HIGH_SHIFT, digit - '0');
    at->digits++;
    return goes_on(r, at, may_grow);
}

bool range_point(const struct range *r, struct range_at *at)
{
    at->whole = at->digits;
    return at->digits < RANGE_DIGITS && goes_on(r, at, false);
}

bool range_complete(const struct range *r, const struct range_at *at)
{
    bool sign = sign_of(at);
    const struct range_bound *low = &r->low[sign];
    u32 whole = at->whole ? at->whole : at->digits;
    bool short_of = low->set && whole == low->whole && against(at, LOW_SHIFT) == EQUAL &&
                    (low->open || has_more(low, at->digits));
    return !short_of && goes_on(r, at, false);
}
