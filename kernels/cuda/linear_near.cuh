/* The rows that enter a linear of few tokens, in the shared memory of each block: every block
 * prepares them for itself, since the blocks would have to meet otherwise. The values are those of
 * linear_input.cuh.
 */
#ifndef ZIGCUDA_LINEAR_NEAR_CUH
#define ZIGCUDA_LINEAR_NEAR_CUH

#include "kernels/cuda/linear_input.cuh"

/* A row: [k / 32][4 t][16 bytes], b-fragments as in struct input.prepared. What rows are apart
 * keeps lanes of neighbouring rows in different banks. */
GPU u32 near_stride(u32 k)
{
    return k * 2 + FEW_ROW_PAD_BYTES;
}

/* `measures`: of row r and warp w at [r][w]: sum of squares, and largest |x * norm|. */
GPU void near_measure(const struct input *in, const struct gpu_step *s, u32 rows, float *measures)
{
    for (u32 row = 0; row < rows; row++) {
        float sum, most;
        linear_measure_part(in, linear_row(in, s, row), gpu_warp(), &sum, &most);
        if (gpu_lane() == 0) {
            measures[(row * GPU_WARPS + gpu_warp()) * 2] = sum;
            measures[(row * GPU_WARPS + gpu_warp()) * 2 + 1] = most;
        }
    }
    gpu_sync();
}

GPU struct linear_scale near_scale(const struct input *in, const struct gpu_step *s, u32 row,
                                   const float *measures)
{
    float sum = 0, most = 0;
    if (in->kind == INPUT_ROWS)
        return linear_scale_of(in, 0, gpu_from_bits(in->row_max[linear_token(in, s, row)]));
#pragma unroll
    for (u32 w = 0; w < GPU_WARPS; w++) {
        float part = measures[(row * GPU_WARPS + w) * 2 + 1];
        sum += measures[(row * GPU_WARPS + w) * 2];
        most = part <= most ? most : part;
    }
    return linear_scale_of(in, sum, most);
}

/* Features 4 q .. 4 q + 3 as halves: two words, of neighbouring t. */
GPU void near_put(u32 *row, u32 q, const struct linear_quad *x, const struct linear_quad *norm,
                  const struct linear_scale *s, bool normed, bool int8)
{
    float v[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        v[i] = normed ? x->v[i] * norm->v[i] * s->inverse : x->v[i];
        v[i] *= s->factor;
        v[i] = int8 ? rintf(v[i]) : v[i];
    }
    u32 *to = row + q / 8 * 16 + q % 2 * 8 + q % 8 / 2;
    to[0] = gpu_half2(v[0], v[1]);
    to[4] = gpu_half2(v[2], v[3]);
}

/* How a row becomes halves. */
struct near_how {
    const struct gpu_step *step;
    u32 row;
    const float *measures;
    struct linear_scale *scales; /* of all rows; with one row not there yet */
    bool one;
};

GPU struct linear_scale near_how_of(const struct input *in, const struct near_how *how)
{
    if (!how->one)
        return how->scales[how->row];
    struct linear_scale s = near_scale(in, how->step, 0, how->measures);
    if (gpu_thread() == 0)
        how->scales[0] = s;
    return s;
}

/* An aligned row in the order of its features. Loads have no branch between them, and the scale
 * comes after, so that many are on their way; what is not there is loaded from the row's end and
 * not used. */
template <bool normed>
GPU void near_place(const struct input *in, const float *x, const struct near_how *how, u32 *row)
{
    struct linear_scale s = {1, 1, 1};
    const bool int8 = in->int8;
    const float *from = gpu_global(x), *norm = gpu_global(in->norm);
    const u32 quads = in->k / 4, whole = in->features / 4, AT_ONCE = normed ? 4 : 7;
    for (u32 first = 0; first < quads; first += AT_ONCE * GPU_THREADS) {
        float4 a[AT_ONCE], n[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 at = MIN(first + gpu_thread() + i * GPU_THREADS, whole - 1) * 4;
            a[i] = *(const float4 *)(from + at);
            if (normed)
                n[i] = *(const float4 *)(norm + at);
        }
        if (first == 0)
            s = near_how_of(in, how);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 at = first + gpu_thread() + i * GPU_THREADS;
            bool there = at < whole;
            struct linear_quad v = {
                {there ? a[i].x : 0, there ? a[i].y : 0, there ? a[i].z : 0, there ? a[i].w : 0}};
            struct linear_quad w = v;
            if (normed)
                w = {{n[i].x, n[i].y, n[i].z, n[i].w}};
            if (at < quads)
                near_put(row, at, &v, &w, &s, normed, int8);
        }
    }
}

/* Any row in the order of its features. */
GPU void near_place_any(const struct input *in, const float *x, const struct near_how *how,
                        u32 *row)
{
    const bool normed = in->kind == INPUT_NORM;
    if (linear_aligned(in)) {
        if (normed)
            near_place<true>(in, x, how, row);
        else
            near_place<false>(in, x, how, row);
        return;
    }
    struct linear_scale s = near_how_of(in, how);
    for (u32 q = gpu_thread(); q < in->k / 4; q += GPU_THREADS) {
        struct linear_quad a = linear_load_quad(x, q, in->features, false), n = a;
        if (normed)
            n = linear_load_quad(in->norm, q, in->features, false);
        near_put(row, q, &a, &n, &s, normed, in->int8);
    }
}

/* In another order. */
GPU void near_gather(const struct input *in, const float *x, const struct near_how *how, uint4 *row)
{
    struct linear_scale s = near_how_of(in, how);
    for (u32 i = gpu_thread(); i < in->k / 8; i += GPU_THREADS)
        row[i] = linear_fragment(in, x, &s, i);
}

/* At most FEW_TOKENS rows. `scales`: of each; `measures`: work space of FEW_TOKENS * GPU_WARPS * 2
 * floats. Ends with a barrier. */
GPU_CALL void near_prepare(const struct input *op_in, const struct gpu_step *s, u8 *fragments,
                           struct linear_scale *scales, float *measures)
{
    const struct input in = *op_in;
    u32 rows = linear_rows(&in, s);
    if (in.kind == INPUT_NORM)
        near_measure(&in, s, rows, measures);
    if (rows > 1) { /* else each thread computes the one scale: a barrier less */
        if (gpu_thread() < rows)
            scales[gpu_thread()] = near_scale(&in, s, gpu_thread(), measures);
        gpu_sync();
    }
    for (u32 row = 0; row < rows; row++) {
        const float *x = linear_row(&in, s, row);
        u8 *to = fragments + row * near_stride(in.k);
        struct near_how how = {s, row, measures, scales, rows == 1};
        if (in.order)
            near_gather(&in, x, &how, (uint4 *)to);
        else
            near_place_any(&in, x, &how, (u32 *)to);
    }
    gpu_sync();
}

#endif
