/* Attention for rows of many tokens on Hopper, heads of 64 or 128 dimensions: as
 * attention_many.cuh, but that four warps multiply their tiles together (wgmma), by keys and values
 * that the tensor cores read from shared memory themselves. The bits are the same.
 *
 * Four warps of their own, behind those that compute, copy splits into two slots in turns, from
 * unit to unit: in the midst of products their instructions take longer than the products do. Two
 * barriers a slot: `full`, where all copies have come; `empty`, where every thread has done with
 * it.
 *
 * Shared memory: struct plan_shared; queries as a-fragments, as attention_many.cuh has them, but
 * that product's k-index i is dimension i; two slots, each a split's keys, then its values, as
 * tiles of 8 x 8 halves, 128 bytes each (gpu_group_mma). Keys lie as [dimension / 8][key / 8][key %
 * 8][dimension % 8], values as [key / 8][dimension / 8][dimension % 8][key % 8].
 *
 * Of a page the keys stand in the order 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, .. (group_key), in
 * scores and values alike. So what a lane finds of a page, four halves of a key or of a dimension,
 * stays together and is copied as one. A product of 16 inputs is the same in any order of these
 * (asked on an H200: products of 64 random pairs of tiles in 19 other orders, by mma.sync and by
 * wgmma, differed in no bit).
 */
#ifndef ZIGCUDA_ATTENTION_GROUP_CUH
#define ZIGCUDA_ATTENTION_GROUP_CUH

#include "kernels/cuda/attention_many.cuh"

#ifdef GPU_GROUPS

enum {
    GROUP_SLOTS = 2,
    GROUP_FURTHER = ATTENTION_SPLIT * 16, /* bytes of 8 dimensions of all keys; room for as many
                                             dimensions of 8 keys */
    GROUP_VALUES_AT = WARP_CHUNKS * 2 * GROUP_FURTHER,
    GROUP_SLOT_BYTES = GROUP_VALUES_AT + ATTENTION_SPLIT / 8 * GROUP_FURTHER,
    GROUP_RING_AT = PLAN_BYTES + MANY_Q_BYTES,
};
static_assert(GROUP_RING_AT % 128 == 0, "tiles are aligned");
static_assert(GROUP_RING_AT + GROUP_SLOTS * GROUP_SLOT_BYTES + STEP_SHARED_BYTES <=
                  GROUP_SHARED_BYTES,
              "what the host counts on");

/* In step_shared, in the place of `ahead`. */
struct group_head {
    u64 full[GROUP_SLOTS], empty[GROUP_SLOTS];
    u32 units; /* in the whole step */
};
static_assert(sizeof(struct group_head) <= sizeof(struct op), "its place");

/* Where the next split is. */
struct group_ring {
    struct group_head *head;
    u32 at, parity; /* parity: 0 for who takes slots, 1 for who fills them */
};

GPU struct group_ring group_ring_of(const struct gpu_run *p, u32 parity)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct group_ring ring = {(struct group_head *)&near->ahead, 0, parity};
    return ring;
}

GPU u8 *group_slot(const struct group_ring *ring)
{
    return gpu_shared() + GROUP_RING_AT + ring->at * GROUP_SLOT_BYTES;
}

GPU void group_advance(struct group_ring *ring)
{
    ring->at ^= 1;
    ring->parity ^= ring->at == 0;
}

/* By one thread; then all must meet. */
GPU void group_open(const struct gpu_run *p)
{
    struct group_head *head = group_ring_of(p, 0).head;
    for (u32 i = 0; i < GROUP_SLOTS; i++) {
        gpu_barrier_init(&head->full[i], PREFILL_THREADS - GPU_THREADS);
        gpu_barrier_init(&head->empty[i], GPU_THREADS);
    }
}

/* --- copies -------------------------------------------------------------------------------- */

enum { GROUP_PAGES = SPLIT_PAGES / 4 }; /* of a split, that a warp copies */

/* Where a lane copies to, of a page of a slot. */
struct group_places {
    u8 *keys, *values;
};

GPU struct group_places group_places(u8 *slot, u32 number)
{
    const u32 g = gpu_lane() / 4, t = gpu_lane() % 4;
    const u32 row = g / 4 * 8 + g / 2 % 2 * 4 + g % 2; /* of key g; key g + 8 has row + 2 */
    struct group_places to;
    to.keys = slot + t % 2 * 8 + t / 2 * GROUP_FURTHER + number * 256 + row * 16;
    to.values = slot + t % 2 * 8 + GROUP_VALUES_AT + (2 * number + t / 2) * GROUP_FURTHER + g * 16;
    return to;
}

/* A page of a split to its place in a slot. seen: so many of its keys have been written; the values
 * of others, which may be anything, become 0. (Those in front of a window have been: their weights
 * are 0, which is enough.) */
