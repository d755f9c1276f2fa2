/* The loop nest that every SIMD set runs over a packed matrix, included by linear_int8.c and
 * linear_f32.c after their struct block function. Rows of activations in chunks of ROWS_MAX, tiles
 * of output features in panels, and for each block of at most ACT_BLOCK input features
 *
 *     acc[row][feature] = fma(sum of the block, scale, acc[row][feature])
 *
 * in order of k, so an output element's bits depend on nothing else. The accumulators stay in L1.
 * A panel is one tile where a tile's bytes follow each other; where the matrix is used in place
 * and few rows share the accumulators, it is as wide as they allow, so that a block reads long
 * runs of every row of the file.
 */
#ifndef ZIGCUDA_LINEAR_FRAME_H
#define ZIGCUDA_LINEAR_FRAME_H

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_pack.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/stored.h"

enum { ROWS_MAX = 64 };

/* One block of one tile. */
struct block {
    const u8 *words;  /* rows of TILE_N words */
    size_t row;       /* bytes between them */
    u32 index, k0, k; /* block number, first input feature, input features (a multiple of UNIT_K) */
    u32 bits;
    const float *scale; /* [TILE_N] */
    const u8 *zero;     /* [TILE_N] */
    u32 i0, rows;       /* rows of the activations */
    float *acc;         /* [rows][TILE_N] */
    void *buffer;       /* BUFFER_BYTES of scratch */
};

static void run_block(const struct packed *p, const struct activations *a, const struct block *b);

struct frame_scratch {
    float acc[ROWS_MAX * TILE_N];
    float scale[TILE_N];
    u8 zero[TILE_N];
    u8 buffer[];
};

static inline vf frame_load(const void *p, enum dtype type)
{
    return type == DTYPE_F16 ? v_load_f16(p) : type == DTYPE_BF16 ? v_load_bf16(p) : v_load(p);
}

static void frame_load_scales(const struct packed *p, u32 tile, u32 group, float out[TILE_N])
{
    enum dtype type = p->w->scale_type;
    u32 size = type == DTYPE_F32 ? 4 : 2;
    const u8 *from = p->scales + tile * p->scales_tile + group * p->scales_row;
    for (u32 c = 0; c < TILE_N; c += VW)
        v_store(out + c, frame_load((const void *)(from + (size_t)c * size), type));
}

typedef u8 bytes16 __attribute__((vector_size(16)));

static void frame_load_zeros(const struct packed *p, u32 tile, u32 group, u8 out[TILE_N])
{
    u32 bits = p->w->bits;
    if (!p->zeros) {
        memset(out, 1 << (bits - 1), TILE_N);
        return;
    }
    const u8 *from = p->zeros + tile * p->zeros_tile + group * p->zeros_row;
    for (u32 c = 0; c < TILE_N; c += 32) {
        bytes16 low, high;
        memcpy(&low, from + (size_t)c * bits / 8, 16);
        if (bits == 4) {
            bytes16 even = low & 15, odd = low >> 4;
            low = __builtin_shuffle(
                even, odd, (bytes16){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
            high = __builtin_shuffle(
                even, odd, (bytes16){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
        } else {
            memcpy(&high, from + c + 16, 16);
        }
        if (p->plus_one) {
            low = (low + 1) & (u8)((1u << bits) - 1);
            high = (high + 1) & (u8)((1u << bits) - 1);
        }
        memcpy(out + c, &low, 16);
        memcpy(out + c + 16, &high, 16);
    }
}

static void frame_finish(const struct packed *p, const float *acc, u32 rows, u32 n0, float *y,
                         u32 y_stride)
{
    const struct weight *w = p->w;
    u32 count = MIN(TILE_N, w->n - n0);
    float bias[TILE_N] = {0};
    if (w->bias)
        for (u32 c = 0; c < count; c++)
            bias[c] = half_load(w->bias, w->bias_type, n0 + c);
    for (u32 i = 0; i < rows; i++) {
        float *to = y + (size_t)i * y_stride + n0;
        const float *from = acc + (size_t)i * TILE_N;
        if (!w->bias)
            memcpy(to, from, count * sizeof(float));
        else
            for (u32 c = 0; c < count; c++)
                to[c] = from[c] + bias[c];
    }
}

/* Tiles [t, t + tiles) of rows [i0, i0 + rows): every block of k, then the results. */
static void frame_panel(const struct packed *p, const struct activations *a, u32 t, u32 tiles,
                        u32 i0, u32 rows, float *y, u32 y_stride, struct frame_scratch *s)
{
    u32 per = 32 / p->w->bits;
    memset(s->acc, 0, sizeof(float) * tiles * rows * TILE_N);
    for (u32 k0 = 0, index = 0; k0 < p->k; k0 += p->block, index++) {
        struct block b = {
            .row = p->data_row,
            .index = index,
            .k0 = k0,
            .k = MIN(p->block, p->k - k0),
            .bits = p->w->bits,
            .scale = s->scale,
            .zero = s->zero,
            .i0 = i0,
            .rows = rows,
            .buffer = s->buffer,
        };
        for (u32 at = 0; at < tiles; at++) {
            b.words = p->data + (t + at) * p->data_tile + k0 / per * p->data_row;
            b.acc = s->acc + (size_t)at * rows * TILE_N;
            frame_load_scales(p, t + at, k0 / p->group, s->scale);
            frame_load_zeros(p, t + at, k0 / p->group, s->zero);
            run_block(p, a, &b);
        }
    }
    for (u32 at = 0; at < tiles; at++)
        frame_finish(p, s->acc + (size_t)at * rows * TILE_N, rows, (t + at) * TILE_N,
                     y + (size_t)i0 * y_stride, y_stride);
}

static void frame_matmul(const struct packed *p, const struct activations *a, float *y,
                         u32 y_stride, u32 n0, u32 n1, void *scratch)
{
    u32 t1 = CEIL_DIV(n1, TILE_N);
    bool in_place = p->data == p->w->data;
    for (u32 i0 = 0; i0 < a->m; i0 += ROWS_MAX) {
        u32 rows = MIN(ROWS_MAX, a->m - i0), panel = in_place ? ROWS_MAX / rows : 1;
        for (u32 t = n0 / TILE_N; t < t1; t += panel)
            frame_panel(p, a, t, MIN(panel, t1 - t), i0, rows, y, y_stride, scratch);
    }
}

#endif
