/* Attention for rows of many tokens on Hopper, heads of 64 or 128 dimensions: as
 * attention_many.cuh, but that four warps multiply their tiles together (wgmma), by keys and values
 * that the tensor cores read from shared memory themselves. The bits are the same.
 *
 * Four warps of their own, behind those that compute, copy splits into two slots in turns, from
 * unit to unit, two of them keys and two values: in the midst of products their instructions take
 * longer than the products do. Of each slot's keys, and of its values, there are two barriers:
 * `full`, where all copies have come; `empty`, where every thread that computes has done with them.
 *
 * A split's weights times its values are multiplied beside the next split's scores, and both beside
 * what the other four warps make of theirs: all that has to fit the registers.
 *
 * Shared memory: struct plan_shared; queries; two slots, each a split's keys, then its values;
 * group_before. Queries, keys and values lie as tiles of 8 x 8 halves, 128 bytes each
 * (gpu_group_mma): queries, of each four warps, as [dimension / 8][row / 8][row % 8][dimension %
 * 8], keys as [dimension / 8][key / 8][key % 8][dimension % 8], values as [key / 8][dimension /
 * 8][dimension % 8][key % 8] with a tile of ones behind each 8 keys' last one: products with it are
 * the sums of weights, which would else be products of their own, behind those of other warps.
 *
 * Of a page the keys stand in the order 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, .. (group_key), in
 * scores and values alike, and of a chunk of values the dimensions in the order 0, 1, 2, 3, 8, 9,
 * 10, 11, 4, 5, ... So four halves of a key or of a dimension that stand together in a page stay
 * together and are copied as one, and what a warp copies at once is 256 bytes in a row there and
 * meets no bank twice here. A product of 16 inputs is the same in any order of these (asked on an
 * H200: products of 64 random pairs of tiles in 19 other orders, by mma.sync and by wgmma, differed
 * in no bit).
 */
#ifndef ZIGCUDA_ATTENTION_GROUP_CUH
#define ZIGCUDA_ATTENTION_GROUP_CUH

#include "kernels/cuda/attention_many.cuh"

#ifdef GPU_GROUPS

enum {
    GROUP_SLOTS = 2,
    GROUP_FURTHER = ATTENTION_SPLIT * 16,               /* bytes of 8 dimensions of all keys */
    GROUP_VALUES_FURTHER = (WARP_CHUNKS * 2 + 1) * 128, /* of all dimensions, and ones, of 8 keys */
    GROUP_VALUES_AT = WARP_CHUNKS * 2 * GROUP_FURTHER,
    GROUP_SLOT_BYTES = GROUP_VALUES_AT + ATTENTION_SPLIT / 8 * GROUP_VALUES_FURTHER,
    GROUP_RING_AT = PLAN_BYTES + MANY_Q_BYTES,
    GROUP_BEFORE_AT = GROUP_RING_AT + GROUP_SLOTS * GROUP_SLOT_BYTES,
    GROUP_BYTES = GROUP_BEFORE_AT + GPU_WARPS * ATTENTION_ROWS * 4,
    GROUP_COPIERS = (PREFILL_THREADS - GPU_THREADS) / 2, /* threads, of keys as of values */
    GROUP_ROWS_FURTHER = 4 * ATTENTION_ROWS * 16, /* bytes of 8 dimensions of four warps' queries */
};
static_assert(GROUP_RING_AT % 128 == 0, "tiles are aligned");
static_assert(GROUP_BYTES + STEP_SHARED_BYTES <= GROUP_SHARED_BYTES, "what the host counts on");

/* Of the keys, or the values, of each slot: all copies have come; all who compute have done. */
struct group_barriers {
    u64 full[GROUP_SLOTS], empty[GROUP_SLOTS];
};

/* In step_shared, in the place of `ahead`. */
struct group_head {
    struct group_barriers keys, values;
    u32 units; /* in the whole step */
};
static_assert(sizeof(struct group_head) <= sizeof(struct op), "its place");

