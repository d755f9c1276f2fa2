/* Linears of few tokens: the weights' way from memory is all that counts. A unit is 16 outputs by
 * all inputs, and blocks take units in turns; warp w has slice w of each unit. It reads its chunks
 * straight into registers, a batch ahead of the one it computes, also over the ends of units; and
 * asks for them into L2 some units earlier. Weights are the 16-row operand of the tensor core and
 * tokens the 8 columns.
 *
 * What a block reads first of the next linear is asked into L2 before the blocks meet (few_fetch):
 * memory goes on while they meet and prepare the input.
 *
 * All that the loop uses lies in registers, by value: behind a pointer it would have to be read
 * anew after every store.
 *
 * Shared memory: fragments of the input, sums of the eight slices (twice, so that one barrier a
 * unit is enough), scales of the rows.
 */
#ifndef ZIGCUDA_LINEAR_FEW_CUH
#define ZIGCUDA_LINEAR_FEW_CUH

#include "kernels/cuda/linear_weight.cuh"

enum {

    FEW_SUMS_STRIDE = 20, /* floats of a token's 16 outputs: free of bank conflicts */
    FEW_SUMS_FLOATS = FEW_TOKENS * FEW_SUMS_STRIDE,
    FEW_FETCH_BYTES = 8 << 10, /* that a warp asks into L2 ahead of its loads */
    LINE_BYTES = 128,
};

static_assert((2 * GPU_WARPS * FEW_SUMS_FLOATS + FEW_TOKENS * GPU_WARPS * 2) * sizeof(float) +
                      FEW_TOKENS * sizeof(struct linear_scale) <=
                  DECODE_WORK_BYTES,
              "what is behind the fragments");

GPU u32 few_units(const struct matrix *m)
{
    return CEIL_DIV(m->n, 16u);
}

/* Up to three matrices of one form side by side, as the loop wants them. */
struct few_stream {
    const struct op_linear *op;  /* near */
    u32 part, units;             /* the first one; of all */
    u32 chunks, from, to;        /* of a row; of this warp's slice */
    u32 groups, group;           /* of a row; how many times 32 inputs share a scale */
    u32 first_group, first_left; /* at `from`: the group, and what remains of it */
    u32 scale_type, scale_bytes;
};

/* Parts [p, p + n) of the operation; they have one form. */
GPU struct few_stream few_stream_of(const struct op_linear *op, u32 p, u32 n)
{
    const struct matrix *m = &op->part[p];
    struct few_stream s;
    u32 shift = 6 - m->kind; /* inputs of a chunk: 64, 32, 16 */
    u32 from = MIN(gpu_warp() * m->slice, m->k), group = MAX(m->group / 32, 1u);
    s.op = op;
    s.part = p;
    s.units = 0;
    for (u32 i = 0; i < n; i++)
        s.units += few_units(&op->part[p + i]);
    s.chunks = m->k >> shift;
    s.from = from >> shift;
    s.to = MIN((gpu_warp() + 1) * m->slice, m->k) >> shift;
    s.groups = m->groups;
    s.group = group;
    s.first_group = from / 32 / group;
    s.first_left = group - from / 32 % group;
    s.scale_type = m->scale_type;
    s.scale_bytes = weight_scale_bytes(m);
    return s;
}

GPU bool few_same_form(const struct matrix *a, const struct matrix *b)
{
    return a->kind == b->kind && a->k == b->k && a->slice == b->slice && a->group == b->group &&
           a->scale_type == b->scale_type && !a->zeros == !b->zeros;
}

/* How many parts from p on have the form of p. */
GPU u32 few_run_of_parts(const struct op_linear *op, u32 p)
{
    u32 n = 1;
    while (p + n < op->parts && few_same_form(&op->part[p], &op->part[p + n]))
        n++;
    return n;
}

/* The part that has a unit; *unit becomes its number there. */
GPU u32 few_part_of(const struct few_stream *s, u32 *unit)
{
    u32 part = s->part, units = few_units(&s->op->part[part]);
    while (*unit >= units) {
        *unit -= units;
        units = few_units(&s->op->part[++part]);
    }
    return part;
}

