#include "core/engine/mask.h"
#include "tests/unit/engine_fake.h"
#include "tests/unit/words.h"

static void solo_equals_batched(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    u32 hits = 0, cancelled = 0, busy = 0;
    CHECK(crowd(g, REQUESTS, fill, &busy));
    for (u32 i = 0; i < REQUESTS; i++) {
        if (!same_as_alone(&wishes[i]))
            CHECK(!"solo == batched");
        hits += wishes[i].cached > 0;
        cancelled += wishes[i].finish == FINISH_CANCELLED;
    }
    CHECK(!drafts || (fake.guesses > 50 && engine_stats(g).drafts_stayed > 20));
    CHECK(hits > REQUESTS / 4 && cancelled > 5 && busy && engine_idle(g));
    struct engine_stats s = engine_stats(g);
    CHECK(s.pages_free == PAGES && s.finished == REQUESTS && s.cancelled == cancelled);
}

void engine_solo_equals_batched(void)
{
    for (depth = 1; depth <= 2; depth++)
        solo_equals_batched();
}

/* Of models with states, which are right however prefixes are found and checkpoints are given to
 * others. */
void engine_goes_on_from_checkpoints(void)
{
    for (checkpoints = 1; checkpoints <= CHECKPOINTS; checkpoints++)
        for (depth = 1; depth <= 2; depth++) {
            struct model m;
            u32 busy = 0, hits = 0;
            struct engine *g = fresh_engine(&m);
            CHECK(crowd(g, REQUESTS, fill, &busy));
            for (u32 i = 0; i < REQUESTS; i++) {
                CHECK(same_as_alone(&wishes[i]));
                hits += wishes[i].cached > 0;
            }
            CHECK(hits == fake.taken && hits > 10 && fake.kept > 20);
            CHECK(engine_idle(g) && engine_stats(g).pages_free == PAGES);
        }
    checkpoints = 0;
}

/* Answers of a few tokens, or such as were predicted, in which much can be guessed, rightly or not:
 * nothing else changes. */
void engine_drafts_change_nothing(void)
{
    drafts = 4;
    for (words = 2; words <= 4; words++)
        engine_solo_equals_batched();
    words = VOCAB;
    engine_solo_equals_batched();
    drafts = 0;
}

/* Of its answer `likely` tokens are predicted, but every how manieth is another one. */
static void run_predicted(u32 max_tokens, u32 likely, u32 every, struct engine_stats *stats)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w;
    struct err_text e = {0};
    w = (struct wish){.n_prompt = 5, .max_tokens = max_tokens, .prompt = {1, 2, 3, 4, 5}};
    predict(&w, likely, every);
    CHECK(submit(g, &w) == ERR_OK);
    for (u32 i = 0; i < 1000 && engine_step(g); i++)
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    CHECK(engine_idle(g) && w.n_got == max_tokens && same_as_alone(&w));
    *stats = engine_stats(g);
}

static void run_one(u32 max_tokens, struct engine_stats *stats)
{
    run_predicted(max_tokens, 0, 1, stats);
}

/* What was predicted comes by several tokens a step, from its first on, and again behind what was
 * not; and also where the output has grown into the prediction. */
void engine_predictions_save_steps(void)
{
    for (depth = 1; depth <= 2; depth++) {
        struct engine_stats s;
        drafts = SLOTS - 1;
        run_predicted(150, 150, VOCAB, &s);
        CHECK(s.steps < 32 && s.drafts_stayed > 118 && s.drafts == s.drafts_stayed);
        run_predicted(150, CONTEXT, 30, &s); /* cut to what has room */
        CHECK(s.steps < 75);
        run_predicted(100, 100, 1, &s); /* nothing of it is right */
        CHECK(s.steps == 100 && s.drafts < 4);
        drafts = 0;
        run_predicted(100, 100, VOCAB, &s);
        CHECK(s.steps == 100);
    }
}

