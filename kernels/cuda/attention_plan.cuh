/* Who computes which part of a step's attention: rows of few tokens by attention_few.cuh, rows of
 * many by attention_many.cuh. Either way the work of all rows stands in one list of items, row
 * after row; a thread looks at one row of the step.
 */
#ifndef ZIGCUDA_ATTENTION_PLAN_CUH
#define ZIGCUDA_ATTENTION_PLAN_CUH

#include "kernels/cuda/attention_tile.cuh"

enum {
    SPLITS_CHUNKS = 16,      /* of the output, of a unit of few */
    MANY_Q_BYTES = 32 << 10, /* queries of 8 tiles of 8 chunks */
    PLAN_BYTES = 1152,       /* of struct plan_shared */
};

static_assert(LIMIT_SLOTS <= (int)GPU_THREADS, "a thread a row");

/* Lies at the start of shared memory. */
struct plan_shared {
    u32 before[LIMIT_SLOTS]; /* items of the rows ahead of each; not used for a single row */
    u32 sums[GPU_WARPS];
};

struct attention_plan {
    u32 chunks; /* of head_dim */
    u32 group;  /* heads of a KV head */
    u32 tokens; /* of a tile */
    u32 parts;  /* of a token's heads: 1 unless a KV head has more than 16 */
    u32 units;  /* of a tile: KV heads times parts */

    /* few */
    u32 few_units;      /* of a tile: units times slices of SPLITS_CHUNKS chunks of the output */
    u32 items;          /* in the whole step */
    u32 teams;          /* of warps, in all blocks, that take a stretch of them each */
    u32 each, one_more; /* items of a team; so many teams have one more */
    u32 partial_each;   /* rows of op->partial an item */
    bool share;         /* units may be shared among teams */

    /* many */
    u32 warps;       /* that share a tile, each with 8 chunks of the output */
    u32 ring;        /* pieces of keys or values in shared memory; 0: the way of many is closed */
    u32 piece_bytes; /* 4 pages of keys, or half of a split's values */
};

GPU struct plan_shared *plan_shared(void)
{
    return (struct plan_shared *)gpu_shared();
}

GPU u32 attention_first_split(const struct op_attention *op, const struct gpu_row *row)
{
    return attention_seen_from(op, row->pos) / ATTENTION_SPLIT;
}

GPU u32 attention_splits(const struct op_attention *op, const struct gpu_row *row)
{
    return CEIL_DIV(row->pos + row->n, (u32)ATTENTION_SPLIT) - attention_first_split(op, row);
}

/* Items of a row: (tile, KV head, part, split) for few, (block of tiles, KV head, part) for many. 0
 * when the row goes the other way. */
GPU u32 attention_items(const struct op_attention *op, const struct attention_plan *plan,
                        const struct gpu_row *row, bool many)
{
    bool is_many = plan->ring && row->n > FEW_TILES * plan->tokens;
    if (many != is_many)
        return 0;
    u32 tiles = CEIL_DIV(row->n, plan->tokens);
    return many ? plan->units * CEIL_DIV(tiles, GPU_WARPS / plan->warps)
                : plan->few_units * tiles * attention_splits(op, row);
}

/* Makes a list of items, row after row, of which row number gpu_thread() has n, or where there is
 * only one row that has; returns how many there are. All threads together. */
GPU u32 attention_number(const struct gpu_run *run, u32 n)
{
    struct plan_shared *work = plan_shared();
    u32 i = gpu_thread(), lane = gpu_lane(), rows = gpu_near(run->step)->n_rows, total = 0,
        upto = n;
    if (rows == 1)
        return n;
    for (u32 d = 1; d < 32; d *= 2) {
        u32 below = gpu_shuffle(upto, (lane - d) & 31);
        upto += lane >= d ? below : 0;
    }
    gpu_sync(); /* an older list is done with */
    if (lane == 31)
        work->sums[gpu_warp()] = upto;
    gpu_sync();
    for (u32 w = 0; w < GPU_WARPS; w++) {
        upto += w < gpu_warp() ? work->sums[w] : 0;
        total += work->sums[w];
    }
    if (i < rows)
        work->before[i] = upto - n;
    gpu_sync();
    return gpu_uniform(total);
}

/* The list of few, or of many. */
GPU u32 attention_list(const struct op_attention *op, const struct gpu_run *run,
                       const struct attention_plan *plan, bool many)
{
    const struct gpu_step *step = gpu_near(run->step);
    const struct gpu_row *row = gpu_global(step->rows);
    u32 i = step->n_rows == 1 ? 0 : gpu_thread();
    if (many && (!plan->ring || step->n_tokens == step->n_rows))
        return 0;
    return attention_number(run, i < step->n_rows ? attention_items(op, plan, &row[i], many) : 0);
}

