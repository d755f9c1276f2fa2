/* Single elements of a struct weight in the layout of the file: what the scalar reference computes
 * with and what packing starts from. The layouts are those of core/base/weight.h. Nothing here
 * needs alignment.
 */
#ifndef ZIGCUDA_STORED_H
#define ZIGCUDA_STORED_H

#include "core/base/half.h"

static inline u32 stored_word(const void *p, size_t i)
{
    u32 word;
    memcpy(&word, (const u8 *)p + i * 4, 4);
    return word;
}

/* Field i of a dense LSB-first stream of `bits`-wide fields. */
static inline u32 stored_field(u32 word, u32 i, u32 bits)
{
    return word >> i * bits & ((1u << bits) - 1);
}

/* Which nibble of an AWQ word holds column 8c + j. */
static inline u32 stored_awq_nibble(u32 j)
{
    return (j & 1) << 2 | j >> 1;
}

/* Which row of the file is output feature n. */
static inline size_t stored_row(const struct weight *w, u32 n)
{
    return w->kind == WEIGHT_MXFP4 ? (size_t)n * w->row_step : n;
}

/* The unsigned field of output feature n, input feature k: W = scale * (field - zero). */
static inline u32 stored_q(const struct weight *w, u32 n, u32 k)
{
    u32 per = w->bits ? 32 / w->bits : 0;
    switch (w->kind) {
    case WEIGHT_GPTQ:
        return stored_field(stored_word(w->data, (size_t)(k / per) * w->n + n), k % per, w->bits);
    case WEIGHT_AWQ:
        return stored_field(stored_word(w->data, (size_t)k * (w->n / 8) + n / 8),
                            stored_awq_nibble(n % 8), 4);
    case WEIGHT_PACKED:
        return stored_field(stored_word(w->data, (size_t)n * CEIL_DIV(w->k, per) + k / per),
                            k % per, w->bits);
    case WEIGHT_INT8:
        return ((const u8 *)w->data)[(size_t)n * w->k + k] ^ 0x80u;
    case WEIGHT_MXFP4:
        return mxfp4_field(stored_field(
            stored_word(w->data, stored_row(w, n) * (w->k / per) + k / per), k % per, 4));
    default:
        ASSERT(!"a quantised weight");
    }
}

static inline u32 stored_zero(const struct weight *w, u32 n, u32 g)
{
    if (w->kind == WEIGHT_MXFP4)
        return MXFP4_ZERO;
    if (!w->zeros)
        return 1u << (w->bits - 1);
    u32 per = 32 / w->bits, at = n / per;
    switch (w->kind) {
    case WEIGHT_GPTQ: {
        u32 words = CEIL_DIV(w->n, per), mask = (1u << w->bits) - 1;
        u32 z = stored_field(stored_word(w->zeros, (size_t)g * words + at), n % per, w->bits);
        return (z + w->zero_plus_one) & mask;
    }
    case WEIGHT_AWQ:
        return stored_field(stored_word(w->zeros, (size_t)g * (w->n / 8) + at),
                            stored_awq_nibble(n % 8), 4);
    case WEIGHT_PACKED:
        return stored_field(stored_word(w->zeros, (size_t)at * w->groups + g), n % per, w->bits);
    case WEIGHT_INT8:
        return ((const u8 *)w->zeros)[n] ^ 0x80u;
    default:
        ASSERT(!"a quantised weight");
    }
}

/* Index of the scale in w->scales. */
static inline size_t stored_scale_at(const struct weight *w, u32 n, u32 g)
{
    bool by_group = w->kind == WEIGHT_GPTQ || w->kind == WEIGHT_AWQ;
    return by_group ? (size_t)g * w->n + n : stored_row(w, n) * w->groups + g;
}

static inline float stored_scale(const struct weight *w, u32 n, u32 g)
{
    float scale = half_load(w->scales, w->scale_type, stored_scale_at(w, n, g));
    return w->kind == WEIGHT_MXFP4 ? scale / 2 : scale; /* fields are values twice */
}

static inline u32 stored_group(const struct weight *w, u32 k)
{
    i32 g;
    if (!w->group_index)
        return k / w->group;
    memcpy(&g, (const u8 *)w->group_index + (size_t)k * 4, 4);
    return (u32)g;
}

static inline float stored_bias(const struct weight *w, u32 n)
{
    return w->bias ? half_load(w->bias, w->bias_type, stored_row(w, n)) : 0;
}

#endif
