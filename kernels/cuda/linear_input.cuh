/* The rows that enter a linear, as tensor cores want them: normed where a norm stands before the
 * linear, in packed order, rounded to half after a scaling by a power of two of the row's own (or,
 * for W8A8, to integers), and laid out as step.h says: struct input.prepared for many tokens; for
 * few, in each block's shared memory, as b-fragments (gpu_mma).
 *
 * A row's sum of squares is that of eight parts in order; part w has the features i with i / 128 %
 * 8 = w, four neighbours a lane at a time, summed by 32 lanes and then in a tree. Whoever computes
 * it keeps to that.
 */
#ifndef ZIGCUDA_LINEAR_INPUT_CUH
#define ZIGCUDA_LINEAR_INPUT_CUH

#include "kernels/cuda/gpu.cuh"

/* How a row becomes halves: half(x * norm * inverse * factor), to nearest integer for W8A8; a half
 * stands for `scale` times its value, which is NaN where the row has what is no number or none of
 * this size. */
struct linear_scale {
    float inverse, factor, scale;
};

GPU u32 linear_rows(const struct input *in, const struct gpu_step *s)
{
    return in->wanted ? s->n_wants : s->n_tokens;
}

GPU u32 linear_token(const struct input *in, const struct gpu_step *s, u32 row)
{
    return in->wanted ? s->wants[row].token : row;
}

GPU const float *linear_row(const struct input *in, const struct gpu_step *s, u32 row)
{
    return in->x + (size_t)linear_token(in, s, row) * in->stride;
}

struct linear_quad {
    float v[4];
};

/* Features 4 q .. 4 q + 3 of a row, 0 behind its end. `whole`: rows are aligned, and q within. */
GPU struct linear_quad linear_load_quad(const float *x, u32 q, u32 features, bool whole)
{
    struct linear_quad quad = {{0, 0, 0, 0}};
    if (whole) {
        float4 v = *(const float4 *)(x + 4 * q);
        quad = {{v.x, v.y, v.z, v.w}};
        return quad;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (4 * q + i < features)
            quad.v[i] = x[4 * q + i];
    return quad;
}

/* The same of a row that may be awaited: aligned, q within. */
GPU struct linear_quad linear_ask_quad(const float *x, u32 q)
{
    float4 v = gpu_ask4(x + 4 * q);
    return (struct linear_quad){{v.x, v.y, v.z, v.w}};
}

/* Is any of n quads still to come? Then it is time to ask again. */
template <u32 n> GPU bool linear_missing(const struct linear_quad quads[n])
{
    static_assert(NOT_YET == ~0u, "the largest of all");
    u32 bits[4 * n];
#pragma unroll
    for (u32 i = 0; i < 4 * n; i++)
        bits[i] = gpu_bits(quads[i / 4].v[i % 4]);
    const bool missing = gpu_most<4 * n>(bits) == NOT_YET;
    if (missing)
        gpu_pause();
    return missing;
}

/* n floats, a multiple of 4, to NOT_YET, by all blocks. */
GPU void linear_unset(float *places, u32 n)
{
    const float none = gpu_from_bits(NOT_YET);
    for (u32 i = gpu_block() * GPU_THREADS + gpu_thread(); i < n / 4;
         i += gpu_blocks() * GPU_THREADS)
        gpu_store<float4>(gpu_global(places) + (size_t)i * 4, (float4){none, none, none, none});
}

/* May rows be read four features at a time? */
GPU bool linear_aligned(const struct input *in)
{
    return ((size_t)in->x | (size_t)in->norm | (size_t)in->stride * 4 | (size_t)in->features * 4) %
               16 ==
           0;
}

/* The larger of two magnitudes; NaN, whose bits are larger, if one is. */
GPU float linear_larger(float a, float b)
{
    return gpu_from_bits(MAX(gpu_bits(a), gpu_bits(b)));
}

/* The largest of a warp's. */
GPU float linear_most_warp(float most)
{
    return gpu_from_bits(gpu_most_warp(gpu_bits(most)));
}

/* This warp's sum of squares of part w of a row, and the largest |x * norm| in it. */
GPU void linear_measure_part(const struct input *in, const float *x, u32 w, float *sum, float *most)
{
    float squares = 0, top = 0;
    const float *norm = in->norm;
    u32 features = in->features;
    bool aligned = linear_aligned(in);
    const u32 quads = CEIL_DIV(features, 4u),
              AT_ONCE = 4; /* loads on their way, no branch between */
    for (u32 first = w * 32 + gpu_lane(); first < quads; first += AT_ONCE * GPU_THREADS) {
        struct linear_quad a[AT_ONCE], n[AT_ONCE];
        if (aligned) {
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) {
                u32 q = MIN(first + j * GPU_THREADS, quads - 1);
                a[j] = linear_load_quad(x, q, features, true);
                n[j] = linear_load_quad(norm, q, features, true);
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) {
                a[j] = linear_load_quad(x, first + j * GPU_THREADS, features, false);
                n[j] = linear_load_quad(norm, first + j * GPU_THREADS, features, false);
            }
        }
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                float value = first + j * GPU_THREADS < quads ? a[j].v[i] : 0;
                squares = fmaf(value, value, squares);
                top = linear_larger(top, fabsf(value * n[j].v[i]));
            }
    }
    *sum = gpu_sum_warp(squares);
    *most = linear_most_warp(top);
}

