/* Linears of more than 64 tokens on Hopper: tiles of 128 outputs by 128 tokens, products of four
 * warps at a time (wgmma), 64 outputs by all tokens of the tile. Weights go from shared memory
 * through registers, where they become halves, and are the 16-row operand of each warp; prepared
 * inputs are read from shared memory by the tensor cores themselves. The sums are those of step.h,
 * in the same order, and so are the bits.
 *
 * A block has whole tiles, in turns; or, where that would leave blocks idle, parts of tiles, whose
 * sums go from block to block through op->partial (share_broad_of).
 *
 * Everything comes through a ring of stages. Four warps of their own, behind those that all
 * operations have (kernels `prefill_int4` and so on), ask for the copies, a quarter each, ahead
 * from item to item: in the midst of products these instructions would take longer than the
 * products do, and one warp for all takes longer, too. Two barriers a stage: `full`, where all
 * copies have come; `empty`, where every thread has done with it. While a piece of products is
 * under way, a warp makes the weights of the next one, of the next stage too; then it scales the
 * sums, while the other group of four warps multiplies.
 *
 * A stage is
 *   weights [8 warps][chunks][512]
 *   inputs [k / 8][128 tokens][8 halves]
 *   sides [8 warps]: scales as in memory [256], zeros as in memory [64]
 */
#ifndef ZIGCUDA_LINEAR_BROAD_CUH
#define ZIGCUDA_LINEAR_BROAD_CUH

#include "kernels/cuda/linear_share.cuh"

#ifdef GPU_GROUPS

enum {
    BROAD_TOKENS = 128,
    BROAD_STAGES = 8,       /* at most */
    BROAD_WORK_BYTES = 384, /* in front of shared memory, for other operations */
    BROAD_SCALES_BYTES = 256,
    BROAD_SIDE_BYTES = BROAD_SCALES_BYTES + 64,
};

/* Behind that. The barriers are made once for all operations: racecheck (compute-sanitizer) takes
 * copies for unfinished when the barrier that they came by is made anew. */
struct broad_head {
    u64 full[BROAD_STAGES], empty[BROAD_STAGES];
    const void *op; /* OP_LINEAR's or OP_EXPERTS'; NULL: the copying warps may go */
    struct share_broad share;
};

/* TOKENS: of a tile; a stage has room for BROAD_TOKENS. */
template <u32 KIND, u32 TOKENS = BROAD_TOKENS> struct broad_shape {
    static constexpr u32 kind = KIND, m = 1, n = TOKENS / 8, across = 1, apart = 4;
    static constexpr u32 tokens = TOKENS, blocks = 8, floats = 16 * blocks * BROAD_TOKENS;
    static constexpr u32 k = KIND == MATRIX_HALF ? 64 : 128; /* inputs of a stage */
    static constexpr u32 block_bytes =
        k * 2 * (4 << MATRIX_SHIFT(KIND)); /* 16 outputs of a stage */
    static constexpr u32 input_bytes = k * 2 * tokens;
    static constexpr u32 inputs_at = blocks * block_bytes;
    static constexpr u32 sides_at = inputs_at + k * 2 * BROAD_TOKENS;
    static constexpr u32 stage_bytes =
        sides_at + (KIND == MATRIX_HALF ? 0 : blocks * BROAD_SIDE_BYTES);
    /* Sums do not fit registers twice: those of all slices so far are parked. */
    static constexpr bool parked = true;
    static constexpr u32 head = BROAD_WORK_BYTES + ROUND_UP((u32)sizeof(struct broad_head), 128u);
    static constexpr u32 stages_at = head + floats * 4;
};

/* --- copying ahead ------------------------------------------------------------------------- */

GPU struct broad_head *broad_head_of(void)
{
    return (struct broad_head *)(gpu_shared() + BROAD_WORK_BYTES);
}

template <class shape> GPU u8 *broad_stage_at(u32 stage)
{
    return gpu_shared() + shape::stages_at + stage * shape::stage_bytes;
}

/* Where this warp's copies of the next stage come from: a quarter of the inputs, weights and sides
 * of two blocks of 16 outputs. Where outputs end, the last are copied again: what becomes of them
 * is not put out. */
struct broad_source {
    u32 left; /* stages of the item that remain */
    const u8 *weights[2], *inputs;
    const u8 *scales, *zeros;    /* of the block of this lane's half of the warp */
    u32 scales_bytes, all_bytes; /* of a stage and a block: scales; and zeros */
};

