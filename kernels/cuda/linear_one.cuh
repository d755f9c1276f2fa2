/* Linears of one token on Hopper: the sums of linear_few.cuh, with another way of the weights. Four
 * copying warps, behind those that all operations have (kernel `one_token`), send for them, from
 * linear to linear as they find them in the list of operations. So memory goes on while inputs are
 * prepared and attention is done, and who computes works out no addresses and asks for nothing.
 *
 * Each warp that computes has a ring of slots in shared memory for its slice. A slot is up to
 * ONE_SPANS >> kind spans of 128 inputs of a unit: weights, scales, zeros, each as in memory. Two
 * barriers a slot: `full`, where its copies have come; `empty`, where every thread has done with
 * it. Copying warp w serves the rings 2w and 2w + 1 in step, turn after turn of ONE_UNITS units: a
 * warp that waits for the others of its block never keeps their weights back.
 *
 * From the last product of a linear until the next row is there nothing new is sent for (one_calm):
 * the outputs and that row would stand behind it in the memory's queues. Rows are awaited (step.h,
 * NOT_YET): blocks do not meet, since a word behind the outputs, and asking for the row when all
 * words are there, take longer than to ask for the row until it is whole (0.1 ms a step of 8B).
 *
 * Weights are the first to leave L2: while they pushed out what every step reads again, of rows and
 * tables to the instructions of the kernel, its time was that of how its code happened to lie in
 * caches (8B on an H200: 1.70 to 1.80 ms a step).
 */
#ifndef ZIGCUDA_LINEAR_ONE_CUH
#define ZIGCUDA_LINEAR_ONE_CUH

#include "kernels/cuda/linear_few.cuh"

#ifdef GPU_GROUPS

enum {
    ONE_SPAN = 128,
    ONE_UNITS = 2,         /* of a turn */
    ONE_RINGS = 2,         /* of a copying warp */
    ONE_SCALES_BYTES = 32, /* of a span of INT4 */
    ONE_ZEROS_BYTES = 16,
    ONE_SCALES_AT = ONE_SPANS * 1024,
    ONE_ZEROS_AT = ONE_SCALES_AT + ONE_SPANS * ONE_SCALES_BYTES,
};
static_assert(ONE_ZEROS_AT + ONE_SPANS * ONE_ZEROS_BYTES == ONE_SLOT_BYTES, "the slot");

/* The ring of one warp. `turn` counts the slots used. */
struct one_ring {
    u64 *full, *empty; /* [ONE_SLOTS] */
    u8 *slots;
    u32 turn;
};

GPU struct one_ring one_ring_of(const struct gpu_run *p, u32 warp)
{
    u8 *head = gpu_shared() + p->shared_bytes + STEP_SHARED_BYTES;
    u64 *barriers = (u64 *)head + warp * 2 * ONE_SLOTS;
    struct one_ring ring = {barriers, barriers + ONE_SLOTS,
                            head + ONE_HEAD_BYTES + warp * ONE_SLOTS * ONE_SLOT_BYTES, 0};
    return ring;
}

/* A barrier whose phases 0, 2, .. let copies begin, and 1, 3, .. do not. */
GPU u64 *one_calm(const struct gpu_run *p)
{
    return (u64 *)(gpu_shared() + p->shared_bytes + STEP_SHARED_BYTES) + GPU_WARPS * 2 * ONE_SLOTS;
}

GPU u32 one_slot(u32 turn)
{
    return turn % ONE_SLOTS;
}
GPU u32 one_parity(u32 turn)
{
    return turn / ONE_SLOTS % 2;
}

/* Before anything else; then all warps must meet. */
GPU void one_open(const struct gpu_run *p)
{
    if (gpu_thread() < GPU_WARPS) {
        struct one_ring ring = one_ring_of(p, gpu_thread());
        for (u32 i = 0; i < ONE_SLOTS; i++) {
            gpu_barrier_init(&ring.full[i], 1);
            gpu_barrier_init(&ring.empty[i], 32);
        }
    }
    if (gpu_thread() == 0)
        gpu_barrier_init(one_calm(p), 1);
    gpu_fence_bulk();
}

/* --- copying ------------------------------------------------------------------------------- */

/* A matrix, whose weights for this block lie side by side from `data` on, as do its scales and
 * zeros. */
struct one_source {
    const u8 *data, *scales, *zeros;
    u32 span_bytes, sides; /* of a span; sides: of scales and zeros together */
    u64 policy;            /* gpu_copy_bulk_stay */
};

