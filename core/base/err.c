#include "core/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    int exit_class, http;
} table[ERR_COUNT] = {
#define ERR(name, exit, http, text) {#name, exit, http},
#include "core/base/err.def"
#undef ERR
};

/* The text may quote hostile file content: no control bytes reach a terminal or a log line. */
static void clean(char *text)
{
    for (char *p = text; *p; p++)
        if ((u8)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

static enum err set(struct err_text *e, enum err code, const char *fmt, va_list args,
                    const char *reason)
{
    ASSERT(code != ERR_OK && code < ERR_COUNT);
    if (e->code != ERR_OK)
        return e->code;
    e->code = code;
    int n = vsnprintf(e->text, sizeof e->text, fmt, args);
    size_t used = MIN((size_t)MAX(n, 0), sizeof e->text - 1);
    if (reason)
        snprintf(e->text + used, sizeof e->text - used, ": %s", reason);
    clean(e->text);
    return code;
}

enum err err_set(struct err_text *e, enum err code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    code = set(e, code, fmt, args, NULL);
    va_end(args);
    return code;
}

enum err err_set_errno(struct err_text *e, enum err code, const char *fmt, ...)
{
    const char *reason = strerror(errno);
    va_list args;
    va_start(args, fmt);
    code = set(e, code, fmt, args, reason);
    va_end(args);
    return code;
}

enum err err_of(struct err_text *e, const char *option)
{
    const struct err_text without = *e;
    *e = (struct err_text){0};
    return err_set(e, without.code, "%s: %s", option, without.text);
}

int err_exit_class(enum err code)
{
    return table[code].exit_class;
}

int err_http_status(enum err code)
{
    return table[code].http;
}

const char *err_name(enum err code)
{
    return table[code].name;
}
