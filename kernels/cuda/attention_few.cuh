/* Attention for rows of few tokens: every split of every tile and KV head is an item, and the items
 * of all rows stand in one list, split after split of each unit (tile, KV head, part). Each block
 * takes an even stretch of the list, so that also one long sequence occupies all of them.
 *
 * Items are looked up in batches, a thread a page, into shared memory. For an item, warp w takes
 * the keys of the split's page w: scores; then, when all warps have told their maxima and weights,
 * chunk w of the output's dimensions (and w + 8) over all pages. Keys and values come through a
 * ring of each warp's own in shared memory, in pieces of four fragments: an item's keys, four
 * chunks each, then its values, four pages each. A lane copies the very bytes that it reads later,
 * so that no barrier is needed for them. In `decode` the ring is filled while the blocks still
 * meet: nobody has written these pages since the last step.
 *
 * Fused: where no row has more tokens than FEW_TOKENS or all have one, OP_ROPE is left out. A block
 * then turns the queries of its units itself, and of the new keys and values those that lie in its
 * splits: into shared memory (`image`; a row has at most 8 of them, so that position p has place
 * p % 8), and into the row's pages for later steps. Nobody reads them there in this one.
 *
 * A unit whose splits all lie in one block's stretch is joined in registers. Of the others each
 * split's (O, m, l) goes to op->partial, and the last of the unit's blocks joins them in order.
 * With more than 256 dimensions, units have 256 of the output each, and each computes all scores.
 *
 * Shared memory: struct splits_shared, then as struct splits_places says.
 */
#ifndef ZIGCUDA_ATTENTION_FEW_CUH
#define ZIGCUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention_ring.cuh"
#include "kernels/cuda/attention_rope.cuh"

/* --- queries of a unit --------------------------------------------------------------------- */

/* Rows and queries as OP_ROPE left them. Ends with a barrier. */
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

GPU const struct gpu_rope *splits_rope(const struct op_attention *op,
                                       const struct splits_item *item)
{
    return item->flags & ROW_ROPE_LONG ? &op->rope_long : &op->rope;
}

GPU struct rope_heads splits_heads(const struct op_attention *op, const struct splits_item *item,
                                   const struct splits_places *places, const float *angles)
{
    struct rope_heads h;
    h.queries = op->heads;
    h.rotated = op->heads + op->kv_heads;
    h.dim = op->head_dim;
    h.dims = splits_rope(op, item)->dims;
    h.shift = rope_shift(h.dim);
    h.near = (float *)places->weights + (gpu_warp() * SLOT_DIMS << h.shift);
    h.cos = angles;
    h.sin = h.cos + h.dims / 2;
    h.n = 1;
    return h;
}

/* The table of angles; all threads. Others see it after a barrier. */
GPU void splits_angles(const struct gpu_rope *rope, u32 pos, u32 token, struct splits_shared *work)
{
    u32 half = rope->dims / 2;
    for (u32 i = gpu_thread(); i < half; i += GPU_THREADS)
        rope_angle(rope, pos, i, work->angles + i, work->angles + half + i);
    if (gpu_thread() == 0)
        work->token = token;
}

/* A turned query head to row r of the tile. */
template <u32 slots_max>
GPU void splits_put_query(const struct op_attention *op, const struct rope_heads *h,
                          const float v[slots_max][4], u32 r, uint4 *queries,
                          struct attention_row *row)
{
    u32 slots = 1u << h->shift, dim = ROUND_UP(h->dim, 16u), exponent;
    float largest[slots_max];
    rope_largest<slots_max>(h->shift, slots, v, largest);
    exponent = rope_exponent(largest[0]);
    float power = gpu_from_bits(exponent << 23);
#pragma unroll
    for (u32 j = 0; j < slots_max; j++) {
        u32 d = rope_dim(h, j);
        if (j >= slots || d >= dim)
            break;
        u32 *to = (u32 *)&queries[d / 16 * 32 + r % 8 * 4 + d % 16 / 4] + r / 8;
        gpu_store<u32>(to, gpu_half2(gpu_mul(v[j][0], power), gpu_mul(v[j][1], power)));
        gpu_store<u32>(to + 2, gpu_half2(gpu_mul(v[j][2], power), gpu_mul(v[j][3], power)));
    }
    if (gpu_lane() == 0)
        attention_row_scale(op, rope_undo(exponent), row);
}

