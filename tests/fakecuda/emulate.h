/* The CPU's half of kernels/cuda/gpu.cuh: the same names, run by fibers, one a thread of the grid,
 * all in one thread of the system. What a warp does together (shuffles, tensor-core products) is
 * done by the lane that comes last, for all. It is for right answers, not for speed; and what one
 * warp's lanes would do in lockstep by luck, it does not: a missing gpu_warp_sync shows.
 */
#ifndef ZIGCUDA_EMULATE_H
#define ZIGCUDA_EMULATE_H

#include "kernels/cuda/step.h"
#include "tests/fakecuda/grid.h"
#include "tests/fakecuda/races.h"

#include <math.h>
#include <time.h>

/* As gpu.cuh has it: 900 has the ways of all cards but those of 750, which build/sm75 is for. */
#ifndef GPU_CAPABILITY
#define GPU_CAPABILITY 900
#endif
#if GPU_CAPABILITY >= 900
#define GPU_GROUPS 1
#endif

#define GPU static inline __attribute__((unused))
#define GPU_CALL static __attribute__((unused))
#define GPU_KERNEL_OF(threads, name, params, blocks) GPU_KERNEL(name, params, blocks)
#define GPU_KERNEL(name, params, blocks)                                             \
    static void name##_body(const params &p);                                        \
    static void name##_entry(const void *p)                                          \
    {                                                                                \
        name##_body(*(const params *)p);                                             \
    }                                                                                \
    static const struct emulated name##_kernel(#name, name##_entry, sizeof(params)); \
    static void name##_body(const params &p)

struct uint4 {
    u32 x, y, z, w;
};
struct uint2 {
    u32 x, y;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};

/* The running fiber. */
struct fiber {
    u32 thread, threads, block, blocks;
    u32 number; /* of this one in what runs together */
    u8 *shared;
    struct warp *warp;
};
extern struct fiber *fiber_now;

void fiber_pause(void);                      /* lets the others run */
void fiber_sync_block(void);                 /* the first GPU_THREADS of the block */
void fiber_sync_team(u32 team, u32 threads); /* so many of the first GPU_THREADS */
void fiber_sync_all(void);                   /* all fibers of the block */
bool fiber_sync_any(bool v);                 /* the same, and whether one said so */
void fiber_sync_warp(void);                  /* all fibers of the warp */
const u32 *fiber_exchange(u32 mine);         /* [32]: what the lanes gave; until the next but one */
void fiber_copy_wait(u32 n);                 /* as gpu_copy_wait<n> */

/* End the process with a message: a condition does not hold; p is no multiple of 16, or 16 bytes
 * there are not in the block's shared memory. */
void emulate_stop(const char *what);
GPU void emulate_check(bool good, const char *what)
{
    if (__builtin_expect(!good, 0))
        emulate_stop(what);
}
void emulate_shared(const void *p);

GPU u32 gpu_thread(void)
{
    return fiber_now->thread;
}
GPU u32 gpu_thread_again(void)
{
    return gpu_thread();
}
GPU u32 gpu_lane(void)
{
    return fiber_now->thread & 31;
}
GPU u32 gpu_warp(void)
{
    return fiber_now->thread >> 5;
}
GPU u32 gpu_warp_place(void) /* two blocks, a warp apart */
{
    return gpu_warp() + fiber_now->block % 2 * 9;
}
GPU u32 gpu_block(void)
{
    return fiber_now->block;
}
GPU u32 gpu_blocks(void)
{
    return fiber_now->blocks;
}
GPU u8 *gpu_shared(void)
{
    return fiber_now->shared;
}
GPU void gpu_sync(void)
{
    fiber_sync_block();
}
template <u32 threads> GPU void gpu_sync_team(u32 team)
{
    fiber_sync_team(team, threads);
}
GPU bool gpu_sync_any(bool v)
{
    return fiber_sync_any(v);
}
GPU void gpu_sync_all(void)
{
    fiber_sync_all();
}
GPU void gpu_warp_sync(void)
{
    fiber_sync_warp();
}
GPU u32 gpu_clock(void)
{
    static volatile u32 now;
    return now = now + 10;
}
GPU void gpu_pause(void)
{
    fiber_pause();
}
GPU void gpu_fence(void)
{
    races_fence();
}
void gpu_fence_system(void);

