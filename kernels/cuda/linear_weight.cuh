/* Packed weights to a-fragments, exactly: a quantised value becomes the half q - zero by the magic
 * number 1024 (0x6400), whose lowest mantissa bit is worth 1 (Kim et al. 2022, "Who Says Elephants
 * Can't Run", arXiv 2211.10017). And outputs, whatever way they were summed.
 */
#ifndef ZIGCUDA_LINEAR_WEIGHT_CUH
#define ZIGCUDA_LINEAR_WEIGHT_CUH

#include "kernels/cuda/linear_input.cuh"

enum {
    WEIGHT_CHUNK_BYTES = 512,
    WEIGHT_MAGIC = 0x64006400,
    LOP3_AND_OR = 0xea, /* a & b | c */
};

/* Where the groups of a matrix are: which one has the packed inputs from i * granule on. Pieces
 * (step.h) are of 64 inputs when the granule is 128, else of 32. */
struct weight_groups {
    u32 granule, inverse; /* inverse: 2^32 / granules of a group, rounded up; 0: one granule */
};

GPU struct weight_groups weight_groups_of(const struct matrix *m)
{
    struct weight_groups g = {m->group % 128 == 0 ? 128u : 32u, 0};
    u32 granules = m->group / g.granule;
    if (granules > 1)
        g.inverse = ~0u / granules + 1;
    return g;
}

/* The group of granule i. Exact while i and the granules of a group stay below 2^16: packed inputs
 * below 2^21. */
GPU u32 weight_group(const struct weight_groups *g, u32 i)
{
    return g->inverse ? (u32)((u64)i * g->inverse >> 32) : i;
}

/* What the two rows of a lane (g and g + 8) subtract. INT4: row g as 1024 + zero; row g + 8, whose
 * nibbles are read 16 times too large, as -(64 + zero). INT8: both as 1024 + zero. */
struct weight_zero {
    u32 low, high;
};

template <u32 kind> GPU struct weight_zero weight_zero_of(u32 low, u32 high)
{
    struct weight_zero z;
    z.low = (0x6400 | low) * 0x10001;
    z.high = (kind == MATRIX_INT4 ? 0xd400 | high << 4 : 0x6400 | high) * 0x10001;
    return z;
}

/* The a-fragments of tile i of those of which this lane has `word`. */
template <u32 kind>
GPU void weight_fragment(u32 a[4], const u32 word[4], u32 i, const struct weight_zero *z)
{
    if (kind == MATRIX_INT4) {
        u32 w = word[i], v = w >> 8;
        a[0] = gpu_half2_sub(gpu_lop3<LOP3_AND_OR>(w, 0x000f000f, WEIGHT_MAGIC), z->low);
        a[1] = gpu_half2_fma(gpu_lop3<LOP3_AND_OR>(w, 0x00f000f0, WEIGHT_MAGIC), 0x2c002c00,
                             z->high); /* / 16 */
        a[2] = gpu_half2_sub(gpu_lop3<LOP3_AND_OR>(v, 0x000f000f, WEIGHT_MAGIC), z->low);
        a[3] =
            gpu_half2_fma(gpu_lop3<LOP3_AND_OR>(v, 0x00f000f0, WEIGHT_MAGIC), 0x2c002c00, z->high);
    } else if (kind == MATRIX_INT8) {
        u32 w = word[2 * i], v = word[2 * i + 1];
        a[0] = gpu_half2_sub(gpu_permute_bytes(w, WEIGHT_MAGIC, 0x5150), z->low);
        a[1] = gpu_half2_sub(gpu_permute_bytes(w, WEIGHT_MAGIC, 0x5352), z->high);
        a[2] = gpu_half2_sub(gpu_permute_bytes(v, WEIGHT_MAGIC, 0x5150), z->low);
        a[3] = gpu_half2_sub(gpu_permute_bytes(v, WEIGHT_MAGIC, 0x5352), z->high);
    } else {
        for (u32 j = 0; j < 4; j++)
            a[j] = word[j];
    }
}

