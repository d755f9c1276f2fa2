/* The kernels of the backend. `step` and `decode` walk the operations of a step, with one thread
 * block a multiprocessor: `decode` where there are at most FEW_TOKENS tokens and all their inputs
 * fit into shared memory beside the weights that are on their way (step.h, decode_ring_bytes),
 * `step` otherwise, and for sampling, whose code is large enough to stand once only. On Hopper
 * `prefill_int4` and its like run all but attention in the layers of steps of more than
 * PREFILL_TOKENS tokens, one for each kind of matrix: what multiplies by wgmma has to be inlined,
 * and in one kernel with more of it, or with much else, the compiler finds no registers for its
 * loops. `mid_..` runs the layers and the head of steps of a few tokens up to MID_TOKENS, with
 * attention where all rows have one token, or in `mid_.._rows` some more, and `one_token` steps of
 * one, or `one_experts` where there are any; `prefill_attention` does the attention of long rows
 * between `prefill_..` and `prefill_..`. `step` has mixtures of experts, too, and on Hopper
 * `prefill_experts` those of INT4 between `prefill_..` and `prefill_..`; `decode` has those of few
 * tokens, where they fit. `delta` has what gated delta nets and short convolutions need, between
 * launches of the others; on Hopper `decode` has it, too. `.._kv8` are the same with KV pages of
 * bytes: where one kernel knew both, others' pages cost up to 4 % of a step (`step` does, which has
 * much else); of those of Hopper there are only the ones that are asked for most. `pack` writes a
 * weight matrix in the form that they read, `read_all` measures the memory. See step.h.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_group.cuh"
#include "kernels/cuda/delta.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/experts_broad.cuh"
#include "kernels/cuda/experts_one.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/sample.cuh"
#include "kernels/cuda/vector.cuh"

/* In `decode`. The rings have nothing in them, and are shared memory like all other. */
GPU void run_few_experts(const struct op *op, const struct gpu_run *run)
{
    struct gpu_run all = *run;
    all.shared_bytes = splits_space(run);
    if (op->kind == OP_EXPERTS)
        experts_few(&op->experts, &all);
    else
        experts_beside<true>(op, &all);
}

/* In `step`. */
GPU_CALL void run_beside_experts(const struct op *op, const struct gpu_run *run)
{
    experts_beside<false>(op, run);
}

/* In `decode` of Hopper with pages of halves: it is 40 KB of code each. */
#ifdef GPU_GROUPS
GPU_CALL void run_few_delta(const struct op *op, const struct gpu_step *s)
{
    delta_op(op, s);
}
#else
GPU void run_few_delta(const struct op *, const struct gpu_step *)
{
}
#endif

/* False when the operation has nothing to do in this step: then the blocks need not meet either.
 * The answer is the same in every block. */
template <bool few, bool kv8, class task>
GPU bool run_op(const struct op *op, const struct gpu_run *run, struct few_begun *begun,
                task meanwhile)
{
    const struct gpu_step *s = run->step;
    const bool linear = op->kind == OP_LINEAR || (!few && op->kind == OP_EXPERTS);
    if (!linear)
        meanwhile();
    switch (linear ? +OP_LINEAR : op->kind) {
    case OP_EMBED:
        vector_embed(&op->embed, run);
        return true;
    case OP_LINEAR:
        linear_run<few>(op, run, begun, meanwhile);
        return true;
    case OP_ADD_NORM:
    case OP_NORM:
        vector_add_norm<!few, few ? 8 : 1>(&op->add_norm, s, op->kind == OP_ADD_NORM);
        return true;
    case OP_PAIRS:
        vector_pairs(&op->pairs, s);
        return true;
    case OP_SHARED:
        vector_shared(&op->shared, s);
        return true;
    case OP_SHORT: /* of more tokens `delta` does it */
        if (few)
            short_convolve(&op->delta, s);
        return true;
    case OP_QUERIES: /* the same */
    case OP_GATES:
    case OP_CONVOLVE:
    case OP_DELTA:
    case OP_DELTA_END:
        if (few && !kv8)
            run_few_delta(op, s);
        return true;
    case OP_ROPE:
        if (few || attention_is_fused(run))
            return false;
        attention_rope(&op->attention, run);
        return true;
    case OP_ATTENTION:
        attention_run<few, kv8>(&op->attention, run);
        return true;
    case OP_GATE:
        vector_gate<true, !few>(&op->gate, s);
        return true;
    default:
        if (few)
            run_few_experts(op, run);
        else if (op->kind == OP_SAMPLE)
            sample_run(&op->sample, run);
        else if (op->kind == OP_JUDGE)
            experts_judge(&op->route, s->n_tokens);
        else
            run_beside_experts(op, run);
        return true;
    }
}