GPU u32 gpu_bits(float v)
{
    u32 r;
    memcpy(&r, &v, 4);
    return r;
}
GPU float gpu_from_bits(u32 v)
{
    float r;
    memcpy(&r, &v, 4);
    return r;
}

GPU u32 gpu_shuffle(u32 v, u32 lane)
{
    return fiber_exchange(v)[lane];
}
GPU float gpu_shuffle(float v, u32 lane)
{
    return gpu_from_bits(gpu_shuffle(gpu_bits(v), lane));
}
GPU u32 gpu_uniform(u32 v)
{
    emulate_check(gpu_shuffle(v, 0) == v, "gpu_uniform of what lanes do not have alike");
    return v;
}
GPU u32 gpu_shuffle_xor(u32 v, u32 mask)
{
    return gpu_shuffle(v, gpu_lane() ^ mask);
}
GPU float gpu_shuffle_xor(float v, u32 mask)
{
    return gpu_shuffle(v, gpu_lane() ^ mask);
}
GPU u32 gpu_ballot(bool v)
{
    u32 all = 0;
    const u32 *lanes = fiber_exchange(v);
    for (u32 i = 0; i < 32; i++)
        all |= lanes[i] << i;
    return all;
}

u32 gpu_atomic_add(u32 *p, u32 v);
void gpu_atomic_add64(u64 *p, u64 v);
void gpu_atomic_max64(u64 *p, u64 v);
void gpu_count_around(u32 *p, u32 last);
void gpu_add_release(u32 *p, u32 v);
void gpu_store_volatile(u32 *p, u32 v);

/* Volatile reads: so races.cc knows them. */
GPU u32 gpu_load_acquire(const u32 *p)
{
    races_acquire(p);
    return *(const volatile u32 *)p;
}
GPU u32 gpu_load_volatile(const u32 *p)
{
    races_atomic(p);
    return *(const volatile u32 *)p;
}
GPU float4 gpu_ask4(const float *p)
{
    const volatile float *v = p;
    return {v[0], v[1], v[2], v[3]};
}
GPU float2 gpu_ask2(const float *p)
{
    const volatile float *v = p;
    return {v[0], v[1]};
}

#ifdef __aarch64__
typedef __fp16 float16;
#else
typedef _Float16 float16;
#endif

GPU u16 gpu_half(float v) /* round to nearest even */
{
    float16 h = (float16)v;
    u16 r;
    memcpy(&r, &h, 2);
    return r;
}
GPU float gpu_from_half(u16 v)
{
#ifdef __F16C__ /* else gcc calls a function where a double is made of it */
    typedef short shorts __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps((shorts){(short)v})[0];
#else
    float16 h;
    memcpy(&h, &v, 2);
    return (float)h;
#endif
}

GPU u32 gpu_half2(float low, float high)
{
    return (u32)gpu_half(high) << 16 | gpu_half(low);
}
GPU u32 gpu_half2_sub(u32 a, u32 b)
{
    return gpu_half2(gpu_from_half((u16)a) - gpu_from_half((u16)b),
                     gpu_from_half((u16)(a >> 16)) - gpu_from_half((u16)(b >> 16)));
}
GPU u32 gpu_half2_mul(u32 a, u32 b)
{
    return gpu_half2(gpu_from_half((u16)a) * gpu_from_half((u16)b),
                     gpu_from_half((u16)(a >> 16)) * gpu_from_half((u16)(b >> 16)));
}
GPU u32 gpu_half2_fma(u32 a, u32 b, u32 c) /* f32 holds the product of halves exactly */
{
    return gpu_half2(
        (float)((double)gpu_from_half((u16)a) * gpu_from_half((u16)b) + gpu_from_half((u16)c)),
        (float)((double)gpu_from_half((u16)(a >> 16)) * gpu_from_half((u16)(b >> 16)) +
                gpu_from_half((u16)(c >> 16))));
}

template <u32 table> GPU u32 gpu_lop3(u32 a, u32 b, u32 c)
{
    u32 r = 0;
    for (u32 i = 0; i < 8; i++)
        if (table >> i & 1)
            r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}

