/* The loop nest that every SIMD set runs over a packed matrix, included by linear_int8.c and
 * linear_f32.c, which define run_block. Rows of activations in chunks of ROWS_MAX, tiles of output
 * features, and for each block of at most ACT_BLOCK input features
 *
 *     acc[row][feature] = fma(sum of the block, scale, acc[row][feature])
 *
 * in order of k, so an output element's bits depend on nothing else. The accumulators stay in L1.
 */
#ifndef ZIGCUDA_LINEAR_FRAME_H
#define ZIGCUDA_LINEAR_FRAME_H

#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_pack.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/stored.h"

enum { ROWS_MAX = 64, ROW_BYTES = TILE_N * 4 };

/* One block of one tile. */
struct block {
    const u8 *words;  /* rows of TILE_N words */
    size_t row;       /* bytes between them */
    u32 index, k0, k; /* block number, first input feature, input features (a multiple of UNIT_K) */
    u32 bits;
    bool fp4;           /* fields are nibbles of MXFP4, to be looked up */
    const float *scale; /* [TILE_N] */
    const u8 *zero;     /* [TILE_N] */
    u32 i0, rows;       /* rows of the activations */
    float *acc;         /* [rows][TILE_N] */
    void *buffer;       /* BUFFER_BYTES of scratch */
};

/* Sixteen fields by their nibbles, in each 16 bytes of a vector. */
static inline vi fp4_table(void)
{
    u8 fields[16];
    for (u32 i = 0; i < 16; i++)
        fields[i] = (u8)mxfp4_field(i);
    return vi_load_each16(fields);
}

static void run_block(const struct packed *p, const struct activations *a, const struct block *b);

struct frame_scratch {
    float acc[ROWS_MAX * TILE_N];
    float scale[TILE_N];
    u8 zero[TILE_N];
    u8 buffer[];
};

static void frame_load_head(const struct packed *p, const u8 *group, struct frame_scratch *s)
{
    enum dtype type = p->w->scale_type;
    u32 size = (u32)dtype_bytes(type);
    for (u32 c = 0; c < TILE_N; c += VW)
        v_store(s->scale + c, type == DTYPE_E8M0 ? v_mul(v_load_e8m0(group + c), v_set1(0.5f))
                                                 : v_load_as(group + (size_t)c * size, type));
    if (p->w->kind == WEIGHT_MXFP4)
        memset(s->zero, MXFP4_ZERO, TILE_N);
    else if (p->w->zeros)
        memcpy(s->zero, group + (size_t)TILE_N * size, TILE_N);
    else
        memset(s->zero, 1 << (p->w->bits - 1), TILE_N);
}

static void frame_finish(const struct packed *p, const float *acc, u32 rows, u32 n0, float *y,
                         u32 y_stride)
{
    const struct weight *w = p->w;
    u32 count = MIN(TILE_N, w->n - n0);
    float bias[TILE_N] = {0};
    if (w->bias)
        for (u32 c = 0; c < count; c++)
            bias[c] = stored_bias(w, n0 + c);
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

/* Tile t of rows [i0, i0 + rows): every block of k, then the results. */
static void frame_tile(const struct packed *p, const struct activations *a, u32 t, u32 i0, u32 rows,
                       float *y, u32 y_stride, struct frame_scratch *s)
{
    memset(s->acc, 0, sizeof(float) * rows * TILE_N);
    const u8 *at = p->data + t * p->tile_bytes;
    for (u32 k0 = 0, index = 0; k0 < p->k; k0 += p->block, index++) {
        if (k0 % p->group == 0) {
            frame_load_head(p, at, s);
            at += p->head_bytes;
        }
        struct block b = {.words = at,
                          .index = index,
                          .k0 = k0,
                          .k = MIN(p->block, p->k - k0),
                          .bits = p->w->bits,
                          .fp4 = p->w->kind == WEIGHT_MXFP4,
                          .scale = s->scale,
                          .zero = s->zero,
                          .i0 = i0,
                          .rows = rows,
                          .acc = s->acc,
                          .buffer = s->buffer};
        run_block(p, a, &b);
        at += (size_t)b.k * b.bits / 8 * TILE_N;
    }
    frame_finish(p, s->acc, rows, t * TILE_N, y + (size_t)i0 * y_stride, y_stride);
}

static void frame_matmul(const struct packed *p, const struct activations *a, float *y,
                         u32 y_stride, u32 n0, u32 n1, void *scratch)
{
    for (u32 i0 = 0; i0 < a->m; i0 += ROWS_MAX)
        for (u32 t = n0 / TILE_N; t < CEIL_DIV(n1, TILE_N); t++)
            frame_tile(p, a, t, i0, MIN(ROWS_MAX, a->m - i0), y, y_stride, scratch);
}

#endif
