/* A stage of a linear of few tokens on Hopper (linear_mid.cuh): what it holds, and its products,
 * four warps at a time (wgmma), as linear_broad.cuh has them.
 *
 * A stage, of one or two spans of 128 inputs of a slice, is
 *   weights [units][spans][chunks][512], as in memory
 *   inputs [strips]: spans, as struct input has them
 *   sides [units]: scales as in memory [spans][32], zeros as in memory [spans][16]
 *
 * A scheduler of the H200 does products or other instructions, hardly both: 128 inputs of a unit
 * take the time of their products (16 clocks each of 32 columns and four warps, 13 of 16, 32 of 64)
 * and a quarter of the number of a warp's instructions. So instructions are what is saved: INT4 of
 * up to MID_BYTES_TOKENS tokens is made into bytes, by two instructions a word, and inputs are two
 * columns of bytes each; for more tokens to put both together would take more instructions than it
 * saves. Of 17 to 32 a nibble stays where it is in a half, which then is q or 16 q times the least
 * there is (denormal), by five instructions a word instead of nine with the zero; and sums begin
 * with what the zeros make of them, which the inputs bring along. All of it is exact. For more
 * tokens there are no registers for that.
 */
#ifndef ZIGCUDA_LINEAR_MID_STAGE_CUH
#define ZIGCUDA_LINEAR_MID_STAGE_CUH

#include "kernels/cuda/linear_tile.cuh"

#ifdef GPU_GROUPS

enum {
    MID_BYTES_TOKENS = 16, /* up to so many, products of INT4 are of bytes */
    MID_SPAN = 128,
};

template <u32 KIND, u32 TOKENS> struct mid_shape {
    static constexpr u32 kind = KIND, tokens = TOKENS;
    static constexpr bool plain = KIND == MATRIX_HALF; /* no scales, no zeros */
    static constexpr u32 m = plain ? 1 : 2, n = TOKENS / 8, apart = GPU_WARPS;
    static constexpr u32 units = m * GPU_WARPS, floats = 16 * units * TOKENS;
    static constexpr bool wide = TOKENS == 64; /* there may be more than a tile of tokens */
    static constexpr bool ahead = !plain && TOKENS <= 32; /* registers for sums of two groups */
    static constexpr bool roomy = ahead || plain; /* who computes can do with fewer registers */
    /* Products take longer than weights take to come: those of the second stage then wait until the
     * first one's inputs are there, in whose way they would stand. */
    static constexpr bool inputs_first = KIND == MATRIX_INT4 && TOKENS > MID_BYTES_TOKENS;
    static constexpr bool bytes = KIND == MATRIX_INT4 && TOKENS <= MID_BYTES_TOKENS;
    /* Sums of slices tell for themselves (mid_take), rather than a counter of them: less time where
     * there are few and registers for it, else more (tests/bench/results/cuda_log.md). */
    static constexpr bool tells = roomy;
    static constexpr bool begun = /* sums do not begin with 0 */
        KIND == MATRIX_INT4 && TOKENS == 32;
    static constexpr u32 form = bytes ? FORM_BYTES : begun ? FORM_SUMS : FORM_HALVES;
    /* Inputs of a tile come in strips of so many tokens; no more of them than there are tokens. */
    static constexpr u32 strip = plain ? 32 : TOKENS, strips = TOKENS / strip;
    static constexpr u32 columns = bytes ? 2 * TOKENS : strip; /* of products */
    static constexpr u32 steps = bytes ? 4 : 8;                /* of a group */
    static constexpr u32 spans = KIND == MATRIX_INT4 ? 2 : 1;  /* of a stage */
    /* of a span: of a unit, */
    static constexpr u32 chunks = 2 << KIND, weights_bytes = chunks * WEIGHT_CHUNK_BYTES;
    static constexpr u32 scales_bytes = plain ? 0 : 32, zeros_bytes = plain ? 0 : 16;
    static constexpr u32 span_bytes = linear_group_bytes(strip, form); /* of inputs of a strip */
    static constexpr u32 unit_bytes = spans * weights_bytes;
    static constexpr u32 side_bytes = spans * (scales_bytes + zeros_bytes);
    static constexpr u32 inputs_at = units * unit_bytes;
    static constexpr u32 sides_at = inputs_at + strips * spans * span_bytes;
    static constexpr u32 stage_bytes = sides_at + units * side_bytes;
    /* In front of them: of all rows, factors and the scales of slices (mid_factors). */
    static constexpr u32 rows = wide ? (u32)MID_TOKENS : TOKENS;
    static constexpr u32 stages_at = ROUND_UP(rows * 4 * (1 + MATRIX_SLICES), 128u);
};

