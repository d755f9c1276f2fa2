/* Attention for rows of few tokens: every split of every tile and KV head is an item, and the items
 * of all rows stand in one list, split after split of each unit (tile, KV head, part). Each team of
 * warps takes an even stretch of the list, so that also one long sequence occupies all of them. A
 * team is a block's warps, or in `mid_..`, and in `one_token` when there are more items than
 * blocks, half of them: while one team waits, for a barrier, for instructions, for what comes
 * from memory, the other works.
 *
 * A team's first items, and the angles of the tokens, stay from layer to layer; others are looked
 * up in batches on the way. For an item, warp w takes the keys of the split's page w (of four warps
 * w + 4, too): scores; then, when all warps have told their maxima and weights, chunk w of the
 * output's dimensions (and w + 8, or w + 4) over all pages. For a team of eight two items of a unit
 * go together where heads have up to 128 dimensions, of halves: half the barriers, and products
 * that do not wait for one another. Keys and values come through a ring of each warp's own in
 * shared memory, in pieces of eight fragments: an item's keys, eight chunks each, then its values,
 * a chunk of all pages each. A lane copies the very bytes that it reads later, so that no barrier
 * is needed for them (but scales of values, where pages are of bytes, are the warp's). In `decode`
 * the ring is filled while the blocks still meet: nobody has written these pages since the last
 * step.
 *
 * Fused: where no row has more tokens than FEW_TOKENS or all have one, OP_ROPE is left out. A team
 * then turns the queries of its units itself (attention_turn.cuh), and of the new keys and values
 * those that lie in its splits: into shared memory (`image`; a row has at most 8 of them, so that
 * position p has place p % 8), from where they are put into the ring's pieces, and into the row's
 * pages for later steps. Nobody reads them there in this one. In `mid_.._rows` (splits_fresh) a row
 * has more of them, as guesses or the end of a prompt, up to FRESH_TOKENS, and more images.
 *
 * A unit whose splits all lie in one stretch is joined in registers. Of the others each split's
 * (O, m, l) goes to op->partial. When all of the unit's teams have told that theirs are there, they
 * join them in order, each some of the dimensions: how splits join is worked out for 32 splits at
 * once, as maxima do not mind the order; the sums then take a product and two multiply-adds a
 * split. With more than 256 dimensions, units have 256 of the output each, and each computes all
 * scores.
 *
 * Shared memory: struct splits_shared, then as struct splits_places says.
 */
#ifndef ZIGCUDA_ATTENTION_FEW_CUH
#define ZIGCUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention_turn.cuh"
#include "kernels/cuda/grid.cuh"

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

/* --- one item, or two ---------------------------------------------------------------------- */

/* Positions that the rows of a tile see: in pages [from, new_from), in the image [new_from, to). */
struct splits_seen {
    u32 from, new_from, to;
};

GPU struct splits_seen splits_seen_of(const struct op_attention *op, bool fused,
                                      const struct splits_item *item)
{
    struct splits_seen seen;
    seen.from = attention_seen_from(op, item->tile.pos);
    seen.to = item->tile.pos + item->tile.n;
    seen.new_from = fused ? item->row_pos : seen.to;
    return seen;
}

/* This lane's first key of a page, or the other one, from its part of the image to its place among
 * `n` chunks of the ring. */
template <class way> GPU void splits_mend_key(u8 *piece, u32 n, bool low, const u8 *image)
{
#pragma unroll 1
    for (u32 c = 0; c < n; c++) {
        const uint2 own = gpu_load<uint2>(image + c * IMAGE_BYTES);
        u8 *to = piece + c * way::chunk;
        if (!way::int8) {
            gpu_store<uint2>(to + (low ? 0 : 8), own);
            continue;
        }
        gpu_store<u32>(to + (low ? 0 : 4), own.x);
        gpu_store<u16>(splits_key_scales(piece) + (low ? 0 : 2), (u16)own.y);
    }
}

/* New keys of this warp's page at `pos`. chunks: of the image. */
template <class way>
GPU void splits_mend_keys(u8 *piece, u32 n, u32 pos, const struct splits_seen *seen, u8 *image,
                          u32 chunks)
{
    u32 key = pos + gpu_lane() / 4; /* of g and g + 8 one is new at most, but where `fresh` */
    if (pos >= seen->to || pos + PAGE_KEYS <= seen->new_from)
        return;
    bool low = key >= seen->new_from && key < seen->to;
    if constexpr (way::fresh) {
        if (low)
            splits_mend_key<way>(piece, n, true, splits_image<way>(image, chunks, pos));
        if (key + 8 >= seen->new_from && key + 8 < seen->to)
            splits_mend_key<way>(piece, n, false, splits_image<way>(image, chunks, pos + 8));
    } else if (low || (key + 8 >= seen->new_from && key + 8 < seen->to)) {
        splits_mend_key<way>(piece, n, low, image);
    }
    gpu_warp_sync();
}

