/* Linears of more tokens, where linear_wide.cuh is not. A tile is 128 outputs by 16, 32, 64 or 128
 * tokens; where tiles are too few for the multiprocessors, its eight slices are spread over 2, 4 or
 * 8 blocks, which leave their sums in op->partial, and the last to arrive adds them up in order.
 * Weights, prepared inputs and scales come through stages of MANY_K inputs in shared memory, one
 * barrier a stage; copies run ahead from item to item.
 *
 * A stage is
 *   weights [8 blocks of outputs][chunks][512]
 *   inputs [tokens / 8][MANY_K / 8][8 tokens][8 halves]
 *   sides [8 blocks][spans]: scales [64], zeros [16]; a span is 32 inputs, or all of the stage
 * where groups are multiples of 128
 *
 * What the inner loop needs is held by value, since reading it through pointers costs a load each
 * time; all else is read again when an item begins or ends, since registers are scarce.
 */
#ifndef ZIGCUDA_LINEAR_MANY_CUH
#define ZIGCUDA_LINEAR_MANY_CUH

#include "kernels/cuda/linear_tile.cuh"

enum {
    MANY_OUTPUTS = 128,
    MANY_BLOCKS = MANY_OUTPUTS / 16, /* of outputs, in a tile */
#if GPU_CAPABILITY < 800
    MANY_K = 64, /* inputs of a stage: 64 KiB of shared memory hold two stages */
#else
    MANY_K = 128,
#endif
    MANY_GROUP_STAGES = 128 / MANY_K, /* of a group of 128 inputs */
    MANY_SPANS = MANY_K / 32,         /* at most */
    MANY_SIDE_BYTES = 64 + 16,
    MANY_SIDES_BYTES = MANY_BLOCKS * MANY_SPANS * MANY_SIDE_BYTES,
    MANY_HEAD_BYTES = 128, /* struct many_work, before parked sums and the stages */
};

/* How a tile is cut: a warp has M tiles of 16 outputs by N tiles of 8 tokens, ACROSS warps lie side
 * by side along the tokens. */
template <u32 KIND, u32 M, u32 N, u32 ACROSS> struct many_shape {
    static constexpr u32 kind = KIND, m = M, n = N, across = ACROSS, apart = 1;
    static constexpr u32 tokens = N * 8 * ACROSS;
    static constexpr u32 block_bytes = MANY_K * 2 * (4 << KIND); /* 16 outputs of a stage */
    static constexpr u32 weight_bytes = MANY_BLOCKS * block_bytes;
    static constexpr u32 input_bytes = tokens * MANY_K * 2;
    static constexpr u32 stage_bytes =
        weight_bytes + input_bytes + (KIND == MATRIX_HALF ? 0 : MANY_SIDES_BYTES);
    static constexpr u32 floats = MANY_OUTPUTS * tokens;
    /* Sums of 128 tokens do not fit registers twice: those of all slices so far are parked. */
    static constexpr bool parked = N > 4;
    static constexpr u32 head = MANY_HEAD_BYTES;
    static constexpr u32 stages_at = head + (parked ? floats * 4 : 0);
};

