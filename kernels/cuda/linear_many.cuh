/* Linears of more tokens, where linear_wide.cuh is not. A tile is 128 or 256 outputs by 16, 32, 64
 * or 128 tokens; whole tiles or even stretches of their slices are shared out among the blocks as
 * linear_share.cuh says. Weights, prepared inputs and scales come through stages of MANY_K inputs
 * in shared memory, one barrier a stage; copies run ahead from item to item.
 *
 * A stage is
 *   weights [blocks of 16 outputs][chunks][512], as in memory
 *   inputs [MANY_K / 8][tokens][8 halves]
 *   sums of them, of small shapes: f32 [tokens / 2][2][2 tokens], as struct input has them
 *   sides [blocks][spans]: scales [64], zeros [16]; a span is 32 inputs, or all of the stage where
 * groups are multiples of 128
 *
 * Small shapes: INT4 in groups of 128 of up to MANY_SMALL_TOKENS tokens. A multiprocessor has two
 * warps a scheduler here, which wait for their own instructions most of the time; so instructions
 * are what is saved. A nibble stays where it is in a half, the smallest there are
 * (linear_mid_stage.cuh tells how), and two blocks of outputs share what is read of the inputs.
 *
 * What the inner loop needs is held by value, since reading it through pointers costs a load each
 * time; all else is read again when an item begins or ends, since registers are scarce. What does
 * not depend on the shape much is in functions of its own: code is what each card's image keeps.
 */
#ifndef ZIGCUDA_LINEAR_MANY_CUH
#define ZIGCUDA_LINEAR_MANY_CUH

#include "kernels/cuda/linear_share.cuh"

enum {
#if GPU_CAPABILITY < 800
    MANY_K = 64, /* inputs of a stage: 64 KiB of shared memory hold two stages */
#else
    MANY_K = 128,
#endif
    MANY_GROUP_STAGES = 128 / MANY_K, /* of a group of 128 inputs */
    MANY_STAGES = 4,                  /* at most */
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
    static constexpr u32 units = blocks / GPU_WARPS;             /* that a warp copies */
    static constexpr u32 block_bytes = MANY_K * 2 * (4 << KIND); /* 16 outputs of a stage */
    static constexpr u32 inputs_at = blocks * block_bytes;
    static constexpr u32 sums_at = inputs_at + tokens * MANY_K * 2;
    static constexpr u32 sides_at = sums_at + (SMALL ? tokens * 8 : 0);
    static constexpr u32 spans = KIND == MATRIX_HALF ? 0 : SMALL ? 1 : +MANY_SPANS;
    static constexpr u32 stage_bytes = sides_at + blocks * spans * MANY_SIDE_BYTES;
    static constexpr u32 floats = blocks * 16 * tokens;
    /* Sums of 64 and more tokens do not fit registers twice: those of all slices so far are parked.
     */
    static constexpr bool parked = N > 4;
    static constexpr u32 head = MANY_HEAD_BYTES;
    static constexpr u32 stages_at = head + (parked ? floats * 4 : 0);
    static constexpr struct many_cut cut = {
        KIND, tokens, blocks, M, N, ACROSS, SMALL ? sums_at : 0, sides_at};
};

template <class shape> GPU u32 many_stages(u32 shared_bytes)
{
    return MIN((MAX(shared_bytes, shape::stages_at) - shape::stages_at) / shape::stage_bytes,
               (u32)MANY_STAGES);
}

/* What this block has to do. */
struct many_work {
    struct share_work share;
    u32 each; /* stretches of so many slices each, which no tile's end divides; 0: of equal size */
};

GPU struct many_work *many_work(void)
{
    return (struct many_work *)(gpu_shared() + MANY_WORK_AT);
}

/* As share_work_of says; but where no stretch is longer for it, none lies across the end of a tile,
 * so that fewer blocks share one. */
GPU struct many_work many_work_of(const struct op_linear *op, u32 rows, struct many_cut cut)
{
    struct many_work w = {share_work_of(op, rows, cut.kind, cut.blocks, cut.tokens), 0};
    const u32 most = CEIL_DIV(w.share.slices, gpu_blocks());
    if (w.share.step || MATRIX_SLICES % most)
        return w;
    w.each = most;
    w.share.first = MIN(gpu_block() * most, w.share.slices);
    w.share.end = MIN(w.share.first + most, w.share.slices);
    return w;
}

/* Of those who share a tile, this block is number `number`. */
struct many_part {
    u32 number, sharers;
};

