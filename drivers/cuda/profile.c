#include "drivers/cuda/profile.h"

#include "drivers/cuda/matrix.h"
enum err profile_open(struct arena *keep, const struct list *l, struct profile **out,
                      struct err_text *e)
{
    struct profile *p = ARENA_NEW(keep, struct profile, 1);
    u32 n = l->n_ops + 1;
    if (!p)
        return arena_full(keep, "profile", e);
    p->list = l;
    p->events = ARENA_NEW(keep, struct cuda_event *, n);
    p->ops = ARENA_NEW(keep, u32, n);
    if (!p->events || !p->ops)
        return arena_full(keep, "profile", e);
    for (u32 i = 0; i < n; i++)
        CUDA_TRY(cuda_event_open(&p->events[i], CU_EVENT_DEFAULT), e, "make an event");
    *out = p;
    return ERR_OK;
}

void profile_clear(struct profile *p)
{
    p->n_rows = 0;
}

void profile_close(struct profile *p)
{
    for (u32 i = 0; i <= p->list->n_ops; i++)
        (void)!cuda_event_close(p->events[i]);
}

void profile_step(struct profile *p, const struct step *step)
{
    p->n = 0;
    p->positions = 0;
    for (u32 i = 0; i < step->n_rows; i++)
        p->positions += step->rows[i].pos + step->rows[i].n;
}

static enum err mark(struct profile *p, struct cuda_stream *stream, u32 op, struct err_text *e)
{
    if (p->n && p->ops[p->n - 1] == op)
        return ERR_OK; /* one that takes several launches */
    ASSERT(p->n <= p->list->n_ops);
    p->ops[p->n] = op;
    CUDA_TRY(cuda_event_record(p->events[p->n++], stream), e, "record an event");
    return ERR_OK;
}

enum err profile_begin(struct profile *p, struct cuda_stream *stream, u32 op, struct err_text *e)
{
    return mark(p, stream, op, e);
}

enum err profile_end(struct profile *p, struct cuda_stream *stream, struct err_text *e)
{
    return mark(p, stream, p->list->n_ops, e);
}

/* What an operation has to read, apart from activations. */
static u64 bytes_of(const struct profile *p, u32 i)
{
    const struct op *op = &p->list->ops[i];
    const struct op_attention *a = &op->attention;
    if (op->kind != OP_ATTENTION)
        return matrix_op_bytes(op);
    return p->positions * 2 * a->kv_heads * PAGE_HEAD_BYTES(a->head_dim, a->int8) /
           LIMIT_PAGE_TOKENS;
}

static struct profile_row *row_of(struct profile *p, const char *label)
{
    u32 i = 0;
    while (i < p->n_rows && strcmp(p->rows[i].label, label) != 0)
        i++;
    ASSERT(i < PROFILE_ROWS);
    if (i == p->n_rows)
        p->rows[p->n_rows++] = (struct profile_row){.label = label};
    return &p->rows[i];
}

enum err profile_read(struct profile *p, struct err_text *e)
{
    if (p->n == 0)
        return ERR_OK;
    CUDA_TRY(cuda_event_wait(p->events[p->n - 1]), e, "time a step");
    for (u32 i = 0; i + 1 < p->n; i++) {
        float ms;
        CUDA_TRY(cuda_event_elapsed(&ms, p->events[i], p->events[i + 1]), e, "time a step");
        struct profile_row *row = row_of(p, p->list->labels[p->ops[i]]);
        row->time.bytes = bytes_of(p, p->ops[i]);
        cuda_timer_add(&row->time, ms);
    }
    p->n = 0;
    return ERR_OK;
}
