#include "tests/cuda/harness.h"

#include "tests/fakecuda/emulate.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_SHARED_OPTIN = 97, FUNCTION_SHARED_MAX = 8 };

static void *library, *module, *image;

static void check(int result, const char *what)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

/* Calls a function of libcuda that returns a CUresult. */
template <typename... A> static void call(const char *name, A... a)
{
    int (*f)(A...) = (int (*)(A...))dlsym(library, name);
    check(f ? f(a...) : 3, name);
}

static void read_image(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    long n = ftell(f);
    image = malloc((size_t)n + 1);
    rewind(f);
    if (fread(image, 1, (size_t)n, f) != (size_t)n)
        exit(1);
    fclose(f);
}

void gpu_open(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "--gpu") != 0)
        return;
    read_image(argv[2]);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *context;
    call("cuInit", 0);
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxSetCurrent", context);
    call("cuModuleLoadData", &module, image);
}

bool gpu_is_real(void)
{
    return library;
}

bool gpu_choose_groups(bool groups)
{
    emulate_groups = groups && emulate_capability >= 900;
    return !library && emulate_capability >= 900;
}

void *gpu_take(size_t bytes)
{
    bytes = ROUND_UP(bytes + 1, (size_t)256);
    if (!library) { /* after its end: a page that must not be touched */
        size_t span = ROUND_UP(bytes, (size_t)4096);
        u8 *p = (u8 *)mmap(NULL, span + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
        if (p == MAP_FAILED || mprotect(p + span, 4096, PROT_NONE) != 0) {
            perror("mmap");
            exit(1);
        }
        return p + span - bytes;
    }
    u64 p;
    call("cuMemAlloc_v2", &p, bytes);
    call("cuMemsetD8_v2", p, 0, bytes);
    return (void *)(uintptr_t)p;
}

void gpu_put(void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return;
    if (!library)
        memcpy(to, from, bytes);
    else
        call("cuMemcpyHtoD_v2", (u64)(uintptr_t)to, from, bytes);
}

void gpu_get(void *to, const void *from, size_t bytes)
{
    if (bytes == 0)
        return;
    if (!library)
        memcpy(to, from, bytes);
    else
        call("cuMemcpyDtoH_v2", to, (u64)(uintptr_t)from, bytes);
}

static void *function(const char *kernel, u32 shared_bytes)
{
    void *f;
    call("cuModuleGetFunction", &f, module, kernel);
    call("cuFuncSetAttribute", f, (int)FUNCTION_SHARED_MAX, (int)shared_bytes);
    return f;
}

static u32 threads_of(const char *kernel)
{
    return strncmp(kernel, "prefill_", 8) == 0 ? (u32)PREFILL_THREADS
           : strncmp(kernel, "mid_", 4) == 0   ? (u32)PREFILL_THREADS
           : strncmp(kernel, "one_", 4) == 0   ? (u32)PREFILL_THREADS
                                               : (u32)GPU_THREADS;
}

static void launch(void *f, u32 blocks, u32 threads, u32 shared_bytes, const void *params)
{
    void *args[] = {(void *)(uintptr_t)params};
    call("cuLaunchCooperativeKernel", f, blocks, 1u, 1u, threads, 1u, 1u, shared_bytes,
         (void *)NULL, args);
}

void gpu_launch(const char *kernel, u32 blocks, u32 shared_bytes, const void *params,
                size_t params_bytes)
{
    if (library) {
        launch(function(kernel, shared_bytes), blocks, threads_of(kernel), shared_bytes, params);
        call("cuCtxSynchronize");
        return;
    }
    for (const emulated *k = emulated_kernels; k; k = k->next)
        if (strcmp(k->name, kernel) == 0 && k->params_bytes == params_bytes) {
            emulate_grid(k, blocks, threads_of(kernel), shared_bytes, params);
            return;
        }
    fprintf(stderr, "no kernel %s with %zu bytes of parameters\n", kernel, params_bytes);
    exit(1);
}

float gpu_time_us(const char *kernel, u32 blocks, u32 shared_bytes, const void *params,
                  size_t params_bytes, u32 repeat)
{
    float best_ms = 0, ms;
    if (!library) {
        gpu_launch(kernel, blocks, shared_bytes, params, params_bytes);
        return 0;
    }
    void *f = function(kernel, shared_bytes), *begin, *end;
    call("cuEventCreate", &begin, 0u);
    call("cuEventCreate", &end, 0u);
    for (u32 i = 0; i < repeat; i++) {
        call("cuEventRecord", begin, (void *)NULL);
        launch(f, blocks, threads_of(kernel), shared_bytes, params);
        call("cuEventRecord", end, (void *)NULL);
        call("cuEventSynchronize", end);
        call("cuEventElapsedTime", &ms, begin, end);
        best_ms = i == 0 || ms < best_ms ? ms : best_ms;
    }
    return best_ms * 1000;
}

/* Kernels that only GPUs have whose warps multiply in groups. */
bool gpu_has_kernel(const char *name)
{
    void *f;
    int (*find)(void **, void *, const char *);
    if (!library)
        return emulate_groups;
    *(void **)&find = dlsym(library, "cuModuleGetFunction");
    return find(&f, module, name) == 0;
}

const char *gpu_prefill_of(u32 kind, u32 tokens, u32 shared_bytes)
{
    static const char *const names[] = {"prefill_int4", "prefill_int8", "prefill_half"};
    bool fits = tokens > PREFILL_TOKENS && shared_bytes >= PREFILL_SHARED_BYTES;
    return fits && gpu_has_kernel(names[kind]) ? names[kind] : NULL;
}

const char *gpu_mid_of(const struct op_linear *op, u32 tokens, u32 shared_bytes)
{
    const u32 kind = op->part[0].kind;
    bool fits = tokens > FEW_TOKENS && tokens <= MID_TOKENS && linear_is_mid(op, kind) &&
                shared_bytes >= MID_SHARED_BYTES;
    static const char *const names[MID_KERNELS] = MID_NAMES;
    const char *name = names[mid_kernel(kind, tokens)];
    return fits && gpu_has_kernel(name) ? name : NULL;
}

const char *gpu_one_of(const struct op_linear *op, u32 tokens, u32 shared_bytes)
{
    bool fits = tokens == 1 && linear_is_one(op) && shared_bytes >= ONE_SHARED_BYTES;
    return fits && gpu_has_kernel("one_token") ? "one_token" : NULL;
}

static u32 attribute(int which)
{
    int v;
    call("cuDeviceGetAttribute", &v, which, 0);
    return (u32)v;
}

u32 gpu_multiprocessors(void)
{
    return library ? attribute(ATTRIBUTE_MULTIPROCESSORS) : 3;
}

u32 gpu_shared_bytes_max(void)
{
    return library                    ? attribute(ATTRIBUTE_SHARED_OPTIN)
           : emulate_capability < 800 ? 64 << 10
                                      : 227 << 10;
}