GPU struct group_head *group_head_of(const struct gpu_run *p)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    return (struct group_head *)&near->ahead;
}

GPU u8 *group_slot(u32 turn)
{
    return gpu_shared() + GROUP_RING_AT + turn % GROUP_SLOTS * GROUP_SLOT_BYTES;
}

/* Splits take the slots in turns; `turn` counts them, of all units. For who takes them: */
GPU u32 group_parity(u32 turn)
{
    return turn / GROUP_SLOTS % 2;
}

/* By one thread; then all must meet. */
GPU void group_open(const struct gpu_run *p)
{
    struct group_head *head = group_head_of(p);
    for (u32 i = 0; i < GROUP_SLOTS; i++) {
        gpu_barrier_init(&head->keys.full[i], GROUP_COPIERS);
        gpu_barrier_init(&head->values.full[i], GROUP_COPIERS);
        gpu_barrier_init(&head->keys.empty[i], GPU_THREADS);
        gpu_barrier_init(&head->values.empty[i], GPU_THREADS);
    }
}

/* --- copies -------------------------------------------------------------------------------- */

enum { GROUP_PAGES = SPLIT_PAGES / 2 }; /* of a split, whose keys or values a warp copies */

/* Where a lane copies 8 bytes of chunk 0 of page `number` of a split to: four halves of the key, or
 * dimension, i, or i + 8 where `other`. Those of the chunk's second half go 128 bytes further,
 * those of other chunks by group_step. */
template <bool KEYS> GPU u8 *group_place(u8 *slot, u32 number)
{
    const u32 i = gpu_lane() / 8, t = gpu_lane() / 2 % 4, other = gpu_lane() % 2;
    slot += t % 2 * 8;
    if (KEYS)
        return slot + number * 256 + t / 2 * GROUP_FURTHER + (i / 2 * 4 + other * 2 + i % 2) * 16;
    return slot + GROUP_VALUES_AT + (number * 2 + t / 2) * GROUP_VALUES_FURTHER +
           (other * 4 + i) * 16;
}

template <bool KEYS> GPU u32 group_step(u32 chunk)
{
    return chunk * (KEYS ? 2 * GROUP_FURTHER : 256);
}

/* The keys, or values, of a page to their places in a slot. from: the lane's; seen: so many of its
 * keys have been written; the values of others, which may be anything, become 0. (Those in front of
 * a window have been: their weights are 0, which is enough.) */
template <u32 CHUNKS, bool KEYS> GPU void group_copy(u8 *to, const u8 *from, u32 seen)
{
    const u32 t = gpu_lane() / 2 % 4;
    u32 bytes = KEYS ? 8 : 0; /* of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9 */
    for (u32 i = 0; !KEYS && i < 4; i++)
        bytes += 2 * t + i % 2 + i / 2 * 8 < seen ? 2 : 0;
    from = gpu_opaque(from);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        gpu_copy8(to + group_step<KEYS>(c), from + c * CHUNK_BYTES, bytes);
        gpu_copy8(to + group_step<KEYS>(c) + 128, from + c * CHUNK_BYTES + CHUNK_BYTES / 2, bytes);
    }
}

/* Which of two halves, of the keys `first` and first + 1, are of keys that are seen. */
GPU u32 group_seen(u32 seen, u32 first)
{
    return (first < seen ? 0x0000ffff : 0) | (first + 1 < seen ? 0xffff0000 : 0);
}

/* group_copy of a page of bytes, of which four go where four halves are wanted; returns the lane's
 * scales: of its key, and of the second one, or of its values. */
