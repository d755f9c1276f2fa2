/* OP_ROPE: norm and rotation of query and key heads, keys and values into their pages; and the
 * turning of single heads for attention_turn.cuh.
 *
 * A block takes the tokens of a row that share a page, up to 16, and up to 8 slots of heads at a
 * time; a slot has 128 dimensions, a head 1, 2 or 4 of them, or of two heads of 64 each half a slot
 * (`pairs`); and a lane has four neighbouring dimensions of each slot, in registers. A warp has the
 * tokens w and w + 8, and reads the next one's heads while it turns one's. A whole page of keys or
 * values is put together in shared memory, so that it is written in one piece; of other pages each
 * warp writes its own elements.
 *
 * Shared memory: struct plan_shared; a warp's heads, normed, for what they are rotated with,
 * [slot][128] f32; cos and sin of the tokens' angles, [token][dims / 2] f32 each; the pages of the
 * heads, where there is room for them, their chunks ROPE_CHUNK_BYTES apart because of the banks.
 */
#ifndef ZIGCUDA_ATTENTION_ROPE_CUH
#define ZIGCUDA_ATTENTION_ROPE_CUH

#include "kernels/cuda/attention_bytes.cuh"
#include "kernels/cuda/attention_plan.cuh"

enum {
    SLOT_DIMS = 128,
    ROPE_SLOTS = 8,
    ROPE_CHUNK_BYTES = CHUNK_BYTES + 16,
    ROPE_TURNS = PAGE_KEYS / GPU_WARPS, /* tokens a warp */
};

static_assert(LIMIT_HEAD_DIM <= 4 * SLOT_DIMS, "a head has up to 4 slots");

/* Does OP_ATTENTION of `step` turn heads itself, so that OP_ROPE has nothing to do? */
GPU bool attention_is_fused(const struct gpu_run *run)
{
    const struct gpu_step *step = gpu_near(run->step);
    return step->n_tokens == step->n_rows;
}

/* A head has 1 << shift slots. */
GPU u32 rope_shift(u32 dim)
{
    return dim <= SLOT_DIMS ? 0 : dim <= 2 * SLOT_DIMS ? 1 : 2;
}

/* Warps of a block that turn one head each in 4 KiB of shared memory. */
GPU u32 rope_warps(u32 shift)
{
    return GPU_WARPS >> shift;
}

/* A warp's heads [first, first + n) of a token's q, k and v heads. */
struct rope_heads {
    float *near;            /* in shared memory */
    const float *cos, *sin; /* [dims / 2], in shared memory */
    float *x;               /* the first head */
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

/* The same, the head's number, and where the head begins in `near`; of `pairs`, too. */
template <bool pairs> GPU u32 rope_dim_of(const struct rope_heads *h, u32 j)
{
    return pairs ? gpu_lane() % 16 * 4 : rope_dim(h, j);
}

template <bool pairs> GPU u32 rope_head_of(const struct rope_heads *h, u32 j)
{
    return pairs ? j * 2 + gpu_lane() / 16 : j >> h->shift;
}

template <bool pairs> GPU u32 rope_near_of(const struct rope_heads *h, u32 j)
{
    return pairs ? j * SLOT_DIMS + gpu_lane() / 16 * (SLOT_DIMS / 2)
                 : (j >> h->shift << h->shift) * SLOT_DIMS;
}

template <bool pairs> GPU u32 rope_slots_of(const struct rope_heads *h)
{
    return pairs ? h->n / 2 : h->n << h->shift;
}

/* cos and sin of pair i of the token at `pos`. The angle is f32, as the reference models have it;
 * it is reduced in f64. */
GPU void rope_angle(const struct gpu_rope *rope, u32 pos, u32 i, float *cos, float *sin)
{
    float s, c, scale = rope->scale;
    double half_turns = (double)gpu_mul((float)pos, gpu_global(rope->freq)[i]);
    half_turns *= 0.31830988618379067154;
    gpu_sincospi((float)(half_turns - 2 * rint(half_turns * 0.5)), &s, &c);
    *cos = gpu_mul(c, scale);
    *sin = gpu_mul(s, scale);
}

/* v[slot] over all lanes and the slots of its head, each lane and slot alike. Of `pairs` over half
 * of the lanes: in the same order, less the other half's zeros. */
template <u32 most, bool largest, bool pairs = false>
GPU void rope_reduce(u32 shift, u32 slots, float v[most])
{
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        if (j >= slots)
            break;
        if (pairs)
            for (u32 mask = 8; mask; mask /= 2) {
                const float other = gpu_shuffle_xor(v[j], mask);
                v[j] = largest ? fmaxf(v[j], other) : v[j] + other;
            }
        else
            v[j] = largest ? gpu_max_warp(v[j]) : gpu_sum_warp(v[j]);
    }
#pragma unroll 1
    for (u32 s = 0; s < shift; s++) {
        float other[most];
#pragma unroll
        for (u32 j = 0; j < most; j++)
            other[j] = s ? v[(j ^ 2) % most] : v[(j ^ 1) % most];
#pragma unroll
        for (u32 j = 0; j < most; j++)
            v[j] = largest ? fmaxf(v[j], other[j]) : v[j] + other[j];
    }
}

