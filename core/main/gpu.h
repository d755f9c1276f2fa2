/* Which GPU the options mean, and opening it, the same way for every command. `device.kind`: cpu
 * never looks for a GPU; cuda wants one; auto wants one where the box has an NVIDIA GPU (or
 * cuda.library was set by hand). One that is wanted and does not work is an error.
 */
#ifndef ZIGCUDA_GPU_H
#define ZIGCUDA_GPU_H

#include "config/options.h"
#include "drivers/cuda/query.h"

/* Does device.kind mean CUDA on this box? why[CUDA_TEXT] receives the reason, for people. */
bool gpu_wanted(const struct options *o, char *why);

/* Starts the driver, waiting up to `wait_ms` for devices that come late, and calling `waiting`
 * meanwhile unless it is NULL; *info is the one that cuda.device chooses, *count how many there
 * are. No context is open yet. */
MUST enum err gpu_find(const struct options *o, u64 wait_ms, void (*waiting)(void),
                       struct arena *keep, const struct clock *clock, struct cuda_info *info,
                       u32 *count, struct err_text *e);

/* The lines of `zigcuda info`. Whatever is missing is said in a sentence. */
void gpu_print(const struct options *o, struct arena *keep, const struct clock *clock);

#endif
