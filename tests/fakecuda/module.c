/* The fake driver's modules, functions and launches. An image is looked at as far as its kind and
 * architecture go; what runs is the kernel of that name compiled for the CPU. */
#include "tests/fakecuda/fake.h"
#include "kernels/cuda/step.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

enum { PARAMETERS_BYTES_MAX = 4096, STATIC_SHARED_BYTES = 48 << 10, REGISTERS = 64 };

struct cuda_module {
    struct fake_handle handle;
    const char *ptx; /* text of a PTX module, or NULL */
    const u8 *cubin; /* bytes of a single cubin, or NULL */
    bool later;      /* a fatbin's PTX, for want of code for this card */
};

struct cuda_function {
    struct fake_handle handle;
    const struct emulated *kernel;
    struct cuda_module *module;
    u32 shared_bytes; /* most dynamic shared memory, as set */
};

/* --- images ---------------------------------------------------------------------------------- */

/* Code for sm_XY runs on the same X with the same or a higher Y. */
static bool runs_here(u64 sm)
{
    return sm / 10 == fake.sm / 10 && sm % 10 <= fake.sm % 10;
}

/* The entries of a fatbin: kind (1 PTX, 2 cubin), size of the entry's header, size of what follows,
 * and at byte 28 the architecture. Seen in files that fatbinary wrote. */
