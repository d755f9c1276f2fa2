#include "net/api.h"

#include "core/base/log.h"
#include "net/route.h"

#include <math.h>
#include <stdio.h>

enum {
    /* Longest piece of JSON that is not a reply as a whole: text of one event, escaped, and 1 +
     * LIMIT_LOGPROBS tokens as text and as bytes. */
    TEXT_MIN_BYTES = 12 * DECODE_PIECE_BYTES + 6 * LIMIT_STOP_STRING_BYTES +
                     (LIMIT_LOGPROBS + 1) * (10 * LIMIT_TOKEN_BYTES + 128) + 4096,
    REPLY_BYTES_MAX = 64 << 20, /* of fitted stores */
    VECTOR_BYTES_MAX = 8 << 20, /* in them */
    CONVERSATION_BYTES_MAX = 16 << 20,
    REPLY_HEAD_BYTES = 1024,
};

/* --- memory ------------------------------------------------------------------------------------
 */

static size_t text_bytes(const struct api_config *g)
{
    return MAX(g->body_bytes, (size_t)TEXT_MIN_BYTES);
}

static u32 jobs_of(const struct api_config *g)
{
    return g->limits.slots + g->queue;
}

/* Fitted: 8 bytes a token of a whole context for every request, within `most`, and no less than
 * `least`. */
static u32 fitted_blocks(const struct api_config *g, size_t bytes, size_t most, size_t least)
{
    if (bytes == 0)
        bytes = MAX(MIN(jobs_of(g) * (size_t)g->limits.context * 8, most), least);
    return (u32)MIN(CEIL_DIV(bytes, (size_t)STORE_BLOCK_BYTES) + jobs_of(g), UINT32_MAX);
}

/* Plain records, or one reply with all logprobs; and the vectors of as many inputs as there may be,
 * where they are small. */
static u32 store_blocks(const struct api_config *g)
{
    const struct model *m = g->model;
    size_t all = (size_t)g->limits.context * (8 + 8 * LIMIT_LOGPROBS),
           vectors = m->embedding.refused ? 0 : LIMIT_INPUTS * (size_t)m->hidden * sizeof(float);
    return fitted_blocks(g, g->reply_bytes, REPLY_BYTES_MAX,
                         MAX(all, MIN(vectors, (size_t)VECTOR_BYTES_MAX)));
}

static u32 conversation_blocks(const struct api_config *g)
{
    return fitted_blocks(g, g->conversation_bytes, CONVERSATION_BYTES_MAX,
                         (size_t)g->limits.context * 8);
}

static size_t table_bytes(const struct api_config *g)
{
    return sizeof(struct api) + jobs_of(g) * (sizeof(struct job) + sizeof(struct choice)) +
           g->connections * sizeof(struct socket) + 1024;
}

static size_t grammar_bytes(const struct api_config *g)
{
    return g->grammars ? grammar_pool_bytes(jobs_of(g)) : 0;
}

void api_plan(const struct api_config *g, struct plan *p)
{
    plan_add(p, PLACE_HOST, table_bytes(g), "API requests", "engine.queue", "%u requests",
             jobs_of(g));
    plan_add(p, PLACE_HOST, grammar_bytes(g), "API schemas", "engine.grammars", "%u requests",
             g->grammars ? jobs_of(g) : 0);
    plan_add(p, PLACE_HOST, text_bytes(g), "API reply text", "server.body_max", "JSON being built");
    plan_add(p, PLACE_HOST, store_bytes(store_blocks(g)), "API whole replies",
             "server.reply_memory", "%u blocks of %u bytes", store_blocks(g), STORE_BLOCK_BYTES);
    plan_add(p, PLACE_HOST, store_bytes(conversation_blocks(g)), "API conversations",
             "server.conversation_memory", "%u blocks of %u bytes", conversation_blocks(g),
             STORE_BLOCK_BYTES);
}

