#include "drivers/cuda/query.h"

#include "config/limits.h"
#include "core/base/box.h"
#include "core/base/file.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_MS = 50 };

/* --- what the kernel shows -------------------------------------------------------------------- */

static bool first_line(const char *path, char *out, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, cap - 1);
    close(fd);
    out[MAX(n, 0)] = 0;
    out[strcspn(out, "\n")] = 0;
    return n > 0;
}

#define WSL_NODE "/dev/dxg"

/* Windows lends the library where its driver is NVIDIA's. */
static bool wsl_has_cuda(const char *root)
{
    char path[CUDA_TEXT];
    snprintf(path, sizeof path, "%s/usr/lib/wsl/lib/" CUDA_LIBRARY, root);
    return access(path, F_OK) == 0;
}

static void look_for_nodes(const char *root, struct cuda_box *out)
{
    /* Desktop and server; Jetson up to JetPack 5, and from 6 on; WSL, where one node stands for the
     * GPUs of all makers. */
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu",
                                        "/dev/nvgpu/igpu0/ctrl", WSL_NODE};
    char path[CUDA_TEXT];
    for (u32 i = 0; i < COUNTOF(nodes); i++) {
        snprintf(path, sizeof path, "%s%s", root, nodes[i]);
        if (access(path, F_OK) != 0 || (strcmp(nodes[i], WSL_NODE) == 0 && !wsl_has_cuda(root)))
            continue;
        bool denied = access(path, R_OK | W_OK) != 0 && errno == EACCES;
        if (!out->node || denied)
            snprintf(out->what, sizeof out->what, "%s", nodes[i]);
        out->node = true;
        out->denied |= denied;
    }
}

/* Vendor 0x10de and class 0x03.... (display controller): its audio and USB functions, and old
 * nForce chipsets, are of other classes. */
static bool is_gpu(const char *folder, const char *name)
{
    char path[2 * CUDA_TEXT], text[32];
    snprintf(path, sizeof path, "%s/%.64s/vendor", folder, name);
    if (!first_line(path, text, sizeof text) || strcmp(text, "0x10de") != 0)
        return false;
    snprintf(path, sizeof path, "%s/%.64s/class", folder, name);
    return first_line(path, text, sizeof text) && strncmp(text, "0x03", 4) == 0;
}

struct pci {
    const char *folder;
    struct cuda_box *out;
};

static void look_at_one(const char *name, void *arg)
{
    const struct pci *pci = arg;
    if (pci->out->pci || !is_gpu(pci->folder, name))
        return;
    pci->out->pci = true;
    if (!pci->out->node)
        snprintf(pci->out->what, sizeof pci->out->what, "PCI device %.64s", name);
}

static void look_at_pci(const char *root, struct cuda_box *out)
{
    char folder[CUDA_TEXT];
    struct pci pci = {folder, out};
    snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
    file_names(folder, look_at_one, &pci);
}

void cuda_box_look(const char *root, struct cuda_box *out)
{
    *out = (struct cuda_box){0};
    look_for_nodes(root, out);
    look_at_pci(root, out);
}

/* --- start ------------------------------------------------------------------------------------ */

static u64 now_ms(const struct clock *clock)
{
    return clock_now_ns(clock) / 1000000;
}

