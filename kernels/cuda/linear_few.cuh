/* Linears of few tokens: the weights' way from memory is all that counts. A unit is 16 outputs by
 * all inputs, and thread blocks take units in turns; warp w has slice w of each unit. Its weights
 * come in batches, each with the scales and zeros that belong to it, through a ring of slots in
 * shared memory that the warp has for itself: asynchronous copies run ahead over the ends of units,
 * and those of the next linear begin before the blocks meet, so that memory goes on
 * while they meet and prepare the input. Weights are the 16-row operand of the tensor core and
 * tokens the 8 columns.
 *
 * Why a ring and not registers: what is on its way to registers occupies them, and a spill right
 * behind a load waits for it.
 *
 * Shared memory: the rows (linear_near.cuh), sums of the eight slices (twice, so that one barrier a
 * unit is enough), and at the end of what the launch has the rings, which stay while other
 * operations run.
 */
#ifndef ZIGCUDA_LINEAR_FEW_CUH
#define ZIGCUDA_LINEAR_FEW_CUH

#include "kernels/cuda/linear_near.cuh"
#include "kernels/cuda/linear_weight.cuh"

enum {
    FEW_SUMS_STRIDE = 20, /* floats of a token's 16 outputs: free of bank conflicts */
    FEW_SUMS_FLOATS = FEW_TOKENS * FEW_SUMS_STRIDE,
};

/* The operation's input and sums in shared memory. */
struct few_work {
    u8 *fragments;   /* [rows][near_stride(k)] */
    float *sums;     /* [2][GPU_WARPS][FEW_SUMS_FLOATS] */
    float *measures; /* [FEW_TOKENS][GPU_WARPS][2] */
    u32 *most;       /* [FEW_TOKENS] largest |y| of the block's outputs, as bits */
    struct linear_scale *scales;
};

static_assert((2 * GPU_WARPS * FEW_SUMS_FLOATS + FEW_TOKENS * GPU_WARPS * 2 + FEW_TOKENS) *
                          sizeof(float) +
                      FEW_TOKENS * sizeof(struct linear_scale) <=
                  DECODE_WORK_BYTES,
              "what is behind the fragments");

GPU struct few_work few_work_of(u32 rows, u32 k)
{
    struct few_work w;
    w.fragments = gpu_shared();
    w.sums = (float *)(gpu_shared() + rows * near_stride(k));
    w.measures = w.sums + 2 * GPU_WARPS * FEW_SUMS_FLOATS;
    w.most = (u32 *)(w.measures + FEW_TOKENS * GPU_WARPS * 2);
    w.scales = (struct linear_scale *)(w.most + FEW_TOKENS);
    return w;
}

/* --- the ring ------------------------------------------------------------------------------ */

/* How a loop is specialised: `fine` where groups are of 32. A slot holds a batch: its chunks, the
 * scales of its groups, their zeros. */
template <u32 kind_, bool fine_> struct few_form {
    static constexpr u32 kind = kind_;
    static constexpr bool fine = fine_;
    static constexpr u32 inputs =
        kind_ == MATRIX_HALF || (kind_ == MATRIX_INT8 && fine_) ? 64 : 128;
    static constexpr u32 chunks = inputs / (64 >> kind_), bytes = chunks * WEIGHT_CHUNK_BYTES;
    static constexpr u32 groups = kind_ == MATRIX_HALF ? 0 : fine_ ? inputs / 32 : 1;
    static constexpr u32 slot_bytes = bytes + groups * (fine_ ? 80 : 48); /* fine: f32 */
    static constexpr u32 slots = kind_ == MATRIX_INT4 && !fine_ ? 8 : 4;  /* of a whole ring */
    static constexpr u32 pieces = fine_ ? groups : 2, tiles = inputs / 16 / pieces; /* a piece's */
    static_assert(slots * slot_bytes <= FEW_RING_BYTES, "the ring");
};

