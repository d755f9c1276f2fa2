/* OP_SAMPLE against core/engine/sample.c on random logits and random settings, several rows a step.
 * The noise and the sums are computed differently (see sample.cuh), so a few tokens in a million
 * may differ; what is allowed here is less than one in 2000, what was seen is printed. Then the
 * bits of a row alone, beside others and by other numbers of blocks.
 *
 *   sample_test [--gpu IMAGE [ROUNDS]]
 *   sample_test --gpu IMAGE --bench      microseconds of real shapes instead */
#include "tests/cuda/harness.h"
#include "tests/cuda/sample_reference.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

enum { OPS = 20, SLOTS = 9, VOCAB_MAX = 9002, RANDOM_ROWS = 6, RANDOM_VOCAB = 3001 };
enum { MASK_WORDS = CEIL_DIV(VOCAB_MAX, 64) };

static u64 random_state = 1;

static u32 random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (u32)(random_state >> 33) ^ (u32)(random_state >> 20);
}

static float uniform(void)
{
    return (float)(random_u32() >> 8) * 0x1p-24f;
}

static u32 one_in(u32 n)
{
    return random_u32() % n == 0;
}

static void random_logits(float *z, u32 n)
{
    float width = one_in(4) ? 0.01f : one_in(3) ? 30 : 6;
    u32 kind = random_u32() % 6;
    for (u32 i = 0; i < n; i++) {
        z[i] = (uniform() + uniform() - 1) * width;
        if (kind == 0)
            z[i] = floorf(z[i]); /* ties */
        if (kind == 1 && one_in(10))
            z[i] = -INFINITY;
    }
    if (kind == 2)
        z[random_u32() % n] = width + 20;
    if (kind == 3 && one_in(20))
        for (u32 i = 0; i < n; i++)
            z[i] = 0;
}

static void random_sampling(struct gpu_sampling *s, u32 vocab)
{
    memset(s, 0, sizeof *s);
    s->temperature = one_in(4) ? 0 : one_in(3) ? 1 : 0.1f + 2 * uniform();
    s->top_p = one_in(2) ? 1 : uniform();
    s->min_p = one_in(3) ? uniform() * 0.3f : 0;
    s->typical_p = one_in(3) ? uniform() : 1;
    s->top_k = one_in(2) ? 0 : 1 + random_u32() % (one_in(2) ? 10 : vocab + 10);
    s->repetition_penalty = one_in(3) ? 0.5f + uniform() : 1;
    s->presence_penalty = one_in(3) ? 4 * uniform() - 2 : 0;
    s->frequency_penalty = one_in(3) ? 4 * uniform() - 2 : 0;
    s->seed[0] = random_u32();
    s->seed[1] = random_u32();
    s->min_tokens = one_in(3) ? 5 : 0;
    s->n_stop = random_u32() % 4;
    for (u32 i = 0; i < s->n_stop; i++)
        s->stop[i] = random_u32() % (vocab + 3);
    s->n_bias = one_in(3) ? random_u32() % 20 : 0;
    for (u32 i = 0; i < s->n_bias; i++) {
        s->bias_id[i] = random_u32() % MIN(vocab, 30u);
        s->bias[i] = 20 * uniform() - 10;
    }
    s->logprobs = one_in(2);
    s->top_logprobs = s->logprobs ? random_u32() % (LIMIT_LOGPROBS + 1) : 0;
}

struct side { /* what the host has of a step; rows of the step's vocabulary */
    float logits[SLOTS * VOCAB_MAX];
    struct gpu_sampling sampling[SLOTS];
    u16 counts[SLOTS * VOCAB_MAX];
    u8 prompt[SLOTS * VOCAB_MAX];
    struct gpu_row row[SLOTS];
    struct gpu_want want[SLOTS];
    u64 masks[SLOTS][MASK_WORDS];   /* each want's, if it has one */
    struct gpu_result given[SLOTS]; /* tokens of those that are WANT_GIVEN */
};
static struct side host;

/* Its number, or 0 for none; of few tokens or many, some at least. */
static u16 random_mask(u64 *mask, u32 i, u32 vocab)
{
    const u32 share = one_in(2) ? 2 : 20;
    memset(mask, 0, MASK_WORDS * sizeof *mask);
    for (u32 v = 0; v < vocab; v++)
        mask[v / 64] |= (u64)one_in(share) << v % 64;
    const u32 some = random_u32() % vocab;
    mask[some / 64] |= (u64)1 << some % 64;
    return one_in(3) ? (u16)(i + 1) : one_in(4) ? (u16)WANT_GIVEN : 0;
}

