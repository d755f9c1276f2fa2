/* The CUDA backend: struct device over the driver API. Everything is taken at load and nothing
 * later, on the host as on the card: the weights, packed while they are uploaded (upload.h), the KV
 * pages, all buffers of a step, and the list of its operations (list.h). A step is then one launch
 * (submit.h), and two may be in flight.
 *
 * The driver is started and the card chosen before (query.h); cuda_open takes its primary context,
 * which is this process's until device_ops.close. One thread calls, the one that booted the guest.
 */
#ifndef ZIGCUDA_CUDA_CUDA_H
#define ZIGCUDA_CUDA_CUDA_H

#include "core/base/clock.h"
#include "core/engine/device.h"
#include "drivers/cuda/profile.h"
#include "drivers/cuda/query.h"

struct cuda_options {
    const struct cuda_info *info; /* the card, from cuda_choose */
    struct clock clock;
    bool spin;         /* the caller asks again and again, and never sleeps on the descriptor */
    u64 step_ms;       /* longest time of a step */
    bool read_ahead;   /* the upload has to ask the disk for the weights itself */
    u32 share_percent; /* of the card's free memory that may be taken */
    size_t kv_bytes;   /* of KV pages; 0: what is left of that share */
    bool kv_int8;      /* keys and values in 8 bits instead of 16 */
    bool own_on_card;  /* where the table of per-layer inputs has to lie, if the model has one; */
    bool own_in_host;  /* neither: in the card's memory if beside it is room for kv_bytes, or for
                          the whole context once; else in pinned host memory, if that is there */
    size_t host_bytes; /* of host memory that it may take; 0: nobody knows */
};

/* A device for `model`; its small structs come from `keep`. limits->pages is the most that is of
 * use, and becomes what fits; limits->context with it. ERR_MEMORY: not even one page fits, or not
 * what was asked for. ERR_CONFIG: that is no page, or the card has no memory of its own besides
 * which own_in_host could be. */
MUST enum err cuda_open(struct arena *keep, const struct model *model, struct device_limits *limits,
                        const struct cuda_options *options, struct device **out,
                        struct err_text *e);

/* From now on every operation of a step is launched alone and timed (struct profile), or, with
 * `on` false, no longer. After load, before the seal for the first time. */
MUST enum err cuda_profile(struct device *d, struct arena *keep, bool on, struct profile **out,
                           struct err_text *e);

#endif
