/* Linears of more tokens, where linear_wide.cuh is not. A tile is 128 or 256 outputs by 16, 32, 64
 * or 128 tokens; whole tiles or even stretches of their slices are shared out among the blocks as
 * linear_share.cuh says. Weights, prepared inputs and scales come through stages in shared memory
 * (linear_many_stage.cuh); copies run ahead from item to item.
 *
 * What the inner loop needs is held by value, since reading it through pointers costs a load each
 * time; all else is read again when an item begins or ends, since registers are scarce. What does
 * not depend on the shape much is in functions of its own: code is what each card's image keeps.
 */
#ifndef ZIGCUDA_LINEAR_MANY_CUH
#define ZIGCUDA_LINEAR_MANY_CUH

#include "kernels/cuda/linear_many_stage.cuh"
#include "kernels/cuda/linear_share.cuh"

/* What this block has to do. */
struct many_work {
    struct share_work share;
    u32 each; /* stretches of so many slices each, which no tile's end divides; 0: of equal size */
};

GPU struct many_work *many_work(void)
{
    return (struct many_work *)(gpu_shared() + MANY_WORK_AT);
}

/* As share_work_of says; but where no stretch is longer for it, none lies across the end of a tile,
 * so that fewer blocks share one. */
GPU struct many_work many_work_of(const struct op_linear *op, u32 rows, struct many_cut cut,
                                  const struct share_pairs *pairs)
{
    if (pairs)
        return {share_work_of(pairs, cut.blocks, cut.tokens), 0};
    struct many_work w = {share_work_of(op, rows, cut.kind, cut.blocks, cut.tokens), 0};
    const u32 most = CEIL_DIV(w.share.slices, gpu_blocks());
    if (w.share.step || MATRIX_SLICES % most)
        return w;
    w.each = most;
    w.share.first = MIN(gpu_block() * most, w.share.slices);
    w.share.end = MIN(w.share.first + most, w.share.slices);
    return w;
}

/* Of those who share a tile, this block is number `number`. */
struct many_part {
    u32 number, sharers;
};

/* place: of this block's, in the tile. */
GPU struct many_part many_part_of(const struct many_work *w, u32 place)
{
    const u32 begin = place / MATRIX_SLICES * MATRIX_SLICES;
    if (w->each)
        return {place % MATRIX_SLICES / w->each, MATRIX_SLICES / w->each};
    const u32 first = share_block_of(&w->share, begin);
    return {gpu_block() - first, share_block_of(&w->share, begin + MATRIX_SLICES - 1) - first + 1};
}

/* --- copying ahead ------------------------------------------------------------------------- */

/* Lane 4 s + j copies 16 bytes of the scales of span s, lane 16 + s its zeros; lanes from 20 on the
 * sums of inputs. */
GPU void many_aim_side(struct many_from *from, const struct matrix *m, struct many_cut cut,
                       u32 first, u32 k, const u8 *sums, size_t strip_apart)
{
    const u32 lane = gpu_lane(), units = cut.blocks / GPU_WARPS;
    const bool zeros = lane >= 16;
    const u32 spans = from->fine ? +MANY_SPANS : 1, span = zeros ? lane - 16 : lane / 4;
    const u32 piece = zeros ? 0 : lane % 4 * 16,
              of_group = 16 * (zeros ? 1 : weight_scale_bytes(m));
    const u32 number = gpu_warp() + (lane - 20) * GPU_WARPS, blocks = CEIL_DIV(m->n, 16u);
    from->side = NULL, from->side_to = from->side_step = from->side_apart = 0; /* none */
    if (lane >= 20 && cut.sums_at && number < cut.tokens / 2) {
        from->side =
            sums + number / (MANY_STRIP / 2) * strip_apart + number % (MANY_STRIP / 2) * 16;
        from->side_to = cut.sums_at + number * 16;
        from->side_step = MANY_STRIP_BYTES;
    } else if (cut.kind != MATRIX_HALF && span < spans && first < blocks &&
               (zeros ? m->zeros != NULL : piece < of_group)) {
        const u32 all = cut.sums_at ? 1 : +MANY_SPANS;
        from->side = (zeros ? m->zeros : (const u8 *)m->scales + piece) +
                     ((size_t)first * m->groups + k / m->group + span) * of_group;
        from->side_to = cut.sides_at + (gpu_warp() * units * all + span) * MANY_SIDE_BYTES +
                        (zeros ? 64 : piece);
        from->side_step = spans * of_group;
        from->side_apart = first + 1 < blocks ? m->groups * of_group : 0;
    }
}

