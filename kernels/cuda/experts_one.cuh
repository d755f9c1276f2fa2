/* Experts of one token on Hopper, in the manner of linear_one.cuh (kernel `one_experts`): weights
 * come through the rings of copying warps, rows are awaited, blocks do not meet.
 *
 * OP_ROUTE: a block takes an expert or more, each warp its slice of the row; the logits are
 * awaited. Before an OP_EXPERTS of tokens' rows every block chooses for itself, by its first warp,
 * and tells its copying warps: until then nobody knows whose weights come next. The experts'
 * outputs are one behind the other, as if they were those of one linear of one row.
 *
 * An OP_EXPERTS of pairs computes the sum of a token's experts as well: whoever has outputs has
 * them of every expert. Its rows have slices of one span each, and warp w takes `used` of the
 * slices of all pairs, from w * used on; those of a pair that follow one another come as one.
 */
#ifndef ZIGCUDA_EXPERTS_ONE_CUH
#define ZIGCUDA_EXPERTS_ONE_CUH

#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/linear_one.cuh"

#ifdef GPU_GROUPS

/* Who computes the step's token. */
struct one_routes {
    u64 chosen; /* a barrier of the lanes that choose, a phase a layer */
    u32 expert[FEW_TOKENS];
    float share[FEW_TOKENS];
};
static_assert(sizeof(struct one_routes) <= ONE_ROUTES_BYTES, "its place");

GPU struct one_routes *one_routes_of(const struct gpu_run *p)
{
    return (struct one_routes *)(gpu_shared() + p->shared_bytes + STEP_SHARED_BYTES +
                                 ONE_RINGS_BYTES);
}

/* --- copying ------------------------------------------------------------------------------- */

/* Some slices that a warp multiplies: spans of a pair's row. */
struct one_piece {
    u32 pair, slice, step; /* step: slices, of which the last may be behind the row's end */
    u32 spans;
};

/* From the warp's slice `i` of all pairs on. */
GPU struct one_piece one_piece_of(const struct op_experts *op, u32 warp, u32 i)
{
    const u32 most = ONE_SPANS >> op->matrix.kind, used = op->routes.used;
    const u32 number = warp * used + i, slice = number % MATRIX_SLICES;
    const u32 step = MIN(MIN(MATRIX_SLICES - slice, used - i), most);
    const u32 row = op->matrix.k / ONE_SPAN;
    return {number / MATRIX_SLICES, slice, step, MIN(slice + step, row) - MIN(slice, row)};
}

/* As one_feed, of a linear whose rows are those of each expert in turn. */
GPU void one_feed_up(const struct op_experts *op, const struct one_source *m,
                     const struct one_routes *routes, struct one_ring *ring, u64 *calm, u32 server)
{
    const struct matrix *of = &op->matrix;
    const u32 row = of->k / ONE_SPAN, slice = of->slice / ONE_SPAN, most = ONE_SPANS >> of->kind;
    const u32 each = op->units;
    u32 first, units;
    few_stretch(op->routes.used * each, &first, &units);
#pragma unroll 1
    for (u32 unit = first, n; unit < first + units; unit += n) {
        n = MIN(first + units - unit, (u32)ONE_UNITS);
#pragma unroll 1
        for (u32 i = 0; i < CEIL_DIV(slice, most) * n; i++)
#pragma unroll
            for (u32 r = 0; r < ONE_RINGS; r++) {
                const u32 begin = (server * ONE_RINGS + r) * slice, at = begin + i / n * most,
                          end = MIN(begin + slice, row), u = unit + i % n;
                if (at < end)
                    one_send(m, &ring[r], calm,
                             (routes->expert[u / each] * each + u % each) * row + at,
                             MIN(end - at, most));
            }
    }
}

