/* The dialect of POST /v1/responses, without anything kept between requests: an answer is a list of
 * items, thoughts, messages and calls of functions, and a stream tells how each of them grows. What
 * of the request comes back in every reply lies in the store until the job ends. */
#include "net/route.h"
#include "net/walk.h"

/* --- what comes back of the request ------------------------------------------------------------
 */

/* A field as it was given; if it was not, or null, `otherwise`, which is JSON. */
static void given(struct json_out *o, const struct json *v, const char *key, const char *otherwise)
{
    json_key(o, key);
    if (v && v->type != JSON_NULL)
        json_put_tree(o, v);
    else
        json_put_number(o, str_of(otherwise));
}

static void echo(struct json_out *o, const struct params *p)
{
    static const char *const plain[] = {"instructions", "max_output_tokens", "user",
                                        "safety_identifier", "prompt_cache_key"};
    const struct json *format = json_get(json_get(p->body, "text"), "format"),
                      *effort = json_get(json_get(p->body, "reasoning"), "effort");
    for (u32 i = 0; i < COUNTOF(plain); i++)
        given(o, json_get(p->body, plain[i]), plain[i], "null");
    given(o, json_get(p->body, "metadata"), "metadata", "{}");
    json_key(o, "reasoning");
    json_open(o, '{');
    given(o, effort, "effort", "null");
    json_pair_null(o, "summary");
    json_close(o, '}');
    json_key(o, "text");
    json_open(o, '{');
    given(o, format, "format", "{\"type\":\"text\"}");
    json_close(o, '}');
    given(o, json_get(p->body, "truncation"), "truncation", "\"disabled\"");
    given(o, json_get(p->body, "tools"), "tools", "[]");
    given(o, json_get(p->body, "tool_choice"), "tool_choice", "\"auto\"");
    json_key(o, "parallel_tool_calls");
    json_put_bool(o, !p->one_call);
    json_key(o, "temperature");
    json_put_f64(o, p->sampling.temperature, 6);
    json_key(o, "top_p");
    json_put_f64(o, p->sampling.top_p, 6);
    json_pair_u64(o, "top_logprobs", p->sampling.top_logprobs);
    json_key(o, "previous_response_id");
    if (p->previous.n)
        json_put_str(o, p->previous);
    else
        json_put_null(o);
}

static void put_request(struct json_out *o, const struct api *api, const struct job *job)
{
    struct chain_reader r = store_from(&job->request);
    char piece[STORE_BLOCK_BYTES];
    for (size_t left = job->request.n; left > 0;) {
        size_t n = MIN(left, sizeof piece);
        bool there = store_get(&api->store, &job->request, &r, piece, n);
        ASSERT(there);
        left -= n;
        json_put_number(o, (struct str){piece, n});
        o->comma = left == 0; /* the pieces are one text */
    }
}

/* --- items -------------------------------------------------------------------------------------
 */

static void item_id(const struct api *api, const struct choice *c, const struct items *s,
                    char id[API_ID_BYTES])
{
    static const char *const prefixes[] = {
        [ITEM_TEXT] = "msg_", [ITEM_CALL] = "fc_", [ITEM_THOUGHT] = "rs_"};
    api_id(api, c->job->caller.number << 16 ^ s->n, prefixes[s->open], id);
}

static void put_empty(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_open(o, '[');
    json_close(o, ']');
}

/* The item stays open: a call in its object, others in their content. name: of the function. */
static void open_item(struct json_out *o, const struct api *api, const struct choice *c,
                      const struct items *s, const char *status, struct str name)
{
    static const char *const types[] = {
        [ITEM_TEXT] = "message", [ITEM_CALL] = "function_call", [ITEM_THOUGHT] = "reasoning"};
    char id[API_ID_BYTES];
    item_id(api, c, s, id);
    json_open(o, '{');
    json_pair_text(o, "id", id);
    json_pair_text(o, "type", types[s->open]);
    json_pair_text(o, "status", status);
    if (s->open == ITEM_CALL) {
        shape_call_id(api, c, s->calls - 1, id);
        json_pair_text(o, "call_id", id);
        json_key(o, "name");
        json_put_str(o, name);
        return;
    }
    if (s->open == ITEM_TEXT)
        json_pair_text(o, "role", "assistant");
    else
        put_empty(o, "summary");
    json_key(o, "content");
    json_open(o, '[');
}

static void close_item(struct json_out *o, const struct items *s)
{
    if (s->open != ITEM_CALL)
        json_close(o, ']');
    json_close(o, '}');
}

