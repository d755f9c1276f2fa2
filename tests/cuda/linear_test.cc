/* Linears and packing on a GPU or on the emulator, against plain sums in double over the values
 * that the file forms stand for. Every case packs weights in one of the file forms, runs the linear
 * with many numbers of tokens and blocks, and wants the same bits of a token from all of them.
 *
 *   linear_test [--some] [PARTS OF NAMES ...]              on the emulator
 *   linear_test --gpu IMAGE [--some] [PARTS OF NAMES ...]  on a GPU
 *
 * --some: a third of the ways of each, in turns.
 *
 * g++ -std=gnu++17 -O2 -mf16c -Wall -Wextra -Wno-unknown-pragmas -static-libstdc++ -static-libgcc \
 *     -I. -x c++ tests/cuda/linear_test.cc tests/cuda/harness.cc \
 *     tests/fakecuda/{atomics,emulate,tensor}.cc kernels/cuda/step.cu -ldl -o linear_test
 */
#include "tests/cuda/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static u32 passed, failed;
static bool some;

static void verdict(bool ok, const char *what, const char *detail)
{
    if (ok)
        passed++;
    else
        failed++;
    if (!ok)
        printf("FAIL %s: %s\n", what, detail);
}

/* --- random numbers and small floats --------------------------------------------------------- */

static u64 seed = 1;

static u32 random_u32(void) /* splitmix64 */
{
    u64 z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (u32)(z >> 32);
}

static float random_float(void) /* about normal */
{
    float v = 0;
    for (u32 i = 0; i < 4; i++)
        v += (float)random_u32() / 4294967296.0f - 0.5f;
    return v * 1.7f;
}

static u16 half_of(float v)
{
    half_float h = (half_float)v;
    u16 r;
    memcpy(&r, &h, 2);
    return r;
}

static float float_of_half(u16 v)
{
    half_float h;
    memcpy(&h, &v, 2);
    return (float)h;
}

static u32 bits_of(float v)
{
    u32 r;
    memcpy(&r, &v, 4);
    return r;
}

static float of_bits(u32 v)
{
    float r;
    memcpy(&r, &v, 4);
    return r;
}

static u32 type_bytes(u32 type)
{
    return type == DTYPE_F32 ? 4 : 2;
}

/* Rounds v to a type and appends its bytes. */
static float append(std::vector<u8> &to, u32 type, float v)
{
    u8 bytes[4];
    u16 h = type == DTYPE_F16 ? half_of(v) : (u16)(bits_of(v) >> 16);
    u32 w = bits_of(v);
    memcpy(bytes, type == DTYPE_F32 ? (void *)&w : (void *)&h, type_bytes(type));
    to.insert(to.end(), bytes, bytes + type_bytes(type));
    return type == DTYPE_F32 ? v : type == DTYPE_F16 ? float_of_half(h) : of_bits((u32)h << 16);
}

/* --- weights in file form ----------------------------------------------------------------------
 */

struct form {
    u32 kind, bits, group; /* group 0: one a row */
    bool zeros, plus_one, act_order, w8a8, bias;
    u32 type; /* of scales, or of the plain values */
    u32 misaligned;
};

struct file {
    struct weight w;
    std::vector<u8> data, zeros, scales, bias;
    std::vector<double> value; /* [n][k] */
    std::vector<double> bias_value;
};

static void put_word(std::vector<u8> &v, size_t i, u32 shift, u32 field)
{
    for (u32 b = 0; b < 4; b++)
        v[i * 4 + b] |= (u8)(((u64)field << shift) >> 8 * b);
}

