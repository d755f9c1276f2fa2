/* The vector kernels, written once on the lanes of simd.h and compiled for AVX-512, AVX2 and NEON.
 * Sums run over a fixed set of lanes that depends on the length alone, and every product is an
 * explicit fma, so that a row's bits are the same however rows are grouped into calls.
 *
 * exp is 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], tanh a polynomial near 0 and exp
 * elsewhere; both with the coefficients of Moshier's Cephes library. Largest errors against libm,
 * held by tests/ops/vector.c: silu 4e-7 relative, tanh 5e-7 relative.
 */
#include "kernels/cpu/vector.h"

#if (defined(SET_AVX512) && defined(__AVX512F__)) || (defined(SET_AVX2) && defined(__AVX2__)) || \
    (defined(SET_NEON) && defined(__ARM_NEON))

#include "core/base/half.h"
#include "kernels/cpu/read.h"
#include "kernels/cpu/simd.h"

#include <math.h>

enum { PAGE = LIMIT_PAGE_TOKENS, PAGE_VECTORS = PAGE / VW };

typedef i32 lanes __attribute__((vector_size(VW * 4)));

#if defined(__AVX512F__)
enum { ROWS = 4 }; /* query rows that share each key and value loaded; registers decide */
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_min(a, b) _mm512_min_ps(a, b)
#define v_store_f16(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtps_ph(v, 8))
static inline float v_largest(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline float v_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}
#elif defined(__AVX2__)
enum { ROWS = 2 };
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_min(a, b) _mm256_min_ps(a, b)
#define v_store_f16(p, v) _mm_storeu_si128((__m128i *)(void *)(p), _mm256_cvtps_ph(v, 8))
static inline float v_largest(vf a)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
static inline float v_sum(vf a)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
#elif defined(__ARM_NEON)
enum { ROWS = 2 };
#define v_max(a, b) vmaxq_f32(a, b)
#define v_min(a, b) vminq_f32(a, b)
#define v_store_f16(p, v) vst1_u8((u8 *)(p), vreinterpret_u8_f16(vcvt_f16_f32(v)))
static inline float v_largest(vf a)
{
    return vmaxvq_f32(a);
}
static inline float v_sum(vf a)
{
    return vaddvq_f32(a);
}
#endif

#define UNROLL _Pragma("GCC unroll 8")

INLINE vf v_select(lanes mask, vf yes, vf no)
{
    return (vf)((mask & (lanes)yes) | (~mask & (lanes)no));
}

/* --- functions ---------------------------------------------------------------------------------
 */

INLINE vf v_exp(vf x)
{
    const vf magic = v_set1(0x1.8p23f); /* adding it rounds to an integer in the low bits */
    x = v_min(v_set1(88.0f), v_max(v_set1(-87.0f), x));
    vf shifted = v_fma(x, v_set1(1.44269504f), magic);
    vf n = shifted - magic;
    vf r = v_fma(n, v_set1(-0.693359375f), x); /* ln 2 in two parts, the first exact times n */
    r = v_fma(n, v_set1(2.12194440e-4f), r);
    vf p = v_set1(1.9875691500e-4f);
    p = v_fma(p, r, v_set1(1.3981999507e-3f));
    p = v_fma(p, r, v_set1(8.3334519073e-3f));
    p = v_fma(p, r, v_set1(4.1665795894e-2f));
    p = v_fma(p, r, v_set1(1.6666665459e-1f));
    p = v_fma(p, r, v_set1(5.0000001201e-1f));
    p = v_fma(p, r * r, r) + v_set1(1.0f);
    return (vf)((lanes)p + ((lanes)shifted << 23));
}