/* One thread: sends for the next slot, `spans` from `at` on. */
GPU void one_send(const struct one_source *m, struct one_ring *ring, u64 *calm, u32 at, u32 spans)
{
    const u32 turn = ring->turn++, bytes = spans * m->span_bytes;
    u64 *full = &ring->full[one_slot(turn)];
    u8 *to = ring->slots + one_slot(turn) * ONE_SLOT_BYTES;
    gpu_barrier_wait(&ring->empty[one_slot(turn)], one_parity(turn) ^ 1);
    gpu_barrier_wait(calm, 1);
    gpu_barrier_expect(full, bytes + spans * m->sides);
    gpu_copy_bulk_stay(to, m->data + (size_t)at * m->span_bytes, bytes, full, m->policy);
    if (m->sides)
        gpu_copy_bulk_stay(to + ONE_SCALES_AT, m->scales + (size_t)at * ONE_SCALES_BYTES,
                           spans * ONE_SCALES_BYTES, full, m->policy);
    if (m->zeros)
        gpu_copy_bulk_stay(to + ONE_ZEROS_AT, m->zeros + (size_t)at * ONE_ZEROS_BYTES,
                           spans * ONE_ZEROS_BYTES, full, m->policy);
}

/* A matrix, to the rings of the warps server * ONE_RINGS + r. */
GPU void one_feed(const struct matrix *of, struct one_ring *ring, u64 *calm, u32 server)
{
    const u32 row = of->k / ONE_SPAN, slice = of->slice / ONE_SPAN, most = ONE_SPANS >> of->kind;
    const bool half = of->kind == MATRIX_HALF;
    struct one_source m = {
        of->data, (const u8 *)of->scales, half ? NULL : of->zeros, 1024u << of->kind,
        0,        gpu_stay_short()};
    u32 first, units;
    few_stretch(CEIL_DIV(of->n, 16u), &first, &units);
    m.sides = half ? 0 : m.zeros ? ONE_SCALES_BYTES + ONE_ZEROS_BYTES : (u32)ONE_SCALES_BYTES;
    m.data += (size_t)first * row * m.span_bytes;
    m.scales += (size_t)first * row * ONE_SCALES_BYTES;
    m.zeros = m.zeros ? m.zeros + (size_t)first * row * ONE_ZEROS_BYTES : NULL;
#pragma unroll 1
    for (u32 unit = 0, n; unit < units; unit += n) {
        n = MIN(units - unit, (u32)ONE_UNITS);
#pragma unroll 1
        for (u32 i = 0; i < CEIL_DIV(slice, most) * n; i++)
#pragma unroll
            for (u32 r = 0; r < ONE_RINGS; r++) {
                const u32 begin = (server * ONE_RINGS + r) * slice, at = begin + i / n * most,
                          end = MIN(begin + slice, row);
                if (at < end)
                    one_send(&m, &ring[r], calm, (unit + i % n) * row + at, MIN(end - at, most));
            }
    }
}

/* What one thread of a copying warp does: all linears of the list. What it reads of them comes from
 * global memory, which takes its time while what it has sent for is on its way. other: is called
 * for operations that are no linears. */
template <class task> GPU void one_serve(const struct gpu_run *p, u32 server, task other)
{
    struct one_ring ring[ONE_RINGS];
#pragma unroll
    for (u32 r = 0; r < ONE_RINGS; r++)
        ring[r] = one_ring_of(p, server * ONE_RINGS + r);
#pragma unroll 1
    for (u32 i = p->first; i < p->last; i++) {
        const struct op_linear *op = &p->ops[i].linear;
        if (p->ops[i].kind != OP_LINEAR)
            other(&p->ops[i], ring);
        if (p->ops[i].kind != OP_LINEAR || linear_rows(&op->in, p->step) == 0)
            continue;
#pragma unroll 1
        for (u32 part = 0; part < op->parts; part++)
            one_feed(&op->part[part], ring, one_calm(p), server);
    }
}

/* --- products ------------------------------------------------------------------------------ */

/* What a warp needs to know of a matrix of INT4. x, sums: of the slice; x: this lane's 16 bytes. */
struct one_how {
    const u8 *x;
    const i32 *sums; /* of the inputs of spans */
    u32 scale_type;
    bool zeros; /* else they are those of weight_no_zeros */
};

