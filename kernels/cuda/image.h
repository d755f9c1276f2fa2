/* The GPU kernels inside this program: kernels/cuda/step.cu as code for each architecture of
 * ./configure --sm and PTX for what comes later, packed (core/base/lzma) by image.py, whose file
 * the assembler puts here. Built without nvcc there are none.
 */
#ifndef ZIGCUDA_IMAGE_H
#define ZIGCUDA_IMAGE_H

#include "core/base/base.h"

/* One of them, as image.py writes it: bytes [at, at + bytes) of what the stream unpacks to. */
struct gpu_code {
    u32 code; /* compute capability as 86, GPU_PTX more for PTX */
    u32 stream, stream_bytes;
    u32 at, bytes;
    u32 text; /* PTX: bytes of what it is written out to (ptx.h), with its NUL */
};

#define GPU_PTX (1u << 16)

/* How many there are, and the i-th. */
u32 gpu_codes_n(void);
const struct gpu_code *gpu_code(u32 i);

/* What a card of this capability runs, by NVIDIA's rules of compatibility: code for its own, else
 * for the highest minor one of its major (but that of sm_87 on it alone, and of sm_90 as it uses
 * what no other has), else PTX. NULL: nothing. */
const struct gpu_code *gpu_code_for(u32 major, u32 minor);

/* Memory that gpu_code_unpack needs: the code is in it then. */
size_t gpu_code_room(const struct gpu_code *c);

/* The code, in `room` (aligned to 16), for cuModuleLoadData; NULL: this program's file is damaged.
 * Takes some 10 ms a MB. */
MUST const void *gpu_code_unpack(const struct gpu_code *c, void *room);

/* "sm_86", "PTX of sm_80". */
#define GPU_CODE_TEXT 24
const char *gpu_code_text(const struct gpu_code *c, char out[GPU_CODE_TEXT]);

#endif