/* A turned key head to its page, or a value head. */
template <u32 slots_max>
GPU void splits_put_page(const struct rope_heads *h, const float v[slots_max][4], u32 key, u8 *page)
{
#pragma unroll
    for (u32 j = 0; j < slots_max; j++) {
        u32 d = rope_dim(h, j);
        if (j < 1u << h->shift && d < ROUND_UP(h->dim, 16u))
            rope_put_kv(page, h->first < h->rotated, key, d, v[j]);
    }
}

/* A turned key head, or a value head's dimensions from `first` on, to place `at` of the image. */
template <u32 slots_max>
GPU void splits_put_image(const struct rope_heads *h, const float v[slots_max][4], u32 at,
                          u8 *image, u32 first)
{
#pragma unroll
    for (u32 j = 0; j < slots_max; j++) {
        u32 d = rope_dim(h, j), i = d - first; /* wraps below */
        if (j >= 1u << h->shift || d >= ROUND_UP(h->dim, 16u) || i >= SPLITS_CHUNKS * 16 * 2)
            continue;
        u32 a = rope_saturated(v[j][0], v[j][1]), b = rope_saturated(v[j][2], v[j][3]);
        u8 *to = image + i / 16 * IMAGE_BYTES;
        if (h->first < h->rotated) {
            gpu_store<uint2>(to + (at * 4 + i % 16 / 4) * 8, (uint2){a, b});
            continue;
        }
        if (i >= SPLITS_CHUNKS * 16)
            continue;
        to += (i % 8 * 4 + at / 2) * 8 + i % 16 / 8 * 4 + at % 2 * 2;
        gpu_store<u16>(to, (u16)a);
        gpu_store<u16>(to + 32, (u16)(a >> 16));
        gpu_store<u16>(to + 64, (u16)b);
        gpu_store<u16>(to + 96, (u16)(b >> 16));
    }
}

/* The heads of a token that this block needs, a warp a head. */
template <bool wide>
GPU void splits_turn_token(const struct op_attention *op, const struct gpu_run *run,
                           const struct splits_item *item, const struct splits_places *places,
                           const float *angles, u32 pos, bool new_key,
                           struct attention_row rows[ATTENTION_ROWS])
{
    enum { SLOTS = wide ? 4 : 1 };
    struct rope_heads h = splits_heads(op, item, places, angles);
    const struct attention_tile *t = &item->tile;
    u32 group = op->heads / op->kv_heads, first = t->part * ATTENTION_ROWS, page = 0;
    u32 heads = pos >= t->pos ? MIN(group - first, (u32)ATTENTION_ROWS) : 0;
    u32 warps = rope_warps(h.shift), dim = ROUND_UP(h.dim, 16u), token = t->token + pos - t->pos;
    const float *x = gpu_global(op->qkv) + (size_t)token * op->stride;
    if (gpu_warp() >= warps)
        return;
#pragma unroll 1
    for (u32 i = gpu_warp(); i < heads + (new_key ? 2 : 0); i += warps) {
        float v[SLOTS][4];
        bool key = i == heads, query = i < heads;
        h.first = query ? t->kv_head * group + first + i : key ? op->heads : h.rotated;
        h.first += query ? 0 : t->kv_head;
        h.x = (float *)x + h.first * h.dim;
        rope_read<SLOTS, false>(&h, 1u << h.shift, v);
        if (!query && item->writes)
            page = gpu_global(
                run->state.pages)[(size_t)item->slot * run->state.pages_stride + pos / PAGE_KEYS];
        rope_norm<SLOTS>(op, &h, 1u << h.shift, v);
        rope_rotate<SLOTS>(&h, 1u << h.shift, v);
        if (query) {
            u32 r = (pos - t->pos) * group + i;
            splits_put_query<SLOTS>(op, &h, v, r, places->queries, &rows[r]);
            continue;
        }
        splits_put_image<SLOTS>(&h, v, pos % 8, gpu_near(key ? places->k : places->v),
                                key ? 0 : item->first_chunk * 16);
        if (item->writes)
            splits_put_page<SLOTS>(&h, v, pos % PAGE_KEYS,
                                   gpu_global((u8 *)(key ? op->k : op->v)) +
                                       (size_t)(page * op->kv_heads + t->kv_head) * dim *
                                           PAGE_KEYS * sizeof(u16));
    }
}

