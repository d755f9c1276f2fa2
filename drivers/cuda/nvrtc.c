#include "drivers/cuda/nvrtc.h"

#include "config/limits.h"
#include "drivers/guest/guest.h"

#include <stdio.h>

enum { NVRTC_SUCCESS = 0 };

struct nvrtc_program;

/* NVRTC(name, symbol, result, parameters) */
#define NVRTC_CALLS                                                                    \
    NVRTC(version, nvrtcVersion, int, (int *major, int *minor))                        \
    NVRTC(error, nvrtcGetErrorString, const char *, (int result))                      \
    NVRTC(create, nvrtcCreateProgram, int,                                             \
          (struct nvrtc_program **, const char *text, const char *path, int n_headers, \
           const char *const *headers, const char *const *names))                      \
    NVRTC(destroy, nvrtcDestroyProgram, int, (struct nvrtc_program **))                \
    NVRTC(name, nvrtcAddNameExpression, int, (struct nvrtc_program *, const char *))   \
    NVRTC(compile, nvrtcCompileProgram, int,                                           \
          (struct nvrtc_program *, int n, const char *const *options))                 \
    NVRTC(lowered, nvrtcGetLoweredName, int,                                           \
          (struct nvrtc_program *, const char *name, const char **out))                \
    NVRTC(log_bytes, nvrtcGetProgramLogSize, int, (struct nvrtc_program *, size_t *))  \
    NVRTC(log, nvrtcGetProgramLog, int, (struct nvrtc_program *, char *))              \
    NVRTC(cubin_bytes, nvrtcGetCUBINSize, int, (struct nvrtc_program *, size_t *))     \
    NVRTC(cubin, nvrtcGetCUBIN, int, (struct nvrtc_program *, char *))                 \
    NVRTC(ptx_bytes, nvrtcGetPTXSize, int, (struct nvrtc_program *, size_t *))         \
    NVRTC(ptx, nvrtcGetPTX, int, (struct nvrtc_program *, char *))

static struct table {
#define NVRTC(name, symbol, result, parameters) result(*name) parameters;
    NVRTC_CALLS
#undef NVRTC
} nvrtc;
static u32 loaded; /* its version */

/* --- the library ------------------------------------------------------------------------------ */

/* A cubin of a newer major version than the driver's does not load, so the driver's comes first. */
static enum err find(u32 driver, void **lib, struct err_text *e)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};
    u32 own = driver >= 13000 ? 13 : 12;
    char path[64];
    for (u32 turn = 0; turn < 2; turn++)
        for (u32 i = 0; i < COUNTOF(folders); i++) {
            struct err_text ignored = {0};
            snprintf(path, sizeof path, "%slibnvrtc.so.%u", folders[i], turn ? 25 - own : own);
            if (guest_load(path, lib, &ignored) == ERR_OK)
                return ERR_OK;
        }
    return err_set(e, ERR_DEVICE,
                   "compiling a .cu file needs NVIDIA's NVRTC, and libnvrtc.so.%u is not on this "
                   "box: install the package cuda-nvrtc-%u-x, or libnvrtc%u, or pip's "
                   "nvidia-cuda-nvrtc and set LD_LIBRARY_PATH to its folder; or compile elsewhere "
                   "with nvcc -cubin",
                   own, own, own);
}

enum err nvrtc_load(struct arena *keep, u32 driver, u32 *version, struct err_text *e)
{
    static const struct {
        const char *symbol;
        size_t at;
    } entries[] = {
#define NVRTC(name, symbol, result, parameters) {#symbol, offsetof(struct table, name)},
        NVRTC_CALLS
#undef NVRTC
    };
    struct table t;
    void *lib;
    int major = 0, minor = 0;
    *version = loaded;
    if (loaded)
        return ERR_OK;
    TRY(guest_open(keep, e));
    TRY(find(driver, &lib, e));
    for (u32 i = 0; i < COUNTOF(entries); i++) {
        void *p = guest_symbol(lib, entries[i].symbol);
        if (!p)
            return err_set(e, ERR_DEVICE, "libnvrtc has no function %s: install version 12 or 13",
                           entries[i].symbol);
        memcpy((u8 *)&t + entries[i].at, &p, sizeof p);
    }
    int r = GUEST_CALL(t.version(&major, &minor));
    if (r != NVRTC_SUCCESS || major < 11 || major > 99)
        return err_set(e, ERR_DEVICE, "libnvrtc does not tell its version (NVRTC error %d)", r);
    nvrtc = t;
    *version = loaded = (u32)major * 1000 + (u32)minor * 10;
    return ERR_OK;
}

