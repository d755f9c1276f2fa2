#include "drivers/cpu/mixture.h"

#include <math.h>

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* What makes p of a logit (struct mixture). */
struct chance {
    bool sigmoids;
    float most, total; /* of all logits, and of their powers of e: a softmax */
};

static struct chance chance_of(const struct model *m, const float *bias, const float *logits)
{
    struct chance c = {bias && !m->experts_softmax, logits[0], 0};
    for (u32 i = 1; i < m->experts && !c.sigmoids; i++)
        c.most = MAX(c.most, logits[i]);
    for (u32 i = 0; i < m->experts && !c.sigmoids; i++)
        c.total += expf(logits[i] - c.most);
    return c;
}

static float probability(const struct chance *c, float logit)
{
    return c->sigmoids ? sigmoid(logit) : expf(logit - c->most) / c->total;
}

/* Those that one token takes, in order of their numbers. Values that are no numbers choose some,
 * too. bias: of struct forward_mixture. */
static void take_experts(const struct model *m, const struct chance *c, const float *bias,
                         const float *logits, struct forward_route *out)
{
    u32 used = m->experts_used, n = 0;
    for (u32 e = 0; e < m->experts; e++) { /* the largest so far, in order, of equals the first */
        float score = bias ? probability(c, logits[e]) + bias[e] : logits[e];
        u32 at = n < used ? n++ : used;
        for (; at && score > out[at - 1].weight; at--)
            if (at < used)
                out[at] = out[at - 1];
        if (at < used)
            out[at] = (struct forward_route){e, score};
    }
    for (u32 i = 1; i < used; i++) /* and now by their numbers */
        for (u32 j = i; j && out[j].expert < out[j - 1].expert; j--) {
            u32 e = out[j].expert;
            out[j].expert = out[j - 1].expert;
            out[j - 1].expert = e;
        }
}

/* The experts of one token, and their weights. */
static void choose_experts(const struct model *m, const struct forward_mixture *x,
                           const float *logits, struct forward_route *out)
{
    const struct chance c = chance_of(m, x->bias, logits);
    float kept = 0;
    take_experts(m, &c, x->bias, logits, out);
    for (u32 i = 0; i < m->experts_used; i++) {
        out[i].weight = probability(&c, logits[out[i].expert]);
        kept += out[i].weight;
    }
    float by = m->experts_renormalized ? kept + m->experts_least : 1;
    for (u32 i = 0; i < m->experts_used; i++)
        out[i].weight =
            out[i].weight / by * (x->scale ? x->scale[out[i].expert] : m->experts_scale);
}

float mixture_share(const struct forward_mixture *x, const float *row, u32 n)
{
    float lane[16] = {0}, sum = 0;
    for (u32 i = 0; i < n; i++)
        lane[i % 16] += row[i] * x->share[i];
    for (u32 i = 0; i < 16; i++)
        sum += lane[i];
    return sigmoid(sum);
}

/* Sorts the tile's routes by expert. */
static void sort_routes(const struct pass *p, const struct forward_route *routes)
{
    const struct model *m = p->f->model;
    struct forward_routes *s = &p->mine->routes;
    u32 n = p->tile->n * m->experts_used;
    memset(s->first, 0, (m->experts + 1) * sizeof *s->first);
    for (u32 i = 0; i < n; i++)
        s->first[routes[i].expert + 1]++;
    s->n_active = 0;
    for (u32 e = 0; e < m->experts; e++) {
        if (s->first[e + 1])
            s->active[s->n_active++] = e;
        s->first[e + 1] += s->first[e];
    }
    for (u32 i = 0; i < n; i++) { /* first[e] moves to the end of e's rows */
        s->row[i] = s->first[routes[i].expert]++;
        s->route[s->row[i]] = i;
    }
    memmove(s->first + 1, s->first, m->experts * sizeof *s->first);
    s->first[0] = 0;
}

