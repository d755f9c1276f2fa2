#include "core/engine/engine.h"

#include "core/engine/choose.h"
#include "core/engine/draft.h"
#include "core/engine/embed.h"
#include "core/engine/sample.h"
#include "core/engine/sched.h"
#include "core/engine/stops.h"

/* A request from submit to its last event, and until no step in flight has a row of it. `tokens`
 * holds the prompt and then the output. The KV of the first `computed` is there; the first
 * `planned` are in steps that were submitted. `pending` of those steps will each add a token: with
 * device.depth 2 the next one is planned before it is known. Of a row that ends in `guessed` tokens
 * the answer is awaited, as it says where to go on. */
enum seq_state { SEQ_FREE, SEQ_WAITING, SEQ_RUNNING, SEQ_ENDED };

struct seq {
    enum seq_state state;
    u64 id;
    i32 priority;
    void *user;
    u32 slot;
    u32 *tokens; /* [room], the last n_likely of them: maybe the output, until that comes */
    u32 n_prompt, n_likely, n_tokens, computed, planned, pending, cached, outputs, max_tokens;
    u32 positions; /* all that it can ever need */
    u32 *pages;    /* [pages a sequence can have] */
    u32 n_pages, committed, pages_version;
    u32 salt;
    u64 deadline_ns, after, submit_ns, waited_ns;
    bool cancelled, late;
    u32 in_flight; /* steps that have a row of it */
    u32 guessed;
    bool waits; /* for its newest token, as a draft may go on from there */
    bool prompt_logprobs, embeds;
    const struct grammar *grammar;
    u64 chosen_step;                    /* the last one that has brought logits */
    struct grammar_state grammar_state; /* behind the newest token */
    struct sampling sampling;
    struct decode_stream stream;
    struct stops stops;
};

struct flight { /* a step that was submitted, with all that it points to */
    struct step step;
    struct step_row *rows; /* [slots] */
    struct seq **seqs;     /* [slots] whose row it is */
    u32 *tokens;           /* [step_tokens] */
    float *hidden;         /* [slots][hidden]: of rows that embed */
    bool logits;           /* fills prompt_logits */
    u32 chosen;            /* rows whose token is chosen here */
};

enum { FLIGHTS = 2 }; /* device.depth at most */

enum { TEXT_CAP = LIMIT_STOP_STRING_BYTES + 2 * DECODE_PIECE_BYTES };

