/* Linears of up to MID_TOKENS tokens on Hopper, of INT4 or INT8 in groups of 128 or of halves: on
 * tiles of few tokens, through stages in shared memory (linear_mid_stage.cuh). The sums are those
 * of step.h, in the same order, and so are the bits.
 *
 * A tile is some `units` of 16 outputs, 16 at most, by all tokens, or by 64 of them; an item is
 * some slices of a tile, and a block has items in turns. Both are chosen (mid_plan_of) so that all
 * blocks have about equal bytes of weights. Tiles of the same outputs have neighbouring items, so
 * that blocks want the same weights at the same time and memory is read once. Where an item has not
 * all slices, its sums go to op->partial, or where they tell for themselves (mid_shape) to
 * op->awaited, slice by slice; when a block has done all that others wait for, it adds up its share
 * of those tiles. Warp w computes the units w and w + 8 of a tile.
 *
 * Everything comes through a ring of stages, which three warps of their own, behind those that all
 * operations have (kernel `mid_..`), fill from linear to linear as they find them in the list of
 * operations: one sends for weights, one for scales and zeros, one for inputs, when the blocks have
 * met: it is that one that waits for the others and tells those who compute, who then do what there
 * is to do until the first stage has come. A stage of weights is sent for when this block has come
 * to that meeting; no more before it is over, since what the blocks meet by would stand behind them
 * in the memory's queues. Two barriers a stage: `full`, where all copies have come; `empty`, where
 * every thread has done with it.
 */
#ifndef ZIGCUDA_LINEAR_MID_CUH
#define ZIGCUDA_LINEAR_MID_CUH

#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/linear_mid_stage.cuh"

#ifdef GPU_GROUPS

enum { MID_STAGES = 6 }; /* at most */

/* How a linear is cut: items, of which this block has `first`, first + blocks, .. */
struct mid_plan {
    u32 units;   /* of a tile, at most */
    u32 inverse; /* 2^20 / units, rounded up */
    u32 bits;    /* a tile has 1 << bits items, up to MATRIX_SLICES */
    u32 wide;    /* tiles of the same outputs */
    u32 items;
};

/* Where the warps that compute are in the list. With tiles of 64 tokens it lies in shared memory:
 * there are no registers for it, and local memory is gone from L1 each time that the blocks meet.
 */
struct mid_walk {
    u32 op;
    u32 at, parity, linear; /* struct mid_ring, as the operation before left it */
    u32 last;               /* what the last meeting was awaited with */
};

/* In step_shared, in the place of `ahead`. */
struct mid_head {
    u64 full[MID_STAGES], empty[MID_STAGES];
    u64 planned; /* plan[] of the next linear is there, and who awaits `told` has seen the last */
    u64 told;    /* this block has arrived at the meeting for it: gpu_grid_arrive gave `before` */
    u64 met;     /* all blocks have */
    u32 before;
    struct mid_plan plan[2]; /* of linears in turns */
    struct mid_walk walk;
};
static_assert(sizeof(struct mid_head) <= sizeof(struct op), "its place");

/* A ring of at least two. */
template <class shape> GPU u32 mid_stages(const struct gpu_run *run)
{
    return MIN((run->shared_bytes - shape::stages_at) / shape::stage_bytes, (u32)MID_STAGES);
}

/* --- who does what ------------------------------------------------------------------------- */

GPU u32 mid_units_of(const struct matrix *m)
{
    return CEIL_DIV(m->n, 16u);
}

GPU u32 mid_tiles(const struct op_linear *op, u32 units)
{
    u32 tiles = 0;
    for (u32 i = 0; i < op->parts; i++)
        tiles += CEIL_DIV(mid_units_of(&op->part[i]), units);
    return tiles;
}

enum {                     /* what takes as long as a byte of weights, which comes from memory */
       MID_INPUT_COST = 2, /* so many bytes of inputs */
       MID_GATHER_COST = 10240, /* of a sharing of tiles */
};

/* Tiles of the same outputs. */
template <class shape> GPU u32 mid_wide(u32 rows)
{
    return shape::wide ? gpu_scalar(CEIL_DIV(rows, shape::tokens)) : 1;
}

/* What takes a block longest, in bytes of weights; ~0: cannot be. Four warps multiply as one: of up
 * to four units the others have nothing to do, so that they take as long as eight. */
