/* What one thread block does in OP_SAMPLE (sample.cuh): sums and largest values over its threads,
 * cuts of a list of tokens, and the noise of the draw.
 *
 * Sets are cut by radix selection over (key, id), not by sorting: the cut is the place where the
 * kept mass first reaches its target. A token that was dropped is NaN in its list. All functions
 * that take a list are called by all threads together, and end with a barrier.
 */
#ifndef ZIGCUDA_SAMPLE_SELECT_CUH
#define ZIGCUDA_SAMPLE_SELECT_CUH

#include "kernels/cuda/gpu.cuh"

enum { SELECT_BUCKETS = GPU_THREADS, SELECT_ID_BITS = 24, SAMPLE_NEAR = 2048 };

#define SELECT_NONE ~0u

/* The first operation that drops tokens. */
enum sample_first { CUT_NONE, CUT_TOP_K, CUT_TYPICAL, CUT_TOP_P, CUT_MIN_P };

struct sample_row {
    const struct gpu_sampling *s;
    struct sample_work *work;
    struct gpu_result *out;
    const float *logits;
    float *z;  /* the processed logits, where they differ */
    u32 *list; /* [SAMPLE_SIDES][stride] */
    u16 *counts;
    const u8 *prompt;
    const u32 *fits; /* NULL, or bits: the tokens that may come */
    float t;         /* temperature; 1 of greedy rows */
    u32 n, stride, slot, outputs, position;
    u32 cut; /* enum sample_first */
    u32 seed[2];
    bool noise, deep; /* what its scores are; is it not done with them? */
    bool given;       /* it is not drawn, but the token that `out` has */
    bool masked, biased, penalised;
    bool last; /* of its row */
    bool logprobs;
};

struct sample_found {
    u64 above; /* sum of the buckets before */
    u32 bucket;
};

struct sample_shared {
    u64 warp[GPU_WARPS];
    u64 mass[SELECT_BUCKETS], key[SELECT_BUCKETS];
    u32 count[SELECT_BUCKETS];
    struct sample_found found;
    struct sample_row row; /* of which a block has a part, and which one: want + 1 */
    u32 row_of;
    u32 n_top;
    float top[LIMIT_LOGPROBS];
    u32 top_id[LIMIT_LOGPROBS];
    union {
        struct {
            u64 mass[SAMPLE_BUCKETS];
            u32 count[SAMPLE_BUCKETS];
        } buckets;
        struct {
            float z[SAMPLE_NEAR];
            u32 id[SAMPLE_NEAR];
        } list;
    };
};

static_assert(sizeof(struct sample_shared) <= SAMPLE_SHARED_BYTES, "what step.h promises");

GPU struct sample_shared *sample_shared(void)
{
    return gpu_near((struct sample_shared *)gpu_shared());
}

/* --- keys ---------------------------------------------------------------------------------- */

