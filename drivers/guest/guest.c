#include "drivers/guest/guest.h"

#include "drivers/guest/elf.h"
#include "drivers/guest/helper.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- where glibc is ----------------------------------------------------------------------------
 */

/* By opening, since an emulator's library prefix does not hold for access(). */
static bool can_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* The interpreter of a program of the box; false when that cannot be told. */
static bool interpreter_of(const char *program, struct elf *out)
{
    struct err_text ignored = {0}; /* one of several programs to look at */
    int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = elf_read(fd, program, out, &ignored) == ERR_OK && out->interpreter[0];
    close(fd);
    return good;
}

enum err guest_find(const char *const *programs, u32 n, const char *standard,
                    char out[LIMIT_PATH_BYTES], struct err_text *e)
{
    struct elf f;
    char musl[LIMIT_PATH_BYTES] = "";
    for (u32 i = 0; i < n; i++) {
        if (!interpreter_of(programs[i], &f))
            continue;
        const char *slash = strrchr(f.interpreter, '/');
        if (slash && strncmp(slash, "/ld-linux", 9) == 0 && can_open(f.interpreter)) {
            memcpy(out, f.interpreter, LIMIT_PATH_BYTES);
            return ERR_OK;
        }
        if (slash && strncmp(slash, "/ld-musl", 8) == 0)
            memcpy(musl, f.interpreter, LIMIT_PATH_BYTES);
    }
    if (can_open(standard)) {
        size_t bytes = strlen(standard) + 1;
        ASSERT(bytes <= LIMIT_PATH_BYTES);
        memcpy(out, standard, bytes);
        return ERR_OK;
    }
    if (musl[0])
        return err_set(e, ERR_DEVICE,
                       "this system is made of musl (%s) and has no glibc, which GPU drivers need: "
                       "use a system with glibc, such as Debian, Ubuntu or L4T",
                       musl);
    return err_set(e, ERR_DEVICE,
                   "no glibc here, which GPU drivers need: %s is missing or cannot be read, and no "
                   "program names another loader; install glibc (package libc6 of Debian and "
                   "Ubuntu, glibc elsewhere)",
                   standard);
}

#ifdef __SANITIZE_ADDRESS__

enum err guest_open(struct arena *a, struct err_text *e)
{
    (void)a, (void)e;
    return ERR_OK;
}

static void *load(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static const char *load_error(void)
{
    return dlerror();
}

void *guest_symbol(void *lib, const char *name)
{
    return dlsym(lib, name);
}

#else

#if defined(__x86_64__)
#define STANDARD_LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define STANDARD_LOADER "/lib/ld-linux-aarch64.so.1"
#endif

enum { TRIED = 42 }; /* exit status of the child in which the boot went well */

/* From glibc's ABI; musl's dlfcn.h has the same values. */
_Static_assert(RTLD_NOW == 2 && RTLD_LOCAL == 0, "flags of dlopen");

void guest_jump(void *stack, uintptr_t entry); /* enter.S */
NORETURN void guest_return(void);
extern const u8 guest_helper[], guest_helper_end[];

struct guest_thread guest_thread;
static struct guest_bridge bridge;

struct image {
    struct elf elf;
    uintptr_t base;
};

static enum err map_image(int fd, const char *name, struct image *m, struct err_text *e)
{
    enum err r = elf_read(fd, name, &m->elf, e);
    if (r == ERR_OK)
        r = elf_map(fd, name, &m->elf, &m->base, e);
    close(fd);
    return r;
}

static enum err map_loader(struct image *m, struct err_text *e)
{
    static const char *const programs[] = {"/proc/1/exe", "/bin/sh", "/usr/bin/env", "/bin/mount"};
    char path[LIMIT_PATH_BYTES];
    TRY(guest_find(programs, COUNTOF(programs), STANDARD_LOADER, path, e));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, ERR_DEVICE, "cannot open glibc's loader %s", path);
    return map_image(fd, path, m, e);
}

