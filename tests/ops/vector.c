/* Every SIMD set of vector kernels against the scalar reference, and bit-identity of attention
 * however its query tokens are cut into calls. Prints the largest error a row. With --bench it
 * prints what attention takes over f16 and int8 pages, in turn: the thread's own time, the best of
 * ROUNDS.
 */
#include "core/base/arena.h"
#include "kernels/cpu/cpuid.h"
#include "kernels/cpu/vector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static u32 passed, failed;
static struct arena arena;

static void verdict(bool ok, const char *set, const char *what, double error, double limit)
{
    printf("%s %-7s %-52s error %.2e (limit %.0e)\n", ok ? "ok  " : "FAIL", set, what, error,
           limit);
    passed += ok;
    failed += !ok;
}

static float *floats(size_t n)
{
    float *p = ARENA_NEW(&arena, float, n);
    ASSERT(p);
    for (size_t i = 0; i < n; i++)
        p[i] = NAN;
    return p;
}

static u64 seed = 1;

static float uniform(void) /* in [-1, 1) */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(i32)(seed >> 32) * 0x1p-31f;
}

static float *noise(size_t n, float size)
{
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = uniform() * size;
    return p;
}

/* Relative L2 distance; a NaN in either is infinite. */
static double distance(const float *a, const float *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(a[i]) || isnan(b[i]))
            return INFINITY;
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return sqrt(d / (s > 0 ? s : 1));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gpt_oss(double x) /* up is 1 */
{
    double g = x > 7 ? 7 : x;
    return 2 * g / (1 + exp(-1.702 * g));
}

static double relu(double x)
{
    return x > 0 ? x : 0;
}

static double gelu(double x)
{
    return 0.5 * x * erfc(-x / M_SQRT2);
}

/* Largest error of y[i] against f(x[i]), relative to |f| where that is above `small`. */
static double worst(const float *y, const float *x, u32 n, double (*f)(double), double small)
{
    double max = 0;
    for (u32 i = 0; i < n; i++) {
        double want = f(x[i]), error = fabs(y[i] - want) / MAX(fabs(want), small);
        max = isnan(error) ? INFINITY : MAX(max, error);
    }
    return max;
}

static void test_functions(const char *name, const struct vector_ops *v)
{
    enum { N = 200003 };
    float *x = floats(N), *y = floats(N), *one = floats(N);
    for (u32 i = 0; i < N; i++) {
        x[i] = ((float)i - N / 2) * 4e-4f; /* -40 .. 40 */
        one[i] = 1;
    }
    const struct {
        const char *what;
        enum activation act;
        double (*f)(double);
        double small, limit;
    } acts[] = {
        {"silu over -40..40", ACT_SILU, silu, 1e-30, 4e-7},
        {"gelu tanh form over -40..40, relative to >= 1e-3", ACT_GELU_TANH, gelu_tanh, 1e-3, 1e-4},
        {"gelu over -40..40, relative to >= 1e-3", ACT_GELU, gelu, 1e-3, 1e-4},
        {"sigmoid over -40..40", ACT_SIGMOID, sigmoid, 1e-30, 4e-7},
        {"relu over -40..40", ACT_RELU, relu, 1e-30, 1e-30},
        {"gpt-oss over -40..40, relative to >= 1e-20", ACT_GPT_OSS, gpt_oss, 1e-20, 5e-6},
    };
    for (u32 a = 0; a < COUNTOF(acts); a++) {
        memcpy(y, x, N * sizeof *y);
        v->gate(y, one, N, acts[a].act);
        double error = worst(y, x, N, acts[a].f, acts[a].small);
        verdict(error < acts[a].limit, name, acts[a].what, error, acts[a].limit);
    }
    memcpy(y, x, N * sizeof *y);
    v->softcap(y, N, 1);
    double error = worst(y, x, N, tanh, 1e-30);
    verdict(error < 5e-7, name, "tanh over -40..40", error, 5e-7);
    float big[] = {-1e30f, -200, -100, 100, 200, 1e30f, 0}, up[] = {1, 1, 1, 1, 1, 1, 1};
    v->gate(big, up, 7, ACT_SILU);
    bool ok = fabsf(big[0]) < 1e-3f && fabsf(big[1]) < 1e-30f && fabsf(big[2]) < 1e-30f &&
              big[3] == 100 && big[4] == 200 && big[5] == 1e30f && big[6] == 0;
    verdict(ok, name, "silu of large values", 0, 0);
    float ups[] = {-1e30f, -8, -7, 0, 7, 8, 1e30f}, ones[] = {1, 1, 1, 1, 1, 1, 1};
    v->gate(ones, ups, 7, ACT_GPT_OSS);
    for (u32 i = 0; i < 7; i++)
        ok &= fabs(ones[i] * (1 + exp(-1.702)) - (i < 3 ? -6 : i > 3 ? 8 : 1)) < 1e-5;
    verdict(ok, name, "gpt-oss keeps ups within -7 and 7", 0, 0);
}

