/* How thread blocks share the tiles of a linear: linear_many.cuh, linear_wide.cuh; and, of many
 * tokens, linear_broad.cuh (share_broad_of).
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

/* --- many tokens --------------------------------------------------------------------------- */

/* What share_broad_of counts in: the time of a stage of products. */
enum {
    SHARE_PARKING = 1, /* a slice's sums */
    SHARE_CHAIN = 6,   /* a tile's sums from a block to the next */
    SHARE_PARTS = 10,  /* slices' sums through memory, and adding them up */
};

/* Whole tiles in turns, as long as each block has one; what remains so that it ends soonest:
 *
 * - the same way;
 * - with the last full turn, in equal stretches of slices, each from its last tile to its first. So
 *   who has the begin of a tile has it done first, and leaves its sums for the next block, which
 *   ends with that tile and goes on with them: nobody waits, as a stretch is as long as a tile at
 *   least, and nothing is added up twice;
 * - of fewer tiles than blocks, several blocks a tile, which leave what they have of it and add it
 *   up together; of the first one's slices the sum.
 */
struct share_broad {
    struct share_work work; /* first, end: of what remains */
    u32 turns;              /* where that begins */
    u32 parts;              /* blocks that add up a tile together, or 1 */
};

/* k: inputs of a stage. */
GPU struct share_broad share_broad_of(const struct op_linear *op, u32 rows, u32 kind, u32 blocks,
                                      u32 tokens, u32 k)
{
    const u32 n = gpu_blocks(), b = gpu_block();
    struct share_work w = {CEIL_DIV(rows, tokens), 0, 0, 0, 0, rows, NULL};
    u32 all = 0, mine = 0, slice = 0;
    for (u32 i = 0; i < op->parts; i++) {
        const u32 tiles = share_tiles(&op->part[i], blocks) * w.tiles_t;
        const bool is = op->part[i].kind == kind;
        all += tiles;
        mine += is ? tiles : 0;
        slice = is ? MAX(slice, op->part[i].slice / k + SHARE_PARKING) : slice;
    }
    const u32 slices = w.slices = mine * MATRIX_SLICES, floats = 16 * blocks * tokens;
    const u32 full = mine / n, parts = MIN(n / mine, (u32)MATRIX_SLICES);
    const u32 whole = CEIL_DIV(mine - full * n, n) * MATRIX_SLICES * slice;
    if (parts > 1 && all <= LINEAR_COUNTERS &&
        (size_t)all * MATRIX_SLICES * floats <= LINEAR_PARTIALS &&
        CEIL_DIV(MATRIX_SLICES, parts) * slice + SHARE_PARTS < whole) {
        const u32 tile = b / parts * MATRIX_SLICES, part = b % parts;
        if (b / parts < mine) {
            w.first = tile + part * MATRIX_SLICES / parts;
            w.end = tile + (part + 1) * MATRIX_SLICES / parts;
        }
        return {w, 0, parts};
    }
    const u32 rest = slices - full * n * MATRIX_SLICES;
    if (full > 0 && (size_t)n * floats <= LINEAR_PARTIALS &&
        CEIL_DIV(rest, n) * slice + SHARE_CHAIN < whole) {
        const u32 from = (full - 1) * n * MATRIX_SLICES;
        w.first = from + (u32)((u64)(slices - from) * b / n);
        w.end = from + (u32)((u64)(slices - from) * (b + 1) / n);
        return {w, from, 1};
    }
    w.first = w.end = slices;
    return {w, slices, 1};
}

/* A block's first place, and the one behind another; there is none at or behind w.end. */
GPU u32 share_broad_rest(const struct share_broad *s)
{
    return MAX(s->work.first, (s->work.end - 1) / MATRIX_SLICES * MATRIX_SLICES);
}

GPU u32 share_broad_first(const struct share_broad *s)
{
    const u32 place = gpu_block() * MATRIX_SLICES;
    return place < s->turns ? place : share_broad_rest(s);
}

GPU u32 share_broad_next(const struct share_broad *s, u32 place)
{
    if (place < s->turns) {
        place += gpu_blocks() * MATRIX_SLICES;
        return place < s->turns ? place : share_broad_rest(s);
    }
    return place > s->work.first ? MAX(s->work.first, place - MATRIX_SLICES) : ~0u;
}

/* Of either. */
GPU struct tile_item share_any_of(const struct op_linear *op, const struct share_work *w, u32 kind,
                                  u32 blocks, u32 tokens, u32 place)
{
    return w->pairs ? share_pairs_of(op, w->pairs, blocks, tokens, place)
                    : share_item_of(op, w, kind, blocks, tokens, place);
}

/* Share number `share` of a tile that `sharers` blocks have left in slices: adds them up, in order.
 * done: see tile_join_all. */
template <class shape>
GPU void share_add_up(const struct op_linear *op, const struct share_work &w, u32 place, u32 share,
                      u32 sharers, u32 done)
{
    typedef tile_small<shape::kind> small;
    struct tile_item it = share_item_of(op, &w, shape::kind, shape::blocks, shape::tokens, place);
    const u32 token = it.token + gpu_lane() % 4 * 2;
    tile_await(&op->arrived[it.tile], sharers);
    for (u32 i = share; i < shape::m * shape::n; i += sharers) {
        const float4 *from = tile_partial(op, it.tile, 0, shape::floats) + i * GPU_THREADS;
        float4 p[MATRIX_SLICES];
        struct tile_sums<small> sum;
        tile_load_all(p, from, shape::floats / 4, done);
        tile_join_all<small>(&sum, p,
                             op->in.prepared_scale + (token + i % shape::n * 8) * MATRIX_SLICES, 1,
                             MATRIX_SLICES, done);
        tile_store<small>(op, it.part,
                          it.block + tile_warp_block<shape>() + i / shape::n * shape::apart,
                          token + i % shape::n * 8, w.rows, &sum);
    }
}

/* The same of a tile of which this block has what is at `place`. */
template <class shape>
GPU void share_gather(const struct op_linear *op, const struct share_work &w, u32 place)
{
    u32 begin = place / MATRIX_SLICES * MATRIX_SLICES, share = place % MATRIX_SLICES;
    u32 sharers = MATRIX_SLICES;
    if (w.slices >= gpu_blocks()) { /* else a block has one slice, or none */
        u32 first = share_block_of(&w, begin);
        share = gpu_block() - first;
        sharers = share_block_of(&w, begin + MATRIX_SLICES - 1) - first + 1;
    }
    share_add_up<shape>(op, w, place, share, sharers, 0);
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
