#include "drivers/guest/elf.h"
#include "drivers/guest/guest.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { HERE = EM_X86_64, ELSEWHERE = EM_AARCH64 };
#else
enum { HERE = EM_AARCH64, ELSEWHERE = EM_X86_64 };
#endif

/* A small program: code, data with bss, an interpreter. Pages of 64 KiB, which suit any kernel. */
enum { INTERP, CODE, DATA, SEGMENTS, PAGE = 65536, BSS = 3 * PAGE };

struct program {
    Elf64_Ehdr h;
    Elf64_Phdr p[SEGMENTS];
    char interpreter[96];
    char data[8];
};

static struct program sound(const char *interpreter)
{
    struct program f = {0};
    memcpy(f.h.e_ident, ELFMAG, SELFMAG);
    f.h.e_ident[EI_CLASS] = ELFCLASS64;
    f.h.e_ident[EI_DATA] = ELFDATA2LSB;
    f.h.e_type = ET_DYN;
    f.h.e_machine = HERE;
    f.h.e_entry = sizeof f.h;
    f.h.e_phoff = offsetof(struct program, p);
    f.h.e_phentsize = sizeof f.p[0];
    f.h.e_phnum = SEGMENTS;
    size_t n = strlen(interpreter) + 1, data = offsetof(struct program, data);
    memcpy(f.interpreter, interpreter, n);
    memcpy(f.data, "12345678", 8);
    f.p[INTERP] = (Elf64_Phdr){.p_type = PT_INTERP,
                               .p_offset = offsetof(struct program, interpreter),
                               .p_filesz = n,
                               .p_memsz = n};
    f.p[CODE] =
        (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = data, .p_memsz = data};
    f.p[DATA] = (Elf64_Phdr){.p_type = PT_LOAD,
                             .p_flags = PF_R | PF_W,
                             .p_offset = data,
                             .p_vaddr = PAGE + data,
                             .p_filesz = 8,
                             .p_memsz = 8 + BSS};
    return f;
}

static int file_of(const void *bytes, size_t n)
{
    int fd = memfd_create("elf_test", MFD_CLOEXEC);
    return fd >= 0 && write(fd, bytes, n) == (ssize_t)n ? fd : -1;
}

static struct err_text error;

/* Reads and, when that goes well, maps; every byte of what is mapped readable is touched. */
static enum err load(const void *bytes, size_t n, bool keep, struct elf *f, uintptr_t *base)
{
    error = (struct err_text){0};
    int fd = file_of(bytes, n);
    enum err r = elf_read(fd, "test", f, &error);
    if (r == ERR_OK)
        r = elf_map(fd, "test", f, base, &error);
    close(fd);
    if (r == ERR_OK && !keep)
        munmap((void *)(*base + f->low), f->high - f->low);
    return r;
}

void elf_maps_a_program(void)
{
    struct program f = sound("/lib/ld-test.so.1");
    struct elf elf;
    uintptr_t base;
    CHECK(load(&f, sizeof f, true, &elf, &base) == ERR_OK);
    CHECK(strcmp(elf.interpreter, "/lib/ld-test.so.1") == 0);
    CHECK(elf.entry == sizeof f.h && elf.headers == f.h.e_phoff && elf.n_headers == SEGMENTS);
    CHECK(memcmp((void *)base, &f, f.p[CODE].p_filesz) == 0);
    char *data = (char *)base + f.p[DATA].p_vaddr;
    CHECK(memcmp(data, "12345678", 8) == 0);
    for (u32 i = 8; i < 8 + BSS; i++) {
        CHECK(data[i] == 0);
        data[i] = 1;
    }
    munmap((void *)(base + elf.low), elf.high - elf.low);
}

void elf_refuses_what_is_cut_or_flipped(void)
{
    struct program f = sound("/lib/ld-test.so.1");
    struct elf elf;
    uintptr_t base;
    for (size_t n = 0; n < sizeof f; n++) {
        enum err r = load(&f, n, false, &elf, &base);
        CHECK(r == ERR_DEVICE && error.text[0]);
    }
    u32 refused = 0;
    for (u32 bit = 0; bit < 8 * offsetof(struct program, interpreter); bit++) {
        ((u8 *)&f)[bit / 8] ^= (u8)(1 << bit % 8);
        refused += load(&f, sizeof f, false, &elf, &base) != ERR_OK;
        ((u8 *)&f)[bit / 8] ^= (u8)(1 << bit % 8);
    }
    CHECK(refused > 500); /* the others are padding, alignment and the like */
}