/* Of all parts from those of the warps; a block together. work: 2 GPU_WARPS floats. */
GPU void linear_join_parts(float *work, float *sum, float *most)
{
    if (gpu_lane() == 0) {
        work[gpu_warp() * 2] = *sum;
        work[gpu_warp() * 2 + 1] = *most;
    }
    gpu_sync();
    *sum = *most = 0;
    for (u32 i = 0; i < GPU_WARPS; i++) {
        *sum += work[i * 2];
        *most = linear_larger(*most, work[i * 2 + 1]);
    }
}

/* What of an input its rows' scales depend on. */
struct linear_how {
    bool norm, int8;
    u32 top;         /* for the largest exponent there is */
    float each, eps; /* 1 / features */
};

GPU struct linear_how linear_how_of(const struct input *in)
{
    return (struct linear_how){in->kind == INPUT_NORM, in->int8 != 0, in->group ? 242u : 267u,
                               gpu_reciprocal((float)in->features), in->eps};
}

/* `sum` of squares (not read for INPUT_ROWS) and the largest |x * norm| of a row. */
GPU struct linear_scale linear_scale_of(const struct linear_how &how, float sum, float most)
{
    struct linear_scale s = {1, 1, 1};
    if (how.norm) {
        s.inverse = gpu_rsqrt(sum * how.each + how.eps);
        most *= s.inverse;
    }
    if (how.int8) {
        s.factor = most > 0 ? 127 / most : 0;
        s.scale = most / 127;
        return s;
    }
    /* most * 2^(up - 127) lies in [2^13, 2^14), or [2^-12, 2^-11) */
    u32 exponent = gpu_bits(most) >> 23;
    u32 up = exponent < how.top ? MIN(how.top - exponent, 253u) : 1u;
    s.factor = gpu_from_bits(up << 23);
    s.scale = gpu_from_bits(exponent < MIN(how.top, 255u) ? (254 - up) << 23 : 0x7fc00000u);
    return s;
}

GPU float linear_value(const struct input *in, const float *x, const struct linear_scale *s, u32 i)
{
    u32 feature = in->order ? in->order[i] : i;
    if (feature >= in->features)
        return 0;
    float v = x[feature];
    if (in->kind == INPUT_NORM)
        v = v * in->norm[feature] * s->inverse;
    v *= s->factor;
    return in->int8 ? rintf(v) : v;
}

/* The 16 bytes that lane t = i % 4 of each group reads for the 32 inputs from i / 4 * 32 on. */
GPU uint4 linear_fragment(const struct input *in, const float *x, const struct linear_scale *s,
                          u32 i)
{
    u32 k = i / 4 * 32 + i % 4 * 2, word[4];
#pragma unroll
    for (u32 j = 0; j < 4; j++)
        word[j] =
            gpu_half2(linear_value(in, x, s, k + 8 * j), linear_value(in, x, s, k + 8 * j + 1));
    uint4 v = {word[0], word[1], word[2], word[3]};
    return v;
}

