/* OP_EMBED, OP_ADD_NORM, OP_NORM, OP_PAIRS, OP_SHARED and OP_GATE against plain double-precision
 * references; and the same bits for a token whatever the number of tokens and blocks.
 *
 * g++ -std=gnu++17 -O2 -mf16c -Wall -Wextra -Wno-unknown-pragmas -I. -static-libstdc++ \
 *     -static-libgcc -o vector_test tests/cuda/vector_test.cc tests/cuda/harness.cc \
 *     tests/fakecuda/{atomics,emulate,tensor}.cc -x c++ kernels/cuda/step.cu -ldl
 * vector_test [--gpu step.cubin [--bench]]
 */
#include "tests/cuda/harness.h"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <vector>

using std::vector;

static u32 passed, failed;

static void report(bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s\n", what);
}

static u64 random_state = 7;

static u32 random_u32(void) /* splitmix64 */
{
    u64 z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (u32)(z >> 32);
}

static float random_unit(void) /* [-1, 1) */
{
    return (float)(i32)random_u32() / 2147483648.0f;
}

static vector<float> random_floats(size_t n, float size)
{
    vector<float> v(n);
    for (float &x : v)
        x = random_unit() * size;
    return v;
}

static struct gpu_run make_run(const struct op &op, const struct gpu_step &step)
{
    struct gpu_run run = {};
    run.ops = gpu_copy_of(&op, 1);
    run.step = gpu_copy_of(&step, 1);
    run.last = 1;
    run.shared_bytes = 32 << 10;
    run.state.barrier = (u32 *)gpu_take(8);
    return run;
}

static void launch(const struct gpu_run &run, u32 blocks)
{
    gpu_launch("step", blocks, run.shared_bytes + STEP_SHARED_BYTES, &run, sizeof run);
}

static vector<float> get_floats(const float *from, size_t n)
{
    vector<float> v(n);
    gpu_get(v.data(), from, n * 4);
    return v;
}

/* --- embed --------------------------------------------------------------------------------- */

static void test_embed(u32 vocab, u32 hidden, float scale)
{
    u32 k = ROUND_UP(hidden, (u32)MATRIX_K_UNIT), n = ROUND_UP(vocab, 16u), stride = hidden + 3;
    vector<u16> packed((size_t)n * k);
    vector<half_float> plain((size_t)vocab * hidden);
    vector<float> scales(n, 1);
    for (u32 j = 0; j < vocab; j++) {
        scales[j] = ldexpf(1, (int)(random_u32() % 20) - 10);
        for (u32 i = 0; i < hidden; i++) {
            half_float v = plain[(size_t)j * hidden + i] = (half_float)random_unit();
            /* step.h: the a-fragment of a tile of 16 outputs and 16 inputs */
            u32 word = j % 16 / 8 + i % 16 / 8 * 2, lane = j % 8 * 4 + i % 8 / 2;
            size_t at = ((size_t)(j / 16) * (k / 16) + i / 16) * 256 + lane * 8 + word * 2 + i % 2;
            memcpy(&packed[at], &v, 2);
        }
    }
    enum { ROWS = 9, SLOTS = 11 };
    vector<struct gpu_row> rows;
    vector<u32> tokens, token_row, last(SLOTS), wanted;
    for (u32 i = 0; i < SLOTS; i++)
        last[i] = random_u32() % vocab;
    for (u32 i = 0; i < ROWS; i++) {
        bool follows = i % 3 == 1;
        u32 count = follows ? 1 : 1 + i;
        rows.push_back({i + 1, (u32)tokens.size(), count, 5, follows ? (u32)ROW_FOLLOWS : 0, 0});
        for (u32 j = 0; j < count; j++) {
            tokens.push_back(follows ? 0xfffffff0 : random_u32() % vocab);
            wanted.push_back(follows ? last[i + 1] : tokens.back());
            token_row.push_back(i);
        }
    }
    struct op op = {};
    op.kind = OP_EMBED;
    op.embed.embed.kind = MATRIX_HALF;
    op.embed.embed.data = (const u8 *)gpu_copy_of(packed.data(), packed.size());
    op.embed.embed.scales = gpu_copy_of(scales.data(), n);
    op.embed.embed.n = vocab;
    op.embed.embed.k = k;
    op.embed.x = (float *)gpu_take(tokens.size() * stride * 4);
    op.embed.stride = stride;
    op.embed.hidden = hidden;
    op.embed.scale = scale;
    struct gpu_step step = {};
    step.n_rows = ROWS;
    step.n_tokens = (u32)tokens.size();
    step.rows = gpu_copy_of(rows.data(), rows.size());
    step.tokens = gpu_copy_of(tokens.data(), tokens.size());
    step.token_row = gpu_copy_of(token_row.data(), token_row.size());
    struct gpu_run run = make_run(op, step);
    run.state.last = gpu_copy_of(last.data(), last.size());
    bool ok = true;
    for (u32 blocks : {1u, 3u}) {
        launch(run, blocks);
        vector<float> x = get_floats(op.embed.x, tokens.size() * stride);
        for (u32 i = 0; i < tokens.size(); i++)
            for (u32 j = 0; j < hidden; j++)
                ok &= x[i * stride + j] ==
                      (float)plain[(size_t)wanted[i] * hidden + j] * scales[wanted[i]] * scale;
    }
    printf("embed     vocab %5u hidden %5u: %s\n", vocab, hidden, ok ? "exact" : "wrong");
    report(ok, "embed");
}