/* Inputs of a slot's spans, as few_compute_bytes has them: two columns, the high bytes and the low
 * ones, for each of the four lanes of a row. */
struct one_inputs {
    uint4 v[ONE_SPANS][2];
    i32 sum; /* of span lane % 4 */
};

/* From span `at` of the slice on, which has so many; in place of those behind it the last one. */
GPU void one_load_inputs(struct one_inputs *in, const struct one_how *how, u32 at, u32 spans)
{
#pragma unroll
    for (u32 s = 0; s < ONE_SPANS; s++)
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            in->v[s][i] =
                *(const uint4 *)(how->x + MIN(at + s, spans - 1) * ONE_SPAN * 2 + i * 128);
    in->sum = how->sums[MIN(at + gpu_lane() % 4, spans - 1)];
}

/* The one of v that is of span lane % 4. */
GPU i32 one_mine(const i32 v[ONE_SPANS])
{
    const bool odd = gpu_lane() & 1, late = gpu_lane() & 2;
    const i32 low = odd ? v[1] : v[0], high = odd ? v[3] : v[2];
    return late ? high : low;
}

/* Sums of a slot's spans, of span t by lane t of the four of a row g: of the outputs g and g + 8,
 * g = lane / 4, and what they are to be scaled by. Words of weights are operands as they are: a
 * byte of outputs g, g + 8 is q + 16 q', and that of g + 8 alone 16 q', which is taken from the
 * first sum. */
template <u32 N> struct one_products {
    float low[N], high[N];
    struct weight_scales scales[N];
};