/* Who asks the same again, or something with the same answer, is answered in fewer steps. */
void engine_answers_are_recalled(void)
{
    for (depth = 1; depth <= 2; depth++) {
        struct model m;
        static struct wish w;
        struct err_text e = {0};
        u64 before = 0;
        drafts = SLOTS - 1;
        struct engine *g = fresh_engine(&m);
        for (u32 turn = 0; turn < 3; turn++) {
            w = (struct wish){.n_prompt = 5, .max_tokens = 90, .prompt = {1, 2, 3, 4, 5}};
            CHECK(submit(g, &w) == ERR_OK);
            for (u32 i = 0; i < 1000 && engine_step(g); i++)
                CHECK(engine_poll(g, true, &e) == ERR_OK);
            CHECK(engine_idle(g) && w.n_got == 90 && same_as_alone(&w));
            u64 steps = engine_stats(g).steps - before;
            CHECK(turn ? steps < 25 : steps == 90);
            before += steps;
        }
    }
    drafts = 0;
}

/* Of two who could have all guesses each has its part: they end nearly together. */
void engine_guesses_are_shared(void)
{
    for (depth = 1; depth <= 2; depth++) {
        struct model m;
        static struct wish two[2];
        struct err_text e = {0};
        u64 first = 0;
        drafts = SLOTS - 2;
        struct engine *g = fresh_engine(&m);
        for (u32 i = 0; i < 2; i++) {
            two[i] = (struct wish){.n_prompt = 5, .max_tokens = 90, .prompt = {i, 2, 3, 4, 5}};
            predict(&two[i], 90, VOCAB);
            CHECK(submit(g, &two[i]) == ERR_OK);
        }
        for (u32 i = 0; i < 1000 && engine_step(g); i++) {
            CHECK(engine_poll(g, true, &e) == ERR_OK);
            first = first || !ended ? first : engine_stats(g).steps;
        }
        CHECK(engine_idle(g) && same_as_alone(&two[0]) && same_as_alone(&two[1]));
        CHECK(first > 25 && engine_stats(g).steps < first + 5);
    }
    drafts = 0;
}

/* Many that are right: as many as fill a tile of 32 tokens, those of all rows. */
void engine_guesses_fill_a_tile(void)
{
    samples = STEP;
    for (depth = 1; depth <= 2; depth++)
        for (u32 n = 1; n <= 3; n++) {
            struct model m;
            static struct wish few[3];
            struct err_text e = {0};
            drafts = STEP - SLOTS;
            struct engine *g = fresh_engine(&m);
            for (u32 i = 0; i < n; i++) {
                few[i] = (struct wish){.n_prompt = 5, .max_tokens = 150, .prompt = {i, 2, 3, 4, 5}};
                predict(&few[i], 150, VOCAB);
                CHECK(submit(g, &few[i]) == ERR_OK);
            }
            for (u32 i = 0; i < 1000 && engine_step(g); i++)
                CHECK(engine_poll(g, true, &e) == ERR_OK);
            CHECK(engine_idle(g) && same_as_alone(&few[0]) && same_as_alone(&few[n - 1]));
            CHECK(fake.most == 32 && engine_stats(g).steps < 10 * n);
        }
    drafts = 0;
    samples = SLOTS;
}

/* What repeats itself comes by several tokens a step; what does not is hardly held up. */
void engine_drafts_save_steps(void)
{
    for (depth = 1; depth <= 2; depth++) {
        struct engine_stats s;
        drafts = SLOTS - 1;
        words = 1;
        run_one(100, &s);
        CHECK(s.steps < 30 && s.drafts_stayed > 70);
        words = VOCAB;
        run_one(100, &s);
        CHECK(s.steps == 100 && s.drafts == 0);
        words = 2; /* as good as never */
        run_one(150, &s);
        CHECK(s.steps <= 150 && s.drafts_stayed < s.drafts);
        drafts = 0;
        words = 1;
        run_one(100, &s);
        CHECK(s.steps == 100);
        words = VOCAB;
    }
}

static void refuses_what_never_fits(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    struct wish w = {.n_prompt = 0, .max_tokens = 1};
    CHECK(submit(g, &w) == ERR_REQUEST);
    w.n_prompt = CONTEXT;
    CHECK(submit(g, &w) == ERR_REQUEST);
    w.n_prompt = 100;
    w.max_tokens = 61;
    CHECK(submit(g, &w) == ERR_REQUEST);
    w.max_tokens = 60;
    CHECK(submit(g, &w) == ERR_OK);
    w.prompt[3] = VOCAB;
    CHECK(submit(g, &w) == ERR_REQUEST);
}

void engine_refuses_what_never_fits(void)
{
    for (depth = 1; depth <= 2; depth++)
        refuses_what_never_fits();
}