/* --- add_norm ------------------------------------------------------------------------------ */

static void test_add_norm(u32 hidden)
{
    enum { TOKENS = 33 };
    u32 x_stride = hidden + 5, y_stride = hidden + 1;
    vector<float> x = random_floats((size_t)TOKENS * x_stride, 3), norm = random_floats(hidden, 1);
    vector<float> y = random_floats((size_t)TOKENS * y_stride, 0.01f), first;
    struct op op = {};
    op.kind = OP_ADD_NORM;
    op.add_norm = {NULL,
                   gpu_copy_of(y.data(), y.size()),
                   gpu_copy_of(norm.data(), hidden),
                   x_stride,
                   y_stride,
                   1,
                   hidden,
                   1e-6f,
                   0.5f};
    op.add_norm.x = (float *)gpu_take(x.size() * 4);
    double worst = 0;
    bool same = true;
    for (u32 n : {(u32)TOKENS, 1u, 2u, 3u, 5u, 8u, 9u, 17u})
        for (u32 blocks : {1u, 2u, 3u, 5u}) {
            struct gpu_step step = {};
            step.n_tokens = n;
            gpu_put(op.add_norm.x, x.data(), x.size() * 4);
            launch(make_run(op, step), blocks);
            vector<float> out = get_floats(op.add_norm.x, x.size());
            if (first.empty())
                first = out;
            same &= memcmp(out.data(), first.data(), (size_t)n * x_stride * 4) == 0;
            same &= memcmp(&out[n * x_stride], &x[n * x_stride],
                           (size_t)(TOKENS - n) * x_stride * 4) == 0;
        }
    for (u32 i = 0; i < TOKENS; i++) {
        double sum = 0;
        for (u32 j = 0; j < hidden; j++)
            sum += (double)y[i * y_stride + j] * y[i * y_stride + j];
        for (u32 j = 0; j < hidden; j++) {
            double v = y[i * y_stride + j] / sqrt(sum / hidden + (double)1e-6f) * norm[j];
            worst = fmax(worst, fabs(first[i * x_stride + j] - 0.5 * (x[i * x_stride + j] + v)));
        }
    }
    printf("add_norm  hidden %5u: max error %.1e\n", hidden, worst);
    report(worst < 2e-6 && same, "add_norm");
}

/* --- norm, pairs --------------------------------------------------------------------------- */

