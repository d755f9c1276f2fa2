/* Attention on one tensor-core tile: how keys and values lie in their pages, what a tile of query
 * rows is, and the arithmetic that both ways of attention (few and many query tokens) share, so
 * that they yield the same bits.
 *
 * A page of a KV head has 16 positions. With dim = head_dim rounded up to 16, it is dim / 16 chunks
 * of 512 bytes, one a 16 dimensions; lane i of a warp reads 16 bytes at 16 i: two b-fragments of
 * gpu_mma. With g = lane / 4, t = lane % 4, the words of a lane are:
 *   k: key g dimensions (4t, 4t+1), (4t+2, 4t+3); key g + 8 alike. A product's k-index 2t, 2t+1,
 *      2t+8, 2t+9 stands for the dimensions 4t .. 4t+3: q is read in the same order.
 *   v: dimension g keys (2t, 2t+1), (2t+8, 2t+9); dimension g + 8 alike.
 *
 * A tile is up to 16 query rows (token, head) of consecutive tokens of one row of the step and the
 * heads of one KV head: row r of part p is head i % group of token i / group, i = 16 p + r. More
 * than one part only when a token alone has more than 16 heads a KV head. A lane has the rows g and
 * g + 8.
 *
 * A query head lies in qkv as head_dim halves, multiplied by a power of two such that the largest
 * magnitude is in [2^13, 2^14), and behind them, as f32, what undoes the power.
 *
 * Scores: x = the tensor core's sum over the chunks in order; with a softcap tanh of it (scaled).
 * c = what makes it a power of two: weight = 2^(x c - m), m = the split's largest x times c.
 * Keys that a row does not see have x = -inf. Their weight is 0, and the values of keys that no row
 * of the step wrote are made 0 before: a page may hold anything there, and 0 * NaN is NaN.
 */
#ifndef ZIGCUDA_ATTENTION_TILE_CUH
#define ZIGCUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/gpu.cuh"

enum {
    CHUNK_BYTES = 512,
    PAGE_KEYS = LIMIT_PAGE_TOKENS,
    SPLIT_PAGES = ATTENTION_SPLIT / PAGE_KEYS,
    WEIGHT_ONES = 0x3c003c00, /* two halves of 1 */
};

static_assert(PAGE_KEYS == 16 && ATTENTION_SPLIT == GPU_WARPS * 16,
              "a warp takes a page of a split");

#define LOG2_E 1.44269504f

/* Halves of key (or value) `key` of a page, dimension d. */
GPU u32 attention_k_at(u32 key, u32 d)
{
    return d / 16 * 256 + (key % 8 * 4 + d % 16 / 4) * 8 + key / 8 * 4 + d % 4;
}

GPU u32 attention_v_at(u32 key, u32 d)
{
    return d / 16 * 256 + (d % 8 * 4 + key % 8 / 2) * 8 + d % 16 / 8 * 4 + key / 8 * 2 + key % 2;
}

/* First of the positions that a token at `pos` sees. */
GPU u32 attention_seen_from(const struct op_attention *op, u32 pos)
{
    return op->window && pos + 1 > op->window ? pos + 1 - op->window : 0;
}

struct attention_tile {
    u32 token, n; /* tokens of the step; n = 0: a tile without rows */
    u32 pos;      /* of the first one */
    u32 kv_head, part;
};

/* A query row of a tile. A tile's rows beyond its tokens have q and out of the first one, and see
 * nothing. */
struct attention_row {
    u32 q, out;      /* where in op->qkv and op->out it begins */
    u32 from, to;    /* positions seen: [from, to) */
    float before, c; /* x is scaled by `before` ahead of a softcap's 2^.., or where heads have
                        sinks, and so no softcap, it is that of the row's; c see above */
};

