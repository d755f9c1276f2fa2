/* Mixtures of experts: each token goes through a few of many small MLPs (experts_route.cuh).
 *
 * A linear of all pairs of a token and an expert: a tile is 128 outputs of an expert by
 * EXPERTS_TILE of its pairs, whose prepared rows are gathered. A block computes whole tiles, one
 * warp 16 outputs, all inputs in the order that step.h names; so what a pair gets does not depend
 * on which others there are. Weights, rows and scales come through stages of shared memory, one
 * barrier a stage; copies run ahead from tile to tile.
 *
 * A stage is
 *   weights [8 blocks of 16 outputs][chunks][512], as in memory
 *   rows [inputs / 8][EXPERTS_TILE][8 halves]
 *   sides [8 blocks][spans of 32 inputs, or one]: scales [64], zeros [16]
 */
#ifndef ZIGCUDA_EXPERTS_CUH
#define ZIGCUDA_EXPERTS_CUH

#include "kernels/cuda/experts_few.cuh"
#include "kernels/cuda/experts_route.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/vector.cuh"

enum {
#if GPU_CAPABILITY < 800
    EXPERTS_TILE = 16, /* pairs: 64 KiB of shared memory hold two stages */
#else
    EXPERTS_TILE = 32,
#endif
    EXPERTS_STAGES = 4, /* 2 to 4 */
    EXPERTS_SIDE_BYTES = 64 + 16,
};

/* --- the linear ---------------------------------------------------------------------------- */

template <u32 KIND> struct experts_shape {
    static constexpr u32 kind = KIND;
    static constexpr u32 inputs = KIND == MATRIX_HALF ? 64 : 128; /* of a stage */
    static constexpr u32 block_bytes = inputs * 2 * (4 << KIND);  /* of 16 outputs */
    static constexpr u32 rows_at = GPU_WARPS * block_bytes;
    static constexpr u32 sides_at = rows_at + EXPERTS_TILE * inputs * 2;
    static constexpr u32 spans = KIND == MATRIX_HALF ? 0 : 4;
    static constexpr u32 stage_bytes = sides_at + GPU_WARPS * spans * EXPERTS_SIDE_BYTES;
};

/* In front of the stages; for the tiles that are on their way, their rows' scales. */
struct experts_near {
    struct experts_places at;
    float scale[EXPERTS_STAGES][EXPERTS_TILE][MATRIX_SLICES] __attribute__((aligned(128)));
};

/* The unit that this warp has of a tile; where the expert's end, its last. */
GPU u32 experts_unit(const struct op_experts *op, const struct experts_item *it)
{
    return it->expert * op->units + MIN(it->unit + gpu_warp(), op->units - 1);
}

/* Where this thread's copies for the next stage come from. */
struct experts_from {
    u32 item, left; /* the item behind this one; stages that remain */
    u32 pairs;      /* of the tile, rounded up to 8: others are not copied */
    u32 nth;        /* items so far */
    const u8 *weights, *rows, *side;
    u32 side_step;
    u32 to; /* stage, from 0 on */
};

/* Lane 4 s + j copies 16 bytes of the scales of span s, lane 16 + s its zeros. */
template <class shape>
GPU void experts_aim_side(struct experts_from *from, const struct matrix *m, u32 unit)
{
    const u32 lane = gpu_lane(), spans = m->group == 32 ? shape::spans : 1;
    const bool zeros = lane >= 16;
    const u32 span = zeros ? lane - 16 : lane / 4, piece = zeros ? 0 : lane % 4 * 16;
    const u32 of_group = 16 * (zeros ? 1 : weight_scale_bytes(m));
    from->side = NULL;
    if (shape::spans == 0 || span >= spans || piece >= of_group || (zeros && !m->zeros))
        return;
    from->side = (zeros ? m->zeros : (const u8 *)m->scales + piece) +
                 ((size_t)unit * m->groups + span) * of_group;
    from->side_step = spans * of_group;
}

