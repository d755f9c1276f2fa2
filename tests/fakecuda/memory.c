/* The fake driver's memory. Each allocation is a mapping of its own, whose last byte is followed by
 * a page that must not be touched; freed ones stay reserved, so that late uses are seen. */
#include "tests/fakecuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SPANS_MAX = 16384,
    PAGE_BYTES = 4096,
    ALIGNMENT = 256, /* of device memory */
    UNIT_BYTES = 512 /* in which the device's memory is counted */
};
#define POISON_BYTES ((size_t)16 << 20)

enum span_kind { DEVICE_MEMORY, PINNED_MEMORY, REGISTERED_MEMORY };

static struct span {
    enum span_kind kind;
    bool freed;
    u64 device; /* address there */
    u64 host;   /* address here; 0: only the device has it */
    size_t bytes;
} spans[SPANS_MAX];
static u32 n_spans;
static u64 used_bytes;

static enum cuda_result add_span(struct span s)
{
    if (n_spans == SPANS_MAX)
        return fake_misuse(CUDA_ERROR_OUT_OF_MEMORY, "more than %u allocations", SPANS_MAX);
    spans[n_spans++] = s;
    return CUDA_SUCCESS;
}

/* The latest span that holds p, on the device's side or on the host's. */
static struct span *find(u64 p, bool device)
{
    for (u32 i = n_spans; i-- > 0;) {
        u64 start = device ? spans[i].device : spans[i].host;
        if (start && p >= start && p - start < spans[i].bytes)
            return &spans[i];
    }
    return NULL;
}

void fake_describe(u64 p, char out[128])
{
    static const char *const names[] = {"device memory", "pinned memory", "registered memory"};
    const struct span *s = find(p, true), *h = find(p, false);
    if (s || h) {
        const struct span *at = s ? s : h;
        snprintf(out, 128, "byte %llu of %zu of %s%s%s",
                 (unsigned long long)(p - (s ? s->device : h->host)), at->bytes,
                 at->freed ? "freed " : "", names[at->kind],
                 s || !h ? "" : ", by the host's address");
        return;
    }
    snprintf(out, 128, "no memory of the device");
    for (u32 i = 0; i < n_spans; i++)
        if (p >= spans[i].device && p - spans[i].device < spans[i].bytes + PAGE_BYTES)
            snprintf(out, 128, "%llu bytes behind the end of %zu bytes of %s",
                     (unsigned long long)(p - spans[i].device - spans[i].bytes), spans[i].bytes,
                     names[spans[i].kind]);
}

enum cuda_result fake_device_span(u64 p, size_t bytes)
{
    char words[128];
    const struct span *s = find(p, true);
    if (s && !s->freed && bytes <= s->bytes - (p - s->device))
        return CUDA_SUCCESS;
    fake_describe(p, words);
    return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %#llx: %s", bytes,
                       (unsigned long long)p, words);
}

enum cuda_result fake_host_span(const void *p, size_t bytes, bool *pinned)
{
    char words[128];
    u64 at = (u64)(uintptr_t)p;
    const struct span *s = find(at, false);
    *pinned = s && !s->freed;
    if (s && !s->freed ? bytes <= s->bytes - (at - s->host) : !s && !find(at, true))
        return CUDA_SUCCESS;
    fake_describe(at, words);
    return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at host address %p: %s", bytes, p,
                       words);
}

/* --- device memory --------------------------------------------------------------------------- */

static u64 free_bytes(void)
{
    u64 gone = MIN(used_bytes + fake.taken_bytes, fake.memory_bytes);
    return fake.memory_bytes - gone;
}

/* A file of ones, mapped privately again and again: pages become memory when they are written. */
static int poison_file(void)
{
    static int fd = -1;
    if (fd >= 0)
        return fd;
    fd = memfd_create("fakecuda-poison", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, POISON_BYTES) != 0)
        abort();
    u8 *p = mmap(NULL, POISON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        abort();
    memset(p, 0xff, POISON_BYTES);
    munmap(p, POISON_BYTES);
    return fd;
}