/* What the reference takes for a want's. */
static const u64 *mask_of(const struct side *h, u32 want)
{
    const u32 mask = h->want[want].mask;
    return mask && mask != WANT_GIVEN ? h->masks[mask - 1] : NULL;
}

static void random_row(struct side *to, u32 i, u32 vocab)
{
    size_t at = (size_t)i * vocab;
    random_logits(to->logits + at, vocab);
    random_sampling(&to->sampling[i], vocab);
    for (u32 v = 0; v < vocab; v++) {
        to->counts[at + v] = one_in(10) ? (u16)(random_u32() % 4) : 0;
        to->prompt[at + v] = one_in(8);
    }
    to->given[i].token = random_u32() % vocab;
    to->row[i] = (struct gpu_row){i, i, 1, random_u32() % 10000, 0, random_u32() % 8};
    to->want[i] = (struct gpu_want){i, i, i, 0, random_mask(to->masks[i], i, vocab)};
}

/* --- the device ---------------------------------------------------------------------------- */

struct results { /* of a step */
    struct gpu_result result[SLOTS];
    u16 counts[SLOTS * VOCAB_MAX];
    u32 last[SLOTS], done;
    u64 stamps[2];
};

struct rig {
    struct gpu_run run;
    struct gpu_step step;
    struct op op;
    float *logits;
    struct gpu_row *rows;
    struct gpu_want *wants;
};

static void set_up(struct rig *g, u32 slots, size_t vocab)
{
    g->logits = (float *)gpu_take(slots * vocab * 4);
    g->run.state.sampling = (struct gpu_sampling *)gpu_take(slots * sizeof(struct gpu_sampling));
    g->run.state.output_counts = (u16 *)gpu_take(slots * vocab * 2);
    g->run.state.prompt_seen = (u8 *)gpu_take(slots * vocab);
    g->run.state.last = (u32 *)gpu_take(slots * 4);
    g->run.state.barrier = (u32 *)gpu_take(8);
    g->op.kind = OP_SAMPLE;
    g->op.sample.logits = g->logits;
    g->op.sample.z = (float *)gpu_take(slots * vocab * 4);
    g->op.sample.list = (u32 *)gpu_take(SAMPLE_SIDES * slots * vocab * 4);
    g->op.sample.work = (struct sample_work *)gpu_take(slots * sizeof(struct sample_work));
    g->op.sample.arrived = (u32 *)gpu_take(4);
    g->op.sample.mask_stride = 2 * MASK_WORDS;
    g->op.sample.masks = (u32 *)gpu_take(slots * MASK_WORDS * sizeof(u64));
    g->rows = (struct gpu_row *)gpu_take(slots * sizeof *g->rows);
    g->wants = (struct gpu_want *)gpu_take(slots * sizeof *g->wants);
    g->step.rows = g->rows;
    g->step.wants = g->wants;
    g->step.results = (struct gpu_result *)gpu_take(slots * sizeof(struct gpu_result));
    g->step.stamps = (u64 *)gpu_take(16);
    g->step.done = (u32 *)gpu_take(4);
    g->run.step = (struct gpu_step *)gpu_take(sizeof g->step);
    g->run.ops = (struct op *)gpu_take(OPS * sizeof g->op);
    g->run.last = 1;
    g->run.shared_bytes = SAMPLE_SHARED_BYTES;
}

static void send(struct rig *g, const struct side *from, u32 n, u32 vocab)
{
    u32 stride = ROUND_UP(vocab, 2u);
    for (u32 i = 0; i < n; i++)
        gpu_put(g->logits + i * stride, from->logits + i * vocab, vocab * 4);
    gpu_put(g->run.state.sampling, from->sampling, sizeof from->sampling);
    gpu_put(g->run.state.output_counts, from->counts, (size_t)SLOTS * vocab * 2);
    gpu_put(g->run.state.prompt_seen, from->prompt, (size_t)SLOTS * vocab);
    gpu_put(g->rows, from->row, sizeof from->row);
    gpu_put(g->wants, from->want, n * sizeof *from->want);
    gpu_put((void *)g->op.sample.masks, from->masks, sizeof from->masks);
    gpu_put(g->step.results, from->given, sizeof from->given);
    g->op.sample.stride = stride;
    g->op.sample.vocab = vocab;
    gpu_put((void *)g->run.ops, &g->op, sizeof g->op);
    g->step.n_rows = g->step.n_wants = n;
    g->step.serial++;
    gpu_put((void *)g->run.step, &g->step, sizeof g->step);
}