template <class shape> GPU u32 mid_cost(const struct op_linear *op, u32 units, u32 shares, u32 wide)
{
    u32 tiles = mid_tiles(op, units) * wide, rounds = CEIL_DIV(tiles * shares, gpu_blocks());
    u32 slices = MATRIX_SLICES / shares, spans = op->part[0].slice / MID_SPAN * slices;
    if (shares > 1 && (tiles > LINEAR_COUNTERS ||
                       (size_t)tiles * MATRIX_SLICES * shape::floats > LINEAR_PARTIALS))
        return ~0u;
    u32 all = rounds * spans *
              ((units > 4 ? units : 8) * (shape::weights_bytes + shape::scales_bytes) +
               shape::strips * shape::span_bytes / MID_INPUT_COST);
    if (shares > 1)
        all += rounds * slices * units * 16 * shape::tokens * 4 + MID_GATHER_COST;
    return all;
}

/* By a whole warp: its lanes try all ways. */
template <class shape> GPU struct mid_plan mid_plan_of(const struct op_linear *op, u32 rows)
{
    const u32 wide = mid_wide<shape>(rows);
    u32 best = ~0u;
#pragma unroll 1
    for (u32 i = gpu_lane(); i < 4 * shape::units; i += 32) {
        u32 cost = mid_cost<shape>(op, i % shape::units + 1, 1u << i / shape::units, wide);
        best = MIN(best, MIN(cost / 32, 0x3ffffffu) * 64 + i);
    }
    for (u32 mask = 16; mask; mask /= 2) {
        u32 other = gpu_shuffle_xor(best, mask);
        best = MIN(best, other);
    }
    best = gpu_scalar(best) % 64;
    struct mid_plan plan = {best % shape::units + 1, 0, best / shape::units, wide, 0};
    plan.inverse = CEIL_DIV(1u << 20, plan.units);
    plan.items = gpu_scalar(mid_tiles(op, plan.units) << plan.bits) * wide;
    return plan;
}

/* Tiles of a part: a division, of up to 2^16 units. */
GPU u32 mid_tiles_of(const struct matrix *m, const struct mid_plan *plan)
{
    return (u32)((u64)(mid_units_of(m) + plan->units - 1) * plan->inverse >> 20);
}

struct mid_item {
    u32 part, tile; /* tile: of all parts */
    u32 unit, end;  /* of the part */
    u32 token;      /* the first */
    u32 slice, slice_end;
};

template <class shape>
GPU struct mid_item mid_item_of(const struct op_linear *op, const struct mid_plan *plan, u32 i)
{
    const u32 slices = MATRIX_SLICES >> plan->bits, wide = shape::wide ? plan->wide : 1;
    const u32 column = i % wide, share = i / wide & ((1u << plan->bits) - 1);
    u32 at = i / wide >> plan->bits;
    struct mid_item it = {0, at * wide + column, 0, 0, column * shape::tokens, share * slices, 0};
    for (;; it.part++) {
        u32 tiles = mid_tiles_of(&op->part[it.part], plan);
        if (at < tiles)
            break;
        at -= tiles;
    }
    it.unit = at * plan->units;
    it.end = MIN(it.unit + plan->units, mid_units_of(&op->part[it.part]));
    it.slice_end = it.slice + slices;
    return it;
}

/* Spans of slices of so many each, up to one. */
GPU u32 mid_spans(u32 slice_spans, u32 row_spans, u32 slice)
{
    return MIN(slice * slice_spans, row_spans);
}

/* --- copying ahead ------------------------------------------------------------------------- */

/* Where the next stage is. */
struct mid_ring {
    struct mid_head *head;
    u32 stages, at, parity;
    u32 linear; /* parity of the next OP_LINEAR */
};

/* parity: 0 for who takes stages, 1 for who fills them. */
template <class shape> GPU struct mid_ring mid_ring_of(const struct gpu_run *p, u32 parity)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct mid_ring ring = {(struct mid_head *)&near->ahead, mid_stages<shape>(p), 0, parity, 0};
    return ring;
}

/* A field of struct mid_walk; and does this thread write them? */
template <class shape> GPU u32 mid_kept(const u32 *field)
{
    return shape::ahead ? *field : gpu_scalar_load(field);
}
template <class shape> GPU u32 mid_thread(void)
{
    return shape::ahead ? gpu_thread() : gpu_thread_again();
}
template <class shape> GPU bool mid_keeps(void)
{
    return shape::ahead || gpu_thread_again() == 0;
}

