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

/* Four channels of four tokens, from channel `at` of the piece on: convolution and silu. y: 0. */
GPU void delta_convolve(const struct op_delta *op, const struct delta_piece *p, u32 at, float4 y[4])
{
    if (op->conv_bias)
        y[0] = y[1] = y[2] = y[3] = gpu_load<float4>(gpu_global(op->conv_bias) + p->channel + at);
#pragma unroll 1
    for (u32 tap = 0; tap < op->taps; tap++) {
        const float4 w =
            gpu_load<float4>(gpu_global(op->conv) + tap * op->channels + p->channel + at);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const i32 token = (i32)(p->first + i + tap + 1) - (i32)op->taps;
            if (i < p->n && delta_had(&p->row, token))
                y[i] = delta_dot(w,
                                 gpu_load<float4>(delta_input(op, &p->row, token, p->channel + at,
                                                              p->column + at)),
                                 y[i]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        y[i] = {delta_silu(y[i].x), delta_silu(y[i].y), delta_silu(y[i].z), delta_silu(y[i].w)};
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
    float4 y[4] = {};
    if (at < p->dim)
        delta_convolve(op, p, at, y);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        float by = 1;
        if (!p->is_v && !op->skip)
            by = length *
                 gpu_rsqrt(gpu_sum_warp(delta_all(delta_dot(y[i], y[i], {0, 0, 0, 0}))) + 1e-6f);
        if (i < p->n && at < p->dim)
            gpu_store<float4>(to + i * op->mixed_stride + p->channel + at,
                              {y[i].x * by, y[i].y * by, y[i].z * by, y[i].w * by});
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
    for (; delta_find(s->rows, rows, 4, heads, &r, &i, &row); i += gpu_blocks() * GPU_WARPS) {
        const u32 four = i / heads;
        const struct delta_piece p = delta_piece_of(op, &row, four * 4, i - four * heads);
        delta_mix(op, &p);
    }
}

/* --- the state ----------------------------------------------------------------------------- */

enum {
    DELTA_LANES = 16, /* of two columns of S, of which each has 8 keys in registers: four side by
                         side, and four DELTA_STEP further on */
    DELTA_COLUMNS = GPU_THREADS / DELTA_LANES * 2,
    DELTA_STEP = DELTA_LANES * 4,
    DELTA_V = 2 * LIMIT_DELTA_DIM, /* of a token in shared memory: q, k, from here on v of the
                                      columns, */
    DELTA_WEIGHTS = DELTA_V + DELTA_COLUMNS, /* and the head's four */
};
static_assert(2 * DELTA_STEP == LIMIT_DELTA_DIM && DELTA_WEIGHTS + 4 == DELTA_NEAR_FLOATS, "all");

/* What a block takes at a time: of a row and a head some columns of S. */
struct delta_part {
    struct gpu_row row;
    u32 head, key_head, column;
};

/* Begins to copy the row's tokens [first, first + n). Where there are fewer keys, or columns, the
 * rest are zeros. */
GPU void delta_copy(const struct op_delta *op, const struct delta_part *part, u32 first, u32 n,
                    float *to)
{
    enum { PIECES = DELTA_NEAR_FLOATS / 4 };
    const float *rows =
        gpu_global(op->mixed) + (size_t)(part->row.first + first) * op->mixed_stride;
    const u32 keys = op->key_heads * op->key_dim, q = part->key_head * op->key_dim;
    const u32 v = 2 * keys + part->head * op->value_dim + part->column;
#pragma unroll 1
    for (u32 i = gpu_thread(); i < n * PIECES; i += GPU_THREADS) {
        const u32 token = i / PIECES, at = (i - token * PIECES) * 4;
        const bool is_k = at >= LIMIT_DELTA_DIM;
        u32 from = at < DELTA_V ? at + (is_k ? keys + q - LIMIT_DELTA_DIM : q) : at + v - DELTA_V;
        bool is = at < DELTA_V ? at < op->key_dim + LIMIT_DELTA_DIM * is_k
                               : part->column + at - DELTA_V < op->value_dim;
        if (at == DELTA_WEIGHTS) {
            from = op->channels + part->head * 4;
            is = true;
        }
        gpu_copy16(&to[token * DELTA_NEAR_FLOATS + at],
                   rows + (is ? token * op->mixed_stride + from : 0), is);
    }
    gpu_copy_commit();
}

/* Of two columns the sums over their lanes. */
GPU float2 delta_sum(float2 v)
{
    const bool odd = gpu_lane() & 1;
    float mine = (odd ? v.y : v.x) + gpu_shuffle_xor(odd ? v.x : v.y, 1);
#pragma unroll
    for (u32 mask = DELTA_LANES / 2; mask > 1; mask /= 2)
        mine += gpu_shuffle_xor(mine, mask);
    const float other = gpu_shuffle_xor(mine, 1);
    return {odd ? other : mine, odd ? mine : other};
}

/* The same of four tokens at once, added up in the same order: lane 4 t of a column's, and lane 4 t
 * + 1 for the second, have that of token t. */
GPU float delta_sums(const float2 v[4])
{
    const bool odd = gpu_lane() & 1, second = gpu_lane() & 4, high = gpu_lane() & 8;
    float one[4], two[2];
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        one[i] = (odd ? v[i].y : v[i].x) + gpu_shuffle_xor(odd ? v[i].x : v[i].y, 1);
#pragma unroll
    for (u32 i = 0; i < 2; i++)
        two[i] = (high ? one[i + 2] : one[i]) + gpu_shuffle_xor(high ? one[i] : one[i + 2], 8);
    float mine = (second ? two[1] : two[0]) + gpu_shuffle_xor(second ? two[0] : two[1], 4);
    return mine + gpu_shuffle_xor(mine, 2);
}

GPU float4 delta_next(float4 s, float4 k, float decay, float change)
{
    return {fmaf(k.x, change, gpu_mul(s.x, decay)), fmaf(k.y, change, gpu_mul(s.y, decay)),
            fmaf(k.z, change, gpu_mul(s.z, decay)), fmaf(k.w, change, gpu_mul(s.w, decay))};
}

/* A lane's part of S: [column][piece]. */
struct delta_held {
    float4 s[2][2];
};

/* A token's turn: S becomes the next; returns this lane's part of two columns of S^T q. */
GPU float2 delta_turn(struct delta_held *held, const float *token)
{
    const float4 zero = {0, 0, 0, 0};
    const u32 at = gpu_lane() % DELTA_LANES * 4, column = gpu_thread() / DELTA_LANES * 2;
    const float4 k[2] = {gpu_load<float4>(token + LIMIT_DELTA_DIM + at),
                         gpu_load<float4>(token + LIMIT_DELTA_DIM + DELTA_STEP + at)};
    const float4 q[2] = {gpu_load<float4>(token + at), gpu_load<float4>(token + DELTA_STEP + at)};
    const float decay = token[DELTA_WEIGHTS], beta = token[DELTA_WEIGHTS + 1];
    const float erase = token[DELTA_WEIGHTS + 2];
    float seen[2], out[2];
#pragma unroll
    for (u32 c = 0; c < 2; c++)
        seen[c] = delta_all(delta_dot(held->s[c][1], k[1], delta_dot(held->s[c][0], k[0], zero)));
    const float2 had = delta_sum({seen[0], seen[1]});
    const float change[2] = {beta * (token[DELTA_V + column] - erase * had.x),
                             beta * (token[DELTA_V + column + 1] - erase * had.y)};
#pragma unroll
    for (u32 c = 0; c < 2; c++) {
        held->s[c][0] = delta_next(held->s[c][0], k[0], decay, change[c]);
        held->s[c][1] = delta_next(held->s[c][1], k[1], decay, change[c]);
        out[c] = delta_all(delta_dot(held->s[c][1], q[1], delta_dot(held->s[c][0], q[0], zero)));
    }
    return {out[0], out[1]};
}

/* y + skip v of a column. */
GPU float delta_skip(float y, const float *token, u32 column)
{
    return fmaf(token[DELTA_WEIGHTS + 3], token[DELTA_V + column], y);
}

/* n tokens of the part that are there: x. out: of the first. Four at a time, without a branch, so
 * that what the next ones want is loaded meanwhile. */
GPU void delta_turns(const struct op_delta *op, const struct delta_part *part, const float *x,
                     u32 n, struct delta_held *held, float *out)
{
    const u32 lane = gpu_lane() % DELTA_LANES, nth = lane / 4;
    const u32 column = gpu_thread() / DELTA_LANES * 2 + lane % 2;
    const bool is = lane % 4 < 2 && part->column + column < op->value_dim;
    out += column;
#pragma unroll 1
    for (; n >= 4; n -= 4, x += 4 * DELTA_NEAR_FLOATS, out += 4 * op->out_stride) {
        float2 sum[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            sum[j] = delta_turn(held, x + j * DELTA_NEAR_FLOATS);
        const float y = delta_sums(sum);
        if (is)
            out[nth * op->out_stride] = delta_skip(y, x + nth * DELTA_NEAR_FLOATS, column);
    }
#pragma unroll 1
    for (; n; n--, x += DELTA_NEAR_FLOATS, out += op->out_stride) {
        const float2 sum[4] = {delta_turn(held, x), {0, 0}, {0, 0}, {0, 0}};
        const float y = delta_sums(sum);
        if (is && nth == 0)
            *out = delta_skip(y, x, column);
    }
}

/* Where this lane's part of S is, of one of its columns; are they columns that there are? */
GPU float *delta_held_at(const struct op_delta *op, const struct delta_part *part, u32 c)
{
    const u32 column = part->column + gpu_thread() / DELTA_LANES * 2 + c;
    return delta_state(op, part->row.slot) + (part->head * op->value_dim + column) * op->key_dim +
           gpu_lane() % DELTA_LANES * 4;
}

GPU bool delta_holds(const struct op_delta *op, const struct delta_part *part, u32 piece)
{
    return gpu_lane() % DELTA_LANES * 4 + piece * DELTA_STEP < op->key_dim &&
           part->column + gpu_thread() / DELTA_LANES * 2 < op->value_dim;
}

/* All tokens of a part: while some have their turn, the next are copied. */
GPU void delta_go(const struct op_delta *op, const struct delta_part *part)
{
    float *near = (float *)gpu_shared();
    const u32 half = DELTA_TOKENS * DELTA_NEAR_FLOATS, all = part->row.n;
    float *out = gpu_global(op->out) + (size_t)part->row.first * op->out_stride +
                 part->head * op->value_dim + part->column;
    struct delta_held held = {};
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (part->row.pos && delta_holds(op, part, i % 2))
            held.s[i / 2][i % 2] =
                gpu_load<float4>(delta_held_at(op, part, i / 2) + i % 2 * DELTA_STEP);
    u32 next = 0, here = 0, turn = 0;
    do {
        const u32 coming = next < all ? MIN(all - next, (u32)DELTA_TOKENS) : 0;
        delta_copy(op, part, next, coming, near + turn);
        gpu_copy_wait<1>();
        turn ^= half;
        if (here) {
            gpu_sync();
            delta_turns(op, part, near + turn, here, &held, out);
            out += (size_t)here * op->out_stride;
            gpu_sync(); /* before others are copied in their place */
        }
        next += DELTA_TOKENS;
        here = coming;
    } while (here);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (delta_holds(op, part, i % 2))
            gpu_store<float4>(delta_held_at(op, part, i / 2) + i % 2 * DELTA_STEP,
                              held.s[i / 2][i % 2]);
}

/* Parts go by rows; within one by columns, by heads. */
GPU void delta_run(const struct op_delta *op, const struct gpu_step *s)
{
    const u32 rows = gpu_uniform(s->n_rows);
    const u32 parts = (op->value_dim + DELTA_COLUMNS - 1) / DELTA_COLUMNS * op->value_heads;
    struct delta_part part;
    u32 row = 0;
    for (u32 i = gpu_block();; i += gpu_blocks()) {
        i = delta_rest(i, parts, &row);
        if (row >= rows)
            break;
        u32 piece = 0;
        part.head = delta_rest(i, op->value_heads, &piece);
        part.key_head = 0;
        delta_rest(part.head, op->shared, &part.key_head);
        part.column = piece * DELTA_COLUMNS;
        part.row = s->rows[row];
        part.row.n = gpu_uniform(part.row.n);
        delta_go(op, &part);
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
#pragma unroll 2
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
