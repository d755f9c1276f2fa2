#include "net/parts.h"

#include <stdio.h>

static struct prompts prompts; /* one request is read at a time */

/* --- choices -----------------------------------------------------------------------------------
 */

/* Where the output's text begins: a completion goes on in its prompt, a message is a new text. */
static bool continues(const struct params *p)
{
    return !p->messages || p->continue_final;
}

static struct decode_stream output_text(const struct api *api, const struct params *p,
                                        const struct prompt *prompt)
{
    const struct tokenizer *t = api->g.tokenizer;
    return continues(p) ? decode_behind(t, p->skip_special, prompt->ids, prompt->n)
                        : decode_start(t, p->skip_special);
}

/* Tokens it may produce. */
static bool size_choice(const struct api *api, const struct params *p, const struct prompt *prompt,
                        u32 *max_tokens, struct refusal *f)
{
    const char *param = p->prompt_field;
    const struct device_limits *l = &api->g.limits;
    if (prompt->n == 0)
        return refuse(f, 400, "invalid_value", param, "the prompt is empty: it has no token");
    if (!prompt_fits(api, p, prompt->n, f))
        return false;
    u32 room = l->context - prompt->n, usual = api->g.max_tokens ? api->g.max_tokens : room;
    *max_tokens = p->max_tokens ? p->max_tokens : MIN(usual, room);
    if (*max_tokens > room && !p->no_answer)
        return refuse(f, 400, "context_length_exceeded", p->max_field,
                      "input length and `%s` exceed context limit: %u + %u > %u; this model's "
                      "maximum context length is %u tokens (%s)",
                      p->max_field, prompt->n, *max_tokens, l->context, l->context, l->context_by);
    return true;
}

struct choice *job_take_choice(struct api *api)
{
    struct choice *c = api->free_choices;
    api->free_choices = c->next;
    api->n_free_choices--;
    *c = (struct choice){0};
    return c;
}

void job_give_choices(struct api *api, struct job *job)
{
    while (job->choices) {
        struct choice *c = job->choices;
        job->choices = c->next;
        store_give(&api->store, &c->echo);
        store_give(&api->store, &c->tokens);
        c->next = api->free_choices;
        api->free_choices = c;
        api->n_free_choices++;
    }
}

static size_t records_bytes(const struct job *job, const struct choice *c)
{
    size_t one = 2 * sizeof(u32) + job->top_logprobs * sizeof(struct top_logprob);
    return (c->max_tokens + (job->prompt_logprobs ? c->n_prompt : 0)) * one;
}

/* All that the reply can need, or nothing: what could never fit together need not come again. A
 * stream keeps what it gives back of its prompts until that is sent. */
static bool take_store(struct api *api, struct job *job, const struct params *p,
                       const struct prompts *all, struct str request, struct refusal *f)
{
    struct store *store = &api->store;
    char instead[96];
    struct str kinds = {0};
    if (job->form.calls && tool_format_is_typed(job->form.calls) &&
        !kinds_read(api->g.work, p->tools, &kinds, f))
        return false;
    u64 need = (request.n ? store_need(request.n) : 0) + (kinds.n ? store_need(kinds.n) : 0);
    snprintf(instead, sizeof instead, "%s%s%s",
             !job->kept            ? "leave out echo"
             : job->dialect->keeps ? "lower "
                                   : "stream, or lower ",
             job->kept ? p->max_field : "",
             request.n ? ", or send less of what comes back in the reply" : "");
    for (const struct choice *c = job->choices; c; c = c->next)
        need += (job->kept ? store_need(records_bytes(job, c)) : 0) +
                (job->echo ? store_need(all->at[c->prompt].text.n) : 0);
    if (need > store->n)
        return refuse(f, 400, "request_too_large", job->kept ? p->max_field : "echo",
                      "the reply of %u choices can take %llu bytes; there are %llu "
                      "(server.reply_memory): %s",
                      job->n_choices, (unsigned long long)need * STORE_BLOCK_BYTES,
                      (unsigned long long)store->n * STORE_BLOCK_BYTES, instead);
    if (need > store->free) {
        refuse(f, 429, "queue_full", NULL,
               "the memory for replies is in use (server.reply_memory): try again, or %s", instead);
        f->retry_s = 1;
        return false;
    }
    if (request.n) {
        store_take(store, &job->request, request.n);
        store_put(store, &job->request, request.p, request.n);
    }
    if (kinds.n)
        kinds_keep(&job->kinds, store, kinds);
    for (struct choice *c = job->choices; c; c = c->next) {
        const struct prompt *prompt = &all->at[c->prompt];
        if (job->echo) {
            store_take(store, &c->echo, prompt->text.n);
            store_put(store, &c->echo, prompt->text.p, prompt->text.n);
            c->echo_at = store_from(&c->echo);
            job->echoes += job->stream;
        }
        c->first_id = prompt->ids[0];
        if (!job->kept)
            continue;
        store_take(store, &c->tokens, records_bytes(job, c));
        if (job->prompt_logprobs)
            whole_prompt_token(api, c, &(struct step_result){.token = prompt->ids[0]});
    }
    return true;
}

