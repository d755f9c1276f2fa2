/* What this CPU can do and the operating system lets it: read once from cpuid (x86-64) or the
 * auxiliary vector (arm64). Owns nothing.
 */
#ifndef ZIGCUDA_CPUID_H
#define ZIGCUDA_CPUID_H

#include "core/base/base.h"

struct cpu_features {
    char model[64]; /* brand string, or "arm64" */
    bool avx2;      /* AVX2, FMA and F16C */
    bool avx_vnni;
    bool avx512; /* F, BW, DQ and VL */
    bool avx512_vnni;
    bool avx512_bf16;
    bool amx_int8; /* and the kernel granted the tile state to this process */
    bool neon, dotprod, i8mm;
};

/* Asking for the tile state is a system call that lasts for the process and its threads. */
void cpu_features_read(struct cpu_features *f);

#endif
