/* Fused attention (attention_few.cuh): a block turns the heads of its units itself, queries into
 * shared memory, new keys and values into the image there and into the row's pages. The values are
 * those of OP_ROPE (attention_rope.cuh).
 */
#ifndef ZIGCUDA_ATTENTION_TURN_CUH
#define ZIGCUDA_ATTENTION_TURN_CUH

#include "kernels/cuda/attention_ring.cuh"
#include "kernels/cuda/attention_rope.cuh"

GPU const struct gpu_rope *splits_rope(const struct op_attention *op,
                                       const struct splits_item *item)
{
    return item->flags & ROW_ROPE_LONG ? &op->rope_long : &op->rope;
}

template <class way>
GPU struct rope_heads splits_heads(const struct op_attention *op, const struct splits_item *item,
                                   const struct splits_places<way> *places, const float *angles)
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

template <class way> GPU float *splits_angles_at(struct splits_kept *kept, u32 dims, u32 place)
{
    return kept->angles + splits_team<way>() * (LIMIT_HEAD_DIM / way::teams) + place * dims;
}

/* A function of its own, since it seldom runs: instructions that are skipped in every layer have to
 * be fetched as well, or those behind them are waited for (1 us of a layer of 90). Begins and ends
 * with a barrier. */
template <class way>
GPU_CALL void splits_new_angles(const struct gpu_rope *rope, u32 pos, u32 place,
                                struct splits_kept *kept)
{
    rope = gpu_near(rope);
    kept = gpu_near(kept);
    struct splits_mine *mine = splits_mine<way>(kept);
    u32 half = rope->dims / 2;
    float *at = splits_angles_at<way>(kept, rope->dims, place);
    splits_sync<way>(); /* all have looked, and nobody reads what was there */
    for (u32 i = splits_thread<way>(); i < half; i += way::threads)
        rope_angle(rope, pos, i, at + i, at + half + i);
    if (splits_thread<way>() == 0) {
        for (u32 i = 0; i < ANGLE_TOKENS && mine->angle_freq != rope->freq; i++)
            mine->angle_pos[i] = ~0u;
        mine->angle_freq = rope->freq;
        mine->angle_pos[place] = pos;
    }
    splits_sync<way>();
}

/* The angles of the token at `pos`; all threads of a team together. When they are not at hand yet,
 * begins and ends with a barrier. */
template <class way>
GPU const float *splits_angles(const struct gpu_rope *rope, u32 pos, struct splits_kept *kept)
{
    const struct splits_mine *mine = splits_mine<way>(kept);
    constexpr u32 room = LIMIT_HEAD_DIM / way::teams;
    u32 dims = rope->dims;
    u32 place = pos % (dims * 4 <= room ? 4 : dims * 2 <= room ? 2 : 1);
    if (mine->angle_freq != rope->freq || mine->angle_pos[place] != pos)
        splits_new_angles<way>(rope, pos, place, kept);
    return splits_angles_at<way>(kept, dims, place);
}

/* A turned query head, of the token at `pos`, to row r of the tile. */
template <u32 slots_max, class fragment>
GPU void splits_put_query(const struct op_attention *op, const struct rope_heads *h,
                          const float v[slots_max][4], u32 pos, u32 r, fragment *queries,
                          struct attention_row *row)
{
    constexpr u32 step = sizeof(fragment) / sizeof(uint2); /* words between its dimensions */
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
        gpu_store<u32>(to + step, gpu_half2(gpu_mul(v[j][2], power), gpu_mul(v[j][3], power)));
    }
    if (gpu_lane() == 0)
        attention_row_scale(op, gpu_mul(rope_undo(exponent), rope_query_scale(op, pos)), row);
}

/* The scale of a key or value head. */
template <class way, u32 slots_max>
GPU struct kv_scale splits_scale(const struct rope_heads *h, const float v[slots_max][4])
{
    float largest[slots_max];
    if (!way::int8)
        return {};
    rope_largest<slots_max>(h->shift, 1u << h->shift, v, largest);
    return kv_scale_of(largest[0]);
}

/* A turned key head to its page, or a value head. */
template <class way, u32 slots_max>
GPU void splits_put_page(const struct rope_heads *h, const float v[slots_max][4],
                         struct kv_scale scale, u32 key, u8 *page)
{
    const u32 dim = ROUND_UP(h->dim, 16u);
#pragma unroll
    for (u32 j = 0; j < slots_max; j++) {
        u32 d = rope_dim(h, j);
        bool is_key = h->first < h->rotated;
        if (j >= 1u << h->shift || d >= dim)
            continue;
        if (way::int8)
            rope_put_bytes(page, page + dim * PAGE_KEYS, is_key, key, d, v[j], scale);
        else
            rope_put_kv(page, is_key, key, d, v[j]);
    }
}