/* place: of this block's, in the tile. */
GPU struct many_part many_part_of(const struct many_work *w, u32 place)
{
    const u32 begin = place / MATRIX_SLICES * MATRIX_SLICES;
    if (w->each)
        return {place % MATRIX_SLICES / w->each, MATRIX_SLICES / w->each};
    const u32 first = share_block_of(&w->share, begin);
    return {gpu_block() - first, share_block_of(&w->share, begin + MATRIX_SLICES - 1) - first + 1};
}

/* --- copying ahead ------------------------------------------------------------------------- */

/* Where this thread's copies for the next stage come from. Where outputs and tokens end, others are
 * copied: what becomes of them is not put out. */
struct many_from {
    u32 left;                      /* stages that remain of the item */
    const u8 *weights[2], *inputs; /* weights: of the warp's units */
    const u8 *side;                /* of the first unit: scales, zeros, or sums of inputs */
    u32 side_to, side_step, side_units, side_apart; /* apart: from one unit's to the next one's */
    bool fine;                                      /* side_step is a stage's, not a group's */
};

/* Lane 4 s + j copies 16 bytes of the scales of span s, lane 16 + s its zeros; lanes from 20 on the
 * sums of inputs. */
GPU void many_aim_side(struct many_from *from, const struct matrix *m, struct many_cut cut,
                       u32 first, u32 k, const u8 *sums, size_t strip_apart)
{
    const u32 lane = gpu_lane(), units = cut.blocks / GPU_WARPS;
    const bool zeros = lane >= 16;
    const u32 spans = from->fine ? +MANY_SPANS : 1, span = zeros ? lane - 16 : lane / 4;
    const u32 piece = zeros ? 0 : lane % 4 * 16,
              of_group = 16 * (zeros ? 1 : weight_scale_bytes(m));
    const u32 number = gpu_warp() + (lane - 20) * GPU_WARPS, blocks = CEIL_DIV(m->n, 16u);
    from->side = m->data, from->side_to = from->side_step = 0; /* of lanes that copy none */
    from->side_units = from->side_apart = 0;
    if (lane >= 20 && cut.sums_at && number < cut.tokens / 2) {
        from->side =
            sums + number / (MANY_STRIP / 2) * strip_apart + number % (MANY_STRIP / 2) * 16;
        from->side_to = cut.sums_at + number * 16;
        from->side_step = MANY_STRIP_BYTES;
        from->side_units = 1;
    } else if (cut.kind != MATRIX_HALF && span < spans &&
               (zeros ? m->zeros != NULL : piece < of_group)) {
        const u32 all = cut.sums_at ? 1 : +MANY_SPANS;
        from->side = (zeros ? m->zeros : (const u8 *)m->scales + piece) +
                     ((size_t)first * m->groups + k / m->group + span) * of_group;
        from->side_to = cut.sides_at + (gpu_warp() * units * all + span) * MANY_SIDE_BYTES +
                        (zeros ? 64 : piece);
        from->side_step = spans * of_group;
        from->side_units = MIN(units, blocks - MIN(blocks, first));
        from->side_apart = m->groups * of_group;
    }
}

GPU_CALL void many_aim(const struct op_linear *op, struct many_cut cut, u32 place,
                       struct many_from *from)
{
    const struct share_work w = many_work()->share;
    const struct tile_item it = share_item_of(op, &w, cut.kind, cut.blocks, cut.tokens, place);
    const struct matrix *m = &op->part[it.part];
    const u32 k = tile_slice_at(m, it.slice), end = tile_slice_at(m, it.slice_end);
    const u32 units = cut.blocks / GPU_WARPS, last = CEIL_DIV(m->n, 16u) - 1;
    const u32 first = it.block + gpu_warp() * units, row = gpu_thread() % cut.tokens;
    const size_t of_block = (size_t)m->k * 2 * (4 << cut.kind);          /* bytes of 16 outputs */
    const size_t apart = (size_t)(op->in.room / 128) * MANY_STRIP_BYTES; /* of strips */
    const u8 *strips = (const u8 *)op->in.prepared + it.token / MANY_STRIP * apart +
                       (size_t)(k / 128) * MANY_STRIP_BYTES;
    from->left = (end - k) / MANY_K;
    from->fine = cut.kind != MATRIX_HALF && m->group == 32;
#pragma unroll
    for (u32 i = 0; i < 2; i++)
        from->weights[i] = m->data + MIN(first + i, last) * of_block +
                           (size_t)k * 2 * (4 << cut.kind) + gpu_lane() * 16;
    from->inputs = strips + row / MANY_STRIP * apart +
                   gpu_thread() / cut.tokens * MANY_EIGHT_BYTES + row % MANY_STRIP * 16;
    many_aim_side(from, m, cut, first, k, strips + MANY_SUMS_AT, apart);
}