template <class shape>
GPU void experts_aim(struct experts_from *from, const struct op_experts *op,
                     struct experts_near *near)
{
    const struct experts_item it = experts_item_of(op, &near->at, from->item, EXPERTS_TILE);
    const struct matrix *m = &op->matrix;
    const u32 unit = experts_unit(op, &it), groups = op->in.k / 128;
    const u32 row = experts_row(op, &near->at, &it, gpu_thread() % EXPERTS_TILE);
    from->left = m->k / shape::inputs;
    from->pairs = ROUND_UP(it.n, 8u);
    from->weights = m->data + (size_t)unit * m->k * 2 * (4 << shape::kind) + gpu_lane() * 16;
    from->rows = (const u8 *)op->in.prepared + (size_t)(row / 8) * groups * 2048 + row % 8 * 16 +
                 gpu_thread() / EXPERTS_TILE * 128;
    experts_aim_side<shape>(from, m, unit);
    if (gpu_thread() < 2 * EXPERTS_TILE) /* with the first stage */
        gpu_copy16(&near->scale[from->nth % EXPERTS_STAGES][gpu_thread() % EXPERTS_TILE]
                               [gpu_thread() / EXPERTS_TILE * 4],
                   op->in.prepared_scale + (size_t)row * MATRIX_SLICES +
                       gpu_thread() / EXPERTS_TILE * 4);
    from->nth++;
    from->item += gpu_blocks();
}

/* Starts copying the next stage, if there is one. */
template <class shape>
GPU void experts_copy(struct experts_from *from, const struct op_experts *op,
                      struct experts_near *near, u8 *stages, u32 items, u32 n_stages)
{
    constexpr u32 eights = GPU_THREADS / EXPERTS_TILE, pieces = EXPERTS_TILE * shape::inputs / 8;
    if (from->left == 0 && from->item < items)
        experts_aim<shape>(from, op, near);
    if (from->left) {
        u8 *to = stages + from->to * shape::stage_bytes;
        u8 *weights = to + gpu_warp() * shape::block_bytes + gpu_lane() * 16;
#pragma unroll
        for (u32 at = 0; at < shape::block_bytes; at += WEIGHT_CHUNK_BYTES)
            gpu_copy16(weights + at, from->weights + at);
#pragma unroll
        for (u32 i = 0; i < CEIL_DIV(pieces, (u32)GPU_THREADS); i++)
            gpu_copy16_if(gpu_thread() % EXPERTS_TILE < from->pairs &&
                              (pieces % GPU_THREADS == 0 || gpu_thread() < pieces),
                          to + shape::rows_at + (i * GPU_THREADS + gpu_thread()) * 16,
                          from->rows + i * eights * 128);
        if (from->side) {
            const u32 lane = gpu_lane(), span = lane >= 16 ? lane - 16 : lane / 4;
            gpu_copy16(to + shape::sides_at +
                           (gpu_warp() * shape::spans + span) * EXPERTS_SIDE_BYTES +
                           (lane >= 16 ? 64 : lane % 4 * 16),
                       from->side);
            from->side += from->side_step;
        }
        from->weights += shape::block_bytes;
        from->rows += shape::inputs / 8 * 128;
        from->left--;
        from->to = from->to + 1 == n_stages ? 0 : from->to + 1;
    }
    gpu_copy_commit();
}

enum { EXPERTS_OCTETS = EXPERTS_TILE / 8 };

/* Sums of 16 outputs by a tile's pairs. */
struct experts_sums {
    float v[EXPERTS_OCTETS][4];
};

GPU void experts_clear(struct experts_sums *s)
{
#pragma unroll
    for (u32 j = 0; j < EXPERTS_OCTETS * 4; j++)
        s->v[j / 4][j % 4] = 0;
}

/* p += a group's sums, scaled. */
GPU void experts_add(struct experts_sums *p, const struct experts_sums *sum, const u8 *side,
                     u32 type)
{
    const u32 *words = (const u32 *)side, at = gpu_lane() / 4 << (type == DTYPE_F32);
    const struct weight_scales s = weight_scales_of(words[at], words[at + 1], type);
#pragma unroll
    for (u32 j = 0; j < EXPERTS_OCTETS; j++)
        weight_add(p->v[j], sum->v[j], &s);
}

