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

/* --- one row, of which each warp holds its slice in registers --------------------------------- */

/* How: so many times four features a lane. */
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
    u32 way;
    u32 first, end, there; /* quads of the slice: this lane's first; behind all; behind those that
                              there are in the row */
    bool awaited;
    const float *x;
    float4 n[NEAR_HELD];          /* NEAR_NORM: this lane's */
    float4 v[NEAR_HELD_LONG_ROW]; /* of the row, this lane's; near_look */
};

/* This lane's features of an aligned row, all of them on their way at once: loads have no branch
 * between them; in place of what is behind the slice its end is loaded. */
GPU u32 near_place_of(const struct near_ahead *a, u32 i)
{
    return MIN(a->first + i * 32, a->there - 1) * 4;
}

template <u32 held> GPU void near_load(float4 v[held], const struct near_ahead *a, const float *x)
{
    const float *from = gpu_global(x);
#pragma unroll
    for (u32 i = 0; i < held; i++)
        v[i] = *(const float4 *)(from + near_place_of(a, i));
}

GPU struct near_ahead near_look_ahead(const struct input *in, const struct gpu_step *s)
{
    struct near_ahead a = {};
    const bool norm = in->kind == INPUT_NORM;
    const struct linear_slice slice = linear_slice_of(in, gpu_warp());
    if (linear_rows(in, s) != 1 || in->order || !linear_aligned(in) ||
        in->k > (norm ? (u32)NEAR_NORM_FEATURES : (u32)NEAR_ROW_FEATURES))
        return a;
    a.way = (norm ? NEAR_NORM : NEAR_ROW) + (in->k > NEAR_HELD * 4 * GPU_THREADS);
    a.first = slice.first + gpu_lane();
    a.end = slice.end;
    a.there = MIN(slice.end, in->features / 4);
    a.x = linear_row(in, s, 0);
    a.awaited = in->awaited;
    if (a.way == NEAR_NORM)
        near_load<NEAR_HELD>(a.n, &a, in->norm);
    return a;
}

/* The same of an awaited row: what is missing is asked for again until all is there. */
template <u32 held> GPU void near_await(float4 v[held], const struct near_ahead *a)
{
    bool missing;
#pragma unroll
    for (u32 i = 0; i < held; i++)
        v[i] = gpu_ask4(a->x + near_place_of(a, i));
    do {
        missing = false;
#pragma unroll
        for (u32 i = 0; i < held; i++)
            if (gpu_missing(v[i])) {
                v[i] = gpu_ask4(a->x + near_place_of(a, i));
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
            near_await<NEAR_HELD_LONG_ROW>(a->v, a);
        else if (a->way == NEAR_LONG_NORM)
            near_await<NEAR_HELD_LONG_NORM>(a->v, a);
        else
            near_await<NEAR_HELD>(a->v, a);
        return;
    }
    if (a->way == NEAR_LONG_ROW)
        near_load<NEAR_HELD_LONG_ROW>(a->v, a, a->x);
    else if (a->way == NEAR_LONG_NORM)
        near_load<NEAR_HELD_LONG_NORM>(a->v, a, a->x);
    else
        near_load<NEAR_HELD>(a->v, a, a->x);
}

/* As linear_measure_held, of a slice; v becomes v * norm. */
template <bool normed, u32 held>
GPU struct linear_measure near_measure_held(float4 v[held], const float4 norm[held])
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
    return (struct linear_measure){normed ? gpu_sum_warp(squares) : 0,
                                   linear_most_warp(gpu_from_bits(top))};
}

/* Features 4 q .. 4 q + 3 of a lane as bytes, those of all lanes side by side. Lanes of the first
 * 8 inputs of a tile put the high bytes of all 16, those of the last 8 the low ones. There is no
 * branch, so that several go at once. Returns the sum of these four, in units of 2^-24. */
