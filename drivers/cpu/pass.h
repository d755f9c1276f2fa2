/* What the parts of a forward pass share: a worker's share of the work, barriers, input rows that
 * are normed and prepared, and matrices whose columns are dealt out. Everything runs in the
 * workers, which all call the same functions in the same order; see forward.h. Owns nothing.
 */
#ifndef ZIGCUDA_PASS_H
#define ZIGCUDA_PASS_H

#include "drivers/cpu/forward.h"

#include <stdatomic.h>

enum {
    FEW_ROWS = 4
}; /* up to so many rows each worker norms all of them: cheaper than a barrier */

/* One worker at work on one tile. */
struct pass {
    struct forward *f;
    struct forward_worker *mine;
    const struct forward_tile *tile;
    u32 id;
    u32 *deals; /* so far in this step */
};

struct range {
    u32 from, to;
};

/* This worker's share of n things, in units of `unit`. */
static inline struct range share(const struct pass *p, u32 n, u32 unit)
{
    u64 units = CEIL_DIV(n, unit), threads = p->f->threads;
    u32 from = (u32)(units * p->id / threads), to = (u32)(units * (p->id + 1) / threads);
    return (struct range){MIN(from * unit, n), MIN(to * unit, n)};
}

static inline void barrier(const struct pass *p)
{
    pool_barrier(p->f->pool);
}

/* Input rows of one or more matrices. A few rows are normed and prepared by every worker for
 * itself; many are shared out, with barriers. */
struct input {
    struct activations a;
    const struct packed *ready_for;
    bool few;
};

static inline struct range own_rows(const struct pass *p, const struct input *in)
{
    return in->few ? (struct range){0, in->a.m} : share(p, in->a.m, 1);
}

/* m rows of k floats, normed by `norm` (NULL: as they are; else row i of the result is x's row
 * index[i], or i). */
static inline struct input input_rows(const struct pass *p, const float *x, u32 stride, u32 m,
                                      u32 k, const float *norm, const u32 *index)
{
    struct forward *f = p->f;
    struct input in = {.a = {.x = x, .m = m, .k = k, .x_stride = stride}, .few = m <= FEW_ROWS};
    in.a.prepared = in.few ? p->mine->prepared : f->prepared;
    if (!norm)
        return in;
    struct range r = own_rows(p, &in);
    float *h = in.few ? p->mine->rows : f->h;
    for (u32 i = r.from; i < r.to; i++)
        f->vector->rmsnorm(h + (size_t)i * f->x_stride, x + (size_t)(index ? index[i] : i) * stride,
                           norm, k, f->model->norm_eps);
    in.a.x = h;
    in.a.x_stride = f->x_stride;
    return in;
}

/* Prepares the rows for w, unless they already are. */
static inline void make_ready(const struct pass *p, struct input *in, const struct packed *w)
{
    const struct linear_ops *linear = p->f->linear;
    if (in->ready_for && linear->act_shared(in->ready_for, w))
        return;
    if (!in->few && in->ready_for)
        barrier(p); /* others may still read what is prepared now */
    struct range r = own_rows(p, in);
    linear->act_prepare(&in->a, w, r.from, r.to);
    in->ready_for = w;
    if (!in->few)
        barrier(p);
}

/* Consecutive tokens of a sequence in a tile, and its slot's state of a layer. */
struct stretch {
    u32 at, n;    /* rows of the tile */
    bool first;   /* of the sequence: there is no state yet */
    float *state; /* [layer_state_floats()] */
    float *kept;  /* where it goes behind the stretch, too, or NULL */
    u32 blocks;   /* of the tile, up to its end */
};

/* The next of the tile, from all zeros on; false behind the last. states: of the layer, `floats`
 * each. */
static inline bool next_stretch(const struct pass *p, float *states, u32 floats, struct stretch *s)
{
    const struct forward *f = p->f;
    const struct forward_block *b = f->blocks + p->tile->block + s->blocks;
    if (s->blocks == p->tile->blocks)
        return false;
    const struct step_row *row = &f->step->rows[b->row];
    const u32 of = b->row;
    *s = (struct stretch){.at = b->token - p->tile->token,
                          .first = row->pos + b->token == row->first,
                          .state = states + (size_t)row->slot * floats,
                          .blocks = s->blocks};
    for (; s->blocks < p->tile->blocks && b->row == of; b++, s->blocks++)
        s->n += b->n;
    if (row->keep && p->tile->token + s->at + s->n == row->first + row->n)
        s->kept = states + (size_t)(f->limits.slots + row->keep - 1) * floats;
    return true;
}