/* Normed inputs to routes, sorted: every worker knows them all. The router's logits are f32
 * products of f32 inputs in every kernel set (struct forward_mixture): rounded ones would send
 * tokens near a tie to other experts. */
static const struct forward_route *find_routes(const struct pass *p, struct input *in,
                                               const struct forward_mixture *x)
{
    struct forward *f = p->f;
    const struct model *m = f->model;
    const struct packed *router = &x->router;
    make_ready(p, in, router);
    struct range r = share(p, m->experts, router->w->kind == WEIGHT_PLAIN ? 8 : f->linear->tile_n);
    if (r.from < r.to)
        f->linear->matmul(router, &in->a, f->router, f->router_stride, r.from, r.to,
                          p->mine->scratch);
    barrier(p);
    struct forward_route *routes = in->few ? p->mine->few_routes : f->routes;
    r = own_rows(p, in);
    for (u32 i = r.from; i < r.to; i++)
        choose_experts(m, x, f->router + (size_t)i * f->router_stride,
                       routes + i * m->experts_used);
    if (!in->few)
        barrier(p);
    sort_routes(p, routes);
    return routes;
}

/* The columns of all active experts' matrices, dealt out as one. A few rows an expert are nothing
 * but reading weights: stretches, as in deal_out. Of many, experts have more and less, so that
 * columns go piece by piece to whoever comes first. */
struct expert_walk {
    struct deal deal;
    u32 tiles, piece, pieces; /* of one expert: tiles of the kernels, tiles a piece, pieces */
    struct range left;
};

static struct expert_walk walk_experts(const struct pass *p, u32 n)
{
    enum { PIECE_COLUMNS = 256 };
    u32 unit = p->f->linear->tile_n, few = p->tile->n <= FEW_ROWS;
    struct expert_walk w = {.tiles = CEIL_DIV(n, unit)};
    w.piece = few ? 1 : MAX(PIECE_COLUMNS / unit, 1u);
    w.pieces = CEIL_DIV(w.tiles, w.piece);
    w.deal = deal_out(p, p->mine->routes.n_active * w.pieces);
    if (!few)
        w.deal.fixed = 0;
    return w;
}

/* The next tiles of one expert for this worker; false when there are no more. */
static bool next_expert(const struct pass *p, struct expert_walk *w, u32 *expert,
                        struct range *tiles)
{
    if (w->left.from == w->left.to && !next_tiles(p, &w->deal, &w->left))
        return false;
    u32 piece = w->left.from % w->pieces;
    u32 end = MIN(piece + w->left.to - w->left.from, w->pieces);
    *expert = p->mine->routes.active[w->left.from / w->pieces];
    *tiles = (struct range){piece * w->piece, MIN(end * w->piece, w->tiles)};
    w->left.from += end - piece;
    return true;
}

/* Rows [first, first + m) of rows that are prepared side by side. */
static struct activations some_rows(const struct forward *f, const struct activations *a, u32 first,
                                    u32 m)
{
    struct activations some = *a;
    some.x += (size_t)first * a->x_stride;
    some.prepared = (u8 *)a->prepared + first * f->linear->act_bytes(1, a->k);
    some.m = m;
    return some;
}

/* Copies and prepares the inputs of all routes, `in` being those of the tokens; ends with a
 * barrier. a[j]: what gate (0) and up (1) take; ungated, up alone. */
