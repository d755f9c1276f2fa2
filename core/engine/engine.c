#include "core/engine/engine.h"

#include "core/engine/seq.h"

static u32 seqs_of(const struct device *d, const struct engine_config *c)
{
    return d->limits.slots + c->queue;
}

static u32 kept_masks(u32 slots)
{
    return 2 * slots + 16;
}

/* One place that knows every piece, used with a null arena to measure. */
static bool lay_out(struct engine *g, struct arena *a)
{
    u32 slots = g->device->limits.slots, vocab = g->device->model->vocab;
    g->seqs = ARENA_NEW(a, struct seq, g->seqs_n);
    g->order = ARENA_NEW(a, struct seq *, g->seqs_n);
    g->slot_used = ARENA_NEW(a, bool, slots);
    g->holders = ARENA_NEW(a, struct seq *, slots);
    g->drafts = ARENA_NEW(a, struct draft, slots);
    g->plan = ARENA_NEW(a, struct sched_seq, slots);
    g->plan_seqs = ARENA_NEW(a, struct seq *, slots);
    g->take = ARENA_NEW(a, u32, slots);
    if (!g->seqs || !g->order || !g->slot_used || !g->holders || !g->drafts || !g->plan ||
        !g->plan_seqs || !g->take)
        return false;
    if (g->config.drafts && !recall_open(&g->recall, a))
        return false;
    for (u32 i = 0; i < slots && g->config.drafts; i++)
        if (!draft_open(&g->drafts[i], a, g->context, &g->recall))
            return false;
    for (u32 i = 0; i < g->device->depth; i++) {
        struct flight *f = &g->flights[i];
        f->rows = ARENA_NEW(a, struct step_row, slots);
        f->seqs = ARENA_NEW(a, struct seq *, slots);
        f->tokens = ARENA_NEW(a, u32, g->device->limits.step_tokens);
        f->hidden = ARENA_NEW(a, float, slots *(size_t)g->device->model->hidden);
        f->fitting = ARENA_NEW(a, u32, slots);
        if (!f->rows || !f->seqs || !f->tokens || !f->hidden || !f->fitting)
            return false;
    }
    if (g->config.grammars) {
        g->masks = ARENA_NEW(a, u64, g->device->limits.samples * (size_t)MASK_WORDS(vocab));
        if (g->config.drafts &&
            tokenizer_work_bytes(g->tokenizer, FORESEE_BYTES) <= FORESEE_WORK_BYTES)
            g->encode_work = arena_alloc(a, FORESEE_WORK_BYTES, 16);
        if (!g->masks || !mask_lay_out(&g->masker, a, g->tokenizer, vocab, kept_masks(slots)))
            return false;
    }
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
                   4 * (size_t)seq_pages((u32)context) + 128;
    size_t a_slot = sizeof(bool) + sizeof(struct draft) + 2 * sizeof(struct seq *) +
                    sizeof(struct sched_seq) + sizeof(u32);
    size_t a_row =
        sizeof(struct step_row) + sizeof(struct seq *) + sizeof(u32) + 4 * d->model->hidden;
    size_t a_flight = slots * a_row + 4 * (size_t)d->limits.step_tokens + 64;
    return sizeof(struct engine) + seqs * a_seq + slots * a_slot + d->depth * a_flight + 1024;
}

static size_t masks_bytes(const struct device *d)
{
    u32 vocab = d->model->vocab;
    return mask_bytes(vocab, kept_masks(d->limits.slots)) +
           d->limits.samples * (size_t)MASK_WORDS(vocab) * sizeof(u64) + FORESEE_WORK_BYTES + 80;
}

