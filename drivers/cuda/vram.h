/* The card's memory: everything the backend keeps there, carved from a few large allocations in the
 * order of use. It is gone through twice by the same code: first to measure (addresses then mean
 * nothing), then, after vram_take, for good. The caller owns the struct; vram_close gives the
 * memory back.
 *
 * On an integrated GPU a single allocation stays below `chunk_bytes`, unless one piece alone is
 * larger: large ones fail on some releases of its system although the memory is there. At most
 * VRAM_CHUNKS allocations.
 */
#ifndef ZIGCUDA_CUDA_VRAM_H
#define ZIGCUDA_CUDA_VRAM_H

#include "core/base/err.h"

enum { VRAM_CHUNKS = 512, VRAM_ALIGN = 256 };

struct vram_chunk {
    u64 base; /* 0 while measuring */
    size_t bytes;
};

struct vram_mark {
    u32 chunk;
    size_t used_bytes;
};

struct vram {
    size_t chunk_bytes; /* SIZE_MAX: all in one allocation */
    bool taken;
    struct vram_mark at;
    u32 n;
    struct vram_chunk chunks[VRAM_CHUNKS];
};

/* The next piece, aligned to VRAM_ALIGN. */
u64 vram_carve(struct vram *s, size_t bytes);

/* The same as a pointer: device addresses are pointers in the structs that host and card share. */
static inline void *vram_pointer(struct vram *s, size_t bytes)
{
    return (void *)(uintptr_t)vram_carve(s, bytes);
}

/* Where the next piece begins; going back there lets later pieces lie over earlier ones. */
struct vram_mark vram_here(const struct vram *s);
void vram_back(struct vram *s, struct vram_mark mark);

/* Bytes of all allocations. */
size_t vram_bytes(const struct vram *s);

/* Takes what was measured, and starts over. */
MUST enum err vram_take(struct vram *s, struct err_text *e);
void vram_close(struct vram *s);

#endif
