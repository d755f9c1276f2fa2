/* Linears of more tokens. A tile is 128 outputs by 16, 32, 64 or 128 tokens; where tiles are too
 * few for the multiprocessors, its eight slices are spread over 2, 4 or 8 blocks, which leave their
 * sums in op->partial, and the last to arrive adds them up in order. Weights, prepared inputs and
 * scales come through stages of MANY_K inputs in shared memory, one barrier a stage; copies run
 * ahead from item to item.
 *
 * A stage is
 *   weights [8 blocks of outputs][chunks][512]
 *   inputs [tokens / 8][MANY_K / 32][512]
 *   sides [8 blocks][spans]: scales [64], zeros [16]; a span is 32 inputs, or all of the stage
 * where groups are multiples of 128
 *
 * What the inner loop needs is held by value, since reading it through pointers costs a load each
 * time; all else is read again when an item begins or ends, since registers are scarce.
 */
#ifndef ZIGCUDA_LINEAR_MANY_CUH
#define ZIGCUDA_LINEAR_MANY_CUH

#include "kernels/cuda/linear_weight.cuh"

enum {
    MANY_OUTPUTS = 128,
    MANY_BLOCKS = MANY_OUTPUTS / 16, /* of outputs, in a tile */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    MANY_K = 64, /* inputs of a stage: 64 KiB of shared memory hold two stages */
#else
    MANY_K = 128,
#endif
    MANY_SPANS = MANY_K / 32, /* at most */
    MANY_SIDE_BYTES = 64 + 16,
    MANY_SIDES_BYTES = MANY_BLOCKS * MANY_SPANS * MANY_SIDE_BYTES,
    MANY_HEAD_BYTES = 128, /* struct many_work, before parked sums and the stages */
};

/* How a tile is cut: a warp has M tiles of 16 outputs by N tiles of 8 tokens, ACROSS warps lie side
 * by side along the tokens. */
template <u32 KIND, u32 M, u32 N, u32 ACROSS> struct many_shape {
    static constexpr u32 kind = KIND, m = M, n = N, across = ACROSS;
    static constexpr u32 tokens = N * 8 * ACROSS;
    static constexpr u32 block_bytes = MANY_K * 2 * (4 << KIND); /* 16 outputs of a stage */
    static constexpr u32 weight_bytes = MANY_BLOCKS * block_bytes;
    static constexpr u32 input_bytes = tokens * MANY_K * 2;
    static constexpr u32 stage_bytes =
        weight_bytes + input_bytes + (KIND == MATRIX_HALF ? 0 : MANY_SIDES_BYTES);
    static constexpr u32 floats = MANY_OUTPUTS * tokens;
    /* Sums of 128 tokens do not fit registers twice: those of all slices so far are parked. */
    static constexpr bool parked = N > 4;
    static constexpr u32 stages_at = MANY_HEAD_BYTES + (parked ? floats * 4 : 0);
};

/* The work of an operation on parts of one kind. */
struct many_work {
    u32 tiles_t;      /* of tokens */
    u32 split, share; /* blocks that share a tile, slices of each */
    u32 items, rows;
};

/* What an item is: slices [slice, slice_end) of a tile. */
struct many_item {
    u32 part, tile;   /* tile: of all parts */
    u32 block, token; /* first block of 16 outputs of the part, first token */
    u32 slice, slice_end;
};

GPU u32 many_tiles(const struct matrix *m)
{
    return CEIL_DIV(m->n, (u32)MANY_OUTPUTS);
}

/* Spreads tiles so that the blocks that end last end soonest. What an item costs beside its slices
 * is about half a slice. */
GPU u32 many_split(u32 tiles, u32 floats)
{
    bool fits =
        (size_t)tiles * MATRIX_SLICES * floats <= LINEAR_PARTIALS && tiles <= LINEAR_COUNTERS;
    u32 best = 1, best_cost = ~0u;
    for (u32 split = 1; split <= (fits ? MATRIX_SLICES : 1); split *= 2) {
        u32 cost = CEIL_DIV(tiles * split, gpu_blocks()) * (2 * MATRIX_SLICES / split + 1);
        if (cost < best_cost) {
            best = split;
            best_cost = cost;
        }
    }
    return best;
}

