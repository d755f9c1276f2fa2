#include "kernels/cuda/image.h"

/* GPU_IMAGE and GPU_CODES are the build's. */
__asm__(".section .rodata.gpu_image, \"a\"\n"
        ".balign 64\n"
        ".globl gpu_image\n"
        "gpu_image:\n"
        ".incbin \"" GPU_IMAGE "\"\n"
        "gpu_image_end:\n"
        ".balign 8\n"
        ".globl gpu_image_bytes\n"
        "gpu_image_bytes:\n"
        ".quad gpu_image_end - gpu_image\n"
        ".previous\n");

const char gpu_image_codes[] = GPU_CODES;
