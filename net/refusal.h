/* Why a request is refused, in OpenAI's form: an HTTP status, and an error object of message, type,
 * param and code. The first reason sticks.
 */
#ifndef ZIGCUDA_REFUSAL_H
#define ZIGCUDA_REFUSAL_H

#include "core/base/err.h"
#include "core/base/json.h"

struct refusal {
    int status;       /* 0: none yet */
    const char *code; /* "context_length_exceeded": for programs, so it stays as it is */
    char param[64];   /* the field, or "" */
    u32 retry_s;      /* 429: seconds until another try makes sense; 0: not said */
    char text[ERR_TEXT_MAX];
};

/* Always false, for `return refuse(...)`. */
bool refuse(struct refusal *f, int status, const char *code, const char *param, const char *fmt,
            ...) PRINTF_LIKE(5, 6);

/* From an error below: its status and text; `code` where the request is at fault. A full arena is
 * that here, too (413). */
bool refuse_err(struct refusal *f, const struct err_text *e, const char *code, const char *param);

/* The code of what the connection refuses by itself, before there is a route to word it. */
const char *refusal_code(int status);

const char *refusal_type(int status); /* "invalid_request_error", ... */

/* {"error": {...}} */
void refusal_json(struct json_out *o, const struct refusal *f);

/* {"type": "error", "status": ..., "error": {...}}: an event of a WebSocket at /v1/responses. */
void refusal_event_json(struct json_out *o, const struct refusal *f);

/* {"type": "error", "error": {...}, "request_id": ...}: as Anthropic's clients read it. */
void refusal_message_json(struct json_out *o, const struct refusal *f, const char *request_id);

#endif