static u32 awq_place(u32 column) /* of a word: columns 0, 2, 4, 6, 1, 3, 5, 7 */
{
    static const u32 at[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return at[column % 8];
}

static void put_field(struct file *f, std::vector<u8> &v, bool zero, u32 n, u32 k, u32 groups,
                      u32 q)
{
    const struct weight *w = &f->w;
    u32 bits = w->bits, per = 32 / bits;
    if (w->kind == WEIGHT_INT8)
        v[zero ? n : (size_t)n * w->k + k] = (u8)(q ^ 0x80);
    else if (w->kind == WEIGHT_AWQ)
        put_word(v, (size_t)k * (w->n / 8) + n / 8, awq_place(n) * 4, q);
    else if (w->kind == WEIGHT_GPTQ && zero)
        put_word(v, (size_t)k * CEIL_DIV(w->n, per) + n / per, n % per * bits,
                 (q - w->zero_plus_one) & ((1u << bits) - 1));
    else if (w->kind == WEIGHT_GPTQ)
        put_word(v, (size_t)(k / per) * w->n + n, k % per * bits, q);
    else if (zero)
        put_word(v, (size_t)(n / per) * groups + k, n % per * bits, q);
    else
        put_word(v, (size_t)n * CEIL_DIV(w->k, per) + k / per, k % per * bits, q);
}

static void make_plain(struct file *f)
{
    for (size_t i = 0; i < (size_t)f->w.n * f->w.k; i++)
        f->value.push_back(append(f->data, f->w.type, random_float() * 0.05f));
}

static void make_scales(struct file *f, std::vector<float> &scale)
{
    struct weight *w = &f->w;
    bool by_group = w->kind == WEIGHT_GPTQ || w->kind == WEIGHT_AWQ;
    scale.resize((size_t)w->n * w->groups);
    for (u32 i = 0; i < (by_group ? w->groups : w->n); i++)
        for (u32 j = 0; j < (by_group ? w->n : w->groups); j++) {
            float s = append(f->scales, w->scale_type, 0.002f + 0.01f * fabsf(random_float()));
            scale[by_group ? (size_t)j * w->groups + i : (size_t)i * w->groups + j] = s;
        }
}

static void make_quantised(struct file *f, const struct form *form,
                           const std::vector<u32> &group_of)
{
    struct weight *w = &f->w;
    u32 n = w->n, k = w->k, top = (1u << w->bits) - 1, per = 32 / w->bits;
    f->data.resize(w->kind == WEIGHT_INT8   ? (size_t)n * k
                   : w->kind == WEIGHT_GPTQ ? (size_t)CEIL_DIV(k, per) * n * 4
                   : w->kind == WEIGHT_AWQ  ? (size_t)k * (n / 8) * 4
                                            : (size_t)n * CEIL_DIV(k, per) * 4);
    std::vector<float> scale;
    make_scales(f, scale);
    std::vector<u32> zero((size_t)n * w->groups, 1u << (w->bits - 1));
    if (form->zeros) {
        f->zeros.resize((size_t)(CEIL_DIV(n, per) * 4 + 4) * w->groups + n);
        for (u32 i = 0; i < n; i++)
            for (u32 g = 0; g < w->groups; g++) {
                u32 z = random_u32() & top;
                zero[(size_t)i * w->groups + g] = z;
                put_field(f, f->zeros, true, i, g, w->groups, z);
            }
    }
    for (u32 i = 0; i < n; i++)
        for (u32 j = 0; j < k; j++) {
            u32 q = random_u32() & top;
            size_t g = (size_t)i * w->groups + group_of[j];
            put_field(f, f->data, false, i, j, w->groups, q);
            f->value.push_back((double)scale[g] * ((double)q - zero[g]));
        }
}

static const void *on_device(const std::vector<u8> &v, u32 misaligned)
{
    if (v.empty())
        return NULL;
    u8 *p = (u8 *)gpu_take(v.size() + misaligned);
    gpu_put(p + misaligned, v.data(), v.size());
    return p + misaligned;
}

static struct file *make_file(const struct form *form, u32 n, u32 k,
                              const std::vector<u32> &group_of)
{
    struct file *f = new struct file();
    struct weight *w = &f->w;
    w->name = "w";
    w->kind = (enum weight_kind)form->kind;
    w->n = n;
    w->k = k;
    w->bits = form->bits;
    w->group = form->group && form->group < k ? form->group : k;
    w->groups = CEIL_DIV(k, w->group);
    w->zero_plus_one = form->plus_one;
    w->int8_activations = form->w8a8;
    w->type = w->scale_type = w->bias_type = (enum dtype)form->type;
    if (form->kind == WEIGHT_PLAIN)
        make_plain(f);
    else
        make_quantised(f, form, group_of);
    for (u32 i = 0; i < n; i++)
        f->bias_value.push_back(form->bias ? append(f->bias, form->type, random_float()) : 0);
    w->data = on_device(f->data, form->misaligned);
    w->zeros = on_device(f->zeros, form->misaligned);
    w->scales = on_device(f->scales, form->misaligned);
    w->bias = on_device(f->bias, form->misaligned);
    return f;
}

/* --- packing ------------------------------------------------------------------------------------
 */

struct order {
    std::vector<u32> group_of; /* [features] */
    std::vector<u32> at;       /* [k] or empty */
    u32 k, group;              /* packed */
};

/* Groups of a multiple of 32 packed inputs, features sorted by group. */
static struct order make_order(const struct form *form, u32 features)
{
    struct order o;
    u32 group = form->group && form->group < features ? form->group : features;
    for (u32 i = 0; i < features; i++)
        o.group_of.push_back(i / group);
    for (u32 i = features - 1; form->act_order && i > 0; i--)
        std::swap(o.group_of[i], o.group_of[random_u32() % (i + 1)]);
    bool one = group == features, padded = !one && group % 32 != 0;
    o.group = one ? 0 : ROUND_UP(group, 32u);
    if (padded || form->act_order) {
        for (u32 g = 0; g < CEIL_DIV(features, group); g++) {
            for (u32 i = 0; i < features; i++)
                if (o.group_of[i] == g)
                    o.at.push_back(i);
            while (!one && o.at.size() % o.group)
                o.at.push_back(ORDER_NONE);
        }
        while (o.at.size() % MATRIX_K_UNIT)
            o.at.push_back(ORDER_NONE);
        o.k = (u32)o.at.size();
    } else {
        o.k = ROUND_UP(features, (u32)MATRIX_K_UNIT);
    }
    if (one)
        o.group = o.k;
    return o;
}

static u32 matrix_kind_of(const struct form *f)
{
    return f->kind == WEIGHT_PLAIN ? MATRIX_HALF : f->bits == 4 ? MATRIX_INT4 : MATRIX_INT8;
}

static struct matrix make_matrix(const struct form *form, const struct order *o, u32 n)
{
    struct matrix m = {};
    u32 blocks = CEIL_DIV(n, 16u);
    m.kind = matrix_kind_of(form);
    m.n = n;
    m.k = o->k;
    m.group = o->group % 128 || form->type == DTYPE_F32 ? 32 : 128;
    m.groups = o->k / m.group;
    m.scale_type = form->type;
    m.slice = ROUND_UP(CEIL_DIV(o->k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT);
    size_t bytes = (size_t)blocks * 16 * o->k * (4 << m.kind) / 8, scales = blocks * 16 * m.groups;
    m.data = (u8 *)gpu_take(bytes);
    m.scales = gpu_take(m.kind == MATRIX_HALF ? blocks * 64 : scales * type_bytes(form->type));
    m.zeros = form->zeros ? (u8 *)gpu_take(scales) : NULL;
    m.bias = form->bias ? (float *)gpu_take(n * sizeof(float)) : NULL;
    return m;
}

static void pack(const struct file *f, const struct matrix *m, const struct order *o,
                 const u32 *order, u32 run, u32 at)
{
    struct gpu_pack p = {f->w, *m, order, run, 16, at, f->w.n, o->group};
    gpu_launch("pack", 2, 256, &p, sizeof p);
}

/* --- running ------------------------------------------------------------------------------------
 */

/* Two rows have what is no number: theirs are none, and nobody else's. */
enum { TOKENS = 130, ROW_EXTRA = 5, NAN_TOKEN = 7, INFINITE_TOKEN = 9 };

struct test {
    const char *name;
    u32 features, parts, n[LINEAR_PARTS];
    struct form form[LINEAR_PARTS];
    u32 input, output, activation;
    float softcap;
};

struct bench_op { /* host copies of what the kernel sees */
    struct op op;
    u32 columns;
    struct file *file[LINEAR_PARTS], *up;
    struct order order;
    std::vector<float> x, norm, y_before;
};

static u32 columns_of(const struct test *t)
{
    u32 columns = 0;
    for (u32 i = 0; i < t->parts; i++)
        columns += ROUND_UP(t->n[i], 8u);
    return columns + ROW_EXTRA;
}

static void make_weights(const struct test *t, struct bench_op *b)
{
    struct op_linear *l = &b->op.linear;
    u32 at = 0;
    b->order = make_order(&t->form[0], t->features);
    const u32 *order = b->order.at.empty() ? NULL : gpu_copy_of(b->order.at.data(), b->order.k);
    l->parts = t->parts;
    l->in.order = order;
    l->in.k = b->order.k;
    for (u32 i = 0; i < t->parts; i++) {
        struct order o = make_order(&t->form[i], t->features); /* the same features, other groups */
        if (t->form[i].act_order || i == 0)
            o = b->order;
        bool gate = t->output == OUTPUT_GATE;
        b->file[i] = make_file(&t->form[i], t->n[i], t->features, o.group_of);
        l->part[i] = make_matrix(&t->form[i], &o, gate ? CEIL_DIV(t->n[i], 8u) * 16 : t->n[i]);
        pack(b->file[i], &l->part[i], &o, order, gate ? 8 : 16, 0);
        if (gate) {
            b->up = make_file(&t->form[i], t->n[i], t->features, o.group_of);
            pack(b->up, &l->part[i], &o, order, 8, 8);
        }
        l->at[i] = at;
        at += ROUND_UP(t->n[i], 8u);
    }
}

static void make_op(const struct test *t, struct bench_op *b)
{
    struct op_linear *l = &b->op.linear;
    b->columns = columns_of(t);
    make_weights(t, b);
    struct input *in = &l->in;
    in->features = t->features;
    in->stride = t->features + 3;
    in->eps = 1e-5f;
    in->kind = t->input;
    in->int8 = t->form[0].w8a8;
    in->group = l->part[0].kind == MATRIX_INT4 ? l->part[0].group : 0;
    b->x.resize((size_t)TOKENS * in->stride);
    for (u32 i = 0; i < TOKENS; i++) {
        float size = i % 7 == 3 ? 1e-4f : i % 7 == 5 ? 3e3f : 1;
        for (u32 j = 0; j < t->features; j++) {
            const u32 slice = j * MATRIX_SLICES / t->features;
            float v = i == 4 ? 0 : random_float() * size * (j % 61 == 7 ? 20 : 1);
            if (i == 6) /* slices of other sizes, and an empty one */
                v = slice == 5 ? 0 : v * exp2f(-10.0f * (float)(slice % 3));
            if (i == 2) /* sums as large as they may be, of which the last bit counts */
                v = j % 97 == 13 ? 0x1p-12f : 0x1.ffcp0f;
            if (j == t->features / 3 && (i == NAN_TOKEN || i == INFINITE_TOKEN))
                v = i == NAN_TOKEN ? NAN : -INFINITY;
            b->x[(size_t)i * in->stride + j] = v;
        }
    }
    for (u32 j = 0; j < t->features; j++)
        b->norm.push_back(1 + 0.3f * random_float());
    in->x = gpu_copy_of(b->x.data(), b->x.size());
    in->norm = gpu_copy_of(b->norm.data(), b->norm.size());
    in->room = in->k;
    in->prepared =
        (u16 *)gpu_take((size_t)ROUND_UP(TOKENS, 128) * in->k / 128 * PREPARED_GROUP_BYTES);
    in->prepared_scale = (float *)gpu_take(ROUND_UP(TOKENS, 128) * MATRIX_SLICES * sizeof(float));
    in->prepared_factor = (float *)gpu_take(ROUND_UP(TOKENS, 8) * sizeof(float));
    l->output = t->output;
    l->activation = t->activation;
    l->softcap = t->softcap;
    l->y_stride = b->columns;
    l->y = (float *)gpu_take((size_t)TOKENS * b->columns * sizeof(float));
    l->old = l->y;
    l->partial = (float *)gpu_take(LINEAR_PARTIALS * sizeof(float));
    l->arrived = (u32 *)gpu_take(LINEAR_COUNTERS * sizeof(u32));
    l->awaited = gpu_awaited_sums();
    b->op.kind = OP_LINEAR;
    for (size_t i = 0; i < (size_t)TOKENS * b->columns; i++)
        b->y_before.push_back(random_float());
}

struct result {
    std::vector<float> y;
};

struct way { /* of running it */
    u32 tokens, blocks, shared_bytes, ring_bytes;
    u32 wanted;         /* 0: all tokens; else one row, of token wanted - 1 */
    bool mid = false;   /* by `mid_..` rather than `prefill_..`, if both can */
    bool alone = false; /* as on a GPU whose warps multiply alone */
};

static struct result run(struct bench_op *b, const struct way *way)
{
    struct op_linear *l = &b->op.linear;
    struct gpu_step step = {};
    struct gpu_want want = {way->wanted - 1, 0, 0, 0, 0};
    struct result r;
    step.n_tokens = way->tokens;
    step.n_wants = 1;
    step.wants = gpu_copy_of(&want, 1);
    l->in.wanted = way->wanted != 0;
    gpu_put(l->y, b->y_before.data(), b->y_before.size() * sizeof(float));
    static u32 *barrier;
    if (!barrier)
        barrier = (u32 *)gpu_take(8);
    struct gpu_run p = {};
    const struct op ops[] = {b->op, b->op, b->op};
    p.ops = gpu_copy_of(ops, COUNTOF(ops));
    p.step = gpu_copy_of(&step, 1);
    p.state.barrier = barrier;
    p.last = 1;
    u32 most = (gpu_shared_bytes_max() - (u32)STEP_SHARED_BYTES) & ~127u;
    u32 bytes = MIN(way->shared_bytes + way->ring_bytes, most);
    p.ring_bytes = decode_ring_bytes(way->tokens, l->in.k, 0, bytes);
    p.shared_bytes = bytes - GPU_WARPS * p.ring_bytes;
    const char *mid = gpu_mid_of(l, way->tokens, bytes + STEP_SHARED_BYTES);
    if (way->tokens > PREFILL_TOKENS && !way->mid)
        mid = NULL;
    const char *one = gpu_one_of(l, way->tokens, bytes + STEP_SHARED_BYTES);
    bool prefill = mid || one;
    if (prefill && l->output != OUTPUT_ADD) /* a few linears in turn */
        p.last = COUNTOF(ops);
    if (one) {
        p.ring_bytes = 0;
        p.shared_bytes = bytes - ONE_RINGS_BYTES;
    }
    if (prefill)
        gpu_launch(one ? one : mid, way->blocks, bytes + STEP_SHARED_BYTES, &p, sizeof p);
    for (u32 kind = MATRIX_INT4; kind <= MATRIX_HALF; kind++) {
        bool any = false;
        for (u32 i = 0; i < l->parts; i++)
            any |= l->part[i].kind == kind;
        const char *kernel = gpu_prefill_of(kind, way->tokens, bytes + STEP_SHARED_BYTES);
        prefill |= kernel != NULL;
        if (any && kernel && !mid)
            gpu_launch(kernel, way->blocks, bytes + STEP_SHARED_BYTES, &p, sizeof p);
    }
    if (!prefill)
        gpu_launch(p.ring_bytes ? "decode" : "step", way->blocks, bytes + STEP_SHARED_BYTES, &p,
                   sizeof p);
    r.y.resize(b->y_before.size());
    gpu_get(r.y.data(), l->y, r.y.size() * sizeof(float));
    return r;
}

/* --- the reference ------------------------------------------------------------------------------
 */

static std::vector<double> input_row(const struct test *t, const struct bench_op *b, u32 token)
{
    const float *x = &b->x[(size_t)token * (t->features + 3)];
    std::vector<double> v(x, x + t->features);
    if (t->input == INPUT_NORM) {
        double sum = 0;
        for (double e : v)
            sum += e * e;
        for (u32 i = 0; i < t->features; i++)
            v[i] *= b->norm[i] / sqrt(sum / t->features + 1e-5f);
    }
    if (!t->form[0].w8a8)
        return v;
    float most = 0;
    for (double e : v)
        most = fmaxf(most, fabsf((float)e));
    for (double &e : v)
        e = most > 0 ? rintf((float)e * (127 / most)) * (double)(most / 127) : 0;
    return v;
}

/* One output, and the scale against which its error is measured. */
static double dot(const struct file *f, u32 n, const std::vector<double> &x, double *norm)
{
    double sum = 0, ww = 0, xx = 0;
    const double *w = &f->value[(size_t)n * x.size()];
    for (size_t i = 0; i < x.size(); i++) {
        sum += w[i] * x[i];
        ww += w[i] * w[i];
        xx += x[i] * x[i];
    }
    *norm = sqrt(ww * xx);
    return sum + f->bias_value[n];
}

static double activate(double x, u32 activation)
{
    if (activation == ACT_SILU)
        return x / (1 + exp(-x));
    if (activation == ACT_GELU_TANH)
        return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067812));
}