/* The step of n wants by so many blocks. */
static void run(struct rig *g, const struct side *from, u32 n, u32 vocab, u32 blocks,
                struct results *out)
{
    send(g, from, n, vocab);
    gpu_launch("step", blocks, g->run.shared_bytes + STEP_SHARED_BYTES, &g->run, sizeof g->run);
    gpu_get(out->result, g->step.results, sizeof out->result);
    gpu_get(out->counts, g->run.state.output_counts, (size_t)SLOTS * vocab * 2);
    gpu_get(out->last, g->run.state.last, sizeof out->last);
    gpu_get(out->stamps, g->step.stamps, sizeof out->stamps);
    gpu_get(&out->done, g->step.done, sizeof out->done);
}

static bool is_left_zero(const struct rig *g)
{
    static struct sample_work work[SLOTS];
    u32 bits = 0, arrived;
    gpu_get(work, g->op.sample.work, sizeof work);
    gpu_get(&arrived, g->op.sample.arrived, 4);
    for (u32 i = 0; i < SLOTS; i++)
        for (u32 k = 0; k < sizeof *work / 4; k++)
            bits |= ((const u32 *)(const void *)&work[i])[k];
    return bits == 0 && arrived == 0;
}

/* --- against the reference ----------------------------------------------------------------- */

static u32 tokens, differ, failed;
static double worst;

static bool same_alternatives(const struct gpu_result *a, const struct gpu_result *b)
{
    if (a->n_top != b->n_top)
        return false;
    for (u32 i = 0; i < a->n_top; i++) {
        if (isinf(a->top[i]) && isinf(b->top[i]))
            continue; /* which of the impossible ones is listed is no matter */
        if (a->top_id[i] != b->top_id[i] || !(fabsf(a->top[i] - b->top[i]) < 1e-4f))
            return false;
    }
    return true;
}

/* Row i, whose counts the reference adds to. */
static bool is_right(struct side *h, const struct results *got, u32 i, u32 vocab)
{
    static float z[VOCAB_MAX], key[VOCAB_MAX];
    static u32 index[VOCAB_MAX];
    struct gpu_result expect;
    const struct gpu_result *r = &got->result[i];
    size_t at = (size_t)i * vocab;
    bool given = h->want[i].mask == WANT_GIVEN;
    if (given)
        reference_given(&h->sampling[i], h->logits + at, vocab, h->given[i].token, &expect);
    else
        reference_sample(&h->sampling[i], h->logits + at, vocab, mask_of(h, i), h->row[i].pos,
                         h->row[i].outputs, h->counts + at, h->prompt + at, z, key, index, &expect);
    tokens++;
    if (r->token != expect.token) {
        differ++;
        return true;
    }
    if ((!given && got->last[i] != expect.token) || r->slot != i ||
        memcmp(h->counts + at, got->counts + at, vocab * 2) != 0)
        return false;
    if (!given && !h->sampling[i].logprobs)
        return r->logprob == 0 && r->n_top == 0;
    if (isnan(expect.logprob))
        return true;
    if (isfinite(expect.logprob))
        worst = fmax(worst, fabs((double)r->logprob - expect.logprob));
    return same_alternatives(r, &expect);
}

static void test_random(struct rig *g, u32 rounds)
{
    static struct results got;
    u32 blocks = gpu_multiprocessors();
    u64 stamp = 0; /* of the step before */
    for (u32 round = 0; round < rounds; round++) {
        u32 vocab = 1 + random_u32() % (one_in(3) ? RANDOM_VOCAB : 300);
        u32 n = 1 + random_u32() % RANDOM_ROWS, skip = one_in(4) ? random_u32() % n : n;
        for (u32 i = 0; i < n; i++)
            random_row(&host, i, vocab);
        if (skip < n)
            host.want[skip].result = ~0u;
        run(g, &host, n, vocab, 1 + round % blocks, &got);
        failed += got.done != g->step.serial || got.stamps[1] <= stamp;
        stamp = got.stamps[1];
        for (u32 i = 0; i < n; i++)
            if (i != skip && !is_right(&host, &got, i, vocab) && failed++ < 5)
                printf("round %u row %u vocab %u: results differ\n", round, i, vocab);
    }
    failed += !is_left_zero(g);
}