/* The ring: stages, in bytes from gpu_shared() on; and the item that is copied next. */
struct many_pipe {
    struct many_from from;
    u32 fill, take, end, place;
};

template <class shape> GPU u32 many_after(const struct many_pipe *pipe, u32 stage)
{
    stage += shape::stage_bytes;
    return stage == pipe->end ? +shape::stages_at : stage;
}

template <class shape> GPU void many_copy_weights(struct many_from *from, u8 *to)
{
    to += gpu_warp() * (shape::units * shape::block_bytes) + gpu_lane() * 16;
#pragma unroll
    for (u32 i = 0; i < shape::units; i++) {
#pragma unroll
        for (u32 at = 0; at < shape::block_bytes; at += WEIGHT_CHUNK_BYTES)
            gpu_copy16(to + i * shape::block_bytes + at, from->weights[i] + at);
        from->weights[i] += shape::block_bytes;
    }
}

/* Inputs and sides. */
template <class shape> GPU void many_copy_rest(struct many_from *from, u8 *to)
{
    constexpr u32 pieces = shape::tokens * (MANY_K / 8), eights = GPU_THREADS / shape::tokens;
    const bool ends = from->left % MANY_GROUP_STAGES == 1 % MANY_GROUP_STAGES; /* a group */
#pragma unroll
    for (u32 i = 0; i < CEIL_DIV(pieces, (u32)GPU_THREADS); i++)
        if (pieces % GPU_THREADS == 0 || gpu_thread() < pieces)
            gpu_copy16(to + shape::inputs_at + (i * GPU_THREADS + gpu_thread()) * 16,
                       from->inputs + i * (eights * MANY_EIGHT_BYTES));
    from->inputs += MANY_K / 8 * MANY_EIGHT_BYTES;
    if (ends)
        from->inputs += MANY_STRIP_BYTES - 16 * MANY_EIGHT_BYTES;
    if (shape::spans) {
#pragma unroll
        for (u32 i = 0; i < shape::units; i++)
            gpu_copy16_if(i < from->side_units,
                          to + from->side_to + i * shape::spans * MANY_SIDE_BYTES,
                          from->side + i * (size_t)from->side_apart);
        if (ends || from->fine)
            from->side += from->side_step;
    }
    from->left--;
}

/* The item that is copied next, if there is one. */
template <class shape> GPU void many_next(struct many_pipe *pipe, const struct op_linear *op)
{
    while (pipe->from.left == 0 && pipe->place < many_work()->share.end) {
        struct many_from next; /* in memory, as pipe->from is not */
        many_aim(op, shape::cut, pipe->place, &next);
        pipe->from = next;
        pipe->place = share_next(&many_work()->share, pipe->place);
    }
}

/* Starts copying the next stage, if there is one. */
template <class shape> GPU void many_copy(struct many_pipe *pipe, const struct op_linear *op)
{
    if (pipe->from.left == 0)
        many_next<shape>(pipe, op);
    if (pipe->from.left) {
        many_copy_weights<shape>(&pipe->from, gpu_shared() + pipe->fill);
        many_copy_rest<shape>(&pipe->from, gpu_shared() + pipe->fill);
    }
    gpu_copy_commit();
    pipe->fill = many_after<shape>(pipe, pipe->fill);
}

/* The meeting that rows are prepared for: what gpu_grid_arrive returned, and whether this block has
 * waited for it. */
struct many_meeting {
    u32 before;
    bool over;
};

/* This block's work and its first item, while the blocks meet. (To send for weights then takes
 * longer: what the blocks meet by would stand behind them.) Then fills the ring but for one stage,
 * which comes while the first is taken. */
