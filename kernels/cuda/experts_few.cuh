/* Experts that few pairs go to: linears of few tokens (linear_few.cuh), whose units are those of
 * all tiles of few_rows pairs at most, expert after expert. A block has a stretch of them. It
 * prepares the rows of the pairs that it meets for itself, warp w multiplies slice w of a unit, and
 * weights come through the warps' rings, from tile to tile.
 */
#ifndef ZIGCUDA_EXPERTS_FEW_CUH
#define ZIGCUDA_EXPERTS_FEW_CUH

#include "kernels/cuda/experts_place.cuh"
#include "kernels/cuda/linear_few.cuh"

/* Pairs of an expert, and this block's units of these, [unit, unit + units). */
struct experts_some {
    u32 expert, pair, nth, pairs; /* the first pair; its number among the expert's */
    u32 unit, units;
};

/* Those that unit `at` of the stretch, which ends at `end`, begins. */
GPU struct experts_some experts_some_at(const struct op_experts *op,
                                        const struct experts_places *places, u32 at, u32 end)
{
    const u32 tile = at / op->units, unit = at - tile * op->units;
    const u32 e = experts_that_has(places->tile, op->routes.experts, tile);
    const u32 most = op->few_rows, nth = (tile - places->tile[e]) * most;
    struct experts_some some;
    some.expert = e;
    some.pair = places->pair[e] + nth;
    some.nth = nth;
    some.pairs = MIN(places->pair[e + 1] - some.pair, most);
    some.unit = unit;
    some.units = MIN(op->units - unit, end - at);
    return some;
}

/* Bytes of a warp's ring, as decode_ring_bytes has them; to fill a whole one takes longer than it
 * saves (4 tokens: 35 us of 31). */
GPU u32 experts_ring_bytes(const struct op_experts *op, const struct gpu_run *run)
{
    const u32 half = FEW_RING_BYTES / 2;
    return EXPERTS_FEW_BYTES(op->few_rows, op->in.k, half) <= run->shared_bytes
               ? half
               : +FEW_RING_BYTES / FEW_RINGS_PARTS;
}

/* --- rows ---------------------------------------------------------------------------------- */

GPU const float *experts_few_row(const struct op_experts *op, const struct experts_some *some,
                                 u32 i)
{
    const struct routes *r = &op->routes;
    const u32 row =
        op->paired ? some->pair + i : r->token[(size_t)some->expert * r->room + some->nth + i];
    return gpu_global(op->in.x) + (size_t)row * op->in.stride;
}

enum { EXPERTS_FEW_ROWS = 2, EXPERTS_FEW_HELD = 4 }; /* at once; times four features a lane */

/* As near_prepare, of rows that lie as their features do. */
GPU void experts_few_rows(const struct op_experts *op, const struct experts_some *some,
                          const struct few_work *work)
{
    const struct input *in = &op->in;
    const bool bytes = EXPERTS_ARE_BYTES(op);
    const struct linear_how how = linear_how_of(in);
    const struct linear_slice slice = linear_slice_of(in, gpu_warp());
    const u32 first = slice.first + gpu_lane();
#pragma unroll 1
    for (u32 done = 0; done < some->pairs; done += EXPERTS_FEW_ROWS) {
        struct linear_held<EXPERTS_FEW_HELD, true> h[EXPERTS_FEW_ROWS];
#pragma unroll
        for (u32 i = 0; i < EXPERTS_FEW_ROWS; i++)
            linear_hold<EXPERTS_FEW_HELD, true, true>(
                &h[i], in, experts_few_row(op, some, MIN(done + i, some->pairs - 1)), first, slice);
#pragma unroll
        for (u32 i = 0; i < EXPERTS_FEW_ROWS; i++) {
            const u32 row = done + i;
            if (row >= some->pairs)
                break;
            u32 *to = (u32 *)(work->fragments + row * near_stride(in->k)), most = 0;
            struct linear_slices *slices = &work->slices[row];
            struct linear_measure m = {0, 0};
            linear_measure_held(&h[i], &m.squares, &most);
            m.squares = gpu_sum_warp(m.squares);
            m.most = linear_most_warp(gpu_from_bits(most));
            const struct linear_scale scale =
                linear_scale_of(how, linear_leave(slices, m, how.int8 ? 3 : 0));
            if (gpu_lane() == 0)
                slices->scale[gpu_warp()] = scale.scale * (bytes ? NEAR_BYTES_SCALE : 1);
            linear_put_held(&h[i], first, slice, scale.up, how.int8, ~0u,
                            [=](u32 q, const float v[4]) { near_put_any(to, q, v, bytes); });
        }
    }
    gpu_warp_sync();
}