static void ready_routes(const struct pass *p, const struct forward_mixture *x,
                         const struct input *in, struct activations a[2])
{
    struct forward *f = p->f;
    const struct forward_routes *s = &p->mine->routes;
    u32 hidden = f->model->hidden, n = p->tile->n * f->model->experts_used, expert = 0;
    size_t form = f->linear->act_bytes(n, hidden);
    for (u32 j = 0; j < 2; j++)
        a[j] = (struct activations){f->routed, n, hidden, f->x_stride,
                                    (u8 *)f->prepared + (f->prepares - 1) * j * form};
    struct range r = share(p, n, 1);
    for (u32 i = r.from; i < r.to; i++) {
        while (i >= s->first[expert + 1])
            expert++;
        u32 token = s->route[i] / f->model->experts_used;
        memcpy(f->routed + (size_t)i * f->x_stride, in->a.x + (size_t)token * in->a.x_stride,
               hidden * sizeof(float));
        for (u32 j = 0; j < f->prepares; j++)
            f->linear->act_prepare(&a[j], &x->experts[expert].gate_up[j], i, i + 1);
    }
    barrier(p);
}

/* gate or up of a few tokens' routes to one expert: tokens that follow each other at once. */
static void multiply_few(const struct pass *p, const struct packed *w, struct input *in, u32 expert,
                         float *y, struct range tiles)
{
    struct forward *f = p->f;
    const struct forward_routes *s = &p->mine->routes;
    u32 used = f->model->experts_used, end = s->first[expert + 1];
    make_ready(p, in, w);
    for (u32 row = s->first[expert], n; row < end; row += n) {
        u32 token = s->route[row] / used;
        for (n = 1; row + n < end && s->route[row + n] / used == token + n;)
            n++;
        struct activations a = some_rows(f, &in->a, token, n);
        multiply(p, w, &a, y + (size_t)row * f->expert_stride, f->expert_stride, tiles);
    }
}

/* act(gate) * up of all routes; ungated as in gate(). Ends with a barrier. */
static void experts_gate_up(const struct pass *p, const struct forward_mixture *x, struct input *in)
{
    struct forward *f = p->f;
    const struct forward_routes *s = &p->mine->routes;
    u32 expert, wide = f->model->expert_intermediate, unit = f->linear->tile_n;
    const u32 parts = model_expert_parts(f->model);
    struct activations all[2];
    struct range r;
    if (!in->few)
        ready_routes(p, x, in, all);
    for (struct expert_walk w = walk_experts(p, wide); next_expert(p, &w, &expert, &r);) {
        u32 first = s->first[expert], n = s->first[expert + 1] - first;
        const struct packed *matrix = x->experts[expert].gate_up;
        float *rows = f->mlp + (size_t)first * f->expert_stride;
        for (u32 j = 0; j < parts; j++) {
            if (in->few) {
                multiply_few(p, &matrix[j], in, expert, f->mlp + j * wide, r);
                continue;
            }
            struct activations a = some_rows(f, &all[j], first, n);
            multiply(p, &matrix[j], &a, rows + j * wide, f->expert_stride, r);
        }
        gate(f, rows, f->expert_stride, n, wide,
             (struct range){r.from * unit, MIN(r.to * unit, wide)});
    }
    barrier(p);
}

/* down of all routes, times their weights. Ends with a barrier. */
static void experts_down(const struct pass *p, const struct forward_mixture *x,
                         const struct forward_route *routes)
{
    struct forward *f = p->f;
    const struct forward_routes *s = &p->mine->routes;
    u32 expert, hidden = f->model->hidden, wide = f->model->expert_intermediate, ready = UINT32_MAX;
    u32 count = p->tile->n * f->model->experts_used;
    bool few = p->tile->n <= FEW_ROWS;
    struct activations all = {f->mlp, count, wide, f->expert_stride, f->prepared};
    struct range r = share(p, count, 1);
    for (u32 i = r.from, e = 0; !few && i < r.to; i++) {
        while (i >= s->first[e + 1])
            e++;
        f->linear->act_prepare(&all, &x->experts[e].down, i, i + 1);
    }
    if (!few)
        barrier(p);
    for (struct expert_walk w = walk_experts(p, hidden); next_expert(p, &w, &expert, &r);) {
        u32 first = s->first[expert], n = s->first[expert + 1] - first;
        const struct packed *down = &x->experts[expert].down;
        struct activations a = some_rows(f, &all, first, n);
        if (few) { /* each worker for itself, and only those that it multiplies */
            a.prepared = p->mine->prepared;
            if (expert != ready)
                f->linear->act_prepare(&a, down, 0, n);
            ready = expert;
        }
        float *y = f->routed + (size_t)first * f->x_stride;
        struct range c = multiply(p, down, &a, y, f->x_stride, r);
        for (u32 i = 0; i < n; i++)
            f->vector->scale(y + (size_t)i * f->x_stride + c.from,
                             routes[s->route[first + i]].weight, c.to - c.from);
    }
    barrier(p);
}