GPU struct many_work many_work_of(const struct op_linear *op, u32 rows, u32 kind, u32 tokens)
{
    u32 all = 0, mine = 0;
    for (u32 i = 0; i < op->parts; i++) {
        u32 tiles = many_tiles(&op->part[i]);
        all += tiles;
        if (op->part[i].kind == kind)
            mine += tiles;
    }
    struct many_work w;
    w.rows = rows;
    w.tiles_t = CEIL_DIV(rows, tokens);
    w.split = many_split(all * w.tiles_t, MANY_OUTPUTS * tokens);
    w.share = MATRIX_SLICES / w.split;
    w.items = mine * w.tiles_t * w.split;
    return w;
}

/* Tokens go fastest, so that blocks which run together share weights. */
GPU struct many_item many_item_of(const struct op_linear *op, const struct many_work *shared_work,
                                  u32 kind, u32 tokens, u32 item)
{
    const struct many_work w = *shared_work;
    u32 tile = item / w.split, token_tile = tile % w.tiles_t, at = tile / w.tiles_t;
    u32 before = 0, part = 0;
    for (;; part++) {
        u32 tiles = many_tiles(&op->part[part]);
        if (op->part[part].kind == kind) {
            if (at < tiles)
                break;
            at -= tiles;
        }
        before += tiles;
    }
    u32 slice = item % w.split * w.share;
    struct many_item it = {part,
                           (before + at) * w.tiles_t + token_tile,
                           at * MANY_BLOCKS,
                           token_tile * tokens,
                           slice,
                           slice + w.share};
    return it;
}

/* The packed inputs where a slice begins. */
GPU u32 many_slice_at(const struct matrix *m, u32 slice)
{
    return MIN(slice * m->slice, m->k);
}

/* --- copying ahead ------------------------------------------------------------------------- */

/* Where this thread's copies for the next stage come from. Outputs and tokens beyond the last are
 * zeros. */
template <class shape> struct many_pipe {
    static constexpr u32 weight_copies = shape::weight_bytes / 16 / GPU_THREADS;
    static constexpr u32 input_copies = CEIL_DIV(shape::input_bytes / 16, (u32)GPU_THREADS);
    static constexpr u32 block_pieces = shape::block_bytes / 16, octet_pieces = MANY_K;
    u32 stages, next, at, ahead; /* stage to fill, to take; on their way, at most stages - 1 */
    u32 item, left;              /* stages that remain of the item */
    const u8 *weights, *inputs;  /* first of the copies, the others follow at these distances: */
    u32 weight_stride, input_stride, weights_n, inputs_n;
    const u8 *side;                             /* of group 0 */
    u32 side_bytes, side_to, group, groups; /* next group (of 64 inputs: its half), and of a stage */
    bool side_mine;
};

/* Of n things, `per` from one copy of a thread to its next, that many are left from `at` on. */
GPU u32 many_copies(u32 n, u32 at, u32 per)
{
    return at < n ? CEIL_DIV(n - at, per) : 0;
}

/* Lane i of warp w copies for block w of outputs: 4 s + j 16 bytes of the scales of span s, 16 + s
 * its zeros. */
template <class shape>
GPU void many_aim_side(struct many_pipe<shape> *pipe, const struct matrix *m, u32 first_block,
                       u32 k)
{
    bool fine = m->group == 32, zeros = gpu_lane() >= 16;
    u32 block = first_block + gpu_warp(), span = zeros ? gpu_lane() - 16 : gpu_lane() / 4;
    u32 piece = zeros ? 0 : gpu_lane() % 4 * 16, bytes = 16 * weight_scale_bytes(m);
    pipe->group = fine ? k / 32 + span : k / MANY_K;
    pipe->groups = fine ? MANY_SPANS : 1;
    pipe->side_bytes = zeros ? 16 : bytes;
    pipe->side_to = (gpu_warp() * MANY_SPANS + span) * MANY_SIDE_BYTES + (zeros ? 64 : piece);
    pipe->side_mine = block < CEIL_DIV(m->n, 16) && span < pipe->groups &&
                      (zeros ? m->zeros != NULL : piece < bytes);
    pipe->side = (zeros ? m->zeros : (const u8 *)m->scales + piece) +
                 (size_t)block * m->groups * pipe->side_bytes;
}