GPU u32 weight_scale_bytes(const struct matrix *m)
{
    return m->scale_type == DTYPE_F32 ? 4 : 2;
}

/* Scales of rows g and g + 8 of a block of 16, and what to subtract. */
struct weight_rows {
    float low, high;
    struct weight_zero zero;
};

/* How a lane reads those from shared memory: the same few instructions for every type. */
struct weight_reader {
    u32 at, step, shift; /* of the word with row g's scale; bytes to row g + 8; bits to drop */
    bool f32, f16, zeros;
    u32 row;
};

GPU struct weight_reader weight_reader_of(const struct matrix *m)
{
    struct weight_reader r;
    u32 size = weight_scale_bytes(m);
    r.row = gpu_lane() / 4;
    r.f32 = m->scale_type == DTYPE_F32;
    r.f16 = m->scale_type == DTYPE_F16;
    r.at = r.row * size & ~3u;
    r.step = 8 * size;
    r.shift = r.row * size % 4 * 8;
    r.zeros = m->zeros != NULL;
    return r;
}

GPU float weight_read(const struct weight_reader *r, const u8 *word)
{
    u32 bits = *(const u32 *)word, half = bits >> r->shift;
    float f16 = gpu_from_half((u16)half), wide = gpu_from_bits(r->f32 ? bits : half << 16);
    return r->f16 ? f16 : wide;
}

/* From 16 zeros, when there are. */
template <u32 kind>
GPU struct weight_zero weight_zeros_of(const struct weight_reader *r, const u8 *zeros)
{
    const u32 none = kind == MATRIX_INT4 ? 8 : 128;
    u32 low = zeros[r->row], high = zeros[r->row + 8]; /* something, when there are none */
    return weight_zero_of<kind>(r->zeros ? low : none, r->zeros ? high : none);
}

/* From 16 scales, and 16 zeros when there are. */
template <u32 kind>
GPU struct weight_rows weight_rows_of(const struct weight_reader *r, const u8 *scales,
                                      const u8 *zeros)
{
    struct weight_rows rows;
    rows.low = weight_read(r, scales + r->at);
    rows.high = weight_read(r, scales + r->at + r->step);
    rows.zero = weight_zeros_of<kind>(r, zeros);
    return rows;
}

/* p += a piece's sum, scaled. */
GPU void weight_add(float p[4], const float sum[4], const struct weight_rows *r)
{
    p[0] = fmaf(r->low, sum[0], p[0]);
    p[1] = fmaf(r->low, sum[1], p[1]);
    p[2] = fmaf(r->high, sum[2], p[2]);
    p[3] = fmaf(r->high, sum[3], p[3]);
}

/* --- outputs ------------------------------------------------------------------------------- */

GPU float linear_activate(float x, u32 activation)
{
    if (activation == ACT_SILU)
        return x * gpu_reciprocal(1 + gpu_exp2(x * -1.442695041f));
    if (activation == ACT_GELU_TANH)
        return 0.5f * x * (1 + tanhf(0.7978845608f * fmaf(0.044715f * x * x, x, x)));
    return 0.5f * x * (1 + erff(x * 0.7071067812f));
}

/* The value of output n of a part: from the sum of its slices and the scale of the token. */
GPU float linear_value_of(const struct matrix *m, u32 n, float sum, float scale)
{
    if (m->kind == MATRIX_HALF)
        sum *= ((const float *)m->scales)[n];
    return m->bias ? fmaf(sum, scale, m->bias[n]) : sum * scale;
}

/* Puts output n of part p for a token. `old`: what y had, for OUTPUT_ADD. */
GPU void linear_store(const struct op_linear *op, u32 p, u32 token, u32 n, float v, float old)
{
    if (op->output == OUTPUT_ADD)
        v += old;
    if (op->softcap > 0)
        v = op->softcap * tanhf(v / op->softcap);
    op->y[(size_t)token * op->y_stride + op->at[p] + n] = v;
}

#endif