/* Four dimensions of a value, from i on, to place `at` of an image of bytes: see splits_places. */
GPU void splits_put_values(u8 *to, u32 at, u32 i, u32 bytes, u32 scale)
{
    to += (i % 8 * 4 + at / 2) * 8;
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        gpu_store<u8>(to + e * 32 + i % 16 / 8 * 2 + at % 2, (u8)(bytes >> e * 8));
        if (i % 16 < 8)
            gpu_store<u16>(to + e * 32 + 4 + at % 2 * 2, (u16)scale);
    }
}

/* A turned key head, or a value head's dimensions from `first` on, to place `at` of the image. */
template <class way, u32 slots_max>
GPU void splits_put_image(const struct rope_heads *h, const float v[slots_max][4],
                          struct kv_scale scale, u32 at, u8 *image, u32 first)
{
#pragma unroll
    for (u32 j = 0; j < slots_max; j++) {
        u32 d = rope_dim(h, j), i = d - first; /* wraps below */
        if (j >= 1u << h->shift || d >= ROUND_UP(h->dim, 16u) || i >= SPLITS_CHUNKS * 16 * 2)
            continue;
        u32 a = rope_saturated(v[j][0], v[j][1]), b = rope_saturated(v[j][2], v[j][3]);
        u8 *to = image + i / 16 * IMAGE_BYTES;
        if (way::int8) {
            a = kv_bytes(v[j], scale.inverse);
            b = scale.half;
        }
        if (h->first < h->rotated) {
            gpu_store<uint2>(to + (at * 4 + i % 16 / 4) * 8, (uint2){a, b});
            continue;
        }
        if (i >= SPLITS_CHUNKS * 16)
            continue;
        if (way::int8) {
            splits_put_values(to, at, i, a, b);
            continue;
        }
        to += (i % 8 * 4 + at / 2) * 8 + i % 16 / 8 * 4 + at % 2 * 2;
        gpu_store<u16>(to, (u16)a);
        gpu_store<u16>(to + 32, (u16)(a >> 16));
        gpu_store<u16>(to + 64, (u16)b);
        gpu_store<u16>(to + 96, (u16)(b >> 16));
    }
}

/* The page of a unit's KV head that has position pos; the unit's first item here has place `at`. */
template <class way>
GPU u32 splits_page_of(const struct op_attention *op, const struct gpu_run *run,
                       const struct splits_item *item, u32 at, u32 pos)
{
    u32 in = pos - item->pos;
    at += in / ATTENTION_SPLIT;
    if (at < SPLITS_KEPT)
        return splits_mine<way>(splits_kept(run))->first[at].page[in % ATTENTION_SPLIT / PAGE_KEYS];
    const u32 *pages = gpu_global(run->state.pages) + (size_t)item->slot * run->state.pages_stride;
    return pages[pos / PAGE_KEYS] * op->kv_heads + item->tile.kv_head;
}

/* The heads of a token that this block needs, a warp a head. */
template <class way>
GPU void splits_turn_token(const struct op_attention *op, const struct gpu_run *run,
                           const struct splits_item *item, u32 at,
                           const struct splits_places<way> *places, const float *angles, u32 pos,
                           bool new_key, struct attention_row rows[ATTENTION_ROWS])
{
    enum { SLOTS = way::wide ? 4 : 1 };
    struct rope_heads h = splits_heads(op, item, places, angles);
    const struct attention_tile *t = &item->tile;
    u32 group = splits_kept(run)->plan.group, first = t->part * ATTENTION_ROWS, page = 0;
    u32 heads = pos >= t->pos ? MIN(group - first, (u32)ATTENTION_ROWS) : 0;
    u32 warps = rope_warps(h.shift), token = t->token + pos - t->pos;
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
        if (!query && item->writes)
            page = splits_page_of<way>(op, run, item, at, pos);
        do
            rope_read<SLOTS, false>(&h, 1u << h.shift, v);
        while (op->awaited && rope_missing<SLOTS>(v));
        rope_norm<SLOTS>(op, &h, 1u << h.shift, v);
        rope_rotate<SLOTS>(&h, 1u << h.shift, v);
        if (SLOTS == 1)
            rope_weigh<SLOTS>(op, &h, v);
        if (query) {
            u32 r = (pos - t->pos) * group + i;
            splits_put_query<SLOTS>(op, &h, v, pos, r, places->queries, &rows[r]);
            continue;
        }
        const struct kv_scale scale = splits_scale<way, SLOTS>(&h, v);
        splits_put_image<way, SLOTS>(&h, v, scale, pos % 8, gpu_near(key ? places->k : places->v),
                                     key ? 0 : item->first_chunk * 16);
        if (item->writes)
            splits_put_page<way, SLOTS>(&h, v, scale, pos % PAGE_KEYS,
                                        gpu_global(key ? op->k : op->v) +
                                            (size_t)page * PAGE_HEAD_BYTES(h.dim, way::int8));
    }
}

