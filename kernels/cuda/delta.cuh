/* Gated delta nets and Mamba 2 (core/model/model.h, struct delta_net), the gates of attention
 * beside them, and short convolutions.
 * The state goes from token to token, and each sum has one order: so a token's bits depend neither
 * on how a prompt is cut nor on who shares the step.
 *
 * What a slot keeps of a layer are S^T, [value_heads][value_dim][key_dim], and behind them past
 * inputs of the convolution, [taps - 1][channels], the newest token's last; of a short convolution
 * these alone.
 */
#ifndef ZIGCUDA_DELTA_CUH
#define ZIGCUDA_DELTA_CUH

#include "kernels/cuda/grid.cuh"

GPU float delta_exp(float x)
{
    return gpu_exp2(x * 1.442695041f);
}

GPU float delta_sigmoid(float x)
{
    return gpu_reciprocal(1 + delta_exp(-x));
}

/* log(1 + exp(x)): with e = exp(-|x|), log(1 + e) is 2 artanh(e / (2 + e)), a series of thirds at
 * most. */
GPU float delta_softplus(float x)
{
    const float e = delta_exp(-fabsf(x)), t = e * gpu_reciprocal(2 + e), u = t * t;
    float sum = 2 / 13.0f;
    sum = fmaf(sum, u, 2 / 11.0f);
    sum = fmaf(sum, u, 2 / 9.0f);
    sum = fmaf(sum, u, 2 / 7.0f);
    sum = fmaf(sum, u, 2 / 5.0f);
    sum = fmaf(sum, u, 2 / 3.0f);
    return fmaf(fmaf(sum, u, 2), t, fmaxf(x, 0));
}

/* rest %= whole; what *n counts grows by the quotient, which is small. */
GPU u32 delta_rest(u32 rest, u32 whole, u32 *n)
{
#pragma unroll 1
    for (; rest >= whole; rest -= whole)
        ++*n;
    return rest;
}

/* --- inputs -------------------------------------------------------------------------------- */

GPU float *delta_state(const struct op_delta *op, u32 slot)
{
    return gpu_global(op->state) + (size_t)slot * op->state_stride;
}

GPU float *delta_past(const struct op_delta *op, u32 slot)
{
    return delta_state(op, slot) + op->value_heads * op->value_dim * op->key_dim;
}

GPU u32 delta_column(struct delta_columns part, u32 key_head)
{
    return part.at + key_head * part.step;
}

/* Where a channel's input of a row's token is; those before the row are -1, -2, .. */
GPU const float *delta_input(const struct op_delta *op, const struct gpu_row *row, i32 token,
                             u32 channel, u32 column)
{
    const float *now = gpu_global(op->in) + (size_t)row->first * op->stride + column;
    const float *past = delta_past(op, row->slot) + (op->taps - 1) * op->channels + channel;
    const i32 step = (i32)(token < 0 ? op->channels : op->stride);
    return (token < 0 ? past : now) + (i64)token * step;
}

/* Was there such a token? */
GPU bool delta_had(const struct gpu_row *row, i32 token)
{
    return token >= 0 || row->pos;
}

/* --- queries, keys and values -------------------------------------------------------------- */

/* Four tokens of a row from `first` on, of which n are there, and a head of queries, keys or
 * values.
 */
struct delta_piece {
    struct gpu_row row;
    u32 first, n, head, dim, channel, column;
    bool is_v;
};

/* Heads of queries and keys come before those of values. */
GPU struct delta_piece delta_piece_of(const struct op_delta *op, const struct gpu_row *row,
                                      u32 first, u32 head)
{
    const u32 keys = op->key_heads * op->key_dim;
    struct delta_piece p = {*row, first, MIN(row->n - first, 4u), head, op->key_dim, 0, 0, false};
    if (head < op->key_heads) {
        p.channel = head * op->key_dim;
        p.column = delta_column(op->q, head);
    } else if ((p.head -= op->key_heads) < op->key_heads) {
        p.channel = keys + p.head * op->key_dim;
        p.column = delta_column(op->k, p.head);
    } else {
        p.head -= op->key_heads;
        const u32 key_head = p.head / op->shared, nth = p.head - key_head * op->shared;
        p.channel = 2 * keys + p.head * op->value_dim;
        p.column = delta_column(op->v, key_head) + nth * op->value_dim;
        p.dim = op->value_dim;
        p.is_v = true;
    }
    return p;
}

