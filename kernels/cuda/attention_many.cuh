/* Attention for rows of many tokens. A unit is a block of consecutive tiles of one row of the step
 * with one KV head; a warp takes one tile (or a part of its output's dimensions, where heads have
 * more than 128) and walks the splits that the tile sees, in order. Keys and values are in shared
 * memory for all warps, copied ahead in a ring of pieces: of a split two pieces of keys, 4 pages
 * each, then two of values, half of the dimensions each.
 *
 * Shared memory: struct plan_shared; queries as a-fragments, [tile][chunk][32 lanes] of 16 bytes;
 * the ring.
 */
#ifndef ZIGCUDA_ATTENTION_MANY_CUH
#define ZIGCUDA_ATTENTION_MANY_CUH

#include "kernels/cuda/attention_bytes.cuh"
#include "kernels/cuda/attention_plan.cuh"

enum {
    SPLIT_PIECES = 4,
    PIECE_PAGES = SPLIT_PAGES / 2, /* of a piece of keys */
    WARP_CHUNKS = 8,               /* of the output, at most */
};

/* The ring of a unit, and what is copied into it. All threads have the same, but for `page` and
 * the places of a lane's 16 bytes. */
struct many_ring {
    u8 *base;         /* at this lane's 16 bytes */
    const u8 *k, *v;  /* at this lane's 16 bytes; of pages of bytes, at 8 */
    const u32 *pages; /* page table of the row */
    u32 kv_head, kv_heads, head_bytes;
    bool int8;
    u32 chunks, each; /* of head_dim; of a piece of values */
    u32 slots, piece_bytes;
    u32 pos;           /* of the unit's first token */
    u32 from, to;      /* positions that some token of the unit sees */
    u32 piece, pieces; /* next one to be used; of how many */
    u32 issued, page;  /* next one to be copied; this warp's page of it */
};

/* What a warp has of its tile; pairs are for the rows g and g + 8. */
struct many_tile {
    const u8 *q;            /* at this lane's 16 bytes */
    u32 from, to;           /* positions that some row sees; to = 0: no rows */
    u32 edge_from, edge_to; /* positions that all rows see */
    u32 first_chunk;
    bool capped;
    u32 window, row_to[2]; /* a row sees `window` positions at most, in front of row_to; 0: none */
    float before[2], c[2];
    float m[2], l[2], o[WARP_CHUNKS][2][4];
};

/* --- copies -------------------------------------------------------------------------------- */

/* Position of the page that this warp copies for a piece: keys: two warps a page. */
GPU u32 many_copied_pos(const struct many_ring *r, u32 piece)
{
    u32 split = r->from / ATTENTION_SPLIT + piece / SPLIT_PIECES, kind = piece % SPLIT_PIECES;
    u32 page = kind < 2 ? kind * PIECE_PAGES + gpu_warp() / 2 : gpu_warp();
    return split * ATTENTION_SPLIT + page * PAGE_KEYS;
}

/* The page table entry for the next copy is read one copy ahead: that of the nearest page which
 * somebody sees. */
GPU void many_load_page(struct many_ring *r)
{
    u32 page = many_copied_pos(r, MIN(r->issued, r->pieces - 1)) / PAGE_KEYS;
    r->page = r->pages[MIN(MAX(page, r->from / PAGE_KEYS), (r->to - 1) / PAGE_KEYS)];
}

/* What this warp copies of a piece: of a page's chunks from `first` on those c = from, from + step,
 * .. < end, to slot + c * CHUNK_BYTES. (A second piece of values may be empty.) */
struct many_haul {
    u8 *slot;
    u32 first, from, step;
    i32 end;
    bool keys;
};

GPU struct many_haul many_haul(const struct many_ring *r, u32 piece)
{
    struct many_haul p;
    const u32 kind = piece % SPLIT_PIECES, warp = gpu_warp();
    const bool keys = kind < 2;
    p.keys = keys;
    p.slot = r->base + (piece & (r->slots - 1)) * r->piece_bytes;
    p.slot += keys ? warp / 2 * r->chunks * CHUNK_BYTES : warp * r->each * CHUNK_BYTES;
    p.first = keys ? 0 : (kind - 2) * r->each;
    p.from = keys ? warp % 2 : 0;
    p.step = keys ? 2 : 1;
    p.end = (i32)(keys ? r->chunks : MIN(p.first + r->each, r->chunks) - p.first);
    return p;
}

