/* A pattern as a program: of ECMA-262's regular expressions those that are regular. Between
 * regex_code.c, which reads them, and regex.c, which makes tables of them.
 *
 * What \d, \w and \s stand for differs from engine to engine, and answers are checked by more than
 * one: they stand for what they mean in all of them, and \D, \W, \S, [^\d] for what is in none.
 */
#ifndef ZIGCUDA_REGEX_CODE_H
#define ZIGCUDA_REGEX_CODE_H

#include "config/limits.h"
#include "core/base/base.h"

enum regex_op {
    REGEX_SET,   /* a character of sets[set] */
    REGEX_SPLIT, /* the next one, or the one at `to` */
    REGEX_JUMP,
    REGEX_START, /* here the text begins */
    REGEX_END,   /* here it ends */
    REGEX_MATCH
};

struct regex_code {
    u8 op, set;
    i16 to; /* from this one */
};

struct regex_span { /* of code points, both in it */
    u32 low, high;
};

struct regex_set { /* in order, without touching */
    u16 first, n;  /* of spans */
};

struct regex_program {
    u32 n, n_sets, n_spans;
    struct regex_code code[LIMIT_REGEX_CODE];
    struct regex_set sets[LIMIT_REGEX_SETS];
    struct regex_span spans[LIMIT_REGEX_SPANS];
    const char *fault; /* NULL: none */
    size_t fault_at;   /* the byte of the pattern */
    u32 limit;         /* that was passed, and 0 */
};

/* False, and the fault: it is not supported, or passes a limit. */
MUST bool regex_read(struct regex_program *p, struct str pattern);

#endif