template <class shape> GPU u8 *mid_stage_at(u32 stage)
{
    return gpu_shared() + shape::stages_at + stage * shape::stage_bytes;
}

/* What of a matrix the loops depend on. */
struct mid_how {
    bool half;  /* scales are f16; else bf16 */
    bool zeros; /* there are */
    bool all;   /* strips; else one */
};

/* A group of a unit as it comes: 128 inputs of 16 outputs. */
template <class shape> struct mid_group {
    uint4 v[shape::chunks];
    u32 scales, zeros;
};

/* What is made of it: fragments of its weights, its scales; with bytes, zeros too. Of rows g + 8 of
 * INT4 made into bytes or smallest halves all are 16 times too large but the scales, which are as
 * much too small. */
template <class shape> struct mid_made {
    u32 a[shape::steps][4];
    struct weight_scales scales;
    i32 zero[2];
};

/* Where this lane finds its part of a stage. */
struct mid_place {
    const u8 *data, *scales, *zeros;
    const void *sums; /* of inputs, of tokens 2 t */
    u32 inputs;       /* for gpu_group_mma */
};

template <class shape> GPU struct mid_place mid_place_of(u32 number)
{
    const u8 *stage = mid_stage_at<shape>(number);
    const u8 *side = stage + shape::sides_at + gpu_warp() * shape::side_bytes;
    struct mid_place at;
    at.data = stage + gpu_warp() * shape::unit_bytes + gpu_lane() * 16;
    at.scales = side + gpu_lane() / 4 * 4;
    at.zeros = side + gpu_lane() / 4 * 2 + shape::spans * shape::scales_bytes;
    at.sums = stage + shape::inputs_at + shape::tokens * 256 +
              gpu_lane() % 4 * (shape::begun ? sizeof(float4) : 2 * sizeof(i32));
    at.inputs = gpu_scalar(gpu_group_tiles<shape::columns * 16>(stage + shape::inputs_at));
    return at;
}

template <class shape> GPU const void *mid_sums_at(const struct mid_place *at, u32 span)
{
    return (const u8 *)at->sums + span * shape::span_bytes;
}

/* turn: which of this warp's units. */
template <class shape>
GPU struct mid_group<shape> mid_load(const struct mid_place *at, u32 span, u32 turn,
                                     struct mid_how how) {
    const u8 *data =
        at->data + turn * (GPU_WARPS * shape::unit_bytes) + span * shape::weights_bytes;
    const u32 side = turn * (GPU_WARPS * shape::side_bytes);
    struct mid_group<shape> g;
#pragma unroll
    for (u32 i = 0; i < shape::chunks; i++)
        g.v[i] = *(const uint4 *)(data + i * WEIGHT_CHUNK_BYTES);
    g.scales = *(const u32 *)(at->scales + side + span * shape::scales_bytes);
    g.zeros = weight_no_zeros<shape::kind>();
    if (how.zeros)
        g.zeros = *(const u16 *)(at->zeros + side + span * shape::zeros_bytes);
    return g;
}

/* Nibbles are bytes: those of rows g as they are, those of rows g + 8 16 times as large. Inputs are
 * in the order that this makes (struct input). */