static void test_rows(const char *name, const struct vector_ops *v)
{
    static const u32 sizes[] = {1, 7, 16, 31, 64, 80, 100, 576, 2048, 4095};
    for (u32 s = 0; s < COUNTOF(sizes); s++) {
        u32 n = sizes[s];
        float *x = noise(n, 3), *w = noise(n, 2), *y = floats(n), *z = floats(n);
        char what[80];
        snprintf(what, sizeof what, "rmsnorm of %u", n);
        v->rmsnorm(y, x, w, n, 1e-5f);
        vector_scalar.rmsnorm(z, x, w, n, 1e-5f);
        double error = distance(y, z, n);
        verdict(error < 1e-6, name, what, error, 1e-6);
        snprintf(what, sizeof what, "rmsnorm of %u in place: same bits", n);
        v->rmsnorm(x, x, w, n, 1e-5f);
        verdict(memcmp(x, y, n * sizeof *x) == 0, name, what, 0, 0);
        memcpy(z, y, n * sizeof *z);
        v->add(y, w, n);
        v->scale(y, 1.5f, n);
        vector_scalar.add(z, w, n);
        vector_scalar.scale(z, 1.5f, n);
        snprintf(what, sizeof what, "add and scale of %u: same bits", n);
        verdict(memcmp(z, y, n * sizeof *z) == 0, name, what, 0, 0);
    }
    static const u32 dims[][2] = {{64, 64}, {16, 16}, {96, 96}, {24, 96}, {100, 100}, {6, 20}};
    for (u32 s = 0; s < COUNTOF(dims); s++) {
        u32 d = dims[s][0], head = dims[s][1];
        float *x = noise(3 * head, 3), *y = floats(3 * head), *cs = floats(d);
        float *freq = noise(d / 2, 1);
        char what[80];
        memcpy(y, x, 3 * head * sizeof *y);
        vector_rope_table(cs, freq, d, 1234, 1.25f);
        v->rope(x, cs, d, head, 3);
        vector_scalar.rope(y, cs, d, head, 3);
        snprintf(what, sizeof what, "rope of %u of %u dimensions", d, head);
        double error = distance(x, y, 3 * head);
        verdict(error < 1e-6, name, what, error, 1e-6);
    }
}

/* One head of a gated delta net, or of Mamba 2, through some tokens, against doubles, and token by
 * token: the same bits. */