struct engine {
    struct device *device;
    const struct tokenizer *tokenizer;
    struct engine_config config;
    struct clock clock;
    engine_on_event *on_event;
    void *arg;
    struct kv kv;
    u32 seqs_n, context, room, pages_a_seq; /* room: behind the context for DRAFT_GRAM, too */
    struct seq *seqs;                       /* [seqs_n]; order[] lists those in use */
    struct seq **order; /* [ordered] those that have not ended, by priority, then arrival */
    u32 ordered, in_use, running;
    bool *slot_used;      /* [slots] */
    struct draft *drafts; /* [slots] */
    u32 guess[LIMIT_SLOTS];
    u64 blocked; /* who found no slot or too few pages, until there can be more; 0: nobody */
    u64 next_id;
    u64 deadline_ns; /* no request has an earlier one; UINT64_MAX: none has one */
    bool failed;
    bool cancels;                   /* since the newest sweep began */
    struct flight flights[FLIGHTS]; /* a ring */
    u32 first_flight, n_flights;
    struct sched_seq *plan; /* [slots] */
    struct seq **plan_seqs; /* [slots] */
    u32 *take;              /* [slots] */
    float *prompt_logits;   /* [config.prompt_logits][vocab], one sequence's at a time */
    struct chooser chooser; /* its logits are one flight's at a time */
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

/* One place that knows every piece, used with a null arena to measure. */
static bool lay_out(struct engine *g, struct arena *a)
{
    u32 slots = g->device->limits.slots, vocab = g->device->model->vocab;
    g->seqs = ARENA_NEW(a, struct seq, g->seqs_n);
    g->order = ARENA_NEW(a, struct seq *, g->seqs_n);
    g->slot_used = ARENA_NEW(a, bool, slots);
    g->drafts = ARENA_NEW(a, struct draft, slots);
    g->plan = ARENA_NEW(a, struct sched_seq, slots);
    g->plan_seqs = ARENA_NEW(a, struct seq *, slots);
    g->take = ARENA_NEW(a, u32, slots);
    if (!g->seqs || !g->order || !g->slot_used || !g->drafts || !g->plan || !g->plan_seqs ||
        !g->take)
        return false;
    for (u32 i = 0; i < slots && g->config.drafts; i++)
        if (!draft_open(&g->drafts[i], a, g->context))
            return false;
    for (u32 i = 0; i < g->device->depth; i++) {
        struct flight *f = &g->flights[i];
        f->rows = ARENA_NEW(a, struct step_row, slots);
        f->seqs = ARENA_NEW(a, struct seq *, slots);
        f->tokens = ARENA_NEW(a, u32, g->device->limits.step_tokens);
        f->hidden = ARENA_NEW(a, float, slots *(size_t)g->device->model->hidden);
        if (!f->rows || !f->seqs || !f->tokens || !f->hidden)
            return false;
    }
    g->prompt_logits = ARENA_NEW(a, float, g->config.prompt_logits *(size_t)vocab);
    if (!g->prompt_logits ||
        !choose_lay_out(&g->chooser, a, g->tokenizer, vocab, g->config.grammar_rows))
        return false;
    for (u32 i = 0; i < g->seqs_n; i++) {
        g->seqs[i].tokens = ARENA_NEW(a, u32, g->room);
        g->seqs[i].pages = ARENA_NEW(a, u32, g->pages_a_seq);
        if (!g->seqs[i].tokens || !g->seqs[i].pages)
            return false;
    }
    return true;
}

static size_t engine_bytes(const struct device *d, const struct engine_config *c)
{
    size_t slots = d->limits.slots, seqs = seqs_of(d, c), context = d->limits.context;
    size_t a_seq = sizeof(struct seq) + sizeof(struct seq *) + 4 * (context + DRAFT_GRAM) +
                   4 * (size_t)pages_of((u32)context) + 128;
    size_t a_slot = sizeof(bool) + sizeof(struct draft) + sizeof(struct seq *) +
                    sizeof(struct sched_seq) + sizeof(u32);
    size_t a_row = sizeof(struct step_row) + sizeof(struct seq *) + 4 * d->model->hidden;
    size_t a_flight = slots * a_row + 4 * (size_t)d->limits.step_tokens + 64;
    return sizeof(struct engine) + seqs * a_seq + slots * a_slot + d->depth * a_flight +
           4 * (size_t)c->prompt_logits * d->model->vocab + 1024;
}

void engine_plan(const struct device *d, const struct engine_config *c, struct plan *p)
{
    plan_add(p, PLACE_HOST, engine_bytes(d, c), "requests", "engine.queue", "%u slots, %u waiting",
             d->limits.slots, c->queue);
    if (c->drafts)
        plan_add(p, PLACE_HOST, d->limits.slots * (draft_bytes(d->limits.context) + 64), "drafts",
                 "engine.drafts", "%u slots", d->limits.slots);
    if (c->grammar_rows)
        plan_add(p, PLACE_HOST, choose_bytes(d->model->vocab, c->grammar_rows), "grammars",
                 "engine.grammar_rows", "%u rows of logits", c->grammar_rows);
    plan_add(p, PLACE_HOST, kv_bytes(d->limits.pages), "KV page table", "engine.kv", "%u pages",
             d->limits.pages);
}

enum err engine_open(struct arena *a, struct device *d, const struct tokenizer *t,
                     const struct engine_config *c, struct clock clock, engine_on_event *on_event,
                     void *arg, struct engine **out, struct err_text *e)
{
    ASSERT(d->depth >= 1 && d->depth <= FLIGHTS);
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
    g->room = g->context + DRAFT_GRAM;
    g->pages_a_seq = pages_of(g->context);
    g->next_id = 1;
    g->deadline_ns = UINT64_MAX;
    if (!lay_out(g, a))
        return arena_full(a, "engine", e);
    TRY(kv_open(&g->kv, a, d->limits.pages, c->prefix_cache, e));
    *out = g;
    return ERR_OK;
}

/* --- requests in ------------------------------------------------------------------------------ */

static struct seq *seq_find(struct engine *g, u64 id)
{
    for (u32 i = 0; i < g->ordered; i++)
        if (g->order[i]->id == id)
            return g->order[i];
    return NULL;
}

/* Output tokens this request may have, from its wish, the default and the context; and the
 * positions of prompt and output. */
static enum err output_tokens(const struct engine *g, const struct request *r, u32 *out,
                              u32 *positions, struct err_text *e)
{
    const char *by = g->device->limits.context_by;
    if (r->n_prompt == 0)
        return err_set(e, ERR_REQUEST, "the prompt is empty: it needs at least one token");
    if (r->n_prompt + !r->no_answer > g->context)
        return err_set(e, ERR_REQUEST, "the prompt has %u tokens; the context is %u tokens (%s)%s",
                       r->n_prompt, g->context, by,
                       r->no_answer ? "" : " and one must be left for the answer");
    u32 room = g->context - r->n_prompt;
    u32 fallback = g->config.max_tokens ? MIN(g->config.max_tokens, room) : room;
    *out = r->no_answer ? 1 : r->max_tokens ? r->max_tokens : fallback;
    if (*out > room && !r->no_answer)
        return err_set(e, ERR_REQUEST,
                       "the prompt has %u tokens and max_tokens is %u: together more than the "
                       "context of %u tokens (%s)",
                       r->n_prompt, *out, g->context, by);
    *positions = r->n_prompt + (r->no_answer ? 0 : *out);
    u32 need = pages_of(*positions);
    if (need > g->kv.n)
        return err_set(e, ERR_REQUEST,
                       "prompt and output need %u KV pages of %u tokens; there are %u (engine.kv)",
                       need, LIMIT_PAGE_TOKENS, g->kv.n);
    return ERR_OK;
}

static void copy_stops(struct seq *s, const struct request *r, const struct model *m)
{
    stops_set(&s->stops, r->stop, r->n_stop);
    if (r->ignore_eos)
        return;
    struct sampling *p = &s->sampling; /* min_tokens masks these too */
    for (u32 i = 0; i < m->n_eos; i++)
        p->stop[p->n_stop++] = m->eos[i];
}

/* A prompt that several share is read once, and counts once. */
static u32 own_tokens(const struct seq *s)
{
    return s->after ? 0 : s->n_prompt;
}

static void begin_waiting(struct engine *g, struct seq *s)
{
    u32 at = g->ordered++;
    g->in_use++;
    g->stats.waiting++;
    g->stats.waiting_tokens += own_tokens(s);
    for (; at > 0 && g->order[at - 1]->priority < s->priority; at--)
        g->order[at] = g->order[at - 1];
    g->order[at] = s;
}

static void end_waiting(struct engine *g, struct seq *s, enum seq_state state)
{
    if (s->state == SEQ_WAITING) {
        g->stats.waiting--;
        g->stats.waiting_tokens -= own_tokens(s);
    }
    g->blocked = g->blocked == s->id ? 0 : g->blocked;
    s->state = state;
}

static enum err check_tokens(const char *what, const u32 *ids, u32 n, u32 vocab, struct err_text *e)
{
    for (u32 i = 0; i < n; i++)
        if (ids[i] >= vocab)
            return err_set(e, ERR_REQUEST, "%s token %u is %u; the model's vocabulary has %u", what,
                           i, ids[i], vocab);
    return ERR_OK;
}

static enum err check_request(const struct engine *g, const struct request *r, struct err_text *e)
{
    u32 vocab = g->device->model->vocab;
    ASSERT(!r->prompt_logprobs || g->config.prompt_logits);
    ASSERT(!r->embeds || (r->no_answer && !r->prompt_logprobs && !r->grammar));
    ASSERT(!r->grammar || (g->config.grammar_rows && g->tokenizer && !r->prompt_logprobs &&
                           !r->sampling.min_tokens));
    TRY(check_tokens("prompt", r->prompt, r->n_prompt, vocab, e));
    TRY(check_tokens("predicted", r->likely, r->n_likely, vocab, e));
    if (r->sampling.n_stop > LIMIT_STOP_IDS)
        return err_set(e, ERR_REQUEST, "stop_token_ids has %u ids; the limit is %u",
                       r->sampling.n_stop, LIMIT_STOP_IDS);
    return stops_check(r->stop, r->n_stop, e);
}

enum err engine_submit(struct engine *g, const struct request *r, u64 *id, struct err_text *e)
{
    const struct model *m = g->device->model;
    u32 max_tokens, positions;
    if (g->failed)
        return err_set(e, ERR_DEVICE, "the compute device has failed");
    TRY(check_request(g, r, e));
    TRY(output_tokens(g, r, &max_tokens, &positions, e));
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
                      .n_likely = MIN(r->n_likely, g->context - r->n_prompt),
                      .n_tokens = r->n_prompt,
                      .max_tokens = max_tokens,
                      .positions = positions,
                      .deadline_ns = r->deadline_ns,
                      .after = r->after,
                      .submit_ns = clock_now_ns(&g->clock),
                      .prompt_logprobs = r->prompt_logprobs,
                      .embeds = r->embeds,
                      .grammar = r->grammar,
                      .sampling = r->sampling};
    memcpy(s->tokens, r->prompt, r->n_prompt * sizeof *s->tokens);
    if (s->n_likely)
        memcpy(s->tokens + g->room - s->n_likely, r->likely, s->n_likely * sizeof *s->tokens);
    s->salt = m->rope_long_from && positions > m->rope_long_from;
    if (g->tokenizer)
        s->stream = r->continues
                        ? decode_behind(g->tokenizer, !r->special_text, r->prompt, r->n_prompt)
                        : decode_start(g->tokenizer, !r->special_text);
    if (r->grammar)
        grammar_begin(r->grammar, &s->grammar_state);
    copy_stops(s, r, m);
    begin_waiting(g, s);
    if (s->deadline_ns)
        g->deadline_ns = MIN(g->deadline_ns, s->deadline_ns);
    *id = s->id;
    return ERR_OK;
}