GPU float4 delta_dot(float4 a, float4 b, float4 sum)
{
    return {fmaf(a.x, b.x, sum.x), fmaf(a.y, b.y, sum.y), fmaf(a.z, b.z, sum.z),
            fmaf(a.w, b.w, sum.w)};
}

GPU float delta_all(float4 v)
{
    return (v.x + v.y) + (v.z + v.w);
}

GPU float delta_silu(float x)
{
    return x * delta_sigmoid(x);
}

/* Four channels of a token, from channel `at` of the piece on: convolution and silu. */
GPU float4 delta_convolve(const struct op_delta *op, const struct delta_piece *p, u32 token, u32 at)
{
    const u32 channel = p->channel + at;
    float4 y = {0, 0, 0, 0};
    if (op->conv_bias)
        y = gpu_load<float4>(gpu_global(op->conv_bias) + channel);
#pragma unroll 4
    for (u32 tap = 0; tap < op->taps; tap++) {
        const i32 of = (i32)(token + tap + 1) - (i32)op->taps;
        if (delta_had(&p->row, of))
            y = delta_dot(gpu_load<float4>(gpu_global(op->conv) + tap * op->channels + channel),
                          gpu_load<float4>(delta_input(op, &p->row, of, channel, p->column + at)),
                          y);
    }
    return {delta_silu(y.x), delta_silu(y.y), delta_silu(y.z), delta_silu(y.w)};
}

/* A value head's weights (struct op_delta). */
GPU float4 delta_weigh(const struct op_delta *op, const struct delta_piece *p, u32 token)
{
    const u32 key_head = p->head / op->shared, nth = p->head - key_head * op->shared;
    const float *row = gpu_global(op->in) + (size_t)token * op->stride + nth;
    const float a = row[delta_column(op->a, key_head)] + gpu_global(op->dt_bias)[p->head];
    const float rate = delta_exp(gpu_global(op->a_log)[p->head]), dt = delta_softplus(a);
    const float decay = delta_exp(-rate * dt);
    if (op->skip)
        return {decay, dt, 0, gpu_global(op->skip)[p->head]};
    return {decay, delta_sigmoid(row[delta_column(op->b, key_head)]), decay, 0};
}

/* A warp's turn: queries and keys of delta nets become vectors of one length. */
GPU void delta_mix(const struct op_delta *op, const struct delta_piece *p)
{
    const u32 token = p->row.first + p->first, at = gpu_lane() * 4;
    float *to = gpu_global(op->mixed) + (size_t)token * op->mixed_stride;
    const float length =
        p->channel < op->key_heads * op->key_dim ? gpu_rsqrt((float)op->key_dim) : 1;
#pragma unroll 1
    for (u32 i = 0; i < p->n; i++) {
        float4 y = {0, 0, 0, 0};
        float by = 1;
        if (at < p->dim)
            y = delta_convolve(op, p, p->first + i, at);
        if (!p->is_v && !op->skip)
            by = length * gpu_rsqrt(gpu_sum_warp(delta_all(delta_dot(y, y, {0, 0, 0, 0}))) + 1e-6f);
        if (at < p->dim)
            gpu_store<float4>(to + i * op->mixed_stride + p->channel + at,
                              {y.x * by, y.y * by, y.z * by, y.w * by});
    }
    if (p->is_v && gpu_lane() < p->n)
        gpu_store<float4>(to + gpu_lane() * op->mixed_stride + op->channels + p->head * 4,
                          delta_weigh(op, p, token + gpu_lane()));
}

/* Each of the rows has `items` for every so many tokens. From row *r on, which item *i is of: it
 * becomes the number within that row. False behind the last. */
GPU bool delta_find(const struct gpu_row *all_rows, u32 rows, u32 tokens, u32 items, u32 *r, u32 *i,
                    struct gpu_row *row)
{
#pragma unroll 1
    for (; *r < rows; ++*r) {
        *row = all_rows[*r];
        const u32 all = (row->n + tokens - 1) / tokens * items;
        if (*i < all)
            return true;
        *i -= all;
    }
    return false;
}