static void pause_ms(u64 ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static bool may_come(enum cuda_result r)
{
    enum cuda_class class = cuda_result_class(r);
    return class == CUDA_CLASS_WAIT || class == CUDA_CLASS_UNKNOWN;
}

/* The driver's own answer to missing nodes and missing rights is "no device": say which it is. */
static enum err refuse(enum cuda_result r, const struct cuda_settings *s, struct err_text *e)
{
    struct cuda_box box;
    cuda_box_look("", &box);
    bool real = strcmp(s->library, CUDA_LIBRARY) == 0;
    if (real && may_come(r) && box.denied)
        return err_set(e, ERR_DEVICE,
                       "cannot start CUDA: this user may not open %s (%s, %u). Add it to the "
                       "group that owns the file, most often video or render",
                       box.what, cuda_result_name(r), (u32)r);
    if (real && may_come(r) && !box.node)
        return err_set(e, ERR_DEVICE,
                       "cannot start CUDA: there is no device node such as /dev/nvidia0 (%s, %u)%s"
                       "%s. Load the NVIDIA kernel module (modprobe nvidia), or give the container "
                       "its devices; cuda.wait is how long the start waits for them",
                       cuda_result_name(r), (u32)r, box.pci ? ", though there is " : "",
                       box.pci ? box.what : "");
    return cuda_failed(r, e, "start CUDA");
}

static enum cuda_result try_start(u32 *count)
{
    int n = 0;
    enum cuda_result r = cuda_init(0);
    if (r == CUDA_SUCCESS)
        r = cuda_device_count(&n);
    *count = (u32)MIN(MAX(n, 0), LIMIT_GPUS);
    return r == CUDA_SUCCESS && n <= 0 ? CUDA_ERROR_NO_DEVICE : r;
}

/* Whether libcuda remembers a cuInit that failed, nobody says. Where there is no device node, so
 * that it may well fail, a child tries first. */
static bool too_early(const struct cuda_settings *s)
{
    struct cuda_box box;
    int status;
    u32 n;
    cuda_box_look("", &box);
    if (strcmp(s->library, CUDA_LIBRARY) != 0 || box.node)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_start(&n) != CUDA_SUCCESS);
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false; /* SIGCHLD is ignored: nobody knows */
    return pid > 0 && status != 0;
}

enum err cuda_start(struct arena *keep, const struct cuda_settings *settings,
                    const struct clock *clock, u32 *count, struct err_text *e)
{
    u64 end_ms = now_ms(clock) + settings->wait_ms;
    TRY(cuda_driver_load(keep, settings->library, e));
    log_phase("driver_library");
    for (bool said = false;;) {
        bool over = now_ms(clock) >= end_ms;
        bool early = !over && too_early(settings);
        enum cuda_result r = early ? CUDA_ERROR_NO_DEVICE : try_start(count);
        if (r == CUDA_SUCCESS)
            return ERR_OK;
        if (over || !may_come(r))
            return refuse(r, settings, e);
        if (!said)
            log_event(LOG_WARN, "gpu_wait", "result=%s wait_ms=%llu reason=\"%s\"",
                      cuda_result_name(r), (unsigned long long)settings->wait_ms,
                      cuda_result_text(r));
        said = true;
        if (settings->waiting)
            settings->waiting();
        pause_ms(MIN((u64)RETRY_MS, MAX(end_ms - now_ms(clock), (u64)1)));
    }
}

/* --- devices ---------------------------------------------------------------------------------- */

static const struct {
    enum cuda_device_attribute attribute;
    size_t at; /* a u32 of struct cuda_info */
} attributes[] = {
#define FIELD(name, field)                                            \
    {                                                                 \
        CU_DEVICE_ATTRIBUTE_##name, offsetof(struct cuda_info, field) \
    }
    FIELD(COMPUTE_CAPABILITY_MAJOR, major),
    FIELD(COMPUTE_CAPABILITY_MINOR, minor),
    FIELD(MULTIPROCESSOR_COUNT, sms),
    FIELD(CLOCK_RATE, clock_khz),
    FIELD(MEMORY_CLOCK_RATE, memory_clock_khz),
    FIELD(GLOBAL_MEMORY_BUS_WIDTH, bus_bits),
    FIELD(L2_CACHE_SIZE, l2_bytes),
    FIELD(WARP_SIZE, warp),
    FIELD(MAX_THREADS_PER_BLOCK, threads_block),
    FIELD(MAX_THREADS_PER_MULTIPROCESSOR, threads_sm),
    FIELD(MAX_BLOCKS_PER_MULTIPROCESSOR, blocks_sm),
    FIELD(MAX_REGISTERS_PER_MULTIPROCESSOR, registers_sm),
    FIELD(MAX_SHARED_MEMORY_PER_BLOCK, shared_block_bytes),
    FIELD(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, shared_optin_bytes),
    FIELD(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, shared_sm_bytes),
    FIELD(MAX_GRID_DIM_X, grid_max[0]),
    FIELD(MAX_GRID_DIM_Y, grid_max[1]),
    FIELD(MAX_GRID_DIM_Z, grid_max[2]),
    FIELD(MAX_BLOCK_DIM_X, block_max[0]),
    FIELD(MAX_BLOCK_DIM_Y, block_max[1]),
    FIELD(MAX_BLOCK_DIM_Z, block_max[2]),
    FIELD(COMPUTE_MODE, compute_mode),
    FIELD(ECC_ENABLED, ecc),
    FIELD(KERNEL_EXEC_TIMEOUT, time_limit),
    FIELD(INTEGRATED, integrated),
    FIELD(UNIFIED_ADDRESSING, unified),
    FIELD(CONCURRENT_MANAGED_ACCESS, concurrent_managed),
    FIELD(PAGEABLE_MEMORY_ACCESS, pageable),
    FIELD(CAN_MAP_HOST_MEMORY, map_host),
    FIELD(COOPERATIVE_LAUNCH, cooperative),
#undef FIELD
};