/* x += what its experts say, in their order, the shared one last. Ends with a barrier. */
static void add_experts(const struct pass *p)
{
    struct forward *f = p->f;
    const struct forward_routes *s = &p->mine->routes;
    u32 n = p->tile->n, used = f->model->experts_used;
    bool few = n <= FEW_ROWS; /* then by columns */
    struct range t = few ? (struct range){0, n} : share(p, n, 1);
    struct range c = few ? share(p, f->model->hidden, 64) : (struct range){0, f->model->hidden};
    for (u32 i = t.from; i < t.to; i++) {
        const u32 *row = s->row + i * used;
        float *sum = f->routed + (size_t)row[0] * f->x_stride + c.from;
        for (u32 j = 1; j < used; j++)
            f->vector->add(sum, f->routed + (size_t)row[j] * f->x_stride + c.from, c.to - c.from);
        size_t at = (size_t)i * f->x_stride + c.from;
        if (f->model->shared_intermediate)
            f->vector->add(sum, f->y + at, c.to - c.from);
        f->vector->add(f->x + at, sum, c.to - c.from);
    }
    barrier(p);
}

/* Where mixtures have norms of their own: x = (x + norm(y + norm(what its experts say))) * scale, y
 * being what the shared one says. Ends with a barrier. */
static void add_normed_experts(const struct pass *p, const struct forward_layer *l, float scale)
{
    struct forward *f = p->f;
    const struct vector_ops *v = f->vector;
    u32 used = f->model->experts_used, hidden = f->model->hidden;
    float eps = f->model->norm_eps;
    struct range r = share(p, p->tile->n, 1);
    for (u32 i = r.from; i < r.to; i++) {
        const u32 *row = p->mine->routes.row + i * used;
        float *sum = f->routed + (size_t)row[0] * f->x_stride;
        float *x = f->x + (size_t)i * f->x_stride;
        for (u32 j = 1; j < used; j++)
            v->add(sum, f->routed + (size_t)row[j] * f->x_stride, hidden);
        v->rmsnorm(sum, sum, l->mixture->norm_after_experts, hidden, eps);
        v->add(sum, f->y + (size_t)i * f->x_stride, hidden);
        v->rmsnorm(sum, sum, l->norm[NORM_AFTER_MLP], hidden, eps);
        v->add(x, sum, hidden);
        if (scale != 1)
            v->scale(x, scale, hidden);
    }
    barrier(p);
}

void mixture_pass(const struct pass *p, const struct forward_layer *l, float scale)
{
    struct forward *f = p->f;
    const struct forward_mixture *x = l->mixture;
    const float *norm = x->norm_router ? x->norm_router : l->norm[NORM_MLP];
    struct input in = input_rows(p, f->x, f->x_stride, p->tile->n, f->model->hidden, norm, NULL);
    const struct forward_route *routes = find_routes(p, &in, x);
    if (x->norm_experts)
        in = input_rows(p, f->x, f->x_stride, p->tile->n, f->model->hidden, x->norm_experts, NULL);
    if (x->norm_experts && !in.few)
        barrier(p);
    experts_gate_up(p, x, &in);
    experts_down(p, x, routes);
    if (x->norm_after_experts)
        add_normed_experts(p, l, scale);
    else
        add_experts(p);
}
