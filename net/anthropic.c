/* The dialect of POST /v1/messages, Anthropic's: an answer is a list of blocks, thoughts, texts
 * and uses of tools. A stream tells them as they come and keeps nothing. Calls have the ids of
 * chat's, as the templates of some models demand. */
#include "net/walk.h"

/* --- what all replies have ---------------------------------------------------------------------
 */

/* What was found in the cache is told apart from the rest of the prompt. */
static void put_usage(struct json_out *o, const struct choice *c)
{
    json_key(o, "usage");
    json_open(o, '{');
    json_pair_u64(o, "input_tokens", c->n_prompt - c->cached);
    json_pair_u64(o, "cache_creation_input_tokens", 0);
    json_pair_u64(o, "cache_read_input_tokens", c->cached);
    json_pair_u64(o, "output_tokens", c->outputs);
    json_close(o, '}');
}

static void put_stop(struct json_out *o, const struct choice *c)
{
    const char *reason = NULL;
    if (c->finish == FINISH_LENGTH)
        reason = "max_tokens";
    else if (c->finish != FINISH_NONE)
        reason = c->stop.n ? "stop_sequence" : c->items.calls ? "tool_use" : "end_turn";
    json_key(o, "stop_reason");
    if (reason)
        json_put_str(o, str_of(reason));
    else
        json_put_null(o);
    json_key(o, "stop_sequence");
    if (reason && c->stop.n)
        json_put_str(o, c->stop);
    else
        json_put_null(o);
}

/* Up to its content. */
static void open_message(struct json_out *o, const struct api *api, const struct job *job)
{
    json_open(o, '{');
    json_pair_text(o, "id", job->id);
    json_pair_text(o, "type", "message");
    json_pair_text(o, "role", "assistant");
    json_pair_text(o, "model", api->g.name);
    json_key(o, "content");
    json_open(o, '[');
}

static void close_message(struct json_out *o, const struct choice *c)
{
    json_close(o, ']');
    put_stop(o, c);
    put_usage(o, c);
    json_close(o, '}');
}

/* A block, up to its text or its input. */
static void open_block(struct json_out *o, const struct api *api, const struct choice *c,
                       const struct items *s, struct str name)
{
    static const char *const types[] = {
        [ITEM_TEXT] = "text", [ITEM_CALL] = "tool_use", [ITEM_THOUGHT] = "thinking"};
    char id[SHAPE_CALL_ID];
    bool call = s->open == ITEM_CALL;
    json_open(o, '{');
    json_pair_text(o, "type", types[s->open]);
    if (s->open == ITEM_THOUGHT) /* nobody signs here, but clients want to have it */
        json_pair_text(o, "signature", "");
    if (call) {
        shape_call_id(api, c, s->calls - 1, id);
        json_pair_text(o, "id", id);
        json_key(o, "name");
        json_put_str(o, name);
    }
    json_key(o, call ? "input" : types[s->open]);
}

/* --- whole -------------------------------------------------------------------------------------
 */

static bool is_object(const struct api *api, struct str text)
{
    struct arena *work = api->g.work;
    struct err_text e = {0};
    const struct json *v;
    size_t mark = work->used_bytes;
    bool good =
        json_parse(work, text, "input", ERR_REQUEST, &v, &e) == ERR_OK && v->type == JSON_OBJECT;
    arena_reset(work, mark);
    return good;
}

/* The input of a call is JSON, and stands from `start` on as the model wrote it: what it left
 * broken, or unfinished, becomes a string in an object that says so. */
static void check_input(struct json_out *o, const struct api *api, const struct choice *c,
                        const struct items *s, size_t start)
{
    if (o->full || is_object(api, (struct str){o->p + start, o->n - start}))
        return;
    bool none = o->n == start;
    o->n = start;
    o->comma = false;
    json_open(o, '{');
    if (!none) {
        json_key(o, "INVALID_JSON");
        item_put_text(o, api, c, s->n - 1);
    }
    json_close(o, '}');
}

static void put_blocks(struct json_out *o, const struct api *api, struct choice *c)
{
    static struct item_walk w;
    size_t start = 0;
    bool more = true;
    item_from(&w, api, c);
    while (more) {
        struct items before = w.items;
        more = item_next(&w);
        if ((w.begins || !more) && before.n) {
            if (before.open != ITEM_CALL)
                json_close_str(o);
            else
                check_input(o, api, c, &before, start);
            json_close(o, '}');
        }
        if (more && w.begins) {
            open_block(o, api, c, &w.items, w.piece.text);
            start = o->n;
            if (w.items.open != ITEM_CALL)
                json_open_str(o);
        }
        if (more && w.items.open != ITEM_CALL)
            json_put_piece(o, w.piece.text);
        if (more && w.piece.part == PART_ARGUMENTS) {
            json_put_number(o, w.piece.text);
            o->comma = false; /* the pieces are one text */
        }
    }
    c->items = w.items;
}