template <class shape>
GPU void many_begin(struct many_pipe *pipe, const struct op_linear *op, const struct gpu_run *run,
                    u32 stages, struct many_meeting meeting)
{
    if (gpu_thread() == GPU_THREADS - 1) /* the first one has to ask for the others */
        *many_work() = many_work_of(op, linear_rows(&op->in, run->step), shape::cut);
    gpu_sync();
    pipe->fill = pipe->take = shape::stages_at;
    pipe->end = shape::stages_at + stages * shape::stage_bytes;
    pipe->place = many_work()->share.first;
    pipe->from.left = 0;
    many_next<shape>(pipe, op);
    if (!meeting.over)
        gpu_grid_wait(run->state.barrier, meeting.before);
#pragma unroll 1
    for (u32 i = 1; i < stages; i++)
        many_copy<shape>(pipe, op);
}

/* Waits for the oldest stage, of which stages - 1 are on their way. */
GPU void many_wait(u32 stages)
{
    if (stages == MANY_STAGES)
        gpu_copy_wait<MANY_STAGES - 2>();
    else if (stages == 3)
        gpu_copy_wait<1>();
    else
        gpu_copy_wait<0>();
    gpu_sync();
}

/* --- sums ---------------------------------------------------------------------------------- */

/* What of a matrix the loops depend on. */
struct many_how {
    u32 scale_type;
    bool zeros, fine;
};

/* Where this lane finds its part of a stage. */
struct many_place {
    const u8 *weights, *inputs, *sides;
};

template <class shape> GPU struct many_place many_place_of(const u8 *stage)
{
    const u32 block = tile_warp_block<shape>(), octet = tile_warp_octet<shape>();
    return {stage + block * shape::block_bytes + gpu_lane() * 16,
            stage + shape::inputs_at + gpu_lane() / 8 * (shape::tokens * 16) + octet * 128 +
                gpu_lane() % 8 * 16,
            stage + shape::sides_at + block * shape::spans * MANY_SIDE_BYTES};
}

/* b-fragments of 32 inputs. */
template <class shape> GPU void many_inputs(u32 b[shape::n][4], const struct many_place *at, u32 k)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++)
        gpu_load_tiles(b[j], at->inputs + k * (4 * shape::tokens * 16) + j * 128);
}

/* a-fragments of a block of 16 outputs, for 32 inputs: two tiles of 16. `half`: which 32 of 64. */
template <class shape>
GPU void many_weights(u32 a[2][4], const u32 word[4], const u8 *block, u32 half,
                      const struct weight_zero *zero)
{
    if constexpr (shape::kind == MATRIX_INT4) {
        weight_fragment<shape::kind>(a[0], word, half * 2, zero);
        weight_fragment<shape::kind>(a[1], word, half * 2 + 1, zero);
    } else {
#pragma unroll
        for (u32 t = 0; t < 2; t++) {
            u32 chunk = shape::kind == MATRIX_INT8 ? half : half * 2 + t;
            uint4 v = *(const uint4 *)(block + chunk * WEIGHT_CHUNK_BYTES);
            u32 w[4] = {v.x, v.y, v.z, v.w};
            weight_fragment<shape::kind>(a[t], w, t, zero);
        }
    }
}

/* 32 inputs: two tiles of 16, each with products that do not depend on one another. */
template <class shape>
GPU void many_products(const u32 a[shape::m][2][4], const u32 b[shape::n][4], bool first,
                       struct tile_sums<shape> *sum)
{
#pragma unroll
    for (u32 t = 0; t < 2; t++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 i = 0; i < shape::m; i++) {
                float *c = sum->v[i][j];
                if (first && t == 0)
                    c[0] = c[1] = c[2] = c[3] = 0;
                gpu_mma(c, a[i][t], b[j] + 2 * t);
            }
}

/* The scales of a group are asked for when its last product is there, by an address that seems to
 * depend on it (`none` is 0, which the compiler does not know). Else each sum would be scaled as
 * soon as possible and its four products stand in a row, each waiting for the one before. */
template <class shape>
GPU void many_add_group(struct tile_sums<shape> *p, const struct tile_sums<shape> *sum,
                        u32 scale_type, const u8 *side, u32 none)
{
    side += gpu_bits(sum->v[shape::m - 1][shape::n - 1][3]) & none;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        const u32 *words = (const u32 *)(side + i * MANY_SPANS * MANY_SIDE_BYTES);
        u32 at = gpu_lane() / 4 << (scale_type == DTYPE_F32);
        struct weight_scales s = weight_scales_of(words[at], words[at + 1], scale_type);
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
            weight_add(p->v[i][j], sum->v[i][j], &s);
    }
}

/* A stage, onto the sums of the slice. `sum`: of the group; where that is of two stages, `begins`
 * in the first and ends in the second. */
