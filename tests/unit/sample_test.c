#include "core/engine/sample.h"
#include "tests/unit/unit.h"

#include <math.h>

enum { VOCAB = 64 };

static float z_space[VOCAB], key_space[VOCAB];
static u32 index_space[VOCAB];
static u16 output_space[VOCAB];
static u8 prompt_space[VOCAB];
static struct sample_counts counts = {output_space, prompt_space};

static u32 pick(const struct sampling *s, const float *logits, u32 vocab, u32 position)
{
    struct sample_scratch x = {z_space, key_space, index_space};
    struct step_result r = {0};
    sample_token(s, logits, vocab, NULL, position, 0, &counts, &x, &r);
    return r.token;
}

/* Which of the tokens can come out, over many positions, as a bit set. */
static u64 reachable(const struct sampling *s, const float *logits, u32 vocab)
{
    u64 set = 0;
    for (u32 position = 0; position < 20000; position++)
        set |= (u64)1 << pick(s, logits, vocab, position);
    return set;
}

/* Known answers from the Random123 distribution (kat_vectors). */
void philox_known_answers(void)
{
    u32 out[4];
    philox4x32((u32[]){0, 0, 0, 0}, (u32[]){0, 0}, out);
    CHECK(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c &&
          out[3] == 0x9b00dbd8);
    philox4x32((u32[]){~0u, ~0u, ~0u, ~0u}, (u32[]){~0u, ~0u}, out);
    CHECK(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 &&
          out[3] == 0x6d5451fd);
}

void sample_follows_the_distribution(void)
{
    static const float p[5] = {0.5f, 0.25f, 0.15f, 0.08f, 0.02f};
    float logits[5];
    for (int i = 0; i < 5; i++)
        logits[i] = logf(p[i]) + 3;
    struct sampling s = sampling_neutral();
    s.seed = 1234567890123456789u;
    enum { DRAWS = 100000 };
    u32 seen[5] = {0};
    for (u32 i = 0; i < DRAWS; i++)
        seen[pick(&s, logits, 5, i)]++;
    double chi2 = 0;
    for (int i = 0; i < 5; i++) {
        double want = p[i] * (double)DRAWS;
        chi2 += (seen[i] - want) * (seen[i] - want) / want;
    }
    CHECK(chi2 < 18.5); /* 4 degrees of freedom, p = 0.001 */
}

void sample_greedy_and_ties(void)
{
    struct sampling s = sampling_neutral();
    s.temperature = 0;
    CHECK(pick(&s, (float[]){1, 3, 3, 2}, 4, 0) == 1);
    s.n_bias = 1;
    s.bias_id[0] = 3;
    s.bias[0] = 1.5f;
    CHECK(pick(&s, (float[]){1, 3, 3, 2}, 4, 0) == 3);
}

void sample_truncations(void)
{
    /* p = .4 .3 .15 .1 .05 in a mixed order */
    static const float p[5] = {0.1f, 0.4f, 0.05f, 0.3f, 0.15f};
    float logits[5];
    for (int i = 0; i < 5; i++)
        logits[i] = logf(p[i]);
    struct sampling s = sampling_neutral();
    s.seed = 7;
    CHECK(reachable(&s, logits, 5) == 0x1f);
    s.top_k = 2;
    CHECK(reachable(&s, logits, 5) == (1 << 1 | 1 << 3));
    s.top_k = 0;
    s.top_p = 0.69f; /* .4 < .69, so .3 comes in and ends it */
    CHECK(reachable(&s, logits, 5) == (1 << 1 | 1 << 3));
    s.top_p = 0.71f;
    CHECK(reachable(&s, logits, 5) == (1 << 1 | 1 << 3 | 1 << 4));
    s.top_p = 1;
    s.min_p = 0.3f; /* 0.12 and more */
    CHECK(reachable(&s, logits, 5) == (1 << 1 | 1 << 3 | 1 << 4));
    s.min_p = 0;
    /* H = 1.393; |-ln p - H|: .1 -> .91, .4 -> .48, .05 -> 1.6, .3 -> .19, .15 -> .50 */
    s.typical_p = 0.5f;
    CHECK(reachable(&s, logits, 5) == (1 << 3 | 1 << 1));
    s.typical_p = 0.25f;
    CHECK(reachable(&s, logits, 5) == (1 << 3));
    s.typical_p = 1;
    s.top_k = 2; /* ties with the k-th stay */
    CHECK(reachable(&s, (float[]){1, 2, 1, 0}, 4) == 7);
}