static void no_answer_takes_no_position(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    struct err_text e = {0};
    wishes = ARENA_NEW(&unit_arena, struct wish, 2);
    for (u32 i = 0; i < 2; i++) {
        wishes[i] = (struct wish){.n_prompt = CONTEXT, .no_answer = true, .max_tokens = 1};
        CHECK(submit(g, &wishes[i]) == ERR_OK);
    }
    for (u32 i = 0; i < 1000 && ended < 2; i++) {
        engine_step(g);
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    }
    for (u32 i = 0; i < 2; i++)
        CHECK(wishes[i].finish == FINISH_LENGTH && wishes[i].n_got == 1);
    CHECK(engine_idle(g) && engine_stats(g).pages_free == PAGES);
}

void engine_no_answer_takes_no_position(void)
{
    for (depth = 1; depth <= 2; depth++)
        no_answer_takes_no_position();
}

/* While a long prompt is read, a decoding neighbour gets a token in every step. */
static void long_prompts_do_not_stall(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish fast, slow;
    struct err_text e = {0};
    fast = (struct wish){.n_prompt = 3, .max_tokens = 40, .prompt = {1, 2, 4}};
    slow = (struct wish){.n_prompt = 120, .max_tokens = 10};
    CHECK(submit(g, &fast) == ERR_OK);
    engine_step(g);
    CHECK(engine_poll(g, true, &e) == ERR_OK && fast.n_got >= 1);
    CHECK(submit(g, &slow) == ERR_OK);
    for (u32 i = 2; fast.finish == FINISH_NONE; i++) {
        engine_step(g);
        CHECK(engine_poll(g, true, &e) == ERR_OK && fast.n_got >= i);
        CHECK(depth > 1 || fast.n_got == i);
    }
    while (engine_step(g))
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    CHECK(same_as_alone(&fast) && same_as_alone(&slow));
}

void engine_long_prompts_do_not_stall(void)
{
    for (depth = 1; depth <= 2; depth++)
        long_prompts_do_not_stall();
}

/* All slots, or all pages, are taken when somebody of a higher priority comes: who runs goes on,
 * and he is the next. */
static void priority_waits_before_those_who_run(u32 running, u32 n_prompt, u32 max_tokens)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[SLOTS + 2];
    struct err_text e = {0};
    u32 patient = running, urgent = running + 1;
    for (u32 i = 0; i <= urgent; i++) {
        w[i] = (struct wish){.n_prompt = n_prompt, .max_tokens = max_tokens + i};
        w[i].priority = i == urgent ? 5 : i == 0 ? -5 : 0;
        w[i].prompt[0] = 100 + i;
        CHECK(submit(g, &w[i]) == ERR_OK);
        if (i + 1 == running)
            CHECK(engine_step(g) && engine_poll(g, true, &e) == ERR_OK);
    }
    CHECK(engine_stats(g).running == running);
    for (u32 i = 0; i < 1000 && engine_step(g); i++)
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    CHECK(engine_idle(g) && w[patient].place > w[urgent].place);
    for (u32 i = 0; i <= urgent; i++)
        CHECK(same_as_alone(&w[i]));
}

void engine_priority_waits_before_those_who_run(void)
{
    for (depth = 1; depth <= 2; depth++) {
        priority_waits_before_those_who_run(SLOTS, 5, 20);
        priority_waits_before_those_who_run(4, 100, 51); /* PAGES */
    }
}

/* All pages are taken. Who waits for some is not looked for in the cache step by step, and has them
 * as soon as somebody ends, or as two who read the same prompt have become one. */
static void blocked_until_there_can_be_room(bool same_prompts)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[5];
    struct err_text e = {0};
    for (u32 i = 0; i < COUNTOF(w); i++) {
        w[i] = (struct wish){.n_prompt = 100, .max_tokens = 51 + i};
        w[i].prompt[0] = same_prompts ? 3 : 3 + i;
        CHECK(submit(g, &w[i]) == ERR_OK);
    }
    CHECK(!engine_stats(g).blocked && engine_step(g));
    CHECK(engine_stats(g).running == 4 && engine_stats(g).blocked);
    u64 lookups = engine_stats(g).kv_lookups;
    while (engine_stats(g).waiting && engine_step(g))
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    u64 steps = engine_stats(g).steps;
    u64 looks = (engine_stats(g).kv_lookups - lookups) / (99 / LIMIT_PAGE_TOKENS);
    CHECK(!engine_stats(g).blocked && ended == !same_prompts && w[4].place == 0);
    CHECK(same_prompts || (steps > 51 && looks > 1 && looks < steps / 2));
    while (engine_step(g))
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    for (u32 i = 0; i < COUNTOF(w); i++)
        CHECK(same_as_alone(&w[i]));
}