template <class shape>
GPU void many_aim(struct many_pipe<shape> *pipe, const struct op_linear *op,
                  const struct many_work *w)
{
    struct many_item it = many_item_of(op, w, shape::kind, shape::tokens, pipe->item);
    struct matrix m = op->part[it.part];
    u32 k = many_slice_at(&m, it.slice), end = many_slice_at(&m, it.slice_end);
    u32 block = it.block + gpu_thread() / pipe->block_pieces;
    u32 octet = it.token / 8 + gpu_thread() / pipe->octet_pieces;
    size_t of_block = (size_t)m.k * 2 * (4 << shape::kind); /* bytes of 16 outputs */
    pipe->left = (end - k) / MANY_K;
    pipe->weights = m.data + block * of_block + (size_t)k * 2 * (4 << shape::kind) +
                    gpu_thread() % pipe->block_pieces * 16;
    pipe->weight_stride = (u32)of_block * (GPU_THREADS / pipe->block_pieces);
    pipe->weights_n = many_copies(CEIL_DIV(m.n, 16), block, GPU_THREADS / pipe->block_pieces);
    pipe->inputs = (const u8 *)op->in.prepared + ((size_t)octet * m.k + k) * 16 +
                   gpu_thread() % pipe->octet_pieces * 16;
    pipe->input_stride = m.k * 16 * (GPU_THREADS / pipe->octet_pieces);
    pipe->inputs_n = many_copies(CEIL_DIV(w->rows, 8), octet, GPU_THREADS / pipe->octet_pieces);
    if (shape::kind != MATRIX_HALF)
        many_aim_side<shape>(pipe, &m, it.block, k);
}

/* Starts copying the next stage, if there is one. */
template <class shape>
GPU void many_copy(struct many_pipe<shape> *pipe, const struct op_linear *op,
                   const struct many_work *w)
{
    if (pipe->left == 0)
        while (pipe->left == 0 && pipe->item < w->items) {
            pipe->item += gpu_blocks();
            if (pipe->item < w->items)
                many_aim<shape>(pipe, op, w);
        }
    if (pipe->left) {
        u8 *to = gpu_shared() + shape::stages_at + pipe->next * shape::stage_bytes;
        u8 *mine = to + gpu_thread() * 16, *sides = to + shape::weight_bytes + shape::input_bytes;
#pragma unroll
        for (u32 i = 0; i < pipe->weight_copies; i++)
            gpu_copy16(mine + i * GPU_THREADS * 16, pipe->weights + i * (size_t)pipe->weight_stride,
                       i < pipe->weights_n);
#pragma unroll
        for (u32 i = 0; i < pipe->input_copies; i++)
            if (shape::input_bytes / 16 % GPU_THREADS == 0 ||
                gpu_thread() < shape::input_bytes / 16)
                gpu_copy16(mine + shape::weight_bytes + i * GPU_THREADS * 16,
                           pipe->inputs + i * (size_t)pipe->input_stride, i < pipe->inputs_n);
        pipe->weights += shape::block_bytes;
        pipe->inputs += MANY_K * 16;
        if (shape::kind != MATRIX_HALF && pipe->side_mine) {
            bool halves = MANY_K == 64 && pipe->groups == 1;
            u32 group = halves ? pipe->group / 2 : pipe->group;
            gpu_copy16(sides + pipe->side_to, pipe->side + (size_t)group * pipe->side_bytes);
        }
        pipe->group += pipe->groups;
        pipe->left--;
    }
    gpu_copy_commit();
    pipe->next = pipe->next + 1 == pipe->stages ? 0 : pipe->next + 1;
}

/* Waits for the oldest stage, of which stages - 1 are on their way. */
GPU void many_wait(u32 stages)
{
    if (stages == 4)
        gpu_copy_wait<2>();
    else if (stages == 3)
        gpu_copy_wait<1>();
    else if (stages == 2)
        gpu_copy_wait<0>();
    else
        gpu_copy_wait<6>();
    gpu_sync();
}

/* --- sums ---------------------------------------------------------------------------------- */

