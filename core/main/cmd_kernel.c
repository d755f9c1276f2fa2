#include "core/main/args.h"
#include "core/main/boot.h"
#include "core/main/cache.h"
#include "core/main/gpu.h"
#include "core/main/kernel_arg.h"
#include "core/main/main.h"

#include "core/base/file.h"
#include "drivers/cuda/nvrtc.h"
#include "drivers/cuda/timer.h"
#include "net/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STAGING_BYTES = 4 << 20, /* of a buffer, from or to its file at once */
    SHOWN = 8,               /* first values of an output without a file */
};

static const char usage[] = "zigcuda kernel run FILE.cubin|.ptx|.cu --entry NAME --grid X[,Y,Z] "
                            "--block X[,Y,Z] [--arg TYPE:VALUE | --buf HOW]... [flags]\n\n"
                            "Arguments and buffers are the kernel's parameters, in their order:\n"
                            "  --arg f32:1.5 (f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64)\n"
                            "  --buf in:FILE, out:BYTES[:FILE] or inout:FILE[:FILE]\n"
                            "Each launch finds the same bytes: out is zeroed and inout restored "
                            "before it";

static struct {
    struct box box;
    const char *file, *entry, *grid_text, *block_text, *show, *cache;
    struct arg_words words, option_words;
    u32 shared_bytes, repeat, warmup;
    u64 bytes; /* that one launch moves; 0: each buffer once */
    bool cooperative, no_cache;

    u32 grid[3], block[3];
    enum kernel_type show_type;
    u32 show_bytes;

    struct cuda_info gpu;
    struct cuda_stream *stream;
    struct cuda_module *module;
    struct cuda_function *function;
    u8 *staging;

    u32 n_args;
    struct kernel_arg args[LIMIT_KERNEL_ARGS];
    u64 pristine[LIMIT_KERNEL_ARGS]; /* device copy of an inout buffer's first content */
} k;

/* --- the command line ------------------------------------------------------------------------- */

static enum err parse(struct err_text *e)
{
    if (!k.entry[0])
        return err_set(e, ERR_USAGE, "which kernel of %s? Give --entry NAME", k.file);
    if (!k.grid_text || !k.block_text)
        return err_set(e, ERR_USAGE, "give --grid X[,Y,Z] and --block X[,Y,Z]");
    TRY(kernel_arg_size("--grid", k.grid_text, k.grid, e));
    TRY(kernel_arg_size("--block", k.block_text, k.block, e));
    if (!kernel_type_parse(str_of(k.show), &k.show_type, &k.show_bytes))
        return err_set(e, ERR_USAGE, "--show %s: it is a type such as f32", k.show);
    for (; k.n_args < k.words.n; k.n_args++) {
        struct kernel_arg *a = &k.args[k.n_args];
        const char *text = k.words.at[k.n_args].value;
        if (strcmp(k.words.at[k.n_args].flag, "--arg") == 0)
            TRY(kernel_arg_value(text, a, e));
        else
            TRY(kernel_arg_buffer(text, a, e));
    }
    return ERR_OK;
}

static enum err check_sizes(const char *flag, const u32 have[3], const u32 max[3],
                            struct err_text *e)
{
    for (u32 i = 0; i < 3; i++)
        if (have[i] > max[i])
            return err_set(e, ERR_USAGE, "%s: %c is %u; at most %u on this GPU", flag, "xyz"[i],
                           have[i], max[i]);
    return ERR_OK;
}

static enum err check_launch(struct err_text *e)
{
    u64 threads = (u64)k.block[0] * k.block[1] * k.block[2];
    TRY(check_sizes("--grid", k.grid, k.gpu.grid_max, e));
    TRY(check_sizes("--block", k.block, k.gpu.block_max, e));
    if (threads > k.gpu.threads_block)
        return err_set(e, ERR_USAGE, "--block: %llu threads; at most %u on this GPU",
                       (unsigned long long)threads, k.gpu.threads_block);
    if (k.cooperative && !k.gpu.cooperative)
        return err_set(e, ERR_USAGE, "--cooperative: this GPU cannot do that");
    return ERR_OK;
}

/* --- the image -------------------------------------------------------------------------------- */