/* Asks this warp's slice of a unit into L2. */
GPU void few_fetch_unit(const struct few_stream *s, u32 unit)
{
    u32 bytes = (s->to - s->from) * WEIGHT_CHUNK_BYTES;
    if (unit >= s->units)
        return;
    const u8 *data = s->op->part[few_part_of(s, &unit)].data;
    data += ((size_t)unit * s->chunks + s->from) * WEIGHT_CHUNK_BYTES;
    for (u32 at = gpu_lane() * LINE_BYTES; at < bytes; at += 32 * LINE_BYTES)
        gpu_prefetch(data + at);
}

/* How many units ahead of their loads they are asked into L2; 1 for a warp whose slice is empty. */
GPU u32 few_distance(const struct few_stream *s)
{
    u32 bytes = (s->to - s->from) * WEIGHT_CHUNK_BYTES;
    return bytes ? MAX(FEW_FETCH_BYTES / bytes, 1u) : 1;
}

/* Asks the first weights of this warp into L2. */
GPU void few_fetch(const struct op_linear *op)
{
    struct few_stream s = few_stream_of(op, 0, few_run_of_parts(op, 0));
    u32 end = MIN(few_distance(&s) * gpu_blocks(), s.units);
    for (u32 unit = gpu_block(); unit < end; unit += gpu_blocks())
        few_fetch_unit(&s, unit);
}

/* --- the loop ------------------------------------------------------------------------------ */

/* How a loop is specialised. A batch is two chunks; a piece of it is what has one scale and is
 * summed apart (step.h): 64 inputs, or `fine`: 32. HALF has no scales. */
template <u32 kind_, bool fine_> struct few_form {
    static const u32 kind = kind_;
    static const u32 inputs = 128 >> kind_;  /* of a batch */
    static const u32 halves = fine_ ? 1 : 2; /* of 32 inputs, in a piece */
    static const u32 pieces = kind_ == MATRIX_HALF ? 1 : inputs / 32 / halves;
};

/* A batch on its way: chunks, and the scales and zeros of rows g and g + 8 of each piece. */
template <typename F> struct few_batch {
    uint4 chunk[2];
    u32 low[F::pieces], high[F::pieces], zero[F::pieces];
};

/* Where the loads are. */
struct few_place {
    u32 unit, chunk, left;           /* left of the group, in 32 inputs */
    const u8 *data, *scales, *zeros; /* of this lane */
};

GPU void few_enter(struct few_place *at, const struct few_stream *s)
{
    u32 unit = at->unit;
    const struct matrix *m = &s->op->part[few_part_of(s, &unit)];
    size_t group = (size_t)unit * s->groups + s->first_group;
    at->chunk = s->from;
    at->left = s->first_left;
    at->data =
        m->data + ((size_t)unit * s->chunks + s->from) * WEIGHT_CHUNK_BYTES + gpu_lane() * 16;
    at->scales = (const u8 *)m->scales + (group * 16 + gpu_lane() / 4) * s->scale_bytes;
    at->zeros = m->zeros ? m->zeros + group * 16 + gpu_lane() / 4 : NULL;
}

/* Zeros of two rows, as `zero` of a batch has them, where the file has none. */
template <typename F> GPU u32 few_no_zero(void)
{
    return F::kind == MATRIX_INT4 ? 0x0808 : 0x8080;
}

