/* races.cc itself: kernels with a race, each of which is found, and the same put right, of which
 * nothing is said. */
#include "kernels/cuda/grid.cuh"

#include <stdio.h>

struct job {
    u32 *words, *barrier;
    float *rows;
    bool right;
};

enum { WARP = 32 };

static u32 *shared(void)
{
    return (u32 *)gpu_shared();
}

static void leave(const struct job *p, u32 v)
{
    p->words[gpu_block() * GPU_THREADS + gpu_thread()] = v;
}

/* A lane reads what its neighbour wrote, and the warp met, or did not. */
GPU_KERNEL(lanes, struct job, 1)
{
    shared()[gpu_thread()] = 1;
    if (p.right)
        gpu_warp_sync();
    leave(&p, shared()[gpu_thread() ^ 1]);
}

GPU_KERNEL(warps, struct job, 1)
{
    shared()[gpu_thread()] = 1;
    if (p.right)
        gpu_sync();
    else
        gpu_warp_sync();
    leave(&p, shared()[gpu_thread() ^ WARP]);
}

/* A stage is written again before all have read it. */
GPU_KERNEL(stages, struct job, 1)
{
    u32 sum = 0;
    for (u32 i = 0; i < 3; i++) {
        if (gpu_thread() == 0)
            shared()[0] = i;
        gpu_sync();
        sum += shared()[0];
        if (p.right)
            gpu_sync();
    }
    leave(&p, sum);
}

/* A block waits for another's word, which is released behind what it tells of, or is not. */
GPU_KERNEL(releases, struct job, 1)
{
    if (gpu_block() == 0) {
        p.words[gpu_thread()] = 1;
        gpu_sync();
        if (gpu_thread() == 0 && p.right)
            gpu_add_release(p.barrier, 1);
        else if (gpu_thread() == 0)
            gpu_atomic_add(p.barrier, 1);
        return;
    }
    if (gpu_thread() == 0)
        while (gpu_load_acquire(p.barrier) == 0)
            gpu_pause();
    gpu_sync();
    shared()[gpu_thread()] = p.words[gpu_thread()];
}

/* The same by fences, one of which is where it must be, or in front of the block's meeting. */
GPU_KERNEL(fences, struct job, 1)
{
    if (gpu_block() == 0) {
        p.words[gpu_thread()] = 1;
        if (!p.right)
            gpu_fence();
        gpu_sync();
        if (gpu_thread() == 0) {
            if (p.right)
                gpu_fence();
            gpu_atomic_add(p.barrier, 1);
        }
        return;
    }
    if (gpu_thread() == 0) {
        while (gpu_load_volatile(p.barrier) == 0)
            gpu_pause();
        gpu_fence();
    }
    gpu_sync();
    shared()[gpu_thread()] = p.words[gpu_thread()];
}

/* Blocks meet before another one's word is read, and before it is written again, or not. */
GPU_KERNEL(grids, struct job, 1)
{
    u32 next = (gpu_block() + 1) % gpu_blocks(), sum = 0;
    for (u32 i = 0; i < 2; i++) {
        if (gpu_thread() == 0)
            p.words[gpu_block()] = i;
        gpu_grid_sync(p.barrier);
        sum += p.words[next];
        if (p.right)
            gpu_grid_sync(p.barrier);
    }
    shared()[gpu_thread()] = sum;
}

/* A row that is awaited is cleared behind all who asked for it, or when these say so, but nothing
 * puts what they say behind their asking. */
GPU_KERNEL(rows, struct job, 1)
{
    const u32 i = gpu_thread();
    if (gpu_block() == 0) {
        p.rows[2 * i] = gpu_answer(1);
    } else {
        while (gpu_missing(gpu_ask2(&p.rows[2 * i]).x))
            gpu_pause();
        gpu_atomic_add(&p.words[i], 1);
    }
    if (p.right)
        gpu_grid_sync(p.barrier);
    if (gpu_block() != 0)
        return;
    while (gpu_load_volatile(&p.words[i]) == 0)
        gpu_pause();
    p.rows[2 * i] = gpu_from_bits(NOT_YET);
}

/* Who alone asks for a value takes it away; the next is written when the blocks have met, or not.
 */
GPU_KERNEL(taken, struct job, 1)
{
    const u32 i = gpu_thread();
    u32 sum = 0;
    for (u32 turn = 0; turn < 2; turn++) {
        if (gpu_block() == 0) {
            p.rows[2 * i] = gpu_answer(1);
        } else {
            while (gpu_missing(gpu_ask2(&p.rows[2 * i]).x))
                gpu_pause();
            p.rows[2 * i] = gpu_from_bits(NOT_YET);
            sum++;
        }
        if (p.right)
            gpu_grid_sync(p.barrier);
        while (gpu_block() == 0 && !gpu_missing(gpu_ask2(&p.rows[2 * i]).x))
            gpu_pause();
    }
    leave(&p, sum);
}

/* What comes by copies is read when its barrier has been passed, or when another's has. */
GPU_KERNEL(copies, struct job, 1)
{
    u64 *barriers = (u64 *)gpu_shared();
    u32 *to = shared() + 32;
    if (gpu_thread() == 0) {
        gpu_barrier_init(&barriers[0], 1);
        gpu_barrier_init(&barriers[1], 1);
    }
    gpu_sync();
    if (gpu_warp() == 0)
        gpu_copy_bulk(to, p.words, 128, &barriers[0]);
    if (gpu_thread() == 0)
        gpu_barrier_arrive(&barriers[1]);
    gpu_barrier_wait(&barriers[p.right ? 0 : 1], 0);
    if (gpu_warp() == 1)
        shared()[512 + gpu_lane()] = to[gpu_lane()];
}

/* A group's tiles are written again when its products are done, or when they have begun. */
GPU_KERNEL(products, struct job, 1)
{
    float c[8] = {};
    u32 a[4] = {};
    for (u32 i = gpu_thread(); i < 256; i += gpu_blocks() * GPU_THREADS)
        shared()[i] = 0;
    gpu_sync();
    gpu_group_mma<16, 256, false>(c, a, gpu_group_tiles(gpu_shared()));
    gpu_group_commit();
    if (p.right)
        gpu_group_wait<0, 16>(c);
    gpu_sync();
    shared()[gpu_thread()] = 1;
    gpu_group_wait<0, 16>(c);
}

static u32 passed, failed;

static u32 found_in(const emulated *k, bool right)
{
    alignas(16) static u32 words[1024], barrier[WARP];
    alignas(16) static float rows[2 * GPU_THREADS];
    const u32 before = races_found();
    struct job j = {words, barrier, rows, right};
    memset(words, 0, sizeof words);
    memset(barrier, 0, sizeof barrier);
    memset(rows, 0xff, sizeof rows);
    emulate_grid(k, 2, GPU_THREADS, 4096, &j);
    return races_found() - before;
}

int main(void)
{
    for (const emulated *k = emulated_kernels; k; k = k->next) {
        bool good = found_in(k, true) == 0;
        good = found_in(k, false) > 0 && good;
        printf("%s %s\n", good ? "ok  " : "FAIL", k->name);
        good ? passed++ : failed++;
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