void sample_penalties(void)
{
    struct sampling s = sampling_neutral();
    s.temperature = 0;
    memset(output_space, 0, sizeof output_space);
    memset(prompt_space, 0, sizeof prompt_space);
    prompt_space[0] = 1;
    sample_count(&counts, 1);
    sample_count(&counts, 1);
    s.repetition_penalty = 2; /* 4 -> 2 (prompt), 3.9 -> 1.95 (output), -1 -> -1 */
    CHECK(pick(&s, (float[]){4, 3.9f, 1.99f, -1}, 4, 0) == 0);
    CHECK(pick(&s, (float[]){4, 3.9f, 2.01f, -1}, 4, 0) == 2);
    s.repetition_penalty = 1;
    s.frequency_penalty = 1; /* only output counts: 3.9 - 2 */
    CHECK(pick(&s, (float[]){1, 3.9f, 1.8f, -1}, 4, 0) == 1);
    s.presence_penalty = 0.2f;
    CHECK(pick(&s, (float[]){1, 3.9f, 1.8f, -1}, 4, 0) == 2);
    memset(output_space, 0, sizeof output_space);
    memset(prompt_space, 0, sizeof prompt_space);
}

void sample_min_tokens_and_logprobs(void)
{
    struct sampling s = sampling_neutral();
    s.temperature = 0;
    s.min_tokens = 1;
    s.n_stop = 1;
    s.stop[0] = 2;
    s.logprobs = true;
    s.top_logprobs = 3;
    struct sample_scratch x = {z_space, key_space, index_space};
    struct step_result r = {0};
    static const float logits[4] = {0, 1, 5, 1};
    sample_token(&s, logits, 4, NULL, 9, 0, &counts, &x, &r);
    CHECK(r.token == 1 && r.n_top == 3);
    double norm = log(exp(0) + 2 * exp(1) + exp(5));
    CHECK(fabs(r.logprob - (1 - norm)) < 1e-5);
    CHECK(r.top[0].id == 2 && r.top[1].id == 1 && r.top[2].id == 3);
    sample_token(&s, logits, 4, NULL, 9, 1, &counts, &x, &r);
    CHECK(r.token == 2);
}

/* Logits of a broken model still give a token that there is, whatever cuts them. */
void sample_of_nonsense(void)
{
    static const float kinds[] = {NAN, INFINITY, -INFINITY};
    struct sampling ways[6], *s = ways;
    for (u32 i = 0; i < COUNTOF(ways); i++) {
        ways[i] = sampling_neutral();
        ways[i].logprobs = true;
        ways[i].top_logprobs = 5;
    }
    (s++)->temperature = 0;
    (s++)->top_k = 3;
    (s++)->typical_p = 0.5f;
    (s++)->top_p = 0.5f;
    (s++)->min_p = 0.1f;
    float logits[VOCAB];
    for (u32 way = 0; way < COUNTOF(ways); way++)
        for (u32 kind = 0; kind < COUNTOF(kinds); kind++)
            for (u32 every = 1; every <= VOCAB; every *= 4) {
                for (u32 i = 0; i < VOCAB; i++)
                    logits[i] = i % every == 0 ? kinds[kind] : (float)i / VOCAB;
                for (u32 position = 0; position < 10; position++)
                    CHECK(pick(&ways[way], logits, VOCAB, position) < VOCAB);
            }
}
