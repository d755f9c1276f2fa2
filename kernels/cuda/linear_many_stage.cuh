/* A stage of linear_many.cuh: how it lies in shared memory, how it is copied there, and how it is
 * multiplied. It is MANY_K inputs of a tile:
 *   weights [blocks of 16 outputs][chunks][512], as in memory
 *   inputs [MANY_K / 8][tokens][8 halves]
 *   sums of them, of small shapes: f32 [tokens / 2][2][2 tokens], as struct input has them
 *   sides [blocks][spans]: scales [64], zeros [16]; a span is 32 inputs, or all of the stage where
 * groups are multiples of 128
 *
 * A multiprocessor has two warps a scheduler here, too few to hide what a product waits for. So
 * what products are made of is read and unpacked a step of 16 inputs ahead of them, across the ends
 * of stages, and copies go out between the products of a stage's last step, behind the one barrier
 * of a stage: then all have read what they overwrite, and the next stage is there.
 *
 * Small shapes: INT4 in groups of 128 of up to MANY_SMALL_TOKENS tokens. A nibble stays where it is
 * in a half, the smallest there are (linear_mid_stage.cuh tells how), and two blocks of outputs
 * share what is read of the inputs.
 */
#ifndef ZIGCUDA_LINEAR_MANY_STAGE_CUH
#define ZIGCUDA_LINEAR_MANY_STAGE_CUH

#include "kernels/cuda/linear_input.cuh"
#include "kernels/cuda/linear_tile.cuh"

enum {
#if GPU_CAPABILITY < 800
    MANY_K = 64, /* inputs of a stage: 64 KiB of shared memory hold two stages */
#else
    MANY_K = 128,
#endif
    MANY_STEPS = MANY_K / 16,         /* of a stage: what a product takes */
    MANY_GROUP_STAGES = 128 / MANY_K, /* of a group of 128 inputs */
    MANY_SMALL_TOKENS = 64,
    MANY_SPANS = MANY_K / 32, /* at most */
    MANY_SIDE_BYTES = 64 + 16,
    MANY_STRIP = 32, /* tokens of a tile of prepared inputs */
    MANY_STRIP_BYTES = linear_group_bytes(MANY_STRIP, FORM_SUMS),
    MANY_EIGHT_BYTES = MANY_STRIP * 16, /* 8 inputs of a strip */
    MANY_SUMS_AT = MANY_STRIP * 256,
    MANY_WORK_AT = 128, /* behind what rows are prepared with */
    MANY_HEAD_BYTES = 256,
};

/* How tiles are cut, for what stands once for all shapes. */
struct many_cut {
    u32 kind, tokens, blocks; /* blocks: of 16 outputs */
    u32 m, n, across;      /* a warp has m of these by n times 8 tokens, `across` warps lie side by
                              side along the tokens */
    u32 sums_at, sides_at; /* in a stage; sums_at 0: it has none */
};

template <u32 KIND, u32 M, u32 N, u32 ACROSS, bool SMALL = false> struct many_shape {
    static constexpr u32 kind = KIND, m = M, n = N, across = ACROSS, apart = 1;
    static constexpr bool small = SMALL;
    static constexpr u32 tokens = N * 8 * ACROSS, blocks = GPU_WARPS / ACROSS * M;
    static constexpr u32 units = blocks / GPU_WARPS; /* that a warp copies */
    static constexpr u32 block_bytes =
        MANY_K * 2 * (4 << MATRIX_SHIFT(KIND)); /* 16 outputs of a stage */
    static constexpr u32 inputs_at = blocks * block_bytes;
    static constexpr u32 sums_at = inputs_at + tokens * MANY_K * 2;
    static constexpr u32 sides_at = sums_at + (SMALL ? tokens * 8 : 0);
    static constexpr u32 spans = KIND == MATRIX_HALF ? 0 : SMALL ? 1 : +MANY_SPANS;
    static constexpr u32 stage_bytes = sides_at + blocks * spans * MANY_SIDE_BYTES;
    static constexpr u32 floats = blocks * 16 * tokens;
    /* Sums of 64 and more tokens do not fit registers twice: those of all slices so far are parked.
     */
    static constexpr bool parked = N > 4;
    /* Stages of the ring, at most: more shared memory is less of L1, which has what is spilled. */
    static constexpr u32 depth = parked ? 2 : 4;
    static constexpr u32 head = MANY_HEAD_BYTES;
    static constexpr u32 stages_at = head + (parked ? floats * 4 : 0);
    static constexpr struct many_cut cut = {
        KIND, tokens, blocks, M, N, ACROSS, SMALL ? sums_at : 0, sides_at};
};