static bool take(struct api *api, struct arena *a)
{
    u32 n = jobs_of(&api->g);
    api->jobs = ARENA_NEW(a, struct job, n);
    api->choices = ARENA_NEW(a, struct choice, n);
    api->sockets = ARENA_NEW(a, struct socket, api->g.connections);
    api->text_bytes = text_bytes(&api->g);
    api->text = arena_alloc(a, api->text_bytes, 64);
    if (!api->jobs || !api->choices || !api->sockets || !api->text)
        return false;
    if (api->g.grammars && !grammar_pool_open(&api->grammars, a, n))
        return false;
    api->n_jobs = api->n_free_choices = n;
    for (u32 i = 0; i < n; i++) {
        api->jobs[i].next = api->free_jobs;
        api->free_jobs = &api->jobs[i];
        api->choices[i].next = api->free_choices;
        api->free_choices = &api->choices[i];
    }
    return store_open(&api->store, a, store_blocks(&api->g)) &&
           store_open(&api->conversations, a, conversation_blocks(&api->g));
}

/* The first token, asked for like any other: until it is there and sound, /ready says 503. */
static enum err verify(struct api *api, struct err_text *e)
{
    const struct model *m = api->g.model;
    u32 prompt = m->bos >= 0 ? (u32)m->bos : 0;
    struct request r = {.prompt = &prompt,
                        .n_prompt = 1,
                        .max_tokens = 1,
                        .sampling = params_default_sampling(m),
                        .user = &api->verify};
    r.sampling.temperature = 0;
    r.sampling.logprobs = true;
    return engine_submit(api->g.engine, &r, &api->verify.id, e);
}

enum err api_open(struct arena *a, const struct api_config *g, struct api **out, struct err_text *e)
{
    struct api *api = ARENA_NEW(a, struct api, 1);
    if (!api)
        return arena_full(a, "API", e);
    api->g = *g;
    if (!take(api, a))
        return arena_full(a, "API", e);
    if (!gate_lists(api, e))
        return e->code;
    api->admission.slots = g->limits.slots;
    api->admission.queue = g->queue;
    api->admission.queue_tokens = g->queue_tokens;
    api->admission.key_requests = g->key_requests;
    api->admission.key_rate = g->key_rate;
    api->open_ns = api_now(api);
    api->open_s = g->clock.wall_s(g->clock.arg);
    *out = api;
    return verify(api, e);
}

void api_attach(struct api *api, struct conns *conns)
{
    api->conns = conns;
}

void api_keys_changed(struct api *api, const struct keys *before)
{
    static struct key_share shares[LIMIT_KEYS];
    i32 now[LIMIT_KEYS]; /* where a key stands; -1: it has gone */
    memset(shares, 0, sizeof shares);
    for (u32 i = 0; i < before->n; i++) {
        now[i] = keys_find_hash(api->g.keys, before->at[i].hash);
        if (now[i] >= 0)
            shares[now[i]] = api->admission.keys[i];
    }
    memcpy(api->admission.keys, shares, sizeof shares);
    for (struct job *j = api->first_job; j; j = j->next)
        j->caller.key = j->caller.key >= 0 ? now[j->caller.key] : -1;
    for (u32 i = 0; i < api->n_sockets; i++) {
        i32 *key = &api->sockets[i].caller.key;
        *key = *key >= 0 ? now[*key] : -1;
    }
}

/* --- replies -----------------------------------------------------------------------------------
 */

u64 api_now(const struct api *api)
{
    return clock_now_ns(&api->g.clock);
}

/* 64 bits that no other number of this process gives (a bijection), hard to guess from outside. */
void api_id(const struct api *api, u64 number, const char *prefix, char out[API_ID_BYTES])
{
    u64 x = (number + api->g.seed) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    snprintf(out, API_ID_BYTES, "%s%016llx", prefix, (unsigned long long)x);
}

const char *api_extra(struct api *api, const struct caller *c, const char *more)
{
    char id[API_ID_BYTES];
    api_id(api, c->number, "req-", id);
    bool twice = route_flags(c->route) & ROUTE_MESSAGES; /* its clients look for another name */
    int n = snprintf(api->extra, sizeof api->extra, "X-Request-Id: %s\r\n%s%s%s%s", id,
                     twice ? "Request-Id: " : "", twice ? id : "", twice ? "\r\n" : "",
                     more ? more : "");
    ASSERT(n > 0 && (size_t)n < sizeof api->extra);
    if (c->origin >= 0) {
        struct str o = api->origins[c->origin];
        int k = snprintf(api->extra + n, sizeof api->extra - (size_t)n,
                         "Access-Control-Allow-Origin: %.*s\r\n"
                         "Access-Control-Expose-Headers: X-Request-Id, Retry-After, "
                         "X-Should-Retry\r\nVary: Origin\r\n",
                         (int)o.n, o.p);
        if ((size_t)k >= sizeof api->extra - (size_t)n) /* a browser then refuses the reply */
            api->extra[n] = 0;
    }
    return api->extra;
}