template <u32 N>
GPU struct one_products<N> one_multiply(const u8 *const slot[N], const struct one_inputs *in,
                                        const struct one_how *how) {
    static_assert(ONE_SPANS == 4, "a lane of a row each");
    const u32 lane = gpu_lane(), row = lane / 4, t = lane % 4;
    uint4 chunk[N][ONE_SPANS][2];
    u32 scale[N], zero[N];
    i32 sum[N][ONE_SPANS][4] = {};
    struct one_products<N> to;
#pragma unroll
    for (u32 u = 0; u < N; u++) {
#pragma unroll
        for (u32 s = 0; s < ONE_SPANS; s++)
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                chunk[u][s][i] =
                    *(const uint4 *)(slot[u] + lane * 16 + s * 1024 + i * WEIGHT_CHUNK_BYTES);
        scale[u] = *(const u32 *)(slot[u] + ONE_SCALES_AT + t * ONE_SCALES_BYTES + row * 4);
        zero[u] = weight_no_zeros<MATRIX_INT4>();
        if (how->zeros)
            zero[u] = *(const u16 *)(slot[u] + ONE_ZEROS_AT + t * ONE_ZEROS_BYTES + row * 2);
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
        for (u32 s = 0; s < ONE_SPANS; s++)
#pragma unroll
            for (u32 u = 0; u < N; u++) {
                const uint4 c = chunk[u][s][j / 2], v = in->v[s][j / 2];
                const u32 fragment[2] = {j % 2 ? v.z : v.x, j % 2 ? v.w : v.y};
                const u32 a = j % 2 ? c.z : c.x, b = j % 2 ? c.w : c.y;
                const u32 word[4] = {a, a & 0xf0f0f0f0, b, b & 0xf0f0f0f0};
                gpu_mma_bytes(sum[u][s], word, fragment);
            }
#pragma unroll
    for (u32 u = 0; u < N; u++) {
        i32 first[ONE_SPANS], second[ONE_SPANS];
#pragma unroll
        for (u32 s = 0; s < ONE_SPANS; s++) {
            first[s] = 128 * sum[u][s][0] + sum[u][s][1];
            second[s] = 128 * sum[u][s][2] + sum[u][s][3];
        }
        const i32 both = one_mine(first), upper = one_mine(second);
        const u32 inputs = (u32)in->sum; /* behind the slice, of whatever stood there: wraps */
        to.low[u] = (float)(i32)((u32)both - (u32)upper - (zero[u] & 0xff) * inputs);
        to.high[u] = (float)(i32)((u32)upper - (zero[u] >> 8) * 16 * inputs);
        to.scales[u] = weight_scales_of(scale[u], 0, how->scale_type);
        to.scales[u].high *= 0.0625f;
    }
    return to;
}

/* Adds slots of so many spans, of N units, to p[0], p[2] of each: from lane to lane, in order. */
template <u32 N>
GPU void one_bytes(float (*p)[4], const u8 *const slot[N], const struct one_inputs *in, u32 spans,
                   const struct one_how *how)
{
    const u32 row = gpu_lane() / 4;
    const struct one_products<N> v = one_multiply<N>(slot, in, how);
#pragma unroll
    for (u32 s = 0; s < ONE_SPANS; s++)
#pragma unroll
        for (u32 u = 0; u < N; u++) {
            const float a = fmaf(v.scales[u].low, v.low[u], p[u][0]),
                        b = fmaf(v.scales[u].high, v.high[u], p[u][2]);
            p[u][0] = gpu_shuffle(s < spans ? a : p[u][0], row * 4 + s);
            p[u][2] = gpu_shuffle(s < spans ? b : p[u][2], row * 4 + s);
        }
}

/* The same of a unit, each span by itself: to [span][FEW_ROW_FLOATS]. */
GPU void one_bytes_apart(float *to, const u8 *slot, const struct one_inputs *in, u32 spans,
                         const struct one_how *how)
{
    const u32 row = gpu_lane() / 4, span = gpu_lane() % 4;
    const u8 *const of[1] = {slot};
    const struct one_products<1> v = one_multiply<1>(of, in, how);
    if (span < spans) {
        to[span * FEW_ROW_FLOATS + row] = fmaf(v.scales[0].low, v.low[0], 0.0f);
        to[span * FEW_ROW_FLOATS + row + 8] = fmaf(v.scales[0].high, v.high[0], 0.0f);
    }
}

/* A span of halves. */
GPU void one_halves(float p[4], const u8 *slot, const u8 *x)
{
    typedef few_form<MATRIX_HALF, false> form;
    struct few_batch<form, 1> batch[ONE_SPAN / form::inputs];
#pragma unroll
    for (u32 i = 0; i < ONE_SPAN / form::inputs; i++)
        few_load<form, 1>(&batch[i], slot + gpu_lane() * 16 + i * form::bytes, NULL,
                          x + i * form::inputs * 2);
#pragma unroll
    for (u32 i = 0; i < ONE_SPAN / form::inputs; i++)
        few_compute<form, 1>((float(*)[4])p, &batch[i], 0);
}

/* This warp's slice of a turn of N units, of so many spans; their sums for who adds them up. */
template <u32 kind, u32 N>
GPU void one_turn(float *sums, u32 spans, struct one_ring *ring, const struct one_how *how,
                  struct one_inputs *in)
{
    float p[N][4] = {};
#pragma unroll 1
    for (u32 at = 0; at < spans; at += ONE_SPANS >> kind) {
        const u8 *slot[N];
        if (kind == MATRIX_INT4 && spans > ONE_SPANS) /* else they are there */
            one_load_inputs(in, how, at, spans);
#pragma unroll
        for (u32 u = 0; u < N; u++) {
            const u32 number = one_slot(ring->turn + u);
            slot[u] = ring->slots + number * ONE_SLOT_BYTES;
            gpu_barrier_wait(&ring->full[number], one_parity(ring->turn + u));
        }
        if (kind == MATRIX_INT4)
            one_bytes<N>(p, slot, in, spans - at, how);
#pragma unroll
        for (u32 u = 0; u < N; u++) {
            if (kind == MATRIX_HALF)
                one_halves(p[u], slot[u], how->x + at * ONE_SPAN * 2);
            gpu_barrier_leave(&ring->empty[one_slot(ring->turn + u)]);
        }
        ring->turn += N;
    }
#pragma unroll
    for (u32 u = 0; u < N; u++)
        few_leave(sums + u * GPU_WARPS * FEW_ROW_FLOATS, p[u], 1);
}

/* So many units. */
template <u32 kind>
GPU void one_slices(float *sums, u32 units, u32 spans, struct one_ring *ring,
                    const struct one_how *how)
{
    struct one_inputs in = {};
    if (kind == MATRIX_INT4 && spans && spans <= ONE_SPANS)
        one_load_inputs(&in, how, 0, spans);
#pragma unroll 1
    for (; units >= ONE_UNITS; units -= ONE_UNITS) {
        one_turn<kind, ONE_UNITS>(sums, spans, ring, how, &in);
        sums += ONE_UNITS * GPU_WARPS * FEW_ROW_FLOATS;
    }
    if (units)
        one_turn<kind, 1>(sums, spans, ring, how, &in);
}

/* --- the operation ------------------------------------------------------------------------- */

/* Behind what few_work has: sums of the inputs of each span. */
GPU i32 *one_sums(const struct few_work *work)
{
    return (i32 *)(work->slices + FEW_TOKENS);
}

struct one_form {
    static constexpr u32 units = 1; /* of a turn */
};

/* What of an operation is known, or can be asked for, before its row is there: its input, and
 * the first outputs of this thread, of which nobody but this block writes what they are added to.
 */
struct one_begun {
    struct near_ahead input;
    struct few_output o[FEW_FINISH];
    float old[FEW_FINISH];
};

/* Outputs of this thread in a chunk. */
GPU void one_outputs(struct one_begun *b, const struct op_linear *op, u32 p,
                     const struct few_chunk *c)
{
#pragma unroll
    for (u32 i = 0; i < FEW_FINISH; i++) {
        b->o[i] = few_output_of<one_form>(op, p, c, gpu_thread() + i * GPU_THREADS);
        b->old[i] = b->o[i].some && op->output == OUTPUT_ADD ? op->old[b->o[i].y - op->y] : 0;
    }
}

/* The chunk of a part from unit `done` of this block's stretch on. */
GPU struct few_chunk one_chunk(const struct op_linear *op, u32 p, u32 done, u32 *left)
{
    const struct few_work work = few_work_of(1, op->in.k);
    struct few_chunk c = {0, 0, 1, op->output == OUTPUT_GATE ? 3u : 4u, FEW_ROW_FLOATS, work.sums};
    u32 first, units;
    few_stretch(CEIL_DIV(op->part[p].n, 16u), &first, &units);
    c.first = first + done;
    c.units = MIN((u32)FEW_CHUNK_UNITS, units - done);
    *left = units - done - c.units;
    return c;
}

GPU void one_begin(struct one_begun *b, const struct op_linear *op, const struct gpu_step *s)
{
    u32 left;
    if (linear_rows(&op->in, s) == 0)
        return;
    b->input = near_look_ahead(&op->in, s);
    const struct few_chunk c = one_chunk(op, 0, 0, &left);
    one_outputs(b, op, 0, &c);
}

template <u32 kind>
GPU void one_part(const struct op_linear *op, u32 p, struct one_begun *b, struct one_ring *ring,
                  u64 *calm)
{
    const struct few_work work = few_work_of(1, op->in.k);
    const struct matrix *m = &op->part[p];
    const u32 k = m->k, slice = MIN(gpu_warp() * m->slice, k),
              spans = (MIN(slice + m->slice, k) - slice) / ONE_SPAN;
    const u8 *x = work.fragments + (kind == MATRIX_HALF ? gpu_lane() % 4 : gpu_lane() % 8) * 16;
    const struct one_how how = {x + slice * 2, one_sums(&work) + slice / ONE_SPAN,
                                m->scale_type == DTYPE_F16 ? (u32)DTYPE_F16 : (u32)DTYPE_BF16,
                                m->zeros != NULL};
    u32 left = 1;
    for (u32 done = 0; left; done += FEW_CHUNK_UNITS) {
        const struct few_chunk c = one_chunk(op, p, done, &left);
        if (p || done)
            one_outputs(b, op, p, &c);
        one_slices<kind>(work.sums + gpu_warp() * FEW_ROW_FLOATS, c.units, spans, ring, &how);
        gpu_sync();
        if (!left && p + 1 == op->parts && gpu_thread() == 0)
            gpu_barrier_arrive(calm);
        const struct few_row row = few_row_of(&op->in, work.slices);
#pragma unroll
        for (u32 i = 0; i < FEW_FINISH; i++)
            if (b->o[i].some)
                few_finish(op, p, &row, &b->o[i], c.apart, b->old[i]);
        if (left)
            gpu_sync();
    }
    if (p + 1 < op->parts) /* others use the sums */
        gpu_sync();
}

/* The operation, which has begun, and whose input has been asked for. */
GPU void one_run(const struct op_linear *op, struct one_begun *b, struct one_ring *ring, u64 *calm)
{
    const struct few_work work = few_work_of(1, op->in.k);
    near_prepare_one<true>(&op->in, &b->input, work.fragments, work.slices, one_sums(&work));
    for (u32 p = 0; p < op->parts; p++)
        if (op->part[p].kind == MATRIX_HALF)
            one_part<MATRIX_HALF>(op, p, b, ring, calm);
        else
            one_part<MATRIX_INT4>(op, p, b, ring, calm);
}

#endif

#endif