/* Rows whose cuts take more tokens than a list has. */
static void test_flat(struct rig *g, u32 rounds)
{
    static struct results got;
    for (u32 round = 0; round < rounds; round++) {
        u32 vocab = VOCAB_MAX - random_u32() % 100;
        for (u32 i = 0; i < 2; i++) {
            random_row(&host, i, vocab);
            float width = one_in(2) ? 0.01f : 2;
            for (u32 v = 0; v < vocab; v++)
                host.logits[i * vocab + v] = uniform() * width;
            host.sampling[i].temperature = 0.5f + uniform();
            host.sampling[i].top_k = one_in(3) ? 4000 : 0;
        }
        run(g, &host, 2, vocab, 1 + round % 4, &got);
        for (u32 i = 0; i < 2; i++)
            if (!is_right(&host, &got, i, vocab) && failed++ < 5)
                printf("flat: round %u row %u vocab %u: results differ\n", round, i, vocab);
    }
}

/* What no model that works has: all of one kind, or one of them, or any at any place. */
static void nonsense_logits(float *z, u32 n)
{
    const float kinds[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0};
    const u32 kind = random_u32() % 6, how = random_u32() % 3, one = random_u32() % n;
    for (u32 i = 0; i < n; i++)
        if (how == 0 || (how == 1 && i == one))
            z[i] = kinds[kind];
        else if (how == 2 && one_in(3))
            z[i] = kinds[random_u32() % 6];
}

/* Beside rows of nonsense, for which any token will do, others are what they are alone; the step
 * ends, and leaves nothing behind. */
static void test_nonsense(struct rig *g, u32 rounds)
{
    static struct results got;
    for (u32 round = 0; round < rounds; round++) {
        /* Even, so that no two rows' counts share a word, which tests/fakecuda/races.h takes for
         * one place. */
        u32 vocab = 2 + random_u32() % (one_in(3) ? RANDOM_VOCAB - 1 : 300) / 2 * 2;
        for (u32 i = 0; i < 3; i++)
            random_row(&host, i, vocab);
        nonsense_logits(host.logits, vocab);
        nonsense_logits(host.logits + 2 * (size_t)vocab, vocab);
        run(g, &host, 3, vocab, 1 + round % gpu_multiprocessors(), &got);
        failed += got.done != g->step.serial;
        for (u32 i = 0; i < 3; i += 2)
            if (got.result[i].token >= vocab && failed++ < 5)
                printf("nonsense: round %u row %u: token %u of %u\n", round, i, got.result[i].token,
                       vocab);
        if (!is_right(&host, &got, 1, vocab) && failed++ < 5)
            printf("beside nonsense: round %u vocab %u: results differ\n", round, vocab);
    }
    failed += !is_left_zero(g);
}

/* A row of several tokens, the last of which are sampled: each as if it had come alone. */
static void test_guesses(struct rig *g, u32 rounds)
{
    static struct results got;
    static float z[VOCAB_MAX], key[VOCAB_MAX];
    static u32 index[VOCAB_MAX];
    for (u32 round = 0; round < rounds; round++) {
        u32 vocab = 1 + random_u32() % 300, n = 1 + random_u32() % SLOTS, ahead = random_u32() % 9;
        u32 slot = random_u32() % SLOTS, pos = random_u32() % 1000, outputs = random_u32() % 8;
        for (u32 i = 0; i < SLOTS; i++)
            random_row(&host, i, vocab);
        struct gpu_sampling *s = &host.sampling[slot];
        s->repetition_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
        host.row[0] = (struct gpu_row){slot, 0, ahead + n, pos, 0, outputs};
        for (u32 i = 0; i < n; i++)
            host.want[i] = (struct gpu_want){ahead + i, 0, i, (u16)i, host.want[i].mask};
        if (host.want[n - 1].mask == WANT_GIVEN) /* the newest is drawn, if any is */
            host.want[n - 1].mask = 0;
        run(g, &host, n, vocab, 1 + round % gpu_multiprocessors(), &got);
        bool right = got.last[slot] == got.result[n - 1].token && got.done == g->step.serial &&
                     memcmp(host.counts, got.counts, (size_t)SLOTS * vocab * 2) == 0;
        for (u32 i = 0; i < n; i++) {
            struct gpu_result expect;
            size_t at = (size_t)slot * vocab;
            const float *logits = host.logits + (size_t)i * vocab;
            bool given = host.want[i].mask == WANT_GIVEN;
            if (given)
                reference_given(s, logits, vocab, host.given[i].token, &expect);
            else
                reference_sample(s, logits, vocab, mask_of(&host, i), pos + ahead + i, outputs + i,
                                 host.counts + at, host.prompt + at, z, key, index, &expect);
            tokens++;
            differ += got.result[i].token != expect.token;
            right = right && got.result[i].slot == slot &&
                    (got.result[i].token != expect.token || !(given || s->logprobs) ||
                     same_alternatives(&got.result[i], &expect));
        }
        if (!right && failed++ < 5)
            printf("guesses: round %u, %u of slot %u, vocab %u: results differ\n", round, n, slot,
                   vocab);
    }
    failed += !is_left_zero(g);
}