void engine_blocked_until_there_can_be_room(void)
{
    for (depth = 1; depth <= 2; depth++) {
        blocked_until_there_can_be_room(false);
        blocked_until_there_can_be_room(true);
    }
}

/* Tokens wait until their prompt has a slot, however long it takes to read; those of a prompt that
 * is shared wait once. */
static void waiting_tokens_are_those_without_a_slot(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[SLOTS + 3];
    struct err_text e = {0};
    for (u32 i = 0; i < COUNTOF(w); i++) {
        w[i] = (struct wish){.n_prompt = 80, .max_tokens = 1};
        w[i].after = i == 0 || i == COUNTOF(w) - 1 ? 0 : w[0].id;
        CHECK(submit(g, &w[i]) == ERR_OK);
    }
    CHECK(engine_stats(g).waiting_tokens == 2 * 80 && engine_stats(g).waiting == SLOTS + 3);
    CHECK(engine_step(g) && w[0].n_got == 0); /* the first and the last have slots */
    CHECK(engine_stats(g).waiting_tokens == 0 && engine_stats(g).waiting == SLOTS + 1);
    CHECK(submit(g, &w[0]) == ERR_OK && engine_stats(g).waiting_tokens == 80);
    engine_cancel(g, w[0].id);
    for (u32 i = 0; i < 1000 && engine_step(g); i++)
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    CHECK(engine_stats(g).waiting_tokens == 0 && engine_stats(g).waiting == 0);
}

void engine_waiting_tokens_are_those_without_a_slot(void)
{
    for (depth = 1; depth <= 2; depth++)
        waiting_tokens_are_those_without_a_slot();
}

static enum err poll_at(struct engine *g, u64 now_ns)
{
    struct err_text e = {0};
    fake.now_ns = now_ns;
    return engine_poll(g, false, &e);
}

/* One that waits for a slot ends when its time is over, though a step is in flight; one that is in
 * the step ends with it. The engine says when to come. */
static void deadlines_are_kept(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[SLOTS + 2];
    CHECK(engine_next_ns(g) == UINT64_MAX);
    for (u32 i = 0; i < COUNTOF(w); i++) {
        w[i] = (struct wish){.n_prompt = 5, .max_tokens = 50};
        w[i].deadline_ns = i == 0 ? 700 : i >= SLOTS ? 900 - 100 * (i - SLOTS) : 0;
        CHECK(submit(g, &w[i]) == ERR_OK);
    }
    CHECK(engine_next_ns(g) == 700 && engine_step(g));
    fake.flights[0].delay = fake.flights[1].delay = 3;
    CHECK(poll_at(g, 699) == ERR_OK && ended == 0 && engine_next_ns(g) == 700);
    fake.device.look_ns = 650;
    CHECK(engine_next_ns(g) == 650);
    fake.device.look_ns = 0;
    CHECK(poll_at(g, 700) == ERR_OK && ended == 0 && engine_next_ns(g) == 800);
    CHECK(poll_at(g, 800) == ERR_OK && ended == 1 && engine_next_ns(g) == 900);
    CHECK(w[SLOTS + 1].finish == FINISH_DEADLINE);
    while (w[0].finish == FINISH_NONE)
        CHECK(poll_at(g, 850) == ERR_OK);
    CHECK(w[0].finish == FINISH_DEADLINE && engine_next_ns(g) == 900);
    while (!engine_idle(g)) {
        engine_step(g);
        CHECK(poll_at(g, 850) == ERR_OK);
    }
    CHECK(engine_next_ns(g) == UINT64_MAX && same_as_alone(&w[SLOTS]));
}

void engine_deadlines_are_kept(void)
{
    for (depth = 1; depth <= 2; depth++)
        deadlines_are_kept();
}

