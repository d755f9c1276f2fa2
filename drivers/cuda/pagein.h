/* Weight files come from the disk into the page cache while the driver starts, which takes a few
 * tenths of a second: one thread asks for them, stretch by stretch, and takes no lock that the
 * driver's own start would wait for. What does not fit into half of the memory is left to the
 * upload, which asks for each weight just before it needs it.
 */
#ifndef ZIGCUDA_CUDA_PAGEIN_H
#define ZIGCUDA_CUDA_PAGEIN_H

#include "core/base/arena.h"
#include "core/model/model.h"
#include "drivers/cpu/pool.h"

struct page_in {
    const struct model *model;
    size_t max_bytes;
    _Atomic bool stop;
    struct pool pool; /* one thread; n = 0: none */
};

/* After guest_open, which forks; `keep` gives the thread's stack. */
MUST enum err page_in_start(struct page_in *p, struct arena *keep, const struct model *model,
                            size_t available_bytes, struct err_text *e);

/* Does it have asked for everything by the time it is through? */
static inline bool page_in_covers(const struct page_in *p)
{
    return p->pool.n && p->model->file_bytes <= p->max_bytes;
}

/* Ends the thread, soon. Nothing when there is none. */
void page_in_stop(struct page_in *p);

#endif
