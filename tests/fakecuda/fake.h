/* libcuda.so.1 for boxes without a GPU: every function of drivers/cuda/driver.def, on host memory,
 * with kernels/cuda compiled for the CPU (emulate.h). It keeps to the driver's rules and is strict
 * about ours: work of a stream runs on a thread of its own and later than the call that submits it;
 * device memory is NaN until written and ends at a page that must not be touched; pinned memory has
 * another address on the device than on the host; handles and ranges are checked, and freed ones
 * are not used again. What breaks the rules is a line `misuse: ...` on stderr and in the log, and
 * an error.
 *
 * The environment rules it:
 *   ZIGCUDA_FAKE=KEY=VALUE,...   what the box is like: the table in settings.c
 *   ZIGCUDA_FAKE_LOG=FILE        gets a line a call: number, function, result, remarks
 *   ZIGCUDA_FAKE_FAIL=NAME:N:CODE[:FILE]   the Nth call of a function (`any`: of whatever function)
 *       fails with that CUresult; of NAME `kernel` the Nth kernel that runs, after the launch has
 *       succeeded, and then CODE may be `hang`. With FILE only where FILE is not there yet; it is
 *       made then: so it happens once in the life of programs that start again.
 *
 * One lock guards everything but work that runs; the functions below are called with it held.
 */
#ifndef ZIGCUDA_FAKE_H
#define ZIGCUDA_FAKE_H

#include "drivers/cuda/driver.h"
#include "tests/fakecuda/grid.h"

#include <pthread.h>

struct fake_settings {
    u64 version, devices, sm, multiprocessors;
    u64 memory_bytes, taken_bytes, largest_bytes; /* of the device; by others; of one cuMemAlloc */
    u64 shared_bytes;                             /* of a block, opt-in */
    u64 integrated, ecc, timeout;                 /* timeout: a launch has a time limit */
    u64 threads;                                  /* of a multiprocessor, as the card has them */
    u64 reserved_bytes;                           /* of its shared memory, by each block */
    u64 clock;                                    /* kHz */
    u64 late;                                     /* so many calls of cuInit find no device */
    u64 delay_us;                                 /* before each piece of work of a stream */
    const char *name, *uuid, *pci;
};
extern struct fake_settings fake;

#define CUDA_CALL(need, since, name, symbol, parameters, arguments) \
    enum cuda_result fake_##name parameters;
#include "drivers/cuda/driver.def"
#undef CUDA_CALL

void fake_read_settings(void);
bool fake_is_hopper(void); /* the one card that has kernels of its own */

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* something that somebody may wait for */
extern enum cuda_result fake_sticky;
extern bool fake_started; /* cuInit has succeeded */
extern __thread bool fake_in_callback;
extern __thread struct cuda_context *fake_context; /* current */

/* Adds to the log line of the call that runs. */
void fake_note(const char *format, ...) PRINTF_LIKE(1, 2);
/* Reports a broken rule and answers r. */
enum cuda_result fake_misuse(enum cuda_result r, const char *format, ...) PRINTF_LIKE(2, 3);
/* What ZIGCUDA_FAKE_FAIL wants of this call, or CUDA_SUCCESS; FAKE_HANG for `hang`. */
enum { FAKE_HANG = -1 };
int fake_failure(const char *name);

/* --- handles: never freed, so that old ones are known --------------------------------------- */

enum fake_kind {
    FAKE_STREAM = 1,
    FAKE_EVENT,
    FAKE_MODULE,
    FAKE_FUNCTION,
    FAKE_GRAPH,
    FAKE_GRAPH_EXEC,
};
struct fake_handle { /* first in each */
    enum fake_kind kind;
    bool closed;
    struct fake_handle *next;
};
void *fake_open(enum fake_kind kind, size_t bytes); /* zeroed */
/* CUDA_SUCCESS, or a misuse. */
enum cuda_result fake_check(const void *handle, enum fake_kind kind);

/* --- memory ---------------------------------------------------------------------------------- */

/* CUDA_SUCCESS when [p, p + bytes) lies in memory of the device that is not freed; else a misuse.
 */
enum cuda_result fake_device_span(u64 p, size_t bytes);
/* The same for host memory of a copy; *pinned: the device may read it later. */
enum cuda_result fake_host_span(const void *p, size_t bytes, bool *pinned);
/* Words about an address, for messages. */
void fake_describe(u64 p, char out[128]);

/* --- work of streams ------------------------------------------------------------------------- */

enum fake_work_kind { WORK_COPY, WORK_FILL, WORK_LAUNCH, WORK_HOST, WORK_RECORD, WORK_WAIT };

struct fake_work {
    enum fake_work_kind kind;
    struct fake_work *next;
    void *owned; /* freed with it, or NULL */
    union {
        struct {
            void *to;
            const void *from;
            size_t bytes;
        } copy;
        struct {
            void *to;
            u32 value, unit_bytes;
            size_t n;
        } fill;
        struct {
            const struct emulated *kernel;
            u32 blocks, threads, shared_bytes;
            bool together;
            const void *params;
        } launch;
        struct {
            void (*run)(void *);
            void *arg;
        } host;
        struct {
            struct cuda_event *event;
            u64 ticket; /* WORK_WAIT: until this one of its records is done */
        } event;
    };
};

/* Checks the handle and appends a copy of *w, to the graph while one is captured. */
enum cuda_result fake_submit(struct cuda_stream *stream, const struct fake_work *w);
bool fake_capturing(struct cuda_stream *stream);
enum cuda_result fake_wait_stream(struct cuda_stream *stream); /* for what is submitted now */
void fake_wait_all(void);

#endif
