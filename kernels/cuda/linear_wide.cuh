/* Linears of more tokens on Hopper: as linear_many.cuh, with products of four warps at a time
 * (wgmma), which reach what mma.sync cannot. Weights go from shared memory through registers, where
 * they become halves, and are the 16-row operand of each warp; prepared inputs are read from shared
 * memory by the tensor cores themselves. The sums are those of step.h, in the same order, and so
 * are the bits.
 *
 * A tile is 256 outputs by 32 or 64 tokens. A block has whole tiles, in turns; or,
 * where that would leave blocks idle, all slices of all tiles stand in a row and each block has an
 * equal stretch of them: what it has of a tile that others share it leaves in op->partial, slice by
 * slice. When a block has done all that others wait for, it adds up its share of those tiles.
 *
 * Weights, prepared inputs and scales come through a ring of stages by copies that run ahead from
 * item to item; inputs by bulk copies, which tensor cores see without a fence. Two barriers a
 * stage: `full`, where the copies of every thread have come; `empty`, where every thread has done
 * with it. The two groups of warps run apart by up to a stage, so that one multiplies while the
 * other scales its sums.
 *
 * A stage is
 *   weights [8 warps][m][chunks][512]
 *   inputs [tokens / 8][k / 8][8 tokens][8 halves]
 *   sides [8 warps][m][spans]: scales [64], zeros [16]; a span is 32 inputs, or all of the stage
 * where groups are multiples of 128
 */
#ifndef ZIGCUDA_LINEAR_WIDE_CUH
#define ZIGCUDA_LINEAR_WIDE_CUH

#include "kernels/cuda/linear_share.cuh"

#ifdef GPU_GROUPS

enum {
    WIDE_STAGES = 7, /* at most */
    WIDE_SIDE_BYTES = 64 + 16,
    WIDE_FETCH_BYTES = 128 << 10, /* that a block asks into L2 before the blocks have met */
};

/* In step_shared: made once for all operations, whatever shape their stages have, since racecheck
 * (compute-sanitizer) takes copies for unfinished when the barrier that they came by is made anew.
 */
struct wide_barriers {
    u64 full[WIDE_STAGES], empty[WIDE_STAGES];
    u64 phases; /* between operations, a bit a stage: the parity of the next phase of either */
};
static_assert(sizeof(struct wide_barriers) <= sizeof(((struct step_shared *)0)->barriers),
              "its place");

/* In front of shared memory. */
struct wide_head {
    struct share_work work;
};

/* Tiles of a warp are M times 16 outputs by TOKENS. */
template <u32 KIND, u32 M, u32 TOKENS> struct wide_shape {
    static constexpr u32 kind = KIND, m = M, n = TOKENS / 8, across = 1, apart = 4;
    static constexpr u32 tokens = TOKENS, blocks = 8 * M, floats = 16 * blocks * TOKENS;
    static constexpr u32 k = KIND == MATRIX_HALF ? 64 : 128; /* inputs of a stage */
    static constexpr u32 spans = k / 32;
    /* Of 8 tokens, in a batch of products: sums of two batches are under way. */
    static constexpr u32 unit = n > 8 ? 8 : M == 1 && n == 8 ? 4 : n;
    static constexpr u32 halves = n / unit;
    static constexpr u32 block_bytes =
        k * 2 * (4 << MATRIX_SHIFT(KIND)); /* 16 outputs of a stage */
    static constexpr u32 weight_bytes = blocks * block_bytes;
    static constexpr u32 input_bytes = TOKENS * k * 2;
    static constexpr u32 stage_bytes =
        weight_bytes + input_bytes + (KIND == MATRIX_HALF ? 0 : blocks * spans * WIDE_SIDE_BYTES);
    /* Many sums do not fit registers twice: those of all slices so far are parked. */
    static constexpr bool parked = M * n >= 16;
    static constexpr u32 head = ROUND_UP((u32)sizeof(struct wide_head), 128u);
    static constexpr u32 stages_at = head + (parked ? floats * 4 : 0);
};

/* --- copying ahead ------------------------------------------------------------------------- */