/* The work of an operation on parts of one kind. */
struct many_work {
    u32 tiles_t;      /* of tokens */
    u32 split, share; /* blocks that share a tile, slices of each */
    u32 items, rows;
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
GPU struct tile_item many_item_of(const struct op_linear *op, const struct many_work *shared_work,
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
    struct tile_item it = {part,
                           (before + at) * w.tiles_t + token_tile,
                           at * MANY_BLOCKS,
                           token_tile * tokens,
                           slice,
                           slice + w.share};
    return it;
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
    const u8 *side; /* of group 0 */
    u32 side_bytes, side_to, group,
        groups; /* next group (of 64 inputs: its half), and of a stage */
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
    struct tile_item it = many_item_of(op, w, shape::kind, shape::tokens, pipe->item);
    struct matrix m = op->part[it.part];
    u32 k = tile_slice_at(&m, it.slice), end = tile_slice_at(&m, it.slice_end);
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
                       struct tile_sums<shape> *sum)
{
    u32 b[shape::n][4];
#pragma unroll
    for (u32 j = 0; j < shape::n; j++)
        gpu_load_tiles(b[j], inputs + j * (MANY_K * 16));
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

/* The scales of a group are asked for when its last product is there, by an address that seems to
 * depend on it (`none` is 0, which the compiler does not know). Else each sum would be scaled as
 * soon as possible and its four products stand in a row, each waiting for the one before. */
template <class shape>
GPU void many_add_group(struct tile_sums<shape> *p, const struct tile_sums<shape> *sum,
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

/* A stage, onto the sums of the slice. `sum`: of the group; where that is of two stages, `begins`
 * in the first and ends in the second. */
template <class shape, bool fine>
GPU void many_stage(const struct matrix *m, const u8 *stage, bool begins,
                    struct tile_sums<shape> *sum, struct tile_sums<shape> *p)
{
    const bool halves = shape::kind == MATRIX_HALF;
    const u32 scale_type = m->scale_type, none = gpu_blocks() >> 31;
    const u8 *weights = stage + tile_warp_block<shape>() * shape::block_bytes + gpu_lane() * 16;
    const u8 *inputs =
        stage + shape::weight_bytes + gpu_lane() * 16 + tile_warp_octet<shape>() * (MANY_K * 16);
    const u8 *sides = stage + shape::weight_bytes + shape::input_bytes +
                      tile_warp_block<shape>() * MANY_SPANS * MANY_SIDE_BYTES;
    struct weight_zero zero[shape::m] = {};
    u32 word[shape::m][4] = {};
    const bool two = MANY_GROUP_STAGES == 2;
    if (!halves && !fine && two && begins)
        tile_clear<shape>(sum);
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
                u32 both =
                    ((const u16 *)zeros)[gpu_lane() / 4]; /* something, when there are none */
                zero[i] =
                    weight_zero_of<shape::kind>(m->zeros ? both : weight_no_zeros<shape::kind>());
            }
            if (shape::kind == MATRIX_INT4 && k % 2 == 0) {
                uint4 v = *(const uint4 *)block;
                word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
            }
            many_weights<shape>(a[i], word[i], block, k % 2, &zero[i]);
        }
        bool first = fine || (k == 0 && !two), last = k + 1 == MANY_K / 32 && (!two || !begins);
        many_products<shape>(a, inputs + k * 512, !halves && first, halves ? p : sum);
        if (!halves && (fine || last))
            many_add_group<shape>(p, sum, scale_type, side, none);
    }
}

/* --- sums of slices that several blocks made ----------------------------------------------- */

/* True in the block that left the last sums of the tile. */
GPU bool many_last(const struct op_linear *op, u32 tile, u32 split)
{
    u32 before = 0;
    gpu_sync();
    if (gpu_thread() == 0) {
        gpu_fence(); /* for all of the block, as they have met: what they leave, */
        before = gpu_atomic_add(&op->arrived[tile], 1);
        gpu_fence(); /* and what others have left */
    }
    return gpu_sync_any(before == split - 1);
}

template <class shape>
GPU void many_gather(const struct op_linear *op, const struct tile_item *it,
                     struct tile_sums<shape> *total)
{
    if (gpu_thread() == 0)
        op->arrived[it->tile] = 0;
    const float4 *from = tile_partial(op, it->tile, 0, shape::floats);
    tile_clear<shape>(total);
#pragma unroll(shape::n > 4 ? 1 : 2)
    for (u32 slice = 0; slice < MATRIX_SLICES; slice++, from += shape::floats / 4) {
        const auto scales = tile_scales_of<shape>(op, slice, it->token);
        struct tile_sums<shape> p;
#pragma unroll
        for (u32 i = 0; i < shape::m; i++)
#pragma unroll
            for (u32 j = 0; j < shape::n; j++) {
                float4 four = from[(i * shape::n + j) * GPU_THREADS];
                float *v = p.v[i][j];
                v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
            }
        tile_add<shape>(total, &p, scales);
    }
}

/* --- all together -------------------------------------------------------------------------- */

/* The `left` next stages. The body stands once: each turn starts a copy and, when enough are on
 * their way, takes a stage. */
