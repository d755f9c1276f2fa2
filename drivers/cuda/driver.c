#include "drivers/cuda/driver.h"

#include <stdio.h>
#include <unistd.h>

struct cuda_table cuda_table;
static u32 version;

static const struct entry {
    const char *symbol;
    bool required;
    u32 since;
    size_t at; /* in struct cuda_table */
} entries[] = {
#define NEED_REQUIRED true
#define NEED_OPTIONAL false
#define CUDA_CALL(need, since, name, symbol, parameters, arguments) \
    {#symbol, NEED_##need, since, offsetof(struct cuda_table, name)},
#include "drivers/cuda/driver.def"
#undef CUDA_CALL
};

enum err cuda_library_load(const char *name, void **lib, struct err_text *e)
{
    /* WSL; NixOS, whose loader searches next to nothing; nodes of Kubernetes (GKE, COS) */
    static const char *const folders[] = {"/usr/lib/wsl/lib", "/run/opengl-driver/lib",
                                          "/usr/local/nvidia/lib64"};
    char path[LIMIT_PATH_BYTES];
    struct err_text why = {0};
    enum err r = guest_load(name, lib, &why);
    for (u32 i = 0; i < COUNTOF(folders) && r != ERR_OK && !strchr(name, '/'); i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0) {
            why = (struct err_text){0};
            r = guest_load(path, lib, &why);
        }
    }
    return r == ERR_OK ? ERR_OK : err_set(e, why.code, "%s", why.text);
}

/* Before anything else, so that an old driver is told by its age and not by what it lacks. */
static enum err ask_version(void *lib, const char *library, u32 *out, struct err_text *e)
{
    enum cuda_result (*ask)(int *) = NULL;
    int v = 0;
    void *p = guest_symbol(lib, "cuDriverGetVersion");
    memcpy(&ask, &p, sizeof ask);
    if (!ask)
        return err_set(e, ERR_DEVICE,
                       "%s is not the NVIDIA driver's library: it has no function "
                       "cuDriverGetVersion (see cuda.library)",
                       library);
    CUDA_TRY(GUEST_CALL(ask(&v)), e, "ask %s for its version", library);
    *out = (u32)MAX(v, 0);
    if (*out < CUDA_DRIVER_MIN)
        return err_set(e, ERR_DEVICE,
                       "the NVIDIA driver is too old: %s supports CUDA %u.%u, and %u.%u is needed. "
                       "Install driver 525 or newer (JetPack 6 on a Jetson), or set device.kind "
                       "to cpu",
                       library, *out / 1000, *out % 1000 / 10, CUDA_DRIVER_MIN / 1000,
                       CUDA_DRIVER_MIN % 1000 / 10);
    return ERR_OK;
}

static enum err fill(struct cuda_table *t, void *lib, const char *library, u32 have,
                     struct err_text *e)
{
    for (u32 i = 0; i < COUNTOF(entries); i++) {
        const struct entry *entry = &entries[i];
        void *p = guest_symbol(lib, entry->symbol);
        if (!p && entry->required)
            return err_set(e, ERR_DEVICE,
                           "%s (CUDA %u.%u) has no function %s, which drivers have since CUDA "
                           "%u.%u: install the NVIDIA driver anew, or name its library with "
                           "cuda.library",
                           library, have / 1000, have % 1000 / 10, entry->symbol,
                           entry->since / 1000, entry->since % 1000 / 10);
        memcpy((u8 *)t + entry->at, &p, sizeof p);
    }
    return ERR_OK;
}

enum err cuda_driver_load(struct arena *keep, const char *library, struct err_text *e)
{
    struct cuda_table t = {0};
    struct err_text why = {0};
    void *lib;
    u32 have;
    if (version)
        return ERR_OK;
    TRY(guest_open(keep, e));
    if (cuda_library_load(library, &lib, &why) != ERR_OK)
        return err_set(e, ERR_DEVICE,
                       "no NVIDIA driver: %s. The library comes with the driver: package libcuda1 "
                       "on Debian, libnvidia-compute-NNN on Ubuntu, nvidia-l4t-cuda on a Jetson; "
                       "cuda.library names another path; containers need the NVIDIA container "
                       "runtime",
                       why.text);
    TRY(ask_version(lib, library, &have, e));
    TRY(fill(&t, lib, library, have, e));
    cuda_table = t;
    version = have;
    return ERR_OK;
}

u32 cuda_driver_number(void)
{
    return version;
}
