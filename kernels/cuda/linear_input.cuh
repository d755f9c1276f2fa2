/* The rows that enter a linear, as tensor cores want them: times the norm's weights where a norm
 * stands before the linear, in packed order, rounded to half after a scaling by a power of two of
 * each slice's own (or, for W8A8, to integers), and laid out as step.h says: struct input.prepared
 * for many tokens; for few, in each block's shared memory, as b-fragments (gpu_mma).
 *
 * A slice of a row is made by a warp, whose lane i has four neighbouring inputs a turn: quads i, i
 * + 32, .. of the slice. The row's sum of squares is that of its slices in order, and a slice's is
 * summed by lane and then in a tree. Whoever computes it keeps to that.
 */
#ifndef ZIGCUDA_LINEAR_INPUT_CUH
#define ZIGCUDA_LINEAR_INPUT_CUH

#include "kernels/cuda/gpu.cuh"

/* How a slice of a row becomes halves: half(x * norm * up), of the nearest integer for W8A8. A half
 * stands for `scale` times its value, which is NaN where the slice has what is no number or none of
 * this size. */
struct linear_scale {
    float up, scale;
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

/* Features 4 q .. 4 q + 3 of an aligned row. */
GPU struct linear_quad linear_load_quad(const float *x, u32 q)
{
    float4 v = *(const float4 *)(x + 4 * q);
    return (struct linear_quad){{v.x, v.y, v.z, v.w}};
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

/* The largest of a warp's magnitudes; NaN, whose bits are larger, if one is. */
GPU float linear_most_warp(float most)
{
    return gpu_from_bits(gpu_most_warp(gpu_bits(most)));
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

/* most: the largest |x * norm| of the slice, or for W8A8 of the row. */
GPU struct linear_scale linear_scale_of(const struct linear_how &how, float most)
{
    struct linear_scale s = {most > 0x1p-100f ? 127 * gpu_reciprocal(most) : 0, 1};
    if (how.int8)
        return s;
    /* most * 2^(up - 127) lies in [2^13, 2^14), or [2^-12, 2^-11) */
    u32 exponent = gpu_bits(most) >> 23;
    u32 up = exponent < how.top ? MIN(how.top - exponent, 253u) : 1u;
    s.up = gpu_from_bits(up << 23);
    s.scale = gpu_from_bits(exponent < MIN(how.top, 255u) ? (254 - up) << 23 : 0x7fc00000u);
    return s;
}

/* What a row's sums are multiplied by at the end. squares: their sum (of a norm); most: see above
 * (of W8A8). */
GPU float linear_factor_of(const struct linear_how &how, float squares, float most)
{
    const float inverse = how.norm ? gpu_rsqrt(squares * how.each + how.eps) : 1;
    return how.int8 ? inverse * (most * (1 / 127.0f)) : inverse;
}

/* A slice of the packed inputs, in quads: 32 each `step` from `first` on. */
struct linear_slice {
    u32 first, end, step;
};

GPU struct linear_slice linear_slice_of(const struct input *in, u32 slice)
{
    static_assert(MATRIX_SLICES == GPU_WARPS, "a warp of a block each");
    const u32 each = ROUND_UP(CEIL_DIV(in->k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT) / 4;
    return (struct linear_slice){MIN(slice * each, in->k / 4), MIN((slice + 1) * each, in->k / 4),
                                 32};
}

/* Inputs of a lane: a turn; normed: there may be a norm. */
template <u32 held, bool normed> struct linear_held {
    struct linear_quad x[held], norm[normed ? held : 1];
};

/* Those of quads q, q + step, .. of a slice; 0 behind its end and the row's. plain: the row is
 * aligned and in the order of its features; it may be awaited, and what is missing is asked for
 * until all is there. Loads have no branch between them: in place of what is behind the end, they
 * load what is in front of it. */
template <u32 held, bool plain, bool normed>
GPU void linear_hold(struct linear_held<held, normed> *h, const struct input *in, const float *x,
                     u32 q, struct linear_slice slice)
{
    const bool norm = normed && in->kind == INPUT_NORM;
    if constexpr (!plain) {
#pragma unroll
        for (u32 j = 0; j < held * 4; j++) {
            const u32 at = q + j / 4 * slice.step, i = 4 * at + j % 4;
            const u32 feature = at >= slice.end ? ORDER_NONE : in->order ? in->order[i] : i;
            const bool there = feature < in->features;
            h->x[j / 4].v[j % 4] = there ? x[feature] : 0;
            if (normed)
                h->norm[j / 4].v[j % 4] = there && norm ? in->norm[feature] : 1;
        }
        return;
    }
    const u32 end = MIN(slice.end, in->features / 4);
#pragma unroll
    for (u32 j = 0; j < held && normed; j++)
        h->norm[j] = norm ? linear_load_quad(in->norm, MIN(q + j * slice.step, end - 1))
                          : (struct linear_quad){{1, 1, 1, 1}};
    do {
#pragma unroll
        for (u32 j = 0; j < held; j++)
            h->x[j] = linear_ask_quad(x, MIN(q + j * slice.step, end - 1));
    } while (in->awaited && linear_missing<held>(h->x));
#pragma unroll
    for (u32 j = 0; j < held; j++)
        if (q + j * slice.step >= end)
            h->x[j] = {{0, 0, 0, 0}};
}

/* Of a slice: sum of squares, and largest |x * norm|. */
struct linear_measure {
    float squares, most;
};

/* Adds what a lane holds, which is multiplied by the norm's weights. */
template <u32 held, bool normed>
GPU void linear_measure_held(struct linear_held<held, normed> *h, float *squares, u32 *most)
{
#pragma unroll
    for (u32 j = 0; j < held; j++) {
        u32 sizes[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (normed) {
                *squares = fmaf(h->x[j].v[i], h->x[j].v[i], *squares);
                h->x[j].v[i] *= h->norm[j].v[i];
            }
            sizes[i] = gpu_bits(fabsf(h->x[j].v[i]));
        }
        *most = MAX(*most, gpu_most<4>(sizes));
    }
}

/* Puts what a lane holds: put(quad, its four values). places: bit j: the j-th quad. */
template <u32 held, bool normed, class task>
GPU void linear_put_held(const struct linear_held<held, normed> *h, u32 first,
                         struct linear_slice slice, float up, bool int8, u32 places, task put)
{
#pragma unroll
    for (u32 j = 0; j < held; j++) {
        const u32 q = first + j * slice.step;
        float v[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            v[e] = h->x[j].v[e] * up;
            v[e] = int8 ? rintf(v[e]) : v[e];
        }
        if (places >> j & 1 && q < slice.end) /* of a warp together */
            put(q, v);
    }
}

/* A warp's part of a slice: measured, and put with the scale that scale_of(measure) gives. held:
 * the part is no longer, or, 0, it is read twice. */
template <u32 held, bool plain, bool normed, class task, class putter>
GPU void linear_make_slice(const struct input *in, const float *x, struct linear_slice slice,
                           u32 places, task scale_of, putter put)
{
    constexpr u32 turn = held ? held : 4;
    const u32 first = slice.first + gpu_lane();
    const bool int8 = in->int8;
    struct linear_held<turn, normed> h;
    struct linear_measure m = {0, 0};
    u32 most = 0;
    if (held) {
        linear_hold<turn, plain, normed>(&h, in, x, first, slice);
        linear_measure_held(&h, &m.squares, &most);
    } else {
#pragma unroll 1
        for (u32 q = first; q < slice.end; q += turn * slice.step) {
            linear_hold<turn, plain, normed>(&h, in, x, q, slice);
            linear_measure_held(&h, &m.squares, &most);
        }
    }
    m.squares = normed ? gpu_sum_warp(m.squares) : 0;
    m.most = linear_most_warp(gpu_from_bits(most));
    const float up = scale_of(m);
    if (held) {
        linear_put_held(&h, first, slice, up, int8, places, put);
    } else {
#pragma unroll 1
        for (u32 q = first; q < slice.end; q += turn * slice.step) {
            linear_hold<turn, plain, normed>(&h, in, x, q, slice);
#pragma unroll
            for (u32 j = 0; j < turn * 4 && normed; j++)
                h.x[j / 4].v[j % 4] *= h.norm[j / 4].v[j % 4];
            linear_put_held(&h, q, slice, up, int8, places, put);
        }
    }
}

/* What the warps of a block leave of a row's slices, in shared memory. */
struct linear_slices {
    float scale[MATRIX_SLICES], squares[MATRIX_SLICES], most[MATRIX_SLICES];
};

/* Of the whole row, when the block has met: for W8A8, and for its factor. */
GPU float linear_most_of(const struct linear_slices *s)
{
    u32 most = 0;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        most = MAX(most, gpu_bits(s->most[i]));
    return gpu_from_bits(most);
}

GPU float linear_factor_of(const struct linear_how &how, const struct linear_slices *s)
{
    float squares = 0;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        squares += s->squares[i];
    return linear_factor_of(how, squares, how.int8 ? linear_most_of(s) : 0);
}

/* This warp's part of a row is measured: leaves that, and returns the largest magnitude of the 1 <<
 * bits warps that ask together; where these are several, the block meets. */
GPU float linear_leave(struct linear_slices *s, struct linear_measure m, u32 bits)
{
    u32 most = 0;
    if (gpu_lane() == 0) {
        s->squares[gpu_warp()] = m.squares;
        s->most[gpu_warp()] = m.most;
    }
    if (bits == 0)
        return m.most;
    gpu_sync();
#pragma unroll 1
    for (u32 i = gpu_warp() >> bits << bits; i <= (gpu_warp() | ((1u << bits) - 1)); i++)
        most = MAX(most, gpu_bits(s->most[i]));
    return gpu_from_bits(most);
}

/* Is it one of `mid_..`? */
GPU constexpr bool linear_is_mid_tile(u32 tile)
{
    return tile > 8 && tile <= PREFILL_TOKENS;
}

/* What of a row's inputs is left (struct input): halves; halves and the sums of groups; bytes. */
enum linear_form { FORM_HALVES, FORM_SUMS, FORM_BYTES };

/* Bytes of a tile of a group of 128 inputs, and where they are (struct input). */
GPU constexpr u32 linear_group_bytes(u32 tile, u32 form)
{
    return tile * (form == FORM_BYTES ? 260 : form == FORM_SUMS ? PREPARED_GROUP_BYTES : 256);
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
/* Four inputs of a lane: high and low bytes; returns their sum. */
GPU i32 linear_split_quad(const float v[4], u32 *high, u32 *low)
{
    const u32 halves[2] = {gpu_half2(v[0], v[1]), gpu_half2(v[2], v[3])};
    linear_split(halves, high, low);
    return 128 * gpu_add_bytes(*high) + gpu_add_bytes(*low);
}
#endif

/* The sum of four halves of at most 2^13 multiples of 2^-24, in these. */
GPU i32 linear_add_quad(uint2 halves)
{
    const float low = gpu_from_half((u16)halves.x) + gpu_from_half((u16)halves.y);
    const float high = gpu_from_half((u16)(halves.x >> 16)) + gpu_from_half((u16)(halves.y >> 16));
    const float last = 0.75f; /* whose last bit is worth 2^-24 */
    return (i32)(gpu_bits(low + high + last) - gpu_bits(last));
}

/* Puts inputs 4 q .. of row `row` of a tile, q in the order of a warp's lanes from a group's first
 * on. With bytes lanes exchange: of 16 inputs the first two place high bytes, the others low. */
template <u32 tile, u32 form> GPU void linear_put_quad(u8 *to, u32 row, u32 q, const float v[4])
{
#ifdef GPU_GROUPS
    if constexpr (form == FORM_BYTES) {
        const bool odd = q & 2;
        u32 high, low;
        const i32 sum = gpu_add_warp(linear_split_quad(v, &high, &low));
        const u32 other = gpu_shuffle_xor(odd ? high : low, 2); /* 8 inputs further on, or back */
        to += (size_t)(q / 32) * linear_group_bytes(tile, FORM_BYTES);
        *(uint2 *)(to + (q / 4 % 8 * tile * 2 + (row / 8 * 2 + odd) * 8 + row % 8) * 16 +
                   q % 2 * 8) = linear_mix(odd ? other : high, odd ? low : other);
        if (gpu_lane() == 0)
            ((i32 *)(to + tile * 256))[row] = sum;
        return;
    }
#endif
    const uint2 halves = {gpu_half2(v[0], v[1]), gpu_half2(v[2], v[3])};
    const u32 sums = form == FORM_SUMS ? q / 32 * (tile * 8) : 0; /* in front of it */
    *(uint2 *)(to + (size_t)(q / 2) * (tile * 16) + sums + row * 16 + q % 2 * 8) = halves;
    if constexpr (form == FORM_SUMS) {
        const float sum = (float)gpu_add_warp(linear_add_quad(halves));
        to += (size_t)(q / 32) * linear_group_bytes(tile, form) + tile * 256;
        if (gpu_lane() < 2)
            ((float *)to)[(row / 2 * 2 + gpu_lane()) * 2 + row % 2] =
                sum * (gpu_lane() ? -0x1p-41f : -0x1p-45f);
    }
}

/* Where a row's inputs go, in its tile. */
template <u32 tile, u32 form> GPU u8 *linear_row_to(const struct input *in, u32 row)
{
    constexpr bool mid = linear_is_mid_tile(tile);
    return (u8 *)in->prepared +
           (size_t)(row / tile) * ((mid ? in->room : in->k) / 128) * linear_group_bytes(tile, form);
}

/* --- by all blocks ------------------------------------------------------------------------- */

/* A block's share of a row, where several blocks share one since rows are few. */
struct linear_share {
    u32 bits, number; /* 1 << bits share it */
    bool apart; /* each has slices of its own, and several warps a slice; else, since the row's sum
                   of squares or its largest magnitude is wanted and has an order, each measures all
                   of it and places every other or every fourth quad of a lane */
};

GPU u32 linear_share_bits(u32 rows)
{
    const u32 blocks = gpu_blocks() / rows;
    return blocks >= 4 ? 2 : blocks >= 2;
}

/* The part of a slice that this warp measures. */
GPU struct linear_slice linear_share_of(const struct input *in, struct linear_share share)
{
    const u32 bits = share.apart ? share.bits : 0;
    const u32 of = (share.apart ? share.number : 0) * GPU_WARPS + gpu_warp();
    struct linear_slice slice = linear_slice_of(in, of >> bits);
    slice.first += (of & ((1u << bits) - 1)) * 32;
    slice.step = 32u << bits;
    return slice;
}

/* Rows by blocks, slices by warps. */
template <u32 tile, u32 form, u32 held, bool plain, bool normed>
GPU void linear_prepare_by_block(const struct input *in, const struct gpu_step *s)
{
    struct linear_slices *slices = (struct linear_slices *)gpu_shared();
    const u32 rows = linear_rows(in, s);
    const struct linear_how how = linear_how_of(in); /* before anything is waited for */
    const bool whole = how.norm || how.int8;
    struct linear_share share = {linear_share_bits(rows), 0, !whole};
#pragma unroll 1
    for (u32 i = gpu_block(); i < rows << share.bits; i += gpu_blocks()) {
        const u32 row = i >> share.bits;
        share.number = i & ((1u << share.bits) - 1);
        const u32 places = share.apart || share.bits == 0 ? ~0u
                           : share.bits == 1              ? 0x55555555u << share.number
                                                          : 0x11111111u << share.number;
        const struct linear_slice slice = linear_share_of(in, share);
        const float *x = linear_row(in, s, row);
        u8 *to = linear_row_to<tile, form>(in, row);
        linear_make_slice<held, plain, normed>(
            in, x, slice, places,
            [&](struct linear_measure m) {
                m.most = linear_leave(slices, m, share.apart ? share.bits : how.int8 ? 3 : 0);
                const struct linear_scale scale = linear_scale_of(how, m.most);
                const u32 of = share.number * GPU_WARPS + gpu_warp();
                const bool mine = share.apart ? of % (1u << share.bits) == 0 : share.number == 0;
                if (mine && gpu_lane() == 0)
                    in->prepared_scale[row * MATRIX_SLICES +
                                       (share.apart ? of >> share.bits : gpu_warp())] = scale.scale;
                return scale.up;
            },
            [=](u32 q, const float v[4]) { linear_put_quad<tile, form>(to, row % tile, q, v); });
        gpu_sync();
        if (share.number == 0 && gpu_thread() == 0)
            in->prepared_factor[row] = linear_factor_of(how, slices);
        if (i + gpu_blocks() < rows << share.bits)
            gpu_sync();
    }
}

/* Puts eight inputs of two neighbouring rows at a time, where those are side by side: a lane with
 * even quads those of the first row, its neighbour those of the second. to: of the lane's row;
 * apart: bytes from eight inputs to the next. */
template <u32 held>
GPU void linear_put_pair(u8 *to, u32 apart, const struct linear_quad *x,
                         const struct linear_quad *next, float up, float next_up,
                         struct linear_slice slice)
{
    const bool odd = gpu_lane() % 2;
#pragma unroll
    for (u32 j = 0; j < held; j++) {
        const float *v = x[j].v, *w = next[j].v;
        const u32 q = slice.first + gpu_lane() + j * slice.step;
        const uint2 a = {gpu_half2(v[0] * up, v[1] * up), gpu_half2(v[2] * up, v[3] * up)};
        const uint2 b = {gpu_half2(w[0] * next_up, w[1] * next_up),
                         gpu_half2(w[2] * next_up, w[3] * next_up)};
        const u32 c = gpu_shuffle_xor(odd ? a.x : b.x, 1), d = gpu_shuffle_xor(odd ? a.y : b.y, 1);
        if (q < slice.end) /* of a warp together */
            *(uint4 *)(to + (size_t)(q / 2) * apart) =
                odd ? (uint4){c, d, b.x, b.y} : (uint4){a.x, a.y, c, d};
    }
}

/* Two neighbouring rows by blocks, slices by warps, where nothing but halves is left: memory wants
 * to be written 32 bytes at a time. Behind an odd last row its own values are put once more. split,
 * of rows without a norm: a block has half of the slices, and two warps a slice. Not for W8A8. */
template <u32 tile, u32 held, bool normed>
GPU void linear_prepare_pairs(const struct input *in, const struct gpu_step *s, u32 split)
{
    static_assert(tile % 2 == 0, "a pair is in a tile");
    struct linear_slices *slices =
        (struct linear_slices *)gpu_shared(); /* of two turns, in turns */
    const u32 rows = linear_rows(in, s), warp = gpu_warp(), odd = gpu_lane() % 2;
    const struct linear_how how = linear_how_of(in);
    u32 turn = 0;
#pragma unroll 1
    for (u32 i = gpu_block(); i < CEIL_DIV(rows, 2u) << split; i += gpu_blocks(), turn ^= 2) {
        const u32 row = (i >> split) * 2, number = (i & split) * GPU_WARPS / 2 + (warp >> split);
        struct linear_slice slice = linear_slice_of(in, number);
        slice.first += (warp & split) * 32;
        slice.step <<= split;
        struct linear_held<held, normed> h[2];
        u32 most[2] = {0, 0};
        float up[2];
#pragma unroll
        for (u32 r = 0; r < 2; r++)
            linear_hold<held, true, normed>(&h[r], in, linear_row(in, s, MIN(row + r, rows - 1)),
                                            slice.first + gpu_lane(), slice);
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            float squares = 0;
            linear_measure_held(&h[r], &squares, &most[r]);
            squares = normed ? gpu_sum_warp(squares) : 0;
            most[r] = gpu_most_warp(most[r]);
            if (gpu_lane() == 0) {
                slices[turn + r].squares[warp] = squares;
                slices[turn + r].most[warp] = gpu_from_bits(most[r]);
            }
        }
        if (normed || split)
            gpu_sync();
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const struct linear_slices *of = &slices[turn + r];
            most[r] = split ? MAX(most[r], gpu_bits(of->most[warp ^ 1])) : most[r];
            const struct linear_scale scale = linear_scale_of(how, gpu_from_bits(most[r]));
            if (gpu_lane() == 0)
                in->prepared_scale[(row + r) * MATRIX_SLICES + number] = scale.scale;
            if (gpu_thread() == r * 32 && row + r < rows)
                in->prepared_factor[row + r] = normed ? linear_factor_of(how, of) : 1;
            up[r] = scale.up;
        }
        u8 *to = linear_row_to<tile, FORM_HALVES>(in, row) + (row % tile + odd) * 16;
        linear_put_pair<held>(to, tile * 16, h[0].x, h[1].x, up[0], up[1], slice);
    }
}

/* The same for as long rows as linear_prepare has in registers, and for several turns. A function
 * of its own, and one that has few registers: what it has here ptxas takes from the loops of
 * `prefill_..`; for few rows its instructions would take longer to come than the rows. */
template <u32 tile>
GPU_CALL void linear_prepare_many(const struct input *op_in, const struct gpu_step *s)
{
    const struct input *in = gpu_near(op_in);
    const u32 quads = CEIL_DIV(linear_slice_of(in, 0).end, 32u); /* of a lane */
    if (in->kind == INPUT_NORM)
        linear_prepare_pairs<tile, 4, true>(in, s, 0);
    else if (quads <= 4)
        linear_prepare_pairs<tile, 4, false>(in, s, 0);
    else
        linear_prepare_pairs<tile, 8, false>(in, s, quads > 8);
}

/* Rows that are read twice: a function of its own, since in `mid_..` its instructions would stand
 * between those that run in every layer. */
template <u32 tile, u32 form>
GPU_CALL void linear_prepare_twice(const struct input *op_in, const struct gpu_step *s)
{
    const struct input *in = gpu_near(op_in);
    if (in->order || !linear_aligned(in))
        linear_prepare_by_block<tile, form, 0, false, true>(in, s);
    else
        linear_prepare_by_block<tile, form, 0, true, true>(in, s);
}

/* All rows, in tiles of so many tokens (struct input); the bits do not depend on who has a row. Who
 * reads them by bulk copies fences first. */
template <u32 tile, u32 form>
GPU void linear_prepare(const struct input *op_in, const struct gpu_step *s)
{
    const struct input &in = *gpu_near(op_in); /* no copy: part of it would be in local memory */
    /* Where several warps may have a slice; where one may. `step` makes do with little code. */
    constexpr bool few = linear_is_mid_tile(tile), many = tile >= PREFILL_TOKENS;
    const bool norm = in.kind == INPUT_NORM;
    const u32 bits = norm || in.int8 ? 0 : linear_share_bits(linear_rows(&in, s));
    const u32 quads = CEIL_DIV(linear_slice_of(&in, 0).end, 32u << bits); /* of a lane */
    if constexpr (few || many)
        if (!in.order && linear_aligned(&in) && quads <= (many && !norm ? 14 : 4)) {
            if constexpr (tile > PREFILL_TOKENS)
                if (linear_rows(&in, s) > 4 * gpu_blocks() && !in.int8) {
                    linear_prepare_many<tile>(op_in, s);
                    return;
                }
            if (norm)
                linear_prepare_by_block<tile, form, 4, true, true>(&in, s);
            else if (few && quads <= 4 && (bits == 2 || !many))
                linear_prepare_by_block<tile, form, 4, true, false>(&in, s);
            else if (many)
                linear_prepare_by_block<tile, form, 14, true, false>(&in, s);
            return;
        }
    linear_prepare_twice<tile, form>(op_in, s);
}

#endif