/* OP_CONVOLVE */
GPU void delta_mix_all(const struct op_delta *op, const struct gpu_step *s)
{
    const u32 heads = 2 * op->key_heads + op->value_heads, rows = gpu_uniform(s->n_rows);
    u32 r = 0, i = gpu_uniform(gpu_block() * GPU_WARPS + gpu_warp());
    struct gpu_row row;
#pragma unroll 1
    for (; delta_find(s->rows, rows, 4, heads, &r, &i, &row); i += gpu_blocks() * GPU_WARPS) {
        const u32 four = i / heads;
        const struct delta_piece p = delta_piece_of(op, &row, four * 4, i - four * heads);
        delta_mix(op, &p);
    }
}

/* --- the state ----------------------------------------------------------------------------- */

enum {
    DELTA_LANES = 8, /* of two columns of S, of which each has 16 keys in registers: four side by
                        side, four DELTA_STEP further on, .. What shared memory gives to registers
                        is what there is least of. */
    DELTA_EACH = 2,
    DELTA_COLUMNS = GPU_THREADS / DELTA_LANES * DELTA_EACH,
    DELTA_OF_WARP = DELTA_COLUMNS / GPU_WARPS,
#ifdef GPU_GROUPS
    DELTA_UNROLLED = 2, /* tokens; other cards have no registers for it */
#else
    DELTA_UNROLLED = 1,
#endif
    DELTA_STEP = DELTA_LANES * 4,
    DELTA_FOURS = LIMIT_DELTA_DIM / DELTA_STEP,
    DELTA_V = 2 * LIMIT_DELTA_DIM, /* of a token in shared memory: q, k, from here on v of the
                                      columns, */
    DELTA_WEIGHTS = DELTA_V + DELTA_COLUMNS, /* and four of each head that these are of */
};
static_assert(DELTA_FOURS * DELTA_STEP == LIMIT_DELTA_DIM && DELTA_UNIT % DELTA_OF_WARP == 0 &&
                  DELTA_WEIGHTS + (DELTA_COLUMNS / DELTA_UNIT + 1) * 4 == DELTA_NEAR_FLOATS,
              "all");

/* What a block takes at a time: of a row and of what shares a head of keys n columns of S. */
struct delta_part {
    struct gpu_row row;
    u32 key_head, column, n;
};

/* Where those that share the part's head of keys begin, of all columns. */
GPU u32 delta_first_column(const struct op_delta *op, const struct delta_part *part)
{
    return part->key_head * op->shared * op->value_dim + part->column;
}

/* What a thread copies of a token, if anything: 16 bytes of its row in `mixed`, or zeros, where
 * there are fewer keys. */
struct delta_copying {
    u32 token, from, to; /* of the first; it goes on DELTA_BESIDE further on */
    bool is;
};
enum { DELTA_PIECES = DELTA_NEAR_FLOATS / 4, DELTA_BESIDE = GPU_THREADS / DELTA_PIECES };

GPU struct delta_copying delta_copying_of(const struct op_delta *op, const struct delta_part *part)
{
    const u32 keys = op->key_heads * op->key_dim, column = delta_first_column(op, part);
    const u32 token = gpu_thread() / DELTA_PIECES, at = (gpu_thread() - token * DELTA_PIECES) * 4;
    struct delta_copying c = {token < DELTA_BESIDE ? token : +DELTA_TOKENS, 0, at, false};
    if (at < DELTA_V) {
        const u32 is_k = at >= LIMIT_DELTA_DIM, key = at - is_k * LIMIT_DELTA_DIM;
        c.from = is_k * keys + part->key_head * op->key_dim + key;
        c.is = key < op->key_dim;
    } else if (at < DELTA_WEIGHTS) {
        c.from = 2 * keys + column + at - DELTA_V;
        c.is = at - DELTA_V < part->n;
    } else {
        c.from = column / op->value_dim * 4 + at - DELTA_WEIGHTS;
        c.is = c.from < op->value_heads * 4;
        c.from += op->channels;
    }
    c.from = c.is ? c.from : 0;
    return c;
}

