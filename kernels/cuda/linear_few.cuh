/* Linears of few tokens: the weights' way from memory is all that counts. A unit is 16 outputs by
 * all inputs; a thread block has a stretch of units, one or two a turn, and warp w has slice w of
 * each. Its weights come in batches, each with the scales and zeros that belong to it, through a
 * ring of slots in shared memory that the warp has for itself: asynchronous copies run ahead over
 * the ends of turns, and those of the next linear begin before the blocks meet, so that memory goes
 * on while they meet and prepare the input. Weights are the 16-row operand of the tensor core and
 * tokens the 8 columns. INT4 by one token, the most frequent case, are products of bytes: packed
 * weights become operands by one instruction a word, rows 8 to 15 as 16 q, the two bytes of an
 * input are two columns, and zero points are taken from a group's sum, times that of its inputs.
 *
 * Why a ring and not registers: what is on its way to registers occupies them, and a spill right
 * behind a load waits for it.
 *
 * Why copies begin in waves: all that is asked for at once stands in the memory's queues before
 * what is asked for next, and that is the flag by which the blocks meet, and the row that they
 * prepare.
 *
 * Shared memory: the rows (linear_near.cuh), sums of the eight slices of as many units as there is
 * room for (so that warps do not wait for one another after each), and at the end of what the
 * launch has the rings, which stay while other operations run.
 */
#ifndef ZIGCUDA_LINEAR_FEW_CUH
#define ZIGCUDA_LINEAR_FEW_CUH

#include "kernels/cuda/linear_near.cuh"
#include "kernels/cuda/linear_weight.cuh"

enum {
    FEW_ROW_FLOATS = 20,  /* of a token's 16 outputs: free of bank conflicts */
    FEW_UNITS = 2,        /* of a turn, at most */
    FEW_CHUNK_UNITS = 32, /* units of one row whose sums there is room for */
    FEW_SUMS_FLOATS = FEW_CHUNK_UNITS * GPU_WARPS * FEW_ROW_FLOATS,
    FEW_FINISH = FEW_CHUNK_UNITS * 16 / GPU_THREADS, /* outputs that a thread finishes, at most */
    /* Batches of a warp whose copies begin together: before the blocks meet, while the input is on
     * its way. */
    FEW_FIRST_WAVE = 2,
    FEW_SECOND_WAVE = 3,
    FEW_PACE = 900, /* clocks from batch to batch while the blocks meet: about what memory takes */
};

/* The operation's input and sums in shared memory. */
struct few_work {
    u8 *fragments;                /* [rows][near_stride(k)] */
    float *sums;                  /* [turn][GPU_WARPS][unit of the turn][rows][FEW_ROW_FLOATS] */
    struct linear_slices *slices; /* [FEW_TOKENS] */
};

static_assert(FEW_SUMS_FLOATS * sizeof(float) + FEW_TOKENS * sizeof(struct linear_slices) <=
                  DECODE_WORK_BYTES,
              "what is behind the fragments");

GPU struct few_work few_work_of(u32 rows, u32 k)
{
    struct few_work w;
    w.fragments = gpu_shared();
    w.sums = (float *)(gpu_shared() + rows * near_stride(k));
    w.slices = (struct linear_slices *)(w.sums + FEW_SUMS_FLOATS);
    return w;
}

/* --- the ring ------------------------------------------------------------------------------ */

/* How a loop is specialised: `fine` where groups are of 32, `single` for products of bytes; units
 * of a turn. A slot holds a batch of a turn's units: the chunks of each, then the scales of its
 * groups and their zeros, of each. */
template <u32 kind_, bool fine_, bool single_ = false,
          u32 units_ = kind_ == MATRIX_INT4 && !fine_ ? FEW_UNITS : 1>