/* --- compiling -------------------------------------------------------------------------------- */

static enum err failed(enum err code, int r, const char *what, const char *path, struct err_text *e)
{
    const char *name = GUEST_CALL(nvrtc.error(r));
    return err_set(e, code, "cannot %s %s: %s", what, path, name ? name : "NVRTC failed");
}

static enum err take_log(struct arena *a, struct nvrtc_program *program, struct str *log,
                         struct err_text *e)
{
    size_t bytes = 0;
    int r = GUEST_CALL(nvrtc.log_bytes(program, &bytes));
    if (r != NVRTC_SUCCESS || bytes <= 1)
        return ERR_OK;
    char *text = arena_alloc(a, bytes, 1);
    if (!text)
        return arena_full(a, "the compiler's log", e);
    r = GUEST_CALL(nvrtc.log(program, text));
    if (r == NVRTC_SUCCESS)
        *log = (struct str){text, MIN(bytes - 1, LIMIT_KERNEL_LOG_BYTES)};
    return ERR_OK;
}

static enum err take_image(struct arena *a, struct nvrtc_program *program,
                           const struct nvrtc_source *source, struct nvrtc_image *out,
                           struct err_text *e)
{
    const char *lowered = NULL;
    size_t bytes = 0;
    int r = GUEST_CALL(nvrtc.lowered(program, source->entry, &lowered));
    if (r != NVRTC_SUCCESS)
        return failed(ERR_USAGE, r, "find the kernel in", source->path, e);
    out->entry = arena_str(a, str_of(lowered)).p;
    r = GUEST_CALL(nvrtc.cubin_bytes(program, &bytes));
    bool ptx = r != NVRTC_SUCCESS || bytes == 0; /* a virtual architecture was asked for */
    if (ptx)
        r = GUEST_CALL(nvrtc.ptx_bytes(program, &bytes));
    if (r != NVRTC_SUCCESS || bytes == 0)
        return failed(ERR_DEVICE, r, "take the image of", source->path, e);
    if (bytes > LIMIT_KERNEL_FILE_BYTES)
        return err_set(e, ERR_LIMIT, "the image of %s has %zu bytes; the limit is %zu",
                       source->path, bytes, LIMIT_KERNEL_FILE_BYTES);
    char *p = arena_alloc(a, bytes + 1, 64);
    if (!p || !out->entry)
        return arena_full(a, "the kernel image", e);
    r = ptx ? GUEST_CALL(nvrtc.ptx(program, p)) : GUEST_CALL(nvrtc.cubin(program, p));
    out->bytes = (struct str){p, bytes};
    return r == NVRTC_SUCCESS ? ERR_OK
                              : failed(ERR_DEVICE, r, "take the image of", source->path, e);
}

static enum err compile(struct arena *a, struct nvrtc_program *program,
                        const struct nvrtc_source *source, struct nvrtc_image *out, struct str *log,
                        struct err_text *e)
{
    int n = (int)source->n_options;
    int r = GUEST_CALL(nvrtc.name(program, source->entry));
    if (r != NVRTC_SUCCESS)
        return failed(ERR_USAGE, r, "name the kernel of", source->path, e);
    r = GUEST_CALL(nvrtc.compile(program, n, source->options));
    TRY(take_log(a, program, log, e));
    if (r != NVRTC_SUCCESS && log->n)
        return err_set(e, ERR_USAGE, "%s does not compile: see the compiler's log", source->path);
    if (r != NVRTC_SUCCESS)
        return failed(ERR_USAGE, r, "compile", source->path, e);
    return take_image(a, program, source, out, e);
}

enum err nvrtc_compile(struct arena *a, const struct nvrtc_source *source, struct nvrtc_image *out,
                       struct str *log, struct err_text *e)
{
    struct nvrtc_program *program;
    ASSERT(loaded);
    *log = STR("");
    int r = GUEST_CALL(nvrtc.create(&program, source->text, source->path, 0, NULL, NULL));
    if (r != NVRTC_SUCCESS)
        return failed(ERR_DEVICE, r, "start compiling", source->path, e);
    enum err result = compile(a, program, source, out, log, e);
    r = GUEST_CALL(nvrtc.destroy(&program));
    ASSERT(r == NVRTC_SUCCESS);
    return result;
}