GPU uint4 linear_round_eight(const float v[8])
{
    uint4 word = {gpu_half2(v[0], v[1]), gpu_half2(v[2], v[3]), gpu_half2(v[4], v[5]),
                  gpu_half2(v[6], v[7])};
    return word;
}

/* Is it one of `mid_..`? */
GPU constexpr bool linear_is_mid_tile(u32 tile)
{
    return tile > 8 && tile <= PREFILL_TOKENS;
}

/* Bytes of a tile of a group of 128 inputs, and where they are (struct input). */
GPU constexpr u32 linear_group_bytes(u32 tile, bool bytes)
{
    return tile * (bytes ? 260 : 256);
}

/* a * b + 1536 of halves, within 1536 +- 64: a half that ends with that integer. */
GPU u32 linear_integers(u32 a, u32 b)
{
    return gpu_half2_fma(a, b, 0x66006600);
}

/* Four halves of at most 2^13 multiples of 2^-24, two a word, as bytes: 128 high + low. */
GPU void linear_split(const u32 halves[2], u32 *high, u32 *low)
{
    u32 h[2], l[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 v = gpu_half2_fma(halves[i], 0x78007800, 0); /* times 2^15: units of 2^-9 */
        h[i] = linear_integers(v, 0x44004400);           /* times 4 */
        u32 rest = gpu_half2_fma(gpu_half2_sub(h[i], 0x66006600), 0xb400b400, v); /* - h / 4 */
        l[i] = linear_integers(rest, 0x60006000);                                 /* times 512 */
    }
    *high = gpu_permute_bytes(h[0], h[1], 0x6420);
    *low = gpu_permute_bytes(l[0], l[1], 0x6420);
}

/* Two times four bytes in the order 0, 4, 1, 5, .. */
GPU uint2 linear_mix(u32 a, u32 b)
{
    return (uint2){gpu_permute_bytes(a, b, 0x5140), gpu_permute_bytes(a, b, 0x7362)};
}

#ifdef GPU_GROUPS
/* Of n times four inputs of a lane: high and low bytes; returns their sum. */
template <u32 n> GPU i32 linear_split_all(const float v[4 * n], u32 high[n], u32 low[n])
{
    i32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < n; i++) {
        const u32 halves[2] = {gpu_half2(v[4 * i], v[4 * i + 1]),
                               gpu_half2(v[4 * i + 2], v[4 * i + 3])};
        linear_split(halves, &high[i], &low[i]);
        sum += 128 * gpu_add_bytes(high[i]) + gpu_add_bytes(low[i]);
    }
    return sum;
}

/* Puts inputs 8 i .. of row `row` of a tile as bytes. By whole warps, i in the order of lanes from
 * a multiple of 32 on: 16 lanes have a group. Even lanes place high bytes of 16 inputs, odd ones
 * low bytes. */
template <u32 tile> GPU void linear_put_bytes(u8 *to, u32 row, u32 i, const float v[8], bool valid)
{
    const bool odd = i % 2;
    u32 low[2], high[2];
    uint2 word[2];
    i32 sum = linear_split_all<2>(v, high, low);
#pragma unroll
    for (u32 t = 0; t < 2; t++) {
        u32 other = gpu_shuffle_xor(odd ? high[t] : low[t], 1);
        word[t] = linear_mix(odd ? other : high[t], odd ? low[t] : other);
    }
    for (u32 mask = 1; mask < 16; mask *= 2)
        sum = (i32)((u32)sum + gpu_shuffle_xor((u32)sum, mask));
    to += (size_t)(i / 16) * linear_group_bytes(tile, true);
    uint4 four = {word[0].x, word[0].y, word[1].x, word[1].y};
    if (valid)
        *(uint4 *)(to + (i / 2 % 8 * tile * 2 + (row / 8 * 2 + odd) * 8 + row % 8) * 16) = four;
    if (valid && i % 16 == 0)
        ((i32 *)(to + tile * 256))[row] = sum;
}
#endif