INLINE vf v_tanh(vf x)
{
    lanes sign = (lanes)x & (lanes)v_set1(-0.0f);
    vf size = (vf)((lanes)x ^ sign), z = x * x;
    vf p = v_set1(-5.70498872745e-3f);
    p = v_fma(p, z, v_set1(2.06390887954e-2f));
    p = v_fma(p, z, v_set1(-5.37397155531e-2f));
    p = v_fma(p, z, v_set1(1.33314422036e-1f));
    p = v_fma(p, z, v_set1(-3.33332819422e-1f));
    vf near = v_fma(p * z, x, x);
    vf far = v_set1(1.0f) - v_set1(2.0f) / (v_exp(size + size) + v_set1(1.0f));
    return v_select(size < v_set1(0.625f), near, (vf)((lanes)far | sign));
}

/* n < VW floats, then zeros. */
INLINE vf load_some(const float *p, u32 n)
{
    float a[VW] = {0};
    memcpy(a, p, n * sizeof *a);
    return v_load(a);
}

INLINE void store_some(float *p, vf v, u32 n)
{
    float a[VW];
    v_store(a, v);
    memcpy(p, a, n * sizeof *a);
}

/* --- row by row --------------------------------------------------------------------------------
 */

static void rmsnorm(float *y, const float *x, const float *w, u32 n, float eps)
{
    vf sum[4] = {v_set1(0), v_set1(0), v_set1(0), v_set1(0)};
    u32 i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) {
        UNROLL for (u32 j = 0; j < 4; j++)
        {
            vf v = v_load(x + i + j * VW);
            sum[j] = v_fma(v, v, sum[j]);
        }
    }
    for (; i < n; i += VW) {
        vf v = n - i < VW ? load_some(x + i, n - i) : v_load(x + i);
        sum[0] = v_fma(v, v, sum[0]);
    }
    float total = v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    float inverse = 1 / sqrtf(total / (float)n + eps);
    for (i = 0; i < n; i++)
        y[i] = x[i] * inverse * w[i];
}

static void add(float *y, const float *x, u32 n)
{
    for (u32 i = 0; i < n; i++)
        y[i] += x[i];
}

static void scale(float *y, float factor, u32 n)
{
    for (u32 i = 0; i < n; i++)
        y[i] *= factor;
}

static void rope(float *x, const float *cs, u32 dims, u32 head_dim, u32 heads)
{
    u32 half = dims / 2;
    for (u32 h = 0; h < heads; h++, x += head_dim) {
        float *restrict a = x, *restrict b = x + half;
        for (u32 i = 0; i < half; i++) {
            float c = cs[i], s = cs[half + i], low = a[i], high = b[i];
            a[i] = low * c - high * s;
            b[i] = high * c + low * s;
        }
    }
}

/* relu, x * sigmoid(x), sigmoid(x), or the tanh form of gelu: 0.5 (1 + tanh u) is sigmoid(2u). */
INLINE vf activate(vf x, enum activation act)
{
    vf t = x;
    if (act == ACT_RELU)
        return v_max(v_set1(0.0f), x); /* a NaN stays one */
    if (act == ACT_GELU_TANH)
        t = v_set1(1.5957691216f) * v_fma(v_set1(0.044715f) * x * x, x, x);
    return (act == ACT_SIGMOID ? v_set1(1.0f) : x) / (v_set1(1.0f) + v_exp(-t));
}

INLINE vf gated(vf gate, vf up, enum activation act)
{
    if (act != ACT_GPT_OSS)
        return activate(gate, act) * up;
    vf most = v_set1(7.0f), g = v_min(most, gate); /* a NaN stays one */
    return g / (v_set1(1.0f) + v_exp(g * v_set1(-1.702f))) *
           (v_min(most, v_max(-most, up)) + v_set1(1.0f));
}

INLINE void gate_lanes(float *g, const float *up, u32 n, enum activation act)
{
    u32 i = 0;
    for (; i + VW <= n; i += VW)
        v_store(g + i, gated(v_load(g + i), v_load(up + i), act));
    if (i < n)
        store_some(g + i, gated(load_some(g + i, n - i), load_some(up + i, n - i), act), n - i);
}