/* The ring of who computes, as the operation before left it. */
template <class shape>
GPU struct mid_ring mid_ring_now(const struct gpu_run *p, const struct mid_walk *walk)
{
    struct mid_ring ring = mid_ring_of<shape>(p, 0);
    ring.at = mid_kept<shape>(&walk->at);
    ring.parity = mid_kept<shape>(&walk->parity);
    ring.linear = mid_kept<shape>(&walk->linear);
    return ring;
}

GPU void mid_advance(struct mid_ring *ring)
{
    ring->at = ring->at + 1 == ring->stages ? 0 : ring->at + 1;
    ring->parity ^= ring->at == 0;
}

/* The copying warps. */
enum mid_server { MID_WEIGHTS, MID_SIDES, MID_INPUTS, MID_SERVERS };

/* What a lane of a copying warp sends for, of every stage. */
struct mid_lane {
    const u8 *from; /* of the next span */
    u32 bytes;      /* of a span; 0: nothing */
    u32 to;         /* in the stage */
    u32 slice, row; /* spans of these */
    u64 policy;     /* gpu_copy_bulk_stay */
};

/* Weights of the units, a lane a unit; of another warp scales, and zeros by lanes from 16 on: one
 * copy takes a warp some 60 clocks a lane. */
template <class shape>
GPU struct mid_lane mid_aim_weights(const struct op_linear *op, const struct mid_item *it,
                                    bool sides)
{
    const struct matrix *m = &op->part[it->part];
    const u32 unit = gpu_lane() % shape::units, units = it->end - it->unit;
    const bool second = gpu_lane() >= shape::units, mine = unit < units;
    const size_t at =
        (size_t)(it->unit + unit) * (m->k / MID_SPAN) + tile_slice_at(m, it->slice) / MID_SPAN;
    const u8 *from = !sides ? m->data : second ? m->zeros : (const u8 *)m->scales;
    const u32 bytes = !sides   ? (second ? 0u : shape::weights_bytes)
                      : second ? (m->zeros ? shape::zeros_bytes : 0u)
                               : shape::scales_bytes;
    struct mid_lane lane = {from + at * bytes,   mine ? bytes : 0, unit * shape::unit_bytes,
                            m->slice / MID_SPAN, m->k / MID_SPAN,  gpu_stay_short()};
    if (sides)
        lane.to = shape::sides_at + unit * shape::side_bytes +
                  (second ? shape::spans * shape::scales_bytes : 0u);
    return lane;
}

template <class shape>
GPU struct mid_lane mid_aim_inputs(const struct op_linear *op, const struct mid_item *it, u32 rows)
{
    const struct matrix *m = &op->part[it->part];
    const u32 strip = it->token / shape::strip + gpu_lane();
    const u32 span = strip * (op->in.room / MID_SPAN) + tile_slice_at(m, it->slice) / MID_SPAN;
    const u8 *from = (const u8 *)op->in.prepared + (size_t)span * shape::span_bytes;
    const bool mine = gpu_lane() < shape::strips && strip * shape::strip < rows;
    struct mid_lane lane = {from,
                            mine ? shape::span_bytes : 0u,
                            shape::inputs_at + gpu_lane() * shape::spans * shape::span_bytes,
                            m->slice / MID_SPAN,
                            m->k / MID_SPAN,
                            gpu_stay_normal()};
    return lane;
}

/* The stages of an item. Each lane announces what it sends for. early: when the first is on its
 * way, waits until all blocks have met. */
template <class shape>
GPU void mid_feed(const struct mid_item *it, struct mid_lane lane, struct mid_ring *ring,
                  bool early)
{
    struct mid_head *head = ring->head;
#pragma unroll 1
    for (u32 slice = it->slice; slice < it->slice_end; slice++)
#pragma unroll 1
        for (u32 left = mid_spans(lane.slice, lane.row, slice + 1) -
                        mid_spans(lane.slice, lane.row, slice),
                 now;
             left; left -= now) {
            u64 *full = &head->full[ring->at];
            now = MIN(left, shape::spans);
            gpu_barrier_wait(&head->empty[ring->at], ring->parity);
            gpu_barrier_expect(full, now * lane.bytes);
            if (lane.bytes)
                gpu_copy_bulk_stay(mid_stage_at<shape>(ring->at) + lane.to, lane.from,
                                   now * lane.bytes, full, lane.policy);
            lane.from += now * lane.bytes;
            if (early) {
                gpu_barrier_wait(&head->met, ring->linear ^ 1);
                if (shape::inputs_first)
                    gpu_barrier_wait(full, ring->parity ^ 1);
            }
            early = false;
            mid_advance(ring);
        }
}

