/* What the next step has: whose turn it is, how many tokens of each, and what is guessed. */
#include "core/engine/foresee.h"
#include "core/engine/seq.h"

/* Where the state of a sequence is to be kept for others: where one that began alike went on
 * otherwise, as more may; and as near to its prompt's end as can be found again, as the next turn
 * begins so. Not for a few tokens more: it costs a step of its own, and somebody else's checkpoint.
 */
static void choose_checkpoints(const struct engine *g, struct seq *s, u32 seen)
{
    enum { WORTH_TOKENS = 64 };
    const u32 last = (s->n_prompt - 1) / LIMIT_PAGE_TOKENS * LIMIT_PAGE_TOKENS;
    const u32 branch = seen * LIMIT_PAGE_TOKENS;
    s->keep_at[0] = s->keep_at[1] = 0;
    if (!g->kv.n_checkpoints || !g->kv.keep)
        return;
    if (branch >= s->cached + WORTH_TOKENS)
        s->keep_at[0] = branch;
    if (last >= MAX(s->cached, s->keep_at[0]) + WORTH_TOKENS)
        s->keep_at[1] = last;
}

/* The next place at or behind position `at` where the state is to be kept, or 0. */
static u32 next_checkpoint(const struct seq *s, u32 at)
{
    return at <= s->keep_at[0] ? s->keep_at[0] : at <= s->keep_at[1] ? s->keep_at[1] : 0;
}

/* Gives the sequence a slot and its pages; false when there is no room now. Who found none is
 * looked at again when somebody has given his back, or has committed pages: those may be his
 * prefix, or there already and one of them given back. Nothing else makes room: what others take
 * meanwhile leaves no more than there was, even when it is his prefix that they hold. */