struct json_out api_out(struct api *api)
{
    return json_out_over(api->text, api->g.body_bytes - REPLY_HEAD_BYTES);
}

/* A field's name may be one that the client made up: nothing of it can look like another pair. */
void api_note(const struct refusal *f, char out[API_NOTE_BYTES])
{
    int n = snprintf(out, API_NOTE_BYTES, " code=%s", f->code);
    if (!f->param[0] || n >= API_NOTE_BYTES)
        return;
    char *p = out + n;
    snprintf(p, API_NOTE_BYTES - (size_t)n, " param=%s", f->param);
    for (p += strlen(" param="); *p; p++)
        if ((u8)*p <= ' ' || (u8)*p >= 0x7f || strchr("\"=\\", *p))
            *p = '?';
}

void api_done(struct api *api, const struct caller *c, int status, u32 tokens_in, u32 tokens_out,
              const char *note)
{
    char id[API_ID_BYTES];
    api_id(api, c->number, "req-", id);
    metrics_reply(&api->metrics, c->route, status);
    log_event(
        status >= 500                ? LOG_WARN
        : tokens_in || status >= 400 ? LOG_INFO
                                     : LOG_DEBUG,
        "request",
        "id=%s method=%s path=%.*s status=%d ms=%.1f tokens_in=%u tokens_out=%u key=%s peer=%s%s",
        id, c->method, (int)c->path.n, c->path.p, status,
        (double)(api_now(api) - c->start_ns) / 1e6, tokens_in, tokens_out,
        c->key >= 0 ? api->g.keys->at[c->key].name : "-", c->peer, note);
}

bool api_takes(struct api *api, const struct caller *c, struct str body, struct refusal *f)
{
    if (conn_takes(api->conns, c->conn, body))
        return true;
    f->retry_s = 1;
    return refuse(f, 503, "bodies_full", NULL,
                  "the reply is longer than server.output, and all buffers that could keep its %zu "
                  "bytes for a slow reader are in use (server.bodies); try again",
                  body.n);
}

bool api_too_large(const struct api *api, const struct job *job, struct refusal *f)
{
    return refuse(f, 500, "reply_too_large", NULL,
                  "the reply is longer than %zu bytes (server.body_max): %sask for fewer %stokens "
                  "or logprobs",
                  api->g.body_bytes, job->dialect->keeps ? "" : "stream it, or ",
                  job->dialect->keeps ? "" : "choices, ");
}

void api_reply(struct api *api, const struct caller *c, int status, const char *content_type,
               struct str body, const char *more)
{
    struct refusal f = {0};
    if (status == 200 && c->ok != 200) {
        status = c->ok;
        content_type = NULL;
        body = (struct str){0};
    }
    if (!api_takes(api, c, body, &f)) {
        api_refuse(api, c, &f);
        return;
    }
    conn_reply(api->conns, c->conn, status, content_type, body, api_extra(api, c, more));
    api_done(api, c, status, 0, 0, "");
}

void api_reply_json(struct api *api, const struct caller *c, int status, struct json_out *o)
{
    ASSERT(!o->full);
    api_reply(api, c, status, "application/json", (struct str){o->p, o->n}, NULL);
}

/* As the clients of the route read it. */
static void put_refusal(struct json_out *o, const struct api *api, const struct caller *c,
                        const struct refusal *f)
{
    char id[API_ID_BYTES];
    if (!(route_flags(c->route) & ROUTE_MESSAGES)) {
        refusal_json(o, f);
        return;
    }
    api_id(api, c->number, "req-", id);
    refusal_message_json(o, f, id);
}

/* The client libraries try again on 429 and 5xx unless they are told that it is of no use. */
static void send_refusal(struct api *api, const struct caller *c, const struct refusal *f)
{
    char more[160] = "";
    const char *method, *path;
    if (f->retry_s)
        snprintf(more, sizeof more, "Retry-After: %u\r\n", f->retry_s);
    else if (f->status == 401)
        snprintf(more, sizeof more, "WWW-Authenticate: Bearer\r\n");
    else if (f->status == 405 && api_route(c->route, &method, &path))
        snprintf(more, sizeof more, "Allow: %s, OPTIONS\r\n",
                 strcmp(method, "GET") == 0 ? "GET, HEAD" : method);
    else if (f->status == 500 || f->status == 504)
        snprintf(more, sizeof more, "x-should-retry: false\r\n");
    struct json_out o = api_out(api);
    put_refusal(&o, api, c, f);
    conn_reply(api->conns, c->conn, f->status, "application/json", (struct str){o.p, o.n},
               api_extra(api, c, more));
}

