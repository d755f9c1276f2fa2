/* The matrix kernels of this build, one table a set, and the pieces that the sets share. */
#ifndef ZIGCUDA_LINEAR_H
#define ZIGCUDA_LINEAR_H

#include "kernels/kernels.h"

/* Formats: every weight kind, every scale and bias type. */
extern const struct linear_ops linear_scalar;
extern const struct linear_ops linear_avx2, linear_avx2_int8, linear_avx_vnni, linear_avx512,
    linear_avx512_vnni, linear_amx;
extern const struct linear_ops linear_neon, linear_neon_dotprod, linear_neon_i8mm;

/* The matmul of every set with such vectors for plain matrices, in the set's own file its
 * LINEAR_PLAIN. */
void linear_plain_avx2(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                       u32 n0, u32 n1);
void linear_plain_avx512(const struct packed *w, const struct activations *a, float *y,
                         u32 y_stride, u32 n0, u32 n1);
void linear_plain_neon(const struct packed *w, const struct activations *a, float *y, u32 y_stride,
                       u32 n0, u32 n1);
#if defined(__AVX512F__)
#define LINEAR_PLAIN linear_plain_avx512
#elif defined(__AVX2__)
#define LINEAR_PLAIN linear_plain_avx2
#elif defined(__ARM_NEON)
#define LINEAR_PLAIN linear_plain_neon
#endif

/* Row j of any stored matrix as f32. The `row` of every set. */
void linear_row(const struct packed *w, u32 j, float *y);

/* Rounds a whole row to int8 and back: y = round(x / s) * s with s = absmax(x) / 127. What a
 * matrix with int8_activations sees, in f32. */
void linear_round_row(float *y, const float *x, u32 k);

#endif
