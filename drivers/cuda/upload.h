/* Weights from the mapped files to the card. The bytes of a weight go as they are: worker threads
 * copy them from the page cache into a small ring of pinned buffers, the card fetches these into a
 * staging area, and the kernel `pack` writes the packed form. Reading, copying and packing of
 * successive pieces overlap. Forms that store output by output are cut into pieces of some MiB; the
 * others (GPTQ, AWQ) come whole, so the staging area has room for the largest of them. Pieces of a
 * table that lies in host memory (struct list_table) are packed in that area and copied back.
 * Behind the upload the files' pages are let go; on an integrated GPU out of the page cache too,
 * since that is the same memory.
 *
 * The workers and the pinned buffers live from upload_open to upload_close.
 */
#ifndef ZIGCUDA_CUDA_UPLOAD_H
#define ZIGCUDA_CUDA_UPLOAD_H

#include "drivers/cpu/pool.h"
#include "drivers/cuda/driver.h"
#include "drivers/cuda/list.h"

enum { UPLOAD_BUFFERS = 4, UPLOAD_THREADS = 8 };
#define UPLOAD_BUFFER_BYTES (8 * MIB)
#define UPLOAD_PIECE_BYTES (32 * MIB)

struct upload {
    /* set by the caller */
    const struct list *list;
    struct cuda_stream *stream;
    struct cuda_function *pack;
    u32 pack_blocks;
    bool integrated;
    bool read_ahead; /* nobody else asks the disk for the weights */
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;

    u8 *pinned;                              /* [UPLOAD_BUFFERS][UPLOAD_BUFFER_BYTES] */
    struct cuda_event *free[UPLOAD_BUFFERS]; /* passed when the card has fetched the buffer */
    u32 next;
    struct pool pool;
    size_t done_bytes, total_bytes;
};

/* Of the area on the card; own_in_host: the table of per-layer inputs will lie in host memory. */
size_t upload_staging_bytes(const struct model *m, bool own_in_host);
/* Of pinned memory, while it lasts. */
size_t upload_pinned_bytes(void);

MUST enum err upload_open(struct upload *u, struct arena *host, struct err_text *e);
size_t upload_host_bytes(void); /* of `host`: stacks of the workers */

/* Fills everything on the card that list_build carved and a step needs, and waits for it. */
MUST enum err upload_run(struct upload *u, struct err_text *e);

void upload_close(struct upload *u);

#endif