template <class shape> GPU u32 many_stages(u32 shared_bytes)
{
    return MIN((MAX(shared_bytes, shape::stages_at) - shape::stages_at) / shape::stage_bytes,
               +shape::depth);
}

/* --- copying ------------------------------------------------------------------------------- */

/* Where this thread's copies for the next stage come from. Where outputs and tokens end, others are
 * copied: what becomes of them is not put out. */
struct many_from {
    u32 left;                           /* stages that remain of the item */
    const u8 *weights, *inputs, *side;  /* weights, side: of the warp's first unit */
    u32 second;                         /* from its weights to those of the second one */
    u32 side_to, side_step, side_apart; /* side: scales, zeros or sums of inputs, or NULL; apart:
                                           from one unit's to the next one's, or 0 */
    bool fine;                          /* side_step is a stage's, not a group's */
};

/* This thread's places in a stage, in bytes: of what it reads, and of what it copies there. scales,
 * zeros: of this lane's rows. */
struct many_offsets {
    u32 weights, inputs, scales, zeros, weights_to, inputs_to;
};

template <class shape> GPU struct many_offsets many_offsets_of(u32 scale_type)
{
    const u32 lane = gpu_lane(), octet = tile_warp_octet<shape>() + lane / 16;
    const u32 block = tile_warp_block<shape>();
    const u32 sides = shape::sides_at + block * shape::spans * MANY_SIDE_BYTES;
    return {block * shape::block_bytes + lane * 16,
            shape::inputs_at + lane / 8 % 2 * (shape::tokens * 16) + octet * 128 + lane % 8 * 16,
            sides + (lane / 4 << (scale_type == DTYPE_F32 ? 3 : 2)),
            sides + 64 + lane / 4 * 2,
            gpu_warp() * (shape::units * shape::block_bytes) + lane * 16,
            shape::inputs_at + gpu_thread() * 16};
}

/* What a thread copies of a stage, in pieces of 16 bytes: products go on between them. */
template <class shape> struct many_pieces {
    static constexpr u32 of_unit = shape::block_bytes / WEIGHT_CHUNK_BYTES;
    static constexpr u32 weights = shape::units * of_unit;
    static constexpr u32 inputs = CEIL_DIV(shape::tokens * (MANY_K / 8), (u32)GPU_THREADS);
    static constexpr u32 sides = shape::spans ? shape::units : 0;
    static constexpr u32 all = weights + inputs + sides;
};

/* A stage as it is copied: whether there is one, where from, and to where. */
struct many_ahead {
    bool some;
    const struct many_from *from;
    u8 *to, *weights_to, *inputs_to; /* to: its begin */
};

GPU struct many_ahead many_ahead_of(const struct many_from *from, bool some, u8 *stage,
                                    struct many_offsets o)
{
    return {some, from, stage, stage + o.weights_to, stage + o.inputs_to};
}

