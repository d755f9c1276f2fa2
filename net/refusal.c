#include "net/refusal.h"

#include <stdarg.h>
#include <stdio.h>

bool refuse(struct refusal *f, int status, const char *code, const char *param, const char *fmt,
            ...)
{
    va_list args;
    if (f->status)
        return false;
    f->status = status;
    f->code = code;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(args, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, args);
    va_end(args);
    return false;
}

bool refuse_err(struct refusal *f, const struct err_text *e, const char *param)
{
    if (e->code == ERR_MEMORY)
        return refuse(f, 413, "request_too_large", param,
                      "the request takes more work memory than was planned for one: %s", e->text);
    return refuse(f, err_http_status(e->code), NULL, param, "%s", e->text);
}

const char *refusal_type(int status)
{
    if (status == 429)
        return "rate_limit_error";
    if (status == 401)
        return "authentication_error";
    if (status == 403)
        return "permission_error";
    return status < 500 ? "invalid_request_error" : "server_error";
}

void refusal_json(struct json_out *o, const struct refusal *f)
{
    json_open(o, '{');
    json_key(o, "error");
    json_open(o, '{');
    json_key(o, "message");
    json_put_str(o, str_of(f->text));
    json_key(o, "type");
    json_put_str(o, str_of(refusal_type(f->status)));
    json_key(o, "param");
    if (f->param[0])
        json_put_str(o, str_of(f->param));
    else
        json_put_null(o);
    json_key(o, "code");
    if (f->code)
        json_put_str(o, str_of(f->code));
    else
        json_put_null(o);
    json_close(o, '}');
    json_close(o, '}');
}