/* Rows of any kind, one after the other. */
GPU_CALL void experts_few_any_rows(const struct op_experts *op, const struct experts_some *some,
                                   const struct few_work *work)
{
    struct input in = op->in;
    if (in.order)
        in.order += (size_t)some->expert * in.k;
    near_prepare_rows<false>(
        &in, some->pairs, [=](u32 i) { return experts_few_row(op, some, i); }, work->fragments,
        work->slices, EXPERTS_ARE_BYTES(op));
}

/* Each warp makes the slices that it will multiply. */
GPU void experts_few_prepare(const struct op_experts *op, const struct experts_some *some,
                             const struct few_work *work)
{
    const bool held = op->matrix.slice <= EXPERTS_FEW_HELD * 128;
    if (held && !op->in.order && linear_aligned(&op->in))
        experts_few_rows(op, some, work);
    else
        experts_few_any_rows(op, some, work);
}

/* --- weights ------------------------------------------------------------------------------- */

/* What this warp copies of the stretch. */
struct experts_stream {
    struct few_stream s;
    u32 at, end; /* units whose copies have not begun */
};

/* The next batch. */
template <typename F>
GPU void experts_few_copy(struct experts_stream *x, const struct op_experts *op,
                          const struct experts_places *places)
{
    struct few_stream *s = &x->s;
    if (s->remain == 0 && x->at < x->end) {
        const struct experts_some some = experts_some_at(op, places, x->at, x->end);
        const u32 slice = MIN(gpu_warp() * op->matrix.slice, op->matrix.k);
        s->batch = (some.expert * op->units + some.unit) * s->row + slice / F::inputs;
        s->left = s->batches;
        s->remain = some.units * s->batches;
        x->at += some.units;
    }
    few_copy<F>(s);
}

/* This warp's slice of a unit, onto p. */
template <typename F>
GPU void experts_few_slice(float p[4], struct experts_stream *stream, const struct op_experts *op,
                           const struct experts_places *places, struct few_place place,
                           const struct few_sides *sides, u32 *slot)
{
    const u8 *x = place.x;
#pragma unroll 1
    for (u32 left = stream->s.batches; left; left--) {
        few_wait<F>(stream->s.part);
        struct few_batch<F, 1> batch;
        few_load<F, 1>(&batch, gpu_shared() + *slot, sides, x);
        experts_few_copy<F>(stream, op, places);
        few_compute<F, 1>((float(*)[4])p, &batch, sides->type);
        *slot = few_behind<F>(&stream->s, *slot);
        x += F::inputs * 2;
    }
}

/* As few_leave. Of bytes a lane has a pair. */
template <typename F> GPU void experts_few_leave(float *sums, const float p[4], u32 pairs)
{
    float *to = sums + gpu_lane() % 4 * FEW_ROW_FLOATS + gpu_lane() / 4;
    if (!F::single) {
        few_leave(sums, p, pairs);
    } else if (gpu_lane() % 4 < pairs) {
        to[0] = p[0];
        to[8] = p[2];
    }
}

/* --- outputs ------------------------------------------------------------------------------- */

/* `units` of some from `first` on, whose sums are there. A thread has an output. */
GPU void experts_few_put(const struct op_experts *op, const struct experts_some *some, u32 first,
                         u32 units, const struct few_work *work)
{
    const u32 shift = op->output == OUTPUT_GATE ? 3 : 4, outputs = units << shift;
    const u32 apart = some->pairs * FEW_ROW_FLOATS;
    for (u32 i = gpu_thread(); i < some->pairs * outputs; i += GPU_THREADS) {
        const u32 row = i / outputs, output = i - row * outputs;
        const u32 unit = output >> shift, of = output - (unit << shift);
        const u32 n = (some->expert * op->units + first + unit) * 16 + of;
        const float *sums = work->sums + unit * GPU_WARPS * apart + row * FEW_ROW_FLOATS + of;
        const struct few_row by = few_row_of(&op->in, &work->slices[row]);
        float v = few_value(&op->matrix, n, sums, apart, &by);
        if (op->output == OUTPUT_GATE)
            v = linear_gate<true>(v, few_value(&op->matrix, n + 8, sums + 8, apart, &by),
                                  op->activation);
        op->y[(size_t)(some->pair + row) * op->y_stride + (first << shift) + output] = v;
    }
}

