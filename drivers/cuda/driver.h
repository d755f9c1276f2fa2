/* The CUDA driver API as this program uses it: our own declarations of the few types and constants
 * (there is no toolkit at build time), one table of functions made from driver.def, and a typed
 * wrapper a function that makes the call inside the guest (drivers/guest):
 *
 *     enum cuda_result r = cuda_memory_take(&p, bytes);
 *     CUDA_TRY(cuda_launch(...), e, "start the step");
 *
 * The facts are those of the public cuda.h: constants keep its names, handles are opaque pointers,
 * device memory is a u64. Calls come from the one thread that booted the guest; a driver thread
 * (cuda_call_host) may run only code that uses no thread-local storage, errno among it.
 *
 * The process has one driver: cuda_table and the version live here for good. A driver below
 * CUDA_DRIVER_MIN is refused. Nothing is ever unloaded.
 */
#ifndef ZIGCUDA_CUDA_DRIVER_H
#define ZIGCUDA_CUDA_DRIVER_H

#include "core/base/arena.h"
#include "drivers/cuda/result.h"
#include "drivers/guest/guest.h"

enum { CUDA_DRIVER_MIN = 12000 }; /* 1000 * major + 10 * minor, as cuDriverGetVersion counts */

struct cuda_context;
struct cuda_stream;
struct cuda_event;
struct cuda_module;
struct cuda_function;
struct cuda_graph;
struct cuda_graph_exec;
struct cuda_uuid {
    u8 bytes[16];
};

/* --- constants of cuda.h ---------------------------------------------------------------------- */

enum { /* cuDevicePrimaryCtxSetFlags */
       CU_CTX_SCHED_SPIN = 0x01,
       CU_CTX_SCHED_BLOCKING_SYNC = 0x04,
};

enum { /* cuStreamCreate, cuEventCreate */
       CU_STREAM_NON_BLOCKING = 0x1,
       CU_EVENT_DEFAULT = 0x0,
       CU_EVENT_BLOCKING_SYNC = 0x1,
       CU_EVENT_DISABLE_TIMING = 0x2,
};

enum { /* cuMemHostAlloc, cuMemHostRegister */
       CU_MEMHOSTALLOC_PORTABLE = 0x01,
       CU_MEMHOSTALLOC_DEVICEMAP = 0x02,
       CU_MEMHOSTALLOC_WRITECOMBINED = 0x04,
       CU_MEMHOSTREGISTER_DEVICEMAP = 0x02,
       CU_MEMHOSTREGISTER_READ_ONLY = 0x08,
};

enum cuda_device_attribute {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36, /* kHz */
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
};

enum { /* values of CU_DEVICE_ATTRIBUTE_COMPUTE_MODE */
       CU_COMPUTEMODE_DEFAULT = 0,
       CU_COMPUTEMODE_PROHIBITED = 2,
       CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
};

enum cuda_function_attribute {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
};

enum cuda_jit_option {
    CU_JIT_INFO_LOG_BUFFER = 3,
    CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    CU_JIT_LOG_VERBOSE = 12,
};

enum cuda_capture_mode {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* --- the table and its wrappers --------------------------------------------------------------- */

struct cuda_table {
#define CUDA_CALL(need, since, name, symbol, parameters, arguments) \
    enum cuda_result(*name) parameters;
#include "drivers/cuda/driver.def"
#undef CUDA_CALL
};
extern struct cuda_table cuda_table; /* all NULL until cuda_driver_load */

#define cuda_has(name) (cuda_table.name != NULL)

#define CUDA_WHERE_REQUIRED(name) true
#define CUDA_WHERE_OPTIONAL(name) cuda_has(name)
#define CUDA_CALL(need, since, name, symbol, parameters, arguments) \
    static inline MUST enum cuda_result cuda_##name parameters      \
    {                                                               \
        if (!CUDA_WHERE_##need(name))                               \
            return CUDA_ERROR_NOT_SUPPORTED;                        \
        return GUEST_CALL(cuda_table.name arguments);               \
    }
#include "drivers/cuda/driver.def"
#undef CUDA_CALL

/* Hands a failed call up as an error whose sentence says what was tried. */
#define CUDA_TRY(call, e, ...)                             \
    do {                                                   \
        enum cuda_result cuda_try_ = (call);               \
        if (cuda_try_ != CUDA_SUCCESS)                     \
            return cuda_failed(cuda_try_, e, __VA_ARGS__); \
    } while (0)

/* Boots the guest, loads the driver's library (a name such as "libcuda.so.1", or a path) and fills
 * the table; once, and again does nothing. No device is touched: that begins with cuda_init.
 * ERR_DEVICE: no glibc, no such library, a function is missing (by its name), or the driver is
 * older than CUDA_DRIVER_MIN. */
MUST enum err cuda_driver_load(struct arena *keep, const char *library, struct err_text *e);

/* Loads a library of the driver by name or path: where dlopen finds it, else from one of the
 * folders in which some systems keep the driver apart. The guest is open. */
MUST enum err cuda_library_load(const char *name, void **lib, struct err_text *e);

/* 12080 is CUDA 12.8; 0 before cuda_driver_load. */
u32 cuda_driver_number(void);

#endif