template <u32 CHUNKS, bool KEYS> GPU uint2 group_copy_bytes(u8 *to, const u8 *from, u32 seen)
{
    const u32 lane = gpu_lane();
    const u8 *scales = from - lane * 4 + CHUNKS * BYTES_CHUNK;
    uint2 s;
    if (KEYS) {
        const u32 at = lane / 8 * 4 + lane % 2 * 2;
        s = (uint2){gpu_load<u16>(scales + at) * 0x10001u,
                    gpu_load<u16>(scales + at + 16) * 0x10001u};
    } else {
        s = gpu_load<uint2>(scales + lane / 2 % 4 * 8);
        s.x &= group_seen(seen, 2 * (lane / 2 % 4));
        s.y &= group_seen(seen, 2 * (lane / 2 % 4) + 8);
    }
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        gpu_copy4(to + group_step<KEYS>(c), from + c * BYTES_CHUNK);
        gpu_copy4(to + group_step<KEYS>(c) + 128, from + c * BYTES_CHUNK + BYTES_CHUNK / 2);
    }
    return s;
}

/* Four bytes that this thread has copied, to halves. */
GPU void group_widen4(u8 *at, u32 low, u32 high)
{
    const u32 bytes = gpu_load<u32>(at);
    gpu_store<uint2>(at, (uint2){kv_halves(bytes, false, low), kv_halves(bytes, true, high)});
}

template <u32 CHUNKS, bool KEYS> GPU void group_widen(u8 *at, uint2 scales)
{
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        group_widen4(at + group_step<KEYS>(c), scales.x, KEYS ? scales.x : scales.y);
        group_widen4(at + group_step<KEYS>(c) + 128, KEYS ? scales.y : scales.x, scales.y);
    }
}

/* What the copying warps do: two of them bring keys, two values. */
template <u32 CHUNKS, bool INT8, bool KEYS>
GPU void group_serve(const struct op_attention *op, const struct gpu_run *run,
                     const struct attention_plan *plan)
{
    struct group_head *head = group_head_of(run);
    struct group_barriers *barriers = KEYS ? &head->keys : &head->values;
    u32 turn = 0;
    const u32 first = gpu_warp() % 2 * GROUP_PAGES;
    many_units(op, run, plan, head->units, [&](struct many_ring *r, const struct attention_tile *) {
        const u32 low = r->from / PAGE_KEYS, high = (r->to - 1) / PAGE_KEYS;
        const u32 lane_at = gpu_lane() * (INT8 ? 4 : 8); /* r->k and r->v are at twice that */
        const u8 *all = (KEYS ? r->k : r->v) - lane_at;
        u32 page = r->from / ATTENTION_SPLIT * SPLIT_PAGES + first;
        u32 id[GROUP_PAGES]; /* of the next split's pages, or the nearest that somebody sees */
#pragma unroll
        for (u32 i = 0; i < GROUP_PAGES; i++)
            id[i] = r->pages[MIN(MAX(page + i, low), high)];
#pragma unroll 1
        for (u32 left = r->pieces / SPLIT_PIECES; left; left--) {
            uint2 scales[GROUP_PAGES];
            u8 *slot = group_slot(turn);
            gpu_barrier_wait(&barriers->empty[turn % GROUP_SLOTS], group_parity(turn) ^ 1);
#pragma unroll
            for (u32 i = 0; i < GROUP_PAGES; i++) {
                u8 *to = group_place<KEYS>(slot, first + i);
                const u8 *from = all + (size_t)(id[i] * r->kv_heads + r->kv_head) * r->head_bytes;
                const bool has = page + i >= low && page + i <= high;
                const u32 seen = has ? r->to - (page + i) * PAGE_KEYS : 0;
                if constexpr (INT8)
                    scales[i] = group_copy_bytes<CHUNKS, KEYS>(to, from, seen);
                else
                    group_copy<CHUNKS, KEYS>(to, from, seen);
            }
            gpu_copy_commit();
            page += SPLIT_PAGES;
#pragma unroll
            for (u32 i = 0; i < GROUP_PAGES; i++)
                id[i] = r->pages[MIN(MAX(page + i, low), high)];
            gpu_copy_wait<0>();
#pragma unroll
            for (u32 i = 0; INT8 && i < GROUP_PAGES; i++)
                group_widen<CHUNKS, KEYS>(group_place<KEYS>(slot, first + i), scales[i]);
            gpu_fence_bulk(); /* tensor cores read what this thread has copied */
            gpu_barrier_arrive(&barriers->full[turn % GROUP_SLOTS]);
            turn++;
        }
    });
}