struct few_form {
    static constexpr u32 kind = kind_, units = units_;
    static constexpr bool fine = fine_, single = single_;
    static constexpr u32 inputs =
        kind_ == MATRIX_HALF || (kind_ == MATRIX_INT8 && fine_) ? 64 : 128;
    static constexpr u32 chunks = inputs / (64 >> MATRIX_SHIFT(kind_)),
                         bytes = chunks * WEIGHT_CHUNK_BYTES;
    static constexpr u32 groups = kind_ == MATRIX_HALF ? 0 : fine_ ? inputs / 32 : 1;
    static constexpr u32 side_bytes = groups * (fine_ ? 80 : 48); /* fine: f32 */
    static constexpr u32 sides_at = units * bytes;
    static constexpr u32 slot_bytes = sides_at + units * side_bytes;
    static constexpr u32 tiles = inputs / 16 / MAX(groups, 1u);           /* of a group */
    static constexpr u32 chains = kind_ == MATRIX_INT4 && !fine_ ? 2 : 1; /* sums of it: exact */
    static_assert(FEW_RING_BYTES / FEW_RINGS_PARTS / slot_bytes >= 2, "one is used, one filled");
};

/* Slots of a ring; part: of FEW_RING_BYTES, 1, 2 or 4. */
template <typename F> GPU constexpr u32 few_slots(u32 part)
{
    constexpr u32 bytes = F::slot_bytes;
    return part == 1   ? FEW_RING_BYTES / bytes
           : part == 2 ? FEW_RING_BYTES / 2 / bytes
                       : FEW_RING_BYTES / 4 / bytes;
}

/* Where this warp's copies of a part come from and go to. Batches are counted over all of the part,
 * unit after unit. Places in shared memory are offsets. */
struct few_stream {
    const u8 *data, *side; /* this lane's of batch 0; side: scales, zeros, or nothing */
    u32 batch;             /* the next one to copy, of the turn's first unit */
    u32 remain, left;      /* batches to copy: of all turns, of this one */
    u32 single;            /* the last so many of them are of one unit where others are of two */
    u32 batches, row;      /* of a slice; of a unit */
    u32 jump;              /* from behind a slice to that of the next turn */
    u32 side_step;         /* bytes from batch to batch; 0: this lane copies no side */
    u32 to, from, end;     /* this lane's chunks of the next batch; of the ring; its end */
    u32 part;              /* few_slots */
    u32 ahead;             /* batches on their way at the beginning, up to slots - 1 */
    u32 first, units;      /* the stretch of this block */
};

/* Lanes that copy scales, 16 bytes each; as many as groups copy zeros. Only fine groups have scales
 * of f32. */
template <typename F> GPU u32 few_scale_lanes(const struct matrix *m)
{
    return F::groups * (F::fine && MATRIX_SCALES(F::kind, m) == DTYPE_F32 ? 4 : 2);
}

/* This lane's part of the sides of a slot: scales or zeros of a unit. */
struct few_side {
    u32 unit, lane;    /* of the turn; among those of the unit */
    bool scales, some; /* some: any at all */
};

template <typename F> GPU struct few_side few_side_of(const struct matrix *m)
{
    u32 scale_lanes = few_scale_lanes<F>(m), each = scale_lanes + F::groups, lane = gpu_lane();
    struct few_side s;
    s.unit = F::units > 1 && lane >= each;
    s.lane = lane - s.unit * each;
    s.scales = s.lane < scale_lanes;
    s.some = s.lane < each;
    return s;
}

/* This block's stretch of so many units, fewer than 2^20: in floats, which is exact then. */
GPU void few_stretch(u32 units, u32 *first, u32 *mine)
{
    const u32 block = gpu_block();
    u32 each = (u32)(((float)units + 0.5f) * gpu_reciprocal((float)gpu_blocks()));
    u32 more = units - each * gpu_blocks();
    *first = block * each + MIN(block, more);
    *mine = each + (block < more);
}

