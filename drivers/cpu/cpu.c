#include "drivers/cpu/cpu.h"

#include "core/base/clock.h"
#include "core/base/half.h"
#include "drivers/cpu/forward.h"
#include "kernels/cpu/linear.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

/* A matrix of the model and where its packed form goes. */
struct matrix {
    const struct weight *weight;
    struct packed *packed;
    size_t at, bytes; /* of its own memory in `packed_memory`; 0 bytes: used in place */
};

struct cpu_device {
    struct device device; /* first */
    struct forward forward;
    struct pool pool;
    const struct kernel_set *set;
    bool pin, spin;
    struct matrix *matrices;
    u32 n_matrices, most_matrices;
    u8 *packed_memory;
    u32 advised; /* matrices that the kernel was told to read, and their bytes */
    size_t advised_bytes;
    _Atomic size_t loaded_bytes;
};

static struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)(void *)d;
}

/* --- weights ------------------------------------------------------------------------------- */

static void list_matrix(struct cpu_device *c, const struct weight *w, struct packed *packed)
{
    size_t at = 0;
    ASSERT(c->n_matrices < c->most_matrices);
    if (c->n_matrices) {
        const struct matrix *last = &c->matrices[c->n_matrices - 1];
        at = last->at + ROUND_UP(last->bytes, (size_t)64);
    }
    c->matrices[c->n_matrices++] = (struct matrix){w, packed, at, c->forward.linear->pack_bytes(w)};
}

static void list_mixture(struct cpu_device *c, const struct mixture *from,
                         struct forward_mixture *to)
{
    const struct weight *r = &from->router;
    bool plain = r->kind == WEIGHT_PLAIN || r->int8_activations;
    if (!plain)
        to->plain = (struct weight){.name = r->name,
                                    .kind = WEIGHT_PLAIN,
                                    .n = r->n,
                                    .k = r->k,
                                    .group = r->k,
                                    .groups = 1,
                                    .type = DTYPE_F32};
    list_matrix(c, plain ? r : &to->plain, &to->router);
    for (u32 e = 0; e < c->device.model->experts; e++) {
        for (u32 j = 0; j < model_expert_parts(c->device.model); j++)
            list_matrix(c, &from->experts[e].gate_up[j], &to->experts[e].gate_up[j]);
        list_matrix(c, &from->experts[e].down, &to->experts[e].down);
    }
}

/* In the order in which a step uses them. */
static void list_matrices(struct cpu_device *c)
{
    struct forward *f = &c->forward;
    const struct model *m = c->device.model;
    list_matrix(c, &m->embed, &f->embed);
    if (m->own.n) {
        list_matrix(c, &m->own.embed, &f->own_embed);
        list_matrix(c, &m->own.project, &f->own_project);
    }
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct layer *from = &m->layers[i];
        struct forward_layer *to = &f->layers[i];
        u32 n;
        const struct weight *in = layer_inputs(m, from, &n);
        for (u32 j = 0; j < n; j++)
            list_matrix(c, &in[j], to->delta ? &to->delta->in[j] : &to->qkv[j]);
        list_matrix(c, &from->o, &to->o);
        if (to->mixture) {
            list_mixture(c, from->mixture, to->mixture);
            if (!m->shared_intermediate)
                continue;
        }
        if (layer_has_mlp(from)) {
            for (u32 j = 0; j < m->n_gate_up; j++)
                list_matrix(c, &from->gate_up[j], &to->gate_up[j]);
            list_matrix(c, &from->down, &to->down);
        }
        if (m->own.n) {
            list_matrix(c, &from->own_gate, &to->own_gate);
            list_matrix(c, &from->own_out, &to->own_out);
        }
    }
    f->head = m->tied ? &f->embed : &f->own_head;
    if (!m->tied)
        list_matrix(c, &m->head, &f->own_head);
}

static size_t packed_bytes(const struct cpu_device *c)
{
    const struct matrix *last = &c->matrices[c->n_matrices - 1];
    return last->at + last->bytes;
}

/* Reads one byte a page, so that the first step does not wait for the disk. */
static void touch(const struct weight *w, u32 part, u32 parts)
{
    size_t bytes = weight_span_bytes(w), from = bytes / parts * part;
    size_t to = part + 1 == parts ? bytes : bytes / parts * (part + 1);
    for (size_t at = from; at < to; at += 4096)
        (void)*((const volatile u8 *)w->data + at);
}

