/* Stop strings in the text of an answer: what could still become part of one is held back.
 *
 * LIMIT_STOP_STRINGS of LIMIT_STOP_STRING_BYTES each, copied.
 */
#ifndef ZIGCUDA_STOPS_H
#define ZIGCUDA_STOPS_H

#include "config/limits.h"
#include "core/base/base.h"
#include "core/base/err.h"

struct stops {
    u32 n;
    struct str of[LIMIT_STOP_STRINGS];
    char bytes[LIMIT_STOP_STRINGS][LIMIT_STOP_STRING_BYTES];
    u32 held_n;
    char held[LIMIT_STOP_STRING_BYTES];
    struct str found; /* that has ended the answer; n 0: none has */
};

/* ERR_REQUEST: too many, or one that is empty or too long. */
MUST enum err stops_check(const struct str *of, u32 n, struct err_text *e);

/* Of strings that were checked. */
void stops_set(struct stops *s, const struct str *of, u32 n);

/* Puts what was held back to the beginning of text, LIMIT_STOP_STRING_BYTES at most: how many. */
u32 stops_release(struct stops *s, char *text);

/* Where the earliest-ending stop string stands in text[n], which is `found`, or n; ties: the first
 * of the list. */
u32 stops_find(struct stops *s, const char *text, u32 n);

/* Holds the end of text[n] back if it could be the beginning of a stop string: what is left of n.
 */
u32 stops_hold(struct stops *s, const char *text, u32 n);

#endif