GPU_CALL void many_aim(const struct op_linear *op, struct many_cut cut, u32 place,
                       struct many_from *from)
{
    const struct share_work w = many_work()->share;
    const struct tile_item it = share_any_of(op, &w, cut.kind, cut.blocks, cut.tokens, place);
    const struct matrix *m = &op->part[it.part];
    const u32 k = tile_slice_at(m, it.slice), end = tile_slice_at(m, it.slice_end);
    const u32 units = cut.blocks / GPU_WARPS, last = CEIL_DIV(m->n, 16u) - 1;
    const u32 first = it.block + gpu_warp() * units;
    const u32 row = it.token % MANY_STRIP + gpu_thread() % cut.tokens;
    const size_t of_block = (size_t)m->k * 2 * (4 << MATRIX_SHIFT(cut.kind)); /* of 16 outputs */
    const size_t apart = (size_t)(op->in.room / 128) * MANY_STRIP_BYTES;      /* of strips */
    const u8 *strips = (const u8 *)op->in.prepared + it.token / MANY_STRIP * apart +
                       (size_t)(k / 128) * MANY_STRIP_BYTES;
    from->left = (end - k) / MANY_K;
    from->fine = cut.kind != MATRIX_HALF && m->group == 32;
    from->weights = m->data + MIN(first, last) * of_block +
                    (size_t)k * 2 * (4 << MATRIX_SHIFT(cut.kind)) + gpu_lane() * 16;
    from->second = first < last ? (u32)of_block : 0;
    from->inputs = strips + row / MANY_STRIP * apart +
                   gpu_thread() / cut.tokens * MANY_EIGHT_BYTES + row % MANY_STRIP * 16;
    many_aim_side(from, m, cut, first, k, strips + MANY_SUMS_AT + it.token % MANY_STRIP * 8, apart);
}

/* The ring: stages, in bytes from gpu_shared() on; and the item that is copied next. */
struct many_pipe {
    struct many_from from;
    u32 take, end, place;
};

template <class shape> GPU u32 many_after(const struct many_pipe *pipe, u32 stage)
{
    stage += shape::stage_bytes;
    return stage == pipe->end ? +shape::stages_at : stage;
}

/* The item that is copied next, if there is one. */
template <class shape> GPU void many_next(struct many_pipe *pipe, const struct op_linear *op)
{
    while (pipe->from.left == 0 && pipe->place < many_work()->share.end) {
        struct many_from next; /* in memory, as pipe->from is not */
        many_aim(op, shape::cut, pipe->place, &next);
        pipe->from = next;
        pipe->place = share_next(&many_work()->share, pipe->place);
    }
}

/* The meeting that rows are prepared for: what gpu_grid_arrive returned, and whether this block has
 * waited for it. pairs: what the rows are, or NULL. */
struct many_meeting {
    u32 before;
    bool over;
    const struct share_pairs *pairs;
};

/* This block's work and its first item, while the blocks meet. (To send for weights then takes
 * longer: what the blocks meet by would stand behind them.) Then fills the ring, and waits for
 * its first stage. */
