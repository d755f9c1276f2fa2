#include "net/route.h"

#include "net/pages.h"

#include <stdio.h>

/* --- a body ------------------------------------------------------------------------------------
 */

static bool body_of(struct api *api, struct str text, const struct json **out, struct refusal *f)
{
    struct err_text e = {0};
    if (text.n == 0)
        return refuse(f, 400, "empty_body", NULL, "the request has no body");
    if (json_parse(api->g.work, text, "body", ERR_REQUEST, out, &e) != ERR_OK)
        return refuse_err(f, &e, "invalid_json", NULL);
    return true;
}

static void complete(struct api *api, const struct caller *c, const struct http_request *r,
                     const struct dialect *dialect)
{
    const struct json *body;
    struct refusal f = {0};
    if (!body_of(api, r->body, &body, &f) || !job_begin(api, c, dialect, NULL, body, &f))
        api_refuse(api, c, &f);
}

static void chat(struct api *api, const struct caller *c, const struct http_request *r)
{
    if (r->method == HTTP_GET)
        socket_open(api, c, r, &chat_dialect);
    else
        complete(api, c, r, &chat_dialect);
}

static void completions(struct api *api, const struct caller *c, const struct http_request *r)
{
    complete(api, c, r, &completion_dialect);
}

static void responses(struct api *api, const struct caller *c, const struct http_request *r)
{
    if (r->method == HTTP_GET)
        socket_open(api, c, r, &turn_dialect);
    else
        complete(api, c, r, &response_dialect);
}

static void messages(struct api *api, const struct caller *c, const struct http_request *r)
{
    complete(api, c, r, &message_dialect);
}

static void embeddings(struct api *api, const struct caller *c, const struct http_request *r)
{
    complete(api, c, r, &embedding_dialect);
}

/* --- models -------------------------------------------------------------------------------------
 */

static void model_object(struct json_out *o, const struct api *api)
{
    json_open(o, '{');
    json_key(o, "id");
    json_put_str(o, str_of(api->g.name));
    json_key(o, "object");
    json_put_str(o, STR("model"));
    json_key(o, "created");
    json_put_i64(o, api->open_s);
    json_key(o, "owned_by");
    json_put_str(o, STR("zigcuda"));
    json_key(o, "max_model_len");
    json_put_u64(o, api->g.limits.context);
    json_close(o, '}');
}

static void models(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    struct json_out o = api_out(api);
    json_open(&o, '{');
    json_key(&o, "object");
    json_put_str(&o, STR("list"));
    json_key(&o, "data");
    json_open(&o, '[');
    model_object(&o, api);
    json_close(&o, ']');
    json_close(&o, '}');
    api_reply_json(api, c, 200, &o);
}

static int hex(char c)
{
    const char *at = c ? strchr("0123456789abcdefABCDEF", c) : NULL;
    return !at                                  ? -1
           : at - "0123456789abcdefABCDEF" < 16 ? (int)(at - "0123456789abcdefABCDEF")
                                                : (c | 32) - 'a' + 10;
}

/* True when the percent-encoded path part is `name`. */
static bool path_is(struct str part, const char *name)
{
    size_t i = 0;
    for (; i < part.n && *name; i++, name++) {
        char c = part.p[i];
        if (c == '%' && part.n - i > 2 && hex(part.p[i + 1]) >= 0 && hex(part.p[i + 2]) >= 0) {
            c = (char)(hex(part.p[i + 1]) * 16 + hex(part.p[i + 2]));
            i += 2;
        }
        if (c != *name)
            return false;
    }
    return i == part.n && !*name;
}

static void model(struct api *api, const struct caller *c, const struct http_request *r)
{
    struct str id = {r->path.p + strlen("/v1/models/"), r->path.n - strlen("/v1/models/")};
    struct refusal f = {0};
    if (!path_is(id, api->g.name)) {
        refuse(&f, 404, "model_not_found", "model",
               "there is no model '%.*s' here; this server has '%s'", (int)MIN(id.n, (size_t)100),
               id.p, api->g.name);
        api_refuse(api, c, &f);
        return;
    }
    struct json_out o = api_out(api);
    model_object(&o, api);
    api_reply_json(api, c, 200, &o);
}

/* --- state -------------------------------------------------------------------------------------
 */

static void health(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    struct json_out o = api_out(api);
    json_open(&o, '{');
    json_key(&o, "status");
    json_put_str(&o, STR("ok"));
    json_close(&o, '}');
    api_reply_json(api, c, 200, &o);
}

static void ready(struct api *api, const struct caller *c, const struct http_request *r)
{
    struct refusal f = {0};
    if (api_ready(api)) {
        health(api, c, r);
        return;
    }
    refuse(&f, 503, "not_ready", NULL,
           api->lost       ? "the compute device has failed; the process has to restart"
           : api->draining ? "the server is shutting down"
                           : "the first token has not been computed yet");
    api_refuse(api, c, &f);
}

