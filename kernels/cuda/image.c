#include "kernels/cuda/image.h"

#include "core/base/lzma.h"
#include "kernels/cuda/ptx.h"

#include <stdio.h>

/* GPU_IMAGE is the build's. */
__asm__(".section .rodata.gpu_image, \"a\"\n"
        ".balign 64\n"
        "gpu_image:\n"
        ".incbin \"" GPU_IMAGE "\"\n"
        ".long 0\n" /* no codes, where the file has no bytes */
        ".previous\n");

extern const u8 gpu_image[] __attribute__((visibility("hidden")));

struct head {
    u32 n;
    struct gpu_code codes[];
};

u32 gpu_codes_n(void)
{
    return ((const struct head *)(const void *)gpu_image)->n;
}

const struct gpu_code *gpu_code(u32 i)
{
    ASSERT(i < gpu_codes_n());
    return &((const struct head *)(const void *)gpu_image)->codes[i];
}

static bool runs(u32 code, u32 card)
{
    if (code & GPU_PTX)
        return code - GPU_PTX <= card;
    bool alone = code == 87 || card == 87 || code == 90;
    return code == card || (!alone && code / 10 == card / 10 && code < card);
}

/* The higher, the better. */
static u32 rank(const struct gpu_code *c)
{
    return c->code & GPU_PTX ? c->code - GPU_PTX : GPU_PTX + c->code;
}

const struct gpu_code *gpu_code_for(u32 major, u32 minor)
{
    const struct gpu_code *best = NULL;
    for (u32 i = 0; i < gpu_codes_n(); i++) {
        const struct gpu_code *c = gpu_code(i);
        if (runs(c->code, major * 10 + minor) && (!best || rank(c) > rank(best)))
            best = c;
    }
    return best;
}

union work {
    struct lzma lzma;
    struct ptx_names names;
};

/* The unpacked stream, work space, PTX written out. */
static size_t work_at(const struct gpu_code *c)
{
    return ROUND_UP((size_t)c->at + c->bytes, (size_t)16);
}

size_t gpu_code_room(const struct gpu_code *c)
{
    return work_at(c) + sizeof(union work) + c->text;
}

const void *gpu_code_unpack(const struct gpu_code *c, void *room)
{
    union work *work = (union work *)(void *)((u8 *)room + work_at(c));
    const u8 *code = (const u8 *)room + c->at;
    char *text = (char *)(work + 1);
    if (!lzma_unpack(&work->lzma, gpu_image + c->stream, c->stream_bytes, room,
                     (size_t)c->at + c->bytes))
        return NULL;
    if (!c->text)
        return code;
    text[c->text - 1] = 0;
    return ptx_write_out(&work->names, (const char *)code, c->bytes, text, c->text - 1) ? text
                                                                                        : NULL;
}

const char *gpu_code_text(const struct gpu_code *c, char out[GPU_CODE_TEXT])
{
    bool ptx = c->code & GPU_PTX;
    snprintf(out, GPU_CODE_TEXT, "%ssm_%u", ptx ? "PTX of " : "", c->code & ~GPU_PTX);
    return out;
}