/* Weights and sides from input k on: of the tile that begins at `block` of 16 outputs, of which
 * `last` is the last. */
template <class shape>
GPU void broad_aim_weights(struct broad_source *from, const struct matrix *m, u32 block, u32 last,
                           u32 k)
{
    size_t of_block = (size_t)m->k * 2 * (4 << MATRIX_SHIFT(shape::kind)); /* bytes of 16 outputs */
    block += (gpu_warp() - GPU_WARPS) * 2;
    for (u32 i = 0; i < 2; i++)
        from->weights[i] = m->data + MIN(block + i, last) * of_block +
                           (size_t)k * 2 * (4 << MATRIX_SHIFT(shape::kind));
    if (shape::kind == MATRIX_HALF)
        return;
    u32 groups = shape::k / m->group;
    block = MIN(block + gpu_lane() / 16, last);
    size_t at = ((size_t)block * m->groups + k / m->group) * 16;
    from->scales = (const u8 *)m->scales + at * weight_scale_bytes(m);
    from->zeros = m->zeros + at;
    from->scales_bytes = groups * 16 * weight_scale_bytes(m);
    from->all_bytes = from->scales_bytes + (m->zeros ? groups * 16 : 0);
}

template <class shape>
GPU void broad_aim(struct broad_source *from, const struct op_linear *op,
                   const struct share_work *w, u32 place)
{
    struct tile_item it = share_item_of(op, w, shape::kind, shape::blocks, shape::tokens, place);
    const struct matrix *m = &op->part[it.part];
    const u32 quarter = gpu_warp() - GPU_WARPS, last = CEIL_DIV(m->n, 16) - 1;
    u32 k = tile_slice_at(m, it.slice);
    from->left = (tile_slice_at(m, it.slice_end) - k) / shape::k;
    from->inputs = (const u8 *)op->in.prepared + ((size_t)it.token * m->k + k * BROAD_TOKENS) * 2 +
                   quarter * (shape::input_bytes / 4);
    broad_aim_weights<shape>(from, m, it.block, last, k);
}

template <class shape> GPU u32 broad_stages(const struct gpu_run *run)
{
    return MIN((run->shared_bytes - shape::stages_at) / shape::stage_bytes, (u32)BROAD_STAGES);
}

/* Asks for a quarter of a stage. more: bytes that lane 0 copies besides, by the same barrier. */
template <class shape>
GPU void broad_copy(struct broad_source *from, u8 *to, u64 *full, u32 more = 0)
{
    const u32 quarter = gpu_warp() - GPU_WARPS, inputs = shape::input_bytes / 4;
    if (gpu_lane() == 0) {
        gpu_barrier_expect(full, inputs + 2 * shape::block_bytes + more);
        gpu_copy_bulk_alone(to + shape::inputs_at + quarter * inputs, from->inputs, inputs, full);
        for (u32 i = 0; i < 2; i++)
            gpu_copy_bulk_alone(to + (quarter * 2 + i) * shape::block_bytes, from->weights[i],
                                shape::block_bytes, full);
    }
    from->inputs += shape::input_bytes;
    from->weights[0] += shape::block_bytes;
    from->weights[1] += shape::block_bytes;
    if (shape::kind == MATRIX_HALF)
        return;
    u8 *side = to + shape::sides_at + (quarter * 2 + gpu_lane() / 16) * BROAD_SIDE_BYTES;
    u32 scales = from->scales_bytes, zeros = from->all_bytes - scales;
#pragma unroll 1
    for (u32 at = gpu_lane() % 16 * 16; at < from->all_bytes; at += 256) {
        bool zero = at >= scales;
        gpu_copy16(side + (zero ? at - scales + BROAD_SCALES_BYTES : at),
                   zero ? from->zeros + at - scales : from->scales + at);
    }
    gpu_barrier_arrive_copied(full);
    from->scales += scales;
    from->zeros += zeros;
}

/* The next stage, and the parity that its barrier is waited for with. */
struct broad_ring {
    u32 stages, at, parity;
};

GPU void broad_advance(struct broad_ring *ring)
{
    ring->at = ring->at + 1 == ring->stages ? 0 : ring->at + 1;
    ring->parity ^= ring->at == 0;
}

