#include "tests/unit/engine_fake.h"

#include "core/engine/embed.h"

struct fake fake;
u32 depth;                      /* of the device: every test runs with 1 and 2 */
u32 words = VOCAB, drafts;      /* tokens that it says; engine_config.drafts */
const struct tokenizer *speaks; /* their texts, in tests of grammars */
u32 samples = SLOTS, checkpoints;

struct wish *wishes;
u32 ended;
struct engine *cancels_others; /* who ends takes the first of `wishes` along */

static u32 mix(u32 h, u32 token)
{
    return (h ^ token) * 0x01000193u;
}

static u32 reference(const u32 *tokens, u32 n)
{
    u32 h = 0x811c9dc5u;
    for (u32 i = 0; i < n; i++)
        h = mix(h, tokens[i]);
    return (h ^ h >> 15) % words;
}

/* The same of those that may come: the next one that does. */
u32 masked_reference(const u32 *tokens, u32 n, const u64 *mask)
{
    u32 token = reference(tokens, n);
    while (mask && !(mask[token / 64] >> token % 64 & 1))
        token = (token + 1) % words;
    return token;
}

/* What a text is embedded as, before the final norm. */
static void reference_hidden(const u32 *tokens, u32 n, float *out)
{
    for (u32 i = 0; i < HIDDEN; i++)
        out[i] = (float)reference(tokens, n) + (float)i + 1;
}

static void known_tokens(const struct step_row *row, u32 *all, u32 n)
{
    for (u32 p = 0; p < n; p++)
        all[p] = fake.page_tokens[row->pages[p / LIMIT_PAGE_TOKENS]][p % LIMIT_PAGE_TOKENS];
}

static void fake_slot_begin(struct device *d, u32 slot, const u32 *prompt, u32 n, u32 checkpoint)
{
    (void)prompt;
    ASSERT(checkpoint <= d->limits.checkpoints);
    fake.slot_state[slot] = checkpoint ? fake.kept_state[checkpoint - 1] : (struct fake_state){0};
    fake.taken += checkpoint > 0;
    fake.slot_prompt[slot] = n;
}

static void fake_sample(struct fake_flight *f, const struct step *s)
{
    for (u32 r = 0; r < s->n_rows; r++) {
        const struct step_row *row = &s->rows[r];
        for (u32 i = 0; i < row->samples; i++) {
            u32 all[CONTEXT], n = row->pos + row->n - row->samples + 1 + i;
            const u64 *mask = row->masks ? row->masks + i * MASK_WORDS(words) : NULL;
            ASSERT(n == fake.slot_prompt[row->slot] + row->outputs + i);
            known_tokens(row, all, n);
            fake.slot_last[row->slot] = masked_reference(all, n, mask);
            f->results[f->n_results++] =
                (struct step_result){.slot = row->slot, .token = fake.slot_last[row->slot]};
        }
    }
}

static enum err fake_masks(struct device *d, struct err_text *e)
{
    (void)d, (void)e;
    struct fake_flight *f = &fake.flights[(fake.submitted - 1) % depth];
    ASSERT(f->step && fake.submitted - fake.polled == 1);
    fake_sample(f, f->step);
    f->step = NULL;
    return ERR_OK;
}

/* A state that is of other tokens than those in front of the row would have told other answers. */
static void fake_go_on(const struct step_row *row)
{
    u32 all[CONTEXT], end = row->pos + row->n;
    struct fake_state *s = &fake.slot_state[row->slot], fresh = {0, 0};
    known_tokens(row, all, end);
    for (; fresh.n < row->pos; fresh.n++)
        fresh.hash = mix(fresh.hash, all[fresh.n]);
    ASSERT(s->n == fresh.n && s->hash == fresh.hash && row->samples <= 1);
    for (; s->n < end; s->n++)
        s->hash = mix(s->hash, all[s->n]);
    if (row->keep)
        fake.kept_state[row->keep - 1] = *s;
    fake.kept += row->keep > 0;
}