static void gate(float *g, const float *up, u32 n, enum activation act)
{
    if (act == ACT_SILU) {
        gate_lanes(g, up, n, ACT_SILU);
    } else if (act == ACT_GELU_TANH) {
        gate_lanes(g, up, n, ACT_GELU_TANH);
    } else if (act == ACT_SIGMOID) {
        gate_lanes(g, up, n, ACT_SIGMOID);
    } else if (act == ACT_GPT_OSS) {
        gate_lanes(g, up, n, ACT_GPT_OSS);
    } else if (act == ACT_RELU) {
        gate_lanes(g, up, n, ACT_RELU);
    } else {
        for (u32 i = 0; i < n; i++)
            g[i] = 0.5f * g[i] * (1 + erff(g[i] * 0.7071067812f)) * up[i];
    }
}

static void softcap(float *x, u32 n, float cap)
{
    vf c = v_set1(cap);
    u32 i = 0;
    for (; i + VW <= n; i += VW)
        v_store(x + i, c * v_tanh(v_load(x + i) / c));
    if (i < n)
        store_some(x + i, c * v_tanh(load_some(x + i, n - i) / c), n - i);
}

/* --- KV pages ------------------------------------------------------------------------------------
 */

INLINE vf kv_load(const void *head, size_t at, enum dtype type)
{
    return type == DTYPE_F16  ? v_load_f16((const u16 *)head + at)
           : type == DTYPE_I8 ? v_load_i8((const i8 *)head + at)
                              : v_load((const float *)head + at);
}

/* VW of x[n] from i on, saturated, zeros behind them. */
INLINE vf load_saturated(const float *x, u32 i, u32 n)
{
    vf top = v_set1(65504.0f);
    vf v = i + VW <= n ? v_load(x + i) : load_some(x + MIN(i, n), i < n ? n - i : 0);
    return v_min(top, v_max(-top, v));
}

/* x[n] as f16, zeros up to dim. */
static void to_f16(u16 *out, const float *x, u32 n, u32 dim)
{
    for (u32 i = 0; i < dim; i += VW)
        v_store_f16(out + i, load_saturated(x, i, n));
}

/* x[n] as bytes, zeros up to dim; returns their scale. Integers order |x| like the floats do, and
 * NaN above all; adding 1.5 * 2^23 leaves the integer nearest to a quotient in the low bits. */
static float to_int8(i8 *out, const float *x, u32 n, u32 dim)
{
    u32 most = 0;
    for (u32 i = 0; i < n; i++)
        most = MAX(most, half_to_bits(x[i]) & 0x7fffffff);
    float max = half_from_bits(most);
    if (max > 65504.0f)
        max = 65504.0f;
    if (!(max > 0)) {
        memset(out, 0, dim);
        return max;
    }
    for (u32 i = 0; i < dim; i += VW) {
        vf v = load_saturated(x, i, n) * v_set1(127) / v_set1(max) + v_set1(0x1.8p23f);
        u32 bits[VW];
        memcpy(bits, &v, sizeof bits);
        for (u32 j = 0; j < VW; j++)
            out[i + j] = (i8)bits[j];
    }
    return max / 127;
}

static void kv_write(const struct kv_layer *kv, const float *k, const float *v, u32 page, u32 at,
                     u32 kv_head)
{
    u32 n = kv->head_dim, dim = kv_dim(n);
    void *k_head = kv_head_at(kv, kv->k, page, kv_head);
    void *v_head = kv_head_at(kv, kv->v, page, kv_head);
    if (kv->type == DTYPE_F16) {
        u16 half[kv_dim(LIMIT_HEAD_DIM)], *keys = (u16 *)k_head + at;
        to_f16(half, k, n, dim);
        for (u32 i = 0; i < dim; i++)
            keys[i * PAGE] = half[i];
        to_f16((u16 *)v_head + (size_t)at * dim, v, n, dim);
    } else if (kv->type == DTYPE_I8) {
        i8 bytes[kv_dim(LIMIT_HEAD_DIM)], *keys = (i8 *)k_head + at;
        kv_scales(k_head, dim)[at] = to_int8(bytes, k, n, dim);
        for (u32 i = 0; i < dim; i++)
            keys[i * PAGE] = bytes[i];
        kv_scales(v_head, dim)[at] = to_int8((i8 *)v_head + (size_t)at * dim, v, n, dim);
    } else {
        float *keys = (float *)k_head + at, *values = (float *)v_head + (size_t)at * dim;
        for (u32 i = 0; i < dim; i++) {
            keys[i * PAGE] = i < n ? k[i] : 0;
            values[i] = i < n ? v[i] : 0;
        }
    }
}

