/* How thread blocks share the tiles of a linear whose products are of four warps: linear_wide.cuh,
 * linear_broad.cuh.
 */
#ifndef ZIGCUDA_LINEAR_SHARE_CUH
#define ZIGCUDA_LINEAR_SHARE_CUH

#include "kernels/cuda/experts_place.cuh"
#include "kernels/cuda/linear_tile.cuh"

/* Rows that are pairs of a token and an expert, and whose part is the matrix of all experts: those
 * of an expert begin with a tile. Tiles are whole. */
struct share_pairs {
    const struct experts_places *at;
    u32 experts, units; /* units: blocks of 16 outputs of an expert */
};

/* The work of this block on parts of one kind: places in the row of all slices of all tiles. */
struct share_work {
    u32 tiles_t;          /* of tokens */
    u32 first, end, step; /* step 0: the slices [first, end); else the tiles that begin at first, +
                             step, .. below end */
    u32 slices, rows;
    const struct share_pairs *pairs; /* or NULL */
};

GPU u32 share_tiles(const struct matrix *m, u32 blocks)
{
    return CEIL_DIV(m->n, 16 * blocks);
}

/* Of pairs. */
GPU struct share_work share_work_of(const struct share_pairs *pairs, u32 blocks, u32 tokens)
{
    const u32 tiles = pairs->at->tile[pairs->experts], b = gpu_block() * MATRIX_SLICES;
    const u32 slices = tiles * CEIL_DIV(pairs->units, blocks) * MATRIX_SLICES;
    return {tiles, b, slices, gpu_blocks() * MATRIX_SLICES, slices, tiles * tokens, pairs};
}

/* Equal stretches of slices, where that ends sooner than whole tiles although sums of slices go
 * through memory, which takes the time of about a slice. */
GPU struct share_work share_work_of(const struct op_linear *op, u32 rows, u32 kind, u32 blocks,
                                    u32 tokens)
{
    struct share_work w = {CEIL_DIV(rows, tokens), 0, 0, 0, 0, rows, NULL};
    u32 all = 0, mine = 0, n = gpu_blocks(), b = gpu_block();
    for (u32 i = 0; i < op->parts; i++) {
        u32 tiles = share_tiles(&op->part[i], blocks) * w.tiles_t;
        all += tiles;
        mine += op->part[i].kind == kind ? tiles : 0;
    }
    u32 slices = w.slices = mine * MATRIX_SLICES;
    bool fits = all <= LINEAR_COUNTERS &&
                (size_t)all * MATRIX_SLICES * 16 * blocks * tokens <= LINEAR_PARTIALS;
    if (fits && CEIL_DIV(slices, n) + 1 < CEIL_DIV(mine, n) * MATRIX_SLICES) {
        w.first = (u32)((u64)slices * b / n);
        w.end = (u32)((u64)slices * (b + 1) / n);
    } else {
        w.first = b * MATRIX_SLICES;
        w.end = slices;
        w.step = n * MATRIX_SLICES;
    }
    return w;
}

/* The place after that of an item. */
GPU u32 share_next(const struct share_work *w, u32 place)
{
    return w->step ? place + w->step : (place / MATRIX_SLICES + 1) * MATRIX_SLICES;
}

/* The block that has a slice, when all blocks have slices. */
GPU u32 share_block_of(const struct share_work *w, u32 place)
{
    return (u32)(((u64)(place + 1) * gpu_blocks() - 1) / w->slices);
}