/* Everything that decides what the compiler answers, but what it includes: see cacheable. */
static enum err cache_key(const struct nvrtc_source *s, u32 version, u8 key[32], struct err_text *e)
{
    struct arena *a = &k.box.scratch;
    const char *names[] = {s->path, s->entry}; /* the path stands in line tables */
    size_t cap = 64 + strlen(s->path) + strlen(s->entry) + strlen(s->text), n = 0;
    for (u32 i = 0; i < s->n_options; i++)
        cap += strlen(s->options[i]) + 1;
    char *text = arena_alloc(a, cap + COUNTOF(names), 1);
    if (!text)
        return arena_full(a, "the key of the cache", e);
    n += (size_t)snprintf(text, 64, "nvrtc %u, %u options", version, s->n_options) + 1;
    for (u32 i = 0; i < COUNTOF(names); i++)
        n += (size_t)snprintf(text + n, cap - n, "%s", names[i]) + 1;
    for (u32 i = 0; i < s->n_options; i++)
        n += (size_t)snprintf(text + n, cap - n, "%s", s->options[i]) + 1;
    memcpy(text + n, s->text, strlen(s->text));
    keys_hash((struct str){text, n + strlen(s->text)}, key);
    return ERR_OK;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A source that reads other files gives another image when these change, and NVRTC does not tell
 * which they are. Its own headers come with its version. */
static bool cacheable(const struct nvrtc_source *s)
{
    for (const char *p = s->text; (p = strstr(p, "include")); p++)
        if (p[7 + strspn(p + 7, " \t")] == '"')
            return false;
    for (u32 i = 1; i < s->n_options; i++) /* the first is ours */
        if (starts(s->options[i], "-I") || starts(s->options[i], "--include-path") ||
            starts(s->options[i], "-include") || starts(s->options[i], "--pre-include"))
            return false;
    return true;
}

/* The content of the cache: the entry's name in the image, NUL, the image. */
static enum err save(const char *folder, const u8 key[32], const struct nvrtc_image *image,
                     struct err_text *e)
{
    size_t name = strlen(image->entry) + 1;
    char *p = arena_alloc(&k.box.scratch, name + image->bytes.n, 1);
    if (!p)
        return arena_full(&k.box.scratch, "the cache", e);
    memcpy(p, image->entry, name);
    memcpy(p + name, image->bytes.p, image->bytes.n);
    return cache_put(folder, key, (struct str){p, name + image->bytes.n}, e);
}

static bool restore(const char *folder, const u8 key[32], struct nvrtc_image *image)
{
    struct arena *a = &k.box.scratch;
    struct str content;
    enum cache_found found = cache_get(folder, key, a, &content);
    if (found == CACHE_DAMAGED)
        fprintf(stderr, "zigcuda kernel: an entry of %s is damaged; it is made anew\n", folder);
    size_t name = found == CACHE_HIT ? strnlen(content.p, content.n) + 1 : 0;
    if (name == 0 || name >= content.n)
        return false;
    char *p = arena_alloc(a, content.n - name + 1, 64); /* aligned, and NUL behind it for PTX */
    if (!p)
        return false;
    memcpy(p, content.p + name, content.n - name);
    *image = (struct nvrtc_image){{p, content.n - name}, content.p};
    return true;
}

static enum err compile(const struct nvrtc_source *source, u32 version, struct nvrtc_image *image,
                        struct err_text *e)
{
    struct err_text why = {0};
    char folder[LIMIT_PATH_BYTES];
    u8 key[32];
    struct str log;
    bool cached = !k.no_cache && cacheable(source);
    if (cached && cache_folder(k.cache, folder, &why) != ERR_OK) {
        fprintf(stderr, "zigcuda kernel: %s\n", why.text);
        cached = false;
    }
    if (cached)
        TRY(cache_key(source, version, key, e));
    if (cached && restore(folder, key, image)) {
        printf("image    %s from the cache\n", k.file);
        return ERR_OK;
    }
    u64 from = clock_now_ns(&k.box.clock);
    enum err r = nvrtc_compile(&k.box.scratch, source, image, &log, e);
    if (log.n)
        fprintf(stderr, "%.*s%s", (int)log.n, log.p, log.p[log.n - 1] == '\n' ? "" : "\n");
    if (r != ERR_OK)
        return r;
    printf("image    %s compiled by NVRTC %u.%u in %.0f ms%s\n", k.file, version / 1000,
           version % 1000 / 10, (double)(clock_now_ns(&k.box.clock) - from) / 1e6,
           cached ? "" : "; not cached");
    if (cached && save(folder, key, image, &why) != ERR_OK)
        fprintf(stderr, "zigcuda kernel: not cached: %s\n", why.text);
    return ERR_OK;
}

static enum err build_source(struct str text, struct nvrtc_image *image, struct err_text *e)
{
    static const char *options[LIMIT_KERNEL_OPTIONS + 2];
    static char arch[40], include[LIMIT_PATH_BYTES + 16];
    struct nvrtc_source source = {
        .path = k.file, .text = text.p, .entry = k.entry, .options = options};
    u32 version;
    bool own_arch = false;
    if (k.option_words.n > LIMIT_KERNEL_OPTIONS)
        return err_set(e, ERR_USAGE, "--option: more than %d", LIMIT_KERNEL_OPTIONS);
    if (memchr(text.p, 0, text.n))
        return err_set(e, ERR_USAGE, "%s is no CUDA C++: it has a NUL byte", k.file);
    TRY(nvrtc_load(&k.box.boot, cuda_driver_number(), &version, e));
    const char *slash = strrchr(k.file, '/');
    snprintf(include, sizeof include, "--include-path=%.*s", slash ? (int)(slash - k.file) : 1,
             slash ? k.file : ".");
    options[source.n_options++] = include; /* as nvcc finds neighbours */
    for (u32 i = 0; i < k.option_words.n; i++) {
        const char *option = k.option_words.at[i].value;
        own_arch |= starts(option, "-arch") || starts(option, "--gpu-architecture");
        options[source.n_options++] = option;
    }
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%u%u", k.gpu.major, k.gpu.minor);
    if (!own_arch)
        options[source.n_options++] = arch;
    return compile(&source, version, image, e);
}

static enum err take_image(struct nvrtc_image *image, struct err_text *e)
{
    struct str name = str_of(k.file), text;
    bool source = str_ends(name, STR(".cu"));
    if (!source && !str_ends(name, STR(".cubin")) && !str_ends(name, STR(".ptx")) &&
        !str_ends(name, STR(".fatbin")))
        return err_set(e, ERR_USAGE, "%s: it ends in none of .cubin, .fatbin, .ptx and .cu",
                       k.file);
    TRY(file_read(&k.box.scratch, k.file, LIMIT_KERNEL_FILE_BYTES, ERR_USAGE, &text, e));
    if (text.n == 0)
        return err_set(e, ERR_USAGE, "%s is empty", k.file);
    if (source)
        return build_source(text, image, e);
    *image = (struct nvrtc_image){text, k.entry};
    return ERR_OK;
}

static enum err load_module(const struct nvrtc_image *image, struct err_text *e)
{
    enum { LOG_BYTES = 16 << 10 };
    enum cuda_jit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                    CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    static char error[LOG_BYTES], info[LOG_BYTES];
    void *values[] = {error, (void *)(uintptr_t)LOG_BYTES, info, (void *)(uintptr_t)LOG_BYTES};
    enum cuda_result r =
        cuda_module_load_with(&k.module, image->bytes.p, COUNTOF(names), names, values);
    error[LOG_BYTES - 1] = info[LOG_BYTES - 1] = 0;
    if (error[0] || info[0])
        fprintf(stderr, "%s%s%s", error, info, (error[0] ? error : info)[0] ? "\n" : "");
    return r == CUDA_SUCCESS ? ERR_OK : cuda_failed(r, e, "load %s", k.file);
}

/* --- the function ----------------------------------------------------------------------------- */

/* Is `symbol` the C++ name of a function `name` outside of any namespace (Itanium C++ ABI)? */
static bool mangles(const char *symbol, const char *name)
{
    char prefix[256];
    snprintf(prefix, sizeof prefix, "_Z%zu%s", strlen(name), name);
    return starts(symbol, prefix);
}

/* No kernel has the name as it was given: the one whose C++ name it is, or else the list. */
static enum err find_mangled(const char *name, struct err_text *e)
{
    static struct cuda_function *all[LIMIT_KERNEL_NAMES];
    char list[512] = "";
    u32 n = 0, fits = 0;
    size_t used = 0;
    if (!cuda_has(function_name) || cuda_module_function_count(&n, k.module) != CUDA_SUCCESS ||
        cuda_module_functions(all, MIN(n, COUNTOF(all)), k.module) != CUDA_SUCCESS)
        return err_set(e, ERR_USAGE,
                       "%s has no kernel '%s'; names of C++ are mangled: cuobjdump -symbols shows "
                       "them, extern \"C\" keeps them",
                       k.file, name);
    for (u32 i = 0; i < MIN(n, COUNTOF(all)); i++) {
        const char *symbol;
        CUDA_TRY(cuda_function_name(&symbol, all[i]), e, "ask for a kernel's name");
        if (mangles(symbol, name) && fits++ == 0)
            k.function = all[i];
        if (used < sizeof list)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", symbol);
    }
    if (fits == 1)
        return ERR_OK;
    return err_set(e, ERR_USAGE, "%s has %s kernel '%s'; it has %s", k.file,
                   fits ? "more than one" : "no", name, n ? list : "none at all");
}

static enum err find_function(const char *name, struct err_text *e)
{
    enum cuda_result r = cuda_module_function(&k.function, k.module, name);
    if (r == CUDA_ERROR_NOT_FOUND)
        return find_mangled(name, e);
    return r == CUDA_SUCCESS ? ERR_OK : cuda_failed(r, e, "find the kernel '%s'", name);
}

/* Number and sizes of the parameters, where the driver tells them (CUDA 12.4). */
static enum err check_parameters(struct err_text *e)
{
    size_t at, bytes;
    u32 n = 0;
    for (; n <= LIMIT_KERNEL_ARGS; n++) {
        enum cuda_result r = cuda_function_parameter(k.function, n, &at, &bytes);
        if (r == CUDA_ERROR_NOT_SUPPORTED) {
            printf("check    none of the arguments: that needs a driver for CUDA 12.4\n");
            return ERR_OK;
        }
        if (r == CUDA_ERROR_INVALID_VALUE)
            break; /* there are n */
        CUDA_TRY(r, e, "ask for parameter %u of '%s'", n + 1, k.entry);
        if (n < k.n_args && k.args[n].bytes != bytes)
            return err_set(
                e, ERR_USAGE, "parameter %u of '%s' has %zu bytes; %s is a %s of %u bytes", n + 1,
                k.entry, bytes, k.args[n].text, kernel_type_name(k.args[n].type), k.args[n].bytes);
    }
    if (n != k.n_args)
        return err_set(e, ERR_USAGE, "'%s' takes %u parameters; %u were given", k.entry, n,
                       k.n_args);
    return ERR_OK;
}

static enum err attribute(enum cuda_function_attribute which, u32 *out, struct err_text *e)
{
    int value;
    CUDA_TRY(cuda_function_attribute(&value, which, k.function), e, "ask about '%s'", k.entry);
    *out = (u32)MAX(value, 0);
    return ERR_OK;
}

/* What the kernel takes, and how much of it fits the device at once. */
static enum err report_occupancy(struct err_text *e)
{
    u32 registers, shared, local, threads_max, binary, warps;
    int blocks;
    u32 threads = k.block[0] * k.block[1] * k.block[2];
    TRY(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, &registers, e));
    TRY(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &shared, e));
    TRY(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &local, e));
    TRY(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads_max, e));
    TRY(attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION, &binary, e));
    if (threads > threads_max)
        return err_set(e, ERR_USAGE, "--block: %u threads; '%s' was compiled for at most %u",
                       threads, k.entry, threads_max);
    if ((u64)shared + k.shared_bytes > k.gpu.shared_optin_bytes)
        return err_set(e, ERR_USAGE,
                       "--shared: %u bytes, and %u of the kernel's own; at most %u on this GPU",
                       k.shared_bytes, shared, k.gpu.shared_optin_bytes);
    if (k.shared_bytes + shared > k.gpu.shared_block_bytes)
        CUDA_TRY(cuda_function_set(k.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   (int)k.shared_bytes),
                 e, "allow %u bytes of shared memory", k.shared_bytes);
    CUDA_TRY(cuda_occupancy(&blocks, k.function, (int)threads, k.shared_bytes), e,
             "ask how many blocks fit");
    warps = (u32)MAX(blocks, 0) * CEIL_DIV(threads, k.gpu.warp);
    printf("kernel   %s: %u registers a thread, %u B of local memory, %u + %u B of shared memory a "
           "block, code for sm_%u\n",
           k.entry, registers, local, shared, k.shared_bytes, binary);
    printf("occupied %d blocks an SM: %u of %u threads (%.0f %%); grid %u x %u x %u fills the GPU "
           "%.2f times\n",
           blocks, warps * k.gpu.warp, k.gpu.threads_sm,
           100.0 * warps * k.gpu.warp / MAX(k.gpu.threads_sm, 1u), k.grid[0], k.grid[1], k.grid[2],
           (double)k.grid[0] * k.grid[1] * k.grid[2] / MAX((double)blocks * k.gpu.sms, 1.0));
    return ERR_OK;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static enum err wait(const char *what, struct err_text *e)
{
    CUDA_TRY(cuda_stream_wait(k.stream), e, "%s", what);
    return ERR_OK;
}