/* What a thread sums: of its warp's outputs and tokens, in the places that gpu_mma says. */
template <class shape> struct many_sums {
    float v[shape::m][shape::n][4];
};

template <class shape> GPU void many_clear(struct many_sums<shape> *s)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i][j][e] = 0;
}

/* First block of 16 outputs, and of 8 tokens, of this warp in a tile. */
template <class shape> GPU u32 many_warp_block(void)
{
    return gpu_warp() / shape::across * shape::m;
}
template <class shape> GPU u32 many_warp_octet(void)
{
    return gpu_warp() % shape::across * shape::n;
}

/* a-fragments of a block of 16 outputs, for 32 inputs: two tiles of 16. `half`: which 32 of 64. */
template <class shape>
GPU void many_weights(u32 a[2][4], const u32 word[4], const u8 *block, u32 half,
                      const struct weight_zero *zero)
{
    if constexpr (shape::kind == MATRIX_INT4) {
        weight_fragment<shape::kind>(a[0], word, half * 2, zero);
        weight_fragment<shape::kind>(a[1], word, half * 2 + 1, zero);
    } else {
#pragma unroll
        for (u32 t = 0; t < 2; t++) {
            u32 chunk = shape::kind == MATRIX_INT8 ? half : half * 2 + t;
            uint4 v = *(const uint4 *)(block + chunk * WEIGHT_CHUNK_BYTES);
            u32 w[4] = {v.x, v.y, v.z, v.w};
            weight_fragment<shape::kind>(a[t], w, t, zero);
        }
    }
}

/* 32 inputs: two tiles of 16, each with products that do not depend on one another. */
template <class shape>
GPU void many_products(const u32 a[shape::m][2][4], const u8 *inputs, bool first,
                       struct many_sums<shape> *sum)
{
    u32 b[shape::n][4];
#pragma unroll
    for (u32 j = 0; j < shape::n; j++) {
        uint4 v = *(const uint4 *)(inputs + j * (MANY_K * 16));
        b[j][0] = v.x, b[j][1] = v.y, b[j][2] = v.z, b[j][3] = v.w;
    }
#pragma unroll
    for (u32 t = 0; t < 2; t++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 i = 0; i < shape::m; i++) {
                float *c = sum->v[i][j];
                if (first && t == 0)
                    c[0] = c[1] = c[2] = c[3] = 0;
                gpu_mma(c, a[i][t], b[j] + 2 * t);
            }
}

/* The scales of a piece are asked for when its last product is there, by an address that seems to
 * depend on it (`none` is 0, which the compiler does not know). Else each sum would be scaled as
 * soon as possible and its four products stand in a row, each waiting for the one before. */
template <class shape>
GPU void many_add_piece(struct many_sums<shape> *p, const struct many_sums<shape> *sum,
                        u32 scale_type, const u8 *side, u32 none)
{
    side += gpu_bits(sum->v[shape::m - 1][shape::n - 1][3]) & none;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        const u32 *words = (const u32 *)(side + i * MANY_SPANS * MANY_SIDE_BYTES);
        u32 at = gpu_lane() / 4 << (scale_type == DTYPE_F32);
        struct weight_scales s = weight_scales_of(words[at], words[at + 1], scale_type);
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
            weight_add(p->v[i][j], sum->v[i][j], &s);
    }
}

