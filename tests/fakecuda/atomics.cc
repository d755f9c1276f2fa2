/* The emulator's atomics: fibers take turns, so each is done at once. Not in the header, where the
 * compiler would tell races.cc of plain accesses. */
#include "kernels/cuda/gpu.cuh"

void gpu_fence_system(void) /* the host may look from another thread */
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    races_fence();
}

u32 gpu_atomic_add(u32 *p, u32 v)
{
    const u32 old = *p;
    races_atomic(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *p = old + v;
    return old;
}

void gpu_atomic_add64(u64 *p, u64 v)
{
    races_atomic(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *p += v;
}

void gpu_atomic_max64(u64 *p, u64 v)
{
    races_atomic(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *p = *p > v ? *p : v;
}

void gpu_count_around(u32 *p, u32 last)
{
    races_atomic(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *p = *p >= last ? 0 : *p + 1;
}

void gpu_add_release(u32 *p, u32 v)
{
    races_release(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *p += v;
}

void gpu_store_volatile(u32 *p, u32 v)
{
    races_atomic(p);
    races_update(p, sizeof *p, __builtin_return_address(0));
    *(volatile u32 *)p = v;
}