/* Once around for each piece; a file that becomes shorter meanwhile is an error. */
static enum err upload(int fd, const struct kernel_arg *a, struct err_text *e)
{
    for (u64 at = 0; at < a->buffer_bytes;) {
        ssize_t n = read(fd, k.staging, (size_t)MIN(a->buffer_bytes - at, (u64)STAGING_BYTES));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(e, ERR_USAGE, "cannot read %s", a->in_path);
        if (n == 0)
            return err_set(e, ERR_USAGE, "%s became shorter while it was read", a->in_path);
        CUDA_TRY(cuda_copy_in(a->value + at, k.staging, (size_t)n, k.stream), e,
                 "copy %s to the GPU", a->in_path);
        TRY(wait("copy a buffer to the GPU", e));
        at += (u64)n;
    }
    return ERR_OK;
}

static enum err open_input(struct kernel_arg *a, int *fd, struct err_text *e)
{
    struct stat st;
    *fd = open(a->in_path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &st) != 0)
        return err_set_errno(e, ERR_USAGE, "--buf: cannot open %s", a->in_path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0 || (u64)st.st_size > LIMIT_KERNEL_BUFFER_BYTES)
        return err_set(e, ERR_USAGE, "%s is no file of 1 to %zu bytes", a->in_path,
                       LIMIT_KERNEL_BUFFER_BYTES);
    a->buffer_bytes = (u64)st.st_size;
    return ERR_OK;
}