void engine_cancel(struct engine *g, u64 id)
{
    struct seq *s = seq_find(g, id);
    if (!s)
        return;
    s->cancelled = true;
    g->cancels = true;
}

/* --- sequences out ------------------------------------------------------------------------- */

/* An ended sequence keeps its slot, pages and memory until no step in flight reads them. */
static void retire(struct engine *g, struct seq *s)
{
    if (s->in_flight)
        return;
    if (s->n_pages) {
        kv_release(&g->kv, s->pages, s->n_pages);
        g->slot_used[s->slot] = false;
        g->running--;
        g->blocked = 0;
    }
    s->state = SEQ_FREE;
    g->in_use--;
}

static void leave(struct engine *g, struct seq *s)
{
    u32 at = 0;
    while (g->order[at] != s)
        at++;
    g->ordered--;
    memmove(&g->order[at], &g->order[at + 1], (g->ordered - at) * sizeof *g->order);
    end_waiting(g, s, SEQ_ENDED);
    retire(g, s);
}

static void deliver(struct engine *g, struct seq *s, const struct step_result *result,
                    const float *embedding, struct str text, enum finish finish)
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
                          .waited_ns = s->waited_ns,
                          .stop = s->stops.found,
                          .embedding = embedding};
    if (finish != FINISH_NONE) {
        g->stats.finished++;
        g->stats.cancelled += finish == FINISH_CANCELLED;
        leave(g, s);
    }
    g->on_event(g->arg, &event);
}