/* A memfd that may not be run as a program is all that is needed, and all that some systems allow
 * (vm.memfd_noexec); kernels before 6.3 do not know the flag. */
static enum err map_helper(struct image *m, struct err_text *e)
{
    enum { NOEXEC_SEAL = 8 }; /* MFD_NOEXEC_SEAL */
    size_t bytes = (size_t)(guest_helper_end - guest_helper);
    int fd = memfd_create("zigcuda-guest", MFD_CLOEXEC | NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("zigcuda-guest", MFD_CLOEXEC);
    if (fd < 0)
        return err_set_errno(e, ERR_SYSTEM, "memfd_create, which loading the GPU driver needs");
    if (write(fd, guest_helper, bytes) != (ssize_t)bytes) {
        enum err r = err_set_errno(e, ERR_SYSTEM, "cannot write %zu bytes to a memfd", bytes);
        close(fd);
        return r;
    }
    return map_image(fd, "the guest's helper in a memfd", m, e);
}

/* --- the stack that a new program finds --------------------------------------------------------
 */

static u64 *put_row(u64 *w, u64 type, u64 value)
{
    *w++ = type;
    *w++ = value;
    return w;
}

/* The kernel's own rows, but for those about the program and its loader. */
static u64 *put_auxiliary(u64 *w, const struct image *loader, const struct image *helper)
{
    enum { ROWS = 64 }; /* rows are numbered densely; Linux 6.18 has used 51 */
    for (u64 type = AT_PHDR; type < ROWS; type++) {
        errno = 0;
        u64 value = getauxval(type);
        bool ours = type == AT_PHDR || type == AT_PHENT || type == AT_PHNUM || type == AT_BASE ||
                    type == AT_ENTRY;
        if (!ours && (value || errno == 0))
            w = put_row(w, type, value);
    }
    w = put_row(w, AT_PHDR, helper->base + helper->elf.headers);
    w = put_row(w, AT_PHENT, sizeof(Elf64_Phdr));
    w = put_row(w, AT_PHNUM, helper->elf.n_headers);
    w = put_row(w, AT_BASE, loader->base);
    w = put_row(w, AT_ENTRY, helper->base + helper->elf.entry);
    w = put_row(w, AT_ZIGCUDA_BRIDGE, (u64)&bridge);
    return put_row(w, AT_NULL, 0);
}

/* argc, argv, environ and the auxiliary vector as the ABI lays them out, at the upper end of a new
 * stack with a guard page at its lower end. *top is where the stack pointer has to be. */
static enum err make_stack(struct arena *a, const struct image *loader, const struct image *helper,
                           u64 **top, struct err_text *e)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    while (environ[n])
        if (++n > LIMIT_GUEST_ENVIRONMENT)
            return err_set(e, ERR_LIMIT, "the environment has more than %d variables",
                           LIMIT_GUEST_ENVIRONMENT);
    u8 *stack = arena_alloc(a, page + LIMIT_GUEST_STACK_BYTES, page);
    if (!stack)
        return arena_full(a, "the guest's stack", e);
    if (mprotect(stack, page, PROT_NONE) != 0)
        return err_set_errno(e, ERR_SYSTEM, "no guard page for the guest's stack");
    u64 *w = (u64 *)(stack + page + LIMIT_GUEST_STACK_BYTES) - ROUND_UP(n + 256, 2);
    *top = w;
    *w++ = 1;
    *w++ = (u64) "zigcuda";
    *w++ = 0;
    for (size_t i = 0; i < n; i++)
        *w++ = (u64)environ[i];
    *w++ = 0;
    put_auxiliary(w, loader, helper);
    return ERR_OK;
}

/* --- the boot -----------------------------------------------------------------------------------
 */

/* Called by the helper, on the guest's stack and thread pointer. */
static void back(void)
{
    guest_thread.theirs = guest_pointer();
    guest_pointer_set(guest_thread.ours);
    guest_return();
}

