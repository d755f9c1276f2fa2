/* One line an event on stderr, as logfmt (`time=... level=... event=... key=value ...`), as JSON
 * with the same members, or for a person without time and level. Never prompt or completion text.
 * More than `rate` lines in a second are counted instead of written, and the count is a line of its
 * own once there is room; errors are always written. Lines are built on the stack and written with
 * one write(2); nothing is allocated or buffered. One thread logs.
 */
#ifndef ZIGCUDA_LOG_H
#define ZIGCUDA_LOG_H

#include "core/base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_LOGFMT, LOG_JSON, LOG_TEXT };

/* rate: lines a second, 0 for no bound. Until then: LOG_WARN, LOG_TEXT, no bound. */
void log_configure(enum log_level level, enum log_format format, u32 rate);

/* Whether lines are for a person, as they are until log_configure. */
bool log_is_text(void);

/* `event` is a word; fmt gives `key=value key="value with blanks"` or nothing. A value in quotes
 * may itself hold quotes: they are escaped on the way out. */
void log_event(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* At LOG_DEBUG: `event=phase name=NAME ms=...`, the time since the call before: where the time of a
 * start goes. */
void log_phase(const char *name);

/* The line of an event at a time (nanoseconds since 1970) into out[cap], without a newline; its
 * length. For tests. */
size_t log_line(char *out, size_t cap, enum log_format format, enum log_level level, u64 time_ns,
                const char *event, struct str pairs);

#endif
