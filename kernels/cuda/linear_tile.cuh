/* Sums of a tile of outputs by tokens, as linear_many.cuh and linear_wide.cuh have them in
 * registers: between slices, on their way to another block, and as outputs. `shape` says how: m
 * tiles of 16 outputs by n of 8 tokens a warp, in the places that gpu_mma says; `across` warps side
 * by side along the tokens; `apart` blocks of 16 outputs from a warp's tile to its next, 1 or,
 * where four warps multiply as one, 4; floats of all threads; `head` bytes of shared memory in
 * front of parked sums.
 */
#ifndef ZIGCUDA_LINEAR_TILE_CUH
#define ZIGCUDA_LINEAR_TILE_CUH

#include "kernels/cuda/linear_weight.cuh"

/* Slices [slice, slice_end) of a tile. */
struct tile_item {
    u32 part, tile;   /* tile: of all parts */
    u32 block, token; /* first block of 16 outputs of the part, first token */
    u32 slice, slice_end;
    u32 rows, end; /* tokens end there; and blocks, where not with the part */
    size_t back;   /* of experts: what y has of it lies so far in front of its place */
};

/* The packed inputs where a slice begins. */
GPU u32 tile_slice_at(const struct matrix *m, u32 slice)
{
    return MIN(slice * m->slice, m->k);
}

/* What a thread sums: of its warp's outputs and tokens, in the places that gpu_mma says. */
template <class shape> struct tile_sums {
    float v[shape::m][shape::n][4];
};

template <class shape> GPU void tile_clear(struct tile_sums<shape> *s)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i][j][e] = 0;
}

/* What a slice's sums are multiplied by, by this lane's tokens. */
template <class shape> struct tile_scales {
    float v[shape::n][2];
};

/* scale: of the slice, of all tokens, `stride` apart; token: this lane's first. */
template <class shape>
GPU struct tile_scales<shape> tile_load_scales(const float *scale, u32 stride, u32 token) {
    struct tile_scales<shape> s;
#pragma unroll
    for (u32 j = 0; j < shape::n * 2; j++)
        s.v[j / 2][j % 2] = scale[token * stride + (j / 2 * 8 + j % 2) * stride];
    return s;
}

/* First block of 16 outputs, and of 8 tokens, of this warp in a tile. */
template <class shape>
GPU u32 tile_warp_block(void)
{
    return shape::apart == 1 ? gpu_warp() / shape::across * shape::m
                             : gpu_warp() / 4 * 4 * shape::m + gpu_warp() % 4;
}
template <class shape> GPU u32 tile_warp_octet(void)
{
    return gpu_warp() % shape::across * shape::n;
}

/* Outputs from tile 0 to row i % 2 * 8 of tile i / 2 of this lane. */
template <class shape> GPU constexpr u32 tile_row(u32 i)
{
    return i / 2 * 16 * shape::apart + i % 2 * 8;
}

/* --- outputs ------------------------------------------------------------------------------- */

/* Sums to values: times the row's factor, with their bias. A missing bias is -0, which changes
 * nothing. */
template <class shape>
GPU void tile_scale(struct tile_sums<shape> *s, const struct matrix *m, const float *row_factor,
                    u32 rows, u32 n, u32 token)
{
    float factor[shape::m][2], bias[shape::m][2], scale[shape::n][2];
#pragma unroll
    for (u32 i = 0; i < shape::m * 2; i++) {
        u32 row = MIN(n + tile_row<shape>(i), m->n - 1);
        factor[i / 2][i % 2] = shape::kind == MATRIX_HALF ? ((const float *)m->scales)[row] : 1;
        bias[i / 2][i % 2] = m->bias ? m->bias[row] : -0.0f;
    }
#pragma unroll
    for (u32 j = 0; j < shape::n * 2; j++)
        scale[j / 2][j % 2] = row_factor[MIN(token + j / 2 * 8 + j % 2, rows - 1)];
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i][j][e] =
                    fmaf(s->v[i][j][e] * factor[i][e / 2], scale[j][e % 2], bias[i][e / 2]);
}

/* Gates and softcaps, in a loop over what stands in front, since their code is long: after as many
 * turns as there are places all stand where they stood. Registers have no index. */