/* Asks this block's part of a norm's weights into L2, long before rows are prepared with them. */
GPU void mid_fetch_norm(const struct input *in)
{
    enum { FLOATS = 32 }; /* a line */
    u32 first = (gpu_block() + gpu_lane() * gpu_blocks()) * FLOATS;
    if (in->kind == INPUT_NORM && first < in->features)
        gpu_prefetch(in->norm + first);
}

/* The warp of inputs tells how the next linear is cut; the others tell that they are here: were
 * `told` to complete twice meanwhile, they would not see it. */
GPU void mid_tell(struct mid_ring *ring, const struct mid_plan *plan, bool inputs)
{
    if (gpu_lane())
        return;
    if (inputs)
        ring->head->plan[ring->linear] = *plan;
    gpu_barrier_arrive(&ring->head->planned);
}

/* Then they wait until this block has come to the meeting for it, and the warp of inputs until all
 * have, and tells the block. */
GPU void mid_meet(const struct gpu_run *p, struct mid_ring *ring, bool inputs)
{
    gpu_barrier_wait(&ring->head->told, ring->linear);
    ring->linear ^= 1;
    if (!inputs)
        return;
    if (gpu_lane() == 0) {
        gpu_grid_await(p->state.barrier, ring->head->before);
        gpu_barrier_arrive(&ring->head->met);
    }
    gpu_warp_sync();
    gpu_fence_bulk(); /* what will be copied, others have written */
}

/* What the copying warps do: all linears of the list. What the first copies take is worked out
 * before the blocks have met. */
template <class shape> GPU void mid_serve(const struct gpu_run *p, u32 server)
{
    const bool inputs = server == MID_INPUTS;
    struct mid_ring ring = mid_ring_of<shape>(p, 1);
#pragma unroll 1
    for (u32 i = p->first; i < p->last; i++) {
        const struct op_linear *op = &p->ops[i].linear;
        if (p->ops[i].kind != OP_LINEAR || linear_rows(&op->in, p->step) == 0)
            continue;
        if (server == MID_WEIGHTS)
            mid_fetch_norm(&op->in);
        const u32 rows = linear_rows(&op->in, p->step);
        const struct mid_plan plan = mid_plan_of<shape>(op, rows);
        mid_tell(&ring, &plan, inputs);
        if (gpu_block() >= plan.items)
            mid_meet(p, &ring, inputs);
#pragma unroll 1
        for (u32 item = gpu_block(); item < plan.items; item += gpu_blocks()) {
            const struct mid_item it = mid_item_of<shape>(op, &plan, item);
            const struct mid_lane lane = inputs
                                             ? mid_aim_inputs<shape>(op, &it, rows)
                                             : mid_aim_weights<shape>(op, &it, server == MID_SIDES);
            const bool first = item == gpu_block();
            if (first)
                mid_meet(p, &ring, inputs);
            mid_feed<shape>(&it, lane, &ring, first && !inputs);
        }
    }
}

/* --- slices and outputs -------------------------------------------------------------------- */

/* This lane's place in op->partial, or op->awaited, for a slice of a tile: sums of unit `unit` and
 * 8 tokens. */
template <class shape>
GPU float4 *mid_partial(const struct op_linear *op, u32 tile, u32 slice, u32 octet, u32 unit)
{
    float *all = shape::tells ? op->awaited : op->partial;
    return (float4 *)(all + ((size_t)tile * MATRIX_SLICES + slice) * shape::floats) +
           (octet * shape::units + unit) * 32 + gpu_lane();
}

/* Of a tile, those octets of tokens that are there. */
template <class shape> GPU u32 mid_octets(const struct mid_item *it, u32 rows)
{
    return MIN(CEIL_DIV(rows - it->token, 8u), shape::n);
}

/* Sums of a slice for those that share the tile. */
template <class shape>
GPU void mid_leave(const struct op_linear *op, const struct mid_item *it, u32 slice, u32 octets,
                   const struct tile_sums<shape> *p)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
        if (it->unit + gpu_warp() + i * GPU_WARPS < it->end)
