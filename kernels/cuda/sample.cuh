/* OP_SAMPLE: the next token of every wanted row, with core/engine/sample.h's semantics: that file's
 * C is the reference, and its order of operations is followed here.
 *
 * One block a row. Sums of probabilities are integers, in units of 2^-40 of the largest one: the
 * order of adding them changes nothing, and for a million tokens the error stays below 10^-6 of the
 * sum. Sets are cut by radix selection over (key, id), not by sorting: the cut is the place where
 * the kept mass first reaches its target. A token that was dropped is NaN in z.
 *
 * Against the reference the token can differ only where two scores, or a sum and its target, are
 * within rounding of each other: the noise is computed in f32 here, within 2 units in the last
 * place.
 */
#ifndef ZIGCUDA_SAMPLE_CUH
#define ZIGCUDA_SAMPLE_CUH

#include "kernels/cuda/gpu.cuh"

enum { SELECT_BUCKETS = 256, SELECT_ID_BITS = 24 };

struct sample_shared {
    u64 mass[SELECT_BUCKETS];
    u32 count[SELECT_BUCKETS];
    float value[GPU_WARPS];
    u32 index[GPU_WARPS];
    u64 total;
    u64 cut_prefix, cut_above;
    u32 cut_count;
    u32 n_top;
    float top[LIMIT_LOGPROBS];
    u32 top_id[LIMIT_LOGPROBS];
};

GPU struct sample_shared *sample_shared(void)
{
    return (struct sample_shared *)gpu_shared();
}

/* Unsigned integers in the order of floats; never 0 for a number. */
GPU u32 sample_ordered(float v)
{
    u32 bits = gpu_bits(v);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Larger values first, among equals the lower id; 0 for a token that was dropped. */
GPU u64 sample_key(float v, u32 id)
{
    return v == v ? (u64)sample_ordered(v) << SELECT_ID_BITS | ((1u << SELECT_ID_BITS) - 1 - id)
                  : 0;
}

GPU u64 sample_mass(float probability)
{
    return (u64)(probability * 0x1p40f);
}

/* The largest value and its lowest index; index 0 when there is none above -infinity. */
GPU float sample_argmax(const float *z, u32 n, u32 *index)
{
    struct sample_shared *sh = sample_shared();
    float best = -INFINITY;
    u32 at = 0;
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS)
        if (z[i] > best) {
            best = z[i];
            at = i;
        }
    for (u32 mask = 16; mask; mask /= 2) {
        float v = gpu_shuffle_xor(best, mask);
        u32 i = gpu_shuffle_xor(at, mask);
        if (v > best || (v == best && i < at)) {
            best = v;
            at = i;
        }
    }
    gpu_sync();
    if (gpu_lane() == 0) {
        sh->value[gpu_warp()] = best;
        sh->index[gpu_warp()] = at;
    }
    gpu_sync();
    for (u32 w = 0; w < GPU_WARPS; w++) {
        float v = sh->value[w];
        u32 i = sh->index[w];
        if (v > best || (v == best && i < at)) {
            best = v;
            at = i;
        }
    }
    *index = best > -INFINITY ? at : 0;
    return best;
}

/* Sum of f(i) over the row, the same in all threads. */
template <typename F> GPU u64 sample_total(u32 n, F f)
{
    struct sample_shared *sh = sample_shared();
    u64 mine = 0;
    gpu_sync();
    if (gpu_thread() == 0)
        sh->total = 0;
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS)
        mine += f(i);
    gpu_sync();
    gpu_atomic_add64(&sh->total, mine);
    gpu_sync();
    return sh->total;
}

/* Finds the bucket, from the highest down, where the mass reaches the target. One warp. */
GPU void sample_find_bucket(u64 prefix, u64 target)
{
    struct sample_shared *sh = sample_shared();
    enum { EACH = SELECT_BUCKETS / 32 };
    u64 sum = 0;
    u32 top = SELECT_BUCKETS - 1 - gpu_lane() * EACH;
    for (u32 i = 0; i < EACH; i++)
        sum += sh->mass[top - i];
    u64 above = sh->cut_above;
    for (u32 lane = 0; lane < 32; lane++) { /* the same walk in every lane */
        u64 part = (u64)gpu_shuffle((u32)(sum >> 32), lane) << 32 | gpu_shuffle((u32)sum, lane);
        if (above + part < target) {
            above += part;
            continue;
        }
        if (gpu_lane() != lane)
            return;
        u32 b = top;
        for (; above + sh->mass[b] < target; b--)
            above += sh->mass[b];
        sh->cut_prefix = prefix << 8 | b;
        sh->cut_above = above;
        sh->cut_count = sh->count[b];
        return;
    }
    if (gpu_lane() == 0) /* never reached: everything stays */
        sh->cut_count = 0;
}

