/* The CUDA devices of this box: is there one at all, starting the driver (also when its device
 * nodes come late), choosing one, and what it is. Errors say which of the many things that must be
 * there is missing: library, module, node, permission, version.
 *
 * A box is taken to have a GPU by what the kernel shows without any NVIDIA library: a device node,
 * or a PCI display device of vendor 10de. Such a box with a broken driver is an error for whoever
 * asks for CUDA, never a reason to compute elsewhere.
 *
 * Owns nothing but the primary context while it is open. Limits: LIMIT_GPUS.
 */
#ifndef ZIGCUDA_CUDA_QUERY_H
#define ZIGCUDA_CUDA_QUERY_H

#include "core/base/clock.h"
#include "drivers/cuda/driver.h"

#define CUDA_LIBRARY "libcuda.so.1"

enum { CUDA_UUID_TEXT = 41, CUDA_PCI_TEXT = 24, CUDA_TEXT = 256 };

/* --- what the kernel shows -------------------------------------------------------------------- */

struct cuda_box {
    bool node;     /* a device node of the NVIDIA driver is there */
    bool denied;   /* and this process may not open it */
    bool pci;      /* a PCI display device of NVIDIA is there */
    char what[96]; /* the node, or the PCI device; "" for neither */
};

/* Looks under `root`, which is "" but for tests. */
void cuda_box_look(const char *root, struct cuda_box *out);

static inline bool cuda_box_has_gpu(const struct cuda_box *b)
{
    return b->node || b->pci;
}

/* --- start ------------------------------------------------------------------------------------ */

struct cuda_settings {
    const char *library;   /* CUDA_LIBRARY, or what stands in for it */
    u64 wait_ms;           /* for devices that come late, */
    void (*waiting)(void); /* and what is called meanwhile; or NULL */
};

/* Loads the library and initializes the driver; *count (1..LIMIT_GPUS) devices are there. As long
 * as the device may still come (no node yet, CUDA_CLASS_WAIT) it is tried again until wait_ms are
 * over; the log says once that it waits. */
MUST enum err cuda_start(struct arena *keep, const struct cuda_settings *settings,
                         const struct clock *clock, u32 *count, struct err_text *e);

/* --- devices ---------------------------------------------------------------------------------- */

struct cuda_info {
    u32 index;
    int device; /* the driver's handle */
    char name[96];
    char uuid[CUDA_UUID_TEXT]; /* "GPU-8f6d6e1a-..."; "MIG-..." of a part of a GPU */
    char pci[CUDA_PCI_TEXT];   /* "0000:01:00.0"; "" where the device is on no PCI bus */
    u64 memory_bytes;
    u32 major, minor; /* compute capability */
    u32 sms, clock_khz, memory_clock_khz, bus_bits, l2_bytes;
    u32 warp, threads_block, threads_sm, blocks_sm, registers_sm;
    u32 shared_block_bytes, shared_optin_bytes, shared_sm_bytes;
    u32 grid_max[3], block_max[3];
    u32 compute_mode;
    u32 ecc, integrated, unified, concurrent_managed, pageable, map_host, cooperative; /* 0 or 1 */
    u32 time_limit; /* 1: a launch that takes seconds is broken off, for the sake of a display */
};

MUST enum err cuda_query(u32 index, struct cuda_info *out, struct err_text *e);

/* What `cuda.device` may say: an index ("0"), the start of a UUID ("GPU-8f6d", "MIG-8f6d") or a PCI
 * id ("01:00.0", "0000:01:00.0"; as nvidia-smi prints it, too). */
struct cuda_choice {
    enum { CUDA_BY_INDEX, CUDA_BY_UUID, CUDA_BY_PCI } by;
    u32 index;
    char uuid[CUDA_UUID_TEXT];
    u32 pci[4]; /* domain, bus, device, function */
};
MUST enum err cuda_choice_parse(const char *text, struct cuda_choice *out, struct err_text *e);
bool cuda_choice_fits(const struct cuda_choice *choice, const struct cuda_info *info);

/* The one of `count` devices that `text` means; ERR_CONFIG with the list when that is none or more
 * than one. */
MUST enum err cuda_choose(const char *text, u32 count, struct cuda_info *out, struct err_text *e);

/* --- the chosen one --------------------------------------------------------------------------- */

/* Takes the device's primary context and makes it current in this thread. */
MUST enum err cuda_context_open(const struct cuda_info *info, bool spin, struct err_text *e);
void cuda_context_close(const struct cuda_info *info);

/* Memory that could be taken now: what the driver says, and for an integrated GPU what the box
 * says, as both share it. The context is open. */
MUST enum err cuda_memory_now(const struct cuda_info *info, size_t *bytes, struct err_text *e);

#endif