static void metrics(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    struct engine_stats s = engine_stats(api->g.engine);
    struct device_report report;
    struct metrics_view v = {
        .m = &api->metrics,
        .engine = s,
        .conns = conns_counts(api->conns),
        .device = engine_report(api->g.engine, &report) ? &report : NULL,
        .model = api->g.name,
        .version = api->g.version,
        .fingerprint = api->g.fingerprint,
        .uptime_s = (double)(api_now(api) - api->open_ns) / 1e9,
        .predicted_wait_s = admission_wait_s(&api->admission, &s),
        .reply_blocks = api->store.n,
        .reply_blocks_free = api->store.free,
        .conversation_blocks = api->conversations.n,
        .conversation_blocks_free = api->conversations.free,
        .certificate_ends_s = conns_certificate_ends_s(api->conns),
        .ready = api_ready(api),
        .route = route_path,
    };
    size_t n = metrics_write(&v, api->text, api->text_bytes);
    ASSERT(n > 0);
    api_reply(api, c, 200, "text/plain; version=0.0.4; charset=utf-8", (struct str){api->text, n},
              NULL);
}

static void version(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    struct json_out o = api_out(api);
    json_open(&o, '{');
    json_key(&o, "version");
    json_put_str(&o, str_of(api->g.version));
    json_key(&o, "system_fingerprint");
    json_put_str(&o, str_of(api->g.fingerprint));
    json_close(&o, '}');
    api_reply_json(api, c, 200, &o);
}

static void status(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    struct json_out o = api_out(api);
    status_json(&o, api);
    api_reply_json(api, c, 200, &o);
}

/* --- pages ----------------------------------------------------------------------------------- */

static void openapi(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    api_reply(api, c, 200, "application/json", pages_openapi(), NULL);
}