/* A part of a GPU (MIG) has a UUID of its own, which tools want with its own prefix. The driver
 * tells such a part by its name alone: "NVIDIA A100-SXM4-40GB MIG 1g.5gb". */
static void uuid_text(const struct cuda_uuid *uuid, const char *name, char out[CUDA_UUID_TEXT])
{
    int n = snprintf(out, CUDA_UUID_TEXT, "%s", strstr(name, " MIG ") ? "MIG" : "GPU");
    for (u32 i = 0; i < sizeof uuid->bytes; i++)
        n += snprintf(out + n, (size_t)(CUDA_UUID_TEXT - n), "%s%02x",
                      i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid->bytes[i]);
}

enum err cuda_query(u32 index, struct cuda_info *out, struct err_text *e)
{
    struct cuda_uuid uuid;
    size_t bytes;
    *out = (struct cuda_info){.index = index};
    CUDA_TRY(cuda_device_get(&out->device, (int)index), e, "get GPU %u", index);
    CUDA_TRY(cuda_device_name(out->name, sizeof out->name, out->device), e,
             "ask GPU %u for its name", index);
    out->name[sizeof out->name - 1] = 0;
    CUDA_TRY(cuda_device_uuid(&uuid, out->device), e, "ask GPU %u for its UUID", index);
    uuid_text(&uuid, out->name, out->uuid);
    if (cuda_device_pci(out->pci, sizeof out->pci, out->device) != CUDA_SUCCESS)
        out->pci[0] = 0; /* integrated ones may have none */
    CUDA_TRY(cuda_device_memory(&bytes, out->device), e, "ask GPU %u for its memory", index);
    out->memory_bytes = bytes;
    for (u32 i = 0; i < COUNTOF(attributes); i++) {
        int value = 0;
        CUDA_TRY(cuda_device_attribute(&value, attributes[i].attribute, out->device), e,
                 "ask GPU %u for attribute %u", index, (u32)attributes[i].attribute);
        *(u32 *)(void *)((u8 *)out + attributes[i].at) = (u32)MAX(value, 0);
    }
    return ERR_OK;
}

/* "[domain:]bus:device[.function]" in hexadecimal. */
static bool parse_pci(const char *text, u32 out[4])
{
    u32 part[3] = {0}, n = 0, function = 0;
    for (const char *p = text;; p++) {
        size_t digits = strspn(p, "0123456789abcdefABCDEF");
        if (digits == 0 || digits > 8 || n == COUNTOF(part))
            return false;
        part[n++] = (u32)strtoul(p, NULL, 16);
        p += digits;
        if (*p == '.' && p[1] >= '0' && p[1] <= '7' && p[2] == 0)
            function = (u32)(p[1] - '0');
        else if (*p == ':')
            continue;
        else if (*p)
            return false;
        break;
    }
    if (n < 2)
        return false;
    out[0] = n == 3 ? part[0] : 0;
    out[1] = part[n - 2];
    out[2] = part[n - 1];
    out[3] = function;
    return out[1] <= 0xff && out[2] <= 0x1f;
}

static bool parse_uuid(const char *text, char out[CUDA_UUID_TEXT])
{
    static const char shape[] = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t n = strlen(text);
    if (n <= 4 || n >= sizeof shape || (strncmp(text, "GPU-", 4) && strncmp(text, "MIG-", 4)))
        return false;
    for (size_t i = 4; i < n; i++) {
        char c = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] - 'A' + 'a') : text[i];
        bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (shape[i] == 'x' ? !hex : c != shape[i])
            return false;
        out[i] = c;
    }
    memcpy(out, text, 4);
    out[n] = 0;
    return true;
}

