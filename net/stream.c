#include "net/route.h"

#include <stdio.h>

/* Replies in pieces: server-sent events (WHATWG HTML, section 9.2) ended by "data: [DONE]", or one
 * WebSocket message a chunk, ended by {"type": "done"}. */

/* A piece of a prompt's text, and the room that its chunk needs however it is escaped: less than
 * the least server.output. */
enum { ECHO_BYTES = 2 << 10, ECHO_ROOM = 6 * ECHO_BYTES + 1024, EVENT_BYTES = 64 };

/* The name as a line of its own, and the beginning of the data. */
struct json_out stream_open(struct api *api, const char *name)
{
    int n = 0;
    if (name)
        n = snprintf(api->text, EVENT_BYTES, "event: %s\n", name);
    ASSERT(n >= 0 && n < EVENT_BYTES);
    memcpy(api->text + n, "data: ", 6);
    return json_out_over(api->text + n + 6, api->text_bytes - (size_t)n - 8);
}

static struct json_out chunk_begin(struct api *api)
{
    return stream_open(api, NULL);
}

static void send_bytes(struct api *api, struct job *job, struct str bytes)
{
    if (job->caller.conn == 0)
        return;
    job->sent_ns = api_now(api);
    if (!(job->ws ? conn_ws_send(api->conns, job->caller.conn, bytes)
                  : conn_write(api->conns, job->caller.conn, bytes)))
        job_lost(api, job);
}

void stream_send(struct api *api, struct job *job, struct json_out *o, bool wide)
{
    ASSERT(!o->full || job->dialect->keeps); /* text_bytes holds the longest chunk of others */
    job->overflow |= o->full;
    if (job->overflow)
        return;
    struct str bytes = {o->p, o->n};
    if (!job->ws) {
        memcpy(o->p + o->n, "\n\n", 2);
        bytes = (struct str){api->text, (size_t)(o->p + o->n - api->text) + 2};
    }
    if (wide && job->caller.conn)
        conn_widen(api->conns, job->caller.conn, bytes.n);
    send_bytes(api, job, bytes);
}

static void chunk_send(struct api *api, struct job *job, struct json_out *o)
{
    stream_send(api, job, o, false);
}

/* id ... choices: [{index: i, and it stays open. */
static struct json_out choice_begin(struct api *api, const struct choice *c)
{
    struct json_out o = chunk_begin(api);
    shape_head(&o, api, c->job);
    json_key(&o, "choices");
    json_open(&o, '[');
    json_open(&o, '{');
    json_key(&o, "index");
    json_put_u64(&o, c->index);
    return o;
}

static void choice_end(struct api *api, struct choice *c, enum finish finish, struct json_out *o)
{
    json_key(o, "finish_reason");
    if (finish == FINISH_NONE)
        json_put_null(o);
    else
        json_put_str(o, str_of(shape_finish(c, finish)));
    json_close(o, '}');
    json_close(o, ']');
    if (c->job->usage_so_far)
        shape_usage(o, c->job);
    else if (c->job->include_usage)
        json_pair_null(o, "usage");
    json_close(o, '}');
    chunk_send(api, c->job, o);
}

/* --- chat ----------------------------------------------------------------------------------------
 */

static void chat_role(struct api *api, struct choice *c)
{
    struct json_out o = choice_begin(api, c);
    json_key(&o, "delta");
    json_open(&o, '{');
    json_key(&o, "role");
    json_put_str(&o, STR("assistant"));
    json_key(&o, "content");
    json_put_str(&o, STR(""));
    json_close(&o, '}');
    json_key(&o, "logprobs");
    json_put_null(&o);
    choice_end(api, c, FINISH_NONE, &o);
}

/* {"tool_calls": [...]}: the name and an id, then the arguments piece by piece. */
static void call_piece(struct json_out *o, struct api *api, const struct choice *c,
                       const struct piece *piece)
{
    bool name = piece->part == PART_NAME;
    char id[SHAPE_CALL_ID];
    json_key(o, "tool_calls");
    json_open(o, '[');
    json_open(o, '{');
    json_key(o, "index");
    json_put_u64(o, c->reader.calls.calls - 1);
    if (name) {
        shape_call_id(api, c, c->reader.calls.calls - 1, id);
        json_key(o, "id");
        json_put_str(o, str_of(id));
        json_key(o, "type");
        json_put_str(o, STR("function"));
    }
    json_key(o, "function");
    json_open(o, '{');
    if (name) {
        json_key(o, "name");
        json_put_str(o, piece->text);
    }
    json_key(o, "arguments");
    json_put_str(o, name ? STR("") : piece->text);
    json_close(o, '}');
    json_close(o, '}');
    json_close(o, ']');
}

