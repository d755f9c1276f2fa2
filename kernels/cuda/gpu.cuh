/* What the kernels use of a GPU, as a few named functions: who am I, barriers, shuffles, half
 * arithmetic, one tensor-core instruction, asynchronous copies, atomics. Kernels contain no PTX and
 * no CUDA built-ins of their own; so tests/fakecuda can compile the very same kernels for the CPU
 * (emulate.h stands in for this half of the file) and run them, fibers for threads, where there is
 * no GPU.
 *
 * Shared memory is one dynamic block per thread block (gpu_shared); kernels carve it themselves.
 * Sums never use float atomics.
 */
#ifndef ZIGCUDA_GPU_CUH
#define ZIGCUDA_GPU_CUH

#include "kernels/cuda/step.h"

#ifdef __CUDACC__

#define GPU_CAPABILITY __CUDA_ARCH__ /* compiled for these cards and, but for 750, later ones */
#define GPU __device__ __forceinline__
/* Not inlined: a loop that counts gets its registers for itself. */
#define GPU_CALL __device__ __noinline__
/* `blocks` of the kernel fit one multiprocessor at once: its registers are cut accordingly. */
#define GPU_KERNEL(name, params, blocks) GPU_KERNEL_OF(GPU_THREADS, name, params, blocks)
#define GPU_KERNEL_OF(threads, name, params, blocks)              \
    extern "C" __global__ void __launch_bounds__(threads, blocks) \
        name(const __grid_constant__ params p)

#if GPU_CAPABILITY >= 800
#define GPU_ASYNC_COPY 1 /* cp.async; before, copies are done at once */
#endif

GPU u32 gpu_thread(void)
{
    return threadIdx.x;
}
/* gpu_thread asked for again, so that its value need not be kept meanwhile. */
GPU u32 gpu_thread_again(void)
{
    u32 v;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
    return v;
}
GPU u32 gpu_lane(void)
{
    return threadIdx.x & 31;
}
GPU u32 gpu_warp(void)
{
    return threadIdx.x >> 5;
}
/* Among the warps of its multiprocessor, of which every fourth shares a scheduler. */
GPU u32 gpu_warp_place(void)
{
    u32 v;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(v));
    return v;
}
GPU u32 gpu_block(void)
{
    return blockIdx.x;
}
GPU u32 gpu_blocks(void)
{
    return gridDim.x;
}

GPU u8 *gpu_shared(void)
{
    extern __shared__ __align__(128) u8 gpu_shared_memory[];
    return gpu_shared_memory;
}

/* The first GPU_THREADS threads of the block meet. */
GPU void gpu_sync(void)
{
    asm volatile("bar.sync 0, %0;" ::"n"((int)GPU_THREADS) : "memory");
}
/* gpu_sync; true in all threads when v was in any. */
GPU bool gpu_sync_any(bool v)
{
    u32 any;
    asm volatile("{.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\n"
                 "bar.red.or.pred q, 0, %2, p;\nselp.u32 %0, 1, 0, q;}"
                 : "=r"(any)
                 : "r"((u32)v), "n"((int)GPU_THREADS)
                 : "memory");
    return any;
}
/* The threads of one of the block's teams meet, of so many threads each, from the first on. */
template <u32 threads> GPU void gpu_sync_team(u32 team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(team + 2), "n"((int)threads) : "memory");
}
/* All threads of the block meet, in a kernel that has more. */
GPU void gpu_sync_all(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"((int)PREFILL_THREADS) : "memory");
}
GPU void gpu_warp_sync(void)
{
    __syncwarp();
}
GPU u32 gpu_shuffle(u32 v, u32 lane)
{
    return __shfl_sync(~0u, v, lane);
}
GPU float gpu_shuffle(float v, u32 lane)
{
    return __shfl_sync(~0u, v, lane);
}
/* v, which all lanes of the warp have alike: lets the compiler know. */
GPU u32 gpu_uniform(u32 v)
{
    return __shfl_sync(~0u, v, 0);
}
GPU u32 gpu_shuffle_xor(u32 v, u32 mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}
GPU float gpu_shuffle_xor(float v, u32 mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}
GPU u32 gpu_ballot(bool v)
{
    return __ballot_sync(~0u, v);
}