template <u32 CHUNKS, bool INT8>
GPU void group_serve_both(const struct op_attention *op, const struct gpu_run *run,
                          const struct attention_plan *plan)
{
    if (gpu_scalar(gpu_warp()) < GPU_WARPS + 2)
        group_serve<CHUNKS, INT8, true>(op, run, plan);
    else
        group_serve<CHUNKS, INT8, false>(op, run, plan);
}

template <u32 CHUNKS>
GPU void group_serve_of(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan)
{
    if (op->int8)
        group_serve_both<CHUNKS, true>(op, run, plan);
    else
        group_serve_both<CHUNKS, false>(op, run, plan);
}

/* --- one split ----------------------------------------------------------------------------- */

/* Chunks of the output that a split's values are multiplied for at a time, and columns of that. */
enum { PART_CHUNKS = 4, PART_COLUMNS = PART_CHUNKS * 16 };

/* This warp's queries to where its four's are. */
template <u32 CHUNKS> GPU void group_queries(const struct op_attention *op, const u32 q[2], u8 *to)
{
    uint4 all[CHUNKS];
    to += gpu_warp() % 4 * 256 + gpu_lane() * 4;
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++)
        all[c] = attention_load_q_plain(gpu_global(op->qkv), q, c);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        u8 *at = to + c * 2 * GROUP_ROWS_FURTHER;
        gpu_store<u32>(at, all[c].x);
        gpu_store<u32>(at + 128, all[c].y);
        gpu_store<u32>(at + GROUP_ROWS_FURTHER, all[c].z);
        gpu_store<u32>(at + GROUP_ROWS_FURTHER + 128, all[c].w);
    }
    gpu_fence_bulk(); /* tensor cores read them */
}

GPU void group_await(struct group_barriers *b, u32 turn)
{
    gpu_barrier_wait(&b->full[turn % GROUP_SLOTS], group_parity(turn));
}

/* Nobody but products has read there, and they are done: no fence between proxies is wanted. */
GPU void group_leave(struct group_barriers *b, u32 turn)
{
    gpu_barrier_arrive(&b->empty[turn % GROUP_SLOTS]);
}

/* The tiles of a slot's keys, in a register of the warp. */
GPU u32 group_keys(u32 turn)
{
    return gpu_scalar(gpu_group_tiles<GROUP_FURTHER>(group_slot(turn)));
}

/* Sends for x = the scores of a split's keys, which are there. */
template <u32 CHUNKS> GPU void group_scores(u32 queries, u32 keys, float *x)
{
    gpu_group_begin();
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        const u32 tiles = gpu_group_tiles_at(keys, c * 2 * GROUP_FURTHER);
        const u32 rows = gpu_group_tiles_at(queries, c * 2 * GROUP_ROWS_FURTHER);
        if (c)
            gpu_group_mma_shared<true, GROUP_ROWS_FURTHER, GROUP_FURTHER>(x, rows, tiles);
        else
            gpu_group_mma_shared<false, GROUP_ROWS_FURTHER, GROUP_FURTHER>(x, rows, tiles);
    }
    gpu_group_commit();
}

/* Sends for o = weights times a split's values, which are there, of COLUMNS dimensions from chunk
 * `first` on; keys: the tiles of their keys. */