/* Moves its grammar by a token that fits; false: nothing may follow. */
static bool grammar_goes_on(struct engine *g, struct seq *s, u32 token)
{
    char bytes[LIMIT_TOKEN_BYTES];
    u32 n = tokenizer_bytes(g->tokenizer, token, bytes);
    for (u32 i = 0; i < n; i++) {
        bool fits = grammar_step(s->grammar, &s->grammar_state, (u8)bytes[i]);
        ASSERT(fits);
    }
    return !grammar_closed(&s->grammar_state);
}

/* A new token of a sequence: its text, whether it ends here, the event. */
static void token_out(struct engine *g, struct seq *s, const struct step_result *result)
{
    enum finish finish = FINISH_NONE;
    u32 n = stops_release(&s->stops, g->text);
    s->tokens[s->n_tokens++] = result->token;
    s->outputs++;
    g->stats.output_tokens++;
    if (sampling_stops(&s->sampling, result->token))
        finish = FINISH_STOP;
    else if (g->tokenizer)
        n += decode_push(&s->stream, result->token, g->text + n);
    if (finish == FINISH_NONE && s->grammar && !grammar_goes_on(g, s, result->token))
        finish = FINISH_STOP;
    if (finish == FINISH_NONE && s->outputs >= s->max_tokens)
        finish = FINISH_LENGTH;
    if (finish != FINISH_NONE && g->tokenizer)
        n += decode_end(&s->stream, g->text + n);
    if (s->stops.n && s->outputs >= s->sampling.min_tokens) {
        u32 stop = stops_find(&s->stops, g->text, n);
        if (stop < n) {
            finish = FINISH_STOP;
            n = stop;
        }
    }
    if (finish == FINISH_NONE)
        n = stops_hold(&s->stops, g->text, n);
    deliver(g, s, result, NULL, (struct str){g->text, n}, finish);
}

