/* Quantised matrices with int8 activations, one source for every instruction set (simd.h). Blocks
 * are summed in integers, exactly, so all int8 sets give the same bits:
 *
 *     acc = fma(float(sum q x - zero * sum x), scale * x_scale, acc)
 *
 * Activations are kept as a row of pitch(k) bytes: k signed bytes, then for each block its scale
 * (f32) and minus the sum of its bytes (i32). For 4-bit weights each eight bytes are stored in the
 * order 0 2 4 6 1 3 5 7, because masking a word of eight fields gives the even ones and then the
 * odd ones.
 */
#include "kernels/cpu/simd.h"

#if defined(SET_AVX2) && defined(__AVX2__)
#define LINEAR_OPS linear_avx2_int8
#elif defined(SET_AVX_VNNI) && defined(__AVXVNNI__)
#define LINEAR_OPS linear_avx_vnni
#elif defined(SET_AMX) && defined(__AMX_INT8__)
#define LINEAR_OPS linear_amx
#elif defined(SET_AVX512_VNNI) && defined(__AVX512VNNI__)
#define LINEAR_OPS linear_avx512_vnni
#elif defined(SET_I8MM) && defined(__ARM_FEATURE_MATMUL_INT8)
#define LINEAR_OPS linear_neon_i8mm
#elif defined(SET_DOTPROD) && defined(__ARM_FEATURE_DOTPROD)
#define LINEAR_OPS linear_neon_dotprod
#endif

#ifdef LINEAR_OPS /* empty on other architectures */

#include "kernels/cpu/linear_frame.h"

#include <math.h>

/* --- activations --------------------------------------------------------------------------- */

static size_t bytes_pitch(u32 k)
{
    return ROUND_UP((size_t)k, 64);
}

/* A block has at least UNIT_K features. */
static size_t pitch(u32 k)
{
    return bytes_pitch(k) + ROUND_UP((size_t)CEIL_DIV(k, UNIT_K) * 8, 64);
}

struct act_row {
    i8 *q;
    float *scale;
    i32 *minus_sum;
};

static inline struct act_row act_row(const struct activations *a, const struct packed *p, u32 i)
{
    u8 *row = (u8 *)a->prepared + i * pitch(a->k), *after = row + bytes_pitch(a->k);
    return (struct act_row){(i8 *)row, (float *)(void *)after,
                            (i32 *)(void *)after + CEIL_DIV(p->k, p->block)};
}

static size_t act_bytes(u32 m, u32 k)
{
    return m * pitch(k);
}

/* The bits of absmax, as an integer: orders like the float and lets NaN through. */
static u32 absmax_bits(const float *x, u32 n)
{
    u32 most = 0;
    for (u32 i = 0; i < n; i++)
        most = MAX(most, half_to_bits(x[i]) & 0x7fffffff);
    return most;
}

/* Rounds n (a multiple of 8, at most ACT_BLOCK) values; adding 1.5 * 2^23 leaves the integer
 * nearest to |x| < 2^22, ties to even, in the low bits. Returns their sum. */
static i32 quantize(const float *x, u32 n, float inverse, bool interleave, i8 *out)
{
    i8 q[ACT_BLOCK];
    i32 sum = 0;
    for (u32 i = 0; i < n; i++) {
        u32 bits = half_to_bits(x[i] * inverse + 12582912.0f) - 0x4b400000u;
        q[i] = (i8)bits;
        sum += (i8)bits;
    }
    if (!interleave) {
        memcpy(out, q, n);
        return sum;
    }
    for (u32 i = 0; i < n; i += 8) {
        typedef i8 bytes8 __attribute__((vector_size(8)));
        bytes8 v;
        memcpy(&v, q + i, 8);
        v = __builtin_shuffle(v, (bytes8){0, 2, 4, 6, 1, 3, 5, 7});
        memcpy(out + i, &v, 8);
    }
    return sum;
}

