/* Whether bytes that come one by one begin a JSON value (RFC 8259), or are one: for texts of which
 * nobody knows yet whether they are JSON. Strings may have any bytes from 0x80 on. Nesting beyond
 * LIMIT_JSON_DEPTH is none.
 */
#ifndef ZIGCUDA_JSON_PREFIX_H
#define ZIGCUDA_JSON_PREFIX_H

#include "config/limits.h"
#include "core/base/base.h"

/* All zero: nothing has come. */
struct json_prefix {
    u64 objects; /* bit d: what is open at depth d is an object; else an array */
    const char *word;
    u8 depth, state, digits;
    bool key; /* the string is one */
};
_Static_assert(LIMIT_JSON_DEPTH <= 64, "a bit each");

/* False, and from then on: no JSON begins so. */
bool json_prefix_step(struct json_prefix *j, char c);
bool json_prefix_complete(const struct json_prefix *j);  /* blanks around it may have come, too */
bool json_prefix_in_string(const struct json_prefix *j); /* of an object or array */

#endif
