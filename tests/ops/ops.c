/* Every matrix kernel set this CPU can run, against the scalar reference and against a scalar model
 * of its own arithmetic, for every weight kind. One line a set and case. `ops --bench` times them.
 *
 * Checked: relative L2 error against the reference; bits equal to the model (so all sets of one
 * kind agree bit for bit); bits independent of m, of the split over threads and of what was in the
 * output before.
 */
#include "tests/ops/ops.h"

#include "kernels/cpu/linear_pack.h"
#include "kernels/cpu/stored.h"

#include <math.h>

static struct arena arena;
static u32 passed, failed;

void *ops_alloc(size_t bytes)
{
    void *p = arena_alloc(&arena, MAX(bytes, (size_t)1), 64);
    ASSERT(p);
    return p;
}

size_t ops_mark(void)
{
    return arena.used_bytes;
}

void ops_reset(size_t mark)
{
    arena_reset(&arena, mark);
}

u64 ops_random(u64 *state)
{
    u64 z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Sum of four uniforms: near enough to normal, with deviation 1. */
float ops_normal(u64 *state)
{
    u64 r = ops_random(state);
    float sum = 0;
    for (u32 i = 0; i < 4; i++)
        sum += (float)(r >> 16 * i & 0xffff) / 65536.0f - 0.5f;
    return sum * 1.7320508f;
}

static u16 f16_of(float f) /* truncates; to zero below the normal numbers */
{
    u32 b = half_to_bits(fabsf(f) < 0x1p-14f ? 0 * f : f);
    if (!(b & 0x7fffffff))
        return (u16)(b >> 16);
    return (u16)(b >> 16 & 0x8000) | (u16)(((b >> 13) - (112 << 10)) & 0x7fff);
}

static void store(void *p, enum dtype type, size_t i, float f)
{
    if (type == DTYPE_F32)
        ((float *)p)[i] = f;
    else
        ((u16 *)p)[i] = type == DTYPE_F16 ? f16_of(f) : (u16)(half_to_bits(f) >> 16);
}

static const void *random_floats(enum dtype type, size_t n, float middle, float spread, u64 *seed)
{
    void *p = ops_alloc(n * (type == DTYPE_F32 ? 4 : 2));
    for (size_t i = 0; i < n; i++)
        store(p, type, i, middle + spread * ops_normal(seed));
    return p;
}

static const void *random_bytes(size_t n, u64 *seed)
{
    u64 *p = ops_alloc(ROUND_UP(n, 8));
    for (size_t i = 0; i < CEIL_DIV(n, 8); i++)
        p[i] = ops_random(seed);
    return p;
}

/* Every group has `group` features, the last the rest; otherwise any order. */
static const i32 *random_order(u32 k, u32 group, u64 *seed)
{
    i32 *index = ops_alloc((size_t)k * 4);
    for (u32 i = 0; i < k; i++)
        index[i] = (i32)(i / group);
    for (u32 i = k - 1; i > 0; i--) {
        u32 j = (u32)(ops_random(seed) % (i + 1));
        i32 t = index[i];
        index[i] = index[j];
        index[j] = t;
    }
    return index;
}

/* As the second of `row_step` matrices whose rows take turns. */
static void random_mxfp4(struct weight *w, const struct ops_case *c, u64 *seed)
{
    w->group = MXFP4_GROUP;
    w->groups = c->k / MXFP4_GROUP;
    w->row_step = c->row_step;
    w->scale_type = DTYPE_E8M0;
    const u32 first = c->row_step - 1, rows = c->n * c->row_step;
    w->data = (const u8 *)random_bytes((size_t)rows * c->k / 2, seed) + first * c->k / 2;
    w->bias_type = c->type;
    w->bias = (const u8 *)random_floats(c->type, rows, 0, 1, seed) + first * dtype_bytes(c->type);
    u8 *scales = ops_alloc((size_t)rows * w->groups);
    for (size_t i = 0; i < (size_t)rows * w->groups; i++)
        scales[i] = i == first * w->groups ? 0 : (u8)(118 + ops_random(seed) % 5);
    w->scales = scales + first * w->groups;
}

struct weight ops_weight(const struct ops_case *c, u64 seed)
{
    struct weight w = {.name = c->name, .kind = c->kind, .n = c->n, .k = c->k, .bits = c->bits};
    w.type = c->type;
    w.scale_type = c->type;
    w.bias_type = c->type;
    w.bias = c->bias ? random_floats(c->type, c->n, 0, 1, &seed) : NULL;
    if (c->kind == WEIGHT_PLAIN) {
        w.data = random_floats(c->type, (size_t)c->n * c->k, 0, 0.05f, &seed);
        return w;
    }
    if (c->kind == WEIGHT_MXFP4) {
        random_mxfp4(&w, c, &seed);
        return w;
    }
    u32 per = 32 / c->bits;
    w.group = c->group ? c->group : c->k;
    w.groups = CEIL_DIV(c->k, w.group);
    w.zero_plus_one = c->v1;
    w.int8_activations = c->w8a8;
    w.scales = random_floats(c->type, (size_t)w.groups * c->n, 0.01f, 0.002f, &seed);
    w.group_index = c->act_order ? random_order(c->k, w.group, &seed) : NULL;
    w.data = random_bytes((size_t)(c->kind == WEIGHT_GPTQ ? c->n : ROUND_UP(c->n, per)) *
                              ROUND_UP(c->k, per) * c->bits / 8,
                          &seed);
    if (c->zeros)
        w.zeros = random_bytes((size_t)w.groups * ROUND_UP(c->n, per) * c->bits / 8, &seed);
    return w;
}

/* --- models of the arithmetic ---------------------------------------------------------------- */

/* Packed feature j of w is feature order[j] of the file. */
static u32 *model_order(const struct weight *w)
{
    u32 *order = ops_alloc((size_t)w->k * 4), j = 0;
    for (u32 g = 0; g < w->groups; g++)
        for (u32 k = 0; k < w->k; k++)
            if (stored_group(w, k) == g)
                order[j++] = k;
    return order;
}

static float absmax(const float *x, const u32 *order, u32 n)
{
    float most = 0;
    for (u32 i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[order ? order[i] : i]));
    return most;
}