/* What stays for a unit, or longer, on a team's way through its stretch. */
template <class way> struct splits_walk {
    struct splits_work<way> *work;
    struct splits_places<way> places;
    struct splits_ring<way> ring;
    const struct op_attention *op;
    float c[2]; /* of this lane's rows */
    bool capped, fused;
};

/* scales: of pages of bytes. */
template <class way> GPU void splits_score(uint4 q, const u8 *keys, u32 scales, float x[2][4])
{
    uint4 k;
    if constexpr (way::int8)
        k = kv_keys(gpu_load<uint2>(keys), scales);
    else
        k = gpu_load<uint4>(keys);
    const u32 a[4] = {q.x, q.y, q.z, q.w}, b[4] = {k.x, k.y, k.z, k.w};
    attention_scores(x, a, b);
}

/* Scores of this warp's pages of n splits, split by split. */
template <u32 n, class way>
GPU void splits_scores(struct splits_walk<way> *w, const struct splits_item *const item[n],
                       float x[n * way::pages][2][4])
{
    constexpr u32 all = n * way::pages;
    struct splits_ring<way> *r = &w->ring;
    const auto *queries = w->places.queries + gpu_lane();
    u8 *image = w->places.k + gpu_lane() * 8;
    memset(x, 0, sizeof(float[all][2][4]));
#pragma unroll 1
    for (u32 first = 0; first < (way::wide ? r->chunks : 1); first += PIECE_FRAGMENTS) {
        u32 chunks = MIN(r->chunks - first, (u32)PIECE_FRAGMENTS);
        u8 *piece[all];
        splits_wait<all>(r, piece);
#pragma unroll 1
        for (u32 k = 0; k < all; k++) {
            const struct splits_item *it = k < way::pages ? item[0] : item[n - 1];
            const u32 page = splits_warp<way>() + k % way::pages * way::warps;
            if (!it->mend)
                continue;
            struct splits_seen seen = splits_seen_of(w->op, w->fused, it);
            splits_mend_keys<way>(k ? piece[all - 1] : piece[0], chunks, it->pos + page * PAGE_KEYS,
                                  &seen, image + first * IMAGE_BYTES, r->chunks);
        }
        u32 scales[all] = {};
        for (u32 k = 0; way::int8 && k < all; k++)
            scales[k] = gpu_load<u32>(splits_key_scales(piece[k]));
        if (chunks == PIECE_FRAGMENTS) {
#pragma unroll
            for (u32 i = 0; i < PIECE_FRAGMENTS; i++) {
                uint4 q = splits_a(queries[(first + i) * 32]);
                for (u32 k = 0; k < all; k++)
                    splits_score<way>(q, piece[k] + i * way::chunk, scales[k], x[k]);
            }
        } else {
#pragma unroll 1
            for (u32 i = 0; i < chunks; i++) {
                uint4 q = splits_a(queries[(first + i) * 32]);
                for (u32 k = 0; k < all; k++)
                    splits_score<way>(q, piece[k] + i * way::chunk, scales[k], x[k]);
            }
        }
        splits_next<all>(r);
    }
}

/* Softcap, and -inf where a row does not see a key of the page at `pos`. */
template <class way>
GPU void splits_hide(const struct splits_walk<way> *w, const struct splits_item *item, u32 pos,
                     float x[2][4])
{
    u32 g = gpu_lane() / 4;
    const struct attention_row *rows = w->work->rows;
    if (w->capped) {
        float before[2] = {rows[g].before, rows[g + 8].before};
        attention_cap(x, before);
    }
    if (item->edge) {
        u32 from[2] = {rows[g].from, rows[g + 8].from}, to[2] = {rows[g].to, rows[g + 8].to};
        attention_hide(x, pos, from, to);
    }
}

/* The largest of what a row's warps told. */
template <class way> GPU float splits_largest(const float *told)
{
    float4 a = gpu_load<float4>(told);
    float most = fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w));
    if constexpr (way::warps > 4) {
        a = gpu_load<float4>(told + 4);
        most = fmaxf(most, fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)));
    }
    return most;
}

/* Shares maxima and weights of splits among the warps; all of them stand in `weights` afterwards.
 */