static const char *expect_row(const struct test *t, const struct bench_op *b,
                              const struct result *r, u32 token, double *worst)
{
    const bool none = token == NAN_TOKEN || token == INFINITE_TOKEN;
    std::vector<double> x = input_row(t, b, token);
    const float *y = &r->y[(size_t)token * b->columns];
    const float *before = &b->y_before[(size_t)token * b->columns];
    std::vector<bool> mine(b->columns);
    for (u32 i = 0; i < t->parts; i++)
        for (u32 n = 0; n < t->n[i]; n++) {
            u32 at = b->op.linear.at[i] + n;
            double norm, up_norm, want = dot(b->file[i], n, x, &norm);
            if (t->output == OUTPUT_GATE) {
                double gate = want, up = dot(b->up, n, x, &up_norm);
                want = activate(gate, t->activation) * up;
                norm = norm * (1 + fabs(up)) + up_norm * fabs(activate(gate, t->activation));
            }
            if (t->output == OUTPUT_ADD)
                want += before[at];
            if (t->softcap > 0)
                want = t->softcap * tanh(want / t->softcap);
            double error = fabs(y[at] - want) / (norm + 1e-3);
            if (!none && !(error <= *worst))
                *worst = error;
            if (none && !isnan(y[at]))
                return "a number, of what is none";
            mine[at] = true;
        }
    for (u32 i = 0; i < b->columns; i++)
        if (!mine[i] && t->output != OUTPUT_GATE && bits_of(y[i]) != bits_of(before[i]))
            return "wrote beside its outputs";
    return NULL;
}

