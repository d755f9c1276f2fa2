#include "core/engine/engine.h"

#include "core/engine/sample.h"
#include "core/engine/sched.h"

/* A request from submit to its last event. `tokens` holds the prompt and then the output; the KV
 * of the first `computed` of them is there, or will be once the step in flight is done. */
enum seq_state { SEQ_FREE, SEQ_WAITING, SEQ_RUNNING };

struct seq {
    enum seq_state state;
    u64 id;
    i32 priority;
    void *user;
    u32 slot;
    u32 *tokens; /* [context] */
    u32 n_prompt, n_tokens, computed, cached, outputs, max_tokens;
    u32 *pages; /* [pages a sequence can have] */
    u32 n_pages, committed;
    u32 salt;
    u64 deadline_ns, after, submit_ns, waited_ns;
    bool cancelled, in_flight;
    bool ignore_eos, prompt_logprobs;
    struct sampling sampling;
    u32 n_stop;
    struct str stop[LIMIT_STOP_STRINGS];
    char stop_text[LIMIT_STOP_STRINGS][LIMIT_STOP_STRING_BYTES];
    struct decode_stream stream;
    u32 held_n; /* text that may still become part of a stop string */
    char held[LIMIT_STOP_STRING_BYTES];
};

enum { TEXT_CAP = LIMIT_STOP_STRING_BYTES + 2 * DECODE_PIECE_BYTES };

struct engine {
    struct device *device;
    const struct tokenizer *tokenizer;
    struct engine_config config;
    struct clock clock;
    engine_on_event *on_event;
    void *arg;
    struct kv kv;
    u32 seqs_n, context, pages_a_seq;
    struct seq *seqs;   /* [seqs_n]; order[] lists those in use */
    struct seq **order; /* [in_use] by priority, then arrival */
    u32 in_use, running;
    bool *slot_used; /* [slots] */
    u64 next_id;
    bool in_flight, failed;
    struct step step;
    struct step_row *rows;  /* [slots] */
    struct seq **row_seqs;  /* [slots] */
    u32 *step_tokens;       /* [step_tokens] */
    struct sched_seq *plan; /* [slots] */
    struct seq **plan_seqs; /* [slots] */
    u32 *take;              /* [slots] */
    float *prompt_logits;   /* [config.prompt_logits][vocab], one sequence's at a time */
    struct step_result end; /* for events without a token */
    char text[TEXT_CAP];
    struct engine_stats stats;
};

static u32 seqs_of(const struct device *d, const struct engine_config *c)
{
    return d->limits.slots + c->queue;
}

static u32 pages_of(u32 tokens)
{
    return CEIL_DIV(tokens, LIMIT_PAGE_TOKENS);
}

static size_t prompt_floats(const struct device *d, const struct engine_config *c)
{
    return (size_t)c->prompt_logits * d->model->vocab;
}

/* One place that knows every piece, used with a null arena to measure. */
static bool lay_out(struct engine *g, struct arena *a)
{
    u32 slots = g->device->limits.slots;
    g->seqs = ARENA_NEW(a, struct seq, g->seqs_n);
    g->order = ARENA_NEW(a, struct seq *, g->seqs_n);
    g->slot_used = ARENA_NEW(a, bool, slots);
    g->rows = ARENA_NEW(a, struct step_row, slots);
    g->row_seqs = ARENA_NEW(a, struct seq *, slots);
    g->plan = ARENA_NEW(a, struct sched_seq, slots);
    g->plan_seqs = ARENA_NEW(a, struct seq *, slots);
    g->take = ARENA_NEW(a, u32, slots);
    g->step_tokens = ARENA_NEW(a, u32, g->device->limits.step_tokens);
    if (!g->seqs || !g->order || !g->slot_used || !g->rows || !g->row_seqs || !g->plan ||
        !g->plan_seqs || !g->take || !g->step_tokens)
        return false;
    g->prompt_logits = ARENA_NEW(a, float, prompt_floats(g->device, &g->config));
    if (!g->prompt_logits)
        return false;
    for (u32 i = 0; i < g->seqs_n; i++) {
        g->seqs[i].tokens = ARENA_NEW(a, u32, g->context);
        g->seqs[i].pages = ARENA_NEW(a, u32, g->pages_a_seq);
        if (!g->seqs[i].tokens || !g->seqs[i].pages)
            return false;
    }
    return true;
}