template <u32 CHUNKS>
GPU void group_copy(const struct many_ring *r, u8 *slot, u32 number, u32 page, u32 seen)
{
    const u32 t = gpu_lane() % 4;
    const struct group_places to = group_places(slot, number);
    const size_t at = (size_t)(page * r->kv_heads + r->kv_head) * r->head_bytes;
    const u8 *k = gpu_opaque(r->k + at), *v = gpu_opaque(r->v + at);
    u32 bytes = 0; /* of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9 */
    for (u32 i = 0; i < 4; i++)
        bytes += 2 * t + i % 2 + i / 2 * 8 < seen ? 2 : 0;
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        gpu_copy8(to.keys + c * 2 * GROUP_FURTHER, k + c * CHUNK_BYTES);
        gpu_copy8(to.keys + c * 2 * GROUP_FURTHER + 32, k + c * CHUNK_BYTES + 8);
    }
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        gpu_copy8(to.values + c * 256, v + c * CHUNK_BYTES, bytes);
        gpu_copy8(to.values + c * 256 + 128, v + c * CHUNK_BYTES + 8, bytes);
    }
}

/* A lane's scales of a page of bytes. */
struct group_scales {
    u32 keys;
    uint2 values;
};

/* group_copy of a page of bytes, of which four go where four halves are wanted. */
template <u32 CHUNKS>
GPU struct group_scales group_copy_bytes(const struct many_ring *r, u8 *slot, u32 number, u32 page,
                                         u32 seen)
{
    struct group_scales s;
    const struct group_places to = group_places(slot, number);
    const size_t at = (size_t)(page * r->kv_heads + r->kv_head) * r->head_bytes;
    const u8 *k = gpu_opaque(r->k + at), *v = gpu_opaque(r->v + at);
    u32 mask[2];
    attention_key_masks(0, 0, seen, mask);
    s.keys = gpu_load<u32>(kv_scales(k - gpu_lane() * 8, CHUNKS, true));
    s.values = gpu_load<uint2>(kv_scales(v - gpu_lane() * 8, CHUNKS, false));
    s.values.x &= mask[0];
    s.values.y &= mask[1];
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        gpu_copy4(to.keys + c * 2 * GROUP_FURTHER, k + c * BYTES_CHUNK);
        gpu_copy4(to.keys + c * 2 * GROUP_FURTHER + 32, k + c * BYTES_CHUNK + 4);
        gpu_copy4(to.values + c * 256, v + c * BYTES_CHUNK);
        gpu_copy4(to.values + c * 256 + 128, v + c * BYTES_CHUNK + 4);
    }
    return s;
}

/* Four bytes that this thread has copied, to halves. */
GPU void group_widen4(u8 *at, u32 low, u32 high)
{
    const u32 bytes = gpu_load<u32>(at);
    gpu_store<uint2>(at, (uint2){kv_halves(bytes, false, low), kv_halves(bytes, true, high)});
}

template <u32 CHUNKS> GPU void group_widen(u8 *slot, u32 number, const struct group_scales *s)
{
    const struct group_places to = group_places(slot, number);
    const u32 low = gpu_permute_bytes(s->keys, 0, 0x1010);
    const u32 high = gpu_permute_bytes(s->keys, 0, 0x3232);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        group_widen4(to.keys + c * 2 * GROUP_FURTHER, low, low);
        group_widen4(to.keys + c * 2 * GROUP_FURTHER + 32, high, high);
        group_widen4(to.values + c * 256, s->values.x, s->values.y);
        group_widen4(to.values + c * 256 + 128, s->values.x, s->values.y);
    }
}

/* What the copying warps do. */
template <u32 CHUNKS, bool INT8>
GPU void group_serve(const struct op_attention *op, const struct gpu_run *run,
                     const struct attention_plan *plan)
{
    struct group_ring ring = group_ring_of(run, 1);
    const u32 first = (gpu_warp() - GPU_WARPS) * GROUP_PAGES;
    many_units(
        op, run, plan, ring.head->units, [&](struct many_ring *r, const struct attention_tile *) {
            const u32 low = r->from / PAGE_KEYS, high = (r->to - 1) / PAGE_KEYS;
            u32 page = r->from / ATTENTION_SPLIT * SPLIT_PAGES + first;
            u32 id[GROUP_PAGES]; /* of the next split's pages, or the nearest that somebody sees */
#pragma unroll
            for (u32 i = 0; i < GROUP_PAGES; i++)
                id[i] = r->pages[MIN(MAX(page + i, low), high)];
#pragma unroll 1
            for (u32 left = r->pieces / SPLIT_PIECES; left; left--) {
                struct group_scales scales[GROUP_PAGES];
                gpu_barrier_wait(&ring.head->empty[ring.at], ring.parity);
#pragma unroll
                for (u32 i = 0; i < GROUP_PAGES; i++) {
                    const bool has = page + i >= low && page + i <= high;
                    const u32 seen = has ? r->to - (page + i) * PAGE_KEYS : 0;
                    if constexpr (INT8)
                        scales[i] =
                            group_copy_bytes<CHUNKS>(r, group_slot(&ring), first + i, id[i], seen);
                    else
                        group_copy<CHUNKS>(r, group_slot(&ring), first + i, id[i], seen);
                }
                gpu_copy_commit();
                gpu_copy_wait<0>();
#pragma unroll
                for (u32 i = 0; INT8 && i < GROUP_PAGES; i++)
                    group_widen<CHUNKS>(group_slot(&ring), first + i, &scales[i]);
                gpu_fence_bulk(); /* tensor cores read what this thread has copied */
                gpu_barrier_arrive(&ring.head->full[ring.at]);
                group_advance(&ring);
                page += SPLIT_PAGES;
#pragma unroll
                for (u32 i = 0; i < GROUP_PAGES; i++)
                    id[i] = r->pages[MIN(MAX(page + i, low), high)];
            }
        });
}