/* Where this warp's copies of a part come from and go to. Places in shared memory are offsets. */
struct few_stream {
    const u8 *data, *side; /* this lane's of the next batch; side: scales, zeros, or nothing */
    u32 remain, left;      /* batches to copy: of all units, of this one */
    u32 batches;           /* of a slice */
    u32 jump, side_jump;   /* bytes from the end of a slice to that of the next unit */
    u32 side_step;         /* bytes from batch to batch; 0: this lane copies no side */
    u32 to, from, end;     /* this lane's chunks of the next batch; of the ring; its end */
    bool whole;            /* the ring has all slots, not half of them */
};

/* Lanes that copy scales, 16 bytes each; as many as groups copy zeros. Only fine groups have scales
 * of f32. */
template <typename F> GPU u32 few_scale_lanes(const struct matrix *m)
{
    return F::groups * (F::fine && m->scale_type == DTYPE_F32 ? 4 : 2);
}

template <typename F>
GPU struct few_stream few_stream_of(const struct matrix *m, const struct gpu_run *run)
{
    struct few_stream s;
    const u32 bits = 4 << F::kind, unit_bytes = m->k * bits * 2, lane = gpu_lane();
    u32 first = MIN(gpu_warp() * m->slice, m->k), units = CEIL_DIV(m->n, 16u), unit = gpu_block();
    s.left = s.batches = (MIN(first + m->slice, m->k) - first) / F::inputs;
    s.remain = unit < units ? CEIL_DIV(units - unit, gpu_blocks()) * s.batches : 0;
    s.data = gpu_global(m->data) + (size_t)unit * unit_bytes + first * bits * 2 + lane * 16;
    s.jump = gpu_blocks() * unit_bytes - s.batches * F::bytes;
    s.whole = run->ring_bytes == FEW_RING_BYTES;
    s.to = s.from = run->shared_bytes + gpu_warp() * run->ring_bytes + lane * 16;
    s.end = s.from + (s.whole ? F::slots : F::slots / 2) * F::slot_bytes;
    s.side = s.data;
    s.side_step = s.side_jump = 0;
    if (F::groups) {
        u32 scale_lanes = few_scale_lanes<F>(m), zero_lanes = m->zeros ? F::groups : 0;
        bool scale = lane < scale_lanes;
        u32 step = (scale ? scale_lanes : zero_lanes) * 16, row = m->k / F::inputs * step;
        const u8 *at =
            scale ? (const u8 *)m->scales + lane * 16 : m->zeros + (lane - scale_lanes) * 16;
        s.side_step = lane < scale_lanes + zero_lanes ? step : 0;
        s.side = gpu_global(at) + (size_t)unit * row + first / F::inputs * step;
        s.side_jump = gpu_blocks() * row - s.batches * step;
    }
    return s;
}

/* The slot behind. */
template <typename F> GPU u32 few_behind(const struct few_stream *s, u32 slot)
{
    slot += F::slot_bytes;
    return slot == s->end ? s->from : slot;
}

/* Starts copying the next batch, if there is one. */
template <typename F> GPU void few_copy(struct few_stream *s)
{
    u8 *to = gpu_shared() + s->to;
    bool some = s->remain != 0;
#pragma unroll
    for (u32 c = 0; c < F::chunks; c++)
        gpu_copy16_if(some, to + c * WEIGHT_CHUNK_BYTES, s->data + c * WEIGHT_CHUNK_BYTES);
    if (F::groups)
        gpu_copy16_if(some && s->side_step, to + F::bytes, s->side);
    gpu_copy_commit();
    s->to = few_behind<F>(s, s->to);
    s->data += F::bytes;
    s->side += s->side_step;
    s->remain -= some;
    if (--s->left == 0) {
        s->left = s->batches;
        s->data += s->jump;
        s->side += s->side_jump;
    }
}

/* Zeros of all slots, where the file has none. */
template <typename F> GPU void few_fill_zeros(const struct few_stream *s, const struct matrix *m)
{
    const u32 zeros = weight_no_zeros<F::kind>() * 0x10001;
    uint4 v = {zeros, zeros, zeros, zeros};
    u32 lane = gpu_lane() - few_scale_lanes<F>(m);
    for (u32 to = s->from; to != s->end && lane < F::groups; to += F::slot_bytes)
        *(uint4 *)(gpu_shared() + to + F::bytes) = v;
}

