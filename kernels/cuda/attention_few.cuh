/* Attention for rows of few tokens: every split of every tile and KV head is an item, and the items
 * of all rows stand in one list, split after split of each unit (tile, KV head, part). Each block
 * takes an even stretch of the list, so that also one long sequence occupies all of them.
 *
 * Items are looked up in batches, a thread a page, into shared memory; the loop over them then
 * works with plain numbers. For an item, warp w takes the keys of the split's page w: scores; then,
 * when all warps have told their maxima and weights, chunk w of the output's dimensions (and w + 8)
 * over all pages. Keys and values come through a ring of each warp's own in shared memory, as many
 * ahead as there is room for, in pieces of four fragments: first the item's keys, four chunks each,
 * then its values, four pages each. A lane copies the very bytes that it reads later, so that no
 * barrier is needed for them.
 *
 * A unit whose splits all lie in one block's stretch is joined in registers. Of the others each
 * split's (O, m, l) goes to op->partial, and the last of the unit's blocks joins them in order.
 * With more than 256 dimensions, units have 256 of the output each, and each computes all scores.
 *
 * Shared memory: struct splits_shared, a-fragments of the queries [chunk][32 lanes], the rings.
 */
#ifndef ZIGCUDA_ATTENTION_FEW_CUH
#define ZIGCUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention_plan.cuh"

enum {
    SPLITS_BATCH = GPU_THREADS / SPLIT_PAGES,
    SPLITS_PASSES = 2,   /* over the output's dimensions: 8 chunks each, a warp one */
    PIECE_FRAGMENTS = 4, /* of 512 bytes a warp */
    SPLITS_PIECE_BYTES = PIECE_FRAGMENTS * CHUNK_BYTES,
    SPLITS_SLOTS_MAX = 12,
};

static_assert(SPLITS_PASSES * GPU_WARPS == SPLITS_CHUNKS, "a unit's output");

struct alignas(16) splits_item {
    u32 page[SPLIT_PAGES]; /* page * kv_heads + kv_head */
    struct attention_tile tile;
    u32 pos;          /* of the split */
    u32 first_chunk;  /* of the output */
    u32 index;        /* in the list */
    u32 unit, splits; /* index of the unit's first item; how many it has */
    bool begins;      /* first one of its unit in this block */
};

struct splits_shared {
    struct plan_shared plan;
    struct splits_item items[SPLITS_BATCH];
    struct attention_row rows[2][ATTENTION_ROWS]; /* of units in turn */
    float largest[SPLIT_PAGES][ATTENTION_ROWS];
    u32 last;
    alignas(16) uint4 weights[SPLIT_PAGES][32]; /* a-fragments */
};

static_assert(sizeof(struct splits_shared) <= 9216, "attention_shared_bytes counts on it");

/* A warp's ring, and what is copied into it: the pieces of a batch of items. */
struct splits_ring {
    u8 *base;                       /* at this lane's 16 bytes */
    u32 slots, next, fill;          /* slot to be used, to be filled */
    const u8 *k, *v;                /* at this lane's 16 bytes */
    u32 chunks, head_bytes;         /* of head_dim; of a page and KV head */
    u32 passes;                     /* over the output */
    const struct splits_item *item; /* to be copied next; end: none is left */
    const struct splits_item *end;
    u32 at; /* of the item's fragments: chunks of keys, then pages of values */
};

/* What a split yields, and what a unit has so far. */
struct splits_sum {
    float o[SPLITS_PASSES][2][4];
    float m[2], l[2];
};

/* --- the list ------------------------------------------------------------------------------ */

