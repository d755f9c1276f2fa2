/* The rows that enter a linear of few tokens, in the shared memory of each block: every block
 * prepares them for itself, since the blocks would have to meet otherwise. The values are those of
 * linear_input.cuh.
 */
#ifndef ZIGCUDA_LINEAR_NEAR_CUH
#define ZIGCUDA_LINEAR_NEAR_CUH

#include "kernels/cuda/linear_input.cuh"

/* A row is
 *   halves    [k / 32][4 t][16 bytes], b-fragments as in struct input.prepared; what rows are apart
 *             keeps lanes of neighbouring rows in different banks
 *   bytes     where it is alone and meets INT4: [k / 64][high, low][4 t][4 tiles of 16 inputs][4]:
 *             of the inputs 2t, 2t + 8, 2t + 1, 2t + 9 of a tile, as packed weights have them; an
 *             input is 128 high + low in units of 2^-24, the smallest half
 */
GPU u32 near_stride(u32 k)
{
    return FEW_ROW_BYTES(k);
}

/* What the warps measured of a row, together: sum of squares, and largest |x * norm|. Those of all
 * warps stand side by side: first the sums. */
GPU void near_measures(const float *measures, float *sum, float *most)
{
    static_assert(GPU_WARPS == 8, "two vectors of each");
    const float4 *v = (const float4 *)measures;
    const float4 a = v[0], b = v[1], c = v[2], d = v[3];
    const float sums[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    const float parts[8] = {c.x, c.y, c.z, c.w, d.x, d.y, d.z, d.w};
    *sum = *most = 0;
#pragma unroll
    for (u32 w = 0; w < GPU_WARPS; w++) {
        *sum += sums[w];
        *most = linear_larger(*most, parts[w]);
    }
}

/* Leaves what this warp measured. */
GPU void near_leave(float *measures, float sum, float most)
{
    if (gpu_lane() == 0) {
        measures[gpu_warp()] = sum;
        measures[GPU_WARPS + gpu_warp()] = most;
    }
}

/* This thread's features of an aligned row, all of them on their way at once: loads have no branch
 * between them; what is behind the row is loaded from its end. */
template <u32 held> GPU void near_load(float4 v[held], const float *x, u32 first, u32 whole)
{
    const float *from = gpu_global(x);
#pragma unroll
    for (u32 i = first; i < held; i++)
        v[i] = *(const float4 *)(from + MIN(gpu_thread() + i * GPU_THREADS, whole - 1) * 4);
}

/* --- one row, which is held in registers ---------------------------------------------------- */

/* How: so many times four features a thread. */
enum near_way {
    NEAR_ANY, /* not at all */
    NEAR_ROW,
    NEAR_LONG_ROW,
    NEAR_NORM,
    NEAR_LONG_NORM,
    NEAR_HELD = 4,
    NEAR_HELD_LONG_ROW = NEAR_ROW_FEATURES / 4 / GPU_THREADS,
    NEAR_HELD_LONG_NORM = NEAR_NORM_FEATURES / 4 / GPU_THREADS,
};

/* What is known of a linear's input before the blocks have met: then the row itself is all that is
 * still waited for. */
struct near_ahead {
    u32 way, quads, whole; /* four features each: packed ones; those that there are */
    bool awaited;
    const float *x;
    const u32 *most;              /* of the row; NULL: it is measured */
    float4 n[NEAR_HELD];          /* NEAR_NORM: this thread's */
    float4 v[NEAR_HELD_LONG_ROW]; /* of the row, this thread's; near_look */
    float most_of;
};

GPU struct near_ahead near_look_ahead(const struct input *in, const struct gpu_step *s)
{
    struct near_ahead a = {};
    bool norm = in->kind == INPUT_NORM;
    const u32 long_held = norm ? NEAR_HELD_LONG_NORM : NEAR_HELD_LONG_ROW;
    a.quads = in->k / 4;
    a.whole = in->features / 4;
    if (linear_rows(in, s) != 1 || in->order || !linear_aligned(in) ||
        a.quads > long_held * GPU_THREADS)
        return a;
    a.way = (norm ? NEAR_NORM : NEAR_ROW) + (a.quads > NEAR_HELD * GPU_THREADS);
    a.x = linear_row(in, s, 0);
    a.awaited = in->awaited;
    a.most = norm || a.awaited ? NULL : in->row_max + linear_token(in, s, 0);
    if (a.way == NEAR_NORM)
        near_load<NEAR_HELD>(a.n, in->norm, 0, a.whole);
    return a;
}

/* The same of an awaited row: what is missing is asked for again until all is there. */
template <u32 held> GPU void near_await(float4 v[held], const float *x, u32 whole)
{
    bool missing;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        v[i] = gpu_ask4(x + MIN(gpu_thread() + i * GPU_THREADS, whole - 1) * 4);
    do {
        missing = false;
#pragma unroll
        for (u32 i = 0; i < held; i++)
            if (gpu_missing(v[i])) {
                v[i] = gpu_ask4(x + MIN(gpu_thread() + i * GPU_THREADS, whole - 1) * 4);
                missing = true;
            }
        if (missing)
            gpu_pause();
    } while (missing);
}

/* Asks for the row, if it is to be held, as soon as the blocks have met, or are not going to. */
template <bool one> GPU void near_look(struct near_ahead *a)
{
    if (a->way == NEAR_ANY)
        return;
    if (one && a->awaited) {
        if (a->way == NEAR_LONG_ROW)
            near_await<NEAR_HELD_LONG_ROW>(a->v, a->x, a->whole);
        else if (a->way == NEAR_LONG_NORM)
            near_await<NEAR_HELD_LONG_NORM>(a->v, a->x, a->whole);
        else
            near_await<NEAR_HELD>(a->v, a->x, a->whole);
        return;
    }
    near_load<NEAR_HELD>(a->v, a->x, 0, a->whole);
    if (a->way == NEAR_LONG_ROW)
        near_load<NEAR_HELD_LONG_ROW>(a->v, a->x, NEAR_HELD, a->whole);
    else if (a->way == NEAR_LONG_NORM)
        near_load<NEAR_HELD_LONG_NORM>(a->v, a->x, NEAR_HELD, a->whole);
    a->most_of = a->most ? gpu_from_bits(*gpu_global(a->most)) : 0;
}

/* As linear_measure_part, of this warp's part; v becomes v * norm. */
template <bool normed, u32 held>
GPU void near_measure_held(float4 v[held], const float4 norm[held], float *sum, float *most)
{
    float squares = 0;
    u32 top = 0;
#pragma unroll
    for (u32 j = 0; j < held; j++) {
        u32 sizes[4];
        float x[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if constexpr (normed) {
                const float n[4] = {norm[j].x, norm[j].y, norm[j].z, norm[j].w};
                squares = fmaf(x[i], x[i], squares);
                x[i] *= n[i];
            }
            sizes[i] = gpu_bits(fabsf(x[i]));
        }
        top = MAX(top, gpu_most<4>(sizes));
        v[j] = {x[0], x[1], x[2], x[3]};
    }
    *sum = normed ? gpu_sum_warp(squares) : 0;
    *most = linear_most_warp(gpu_from_bits(top));
}

/* Features 4 q .. 4 q + 3 of a thread as bytes, those of all lanes side by side. Lanes of the first
 * 8 inputs of a tile put the high bytes of all 16, those of the last 8 the low ones. There is no
 * branch, so that several go at once. Returns the sum of these four, in units of 2^-24. */
GPU i32 near_put_bytes(u8 *row, u32 q, const float4 *x, const struct linear_scale *s, bool some)
{
    const float m = s->inverse * s->factor;
    const u32 halves[2] = {gpu_half2(x->x * m, x->y * m), gpu_half2(x->z * m, x->w * m)};
    const bool first = q % 4 < 2;
    u32 high, low;
    linear_split(halves, &high, &low);
    u32 theirs = gpu_shuffle_xor(first ? low : high, 2);
    u32 a = first ? high : theirs, b = first ? theirs : low;
    u8 *to = row + q / 16 * 128 + q % 4 / 2 * 64 + q % 2 * 32 + q / 4 % 4 * 4;
    if (some) {
        *(u32 *)to = gpu_permute_bytes(a, b, 0x5140);
        *(u32 *)(to + 16) = gpu_permute_bytes(a, b, 0x7362);
    }
#ifdef GPU_GROUPS
    return 128 * gpu_add_bytes(high) + gpu_add_bytes(low);
#else
    return 0;
#endif
}

/* Features 4 q .. 4 q + 3 as halves: two words, of neighbouring t. */
GPU void near_put(u32 *row, u32 q, const float x[4], const struct linear_scale *s, bool int8)
{
    float v[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        v[i] = x[i] * s->inverse * s->factor;
        v[i] = int8 ? rintf(v[i]) : v[i];
    }
    u32 *to = row + q / 8 * 16 + q % 2 * 8 + q % 8 / 2;
    to[0] = gpu_half2(v[0], v[1]);
    to[4] = gpu_half2(v[2], v[3]);
}

/* The row that near_look has asked for, of bytes where it meets INT4; then `scale` is that of an
 * integer. measures: work space of GPU_WARPS * 2 floats. one: in `one_token`; the row may have been
 * awaited, and of bytes, `sums` gets those of groups of 128. Ends with a barrier. */
template <bool normed, u32 held, bool one>
GPU void near_one(const struct input *in, struct near_ahead *a, u32 *row,
                  struct linear_scale *scale, float *measures, i32 *sums)
{
    float4 *v = a->v, n[normed ? held : 1];
    float sum = 0, most = a->most_of;
    if constexpr (normed && held > NEAR_HELD)
        near_load<held>(n, in->norm, 0, a->whole);
    else if constexpr (normed)
        for (u32 i = 0; i < held; i++)
            n[i] = a->n[i];
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (gpu_thread() + i * GPU_THREADS >= a->whole)
            v[i] = {0, 0, 0, 0};
    if (normed || (one && !a->most)) {
        near_measure_held<normed, held>(v, n, &sum, &most);
        near_leave(measures, sum, most);
        gpu_sync();
        near_measures(measures, &sum, &most);
    }
    const struct linear_scale s = linear_scale_of(linear_how_of(in), sum, most);
    const bool int8 = in->int8, bytes = in->group != 0;
#pragma unroll
    for (u32 i = 0; i < held && bytes; i++) {
        const u32 q = gpu_thread() + i * GPU_THREADS;
        i32 sum_of = near_put_bytes((u8 *)row, q, &v[i], &s, q < a->quads);
#ifdef GPU_GROUPS
        if (one) /* a warp has the quads of a group */
            sum_of = gpu_add_warp(sum_of);
        if (one && gpu_lane() == 0 && q < a->quads)
            sums[q / 32] = sum_of;
#endif
    }
#pragma unroll
    for (u32 i = 0; i < held && !bytes; i++) {
        const float y[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        if (gpu_thread() + i * GPU_THREADS < a->quads)
            near_put(row, gpu_thread() + i * GPU_THREADS, y, &s, int8);
    }
    if (gpu_thread() == 0) {
        *scale = s;
        if (bytes)
            scale->scale *= 0x1p-24f;
    }
    gpu_sync();
}

template <bool one>
GPU void near_prepare_one(const struct input *in, struct near_ahead *a, u8 *fragments,
                          struct linear_scale *scale, float *measures, i32 *sums)
{
    u32 *row = (u32 *)fragments;
    if (a->way == NEAR_NORM)
        near_one<true, NEAR_HELD, one>(in, a, row, scale, measures, sums);
    else if (a->way == NEAR_ROW)
        near_one<false, NEAR_HELD, one>(in, a, row, scale, measures, sums);
    else if (a->way == NEAR_LONG_ROW)
        near_one<false, NEAR_HELD_LONG_ROW, one>(in, a, row, scale, measures, sums);
    else
        near_one<true, NEAR_HELD_LONG_NORM, one>(in, a, row, scale, measures, sums);
}

/* --- some rows ------------------------------------------------------------------------------- */

/* `measures`: those of row r at [r * GPU_WARPS * 2]. */
GPU void near_measure(const struct input *in, const struct gpu_step *s, u32 rows, float *measures)
{
    for (u32 row = 0; row < rows; row++) {
        float sum, most;
        linear_measure_part(in, linear_row(in, s, row), gpu_warp(), &sum, &most);
        near_leave(measures + row * GPU_WARPS * 2, sum, most);
    }
    gpu_sync();
}

GPU struct linear_scale near_scale(const struct input *in, const struct gpu_step *s, u32 row,
                                   const float *measures)
{
    float sum = 0, most = 0;
    if (in->kind == INPUT_ROWS)
        most = gpu_from_bits(in->row_max[linear_token(in, s, row)]);
    else
        near_measures(measures + row * GPU_WARPS * 2, &sum, &most);
    return linear_scale_of(linear_how_of(in), sum, most);
}

/* An aligned row in the order of its features. Loads have no branch between them. */
template <bool normed>
GPU void near_place(const struct input *in, const float *x, const struct linear_scale *s, u32 *row)
{
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
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 at = first + gpu_thread() + i * GPU_THREADS;
            bool there = at < whole;
            float v[4] = {there ? a[i].x : 0, there ? a[i].y : 0, there ? a[i].z : 0,
                          there ? a[i].w : 0};
            if (normed) {
                v[0] *= n[i].x;
                v[1] *= n[i].y;
                v[2] *= n[i].z;
                v[3] *= n[i].w;
            }
            if (at < quads)
                near_put(row, at, v, s, int8);
        }
    }
}

