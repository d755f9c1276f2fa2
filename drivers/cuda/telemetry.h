/* What NVIDIA's management library tells about a device while it runs: power, temperature, clocks,
 * and why they are lowered. Optional: without libnvidia-ml.so.1, or on a device that it does not
 * know (some Jetsons), there is no telemetry and nothing else is missing. Facts from the public
 * NVML reference. The library stays loaded for the life of the process.
 */
#ifndef ZIGCUDA_CUDA_TELEMETRY_H
#define ZIGCUDA_CUDA_TELEMETRY_H

#include "core/base/arena.h"

struct cuda_nvml_device; /* the library's handle */

struct cuda_telemetry { /* a value that the device does not tell is NAN */
    double power_w, power_limit_w;
    double temperature_c;
    double sm_mhz, memory_mhz;
    double busy_percent;                    /* of the last second or so in which a kernel ran */
    double memory_bytes, memory_used_bytes; /* by all processes */
    bool throttle_told;
    u64 throttle; /* NVML's bits, for cuda_throttle_set and cuda_throttle_text */
};

/* Why clocks are lowered, one word or two each; a NULL behind them. */
extern const char *const cuda_throttle_names[];

/* Nothing is told. */
struct cuda_telemetry cuda_telemetry_none(void);

/* uuid as in struct cuda_info. ERR_DEVICE: no library, or not for this device. */
MUST enum err cuda_telemetry_open(struct arena *keep, const char *uuid,
                                  struct cuda_nvml_device **out, struct err_text *e);

/* Asks for all of it. The first time that takes 6 ms on an H200, later 0.1 ms. */
void cuda_telemetry_read(struct cuda_nvml_device *device, struct cuda_telemetry *out);

/* A set of NVML's throttle reasons: bit i for cuda_throttle_names[i]; as words into out[cap],
 * "power cap, heat" or "none". */
u32 cuda_throttle_set(u64 reasons);
void cuda_throttle_text(u64 reasons, char *out, size_t cap);

#endif