template <u32 n, class way>
GPU void splits_weigh(const struct splits_walk<way> *w, const struct splits_item *const item[n],
                      float x[n * way::pages][2][4], float m[n][2])
{
    typedef typename splits_fragment<way::low>::type fragment;
    constexpr u32 rows = way::low ? 1 : 2, pages = way::pages;
    const u32 g = gpu_lane() / 4, warp = splits_warp<way>();
    u32 p[4];
    for (u32 k = 0; k < n; k++) {
        m[k][0] = m[k][1] = -INFINITY;
        for (u32 j = 0; j < pages; j++) {
            float(*at)[4] = x[k * pages + j];
            splits_hide(w, item[k], item[k]->pos + (warp + j * way::warps) * PAGE_KEYS, at);
            for (u32 r = 0; r < rows; r++) {
                const float *a = &at[0][r * 2], *b = &at[1][r * 2];
                m[k][r] = fmaxf(m[k][r], fmaxf(fmaxf(a[0], a[1]), fmaxf(b[0], b[1])));
            }
        }
        for (u32 r = 0; r < rows; r++) {
            m[k][r] = attention_largest(m[k][r]);
            if (gpu_lane() % 4 == 0)
                w->work->largest[k][g + r * 8][warp] = m[k][r];
        }
    }
    splits_sync<way>();
#pragma unroll
    for (u32 k = 0; k < n; k++) {
        for (u32 r = 0; r < rows; r++)
            m[k][r] = gpu_mul(splits_largest<way>(w->work->largest[k][g + r * 8]), w->c[r]);
        for (u32 j = 0; j < pages; j++) {
            fragment *to =
                &w->places.weights[(k * SPLIT_PAGES + warp + j * way::warps) * 32 + gpu_lane()];
            attention_weigh<way::low>(w->c, m[k], x[k * pages + j], p);
            if constexpr (way::low)
                *to = (uint2){p[0], p[2]};
            else
                *to = (uint4){p[0], p[1], p[2], p[3]};
        }
    }
    splits_sync<way>();
}

/* This lane's part of the image of values, for the first and for the last keys of the page at
 * `pos`. */
template <class way> GPU void splits_own_values(u8 *image, u32 chunks, u32 pos, uint2 own[2])
{
    own[0] = own[1] = gpu_load<uint2>(splits_image<way>(image, chunks, pos));
    if (way::images > 1)
        own[1] = gpu_load<uint2>(splits_image<way>(image, chunks, pos + IMAGE_KEYS));
}

/* splits_mend_page of pages of bytes: it is the scales that become 0. Lanes of a t have them alike.
 */
template <class way>
GPU void splits_mend_bytes(u8 *page, u8 *scales, u32 pos, const struct splits_seen *seen, u8 *image,
                           u32 chunks)
{
    u32 mask[2];
    uint2 f = gpu_load<uint2>(page), s = gpu_load<uint2>(scales), own[2];
    attention_key_masks(pos, seen->from, seen->new_from, mask);
    s.x &= mask[0];
    s.y &= mask[1];
    if (seen->new_from < seen->to) {
        splits_own_values<way>(image, chunks, pos, own);
        attention_key_masks(pos, seen->new_from, seen->to, mask);
        const u32 bytes = gpu_permute_bytes(mask[0], mask[1], 0x6420);
        f.x = (f.x & ~bytes) | (gpu_permute_bytes(own[0].x, own[1].x, 0x5410) & bytes);
        f.y = (f.y & ~bytes) | (gpu_permute_bytes(own[0].x, own[1].x, 0x7632) & bytes);
        s.x |= own[0].y & mask[0];
        s.y |= own[1].y & mask[1];
    }
    gpu_store<uint2>(page, f);
    gpu_warp_sync(); /* all have read the scales */
    if (gpu_lane() < 4)
        gpu_store<uint2>(scales, s);
    gpu_warp_sync();
}

/* Of values of the page at `pos`, in the ring: 0 where no row sees the key, those of the image
 * where it is new. */
template <class way>
GPU void splits_mend_page(u8 *page, u32 pos, const struct splits_seen *seen, u8 *image, u32 chunks)
{
    u32 mask[2];
    uint4 f = gpu_load<uint4>(page);
    attention_key_masks(pos, seen->from, seen->new_from, mask);
    f = (uint4){f.x & mask[0], f.y & mask[1], f.z & mask[0], f.w & mask[1]};
    if (seen->new_from < seen->to) {
        uint2 own[2];
        splits_own_values<way>(image, chunks, pos, own);
        attention_key_masks(pos, seen->new_from, seen->to, mask);
        f.x |= own[0].x & mask[0];
        f.y |= own[1].x & mask[1];
        f.z |= own[0].y & mask[0];
        f.w |= own[1].y & mask[1];
    }
    gpu_store<uint4>(page, f);
}