/* The stream, and copies to all slots but one. */
template <typename F>
GPU void few_begin(struct few_stream *s, const struct matrix *m, const struct gpu_run *run)
{
    *s = few_stream_of<F>(m, run);
    if constexpr (F::groups != 0)
        if (!m->zeros)
            few_fill_zeros<F>(s, m);
    for (u32 i = (s->whole ? F::slots : F::slots / 2) - 1; i; i--)
        few_copy<F>(s);
}

/* Waits for the oldest batch, of which all slots but one are on their way. */
template <typename F> GPU void few_wait(bool whole)
{
    if (whole)
        gpu_copy_wait<F::slots - 2>();
    else
        gpu_copy_wait<F::slots / 2 - 2>();
    gpu_warp_sync();
}

/* --- products ------------------------------------------------------------------------------ */

/* Scales and zeros of rows g and g + 8, as the loop finds them. */
struct few_sides {
    u32 type;              /* of scales */
    u32 scale_at, zero_at; /* from this lane's chunks of a slot to its words of the first group */
};

template <typename F> GPU struct few_sides few_sides_of(const struct matrix *m)
{
    struct few_sides s;
    bool f32 = F::fine && m->scale_type == DTYPE_F32;
    u32 at = F::bytes - gpu_lane() * 16, row = gpu_lane() / 4;
    s.type = m->scale_type == DTYPE_F16 ? DTYPE_F16 : f32 ? DTYPE_F32 : DTYPE_BF16;
    s.scale_at = at + row * (f32 ? 8 : 4);
    s.zero_at = at + few_scale_lanes<F>(m) * 16 + row * 2;
    return s;
}

template <typename F>
GPU struct weight_zero few_zero(const struct few_sides *s, const u8 *mine, u32 group)
{
    return weight_zero_of<F::kind>(*(const u16 *)(mine + s->zero_at + group * 16));
}

template <typename F>
GPU struct weight_scales few_scales(const struct few_sides *s, const u8 *mine, u32 group)
{
    const u8 *at = mine + s->scale_at;
    if (F::fine && s->type == DTYPE_F32) {
        uint2 two = *(const uint2 *)(at + group * 64);
        return weight_scales_of(two.x, two.y, DTYPE_F32);
    }
    return weight_scales_of(*(const u32 *)(at + group * 32), 0, s->type);
}

/* The chunks of a batch, and this lane's fragments of its inputs. */
template <typename F> struct few_batch {
    uint4 chunk[F::chunks], x[F::inputs / 32];
};

/* mine: this lane's chunks of a slot. */
template <typename F> GPU struct few_batch<F> few_batch_of(const u8 *mine, const u8 *x) {
    struct few_batch<F> b;
#pragma unroll
    for (u32 c = 0; c < F::chunks; c++)
        b.chunk[c] = *(const uint4 *)(mine + c * WEIGHT_CHUNK_BYTES);
#pragma unroll
    for (u32 i = 0; i < F::inputs / 32; i++)
        b.x[i] = *(const uint4 *)(x + i * 64);
    return b;
}

/* Tile `tile` (16 outputs x 16 inputs) of a batch onto sum. */
template <typename F>
GPU void few_tile(float sum[4], const struct few_batch<F> *b, u32 tile,
                  const struct weight_zero *zero)
{
    const u32 in_chunk = F::kind == MATRIX_HALF ? 1 : 4 >> F::kind; /* tiles */
    uint4 c = b->chunk[tile / in_chunk], v = b->x[tile / 2];
    u32 word[4] = {c.x, c.y, c.z, c.w}, a[4];
    u32 fragment[2] = {tile % 2 ? v.z : v.x, tile % 2 ? v.w : v.y};
    weight_fragment<F::kind>(a, word, tile % in_chunk, zero);
    gpu_mma(sum, a, fragment);
}