/* Some megabytes ahead, which disks want, and experts are small; in any case the next matrix. */
static void read_ahead(struct cpu_device *c, u32 current)
{
    const size_t ahead_bytes = 64 * MIB;
    for (; c->advised < c->n_matrices; c->advised++) {
        const struct weight *w = c->matrices[c->advised].weight;
        if (c->advised > current + 1 && c->advised_bytes > c->loaded_bytes + ahead_bytes)
            break;
        model_advise(c->device.model, w->data, weight_span_bytes(w), MADV_WILLNEED);
        c->advised_bytes += weight_data_bytes(w);
    }
}

static void load_matrix(struct cpu_device *c, const struct matrix *x, u32 part, u32 parts)
{
    u8 *memory = x->bytes ? c->packed_memory + x->at : NULL;
    c->forward.linear->pack(x->weight, memory, x->packed, part, parts);
    if (!x->bytes)
        touch(x->weight, part, parts);
}

/* Large matrices are loaded by all workers together; of small ones, which experts are, each worker
 * takes some, as thousands of barriers take long where others disturb a core. Returns where those
 * that are loaded together end. */
static u32 end_of_batch(const struct cpu_device *c, u32 i)
{
    const size_t large = 8 * MIB, most = c->pool.n * 4 * MIB;
    size_t bytes = 0;
    u32 end = i;
    while (end < c->n_matrices && bytes < most) {
        size_t next = weight_data_bytes(c->matrices[end].weight);
        if (next >= large)
            return MAX(end, i + 1);
        bytes += next;
        end++;
    }
    return end;
}

static void load_job(void *arg, u32 worker)
{
    struct cpu_device *c = arg;
    for (u32 i = 0, end; i < c->n_matrices; i = end) {
        end = end_of_batch(c, i);
        if (worker == 0)
            read_ahead(c, end - 1);
        if (end == i + 1)
            load_matrix(c, &c->matrices[i], worker, c->pool.n);
        else
            for (u32 j = i + worker; j < end; j += c->pool.n)
                load_matrix(c, &c->matrices[j], 0, 1);
        pool_barrier(&c->pool);
        for (u32 j = i; worker == 0 && j < end; j++) {
            const struct matrix *x = &c->matrices[j];
            size_t bytes = weight_data_bytes(x->weight);
            if (x->bytes)
                model_advise(c->device.model, x->weight->data, weight_span_bytes(x->weight),
                             MADV_DONTNEED);
            atomic_fetch_add(&c->loaded_bytes, bytes);
        }
    }
}

/* A norm's weights, or other numbers, as f32, with gemma's 1 added. */
static float *load_norm(struct carve *c, const struct tensor *t, u32 n, bool plus_one)
{
    if (!t)
        return NULL;
    float *w = carve(c, n * sizeof *w);
    for (u32 i = 0; w && i < n; i++)
        w[i] = half_load(t->data, t->type, i) + (plus_one ? 1 : 0);
    return w;
}

/* All of a weight as f32. */
static float *load_values(struct carve *c, const struct weight *w)
{
    float *values = carve(c, (size_t)w->n * w->k * sizeof *values);
    for (u32 i = 0; values && i < w->n; i++)
        linear_row(&(struct packed){.w = w}, i, values + (size_t)i * w->k);
    return values;
}

/* A value of all of `n`. */
static float *load_same(struct carve *c, u32 n, float value)
{
    float *v = carve(c, n * sizeof *v);
    for (u32 i = 0; v && i < n; i++)
        v[i] = value;
    return v;
}

/* The weights of a convolution, [channels][taps], as [taps][channels], and its bias behind them.
 * d: of a delta net, or NULL. */
static float *load_conv(struct carve *c, const struct weight *w, const struct tensor *bias,
                        const struct delta_shape *d)
{
    const size_t rows = w->k + (bias != NULL);
    float *conv = carve(c, w->n * rows * sizeof *conv), row[LIMIT_DELTA_TAPS];
    for (u32 i = 0; conv && i < w->n; i++) {
        const u32 from = d ? delta_conv_row(d, i) : i;
        linear_row(&(struct packed){.w = w}, from, row);
        for (u32 j = 0; j < w->k; j++)
            conv[(size_t)j * w->n + i] = row[j];
        if (bias)
            conv[(size_t)w->k * w->n + i] = half_load(bias->data, bias->type, from);
    }
    return conv;
}