/* Items [first, first + n) of the list; n <= SPLITS_BATCH. [from, ..) is the block's stretch. */
GPU void splits_look_up(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, struct splits_shared *work, u32 first,
                        u32 n, u32 from)
{
    u32 i = gpu_thread() / SPLIT_PAGES, p = gpu_thread() % SPLIT_PAGES, at;
    if (i >= n)
        return;
    u32 rest = attention_find(run, first + i, &at);
    const struct gpu_row *row = gpu_global(gpu_near(run->step)->rows) + at;
    u32 splits = attention_splits(op, row), unit = rest / splits, split = rest % splits;
    u32 skipped = unit / plan->few_units * plan->tokens, in_tile = unit % plan->few_units;
    struct splits_item *item = &work->items[i];
    struct attention_tile t;
    t.token = row->first + skipped;
    t.n = MIN(plan->tokens, row->n - skipped);
    t.pos = row->pos + skipped;
    t.kv_head = in_tile % plan->units / plan->parts;
    t.part = in_tile % plan->parts;
    u32 pos = (attention_first_split(op, row) + split) * ATTENTION_SPLIT;
    u32 seen_first = attention_seen_from(op, t.pos) / PAGE_KEYS;
    u32 seen_last = (t.pos + t.n - 1) / PAGE_KEYS;
    u32 page = MIN(MAX(pos / PAGE_KEYS + p, seen_first), seen_last);
    page = gpu_global(run->state.pages)[(size_t)row->slot * run->state.pages_stride + page];
    item->page[p] = page * op->kv_heads + t.kv_head;
    if (p)
        return;
    item->tile = t;
    item->pos = pos;
    item->first_chunk = in_tile / plan->units * SPLITS_CHUNKS;
    item->index = first + i;
    item->unit = first + i - split;
    item->splits = splits;
    item->begins = split == 0 || first + i == from;
}

/* --- one item ------------------------------------------------------------------------------ */

/* This warp's chunk of the output in a pass; chunks or more: none. */
GPU u32 splits_chunk(const struct splits_item *item, u32 pass)
{
    return item->first_chunk + pass * GPU_WARPS + gpu_warp();
}

/* Starts the copies of a piece. */
GPU void splits_copy(struct splits_ring *r)
{
    if (r->item < r->end) {
        const struct splits_item *item = r->item;
        u8 *to = r->base + r->fill * SPLITS_PIECE_BYTES;
        u32 value = r->at - ROUND_UP(r->chunks, (u32)PIECE_FRAGMENTS); /* wraps for keys */
        if ((i32)value < 0) {
            const u8 *from = r->k + r->at * CHUNK_BYTES;
            from += (size_t)item->page[gpu_warp()] * r->head_bytes;
#pragma unroll
            for (u32 i = 0; i < PIECE_FRAGMENTS; i++)
                if (r->at + i < r->chunks)
                    gpu_copy16(to + i * CHUNK_BYTES, from + i * CHUNK_BYTES);
        } else {
            u32 c = splits_chunk(item, value / SPLIT_PAGES), head_bytes = r->head_bytes;
            uint4 page = gpu_load<uint4>(item->page + value % SPLIT_PAGES);
            const u8 *from = r->v + c * CHUNK_BYTES;
            if (c < r->chunks) {
                gpu_copy16(to, from + (size_t)page.x * head_bytes);
                gpu_copy16(to + CHUNK_BYTES, from + (size_t)page.y * head_bytes);
                gpu_copy16(to + 2 * CHUNK_BYTES, from + (size_t)page.z * head_bytes);
                gpu_copy16(to + 3 * CHUNK_BYTES, from + (size_t)page.w * head_bytes);
            }
        }
        r->at += PIECE_FRAGMENTS;
        if (value + PIECE_FRAGMENTS == r->passes * SPLIT_PAGES) {
            r->item++;
            r->at = 0;
        }
    }
    gpu_copy_commit(); /* also an empty one: they are counted */
    r->fill = r->fill + 1 == r->slots ? 0 : r->fill + 1;
}

/* At most n groups of copies of this thread stay open; possibly fewer. */
GPU void splits_wait(u32 n)
{
    if (n >= 10)
        gpu_copy_wait<10>();
    else if (n >= 4)
        gpu_copy_wait<4>();
    else if (n >= 2)
        gpu_copy_wait<2>();
    else
        gpu_copy_wait<0>();
}

/* The next piece, at this lane's 16 bytes; the one before is done with. */
GPU u8 *splits_next_piece(struct splits_ring *r)
{
    u8 *piece = r->base + r->next * SPLITS_PIECE_BYTES;
    if (r->slots == 1) { /* no room for anything ahead */
        splits_copy(r);
        gpu_copy_wait<0>();
        return piece;
    }
    splits_wait(r->slots - 2);
    splits_copy(r);
    r->next = r->next + 1 == r->slots ? 0 : r->next + 1;
    return piece;
}