static void text_left(struct engine *g, struct seq *s, enum finish finish)
{
    u32 n = stops_release(&s->stops, g->text);
    if (g->tokenizer)
        n += decode_end(&s->stream, g->text + n);
    deliver(g, s, NULL, NULL, (struct str){g->text, n}, finish);
}

/* Ends what was cancelled or is late, once no step in flight has a row of it (the end of that step
 * comes back here); no further step gets one. */
static void sweep_once(struct engine *g)
{
    u64 now = 0;
    g->deadline_ns = UINT64_MAX;
    g->cancels = false;
    for (u32 i = 0; i < g->ordered;) {
        struct seq *s = g->order[i];
        if (s->deadline_ns) {
            now = now ? now : clock_now_ns(&g->clock);
            s->late = now >= s->deadline_ns;
            if (!s->late)
                g->deadline_ns = MIN(g->deadline_ns, s->deadline_ns);
        }
        if ((s->cancelled || s->late) && !s->in_flight)
            text_left(g, s, s->cancelled ? FINISH_CANCELLED : FINISH_DEADLINE);
        else
            i++;
    }
}

/* Again when somebody who heard of an end has cancelled others, which may have been passed by. */
static void sweep(struct engine *g)
{
    do
        sweep_once(g);
    while (g->cancels);
}

/* --- one step ------------------------------------------------------------------------------ */

/* Gives the sequence a slot and all its pages; false when there is no room now. Who found none is
 * looked at again when somebody has given his back, or has committed pages: those may be his
 * prefix, or there already and one of them given back. Nothing else makes room: what others take
 * meanwhile leaves no more than there was, even when it is his prefix that they hold. */
static bool admit(struct engine *g, struct seq *s)
{
    u32 slot = 0, need = pages_of(s->positions);
    if (g->blocked == s->id)
        return false;
    g->blocked = s->id;
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
    s->computed = s->planned = s->cached = found * LIMIT_PAGE_TOKENS;
    end_waiting(g, s, SEQ_RUNNING);
    s->waited_ns = clock_now_ns(&g->clock) - s->submit_ns;
    g->stats.prompt_tokens += s->n_prompt;
    g->stats.cached_tokens += s->cached;
    g->device->ops->slot_begin(g->device, slot, s->tokens, s->n_prompt);
    if (g->config.drafts)
        draft_begin(&g->drafts[slot], s->n_prompt, s->n_likely, g->room);
    return true;
}

/* True while the logprobs of its prompt are wanted and not all of it is planned. */
static bool reports(const struct seq *s)
{
    return s->prompt_logprobs && s->planned < s->n_prompt;
}

/* Its next n tokens, and behind them the first of g->guess. */
static void add_row(struct engine *g, struct flight *f, struct seq *s, u32 n, u32 guessed)
{
    u32 row = f->step.n_rows++, first = f->step.n_tokens;
    float *hidden = f->hidden + (size_t)row * g->device->model->hidden;
    bool follows = s->planned >= s->n_tokens, logits = reports(s);
    bool last = follows || s->planned + n == s->n_tokens, choose = last && s->grammar;
    bool sample = last && !choose && !s->embeds;
    if (follows)
        f->tokens[first] = 0;
    else
        memcpy(f->tokens + first, s->tokens + s->planned, n * sizeof *s->tokens);
    memcpy(f->tokens + first + n, g->guess, guessed * sizeof *g->guess);
    n += guessed;
    f->rows[row] = (struct step_row){.slot = s->slot,
                                     .first = first,
                                     .n = n,
                                     .pos = s->planned,
                                     .follows = follows,
                                     .rope_long = s->salt != 0,
                                     .samples = sample + guessed,
                                     .outputs = s->outputs + s->pending,
                                     .pages = s->pages,
                                     .n_pages = s->n_pages,
                                     .pages_version = s->pages_version,
                                     .sampling = &s->sampling,
                                     .logits = logits   ? g->prompt_logits
                                               : choose ? choose_row(&g->chooser, f->chosen)
                                                        : NULL,
                                     .hidden = last && s->embeds ? hidden : NULL};
    f->seqs[row] = s;
    f->step.n_tokens += n;
    f->logits = f->logits || logits;
    f->chosen += choose;
    s->chosen_step = choose ? g->stats.steps : s->chosen_step;
    s->planned += n;
    s->guessed = guessed;
    s->pending += last;
    s->in_flight++;
}