template <class shape, bool fine>
GPU void many_stage(const u8 *stage, struct many_how how, bool begins, struct tile_sums<shape> *sum,
                    struct tile_sums<shape> *p)
{
    const bool halves = shape::kind == MATRIX_HALF;
    const u32 none = gpu_blocks() >> 31;
    const struct many_place at = many_place_of<shape>(stage);
    struct weight_zero zero[shape::m] = {};
    u32 word[shape::m][4] = {};
    const bool two = MANY_GROUP_STAGES == 2;
    if (!halves && !fine && two && begins)
        tile_clear<shape>(sum);
#pragma unroll
    for (u32 k = 0; k < MANY_K / 32; k++) {
        const u8 *side = at.sides + (fine ? k : 0) * MANY_SIDE_BYTES;
        u32 a[shape::m][2][4], b[shape::n][4];
#pragma unroll
        for (u32 i = 0; i < shape::m; i++) {
            const u8 *block =
                at.weights + i * shape::block_bytes + k / 2 * (WEIGHT_CHUNK_BYTES << shape::kind);
            if (!halves && (fine || k == 0)) {
                const u8 *zeros = side + 64 + i * MANY_SPANS * MANY_SIDE_BYTES;
                u32 both =
                    ((const u16 *)zeros)[gpu_lane() / 4]; /* something, when there are none */
                zero[i] =
                    weight_zero_of<shape::kind>(how.zeros ? both : weight_no_zeros<shape::kind>());
            }
            if (shape::kind == MATRIX_INT4 && k % 2 == 0) {
                uint4 v = *(const uint4 *)block;
                word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
            }
            many_weights<shape>(a[i], word[i], block, k % 2, &zero[i]);
        }
        bool first = fine || (k == 0 && !two), last = k + 1 == MANY_K / 32 && (!two || !begins);
        many_inputs<shape>(b, &at, k);
        many_products<shape>(a, b, !halves && first, halves ? p : sum);
        if (!halves && (fine || last))
            many_add_group<shape>(p, sum, how.scale_type, side, none);
    }
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
            const u32 both = ((const u16 *)(at->sides + i * MANY_SIDE_BYTES + 64))[gpu_lane() / 4];
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

/* The same as many_stage, of small shapes. */
template <class shape>
GPU void many_small_stage(const u8 *stage, struct many_how how, bool begins,
                          struct tile_sums<shape> *sum, struct tile_sums<shape> *p)
{
    const struct many_place at = many_place_of<shape>(stage);
    const bool two = MANY_GROUP_STAGES == 2;
    u32 scale[shape::m], word[shape::m][4];
    if (!two || begins)
        many_start<shape>(sum, stage, &at, how.zeros);
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
        scale[i] = ((const u32 *)(at.sides + i * MANY_SIDE_BYTES))[gpu_lane() / 4];
#pragma unroll
    for (u32 k = 0; k < MANY_K / 32; k++) {
        u32 a[shape::m][2][4], b[shape::n][4];
        many_inputs<shape>(b, &at, k);
#pragma unroll
        for (u32 i = 0; i < shape::m; i++) {
            if (k % 2 == 0) {
                const uint4 v = *(const uint4 *)(at.weights + i * shape::block_bytes +
                                                 k / 2 * WEIGHT_CHUNK_BYTES);
                word[i][0] = v.x, word[i][1] = v.y, word[i][2] = v.z, word[i][3] = v.w;
            }
#pragma unroll
            for (u32 t = 0; t < 2; t++)
                many_smallest(a[i][t], word[i][k % 2 * 2 + t]);
        }
        many_products<shape>(a, b, false, sum);
    }
    if (two && begins)
        return;
#pragma unroll
    for (u32 i = 0; i < shape::m; i++) {
        struct weight_scales s = weight_scales_of(scale[i], 0, how.scale_type);
        s.low *= 0x1p24f;
        s.high *= 0x1p20f;
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
            weight_add(p->v[i][j], sum->v[i][j], &s);
    }
}

/* --- all together -------------------------------------------------------------------------- */

/* The `left` next stages, a slice. */
template <class shape>
GPU void many_slice(const struct op_linear *op, struct many_pipe *pipe, u32 stages, u32 left,
                    struct many_how how, struct tile_sums<shape> *p)
{
    struct tile_sums<shape> sum;
#pragma unroll 1
    for (; left; left--) {
        const bool begins = left % MANY_GROUP_STAGES == 0;
        const u8 *stage = gpu_shared() + pipe->take;
        many_wait(stages);
        many_copy<shape>(pipe, op);
        if constexpr (shape::small)
            many_small_stage<shape>(stage, how, begins, &sum, p);
        else if (how.fine)
            many_stage<shape, true>(stage, how, begins, &sum, p);
        else
            many_stage<shape, false>(stage, how, begins, &sum, p);
        pipe->take = many_after<shape>(pipe, pipe->take);
    }
}

/* Where this thread has the sums of a whole tile, which nobody else reads: those of slices that
 * nobody leaves there, or, where all blocks have whole tiles, a place a block. */
GPU float4 *many_own(const struct op_linear *op, u32 tile, u32 floats)
{
    const u32 number = many_work()->share.step ? gpu_block() : tile * MATRIX_SLICES;
    return (float4 *)(op->partial + (size_t)number * floats) + gpu_thread();
}

/* The units and 8 tokens that a warp puts out at a time, m x n of them a tile. */
struct many_piece {
    u32 block, token; /* token: this lane's first */
};

GPU struct many_piece many_piece_of(struct many_cut cut, const struct tile_item *it, u32 i)
{
    const u32 octet = gpu_warp() % cut.across * cut.n + i % cut.n;
    return {it->block + gpu_warp() / cut.across * cut.m + i / cut.n,
            it->token + octet * 8 + gpu_lane() % 4 * 2};
}

/* What halves are multiplied by, else 1 (tile_scale): of a piece's two rows of this lane. */
GPU float2 many_factors(const struct matrix *m, u32 kind, u32 block)
{
    const u32 row = block * 16 + gpu_lane() / 4;
    const float *of = (const float *)m->scales;
    if (kind != MATRIX_HALF)
        return {1, 1};
    return {of[MIN(row, m->n - 1)], of[MIN(row + 8, m->n - 1)]};
}

/* Puts out a whole tile, four pieces of the same outputs at once. */
GPU void many_finish_whole(const struct op_linear *op, struct many_cut cut,
                           const struct tile_item *it, u32 rows, const float4 *own)
{
    enum { AT_ONCE = 4 };
    typedef many_shape<MATRIX_INT4, 1, AT_ONCE, 1> four;
#pragma unroll 1
    for (u32 i = 0; i < cut.m * cut.n; i += AT_ONCE) {
        const struct many_piece piece = many_piece_of(cut, it, i);
        const float2 factor = many_factors(&op->part[it->part], cut.kind, piece.block);
        struct tile_sums<four> sum;
#pragma unroll
        for (u32 j = 0; j < AT_ONCE; j++) {
            const float4 p = own[(i + j) * GPU_THREADS];
            float *v = sum.v[0][j];
            v[0] = p.x * factor.x, v[1] = p.y * factor.x;
            v[2] = p.z * factor.y, v[3] = p.w * factor.y;
        }
        tile_store(op, it->part, piece.block, piece.token, rows, &sum);
    }
}

/* Puts out a tile: a whole one, whose sums this thread has at `own`, GPU_THREADS apart; or, where
 * that is NULL, this block's share of one that several have left in slices, which it adds up in
 * order. */
GPU_CALL void many_finish(const struct op_linear *op, struct many_cut cut, u32 place,
                          const float4 *own)
{
    using small = tile_small<MATRIX_INT4>;
    const struct share_work w = many_work()->share;
    const struct tile_item it = share_item_of(op, &w, cut.kind, cut.blocks, cut.tokens, place);
    const struct many_part part = own ? (struct many_part){0, 1} : many_part_of(many_work(), place);
    const u32 floats = 16 * cut.blocks * cut.tokens;
    if (own && cut.n % 4 == 0)
        return many_finish_whole(op, cut, &it, w.rows, own);
    if (!own)
        tile_await(&op->arrived[it.tile], part.sharers);
#pragma unroll 1
    for (u32 i = part.number; i < cut.m * cut.n; i += part.sharers) {
        const struct many_piece piece = many_piece_of(cut, &it, i);
        struct tile_sums<small> sum;
        struct tile_old<small> old;
        float *v = sum.v[0][0];
        tile_ask_old(&old, op, it.part, piece.block, piece.token, w.rows);
        if (own) {
            const float4 four = own[i * GPU_THREADS];
            v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        } else {
            float4 p[MATRIX_SLICES];
            tile_load_all(p, tile_partial(op, it.tile, 0, floats) + i * GPU_THREADS, floats / 4);
            tile_join_all(&sum, p, op->in.prepared_scale + piece.token * MATRIX_SLICES, 1,
                          MATRIX_SLICES);
        }
        const float2 factor = many_factors(&op->part[it.part], cut.kind, piece.block);
        v[0] *= factor.x, v[1] *= factor.x, v[2] *= factor.y, v[3] *= factor.y;
        tile_store(op, it.part, piece.block, piece.token, w.rows, &sum, ~0u, &old);
    }
}

/* One item, from its first stage to its sums. */
template <class shape>
GPU void many_run_item(const struct op_linear *op, struct many_pipe *pipe, u32 stages, u32 place)
{
    const struct tile_item it =
        share_item_of(op, &many_work()->share, shape::kind, shape::blocks, shape::tokens, place);
    const struct matrix *m = &op->part[it.part];
    const struct many_how how = {m->scale_type, m->zeros != NULL,
                                 shape::kind != MATRIX_HALF && m->group == 32};
    const bool whole = it.slice_end - it.slice == MATRIX_SLICES;
    struct tile_sums<shape> total, p;
    if (!shape::parked)
        tile_clear<shape>(&total);
#pragma unroll 1
    for (u32 slice = it.slice; slice < it.slice_end; slice++) {
        const u32 left = (tile_slice_at(m, slice + 1) - tile_slice_at(m, slice)) / MANY_K;
        tile_clear<shape>(&p);
        many_slice<shape>(op, pipe, stages, left, how, &p);
        if (!whole) {
            tile_leave<shape>(op, it.tile, slice, &p);
            continue;
        }
        const auto scales = tile_scales_of<shape>(op, slice, it.token);
        if (shape::parked)
            tile_park<shape>(&p, scales, slice == 0);
        else
            tile_add<shape>(&total, &p, scales);
    }
    if (!whole) {
        tile_tell(&op->arrived[it.tile], it.slice_end - it.slice);
        return;
    }
    if (shape::parked)
        return many_finish(op, shape::cut, place, tile_parked<shape>(0));
    float4 *own = many_own(op, it.tile, shape::floats);
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        const float *v = total.v[i / shape::n][i % shape::n];
        own[i * GPU_THREADS] = (float4){v[0], v[1], v[2], v[3]};
    }
    many_finish(op, shape::cut, place, own);
}

