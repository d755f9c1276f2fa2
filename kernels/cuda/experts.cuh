/* Mixtures of experts: each token goes through a few of many small MLPs (struct routes).
 *
 * Which those are is found in f32 from the row as it is. Then a linear of all pairs of a token and
 * an expert: a tile is 128 outputs of an expert by EXPERTS_TILE of its pairs, whose prepared rows
 * are gathered. A block computes whole tiles, one warp 16 outputs, all inputs in the order that
 * step.h names; so what a pair gets does not depend on which others there are. Weights, rows and
 * scales come through stages of shared memory, one barrier a stage; copies run ahead from tile to
 * tile.
 *
 * A stage is
 *   weights [8 blocks of 16 outputs][chunks][512], as in memory
 *   rows [inputs / 8][EXPERTS_TILE][8 halves]
 *   sides [8 blocks][spans of 32 inputs, or one]: scales [64], zeros [16]
 */
#ifndef ZIGCUDA_EXPERTS_CUH
#define ZIGCUDA_EXPERTS_CUH

#include "kernels/cuda/experts_few.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/vector.cuh"

enum {
#if GPU_CAPABILITY < 800
    EXPERTS_TILE = 16, /* pairs: 64 KiB of shared memory hold two stages */
#else
    EXPERTS_TILE = 32,
#endif
    EXPERTS_STAGES = 4, /* 2 to 4 */
    EXPERTS_ROUTED = 4, /* tokens whose logits are computed at once, at most */
    EXPERTS_SIDE_BYTES = 64 + 16,
};

/* --- who takes whom ------------------------------------------------------------------------ */

/* Rows times the norm's weights, in shared memory, and 1 / rms of each. */
struct routed {
    float squares[MATRIX_SLICES], inverse[EXPERTS_ROUTED];
    float row[]; /* [EXPERTS_ROUTED][hidden] */
};

/* 1 / rms of a row, from the sums of its slices. */
GPU float experts_inverse(const struct input *in, const float squares[MATRIX_SLICES])
{
    float sum = 0;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        sum += squares[i];
    return 1 / sqrtf(sum / (float)in->features + in->eps);
}

/* sum + a lane's four features times an expert's weights of these. */
GPU float experts_weigh(const float4 &x, const float4 &w, float sum)
{
    return fmaf(x.x, w.x, fmaf(x.y, w.y, fmaf(x.z, w.z, fmaf(x.w, w.w, sum))));
}

/* A warp makes a slice. */
GPU void experts_bring_rows(const struct input *in, struct routed *near, u32 token, u32 n)
{
    const struct linear_slice slice = linear_slice_of(in, gpu_warp());
    for (u32 i = 0; i < n; i++) {
        const float *x = gpu_global(in->x) + (size_t)(token + i) * in->stride;
        const float *norm = gpu_global(in->norm);
        float sum = 0;
        for (u32 q = slice.first + gpu_lane(); q < MIN(slice.end, in->features / 4); q += 32) {
            const float4 v = gpu_load<float4>(x + q * 4), by = gpu_load<float4>(norm + q * 4);
            sum = fmaf(v.x, v.x, sum);
            sum = fmaf(v.y, v.y, sum);
            sum = fmaf(v.z, v.z, sum);
            sum = fmaf(v.w, v.w, sum);
            *(float4 *)(near->row + i * in->features + q * 4) = {v.x * by.x, v.y * by.y, v.z * by.z,
                                                                 v.w * by.w};
        }
        sum = gpu_sum_warp(sum);
        if (gpu_lane() == 0)
            near->squares[gpu_warp()] = sum;
        gpu_sync();
        if (gpu_thread() == 0)
            near->inverse[i] = experts_inverse(in, near->squares);
        gpu_sync();
    }
}

/* One expert's logits of n tokens, by a warp: what each lane has of a slice, added slice by slice,
 * then over lanes. */
