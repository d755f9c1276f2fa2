/* OP_ATTENTION: rows of many tokens one way (on Hopper often that of attention_group.cuh, a kernel
 * of its own), rows of few the other; same bits. See
 * attention_tile.cuh for the arithmetic, attention_plan.cuh for who does what.
 */
#ifndef ZIGCUDA_ATTENTION_CUH
#define ZIGCUDA_ATTENTION_CUH

#include "kernels/cuda/attention_few.cuh"
#include "kernels/cuda/attention_many.cuh"
#include "kernels/cuda/attention_rope.cuh"

GPU_CALL void attention_many(const struct op_attention *op, const struct gpu_run *run)
{
    struct attention_plan plan;
    op = gpu_near(op);
    run = gpu_near(run);
    attention_plan_of(op, run, true, &plan);
    many_run(op, run, &plan);
}

/* `few`: splits_ahead ran for it, and pages are of bytes where kv8 is true. */
template <bool few, bool kv8>
GPU void attention_few(const struct op_attention *op, const struct gpu_run *run)
{
    const bool is_wide = op->head_dim > GPU_WARPS * 16;
    if (!few) {
        if (splits_kept(run)->window != op->window)
            splits_plan<few, splits_narrow>(op, run); /* which wide ones have, too */
        gpu_sync(); /* the way of many is done with shared memory */
    }
    if (is_wide)
        splits_run<few, splits_of<splits_wide, kv8>>(op, run);
    else
        splits_run<few, splits_of<splits_narrow, kv8>>(op, run);
}

template <bool few, bool kv8>
GPU void attention_run(const struct op_attention *op, const struct gpu_run *run)
{
    if (!few && !run->many_apart)
        attention_many(op, run);
    attention_few<few, kv8>(op, run);
}

#endif
