/* Numbers between two bounds, exact, as a machine over their decimal digits. Written without an
 * exponent and with at most RANGE_DIGITS digits in all, so that no two of them that differ become
 * the same double: what is beyond a bound here is so for whoever reads it. After each digit it says
 * whether some number between the bounds begins so; so a text never ends up where nothing fits.
 * Owns nothing.
 */
#ifndef ZIGCUDA_RANGE_H
#define ZIGCUDA_RANGE_H

#include "core/base/base.h"

enum { RANGE_DIGITS = 15 };

struct range_bound { /* without its sign */
    u64 digits;      /* the first n digits; all others are 0 */
    u8 n, whole;     /* digits, and how many of them stand before the point: at least one */
    bool open;       /* the bound itself is not among them */
    bool set;        /* false: no bound */
};

struct range { /* [1]: of negative numbers, by their size */
    struct range_bound low[2], high[2];
    bool none[2];
};

/* One bound as JSON has it, with its sign. */
struct range_end {
    struct range_bound bound;
    bool negative, huge; /* huge: more digits before the point than a number may have */
};

/* False: more digits than can be exact. open: the bound itself is not in. */
MUST bool range_end_of(struct str number, bool open, struct range_end *out);
/* low, high: NULL where there is none. False: nothing is between them. */
MUST bool range_of(const struct range_end *low, const struct range_end *high, bool whole,
                   struct range *out);

bool range_same(const struct range *a, const struct range *b);

/* Behind some digits of a number. */
struct range_at {
    u16 digits;  /* so far, before and behind the point */
    u16 whole;   /* of these before the point, once that is there */
    u16 compare; /* how they compare with the bounds, and the sign */
};

struct range_at range_begin(bool negative);
/* What it is behind one more digit; may_grow: further digits before the point may follow. False:
 * no number begins so. */
bool range_digit(const struct range *r, struct range_at *at, u8 digit, bool may_grow);
bool range_point(const struct range *r, struct range_at *at);
bool range_complete(const struct range *r, const struct range_at *at);

#endif