/* Are these the same bits, or none of both a number? */
static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bits_of(a[i]) != bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void compare(const struct test *t, const struct bench_op *b, const struct result *base,
                    const struct result *r, const struct way *way)
{
    char text[200];
    u32 rows = way->wanted ? 1 : way->tokens;
    for (u32 i = 0; i < TOKENS; i++) {
        const float *want = i < rows ? &base->y[(way->wanted ? way->wanted - 1 : i) * b->columns]
                                     : &b->y_before[(size_t)i * b->columns];
        if (way->wanted && i == 0 && t->output == OUTPUT_ADD)
            continue; /* adds to another row */
        u32 n = way->wanted && i == 0 ? t->n[0] : b->columns;
        if (same(&r->y[(size_t)i * b->columns], want, n))
            continue;
        snprintf(text, sizeof text,
                 "%u tokens, %u blocks, %u + %u KiB, wanted %u%s: row %u differs", way->tokens,
                 way->blocks, way->shared_bytes >> 10, way->ring_bytes >> 10, way->wanted,
                 way->alone ? ", warps alone" : "", i);
        verdict(false, t->name, text);
        return;
    }
    verdict(true, t->name, "");
}

static const struct way ways[] = {
    {130, 3, 64 << 10, 33 << 10, 0}, /* the one that others are compared to */
    {130, 2, 64 << 10, 34 << 10, 0},        {130, 5, 146 << 10, 78 << 10, 0},
    {1, 1, 64 << 10, 33 << 10, 0},          {1, 3, 64 << 10, 33 << 10, 0},
    {1, 5, 64 << 10, 56 << 10, 0},          {2, 2, 76 << 10, 148 << 10, 0},
    {3, 3, 146 << 10, 78 << 10, 0},         {5, 1, 64 << 10, 33 << 10, 0},
    {8, 3, 64 << 10, 33 << 10, 0},          {8, 2, 12 << 10, 85 << 10, 0}, /* does not fit */
    {9, 6, 64 << 10, 33 << 10, 0},          {16, 9, 64 << 10, 33 << 10, 0},
    {17, 2, 64 << 10, 33 << 10, 0},         {33, 5, 64 << 10, 33 << 10, 0},
    {64, 1, 64 << 10, 33 << 10, 0},         {65, 7, 64 << 10, 33 << 10, 0},
    {128, 4, 146 << 10, 78 << 10, 0},       {12, 3, 64 << 10, 33 << 10, 12},
    {40, 17, 64 << 10, 33 << 10, 0},        {70, 4, 146 << 10, 78 << 10, 0},
    {130, 2, 150 << 10, 33 << 10, 0},       {129, 1, 150 << 10, 75 << 10, 0},
    {66, 17, 150 << 10, 75 << 10, 0},       {96, 3, 150 << 10, 75 << 10, 70},
    {9, 3, 150 << 10, 75 << 10, 0},         {16, 17, 150 << 10, 60 << 10, 0},
    {1, 1, 150 << 10, 60 << 10, 0},         {1, 3, 150 << 10, 60 << 10, 0},
    {1, 17, 150 << 10, 70 << 10, 0},        {1, 2, 150 << 10, 60 << 10, 1},
    {17, 2, 150 << 10, 75 << 10, 0},        {32, 13, 150 << 10, 60 << 10, 0},
    {24, 5, 150 << 10, 75 << 10, 20},       {33, 1, 150 << 10, 75 << 10, 0},
    {64, 17, 150 << 10, 60 << 10, 0},       {61, 4, 150 << 10, 75 << 10, 0},
    {65, 3, 150 << 10, 75 << 10, 0, true},  {97, 17, 150 << 10, 60 << 10, 0, true},
    {128, 5, 150 << 10, 75 << 10, 0, true}, {128, 1, 150 << 10, 75 << 10, 70, true},
};

