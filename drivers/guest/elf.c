#include "drivers/guest/elf.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#endif

static u64 page_down(u64 at)
{
    return at & ~((u64)sysconf(_SC_PAGESIZE) - 1);
}

static u64 page_up(u64 at)
{
    return page_down(at + (u64)sysconf(_SC_PAGESIZE) - 1);
}

static bool read_at(int fd, void *out, size_t n, u64 at)
{
    return pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

static enum err damaged(const char *name, const char *what, struct err_text *e)
{
    return err_set(e, ERR_DEVICE, "%s is damaged or no program of Linux: %s", name, what);
}

/* NULL, or what is wrong with the segment that follows the ones of *f. */
static const char *check_load(const struct elf *f, const Elf64_Phdr *p, u64 file_bytes)
{
    if (p->p_filesz > file_bytes || p->p_offset > file_bytes - p->p_filesz)
        return "a segment ends behind the file";
    if (p->p_vaddr > LIMIT_ELF_SPAN_BYTES || p->p_memsz > LIMIT_ELF_SPAN_BYTES - p->p_vaddr)
        return "a segment is too large";
    if (p->p_memsz < p->p_filesz || p->p_memsz == 0)
        return "a segment is larger in the file than in memory";
    if (p->p_vaddr - page_down(p->p_vaddr) != p->p_offset - page_down(p->p_offset))
        return "a segment does not fit this kernel's pages";
    if ((p->p_flags & PF_W) && (p->p_flags & PF_X))
        return "a segment is writable and executable";
    if (p->p_memsz > p->p_filesz && !(p->p_flags & PF_W))
        return "a segment of constants is larger than the file's";
    if (f->n_loads > 0 && page_down(p->p_vaddr) < f->high)
        return "segments overlap or are out of order";
    return NULL;
}

static void add_load(struct elf *f, const Elf64_Phdr *p, const Elf64_Ehdr *h)
{
    if (f->n_loads == 0)
        f->low = page_down(p->p_vaddr);
    f->high = page_up(p->p_vaddr + p->p_memsz);
    f->loads[f->n_loads++] = *p;
    u64 table_bytes = (u64)h->e_phnum * sizeof *p;
    if (p->p_offset <= h->e_phoff && h->e_phoff - p->p_offset <= p->p_filesz &&
        table_bytes <= p->p_filesz - (h->e_phoff - p->p_offset))
        f->headers = p->p_vaddr + (h->e_phoff - p->p_offset);
}

static bool in_code(const struct elf *f, u64 at)
{
    for (u32 i = 0; i < f->n_loads; i++)
        if ((f->loads[i].p_flags & PF_X) && at >= f->loads[i].p_vaddr &&
            at - f->loads[i].p_vaddr < f->loads[i].p_filesz)
            return true;
    return false;
}

static enum err read_table(int fd, const char *name, const Elf64_Ehdr *h, u64 file_bytes,
                           struct elf *f, struct err_text *e)
{
    Elf64_Phdr table[LIMIT_ELF_HEADERS];
    if (h->e_phentsize != sizeof *table || h->e_phnum == 0 || h->e_phnum > COUNTOF(table) ||
        h->e_phoff > file_bytes || !read_at(fd, table, h->e_phnum * sizeof *table, h->e_phoff))
        return damaged(name, "its table of segments cannot be read", e);
    f->n_headers = h->e_phnum;
    for (u32 i = 0; i < h->e_phnum; i++) {
        const Elf64_Phdr *p = &table[i];
        if (p->p_type == PT_LOAD) {
            const char *wrong = check_load(f, p, file_bytes);
            if (wrong)
                return damaged(name, wrong, e);
            add_load(f, p, h);
        } else if (p->p_type == PT_INTERP) {
            if (p->p_filesz == 0 || p->p_filesz > sizeof f->interpreter ||
                p->p_offset > file_bytes || !read_at(fd, f->interpreter, p->p_filesz, p->p_offset))
                return damaged(name, "its interpreter cannot be read", e);
            f->interpreter[p->p_filesz - 1] = 0;
        }
    }
    if (f->n_loads == 0 || f->headers == 0 || !in_code(f, f->entry))
        return damaged(name, "its entry or its headers are not loaded", e);
    return ERR_OK;
}

enum err elf_read(int fd, const char *name, struct elf *out, struct err_text *e)
{
    struct stat st;
    Elf64_Ehdr h;
    if (fstat(fd, &st) != 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot look at %s", name);
    if (!read_at(fd, &h, sizeof h, 0) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0)
        return damaged(name, "no ELF header", e);
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
        h.e_machine != MACHINE)
        return err_set(e, ERR_DEVICE,
                       "%s is made for another CPU (ELF machine %u, this one is %u): install the "
                       "libraries of this CPU",
                       name, h.e_machine, MACHINE);
    if (h.e_type != ET_DYN)
        return err_set(e, ERR_DEVICE, "%s is not position independent", name);
    *out = (struct elf){.entry = h.e_entry};
    return read_table(fd, name, &h, (u64)st.st_size, out, e);
}

static int protection(const Elf64_Phdr *p)
{
    return (p->p_flags & PF_R ? PROT_READ : 0) | (p->p_flags & PF_W ? PROT_WRITE : 0) |
           (p->p_flags & PF_X ? PROT_EXEC : 0);
}

/* File bytes come as a private mapping; what is behind them (bss) is zeroed to the end of their
 * last page and anonymous from there on. */
static bool map_load(int fd, const Elf64_Phdr *p, uintptr_t base)
{
    u64 start = page_down(p->p_vaddr), file_end = p->p_vaddr + p->p_filesz;
    u64 mapped_end = p->p_filesz ? page_up(file_end) : start;
    u64 end = page_up(p->p_vaddr + p->p_memsz);
    if (p->p_filesz &&
        mmap((void *)(base + start), mapped_end - start, protection(p), MAP_PRIVATE | MAP_FIXED, fd,
             (off_t)page_down(p->p_offset)) == MAP_FAILED)
        return false;
    if (p->p_filesz && p->p_memsz > p->p_filesz)
        memset((void *)(base + file_end), 0, mapped_end - file_end);
    return end == mapped_end || mmap((void *)(base + mapped_end), end - mapped_end, protection(p),
                                     MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

enum err elf_map(int fd, const char *name, const struct elf *f, uintptr_t *base, struct err_text *e)
{
    u64 bytes = f->high - f->low;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return err_set_errno(e, ERR_MEMORY, "no address space for %s (%zu bytes)", name,
                             (size_t)bytes);
    *base = (uintptr_t)room - f->low;
    for (u32 i = 0; i < f->n_loads; i++)
        if (!map_load(fd, &f->loads[i], *base)) {
            enum err r = err_set_errno(
                e, ERR_SYSTEM, "cannot map the code of %s (a security policy may forbid it)", name);
            munmap(room, bytes);
            return r;
        }
    return ERR_OK;
}
