/* Quantised matrices with f32 activations, one source for every instruction set (simd.h). Every
 * output feature is a lane of its own and is summed in order of k, so all f32 sets give the same
 * bits:
 *
 *     sum = fma(q - zero, x, sum) over a block;  acc = fma(sum, scale, acc)
 *
 * A field becomes a float without a conversion: put under the exponent of 2^23 it reads 2^23 + q,
 * and subtracting 2^23 + zero is exact.
 */
#include "kernels/cpu/simd.h"

#if defined(SET_AVX2) && defined(__AVX2__)
#define LINEAR_OPS linear_avx2
#elif defined(SET_AVX512) && defined(__AVX512F__)
#define LINEAR_OPS linear_avx512
#elif defined(SET_NEON) && defined(__ARM_NEON)
#define LINEAR_OPS linear_neon
#endif

#ifdef LINEAR_OPS /* empty on other architectures */

#include "kernels/cpu/linear_frame.h"

/* --- activations: as they are, unless the matrix wants them rounded, sorted or padded --------- */

static bool prepares(const struct packed *p)
{
    return p->w->kind != WEIGHT_PLAIN && (p->w->int8_activations || p->order || p->k != p->w->k);
}

static size_t pitch(u32 k)
{
    return ROUND_UP(k, UNIT_K);
}

static size_t act_bytes(u32 m, u32 k)
{
    return m * pitch(k) * sizeof(float);
}

static void act_prepare(struct activations *a, const struct packed *w, u32 m0, u32 m1)
{
    if (!prepares(w))
        return;
    for (u32 i = m0; i < m1; i++) {
        const float *x = a->x + (size_t)i * a->x_stride;
        float *to = (float *)a->prepared + i * pitch(a->k);
        if (w->w->int8_activations)
            linear_round_row(to, x, a->k);
        else
            for (u32 k = 0; k < a->k; k++)
                to[k] = x[w->order ? w->order[k] : k];
        for (u32 k = a->k; k < w->k; k++)
            to[k] = 0;
    }
}

static bool act_shared(const struct packed *p, const struct packed *w)
{
    return !prepares(w) || (prepares(p) && p->w->int8_activations == w->w->int8_activations &&
                            p->k == w->k && linear_same_order(p, w));
}

/* --- blocks -------------------------------------------------------------------------------- */

/* Rows and vectors of features that a kernel keeps in registers: of one row, and of many. */
enum {
    ONE_VECTORS = VW == 8 ? 2 : 4, /* AVX2 has 16 registers, the others 32 */
    MANY = VW == 8 ? 4 : 8,
    MANY_VECTORS = 2,
    EXPONENT = 0x4b000000, /* of 2^23 */
    PREFETCH_BYTES = 4096
};

struct rows {
    const float *x[MANY];
};

INLINE struct rows take_rows(const struct packed *p, const struct activations *a,
                             const struct block *b, u32 i, u32 rows)
{
    struct rows r = {0};
    bool own = prepares(p);
    const float *x = own ? a->prepared : a->x;
    size_t stride = own ? pitch(a->k) : a->x_stride;
    EACH(j, rows, r.x[j] = x + (b->i0 + i + j) * stride + b->k0;)
    return r;
}

/* 2^23 + zero. */
INLINE vf zero_lanes(const struct block *b, u32 c)
{
    return vi_as_f(vi_or(vi_load_u8(b->zero + c), vi_set1(EXPONENT)));
}

INLINE vf field_lanes(vi word, u32 shift, u32 bits, bool fp4, vi table, vf zero)
{
    vi field = vi_and(vi_srl(word, shift), vi_set1((1 << bits) - 1));
    if (fp4) /* of the other bytes zeros */
        field = vi_lookup(table, vi_or(field, vi_set1(-256)));
    return v_sub(vi_as_f(vi_or(field, vi_set1(EXPONENT))), zero);
}

/* acc += sum * scale; sum d is row d / vectors, vector d % vectors from column c. */
INLINE void add_sums(const struct block *b, u32 rows, u32 vectors, u32 c, const vf *sum, float *acc)
{
    EACH(d, rows * vectors, u32 at = c + d % vectors * VW;
         float *to = acc + d / vectors * TILE_N + at;
         v_store(to, v_fma(sum[d], v_load(b->scale + at), v_load(to)));)
}