static void whole(struct json_out *o, const struct api *api, struct job *job)
{
    open_message(o, api, job);
    put_blocks(o, api, job->choices);
    close_message(o, job->choices);
}

/* --- a stream ----------------------------------------------------------------------------------
 */

static struct json_out open_event(struct api *api, const char *name)
{
    struct json_out o = stream_open(api, name);
    json_open(&o, '{');
    json_pair_text(&o, "type", name);
    return o;
}

static struct json_out block_event(struct api *api, const struct items *s, const char *name)
{
    struct json_out o = open_event(api, name);
    json_pair_u64(&o, "index", s->n - 1);
    return o;
}

static void send_event(struct api *api, struct job *job, struct json_out *o)
{
    json_close(o, '}');
    stream_send(api, job, o, false);
}

/* With the first event, as it is known then what the cache had. */
static void tell_start(struct api *api, struct choice *c)
{
    struct choice so_far = *c;
    struct json_out o = open_event(api, "message_start");
    so_far.finish = FINISH_NONE;
    json_key(&o, "message");
    open_message(&o, api, c->job);
    close_message(&o, &so_far);
    send_event(api, c->job, &o);
    o = open_event(api, "ping");
    send_event(api, c->job, &o);
}

static void tell_block(struct api *api, struct choice *c, struct str name)
{
    struct json_out o = block_event(api, &c->items, "content_block_start");
    json_key(&o, "content_block");
    open_block(&o, api, c, &c->items, name);
    if (c->items.open == ITEM_CALL) {
        json_open(&o, '{');
        json_close(&o, '}');
    } else {
        json_put_str(&o, STR(""));
    }
    json_close(&o, '}');
    send_event(api, c->job, &o);
}

static void tell_delta(struct api *api, struct choice *c, struct str delta)
{
    static const char
        *const types[] = {[ITEM_TEXT] = "text_delta",
                          [ITEM_CALL] = "input_json_delta",
                          [ITEM_THOUGHT] = "thinking_delta"},
               *const keys[] = {
                   [ITEM_TEXT] = "text", [ITEM_CALL] = "partial_json", [ITEM_THOUGHT] = "thinking"};
    struct json_out o = block_event(api, &c->items, "content_block_delta");
    json_key(&o, "delta");
    json_open(&o, '{');
    json_pair_text(&o, "type", types[c->items.open]);
    json_key(&o, keys[c->items.open]);
    json_put_str(&o, delta);
    json_close(&o, '}');
    send_event(api, c->job, &o);
}

static void tell_stop(struct api *api, struct choice *c, const struct items *s)
{
    struct json_out o = block_event(api, s, "content_block_stop");
    send_event(api, c->job, &o);
}

static void piece(struct api *api, struct choice *c, const struct piece *p)
{
    struct items before = c->items;
    enum item_step step = item_step(&c->items, c->job, p->part, c->reader.calls.calls);
    if (step == ITEM_BEGINS && before.n)
        tell_stop(api, c, &before);
    if (step == ITEM_BEGINS)
        tell_block(api, c, p->text);
    if (step != ITEM_LEFT_OUT && p->part != PART_NAME)
        tell_delta(api, c, p->text);
}

static void event(struct api *api, struct choice *c, const struct event *event,
                  const struct step_result *logprobs)
{
    (void)logprobs; /* nobody can ask for them */
    if (!c->begun)
        tell_start(api, c);
    stream_pieces(api, c, event, piece);
    if (event->finish != FINISH_NONE && c->items.n)
        tell_stop(api, c, &c->items);
}

static void end(struct api *api, struct job *job)
{
    struct json_out o = open_event(api, "message_delta");
    json_key(&o, "delta");
    json_open(&o, '{');
    put_stop(&o, job->choices);
    json_close(&o, '}');
    put_usage(&o, job->choices);
    send_event(api, job, &o);
    o = open_event(api, "message_stop");
    send_event(api, job, &o);
    stream_close(api, job);
}

static void failed(struct api *api, struct job *job, const struct refusal *f)
{
    char id[API_ID_BYTES];
    struct json_out o = stream_open(api, "error");
    api_id(api, job->caller.number, "req-", id);
    refusal_message_json(&o, f, id);
    stream_send(api, job, &o, false);
    stream_close(api, job);
}

const struct dialect message_dialect = {.kind = PARAMS_MESSAGE,
                                        .prefix = "msg_",
                                        .whole = whole,
                                        .event = event,
                                        .end = end,
                                        .failed = failed};
