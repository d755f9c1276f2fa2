#include "core/base/arena.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

static bool sealed;

/* Writes what is there, as another thread may have written it. */
static void take_pages(u8 *base, size_t bytes)
{
    enum { POPULATE_WRITE = 23 }; /* MADV_POPULATE_WRITE, since Linux 5.14 */
    if (madvise(base, bytes, POPULATE_WRITE) == 0)
        return;
    for (size_t at = 0; at < bytes; at += 4096) {
        u8 was = __atomic_load_n(base + at, __ATOMIC_RELAXED);
        (void)__atomic_compare_exchange_n(base + at, &was, was, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED);
    }
}

enum err memory_unmapped(struct err_text *e, size_t bytes, const char *what)
{
    struct rlimit r;
    if (errno != ENOMEM || getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return err_set_errno(e, ERR_MEMORY, "cannot map %zu bytes for %s", bytes, what);
    return err_set(e, ERR_MEMORY,
                   "cannot map %zu bytes for %s: this process may have %llu of address space "
                   "(RLIMIT_AS). Lift that (ulimit -v, LimitAS=); memory.host_max bounds what is "
                   "really taken",
                   bytes, what, (unsigned long long)r.rlim_cur);
}

/* In huge pages where the kernel has them: streaming weights through 4 KiB pages cost a third of
 * the bandwidth where it was measured (a virtual machine). */
void arena_populate(struct arena *a, void (*between)(void))
{
    madvise(a->base, a->cap_bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < a->cap_bytes; at += ARENA_PIECE_BYTES) {
        if (between)
            between();
        take_pages(a->base + at, MIN(a->cap_bytes - at, ARENA_PIECE_BYTES));
    }
}

enum err arena_open(struct arena *a, const char *name, size_t cap_bytes, bool take,
                    struct err_text *e)
{
    ASSERT(!sealed);
    char what[64];
    snprintf(what, sizeof what, "the %s arena", name);
    void *base = mmap(NULL, cap_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (take ? 0 : MAP_NORESERVE), -1, 0);
    if (base == MAP_FAILED)
        return memory_unmapped(e, cap_bytes, what);
    *a = arena_over(name, base, cap_bytes);
    if (take)
        arena_populate(a, NULL);
    return ERR_OK;
}

struct arena arena_over(const char *name, void *base, size_t cap_bytes)
{
    return (struct arena){.name = name, .base = base, .cap_bytes = cap_bytes};
}

void *arena_take(struct arena *a, size_t bytes, size_t align)
{
    ASSERT(!a->sealed);
    ASSERT(align != 0 && (align & (align - 1)) == 0);
    size_t at = (size_t)(-(uintptr_t)(a->base + a->used_bytes) & (align - 1));
    if (at > a->cap_bytes - a->used_bytes)
        return NULL;
    at += a->used_bytes;
    if (bytes > a->cap_bytes - at)
        return NULL;
    a->used_bytes = at + bytes;
    a->peak_bytes = MAX(a->peak_bytes, a->used_bytes);
    return a->base + at;
}

void *arena_alloc(struct arena *a, size_t bytes, size_t align)
{
    size_t peak = a->peak_bytes;
    u8 *p = arena_take(a, bytes, align);
    if (p && p < a->base + peak) /* used before an arena_reset */
        memset(p, 0, MIN(bytes, (size_t)(a->base + peak - p)));
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size, size_t align)
{
    size_t bytes;
    return size_mul(n, size, &bytes) ? arena_alloc(a, bytes, align) : NULL;
}

struct str arena_str(struct arena *a, struct str s)
{
    size_t bytes;
    char *p = size_add(s.n, 1, &bytes) ? arena_alloc(a, bytes, 1) : NULL;
    if (p && s.n)
        memcpy(p, s.p, s.n);
    return (struct str){p, p ? s.n : 0};
}

enum err arena_full(const struct arena *a, const char *what, struct err_text *e)
{
    return err_set(e, ERR_MEMORY,
                   "%s: the %s arena is full (%zu of %zu bytes used; its ceiling stands in "
                   "config/limits.h)",
                   what, a->name, a->used_bytes, a->cap_bytes);
}

void arena_reset(struct arena *a, size_t mark)
{
    ASSERT(mark <= a->used_bytes);
    a->used_bytes = mark;
}

void arena_close(struct arena *a)
{
    if (a->base)
        munmap(a->base, a->cap_bytes);
    *a = (struct arena){.name = a->name};
}

void plan_add(struct plan *p, enum place place, size_t bytes, const char *what, const char *option,
              const char *detail_fmt, ...)
{
    ASSERT(p->n < COUNTOF(p->rows));
    struct plan_row *row = &p->rows[p->n++];
    *row = (struct plan_row){.place = place, .what = what, .option = option, .bytes = bytes};
    va_list args;
    va_start(args, detail_fmt);
    vsnprintf(row->detail, sizeof row->detail, detail_fmt, args);
    va_end(args);
}

size_t plan_total(const struct plan *p, enum place place)
{
    size_t total = 0;
    for (u32 i = 0; i < p->n; i++)
        if (p->rows[i].place == place)
            total += ROUND_UP(p->rows[i].bytes, (size_t)64);
    return total;
}

void arena_seal(struct arena *a)
{
    a->sealed = true;
}

void memory_seal(void)
{
    sealed = true;
}