/* What `op` makes of the rows x, which it has at `at`: the same by any number of tokens and blocks.
 */
static vector<float> in_place(const struct op &op, float *at, const vector<float> &x, u32 stride)
{
    const u32 tokens = (u32)(x.size() / stride);
    vector<float> first;
    bool same = true;
    for (u32 n : {tokens, 1u, 2u, 9u})
        for (u32 blocks : {1u, 3u, 5u}) {
            struct gpu_step step = {};
            step.n_tokens = n;
            gpu_put(at, x.data(), x.size() * 4);
            launch(make_run(op, step), blocks);
            vector<float> out = get_floats(at, x.size());
            if (first.empty())
                first = out;
            const size_t done = (size_t)n * stride;
            same &= memcmp(out.data(), first.data(), done * 4) == 0;
            same &= memcmp(&out[done], &x[done], (x.size() - done) * 4) == 0;
        }
    report(same, "the same in place");
    return first;
}

/* heads: of so many features, each for itself; weighs: there are weights. */
static void test_norm(u32 features, u32 heads = 1, bool weighs = true)
{
    enum { TOKENS = 17, BEFORE = 6, BEHIND = 5 }; /* what else is in a row */
    const u32 all = heads * features, stride = BEFORE + all + BEHIND;
    vector<float> x = random_floats((size_t)TOKENS * stride, 3), norm = random_floats(features, 1);
    float *at = (float *)gpu_take(x.size() * 4);
    struct op op = {};
    op.kind = OP_NORM;
    op.add_norm.x = at + BEFORE;
    op.add_norm.y = at + BEFORE;
    op.add_norm.norm = weighs ? gpu_copy_of(norm.data(), features) : NULL;
    op.add_norm.x_stride = op.add_norm.y_stride = stride;
    op.add_norm.heads = heads;
    op.add_norm.hidden = features;
    op.add_norm.eps = 1e-5f;
    op.add_norm.scale = 1;
    vector<float> out = in_place(op, at, x, stride);
    double worst = 0;
    bool kept = true;
    for (u32 i = 0; i < TOKENS * heads; i++) {
        const size_t first = (size_t)(i / heads) * stride + BEFORE + i % heads * features;
        double sum = 0;
        for (u32 j = 0; j < features; j++)
            sum += (double)x[first + j] * x[first + j];
        const double by = 1 / sqrt(sum / features + (double)1e-5f);
        for (u32 j = 0; j < features; j++)
            worst = fmax(worst, fabs(out[first + j] - x[first + j] * by * (weighs ? norm[j] : 1)));
    }
    for (u32 i = 0; i < TOKENS; i++)
        for (u32 j = 0; j < stride; j++)
            kept &= (j >= BEFORE && j < BEFORE + all) ||
                    out[(size_t)i * stride + j] == x[(size_t)i * stride + j];
    printf("norm      features %5u heads %2u: max error %.1e\n", features, heads, worst);
    report(worst < 2e-6 && kept, "norm");
}

static void test_pairs(u32 heads, u32 dim, u32 dims)
{
    enum { TOKENS = 17, BEHIND = 7 };
    const u32 stride = heads * dim + BEHIND;
    vector<float> x = random_floats((size_t)TOKENS * stride, 3), want = x;
    float *at = (float *)gpu_take(x.size() * 4);
    struct op op = {};
    op.kind = OP_PAIRS;
    op.pairs = {at, stride, heads, dim, dims};
    for (u32 i = 0; i < TOKENS * heads; i++) {
        const size_t head = (size_t)(i / heads) * stride + i % heads * dim;
        for (u32 j = 0; j < dims; j++)
            want[head + j % 2 * (dims / 2) + j / 2] = x[head + j];
    }
    const bool exact = in_place(op, at, x, stride) == want;
    printf("pairs     heads %2u of %3u, %3u turn: %s\n", heads, dim, dims,
           exact ? "exact" : "wrong");
    report(exact, "pairs");
}