/* Begins to copy n tokens, of which `rows` is the first's. */
GPU void delta_copy(const struct delta_copying *c, const float *rows, u32 stride, u32 n, float *to)
{
#pragma unroll 1
    for (u32 t = c->token; t < n; t += DELTA_BESIDE)
        gpu_copy16(&to[t * DELTA_NEAR_FLOATS + c->to], rows + t * stride + c->from, c->is);
    gpu_copy_commit();
}

/* Of a column the sum over its lanes, in all of them. */
GPU float delta_sum(float v)
{
    v += gpu_shuffle_xor(v, 1);
    v += gpu_shuffle_xor(v, 2);
    return v + gpu_shuffle_xor(v, 4);
}

/* The same sums of two columns; odd lanes have the second's. */
GPU float delta_sums(float2 v)
{
    const bool odd = gpu_lane() & 1;
    float mine = (odd ? v.y : v.x) + gpu_shuffle_xor(odd ? v.x : v.y, 1);
    mine += gpu_shuffle_xor(mine, 2);
    return mine + gpu_shuffle_xor(mine, 4);
}

GPU float4 delta_next(float4 s, float4 k, float decay, float change)
{
    return {fmaf(k.x, change, gpu_mul(s.x, decay)), fmaf(k.y, change, gpu_mul(s.y, decay)),
            fmaf(k.z, change, gpu_mul(s.z, decay)), fmaf(k.w, change, gpu_mul(s.w, decay))};
}

/* What a lane has of a column of S, of queries or of keys. */
struct delta_keys {
    float4 x[DELTA_FOURS];
};

struct delta_held {
    struct delta_keys s[DELTA_EACH];
};

GPU struct delta_keys delta_load(const float *x)
{
    struct delta_keys keys;
#pragma unroll
    for (u32 i = 0; i < DELTA_FOURS; i++)
        keys.x[i] = gpu_load<float4>(x + gpu_lane() % DELTA_LANES * 4 + i * DELTA_STEP);
    return keys;
}

/* This lane's part of a column of S^T x. */
GPU float delta_times(const struct delta_keys *s, const struct delta_keys *x)
{
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < DELTA_FOURS; i++)
        sum = delta_dot(s->x[i], x->x[i], sum);
    return delta_all(sum);
}

/* Where a lane finds v of its columns, and the weights of their head, behind a token's q. */
struct delta_places {
    u32 v, weights;
};

/* n tokens of the part that are there: x. out: of the first, this lane's column, if it is one that
 * `tells`. With each S becomes the next, and y = S^T q + skip v; Mamba erases nothing. Nothing
 * waits for y, so that lanes add theirs up beside what the next token wants; and of that the keys
 * are loaded as soon as nothing needs these. */
template <bool ERASES>
GPU void delta_turns(const float *x, struct delta_places at, u32 n, struct delta_held *held,
                     float *out, u32 stride)
{
    const bool tells = gpu_lane() % DELTA_LANES < DELTA_EACH, odd = gpu_lane() & 1;
    struct delta_keys keys = delta_load(x + LIMIT_DELTA_DIM);
    float2 y = {0, 0}; /* of the last token */
    float skipped = 0;
#pragma unroll(ERASES ? 1 : DELTA_UNROLLED)
    for (u32 i = 0; i < n; i++) {
        const struct delta_keys queries = delta_load(x);
        const float2 v = gpu_load<float2>(x + at.v);
        const float4 w = gpu_load<float4>(x + at.weights);
        float2 had = {0, 0};
        if (ERASES)
            had = {delta_sum(delta_times(&held->s[0], &keys)),
                   delta_sum(delta_times(&held->s[1], &keys))};
        const float sum = delta_sums(y) + skipped;
        if (i && tells)
            out[(i - 1) * stride] = sum;
        const float change[DELTA_EACH] = {w.y * (v.x - w.z * had.x), w.y * (v.y - w.z * had.y)};
#pragma unroll
        for (u32 c = 0; c < DELTA_EACH; c++)
#pragma unroll
            for (u32 j = 0; j < DELTA_FOURS; j++)
                held->s[c].x[j] = delta_next(held->s[c].x[j], keys.x[j], w.x, change[c]);
        skipped = w.w * (odd ? v.y : v.x);
        x += i + 1 < n ? DELTA_NEAR_FLOATS : 0;
        keys = delta_load(x + LIMIT_DELTA_DIM);
        y = {delta_times(&held->s[0], &queries), delta_times(&held->s[1], &queries)};
    }
    const float sum = delta_sums(y) + skipped;
    if (tells)
        out[(n - 1) * stride] = sum;
}