/* True while the prompt it shares is still being read by another. */
static bool shares_unread(struct engine *g, const struct seq *s)
{
    const struct seq *first = s->after ? seq_find(g, s->after) : NULL;
    return first && first->outputs == 0;
}

/* No further step gets a row of it. */
static bool is_over(const struct seq *s)
{
    return s->cancelled || s->late || s->outputs + s->pending >= s->max_tokens;
}

/* True when its next token, the last that it has, has to bring logits. */
static bool chooses(const struct seq *s)
{
    return s->grammar && s->state == SEQ_RUNNING && !s->pending && !is_over(s) &&
           s->planned + 1 == s->n_tokens;
}

/* Of those who choose there may be more than rows: first come those who have waited for longest. */
static bool is_turn(const struct engine *g, const struct seq *s)
{
    u32 before = 0;
    bool passed = false;
    for (u32 i = 0; i < g->ordered; i++) {
        const struct seq *o = g->order[i];
        passed = passed || o == s;
        before += chooses(o) && (o->chosen_step < s->chosen_step ||
                                 (o->chosen_step == s->chosen_step && !passed));
    }
    return before < g->config.grammar_rows;
}

/* Of the next step the logits that can be asked for. */
struct logits_left {
    bool prompt;  /* a part of somebody's prompt */
    u32 choosing; /* rows of those with a grammar */
};

/* Tokens of a running sequence that the next step could take. With a grammar the last one is a row
 * of its own, and what follows it has to be known. */
static u32 tokens_left(const struct engine *g, const struct seq *s, const struct logits_left *l)
{
    u32 left = s->n_tokens + s->pending - s->planned;
    if (is_over(s) || s->guessed || (s->pending && s->waits))
        return 0;
    if (reports(s))
        return l->prompt ? MIN(left, g->config.prompt_logits) : 0;
    if (chooses(s))
        return l->choosing > 0 && is_turn(g, s);
    return s->grammar ? left - 1 : left;
}

static struct logits_left logits_left(const struct engine *g)
{
    struct logits_left l = {.prompt = true, .choosing = g->config.grammar_rows};
    for (u32 i = 0; i < g->n_flights; i++) {
        const struct flight *f = &g->flights[(g->first_flight + i) % g->device->depth];
        l.prompt = l.prompt && !f->logits;
        l.choosing = f->chosen ? 0 : l.choosing;
    }
    return l;
}

/* May its next tokens be guessed? Not what is counted from step to step, or chosen here. */
static bool is_guessable(const struct engine *g, const struct seq *s)
{
    return g->config.drafts && s->state == SEQ_RUNNING && s->outputs && !s->guessed &&
           !is_over(s) && !s->grammar && !sampling_counts(&s->sampling);
}

/* Guesses of what follows the tokens that are known, at most so many: g->guess. */
static u32 find_guesses(struct engine *g, const struct seq *s, u32 most)
{
    struct draft *d = &g->drafts[s->slot];
    most = is_guessable(g, s) ? MIN(most, s->max_tokens - s->outputs - 1) : 0;
    return draft_find(d, s->tokens, s->n_tokens, most, g->guess);
}

/* Has the sequence guesses for the next step? If its newest token is on its way, and those before
 * have an idea of what follows, it waits: a step that knows nothing but that token would be in the
 * way of a draft. */
static bool has_guesses(struct engine *g, struct seq *s)
{
    bool idea = find_guesses(g, s, g->config.drafts) > 0;
    if (s->waits && !s->pending && !idea)
        draft_judge(&g->drafts[s->slot], 1, 0);
    s->waits = s->pending && idea;
    return idea && !s->pending;
}

