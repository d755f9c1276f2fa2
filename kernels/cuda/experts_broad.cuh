/* Experts of steps of many tokens on Hopper (kernel `prefill_experts`): linears as in
 * linear_broad.cuh, of all pairs of a token and an expert. A tile is 128 outputs of an expert by up
 * to 128 of its pairs, for which there are loops of 32, 64 and 128. Blocks have whole tiles, in
 * turns. Rows are prepared for each pair, as a tile's copies want them: [k / 8][T pairs][8 inputs],
 * tile behind tile, each in BROAD_TOKENS rows. (Rows gathered by copies of 16 bytes were slower.)
 */
#ifndef ZIGCUDA_EXPERTS_BROAD_CUH
#define ZIGCUDA_EXPERTS_BROAD_CUH

#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/experts_rows.cuh"
#include "kernels/cuda/linear_broad.cuh"

#ifdef GPU_GROUPS

enum {
    EXPERTS_BROAD_STAGES = 3, /* at most */
    /* Tiles that are on their way, of a stage each at the least, and the one that is computed. */
    EXPERTS_BROAD_TILES = EXPERTS_BROAD_STAGES + 1,
};

/* Of a tile's pairs, in turns. */
struct experts_broad_rows {
    float scale[BROAD_TOKENS][MATRIX_SLICES], factor[BROAD_TOKENS];
};

/* Behind the stages. */
struct experts_broad_near {
    struct experts_places at __attribute__((aligned(128)));
    struct experts_broad_rows rows[EXPERTS_BROAD_TILES] __attribute__((aligned(128)));
};

template <u32 kind> GPU u32 experts_broad_stages(const struct gpu_run *run)
{
    typedef broad_shape<kind> shape;
    static_assert(shape::stages_at + 2 * shape::stage_bytes + sizeof(struct experts_broad_near) +
                          STEP_SHARED_BYTES <=
                      EXPERTS_BROAD_BYTES,
                  "two stages at the least");
    const u32 room = run->shared_bytes - shape::stages_at - (u32)sizeof(struct experts_broad_near);
    return MIN(room / shape::stage_bytes, (u32)EXPERTS_BROAD_STAGES);
}

template <u32 kind> GPU struct experts_broad_near *experts_broad_near_of(u32 stages)
{
    return (struct experts_broad_near *)broad_stage_at<broad_shape<kind>>(stages);
}

/* Of a tile of this block's. */
template <u32 kind> GPU struct experts_broad_rows *experts_broad_rows_at(u32 stages, u32 item)
{
    return &experts_broad_near_of<kind>(stages)->rows[item / gpu_blocks() % EXPERTS_BROAD_TILES];
}

/* Rows of a tile of n pairs, as it is laid out and multiplied. */
GPU u32 experts_broad_room(const struct op_experts *op, u32 n)
{
    if (op->matrix.group == 32)
        return BROAD_TOKENS;
    return n <= 32 ? 32 : n <= 64 ? 64 : +BROAD_TOKENS;
}

/* --- rows ---------------------------------------------------------------------------------- */

/* As a tile's copies want them (experts_rows.cuh). */
struct experts_broad_layout {
    GPU struct experts_row row(const struct op_experts *op, const struct experts_places *at,
                               u32 expert, u32 nth, u32 most)
    {
        const u32 in_tile = nth % most, tile = at->tile[expert] + nth / most;
        const u32 left = at->pair[expert + 1] - at->pair[expert] - (nth - in_tile);
        return {tile * most + in_tile, tile * (most / 8) * op->in.k + in_tile,
                experts_broad_room(op, left) * 16};
    }

    template <u32 held, bool normed>
    GPU void put(const struct input *in, const struct experts_row &place, u32 first, u32 rows,
                 const struct linear_held<held, normed> h[2], const float up[2],
                 struct linear_slice slice)
    {
        const u32 n = first + gpu_lane() % 2;
        slice.end = n < rows ? slice.end : 0; /* of this lane's row, if that is one */
        linear_put_pair<held>((u8 *)in->prepared + (size_t)gpu_shuffle(place.at, n) * 16,
                              gpu_shuffle(place.apart, n), h[0].x, h[1].x, up[0], up[1], slice);
    }
};

/* --- copying ------------------------------------------------------------------------------- */

