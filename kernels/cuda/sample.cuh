/* OP_SAMPLE: the next token of every wanted row, with core/engine/sample.h's semantics: that file's
 * C is the reference, and its order of operations is followed here.
 *
 * The rows' tokens lie side by side and every block takes a stretch of them. What blocks leave for
 * each other in struct sample_work are largest keys and sums of integers (of probabilities in units
 * of 2^-40 of the largest one: for a million tokens the error stays below 10^-6 of the sum), so
 * that neither the order nor the number of blocks changes a bit. Up to three passes:
 *   scores  The processed logits, their largest or, with the noise, the best. That is all for a row
 *           that is greedy or has nothing but a temperature and penalties.
 *   counts  For rows that are cut, or that want logprobs: how many tokens, and of what weight, lie
 *           in each bucket of distance to the largest.
 *   choice  From the buckets follows what is surely kept, and drawn from at once; what a cut may
 *           hit, and is listed, a few tokens mostly; and what is dropped.
 * The block that is last with a row cuts the list (sample_select.cuh), draws, and puts the result
 * out. That is quick as long as the list fits into shared memory. Of a token that is given (of a
 * prompt) only the log probability is wanted, and what could have come instead.
 *
 * Against the reference the token can differ only where two scores, or a sum and its target, are
 * within rounding of each other: the noise is computed in f32 here, within 2 units in the last
 * place.
 */
#ifndef ZIGCUDA_SAMPLE_CUH
#define ZIGCUDA_SAMPLE_CUH

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/sample_select.cuh"

GPU u32 sample_first(const struct gpu_sampling *s, u32 n)
{
    if (s->temperature < 1e-5f)
        return CUT_NONE;
    if (s->top_k && s->top_k < n)
        return CUT_TOP_K;
    return s->typical_p < 1 ? CUT_TYPICAL
           : s->top_p < 1   ? CUT_TOP_P
           : s->min_p > 0   ? CUT_MIN_P
                            : CUT_NONE;
}

GPU struct sample_row sample_row(const struct op_sample *op, const struct gpu_run *run, u32 i)
{
    const struct gpu_want *want = &run->step->wants[i];
    const struct gpu_row *row = &run->step->rows[want->row];
    const struct gpu_sampling *s = &run->state.sampling[row->slot];
    size_t slot = (size_t)row->slot * op->vocab;
    bool given = want->mask == WANT_GIVEN, greedy = s->temperature < 1e-5f;
    struct sample_row r;
    r.s = s;
    r.given = given;
    r.work = &op->work[i];
    r.out = &run->step->results[want->result];
    r.logits = op->logits + (size_t)i * op->stride;
    r.z = op->z + (size_t)i * op->stride;
    r.list = op->list + (size_t)i * SAMPLE_SIDES * op->stride;
    r.stride = op->stride;
    r.counts = run->state.output_counts + slot;
    r.prompt = run->state.prompt_seen + slot;
    r.t = greedy ? 1 : s->temperature;
    r.n = op->vocab;
    r.slot = row->slot;
    r.outputs = row->outputs + want->nth;
    r.position = row->pos + want->token - row->first;
    r.cut = given ? (u32)CUT_NONE : sample_first(s, r.n);
    r.seed[0] = s->seed[0];
    r.seed[1] = s->seed[1];
    r.noise = r.cut == CUT_NONE && !greedy;
    r.logprobs = given || s->logprobs;
    r.deep = r.cut != CUT_NONE || r.logprobs;
    r.fits = want->mask && !given ? op->masks + (size_t)(want->mask - 1) * op->mask_stride : NULL;
    r.masked = r.fits || (!given && r.outputs < s->min_tokens && s->n_stop);
    r.biased = !given && s->n_bias;
    r.last = !given && want->token + 1 == row->first + row->n;
    r.penalised = !given && (s->repetition_penalty != 1 || s->presence_penalty != 0 ||
                             s->frequency_penalty != 0);
    return r;
}

enum { SAMPLE_UNIT = 2 * GPU_THREADS };

/* f(row, from, to) for this block's part of the rows that want a token; a part begins at a multiple
 * of SAMPLE_UNIT. The row is in shared memory from one pass to the next. */