static void test_delta(const char *name, const struct vector_ops *v, bool mamba)
{
    enum { TOKENS = 40, MOST = 128, TAPS = 4 };
    static const u32 dims[][2] = {{128, 128}, {16, 16}, {32, 80}, {96, 64}};
    for (u32 s = 0; s < COUNTOF(dims); s++) {
        const u32 keys = dims[s][0], values = dims[s][1];
        static double state[MOST * MOST];
        const size_t size_of = (size_t)keys * values * sizeof(float);
        float *mine = floats((size_t)keys * values), *cut = floats((size_t)keys * values);
        float *q = noise(TOKENS * keys, 0.2f), *k = noise(TOKENS * keys, 0.15f);
        float *x = noise(TOKENS * values, 2), *y = floats(TOKENS * (values + 3));
        float *decay = noise(TOKENS, 0.2f), *beta = noise(TOKENS, 0.5f), *again = floats(values);
        double error = 0, size = 0;
        bool same = true;
        memset(state, 0, sizeof state);
        memset(mine, 0, size_of);
        memset(cut, 0, size_of);
        for (u32 t = 0; t < TOKENS; t++) {
            decay[t] += 0.8f;
            beta[t] += 0.5f;
        }
        v->delta(&(struct delta_args){mine, q, k, x, y, decay, beta, TOKENS, keys, values,
                                      values + 3, mamba});
        for (u32 t = 0; t < TOKENS; t++) {
            const float *row = y + t * (values + 3);
            v->delta(&(struct delta_args){cut, q + t * keys, k + t * keys, x + t * values, again,
                                          decay + t, beta + t, 1, keys, values, values, mamba});
            same &= memcmp(again, row, values * sizeof *row) == 0;
            for (u32 c = 0; c < values; c++) {
                double had = 0, want = 0, *column = state + c;
                for (u32 i = 0; i < keys; i++)
                    had += (column[i * MOST] *= (double)decay[t]) * (double)k[t * keys + i];
                had = mamba ? 0 : had;
                for (u32 i = 0; i < keys; i++)
                    want += (column[i * MOST] +=
                             k[t * keys + i] * (beta[t] * (x[t * values + c] - had))) *
                            q[t * keys + i];
                error += (row[c] - want) * (row[c] - want);
                size += want * want;
            }
        }
        same &= memcmp(mine, cut, size_of) == 0;
        char what[80];
        snprintf(what, sizeof what, "%s, head of %u by %u, %u tokens",
                 mamba ? "Mamba 2" : "delta rule", keys, values, TOKENS);
        error = isnan(error) ? INFINITY : sqrt(error / size);
        verdict(error < 1e-6 && same, name, what, error, 1e-6);
        float *w = noise(TAPS * (values + 16), 1), *z = floats(values);
        const float *rows[TAPS];
        for (u32 j = 0; j < TAPS; j++)
            rows[j] = noise(values, 3);
        for (u32 taps = 2; taps <= TAPS; taps++) {
            const bool is_silu = taps % 2 == 0;
            v->conv(y, rows, w, values + 16, taps, values, is_silu);
            for (u32 c = 0; c < values; c++) {
                double sum = 0;
                for (u32 j = 0; j < taps; j++)
                    sum += (double)w[j * (values + 16) + c] * rows[j][c];
                z[c] = (float)(is_silu ? silu(sum) : sum);
            }
            snprintf(what, sizeof what, "convolution of %u channels, %u taps", values, taps);
            error = distance(y, z, values);
            verdict(error < 1e-6, name, what, error, 1e-6);
        }
    }
}

struct shape {
    u32 head_dim, kv_heads, group, keys, window;
    float softcap;
    enum dtype type;
    bool sinks;
};

static const struct shape shapes[] = {
    {64, 2, 4, 333, 0, 0, DTYPE_F16, false},    {64, 1, 1, 1, 0, 0, DTYPE_F32, false},
    {128, 2, 8, 200, 50, 0, DTYPE_F16, false},  {96, 1, 1, 77, 0, 0, DTYPE_F16, false},
    {100, 2, 3, 150, 0, 0, DTYPE_F32, false},   {16, 2, 2, 64, 7, 0, DTYPE_F32, false},
    {256, 1, 2, 100, 33, 50, DTYPE_F16, false}, {80, 3, 7, 170, 16, 0, DTYPE_F16, false},
    {20, 1, 5, 48, 1, 30, DTYPE_F32, false},    {64, 2, 4, 333, 0, 0, DTYPE_I8, false},
    {128, 2, 8, 200, 50, 0, DTYPE_I8, false},   {100, 2, 3, 150, 0, 0, DTYPE_I8, false},
    {256, 1, 2, 100, 33, 50, DTYPE_I8, false},  {16, 1, 1, 1, 0, 0, DTYPE_I8, false},
    {20, 1, 5, 48, 1, 30, DTYPE_I8, false},     {64, 2, 8, 300, 128, 0, DTYPE_F16, true},
    {64, 2, 8, 70, 0, 0, DTYPE_I8, true},       {20, 1, 5, 48, 0, 0, DTYPE_F32, true},
};

