/* libnvidia-ml.so.1 for boxes without a GPU: the functions of drivers/cuda/telemetry.c with fixed
 * answers for the fake GPU. ZIGCUDA_FAKE_NVML=NAME:CODE makes one of them fail with that NVML
 * result. */
#include "core/base/base.h"

#include <stdlib.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

struct fake_utilization {
    u32 gpu, memory;
};

struct fake_memory {
    u64 bytes, free, used;
};

static bool started;
static const char device[] = "the device";

static int result_of(const char *name)
{
    const char *wanted = getenv("ZIGCUDA_FAKE_NVML");
    size_t n = strlen(name);
    if (wanted && strncmp(wanted, name, n) == 0 && wanted[n] == ':')
        return (int)strtol(wanted + n + 1, NULL, 10);
    return started || strcmp(name, "nvmlInit_v2") == 0 ? SUCCESS : UNINITIALIZED;
}

#define CALL(name, parameters, body)                            \
    __attribute__((visibility("default"))) int name parameters; \
    int name parameters                                         \
    {                                                           \
        int r = result_of(#name);                               \
        if (r != SUCCESS)                                       \
            return r;                                           \
        body;                                                   \
        return SUCCESS;                                         \
    }

/* What asks for a value of the device. */
#define ASK(name, type, value)               \
    CALL(name, (const void *d, type *out), { \
        if (d != device)                     \
            return INVALID_ARGUMENT;         \
        *out = (type)value;                  \
    })

CALL(nvmlInit_v2, (void), started = true)
CALL(nvmlDeviceGetHandleByUUID, (const char *uuid, const void **out), {
    if (strncmp(uuid, "GPU-7a696763", 12) != 0)
        return NOT_FOUND;
    *out = device;
})
ASK(nvmlDeviceGetPowerUsage, u32, 123400)
ASK(nvmlDeviceGetEnforcedPowerLimit, u32, 700000)
ASK(nvmlDeviceGetCurrentClocksThrottleReasons, u64, 0x44)
ASK(nvmlDeviceGetUtilizationRates, struct fake_utilization, ((struct fake_utilization){57, 12}))
ASK(nvmlDeviceGetMemoryInfo, struct fake_memory,
    ((struct fake_memory){8ull << 30, 5ull << 30, 3ull << 30}))
CALL(nvmlDeviceGetTemperature, (const void *d, u32 sensor, u32 *out), {
    if (d != device || sensor != 0)
        return INVALID_ARGUMENT;
    *out = 61;
})
CALL(nvmlDeviceGetClockInfo, (const void *d, u32 kind, u32 *out), {
    if (d != device || (kind != 1 && kind != 2))
        return INVALID_ARGUMENT;
    *out = kind == 1 ? 1755 : 3201;
})