/* One row by ONE_VECTORS vectors of features from column c, straight from the packed words. */
INLINE void sum_words(const struct block *b, const float *x, u32 bits, bool fp4, u32 c)
{
    vf sum[ONE_VECTORS], zero[ONE_VECTORS], field[ONE_VECTORS];
    vi word[ONE_VECTORS], table = fp4_table();
    EACH(v, ONE_VECTORS, zero[v] = zero_lanes(b, c + v * VW); sum[v] = v_zero();)
    const u8 *at = b->words + (size_t)c * 4;
    for (u32 k = 0; k < b->k; k += 32 / bits, at += ROW_BYTES) {
        EACH(v, ONE_VECTORS, word[v] = vi_load(at + (size_t)v * VW * 4);
             __builtin_prefetch(at + PREFETCH_BYTES + v * VW * 4);)
        EACH(i, 32 / bits,
             EACH(v, ONE_VECTORS,
                  field[v] = field_lanes(word[v], i * bits, bits, fp4, table, zero[v]);
                  sum[v] = v_fma(field[v], v_set1(x[k + i]), sum[v]);))
    }
    add_sums(b, 1, ONE_VECTORS, c, sum, b->acc);
}

static void one_row(const struct packed *p, const struct activations *a, const struct block *b)
{
    struct rows r = take_rows(p, a, b, 0, 1);
    for (u32 c = 0; c < TILE_N; c += ONE_VECTORS * VW)
        if (b->fp4)
            sum_words(b, r.x[0], 4, true, c);
        else if (b->bits == 4)
            sum_words(b, r.x[0], 4, false, c);
        else
            sum_words(b, r.x[0], 8, false, c);
}

/* `rows` rows by MANY_VECTORS vectors from column c; w: q - zero as [k][TILE_N]. */
INLINE void many_rows(const struct packed *p, const struct activations *a, const struct block *b,
                      u32 i, u32 rows, const float *w)
{
    struct rows r = take_rows(p, a, b, i, rows);
    for (u32 c = 0; c < TILE_N; c += MANY_VECTORS * VW) {
        vf sum[MANY * MANY_VECTORS], field[MANY_VECTORS];
        EACH(d, rows * MANY_VECTORS, sum[d] = v_zero();)
        for (u32 k = 0; k < b->k; k++) {
            EACH(v, MANY_VECTORS, field[v] = v_load(w + (size_t)k * TILE_N + c + v * VW);)
            EACH(d, rows * MANY_VECTORS,
                 sum[d] = v_fma(field[d % MANY_VECTORS], v_set1(r.x[d / MANY_VECTORS][k]), sum[d]);)
        }
        add_sums(b, rows, MANY_VECTORS, c, sum, b->acc + (size_t)i * TILE_N);
    }
}

/* q - zero of the block as [k][TILE_N]. */
INLINE void unpack(const struct block *b, u32 bits, bool fp4, float *out)
{
    vi table = fp4_table();
    for (u32 c = 0; c < TILE_N; c += VW) {
        vf zero = zero_lanes(b, c);
        for (u32 k = 0; k < b->k; k += 32 / bits) {
            vi word = vi_load(b->words + (size_t)k * bits / 32 * ROW_BYTES + (size_t)c * 4);
            EACH(i, 32 / bits,
                 v_store(out + (size_t)(k + i) * TILE_N + c,
                         field_lanes(word, i * bits, bits, fp4, table, zero));)
        }
    }
}

static void all_rows(const struct packed *p, const struct activations *a, const struct block *b)
{
    if (b->fp4)
        unpack(b, 4, true, b->buffer);
    else if (b->bits == 4)
        unpack(b, 4, false, b->buffer);
    else
        unpack(b, 8, false, b->buffer);
    u32 i = 0;
    for (; i + MANY <= b->rows; i += MANY)
        many_rows(p, a, b, i, MANY, b->buffer);
    for (; i < b->rows; i++)
        many_rows(p, a, b, i, 1, b->buffer);
}

static void run_block(const struct packed *p, const struct activations *a, const struct block *b)
{
    if (b->rows == 1)
        one_row(p, a, b);
    else
        all_rows(p, a, b);
}

/* --- the set ------------------------------------------------------------------------------- */

static size_t scratch_bytes(u32 k)
{
    (void)k;
    return sizeof(struct frame_scratch) + ACT_BLOCK * TILE_N * sizeof(float);
}

static void matmul(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                   u32 n0, u32 n1, void *scratch)
{
    if (w->w->kind == WEIGHT_PLAIN)
        LINEAR_PLAIN(w, a, y, y_stride, n0, n1);
    else
        frame_matmul(w, a, y, y_stride, n0, n1, scratch);
}

const struct linear_ops LINEAR_OPS = {
    .activation_bits = 32,
    .tile_n = TILE_N,
    .pack_bytes = linear_pack_bytes,
    .pack = linear_pack,
    .act_bytes = act_bytes,
    .act_prepare = act_prepare,
    .act_shared = act_shared,
    .scratch_bytes = scratch_bytes,
    .matmul = matmul,
    .row = linear_row,
};

#endif