static void layout_delta(struct carve *c, const struct delta_shape *d, const struct delta_net *from,
                         struct forward_delta *to)
{
    float *rate = load_norm(c, from->a_log, d->value_heads, false);
    for (u32 i = 0; rate && i < d->value_heads; i++)
        rate[i] = -expf(rate[i]);
    to->rate = rate;
    to->taps = d->taps + (from->conv_bias != NULL);
    to->conv = load_conv(c, &from->conv, from->conv_bias, d);
    to->dt_bias = load_norm(c, from->dt_bias, d->value_heads, false);
    to->norm = load_norm(c, from->norm, d->mamba ? delta_values(d) : d->value_dim, false);
    to->skip = load_norm(c, from->skip, d->value_heads, false);
}

static void layout_mixture_norms(struct carve *c, const struct model *m,
                                 const struct mixture_norms *from, struct forward_mixture *to)
{
    float *router = load_norm(c, from->router, m->hidden, false);
    for (u32 i = 0; router && i < m->hidden; i++)
        router[i] /= sqrtf((float)m->hidden);
    to->norm_router = router;
    to->norm_experts = load_norm(c, from->experts, m->hidden, false);
    to->norm_after_shared = load_norm(c, from->after_shared, m->hidden, false);
    to->norm_after_experts = load_norm(c, from->after_experts, m->hidden, false);
    to->scale = load_norm(c, from->scale, m->experts, false);
}

static void layout_norms(struct cpu_device *c, struct carve *carver)
{
    struct forward *f = &c->forward;
    const struct model *m = c->device.model;
    bool one = m->norm_plus_one;
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct layer *l = &m->layers[i];
        const float **norm = f->layers[i].norm;
        norm[NORM_ATTENTION] = load_norm(carver, l->norm_attention, m->hidden, one);
        norm[NORM_MLP] = load_norm(carver, l->norm_mlp, m->hidden, one);
        norm[NORM_AFTER_ATTENTION] = load_norm(carver, l->norm_after_attention, m->hidden, one);
        norm[NORM_AFTER_MLP] = load_norm(carver, l->norm_after_mlp, m->hidden, one);
        norm[NORM_AFTER_OWN] = load_norm(carver, l->norm_after_own, m->hidden, one);
        norm[NORM_Q] = load_norm(carver, l->norm_q, layer_qk_norm_n(m, l, m->heads), one);
        norm[NORM_K] = load_norm(carver, l->norm_k, layer_qk_norm_n(m, l, l->kv_heads), one);
        f->layers[i].sinks = load_norm(carver, l->sinks, m->heads, false);
        struct forward_mixture *x = f->layers[i].mixture;
        if (x && x->plain.kind)
            x->plain.data = load_values(carver, &l->mixture->router);
        if (x)
            x->bias = load_norm(carver, l->mixture->bias, m->experts, false);
        if (x && l->mixture->norms)
            layout_mixture_norms(carver, m, l->mixture->norms, x);
        if (x && m->shared_gated)
            x->share = load_values(carver, &l->mixture->share);
        if (l->delta)
            layout_delta(carver, &m->delta, l->delta, f->layers[i].delta);
        if (l->conv)
            f->layers[i].conv = load_conv(carver, l->conv, NULL, NULL);
    }
    const u32 dim = m->delta.key_dim;
    f->delta_unit_q = load_same(carver, dim, 1 / (float)dim);
    f->delta_unit_k = load_same(carver, dim, 1 / sqrtf((float)dim));
    f->ones = load_same(carver, MAX(m->head_dim, MAX(dim, m->delta.value_dim)), 1);
    float *own = load_norm(carver, m->own.norm, m->own.n, one);
    for (u32 i = 0; own && i < m->own.n; i++)
        own[i] *= (float)M_SQRT1_2;
    f->norm_own = own;
    float *final = load_norm(carver, m->norm_final, m->hidden, one);
    for (u32 i = 0; final && i < m->hidden; i++)
        final[i] *= m->logit_scale;
    f->norm_final = final;
}

/* --- memory -------------------------------------------------------------------------------- */

/* Keys, or values, of one layer. */
static size_t kv_layer_page_bytes(const struct layer *l, enum dtype type)
{
    return l->kv_heads * kv_head_bytes(type, l->head_dim);
}

size_t cpu_kv_page_bytes(const struct model *m, enum dtype type)
{
    size_t bytes = 0;
    for (u32 i = 0; i < m->layers_n; i++)
        if (layer_stores(m, &m->layers[i]))
            bytes += 2 * kv_layer_page_bytes(&m->layers[i], type);
    return bytes;
}