GPU struct wide_head *wide_head_of(void)
{
    return (struct wide_head *)gpu_shared();
}

/* The ring, and where this thread's copies for the next stage come from. Where outputs or tokens
 * end, the last are copied again: what becomes of them is not put out. */
template <class shape> struct wide_pipe {
    /* A warp's part of the inputs: `times` bulk copies, 8 tokens or less each. */
    static constexpr u32 times = CEIL_DIV(shape::n, (u32)GPU_WARPS);
    static constexpr u32 bulk_bytes = shape::input_bytes / GPU_WARPS / times;
    static_assert(times == 1, "wide_open");
    struct wide_barriers *barriers;
    u32 stages;
    u32 fill, filled, take, taken; /* stages, and phases as wide_barriers has them */
    u32 place, left;               /* of the item that is copied; stages that remain of it */
    const u8 *weights[shape::m], *inputs[times];
    const u8 *side[shape::m];
    u32 side_bytes, side_to; /* of a stage; to none: ~0 */
};

template <class shape> GPU u8 *wide_stage_at(u32 stage)
{
    return gpu_shared() + shape::stages_at + stage * shape::stage_bytes;
}

/* Lane 4 s + j copies 16 bytes of the scales of span s, lane 16 + s its zeros. */
template <class shape>
GPU void wide_aim_side(struct wide_pipe<shape> *pipe, const struct matrix *m, u32 block, u32 k)
{
    bool zeros = gpu_lane() >= 16;
    u32 spans = shape::k / m->group, span = zeros ? gpu_lane() - 16 : gpu_lane() / 4;
    u32 piece = zeros ? 0 : gpu_lane() % 4 * 16, last = CEIL_DIV(m->n, 16) - 1;
    u32 bytes = 16 * (zeros ? 1 : weight_scale_bytes(m));
    bool mine = span < spans && (zeros ? m->zeros != NULL : piece < bytes);
    pipe->side_bytes = spans * bytes;
    pipe->side_to = shape::weight_bytes + shape::input_bytes +
                    (gpu_warp() * shape::m * shape::spans + span) * WIDE_SIDE_BYTES +
                    (zeros ? 64 : piece);
    if (!mine)
        pipe->side_to = ~0u;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
        pipe->side[i] =
            (zeros ? m->zeros : (const u8 *)m->scales) + piece +
            ((size_t)MIN(block + 4 * i, last) * m->groups + k / m->group + span) * bytes;
}

template <class shape>
GPU void wide_aim(struct wide_pipe<shape> *pipe, const struct op_linear *op,
                  const struct share_work *work)
{
    struct share_work w = *work;
    struct tile_item it =
        share_any_of(op, &w, shape::kind, shape::blocks, shape::tokens, pipe->place);
    struct matrix m = op->part[it.part];
    u32 k = tile_slice_at(&m, it.slice), end = tile_slice_at(&m, it.slice_end);
    u32 block = it.block + tile_warp_block<shape>(), last = CEIL_DIV(m.n, 16) - 1;
    size_t of_block = (size_t)m.k * 2 * (4 << MATRIX_SHIFT(shape::kind)); /* bytes of 16 outputs */
    pipe->left = (end - k) / shape::k;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
        pipe->weights[i] = m.data + MIN(block + 4 * i, last) * of_block +
                           (size_t)k * 2 * (4 << MATRIX_SHIFT(shape::kind)) + gpu_lane() * 16;
#pragma unroll
    for (u32 i = 0; i < pipe->times; i++) {
        u32 at = (i * GPU_WARPS + gpu_warp()) * pipe->bulk_bytes, octet = it.token / 8;
        octet = MIN(octet + at / (shape::k * 16), CEIL_DIV(w.rows, 8) - 1);
        pipe->inputs[i] =
            (const u8 *)op->in.prepared + ((size_t)octet * m.k + k) * 16 + at % (shape::k * 16);
    }
    if (shape::kind != MATRIX_HALF)
        wide_aim_side<shape>(pipe, &m, block, k);
}