GPU u32 gpu_permute_bytes(u32 a, u32 b, u32 select)
{
    u64 both = (u64)b << 32 | a;
    u32 r = 0;
    for (u32 i = 0; i < 4; i++)
        r |= (u32)(both >> (select >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}

GPU u32 gpu_leading_zeros(u32 v)
{
    return v ? (u32)__builtin_clz(v) : 32;
}

/* gpu_mma and gpu_mma_bytes as they are from 800 on. */
void emulate_mma(float c[4], const u32 a[4], const u32 b[2]);
void emulate_mma_bytes(i32 c[4], const u32 a[4], const u32 b[2]);
#if GPU_CAPABILITY >= 800
GPU void gpu_mma(float c[4], const u32 a[4], const u32 b[2])
{
    emulate_mma(c, a, b);
}
GPU void gpu_mma_bytes(i32 c[4], const u32 a[4], const u32 b[2])
{
    emulate_mma_bytes(c, a, b);
}
GPU u32 gpu_most_warp(u32 v)
{
    const u32 *lanes = fiber_exchange(v);
    for (u32 i = 0; i < 32; i++)
        v = MAX(v, lanes[i]);
    return v;
}
GPU i32 gpu_add_warp(i32 v)
{
    const u32 *lanes = fiber_exchange((u32)v);
    u32 sum = 0;
    for (u32 i = 0; i < 32; i++)
        sum += lanes[i];
    return (i32)sum;
}
#else
GPU void gpu_mma_8(float c[4], const u32 a[2], u32 b)
{
    const u32 whole_a[4] = {a[0], a[1], 0, 0}, whole_b[2] = {b, 0};
    emulate_mma(c, whole_a, whole_b);
}
GPU void gpu_mma_bytes_16(i32 c[2], u32 a, u32 b)
{
    const u32 whole_a[4] = {a, 0, 0, 0}, whole_b[2] = {b, 0};
    i32 whole_c[4] = {c[0], c[1], 0, 0};
    emulate_mma_bytes(whole_c, whole_a, whole_b);
    c[0] = whole_c[0], c[1] = whole_c[1];
}
#endif
void gpu_load_tiles(u32 r[4], const void *row);
void gpu_load_tiles_transposed(u32 r[4], const void *row);

/* Copies happen as late as they may, in the gpu_copy_wait that waits for them: what is read too
 * early shows. With 750 they are done at once: what is overwritten too early shows. */
void gpu_copy16(void *to, const void *from, bool read = true);
template <class type> GPU type *gpu_opaque(type *p)
{
    return p;
}
void gpu_copy8(void *to, const void *from, u32 bytes = 8);
void gpu_copy4(void *to, const void *from, bool read = true);
GPU void gpu_copy16_if(bool when, void *to, const void *from)
{
    if (when)
        gpu_copy16(to, from);
}
void gpu_copy_commit(void);
template <int n> GPU void gpu_copy_wait(void)
{
    fiber_copy_wait(n);
}

/* Groups of warps: a warp's products are done when they are asked for. Bulk copies, and
 * arrivals after copies with these, happen in the gpu_barrier_wait that waits for their barrier. */
GPU bool gpu_has_groups(void)
{
    return emulate_groups;
}
GPU void gpu_fence_bulk(void)
{
}
template <u32 registers> GPU void gpu_registers_less(void)
{
}
template <u32 registers> GPU void gpu_registers_more(void)
{
}
GPU i32 gpu_add_bytes(u32 v)
{
    return (i8)v + (i8)(v >> 8) + (i8)(v >> 16) + (i8)(v >> 24);
}
GPU u32 gpu_scalar(u32 v)
{
    return gpu_uniform(v);
}
GPU u32 gpu_scalar_load(const u32 *p)
{
    return gpu_shuffle(gpu_lane() ? 0 : *p, 0);
}
void gpu_barrier_init(u64 *b, u32 count);
void gpu_barrier_arrive(u64 *b);
void gpu_barrier_arrive_copied(u64 *b);
void gpu_barrier_expect(u64 *b, u32 bytes);
void gpu_copy_bulk(void *to, const void *from, u32 bytes, u64 *b);
void gpu_copy_bulk_alone(void *to, const void *from, u32 bytes, u64 *b);
GPU u64 gpu_stay_short(void)
{
    return 0;
}
GPU u64 gpu_stay_normal(void)
{
    return 0;
}
GPU void gpu_copy_bulk_stay(void *to, const void *from, u32 bytes, u64 *b, u64 policy)
{
    (void)policy;
    gpu_copy_bulk_alone(to, from, bytes, b);
}
void gpu_barrier_wait(u64 *b, u32 parity);
bool gpu_barrier_passed(u64 *b, u32 parity);
GPU void gpu_barrier_leave(u64 *b)
{
    gpu_barrier_arrive(b);
}

template <u32 further = 128> GPU u32 gpu_group_tiles(const void *tiles)
{
    return (u32)((const u8 *)tiles - gpu_shared());
}
GPU u32 gpu_group_tiles_at(u32 tiles, u32 bytes)
{
    return tiles + bytes;
}
template <u32 from, u32 further> GPU u32 gpu_group_tiles_of(u32 tiles, u32 bytes)
{
    return tiles + bytes;
}
void emulate_group_mma(float *c, const u32 a[4], const u8 *tiles, u32 stride, u32 tokens,
                       u32 further);
template <u32 tokens, u32 stride, bool add, u32 further = 128>
GPU void gpu_group_mma(float *c, const u32 a[4], u32 tiles)
{
    for (u32 i = 0; !add && i < tokens / 2; i++)
        c[i] = 0;
    emulate_group_mma(c, a, gpu_shared() + tiles, stride, tokens, further);
}
template <bool add, u32 rows_further, u32 further>
GPU void gpu_group_mma_shared(float *c, u32 rows, u32 tiles)
{
    const u8 *at = gpu_shared() + rows + gpu_warp() % 4 * 256 + gpu_lane() * 4;
    const u32 places[4] = {0, 128, rows_further, rows_further + 128};
    u32 a[4];
    for (u32 i = 0; i < 4; i++)
        memcpy(&a[i], at + places[i], 4);
    gpu_group_mma<128, 128, add, further>(c, a, tiles);
}
void emulate_group_mma_bytes(i32 *c, const u32 a[4], const u8 *tiles, u32 stride, u32 columns,
                             u32 further);
template <u32 columns, u32 stride, bool add, u32 further = 128>
GPU void gpu_group_mma_bytes(i32 *c, const u32 a[4], u32 tiles)
{
    for (u32 i = 0; !add && i < columns / 2; i++)
        c[i] = 0;
    emulate_group_mma_bytes(c, a, gpu_shared() + tiles, stride, columns, further);
}
GPU float4 gpu_load_now(const float4 *p)
{
    return *p;
}
template <u32 tokens> GPU void gpu_group_begin_sums(float *)
{
}
template <u32 n> GPU void gpu_group_begin(u32[n][4])
{
}
GPU void gpu_group_begin(void)
{
}
GPU void gpu_group_commit(void)
{
    races_commit();
}
template <int n> GPU void gpu_group_wait(void)
{
    races_wait(n);
}
template <int n, u32 tokens> GPU void gpu_group_wait(float *)
{
    races_wait(n);
}
template <int n, u32 columns> GPU void gpu_group_wait(i32 *)
{
    races_wait(n);
}

GPU uint4 gpu_load_weights(const void *p)
{
    uint4 v;
    emulate_check(((uintptr_t)p & 15) == 0, "gpu_load_weights from no multiple of 16");
    memcpy(&v, p, 16);
    return v;
}

template <typename T> GPU T *gpu_global(T *p)
{
    return p;
}
template <typename T> GPU T *gpu_near(T *p)
{
    return p;
}
template <typename T> GPU T gpu_load(const void *p)
{
    T v;
    emulate_check((uintptr_t)p % sizeof(T) == 0, "gpu_load from an address out of alignment");
    memcpy(&v, p, sizeof v);
    return v;
}
template <typename T> GPU void gpu_store(void *p, T v)
{
    emulate_check((uintptr_t)p % sizeof(T) == 0, "gpu_store to an address out of alignment");
    memcpy(p, &v, sizeof v);
}
GPU float gpu_mul(float a, float b)
{
    return a * b; /* never contracted: -ffp-contract=off */
}
GPU float gpu_exp2(float v)
{
    return exp2f(v);
}
GPU float gpu_reciprocal(float v)
{
    return 1 / v;
}
GPU float gpu_rsqrt(float v)
{
    return 1 / sqrtf(v);
}
GPU void gpu_sincospi(float v, float *s, float *c)
{
    *s = (float)sin(M_PI * (double)v);
    *c = (float)cos(M_PI * (double)v);
}

GPU void gpu_prefetch(const void *)
{
}
GPU u64 gpu_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

#endif