/* Starts copying `bytes`, a multiple of 16, into shared memory. */
GPU void copy_near(void *to, const void *from, u32 bytes, u32 thread = gpu_thread())
{
    static_assert(sizeof(struct gpu_step) % 16 == 0 && sizeof(struct op) % 16 == 0, "see above");
    for (u32 i = thread * 16; i < bytes; i += GPU_THREADS * 16)
        gpu_copy16((u8 *)to + i, (const u8 *)from + i);
}

/* Copies what operations read near: the step, the run, the first operation. */
GPU void begin_ops(struct step_shared *near, const struct gpu_run *p)
{
    copy_near(&near->step, p->step, sizeof near->step);
    copy_near(&near->op[p->first % 2], &p->ops[p->first], sizeof(struct op));
    gpu_copy_commit();
    gpu_copy_wait<0>();
    if (gpu_thread() == 0) {
        near->run = *p;
        near->run.step = &near->step;
        splits_forget((struct splits_kept *)near->attention);
    }
    gpu_sync();
    if (near->op[p->first % 2].kind <= OP_EMBED && gpu_block() == 0 && gpu_thread() == 0 &&
        near->step.stamps)
        near->step.stamps[0] = gpu_clock_ns();
}

/* By one thread: those of step_shared. */
template <bool few> GPU void open_barriers(u64 *barriers)
{
    if (few)
        gpu_tell_init(barriers);
#ifdef GPU_GROUPS
    else
        wide_open((struct wide_barriers *)barriers);
#endif
}

/* Copies what the next operations read of the list while the current one runs: from global memory,
 * after the blocks met, each field would take its time. While the blocks meet, the first weights
 * that will be read are asked for. */
template <bool few, bool kv8 = false> GPU void run_ops(const struct gpu_run *p)
{
    struct step_shared *near =
        (struct step_shared *)(gpu_shared() + p->shared_bytes + GPU_WARPS * p->ring_bytes);
    typedef splits_of<splits_narrow, kv8> way;
    if (gpu_thread() == 0)
        open_barriers<few>(near->barriers);
    begin_ops(near, p);
    struct few_begun begun = {};
    u32 turn = 0;
    if (few && near->op[p->first % 2].kind == OP_LINEAR)
        few_begin_op(&begun, &near->op[p->first % 2].linear, &near->run);
    near_look<false>(&begun.input);
    for (u32 i = p->first; i < p->last; i++) {
        const struct op *op = &near->op[i % 2], *next = &near->op[(i + 1) % 2];
        bool more = i + 1 < p->last;
        u32 ahead = !few && op->kind == OP_LINEAR && op->ahead < p->last ? op->ahead : 0;
        const auto copy_next = [=] {
            if (more)
                copy_near((struct op *)next, &p->ops[i + 1], sizeof(struct op));
            if (ahead)
                copy_near(&near->ahead, &p->ops[ahead], sizeof(struct op));
            gpu_copy_commit();
        };
        if (few && i == p->first && op->kind == OP_ATTENTION)
            splits_ahead<way>(&op->attention, &near->run);
        bool meet = run_op<few, kv8>(op, &near->run, &begun, copy_next) && more;
        gpu_copy_wait<0>();
        u32 before = 0;
        if (meet)
            before = gpu_grid_arrive(p->state.barrier);
        else
            gpu_sync();
        begun = {};
        if (few && more && next->kind == OP_ATTENTION) /* which uses the rings' memory */
            splits_ahead<way>(&next->attention, &near->run);
        else if (few && more && next->kind == OP_LINEAR)
            few_begin_op(&begun, &next->linear, &near->run);
        else if (ahead && meet)
            linear_fetch(&near->ahead.linear, &near->run);
        if (meet && few && more && next->kind == OP_LINEAR) {
            gpu_grid_wait(p->state.barrier, before, near->barriers, turn, FEW_PACE, [&] {
                u32 had = begun.stream.ahead;
                few_fill_op(&begun, &next->linear, 1);
                return gpu_uniform(begun.stream.ahead != had);
            });
            turn ^= 1;
        } else if (meet) {
            gpu_grid_wait(p->state.barrier, before);
        }
        if (few && more && next->kind == OP_LINEAR)
            near_look<false>(&begun.input);
    }
}