static void prepare_row(const struct activations *a, const struct packed *p, u32 i)
{
    const float *x = a->x + (size_t)i * a->x_stride;
    struct act_row row = act_row(a, p, i);
    u32 whole = p->w->int8_activations ? absmax_bits(x, a->k) : 0;
    for (u32 k0 = 0, b = 0; k0 < p->k; k0 += p->block, b++) {
        u32 n = MIN(p->block, p->k - k0), stored = MIN(n, a->k - k0);
        float part[ACT_BLOCK] = {0};
        if (p->order)
            for (u32 j = 0; j < stored; j++)
                part[j] = x[p->order[k0 + j]];
        else
            memcpy(part, x + k0, stored * sizeof(float));
        float most = half_from_bits(p->w->int8_activations ? whole : absmax_bits(part, n));
        row.scale[b] = most / 127;
        row.minus_sum[b] =
            -quantize(part, n, most > 0 ? 127 / most : 0, p->w->bits == 4, row.q + k0);
    }
    memset(row.q + p->k, 0, bytes_pitch(a->k) - p->k);
}

static void act_prepare(struct activations *a, const struct packed *w, u32 m0, u32 m1)
{
    if (w->w->kind == WEIGHT_PLAIN)
        return;
    for (u32 i = m0; i < m1; i++)
        prepare_row(a, w, i);
}

static bool act_shared(const struct packed *p, const struct packed *w)
{
    if (w->w->kind == WEIGHT_PLAIN)
        return true;
    return p->w->kind != WEIGHT_PLAIN && p->w->bits == w->w->bits && p->block == w->block &&
           p->w->int8_activations == w->w->int8_activations && linear_same_order(p, w);
}

/* --- blocks -------------------------------------------------------------------------------- */

/* Rows and vectors of features that a kernel keeps in registers. */
enum {
    FEW = 4,
    FEW_VECTORS = VW == 8 ? 2 : 4, /* AVX2 has 16 registers, the others 32 */
    MANY = VW == 8 ? 4 : 8,
    MANY_VECTORS = 2,
    PREFETCH_BYTES = 4096
};

struct rows {
    const i8 *q[MANY];
    float scale[MANY];
    i32 minus_sum[MANY];
};

static inline struct rows take_rows(const struct packed *p, const struct activations *a,
                                    const struct block *b, u32 i, u32 rows)
{
    struct rows r = {0};
    EACH(j, rows, struct act_row row = act_row(a, p, b->i0 + i + j); r.q[j] = row.q + b->k0;
         r.scale[j] = row.scale[b->index]; r.minus_sum[j] = row.minus_sum[b->index];)
    return r;
}

static inline vi four(const i8 *q)
{
    i32 x;
    memcpy(&x, q, 4);
    return vi_set1(x);
}

static inline vi zero_lanes(const struct block *b, u32 c)
{
    vi z = vi_load_u8(b->zero + c);
    return DOT_SIGNED && b->bits == 8 ? vi_sub(z, vi_set1(128)) : z;
}

static inline vi word_lanes(const u8 *at, u32 bits)
{
    vi word = vi_load(at);
    return DOT_SIGNED && bits == 8 ? vi_xor(word, vi_set1((i32)0x80808080u)) : word;
}

/* Sums start at minus zero times the sum of the activations. Sum d is row d / vectors, vector
 * d % vectors from column c. */
INLINE void start_sums(const struct block *b, const struct rows *r, u32 rows, u32 vectors, u32 c,
                       vi *sum)
{
    EACH(d, rows * vectors,
         sum[d] =
             vi_mul16(zero_lanes(b, c + d % vectors * VW), vi_set1(r->minus_sum[d / vectors]));)
}