/* Starts the loads of the batch at `at`, and moves on; slices are whole batches. */
template <typename F>
GPU void few_load(struct few_batch<F> *b, struct few_place *at, const struct few_stream *s)
{
    if (at->unit >= s->units)
        return;
    if (at->chunk < s->to) {
        b->chunk[0] = gpu_load_weights(at->data);
        b->chunk[1] = gpu_load_weights(at->data + WEIGHT_CHUNK_BYTES);
        u32 width = s->scale_bytes;
#pragma unroll
        for (u32 i = 0; F::kind != MATRIX_HALF && i < F::pieces; i++) {
            const u8 *scale = gpu_global(at->scales), *zero = gpu_global(at->zeros);
            b->low[i] = width == 2 ? *(const u16 *)scale : *(const u32 *)scale;
            b->high[i] = width == 2 ? *(const u16 *)(scale + 16) : *(const u32 *)(scale + 32);
            b->zero[i] = at->zeros ? zero[0] | zero[8] << 8 : few_no_zero<F>();
            at->left -= F::halves;
            bool over = at->left == 0;
            at->scales += over ? 16 * width : 0;
            at->zeros += at->zeros && over ? 16 : 0;
            at->left = over ? s->group : at->left;
        }
    }
    at->chunk += 2;
    at->data += 2 * WEIGHT_CHUNK_BYTES;
    if (at->chunk >= s->to) {
        at->unit += gpu_blocks();
        if (at->unit < s->units)
            few_enter(at, s);
    }
}

GPU float few_scale(u32 raw, u32 type)
{
    if (type == DTYPE_F16)
        return gpu_from_half((u16)raw);
    return gpu_from_bits(type == DTYPE_BF16 ? raw << 16 : raw);
}

/* p += scale * the sum over piece i of a batch; x: this lane's fragments of the batch's inputs,
 * `stride` from 32 to the next. */
template <typename F>
GPU void few_piece(float p[4], const struct few_batch<F> *b, u32 i, const uint4 *x, u32 stride,
                   u32 scale_type)
{
    float sum[4] = {0, 0, 0, 0};
    struct weight_zero zero = weight_zero_of<F::kind>(b->zero[i] & 255, b->zero[i] >> 8);
#pragma unroll
    for (u32 h = 0; h < F::halves; h++) {
        u32 at = i * F::halves + h, c = F::kind == MATRIX_INT4 ? at / 2 : at, a[4];
        u32 word[4] = {b->chunk[c].x, b->chunk[c].y, b->chunk[c].z, b->chunk[c].w};
        uint4 v = x[at * stride];
        u32 fragment[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            weight_fragment<F::kind>(a, word, F::kind == MATRIX_INT4 ? at % 2 * 2 + j : j, &zero);
            gpu_mma(sum, a, fragment + 2 * j);
        }
    }
    float low = few_scale(b->low[i], scale_type), high = few_scale(b->high[i], scale_type);
    p[0] = fmaf(low, sum[0], p[0]);
    p[1] = fmaf(low, sum[1], p[1]);
    p[2] = fmaf(high, sum[2], p[2]);
    p[3] = fmaf(high, sum[3], p[3]);
}

template <typename F>
GPU void few_compute(float p[4], const struct few_batch<F> *b, const uint4 *x, u32 stride,
                     u32 scale_type)
{
    if constexpr (F::kind == MATRIX_HALF) { /* two tiles of 16 inputs */
        uint4 v = x[0];
        u32 fragment[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 a[4] = {b->chunk[i].x, b->chunk[i].y, b->chunk[i].z, b->chunk[i].w};
            gpu_mma(p, a, fragment + 2 * i);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < F::pieces; i++)
            few_piece(p, b, i, x, stride, scale_type);
    }
}

/* --- outputs ------------------------------------------------------------------------------- */

/* The output that this thread finishes in each unit: (row of the unit, token). For OUTPUT_GATE
 * rows 0..7, with the up row 8 below. */
struct few_output {
    bool mine;
    u32 row, token;
    float scale, most; /* of the token; largest |y| so far */
};

GPU struct few_output few_output_of(const struct op_linear *op, u32 rows,
                                    const struct linear_scale *scales)
{
    u32 n = op->output == OUTPUT_GATE ? 8 : 16, thread = gpu_thread();
    struct few_output o = {thread / n < rows, thread % n, thread / n, 0, 0};
    if (o.mine)
        o.scale = scales[o.token].scale;
    return o;
}