/* Turns what the block needs of a unit whose splits up to index `to` are its own. Begins and ends
 * with a barrier. */
template <bool wide>
GPU void splits_turn(const struct op_attention *op, const struct gpu_run *run,
                     const struct splits_item *item, const struct splits_places *places,
                     struct splits_shared *work, u32 to, struct attention_row rows[ATTENTION_ROWS])
{
    const struct attention_tile *t = &item->tile;
    const struct gpu_rope *rope = splits_rope(op, item);
    u32 mine = MIN(item->unit + item->splits, to) - item->index, last = GPU_WARPS * 32;
    u32 from_pos = item->pos, to_pos = from_pos + mine * ATTENTION_SPLIT, end = t->pos + t->n;
    gpu_sync();               /* the last unit is done with */
    last -= gpu_thread() + 1; /* by a warp that has less to turn */
    if (last < ATTENTION_ROWS)
        attention_row_place(op, t, last, &rows[last]);
#pragma unroll 1
    for (u32 pos = to_pos > item->row_pos ? item->row_pos : t->pos; pos < end; pos++) {
        u32 token = t->token + pos - t->pos;
        if (work->token != token) { /* all threads alike */
            gpu_sync();
            splits_angles(rope, pos, token, work);
            gpu_sync();
        }
        splits_turn_token<wide>(op, run, item, places, work->angles, pos,
                                pos >= from_pos && pos < to_pos, rows);
    }
    gpu_sync();
}

/* --- one item ------------------------------------------------------------------------------ */

/* Scores of this warp's page. fresh: the split has new keys. Where the lane's key g (1) or g + 8
 * (2) is new, it is that of the image, of which this is the lane's part. */
GPU void splits_scores(struct splits_ring *r, const uint4 *queries, bool fresh, u32 new_keys,
                       const u8 *image, float x[2][4])
{
    memset(x, 0, sizeof(float[2][4]));
#pragma unroll 1
    for (u32 first = 0; first < r->chunks; first += PIECE_FRAGMENTS) {
        const u8 *piece = splits_wait(r);
        if (!fresh && first + PIECE_FRAGMENTS <= r->chunks) {
#pragma unroll
            for (u32 i = 0; i < PIECE_FRAGMENTS; i++) {
                uint4 q = queries[(first + i) * 32], k = gpu_load<uint4>(piece + i * CHUNK_BYTES);
                const u32 a[4] = {q.x, q.y, q.z, q.w}, b[4] = {k.x, k.y, k.z, k.w};
                attention_scores(x, a, b);
            }
        } else {
#pragma unroll 1
            for (u32 c = first; c < MIN(first + PIECE_FRAGMENTS, r->chunks); c++) {
                uint4 q = queries[c * 32];
                uint4 k = gpu_load<uint4>(piece + (c - first) * CHUNK_BYTES);
                uint2 own = gpu_load<uint2>(image + c * IMAGE_BYTES);
                k.x = new_keys == 1 ? own.x : k.x;
                k.y = new_keys == 1 ? own.y : k.y;
                k.z = new_keys == 2 ? own.x : k.z;
                k.w = new_keys == 2 ? own.y : k.w;
                const u32 a[4] = {q.x, q.y, q.z, q.w}, b[4] = {k.x, k.y, k.z, k.w};
                attention_scores(x, a, b);
            }
        }
        splits_next(r);
    }
}