static size_t engine_bytes(const struct device *d, const struct engine_config *c)
{
    size_t slots = d->limits.slots, seqs = seqs_of(d, c), context = d->limits.context;
    size_t a_seq = sizeof(struct seq) + sizeof(struct seq *) + 4 * context +
                   4 * (size_t)pages_of((u32)context) + 128;
    size_t a_slot = sizeof(bool) + sizeof(struct step_row) + 2 * sizeof(struct seq *) +
                    sizeof(struct sched_seq) + sizeof(u32);
    return sizeof(struct engine) + seqs * a_seq + slots * a_slot +
           4 * (size_t)d->limits.step_tokens + 4 * prompt_floats(d, c) + 1024;
}

void engine_plan(const struct device *d, const struct engine_config *c, struct plan *p)
{
    plan_add(p, PLACE_HOST, engine_bytes(d, c), "requests", "engine.queue", "%u slots, %u waiting",
             d->limits.slots, c->queue);
    plan_add(p, PLACE_HOST, kv_bytes(d->limits.pages), "KV page table", "engine.kv", "%u pages",
             d->limits.pages);
}

enum err engine_open(struct arena *a, struct device *d, const struct tokenizer *t,
                     const struct engine_config *c, struct clock clock, engine_on_event *on_event,
                     void *arg, struct engine **out, struct err_text *e)
{
    struct engine *g = ARENA_NEW(a, struct engine, 1);
    if (!g)
        return arena_full(a, "engine", e);
    g->device = d;
    g->tokenizer = t;
    g->config = *c;
    g->clock = clock;
    g->on_event = on_event;
    g->arg = arg;
    g->seqs_n = seqs_of(d, c);
    g->context = d->limits.context;
    g->pages_a_seq = pages_of(g->context);
    g->next_id = 1;
    if (!lay_out(g, a))
        return arena_full(a, "engine", e);
    TRY(kv_open(&g->kv, a, d->limits.pages, c->prefix_cache, e));
    *out = g;
    return ERR_OK;
}

/* --- requests in ------------------------------------------------------------------------------ */

static struct seq *seq_find(struct engine *g, u64 id)
{
    for (u32 i = 0; i < g->in_use; i++)
        if (g->order[i]->id == id)
            return g->order[i];
    return NULL;
}

/* Output tokens this request may have, from its wish, the default and the context. */
static enum err output_tokens(const struct engine *g, const struct request *r, u32 *out,
                              struct err_text *e)
{
    if (r->n_prompt == 0)
        return err_set(e, ERR_REQUEST, "the prompt is empty: it needs at least one token");
    if (r->n_prompt >= g->context)
        return err_set(e, ERR_REQUEST,
                       "the prompt has %u tokens; the context is %u tokens (model.context) and one "
                       "must be left for the answer",
                       r->n_prompt, g->context);
    u32 room = g->context - r->n_prompt;
    u32 fallback = g->config.max_tokens ? MIN(g->config.max_tokens, room) : room;
    *out = r->max_tokens ? r->max_tokens : fallback;
    if (*out > room)
        return err_set(e, ERR_REQUEST,
                       "the prompt has %u tokens and max_tokens is %u: together more than the "
                       "context of %u tokens (model.context)",
                       r->n_prompt, *out, g->context);
    u32 need = pages_of(r->n_prompt + *out);
    if (need > g->kv.n)
        return err_set(e, ERR_REQUEST,
                       "prompt and output need %u KV pages of %u tokens; there are %u (engine.kv)",
                       need, LIMIT_PAGE_TOKENS, g->kv.n);
    return ERR_OK;
}