/* A tile's stages. */
template <class shape>
GPU void experts_broad_feed_tile(const struct op_experts *op, const struct experts_item *it,
                                 u32 tile, struct experts_broad_rows *rows, struct broad_ring *ring)
{
    const struct matrix *m = &op->matrix;
    const struct input *in = &op->in;
    const u32 first = it->expert * op->units, quarter = gpu_warp() - GPU_WARPS;
    const size_t row = (size_t)tile * BROAD_TOKENS;
    struct broad_source from;
    broad_aim_weights<shape>(&from, m, first + it->unit, first + op->units - 1, 0);
    from.inputs = (const u8 *)in->prepared + row * in->k * 2 + quarter * (shape::input_bytes / 4);
    u32 more = quarter ? 0 : shape::tokens * (MATRIX_SLICES + 1) * (u32)sizeof(float);
#pragma unroll 1
    for (u32 left = m->k / shape::k; left; left--) {
        u64 *full = broad_head_of()->full + ring->at;
        gpu_barrier_wait(full + BROAD_STAGES, ring->parity);
        broad_copy<shape>(&from, broad_stage_at<shape>(ring->at), full, more);
        if (more && gpu_lane() == 0) {
            gpu_copy_bulk_alone(rows->scale, in->prepared_scale + row * MATRIX_SLICES,
                                shape::tokens * MATRIX_SLICES * sizeof(float), full);
            gpu_copy_bulk_alone(rows->factor, in->prepared_factor + row,
                                shape::tokens * sizeof(float), full);
        }
        more = 0;
        broad_advance(ring);
    }
}

/* All stages of a block's tiles. */
template <u32 kind>
GPU void experts_broad_feed(const struct op_experts *op, struct broad_ring *ring)
{
    struct experts_broad_near *near = experts_broad_near_of<kind>(ring->stages);
    const u32 across = experts_across(op), items = near->at.tile[op->routes.experts] * across;
#pragma unroll 1
    for (u32 item = gpu_block(); item < items; item += gpu_blocks()) {
        const struct experts_item it = experts_item_of(op, &near->at, item, BROAD_TOKENS);
        const u32 room = experts_broad_room(op, it.n), tile = item / across;
        struct experts_broad_rows *rows = experts_broad_rows_at<kind>(ring->stages, item);
        if (kind != MATRIX_FP4 && room == 32)
            experts_broad_feed_tile<broad_shape<kind, 32>>(op, &it, tile, rows, ring);
        else if (kind != MATRIX_FP4 && room == 64)
            experts_broad_feed_tile<broad_shape<kind, 64>>(op, &it, tile, rows, ring);
        else
            experts_broad_feed_tile<broad_shape<kind>>(op, &it, tile, rows, ring);
    }
}

/* As broad_serve. */
template <u32 kind> GPU void experts_broad_serve(const struct gpu_run *p)
{
    struct broad_ring ring = {experts_broad_stages<kind>(p), 0, 1};
    for (;;) {
        gpu_sync_all();
        gpu_fence_bulk(); /* what it copies from, others have written */
        const void *op = broad_head_of()->op;
        if (!op)
            return;
        experts_broad_feed<kind>((const struct op_experts *)op, &ring);
        gpu_sync_all();
    }
}

/* --- products ------------------------------------------------------------------------------ */

