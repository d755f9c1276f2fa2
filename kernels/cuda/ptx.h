/* PTX as image.py packs it. The numbers of registers are most of what PTX has to say: instead of
 * one that has been there stands how many others have been used since, of its kind and function,
 * as %r0, and instead of a new one, whose number is the next, %r*. So code that stands twice is the
 * same text twice, and packs to a third. A form feed begins a function.
 */
#ifndef ZIGCUDA_PTX_H
#define ZIGCUDA_PTX_H

#include "core/base/base.h"

enum {
    PTX_KINDS = 6,
    PTX_REGISTERS = 16384 /* of a kind, in a function */
};

/* Those of a function: the one that was used last stands last. */
struct ptx_names {
    u32 n[PTX_KINDS];
    u16 numbers[PTX_KINDS][PTX_REGISTERS];
};

/* Writes `in` out as a driver wants it; `work` needs no initialisation. False: it is not the text
 * of out_bytes bytes. */
MUST bool ptx_write_out(struct ptx_names *work, const char *in, size_t n, char *out,
                        size_t out_bytes);

#endif