static void copy_stops(struct seq *s, const struct request *r, const struct model *m)
{
    s->n_stop = r->n_stop;
    for (u32 i = 0; i < r->n_stop; i++) {
        memcpy(s->stop_text[i], r->stop[i].p, r->stop[i].n);
        s->stop[i] = (struct str){s->stop_text[i], r->stop[i].n};
    }
    if (r->ignore_eos)
        return;
    struct sampling *p = &s->sampling; /* min_tokens masks these too */
    for (u32 i = 0; i < m->n_eos; i++)
        p->stop[p->n_stop++] = m->eos[i];
}

static void insert_in_order(struct engine *g, struct seq *s)
{
    u32 at = g->in_use++;
    for (; at > 0 && g->order[at - 1]->priority < s->priority; at--)
        g->order[at] = g->order[at - 1];
    g->order[at] = s;
}

static enum err check_request(const struct engine *g, const struct request *r, struct err_text *e)
{
    u32 vocab = g->device->model->vocab;
    ASSERT(!r->prompt_logprobs || g->config.prompt_logits);
    for (u32 i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= vocab)
            return err_set(e, ERR_REQUEST, "prompt token %u is %u; the model's vocabulary has %u",
                           i, r->prompt[i], vocab);
    if (r->sampling.n_stop > LIMIT_STOP_IDS)
        return err_set(e, ERR_REQUEST, "stop_token_ids has %u ids; the limit is %u",
                       r->sampling.n_stop, LIMIT_STOP_IDS);
    if (r->n_stop > LIMIT_STOP_STRINGS)
        return err_set(e, ERR_REQUEST, "stop has %u strings; the limit is %u", r->n_stop,
                       LIMIT_STOP_STRINGS);
    for (u32 i = 0; i < r->n_stop; i++)
        if (r->stop[i].n == 0 || r->stop[i].n > LIMIT_STOP_STRING_BYTES)
            return err_set(e, ERR_REQUEST, "stop string %u has %zu bytes; allowed are 1 to %u", i,
                           r->stop[i].n, LIMIT_STOP_STRING_BYTES);
    return ERR_OK;
}

enum err engine_submit(struct engine *g, const struct request *r, u64 *id, struct err_text *e)
{
    const struct model *m = g->device->model;
    u32 max_tokens;
    if (g->failed)
        return err_set(e, ERR_DEVICE, "the compute device has failed");
    TRY(check_request(g, r, e));
    TRY(output_tokens(g, r, &max_tokens, e));
    if (g->in_use >= g->seqs_n) /* also one that gets its slot with the next step waits */
        return err_set(e, ERR_BUSY, "%u requests wait already (engine.queue); try again later",
                       g->config.queue);
    struct seq *s = g->seqs;
    while (s->state != SEQ_FREE)
        s++;
    u32 *tokens = s->tokens, *pages = s->pages;
    *s = (struct seq){.state = SEQ_WAITING,
                      .id = g->next_id++,
                      .priority = r->priority,
                      .user = r->user,
                      .tokens = tokens,
                      .pages = pages,
                      .n_prompt = r->n_prompt,
                      .n_tokens = r->n_prompt,
                      .max_tokens = max_tokens,
                      .deadline_ns = r->deadline_ns,
                      .after = r->after,
                      .submit_ns = clock_now_ns(&g->clock),
                      .ignore_eos = r->ignore_eos,
                      .prompt_logprobs = r->prompt_logprobs,
                      .sampling = r->sampling};
    memcpy(s->tokens, r->prompt, r->n_prompt * sizeof *s->tokens);
    s->salt = m->rope_long_from && r->n_prompt + max_tokens > m->rope_long_from;
    if (g->tokenizer)
        s->stream = decode_start(g->tokenizer, !r->special_text);
    copy_stops(s, r, m);
    insert_in_order(g, s);
    *id = s->id;
    return ERR_OK;
}

void engine_cancel(struct engine *g, u64 id)
{
    struct seq *s = seq_find(g, id);
    if (s)
        s->cancelled = true;
}