static u8 *reserve(size_t bytes)
{
    u8 *p = mmap(NULL, bytes + PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

enum cuda_result fake_memory_take(u64 *out, size_t bytes)
{
    size_t mapped = ROUND_UP(bytes, (size_t)PAGE_BYTES);
    size_t taken = ROUND_UP(bytes, (size_t)UNIT_BYTES);
    fake_note(" %zu bytes", bytes);
    if (bytes == 0)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc of 0 bytes");
    if (taken > free_bytes() || (fake.largest_bytes && bytes > fake.largest_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    u8 *p = reserve(mapped);
    for (size_t at = 0; p && at < mapped; at += POISON_BYTES)
        if (mmap(p + at, MIN(POISON_BYTES, mapped - at), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file(), 0) == MAP_FAILED)
            p = NULL;
    if (!p)
        return fake_misuse(CUDA_ERROR_OUT_OF_MEMORY, "the host cannot map %zu bytes", bytes);
    used_bytes += taken;
    *out = (u64)(uintptr_t)(p + mapped - ROUND_UP(bytes, (size_t)ALIGNMENT));
    fake_note(" at %#llx", (unsigned long long)*out);
    return add_span((struct span){DEVICE_MEMORY, false, *out, 0, bytes});
}

static enum cuda_result release(u64 p, bool device, enum span_kind kind, const char *what)
{
    struct span *s = find(p, device);
    if (!s || s->kind != kind || s->freed || p != (device ? s->device : s->host))
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "%s of %#llx, which is none", what,
                           (unsigned long long)p);
    fake_wait_all();
    s->freed = true;
    if (kind == REGISTERED_MEMORY)
        return fake_sticky;
    u64 first = s->device / PAGE_BYTES * PAGE_BYTES;
    u64 end = ROUND_UP(s->device + s->bytes, (u64)PAGE_BYTES);
    mmap((void *)(uintptr_t)first, end - first, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (kind == PINNED_MEMORY)
        munmap((void *)(uintptr_t)s->host, ROUND_UP(s->bytes, (size_t)PAGE_BYTES));
    if (kind == DEVICE_MEMORY || fake.integrated)
        used_bytes -= ROUND_UP(s->bytes, (size_t)UNIT_BYTES);
    return fake_sticky;
}

enum cuda_result fake_memory_free(u64 p)
{
    return p ? release(p, true, DEVICE_MEMORY, "cuMemFree") : CUDA_SUCCESS;
}

enum cuda_result fake_memory_info(size_t *free, size_t *total)
{
    *free = free_bytes();
    *total = fake.memory_bytes;
    return CUDA_SUCCESS;
}

/* --- pinned and registered memory ------------------------------------------------------------ */

enum cuda_result fake_pinned_take(void **out, size_t bytes, u32 flags)
{
    size_t mapped = ROUND_UP(bytes, (size_t)PAGE_BYTES);
    fake_note(" %zu bytes", bytes);
    if (bytes == 0 || flags & ~(u32)7)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc of %zu bytes, flags %#x",
                           bytes, flags);
    if (fake.integrated && mapped > free_bytes())
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memfd_create("fakecuda-pinned", MFD_CLOEXEC);
    u8 *device = reserve(mapped);
    if (fd < 0 || !device || ftruncate(fd, (off_t)mapped) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *host = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (host == MAP_FAILED ||
        mmap(device, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    close(fd);
    if (fake.integrated)
        used_bytes += ROUND_UP(bytes, (size_t)UNIT_BYTES);
    *out = host;
    return add_span(
        (struct span){PINNED_MEMORY, false, (u64)(uintptr_t)device, (u64)(uintptr_t)host, bytes});
}

enum cuda_result fake_pinned_free(void *p)
{
    return release((u64)(uintptr_t)p, false, PINNED_MEMORY, "cuMemFreeHost");
}

enum cuda_result fake_pinned_device(u64 *out, void *p, u32 flags)
{
    const struct span *s = find((u64)(uintptr_t)p, false);
    if (!s || s->freed || flags)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostGetDevicePointer of %p, flags %#x",
                           p, flags);
    *out = s->device + ((u64)(uintptr_t)p - s->host);
    return CUDA_SUCCESS;
}

enum cuda_result fake_host_register(void *p, size_t bytes, u32 flags)
{
    u64 at = (u64)(uintptr_t)p;
    fake_note(" %zu bytes", bytes);
    if (bytes == 0 || flags & ~(u32)0xf)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostRegister of %zu bytes, flags %#x",
                           bytes, flags);
    for (u32 i = 0; i < n_spans; i++)
        if (!spans[i].freed && spans[i].host && at < spans[i].host + spans[i].bytes &&
            spans[i].host < at + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return add_span((struct span){REGISTERED_MEMORY, false, at, at, bytes});
}

enum cuda_result fake_host_unregister(void *p)
{
    return release((u64)(uintptr_t)p, false, REGISTERED_MEMORY, "cuMemHostUnregister");
}

/* --- copies and fills ------------------------------------------------------------------------ */

/* From memory that is not pinned the bytes are taken at once, as the driver does; to such memory
 * they have come when the call returns. */
enum cuda_result fake_copy_in(u64 to, const void *from, size_t bytes, struct cuda_stream *stream)
{
    bool pinned;
    enum cuda_result r = fake_device_span(to, bytes);
    fake_note(" %zu bytes", bytes);
    if (r == CUDA_SUCCESS)
        r = fake_host_span(from, bytes, &pinned);
    if (r != CUDA_SUCCESS || bytes == 0)
        return r;
    struct fake_work w = {.kind = WORK_COPY, .copy = {(void *)(uintptr_t)to, from, bytes}};
    if (!pinned && !fake_capturing(stream)) {
        w.owned = malloc(bytes);
        if (!w.owned)
            abort();
        w.copy.from = memcpy(w.owned, from, bytes);
    }
    return fake_submit(stream, &w);
}

enum cuda_result fake_copy_out(void *to, u64 from, size_t bytes, struct cuda_stream *stream)
{
    bool pinned;
    enum cuda_result r = fake_device_span(from, bytes);
    fake_note(" %zu bytes", bytes);
    if (r == CUDA_SUCCESS)
        r = fake_host_span(to, bytes, &pinned);
    if (r != CUDA_SUCCESS || bytes == 0)
        return r;
    struct fake_work w = {.kind = WORK_COPY, .copy = {to, (const void *)(uintptr_t)from, bytes}};
    r = fake_submit(stream, &w);
    return r || pinned || fake_capturing(stream) ? r : fake_wait_stream(stream);
}

enum cuda_result fake_copy(u64 to, u64 from, size_t bytes, struct cuda_stream *stream)
{
    enum cuda_result r = fake_device_span(to, bytes);
    fake_note(" %zu bytes", bytes);
    if (r == CUDA_SUCCESS)
        r = fake_device_span(from, bytes);
    struct fake_work w = {.kind = WORK_COPY,
                          .copy = {(void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes}};
    return r ? r : fake_submit(stream, &w);
}

static enum cuda_result fill(u64 to, u32 value, u32 unit_bytes, size_t n,
                             struct cuda_stream *stream)
{
    size_t bytes;
    if (!size_mul(n, unit_bytes, &bytes) || to % unit_bytes)
        return fake_misuse(CUDA_ERROR_INVALID_VALUE, "a fill of %zu units of %u bytes at %#llx", n,
                           unit_bytes, (unsigned long long)to);
    enum cuda_result r = fake_device_span(to, bytes);
    fake_note(" %zu bytes", bytes);
    struct fake_work w = {.kind = WORK_FILL, .fill = {(void *)(uintptr_t)to, value, unit_bytes, n}};
    return r || n == 0 ? r : fake_submit(stream, &w);
}

enum cuda_result fake_fill_u8(u64 to, u8 value, size_t n, struct cuda_stream *stream)
{
    return fill(to, value, 1, n, stream);
}

enum cuda_result fake_fill_u32(u64 to, u32 value, size_t n, struct cuda_stream *stream)
{
    return fill(to, value, 4, n, stream);
}