/* Any row in the order of its features. */
GPU void near_place_any(const struct input *in, const float *x, const struct linear_scale *s,
                        u32 *row)
{
    const bool normed = in->kind == INPUT_NORM;
    if (linear_aligned(in)) {
        if (normed)
            near_place<true>(in, x, s, row);
        else
            near_place<false>(in, x, s, row);
        return;
    }
    for (u32 q = gpu_thread(); q < in->k / 4; q += GPU_THREADS) {
        struct linear_quad a = linear_load_quad(x, q, in->features, false), n;
        if (normed)
            n = linear_load_quad(in->norm, q, in->features, false);
#pragma unroll
        for (u32 i = 0; i < 4 && normed; i++)
            a.v[i] *= n.v[i];
        near_put(row, q, a.v, s, in->int8);
    }
}

/* In another order. */
GPU void near_gather(const struct input *in, const float *x, const struct linear_scale *s,
                     uint4 *row)
{
    for (u32 i = gpu_thread(); i < in->k / 8; i += GPU_THREADS)
        row[i] = linear_fragment(in, x, s, i);
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
    if (gpu_thread() < rows)
        scales[gpu_thread()] = near_scale(&in, s, gpu_thread(), measures);
    gpu_sync();
    for (u32 row = 0; row < rows; row++) {
        const float *x = linear_row(&in, s, row);
        u8 *to = fragments + row * near_stride(in.k);
        if (in.order)
            near_gather(&in, x, &scales[row], (uint4 *)to);
        else
            near_place_any(&in, x, &scales[row], (u32 *)to);
    }
    gpu_sync();
}

#endif