/* A stage, onto the sums of the slice. Pieces are of 64 inputs, or 32 when fine. */
template <class shape, bool fine>
GPU void many_stage(const struct matrix *m, const u8 *stage, struct many_sums<shape> *p)
{
    const bool halves = shape::kind == MATRIX_HALF;
    const u32 scale_type = m->scale_type, none = gpu_blocks() >> 31;
    const u8 *weights = stage + many_warp_block<shape>() * shape::block_bytes + gpu_lane() * 16;
    const u8 *inputs =
        stage + shape::weight_bytes + gpu_lane() * 16 + many_warp_octet<shape>() * (MANY_K * 16);
    const u8 *sides = stage + shape::weight_bytes + shape::input_bytes +
                      many_warp_block<shape>() * MANY_SPANS * MANY_SIDE_BYTES;
    struct weight_zero zero[shape::m] = {};
    u32 word[shape::m][4] = {};
    struct many_sums<shape> sum;
#pragma unroll
    for (u32 k = 0; k < MANY_K / 32; k++) {
        const u8 *side = sides + (fine ? k : 0) * MANY_SIDE_BYTES;
        u32 a[shape::m][2][4];
#pragma unroll
        for (u32 i = 0; i < shape::m; i++) {
            const u8 *block =
                weights + i * shape::block_bytes + k / 2 * (WEIGHT_CHUNK_BYTES << shape::kind);
            if (!halves && (fine || k == 0)) {
                const u8 *zeros = side + 64 + i * MANY_SPANS * MANY_SIDE_BYTES;
                u32 both = ((const u16 *)zeros)[gpu_lane() / 4]; /* something, when there are none */
                zero[i] =
                    weight_zero_of<shape::kind>(m->zeros ? both : weight_no_zeros<shape::kind>());
            }
            if (shape::kind == MATRIX_INT4 && k % 2 == 0) {
                uint4 v = *(const uint4 *)block;
                word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
            }
            many_weights<shape>(a[i], word[i], block, k % 2, &zero[i]);
        }
        many_products<shape>(a, inputs + k / 2 * 1024 + k % 2 * 512,
                             !halves && (fine || k % 2 == 0), halves ? p : &sum);
        if (!halves && (fine || k % 2 == 1))
            many_add_piece<shape>(p, &sum, scale_type, side, none);
    }
}

/* --- outputs ------------------------------------------------------------------------------- */

/* Sums to values: scaled, with their bias. A missing bias is -0, which changes nothing. */
template <class shape>
GPU void many_scale(struct many_sums<shape> *s, const struct matrix *m, const float *token_scale,
                    u32 rows, u32 n, u32 token)
{
    float factor[shape::m][2], bias[shape::m][2], scale[shape::n][2];
#pragma unroll
    for (u32 i = 0; i < shape::m * 2; i++) {
        u32 row = MIN(n + i / 2 * 16 + i % 2 * 8, m->n - 1);
        factor[i / 2][i % 2] = shape::kind == MATRIX_HALF ? ((const float *)m->scales)[row] : 1;
        bias[i / 2][i % 2] = m->bias ? m->bias[row] : -0.0f;
    }
#pragma unroll
    for (u32 j = 0; j < shape::n * 2; j++)
        scale[j / 2][j % 2] = token_scale[MIN(token + j / 2 * 8 + j % 2, rows - 1)];
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i][j][e] =
                    fmaf(s->v[i][j][e] * factor[i][e / 2], scale[j][e % 2], bias[i][e / 2]);
}

/* Gates and softcaps, in a loop over what stands in front, since their code is long: after as many
 * turns as there are places all stand where they stood. Registers have no index. */
template <class shape>
GPU void many_bend(struct many_sums<shape> *s, bool gate, u32 activation, float softcap)
{
    const u32 count = shape::m * shape::n;
#pragma unroll 1
    for (u32 turn = 0; turn < count; turn++) {
        float v[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++)
            v[e] = s->v[0][0][e];
#pragma unroll 1
        for (u32 e = 0; e < (gate ? 2 : 4); e++) {
            float bent =
                gate ? linear_activate(v[0], activation) * v[2] : softcap * tanhf(v[0] / softcap);
            float next[4] = {v[1], v[2], v[3], bent};
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                v[i] = next[i];
        }
#pragma unroll
        for (u32 i = 0; i + 1 < count; i++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i / shape::n][i % shape::n][e] =
                    s->v[(i + 1) / shape::n][(i + 1) % shape::n][e];
#pragma unroll
        for (u32 e = 0; e < 4; e++) /* two turns of a gate leave its values in places 2 and 3 */
            s->v[shape::m - 1][shape::n - 1][e] = gate ? v[(e + 2) % 4] : v[e];
    }
}

/* Gates with silu, all of them side by side. Values are in places 0 and 1. */
template <class shape> GPU void many_silu(struct many_sums<shape> *s)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 2; e++)
                s->v[i][j][e] = linear_activate(s->v[i][j][e], ACT_SILU) * s->v[i][j][e + 2];
}

