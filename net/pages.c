#include "net/pages.h"

#define EMBED(name, file)                                                            \
    __asm__(".pushsection .rodata\n"                                                 \
            ".global page_" #name "\n"                                               \
            "page_" #name ":\n"                                                      \
            ".incbin \"" file "\"\n"                                                 \
            ".global page_" #name "_end\n"                                           \
            "page_" #name "_end:\n"                                                  \
            ".byte 0\n"                                                              \
            ".popsection\n");                                                        \
    extern const char page_##name[], page_##name##_end[];                            \
    struct str pages_##name(void)                                                    \
    {                                                                                \
        return (struct str){page_##name, (size_t)(page_##name##_end - page_##name)}; \
    }

EMBED(openapi, "net/openapi.json")
EMBED(status, "net/status.html")
