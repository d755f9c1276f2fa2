/* y = W x, in ways that give the same bits (step.h): linear_few.cuh for few tokens, whose input
 * each block prepares for itself; linear_wide.cuh on Hopper and linear_many.cuh elsewhere, for
 * which all prepare it together; so do linear_mid.cuh and linear_broad.cuh in Hopper's kernels of
 * some and of many tokens.
 */
#ifndef ZIGCUDA_LINEAR_CUH
#define ZIGCUDA_LINEAR_CUH

#include "kernels/cuda/experts_many.cuh"
#include "kernels/cuda/linear_broad.cuh"
#include "kernels/cuda/linear_few.cuh"
#include "kernels/cuda/linear_many.cuh"
#include "kernels/cuda/linear_mid.cuh"
#include "kernels/cuda/linear_one.cuh"
#include "kernels/cuda/linear_wide.cuh"

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

/* Of the tokens of a step, or of pairs, which are prepared. All blocks prepare rows, meet, and
 * multiply. */
GPU void linear_run_all(const struct op_linear *op, const struct gpu_run *run,
                        const struct experts_near *pairs)
{
#ifdef LINEAR_WIDE
    if (LINEAR_WIDE(run)) {
        const u32 room = pairs ? pairs->run.shared_bytes : run->shared_bytes;
        if (!pairs)
            linear_prepare<8, FORM_HALVES>(&op->in, gpu_near(run->step));
        gpu_grid_sync(run->state.barrier);
        const u32 tokens =
            pairs ? pairs->choice.tokens : wide_tokens(linear_rows(&op->in, run->step), room);
        return wide_run(op, run, {tokens, room, pairs ? &pairs->pairs : NULL});
    }
#endif
    if (pairs)
        return many_run(op, &pairs->run, &pairs->pairs, pairs->choice);
    linear_prepare<MANY_STRIP, FORM_SUMS>(&op->in, gpu_near(run->step));
    many_run(op, run, NULL, {});
}

/* OP_LINEAR, and in `step` OP_EXPERTS; `few`: it has begun. meanwhile: other work, which this calls
 * once, when it has to wait.
 */
template <bool few, class task>
GPU void linear_run(const struct op *op, const struct gpu_run *run, struct few_begun *begun,
                    task meanwhile)
{
    const bool experts = !few && op->kind == OP_EXPERTS;
    const bool none = !experts && linear_rows(&op->linear.in, run->step) == 0;
    if (!few || none)
        meanwhile();
    if (none)
        return;
    if (few) {
        few_run(&op->linear, run, begun, meanwhile);
    } else {
        const struct experts_near *pairs = experts ? experts_enter(&op->experts, run) : NULL;
        if (experts && !pairs)
            return;
        linear_run_all(pairs ? &pairs->linear : &op->linear, run, pairs);
    }
}

#endif