template <class shape>
GPU void many_begin(struct many_pipe *pipe, const struct op_linear *op, const struct gpu_run *run,
                    u32 stages, struct many_meeting meeting)
{
    const struct many_offsets offsets = many_offsets_of<shape>(0);
    if (gpu_thread() == GPU_THREADS - 1) /* the first one has to ask for the others */
        *many_work() = many_work_of(op, linear_rows(&op->in, run->step), shape::cut, meeting.pairs);
    gpu_sync();
    pipe->take = shape::stages_at;
    pipe->end = shape::stages_at + stages * shape::stage_bytes;
    pipe->place = many_work()->share.first;
    pipe->from.left = 0;
    many_next<shape>(pipe, op);
    if (!meeting.over)
        gpu_grid_wait(run->state.barrier, meeting.before);
#pragma unroll 1
    for (u32 i = 0; i < stages; i++) {
        if (pipe->from.left) {
            u8 *to = gpu_shared() + shape::stages_at + i * shape::stage_bytes;
            const struct many_ahead ahead = many_ahead_of(&pipe->from, true, to, offsets);
#pragma unroll
            for (u32 j = 0; j < many_pieces<shape>::all; j++)
                many_copy_piece<shape>(&ahead, j);
            many_advance<shape>(&pipe->from, --pipe->from.left);
            if (pipe->from.left == 0)
                many_next<shape>(pipe, op);
        }
        gpu_copy_commit();
    }
    many_wait<shape::depth - 1>(stages - 1);
}

/* The `left` next stages, a slice, in stretches of which others are copied meanwhile, or none. */
template <class shape>
GPU void many_slice(const struct op_linear *op, struct many_pipe *pipe, u32 stages, u32 left,
                    struct many_how how, struct many_offsets offsets,
                    struct many_fragments<shape> *f, struct tile_sums<shape> *p)
{
    struct tile_sums<shape> sum;
#pragma unroll 1
    while (left) {
        const bool some = pipe->from.left != 0;
        u32 n = some ? MIN(left, pipe->from.left) : left;
        left -= n;
        pipe->from.left -= some ? n : 0;
#pragma unroll 1
        for (; n; n--) {
            const bool begins = (left + n) % MANY_GROUP_STAGES == 0;
            u8 *stage = gpu_shared() + pipe->take;
            pipe->take = many_after<shape>(pipe, pipe->take);
            const struct many_turn turn = {many_place_of(stage, offsets),
                                           many_place_of(gpu_shared() + pipe->take, offsets),
                                           many_ahead_of(&pipe->from, some, stage, offsets)};
            if (!shape::small && how.fine)
                many_stage<shape, true>(f, stage, &turn, how, stages, begins, &sum, p);
            else
                many_stage<shape, false>(f, stage, &turn, how, stages, begins, &sum, p);
            gpu_copy_commit();
            many_advance<shape>(&pipe->from, (some ? pipe->from.left : 0) + n - 1);
        }
        if (pipe->from.left == 0)
            many_next<shape>(pipe, op);
    }
}

/* Where this thread has the sums of a whole tile, which nobody else reads: those of slices that
 * nobody leaves there, or, where all blocks have whole tiles, a place a block. */
GPU float4 *many_own(const struct op_linear *op, u32 tile, u32 floats)
{
    const u32 number = many_work()->share.step ? gpu_block() : tile * MATRIX_SLICES;
    return (float4 *)(op->partial + (size_t)number * floats) + gpu_thread();
}

/* The units and 8 tokens that a warp puts out at a time, m x n of them a tile. */
struct many_piece {
    u32 block, token; /* token: this lane's first */
};

GPU struct many_piece many_piece_of(struct many_cut cut, const struct tile_item *it, u32 i)
{
    const u32 octet = gpu_warp() % cut.across * cut.n + i % cut.n;
    return {it->block + gpu_warp() / cut.across * cut.m + i / cut.n,
            it->token + octet * 8 + gpu_lane() % 4 * 2};
}

/* What halves are multiplied by, else 1 (tile_scale): of a piece's two rows of this lane. */
GPU float2 many_factors(const struct matrix *m, u32 kind, u32 block)
{
    const u32 row = block * 16 + gpu_lane() / 4;
    const float *of = (const float *)m->scales;
    if (kind != MATRIX_HALF)
        return {1, 1};
    return {of[MIN(row, m->n - 1)], of[MIN(row + 8, m->n - 1)]};
}

