/* OP_ROPE: norm and rotation of query and key heads, keys and values into their pages. A warp takes
 * several heads of a token at a time, so that much is under way together: up to `most` slots of 128
 * dimensions, a head in 1, 2 or 4 of them; a lane has four neighbouring dimensions of each, in
 * registers.
 *
 * Shared memory, a warp: the heads, normed, for what they are rotated with, [slot][128] f32; cos
 * and sin of the token's position, [head_dim rounded up to 4] f32 each, such that dimension d
 * becomes x[d] cos[d] + x[d -+ half] sin[d]: 1 and 0 where nothing rotates.
 */
#ifndef ZIGCUDA_ATTENTION_ROPE_CUH
#define ZIGCUDA_ATTENTION_ROPE_CUH

#include "kernels/cuda/attention_tile.cuh"

enum { SLOT_DIMS = 128 };

static_assert(LIMIT_HEAD_DIM <= 4 * SLOT_DIMS, "a head has up to 4 slots");

/* A warp's heads [first, first + n) of a token's q, k and v heads. */
struct rope_heads {
    float *near, *cos, *sin; /* in shared memory */
    float *x;                /* the first head */
    u32 first, n;
    u32 queries, rotated; /* heads below are q; q or k */
    u32 dim, dims;        /* head_dim; of them rotated */
    u32 shift;            /* a head has 1 << shift slots */
};

/* First of this lane's dimensions of slot j, in its head. */
GPU u32 rope_dim(const struct rope_heads *h, u32 j)
{
    return (j & ((1u << h->shift) - 1)) * SLOT_DIMS + gpu_lane() * 4;
}

/* The angle is f32, as the reference models have it; it is reduced in f64. */
GPU void rope_angles(const struct rope_heads *h, const struct gpu_rope *rope, u32 pos)
{
    const float *freq = gpu_global(rope->freq);
    float scale = rope->scale, s, c;
    u32 half = h->dims / 2;
#pragma unroll 1
    for (u32 i = gpu_lane(); i < half; i += 32) {
        double half_turns = (double)gpu_mul((float)pos, freq[i]) * 0.31830988618379067154;
        gpu_sincospi((float)(half_turns - 2 * rint(half_turns * 0.5)), &s, &c);
        h->cos[i] = h->cos[i + half] = gpu_mul(c, scale);
        h->sin[i] = -gpu_mul(s, scale);
        h->sin[i + half] = gpu_mul(s, scale);
    }
    for (u32 i = h->dims + gpu_lane(); i < ROUND_UP(h->dim, 4u); i += 32) {
        h->cos[i] = 1;
        h->sin[i] = 0;
    }
}

/* v[slot] over all lanes and the slots of its head, each lane and slot alike. */
template <u32 most, bool largest> GPU void rope_reduce(u32 shift, u32 slots, float v[most])
{
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        if (j >= slots)
            break;
        v[j] = largest ? gpu_max_warp(v[j]) : gpu_sum_warp(v[j]);
    }
#pragma unroll 1
    for (u32 s = 0; s < shift; s++) {
        float other[most];
#pragma unroll
        for (u32 j = 0; j < most; j++)
            other[j] = s ? v[j ^ 2] : v[j ^ 1];
#pragma unroll
        for (u32 j = 0; j < most; j++)
            v[j] = largest ? fmaxf(v[j], other[j]) : v[j] + other[j];
    }
}

template <u32 most> GPU void rope_read(const struct rope_heads *h, u32 slots, float v[most][4])
{
#pragma unroll
    for (u32 j = 0; j < most; j++) { /* from the heads' start where there is nothing */
        u32 d = rope_dim(h, j);
        bool first = j < slots && d < h->dim, second = first && d + 2 < h->dim;
        const float *x = h->x + (j >> h->shift) * h->dim + d;
        float2 a = gpu_load<float2>(first ? x : h->x), b = gpu_load<float2>(second ? x + 2 : h->x);
        v[j][0] = first ? a.x : 0;
        v[j][1] = first ? a.y : 0;
        v[j][2] = second ? b.x : 0;
        v[j][3] = second ? b.y : 0;
    }
}

