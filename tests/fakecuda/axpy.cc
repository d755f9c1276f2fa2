/* A kernel such as a user's: y[i] += a x[i] for i < n, parameters (float a, const float *x, float
 * *y, int n); by its C name and by the C++ one. */
#include "kernels/cuda/gpu.cuh"

struct axpy {
    float a;
    const float *x;
    float *y;
    u32 n;
};

static void axpy_entry(const void *params)
{
    const struct axpy *p = (const struct axpy *)params;
    u32 i = gpu_block() * fiber_now->threads + gpu_thread();
    if (i < p->n)
        p->y[i] += p->a * p->x[i];
}

static const u32 axpy_sizes[] = {4, 8, 8, 4, 0};
static const struct emulated axpy_c("axpy", axpy_entry, sizeof(struct axpy), axpy_sizes);
static const struct emulated axpy_cpp("_Z4axpyfPKfPfi", axpy_entry, sizeof(struct axpy),
                                      axpy_sizes);