/* The same, or as halves. */
template <u32 tile, bool bytes>
GPU void linear_put_eight(u8 *to, u32 row, u32 i, const float v[8], bool valid)
{
#ifdef GPU_GROUPS
    if constexpr (bytes)
        return linear_put_bytes<tile>(to, row, i, v, valid);
#endif
    if (valid)
        *(uint4 *)(to + row * 16 + (size_t)i * (tile * 16)) = linear_round_eight(v);
}

/* A row of OP_PREPARE, by a block or by a warp, eight inputs at a time. With an order: */
template <u32 tile, bool bytes>
GPU void linear_gather_row(const struct input *in, const float *x, struct linear_scale scale,
                           u8 *to, u32 row, u32 thread, u32 threads)
{
    const u32 end = bytes ? ROUND_UP(in->k / 8, 32u) : in->k / 8; /* of whole warps */
#pragma unroll 1
    for (u32 i = thread; i < end; i += threads) {
        const bool valid = i < in->k / 8;
        float v[8];
#pragma unroll
        for (u32 e = 0; e < 8; e++)
            v[e] = valid ? linear_value(in, x, &scale, 8 * i + e) : 0;
        linear_put_eight<tile, bytes>(to, row, i, v, valid);
    }
}

/* Without: some 8 features of a thread, from `first` on, each `threads` behind the one before. All
 * loads of a turn stand before its stores, which the compiler would not know, and before the scale
 * is computed. */
enum { LINEAR_AHEAD = 2 };

struct linear_turn {
    struct linear_quad v[2 * LINEAR_AHEAD], norm[2 * LINEAR_AHEAD];
};