template <u32 COLUMNS> GPU void group_values(u32 keys, u32 first, u32 w[SPLIT_PAGES][4], float *o)
{
    const u32 values = gpu_group_tiles_of<GROUP_FURTHER, GROUP_VALUES_FURTHER>(
        keys, GROUP_VALUES_AT + first * 256);
    gpu_group_begin<SPLIT_PAGES>(w);
#pragma unroll
    for (u32 p = 0; p < SPLIT_PAGES; p++) {
        const u32 at = gpu_group_tiles_at(values, p * 2 * GROUP_VALUES_FURTHER);
        if (p)
            gpu_group_mma<COLUMNS, 128, true, GROUP_VALUES_FURTHER>(o, w[p], at);
        else
            gpu_group_mma<COLUMNS, 128, false, GROUP_VALUES_FURTHER>(o, w[p], at);
    }
    gpu_group_commit();
}

GPU void group_join(struct many_tile *t, u32 first, const struct attention_join *j,
                    const float o[PART_CHUNKS + 1][2][4])
{
#pragma unroll
    for (u32 c = 0; c < PART_CHUNKS; c++)
        attention_add_chunk(j, t->o[first + c], o[c]);
}

/* The last part: behind its dimensions stand the sums of weights. */
GPU void group_join_last(struct many_tile *t, u32 first, const struct attention_join *j,
                         const float o[PART_CHUNKS + 1][2][4])
{
    group_join(t, first, j, o);
    for (u32 r = 0; r < 2; r++)
        t->l[r] = attention_add(j, r, t->l[r], o[PART_CHUNKS][0][r * 2]);
}

/* What comes before a softcap of the lane's row g, or its sink; of row g + 8 it is eight further
 * on. It lies in shared memory, as registers are few. */
GPU float *group_before(void)
{
    float *all = (float *)(gpu_shared() + GROUP_BEFORE_AT);
    return all + gpu_warp() * ATTENTION_ROWS + gpu_lane() / 4;
}

GPU struct attention_join group_weigh(struct many_tile *t, const float x[SPLIT_PAGES][2][4],
                                      const float m[2], u32 w[SPLIT_PAGES][4])
{
#pragma unroll
    for (u32 p = 0; p < SPLIT_PAGES; p++)
        attention_weigh(t->c, m, x[p], w[p]);
    return attention_join(t->m, m);
}

/* The splits of a unit by their turns: the unit's are first .. last - 1, of which four warps see
 * from .. to - 1, and all rows of theirs all of edge_from .. edge_to - 1. */
struct group_turns {
    u32 first, from, edge_from, edge_to, to, last;
    u32 zero; /* the turn that a split at position 0 would have; modulo 2^32 */
};

GPU u32 group_split(const struct group_turns *u, u32 turn) /* its position */
{
    return (turn - u->zero) * ATTENTION_SPLIT;
}

GPU bool group_is_edge(const struct group_turns *u, u32 turn)
{
    return turn - u->edge_from >= u->edge_to - u->edge_from;
}

/* All splits that the warps see: a split's values are multiplied beside the next one's keys, in
 * parts of 64 dimensions, of which the last has the sums of weights, too. */