/* The tiles that this block shares with others, when all of it is done that others wait for. */
GPU void many_finish_shared(const struct op_linear *op, struct many_cut cut)
{
    const struct share_work w = many_work()->share;
    if (w.step)
        return;
#pragma unroll 1
    for (u32 place = w.first; place < w.end; place = share_next(&w, place))
        if (place % MATRIX_SLICES || w.end - place < MATRIX_SLICES) /* else it is whole */
            many_finish(op, cut, place, NULL);
}

template <class shape>
GPU_CALL void many_run_as(const struct op_linear *op, const struct gpu_run *run,
                          struct many_meeting meeting)
{
    const u32 stages = many_stages<shape>(run->shared_bytes);
    struct many_pipe pipe = {};
    many_begin<shape>(&pipe, op, run, stages, meeting);
#pragma unroll 1
    for (u32 place = many_work()->share.first; place < many_work()->share.end;
         place = share_next(&many_work()->share, place))
        many_run_item<shape>(op, &pipe, stages, place);
    gpu_copy_wait<0>(); /* empty groups */
    many_finish_shared(op, shape::cut);
    gpu_sync();
}

/* Shapes of small batches, and others, by tokens of a tile. */
template <u32 m, u32 tokens>
using many_small = struct many_shape<MATRIX_INT4, m, tokens / 8, 1, true>;
using many_small_64 = struct many_shape<MATRIX_INT4, 2, 4, 2, true>; /* as m = 1 */
template <u32 kind> using many_32 = struct many_shape<kind, 1, 4, 1>;
template <u32 kind> using many_64 = struct many_shape<kind, 2, 4, 2>;
template <u32 kind> using many_128 = struct many_shape<kind, 2, 8, 2>;