/* The first of two columns of the part that this lane has some of. place: of the block's first
 * warp. Of two blocks that share a multiprocessor one's warps go on with its schedulers where the
 * other's end. */
GPU u32 delta_mine(const struct delta_part *part, u32 place)
{
    const u32 warps = part->n / DELTA_OF_WARP, begin = place < GPU_WARPS ? 0 : warps;
    const u32 warp = (gpu_warp() + place - begin) % 4 + gpu_warp() / 4 * 4;
    return warp * DELTA_OF_WARP + gpu_lane() / DELTA_LANES * DELTA_EACH;
}

/* All tokens of a part: while some have their turn, the next are copied. */
GPU void delta_go(const struct op_delta *op, const struct delta_part *part, u32 place)
{
    float *near = (float *)gpu_shared();
    const u32 half = DELTA_TOKENS * DELTA_NEAR_FLOATS, all = part->row.n;
    const u32 first = delta_first_column(op, part), mine = delta_mine(part, place);
    const bool is = gpu_uniform(mine < part->n); /* all lanes of a warp, or none */
    const u32 column = first + MIN(mine, part->n - DELTA_EACH), lane = gpu_lane() % DELTA_LANES * 4;
    const struct delta_places at = {DELTA_V + column - first,
                                    DELTA_WEIGHTS +
                                        (column / op->value_dim - first / op->value_dim) * 4};
    const struct delta_copying copying = delta_copying_of(op, part);
    const float *rows = gpu_global(op->mixed) + (size_t)part->row.first * op->mixed_stride;
    float *out = gpu_global(op->out) + (size_t)part->row.first * op->out_stride + column +
                 gpu_lane() % DELTA_EACH;
    float *state = delta_state(op, part->row.slot) + column * op->key_dim + lane;
    struct delta_held held = {};
#pragma unroll
    for (u32 i = 0; i < DELTA_FOURS; i++)
#pragma unroll
        for (u32 c = 0; c < DELTA_EACH; c++)
            if (part->row.pos && is && lane + i * DELTA_STEP < op->key_dim)
                held.s[c].x[i] = gpu_load<float4>(state + c * op->key_dim + i * DELTA_STEP);
    u32 next = 0, here = 0, turn = 0;
    do {
        const u32 coming = next < all ? MIN(all - next, (u32)DELTA_TOKENS) : 0;
        delta_copy(&copying, rows, op->mixed_stride, coming, near + turn);
        rows += coming * op->mixed_stride;
        gpu_copy_wait<1>();
        turn ^= half;
        if (here) {
            gpu_sync();
            if (is && op->skip)
                delta_turns<false>(near + turn, at, here, &held, out, op->out_stride);
            else if (is)
                delta_turns<true>(near + turn, at, here, &held, out, op->out_stride);
            out += here * op->out_stride;
            gpu_sync(); /* before others are copied in their place */
        }
        next += DELTA_TOKENS;
        here = coming;
    } while (here);
#pragma unroll
    for (u32 i = 0; i < DELTA_FOURS; i++)
#pragma unroll
        for (u32 c = 0; c < DELTA_EACH; c++)
            if (is && lane + i * DELTA_STEP < op->key_dim)
                gpu_store<float4>(state + c * op->key_dim + i * DELTA_STEP, held.s[c].x[i]);
}

/* Parts go by rows; within one by columns, by heads of keys: as many as there are blocks, or of as
 * many columns as a block can have. */
