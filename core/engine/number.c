#include "core/engine/number.h"

enum number_phase { SIGN, ZERO, DIGITS, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };
enum { DIGITS_MAX = 15, EXPONENT_MAX = 2 };

/* a: digits, those before the point, and how they compare; b, c: the rest by the step. */
static struct range_at range_at(const struct grammar_frame *f)
{
    return (struct range_at){.digits = f->a & 15,
                             .whole = f->a >> 4 & 15,
                             .compare = (u8)(f->a >> 8),
                             .rest = (u32)f->b << 16 | f->c};
}

static void set_range_at(struct grammar_frame *f, struct range_at at)
{
    f->a = (u16)(at.compare << 8 | at.whole << 4 | at.digits);
    f->b = (u16)(at.rest >> 16);
    f->c = (u16)at.rest;
}

bool number_complete(const struct grammar *g, const struct grammar_frame *f)
{
    u16 range = g->nodes[f->node].items;
    struct range_at at = range_at(f);
    return (f->phase == ZERO || f->phase == DIGITS || f->phase == FRACTION ||
            f->phase == EXPONENT_DIGITS) &&
           (range == GRAMMAR_NONE || range_complete(&g->ranges[range], &at));
}

/* Digits go on, or what follows them begins. */
static enum act digits(struct grammar_frame *f, u8 c, u32 most, bool whole)
{
    if (is_digit(c) && f->phase != ZERO && f->a < most) {
        f->a++;
        return TAKEN;
    }
    f->a = 0;
    if (c == '.' && !whole && (f->phase == ZERO || f->phase == DIGITS))
        return phase(f, true, POINT);
    if ((c == 'e' || c == 'E') && !whole && f->phase != EXPONENT_DIGITS)
        return phase(f, true, EXPONENT);
    return is_digit(c) ? REFUSED : PASSED;
}

/* A number with bounds, or of a step. */
static enum act bounded(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    const struct range *r = &g->ranges[g->nodes[f->node].items];
    struct range_at at = range_at(f);
    u8 phase = f->phase;
    bool fits;
    if (is_digit(c) && phase != ZERO) {
        f->phase = phase == POINT || phase == FRACTION ? FRACTION
                   : phase == SIGN && c == '0'         ? ZERO
                                                       : DIGITS;
        fits = range_digit(r, &at, c, f->phase == DIGITS);
    } else if (c == '.' && (phase == ZERO || phase == DIGITS)) {
        f->phase = POINT;
        fits = range_point(r, &at);
    } else {
        return !is_digit(c) && number_complete(g, f) ? PASSED : REFUSED;
    }
    set_range_at(f, at);
    return fits ? TAKEN : REFUSED;
}

static enum act begin_bounded(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    bool negative = c == '-';
    set_range_at(f, range_begin(negative));
    if (negative)
        return g->ranges[g->nodes[f->node].items].none[1] ? REFUSED : TAKEN;
    return is_digit(c) ? bounded(g, f, c) : REFUSED;
}

enum act number_step(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    bool whole = g->nodes[f->node].whole;
    if (g->nodes[f->node].items != GRAMMAR_NONE)
        return bounded(g, f, c);
    f->a += f->phase == SIGN || f->phase == POINT || f->phase == EXPONENT_SIGN;
    switch ((enum number_phase)f->phase) {
    case SIGN:
        return phase(f, is_digit(c), c == '0' ? ZERO : DIGITS);
    case POINT:
        return phase(f, is_digit(c), FRACTION);
    case EXPONENT:
        if (c == '+' || c == '-')
            return phase(f, true, EXPONENT_SIGN);
        f->a = 1;
        return phase(f, is_digit(c), EXPONENT_DIGITS);
    case EXPONENT_SIGN:
        return phase(f, is_digit(c), EXPONENT_DIGITS);
    case EXPONENT_DIGITS:
        return digits(f, c, EXPONENT_MAX, whole);
    case ZERO:
    case DIGITS:
    case FRACTION:
        break;
    }
    return digits(f, c, DIGITS_MAX, whole);
}

enum act number_begin(const struct grammar *g, struct grammar_frame *f, u8 c)
{
    f->phase = SIGN;
    if (g->nodes[f->node].items != GRAMMAR_NONE)
        return begin_bounded(g, f, c);
    return c == '-' ? TAKEN : is_digit(c) ? number_step(g, f, c) : REFUSED;
}
