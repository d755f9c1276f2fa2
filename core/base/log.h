/* One line an event on stderr: `time=... level=... event=... key=value ...` (logfmt), or for a
 * person without time and level. Never prompt or completion text. Lines are built on the stack and
 * written with one write(2); nothing is allocated or buffered.
 */
#ifndef ZIGCUDA_LOG_H
#define ZIGCUDA_LOG_H

#include "core/base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_LOGFMT, LOG_TEXT };

/* Until then: LOG_WARN, LOG_TEXT. */
void log_configure(enum log_level level, enum log_format format);

/* `event` is a word; fmt gives "key=value key=value" or nothing. */
void log_event(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