/* What int8 keeps of x[n], by the words of kernels.h. */
static void round_int8(float *y, const float *x, u32 n)
{
    float max = 0;
    for (u32 i = 0; i < n; i++)
        max = MAX(max, fabsf(x[i]));
    for (u32 i = 0; i < n; i++)
        y[i] = max > 0 ? nearbyintf(x[i] * 127 / max) * (max / 127) : 0;
}

static float *rounded_int8(const float *x, u32 rows, u32 n)
{
    float *y = floats((size_t)rows * n);
    for (u32 i = 0; i < rows; i++)
        round_int8(y + (size_t)i * n, x + (size_t)i * n, n);
    return y;
}

/* Pages in a scattered order, every byte not written a NaN. */
static struct kv_layer filled_pages(const struct shape *s, const struct vector_ops *v, u32 *pages,
                                    const float *k, const float *values)
{
    u32 n_pages = CEIL_DIV(s->keys, LIMIT_PAGE_TOKENS) + 2, row = s->kv_heads * s->head_dim;
    size_t n = (size_t)n_pages * s->kv_heads * LIMIT_PAGE_TOKENS * kv_dim(s->head_dim);
    struct kv_layer kv = {floats(n), floats(n), s->type, s->kv_heads, s->head_dim};
    memset(kv.k, 0xff, n * sizeof(float)); /* a NaN as f16 and as f32 */
    memset(kv.v, 0xff, n * sizeof(float));
    for (u32 p = 0; p < n_pages; p++)
        pages[p] = (p * 5 + 1) % n_pages;
    if (n_pages % 5 == 0)
        for (u32 p = 0; p < n_pages; p++)
            pages[p] = n_pages - 1 - p;
    for (u32 key = 0; key < s->keys; key++)
        for (u32 h = 0; h < s->kv_heads; h++)
            v->kv_write(&kv, k + (size_t)key * row + h * s->head_dim,
                        values + (size_t)key * row + h * s->head_dim,
                        pages[key / LIMIT_PAGE_TOKENS], key % LIMIT_PAGE_TOKENS, h);
    return kv;
}

/* All tokens in calls of at most `step` tokens. */
static void attend_all(const struct vector_ops *v, struct attention_args a, u32 keys, u32 step,
                       void *scratch)
{
    const float *q = a.q;
    float *out = a.out;
    for (u32 t = 0; t < keys; t += step) {
        a.q = q + (size_t)t * a.q_stride;
        a.out = out + (size_t)t * a.out_stride;
        a.pos = t;
        a.tokens = MIN(step, keys - t);
        for (u32 h = 0; h < a.kv->kv_heads; h++)
            v->attention(&a, h, scratch);
    }
}

static void test_attention(const char *name, const struct vector_ops *v)
{
    static const u32 steps[] = {16, 7, 3, 2};
    for (u32 i = 0; i < COUNTOF(shapes); i++) {
        const struct shape *s = &shapes[i];
        u32 row = s->kv_heads * s->group * s->head_dim, pages[64];
        size_t n = (size_t)s->keys * row;
        float *k = noise(n, 1), *values = noise(n, 1), *q = noise(n, 3), *want = floats(n),
              *one = floats(n), *more = floats(n);
        struct kv_layer kv = filled_pages(s, v, pages, k, values), held = kv;
        if (s->type == DTYPE_I8) { /* f32 pages of what is left of the numbers */
            struct shape plain = *s;
            u32 rows = s->keys * s->kv_heads;
            plain.type = DTYPE_F32;
            held = filled_pages(&plain, &vector_scalar, pages, rounded_int8(k, rows, s->head_dim),
                                rounded_int8(values, rows, s->head_dim));
        }
        struct attention_args a = {.q = q,
                                   .out = want,
                                   .q_stride = row,
                                   .out_stride = row,
                                   .kv = &held,
                                   .pages = pages,
                                   .window = s->window,
                                   .group = s->group,
                                   .scale = 1 / sqrtf((float)s->head_dim),
                                   .softcap = s->softcap};
        float *sinks = noise(s->kv_heads * s->group, 8);
        if (s->sinks)
            a.sinks = sinks;
        void *scratch = arena_alloc(
            &arena, attention_scratch_bytes(ATTENTION_TOKENS * s->group, s->head_dim), 64);
        attend_all(&vector_scalar, a, s->keys, 1, scratch);
        a.kv = &kv;
        a.out = one;
        attend_all(v, a, s->keys, 1, scratch);
        char what[96];
        snprintf(what, sizeof what, "attention dim %u heads %ux%u keys %u window %u cap %.0f %s%s",
                 s->head_dim, s->kv_heads, s->group, s->keys, s->window, (double)s->softcap,
                 s->type == DTYPE_F16  ? "f16"
                 : s->type == DTYPE_I8 ? "int8"
                                       : "f32",
                 s->sinks ? ", sinks" : "");
        double error = distance(one, want, n);
        if (v != &vector_scalar || s->type == DTYPE_I8) /* the goldens hold the reference */
            verdict(error < 2e-6, name, what, error, 2e-6);
        bool same = true;
        for (u32 j = 0; j < COUNTOF(steps); j++) {
            memset(more, 0xff, n * sizeof *more);
            a.out = more;
            attend_all(v, a, s->keys, steps[j], scratch);
            same &= memcmp(one, more, n * sizeof *one) == 0;
        }
        verdict(same, name, "  same bits in blocks of 16, 7, 3, 2 tokens", 0, 0);
    }
}

