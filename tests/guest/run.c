/* Glibc inside this static program, shown by what it does: functions, threads, callbacks, errors,
 * no page writable and executable, and (vulkan.c) a real driver with threads of its own. A process
 * boots one guest, so that cases which need another start, or an end, run in a child.
 */
#include "drivers/guest/guest.h"

#include "tests/guest/deny.h"
#include "tests/guest/vulkan.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Programs for arm64 run under an emulator here, which knows no filters and executes none. */
#if defined(__x86_64__)
enum { NATIVE = 1 };
#else
enum { NATIVE = 0 };
#endif

static struct arena arena;
static bool failed;

static void check(bool good, const char *what)
{
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    failed |= !good;
}

/* The exit status of `body` in a child, or -signal. */
static int in_child(int (*body)(void))
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(body());
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void *must_load(const char *name)
{
    struct err_text e = {0};
    void *lib;
    if (guest_open(&arena, &e) == ERR_OK && guest_load(name, &lib, &e) == ERR_OK)
        return lib;
    printf("FAIL %s\n", e.text);
    exit(1);
}

static int compute(void)
{
    double (*cosine)(double) = (double (*)(double))guest_symbol(must_load("libm.so.6"), "cos");
    double c = GUEST_CALL(cosine(0.5));
    return c > 0.877582 && c < 0.877583 ? 5 : 1;
}

/* --- threads of the guest ----------------------------------------------------------------------
 */

enum { THREADS = 8, TURNS = 20000 };

struct threads {
    int (*create)(u64 *, const void *, void *(*)(void *), void *);
    int (*join)(u64, void **);
};

static _Atomic u64 turns;
static _Atomic bool stop;

static void *count(void *arg)
{
    for (u32 i = 0; i < TURNS; i++)
        turns++;
    return arg;
}

static void *spin(void *arg)
{
    while (!stop)
        turns++;
    return arg;
}

static struct threads threads(void)
{
    void *lib = must_load("libpthread.so.0"); /* of libc itself since glibc 2.34 */
    struct threads t;
    t.create = (int (*)(u64 *, const void *, void *(*)(void *), void *))guest_symbol(
        lib, "pthread_create");
    t.join = (int (*)(u64, void **))guest_symbol(lib, "pthread_join");
    return t;
}

static bool call_back(void)
{
    struct threads t = threads();
    u64 ids[THREADS];
    bool good = t.create && t.join;
    turns = 0;
    for (u64 i = 0; good && i < THREADS; i++) {
        u64 *id = &ids[i];
        good = GUEST_CALL(t.create(id, NULL, count, (void *)i)) == 0;
    }
    for (u64 i = 0; good && i < THREADS; i++) {
        u64 id = ids[i];
        void *result = NULL, **where = &result;
        good = GUEST_CALL(t.join(id, where)) == 0 && result == (void *)i;
    }
    return good && turns == THREADS * TURNS;
}

/* Ends with guest threads running: neither waited for nor in the way. */
static int leave(void)
{
    struct threads t = threads();
    for (u32 i = 0; i < 3; i++) {
        u64 id, *where = &id;
        if (GUEST_CALL(t.create(where, NULL, spin, NULL)) != 0)
            return 1;
    }
    while (turns == 0)
        ;
    return 7;
}

/* A new program takes the place of this one and of its guest's threads, as after a device error. */
static int start_anew(void)
{
    if (leave() == 7)
        execl("/proc/self/exe", "guest", "anew", NULL);
    return 1;
}

static int (*their_mask)(int, const void *, void *);

/* On the guest's thread pointer, so that its functions are called as they are. */
static void *read_mask(void *mask)
{
    their_mask(SIG_BLOCK, NULL, mask);
    return NULL;
}

static bool mask_is_inherited(void)
{
    struct threads t = threads();
    sigset_t all, seen, before;
    u64 id, *where = &id;
    sigemptyset(&seen);
    sigfillset(&all);
    their_mask = (int (*)(int, const void *, void *))guest_symbol(must_load("libpthread.so.0"),
                                                                  "pthread_sigmask");
    sigprocmask(SIG_SETMASK, &all, &before);
    bool good = GUEST_CALL(t.create(where, NULL, read_mask, &seen)) == 0 &&
                GUEST_CALL(t.join(id, NULL)) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return good && sigismember(&seen, SIGINT) && sigismember(&seen, SIGCHLD);
}