INLINE void add_sums(const struct block *b, const struct rows *r, u32 rows, u32 vectors, u32 c,
                     const vi *sum, float *acc)
{
    EACH(d, rows * vectors, u32 at = c + d % vectors * VW;
         float *to = acc + d / vectors * TILE_N + at;
         vf s = v_mul(v_load(b->scale + at), v_set1(r->scale[d / vectors]));
         v_store(to, v_fma(vi_to_f(sum[d]), s, v_load(to)));)
}

/* Asks for what a stream reads later. Intel, which alone has AMX, wants it in two steps: far ahead
 * into L2, then near into L1; on Zen 5 that costs (tests/bench/results/linear.md). */
static inline void ahead(const u8 *at)
{
#ifdef SET_AMX
    __builtin_prefetch(at + 2 * PREFETCH_BYTES, 0, 2);
    __builtin_prefetch(at + PREFETCH_BYTES / 4, 0, 3);
#else
    __builtin_prefetch(at + PREFETCH_BYTES);
#endif
}

/* `rows` rows by FEW_VECTORS vectors of features from column c, straight from the packed words. */
INLINE void dot_words(const struct block *b, const struct rows *r, u32 rows, u32 bits, bool fp4,
                      u32 c)
{
    vi sum[FEW * FEW_VECTORS], low[FEW_VECTORS], high[FEW_VECTORS];
    start_sums(b, r, rows, FEW_VECTORS, c, sum);
    const u8 *at = b->words + (size_t)c * 4;
    vi nibbles = vi_set1(0x0f0f0f0f), table = fp4_table();
    for (u32 k = 0; k < b->k; k += 32 / bits, at += ROW_BYTES) {
        EACH(
            v, FEW_VECTORS, ahead(at + v * VW * 4);
            vi w = word_lanes(at + (size_t)v * VW * 4, bits);
            low[v] = bits == 4 ? vi_and(w, nibbles) : w; high[v] = vi_and(vi_srl(w, 4), nibbles);
            if (fp4) {
                low[v] = vi_lookup(table, low[v]);
                high[v] = vi_lookup(table, high[v]);
            })
        EACH(d, rows * FEW_VECTORS, const i8 *q = r->q[d / FEW_VECTORS] + k;
             sum[d] = vi_dot(sum[d], low[d % FEW_VECTORS], four(q), bits);
             if (bits == 4) sum[d] = vi_dot(sum[d], high[d % FEW_VECTORS], four(q + 4), bits);)
    }
    add_sums(b, r, rows, FEW_VECTORS, c, sum, b->acc);
}

INLINE void few_rows(const struct packed *p, const struct activations *a, const struct block *b,
                     u32 rows, bool fp4)
{
    struct rows r = take_rows(p, a, b, 0, rows);
    for (u32 c = 0; c < TILE_N; c += FEW_VECTORS * VW)
        if (fp4)
            dot_words(b, &r, rows, 4, true, c);
        else if (b->bits == 4)
            dot_words(b, &r, rows, 4, false, c);
        else
            dot_words(b, &r, rows, 8, false, c);
}

#ifndef SET_I8MM

/* `rows` rows by MANY_VECTORS vectors from column c; w: rows of TILE_N words of four bytes. */
INLINE void dot_bytes(const struct block *b, const struct rows *r, u32 rows, u32 bits, const u8 *w,
                      float *acc, u32 c)
{
    vi sum[MANY * MANY_VECTORS], lanes[MANY_VECTORS];
    start_sums(b, r, rows, MANY_VECTORS, c, sum);
    w += (size_t)c * 4;
    for (u32 k = 0; k < b->k; k += 4, w += ROW_BYTES) {
        EACH(v, MANY_VECTORS, lanes[v] = vi_load(w + (size_t)v * VW * 4);)
        EACH(d, rows * MANY_VECTORS,
             sum[d] =
                 vi_dot(sum[d], lanes[d % MANY_VECTORS], four(r->q[d / MANY_VECTORS] + k), bits);)
    }
    add_sums(b, r, rows, MANY_VECTORS, c, sum, acc);
}