static bool refuses(const struct program *f, const char *why)
{
    struct elf elf;
    uintptr_t base;
    return load(f, sizeof *f, false, &elf, &base) != ERR_OK && strstr(error.text, why);
}

void elf_says_what_is_wrong(void)
{
    const struct program good = sound("/lib/ld-test.so.1");
    struct program f;
#define WRONG(change, why) \
    f = good;              \
    change;                \
    CHECK(refuses(&f, why))
    WRONG(f.h.e_ident[0] = 0, "no ELF header");
    WRONG(f.h.e_machine = ELSEWHERE, "another CPU");
    WRONG(f.h.e_ident[EI_CLASS] = ELFCLASS32, "another CPU");
    WRONG(f.h.e_type = ET_EXEC, "not position independent");
    WRONG(f.h.e_phnum = 0, "table of segments");
    WRONG(f.h.e_phnum = UINT16_MAX, "table of segments");
    WRONG(f.h.e_phoff = UINT64_MAX, "table of segments");
    WRONG(f.h.e_phentsize = 32, "table of segments");
    WRONG(f.h.e_entry = PAGE, "entry");
    WRONG(f.p[CODE].p_flags = PF_R, "entry");
    WRONG(f.p[CODE].p_flags = PF_R | PF_W | PF_X, "writable and executable");
    WRONG(f.p[CODE].p_filesz = UINT64_MAX, "behind the file");
    WRONG(f.p[DATA].p_offset = UINT64_MAX, "behind the file");
    WRONG(f.p[DATA].p_memsz = UINT64_MAX, "too large");
    WRONG(f.p[DATA].p_vaddr = UINT64_MAX, "too large");
    WRONG(f.p[DATA].p_memsz = 1, "larger in the file");
    WRONG(f.p[DATA].p_vaddr++, "pages");
    WRONG(f.p[DATA].p_vaddr -= PAGE, "overlap");
    WRONG(f.p[DATA].p_flags = PF_R, "constants");
    WRONG(f.p[INTERP].p_filesz = 0, "interpreter");
    WRONG(f.p[INTERP].p_filesz = LIMIT_PATH_BYTES + 1, "interpreter");
    WRONG(f.p[INTERP].p_offset = UINT64_MAX, "interpreter");
#undef WRONG
}

/* The path of a program with this interpreter, as guest_find is given it. */
static const char *program_of(const char *interpreter, char path[64])
{
    struct program f = sound(interpreter);
    snprintf(path, 64, "/proc/self/fd/%d", file_of(&f, sizeof f));
    return path;
}

void guest_finds_the_loader(void)
{
    char folder[] = P_tmpdir "/zigcuda-loader-XXXXXX", loader[64], found[LIMIT_PATH_BYTES];
    char glibc[64], musl[64], gone[64], text[64];
    CHECK(mkdtemp(folder));
    snprintf(loader, sizeof loader, "%s/ld-linux-test.so.1", folder);
    close(open(loader, O_CREAT | O_WRONLY, 0600));
    int script = file_of("#!/bin/sh\n", 10);
    snprintf(text, sizeof text, "/proc/self/fd/%d", script);
    const char *const all[] = {"/nowhere/sh", text, program_of("/nowhere/ld-musl-test.so.1", musl),
                               program_of("/nowhere/ld-linux-test.so.1", gone),
                               program_of(loader, glibc)};
    struct err_text e = {0};
    CHECK(guest_find(all, 5, "/nowhere/ld", found, &e) == ERR_OK && strcmp(found, loader) == 0);
    CHECK(guest_find(all, 4, loader, found, &e) == ERR_OK && strcmp(found, loader) == 0);
    CHECK(guest_find(all, 4, "/nowhere/ld", found, &e) == ERR_DEVICE);
    CHECK(strstr(e.text, "/nowhere/ld-musl-test.so.1") && strstr(e.text, "glibc"));
    e = (struct err_text){0};
    CHECK(guest_find(all, 2, "/nowhere/ld", found, &e) == ERR_DEVICE);
    CHECK(strstr(e.text, "/nowhere/ld is missing") && strstr(e.text, "libc6"));
    unlink(loader);
    rmdir(folder);
    close(script);
}
