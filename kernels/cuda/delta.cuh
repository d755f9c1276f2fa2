/* Gated delta nets (core/model/model.h, struct delta_net), and the gates of attention beside them.
 * The state goes from token to token, and each sum has one order: so a token's bits depend neither
 * on how a prompt is cut nor on who shares the step.
 *
 * What a slot keeps of a layer are S^T, [value_heads][value_dim][key_dim], and behind them past
 * inputs of the convolution, [taps - 1][channels], the newest token's last.
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

/* --- the state ----------------------------------------------------------------------------- */

/* What a block takes at a time: of a row and a head some columns of S, each in the registers of
 * 8 lanes, or 16, of 16 keys each. Where there are fewer keys, the others are zeros. */
struct delta_part {
    struct gpu_row row;
    u32 head, key_head, nth, column; /* nth: of those of the key head */
    bool many;                       /* 16 lanes a column, and half as many columns */
    u32 wide;                        /* keys of all lanes */
    u32 values;
};

/* Rows in shared memory, `values` wide: q, k, and v of some columns. First those of weights of the
 * convolution, then inputs, from the first that it sees on; in their place what it makes of them,
 * each where its oldest input was. */
struct delta_near {
    float decay[DELTA_TOKENS], beta[DELTA_TOKENS];
    float value[];
};

/* Begins to copy inputs of the row's tokens [first, first + n); weights at first. */
GPU void delta_copy(const struct op_delta *op, const struct delta_part *part, u32 first, u32 n,
                    float *to)
{
    const u32 taps = op->taps, wide = part->wide;
    const u32 q = part->key_head * op->key_dim, k = q + op->key_heads * op->key_dim - wide;
    const u32 v = 2 * op->key_heads * op->key_dim + part->head * op->value_dim + part->column;
    const u32 in_q = delta_column(op->q, part->key_head);
    const u32 in_k = delta_column(op->k, part->key_head) - wide;
    const u32 in_v =
        delta_column(op->v, part->key_head) + part->nth * op->value_dim + part->column - 2 * wide;
    const u32 from = first ? taps : 0, all = (2 * taps - 1 + n - from) * (part->values / 4);
#pragma unroll 1
    for (u32 i = gpu_thread(); i < all; i += GPU_THREADS) {
        const u32 r = part->many ? i / 132 : i / 72, row = from + r;
        const u32 at = i * 4 - r * part->values;
        const bool is_v = at >= 2 * wide, is_k = at >= wide;
        const u32 channel = at + (is_v ? v - 2 * wide : is_k ? k : q);
        const u32 in = at + (is_v ? in_v : is_k ? in_k : in_q);
        const u32 end = is_v ? 2 * wide + op->value_dim - part->column : op->key_dim + wide * is_k;
        const i32 token = (i32)(first + row + 1) - (i32)(2 * taps);
        const float *x = row < taps ? gpu_global(op->conv) + row * op->channels + channel
                                    : delta_input(op, &part->row, token, channel, in);
        const bool is = at < end && (row < taps || delta_had(&part->row, token));
        gpu_copy16(&to[row * part->values + at], is ? x : op->conv, is);
    }
    gpu_copy_commit();
}

/* Decay and beta. A thread takes a token. */
GPU void delta_weigh(const struct op_delta *op, const struct delta_part *part, u32 first, u32 n,
                     struct delta_near *to)
{
    if (gpu_thread() >= n)
        return;
    const size_t token = part->row.first + first + gpu_thread();
    const float *row = gpu_global(op->in) + token * op->stride + part->nth;
    const float a = row[delta_column(op->a, part->key_head)] + gpu_global(op->dt_bias)[part->head];
    const float rate = delta_exp(gpu_global(op->a_log)[part->head]);
    to->beta[gpu_thread()] = delta_sigmoid(row[delta_column(op->b, part->key_head)]);
    to->decay[gpu_thread()] = delta_exp(-rate * delta_softplus(a));
}

/* Convolution and silu. A thread takes a value of all tokens, of four at a time. */
GPU void delta_convolve(const struct op_delta *op, u32 values, u32 n, float *weights)
{
#pragma unroll 1
    for (u32 at = gpu_thread(); at < values; at += GPU_THREADS)
#pragma unroll 1
        for (u32 first = 0; first < n; first += 4) {
            float y[4] = {}, *x = weights + (op->taps + first) * values + at;
#pragma unroll 1
            for (u32 tap = 0; tap < op->taps; tap++)
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    y[i] = fmaf(weights[tap * values + at], x[(tap + i) * values], y[i]);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                x[i * values] = y[i] * delta_sigmoid(y[i]);
        }
}