#ifndef GPU_LATER /* what is compiled for cards to come has to be small: `step` does it all */
GPU_KERNEL(decode, struct gpu_run, 1)
{
    run_ops<true>(&p);
}

GPU_KERNEL(decode_kv8, struct gpu_run, 1)
{
    run_ops<true, true>(&p);
}
#endif

GPU_KERNEL(step, struct gpu_run, 1)
{
    run_ops<false>(&p);
}

/* OP_SHORT comes alone; among the others it has ptxas make twice as much of these. */
GPU_KERNEL(delta, struct gpu_run, 2)
{
    if (gpu_uniform(p.ops[p.first].kind) == OP_SHORT) {
        const struct op_delta op = p.ops[p.first].delta;
        short_convolve(&op, p.step);
        return;
    }
    for (u32 i = p.first; i < p.last; i++) {
        delta_op(&p.ops[i], p.step);
        if (i + 1 < p.last)
            gpu_grid_sync(p.state.barrier);
    }
}

#ifdef GPU_GROUPS

/* One OP_ATTENTION: in a function of `step` products of four warps would wait for one another. */
GPU_KERNEL_OF(PREFILL_THREADS, prefill_attention, struct gpu_run, 1)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p.shared_bytes);
    const struct op_attention *op = &near->op[p.first % 2].attention;
    if (gpu_scalar(gpu_warp()) >= GPU_WARPS) {
        gpu_registers_less<56>();
        group_attention<true>(op, &near->run);
    } else {
        gpu_registers_more<224>();
        if (gpu_thread() == 0)
            group_open(&p);
        begin_ops(near, &p);
        group_attention<false>(op, &near->run);
    }
}

/* What is neither a linear nor attention. */
template <bool many> GPU void run_vector_op(const struct op *op, const struct gpu_run *run)
{
    if (op->kind == OP_EMBED)
        vector_embed(&op->embed, run);
    else if (op->kind == OP_ADD_NORM)
        vector_add_norm<many, 1>(&op->add_norm, run->step);
    else
        vector_gate<false, false>(&op->gate, run->step);
}

/* As run_op, with the parts of one kind of OP_LINEAR. */
template <u32 kind>
GPU void prefill_op(const struct op *op, const struct gpu_run *run, struct broad_ring *ring)
{
    if (op->kind == OP_LINEAR)
        broad_run<kind>(&op->linear, run, ring);
    else
        run_vector_op<true>(op, run);
}

template <u32 kind> GPU void prefill_ops(const struct gpu_run *p)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct broad_ring ring = broad_open<kind>(p);
    begin_ops(near, p);
    for (u32 i = p->first; i < p->last; i++) {
        bool more = i + 1 < p->last;
        if (more)
            copy_near(&near->op[(i + 1) % 2], &p->ops[i + 1], sizeof(struct op));
        gpu_copy_commit();
        prefill_op<kind>(&near->op[i % 2], &near->run, &ring);
        gpu_copy_wait<0>();
        gpu_sync(); /* without it the compiler takes the operation for divergent */
        if (more)
            gpu_grid_sync(p->state.barrier);
    }
}