static enum err make_buffer(struct kernel_arg *a, u64 *pristine, struct err_text *e)
{
    int fd = -1;
    if (a->in)
        TRY(open_input(a, &fd, e));
    CUDA_TRY(cuda_memory_take(&a->value, a->buffer_bytes), e, "take %llu bytes for %s",
             (unsigned long long)a->buffer_bytes, a->text);
    if (a->in) {
        enum err r = upload(fd, a, e);
        close(fd);
        TRY(r);
    }
    if (a->in && a->out) {
        CUDA_TRY(cuda_memory_take(pristine, a->buffer_bytes), e, "take %llu bytes for a copy of %s",
                 (unsigned long long)a->buffer_bytes, a->text);
        CUDA_TRY(cuda_copy(*pristine, a->value, a->buffer_bytes, k.stream), e, "copy %s", a->text);
    }
    return ERR_OK;
}

static enum err make_buffers(struct err_text *e)
{
    k.staging = arena_alloc(&k.box.scratch, STAGING_BYTES, 4096);
    if (!k.staging)
        return arena_full(&k.box.scratch, "staging memory", e);
    for (u32 i = 0; i < k.n_args; i++)
        if (k.args[i].type == KERNEL_BUFFER)
            TRY(make_buffer(&k.args[i], &k.pristine[i], e));
    return wait("fill the buffers", e);
}