GPU void splits_begin_batch(struct splits_ring *r, const struct splits_item *items, u32 n)
{
    r->item = items;
    r->end = items + n;
    r->at = r->next = r->fill = 0;
#pragma unroll 1
    for (u32 i = 0; i + 1 < r->slots; i++)
        splits_copy(r);
}

/* Rows and queries of a new unit. Ends with a barrier. */
GPU void splits_begin(const struct op_attention *op, u32 chunks, const struct splits_item *item,
                      uint4 *queries, struct attention_row rows[ATTENTION_ROWS])
{
    u32 lane = gpu_lane(), head_dim = op->head_dim;
    struct attention_row row = attention_row_of(op, &item->tile, lane % ATTENTION_ROWS);
    u32 q[2] = {gpu_shuffle(row.q, lane / 4), gpu_shuffle(row.q, lane / 4 + 8)};
    if (gpu_thread() < ATTENTION_ROWS)
        rows[lane] = row;
#pragma unroll 1
    for (u32 c = gpu_warp(); c < chunks; c += GPU_WARPS)
        queries[c * 32 + lane] = attention_load_q(gpu_global(op->qkv), q, c, head_dim);
    gpu_sync();
}

/* Scores of this warp's page. */
GPU void splits_scores(struct splits_ring *r, const uint4 *queries, float x[2][4])
{
    memset(x, 0, sizeof(float[2][4]));
    queries += gpu_lane();
#pragma unroll 1
    for (u32 first = 0; first < r->chunks; first += PIECE_FRAGMENTS) {
        const u8 *piece = splits_next_piece(r);
#pragma unroll
        for (u32 i = 0; i < PIECE_FRAGMENTS; i++) {
            if (first + i >= r->chunks)
                break;
            uint4 q = queries[(first + i) * 32], k = gpu_load<uint4>(piece + i * CHUNK_BYTES);
            const u32 a[4] = {q.x, q.y, q.z, q.w}, b[4] = {k.x, k.y, k.z, k.w};
            attention_scores(x, a, b);
        }
    }
}

/* Shares maxima and weights of the split among the warps; all of them stand in work->weights
 * afterwards. */
GPU void splits_weigh(const struct splits_item *item, const struct attention_row *rows, bool capped,
                      struct splits_shared *work, float x[2][4], float m[2])
{
    u32 g = gpu_lane() / 4, from[2], to[2];
    float c[2];
    for (u32 r = 0; r < 2; r++) {
        from[r] = rows[g + r * 8].from;
        to[r] = rows[g + r * 8].to;
        c[r] = rows[g + r * 8].c;
    }
    if (capped) {
        float before[2] = {rows[g].before, rows[g + 8].before};
        attention_cap(x, before);
    }
    attention_hide(x, item->pos + gpu_warp() * PAGE_KEYS, from, to);
    for (u32 r = 0; r < 2; r++) {
        const float *a = &x[0][r * 2], *b = &x[1][r * 2];
        m[r] = attention_largest(fmaxf(fmaxf(a[0], a[1]), fmaxf(b[0], b[1])));
        if (gpu_lane() % 4 == 0)
            work->largest[gpu_warp()][g + r * 8] = m[r];
    }
    gpu_sync();
    for (u32 r = 0; r < 2; r++) {
        for (u32 p = 0; p < SPLIT_PAGES; p++)
            m[r] = fmaxf(m[r], work->largest[p][g + r * 8]);
        m[r] = gpu_mul(m[r], c[r]);
    }
    u32 w[4];
    attention_weigh(c, m, x, w);
    work->weights[gpu_warp()][gpu_lane()] = (uint4){w[0], w[1], w[2], w[3]};
    gpu_sync();
}

/* Makes values 0, of the pages from `pos` on, that belong to keys which no row sees. */
GPU void splits_clean(u8 *piece, u32 pos, u32 from, u32 to)
{
#pragma unroll 1
    for (u32 i = 0; i < PIECE_FRAGMENTS; i++) {
        u32 mask[2];
        attention_key_masks(pos + i * PAGE_KEYS, from, to, mask);
        uint4 v = gpu_load<uint4>(piece + i * CHUNK_BYTES);
        v = (uint4){v.x & mask[0], v.y & mask[1], v.z & mask[0], v.w & mask[1]};
        gpu_store<uint4>(piece + i * CHUNK_BYTES, v);
    }
}

