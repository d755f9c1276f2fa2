/* The operations without a matrix product: embedding rows, norm after a block, gates. All are
 * memory traffic; each sum has one order that depends on the row's length alone.
 */
#ifndef ZIGCUDA_VECTOR_CUH
#define ZIGCUDA_VECTOR_CUH

#include "kernels/cuda/linear_weight.cuh"

/* Two neighbouring inputs, the first one even, of output j of a HALF matrix. */
GPU u32 vector_pair_of(const struct matrix *m, u32 j, u32 input)
{
    size_t chunk = (size_t)(j / 16) * (m->k / 16) + input / 16;
    u32 lane = j % 8 * 4 + input % 8 / 2, word = input % 16 / 8 * 2 + j % 16 / 8;
    return gpu_load<u32>(m->data + chunk * 512 + lane * 16 + word * 4);
}

GPU void vector_clear(const struct op_clear *op)
{
    linear_unset(op->places, op->n);
}

GPU u32 vector_token(const struct gpu_run *run, u32 i)
{
    const struct gpu_row *row = &run->step->rows[run->step->token_row[i]];
    return row->flags & ROW_FOLLOWS ? run->state.last[row->slot] : run->step->tokens[i];
}

/* A warp takes 256 features of a token. */
GPU void vector_embed(const struct op_embed *op, const struct gpu_run *run)
{
    const struct matrix m = op->embed;
    const float *scales = gpu_global((const float *)m.scales);
    float *xs = gpu_global(op->x), op_scale = op->scale;
    u32 hidden = op->hidden, stride = op->stride, pieces = CEIL_DIV(hidden, 256u);
    u32 n = run->step->n_tokens * pieces;
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        u32 i = item / pieces, from = item % pieces * 256, token = vector_token(run, i);
        float scale = scales[token] * op_scale, *x = xs + (size_t)i * stride;
        for (u32 j = from + gpu_lane() * 2; j < MIN(from + 256, hidden); j += 64) {
            u32 pair = vector_pair_of(&m, token, j);
            x[j] = gpu_answer(gpu_from_half((u16)pair) * scale);
            if (j + 1 < hidden)
                x[j + 1] = gpu_answer(gpu_from_half((u16)(pair >> 16)) * scale);
        }
    }
}

/* The sum over a block's threads of v, in one order; `work` is GPU_WARPS floats of shared memory
 * that nobody reads any more. */
GPU float vector_sum_block(float v, float *work)
{
    v = gpu_sum_warp(v);
    if (gpu_lane() == 0)
        work[gpu_warp()] = v;
    gpu_sync();
    float sum = 0;
    for (u32 i = 0; i < GPU_WARPS; i++)
        sum += work[i];
    return sum;
}

/* Item i of an OP_ADD_NORM or OP_NORM: a head of a token. */
struct vector_row {
    float *x;
    const float *y;
};
GPU struct vector_row vector_row_of(const struct op_add_norm *op, u32 i)
{
    const u32 token = i / op->heads, at = i % op->heads * op->hidden;
    return {gpu_global(op->x) + (size_t)token * op->x_stride + at,
            gpu_global(op->y) + (size_t)token * op->y_stride + at};
}

/* What becomes of its features `first`, first + step, ..., `n` of them as far as it has so many:
 * all are read before any is written, as x may be y. inverse: of the rms; adds: to what is in x. */
template <u32 n, u32 step>
GPU void vector_norm_some(const struct op_add_norm *op, const struct vector_row *row, bool adds,
                          u32 first, float inverse)
{
    const float *norm = gpu_global(op->norm);
    const u32 hidden = op->hidden;
    float v[n];
#pragma unroll
    for (u32 k = 0; k < n; k++) {
        const u32 j = first + k * step;
        const bool has = n == 1 || j < hidden; /* what others may be writing is not read */
        const float w = op->norm && has ? norm[j] : 1, x = adds && has ? row->x[j] : 0;
        v[k] = gpu_mul(fmaf(gpu_mul(has ? row->y[j] : 0, inverse), w, x), op->scale);
    }
#pragma unroll
    for (u32 k = 0; k < n; k++)
        if (first + k * step < hidden)
            row->x[first + k * step] = v[k];
}