/* The pages of the split at `pos` in which some keys are not seen, or new. Where nothing is seen
 * there are zeros already. chunks: of the image. */
template <class way>
GPU void splits_mend_values(u8 *piece, u32 pos, const struct splits_seen *seen, u8 *image,
                            u32 chunks)
{
    const u32 first = MAX(seen->new_from, pos) / PAGE_KEYS * PAGE_KEYS;
    const u32 end = MIN(seen->to, pos + ATTENTION_SPLIT), from = seen->from / PAGE_KEYS * PAGE_KEYS;
    u32 at = seen->from > pos && from < first ? from : first;
#pragma unroll 1
    while (at < end) {
        u8 *page = piece + (at - pos) * (way::chunk / PAGE_KEYS);
        if (way::int8)
            splits_mend_bytes<way>(page, splits_value_scales(piece, (at - pos) / PAGE_KEYS), at,
                                   seen, image, chunks);
        else
            splits_mend_page<way>(page, at, seen, image, chunks);
        at = at < first ? first : at + PAGE_KEYS;
    }
}

/* Of a page's values. */
template <class way> GPU uint4 splits_value(u8 *piece, u32 page)
{
    const u8 *at = piece + page * way::chunk;
    if constexpr (way::int8)
        return kv_values(gpu_load<uint2>(at), gpu_load<uint2>(splits_value_scales(piece, page)));
    else
        return gpu_load<uint4>(at);
}

/* Adds a page's values. */
GPU void splits_add(uint4 w, uint4 v, bool first_pass, float sums[4], float o[2][4])
{
    const u32 ones[2] = {WEIGHT_ONES, WEIGHT_ONES};
    const u32 a[4] = {w.x, w.y, w.z, w.w}, b[4] = {v.x, v.y, v.z, v.w};
    if (first_pass)
        gpu_mma(sums, a, ones);
    gpu_mma(o[0], a, b);
    gpu_mma(o[1], a, b + 2);
}

/* o and l of n splits for this warp's chunks: those of `some` passes from `pass` on. */
template <u32 n, u32 some, class way>
GPU void splits_pass(struct splits_walk<way> *w, const struct splits_item *const item[n], u32 pass,
                     float sums[n][4], struct splits_sum<way> split[n])
{
    constexpr u32 all = n * some;
    const auto *weights = w->places.weights + gpu_lane();
    u8 *image = w->places.v + splits_warp<way>() * IMAGE_BYTES + gpu_lane() * 8;
    u8 *piece[all];
    splits_wait<all>(&w->ring, piece);
    if (way::int8)
        gpu_warp_sync(); /* scales are shared */
#pragma unroll 1
    for (u32 k = 0; k < all; k++) {
        const struct splits_item *it = k < some ? item[0] : item[n - 1];
        if (!it->mend || splits_chunk<way>(it, pass + k % some) >= w->ring.chunks)
            continue;
        struct splits_seen seen = splits_seen_of(w->op, w->fused, it);
        splits_mend_values<way>(k ? piece[all - 1] : piece[0], it->pos, &seen,
                                image + (pass + k % some) * way::warps * IMAGE_BYTES,
                                w->ring.chunks);
    }
#pragma unroll
    for (u32 half = 0; half < SPLIT_PAGES; half += SPLIT_PAGES / 2) {
        if (n == 1 && !(item[0]->live >> half)) /* zeros, from here on */
            break;
#pragma unroll
        for (u32 i = half; i < half + SPLIT_PAGES / 2; i++)
            for (u32 k = 0; k < n; k++) {
                uint4 a = splits_a(weights[(k * SPLIT_PAGES + i) * 32]);
                for (u32 j = 0; j < some; j++)
                    splits_add(a, splits_value<way>(piece[k * some + j], i), pass + j == 0, sums[k],
                               split[k].o[pass + j]);
            }
    }
    if (way::int8)
        gpu_warp_sync(); /* all have read those scales */
    splits_next<all>(&w->ring);
}

/* Of all passes: one after the other where heads are wide, as the ring may be short. */
template <u32 n, class way>
GPU void splits_values(struct splits_walk<way> *w, const struct splits_item *const item[n],
                       struct splits_sum<way> split[n])
{
    constexpr u32 some = way::wide ? 1 : way::passes;
    float sums[n][4] = {};
    for (u32 k = 0; k < n; k++)
        memset(split[k].o, 0, sizeof split[k].o);
#pragma unroll
    for (u32 pass = 0; pass < way::passes; pass += some)
        splits_pass<n, some>(w, item, pass, sums, split);
    for (u32 k = 0; k < n; k++) {
        split[k].l[0] = sums[k][0];
        split[k].l[1] = sums[k][2];
    }
}