/* --- sequences out ------------------------------------------------------------------------- */

static void leave(struct engine *g, struct seq *s)
{
    if (s->state == SEQ_RUNNING) {
        kv_release(&g->kv, s->pages, s->n_pages);
        g->slot_used[s->slot] = false;
        g->running--;
    }
    u32 at = 0;
    while (g->order[at] != s)
        at++;
    g->in_use--;
    memmove(&g->order[at], &g->order[at + 1], (g->in_use - at) * sizeof *g->order);
    s->state = SEQ_FREE;
}

static void deliver(struct engine *g, struct seq *s, const struct step_result *result,
                    struct str text, enum finish finish)
{
    struct event event = {.id = s->id,
                          .user = s->user,
                          .has_token = result != NULL,
                          .result = result,
                          .text = text,
                          .finish = finish,
                          .prompt_tokens = s->n_prompt,
                          .cached_tokens = s->cached,
                          .output_tokens = s->outputs,
                          .waited_ns = s->waited_ns};
    if (finish != FINISH_NONE) {
        g->stats.finished++;
        g->stats.cancelled += finish == FINISH_CANCELLED;
        leave(g, s);
    }
    g->on_event(g->arg, &event);
}

/* Where the earliest-ending stop string stands in text[n], or n; ties: the first of the list. */
static size_t find_stop(const struct seq *s, const char *text, size_t n)
{
    for (size_t end = 1; end <= n; end++)
        for (u32 i = 0; i < s->n_stop; i++) {
            struct str stop = s->stop[i];
            if (stop.n <= end && memcmp(text + end - stop.n, stop.p, stop.n) == 0)
                return end - stop.n;
        }
    return n;
}

/* Bytes at the end of text[n] that could be the beginning of a stop string. */
static u32 hold_back(const struct seq *s, const char *text, size_t n)
{
    u32 longest = 0;
    for (u32 i = 0; i < s->n_stop; i++)
        for (u32 k = (u32)MIN(n, s->stop[i].n - 1); k > longest; k--)
            if (memcmp(text + n - k, s->stop[i].p, k) == 0)
                longest = k;
    return longest;
}

static bool is_stop_id(const struct seq *s, u32 token)
{
    for (u32 i = 0; i < s->sampling.n_stop; i++)
        if (s->sampling.stop[i] == token)
            return true;
    return false;
}

/* A new token of a sequence: its text, whether it ends here, the event. */
static void token_out(struct engine *g, struct seq *s, const struct step_result *result)
{
    enum finish finish = FINISH_NONE;
    u32 n = s->held_n;
    s->tokens[s->n_tokens++] = result->token;
    s->outputs++;
    g->stats.output_tokens++;
    memcpy(g->text, s->held, n);
    if (is_stop_id(s, result->token))
        finish = FINISH_STOP;
    else if (g->tokenizer)
        n += decode_push(&s->stream, result->token, g->text + n);
    if (finish == FINISH_NONE && s->outputs >= s->max_tokens)
        finish = FINISH_LENGTH;
    if (finish != FINISH_NONE && g->tokenizer)
        n += decode_end(&s->stream, g->text + n);
    if (s->n_stop && s->outputs >= s->sampling.min_tokens) {
        u32 stop = (u32)find_stop(s, g->text, n);
        if (stop < n) {
            finish = FINISH_STOP;
            n = stop;
        }
    }
    s->held_n = finish == FINISH_NONE ? hold_back(s, g->text, n) : 0;
    n -= s->held_n;
    memcpy(s->held, g->text + n, s->held_n);
    deliver(g, s, result, (struct str){g->text, n}, finish);
}

static void text_left(struct engine *g, struct seq *s, enum finish finish)
{
    u32 n = s->held_n;
    memcpy(g->text, s->held, n);
    if (g->tokenizer)
        n += decode_end(&s->stream, g->text + n);
    deliver(g, s, NULL, (struct str){g->text, n}, finish);
}