/* A stage, onto the sums of the slice; of so many times 8 pairs. */
template <class shape>
GPU void experts_stage(const u8 *stage, const struct matrix *m, u32 octets, struct experts_sums *p)
{
    constexpr bool halves = shape::kind == MATRIX_HALF;
    const bool fine = !halves && m->group == 32;
    const u8 *weights = stage + gpu_warp() * shape::block_bytes + gpu_lane() * 16;
    const u8 *rows =
        stage + shape::rows_at + gpu_lane() / 8 * (EXPERTS_TILE * 16) + gpu_lane() % 8 * 16;
    const u8 *sides = stage + shape::sides_at + gpu_warp() * shape::spans * EXPERTS_SIDE_BYTES;
    struct weight_zero zero = {};
    struct experts_sums sum;
    experts_clear(&sum);
#pragma unroll
    for (u32 k = 0; k < shape::inputs / 32; k++) {
        const u8 *side = sides + (fine ? k : 0) * EXPERTS_SIDE_BYTES;
        if (!halves && (fine || k == 0))
            zero = weight_zero_of<shape::kind>(m->zeros ? ((const u16 *)(side + 64))[gpu_lane() / 4]
                                                        : weight_no_zeros<shape::kind>());
        u32 b[EXPERTS_OCTETS][4];
#pragma unroll
        for (u32 j = 0; j < EXPERTS_OCTETS; j++)
            if (j < octets)
                gpu_load_tiles(b[j], rows + k * (4 * EXPERTS_TILE * 16) + j * 128);
#pragma unroll
        for (u32 t = 0; t < 2; t++) {
            const u32 tile = k * 2 + t, each = 4 >> shape::kind; /* tiles of a chunk */
            const uint4 v = gpu_load<uint4>(weights + tile / each * WEIGHT_CHUNK_BYTES);
            const u32 word[4] = {v.x, v.y, v.z, v.w};
            u32 a[4];
            weight_fragment<shape::kind>(a, word, tile % each, &zero);
#pragma unroll
            for (u32 j = 0; j < EXPERTS_OCTETS; j++)
                if (j < octets)
                    gpu_mma(halves ? p->v[j] : sum.v[j], a, b[j] + 2 * t);
        }
        if (!halves && (fine || k + 1 == shape::inputs / 32)) {
            experts_add(p, &sum, side, m->scale_type);
            experts_clear(&sum);
        }
    }
}

/* Onto the sums of all slices so far; the slice's begin anew. */
GPU void experts_close_slice(struct experts_sums *all, struct experts_sums *p,
                             const float scale[EXPERTS_TILE][MATRIX_SLICES], u32 slice)
{
#pragma unroll
    for (u32 j = 0; j < EXPERTS_OCTETS; j++)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            all->v[j][i] =
                fmaf(scale[j * 8 + gpu_lane() % 4 * 2 + i % 2][slice], p->v[j][i], all->v[j][i]);
    experts_clear(p);
}

/* Puts a tile's outputs. factor: of this lane's pairs. */
template <class shape>
GPU void experts_put(const struct op_experts *op, const struct experts_near *near,
                     const struct experts_item *it, const struct experts_sums *all)
{
    const u32 unit = it->unit + gpu_warp(), g = gpu_lane() / 4;
    const u32 pair = near->at.pair[it->expert] + it->first;
    if (unit >= op->units)
        return;
    const size_t output = ((size_t)it->expert * op->units + unit) * 16 + g;
    const float *scales = (const float *)op->matrix.scales;
    const float low = shape::kind == MATRIX_HALF ? scales[output] : 1;
    const float high = shape::kind == MATRIX_HALF ? scales[output + 8] : 1;
#pragma unroll
    for (u32 j = 0; j < EXPERTS_OCTETS; j++)
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 column = j * 8 + gpu_lane() % 4 * 2 + i;
            if (column >= it->n)
                continue;
            const float factor = op->in.prepared_factor[experts_row(op, &near->at, it, column)];
            const float a = all->v[j][i] * low * factor, b = all->v[j][i + 2] * high * factor;
            float *y = op->y + (size_t)(pair + column) * op->y_stride;
            if (op->output == OUTPUT_GATE) {
                y[unit * 8 + g] = linear_activate(a, op->activation) * b;
            } else {
                y[unit * 16 + g] = a;
                y[unit * 16 + g + 8] = b;
            }
        }
}

