#include "drivers/cuda/upload.h"

#include "core/base/half.h"
#include "drivers/cuda/matrix.h"
#include "drivers/cuda/place.h"
#include "kernels/cpu/linear.h"

#include <sys/mman.h>

enum { SPANS = 4 }; /* of a piece: values, zeros, scales, bias */

/* Stretches of a file side by side in the staging area, and the part of them that one pinned
 * buffer takes. */
struct piece {
    struct span {
        const u8 *from;
        size_t bytes, at;
    } span[SPANS];
    u32 n;
    size_t bytes;
};

/* --- cutting a weight ---------------------------------------------------------------------- */

/* Rows of the file from an output to the next one. */
static u32 row_step(const struct weight *w)
{
    return w->kind == WEIGHT_MXFP4 ? w->row_step : 1;
}

/* Bytes from an output's values to the next one's where outputs lie one behind the other; 0: they
 * do not. */
static size_t output_bytes(const struct weight *w)
{
    switch (w->kind) {
    case WEIGHT_PLAIN:
        return w->k * dtype_bytes(w->type);
    case WEIGHT_PACKED:
        return CEIL_DIV((size_t)w->k * w->bits, 32) * 4;
    case WEIGHT_INT8:
        return w->k;
    case WEIGHT_MXFP4:
        return (size_t)w->k / 2 * w->row_step;
    default:
        return 0;
    }
}

/* Of n outputs, how many are uploaded at once: a multiple of 16, or all. */
static u32 piece_outputs(const struct weight *w, u32 n)
{
    size_t each = output_bytes(w);
    if (!each || each * n <= UPLOAD_PIECE_BYTES)
        return n;
    return (u32)MAX(UPLOAD_PIECE_BYTES / each / 16 * 16, (size_t)16);
}

static size_t zeros_bytes(const struct weight *w)
{
    size_t per = w->bits ? 32 / w->bits : 1;
    switch (w->kind) {
    case WEIGHT_GPTQ:
    case WEIGHT_AWQ:
        return w->groups * CEIL_DIV(w->n, per) * 4;
    case WEIGHT_PACKED:
        return CEIL_DIV(w->n, per) * w->groups * 4;
    default:
        return w->n;
    }
}

/* Outputs [first, first + n) as a weight of its own; n < from->n only where output_bytes says so,
 * and first is a multiple of 16. */
static struct weight outputs_of(const struct weight *from, u32 first, u32 n)
{
    struct weight w = *from;
    u32 groups = w.kind == WEIGHT_INT8 ? 1 : w.groups;
    size_t row = (size_t)first * row_step(from);
    w.n = n;
    if (first == 0)
        return w;
    w.data = (const u8 *)w.data + first * output_bytes(from);
    if (w.zeros)
        w.zeros = (const u8 *)w.zeros +
                  (w.kind == WEIGHT_PACKED ? (size_t)first / (32 / w.bits) * groups * 4 : first);
    if (w.scales)
        w.scales = (const u8 *)w.scales + row * groups * dtype_bytes(w.scale_type);
    if (w.bias)
        w.bias = (const u8 *)w.bias + row * dtype_bytes(w.bias_type);
    return w;
}

/* The matrix from its row `first` on, a multiple of 16. */
static struct matrix rows_of(const struct matrix *from, u32 first, u32 n)
{
    struct matrix m = *from;
    size_t scales = (size_t)first * m.groups;
    m.n = n;
    m.data += ((size_t)first * m.k * 4 << MATRIX_SHIFT(m.kind)) / 8;
    m.scales = (const u8 *)m.scales + scales * dtype_bytes((enum dtype)m.scale_type);
    if (m.zeros)
        m.zeros += scales;
    if (m.bias)
        m.bias += first;
    return m;
}

/* Adds a stretch to the piece; returns where on the card it will be. */
static const void *add_span(struct piece *p, u64 staging, const void *from, size_t bytes)
{
    if (!from)
        return NULL;
    size_t at = ROUND_UP(p->bytes, (size_t)VRAM_ALIGN);
    p->span[p->n++] = (struct span){from, bytes, at};
    p->bytes = at + bytes;
    return (const void *)(uintptr_t)(staging + at);
}