/* The least key to keep, so that the fewest tokens, largest key first, have at least `target`
 * together; 1 when all of them have less. key(i): 0, or as sample_key; mass(i) of those. */
template <typename K, typename M> GPU u64 sample_cut(u32 n, u64 target, K key, M mass)
{
    struct sample_shared *sh = sample_shared();
    u64 prefix = 0;
    gpu_sync();
    if (gpu_thread() == 0)
        sh->cut_above = 0;
    for (int shift = 48; shift >= 0; shift -= 8) {
        for (u32 b = gpu_thread(); b < SELECT_BUCKETS; b += GPU_THREADS)
            sh->mass[b] = sh->count[b] = 0;
        gpu_sync();
        for (u32 i = gpu_thread(); i < n; i += GPU_THREADS) {
            u64 k = key(i);
            if (k == 0 || k >> shift >> 8 != prefix)
                continue;
            u32 b = (u32)(k >> shift) & 255;
            gpu_atomic_add64(&sh->mass[b], mass(i));
            gpu_atomic_add(&sh->count[b], 1);
        }
        gpu_sync();
        if (gpu_warp() == 0)
            sample_find_bucket(prefix, target);
        gpu_sync();
        if (sh->cut_count == 0)
            return 1;
        prefix = sh->cut_prefix;
        if (sh->cut_count == 1 || shift == 0)
            return prefix << shift;
    }
    return 1;
}

template <typename K> GPU void sample_keep(float *z, u32 n, u64 cut, K key)
{
    gpu_sync(); /* others may still read z */
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS) {
        u64 k = key(i);
        if (k != 0 && k < cut)
            z[i] = NAN;
    }
    gpu_sync();
}

GPU void sample_top_k(float *z, u32 n, u32 k)
{
    const u64 ties = (1u << SELECT_ID_BITS) - 1; /* equal values stay together */
    auto key = [=](u32 i) { return sample_key(z[i], 0) & ~ties; };
    sample_keep(z, n, sample_cut(n, k, key, [](u32) { return (u64)1; }), key);
}

GPU u64 sample_share(float p, u64 total)
{
    double target = ceil((double)p * (double)total);
    return target < 1 ? 1 : (u64)target;
}

GPU void sample_top_p(float *z, u32 n, float max, float p)
{
    auto weight = [=](u32 i) { return z[i] == z[i] ? expf(z[i] - max) : 0.0f; };
    auto mass = [=](u32 i) { return sample_mass(weight(i)); };
    auto key = [=](u32 i) { return z[i] == z[i] ? sample_key(weight(i), i) : 0; };
    u64 total = sample_total(n, mass);
    sample_keep(z, n, sample_cut(n, sample_share(p, total), key, mass), key);
}

/* Locally typical sampling (Meister et al. 2022): the tokens whose -ln p is nearest the entropy. */
GPU void sample_typical(float *z, u32 n, float max, float p)
{
    auto weight = [=](u32 i) { return z[i] == z[i] ? sample_mass(expf(z[i] - max)) : 0; };
    float norm = max + (float)log((double)sample_total(n, weight) * 0x1p-40);
    auto mass = [=](u32 i) { return z[i] == z[i] ? sample_mass(expf(z[i] - norm)) : 0; };
    u64 sum = sample_total(n, [=](u32 i) {
        float lp = z[i] - norm;
        return lp == lp && lp > -80 ? sample_mass(expf(lp) * fmaxf(-lp, 0)) : 0;
    });
    float entropy = (float)((double)sum * 0x1p-40);
    auto key = [=](u32 i) {
        return z[i] == z[i] ? sample_key(-fabsf(-(z[i] - norm) - entropy), i) : 0;
    };
    sample_keep(z, n, sample_cut(n, sample_share(p, (u64)1 << 40), key, mass), key);
}

/* --- the draw ------------------------------------------------------------------------------ */