/* A batch onto the sums of the slice. */
template <typename F>
GPU void few_compute(float p[4], const struct few_batch<F> *b, const u8 *mine,
                     const struct few_sides *sides)
{
    if constexpr (F::kind == MATRIX_HALF) {
#pragma unroll
        for (u32 tile = 0; tile < F::chunks; tile++)
            few_tile<F>(p, b, tile, NULL);
    } else {
        float sum[F::pieces][4] = {};
        struct weight_zero zero[F::groups];
        struct weight_scales scales[F::groups];
#pragma unroll
        for (u32 g = 0; g < F::groups; g++) {
            zero[g] = few_zero<F>(sides, mine, g);
            scales[g] = few_scales<F>(sides, mine, g);
        }
#pragma unroll
        for (u32 j = 0; j < F::tiles; j++) /* products that do not depend on one another */
#pragma unroll
            for (u32 i = 0; i < F::pieces; i++)
                few_tile<F>(sum[i], b, i * F::tiles + j, &zero[i * F::groups / F::pieces]);
#pragma unroll
        for (u32 i = 0; i < F::pieces; i++)
            weight_add(p, sum[i], &scales[i * F::groups / F::pieces]);
    }
}

/* --- outputs ------------------------------------------------------------------------------- */

/* Leaves a warp's sums of a unit for those who add them up. */
GPU void few_leave(float *sums, const float p[4], u32 rows)
{
    u32 token = gpu_lane() % 4 * 2;
    float *to = sums + gpu_warp() * FEW_SUMS_FLOATS + token * FEW_SUMS_STRIDE + gpu_lane() / 4;
    if (token < rows) {
        to[0] = p[0];
        to[8] = p[2];
    }
    if (token + 1 < rows) {
        to[FEW_SUMS_STRIDE] = p[1];
        to[FEW_SUMS_STRIDE + 8] = p[3];
    }
}

GPU float few_add_up(const float *sums)
{
    float v = 0;
#pragma unroll
    for (u32 w = 0; w < GPU_WARPS; w++)
        v += sums[w * FEW_SUMS_FLOATS];
    return v;
}

/* The output that this thread finishes of a unit: warps take turns. For OUTPUT_GATE rows 0..7, with
 * the up row 8 below. */
struct few_output {
    float *y;
    u32 row, token, n; /* n: of the matrix */
};

/* Has this thread an output in this turn? shift: 3 for OUTPUT_GATE, else 4. */
GPU bool few_finishes(u32 turn, u32 rows, u32 shift)
{
    return (gpu_thread() - turn * 32) % GPU_THREADS < rows << shift;
}

GPU struct few_output few_output_of(const struct op_linear *op, u32 p, u32 unit, u32 turn,
                                    u32 shift)
{
    struct few_output o;
    u32 thread = (gpu_thread() - turn * 32) % GPU_THREADS;
    o.row = thread & ((1u << shift) - 1);
    o.token = thread >> shift;
    o.n = unit * 16 + o.row;
    o.y = gpu_global(op->y) + (size_t)o.token * op->y_stride + op->at[p] + (unit << shift) + o.row;
    return o;
}

GPU float few_value(const struct matrix *m, u32 n, const float *sums, float scale)
{
    float sum = few_add_up(sums);
    if (m->kind == MATRIX_HALF)
        sum *= gpu_global((const float *)m->scales)[n];
    return m->bias ? fmaf(sum, scale, gpu_global(m->bias)[n]) : sum * scale;
}

GPU void few_finish(const struct op_linear *op, u32 p, const struct few_work *work,
                    const float *sums, const struct few_output *o, float old)
{
    if (o->n >= op->part[p].n)
        return;
    const struct matrix *m = &op->part[p];
    float scale = work->scales[o->token].scale;
    sums += o->token * FEW_SUMS_STRIDE + o->row;
    float v = few_value(m, o->n, sums, scale);
    if (op->output == OUTPUT_GATE) {
        v = linear_activate(v, op->activation) * few_value(m, o->n + 8, sums + 8, scale);
        gpu_atomic_max(&work->most[o->token], gpu_bits(fabsf(v)));
    } else if (op->output == OUTPUT_ADD) {
        v += old;
    }
    if (op->softcap > 0)
        v = op->softcap * tanhf(v / op->softcap);
    *o->y = v;
}

/* --- the operation ------------------------------------------------------------------------- */