void api_refuse(struct api *api, const struct caller *c, const struct refusal *f)
{
    char note[API_NOTE_BYTES];
    api_note(f, note);
    send_refusal(api, c, f);
    api_done(api, c, f->status, 0, 0, note);
}

/* --- events of the connections -------------------------------------------------------------- */

/* The client libraries send header fields of their own (X-Stainless-...). The star never stands for
 * Authorization, and older browsers do not know it. */
static void preflight(struct api *api, const struct caller *c, const struct route *route)
{
    char more[256];
    snprintf(more, sizeof more,
             "Allow: %s, OPTIONS\r\nAccess-Control-Allow-Methods: %s\r\n"
             "Access-Control-Allow-Headers: authorization, content-type, *\r\n"
             "Access-Control-Max-Age: 600\r\n",
             strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method, route->method);
    api_reply(api, c, 204, NULL, (struct str){0}, more);
}

static void on_request(void *app, conn_id id, const struct http_request *r)
{
    struct api *api = app;
    u32 index;
    const struct route *route = route_of(r->path, &index);
    struct caller c = gate_caller(api, id, r, index);
    struct refusal f = {0};
    ASSERT(route); /* admitted, but its key may have gone while the body came */
    if (r->method == HTTP_OPTIONS)
        preflight(api, &c, route);
    else if ((route->flags & ROUTE_OPEN) || gate_key(api, &c, &f))
        route->run(api, &c, r);
    else
        api_refuse(api, &c, &f);
    arena_reset(api->g.work, 0);
}

static void on_gone(void *app, conn_id id)
{
    struct api *api = app;
    struct job *job = job_of(api, id);
    socket_gone(api, id);
    if (!job)
        return;
    job_lost(api, job);
}

static struct conn_refusal on_refused(void *app, const struct http_request *r, int status,
                                      const char *why, const char *more)
{
    struct api *api = app;
    struct refusal f = {0};
    u32 route;
    route_of(r->path, &route);
    struct caller c = gate_caller(api, 0, r, route);
    char note[API_NOTE_BYTES];
    refuse(&f, status, refusal_code(status), NULL, "%s", why);
    api_note(&f, note);
    struct json_out o = json_out_over(api->error_text, sizeof api->error_text);
    put_refusal(&o, api, &c, &f);
    ASSERT(!o.full);
    api_done(api, &c, status, 0, 0, note);
    return (struct conn_refusal){"application/json", api_extra(api, &c, more), {o.p, o.n}};
}

const struct conn_events api_conn_events = {.admit = gate_admit,
                                            .request = on_request,
                                            .ws_text = socket_text,
                                            .gone = on_gone,
                                            .refused = on_refused};

/* --- events of the engine ----------------------------------------------------------------------
 */

static void verified(struct api *api, const struct event *event)
{
    const struct step_result *r = event->result;
    bool sound = event->has_token && r->token < api->g.model->vocab && isfinite(r->logprob) &&
                 r->logprob <= 1e-3f;
    api->ready = sound;
    if (!sound)
        log_event(LOG_ERROR, "not_ready",
                  "why=\"the first token is not sound: the model or the "
                  "kernels compute nonsense\"");
    else
        log_event(LOG_INFO, "ready", "model=\"%s\" fingerprint=%s", api->g.name,
                  api->g.fingerprint);
}

static bool is_stop_id(const struct api *api, const struct job *job, u32 token)
{
    for (u32 i = 0; i < job->n_stop; i++)
        if (job->stop_ids[i] == token)
            return true;
    for (u32 i = 0; i < api->g.model->n_eos && !job->ignore_eos; i++)
        if (api->g.model->eos[i] == token)
            return true;
    return false;
}