/* Asks for this warp's part of the next stage, if there is one. */
template <class shape> GPU void wide_copy(struct wide_pipe<shape> *pipe, const struct op_linear *op)
{
    struct wide_head *head = wide_head_of();
    while (pipe->left == 0 && pipe->place < head->work.end) {
        pipe->place = share_next(&head->work, pipe->place);
        if (pipe->place < head->work.end)
            wide_aim<shape>(pipe, op, &head->work);
    }
    if (pipe->left == 0)
        return;
    u32 fill = gpu_scalar(pipe->fill);
    u64 *full = &pipe->barriers->full[fill];
    u8 *to = wide_stage_at<shape>(fill), *mine = to + gpu_lane() * 16;
    u32 warp = gpu_scalar(gpu_warp());
    gpu_barrier_wait(&pipe->barriers->empty[fill], ~pipe->filled >> fill & 1);
#pragma unroll
    for (u32 i = 0; i < pipe->times; i++) {
        gpu_copy_bulk(to + shape::weight_bytes + (i * GPU_WARPS + warp) * pipe->bulk_bytes,
                      pipe->inputs[i], pipe->bulk_bytes, full);
        pipe->inputs[i] += shape::k * 16;
    }
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
#pragma unroll
        for (u32 at = 0; at < shape::block_bytes; at += WEIGHT_CHUNK_BYTES)
            gpu_copy16(mine + (warp * shape::m + i) * shape::block_bytes + at,
                       pipe->weights[i] + at);
        pipe->weights[i] += shape::block_bytes;
    }
#pragma unroll
    for (u32 i = 0; i < shape::m && shape::kind != MATRIX_HALF; i++) {
        if (pipe->side_to != ~0u)
            gpu_copy16(to + pipe->side_to + i * shape::spans * WIDE_SIDE_BYTES, pipe->side[i]);
        pipe->side[i] += pipe->side_bytes;
    }
    gpu_barrier_arrive_copied(full);
    pipe->left--;
    pipe->filled ^= 1u << fill;
    pipe->fill = fill + 1 == pipe->stages ? 0 : fill + 1;
}

/* Fills the ring but for one stage, which comes while the first is taken. */
template <class shape>
GPU void wide_begin(struct wide_pipe<shape> *pipe, const struct op_linear *op)
{
    struct wide_head *head = wide_head_of();
    pipe->fill = pipe->take = 0;
    pipe->filled = pipe->taken = (u32)pipe->barriers->phases;
    pipe->place = head->work.first;
    pipe->left = 0;
    if (pipe->place < head->work.end)
        wide_aim<shape>(pipe, op, &head->work);
    for (u32 i = 0; i < pipe->stages - 1; i++)
        wide_copy<shape>(pipe, op);
}

/* This thread has done with the stage that it took. What bulk copies brought, only tensor cores
 * have read: without a fence. */
template <class shape> GPU void wide_release(const struct wide_pipe<shape> *pipe)
{
    gpu_barrier_arrive(&pipe->barriers->empty[pipe->take]);
}

/* --- sums ---------------------------------------------------------------------------------- */

/* The halves of piece `piece` of a stage: COUNT times 16 inputs of a block of 16 outputs. */
template <u32 kind, u32 COUNT>
GPU void wide_fragments(u32 a[COUNT][4], const u8 *block, u32 piece, const struct weight_zero *zero)
{
    const u32 per = 4 >> MATRIX_SHIFT(kind); /* of 16 inputs, in a chunk */
#pragma unroll
    for (u32 t = 0; t < COUNT; t++) {
        u32 tile = piece * COUNT + t;
        uint4 v = *(const uint4 *)(block + tile / per * WEIGHT_CHUNK_BYTES);
        u32 word[4] = {v.x, v.y, v.z, v.w};
        weight_fragment<kind>(a[t], word, tile % per, zero);
    }
}

/* p += scale * sum, of a tile of 16 outputs and `unit` times 8 tokens. */
template <u32 unit> GPU void wide_add(float (*p)[4], const float *sum, float low, float high)
{
#pragma unroll
    for (u32 j = 0; j < unit * 4; j++)
        p[j / 4][j % 4] = fmaf(j % 4 < 2 ? low : high, sum[j], p[j / 4][j % 4]);
}