/* Starts copying piece i, a constant behind unrolling, if there is one. */
template <class shape> GPU void many_copy_piece(const struct many_ahead *ahead, u32 i)
{
    typedef many_pieces<shape> pieces;
    constexpr u32 count = shape::tokens * (MANY_K / 8), eights = GPU_THREADS / shape::tokens;
    const struct many_from *from = ahead->from;
    if (i < pieces::weights) {
        const u32 unit = i / pieces::of_unit, at = i % pieces::of_unit * WEIGHT_CHUNK_BYTES;
        gpu_copy16_if(ahead->some, ahead->weights_to + unit * shape::block_bytes + at,
                      from->weights + (unit ? from->second : 0) + at);
    } else if (i < pieces::weights + pieces::inputs) {
        const u32 j = i - pieces::weights;
        gpu_copy16_if(ahead->some && (count % GPU_THREADS == 0 || gpu_thread() < count),
                      ahead->inputs_to + j * (GPU_THREADS * 16),
                      from->inputs + j * (eights * MANY_EIGHT_BYTES));
    } else if (i < pieces::all) {
        const u32 unit = i - pieces::weights - pieces::inputs;
        gpu_copy16_if(ahead->some && (unit ? from->side_apart != 0 : from->side != NULL),
                      ahead->to + from->side_to + unit * shape::spans * MANY_SIDE_BYTES,
                      from->side + unit * (size_t)from->side_apart);
    }
}

/* On to the next stage. left: how many there are of the item. */
template <class shape> GPU void many_advance(struct many_from *from, u32 left)
{
    const bool ends = left % MANY_GROUP_STAGES == 0; /* a group */
    from->weights += shape::block_bytes;
    from->inputs += MANY_K / 8 * MANY_EIGHT_BYTES;
    if (ends)
        from->inputs += MANY_STRIP_BYTES - 16 * MANY_EIGHT_BYTES;
    if (shape::spans && (ends || from->fine))
        from->side += from->side_step;
}

/* Waits until at most `open` stages, up to `most`, are on their way; nobody reads any more what all
 * have read. */
template <u32 most> GPU void many_wait(u32 open)
{
    if (most >= 3 && open == 3)
        gpu_copy_wait<3>();
    else if (most >= 2 && open == 2)
        gpu_copy_wait<2>();
    else if (most >= 1 && open == 1)
        gpu_copy_wait<1>();
    else
        gpu_copy_wait<0>();
    gpu_sync();
}

/* --- products ------------------------------------------------------------------------------ */

/* What of a matrix the loops depend on. */
struct many_how {
    u32 scale_type;
    bool zeros, fine;
};

/* Where this lane finds its part of a stage. */
struct many_place {
    const u8 *weights, *inputs, *scales, *zeros; /* scales, zeros: of this lane's rows */
};

GPU struct many_place many_place_of(const u8 *stage, struct many_offsets o)
{
    return {stage + o.weights, stage + o.inputs, stage + o.scales, stage + o.zeros};
}

/* What products are made of, one step of 16 inputs ahead of them, so that no product waits for what
 * is read and unpacked for it. word: of the units, INT4 of 64 inputs, INT8 of 32. */
template <class shape> struct many_fragments {
    static constexpr u32 parts = shape::n >= 4 ? 2 : 1, octets = shape::n / parts;
    u32 a[2][shape::m][4], b[2][octets / 2][4], word[shape::m][4], both[shape::m];
    struct weight_zero zero[shape::m];
};

/* How many steps a word has, and a group (`fine`: of 32 inputs, else the stage). */
template <class shape> GPU constexpr u32 many_word_steps(void)
{
    return shape::kind == MATRIX_HALF ? 1 : 4 >> MATRIX_SHIFT(shape::kind);
}

/* Zeros of the group where `step` begins, as they stand in memory. */
template <class shape>
GPU void many_load_zeros(struct many_fragments<shape> *f, const struct many_place *at, u32 step,
                         bool zeros)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        /* something, when there are none */
        const u32 both =
            *(const u16 *)(at->zeros + (step / 2 + i * shape::spans) * MANY_SIDE_BYTES);
        f->both[i] = zeros ? both : weight_no_zeros<shape::kind>();
    }
}

/* The words that begin at a step. */
template <class shape>
GPU void many_load_words(struct many_fragments<shape> *f, const struct many_place *at, u32 step)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        const uint4 v = *(const uint4 *)(at->weights + i * shape::block_bytes +
                                         step / many_word_steps<shape>() * WEIGHT_CHUNK_BYTES);
        f->word[i][0] = v.x, f->word[i][1] = v.y, f->word[i][2] = v.z, f->word[i][3] = v.w;
    }
}

