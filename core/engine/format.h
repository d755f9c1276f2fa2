/* The formats of strings that an answer is kept to, as patterns of core/engine/regex.h. Narrower
 * than what the RFCs let be, so that every reader takes them: years of four digits, no leap
 * seconds, up to six digits of a second. Other formats only describe.
 */
#ifndef ZIGCUDA_FORMAT_H
#define ZIGCUDA_FORMAT_H

#include "core/base/base.h"

/* date, time, date-time (RFC 3339), uuid, ipv4, email; .p NULL: none of these. */
struct str format_pattern(struct str name);

#endif