/* n: this lane's first row, of the part; token: its first token; y: of both. */
template <class shape>
GPU void many_put(const struct many_sums<shape> *s, float *y, u32 stride, bool add, u32 columns,
                  u32 n, u32 tokens)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++) {
        float old[shape::m][4] = {};
#pragma unroll
        for (u32 i = 0; i < shape::m * 4 && add; i++) {
            u32 row = i / 4 * 16 + i % 4 / 2 * 8, token = j * 8 + i % 2;
            if (token < tokens && n + row < columns)
                old[i / 4][i % 4] = y[(size_t)token * stride + row];
        }
#pragma unroll
        for (u32 i = 0; i < shape::m * 4; i++) {
            u32 row = i / 4 * 16 + i % 4 / 2 * 8, token = j * 8 + i % 2;
            float v = s->v[i / 4][j][i % 4];
            if (token < tokens && n + row < columns)
                y[(size_t)token * stride + row] = add ? v + old[i / 4][i % 4] : v;
        }
    }
}

/* The same for gates: 8 columns a block of 16 outputs, and the largest magnitude of each token. */
template <class shape>
GPU void many_put_gates(const struct many_sums<shape> *s, float *y, u32 stride, u32 *row_max,
                        u32 blocks, u32 tokens)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++)
#pragma unroll
        for (u32 e = 0; e < 2; e++) {
            u32 token = j * 8 + e, most = 0;
#pragma unroll
            for (u32 i = 0; i < shape::m; i++) {
                float v = s->v[i][j][e];
                if (token < tokens && i < blocks) {
                    y[(size_t)token * stride + i * 8] = v;
                    most = MAX(most, gpu_bits(fabsf(v)));
                }
            }
            for (u32 mask = 4; mask < 32; mask *= 2)
                most = gpu_max_xor(most, mask);
            if (gpu_lane() < 4 && most)
                gpu_atomic_max(&row_max[token], most);
        }
}

template <class shape>
GPU void many_store(const struct op_linear *op, const struct many_item it, u32 rows,
                    struct many_sums<shape> *s)
{
    struct matrix m = op->part[it.part];
    bool gate = op->output == OUTPUT_GATE;
    u32 block = it.block + many_warp_block<shape>(), row = gpu_lane() / 4;
    u32 token = it.token + many_warp_octet<shape>() * 8 + gpu_lane() % 4 * 2;
    u32 blocks = CEIL_DIV(m.n, 16) - MIN(block, CEIL_DIV(m.n, 16)),
        tokens = rows - MIN(token, rows);
    many_scale<shape>(s, &m, op->in.prepared_scale, rows, block * 16 + row, token);
    if (gate && op->activation == ACT_SILU)
        many_silu<shape>(s);
    else if (gate || op->softcap > 0)
        many_bend<shape>(s, gate, op->activation, op->softcap);
    float *y = op->y + (size_t)token * op->y_stride + op->at[it.part] + row;
    if (gate)
        many_put_gates<shape>(s, y + block * 8, op->y_stride, op->row_max + token, blocks, tokens);
    else
        many_put<shape>(s, y + block * 16, op->y_stride, op->output == OUTPUT_ADD, m.n,
                        block * 16 + row, tokens);
}

/* --- sums of slices that several blocks made ----------------------------------------------- */

GPU float4 *many_partial(const struct op_linear *op, u32 tile, u32 slice, u32 floats)
{
    return (float4 *)(op->partial + ((size_t)tile * MATRIX_SLICES + slice) * floats) + gpu_thread();
}

template <class shape>
GPU void many_leave(const struct op_linear *op, u32 tile, u32 slice,
                    const struct many_sums<shape> *p)
{
    float4 *to = many_partial(op, tile, slice, shape::floats);
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++) {
            const float *v = p->v[i][j];
            float4 four = {v[0], v[1], v[2], v[3]};
            to[(i * shape::n + j) * GPU_THREADS] = four;
        }
}

/* True in the block that left the last sums of the tile. */
GPU bool many_last(const struct op_linear *op, u32 tile, u32 split)
{
    gpu_fence();
    gpu_sync();
    u32 before = 0;
    if (gpu_thread() == 0)
        before = gpu_atomic_add(&op->arrived[tile], 1);
    return gpu_sync_any(before == split - 1);
}