static void test_nothing_wanted(struct rig *g)
{
    static struct results got;
    run(g, &host, 0, 100, 3, &got);
    failed += got.done != g->step.serial;
}

/* --- same bits ------------------------------------------------------------------------------ */

static void copy_row(struct side *to, u32 at, const struct side *from, u32 i, u32 vocab)
{
    memcpy(to->logits + (size_t)at * vocab, from->logits + (size_t)i * vocab, vocab * 4);
    to->want[at] = (struct gpu_want){i, i, i, 0, from->want[i].mask};
}

static void test_bits(struct rig *g, u32 vocab)
{
    static const u32 n_rows[] = {1, 2, 3, 5, 8, 9};
    const u32 n_blocks[] = {1, 2, 3, 5, gpu_multiprocessors()};
    static struct side some;
    static struct results all, got;
    for (u32 i = 0; i < SLOTS; i++)
        random_row(&host, i, vocab);
    run(g, &host, SLOTS, vocab, 1, &all);
    for (u32 n : n_rows)
        for (u32 blocks : n_blocks) {
            u32 first = random_u32() % SLOTS;
            some = host;
            for (u32 i = 0; i < n; i++)
                copy_row(&some, i, &host, (first + i) % SLOTS, vocab);
            run(g, &some, n, vocab, blocks, &got);
            for (u32 k = 0; k < n; k++) {
                u32 i = (first + k) % SLOTS;
                size_t top = all.result[i].n_top * 4;
                bool same = memcmp(&got.result[i], &all.result[i], 16) == 0 &&
                            memcmp(got.result[i].top_id, all.result[i].top_id, top) == 0 &&
                            memcmp(got.result[i].top, all.result[i].top, top) == 0;
                if (!same && failed++ < 5)
                    printf("vocab %u row %u: other bits among %u rows by %u blocks\n", vocab, i, n,
                           blocks);
            }
        }
}

/* --- timings ------------------------------------------------------------------------------- */

enum { BENCH_VOCAB = 128256, BENCH_ROWS = 128 };

struct setting {
    const char *name;
    struct gpu_sampling s;
    bool flat; /* logits that no cut is small in */
};

static void bench_logits(float *to, u32 n, bool flat)
{
    for (u32 i = 0; i < n; i++) {
        float normal = 0;
        for (u32 k = 0; k < 12; k++)
            normal += uniform() - 0.5f;
        to[i] = flat ? normal : normal * 2 + (one_in(600) ? 16 * uniform() : 0);
    }
}