static void layout_kv(struct forward *f, struct carve *c)
{
    for (u32 i = 0; i < f->model->layers_n; i++) {
        const struct layer *l = &f->model->layers[i];
        struct kv_layer *kv = &f->layers[i].kv;
        if (!layer_attends(l))
            continue;
        *kv = f->layers[l->kv_layer].kv;
        if (!layer_stores(f->model, l))
            continue;
        const size_t bytes = f->limits.pages * kv_layer_page_bytes(l, f->kv_type);
        kv->type = f->kv_type;
        kv->kv_heads = l->kv_heads;
        kv->head_dim = l->head_dim;
        kv->k = carve(c, bytes);
        kv->v = carve(c, bytes);
    }
}

static void layout_states(struct forward *f, struct carve *c)
{
    const struct model *m = f->model;
    const size_t n = f->limits.slots + f->limits.checkpoints;
    for (u32 i = 0; i < m->layers_n; i++)
        f->layers[i].state = carve(c, n * layer_state_floats(m, &m->layers[i]) * sizeof(float));
}

/* What the device takes, in this order, each piece page-aligned. */
enum {
    PIECE_PACKED,
    PIECE_NORMS,
    PIECE_KV,
    PIECE_STATES,
    PIECE_ACTIVATIONS,
    PIECE_SAMPLING,
    PIECE_STACKS,
    PIECES
};

static void layout_piece(struct cpu_device *c, u32 piece, struct carve *carver)
{
    struct forward *f = &c->forward;
    if (piece == PIECE_PACKED)
        c->packed_memory = carve(carver, packed_bytes(c));
    else if (piece == PIECE_NORMS)
        layout_norms(c, carver);
    else if (piece == PIECE_KV)
        layout_kv(f, carver);
    else if (piece == PIECE_STATES)
        layout_states(f, carver);
    else if (piece == PIECE_ACTIVATIONS)
        forward_layout(f, carver);
    else if (piece == PIECE_SAMPLING)
        forward_layout_sampling(f, carver);
    else
        carve(carver, f->threads * POOL_STACK_BYTES);
}

static size_t piece_bytes(struct cpu_device *c, u32 piece)
{
    struct carve count = {0};
    layout_piece(c, piece, &count);
    return ROUND_UP(count.bytes, (size_t)4096);
}

static const char *kv_name(const struct forward *f)
{
    return f->kv_type == DTYPE_F16 ? "f16" : f->kv_type == DTYPE_I8 ? "int8" : "f32";
}

static enum err cpu_plan(struct device *d, struct plan *p, struct err_text *e)
{
    struct cpu_device *c = cpu_of(d);
    const struct forward *f = &c->forward;
    size_t in_place = d->model->file_bytes; /* what is packed is let go, matrix by matrix */
    for (u32 i = 0; i < c->n_matrices; i++)
        in_place -= c->matrices[i].bytes ? weight_data_bytes(c->matrices[i].weight) : 0;
    (void)e;
    plan_add(p, PLACE_FILE, d->model->random ? 0 : in_place, "weights in place", "",
             "of %u mapped files", d->model->files_n);
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_PACKED), "packed weights", "cpu.kernels", "for %s",
             c->set->name);
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_NORMS), "norm weights", "", "f32");
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_KV), "KV cache", "engine.kv",
             "%u pages of %u tokens, %s", d->limits.pages, LIMIT_PAGE_TOKENS, kv_name(f));
    if (model_has_states(d->model))
        plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_STATES), "layers' states", "engine.slots",
                 "%u slots, %u checkpoints, f32", d->limits.slots, d->limits.checkpoints);
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_ACTIVATIONS), "activations", "engine.step_tokens",
             "tiles of %u tokens, steps of %u", f->tile, d->limits.step_tokens);
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_SAMPLING), "logits and sampling", "engine.slots",
             "%u slots, %u rows of logits", d->limits.slots, f->head_rows);
    plan_add(p, PLACE_HOST, piece_bytes(c, PIECE_STACKS), "worker stacks", "cpu.threads",
             "%u threads", f->threads);
    return ERR_OK;
}

/* --- device_ops ---------------------------------------------------------------------------- */