/* --- joining ------------------------------------------------------------------------------- */

template <class way> GPU void splits_clear(struct splits_sum<way> *s)
{
    memset(s->o, 0, sizeof s->o);
    for (u32 r = 0; r < 2; r++) {
        s->m[r] = -INFINITY;
        s->l[r] = 0;
    }
}

template <class way>
GPU void splits_join(struct splits_sum<way> *s, const struct splits_sum<way> *split)
{
    struct attention_join j = attention_join(s->m, split->m);
    for (u32 r = 0; r < 2; r++)
        s->l[r] = attention_add(&j, r, s->l[r], split->l[r]);
#pragma unroll
    for (u32 i = 0; i < way::passes; i++)
        attention_add_chunk(&j, s->o[i], split->o[i]);
}

/* The unit's output from registers. */
template <class way>
GPU void splits_write(const struct op_attention *op, u32 chunks, const struct splits_item *item,
                      const struct attention_row *rows, const struct splits_sum<way> *s)
{
    float *out = gpu_global(op->out);
    u32 head_dim = op->head_dim, g = gpu_lane() / 4;
#pragma unroll
    for (u32 r = 0; r < (way::low ? 1 : 2); r++) {
        const struct attention_row *row = &rows[g + r * 8];
        float inverse = attention_inverse(op, row->before, s->m[r], s->l[r]);
        bool real = row->to > 0;
#pragma unroll
        for (u32 i = 0; i < way::passes; i++)
            if (real && splits_chunk<way>(item, i) < chunks)
                attention_write_chunk(out + row->out, head_dim, splits_chunk<way>(item, i), inverse,
                                      &s->o[i][0][r * 2], &s->o[i][1][r * 2]);
    }
}

/* --- units that teams share ---------------------------------------------------------------- */

/* Where query row `row` of an item lies in op->partial: O, then m, l. */
GPU float *splits_partial(float *partial, u32 each, u32 stride, u32 index, u32 row)
{
    return partial + ((size_t)index * each + row) * stride;
}

template <class way>
GPU void splits_write_partial(const struct op_attention *op, const struct attention_plan *plan,
                              const struct splits_item *item, u32 index,
                              const struct attention_row *rows, const struct splits_sum<way> *split)
{
    u32 dim = plan->chunks * 16, g = gpu_lane() / 4, t = gpu_lane() % 4;
    float *partial = gpu_global(op->partial);
#pragma unroll
    for (u32 r = 0; r < (way::low ? 1 : 2); r++) {
        float *to = splits_partial(partial, plan->partial_each, dim + 4, index, g + r * 8);
        if (rows[g + r * 8].to == 0)
            continue;
#pragma unroll
        for (u32 i = 0; i < way::passes; i++) {
            const float(*o)[4] = split->o[i];
            if (splits_chunk<way>(item, i) >= plan->chunks)
                continue;
            float *at = to + splits_chunk<way>(item, i) * 16 + t * 2;
            gpu_store<float2>(at, (float2){o[0][r * 2], o[0][r * 2 + 1]});
            gpu_store<float2>(at + 8, (float2){o[1][r * 2], o[1][r * 2 + 1]});
        }
        if (splits_warp<way>() == 0 && t == 0)
            gpu_store<float2>(to + dim, (float2){split->m[r], split->l[r]});
    }
}

/* Tells that this team's splits of the item's unit are in op->partial. When all of the unit's teams
 * have, the highest bit of its counter has turned, as gpu_grid_arrive has it; the counter is that
 * of the first of them. */
template <class way>
GPU void splits_tell(const struct op_attention *op, const struct splits_item *item,
                     struct splits_told *told)
{
    u32 *counter = gpu_global(op->arrived) + item->counter;
    const u32 rank = splits_number<way>() - item->counter, thread = splits_thread<way>();
    u32 before = thread ? 0 : gpu_load_volatile(counter); /* the bit waits for this team */
    splits_sync<way>();
    if (thread)
        return;
    gpu_add_release(counter, rank ? 1 : 0x80000001u - item->units);
    told->before = before;
    told->tile = item->tile;
    told->first_chunk = item->first_chunk;
    told->unit = item->unit;
    told->splits = item->splits;
    told->counter = item->counter;
    told->rank = rank;
    told->teams = item->units;
}

/* Waits until all have told; a warp together. */
GPU void splits_await(const struct op_attention *op, const struct splits_told *told)
{
    const u32 *counter = gpu_global(op->arrived) + told->counter;
    if (gpu_lane() == 0)
        while (!((gpu_load_acquire(counter) ^ told->before) >> 31))
            gpu_pause();
    gpu_warp_sync();
}

