/* Numbers between two bounds that are multiples of a step, exact, as a machine over their decimal
 * digits. Written without an exponent and with at most RANGE_DIGITS digits in all, so that no two
 * of them that differ become the same double: what is beyond a bound here is so for whoever reads
 * it. After each digit it says whether some such number begins so; so a text never ends up where
 * nothing fits. Of what came it keeps the rest by the step, and how it compares with the bounds.
 * Owns nothing.
 */
#ifndef ZIGCUDA_RANGE_H
#define ZIGCUDA_RANGE_H

#include "core/base/base.h"

enum { RANGE_DIGITS = 15, RANGE_STEP_DIGITS = 9 };

struct range_bound { /* without its sign */
    u64 digits;      /* the first n digits; all others are 0 */
    u8 n, whole;     /* digits, and how many of them stand before the point: at least one */
    bool open;       /* the bound itself is not among them */
    bool set;        /* false: no bound */
};

/* size / 10^behind. Its multiples need no more digits behind the point than that, and have no more.
 * Integers are those of {1, 0}; {1, RANGE_DIGITS - 1} leaves nothing out. */
struct range_step {
    u32 size; /* 1 to 10^RANGE_STEP_DIGITS - 1 */
    u32 behind;
};

struct range { /* [1]: of negative numbers, by their size */
    struct range_bound low[2], high[2];
    struct range_step step;
    bool none[2];
};

/* One bound as JSON has it, with its sign. */
struct range_end {
    struct range_bound bound;
    bool negative, huge; /* huge: more digits before the point than a number may have */
};

/* False: more digits than can be exact. open: the bound itself is not in. */
MUST bool range_end_of(struct str number, bool open, struct range_end *out);
/* number: a JSON number; with size 0 if it is not above 0. False: it has more than
 * RANGE_STEP_DIGITS digits. */
MUST bool range_step_of(struct str number, struct range_step *out);
/* Of the multiples of a step those that are integers are the multiples of this one. */
struct range_step range_step_whole(struct range_step step);
/* low, high: NULL where there is none. False: no multiple of the step is between them. */
MUST bool range_of(const struct range_end *low, const struct range_end *high,
                   struct range_step step, struct range *out);

bool range_same(const struct range *a, const struct range *b);

/* Behind some digits of a number. */
struct range_at {
    u32 rest;   /* of all of them as one integer, by the step's size */
    u8 digits;  /* so far, before and behind the point */
    u8 whole;   /* of these before the point, once that is there */
    u8 compare; /* how they compare with the bounds, and the sign: 5 bits */
};

struct range_at range_begin(bool negative);
/* What it is behind one more digit; may_grow: further digits before the point may follow. False:
 * no number begins so. */
bool range_digit(const struct range *r, struct range_at *at, u8 digit, bool may_grow);
bool range_point(const struct range *r, struct range_at *at);
bool range_complete(const struct range *r, const struct range_at *at);

#endif