static void assert_no_handlers(void)
{
    for (int i = 1; i < _NSIG; i++) {
        struct sigaction s;
        if (sigaction(i, NULL, &s) == 0)
            ASSERT(s.sa_handler == SIG_DFL || s.sa_handler == SIG_IGN);
    }
}

/* Reads to the end, or to cap, and keeps the first line. */
static void read_line(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t r = 1;
    while (r > 0 && n < cap - 1) {
        r = read(fd, out + n, cap - 1 - n);
        n += r > 0 ? (size_t)r : 0;
    }
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
}

/* Boots in a child, which ends with TRIED when that went well. What it wrote to stderr is in said
 * up to its first line's end. */
static enum err run_child(u64 *stack, uintptr_t entry, int *status, char *said, size_t cap,
                          struct err_text *e)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return err_set_errno(e, ERR_SYSTEM, "no pipe to try glibc with");
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        guest_jump(stack, entry);
        _exit(TRIED);
    }
    enum err r = child < 0 ? err_set_errno(e, ERR_SYSTEM, "no process to try glibc in") : ERR_OK;
    close(fds[1]);
    if (r == ERR_OK)
        read_line(fds[0], said, cap);
    close(fds[0]);
    while (r == ERR_OK && waitpid(child, status, 0) < 0)
        ASSERT(errno == EINTR);
    return r;
}

/* What is wrong for the loader is said in the child, and ends that process only. */
static enum err try_boot(u64 *stack, uintptr_t entry, struct err_text *e)
{
    struct sigaction before, plain = {.sa_handler = SIG_DFL};
    char said[256];
    int status;
    sigaction(SIGCHLD, &plain, &before); /* ignored, as some parents leave it, there is no status */
    enum err r = run_child(stack, entry, &status, said, sizeof said, e);
    sigaction(SIGCHLD, &before, NULL);
    if (r != ERR_OK || (WIFEXITED(status) && WEXITSTATUS(status) == TRIED))
        return r;
    if (WIFSIGNALED(status))
        return err_set(e, ERR_DEVICE, "glibc's loader ends with signal %d inside zigcuda: %s",
                       WTERMSIG(status), said);
    return err_set(
        e, ERR_DEVICE,
        "glibc's loader refuses to start inside zigcuda, which needs glibc 2.27 or newer "
        "(status %d): %s",
        WEXITSTATUS(status), said);
}

enum err guest_open(struct arena *a, struct err_text *e)
{
    struct image loader, helper;
    u64 *stack;
    if (guest_thread.theirs)
        return ERR_OK;
    ASSERT(gettid() == getpid());
    assert_no_handlers();
#if defined(__x86_64__)
    guest_thread.fsgsbase = getauxval(AT_HWCAP2) & 2; /* HWCAP2_FSGSBASE */
#endif
    guest_thread.ours = guest_pointer();
    bridge.back = back;
    TRY(map_loader(&loader, e));
    TRY(map_helper(&helper, e));
    TRY(make_stack(a, &loader, &helper, &stack, e));
    uintptr_t entry = loader.base + loader.elf.entry;
    TRY(try_boot(stack, entry, e));
    guest_jump(stack, entry);
    ASSERT(guest_thread.theirs && bridge.dlopen && bridge.dlsym && bridge.dlerror);
    return ERR_OK;
}

static void *load(const char *name)
{
    return GUEST_CALL(bridge.dlopen(name, RTLD_NOW | RTLD_LOCAL));
}

static const char *load_error(void)
{
    return GUEST_CALL(bridge.dlerror());
}

void *guest_symbol(void *lib, const char *name)
{
    return GUEST_CALL(bridge.dlsym(lib, name));
}

#endif

enum err guest_load(const char *name, void **lib, struct err_text *e)
{
    *lib = load(name);
    if (*lib)
        return ERR_OK;
    const char *why = load_error();
    return err_set(e, ERR_DEVICE, "cannot load %s: %s", name, why ? why : "no reason given");
}