static void bench_one(struct rig *g, const struct setting *s, u32 n)
{
    static struct gpu_sampling sampling[BENCH_ROWS];
    static struct gpu_row row[BENCH_ROWS];
    static struct gpu_want want[BENCH_ROWS];
    static struct op ops[OPS];
    u32 blocks = gpu_multiprocessors();
    for (u32 i = 0; i < n; i++) {
        sampling[i] = s->s;
        sampling[i].seed[0] = i;
        row[i] = (struct gpu_row){i, i, 1, i + 100, 0, 1};
        want[i] = (struct gpu_want){i, i, i, 0, 0};
    }
    g->op.sample.stride = g->op.sample.vocab = BENCH_VOCAB;
    for (struct op &op : ops)
        op = g->op;
    gpu_put(g->run.state.sampling, sampling, sizeof sampling);
    gpu_put(g->rows, row, sizeof row);
    gpu_put(g->wants, want, sizeof want);
    g->step.n_rows = g->step.n_wants = n;
    gpu_put((void *)g->run.step, &g->step, sizeof g->step);
    gpu_put((void *)g->run.ops, ops, sizeof ops);
    float us[2]; /* the launch comes off */
    for (u32 k = 0; k < 2; k++) {
        g->run.last = k ? OPS : OPS / 2;
        us[k] = gpu_time_us("step", blocks, g->run.shared_bytes + STEP_SHARED_BYTES, &g->run,
                            sizeof g->run, 5);
    }
    printf("%-28s %4u rows  %8.2f us\n", s->name, n, (us[1] - us[0]) / (OPS / 2));
    fflush(stdout);
}

static struct gpu_sampling of(float t, u32 top_k, float top_p, float min_p, float typical,
                              float repetition, u32 logprobs)
{
    struct gpu_sampling s = {};
    s.temperature = t;
    s.top_k = top_k;
    s.top_p = top_p;
    s.min_p = min_p;
    s.typical_p = typical;
    s.repetition_penalty = repetition;
    s.logprobs = logprobs > 0;
    s.top_logprobs = logprobs;
    return s;
}

static void bench(void)
{
    static struct rig g;
    const struct setting settings[] = {
        {"greedy", of(0, 0, 1, 0, 1, 1, 0), false},
        {"temperature 1", of(1, 0, 1, 0, 1, 1, 0), false},
        {"0.7, top_k 50, top_p 0.9", of(0.7f, 50, 0.9f, 0, 1, 1, 0), false},
        {"top_p 0.95", of(1, 0, 0.95f, 0, 1, 1, 0), false},
        {"min_p 0.05", of(1, 0, 1, 0.05f, 1, 1, 0), false},
        {"typical_p 0.9", of(1, 0, 1, 0, 0.9f, 1, 0), false},
        {"greedy, penalties", of(0, 0, 1, 0, 1, 1.1f, 0), false},
        {"greedy, 5 logprobs", of(0, 0, 1, 0, 1, 1, 5), false},
        {"all of it", of(0.7f, 50, 0.9f, 0.02f, 0.95f, 1.1f, 20), false},
        {"flat, top_k 50", of(1, 50, 1, 0, 1, 1, 0), true},
        {"flat, top_p 0.95", of(1, 0, 0.95f, 0, 1, 1, 0), true},
    };
    set_up(&g, BENCH_ROWS, BENCH_VOCAB);
    std::vector<float> z((size_t)BENCH_ROWS * BENCH_VOCAB);
    for (u32 flat = 0; flat < 2; flat++) {
        bench_logits(z.data(), BENCH_VOCAB, flat);
        for (u32 i = 1; i < BENCH_ROWS; i++) /* the same, turned */
            for (u32 v = 0; v < BENCH_VOCAB; v++)
                z[(size_t)i * BENCH_VOCAB + v] = z[(v + i * 977) % BENCH_VOCAB];
        gpu_put(g.logits, z.data(), z.size() * 4);
        for (const struct setting &s : settings)
            for (u32 n : {1u, 8u, 32u, 128u})
                if (s.flat == !!flat)
                    bench_one(&g, &s, n);
    }
}

int main(int argc, char **argv)
{
    static struct rig g;
    gpu_open(argc, argv);
    if (argc > 3 && strcmp(argv[3], "--bench") == 0) {
        bench();
        return 0;
    }
    u32 rounds = argc > 3 ? (u32)strtoul(argv[3], NULL, 10) : gpu_is_real() ? 10000 : 1000;
    set_up(&g, SLOTS, VOCAB_MAX);
    test_random(&g, rounds);
    test_guesses(&g, rounds / 5);
    test_flat(&g, rounds / 50);
    test_nothing_wanted(&g);
    for (u32 vocab : {1u, 255u, 256u, 257u, 1000u, 5000u, 9001u})
        test_bits(&g, vocab);
    test_nonsense(&g, rounds / 5);
    failed += worst > 2e-5;
    failed += differ > tokens / 2000;
    printf("sample: %u of %u tokens differ, logprobs within %.1e\n", differ, tokens, worst);
    printf("%u passed, %u failed\n", failed ? 0 : 1, failed);
    return failed ? 1 : 0;
}