/* All stages of a block's work, by the copying warps. */
template <class shape> GPU void broad_feed(const struct broad_head *head, struct broad_ring *ring)
{
    const struct op_linear *op = (const struct op_linear *)head->op;
    const struct share_broad s = head->share;
    struct broad_source from;
#pragma unroll 1
    for (u32 place = share_broad_first(&s); place < s.work.end;
         place = share_broad_next(&s, place)) {
        broad_aim<shape>(&from, op, &s.work, place);
#pragma unroll 1
        for (; from.left; from.left--) {
            u64 *barriers = broad_head_of()->full;
            gpu_barrier_wait(barriers + BROAD_STAGES + ring->at, ring->parity);
            broad_copy<shape>(&from, broad_stage_at<shape>(ring->at), barriers + ring->at);
            broad_advance(ring);
        }
    }
}

/* What the copying warps do, until they may go. */
template <u32 kind> GPU void broad_serve(const struct gpu_run *p)
{
    struct broad_ring ring = {broad_stages<struct broad_shape<kind>>(p), 0, 1};
    for (;;) {
        gpu_sync_all();
        gpu_fence_bulk(); /* what it copies from, others have written */
        const struct broad_head *head = broad_head_of();
        if (!head->op)
            return;
        broad_feed<struct broad_shape<kind>>(head, &ring);
        gpu_sync_all();
    }
}

/* At the end of the kernel. */
GPU void broad_dismiss(void)
{
    gpu_sync();
    if (gpu_thread() == 0)
        broad_head_of()->op = NULL;
    gpu_sync_all();
}

GPU void broad_await(const struct broad_ring *ring)
{
    gpu_barrier_wait(&broad_head_of()->full[ring->at], ring->parity);
}

/* --- sums ---------------------------------------------------------------------------------- */

/* How a loop is specialised: `fine` where groups are of 32. A piece, whose weights are made
 * together, is of `tiles` times 16 inputs: a group, or half of one. */
template <u32 KIND, bool FINE> struct broad_loop {
    static constexpr bool plain = KIND == MATRIX_HALF, fine = FINE;
    static constexpr u32 tiles = plain || fine ? 2 : 4;
    static constexpr u32 pieces = broad_shape<KIND>::k / 16 / tiles; /* of a stage; even */
};

/* What is made ahead of products, of pieces in turns. */
template <class loop> struct broad_ahead {
    u32 a[2][loop::tiles][4];
    struct weight_scales scales[2];
    struct weight_zero zero;
};

/* Weights, and scales, of piece `piece` of the stage that is taken. */
template <class shape, class loop>
GPU void broad_make(struct broad_ahead<loop> *ahead, u32 stage, u32 piece, u32 scale_type,
                    bool zeros)
{
    const u32 per = 4 >> MATRIX_SHIFT(shape::kind); /* of 16 inputs, in a chunk */
    const u8 *at = broad_stage_at<shape>(stage);
    const u8 *weights = at + gpu_warp() * shape::block_bytes + gpu_lane() * 16;
    if (!loop::plain && (loop::fine || piece == 0)) {
        const u8 *side = at + shape::sides_at + gpu_warp() * BROAD_SIDE_BYTES;
        bool f32 = scale_type == DTYPE_F32;
        const u32 *words = (const u32 *)(side + piece * (f32 ? 64 : 32));
        u32 row = gpu_lane() / 4;
        u32 both = ((const u16 *)(side + BROAD_SCALES_BYTES + piece * 16))[row];
        ahead->scales[piece % 2] =
            weight_scales_of(words[row << f32], words[f32 ? 2 * row + 1 : 0], scale_type);
        ahead->zero = weight_zero_of<shape::kind>(zeros ? both : weight_no_zeros<shape::kind>());
    } else if (!loop::plain) {
        ahead->scales[piece % 2] = ahead->scales[0];
    }
#pragma unroll
    for (u32 t = 0; t < loop::tiles; t++) {
        u32 tile = piece * loop::tiles + t;
        uint4 v = *(const uint4 *)(weights + tile / per * WEIGHT_CHUNK_BYTES);
        u32 word[4] = {v.x, v.y, v.z, v.w};
        weight_fragment<shape::kind>(ahead->a[piece % 2][t], word, tile % per, &ahead->zero);
    }
}