/* --- shared experts ------------------------------------------------------------------------ */

static void test_shared(u32 hidden)
{
    enum { TOKENS = 17, BEHIND = 3 };
    const u32 stride = hidden + BEHIND;
    vector<float> x = random_floats((size_t)TOKENS * stride, 3), norm = random_floats(hidden, 1);
    vector<float> y = random_floats((size_t)TOKENS * stride, 2);
    vector<float> share = random_floats(hidden, 2 / sqrtf((float)hidden));
    float *at = (float *)gpu_take(x.size() * 4);
    struct op op = {};
    op.kind = OP_SHARED;
    op.shared = {at,
                 gpu_copy_of(y.data(), y.size()),
                 gpu_copy_of(norm.data(), hidden),
                 gpu_copy_of(share.data(), hidden),
                 stride,
                 hidden,
                 1e-5f};
    vector<float> out = in_place(op, at, x, stride);
    double worst = 0;
    bool kept = true;
    for (u32 i = 0; i < TOKENS; i++) {
        const float *from = &x[(size_t)i * stride], *to = &out[(size_t)i * stride];
        double sum = 0, dot = 0;
        for (u32 j = 0; j < hidden; j++) {
            sum += (double)from[j] * from[j];
            dot += (double)from[j] * norm[j] * share[j];
        }
        const double part = 1 / (1 + exp(-dot / sqrt(sum / hidden + (double)1e-5f)));
        for (u32 j = 0; j < stride; j++) {
            kept &= j < hidden || to[j] == from[j];
            if (j < hidden)
                worst = fmax(worst, fabs(to[j] - (from[j] + part * y[(size_t)i * stride + j])));
        }
    }
    printf("shared    hidden %4u: max error %.1e\n", hidden, worst);
    report(kept && worst < 2e-6, "shared");
}

/* --- gate ---------------------------------------------------------------------------------- */

static double activate(double x, u32 activation)
{
    if (activation == ACT_RELU)
        return fmax(x, 0);
    if (activation == ACT_SILU)
        return x / (1 + exp(-x));
    if (activation == ACT_GELU_TANH)
        return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067812));
}

/* pad: what rows have behind them. */
static void test_gate(u32 n, u32 activation, u32 pad)
{
    enum { TOKENS = 17 };
    u32 in_stride = 2 * n + pad, h_stride = n + pad;
    vector<float> in = random_floats((size_t)TOKENS * in_stride, 12), first;
    in[0] = 90; /* far out on both sides */
    in[1] = -90;
    const float *device_in = gpu_copy_of(in.data(), in.size());
    struct op op = {};
    op.kind = OP_GATE;
    op.gate = {device_in, device_in + n, NULL, in_stride, h_stride, n, activation};
    op.gate.h = (float *)gpu_take((size_t)TOKENS * h_stride * 4);
    double worst = 0;
    bool same = true;
    for (u32 tokens : {(u32)TOKENS, 1u, 2u, 5u, 8u, 9u})
        for (u32 blocks : {1u, 3u, 5u}) {
            struct gpu_step step = {};
            step.n_tokens = tokens;
            launch(make_run(op, step), blocks);
            vector<float> h = get_floats(op.gate.h, (size_t)TOKENS * h_stride);
            if (first.empty())
                first = h;
            for (u32 i = 0; i < tokens; i++)
                same &= memcmp(&h[i * h_stride], &first[i * h_stride], n * 4) == 0;
        }
    for (u32 i = 0; i < TOKENS; i++)
        for (u32 j = 0; j < n; j++) {
            double v = activate(in[i * in_stride + j], activation) * in[i * in_stride + n + j];
            worst = fmax(worst, fabs(first[i * h_stride + j] - v) / fmax(1, fabs(v)));
        }
    printf("gate      n %5u activation %u: max error %.1e\n", n, activation, worst);
    report(worst < 4e-6 && same, "gate");
}