/* How up to 32 splits join, a lane a split: what the sums so far, and the split's own, are
 * multiplied by, and the split's l so multiplied. ml: m and l of the lane's split; m: of the splits
 * ahead, then of all. */
GPU float4 splits_factors(float2 ml, float *m)
{
    u32 lane = gpu_lane();
    float upto = ml.x;
    for (u32 d = 1; d < 32; d *= 2) {
        float below = gpu_shuffle(upto, (lane - d) & 31);
        upto = lane >= d ? fmaxf(upto, below) : upto;
    }
    upto = fmaxf(upto, *m);
    float ahead = gpu_shuffle(upto, (lane - 1) & 31);
    float before[2] = {lane ? ahead : *m, -INFINITY}, split[2] = {ml.x, -INFINITY};
    struct attention_join j = attention_join(before, split);
    *m = gpu_shuffle(upto, 31);
    return (float4){j.old[0], j.more[0], gpu_mul(ml.y, j.more[0]), 0};
}

/* Copies JOIN_DIMS dimensions, from `first` on, of n splits to `near`, JOIN_BYTES a split, and what
 * they end with: m and l. end: of the dimensions. A warp together. */
GPU void splits_copy_partials(const float *from, size_t stride, u32 dim, u32 first, u32 end, u32 n,
                              u8 *near)
{
    enum { LANES = JOIN_DIMS / 4, STEP = 32 / LANES }; /* lanes a split */
    u32 i = gpu_lane() / LANES, d = first + gpu_lane() % LANES * 4;
    const float *at = from + i * stride + MIN(d, end - 4);
    gpu_warp_sync(); /* what was there is done with */
    for (u32 s = gpu_lane(); s < n; s += 32)
        gpu_copy16(near + s * JOIN_BYTES + JOIN_DIMS * 4, from + s * stride + dim);
#pragma unroll 4
    for (; i < n; i += STEP, at += STEP * stride)
        gpu_copy16(near + i * JOIN_BYTES + gpu_lane() % LANES * 16, at);
    gpu_copy_commit();
    gpu_copy_wait<0>();
    gpu_warp_sync();
}

/* A dimension of a query row, of its splits in order, by lane: JOIN_DIMS from `first` on. before:
 * of the row; from: its first partial; near: work space. */
GPU float splits_join_partials(const struct op_attention *op, float before, const float *from,
                               size_t stride, u32 dim, u32 first, u32 end, u32 splits, u8 *near,
                               u32 near_bytes)
{
    float m = -INFINITY, l = 0, o = 0;
    u32 lane = gpu_lane(), most = near_bytes / JOIN_BYTES;
#pragma unroll 1
    for (u32 done = 0; done < splits; done += most) {
        u32 n = MIN(splits - done, most);
        splits_copy_partials(from + done * stride, stride, dim, first, end, n, near);
#pragma unroll 1
        for (u32 at = 0; at < n; at += 32) {
            u8 *part = near + at * JOIN_BYTES;
            float2 none = {-INFINITY, 0};
            float4 *mine = (float4 *)(part + lane * JOIN_BYTES + JOIN_DIMS * 4);
            float4 f = splits_factors(at + lane < n ? *(float2 *)mine : none, &m);
            if (at + lane < n)
                *mine = f;
            gpu_warp_sync();
#pragma unroll 8
            for (u32 i = 0; i < MIN(n - at, 32u); i++) {
                float v = gpu_load<float>(part + i * JOIN_BYTES + lane * 4);
                f = gpu_load<float4>(part + i * JOIN_BYTES + JOIN_DIMS * 4);
                l = fmaf(l, f.x, f.z);
                o = fmaf(o, f.x, gpu_mul(v, f.y));
            }
        }
    }
    return gpu_mul(o, attention_inverse(op, before, m, l));
}

/* This team's share of a unit's output: warps take up to JOIN_DIMS dimensions of a row at a time.
 * near: work space of the warp. */
template <class way>
GPU void splits_merge(const struct op_attention *op, const struct attention_plan *plan,
                      const struct splits_told *told, u8 *near, u32 near_bytes)
{
    u32 dim = plan->chunks * 16, each = plan->partial_each, begin = told->first_chunk * 16;
    u32 end = MIN(dim, begin + SPLITS_CHUNKS * 16), of_row = CEIL_DIV(end - begin, JOIN_DIMS + 0u);
    u32 i = told->rank + splits_warp<way>() * told->teams;
    bool waited = false;
#pragma unroll 1
    for (; i < each * of_row; i += told->teams * way::warps) {
        u32 r = i / of_row, first = begin + i % of_row * JOIN_DIMS, d = first + gpu_lane();
        struct attention_row row = {};
        attention_row_place(op, &told->tile, r, &row);
        if (row.to == 0)
            continue;
        if (!waited)
            splits_await(op, told);
        waited = true;
        const float *from = splits_partial(gpu_global(op->partial), each, dim + 4, told->unit, r);
        float v = splits_join_partials(op, row.before, from, (size_t)each * (dim + 4), dim, first,
                                       end, told->splits, near, near_bytes);
        if (d < MIN(end, op->head_dim))
            gpu_global(op->out)[row.out + d] = gpu_answer(v);
    }
}

