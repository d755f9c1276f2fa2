/* The CPU backend: struct device over a pool of worker threads, the forward pass and one kernel
 * set. Weights are used in place in the mapped files; those that the kernel set wants in another
 * layout are packed once, in parallel, at load, and the file's pages are let go behind it (so a
 * random model of model_shape serves one device only).
 *
 * All memory is declared in device_ops.plan and taken from the arena of device_ops.load; after load
 * nothing is allocated. The worker threads only compute: the thread that submits decides.
 */
#ifndef ZIGCUDA_CPU_H
#define ZIGCUDA_CPU_H

#include "core/engine/device.h"
#include "kernels/kernels.h"

enum { CPU_GUESSES = 3 /* that a step takes for little: kernels have tiles of four tokens */ };

struct cpu_options {
    const struct kernel_set *set; /* from kernels_choose */
    u32 threads;                  /* 0: as many as the CPUs this process may run on */
    bool pin;                     /* each worker to one CPU, if there is one for each CPU */
    bool pin_few;                 /* ... or if not */
    bool spin;                    /* workers never sleep: the least time from submit to work */
    enum dtype kv_type;           /* DTYPE_F16, DTYPE_F32 or DTYPE_I8 */
};

/* Bytes of one KV page (LIMIT_PAGE_TOKENS positions, keys and values of all layers). */
size_t cpu_kv_page_bytes(const struct model *model, enum dtype kv_type);

/* A device for `model`; its small structs come from `keep`. device_ops.close ends its threads. */
MUST enum err cpu_open(struct arena *keep, const struct model *model,
                       const struct device_limits *limits, const struct cpu_options *options,
                       struct device **out, struct err_text *e);

#endif
