#include "net/walk.h"

/* Replies sent whole: what came is kept as records (token, logprob, tops) in the store, and the
 * text is decoded again at the end, so that memory is bounded by tokens, not by their text. */

enum { CHOICE_BYTES = 60, LOGPROB_BYTES = 6, CHAT_LOGPROB_BYTES = 35 }; /* at least */

static size_t logprob_bytes(const struct job *job, u32 tops)
{
    return !job->logprobs ? 0
           : job->dialect->kind != PARAMS_COMPLETION
               ? (1 + tops) * CHAT_LOGPROB_BYTES
               : LOGPROB_BYTES; /* tops of the same text are one */
}

size_t whole_choice_bytes(const struct job *job, size_t echo, u32 tokens)
{
    return CHOICE_BYTES + echo + tokens * logprob_bytes(job, 0);
}

bool whole_fits(const struct api *api, const struct job *job)
{
    return job->least_bytes <= api->g.body_bytes;
}

static void record(struct api *api, struct choice *c, const struct step_result *r)
{
    static const struct top_logprob nothing = {0, -9999.0f};
    store_put(&api->store, &c->tokens, &r->token, sizeof r->token);
    store_put(&api->store, &c->tokens, &r->logprob, sizeof r->logprob);
    for (u32 i = 0; i < c->job->top_logprobs; i++)
        store_put(&api->store, &c->tokens, i < r->n_top ? &r->top[i] : &nothing, sizeof r->top[i]);
}

void whole_prompt_token(struct api *api, struct choice *c, const struct step_result *r)
{
    record(api, c, r);
    c->given++;
}

bool whole_event(struct api *api, struct choice *c, const struct event *event)
{
    struct job *job = c->job;
    c->text_bytes += (u32)event->text.n;
    if (event->has_token) {
        record(api, c, event->result);
        c->logprob_sum += shape_logprob(event->result->logprob);
    }
    if (job->best_of > job->n) /* which of them come back is known at the end */
        return true;
    job->least_bytes += event->text.n;
    if (event->has_token && !c->silent_end)
        job->least_bytes += logprob_bytes(job, event->result->n_top);
    return whole_fits(api, job);
}

/* --- text -------------------------------------------------------------------------------------
 */

static void put_chain(struct json_out *o, const struct api *api, const struct chain *c)
{
    struct chain_reader r = store_from(c);
    char piece[STORE_BLOCK_BYTES + 4];
    size_t held = 0;
    for (size_t left = c->n; left > 0;) {
        size_t n = MIN(left, (size_t)STORE_BLOCK_BYTES);
        bool there = store_get(&api->store, c, &r, piece + held, n);
        ASSERT(there);
        left -= n;
        n += held;
        size_t whole = n; /* a character cut in two waits for its rest */
        while (left > 0 && whole > 0 && ((u8)piece[whole - 1] & 0xc0) == 0x80)
            whole--;
        if (left > 0 && whole > 0)
            whole--;
        json_put_piece(o, (struct str){piece, whole});
        held = n - whole;
        memmove(piece, piece + whole, held);
    }
}

static void put_text(struct json_out *o, const struct api *api, const struct choice *c)
{
    static struct walk w; /* one at a time */
    json_open_str(o);
    put_chain(o, api, &c->echo);
    for (walk_from(&w, api, c); walk_next(&w);)
        if (!w.given)
            json_put_piece(o, w.text);
    json_close_str(o);
}

/* --- chat ---------------------------------------------------------------------------------------
 */

static void chat_logprobs(struct json_out *o, const struct api *api, const struct choice *c)
{
    static struct walk w;
    json_open(o, '{');
    json_key(o, "content");
    json_open(o, '[');
    for (walk_from(&w, api, c); walk_next(&w);)
        if (!w.silent)
            shape_chat_logprob(o, api, &w.r, c->job->top_logprobs);
    json_close(o, ']');
    json_key(o, "refusal");
    json_put_null(o);
    json_close(o, '}');
}

/* Thoughts, or what stands outside of these and of calls, as a string; false: there is nothing.
 * Then how many calls and thoughts there are is known. */
static bool said(struct json_out *o, const struct api *api, struct choice *c, enum part part,
                 const char *key)
{
    static struct telling t;
    struct piece piece;
    bool any = false;
    tell_from(&t, api, c);
    while (tell_next(&t, &piece)) {
        if (piece.part != part)
            continue;
        if (!any) {
            json_key(o, key);
            json_open_str(o);
        }
        any = true;
        json_put_piece(o, piece.text);
    }
    c->reader = t.reader;
    c->thoughts = t.thoughts;
    if (any)
        json_close_str(o);
    return any;
}

static void begin_call(struct json_out *o, const struct api *api, const struct choice *c, u32 i,
                       struct str name)
{
    char id[SHAPE_CALL_ID];
    shape_call_id(api, c, i, id);
    json_open(o, '{');
    json_key(o, "id");
    json_put_str(o, str_of(id));
    json_key(o, "type");
    json_put_str(o, STR("function"));
    json_key(o, "function");
    json_open(o, '{');
    json_key(o, "name");
    json_put_str(o, name);
    json_key(o, "arguments");
    json_open_str(o);
}