static enum err cpu_load(struct device *d, struct arena *host,
                         void (*progress)(void *arg, size_t done, size_t total), void *arg,
                         struct err_text *e)
{
    struct cpu_device *c = cpu_of(d);
    u8 *memory = NULL;
    for (u32 piece = 0; piece < PIECES; piece++) {
        size_t bytes = piece_bytes(c, piece);
        memory = arena_alloc(host, bytes, 4096);
        if (!memory)
            return arena_full(host, "the CPU backend", e);
        if (piece == PIECE_PACKED || piece == PIECE_KV)
            madvise(memory, bytes, MADV_HUGEPAGE); /* fewer TLB misses; a wish, not a need */
        layout_piece(c, piece, &(struct carve){.base = memory});
    }
    struct pool_options pool = {c->forward.threads, c->pin, c->spin};
    TRY(pool_open(&c->pool, &pool, memory, e)); /* stacks come last */
    size_t total = 0;
    for (u32 i = 0; i < c->n_matrices; i++)
        total += weight_data_bytes(c->matrices[i].weight);
    pool_start(&c->pool, load_job, c);
    while (!pool_done(&c->pool, 50))
        if (progress)
            progress(arg, atomic_load(&c->loaded_bytes), total);
    if (progress)
        progress(arg, total, total);
    return ERR_OK;
}

/* Depth is 1: no step is in flight. */
static void take_states(struct forward *f, u32 slot, u32 checkpoint)
{
    const struct model *m = f->model;
    for (u32 i = 0; i < m->layers_n; i++) {
        const size_t n = layer_state_floats(m, &m->layers[i]);
        float *state = f->layers[i].state;
        memcpy(state + slot * n, state + (f->limits.slots + checkpoint) * n, n * sizeof *state);
    }
}

static void cpu_slot_begin(struct device *d, u32 slot, const u32 *prompt, u32 n, u32 checkpoint)
{
    struct forward *f = &cpu_of(d)->forward;
    ASSERT(checkpoint <= d->limits.checkpoints);
    if (checkpoint)
        take_states(f, slot, checkpoint - 1);
    ASSERT(slot < d->limits.slots);
    struct sample_counts *s = &f->counts[slot];
    memset(s->output, 0, d->model->vocab * sizeof *s->output);
    memset(s->prompt, 0, d->model->vocab * sizeof *s->prompt);
    for (u32 i = 0; i < n; i++)
        s->prompt[prompt[i]] = 1;
}

static enum err cpu_submit(struct device *d, const struct step *s, struct err_text *e)
{
    struct cpu_device *c = cpu_of(d);
    (void)e;
    device_check_step(d, s);
    forward_begin(&c->forward, s);
    pool_start(&c->pool, forward_run, &c->forward);
    return ERR_OK;
}

static int cpu_poll(struct device *d, bool wait, const struct step_result **out, u32 *n,
                    enum err *err, struct err_text *e)
{
    struct cpu_device *c = cpu_of(d);
    (void)e;
    *err = ERR_OK;
    if (!pool_done(&c->pool, wait ? -1 : 0))
        return 0;
    *out = c->forward.results;
    *n = c->forward.n_results;
    d->done_ns = c->pool.done_ns;
    return 1;
}

static int cpu_fd(struct device *d)
{
    return cpu_of(d)->pool.event;
}

static void cpu_describe(struct device *d, char *out, size_t cap)
{
    const struct cpu_device *c = cpu_of(d);
    const struct forward *f = &c->forward;
    snprintf(out, cap, "CPU: %s kernels, %s activations, %s KV, %u thread%s%s", c->set->name,
             f->linear->activation_bits == 8 ? "int8" : "f32", kv_name(f), f->threads,
             f->threads == 1 ? "" : "s", c->pin ? ", pinned" : "");
}

static size_t stored_bytes(const struct matrix *x)
{
    return x->bytes ? x->bytes : weight_data_bytes(x->weight);
}

/* Reads every matrix once, from where the kernels read it. */
static void read_job(void *arg, u32 worker)
{
    struct cpu_device *c = arg;
    for (u32 i = 0; i < c->n_matrices; i++) {
        const struct matrix *x = &c->matrices[i];
        const u8 *p = x->bytes ? c->packed_memory + x->at : x->weight->data;
        size_t share = stored_bytes(x) / 512 / c->pool.n * 512;
        c->forward.vector->read(p + share * worker, share);
    }
}