/* --- attention -----------------------------------------------------------------------------------
 */

/* Online softmax (Milakov and Gimelshein, 2018) page by page: every query row takes its pages in
 * order of position, and inside a page its keys in order, whichever rows share the work. */
struct rows {
    const struct attention_args *a;
    u32 dim, n;
    float *q;        /* [n rounded up to ROWS][dim] times scale */
    float *acc;      /* [..][dim] */
    float *sum;      /* [..][PAGE] */
    float *max;      /* [..] */
    float *unpacked; /* [2][PAGE * dim], used by many rows */
};

/* Keys and values of a KV head in a page; the scales of int8, or NULL. */
struct page {
    const void *keys, *values;
    const float *key_scales, *value_scales;
};

struct span {
    u32 from, to; /* keys of a page that a row sees */
};

static struct span visible(const struct attention_args *a, u32 row, u32 first_key)
{
    u32 pos = a->pos + row / a->group;
    u32 from = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
    struct span s = {from > first_key ? from - first_key : 0,
                     pos < first_key ? 0 : pos - first_key + 1};
    return (struct span){MIN(s.from, (u32)PAGE), MIN(s.to, (u32)PAGE)};
}

/* s[r][key] = q[r] . k[key], even and odd dimensions in two sums. */
INLINE void page_scores(const float *q, const struct page *p, u32 dim, enum dtype type,
                        float s[ROWS][PAGE])
{
    vf sum[2][ROWS][PAGE_VECTORS];
    UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 v = 0; v < PAGE_VECTORS; v++)
        sum[0][r][v] = sum[1][r][v] = v_set1(0);
    for (u32 d = 0; d < dim; d += 2) {
        UNROLL for (u32 odd = 0; odd < 2; odd++) UNROLL for (u32 v = 0; v < PAGE_VECTORS; v++)
        {
            vf key = kv_load(p->keys, (d + odd) * PAGE + v * VW, type);
            UNROLL for (u32 r = 0; r < ROWS; r++) sum[odd][r][v] =
                v_fma(v_set1(q[r * dim + d + odd]), key, sum[odd][r][v]);
        }
    }
    UNROLL for (u32 r = 0; r < ROWS; r++) UNROLL for (u32 v = 0; v < PAGE_VECTORS; v++)
    {
        vf score = sum[0][r][v] + sum[1][r][v];
        if (p->key_scales)
            score = score * v_load(p->key_scales + v * VW);
        v_store(s[r] + v * VW, score);
    }
}