/* The stage that is taken, whose first piece is made; `more`: another one follows. */
template <class shape, class loop>
GPU void broad_stage(struct broad_ring *ring, struct broad_ahead<loop> *ahead, u32 scale_type,
                     bool zeros, bool more, struct tile_sums<shape> *p)
{
    const u32 stage = gpu_scalar(ring->at);
    const u32 further = shape::tokens * 16; /* bytes of 8 inputs */
    const u32 inputs = gpu_group_tiles<further>(broad_stage_at<shape>(stage) + shape::inputs_at);
    float sum[shape::tokens / 2];
    broad_advance(ring);
#pragma unroll
    for (u32 piece = 0; piece < loop::pieces; piece++) {
        float *to = loop::plain ? p->v[0][0] : sum;
        gpu_group_begin<loop::tiles>(ahead->a[piece % 2]);
#pragma unroll
        for (u32 t = 0; t < loop::tiles; t++) {
            u32 at = gpu_group_tiles_at(inputs, (piece * loop::tiles + t) * 2 * further);
            const u32 *a = ahead->a[piece % 2][t];
            if (loop::plain || t || (!loop::fine && piece))
                gpu_group_mma<shape::tokens, 128, true, further>(to, a, at);
            else
                gpu_group_mma<shape::tokens, 128, false, further>(to, a, at);
        }
        gpu_group_commit();
        if (piece + 1 < loop::pieces) {
            if (ring->stages) /* always; the compiler would make them after the wait */
                broad_make<shape, loop>(ahead, stage, piece + 1, scale_type, zeros);
        } else if (more) {
            broad_await(ring);
            broad_make<shape, loop>(ahead, ring->at, 0, scale_type, zeros);
        }
        gpu_group_wait<0, shape::tokens>(to);
        if (!loop::plain && (loop::fine || piece + 1 == loop::pieces))
#pragma unroll
            for (u32 i = 0; i < shape::tokens / 2; i++) {
                float *v = &p->v[0][i / 4][i % 4];
                *v = fmaf(i % 4 < 2 ? ahead->scales[piece % 2].low : ahead->scales[piece % 2].high,
                          sum[i], *v);
            }
    }
    gpu_barrier_leave(&broad_head_of()->empty[stage]);
}

