/* The first code of the static executable on x86-64: addresses in its data become those of where
 * the kernel has put it, by DT_RELR (gABI), which has a bit for each where DT_RELA has 24 bytes
 * (64 KB in all). musl's start, which comes next, knows that form since 1.2.4 only.
 *
 * On arm64 linkers write it since binutils 2.43; there musl does all by DT_RELA.
 */
#include "core/base/base.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)

#include <elf.h>

enum { TAG_RELRSZ = 35, TAG_RELR = 36 };

__asm__(".text\n"
        ".globl zigcuda_start\n"
        ".hidden zigcuda_start\n"
        ".type zigcuda_start, %function\n"
        "zigcuda_start:\n"
        "xor %ebp, %ebp\n"
        "lea __ehdr_start(%rip), %rdi\n"
        "lea _DYNAMIC(%rip), %rsi\n"
        "call start_relocate\n"
        "jmp _start\n");

/* base: of the executable; an address of its file is one of memory from there. */
__attribute__((used, visibility("hidden"))) void start_relocate(char *base, Elf64_Dyn *dynamic);
void start_relocate(char *base, Elf64_Dyn *dynamic)
{
    Elf64_Dyn *size = NULL;
    const u64 *entry = NULL;
    for (Elf64_Dyn *d = dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == TAG_RELRSZ)
            size = d;
        else if (d->d_tag == TAG_RELR)
            entry = (const u64 *)(void *)(base + d->d_un.d_ptr);
    }
    if (!size || !entry)
        return;
    u64 *next = NULL;
    for (u64 n = size->d_un.d_val / sizeof *entry; n; n--, entry++) {
        if (*entry % 2 == 0) { /* an address, of a word */
            next = (u64 *)(void *)(base + *entry);
            *next++ += (u64)base;
            continue;
        }
        u64 *word = next; /* else which of the next 63 words */
        for (u64 bits = *entry >> 1; bits; bits >>= 1, word++)
            if (bits % 2)
                *word += (u64)base;
        next += 63;
    }
    size->d_un.d_val = 0; /* done: for a musl that would do it again */
}

#endif