static void run_test(const struct test *tests, const struct test *t)
{
    struct bench_op b = {};
    double worst = 0;
    make_op(t, &b);
    struct result base = run(&b, &ways[0]);
    const char *wrong = NULL;
    for (u32 i = 0; i < TOKENS; i += i < 10 ? 1 : 13) {
        const char *said = expect_row(t, &b, &base, i, &worst);
        wrong = wrong ? wrong : said;
    }
    verdict(!wrong, t->name, wrong ? wrong : "");
    bool ok = worst <= (t->form[0].w8a8 && t->input == INPUT_NORM ? 3e-3 : 5e-4);
    for (u32 i = 0; i < 2 * COUNTOF(ways); i++) {
        struct way way = ways[i / 2];
        way.alone = i % 2;
        if (i == 0 || i % 4 == 3 || (!gpu_choose_groups(!way.alone) && way.alone) ||
            (some && (i / 2 + (size_t)(t - tests)) % 3))
            continue;
        struct result r = run(&b, &way);
        compare(t, &b, &base, &r, &way);
    }
    gpu_choose_groups(true);
    printf("%-28s error %.2e of |w||x|\n", t->name, worst);
    fflush(stdout);
    verdict(ok, t->name, "error");
}

/* form: kind, bits, group, zeros, plus_one, act_order, w8a8, bias, type, misaligned */
#define GPTQ4(group)                                                         \
    {                                                                        \
        WEIGHT_GPTQ, 4, group, true, true, false, false, false, DTYPE_F16, 0 \
    }
