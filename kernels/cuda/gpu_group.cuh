/* Products of four warps together, on Hopper (PTX ISA, wgmma). See gpu.cuh, which includes this and
 * where their names are explained; on the host they are emulated. */
#ifndef ZIGCUDA_GPU_GROUP_CUH
#define ZIGCUDA_GPU_GROUP_CUH

/* Products of a group of four warps, 0..3 or 4..7 (PTX ISA, wgmma.m64nNk16): c += a b, where a and
 * c of each warp are as gpu_mma has them, c for N / 8 times 8 tokens, and b are tiles of 8 tokens x
 * 8 inputs in shared memory, 128 bytes each: those of the next inputs `further` bytes on, those of
 * the next tokens `stride`. `add` false: c = a b. They run in the background: c and a must
 * not be touched until they are waited for. */
template <u32 further = 128>
GPU u32 gpu_group_tiles(const void *tiles) /* what gpu_group_mma wants to know of them */
{
    return further / 16 << 16 | gpu_shared_address(tiles) / 16;
}

/* The tiles `bytes` further on. */
GPU u32 gpu_group_tiles_at(u32 tiles, u32 bytes)
{
    return tiles + bytes / 16;
}

/* Tiles `bytes` further on, whose next inputs are not `from` but `further` bytes on. */
template <u32 from, u32 further> GPU u32 gpu_group_tiles_of(u32 tiles, u32 bytes)
{
    return tiles + bytes / 16 + ((further - from) / 16 << 16);
}

#define GPU_C4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define GPU_C8(i) GPU_C4(i), GPU_C4(i + 4)
#define GPU_C16(i) GPU_C8(i), GPU_C8(i + 8)
#define GPU_C32(i) GPU_C16(i), GPU_C16(i + 16)
#define GPU_R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define GPU_R16 GPU_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define GPU_R32                                                                        \
    GPU_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
            "%30, %31"
#define GPU_C36(i) GPU_C32(i), GPU_C4(i + 32)
#define GPU_R36 GPU_R32 ", %32, %33, %34, %35"
#define GPU_C64(i) GPU_C32(i), GPU_C32(i + 32)
#define GPU_R64                                                                        \
    GPU_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
            "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "   \
            "%60, %61, %62, %63"
#define GPU_GROUP_MMA(tokens, registers, results, a0, a1, a2, a3, b0, b1, p)                 \
    asm volatile("{.reg .pred p;\n.reg .b64 b;\n"                                            \
                 "setp.ne.b32 p, " p ", 0;\nmov.b64 b, {" b0 ", " b1 "};\n"                  \
                 "wgmma.mma_async.sync.aligned.m64n" tokens "k16.f32.f16.f16 "               \
                 "{" registers "}, {" a0 ", " a1 ", " a2 ", " a3 "}, b, p, 1, 1, 0;}"        \
                 : results                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(tiles), "n"(stride / 16), \
                   "n"(add))

template <u32 tokens, u32 stride, bool add, u32 further = 128>
GPU void gpu_group_mma(float *c, const u32 a[4], u32 tiles)
{
    static_assert(tokens == 16 || tokens == 32 || tokens == 64 || tokens == 72 || tokens == 128,
                  "");
    if constexpr (tokens == 16)
        GPU_GROUP_MMA("16", GPU_R8, GPU_C8(0), "%8", "%9", "%10", "%11", "%12", "%13", "%14");
    else if constexpr (tokens == 32)
        GPU_GROUP_MMA("32", GPU_R16, GPU_C16(0), "%16", "%17", "%18", "%19", "%20", "%21", "%22");
    else if constexpr (tokens == 64)
        GPU_GROUP_MMA("64", GPU_R32, GPU_C32(0), "%32", "%33", "%34", "%35", "%36", "%37", "%38");
    else if constexpr (tokens == 72)
        GPU_GROUP_MMA("72", GPU_R36, GPU_C36(0), "%36", "%37", "%38", "%39", "%40", "%41", "%42");
    else
        GPU_GROUP_MMA("128", GPU_R64, GPU_C64(0), "%64", "%65", "%66", "%67", "%68", "%69", "%70");
}

/* gpu_group_mma of 128 columns where a, of 64 rows, lies in shared memory, too: as tiles of 8 rows
 * x 8 inputs, those of the next inputs `rows_further` bytes on, of the next rows 128. Both are what
 * gpu_group_tiles has of them. */
template <bool add, u32 rows_further, u32 further>
GPU void gpu_group_mma_shared(float *c, u32 rows, u32 tiles)
{
    asm volatile("{.reg .pred p;\n.reg .b64 a, b;\n"
                 "setp.ne.b32 p, %67, 0;\nmov.b64 a, {%64, %66};\nmov.b64 b, {%65, %66};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GPU_R64
                 "}, a, b, p, 1, 1, "
                 "0, 0;}"
                 : GPU_C64(0)
                 : "r"(rows), "r"(tiles), "n"(128 / 16), "n"(add));
}