/* o and l of the split for this warp's chunks. */
GPU void splits_values(struct splits_ring *r, const struct splits_item *item, u32 seen_from,
                       const struct splits_shared *work, struct splits_sum *split)
{
    u32 seen_to = item->tile.pos + item->tile.n, pos = item->pos;
    bool edge = pos < seen_from || pos + ATTENTION_SPLIT > seen_to;
    float sums[4] = {0, 0, 0, 0};
    const u32 ones[2] = {WEIGHT_ONES, WEIGHT_ONES};
    memset(split->o, 0, sizeof split->o);
#pragma unroll
    for (u32 pass = 0; pass < SPLITS_PASSES; pass++) {
        if (pass >= r->passes)
            break;
#pragma unroll 1
        for (u32 first = 0; first < SPLIT_PAGES; first += PIECE_FRAGMENTS) {
            u8 *piece = splits_next_piece(r);
            if (edge)
                splits_clean(piece, pos + first * PAGE_KEYS, seen_from, seen_to);
#pragma unroll
            for (u32 i = 0; i < PIECE_FRAGMENTS; i++) {
                uint4 w = work->weights[first + i][gpu_lane()];
                uint4 v = gpu_load<uint4>(piece + i * CHUNK_BYTES);
                const u32 a[4] = {w.x, w.y, w.z, w.w}, b[4] = {v.x, v.y, v.z, v.w};
                if (pass == 0)
                    gpu_mma(sums, a, ones);
                gpu_mma(split->o[pass][0], a, b);
                gpu_mma(split->o[pass][1], a, b + 2);
            }
        }
    }
    split->l[0] = sums[0];
    split->l[1] = sums[2];
}

/* --- joining ------------------------------------------------------------------------------- */

GPU void splits_clear(struct splits_sum *s)
{
    memset(s->o, 0, sizeof s->o);
    for (u32 r = 0; r < 2; r++) {
        s->m[r] = -INFINITY;
        s->l[r] = 0;
    }
}

GPU void splits_join(struct splits_sum *s, const struct splits_sum *split)
{
    struct attention_join j = attention_join(s->m, split->m);
    for (u32 r = 0; r < 2; r++)
        s->l[r] = attention_add(&j, r, s->l[r], split->l[r]);
#pragma unroll
    for (u32 i = 0; i < SPLITS_PASSES; i++)
        attention_add_chunk(&j, s->o[i], split->o[i]);
}

/* The unit's output from registers. */
GPU void splits_write(const struct op_attention *op, u32 chunks, const struct splits_item *item,
                      const struct attention_row *rows, const struct splits_sum *s)
{
    float *out = gpu_global(op->out);
    u32 *row_max = gpu_global(op->row_max), head_dim = op->head_dim, g = gpu_lane() / 4;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const struct attention_row *row = &rows[g + r * 8];
        float largest = 0, inverse = gpu_reciprocal(s->l[r]);
        bool real = row->to > 0;
#pragma unroll
        for (u32 i = 0; i < SPLITS_PASSES; i++)
            if (real && splits_chunk(item, i) < chunks)
                largest =
                    fmaxf(largest,
                          attention_write_chunk(out + row->out, head_dim, splits_chunk(item, i),
                                                inverse, &s->o[i][0][r * 2], &s->o[i][1][r * 2]));
        u32 token = item->tile.token + (real ? row->to - 1 - item->tile.pos : 0);
        attention_write_max(row_max, token, real, item->tile.n == 1, largest);
    }
}

/* --- units that blocks share --------------------------------------------------------------- */

/* Where query row `row` of an item lies in op->partial: O, then m, l. */
GPU float *splits_partial(float *partial, u32 each, u32 stride, u32 index, u32 row)
{
    return partial + ((size_t)index * each + row) * stride;
}