template <typename F>
GPU void sample_parts(const struct op_sample *op, const struct gpu_run *run, F f)
{
    struct sample_shared *sh = sample_shared();
    u32 units = CEIL_DIV(op->vocab, (u32)SAMPLE_UNIT), all = units * run->step->n_wants;
    u32 most = CEIL_DIV(all, gpu_blocks()), u = gpu_block() * most, end = MIN(u + most, all);
    while (u < end) {
        u32 want = u / units, first = u % units, n = MIN(units - first, end - u);
        u += n;
        if (run->step->wants[want].result == ~0u)
            continue;
        if (sh->row_of != want + 1) {
            gpu_sync();
            if (gpu_thread() == 0) {
                sh->row = sample_row(op, run, want);
                sh->row_of = want + 1;
            }
            gpu_sync();
        }
        f(&sh->row, first * SAMPLE_UNIT, MIN((first + n) * SAMPLE_UNIT, op->vocab));
    }
}

/* f(i, map(i, values[i]), word) for a thread's share of [from, to); word is that of token i's
 * noise, where `noise` is set. Whatever is read, and all words, come before f does anything: many
 * chains of instructions side by side. */
template <u32 pairs, bool noise, typename M, typename F>
GPU void sample_each(const struct sample_row *r, const float *values, u32 from, u32 to, M map, F f)
{
    for (u32 at = from + 2 * gpu_thread(); at < to; at += pairs * SAMPLE_UNIT) {
        float2 v[pairs];
        uint2 word[pairs];
#pragma unroll
        for (u32 k = 0; k < pairs; k++) {
            u32 i = at + k * SAMPLE_UNIT;
            v[k] = i < to ? gpu_load<float2>(values + i) : float2{0, 0};
        }
#pragma unroll
        for (u32 k = 0; k < pairs; k++) {
            u32 i = at + k * SAMPLE_UNIT;
            v[k].x = i < to ? map(i, v[k].x) : 0;
            v[k].y = i + 1 < to ? map(i + 1, v[k].y) : 0;
        }
#pragma unroll
        for (u32 k = 0; k < pairs; k++) {
            u32 i = at + k * SAMPLE_UNIT;
            word[k] = noise ? uint2{sample_word(r, i), sample_word(r, i + 1)} : uint2{0, 0};
        }
#pragma unroll
        for (u32 k = 0; k < pairs; k++) {
            u32 i = at + k * SAMPLE_UNIT;
            if (i < to)
                f(i, v[k].x, word[k].x);
            if (i + 1 < to)
                f(i + 1, v[k].y, word[k].y);
        }
    }
}

/* What one side of a row's work is about: processed logits, divided by the temperature. */
struct sample_values {
    const float *from;
    float t;
};

GPU struct sample_values sample_values(const struct sample_row *r, u32 side)
{
    bool processed = r->masked || r->biased || r->penalised;
    if (side == SAMPLE_LOGPROBS)
        return {r->logits, 1};
    return {processed ? r->z : r->logits, r->t};
}

GPU float sample_value(struct sample_values values, float v)
{
    return values.t == 1 ? v : v / values.t;
}

/* f(i, value, 0) for a thread's share of [from, to). */
template <u32 pairs, typename F>
GPU void sample_each_value(const struct sample_row *r, u32 side, u32 from, u32 to, F f)
{
    struct sample_values values = sample_values(r, side);
    sample_each<pairs, false>(
        r, values.from, from, to, [=](u32, float v) { return sample_value(values, v); }, f);
}

/* A row's result, if it wants one, is out: the step is done with the last. One thread. */
GPU void sample_done(const struct op_sample *op, const struct gpu_step *s)
{
    if (s->n_wants > 1) {
        gpu_fence_system();
        if (gpu_atomic_add(op->arrived, 1) != s->n_wants - 1)
            return;
        gpu_store_volatile(op->arrived, 0);
    }
    if (s->stamps)
        s->stamps[1] = gpu_clock_ns();
    gpu_fence_system();
    gpu_store_volatile(s->done, s->serial);
}

/* The part [from, to) of a row is done. True, in all threads, for the block that is last: then what
 * others did for the row can be read. */