GPU void one_feed_down(const struct op_experts *op, const struct one_source *m,
                       const struct one_routes *routes, struct one_ring *ring, u64 *calm,
                       u32 server)
{
    const u32 row = op->matrix.k / ONE_SPAN;
    u32 first, units;
    few_stretch(op->units, &first, &units);
#pragma unroll 1
    for (u32 unit = first; unit < first + units; unit++)
#pragma unroll
        for (u32 r = 0; r < ONE_RINGS; r++)
#pragma unroll 1
            for (u32 i = 0; i < op->routes.used;) {
                const struct one_piece at = one_piece_of(op, server * ONE_RINGS + r, i);
                if (at.spans)
                    one_send(m, &ring[r], calm,
                             (routes->expert[at.pair] * op->units + unit) * row + at.slice,
                             at.spans);
                i += at.step;
            }
}

/* choices: how many there have been when this operation's is there. */
GPU void one_feed_experts(const struct op_experts *op, const struct gpu_run *p,
                          struct one_ring *ring, u32 server, u32 choices)
{
    const struct matrix *of = &op->matrix;
    const bool half = of->kind == MATRIX_HALF;
    struct one_routes *routes = one_routes_of(p);
    struct one_source m = {
        of->data, (const u8 *)of->scales, half ? NULL : of->zeros, 1024u << of->kind,
        0,        gpu_stay_short()};
    m.sides = half ? 0 : m.zeros ? ONE_SCALES_BYTES + ONE_ZEROS_BYTES : (u32)ONE_SCALES_BYTES;
    gpu_barrier_wait(&routes->chosen, (choices - 1) % 2);
    if (op->paired)
        one_feed_down(op, &m, routes, ring, one_calm(p), server);
    else
        one_feed_up(op, &m, routes, ring, one_calm(p), server);
}

/* --- routes -------------------------------------------------------------------------------- */

/* This lane's part of what the block's first expert weighs. */
struct one_router {
    float4 w[NEAR_HELD];
};

GPU void one_look_router(struct one_router *router, const struct op_route *op,
                         const struct near_ahead *a, u32 expert)
{
    if (expert < op->routes.experts)
        near_load<NEAR_HELD>(router->w, a, op->router + (size_t)expert * op->in.features);
}

struct one_thought {
    float squares[MATRIX_SLICES], part[MATRIX_SLICES][32];
};

/* As experts_think; each warp holds its slice. */
GPU void one_route(const struct op_route *op, struct near_ahead *a, struct one_router *router)
{
    struct one_thought *work = (struct one_thought *)gpu_shared();
#pragma unroll
    for (u32 i = 0; i < NEAR_HELD; i++)
        if (a->first + i * 32 >= a->there)
            a->v[i] = {0, 0, 0, 0};
    const struct linear_measure m = near_measure_held<true, NEAR_HELD>(a->v, a->n);
    if (gpu_lane() == 0)
        work->squares[gpu_warp()] = m.squares;
#pragma unroll 1
    for (u32 e = gpu_block(); e < op->routes.experts; e += gpu_blocks()) {
        float sum = 0;
#pragma unroll
        for (u32 i = 0; i < NEAR_HELD; i++)
            if (a->first + i * 32 < a->there)
                sum = experts_weigh(a->v[i], router->w[i], sum);
        work->part[gpu_warp()][gpu_lane()] = sum;
        one_look_router(router, op, a, e + gpu_blocks());
        gpu_sync();
        if (gpu_warp() == 0) {
            float all = 0;
#pragma unroll
            for (u32 s = 0; s < MATRIX_SLICES; s++)
                all += work->part[s][gpu_lane()];
            all = gpu_sum_warp(all) * experts_inverse(&op->in, work->squares);
            if (gpu_lane() == 0)
                op->routes.logits[e] = gpu_answer(all);
        }
        gpu_sync();
    }
}