template <bool aligned>
GPU void linear_load_turn_as(struct linear_turn *t, const struct input *in, const float *x,
                             u32 first, u32 threads)
{
    const u32 features = in->features;
    const float *norm = in->kind == INPUT_NORM ? in->norm : x;
#pragma unroll
    for (u32 i = 0; i < 2 * LINEAR_AHEAD; i++) { /* behind the row's end its last ones, no branch */
        const u32 q = 2 * (first + i / 2 * threads) + i % 2;
        if constexpr (aligned) {
            t->v[i] = linear_load_quad(x, MIN(q, features / 4 - 1), features, true);
            t->norm[i] = linear_load_quad(norm, MIN(q, features / 4 - 1), features, true);
        } else {
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                t->v[i].v[e] = x[MIN(4 * q + e, features - 1)];
                t->norm[i].v[e] = norm[MIN(4 * q + e, features - 1)];
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < 2 * LINEAR_AHEAD; i++)
#pragma unroll
        for (u32 e = 0; e < 4; e++)
            if (4 * (2 * (first + i / 2 * threads) + i % 2) + e >= features)
                t->v[i].v[e] = 0;
}

GPU void linear_load_turn(struct linear_turn *t, const struct input *in, const float *x, u32 first,
                          u32 threads)
{
    if (linear_aligned(in))
        linear_load_turn_as<true>(t, in, x, first, threads);
    else
        linear_load_turn_as<false>(t, in, x, first, threads);
}

template <u32 tile, bool bytes>
GPU void linear_store_turn(const struct linear_turn *t, const struct input *in,
                           struct linear_scale scale, u8 *to, u32 row, u32 first, u32 threads)
{
    bool norm = in->kind == INPUT_NORM, int8 = in->int8;
#pragma unroll
    for (u32 a = 0; a < LINEAR_AHEAD; a++) {
        u32 i = first + a * threads;
        float v[8];
#pragma unroll
        for (u32 e = 0; e < 8; e++) {
            float x = t->v[2 * a + e / 4].v[e % 4], n = t->norm[2 * a + e / 4].v[e % 4];
            float u = (norm ? x * n * scale.inverse : x) * scale.factor;
            v[e] = int8 ? rintf(u) : u;
        }
        linear_put_eight<tile, bytes>(to, row, i, v, i < in->k / 8);
    }
}

/* Where a row's inputs go, in its tile. */
template <u32 tile, bool bytes> GPU u8 *linear_row_to(const struct input *in, u32 row)
{
    constexpr bool mid = linear_is_mid_tile(tile);
    return (u8 *)in->prepared + (size_t)(row / tile) * ((mid ? in->room : in->k) / 128) *
                                    linear_group_bytes(tile, bytes);
}

/* The row with its scale; `turn`: what linear_load_turn loaded from `thread` on. */
template <u32 tile, bool bytes>
GPU void linear_prepare_row(const struct input *in, const float *x, struct linear_scale scale,
                            struct linear_turn *turn, u32 row, u32 thread, u32 threads)
{
    const u32 end = bytes ? ROUND_UP(in->k / 8, 32u) : in->k / 8; /* of whole warps */
    u8 *to = linear_row_to<tile, bytes>(in, row);
    if (thread == 0)
        in->prepared_scale[row] = scale.scale;
    if (in->order)
        return linear_gather_row<tile, bytes>(in, x, scale, to, row % tile, thread, threads);
    linear_store_turn<tile, bytes>(turn, in, scale, to, row % tile, thread, threads);
#pragma unroll 1
    for (u32 i = thread + LINEAR_AHEAD * threads; i < end; i += LINEAR_AHEAD * threads) {
        linear_load_turn(turn, in, x, i, threads);
        linear_store_turn<tile, bytes>(turn, in, scale, to, row % tile, i, threads);
    }
}

/* Rows by blocks, or by several blocks each where rows are few: each warp measures its part of the
 * row, and the block places its share. */
template <u32 tile, bool bytes>
GPU void linear_prepare_by_block(const struct input *in, const struct gpu_step *s, float *work)
{
    u32 rows = linear_rows(in, s), w = gpu_warp();
    u32 sharers = MIN(MAX(gpu_blocks() / rows, 1u), CEIL_DIV(in->k / 8, (u32)GPU_THREADS));
#pragma unroll 1
    for (u32 share = gpu_block(); share < rows * sharers; share += gpu_blocks()) {
        u32 row = share / sharers, thread = share % sharers * GPU_THREADS + gpu_thread();
        const float *x = linear_row(in, s, row);
        struct linear_turn turn;
        float sum = 0, most = 0;
        linear_load_turn(&turn, in, x, thread, sharers * GPU_THREADS);
        if (in->kind == INPUT_NORM) {
            linear_measure_part(in, x, w, &sum, &most);
            linear_join_parts(work, &sum, &most);
        } else {
            most = gpu_from_bits(in->row_max[linear_token(in, s, row)]);
        }
        linear_prepare_row<tile, bytes>(in, x, linear_scale_of(linear_how_of(in), sum, most), &turn,
                                        row, thread, sharers * GPU_THREADS);
        gpu_sync();
    }
}

/* Rows by warps: each measures all parts. */
template <u32 tile, bool bytes>
GPU void linear_prepare_by_warp(const struct input *in, const struct gpu_step *s)
{
    u32 rows = linear_rows(in, s);
    bool norm = in->kind == INPUT_NORM;
    for (u32 row = gpu_block() * GPU_WARPS + gpu_warp(); row < rows;
         row += gpu_blocks() * GPU_WARPS) {
        const float *x = linear_row(in, s, row);
        struct linear_turn turn;
        float sum = 0, most = norm ? 0 : gpu_from_bits(in->row_max[linear_token(in, s, row)]);
        for (u32 w = 0; w < GPU_WARPS && norm; w++) {
            float part_sum, part_most;
            linear_measure_part(in, x, w, &part_sum, &part_most);
            sum += part_sum;
            most = linear_larger(most, part_most);
        }
        linear_load_turn(&turn, in, x, gpu_lane(), 32);
        linear_prepare_row<tile, bytes>(in, x, linear_scale_of(linear_how_of(in), sum, most), &turn,
                                        row, gpu_lane(), 32);
    }
}

/* --- aligned rows in the order of their features, which may be awaited, by blocks ------------ */

/* A thread has the quads `thread`, `thread` + GPU_THREADS, .. of a row, a warp those of its part of
 * the sum of squares: LINEAR_HELD of them, a turn, in registers at a time. Where the row is no
 * longer than a turn it is read once. What others wait for is that reading. */
enum { LINEAR_HELD = 4, LINEAR_HELD_QUADS = LINEAR_HELD * GPU_THREADS };

struct linear_held {
    struct linear_quad x[LINEAR_HELD], norm[LINEAR_HELD];
};

/* Quads from `first` on; behind the row's end its last one, no branch. */
GPU void linear_hold(struct linear_held *h, const struct input *in, const float *x, u32 first)
{
    const u32 last = in->features / 4 - 1;
    first += gpu_thread();
#pragma unroll
    for (u32 j = 0; j < LINEAR_HELD; j++)
        h->norm[j] = in->kind == INPUT_NORM
                         ? linear_load_quad(in->norm, MIN(first + j * GPU_THREADS, last), 0, true)
                         : (struct linear_quad){{1, 1, 1, 1}};
    do {
#pragma unroll
        for (u32 j = 0; j < LINEAR_HELD; j++)
            h->x[j] = linear_ask_quad(x, MIN(first + j * GPU_THREADS, last));
    } while (in->awaited && linear_missing<LINEAR_HELD>(h->x));
#pragma unroll
    for (u32 j = 0; j < LINEAR_HELD; j++)
        if (first + j * GPU_THREADS > last)
            h->x[j] = {{0, 0, 0, 0}};
}

/* Adds those to what this lane has of its part, as linear_measure_part does. */
GPU void linear_measure_held(const struct linear_held *h, float *squares, float *top)
{
#pragma unroll
    for (u32 j = 0; j < LINEAR_HELD; j++) {
        u32 sizes[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            sizes[i] = gpu_bits(fabsf(h->x[j].v[i] * h->norm[j].v[i]));
            *squares = fmaf(h->x[j].v[i], h->x[j].v[i], *squares);
        }
        *top = linear_larger(*top, gpu_from_bits(gpu_most<4>(sizes)));
    }
}

/* Puts inputs 4 q .. of row `row` of a tile, q in the order of a warp's lanes from a group's first
 * on. With bytes lanes exchange: of 16 inputs the first two place high bytes, the others low. */
template <u32 tile, bool bytes> GPU void linear_put_quad(u8 *to, u32 row, u32 q, const float v[4])
{
#ifdef GPU_GROUPS
    if constexpr (bytes) {
        const bool odd = q & 2;
        u32 high, low;
        const i32 sum = gpu_add_warp(linear_split_all<1>(v, &high, &low));
        const u32 other = gpu_shuffle_xor(odd ? high : low, 2); /* 8 inputs further on, or back */
        to += (size_t)(q / 32) * linear_group_bytes(tile, true);
        *(uint2 *)(to + (q / 4 % 8 * tile * 2 + (row / 8 * 2 + odd) * 8 + row % 8) * 16 +
                   q % 2 * 8) = linear_mix(odd ? other : high, odd ? low : other);
        if (gpu_lane() == 0)
            ((i32 *)(to + tile * 256))[row] = sum;
        return;
    }
#endif
    *(uint2 *)(to + (size_t)(q / 2) * (tile * 16) + row * 16 + q % 2 * 8) =
        (uint2){gpu_half2(v[0], v[1]), gpu_half2(v[2], v[3])};
}

/* places: bit j: this block has the j-th of each thread. */
template <u32 tile, bool bytes>
GPU void linear_put_held(const struct linear_held *h, const struct input *in,
                         struct linear_scale scale, u32 row, u32 first, u32 places)
{
    const bool norm = in->kind == INPUT_NORM, int8 = in->int8;
    u8 *to = linear_row_to<tile, bytes>(in, row);
#pragma unroll
    for (u32 j = 0; j < LINEAR_HELD; j++) {
        const u32 q = first + gpu_thread() + j * GPU_THREADS;
        float v[4];
        if (!(places >> j & 1))
            continue;
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            float u = (norm ? h->x[j].v[e] * h->norm[j].v[e] * scale.inverse : h->x[j].v[e]) *
                      scale.factor;
            v[e] = int8 ? rintf(u) : u;
        }
        if (q < in->k / 4) /* a warp together: k is a multiple of 128 */
            linear_put_quad<tile, bytes>(to, row % tile, q, v);
    }
}