#pragma unroll
            for (u32 j = 0; j < shape::n; j++) {
                if (j >= octets)
                    break;
                const float *v = p->v[i][j];
                float4 four = {v[0], v[1], v[2], v[3]};
                if (shape::tells)
                    four = {gpu_answer(v[0]), gpu_answer(v[1]), gpu_answer(v[2]), gpu_answer(v[3])};
                *mid_partial<shape>(op, it->tile, slice, j, gpu_warp() + i * GPU_WARPS) = four;
            }
}

/* What the tokens' sums are multiplied by, from the operation's begin on: from memory they would
 * come last, when all else is done. */
template <class shape> GPU float *mid_factors(void)
{
    return (float *)gpu_shared();
}

/* The same of a slice. */
template <class shape> GPU float *mid_scales(u32 slice)
{
    return (float *)gpu_shared() + (1 + slice) * shape::rows;
}

template <class shape> GPU void mid_load_scales(const struct input *in, u32 rows)
{
    if (gpu_thread() < rows)
        mid_factors<shape>()[gpu_thread()] = in->prepared_factor[gpu_thread()];
    if (gpu_thread() < rows * 2) { /* four slices */
        static_assert(MID_TOKENS * 2 <= GPU_THREADS && MATRIX_SLICES == 8, "at once");
        const float4 v = *((const float4 *)in->prepared_scale + gpu_thread());
        float *to = mid_scales<shape>(gpu_thread() % 2 * 4) + gpu_thread() / 2;
        to[0] = v.x, to[shape::rows] = v.y, to[2 * shape::rows] = v.z, to[3 * shape::rows] = v.w;
    }
    gpu_sync();
}

/* The slices of an item: their sum to `total` if it has all, else each for those that share the
 * tile. All that loops and descriptors depend on is the warp's (gpu_scalar): what the compiler
 * takes for divergent is slow. */
template <class shape>
GPU void mid_slices(const struct op_linear *op, const struct mid_item *it, u32 rows, bool whole,
                    struct mid_ring *ring, struct tile_sums<shape> *total)
{
    const struct matrix *m = &op->part[it->part];
    const u32 slice_spans = gpu_scalar(m->slice / MID_SPAN),
              row_spans = gpu_scalar(m->k / MID_SPAN);
    const u32 first = gpu_scalar(it->slice), slice_end = gpu_scalar(it->slice_end);
    const struct mid_how how = {gpu_scalar(m->scale_type) == DTYPE_F16,
                                gpu_scalar(m->zeros != NULL) != 0,
                                shape::strips == 1 || rows > it->token + shape::strip};
    const bool both =
        shape::m == 2 && it->unit + gpu_scalar(gpu_warp()) / 4 * 4 + GPU_WARPS < it->end;
    struct tile_sums<shape> p;
    tile_clear<shape>(total);
#pragma unroll 1
    for (u32 slice = first; slice < slice_end; slice++) {
        u32 left =
            mid_spans(slice_spans, row_spans, slice + 1) - mid_spans(slice_spans, row_spans, slice);
        tile_clear<shape>(&p);
#pragma unroll 1
        while (left) {
            const u32 spans = MIN(left, shape::spans), number = ring->at;
            gpu_barrier_wait(&ring->head->full[number], ring->parity);
            if (both)
                mid_stage<shape, shape::m>(number, spans, how, &p);
            else
                mid_stage<shape, 1>(number, spans, how, &p);
            gpu_barrier_leave(&ring->head->empty[number]);
            mid_advance(ring);
            left -= spans;
        }
        if (!whole)
            mid_leave<shape>(op, it, slice, mid_octets<shape>(it, rows), &p);
        else
            tile_add<shape>(total, &p,
                            tile_load_scales<shape>(mid_scales<shape>(slice), 1,
                                                    it->token + gpu_lane() % 4 * 2));
    }
}

/* --- all together -------------------------------------------------------------------------- */

/* The sums of all slices of a unit and 8 tokens, when they are there. Nobody else wants them; where
 * they were NOT_YET is again, and the blocks meet before the next are left. */
template <class shape> GPU void mid_take(float4 p[MATRIX_SLICES], float4 *from)
{
    const float none = gpu_from_bits(NOT_YET);
    u32 bits[4 * MATRIX_SLICES];
    for (;;) {
#pragma unroll
        for (u32 i = 0; i < MATRIX_SLICES; i++) {
            p[i] = gpu_ask4((const float *)(from + i * (shape::floats / 4)));
            bits[4 * i] = gpu_bits(p[i].x), bits[4 * i + 1] = gpu_bits(p[i].y);
            bits[4 * i + 2] = gpu_bits(p[i].z), bits[4 * i + 3] = gpu_bits(p[i].w);
        }
        if (!gpu_ballot(gpu_most<4 * MATRIX_SLICES>(bits) == NOT_YET))
            break;
        gpu_pause();
    }
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        from[i * (shape::floats / 4)] = {none, none, none, none};
}