enum err cuda_choice_parse(const char *text, struct cuda_choice *out, struct err_text *e)
{
    *out = (struct cuda_choice){.by = CUDA_BY_INDEX};
    size_t digits = strspn(text, "0123456789");
    if (digits > 0 && digits <= 4 && text[digits] == 0) {
        out->index = (u32)strtoul(text, NULL, 10);
        return ERR_OK;
    }
    if (parse_uuid(text, out->uuid)) {
        out->by = CUDA_BY_UUID;
        return ERR_OK;
    }
    if (parse_pci(text, out->pci)) {
        out->by = CUDA_BY_PCI;
        return ERR_OK;
    }
    return err_set(e, ERR_CONFIG,
                   "cuda.device is '%s'; it takes an index such as 0, a UUID such as "
                   "GPU-8f6d6e1a-... (MIG-... of a part) or its start, or a PCI id such as 01:00.0",
                   text);
}

bool cuda_choice_fits(const struct cuda_choice *choice, const struct cuda_info *info)
{
    u32 pci[4];
    switch (choice->by) {
    case CUDA_BY_INDEX:
        return choice->index == info->index;
    case CUDA_BY_UUID:
        return strncmp(choice->uuid, info->uuid, strlen(choice->uuid)) == 0;
    case CUDA_BY_PCI:
        return parse_pci(info->pci, pci) && memcmp(pci, choice->pci, sizeof pci) == 0;
    }
    return false;
}

enum err cuda_choose(const char *text, u32 count, struct cuda_info *out, struct err_text *e)
{
    struct cuda_choice choice;
    struct cuda_info info;
    char list[ERR_TEXT_MAX / 2];
    u32 fits = 0, n = 0;
    TRY(cuda_choice_parse(text, &choice, e));
    for (u32 i = 0; i < count; i++) {
        TRY(cuda_query(i, &info, e));
        if (n < sizeof list)
            n += (u32)snprintf(list + n, sizeof list - n, "%s%u %s %s %s", i ? "; " : "", i,
                               info.name, info.uuid, info.pci);
        if (cuda_choice_fits(&choice, &info) && fits++ == 0)
            *out = info;
    }
    if (fits == 1)
        return ERR_OK;
    return err_set(e, ERR_CONFIG, "cuda.device is '%s', which is %s of this box: %s", text,
                   fits ? "more than one GPU" : "no GPU", list);
}

/* --- the chosen one --------------------------------------------------------------------------- */

enum err cuda_context_open(const struct cuda_info *info, bool spin, struct err_text *e)
{
    struct cuda_context *context;
    if (info->compute_mode == CU_COMPUTEMODE_PROHIBITED)
        return err_set(e, ERR_DEVICE,
                       "GPU %u (%s) is in compute mode Prohibited: nvidia-smi -i %s -c 0 allows "
                       "programs on it",
                       info->index, info->name, info->uuid); /* it counts in another order */
    CUDA_TRY(
        cuda_primary_set_flags(info->device, spin ? CU_CTX_SCHED_SPIN : CU_CTX_SCHED_BLOCKING_SYNC),
        e, "set how to wait for GPU %u", info->index);
    CUDA_TRY(cuda_primary_retain(&context, info->device), e, "open a context on GPU %u (%s)",
             info->index, info->name);
    enum cuda_result r = cuda_context_set(context);
    if (r == CUDA_SUCCESS)
        return ERR_OK;
    cuda_context_close(info);
    return cuda_failed(r, e, "make the context of GPU %u current", info->index);
}

void cuda_context_close(const struct cuda_info *info)
{
    enum cuda_result r = cuda_primary_release(info->device);
    if (r != CUDA_SUCCESS)
        log_event(LOG_WARN, "gpu_close", "result=%s", cuda_result_name(r));
}

enum err cuda_memory_now(const struct cuda_info *info, size_t *bytes, struct err_text *e)
{
    size_t total;
    if (info->integrated) {
        *bytes = MIN(box_available_bytes(), (size_t)info->memory_bytes);
        return ERR_OK;
    }
    CUDA_TRY(cuda_memory_info(bytes, &total), e, "ask GPU %u for its free memory", info->index);
    return ERR_OK;
}