/* What a unit's output needs besides the sums, loaded before them. */
struct few_needs {
    float *y;
    bool real, biased;            /* is there such an output? */
    float old, scale[2], bias[2]; /* y so far; of the matrix, rows n and n + 8 */
};

GPU struct few_needs few_needs_of(const struct op_linear *op, u32 p, u32 unit,
                                  const struct few_output *o)
{
    const struct matrix *m = &op->part[p];
    u32 n = unit * 16 + o->row, up = MIN(n + 8, m->n - 1);
    struct few_needs needs = {NULL, o->mine && n < m->n, m->bias != NULL, 0, {1, 1}, {0, 0}};
    if (!needs.real)
        return needs;
    u32 column = op->output == OUTPUT_GATE ? unit * 8 + o->row : n;
    needs.y = gpu_global(op->y) + (size_t)o->token * op->y_stride + op->at[p] + column;
    if (op->output == OUTPUT_ADD)
        needs.old = *needs.y;
    if (m->kind == MATRIX_HALF) {
        needs.scale[0] = gpu_global((const float *)m->scales)[n];
        needs.scale[1] = gpu_global((const float *)m->scales)[up];
    }
    if (m->bias) {
        needs.bias[0] = gpu_global(m->bias)[n];
        needs.bias[1] = gpu_global(m->bias)[up];
    }
    return needs;
}

/* Leaves a warp's sums of a unit for those who add them up. */
GPU void few_leave(float *sums, const float p[4])
{
    float *to = sums + gpu_warp() * FEW_SUMS_FLOATS + gpu_lane() / 4;
    u32 token = gpu_lane() % 4 * 2;
    to[token * FEW_SUMS_STRIDE] = p[0];
    to[(token + 1) * FEW_SUMS_STRIDE] = p[1];
    to[token * FEW_SUMS_STRIDE + 8] = p[2];
    to[(token + 1) * FEW_SUMS_STRIDE + 8] = p[3];
}

GPU float few_add_up(const float *sums, u32 token, u32 row)
{
    float v = 0;
#pragma unroll
    for (u32 w = 0; w < GPU_WARPS; w++)
        v += sums[w * FEW_SUMS_FLOATS + token * FEW_SUMS_STRIDE + row];
    return v;
}

GPU float few_value(const struct few_needs *needs, u32 i, float sum, float scale)
{
    sum *= needs->scale[i];
    return needs->biased ? fmaf(sum, scale, needs->bias[i]) : sum * scale;
}

GPU void few_finish(u32 output, u32 activation, float softcap, const struct few_needs *needs,
                    const float *sums, struct few_output *o)
{
    if (!needs->real)
        return;
    float v = few_value(needs, 0, few_add_up(sums, o->token, o->row), o->scale);
    if (output == OUTPUT_GATE) {
        v = linear_activate(v, activation) *
            few_value(needs, 1, few_add_up(sums, o->token, o->row + 8), o->scale);
        o->most = fabsf(v) <= o->most ? o->most : fabsf(v); /* keeps NaN */
    } else if (output == OUTPUT_ADD) {
        v += needs->old;
    }
    if (softcap > 0)
        v = softcap * tanhf(v / softcap);
    *needs->y = v;
}

/* The largest |y| of each token, of this block's units. Groups of 8 threads have a token. */
GPU void few_most(const struct op_linear *op, const struct few_output *o)
{
    u32 most = gpu_bits(o->most);
    for (u32 mask = 4; mask; mask /= 2)
        most = gpu_max_xor(most, mask);
    if (o->mine && o->row == 0 && most)
        gpu_atomic_max(&op->row_max[o->token], most);
}

/* --- the operation ------------------------------------------------------------------------- */

/* The operation's input in shared memory. */
struct few_work {
    uint4 *fragments; /* [k / 32][rows][4] */
    float *sums;      /* [2][GPU_WARPS][FEW_SUMS_FLOATS] */
    float *measures;  /* [FEW_TOKENS][GPU_WARPS][2] */
    struct linear_scale *scales;
};