#define GPTQ8(group)                                                         \
    {                                                                        \
        WEIGHT_GPTQ, 8, group, true, true, false, false, false, DTYPE_F16, 0 \
    }
#define W8A8                                                              \
    {                                                                     \
        WEIGHT_INT8, 8, 0, false, false, false, true, true, DTYPE_BF16, 0 \
    }
#define PLAIN(type)                                                    \
    {                                                                  \
        WEIGHT_PLAIN, 0, 0, false, false, false, false, false, type, 0 \
    }

static const struct test tests[] = {
    {"gptq4 g128", 1024, 1, {64}, {GPTQ4(128)}, INPUT_NORM, OUTPUT_STORE, 0, 0},
    {"gptq4 g32 v2 sym act-order",
     256,
     1,
     {48},
     {{WEIGHT_GPTQ, 4, 32, false, false, true, false, true, DTYPE_F16, 0}},
     INPUT_ROWS,
     OUTPUT_ADD,
     0,
     0},
    {"gptq4 g48 act-order",
     240,
     1,
     {24},
     {{WEIGHT_GPTQ, 4, 48, true, false, true, false, false, DTYPE_BF16, 2}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"gptq4 g8", 72, 1, {16}, {GPTQ4(8)}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"gptq4 one group", 584, 1, {24}, {GPTQ4(0)}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"gptq4 long rows", 6000, 1, {64}, {GPTQ4(256)}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"gptq4 very long rows", 10240, 1, {24}, {GPTQ4(128)}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"gptq4 norm, long rows", 5120, 1, {48}, {GPTQ4(128)}, INPUT_NORM, OUTPUT_STORE, 0, 0},
    {"gptq8 long rows",
     4104,
     1,
     {32},
     {{WEIGHT_GPTQ, 8, 64, true, true, false, false, true, DTYPE_F16, 0}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"gptq4 g96", 960, 1, {40}, {GPTQ4(96)}, INPUT_NORM, OUTPUT_STORE, 0, 0},
    {"gptq8 g128 act-order",
     640,
     1,
     {40},
     {{WEIGHT_GPTQ, 8, 128, true, true, true, false, true, DTYPE_F16, 1}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     30},
    {"gptq8 g32 sym",
     704,
     1,
     {150},
     {{WEIGHT_GPTQ, 8, 32, false, false, false, false, false, DTYPE_F32, 0}},
     INPUT_ROWS,
     OUTPUT_ADD,
     0,
     0},
    {"awq g64",
     1152,
     1,
     {136},
     {{WEIGHT_AWQ, 4, 64, true, false, false, false, true, DTYPE_F16, 0}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"awq g128 gate",
     512,
     1,
     {72},
     {{WEIGHT_AWQ, 4, 128, true, false, false, false, false, DTYPE_F16, 3}},
     INPUT_NORM,
     OUTPUT_GATE,
     ACT_SILU,
     0},
    {"packed4 g32 sym gate",
     480,
     1,
     {77},
     {{WEIGHT_PACKED, 4, 32, false, false, false, false, true, DTYPE_BF16, 0}},
     INPUT_NORM,
     OUTPUT_GATE,
     ACT_GELU_TANH,
     0},
    {"packed4 g40 asym odd n",
     201,
     1,
     {37},
     {{WEIGHT_PACKED, 4, 40, true, false, false, false, false, DTYPE_F32, 2}},
     INPUT_ROWS,
     OUTPUT_STORE,
     0,
     0},
    {"packed8 g64 asym act-order",
     320,
     1,
     {33},
     {{WEIGHT_PACKED, 8, 64, true, false, true, false, true, DTYPE_BF16, 0}},
     INPUT_ROWS,
     OUTPUT_STORE,
     0,
     0},
    {"int8 w8a8 rows", 1000, 1, {50}, {W8A8}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"int8 w8a8 very long rows", 9216, 1, {20}, {W8A8}, INPUT_ROWS, OUTPUT_STORE, 0, 0},
    {"int8 w8a8 norm asym",
     520,
     1,
     {19},
     {{WEIGHT_INT8, 8, 0, true, false, false, true, false, DTYPE_F32, 1}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"int8 w8a16 gate",
     448,
     1,
     {24},
     {{WEIGHT_INT8, 8, 0, false, false, false, false, false, DTYPE_BF16, 0}},
     INPUT_NORM,
     OUTPUT_GATE,
     ACT_GELU,
     0},
    {"bf16", 720, 1, {100}, {PLAIN(DTYPE_BF16)}, INPUT_NORM, OUTPUT_STORE, 0, 0},
    {"f16 odd k", 333, 1, {17}, {PLAIN(DTYPE_F16)}, INPUT_ROWS, OUTPUT_ADD, 0, 0},
    {"bf16 bias",
     776,
     1,
     {104},
     {{WEIGHT_PLAIN, 0, 0, false, false, false, false, true, DTYPE_BF16, 1}},
     INPUT_ROWS,
     OUTPUT_ADD,
     0,
     0},
    {"f32 softcap bias",
     64,
     1,
     {300},
     {{WEIGHT_PLAIN, 0, 0, false, false, false, false, true, DTYPE_F32, 1}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     3},
    {"bf16 gate", 256, 1, {136}, {PLAIN(DTYPE_BF16)}, INPUT_NORM, OUTPUT_GATE, ACT_SILU, 0},
    {"awq g32 gate of two tiles",
     640,
     1,
     {296},
     {{WEIGHT_AWQ, 4, 32, true, false, false, false, true, DTYPE_BF16, 0}},
     INPUT_NORM,
     OUTPUT_GATE,
     ACT_SILU,
     0},
    {"packed8 g128 two tiles",
     778,
     1,
     {271},
     {{WEIGHT_PACKED, 8, 128, true, false, true, false, false, DTYPE_F16, 0}},
     INPUT_ROWS,
     OUTPUT_ADD,
     0,
     0},
    {"gptq4 g128 of many units",
     1152,
     1,
     {696},
     {{WEIGHT_GPTQ, 4, 128, true, true, false, false, true, DTYPE_F16, 0}},
     INPUT_ROWS,
     OUTPUT_ADD,
     0,
     0},
    {"awq g128 gate of many units",
     1024,
     1,
     {328},
     {{WEIGHT_AWQ, 4, 128, true, false, false, false, false, DTYPE_BF16, 0}},
     INPUT_NORM,
     OUTPUT_GATE,
     ACT_SILU,
     0},
    {"packed4 g128 sym, parts",
     2432,
     3,
     {301, 66, 40},
     {{WEIGHT_PACKED, 4, 128, false, false, false, false, true, DTYPE_BF16, 0},
      GPTQ4(128),
      {WEIGHT_PACKED, 4, 128, false, false, false, false, false, DTYPE_F16, 0}},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"three parts of two tiles",
     640,
     3,
     {266, 130, 24},
     {GPTQ8(128), PLAIN(DTYPE_F16), GPTQ8(128)},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"three parts of one kind",
     512,
     3,
     {144, 48, 56},
     {GPTQ8(128), GPTQ8(64), GPTQ8(32)},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"three parts of small groups",
     512,
     3,
     {144, 48, 56},
     {GPTQ4(96), GPTQ4(64), GPTQ4(32)},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
    {"three parts of two kinds",
     512,
     3,
     {40, 136, 24},
     {GPTQ8(128),
      {WEIGHT_PACKED, 8, 64, true, false, false, false, true, DTYPE_BF16, 0},
      PLAIN(DTYPE_F16)},
     INPUT_NORM,
     OUTPUT_STORE,
     0,
     0},
};

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    int first = gpu_is_real() ? 3 : 1;
    some = first < argc && strcmp(argv[first], "--some") == 0;
    first += some;
    for (const struct test &t : tests) {
        bool wanted = argc == first;
        for (int i = first; i < argc; i++)
            wanted |= strstr(t.name, argv[i]) != NULL;
        if (wanted)
            run_test(tests, &t);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0 || passed == 0;
}