/* What a layer's inputs give, and what its `o` takes. */
static inline float *row_at(const struct forward *f, u32 at)
{
    return f->qkv + (size_t)at * f->qkv_stride;
}

/* The columns of a product, in tiles of the kernels, as they are handed out: first each worker's
 * own stretch of all but the last eighth, then what is left, tile by tile, to whoever comes first,
 * so that one core which others disturb does not hold the rest up. Who computes a tile changes no
 * bit.
 *
 * f->ticket is (number of the deal, next free tile); all workers deal in the same order, and one
 * that finds a later number knows that nothing of its own deal is left. */
struct deal {
    u32 tiles, fixed;
    u64 first_ticket;
    bool own_done;
};

static inline struct deal deal_out(const struct pass *p, u32 tiles)
{
    u32 shared = p->f->threads > 1 ? tiles / 8 : 0;
    return (struct deal){tiles, tiles - shared, (u64)++ * p->deals << 32, false};
}

/* The next tiles for this worker; false when there are no more. */
static inline bool next_tiles(const struct pass *p, struct deal *d, struct range *r)
{
    if (!d->own_done) {
        d->own_done = true;
        *r = share(p, d->fixed, 1);
        if (r->from < r->to)
            return true;
    }
    u64 seen = atomic_load_explicit(&p->f->ticket, memory_order_relaxed), mine;
    do {
        mine = MAX(seen, d->first_ticket);
        u32 tile = d->fixed + (u32)mine;
        if (mine >> 32 != d->first_ticket >> 32 || tile >= d->tiles)
            return false;
        *r = (struct range){tile, tile + 1};
    } while (!atomic_compare_exchange_weak_explicit(&p->f->ticket, &seen, mine + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static inline u32 tiles_of(const struct pass *p, const struct packed *w)
{
    return CEIL_DIV(w->w->n, p->f->linear->tile_n);
}

/* y = W x over some tiles; returns their columns. The input is ready for w. */
static inline struct range multiply(const struct pass *p, const struct packed *w,
                                    const struct activations *a, float *y, u32 y_stride,
                                    struct range tiles)
{
    u32 unit = p->f->linear->tile_n, n = w->w->n;
    struct range r = {MIN(tiles.from * unit, n), MIN(tiles.to * unit, n)};
    if (r.from < r.to)
        p->f->linear->matmul(w, a, y, y_stride, r.from, r.to, p->mine->scratch);
    return r;
}

/* Matrices that all take the same prepared input, their outputs side by side, dealt out as one. */
static inline void multiply_side_by_side(const struct pass *p, const struct packed *w, u32 count,
                                         struct input *in, float *y, u32 y_stride)
{
    u32 tiles = 0;
    struct range r;
    for (u32 i = 0; i < count; i++)
        tiles += tiles_of(p, &w[i]);
    make_ready(p, in, &w[0]);
    for (struct deal d = deal_out(p, tiles); next_tiles(p, &d, &r);) {
        float *to = y;
        for (u32 i = 0, done = 0; i < count; i++) {
            u32 end = done + tiles_of(p, &w[i]), from = MAX(r.from, done);
            if (from < MIN(r.to, end))
                multiply(p, &w[i], &in->a, to, y_stride,
                         (struct range){from - done, MIN(r.to, end) - done});
            done = end;
            to += w[i].w->n;
        }
    }
}

/* The same for any matrices of one input: act-order may want it in another order for each. */
static inline void multiply_group(const struct pass *p, const struct packed *w, u32 count,
                                  struct input *in, float *y, u32 y_stride)
{
    for (u32 i = 0; i < count;) {
        u32 n = 1;
        while (i + n < count && p->f->linear->act_shared(&w[i], &w[i + n]))
            n++;
        multiply_side_by_side(p, &w[i], n, in, y, y_stride);
        for (u32 end = i + n; i < end; i++)
            y += w[i].w->n;
    }
}

/* gate = act(gate) * up over some columns of rows [n][gate, up][wide]; ungated, up is both. */
static inline void gate(const struct forward *f, float *rows, u32 stride, u32 n, u32 wide,
                        struct range r)
{
    for (u32 i = 0; i < n; i++) {
        float *row = rows + (size_t)i * stride;
        const float *up = f->model->mlp_ungated ? row : row + wide;
        f->vector->gate(row + r.from, up + r.from, r.to - r.from, f->model->activation);
    }
}

#endif