GPU struct few_work few_work_of(u32 rows, u32 k)
{
    struct few_work w;
    w.fragments = (uint4 *)gpu_shared();
    w.sums = (float *)(gpu_shared() + (size_t)rows * k * 2);
    w.measures = w.sums + 2 * GPU_WARPS * FEW_SUMS_FLOATS;
    w.scales = (struct linear_scale *)(w.measures + FEW_TOKENS * GPU_WARPS * 2);
    return w;
}

/* Parts [p, p + n), of one form. */
template <typename F>
GPU_CALL void few_parts(const struct op_linear *op, u32 first, u32 n, u32 rows)
{
    struct few_work work = few_work_of(rows, op->in.k);
    struct few_output output = few_output_of(op, rows, work.scales);
    const uint4 *x = work.fragments + MIN(gpu_lane() / 4, rows - 1) * 4 + gpu_lane() % 4;
    struct few_stream s = few_stream_of(op, first, n);
    struct few_place at = {gpu_block(), 0, 0, NULL, NULL, NULL};
    u32 distance = few_distance(&s) * gpu_blocks();
    u32 how = op->output, activation = op->activation, which = 0;
    float softcap = op->softcap;
    struct few_batch<F> now, next;
    if (at.unit >= s.units)
        return;
    few_enter(&at, &s);
    few_load(&next, &at, &s);
    for (u32 unit = gpu_block(); unit < s.units; unit += gpu_blocks()) {
        u32 in_part = unit, part = few_part_of(&s, &in_part);
        struct few_needs needs = few_needs_of(op, part, in_part, &output);
        few_fetch_unit(&s, unit + distance);
        const uint4 *inputs = x + s.from * (F::inputs / 2) / 32 * (rows * 4);
        float p[4] = {0, 0, 0, 0};
        u32 chunk = s.from;
        do { /* once also for an empty slice: few_load counts it */
            now = next;
            few_load(&next, &at, &s);
            if (chunk < s.to)
                few_compute(p, &now, inputs, rows * 4, s.scale_type);
            inputs += F::inputs / 32 * (rows * 4);
            chunk += 2;
        } while (chunk < s.to);
        float *to = work.sums + which * GPU_WARPS * FEW_SUMS_FLOATS;
        which ^= 1;
        few_leave(to, p);
        gpu_sync();
        few_finish(how, activation, softcap, &needs, to, &output);
    }
    if (op->output == OUTPUT_GATE)
        few_most(op, &output);
    gpu_sync(); /* the next parts begin with the same sums */
}

GPU void few_parts_any(const struct op_linear *op, u32 p, u32 n, u32 rows)
{
    const struct matrix *m = &op->part[p];
    bool fine = m->group % 128 != 0;
    if (m->kind == MATRIX_INT4 && !fine)
        few_parts<few_form<MATRIX_INT4, false>>(op, p, n, rows);
    else if (m->kind == MATRIX_INT4)
        few_parts<few_form<MATRIX_INT4, true>>(op, p, n, rows);
    else if (m->kind == MATRIX_INT8 && !fine)
        few_parts<few_form<MATRIX_INT8, false>>(op, p, n, rows);
    else if (m->kind == MATRIX_INT8)
        few_parts<few_form<MATRIX_INT8, true>>(op, p, n, rows);
    else
        few_parts<few_form<MATRIX_HALF, false>>(op, p, n, rows);
}

/* The operation, when decode_fits. */
GPU void few_run(const struct op_linear *op, const struct gpu_run *run)
{
    u32 rows = linear_rows(&op->in, run->step);
    struct few_work work = few_work_of(rows, op->in.k);
    linear_prepare_few(&op->in, run->step, work.fragments, work.scales, work.measures);
    for (u32 p = 0, n; p < op->parts; p += n) {
        n = few_run_of_parts(op, p);
        few_parts_any(op, p, n, rows);
    }
}

#endif
