/* See tensor.h. The time of tests with kernels goes here, so sums are in vectors. */
#include "tests/fakecuda/tensor.h"
#include "kernels/cuda/gpu.cuh"

#ifdef __F16C__
#include <immintrin.h>
#endif

static void get_b(u32 b[32][2], const struct lane *lanes)
{
    for (u32 i = 0; i < 32; i++)
        memcpy(b[i], lanes[i].b, sizeof b[i]);
}

typedef float floats __attribute__((vector_size(16)));
typedef double doubles __attribute__((vector_size(32)));
typedef i32 ints __attribute__((vector_size(32)));
typedef i16 shorts __attribute__((vector_size(32)));

static void to_doubles(void *to, const u16 *from, u32 n)
{
    for (u32 i = 0; i < n; i += 4) {
#ifdef __F16C__
        doubles v = _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(from + i))));
#else
        doubles v;
        for (u32 j = 0; j < 4; j++)
            v[j] = gpu_from_half(from[i + j]);
#endif
        memcpy((u8 *)to + i * sizeof(double), &v, sizeof v);
    }
}

static void put(u16 *to, u32 pair)
{
    memcpy(to, &pair, 4);
}

static void get_a(double a[16][16], const struct lane *lanes)
{
    u16 half[16][16];
    for (u32 i = 0; i < 32; i++) {
        const u32 *from = lanes[i].a, g = i / 4, t = i % 4;
        put(&half[g][2 * t], from[0]);
        put(&half[g + 8][2 * t], from[1]);
        put(&half[g][2 * t + 8], from[2]);
        put(&half[g + 8][2 * t + 8], from[3]);
    }
    to_doubles(a, half[0], 256);
}

/* c + at += a b, in order of k and with one rounding to f32; a real tensor core keeps a little less
 * of each product. Products of halves are exact in a double, so it does not count whether the
 * compiler fuses them with the sums (-ffp-contract=fast), as for speed it may. */
static void multiply(const struct lane *lanes, u32 at, const double a[16][16],
                     const u32 b_of[32][2])
{
    u16 half[16][8];
    doubles b[16][2];
    floats c[16][2];
    for (u32 i = 0; i < 32; i++) {
        const u32 g = i / 4, t = i % 4;
        for (u32 k = 0; k < 2; k++) {
            half[2 * t + 8 * k][g] = (u16)b_of[i][k];
            half[2 * t + 8 * k + 1][g] = (u16)(b_of[i][k] >> 16);
        }
        memcpy((float *)c[g] + 2 * t, lanes[i].c + at, 8);
        memcpy((float *)c[g + 8] + 2 * t, lanes[i].c + at + 2, 8);
    }
    to_doubles(b, half[0], 128);
    for (u32 m = 0; m < 16; m += 4) { /* as many sums as registers hold */
        doubles sum[4][2];
#pragma GCC unroll 8
        for (u32 i = 0; i < 8; i++)
            sum[i / 2][i % 2] = __builtin_convertvector(c[m + i / 2][i % 2], doubles);
        for (u32 k = 0; k < 16; k++)
#pragma GCC unroll 8
            for (u32 i = 0; i < 8; i++) {
                const double v = a[m + i / 2][k];
                sum[i / 2][i % 2] += (doubles){v, v, v, v} * b[k][i % 2];
            }
#pragma GCC unroll 8
        for (u32 i = 0; i < 8; i++)
            c[m + i / 2][i % 2] = __builtin_convertvector(sum[i / 2][i % 2], floats);
    }
    for (u32 i = 0; i < 32; i++) {
        const u32 g = i / 4, t = i % 4;
        memcpy(lanes[i].c + at, (float *)c[g] + 2 * t, 8);
        memcpy(lanes[i].c + at + 2, (float *)c[g + 8] + 2 * t, 8);
    }
}

void tensor_multiply(const struct lane *lanes)
{
    double a[16][16];
    u32 b[32][2];
    get_a(a, lanes);
    get_b(b, lanes);
    multiply(lanes, 0, a, b);
}

static void get_a_bytes(i16 a[16][32], const struct lane *lanes)
{
    for (u32 i = 0; i < 32; i++)
        for (u32 j = 0; j < 4; j++) {
            i16 *to = &a[i / 4 + j % 2 * 8][j / 2 * 16 + i % 4 * 4];
            for (u32 k = 0; k < 4; k++)
                to[k] = (u8)(lanes[i].a[j] >> 8 * k);
        }
}

static ints add_products(ints sum, const i16 pair[2], shorts b)
{
#ifdef __AVX2__
    i32 both;
    memcpy(&both, pair, sizeof both);
    return sum + (ints)_mm256_madd_epi16(_mm256_set1_epi32(both), (__m256i)b);
#else
    for (u32 n = 0; n < 8; n++)
        sum[n] += pair[0] * b[2 * n] + pair[1] * b[2 * n + 1];
    return sum;
#endif
}

static void multiply_bytes(const struct lane *lanes, u32 at, const i16 a[16][32],
                           const u32 b_of[32][2])
{
    i16 pairs[16][8][2]; /* of k, for each n */
    shorts b[16];
    for (u32 i = 0; i < 32; i++)
        for (u32 k = 0; k < 32; k += 2)
            if (k / 4 % 4 == i % 4)
                for (u32 j = 0; j < 2; j++)
                    pairs[k / 2][i / 4][j] = (i8)(b_of[i][k / 16] >> (k + j) % 4 * 8);
    memcpy(b, pairs, sizeof b);
    for (u32 m = 0; m < 16; m++) {
        ints sum = {};
        for (u32 k = 0; k < 16; k++)
            sum = add_products(sum, &a[m][2 * k], b[k]);
        for (u32 n = 0; n < 8; n++)
            lanes[m % 8 * 4 + n / 2].ints[at + m / 8 * 2 + n % 2] += sum[n];
    }
}

void tensor_multiply_bytes(const struct lane *lanes)
{
    i16 a[16][32];
    u32 b[32][2];
    get_a_bytes(a, lanes);
    get_b(b, lanes);
    multiply_bytes(lanes, 0, a, b);
}

/* The b-fragments of each 8 tokens come from shared memory. */
void tensor_multiply_group(const struct lane *lanes)
{
    double a[16][16];
    i16 bytes[16][32];
    u32 b[32][2];
    if (lanes->ints)
        get_a_bytes(bytes, lanes);
    else
        get_a(a, lanes);
    for (u32 j = 0; j < lanes->tokens / 8; j++) {
        const u8 *tiles = lanes->row + (size_t)j * lanes->stride;
        for (u32 i = 0; i < 32; i++)
            for (u32 k = 0; k < 2; k++)
                memcpy(&b[i][k], tiles + k * lanes->further + i * 4, 4);
        if (lanes->ints)
            multiply_bytes(lanes, 4 * j, bytes, b);
        else
            multiply(lanes, 4 * j, a, b);
    }
}

void tensor_load_tiles(const struct lane *lanes, bool transposed)
{
    for (u32 i = 0; i < 32; i++)
        for (u32 tile = 0; tile < 4; tile++) {
            const u32 g = i / 4, t = i % 4;
            const struct lane *rows = &lanes[tile * 8];
            u16 h[2];
            if (transposed)
                for (u32 j = 0; j < 2; j++)
                    memcpy(&h[j], rows[2 * t + j].row + 2 * g, 2);
            else
                memcpy(h, rows[g].row + 4 * t, 4);
            memcpy(&lanes[i].r[tile], h, 4);
        }
}
