#include "drivers/cuda/matrix.h"

static bool whole_rows(const struct weight *w) /* one scale a row */
{
    return w->kind == WEIGHT_PLAIN || w->group >= w->k;
}

enum { GROUP_UNIT = 32 }; /* a packed group is a multiple of it */

static u32 padded_group(const struct weight *w)
{
    return ROUND_UP(w->group, (u32)GROUP_UNIT);
}

/* Packed inputs to a scale in the packed form: larger groups have theirs repeated. */
static u32 scale_group(const struct weight *w)
{
    /* Kernels take scales of f32, which are rare, and FP4 with small groups only. */
    if (w->scale_type == DTYPE_F32 || w->kind == WEIGHT_MXFP4)
        return GROUP_UNIT;
    return whole_rows(w) || padded_group(w) % MATRIX_K_UNIT == 0 ? MATRIX_K_UNIT : GROUP_UNIT;
}

static bool has_order(const struct weight *w)
{
    return !whole_rows(w) && (w->group_index || w->group % GROUP_UNIT);
}

/* Do both take their inputs in the same order? */
static bool same_order(const struct weight *a, const struct weight *b)
{
    if (!has_order(a) || !has_order(b))
        return has_order(a) == has_order(b) && a->k == b->k;
    if (a->k != b->k || a->group != b->group || !a->group_index != !b->group_index)
        return false;
    return !a->group_index || memcmp(a->group_index, b->group_index, (size_t)a->k * 4) == 0;
}