template <class shape>
GPU void many_slice(const struct op_linear *op, const struct many_work *w, const struct matrix *m,
                    struct many_pipe<shape> *pipe, u32 left, struct tile_sums<shape> *p)
{
    bool fine = shape::kind != MATRIX_HALF && m->group == 32;
    struct tile_sums<shape> sum;
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
        bool begins = left % MANY_GROUP_STAGES == 0;
        if (fine)
            many_stage<shape, true>(m, stage, begins, &sum, p);
        else
            many_stage<shape, false>(m, stage, begins, &sum, p);
        pipe->at = pipe->at + 1 == pipe->stages ? 0 : pipe->at + 1;
        left--;
    }
}

/* One item, from its first stage to its outputs. */
template <class shape>
GPU void many_run_item(const struct op_linear *op, const struct many_work *w,
                       struct many_pipe<shape> *pipe, u32 item)
{
    struct tile_item it = many_item_of(op, w, shape::kind, shape::tokens, item);
    const struct matrix *m = &op->part[it.part];
    struct tile_sums<shape> total, p;
    u32 slice = it.slice, slices = w->share;
    if (!shape::parked)
        tile_clear<shape>(&total);
    for (u32 i = 0; i < slices; i++, slice++) {
        u32 left = (tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / MANY_K;
        tile_clear<shape>(&p);
        many_slice<shape>(op, w, m, pipe, left, &p);
        it = many_item_of(op, w, shape::kind, shape::tokens, item);
        if (w->split > 1) {
            tile_leave<shape>(op, it.tile, slice, &p);
            continue;
        }
        const auto scales = tile_scales_of<shape>(op, slice, it.token);
        if (shape::parked)
            tile_park<shape>(&p, scales, i == 0);
        else
            tile_add<shape>(&total, &p, scales);
    }
    it = many_item_of(op, w, shape::kind, shape::tokens, item);
    if (w->split > 1) {
        if (!many_last(op, it.tile, w->split))
            return;
        many_gather<shape>(op, &it, &p);
    } else if (shape::parked) {
        tile_unpark<shape>(&p);
    } else {
        p = total;
    }
    tile_store_item<shape>(op, it, w->rows, &p);
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

/* Tokens of a tile: the same for parts of all kinds, so that their places in op->partial are apart.
 */
GPU u32 many_tokens(const struct op_linear *op, u32 rows, u32 shared_bytes)
{
    u32 kind = 0; /* the one with the largest stages */
    for (u32 i = 0; i < op->parts; i++)
        kind = MAX(kind, op->part[i].kind);
    u32 weights = MANY_BLOCKS * MANY_K * 2 * (4 << kind) + MANY_SIDES_BYTES; /* of a stage */
    u32 stage64 = weights + 64 * MANY_K * 2, stage128 = weights + 128 * MANY_K * 2;
    if (rows <= 16 && kind == MATRIX_INT4)
        return 16;
    if (rows <= 32 || MANY_HEAD_BYTES + 2 * stage64 > shared_bytes)
        return 32;
    bool big = MANY_HEAD_BYTES + MANY_OUTPUTS * 128 * 4 + 2 * stage128 <= shared_bytes;
    return rows > 64 && big ? 128 : 64;
}

/* Asks the weights of this block's first item into L2, before the blocks have met. */
GPU void many_fetch(const struct op_linear *op, const struct gpu_run *run)
{
    u32 rows = linear_rows(&op->in, run->step), kind = op->part[0].kind;
    if (rows == 0)
        return;
    u32 tokens = many_tokens(op, rows, run->shared_bytes);
    struct many_work w = many_work_of(op, rows, kind, tokens);
    if (gpu_block() >= w.items)
        return;
    struct tile_item it = many_item_of(op, &w, kind, tokens, gpu_block());
    const struct matrix m = op->part[it.part];
    size_t of_block = (size_t)m.k * 2 * (4 << kind); /* bytes of 16 outputs */
    size_t from = (size_t)tile_slice_at(&m, it.slice) * 2 * (4 << kind);
    size_t end = (size_t)tile_slice_at(&m, it.slice_end) * 2 * (4 << kind);
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
    u32 tokens = many_tokens(op, linear_rows(&op->in, run->step), run->shared_bytes);
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