GPU void experts_think(const struct op_route *op, const struct routed *near, u32 expert, u32 token,
                       u32 n)
{
    const u32 hidden = op->in.features;
    const float *w = gpu_global(op->router) + (size_t)expert * hidden;
    float all[EXPERTS_ROUTED] = {};
#pragma unroll 4
    for (u32 s = 0; s < MATRIX_SLICES; s++) {
        const struct linear_slice slice = linear_slice_of(&op->in, s);
        float sum[EXPERTS_ROUTED] = {};
#pragma unroll 2
        for (u32 q = slice.first + gpu_lane(); q < MIN(slice.end, hidden / 4); q += 32) {
            const float4 v = gpu_load<float4>(w + q * 4);
#pragma unroll
            for (u32 i = 0; i < EXPERTS_ROUTED; i++)
                sum[i] = experts_weigh(gpu_load<float4>(near->row + MIN(i, n - 1) * hidden + q * 4),
                                       v, sum[i]);
        }
#pragma unroll
        for (u32 i = 0; i < EXPERTS_ROUTED; i++)
            all[i] += sum[i];
    }
#pragma unroll
    for (u32 i = 0; i < EXPERTS_ROUTED; i++) {
        const float v = gpu_sum_warp(all[i]);
        if (i < n && gpu_lane() == 0)
            op->routes.logits[(size_t)(token + i) * op->routes.experts + expert] =
                v * near->inverse[i];
    }
}

/* Few tokens: a block takes a token and as many experts as it has warps; many: all experts. Begins
 * the count of an expert's tokens, too. */
GPU void experts_route(const struct op_route *op, const struct gpu_run *run)
{
    struct routed *near = (struct routed *)gpu_shared();
    const u32 experts = op->routes.experts, tokens = run->step->n_tokens;
    const u32 fit = (run->shared_bytes - (u32)sizeof *near) / (op->in.features * 4);
    const bool many = tokens > gpu_blocks();
    const u32 rows = many ? MIN(fit, (u32)EXPERTS_ROUTED) : 1, of = many ? experts : +GPU_WARPS;
    const u32 parts = CEIL_DIV(experts, of), items = CEIL_DIV(tokens, rows) * parts;
    for (u32 e = gpu_thread(); e < experts && gpu_block() == 0; e += GPU_THREADS)
        op->routes.count[e] = 0;
    for (u32 item = gpu_block(); item < items; item += gpu_blocks()) {
        const u32 token = item / parts * rows, n = MIN(rows, tokens - token);
        const u32 first = item % parts * of;
        experts_bring_rows(&op->in, near, token, n);
        for (u32 e = first + gpu_warp(); e < MIN(first + of, experts); e += GPU_WARPS)
            experts_think(op, near, e, token, n);
        gpu_sync(); /* before other rows come */
    }
}

/* Softmax over a token's logits: lane i has those of i, i + 32, ..; -INFINITY behind the last. */
template <u32 held> GPU void experts_softmax(float p[held])
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        most = fmaxf(most, p[i]);
    most = gpu_max_warp(most);
#pragma unroll
    for (u32 i = 0; i < held; i++) {
        p[i] = p[i] == -INFINITY ? 0 : expf(p[i] - most);
        sum += p[i];
    }
    sum = gpu_sum_warp(sum);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        p[i] /= sum;
}

/* The expert with the largest p (of equals the first), which is then taken out. */
template <u32 held> GPU u32 experts_best(float p[held], float *share)
{
    u32 best = 0, at = ~0u;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (!(p[i] < 0) && gpu_bits(p[i]) + 1 > best) { /* others compare as their bits do */
            best = gpu_bits(p[i]) + 1;
            at = i * 32 + gpu_lane();
        }
    const u32 most = gpu_most_warp(best);
    at = ~gpu_most_warp(best == most ? ~at : 0);
    *share = gpu_from_bits(most - 1);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (i * 32 + gpu_lane() == at)
            p[i] = -1;
    return at;
}

/* Lane i has the token's i-th choice, of which so many come before it in the order of experts. */
struct experts_choice {
    u32 expert, before;
    float share;
};

template <u32 held>
GPU struct experts_choice experts_choice_of(float logits[held], const struct routes *r)
{
    struct experts_choice mine = {~0u, 0, 0};
    float sum = 0;
    experts_softmax<held>(logits);
    for (u32 i = 0; i < r->used; i++) {
        float share;
        const u32 e = experts_best<held>(logits, &share);
        sum += share;
        if (gpu_lane() == i)
            mine.expert = e, mine.share = share;
    }
    for (u32 i = 0; i < r->used; i++)
        mine.before += gpu_shuffle(mine.expert, i) < mine.expert;
    mine.share = r->renormalized ? mine.share / sum : mine.share;
    return mine;
}

template <u32 held>
GPU struct experts_choice experts_choose_token(const struct routes *r, u32 token)
{
    float logits[held];
#pragma unroll
    for (u32 i = 0; i < held; i++) {
        const u32 e = i * 32 + gpu_lane();
        logits[i] = e < r->experts ? r->logits[(size_t)token * r->experts + e] : -INFINITY;
    }
    return experts_choice_of<held>(logits, r);
}

