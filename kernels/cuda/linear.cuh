/* y = W x, in ways that give the same bits (step.h): linear_few.cuh for few tokens, whose input
 * each block prepares for itself; linear_wide.cuh on Hopper and linear_many.cuh elsewhere, for
 * which all prepare it together; so do linear_mid.cuh and linear_broad.cuh in Hopper's kernels of
 * some and of many tokens.
 */
#ifndef ZIGCUDA_LINEAR_CUH
#define ZIGCUDA_LINEAR_CUH

#include "kernels/cuda/linear_broad.cuh"
#include "kernels/cuda/linear_few.cuh"
#include "kernels/cuda/linear_many.cuh"
#include "kernels/cuda/linear_mid.cuh"
#include "kernels/cuda/linear_one.cuh"
#include "kernels/cuda/linear_wide.cuh"

/* linear_wide.cuh where that can be, and it alone is compiled; on the emulator, both are. */
#if defined(GPU_GROUPS) && defined(__CUDA_ARCH__)
#define LINEAR_WIDE(run) true
#elif defined(GPU_GROUPS)
#define LINEAR_WIDE(run) (gpu_has_groups() && wide_fits<32>((run)->shared_bytes))
#endif

/* Asks the first weights of a linear into L2, some operations before it. To linear_many.cuh that
 * would bring less than it takes. */
GPU void linear_fetch(const struct op_linear *op, const struct gpu_run *run)
{
#ifdef LINEAR_WIDE
    if (LINEAR_WIDE(run))
        wide_fetch(op, run);
#else
    (void)op, (void)run;
#endif
}

/* Rows are prepared by all blocks, which meet, and multiply. */
GPU void linear_run_all(const struct op_linear *op, const struct gpu_run *run)
{
#ifdef LINEAR_WIDE
    if (LINEAR_WIDE(run)) {
        linear_prepare<8, FORM_HALVES>(&op->in, gpu_near(run->step));
        gpu_grid_sync(run->state.barrier);
        return wide_run(op, run);
    }
#endif
    many_run(op, run);
}

/* OP_LINEAR; `few`: it has begun. meanwhile: other work, which this calls once, when it has to
 * wait.
 */
template <bool few, class task>
GPU void linear_run(const struct op_linear *op, const struct gpu_run *run, struct few_begun *begun,
                    task meanwhile)
{
    bool none = linear_rows(&op->in, run->step) == 0;
    if (!few || none)
        meanwhile();
    if (none)
        return;
    if (few) {
        few_run(op, run, begun, meanwhile);
    } else {
        linear_run_all(op, run);
    }
}

#endif