/* Turns what the block needs of a unit whose first item here has place `at`; its splits up to
 * index `to` are the block's own. Ends with a barrier. */
template <class way>
GPU void splits_turn(const struct op_attention *op, const struct gpu_run *run,
                     const struct splits_item *item, u32 at,
                     const struct splits_places<way> *places, u32 to,
                     struct attention_row rows[ATTENTION_ROWS])
{
    const struct attention_tile *t = &item->tile;
    const struct gpu_rope *rope = splits_rope(op, item);
    u32 mine = MIN(item->unit + item->splits, to) - item->index, last = GPU_WARPS * 32;
    u32 from_pos = item->pos, to_pos = from_pos + mine * ATTENTION_SPLIT, end = t->pos + t->n;
    last -= gpu_thread() + 1; /* by a warp that has less to turn */
    if (last < ATTENTION_ROWS)
        attention_row_place(op, t, last, &rows[last]);
#pragma unroll 1
    for (u32 pos = to_pos > item->row_pos ? item->row_pos : t->pos; pos < end; pos++) {
        const float *angles = splits_angles<way>(rope, pos, splits_kept(run));
        splits_turn_token<way>(op, run, item, at, places, angles, pos,
                               pos >= from_pos && pos < to_pos, rows);
    }
    gpu_sync();
}

/* --- units of one token and up to 8 heads, as attention_is_low has it ----------------------- */

/* As attention_row_place. */
GPU void turn_row(const struct op_attention *op, const struct attention_tile *tile, u32 group,
                  u32 row, struct attention_row *r)
{
    const bool real = row < group;
    const u32 head = tile->kv_head * group + (real ? row : 0);
    r->q = tile->token * op->stride + head * op->head_dim;
    r->out = tile->token * op->out_stride + head * op->head_dim;
    r->to = real ? tile->pos + 1 : 0;
    r->from = real ? attention_seen_from(op, tile->pos) : 0;
    if (!real)
        r->before = r->c = 1;
    if (op->sinks)
        r->before = gpu_global(op->sinks)[head];
}

/* This lane's dimensions of a head, from 4 lane on, as they are now. */
GPU void turn_look(const struct op_attention *op, const float *head, float v[1][4])
{
    const float4 f = gpu_ask4(head + MIN(gpu_lane() * 4, op->head_dim - 4));
    v[0][0] = f.x, v[0][1] = f.y, v[0][2] = f.z, v[0][3] = f.w;
}

GPU void turn_clip(const struct op_attention *op, float v[1][4])
{
#pragma unroll
    for (u32 e = 0; e < 4; e++)
        v[0][e] = gpu_lane() * 4 < op->head_dim ? v[0][e] : 0;
}

/* Awaited, if they are. */
GPU void turn_ask(const struct op_attention *op, const float *head, float v[1][4])
{
    do
        turn_look(op, head, v);
    while (op->awaited && rope_missing<1>(v));
    turn_clip(op, v);
}

/* As rope_rotate. c, s: of this lane's dimensions; what they are rotated with another lane has. */
GPU void turn_rotate(u32 dims, float4 c, float4 s, float v[4])
{
    const u32 d = gpu_lane() * 4, lanes = dims / 8;
    const float sign = d < dims / 2 ? -1 : 1;
    float o[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++)
        o[e] = gpu_shuffle(v[e], (d < dims / 2 ? gpu_lane() + lanes : gpu_lane() - lanes) & 31);
    if (d >= dims)
        return;
    v[0] = fmaf(v[0], c.x, gpu_mul(o[0], sign * s.x));
    v[1] = fmaf(v[1], c.y, gpu_mul(o[1], sign * s.y));
    v[2] = fmaf(v[2], c.z, gpu_mul(o[2], sign * s.z));
    v[3] = fmaf(v[3], c.w, gpu_mul(o[3], sign * s.w));
}