/* The same of bytes (PTX ISA, wgmma.m64nNk32, .s32.u8.s8): a are as gpu_mma_bytes has them, c are
 * integers, b tiles of 8 columns x 16 inputs. */
#define GPU_I4(i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3])
#define GPU_I16(i) GPU_I4(i), GPU_I4(i + 4), GPU_I4(i + 8), GPU_I4(i + 12)
#define GPU_I32(i) GPU_I16(i), GPU_I16(i + 16)
#define GPU_GROUP_MMA_BYTES(columns, registers, results, a0, a1, a2, a3, b0, b1, p)          \
    asm volatile("{.reg .pred p;\n.reg .b64 b;\n"                                            \
                 "setp.ne.b32 p, " p ", 0;\nmov.b64 b, {" b0 ", " b1 "};\n"                  \
                 "wgmma.mma_async.sync.aligned.m64n" columns "k32.s32.u8.s8 "                \
                 "{" registers "}, {" a0 ", " a1 ", " a2 ", " a3 "}, b, p;}"                 \
                 : results                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(tiles), "n"(stride / 16), \
                   "n"(add))
template <u32 columns, u32 stride, bool add, u32 further = 128>
GPU void gpu_group_mma_bytes(i32 *c, const u32 a[4], u32 tiles)
{
    static_assert(columns == 32 || columns == 64, "");
    if constexpr (columns == 32)
        GPU_GROUP_MMA_BYTES("32", GPU_R16, GPU_I16(0), "%16", "%17", "%18", "%19", "%20", "%21",
                            "%22");
    else
        GPU_GROUP_MMA_BYTES("64", GPU_R32, GPU_I32(0), "%32", "%33", "%34", "%35", "%36", "%37",
                            "%38");
}

/* Before a batch of products whose sums' registers others have written or read, or a in shared
 * memory. */
GPU void gpu_group_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Before a batch of products, whose a-fragments have been made by other instructions. */
template <u32 n> GPU void gpu_group_begin(u32 a[n][4])
{
    static_assert(n == 2 || n == 4 || n == 8, "");
    if constexpr (n == 8) {
        gpu_group_begin<4>(a);
        gpu_group_begin<4>(a + 4);
    } else if constexpr (n == 4)
        asm volatile("wgmma.fence.sync.aligned;"
                     : "+r"(a[0][0]), "+r"(a[0][1]), "+r"(a[0][2]), "+r"(a[0][3]), "+r"(a[1][0]),
                       "+r"(a[1][1]), "+r"(a[1][2]), "+r"(a[1][3]), "+r"(a[2][0]), "+r"(a[2][1]),
                       "+r"(a[2][2]), "+r"(a[2][3]), "+r"(a[3][0]), "+r"(a[3][1]), "+r"(a[3][2]),
                       "+r"(a[3][3])::"memory");
    else
        asm volatile("wgmma.fence.sync.aligned;"
                     : "+r"(a[0][0]), "+r"(a[0][1]), "+r"(a[0][2]), "+r"(a[0][3]), "+r"(a[1][0]),
                       "+r"(a[1][1]), "+r"(a[1][2]), "+r"(a[1][3])::"memory");
}

/* Of shared memory, and not earlier than here, as registers are few. */
GPU float4 gpu_load_now(const float4 *p)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(gpu_shared_address(p)));
    return v;
}

/* In front of products whose sums do not begin with 0: they are there. */
template <u32 tokens> GPU void gpu_group_begin_sums(float *c)
{
    static_assert(tokens == 32, "");
    asm volatile("" : GPU_C16(0));
}

/* Closes a batch of products. */
GPU void gpu_group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most n batches are under way, and c, of `tokens`, may be read. */
template <int n> GPU void gpu_group_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
template <int n, u32 tokens> GPU void gpu_group_wait(float *c)
{
    if constexpr (tokens == 16)
        asm volatile("wgmma.wait_group.sync.aligned %8;" : GPU_C8(0) : "n"(n) : "memory");
    else if constexpr (tokens == 32)
        asm volatile("wgmma.wait_group.sync.aligned %16;" : GPU_C16(0) : "n"(n) : "memory");
    else if constexpr (tokens == 64)
        asm volatile("wgmma.wait_group.sync.aligned %32;" : GPU_C32(0) : "n"(n) : "memory");
    else if constexpr (tokens == 72)
        asm volatile("wgmma.wait_group.sync.aligned %36;" : GPU_C36(0) : "n"(n) : "memory");
    else
        asm volatile("wgmma.wait_group.sync.aligned %64;" : GPU_C64(0) : "n"(n) : "memory");
}
template <int n, u32 columns> GPU void gpu_group_wait(i32 *c)
{
    if constexpr (columns == 32)
        asm volatile("wgmma.wait_group.sync.aligned %16;" : GPU_I16(0) : "n"(n) : "memory");
    else
        asm volatile("wgmma.wait_group.sync.aligned %32;" : GPU_I32(0) : "n"(n) : "memory");
}

#endif