/* Philox4x32-10, first word (Salmon et al. 2011). */
GPU u32 sample_philox(u32 c0, u32 c1, u32 k0, u32 k1)
{
    u32 c2 = 0, c3 = 0;
    for (u32 round = 0; round < 10; round++) {
        u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c1 = (u32)b;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c3 = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c0;
}

/* -ln(-ln u), u = (w + 1/2) / 2^24. Both u below 1/2 and 1 - u above are exact in f32. */
GPU float sample_gumbel(u32 word)
{
    u32 w = word >> 8;
    float e = w < 1u << 23 ? -logf(((float)w + 0.5f) * 0x1p-24f)
                           : -log1pf(-(((float)((1u << 24) - 1 - w) + 0.5f) * 0x1p-24f));
    return -logf(e);
}

GPU u32 sample_draw(float *z, u32 n, const struct gpu_sampling *s, u32 position)
{
    float best = -INFINITY;
    gpu_sync();
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS) {
        float v = z[i];
        if (v == v && v + 17.4f >= best) { /* more noise there is not */
            v += sample_gumbel(sample_philox(position, i, s->seed[0], s->seed[1]));
            best = fmaxf(best, v);
        }
        z[i] = v;
    }
    gpu_sync();
    /* What was passed over lies below another score that has its noise. */
    u32 token;
    sample_argmax(z, n, &token);
    return token;
}

/* --- logits processors --------------------------------------------------------------------- */

GPU bool sample_processes(const struct gpu_sampling *s, u32 outputs)
{
    return s->n_bias || s->repetition_penalty != 1 || s->presence_penalty != 0 ||
           s->frequency_penalty != 0 || outputs < s->min_tokens;
}

GPU void sample_mask_and_bias(float *z, u32 n, const struct gpu_sampling *s, u32 outputs)
{
    for (u32 i = gpu_thread(); i < s->n_stop && outputs < s->min_tokens; i += GPU_THREADS)
        if (s->stop[i] < n)
            z[s->stop[i]] = -INFINITY;
    gpu_sync();
    for (u32 i = gpu_thread(); i < s->n_bias; i += GPU_THREADS) {
        u32 id = s->bias_id[i];
        bool first = id < n; /* whoever has an id first adds all that name it, in order */
        for (u32 j = 0; j < i && first; j++)
            first = s->bias_id[j] != id;
        for (u32 j = i; j < s->n_bias && first; j++)
            if (s->bias_id[j] == id)
                z[id] += s->bias[j];
    }
    gpu_sync();
}

GPU float sample_penalised(float v, const struct gpu_sampling *s, u32 count, bool prompt)
{
    float r = s->repetition_penalty;
    if (r != 1 && (count || prompt))
        v = v > 0 ? v / r : v * r;
    if (count)
        v -= s->frequency_penalty * (float)count + s->presence_penalty;
    return v;
}

/* z = the processed logits, divided by the temperature when that is not 0. */
GPU void sample_process(float *z, const float *logits, u32 n, const struct gpu_sampling *s,
                        u32 outputs, const u16 *counts, const u8 *prompt)
{
    bool penalise =
        s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    float t = s->temperature < 1e-5f ? 1 : s->temperature;
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS)
        z[i] = logits[i];
    gpu_sync();
    sample_mask_and_bias(z, n, s, outputs);
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS) {
        float v = penalise ? sample_penalised(z[i], s, counts[i], prompt[i]) : z[i];
        z[i] = v / t;
    }
    gpu_sync();
}

GPU u32 sample_token(const struct op_sample *op, const struct gpu_run *run,
                     const struct gpu_row *row, const float *logits, float *z)
{
    const struct gpu_sampling *s = &run->state.sampling[row->slot];
    size_t slot = (size_t)row->slot * op->vocab;
    bool greedy = s->temperature < 1e-5f;
    u32 n = op->vocab, top;
    if (greedy && !sample_processes(s, row->outputs)) {
        sample_argmax(logits, n, &top);
        return top;
    }
    sample_process(z, logits, n, s, row->outputs, run->state.output_counts + slot,
                   run->state.prompt_seen + slot);
    float max = sample_argmax(z, n, &top);
    if (greedy || max == -INFINITY)
        return top;
    if (s->top_k && s->top_k < n)
        sample_top_k(z, n, s->top_k);
    if (s->typical_p < 1)
        sample_typical(z, n, max, s->typical_p);
    if (s->top_p < 1)
        sample_top_p(z, n, max, s->top_p);
    float floor = -INFINITY;
    if (s->min_p > 0) /* relative to the best that is left: typical_p may have dropped the top */
        floor = sample_argmax(z, n, &top) + logf(s->min_p);
    gpu_sync();
    for (u32 i = gpu_thread(); i < n && s->min_p > 0; i += GPU_THREADS)
        if (z[i] < floor)
            z[i] = NAN;
    return sample_draw(z, n, s, row->pos + row->n - 1);
}