/* Writes before it are seen by other thread blocks before writes after it; afterwards reads are not
 * answered from a stale L1. (PTX ISA: enough for messages; __threadfence, sequentially consistent,
 * takes longer) */
GPU void gpu_fence(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
GPU void gpu_fence_system(void)
{
    __threadfence_system();
}

GPU u32 gpu_atomic_add(u32 *p, u32 v)
{
    return atomicAdd(p, v);
}
/* Counts from 0 to `last` and then begins again. Returns nothing, so that nobody waits. */
GPU void gpu_count_around(u32 *p, u32 last)
{
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(p), "r"(last) : "memory");
}
/* A message to other thread blocks: what this thread wrote, or has seen before a barrier of its
 * block, is seen by who reads the new value by gpu_load_acquire, or passes a barrier after that. */
GPU void gpu_add_release(u32 *p, u32 v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
GPU u32 gpu_load_acquire(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
GPU void gpu_atomic_add64(u64 *p, u64 v)
{
    atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
GPU void gpu_atomic_max64(u64 *p, u64 v)
{
    atomicMax((unsigned long long *)p, (unsigned long long)v);
}
GPU u32 gpu_load_volatile(const u32 *p)
{
    return *(const volatile u32 *)p;
}
GPU void gpu_store_volatile(u32 *p, u32 v)
{
    *(volatile u32 *)p = v;
}
GPU void gpu_pause(void)
{
}
GPU u32 gpu_clock(void) /* of the multiprocessor */
{
    return (u32)clock();
}

GPU u32 gpu_bits(float v)
{
    return __float_as_uint(v);
}
GPU float gpu_from_bits(u32 v)
{
    return __uint_as_float(v);
}

#if GPU_CAPABILITY >= 800
/* c += a b, one warp together: a is 16 x 16 (m x k), b 16 x 8 (k x n), c 16 x 8 in f32. With
 * g = lane / 4 and t = lane % 4:
 *   a[0] = A[g][2t, 2t+1]      a[1] = A[g+8][2t, 2t+1]
 *   a[2] = A[g][2t+8, 2t+9]    a[3] = A[g+8][2t+8, 2t+9]
 *   b[0] = B[2t, 2t+1][g]      b[1] = B[2t+8, 2t+9][g]
 *   c[0], c[1] = C[g][2t, 2t+1]    c[2], c[3] = C[g+8][2t, 2t+1]
 * (PTX ISA, mma.m16n8k16, .f16). */
GPU void gpu_mma(float c[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same of bytes: a is 16 x 32 of u8, b 32 x 8 of i8, c of i32.
 *   a[0] = A[g][4t .. 4t+3]    a[1] = A[g+8][4t ..]    a[2] = A[g][4t+16 ..]    a[3] = A[g+8][4t+16
 * ..] b[0] = B[4t .. 4t+3][g]    b[1] = B[4t+16 ..][g] (PTX ISA, mma.m16n8k32, .u8.s8). */
GPU void gpu_mma_bytes(i32 c[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Of all lanes of the warp: the largest, the sum. */
GPU u32 gpu_most_warp(u32 v)
{
    return __reduce_max_sync(~0u, v);
}
GPU i32 gpu_add_warp(i32 v)
{
    return __reduce_add_sync(~0u, v);
}
#else
/* What Turing has of these. Half of the inputs: a is 16 x 8, b 8 x 8 (PTX ISA, mma.m16n8k8, .f16).
 *   a[0] = A[g][2t, 2t+1]    a[1] = A[g+8][2t, 2t+1]    b = B[2t, 2t+1][g] */
GPU void gpu_mma_8(float c[4], const u32 a[2], u32 b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* Half of the inputs and of the rows: a is 8 x 16, b 16 x 8, c 8 x 8 (PTX ISA, mma.m8n8k16).
 *   a = A[g][4t .. 4t+3]    b = B[4t .. 4t+3][g]    c[0], c[1] = C[g][2t, 2t+1] */
GPU void gpu_mma_bytes_16(i32 c[2], u32 a, u32 b)
{
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a), "r"(b));
}
#endif

/* Four 8 x 8 tiles of halves from shared memory: lane i gives the address of row i % 8 of tile
 * i / 8; r[j] = tile j [lane / 4][2 (lane % 4), +1]. Transposed: r[j] = tile j [2 (lane % 4), +1]
 * [lane / 4]. (PTX ISA, ldmatrix) */
GPU void gpu_load_tiles(u32 r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

GPU void gpu_load_tiles_transposed(u32 r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

/* 16 bytes from global to shared memory, both aligned to 16, in the background; `read` false writes
 * zeros. gpu_copy_commit closes a group of copies; gpu_copy_wait<n> waits until at most n groups of
 * this thread are open. Other threads see the bytes after a barrier. */
GPU void gpu_copy16(void *to, const void *from, bool read = true)
{
#ifdef GPU_ASYNC_COPY
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)),
        "l"(from), "r"(read ? 16 : 0)
        : "memory");
#else
    *(uint4 *)to = read ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

/* p, as if nobody knew where it comes from: else the compiler works out all that p + constant needs
 * of it ahead of a loop, for which there are no registers. */
template <class type> GPU type *gpu_opaque(type *p)
{
    asm volatile("" : "+l"(p));
    return p;
}

/* Copies the first `bytes` of 8, aligned to 8; others become 0. (Before sm_80 all or none.) */
GPU void gpu_copy8(void *to, const void *from, u32 bytes = 8)
{
#ifdef GPU_ASYNC_COPY
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((u32)__cvta_generic_to_shared(to)),
        "l"(from), "r"(bytes)
        : "memory");
#else
    *(uint2 *)to = bytes ? *(const uint2 *)from : make_uint2(0, 0);
#endif
}

/* 4 bytes, or zeros. */
GPU void gpu_copy4(void *to, const void *from, bool read = true)
{
#ifdef GPU_ASYNC_COPY
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((u32)__cvta_generic_to_shared(to)),
        "l"(from), "r"(read ? 4 : 0)
        : "memory");
#else
    *(u32 *)to = read ? *(const u32 *)from : 0;
#endif
}

/* gpu_copy16 if `when`, without a branch. */
GPU void gpu_copy16_if(bool when, void *to, const void *from)
{
#ifdef GPU_ASYNC_COPY
    asm volatile(
        "{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(
            (u32)__cvta_generic_to_shared(to)),
        "l"(from), "r"((u32)when)
        : "memory");
#else
    if (when)
        *(uint4 *)to = *(const uint4 *)from;
#endif
}

GPU void gpu_copy_commit(void)
{
#ifdef GPU_ASYNC_COPY
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int n> GPU void gpu_copy_wait(void)
{
#ifdef GPU_ASYNC_COPY
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

/* 16 bytes that no kernel of this run writes (weights): past L1, first to go from L2. */
GPU uint4 gpu_load_weights(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Asks the 128 bytes around p into L2. */
GPU void gpu_prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Values of which each tells for itself (step.h, NOT_YET): nothing orders them, so each is looked
 * at.
 */
GPU float4 gpu_ask4(const float *p) /* aligned to 16 */
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
GPU float2 gpu_ask2(const float *p)
{
    float2 v;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "l"(p)
                 : "memory");
    return v;
}

/* Any function of three words, bit by bit (PTX ISA, lop3): `table` is f(0xf0, 0xcc, 0xaa). */
template <u32 table> GPU u32 gpu_lop3(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(table));
    return r;
}

/* Bytes of a (numbers 0..3) and b (4..7), picked by the nibbles of `select`, lowest first. */
GPU u32 gpu_permute_bytes(u32 a, u32 b, u32 select)
{
    return __byte_perm(a, b, select);
}

GPU u32 gpu_leading_zeros(u32 v) /* 32 of 0 */
{
    return (u32)__clz((int)v);
}

/* Two halves in a word, low first. Round to nearest even; too large becomes infinite. */
GPU u32 gpu_half2(float low, float high)
{
    u32 r;
    asm("{.reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
        : "=r"(r)
        : "f"(low), "f"(high));
    return r;
}

GPU u16 gpu_half(float v)
{
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

GPU float gpu_from_half(u16 v)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}

GPU u32 gpu_half2_sub(u32 a, u32 b)
{
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

GPU u32 gpu_half2_mul(u32 a, u32 b)
{
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

GPU u32 gpu_half2_fma(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

/* p, which points to global memory: shorter loads and stores than through any pointer. */
template <typename T> GPU T *gpu_global(T *p)
{
    __builtin_assume(__isGlobal(p));
    return p;
}

/* The same for shared memory. */
template <typename T> GPU T *gpu_near(T *p)
{
    __builtin_assume(__isShared(p));
    return p;
}

/* sizeof(T) bytes, aligned alike, whatever their type. */
template <typename T> GPU T gpu_load(const void *p)
{
    return *(const T *)p;
}

template <typename T> GPU void gpu_store(void *p, T v)
{
    *(T *)p = v;
}

/* A product that is rounded: never part of a fused multiply-add. */
GPU float gpu_mul(float a, float b)
{
    return __fmul_rn(a, b);
}

GPU float gpu_exp2(float v) /* within 2 units of the last place; 2^0 = 1, 2^-inf = 0 */
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

GPU float gpu_reciprocal(float v) /* within 1 unit of the last place; of inf 0 */
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

GPU float gpu_rsqrt(float v) /* 1 / sqrt(v), within 2 units of the last place; of 0 inf */
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

GPU void gpu_sincospi(float v, float *s, float *c) /* of pi v, |v| <= 1 */
{
    sincospif(v, s, c);
}

GPU u64 gpu_clock_ns(void)
{
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* --- Hopper: groups of four warps ---------------------------------------------------------------
 * Only where GPU_GROUPS is defined (compute_90a). */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GPU_GROUPS 1
#endif

/* Orders this thread's ordinary reads and writes, and what they have seen, with bulk copies. */
GPU void gpu_fence_bulk(void)
{
#ifdef GPU_GROUPS
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

#ifdef GPU_GROUPS

/* From here on the four warps of a group have so many registers each; first the groups that need
 * fewer than the kernel began with, else the others wait for them (PTX ISA, setmaxnreg). */
template <u32 registers> GPU void gpu_registers_less(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <u32 registers> GPU void gpu_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

/* v, which all lanes of the warp have alike, in a register of the warp: addresses and descriptors
 * that copies and products take from it are then ready. */
GPU u32 gpu_scalar(u32 v)
{
    return __reduce_min_sync(~0u, v);
}

/* The same of a word that only the first lane reads. */
GPU u32 gpu_scalar_load(const u32 *p)
{
    return __reduce_min_sync(~0u, gpu_lane() ? ~0u : *p);
}

/* The sum of the four signed bytes of v. */
GPU i32 gpu_add_bytes(u32 v)
{
    return __dp4a((i32)v, 0x01010101, 0);
}

GPU u32 gpu_shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

/* A barrier in shared memory (PTX ISA, mbarrier): a phase of it ends when `count` have arrived
 * and bulk copies have come. gpu_barrier_wait waits until phase 0, 2, .. (parity 0) or 1, 3, .. (1)
 * has ended. */
GPU void gpu_barrier_init(u64 *b, u32 count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(gpu_shared_address(b)), "r"(count)
                 : "memory");
}

GPU void gpu_barrier_arrive(u64 *b)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(gpu_shared_address(b)) : "memory");
}

/* The same, where this thread has done with what bulk copies brought and lets the next ones write
 * there: they are of another proxy (PTX ISA, async proxy), hence the fence. Each thread arrives for
 * itself, since racecheck (compute-sanitizer) takes an arrival to speak for no other thread, not
 * even behind gpu_warp_sync or gpu_sync. */
GPU void gpu_barrier_leave(u64 *b)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    gpu_barrier_arrive(b);
}

/* Arrives when this thread's gpu_copy16 so far are there. */
GPU void gpu_barrier_arrive_copied(u64 *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(gpu_shared_address(b))
                 : "memory");
}

/* One warp together: copies bytes, a multiple of 16, from global to shared memory, both aligned to
 * 16, in the background; one lane arrives at b, whose phase does not end before they are there. */
GPU void gpu_copy_bulk(void *to, const void *from, u32 bytes, u64 *b)
{
    asm volatile("{.reg .pred one;\n"
                 "elect.sync _|one, 0xffffffff;\n"
                 "@one mbarrier.arrive.expect_tx.shared.b64 _, [%3], %2;\n"
                 "@one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];}" ::"r"(gpu_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(gpu_shared_address(b))
                 : "memory");
}

/* One thread: arrives, and the phase does not end before so many bytes have come that it, or
 * whoever it answers for, copies. */
GPU void gpu_barrier_expect(u64 *b, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(gpu_shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

/* gpu_copy_bulk by one thread, of bytes that are expected. */
GPU void gpu_copy_bulk_alone(void *to, const void *from, u32 bytes, u64 *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(gpu_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(gpu_shared_address(b))
                 : "memory");
}

/* How long what a bulk copy reads should stay in L2. What is read once a step goes first: else it
 * pushes out what is wanted again: rows, tables and the kernel's own instructions. */
GPU u64 gpu_stay_short(void)
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
GPU u64 gpu_stay_normal(void)
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* gpu_copy_bulk_alone with a choice of that. */
GPU void gpu_copy_bulk_stay(void *to, const void *from, u32 bytes, u64 *b, u64 policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(gpu_shared_address(to)),
                 "l"(from), "r"(bytes), "r"(gpu_shared_address(b)), "l"(policy)
                 : "memory");
}

GPU void gpu_barrier_wait(u64 *b, u32 parity)
{
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(gpu_shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* gpu_barrier_wait would not wait. */
GPU bool gpu_barrier_passed(u64 *b, u32 parity)
{
    u32 passed;
    asm volatile("{.reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(passed)
                 : "r"(gpu_shared_address(b)), "r"(parity)
                 : "memory");
    return passed;
}

#include "kernels/cuda/gpu_group.cuh"

#endif

#else
#include "tests/fakecuda/emulate.h"
#endif

/* Of what gpu_ask4 and gpu_ask2 brought: is it still to come? */
GPU bool gpu_missing(float v)
{
    return gpu_bits(v) == NOT_YET;
}
GPU bool gpu_missing(const float4 &v)
{
    return gpu_missing(v.x) || gpu_missing(v.y) || gpu_missing(v.z) || gpu_missing(v.w);
}

/* v as it may be written where others ask: NOT_YET is one of many NaNs. */
GPU float gpu_answer(float v)
{
    return gpu_missing(v) ? gpu_from_bits(0x7fffffff) : v;
}

GPU float gpu_from_bf16(u16 v)
{
    return gpu_from_bits((u32)v << 16);
}

GPU float gpu_sum_warp(float v) /* one order for all lanes: the same bits in each */
{
    for (u32 mask = 16; mask; mask /= 2)
        v += gpu_shuffle_xor(v, mask);
    return v;
}

GPU float gpu_max_warp(float v)
{
    for (u32 mask = 16; mask; mask /= 2)
        v = fmaxf(v, gpu_shuffle_xor(v, mask));
    return v;
}

/* The largest of this lane's and of the lane whose number differs in `mask`. */
GPU u32 gpu_max_xor(u32 v, u32 mask)
{
    u32 other = gpu_shuffle_xor(v, mask);
    return v > other ? v : other;
}

#if GPU_CAPABILITY < 800
/* As later cards have them. */
GPU void gpu_mma(float c[4], const u32 a[4], const u32 b[2])
{
    gpu_mma_8(c, a, b[0]);
    gpu_mma_8(c, a + 2, b[1]);
}

GPU void gpu_mma_bytes(i32 c[4], const u32 a[4], const u32 b[2])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        gpu_mma_bytes_16(c + i % 2 * 2, a[i], b[i / 2]);
}

GPU u32 gpu_most_warp(u32 v)
{
    for (u32 mask = 16; mask; mask /= 2)
        v = gpu_max_xor(v, mask);
    return v;
}

GPU i32 gpu_add_warp(i32 v)
{
    for (u32 mask = 16; mask; mask /= 2)
        v += (i32)gpu_shuffle_xor((u32)v, mask);
    return v;
}
#endif

/* Of n, a power of two, which are lost; those of a pair do not wait for the pair before. */
template <u32 n> GPU u32 gpu_most(u32 v[n])
{
    if constexpr (n > 1) {
#pragma unroll
        for (u32 i = 0; i < n / 2; i++)
            v[i] = MAX(v[i], v[i + n / 2]);
        return gpu_most<n / 2>(v);
    }
    return v[0];
}

#endif