/* The stages of all parts, of these tiles, fit into shared memory. */
template <template <u32> class shape>
GPU bool many_fits(const struct op_linear *op, u32 shared_bytes)
{
    u32 stages = MANY_STAGES;
    for (u32 i = 0; i < op->parts; i++)
        stages = MIN(stages, op->part[i].kind == MATRIX_HALF
                                 ? many_stages<shape<MATRIX_HALF>>(shared_bytes)
                                 : many_stages<shape<MATRIX_INT8>>(shared_bytes));
    return stages >= 2;
}

/* Tiles of so many tokens: the same for parts of all kinds, so that their places in op->partial are
 * apart. small: of small shapes. */
struct many_choice {
    u32 tokens;
    u32 small; /* blocks of outputs of a warp; 0: not small */
};

/* What a block has most to do, in stages: whole tiles, or stretches, whose sums go through memory.
 */
template <u32 m> GPU u32 many_cost(const struct op_linear *op, u32 rows, u32 tokens)
{
    enum { EXCHANGE = 3 }; /* measured on Hopper, as what follows */
    const u32 stages = op->part[0].slice / 128;
    u32 tiles = 0;
    for (u32 i = 0; i < op->parts; i++)
        tiles += share_tiles(&op->part[i], m * GPU_WARPS);
    tiles *= CEIL_DIV(rows, tokens);
    return MIN(CEIL_DIV(tiles, gpu_blocks()) * MATRIX_SLICES * stages,
               CEIL_DIV(tiles * MATRIX_SLICES, gpu_blocks()) * stages + EXCHANGE);
}