template <class shape>
GPU void many_gather(const struct op_linear *op, u32 tile, struct many_sums<shape> *total)
{
    gpu_fence();
    if (gpu_thread() == 0)
        op->arrived[tile] = 0;
    const float4 *from = many_partial(op, tile, 0, shape::floats);
    many_clear<shape>(total);
#pragma unroll(shape::n > 4 ? 1 : 2)
    for (u32 slice = 0; slice < MATRIX_SLICES; slice++, from += shape::floats / 4) {
#pragma unroll
        for (u32 i = 0; i < shape::m; i++)
#pragma unroll
            for (u32 j = 0; j < shape::n; j++) {
                float4 four = from[(i * shape::n + j) * GPU_THREADS];
                float *v = total->v[i][j];
                v[0] += four.x;
                v[1] += four.y;
                v[2] += four.z;
                v[3] += four.w;
            }
    }
}

/* --- all together -------------------------------------------------------------------------- */

template <class shape>
GPU void many_add(struct many_sums<shape> *total, const struct many_sums<shape> *p)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                total->v[i][j][e] += p->v[i][j][e];
}

/* The thread's place in shared memory for sums that are parked: those of a warp's tile i. */
template <class shape> GPU float4 *many_parked(u32 i)
{
    return (float4 *)(gpu_shared() + MANY_HEAD_BYTES) + i * GPU_THREADS + gpu_thread();
}

/* The same addition with parked sums; `first`: they are none yet. */
template <class shape> GPU void many_park(const struct many_sums<shape> *p, bool first)
{
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        const float *v = p->v[i / shape::n][i % shape::n];
        float4 four = {0, 0, 0, 0};
        if (!first)
            four = *many_parked<shape>(i);
        float4 sum = {four.x + v[0], four.y + v[1], four.z + v[2], four.w + v[3]};
        *many_parked<shape>(i) = sum;
    }
}

template <class shape> GPU void many_unpark(struct many_sums<shape> *p)
{
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        float *v = p->v[i / shape::n][i % shape::n];
        float4 four = *many_parked<shape>(i);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    }
}

/* The `left` next stages. The body stands once: each turn starts a copy and, when enough are on
 * their way, takes a stage. */
template <class shape>
GPU void many_slice(const struct op_linear *op, const struct many_work *w, const struct matrix *m,
                    struct many_pipe<shape> *pipe, u32 left, struct many_sums<shape> *p)
{
    bool fine = shape::kind != MATRIX_HALF && m->group == 32;
    while (left) {
        bool filled = pipe->ahead + 1 == pipe->stages;
        if (filled)
            many_wait(pipe->stages);
        many_copy<shape>(pipe, op, w);
        if (!filled) {
            pipe->ahead++;
            continue;
        }
        const u8 *stage = gpu_shared() + shape::stages_at + pipe->at * shape::stage_bytes;
        if (fine)
            many_stage<shape, true>(m, stage, p);
        else
            many_stage<shape, false>(m, stage, p);
        pipe->at = pipe->at + 1 == pipe->stages ? 0 : pipe->at + 1;
        left--;
    }
}

/* One item, from its first stage to its outputs. */
template <class shape>
GPU void many_run_item(const struct op_linear *op, const struct many_work *w,
                       struct many_pipe<shape> *pipe, u32 item)
{
    struct many_item it = many_item_of(op, w, shape::kind, shape::tokens, item);
    const struct matrix *m = &op->part[it.part];
    struct many_sums<shape> total, p;
    u32 slice = it.slice, slices = w->share;
    if (!shape::parked)
        many_clear<shape>(&total);
    for (u32 i = 0; i < slices; i++, slice++) {
        u32 left = (many_slice_at(m, slice + 1) - many_slice_at(m, slice)) / MANY_K;
        many_clear<shape>(&p);
        many_slice<shape>(op, w, m, pipe, left, &p);
        if (w->split > 1) {
            it = many_item_of(op, w, shape::kind, shape::tokens, item);
            many_leave<shape>(op, it.tile, slice, &p);
        } else if (shape::parked) {
            many_park<shape>(&p, i == 0);
        } else {
            many_add<shape>(&total, &p);
        }
    }
    it = many_item_of(op, w, shape::kind, shape::tokens, item);
    if (w->split > 1) {
        if (!many_last(op, it.tile, w->split))
            return;
        many_gather<shape>(op, it.tile, &p);
    } else if (shape::parked) {
        many_unpark<shape>(&p);
    } else {
        p = total;
    }
    many_store<shape>(op, it, w->rows, &p);
}