/* Of pairs: tiles of outputs go fastest, so that rows are read together. */
GPU struct tile_item share_pairs_of(const struct op_linear *op, const struct share_pairs *pairs,
                                    u32 blocks, u32 tokens, u32 place)
{
    const struct experts_places *at = pairs->at;
    const u32 units = pairs->units, across = CEIL_DIV(units, blocks), tile = place / MATRIX_SLICES;
    const u32 rows = tile / across, e = experts_that_has(at->tile, pairs->experts, rows);
    const u32 first = e * units, row = at->tile[e] * tokens;
    const u32 of_block = op->output == OUTPUT_GATE ? 8 : 16;
    return {0,
            tile,
            first + tile % across * blocks,
            rows * tokens,
            0,
            MATRIX_SLICES,
            row + at->pair[e + 1] - at->pair[e],
            first + units,
            (size_t)(row - at->pair[e]) * op->y_stride + first * of_block};
}

/* Tokens go fastest, so that blocks which run together share weights. */
GPU struct tile_item share_item_of(const struct op_linear *op, const struct share_work *w, u32 kind,
                                   u32 blocks, u32 tokens, u32 place)
{
    u32 tile = place / MATRIX_SLICES, slice = place % MATRIX_SLICES;
    u32 token_tile = tile % w->tiles_t, at = tile / w->tiles_t, before = 0, part = 0;
    for (;; part++) {
        u32 tiles = share_tiles(&op->part[part], blocks);
        if (op->part[part].kind == kind) {
            if (at < tiles)
                break;
            at -= tiles;
        }
        before += tiles;
    }
    struct tile_item it = {
        part,  (before + at) * w->tiles_t + token_tile,         at * blocks, token_tile * tokens,
        slice, MIN(slice + w->end - place, (u32)MATRIX_SLICES), w->rows,     ~0u,
        0};
    return it;
}

/* Of either. */
GPU struct tile_item share_any_of(const struct op_linear *op, const struct share_work *w, u32 kind,
                                  u32 blocks, u32 tokens, u32 place)
{
    return w->pairs ? share_pairs_of(op, w->pairs, blocks, tokens, place)
                    : share_item_of(op, w, kind, blocks, tokens, place);
}

/* This block's share of a tile that several have left in slices: adds them up, in order. */
template <class shape>
GPU void share_gather(const struct op_linear *op, const struct share_work &w, u32 place)
{
    typedef tile_small<shape::kind> small;
    struct tile_item it = share_item_of(op, &w, shape::kind, shape::blocks, shape::tokens, place);
    u32 begin = place / MATRIX_SLICES * MATRIX_SLICES, share = place % MATRIX_SLICES;
    u32 sharers = MATRIX_SLICES, token = it.token + gpu_lane() % 4 * 2;
    if (w.slices >= gpu_blocks()) { /* else a block has one slice, or none */
        u32 first = share_block_of(&w, begin);
        share = gpu_block() - first;
        sharers = share_block_of(&w, begin + MATRIX_SLICES - 1) - first + 1;
    }
    tile_await(&op->arrived[it.tile], sharers);
    for (u32 i = share; i < shape::m * shape::n; i += sharers) {
        const float4 *from = tile_partial(op, it.tile, 0, shape::floats) + i * GPU_THREADS;
        float4 p[MATRIX_SLICES];
        struct tile_sums<small> sum;
        tile_load_all(p, from, shape::floats / 4);
        tile_join_all<small>(&sum, p,
                             op->in.prepared_scale + (token + i % shape::n * 8) * MATRIX_SLICES, 1,
                             MATRIX_SLICES);
        tile_store<small>(op, it.part,
                          it.block + tile_warp_block<shape>() + i / shape::n * shape::apart,
                          token + i % shape::n * 8, w.rows, &sum);
    }
}

/* The tiles that this block shares with others, when all of it is done that others wait for. */
template <class shape> GPU void share_finish(const struct op_linear *op, const struct share_work w)
{
    u32 last = (w.end - 1) / MATRIX_SLICES * MATRIX_SLICES;
    if (w.step || w.first >= w.end)
        return;
    if (w.first % MATRIX_SLICES || w.end - w.first < MATRIX_SLICES)
        share_gather<shape>(op, w, w.first);
    if (w.end % MATRIX_SLICES && last > w.first)
        share_gather<shape>(op, w, last);
}

#endif