/* What has to be copied for w; its pointers then are those of the copy. Rows that lie between its
 * own come along. */
static struct piece piece_of(struct weight *w, u64 staging)
{
    struct piece p = {0};
    bool plain = w->kind == WEIGHT_PLAIN;
    size_t step = row_step(w), rows = (w->n - 1) * step + 1, each = output_bytes(w) / step;
    size_t values = each ? each * rows : weight_data_bytes(w);
    size_t scales = plain ? 0 : rows * w->groups * dtype_bytes(w->scale_type);
    w->data = add_span(&p, staging, w->data, values);
    w->zeros = plain ? NULL : add_span(&p, staging, w->zeros, zeros_bytes(w));
    w->scales = plain ? NULL : add_span(&p, staging, w->scales, scales);
    w->bias = add_span(&p, staging, w->bias, rows * dtype_bytes(w->bias_type));
    w->group_index = NULL;
    w->name = NULL;
    return p;
}

/* The same outputs where each row of the file has those of all. */
static void take_columns(struct weight *w, u32 first, u32 n)
{
    size_t words = first / (w->kind == WEIGHT_AWQ ? 8 : 1), zeros = first * w->bits / 32;
    w->data = (const u8 *)w->data + words * 4;
    w->scales = (const u8 *)w->scales + first * dtype_bytes(w->scale_type);
    if (w->zeros)
        w->zeros = (const u8 *)w->zeros + zeros * 4;
    if (w->bias)
        w->bias = (const u8 *)w->bias + first * dtype_bytes(w->bias_type);
    w->n = n;
}

static size_t weight_staging_bytes(const struct weight *from)
{
    struct weight w = outputs_of(from, 0, piece_outputs(from, from->n));
    return piece_of(&w, 0).bytes;
}

static size_t expert_staging_bytes(const struct model *m, const struct expert *x)
{
    size_t most = weight_staging_bytes(&x->down);
    for (u32 i = 0; i < model_expert_parts(m); i++)
        most = MAX(most, weight_staging_bytes(&x->gate_up[i]));
    return most;
}

/* Of per-layer inputs. A piece of a table in host memory is packed beside its copy. */
static size_t own_staging_bytes(const struct model *m, bool in_host)
{
    const struct weight *table = &m->own.embed;
    struct weight piece = outputs_of(table, 0, piece_outputs(table, table->n));
    size_t most = ROUND_UP(weight_staging_bytes(table), (size_t)VRAM_ALIGN) +
                  (in_host ? matrix_packed_bytes(&piece) : 0);
    most = MAX(most, weight_staging_bytes(&m->own.project));
    for (u32 i = 0; i < m->layers_n; i++) {
        most = MAX(most, weight_staging_bytes(&m->layers[i].own_gate));
        most = MAX(most, weight_staging_bytes(&m->layers[i].own_out));
    }
    return most;
}

size_t upload_staging_bytes(const struct model *m, bool own_in_host)
{
    size_t most = MAX(weight_staging_bytes(&m->embed), weight_staging_bytes(&m->head));
    if (m->own.n)
        most = MAX(most, own_staging_bytes(m, own_in_host));
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct layer *l = &m->layers[i];
        u32 n;
        const struct weight *in = layer_inputs(m, l, &n);
        for (u32 j = 0; j < n; j++)
            most = MAX(most, weight_staging_bytes(&in[j]));
        most = MAX(most, weight_staging_bytes(&l->o));
        for (u32 j = 0; j < m->experts && l->mixture; j++)
            most = MAX(most, expert_staging_bytes(m, &l->mixture->experts[j]));
        const bool mlp = place_mlp_n(m, l) > 0;
        for (u32 j = 0; j < m->n_gate_up && mlp; j++)
            most = MAX(most, weight_staging_bytes(&l->gate_up[j]));
        if (mlp)
            most = MAX(most, weight_staging_bytes(&l->down));
    }
    return most;
}

