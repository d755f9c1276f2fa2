/* Runs the GPU kernels for tests: on the emulator of tests/fakecuda, or, when the program was
 * started with `--gpu IMAGE` (a cubin or fatbin of kernels/cuda/step.cu), on a real GPU through
 * libcuda.so.1. A glibc program; nothing of it goes into zigcuda.
 */
#ifndef ZIGCUDA_HARNESS_H
#define ZIGCUDA_HARNESS_H

#include "kernels/cuda/step.h"

#include <vector>

#ifdef __aarch64__
typedef __fp16 half_float; /* g++ 12 has _Float16 on x86 only */
#else
typedef _Float16 half_float;
#endif

void gpu_open(int argc, char **argv); /* exits with a message when it cannot */
bool gpu_is_real(void);
bool gpu_choose_groups(bool); /* on the emulator: run as on a GPU whose warps multiply in groups of
                                 four, as it does at first, or as on others. False on a GPU */
void *gpu_take(size_t bytes); /* device memory, zeroed; lives until the end */
void gpu_put(void *to, const void *from, size_t bytes);
void gpu_get(void *to, const void *from, size_t bytes);
void gpu_launch(const char *kernel, u32 blocks, u32 shared_bytes, const void *params,
                size_t params_bytes); /* GPU_THREADS threads a block, all blocks at once; waits */
float gpu_time_us(const char *kernel, u32 blocks, u32 shared_bytes, const void *params,
                  size_t params_bytes, u32 repeat); /* best of `repeat`; 0 on the emulator */
bool gpu_has_kernel(const char *kernel);            /* one that not all GPUs have */
/* The kernel of layers for so many tokens and so much dynamic shared memory; NULL: `step`. */
const char *gpu_prefill_of(u32 matrix_kind, u32 tokens, u32 shared_bytes);
/* The same for a linear of few tokens, more than FEW_TOKENS. */
const char *gpu_mid_of(const struct op_linear *op, u32 tokens, u32 shared_bytes);
/* And for a linear of one, ONE_RINGS_BYTES of shared_bytes are its rings. */
const char *gpu_one_of(const struct op_linear *op, u32 tokens, u32 shared_bytes);
u32 gpu_multiprocessors(void);  /* 3 on the emulator */
u32 gpu_shared_bytes_max(void); /* dynamic shared memory of a block */

/* A copy of n host elements on the device. */
template <typename T> T *gpu_copy_of(const T *from, size_t n)
{
    T *p = (T *)gpu_take(n * sizeof(T) + 16);
    gpu_put(p, from, n * sizeof(T));
    return p;
}

/* op_linear.awaited, for all, as each leaves it as it was. */
static inline float *gpu_awaited_sums(void)
{
    static float *sums;
    if (!sums)
        sums = (float *)gpu_copy_of(std::vector<u32>(LINEAR_PARTIALS, NOT_YET).data(),
                                    LINEAR_PARTIALS);
    return sums;
}

#endif
