/* Calendar dates (proleptic Gregorian) from seconds since 1970, and strftime in the C locale.
 * musl's own would link its time-zone reader, and with that an allocator.
 */
#ifndef ZIGCUDA_DATE_H
#define ZIGCUDA_DATE_H

#include "core/base/base.h"

struct date {
    i64 year;
    u32 month, day;           /* 1..12, 1..31 */
    u32 hour, minute, second; /* 0..23, 0..59, 0..59 */
    u32 weekday, yearday;     /* 0 = Sunday; 0 = 1 January */
};

struct date date_of(i64 seconds);

/* One conversion of C11 7.27.3.5 (and P, k, l, s) into out[DATE_TEXT]: 'Y', 'B', ...; `plain` is
 * the
 * '-' flag: no padding. Returns the length, or 0 for a letter that is none. z and Z are empty. */
enum { DATE_TEXT = 48 };
u32 date_format(const struct date *d, char conversion, bool plain, char *out);

#endif
