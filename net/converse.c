/* WebSockets at /v1/responses: {"type": "response.create", ...} with the fields of a request's
 * body, answered by the events of its stream, or by one of type "error". The items of the newest
 * response and of all before it are kept as long as the WebSocket lives, for a next request that
 * goes on from there: in a store of blocks (server.conversation_memory), each at most as long as a
 * body. When blocks are short those that rested longest are lost. Who goes on from what is not
 * there is told why, and sends all items again. */
#include "net/fields.h"
#include "net/route.h"

#include <stdio.h>

/* --- what is kept ------------------------------------------------------------------------------
 */

void converse_lose(struct api *api, struct socket *s, const char *why)
{
    if (!s)
        return;
    store_give(&api->conversations, &s->items);
    s->lost = why;
    s->busy = false;
}

static struct socket *rested_longest(const struct api *api, const struct socket *but)
{
    struct socket *longest = NULL;
    for (u32 i = 0; i < api->n_sockets; i++) {
        struct socket *s = &api->sockets[i];
        if (s != but && !s->busy && s->items.blocks && (!longest || s->used < longest->used))
            longest = s;
    }
    return longest;
}

/* Room for so many bytes more; not at the cost of who is being answered. */
static bool make_room(struct api *api, const struct socket *s, size_t bytes)
{
    struct store *store = &api->conversations;
    size_t lacks = store_lacks(&s->items, bytes);
    if (lacks > store->n - s->items.blocks)
        return false;
    while (lacks > store->free) {
        struct socket *other = rested_longest(api, s);
        if (!other)
            return false;
        converse_lose(api, other, "others needed its memory (server.conversation_memory)");
        api->metrics.conversations_lost++;
    }
    return true;
}

static struct json_out open_items(struct api *api, const struct socket *s)
{
    struct json_out o = json_out_over(api->text, s && !s->lost ? api->text_bytes : 0);
    o.comma = s && s->items.n > 0;
    return o;
}

static void add(struct api *api, struct socket *s, const struct json_out *o)
{
    bool too_long = o->full || s->items.n + o->n > api->g.body_bytes - 2; /* [ and ] */
    if (s->lost || (o->n == 0 && !o->full))
        return;
    if (!too_long && make_room(api, s, o->n)) {
        store_grow(&api->conversations, &s->items, o->n);
        store_put(&api->conversations, &s->items, o->p, o->n);
        return;
    }
    converse_lose(api, s,
                  too_long ? "it is longer than a body may be (server.body_max)"
                           : "there is no room for it (server.conversation_memory)");
    api->metrics.conversations_lost++;
}

/* What was asked. Of what goes on from nothing it is the beginning. */
static void begin(struct api *api, struct socket *s, const struct json *input, u64 number)
{
    if (!s->earlier) {
        store_give(&api->conversations, &s->items);
        s->lost = NULL;
    }
    s->newest[0] = 0;
    s->used = number;
    struct json_out o = open_items(api, s);
    if (input && input->type == JSON_STRING) {
        json_open(&o, '{');
        json_pair_text(&o, "role", "user");
        json_key(&o, "content");
        json_put_str(&o, input->text);
        json_close(&o, '}');
    } else {
        for (const struct json *v = input ? input->child : NULL; v; v = v->next)
            if (!field_is_str(json_get(v, "type"), "reasoning") || json_get(v, "content"))
                json_put_tree(&o, v); /* others nobody will read */
    }
    add(api, s, &o);
    s->busy = true;
}

struct json_out converse_open(struct api *api, conn_id id)
{
    return open_items(api, socket_of(api, id));
}

void converse_end(struct api *api, conn_id id, const char *response, const struct json_out *o)
{
    struct socket *s = socket_of(api, id);
    if (!s)
        return;
    snprintf(s->newest, sizeof s->newest, "%s", response);
    add(api, s, o);
    s->busy = false;
}

