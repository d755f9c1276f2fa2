#include "net/route.h"

/* WebSockets at /v1/chat/completions: a message is the JSON of a chat request, the answers are the
 * chunks of its stream, or {"error": ...} as over HTTP, and then always {"type": "done", "id":
 * ...}; several requests in turn. {"type": "cancel"} ends the one in work. */

void socket_open(struct api *api, const struct caller *c, const struct http_request *r)
{
    ASSERT(api->n_sockets < api->g.connections);
    if (!conn_ws_accept(api->conns, c->conn, r))
        return;
    api->sockets[api->n_sockets] = c->conn;
    api->socket_callers[api->n_sockets++] = *c;
    api_done(api, c, 101, 0, 0, "");
}

static const struct caller *caller_of(const struct api *api, conn_id id)
{
    for (u32 i = 0; i < api->n_sockets; i++)
        if (api->sockets[i] == id)
            return &api->socket_callers[i];
    return NULL;
}

static void forget(struct api *api, conn_id id)
{
    for (u32 i = 0; i < api->n_sockets; i++)
        if (api->sockets[i] == id) {
            api->sockets[i] = api->sockets[--api->n_sockets];
            api->socket_callers[i] = api->socket_callers[api->n_sockets];
            return;
        }
}

void socket_gone(struct api *api, conn_id id)
{
    forget(api, id);
}

static bool is_cancel(const struct json *v)
{
    const struct json *type = json_get(v, "type");
    return type && type->type == JSON_STRING && str_is(type->text, "cancel") && v->n == 1;
}

/* The last message of a request, whether answered or refused. */
bool socket_done(struct api *api, conn_id id, const char *request)
{
    struct json_out o = api_out(api);
    json_open(&o, '{');
    json_key(&o, "type");
    json_put_str(&o, STR("done"));
    json_key(&o, "id");
    json_put_str(&o, str_of(request));
    json_close(&o, '}');
    return conn_ws_send(api->conns, id, (struct str){o.p, o.n});
}

static void socket_refuse(struct api *api, const struct caller *c, const struct refusal *f)
{
    char request[API_ID_BYTES], note[API_NOTE_BYTES];
    struct json_out o = api_out(api);
    api_note(f, note);
    refusal_json(&o, f);
    api_id(api, c->number, "chatcmpl-", request);
    if (conn_ws_send(api->conns, c->conn, (struct str){o.p, o.n}))
        socket_done(api, c->conn, request);
    api_done(api, c, f->status, 0, 0, note);
}

static bool handle(struct api *api, const struct caller *socket, struct str message,
                   struct caller *c, struct refusal *f)
{
    const struct json *v;
    struct err_text e = {0};
    struct job *job = job_of(api, socket->conn);
    *c = *socket;
    c->number = ++api->number | (u64)1 << 63; /* never one of the connections' numbers */
    c->start_ns = api_now(api);
    if (json_parse(api->g.work, message, "message", ERR_REQUEST, &v, &e) != ERR_OK)
        return refuse_err(f, &e, "invalid_json", NULL);
    if (is_cancel(v)) {
        if (job && !job->cancelled) {
            api->metrics.cancelled_by_client++;
            job_cancel(api, job);
        }
        return true;
    }
    if (json_get(v, "type"))
        return refuse(f, 400, "invalid_value", "type",
                      "a message is a chat request, which has no \"type\", or just "
                      "{\"type\": \"cancel\"}");
    if (!gate_key(api, c, f))
        return false;
    if (job)
        return refuse(f, 409, "busy", NULL,
                      "a request is in work on this WebSocket; wait for its end, or send "
                      "{\"type\": \"cancel\"}");
    if (api->draining)
        return refuse(f, 503, "not_ready", NULL, "the server is shutting down");
    return job_begin(api, c, &chat_dialect, true, v, f);
}

void socket_text(void *app, conn_id id, struct str message)
{
    struct api *api = app;
    struct refusal f = {0};
    struct caller c;
    const struct caller *socket = caller_of(api, id);
    ASSERT(socket);
    if (!handle(api, socket, message, &c, &f))
        socket_refuse(api, &c, &f);
    arena_reset(api->g.work, 0);
}

void socket_close_idle(struct api *api)
{
    for (u32 i = 0; i < api->n_sockets;) {
        conn_id id = api->sockets[i];
        if (job_of(api, id)) {
            i++;
            continue;
        }
        conn_ws_close(api->conns, id, 1001, STR("the server is shutting down"));
        forget(api, id);
    }
}