static void measure(struct api *api, struct choice *c, const struct event *event)
{
    u64 now = api_now(api), start = c->job->caller.start_ns;
    if (!c->begun)
        c->cached = event->cached_tokens;
    if (event->has_token && event->output_tokens == 1) {
        metrics_add_s(&api->metrics.queue_s, (double)event->waited_ns / 1e9);
        metrics_add_s(&api->metrics.first_s, (double)(now - start) / 1e9);
        c->slot_ns = start + event->waited_ns;
        c->first_ns = now;
    } else if (event->has_token) {
        metrics_add_s(&api->metrics.inter_s, (double)(now - c->last_ns) / 1e9);
    }
    c->last_ns = now;
    c->outputs = event->output_tokens;
    if (event->finish == FINISH_NONE)
        return;
    api->metrics.finished[event->finish]++;
    if (c->outputs && event->finish != FINISH_CANCELLED)
        admission_measured(&api->admission, (double)(now - c->slot_ns) / 1e9,
                           (double)(c->first_ns - c->slot_ns) / 1e9);
}

/* A job that can not be answered: its error goes out, the rest of it is silence. */
static void fail(struct api *api, struct job *job, const struct refusal *f)
{
    job->failed = true;
    job->overflow = false; /* the end of the stream is short */
    job->status = f->status;
    api_note(f, job->note);
    if (job->stream) {
        stream_failed(api, job, f);
    } else {
        if (!job->embeds.told) /* else half of the reply is out */
            send_refusal(api, &job->caller, f);
        job->caller.conn = 0;
    }
    job_cancel(api, job);
}

static void is_over(struct api *api, struct job *job)
{
    job->over = true;
    api->n_over++;
}

static void fail_too_long(struct api *api, struct job *job)
{
    struct refusal f = {0};
    api_too_large(api, job, &f);
    fail(api, job, &f);
}

static void end_whole(struct api *api, struct job *job)
{
    struct refusal f = {0};
    if (!whole_end(api, job, &f))
        fail(api, job, &f);
}

static void fail_by(struct api *api, struct job *job, enum finish finish)
{
    struct refusal f = {0};
    if (finish == FINISH_DEADLINE)
        refuse(&f, 504, "deadline_exceeded", "deadline_ms", "the deadline has passed");
    else
        refuse(&f, 503, "device_failed", NULL, "the compute device has failed");
    fail(api, job, &f);
}

/* An event of who wants no answer. */
static struct event unanswered(const struct event *event)
{
    struct event e = *event;
    e.has_token = false;
    e.text = (struct str){0};
    e.output_tokens = 0;
    e.finish = e.finish == FINISH_STOP ? FINISH_LENGTH : e.finish;
    return e;
}

void api_event(struct api *api, const struct event *event)
{
    struct choice *c = event->user;
    struct job *job = c->job;
    struct refusal f = {0};
    struct event without;
    if (!job) {
        verified(api, event);
        return;
    }
    if (job->no_answer) {
        without = unanswered(event);
        event = &without;
    }
    if (event->has_prompt_token) {
        bool heard = !job->failed && job->caller.conn;
        if (heard && job->stream)
            stream_prompt_token(api, c, event->result);
        else if (heard)
            whole_prompt_token(api, c, event->result);
        return;
    }
    measure(api, c, event);
    c->silent_end = event->finish == FINISH_STOP && event->has_token &&
                    is_stop_id(api, job, event->result->token);
    bool fails = event->finish == FINISH_DEADLINE || event->finish == FINISH_ERROR;
    bool heard = !job->failed && job->caller.conn;
    c->finish = event->finish;
    c->stop = event->stop;
    if (heard && fails)
        fail_by(api, job, event->finish);
    else if (heard && job->embeds.n && embed_event(api, c, event, &f))
        return;
    else if (heard && f.status)
        fail(api, job, &f);
    else if (heard && job->kept && !whole_event(api, c, event))
        fail_too_long(api, job);
    else if (heard && job->stream)
        stream_event(api, c, event);
    if (job->overflow && !job->failed)
        fail_too_long(api, job);
    c->begun = true;
    if (event->finish == FINISH_NONE || --job->open > 0)
        return;
    if (!job->failed && job->caller.conn) {
        if (job->embeds.n && embed_begin_reply(api, job))
            return; /* and is over when it is sent */
        if (job->stream)
            stream_end(api, job);
        else
            end_whole(api, job);
        if (job->overflow && !job->failed)
            fail_too_long(api, job);
    }
    is_over(api, job);
}

/* --- turns -------------------------------------------------------------------------------------
 */

static void step_done(struct api *api, u64 now)
{
    metrics_add_s(&api->metrics.step_s, (double)(now - api->step_ns) / 1e9);
    api->in_flight = false;
}