/* What text_offset of the prompt is counted by. */
static void begin_echo(const struct api *api, struct choice *c, const struct prompt *prompt)
{
    c->n_before = prompt->n_before;
    c->echo_chars = shape_chars(prompt->text);
    c->given_text = decode_start(api->g.tokenizer, prompt->as_ids);
}

/* What comes back of the request, as JSON that lies in the text buffer until it is kept. */
static bool echo_request(struct api *api, struct job *job, const struct params *p,
                         struct str *request, struct refusal *f)
{
    struct json_out o = json_out_over(api->text, api->g.body_bytes / 2);
    *request = (struct str){0};
    if (!job->dialect->echo)
        return true;
    job->dialect->echo(&o, p);
    *request = (struct str){o.p, o.n};
    job->least_bytes += o.n;
    return !o.full ||
           refuse(f, 413, "request_too_large", NULL,
                  "instructions, tools and what else comes back in the reply have more than %zu "
                  "bytes, half of server.body_max",
                  api->g.body_bytes / 2);
}

static bool make_choices(struct api *api, struct job *job, const struct params *p,
                         const struct prompts *all, struct refusal *f)
{
    struct str request;
    struct choice **link = &job->choices;
    for (u32 i = 0; i < all->n; i++)
        for (u32 k = 0; k < job->best_of; k++) {
            struct choice *c = job_take_choice(api);
            *link = c;
            link = &c->next;
            c->job = job;
            c->prompt = i;
            c->index = i * job->best_of + k;
            c->n_prompt = all->at[i].n;
            c->text = output_text(api, p, &all->at[i]);
            c->reader = answer_reader_of(&job->form);
            if (job->prompt_logprobs)
                begin_echo(api, c, &all->at[i]);
            if (!size_choice(api, p, &all->at[i], &c->max_tokens, f))
                return false;
        }
    return echo_request(api, job, p, &request, f) && take_store(api, job, p, all, request, f);
}