/* This block's share of a tile of which it has had an item, when all slices are there: adds up, in
 * order, 16 outputs by 8 tokens a warp and turn. */
template <class shape>
GPU void mid_gather(const struct op_linear *op, const struct mid_plan *plan, u32 item, u32 rows)
{
    using small = struct tile_small<shape::kind>;
    const struct mid_item it = mid_item_of<shape>(op, plan, item);
    if (!shape::tells)
        tile_await(&op->arrived[it.tile], 1u << plan->bits);
    const u32 share = (it.slice << plan->bits) / MATRIX_SLICES;
    const u32 all = shape::units * mid_octets<shape>(&it, rows);
#pragma unroll 1
    for (u32 i = share + (gpu_warp() << plan->bits); i < all; i += GPU_WARPS << plan->bits) {
        const u32 unit = i % shape::units, octet = i / shape::units;
        float4 p[MATRIX_SLICES], *from = mid_partial<shape>(op, it.tile, 0, octet, unit);
        const u32 token = it.token + gpu_lane() % 4 * 2 + octet * 8;
        struct tile_sums<small> sum;
        struct tile_old<small> old;
        if (it.unit + unit >= it.end)
            continue;
        tile_ask_old(&old, op, it.part, it.unit + unit, token, rows);
        if constexpr (shape::tells)
            mid_take<shape>(p, from);
        else
            tile_load_all(p, from, shape::floats / 4);
        tile_join_all<small>(&sum, p, mid_scales<shape>(0) + token, shape::rows, 1);
        tile_store<small, true>(op, it.part, it.unit + unit, token, rows, &sum, it.end, &old,
                                mid_factors<shape>());
    }
}

/* When the blocks have met, and nobody reads these rows any more; before the first stage is there
 * nothing else is to do. */
GPU void mid_clear(const struct op_linear *op, const struct gpu_run *run)
{
    if (op->clear)
        linear_unset(op->clear, run->step->n_tokens * op->clear_stride);
}

/* OP_LINEAR, by the warps that compute. */
template <class shape>
GPU void mid_run(const struct op_linear *op, const struct gpu_run *run, const struct mid_plan *plan,
                 struct mid_ring *ring)
{
    const u32 rows = gpu_scalar(linear_rows(&op->in, run->step));
    const bool whole = plan->bits == 0;
    mid_load_scales<shape>(&op->in, rows);
    mid_clear(op, run); /* stores, behind which those loads would stand */
#pragma unroll 1
    for (u32 item = gpu_block(); item < plan->items; item += gpu_blocks()) {
        const struct mid_item it = mid_item_of<shape>(op, plan, item);
        struct tile_sums<shape> total;
        mid_slices<shape>(op, &it, rows, whole, ring, &total);
        if (whole) {
            tile_store<shape, true>(op, it.part, it.unit + gpu_warp(),
                                    it.token + gpu_lane() % 4 * 2, rows, &total, it.end, NULL,
                                    mid_factors<shape>());
            continue;
        }
        if (!shape::tells)
            tile_tell(&op->arrived[it.tile], it.slice_end - it.slice);
    }
    if (!whole)
#pragma unroll 1
        for (u32 item = gpu_block(); item < plan->items; item += gpu_blocks())
            mid_gather<shape>(op, plan, item, rows);
}

/* Before anything else; then all warps must meet. */
template <class shape> GPU void mid_open(const struct gpu_run *p)
{
    static_assert(shape::stages_at + 2 * shape::stage_bytes + STEP_SHARED_BYTES <= MID_SHARED_BYTES,
                  "two stages at the least");
    struct mid_head *head = mid_ring_of<shape>(p, 0).head;
    if (gpu_thread() == 0) {
        for (u32 i = 0; i < mid_stages<shape>(p); i++) {
            gpu_barrier_init(&head->full[i], MID_SERVERS * 32);
            gpu_barrier_init(&head->empty[i], GPU_THREADS);
        }
        gpu_barrier_init(&head->planned, MID_SERVERS);
        gpu_barrier_init(&head->told, GPU_THREADS);
        gpu_barrier_init(&head->met, 1);
    }
    gpu_fence_bulk();
}

#endif

#endif