static enum err restore_buffers(struct err_text *e)
{
    for (u32 i = 0; i < k.n_args; i++) {
        const struct kernel_arg *a = &k.args[i];
        if (k.pristine[i])
            CUDA_TRY(cuda_copy(a->value, k.pristine[i], a->buffer_bytes, k.stream), e, "restore %s",
                     a->text);
        else if (a->out)
            CUDA_TRY(cuda_fill_u8(a->value, 0, a->buffer_bytes, k.stream), e, "zero %s", a->text);
    }
    return ERR_OK;
}

static void show(u32 index, const struct kernel_arg *a)
{
    char text[32];
    printf("output %-2u %s, %s:", index + 1, a->text, kernel_type_name(k.show_type));
    for (u32 i = 0; i < SHOWN && (i + 1) * (u64)k.show_bytes <= a->buffer_bytes; i++) {
        kernel_arg_print(k.show_type, k.staging + (size_t)i * k.show_bytes, text);
        printf(" %s", text);
    }
    printf("%s\n", a->buffer_bytes > (u64)SHOWN * k.show_bytes ? " ..." : "");
}

static enum err write_piece(int fd, const char *path, size_t n, struct err_text *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = write(fd, k.staging + done, n - done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return err_set_errno(e, ERR_SYSTEM, "cannot write %s", path);
        done += (size_t)r;
    }
    return ERR_OK;
}