static enum err fake_submit(struct device *d, const struct step *s, struct err_text *e)
{
    (void)d, (void)e;
    ASSERT(fake.submitted == fake.polled || !fake.flights[(fake.submitted - 1) % depth].step);
    ASSERT(fake.submitted - fake.polled < depth && s->n_tokens <= STEP && s->n_rows <= SLOTS);
    struct fake_flight *f = &fake.flights[fake.submitted % depth];
    f->n_results = 0;
    f->delay = fake.submitted++ % 3;
    for (u32 r = 0; r < s->n_rows; r++) {
        const struct step_row *row = &s->rows[r];
        ASSERT(!row->follows || (depth > 1 && row->n == 1 && row->samples));
        for (u32 i = 0; i < row->n; i++) {
            u32 p = row->pos + i;
            fake.page_tokens[row->pages[p / LIMIT_PAGE_TOKENS]][p % LIMIT_PAGE_TOKENS] =
                row->follows ? fake.slot_last[row->slot] : s->tokens[row->first + i];
        }
        if (model_has_states(fake.device.model))
            fake_go_on(row);
        fake.guesses += row->samples > 1;
        if (row->samples > 1)
            fake.most = MAX(fake.most, s->n_tokens);
        if (row->hidden) {
            u32 all[CONTEXT], n = row->pos + row->n;
            ASSERT(n == fake.slot_prompt[row->slot] && row->samples == 0);
            known_tokens(row, all, n);
            reference_hidden(all, n, row->hidden);
        }
    }
    f->step = s->late_masks ? s : NULL;
    fake.late += s->late_masks;
    if (!s->late_masks)
        fake_sample(f, s);
    return ERR_OK;
}

static int fake_poll(struct device *d, bool wait, const struct step_result **out, u32 *n,
                     enum err *code, struct err_text *e)
{
    (void)d;
    struct fake_flight *f = &fake.flights[fake.polled % depth];
    ASSERT(fake.polled < fake.submitted);
    if (f->step) /* what waits for masks is not done, however long one waits */
        return 0;
    if (!wait && f->delay-- > 0)
        return 0;
    *out = f->results;
    *n = f->n_results;
    fake.polled++;
    if (fake.fail_at && fake.submitted >= fake.fail_at)
        *code = err_set(e, ERR_DEVICE, "planned failure");
    return 1;
}

static const struct device_ops fake_ops = {.name = "fake",
                                           .slot_begin = fake_slot_begin,
                                           .submit = fake_submit,
                                           .masks = fake_masks,
                                           .poll = fake_poll};

static void on_event(void *arg, const struct event *event)
{
    (void)arg;
    struct wish *w = event->user;
    if (event->has_token)
        w->got[w->n_got++] = event->result->token;
    if (event->embedding)
        memcpy(w->vector, event->embedding, sizeof w->vector);
    w->finish = event->finish;
    w->cached = event->cached_tokens;
    if (event->finish != FINISH_NONE)
        w->place = ++ended;
    if (event->finish != FINISH_NONE && cancels_others)
        engine_cancel(cancels_others, wishes[0].id);
}

static u64 fake_now(void *arg)
{
    (void)arg;
    return fake.now_ns;
}

struct engine *fresh_engine(struct model *m)
{
    struct engine *g = NULL;
    struct err_text e = {0};
    struct engine_config c = {
        .queue = QUEUE, .prefill_beside = 8, .prefix_cache = true, .drafts = drafts};
    c.grammars = speaks != NULL;
    static const float ones[HIDDEN] = {1, 1, 1};
    static const struct tensor norm = {.data = ones, .type = DTYPE_F32};
    *m = (struct model){.vocab = words < VOCAB && speaks ? words : VOCAB,
                        .hidden = HIDDEN,
                        .norm_final = &norm,
                        .delta = {.value_heads = checkpoints > 0},
                        .n_eos = 1,
                        .eos = {7}};
    memset(&fake, 0, sizeof fake);
    fake.device = (struct device){.ops = &fake_ops,
                                  .model = m,
                                  .limits = {.slots = SLOTS,
                                             .samples = samples,
                                             .pages = PAGES,
                                             .step_tokens = STEP,
                                             .checkpoints = checkpoints,
                                             .context = CONTEXT,
                                             .context_by = "t"},
                                  .depth = depth};
    struct clock clock = {.now_ns = fake_now};
    if (engine_open(&unit_arena, &fake.device, speaks, &c, clock, on_event, NULL, &g, &e))
        unit_failed(__FILE__, __LINE__, e.text);
    ended = 0;
    return g;
}