template <u32 CHUNKS>
GPU void group_splits(struct group_head *head, u32 queries, const struct group_turns *u,
                      struct many_tile *t)
{
    enum { LAST = CHUNKS - PART_CHUNKS, LAST_COLUMNS = PART_COLUMNS + 8 };
    static_assert(CHUNKS == PART_CHUNKS || CHUNKS == 2 * PART_CHUNKS, "one part, or two");
    float x[SPLIT_PAGES][2][4], o[PART_CHUNKS + 1][2][4], m[2];
    u32 w[SPLIT_PAGES][4], turn = u->from, keys = group_keys(turn);
    group_await(&head->keys, turn);
    group_scores<CHUNKS>(queries, keys, &x[0][0][0]);
    gpu_group_wait<0, ATTENTION_SPLIT>(&x[0][0][0]);
    group_leave(&head->keys, turn);
    many_largest<true>(t, group_before(), group_split(u, turn), group_is_edge(u, turn), x, m);
    struct attention_join j = group_weigh(t, x, m, w);
#pragma unroll 1
    while (++turn < u->to) {
        const u32 next = group_keys(turn);
        group_await(&head->values, turn - 1);
        if (LAST > 0)
            group_values<PART_COLUMNS>(keys, 0, w, &o[0][0][0]);
        else
            group_values<LAST_COLUMNS>(keys, 0, w, &o[0][0][0]);
        group_await(&head->keys, turn);
        group_scores<CHUNKS>(queries, next, &x[0][0][0]);
        if (LAST > 0) {
            gpu_group_wait<1, PART_COLUMNS>(&o[0][0][0]);
            group_join(t, 0, &j, o);
            group_values<LAST_COLUMNS>(keys, LAST, w, &o[0][0][0]);
            gpu_group_wait<1, ATTENTION_SPLIT>(&x[0][0][0]);
        } else {
            gpu_group_wait<1, LAST_COLUMNS>(&o[0][0][0]);
            group_join_last(t, LAST, &j, o);
            gpu_group_wait<0, ATTENTION_SPLIT>(&x[0][0][0]);
        }
        group_leave(&head->keys, turn);
        many_largest<true>(t, group_before(), group_split(u, turn), group_is_edge(u, turn), x, m);
        if (LAST > 0) {
            gpu_group_wait<0, LAST_COLUMNS>(&o[0][0][0]);
            group_join_last(t, LAST, &j, o);
        }
        group_leave(&head->values, turn - 1);
        j = group_weigh(t, x, m, w);
        keys = next;
    }
    group_await(&head->values, turn - 1);
    if (LAST > 0) {
        group_values<PART_COLUMNS>(keys, 0, w, &o[0][0][0]);
        gpu_group_wait<0, PART_COLUMNS>(&o[0][0][0]);
        group_join(t, 0, &j, o);
    }
    group_values<LAST_COLUMNS>(keys, LAST, w, &o[0][0][0]);
    gpu_group_wait<0, LAST_COLUMNS>(&o[0][0][0]);
    group_join_last(t, LAST, &j, o);
    group_leave(&head->values, turn - 1);
}

/* Splits that others see: turns from .. to - 1. */
GPU void group_pass(struct group_head *head, u32 from, u32 to)
{
#pragma unroll 1
    for (u32 turn = from; turn < to; turn++) {
        group_await(&head->keys, turn);
        group_leave(&head->keys, turn);
        group_await(&head->values, turn);
        group_leave(&head->values, turn);
    }
}

/* --- all together -------------------------------------------------------------------------- */

GPU struct group_turns group_turns_of(const struct op_attention *op,
                                      const struct attention_plan *plan, const struct many_ring *r,
                                      u32 turn)
{
    const u32 split = ATTENTION_SPLIT, tokens = 4 * plan->tokens; /* of four warps */
    const u32 pos = r->pos + gpu_warp() / 4 * tokens, end = MIN(pos + tokens, r->to);
    const u32 zero = turn - r->from / split, last = turn + r->pieces / SPLIT_PIECES;
    const u32 from = zero + attention_seen_from(op, pos) / split;
    const u32 edge_from = zero + CEIL_DIV(attention_seen_from(op, end - 1), split);
    const u32 edge_to = zero + (pos + 1) / split;
    const bool any = pos < r->to;
    struct group_turns u;
    u.zero = gpu_scalar(zero);
    u.first = gpu_scalar(turn);
    u.from = gpu_scalar(any ? from : last);
    u.edge_from = gpu_scalar(edge_from);
    u.edge_to = gpu_scalar(MAX(edge_from, edge_to));
    u.to = gpu_scalar(any ? zero + CEIL_DIV(end, split) : last);
    u.last = gpu_scalar(last);
    return u;
}

