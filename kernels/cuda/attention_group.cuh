/* Attention for rows of many tokens on Hopper, heads of 64 or 128 dimensions: as
 * attention_many.cuh, but that four warps multiply their tiles together (wgmma), by keys and values
 * that the tensor cores read from shared memory themselves. The bits are the same.
 *
 * Shared memory: struct plan_shared; queries as a-fragments, as attention_many.cuh has them, but
 * that product's k-index i is dimension i; two slots, each a split's keys, then its values, as
 * tiles of 8 x 8 halves, 128 bytes each (gpu_group_mma): keys [dimension / 8][key / 8][8 keys][8
 * dimensions] values [key / 8][dimension / 8][8 dimensions][8 keys] Of a page the keys stand in the
 * order 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, .. (group_key), in scores and values alike. So what
 * a lane finds of a page, four halves of a key or of a dimension, stays together and is copied as
 * one. A product of 16 inputs is the same in any order of these (asked on an H200: 24,320 products
 * in 19 other orders, of mma.sync and of wgmma, differed in no bit).
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

/* --- copies -------------------------------------------------------------------------------- */

/* Warp w copies page w of each split; a split is one piece. */
GPU void group_load_page(struct many_ring *r)
{
    u32 split = r->from / ATTENTION_SPLIT + MIN(r->issued, r->pieces - 1);
    u32 page = split * SPLIT_PAGES + gpu_warp();
    r->page = r->pages[MIN(MAX(page, r->from / PAGE_KEYS), (r->to - 1) / PAGE_KEYS)];
}

template <u32 CHUNKS> GPU void group_copy(struct many_ring *r)
{
    if (r->issued < r->pieces) {
        const u32 g = gpu_lane() / 4, t = gpu_lane() % 4, w = gpu_warp();
        const u32 row = g / 4 * 8 + g / 2 % 2 * 4 + g % 2; /* of key g; key g + 8 has row + 2 */
        const size_t at = (size_t)(r->page * r->kv_heads + r->kv_head) * r->head_bytes;
        const u8 *k = r->k + at, *v = r->v + at;
        u8 *slot = r->base + r->issued % GROUP_SLOTS * GROUP_SLOT_BYTES + t % 2 * 8;
        u8 *keys = slot + t / 2 * GROUP_FURTHER + w * 256 + row * 16;
        u8 *values = slot + GROUP_VALUES_AT + (2 * w + t / 2) * GROUP_FURTHER + g * 16;
#pragma unroll
        for (u32 c = 0; c < CHUNKS; c++) {
            gpu_copy8(keys + c * 2 * GROUP_FURTHER, k + c * CHUNK_BYTES);
            gpu_copy8(keys + c * 2 * GROUP_FURTHER + 32, k + c * CHUNK_BYTES + 8);
        }
#pragma unroll
        for (u32 c = 0; c < CHUNKS; c++) {
            gpu_copy8(values + c * 256, v + c * CHUNK_BYTES);
            gpu_copy8(values + c * 256 + 128, v + c * CHUNK_BYTES + 8);
        }
        r->issued++;
        group_load_page(r);
    }
    gpu_copy_commit();
}

/* Makes values 0 of the page that this warp copied that belong to keys which nobody sees. */
template <u32 CHUNKS> GPU void group_clean(const struct many_ring *r, u32 pos, u8 *slot)
{
    gpu_warp_sync(); /* its copies are there */
#pragma unroll 1
    for (u32 half = 0; half < 2; half++) {
        u32 mask[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 key = pos + gpu_warp() * PAGE_KEYS + group_key(half, i);
            mask[i] = (key >= r->from && key < r->to ? 0x0000ffff : 0) |
                      (key + 1 >= r->from && key + 1 < r->to ? 0xffff0000 : 0);
        }
#pragma unroll 1
        for (u32 d = gpu_lane(); d < CHUNKS * 16; d += 32) {
            u8 *at = slot + GROUP_VALUES_AT + (gpu_warp() * 2 + half) * GROUP_FURTHER + d * 16;
            uint4 v = gpu_load<uint4>(at);
            gpu_store<uint4>(at,
                             (uint4){v.x & mask[0], v.y & mask[1], v.z & mask[2], v.w & mask[3]});
        }
    }
}