static void status_page(struct api *api, const struct caller *c, const struct http_request *r)
{
    (void)r;
    api_reply(
        api, c, 200, "text/html; charset=utf-8", pages_status(),
        "Content-Security-Policy: default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void put_tokens(struct json_out *o, const struct api *api, const u32 *ids, u32 n,
                       bool strings)
{
    json_open(o, '{');
    json_key(o, "count");
    json_put_u64(o, n);
    json_key(o, "max_model_len");
    json_put_u64(o, api->g.limits.context);
    json_key(o, "tokens");
    json_open(o, '[');
    for (u32 i = 0; i < n; i++)
        json_put_u64(o, ids[i]);
    json_close(o, ']');
    json_key(o, "token_strs");
    if (strings) {
        json_open(o, '[');
        for (u32 i = 0; i < n; i++)
            json_put_str(o, tokenizer_content(api->g.tokenizer, ids[i]));
        json_close(o, ']');
    } else {
        json_put_null(o);
    }
    json_close(o, '}');
}

static bool tokenize_body(struct api *api, const struct http_request *r, u32 **ids, u32 *n,
                          struct refusal *f)
{
    const struct json *body;
    struct params *p = &api->params;
    if (!body_of(api, r->body, &body, f) ||
        !params_read(p, PARAMS_TOKENIZE, body, api->g.model, api->g.work, f) ||
        !job_check_model(api, p, false, f))
        return false;
    if (!p->messages == !p->prompt)
        return refuse(f, 400, "invalid_value", "prompt", "give either prompt or messages");
    if (p->prompt && p->prompt->type != JSON_STRING)
        return refuse(f, 400, "invalid_type", "prompt", "prompt must be a string");
    if (p->messages && !p->has_add_special)
        p->add_special = false; /* the template writes them */
    return job_prompt_ids(api, p, ids, n, f);
}

static bool too_large(struct refusal *f, const struct api *api)
{
    return refuse(f, 413, "request_too_large", NULL,
                  "the reply is longer than %zu bytes (server.body_max)", api->g.body_bytes);
}

static void tokenize(struct api *api, const struct caller *c, const struct http_request *r)
{
    struct refusal f = {0};
    struct json_out o = api_out(api);
    u32 *ids, n;
    if (tokenize_body(api, r, &ids, &n, &f)) {
        put_tokens(&o, api, ids, n, api->params.token_strings);
        if (!o.full || too_large(&f, api)) {
            api_reply_json(api, c, 200, &o);
            return;
        }
    }
    api_refuse(api, c, &f);
}

static bool count_body(struct api *api, const struct http_request *r, u32 kind, u32 *n,
                       struct refusal *f)
{
    const struct json *body;
    u32 *ids;
    struct params *p = &api->params;
    return body_of(api, r->body, &body, f) &&
           params_read(p, kind, body, api->g.model, api->g.work, f) &&
           job_check_model(api, p, kind == PARAMS_COUNT, f) && job_prompt_ids(api, p, &ids, n, f);
}

/* object: what the reply is, where it says so; or NULL. */
static void count(struct api *api, const struct caller *c, const struct http_request *r, u32 kind,
                  const char *object)
{
    struct refusal f = {0};
    u32 n;
    if (!count_body(api, r, kind, &n, &f)) {
        api_refuse(api, c, &f);
        return;
    }
    struct json_out o = api_out(api);
    json_open(&o, '{');
    if (object) {
        json_key(&o, "object");
        json_put_str(&o, str_of(object));
    }
    json_key(&o, "input_tokens");
    json_put_u64(&o, n);
    json_close(&o, '}');
    api_reply_json(api, c, 200, &o);
}

static void count_tokens(struct api *api, const struct caller *c, const struct http_request *r)
{
    count(api, c, r, PARAMS_COUNT, NULL);
}

static void input_tokens(struct api *api, const struct caller *c, const struct http_request *r)
{
    count(api, c, r, PARAMS_RESPONSE, "response.input_tokens");
}

static bool detokenize_body(struct api *api, const struct http_request *r, struct json_out *o,
                            struct refusal *f)
{
    const struct json *body;
    struct params *p = &api->params;
    char piece[DECODE_PIECE_BYTES];
    if (!body_of(api, r->body, &body, f) ||
        !params_read(p, PARAMS_DETOKENIZE, body, api->g.model, api->g.work, f) ||
        !job_check_model(api, p, false, f))
        return false;
    if (!p->tokens || p->tokens->type != JSON_ARRAY)
        return refuse(f, 400, "invalid_type", "tokens", "tokens must be a list of token ids");
    struct decode_stream d = decode_start(api->g.tokenizer, false);
    json_open(o, '{');
    json_key(o, "prompt");
    json_open_str(o);
    for (const struct json *v = p->tokens->child; v; v = v->next) {
        u64 id;
        if (!json_u64(v, &id) || id >= api->g.model->vocab)
            return refuse(f, 400, "invalid_value", "tokens",
                          "an entry of tokens is no token id below %u", api->g.model->vocab);
        json_put_piece(o, (struct str){piece, decode_push(&d, (u32)id, piece)});
    }
    json_put_piece(o, (struct str){piece, decode_end(&d, piece)});
    json_close_str(o);
    json_close(o, '}');
    return !o->full || too_large(f, api);
}

static void detokenize(struct api *api, const struct caller *c, const struct http_request *r)
{
    struct refusal f = {0};
    struct json_out o = api_out(api);
    if (detokenize_body(api, r, &o, &f))
        api_reply_json(api, c, 200, &o);
    else
        api_refuse(api, c, &f);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route routes[] = {
    {"GET", "/", ROUTE_OPEN, status_page},
    {"GET", "/health", ROUTE_OPEN, health},
    {"GET", "/ready", ROUTE_OPEN, ready},
    {"GET", "/metrics", 0, metrics},
    {"GET", "/status", 0, status},
    {"GET", "/version", 0, version},
    {"GET", "/openapi.json", 0, openapi},
    {"GET", "/v1/models", 0, models},
    {"GET", "/v1/models/", ROUTE_PREFIX, model},
    {"POST", "/v1/chat/completions", ROUTE_JSON | ROUTE_SOCKET, chat},
    {"POST", "/v1/completions", ROUTE_JSON, completions},
    {"POST", "/v1/embeddings", ROUTE_JSON, embeddings},
    {"POST", "/v1/responses", ROUTE_JSON | ROUTE_SOCKET, responses},
    {"POST", "/v1/responses/input_tokens", ROUTE_JSON, input_tokens},
    {"POST", "/v1/messages", ROUTE_JSON | ROUTE_MESSAGES, messages},
    {"POST", "/v1/messages/count_tokens", ROUTE_JSON | ROUTE_MESSAGES, count_tokens},
    {"POST", "/tokenize", ROUTE_JSON, tokenize},
    {"POST", "/detokenize", ROUTE_JSON, detokenize},
};
_Static_assert(COUNTOF(routes) < METRICS_ROUTES, "the last row of metrics is for no route");

const struct route *route_of(struct str path, u32 *index)
{
    for (u32 i = 0; i < COUNTOF(routes); i++) {
        struct str want = str_of(routes[i].path);
        bool prefix = (routes[i].flags & ROUTE_PREFIX) && path.n > want.n;
        if (str_eq(path, want) ? !(routes[i].flags & ROUTE_PREFIX)
                               : prefix && str_starts(path, want)) {
            *index = i;
            return &routes[i];
        }
    }
    *index = METRICS_ROUTES - 1;
    return NULL;
}

const char *route_path(u32 i)
{
    return i < COUNTOF(routes) ? routes[i].path : NULL;
}

u32 route_flags(u32 i)
{
    return i < COUNTOF(routes) ? routes[i].flags : 0;
}

bool api_route(u32 i, const char **method, const char **path)
{
    if (i >= COUNTOF(routes))
        return false;
    *method = routes[i].method;
    *path = routes[i].path;
    return true;
}
