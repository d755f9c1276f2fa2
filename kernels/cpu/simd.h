/* Vectors of 32-bit lanes under one set of names, so that a kernel is written once and compiled
 * for AVX-512 (16 lanes), AVX2 (8) and NEON (4). The compiler's target flags choose. Loads and
 * stores need no alignment.
 *
 * vi_dot adds to every i32 lane the exact dot product of four bytes of weights with four signed
 * bytes of activations (-127..127). Weights are unsigned, but where DOT_SIGNED they are signed when
 * they use all 8 bits.
 *
 * vi_lookup gives of each byte the byte of that number of a table of 16 (vi_load_each16), and 0 of
 * bytes above 127.
 */
#ifndef ZIGCUDA_SIMD_H
#define ZIGCUDA_SIMD_H

#include "core/base/base.h"

/* The statements once for every d < n, n a constant of at most 16, with d a constant too. Loops
 * over arrays of vectors are written so because the compiler keeps such an array in registers only
 * if no index is ever a variable. */
#define EACH(d, n, ...)              \
    EACH_FOUR_(d, n, 0, __VA_ARGS__) \
    EACH_FOUR_(d, n, 4, __VA_ARGS__) \
    EACH_FOUR_(d, n, 8, __VA_ARGS__) EACH_FOUR_(d, n, 12, __VA_ARGS__)
#define EACH_FOUR_(d, n, at, ...)        \
    EACH_ONE_(d, n, at, __VA_ARGS__)     \
    EACH_ONE_(d, n, at + 1, __VA_ARGS__) \
    EACH_ONE_(d, n, at + 2, __VA_ARGS__) EACH_ONE_(d, n, at + 3, __VA_ARGS__)
#define EACH_ONE_(d, n, at, ...) \
    {                            \
        const u32 d = (at);      \
        if (d < (n)) {           \
            __VA_ARGS__          \
        }                        \
    }

#if defined(__AVX512F__)