/* Puts out a whole tile, four pieces of the same outputs at once. */
GPU void many_finish_whole(const struct op_linear *op, struct many_cut cut,
                           const struct tile_item *it, const float4 *own)
{
    enum { AT_ONCE = 4 };
    typedef many_shape<MATRIX_INT4, 1, AT_ONCE, 1> four;
#pragma unroll 1
    for (u32 i = 0; i < cut.m * cut.n; i += AT_ONCE) {
        const struct many_piece piece = many_piece_of(cut, it, i);
        const float2 factor = many_factors(&op->part[it->part], cut.kind, piece.block);
        struct tile_sums<four> sum;
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) {
            const float4 p = own[(i + j) * GPU_THREADS];
            float *v = sum.v[0][j];
            v[0] = p.x * factor.x, v[1] = p.y * factor.x;
            v[2] = p.z * factor.y, v[3] = p.w * factor.y;
        }
        tile_store<four, false, true>(op, it->part, piece.block, piece.token, it->rows, &sum,
                                      it->end, NULL, NULL, it->back);
    }
}

/* Puts out a tile: a whole one, whose sums this thread has at `own`, GPU_THREADS apart; or, where
 * that is NULL, this block's share of one that several have left in slices, which it adds up in
 * order. */
GPU_CALL void many_finish(const struct op_linear *op, struct many_cut cut, u32 place,
                          const float4 *own)
{
    using small = tile_small<MATRIX_INT4>;
    const struct share_work w = many_work()->share;
    const struct tile_item it = share_any_of(op, &w, cut.kind, cut.blocks, cut.tokens, place);
    const struct many_part part = own ? (struct many_part){0, 1} : many_part_of(many_work(), place);
    const u32 floats = 16 * cut.blocks * cut.tokens;
    if (own && cut.n % 4 == 0)
        return many_finish_whole(op, cut, &it, own);
    if (!own)
        tile_await(&op->arrived[it.tile], part.sharers);
#pragma unroll 1
    for (u32 i = part.number; i < cut.m * cut.n; i += part.sharers) {
        const struct many_piece piece = many_piece_of(cut, &it, i);
        struct tile_sums<small> sum;
        struct tile_old<small> old;
        float *v = sum.v[0][0];
        tile_ask_old(&old, op, it.part, piece.block, piece.token, it.rows);
        if (own) {
            const float4 four = own[i * GPU_THREADS];
            v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        } else {
            float4 p[MATRIX_SLICES];
            tile_load_all(p, tile_partial(op, it.tile, 0, floats) + i * GPU_THREADS, floats / 4);
            tile_join_all(&sum, p, op->in.prepared_scale + piece.token * MATRIX_SLICES, 1,
                          MATRIX_SLICES);
        }
        const float2 factor = many_factors(&op->part[it.part], cut.kind, piece.block);
        v[0] *= factor.x, v[1] *= factor.x, v[2] *= factor.y, v[3] *= factor.y;
        tile_store<small, false, true>(op, it.part, piece.block, piece.token, it.rows, &sum, it.end,
                                       &old, NULL, it.back);
    }
}

/* A function of its own, since all shapes want it. */
GPU_CALL struct tile_item many_item_of(const struct op_linear *op, struct many_cut cut, u32 place)
{
    return share_any_of(op, &many_work()->share, cut.kind, cut.blocks, cut.tokens, place);
}

