/* The values of options as text: whole numbers, sizes, times, numbers, switches. Pure functions;
 * parsing takes the whole text or nothing and leaves *out alone when it answers false. Sizes and
 * times are whole numbers with a unit of the tables in value.c; a size without unit is in bytes,
 * a time needs its unit unless it is 0.
 */
#ifndef ZIGCUDA_VALUE_H
#define ZIGCUDA_VALUE_H

#include "core/base/base.h"

enum { VALUE_TEXT_MAX = 32 }; /* of the longest text of value_put_* with its NUL */

MUST bool value_int(struct str s, u64 *out);
MUST bool value_size(struct str s, u64 *bytes);
MUST bool value_time(struct str s, u64 *ms);
MUST bool value_mode(struct str s, u64 *out);     /* permission bits, octal: 600, 0660 */
MUST bool value_float(struct str s, double *out); /* decimal and finite */
MUST bool value_bool(struct str s, bool *out);    /* on off true false yes no 1 0 */

/* In the largest unit that divides it, so that the same value is read back; returns out. */
const char *value_put_size(u64 bytes, char out[VALUE_TEXT_MAX]);
const char *value_put_time(u64 ms, char out[VALUE_TEXT_MAX]);

/* The shortest decimal text that reads back as the same number. */
const char *value_put_float(double v, char out[VALUE_TEXT_MAX]);

#endif
