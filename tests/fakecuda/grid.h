/* Kernels compiled for the CPU, by name, and how to run a grid of one. Shared by the emulator (C++)
 * and the fake driver (C); one grid at a time in a process: the callers take turns.
 */
#ifndef ZIGCUDA_GRID_H
#define ZIGCUDA_GRID_H

#include "core/base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Registers itself before main. */
struct emulated {
#ifdef __cplusplus
    emulated(const char *name, void (*entry)(const void *params), size_t params_bytes,
             const u32 *sizes = NULL);
#endif
    const char *name;
    void (*entry)(const void *params);
    size_t params_bytes;
    const u32
        *sizes; /* of its parameters up to a 0, at natural alignment; NULL: one of all bytes */
    const struct emulated *next;
};
extern const struct emulated *emulated_kernels;

extern const u32 emulate_capability; /* GPU_CAPABILITY of the kernels: 900, or 750 (Turing) */
extern bool emulate_groups; /* of warps, as Hopper has them; false: the way of all other cards */

/* Runs a grid to its end. Together: all blocks at once, as a cooperative launch does, so that they
 * can meet; each: one block after another. A grid in which nobody can go on ends the process with a
 * message. */
void emulate_grid(const struct emulated *kernel, u32 blocks, u32 threads, u32 shared_bytes,
                  const void *params);
void emulate_each(const struct emulated *kernel, u32 blocks, u32 threads, u32 shared_bytes,
                  const void *params);

#ifdef __cplusplus
}
#endif

#endif