static enum cuda_result check_fatbin(const u8 *p, bool *later)
{
    u64 bytes, payload;
    u32 header, sm;
    u16 kind, start;
    memcpy(&start, p + 6, 2);
    memcpy(&bytes, p + 8, 8);
    for (u64 at = 0; at + 32 <= bytes; at += header + payload) {
        const u8 *entry = p + start + at;
        memcpy(&kind, entry, 2);
        memcpy(&header, entry + 4, 4);
        memcpy(&payload, entry + 8, 8);
        memcpy(&sm, entry + 28, 4);
        if (header < 32 || payload > bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        *later = kind == 1;
        if (kind == 2 ? runs_here(sm) : kind == 1 && sm <= fake.sm)
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* The architecture stands in e_flags: in the second byte since toolkit 13 (ABI version 8), before
 * in the first. */
static enum cuda_result check_cubin(const u8 *p)
{
    enum { EM_CUDA_MACHINE = 190 };
    Elf64_Ehdr h;
    memcpy(&h, p, sizeof h);
    if (h.e_machine != EM_CUDA_MACHINE)
        return CUDA_ERROR_INVALID_IMAGE;
    u32 sm = h.e_ident[EI_ABIVERSION] >= 8 ? h.e_flags >> 8 & 0xff : h.e_flags & 0xff;
    return runs_here(sm) ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* The end of the section headers or of the program headers, which are last in a cubin. */
static size_t cubin_bytes(const u8 *p)
{
    Elf64_Ehdr h;
    memcpy(&h, p, sizeof h);
    return MAX(h.e_shoff + (u64)h.e_shnum * h.e_shentsize,
               h.e_phoff + (u64)h.e_phnum * h.e_phentsize);
}

/* A kernel's code is the section .text.NAME. */
static bool cubin_has(const u8 *p, const char *name)
{
    Elf64_Ehdr h;
    Elf64_Shdr s, names;
    memcpy(&h, p, sizeof h);
    memcpy(&names, p + h.e_shoff + (u64)h.e_shstrndx * h.e_shentsize, sizeof names);
    for (u32 i = 0; i < h.e_shnum; i++) {
        memcpy(&s, p + h.e_shoff + (u64)i * h.e_shentsize, sizeof s);
        const char *section = (const char *)p + names.sh_offset + s.sh_name;
        if (strncmp(section, ".text.", 6) == 0 && strcmp(section + 6, name) == 0)
            return true;
    }
    return false;
}

static enum cuda_result check_ptx(const char *text)
{
    static const char words[] = ".target sm_";
    const char *target = strstr(text, words);
    if (!strstr(text, ".version") || !target)
        return CUDA_ERROR_INVALID_PTX;
    return strtoul(target + strlen(words), NULL, 10) <= fake.sm ? CUDA_SUCCESS
                                                                : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static void *copy_of(const void *p, size_t n)
{
    void *copy = malloc(n);
    if (!copy)
        abort();
    return memcpy(copy, p, n);
}

enum cuda_result fake_module_load(struct cuda_module **out, const void *image)
{
    static const u8 fatbin_magic[] = {0x50, 0xed, 0x55, 0xba};
    bool fatbin = memcmp(image, fatbin_magic, 4) == 0, cubin = memcmp(image, ELFMAG, SELFMAG) == 0;
    bool later = false;
    enum cuda_result r = fatbin  ? check_fatbin(image, &later)
                         : cubin ? check_cubin(image)
                                 : check_ptx(image);
    fake_note(" %s", fatbin ? "fatbin" : cubin ? "cubin" : "PTX");
    if (r != CUDA_SUCCESS)
        return r;
    *out = fake_open(FAKE_MODULE, sizeof **out);
    (*out)->later = later;
    if (cubin)
        (*out)->cubin = copy_of(image, cubin_bytes(image));
    else if (!fatbin)
        (*out)->ptx = copy_of(image, strlen(image) + 1);
    return CUDA_SUCCESS;
}

enum cuda_result fake_module_load_with(struct cuda_module **out, const void *image, u32 n,
                                       enum cuda_jit_option *options, void **values)
{
    char *log = NULL;
    size_t cap = 0;
    for (u32 i = 0; i < n; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            cap = (size_t)(uintptr_t)values[i];
    }
    enum cuda_result r = fake_module_load(out, image);
    if (log && cap)
        snprintf(log, cap, "%s", r == CUDA_ERROR_INVALID_PTX ? "no .version or no .target" : "");
    return r;
}

enum cuda_result fake_module_unload(struct cuda_module *module)
{
    enum cuda_result r = fake_check(module, FAKE_MODULE);
    if (r != CUDA_SUCCESS)
        return r;
    fake_wait_all();
    module->handle.closed = true;
    return fake_sticky;
}

/* --- functions ------------------------------------------------------------------------------- */

static bool ptx_has(const char *text, const char *name)
{
    for (const char *at = text; (at = strstr(at, ".entry"));) {
        at += strlen(".entry");
        at += strspn(at, " \t\n");
        size_t n = strlen(name);
        if (strncmp(at, name, n) == 0 && strchr(" \t\n(", at[n]))
            return true;
    }
    return false;
}

/* Of a fatbin, whose parts are compressed, all is believed, but that the PTX in it has only what
 * every card can do (GPU_LATER), and that some kernels are in Hopper's part alone (GPU_GROUPS). */
static bool module_has(const struct cuda_module *module, const char *name)
{
    bool groups = strncmp(name, "prefill_", 8) == 0 || strncmp(name, "mid_", 4) == 0 ||
                  strncmp(name, "one_", 4) == 0;
    if (module->later)
        return strcmp(name, "step") == 0 || strcmp(name, "delta") == 0 ||
               strcmp(name, "pack") == 0 || strcmp(name, "read_all") == 0;
    if (module->ptx)
        return ptx_has(module->ptx, name);
    if (module->cubin)
        return cubin_has(module->cubin, name);
    return !groups || fake_is_hopper();
}

static struct cuda_function *new_function(struct cuda_module *module, const struct emulated *kernel)
{
    struct cuda_function *f = fake_open(FAKE_FUNCTION, sizeof *f);
    f->module = module;
    f->kernel = kernel;
    f->shared_bytes = STATIC_SHARED_BYTES;
    return f;
}

enum cuda_result fake_module_function(struct cuda_function **out, struct cuda_module *module,
                                      const char *name)
{
    enum cuda_result r = fake_check(module, FAKE_MODULE);
    fake_note(" %s", name);
    if (r != CUDA_SUCCESS)
        return r;
    for (const struct emulated *k = emulated_kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0 && module_has(module, name)) {
            *out = new_function(module, k);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

enum cuda_result fake_module_global(u64 *out, size_t *bytes, struct cuda_module *module,
                                    const char *name)
{
    (void)out, (void)bytes, (void)name;
    enum cuda_result r = fake_check(module, FAKE_MODULE);
    return r ? r : CUDA_ERROR_NOT_FOUND;
}

enum cuda_result fake_module_function_count(u32 *n, struct cuda_module *module)
{
    enum cuda_result r = fake_check(module, FAKE_MODULE);
    *n = 0;
    for (const struct emulated *k = r ? NULL : emulated_kernels; k; k = k->next)
        *n += module_has(module, k->name);
    return r;
}

enum cuda_result fake_module_functions(struct cuda_function **out, u32 cap,
                                       struct cuda_module *module)
{
    enum cuda_result r = fake_check(module, FAKE_MODULE);
    u32 n = 0;
    for (const struct emulated *k = r ? NULL : emulated_kernels; k && n < cap; k = k->next)
        if (module_has(module, k->name))
            out[n++] = new_function(module, k);
    return r;
}

static enum cuda_result check_function(const struct cuda_function *f)
{
    enum cuda_result r = fake_check(f, FAKE_FUNCTION);
    return r ? r : fake_check(f->module, FAKE_MODULE);
}

enum cuda_result fake_function_name(const char **out, struct cuda_function *f)
{
    enum cuda_result r = check_function(f);
    if (r == CUDA_SUCCESS)
        *out = f->kernel->name;
    return r;
}

/* Where parameter `index` lies in the kernel's struct of parameters; false: there is none. */
static bool parameter(const struct emulated *k, size_t index, size_t *at, size_t *bytes)
{
    *at = 0;
    *bytes = k->params_bytes;
    if (!k->sizes)
        return index == 0;
    for (size_t i = 0; k->sizes[i]; i++) {
        *bytes = k->sizes[i];
        *at = ROUND_UP(*at, *bytes);
        if (i == index)
            return true;
        *at += *bytes;
    }
    return false;
}

enum cuda_result fake_function_parameter(struct cuda_function *f, size_t index, size_t *at,
                                         size_t *bytes)
{
    size_t size;
    enum cuda_result r = check_function(f);
    if (r != CUDA_SUCCESS)
        return r;
    if (!parameter(f->kernel, index, at, &size))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

/* The backend's kernels are compiled for so many, any other for what a block can have. */
static u32 threads_max(const struct emulated *k)
{
    return k->sizes                               ? 1024
           : strncmp(k->name, "prefill_", 8) == 0 ? (u32)PREFILL_THREADS
           : strncmp(k->name, "mid_", 4) == 0     ? (u32)PREFILL_THREADS
           : strncmp(k->name, "one_", 4) == 0     ? (u32)PREFILL_THREADS
                                                  : (u32)GPU_THREADS;
}

enum cuda_result fake_function_attribute(int *value, enum cuda_function_attribute attribute,
                                         struct cuda_function *f)
{
    enum cuda_result r = check_function(f);
    if (r != CUDA_SUCCESS)
        return r;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)threads_max(f->kernel);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = REGISTERS;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)fake.sm;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)f->shared_bytes;
        return CUDA_SUCCESS;
    default:
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "the fake does not know function attribute %u",
                           attribute);
    }
}

enum cuda_result fake_function_set(struct cuda_function *f, enum cuda_function_attribute attribute,
                                   int value)
{
    enum cuda_result r = check_function(f);
    if (r != CUDA_SUCCESS)
        return r;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (u64)value > fake.shared_bytes)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "function attribute %u set to %d", attribute,
                           value);
    f->shared_bytes = (u32)value;
    return CUDA_SUCCESS;
}

static u32 blocks_at_once(u32 threads, size_t shared_bytes)
{
    const u64 all_bytes = fake.shared_bytes + fake.reserved_bytes;
    const u64 mine_bytes = shared_bytes + fake.reserved_bytes;
    const u64 by_shared = mine_bytes ? all_bytes / mine_bytes : 16;
    const u64 by_threads = fake.threads / ROUND_UP(threads, 32);
    const u64 by_registers = 65536 / REGISTERS / threads;
    return (u32)MIN(by_shared, MIN(MIN(by_threads, by_registers), (u64)16));
}

enum cuda_result fake_occupancy(int *blocks, struct cuda_function *f, int threads,
                                size_t shared_bytes)
{
    enum cuda_result r = check_function(f);
    if (r != CUDA_SUCCESS)
        return r;
    if (threads <= 0 || threads > 1024)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "occupancy of %d threads", threads);
    *blocks = shared_bytes > f->shared_bytes ? 0 : (int)blocks_at_once((u32)threads, shared_bytes);
    return CUDA_SUCCESS;
}