enum err submit(struct engine *g, struct wish *w)
{
    struct err_text e = {0};
    struct request r = {.prompt = w->prompt,
                        .n_prompt = w->n_prompt,
                        .max_tokens = w->max_tokens,
                        .likely = w->likely,
                        .n_likely = w->n_likely,
                        .sampling = {.repetition_penalty = 1},
                        .priority = w->priority,
                        .no_answer = w->no_answer || w->embeds,
                        .grows = w->grows,
                        .embeds = w->embeds,
                        .deadline_ns = w->deadline_ns,
                        .after = w->after,
                        .grammar = w->grammar,
                        .user = w};
    return engine_submit(g, &r, &w->id, &e);
}

/* What this request gives when nothing else runs. */
bool same_as_alone(const struct wish *w)
{
    u32 all[CONTEXT], n = w->n_prompt;
    if (w->embeds) {
        float vector[HIDDEN] = {0};
        if (w->finish != FINISH_CANCELLED) {
            reference_hidden(w->prompt, n, vector);
            embed_norm(fake.device.model, vector);
        }
        return w->n_got == 0 && (w->finish == FINISH_STOP || w->finish == FINISH_CANCELLED) &&
               memcmp(w->vector, vector, sizeof vector) == 0;
    }
    memcpy(all, w->prompt, n * sizeof *all);
    for (u32 i = 0; i < w->n_got; i++) {
        if (reference(all, n) != w->got[i])
            return false;
        all[n++] = w->got[i];
    }
    if (w->finish == FINISH_STOP)
        return w->got[w->n_got - 1] == 7;
    return w->finish == FINISH_CANCELLED ||
           (w->finish == FINISH_LENGTH && w->n_got == w->max_tokens);
}

u32 random_state;

u32 draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state >> 3;
}

/* So many tokens of what it will get, but every how manieth is another one. */
void predict(struct wish *w, u32 n, u32 every)
{
    u32 all[2 * CONTEXT];
    memcpy(all, w->prompt, w->n_prompt * sizeof *all);
    for (u32 i = 0; i < n; i++) {
        all[w->n_prompt + i] = reference(all, w->n_prompt + i);
        w->likely[i] = (i + 1) % every ? all[w->n_prompt + i] : (i + every) % VOCAB;
    }
    w->n_likely = n;
}

void fill(struct wish *w, u32 seed)
{
    random_state = 2654435761u * (seed + 1);
    *w = (struct wish){.n_prompt = 1 + draw() % 90, .max_tokens = 1 + draw() % 60};
    for (u32 i = 0; i < w->n_prompt; i++) /* few different beginnings: prefixes are shared */
        w->prompt[i] = i < 64 ? (seed % 3) * 100 + i : draw() % VOCAB;
    if (draw() % 2) /* which the longest output grows into */
        predict(w, draw() % CONTEXT, 1 + draw() % 50);
    w->embeds = draw() % 4 == 0;
    w->grows = draw() % 2;
}

/* So many requests, one after another and beside each other, some of which are cancelled. False:
 * something is refused, or goes on for ever. */
bool crowd(struct engine *g, u32 n, void (*make)(struct wish *w, u32 i), u32 *busy)
{
    struct err_text e = {0};
    u32 sent = 0;
    wishes = ARENA_NEW(&unit_arena, struct wish, n);
    for (u32 round = 0; ended < n && round < 100000; round++) {
        bool lull =
            drafts && round % 400 > 50 && engine_stats(g).running > 2; /* room for guesses */
        if (sent < n && round % 3 != 1 && !lull) {
            make(&wishes[sent], sent);
            struct engine_stats s = engine_stats(g);
            enum err r = submit(g, &wishes[sent]);
            if (r != (s.waiting + s.running < SLOTS + QUEUE ? ERR_OK : ERR_BUSY))
                return false;
            *busy += r == ERR_BUSY;
            sent += r == ERR_OK;
        }
        if (round % 37 == 5 && sent > 4)
            engine_cancel(g, wishes[sent - 3].id);
        engine_step(g);
        if (engine_poll(g, round % 5 == 0, &e) != ERR_OK)
            return false;
    }
    return ended == n;
}