/* Shares maxima and weights of the split among the warps; all of them stand in `weights`
 * afterwards. Not `edge`: all rows see all keys. */
GPU void splits_weigh(const struct splits_item *item, const struct attention_row *rows, bool capped,
                      bool edge, struct splits_shared *work, uint4 *weights, float x[2][4],
                      float m[2])
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
    if (edge)
        attention_hide(x, item->pos + gpu_warp() * PAGE_KEYS, from, to);
    for (u32 r = 0; r < 2; r++) {
        const float *a = &x[0][r * 2], *b = &x[1][r * 2];
        m[r] = attention_largest(fmaxf(fmaxf(a[0], a[1]), fmaxf(b[0], b[1])));
        if (gpu_lane() % 4 == 0)
            work->largest[gpu_warp()][g + r * 8] = m[r];
    }
    gpu_sync();
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
#pragma unroll
        for (u32 p = 0; p < SPLIT_PAGES; p++)
            m[r] = fmaxf(m[r], work->largest[p][g + r * 8]);
        m[r] = gpu_mul(m[r], c[r]);
    }
    u32 w[4];
    attention_weigh(c, m, x, w);
    weights[gpu_warp() * 32 + gpu_lane()] = (uint4){w[0], w[1], w[2], w[3]};
    gpu_sync();
}

/* Positions of a tile's values: in its pages [from, new_from), in the image [new_from, to). */
struct splits_seen {
    u32 from, new_from, to;
};

/* Of values of the page at `pos`: 0 where no row sees the key, those of the image where it is new.
 */
GPU uint4 splits_mend(uint4 f, u32 pos, const struct splits_seen *seen, const u8 *image)
{
    u32 mask[2];
    attention_key_masks(pos, seen->from, seen->new_from, mask);
    f = (uint4){f.x & mask[0], f.y & mask[1], f.z & mask[0], f.w & mask[1]};
    if (pos >= seen->to || seen->new_from >= seen->to)
        return f;
    uint2 own = gpu_load<uint2>(image);
    attention_key_masks(pos, seen->new_from, seen->to, mask);
    f.x |= own.x & mask[0];
    f.y |= own.x & mask[1];
    f.z |= own.y & mask[0];
    f.w |= own.y & mask[1];
    return f;
}

/* Adds a page's values. */
GPU void splits_add(const uint4 *weights, uint4 v, bool first_pass, float sums[4], float o[2][4])
{
    const u32 ones[2] = {WEIGHT_ONES, WEIGHT_ONES};
    uint4 w = *weights;
    const u32 a[4] = {w.x, w.y, w.z, w.w}, b[4] = {v.x, v.y, v.z, v.w};
    if (first_pass)
        gpu_mma(sums, a, ones);
    gpu_mma(o[0], a, b);
    gpu_mma(o[1], a, b + 2);
}

