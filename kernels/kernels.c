#include "kernels/kernels.h"

#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/vector.h"

#include <stdio.h>

/* SET(name, text, what it needs, vector kernels, feature), best first: the order of choice. A set
 * is linear_<name>. */
#if defined(__x86_64__)
#define SETS(SET)                                                                    \
    SET(amx, "amx", "AMX int8 and AVX-512 with VNNI", vector_avx512, amx_int8)       \
    SET(avx512_vnni, "avx512-vnni", "AVX-512 with VNNI", vector_avx512, avx512_vnni) \
    SET(avx_vnni, "avx-vnni", "AVX2 with AVX-VNNI", vector_avx2, avx_vnni)           \
    SET(avx2_int8, "avx2-int8", "AVX2, FMA, F16C", vector_avx2, avx2)                \
    SET(avx512, "avx512", "AVX-512 F, BW, DQ, VL", vector_avx512, avx512)            \
    SET(avx2, "avx2", "AVX2, FMA, F16C", vector_avx2, avx2)
#else
#define SETS(SET)                                                                       \
    SET(neon_i8mm, "neon-i8mm", "int8 matrix instructions", vector_neon, i8mm)          \
    SET(neon_dotprod, "neon-dotprod", "dot product instructions", vector_neon, dotprod) \
    SET(neon, "neon", "every arm64 CPU", vector_neon, neon)
#endif

#define SUPPORTED(set, text, needs, vector, feature) \
    static bool supported_##set(void)                \
    {                                                \
        struct cpu_features f;                       \
        cpu_features_read(&f);                       \
        return f.feature;                            \
    }
SETS(SUPPORTED)

#define DEFINE(set, text, needs, vector, feature)                                    \
    static const struct kernel_set set_##set = {text, needs, &linear_##set, &vector, \
                                                supported_##set};
SETS(DEFINE)

static bool supported_scalar(void)
{
    return true;
}

static const struct kernel_set set_scalar = {"scalar", "nothing: the reference", &linear_scalar,
                                             &vector_scalar, supported_scalar};

#define ENTRY(set, text, needs, vector, feature) &set_##set,
const struct kernel_set *const kernel_sets[] = {SETS(ENTRY) & set_scalar, NULL};

const struct kernel_set *kernels_choose(const char *name, u32 activation_bits)
{
    bool any_name = !name || strcmp(name, "auto") == 0;
    for (u32 i = 0; kernel_sets[i]; i++) {
        const struct kernel_set *set = kernel_sets[i];
        bool fits = !activation_bits || set->linear->activation_bits == activation_bits;
        if (fits && (any_name || strcmp(name, set->name) == 0) && set->supported())
            return set;
    }
    return NULL;
}

void kernels_describe_cpu(char *out, size_t cap)
{
    struct cpu_features f;
    cpu_features_read(&f);
    snprintf(out, cap, "%s:%s%s%s%s%s%s%s%s%s", f.model, f.avx2 ? " avx2" : "",
             f.avx_vnni ? " avx-vnni" : "", f.avx512 ? " avx512" : "",
             f.avx512_vnni ? " avx512-vnni" : "", f.avx512_bf16 ? " avx512-bf16" : "",
             f.amx_int8 ? " amx-int8" : "", f.neon ? " neon" : "", f.dotprod ? " dotprod" : "",
             f.i8mm ? " i8mm" : "");
}