void engine_plan(const struct device *d, const struct engine_config *c, struct plan *p)
{
    plan_add(p, PLACE_HOST, engine_bytes(d, c), "requests", "engine.queue", "%u slots, %u waiting",
             d->limits.slots, c->queue);
    if (c->drafts)
        plan_add(p, PLACE_HOST,
                 d->limits.slots * (draft_bytes(d->limits.context) + 64) + recall_bytes(), "drafts",
                 "engine.drafts", "%u slots, and earlier answers", d->limits.slots);
    if (c->grammars)
        plan_add(p, PLACE_HOST, masks_bytes(d), "grammars", "engine.grammars", "%u masks",
                 d->limits.samples + kept_masks(d->limits.slots));
    plan_add(p, PLACE_HOST, kv_bytes(d->limits.pages, d->limits.checkpoints), "KV page table",
             "engine.kv", "%u pages", d->limits.pages);
}

enum err engine_open(struct arena *a, struct device *d, const struct tokenizer *t,
                     const struct engine_config *c, struct clock clock, engine_on_event *on_event,
                     void *arg, struct engine **out, struct err_text *e)
{
    ASSERT(d->depth >= 1 && d->depth <= FLIGHTS);
    ASSERT(!model_has_states(d->model) || !c->drafts);
    struct engine *g = ARENA_NEW(a, struct engine, 1);
    if (!g)
        return arena_full(a, "engine", e);
    g->device = d;
    g->tokenizer = t;
    g->config = *c;
    g->budget = (struct sched_budget){.step_tokens = d->limits.step_tokens,
                                      .prefill_beside = c->prefill_beside,
                                      .tile = d->tile,
                                      .even = c->even_steps ? model_even_pos(d->model) : 0,
                                      .deep = d->deep};
    g->clock = clock;
    g->on_event = on_event;
    g->arg = arg;
    g->seqs_n = seqs_of(d, c);
    g->context = d->limits.context;
    g->room = g->context + DRAFT_GRAM;
    g->pages_a_seq = seq_pages(g->context);
    g->next_id = 1;
    g->deadline_ns = UINT64_MAX;
    if (!lay_out(g, a))
        return arena_full(a, "engine", e);
    TRY(kv_open(&g->kv, a, d->limits.pages, d->limits.checkpoints, c->prefix_cache, e));
    *out = g;
    return ERR_OK;
}

/* --- requests in ------------------------------------------------------------------------------ */

struct seq *seq_find(struct engine *g, u64 id)
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
    u32 need = seq_pages(*positions);
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

void seq_end_waiting(struct engine *g, struct seq *s, enum seq_state state)
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
    ASSERT(!r->prompt_logprobs || g->device->limits.scores);
    ASSERT(!r->embeds || (r->no_answer && !r->prompt_logprobs && !r->grammar));
    ASSERT(!r->grammar ||
           (g->config.grammars && g->tokenizer && !r->prompt_logprobs && !r->sampling.min_tokens));
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
                      .grows = r->grows && !r->no_answer,
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

/* --- steps ------------------------------------------------------------------------------------ */

bool engine_step(struct engine *g)
{
    struct err_text e = {0};
    if (g->n_flights == g->device->depth)
        return true;
    step_sweep(g);
    while (g->n_flights < g->device->depth && g->ordered && !g->failed) {
        struct flight *f = &g->flights[(g->first_flight + g->n_flights) % g->device->depth];
        if (!step_plan(g, f)) {
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

/* To the step that is left in flight and has waited for what the one before has brought. */
static void give_masks(struct engine *g)
{
    struct err_text e = {0};
    struct flight *f = &g->flights[g->first_flight];
    if (!g->n_flights || !f->late)
        return;
    step_mask(g, f);
    (void)!g->device->ops->masks(g->device, &e); /* poll reports it again */
}

enum err engine_poll(struct engine *g, bool wait, struct err_text *e)
{
    const struct step_result *results;
    u32 n;
    enum err code = ERR_OK;
    while (g->n_flights && g->device->ops->poll(g->device, wait, &results, &n, &code, e)) {
        if (code != ERR_OK) {
            step_failed(g);
            return code;
        }
        step_done(g, results, n);
        give_masks(g);
        wait = false;
    }
    step_sweep(g);
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
