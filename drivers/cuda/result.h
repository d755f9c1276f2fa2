/* Every result code of the CUDA driver API: its name, one sentence, a class, and what helps. From
 * the public cuda.h, whose list and meanings result.def follows. A code that the table lacks (a
 * newer driver's) is of class CUDA_CLASS_UNKNOWN and is told by its number.
 *
 * After a code of CUDA_CLASS_STICKY the driver refuses all further work of this process: it has to
 * be started again. Owns nothing.
 */
#ifndef ZIGCUDA_CUDA_RESULT_H
#define ZIGCUDA_CUDA_RESULT_H

#include "core/base/err.h"

enum cuda_result {
#define CUDA_RESULT(code, name, class, text, hint) CUDA_##name = code,
#include "drivers/cuda/result.def"
#undef CUDA_RESULT
};

enum cuda_class {
    CUDA_CLASS_OK,
    CUDA_CLASS_PENDING,     /* no error: the work still runs */
    CUDA_CLASS_WAIT,        /* the device is not ready or busy; the next try may succeed */
    CUDA_CLASS_SETUP,       /* driver, licence, MPS: somebody must change the box */
    CUDA_CLASS_MEMORY,      /* device or pinned memory is full */
    CUDA_CLASS_USE,         /* we called wrongly: a bug, or a user's kernel with wrong arguments */
    CUDA_CLASS_IMAGE,       /* the kernel image does not fit the device or the driver */
    CUDA_CLASS_LAUNCH,      /* this launch asks for more than the device has; others go on */
    CUDA_CLASS_STICKY,      /* the context is lost: only a new process helps */
    CUDA_CLASS_UNSUPPORTED, /* this device or driver cannot do it */
    CUDA_CLASS_CAPTURE,     /* a graph was captured or updated wrongly: a bug */
    CUDA_CLASS_UNKNOWN,
    CUDA_CLASS_COUNT
};

const char *cuda_result_name(enum cuda_result r); /* "CUDA_ERROR_OUT_OF_MEMORY" */
const char *cuda_result_text(enum cuda_result r); /* what happened, without a full stop */
const char *cuda_result_hint(enum cuda_result r); /* what helps; "" where nothing is known */
enum cuda_class cuda_result_class(enum cuda_result r);
const char *cuda_class_name(enum cuda_class c); /* "sticky", for logs and metrics */

static inline bool cuda_result_sticky(enum cuda_result r)
{
    return cuda_result_class(r) == CUDA_CLASS_STICKY;
}

/* The error of a failed call: "cannot <what>: <text> (<name>, <code>). <hint>". ERR_MEMORY for
 * CUDA_CLASS_MEMORY, else ERR_DEVICE. r is not CUDA_SUCCESS. */
enum err cuda_failed(enum cuda_result r, struct err_text *e, const char *what, ...)
    PRINTF_LIKE(3, 4);

#endif