template <class shape, bool experts>
GPU void tile_bend(struct tile_sums<shape> *s, bool gate, u32 activation, float softcap)
{
    const u32 count = shape::m * shape::n;
#pragma unroll 1
    for (u32 turn = 0; turn < count; turn++) {
        float v[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++)
            v[e] = s->v[0][0][e];
#pragma unroll 1
        for (u32 e = 0; e < (gate ? 2 : 4); e++) {
            float bent = gate ? linear_gate<experts>(v[0], v[2], activation)
                              : softcap * tanhf(v[0] / softcap);
            float next[4] = {v[1], v[2], v[3], bent};
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                v[i] = next[i];
        }
#pragma unroll
        for (u32 i = 0; i + 1 < count; i++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                s->v[i / shape::n][i % shape::n][e] =
                    s->v[(i + 1) / shape::n][(i + 1) % shape::n][e];
#pragma unroll
        for (u32 e = 0; e < 4; e++) /* two turns of a gate leave its values in places 2 and 3 */
            s->v[shape::m - 1][shape::n - 1][e] = gate ? v[(e + 2) % 4] : v[e];
    }
}

/* Gates with silu, all of them side by side. Values are in places 0 and 1. */
template <class shape> GPU void tile_silu(struct tile_sums<shape> *s)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 2; e++)
                s->v[i][j][e] = linear_activate(s->v[i][j][e], ACT_SILU) * s->v[i][j][e + 2];
}

/* What y has, of so many places, which are loaded at once: of 8 tokens each from number `first` on.
 * n: this lane's first row, of the part; tokens: how many from its first one on; y: of both. */
template <class shape> struct tile_old {
    static constexpr u32 many = shape::n > 8 ? 8 : shape::n, count = shape::m * 4;
    float v[many][count];
};

template <class shape>
GPU void tile_load_old(struct tile_old<shape> *old, const float *y, u32 stride, u32 columns, u32 n,
                       u32 tokens, u32 first)
{
    constexpr u32 many = tile_old<shape>::many, count = tile_old<shape>::count;
#pragma unroll
    for (u32 i = 0; i < many * count; i++) {
        u32 row = tile_row<shape>(i % count / 2), token = (first + i / count) * 8 + i % 2;
        if (token < tokens && n + row < columns)
            old->v[i / count][i % count] = y[(size_t)token * stride + row];
    }
}

/* The same of unit `unit` of 16 outputs of a part and this lane's tokens from `token` on, if it is
 * wanted: asked for together with sums of slices, or ahead. */
template <class small>
GPU void tile_ask_old(struct tile_old<small> *old, const struct op_linear *op, u32 part, u32 unit,
                      u32 token, u32 rows)
{
    const u32 row = unit * 16 + gpu_lane() / 4;
    *old = {};
    if (op->output == OUTPUT_ADD)
        tile_load_old<small>(old, op->old + (size_t)token * op->y_stride + op->at[part] + row,
                             op->y_stride, op->part[part].n, row, rows - MIN(token, rows), 0);
}

/* from: what is added; of y's stride. had: the same, where it is known. awaited: y may be. */
template <class shape, bool awaited>
GPU void tile_put(const struct tile_sums<shape> *s, float *y, const float *from, u32 stride,
                  bool add, u32 columns, u32 n, u32 tokens, const struct tile_old<shape> *had)
{
    constexpr u32 many = tile_old<shape>::many, count = tile_old<shape>::count;
#pragma unroll
    for (u32 first = 0; first < shape::n; first += many) {
        struct tile_old<shape> old = {
        };
        if (had)
            old = *had;
        else if (add)
            tile_load_old(&old, from, stride, columns, n, tokens, first);
#pragma unroll
        for (u32 i = 0; i < many * count; i++) {
            u32 row = tile_row<shape>(i % count / 2), token = (first + i / count) * 8 + i % 2;
            float v = s->v[i % count / 4][first + i / count][i % 4];
            v = add ? v + old.v[i / count][i % count] : v;
            if (token < tokens && n + row < columns)
                y[(size_t)token * stride + row] = awaited ? gpu_answer(v) : v;
        }
    }
}