/* The tiles of ones behind all values. */
template <u32 CHUNKS> GPU void group_ones(void)
{
    const u32 tile = gpu_thread() / 8 % (ATTENTION_SPLIT / 8),
              slot = gpu_thread() / ATTENTION_SPLIT;
    static_assert(GPU_THREADS == GROUP_SLOTS * ATTENTION_SPLIT, "a thread 16 bytes");
    u8 *at = group_slot(slot) + GROUP_VALUES_AT + tile * GROUP_VALUES_FURTHER + CHUNKS * 256;
    gpu_store<uint4>(at + gpu_thread() % 8 * 16,
                     (uint4){WEIGHT_ONES, WEIGHT_ONES, WEIGHT_ONES, WEIGHT_ONES});
    gpu_fence_bulk();
}

/* many_write, of dimensions in the order that they have here. */
template <u32 CHUNKS>
GPU void group_write(const struct op_attention *op, const struct many_tile *t, const u32 at[2])
{
    const u32 first = gpu_lane() % 4 / 2 * 8 + gpu_lane() % 2 * 2;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const float inverse = attention_inverse(op, group_before()[r * 8], t->m[r], t->l[r]);
        float *out = gpu_global(op->out) + at[r] + first;
#pragma unroll
        for (u32 i = 0; i < CHUNKS * 2; i++) {
            const float *o = &t->o[i / 2][i % 2][r * 2];
            float2 v = {gpu_answer(gpu_mul(o[0], inverse)), gpu_answer(gpu_mul(o[1], inverse))};
            if (t->row_to[r] > 0)
                gpu_store<float2>(out + i / 2 * 16 + i % 2 * 4, v);
        }
    }
}

/* What the warps do that compute; n units. */
template <u32 CHUNKS>
GPU void group_run(const struct op_attention *op, const struct gpu_run *run,
                   const struct attention_plan *plan, u32 n)
{
    struct group_head *head = group_head_of(run);
    u8 *at = gpu_shared() + PLAN_BYTES + gpu_warp() / 4 * CHUNKS * 2 * GROUP_ROWS_FURTHER;
    const u32 queries = gpu_scalar(gpu_group_tiles<GROUP_ROWS_FURTHER>(at));
    u32 turn = 0;
    group_ones<CHUNKS>(); /* the first unit's barriers are behind it */
    many_units(op, run, plan, n, [&](struct many_ring *r, const struct attention_tile *tile) {
        struct many_tile t;
        u32 q[2], out[2];
        const struct group_turns u = group_turns_of(op, plan, r, turn);
        gpu_sync(); /* the queries of the last unit are done with */
        many_begin(op, plan, tile, &t, q, out);
        group_queries<CHUNKS>(op, q, at);
        if ((t.capped || op->sinks) && gpu_lane() % 4 == 0) {
            group_before()[0] = t.before[0];
            group_before()[8] = t.before[1];
        }
        gpu_sync();
        group_pass(head, u.first, u.from);
        if (u.from < u.to)
            group_splits<CHUNKS>(head, queries, &u, &t);
        group_pass(head, u.to, u.last);
        turn = u.last;
        group_write<CHUNKS>(op, &t, out);
    });
}

/* OP_ATTENTION of rows of many tokens; `serve`: by the copying warps. */
template <bool serve>
GPU void group_attention(const struct op_attention *op, const struct gpu_run *run)
{
    struct attention_plan plan;
    u32 n = 0;
    op = gpu_near(op);
    run = gpu_near(run);
    if (serve)
        gpu_sync_all(); /* until what it reads is near */
    attention_plan_of(op, run, true, &plan);
    if (!serve) {
        n = attention_list(op, run, &plan, true);
        if (gpu_thread() == 0)
            group_head_of(run)->units = n;
        gpu_sync_all();
    }
    if (serve && op->head_dim == 64)
        group_serve_of<4>(op, run, &plan);
    else if (serve)
        group_serve_of<8>(op, run, &plan);
    else if (op->head_dim == 64)
        group_run<4>(op, run, &plan, n);
    else
        group_run<8>(op, run, &plan, n);
}

#endif

#endif