/* To its file, or without one the first piece for its first values. */
static enum err take_output(u32 index, struct err_text *e)
{
    const struct kernel_arg *a = &k.args[index];
    bool file = a->out_path[0];
    int fd = file ? open(a->out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (file && fd < 0)
        return err_set_errno(e, ERR_SYSTEM, "--buf: cannot make %s", a->out_path);
    for (u64 at = 0; at < a->buffer_bytes;) {
        size_t n = (size_t)MIN(a->buffer_bytes - at, (u64)STAGING_BYTES);
        CUDA_TRY(cuda_copy_out(k.staging, a->value + at, n, k.stream), e, "copy %s back", a->text);
        TRY(wait("copy a buffer back", e));
        if (!file)
            break;
        TRY(write_piece(fd, a->out_path, n, e));
        at += n;
    }
    if (!file)
        show(index, a);
    else if (close(fd) != 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot write %s", a->out_path);
    return ERR_OK;
}

/* --- launching -------------------------------------------------------------------------------- */

static enum err launch(struct cuda_timer *t, struct err_text *e)
{
    void *values[LIMIT_KERNEL_ARGS + 1];
    enum cuda_result r;
    for (u32 i = 0; i < k.n_args; i++)
        values[i] = &k.args[i].value;
    TRY(restore_buffers(e));
    TRY(cuda_timer_begin(t, k.stream, e));
    if (k.cooperative)
        r = cuda_launch_cooperative(k.function, k.grid[0], k.grid[1], k.grid[2], k.block[0],
                                    k.block[1], k.block[2], k.shared_bytes, k.stream, values);
    else
        r = cuda_launch(k.function, k.grid[0], k.grid[1], k.grid[2], k.block[0], k.block[1],
                        k.block[2], k.shared_bytes, k.stream, values, NULL);
    CUDA_TRY(r, e, "launch '%s'", k.entry);
    TRY(cuda_timer_end(t, k.stream, e));
    return cuda_timer_read(t, e);
}

static u64 moved_bytes(void)
{
    u64 bytes = 0;
    for (u32 i = 0; i < k.n_args; i++)
        bytes += k.args[i].buffer_bytes * ((u32)k.args[i].in + (u32)k.args[i].out);
    return k.bytes ? k.bytes : bytes;
}

static enum err run_launches(struct err_text *e)
{
    struct cuda_timer t;
    TRY(cuda_timer_open(&t, moved_bytes(), e));
    for (u32 i = 0; i < k.warmup; i++)
        TRY(launch(&t, e));
    t.n = 0;
    t.sum_ms = 0;
    for (u32 i = 0; i < k.repeat; i++)
        TRY(launch(&t, e));
    double mean = cuda_timer_mean_ms(&t);
    printf("time     min %.4f, mean %.4f, max %.4f ms of %u launch%s", t.min_ms, mean, t.max_ms,
           t.n, t.n == 1 ? "" : "es");
    if (t.bytes)
        printf("; %.1f GB/s (%llu bytes a launch%s) at the mean, %.1f at the min",
               cuda_timer_gb_s(&t, mean), (unsigned long long)t.bytes,
               k.bytes ? "" : ": each buffer once", cuda_timer_gb_s(&t, t.min_ms));
    printf("\n");
    cuda_timer_close(&t);
    return ERR_OK;
}

static enum err clean_up(struct err_text *e)
{
    for (u32 i = 0; i < k.n_args; i++) {
        if (k.args[i].type == KERNEL_BUFFER)
            CUDA_TRY(cuda_memory_free(k.args[i].value), e, "free a buffer");
        if (k.pristine[i])
            CUDA_TRY(cuda_memory_free(k.pristine[i]), e, "free a copy");
    }
    CUDA_TRY(cuda_module_unload(k.module), e, "unload %s", k.file);
    CUDA_TRY(cuda_stream_close(k.stream), e, "close the stream");
    cuda_context_close(&k.gpu);
    return ERR_OK;
}

static enum err run(struct err_text *e)
{
    struct options *o = &k.box.options;
    struct nvrtc_image image;
    u32 count;
    TRY(parse(e));
    TRY(gpu_find(o, o->cuda_wait, NULL, &k.box.boot, &k.box.clock, &k.gpu, &count, e));
    printf("gpu      %u %s, sm_%u%u\n", k.gpu.index, k.gpu.name, k.gpu.major, k.gpu.minor);
    TRY(check_launch(e));
    TRY(take_image(&image, e));
    TRY(cuda_context_open(&k.gpu, true, e));
    TRY(load_module(&image, e));
    TRY(find_function(image.entry, e));
    TRY(check_parameters(e));
    TRY(report_occupancy(e));
    CUDA_TRY(cuda_stream_open(&k.stream, CU_STREAM_NON_BLOCKING), e, "make a stream");
    TRY(make_buffers(e));
    TRY(run_launches(e));
    for (u32 i = 0; i < k.n_args; i++)
        if (k.args[i].out)
            TRY(take_output(i, e));
    return clean_up(e);
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    struct box *b = &k.box;
    const struct arg table[] = {
        {"--entry", ARG_STRING, &k.entry, 0, 0, "NAME", "the kernel"},
        {"--grid", ARG_STRING, &k.grid_text, 0, 0, "X[,Y,Z]", "blocks"},
        {"--block", ARG_STRING, &k.block_text, 0, 0, "X[,Y,Z]", "threads of a block"},
        {"--shared", ARG_U32, &k.shared_bytes, 0, 1 << 30, "BYTES", "dynamic shared memory (0)"},
        {"--cooperative", ARG_FLAG, &k.cooperative, 0, 0, NULL, "launch with a grid barrier"},
        {"--arg", ARG_WORDS, &k.words, 0, 0, "TYPE:VALUE", "a value, as above"},
        {"--buf", ARG_WORDS, &k.words, 0, 0, "HOW", "a buffer, as above"},
        {"--repeat", ARG_U32, &k.repeat, 1, LIMIT_KERNEL_REPEAT, "N", "timed launches (1)"},
        {"--warmup", ARG_U32, &k.warmup, 0, LIMIT_KERNEL_REPEAT, "N", "launches before these (0)"},
        {"--bytes", ARG_U64, &k.bytes, 1, 1e18, "N", "that a launch moves, for GB/s"},
        {"--show", ARG_STRING, &k.show, 0, 0, "TYPE", "of outputs without a file (f32)"},
        {"--option", ARG_WORDS, &k.option_words, 0, 0, "TEXT", "for NVRTC, such as -std=c++20"},
        {"--cache", ARG_STRING, &k.cache, 0, 0, "DIR", "of compiled .cu (XDG cache folder)"},
        {"--no-cache", ARG_FLAG, &k.no_cache, 0, 0, NULL, "compile anew, keep nothing"},
    };
    const char *words[2];
    bool helped;
    u32 n;
    TRY(boot_begin(b, e));
    TRY(args_parse(b, argc, argv, table, COUNTOF(table), words, 2, &n, usage, &helped, e));
    if (helped)
        return ERR_OK;
    if (n != 2 || strcmp(words[0], "run") != 0)
        return err_set(e, ERR_USAGE, "it is: zigcuda kernel run FILE --entry NAME ...");
    k.file = words[1];
    return run(e);
}

int cmd_kernel(int argc, char **argv)
{
    struct err_text e = {0};
    k.entry = k.cache = "";
    k.show = "f32";
    k.repeat = 1;
    return main_end("kernel", go(argc, argv, &e), &e);
}