/* Ends what was cancelled or is late, unless the step in flight still reads it. */
static void sweep(struct engine *g)
{
    u64 now = 0;
    for (u32 i = 0; i < g->in_use;) {
        struct seq *s = g->order[i];
        bool late = false;
        if (s->deadline_ns) {
            now = now ? now : clock_now_ns(&g->clock);
            late = now >= s->deadline_ns;
        }
        if ((s->cancelled || late) && !s->in_flight)
            text_left(g, s, s->cancelled ? FINISH_CANCELLED : FINISH_DEADLINE);
        else
            i++;
    }
}

/* --- one step ------------------------------------------------------------------------------ */

/* Gives the sequence a slot and all its pages; false when there is no room now. */
static bool admit(struct engine *g, struct seq *s)
{
    u32 slot = 0, need = pages_of(s->n_prompt + s->max_tokens);
    if (g->running == g->device->limits.slots)
        return false;
    /* The last prompt token is always computed: its logits are needed. */
    u32 reuse = s->prompt_logprobs ? 0 : s->n_prompt - 1; /* those need the logits of all */
    u32 found = kv_match(&g->kv, s->salt, s->tokens, reuse, s->pages, need);
    if (!kv_take(&g->kv, need - found, s->pages + found)) {
        kv_release(&g->kv, s->pages, found);
        return false;
    }
    while (g->slot_used[slot])
        slot++;
    g->slot_used[slot] = true;
    g->running++;
    s->slot = slot;
    s->n_pages = need;
    s->committed = found;
    s->computed = s->cached = found * LIMIT_PAGE_TOKENS;
    s->state = SEQ_RUNNING;
    s->waited_ns = clock_now_ns(&g->clock) - s->submit_ns;
    g->stats.prompt_tokens += s->n_prompt;
    g->stats.cached_tokens += s->cached;
    g->device->ops->slot_begin(g->device, slot, s->tokens, s->n_prompt);
    return true;
}

/* True while the logprobs of its prompt are wanted and not all there. */
static bool reports(const struct seq *s)
{
    return s->prompt_logprobs && s->outputs == 0;
}

static void add_row(struct engine *g, struct seq *s, u32 n)
{
    u32 row = g->step.n_rows++, first = g->step.n_tokens;
    memcpy(g->step_tokens + first, s->tokens + s->computed, n * sizeof *s->tokens);
    g->rows[row] = (struct step_row){.slot = s->slot,
                                     .first = first,
                                     .n = n,
                                     .pos = s->computed,
                                     .rope_long = s->salt != 0,
                                     .sample = s->computed + n == s->n_tokens,
                                     .outputs = s->outputs,
                                     .pages = s->pages,
                                     .sampling = &s->sampling,
                                     .logits = reports(s) ? g->prompt_logits : NULL};
    g->row_seqs[row] = s;
    g->step.n_tokens += n;
    s->in_flight = true;
}

/* True while the prompt it shares is still being read by another. */
static bool follows(struct engine *g, const struct seq *s)
{
    const struct seq *first = s->after ? seq_find(g, s->after) : NULL;
    return first && first->outputs == 0;
}

static void plan_step(struct engine *g)
{
    u32 n = 0;
    bool logits_used = false;
    for (u32 i = 0; i < g->in_use; i++) {
        struct seq *s = g->order[i];
        if (s->state == SEQ_WAITING && follows(g, s))
            continue;
        if (s->state == SEQ_WAITING && !admit(g, s))
            break; /* in order: nobody overtakes */
        u32 left = s->n_tokens - s->computed;
        if (reports(s)) {
            left = logits_used ? 0 : MIN(left, g->config.prompt_logits);
            logits_used = true;
        }
        g->plan[n] = (struct sched_seq){.left = left, .decodes = s->outputs > 0};
        g->plan_seqs[n++] = s;
    }
    struct sched_budget budget = {g->device->limits.step_tokens, g->config.prefill_beside};
    sched_plan(g->plan, n, budget, g->take);
    g->step = (struct step){.rows = g->rows, .tokens = g->step_tokens};
    for (u32 i = 0; i < n; i++)
        if (g->take[i])
            add_row(g, g->plan_seqs[i], g->take[i]);
}

