/* Reading memory and nothing else, as wide as the including file's instruction set can: the roof of
 * decode, for benchmarks. Included by the vector_*.c files.
 */
#ifndef ZIGCUDA_READ_H
#define ZIGCUDA_READ_H

#include "core/base/base.h"

typedef u64 read_line __attribute__((vector_size(64), aligned(8), may_alias));

enum { READ_AHEAD_BYTES = 4096 };

/* n bytes at p (8-byte aligned; what is left of 512 bytes is not read). */
static void read_memory(const void *p, size_t n)
{
    const read_line *at = p;
    read_line sum[8] = {0};
    for (size_t i = 0; i + 8 <= n / sizeof(read_line); i += 8)
        for (u32 j = 0; j < 8; j++) {
            __builtin_prefetch((const u8 *)(at + i + j) + READ_AHEAD_BYTES);
            sum[j] ^= at[i + j];
        }
    for (u32 j = 1; j < 8; j++)
        sum[0] ^= sum[j];
    u64 rest = 0;
    for (u32 j = 0; j < 8; j++)
        rest ^= sum[0][j];
    __asm__ volatile("" ::"r"(rest)); /* somebody wants it */
}

#endif
