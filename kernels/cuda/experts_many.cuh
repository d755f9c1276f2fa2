/* Experts in `step`: where that takes less time experts_few.cuh, else a linear whose rows are pairs
 * of a token and an expert, those of an expert from a tile's begin on, and whose one part is the
 * matrix of all experts. So it is linear_many.cuh or linear_wide.cuh that multiplies.
 */
#ifndef ZIGCUDA_EXPERTS_MANY_CUH
#define ZIGCUDA_EXPERTS_MANY_CUH

#include "kernels/cuda/experts_few.cuh"
#include "kernels/cuda/experts_rows.cuh"
#include "kernels/cuda/linear_many.cuh"
#include "kernels/cuda/linear_wide.cuh"

/* linear_wide.cuh where that can be, and it alone is compiled; on the emulator, both are. */
#if defined(GPU_GROUPS) && defined(__CUDA_ARCH__)
#define LINEAR_WIDE(run) true
#elif defined(GPU_GROUPS)
#define LINEAR_WIDE(run) (gpu_has_groups() && wide_fits<32>((run)->shared_bytes))
#endif

/* Behind all shared memory of the linear, whose `run` has less of it. */
struct experts_near {
    struct gpu_run run;
    struct op_linear linear;
    struct share_pairs pairs;
    struct many_choice choice;
    struct experts_places at;
};

/* --- rows ---------------------------------------------------------------------------------- */

/* In tiles of struct input.prepared of `strip` rows. */
template <u32 strip, u32 form> struct experts_strips {
    GPU struct experts_row row(const struct op_experts *op, const struct experts_places *at,
                               u32 expert, u32 nth, u32 most)
    {
        (void)op;
        return {at->tile[expert] * most + nth, 0, 0};
    }

    template <u32 held, bool normed>
    GPU void put(const struct input *in, const struct experts_row &place, u32 first, u32 rows,
                 const struct linear_held<held, normed> h[2], const float up[2],
                 struct linear_slice slice)
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 row = gpu_shuffle(place.number, first + i);
            u8 *to = linear_row_to<strip, form>(in, row);
            if (first + i < rows)
                linear_put_held(&h[i], slice.first + gpu_lane(), slice, up[i], false, ~0u,
                                [=](u32 q, const float v[4]) {
                                    linear_put_quad<strip, form>(to, row % strip, q, v);
                                });
        }
    }
};

/* Rows of any kind; each expert may want its inputs in an order of its own. A block takes a pair.
 * It is rare, so a function that is called. */
template <u32 strip, u32 form>
GPU_CALL void experts_any_rows(const struct op_experts *op, const struct experts_places *at,
                               u32 tokens)
{
    struct linear_slices *slices = (struct linear_slices *)gpu_shared();
    struct input in = op->in;
    const struct linear_how how = linear_how_of(&in);
    const struct routes *r = &op->routes;
    for (u32 pair = gpu_block(); pair < at->pair[r->experts]; pair += gpu_blocks()) {
        const u32 e = experts_that_has(at->pair, r->experts, pair), nth = pair - at->pair[e];
        const u32 from = op->paired ? pair : r->token[(size_t)e * r->room + nth];
        const u32 row = at->tile[e] * tokens + nth;
        u8 *to = linear_row_to<strip, form>(&in, row);
        in.order = op->in.order ? op->in.order + (size_t)e * in.k : NULL;
        linear_make_slice<0, false, true>(
            &in, gpu_global(in.x) + (size_t)from * in.stride, linear_slice_of(&in, gpu_warp()), ~0u,
            [&](struct linear_measure m) {
                const struct linear_scale scale =
                    linear_scale_of(how, linear_leave(slices, m, how.int8 ? 3 : 0));
                if (gpu_lane() == 0)
                    in.prepared_scale[row * MATRIX_SLICES + gpu_warp()] = scale.scale;
                return scale.up;
            },
            [=](u32 q, const float v[4]) { linear_put_quad<strip, form>(to, row % strip, q, v); });
        gpu_sync();
        if (gpu_thread() == 0)
            in.prepared_factor[row] = linear_factor_of(how, slices);
        gpu_sync();
    }
}

template <u32 strip, u32 form>
GPU_CALL void experts_prepare(const struct op_experts *op, const struct experts_places *at,
                              u32 tokens)
{
    if (EXPERTS_HOLD_ROWS(op))
        experts_rows<experts_strips<strip, form>>(op, at, tokens,
                                                  (struct experts_squares *)gpu_shared());
    else
        experts_any_rows<strip, form>(op, at, tokens);
}

/* --- tiles --------------------------------------------------------------------------------- */

/* The best tiles so far, of choice.tokens 0 those of experts_few.cuh; how many there are of few, of
 * 16, 32, 64 and 128 pairs, of all experts. */
struct experts_best {
    struct many_choice choice;
    u32 cost, units, few, tiles[4];
};

/* By a warp, as what follows. */
GPU struct experts_best experts_begin(const struct op_experts *op)
{
    struct experts_best best = {{32, 0}, ~0u, op->units, 0, {}};
    for (u32 e = gpu_lane(); e < op->routes.experts; e += 32) {
        const u32 n = gpu_load_volatile(&op->routes.count[e]);
        best.few += CEIL_DIV(n, MAX(op->few_rows, 1u));
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            best.tiles[i] += CEIL_DIV(n, 16u << i);
    }
    best.few = (u32)gpu_add_warp((i32)best.few);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        best.tiles[i] = (u32)gpu_add_warp((i32)best.tiles[i]);
    return best;
}