/* A stage, onto the sums of the slice. Batches of products are of a group, or half of one (a
 * piece), a tile of 16 outputs a warp, and `unit` times 8 tokens; one is under way while the one
 * before is scaled and weights for the next are made. None is when the stage ends: the compiler
 * follows them no further.
 */
template <class shape, bool fine>
GPU void wide_stage(struct wide_pipe<shape> *pipe, const struct op_linear *op, u32 scale_type,
                    bool zeros, struct tile_sums<shape> *p)
{
    constexpr bool plain = shape::kind == MATRIX_HALF;
    constexpr u32 tiles = plain || fine ? 2 : 4; /* of 16 inputs, in a piece */
    constexpr u32 steps = shape::k / 16 / tiles * shape::m, batches = steps * shape::halves;
    constexpr u32 unit = shape::unit, octet = shape::k * 16; /* bytes of 8 tokens */
    static_assert(plain || shape::m * shape::halves == 2, "both pieces of a group have one sum");
    const u32 take = gpu_scalar(pipe->take), warp = gpu_scalar(gpu_warp());
    const u8 *stage = wide_stage_at<shape>(take);
    const u8 *weights = stage + warp * shape::m * shape::block_bytes + gpu_lane() * 16;
    const u8 *sides = stage + shape::weight_bytes + shape::input_bytes +
                      warp * shape::m * shape::spans * WIDE_SIDE_BYTES;
    const u32 inputs = gpu_group_tiles(stage + shape::weight_bytes);
    struct weight_scales scales[2][shape::m] = {}; /* of pieces in turns */
    struct weight_zero zero[shape::m] = {};
    float sum[2][unit * 4];
    u32 a[2][tiles][4];
    gpu_barrier_wait(&pipe->barriers->full[take], pipe->taken >> take & 1);
#pragma unroll
    for (u32 batch = 0; batch <= batches; batch++) {
        u32 step = batch / shape::halves, h = batch % shape::halves;
        u32 piece = step / shape::m, i = step % shape::m;
        if (h == 0 && batch < batches) {
            const u8 *side = sides + (i * shape::spans + (fine ? piece : 0)) * WIDE_SIDE_BYTES;
            if (!plain && (fine || piece == 0)) {
                const u32 *words = (const u32 *)side;
                u32 at = gpu_lane() / 4, second = at << (scale_type == DTYPE_F32);
                u32 both = ((const u16 *)(side + 64))[at]; /* something, when there are none */
                scales[fine ? piece % 2 : 0][i] =
                    weight_scales_of(words[second], words[second + 1], scale_type);
                zero[i] =
                    weight_zero_of<shape::kind>(zeros ? both : weight_no_zeros<shape::kind>());
            }
            wide_fragments<shape::kind, tiles>(a[step % 2], weights + i * shape::block_bytes, piece,
                                               &zero[i]);
        }
        if (batch < batches) {
            gpu_group_begin<tiles>(a[step % 2]);
            u32 b = gpu_group_tiles_at(inputs, h * unit * shape::k * 16 + piece * tiles * 256);
#pragma unroll
            for (u32 t = 0; t < tiles; t++) {
                u32 at = gpu_group_tiles_at(b, t * 256);
                if (plain)
                    gpu_group_mma<unit * 8, octet, true>(p->v[i][h * unit], a[step % 2][t], at);
                else if (t || (!fine && piece))
                    gpu_group_mma<unit * 8, octet, true>(sum[batch % 2], a[step % 2][t], at);
                else
                    gpu_group_mma<unit * 8, octet, false>(sum[batch % 2], a[step % 2][t], at);
            }
            gpu_group_commit();
        }
        if (batch == batches / 2)
            wide_copy<shape>(pipe, op);
        if (plain) {
            if (batch < batches)
                gpu_group_wait<1>();
            else
                gpu_group_wait<0>();
        } else if (batch) {
            u32 before = batch - 1;
            float(*to)[4] = &p->v[before / shape::halves % shape::m][before % shape::halves * unit];
            u32 of = before / shape::halves;
            const struct weight_scales *r = &scales[fine ? of / shape::m % 2 : 0][of % shape::m];
            if (batch < batches)
                gpu_group_wait<1, unit * 8>(sum[before % 2]);
            else
                gpu_group_wait<0, unit * 8>(sum[before % 2]);
            if (fine || of / shape::m % 2)
                wide_add<unit>(to, sum[before % 2], r->low, r->high);
        }
    }
    wide_release<shape>(pipe);
    pipe->taken ^= 1u << take;
    pipe->take = take + 1 == pipe->stages ? 0 : take + 1;
}