/* Of the registers of its threads, which are shared evenly at first, those get more who compute. */
template <u32 kind> GPU void prefill_run(const struct gpu_run *p)
{
    if (gpu_uniform(gpu_warp()) >= GPU_WARPS) {
        gpu_registers_less<72>();
        broad_serve<kind>(p);
    } else {
        gpu_registers_more<216>();
        prefill_ops<kind>(p);
        broad_dismiss();
    }
}

GPU_KERNEL_OF(PREFILL_THREADS, prefill_int4, struct gpu_run, 1)
{
    prefill_run<MATRIX_INT4>(&p);
}

GPU_KERNEL_OF(PREFILL_THREADS, prefill_int8, struct gpu_run, 1)
{
    prefill_run<MATRIX_INT8>(&p);
}

GPU_KERNEL_OF(PREFILL_THREADS, prefill_half, struct gpu_run, 1)
{
    prefill_run<MATRIX_HALF>(&p);
}

/* As prefill_ops and prefill_run, of experts. */
template <u32 kind> GPU void prefill_experts_ops(const struct gpu_run *p)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct broad_ring ring = broad_open<kind>(p);
    ring.stages = experts_broad_stages<kind>(p);
    begin_ops(near, p);
    for (u32 i = p->first; i < p->last; i++) {
        bool more = i + 1 < p->last;
        if (more)
            copy_near(&near->op[(i + 1) % 2], &p->ops[i + 1], sizeof(struct op));
        gpu_copy_commit();
        experts_broad_op<kind>(&near->op[i % 2], &near->run, &ring);
        gpu_copy_wait<0>();
        gpu_sync(); /* without it the compiler takes the operation for divergent */
        if (more)
            gpu_grid_sync(p->state.barrier);
    }
}

template <u32 kind> GPU void prefill_experts_run(const struct gpu_run *p)
{
    if (gpu_uniform(gpu_warp()) >= GPU_WARPS) {
        gpu_registers_less<56>();
        experts_broad_serve<kind>(p);
    } else {
        gpu_registers_more<224>();
        prefill_experts_ops<kind>(p);
        broad_dismiss();
    }
}

GPU_KERNEL_OF(PREFILL_THREADS, prefill_experts, struct gpu_run, 1)
{
    prefill_experts_run<MATRIX_INT4>(&p);
}

GPU_KERNEL_OF(PREFILL_THREADS, prefill_experts_fp4, struct gpu_run, 1)
{
    prefill_experts_run<MATRIX_FP4>(&p);
}

/* What comes before a linear's products: its rows, which all blocks prepare, and the meeting behind
 * that, for which who copies its inputs waits. */
template <class shape>
GPU void mid_enter(const struct op_linear *op, const struct gpu_run *run, struct mid_head *head,
                   struct mid_walk *walk)
{
    linear_prepare<shape::strip, shape::form>(&op->in, gpu_near(run->step));
    gpu_sync();
    gpu_barrier_wait(&head->planned, mid_kept<shape>(&walk->linear));
    if (mid_thread<shape>() == 0) {
        walk->last = gpu_grid_arrive(run->state.barrier, walk->last);
        head->before = walk->last;
    }
    gpu_barrier_leave(&head->told); /* with shared memory, where attention had its own */
}

/* Behind mid_enter; the blocks meet meanwhile. */
template <class shape>
GPU void mid_linear(const struct op_linear *op, const struct gpu_run *run, struct mid_walk *walk)
{
    struct mid_ring ring = mid_ring_now<shape>(run, walk);
    gpu_barrier_wait(&ring.head->met, ring.linear);
    const struct mid_plan *at = &ring.head->plan[ring.linear];
    struct mid_plan plan = {
        gpu_scalar_load(&at->units), gpu_scalar_load(&at->inverse), gpu_scalar_load(&at->bits),
        shape::wide ? gpu_scalar_load(&at->wide) : 1, gpu_scalar_load(&at->items)};
    ring.linear ^= 1;
    mid_run<shape>(op, run, &plan, &ring);
    if (mid_keeps<shape>()) {
        walk->at = ring.at;
        walk->parity = ring.parity;
        walk->linear = ring.linear;
    }
}