/* The row of an item, and its number among the row's. */
GPU u32 attention_find(const struct gpu_run *run, u32 index, u32 *row)
{
    const struct plan_shared *work = plan_shared();
    u32 low = 0,
        high = gpu_near(run->step)->n_rows; /* the last row that begins at or before index */
    if (high == 1) {
        *row = 0;
        return index;
    }
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (work->before[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    *row = low;
    return index - work->before[low];
}

/* Few: the first item of a team's stretch. */
GPU u32 attention_bound(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, u32 team)
{
    u32 index = MIN(plan->each * team + MIN(team, plan->one_more), plan->items), row;
    if (plan->share || index >= plan->items)
        return index;
    u32 rest = attention_find(run, index, &row);
    const struct gpu_row *at = gpu_global(gpu_near(run->step)->rows) + row;
    u32 splits = attention_splits(op, at), in_unit = rest % splits;
    return index - in_unit + (in_unit * 2 > splits ? splits : 0);
}

/* Few, with shared units: whose stretch an item is in. */
GPU u32 attention_team_of(const struct attention_plan *plan, u32 index)
{
    u32 longer = plan->one_more * (plan->each + 1);
    return index < longer ? index / (plan->each + 1)
                          : plan->one_more + (index - longer) / plan->each;
}

GPU void attention_plan_of(const struct op_attention *op, const struct gpu_run *run, bool many,
                           struct attention_plan *plan)
{
    u32 group = op->heads / op->kv_heads;
    plan->group = group;
    plan->chunks = CEIL_DIV(op->head_dim, 16u);
    plan->tokens = ATTENTION_TILE_TOKENS(group);
    plan->parts = CEIL_DIV(group, (u32)ATTENTION_ROWS);
    plan->units = op->kv_heads * plan->parts;
    plan->few_units = plan->units * CEIL_DIV(plan->chunks, (u32)SPLITS_CHUNKS);
    plan->warps = plan->chunks <= 8 ? 1 : plan->chunks <= 16 ? 2 : 4;
    plan->piece_bytes = ROUND_UP(CEIL_DIV(plan->chunks, 2u), 2u) * GPU_WARPS * CHUNK_BYTES;
    u32 space = run->shared_bytes - PLAN_BYTES;
    plan->ring = !many                                           ? 0
                 : MANY_Q_BYTES + 4 * plan->piece_bytes <= space ? 4
                 : MANY_Q_BYTES + 2 * plan->piece_bytes <= space ? 2
                                                                 : 0;
}

/* Would whole units take no longer than shared ones do, joining included? Told by rows of one token
 * and one length; of others it may be wrong. In the time of an item; teams: in all blocks. */
GPU bool attention_is_even(const struct attention_plan *plan, const struct gpu_step *step,
                           u32 teams)
{
    enum { ONE_JOINED = 2, JOINING = 3 }; /* measured on Hopper */
    u32 units = step->n_rows * plan->few_units, splits = CEIL_DIV(plan->items, units);
    u32 shared = plan->items <= teams ? (u32)ONE_JOINED : plan->items / gpu_blocks() + JOINING;
    return CEIL_DIV(units, gpu_blocks()) * splits <= shared;
}

/* Blocks are so many teams each. Where each has a unit at most, one of them is idle, so that no
 * other block is. alone: blocks may be one team of all warps, then and where each has an item at
 * most: it takes less time for one, and two teams less for two. */
GPU void attention_plan_few(const struct op_attention *op, const struct gpu_run *run, u32 teams,
                            bool alone, struct attention_plan *plan)
{
    const struct gpu_step *step = gpu_near(run->step);
    plan->items = attention_list(op, run, plan, false);
    const bool even = attention_is_even(plan, step, teams * gpu_blocks());
    if (even && step->n_rows * plan->few_units <= gpu_blocks())
        teams = 1;
    if (alone && plan->items <= gpu_blocks())
        teams = 1;
    plan->teams = teams * gpu_blocks();
    plan->each = plan->items / plan->teams;
    plan->one_more = plan->items % plan->teams;
    plan->partial_each = step->n_tokens == step->n_rows ? MIN(plan->group, 16u) : 16;
    plan->share = (u64)plan->items * plan->partial_each <= op->partial_rows && !even;
}

#endif