INLINE void many_rows(const struct packed *p, const struct activations *a, const struct block *b,
                      u32 i, u32 rows, const u8 *w)
{
    struct rows r = take_rows(p, a, b, i, rows);
    for (u32 c = 0; c < TILE_N; c += MANY_VECTORS * VW)
        if (b->bits == 4)
            dot_bytes(b, &r, rows, 4, w, b->acc + (size_t)i * TILE_N, c);
        else
            dot_bytes(b, &r, rows, 8, w, b->acc + (size_t)i * TILE_N, c);
}

/* Fields as bytes, in the order of the activations: [k / 4][TILE_N] words. */
static const u8 *unpack(const struct block *b)
{
    vi nibbles = vi_set1(0x0f0f0f0f), table = fp4_table();
    u32 *out = b->buffer;
    const u8 *at = b->words;
    if (b->bits == 8 && !DOT_SIGNED)
        return at;
    for (u32 k = 0; k < b->k; k += 32 / b->bits, at += ROW_BYTES)
        if (b->bits == 4) {
            for (u32 c = 0; c < TILE_N; c += VW) {
                vi w = vi_load(at + (size_t)c * 4), low = vi_and(w, nibbles),
                   high = vi_and(vi_srl(w, 4), nibbles);
                vi_store(out + c, b->fp4 ? vi_lookup(table, low) : low);
                vi_store(out + TILE_N + c, b->fp4 ? vi_lookup(table, high) : high);
            }
            out += 2 * TILE_N;
        } else {
            for (u32 c = 0; c < TILE_N; c += VW)
                vi_store(out + c, word_lanes(at + (size_t)c * 4, 8));
            out += TILE_N;
        }
    return b->buffer;
}

#endif

#ifdef SET_AMX

/* --- AMX: 16 rows by a tile of features ------------------------------------------------------ */

/* The 64 bytes that ldtilecfg reads (Intel SDM, "Tile configuration"): sums in tiles 0-3, a step of
 * k of the activations in 4, of the fields in 5. Constant, because gcc 12 takes ldtilecfg to read
 * eight bytes only and drops stores to the rest. */
struct tile_config {
    u8 palette, start_row, reserved[14];
    u16 row_bytes[16];
    u8 rows[16];
} __attribute__((aligned(64)));

#define CONFIG(step)                                                       \
    {                                                                      \
        .palette = 1, .row_bytes = {64, 64, 64, 64, (step), 64}, .rows = { \
            16,                                                            \
            16,                                                            \
            16,                                                            \
            16,                                                            \
            16,                                                            \
            (step) / 4                                                     \
        }                                                                  \
    }
static const struct tile_config config_64 = CONFIG(64), config_32 = CONFIG(32);

enum { AMX_ROWS = 16 };

/* Features that a tile instruction takes of this matrix; 0: its blocks are too short. */
static u32 amx_step(const struct packed *p)
{
    return p->block % 64 == 0 ? 64 : p->block % 32 == 0 ? 32 : 0;
}

static void amx_configure(const struct packed *p)
{
    if (amx_step(p))
        _tile_loadconfig(amx_step(p) == 64 ? &config_64 : &config_32);
}

/* Sums of q x, [AMX_ROWS][TILE_N]; w as in dot_bytes. */
static void amx_dot(const i8 *q, size_t q_pitch, const u8 *w, u32 k, u32 step, i32 *out)
{
    __asm__ volatile("" ::: "memory"); /* tile loads do not say that they read memory */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (u32 at = 0; at < k; at += step, w += step / 4 * ROW_BYTES) {
        _tile_loadd(4, q + at, q_pitch);
        _tile_loadd(5, w, ROW_BYTES);
        _tile_dpbsud(0, 4, 5);
        _tile_loadd(5, w + 64, ROW_BYTES);
        _tile_dpbsud(1, 4, 5);
        _tile_loadd(5, w + 128, ROW_BYTES);
        _tile_dpbsud(2, 4, 5);
        _tile_loadd(5, w + 192, ROW_BYTES);
        _tile_dpbsud(3, 4, 5);
    }
    _tile_stored(0, out, ROW_BYTES);
    _tile_stored(1, out + 16, ROW_BYTES);
    _tile_stored(2, out + 32, ROW_BYTES);
    _tile_stored(3, out + 48, ROW_BYTES);
    __asm__ volatile("" ::: "memory");
}

