/* The first code of the static executable: addresses in its data become those of where the kernel
 * has put it, by DT_RELR (gABI), which has a bit for each where DT_RELA has 24 bytes (64 KB in all
 * on x86-64, 94 on arm64). musl's start, which comes next, knows that form since 1.2.4 only.
 */
#include "core/base/start.h"

#ifndef __SANITIZE_ADDRESS__

#include <elf.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { TAG_RELRSZ = 35, TAG_RELR = 36 };

extern const char __ehdr_start[] __attribute__((visibility("hidden"))); /* the file's first byte */

__asm__(".text\n"
        ".globl zigcuda_start\n"
        ".hidden zigcuda_start\n"
        ".type zigcuda_start, %function\n"
        "zigcuda_start:\n"
#ifdef __x86_64__
        "xor %ebp, %ebp\n"
        "lea __ehdr_start(%rip), %rdi\n"
        "lea _DYNAMIC(%rip), %rsi\n"
        "call start_relocate\n"
        "jmp _start\n"
#else
        "mov x29, #0\n"
        "adrp x0, __ehdr_start\n"
        "add x0, x0, #:lo12:__ehdr_start\n"
        "adrp x1, _DYNAMIC\n"
        "add x1, x1, #:lo12:_DYNAMIC\n"
        "bl start_relocate\n"
        "b _start\n"
#endif
);

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

void start_protect(void)
{
    const Elf64_Ehdr *file = (const Elf64_Ehdr *)(const void *)__ehdr_start;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(__ehdr_start + file->e_phoff);
    u64 page = getauxval(AT_PAGESZ);
    for (u32 i = 0; i < file->e_phnum; i++)
        if (p[i].p_type == PT_GNU_RELRO) {
            u64 at = (u64)__ehdr_start + p[i].p_vaddr, end = at + p[i].p_memsz;
            at &= ~(page - 1), end &= ~(page - 1);
            ASSERT(at == end || mprotect((void *)at, end - at, PROT_READ) == 0);
        }
}

#else

void start_protect(void)
{
    /* glibc does */
}

#endif