/* The part of a message or of thoughts, until its text, which is written next. */
static void open_part(struct json_out *o, const struct items *s)
{
    json_open(o, '{');
    json_pair_text(o, "type", s->open == ITEM_TEXT ? "output_text" : "reasoning_text");
    if (s->open == ITEM_TEXT)
        put_empty(o, "annotations");
    json_key(o, "text");
}

static void close_part(struct json_out *o, const struct api *api, const struct choice *c,
                       const struct items *s)
{
    if (s->open == ITEM_TEXT) {
        json_key(o, "logprobs");
        item_put_logprobs(o, api, c, s->n - 1);
    }
    json_close(o, '}');
}

static void begin_item(struct json_out *o, const struct api *api, const struct choice *c,
                       const struct items *s, const char *status, struct str name)
{
    open_item(o, api, c, s, status, name);
    if (s->open == ITEM_CALL)
        json_key(o, "arguments");
    else
        open_part(o, s);
    json_open_str(o);
}

static void end_item(struct json_out *o, const struct api *api, const struct choice *c,
                     const struct items *s)
{
    json_close_str(o);
    if (s->open != ITEM_CALL)
        close_part(o, api, c, s);
    close_item(o, s);
}

/* Items from `from` on, before `to`, which are complete but for the last of all: that has the
 * status `last`. An answer that has said nothing is one empty message. */
static void put_items(struct json_out *o, const struct api *api, const struct choice *c, u32 from,
                      u32 to, const char *last)
{
    static struct item_walk w;
    struct items open = {0};
    u32 all = MAX(c->items.n, 1);
    item_from(&w, api, c);
    while (item_next(&w) && w.items.n <= to) {
        if (w.begins && open.n)
            end_item(o, api, c, &open);
        if (w.begins)
            open = w.items.n > from ? w.items : (struct items){0};
        if (w.begins && open.n)
            begin_item(o, api, c, &open, open.n == all ? last : "completed", w.piece.text);
        if (open.n && w.piece.part != PART_NAME)
            json_put_piece(o, w.piece.text);
    }
    if (w.items.n == 0) {
        open = (struct items){1, 0, ITEM_TEXT};
        begin_item(o, api, c, &open, last, STR(""));
    }
    if (open.n)
        end_item(o, api, c, &open);
}

/* Its limit has ended it, and not the one token that a prompt takes. */
static bool is_cut(const struct choice *c)
{
    return c->finish == FINISH_LENGTH && !c->job->no_answer;
}

static const char *last_status(const struct choice *c)
{
    return is_cut(c) ? "incomplete" : "completed";
}

/* --- a response --------------------------------------------------------------------------------
 */

static void put_usage(struct json_out *o, const struct choice *c)
{
    json_key(o, "usage");
    json_open(o, '{');
    json_pair_u64(o, "input_tokens", c->n_prompt);
    json_key(o, "input_tokens_details");
    json_open(o, '{');
    json_pair_u64(o, "cached_tokens", c->cached);
    json_pair_u64(o, "cache_write_tokens", 0);
    json_close(o, '}');
    json_pair_u64(o, "output_tokens", c->outputs);
    json_key(o, "output_tokens_details");
    json_open(o, '{');
    json_pair_u64(o, "reasoning_tokens", c->thoughts);
    json_close(o, '}');
    json_pair_u64(o, "total_tokens", (u64)c->n_prompt + c->outputs);
    json_close(o, '}');
}

static void put_error(struct json_out *o, const struct refusal *f)
{
    json_key(o, "error");
    if (!f) {
        json_put_null(o);
        return;
    }
    json_open(o, '{');
    json_pair_text(o, "code", f->code);
    json_pair_text(o, "message", f->text);
    json_close(o, '}');
}

/* over: with what was said and used. */
static void put_response(struct json_out *o, const struct api *api, const struct job *job,
                         const char *status, bool over, const struct refusal *f)
{
    const struct choice *c = job->choices;
    json_open(o, '{');
    json_pair_text(o, "id", job->id);
    json_pair_text(o, "object", "response");
    json_key(o, "created_at");
    json_put_i64(o, job->created_s);
    json_pair_text(o, "status", status);
    put_error(o, f);
    json_key(o, "incomplete_details");
    if (over && is_cut(c)) {
        json_open(o, '{');
        json_pair_text(o, "reason", "max_output_tokens");
        json_close(o, '}');
    } else {
        json_put_null(o);
    }
    json_pair_text(o, "model", api->g.name);
    put_request(o, api, job);
    json_key(o, "output");
    json_open(o, '[');
    if (over && !job->no_answer)
        put_items(o, api, c, 0, UINT32_MAX, last_status(c));
    json_close(o, ']');
    if (over)
        put_usage(o, c);
    else
        json_pair_null(o, "usage");
    json_key(o, "background");
    json_put_bool(o, false);
    json_key(o, "store");
    json_put_bool(o, false);
    json_pair_text(o, "service_tier", "default");
    json_close(o, '}');
}

