/* What tensor cores do with what the 32 lanes of a warp bring. */
#ifndef ZIGCUDA_TENSOR_H
#define ZIGCUDA_TENSOR_H

#include "core/base/base.h"

struct lane {
    float *c;
    const u32 *a, *b;
    u32 *r;
    const u8 *row;
    u32 stride, tokens, further;
    i32 *ints; /* c of gpu_mma_bytes */
};

void tensor_multiply(const struct lane *lanes);       /* gpu_mma */
void tensor_multiply_bytes(const struct lane *lanes); /* gpu_mma_bytes */
void tensor_multiply_group(const struct lane *lanes); /* of either, for each 8 tokens */
void tensor_load_tiles(const struct lane *lanes, bool transposed);

#endif