size_t upload_pinned_bytes(void)
{
    return UPLOAD_BUFFERS * UPLOAD_BUFFER_BYTES;
}

static u32 workers(void)
{
    return MIN(pool_cpus(NULL), (u32)UPLOAD_THREADS);
}

size_t upload_host_bytes(void)
{
    return (workers() + 1) * POOL_STACK_BYTES; /* and their alignment */
}

/* --- the ring ------------------------------------------------------------------------------ */

enum err upload_open(struct upload *u, struct arena *host, struct err_text *e)
{
    u32 threads = workers();
    void *p, *stacks = arena_alloc(host, threads * POOL_STACK_BYTES, 4096);
    if (!stacks)
        return arena_full(host, "threads of the upload", e);
    CUDA_TRY(cuda_pinned_take(&p, upload_pinned_bytes(), CU_MEMHOSTALLOC_PORTABLE), e,
             "take %zu MiB of pinned memory for the upload", upload_pinned_bytes() / MIB);
    u->pinned = p;
    for (u32 i = 0; i < UPLOAD_BUFFERS; i++) {
        CUDA_TRY(cuda_event_open(&u->free[i], CU_EVENT_DISABLE_TIMING), e, "make an event");
        CUDA_TRY(cuda_event_record(u->free[i], u->stream), e, "record an event");
    }
    return pool_open(&u->pool, &(struct pool_options){.threads = threads}, stacks, e);
}

void upload_close(struct upload *u)
{
    if (u->pool.n)
        pool_close(&u->pool);
    for (u32 i = 0; i < UPLOAD_BUFFERS; i++)
        if (u->free[i])
            (void)!cuda_event_close(u->free[i]);
    if (u->pinned)
        (void)!cuda_pinned_free(u->pinned);
    *u = (struct upload){0};
}

/* The next pinned buffer, once the card has done with it. */
static enum err buffer(struct upload *u, u8 **out, struct err_text *e)
{
    u32 i = u->next % UPLOAD_BUFFERS;
    CUDA_TRY(cuda_event_wait(u->free[i]), e, "upload the weights");
    *out = u->pinned + i * UPLOAD_BUFFER_BYTES;
    return ERR_OK;
}

/* Sends the buffer that buffer() gave. */
static enum err send(struct upload *u, u64 to, size_t bytes, struct err_text *e)
{
    u32 i = u->next++ % UPLOAD_BUFFERS;
    CUDA_TRY(cuda_copy_in(to, u->pinned + i * UPLOAD_BUFFER_BYTES, bytes, u->stream), e,
             "upload the weights");
    CUDA_TRY(cuda_event_record(u->free[i], u->stream), e, "upload the weights");
    return ERR_OK;
}

struct copy {
    const struct piece *piece;
    size_t from, bytes; /* the part of the piece that `to` takes */
    u8 *to;
    u32 workers;
};

static void copy_job(void *arg, u32 worker)
{
    const struct copy *c = arg;
    size_t share = ROUND_UP(CEIL_DIV(c->bytes, c->workers), (size_t)4096);
    size_t first = c->from + MIN(worker * share, c->bytes);
    size_t last = c->from + MIN((worker + 1) * share, c->bytes);
    for (u32 i = 0; i < c->piece->n; i++) {
        const struct span *s = &c->piece->span[i];
        size_t a = MAX(first, s->at), b = MIN(last, s->at + s->bytes);
        if (a < b)
            memcpy(c->to + (a - c->from), s->from + (a - s->at), b - a);
    }
}

