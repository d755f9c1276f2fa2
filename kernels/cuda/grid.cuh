/* How the blocks of a cooperative launch meet: a word of global memory that counts them, and work
 * that may begin while others are awaited.
 */
#ifndef ZIGCUDA_GRID_CUH
#define ZIGCUDA_GRID_CUH

#include "kernels/cuda/gpu.cuh"

/* All thread blocks of a cooperative launch meet: each arrives, and may do something else before it
 * waits. What any thread wrote before it arrived is seen by all that waited. `word` is global
 * memory, zero before the first kernel that uses it. Each meeting adds 2^31 to it in all, so that
 * its highest bit turns when the last has arrived. */
GPU u32 gpu_grid_arrive(u32 *word)
{
    u32 before = 0;
    if (gpu_thread() == 0)
        before = gpu_load_volatile(word); /* its highest bit stays until this block arrives */
    gpu_sync();
    if (gpu_thread() == 0)
        gpu_add_release(word, gpu_block() ? 1 : 0x80000001u - gpu_blocks());
    return before;
}

/* The same by one thread, when the block has met and it knows what the meeting before this one was
 * awaited with: so it need not ask. */
GPU u32 gpu_grid_arrive(u32 *word, u32 last)
{
    gpu_add_release(word, gpu_block() ? 1 : 0x80000001u - gpu_blocks());
    return last ^ 0x80000000u;
}

/* before: what gpu_grid_arrive returned to thread 0. By one thread. */
GPU void gpu_grid_await(const u32 *word, u32 before)
{
    while (!((gpu_load_acquire(word) ^ before) >> 31))
        gpu_pause();
}

GPU void gpu_grid_wait(u32 *word, u32 before)
{
    if (gpu_thread() == 0)
        gpu_grid_await(word, before);
    gpu_sync();
}

/* One thread tells the others of its block, in turns (0, 1, 0, ..): by a barrier, where there are
 * such, else by a word of shared memory, which racecheck (compute-sanitizer) takes for a race. */
GPU void gpu_tell_init(u64 *told)
{
#ifdef GPU_GROUPS
    gpu_barrier_init(told, 1);
#else
    *(u32 *)told = 1;
#endif
}

GPU void gpu_tell(u64 *told, u32 turn)
{
#ifdef GPU_GROUPS
    (void)turn;
    gpu_barrier_arrive(told);
#else
    gpu_store_volatile((u32 *)told, turn);
#endif
}

/* By a warp together. */
GPU bool gpu_told(u64 *told, u32 turn)
{
#ifdef GPU_GROUPS
    return gpu_shuffle(gpu_lane() ? 0u : (u32)gpu_barrier_passed(told, turn), 0);
#else
    return gpu_shuffle(gpu_load_volatile((u32 *)told), 0) == turn;
#endif
}

/* As gpu_grid_wait, with work that begins meanwhile: every `clocks` each warp calls `work`, as long
 * as that has something to begin (true). The first warp asks, and tells the others by `met`. */
template <class task>
GPU void gpu_grid_wait(u32 *word, u32 before, u64 *met, u32 turn, u32 clocks, task work)
{
    u32 last = gpu_clock();
    for (;;) {
        bool passed;
        if (gpu_warp() == 0) {
            passed = gpu_lane() == 0 && (gpu_load_acquire(word) ^ before) >> 31;
            if (passed)
                gpu_tell(met, turn);
            passed = gpu_ballot(passed) != 0;
        } else {
            passed = gpu_told(met, turn);
        }
        if (passed)
            break;
        if (gpu_shuffle(gpu_clock() - last, 0) >= clocks) {
            last += clocks;
            if (!work() && gpu_warp())
                break;
        }
        gpu_pause();
    }
    gpu_sync();
}

GPU void gpu_grid_sync(u32 *word)
{
    gpu_grid_wait(word, gpu_grid_arrive(word));
}

#endif