/* Logprobs of the prompt tokens that follow those of the row. */
static void report_prompt(struct engine *g, struct seq *s, const struct step_row *row)
{
    u32 vocab = g->device->model->vocab;
    for (u32 i = 0; i < row->n && row->pos + i + 1 < s->n_prompt; i++) {
        struct step_result r = {.slot = s->slot, .token = s->tokens[row->pos + i + 1]};
        sample_logprobs(&s->sampling, row->logits + (size_t)i * vocab, vocab, &r);
        struct event event = {.id = s->id,
                              .user = s->user,
                              .has_prompt_token = true,
                              .prompt_at = row->pos + i + 1,
                              .result = &r,
                              .prompt_tokens = s->n_prompt,
                              .waited_ns = s->waited_ns};
        g->on_event(g->arg, &event);
    }
}

/* The step is done: its positions are in the cache, full pages can be found by others. */
static void row_done(struct engine *g, struct seq *s, const struct step_row *row)
{
    s->in_flight = false;
    s->computed += row->n;
    if (row->logits && !s->cancelled)
        report_prompt(g, s, row);
    while ((s->committed + 1) * LIMIT_PAGE_TOKENS <= s->computed) {
        u32 i = s->committed++;
        s->pages[i] = kv_commit(&g->kv, s->pages[i], i ? s->pages[i - 1] : KV_NO_PAGE, s->salt,
                                s->tokens + i * LIMIT_PAGE_TOKENS);
    }
}

static void fail_all(struct engine *g)
{
    g->failed = true;
    for (u32 i = 0; i < g->step.n_rows; i++)
        g->row_seqs[i]->in_flight = false;
    while (g->in_use)
        text_left(g, g->order[g->in_use - 1], FINISH_ERROR);
}

bool engine_step(struct engine *g)
{
    struct err_text e = {0};
    if (g->in_flight)
        return true;
    sweep(g);
    if (g->in_use == 0 || g->failed)
        return false;
    plan_step(g);
    ASSERT(g->step.n_rows > 0);
    g->stats.steps++;
    /* A device that cannot start reports it again from poll, where the caller looks. */
    g->in_flight = true;
    (void)!g->device->ops->submit(g->device, &g->step, &e);
    return true;
}

enum err engine_poll(struct engine *g, bool wait, struct err_text *e)
{
    const struct step_result *results;
    u32 n, next = 0;
    enum err code = ERR_OK;
    if (!g->in_flight) {
        sweep(g);
        return ERR_OK;
    }
    if (!g->device->ops->poll(g->device, wait, &results, &n, &code, e))
        return ERR_OK;
    g->in_flight = false;
    if (code != ERR_OK) {
        fail_all(g);
        return code;
    }
    for (u32 i = 0; i < g->step.n_rows; i++)
        row_done(g, g->row_seqs[i], &g->rows[i]);
    for (u32 i = 0; i < g->step.n_rows; i++) {
        if (!g->rows[i].sample)
            continue;
        ASSERT(next < n && results[next].slot == g->rows[i].slot);
        const struct step_result *result = &results[next++];
        if (!g->row_seqs[i]->cancelled)
            token_out(g, g->row_seqs[i], result);
    }
    sweep(g);
    return ERR_OK;
}

bool engine_idle(const struct engine *g)
{
    return g->in_use == 0;
}

struct engine_stats engine_stats(const struct engine *g)
{
    struct engine_stats stats = g->stats;
    stats.kv_lookups = g->kv.lookups;
    stats.kv_hits = g->kv.hits;
    stats.waiting = g->in_use - g->running;
    stats.running = g->running;
    stats.step_rows = g->step.n_rows;
    stats.step_tokens = g->step.n_tokens;
    stats.done_ns = g->device->done_ns;
    stats.pages = g->kv.n;
    stats.pages_free = kv_available(&g->kv);
    return stats;
}