/* Scores to weights exp(s - max), 0 where not visible; the row's sums follow a larger max. */
static void page_weights(const struct rows *w, u32 row, struct span seen, float s[PAGE])
{
    static const i32 index[PAGE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    float cap = w->a->softcap;
    vf hidden = v_set1(-INFINITY), score[PAGE_VECTORS], largest = hidden;
    lanes mask[PAGE_VECTORS];
    for (u32 v = 0; v < PAGE_VECTORS; v++) {
        lanes key;
        memcpy(&key, index + v * VW, sizeof key);
        mask[v] = (key >= (i32)seen.from) & (key < (i32)seen.to);
        score[v] = v_load(s + v * VW);
        if (cap > 0)
            score[v] = v_set1(cap) * v_tanh(score[v] / v_set1(cap));
        score[v] = v_select(mask[v], score[v], hidden);
        largest = v_max(largest, score[v]);
    }
    float *sum = w->sum + (size_t)row * PAGE, top = v_largest(largest);
    if (top > w->max[row]) {
        vf shrink = v_exp(v_set1(w->max[row] - top));
        float *acc = w->acc + (size_t)row * w->dim;
        for (u32 d = 0; d < w->dim; d += VW)
            v_store(acc + d, v_load(acc + d) * shrink);
        for (u32 v = 0; v < PAGE; v += VW)
            v_store(sum + v, v_load(sum + v) * shrink);
        w->max[row] = top;
    }
    for (u32 v = 0; v < PAGE_VECTORS; v++) {
        vf p = v_select(mask[v], v_exp(score[v] - v_set1(w->max[row])), v_set1(0));
        v_store(s + v * VW, p);
        v_store(sum + v * VW, v_load(sum + v * VW) + p);
    }
}

/* acc[r][0 .. vectors * VW) += sum over keys of s[r][key] * v[key], keys in order. */
INLINE void values_piece(float *acc, u32 stride, const void *values, u32 at, enum dtype type,
                         const float s[][PAGE], struct span seen, u32 n_rows, u32 vectors)
{
    vf sum[ROWS][4];
    UNROLL for (u32 r = 0; r < n_rows; r++) UNROLL for (u32 v = 0; v < vectors; v++) sum[r][v] =
        v_load(acc + r * stride + v * VW);
    for (u32 key = seen.from; key < seen.to; key++) {
        UNROLL for (u32 v = 0; v < vectors; v++)
        {
            vf value = kv_load(values, at + key * stride + v * VW, type);
            UNROLL for (u32 r = 0; r < n_rows; r++) sum[r][v] =
                v_fma(v_set1(s[r][key]), value, sum[r][v]);
        }
    }
    UNROLL for (u32 r = 0; r < n_rows; r++) UNROLL for (u32 v = 0; v < vectors; v++)
        v_store(acc + r * stride + v * VW, sum[r][v]);
}

INLINE void page_values(const struct rows *w, u32 row, const void *v, enum dtype type,
                        const float s[][PAGE], struct span seen, u32 n_rows)
{
    float *acc = w->acc + (size_t)row * w->dim;
    u32 d = 0;
    for (; d + 4 * VW <= w->dim; d += 4 * VW)
        values_piece(acc + d, w->dim, v, d, type, s, seen, n_rows, 4);
    for (; d < w->dim; d += VW)
        values_piece(acc + d, w->dim, v, d, type, s, seen, n_rows, 1);
}

/* Weights times the scales of int8 values; nobody reads those of keys that are not seen. */
INLINE void scale_weights(float s[PAGE], const float *scales)
{
    UNROLL for (u32 v = 0; v < PAGE; v += VW) v_store(s + v, v_load(s + v) * v_load(scales + v));
}

/* Rows row .. row + ROWS - 1 (some of them padding) against page number `page` of the sequence. */
INLINE void attend_rows(const struct rows *w, u32 row, u32 page, const struct page *p,
                        enum dtype type)
{
    const struct attention_args *a = w->a;
    struct span seen[ROWS];
    float s[ROWS][PAGE];
    bool any = false, same = true;
    for (u32 r = 0; r < ROWS; r++) {
        seen[r] = visible(a, MIN(row + r, w->n - 1), page * PAGE);
        any |= seen[r].from < seen[r].to;
        same &= seen[r].from == seen[0].from && seen[r].to == seen[0].to;
    }
    if (!any)
        return;
    page_scores(w->q + (size_t)row * w->dim, p, w->dim, type, s);
    for (u32 r = 0; r < ROWS; r++) {
        if (seen[r].from < seen[r].to)
            page_weights(w, row + r, seen[r], s[r]);
        if (p->value_scales)
            scale_weights(s[r], p->value_scales);
    }
    if (same) {
        page_values(w, row, p->values, type, s, seen[0], ROWS);
        return;
    }
    for (u32 r = 0; r < ROWS; r++)
        page_values(w, row + r, p->values, type, s + r, seen[r], 1);
}

/* All rows against one page. What many rows read is made f32 once, which is exact: no bit depends
 * on it. */
INLINE void attend_page(const struct rows *w, u32 page, u32 kv_head, enum dtype type)
{
    const struct kv_layer *kv = w->a->kv;
    void *keys = kv_head_at(kv, kv->k, w->a->pages[page], kv_head);
    void *values = kv_head_at(kv, kv->v, w->a->pages[page], kv_head);
    struct page p = {keys, values, NULL, NULL};
    if (type == DTYPE_I8) {
        p.key_scales = kv_scales(keys, w->dim);
        p.value_scales = kv_scales(values, w->dim);
    }
    if (type == DTYPE_F32 || w->n <= 2 * ROWS) { /* which is where unpacking begins to pay */
        for (u32 row = 0; row < w->n; row += ROWS)
            attend_rows(w, row, page, &p, type);
        return;
    }
    u32 n = PAGE * w->dim;
    for (u32 i = 0; i < n; i += VW) {
        v_store(w->unpacked + i, kv_load(keys, i, type));
        v_store(w->unpacked + n + i, kv_load(values, i, type));
    }
    p.keys = w->unpacked;
    p.values = w->unpacked + n;
    for (u32 row = 0; row < w->n; row += ROWS)
        attend_rows(w, row, page, &p, DTYPE_F32);
}

static void gather_rows(struct rows *w, u32 kv_head, float *memory)
{
    const struct attention_args *a = w->a;
    u32 padded = ROUND_UP(w->n, (u32)ROWS), head_dim = a->kv->head_dim;
    w->unpacked = memory; /* vectors lie best where memory is aligned */
    w->q = w->unpacked + (size_t)2 * PAGE * w->dim;
    w->acc = w->q + (size_t)padded * w->dim;
    w->sum = w->acc + (size_t)padded * w->dim;
    w->max = w->sum + (size_t)padded * PAGE;
    memset(w->q, 0, (size_t)padded * (2 * w->dim + PAGE) * sizeof(float));
    for (u32 row = 0; row < padded; row++)
        w->max[row] = -INFINITY;
    for (u32 row = 0; row < w->n; row++) {
        const float *q = a->q + (size_t)(row / a->group) * a->q_stride +
                         (kv_head * a->group + row % a->group) * head_dim;
        for (u32 d = 0; d < head_dim; d++)
            w->q[row * w->dim + d] = q[d] * a->scale;
    }
}

static void attention(const struct attention_args *a, u32 kv_head, void *scratch)
{
    struct rows w = {.a = a, .dim = kv_dim(a->kv->head_dim), .n = a->tokens * a->group};
    gather_rows(&w, kv_head, scratch);
    u32 first = a->window && a->pos + 1 > a->window ? a->pos + 1 - a->window : 0;
    u32 last = a->pos + a->tokens - 1;
    for (u32 page = first / PAGE; page <= last / PAGE; page++) {
        if (a->kv->type == DTYPE_F16)
            attend_page(&w, page, kv_head, DTYPE_F16);
        else if (a->kv->type == DTYPE_I8)
            attend_page(&w, page, kv_head, DTYPE_I8);
        else
            attend_page(&w, page, kv_head, DTYPE_F32);
    }
    for (u32 row = 0; row < w.n; row++) {
        float *out = a->out + (size_t)(row / a->group) * a->out_stride +
                     (kv_head * a->group + row % a->group) * a->kv->head_dim;
        const float *sum = w.sum + (size_t)row * PAGE, *acc = w.acc + (size_t)row * w.dim;
        vf total = v_load(sum);
        for (u32 v = VW; v < PAGE; v += VW)
            total = total + v_load(sum + v);
        float all = v_sum(total);
        if (a->sinks)
            all += expf(a->sinks[kv_head * a->group + row % a->group] - w.max[row]);
        float inverse = 1 / all;
        for (u32 d = 0; d < a->kv->head_dim; d++)
            out[d] = acc[d] * inverse;
    }
}

/* --- gated delta nets --------------------------------------------------------------------------
 */

static void conv(float *y, const float *const *x, const float *w, u32 w_stride, u32 taps, u32 n,
                 bool silu)
{
    for (u32 c = 0; c < n; c += VW) {
        vf sum = v_zero();
        for (u32 j = 0; j < taps; j++)
            sum = v_fma(v_load(w + (size_t)j * w_stride + c), v_load(x[j] + c), sum);
        v_store(y + c, silu ? activate(sum, ACT_SILU) : sum);
    }
}

/* n vectors of columns, from column c on, through all tokens, while they are in the first cache. A
 * token's way through the keys finds what the next one's keys have of the state behind it: the last
 * token has none, and multiplies by its own. Mamba asks for nothing that the state has. */
INLINE void delta_columns(const struct delta_args *a, u32 c, const u32 n, const bool mamba)
{
    const u32 keys = a->key_dim;
    vf had[4], y[4];
    UNROLL for (u32 j = 0; j < n; j++) had[j] = v_zero();
    const float *from = a->state + c;
    for (u32 i = 0; i < keys && !mamba; i++, from += a->value_dim) {
        const vf k = v_set1(a->k[i]);
        UNROLL for (u32 j = 0; j < n; j++) had[j] = v_fma(v_load(from + j * VW), k, had[j]);
    }
    for (u32 t = 0; t < a->tokens; t++) {
        const float *q = a->q + (size_t)t * keys, *k = a->k + (size_t)t * keys;
        const float *next = t + 1 < a->tokens ? k + keys : k;
        const float *v = a->v + (size_t)t * a->value_dim + c;
        const vf decay = v_set1(a->decay[t]), beta = v_set1(a->beta[t]);
        vf change[4];
        UNROLL for (u32 j = 0; j < n; j++)
        {
            change[j] = v_load(v + j * VW);
            if (!mamba)
                change[j] = change[j] - decay * had[j];
            change[j] = beta * change[j];
            y[j] = v_zero();
            had[j] = v_zero();
        }
        float *state = a->state + c;
        for (u32 i = 0; i < keys; i++, state += a->value_dim) {
            const vf ki = v_set1(k[i]), qi = v_set1(q[i]), ni = v_set1(next[i]);
            UNROLL for (u32 j = 0; j < n; j++)
            {
                vf s = v_fma(ki, change[j], v_load(state + j * VW) * decay);
                v_store(state + j * VW, s);
                y[j] = v_fma(s, qi, y[j]);
                if (!mamba)
                    had[j] = v_fma(s, ni, had[j]);
            }
        }
        UNROLL for (u32 j = 0; j < n; j++)
            v_store(a->y + (size_t)t * a->y_stride + c + j * VW, y[j]);
    }
}

INLINE void delta_all(const struct delta_args *a, const bool mamba)
{
    u32 c = 0;
    for (; c + 4 * VW <= a->value_dim; c += 4 * VW)
        delta_columns(a, c, 4, mamba);
    for (; c < a->value_dim; c += VW)
        delta_columns(a, c, 1, mamba);
}

static void delta(const struct delta_args *a)
{
    if (a->mamba)
        delta_all(a, true);
    else
        delta_all(a, false);
}

#if defined(SET_AVX512)
const struct vector_ops vector_avx512 = {
#elif defined(SET_AVX2)
const struct vector_ops vector_avx2 = {
#else
const struct vector_ops vector_neon = {
#endif
    .rmsnorm = rmsnorm,
    .add = add,
    .scale = scale,
    .rope = rope,
    .kv_write = kv_write,
    .attention = attention,
    .gate = gate,
    .softcap = softcap,
    .conv = conv,
    .delta = delta,
    .read = read_memory,
};

#endif
