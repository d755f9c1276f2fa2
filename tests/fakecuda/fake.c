/* See fake.h. Here: the exported functions, one a row of driver.def, each around a fake_<name> of
 * the other files; the log; failures on demand; handles. */
#include "tests/fakecuda/fake.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_BYTES = 512 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
enum cuda_result fake_sticky;
bool fake_started;
__thread bool fake_in_callback;
__thread struct cuda_context *fake_context;

static int log_fd = -1;
static u32 calls;
static __thread char notes[LINE_BYTES];

static struct {
    const char *name; /* NULL: none is wanted */
    const char *file; /* or NULL */
    unsigned long n, seen;
    int code;
} failure;

static void read_failure(void)
{
    const char *text = getenv("ZIGCUDA_FAKE_FAIL");
    char *rest = text && *text ? strdup(text) : NULL; /* kept: the parts point into it */
    char *name = strsep(&rest, ":"), *n = strsep(&rest, ":"), *code = strsep(&rest, ":"), *end;
    if (!name)
        return;
    failure.name = name;
    failure.n = n ? strtoul(n, &end, 10) : 0;
    failure.code = code && strcmp(code, "hang") == 0 ? FAKE_HANG
                   : code                            ? (int)strtol(code, &end, 10)
                                                     : 0;
    failure.file = rest;
    if (!failure.n || !failure.code) {
        fprintf(stderr, "fakecuda: ZIGCUDA_FAKE_FAIL is NAME:N:CODE[:FILE], not '%s'\n", text);
        _Exit(1);
    }
}

__attribute__((constructor)) static void start(void)
{
    const char *log = getenv("ZIGCUDA_FAKE_LOG");
    fake_read_settings();
    read_failure();
    if (log && *log)
        log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static void log_line(const char *format, ...) PRINTF_LIKE(1, 2);
static void log_line(const char *format, ...)
{
    char line[2 * LINE_BYTES];
    va_list args;
    if (log_fd < 0)
        return;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    n = MIN(n, (int)sizeof line - 2);
    line[n++] = '\n';
    if (write(log_fd, line, (size_t)n) != n)
        perror("fakecuda: log");
}

void fake_note(const char *format, ...)
{
    size_t at = strlen(notes);
    va_list args;
    va_start(args, format);
    vsnprintf(notes + at, sizeof notes - at, format, args);
    va_end(args);
}

enum cuda_result fake_misuse(enum cuda_result r, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_line("misuse: %s", text);
    fprintf(stderr, "fakecuda: misuse: %s\n", text);
    return r;
}

/* --- failures on demand ---------------------------------------------------------------------- */

int fake_failure(const char *name)
{
    if (!failure.name || strcmp(failure.name, name) != 0 || ++failure.seen != failure.n)
        return CUDA_SUCCESS;
    if (failure.file) {
        int fd = open(failure.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0)
            return CUDA_SUCCESS;
        close(fd);
    }
    return failure.code;
}

static bool is_sticky(int code)
{
    switch (code) {
#define CUDA_RESULT(code, name, class, text, hint) \
    case code:                                     \
        return CUDA_CLASS_##class == CUDA_CLASS_STICKY;
#include "drivers/cuda/result.def"
#undef CUDA_RESULT
    default:
        return false;
    }
}

static bool is_device_query(const char *name)
{
    return strcmp(name, "cuInit") == 0 || strcmp(name, "cuDriverGetVersion") == 0 ||
           strncmp(name, "cuDevice", 8) == 0;
}

/* What speaks against a call before its arguments are looked at. */
static enum cuda_result enter(const char *name)
{
    pthread_mutex_lock(&fake_lock);
    notes[0] = 0;
    calls++;
    if (fake_in_callback)
        return fake_misuse(CUDA_ERROR_NOT_PERMITTED, "%s is called in a host function", name);
    int wanted = fake_failure(name);
    if (!wanted)
        wanted = fake_failure("any");
    if (wanted) {
        fake_note(" (as wished)");
        if (is_sticky(wanted))
            fake_sticky = (enum cuda_result)wanted;
        return (enum cuda_result)wanted;
    }
    if (!fake_started && strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0)
        return fake_misuse(CUDA_ERROR_NOT_INITIALIZED, "%s is called before cuInit", name);
    if (is_device_query(name))
        return CUDA_SUCCESS;
    if (!fake_context && strcmp(name, "cuCtxSetCurrent") != 0)
        return fake_misuse(CUDA_ERROR_INVALID_CONTEXT, "%s is called without a context", name);
    return fake_sticky;
}

static enum cuda_result leave(const char *name, enum cuda_result r)
{
    log_line("%u %s %d%s", calls, name, (int)r, notes);
    pthread_mutex_unlock(&fake_lock);
    return r;
}

#define CUDA_CALL(need, since, name, symbol, parameters, arguments)            \
    __attribute__((visibility("default"))) enum cuda_result symbol parameters; \
    enum cuda_result symbol parameters                                         \
    {                                                                          \
        enum cuda_result r = enter(#symbol);                                   \
        return leave(#symbol, r ? r : fake_##name arguments);                  \
    }
#include "drivers/cuda/driver.def"
#undef CUDA_CALL

/* --- handles --------------------------------------------------------------------------------- */

static struct fake_handle *handles;

static void *zeroed(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        abort();
    return p;
}

void *fake_open(enum fake_kind kind, size_t bytes)
{
    struct fake_handle *h = zeroed(bytes);
    h->kind = kind;
    h->next = handles;
    handles = h;
    return h;
}

enum cuda_result fake_check(const void *handle, enum fake_kind kind)
{
    static const char *const names[] = {"",         "stream", "event",           "module",
                                        "function", "graph",  "executable graph"};
    for (const struct fake_handle *h = handles; h; h = h->next)
        if (h == handle && h->kind == kind)
            return h->closed ? fake_misuse(CUDA_ERROR_INVALID_HANDLE, "the %s is closed already",
                                           names[kind])
                             : CUDA_SUCCESS;
    return fake_misuse(CUDA_ERROR_INVALID_HANDLE, "%p is no %s", handle, names[kind]);
}