/* Makes a vector one of this length; of a warp, four or eight values a lane. */
GPU void delta_stretch(float *x, bool more, float length)
{
    float4 *at = (float4 *)x + gpu_lane();
    float4 a = at[0], b = more ? at[32] : float4{0, 0, 0, 0};
    const float sum = fmaf(a.x, a.x, a.y * a.y) + fmaf(a.z, a.z, a.w * a.w) +
                      (fmaf(b.x, b.x, b.y * b.y) + fmaf(b.z, b.z, b.w * b.w));
    const float by = length * gpu_rsqrt(gpu_sum_warp(sum) + 1e-6f);
    at[0] = {a.x * by, a.y * by, a.z * by, a.w * by};
    if (more)
        at[32] = {b.x * by, b.y * by, b.z * by, b.w * by};
}

/* Brings the row's tokens [first, first + n); returns where the first is. */
GPU float *delta_bring(const struct op_delta *op, const struct delta_part *part, u32 first, u32 n,
                       struct delta_near *near)
{
    float *x = near->value + op->taps * part->values;
    delta_copy(op, part, first, n, near->value);
    delta_weigh(op, part, first, n, near);
    gpu_copy_wait<0>();
    gpu_sync();
    delta_convolve(op, part->values, n, near->value);
    gpu_sync();
#pragma unroll 1
    for (u32 i = gpu_uniform(gpu_warp()); i < 2 * n; i += GPU_WARPS)
        delta_stretch(&x[i / 2 * part->values + i % 2 * part->wide], part->many,
                      i % 2 ? 1 : gpu_rsqrt((float)op->key_dim));
    gpu_sync();
    return x;
}

GPU float4 delta_dot(float4 a, float4 b, float4 sum)
{
    return {fmaf(a.x, b.x, sum.x), fmaf(a.y, b.y, sum.y), fmaf(a.z, b.z, sum.z),
            fmaf(a.w, b.w, sum.w)};
}

/* The sum over a column's lanes. */
GPU float delta_sum(float4 sum, bool many)
{
    float v = (sum.x + sum.y) + (sum.z + sum.w);
    if (many)
        v += gpu_shuffle_xor(v, 8);
#pragma unroll
    for (u32 mask = 4; mask; mask /= 2)
        v += gpu_shuffle_xor(v, mask);
    return v;
}

GPU float4 delta_next(float4 s, float4 k, float decay, float change)
{
    return {fmaf(k.x, change, gpu_mul(s.x, decay)), fmaf(k.y, change, gpu_mul(s.y, decay)),
            fmaf(k.z, change, gpu_mul(s.z, decay)), fmaf(k.w, change, gpu_mul(s.w, decay))};
}

enum { DELTA_PIECES = 4, DELTA_STEP = 32 }; /* of a lane's keys; keys from one to the next */

/* A token's turn: S becomes the next; returns a column of S^T q. q, k: the lane's first. */
GPU float delta_turn(float4 s[DELTA_PIECES], const float *q, const float *k, float v, bool many,
                     float decay, float beta)
{
    float4 key[DELTA_PIECES], seen = {0, 0, 0, 0}, out = {0, 0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < DELTA_PIECES; i++) {
        key[i] = gpu_load<float4>(&k[i * DELTA_STEP]);
        seen = delta_dot(s[i], key[i], seen);
    }
    const float change = beta * (v - decay * delta_sum(seen, many));
#pragma unroll
    for (u32 i = 0; i < DELTA_PIECES; i++) {
        s[i] = delta_next(s[i], key[i], decay, change);
        out = delta_dot(s[i], gpu_load<float4>(&q[i * DELTA_STEP]), out);
    }
    return delta_sum(out, many);
}