template <u32 CHUNKS>
GPU void group_serve_of(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan)
{
    if (op->int8)
        group_serve<CHUNKS, true>(op, run, plan);
    else
        group_serve<CHUNKS, false>(op, run, plan);
}

/* --- one split ----------------------------------------------------------------------------- */

/* The warp's queries. */
template <u32 CHUNKS> struct group_queries {
    u32 a[CHUNKS][4];
};

template <u32 CHUNKS> GPU struct group_queries<CHUNKS> group_load(const u8 *q) {
    struct group_queries<CHUNKS> to;
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        uint4 f = gpu_load<uint4>(q + c * CHUNK_BYTES);
        to.a[c][0] = f.x, to.a[c][1] = f.y, to.a[c][2] = f.z, to.a[c][3] = f.w;
    }
    return to;
}

/* x = the scores of all its keys. */
template <u32 CHUNKS>
GPU void group_scores(struct group_queries<CHUNKS> *q, u32 keys, float *x)
{
    gpu_group_begin<CHUNKS>(q->a);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        u32 at = gpu_group_tiles_at(keys, c * 2 * GROUP_FURTHER);
        if (c)
            gpu_group_mma<ATTENTION_SPLIT, 128, true, GROUP_FURTHER>(x, q->a[c], at);
        else
            gpu_group_mma<ATTENTION_SPLIT, 128, false, GROUP_FURTHER>(x, q->a[c], at);
    }
    gpu_group_commit();
    gpu_group_wait<0, ATTENTION_SPLIT>(x);
}

/* Joins weights times values to the total. */
template <u32 CHUNKS>
GPU void group_values(struct many_tile *t, u32 values, const struct attention_join *j,
                      u32 w[SPLIT_PAGES][4])
{
    float o[CHUNKS][2][4];
    gpu_group_begin<SPLIT_PAGES>(w);
#pragma unroll
    for (u32 p = 0; p < SPLIT_PAGES; p++) {
        u32 at = gpu_group_tiles_at(values, p * 2 * GROUP_FURTHER);
        if (p)
            gpu_group_mma<CHUNKS * 16, 128, true, GROUP_FURTHER>(&o[0][0][0], w[p], at);
        else
            gpu_group_mma<CHUNKS * 16, 128, false, GROUP_FURTHER>(&o[0][0][0], w[p], at);
    }
    gpu_group_commit();
    gpu_group_wait<0, CHUNKS * 16>(&o[0][0][0]);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++)
        attention_add_chunk(j, t->o[c], o[c]);
}

/* --- all together -------------------------------------------------------------------------- */

/* What the warps do that compute; n units. */
template <u32 CHUNKS>
GPU void group_run(const struct op_attention *op, const struct gpu_run *run,
                   const struct attention_plan *plan, u32 n)
{
    struct group_ring ring = group_ring_of(run, 0);
    many_units(op, run, plan, n, [&](struct many_ring *r, const struct attention_tile *tile) {
        struct many_tile t;
        u32 out[2];
        const u32 tokens = 4 * plan->tokens; /* of four warps */
        const u32 pos = r->pos + gpu_warp() / 4 * tokens;
        const u32 to = pos < r->to ? MIN(pos + tokens, r->to) : 0; /* positions that they see */
        const u32 from = attention_seen_from(op, pos);
        u32 split = r->from / ATTENTION_SPLIT * ATTENTION_SPLIT;
        gpu_sync(); /* the queries of the last unit are done with */
        many_begin<CHUNKS>(op, plan, tile, &t, out);
        gpu_sync();
#pragma unroll 1
        for (; split < r->to; split += ATTENTION_SPLIT) {
            const u32 at = gpu_scalar(ring.at);
            const u32 tiles = gpu_scalar(gpu_group_tiles<GROUP_FURTHER>(group_slot(&ring)));
            struct group_queries<CHUNKS> q = group_load<CHUNKS>(t.q);
            gpu_barrier_wait(&ring.head->full[at], ring.parity);
            if (gpu_scalar(split < to && split + ATTENTION_SPLIT > from)) {
                float x[SPLIT_PAGES][2][4];
                u32 w[SPLIT_PAGES][4];
                group_scores<CHUNKS>(&q, tiles, &x[0][0][0]);
                const struct attention_join j = many_weigh<true>(&t, split, x, w);
                group_values<CHUNKS>(&t, gpu_group_tiles_at(tiles, GROUP_VALUES_AT), &j, w);
            }
            gpu_barrier_leave(&ring.head->empty[at]);
            group_advance(&ring);
        }
        many_write(op, CHUNKS, &t, out);
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
            group_ring_of(run, 0).head->units = n;
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
