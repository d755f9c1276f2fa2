/* The arguments of a user's kernel, from the words of the command line:
 *     --arg f32:1.5    a value: f16 bf16 f32 f64, i8 i16 i32 i64, u8 u16 u32 u64
 *     --buf in:FILE, out:BYTES[:FILE], inout:FILE[:FILE]    a device buffer, passed as a pointer
 * and the sizes of grid and block. Nothing here touches a device. Limits: LIMIT_KERNEL_ARGS,
 * LIMIT_KERNEL_BUFFER_BYTES.
 */
#ifndef ZIGCUDA_KERNEL_ARG_H
#define ZIGCUDA_KERNEL_ARG_H

#include "config/limits.h"
#include "core/base/err.h"

enum kernel_type {
    KERNEL_F16,
    KERNEL_BF16,
    KERNEL_F32,
    KERNEL_F64,
    KERNEL_I8,
    KERNEL_I16,
    KERNEL_I32,
    KERNEL_I64,
    KERNEL_U8,
    KERNEL_U16,
    KERNEL_U32,
    KERNEL_U64,
    KERNEL_BUFFER, /* a pointer to device memory */
};

struct kernel_arg {
    enum kernel_type type;
    u32 bytes;        /* of the value: 1, 2, 4 or 8 */
    u64 value;        /* its bytes come first (little endian); of a buffer: the device pointer */
    const char *text; /* as it was given */
    /* --- of a buffer */
    bool in, out;
    char in_path[LIMIT_PATH_BYTES], out_path[LIMIT_PATH_BYTES]; /* "": none */
    u64 buffer_bytes;                                           /* of `out` only; else the file's */
};

const char *kernel_type_name(enum kernel_type t); /* "f32", "pointer" */

/* "f32" and so on; false for what is no type of a value. */
bool kernel_type_parse(struct str name, enum kernel_type *out, u32 *bytes);

MUST enum err kernel_arg_value(const char *text, struct kernel_arg *out, struct err_text *e);
MUST enum err kernel_arg_buffer(const char *text, struct kernel_arg *out, struct err_text *e);

/* "X", "X,Y" or "X,Y,Z", each from 1 on; `flag` is for messages. */
MUST enum err kernel_arg_size(const char *flag, const char *text, u32 out[3], struct err_text *e);

/* A value of raw bytes as text into out[32]; never a type KERNEL_BUFFER. */
void kernel_arg_print(enum kernel_type t, const void *p, char out[32]);

#endif