/* Do the blocks not meet before it? When a row is there, nobody reads any more what the linear that
 * it comes from had of it as inputs; where slices of it are awaited, it is prepared in another
 * place (drivers/cuda/list.c). */
GPU bool mid_awaits(const struct op *op)
{
    return op->kind == OP_LINEAR ? op->linear.in.awaited
                                 : op->kind == OP_ATTENTION && op->attention.awaited;
}

/* Of an operation that is not awaited, and of attention, what is in front of it. */
template <class shape, class way>
GPU void mid_meet_before(const struct op *op, const struct gpu_run *run, struct mid_walk *walk)
{
    const bool mine = !mid_awaits(op) && mid_thread<shape>() == 0;
    if (mine)
        walk->last = gpu_grid_arrive(run->state.barrier, walk->last);
    if (op->kind == OP_ATTENTION)
        splits_ahead<way>(&op->attention, run);
    if (mine)
        gpu_grid_await(run->state.barrier, walk->last);
    gpu_sync();
}

/* As prefill_ops. Where the list has OP_ATTENTION, rows are such as `way` can do. */
template <class shape, class way> GPU void mid_ops(const struct gpu_run *p)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct mid_head *head = mid_ring_of<shape>(p, 0).head;
    struct mid_walk own, *walk = shape::ahead ? &own : &head->walk;
    begin_ops(near, p);
    if (mid_keeps<shape>()) /* as if they had just met */
        *walk = {0, 0, 0, 0, ~gpu_load_volatile(p->state.barrier)};
    gpu_sync();
    if (near->op[p->first % 2].kind == OP_ATTENTION)
        splits_ahead<way>(&near->op[p->first % 2].attention, &near->run);
    gpu_sync();
    u32 i = p->first;
#pragma unroll 1
    for (;;) {
        const struct op *op = &near->op[i % 2];
        if (i + 1 < p->last)
            copy_near(&near->op[(i + 1) % 2], &p->ops[i + 1], sizeof(struct op),
                      mid_thread<shape>());
        gpu_copy_commit();
        const u32 kind = gpu_scalar(op->kind);
        const bool linear =
            kind == OP_LINEAR && linear_rows(&op->linear.in, gpu_near(near->run.step)) > 0;
        if (linear)
            mid_enter<shape>(&op->linear, &near->run, head, walk);
        if (mid_keeps<shape>()) /* the block has met since it read the one before */
            walk->op = i;
        if (linear)
            mid_linear<shape>(&op->linear, &near->run, walk);
        else if (kind == OP_ATTENTION)
            splits_run<true, way>(&op->attention, &near->run);
        else if (kind != OP_LINEAR)
            run_vector_op<false>(op, &near->run);
        gpu_copy_wait<0>();
        gpu_sync(); /* without it the compiler takes the operation for divergent */
        i = mid_kept<shape>(&walk->op) + 1;
        if (i >= p->last)
            break;
        op = &near->op[i % 2];
        if (gpu_scalar(op->kind) != OP_LINEAR || !op->linear.in.awaited)
            mid_meet_before<shape, way>(op, &near->run, walk);
    }
}

template <class shape, class way> GPU void mid_all(const struct gpu_run *p)
{
    const u32 warp = gpu_scalar(gpu_warp());
    mid_open<shape>(p);
    gpu_sync_all();
    if (warp >= GPU_WARPS) {
        gpu_registers_less<shape::roomy ? 56 : 40>();
        if (warp < GPU_WARPS + MID_SERVERS)
            mid_serve<shape>(p, warp - GPU_WARPS);
    } else {
        gpu_registers_more<shape::roomy ? 224 : 232>();
        mid_ops<shape, way>(p);
    }
}

#define MID_KERNEL(name, kind, tokens, way)                 \
    GPU_KERNEL_OF(PREFILL_THREADS, name, struct gpu_run, 1) \
    {                                                       \
        mid_all<struct mid_shape<kind, tokens>, way>(&p);   \
    }

