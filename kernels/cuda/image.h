/* The GPU kernels inside this program: kernels/cuda/step.cu as one compressed fatbin with code for
 * each architecture of ./configure --sm and PTX for what comes later. It is put here
 * by the assembler from the file that nvcc made. Built without nvcc it has no bytes.
 */
#ifndef ZIGCUDA_IMAGE_H
#define ZIGCUDA_IMAGE_H

#include "core/base/base.h"

extern const u8 gpu_image[]; /* for cuModuleLoadData */
extern const u64 gpu_image_bytes;
extern const char gpu_image_codes[]; /* "sm_80 sm_90 compute_80"; "" when there is no code */

#endif