/* All tokens of a part. */
GPU void delta_go(const struct op_delta *op, const struct delta_part *part)
{
    struct delta_near *near = (struct delta_near *)gpu_shared();
    const u32 at = gpu_lane() % 8 * 4 + (part->many ? gpu_lane() / 8 % 2 * 128 : 0);
    const u32 mine = gpu_thread() >> (part->many ? 4 : 3),
              column = part->head * op->value_dim + part->column + mine;
    const bool is = part->column + mine < op->value_dim;
    float *state = delta_state(op, part->row.slot) + column * op->key_dim + at;
    float *out = gpu_global(op->out) + (size_t)part->row.first * op->out_stride + column;
    float4 s[DELTA_PIECES];
#pragma unroll
    for (u32 i = 0; i < DELTA_PIECES; i++)
        s[i] = is && part->row.pos && at + i * DELTA_STEP < op->key_dim
                   ? gpu_load<float4>(&state[i * DELTA_STEP])
                   : float4{0, 0, 0, 0};
    for (u32 first = 0; first < part->row.n; first += DELTA_TOKENS) {
        const u32 n = MIN(part->row.n - first, (u32)DELTA_TOKENS);
        const float *x = delta_bring(op, part, first, n, near);
#pragma unroll 1
        for (u32 i = 0; i < n; i++, x += part->values, out += op->out_stride) {
            const float y = delta_turn(s, x + at, x + at + part->wide, x[2 * part->wide + mine],
                                       part->many, near->decay[i], near->beta[i]);
            if (is && at == 0)
                *out = y;
        }
        gpu_sync(); /* before the next are brought */
    }
#pragma unroll
    for (u32 i = 0; i < DELTA_PIECES; i++)
        if (is && at + i * DELTA_STEP < op->key_dim)
            gpu_store<float4>(&state[i * DELTA_STEP], s[i]);
}

/* Parts go by rows; within one by columns, by heads of a key head, by key heads. */
GPU void delta_run(const struct op_delta *op, const struct gpu_step *s)
{
    const bool many = gpu_uniform(op->key_dim > 128);
    const u32 columns = many ? 16 : 32, rows = gpu_uniform(s->n_rows);
    const u32 parts = (op->value_dim + columns - 1) / columns * op->value_heads;
    struct delta_part part = {{}, 0, 0, 0, 0, many, many ? 256u : 128u, many ? 528u : 288u};
    u32 row = 0;
    for (u32 i = gpu_block();; i += gpu_blocks()) {
        i = delta_rest(i, parts, &row);
        if (row >= rows)
            break;
        u32 piece = 0;
        part.nth = 0;
        part.key_head =
            delta_rest(delta_rest(i, op->value_heads, &piece), op->key_heads, &part.nth);
        part.head = part.key_head * op->shared + part.nth;
        part.column = piece * columns;
        part.row = s->rows[row];
        part.row.n = gpu_uniform(part.row.n);
        delta_go(op, &part);
    }
}

/* --- behind it ----------------------------------------------------------------------------- */

/* y = rmsnorm(S^T q) * norm * silu(z), in its place. A warp takes a head of a token. */
GPU void delta_norm(const struct op_delta *op, u32 tokens)
{
    const u32 dim = op->value_dim, all = gpu_uniform(tokens * op->value_heads);
    for (u32 item = gpu_uniform(gpu_block() * GPU_WARPS + gpu_warp()); item < all;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / op->value_heads, head = item - token * op->value_heads;
        const u32 key_head = head / op->shared, nth = head - key_head * op->shared;
        const float *z = gpu_global(op->in) + (size_t)token * op->stride +
                         (delta_column(op->z, key_head) + nth * dim);
        float *x = gpu_global(op->out) + (size_t)token * op->out_stride + head * dim;
        float4 sum = {0, 0, 0, 0};
#pragma unroll 1
        for (u32 j = gpu_lane() * 4; j < dim; j += 128) {
            const float4 v = gpu_load<float4>(&x[j]);
            sum = delta_dot(v, v, sum);
        }
        gpu_warp_sync();
        const float all_sum = gpu_sum_warp((sum.x + sum.y) + (sum.z + sum.w));
        const float by = gpu_rsqrt(all_sum * gpu_reciprocal((float)dim) + op->eps);
#pragma unroll 1
        for (u32 j = gpu_lane() * 4; j < dim; j += 128) {
            const float4 v = gpu_load<float4>(&x[j]), g = gpu_load<float4>(&z[j]);
            const float4 w = gpu_load<float4>(gpu_global(op->norm) + j);
            gpu_store<float4>(&x[j], {v.x * by * w.x * (g.x * delta_sigmoid(g.x)),
                                      v.y * by * w.y * (g.y * delta_sigmoid(g.y)),
                                      v.z * by * w.z * (g.z * delta_sigmoid(g.z)),
                                      v.w * by * w.w * (g.w * delta_sigmoid(g.w))});
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

GPU void delta_op(const struct op *op, const struct gpu_step *s)
{
    const u32 kind = gpu_uniform(op->kind);
    if (kind <= OP_GATES) {
        const struct op_gated gated = op->gated;
        delta_gated(&gated, s->n_tokens, kind == OP_QUERIES);
        return;
    }
    const struct op_delta delta = op->delta;
    if (kind == OP_DELTA) {
        delta_run(&delta, s);
    } else {
        delta_norm(&delta, s->n_tokens);
        delta_keep(&delta, s);
    }
}

#endif
