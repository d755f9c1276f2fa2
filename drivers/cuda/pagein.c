#include "drivers/cuda/pagein.h"

#include <sys/mman.h>

enum { STRETCH_BYTES = 16 << 20 };

static void ask(void *arg, u32 worker)
{
    struct page_in *p = arg;
    size_t left = p->max_bytes;
    (void)worker;
    for (u32 i = 0; i < p->model->files_n; i++) {
        struct str file = p->model->files[i];
        for (size_t at = 0; at < file.n && left && !atomic_load(&p->stop); at += STRETCH_BYTES) {
            size_t n = MIN(MIN(file.n - at, (size_t)STRETCH_BYTES), left);
            madvise((void *)(uintptr_t)(file.p + at), n, MADV_WILLNEED);
            left -= n;
        }
    }
}

enum err page_in_start(struct page_in *p, struct arena *keep, const struct model *model,
                       size_t available_bytes, struct err_text *e)
{
    void *stack = arena_alloc(keep, POOL_STACK_BYTES, 4096);
    if (!stack)
        return arena_full(keep, "the thread that reads weights ahead", e);
    p->model = model;
    p->max_bytes = available_bytes / 2;
    TRY(pool_open(&p->pool, &(struct pool_options){.threads = 1}, stack, e));
    pool_start(&p->pool, ask, p);
    return ERR_OK;
}

void page_in_stop(struct page_in *p)
{
    if (!p->pool.n)
        return;
    atomic_store(&p->stop, true);
    while (!pool_done(&p->pool, -1))
        ;
    pool_close(&p->pool);
    p->pool.n = 0;
}