/* Part p of the operation, whose stream has begun. */
template <typename F>
GPU void few_part(const struct op_linear *op, u32 p, u32 rows, const struct few_stream *begun)
{
    const struct few_work work = few_work_of(rows, op->in.k);
    const struct matrix *m = &op->part[p];
    const u32 units = CEIL_DIV(m->n, 16u), shift = op->output == OUTPUT_GATE ? 3 : 4;
    const struct few_sides sides = few_sides_of<F>(m);
    const u8 *x = work.fragments + MIN(gpu_lane() / 4, rows - 1) * near_stride(op->in.k) +
                  gpu_lane() % 4 * 16 + MIN(gpu_warp() * m->slice, m->k) * 2;
    struct few_stream s = *begun;
    u32 slot = s.from;
    float *sums = work.sums, *other = sums + GPU_WARPS * FEW_SUMS_FLOATS;
    for (u32 unit = gpu_block(), turn = 0; unit < units; unit += gpu_blocks(), turn++) {
        float old = 0, sum[4] = {0, 0, 0, 0};
        bool finishes = few_finishes(turn, rows, shift);
        if (finishes && op->output == OUTPUT_ADD && unit * 16 + gpu_thread() % 16 < m->n)
            old = *few_output_of(op, p, unit, turn, shift).y;
        const u8 *in = x;
        for (u32 left = s.batches; left; left--) {
            const u8 *mine = gpu_shared() + slot;
            few_wait<F>(s.whole);
            struct few_batch<F> batch = few_batch_of<F>(mine, in);
            few_copy<F>(&s);
            few_compute<F>(sum, &batch, mine, &sides);
            slot = few_behind<F>(&s, slot);
            in += F::inputs * 2;
        }
        few_leave(sums, sum, rows);
        gpu_sync();
        if (finishes) {
            struct few_output output = few_output_of(op, p, unit, turn, shift);
            few_finish(op, p, &work, sums, &output, old);
        }
        float *swap = sums;
        sums = other;
        other = swap;
    }
    if (p + 1 < op->parts || op->output == OUTPUT_GATE) /* others use the sums, the maxima */
        gpu_sync();
}

/* Does f(a form) for the form of m. */
#define FEW_WITH_FORM(m, f)                                 \
    if ((m)->kind == MATRIX_INT4 && (m)->group == 128)      \
        f(few_form<MATRIX_INT4, false>);                    \
    else if ((m)->kind == MATRIX_INT4)                      \
        f(few_form<MATRIX_INT4, true>);                     \
    else if ((m)->kind == MATRIX_INT8 && (m)->group == 128) \
        f(few_form<MATRIX_INT8, false>);                    \
    else if ((m)->kind == MATRIX_INT8)                      \
        f(few_form<MATRIX_INT8, true>);                     \
    else                                                    \
        f(few_form<MATRIX_HALF, false>);

/* Begins the stream of a part. */
GPU void few_begin_part(struct few_stream *s, const struct op_linear *op, u32 p,
                        const struct gpu_run *run){
#define FEW_BEGIN(...) few_begin<__VA_ARGS__>(s, &op->part[p], run)
    FEW_WITH_FORM(&op->part[p], FEW_BEGIN)}

/* The operation. `stream` has begun with its first part. */
GPU void few_run(const struct op_linear *op, const struct gpu_run *run, struct few_stream *stream)
{
    u32 rows = linear_rows(&op->in, run->step), thread = gpu_thread();
    struct few_work work = few_work_of(rows, op->in.k);
    if (thread < FEW_TOKENS)
        work.most[thread] = 0;
    near_prepare(&op->in, run->step, work.fragments, work.scales, work.measures);
    for (u32 p = 0; p < op->parts; p++) {
        if (p)
            few_begin_part(stream, op, p, run);
#define FEW_PART(...) few_part<__VA_ARGS__>(op, p, rows, stream)
        FEW_WITH_FORM(&op->part[p], FEW_PART)
    }
    if (op->output == OUTPUT_GATE && thread < rows && work.most[thread])
        gpu_atomic_max(&op->row_max[thread], work.most[thread]);
}

#endif