/* Between two steps the last in order is late; who hears of it cancels the first. */
static void may_cancel_at_an_end(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    wishes = ARENA_NEW(&unit_arena, struct wish, 2);
    for (u32 i = 0; i < 2; i++) {
        wishes[i] = (struct wish){.n_prompt = 5, .max_tokens = 50, .deadline_ns = 700 * i};
        CHECK(submit(g, &wishes[i]) == ERR_OK);
    }
    cancels_others = g;
    fake.now_ns = 700;
    CHECK(!engine_step(g) && engine_idle(g));
    cancels_others = NULL;
    CHECK(wishes[0].finish == FINISH_CANCELLED && wishes[1].finish == FINISH_DEADLINE);
}

void engine_may_cancel_at_an_end(void)
{
    for (depth = 1; depth <= 2; depth++)
        may_cancel_at_an_end();
}

/* Cancelled while two steps are in flight: of the last one, which fills a page, nobody knows what
 * token it took. Nobody else finds that page. */
void engine_cancelled_pages_are_not_found(void)
{
    struct model m;
    static struct wish gone, next;
    struct err_text e = {0};
    depth = 2;
    struct engine *g = fresh_engine(&m);
    gone = (struct wish){.n_prompt = LIMIT_PAGE_TOKENS - 2, .max_tokens = 50};
    CHECK(submit(g, &gone) == ERR_OK);
    CHECK(engine_step(g) && engine_poll(g, true, &e) == ERR_OK && gone.n_got == 1);
    CHECK(engine_step(g));
    engine_cancel(g, gone.id);
    while (!engine_idle(g))
        CHECK(engine_poll(g, true, &e) == ERR_OK && gone.n_got == 1);
    CHECK(gone.finish == FINISH_CANCELLED && fake.polled == 3);
    next = (struct wish){.n_prompt = LIMIT_PAGE_TOKENS + 1, .max_tokens = 5};
    next.prompt[LIMIT_PAGE_TOKENS - 2] = gone.got[0]; /* and 0, as is what was never told */
    CHECK(submit(g, &next) == ERR_OK);
    while (engine_step(g))
        CHECK(engine_poll(g, true, &e) == ERR_OK);
    CHECK(next.cached == 0 && same_as_alone(&next));
}

static void device_failure_ends_everybody(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[9];
    struct err_text e = {0};
    for (u32 i = 0; i < COUNTOF(w); i++) {
        w[i] = (struct wish){.n_prompt = 20, .max_tokens = 50};
        CHECK(submit(g, &w[i]) == ERR_OK);
    }
    fake.fail_at = 5;
    enum err r = ERR_OK;
    while (r == ERR_OK && engine_step(g))
        r = engine_poll(g, true, &e);
    CHECK(r == ERR_DEVICE && ended == COUNTOF(w) && engine_idle(g));
    for (u32 i = 0; i < COUNTOF(w); i++)
        CHECK(w[i].finish == FINISH_ERROR);
    CHECK(submit(g, &w[0]) == ERR_DEVICE && !engine_step(g));
    CHECK(engine_stats(g).pages_free == PAGES);
}

void engine_device_failure_ends_everybody(void)
{
    for (depth = 1; depth <= 2; depth++)
        device_failure_ends_everybody();
}

/* Six that may need ten pages each of forty that there are: all begin, who came first has what it
 * needs, and others wait for him where they must. Of those who say how long they get four begin. */
static void grown_answers_share_pages(bool grows)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    static struct wish w[SLOTS];
    struct err_text e = {0};
    u32 most = 0;
    for (u32 i = 0; i < SLOTS; i++) {
        w[i] = (struct wish){.n_prompt = 5, .max_tokens = 155, .prompt = {i, 2, 3}, .grows = grows};
        CHECK(submit(g, &w[i]) == ERR_OK);
    }
    for (u32 i = 0; i < 4000 && engine_step(g); i++) {
        CHECK(engine_poll(g, true, &e) == ERR_OK);
        most = MAX(most, engine_stats(g).running);
    }
    CHECK(engine_idle(g) && most == (grows ? SLOTS : 4));
    for (u32 i = 0; i < SLOTS; i++)
        CHECK(same_as_alone(&w[i]) && (w[i].finish != FINISH_LENGTH || w[i].n_got == 155));
    CHECK(engine_stats(g).pages_free == PAGES);
}

