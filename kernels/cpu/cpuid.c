#include "kernels/cpu/cpuid.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux Documentation/arch/x86/xstate.rst: tile data is a dynamically enabled state. */
enum { REQUEST_XCOMP_PERMISSION = 0x1023, XSTATE_TILE_DATA = 18 };

static u64 enabled_states(void)
{
    u32 low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (u64)high << 32 | low;
}

static void read_model(char out[64])
{
    u32 part[12] = {0};
    if (__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (u32 i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &part[4 * i], &part[4 * i + 1], &part[4 * i + 2],
                    &part[4 * i + 3]);
    const char *text = (const char *)part;
    while (*text == ' ')
        text++;
    size_t n = strnlen(text, 47);
    memcpy(out, text, n);
    out[n] = 0;
}

void cpu_features_read(struct cpu_features *f)
{
    u32 a, b, c, d, b7, c7, d7, a71 = 0;
    *f = (struct cpu_features){0};
    read_model(f->model);
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return;
    u64 states = enabled_states();
    bool ymm = (states & 0x06) == 0x06, zmm = (states & 0xe6) == 0xe6;
    bool tiles = (states & 0x60000) == 0x60000;
    u32 c1 = c;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return;
    if (a >= 1)
        __get_cpuid_count(7, 1, &a71, &b, &c, &d);
    f->avx2 = ymm && b7 & bit_AVX2 && c1 & bit_FMA && c1 & bit_F16C;
    f->avx_vnni = f->avx2 && a71 & 1u << 4;
    f->avx512 = f->avx2 && zmm && b7 & bit_AVX512F && b7 & bit_AVX512BW && b7 & bit_AVX512DQ &&
                b7 & bit_AVX512VL;
    f->avx512_vnni = f->avx512 && c7 & bit_AVX512VNNI;
    f->avx512_bf16 = f->avx512 && a71 & 1u << 5;
    f->amx_int8 = f->avx512_vnni && tiles && d7 & 1u << 24 && d7 & 1u << 25 &&
                  syscall(SYS_arch_prctl, REQUEST_XCOMP_PERMISSION, XSTATE_TILE_DATA) == 0;
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

/* Bits of Linux arch/arm64/include/uapi/asm/hwcap.h. */
void cpu_features_read(struct cpu_features *f)
{
    *f = (struct cpu_features){.model = "arm64", .neon = true};
    f->dotprod = getauxval(AT_HWCAP) >> 20 & 1;
    f->i8mm = f->dotprod && getauxval(AT_HWCAP2) >> 13 & 1;
}

#else
#error "zigcuda runs on x86-64 and arm64"
#endif