static void end_call(struct json_out *o)
{
    json_close_str(o);
    json_close(o, '}');
    json_close(o, '}');
}

static void calls(struct json_out *o, const struct api *api, const struct choice *c)
{
    static struct telling t;
    struct piece piece;
    u32 most = c->job->one_call ? 1 : UINT32_MAX, begun = 0;
    tell_from(&t, api, c);
    json_key(o, "tool_calls");
    json_open(o, '[');
    while (tell_next(&t, &piece)) {
        bool call = piece.part == PART_NAME || piece.part == PART_ARGUMENTS;
        if (!call || t.reader.calls.calls > most)
            continue;
        if (piece.part == PART_ARGUMENTS) {
            json_put_piece(o, piece.text);
            continue;
        }
        if (begun)
            end_call(o);
        begin_call(o, api, c, begun++, piece.text);
    }
    end_call(o);
    json_close(o, ']');
}

static void chat_choice(struct json_out *o, const struct api *api, struct choice *c)
{
    json_key(o, "message");
    json_open(o, '{');
    json_key(o, "role");
    json_put_str(o, STR("assistant"));
    if (c->job->form.thoughts)
        said(o, api, c, PART_THOUGHT, "reasoning_content");
    if (!said(o, api, c, PART_TEXT, "content")) {
        json_key(o, "content");
        if (c->reader.calls.calls)
            json_put_null(o);
        else
            json_put_str(o, STR(""));
    }
    if (c->reader.calls.calls)
        calls(o, api, c);
    json_key(o, "refusal");
    json_put_null(o);
    json_close(o, '}');
    json_key(o, "logprobs");
    if (c->job->logprobs)
        chat_logprobs(o, api, c);
    else
        json_put_null(o);
}

/* --- completions ----------------------------------------------------------------------------- */

enum text_list { TOKENS, TOKEN_LOGPROBS, TOP_LOGPROBS, TEXT_OFFSET, TEXT_LISTS };

static void text_list(struct json_out *o, const struct api *api, const struct choice *c,
                      enum text_list what)
{
    static struct walk w;
    json_open(o, '[');
    for (walk_from(&w, api, c); walk_next(&w);) {
        if (w.silent)
            continue;
        bool first = w.given && w.i == 1; /* nothing comes before it */
        if (what == TOKENS)
            shape_token(o, api, w.r.token);
        else if (first && what != TEXT_OFFSET)
            json_put_null(o);
        else if (what == TOKEN_LOGPROBS)
            json_put_f32(o, shape_logprob(w.r.logprob));
        else if (what == TOP_LOGPROBS)
            shape_text_tops(o, api, &w.r, c->job->top_logprobs);
        else
            json_put_u64(o, w.chars);
    }
    json_close(o, ']');
}

static void text_choice(struct json_out *o, const struct api *api, const struct choice *c)
{
    static const char *const lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    json_key(o, "text");
    put_text(o, api, c);
    json_key(o, "logprobs");
    if (!c->job->logprobs) {
        json_put_null(o);
        return;
    }
    json_open(o, '{');
    for (u32 i = 0; i < TEXT_LISTS; i++) {
        json_key(o, lists[i]);
        text_list(o, api, c, (enum text_list)i);
    }
    json_close(o, '}');
}

/* --- the reply -------------------------------------------------------------------------------- */

static double quality(const struct choice *c)
{
    return c->outputs ? c->logprob_sum / c->outputs : -9999.0;
}

/* True when c is among the n best of its prompt; ties: the earlier one. */
static bool chosen(const struct job *job, const struct choice *c)
{
    u32 better = 0;
    for (const struct choice *o = job->choices; o; o = o->next)
        better += o->prompt == c->prompt &&
                  (quality(o) > quality(c) || (quality(o) == quality(c) && o->index < c->index));
    return job->best_of == job->n || better < job->n;
}

static void choices(struct json_out *o, const struct api *api, struct job *job)
{
    u32 index = 0;
    json_key(o, "choices");
    json_open(o, '[');
    for (struct choice *c = job->choices; c; c = c->next) {
        if (!chosen(job, c))
            continue;
        json_open(o, '{');
        json_key(o, "index");
        json_put_u64(o, index++);
        if (job->dialect->kind == PARAMS_CHAT)
            chat_choice(o, api, c);
        else
            text_choice(o, api, c);
        json_key(o, "finish_reason");
        json_put_str(o, str_of(shape_finish(c, c->finish)));
        json_close(o, '}');
    }
    json_close(o, ']');
}

void whole_completion(struct json_out *o, const struct api *api, struct job *job)
{
    shape_head(o, api, job);
    choices(o, api, job);
    shape_usage(o, job);
    json_close(o, '}');
}

bool whole_end(struct api *api, struct job *job, struct refusal *f)
{
    struct json_out o = api_out(api);
    job->dialect->whole(&o, api, job);
    struct str body = {o.p, o.n};
    if (o.full)
        return api_too_large(api, job, f);
    if (!api_takes(api, &job->caller, body, f))
        return false;
    conn_reply(api->conns, job->caller.conn, job->status, "application/json", body,
               api_extra(api, &job->caller, NULL));
    job->caller.conn = 0;
    return true;
}
