/* Rows of pairs of a token and an expert, as tensor cores want them (linear_input.cuh), prepared
 * for each pair: those of an expert lie side by side, from a tile's begin on. A layout says where:
 * it has row(op, at, expert, nth, most): where the expert's nth pair goes; tiles have `most`
 *   put(in, place, first, rows, h, up, slice): puts inputs of a slice of the rows `first` and first
 *       + 1, of which there are so many, whose places these two lanes have
 */
#ifndef ZIGCUDA_EXPERTS_ROWS_CUH
#define ZIGCUDA_EXPERTS_ROWS_CUH

#include "kernels/cuda/experts_place.cuh"
#include "kernels/cuda/linear_input.cuh"

/* Where a pair's row goes. */
struct experts_row {
    u32 number; /* of its scales and its factor */
    u32 at;     /* its inputs 0 to 7, in units of 16 bytes */
    u32 apart;  /* bytes to the next 8 */
};

/* Sums of squares of as many rows as are made at once, in turns. */
struct experts_squares {
    float of[2][GPU_WARPS][MATRIX_SLICES];
};

/* All rows: a block takes `rows` neighbouring pairs at once, whose inputs lie side by side, a warp
 * a slice, of which a lane has `held` quads at most. */
template <u32 held, u32 rows, bool normed, class layout>
GPU void experts_rows_of(const struct op_experts *op, const struct experts_places *at, u32 most,
                         struct experts_squares *squares)
{
    static_assert(rows % 2 == 0 && rows <= GPU_WARPS, "two at a time; a warp a factor");
    const struct input *in = &op->in;
    const struct routes *r = &op->routes;
    const struct linear_how how = linear_how_of(in);
    const struct linear_slice slice = linear_slice_of(in, gpu_warp());
    const u32 first = slice.first + gpu_lane(), pairs = at->pair[r->experts], warp = gpu_warp();
    u32 turn = 0;
#pragma unroll 1
    for (u32 pair = gpu_block() * rows; pair < pairs; pair += gpu_blocks() * rows, turn ^= 1) {
        /* a lane finds a row */
        const u32 mine = MIN(pair + gpu_lane() % rows, pairs - 1);
        const u32 e = experts_that_has(at->pair, r->experts, mine), nth = mine - at->pair[e];
        const u32 row = op->paired ? mine : r->token[(size_t)e * r->room + nth];
        const struct experts_row place = layout().row(op, at, e, nth, most);
        struct linear_held<held, normed> h[rows];
        float scale = 0;
#pragma unroll
        for (u32 i = 0; i < rows; i++)
            linear_hold<held, true, normed>(
                &h[i], in, gpu_global(in->x) + (size_t)gpu_shuffle(row, i) * in->stride, first,
                slice);
#pragma unroll
        for (u32 i = 0; i < rows; i += 2) {
            float up[2];
#pragma unroll
            for (u32 n = i; n < i + 2; n++) {
                float sum = 0;
                u32 most = 0;
                linear_measure_held(&h[n], &sum, &most);
                sum = normed ? gpu_sum_warp(sum) : 0;
                if (normed && gpu_lane() == 0)
                    squares->of[turn][n][warp] = sum;
                const struct linear_scale by =
                    linear_scale_of(how, linear_most_warp(gpu_from_bits(most)));
                scale = gpu_lane() == n ? by.scale : scale;
                up[n - i] = by.up;
            }
            layout().template put<held, normed>(in, place, i, pairs - pair, &h[i], up, slice);
        }
        if (gpu_lane() < rows && pair + gpu_lane() < pairs)
            in->prepared_scale[(size_t)place.number * MATRIX_SLICES + warp] = scale;
        if (normed)
            gpu_sync();
        float all = 0;
#pragma unroll
        for (u32 i = 0; i < MATRIX_SLICES && normed; i++)
            all += squares->of[turn][warp % rows][i];
        if (gpu_lane() == warp && warp < rows && pair + warp < pairs)
            in->prepared_factor[place.number] = normed ? linear_factor_of(how, all, 0) : 1;
    }
}

/* Of an operation that EXPERTS_HOLD_ROWS says yes to. most: pairs of a tile. */
template <class layout>
GPU void experts_rows(const struct op_experts *op, const struct experts_places *at, u32 most,
                      struct experts_squares *squares)
{
    const u32 slice = op->matrix.slice;
    if (op->in.kind == INPUT_NORM) {
        if (slice <= 2 * 128)
            experts_rows_of<2, 4, true, layout>(op, at, most, squares);
        else if (slice <= 4 * 128)
            experts_rows_of<4, 2, true, layout>(op, at, most, squares);
        else
            experts_rows_of<EXPERTS_NORMED / 128, 2, true, layout>(op, at, most, squares);
    } else {
        if (slice == 128)
            experts_rows_of<1, 8, false, layout>(op, at, most, squares);
        else if (slice <= 4 * 128)
            experts_rows_of<4, 2, false, layout>(op, at, most, squares);
        else
            experts_rows_of<EXPERTS_SLICE / 128, 2, false, layout>(op, at, most, squares);
    }
}

#endif