template <class shape>
GPU void mid_make_bytes(struct mid_made<shape> *made, const struct mid_group<shape> *g)
{
    const u32 word[8] = {g->v[0].x, g->v[0].y, g->v[0].z, g->v[0].w,
                         g->v[1].x, g->v[1].y, g->v[1].z, g->v[1].w};
#pragma unroll
    for (u32 t = 0; t < 8; t++) {
        made->a[t / 2][t % 2 * 2] = word[t] & 0x0f0f0f0f;
        made->a[t / 2][t % 2 * 2 + 1] = word[t] & 0xf0f0f0f0;
    }
    made->zero[0] = (i32)(g->zeros & 0xff);
    made->zero[1] = (i32)(g->zeros >> 8) * 16;
    made->scales.low *= 0x1p-24f; /* of integers */
    made->scales.high *= 0x1p-28f;
}

/* Nibbles are halves. */
template <class shape>
GPU void mid_make_smallest(struct mid_made<shape> *made, const struct mid_group<shape> *g)
{
    const u32 word[8] = {g->v[0].x, g->v[0].y, g->v[0].z, g->v[0].w,
                         g->v[1].x, g->v[1].y, g->v[1].z, g->v[1].w};
#pragma unroll
    for (u32 t = 0; t < 8; t++) {
        u32 *a = made->a[t];
        const u32 both = gpu_permute_bytes(word[t], 0, 0x4341); /* word >> 8 & 0x00ff00ff */
        a[0] = word[t] & 0x000f000f;
        a[1] = word[t] & 0x00f000f0;
        a[2] = both & 0x000f000f;
        a[3] = gpu_half2_sub(both, a[2]); /* exact; a scheduler has less to do than with an AND */
    }
    made->scales.low *= 0x1p24f;
    made->scales.high *= 0x1p20f;
}

template <class shape>
GPU void mid_make(struct mid_made<shape> *made, const struct mid_group<shape> *g,
                  struct mid_how how)
{
    made->scales = weight_scales_of(g->scales, 0, how.half ? DTYPE_F16 : DTYPE_BF16);
    if constexpr (shape::bytes) {
        mid_make_bytes(made, g);
    } else if constexpr (shape::begun) {
        mid_make_smallest(made, g);
    } else {
        const struct weight_zero zero = weight_zero_of<shape::kind>(g->zeros);
        constexpr u32 tiles = 8 / shape::chunks; /* of 16 inputs, in a chunk */
#pragma unroll
        for (u32 i = 0; i < shape::chunks; i++) {
            const u32 word[4] = {g->v[i].x, g->v[i].y, g->v[i].z, g->v[i].w};
#pragma unroll
            for (u32 t = 0; t < tiles; t++)
                weight_fragment<shape::kind>(made->a[i * tiles + t], word, t, &zero);
        }
    }
}

template <class shape, bool add> GPU void mid_mma(float *sum, const u32 a[4], u32 inputs)
{
    gpu_group_mma<shape::columns, 128, add, shape::columns * 16>(sum, a, inputs);
}
template <class shape, bool add> GPU void mid_mma(i32 *sum, const u32 a[4], u32 inputs)
{
    gpu_group_mma_bytes<shape::columns, 128, add, shape::columns * 16>(sum, a, inputs);
}

/* What a group's sums begin with where that is not 0: inputs times -8, or times its zeros. */
template <class shape>
GPU void mid_start(float *sum, const struct mid_group<shape> *g, const void *inputs,
                   struct mid_how how)
{
    const float eighths[2] = {(float)(g->zeros & 0xff) * 0.125f, (float)(g->zeros >> 8) * 0.125f};
    if constexpr (shape::begun)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++) {
            const float4 v = gpu_load_now((const float4 *)inputs + j * 4);
            const float at[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                sum[j * 4 + e] = how.zeros ? at[e] * eighths[e / 2] : at[e];
        }
}

/* Sends for the products of a group with its inputs. */
template <class shape, class sums>
GPU void mid_begin(sums *sum, struct mid_made<shape> *made, u32 inputs)
{
    if constexpr (shape::begun)
        gpu_group_begin_sums<shape::columns>(sum);
    gpu_group_begin<shape::steps>(made->a);
#pragma unroll
    for (u32 t = 0; t < shape::steps; t++) {
        u32 b = gpu_group_tiles_at(inputs, t * 2 * shape::columns * 16);
        if (t || shape::begun)
            mid_mma<shape, true>(sum, made->a[t], b);
        else
            mid_mma<shape, false>(sum, made->a[t], b);
    }
    gpu_group_commit();
}