/* The items before those of a message of so many bytes. */
static bool earlier(struct api *api, struct socket *s, struct str id, size_t bytes,
                    struct refusal *f)
{
    static const char code[] = "previous_response_not_found", param[] = "previous_response_id";
    struct chain_reader r = store_from(&s->items);
    struct err_text e = {0};
    size_t n = s->items.n;
    if (!str_is(id, s->newest))
        return refuse(f, 400, code, param,
                      "there is no response '%.*s' to go on from: %s%s; send all items in input, "
                      "without %s",
                      (int)MIN(id.n, (size_t)60), id.p,
                      s->newest[0] ? "the newest of this WebSocket is "
                      : s->lost    ? s->lost
                                   : "this WebSocket has none",
                      s->newest, param);
    if (s->lost)
        return refuse(f, 400, code, param,
                      "the conversation of '%s' is not kept, as %s: send all items in input, "
                      "without %s",
                      s->newest, s->lost, param);
    if (n + bytes > api->g.body_bytes)
        return refuse(f, 413, "request_too_large", "input",
                      "the conversation has %zu bytes, and %zu more come: a body may have %zu "
                      "(server.body_max)",
                      n, bytes, api->g.body_bytes);
    api->text[0] = '[';
    bool there = store_get(&api->conversations, &s->items, &r, api->text + 1, n);
    ASSERT(there);
    api->text[n + 1] = ']';
    return json_parse(api->g.work, (struct str){api->text, n + 2}, "conversation", ERR_REQUEST,
                      &s->earlier, &e) == ERR_OK ||
           refuse_err(f, &e, "request_too_large", param);
}

/* --- messages ----------------------------------------------------------------------------------
 */

static const char STEER[] = "response.steer";

/* Who was to be steered goes on, and what was to steer him comes back. */
static void put_steer(struct json_out *o, struct job *job, const struct json *v,
                      const struct refusal *f)
{
    static const char *const back[] = {"previous_response_id", "input"};
    json_open(o, '{');
    json_pair_text(o, "type", "response.steer.failed");
    json_pair_u64(o, "sequence_number", job ? job->sequence++ : 0);
    json_key(o, "error");
    json_open(o, '{');
    json_pair_text(o, "type", refusal_type(f->status));
    json_pair_text(o, "code", f->code);
    json_pair_text(o, "message", f->text);
    json_close(o, '}');
    json_key(o, "steer");
    json_open(o, '{');
    for (u32 i = 0; i < COUNTOF(back); i++) {
        const struct json *member = json_get(v, back[i]);
        json_key(o, back[i]);
        if (member)
            json_put_tree(o, member);
        else
            json_put_null(o);
    }
    json_close(o, '}');
    json_close(o, '}');
}

void converse_refuse(struct api *api, const struct caller *c, const struct json *v,
                     const struct refusal *f)
{
    struct json_out o = api_out(api);
    if (field_is_str(json_get(v, "type"), STEER))
        put_steer(&o, job_of(api, c->conn), v, f);
    if (o.n == 0 || o.full) {
        o = api_out(api);
        refusal_event_json(&o, f);
    }
    conn_widen(api->conns, c->conn, o.n);
    (void)conn_ws_send(api->conns, c->conn, (struct str){o.p, o.n});
}

static bool create(struct api *api, struct socket *s, size_t bytes, const struct json *v,
                   const struct caller *c, struct refusal *f)
{
    const struct json *id = json_get(v, "previous_response_id");
    s->earlier = NULL;
    if (!socket_free(api, c, "close it to end that", f))
        return false;
    if (id && id->type == JSON_STRING && id->text.n && !earlier(api, s, id->text, bytes, f))
        return false;
    if (!job_begin(api, c, s->dialect, s, v, f))
        return false;
    begin(api, s, json_get(v, "input"), c->number);
    return true;
}

bool converse_message(struct api *api, struct socket *s, size_t bytes, const struct json *v,
                      const struct caller *c, struct refusal *f)
{
    const struct json *type = json_get(v, "type");
    if (v->type != JSON_OBJECT)
        return refuse(f, 400, "invalid_type", NULL, "a message must be a JSON object, not %s",
                      json_type_name(v));
    if (!type || type->type != JSON_STRING)
        return refuse(f, 400, "missing_required_parameter", "type",
                      "type is missing: a message is {\"type\": \"response.create\", ...}");
    if (field_is_str(type, STEER))
        return refuse(f, 400, "steering_not_supported", "type",
                      "a response in work takes no further input here: wait for its end, and go "
                      "on from it");
    if (!field_is_str(type, "response.create"))
        return refuse(f, 400, "invalid_value", "type",
                      "'%.*s' is no type of message here, \"response.create\" is; to end a "
                      "response early close the WebSocket",
                      (int)MIN(type->text.n, (size_t)60), type->text.p);
    return create(api, s, bytes, v, c, f);
}