template <class shape>
GPU void experts_multiply(const struct op_experts *op, const struct gpu_run *run)
{
    struct experts_near *near = (struct experts_near *)gpu_shared();
    u8 *stages = gpu_shared() + ROUND_UP(sizeof *near, (size_t)128);
    const u32 room = run->shared_bytes - (u32)(stages - gpu_shared());
    const u32 n_stages = MIN(room / shape::stage_bytes, (u32)EXPERTS_STAGES);
    const u32 tiles = near->at.tile[op->routes.experts], items = tiles * experts_across(op);
    const u32 each = op->matrix.k / shape::inputs;
    struct experts_from from = {};
    from.item = gpu_block();
    for (u32 i = 1; i < n_stages; i++)
        experts_copy<shape>(&from, op, near, stages, items, n_stages);
    u32 stage = 0, nth = 0;
    for (u32 item = gpu_block(); item < items; item += gpu_blocks(), nth++) {
        const struct experts_item it = experts_item_of(op, &near->at, item, EXPERTS_TILE);
        const u32 octets = CEIL_DIV(it.n, 8u);
        struct experts_sums p, all;
        experts_clear(&p);
        experts_clear(&all);
#pragma unroll 1
        for (u32 i = 0; i < each; i++) {
            if (n_stages == EXPERTS_STAGES)
                gpu_copy_wait<EXPERTS_STAGES - 2>();
            else
                gpu_copy_wait<0>();
            gpu_sync();
            experts_copy<shape>(&from, op, near, stages, items, n_stages);
            experts_stage<shape>(stages + stage * shape::stage_bytes, &op->matrix, octets, &p);
            stage = stage + 1 == n_stages ? 0 : stage + 1;
            const u32 done = (i + 1) * shape::inputs;
            if (done % op->matrix.slice == 0 || i + 1 == each)
                experts_close_slice(&all, &p, near->scale[nth % EXPERTS_STAGES],
                                    (done - 1) / op->matrix.slice);
        }
        experts_put<shape>(op, near, &it, &all);
    }
    gpu_copy_wait<0>();
}

/* As linear_prepare, where each expert wants its inputs in an order of its own: a block takes a
 * pair. It is rare, so a function that is called. */
GPU_CALL void experts_prepare(const struct op_experts *op, const struct experts_near *near)
{
    struct linear_slices *slices =
        (struct linear_slices *)(gpu_shared() + ROUND_UP(sizeof *near, (size_t)128));
    struct input in = op->in;
    const struct linear_how how = linear_how_of(&in);
    const struct routes *r = &op->routes;
    for (u32 pair = gpu_block(); pair < near->at.pair[r->experts]; pair += gpu_blocks()) {
        const u32 e = experts_that_has(near->at.pair, r->experts, pair);
        const u32 nth = pair - near->at.pair[e];
        const u32 row = op->paired ? pair : r->token[(size_t)e * r->room + nth];
        u8 *to = linear_row_to<8, FORM_HALVES>(&in, pair);
        in.order = op->in.order + (size_t)e * in.k;
        linear_make_slice<0, false, true>(
            &in, gpu_global(in.x) + (size_t)row * in.stride, linear_slice_of(&in, gpu_warp()), ~0u,
            [&](struct linear_measure m) {
                const struct linear_scale scale =
                    linear_scale_of(how, linear_leave(slices, m, how.int8 ? 3 : 0));
                if (gpu_lane() == 0)
                    in.prepared_scale[pair * MATRIX_SLICES + gpu_warp()] = scale.scale;
                return scale.up;
            },
            [=](u32 q, const float v[4]) { linear_put_quad<8, FORM_HALVES>(to, pair % 8, q, v); });
        gpu_sync();
        if (gpu_thread() == 0)
            in.prepared_factor[pair] = linear_factor_of(how, slices);
        gpu_sync();
    }
}

