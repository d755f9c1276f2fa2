/* Tensors and weight matrices as they lie in a model file: views, never copies. core/model fills
 * them, drivers and kernels read them. The formats are described with each kind; sources: the
 * AutoGPTQ, AutoAWQ and compressed-tensors projects. K = input features, N = output features.
 *
 * What a reader may assume. Shapes were checked: every view has exactly the elements that n, k,
 * bits and groups say. Alignment was not: writers before 2023 left tensors at any byte, so data,
 * zeros, scales and bias are read by unaligned vector loads or memcpy, never through a typed
 * pointer. group_index is aligned for i32 and every entry is in range. Values are not checked: a
 * scale may be NaN or infinite. Bytes are little-endian.
 */
#ifndef ZIGCUDA_WEIGHT_H
#define ZIGCUDA_WEIGHT_H

#include "core/base/base.h"

enum dtype {
    DTYPE_NONE,
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I8,
    DTYPE_U8,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_E8M0, /* a byte s is 2^(s - 127), but 0 is 0 and 255 infinity: scales of MXFP4 */
    DTYPE_OTHER /* a valid safetensors type that no kernel takes */
};

/* What becomes of gate and up: act(gate) * up. Of gpt-oss, with g = min(gate, 7) and u = up kept
 * within -7 and 7: g * sigmoid(1.702 g) * (u + 1). */
enum activation { ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_SIGMOID, ACT_GPT_OSS, ACT_RELU };

enum { TENSOR_RANK_MAX = 8 };

struct tensor {
    struct str name;
    const char *file; /* path of the file it lies in, for messages */
    const void *data; /* inside the mapped file; aligned only as the writer left it */
    size_t bytes;
    enum dtype type;
    const char *type_name; /* as the file spells it: "BF16"; for messages */
    u32 rank;
    u64 shape[TENSOR_RANK_MAX];
};

enum weight_kind {
    WEIGHT_NONE,
    WEIGHT_PLAIN,  /* [N][K] of f32, f16 or bf16 */
    WEIGHT_GPTQ,   /* i32 [K*bits/32][N]: fields LSB first down K. zeros i32 [G][N*bits/32] along N,
                      stored as z-1 when zero_plus_one. scales [G][N] */
    WEIGHT_AWQ,    /* i32 [K][N/8]: nibble i of word c is column 8c+{0,2,4,6,1,3,5,7}[i]; zeros
                      i32 [G][N/8] alike. scales [G][N]. 4 bits */
    WEIGHT_PACKED, /* compressed-tensors pack-quantized: i32 [N][ceil(K*bits/32)], field = q +
                      2^(bits-1); zeros i32 [ceil(N*bits/32)][G] along N (same offset), or NULL.
                      scales [N][G] */
    WEIGHT_INT8,   /* compressed-tensors int-quantized: i8 [N][K]; zeros i8 [N] or NULL;
                      scales [N] */
    WEIGHT_MXFP4,  /* FP4 (E2M1) of OCP Microscaling Formats 1.0, as gpt-oss stores it: u8
                      [N][K/32][16], inputs 2i, 2i + 1 in the low and the high nibble of byte i;
                      scales E8M0 [N][K/32]. A nibble is a sign and 0, 0.5, 1, 1.5, 2, 3, 4, 6. Rows
                      of data, of scales and of bias lie `row_step` rows apart. 4 bits, group 32 */
};

/* A nibble of MXFP4 as a field: twice its value, and MXFP4_ZERO. So W = scale / 2 * (q - z). */
enum { MXFP4_GROUP = 32, MXFP4_ZERO = 12 };

static inline u32 mxfp4_field(u32 nibble)
{
    u32 twice = 0xc8643210u >> nibble % 8 * 4 & 15;
    return nibble < 8 ? MXFP4_ZERO + twice : MXFP4_ZERO - twice;
}

/* y[n] = sum over k of W[n][k] * x[k] + bias[n]; W[n][k] = scale[n][g(k)] * (q[n][k] - z[n][g(k)])
 * with g(k) = group_index ? group_index[k] : k / group. */
struct weight {
    const char *name; /* module name, for messages */
    enum weight_kind kind;
    u32 n, k;              /* output and input features */
    u32 bits;              /* 4 or 8; 0 for WEIGHT_PLAIN */
    u32 group;             /* input features a group, a multiple of 8; or k: one group a row */
    u32 groups;            /* ceil(k / group) */
    bool zero_plus_one;    /* GPTQ v1: stored zero is z - 1, taken modulo 2^bits */
    u32 row_step;          /* MXFP4: 1, or 2 where the rows of another matrix lie between */
    bool int8_activations; /* W8A8: inputs are quantised per token to int8, symmetric,
                              scale = absmax / 127, round to nearest even */
    enum dtype type, scale_type, bias_type;
    const void *data, *zeros, *scales; /* zeros NULL: every z is 2^(bits-1) (int8: 0), also when
                                           the file stores them, all alike */
    const void *bias;                  /* [n] of bias_type, or NULL */
    /* Act-order: the group of each k; every group has `group` members, the last one the rest.
     * NULL: k / group. core/model refuses any other. */
    const i32 *group_index; /* [k] */
};

size_t dtype_bytes(enum dtype type); /* of one element; 1 for DTYPE_OTHER */

/* Bytes from the first value to behind the last. */
size_t weight_span_bytes(const struct weight *w);

/* Bytes of the values alone, and of all that a multiplication reads: values, scales, zeros. */
size_t weight_data_bytes(const struct weight *w);
size_t weight_bytes(const struct weight *w);

#endif