/* `plain`: slots without a gap, aligned to 16 bytes. */
template <u32 most, bool plain>
GPU void rope_read(const struct rope_heads *h, u32 slots, float v[most][4])
{
#pragma unroll
    for (u32 j = 0; j < most; j++) { /* from the heads' start where there is nothing */
        if (plain) {
            float4 f = gpu_load<float4>(h->x + (j < slots ? j : 0) * SLOT_DIMS + gpu_lane() * 4);
            v[j][0] = f.x;
            v[j][1] = f.y;
            v[j][2] = f.z;
            v[j][3] = f.w;
            continue;
        }
        u32 d = rope_dim(h, j);
        bool first = j < slots && d < h->dim, second = first && d + 2 < h->dim;
        const float *x = h->x + (j >> h->shift) * h->dim + d;
        float2 a = gpu_ask2(first ? x : h->x), b = gpu_ask2(second ? x + 2 : h->x);
        v[j][0] = first ? a.x : 0;
        v[j][1] = first ? a.y : 0;
        v[j][2] = second ? b.x : 0;
        v[j][3] = second ? b.y : 0;
    }
}

/* A warp together: is any of it still to come (step.h, NOT_YET)? Then it is time to ask again. */
template <u32 most> GPU bool rope_missing(const float v[most][4])
{
    bool missing = false;
#pragma unroll
    for (u32 j = 0; j < most; j++)
        missing |= gpu_missing((float4){v[j][0], v[j][1], v[j][2], v[j][3]});
    missing = gpu_ballot(missing) != 0;
    if (missing)
        gpu_pause();
    return missing;
}

/* Query and key heads of 128 dimensions times the weights that come behind their rotation. */
template <u32 most>
GPU void rope_weigh(const struct op_attention *op, const struct rope_heads *h, float v[most][4])
{
    if (!op->turned_q)
        return;
    const float4 q = gpu_load<float4>(gpu_global(op->turned_q) + gpu_lane() * 4);
    const float4 k = gpu_load<float4>(gpu_global(op->turned_k) + gpu_lane() * 4);
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        const bool query = h->first + j < h->queries;
        if (h->first + j >= h->rotated)
            continue;
        v[j][0] = gpu_mul(v[j][0], query ? q.x : k.x);
        v[j][1] = gpu_mul(v[j][1], query ? q.y : k.y);
        v[j][2] = gpu_mul(v[j][2], query ? q.z : k.z);
        v[j][3] = gpu_mul(v[j][3], query ? q.w : k.w);
    }
}