void engine_grown_answers_share_pages(void)
{
    for (depth = 1; depth <= 2; depth++) {
        grown_answers_share_pages(false);
        grown_answers_share_pages(true);
    }
}

/* --- grammars --------------------------------------------------------------------------------- */

enum { FORMS = 3, ANSWERS = 120 };
static struct grammar forms[FORMS];
static struct masker masker;

static bool make_forms(void)
{
    static const char *const schemas[FORMS] = {
        "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}",
        "{\"items\": {\"maxLength\": 5, \"type\": \"string\"}, \"type\": \"array\"}",
        "{\"type\": \"object\", \"required\": [\"b\", \"ab\"], \"properties\": "
        "{\"b\": {\"type\": \"string\"}, \"ab\": {\"enum\": [12, \"ab\"]}}}"};
    for (u32 i = 0; i < FORMS; i++) {
        const struct json *v = NULL;
        struct err_text e = {0};
        if (json_parse(&unit_arena, str_of(schemas[i]), "s", ERR_REQUEST, &v, &e) != ERR_OK ||
            grammar_compile(&forms[i], v, &e) != ERR_OK)
            return false;
    }
    return true;
}

/* Whether it got what one after another would give, each token of those that fit. */
static bool fits_as_alone(const struct wish *w)
{
    static const struct sampling sampling = {.n_stop = 1, .stop = {7}};
    u64 bits[MASK_WORDS(WORDS)];
    u32 all[CONTEXT], n = w->n_prompt, outputs = 0;
    struct grammar_state at;
    bool ends = false;
    grammar_begin(w->grammar, &at);
    memcpy(all, w->prompt, n * sizeof *all);
    for (; !ends && outputs < w->max_tokens; outputs++, n++) {
        if (!mask_put(&masker, w->grammar, &at, &sampling, bits))
            break;
        all[n] = masked_reference(all, n, bits);
        if (outputs == w->n_got)
            return w->finish == FINISH_CANCELLED;
        if (w->got[outputs] != all[n])
            return false;
        ends = all[n] == 7;
        for (const char *p = all_words[all[n]]; !ends && *p; p++)
            if (!grammar_step(w->grammar, &at, (u8)*p))
                return false;
        ends = ends || grammar_closed(&at);
    }
    return w->n_got == outputs &&
           (w->finish == FINISH_CANCELLED || w->finish == (ends ? FINISH_STOP : FINISH_LENGTH));
}

static void fill_form(struct wish *w, u32 i)
{
    random_state = 2654435761u * (i + 1);
    *w = (struct wish){.n_prompt = 1 + draw() % 40, .max_tokens = 1 + draw() % 60};
    for (u32 k = 0; k < w->n_prompt; k++)
        w->prompt[k] = k < 20 ? k % words : draw() % words;
    w->grammar = i % (FORMS + 1) ? &forms[i % (FORMS + 1) - 1] : NULL;
}

static void answers_fit(void)
{
    struct model m;
    struct engine *g = fresh_engine(&m);
    u32 whole = 0, busy = 0;
    CHECK(crowd(g, ANSWERS, fill_form, &busy));
    for (u32 i = 0; i < ANSWERS; i++) {
        const struct wish *w = &wishes[i];
        if (!(w->grammar ? fits_as_alone(w) : same_as_alone(w)))
            CHECK(!"fits, as alone");
        whole += w->grammar && w->finish == FINISH_STOP;
    }
    CHECK(whole > ANSWERS / 4 && (depth == 1 || fake.late > 50));
    CHECK(!drafts || (fake.guesses > 20 && engine_stats(g).drafts_stayed > 10));
    CHECK(engine_stats(g).pages_free == PAGES);
}

/* Answers of a given form beside others: of all that is sampled what fits, though it is not known
 * before the step is on its way. */
void engine_answers_fit(void)
{
    speaks = words_tokenizer(&unit_arena, all_words, WORDS);
    words = WORDS;
    CHECK(speaks && make_forms() && mask_lay_out(&masker, &unit_arena, speaks, words, 4));
    for (drafts = 0; drafts <= 4; drafts += 4)
        for (depth = 1; depth <= 2; depth++) {
            samples = SLOTS + drafts;
            answers_fit();
        }
    samples = SLOTS;
    drafts = 0;
    words = VOCAB;
    speaks = NULL;
}