/* --- the operation ------------------------------------------------------------------------- */

template <typename F>
GPU void experts_few_of(const struct op_experts *op, const struct experts_places *places,
                        const struct few_work *work, const struct gpu_run *run)
{
    const struct matrix *m = &op->matrix;
    const struct few_sides sides = few_sides_of<F>(m);
    struct experts_stream stream;
    const u32 all = places->tile[op->routes.experts] * op->units, each = all / gpu_blocks(),
              more = all % gpu_blocks(), first = gpu_block() * each + MIN(gpu_block(), more),
              units = each + (gpu_block() < more);
    stream.s = few_stream_of<F>(m, run);
    stream.s.remain = 0;
    stream.at = first;
    stream.end = first + units;
    for (u32 i = 1; i < few_slots<F>(stream.s.part); i++)
        experts_few_copy<F>(&stream, op, places);
    u32 slot = stream.s.from;
    struct experts_some some;
#pragma unroll 1
    for (u32 at = first; at < first + units; at += some.units) {
        some = experts_some_at(op, places, at, first + units);
        if (at != first)
            gpu_sync(); /* the last tile's rows are done with */
        experts_few_prepare(op, &some, work);
        const u32 lanes = F::single ? 8 : 4, row = MIN(gpu_lane() / lanes, some.pairs - 1);
        const struct few_place place = {0, work->fragments + row * near_stride(op->in.k) +
                                               gpu_lane() % lanes * 16 +
                                               MIN(gpu_warp() * m->slice, m->k) * 2};
        const u32 most = FEW_CHUNK_UNITS >> (32 - gpu_leading_zeros(some.pairs - 1));
#pragma unroll 1
        for (u32 done = 0, n; done < some.units; done += n) {
            n = MIN(some.units - done, most);
            if (done)
                gpu_sync(); /* the last sums are done with */
#pragma unroll 1
            for (u32 i = 0; i < n; i++) {
                float p[4] = {};
                experts_few_slice<F>(p, &stream, op, places, place, &sides, &slot);
                experts_few_leave<F>(work->sums +
                                         (i * GPU_WARPS + gpu_warp()) * some.pairs * FEW_ROW_FLOATS,
                                     p, some.pairs);
            }
            gpu_sync();
            experts_few_put(op, &some, some.unit + done, n, work);
        }
    }
    gpu_copy_wait<0>();
}

GPU void experts_few(const struct op_experts *op, const struct gpu_run *run)
{
    const struct few_work work = few_work_of(op->few_rows, op->in.k);
    struct experts_places *places = (struct experts_places *)(work.slices + FEW_TOKENS);
    struct gpu_run mine = *run;
    mine.ring_bytes = experts_ring_bytes(op, run);
    mine.shared_bytes -= GPU_WARPS * mine.ring_bytes;
    experts_place(&op->routes, places, op->few_rows);
    gpu_sync();
#define EXPERTS_FEW_OF(kind, fine) \
    experts_few_of<few_form<kind, fine, kind == MATRIX_INT4, 1>>(op, places, &work, &mine)
    if (op->matrix.kind == MATRIX_HALF)
        EXPERTS_FEW_OF(MATRIX_HALF, false);
    else if (op->matrix.kind == MATRIX_INT4 && op->matrix.group == 128)
        EXPERTS_FEW_OF(MATRIX_INT4, false);
    else if (op->matrix.kind == MATRIX_INT4)
        EXPERTS_FEW_OF(MATRIX_INT4, true);
    else if (op->matrix.kind == MATRIX_FP4)
        EXPERTS_FEW_OF(MATRIX_FP4, true);
    else if (op->matrix.group == 128)
        EXPERTS_FEW_OF(MATRIX_INT8, false);
    else
        EXPERTS_FEW_OF(MATRIX_INT8, true);
#undef EXPERTS_FEW_OF
}

#endif