/* b-fragments of a part of a step: two octets of tokens at a time. Parts are counted on and on. */
template <class shape>
GPU void many_load_inputs(struct many_fragments<shape> *f, const struct many_place *at, u32 part)
{
    constexpr u32 parts = many_fragments<shape>::parts, octets = many_fragments<shape>::octets;
#pragma unroll
    for (u32 j = 0; j < octets / 2; j++)
        gpu_load_tiles(f->b[part % 2][j], at->inputs + part / parts * (2 * shape::tokens * 16) +
                                              part % parts * (octets * 128) + j * 256);
}

/* A word of weights as smallest halves: those of rows g + 8 are 16 times too large. */
GPU void many_smallest(u32 a[4], u32 word)
{
    const u32 both = word >> 8;
    a[0] = word & 0x000f000f;
    a[1] = word & 0x00f000f0;
    a[2] = both & 0x000f000f;
    a[3] = both & 0x00f000f0;
}

/* a-fragments of a step, of the words that have it. */
template <class shape> GPU void many_make(struct many_fragments<shape> *f, u32 step, bool new_zero)
{
    const u32 part = step % many_word_steps<shape>();
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        u32 *a = f->a[step % 2][i];
        if constexpr (shape::small) {
            many_smallest(a, f->word[i][part]);
        } else {
            if (shape::kind != MATRIX_HALF && new_zero)
                f->zero[i] = weight_zero_of<shape::kind>(f->both[i]);
            weight_fragment<shape::kind>(a, f->word[i], part, &f->zero[i]);
        }
    }
}

/* What a group's sums begin with: inputs times -8, or times its zeros. */
template <class shape>
GPU void many_start(struct tile_sums<shape> *sum, const u8 *stage, const struct many_place *at,
                    bool zeros)
{
    const u8 *sums =
        stage + shape::sums_at + tile_warp_octet<shape>() * 64 + gpu_lane() % 4 * sizeof(float4);
    float low[shape::m], high[shape::m];
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        low[i] = high[i] = 1;
        if (zeros) {
            const u32 both = *(const u16 *)(at->zeros + i * MANY_SIDE_BYTES);
            low[i] = (float)(both & 0xff) * 0.125f;
            high[i] = (float)(both >> 8) * 0.125f;
        }
    }
#pragma unroll
    for (u32 j = 0; j < shape::n; j++) {
        const float4 v = *(const float4 *)(sums + j * 64);
#pragma unroll
        for (u32 i = 0; i < shape::m; i++) {
            float *c = sum->v[i][j];
            c[0] = v.x * low[i], c[1] = v.y * low[i], c[2] = v.z * high[i], c[3] = v.w * high[i];
        }
    }
}

/* Where a stage and the one behind it are, and what is copied meanwhile. */
struct many_turn {
    struct many_place at, next;
    struct many_ahead ahead;
};

/* All that a stage's first step wants, where it is not made while the one before is multiplied. */
template <class shape>
GPU void many_first(struct many_fragments<shape> *f, const struct many_place *at,
                    struct many_how how)
{
    if (shape::kind != MATRIX_HALF && !shape::small)
        many_load_zeros<shape>(f, at, 0, how.zeros);
    many_load_inputs<shape>(f, at, 0);
    many_load_words<shape>(f, at, 0);
    many_make<shape>(f, 0, true);
}

/* The products of a part of a step, and some copies after each two. */
template <class shape>
GPU void many_products(const struct many_fragments<shape> *f, u32 part, bool first,
                       struct tile_sums<shape> *sum, const struct many_ahead *ahead, u32 *piece)
{
    constexpr u32 parts = many_fragments<shape>::parts, octets = many_fragments<shape>::octets;
    const u32 step = part / parts;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < octets; j++) {
            float *c = sum->v[i][part % parts * octets + j];
            if (first)
                c[0] = c[1] = c[2] = c[3] = 0;
            gpu_mma(c, f->a[step % 2][i], f->b[part % 2][j / 2] + j % 2 * 2);
            if (step == MANY_STEPS - 1 && j % 2)
                many_copy_piece<shape>(ahead, (*piece)++);
        }
}