/* How many items there are is known by a walk of its own: which of them is the last. */
static void whole(struct json_out *o, const struct api *api, struct job *job)
{
    static struct item_walk w;
    item_from(&w, api, job->choices);
    while (item_next(&w))
        ;
    job->choices->items = w.items;
    job->choices->thoughts = w.t.thoughts;
    put_response(o, api, job, last_status(job->choices), true, NULL);
}

/* --- a stream ----------------------------------------------------------------------------------
 */

static struct json_out open_event(struct api *api, struct job *job, const char *name)
{
    struct json_out o = stream_open(api, name);
    json_open(&o, '{');
    json_pair_text(&o, "type", name);
    json_pair_u64(&o, "sequence_number", job->sequence++);
    return o;
}

static void send_event(struct api *api, struct job *job, struct json_out *o, bool wide)
{
    json_close(o, '}');
    stream_send(api, job, o, wide);
}

static void tell_response(struct api *api, struct job *job, const char *name, const char *status,
                          bool over, const struct refusal *f)
{
    struct json_out o = open_event(api, job, name);
    json_key(&o, "response");
    put_response(&o, api, job, status, over, f);
    send_event(api, job, &o, true);
}

static void begin(struct api *api, struct job *job)
{
    tell_response(api, job, "response.created", "in_progress", false, NULL);
    tell_response(api, job, "response.in_progress", "in_progress", false, NULL);
}

/* Which item an event is about, and but for calls which part: there is one. */
static struct json_out item_event(struct api *api, const struct choice *c, const struct items *s,
                                  const char *name)
{
    char id[API_ID_BYTES];
    struct json_out o = open_event(api, c->job, name);
    item_id(api, c, s, id);
    json_pair_text(&o, "item_id", id);
    json_pair_u64(&o, "output_index", s->n - 1);
    if (s->open != ITEM_CALL)
        json_pair_u64(&o, "content_index", 0);
    return o;
}

static void tell_begin(struct api *api, struct choice *c, struct str name)
{
    const struct items *s = &c->items;
    struct json_out o = open_event(api, c->job, "response.output_item.added");
    json_pair_u64(&o, "output_index", s->n - 1);
    json_key(&o, "item");
    open_item(&o, api, c, s, "in_progress", name);
    if (s->open == ITEM_CALL)
        json_pair_text(&o, "arguments", "");
    close_item(&o, s);
    send_event(api, c->job, &o, false);
    if (s->open == ITEM_CALL)
        return;
    o = item_event(api, c, s, "response.content_part.added");
    json_key(&o, "part");
    open_part(&o, s);
    json_put_str(&o, STR(""));
    if (s->open == ITEM_TEXT)
        put_empty(&o, "logprobs");
    json_close(&o, '}');
    send_event(api, c->job, &o, false);
}

static void tell_delta(struct api *api, struct choice *c, struct str delta)
{
    static const char *const names[] = {[ITEM_TEXT] = "response.output_text.delta",
                                        [ITEM_CALL] = "response.function_call_arguments.delta",
                                        [ITEM_THOUGHT] = "response.reasoning_text.delta"};
    const struct items *s = &c->items;
    struct json_out o = item_event(api, c, s, names[s->open]);
    json_key(&o, "delta");
    json_put_str(&o, delta);
    if (s->open == ITEM_TEXT) {
        json_key(&o, "logprobs");
        json_open(&o, '[');
        if (c->job->logprobs)
            item_logprobs(&o, api, c, &c->told, c->outputs);
        json_close(&o, ']');
    }
    send_event(api, c->job, &o, false);
}

/* What item `s` has become, read back from its tokens: these are kept instead of its text. */
static void tell_end(struct api *api, struct choice *c, const struct items *s, const char *status)
{
    static const char *const names[] = {[ITEM_TEXT] = "response.output_text.done",
                                        [ITEM_CALL] = "response.function_call_arguments.done",
                                        [ITEM_THOUGHT] = "response.reasoning_text.done"};
    struct json_out o = item_event(api, c, s, names[s->open]);
    json_key(&o, s->open == ITEM_CALL ? "arguments" : "text");
    item_put_text(&o, api, c, s->n - 1);
    if (s->open == ITEM_TEXT) {
        json_key(&o, "logprobs");
        item_put_logprobs(&o, api, c, s->n - 1);
    }
    if (s->open != ITEM_CALL) {
        send_event(api, c->job, &o, true);
        o = item_event(api, c, s, "response.content_part.done");
        json_key(&o, "part");
        open_part(&o, s);
        item_put_text(&o, api, c, s->n - 1);
        close_part(&o, api, c, s);
    }
    send_event(api, c->job, &o, true);
    o = open_event(api, c->job, "response.output_item.done");
    json_pair_u64(&o, "output_index", s->n - 1);
    json_key(&o, "item");
    put_items(&o, api, c, s->n - 1, s->n, status);
    send_event(api, c->job, &o, true);
}

