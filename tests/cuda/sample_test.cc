/* OP_SAMPLE against core/engine/sample.c on random logits and random settings, several rows a step.
 * The noise and the sums are computed differently (see sample.cuh), so a few tokens in a million
 * may differ; what is allowed here is less than one in 2000, what was seen is printed. */
#include "tests/cuda/harness.h"
#include "tests/cuda/sample_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 6, VOCAB_MAX = 3001 };

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

struct side { /* what is kept on both sides */
    float logits[SLOTS][VOCAB_MAX];
    struct gpu_sampling sampling[SLOTS];
    u16 counts[SLOTS][VOCAB_MAX];
    u8 prompt[SLOTS][VOCAB_MAX];
};
static struct side host;

static u32 same_alternatives(const struct gpu_result *a, const struct gpu_result *b)
{
    if (a->n_top != b->n_top)
        return 0;
    for (u32 i = 0; i < a->n_top; i++) {
        if (isinf(a->top[i]) && isinf(b->top[i]))
            continue; /* which of the impossible ones is listed is no matter */
        if (a->top_id[i] != b->top_id[i] || !(fabsf(a->top[i] - b->top[i]) < 1e-4f))
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    u32 rounds = gpu_is_real() ? 20000 : 1500, blocks = gpu_multiprocessors();
    struct gpu_run run = {};
    struct gpu_step step = {};
    struct op op = {};
    op.kind = OP_SAMPLE;
    float *logits = (float *)gpu_take(sizeof host.logits);
    run.state.sampling = (struct gpu_sampling *)gpu_take(sizeof host.sampling);
    run.state.output_counts = (u16 *)gpu_take(sizeof host.counts);
    run.state.prompt_seen = (u8 *)gpu_take(sizeof host.prompt);
    run.state.last = (u32 *)gpu_take(SLOTS * 4);
    run.state.barrier = (u32 *)gpu_take(8);
    op.sample.logits = logits;
    op.sample.z = (float *)gpu_take(sizeof host.logits);
    op.sample.arrived = (u32 *)gpu_take(4);
    struct gpu_row *rows = (struct gpu_row *)gpu_take(SLOTS * sizeof *rows);
    struct gpu_want *wants = (struct gpu_want *)gpu_take(SLOTS * sizeof *wants);
    step.results = (struct gpu_result *)gpu_take(SLOTS * sizeof *step.results);
    step.done = (u32 *)gpu_take(4);
    step.rows = rows;
    step.wants = wants;
    struct gpu_step *step_there = (struct gpu_step *)gpu_take(sizeof step);
    struct op *op_there = (struct op *)gpu_take(sizeof op);
    run.step = step_there;
    run.ops = op_there;
    run.last = 1;
    run.shared_bytes = 48 << 10;
    static float z[VOCAB_MAX], key[VOCAB_MAX];
    static u32 index[VOCAB_MAX];
    u32 tokens = 0, differ = 0, failed = 0;
    double worst = 0;
    for (u32 round = 0; round < rounds; round++) {
        u32 vocab = 1 + random_u32() % (one_in(3) ? VOCAB_MAX : 300), n = 1 + random_u32() % SLOTS;
        struct gpu_row row[SLOTS] = {};
        struct gpu_want want[SLOTS] = {};
        for (u32 i = 0; i < n; i++) {
            random_logits(&host.logits[0][0] + i * vocab, vocab);
            random_sampling(&host.sampling[i], vocab);
            for (u32 v = 0; v < vocab; v++) {
                (&host.counts[0][0])[i * vocab + v] = one_in(10) ? (u16)(random_u32() % 4) : 0;
                (&host.prompt[0][0])[i * vocab + v] = one_in(8);
            }
            row[i] = (struct gpu_row){i, i, 1, random_u32() % 10000, ROW_SAMPLE, random_u32() % 8};
            want[i] = (struct gpu_want){i, i, i == 5 ? ~0u : i};
        }
        gpu_put(logits, host.logits, n * vocab * 4);
        gpu_put(run.state.sampling, host.sampling, n * sizeof *host.sampling);
        gpu_put(run.state.output_counts, host.counts, n * vocab * 2);
        gpu_put(run.state.prompt_seen, host.prompt, n * vocab);
        gpu_put(rows, row, sizeof row);
        gpu_put(wants, want, sizeof want);
        op.sample.stride = op.sample.vocab = vocab;
        gpu_put(op_there, &op, sizeof op);
        step.n_rows = step.n_wants = n;
        step.serial = round + 1;
        gpu_put(step_there, &step, sizeof step);
        gpu_launch("step", 1 + round % blocks, run.shared_bytes + STEP_SHARED_BYTES, &run,
                   sizeof run);
        static struct gpu_result got[SLOTS], expect;
        static u16 counts[SLOTS * VOCAB_MAX];
        u32 done, last[SLOTS];
        gpu_get(got, step.results, sizeof got);
        gpu_get(counts, run.state.output_counts, n * vocab * 2);
        gpu_get(&done, step.done, 4);
        gpu_get(last, run.state.last, sizeof last);
        failed += done != round + 1;
        for (u32 i = 0; i < n && i != 5; i++) {
            u16 *count = &host.counts[0][0] + i * vocab;
            reference_sample(&host.sampling[i], &host.logits[0][0] + i * vocab, vocab, row[i].pos,
                             row[i].outputs, count, &host.prompt[0][0] + i * vocab, z, key, index,
                             &expect);
            tokens++;
            if (got[i].token != expect.token) {
                differ++;
                continue;
            }
            bool good = last[i] == expect.token && got[i].slot == i &&
                        memcmp(count, counts + i * vocab, vocab * 2) == 0;
            if (host.sampling[i].logprobs && isfinite(expect.logprob))
                worst = fmax(worst, fabs((double)got[i].logprob - expect.logprob));
            bool sane = host.sampling[i].logprobs && !isnan(expect.logprob);
            good = good && (!sane || same_alternatives(&got[i], &expect));
            if (!good && failed++ < 5)
                printf("round %u row %u vocab %u: results differ (n_top %u, %u)\n", round, i, vocab,
                       got[i].n_top, expect.n_top);
        }
    }
    failed += worst > 2e-5;
    failed += differ > tokens / 2000;
    printf("sample: %u of %u tokens differ, logprobs within %.1e\n", differ, tokens, worst);
    printf("%u passed, %u failed\n", failed ? 0 : 1, failed);
    return failed ? 1 : 0;
}