/* p += sum, scaled. */
template <class shape>
GPU void mid_add(float p[shape::n][4], const float *sum, const struct weight_scales *scales)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++)
        weight_add(p[j], sum + j * 4, scales);
}

/* The same of sums of high and low bytes, from which those with zeros are taken. */
template <class shape>
GPU void mid_add(float p[shape::n][4], const i32 *sum, const struct mid_made<shape> *made,
                 const void *inputs)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++) {
        const i32 *at = (const i32 *)inputs + j * 8, of[2] = {at[0], at[1]};
        float v[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++) { /* where there is no token, of whatever stood there */
            u32 high = (u32)sum[j * 8 + e], low = (u32)sum[j * 8 + 4 + e];
            v[e] = (float)(i32)(high * 128 + low - (u32)made->zero[e / 2] * (u32)of[e % 2]);
        }
        weight_add(p[j], v, &made->scales);
    }
}

/* A stage of some spans, where these four warps have so many units each, of bytes: one group's
 * products run while the sums of the one before are scaled and the next is made. Straight on: where
 * there are branches, the compiler lets products wait for one another. */
template <class shape, u32 units, u32 spans>
GPU void mid_multiply_bytes(u32 number, struct mid_how how, struct tile_sums<shape> *p)
{
    constexpr u32 all = spans * units;
    const struct mid_place at = mid_place_of<shape>(number);
    struct mid_made<shape> made[2];
    struct mid_group<shape> g = mid_load<shape>(&at, 0, 0, how);
    i32 sum[2][shape::columns / 2];
    mid_make(&made[0], &g, how);
#pragma unroll
    for (u32 i = 0; i <= all; i++) {
        const u32 done = i - 1;
        if (i + 1 < all)
            g = mid_load<shape>(&at, (i + 1) / units, (i + 1) % units, how);
        if (i < all)
            mid_begin(sum[i % 2], &made[i % 2],
                      gpu_group_tiles_at(at.inputs, i / units * shape::span_bytes));
        if (i) {
            if (i < all)
                gpu_group_wait<1, shape::columns>(sum[done % 2]);
            else
                gpu_group_wait<0, shape::columns>(sum[done % 2]);
            mid_add<shape>(p->v[done % units], sum[done % 2], &made[done % 2],
                           mid_sums_at<shape>(&at, done / units));
        }
        if (i + 1 < all)
            mid_make(&made[(i + 1) % 2], &g, how);
    }
}

/* The same of halves, beside whose products hardly anything else is done: while a group's run, the
 * sums of the one before are scaled and those of the next begun, which is made when they are there.
 * So there are fragments of one group only, and registers for mid_take. */
template <class shape, u32 units, u32 spans>
GPU void mid_multiply_halves(u32 number, struct mid_how how, struct tile_sums<shape> *p)
{
    constexpr u32 all = spans * units;
    const struct mid_place at = mid_place_of<shape>(number);
    struct mid_made<shape> made;
    struct weight_scales before = {0, 0};
    struct mid_group<shape> g = mid_load<shape>(&at, 0, 0, how);
    float sum[2][shape::columns / 2];
    mid_start<shape>(sum[0], &g, at.sums, how);
    mid_make(&made, &g, how);
#pragma unroll
    for (u32 i = 0; i <= all; i++) {
        const u32 done = i - 1, next = i + 1;
        if (next < all)
            g = mid_load<shape>(&at, next / units, next % units, how);
        if (i < all)
            mid_begin(sum[i % 2], &made,
                      gpu_group_tiles_at(at.inputs, i / units * shape::span_bytes));
        if (i)
            mid_add<shape>(p->v[done % units], sum[done % 2], &before);
        if (next < all)
            mid_start<shape>(sum[next % 2], &g, mid_sums_at<shape>(&at, next / units), how);
        if (i < all)
            gpu_group_wait<0, shape::columns>(sum[i % 2]);
        before = made.scales;
        if (next < all)
            mid_make(&made, &g, how);
    }
}