/* An MLP without gates: gate, up and h are one. */
static void test_ungated(u32 n, u32 pad)
{
    enum { TOKENS = 5 };
    const u32 stride = n + pad;
    const vector<float> in = random_floats((size_t)TOKENS * stride, 12);
    struct op op = {};
    struct gpu_step step = {};
    bool same = true;
    op.kind = OP_GATE;
    step.n_tokens = TOKENS;
    for (u32 blocks : {1u, 3u}) {
        float *h = gpu_copy_of(in.data(), in.size());
        op.gate = {h, h, h, stride, stride, n, ACT_RELU};
        launch(make_run(op, step), blocks);
        const vector<float> out = get_floats(h, in.size());
        for (u32 i = 0; i < in.size(); i++)
            same &= out[i] == (i % stride >= n ? in[i] : in[i] > 0 ? in[i] * in[i] : 0);
    }
    printf("ungated   n %5u: %s\n", n, same ? "same" : "NOT same");
    report(same, "ungated");
}

/* --- timings ------------------------------------------------------------------------------- */

static void bench(u32 tokens, u32 hidden, u32 n)
{
    struct gpu_step step = {};
    struct op op = {};
    step.n_tokens = tokens;
    op.kind = OP_ADD_NORM;
    float *a = (float *)gpu_take((size_t)tokens * 2 * n * 4),
          *b = (float *)gpu_take((size_t)tokens * n * 4);
    op.add_norm = {a, b, a, hidden, hidden, 1, hidden, 1e-6f, 1};
    struct gpu_run run = make_run(op, step);
    u32 blocks = gpu_multiprocessors();
    float norm_us =
        gpu_time_us("step", blocks, run.shared_bytes + STEP_SHARED_BYTES, &run, sizeof run, 10);
    op.kind = OP_GATE;
    op.gate = {a, a + n, b, 2 * n, n, n, ACT_SILU};
    run = make_run(op, step);
    float gate_us =
        gpu_time_us("step", blocks, run.shared_bytes + STEP_SHARED_BYTES, &run, sizeof run, 10);
    op.gate = {b, b, b, n, n, n, ACT_RELU};
    run = make_run(op, step);
    float relu_us =
        gpu_time_us("step", blocks, run.shared_bytes + STEP_SHARED_BYTES, &run, sizeof run, 10);
    printf("tokens %4u: add_norm of %u %.1f us (%.0f GB/s), gate of %u %.1f us (%.0f GB/s), relu "
           "squared in place %.1f us (%.0f GB/s), each with its launch\n",
           tokens, hidden, (double)norm_us, tokens * hidden * 12.0 / norm_us * 1e-3, n,
           (double)gate_us, tokens * n * 12.0 / gate_us * 1e-3, (double)relu_us,
           tokens * n * 8.0 / relu_us * 1e-3);
}

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    if (argc > 3 && strcmp(argv[3], "--bench") == 0) {
        for (u32 tokens : {1u, 32u, 2048u})
            bench(tokens, 4096, 14336);
        return 0;
    }
    test_embed(50, 64, 1);
    test_embed(333, 130, 11.3125f);
    test_embed(17, 577, 1);
    for (u32 hidden : {1u, 64u, 300u, 2304u, 4096u})
        test_add_norm(hidden);
    for (u32 features : {1u, 64u, 300u, 4096u})
        test_norm(features);
    test_norm(256, 5, false);
    test_norm(40, 3);
    for (u32 hidden : {1u, 64u, 300u, 4096u})
        test_shared(hidden);
    test_pairs(3, 16, 16);
    test_pairs(5, 16, 6);
    test_pairs(34, 128, 64);
    test_pairs(2, 512, 512);
    test_pairs(1, 100, 98);
    for (u32 activation : {ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_RELU}) {
        test_gate(700, activation, 4);
        test_gate(33, activation, 2);
    }
    test_gate(700, ACT_RELU, 1);
    for (u32 pad : {1u, 4u}) {
        test_ungated(700, pad);
        test_ungated(33, pad);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0;
}