GPU i32 near_put_bytes(u8 *row, u32 q, const float4 *x, float m, bool some)
{
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
GPU void near_put(u32 *row, u32 q, const float v[4])
{
    u32 *to = row + q / 8 * 16 + q % 2 * 8 + q % 8 / 2;
    to[0] = gpu_half2(v[0], v[1]);
    to[4] = gpu_half2(v[2], v[3]);
}

/* Either way, of a warp together. */
GPU void near_put_any(u32 *row, u32 q, const float v[4], bool bytes)
{
    const float4 x = {v[0], v[1], v[2], v[3]};
    if (bytes)
        near_put_bytes((u8 *)row, q, &x, 1, true);
    else
        near_put(row, q, v);
}

#define NEAR_BYTES_SCALE 0x1p-24f /* of a slice of bytes, for one of halves */

/* The row that near_look has asked for, of bytes where it meets INT4; then scales are those of an
 * integer. Each warp makes the slice that it will multiply. one: in `one_token`; the row may have
 * been awaited, and of bytes, `sums` gets those of groups of 128. */
template <bool normed, u32 held, bool one>
GPU void near_one(const struct input *in, struct near_ahead *a, u32 *row,
                  struct linear_slices *slices, i32 *sums)
{
    float4 *v = a->v, n[normed ? held : 1];
    if constexpr (normed && held > NEAR_HELD)
        near_load<held>(n, a, in->norm);
    else if constexpr (normed)
        for (u32 i = 0; i < held; i++)
            n[i] = a->n[i];
#pragma unroll
    for (u32 i = 0; i < held; i++)
        if (a->first + i * 32 >= a->there)
            v[i] = {0, 0, 0, 0};
    const struct linear_measure m = near_measure_held<normed, held>(v, n);
    const bool int8 = in->int8, bytes = in->group != 0;
    const struct linear_scale s =
        linear_scale_of(linear_how_of(in), linear_leave(slices, m, int8 ? 3 : 0));
#pragma unroll
    for (u32 i = 0; i < held && bytes; i++) {
        const u32 q = a->first + i * 32;
        i32 sum_of = near_put_bytes((u8 *)row, q, &v[i], s.up, q < a->end);
#ifdef GPU_GROUPS
        if (one) /* a warp has the quads of a group */
            sum_of = gpu_add_warp(sum_of);
        if (one && gpu_lane() == 0 && q < a->end)
            sums[q / 32] = sum_of;
#else
        (void)sum_of, (void)sums; /* of `one` alone */
#endif
    }
#pragma unroll
    for (u32 i = 0; i < held && !bytes; i++) {
        float y[4] = {v[i].x * s.up, v[i].y * s.up, v[i].z * s.up, v[i].w * s.up};
#pragma unroll
        for (u32 e = 0; e < 4; e++)
            y[e] = int8 ? rintf(y[e]) : y[e];
        if (a->first + i * 32 < a->end)
            near_put(row, a->first + i * 32, y);
    }
    if (gpu_lane() == 0)
        slices->scale[gpu_warp()] = bytes ? s.scale * NEAR_BYTES_SCALE : s.scale;
    gpu_warp_sync();
}

template <bool one>
GPU void near_prepare_one(const struct input *in, struct near_ahead *a, u8 *fragments,
                          struct linear_slices *slices, i32 *sums)
{
    u32 *row = (u32 *)fragments;
    if (a->way == NEAR_NORM)
        near_one<true, NEAR_HELD, one>(in, a, row, slices, sums);
    else if (a->way == NEAR_ROW)
        near_one<false, NEAR_HELD, one>(in, a, row, slices, sums);
    else if (a->way == NEAR_LONG_ROW)
        near_one<false, NEAR_HELD_LONG_ROW, one>(in, a, row, slices, sums);
    else
        near_one<true, NEAR_HELD_LONG_NORM, one>(in, a, row, slices, sums);
}

/* --- some rows ------------------------------------------------------------------------------- */

/* At most FEW_TOKENS rows, row_of(i) each; slices: of each. bytes: as of a row that is alone. */
template <bool plain, class task>
GPU void near_prepare_rows(const struct input *in, u32 rows, task row_of, u8 *fragments,
                           struct linear_slices *slices, bool bytes)
{
    const u32 warp = gpu_warp();
    const struct linear_how how = linear_how_of(in);
    const struct linear_slice slice = linear_slice_of(in, warp);
#pragma unroll 1
    for (u32 row = 0; row < rows; row++) {
        const float *x = row_of(row);
        u32 *to = (u32 *)(fragments + row * near_stride(in->k));
        linear_make_slice<0, plain, true>(
            in, x, slice, ~0u,
            [&](struct linear_measure m) {
                const struct linear_scale scale =
                    linear_scale_of(how, linear_leave(&slices[row], m, how.int8 ? 3 : 0));
                if (gpu_lane() == 0)
                    slices[row].scale[warp] = scale.scale * (bytes ? NEAR_BYTES_SCALE : 1);
                return scale.up;
            },
            [=](u32 q, const float v[4]) { near_put_any(to, q, v, bytes); });
    }
    gpu_warp_sync();
}

/* Each warp makes the slices that it will multiply. */
GPU_CALL void near_prepare(const struct input *op_in, const struct gpu_step *s, u8 *fragments,
                           struct linear_slices *slices)
{
    const struct input in = *op_in;
    const auto row_of = [&](u32 row) { return linear_row(&in, s, row); };
    if (in.order || !linear_aligned(&in))
        near_prepare_rows<false>(&in, linear_rows(&in, s), row_of, fragments, slices, false);
    else
        near_prepare_rows<true>(&in, linear_rows(&in, s), row_of, fragments, slices, false);
}

#endif