/* The same for gates: 8 columns a block of 16 outputs. */
template <class shape, bool awaited>
GPU void tile_put_gates(const struct tile_sums<shape> *s, float *y, u32 stride, u32 blocks,
                        u32 tokens)
{
#pragma unroll
    for (u32 j = 0; j < shape::n; j++)
#pragma unroll
        for (u32 e = 0; e < 2; e++) {
            u32 token = j * 8 + e;
#pragma unroll
            for (u32 i = 0; i < shape::m; i++)
                if (token < tokens && i * shape::apart < blocks)
                    y[(size_t)token * stride + i * shape::apart * 8] =
                        awaited ? gpu_answer(s->v[i][j][e]) : s->v[i][j][e];
        }
}

/* Puts out a warp's tiles: from `block` of 16 outputs of a part, below `end`, and this lane's first
 * token, on. had: see tile_put. row_factor: those of all tokens, where they are at hand. back: see
 * tile_item. awaited: y may be. experts: see linear_gate.
 */
template <class shape, bool awaited = false, bool experts = false>
GPU void tile_store(const struct op_linear *op, u32 part, u32 block, u32 token, u32 rows,
                    struct tile_sums<shape> *s, u32 end = ~0u,
                    const struct tile_old<shape> *had = NULL, const float *row_factor = NULL,
                    size_t back = 0)
{
    struct matrix m = op->part[part];
    bool gate = op->output == OUTPUT_GATE;
    u32 row = gpu_lane() / 4, all = MIN(CEIL_DIV(m.n, 16), end), columns = MIN(m.n, all * 16);
    u32 blocks = all - MIN(block, all), tokens = rows - MIN(token, rows);
    tile_scale<shape>(s, &m, row_factor ? row_factor : op->in.prepared_factor, rows,
                      block * 16 + row, token);
    if (gate && op->activation == ACT_SILU)
        tile_silu<shape>(s);
    else if (gate || op->softcap > 0)
        tile_bend<shape, experts>(s, gate, op->activation, op->softcap);
    const size_t at = (size_t)token * op->y_stride + op->at[part] + row - back;
    float *y = op->y + at;
    if (gate)
        tile_put_gates<shape, awaited>(s, y + block * 8, op->y_stride, blocks, tokens);
    else
        tile_put<shape, awaited>(s, y + block * 16,
                                 (awaited && op->old ? op->old + at : y) + block * 16, op->y_stride,
                                 op->output == OUTPUT_ADD, columns, block * 16 + row, tokens, had);
}

/* This lane's first token of a tile's. */
template <class shape> GPU u32 tile_token(u32 first)
{
    return first + tile_warp_octet<shape>() * 8 + gpu_lane() % 4 * 2;
}

/* Those of a slice of a tile, as prepared. */
template <class shape>
GPU struct tile_scales<shape> tile_scales_of(const struct op_linear *op, u32 slice, u32 token) {
    return tile_load_scales<shape>(op->in.prepared_scale + slice, MATRIX_SLICES,
                                   tile_token<shape>(token));
}

/* tile_store of an item. */
template <class shape, bool experts = false>
GPU void tile_store_item(const struct op_linear *op, const struct tile_item it,
                         struct tile_sums<shape> *s)
{
    tile_store<shape, false, experts>(op, it.part, it.block + tile_warp_block<shape>(),
                                      tile_token<shape>(it.token), it.rows, s, it.end, NULL, NULL,
                                      it.back);
}

/* --- sums of slices that several blocks made ----------------------------------------------- */

GPU float4 *tile_partial(const struct op_linear *op, u32 tile, u32 slice, u32 floats)
{
    return (float4 *)(op->partial + ((size_t)tile * MATRIX_SLICES + slice) * floats) + gpu_thread();
}

template <class shape>
GPU void tile_leave(const struct op_linear *op, u32 tile, u32 slice,
                    const struct tile_sums<shape> *p)
{
    float4 *to = tile_partial(op, tile, slice, shape::floats);
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++) {
            const float *v = p->v[i][j];
            float4 four = {v[0], v[1], v[2], v[3]};
            to[(i * shape::n + j) * GPU_THREADS] = four;
        }
}

/* total += p, scaled; of 8 tokens: two of this lane's. */
GPU void tile_join(float4 *total, const float p[4], float scale, float next_scale)
{
    total->x = fmaf(p[0], scale, total->x);
    total->y = fmaf(p[1], next_scale, total->y);
    total->z = fmaf(p[2], scale, total->z);
    total->w = fmaf(p[3], next_scale, total->w);
}