template <u32 most, bool pairs = false>
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
    rope_reduce<most, false, pairs>(h->shift, slots, sum);
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 head = h->first + rope_head_of<pairs>(h, j);
        u32 d = MIN(rope_dim_of<pairs>(h, j), h->dim - 2);
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
template <u32 most, bool pairs = false>
GPU void rope_rotate(const struct rope_heads *h, u32 slots, float v[most][4])
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
        u32 d = rope_dim_of<pairs>(h, j), i = d < half ? d : d - half;
        const float *x = h->near + rope_near_of<pairs>(h, j);
        if (j >= slots)
            break;
        if (h->first + rope_head_of<pairs>(h, j) >= h->rotated || d >= h->dims)
            continue;
        if (half % 4 == 0) {
            float4 c = gpu_load<float4>(h->cos + i), s = gpu_load<float4>(h->sin + i);
            float4 o = gpu_load<float4>(x + (d < half ? d + half : i));
            float sign = d < half ? -1 : 1;
            v[j][0] = fmaf(v[j][0], c.x, gpu_mul(o.x, sign * s.x));
            v[j][1] = fmaf(v[j][1], c.y, gpu_mul(o.y, sign * s.y));
            v[j][2] = fmaf(v[j][2], c.z, gpu_mul(o.z, sign * s.z));
            v[j][3] = fmaf(v[j][3], c.w, gpu_mul(o.w, sign * s.w));
            continue;
        }
        for (u32 e = 0; e < 4; e++) { /* four may be on either side, or not rotated */
            i = d + e < half ? d + e : d + e - half;
            float sign = d + e < half ? -1 : 1;
            if (d + e < h->dims)
                v[j][e] = fmaf(v[j][e], h->cos[i],
                               gpu_mul(x[d + e < half ? d + e + half : i], sign * h->sin[i]));
        }
    }
    gpu_warp_sync();
}

template <u32 most, bool pairs = false>
GPU void rope_largest(u32 shift, u32 slots, const float v[most][4], float largest[most])
{
#pragma unroll
    for (u32 j = 0; j < most; j++)
        largest[j] =
            fmaxf(fmaxf(fabsf(v[j][0]), fabsf(v[j][1])), fmaxf(fabsf(v[j][2]), fabsf(v[j][3])));
    rope_reduce<most, true, pairs>(shift, slots, largest);
}

/* A query head is multiplied by 2^(exponent - 127); 0 has none of its own. */
GPU u32 rope_exponent(float largest)
{
    return MIN(267 - (gpu_bits(largest) >> 23), 200u);
}

GPU float rope_undo(u32 exponent)
{
    return gpu_from_bits((254 - exponent) << 23);
}

/* What scores of a query at `pos` are multiplied by. (pos + 1/2) / span is at least half a position
 * away from a whole number, which rounding does not bridge below 2^20 (LIMIT_CONTEXT). */
GPU float rope_query_scale(const struct op_attention *op, u32 pos)
{
    const u32 span = (u32)(((float)pos + 0.5f) * op->query_part);
    return op->query_scale ? gpu_global(op->query_scale)[span] : 1;
}

/* Query heads of the token at `pos` in their own place: halves scaled by a power of two, then what
 * undoes it. */
template <u32 most, bool pairs>
GPU void rope_write_q(const struct op_attention *op, const struct rope_heads *h, u32 slots, u32 pos,
                      const float v[most][4])
{
    float largest[most];
    if (h->first >= h->queries)
        return;
    const float scale = rope_query_scale(op, pos);
    rope_largest<most, pairs>(h->shift, slots, v, largest);
#pragma unroll
    for (u32 j = 0; j < most; j++) {
        u32 i = rope_head_of<pairs>(h, j), d = rope_dim_of<pairs>(h, j);
        float *x = h->x + i * h->dim;
        if (j >= slots || h->first + i >= h->queries)
            break;
        u32 exponent = rope_exponent(largest[j]);
        float power = gpu_from_bits(exponent << 23);
        uint2 to = {gpu_half2(gpu_mul(v[j][0], power), gpu_mul(v[j][1], power)),
                    gpu_half2(gpu_mul(v[j][2], power), gpu_mul(v[j][3], power))};
        if (d + 2 < h->dim)
            gpu_store<uint2>(x + d / 2, to);
        else if (d < h->dim)
            gpu_store<u32>(x + d / 2, to.x);
        if (d == 0)
            x[h->dim / 2] = gpu_mul(rope_undo(exponent), scale);
    }
}