/* All of it but, where the row is real, c, and `before` of a softcap. */
GPU void attention_row_place(const struct op_attention *op, const struct attention_tile *tile,
                             u32 row, struct attention_row *r)
{
    u32 group = op->heads / op->kv_heads, i = tile->part * ATTENTION_ROWS + row;
    u32 token = i / group, head = tile->kv_head * group + i - token * group;
    bool real = token < tile->n;
    token = real ? token : 0;
    head = real ? head : tile->kv_head * group;
    r->q = (tile->token + token) * op->stride + head * op->head_dim;
    r->out = (tile->token + token) * op->out_stride + head * op->head_dim;
    r->to = real ? tile->pos + token + 1 : 0;
    r->from = real ? attention_seen_from(op, tile->pos + token) : 0;
    if (!real)
        r->before = r->c = 1;
    if (op->sinks)
        r->before = gpu_global(op->sinks)[head];
}

/* undo: what undoes the power that its query is multiplied by. */
GPU void attention_row_scale(const struct op_attention *op, float undo, struct attention_row *r)
{
    float softcap = op->softcap;
    undo = gpu_mul(undo, op->scale);
    if (softcap > 0)
        r->before = undo * gpu_reciprocal(softcap) * (2 * LOG2_E);
    r->c = gpu_mul(softcap > 0 ? softcap : undo, LOG2_E);
}

/* Of a query that OP_ROPE left in op->qkv. */
GPU struct attention_row attention_row_of(const struct op_attention *op,
                                          const struct attention_tile *tile, u32 row)
{
    struct attention_row r = {};
    attention_row_place(op, tile, row, &r);
    attention_row_scale(op, gpu_global(op->qkv)[r.q + op->head_dim / 2], &r);
    return r;
}

/* The a-fragment of a chunk of the tile's queries; q: where the lane's rows g and g + 8 begin. */
GPU uint4 attention_load_q(const float *qkv, const u32 q[2], u32 c, u32 head_dim)
{
    u32 d = c * 16 + gpu_lane() % 4 * 4, at = MIN(d, head_dim - 2) / 2;
    bool first = d < head_dim, second = d + 2 < head_dim;
    at = at / 2 * 2; /* aligned to 8 bytes, as q is */
    uint2 a = gpu_load<uint2>(qkv + q[0] + at), b = gpu_load<uint2>(qkv + q[1] + at);
    return (uint4){first ? a.x : 0, first ? b.x : 0, second ? a.y : 0, second ? b.y : 0};
}

/* The same with product's k-index i for dimension i; head_dim is a multiple of 16. */
GPU uint4 attention_load_q_plain(const float *qkv, const u32 q[2], u32 c)
{
    const u32 at = c * 8 + gpu_lane() % 4;
    return (uint4){gpu_load<u32>(qkv + q[0] + at), gpu_load<u32>(qkv + q[1] + at),
                   gpu_load<u32>(qkv + q[0] + at + 4), gpu_load<u32>(qkv + q[1] + at + 4)};
}

/* x[tile of 8 keys][..] += q k over a chunk. */
GPU void attention_scores(float x[2][4], const u32 a[4], const u32 k[4])
{
    gpu_mma(x[0], a, k);
    gpu_mma(x[1], a, k + 2);
}

/* Softcap, and -inf for keys that a row does not see; x are the scores of the page at `pos`, of the
 * rows g and g + 8. */
GPU void attention_cap(float x[2][4], const float before[2])
{
    for (u32 i = 0; i < 8; i++) {
        float *v = &x[i / 4][i % 4];
        *v = fmaf(-2, gpu_reciprocal(1 + gpu_exp2(gpu_mul(*v, before[i / 2 % 2]))), 1);
    }
}

/* In attention_group.cuh, the key of a page whose score is number 2 t of tile `tile` of 8 keys: the
 * next one's is 2 t + 1. */
GPU u32 group_key(u32 tile, u32 t)
{
    return tile * 4 + t % 2 * 8 + t / 2 * 2;
}

template <bool grouped = false>
GPU void attention_hide(float x[2][4], u32 pos, const u32 from[2], const u32 to[2])
{
    for (u32 i = 0; i < 8; i++) {
        u32 r = i / 2 % 2, t = gpu_lane() % 4;
        u32 key = pos + (grouped ? group_key(i / 4, t) : i / 4 * 8 + t * 2) + i % 2;
        x[i / 4][i % 4] = key >= from[r] && key < to[r] ? x[i / 4][i % 4] : -INFINITY;
    }
}