/* One output of the int8 arithmetic of linear_int8.c, or of the f32 one of linear_f32.c. */
static float model_output(const struct weight *w, const u32 *order, const float *x, u32 n, u32 bits)
{
    u32 group = MIN(w->group, w->k), block = group == w->k ? 128 : MIN(group & -group, 128u);
    float acc = 0, whole = absmax(x, NULL, w->k);
    for (u32 k0 = 0; k0 < w->k; k0 += block) {
        u32 len = MIN(block, w->k - k0), g = k0 / group;
        i32 zero = (i32)stored_zero(w, n, g), dot = 0;
        float most = w->int8_activations ? whole : absmax(x, order + k0, len), sum = 0;
        float inverse = most > 0 ? 127 / most : 0;
        for (u32 j = k0; j < k0 + len; j++) {
            i32 q = (i32)stored_q(w, n, order[j]) - zero;
            float at = x[order[j]], rounded = rintf(at * inverse);
            dot += q * (i32)rounded;
            sum = fmaf((float)q, w->int8_activations ? rounded * (most / 127) : at, sum);
        }
        float scale = stored_scale(w, n, g);
        acc = bits == 8 ? fmaf((float)dot, scale * (most / 127), acc) : fmaf(sum, scale, acc);
    }
    return acc + stored_bias(w, n);
}

/* --- one set, one case ----------------------------------------------------------------------- */

struct ops_run ops_start(const struct linear_ops *ops, const struct weight *w, const float *x,
                         u32 m, u32 parts)
{
    struct ops_run r = {.ops = ops, .w = w, .packed = ops_alloc(sizeof *r.packed)};
    void *memory = ops_alloc(ops->pack_bytes(w));
    for (u32 part = parts; part-- > 0;)
        ops->pack(w, memory, r.packed, part, parts);
    r.a = (struct activations){.x = x, .m = m, .k = w->k, .x_stride = w->k};
    r.a.prepared = ops_alloc(ops->act_bytes(m, w->k));
    r.scratch = ops_alloc(ops->scratch_bytes(w->k));
    return r;
}

static void poison(float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = NAN;
}