/* Two halves within their range, as the CPU's pages have them. */
GPU u32 rope_saturated(float a, float b)
{
    return gpu_half2(fminf(fmaxf(a, -65504.0f), 65504.0f), fminf(fmaxf(b, -65504.0f), 65504.0f));
}

/* Dimensions d.. d + 3 of a key, or a value, to a page of its head. */
GPU void rope_put_kv(u8 *page, bool is_key, u32 key, u32 d, const float v[4])
{
    u32 a = rope_saturated(v[0], v[1]), b = rope_saturated(v[2], v[3]);
    if (is_key) {
        gpu_store<uint2>(page + attention_k_at(key, d) * sizeof(u16), (uint2){a, b});
        return;
    }
    page += attention_v_at(key, d) * sizeof(u16); /* d, d + 1, .. every 64 bytes */
    gpu_store<u16>(page, (u16)a);
    gpu_store<u16>(page + 64, (u16)(a >> 16));
    gpu_store<u16>(page + 128, (u16)b);
    gpu_store<u16>(page + 192, (u16)(b >> 16));
}

/* The same to a page of bytes. scales: of the page. */
GPU void rope_put_bytes(u8 *page, u8 *scales, bool is_key, u32 key, u32 d, const float v[4],
                        struct kv_scale scale)
{
    const u32 bytes = kv_bytes(v, scale.inverse);
    if (d == 0)
        gpu_store<u16>(scales + kv_scale_at(is_key, key) * sizeof(u16), (u16)scale.half);
    if (is_key) {
        gpu_store<u32>(page + attention_k_at(key, d), bytes);
        return;
    }
    page += attention_v_at(key, d); /* d, d + 1, .. every 32 bytes */
#pragma unroll
    for (u32 e = 0; e < 4; e++)
        gpu_store<u8>(page + e * 32, (u8)(bytes >> e * 8));
}

/* --- the operation ------------------------------------------------------------------------- */

/* The tokens of a row that share a page, and where things are. */
struct rope_group {
    u32 token, pos, n; /* of the step; of its first; tokens */
    u32 page;
    const struct gpu_rope *rope;
};

GPU struct rope_group rope_group(const struct op_attention *op, const struct gpu_run *run,
                                 u32 index)
{
    u32 at;
    index = attention_find(run, index, &at);
    const struct gpu_row *row = gpu_global(gpu_near(run->step)->rows) + at;
    u32 page = row->pos / PAGE_KEYS + index, end = row->pos + row->n;
    struct rope_group g;
    g.pos = MAX(row->pos, page * PAGE_KEYS);
    g.n = MIN(end, (page + 1) * PAGE_KEYS) - g.pos;
    g.token = row->first + g.pos - row->pos;
    g.page = gpu_global(run->state.pages)[(size_t)row->slot * run->state.pages_stride + page];
    g.rope = row->flags & ROW_ROPE_LONG ? &op->rope_long : &op->rope;
    return g;
}

/* angles: [token][cos, sin][dims / 2]. Begins and ends with a barrier. */
GPU void rope_fill_angles(const struct rope_group *g, float *angles)
{
    u32 half = g->rope->dims / 2;
    gpu_sync();
#pragma unroll 1
    for (u32 i = gpu_thread(); i < g->n * half; i += GPU_THREADS) {
        float *at = angles + i / half * half * 2 + i % half;
        rope_angle(g->rope, g->pos + i / half, i % half, at, at + half);
    }
    gpu_sync();
}