/* A tile's slices, parked. */
template <class shape, class loop>
GPU void experts_broad_slices(struct broad_ring *ring, const struct op_experts *op, u32 item)
{
    const struct matrix *m = &op->matrix;
    const u32 scale_type = MATRIX_SCALES(shape::kind, m), token = tile_token<shape>(0);
    const bool zeros = MATRIX_HAS_ZEROS(shape::kind, m);
    struct broad_ahead<loop> ahead;
    struct tile_sums<shape> p;
    u32 all = gpu_uniform(m->k / shape::k);
    broad_await(ring);
    broad_make<shape, loop>(&ahead, ring->at, 0, scale_type, zeros);
#pragma unroll 1
    for (u32 slice = 0; slice < MATRIX_SLICES; slice++) {
        u32 left = gpu_uniform((tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / shape::k);
        if (left == 0)
            break;
        tile_clear<shape>(&p);
#pragma unroll 1
        for (; left; left--)
            broad_stage<shape, loop>(ring, &ahead, scale_type, zeros, --all > 0, &p);
        const float *scale =
            experts_broad_rows_at<shape::kind>(ring->stages, item)->scale[0] + slice;
        tile_park<shape>(&p, tile_load_scales<shape>(scale, MATRIX_SLICES, token), slice == 0);
    }
}

/* Puts a tile's outputs, of eight pairs at a time. */
template <class shape> GPU void experts_broad_put(const struct op_experts *op, u32 stages, u32 item)
{
    const struct experts_places *at = &experts_broad_near_of<shape::kind>(stages)->at;
    const struct experts_broad_rows *rows = experts_broad_rows_at<shape::kind>(stages, item);
    const struct experts_item it = experts_item_of(op, at, item, BROAD_TOKENS);
    const u32 unit = it.unit + gpu_warp(), g = gpu_lane() / 4;
    const u32 pair = at->pair[it.expert] + it.first;
    const size_t output = ((size_t)it.expert * op->units + unit) * 16 + g;
    const float *scales = (const float *)op->matrix.scales, *bias = op->matrix.bias;
    float low = 1, high = 1;
    if (unit >= op->units)
        return;
    if (shape::kind == MATRIX_HALF)
        low = scales[output], high = scales[output + 8];
#pragma unroll 2
    for (u32 j = 0; j < CEIL_DIV(it.n, 8u); j++) {
        const float4 sum = *tile_parked<shape>(j);
        const float of[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 column = j * 8 + gpu_lane() % 4 * 2 + i;
            const float factor = rows->factor[column];
            float a = of[i] * low * factor, b = of[i + 2] * high * factor;
            if (shape::kind == MATRIX_FP4 && bias) {
                a = fmaf(of[i], factor, bias[output]);
                b = fmaf(of[i + 2], factor, bias[output + 8]);
            }
            float *y = op->y + (size_t)(pair + column) * op->y_stride;
            if (column >= it.n)
                continue;
            if (op->output == OUTPUT_GATE) {
                y[unit * 8 + g] = linear_gate<shape::kind == MATRIX_FP4>(a, b, op->activation);
            } else {
                y[unit * 16 + g] = a;
                y[unit * 16 + g + 8] = b;
            }
        }
    }
}

/* --- all together -------------------------------------------------------------------------- */

/* Between products and outputs nothing of a tile is held but its number. */
template <u32 kind>
GPU void experts_broad_tile(const struct op_experts *op, struct broad_ring *ring, u32 item)
{
    typedef broad_loop<kind, false> loop;
    const struct experts_broad_near *near = experts_broad_near_of<kind>(ring->stages);
    const struct experts_item it = experts_item_of(op, &near->at, item, BROAD_TOKENS);
    const u32 room = gpu_uniform(experts_broad_room(op, it.n));
    if constexpr (kind == MATRIX_FP4)
        experts_broad_slices<broad_shape<kind>, struct broad_loop<kind, true>>(ring, op, item);
    else if (kind != MATRIX_HALF && gpu_uniform(op->matrix.group) == 32)
        experts_broad_slices<broad_shape<kind>, struct broad_loop<kind, true>>(ring, op, item);
    else if (room == 32)
        experts_broad_slices<broad_shape<kind, 32>, loop>(ring, op, item);
    else if (room == 64)
        experts_broad_slices<broad_shape<kind, 64>, loop>(ring, op, item);
    else
        experts_broad_slices<broad_shape<kind>, loop>(ring, op, item);
    experts_broad_put<broad_shape<kind>>(op, ring->stages, item);
}

/* Rows are prepared by all blocks, which meet. */
template <u32 kind>
GPU void experts_broad_run(const struct op_experts *op, const struct gpu_run *run,
                           struct broad_ring *ring)
{
    struct experts_broad_near *near = experts_broad_near_of<kind>(ring->stages);
    experts_place(&op->routes, &near->at, BROAD_TOKENS);
    gpu_sync();
    experts_rows<experts_broad_layout>(
        op, &near->at, BROAD_TOKENS,
        (struct experts_squares *)(gpu_shared() + broad_shape<kind>::head));
    gpu_sync(); /* without it the compiler takes what follows for divergent */
    gpu_grid_sync(run->state.barrier);
    if (gpu_thread() == 0)
        broad_head_of()->op = op;
    gpu_fence_bulk();
    gpu_sync_all();
#pragma unroll 1
    for (u32 item = gpu_block(); item < near->at.tile[op->routes.experts] * experts_across(op);
         item += gpu_blocks())
        experts_broad_tile<kind>(op, ring, item);
    gpu_sync_all(); /* the copying warps, too, have read what they have of the operation */
}

template <u32 kind>
GPU void experts_broad_op(const struct op *op, const struct gpu_run *run, struct broad_ring *ring)
{
    u8 *parked = gpu_shared() + broad_shape<kind>::head;
    if (op->kind == OP_ROUTE)
        experts_route<false>(&op->route, run, parked);
    else if (op->kind == OP_CHOOSE)
        experts_choose(&op->route, run->step);
    else if (op->kind == OP_EXPERTS)
        experts_broad_run<kind>(&op->experts, run, ring);
    else
        experts_mix(&op->mix, run->step, (struct experts_places *)parked);
}

#endif

#endif