static u64 splitmix(u64 x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool submit(struct api *api, struct job *job, const struct params *p,
                   const struct prompts *all, struct refusal *f)
{
    struct request r = {.sampling = p->sampling,
                        .ignore_eos = p->ignore_eos,
                        .no_answer = p->no_answer,
                        .grows = !p->max_tokens,
                        .prompt_logprobs = !job->prompt_logprobs ? 0
                                           : job->stream         ? STREAMED_PROMPT
                                                                 : UINT32_MAX,
                        .special_text = !p->skip_special,
                        .continues = continues(p),
                        .grammar = job->grammar,
                        .n_stop = p->n_stop,
                        .likely = all->prediction.ids,
                        .n_likely = all->prediction.n,
                        .priority = p->priority};
    u64 seed = p->seeded ? p->sampling.seed : splitmix(api->g.seed ^ job->caller.number);
    u32 k = 0;
    memcpy(r.stop, p->stop, sizeof r.stop);
    if (p->deadline_ms)
        r.deadline_ns = job->caller.start_ns + p->deadline_ms * 1000000;
    for (struct choice *c = job->choices; c; c = c->next, k++) {
        struct err_text e = {0};
        u32 nth = k % job->best_of; /* of its prompt */
        r.prompt = all->at[c->prompt].ids;
        r.n_prompt = c->n_prompt;
        r.max_tokens = c->max_tokens;
        r.user = c;
        r.after = nth ? r.after : 0;
        r.sampling.seed = nth ? splitmix(seed + nth) : seed;
        if (engine_submit(api->g.engine, &r, &c->id, &e) != ERR_OK) {
            c->id = 0;
            return refuse_err(f, &e, "invalid_value", NULL);
        }
        if (nth == 0)
            r.after = c->id;
        job->open++;
    }
    return true;
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

static struct job *take_job(struct api *api)
{
    struct job *job = api->free_jobs;
    if (!job)
        return NULL;
    api->free_jobs = job->next;
    *job = (struct job){0};
    return job;
}

static void give_job(struct api *api, struct job *job)
{
    store_give(&api->store, &job->request);
    store_give(&api->store, &job->kinds.list);
    store_give(&api->store, &job->embeds.ids);
    store_give(&api->store, &job->embeds.vectors);
    job_give_choices(api, job);
    if (job->grammar)
        grammar_pool_give(&api->grammars, job->grammar);
    job->next = api->free_jobs;
    api->free_jobs = job;
}

static void link_job(struct api *api, struct job *job)
{
    job->next = NULL;
    *(api->last_job ? &api->last_job->next : &api->first_job) = job;
    api->last_job = job;
}

static void unlink_job(struct api *api, struct job *job)
{
    struct job *before = NULL, *j = api->first_job;
    while (j != job) {
        before = j;
        j = j->next;
    }
    *(before ? &before->next : &api->first_job) = job->next;
    if (api->last_job == job)
        api->last_job = before;
}

/* How answers are read: those of a conversation. */
static struct answer_format form_of(const struct api *api, const struct params *p,
                                    enum thoughts first)
{
    const struct template *t = api->g.template;
    if (!p->messages)
        return (struct answer_format){0};
    return (struct answer_format){.thoughts = template_thoughts(t),
                                  .first = first,
                                  .raw = p->raw_thoughts,
                                  .left_out = p->no_thoughts || p->thinks_not,
                                  .formed = p->json,
                                  .calls = p->tools ? template_calls(t) : NULL};
}

static bool in_messages(const struct answer_format *f)
{
    return f->thoughts && f->thoughts->next;
}

/* Do special tokens stand around what is told apart? */
static bool is_special(const struct api *api, const struct answer_format *f)
{
    const struct tokenizer *t = api->g.tokenizer;
    bool told = f->thoughts && (!f->raw || in_messages(f));
    i64 mark = told ? tokenizer_id(t, str_of(f->thoughts->end)) : -1;
    return (f->calls && tool_format_is_special(f->calls)) ||
           (mark >= 0 && tokenizer_is_special(t, (u32)mark));
}

static void fill(struct api *api, struct job *job, const struct params *p)
{
    job->n = p->n;
    job->best_of = MAX(p->best_of, p->n);
    job->stream = p->stream || job->ws;
    job->kept = !p->embeds && (!job->stream || job->dialect->keeps);
    job->include_usage = p->include_usage || job->ws;
    job->usage_so_far = p->usage_so_far;
    job->echo = p->echo;
    job->one_call = p->one_call;
    job->named_call = p->call.p != NULL;
    job->logprobs = p->logprobs;
    job->top_logprobs = p->sampling.top_logprobs;
    job->prompt_logprobs = p->echo && p->logprobs;
    job->ignore_eos = p->ignore_eos;
    job->no_answer = p->no_answer && !p->embeds;
    job->n_stop = p->sampling.n_stop;
    memcpy(job->stop_ids, p->sampling.stop, job->n_stop * sizeof *job->stop_ids);
    job->status = 200;
    job->at_once = !api->in_flight;
    job->created_s = api->g.clock.wall_s(api->g.clock.arg);
    api_id(api, job->caller.number, job->dialect->prefix, job->id);
}

static bool room_for(struct api *api, const struct job *job, const struct params *p,
                     const struct prompts *all, struct refusal *f)
{
    struct engine_stats s = engine_stats(api->g.engine);
    if (job->n_choices > api->n_jobs)
        return refuse(f, 400, "invalid_value", job->n_prompts > 1 ? "prompt" : "n",
                      "the request asks for %u sequences; there is room for %u (engine.slots and "
                      "engine.queue)",
                      job->n_choices, api->n_jobs);
    if (job->n_choices > api->n_free_choices) {
        refuse(f, 429, "queue_full", NULL, "no room for %u more sequences (engine.queue)",
               job->n_choices);
        f->retry_s = admission_retry_s(&api->admission, &s);
        return false;
    }
    return admission_enter(&api->admission, &s, job->n_choices, all->tokens, p->deadline_ms, f);
}

/* What will not fit is not computed first. */
static bool fits_reply(const struct api *api, struct job *job, const struct prompts *all,
                       struct refusal *f)
{
    for (u32 i = 0; i < all->n; i++)
        job->least_bytes += job->n * whole_choice_bytes(job, job->echo ? all->at[i].text.n : 0,
                                                        job->prompt_logprobs ? all->at[i].n : 0);
    return job->stream || whole_fits(api, job) ||
           refuse(f, 400, "request_too_large", job->n_prompts > 1 ? "prompt" : "n",
                  "the reply has more than %zu bytes, the limit is %zu (server.body_max): stream "
                  "it, or ask for fewer choices%s",
                  job->least_bytes, api->g.body_bytes, job->echo ? " or without echo" : "");
}

/* Answers in messages: what begins one of text, and where an answer stands before its first one. */
static u32 text_messages(const struct thought_format *t, struct grammar_call *calls)
{
    struct grammar_call one = {.open = str_of(t->end), .name = str_of(t->next), .text = true};
    calls[0] = calls[1] = one;
    calls[0].middle = str_of(t->text);
    calls[1].middle = str_of(t->preamble);
    return 2;
}

static u32 begun(const struct answer_format *form)
{
    size_t n = strlen(form->thoughts->end) + strlen(form->thoughts->next);
    return form->first == THOUGHTS_NONE ? 0 : (u32)n;
}

/* A call may stand in a text that has a mark for it, or is all there is: where it is demanded, and
 * where a text has to be JSON. */
static bool has_mark(const struct job *job, const struct params *p, struct refusal *f)
{
    if (p->must_call || in_messages(&job->form) || tool_call_mark(job->form.calls).n)
        return true;
    if (p->json)
        return refuse(f, 400, "unsupported_value", p->format_field,
                      "this model writes calls without a mark before them: %s and tools exclude "
                      "each other here",
                      p->format_field);
    return refuse(f, 400, "unsupported_value", "tools",
                  "this model writes calls without a mark before them: strict functions need "
                  "tool_choice \"required\", or a function's name");
}

/* The calls that may be made. Arguments follow their schema where that is demanded: by `strict`, or
 * with the call itself, unless `strict` is false. */
static bool compile_calls(struct grammar *g, const struct job *job, const struct params *p,
                          struct refusal *f)
{
    static struct grammar_call calls[LIMIT_SCHEMA_VALUES];
    const struct tool_format *format = job->form.calls; /* NULL: there are none */
    const struct json *tools = format ? p->tools->child : NULL;
    bool messages = in_messages(&job->form), alone = p->must_call || p->json;
    struct err_text e = {0};
    const struct tool_tags *xml = format ? tool_call_tags(format) : NULL;
    struct grammar_tags tags = {0};
    u32 n = 0, number = 0;
    if (xml)
        tags = (struct grammar_tags){str_of(xml->key), str_of(xml->key_end), str_of(xml->value),
                                     str_of(xml->value_end), xml->lines};
    if (!has_mark(job, p, f))
        return false;
    if (messages && !p->must_call)
        n = MIN(text_messages(job->form.thoughts, calls), p->json ? 1 : UINT32_MAX);
    for (const struct json *v = tools; v && n < COUNTOF(calls); v = v->next, number++) {
        const struct json *own = json_get(v, "function"), *strict = json_get(own, "strict"),
                          *schema = json_get(own, "parameters");
        struct str name = json_get(own, "name")->text;
        bool keep = strict && strict->type != JSON_NULL ? strict->type == JSON_TRUE : p->must_call;
        if (p->call.p && !str_eq(p->call, name))
            continue;
        calls[n++] = (struct grammar_call){
            .open = tool_call_open(format, alone),
            .name = name,
            .middle = tool_call_middle(format),
            .tags = xml ? &tags : NULL,
            .parameters = keep && schema && schema->type == JSON_OBJECT ? schema : NULL,
            .number = number,
            .where = p->parameters_field};
    }
    if (n == 0)
        return refuse(f, 400, "invalid_value", "tool_choice",
                      "there is no function '%.*s' in tools",
                      (int)MIN(p->call.n, (size_t)TOOL_NAME_BYTES), p->call.p);
    struct str mark = alone      ? (struct str){0}
                      : messages ? str_of(job->form.thoughts->end)
                                 : tool_call_mark(format);
    struct str close = format ? tool_call_close(format, alone) : STR("");
    if (grammar_compile_calls(g, calls, n, close, mark, &e) != ERR_OK)
        return refuse(f, 400, "invalid_value", "tools", "%s", e.text);
    if (messages)
        grammar_messages(g, begun(&job->form));
    return true;
}

/* The text of this schema, in messages the last one; or a call. Where a text of messages has begun
 * it is that. */
static bool compile_json(struct grammar *g, const struct job *job, const struct params *p,
                         struct refusal *f)
{
    struct err_text e = {0};
    bool messages = in_messages(&job->form), within = messages && job->form.first == THOUGHTS_NONE,
         head = messages && !within, calls = job->form.calls && !within;
    if (calls && !compile_calls(g, job, p, f))
        return false;
    return (calls
                ? grammar_or_json(g, p->schema, &e) == ERR_OK
                : grammar_compile(g, p->schema, &e) == ERR_OK &&
                      (!head || grammar_head(g, str_of(job->form.thoughts->text), &e) == ERR_OK)) ||
           refuse(f, 400, "invalid_value", p->format_field, "%s.%s", p->schema_field, e.text);
}

/* A model that thinks does that first. */
static bool may_think(struct grammar *g, const struct job *job, const struct params *p,
                      struct refusal *f)
{
    const struct answer_format *form = &job->form;
    const struct thought_format *t = form->thoughts;
    struct err_text e = {0};
    return !t || form->first == THOUGHTS_NONE ||
           (grammar_think(g, str_of(t->begin), str_of(t->end), form->first == THOUGHTS_OPEN,
                          p->thought_tokens, &e) == ERR_OK &&
            (!t->next || grammar_think_on(g, str_of(t->next), &e) == ERR_OK)) ||
           refuse(f, 400, "invalid_value", NULL, "%s", e.text);
}

/* What the answer has to be. */
static bool take_grammar(struct api *api, struct job *job, const struct params *p,
                         struct refusal *f)
{
    bool messages = in_messages(&job->form);
    bool form = p->json || p->must_call || p->strict;
    bool bounded = p->thought_tokens != UINT32_MAX && job->form.first != THOUGHTS_NONE;
    if (!form && !bounded)
        return true;
    if (!api->g.grammars)
        return refuse(f, 400, "unsupported_value",
                      p->json ? p->format_field
                      : form  ? "tools"
                              : "thinking_token_budget",
                      "answers of a given form are off here (engine.grammars)");
    struct grammar *g = grammar_pool_spare(&api->grammars);
    if (p->json && !compile_json(g, job, p, f))
        return false;
    if (!p->json && (form || messages) && !compile_calls(g, job, p, f))
        return false;
    if (!form && !messages)
        grammar_compile_text(g);
    if (!may_think(g, job, p, f))
        return false;
    job->grammar = grammar_pool_take(&api->grammars, g);
    return true;
}

static bool begin(struct api *api, struct job *job, const struct params *p,
                  const struct prompts *all, struct refusal *f)
{
    fill(api, job, p);
    job->n_prompts = all->n;
    job->n_choices = all->n * job->best_of;
    if (p->embeds) {
        if (!embed_check(api, job, p, all, f) || !room_for(api, job, p, all, f) ||
            !embed_take(api, job, all, f))
            return false;
    } else if (!take_grammar(api, job, p, f) || !fits_reply(api, job, all, f) ||
               !room_for(api, job, p, all, f) || !make_choices(api, job, p, all, f)) {
        return false;
    }
    return admission_key_enter(&api->admission, job->caller.key, api_now(api), f);
}

bool job_check_model(const struct api *api, const struct params *p, bool needed, struct refusal *f)
{
    if (!p->model.p && needed)
        return refuse(f, 400, "missing_required_parameter", "model",
                      "model is missing; this server has '%s'", api->g.name);
    if (!p->model.p || str_is(p->model, api->g.name))
        return true;
    return refuse(f, 404, "model_not_found", "model",
                  "there is no model '%.*s' here; this server has '%s'",
                  (int)MIN(p->model.n, (size_t)100), p->model.p, api->g.name);
}

bool job_prompt_ids(struct api *api, const struct params *p, u32 **ids, u32 *n, struct refusal *f)
{
    if (!prompts_read(api, p, &prompts, f))
        return false;
    if (prompts.n != 1)
        return refuse(f, 400, "invalid_value", "prompt", "one prompt at a time");
    *ids = prompts.at[0].ids;
    *n = prompts.at[0].n;
    return true;
}

static bool read_params(struct api *api, u32 kind, const struct socket *socket,
                        const struct json *body, struct refusal *f)
{
    struct params *p = &api->params;
    return kind == PARAMS_TURN
               ? params_read_turn(p, body, socket->earlier, api->g.model, api->g.work, f)
               : params_read(p, kind, body, api->g.model, api->g.work, f);
}

bool job_begin(struct api *api, const struct caller *caller, const struct dialect *dialect,
               const struct socket *ws, const struct json *body, struct refusal *f)
{
    struct params *p = &api->params;
    ASSERT(!api->g.keys || caller->key >= 0); /* gate_key: nobody comes by the keys' limits */
    if (!read_params(api, dialect->kind, ws, body, f))
        return false;
    const struct json *stream = json_get(body, "stream");
    if (ws && stream && stream->type == JSON_FALSE)
        return refuse(f, 400, "unsupported_value", "stream",
                      "a WebSocket always streams: leave stream out, or POST the request");
    if (p->include_usage && !p->stream && !ws)
        return refuse(f, 400, "invalid_value", "stream_options",
                      "stream_options needs \"stream\": true");
    if (p->echo && p->logprobs && !api->g.prompt_logprobs)
        return refuse(f, 400, "unsupported_value", "echo",
                      "echo with logprobs is off here (engine.prompt_logprobs)");
    if (api->g.model->headless && !p->embeds)
        return refuse(f, 400, "unsupported_value", "model",
                      "this model has no lm_head: it makes embeddings (/v1/embeddings), and "
                      "predicts no tokens");
    if (!job_check_model(api, p, true, f) || !prompts_read(api, p, &prompts, f))
        return false;
    struct answer_format form = form_of(api, p, prompts.at[0].thoughts);
    p->skip_special &= !is_special(api, &form); /* else they would not be found */
    struct job *job = take_job(api);
    if (!job) {
        struct engine_stats s = engine_stats(api->g.engine);
        refuse(f, 429, "queue_full", NULL, "%u requests are in work (engine.queue)", api->n_jobs);
        f->retry_s = admission_retry_s(&api->admission, &s);
        return false;
    }
    job->caller = *caller;
    job->dialect = dialect;
    job->form = form;
    job->form.types = kinds_types(&job->kinds);
    job->ws = ws != NULL;
    if (!begin(api, job, p, &prompts, f)) {
        give_job(api, job);
        return false;
    }
    link_job(api, job);
    if (!(p->embeds ? embed_submit(api, job, &prompts, f) : submit(api, job, p, &prompts, f))) {
        /* What was submitted ends with its cancelled event; nobody is told. */
        job->caller.conn = 0;
        job->failed = job->silent = true;
        if (job->open == 0)
            job_end(api, job);
        else
            job_cancel(api, job);
        return false;
    }
    if (job->stream)
        stream_begin(api, job);
    return true;
}

void job_cancel(struct api *api, struct job *job)
{
    job->cancelled = true;
    for (struct choice *c = job->choices; c; c = c->next)
        if (c->id && c->finish == FINISH_NONE)
            engine_cancel(api->g.engine, c->id);
}

void job_lost(struct api *api, struct job *job)
{
    snprintf(job->note, sizeof job->note, " why=%s",
             conn_was_slow(api->conns, job->caller.conn) ? "slow_reader" : "gone");
    job->caller.conn = 0;
    job->status = 499;
    api->metrics.cancelled_by_client++;
    job_cancel(api, job);
}

struct job *job_of(const struct api *api, conn_id id)
{
    for (struct job *j = api->first_job; id && j; j = j->next)
        if (j->caller.conn == id)
            return j;
    return NULL;
}

void job_end(struct api *api, struct job *job)
{
    u64 in = job->embeds.tokens, out = 0;
    u32 seen = 0;
    for (const struct choice *c = job->choices; c && !job->embeds.n; c = c->next) {
        out += c->outputs;
        in += c->prompt >= seen ? c->n_prompt : 0;
        seen = MAX(seen, c->prompt + 1);
    }
    admission_key_leave(&api->admission, job->caller.key);
    if (!job->silent) {
        double seconds = (double)(api_now(api) - job->caller.start_ns) / 1e9;
        metrics_add_s(&api->metrics.request_s, seconds);
        api_done(api, &job->caller, job->status, (u32)in, (u32)out, job->note);
    }
    unlink_job(api, job);
    give_job(api, job);
}
