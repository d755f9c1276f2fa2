#include "core/main/gpu.h"

#include "core/base/log.h"
#include "core/main/boot.h"
#include "drivers/cuda/telemetry.h"
#include "kernels/cuda/image.h"

#include <math.h>
#include <stdio.h>

bool gpu_wanted(const struct options *o, char *why)
{
    struct cuda_box box;
    if (o->device_kind != DEVICE_KIND_AUTO) {
        bool cuda = o->device_kind == DEVICE_KIND_CUDA;
        snprintf(why, CUDA_TEXT, "device.kind is %s", cuda ? "cuda" : "cpu");
        return cuda;
    }
    if (strcmp(o->cuda_library, CUDA_LIBRARY) != 0) {
        snprintf(why, CUDA_TEXT, "cuda.library is set");
        return true;
    }
    cuda_box_look("", &box);
    bool has = cuda_box_has_gpu(&box);
    if (has && gpu_codes_n() == 0) {
        snprintf(why, CUDA_TEXT, "this build has no GPU kernels for this box's %s", box.what);
        log_event(LOG_WARN, "gpu_unused", "why=\"%s\"", why);
        return false;
    }
    snprintf(why, CUDA_TEXT, "%s%s", has ? "this box has " : "no NVIDIA GPU on this box", box.what);
    return has;
}

enum err gpu_find(const struct options *o, u64 wait_ms, void (*waiting)(void), struct arena *keep,
                  const struct clock *clock, struct cuda_info *info, u32 *count, struct err_text *e)
{
    struct cuda_settings settings = {o->cuda_library, wait_ms, waiting};
    TRY(cuda_start(keep, &settings, clock, count, e));
    return cuda_choose(o->cuda_device, *count, info, e);
}

/* --- zigcuda info ----------------------------------------------------------------------------- */

static void print_device(const struct cuda_info *g, bool chosen)
{
    char memory[16], l2[16];
    printf("gpu %-4u %s, sm_%u%u, %s%s, %u SMs at %u MHz%s\n", g->index, g->name, g->major,
           g->minor, bytes_text((size_t)g->memory_bytes, memory),
           g->integrated ? " shared with the CPU" : "", g->sms, g->clock_khz / 1000,
           chosen ? ": chosen by cuda.device" : "");
    printf("         %s%s%s, L2 %s, ECC %s, %s%s addressing%s\n", g->uuid,
           g->pci[0] ? ", PCI " : "", g->pci, bytes_text(g->l2_bytes, l2), g->ecc ? "on" : "off",
           g->unified ? "unified" : "separate", g->concurrent_managed ? ", concurrent managed" : "",
           g->time_limit ? ", time limit of a display" : "");
    /* Two transfers a clock. */
    double gb_s = 2.0 * g->memory_clock_khz * g->bus_bits / 8 / 1e6;
    if (gb_s > 0)
        printf("         memory %u bits at %u MHz: %.0f GB/s at most\n", g->bus_bits,
               g->memory_clock_khz / 1000, gb_s);
    printf("         shared memory %u KiB a block (%u KiB when asked for), %u KiB an SM; "
           "%u registers and %u threads an SM\n",
           g->shared_block_bytes >> 10, g->shared_optin_bytes >> 10, g->shared_sm_bytes >> 10,
           g->registers_sm, g->threads_sm);
    const struct gpu_code *code = gpu_code_for(g->major, g->minor);
    char text[GPU_CODE_TEXT];
    printf("         kernels of this program for it: %s\n",
           code ? gpu_code_text(code, text) : "none");
}

static void print_memory(const struct cuda_info *g)
{
    struct err_text e = {0};
    size_t bytes;
    char size[16];
    if (cuda_context_open(g, false, &e) != ERR_OK) {
        printf("         %s\n", e.text);
        return;
    }
    if (cuda_memory_now(g, &bytes, &e) == ERR_OK)
        printf("         %s free%s\n", bytes_text(bytes, size),
               g->integrated ? " (what the box can give)" : "");
    else
        printf("         %s\n", e.text);
    cuda_context_close(g);
}

static void print_value(const char *before, double value, const char *after)
{
    if (!isnan(value))
        printf("%s%.0f%s", before, value, after);
}

static void print_telemetry(const struct cuda_info *g, struct arena *keep)
{
    struct err_text e = {0};
    struct cuda_nvml_device *device;
    struct cuda_telemetry t;
    char why[96];
    if (cuda_telemetry_open(keep, g->uuid, &device, &e) != ERR_OK) {
        printf("         no telemetry: %s\n", e.text);
        return;
    }
    cuda_telemetry_read(device, &t);
    printf("         now");
    print_value(" ", t.power_w, " W");
    print_value(" of ", t.power_limit_w, " W,");
    print_value(" ", t.temperature_c, " C,");
    print_value(" SM ", t.sm_mhz, " MHz,");
    print_value(" memory ", t.memory_mhz, " MHz,");
    print_value(" ", t.busy_percent, " % busy,");
    cuda_throttle_text(t.throttle, why, sizeof why);
    printf(" clocks lowered by: %s\n", t.throttle_told ? why : "not told");
}

void gpu_print(const struct options *o, struct arena *keep, const struct clock *clock)
{
    struct err_text e = {0};
    struct cuda_info chosen, info;
    u32 count = 0;
    char why[CUDA_TEXT];
    if (!gpu_wanted(o, why)) {
        printf("gpu      not used: %s\n", why);
        return;
    }
    enum err r = gpu_find(o, 0, NULL, keep, clock, &chosen, &count, &e);
    if (r != ERR_OK)
        printf("gpu      none: %s\n", e.text);
    if (count == 0)
        return;
    printf("gpu      wanted, as %s; driver for CUDA %u.%u (%s)\n", why, cuda_driver_number() / 1000,
           cuda_driver_number() % 1000 / 10, o->cuda_library);
    for (u32 i = 0; i < count; i++) {
        bool is = r == ERR_OK && i == chosen.index;
        e = (struct err_text){0};
        if (cuda_query(i, &info, &e) != ERR_OK) {
            printf("gpu %-4u %s\n", i, e.text);
            continue;
        }
        print_device(&info, is);
        if (is)
            print_memory(&info);
        if (is)
            print_telemetry(&info, keep);
    }
}