/* Bytes, and beside each chunk's their scales. page: at the lane's bytes. */
GPU void many_copy_bytes(const struct many_ring *r, const struct many_haul *p, const u8 *page)
{
    const u8 *scales = kv_scales(page - gpu_lane() * 8, r->chunks, p->keys);
#pragma unroll 1
    for (u32 c = p->from; (i32)c < p->end; c += p->step) {
        gpu_copy8(p->slot + c * CHUNK_BYTES, page + (p->first + c) * BYTES_CHUNK);
        if (p->keys)
            gpu_copy4(p->slot + c * CHUNK_BYTES + 8, scales);
        else
            gpu_copy8(p->slot + c * CHUNK_BYTES + 8, scales);
    }
}

/* Bytes that this thread has copied to halves. */
GPU void many_widen(const struct many_ring *r, u32 piece)
{
    const struct many_haul p = many_haul(r, piece);
#pragma unroll 2
    for (u32 c = p.from; (i32)c < p.end; c += p.step) {
        const uint4 f = gpu_load<uint4>(p.slot + c * CHUNK_BYTES);
        const uint2 bytes = {f.x, f.y}, scales = {f.z, f.w};
        gpu_store<uint4>(p.slot + c * CHUNK_BYTES,
                         p.keys ? kv_keys(bytes, scales.x) : kv_values(bytes, scales));
    }
}

GPU void many_copy(struct many_ring *r)
{
    if (r->issued < r->pieces) {
        const struct many_haul p = many_haul(r, r->issued);
        const u8 *page =
            (p.keys ? r->k : r->v) + (size_t)(r->page * r->kv_heads + r->kv_head) * r->head_bytes;
        const u8 *from = page + p.first * CHUNK_BYTES;
        if (r->int8)
            many_copy_bytes(r, &p, page);
        else
#pragma unroll 4
            for (u32 c = p.from; (i32)c < p.end; c += p.step)
                gpu_copy16(p.slot + c * CHUNK_BYTES, from + c * CHUNK_BYTES);
        r->issued++;
        many_load_page(r);
    }
    gpu_copy_commit(); /* also an empty one: they are counted */
}

/* Makes values 0 that belong to keys which nobody sees. */
GPU void many_clean(const struct many_ring *r, u8 *piece)
{
    u32 mask[2];
    attention_key_masks(many_copied_pos(r, r->piece), r->from, r->to, mask);
#pragma unroll 1
    for (u32 c = 0; c < r->each; c++) {
        u8 *at = piece + (gpu_warp() * r->each + c) * CHUNK_BYTES;
        uint4 v = gpu_load<uint4>(at);
        gpu_store<uint4>(at, (uint4){v.x & mask[0], v.y & mask[1], v.z & mask[0], v.w & mask[1]});
    }
    gpu_sync();
}

/* The next piece, for all threads, at the lane's 16 bytes; what they did with the one before is
 * done. */
GPU const u8 *many_next_piece(struct many_ring *r, bool values)
{
    u8 *piece = r->base + (r->piece & (r->slots - 1)) * r->piece_bytes;
    u32 pos = (r->from / ATTENTION_SPLIT + r->piece / SPLIT_PIECES) * ATTENTION_SPLIT;
    if (r->slots == 4)
        gpu_copy_wait<2>();
    else
        gpu_copy_wait<0>();
    if (r->int8)
        many_widen(r, r->piece);
    gpu_sync();
    many_copy(r);
    if (values && (pos < r->from || pos + ATTENTION_SPLIT > r->to))
        many_clean(r, piece);
    r->piece++;
    return piece;
}

/* --- one split ----------------------------------------------------------------------------- */