/* --- logprobs ------------------------------------------------------------------------------ */

/* The alternatives: as many as asked for, best first, among equals the lowest id. */
GPU void sample_alternatives(const float *logits, u32 n, u32 want, float norm)
{
    struct sample_shared *sh = sample_shared();
    auto key = [=](u32 i) { return sample_key(logits[i] - norm, i); };
    u64 cut = sample_cut(n, want, key, [](u32) { return (u64)1; });
    if (gpu_thread() == 0)
        sh->n_top = 0;
    gpu_sync();
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS)
        if (key(i) >= cut) {
            u32 at = gpu_atomic_add(&sh->n_top, 1);
            sh->top_id[at] = i;
            sh->top[at] = logits[i] - norm;
        }
    gpu_sync();
    for (u32 i = 1; gpu_thread() == 0 && i < sh->n_top; i++) { /* insertion: they are few */
        float v = sh->top[i];
        u32 id = sh->top_id[i], at = i;
        for (; at > 0 && sample_key(sh->top[at - 1], sh->top_id[at - 1]) < sample_key(v, id);
             at--) {
            sh->top[at] = sh->top[at - 1];
            sh->top_id[at] = sh->top_id[at - 1];
        }
        sh->top[at] = v;
        sh->top_id[at] = id;
    }
    gpu_sync();
}

/* From the raw logits. */
GPU void sample_logprobs(const float *logits, u32 n, const struct gpu_sampling *s, u32 token,
                         struct gpu_result *out)
{
    struct sample_shared *sh = sample_shared();
    u32 top;
    float max = sample_argmax(logits, n, &top);
    u64 sum = sample_total(n, [=](u32 i) {
        float v = logits[i];
        return v == v ? sample_mass(expf(v - max)) : 0;
    });
    float norm = max + (float)log((double)sum * 0x1p-40);
    u32 want = MIN(s->top_logprobs, n);
    if (want)
        sample_alternatives(logits, n, want, norm);
    if (gpu_thread() != 0)
        return;
    out->logprob = logits[token] - norm;
    out->n_top = want ? sh->n_top : 0;
    for (u32 i = 0; i < out->n_top; i++) {
        out->top_id[i] = sh->top_id[i];
        out->top[i] = sh->top[i];
    }
}

GPU_CALL void sample_row(const struct op_sample *op, const struct gpu_run *run, u32 want_index)
{
    const struct gpu_want *want = &run->step->wants[want_index];
    const struct gpu_row *row = &run->step->rows[want->row];
    const struct gpu_sampling *s = &run->state.sampling[row->slot];
    const float *logits = op->logits + (size_t)want_index * op->stride;
    struct gpu_result *out = &run->step->results[want->result];
    u32 token = sample_token(op, run, row, logits, op->z + (size_t)row->slot * op->vocab);
    if (gpu_thread() == 0) {
        u16 *count = &run->state.output_counts[(size_t)row->slot * op->vocab + token];
        *count += *count != 0xffff;
        run->state.last[row->slot] = token;
        out->slot = row->slot;
        out->token = token;
        out->logprob = 0;
        out->n_top = 0;
    }
    gpu_sync();
    if (s->logprobs)
        sample_logprobs(logits, op->vocab, s, token, out);
}

GPU void sample_run(const struct op_sample *op, const struct gpu_run *run)
{
    const struct gpu_step *s = run->step;
    for (u32 i = gpu_block(); i < s->n_wants; i += gpu_blocks()) {
        if (s->wants[i].result != ~0u)
            sample_row(op, run, i);
        gpu_sync();
    }
    if (gpu_thread() != 0)
        return;
    gpu_fence_system();
    if (gpu_atomic_add(op->arrived, 1) == gpu_blocks() - 1) {
        *op->arrived = 0;
        gpu_fence_system();
        gpu_store_volatile(s->done, s->serial);
    }
}

#endif