/* As splits_turn, a warp a head, a lane four of its dimensions. */
template <class way>
GPU void splits_turn_one(const struct op_attention *op, const struct gpu_run *run,
                         const struct splits_item *item, u32 at,
                         const struct splits_places<way> *places, u32 to,
                         struct attention_row rows[ATTENTION_ROWS])
{
    struct splits_kept *kept = splits_kept(run);
    const struct attention_tile *t = &item->tile;
    const struct gpu_rope *rope = splits_rope(op, item);
    const u32 group = kept->plan.group, pos = t->pos, dims = rope->dims;
    const u32 mine = MIN(item->unit + item->splits, to) - item->index;
    const u32 heads = group + (pos - item->pos < mine * ATTENTION_SPLIT ? 2 : 0);
    const u32 d = gpu_lane() * 4,
              angle = d < dims / 2 ? d : MIN(d, dims - MIN(dims, 4u)) - dims / 2;
    const float *x = gpu_global(op->qkv) + (size_t)t->token * op->stride;
    const float *angles = splits_angles<way>(rope, pos, kept);
    struct rope_heads h = {
        NULL, NULL, NULL, NULL, 0, 1, op->heads, op->heads + op->kv_heads, op->head_dim, dims, 0};
    const u32 last = way::threads - 1 - splits_thread<way>(); /* by a warp that has less to turn */
    if (last < ATTENTION_ROWS)
        turn_row(op, t, group, last, &rows[last]);
#pragma unroll 1
    for (u32 i = splits_warp<way>(); i < heads; i += way::warps) {
        const bool query = i < group, key = i == group;
        const float4 c = gpu_load<float4>(angles + angle);
        const float4 s = gpu_load<float4>(angles + dims / 2 + angle);
        u32 page = 0;
        float v[1][4];
        h.first = query ? t->kv_head * group + i : t->kv_head + (key ? h.queries : h.rotated);
        if (!query && item->writes)
            page = splits_page_of<way>(op, run, item, at, pos);
        turn_ask(op, x + h.first * h.dim, v);
        rope_norm<1>(op, &h, 1, v);
        if (query || key)
            turn_rotate(dims, c, s, v[0]);
        rope_weigh<1>(op, &h, v);
        if (query) {
            splits_put_query<1>(op, &h, v, pos, i % 8, places->queries, &rows[i % 8]);
            continue;
        }
        const struct kv_scale scale = splits_scale<way, 1>(&h, v);
        splits_put_image<way, 1>(&h, v, scale, pos % 8, gpu_near(key ? places->k : places->v), 0);
        if (item->writes)
            splits_put_page<way, 1>(&h, v, scale, pos % PAGE_KEYS,
                                    gpu_global(key ? op->k : op->v) +
                                        (size_t)page * PAGE_HEAD_BYTES(h.dim, way::int8));
    }
    splits_sync<way>();
}

/* --- units of several tokens, of heads as above --------------------------------------------- */

/* Angles of a unit's tokens and of those ahead of them that are new. */
template <class way>
GPU void turn_angles(const struct op_attention *op, const struct splits_item *item, float *angles)
{
    const struct gpu_rope *rope = splits_rope(op, item);
    const u32 half = rope->dims / 2, n = item->tile.pos + item->tile.n - item->row_pos;
    for (u32 i = splits_thread<way>(); i < n * half; i += way::threads) {
        const u32 pos = item->row_pos + i / half;
        float *at = angles + pos % FRESH_TOKENS * rope->dims + i % half;
        rope_angle(rope, pos, i % half, at, at + half);
    }
}

/* What a warp turns at a time: a query of a unit, token by token, then keys, each with its value.
 */
struct turn_head {
    const float *x;
    u32 pos, first; /* of the token; number among the heads of qkv */
    u32 value;      /* where that lies behind x; 0: there is none */
};

GPU struct turn_head turn_head_of(const struct op_attention *op, const struct attention_tile *t,
                                  u32 group, u32 keys_from, u32 i)
{
    const u32 queries = t->n * group;
    const bool query = i < queries;
    struct turn_head h;
    h.pos = query ? t->pos + i / group : keys_from + i - queries;
    h.first = query ? t->kv_head * group + i % group : op->heads + t->kv_head;
    h.x = gpu_global(op->qkv) + (size_t)(t->token + h.pos - t->pos) * op->stride +
          h.first * op->head_dim;
    h.value = query ? 0 : op->kv_heads * op->head_dim;
    return h;
}