GPU void splits_write_partial(const struct op_attention *op, const struct attention_plan *plan,
                              const struct splits_item *item, const struct attention_row *rows,
                              const struct splits_sum *split)
{
    u32 dim = plan->chunks * 16, g = gpu_lane() / 4, t = gpu_lane() % 4;
    float *partial = gpu_global(op->partial);
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        float *to = splits_partial(partial, plan->partial_each, dim + 4, item->index, g + r * 8);
        if (rows[g + r * 8].to == 0)
            continue;
#pragma unroll
        for (u32 i = 0; i < SPLITS_PASSES; i++) {
            const float(*o)[4] = split->o[i];
            if (splits_chunk(item, i) >= plan->chunks)
                continue;
            float *at = to + splits_chunk(item, i) * 16 + t * 2;
            gpu_store<float2>(at, (float2){o[0][r * 2], o[0][r * 2 + 1]});
            gpu_store<float2>(at + 8, (float2){o[1][r * 2], o[1][r * 2 + 1]});
        }
        if (gpu_warp() == 0 && t == 0)
            gpu_store<float2>(to + dim, (float2){split->m[r], split->l[r]});
    }
}

/* Tells that this block's splits of the item's unit are in op->partial; true in the last block to
 * do so. The unit's counter is that of the first of its blocks. */
GPU bool splits_arrive(const struct op_attention *op, const struct attention_plan *plan,
                       const struct splits_item *item, struct splits_shared *work)
{
    gpu_sync();
    if (gpu_thread() == 0) {
        u32 block = attention_block_of(plan, item->unit);
        u32 blocks = attention_block_of(plan, item->unit + item->splits - 1) - block + 1;
        gpu_fence();
        bool last = gpu_atomic_add(&op->arrived[block], 1) == blocks - 1;
        gpu_fence();
        if (last)
            op->arrived[block] = 0;
        work->last = last;
    }
    gpu_sync();
    return work->last; /* next written after another barrier */
}

/* Four dimensions of a query row over all splits of the unit; returns what they are divided by. */
GPU float splits_join_partials(const float *from, size_t stride, u32 dim, u32 d, u32 splits,
                               float o[4])
{
    enum { AHEAD = 8 }; /* splits that are read at once */
    float m[2] = {-INFINITY, -INFINITY}, l = 0;
    for (u32 i = 0; i < 4; i++)
        o[i] = 0;
#pragma unroll 1
    for (u32 first = 0; first < splits; first += AHEAD) {
        float4 part[AHEAD];
        float2 ml[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            const float *at = from + MIN(first + i, splits - 1) * stride;
            part[i] = gpu_load<float4>(at + d);
            ml[i] = gpu_load<float2>(at + dim);
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            /* one that is not there is like one in which nothing was seen */
            float m_split[2] = {first + i < splits ? ml[i].x : -INFINITY, -INFINITY};
            bool there = first + i < splits;
            struct attention_join j = attention_join(m, m_split);
            l = attention_add(&j, 0, l, there ? ml[i].y : 0);
            o[0] = attention_add(&j, 0, o[0], there ? part[i].x : 0);
            o[1] = attention_add(&j, 0, o[1], there ? part[i].y : 0);
            o[2] = attention_add(&j, 0, o[2], there ? part[i].z : 0);
            o[3] = attention_add(&j, 0, o[3], there ? part[i].w : 0);
        }
    }
    return l;
}

/* The unit's output from op->partial: a thread takes four dimensions of a row at a time. */
GPU void splits_merge(const struct op_attention *op, const struct attention_plan *plan,
                      const struct splits_item *item, const struct attention_row *rows)
{
    u32 dim = plan->chunks * 16, head_dim = op->head_dim, each = plan->partial_each;
    u32 *row_max = gpu_global(op->row_max), first = item->first_chunk * 16;
    u32 quads = MIN(dim - first, SPLITS_CHUNKS * 16u) / 4; /* a multiple of 4 */
    const float *partial = gpu_global(op->partial);
    float *out = gpu_global(op->out);
#pragma unroll 1
    for (u32 i = gpu_thread(); i < ROUND_UP(each * quads, 32u); i += GPU_THREADS) {
        u32 r = i / quads, d = first + i % quads * 4;
        const struct attention_row *row = &rows[r < each ? r : 0];
        bool real = r < each && row->to > 0;
        float o[4], largest = 0;
        const float *from =
            splits_partial((float *)partial, each, dim + 4, item->unit, real ? r : 0);
        float l = splits_join_partials(from, (size_t)each * (dim + 4), dim, d, item->splits, o);
        float inverse = gpu_reciprocal(l);
        for (u32 e = 0; e < 4; e += 2) {
            float2 v = {gpu_mul(o[e], inverse), gpu_mul(o[e + 1], inverse)};
            if (!real || d + e >= head_dim)
                continue;
            gpu_store<float2>(out + row->out + d + e, v);
            largest = fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y)));
        }
        u32 token = item->tile.token + (real ? row->to - 1 - item->tile.pos : 0);
        attention_write_max(row_max, token, real, item->tile.n == 1, largest);
    }
}