/* --- launches -------------------------------------------------------------------------------- */

static enum cuda_result check_launch(const struct cuda_function *f, const u32 grid[3],
                                     const u32 block[3], u32 shared_bytes)
{
    u64 threads = (u64)block[0] * block[1] * block[2];
    enum cuda_result r = check_function(f);
    if (r != CUDA_SUCCESS)
        return r;
    if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || grid[0] > 0x7fffffff)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%s: grid %u x %u x %u, block %u x %u x %u",
                           f->kernel->name, grid[0], grid[1], grid[2], block[0], block[1],
                           block[2]);
    if (grid[1] * grid[2] != 1 || block[1] * block[2] != 1)
        return fake_misuse(CUDA_ERROR_NOT_SUPPORTED, "%s: the fake runs grids of one dimension",
                           f->kernel->name);
    if (threads > threads_max(f->kernel))
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (shared_bytes > f->shared_bytes)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE,
                           "%s: %u bytes of shared memory; cuFuncSetAttribute allowed %u",
                           f->kernel->name, shared_bytes, f->shared_bytes);
    return CUDA_SUCCESS;
}

static enum cuda_result launch(struct cuda_function *f, const u32 grid[3], const u32 block[3],
                               u32 shared_bytes, struct cuda_stream *stream, void **values,
                               bool together)
{
    enum cuda_result r = check_launch(f, grid, block, shared_bytes);
    if (r != CUDA_SUCCESS)
        return r;
    fake_note(" %s %u x %u", f->kernel->name, grid[0], block[0]);
    if (together && grid[0] > fake.multiprocessors * blocks_at_once(block[0], shared_bytes))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (!values || f->kernel->params_bytes > PARAMETERS_BYTES_MAX)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%s: no parameters, or too many",
                           f->kernel->name);
    u8 *params = calloc(1, f->kernel->params_bytes);
    size_t at, bytes;
    for (size_t i = 0; params && parameter(f->kernel, i, &at, &bytes); i++) {
        if (!values[i]) {
            free(params);
            return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%s: parameter %zu is NULL",
                               f->kernel->name, i);
        }
        memcpy(params + at, values[i], bytes);
    }
    if (!params)
        abort();
    struct fake_work w = {.kind = WORK_LAUNCH,
                          .owned = fake_capturing(stream) ? NULL : params,
                          .launch = {f->kernel, grid[0], block[0], shared_bytes, together, params}};
    return fake_submit(stream, &w);
}

enum cuda_result fake_launch(struct cuda_function *f, u32 grid_x, u32 grid_y, u32 grid_z,
                             u32 block_x, u32 block_y, u32 block_z, u32 shared_bytes,
                             struct cuda_stream *stream, void **values, void **extra)
{
    if (extra)
        return fake_misuse(CUDA_ERROR_NOT_SUPPORTED, "the fake takes no packed parameters");
    return launch(f, (u32[]){grid_x, grid_y, grid_z}, (u32[]){block_x, block_y, block_z},
                  shared_bytes, stream, values, false);
}

enum cuda_result fake_launch_cooperative(struct cuda_function *f, u32 grid_x, u32 grid_y,
                                         u32 grid_z, u32 block_x, u32 block_y, u32 block_z,
                                         u32 shared_bytes, struct cuda_stream *stream,
                                         void **values)
{
    return launch(f, (u32[]){grid_x, grid_y, grid_z}, (u32[]){block_x, block_y, block_z},
                  shared_bytes, stream, values, true);
}