/* o and l of the split for this warp's chunks. */
template <u32 passes>
GPU void splits_values(struct splits_ring *r, u32 pos, const struct splits_seen *seen,
                       const uint4 *weights, const u8 *image, struct splits_sum<passes> *split)
{
    bool mend = pos < seen->from || pos + ATTENTION_SPLIT > seen->new_from;
    float sums[4] = {0, 0, 0, 0};
    memset(split->o, 0, sizeof split->o);
#pragma unroll
    for (u32 pass = 0; pass < passes; pass++) {
#pragma unroll 1
        for (u32 first = 0; first < SPLIT_PAGES; first += PIECE_FRAGMENTS) {
            const u8 *piece = splits_wait(r);
            const uint4 *w = weights + first * 32;
            if (!mend) {
#pragma unroll
                for (u32 i = 0; i < PIECE_FRAGMENTS; i++)
                    splits_add(w + i * 32, gpu_load<uint4>(piece + i * CHUNK_BYTES), pass == 0,
                               sums, split->o[pass]);
            } else {
#pragma unroll 1
                for (u32 i = 0; i < PIECE_FRAGMENTS; i++)
                    splits_add(w + i * 32,
                               splits_mend(gpu_load<uint4>(piece + i * CHUNK_BYTES),
                                           pos + (first + i) * PAGE_KEYS, seen,
                                           image + pass * GPU_WARPS * IMAGE_BYTES),
                               pass == 0, sums, split->o[pass]);
            }
            splits_next(r);
        }
    }
    split->l[0] = sums[0];
    split->l[1] = sums[2];
}

/* --- joining ------------------------------------------------------------------------------- */

template <u32 passes> GPU void splits_clear(struct splits_sum<passes> *s)
{
    memset(s->o, 0, sizeof s->o);
    for (u32 r = 0; r < 2; r++) {
        s->m[r] = -INFINITY;
        s->l[r] = 0;
    }
}

template <u32 passes>
GPU void splits_join(struct splits_sum<passes> *s, const struct splits_sum<passes> *split)
{
    struct attention_join j = attention_join(s->m, split->m);
    for (u32 r = 0; r < 2; r++)
        s->l[r] = attention_add(&j, r, s->l[r], split->l[r]);
#pragma unroll
    for (u32 i = 0; i < passes; i++)
        attention_add_chunk(&j, s->o[i], split->o[i]);
}

