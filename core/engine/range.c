#include "core/engine/range.h"

/* 10^n; n: 0 to RANGE_DIGITS. */
static u64 power(u32 n)
{
    static const u64 powers[RANGE_DIGITS + 1] = {1,
                                                 10,
                                                 100,
                                                 1000,
                                                 10000,
                                                 100000,
                                                 1000000,
                                                 10000000,
                                                 100000000,
                                                 1000000000,
                                                 10000000000,
                                                 100000000000,
                                                 1000000000000,
                                                 10000000000000,
                                                 100000000000000,
                                                 1000000000000000};
    return powers[n];
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

static bool is_zero(const struct range_bound *b)
{
    return b->digits == 0;
}

static bool same_bound(const struct range_bound *a, const struct range_bound *b)
{
    return a->digits == b->digits && a->n == b->n && a->whole == b->whole && a->open == b->open &&
           a->set == b->set;
}

bool range_same(const struct range *a, const struct range *b)
{
    bool same = a->step.size == b->step.size && a->step.behind == b->step.behind;
    for (u32 i = 0; i < 2; i++)
        same = same && a->none[i] == b->none[i] && same_bound(&a->low[i], &b->low[i]) &&
               same_bound(&a->high[i], &b->high[i]);
    return same;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* The greatest common divisor. */
static u64 common(u64 a, u64 b)
{
    while (b) {
        u64 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool range_step_of(struct str number, struct range_step *out)
{
    struct range_end end;
    if (!range_end_of(number, false, &end) || end.huge || end.bound.n > RANGE_STEP_DIGITS)
        return false;
    out->size = end.negative ? 0 : (u32)end.bound.digits;
    out->behind = end.bound.n - end.bound.whole;
    return true;
}

struct range_step range_step_whole(struct range_step step)
{
    u64 size = step.size / common(step.size, power(step.behind));
    return (struct range_step){.size = (u32)size};
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
    at->compare = (u8)((at->compare & ~(3u << shift)) | how << shift);
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
    return (struct range_at){.compare = (u8)(EQUAL << LOW_SHIFT | EQUAL << HIGH_SHIFT |
                                             (negative ? 1 : 0) << SIGN_SHIFT)};
}

/* Digits i to n of a bound, as an integer. */
static u64 tail(const struct range_bound *b, u32 i, u32 n)
{
    u64 head = n < b->n ? b->digits / power(b->n - n) : b->digits * power(n - b->n);
    return head % power(n - i);
}

/* Of the numbers that begin so and have `whole` digits before the point and n in all: the first one
 * that is not below the bound, by what follows in it. */
static u64 tails_first(const struct range_bound *low, const struct range_at *at, u32 whole, u32 n)
{
    u32 how = against(at, LOW_SHIFT);
    if (!low->set || whole > low->whole || (whole == low->whole && how == ABOVE))
        return 0;
    if (whole < low->whole || how == BELOW)
        return UINT64_MAX;
    return tail(low, at->digits, n) + (low->open || has_more(low, n));
}

/* And the one behind the last that is not above it. */
static u64 tails_end(const struct range_bound *high, const struct range_at *at, u32 whole, u32 n)
{
    u32 how = against(at, HIGH_SHIFT);
    if (!high->set || whole < high->whole || (whole == high->whole && how == BELOW))
        return power(n - at->digits);
    if (whole > high->whole || how == ABOVE)
        return 0;
    return tail(high, at->digits, n) + (!high->open || has_more(high, n));
}

/* With n digits in all, of which `whole` are before the point: is one that begins so in it? */
static bool fits(const struct range *r, const struct range_at *at, u32 whole, u32 n)
{
    bool sign = sign_of(at);
    u64 first = tails_first(&r->low[sign], at, whole, n);
    u64 end = tails_end(&r->high[sign], at, whole, n);
    if (first >= end || r->step.size == 1)
        return first < end;
    /* Without its point it is a multiple of this. */
    u64 step = r->step.size / common(r->step.size, power(r->step.behind - (n - whole)));
    u64 begun = at->rest % step * (power(n - at->digits) % step);
    u64 rest = (begun + first % step) % step;
    return rest == 0 || step - rest < end - first;
}

/* How many digits a number has at most. Those that have fewer are among these, with zeros. */
static u32 room(const struct range *r, u32 whole)
{
    return MIN(whole + r->step.behind, (u32)RANGE_DIGITS);
}

static bool goes_on(const struct range *r, const struct range_at *at, bool may_grow)
{
    bool sign = sign_of(at);
    u32 from = at->whole ? at->whole : at->digits;
    u32 most = r->high[sign].set ? r->high[sign].whole : RANGE_DIGITS, to = may_grow ? most : from;
    for (u32 whole = from; whole <= to && !r->none[sign]; whole++)
        if (fits(r, at, whole, room(r, whole)))
            return true;
    return false;
}

static void compare_digit(const struct range_bound *b, struct range_at *at, u32 shift, u32 digit)
{
    u32 of_bound = digit_of(b, at->digits);
    if (b->set && against(at, shift) == EQUAL && digit != of_bound)
        set_against(at, shift, digit < of_bound ? BELOW : ABOVE);
}

bool range_digit(const struct range *r, struct range_at *at, u8 digit, bool may_grow)
{
    bool sign = sign_of(at);
    if (at->digits == (at->whole ? room(r, at->whole) : RANGE_DIGITS))
        return false;
    compare_digit(&r->low[sign], at, LOW_SHIFT, digit - '0');
    compare_digit(&r->high[sign], at, HIGH_SHIFT, digit - '0');
    at->rest = (u32)(((u64)at->rest * 10 + digit - '0') % r->step.size);
    at->digits++;
    return goes_on(r, at, may_grow);
}

bool range_point(const struct range *r, struct range_at *at)
{
    at->whole = at->digits;
    return at->digits < room(r, at->whole) && goes_on(r, at, false);
}

bool range_complete(const struct range *r, const struct range_at *at)
{
    return fits(r, at, at->whole ? at->whole : at->digits, at->digits);
}

/* --- ranges ----------------------------------------------------------------------------------- */

static bool begins(const struct range *r, bool negative)
{
    for (u8 digit = '0'; digit <= '9'; digit++) {
        struct range_at at = range_begin(negative);
        if (range_digit(r, &at, digit, digit != '0'))
            return true;
    }
    return false;
}

bool range_of(const struct range_end *low, const struct range_end *high, struct range_step step,
              struct range *out)
{
    *out = (struct range){.step = step};
    for (u32 i = 0; i < 2; i++) {
        const struct range_end *near = i ? high : low, *far = i ? low : high;
        bool sign = i, out_of = near && near->huge && near->negative == sign;
        /* Below 0 there are no numbers where 0 is the lowest one: -0 is not asked for. */
        bool none = far && (far->negative != sign) && (sign || !is_zero(&far->bound) || far->huge);
        bool above_0 = near && is_zero(&near->bound) && near->bound.open;
        if (near && !near->huge && (near->negative == sign || above_0))
            out->low[i] = near->bound;
        if (far && !far->huge)
            out->high[i] = far->bound;
        out->none[i] = none || out_of || !begins(out, sign);
    }
    return !out->none[0] || !out->none[1];
}