/* logprobs: of the token that came, or NULL. */
static void chat_piece(struct api *api, struct choice *c, const struct piece *piece,
                       const struct step_result *logprobs)
{
    struct json_out o = choice_begin(api, c);
    json_key(&o, "delta");
    json_open(&o, '{');
    if (piece->part == PART_TEXT || piece->part == PART_THOUGHT) {
        json_key(&o, piece->part == PART_TEXT ? "content" : "reasoning_content");
        json_put_str(&o, piece->text);
    } else {
        call_piece(&o, api, c, piece);
    }
    json_close(&o, '}');
    json_key(&o, "logprobs");
    if (logprobs) {
        json_open(&o, '{');
        json_key(&o, "content");
        json_open(&o, '[');
        shape_chat_logprob(&o, api, logprobs, c->job->top_logprobs);
        json_close(&o, ']');
        json_key(&o, "refusal");
        json_put_null(&o);
        json_close(&o, '}');
    } else {
        json_put_null(&o);
    }
    choice_end(api, c, FINISH_NONE, &o);
}

/* A token's logprob comes with the first piece that the token brings, or with none: what is left
 * of it is returned. */
static const struct step_result *chat_tell(struct api *api, struct choice *c,
                                           const struct piece *piece,
                                           const struct step_result *logprobs)
{
    bool call = piece->part == PART_NAME || piece->part == PART_ARGUMENTS;
    if (call && c->job->one_call && c->reader.calls.calls > 1)
        return logprobs;
    chat_piece(api, c, piece, logprobs);
    return NULL;
}

/* What can be told by now of what the event has brought. */
static void chat_pieces(struct api *api, struct choice *c, const struct event *event,
                        const struct step_result *logprobs)
{
    struct piece piece;
    struct str text = event->text;
    bool thought = answer_thinks(&c->reader), over = event->finish != FINISH_NONE;
    while (answer_next(&c->reader, &text, &piece))
        logprobs = chat_tell(api, c, &piece, logprobs);
    c->thoughts += event->has_token && !c->silent_end && (thought || answer_thinks(&c->reader));
    while (over && answer_end(&c->reader, &piece))
        logprobs = chat_tell(api, c, &piece, logprobs);
    if (logprobs)
        chat_piece(api, c, &(struct piece){PART_TEXT, STR("")}, logprobs);
}

static void chat_finish(struct api *api, struct choice *c, enum finish finish)
{
    struct json_out o = choice_begin(api, c);
    json_key(&o, "delta");
    json_open(&o, '{');
    json_close(&o, '}');
    json_key(&o, "logprobs");
    json_put_null(&o);
    choice_end(api, c, finish, &o);
}

/* --- completions ----------------------------------------------------------------------------- */

/* first: of the prompt. Nothing comes before it, so that it has no logprob. */
static void text_logprobs(struct json_out *o, struct api *api, const struct choice *c,
                          const struct step_result *r, bool first)
{
    json_open(o, '{');
    json_key(o, "tokens");
    json_open(o, '[');
    shape_token(o, api, r->token);
    json_close(o, ']');
    json_key(o, "token_logprobs");
    json_open(o, '[');
    if (first)
        json_put_null(o);
    else
        json_put_f32(o, shape_logprob(r->logprob));
    json_close(o, ']');
    json_key(o, "top_logprobs");
    json_open(o, '[');
    if (first)
        json_put_null(o);
    else
        shape_text_tops(o, api, r, c->job->top_logprobs);
    json_close(o, ']');
    json_key(o, "text_offset");
    json_open(o, '[');
    json_put_u64(o, c->chars);
    json_close(o, ']');
    json_close(o, '}');
}

static void text_piece(struct api *api, struct choice *c, struct str text,
                       const struct step_result *logprobs, bool first, enum finish finish)
{
    struct json_out o = choice_begin(api, c);
    json_key(&o, "text");
    json_put_str(&o, text);
    json_key(&o, "logprobs");
    if (logprobs)
        text_logprobs(&o, api, c, logprobs, first);
    else
        json_put_null(&o);
    choice_end(api, c, finish, &o);
}

/* One piece of the prompt's text, cut between characters, and behind the last one the token that no
 * event brings. */
static void echo_piece(struct api *api, struct choice *c)
{
    char text[ECHO_BYTES + 1];
    struct chain_reader ahead = c->echo_at;
    size_t left = c->echo.n - c->echo_at.at, n = MIN(left, (size_t)ECHO_BYTES);
    bool there = store_get(&api->store, &c->echo, &ahead, text, MIN(left, sizeof text));
    while (n < left && ((u8)text[n] & 0xc0) == 0x80)
        n--;
    there = there && store_get(&api->store, &c->echo, &c->echo_at, text, n);
    ASSERT(there);
    if (n)
        text_piece(api, c, (struct str){text, n}, NULL, false, FINISH_NONE);
    if (n < left)
        return;
    store_give(&api->store, &c->echo);
    c->job->echoes--;
    if (c->job->prompt_logprobs)
        stream_prompt_token(api, c, &(struct step_result){.token = c->first_id});
}

bool stream_echo_waits(const struct api *api, const struct job *job)
{
    return job->echoes && job->caller.conn && conn_room(api->conns, job->caller.conn) >= ECHO_ROOM;
}