template <u32 most>
GPU void rope_norm(const struct op_attention *op, const struct rope_heads *h, u32 slots,
                   float v[most][4])
{
    const float *norm_q = op->norm_q, *norm_k = op->norm_k;
    float sum[most], eps = op->eps;
    if (!norm_q && !norm_k)
        return;
#pragma unroll
    for (u32 j = 0; j < most; j++)
        sum[j] = fmaf(v[j][0], v[j][0], gpu_mul(v[j][1], v[j][1])) +
                 fmaf(v[j][2], v[j][2], gpu_mul(v[j][3], v[j][3]));
    rope_reduce<most, false>(h->shift, slots, sum);
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 head = h->first + (j >> h->shift), d = MIN(rope_dim(h, j), h->dim - 2);
        const float *norm = head < h->queries ? norm_q : head < h->rotated ? norm_k : NULL;
        if (j >= slots)
            break;
        if (!norm)
            continue;
        float inverse = 1 / sqrtf(sum[j] / (float)h->dim + eps);
        float2 a = gpu_load<float2>(gpu_global(norm) + d);
        float2 b = gpu_load<float2>(gpu_global(norm) + MIN(d + 2, h->dim - 2));
        v[j][0] = gpu_mul(gpu_mul(v[j][0], inverse), a.x);
        v[j][1] = gpu_mul(gpu_mul(v[j][1], inverse), a.y);
        v[j][2] = gpu_mul(gpu_mul(v[j][2], inverse), b.x);
        v[j][3] = gpu_mul(gpu_mul(v[j][3], inverse), b.y);
    }
}

/* Rotates; ends with a barrier after which the heads in global memory may be overwritten. */
template <u32 most> GPU void rope_rotate(const struct rope_heads *h, u32 slots, float v[most][4])
{
    u32 half = h->dims / 2;
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        if (j >= slots)
            break;
        gpu_store<float4>(h->near + j * SLOT_DIMS + gpu_lane() * 4,
                          (float4){v[j][0], v[j][1], v[j][2], v[j][3]});
    }
    gpu_warp_sync();
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 d = rope_dim(h, j);
        const float *x = h->near + (j >> h->shift << h->shift) * SLOT_DIMS;
        if (j >= slots)
            break;
        if (h->first + (j >> h->shift) >= h->rotated || d >= h->dims)
            continue;
        float4 c = gpu_load<float4>(h->cos + d), s = gpu_load<float4>(h->sin + d), o;
        if (half % 4 == 0) {
            o = gpu_load<float4>(x + (d < half ? d + half : d - half));
        } else { /* four may be on either side, or not rotated: then times 0 */
            o.x = x[d < half ? d + half : d - half];
            o.y = x[d + 1 < half ? d + 1 + half : d + 1 - half];
            o.z = x[d + 2 < half ? d + 2 + half : d + 2 - half];
            o.w = x[d + 3 < half ? d + 3 + half : d + 3 - half];
        }
        v[j][0] = fmaf(v[j][0], c.x, gpu_mul(o.x, s.x));
        v[j][1] = fmaf(v[j][1], c.y, gpu_mul(o.y, s.y));
        v[j][2] = fmaf(v[j][2], c.z, gpu_mul(o.z, s.z));
        v[j][3] = fmaf(v[j][3], c.w, gpu_mul(o.w, s.w));
    }
    gpu_warp_sync();
}

/* Query heads in their own place: halves scaled by a power of two, then what undoes it. */
template <u32 most>
GPU void rope_write_q(const struct rope_heads *h, u32 slots, const float v[most][4])
{
    float largest[most];
    if (h->first >= h->queries)
        return;
#pragma unroll
    for (u32 j = 0; j < most; j++)
        largest[j] =
            fmaxf(fmaxf(fabsf(v[j][0]), fabsf(v[j][1])), fmaxf(fabsf(v[j][2]), fabsf(v[j][3])));
    rope_reduce<most, true>(h->shift, slots, largest);
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 i = j >> h->shift, d = rope_dim(h, j);
        float *x = h->x + i * h->dim;
        if (j >= slots || h->first + i >= h->queries)
            break;
        u32 exponent = MIN(267 - (gpu_bits(largest[j]) >> 23), 200u); /* 0 has none */
        float power = gpu_from_bits(exponent << 23);
        if (d < h->dim)
            gpu_store<u32>(x + d / 2, gpu_half2(gpu_mul(v[j][0], power), gpu_mul(v[j][1], power)));
        if (d + 2 < h->dim)
            gpu_store<u32>(x + d / 2 + 1,
                           gpu_half2(gpu_mul(v[j][2], power), gpu_mul(v[j][3], power)));
        if (d == 0)
            x[h->dim / 2] = gpu_from_bits((254 - exponent) << 23);
    }
}

