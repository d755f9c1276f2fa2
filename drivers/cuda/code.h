/* This program's GPU code, unpacked by a thread of its own while the driver makes the context, and
 * loaded as a module. Its memory, some MB, is given back at the end.
 */
#ifndef ZIGCUDA_CUDA_CODE_H
#define ZIGCUDA_CUDA_CODE_H

#include "core/base/arena.h"
#include "drivers/cpu/pool.h"
#include "drivers/cuda/query.h"
#include "kernels/cuda/image.h"

struct code {
    const struct cuda_info *info;
    const struct gpu_code *chosen;
    struct arena memory;
    void *room;
    const void *image; /* NULL: it could not be unpacked */
    struct pool pool;
};

/* Chooses the card's code, and begins. ERR_DEVICE: there is none for it. */
MUST enum err code_open(struct code *c, const struct cuda_info *info, struct err_text *e);

/* Loads it into the context. */
MUST enum err code_load(struct code *c, struct cuda_module **out, struct err_text *e);

/* After code_open, whatever came of it, and once all functions of the module have been found:
 * drivers that load lazily may look at the image until then. */
void code_close(struct code *c);

#endif