template <u32 held> GPU struct experts_choice one_await_choice(const struct routes *r)
{
    const u32 *from = (const u32 *)gpu_global(r->logits);
    u32 bits[held];
    float logits[held];
    bool missing;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        bits[i] = NOT_YET;
    do {
        missing = false;
#pragma unroll
        for (u32 i = 0; i < held; i++)
            if (bits[i] == NOT_YET && i * 32 + gpu_lane() < r->experts) {
                bits[i] = gpu_load_volatile(&from[i * 32 + gpu_lane()]);
                missing |= bits[i] == NOT_YET;
            }
        if (missing)
            gpu_pause();
    } while (missing);
    gpu_warp_sync();
#pragma unroll
    for (u32 i = 0; i < held; i++)
        logits[i] = i * 32 + gpu_lane() < r->experts ? gpu_from_bits(bits[i]) : -INFINITY;
    return experts_choice_of<held>(logits, r);
}

/* By one warp. Behind the block's next meeting all know it. */
GPU void one_choose(const struct routes *r, struct one_routes *to)
{
    const struct experts_choice mine = r->experts <= EXPERTS_HELD * 32
                                           ? one_await_choice<EXPERTS_HELD>(r)
                                           : one_await_choice<LIMIT_EXPERTS / 32>(r);
    if (gpu_lane() < r->used) {
        to->expert[mine.before] = mine.expert;
        to->share[mine.before] = mine.share;
    }
    gpu_barrier_arrive(&to->chosen);
}

/* --- products ------------------------------------------------------------------------------ */

/* Rows of pairs, one quad a lane of each of this warp's slices, all asked for at once. */
GPU void one_prepare_pairs(const struct input *in, u32 used, const struct few_work *work)
{
    const u32 groups = in->k / ONE_SPAN, q = gpu_lane() * 4;
    const struct linear_how how = linear_how_of(in);
    const float *x = gpu_global(in->x);
    float4 v[FEW_TOKENS];
    const float *from[FEW_TOKENS];
    bool missing;
#pragma unroll
    for (u32 i = 0; i < FEW_TOKENS; i++) {
        const u32 number = gpu_warp() * used + MIN(i, used - 1), slice = number % MATRIX_SLICES;
        const u32 at = MIN(slice * ONE_SPAN + q, in->features - 4);
        from[i] = x + (size_t)(number / MATRIX_SLICES) * in->stride + at;
        v[i] = gpu_ask4(from[i]);
    }
    do {
        missing = false;
#pragma unroll
        for (u32 i = 0; i < FEW_TOKENS; i++)
            if (gpu_missing(v[i])) {
                v[i] = gpu_ask4(from[i]);
                missing = true;
            }
        if (missing)
            gpu_pause();
    } while (missing);
    gpu_warp_sync();
#pragma unroll
    for (u32 i = 0; i < FEW_TOKENS; i++) {
        const u32 number = gpu_warp() * used + i, slice = number % MATRIX_SLICES;
        const u32 pair = number / MATRIX_SLICES, at = slice * ONE_SPAN + q;
        float *scale = &work->slices[pair].scale[slice];
        if (i >= used)
            continue;
        if (slice >= groups) { /* behind the row: sums of 0 */
            if (gpu_lane() == 0)
                *scale = 0;
            continue;
        }
        u8 *row = work->fragments + pair * near_stride(in->k);
        if (at >= in->features)
            v[i] = {0, 0, 0, 0};
        u32 sizes[4] = {gpu_bits(fabsf(v[i].x)), gpu_bits(fabsf(v[i].y)), gpu_bits(fabsf(v[i].z)),
                        gpu_bits(fabsf(v[i].w))};
        const float most = linear_most_warp(gpu_from_bits(gpu_most<4>(sizes)));
        const struct linear_scale s = linear_scale_of(how, most);
        if (in->group) {
            const i32 sum = gpu_add_warp(near_put_bytes(row, at / 4, &v[i], s.up, true));
            if (gpu_lane() == 0)
                one_sums(work)[pair * groups + slice] = sum;
        } else {
            const float y[4] = {v[i].x * s.up, v[i].y * s.up, v[i].z * s.up, v[i].w * s.up};
            near_put((u32 *)row, at / 4, y);
        }
        if (gpu_lane() == 0)
            *scale = in->group ? s.scale * 0x1p-24f : s.scale;
    }
    gpu_warp_sync();
}