/* Those who came to an idle device have been served at once, unless there were too many. */
static void step_submitted(struct api *api, const struct engine_stats *s, u64 now)
{
    metrics_add_n(&api->metrics.batch_rows, s->step_rows);
    metrics_add_n(&api->metrics.batch_tokens, s->step_tokens);
    for (struct job *j = api->first_job; j; j = j->next) {
        if (j->at_once && s->waiting == 0)
            metrics_add_us(&api->metrics.submit_s, (double)(now - j->caller.start_ns) / 1e9);
        j->at_once = false;
    }
    api->step_ns = now;
    api->in_flight = true;
}

/* Sends what this turn has to say; `done` is when the step behind it was finished. Who measures,
 * counts and logs does it now: nobody waits for it. */
static void send_all(struct api *api, u64 done)
{
    if (api->conns)
        conns_flush(api->conns);
    u64 now = api->written ? api_now(api) : 0;
    for (; api->written; api->written--)
        metrics_add_us(&api->metrics.write_s, (double)(now - done) / 1e9);
    for (struct job *next, *j = api->first_job; api->n_over; j = next) {
        next = j->next;
        if (!j->over)
            continue;
        api->n_over--;
        job_end(api, j);
    }
}

/* What is there already, and goes out as the connections take it. */
static void send_more(struct api *api)
{
    for (struct job *j = api->first_job; j; j = j->next) {
        stream_echo(api, j);
        if (j->embeds.told && !j->over && !embed_send(api, j))
            is_over(api, j);
    }
}

static void heartbeats(struct api *api, u64 now)
{
    for (struct job *j = api->first_job; j && api->g.heartbeat_ms; j = j->next)
        if (j->stream && !j->ws && j->caller.conn &&
            now - j->sent_ns >= api->g.heartbeat_ms * 1000000)
            stream_heartbeat(api, j);
}

static void device_lost(struct api *api, const struct err_text *e)
{
    api->lost = true;
    api->ready = false;
    log_event(LOG_ERROR, "device_failed", "why=\"%s\"", e->text);
}

bool api_turn(struct api *api, bool wait)
{
    struct err_text e = {0};
    struct engine *g = api->g.engine;
    u64 begin = api_now(api), steps = engine_stats(g).steps;
    bool had = api->in_flight;
    if (engine_poll(g, wait, &e) != ERR_OK && !api->lost)
        device_lost(api, &e);
    bool busy = engine_step(g);
    struct engine_stats s = engine_stats(g);
    u64 end = api_now(api), done = s.done_ns > api->step_ns ? s.done_ns : begin;
    if (had && (s.steps != steps || !busy))
        step_done(api, done);
    if (s.steps != steps) {
        if (had)
            metrics_add_s(&api->metrics.host_s, (double)(end - done) / 1e9);
        step_submitted(api, &s, end);
    }
    heartbeats(api, end);
    send_more(api);
    if (api->draining)
        socket_close_idle(api);
    send_all(api, done);
    return !api->lost;
}

u64 api_next_ns(const struct api *api)
{
    u64 next = engine_next_ns(api->g.engine);
    for (const struct job *j = api->first_job; j; j = j->next) {
        if (stream_echo_waits(api, j) || embed_waits(api, j))
            return 0;
        if (api->g.heartbeat_ms && j->stream && !j->ws && j->caller.conn)
            next = MIN(next, j->sent_ns + api->g.heartbeat_ms * 1000000);
    }
    return engine_idle(api->g.engine) || api->in_flight ? next : 0;
}

bool api_busy(const struct api *api)
{
    return api->in_flight;
}

bool api_ready(const struct api *api)
{
    return api->ready && !api->draining && !api->lost;
}

void api_drain(struct api *api)
{
    api->draining = true;
}

void api_cut(struct api *api)
{
    struct refusal f = {0};
    refuse(&f, 503, "not_ready", NULL, "the server has ended before the answer was complete");
    for (struct job *j = api->first_job; j; j = j->next)
        if (!j->failed && !j->over && j->caller.conn)
            fail(api, j, &f);
    conns_flush(api->conns);
    while (api->first_job)
        job_end(api, api->first_job);
    socket_close_idle(api);
    conns_flush(api->conns);
}

bool api_idle(const struct api *api)
{
    return api->first_job == NULL;
}
