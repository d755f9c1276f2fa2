/* The machine's numbers, and what all of its kinds of values have in common: what a frame makes of
 * a byte. Inside of core/engine/grammar only.
 */
#ifndef ZIGCUDA_NUMBER_H
#define ZIGCUDA_NUMBER_H

#include "core/engine/grammar.h"

/* What a frame makes of a byte. */
enum act {
    TAKEN,  /* and the frame goes on */
    ENDED,  /* taken: the value is complete */
    PASSED, /* the value was complete before it: the one around it is asked */
    AGAIN,  /* not taken: the frame on top is another one now */
    REFUSED
};

static inline bool is_digit(u8 c)
{
    return c >= '0' && c <= '9';
}

static inline enum act phase(struct grammar_frame *f, bool fits, u8 next)
{
    f->phase = next;
    return fits ? TAKEN : REFUSED;
}

/* Counts as far as it matters: so that a long text comes back to the same state. */
static inline u16 count_on(const struct grammar_node *n, u16 so_far)
{
    return n->max != GRAMMAR_NONE || so_far < n->min ? (u16)(so_far + 1) : so_far;
}

/* The first byte of one whose node is a number's, and the next one. */
enum act number_begin(const struct grammar *g, struct grammar_frame *f, u8 c);
enum act number_step(const struct grammar *g, struct grammar_frame *f, u8 c);
bool number_complete(const struct grammar *g, const struct grammar_frame *f); /* it may end here */

#endif