static bool admit(struct engine *g, struct seq *s)
{
    u32 slot = 0;
    if (g->blocked == s->id)
        return false;
    g->blocked = s->id;
    if (g->running == g->device->limits.slots)
        return false;
    /* The last prompt token is always computed: its logits are needed. */
    u32 reuse = s->prompt_logprobs ? 0 : s->n_prompt - 1; /* those need the logits of all */
    u32 checkpoint = KV_NO_CHECKPOINT, seen = 0, most = seq_pages(s->positions);
    u32 found = model_has_states(g->device->model)
                    ? kv_match_checkpoint(&g->kv, s->salt, s->tokens, reuse, s->pages, most,
                                          &checkpoint, &seen)
                    : kv_match(&g->kv, s->salt, s->tokens, reuse, s->pages, most);
    s->n_pages = found;
    s->starved = 0;
    if (!seq_take_pages(g, s, s->n_prompt + 1)) {
        kv_release(&g->kv, s->pages, found);
        s->n_pages = 0;
        return false;
    }
    g->holders[g->n_holders++] = s;
    while (g->slot_used[slot])
        slot++;
    g->slot_used[slot] = true;
    g->running++;
    s->slot = slot;
    s->committed = found;
    s->computed = s->planned = s->cached = found * LIMIT_PAGE_TOKENS;
    choose_checkpoints(g, s, seen);
    seq_end_waiting(g, s, SEQ_RUNNING);
    s->waited_ns = clock_now_ns(&g->clock) - s->submit_ns;
    g->stats.prompt_tokens += s->n_prompt;
    g->stats.cached_tokens += s->cached;
    g->device->ops->slot_begin(g->device, slot, s->tokens, s->n_prompt, checkpoint + 1);
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
    bool follows = s->planned >= s->n_tokens;
    bool last = follows || s->planned + n == s->n_tokens, sample = last && !s->embeds;
    bool masked = sample && s->grammar;
    u64 *masks = masked ? g->masks + f->masks * (size_t)MASK_WORDS(g->device->model->vocab) : NULL;
    if (follows)
        f->tokens[first] = 0;
    else
        memcpy(f->tokens + first, s->tokens + s->planned, n * sizeof *s->tokens);
    memcpy(f->tokens + first + n, g->guess, guessed * sizeof *g->guess);
    u32 end = s->planned + n; /* where a state is kept, nothing is guessed */
    u32 keep = next_checkpoint(s, end) == end ? kv_checkpoint_take(&g->kv) + 1 : 0;
    n += guessed;
    s->turns = s->outputs + s->pending > 0 ? s->turns + 1 : g->turns; /* as if it had been there */
    g->turns = MAX(g->turns, s->turns);
    f->rows[row] = (struct step_row){.slot = s->slot,
                                     .first = first,
                                     .n = n,
                                     .pos = s->planned,
                                     .follows = follows,
                                     .rope_long = s->salt != 0,
                                     .scores = reports(s),
                                     .next = last ? 0 : s->tokens[s->planned + n - guessed],
                                     .samples = sample ? 1 + guessed : 0,
                                     .outputs = s->outputs + s->pending,
                                     .pages = s->pages,
                                     .n_pages = s->n_pages,
                                     .pages_version = s->pages_version,
                                     .sampling = &s->sampling,
                                     .keep = keep,
                                     .masks = masks,
                                     .hidden = last && s->embeds ? hidden : NULL};
    f->seqs[row] = s;
    f->step.n_tokens += n;
    f->masks += masked ? 1 + guessed : 0;
    f->late = f->late || (masked && follows);
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

/* Tokens of a running sequence that the next step could take. */
static u32 tokens_left(const struct seq *s)
{
    u32 left = s->n_tokens + s->pending - s->planned;
    if (is_over(s) || s->guessed || (s->pending && s->waits))
        return 0;
    u32 checkpoint = next_checkpoint(s, s->planned + 1);
    if (checkpoint)
        left = MIN(left, checkpoint - s->planned);
    return reports(s) ? MIN(left, s->prompt_logprobs) : left;
}

/* May its next tokens be guessed? Not where the device counts them from step to step. */
static bool is_guessable(const struct engine *g, const struct seq *s)
{
    return g->config.drafts && s->state == SEQ_RUNNING && s->outputs && !s->guessed &&
           !is_over(s) && !sampling_counts(&s->sampling);
}

/* Of n guesses the first ones that its grammar lets through. */
static u32 fitting(const struct engine *g, const struct seq *s, u32 n)
{
    char bytes[LIMIT_TOKEN_BYTES];
    struct grammar_state at;
    grammar_copy(&at, &s->grammar_state);
    for (u32 i = 0; i < n; i++) {
        u32 length = tokenizer_bytes(g->tokenizer, g->guess[i], bytes);
        if (!grammar_read(s->grammar, &at, (struct str){bytes, length}))
            return i;
    }
    return n;
}

/* What its grammar leaves no choice about, where nothing else is known: keys and brackets, mostly.
 * Who waits for a token that is known beforehand would wait for nothing. */
static u32 guess_by_grammar(struct engine *g, const struct seq *s, u32 most)
{
    enum { SAID_TOKENS = 24 };
    char said[SAID_TOKENS * LIMIT_TOKEN_BYTES], text[FORESEE_BYTES];
    u32 ids[FORESEE_BYTES], count = 0;
    struct err_text e = {0};
    struct str so_far = {said, 0};
    for (u32 i = s->n_tokens - MIN(s->outputs, (u32)SAID_TOKENS); i < s->n_tokens; i++)
        so_far.n += tokenizer_bytes(g->tokenizer, s->tokens[i], said + so_far.n);
    u32 n = foresee(s->grammar, &s->grammar_state, foresee_blanks(so_far), text, sizeof text);
    if (!n || tokenizer_encode(g->tokenizer, (struct str){text, n}, 0, g->encode_work,
                               FORESEE_WORK_BYTES, ids, FORESEE_BYTES, &count, &e) != ERR_OK)
        return 0;
    count = MIN(count, most);
    memcpy(g->guess, ids, count * sizeof *ids);
    return count > s->pending ? count : 0;
}

/* Guesses of what follows the tokens that are known, at most so many: g->guess. */
static u32 find_guesses(struct engine *g, const struct seq *s, u32 most)
{
    struct draft *d = &g->drafts[s->slot];
    most = is_guessable(g, s) ? MIN(most, s->max_tokens - s->outputs - 1) : 0;
    most = MIN(most, s->n_pages * LIMIT_PAGE_TOKENS -
                         MIN(s->planned + 1, s->n_pages * LIMIT_PAGE_TOKENS));
    u32 n = draft_find(d, s->tokens, s->n_tokens, most, g->guess);
    if (!n && most && s->grammar && !d->rest && g->encode_work)
        n = guess_by_grammar(g, s, most);
    return n && s->grammar ? fitting(g, s, n) : n;
}

/* How many tokens may be guessed beside so many others of `rows` rows: they may fill a tile, or a
 * part of one; a step of one more token would take longer. */
static u32 guess_room(const struct engine *g, u32 tokens, u32 rows)
{
    const struct device_limits *l = &g->device->limits;
    u32 tile = g->device->tile && tokens >= g->device->tile ? g->device->tile : LIMIT_DRAFTS;
    u32 room = tile - tokens % tile;
    if (room == g->device->tile)
        return 0;
    return MIN(MIN(room, g->config.drafts), MIN(l->step_tokens - tokens, l->samples - rows));
}

/* Has the sequence guesses for the next step? If its newest token is on its way, and those before
 * have an idea of what follows, it waits: a step that knows nothing but that token would be in the
 * way of a draft. Not `worth` it: where there is next to no room for guesses, nobody waits. */
static bool has_guesses(struct engine *g, struct seq *s, bool worth)
{
    bool idea = worth && find_guesses(g, s, g->config.drafts) > 0;
    if (s->waits && !s->pending && !idea)
        draft_judge(&g->drafts[s->slot], 1, 0);
    s->waits = s->pending && idea;
    return idea && !s->pending;
}

bool step_plan(struct engine *g, struct flight *f)
{
    u32 n = 0, sharers = 0; /* who has guesses */
    const u32 rows = g->device->tile ? MIN(g->running, g->device->tile) : g->running;
    bool full = false, worth = guess_room(g, rows, rows) * 6 >= rows;
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
        bool shares = has_guesses(g, s, worth); /* before it is asked what is left: it may wait */
        u32 left = tokens_left(s);
        if (left && s->planned >= s->n_prompt && !seq_take_pages(g, s, s->planned + 1))
            left = 0; /* until others have ended */
        g->plan[n] = (struct sched_seq){.left = left,
                                        .decodes = s->outputs + s->pending > 0,
                                        .pos = s->planned,
                                        .turns = s->turns};
        g->plan_seqs[n] = s;
        n += left > 0;
        sharers += left > 0 && shares;
    }
    struct sched_budget budget = g->budget;
    if (!sharers) /* else guesses may fill a whole tile */
        memcpy(budget.part, g->device->part, sizeof budget.part);
    u32 taken = sched_plan(g->plan, n, budget, g->take);
    u32 room = guess_room(g, taken, n);
    f->step = (struct step){.rows = f->rows, .tokens = f->tokens};
    f->late = false;
    f->masks = 0;
    for (u32 i = 0; i < n; i++) {
        struct seq *s = g->plan_seqs[i];
        u32 most = sharers && g->take[i] && !s->pending ? CEIL_DIV(room, sharers) : 0;
        u32 guessed = find_guesses(g, s, most);
        room -= guessed;
        sharers -= guessed > 0;
        if (g->take[i])
            add_row(g, f, s, g->take[i], guessed);
    }
    f->step.late_masks = f->late;
    if (!f->late)
        step_mask(g, f);
    return f->step.n_rows > 0;
}
