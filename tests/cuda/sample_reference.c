/* core/engine/sample.c behind an interface that C++ can call. */
#include "tests/cuda/sample_reference.h"

#include "core/engine/sample.h"

static struct sampling sampling_of(const struct gpu_sampling *g)
{
    struct sampling s = {
        .temperature = g->temperature,
        .top_k = g->top_k,
        .top_p = g->top_p,
        .min_p = g->min_p,
        .typical_p = g->typical_p,
        .repetition_penalty = g->repetition_penalty,
        .presence_penalty = g->presence_penalty,
        .frequency_penalty = g->frequency_penalty,
        .seed = (u64)g->seed[1] << 32 | g->seed[0],
        .min_tokens = g->min_tokens,
        .n_stop = g->n_stop,
        .n_bias = g->n_bias,
        .logprobs = g->logprobs,
        .top_logprobs = g->top_logprobs,
    };
    memcpy(s.stop, g->stop, sizeof s.stop);
    memcpy(s.bias_id, g->bias_id, sizeof s.bias_id);
    memcpy(s.bias, g->bias, sizeof s.bias);
    return s;
}

static void put(struct gpu_result *out, const struct step_result *r)
{
    *out = (struct gpu_result){.token = r->token, .logprob = r->logprob, .n_top = r->n_top};
    for (u32 i = 0; i < r->n_top; i++) {
        out->top_id[i] = r->top[i].id;
        out->top[i] = r->top[i].logprob;
    }
}

void reference_sample(const struct gpu_sampling *g, const float *logits, u32 vocab, const u64 *mask,
                      u32 position, u32 outputs, u16 *counts, u8 *prompt, float *z, float *key,
                      u32 *index, struct gpu_result *out)
{
    struct sampling s = sampling_of(g);
    struct step_result r;
    struct sample_counts c = {counts, prompt};
    struct sample_scratch x = {z, key, index};
    sample_token(&s, logits, vocab, mask, position, outputs, &c, &x, &r);
    if (sampling_counts(&s))
        sample_count(&c, r.token);
    put(out, &r);
}

void reference_given(const struct gpu_sampling *g, const float *logits, u32 vocab, u32 token,
                     struct gpu_result *out)
{
    struct sampling s = sampling_of(g);
    struct step_result r = {.token = token};
    sample_logprobs(&s, logits, vocab, &r);
    put(out, &r);
}
