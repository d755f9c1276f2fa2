#include "drivers/cuda/telemetry.h"

#include "drivers/cuda/driver.h"

#include <math.h>
#include <stdio.h>

#define LIBRARY "libnvidia-ml.so.1"

enum { /* of nvml.h */
       NVML_SUCCESS = 0,
       NVML_CLOCK_SM = 1,
       NVML_CLOCK_MEM = 2,
       NVML_TEMPERATURE_GPU = 0,
};

struct utilization {
    u32 gpu, memory; /* percent */
};

struct memory {
    u64 bytes, free, used;
};

/* NVML(result type is int for all; name, symbol, parameters) */
#define NVML_CALLS                                                                                \
    NVML(init, nvmlInit_v2, (void))                                                               \
    NVML(by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, struct cuda_nvml_device **out))   \
    NVML(power, nvmlDeviceGetPowerUsage, (struct cuda_nvml_device *, u32 * mw))                   \
    NVML(power_limit, nvmlDeviceGetEnforcedPowerLimit, (struct cuda_nvml_device *, u32 * mw))     \
    NVML(temperature, nvmlDeviceGetTemperature, (struct cuda_nvml_device *, u32 sensor, u32 * c)) \
    NVML(clock, nvmlDeviceGetClockInfo, (struct cuda_nvml_device *, u32 kind, u32 * mhz))         \
    NVML(throttle, nvmlDeviceGetCurrentClocksThrottleReasons, (struct cuda_nvml_device *, u64 *)) \
    NVML(busy, nvmlDeviceGetUtilizationRates, (struct cuda_nvml_device *, struct utilization *))  \
    NVML(memory, nvmlDeviceGetMemoryInfo, (struct cuda_nvml_device *, struct memory *))

static struct table {
#define NVML(name, symbol, parameters) int(*name) parameters;
    NVML_CALLS
#undef NVML
} nvml;
static bool loaded;

static enum err load(struct arena *keep, struct err_text *e)
{
    static const struct {
        const char *symbol;
        size_t at;
    } entries[] = {
#define NVML(name, symbol, parameters) {#symbol, offsetof(struct table, name)},
        NVML_CALLS
#undef NVML
    };
    struct table t;
    void *lib;
    if (loaded)
        return ERR_OK;
    TRY(guest_open(keep, e));
    TRY(cuda_library_load(LIBRARY, &lib, e));
    for (u32 i = 0; i < COUNTOF(entries); i++) {
        void *p = guest_symbol(lib, entries[i].symbol);
        if (!p)
            return err_set(e, ERR_DEVICE, LIBRARY " has no function %s", entries[i].symbol);
        memcpy((u8 *)&t + entries[i].at, &p, sizeof p);
    }
    int r = GUEST_CALL(t.init());
    if (r != NVML_SUCCESS)
        return err_set(e, ERR_DEVICE, LIBRARY " does not start (NVML error %d)", r);
    nvml = t;
    loaded = true;
    return ERR_OK;
}

enum err cuda_telemetry_open(struct arena *keep, const char *uuid, struct cuda_nvml_device **out,
                             struct err_text *e)
{
    TRY(load(keep, e));
    int r = GUEST_CALL(nvml.by_uuid(uuid, out));
    if (r != NVML_SUCCESS)
        return err_set(e, ERR_DEVICE, LIBRARY " does not know the device %s (NVML error %d)", uuid,
                       r);
    return ERR_OK;
}

const char *const cuda_throttle_names[] = {"idle",       "clocks set", "power cap",
                                           "sync boost", "heat",       "power brake",
                                           "hardware",   "display",    NULL};

/* Bits as in nvml.h (nvmlClocksThrottleReason...). */
u32 cuda_throttle_set(u64 reasons)
{
    static const u64 bits[] = {0x1, 0x2, 0x4, 0x10, 0x20 | 0x40, 0x80, 0x8, 0x100};
    u32 set = 0;
    _Static_assert(COUNTOF(bits) + 1 == COUNTOF(cuda_throttle_names), "a name for each");
    for (u32 i = 0; i < COUNTOF(bits); i++)
        set |= reasons & bits[i] ? 1u << i : 0;
    return set;
}

void cuda_throttle_text(u64 reasons, char *out, size_t cap)
{
    u32 set = cuda_throttle_set(reasons);
    int n = snprintf(out, cap, "%s", reasons ? "" : "none");
    for (u32 i = 0; cuda_throttle_names[i] && n >= 0 && (size_t)n < cap; i++)
        if (set >> i & 1)
            n += snprintf(out + n, cap - (size_t)n, "%s%s", n ? ", " : "", cuda_throttle_names[i]);
}

struct cuda_telemetry cuda_telemetry_none(void)
{
    double n = (double)NAN;
    return (struct cuda_telemetry){n, n, n, n, n, n, n, n, false, 0};
}

static double told(int result, double value)
{
    return result == NVML_SUCCESS ? value : (double)NAN;
}

void cuda_telemetry_read(struct cuda_nvml_device *device, struct cuda_telemetry *out)
{
    u32 v = 0;
    struct utilization u = {0};
    struct memory m = {0};
    int r;
    ASSERT(loaded);
    *out = (struct cuda_telemetry){0};
    r = GUEST_CALL(nvml.power(device, &v));
    out->power_w = told(r, v / 1e3);
    r = GUEST_CALL(nvml.power_limit(device, &v));
    out->power_limit_w = told(r, v / 1e3);
    r = GUEST_CALL(nvml.temperature(device, NVML_TEMPERATURE_GPU, &v));
    out->temperature_c = told(r, v);
    r = GUEST_CALL(nvml.clock(device, NVML_CLOCK_SM, &v));
    out->sm_mhz = told(r, v);
    r = GUEST_CALL(nvml.clock(device, NVML_CLOCK_MEM, &v));
    out->memory_mhz = told(r, v);
    r = GUEST_CALL(nvml.busy(device, &u));
    out->busy_percent = told(r, u.gpu);
    r = GUEST_CALL(nvml.memory(device, &m));
    out->memory_bytes = told(r, (double)m.bytes);
    out->memory_used_bytes = told(r, (double)m.used);
    r = GUEST_CALL(nvml.throttle(device, &out->throttle));
    out->throttle_told = r == NVML_SUCCESS;
}