/* Does the item's unit have all its splits in this stretch? */
GPU bool splits_whole(const struct splits_mine *mine, const struct splits_item *item)
{
    return mine->from <= item->unit && item->unit + item->splits <= mine->to;
}

/* Puts n splits of a unit, item the first, where they belong. */
template <u32 n, class way>
GPU void splits_finish(const struct op_attention *op, const struct splits_kept *kept,
                       const struct splits_item *item, const struct splits_walk<way> *w,
                       struct splits_sum<way> *unit, const struct splits_sum<way> split[n])
{
    const bool whole = splits_whole(splits_mine<way>(kept), item);
    for (u32 k = 0; k < n; k++)
        if (whole)
            splits_join(unit, &split[k]);
        else
            splits_write_partial(op, &kept->plan, item, item->index + k, w->work->rows, &split[k]);
}

/* Are blocks one team each? */
GPU bool splits_is_alone(const struct gpu_run *run)
{
    return splits_kept(gpu_near(run))->plan.teams == gpu_blocks();
}

/* Nothing is kept yet: at the start of a kernel, by one thread. */
GPU void splits_forget(struct splits_kept *kept)
{
    kept->window = ~0u;
    for (u32 i = 0; i < SPLITS_TEAMS; i++)
        kept->of[i].angle_freq = NULL;
}

/* A team's stretch, and its first items. Heads may be wide, where way is not. */
template <class way>
GPU void splits_stretch(const struct op_attention *op, const struct gpu_run *run,
                        const struct attention_plan *plan, struct splits_kept *kept)
{
    struct splits_mine *mine = splits_mine<way>(kept);
    u32 from = gpu_uniform(attention_bound(op, run, plan, splits_number<way>()));
    u32 to = gpu_uniform(attention_bound(op, run, plan, splits_number<way>() + 1));
    splits_look_up<way>(op, run, plan, mine->first, from, MIN(to - from, (u32)SPLITS_KEPT));
    if (gpu_thread() == 0) {
        kept->slots = splits_slots<way>(run, plan->chunks);
        kept->pairs = plan->chunks <= GPU_WARPS && kept->slots > 1;
    }
    if (splits_thread<way>() == 0) {
        mine->from = from;
        mine->to = to;
    }
    gpu_sync();
    if (splits_thread<way>() == 0)
        splits_keep_ring<way>(kept);
}

/* Who does what, where that is not known. alone: blocks may be one team (splits_low) instead of
 * way, splits_teams. */
template <bool few, class way, bool alone = false>
GPU_CALL void splits_plan(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    struct splits_kept *kept = splits_kept(run);
    struct attention_plan plan;
    gpu_sync(); /* what was in shared memory is done with, and all have looked */
    attention_plan_of(op, run, !few, &plan);
    attention_plan_few(op, run, way::teams, alone, &plan);
    if (gpu_thread() == 0) {
        if (kept->plan.teams != plan.teams) /* teams have other parts of the angles */
            splits_forget(kept);
        kept->window = op->window;
        kept->plan = plan;
    }
    if (alone && plan.teams == gpu_blocks())
        splits_stretch<splits_of<splits_low, way::int8>>(op, run, &plan, kept);
    else
        splits_stretch<way>(op, run, &plan, kept);
    gpu_sync();
}

/* Keys and values that earlier steps wrote on their way, the first token's angles. */
template <class way> GPU void splits_fill(const struct op_attention *op, struct splits_kept *kept)
{
    const struct splits_mine *mine = splits_mine<way>(kept);
    const struct splits_item *item = mine->first;
    if (mine->from == mine->to)
        return;
    if (!way::low && !way::fresh && op->head_dim > GPU_WARPS * 16)
        splits_ring_of<splits_of<splits_wide, way::int8>>(op, kept, true);
    else
        splits_ring_of<way>(op, kept, true);
    if constexpr (way::fresh)
        turn_angles<way>(op, item, splits_places_of<way>(kept->plan.chunks).angles);
    else
        splits_angles<way>(splits_rope(op, item), item->tile.pos, kept);
}