/* --- a block's stretch --------------------------------------------------------------------- */

/* Puts a split where it belongs; [from, to) is the block's stretch. */
GPU void splits_finish(const struct op_attention *op, const struct attention_plan *plan,
                       const struct splits_item *item, const struct attention_row *rows, u32 from,
                       u32 to, struct splits_shared *work, struct splits_sum *unit,
                       const struct splits_sum *split)
{
    bool ends = item->index + 1 == item->unit + item->splits;
    if (from <= item->unit && item->unit + item->splits <= to) {
        splits_join(unit, split);
        if (ends)
            splits_write(op, plan->chunks, item, rows, unit);
        return;
    }
    splits_write_partial(op, plan, item, rows, split);
    if ((ends || item->index + 1 == to) && splits_arrive(op, plan, item, work))
        splits_merge(op, plan, item, rows);
}

GPU void splits_run(const struct op_attention *op, const struct gpu_run *run,
                    const struct attention_plan *plan)
{
    struct splits_shared *work = (struct splits_shared *)gpu_shared();
    uint4 *queries = (uint4 *)(work + 1);
    u32 from = gpu_uniform(attention_bound(op, run, plan, gpu_block())), turn = 0, seen_from = 0;
    u32 to = gpu_uniform(attention_bound(op, run, plan, gpu_block() + 1)), chunks = plan->chunks;
    u32 taken = (u32)sizeof *work + chunks * CHUNK_BYTES;
    bool capped = op->softcap > 0;
    struct splits_ring ring;
    struct splits_sum unit, split;
    ring.slots = (run->shared_bytes - taken) / (GPU_WARPS * SPLITS_PIECE_BYTES);
    ring.slots = MIN(ring.slots, (u32)SPLITS_SLOTS_MAX);
    ring.base = (u8 *)gpu_shared() + taken + gpu_warp() * ring.slots * SPLITS_PIECE_BYTES;
    ring.base += gpu_lane() * 16;
    ring.k = gpu_global((const u8 *)op->k) + gpu_lane() * 16;
    ring.v = gpu_global((const u8 *)op->v) + gpu_lane() * 16;
    ring.chunks = chunks;
    ring.head_bytes = chunks * CHUNK_BYTES;
    ring.passes = MIN(CEIL_DIV(chunks, (u32)GPU_WARPS), (u32)SPLITS_PASSES);
#pragma unroll 1
    for (u32 first = from; first < to; first += SPLITS_BATCH) {
        u32 n = MIN(to - first, (u32)SPLITS_BATCH);
        gpu_sync(); /* the last batch is done with */
        splits_look_up(op, run, plan, work, first, n, from);
        gpu_sync();
        splits_begin_batch(&ring, work->items, n);
#pragma unroll 1
        for (u32 i = 0; i < n; i++) {
            const struct splits_item *item = &work->items[i];
            float x[2][4];
            if (item->begins) {
                splits_begin(op, chunks, item, queries, work->rows[++turn % 2]);
                splits_clear(&unit);
                seen_from = attention_seen_from(op, item->tile.pos);
            }
            const struct attention_row *rows = work->rows[turn % 2];
            splits_scores(&ring, queries, x);
            splits_weigh(item, rows, capped, work, x, split.m);
            splits_values(&ring, item, seen_from, work, &split);
            splits_finish(op, plan, item, rows, from, to, work, &unit, &split);
        }
    }
}

#endif
