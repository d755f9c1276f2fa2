/* What has come of a step: tokens and texts, ends, pages that others may find. */
#include "core/engine/seq.h"

#include "core/engine/embed.h"
#include "core/engine/sample.h"

/* --- sequences out ------------------------------------------------------------------------- */

/* An ended sequence keeps its slot, pages and memory until no step in flight reads them. */
static void retire(struct engine *g, struct seq *s)
{
    if (s->in_flight)
        return;
    if (s->n_pages) {
        u32 at = 0;
        kv_release(&g->kv, s->pages, s->n_pages);
        while (g->holders[at] != s)
            at++;
        g->n_holders--;
        memmove(&g->holders[at], &g->holders[at + 1], (g->n_holders - at) * sizeof *g->holders);
        g->slot_used[s->slot] = false;
        g->running--;
        seq_pages_released(g);
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
    seq_end_waiting(g, s, SEQ_ENDED);
    retire(g, s);
}

/* For guesses of what others will be told, with what stood before it. */
static void remember(struct engine *g, const struct seq *s)
{
    u32 before = MIN(s->n_prompt, RECALL_GRAM - 1u);
    if (g->config.drafts && s->outputs)
        recall_add(&g->recall, s->tokens + s->n_prompt - before, before + s->outputs);
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
        remember(g, s);
        leave(g, s);
    }
    g->on_event(g->arg, &event);
}

/* Moves its grammar by a token that fits; false: nothing may follow. */
static bool grammar_goes_on(struct engine *g, struct seq *s, u32 token)
{
    seq_read(g, s, &s->grammar_state, token);
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
void step_sweep(struct engine *g)
{
    do
        sweep_once(g);
    while (g->cancels);
}

/* --- what a step brings ---------------------------------------------------------------------- */

/* Logprobs of the prompt tokens that follow those of the row. */
static void report_prompt(struct engine *g, struct seq *s, const struct step_row *row,
                          const struct step_result *results)
{
    for (u32 i = 0; i < step_row_scores(row); i++) {
        struct event event = {.id = s->id,
                              .user = s->user,
                              .has_prompt_token = true,
                              .prompt_at = row->pos + i + 1,
                              .result = &results[i],
                              .prompt_tokens = s->n_prompt,
                              .waited_ns = s->waited_ns};
        g->on_event(g->arg, &event);
    }
}

/* The last tokens of a row that were guesses, and how many of them were right. */
struct guesses {
    const u32 *tokens;
    u32 n, stayed, slot;
};

/* Those that are what was sampled are about to be put out. The others are forgotten, and their
 * positions computed again. */
static struct guesses settle_guesses(struct seq *s, const struct flight *f,
                                     const struct step_row *row, const struct step_result *results)
{
    struct guesses q = {.n = s->guessed, .slot = s->slot};
    q.tokens = f->tokens + row->first + row->n - q.n;
    while (row->samples && q.stayed < q.n && results[q.stayed].token == q.tokens[q.stayed])
        q.stayed++;
    memcpy(s->tokens + s->n_tokens, q.tokens, q.stayed * sizeof *q.tokens);
    s->guessed = 0;
    s->planned -= q.n - q.stayed;
    s->computed += row->n - (q.n - q.stayed);
    return q;
}

static void judge_guesses(struct engine *g, const struct guesses *q)
{
    if (q->n)
        draft_judge(&g->drafts[q->slot], q->n, q->stayed);
    else if (g->config.drafts)
        draft_pass(&g->drafts[q->slot]);
    g->stats.drafts += q->n;
    g->stats.drafts_stayed += q->stayed;
}

/* The state behind the row is there: a prefix can be found by it from now on. */
static void checkpoint_done(struct engine *g, const struct seq *s, const struct step_row *row)
{
    const u32 pages = (row->pos + row->n) / LIMIT_PAGE_TOKENS;
    const bool there = s->state != SEQ_ENDED && s->committed >= pages;
    if (row->keep)
        kv_checkpoint_give(&g->kv, row->keep - 1, there ? s->pages[pages - 1] : KV_NO_PAGE);
}

/* The step is done: its positions are in the cache, full pages can be found by others. Behind the
 * known tokens of the sequence stand so many that it is about to put out. */
static void row_done(struct engine *g, struct seq *s, const struct step_row *row,
                     const struct step_result *scores, u32 stayed)
{
    s->in_flight--;
    s->pending -= row->samples || row->hidden;
    if (s->state == SEQ_ENDED) {
        checkpoint_done(g, s, row);
        retire(g, s);
        return;
    }
    if (!s->cancelled)
        report_prompt(g, s, row, scores);
    /* Of one who was cancelled the token that a follower computed may not be known. */
    u32 known = MIN(s->computed, s->n_tokens + stayed);
    while ((s->committed + 1) * LIMIT_PAGE_TOKENS <= known) {
        u32 i = s->committed++, page = s->pages[i];
        s->pages[i] = kv_commit(&g->kv, page, i ? s->pages[i - 1] : KV_NO_PAGE, s->salt,
                                s->tokens + i * LIMIT_PAGE_TOKENS);
        seq_pages_released(g);
        s->pages_version += s->pages[i] != page;
    }
    checkpoint_done(g, s, row);
}

void step_failed(struct engine *g)
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

static void nothing_fits(struct engine *g, struct seq *s)
{
    bool complete = grammar_complete(s->grammar, &s->grammar_state);
    text_left(g, s, complete ? FINISH_STOP : FINISH_LENGTH);
}

void step_done(struct engine *g, const struct step_result *results, u32 n)
{
    const struct flight *f = &g->flights[g->first_flight];
    u32 next = 0;
    g->first_flight = (g->first_flight + 1) % g->device->depth;
    g->n_flights--;
    for (u32 i = 0; i < f->step.n_rows; i++) {
        struct seq *s = f->seqs[i];
        const struct step_row *row = &f->rows[i];
        const struct step_result *scores = results + next, *of_row = scores + step_row_scores(row);
        next += step_row_scores(row) + row->samples;
        ASSERT(next <= n && (!row->samples || of_row->slot == row->slot));
        bool goes_on = s->state == SEQ_RUNNING && !s->cancelled;
        struct guesses q = settle_guesses(s, f, row, of_row);
        row_done(g, s, row, scores, q.stayed);
        if (row->samples)
            judge_guesses(g, &q);
        if (row->hidden && goes_on)
            deliver(g, s, NULL, embed_norm(g->device->model, row->hidden), (struct str){0},
                    FINISH_STOP);
        for (u32 k = 0; k < MIN(row->samples, q.stayed + 1) && goes_on; k++) {
            if (k < f->fitting[i])
                token_out(g, s, &of_row[k]);
            else
                nothing_fits(g, s);
            goes_on = s->state == SEQ_RUNNING && !s->cancelled;
        }
    }
}