MID_KERNEL(mid_16, MATRIX_INT4, 16, splits_teams)
MID_KERNEL(mid_32, MATRIX_INT4, 32, splits_teams)
MID_KERNEL(mid_64, MATRIX_INT4, 64, splits_teams)
MID_KERNEL(mid_int8_32, MATRIX_INT8, 32, splits_teams)
MID_KERNEL(mid_int8_64, MATRIX_INT8, 64, splits_teams)
MID_KERNEL(mid_half, MATRIX_HALF, 64, splits_teams)
MID_KERNEL(mid_16_kv8, MATRIX_INT4, 16, splits_bytes<splits_teams>)
MID_KERNEL(mid_32_kv8, MATRIX_INT4, 32, splits_bytes<splits_teams>)
MID_KERNEL(mid_64_kv8, MATRIX_INT4, 64, splits_bytes<splits_teams>)
MID_KERNEL(mid_16_rows, MATRIX_INT4, 16, splits_fresh)
MID_KERNEL(mid_32_rows, MATRIX_INT4, 32, splits_fresh)
MID_KERNEL(mid_64_rows, MATRIX_INT4, 64, splits_fresh)
MID_KERNEL(mid_int8_32_rows, MATRIX_INT8, 32, splits_fresh)
MID_KERNEL(mid_int8_64_rows, MATRIX_INT8, 64, splits_fresh)
MID_KERNEL(mid_half_rows, MATRIX_HALF, 64, splits_fresh)
MID_KERNEL(mid_16_rows_kv8, MATRIX_INT4, 16, splits_bytes<splits_fresh>)
MID_KERNEL(mid_32_rows_kv8, MATRIX_INT4, 32, splits_bytes<splits_fresh>)
MID_KERNEL(mid_64_rows_kv8, MATRIX_INT4, 64, splits_bytes<splits_fresh>)

/* An operation that is no linear. False as run_op. */
template <bool kv8> GPU bool one_op(const struct op *op, const struct gpu_run *run)
{
    switch (op->kind) {
    case OP_CLEAR:
        vector_clear(&op->clear);
        return true;
    case OP_EMBED:
        vector_embed(&op->embed, run);
        return true;
    case OP_ADD_NORM:
        vector_add_norm<false, 1>(&op->add_norm, run->step);
        return true;
    case OP_ATTENTION:
        if (splits_is_alone(run))
            splits_run<true, splits_of<splits_low, kv8>>(&op->attention, run);
        else
            splits_run<true, splits_of<splits_teams, kv8>>(&op->attention, run);
        return true;
    case OP_GATE:
        vector_gate<false, false>(&op->gate, run->step);
        return true;
    default:
        return false;
    }
}

/* What can be done for an operation before its input is there. */
template <bool experts, bool kv8>
GPU void one_look(struct one_begun *b, struct one_router *router, const struct op *op,
                  const struct gpu_run *run)
{
    *b = {};
    if (op->kind == OP_ATTENTION)
        splits_ahead<splits_of<splits_teams, kv8>, true>(&op->attention, run);
    else if (op->kind == OP_LINEAR)
        one_begin(b, &op->linear, run->step);
    else if (experts && op->kind == OP_ROUTE) {
        b->input = near_look_ahead(&op->route.in, run->step);
        one_look_router(router, &op->route, &b->input, gpu_block());
    } else if (experts && op->kind == OP_EXPERTS && !op->experts.paired)
        b->input = near_look_ahead(&op->experts.in, run->step);
}

/* Do the blocks not meet before it? */
template <bool experts> GPU bool one_awaits(const struct op *op)
{
    if (experts && (op->kind == OP_ROUTE || op->kind == OP_EXPERTS))
        return true;
    return op->kind == OP_LINEAR ? op->linear.in.awaited
                                 : op->kind == OP_ATTENTION && op->attention.awaited;
}

/* As run_ops, but that the blocks meet only where rows are not awaited. An operation is copied from
 * the list while the one before it runs, so that the blocks know it before they have met. */