static struct matrix shape(const struct weight *w)
{
    struct matrix m = {.n = w->n, .scale_type = w->scale_type};
    m.kind = w->kind == WEIGHT_PLAIN ? MATRIX_HALF : w->bits == 4 ? MATRIX_INT4 : MATRIX_INT8;
    if (w->kind == WEIGHT_MXFP4) {
        m.kind = MATRIX_FP4;
        m.scale_type = DTYPE_BF16;
    }
    m.k = ROUND_UP(has_order(w) ? w->groups * padded_group(w) : w->k, (u32)MATRIX_K_UNIT);
    m.group = m.kind == MATRIX_HALF ? m.k : scale_group(w);
    m.groups = m.k / m.group;
    m.slice = ROUND_UP(CEIL_DIV(m.k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT);
    if (m.kind == MATRIX_HALF)
        m.scale_type = DTYPE_F32;
    return m;
}

/* struct input.group */
u32 matrix_input_group(const struct weight *w)
{
    struct matrix m = shape(w);
    return m.kind == MATRIX_INT4 || m.kind == MATRIX_FP4 ? m.group : 0;
}

/* One preparation of the rows does for both. */
bool matrix_same_input(const struct weight *a, const struct weight *b)
{
    return same_order(a, b) && a->int8_activations == b->int8_activations &&
           matrix_input_group(a) == matrix_input_group(b);
}

static size_t data_bytes(const struct matrix *m)
{
    return ((size_t)ROUND_UP(m->n, 16u) * m->k * 4 << MATRIX_SHIFT(m->kind)) / 8;
}

size_t matrix_packed_bytes(const struct weight *w)
{
    struct matrix m = shape(w);
    return data_bytes(&m);
}

static size_t scales_n(const struct matrix *m)
{
    return (size_t)ROUND_UP(m->n, 16u) * m->groups;
}

static size_t matrix_bytes(const struct matrix *m)
{
    return data_bytes(m) + scales_n(m) * (dtype_bytes((enum dtype)m->scale_type) + !!m->zeros);
}

u64 matrix_op_bytes(const struct op *op)
{
    u64 bytes = 0;
    if (op->kind == OP_EXPERTS)
        return matrix_bytes(&op->experts.matrix) / op->experts.routes.experts *
               op->experts.routes.used;
    for (u32 k = 0; op->kind == OP_LINEAR && k < op->linear.parts; k++)
        bytes += matrix_bytes(&op->linear.part[k]);
    return bytes;
}

/* What stands beside a matrix's values. */
static void carve_sides(struct vram *s, struct matrix *m, bool zeros, bool bias)
{
    m->scales = vram_pointer(s, scales_n(m) * dtype_bytes((enum dtype)m->scale_type));
    m->zeros = zeros ? vram_pointer(s, scales_n(m)) : NULL;
    m->bias = bias ? vram_pointer(s, ROUND_UP(m->n, 16u) * sizeof(float)) : NULL;
}

static void carve_matrix(struct vram *s, struct matrix *m, bool zeros, bool bias)
{
    m->data = vram_pointer(s, data_bytes(m));
    carve_sides(s, m, zeros, bias);
}

static struct list_weight *add_weight(struct list *l, const struct weight *from, u32 first, u32 n)
{
    ASSERT(l->n_weights < l->most_weights);
    struct list_weight *w = &l->weights[l->n_weights++];
    *w = (struct list_weight){
        .from = from, .first = first, .n = n, .to = shape(from), .run = 16, .step = 16};
    w->group = whole_rows(from) ? w->to.k : padded_group(from);
    return w;
}

/* The same with its order, which may be that of the weight before. */
static struct list_weight *list_weight(struct list *l, struct vram *s, const struct weight *from,
                                       u32 first, u32 n)
{
    const struct list_weight *before = l->n_weights ? &l->weights[l->n_weights - 1] : NULL;
    struct list_weight *w = add_weight(l, from, first, n);
    if (!has_order(from))
        return w;
    w->makes_order = !before || !before->order || !same_order(from, before->from);
    w->order = w->makes_order ? vram_pointer(s, w->to.k * sizeof *w->order) : before->order;
    return w;
}

struct list_weight *matrix_place(struct list *l, struct vram *s, const struct weight *from)
{
    struct list_weight *w = list_weight(l, s, from, 0, from->n);
    carve_matrix(s, &w->to, from->zeros, from->bias);
    return w;
}

struct list_weight *matrix_place_in_host(struct list *l, struct vram *s, const struct weight *from,
                                         const struct list_table *t)
{
    struct list_weight *w = list_weight(l, s, from, 0, from->n);
    w->to.data = (const u8 *)(uintptr_t)t->card;
    w->host = t->host;
    carve_sides(s, &w->to, from->zeros, from->bias);
    return w;
}

/* Do both look alike, but for orders and zeros? */
static bool same_shape(const struct weight *a, const struct weight *b)
{
    struct matrix x = shape(a), y = shape(b);
    return has_order(a) == has_order(b) && a->int8_activations == b->int8_activations &&
           x.kind == y.kind && x.scale_type == y.scale_type && x.k == y.k && x.group == y.group &&
           !a->bias == !b->bias;
}

/* Can a row of one and a row of the other stand in one matrix? */
static bool same_form(const struct weight *a, const struct weight *b)
{
    return same_shape(a, b) && same_order(a, b) && !a->zeros == !b->zeros;
}

/* Can gate and up be one matrix, whose blocks of 16 outputs are 8 gates and their 8 ups? */
bool matrix_can_share(const struct weight *a, const struct weight *b)
{
    return same_form(a, b) && a->n == b->n;
}

/* Weights below one another in one matrix where their forms agree, else each in its own. Returns
 * the first. */
struct list_weight *matrix_place_rows(struct list *l, struct vram *s, const struct weight *from,
                                      u32 n)
{
    struct list_weight *first = &l->weights[l->n_weights];
    bool one = n > 1;
    u32 rows = 0;
    for (u32 i = 0; i < n; i++) {
        one = one && same_form(&from[0], &from[i]) && (from[i].n % 16 == 0 || i + 1 == n);
        rows += from[i].n;
    }
    for (u32 i = 0; i < n && !one; i++)
        matrix_place(l, s, &from[i]);
    for (u32 i = 0; i < n && one; i++) {
        struct list_weight *w = list_weight(l, s, &from[i], 0, from[i].n);
        if (i == 0) {
            w->to.n = rows;
            carve_matrix(s, &w->to, from->zeros, from->bias);
        } else {
            w->to = first->to;
            w->below = w[-1].below + w[-1].n;
        }
    }
    return first;
}

/* `up` is gate itself where one weight holds both, gates first. */
struct list_weight *matrix_place_pair(struct list *l, struct vram *s, const struct weight *gates,
                                      const struct weight *ups)
{
    u32 n = gates == ups ? gates->n / 2 : gates->n;
    struct list_weight *gate = list_weight(l, s, gates, 0, n);
    struct list_weight *up = list_weight(l, s, ups, gates == ups ? n : 0, n);
    gate->to.n = 16 * CEIL_DIV(n, 8u);
    carve_matrix(s, &gate->to, gates->zeros, gates->bias);
    up->to = gate->to;
    gate->run = up->run = up->at = 8;
    return gate;
}

/* Matrices of all experts below one another, whose forms agree (matrix_takes): downs; or gates and
 * ups in the form of place_pair; or ups. Returns the first, whose order is [experts][k]. */
struct list_weight *matrix_place_experts(struct list *l, struct vram *s, const struct mixture *x,
                                         bool downs)
{
    struct list_weight *first = &l->weights[l->n_weights];
    const u32 experts = l->model->experts, parts = downs ? 1 : model_expert_parts(l->model);
    u32 *orders = NULL;
    bool zeros = false;
    for (u32 i = 0; i < experts * parts; i++) {
        const struct expert *e = &x->experts[i / parts];
        const struct weight *from = downs ? &e->down : &e->gate_up[i % parts];
        struct list_weight *w = add_weight(l, from, 0, from->n);
        if (i == 0 && has_order(from))
            orders = vram_pointer(s, (size_t)experts * w->to.k * sizeof *orders);
        if (has_order(from)) {
            w->order = orders + (size_t)(i / parts) * w->to.k;
            w->makes_order = i % parts == 0;
        }
        w->below = i / parts * (parts * from->n);
        if (parts == 2)
            w->run = 8, w->at = i % 2 * 8;
        zeros |= from->zeros != NULL;
    }
    first->to.n = experts * parts * first->n;
    carve_matrix(s, &first->to, zeros, first->from->bias);
    for (struct list_weight *w = first; w < &l->weights[l->n_weights]; w++)
        w->to = first->to;
    return first;
}

/* Experts may have orders of their own, gate and up of one may not. */
static enum err takes(const struct mixture *x, const struct model *m, struct err_text *e)
{
    const struct weight *up = &x->experts[0].gate_up[0], *down = &x->experts[0].down;
    const u32 last = model_expert_parts(m) - 1; /* ungated, gate_up[last] is gate_up[0] */
    for (u32 i = 0; i < m->experts; i++) {
        const struct expert *p = &x->experts[i];
        const struct {
            const struct weight *is, *as;
        } all[] = {{&p->gate_up[0], up}, {&p->gate_up[last], up}, {&p->down, down}};
        for (u32 j = 0; j < COUNTOF(all); j++)
            if (!same_shape(all[j].is, all[j].as))
                return err_set(e, ERR_DEVICE,
                               "%s is quantized in another way than those of other experts: on a "
                               "GPU it must not be. Set device.kind to cpu",
                               all[j].is->name);
        if (!same_order(&p->gate_up[0], &p->gate_up[last]))
            return err_set(e, ERR_DEVICE,
                           "%s has another act-order than the gate_proj beside it: on a GPU it "
                           "must not. Set device.kind to cpu",
                           p->gate_up[last].name);
    }
    return ERR_OK;
}

enum err matrix_takes(const struct model *m, struct err_text *e)
{
    if (m->qk_norm == QK_NORM_TURNED && (m->head_dim != 128 || m->rope[ROPE_FULL].dims != 128))
        return err_set(e, ERR_DEVICE,
                       "on a GPU heads that are normed behind their rotation need 128 dimensions, "
                       "all of them rotated; here they have %u. Set device.kind to cpu",
                       m->head_dim);
    if (!m->experts)
        return ERR_OK;
    const u32 unit = 16 / model_expert_parts(m);
    if (m->hidden % 16 || m->expert_intermediate % unit)
        return err_set(e, ERR_DEVICE,
                       "on a GPU experts need a hidden_size that is a multiple of 16 and a size "
                       "of their own of %u; here they are %u and %u. Set device.kind to cpu",
                       unit, m->hidden, m->expert_intermediate);
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct mixture *x = m->layers[i].mixture;
        if (x && x->router.int8_activations)
            return err_set(e, ERR_DEVICE,
                           "%s is W8A8: on a GPU a router must not be. Set device.kind to cpu",
                           x->router.name);
        if (x)
            TRY(takes(x, m, e));
    }
    return ERR_OK;
}

bool matrix_has_fp4(const struct model *m)
{
    for (u32 i = 0; i < m->layers_n; i++)
        if (m->layers[i].mixture)
            return m->layers[i].mixture->experts[0].down.kind == WEIGHT_MXFP4;
    return false;
}

void matrix_order(const struct list_weight *w, u32 *order, u32 *counts)
{
    const struct weight *from = w->from;
    memset(counts, 0, from->groups * sizeof *counts);
    for (u32 i = 0; i < w->to.k; i++)
        order[i] = ORDER_NONE;
    for (u32 k = 0; k < from->k; k++) {
        u32 g = from->group_index ? (u32)from->group_index[k] : k / from->group;
        order[g * w->group + counts[g]++] = k;
    }
}
