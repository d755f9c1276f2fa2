/* Plain f32, f16 and bf16 matrices in place: rows of the matrix times rows of f32 activations. Each
 * output is 16 partial sums (k modulo 16), folded in halves, on every instruction set alike. Sets
 * with vectors of one width share one of these.
 */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/simd.h"

#if (defined(SET_AVX2) && defined(__AVX2__)) || (defined(SET_AVX512) && defined(__AVX512F__)) || \
    (defined(SET_NEON) && defined(__ARM_NEON)) /* empty on other architectures */

#include "kernels/cpu/stored.h"

enum {
    PLAIN_LANES = 16,
    PLAIN_VECTORS = PLAIN_LANES / VW,
    PLAIN_ONE = PLAIN_VECTORS == 1 ? 8 : 4,  /* outputs at once for one row of activations */
    PLAIN_MANY = PLAIN_VECTORS == 1 ? 4 : 2, /* outputs, and rows of activations, at once */
    PLAIN_CHUNK = 64,                        /* rows of activations that stay in L2 */
    PLAIN_PREFETCH_BYTES = 1024
};

struct plain {
    const struct weight *w;
    const float *x;
    u32 x_stride;
    float *y;
    u32 y_stride;
};

static inline float plain_fold(const vf *sum)
{
    float t[PLAIN_LANES];
    for (u32 v = 0; v < PLAIN_VECTORS; v++)
        v_store(t + v * VW, sum[v]);
    for (u32 half = PLAIN_LANES / 2; half; half /= 2)
        for (u32 i = 0; i < half; i++)
            t[i] += t[i + half];
    return t[0];
}

/* The last k % PLAIN_LANES features of one output, padded with zeros. */
static void plain_rest(const u8 *w, const float *x, enum dtype type, u32 n, vf *sum)
{
    float wt[PLAIN_LANES] = {0}, xt[PLAIN_LANES] = {0};
    for (u32 i = 0; i < n; i++) {
        wt[i] = half_load(w, type, i);
        xt[i] = x[i];
    }
    for (u32 v = 0; v < PLAIN_VECTORS && n; v++)
        sum[v] = v_fma(v_load(wt + v * VW), v_load(xt + v * VW), sum[v]);
}

/* Outputs [n, n + ns) of rows [m, m + ms). Sum d = (output * ms + row) * PLAIN_VECTORS + vector. */
INLINE void plain_tile(const struct plain *p, u32 n, u32 ns, u32 m, u32 ms, enum dtype type)
{
    u32 k = p->w->k, whole = k / PLAIN_LANES * PLAIN_LANES, size = type == DTYPE_F32 ? 4 : 2;
    size_t row = (size_t)k * size;
    const u8 *w = (const u8 *)p->w->data + n * row;
    const float *x = p->x + (size_t)m * p->x_stride;
    vf sum[16];
    EACH(d, ns * ms * PLAIN_VECTORS, sum[d] = v_zero();)
    for (u32 at = 0; at < whole; at += PLAIN_LANES) {
        if (ms == 1) { /* past the end of these rows the next ones begin */
            size_t ahead = (size_t)at * size + PLAIN_PREFETCH_BYTES;
            const u8 *next = w + (ahead < row ? ahead : ahead + (ns - 1) * row);
            EACH(j, ns, __builtin_prefetch(next + j * row);)
        }
        EACH(d, ns * ms * PLAIN_VECTORS, u32 here = at + d % PLAIN_VECTORS * VW,
             i = d / PLAIN_VECTORS % ms;
             vf wv = v_load_as(w + d / PLAIN_VECTORS / ms * row + here * size, type);
             sum[d] = v_fma(wv, v_load(x + (size_t)i * p->x_stride + here), sum[d]);)
    }
    vf sums[16];
    EACH(d, ns * ms * PLAIN_VECTORS, sums[d] = sum[d];)
    for (u32 j = 0; j < ns; j++)
        for (u32 i = 0; i < ms; i++) {
            vf *mine = sums + (j * ms + i) * PLAIN_VECTORS;
            plain_rest(w + j * row + whole * size, x + (size_t)i * p->x_stride + whole, type,
                       k - whole, mine);
            p->y[(size_t)(m + i) * p->y_stride + n + j] =
                plain_fold(mine) + stored_bias(p->w, n + j);
        }
}

/* Rows [m0, m1). */
INLINE void plain_rows(const struct plain *p, u32 n0, u32 n1, u32 m0, u32 m1, enum dtype type)
{
    u32 n = n0;
    if (m1 - m0 == 1)
        for (; n + PLAIN_ONE <= n1; n += PLAIN_ONE)
            plain_tile(p, n, PLAIN_ONE, m0, 1, type);
    for (; n + PLAIN_MANY <= n1; n += PLAIN_MANY) {
        u32 m = m0;
        for (; m + PLAIN_MANY <= m1; m += PLAIN_MANY)
            plain_tile(p, n, PLAIN_MANY, m, PLAIN_MANY, type);
        for (; m < m1; m++)
            plain_tile(p, n, PLAIN_MANY, m, 1, type);
    }
    for (; n < n1; n++)
        for (u32 m = m0; m < m1; m++)
            plain_tile(p, n, 1, m, 1, type);
}

void LINEAR_PLAIN(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                  u32 n0, u32 n1)
{
    struct plain p = {w->w, a->x, a->x_stride, y, y_stride};
    for (u32 m0 = 0; m0 < a->m; m0 += PLAIN_CHUNK) {
        u32 m1 = MIN(m0 + PLAIN_CHUNK, a->m);
        if (w->w->type == DTYPE_F16)
            plain_rows(&p, n0, n1, m0, m1, DTYPE_F16);
        else if (w->w->type == DTYPE_BF16)
            plain_rows(&p, n0, n1, m0, m1, DTYPE_BF16);
        else
            plain_rows(&p, n0, n1, m0, m1, DTYPE_F32);
    }
}

#endif