/* Chunk c of a page of bytes, and with the first one its scales, from shared memory. */
GPU void rope_write_chunk(u8 *page, u32 chunks, u32 c, const u8 *from)
{
    const u32 lane = gpu_lane();
    gpu_store<uint2>(page + c * BYTES_CHUNK + lane * 8, gpu_load<uint2>(from + lane * 8));
    if (c == 0 && lane < PAGE_KEYS / 2)
        gpu_store<u32>(page + chunks * BYTES_CHUNK + lane * 4,
                       gpu_load<u32>(from + BYTES_CHUNK + lane * 4));
}

/* Writes the pages of the key and value heads of a piece, which are all in shared memory. */
GPU void rope_write_pages(const struct op_attention *op, const struct rope_heads *h, u32 page,
                          const u8 *pages)
{
    u32 chunks = CEIL_DIV(h->dim, 16u), lane_at = gpu_lane() * 16;
#pragma unroll 1
    for (u32 i = gpu_warp(); i < h->n * chunks; i += GPU_WARPS) {
        u32 head = h->first + i / chunks;
        bool key = head < h->rotated;
        if (head < h->queries)
            continue;
        u8 *to = gpu_global(key ? op->k : op->v);
        const u8 *from = pages + i * ROPE_CHUNK_BYTES;
        to += (size_t)(page * op->kv_heads + head - (key ? h->queries : h->rotated)) *
              PAGE_HEAD_BYTES(h->dim, op->int8);
        if (op->int8)
            rope_write_chunk(to, chunks, i % chunks, from);
        else
            gpu_store<uint4>(to + i % chunks * CHUNK_BYTES + lane_at,
                             gpu_load<uint4>(from + lane_at));
    }
}

/* rope_write_kv to pages of bytes; in shared memory their scales stand behind the first chunk. */
template <bool near, bool pairs>
GPU void rope_write_bytes(const struct op_attention *op, const struct rope_heads *h, u32 page,
                          u32 key, u8 *pages, const float v[ROPE_SLOTS][4])
{
    u32 dim = ROUND_UP(h->dim, 16u), slots = rope_slots_of<pairs>(h);
    float largest[ROPE_SLOTS];
    rope_largest<ROPE_SLOTS, pairs>(h->shift, slots, v, largest);
#pragma unroll
    for (u32 j = 0; j < ROPE_SLOTS; j++) {
        u32 i = rope_head_of<pairs>(h, j), head = h->first + i, d = rope_dim_of<pairs>(h, j);
        bool is_key = head < h->rotated;
        if (j >= slots)
            break;
        if (head < h->queries || d >= dim)
            continue;
        const struct kv_scale scale = kv_scale_of(largest[j]);
        if (near) {
            u8 *to = gpu_near(pages) + i * (dim / 16) * ROPE_CHUNK_BYTES;
            rope_put_bytes(to + d / 16 * (ROPE_CHUNK_BYTES - BYTES_CHUNK), to + BYTES_CHUNK, is_key,
                           key, d, v[j], scale);
            continue;
        }
        u32 at = page * op->kv_heads + head - (is_key ? h->queries : h->rotated);
        u8 *to = gpu_global(is_key ? op->k : op->v) + (size_t)at * PAGE_HEAD_BYTES(h->dim, true);
        rope_put_bytes(to, to + dim * PAGE_KEYS, is_key, key, d, v[j], scale);
    }
}

