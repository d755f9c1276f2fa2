/* CUDA C++ to a kernel image at run time, by NVIDIA's NVRTC when that library is on the box (it
 * comes with the toolkit; only `zigcuda kernel run` of a .cu file needs it). Facts from the public
 * nvrtc.h. The library stays loaded for the life of the process; programs are destroyed here.
 * Limits: LIMIT_KERNEL_FILE_BYTES of an image, LIMIT_KERNEL_LOG_BYTES of a log, which is cut.
 */
#ifndef ZIGCUDA_CUDA_NVRTC_H
#define ZIGCUDA_CUDA_NVRTC_H

#include "core/base/arena.h"

struct nvrtc_source {
    const char *path;  /* for messages */
    const char *text;  /* NUL-terminated */
    const char *entry; /* the kernel's name in the source, "axpy" or "axpy<float>" */
    const char *const *options;
    u32 n_options;
};

struct nvrtc_image {
    struct str bytes;  /* a cubin, or PTX (NUL-terminated) where options ask for compute_NN */
    const char *entry; /* the kernel's name in the image */
};

/* Loads the library of the driver's CUDA version, or another that is there. *version counts as
 * cuda_driver_number does. ERR_DEVICE: not there; the sentence names the package. */
MUST enum err nvrtc_load(struct arena *keep, u32 driver, u32 *version, struct err_text *e);

/* Compiles; image and log are taken from `a`. *log is set in any case ("" when there is nothing to
 * say). ERR_USAGE: the source does not compile, or options are wrong: the log says why. */
MUST enum err nvrtc_compile(struct arena *a, const struct nvrtc_source *source,
                            struct nvrtc_image *out, struct str *log, struct err_text *e);

#endif