GPU void delta_run(const struct op_delta *op, const struct gpu_step *s)
{
    const u32 rows = gpu_uniform(s->n_rows), columns = op->shared * op->value_dim;
    const u32 some = MAX(gpu_blocks() / MAX(rows * op->key_heads, 1u), 1u);
    const u32 even = ((columns + some - 1) / some + DELTA_OF_WARP - 1) / DELTA_OF_WARP;
    const u32 width = MIN(even * DELTA_OF_WARP, (u32)DELTA_COLUMNS);
    const u32 parts = (columns + width - 1) / width * op->key_heads;
    struct delta_part part;
    u32 row = 0, *said = (u32 *)gpu_shared();
    if (gpu_thread() == 0)
        *said = gpu_warp_place(); /* all have to know the same */
    gpu_sync();
    const u32 place = gpu_uniform(*said);
    gpu_sync();
    for (u32 i = gpu_block();; i += gpu_blocks()) {
        i = delta_rest(i, parts, &row);
        if (row >= rows)
            break;
        const u32 piece = i / op->key_heads;
        part.key_head = i - piece * op->key_heads;
        part.column = piece * width;
        part.n = MIN(width, columns - part.column);
        part.row = s->rows[row];
        part.row.n = gpu_uniform(part.row.n);
        delta_go(op, &part, place);
    }
}

/* --- behind it ----------------------------------------------------------------------------- */

GPU float4 delta_gate(float4 v, float4 z)
{
    return {v.x * delta_silu(z.x), v.y * delta_silu(z.y), v.z * delta_silu(z.z),
            v.w * delta_silu(z.w)};
}

/* y = rmsnorm(S^T q) * norm * silu(z), in its place; of Mamba silu(z) goes into the norm, if there
 * is one. A warp takes what of a token has a norm to itself, a lane four at a time. */
GPU void delta_norm(const struct op_delta *op, u32 tokens)
{
    const u32 n = op->norm_n, of_key = op->shared * op->value_dim;
    const u32 parts = op->key_heads * of_key / n, all = gpu_uniform(tokens * parts);
    for (u32 item = gpu_uniform(gpu_block() * GPU_WARPS + gpu_warp()); item < all;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / parts, at = (item - token * parts) * n, key_head = at / of_key;
        const float *z = gpu_global(op->in) + (size_t)token * op->stride +
                         (delta_column(op->z, key_head) + at - key_head * of_key);
        float *x = gpu_global(op->out) + (size_t)token * op->out_stride + at;
        const float *norm = gpu_global(op->norm) + (op->skip ? at : 0);
        float by = 1;
        if (op->norm) {
            float4 sum = {0, 0, 0, 0};
#pragma unroll 1
            for (u32 j = gpu_lane() * 4; j < n; j += 128) {
                float4 v = gpu_load<float4>(&x[j]);
                if (op->skip)
                    v = delta_gate(v, gpu_load<float4>(&z[j]));
                sum = delta_dot(v, v, sum);
            }
            by = gpu_rsqrt(gpu_sum_warp(delta_all(sum)) * gpu_reciprocal((float)n) + op->eps);
        }
#pragma unroll 1
        for (u32 j = gpu_lane() * 4; j < n; j += 128) {
            const float4 v = gpu_load<float4>(&x[j]), g = gpu_load<float4>(&z[j]);
            const float4 w = op->norm ? gpu_load<float4>(&norm[j]) : float4{1, 1, 1, 1};
            gpu_store<float4>(
                &x[j],
                delta_gate({v.x * by * w.x, v.y * by * w.y, v.z * by * w.z, v.w * by * w.w}, g));
        }
    }
}

/* Of a channel. */
GPU u32 delta_column_of(const struct op_delta *op, u32 channel)
{
    const u32 keys = op->key_heads * op->key_dim, part = MIN(channel / keys, 2u);
    const u32 of_head = part == 2 ? op->shared * op->value_dim : op->key_dim;
    const u32 in_part = channel - part * keys, head = in_part / of_head;
    return delta_column(part == 0   ? op->q
                        : part == 1 ? op->k
                                    : op->v,
                        head) +
           (in_part - head * of_head);
}

/* The inputs that a later step's tokens will see. A thread takes a channel of a row, oldest first:
 * what moves up is read before it is overwritten. */
GPU void delta_keep(const struct op_delta *op, const struct gpu_step *s)
{
    u32 r = 0, channel = gpu_block() * GPU_THREADS + gpu_thread();
    for (;; channel += gpu_blocks() * GPU_THREADS) {
        channel = delta_rest(channel, op->channels, &r);
        if (r >= s->n_rows)
            break;
        const struct gpu_row row = s->rows[r];
        const u32 column = delta_column_of(op, channel);
        float *past = delta_past(op, row.slot) + channel;
        i32 token = (i32)(row.n + 1 - op->taps);
#pragma unroll 1
        for (; token < (i32)row.n; token++, past += op->channels)
            *past = delta_had(&row, token) ? *delta_input(op, &row, token, channel, column) : 0;
    }
}