/* The unit's output from registers. */
template <u32 passes>
GPU void splits_write(const struct op_attention *op, u32 chunks, const struct splits_item *item,
                      const struct attention_row *rows, const struct splits_sum<passes> *s)
{
    float *out = gpu_global(op->out);
    u32 *row_max = gpu_global(op->row_max), head_dim = op->head_dim, g = gpu_lane() / 4;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const struct attention_row *row = &rows[g + r * 8];
        float largest = 0, inverse = gpu_reciprocal(s->l[r]);
        bool real = row->to > 0;
#pragma unroll
        for (u32 i = 0; i < passes; i++)
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

/* --- units that blocks share --------------------------------------------------------------- */

/* Where query row `row` of an item lies in op->partial: O, then m, l. */
GPU float *splits_partial(float *partial, u32 each, u32 stride, u32 index, u32 row)
{
    return partial + ((size_t)index * each + row) * stride;
}

template <u32 passes>
GPU void splits_write_partial(const struct op_attention *op, const struct attention_plan *plan,
                              const struct splits_item *item, const struct attention_row *rows,
                              const struct splits_sum<passes> *split)
{
    u32 dim = plan->chunks * 16, g = gpu_lane() / 4, t = gpu_lane() % 4;
    float *partial = gpu_global(op->partial);
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        float *to = splits_partial(partial, plan->partial_each, dim + 4, item->index, g + r * 8);
        if (rows[g + r * 8].to == 0)
            continue;
#pragma unroll
        for (u32 i = 0; i < passes; i++) {
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

/* Two dimensions of a query row over all splits of the unit; returns what they are divided by. */
GPU float splits_join_partials(const float *from, size_t stride, u32 dim, u32 d, u32 splits,
                               float o[2])
{
    enum { AHEAD = 8 }; /* splits that are read at once */
    float m[2] = {-INFINITY, -INFINITY}, l = 0;
    o[0] = o[1] = 0;
#pragma unroll 1
    for (u32 first = 0; first < splits; first += AHEAD) {
        float2 part[AHEAD], ml[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            const float *at = from + MIN(first + i, splits - 1) * stride;
            part[i] = gpu_load<float2>(at + d);
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
        }
    }
    return l;
}

/* The unit's output from op->partial: a thread takes two dimensions of a row at a time. */
GPU void splits_merge(const struct op_attention *op, const struct attention_plan *plan,
                      const struct splits_item *item, const struct attention_row *rows)
{
    u32 dim = plan->chunks * 16, head_dim = op->head_dim, each = plan->partial_each;
    u32 *row_max = gpu_global(op->row_max), first = item->first_chunk * 16;
    u32 pairs = MIN(dim - first, SPLITS_CHUNKS * 16u) / 2; /* a multiple of 8 */
    const float *partial = gpu_global(op->partial);
    float *out = gpu_global(op->out);
#pragma unroll 1
    for (u32 i = gpu_thread(); i < ROUND_UP(each * pairs, 32u); i += GPU_THREADS) {
        u32 r = i / pairs, d = first + i % pairs * 2;
        const struct attention_row *row = &rows[r < each ? r : 0];
        bool real = r < each && row->to > 0;
        float o[2], largest = 0;
        const float *from =
            splits_partial((float *)partial, each, dim + 4, item->unit, real ? r : 0);
        float l = splits_join_partials(from, (size_t)each * (dim + 4), dim, d, item->splits, o);
        float inverse = gpu_reciprocal(l);
        float2 v = {gpu_mul(o[0], inverse), gpu_mul(o[1], inverse)};
        if (real && d < head_dim) {
            gpu_store<float2>(out + row->out + d, v);
            largest = fmaxf(fabsf(v.x), fabsf(v.y));
        }
        u32 token = item->tile.token + (real ? row->to - 1 - item->tile.pos : 0);
        attention_write_max(row_max, token, real, item->tile.n == 1, largest);
    }
}

/* --- a block's stretch --------------------------------------------------------------------- */

/* Puts a split where it belongs; [from, to) is the block's stretch. */
template <u32 passes>
GPU void splits_finish(const struct op_attention *op, const struct attention_plan *plan,
                       const struct splits_item *item, const struct attention_row *rows, u32 from,
                       u32 to, struct splits_shared *work, struct splits_sum<passes> *unit,
                       const struct splits_sum<passes> *split)
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

/* Nothing is kept yet: at the start of a kernel, by one thread. */
GPU void splits_forget(struct splits_kept *kept)
{
    kept->window = ~0u;
}

/* Copies the items that are kept. */
GPU void splits_copy_items(struct splits_item *to, const struct splits_item *from)
{
    if (gpu_thread() < SPLITS_KEPT * sizeof *to / 16)
        ((uint4 *)to)[gpu_thread()] = ((const uint4 *)from)[gpu_thread()];
}

/* Who does what, and the first items. Begins and ends with a barrier. */
template <bool few>
GPU_CALL void splits_prepare(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    struct splits_shared *work = splits_shared();
    struct splits_kept *kept = splits_kept(run);
    struct attention_plan plan;
    u32 from = kept->from, to = kept->to;
    bool known = kept->window == op->window && to - from <= SPLITS_KEPT;
    gpu_sync(); /* what was in shared memory is done with */
    if (gpu_thread() == 0)
        work->token = ~0u;
    if (known) {
        splits_copy_items(work->items[0], kept->first);
        gpu_sync();
        return;
    }
    attention_plan_of(op, run, !few, &plan);
    attention_plan_few(op, run, &plan);
    from = gpu_uniform(attention_bound(op, run, &plan, gpu_block()));
    to = gpu_uniform(attention_bound(op, run, &plan, gpu_block() + 1));
    splits_look_up(op, run, &plan, work->items[0], from, MIN(to - from, (u32)SPLITS_BATCH), from);
    if (gpu_thread() == 0) {
        kept->window = op->window;
        kept->plan = plan;
        kept->from = from;
        kept->to = to;
    }
    gpu_sync();
    splits_copy_items(kept->first, work->items[0]);
}

/* What can be done while the blocks still meet: the above, keys and values that earlier steps
 * wrote on their way, the first token's angles. */
GPU_CALL void attention_ahead(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    struct splits_kept *kept = splits_kept(run);
    splits_prepare<true>(op, run);
    if (op->head_dim > GPU_WARPS * 16)
        splits_ring<true>(op, run, kept, true);
    else
        splits_ring<false>(op, run, kept, true);
    const struct splits_item *item = splits_item(0);
    if (kept->from == kept->to || item->tile.pos != item->row_pos) /* may need another token's */
        return;
    splits_angles(splits_rope(op, item), item->tile.pos, item->tile.token, splits_shared());
}

template <bool few, bool wide>
GPU_CALL void splits_run(const struct op_attention *op, const struct gpu_run *run)
{
    enum { PASSES = wide ? 2 : 1 };
    op = gpu_near(op);
    run = gpu_near(run);
    struct splits_shared *work = splits_shared();
    struct splits_kept *kept = splits_kept(run);
    const struct attention_plan *plan = &kept->plan;
    u32 from = kept->from, to = kept->to, chunks = plan->chunks, turn = 0;
    struct splits_places places = splits_places(chunks);
    bool capped = op->softcap > 0, fused = few || attention_is_fused(run);
    struct splits_ring ring = splits_ring<wide>(op, run, kept, !few);
    struct splits_sum<PASSES> unit, split;
    struct splits_seen seen;
    u32 all_from = 0, all_to = 0; /* positions that all rows see */
    const uint4 *queries = places.queries + gpu_lane(), *weights = places.weights + gpu_lane();
    const u8 *own_k = places.k + gpu_lane() * 8;
    const u8 *own_v = places.v + gpu_warp() * IMAGE_BYTES + gpu_lane() * 8;
#pragma unroll 1
    for (u32 at = 0; at < to - from; at++) {
        const struct splits_item *item = splits_item(at);
        struct attention_row *rows = work->rows[(turn += item->begins) % 2];
        float x[2][4];
        if (item->begins) {
            if (fused)
                splits_turn<wide>(op, run, item, &places, work, to, rows);
            else
                splits_begin(op, chunks, item, places.queries, rows);
            splits_clear(&unit);
            seen.from = attention_seen_from(op, item->tile.pos);
            seen.to = item->tile.pos + item->tile.n;
            seen.new_from = fused ? item->row_pos : seen.to;
            all_from = attention_seen_from(op, seen.to - 1);
            all_to = item->tile.pos + 1;
        }
        u32 pos = item->pos, key = pos + gpu_warp() * PAGE_KEYS + gpu_lane() / 4, new_keys = 0;
        bool edge = pos < all_from || pos + ATTENTION_SPLIT > all_to;
        bool fresh = fused && pos + ATTENTION_SPLIT > seen.new_from;
        if (fresh) /* of g and g + 8 one at most */
            new_keys = key >= seen.new_from && key < seen.to           ? 1
                       : key + 8 >= seen.new_from && key + 8 < seen.to ? 2
                                                                       : 0;
        splits_scores(&ring, queries, fresh, new_keys, own_k, x);
        splits_weigh(item, rows, capped, edge, work, places.weights, x, split.m);
        if (at % SPLITS_BATCH == 0 && at + SPLITS_BATCH < to - from)
            splits_look_up(op, run, plan, work->items[(at / SPLITS_BATCH + 1) % 2],
                           from + at + SPLITS_BATCH,
                           MIN(to - from - at - SPLITS_BATCH, (u32)SPLITS_BATCH), from);
        splits_values(&ring, pos, &seen, weights, own_v, &split);
        splits_finish(op, plan, item, rows, from, to, work, &unit, &split);
    }
}

#endif