/* The `left` next stages, a slice. */
template <class shape, bool fine>
GPU void wide_slice(struct wide_pipe<shape> *pipe, const struct op_linear *op,
                    const struct matrix *m, u32 left, struct tile_sums<shape> *p)
{
    const u32 scale_type = MATRIX_SCALES(shape::kind, m);
    const bool zeros = MATRIX_HAS_ZEROS(shape::kind, m);
#pragma unroll 1
    for (; left; left--)
        wide_stage<shape, fine>(pipe, op, scale_type, zeros, p);
}

/* --- all together -------------------------------------------------------------------------- */

/* One item, from its first stage to its outputs. */
template <class shape>
GPU void wide_run_item(const struct op_linear *op, struct wide_pipe<shape> *pipe, u32 place)
{
    const struct share_work *w = &wide_head_of()->work;
    struct tile_item it = share_any_of(op, w, shape::kind, shape::blocks, shape::tokens, place);
    const struct matrix *m = &op->part[it.part];
    bool whole = it.slice_end - it.slice == MATRIX_SLICES;
    bool fine =
        shape::kind == MATRIX_FP4 || (shape::kind != MATRIX_HALF && gpu_uniform(m->group) == 32);
    struct tile_sums<shape> total, p;
    u32 slice = gpu_uniform(it.slice), slice_end = gpu_uniform(it.slice_end);
    if (!shape::parked)
        tile_clear<shape>(&total);
#pragma unroll 1
    for (; slice < slice_end; slice++) {
        u32 left = gpu_uniform((tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / shape::k);
        tile_clear<shape>(&p);
        if (fine)
            wide_slice<shape, true>(pipe, op, m, left, &p);
        else
            wide_slice<shape, false>(pipe, op, m, left, &p);
        if (!whole) {
            tile_leave<shape>(op, it.tile, slice, &p);
            continue;
        }
        const auto scales = tile_scales_of<shape>(op, slice, it.token);
        if (shape::parked)
            tile_park<shape>(&p, scales, slice == 0);
        else
            tile_add<shape>(&total, &p, scales);
    }
    if (!whole) {
        tile_tell(&op->arrived[it.tile], it.slice_end - it.slice);
        return;
    }
    if (shape::parked)
        tile_unpark<shape>(&p);
    it = share_any_of(op, w, shape::kind, shape::blocks, shape::tokens, place);
    tile_store_item<shape, true>(op, it, shape::parked ? &p : &total);
}

/* By one thread, before anything else; then all must meet. */
GPU void wide_open(struct wide_barriers *b)
{
    for (u32 i = 0; i < WIDE_STAGES; i++) {
        gpu_barrier_init(&b->full[i], GPU_THREADS + GPU_WARPS);
        gpu_barrier_init(&b->empty[i], GPU_THREADS);
    }
    b->phases = 0;
}

/* What rows are multiplied with: tiles of so many tokens, `room` bytes of shared memory; and what
 * they are, or NULL. */
struct wide_how {
    u32 tokens, room;
    const struct share_pairs *pairs;
};

template <class shape>
GPU void wide_run_as(const struct op_linear *op, const struct gpu_run *run, struct wide_how how)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + run->shared_bytes);
    struct wide_head *head = wide_head_of();
    struct wide_pipe<shape> pipe = {
    };
    if (gpu_thread() == 0)
        head->work = how.pairs ? share_work_of(how.pairs, shape::blocks, shape::tokens)
                               : share_work_of(op, linear_rows(&op->in, run->step), shape::kind,
                                               shape::blocks, shape::tokens);
    gpu_fence_bulk();
    gpu_sync();
    pipe.barriers = (struct wide_barriers *)near->barriers;
    pipe.stages = MIN((how.room - shape::stages_at) / shape::stage_bytes, (u32)WIDE_STAGES);
    wide_begin<shape>(&pipe, op);
    for (u32 place = head->work.first; place < head->work.end;
         place = share_next(&head->work, place))
        wide_run_item<shape>(op, &pipe, place);
    share_finish<shape>(op, head->work);
    gpu_sync();
    if (gpu_thread() == 0)
        pipe.barriers->phases = pipe.taken;
}