/* A warp takes an item, each lane the parts that lanes of GPU_WARPS warps have where a block takes
 * one: the sums are the same. */
GPU_CALL void vector_add_norms(const struct op_add_norm *op, bool adds, u32 n)
{
    enum { AT_ONCE = 4 };
    const u32 hidden = op->hidden;
    op = gpu_near(op);
#pragma unroll 1
    for (u32 i = gpu_block() * GPU_WARPS + gpu_warp(); i < n; i += gpu_blocks() * GPU_WARPS) {
        const struct vector_row row = vector_row_of(op, i);
        float part[GPU_WARPS] = {}, sum = 0;
#pragma unroll 1
        for (u32 first = gpu_lane(); first < hidden; first += GPU_THREADS)
#pragma unroll
            for (u32 w = 0; w < GPU_WARPS; w++) {
                const float y = first + w * 32 < hidden ? row.y[first + w * 32] : 0;
                part[w] = fmaf(y, y, part[w]);
            }
#pragma unroll
        for (u32 w = 0; w < GPU_WARPS; w++)
            sum += gpu_sum_warp(part[w]);
        const float inverse = 1 / sqrtf(sum / (float)hidden + op->eps);
#pragma unroll 1
        for (u32 first = gpu_lane(); first < hidden; first += 32 * AT_ONCE)
            vector_norm_some<AT_ONCE, 32>(op, &row, adds, first, inverse);
    }
}

/* OP_ADD_NORM, or where it does not add OP_NORM. A block takes an item; in kernels of `many`
 * tokens, where there are more of them, a warp does. at_once: features of a thread, which is code
 * that not all kernels have room for. */
template <bool many, u32 at_once>
GPU void vector_add_norm(const struct op_add_norm *op, const struct gpu_step *s, bool adds = true)
{
    float *work = (float *)gpu_shared();
    const u32 hidden = op->hidden, n = s->n_tokens * op->heads;
    if (many && n > gpu_blocks()) {
        vector_add_norms(op, adds, n);
        return;
    }
    for (u32 i = gpu_block(); i < n; i += gpu_blocks()) {
        const struct vector_row row = vector_row_of(op, i);
        float sum = 0;
#pragma unroll(at_once == 1 ? 4 : 8)
        for (u32 j = gpu_thread(); j < hidden; j += GPU_THREADS)
            sum = fmaf(row.y[j], row.y[j], sum);
        sum = vector_sum_block(sum, work);
        const float inverse = 1 / sqrtf(sum / (float)hidden + op->eps);
#pragma unroll(at_once == 1 ? 4 : 1)
        for (u32 first = gpu_thread(); first < hidden; first += GPU_THREADS * at_once)
            vector_norm_some<at_once, GPU_THREADS>(op, &row, adds, first, inverse);
        gpu_sync(); /* before `work` is used again */
    }
}

/* A block takes a token. */
GPU void vector_shared(const struct op_shared *op, const struct gpu_step *s)
{
    float *work = (float *)gpu_shared(), *xs = gpu_global(op->x), eps = op->eps;
    const float *ys = gpu_global(op->y), *norm = gpu_global(op->norm);
    const float *share = gpu_global(op->share);
    u32 hidden = op->hidden, stride = op->stride, n = s->n_tokens;
    for (u32 i = gpu_block(); i < n; i += gpu_blocks()) {
        float *x = xs + (size_t)i * stride, sum = 0, dot = 0;
        const float *y = ys + (size_t)i * stride;
#pragma unroll 4
        for (u32 j = gpu_thread(); j < hidden; j += GPU_THREADS) {
            sum = fmaf(x[j], x[j], sum);
            dot = fmaf(x[j] * norm[j], share[j], dot);
        }
        sum = vector_sum_block(sum, work);
        gpu_sync(); /* before `work` is used again */
        dot = vector_sum_block(dot, work);
        float inverse = 1 / sqrtf(sum / (float)hidden + eps);
        float part = 1 / (1 + expf(-dot * inverse));
#pragma unroll 4
        for (u32 j = gpu_thread(); j < hidden; j += GPU_THREADS)
            x[j] = fmaf(y[j], part, x[j]);
        gpu_sync();
    }
}