/* Rows [i, i + m) of x, prepared in two parts, the outputs in `parts` parts. */
static void multiply(struct ops_run *r, u32 i, u32 m, u32 parts, float *y)
{
    u32 n = r->w->n, tile = r->ops->tile_n, tiles = CEIL_DIV(n, tile);
    struct activations a = r->a;
    a.x += (size_t)i * a.x_stride;
    a.m = m;
    memset(a.prepared, 0xff, r->ops->act_bytes(m, a.k));
    memset(r->scratch, 0xff, r->ops->scratch_bytes(a.k));
    r->ops->act_prepare(&a, r->packed, m / 2, m);
    r->ops->act_prepare(&a, r->packed, 0, m / 2);
    poison(y, (size_t)m * n);
    for (u32 part = parts; part-- > 0;) {
        u32 n0 = tiles * part / parts * tile, n1 = MIN(n, tiles * (part + 1) / parts * tile);
        if (n0 < n1)
            r->ops->matmul(r->packed, &a, y, n, n0, n1, r->scratch);
    }
}

static double relative_error(const float *y, const float *want, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    return sqrt(off / all);
}

static const char *check_set(struct ops_run *r, u32 m, const float *want, const float *model,
                             double bound, double *error)
{
    static const u32 sizes[] = {1, 33, 2, 3, 4, 7, 16, 64, 100};
    u32 n = r->w->n;
    float *y = ops_alloc((size_t)m * n * 4), *z = ops_alloc((size_t)m * n * 4);
    multiply(r, 0, m, 1, y);
    *error = relative_error(y, want, (size_t)m * n);
    if (!(*error <= bound)) /* NaN too */
        return "too far from the reference";
    if (model && memcmp(y, model, (size_t)m * n * 4) != 0)
        return "not the bits of the model";
    for (u32 s = 0; s < (r->ops == &linear_scalar ? 2 : COUNTOF(sizes)); s++)
        for (u32 i = 0; i < m; i += sizes[s]) {
            u32 some = MIN(sizes[s], m - i);
            multiply(r, i, some, 1 + i % 3, z);
            if (memcmp(z, y + (size_t)i * n, (size_t)some * n * 4) != 0)
                return "bits depend on m or on the split";
        }
    float *row = ops_alloc((size_t)r->w->k * 4), *plain = ops_alloc((size_t)r->w->k * 4);
    linear_row(&(struct packed){.w = r->w}, n - 1, plain);
    r->ops->row(r->packed, n - 1, row);
    return memcmp(row, plain, (size_t)r->w->k * 4) == 0 ? NULL : "row";
}

static void run_case(const struct ops_case *c)
{
    enum { M = 133 };
    size_t mark = arena.used_bytes;
    u64 seed = (u64)c->n << 32 | c->k;
    struct weight w = ops_weight(c, seed);
    float *x = ops_alloc((size_t)M * c->k * 4);
    for (size_t i = 0; i < (size_t)M * c->k; i++)
        x[i] = ops_normal(&seed) * (ops_random(&seed) % 97 == 0 ? 8 : 1);
    memset(x + c->k, 0, (size_t)c->k * 4); /* a row of zeros */
    struct ops_run scalar = ops_start(&linear_scalar, &w, x, M, 1);
    float *want = ops_alloc((size_t)M * c->n * 4), *model[2] = {NULL, NULL};
    multiply(&scalar, 0, M, 1, want);
    for (u32 int8 = 0; int8 < 2 && c->kind != WEIGHT_PLAIN; int8++) {
        u32 *order = model_order(&w);
        model[int8] = ops_alloc((size_t)M * c->n * 4);
        for (u32 i = 0; i < M; i++)
            for (u32 n = 0; n < c->n; n++)
                model[int8][(size_t)i * c->n + n] =
                    model_output(&w, order, x + (size_t)i * c->k, n, int8 ? 8 : 32);
    }
    for (u32 i = 0; kernel_sets[i]; i++) {
        const struct linear_ops *ops = kernel_sets[i]->linear;
        if (!kernel_sets[i]->supported())
            continue;
        bool int8 = ops->activation_bits == 8;
        double error = 0, bound = int8 && model[1] && !c->w8a8 ? 2e-2 : 2e-6;
        size_t inner = arena.used_bytes;
        struct ops_run r = ops_start(ops, &w, x, M, 3);
        const float *own = ops == &linear_scalar ? NULL : model[int8];
        const char *bad = check_set(&r, M, want, own, bound, &error);
        printf("%s %-12s %-28s error %.1e%s%s\n", bad ? "FAIL" : "ok  ", kernel_sets[i]->name,
               c->name, error, bad ? ": " : "", bad ? bad : "");
        passed += !bad;
        failed += bad != NULL;
        arena_reset(&arena, inner);
    }
    arena_reset(&arena, mark);
}

