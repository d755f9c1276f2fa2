/* A weight in the form of its file (core/base/weight.h, kernels/cpu/stored.h) to the form of struct
 * matrix. A block of threads takes 16 packed rows at a time; a thread makes the 16 bytes that one
 * lane will read. Where gates and ups share blocks of rows, each pass leaves the other's bits
 * alone, so the two passes must not run at once. Done once, at load: clarity before speed.
 */
#ifndef ZIGCUDA_PACK_CUH
#define ZIGCUDA_PACK_CUH

#include "kernels/cuda/gpu.cuh"

enum { PACK_BEYOND = 0xffffffffu }; /* a packed row that is not this pass's */

GPU u32 pack_load16(const void *p, size_t i)
{
    const u8 *b = (const u8 *)p + i * 2;
    return b[0] | (u32)b[1] << 8;
}

GPU u32 pack_load32(const void *p, size_t i)
{
    const u8 *b = (const u8 *)p + i * 4;
    if ((uintptr_t)b % 4 == 0)
        return *(const u32 *)b;
    return b[0] | (u32)b[1] << 8 | (u32)b[2] << 16 | (u32)b[3] << 24;
}

GPU float pack_load_float(const void *p, u32 type, size_t i)
{
    if (type == DTYPE_F32)
        return gpu_from_bits(pack_load32(p, i));
    u16 v = (u16)pack_load16(p, i);
    return type == DTYPE_F16 ? gpu_from_half(v) : gpu_from_bf16(v);
}

GPU u32 pack_field(u32 word, u32 i, u32 bits)
{
    return word >> i * bits & ((1u << bits) - 1);
}

/* Which of the rows of values, scales or bias that lie there is output j's. */
GPU size_t pack_row(const struct weight *w, u32 j)
{
    return (size_t)j * (w->kind == WEIGHT_MXFP4 ? w->row_step : 1);
}

/* Which nibble of an AWQ word holds column 8c + j. */
GPU u32 pack_awq_nibble(u32 j)
{
    return (j & 1) << 2 | j >> 1;
}

/* 2^(s - 127) times 2^14, as bf16; from 2^114 on infinite. */
GPU u32 pack_e8m0(u32 s)
{
    return s == 0 ? 0 : MIN(s + 14, 255u) << 7;
}

/* The unsigned value of output j, feature f. */
GPU u32 pack_q(const struct weight *w, u32 stride, u32 j, u32 f)
{
    u32 per = 32 / w->bits;
    if (w->kind == WEIGHT_GPTQ)
        return pack_field(pack_load32(w->data, (size_t)(f / per) * stride + j), f % per, w->bits);
    if (w->kind == WEIGHT_AWQ)
        return pack_field(pack_load32(w->data, (size_t)f * (stride / 8) + j / 8),
                          pack_awq_nibble(j % 8), 4);
    if (w->kind == WEIGHT_PACKED)
        return pack_field(pack_load32(w->data, (size_t)j * CEIL_DIV(w->k, per) + f / per), f % per,
                          w->bits);
    if (w->kind == WEIGHT_MXFP4)
        return ((const u8 *)w->data)[pack_row(w, j) * (w->k / 2) + f / 2] >> f % 2 * 4 & 15;
    return ((const u8 *)w->data)[(size_t)j * w->k + f] ^ 0x80u;
}

GPU u32 pack_zero(const struct weight *w, u32 stride, u32 j, u32 g)
{
    u32 per = 32 / w->bits, mask = (1u << w->bits) - 1;
    if (!w->zeros)
        return 1u << (w->bits - 1);
    if (w->kind == WEIGHT_GPTQ) {
        u32 word = pack_load32(w->zeros, (size_t)g * CEIL_DIV(stride, per) + j / per);
        return (pack_field(word, j % per, w->bits) + w->zero_plus_one) & mask;
    }
    if (w->kind == WEIGHT_AWQ)
        return pack_field(pack_load32(w->zeros, (size_t)g * (stride / 8) + j / 8),
                          pack_awq_nibble(j % 8), 4);
    if (w->kind == WEIGHT_PACKED)
        return pack_field(pack_load32(w->zeros, (size_t)(j / per) * w->groups + g), j % per,
                          w->bits);
    return ((const u8 *)w->zeros)[j] ^ 0x80u;
}

/* The output that packed row `row` holds: at least from.n for padding; PACK_BEYOND: not ours. */
GPU u32 pack_output(const struct gpu_pack *p, u32 row)
{
    u32 in = row % p->step - p->at;
    return in < p->run ? row / p->step * p->run + in : (u32)PACK_BEYOND;
}

/* Bits of output j, packed input i; `factor`: of the row, for halves. Padding is 0. */
GPU u32 pack_bits(const struct gpu_pack *p, u32 j, u32 i, float factor)
{
    const struct weight *w = &p->from;
    u32 f = p->order ? p->order[i] : i;
    if (j >= w->n || f >= w->k)
        return 0;
    if (w->kind != WEIGHT_PLAIN)
        return pack_q(w, p->stride, j, f);
    return gpu_half(pack_load_float(w->data, w->type, (size_t)j * w->k + f) * factor);
}