/* The thread's place in shared memory for sums that are parked: those of a warp's tile i. */
template <class shape> GPU float4 *tile_parked(u32 i)
{
    return (float4 *)(gpu_shared() + shape::head) + i * GPU_THREADS + gpu_thread();
}

/* Parked sums, left for another block, and taken. */
template <class shape> GPU void tile_leave_parked(float4 *to)
{
#pragma unroll 2
    for (u32 i = 0; i < shape::m * shape::n; i++)
        to[i * GPU_THREADS] = *tile_parked<shape>(i);
}

template <class shape> GPU void tile_take_parked(const float4 *from)
{
#pragma unroll 2
    for (u32 i = 0; i < shape::m * shape::n; i++)
        *tile_parked<shape>(i) = from[i * GPU_THREADS];
}

/* This block's sums of so many slices of a tile are there, when it has met here. */
GPU void tile_tell(u32 *arrived, u32 slices)
{
    gpu_sync();
    if (gpu_thread() == 0)
        gpu_add_release(arrived, slices);
}

/* Waits for those of all slices, as each of so many blocks does; the counter is 0 when all have
 * seen it. */
GPU void tile_await(u32 *arrived, u32 sharers)
{
    if (gpu_thread() == 0) {
        while (gpu_load_acquire(arrived) < MATRIX_SLICES)
            gpu_pause();
        gpu_count_around(arrived, MATRIX_SLICES - 1 + sharers);
    }
    gpu_sync();
}

/* What a warp adds up at a time: 16 outputs by 8 tokens. */
template <u32 KIND> struct tile_small {
    static constexpr u32 kind = KIND, m = 1, n = 1, apart = 1;
};

/* Of all slices, `apart` from one to the next. done: so many of them have been added up, to what
 * stands in the first one's place. */
GPU void tile_load_all(float4 p[MATRIX_SLICES], const float4 *from, u32 apart, u32 done = 0)
{
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++)
        p[i] = from[(i < done ? 0 : i) * apart]; /* the first one's is at hand then */
}

/* All slices of 16 outputs by 8 tokens, in order. scale: of slice 0 and this lane's first token;
 * `slice` and `next` floats on are those of the next slice, the next token. done: as above. */
template <class small>
GPU void tile_join_all(struct tile_sums<small> *sum, const float4 p[MATRIX_SLICES],
                       const float *scale, u32 slice, u32 next, u32 done = 0)
{
    float4 total = done ? p[0] : (float4){0, 0, 0, 0};
    float s[MATRIX_SLICES][2];
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++) {
        s[i][0] = scale[i * slice];
        s[i][1] = scale[i * slice + next];
    }
#pragma unroll
    for (u32 i = 0; i < MATRIX_SLICES; i++) {
        const float v[4] = {p[i].x, p[i].y, p[i].z, p[i].w};
        if (i >= done)
            tile_join(&total, v, s[i][0], s[i][1]);
    }
    float *v = sum->v[0][0];
    v[0] = total.x, v[1] = total.y, v[2] = total.z, v[3] = total.w;
}

/* --- sums of slices that one block made ---------------------------------------------------- */

template <class shape>
GPU void tile_add(struct tile_sums<shape> *total, const struct tile_sums<shape> *p,
                  const struct tile_scales<shape> &scales)
{
#pragma unroll
    for (u32 i = 0; i < shape::m; i++)
#pragma unroll
        for (u32 j = 0; j < shape::n; j++)
#pragma unroll
            for (u32 e = 0; e < 4; e++)
                total->v[i][j][e] = fmaf(p->v[i][j][e], scales.v[j][e % 2], total->v[i][j][e]);
}

/* The same addition with parked sums; `first`: they are none yet. */
template <class shape>
GPU void tile_park(const struct tile_sums<shape> *p, const struct tile_scales<shape> &scales,
                   bool first)
{
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        const float *s = scales.v[i % shape::n];
        float4 four = {0, 0, 0, 0};
        if (!first)
            four = *tile_parked<shape>(i);
        tile_join(&four, p->v[i / shape::n][i % shape::n], s[0], s[1]);
        *tile_parked<shape>(i) = four;
    }
}

template <class shape> GPU void tile_unpark(struct tile_sums<shape> *p)
{
#pragma unroll
    for (u32 i = 0; i < shape::m * shape::n; i++) {
        float *v = p->v[i / shape::n][i % shape::n];
        float4 four = *tile_parked<shape>(i);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    }
}

#endif