/* Sums of a pair's slices, [slice][FEW_ROW_FLOATS]: those of eight pairs lie in different banks. */
enum { ONE_PAIR_FLOATS = MATRIX_SLICES * FEW_ROW_FLOATS + 4 };

/* Units whose sums there is room for, and threads. */
GPU u32 one_pairs_units(u32 used)
{
    return MIN(FEW_SUMS_FLOATS / (used * ONE_PAIR_FLOATS), GPU_THREADS / (16u * FEW_TOKENS));
}
static_assert(FEW_SUMS_FLOATS >= FEW_TOKENS * ONE_PAIR_FLOATS, "one at least");

/* This warp's slices of a unit of all pairs. */
template <u32 kind>
GPU void one_pairs(float *sums, const struct op_experts *op, const struct few_work *work,
                   struct one_ring *ring, const struct one_how *all)
{
    const u32 groups = op->matrix.k / ONE_SPAN;
#pragma unroll 1
    for (u32 i = 0; i < op->routes.used;) {
        const struct one_piece at = one_piece_of(op, gpu_warp(), i);
        float *to = sums + at.pair * ONE_PAIR_FLOATS + at.slice * FEW_ROW_FLOATS;
        struct one_how how = *all;
        how.x += at.pair * near_stride(op->in.k) + at.slice * ONE_SPAN * 2;
        how.sums = one_sums(work) + at.pair * groups + at.slice;
        i += at.step;
        for (u32 s = at.spans; s < at.step; s++) { /* behind the row's end */
            const float none[4] = {};
            few_leave(to + s * FEW_ROW_FLOATS, none, 1);
        }
        if (at.spans == 0)
            continue;
        const u32 number = one_slot(ring->turn);
        const u8 *slot = ring->slots + number * ONE_SLOT_BYTES;
        struct one_inputs in = {};
        if (kind == MATRIX_INT4)
            one_load_inputs(&in, &how, 0, at.spans);
        gpu_barrier_wait(&ring->full[number], one_parity(ring->turn));
        if (kind == MATRIX_INT4) {
            one_bytes_apart(to, slot, &in, at.spans, &how);
        } else {
            float p[4] = {};
            one_halves(p, slot, how.x);
            few_leave(to, p, 1);
        }
        gpu_barrier_leave(&ring->empty[number]);
        ring->turn++;
    }
}

/* --- the operation ------------------------------------------------------------------------- */

/* Units of this block's, n from the first-th on. A thread has an output: 8 gates a unit. */
GPU void one_put_up(const struct op_experts *op, const struct one_routes *routes, u32 first, u32 n,
                    const struct few_work *work)
{
    const u32 unit = gpu_thread() / 8, row = gpu_thread() % 8;
    const u32 pair = (first + unit) / op->units, u = (first + unit) % op->units;
    const u32 output = (routes->expert[MIN(pair, op->routes.used - 1)] * op->units + u) * 16 + row;
    const float *sums = work->sums + unit * GPU_WARPS * FEW_ROW_FLOATS + row;
    if (unit >= n)
        return;
    const struct few_row by = few_row_of(&op->in, work->slices);
    const float gate = few_value(&op->matrix, output, sums, FEW_ROW_FLOATS, &by),
                up = few_value(&op->matrix, output + 8, sums + 8, FEW_ROW_FLOATS, &by);
    float *y = gpu_global(op->y) + (size_t)pair * op->y_stride + u * 8 + row;
    *y = gpu_answer(linear_activate(gate, op->activation) * up);
}