template <bool experts, bool kv8> GPU void one_ops(const struct gpu_run *p)
{
    struct step_shared *near = (struct step_shared *)(gpu_shared() + p->shared_bytes);
    struct one_ring ring = one_ring_of(p, gpu_scalar(gpu_warp()));
    struct one_begun begun = {};
    struct one_router router;
    u64 *calm = one_calm(p);
    if (p->first + 1 < p->last)
        copy_near(&near->op[(p->first + 1) % 2], &p->ops[p->first + 1], sizeof(struct op));
    begin_ops(near, p);
    one_look<experts, kv8>(&begun, &router, &near->op[p->first % 2], &near->run);
    near_look<true>(&begun.input);
#pragma unroll 1
    for (u32 i = p->first;; i++) {
        const struct op *op = &near->op[i % 2];
        bool meet = true, quiet = false;
        if (experts && op->kind == OP_ROUTE) {
            one_route(&op->route, &begun.input, &router);
        } else if (experts && op->kind == OP_EXPERTS) {
            quiet = true;
            one_experts(&op->experts, &begun.input, p, &ring, !op->experts.paired || i == p->first);
        } else if (op->kind != OP_LINEAR) {
            meet = one_op<kv8>(op, &near->run);
        } else {
            quiet = linear_rows(&op->linear.in, &near->step) > 0;
            if (quiet)
                one_run(&op->linear, &begun, &ring, calm);
        }
        gpu_copy_wait<0>();
        if (i + 1 >= p->last)
            break;
        u32 before = 0;
        gpu_sync();
        meet &= !one_awaits<experts>(&near->op[(i + 1) % 2]);
        if (meet)
            before = gpu_grid_arrive(p->state.barrier);
        if (i + 2 < p->last)
            copy_near((struct op *)op, &p->ops[i + 2], sizeof(struct op));
        gpu_copy_commit();
        one_look<experts, kv8>(&begun, &router, &near->op[(i + 1) % 2], &near->run);
        if (meet)
            gpu_grid_wait(p->state.barrier, before);
        near_look<true>(&begun.input);
        if (quiet && gpu_thread() == 0)
            gpu_barrier_arrive(calm);
    }
}

template <bool experts, bool kv8> GPU void one_all(const struct gpu_run *p)
{
    const u32 warp = gpu_scalar(gpu_warp());
    if (experts && gpu_thread() == 0)
        gpu_barrier_init(&one_routes_of(p)->chosen, 32);
    one_open(p);
    gpu_sync_all();
    if (warp >= GPU_WARPS) {
        u32 choices = 0;
        gpu_registers_less<56>();
        if (gpu_lane() == 0)
            one_serve(p, warp - GPU_WARPS, [&](const struct op *op, struct one_ring *ring) {
                if (!experts || op->kind != OP_EXPERTS)
                    return;
                choices += !op->experts.paired || choices == 0;
                one_feed_experts(&op->experts, p, ring, warp - GPU_WARPS, choices);
            });
    } else {
        gpu_registers_more<224>();
        one_ops<experts, kv8>(p);
    }
}

GPU_KERNEL_OF(PREFILL_THREADS, one_token, struct gpu_run, 1)
{
    one_all<false, false>(&p);
}

GPU_KERNEL_OF(PREFILL_THREADS, one_token_kv8, struct gpu_run, 1)
{
    one_all<false, true>(&p);
}

GPU_KERNEL_OF(PREFILL_THREADS, one_experts, struct gpu_run, 1)
{
    one_all<true, false>(&p);
}

#endif

GPU_KERNEL(pack, struct gpu_pack, 1)
{
    pack_run(&p);
}

GPU_KERNEL(read_all, struct gpu_read, 1)
{
    enum { AHEAD = 8 };
    u64 n = p.bytes / 16, step = (u64)gpu_blocks() * GPU_THREADS;
    u64 i = (u64)gpu_block() * GPU_THREADS + gpu_thread();
    u32 sum = 0;
    for (; i + (AHEAD - 1) * step < n; i += AHEAD * step) {
        uint4 v[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++)
            v[k] = gpu_load_weights(p.data + (i + k * step) * 16);
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++)
            sum |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) {
        uint4 v = gpu_load_weights(p.data + i * 16);
        sum |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9e3779b9u)
        *p.sink = sum;
}