/* k as key and value of one position; what attention gives for it alone. */
static void attend_one(const struct vector_ops *v, enum dtype type, const float k[16],
                       float out[16])
{
    static const float q[16];
    struct shape s = {16, 1, 1, 1, 0, 0, type, false};
    u32 pages[8];
    struct kv_layer kv = filled_pages(&s, v, pages, k, k);
    struct attention_args a = {.q = q,
                               .out = out,
                               .q_stride = 16,
                               .out_stride = 16,
                               .kv = &kv,
                               .pages = pages,
                               .group = 1,
                               .scale = 1};
    attend_all(v, a, 1, 1, arena_alloc(&arena, attention_scratch_bytes(16, 16), 64));
}

/* Queries of zeros see all keys alike: a sink of ln(3 n) takes three quarters. */
static void test_sinks(const char *name, const struct vector_ops *v)
{
    enum { KEYS = 40, DIM = 16 };
    static const float q[2 * DIM];
    float *values = floats(KEYS * DIM), out[2 * DIM], sinks[2] = {logf(3 * KEYS), -INFINITY};
    for (u32 i = 0; i < KEYS * DIM; i++)
        values[i] = 2;
    struct shape s = {DIM, 1, 2, KEYS, 0, 0, DTYPE_F32, true};
    u32 pages[8];
    struct kv_layer kv = filled_pages(&s, v, pages, values, values);
    struct attention_args a = {.q = q, .out = out, .kv = &kv, .pages = pages, .pos = KEYS - 1};
    a.tokens = 1, a.group = 2, a.scale = 1, a.sinks = sinks;
    v->attention(&a, 0, arena_alloc(&arena, attention_scratch_bytes(2, DIM), 64));
    bool ok = true;
    for (u32 i = 0; i < 2 * DIM; i++)
        ok &= fabsf(out[i] - (i < DIM ? 0.5f : 2)) < 1e-6f;
    verdict(ok, name, "a sink takes its share", 0, 0);
}

static void test_saturation(const char *name, const struct vector_ops *v)
{
    static const float sizes[] = {1e9f, INFINITY};
    static const enum dtype types[] = {DTYPE_F16, DTYPE_I8};
    static const char *const words[] = {"f16 KV saturates", "int8 KV saturates where f16 does"};
    float k[16], out[16];
    for (u32 t = 0; t < COUNTOF(types); t++) {
        float most = types[t] == DTYPE_F16 ? 65504.0f : 65504.0f / 127 * 127;
        bool ok = true;
        for (u32 j = 0; j < COUNTOF(sizes); j++) {
            for (u32 i = 0; i < 16; i++)
                k[i] = i % 2 ? sizes[j] : -sizes[j];
            attend_one(v, types[t], k, out);
            for (u32 i = 0; i < 16; i++)
                ok &= out[i] == (i % 2 ? most : -most);
        }
        verdict(ok, name, words[t], 0, 0);
    }
    bool all = true;
    k[5] = NAN;
    attend_one(v, DTYPE_I8, k, out);
    for (u32 i = 0; i < 16; i++)
        all &= isnan(out[i]) != 0;
    verdict(all, name, "a NaN makes an int8 vector NaN", 0, 0);
}

