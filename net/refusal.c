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

bool refuse_err(struct refusal *f, const struct err_text *e, const char *code, const char *param)
{
    code = e->code == ERR_BUSY ? "queue_full" : e->code == ERR_DEVICE ? "device_failed" : code;
    if (e->code == ERR_MEMORY)
        return refuse(f, 413, "request_too_large", param,
                      "the request takes more work memory than was planned for one: %s", e->text);
    return refuse(f, err_http_status(e->code), code, param, "%s", e->text);
}

const char *refusal_code(int status)
{
    static const struct {
        int status;
        const char *code;
    } table[] = {
        {408, "request_timeout"}, {411, "length_required"},      {413, "request_too_large"},
        {414, "uri_too_long"},    {415, "unsupported_encoding"}, {417, "expectation_failed"},
        {421, "tls_required"},    {426, "upgrade_required"},     {431, "headers_too_large"},
        {501, "not_implemented"}, {503, "bodies_full"},          {505, "version_not_supported"}};
    for (size_t i = 0; i < COUNTOF(table); i++)
        if (table[i].status == status)
            return table[i].code;
    return "invalid_http";
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

/* It stays open. */
static void put_error(struct json_out *o, const struct refusal *f)
{
    json_key(o, "error");
    json_open(o, '{');
    json_pair_text(o, "message", f->text);
    json_pair_text(o, "type", refusal_type(f->status));
    if (f->param[0])
        json_pair_text(o, "param", f->param);
    else
        json_pair_null(o, "param");
    json_pair_text(o, "code", f->code);
}

void refusal_json(struct json_out *o, const struct refusal *f)
{
    json_open(o, '{');
    put_error(o, f);
    json_close(o, '}');
    json_close(o, '}');
}

void refusal_event_json(struct json_out *o, const struct refusal *f)
{
    json_open(o, '{');
    json_pair_text(o, "type", "error");
    json_pair_u64(o, "status", (u64)f->status);
    put_error(o, f);
    if (f->retry_s) {
        char text[16];
        snprintf(text, sizeof text, "%u", f->retry_s);
        json_key(o, "headers");
        json_open(o, '{');
        json_pair_text(o, "retry-after", text);
        json_close(o, '}');
    }
    json_close(o, '}');
    json_close(o, '}');
}

static const char *message_type(int status)
{
    static const struct {
        int status;
        const char *type;
    } table[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"},
                 {504, "timeout_error"}};
    for (size_t i = 0; i < COUNTOF(table); i++)
        if (table[i].status == status)
            return table[i].type;
    return status < 500 ? "invalid_request_error" : "api_error";
}

void refusal_message_json(struct json_out *o, const struct refusal *f, const char *request_id)
{
    json_open(o, '{');
    json_key(o, "type");
    json_put_str(o, STR("error"));
    json_key(o, "error");
    json_open(o, '{');
    json_key(o, "type");
    json_put_str(o, str_of(message_type(f->status)));
    json_key(o, "message");
    json_put_str(o, str_of(f->text));
    json_close(o, '}');
    json_key(o, "request_id");
    json_put_str(o, str_of(request_id));
    json_close(o, '}');
}