/* Word `at` (0..3) that `lane` reads of a chunk. */
GPU void pack_word(const struct gpu_pack *p, u32 block, u32 chunk, u32 lane, u32 at,
                   const float *factors, u32 *to)
{
    u32 kind = p->to.kind, shift = MATRIX_SHIFT(kind), word = 0, mask = 0;
    u32 bits = 4u << shift, fields = 8u >> shift, per_tile = 1u << shift; /* words */
    u32 tile = chunk * (4 >> shift) + at / per_tile;
    for (u32 i = 0; i < fields; i++) {
        u32 high, a; /* which half of which of a[0..3] (gpu_mma) */
        if (kind == MATRIX_INT4) {
            high = i / 4, a = i % 4;
        } else if (kind == MATRIX_FP4) {
            high = i / 2 % 2, a = i % 2 * 2 + i / 4;
        } else {
            high = i % 2, a = (at % per_tile * fields + i) / 2;
        }
        u32 row = lane / 4 + a % 2 * 8, k = tile * 16 + lane % 4 * 2 + high + a / 2 * 8;
        u32 j = pack_output(p, block * 16 + row);
        if (j == PACK_BEYOND)
            continue;
        word |= pack_bits(p, j, k, factors[row]) << i * bits;
        mask |= ((1u << bits) - 1) << i * bits;
    }
    *to = mask == ~0u ? word : (*to & ~mask) | word;
}

/* Halves: the power of two of each of the 16 rows that brings its largest magnitude into [2^13,
 * 2^14), into factors; its inverse is the row's scale. */
GPU void pack_factors(const struct gpu_pack *p, u32 block, float *factors)
{
    const struct weight *w = &p->from;
    u32 row = gpu_thread() / 16, j = pack_output(p, block * 16 + row), most = 0;
    for (u32 f = gpu_thread() % 16; j < w->n && f < w->k; f += 16) {
        float v = fabsf(pack_load_float(w->data, w->type, (size_t)j * w->k + f));
        most = MAX(most, gpu_bits(v));
    }
    for (u32 mask = 8; mask; mask /= 2)
        most = gpu_max_xor(most, mask);
    u32 up = MIN(267 - (most >> 23), 253u);
    if (gpu_thread() % 16 == 0) {
        factors[row] = gpu_from_bits(up << 23);
        if (j != PACK_BEYOND)
            ((float *)p->to.scales)[block * 16 + row] = gpu_from_bits((254 - up) << 23);
    }
}

/* Scales and zeros of a block of rows. */
GPU void pack_scales(const struct gpu_pack *p, u32 block)
{
    const struct weight *w = &p->from;
    bool by_group = w->kind == WEIGHT_GPTQ || w->kind == WEIGHT_AWQ;
    for (u32 i = gpu_thread(); i < p->to.groups * 16; i += GPU_THREADS) {
        u32 row = i % 2 * 8 + i % 16 / 2, j = pack_output(p, block * 16 + row);
        u32 g = i / 16 * p->to.group / p->group;
        size_t from = by_group ? (size_t)g * p->stride + j : pack_row(w, j) * w->groups + g;
        size_t to = (size_t)block * p->to.groups * 16 + i;
        if (j == PACK_BEYOND)
            continue;
        bool real = j < w->n && g < w->groups; /* padded inputs may be a group of their own */
        if (w->scale_type == DTYPE_F32)
            ((u32 *)p->to.scales)[to] = real ? pack_load32(w->scales, from) : 0;
        else if (w->scale_type == DTYPE_E8M0)
            ((u16 *)p->to.scales)[to] = (u16)(real ? pack_e8m0(((const u8 *)w->scales)[from]) : 0);
        else
            ((u16 *)p->to.scales)[to] = (u16)(real ? pack_load16(w->scales, from) : 0);
        if (p->to.zeros)
            ((u8 *)p->to.zeros)[to] = (u8)(real ? pack_zero(w, p->stride, j, g) : 0);
    }
}

GPU void pack_bias(const struct gpu_pack *p, u32 block)
{
    const struct weight *w = &p->from;
    u32 row = block * 16 + gpu_thread(), j = pack_output(p, row);
    if (gpu_thread() < 16 && row < p->to.n && j != PACK_BEYOND && p->to.bias)
        ((float *)p->to.bias)[row] =
            w->bias && j < w->n ? pack_load_float(w->bias, w->bias_type, pack_row(w, j)) : 0;
}

GPU void pack_run(const struct gpu_pack *p)
{
    float *factors = (float *)gpu_shared(); /* [16] */
    u32 kind = p->to.kind, pieces = p->to.k / (64 >> MATRIX_SHIFT(kind)) * 32;
    for (u32 block = gpu_block(); block < CEIL_DIV(p->to.n, 16); block += gpu_blocks()) {
        gpu_sync();
        if (kind == MATRIX_HALF)
            pack_factors(p, block, factors);
        else
            pack_scales(p, block);
        pack_bias(p, block);
        gpu_sync();
        u32 *to = (u32 *)p->to.data + (size_t)block * pieces * 4;
        for (u32 i = gpu_thread(); i < pieces; i += GPU_THREADS)
            for (u32 at = 0; at < 4; at++)
                pack_word(p, block, i / 32, i % 32, at, factors, to + i * 4 + at);
    }
}

#endif