/* Unsigned integers in the order of floats; never 0 for a number. -0 is 0. */
GPU u32 sample_ordered(float v)
{
    u32 bits = gpu_bits(v + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Larger values first, among equals the lower id; 0 for a token that was dropped. */
GPU u64 sample_key(float v, u32 id)
{
    return v == v ? (u64)sample_ordered(v) << SELECT_ID_BITS | ((1u << SELECT_ID_BITS) - 1 - id)
                  : 0;
}

GPU float sample_key_value(u64 key) /* -infinity of no key */
{
    u32 v = (u32)(key >> SELECT_ID_BITS);
    return key ? gpu_from_bits(v >> 31 ? v ^ 0x80000000u : ~v) : -INFINITY;
}

/* 0 when there was nothing above -infinity. */
GPU u32 sample_key_id(u64 key)
{
    u32 mask = (1u << SELECT_ID_BITS) - 1;
    return sample_key_value(key) > -INFINITY ? mask - ((u32)key & mask) : 0;
}

GPU u64 sample_mass(float probability)
{
    return probability > 0 ? (u64)(probability * 0x1p40f) : 0;
}

/* Of a total of masses, what reaches the share p; at least 1. */
GPU u64 sample_share(float p, u64 total)
{
    double target = ceil((double)p * (double)total);
    return target < 1 ? 1 : (u64)target;
}

/* ln of a total of masses. */
GPU float sample_log(u64 total)
{
    return (float)log((double)total * 0x1p-40);
}

/* --- all threads of a block together ------------------------------------------------------- */

GPU u64 sample_shuffle(u64 v, u32 lane)
{
    return (u64)gpu_shuffle((u32)(v >> 32), lane) << 32 | gpu_shuffle((u32)v, lane);
}

/* f over the v of all threads. */
template <typename F> GPU u64 sample_reduce(u64 v, F f)
{
    struct sample_shared *sh = sample_shared();
    for (u32 mask = 16; mask; mask /= 2)
        v = f(v, sample_shuffle(v, gpu_lane() ^ mask));
    gpu_sync();
    if (gpu_lane() == 0)
        sh->warp[gpu_warp()] = v;
    gpu_sync();
    v = sh->warp[0];
#pragma unroll
    for (u32 w = 1; w < GPU_WARPS; w++)
        v = f(v, sh->warp[w]);
    return v;
}

GPU u64 sample_max(u64 v)
{
    return sample_reduce(v, [](u64 a, u64 b) { return a > b ? a : b; });
}

GPU u64 sample_sum(u64 v)
{
    return sample_reduce(v, [](u64 a, u64 b) { return a + b; });
}

/* Sum of v over the threads before this one. */
GPU u64 sample_sum_before(u64 v)
{
    struct sample_shared *sh = sample_shared();
    u64 sum = v;
    for (u32 d = 1; d < 32; d *= 2) {
        u64 other = sample_shuffle(sum, (gpu_lane() - d) & 31);
        sum += gpu_lane() >= d ? other : 0;
    }
    gpu_sync();
    if (gpu_lane() == 31)
        sh->warp[gpu_warp()] = sum;
    gpu_sync();
    for (u32 w = 0; w < gpu_warp(); w++)
        sum += sh->warp[w];
    return sum - v;
}

/* The first of `each` buckets a thread with which the sum of size(bucket) reaches the target. */
template <u32 each, typename S> GPU struct sample_found sample_find(u64 target, S size)
{
    struct sample_shared *sh = sample_shared();
    u32 first = gpu_thread() * each, b = 0;
    u64 mine = 0;
    for (u32 i = 0; i < each; i++)
        mine += size(first + i);
    u64 above = sample_sum_before(mine);
    if (above < target && target <= above + mine) {
        for (; above + size(first + b) < target; b++)
            above += size(first + b);
        sh->found = {above, first + b};
    } else if (gpu_thread() == GPU_THREADS - 1 && above + mine < target) {
        sh->found = {above + mine, SELECT_NONE};
    }
    gpu_sync();
    return sh->found;
}

/* --- lists of tokens ----------------------------------------------------------------------- */

struct sample_list {
    float *z;
    const u32 *id;
    u32 n;
    bool far; /* z is the whole row: entry i has z[id[i]], not z[i] */
};

GPU float *sample_z(struct sample_list l, u32 i)
{
    return &l.z[l.far ? l.id[i] : i];
}

/* By what a list is cut. */
enum sample_order_kind { BY_VALUE, BY_WEIGHT, BY_SURPRISE, BY_LOGPROB };

struct sample_order {
    u32 kind;
    float norm;    /* weight: exp(z - norm); logprob: z - norm */
    float entropy; /* surprise: how near -logprob is to it */
};

/* 0 of a token that was dropped. Equal values stay together. */
GPU u64 sample_order_key(struct sample_list l, struct sample_order by, u32 i)
{
    float z = *sample_z(l, i);
    if (by.kind == BY_VALUE)
        return sample_key(z, 0);
    float v = z - by.norm;
    v = by.kind == BY_WEIGHT ? expf(v) : by.kind == BY_SURPRISE ? -fabsf(-v - by.entropy) : v;
    return sample_key(v, l.id[i]);
}

GPU u64 sample_order_mass(struct sample_list l, struct sample_order by, u32 i)
{
    if (by.kind == BY_VALUE || by.kind == BY_LOGPROB)
        return 1;
    return sample_mass(expf(*sample_z(l, i) - by.norm));
}

/* Adds to bucket b. Lanes that have the bucket in common do it at once: whole warps may. */
GPU void sample_tally(bool in, u32 b, u64 mass)
{
    const u64 one = (u64)1 << 48; /* 32 masses lie below */
    struct sample_shared *sh = sample_shared();
    for (u32 who = gpu_ballot(in), round = 0; who; who = gpu_ballot(in), round++) {
        u32 lead = 31 - gpu_leading_zeros(who), of = gpu_shuffle(b, lead);
        bool mine = in && (b == of || round == 2);
        u64 sum = mine ? one + mass : 0;
        for (u32 mask = 16; mask && round < 2; mask /= 2)
            sum += sample_shuffle(sum, gpu_lane() ^ mask);
        if (round < 2 ? gpu_lane() == lead : mine) {
            gpu_atomic_add64(&sh->mass[b], sum & (one - 1));
            gpu_atomic_add(&sh->count[b], (u32)(sum / one));
        }
        in = in && !mine;
    }
}

/* The least key to keep, so that the fewest tokens, largest key first, have at least `target`
 * together; 1 when all of them have less. */
GPU u64 sample_cut(struct sample_list l, u64 target, struct sample_order by)
{
    struct sample_shared *sh = sample_shared();
    u64 prefix = 0;
    for (int shift = 48; shift >= 0; shift -= 8) {
        gpu_sync();
        sh->mass[gpu_thread()] = sh->count[gpu_thread()] = 0;
        gpu_sync();
        for (u32 i = gpu_thread(); i < ROUND_UP(l.n, (u32)GPU_THREADS); i += GPU_THREADS) {
            u64 k = i < l.n ? sample_order_key(l, by, i) : 0;
            bool in = k && k >> shift >> 8 == prefix;
            u32 b = SELECT_BUCKETS - 1 - ((u32)(k >> shift) & 255);
            sample_tally(in, b, in ? sample_order_mass(l, by, i) : 0);
        }
        gpu_sync();
        struct sample_found found = sample_find<1>(target, [=](u32 b) { return sh->mass[b]; });
        if (found.bucket == SELECT_NONE)
            return 1;
        prefix = prefix << 8 | (SELECT_BUCKETS - 1 - found.bucket);
        target -= found.above;
        if (sh->count[found.bucket] == 1)
            return prefix << shift;
    }
    return prefix;
}

/* Keeps the fewest tokens, largest key first, that have at least `target` together, and what has
 * the key of the last of them; all when they have less. A list that is not longer than the block is
 * cut by counting what is above each token. */
GPU_CALL void sample_keep(struct sample_list l, u64 target, struct sample_order by)
{
    struct sample_shared *sh = sample_shared();
    u32 me = gpu_thread();
    if (l.n > GPU_THREADS) {
        u64 cut = sample_cut(l, target, by);
        gpu_sync(); /* others may still read z */
        for (u32 i = me; i < l.n; i += GPU_THREADS)
            if (sample_order_key(l, by, i) < cut)
                *sample_z(l, i) = NAN;
        gpu_sync();
        return;
    }
    u64 mine = me < l.n ? sample_order_key(l, by, me) : 0, above = 0;
    gpu_sync();
    sh->key[me] = mine;
    sh->mass[me] = mine ? sample_order_mass(l, by, me) : 0;
    gpu_sync();
#pragma unroll 4
    for (u32 i = 0; i < l.n; i++)
        above += sh->key[i] > mine ? sh->mass[i] : 0;
    if (mine && above >= target)
        *sample_z(l, me) = NAN;
    gpu_sync();
}

/* Sum of f(z) over the list. */
template <typename F> GPU u64 sample_total(struct sample_list l, F f)
{
    u64 mine = 0;
    for (u32 i = gpu_thread(); i < l.n; i += GPU_THREADS)
        mine += f(*sample_z(l, i));
    return sample_sum(mine);
}

/* Mass of the list. */
GPU u64 sample_weights(struct sample_list l, float max)
{
    return sample_total(l, [=](float z) { return sample_mass(expf(z - max)); });
}

/* A token's part of the entropy, as a mass; lp = ln of its probability. */
GPU u64 sample_entropy(float lp)
{
    return lp > -80 ? sample_mass(expf(lp) * fmaxf(-lp, 0)) : 0;
}

/* --- the draw ------------------------------------------------------------------------------ */

/* Philox4x32-10, first word (Salmon et al. 2011). */
GPU u32 sample_philox(u32 c0, u32 c1, u32 k0, u32 k1)
{
    u32 c2 = 0, c3 = 0;
#pragma unroll
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

/* -ln(-ln u), u = (w + 1/2) / 2^24, w the upper 24 bits. Both u below 1/2 and 1 - u above are exact
 * in f32. */
GPU_CALL float sample_gumbel(u32 word)
{
    u32 w = word >> 8;
    float e = w < 1u << 23 ? -logf(((float)w + 0.5f) * 0x1p-24f)
                           : -log1pf(-(((float)((1u << 24) - 1 - w) + 0.5f) * 0x1p-24f));
    return -logf(e);
}

/* At least that: -ln u > 1 - u >= 2^-(zeros + 1), with so many leading zeros of ~word. */
GPU float sample_gumbel_bound(u32 word)
{
    return 0.6932f * (float)(gpu_leading_zeros(~word) + 1);
}

#define SAMPLE_NOISE_MAX 17.4f /* -ln(-ln(1 - 2^-25)) = 17.33 */

struct sample_top { /* of a thread: -infinity and any id when there is none */
    float v;
    u32 id;
};

GPU u64 sample_top_key(struct sample_top top)
{
    return top.v > -INFINITY ? sample_key(top.v, top.id) : 0;
}

GPU u32 sample_word(const struct sample_row *r, u32 id)
{
    return sample_philox(r->position, id, r->seed[0], r->seed[1]);
}

/* Token id of value v with the noise of its word, unless what is there is certainly better; NaN
 * never counts. */
GPU void sample_draw_word(struct sample_top *best, float v, u32 id, u32 word)
{
    if (!(v + sample_gumbel_bound(word) >= best->v))
        return;
    v += sample_gumbel(word);
    if (v > best->v || (v == best->v && id < best->id))
        *best = {v, id};
}

/* The same where few are drawn from. */
GPU void sample_draw(struct sample_top *best, float v, u32 id, const struct sample_row *r)
{
    if (v + SAMPLE_NOISE_MAX >= best->v)
        sample_draw_word(best, v, id, sample_word(r, id));
}

#endif