/* x += the scores of four pages. */
GPU void many_scores(const u8 *q, const u8 *piece, u32 chunks, float x[PIECE_PAGES][2][4])
{
#pragma unroll 4
    for (u32 c = 0; c < chunks; c++) {
        uint4 f = gpu_load<uint4>(q + c * CHUNK_BYTES);
        const u32 a[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (u32 p = 0; p < PIECE_PAGES; p++) {
            uint4 v = gpu_load<uint4>(piece + (p * chunks + c) * CHUNK_BYTES);
            const u32 k[4] = {v.x, v.y, v.z, v.w};
            attention_scores(x[p], a, k);
        }
    }
}

/* Of the split at `pos` the scores, capped and, where some row does not see all of it (`edge`),
 * hidden, and each row's largest, scaled. before: struct attention_row's, of row g; of row g + 8 it
 * is the next one, or where `grouped`, which says that keys are in the order of
 * attention_group.cuh, the eighth. */
template <bool grouped>
GPU void many_largest(const struct many_tile *t, const float *before, u32 pos, bool edge,
                      float x[SPLIT_PAGES][2][4], float m[2])
{
    m[0] = m[1] = -INFINITY;
    if (t->capped) {
        const float both[2] = {before[0], before[grouped ? 8 : 1]};
#pragma unroll
        for (u32 p = 0; p < SPLIT_PAGES; p++)
            attention_cap(x[p], both);
    }
    const u32 from[2] = {t->row_to[0] - MIN(t->window, t->row_to[0]),
                         t->row_to[1] - MIN(t->window, t->row_to[1])};
    if (edge)
#pragma unroll
        for (u32 p = 0; p < SPLIT_PAGES; p++)
            attention_hide<grouped>(x[p], pos + p * PAGE_KEYS, from, t->row_to);
#pragma unroll
    for (u32 p = 0; p < SPLIT_PAGES; p++) {
        for (u32 r = 0; r < 2; r++) {
            const float *a = &x[p][0][r * 2], *b = &x[p][1][r * 2];
            m[r] = fmaxf(m[r], fmaxf(fmaxf(a[0], a[1]), fmaxf(b[0], b[1])));
        }
    }
    for (u32 r = 0; r < 2; r++)
        m[r] = gpu_mul(attention_largest(m[r]), t->c[r]);
}

/* Such scores to weights; returns how the split joins the total. */
GPU struct attention_join many_weigh(struct many_tile *t, const float x[SPLIT_PAGES][2][4],
                                     const float m[2], u32 w[SPLIT_PAGES][4])
{
    float l[4] = {0, 0, 0, 0};
    const u32 ones[2] = {WEIGHT_ONES, WEIGHT_ONES};
#pragma unroll
    for (u32 p = 0; p < SPLIT_PAGES; p++) {
        attention_weigh(t->c, m, x[p], w[p]);
        gpu_mma(l, w[p], ones);
    }
    struct attention_join j = attention_join(t->m, m);
    for (u32 r = 0; r < 2; r++)
        t->l[r] = attention_add(&j, r, t->l[r], l[r * 2]);
    return j;
}

/* Joins this warp's chunks of a piece of values, which begins at chunk `first`; two at a time. */
GPU void many_values(struct many_tile *t, const u8 *piece, u32 first, u32 each,
                     const struct attention_join *j, const u32 w[SPLIT_PAGES][4])
{
#pragma unroll
    for (u32 i = 0; i < WARP_CHUNKS; i += 2) {
        u32 c = t->first_chunk + i - first; /* within the piece; wraps below it */
        if (c >= each)
            continue;
        const u8 *at = piece + c * CHUNK_BYTES;
        float o[2][2][4] = {};
#pragma unroll
        for (u32 p = 0; p < SPLIT_PAGES; p++)
#pragma unroll
            for (u32 e = 0; e < 2; e++) {
                uint4 v = gpu_load<uint4>(at + (p * each + e) * CHUNK_BYTES);
                const u32 b[4] = {v.x, v.y, v.z, v.w};
                gpu_mma(o[e][0], w[p], b);
                gpu_mma(o[e][1], w[p], b + 2);
            }
        attention_add_chunk(j, t->o[i], o[0]);
        attention_add_chunk(j, t->o[i + 1], o[1]);
    }
}

GPU void many_split(struct many_ring *r, struct many_tile *t)
{
    u32 pos = (r->from / ATTENTION_SPLIT + r->piece / SPLIT_PIECES) * ATTENTION_SPLIT;
    bool seen = pos < t->to && pos + ATTENTION_SPLIT > t->from;
    float x[SPLIT_PAGES][2][4] = {};
    u32 w[SPLIT_PAGES][4];
    struct attention_join j;
#pragma unroll
    for (u32 i = 0; i < SPLIT_PAGES; i += PIECE_PAGES) {
        const u8 *piece = many_next_piece(r, false);
        if (seen)
            many_scores(t->q, piece, r->chunks, x + i);
    }
    if (seen) {
        bool edge = pos < t->edge_from || pos + ATTENTION_SPLIT > t->edge_to;
        float m[2];
        many_largest<false>(t, t->before, pos, edge, x, m);
        j = many_weigh(t, x, m, w);
    }
#pragma unroll 1
    for (u32 i = 0; i < 2; i++) {
        const u8 *piece = many_next_piece(r, true);
        if (seen)
            many_values(t, piece, i * r->each, r->each, &j, w);
    }
}

/* --- a unit -------------------------------------------------------------------------------- */

/* Unit `index` of a row: later tokens first, as they take longer. The ring's part; leaves the
 * warp's tile in *tile. */
GPU void many_enter(const struct op_attention *op, const struct gpu_run *run,
                    const struct attention_plan *plan, const struct gpu_row *row, u32 index,
                    struct many_ring *r, struct attention_tile *tile)
{
    u32 tokens = GPU_WARPS / plan->warps * plan->tokens, blocks = CEIL_DIV(row->n, tokens);
    u32 first = (blocks - 1 - index / plan->units) * tokens, unit = index % plan->units;
    u32 n = MIN(row->n - first, tokens), mine = gpu_warp() / plan->warps * plan->tokens;
    u32 lane_at = gpu_lane() * (op->int8 ? 8 : 16);
    r->base = gpu_shared() + PLAN_BYTES + MANY_Q_BYTES + gpu_lane() * 16;
    r->int8 = op->int8;
    r->k = gpu_global((const u8 *)op->k) + lane_at;
    r->v = gpu_global((const u8 *)op->v) + lane_at;
    r->pages = gpu_global(run->state.pages) + (size_t)row->slot * run->state.pages_stride;
    r->kv_head = unit / plan->parts;
    r->kv_heads = op->kv_heads;
    r->head_bytes = PAGE_HEAD_BYTES(op->head_dim, op->int8);
    r->chunks = plan->chunks;
    r->each = plan->piece_bytes / (SPLIT_PAGES * CHUNK_BYTES);
    r->slots = plan->ring;
    r->piece_bytes = plan->piece_bytes;
    r->pos = row->pos + first;
    r->from = attention_seen_from(op, r->pos);
    r->to = r->pos + n;
    r->piece = r->issued = 0;
    r->pieces = (CEIL_DIV(r->to, (u32)ATTENTION_SPLIT) - r->from / ATTENTION_SPLIT) * SPLIT_PIECES;
    mine = MIN(mine, n); /* beyond: a tile without rows */
    tile->n = MIN(n - mine, plan->tokens);
    mine = tile->n ? mine : 0;
    tile->token = row->first + first + mine;
    tile->pos = row->pos + first + mine;
    tile->kv_head = r->kv_head;
    tile->part = unit % plan->parts;
}

/* Sets up the warp's tile; q and out: where the lane's rows begin in op->qkv and op->out. */
GPU void many_begin(const struct op_attention *op, const struct attention_plan *plan,
                    const struct attention_tile *tile, struct many_tile *t, u32 q[2], u32 out[2])
{
    struct attention_row row = attention_row_of(op, tile, gpu_lane() % ATTENTION_ROWS);
    for (u32 r = 0; r < 2; r++) {
        u32 from = gpu_lane() / 4 + r * 8;
        q[r] = gpu_shuffle(row.q, from);
        out[r] = gpu_shuffle(row.out, from);
        t->row_to[r] = gpu_shuffle(row.to, from);
        t->before[r] = gpu_shuffle(row.before, from);
        t->c[r] = gpu_shuffle(row.c, from);
        t->m[r] = -INFINITY;
        t->l[r] = 0;
    }
    t->from = attention_seen_from(op, tile->pos);
    t->to = tile->n ? tile->pos + tile->n : 0;
    t->edge_from = attention_seen_from(op, tile->pos + tile->n - 1);
    t->edge_to = tile->pos + 1;
    t->first_chunk = gpu_warp() % plan->warps * WARP_CHUNKS;
    t->capped = op->softcap > 0;
    t->window = op->window ? op->window : ~0u;
    memset(t->o, 0, sizeof t->o);
}

/* The tile's queries to shared memory, to be read after a barrier. */
GPU void many_queries(const struct op_attention *op, const struct attention_plan *plan,
                      const u32 q[2], struct many_tile *t)
{
    u8 *to = gpu_shared() + PLAN_BYTES + gpu_lane() * 16 +
             gpu_warp() / plan->warps * plan->chunks * CHUNK_BYTES;
#pragma unroll 2
    for (u32 c = gpu_warp() % plan->warps; c < plan->chunks; c += plan->warps)
        gpu_store<uint4>(to + c * CHUNK_BYTES,
                         attention_load_q(gpu_global(op->qkv), q, c, op->head_dim));
    t->q = to;
}

GPU void many_write(const struct op_attention *op, u32 chunks, const struct many_tile *t,
                    const u32 at[2])
{
    float *out = gpu_global(op->out);
    u32 head_dim = op->head_dim;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        float inverse = attention_inverse(op, t->before[r], t->m[r], t->l[r]);
        bool real = t->row_to[r] > 0;
#pragma unroll
        for (u32 i = 0; i < WARP_CHUNKS; i++)
            if (real && t->first_chunk + i < chunks)
                attention_write_chunk(out + at[r], head_dim, t->first_chunk + i, inverse,
                                      &t->o[i][0][r * 2], &t->o[i][1][r * 2]);
    }
}