template <typename F>
GPU struct few_stream few_stream_of(const struct matrix *m, const struct gpu_run *run)
{
    struct few_stream s;
    const u32 lane = gpu_lane();
    u32 first = MIN(gpu_warp() * m->slice, m->k);
    few_stretch(CEIL_DIV(m->n, 16u), &s.first, &s.units);
    s.left = s.batches = (MIN(first + m->slice, m->k) - first) / F::inputs;
    s.remain = CEIL_DIV(s.units, F::units) * s.batches;
    s.single = s.units % F::units * s.batches;
    s.row = m->k / F::inputs;
    s.batch = s.first * s.row + first / F::inputs;
    s.jump = F::units * s.row - s.batches;
    s.data = gpu_global(m->data) + lane * 16;
    s.part = run->ring_bytes == FEW_RING_BYTES ? 1 : run->ring_bytes == FEW_RING_BYTES / 2 ? 2 : 4;
    s.ahead = 0;
    s.to = s.from = run->shared_bytes + gpu_warp() * run->ring_bytes + lane * 16;
    s.end = s.from + few_slots<F>(s.part) * F::slot_bytes;
    s.side = s.data;
    s.side_step = 0;
    if (F::groups) {
        struct few_side mine = few_side_of<F>(m);
        u32 scale_lanes = few_scale_lanes<F>(m);
        u32 step = (mine.scales ? scale_lanes : F::groups) * 16;
        const u8 *at = mine.scales ? (const u8 *)m->scales + mine.lane * 16
                                   : m->zeros + (mine.lane - scale_lanes) * 16;
        s.side_step = mine.some && (mine.scales || m->zeros) ? step : 0;
        s.side = gpu_global(at) + (size_t)(mine.unit * s.row) * step;
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
    const u8 *from = s->data + (u64)s->batch * F::bytes;
    const u8 *second = s->data + (u64)(s->batch + s->row) * F::bytes;
    bool some = s->remain != 0, both = F::units > 1 && s->remain > s->single;
#pragma unroll
    for (u32 c = 0; c < F::chunks; c++)
        gpu_copy16_if(some, to + c * WEIGHT_CHUNK_BYTES, from + c * WEIGHT_CHUNK_BYTES);
#pragma unroll
    for (u32 c = 0; c < F::chunks && F::units > 1; c++)
        gpu_copy16_if(both, to + F::bytes + c * WEIGHT_CHUNK_BYTES,
                      second + c * WEIGHT_CHUNK_BYTES);
    if (F::groups) {
        bool side = F::units > 1 && gpu_lane() >= F::side_bytes / 16 ? both : some;
        gpu_copy16_if(side && s->side_step, to + F::sides_at,
                      s->side + (u64)s->batch * s->side_step);
    }
    gpu_copy_commit();
    s->to = few_behind<F>(s, s->to);
    s->batch++;
    s->remain -= some;
    if (--s->left == 0) {
        s->left = s->batches;
        s->batch += s->jump;
    }
}

/* Copies of n more batches at the beginning, as long as a slot stays free. */
template <typename F> GPU void few_fill(struct few_stream *s, u32 n)
{
#pragma unroll 1 /* what runs once should be short: instructions come from afar */
    for (u32 slots = few_slots<F>(s->part); n && s->ahead < slots - 1; n--, s->ahead++)
        few_copy<F>(s);
}

/* The stream, and its first copies. What the blocks still want to read before they can begin would
 * stand behind all that is asked for; so the ring is filled in waves. */
template <typename F>
GPU void few_begin(struct few_stream *s, const struct matrix *m, const struct gpu_run *run)
{
    *s = few_stream_of<F>(m, run);
    few_fill<F>(s, FEW_FIRST_WAVE);
}

/* Waits for the oldest batch, of which all slots but one are on their way. */
template <typename F> GPU void few_wait(u32 part)
{
    if (part == 1)
        gpu_copy_wait<few_slots<F>(1) - 2>();
    else if (part == 2)
        gpu_copy_wait<few_slots<F>(2) - 2>();
    else
        gpu_copy_wait<few_slots<F>(4) - 2>();
    gpu_warp_sync();
}

/* --- products ------------------------------------------------------------------------------ */

/* Scales and zeros of rows g and g + 8, as the loop finds them. */
struct few_sides {
    u32 type;              /* of scales */
    bool zeros;            /* else they are those of weight_no_zeros */
    u32 scale_at, zero_at; /* from this lane's chunks of a slot to its words of the first group */
};

template <typename F> GPU struct few_sides few_sides_of(const struct matrix *m)
{
    struct few_sides s;
    const u32 type = MATRIX_SCALES(F::kind, m);
    bool f32 = F::fine && type == DTYPE_F32;
    u32 at = F::sides_at - gpu_lane() * 16, row = gpu_lane() / 4;
    s.zeros = MATRIX_HAS_ZEROS(F::kind, m);
    s.type = type == DTYPE_F16 ? DTYPE_F16 : f32 ? DTYPE_F32 : DTYPE_BF16;
    s.scale_at = at + row * (f32 ? 8 : 4);
    s.zero_at = at + few_scale_lanes<F>(m) * 16 + row * 2;
    return s;
}

/* The chunks of a batch of N units, with the scales and zeros of their groups as they stand in
 * memory, and this lane's fragments of its inputs. */
template <typename F, u32 N> struct few_batch {
    uint4 chunk[N][F::chunks], x[F::inputs / (F::single ? 64 : 32)];
    u32 zero[N][MAX(F::groups, 1u)];
    uint2 scale[N][MAX(F::groups, 1u)];
};

/* mine: this lane's chunks of a slot. */
template <typename F, u32 N>
GPU void few_load(struct few_batch<F, N> *b, const u8 *mine, const struct few_sides *sides,
                  const u8 *x)
{
    const bool f32 = F::fine && sides->type == DTYPE_F32;
#pragma unroll
    for (u32 u = 0; u < N && F::groups != 0; u++)
#pragma unroll
        for (u32 g = 0; g != F::groups; g++) {
            const u8 *side = mine + u * F::side_bytes;
            b->zero[u][g] = weight_no_zeros<F::kind>();
            if (sides->zeros)
                b->zero[u][g] = *(const u16 *)(side + sides->zero_at + g * 16);
            if (f32)
                b->scale[u][g] = *(const uint2 *)(side + sides->scale_at + g * 64);
            else
                b->scale[u][g].x = *(const u32 *)(side + sides->scale_at + g * 32);
        }
#pragma unroll
    for (u32 i = 0; i < F::inputs / (F::single ? 64 : 32); i++)
        b->x[i] = *(const uint4 *)(x + i * (F::single ? 128 : 64));
#pragma unroll
    for (u32 c = 0; c < F::chunks; c++)
#pragma unroll
        for (u32 u = 0; u < N; u++)
            b->chunk[u][c] = *(const uint4 *)(mine + u * F::bytes + c * WEIGHT_CHUNK_BYTES);
}

/* Tile `tile` (16 outputs x 16 inputs) of a unit's chunks, of inputs x, onto sum. */
template <typename F>
GPU void few_tile(float sum[4], const uint4 *chunk, const uint4 *x, u32 tile,
                  const struct weight_zero *zero)
{
    const u32 in_chunk = F::kind == MATRIX_HALF ? 1 : 4 >> MATRIX_SHIFT(F::kind); /* tiles */
    uint4 c = chunk[tile / in_chunk], v = x[tile / 2];
    u32 word[4] = {c.x, c.y, c.z, c.w}, a[4];
    u32 fragment[2] = {tile % 2 ? v.z : v.x, tile % 2 ? v.w : v.y};
    weight_fragment<F::kind>(a, word, tile % in_chunk, zero);
    gpu_mma(sum, a, fragment);
}

/* A group's sums of bytes onto p, in units of 2^-24. What those of row g + 8 are 16 times too
 * large, the scale is too small. inputs: their sum. */
GPU void few_add_bytes(float p[4], const i32 sum[4], i32 inputs, u32 zeros,
                       const struct weight_scales *s)
{
    i32 low = 128 * sum[0] + sum[1] - (i32)(zeros & 0xff) * inputs;
    i32 high = 128 * sum[2] + sum[3] - (i32)(zeros >> 8) * 16 * inputs;
    p[0] = fmaf(s->low, (float)low, p[0]);
    p[2] = fmaf(s->high * 0.0625f, (float)high, p[2]);
}

/* A batch of INT4 by one token onto the sums of the slice. */
template <typename F, u32 N>
GPU void few_compute_bytes(float (*p)[4], const struct few_batch<F, N> *b, u32 scale_type)
{
    const u32 ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
#pragma unroll
    for (u32 g = 0; g < F::groups; g++) {
        i32 sum[N][4] = {}, inputs[4] = {};
#pragma unroll
        for (u32 j = g * F::tiles / 2; j < (g + 1) * F::tiles / 2; j++) {
            const uint4 x = b->x[j / 2];
            const u32 fragment[2] = {j % 2 ? x.z : x.x, j % 2 ? x.w : x.y};
#pragma unroll
            for (u32 u = 0; u < N; u++) {
                const uint4 c = b->chunk[u][j / 2];
                u32 w = j % 2 ? c.z : c.x, v = j % 2 ? c.w : c.y;
                u32 a[4] = {w & 0x0f0f0f0f, w & 0xf0f0f0f0, v & 0x0f0f0f0f, v & 0xf0f0f0f0};
                gpu_mma_bytes(sum[u], a, fragment);
            }
            gpu_mma_bytes(inputs, ones, fragment);
        }
#pragma unroll
        for (u32 u = 0; u < N; u++) {
            struct weight_scales s =
                weight_scales_of(b->scale[u][g].x, b->scale[u][g].y, scale_type);
            few_add_bytes(p[u], sum[u], 128 * inputs[0] + inputs[1], b->zero[u][g], &s);
        }
    }
}

/* A batch onto the sums of the slice. Products that do not depend on one another stand side by
 * side. */
template <typename F, u32 N>
GPU void few_compute(float (*p)[4], const struct few_batch<F, N> *b, u32 scale_type)
{
    if constexpr (F::single) {
        few_compute_bytes<F, N>(p, b, scale_type);
    } else if constexpr (F::kind == MATRIX_HALF) {
#pragma unroll
        for (u32 tile = 0; tile < F::chunks; tile++)
            few_tile<F>(p[0], b->chunk[0], b->x, tile, NULL);
    } else {
        float sum[N][F::groups][F::chains][4] = {};
        struct weight_zero zero[N][F::groups];
#pragma unroll
        for (u32 u = 0; u < N; u++)
#pragma unroll
            for (u32 g = 0; g < F::groups; g++)
                zero[u][g] = weight_zero_of<F::kind>(b->zero[u][g]);
#pragma unroll
        for (u32 j = 0; j < F::tiles; j++)
#pragma unroll
            for (u32 i = 0; i < F::groups; i++)
#pragma unroll
                for (u32 u = 0; u < N; u++)
                    few_tile<F>(sum[u][i][j % F::chains], b->chunk[u], b->x, i * F::tiles + j,
                                &zero[u][i]);
#pragma unroll
        for (u32 i = 0; i < F::groups; i++)
#pragma unroll
            for (u32 u = 0; u < N; u++) {
                const uint2 *scale = &b->scale[u][i];
                struct weight_scales scales = weight_scales_of(scale->x, scale->y, scale_type);
#pragma unroll
                for (u32 e = 0; e < 4 && F::chains == 2; e++)
                    sum[u][i][0][e] += sum[u][i][1][e];
                weight_add(p[u], sum[u][i][0], &scales);
            }
    }
}

/* Where a warp is in its ring and in its inputs. */
struct few_place {
    u32 slot;
    const u8 *x; /* this lane's fragments of the slice */
};

/* This warp's slice of a turn of N units, onto p. */
template <typename F, u32 N>
GPU void few_slice(float (*p)[4], struct few_stream *s, struct few_place *place,
                   const struct few_sides *sides)
{
    const u8 *x = place->x;
#pragma unroll 1
    for (u32 left = s->batches; left; left--) {
        const u8 *mine = gpu_shared() + place->slot;
        few_wait<F>(s->part);
        struct few_batch<F, N> batch;
        few_load<F, N>(&batch, mine, sides, x);
        few_copy<F>(s);
        few_compute<F, N>(p, &batch, sides->type);
        place->slot = few_behind<F>(s, place->slot);
        x += F::inputs * 2;
    }
}

/* --- outputs ------------------------------------------------------------------------------- */

/* Leaves a warp's sums of a unit for those who add them up. */
GPU void few_leave(float *sums, const float p[4], u32 rows)
{
    u32 token = gpu_lane() % 4 * 2;
    float *to = sums + token * FEW_ROW_FLOATS + gpu_lane() / 4;
    if (token < rows) {
        to[0] = p[0];
        to[8] = p[2];
    }
    if (token + 1 < rows) {
        to[FEW_ROW_FLOATS] = p[1];
        to[FEW_ROW_FLOATS + 8] = p[3];
    }
}

/* Several turns that leave their sums before outputs are made of them. */
struct few_chunk {
    u32 first, units; /* of the matrix */
    u32 rows;
    u32 shift; /* a unit has 1 << shift outputs: 16; for OUTPUT_GATE 8, of its gate rows 0..7, with
                  the up row 8 below */
    u32 apart; /* floats from the sums of a warp to those of the next */
    const float *sums;
};

/* Output `i` of a chunk. */
struct few_output {
    float *y;
    u32 token, n; /* n: of the matrix */
    const float *sums;
    bool some; /* else there is none */
};

template <typename F>
GPU struct few_output few_output_of(const struct op_linear *op, u32 p, const struct few_chunk *c,
                                    u32 i)
{
    struct few_output o;
    u32 outputs = c->units << c->shift;
    o.token = 0;
    for (u32 row = 1; row < c->rows && i >= outputs; row++, i -= outputs)
        o.token = row;
    u32 unit = i >> c->shift, row = i - (unit << c->shift);
    o.n = (c->first + unit) * 16 + row;
    o.some = i < outputs && o.n < op->part[p].n;
    o.y =
        gpu_global(op->y) + (size_t)o.token * op->y_stride + op->at[p] + (c->first << c->shift) + i;
    o.sums = c->sums + unit / F::units * GPU_WARPS * c->apart +
             (unit % F::units * c->rows + o.token) * FEW_ROW_FLOATS + row;
    return o;
}

/* What a token's sums are multiplied by. */
struct few_row {
    float scale[MATRIX_SLICES], factor;
};

/* When the block has met behind the products. */
GPU struct few_row few_row_of(const struct input *in, const struct linear_slices *slices)
{
    struct few_row row;
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        row.scale[i] = slices->scale[i];
    row.factor = linear_factor_of(linear_how_of(in), slices);
    return row;
}

GPU float few_value(const struct matrix *m, u32 n, const float *sums, u32 apart,
                    const struct few_row *row)
{
    float sum = 0;
#pragma unroll
    for (u32 w = 0; w < GPU_WARPS; w++)
        sum = fmaf(sums[w * apart], row->scale[w], sum);
    if (m->kind == MATRIX_HALF)
        sum *= gpu_global((const float *)m->scales)[n];
    return m->bias ? fmaf(sum, row->factor, gpu_global(m->bias)[n]) : sum * row->factor;
}

GPU void few_finish(const struct op_linear *op, u32 p, const struct few_row *row,
                    const struct few_output *o, u32 apart, float old)
{
    const struct matrix *m = &op->part[p];
    float v = few_value(m, o->n, o->sums, apart, row);
    if (op->output == OUTPUT_GATE)
        v = linear_activate(v, op->activation) * few_value(m, o->n + 8, o->sums + 8, apart, row);
    else if (op->output == OUTPUT_ADD)
        v += old;
    if (op->softcap > 0)
        v = op->softcap * tanhf(v / op->softcap);
    *o->y = gpu_answer(v);
}

/* --- the operation ------------------------------------------------------------------------- */

/* N units a turn of those of a chunk from `first` on. */
template <typename F, u32 N>
GPU void few_turns(const struct few_chunk *c, u32 first, float *sums, struct few_stream *s,
                   struct few_place *place, const struct few_sides *sides)
{
    for (; first + N <= c->units; first += N) {
        float sum[N][4] = {};
        float *mine = sums + (first / F::units * GPU_WARPS + gpu_warp()) * c->apart;
        few_slice<F, N>(sum, s, place, sides);
#pragma unroll
        for (u32 u = 0; u < N; u++)
            few_leave(mine + u * c->rows * FEW_ROW_FLOATS, sum[u], c->rows);
    }
}

/* Part p of the operation, whose stream has begun. */
template <typename F>
GPU void few_part(const struct op_linear *op, u32 p, u32 rows, const struct few_stream *begun)
{
    const struct few_work work = few_work_of(rows, op->in.k);
    const struct matrix *m = &op->part[p];
    const struct few_sides sides = few_sides_of<F>(m);
    struct few_stream s = *begun;
    const u32 mine =
        F::single ? gpu_lane() % 8 * 16
                  : MIN(gpu_lane() / 4, rows - 1) * near_stride(op->in.k) + gpu_lane() % 4 * 16;
    struct few_place place = {s.from, work.fragments + mine + MIN(gpu_warp() * m->slice, m->k) * 2};
    struct few_chunk c;
    c.rows = rows;
    c.shift = op->output == OUTPUT_GATE ? 3 : 4;
    c.apart = F::units * rows * FEW_ROW_FLOATS;
    c.sums = work.sums;
    few_fill<F>(&s, ~0u);
    const u32 chunk = FEW_CHUNK_UNITS >> (32 - gpu_leading_zeros(rows - 1)); /* at most */
    for (u32 done = 0; done < s.units; done += c.units) {
        struct few_output o[FEW_FINISH];
        float old[FEW_FINISH];
        c.first = s.first + done;
        c.units = MIN(chunk, s.units - done);
#pragma unroll
        for (u32 i = 0; i < FEW_FINISH; i++) {
            o[i] = few_output_of<F>(op, p, &c, gpu_thread() + i * GPU_THREADS);
            old[i] = o[i].some && op->output == OUTPUT_ADD ? *o[i].y : 0;
        }
        few_turns<F, F::units>(&c, 0, work.sums, &s, &place, &sides);
        if (c.units % F::units)
            few_turns<F, 1>(&c, c.units - 1, work.sums, &s, &place, &sides);
        gpu_sync();
#pragma unroll
        for (u32 i = 0; i < FEW_FINISH; i++)
            if (o[i].some) {
                const struct few_row row = few_row_of(&op->in, &work.slices[o[i].token]);
                few_finish(op, p, &row, &o[i], c.apart, old[i]);
            }
        if (done + c.units < s.units)
            gpu_sync();
    }
    if (p + 1 < op->parts) /* others use the sums */
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
                        const struct gpu_run *run)
{
#define FEW_BEGIN(...) few_begin<__VA_ARGS__>(s, &op->part[p], run)
    FEW_WITH_FORM(&op->part[p], FEW_BEGIN)
}

/* What of an operation begins before the blocks have met. */
struct few_begun {
    struct few_stream stream; /* of its first part */
    struct near_ahead input;
};

GPU void few_begin_op(struct few_begun *b, const struct op_linear *op, const struct gpu_run *run)
{
    if (linear_rows(&op->in, run->step) == 0)
        return;
    few_begin_part(&b->stream, op, 0, run);
    b->input = near_look_ahead(&op->in, run->step);
}

/* So many more batches of an operation that has begun. */
GPU void few_fill_op(struct few_begun *b, const struct op_linear *op, u32 n)
{
    if (!b->stream.part) /* no rows */
        return;
#define FEW_FILL(...) few_fill<__VA_ARGS__>(&b->stream, n)
    FEW_WITH_FORM(&op->part[0], FEW_FILL)
}

/* The operation, which has begun. meanwhile: what else can begin while its input is on its way. */
template <class task>
GPU void few_run(const struct op_linear *op, const struct gpu_run *run, struct few_begun *begun,
                 task meanwhile)
{
    struct few_stream *stream = &begun->stream;
    const bool one = begun->input.way != NEAR_ANY;
    u32 rows = one ? 1 : linear_rows(&op->in, run->step);
    struct few_work work = few_work_of(rows, op->in.k);
    meanwhile();
    few_fill_op(begun, op, FEW_SECOND_WAVE);
    if (one)
        near_prepare_one<false>(&op->in, &begun->input, work.fragments, work.slices, NULL);
    else
        near_prepare(&op->in, run->step, work.fragments, work.slices);
    for (u32 p = 0; p < op->parts; p++) {
        if (p)
            few_begin_part(stream, op, p, run);
        const struct matrix *m = &op->part[p];
#define FEW_PART(...) few_part<__VA_ARGS__>(op, p, rows, stream)
        if (one && m->kind == MATRIX_INT4 && m->group == 128) {
            FEW_PART(few_form<MATRIX_INT4, false, true>);
        } else if (one && m->kind == MATRIX_INT4) {
            FEW_PART(few_form<MATRIX_INT4, true, true>);
        } else {
            FEW_WITH_FORM(m, FEW_PART)
        }
    }
}

#endif