/* The largest over a row's four lanes. */
GPU float attention_largest(float v)
{
    v = fmaxf(v, gpu_shuffle_xor(v, 1));
    return fmaxf(v, gpu_shuffle_xor(v, 2));
}

/* The weights of a page as an a-fragment; m as above, both rows. low: there is no row g + 8. */
template <bool low = false>
GPU void attention_weigh(const float c[2], const float m[2], const float x[2][4], u32 p[4])
{
    p[1] = p[3] = 0;
    for (u32 i = 0; i < (low ? 2 : 4); i++) {
        const u32 r = low ? 0 : i % 2, tile = low ? i : i / 2;
        const float base = m[r] == -INFINITY ? 0 : m[r], *v = &x[tile][r * 2];
        p[tile * 2 + r] =
            gpu_half2(gpu_exp2(fmaf(v[0], c[r], -base)), gpu_exp2(fmaf(v[1], c[r], -base)));
    }
}

/* Which halves of v's words 0, 2 (mask[0]) and 1, 3 (mask[1]) of the page at `pos` are keys in
 * [from, to). */
GPU void attention_key_masks(u32 pos, u32 from, u32 to, u32 mask[2])
{
    for (u32 i = 0; i < 2; i++) {
        u32 key = pos + i * 8 + gpu_lane() % 4 * 2;
        mask[i] = (key >= from && key < to ? 0x0000ffff : 0) |
                  (key + 1 >= from && key + 1 < to ? 0xffff0000 : 0);
    }
}

/* How the total so far and one more split join: total * old + split * more. A split without a
 * visible key leaves the total as it is, to the bit: x + 0 * -0 = x. */
struct attention_join {
    float old[2], more[2];
};

GPU struct attention_join attention_join(float m[2], const float m_split[2])
{
    struct attention_join j;
    for (u32 r = 0; r < 2; r++) {
        float top = fmaxf(m[r], m_split[r]);
        j.old[r] = m[r] == top ? 1 : gpu_exp2(m[r] - top);
        j.more[r] = m_split[r] == -INFINITY ? -0.0f : gpu_exp2(m_split[r] - top);
        m[r] = top;
    }
    return j;
}

GPU float attention_add(const struct attention_join *j, u32 r, float total, float split)
{
    return fmaf(total, j->old[r], gpu_mul(split, j->more[r]));
}

/* o[tile of 8 dimensions][..] of a chunk, as mma leaves it. */
GPU void attention_add_chunk(const struct attention_join *j, float total[2][4],
                             const float split[2][4])
{
    for (u32 i = 0; i < 8; i++)
        total[i / 4][i % 4] = attention_add(j, i / 2 % 2, total[i / 4][i % 4], split[i / 4][i % 4]);
}

/* What a row's O is multiplied by, when it has seen all: 1 / l, where the head's sink counts as a
 * key. Of a sink far above all scores that is 1 / inf, and the row 0. before: struct
 * attention_row's. */
GPU float attention_inverse(const struct op_attention *op, float before, float m, float l)
{
    if (op->sinks)
        l += gpu_exp2(before - m);
    return gpu_reciprocal(l);
}

/* Writes a chunk of an output row (head_dim floats) as mma leaves it, o times inverse, by the row's
 * four lanes. */
GPU void attention_write_chunk(float *out, u32 head_dim, u32 c, float inverse, const float a[2],
                               const float b[2])
{
    float2 v = {gpu_answer(gpu_mul(a[0], inverse)), gpu_answer(gpu_mul(a[1], inverse))};
    float2 w = {gpu_answer(gpu_mul(b[0], inverse)), gpu_answer(gpu_mul(b[1], inverse))};
    u32 d = c * 16 + gpu_lane() % 4 * 2;
    if (d < head_dim)
        gpu_store<float2>(out + d, v);
    if (d + 8 < head_dim)
        gpu_store<float2>(out + d + 8, w);
}

#endif