/* The same where there are registers for the sums of one group only: its products run while the
 * next is loaded. */
template <class shape, u32 units>
GPU void mid_multiply_alone(u32 number, u32 spans, struct mid_how how, struct tile_sums<shape> *p)
{
    const struct mid_place at = mid_place_of<shape>(number);
    struct mid_made<shape> made;
    struct mid_group<shape> g = mid_load<shape>(&at, 0, 0, how);
    float sum[shape::columns / 2];
    mid_make(&made, &g, how);
#pragma unroll
    for (u32 i = 0; i < shape::spans * units; i++) {
        const bool last = i + 1 == shape::spans * units;
        if (i / units >= spans)
            break;
        if (!last)
            g = mid_load<shape>(&at, (i + 1) / units, (i + 1) % units, how);
        mid_begin(sum, &made, gpu_group_tiles_at(at.inputs, i / units * shape::span_bytes));
        gpu_group_wait<0, shape::columns>(sum);
        mid_add<shape>(p->v[i % units], sum, &made.scales);
        if (!last)
            mid_make(&made, &g, how);
    }
}

/* The same of halves, which are fragments as they lie: four steps are loaded while those before
 * them run, and their sum is the slice's. */
template <class shape, u32 strips>
GPU void mid_multiply_plain(u32 number, struct tile_sums<shape> *p)
{
    enum { STEPS = 4, TURNS = 2 };
    const struct mid_place at = mid_place_of<shape>(number);
    u32 a[TURNS][STEPS][4];
#pragma unroll
    for (u32 i = 0; i < TURNS; i++) {
#pragma unroll
        for (u32 t = 0; t < STEPS; t++) {
            uint4 v = *(const uint4 *)(at.data + (i * STEPS + t) * WEIGHT_CHUNK_BYTES);
            a[i][t][0] = v.x, a[i][t][1] = v.y, a[i][t][2] = v.z, a[i][t][3] = v.w;
        }
        gpu_group_begin<STEPS>(a[i]);
#pragma unroll
        for (u32 t = 0; t < STEPS; t++)
#pragma unroll
            for (u32 s = 0; s < strips; s++)
                mid_mma<shape, true>(
                    p->v[0][s * shape::strip / 8], a[i][t],
                    gpu_group_tiles_at(at.inputs, s * shape::span_bytes +
                                                      (i * STEPS + t) * 2 * shape::columns * 16));
        gpu_group_commit();
    }
#pragma unroll
    for (u32 s = 0; s < strips; s++)
        gpu_group_wait<0, shape::columns>(p->v[0][s * shape::strip / 8]);
}

/* What there is of `how` that a loop of its own is worth, the compiler knows. */
template <class shape, u32 units>
GPU void mid_stage_how(u32 number, u32 spans, struct mid_how how, struct tile_sums<shape> *p)
{
    if constexpr (shape::plain) {
        if (how.all)
            mid_multiply_plain<shape, shape::strips>(number, p);
        else
            mid_multiply_plain<shape, 1>(number, p);
    } else if constexpr (!shape::ahead)
        mid_multiply_alone<shape, units>(number, spans, how, p);
    else if constexpr (!shape::bytes) {
        if (spans == shape::spans)
            mid_multiply_halves<shape, units, shape::spans>(number, how, p);
        else
            mid_multiply_halves<shape, units, 1>(number, how, p);
    } else if (spans == shape::spans)
        mid_multiply_bytes<shape, units, shape::spans>(number, how, p);
    else
        mid_multiply_bytes<shape, units, 1>(number, how, p);
}

/* p += the products of a stage. */
template <class shape, u32 units>
GPU void mid_stage(u32 number, u32 spans, struct mid_how how, struct tile_sums<shape> *p)
{
    if (!shape::begun)
        mid_stage_how<shape, units>(number, spans, how, p);
    else if (how.zeros)
        mid_stage_how<shape, units>(number, spans, {how.half, true, true}, p);
    else
        mid_stage_how<shape, units>(number, spans, {how.half, false, true}, p);
}

#endif

#endif