/* No more than the output buffer takes: long prompts, or many, are no reason to drop a reader who
 * keeps up. */
void stream_echo(struct api *api, struct job *job)
{
    for (struct choice *c = job->choices; c && job->echoes; c = c->next)
        while (c->echo.blocks && stream_echo_waits(api, job))
            echo_piece(api, c);
}

/* Something follows the text: who has not taken it by now is behind what is computed. */
static void echo_rest(struct api *api, struct choice *c)
{
    while (c->echo.blocks && c->job->caller.conn)
        echo_piece(api, c);
}

/* The prompt's tokens follow its text, in pieces that have none: joined, the pieces of a stream say
 * what the whole reply says. Such a prompt is computed STREAMED_PROMPT tokens a step, which is slow
 * enough for any reader. */
void stream_prompt_token(struct api *api, struct choice *c, const struct step_result *r)
{
    echo_rest(api, c);
    text_piece(api, c, (struct str){"", 0}, r, c->given == 0, FINISH_NONE);
    c->chars = shape_echoed(c, &c->given_text, c->given++, r->token, c->chars);
}

/* --- a stream -------------------------------------------------------------------------------- */

void stream_begin(struct api *api, struct job *job)
{
    static const char more[] = "Cache-Control: no-cache\r\n"
                               "X-Accel-Buffering: no\r\n"; /* nginx would hold it back */
    job->sent_ns = api_now(api);
    if (!job->ws && !conn_begin(api->conns, job->caller.conn, 200, "text/event-stream",
                                api_extra(api, &job->caller, more)))
        job_lost(api, job);
    if (job->dialect->begin)
        job->dialect->begin(api, job);
}

void stream_event(struct api *api, struct choice *c, const struct event *event)
{
    bool logprobs = c->job->logprobs && event->has_token && !c->silent_end;
    c->job->dialect->event(api, c, event, logprobs ? event->result : NULL);
    api->written += event->has_token && (event->text.n || logprobs);
}

static void chat_event(struct api *api, struct choice *c, const struct event *event,
                       const struct step_result *logprobs)
{
    if (!c->begun)
        chat_role(api, c);
    chat_pieces(api, c, event, logprobs);
    if (event->finish != FINISH_NONE)
        chat_finish(api, c, event->finish);
}

static void text_event(struct api *api, struct choice *c, const struct event *event,
                       const struct step_result *logprobs)
{
    echo_rest(api, c);
    if (event->text.n || logprobs || event->finish != FINISH_NONE)
        text_piece(api, c, event->text, logprobs, false, event->finish);
    if (logprobs) { /* by tokens: some of their text may be held back */
        u32 n = decode_push(&c->text, logprobs->token, api->text); /* is free by now */
        c->chars += shape_chars((struct str){api->text, n});
    }
}

static void usage_chunk(struct api *api, struct job *job)
{
    struct json_out o = chunk_begin(api);
    shape_head(&o, api, job);
    json_key(&o, "choices");
    json_open(&o, '[');
    json_close(&o, ']');
    shape_usage(&o, job);
    json_close(&o, '}');
    chunk_send(api, job, &o);
}

void stream_close(struct api *api, struct job *job)
{
    if (job->caller.conn && !job->ws && !conn_end(api->conns, job->caller.conn))
        job_lost(api, job);
    job->caller.conn = 0;
}

static void finish_stream(struct api *api, struct job *job)
{
    if (!job->ws)
        send_bytes(api, job, STR("data: [DONE]\n\n"));
    else if (job->caller.conn && !socket_done(api, job->caller.conn, job->id))
        job_lost(api, job);
    stream_close(api, job);
}

static void end_chunks(struct api *api, struct job *job)
{
    if (job->include_usage)
        usage_chunk(api, job);
    finish_stream(api, job);
}

static void failed_chunk(struct api *api, struct job *job, const struct refusal *f)
{
    struct json_out o = chunk_begin(api);
    refusal_json(&o, f);
    chunk_send(api, job, &o);
    finish_stream(api, job);
}

void stream_end(struct api *api, struct job *job)
{
    job->dialect->end(api, job);
}

void stream_failed(struct api *api, struct job *job, const struct refusal *f)
{
    job->dialect->failed(api, job, f);
}

void stream_heartbeat(struct api *api, struct job *job)
{
    api->metrics.heartbeats++;
    send_bytes(api, job, STR(": still working\n\n"));
}

const struct dialect chat_dialect = {.kind = PARAMS_CHAT,
                                     .prefix = "chatcmpl-",
                                     .object = "chat.completion",
                                     .chunk = "chat.completion.chunk",
                                     .whole = whole_completion,
                                     .event = chat_event,
                                     .end = end_chunks,
                                     .failed = failed_chunk};

const struct dialect completion_dialect = {.kind = PARAMS_COMPLETION,
                                           .prefix = "cmpl-",
                                           .object = "text_completion",
                                           .chunk = "text_completion",
                                           .whole = whole_completion,
                                           .event = text_event,
                                           .end = end_chunks,
                                           .failed = failed_chunk};