/* Two halves within their range, as the CPU's pages have them. */
GPU u32 rope_saturated(float a, float b)
{
    return gpu_half2(fminf(fmaxf(a, -65504.0f), 65504.0f), fminf(fmaxf(b, -65504.0f), 65504.0f));
}

/* Key and value heads to position `key` of a page; 0 in the padding. k, v: of KV head 0. */
template <u32 most>
GPU void rope_write_kv(const struct rope_heads *h, u32 slots, u8 *k, u8 *v_page, u32 key,
                       const float v[most][4])
{
    u32 dim = ROUND_UP(h->dim, 16u), bytes = dim * (u32)(PAGE_KEYS * sizeof(u16));
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 head = h->first + (j >> h->shift), d = rope_dim(h, j);
        if (j >= slots)
            break;
        if (head < h->queries || d >= dim)
            continue;
        u32 a = rope_saturated(v[j][0], v[j][1]), b = rope_saturated(v[j][2], v[j][3]);
        if (head < h->rotated) {
            u8 *to = k + (size_t)(head - h->queries) * bytes;
            gpu_store<uint2>(to + attention_k_at(key, d) * sizeof(u16), (uint2){a, b});
            continue;
        }
        u8 *to = v_page + (size_t)(head - h->rotated) * bytes;
        to += attention_v_at(key, d) * sizeof(u16); /* d, d + 1, .. every 64 bytes */
        gpu_store<u16>(to, (u16)a);
        gpu_store<u16>(to + 64, (u16)(a >> 16));
        gpu_store<u16>(to + 128, (u16)b);
        gpu_store<u16>(to + 192, (u16)(b >> 16));
    }
}

template <u32 most>
GPU void rope_token(const struct op_attention *op, const struct gpu_run *run, u32 token,
                    struct rope_heads *h)
{
    const struct gpu_step *step = gpu_near(run->step);
    const struct gpu_row *row = gpu_global(step->rows) + gpu_global(step->token_row)[token];
    const struct gpu_rope *rope = row->flags & ROW_ROPE_LONG ? &op->rope_long : &op->rope;
    u32 pos = row->pos + token - row->first, slots = h->n << h->shift;
    const u32 *pages = gpu_global(run->state.pages) + (size_t)row->slot * run->state.pages_stride;
    u32 bytes = ROUND_UP(h->dim, 16u) * (u32)(PAGE_KEYS * sizeof(u16));
    size_t page = (size_t)(pages[pos / PAGE_KEYS] * op->kv_heads) * bytes;
    float v[most][4];
    h->x = gpu_global(op->qkv) + (size_t)token * op->stride + h->first * h->dim;
    h->dims = rope->dims;
    rope_read<most>(h, slots, v);
    if (h->first < h->rotated)
        rope_angles(h, rope, pos);
    rope_norm<most>(op, h, slots, v);
    rope_rotate<most>(h, slots, v);
    rope_write_q<most>(h, slots, v);
    rope_write_kv<most>(h, slots, gpu_global((u8 *)op->k) + page, gpu_global((u8 *)op->v) + page,
                        pos % PAGE_KEYS, v);
}

template <u32 most>
GPU_CALL void attention_rope(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    u32 heads = op->heads + 2 * op->kv_heads, warps = gpu_blocks() * GPU_WARPS;
    u32 tokens = gpu_near(run->step)->n_tokens;
    struct rope_heads h;
    h.queries = op->heads;
    h.rotated = op->heads + op->kv_heads;
    h.dim = op->head_dim;
    h.shift = h.dim <= SLOT_DIMS ? 0 : h.dim <= 2 * SLOT_DIMS ? 1 : 2;
    u32 slots = h.shift == 2 ? 4 : most, table = ROUND_UP(h.dim, 4u);
    h.near = (float *)gpu_shared() + gpu_warp() * (slots * SLOT_DIMS + 2 * table);
    h.cos = h.near + slots * SLOT_DIMS;
    h.sin = h.cos + table;
    u32 each = MIN(CEIL_DIV(tokens * heads, warps), slots >> h.shift);
    u32 pieces = CEIL_DIV(heads, each);
#pragma unroll 1
    for (u32 i = gpu_warp() * gpu_blocks() + gpu_block(); i < tokens * pieces; i += warps) {
        h.first = i % pieces * each;
        h.n = MIN(each, heads - h.first);
        rope_token<most>(op, run, i / pieces, &h);
    }
}

#endif
