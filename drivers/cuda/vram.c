#include "drivers/cuda/vram.h"

#include "drivers/cuda/driver.h"

u64 vram_carve(struct vram *s, size_t bytes)
{
    bytes = ROUND_UP(MAX(bytes, (size_t)1), (size_t)VRAM_ALIGN);
    if (s->at.used_bytes && bytes > s->chunk_bytes - MIN(s->at.used_bytes, s->chunk_bytes))
        s->at = (struct vram_mark){s->at.chunk + 1, 0};
    ASSERT(s->at.chunk < VRAM_CHUNKS);
    struct vram_chunk *c = &s->chunks[s->at.chunk];
    u64 p = (s->taken ? c->base : VRAM_ALIGN) + s->at.used_bytes; /* never NULL */
    s->at.used_bytes += bytes;
    ASSERT(!s->taken || s->at.used_bytes <= c->bytes);
    c->bytes = MAX(c->bytes, s->at.used_bytes);
    s->n = MAX(s->n, s->at.chunk + 1);
    return p;
}

struct vram_mark vram_here(const struct vram *s)
{
    return s->at;
}

void vram_back(struct vram *s, struct vram_mark mark)
{
    s->at = mark;
}

size_t vram_bytes(const struct vram *s)
{
    size_t bytes = 0;
    for (u32 i = 0; i < s->n; i++)
        bytes += s->chunks[i].bytes;
    return bytes;
}

enum err vram_take(struct vram *s, struct err_text *e)
{
    ASSERT(!s->taken);
    s->at = (struct vram_mark){0};
    s->taken = true;
    for (u32 i = 0; i < s->n; i++)
        CUDA_TRY(cuda_memory_take(&s->chunks[i].base, s->chunks[i].bytes), e,
                 "take %zu MiB of the GPU's memory", s->chunks[i].bytes / MIB);
    return ERR_OK;
}

void vram_close(struct vram *s)
{
    for (u32 i = 0; s->taken && i < s->n; i++)
        if (s->chunks[i].base)
            (void)!cuda_memory_free(s->chunks[i].base);
    *s = (struct vram){0};
}