/* The next split, for all threads; what they did with the one before is done. */
template <u32 CHUNKS> GPU u8 *group_next(struct many_ring *r, u32 pos)
{
    u8 *slot = r->base + r->piece % GROUP_SLOTS * GROUP_SLOT_BYTES;
    gpu_copy_wait<0>();
    if (pos < r->from || pos + ATTENTION_SPLIT > r->to)
        group_clean<CHUNKS>(r, pos, slot);
    gpu_fence_bulk(); /* tensor cores read what this thread has copied */
    gpu_sync();
    group_copy<CHUNKS>(r);
    r->piece++;
    return slot;
}

/* --- one split ----------------------------------------------------------------------------- */

/* x = the scores of all its keys. */
template <u32 CHUNKS> GPU void group_scores(const u8 *q, u32 keys, float *x)
{
    u32 a[CHUNKS][4];
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        uint4 f = gpu_load<uint4>(q + c * CHUNK_BYTES);
        a[c][0] = f.x, a[c][1] = f.y, a[c][2] = f.z, a[c][3] = f.w;
    }
    gpu_group_begin<CHUNKS>(a);
#pragma unroll
    for (u32 c = 0; c < CHUNKS; c++) {
        u32 at = gpu_group_tiles_at(keys, c * 2 * GROUP_FURTHER);
        if (c)
            gpu_group_mma<ATTENTION_SPLIT, 128, true, GROUP_FURTHER>(x, a[c], at);
        else
            gpu_group_mma<ATTENTION_SPLIT, 128, false, GROUP_FURTHER>(x, a[c], at);
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

/* --- a unit -------------------------------------------------------------------------------- */

template <u32 CHUNKS>
GPU void group_run(const struct op_attention *op, const struct gpu_run *run,
                   const struct attention_plan *plan)
{
    many_units(op, run, plan, [&](struct many_ring *r, const struct attention_tile *tile) {
        struct many_tile t;
        u32 out[2];
        const u32 n = 4 * plan->tokens; /* of four warps */
        const u32 pos = r->pos + gpu_warp() / 4 * n, to = pos < r->to ? MIN(pos + n, r->to) : 0;
        const u32 from = attention_seen_from(op, pos);
        r->base = gpu_shared() + GROUP_RING_AT;
        r->pieces /= SPLIT_PIECES;
        group_load_page(r);
        many_begin<true>(op, plan, tile, &t, out);
        group_copy<CHUNKS>(r);
#pragma unroll 1
        while (r->piece < r->pieces) {
            const u32 split = (r->from / ATTENTION_SPLIT + r->piece) * ATTENTION_SPLIT;
            const u32 tiles =
                gpu_scalar(gpu_group_tiles<GROUP_FURTHER>(group_next<CHUNKS>(r, split)));
            if (!gpu_scalar(split < to && split + ATTENTION_SPLIT > from))
                continue;
            float x[SPLIT_PAGES][2][4];
            u32 w[SPLIT_PAGES][4];
            group_scores<CHUNKS>(t.q, tiles, &x[0][0][0]);
            const struct attention_join j = many_weigh<true>(&t, split, x, w);
            group_values<CHUNKS>(&t, gpu_group_tiles_at(tiles, GROUP_VALUES_AT), &j, w);
        }
        many_write(op, CHUNKS, tile, &t, out);
    });
}

/* OP_ATTENTION, of rows of many tokens. */
GPU void attention_group_run(const struct op_attention *op, const struct gpu_run *run)
{
    struct attention_plan plan;
    op = gpu_near(op);
    run = gpu_near(run);
    attention_plan_of(op, run, true, &plan);
    if (op->head_dim == 64)
        group_run<4>(op, run, &plan);
    else
        group_run<8>(op, run, &plan);
}

#endif

#endif
