#include "net/pages.h"

#include "core/base/lzma.h"

/* PAGES_OPENAPI is the build's: net/openapi.json as net/pack.py packs it, a seventh of its size. */
#define EMBED(name, file)                  \
    __asm__(".pushsection .rodata\n"       \
            ".global page_" #name "\n"     \
            "page_" #name ":\n"            \
            ".incbin \"" file "\"\n"       \
            ".global page_" #name "_end\n" \
            "page_" #name "_end:\n"        \
            ".byte 0\n"                    \
            ".popsection\n");              \
    extern const char page_##name[], page_##name##_end[]

EMBED(openapi, PAGES_OPENAPI);
EMBED(status, "net/status.html");

static size_t bytes_of(const char *first, const char *end)
{
    return (size_t)(end - first);
}

struct str pages_openapi(void)
{
    static u8 text[128 << 10];
    static struct lzma work;
    static bool there;
    u32 n;
    memcpy(&n, page_openapi, sizeof n);
    ASSERT(n <= sizeof text);
    if (!there) {
        const char *stream = page_openapi + sizeof n;
        there = lzma_unpack(&work, (const u8 *)stream, bytes_of(stream, page_openapi_end), text, n);
        ASSERT(there);
    }
    return (struct str){(const char *)text, n};
}

struct str pages_status(void)
{
    return (struct str){page_status, bytes_of(page_status, page_status_end)};
}