/* Tiles of 16 outputs a warp. */
GPU constexpr u32 wide_m(u32 tokens)
{
    return tokens <= 64 ? 2 : 1;
}

/* The shape for a number of tokens: the same for all kinds, so that places in op->partial are. */
template <u32 kind, u32 tokens>
using wide_shape_of = struct wide_shape<kind, wide_m(tokens), tokens>;

template <u32 tokens> GPU bool wide_fits(u32 shared_bytes)
{
    typedef wide_shape_of<MATRIX_INT8, tokens> int8; /* one of them has the largest stages */
    typedef wide_shape_of<MATRIX_HALF, tokens> half;
    return int8::stages_at + 2 * MAX(int8::stage_bytes, half::stage_bytes) <= shared_bytes;
}

/* Tokens of a tile. */
GPU u32 wide_tokens(u32 rows, u32 shared_bytes)
{
    if (rows > 32 && wide_fits<64>(shared_bytes))
        return 64;
    return 32;
}

/* Asks the first weights of this block into L2. */
GPU void wide_fetch(const struct op_linear *op, const struct gpu_run *run)
{
    u32 rows = linear_rows(&op->in, run->step), kind = op->part[0].kind, asked = 0;
    if (rows == 0)
        return;
    u32 tokens = wide_tokens(rows, run->shared_bytes);
    u32 blocks = 8 * wide_m(tokens);
    struct share_work w = share_work_of(op, rows, kind, blocks, tokens);
    for (u32 place = w.first; place < w.end && asked < WIDE_FETCH_BYTES;
         place = share_next(&w, place)) {
        struct tile_item it = share_item_of(op, &w, kind, blocks, tokens, place);
        const struct matrix *m = &op->part[it.part];
        size_t of_block = (size_t)m->k * 2 * (4 << kind); /* bytes of 16 outputs */
        u32 from = tile_slice_at(m, it.slice) * 2 * (4 << kind);
        u32 end = tile_slice_at(m, it.slice_end) * 2 * (4 << kind);
        end = MIN(end, from + WIDE_FETCH_BYTES / blocks);
        for (u32 i = gpu_warp(); i < blocks && it.block + i < CEIL_DIV(m->n, 16); i += GPU_WARPS)
            for (u32 at = from + gpu_lane() * 128; at < end; at += 32 * 128)
                gpu_prefetch(m->data + (it.block + i) * of_block + at);
        asked += blocks * (end - from);
    }
}

template <u32 kind>
GPU void wide_run_kind(const struct op_linear *op, const struct gpu_run *run, struct wide_how how)
{
    bool any = false;
    for (u32 i = 0; i < op->parts; i++)
        any |= op->part[i].kind == kind;
    if (!any)
        return;
    if (kind == MATRIX_FP4 || how.tokens == 32) /* experts_choice_wide */
        wide_run_as<wide_shape_of<kind, 32>>(op, run, how);
    else
        wide_run_as<wide_shape_of<kind, 64>>(op, run, how);
}

GPU void wide_run(const struct op_linear *op, const struct gpu_run *run, struct wide_how how)
{
    wide_run_kind<MATRIX_INT4>(op, run, how);
    wide_run_kind<MATRIX_INT8>(op, run, how);
    wide_run_kind<MATRIX_HALF>(op, run, how);
    wide_run_kind<MATRIX_FP4>(op, run, how);
}

#endif

#endif