/* The key and value heads of a token; `near`: to the pages in shared memory. */
template <bool near, bool pairs>
GPU void rope_write_kv(const struct op_attention *op, const struct rope_heads *h, u32 page, u32 key,
                       u8 *pages, const float v[ROPE_SLOTS][4])
{
    u32 dim = ROUND_UP(h->dim, 16u), slots = rope_slots_of<pairs>(h);
#pragma unroll
    for (u32 j = 0; j < ROPE_SLOTS; j++) {
        u32 i = rope_head_of<pairs>(h, j), head = h->first + i, d = rope_dim_of<pairs>(h, j);
        bool is_key = head < h->rotated;
        if (j >= slots)
            break;
        if (head < h->queries || d >= dim)
            continue;
        if (near) {
            u32 at =
                (i * (dim / 16) * ROPE_CHUNK_BYTES) + d / 16 * (ROPE_CHUNK_BYTES - CHUNK_BYTES);
            rope_put_kv(gpu_near(pages) + at, is_key, key, d, v[j]);
            continue;
        }
        u32 at = page * op->kv_heads + head - (is_key ? h->queries : h->rotated);
        rope_put_kv(gpu_global(is_key ? op->k : op->v) + (size_t)at * dim * PAGE_KEYS * 2, is_key,
                    key, d, v[j]);
    }
}

/* A warp's turn: a token of a group and heads of it. */
struct rope_turn {
    struct rope_group group;
    u32 index, piece; /* of the group; of the heads */
    u32 token;        /* of the group; it may have fewer */
};

template <u32 DIM>
GPU void rope_ask(const struct op_attention *op, const struct rope_turn *t, u32 each,
                  struct rope_heads *h, float v[ROPE_SLOTS][4])
{
    u32 heads = h->rotated + op->kv_heads;
    h->first = t->piece * each;
    h->n = t->token < t->group.n ? MIN(each, heads - h->first) : 0;
    h->x = gpu_global(op->qkv) + h->first * h->dim;
    h->x += (size_t)(t->group.token + MIN(t->token, t->group.n - 1)) * op->stride;
    rope_read<ROPE_SLOTS, DIM != 0>(h, rope_slots_of<DIM == SLOT_DIMS / 2>(h), v);
}

/* Heads of a token, read to written. */
template <u32 DIM>
GPU void rope_do(const struct op_attention *op, const struct rope_turn *t, struct rope_heads *h,
                 const float *angles, u8 *pages, float v[ROPE_SLOTS][4])
{
    constexpr bool pairs = DIM == SLOT_DIMS / 2;
    u32 slots = rope_slots_of<pairs>(h), key = (t->group.pos + t->token) % PAGE_KEYS;
    if (h->n == 0)
        return;
    h->dims = DIM ? DIM : t->group.rope->dims;
    h->cos = angles + t->token * h->dims;
    h->sin = h->cos + h->dims / 2;
    rope_norm<ROPE_SLOTS, pairs>(op, h, slots, v);
    rope_rotate<ROPE_SLOTS, pairs>(h, slots, v);
    if (DIM == SLOT_DIMS)
        rope_weigh<ROPE_SLOTS>(op, h, v);
    rope_write_q<ROPE_SLOTS, pairs>(op, h, slots, t->group.pos + t->token, v);
    if (h->first + h->n <= h->queries)
        return;
    if (op->int8 && pages)
        rope_write_bytes<true, pairs>(op, h, t->group.page, key, pages, v);
    else if (op->int8)
        rope_write_bytes<false, pairs>(op, h, t->group.page, key, NULL, v);
    else if (pages)
        rope_write_kv<true, pairs>(op, h, t->group.page, key, pages, v);
    else
        rope_write_kv<false, pairs>(op, h, t->group.page, key, NULL, v);
}

/* Groups of the row that is this thread's. */
GPU u32 rope_groups(const struct gpu_run *run)
{
    const struct gpu_step *step = gpu_near(run->step);
    u32 i = step->n_rows == 1 ? 0 : gpu_thread();
    if (i >= step->n_rows)
        return 0;
    const struct gpu_row row = gpu_global(step->rows)[i];
    return (row.pos + row.n - 1) / PAGE_KEYS - row.pos / PAGE_KEYS + 1;
}