#include <immintrin.h>
enum { VW = 16 };
typedef __m512 vf;
typedef __m512i vi;
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_set1(x) _mm512_set1_ps(x)
#define v_zero() _mm512_setzero_ps()
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_load_i8(p) \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define v_load_f16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define v_load_bf16(p)                     \
    _mm512_castsi512_ps(_mm512_slli_epi32( \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define vi_load(p) _mm512_loadu_si512((const void *)(p))
#define vi_store(p, v) _mm512_storeu_si512((void *)(p), v)
#define vi_load_u8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_set1(x) _mm512_set1_epi32(x)
#define vi_and(a, b) _mm512_and_si512(a, b)
#define vi_or(a, b) _mm512_or_si512(a, b)
#define vi_xor(a, b) _mm512_xor_si512(a, b)
#define vi_add(a, b) _mm512_add_epi32(a, b)
#define vi_sub(a, b) _mm512_sub_epi32(a, b)
#define vi_srl(a, n) _mm512_srli_epi32(a, n)
#define vi_sll(a, n) _mm512_slli_epi32(a, n)
#define vi_load_each16(p) \
    _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_lookup(table, bytes) _mm512_shuffle_epi8(table, bytes)
#define vi_mul16(a, b) _mm512_madd_epi16(a, b) /* lanes of at most 16 bits, a not negative */
#define vi_to_f(a) _mm512_cvtepi32_ps(a)
#define vi_as_f(a) _mm512_castsi512_ps(a)
#if defined(__AVX512VNNI__)
enum { DOT_SIGNED = 0 };
#define vi_dot(acc, w, x, bits) ((void)(bits), _mm512_dpbusd_epi32(acc, w, x))
#endif

#elif defined(__AVX2__)

#include <immintrin.h>
enum { VW = 8 };
typedef __m256 vf;
typedef __m256i vi;
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_set1(x) _mm256_set1_ps(x)
#define v_zero() _mm256_setzero_ps()
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_sub(a, b) _mm256_sub_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_load_i8(p) \
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define v_load_f16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define v_load_bf16(p)                     \
    _mm256_castsi256_ps(_mm256_slli_epi32( \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
#define vi_load(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_store(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define vi_load_u8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define vi_set1(x) _mm256_set1_epi32(x)
#define vi_and(a, b) _mm256_and_si256(a, b)
#define vi_or(a, b) _mm256_or_si256(a, b)
#define vi_xor(a, b) _mm256_xor_si256(a, b)
#define vi_add(a, b) _mm256_add_epi32(a, b)
#define vi_sub(a, b) _mm256_sub_epi32(a, b)
#define vi_srl(a, n) _mm256_srli_epi32(a, n)
#define vi_sll(a, n) _mm256_slli_epi32(a, n)
#define vi_load_each16(p) \
    _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_lookup(table, bytes) _mm256_shuffle_epi8(table, bytes)
#define vi_mul16(a, b) _mm256_mullo_epi32(a, b)
#define vi_to_f(a) _mm256_cvtepi32_ps(a)
#define vi_as_f(a) _mm256_castsi256_ps(a)
#if defined(__AVXVNNI__)
enum { DOT_SIGNED = 0 };
#define vi_dot(acc, w, x, bits) ((void)(bits), _mm256_dpbusd_avx_epi32(acc, w, x))
#else
enum { DOT_SIGNED = 1 };
/* vpmaddubsw saturates a sum of two products at 16 bits: 24 * 127 * 2 and 128 * 127 * 2 fit. */
static inline vi vi_dot(vi acc, vi w, vi x, u32 bits)
{
    vi pairs = bits == 4 ? _mm256_maddubs_epi16(w, x)
                         : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

#elif defined(__ARM_NEON)

#include <arm_neon.h>
enum { VW = 4 };
typedef float32x4_t vf;
typedef int32x4_t vi;
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_set1(x) vdupq_n_f32(x)
#define v_zero() vdupq_n_f32(0)
#define v_add(a, b) vaddq_f32(a, b)
#define v_sub(a, b) vsubq_f32(a, b)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
static inline vf v_load_i8(const i8 *p)
{
    i32 four;
    memcpy(&four, p, 4);
    int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
#define v_load_f16(p) vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const u8 *)(p))))
#define v_load_bf16(p) \
    vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8((const u8 *)(p))), 16))
#define vi_load(p) vreinterpretq_s32_u8(vld1q_u8((const u8 *)(p)))
#define vi_store(p, v) vst1q_u8((u8 *)(p), vreinterpretq_u8_s32(v))
static inline vi vi_load_u8(const void *p)
{
    u32 four;
    memcpy(&four, p, 4);
    uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
#define vi_set1(x) vdupq_n_s32(x)
#define vi_and(a, b) vandq_s32(a, b)
#define vi_or(a, b) vorrq_s32(a, b)
#define vi_xor(a, b) veorq_s32(a, b)
#define vi_add(a, b) vaddq_s32(a, b)
#define vi_sub(a, b) vsubq_s32(a, b)
#define vi_srl(a, n) \
    vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-(int)(n))))
#define vi_sll(a, n) vshlq_n_s32(a, n)
#define vi_load_each16(p) vi_load(p)
#define vi_lookup(table, bytes) \
    vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(bytes)))
#define vi_mul16(a, b) vmulq_s32(a, b)
#define vi_to_f(a) vcvtq_f32_s32(a)
#define vi_as_f(a) vreinterpretq_f32_s32(a)
#if defined(__ARM_FEATURE_DOTPROD)
enum { DOT_SIGNED = 1 };
#define vi_dot(acc, w, x, bits) \
    ((void)(bits), vdotq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x)))
#endif

#endif

#define v_load_e8m0(p) vi_as_f(vi_sll(vi_load_u8(p), 23))

/* VW values of type f32, f16 or bf16 as f32. */
#define v_load_as(p, type)                   \
    ((type) == DTYPE_F16    ? v_load_f16(p)  \
     : (type) == DTYPE_BF16 ? v_load_bf16(p) \
                            : v_load((const float *)(const void *)(p)))

#endif