/* Scales of a group, as they stand in memory: asked for before its last products. */
template <class shape> struct many_scales {
    u32 word[shape::m][2];
};

template <class shape, bool fine> GPU struct many_scales<shape> many_scales_of(const u8 *scales) {
    struct many_scales<shape> s;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        const u32 *words = (const u32 *)(scales + i * shape::spans * MANY_SIDE_BYTES);
        s.word[i][0] = words[0], s.word[i][1] = fine ? words[1] : 0;
    }
    return s;
}

template <class shape, bool fine>
GPU void many_add_group(struct tile_sums<shape> *p, const struct tile_sums<shape> *sum,
                        u32 scale_type, const struct many_scales<shape> *scales)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        struct weight_scales s =
            weight_scales_of(scales->word[i][0], scales->word[i][1],
                             fine || scale_type == DTYPE_F16 ? scale_type : (u32)DTYPE_BF16);
        if (shape::small)
            s.low *= 0x1p24f, s.high *= 0x1p20f;
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
            weight_add(p->v[i][j], sum->v[i][j], &s);
    }
}

/* A stage, onto the sums of the slice. `sum`: of the group; where that is of two stages, `begins`
 * in the first and ends in the second. When all of it has been read, its place is copied to. */
template <class shape, bool fine>
GPU void many_stage(struct many_fragments<shape> *f, const u8 *stage, const struct many_turn *turn,
                    struct many_how how, u32 stages, bool begins, struct tile_sums<shape> *sum,
                    struct tile_sums<shape> *p)
{
    const bool halves = shape::kind == MATRIX_HALF, two = MANY_GROUP_STAGES == 2;
    const u32 group_steps = fine ? 2 : +MANY_STEPS;
    u32 piece = 0;
    if (!halves && !fine && (!two || begins)) {
        if constexpr (shape::small)
            many_start<shape>(sum, stage, &turn->at, how.zeros);
        else if (two)
            tile_clear<shape>(sum);
    }
#pragma unroll
    for (u32 s = 0; s < MANY_STEPS; s++) {
        constexpr u32 parts = many_fragments<shape>::parts;
        const struct many_place *behind = s + 1 < MANY_STEPS ? &turn->at : &turn->next;
        const u32 one = (s + 1) % MANY_STEPS;
        const bool first = !shape::small && s % group_steps == 0 && (fine || !two);
        const bool last = !halves && (s + 1) % group_steps == 0 && (fine || !two || !begins);
        struct many_scales<shape> scales;
        if (parts == 2)
            many_load_inputs<shape>(f, &turn->at, s * parts + 1);
        if (last)
            scales =
                many_scales_of<shape, fine>(turn->at.scales + (fine ? s / 2 : 0) * MANY_SIDE_BYTES);
        if (s == MANY_STEPS - 1)
            many_wait<shape::depth - 2>(stages - 2);
        if (one % many_word_steps<shape>() == 0)
            many_load_words<shape>(f, behind, one);
        if (!halves && !shape::small && one % group_steps == 0)
            many_load_zeros<shape>(f, behind, one, how.zeros);
        if (parts == 2)
            many_products<shape>(f, s * parts, !halves && first, halves ? p : sum, &turn->ahead,
                                 &piece);
        many_load_inputs<shape>(f, behind, one * parts);
        many_products<shape>(f, s * parts + parts - 1, !halves && first, halves ? p : sum,
                             &turn->ahead, &piece);
        many_make<shape>(f, one, one % group_steps == 0);
        if (last)
            many_add_group<shape, fine>(p, sum, how.scale_type, &scales);
    }
#pragma unroll
    for (; piece < many_pieces<shape>::all; piece++)
        many_copy_piece<shape>(&turn->ahead, piece);
}

#endif