/* Bytes and scales are the reference's to the bit, and round as kernels.h says: ties, zeros,
 * subnormals, large and infinite values. */
static void test_int8_pages(const char *name, const struct vector_ops *v)
{
    static const u32 dims[] = {16, 20, 128};
    for (u32 d = 0; d < COUNTOF(dims); d++) {
        enum { KEYS = 8 };
        struct shape s = {dims[d], 1, 1, KEYS, 0, 0, DTYPE_I8, false};
        u32 pages[8], n = s.head_dim, dim = kv_dim(n);
        float *k = noise(KEYS * n, 1), *values = noise(KEYS * n, 9);
        for (u32 i = 0; i < n; i++) {
            k[i] = i == 3 ? 127 : (float)i - 9.5f; /* ties */
            k[n + i] = 0;
            k[2 * n + i] *= 1e-40f;
            k[3 * n + i] *= 3e38f;
            values[i] = i == 1 ? -INFINITY : values[i];
            values[n + i] = i == 2 ? NAN : values[n + i];
        }
        struct kv_layer kv = filled_pages(&s, v, pages, k, values);
        struct kv_layer want = filled_pages(&s, &vector_scalar, pages, k, values);
        size_t bytes = 3 * kv_head_bytes(DTYPE_I8, n); /* of all pages */
        bool same = !memcmp(kv.k, want.k, bytes) && !memcmp(kv.v, want.v, bytes);
        char what[80];
        snprintf(what, sizeof what, "int8 pages of %u dimensions: the reference's bytes", n);
        verdict(same, name, what, 0, 0);
        const u8 *keys = (const u8 *)kv.k + pages[0] * kv_head_bytes(DTYPE_I8, n);
        float y[128], scale;
        bool right = true;
        for (u32 key = 0; key < KEYS; key++) {
            memcpy(&scale, keys + LIMIT_PAGE_TOKENS * dim + 4 * key, 4);
            for (u32 i = 0; i < n; i++)
                k[key * n + i] = MIN(MAX(k[key * n + i], -65504.0f), 65504.0f);
            round_int8(y, k + key * n, n);
            for (u32 i = 0; i < dim; i++) {
                float byte = (float)(i8)keys[i * LIMIT_PAGE_TOKENS + key];
                right &= i < n ? byte * scale == y[i] : byte == 0;
            }
        }
        verdict(right, name, "  keys as kernels.h says", 0, 0);
    }
}

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The last `tokens` of s->keys positions attend, once; all pages hold the same few numbers. */
static double attend_s(const struct shape *s, const struct vector_ops *v, u32 tokens,
                       const struct kv_layer *kv, const u32 *pages, const float *q, float *out,
                       void *scratch)
{
    u32 row = s->kv_heads * s->group * s->head_dim;
    struct attention_args a = {.q = q,
                               .out = out,
                               .q_stride = row,
                               .out_stride = row,
                               .kv = kv,
                               .pages = pages,
                               .pos = s->keys - tokens,
                               .tokens = tokens,
                               .group = s->group,
                               .scale = 0.1f};
    double from = thread_s();
    for (u32 h = 0; h < s->kv_heads; h++)
        v->attention(&a, h, scratch);
    return thread_s() - from;
}