/* DIM: that heads have, without gaps; 0: any. */
template <u32 DIM> GPU_CALL void rope_run(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    constexpr bool pairs = DIM == SLOT_DIMS / 2;
    u32 groups = attention_number(run, rope_groups(run)), all = op->heads + 2 * op->kv_heads;
    u32 shift = DIM ? 0 : rope_shift(op->head_dim), slots = shift == 2 ? 4 : ROPE_SLOTS;
    if (pairs && groups * CEIL_DIV(all, 2u * ROPE_SLOTS) <= gpu_blocks() / 2)
        slots = ROPE_SLOTS / 2; /* for more blocks */
    u32 each = pairs ? slots * 2 : slots >> shift, pieces = CEIL_DIV(all, each);
    u32 items = groups * pieces, share = items / gpu_blocks(), more = items % gpu_blocks();
    u32 from = share * gpu_block() + MIN(gpu_block(), more), filled = ~0u;
    u32 turns = (share + (gpu_block() < more)) * ROPE_TURNS;
    u32 dims = MAX(op->rope.dims, op->rope_long.dims), near_floats = slots * SLOT_DIMS;
    float *near = (float *)(gpu_shared() + PLAN_BYTES), *angles = near + near_floats * GPU_WARPS;
    u8 *pages = (u8 *)(angles + PAGE_KEYS * dims);
    u32 taken = PLAN_BYTES + (near_floats * GPU_WARPS + PAGE_KEYS * dims) * 4;
    bool room = taken + slots * 8 * ROPE_CHUNK_BYTES <= run->shared_bytes;
    struct rope_heads h = {}, h_next;
    struct rope_turn turn, next;
    float v[ROPE_SLOTS][4], v_next[ROPE_SLOTS][4];
    h.near = gpu_near(near) + gpu_warp() * near_floats;
    h.queries = op->heads;
    h.rotated = op->heads + op->kv_heads;
    h.dim = DIM ? DIM : op->head_dim;
    h.shift = shift;
    h_next = h;
    if (turns == 0)
        return;
    next.index = from / pieces;
    next.piece = from % pieces;
    next.token = gpu_warp();
    next.group = rope_group(op, run, next.index);
    rope_ask<DIM>(op, &next, each, &h_next, v_next);
#pragma unroll 1
    for (u32 i = 0; i < turns; i++) {
        turn = next;
        h = h_next;
        memcpy(v, v_next, sizeof v);
        next.token += GPU_WARPS;
        if (next.token >= PAGE_KEYS) {
            next.token = gpu_warp();
            next.piece++;
        }
        if (next.piece == pieces && i + 1 < turns) {
            next.piece = 0;
            next.group = rope_group(op, run, ++next.index);
        }
        if (i + 1 < turns)
            rope_ask<DIM>(op, &next, each, &h_next, v_next);
        if (filled != turn.index) {
            rope_fill_angles(&turn.group, angles);
            filled = turn.index;
        }
        u32 end = MIN(h.first + each, h.rotated + op->kv_heads);
        bool whole = room && turn.group.n == PAGE_KEYS && end > h.queries;
        rope_do<DIM>(op, &turn, &h, gpu_near(angles), whole ? gpu_near(pages) : NULL, v);
        if (!whole || turn.token < PAGE_KEYS - GPU_WARPS)
            continue;
        gpu_sync();
        rope_write_pages(op, &h, turn.group.page, gpu_near(pages));
        gpu_sync();
    }
}

GPU void attention_rope(const struct op_attention *op, const struct gpu_run *run)
{
    const u32 dim = op->head_dim;
    const bool whole = op->stride % 4 == 0 && op->rope.dims == dim && op->rope_long.dims % dim == 0;
    if (whole && dim == SLOT_DIMS)
        rope_run<SLOT_DIMS>(op, run);
    else if (whole && dim == SLOT_DIMS / 2 && op->heads % 2 == 0 && op->kv_heads % 2 == 0)
        rope_run<SLOT_DIMS / 2>(op, run);
    else
        rope_run<0>(op, run);
}

#endif