/* Items gpu_block(), + gpu_blocks(), ... */
template <class shape>
GPU_CALL void many_run_as(const struct op_linear *op, const struct gpu_run *run)
{
    struct many_work *w = (struct many_work *)gpu_shared();
    u32 stages = (run->shared_bytes - shape::stages_at) / shape::stage_bytes;
    struct many_pipe<shape> pipe = {
    };
    if (gpu_thread() == 0)
        *w = many_work_of(op, linear_rows(&op->in, run->step), shape::kind, shape::tokens);
    gpu_sync();
    pipe.stages = stages >= 8 ? 8 : MIN(stages, 4u);
    pipe.item = gpu_block();
    if (pipe.item < w->items)
        many_aim<shape>(&pipe, op, w);
    for (u32 item = gpu_block(); item < w->items; item += gpu_blocks())
        many_run_item<shape>(op, w, &pipe, item);
    gpu_copy_wait<0>(); /* empty groups */
    gpu_sync();
}

/* Tokens of a tile. */
GPU u32 many_tokens(u32 kind, u32 rows, u32 shared_bytes)
{
    u32 stage = MANY_BLOCKS * MANY_K * 2 * (4 << kind) + 128 * MANY_K * 2 + MANY_SIDES_BYTES;
    bool big = MANY_HEAD_BYTES + MANY_OUTPUTS * 128 * 4 + 2 * stage <= shared_bytes;
    return rows <= 16 && kind == MATRIX_INT4 ? 16 : rows <= 32 ? 32 : rows > 64 && big ? 128 : 64;
}

/* Asks the weights of this block's first item into L2, before the blocks have met. */
GPU void many_fetch(const struct op_linear *op, const struct gpu_run *run)
{
    u32 rows = linear_rows(&op->in, run->step), kind = op->part[0].kind;
    if (rows == 0)
        return;
    u32 tokens = many_tokens(kind, rows, run->shared_bytes);
    struct many_work w = many_work_of(op, rows, kind, tokens);
    if (gpu_block() >= w.items)
        return;
    struct many_item it = many_item_of(op, &w, kind, tokens, gpu_block());
    const struct matrix m = op->part[it.part];
    size_t of_block = (size_t)m.k * 2 * (4 << kind); /* bytes of 16 outputs */
    size_t from = (size_t)many_slice_at(&m, it.slice) * 2 * (4 << kind);
    size_t end = (size_t)many_slice_at(&m, it.slice_end) * 2 * (4 << kind);
    for (u32 block = it.block; block < MIN(it.block + MANY_BLOCKS, CEIL_DIV(m.n, 16)); block++)
        for (size_t at = from + gpu_thread() * 128; at < end; at += GPU_THREADS * 128)
            gpu_prefetch(m.data + block * of_block + at);
}

template <u32 kind> GPU void many_run_kind(const struct op_linear *op, const struct gpu_run *run)
{
    bool any = false;
    for (u32 i = 0; i < op->parts; i++)
        any |= op->part[i].kind == kind;
    if (!any)
        return;
    u32 tokens = many_tokens(kind, linear_rows(&op->in, run->step), run->shared_bytes);
    if (kind == MATRIX_INT4 && tokens == 16)
        many_run_as<struct many_shape<MATRIX_INT4, 1, 2, 1>>(op, run);
    else if (tokens == 32)
        many_run_as<struct many_shape<kind, 1, 4, 1>>(op, run);
    else if (tokens == 64)
        many_run_as<struct many_shape<kind, 2, 4, 2>>(op, run);
    else
        many_run_as<struct many_shape<kind, 2, 8, 2>>(op, run);
}

GPU void many_run(const struct op_linear *op, const struct gpu_run *run)
{
    many_run_kind<MATRIX_INT4>(op, run);
    many_run_kind<MATRIX_INT8>(op, run);
    many_run_kind<MATRIX_HALF>(op, run);
}

#endif