/* Blocks of outputs of a tile, a warp's: those of 128 outputs take some 3/4 of the time of 256, and
 * less where products take most of it. */
GPU u32 many_small_m(const struct op_linear *op, u32 rows, u32 tokens)
{
    const u32 one = many_cost<1>(op, rows, tokens), two = many_cost<2>(op, rows, tokens);
    return (tokens > 32 ? one * 2 < two * 3 : one * 3 < two * 4) ? 1 : 2;
}

GPU struct many_choice many_choice_of(const struct op_linear *op, u32 rows, u32 shared_bytes)
{
    if (op->in.group == 128 && rows <= MANY_SMALL_TOKENS &&
        many_stages<many_small<2, 32>>(shared_bytes) >= 2) {
        const bool most = rows > 32 && many_stages<many_small<2, 64>>(shared_bytes) >= 2;
        const u32 tokens = rows <= 16 ? 16 : most ? 64 : 32;
        return {tokens, many_small_m(op, rows, tokens)};
    }
    if (rows <= 32 || !many_fits<many_64>(op, shared_bytes))
        return {32, 0};
    return {rows > 64 && many_fits<many_128>(op, shared_bytes) ? 128u : 64u, 0};
}

template <u32 m>
GPU void many_run_small(const struct op_linear *op, const struct gpu_run *run, u32 tokens,
                        struct many_meeting meeting)
{
    if (tokens == 16)
        many_run_as<many_small<m, 16>>(op, run, meeting);
    else if (tokens == 32)
        many_run_as<many_small<m, 32>>(op, run, meeting);
    else if (m == 1)
        many_run_as<many_small_64>(op, run, meeting);
    else
        many_run_as<many_small<2, 64>>(op, run, meeting);
}

/* Parts of one kind. */
template <u32 kind>
GPU void many_run_kind(const struct op_linear *op, const struct gpu_run *run, struct many_choice c,
                       struct many_meeting *meeting)
{
    bool any = false;
    for (u32 i = 0; i < op->parts; i++)
        any |= op->part[i].kind == kind;
    if (!any)
        return;
    if (kind == MATRIX_INT4 && c.small == 1)
        many_run_small<1>(op, run, c.tokens, *meeting);
    else if (kind == MATRIX_INT4 && c.small)
        many_run_small<2>(op, run, c.tokens, *meeting);
    else if (c.tokens == 32)
        many_run_as<many_32<kind>>(op, run, *meeting);
    else if (c.tokens == 64)
        many_run_as<many_64<kind>>(op, run, *meeting);
    else
        many_run_as<many_128<kind>>(op, run, *meeting);
    meeting->over = true;
}

/* Prepares rows, and multiplies. */
GPU void many_run(const struct op_linear *op, const struct gpu_run *run)
{
    linear_prepare<MANY_STRIP, FORM_SUMS>(&op->in, gpu_near(run->step));
    struct many_meeting meeting = {gpu_grid_arrive(run->state.barrier), false};
    const struct many_choice c =
        many_choice_of(op, linear_rows(&op->in, run->step), run->shared_bytes);
    many_run_kind<MATRIX_INT4>(op, run, c, &meeting);
    many_run_kind<MATRIX_INT8>(op, run, c, &meeting);
    many_run_kind<MATRIX_HALF>(op, run, c, &meeting);
}

#endif