/* As turn_ask, of what has been looked at before. */
GPU void turn_ask_again(const struct op_attention *op, const float *head, float v[1][4])
{
    while (op->awaited && rope_missing<1>(v))
        turn_look(op, head, v);
    turn_clip(op, v);
}

/* A turned key or value to the image, and to its page where the unit writes it. */
template <class way>
GPU void turn_put(const struct op_attention *op, const struct gpu_run *run,
                  const struct splits_item *item, u32 at, const struct splits_places<way> *places,
                  const struct rope_heads *h, u32 pos, const float v[1][4])
{
    const bool key = h->first < h->rotated;
    const struct kv_scale scale = splits_scale<way, 1>(h, v);
    u8 *image = key ? places->k : places->v, *pages = gpu_global(key ? op->k : op->v);
    image = splits_image<way>(image, splits_kept(run)->plan.chunks, pos);
    splits_put_image<way, 1>(h, v, scale, pos % IMAGE_KEYS, gpu_near(image), 0);
    if (item->writes)
        splits_put_page<way, 1>(h, v, scale, pos % PAGE_KEYS,
                                pages + (size_t)splits_page_of<way>(op, run, item, at, pos) *
                                            PAGE_HEAD_BYTES(h->dim, way::int8));
}

/* As splits_turn_one, and the keys and values of the row's tokens up to the unit's last, as far as
 * they lie in the team's splits. A warp has asked for its next heads when it turns some. */
template <class way>
GPU void splits_turn_fresh(const struct op_attention *op, const struct gpu_run *run,
                           const struct splits_item *item, u32 at,
                           const struct splits_places<way> *places, u32 to,
                           struct attention_row rows[ATTENTION_ROWS])
{
    const struct attention_tile *t = &item->tile;
    const u32 group = splits_kept(run)->plan.group, dims = splits_rope(op, item)->dims;
    const u32 mine = MIN(item->unit + item->splits, to) - item->index;
    const u32 from = MAX(item->row_pos, item->pos);
    const u32 end = MIN(t->pos + t->n, item->pos + mine * ATTENTION_SPLIT);
    const u32 queries = t->n * group, n = queries + (end > from ? end - from : 0);
    const u32 d = gpu_lane() * 4,
              angle = d < dims / 2 ? d : MIN(d, dims - MIN(dims, 4u)) - dims / 2;
    const u32 last = way::threads - 1 - splits_thread<way>();
    struct rope_heads h = {
        NULL, NULL, NULL, NULL, 0, 1, op->heads, op->heads + op->kv_heads, op->head_dim, dims, 0};
    float v[2][1][4], next[2][1][4];
    struct turn_head head = turn_head_of(op, t, group, from, MIN(splits_warp<way>(), n - 1));
    turn_look(op, head.x, next[0]);
    turn_look(op, head.x + head.value, next[1]);
    if (at) /* else they are there since splits_ahead */
        turn_angles<way>(op, item, places->angles);
    if (last < ATTENTION_ROWS)
        attention_row_place(op, t, last, &rows[last]);
    splits_sync<way>();
#pragma unroll 1
    for (u32 i = splits_warp<way>(); i < n; i += way::warps) {
        const struct turn_head now = head;
        const float *angles = places->angles + now.pos % FRESH_TOKENS * dims + angle;
        memcpy(v, next, sizeof v);
        head = turn_head_of(op, t, group, from, MIN(i + way::warps, n - 1));
        turn_look(op, head.x, next[0]);
        turn_look(op, head.x + head.value, next[1]);
        turn_ask_again(op, now.x, v[0]);
        h.first = now.first;
        rope_norm<1>(op, &h, 1, v[0]);
        turn_rotate(dims, gpu_load<float4>(angles), gpu_load<float4>(angles + dims / 2), v[0][0]);
        rope_weigh<1>(op, &h, v[0]);
        if (!now.value) {
            splits_put_query<1>(op, &h, v[0], now.pos, i, places->queries, &rows[i]);
            continue;
        }
        turn_ask_again(op, now.x + now.value, v[1]);
        turn_put<way>(op, run, item, at, places, &h, now.pos, v[0]);
        h.first += op->kv_heads;
        turn_put<way>(op, run, item, at, places, &h, now.pos, v[1]);
    }
    splits_sync<way>();
}

#endif