static double cpu_read_bandwidth(struct device *d)
{
    struct cpu_device *c = cpu_of(d);
    size_t bytes = 0;
    for (u32 i = 0; i < c->n_matrices; i++)
        bytes += stored_bytes(&c->matrices[i]);
    struct clock clock = clock_system();
    u64 best_ns = UINT64_MAX;
    for (u32 i = 0; i < 3; i++) {
        u64 start = clock_now_ns(&clock);
        pool_start(&c->pool, read_job, c);
        while (!pool_done(&c->pool, -1))
            ;
        u64 ns = clock_now_ns(&clock) - start;
        best_ns = MIN(best_ns, MAX(ns, (u64)1));
    }
    return (double)bytes * 1e9 / (double)best_ns;
}

static void cpu_close(struct device *d)
{
    struct cpu_device *c = cpu_of(d);
    if (c->pool.n)
        pool_close(&c->pool);
}

static const struct device_ops cpu_ops = {
    .name = "cpu",
    .plan = cpu_plan,
    .load = cpu_load,
    .slot_begin = cpu_slot_begin,
    .submit = cpu_submit,
    .poll = cpu_poll,
    .fd = cpu_fd,
    .describe = cpu_describe,
    .read_bandwidth = cpu_read_bandwidth,
    .close = cpu_close,
};

static size_t most_matrices(const struct model *m)
{
    size_t n = 4;
    for (u32 i = 0; i < m->layers_n; i++)
        n += 10 + (m->layers[i].mixture ? 1 + 3 * (size_t)m->experts : 0);
    return n;
}

static struct forward_layer *new_layers(struct arena *keep, const struct model *m)
{
    struct forward_layer *layers = ARENA_NEW(keep, struct forward_layer, m->layers_n);
    for (u32 i = 0; layers && i < m->layers_n; i++) {
        if (m->layers[i].delta)
            layers[i].delta = ARENA_NEW(keep, struct forward_delta, 1);
        if (m->layers[i].delta && !layers[i].delta)
            return NULL;
        if (!m->layers[i].mixture)
            continue;
        struct forward_mixture *x = ARENA_NEW(keep, struct forward_mixture, 1);
        if (x)
            x->experts = ARENA_NEW(keep, struct forward_expert, m->experts);
        if (!x || !x->experts)
            return NULL;
        layers[i].mixture = x;
    }
    return layers;
}

enum { DEEP_TOKENS = 32 }; /* weights are read once for so many: fewer would wait for memory */

enum err cpu_open(struct arena *keep, const struct model *model, const struct device_limits *limits,
                  const struct cpu_options *options, struct device **out, struct err_text *e)
{
    bool own;
    u32 cpus = MIN(pool_cpus(&own), (u32)LIMIT_THREADS);
    u32 threads = options->threads ? options->threads : cpus;
    if (threads > LIMIT_THREADS)
        return err_set(e, ERR_CONFIG, "cpu.threads is %u; at most %u are supported", threads,
                       LIMIT_THREADS);
    ASSERT(limits->slots <= LIMIT_SLOTS && limits->step_tokens <= LIMIT_STEP_TOKENS);
    struct cpu_device *c = arena_alloc(keep, sizeof *c, _Alignof(struct cpu_device));
    struct forward_layer *layers = new_layers(keep, model);
    struct matrix *matrices = ARENA_NEW(keep, struct matrix, most_matrices(model));
    if (!c || !layers || !matrices)
        return arena_full(keep, "the CPU backend", e);
    c->device = (struct device){.ops = &cpu_ops,
                                .model = model,
                                .limits = *limits,
                                .depth = 1,
                                .deep = DEEP_TOKENS,
                                .kv_page_bytes = cpu_kv_page_bytes(model, options->kv_type),
                                .kernels = options->set->name};
    c->most_matrices = (u32)most_matrices(model);
    c->set = options->set;
    /* Of more CPUs, and of a quota's, the kernel knows which are idle: the first are what every
     * other process that pins takes, too. */
    c->pin = options->pin && (options->pin_few || (own && threads >= cpus));
    c->spin = options->spin;
    c->matrices = matrices;
    c->forward = (struct forward){
        .model = model,
        .linear = options->set->linear,
        .vector = options->set->vector,
        .pool = &c->pool,
        .limits = *limits,
        .kv_type = options->kv_type,
        .threads = threads,
        .tile = MIN((u32)FORWARD_TILE, limits->step_tokens),
        .head_rows = MIN((u32)FORWARD_HEAD_ROWS, MIN(limits->samples, limits->step_tokens)),
        .layers = layers,
    };
    list_matrices(c);
    *out = &c->device;
    return ERR_OK;
}