/* A warp takes a head of a token. */
GPU void vector_pairs(const struct op_pairs *op, const struct gpu_step *s)
{
    enum { PAIRS = LIMIT_HEAD_DIM / 64 }; /* of a lane */
    float *xs = gpu_global(op->x), even[PAIRS], odd[PAIRS];
    u32 stride = op->stride, heads = op->heads, dim = op->head_dim, half = op->dims / 2;
    u32 n = s->n_tokens * heads;
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        float *x = xs + (size_t)(item / heads) * stride + item % heads * dim;
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            u32 j = i * 32 + gpu_lane();
            even[i] = j < half ? x[2 * j] : 0;
            odd[i] = j < half ? x[2 * j + 1] : 0;
        }
        gpu_warp_sync();
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            u32 j = i * 32 + gpu_lane();
            if (j < half) {
                x[j] = even[i];
                x[half + j] = odd[i];
            }
        }
    }
}

/* h = max(up, 0) * up, of an MLP without gates. A warp takes 1024 columns of a token, all of which
 * are read before any is written: prompts take as long as memory does, which has to have much to do
 * at once. */
GPU_CALL void vector_square(const struct op_gate *op, u32 tokens)
{
    enum { AT_ONCE = 8 };
    const u32 quads = op->n / 4, pieces = CEIL_DIV(quads, 32u * AT_ONCE);
    op = gpu_near(op);
#pragma unroll 1
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < tokens * pieces;
         item += gpu_blocks() * GPU_WARPS) {
        const u32 token = item / pieces, first = item % pieces * 32 * AT_ONCE + gpu_lane();
        const float *up = gpu_global(op->up) + (size_t)token * op->in_stride;
        float *h = gpu_global(op->h) + (size_t)token * op->h_stride;
        float4 v[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            v[k] = {0, 0, 0, 0}; /* so that nothing is kept for the next turn */
            if (first + k * 32 < quads)
                v[k] = gpu_load<float4>(up + (first + k * 32) * 4);
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++)
            if (first + k * 32 < quads)
                gpu_store<float4>(h + (first + k * 32) * 4,
                                  {fmaxf(v[k].x, 0) * v[k].x, fmaxf(v[k].y, 0) * v[k].y,
                                   fmaxf(v[k].z, 0) * v[k].z, fmaxf(v[k].w, 0) * v[k].w});
    }
}

/* A warp takes 64 columns of a token. relu: knows ACT_RELU, which linears do not; many: that of
 * many tokens, too. */
template <bool relu, bool many>
GPU void vector_gate(const struct op_gate *op, const struct gpu_step *s)
{
    const float *gates = gpu_global(op->gate), *ups = gpu_global(op->up);
    float *hs = gpu_global(op->h);
    u32 columns = op->n, activation = op->activation;
    u32 in_stride = op->in_stride, h_stride = op->h_stride, pieces = CEIL_DIV(columns, 64u);
    u32 n = s->n_tokens * pieces;
    if (many && activation == ACT_RELU && gates == ups &&
        (columns | in_stride | h_stride) % 4 == 0) {
        vector_square(op, s->n_tokens);
        return;
    }
    for (u32 item = gpu_block() * GPU_WARPS + gpu_warp(); item < n;
         item += gpu_blocks() * GPU_WARPS) {
        u32 i = item / pieces, from = item % pieces * 64;
        const float *gate = gates + (size_t)i * in_stride, *up = ups + (size_t)i * in_stride;
        float *h = hs + (size_t)i * h_stride;
        for (u32 j = from + gpu_lane(); j < MIN(from + 64, columns); j += 32) {
            const bool cut = relu && activation == ACT_RELU;
            h[j] = (cut ? fmaxf(gate[j], 0) : linear_activate(gate[j], activation)) * up[j];
        }
    }
}

#endif