/* Tiles of 16 << i pairs, and of so many times 128 outputs; 128 inputs of one take so long. Times
 * are 10 ns of an H200. Tiles are whole, in turns. */
GPU void experts_try(struct experts_best *best, u32 i, u32 small, u32 m, u32 time)
{
    const u32 tiles = best->tiles[i] * CEIL_DIV(best->units, m * GPU_WARPS);
    const u32 cost = CEIL_DIV(tiles, gpu_blocks()) * time;
    if (cost < best->cost) {
        best->cost = cost;
        best->choice = {16u << i, small};
    }
}

/* Few pairs: 16 outputs, in stretches. Rows that a warp does not hold take longer. */
GPU void experts_try_few(struct experts_best *best, const struct op_experts *op)
{
    const u32 kind = op->matrix.kind, held = op->matrix.slice <= EXPERTS_FEW_HELD * 128;
    const u32 time = (kind == MATRIX_HALF ? 12 : kind == MATRIX_INT8 ? 8 : 5) + (held ? 0 : 3);
    const u32 cost = CEIL_DIV(best->few * best->units, gpu_blocks()) * time;
    if (op->few_rows && cost < best->cost)
        best->choice = {0, 0};
}

/* The same in all blocks. FP4 has no tiles of 64, which would be a whole loop more. */
GPU struct many_choice experts_choice(const struct op_experts *op, u32 room)
{
    struct experts_best best = experts_begin(op);
    if (op->in.group == 128 && many_stages<many_small<2, 32>>(room) >= 2) {
        experts_try(&best, 0, 1, 1, 94);
        experts_try(&best, 0, 2, 2, 132);
        experts_try(&best, 1, 1, 1, 119);
        experts_try(&best, 1, 2, 2, 160);
        if (many_stages<many_small<2, 64>>(room) >= 2) {
            experts_try(&best, 2, 1, 1, 153);
            experts_try(&best, 2, 2, 2, 260);
        }
    } else {
        experts_try(&best, 1, 0, 1, 115);
        if (op->matrix.kind != MATRIX_FP4 && many_fits<many_64>(&op->matrix, 1, room))
            experts_try(&best, 2, 0, 1, 160);
    }
    if (many_fits<many_128>(&op->matrix, 1, room))
        experts_try(&best, 3, 0, 1, 245);
    experts_try_few(&best, op);
    return best.choice;
}

#ifdef LINEAR_WIDE
GPU struct many_choice experts_choice_wide(const struct op_experts *op, u32 room)
{
    struct experts_best best = experts_begin(op);
    experts_try(&best, 1, 0, wide_m(32), 161);
    if (op->matrix.kind != MATRIX_FP4 && wide_fits<64>(room))
        experts_try(&best, 2, 0, wide_m(64), 210);
    experts_try_few(&best, op);
    return best.choice;
}
#endif

/* --- the linear ---------------------------------------------------------------------------- */

GPU struct op_linear experts_linear_of(const struct op_experts *op)
{
    struct op_linear linear = {};
    linear.in = op->in;
    linear.part[0] = op->matrix;
    linear.parts = 1;
    linear.output = op->output;
    linear.y_stride = op->y_stride;
    linear.y = op->y;
    linear.partial = op->partial;
    linear.activation = op->activation;
    return linear;
}

/* A function of its own, as it is large. */
GPU_CALL void experts_few_apart(const struct op_experts *op, const struct gpu_run *run)
{
    experts_few(op, run);
}

/* Prepares this block's rows, and says what is to be multiplied; NULL: nothing is left to do. */
GPU_CALL struct experts_near *experts_enter(const struct op_experts *op, const struct gpu_run *run)
{
    const u32 room = run->shared_bytes - ROUND_UP((u32)sizeof(struct experts_near), 128u);
    struct experts_near *near = (struct experts_near *)(gpu_shared() + room);
#ifdef LINEAR_WIDE
    const bool wide = LINEAR_WIDE(run);
#endif
    if (op->few_rows && run->step->n_tokens * op->routes.used <= op->routes.experts) {
        experts_few_apart(op, run); /* without asking what pairs there are */
        return NULL;
    }
    if (gpu_warp() == 0) {
#ifdef LINEAR_WIDE
        const struct many_choice choice =
            wide ? experts_choice_wide(op, room) : experts_choice(op, room);
#else
        const struct many_choice choice = experts_choice(op, room);
#endif
        if (gpu_lane() == 0)
            near->choice = choice;
        if (choice.tokens)
            experts_place(&op->routes, &near->at, choice.tokens);
    }
    if (gpu_thread() == GPU_THREADS - 1) {
        near->run = *run;
        near->run.shared_bytes = room;
        near->linear = experts_linear_of(op);
        near->pairs = {&near->at, op->routes.experts, op->units};
    }
    gpu_sync();
    const u32 tokens = near->choice.tokens;
    if (!tokens) {
        gpu_sync(); /* it is all read that lies where rings will */
        experts_few_apart(op, run);
        return NULL;
    }
#ifdef LINEAR_WIDE
    if (wide) {
        experts_prepare<8, FORM_HALVES>(op, &near->at, tokens);
        return near;
    }
#endif
    experts_prepare<MANY_STRIP, FORM_SUMS>(op, &near->at, tokens);
    return near;
}

#endif