static void amx_rows(const struct packed *p, const struct activations *a, const struct block *b,
                     u32 i, const u8 *w)
{
    i32 dot[AMX_ROWS * TILE_N] __attribute__((aligned(64)));
    amx_dot(act_row(a, p, b->i0 + i).q + b->k0, pitch(a->k), w, b->k, amx_step(p), dot);
    vi zero[TILE_N / VW];
    vf scale[TILE_N / VW];
    EACH(v, TILE_N / VW, zero[v] = zero_lanes(b, v * VW); scale[v] = v_load(b->scale + v * VW);)
    for (u32 j = 0; j < AMX_ROWS; j++) {
        struct act_row row = act_row(a, p, b->i0 + i + j);
        vi minus_sum = vi_set1(row.minus_sum[b->index]);
        vf x_scale = v_set1(row.scale[b->index]);
        float *acc = b->acc + (size_t)(i + j) * TILE_N;
        EACH(v, TILE_N / VW,
             vi sum = vi_add(vi_load(dot + j * TILE_N + v * VW), vi_mul16(zero[v], minus_sum));
             v_store(acc + v * VW,
                     v_fma(vi_to_f(sum), v_mul(scale[v], x_scale), v_load(acc + v * VW)));)
    }
}

#endif

#ifdef SET_I8MM

/* --- i8mm: smmla multiplies two rows by two features, eight bytes deep ------------------------ */

enum { PAIRS = 4 /* of rows, and of features, that a kernel keeps in registers */ };

/* Fields as bytes, in the order of the activations: [k / 8][TILE_N][8]. */
static const u8 *i8mm_unpack(const struct block *b)
{
    vi nibbles = vi_set1(0x0f0f0f0f), table = fp4_table();
    u32 rows = b->bits / 4; /* of words, for eight features */
    u8 *out = b->buffer;
    for (u32 k = 0; k < b->k; k += 8)
        for (u32 c = 0; c < TILE_N; c += VW, out += 2 * sizeof(vi)) {
            const u8 *at = b->words + k / 8 * rows * ROW_BYTES + (size_t)c * 4;
            vi w = word_lanes(at, b->bits), first, second;
            first = b->bits == 4 ? vi_and(w, nibbles) : w;
            second = b->bits == 4 ? vi_and(vi_srl(w, 4), nibbles) : word_lanes(at + ROW_BYTES, 8);
            if (b->fp4) {
                first = vi_lookup(table, first);
                second = vi_lookup(table, second);
            }
            vi_store(out, vzip1q_s32(first, second));
            vi_store(out + sizeof(vi), vzip2q_s32(first, second));
        }
    return b->buffer;
}