/* --- gated attention ----------------------------------------------------------------------- */

/* OP_QUERIES: queries, keys and values as attention wants them; else OP_GATES. A block takes a head
 * of a token. */
GPU void delta_gated(const struct op_gated *op, u32 tokens, bool copies)
{
    const u32 dim = op->head_dim, heads = op->heads + op->kv_heads * 2 * copies;
    u32 token = 0, head = gpu_block();
    for (;; head += gpu_blocks()) {
        head = delta_rest(head, heads, &token);
        if (token >= tokens)
            break;
        const u32 from = (head + MIN(head, op->heads)) * dim; /* behind gates */
        const float *in = gpu_global(op->in) + (size_t)token * op->in_stride + from;
        float *out = gpu_global(op->out) + (size_t)token * op->out_stride + head * dim;
#pragma unroll 1
        for (u32 j = gpu_thread(); j < dim; j += GPU_THREADS)
            out[j] = copies ? in[j] : out[j] * delta_sigmoid(in[dim + j]);
    }
}

/* --- short convolutions -------------------------------------------------------------------- */

/* What the convolution sees of a row's token. */
GPU float short_input(const struct op_delta *op, const struct gpu_row *row, i32 token, u32 channel)
{
    const u32 kept = op->taps - 1 + (u32)token;
    if (token < 0)
        return row->pos ? delta_past(op, row->slot)[kept * op->channels + channel] : 0;
    const float *in = gpu_global(op->in) + (size_t)(row->first + (u32)token) * op->stride + channel;
    return in[0] * in[2 * op->channels];
}

GPU void short_token(const struct op_delta *op, const struct gpu_row *row, u32 token, u32 channel)
{
    const size_t at = row->first + token;
    float sum = 0;
#pragma unroll 1
    for (u32 tap = 0; tap < op->taps; tap++)
        sum = fmaf(gpu_global(op->conv)[tap * op->channels + channel],
                   short_input(op, row, (i32)(token + tap + 1 - op->taps), channel), sum);
    gpu_global(op->out)[at * op->out_stride + channel] =
        gpu_global(op->in)[at * op->stride + op->channels + channel] * sum;
}

/* OP_SHORT. A thread takes a channel of some tokens: none but a row's first see what the slot has
 * kept, so that theirs replaces it, oldest first. */
GPU void short_convolve(const struct op_delta *op, const struct gpu_step *s)
{
    enum { TOKENS = 8 };
    static_assert(TOKENS >= LIMIT_DELTA_TAPS - 1, "what is kept");
    u32 r = 0, i = gpu_block() * GPU_THREADS + gpu_thread();
    struct gpu_row row;
#pragma unroll 1
    for (; delta_find(s->rows, s->n_rows, TOKENS, op->channels, &r, &i, &row);
         i += gpu_blocks() * GPU_THREADS) {
        const u32 first = i / op->channels * TOKENS, channel = i % op->channels;
#pragma unroll 1
        for (u32 t = first; t < MIN(first + TOKENS, row.n); t++)
            short_token(op, &row, t, channel);
        float *kept = delta_past(op, row.slot) + channel;
#pragma unroll 1
        for (u32 t = 1; t < op->taps && first == 0; t++, kept += op->channels)
            *kept = short_input(op, &row, (i32)(row.n + t - op->taps), channel);
    }
}

GPU void delta_op(const struct op *op, const struct gpu_step *s)
{
    const u32 kind = gpu_uniform(op->kind);
    if (kind <= OP_GATES) {
        const struct op_gated gated = op->gated;
        delta_gated(&gated, s->n_tokens, kind == OP_QUERIES);
        return;
    }
    const struct op_delta delta = op->delta;
    if (kind == OP_CONVOLVE) {
        delta_mix_all(&delta, s);
    } else if (kind == OP_DELTA) {
        delta_run(&delta, s);
    } else {
        delta_norm(&delta, s->n_tokens);
        delta_keep(&delta, s);
    }
}

#endif
