#include "drivers/cuda/telemetry.h"

#include "drivers/guest/guest.h"

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

/* NVML(result type is int for all; name, symbol, parameters) */
#define NVML_CALLS                                                                                \
    NVML(init, nvmlInit_v2, (void))                                                               \
    NVML(by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, struct cuda_nvml_device **out))   \
    NVML(power, nvmlDeviceGetPowerUsage, (struct cuda_nvml_device *, u32 * mw))                   \
    NVML(power_limit, nvmlDeviceGetEnforcedPowerLimit, (struct cuda_nvml_device *, u32 * mw))     \
    NVML(temperature, nvmlDeviceGetTemperature, (struct cuda_nvml_device *, u32 sensor, u32 * c)) \
    NVML(clock, nvmlDeviceGetClockInfo, (struct cuda_nvml_device *, u32 kind, u32 * mhz))         \
    NVML(throttle, nvmlDeviceGetCurrentClocksThrottleReasons, (struct cuda_nvml_device *, u64 *)) \
    NVML(busy, nvmlDeviceGetUtilizationRates, (struct cuda_nvml_device *, struct utilization *))

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
    TRY(guest_load(LIBRARY, &lib, e));
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

/* Bits as in nvml.h (nvmlClocksThrottleReason...). */
void cuda_throttle_text(u64 reasons, char *out, size_t cap)
{
    static const struct {
        u64 bits;
        const char *word;
    } words[] = {
        {0x1, "idle"},         {0x2, "clocks set"},   {0x4, "power cap"}, {0x10, "sync boost"},
        {0x20 | 0x40, "heat"}, {0x80, "power brake"}, {0x8, "hardware"},  {0x100, "display"},
    };
    int n = snprintf(out, cap, "%s", reasons ? "" : "none");
    for (u32 i = 0; i < COUNTOF(words) && n >= 0 && (size_t)n < cap; i++)
        if (reasons & words[i].bits)
            n += snprintf(out + n, cap - (size_t)n, "%s%s", n ? ", " : "", words[i].word);
}

static double told(int result, double value)
{
    return result == NVML_SUCCESS ? value : (double)NAN;
}

void cuda_telemetry_read(struct cuda_nvml_device *device, struct cuda_telemetry *out)
{
    u32 v = 0;
    u64 reasons = 0;
    struct utilization u = {0};
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
    r = GUEST_CALL(nvml.throttle(device, &reasons));
    if (r == NVML_SUCCESS)
        cuda_throttle_text(reasons, out->throttle, sizeof out->throttle);
}