/* Fills the flight's step; false when nothing can go on before a step in flight is done. */
static bool plan_step(struct engine *g, struct flight *f)
{
    u32 n = 0, sharers = 0;
    bool full = false;
    struct logits_left logits = logits_left(g);
    for (u32 i = 0; i < g->ordered; i++) {
        struct seq *s = g->order[i];
        if (s->state == SEQ_WAITING && (full || s->cancelled || s->late || shares_unread(g, s)))
            continue;
        /* In order: of those who wait nobody overtakes. Who runs goes on: somebody of a higher
         * priority may wait before him. */
        if (s->state == SEQ_WAITING && !admit(g, s)) {
            full = true;
            continue;
        }
        bool shares = has_guesses(g, s); /* before it is asked what is left: it may wait */
        u32 left = tokens_left(g, s, &logits);
        logits.prompt = logits.prompt && !(left && reports(s));
        logits.choosing -= left && chooses(s);
        g->plan[n] = (struct sched_seq){.left = left, .decodes = s->outputs + s->pending > 0};
        g->plan_seqs[n] = s;
        n += left > 0;
        sharers += left > 0 && shares;
    }
    struct sched_budget budget = {g->device->limits.step_tokens, g->config.prefill_beside};
    u32 room = budget.step_tokens - sched_plan(g->plan, n, budget, g->take);
    room = MIN(MIN(room, g->config.drafts), g->device->limits.samples - n);
    f->step = (struct step){.rows = f->rows, .tokens = f->tokens};
    f->logits = false;
    f->chosen = 0;
    for (u32 i = 0; i < n; i++) {
        struct seq *s = g->plan_seqs[i];
        u32 most = sharers && g->take[i] && !s->pending ? CEIL_DIV(room, sharers) : 0;
        u32 guessed = find_guesses(g, s, most);
        room -= guessed;
        sharers -= guessed > 0;
        if (g->take[i])
            add_row(g, f, s, g->take[i], guessed);
    }
    return f->step.n_rows > 0;
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

/* How many of its guesses were right: tokens that it is about to put out. The others are forgotten,
 * and their positions computed again. */
static u32 settle_guesses(struct engine *g, struct seq *s, const struct flight *f,
                          const struct step_row *row, const struct step_result *results)
{
    const u32 n = s->guessed, *guesses = f->tokens + row->first + row->n - n;
    struct draft *d = &g->drafts[s->slot];
    u32 stayed = 0;
    while (stayed < n && results[stayed].token == guesses[stayed])
        stayed++;
    if (n)
        draft_judge(d, n, stayed);
    else if (row->samples && g->config.drafts)
        draft_pass(d);
    memcpy(s->tokens + s->n_tokens, guesses, stayed * sizeof *guesses);
    s->guessed = 0;
    s->planned -= n - stayed;
    s->computed += row->n - (n - stayed);
    g->stats.drafts += n;
    g->stats.drafts_stayed += stayed;
    return stayed;
}

/* The step is done: its positions are in the cache, full pages can be found by others. Behind the
 * known tokens of the sequence stand so many that it is about to put out. */
static void row_done(struct engine *g, struct seq *s, const struct step_row *row, u32 stayed)
{
    s->in_flight--;
    s->pending -= row->samples || (s->grammar && row->logits) || row->hidden;
    if (s->state == SEQ_ENDED) {
        retire(g, s);
        return;
    }
    if (row->logits && !s->grammar && !s->cancelled)
        report_prompt(g, s, row);
    /* Of one who was cancelled the token that a follower computed may not be known. */
    u32 known = MIN(s->computed, s->n_tokens + stayed);
    while ((s->committed + 1) * LIMIT_PAGE_TOKENS <= known) {
        u32 i = s->committed++, page = s->pages[i];
        s->pages[i] = kv_commit(&g->kv, page, i ? s->pages[i - 1] : KV_NO_PAGE, s->salt,
                                s->tokens + i * LIMIT_PAGE_TOKENS);
        g->blocked = 0;
        s->pages_version += s->pages[i] != page;
    }
}

static void fail_all(struct engine *g)
{
    g->failed = true;
    for (u32 i = 0; i < g->n_flights; i++) {
        const struct flight *f = &g->flights[(g->first_flight + i) % g->device->depth];
        for (u32 row = 0; row < f->step.n_rows; row++) {
            f->seqs[row]->in_flight--;
            if (f->seqs[row]->state == SEQ_ENDED)
                retire(g, f->seqs[row]);
        }
    }
    g->n_flights = 0;
    while (g->ordered)
        text_left(g, g->order[g->ordered - 1], FINISH_ERROR);
}

bool engine_step(struct engine *g)
{
    struct err_text e = {0};
    if (g->n_flights == g->device->depth)
        return true;
    sweep(g);
    while (g->n_flights < g->device->depth && g->ordered && !g->failed) {
        struct flight *f = &g->flights[(g->first_flight + g->n_flights) % g->device->depth];
        if (!plan_step(g, f)) {
            ASSERT(g->n_flights > 0);
            break;
        }
        g->stats.steps++;
        g->stats.step_rows = f->step.n_rows;
        g->stats.step_tokens = f->step.n_tokens;
        g->n_flights++;
        /* A device that cannot start reports it again from poll, where the caller looks. */
        if (g->device->ops->submit(g->device, &f->step, &e) != ERR_OK)
            break;
    }
    return g->n_flights > 0;
}

/* The next token of a sequence with a grammar. */
static void choose(struct engine *g, struct seq *s, const float *logits)
{
    struct step_result result = {.slot = s->slot};
    struct choosing c = {.grammar = s->grammar,
                         .state = &s->grammar_state,
                         .sampling = &s->sampling,
                         .tokens = s->tokens,
                         .n_prompt = s->n_prompt,
                         .n_tokens = s->n_tokens,
                         .logits = logits};
    if (choose_token(&g->chooser, &c, &result))
        token_out(g, s, &result);
    else
        text_left(g, s,
                  grammar_complete(s->grammar, &s->grammar_state) ? FINISH_STOP : FINISH_LENGTH);
}

/* The oldest step in flight has its results. */
static void flight_done(struct engine *g, const struct step_result *results, u32 n)
{
    const struct flight *f = &g->flights[g->first_flight];
    u32 next = 0;
    g->first_flight = (g->first_flight + 1) % g->device->depth;
    g->n_flights--;
    for (u32 i = 0; i < f->step.n_rows; i++) {
        struct seq *s = f->seqs[i];
        const struct step_row *row = &f->rows[i];
        const struct step_result *of_row = results + next;
        next += row->samples;
        ASSERT(next <= n && (!row->samples || of_row->slot == row->slot));
        bool goes_on = s->state == SEQ_RUNNING && !s->cancelled;
        u32 stayed = settle_guesses(g, s, f, row, of_row);
        row_done(g, s, row, stayed);
        if (row->logits && s->grammar && goes_on)
            choose(g, s, row->logits);
        if (row->hidden && goes_on)
            deliver(g, s, NULL, embed_norm(g->device->model, row->hidden), (struct str){0},
                    FINISH_STOP);
        for (u32 k = 0; k < MIN(row->samples, stayed + 1) && goes_on; k++) {
            token_out(g, s, &of_row[k]);
            goes_on = s->state == SEQ_RUNNING && !s->cancelled;
        }
    }
}

enum err engine_poll(struct engine *g, bool wait, struct err_text *e)
{
    const struct step_result *results;
    u32 n;
    enum err code = ERR_OK;
    while (g->n_flights && g->device->ops->poll(g->device, wait, &results, &n, &code, e)) {
        if (code != ERR_OK) {
            fail_all(g);
            return code;
        }
        flight_done(g, results, n);
        wait = false;
    }
    sweep(g);
    return ERR_OK;
}

u64 engine_next_ns(const struct engine *g)
{
    u64 look = g->n_flights && g->device->look_ns ? g->device->look_ns : UINT64_MAX;
    return MIN(look, g->deadline_ns);
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
    stats.running = g->running;
    stats.blocked = g->blocked != 0;
    stats.done_ns = g->device->done_ns;
    stats.pages = g->kv.n;
    stats.pages_free = kv_available(&g->kv);
    return stats;
}

bool engine_report(const struct engine *g, struct device_report *out)
{
    if (!g->device->ops->report)
        return false;
    g->device->ops->report(g->device, out);
    return true;
}