/* The slices of an item: parked, or left for those who add them up. */
template <class shape, class loop>
GPU void broad_slices(struct broad_ring *ring, const struct op_linear *op,
                      const struct tile_item *it, bool parked)
{
    const struct matrix *m = &op->part[it->part];
    const u32 scale_type = m->scale_type, slice_end = gpu_uniform(it->slice_end);
    const u32 first = gpu_uniform(it->slice), tile = it->tile, token = it->token;
    const bool zeros = m->zeros != NULL;
    struct broad_ahead<loop> ahead;
    struct tile_sums<shape> p;
    u32 all = gpu_uniform((tile_slice_at(m, slice_end) - tile_slice_at(m, first)) / shape::k);
    if (all) {
        broad_await(ring);
        broad_make<shape, loop>(&ahead, ring->at, 0, scale_type, zeros);
    }
#pragma unroll 1
    for (u32 slice = first; slice < slice_end; slice++) {
        u32 left = gpu_uniform((tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / shape::k);
        tile_clear<shape>(&p);
#pragma unroll 1
        for (; left; left--)
            broad_stage<shape, loop>(ring, &ahead, scale_type, zeros, --all > 0, &p);
        if (parked)
            tile_park<shape>(&p, tile_scales_of<shape>(op, slice, token), slice == 0);
        else
            tile_leave<shape>(op, tile, slice, &p);
    }
}

/* --- all together -------------------------------------------------------------------------- */

/* The sums that the block before left, of a tile that this one goes on with. */
template <class shape> GPU void broad_take(const struct op_linear *op)
{
    const u32 from = gpu_block() - 1;
    tile_await(&op->arrived[from], 1);
    tile_take_parked<shape>(tile_partial(op, 0, from, shape::floats));
}

/* Leaves what is parked, if it is, and tells who waits for this part of a tile. */
template <class shape> GPU void broad_leave(const struct op_linear *op, u32 place)
{
    const struct share_broad *share = &broad_head_of()->share;
    const struct tile_item it =
        share_item_of(op, &share->work, shape::kind, shape::blocks, shape::tokens, place);
    if (share->parts == 1) {
        tile_leave_parked<shape>(tile_partial(op, 0, gpu_block(), shape::floats));
        tile_tell(&op->arrived[gpu_block()], MATRIX_SLICES);
        return;
    }
    if (it.slice == 0)
        tile_leave_parked<shape>(tile_partial(op, it.tile, 0, shape::floats));
    tile_tell(&op->arrived[it.tile], it.slice_end - it.slice);
}

/* One item, from its first stage to its outputs. */
template <class shape>
GPU void broad_run_item(const struct op_linear *op, struct broad_ring *ring, u32 place)
{
    const struct share_broad *share = &broad_head_of()->share;
    const struct tile_item it =
        share_item_of(op, &share->work, shape::kind, shape::blocks, shape::tokens, place);
    const bool parked = gpu_uniform(share->parts == 1 || it.slice == 0);
    if (parked && it.slice)
        broad_take<shape>(op);
    if (shape::kind != MATRIX_HALF && gpu_uniform(op->part[it.part].group) == 32)
        broad_slices<shape, struct broad_loop<shape::kind, true>>(ring, op, &it, parked);
    else
        broad_slices<shape, struct broad_loop<shape::kind, false>>(ring, op, &it, parked);
    if (gpu_uniform(it.slice_end < MATRIX_SLICES || !parked)) {
        broad_leave<shape>(op, place);
        return;
    }
    struct tile_sums<shape> p;
    tile_unpark<shape>(&p);
    tile_store_item<shape>(op, it, &p);
}

/* Before anything else; then all must meet. The ring, for those who take from it. */
template <u32 kind> GPU struct broad_ring broad_open(const struct gpu_run *p)
{
    typedef broad_shape<kind> shape;
    static_assert(shape::stages_at + 2 * shape::stage_bytes + STEP_SHARED_BYTES <=
                      PREFILL_SHARED_BYTES,
                  "two stages at the least");
    static_assert(4 * sizeof(struct linear_slices) <= BROAD_WORK_BYTES, "linear_prepare_pairs");
    struct broad_ring ring = {broad_stages<shape>(p), 0, 0};
    if (gpu_thread() == 0)
        for (u32 i = 0; i < ring.stages; i++) {
            gpu_barrier_init(&broad_head_of()->full[i], kind == MATRIX_HALF ? 4 : 4 + 128);
            gpu_barrier_init(&broad_head_of()->empty[i], GPU_THREADS);
        }
    return ring;
}

/* A tile that several blocks have left: this one's share of it. */
template <class shape>
GPU void broad_finish(const struct op_linear *op, const struct share_broad *share)
{
    const u32 parts = gpu_uniform(share->parts), first = share->work.first;
    if (parts > 1 && gpu_uniform(first < share->work.end))
        share_add_up<shape>(op, share->work, first, gpu_block() % parts, parts,
                            MATRIX_SLICES / parts);
}

template <class shape>
GPU void broad_run_as(const struct op_linear *op, const struct gpu_run *run,
                      struct broad_ring *ring)
{
    struct broad_head *head = broad_head_of();
    if (gpu_thread() == 0) {
        head->share = share_broad_of(op, linear_rows(&op->in, run->step), shape::kind,
                                     shape::blocks, shape::tokens, shape::k);
        head->op = op;
    }
    gpu_fence_bulk();
    gpu_sync_all();
    for (u32 place = share_broad_first(&head->share); place < head->share.work.end;
         place = share_broad_next(&head->share, place))
        broad_run_item<shape>(op, ring, place);
    broad_finish<shape>(op, &head->share);
    gpu_sync_all(); /* the copying warps, too, have read `head` */
}

/* The parts of one kind, of rows that all blocks prepare. */
template <u32 kind>
GPU void broad_run(const struct op_linear *op, const struct gpu_run *run, struct broad_ring *ring)
{
    bool any = false;
    for (u32 i = 0; i < op->parts; i++)
        any |= op->part[i].kind == kind;
    if (!gpu_uniform(any && linear_rows(&op->in, run->step) > 0))
        return;
    linear_prepare<BROAD_TOKENS, FORM_HALVES>(&op->in, gpu_near(run->step));
    gpu_sync(); /* without it the compiler takes what follows for divergent */
    gpu_grid_sync(run->state.barrier);
    broad_run_as<struct broad_shape<kind>>(op, run, ring);
}

#endif

#endif