enum { EXPERTS_HELD = 4 }; /* logits of a lane, mostly */

/* A warp takes a token. */
GPU void experts_choose(const struct op_route *op, const struct gpu_step *s)
{
    const struct routes r = op->routes;
    for (u32 token = gpu_block() * GPU_WARPS + gpu_warp(); token < s->n_tokens;
         token += gpu_blocks() * GPU_WARPS) {
        const struct experts_choice mine =
            r.experts <= EXPERTS_HELD * 32 ? experts_choose_token<EXPERTS_HELD>(&r, token)
                                           : experts_choose_token<LIMIT_EXPERTS / 32>(&r, token);
        if (gpu_lane() < r.used) {
            const u32 nth = gpu_atomic_add(&r.count[mine.expert], 1);
            r.token[(size_t)mine.expert * r.room + nth] = token;
            r.route[(size_t)token * r.used + mine.before] = {mine.expert, nth, mine.share, 0};
        }
    }
}

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

/* A tile of outputs and pairs. */
struct experts_item {
    u32 expert, first, n; /* pairs of the expert: from `first` on */
    u32 unit;             /* first of the block's outputs, of the expert's */
};

GPU u32 experts_across(const struct op_experts *op)
{
    return CEIL_DIV(op->units, (u32)GPU_WARPS);
}

/* Tiles of outputs first, so that rows of pairs are read together. */
GPU struct experts_item experts_item_of(const struct op_experts *op,
                                        const struct experts_near *near, u32 item)
{
    const u32 across = experts_across(op), tile = item / across;
    const u32 e = experts_that_has(near->at.tile, op->routes.experts, tile);
    const u32 first = (tile - near->at.tile[e]) * EXPERTS_TILE;
    return {e, first, MIN(near->at.pair[e + 1] - near->at.pair[e] - first, (u32)EXPERTS_TILE),
            item % across * GPU_WARPS};
}

/* The prepared row that a pair of the tile enters with. Behind the tile's end, its first. */
GPU u32 experts_row(const struct op_experts *op, const struct experts_near *near,
                    const struct experts_item *it, u32 i)
{
    const u32 nth = it->first + (i < it->n ? i : 0);
    return op->paired || op->in.order
               ? near->at.pair[it->expert] + nth
               : op->routes.token[(size_t)it->expert * op->routes.room + nth];
}

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
    const struct experts_item it = experts_item_of(op, near, from->item);
    const struct matrix *m = &op->matrix;
    const u32 unit = experts_unit(op, &it), groups = op->in.k / 128;
    const u32 row = experts_row(op, near, &it, gpu_thread() % EXPERTS_TILE);
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
            const float factor = op->in.prepared_factor[experts_row(op, near, it, column)];
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
        const struct experts_item it = experts_item_of(op, near, item);
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

/* x += what a token's experts say. A warp takes 256 features of a token. */
GPU void experts_mix(const struct op_mix *op, const struct gpu_step *s)
{
    struct experts_places *at = (struct experts_places *)gpu_shared();
    const u32 hidden = op->hidden, pieces = CEIL_DIV(hidden, 256u), n = s->n_tokens * pieces;
    const u32 used = op->routes.used;
    experts_place(&op->routes, at, EXPERTS_TILE);
    gpu_sync();
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / pieces, from = item % pieces * 256 + gpu_lane();
        float sum[8] = {};
        for (u32 i = 0; i < used; i++) {
            const struct route r = op->routes.route[(size_t)token * used + i];
            const float *y = op->y + (size_t)(at->pair[r.expert] + r.nth) * op->y_stride;
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                if (from + j * 32 < hidden)
                    sum[j] = fmaf(r.share, y[from + j * 32], sum[j]);
        }
        float *x = op->x + (size_t)token * op->x_stride;
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            if (from + j * 32 < hidden)
                x[from + j * 32] += sum[j];
    }
}

/* few: in `decode`, where the host knows that experts_few has room. */
template <bool few> GPU void experts_op(const struct op *op, const struct gpu_run *run)
{
    if (op->kind == OP_ROUTE)
        experts_route(&op->route, run);
    else if (op->kind == OP_CHOOSE)
        experts_choose(&op->route, run->step);
    else if (op->kind == OP_EXPERTS && few)
        experts_few(&op->experts, run);
    else if (op->kind == OP_EXPERTS)
        experts_run(&op->experts, run);
    else
        experts_mix(&op->mix, run->step);
}

#endif