/* Rows [i, i + 8), those past the last row computed but not kept, by eight features from c. */
static void i8mm_rows(const struct packed *p, const struct activations *a, const struct block *b,
                      u32 i, u32 c, const u8 *w)
{
    struct act_row row[2 * PAIRS];
    vi sum[PAIRS * PAIRS];
    EACH(j, 2 * PAIRS, row[j] = act_row(a, p, b->i0 + MIN(i + j, b->rows - 1));)
    EACH(d, PAIRS * PAIRS, sum[d] = vi_set1(0);)
    for (u32 k = 0; k < b->k; k += 8) {
        int8x16_t x[PAIRS], fields[PAIRS];
        EACH(j, PAIRS,
             x[j] = vcombine_s8(vld1_s8(row[2 * j].q + b->k0 + k),
                                vld1_s8(row[2 * j + 1].q + b->k0 + k));
             fields[j] = vld1q_s8((const i8 *)w + (size_t)k * TILE_N + c * 8 + j * 16);)
        EACH(d, PAIRS * PAIRS, sum[d] = vmmlaq_s32(sum[d], x[d / PAIRS], fields[d % PAIRS]);)
    }
    i32 dot[2 * PAIRS][2 * PAIRS];
    EACH(d, PAIRS * PAIRS, vst1_s32(dot[d / PAIRS * 2] + d % PAIRS * 2, vget_low_s32(sum[d]));
         vst1_s32(dot[d / PAIRS * 2 + 1] + d % PAIRS * 2, vget_high_s32(sum[d]));)
    for (u32 j = 0; j < MIN(2 * PAIRS, b->rows - i); j++)
        for (u32 v = 0; v < 2 * PAIRS; v += VW) {
            vi minus = vi_mul16(zero_lanes(b, c + v), vi_set1(row[j].minus_sum[b->index]));
            float *acc = b->acc + (size_t)(i + j) * TILE_N + c + v;
            vf scale = v_mul(v_load(b->scale + c + v), v_set1(row[j].scale[b->index]));
            v_store(acc, v_fma(vi_to_f(vi_add(vi_load(dot[j] + v), minus)), scale, v_load(acc)));
        }
}

static void all_rows(const struct packed *p, const struct activations *a, const struct block *b)
{
    const u8 *w = i8mm_unpack(b);
    for (u32 i = 0; i < b->rows; i += 2 * PAIRS)
        for (u32 c = 0; c < TILE_N; c += 2 * PAIRS)
            i8mm_rows(p, a, b, i, c, w);
}

#else

static void all_rows(const struct packed *p, const struct activations *a, const struct block *b)
{
    const u8 *w = unpack(b);
    u32 i = 0;
#ifdef SET_AMX
    if (amx_step(p) && b->k % amx_step(p) == 0)
        for (; i + AMX_ROWS <= b->rows; i += AMX_ROWS)
            amx_rows(p, a, b, i, w);
#endif
    for (; i + MANY <= b->rows; i += MANY)
        many_rows(p, a, b, i, MANY, w);
    for (; i + 2 <= b->rows; i += 2)
        many_rows(p, a, b, i, 2, w);
    for (; i < b->rows; i++)
        many_rows(p, a, b, i, 1, w);
}

#endif

static void run_block(const struct packed *p, const struct activations *a, const struct block *b)
{
    if (b->fp4 && b->rows == 1) /* experts: two rows of one are rare */
        few_rows(p, a, b, 1, true);
    else if (b->fp4)
        all_rows(p, a, b);
    else if (b->rows == 1)
        few_rows(p, a, b, 1, false);
    else if (b->rows == 2)
        few_rows(p, a, b, 2, false);
    else if (b->rows == 3)
        few_rows(p, a, b, 3, false);
    else if (b->rows == 4)
        few_rows(p, a, b, 4, false);
    else
        all_rows(p, a, b);
}

/* --- the set ------------------------------------------------------------------------------- */

static size_t scratch_bytes(u32 k)
{
    (void)k;
    return sizeof(struct frame_scratch) + ACT_BLOCK * TILE_N;
}

static void matmul(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                   u32 n0, u32 n1, void *scratch)
{
    if (w->w->kind == WEIGHT_PLAIN) {
        LINEAR_PLAIN(w, a, y, y_stride, n0, n1);
        return;
    }
#ifdef SET_AMX
    if (a->m >= AMX_ROWS)
        amx_configure(w);
#endif
    frame_matmul(w, a, y, y_stride, n0, n1, scratch);
#ifdef SET_AMX
    if (a->m >= AMX_ROWS)
        _tile_release();
#endif
}

const struct linear_ops LINEAR_OPS = {
    .activation_bits = 8,
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