/* What can be done while the blocks still meet. way, alone: see splits_plan. */
template <class way, bool alone = false>
GPU_CALL void splits_ahead(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    struct splits_kept *kept = splits_kept(run);
    if (kept->window != op->window)
        splits_plan<true, way, alone>(op, run);
    if (alone && splits_is_alone(run))
        splits_fill<splits_of<splits_low, way::int8>>(op, kept);
    else
        splits_fill<way>(op, kept);
}

/* Puts a unit's rows, queries and new keys and values where its items want them. */
template <class way>
GPU void splits_enter(const struct op_attention *op, const struct gpu_run *run, u32 at,
                      const struct splits_item *item, struct splits_walk<way> *w)
{
    struct attention_row *rows = w->work->rows;
    const u32 to = splits_mine<way>(splits_kept(run))->to;
    if (at)
        splits_sync<way>(); /* the last unit is done with */
    if constexpr (way::fresh)
        splits_turn_fresh<way>(op, run, item, at, &w->places, to, rows);
    else if constexpr (way::low)
        splits_turn_one<way>(op, run, item, at, &w->places, to, rows);
    else if (w->fused)
        splits_turn<way>(op, run, item, at, &w->places, to, rows);
    else
        splits_begin(op, w->ring.chunks, item, w->places.queries, rows);
    w->c[0] = rows[gpu_lane() / 4].c;
    w->c[1] = rows[gpu_lane() / 4 + 8].c;
}

/* n items of a unit, from place `at` of the stretch on. */
template <u32 n, class way>
GPU void splits_do(const struct op_attention *op, const struct splits_kept *kept, u32 at,
                   struct splits_walk<way> *w, struct splits_sum<way> *unit)
{
    struct splits_sum<way> split[n];
    float x[n * way::pages][2][4], m[n][2];
    const struct splits_item *item[n];
    for (u32 k = 0; k < n; k++)
        item[k] = splits_item<way>(kept, at + k);
    splits_scores<n>(w, item, x);
    splits_weigh<n>(w, item, x, m);
    splits_values<n>(w, item, split);
    for (u32 k = 0; k < n; k++) {
        split[k].m[0] = m[k][0];
        split[k].m[1] = m[k][1];
    }
    splits_finish<n>(op, kept, item[0], w, unit, split);
}

/* few: splits_ahead ran for it, and pages are what `way` says; else they may be of bytes. */
template <bool few, class way>
GPU_CALL void splits_run(const struct op_attention *op, const struct gpu_run *run)
{
    op = gpu_near(op);
    run = gpu_near(run);
    if constexpr (!few && !way::int8) { /* here, so that who calls it need not know */
        if (op->int8) {
            splits_run<few, splits_bytes<way>>(op, run);
            return;
        }
    }
    struct splits_kept *kept = splits_kept(run);
    const struct splits_mine *mine = splits_mine<way>(kept);
    struct splits_sum<way> unit;
    struct splits_walk<way> w;
    u32 n = mine->to - mine->from, told = 0, together, look = 0;
    w.op = op;
    w.fused = few || attention_is_fused(run);
    w.work = splits_work_of<way>();
    w.places = splits_places_of<way>(kept->plan.chunks);
    w.ring = splits_ring_of<way>(op, kept, !few);
    w.capped = op->softcap > 0;
#pragma unroll 1
    for (u32 at = 0; at < n; at += together) {
        const struct splits_item *item = splits_item<way>(kept, at);
        if (item->begins) {
            splits_enter(op, run, at, item, &w);
            splits_clear(&unit);
        }
        if (at > look) { /* the team has met since it was done with what the batch before last had;
                            the ring is not there yet */
            if (look + SPLITS_KEPT < n)
                splits_look_on<way>(op, run, &kept->plan, w.work->items[look / way::batch % 2],
                                    mine->from + look + SPLITS_KEPT,
                                    MIN(n - look - SPLITS_KEPT, +way::batch), item);
            look += way::batch;
        }
        together = splits_together<way>(kept, at, n);
        if (way::together == 1 || together == 1)
            splits_do<1>(op, kept, at, &w, &unit);
        else if constexpr (way::together > 1)
            splits_do<2>(op, kept, at, &w, &unit);
        if (item->index + together < MIN(item->unit + item->splits, mine->to))
            continue;
        if (splits_whole(mine, item))
            splits_write(op, kept->plan.chunks, item, w.work->rows, &unit);
        else
            splits_tell<way>(op, item, &w.work->told[told++]);
    }
    if (told)
        splits_sync<way>();
    for (u32 i = 0; i < told; i++)
        splits_merge<way>(op, &kept->plan, &w.work->told[i], w.ring.base - gpu_lane() * way::lane,
                          w.ring.bytes);
}

#endif
