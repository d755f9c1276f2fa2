/* Errors: a code from err.def (with its exit class and HTTP status) plus one sentence for the
 * person who must act: what, where, which option, what to do. The caller owns the text. The first
 * error sticks: err_set on a text that already holds one keeps the first.
 */
#ifndef ZIGCUDA_ERR_H
#define ZIGCUDA_ERR_H

#include "core/base/base.h"

/* Exit classes of the process; the last is of one that a signal cannot end (PID 1). */
enum {
    EXIT_OK = 0,
    EXIT_USAGE = 2,
    EXIT_CONFIG = 3,
    EXIT_MODEL = 4,
    EXIT_SYSTEM = 5,
    EXIT_DEVICE = 6,
    EXIT_INTERRUPTED = 130,
};

enum err {
#define ERR(name, exit, http, text) ERR_##name,
#include "core/base/err.def"
#undef ERR
    ERR_COUNT
};

enum { ERR_TEXT_MAX = 1024 };

struct err_text {
    enum err code;
    char text[ERR_TEXT_MAX];
};

/* Writes the sentence (cut at ERR_TEXT_MAX, control bytes replaced by '?') and returns code. */
enum err err_set(struct err_text *e, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same with ": <strerror(errno)>" added. */
enum err err_set_errno(struct err_text *e, enum err code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "option: " in front of a sentence that names no more than the path it had from there. */
enum err err_of(struct err_text *e, const char *option);

int err_exit_class(enum err code);
int err_http_status(enum err code);
const char *err_name(enum err code);

/* For functions that return enum err: hand the first failure up. */
#define TRY(call)                   \
    do {                            \
        enum err try_err_ = (call); \
        if (try_err_ != ERR_OK)     \
            return try_err_;        \
    } while (0)

#endif