/* The stored layouts themselves, by hand: what FORMATS of the three projects write. */
/* 16 nibbles of MXFP4 in a row of their own between others, scaled by 2^3. */
static bool mxfp4_as_written(void)
{
    static const float values[16] = {0,    .5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
    u8 data[48], scales[3] = {0, 130, 255};
    float row[32];
    for (u32 i = 0; i < 48; i++)
        data[i] = i / 16 == 1 ? (u8)((2 * i & 15) | (2 * i + 1) % 16 << 4) : 0x77;
    struct weight w = {.kind = WEIGHT_MXFP4, .n = 1, .k = 32, .bits = 4, .group = 32, .groups = 1};
    w.row_step = 2, w.scale_type = DTYPE_E8M0, w.data = data + 16, w.scales = scales + 1;
    linear_row(&(struct packed){.w = &w}, 0, row);
    bool good = true;
    for (u32 i = 0; i < 32; i++)
        good &= row[i] == 8 * values[i % 16];
    w.scales = scales;
    linear_row(&(struct packed){.w = &w}, 0, row);
    return good && row[7] == 0;
}

static bool stored_as_written(void)
{
    static const u32 word[2] = {0x76543210, 0xfedcba98}, wraps[2] = {0xf0000007, 0xf0000007};
    static const u8 awq[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    static const i8 bytes[2] = {-128, 127};
    struct weight gptq = {.kind = WEIGHT_GPTQ, .n = 2, .k = 8, .bits = 4, .zeros = wraps};
    struct weight w = {.n = 8, .k = 2, .bits = 4, .groups = 2, .data = word, .zeros = word};
    bool good = true;
    gptq.data = word;
    for (u32 i = 0; i < 8; i++) {
        good &= stored_q(&gptq, 0, i) == i && stored_q(&gptq, 1, i) == i + 8; /* down k */
        w.kind = WEIGHT_AWQ; /* along n, shuffled */
        good &= stored_q(&w, i, 0) == awq[i] && stored_q(&w, i, 1) == awq[i] + 8u;
        good &= stored_zero(&w, i, 0) == awq[i] && stored_zero(&w, i, 1) == awq[i] + 8u;
        w.kind = WEIGHT_PACKED; /* zeros along n, one word a group */
        good &= stored_zero(&w, i, 0) == i && stored_zero(&w, i, 1) == i + 8;
        struct weight row = {.kind = WEIGHT_PACKED, .n = 2, .k = 8, .bits = 4, .data = word};
        good &= stored_q(&row, 0, i) == i && stored_q(&row, 1, i) == i + 8; /* along k */
    }
    gptq.n = 8; /* the stored zero of v1 is z - 1, and 15 wraps to 0 */
    good &= stored_zero(&gptq, 0, 0) == 7 && stored_zero(&gptq, 7, 1) == 15;
    gptq.zero_plus_one = true;
    good &= stored_zero(&gptq, 0, 0) == 8 && stored_zero(&gptq, 7, 1) == 0;
    struct weight int8 = {.kind = WEIGHT_INT8, .n = 2, .k = 1, .bits = 8, .data = bytes};
    good &= stored_q(&int8, 0, 0) == 0 && stored_q(&int8, 1, 0) == 255;
    return good && stored_zero(&int8, 0, 0) == 128 && mxfp4_as_written();
}

static void count(bool good, const char *what)
{
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    passed += good;
    failed += !good;
}

static const struct ops_case cases[] = {
#define CASE(...) {__VA_ARGS__},
#include "tests/ops/cases.def"
#undef CASE
};

int main(int argc, char **argv)
{
    struct err_text e = {0};
    if (arena_open(&arena, "ops", 4 * GIB, false, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    char cpu[256];
    kernels_describe_cpu(cpu, sizeof cpu);
    printf("%s\n", cpu);
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return ops_bench(argc - 2, argv + 2);
    count(stored_as_written(), "stored layouts, by hand");
    for (size_t i = 0; i < COUNTOF(cases); i++)
        if (argc < 2 || strstr(cases[i].name, argv[1]))
            run_case(&cases[i]);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