/* One item, from its first stage to its sums. */
template <class shape>
GPU void many_run_item(const struct op_linear *op, struct many_pipe *pipe, u32 stages, u32 place)
{
    const struct tile_item it = many_item_of(op, shape::cut, place);
    const struct matrix *m = &op->part[it.part];
    const struct many_how how = {MATRIX_SCALES(shape::kind, m), MATRIX_HAS_ZEROS(shape::kind, m),
                                 MATRIX_IS_FINE(shape::kind, m)};
    const bool whole = it.slice_end - it.slice == MATRIX_SLICES;
    struct tile_sums<shape> total, p;
    const struct many_offsets offsets = many_offsets_of<shape>(m->scale_type);
    struct many_fragments<shape> f;
    if (!shape::parked)
        tile_clear<shape>(&total);
    const struct many_place first = many_place_of(gpu_shared() + pipe->take, offsets);
    many_first<shape>(&f, &first, how);
#pragma unroll 1
    for (u32 slice = it.slice; slice < it.slice_end; slice++) {
        const u32 left = (tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / MANY_K;
        tile_clear<shape>(&p);
        many_slice<shape>(op, pipe, stages, left, how, offsets, &f, &p);
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
        return many_finish(op, shape::cut, place, tile_parked<shape>(0));
    float4 *own = many_own(op, it.tile, shape::floats);
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        const float *v = total.v[i / shape::n][i % shape::n];
        own[i * GPU_THREADS] = (float4){v[0], v[1], v[2], v[3]};
    }
    many_finish(op, shape::cut, place, own);
}

/* The tiles that this block shares with others, when all of it is done that others wait for. */
GPU void many_finish_shared(const struct op_linear *op, struct many_cut cut)
{
    const struct share_work w = many_work()->share;
    if (w.step)
        return;
#pragma unroll 1
    for (u32 place = w.first; place < w.end; place = share_next(&w, place))
        if (place % MATRIX_SLICES || w.end - place < MATRIX_SLICES) /* else it is whole */
            many_finish(op, cut, place, NULL);
}

template <class shape>
GPU_CALL void many_run_as(const struct op_linear *op, const struct gpu_run *run,
                          struct many_meeting meeting)
{
    const u32 stages = many_stages<shape>(run->shared_bytes);
    struct many_pipe pipe = {};
    many_begin<shape>(&pipe, op, run, stages, meeting);
#pragma unroll 1
    for (u32 place = many_work()->share.first; place < many_work()->share.end;
         place = share_next(&many_work()->share, place))
        many_run_item<shape>(op, &pipe, stages, place);
    gpu_copy_wait<0>(); /* empty groups */
    many_finish_shared(op, shape::cut);
    gpu_sync();
}

/* Shapes of small batches, and others, by tokens of a tile. */
template <u32 m, u32 tokens>
using many_small = struct many_shape<MATRIX_INT4, m, tokens / 8, 1, true>;
using many_small_64 = struct many_shape<MATRIX_INT4, 2, 4, 2, true>; /* as m = 1 */
template <u32 kind> using many_32 = struct many_shape<kind, 1, 4, 1>;
template <u32 kind> using many_64 = struct many_shape<kind, 2, 4, 2>;
template <u32 kind> using many_128 = struct many_shape<kind, 2, 8, 2>;

/* The stages of so many parts, of these tiles, fit into shared memory. */
template <template <u32> class shape>
GPU bool many_fits(const struct matrix *part, u32 parts, u32 shared_bytes)
{
    u32 stages = 4;
    for (u32 i = 0; i < parts; i++)
        stages = MIN(stages,
                     part[i].kind == MATRIX_HALF   ? many_stages<shape<MATRIX_HALF>>(shared_bytes)
                     : part[i].kind == MATRIX_INT8 ? many_stages<shape<MATRIX_INT8>>(shared_bytes)
                                                   : many_stages<shape<MATRIX_INT4>>(shared_bytes));
    return stages >= 2;
}

/* Tiles of so many tokens: the same for parts of all kinds, so that their places in op->partial are
 * apart. small: of small shapes. */
struct many_choice {
    u32 tokens;
    u32 small; /* blocks of outputs of a warp; 0: not small */
};

/* What a block has most to do, in stages: whole tiles, or stretches, whose sums go through memory.
 */
template <u32 m> GPU u32 many_cost(const struct op_linear *op, u32 rows, u32 tokens)
{
    enum { EXCHANGE = 3 }; /* measured on Hopper, as what follows */
    const u32 stages = op->part[0].slice / 128;
    u32 tiles = 0;
    for (u32 i = 0; i < op->parts; i++)
        tiles += share_tiles(&op->part[i], m * GPU_WARPS);
    tiles *= CEIL_DIV(rows, tokens);
    return MIN(CEIL_DIV(tiles, gpu_blocks()) * MATRIX_SLICES * stages,
               CEIL_DIV(tiles * MATRIX_SLICES, gpu_blocks()) * stages + EXCHANGE);
}

/* Blocks of outputs of a tile, a warp's: those of 128 outputs take some 3/4 of the time of 256, and
 * less where products take most of it. */
GPU u32 many_small_m(const struct op_linear *op, u32 rows, u32 tokens)
{
    const u32 one = many_cost<1>(op, rows, tokens), two = many_cost<2>(op, rows, tokens);
    return (tokens > 32 ? one * 2 < two * 3 : one * 3 < two * 4) ? 1 : 2;
}

GPU struct many_choice many_choice_of(const struct op_linear *op, u32 rows, u32 shared_bytes)
{
    if (op->in.group == 128 && rows <= MANY_SMALL_TOKENS &&
        many_stages<many_small<2, 32>>(shared_bytes) >= 2) {
        const bool most = rows > 32 && many_stages<many_small<2, 64>>(shared_bytes) >= 2;
        const u32 tokens = rows <= 16 ? 16 : most ? 64 : 32;
        return {tokens, many_small_m(op, rows, tokens)};
    }
    if (rows <= 32 || !many_fits<many_64>(op->part, op->parts, shared_bytes))
        return {32, 0};
    return {rows > 64 && many_fits<many_128>(op->part, op->parts, shared_bytes) ? 128u : 64u, 0};
}

template <u32 m>
GPU void many_run_small(const struct op_linear *op, const struct gpu_run *run, u32 tokens,
                        struct many_meeting meeting)
{
    if (tokens == 16)
        many_run_as<many_small<m, 16>>(op, run, meeting);
    else if (tokens == 32)
        many_run_as<many_small<m, 32>>(op, run, meeting);
    else if (m == 1)
        many_run_as<many_small_64>(op, run, meeting);
    else
        many_run_as<many_small<2, 64>>(op, run, meeting);
}

/* Parts of one kind. */
template <u32 kind>
GPU void many_run_kind(const struct op_linear *op, const struct gpu_run *run, struct many_choice c,
                       struct many_meeting *meeting)
{
    bool any = false;
    for (u32 i = 0; i < op->parts; i++)
        any |= op->part[i].kind == kind;
    if (!any)
        return;
    if (kind == MATRIX_INT4 && c.small == 1)
        many_run_small<1>(op, run, c.tokens, *meeting);
    else if (kind == MATRIX_INT4 && c.small)
        many_run_small<2>(op, run, c.tokens, *meeting);
    else if (c.tokens == 32)
        many_run_as<many_32<kind>>(op, run, *meeting);
    else if (kind != MATRIX_FP4 && c.tokens == 64) /* experts_choice */
        many_run_as<many_64<kind>>(op, run, *meeting);
    else
        many_run_as<many_128<kind>>(op, run, *meeting);
    meeting->over = true;
}

/* Multiplies rows that this block has prepared its part of. pairs: what they are, which are
 * computed as `c` says; or NULL. */
GPU void many_run(const struct op_linear *op, const struct gpu_run *run,
                  const struct share_pairs *pairs, struct many_choice c)
{
    struct many_meeting meeting = {gpu_grid_arrive(run->state.barrier), false, pairs};
    if (!pairs)
        c = many_choice_of(op, linear_rows(&op->in, run->step), run->shared_bytes);
    many_run_kind<MATRIX_INT4>(op, run, c, &meeting);
    many_run_kind<MATRIX_INT8>(op, run, c, &meeting);
    many_run_kind<MATRIX_HALF>(op, run, c, &meeting);
    many_run_kind<MATRIX_FP4>(op, run, c, &meeting);
}

#endif