/* Where there are many pairs, rows are prepared by all blocks, which meet, and multiply. */
GPU void experts_run(const struct op_experts *op, const struct gpu_run *run)
{
    if (experts_are_few(op, run))
        return experts_few(op, run);
    struct experts_near *near = (struct experts_near *)gpu_shared();
    struct gpu_step rows = *run->step;
    if (op->paired)
        rows.n_tokens *= op->routes.used;
    if (op->in.order) {
        experts_place(&op->routes, &near->at, EXPERTS_TILE);
        gpu_sync();
        experts_prepare(op, near);
    } else {
        linear_prepare<8, FORM_HALVES>(&op->in, &rows);
    }
    gpu_grid_sync(run->state.barrier);
    experts_place(&op->routes, &near->at, EXPERTS_TILE);
    gpu_sync();
    if (op->matrix.kind == MATRIX_INT4)
        experts_multiply<experts_shape<MATRIX_INT4>>(op, run);
    else if (op->matrix.kind == MATRIX_INT8)
        experts_multiply<experts_shape<MATRIX_INT8>>(op, run);
    else
        experts_multiply<experts_shape<MATRIX_HALF>>(op, run);
}

/* x += what a token's experts say. A warp takes 256 features of a token; a lane twice four of them,
 * of four experts at once. */
GPU void experts_mix(const struct op_mix *op, const struct gpu_step *s, struct experts_places *at)
{
    enum { AT_ONCE = 4 };
    const u32 hidden = op->hidden, pieces = CEIL_DIV(hidden, 256u), n = s->n_tokens * pieces;
    const u32 used = op->routes.used;
    experts_place(&op->routes, at, EXPERTS_TILE);
    gpu_sync();
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / pieces, from = item % pieces * 256 + gpu_lane() * 4;
        const struct route *routes = op->routes.route + (size_t)token * used;
        float *x = op->x + (size_t)token * op->x_stride;
        float sum[8] = {};
#pragma unroll 1
        for (u32 first = 0; first < used; first += AT_ONCE) {
            float4 y[AT_ONCE][2];
            float share[AT_ONCE];
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const struct route r = routes[MIN(first + i, used - 1)];
                const float *of = op->y + (size_t)(at->pair[r.expert] + r.nth) * op->y_stride;
                share[i] = r.share;
                y[i][0] = gpu_load<float4>(of + MIN(from, hidden - 4));
                y[i][1] = gpu_load<float4>(of + MIN(from + 128, hidden - 4));
            }
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (u32 j = 0; j < 2 && first + i < used; j++) {
                    sum[j * 4] = fmaf(share[i], y[i][j].x, sum[j * 4]);
                    sum[j * 4 + 1] = fmaf(share[i], y[i][j].y, sum[j * 4 + 1]);
                    sum[j * 4 + 2] = fmaf(share[i], y[i][j].z, sum[j * 4 + 2]);
                    sum[j * 4 + 3] = fmaf(share[i], y[i][j].w, sum[j * 4 + 3]);
                }
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++)
            if (from + j * 128 < hidden) {
                float4 *to = (float4 *)(x + from + j * 128);
                const float4 old = *to;
                *to = {old.x + sum[j * 4], old.y + sum[j * 4 + 1], old.z + sum[j * 4 + 2],
                       old.w + sum[j * 4 + 3]};
            }
    }
}

/* few: in `decode`, where the host knows that experts_few has room. */
template <bool few> GPU void experts_op(const struct op *op, const struct gpu_run *run)
{
    if (op->kind == OP_ROUTE)
        experts_route<few>(&op->route, run, gpu_shared());
    else if (op->kind == OP_CHOOSE)
        experts_choose(&op->route, run->step);
    else if (op->kind == OP_EXPERTS && few)
        experts_few(&op->experts, run);
    else if (op->kind == OP_EXPERTS)
        experts_run(&op->experts, run);
    else
        experts_mix(&op->mix, run->step, (struct experts_places *)gpu_shared());
}

#endif