/* unit(ring, tile): for each of this block's units of a list of n. */
template <class task>
GPU void many_units(const struct op_attention *op, const struct gpu_run *run,
                    const struct attention_plan *plan, u32 n, task unit)
{
    u32 blocks = gpu_blocks(), b = gpu_block();
    const struct gpu_row *rows = gpu_global(gpu_near(run->step)->rows);
#pragma unroll 1
    for (u32 turn = 0; turn * blocks < n; turn++) { /* there and back, for even loads */
        u32 item = turn * blocks + (turn % 2 ? blocks - 1 - b : b), row;
        struct many_ring ring;
        struct attention_tile tile;
        if (item >= n)
            continue;
        u32 index = attention_find(run, item, &row);
        many_enter(op, run, plan, rows + row, index, &ring, &tile);
        unit(&ring, &tile);
    }
}

GPU void many_run(const struct op_attention *op, const struct gpu_run *run,
                  const struct attention_plan *plan)
{
    const u32 n = attention_list(op, run, plan, true);
    many_units(op, run, plan, n, [&](struct many_ring *ring, const struct attention_tile *tile) {
        struct many_tile t;
        u32 q[2], out[2];
        gpu_sync(); /* the last unit is done with */
        many_load_page(ring);
        many_begin(op, plan, tile, &t, q, out);
        many_queries(op, plan, q, &t);
#pragma unroll 1
        for (u32 i = 0; i + 1 < plan->ring; i++)
            many_copy(ring);
#pragma unroll 1
        while (ring->piece < ring->pieces)
            many_split(ring, &t);
        many_write(op, plan->chunks, &t, out);
    });
}

#endif
