#include "net/route.h"

/* WebSockets. At /v1/chat/completions a message is the JSON of a chat request, the answers are the
 * chunks of its stream, or {"error": ...} as over HTTP, and then always {"type": "done", "id":
 * ...}; several requests in turn. {"type": "cancel"} ends the one in work. What is said at
 * /v1/responses is in net/converse. */

void socket_open(struct api *api, const struct caller *c, const struct http_request *r,
                 const struct dialect *dialect)
{
    ASSERT(api->n_sockets < api->g.connections);
    if (!conn_ws_accept(api->conns, c->conn, r))
        return;
    api->sockets[api->n_sockets++] = (struct socket){.caller = *c, .dialect = dialect};
    api_done(api, c, 101, 0, 0, "");
}

struct socket *socket_of(const struct api *api, conn_id id)
{
    for (u32 i = 0; i < api->n_sockets; i++)
        if (api->sockets[i].caller.conn == id)
            return &api->sockets[i];
    return NULL;
}

void socket_gone(struct api *api, conn_id id)
{
    struct socket *s = socket_of(api, id);
    if (!s)
        return;
    store_give(&api->conversations, &s->items);
    *s = api->sockets[--api->n_sockets];
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
    json_pair_text(&o, "type", "done");
    json_pair_text(&o, "id", request);
    json_close(&o, '}');
    return conn_ws_send(api->conns, id, (struct str){o.p, o.n});
}

static void chat_refuse(struct api *api, const struct caller *c, const struct refusal *f)
{
    char request[API_ID_BYTES];
    struct json_out o = api_out(api);
    refusal_json(&o, f);
    api_id(api, c->number, "chatcmpl-", request);
    if (conn_ws_send(api->conns, c->conn, (struct str){o.p, o.n}))
        socket_done(api, c->conn, request);
}

bool socket_free(const struct api *api, const struct caller *c, const char *instead,
                 struct refusal *f)
{
    if (!gate_key(api, c, f))
        return false;
    if (job_of(api, c->conn))
        return refuse(f, 409, "busy", NULL,
                      "a request is in work on this WebSocket; wait for its end, or %s", instead);
    return !api->draining || refuse(f, 503, "not_ready", NULL, "the server is shutting down");
}

static bool chat_message(struct api *api, const struct socket *s, const struct json *v,
                         const struct caller *c, struct refusal *f)
{
    struct job *job = job_of(api, c->conn);
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
    return socket_free(api, c, "send {\"type\": \"cancel\"}", f) &&
           job_begin(api, c, s->dialect, s, v, f);
}

static bool parse(struct api *api, struct str message, const struct json **v, struct refusal *f)
{
    struct err_text e = {0};
    return json_parse(api->g.work, message, "message", ERR_REQUEST, v, &e) == ERR_OK ||
           refuse_err(f, &e, "invalid_json", NULL);
}

void socket_text(void *app, conn_id id, struct str message)
{
    struct api *api = app;
    struct refusal f = {0};
    const struct json *v = NULL;
    char note[API_NOTE_BYTES];
    struct socket *s = socket_of(api, id);
    ASSERT(s);
    struct caller c = s->caller;
    bool turn = s->dialect == &turn_dialect;
    c.number = ++api->number | (u64)1 << 63; /* never one of the connections' numbers */
    c.start_ns = api_now(api);
    if (!parse(api, message, &v, &f) || !(turn ? converse_message(api, s, message.n, v, &c, &f)
                                               : chat_message(api, s, v, &c, &f))) {
        api_note(&f, note);
        if (turn)
            converse_refuse(api, &c, v, &f);
        else
            chat_refuse(api, &c, &f);
        api_done(api, &c, f.status, 0, 0, note);
    }
    arena_reset(api->g.work, 0);
}

void socket_close_idle(struct api *api)
{
    for (u32 i = 0; i < api->n_sockets;) {
        conn_id id = api->sockets[i].caller.conn;
        if (job_of(api, id)) {
            i++;
            continue;
        }
        conn_ws_close(api->conns, id, 1001, STR("the server is shutting down"));
        socket_gone(api, id);
    }
}