/* A thread has a pair of an output, lanes side by side, which are added in order. */
GPU void one_put_down(const struct op_experts *op, const struct one_routes *routes, u32 first,
                      u32 n, float old, const struct few_work *work)
{
    const u32 unit = gpu_thread() / (16 * FEW_TOKENS), row = gpu_thread() / FEW_TOKENS % 16;
    const u32 used = op->routes.used, pair = gpu_thread() % FEW_TOKENS, mine = MIN(pair, used - 1);
    const u32 output = (routes->expert[mine] * op->units + first + unit) * 16 + row;
    const float *sums =
        work->sums + (MIN(unit, MAX(n, 1u) - 1) * used + mine) * ONE_PAIR_FLOATS + row;
    const float *scale = work->slices[mine].scale;
    float v = 0, all = 0;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        v = fmaf(sums[i * FEW_ROW_FLOATS], scale[i], v);
    if (op->matrix.kind == MATRIX_HALF && unit < n)
        v *= gpu_global((const float *)op->matrix.scales)[output];
    const float share = routes->share[mine];
    for (u32 i = 0; i < used; i++) {
        const u32 lane = gpu_lane() / FEW_TOKENS * FEW_TOKENS + i;
        all = fmaf(gpu_shuffle(share, lane), gpu_shuffle(v, lane), all);
    }
    if (unit < n && pair == 0)
        gpu_global(op->y)[(first + unit) * 16 + row] = gpu_answer(old + all);
}

template <u32 kind>
GPU void one_experts_of(const struct op_experts *op, const struct one_routes *routes,
                        struct one_ring *ring, u64 *calm)
{
    const struct matrix *m = &op->matrix;
    const u32 used = op->routes.used, k = m->k;
    const struct few_work work = few_work_of(op->paired ? used : 1, op->in.k);
    const u32 slice = op->paired ? 0 : MIN(gpu_warp() * m->slice, k),
              spans = (MIN(slice + m->slice, k) - slice) / ONE_SPAN;
    const u8 *x = work.fragments + (kind == MATRIX_HALF ? gpu_lane() % 4 : gpu_lane() % 8) * 16;
    const struct one_how how = {x + slice * 2, one_sums(&work) + slice / ONE_SPAN,
                                m->scale_type == DTYPE_F16 ? (u32)DTYPE_F16 : (u32)DTYPE_BF16,
                                m->zeros != NULL};
    const u32 most = op->paired ? one_pairs_units(used) : (u32)FEW_CHUNK_UNITS;
    u32 first, units;
    few_stretch(op->paired ? op->units : used * op->units, &first, &units);
    for (u32 done = 0, n; done == 0 || done < units; done += n) {
        const u32 at = first + done;
        float old = 0;
        n = MIN(units - done, most);
        if (op->paired && gpu_thread() / FEW_TOKENS < n * 16)
            old = gpu_global(op->old)[at * 16 + gpu_thread() / FEW_TOKENS];
        if (op->paired)
            for (u32 unit = 0; unit < n; unit++)
                one_pairs<kind>(work.sums + unit * used * ONE_PAIR_FLOATS, op, &work, ring, &how);
        else
            one_slices<kind>(work.sums + gpu_warp() * FEW_ROW_FLOATS, n, spans, ring, &how);
        gpu_sync();
        if (done + n >= units && gpu_thread() == 0)
            gpu_barrier_arrive(calm);
        if (op->paired)
            one_put_down(op, routes, at, n, old, &work);
        else
            one_put_up(op, routes, at, n, &work);
        if (done + n < units)
            gpu_sync();
        else
            break;
    }
}

/* An OP_EXPERTS; of tokens' rows, that row has been asked for. choose: nobody has yet. */
GPU void one_experts(const struct op_experts *op, struct near_ahead *a, const struct gpu_run *p,
                     struct one_ring *ring, bool choose)
{
    struct one_routes *routes = one_routes_of(p);
    const struct few_work work = few_work_of(op->paired ? op->routes.used : 1, op->in.k);
    if (op->paired)
        one_prepare_pairs(&op->in, op->routes.used, &work);
    else
        near_prepare_one<true>(&op->in, a, work.fragments, work.slices, one_sums(&work));
    if (choose && gpu_warp() == 0)
        one_choose(&op->routes, routes);
    if (op->matrix.kind == MATRIX_HALF)
        one_experts_of<MATRIX_HALF>(op, routes, ring, one_calm(p));
    else
        one_experts_of<MATRIX_INT4>(op, routes, ring, one_calm(p));
}

#endif

#endif