GPU bool sample_arrive(const struct sample_row *r, u32 from, u32 to)
{
    bool last = false;
    gpu_sync();
    if (gpu_thread() == 0) {
        gpu_fence();
        last = gpu_atomic_add(&r->work->arrived, to - from) + (to - from) == r->n;
        gpu_fence();
    }
    return gpu_sync_any(last);
}

/* Puts out a token, of which logprob and alternatives are there; what is left for the next steps
 * need not be waited for. */
GPU void sample_put(const struct op_sample *op, const struct gpu_run *run,
                    const struct sample_row *r, u32 token)
{
    gpu_sync();
    if (gpu_thread() == 0) {
        r->out->slot = r->slot;
        r->out->token = token;
        sample_done(op, run->step);
        if (r->last)
            run->state.last[r->slot] = token;
        if (r->penalised)
            r->counts[token] += r->counts[token] != 0xffff;
        if (!r->deep) {
            r->work->side[SAMPLE_DRAW].best = 0;
            r->work->arrived = 0;
        }
    }
    u32 n = r->deep ? sizeof *r->work / sizeof(u32) : 0;
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS)
        ((u32 *)r->work)[i] = 0;
}

/* --- scores -------------------------------------------------------------------------------- */

GPU void sample_mask_and_bias(const struct sample_row *r, u32 from, u32 to)
{
    const struct gpu_sampling *s = r->s;
    for (u32 i = gpu_thread(); i < s->n_stop && r->outputs < s->min_tokens; i += GPU_THREADS)
        if (s->stop[i] >= from && s->stop[i] < to) /* an id may be there twice */
            gpu_store_volatile((u32 *)&r->z[s->stop[i]], gpu_bits(-INFINITY));
    gpu_sync();
    for (u32 i = gpu_thread(); i < s->n_bias; i += GPU_THREADS) {
        u32 id = s->bias_id[i];
        bool first = id >= from && id < to; /* who has it first adds all that name it, in order */
        for (u32 j = 0; j < i && first; j++)
            first = s->bias_id[j] != id;
        for (u32 j = i; j < s->n_bias && first; j++)
            if (s->bias_id[j] == id)
                r->z[id] += s->bias[j];
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

/* What the scores are made of: a copy where single tokens are changed. */
GPU const float *sample_changed(const struct sample_row *r, u32 from, u32 to)
{
    if (!r->masked && !r->biased)
        return r->logits;
    gpu_sync();
    for (u32 i = from + gpu_thread(); i < to; i += GPU_THREADS)
        r->z[i] = !r->fits || r->fits[i / 32] >> i % 32 & 1 ? r->logits[i] : -INFINITY;
    gpu_sync();
    sample_mask_and_bias(r, from, to);
    return r->z;
}

GPU void sample_set_top(struct sample_top *top, float v, u32 id)
{
    if (v > top->v) /* ids come in ascending order */
        *top = {v, id};
}

/* Of this thread; `noise`: of the scores. */
template <u32 pairs, bool noise, bool may_penalise>
GPU void sample_find_top(const struct sample_row *r, u32 from, u32 to, struct sample_top *top)
{
    const float *values = sample_changed(r, from, to);
    bool penalised = may_penalise && r->penalised;
    float t = r->t;
    sample_each<pairs, noise>(
        r, values, from, to,
        [=](u32 i, float v) {
            return penalised ? sample_penalised(v, r->s, r->counts[i], r->prompt[i]) : v;
        },
        [=](u32 i, float v, u32 word) {
            if (penalised)
                r->z[i] = v;
            v = t == 1 ? v : v / t;
            if (noise)
                sample_draw_word(top, v, i, word);
            else
                sample_set_top(top, v, i);
        });
}

GPU u64 sample_best(const struct sample_row *r, u32 from, u32 to)
{
    struct sample_top top = {-INFINITY, 0};
    if (r->noise)
        sample_find_top<4, true, true>(r, from, to, &top);
    else if (r->penalised)
        sample_find_top<2, false, true>(r, from, to, &top);
    else
        sample_find_top<8, false, false>(r, from, to, &top);
    return sample_top_key(top);
}

GPU u64 sample_best_logit(const struct sample_row *r, u32 from, u32 to)
{
    struct sample_top top = {-INFINITY, 0};
    sample_each_value<8>(r, SAMPLE_LOGPROBS, from, to,
                         [&](u32 i, float v, u32) { sample_set_top(&top, v, i); });
    return sample_top_key(top);
}

/* The block's largest key. */
GPU void sample_leave_best(u64 *to, u64 key)
{
    key = sample_max(key);
    if (gpu_thread() == 0)
        gpu_atomic_max64(to, key);
}

GPU_CALL void sample_scores(const struct op_sample *op, const struct gpu_run *run)
{
    sample_parts(op, run, [=](const struct sample_row *r, u32 from, u32 to) {
        struct sample_side *side = r->work->side;
        if (!r->given)
            sample_leave_best(&side[SAMPLE_DRAW].best, sample_best(r, from, to));
        if (r->logprobs)
            sample_leave_best(&side[SAMPLE_LOGPROBS].best, sample_best_logit(r, from, to));
        if (r->deep || !sample_arrive(r, from, to))
            return;
        if (gpu_thread() == 0) {
            r->out->logprob = 0;
            r->out->n_top = 0;
        }
        sample_put(op, run, r, sample_key_id(side[SAMPLE_DRAW].best));
    });
}

/* --- counts -------------------------------------------------------------------------------- */

/* Of the distance x >= 0 to the largest: finer where it is small, 128 an octave of 1 + x, so that
 * they reach 255 for any temperature. Larger distances are never in a lower bucket. */
GPU u32 sample_bucket(float x)
{
    u32 b = (gpu_bits(1 + x) - gpu_bits(1.0f)) >> 16;
    return b < SAMPLE_BUCKETS ? b : SAMPLE_BUCKETS - 1;
}

GPU float sample_bucket_end(u32 b)
{
    return gpu_from_bits(gpu_bits(1.0f) + ((b + 1) << 16)) - 1;
}

/* by_mass: buckets tell the weight, too. */
GPU void sample_count(const struct sample_row *r, u32 which, u32 from, u32 to, bool by_mass)
{
    struct sample_shared *sh = sample_shared();
    struct sample_side *side = &r->work->side[which];
    float max = sample_key_value(side->best);
    u64 total = 0;
    gpu_sync();
    for (u32 b = gpu_thread(); b < SAMPLE_BUCKETS; b += GPU_THREADS)
        sh->buckets.mass[b] = sh->buckets.count[b] = 0;
    gpu_sync();
    sample_each_value<4>(r, which, from, to, [=, &total](u32, float v, u32) {
        u32 b = sample_bucket(max - v);
        u64 m = sample_mass(expf(v - max));
        total += m;
        if (v == v)
            gpu_atomic_add(&sh->buckets.count[b], 1);
        if (by_mass && m)
            gpu_atomic_add64(&sh->buckets.mass[b], m);
    });
    total = sample_sum(total);
    if (gpu_thread() == 0)
        gpu_atomic_add64(&side->total, total);
    for (u32 b = gpu_thread(); b < SAMPLE_BUCKETS; b += GPU_THREADS) {
        if (sh->buckets.count[b])
            gpu_atomic_add(&side->count[b], sh->buckets.count[b]);
        if (sh->buckets.mass[b])
            gpu_atomic_add64(&side->mass[b], sh->buckets.mass[b]);
    }
}

GPU_CALL void sample_counts(const struct op_sample *op, const struct gpu_run *run)
{
    sample_parts(op, run, [=](const struct sample_row *r, u32 from, u32 to) {
        bool by_mass = r->cut == CUT_TYPICAL || r->cut == CUT_TOP_P;
#pragma unroll 1
        for (u32 side = 0; side < SAMPLE_SIDES; side++)
            if (side == SAMPLE_DRAW ? by_mass || r->cut == CUT_TOP_K : r->logprobs)
                sample_count(r, side, from, to, by_mass && side == SAMPLE_DRAW);
    });
}

/* --- choice -------------------------------------------------------------------------------- */

/* Buckets [0, sure) are kept and [sure, end) listed. The same in all threads and blocks. */
struct sample_plan {
    u32 sure, end;
    u64 above; /* sum of the sure ones: tokens, or mass */
};

/* For a cut in bucket `cut`, by size(bucket). Rounding may carry it over the bucket's ends: the
 * neighbours are listed. in_order: nothing but the cut itself has to see what lies before it. */
template <typename S> GPU struct sample_plan sample_plan_of(u32 cut, bool in_order, S size)
{
    u32 last = SAMPLE_BUCKETS - 1;
    cut = cut < last ? cut : last;
    u32 sure = in_order && cut ? cut - 1 : 0, end = MIN(cut + 2, (u32)SAMPLE_BUCKETS);
    u64 above = 0;
    for (u32 b = gpu_thread(); b < sure; b += GPU_THREADS)
        above += size(b);
    return {sure, end, sample_sum(above)};
}

/* What typical_p keeps lies within H + d of surprise (-ln p), for the least d so that [H - d, H +
 * d] has enough. Either d <= H - (the least surprise), or all of [0, H + d) is in and H + d lies
 * in the bucket where the mass from the top reaches p. Distances are surprises less the least. */
GPU u32 sample_typical_bucket(const struct sample_side *side)
{
    enum { DOWN_BITS = 8 }; /* so that mass times distance fits */
    u64 sum = 0;
    for (u32 b = gpu_thread(); b < SAMPLE_BUCKETS; b += GPU_THREADS)
        sum += (u64)((float)(side->mass[b] >> DOWN_BITS) * sample_bucket_end(b));
    float mean = (float)sample_sum(sum) * (float)(1 << DOWN_BITS) / (float)side->total;
    return sample_bucket(2.01f * mean);
}

GPU struct sample_plan sample_plan_draw(const struct sample_row *r)
{
    enum { EACH = SAMPLE_BUCKETS / GPU_THREADS };
    const struct sample_side *side = &r->work->side[SAMPLE_DRAW];
    const struct gpu_sampling *s = r->s;
    auto count = [=](u32 b) { return (u64)side->count[b]; };
    auto mass = [=](u32 b) { return side->mass[b]; };
    if (r->cut == CUT_NONE)
        return {0, 0, 0};
    if (r->cut == CUT_MIN_P)
        return {SAMPLE_BUCKETS, 0, 0};
    if (r->cut == CUT_TOP_K)
        return sample_plan_of(sample_find<EACH>(s->top_k, count).bucket,
                              s->typical_p >= 1 && s->top_p >= 1, count);
    float p = r->cut == CUT_TYPICAL ? s->typical_p : s->top_p;
    u32 cut = sample_find<EACH>(sample_share(p, side->total), mass).bucket;
    if (r->cut == CUT_TYPICAL)
        cut = MAX(cut, sample_typical_bucket(side));
    return sample_plan_of(cut, r->cut == CUT_TOP_P, mass);
}

GPU struct sample_plan sample_plan_logprobs(const struct sample_row *r)
{
    enum { EACH = SAMPLE_BUCKETS / GPU_THREADS };
    const struct sample_side *side = &r->work->side[SAMPLE_LOGPROBS];
    u32 want = MIN(r->s->top_logprobs, r->n);
    auto count = [=](u32 b) { return (u64)side->count[b]; };
    if (!r->logprobs || want == 0)
        return {0, 0, 0};
    return sample_plan_of(sample_find<EACH>(want, count).bucket, false, count);
}

/* Draws from what is surely kept, and lists what a cut may hit. */
GPU void sample_choose(const struct sample_row *r, u32 which, struct sample_plan p, u32 from,
                       u32 to)
{
    struct sample_work *work = r->work;
    struct sample_side *side = &work->side[which];
    bool typical = r->cut == CUT_TYPICAL && which == SAMPLE_DRAW;
    float max = sample_key_value(side->best), norm = typical ? max + sample_log(side->total) : 0;
    float floor = r->s->min_p > 0 ? max + logf(r->s->min_p) : -INFINITY;
    u32 *list = r->list + which * r->stride;
    struct sample_top top = {-INFINITY, 0};
    u64 entropy = 0;
    sample_each_value<2>(r, which, from, to, [=, &top, &entropy](u32 i, float v, u32) {
        u32 b = sample_bucket(max - v);
        if (typical)
            entropy += sample_entropy(v - norm);
        if (b < p.sure && v >= floor)
            sample_draw(&top, v, i, r);
        if (b >= p.sure && b < p.end && v == v)
            list[gpu_atomic_add(&work->listed[which], 1)] = i;
    });
    if (p.sure)
        sample_leave_best(&work->score, sample_top_key(top));
    if (!typical)
        return;
    entropy = sample_sum(entropy);
    if (gpu_thread() == 0)
        gpu_atomic_add64(&work->entropy, entropy);
}

/* --- what the last block does --------------------------------------------------------------- */

GPU struct sample_list sample_list_of(const struct sample_row *r, u32 which)
{
    struct sample_shared *sh = sample_shared();
    struct sample_values values = sample_values(r, which);
    const u32 *ids = r->list + which * r->stride;
    u32 n = r->work->listed[which];
    bool far = n > SAMPLE_NEAR;
    gpu_sync();
    for (u32 i = gpu_thread(); i < n; i += GPU_THREADS) {
        u32 id = ids[i];
        float v = sample_value(values, values.from[id]);
        if (far) {
            r->z[id] = v;
        } else {
            sh->list.z[i] = v;
            sh->list.id[i] = id;
        }
    }
    gpu_sync();
    if (far)
        return {r->z, ids, n, true};
    return {sh->list.z, sh->list.id, n, false};
}

/* All but the draw. Returns the least value that min_p leaves. */
GPU float sample_cut_list(const struct sample_row *r, struct sample_plan p, struct sample_list l,
                          float max)
{
    const struct gpu_sampling *s = r->s;
    const struct sample_side *side = &r->work->side[SAMPLE_DRAW];
    if (r->cut == CUT_TOP_K)
        sample_keep(l, s->top_k - p.above, {BY_VALUE, 0, 0});
    if (s->typical_p < 1) { /* Meister et al. 2022: whose -ln p is nearest the entropy */
        float norm = max + sample_log(r->cut == CUT_TYPICAL ? side->total : sample_weights(l, max));
        u64 entropy = r->work->entropy;
        if (r->cut != CUT_TYPICAL)
            entropy = sample_total(l, [=](float z) { return sample_entropy(z - norm); });
        sample_keep(l, sample_share(s->typical_p, (u64)1 << 40),
                    {BY_SURPRISE, norm, (float)((double)entropy * 0x1p-40)});
    }
    if (s->top_p < 1) {
        u64 total = r->cut == CUT_TOP_P ? side->total : sample_weights(l, max);
        u64 above = r->cut == CUT_TOP_P ? p.above : 0;
        sample_keep(l, sample_share(s->top_p, total) - above, {BY_WEIGHT, max, 0});
    }
    u64 best = 0;
    for (u32 i = gpu_thread(); i < l.n && s->typical_p < 1; i += GPU_THREADS)
        best = MAX(best, sample_key(*sample_z(l, i), 0));
    if (s->typical_p < 1) /* which may have dropped the top */
        max = sample_key_value(sample_max(best));
    return s->min_p > 0 ? max + logf(s->min_p) : -INFINITY;
}

GPU u32 sample_token(const struct sample_row *r, struct sample_plan p)
{
    const struct sample_side *side = &r->work->side[SAMPLE_DRAW];
    float max = sample_key_value(side->best);
    if (r->cut == CUT_NONE || max == -INFINITY)
        return sample_key_id(side->best);
    struct sample_list l = sample_list_of(r, SAMPLE_DRAW);
    float floor = sample_cut_list(r, p, l, max);
    struct sample_top top = {-INFINITY, 0};
    for (u32 i = gpu_thread(); i < l.n; i += GPU_THREADS)
        if (*sample_z(l, i) >= floor)
            sample_draw(&top, *sample_z(l, i), l.id[i], r);
    u64 key = sample_top_key(top), score = r->work->score;
    return sample_key_id(sample_max(MAX(key, score)));
}

/* The alternatives: as many as asked for, best first, among equals the lowest id. */
GPU u32 sample_alternatives(struct sample_list l, u32 want, float norm, struct gpu_result *out)
{
    struct sample_shared *sh = sample_shared();
    if (gpu_thread() == 0)
        sh->n_top = 0;
    struct sample_order by = {BY_LOGPROB, norm, 0};
    sample_keep(l, want, by);
    for (u32 i = gpu_thread(); i < l.n; i += GPU_THREADS)
        if (sample_order_key(l, by, i)) {
            u32 at = gpu_atomic_add(&sh->n_top, 1);
            sh->top_id[at] = l.id[i];
            sh->top[at] = *sample_z(l, i) - norm;
        }
    gpu_sync();
    u32 n = sh->n_top, me = gpu_thread(), rank = 0;
    for (u32 i = 0; i < n && me < n; i++)
        rank += sample_key(sh->top[i], sh->top_id[i]) > sample_key(sh->top[me], sh->top_id[me]);
    if (me < n) {
        out->top_id[rank] = sh->top_id[me];
        out->top[rank] = sh->top[me];
    }
    return n;
}

/* From the raw logits. */
GPU void sample_logprobs(const struct sample_row *r, u32 token)
{
    const struct sample_side *side = &r->work->side[SAMPLE_LOGPROBS];
    float max = sample_key_value(side->best);
    float norm = max + sample_log(side->total);
    u32 want = MIN(r->s->top_logprobs, r->n), n = 0;
    if (want && max > -INFINITY)
        n = sample_alternatives(sample_list_of(r, SAMPLE_LOGPROBS), want, norm, r->out);
    if (gpu_thread() != 0)
        return;
    r->out->logprob = r->logits[token] - norm;
    r->out->n_top = n;
}

GPU_CALL void sample_choice(const struct op_sample *op, const struct gpu_run *run)
{
    sample_parts(op, run, [=](const struct sample_row *r, u32 from, u32 to) {
        struct sample_plan draw = {};
        if (!r->deep)
            return;
#pragma unroll 1
        for (u32 side = 0; side < SAMPLE_SIDES; side++) {
            struct sample_plan p =
                side == SAMPLE_DRAW ? sample_plan_draw(r) : sample_plan_logprobs(r);
            if (p.sure || p.end)
                sample_choose(r, side, p, from, to);
            draw = side == SAMPLE_DRAW ? p : draw;
        }
        if (!sample_arrive(r, from, to))
            return;
        u32 token = r->given ? r->out->token : sample_token(r, draw);
        if (r->logprobs) {
            sample_logprobs(r, token);
        } else if (gpu_thread() == 0) {
            r->out->logprob = 0;
            r->out->n_top = 0;
        }
        sample_put(op, run, r, token);
    });
}

/* Must the blocks meet for a second pass? The same in all. */
GPU bool sample_is_any_deep(const struct op_sample *op, const struct gpu_run *run)
{
    struct sample_shared *sh = sample_shared();
    bool deep = sh->row_of && sh->row.deep;
    for (u32 i = gpu_thread(); i < run->step->n_wants && !deep; i += GPU_THREADS) {
        const struct gpu_want *want = &run->step->wants[i];
        const struct gpu_sampling *s = &run->state.sampling[run->step->rows[want->row].slot];
        if (want->result != ~0u)
            deep =
                want->mask == WANT_GIVEN || sample_first(s, op->vocab) != CUT_NONE || s->logprobs;
    }
    return gpu_sync_any(deep);
}

/* Rows of which only the logits are wanted are done as they are. */
GPU void sample_skip(const struct op_sample *op, const struct gpu_step *s)
{
    if (gpu_block() != 0)
        return;
    for (u32 i = gpu_thread(); i < s->n_wants; i += GPU_THREADS)
        if (s->wants[i].result == ~0u)
            sample_done(op, s);
    if (s->n_wants == 0 && gpu_thread() == 0)
        sample_done(op, s);
}

GPU void sample_run(const struct op_sample *op, const struct gpu_run *run)
{
    if (gpu_thread() == 0)
        sample_shared()->row_of = 0;
    gpu_sync();
    sample_scores(op, run);
    sample_skip(op, run->step);
    if (!sample_is_any_deep(op, run))
        return;
    gpu_grid_sync(run->state.barrier);
    sample_counts(op, run);
    gpu_grid_sync(run->state.barrier);
    sample_choice(op, run);
}

#endif