static int without_children(void)
{
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    return compute();
}

/* --- what must not be ----------------------------------------------------------------------------
 */

static void *call_from_elsewhere(void *arg)
{
    int (*get)(void) = (int (*)(void))arg;
    return (void *)(intptr_t)GUEST_CALL(get());
}

static int other_thread(void)
{
    void *get = guest_symbol(must_load("libc.so.6"), "getpid");
    pthread_t t;
    close(STDERR_FILENO);
    pthread_create(&t, NULL, call_from_elsewhere, get);
    pthread_join(t, NULL);
    return 0;
}

static void ignore(int signal)
{
    (void)signal;
}

static int with_handler(void)
{
    struct err_text e = {0};
    close(STDERR_FILENO);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = ignore}, NULL);
    return guest_open(&arena, &e) == ERR_OK;
}

/* A loader that finds a libc.so.6 which is none ends its process: the child that tries first. */
static int refused(void)
{
    static char dir[] = P_tmpdir "/zigcuda-guest-XXXXXX", file[64], setting[64];
    static char *environment[] = {setting, NULL};
    struct err_text e = {0};
    if (!mkdtemp(dir))
        return 1;
    snprintf(file, sizeof file, "%s/libc.so.6", dir);
    snprintf(setting, sizeof setting, "LD_LIBRARY_PATH=%s", dir);
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    environ = environment;
    enum err r = guest_open(&arena, &e);
    close(fd);
    unlink(file);
    rmdir(dir);
    bool good = r == ERR_DEVICE && strstr(e.text, "refuses to start") && strstr(e.text, file);
    return good ? 3 : printf("     got: %s\n", e.text);
}

static int crowded(void)
{
    static char *environment[LIMIT_GUEST_ENVIRONMENT + 2];
    struct err_text e = {0};
    for (u32 i = 0; i <= LIMIT_GUEST_ENVIRONMENT; i++)
        environment[i] = "A=1";
    environ = environment;
    if (guest_open(&arena, &e) != ERR_LIMIT)
        return 1;
    environment[LIMIT_GUEST_ENVIRONMENT] = NULL;
    return compute();
}

/* 0: this system has no such thing */
static int under_filter(void)
{
    return deny_by_filter() ? compute() : 0;
}

static int under_prctl(void)
{
    return deny_by_prctl() ? compute() : 0;
}

/* Every kernel has the filter, newer ones the other. */
static void check_denied(const char *by, int status, bool may_lack)
{
    char what[128];
    snprintf(what, sizeof what, "with writable code denied by %s", by);
    if (status == 0 && may_lack)
        printf("     %s: not on this kernel\n", what);
    else
        check(status == 5, what);
}