static void bench(const char *name, const struct vector_ops *v)
{
    enum { ROUNDS = 15 };
    static const enum dtype types[] = {DTYPE_F16, DTYPE_I8};
    static const struct {
        struct shape s;
        u32 tokens;
    } rows[] = {
        {{64, 4, 3, 512, 0, 0, 0, false}, 1},    {{64, 4, 3, 96000, 0, 0, 0, false}, 1},
        {{128, 8, 4, 512, 0, 0, 0, false}, 1},   {{128, 8, 4, 32000, 0, 0, 0, false}, 1},
        {{128, 4, 8, 32000, 0, 0, 0, false}, 1}, {{64, 4, 3, 512, 0, 0, 0, false}, 16},
        {{128, 8, 4, 512, 0, 0, 0, false}, 16},
    };
    for (u32 i = 0; i < COUNTOF(rows); i++) {
        const struct shape *s = &rows[i].s;
        u32 tokens = rows[i].tokens, n = tokens * s->kv_heads * s->group * s->head_dim;
        u32 n_pages = CEIL_DIV(s->keys, LIMIT_PAGE_TOKENS),
            *pages = ARENA_NEW(&arena, u32, n_pages);
        void *scratch =
            arena_alloc(&arena, attention_scratch_bytes(tokens * s->group, s->head_dim), 64);
        float *q = noise(n, 1), *out = floats(n), *x = noise(s->head_dim, 1);
        struct kv_layer kv[2];
        double best[2] = {INFINITY, INFINITY}, bytes[2];
        for (u32 t = 0; t < 2; t++) {
            size_t head = kv_head_bytes(types[t], s->head_dim), size = head * s->kv_heads * n_pages;
            kv[t] = (struct kv_layer){arena_alloc(&arena, size, 64), arena_alloc(&arena, size, 64),
                                      types[t], s->kv_heads, s->head_dim};
            bytes[t] = 2 * (double)size;
            for (u32 p = 0; p < n_pages * LIMIT_PAGE_TOKENS; p++)
                for (u32 h = 0; h < s->kv_heads; h++)
                    v->kv_write(&kv[t], x, x, p / LIMIT_PAGE_TOKENS, p % LIMIT_PAGE_TOKENS, h);
        }
        for (u32 p = 0; p < n_pages; p++)
            pages[p] = p;
        for (u32 r = 0; r < 2 * ROUNDS; r++)
            best[r % 2] =
                fmin(best[r % 2], attend_s(s, v, tokens, &kv[r % 2], pages, q, out, scratch));
        printf(
            "%-7s dim %3u heads %ux%u keys %5u tokens %2u: f16 %8.3f ms %5.1f GB/s, int8 %8.3f ms "
            "%5.1f GB/s, f16/int8 %.2f\n",
            name, s->head_dim, s->kv_heads, s->group, s->keys, tokens, best[0] * 1e3,
            bytes[0] / best[0] / 1e9, best[1] * 1e3, bytes[1] / best[1] / 1e9, best[0] / best[1]);
        arena_reset(&arena, 0);
    }
}

int main(int argc, char **argv)
{
    bool timed = argc > 1 && strcmp(argv[1], "--bench") == 0;
    struct err_text e = {0};
    if (arena_open(&arena, "ops", 256 * MIB, false, &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct cpu_features cpu;
    cpu_features_read(&cpu);
    const struct {
        const char *name;
        const struct vector_ops *ops;
        bool here;
    } sets[] = {
        {"scalar", &vector_scalar, true},
#if defined(__x86_64__)
        {"avx2", &vector_avx2, cpu.avx2},
        {"avx512", &vector_avx512, cpu.avx512},
#elif defined(__aarch64__)
        {"neon", &vector_neon, cpu.neon},
#endif
    };
    for (u32 i = 0; i < COUNTOF(sets); i++) {
        if (!sets[i].here) {
            printf("skip %s: this CPU lacks it\n", sets[i].name);
            continue;
        }
        arena_reset(&arena, 0);
        if (timed) {
            if (sets[i].ops != &vector_scalar)
                bench(sets[i].name, sets[i].ops);
            continue;
        }
        test_functions(sets[i].name, sets[i].ops);
        test_rows(sets[i].name, sets[i].ops);
        test_delta(sets[i].name, sets[i].ops, false);
        test_delta(sets[i].name, sets[i].ops, true);
        test_attention(sets[i].name, sets[i].ops);
        test_sinks(sets[i].name, sets[i].ops);
        test_saturation(sets[i].name, sets[i].ops);
        test_int8_pages(sets[i].name, sets[i].ops);
    }
    if (!timed)
        printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