static enum err send_piece(struct upload *u, const struct piece *p, struct err_text *e)
{
    enum { ALONE_BYTES = 128 << 10 }; /* not worth waking others */
    for (size_t from = 0; from < p->bytes; from += UPLOAD_BUFFER_BYTES) {
        struct copy copy = {.piece = p, .from = from, .workers = u->pool.n};
        copy.bytes = MIN(p->bytes - from, UPLOAD_BUFFER_BYTES);
        TRY(buffer(u, &copy.to, e));
        if (copy.bytes <= ALONE_BYTES) {
            copy.workers = 1;
            copy_job(&copy, 0);
        } else {
            pool_start(&u->pool, copy_job, &copy);
            while (!pool_done(&u->pool, -1))
                ;
        }
        TRY(send(u, u->list->staging + from, copy.bytes, e));
    }
    return ERR_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum err upload_order(struct upload *u, const struct list_weight *w, struct err_text *e)
{
    size_t bytes = w->to.k * sizeof *w->order;
    u8 *p;
    ASSERT(bytes + w->from->groups * sizeof(u32) <= UPLOAD_BUFFER_BYTES);
    TRY(buffer(u, &p, e));
    matrix_order(w, (u32 *)(void *)p, (u32 *)(void *)(p + bytes));
    return send(u, (uintptr_t)w->order, bytes, e);
}

/* Outputs [first, first + n) of those that w takes; what is to lie in host memory is packed into
 * the staging area, and fetched from there in one copy. */
static enum err pack(struct upload *u, const struct list_weight *w, u32 first, u32 n,
                     struct err_text *e)
{
    bool apart = output_bytes(w->from) != 0;
    u32 to_first = w->below + first / w->run * w->step, to_n = CEIL_DIV(n, w->run) * w->step;
    struct gpu_pack p = {.from = apart ? outputs_of(w->from, w->first + first, n) : *w->from,
                         .to = rows_of(&w->to, to_first, MIN(to_n, w->to.n - to_first)),
                         .order = w->order,
                         .run = w->run,
                         .step = w->step,
                         .at = w->at,
                         .stride = w->from->n,
                         .group = w->group};
    struct piece piece = piece_of(&p.from, u->list->staging);
    const size_t at = (size_t)(p.to.data - w->to.data);
    const u64 packed = u->list->staging + ROUND_UP(piece.bytes, (size_t)VRAM_ALIGN);
    if (!apart)
        take_columns(&p.from, w->first, n);
    if (w->host)
        p.to.data = (const u8 *)(uintptr_t)packed;
    TRY(send_piece(u, &piece, e));
    CUDA_TRY(cuda_launch(u->pack, u->pack_blocks, 1, 1, GPU_THREADS, 1, 1, PACK_SHARED_BYTES,
                         u->stream, (void *[]){&p}, NULL),
             e, "pack %s", w->from->name);
    if (w->host)
        CUDA_TRY(cuda_copy_out(w->host + at, packed, matrix_packed_bytes(&p.from), u->stream), e,
                 "copy %s to host memory", w->from->name);
    return ERR_OK;
}

static void let_go(const struct upload *u, const struct weight *w)
{
    const struct model *m = u->list->model;
    if (u->integrated)
        model_advise(m, w->data, weight_span_bytes(w), MADV_PAGEOUT);
    model_advise(m, w->data, weight_span_bytes(w), MADV_DONTNEED);
}

/* Do rows of the other lie between its own? */
static bool holds(const struct weight *w, const struct weight *other)
{
    const u8 *from = w->data, *at = other->data;
    return at > from && at < from + weight_span_bytes(w);
}

static void tell(const struct upload *u)
{
    if (u->progress)
        u->progress(u->arg, u->done_bytes, u->total_bytes);
}

static enum err upload_weight(struct upload *u, u32 i, struct err_text *e)
{
    const struct list_weight *w = &u->list->weights[i];
    if (u->read_ahead && i + 1 < u->list->n_weights) {
        const struct weight *next = w[1].from;
        model_advise(u->list->model, next->data, weight_span_bytes(next), MADV_WILLNEED);
    }
    if (w->makes_order)
        TRY(upload_order(u, w, e));
    for (u32 first = 0, n; first < w->n; first += n) {
        n = MIN(piece_outputs(w->from, w->n), w->n - first);
        TRY(pack(u, w, first, n, e));
    }
    const bool read_on = i + 1 < u->list->n_weights && holds(w->from, w[1].from);
    if (w->first + w->n == w->from->n && !read_on) /* its last part */
        let_go(u, w->from);
    u->done_bytes += weight_data_bytes(w->from) / w->from->n * w->n;
    tell(u);
    return ERR_OK;
}

static float conv_value(const struct delta_shape *d, const struct weight *w, u32 i)
{
    return half_load(w->data, w->type, delta_conv_row(d, i % w->n) * w->k + i / w->n);
}

static float tensor_value(const struct list *l, const struct list_vector *v, u32 i)
{
    const float one = l->model->norm_plus_one && !v->as_is ? 1 : 0;
    const u32 at = v->of_conv ? delta_conv_row(&l->model->delta, i) : i;
    return (half_load(v->tensor->data, v->tensor->type, at) + one) * v->scale;
}

/* Values [first, first + n) of a vector; of a router whole rows. */
static void vector_values(const struct list *l, const struct list_vector *v, u32 first, u32 n,
                          float *to)
{
    const u32 k = v->router ? v->router->k : 1;
    for (u32 i = 0; i < n; i += k)
        if (v->router)
            linear_row(&(struct packed){.w = v->router}, (first + i) / k, to + i);
        else if (v->biased)
            to[i] = half_load(v->biased->bias, v->biased->bias_type, first + i);
        else if (v->conv)
            to[i] = conv_value(&l->model->delta, v->conv, first + i);
        else
            to[i] = v->tensor ? tensor_value(l, v, first + i) : v->values[first + i];
}

static enum err upload_vectors(struct upload *u, struct err_text *e)
{
    for (u32 i = 0; i < u->list->n_vectors; i++) {
        const struct list_vector *v = &u->list->vectors[i];
        const u32 unit = v->router ? v->router->k : 1;
        const u32 most = UPLOAD_BUFFER_BYTES / sizeof(float) / unit * unit;
        for (u32 at = 0, n; at < v->n; at += n) {
            u8 *p;
            n = MIN(v->n - at, most);
            TRY(buffer(u, &p, e));
            vector_values(u->list, v, at, n, (float *)(void *)p);
            TRY(send(u, (uintptr_t)(v->to + at), n * sizeof(float), e));
        }
    }
    return ERR_OK;
}

static enum err upload_ops(struct upload *u, struct err_text *e)
{
    size_t bytes = u->list->n_ops * sizeof *u->list->ops;
    for (size_t at = 0; at < bytes; at += UPLOAD_BUFFER_BYTES) {
        size_t n = MIN(bytes - at, UPLOAD_BUFFER_BYTES);
        u8 *p;
        TRY(buffer(u, &p, e));
        memcpy(p, (const u8 *)u->list->ops + at, n);
        TRY(send(u, (uintptr_t)u->list->card_ops + at, n, e));
    }
    return ERR_OK;
}

enum err upload_run(struct upload *u, struct err_text *e)
{
    const struct list *l = u->list;
    u->total_bytes = 0;
    for (u32 i = 0; i < l->n_weights; i++)
        u->total_bytes +=
            weight_data_bytes(l->weights[i].from) / l->weights[i].from->n * l->weights[i].n;
    tell(u);
    CUDA_TRY(cuda_fill_u32(l->zeros, 0, l->n_zeros, u->stream), e, "clear memory of the GPU");
    if (l->n_unset)
        CUDA_TRY(cuda_fill_u32(l->unset, NOT_YET, l->n_unset, u->stream), e,
                 "clear memory of the GPU");
    TRY(upload_ops(u, e));
    TRY(upload_vectors(u, e));
    for (u32 i = 0; i < l->n_weights; i++)
        TRY(upload_weight(u, i, e));
    CUDA_TRY(cuda_stream_wait(u->stream), e, "upload the weights");
    return ERR_OK;
}
