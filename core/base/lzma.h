/* LZMA: unpacks raw streams as `xz --format=raw --lzma1=lc=0,lp=4,pb=4` writes them, literals by
 * the position's lowest four bits, which is what code in words of 16 bytes wants. After the LZMA
 * specification of the 7-Zip project (I. Pavlov, 2015, public domain).
 *
 * The caller owns all memory; nothing is kept. Bytes that are no such stream give false, never an
 * access outside of `in` and `out`.
 */
#ifndef ZIGCUDA_LZMA_H
#define ZIGCUDA_LZMA_H

#include "core/base/base.h"

enum {
    LZMA_STATES = 12,
    LZMA_PLACES = 16, /* 1 << pb, and 1 << lp */
};

/* Chances of a bit to be 0, in 1/2048. */
struct lzma_length {
    u16 longer, longest, low[LZMA_PLACES][8], mid[LZMA_PLACES][8], high[256];
};

struct lzma {
    u16 match[LZMA_STATES][LZMA_PLACES];
    u16 again[LZMA_STATES], not_first[LZMA_STATES], not_second[LZMA_STATES];
    u16 not_third[LZMA_STATES], first_longer[LZMA_STATES][LZMA_PLACES];
    u16 slot[4][64], near[128], align[16];
    struct lzma_length length, length_again;
    u16 literal[LZMA_PLACES][0x300];
};

/* The first out_bytes of what `in` unpacks to; `work` needs no initialisation. */
MUST bool lzma_unpack(struct lzma *work, const u8 *in, size_t in_bytes, u8 *out, size_t out_bytes);

#endif