static void tell_piece(struct api *api, struct choice *c, const struct piece *piece)
{
    const struct job *job = c->job;
    struct items before = c->items;
    enum item_step step = item_step(&c->items, job, piece->part, c->reader.calls.calls);
    if (step == ITEM_BEGINS && before.n)
        tell_end(api, c, &before, "completed");
    if (step == ITEM_BEGINS)
        tell_begin(api, c, piece->text);
    if (step != ITEM_LEFT_OUT && piece->part != PART_NAME)
        tell_delta(api, c, piece->text);
    if (job->logprobs && piece->part != PART_TEXT) /* others have none */
        item_logprobs(NULL, api, c, &c->told, c->outputs);
}

static void finish(struct api *api, struct choice *c)
{
    bool rest = c->job->logprobs && c->told.n < c->outputs - c->silent_end;
    if (c->job->no_answer)
        return;
    if (c->items.n == 0) {
        item_step(&c->items, c->job, PART_TEXT, 0);
        tell_begin(api, c, STR(""));
    }
    if (rest && c->items.open == ITEM_TEXT) /* tokens that were no text */
        tell_delta(api, c, STR(""));
    tell_end(api, c, &c->items, last_status(c));
}

static void event(struct api *api, struct choice *c, const struct event *event,
                  const struct step_result *logprobs)
{
    (void)logprobs; /* they are read from the records: those of a token go with its text */
    stream_pieces(api, c, event, tell_piece);
    if (event->finish != FINISH_NONE)
        finish(api, c);
}

static void tell_last(struct api *api, struct job *job)
{
    const char *status = last_status(job->choices);
    bool cut = is_cut(job->choices);
    tell_response(api, job, cut ? "response.incomplete" : "response.completed", status, true, NULL);
}

static void end(struct api *api, struct job *job)
{
    tell_last(api, job);
    if (!job->overflow)
        stream_close(api, job);
}

static void failed(struct api *api, struct job *job, const struct refusal *f)
{
    struct json_out o = open_event(api, job, "error");
    json_pair_text(&o, "code", f->code);
    json_pair_text(&o, "message", f->text);
    if (f->param[0])
        json_pair_text(&o, "param", f->param);
    else
        json_pair_null(&o, "param");
    send_event(api, job, &o, false);
    tell_response(api, job, "response.failed", "failed", false, f);
    stream_close(api, job);
}

const struct dialect response_dialect = {.kind = PARAMS_RESPONSE,
                                         .prefix = "resp_",
                                         .keeps = true,
                                         .echo = echo,
                                         .whole = whole,
                                         .begin = begin,
                                         .event = event,
                                         .end = end,
                                         .failed = failed};

/* --- over a WebSocket --------------------------------------------------------------------------
 */

/* What was said goes to the conversation, as it would come back in a next request's input. */
static void keep(struct api *api, struct job *job)
{
    struct json_out o = converse_open(api, job->caller.conn);
    bool logprobs = job->logprobs;
    job->logprobs = false;
    if (!job->no_answer)
        put_items(&o, api, job->choices, 0, UINT32_MAX, last_status(job->choices));
    job->logprobs = logprobs;
    converse_end(api, job->caller.conn, job->id, &o);
}

static void turn_end(struct api *api, struct job *job)
{
    tell_last(api, job);
    if (job->overflow)
        return;
    keep(api, job);
    stream_close(api, job);
}

/* One event ends a response: clients take the next one for another's. */
static void turn_failed(struct api *api, struct job *job, const struct refusal *f)
{
    tell_response(api, job, "response.failed", "failed", false, f);
    converse_lose(api, socket_of(api, job->caller.conn), "its newest response has failed");
    stream_close(api, job);
}

const struct dialect turn_dialect = {.kind = PARAMS_TURN,
                                     .prefix = "resp_",
                                     .keeps = true,
                                     .echo = echo,
                                     .begin = begin,
                                     .event = event,
                                     .end = turn_end,
                                     .failed = turn_failed};