/* Where rows are few, several blocks share one: each measures all of it and places every other or
 * every fourth quad of its threads; or, where its largest magnitude is known, has turns of its own.
 * work: 2 GPU_WARPS floats of shared memory. */
template <u32 tile, bool bytes>
GPU void linear_prepare_held(const struct input *in, const struct gpu_step *s, float *work)
{
    const bool known = in->kind == INPUT_ROWS && !in->awaited;
    const u32 turns = CEIL_DIV(in->k / 4, (u32)LINEAR_HELD_QUADS), rows = linear_rows(in, s);
    const u32 most_sharers = known ? turns : (u32)LINEAR_HELD, blocks = gpu_blocks() / rows;
    const u32 bits = blocks >= 4 && most_sharers >= 4 ? 2 : blocks >= 2 && most_sharers >= 2;
    const u32 sharers = 1u << bits, step = known ? sharers : 1;
    const struct linear_how how = linear_how_of(in); /* before anything is waited for */
#pragma unroll 1
    for (u32 i = gpu_block(); i < rows << bits; i += gpu_blocks()) {
        const u32 row = i >> bits, share = i & (sharers - 1);
        const u32 places = known ? ~0u : (bits == 0 ? 15 : bits == 1 ? 5 : 1) << share;
        const float *x = linear_row(in, s, row);
        struct linear_held held;
        float sum = 0, most = 0;
        u32 turn = known ? ((turns - 1 - share) >> bits << bits) + share : 0;
        for (;; turn++) {
            linear_hold(&held, in, x, turn * LINEAR_HELD_QUADS);
            if (known)
                break;
            linear_measure_held(&held, &sum, &most);
            if (turn + 1 == turns)
                break;
        }
        if (known) {
            most = gpu_from_bits(in->row_max[linear_token(in, s, row)]);
        } else {
            sum = gpu_sum_warp(sum);
            most = linear_most_warp(most);
            linear_join_parts(work, &sum, &most);
        }
        const struct linear_scale scale = linear_scale_of(how, sum, most);
        if (share == 0 && gpu_thread() == 0)
            in->prepared_scale[row] = scale.scale;
        for (;; turn -= step) {
            linear_put_held<tile, bytes>(&held, in, scale, row, turn * LINEAR_HELD_QUADS, places);
            if (turn < step)
                break;
            linear_hold(&held, in, x, (turn - step) * LINEAR_HELD_QUADS);
        }
        gpu_sync();
    }
}

/* Rows of `mid_..` that are none of these: a function of its own, since its instructions would
 * stand between those that run in every layer. */
template <u32 tile, bool bytes>
GPU_CALL void linear_prepare_others(const struct input *in, const struct gpu_step *s)
{
    linear_prepare_by_block<tile, bytes>(gpu_near(in), s, (float *)gpu_shared());
}

/* All rows, in tiles of so many tokens (struct input); the bits do not depend on who has a row. Who
 * reads them by bulk copies fences first. */
template <u32 tile, bool bytes>
GPU void linear_prepare_rows(const struct input *op_in, const struct gpu_step *s)
{
    const struct input &in = *gpu_near(op_in); /* no copy: part of it would be in local memory */
    if constexpr (linear_is_mid_tile(tile)) {
        if (in.order || !linear_aligned(&in))
            linear_prepare_others<tile, bytes>(op_in, s);
        else
            linear_prepare_held<tile, bytes>(&in, s, (float *)gpu_shared());
    } else if (linear_rows(&in, s) <= 2 * gpu_blocks()) {
        linear_prepare_by_block<tile, bytes>(&in, s, (float *)gpu_shared());
    } else {
        linear_prepare_by_warp<tile, bytes>(&in, s);
    }
}

#endif