static bool maps_have(const char *permissions)
{
    static char text[1 << 20];
    int fd = open("/proc/self/maps", O_RDONLY);
    size_t n = 0;
    ssize_t r;
    while ((r = read(fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)r;
    close(fd);
    text[n] = 0;
    return strstr(text, permissions);
}

/* --- in this process ----------------------------------------------------------------------------
 */

static void check_errors(void)
{
    struct err_text e = {0};
    void *lib = &e;
    enum err r = guest_load("libnowhere.so.3", &lib, &e);
    check(r == ERR_DEVICE && !lib && strstr(e.text, "cannot load libnowhere.so.3: ") &&
              strstr(e.text, "No such file"),
          "a missing library is an error with its name and dlerror's words");
    check(!guest_symbol(must_load("libm.so.6"), "cosinus"), "a missing symbol is NULL");
}

static void check_errno(void)
{
    void *libc = must_load("libc.so.6");
    int (*remove_folder)(const char *) = (int (*)(const char *))guest_symbol(libc, "rmdir");
    int *(*their_errno)(void) = (int *(*)(void))guest_symbol(libc, "__errno_location");
    errno = 77;
    int r = GUEST_CALL(remove_folder("/nowhere"));
    int theirs = *GUEST_CALL(their_errno());
    check(r == -1 && theirs == ENOENT && errno == 77, "each C library has its errno");
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void check_swaps(const char *how)
{
    enum { CALLS = 100000 };
    int (*get)(int) = (int (*)(int))guest_symbol(must_load("libc.so.6"), "abs");
    double start = now_ns();
    int bad = 0;
    for (int i = 0; i < CALLS; i++)
        bad += GUEST_CALL(get(-i)) != i;
    char what[128];
    snprintf(what, sizeof what, "%d calls by %s, %.1f ns each", CALLS, how,
             (now_ns() - start) / CALLS);
    check(bad == 0, what);
}

/* Both heaps: glibc takes brk, and what we hold stays as it is. */
static void check_heap(void)
{
    void *libc = must_load("libc.so.6");
    void *(*take)(size_t) = (void *(*)(size_t))guest_symbol(libc, "malloc");
    void *(*end)(intptr_t) = (void *(*)(intptr_t))guest_symbol(libc, "sbrk");
    char *before = GUEST_CALL(end(0)), *p = NULL;
    for (u32 i = 0; i < 1000; i++)
        p = GUEST_CALL(take(4000));
    char *after = GUEST_CALL(end(0));
    check(p && after - before > 3000000 && p < after, "the guest's malloc has brk for itself");
}

/* Its libraries write to stderr and keep threads: nothing that our side sees. */
static void check_vulkan(void)
{
    char device[256] = "", what[512];
    u32 n = 0;
    const char *bad = vulkan_fill(must_load("libvulkan.so.1"), 200, device, &n);
    snprintf(what, sizeof what, "Vulkan on %s with %u threads fills and copies%s%s", device, n,
             bad ? ", but not: " : "", bad ? bad : "");
    check(!bad && n > 1, what);
}

static int open_here(void)
{
    struct err_text e = {0};
    double start = now_ns();
    enum err r = guest_open(&arena, &e);
    char what[ERR_TEXT_MAX + 64];
    snprintf(what, sizeof what, "boot in %.2f ms %s", (now_ns() - start) / 1e6, e.text);
    check(r == ERR_OK, what);
    return r == ERR_OK && guest_open(&arena, &e) == ERR_OK;
}

/* `guest`: all but Vulkan, which is not there for every CPU; `guest vulkan`: that alone. */
int main(int argc, char **argv)
{
    struct err_text e = {0};
    if (arena_open(&arena, "test", 16 * MIB, false, &e) != ERR_OK)
        return 1;
    if (argc > 1 && strcmp(argv[1], "anew") == 0)
        return compute() == 5 ? 9 : 1;
    if (argc > 1 && strcmp(argv[1], "vulkan") == 0) {
        check_vulkan();
        return failed;
    }
#ifndef __SANITIZE_ADDRESS__
    check(in_child(refused) == 3, "what the loader refuses is our error, in its words");
    check(in_child(crowded) == 5, "the environment has a ceiling");
    check(in_child(with_handler) == -SIGABRT, "a signal handler of ours is a bug");
    check(in_child(other_thread) == -SIGABRT, "a call from another thread is a bug");
#endif
    check(in_child(compute) == 5, "cos of libm");
    if (NATIVE) {
        check_denied("a seccomp filter", in_child(under_filter), false);
        check_denied("prctl(PR_SET_MDWE)", in_child(under_prctl), true);
        check(in_child(start_anew) == 9, "the process executes itself while guest threads run");
    }
    check(in_child(without_children) == 5, "cos of libm, started with SIGCHLD ignored");
    check(in_child(leave) == 7, "the process ends while guest threads run");
    check(open_here(), "a second open does nothing");
    check(compute() == 5, "and works");
    check_errors();
    check_swaps("instruction");
    check(call_back(), "guest threads call back");
    check(mask_is_inherited(), "guest threads have the signal mask of their maker");
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
    guest_thread.fsgsbase = false;
    check_swaps("system call");
    check(call_back(), "guest threads call back, with the system call");
    guest_thread.fsgsbase = getauxval(AT_HWCAP2) & 2;
#endif
#ifndef __SANITIZE_ADDRESS__
    check_errno();
    check_heap();
#endif
    check(maps_have(" r-xp ") && !maps_have(" rwx"), "no page is writable and executable");
    return failed;
}
