/* OP_ROUTE, OP_CHOOSE, OP_JUDGE, OP_EXPERTS and OP_MIX: against plain double-precision
 * references where weights are halves or MXFP4; and of all kinds the same bits for a token whatever
 * the number of tokens and blocks, and whichever way computes them: `step` as on Hopper and as on
 * other cards, `decode`, `prefill_experts`. And what `pack` makes of MXFP4, number by number.
 *
 * g++ -std=gnu++17 -O2 -mf16c -Wall -Wextra -Wno-unknown-pragmas -I. -static-libstdc++ \
 *     -static-libgcc -o experts_test tests/cuda/experts_test.cc tests/cuda/harness.cc \
 *     tests/fakecuda/{atomics,emulate,tensor}.cc -x c++ kernels/cuda/step.cu -ldl
 * experts_test [--some | --gpu step.cubin [--bench]]     some: the small ones
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
    printf("%s %s\n", ok ? "ok    " : "FAILED", what);
}

static u64 random_state = 11;

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

template <typename T> static vector<T> get(const T *from, size_t n)
{
    vector<T> v(n);
    gpu_get(v.data(), from, n * sizeof(T));
    return v;
}

enum way {
    SOFTMAX,
    BIASED,         /* OP_JUDGE */
    BIASED_SOFTMAX, /* the same, of a softmax */
    GPT_OSS         /* biases of the router and of experts, ACT_GPT_OSS */
};

/* A mixture: what a model has of one layer, in device memory, and some of it here. */
struct mixture {
    u32 experts, used, hidden, inter, tokens; /* tokens: at most */
    enum way way;
    struct op route, choose, up, down, mix;
    vector<float> x, norm, router, bias, router_bias; /* biases: empty without one */
    vector<float> w_up, w_down; /* of halves and MXFP4: [expert][output][input], outputs as they
                                   lie: 8 gates, then their 8 ups */
    vector<float> b_up, b_down; /* in the same order; or empty */
};

static u32 padded(u32 k)
{
    return ROUND_UP(k, (u32)MATRIX_K_UNIT);
}

/* n outputs of k inputs, random: as halves, whose values, of this size, go to `plain` in the order
 * of outputs in memory, or as whatever bytes of INT4 and INT8. */
static struct matrix make_matrix(u32 kind, u32 group, u32 n, u32 inputs, float size,
                                 vector<float> *plain)
{
    struct matrix m = {};
    const u32 k = padded(inputs);
    m.kind = kind;
    m.n = n;
    m.k = k;
    m.slice = ROUND_UP(CEIL_DIV(k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT);
    m.scale_type = kind == MATRIX_HALF ? (u32)DTYPE_F32 : (u32)DTYPE_F16;
    if (kind != MATRIX_HALF) {
        vector<u8> data((size_t)n * k / (kind == MATRIX_INT4 ? 2 : 1)), zeros;
        m.group = group;
        m.groups = k / group;
        for (u8 &b : data)
            b = (u8)random_u32();
        vector<half_float> scales((size_t)n * m.groups);
        for (half_float &s : scales)
            s = (half_float)(random_unit() * 0.01f);
        for (size_t i = 0; i < scales.size(); i++)
            zeros.push_back((u8)(random_u32() % (kind == MATRIX_INT4 ? 16 : 256)));
        m.data = gpu_copy_of(data.data(), data.size());
        m.scales = gpu_copy_of(scales.data(), scales.size());
        m.zeros = gpu_copy_of(zeros.data(), zeros.size());
        return m;
    }
    vector<u16> packed((size_t)n * k);
    plain->assign((size_t)n * inputs, 0);
    for (u32 j = 0; j < n; j++)
        for (u32 i = 0; i < inputs; i++) {
            const half_float v = (half_float)(random_unit() * size / sqrtf((float)inputs));
            const u32 word = j % 16 / 8 + i % 16 / 8 * 2, lane = j % 8 * 4 + i % 8 / 2;
            const size_t at =
                ((size_t)(j / 16) * (k / 16) + i / 16) * 256 + lane * 8 + word * 2 + i % 2;
            memcpy(&packed[at], &v, 2);
            (*plain)[(size_t)j * inputs + i] = (float)v;
        }
    m.data = (const u8 *)gpu_copy_of(packed.data(), packed.size());
    m.scales = gpu_copy_of(vector<float>(n, 1).data(), n);
    return m;
}

static void check_mxfp4(const struct matrix &m, u32 inputs, const vector<float> &plain)
{
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const vector<u8> data = get(m.data, (size_t)m.n * m.k / 2);
    const vector<u16> scales = get((const u16 *)m.scales, (size_t)m.n * m.groups);
    bool ok = m.group == 32;
    for (u32 j = 0; j < m.n; j++)
        for (u32 i = 0; i < m.k; i++) {
            const size_t chunk = (size_t)(j / 16) * (m.k / 64) + i / 64;
            const size_t group = (size_t)(j / 16) * (m.k / 32) + i / 32;
            const u32 lane = j % 8 * 4 + i % 8 / 2, tile = i % 64 / 16;
            const u8 two = data[chunk * 512 + lane * 16 + tile * 4 + j % 16 / 8 * 2 + i % 2];
            const u32 nibble = i % 16 / 8 ? two >> 4 : two & 15;
            const float q = nibble & 8 ? -values[nibble & 7] : values[nibble];
            const u32 bits = (u32)scales[group * 16 + j % 8 * 2 + j % 16 / 8] << 16;
            float scale;
            memcpy(&scale, &bits, 4);
            const bool real = i < inputs;
            ok &= real ? ldexpf(q, -14) * scale == plain[(size_t)j * inputs + i] : nibble == 0;
            ok &= real || inputs <= 32 || bits == 0;
        }
    report(ok, "MXFP4 in its packed form");
}

/* Rows of MXFP4, whose scales are 2^(s - 127) of this s and some above; their values go to `plain`.
 */
struct mxfp4 {
    vector<u8> data, scales;
    vector<u16> bias; /* bf16 */
    u32 k;

    void add(u32 s, vector<float> *plain, vector<float> *plain_bias)
    {
        static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        for (u32 i = 0; i < k; i++) {
            const u32 nibble = random_u32() % 16;
            if (i % 32 == 0)
                scales.push_back((u8)(s + random_u32() % 3));
            if (i % 2 == 0)
                data.push_back((u8)nibble);
            else
                data.back() |= (u8)(nibble << 4);
            const float v = nibble < 8 ? values[nibble] : -values[nibble - 8];
            plain->push_back(scales.back() < 1 ? 0 : ldexpf(v, (int)scales.back() - 127));
        }
        const float b = random_unit() * 3;
        u32 bits;
        memcpy(&bits, &b, 4);
        bias.push_back((u16)(bits >> 16));
        bits = bits >> 16 << 16;
        float rounded;
        memcpy(&rounded, &bits, 4);
        plain_bias->push_back(rounded);
    }
};

/* All experts as a file has them, packed: of `parts` 2 rows of gates and of ups in turns, of 1 of
 * downs. n: outputs of a part. Values and biases go to `plain` in the order of memory. */
static struct matrix pack_mxfp4(u32 experts, u32 parts, u32 n, u32 inputs, u32 s,
                                vector<float> *plain, vector<float> *plain_bias)
{
    struct matrix all = {};
    all.kind = MATRIX_FP4;
    all.scale_type = DTYPE_BF16;
    all.n = experts * parts * n;
    all.k = padded(inputs);
    all.group = 32;
    all.groups = all.k / 32;
    all.slice = ROUND_UP(CEIL_DIV(all.k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT);
    u8 *data = (u8 *)gpu_take((size_t)all.n * all.k / 2);
    u16 *scales = (u16 *)gpu_take((size_t)all.n * all.groups * 2);
    float *bias = (float *)gpu_take(all.n * 4);
    all.data = data, all.scales = scales, all.bias = bias;
    for (u32 e = 0; e < experts; e++) {
        struct mxfp4 file = {{}, {}, {}, inputs};
        vector<float> values, biases;
        for (u32 j = 0; j < parts * n; j++)
            file.add(s, &values, &biases);
        for (u32 j = 0; j < parts * n; j++) { /* in the order of memory */
            const u32 from = parts == 1 ? j : (j / 16 * 8 + j % 8) * 2 + j % 16 / 8;
            plain->insert(plain->end(), &values[(size_t)from * inputs],
                          &values[(size_t)from * inputs] + inputs);
            plain_bias->push_back(biases[from]);
        }
        file.data.insert(file.data.begin(), 1, 0); /* aligned to nothing */
        file.scales.insert(file.scales.begin(), 3, 0);
        const u8 *of_data = gpu_copy_of(file.data.data(), file.data.size()) + 1;
        const u8 *of_scales = gpu_copy_of(file.scales.data(), file.scales.size()) + 3;
        const u16 *of_bias = gpu_copy_of(file.bias.data(), file.bias.size());
        for (u32 part = 0; part < parts; part++) {
            struct gpu_pack p = {};
            const size_t row = (size_t)e * parts * n;
            p.from.kind = WEIGHT_MXFP4;
            p.from.n = n, p.from.k = inputs, p.from.bits = 4;
            p.from.group = 32, p.from.groups = inputs / 32, p.from.row_step = parts;
            p.from.scale_type = DTYPE_E8M0, p.from.bias_type = DTYPE_BF16;
            p.from.data = of_data + part * (inputs / 2);
            p.from.scales = of_scales + part * (inputs / 32);
            p.from.bias = of_bias + part;
            p.to = all;
            p.to.n = parts * n;
            p.to.data = data + row * all.k / 2;
            p.to.scales = scales + row * all.groups;
            p.to.bias = bias + row;
            p.run = parts == 2 ? 8 : 16, p.step = 16, p.at = part * 8;
            p.stride = n, p.group = inputs > 32 ? 32 : all.k;
            gpu_launch("pack", 2, PACK_SHARED_BYTES, &p, sizeof p);
        }
    }
    check_mxfp4(all, inputs, *plain);
    return all;
}

static struct input make_input(const struct matrix &m, const float *x, u32 features, u32 room)
{
    struct input in = {};
    in.x = x;
    in.features = in.stride = features;
    in.k = in.room = m.k;
    in.group = m.kind == MATRIX_INT4 || m.kind == MATRIX_FP4 ? m.group : 0;
    in.prepared = (u16 *)gpu_take((size_t)room * (m.k / MATRIX_K_UNIT) * PREPARED_GROUP_BYTES);
    in.prepared_scale = (float *)gpu_take((size_t)room * MATRIX_SLICES * 4);
    in.prepared_factor = (float *)gpu_take((size_t)room * 4);
    return in;
}

static struct mixture make_mixture(u32 kind, u32 group, u32 experts, u32 used, u32 hidden,
                                   u32 inter, u32 tokens, enum way way)
{
    struct mixture m = {};
    m.experts = experts, m.used = used, m.hidden = hidden, m.inter = inter, m.tokens = tokens;
    m.way = way;
    m.x = random_floats((size_t)tokens * hidden, 2);
    m.norm = random_floats(hidden, 1);
    m.router = random_floats((size_t)experts * hidden, 1 / sqrtf((float)hidden));
    for (u32 i = 0; i < hidden && experts < 100; i++) /* the first are asked for most */
        m.router[i] = m.router[hidden + i] = m.norm[i] * 0.1f;
    const size_t pairs = (size_t)tokens * used;
    struct routes routes = {};
    routes.logits = (float *)gpu_take((size_t)tokens * experts * 4);
    routes.count = (u32 *)gpu_take(experts * 4);
    routes.token = (u32 *)gpu_take((size_t)tokens * experts * 4);
    routes.route = (struct route *)gpu_take(pairs * sizeof(struct route));
    routes.experts = experts, routes.used = used, routes.room = tokens, routes.renormalized = 1;
    const float size = way == GPT_OSS ? 8 : 1; /* so that gates and ups are cut off */
    struct matrix up, down;
    if (kind == MATRIX_FP4) {
        const u32 s = 127 - (u32)log2f((float)hidden) / 2;
        up = pack_mxfp4(experts, 2, inter, hidden, s, &m.w_up, &m.b_up);
        down = pack_mxfp4(experts, 1, hidden, inter, 120, &m.w_down, &m.b_down);
    } else {
        up = make_matrix(kind, group, experts * 2 * inter, hidden, size, &m.w_up);
        down = make_matrix(kind, group, experts * hidden, inter, 1, &m.w_down);
    }
    if (way == GPT_OSS && kind != MATRIX_FP4) {
        m.b_up = random_floats(up.n, 3);
        m.b_down = random_floats(down.n, 3);
        up.bias = gpu_copy_of(m.b_up.data(), up.n);
        down.bias = gpu_copy_of(m.b_down.data(), down.n);
    }
    float *h = (float *)gpu_take(pairs * inter * 4), *y = (float *)gpu_take(pairs * hidden * 4);
    float *x = gpu_copy_of(m.x.data(), m.x.size());
    float *partial = (float *)gpu_take(LINEAR_PARTIALS * sizeof(float));
    const u32 room = experts_prepared_rows(experts, (u32)pairs);
    struct input in = make_input(up, x, hidden, room);
    in.kind = INPUT_NORM;
    in.norm = gpu_copy_of(m.norm.data(), hidden);
    in.eps = 1e-6f;
    m.route.kind = OP_ROUTE;
    m.route.route = {routes, in, gpu_copy_of(m.router.data(), m.router.size()), NULL, 1, 0, NULL,
                     NULL,   0};
    if (way == GPT_OSS) {
        m.router_bias = random_floats(experts, 1);
        m.route.route.router_bias = gpu_copy_of(m.router_bias.data(), experts);
    }
    const bool biased = way == BIASED || way == BIASED_SOFTMAX;
    if (biased) { /* which changes the choice, of scores of any sign */
        m.bias = random_floats(experts, way == BIASED ? 0.7f : 2.0f / (float)experts);
        m.route.route.softmax = way == BIASED_SOFTMAX;
        m.route.route.bias = gpu_copy_of(m.bias.data(), experts);
        m.route.route.scale = 1.7f;
    }
    m.choose = m.route;
    m.choose.kind = biased ? OP_JUDGE : OP_CHOOSE;
    m.up.kind = m.down.kind = OP_EXPERTS;
    const u32 activation = way == GPT_OSS ? ACT_GPT_OSS : ACT_SILU;
    m.up.experts = {in,         up,    routes, 2 * inter / 16, 0,   0, OUTPUT_GATE,
                    activation, inter, h,      partial,        NULL};
    m.down.experts = {make_input(down, h, inter, room),
                      down,
                      routes,
                      hidden / 16,
                      1,
                      0,
                      OUTPUT_STORE,
                      activation,
                      hidden,
                      y,
                      partial,
                      NULL};
    const u32 shared = gpu_shared_bytes_max() / 128 * 128 - STEP_SHARED_BYTES;
    m.up.experts.few_rows = experts_few_rows(&m.up.experts, shared);
    m.down.experts.few_rows = experts_few_rows(&m.down.experts, shared);
    m.mix.kind = OP_MIX;
    m.mix.mix = {routes, x, y, hidden, hidden, hidden, 0};
    return m;
}

/* What the operations left, token by token, whatever order an expert's pairs have. */
struct left {
    vector<float> logits, h, y, x; /* h, y: [token][expert in order] */
};

static void prepare_run(struct gpu_run *p, const struct mixture &m, u32 tokens)
{
    const struct op ops[] = {m.route, m.choose, m.up, m.down, m.mix};
    struct gpu_step step = {};
    step.n_tokens = tokens;
    *p = {};
    p->ops = gpu_copy_of(ops, 5);
    p->step = gpu_copy_of(&step, 1);
    p->last = 5;
    p->shared_bytes = (u32)(gpu_shared_bytes_max() / 128 * 128 - STEP_SHARED_BYTES);
    p->state.barrier = (u32 *)gpu_take(8);
    gpu_put(m.mix.mix.x, m.x.data(), m.x.size() * 4);
}

static struct left run(const struct mixture &m, u32 tokens, const char *kernel, u32 blocks)
{
    const struct routes &r = m.route.route.routes;
    struct gpu_run p;
    prepare_run(&p, m, tokens);
    gpu_launch(kernel, blocks, p.shared_bytes + STEP_SHARED_BYTES, &p, sizeof p);
    struct left l = {get(r.logits, (size_t)tokens * m.experts),
                     {},
                     {},
                     get(m.mix.mix.x, (size_t)tokens * m.hidden)};
    const size_t pairs = (size_t)tokens * m.used;
    const vector<struct route> routes = get(r.route, pairs);
    const vector<u32> count = get(r.count, m.experts);
    const vector<float> h = get(m.up.experts.y, pairs * m.inter),
                        y = get(m.down.experts.y, pairs * m.hidden);
    vector<u32> first(m.experts + 1);
    for (u32 e = 0; e < m.experts; e++)
        first[e + 1] = first[e] + count[e];
    for (const struct route &of : routes) {
        const size_t at = first[of.expert] + of.nth;
        l.h.insert(l.h.end(), &h[at * m.inter], &h[(at + 1) * m.inter]);
        l.y.insert(l.y.end(), &y[at * m.hidden], &y[(at + 1) * m.hidden]);
    }
    return l;
}

static bool begins(const vector<float> &all, const vector<float> &some)
{
    return memcmp(all.data(), some.data(), some.size() * 4) == 0;
}

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

static double gated(enum way way, double gate, double up)
{
    if (way != GPT_OSS)
        return gate * sigmoid(gate) * up;
    gate = fmin(gate, 7);
    return gate * sigmoid(1.702 * gate) * (fmax(fmin(up, 7), -7) + 1);
}

/* Against doubles: a token's logits, its experts by these, and all that follows; relative to the
 * largest of what experts say, where that is above 1. */
static double worst_of(const struct mixture &m, const struct left &l, u32 tokens)
{
    double worst = 0, largest = 1;
    auto bias = [](const vector<float> &all, size_t i) { return all.empty() ? 0 : all[i]; };
    for (u32 t = 0; t < tokens; t++) {
        const float *x = &m.x[(size_t)t * m.hidden];
        double squares = 0, total = 0;
        vector<double> row(m.hidden), logits(m.experts), weight(m.experts), score, out(m.hidden);
        for (u32 i = 0; i < m.hidden; i++)
            squares += (double)x[i] * x[i];
        for (u32 i = 0; i < m.hidden; i++)
            row[i] = x[i] * (double)m.norm[i] / sqrt(squares / m.hidden + 1e-6);
        for (u32 e = 0; e < m.experts; e++) {
            logits[e] = bias(m.router_bias, e);
            for (u32 i = 0; i < m.hidden; i++)
                logits[e] += row[i] * m.router[(size_t)e * m.hidden + i];
            worst = fmax(worst, fabs(logits[e] - l.logits[(size_t)t * m.experts + e]));
        }
        double powers = 0;
        for (u32 e = 0; e < m.experts; e++) {
            weight[e] = m.way == BIASED ? sigmoid(logits[e]) : exp(logits[e]);
            powers += weight[e];
        }
        for (u32 e = 0; e < m.experts && m.way == BIASED_SOFTMAX; e++)
            weight[e] /= powers;
        score = weight;
        for (u32 e = 0; e < m.bias.size(); e++)
            score[e] += m.bias[e];
        vector<u32> order(m.experts);
        for (u32 e = 0; e < m.experts; e++)
            order[e] = e;
        std::stable_sort(order.begin(), order.end(),
                         [&](u32 a, u32 b) { return score[a] > score[b]; });
        for (u32 i = 0; i < m.used; i++)
            total += weight[order[i]];
        total /= m.bias.empty() ? 1 : m.route.route.scale;
        for (u32 i = 0; i < m.used; i++) {
            const u32 e = order[i];
            const float *w = &m.w_up[(size_t)e * 2 * m.inter * m.hidden];
            vector<double> h(m.inter);
            for (u32 j = 0; j < m.inter; j++) { /* blocks of 16: 8 gates, their 8 ups */
                const u32 at = j / 8 * 16 + j % 8;
                double gate = bias(m.b_up, e * 2 * m.inter + at),
                       up = bias(m.b_up, e * 2 * m.inter + at + 8);
                for (u32 k = 0; k < m.hidden; k++) {
                    gate += row[k] * w[(size_t)at * m.hidden + k];
                    up += row[k] * w[(size_t)(at + 8) * m.hidden + k];
                }
                h[j] = gated(m.way, gate, up);
            }
            for (u32 j = 0; j < m.hidden; j++) {
                double sum = bias(m.b_down, e * m.hidden + j);
                for (u32 k = 0; k < m.inter; k++)
                    sum += h[k] * m.w_down[((size_t)e * m.hidden + j) * m.inter + k];
                out[j] += sum * weight[e] / total;
                largest = fmax(largest, fabs(sum));
            }
        }
        for (u32 j = 0; j < m.hidden; j++)
            worst = fmax(worst, fabs(x[j] + out[j] - l.x[(size_t)t * m.hidden + j]));
    }
    return worst / largest;
}

static bool same(const struct left &all, const struct left &some)
{
    return begins(all.logits, some.logits) && begins(all.h, some.h) && begins(all.y, some.y) &&
           begins(all.x, some.x);
}

/* Can this kernel compute it? */
static bool does(const struct mixture &m, const char *kernel)
{
    if (!gpu_has_kernel(kernel))
        return false;
    if (strcmp(kernel, "step") == 0)
        return true;
    if (!m.bias.empty()) /* OP_JUDGE is `step`'s alone */
        return false;
    if (strcmp(kernel, "decode") == 0)
        return m.up.experts.few_rows && m.down.experts.few_rows;
    return (m.up.experts.matrix.kind == MATRIX_FP4) == (strcmp(kernel, "prefill_experts") != 0) &&
           experts_are_broad(&m.up.experts) && experts_are_broad(&m.down.experts);
}

static void test(u32 kind, u32 group, u32 experts, u32 used, u32 hidden, u32 inter, u32 tokens,
                 enum way way = SOFTMAX)
{
    static const char *const names[] = {"INT4", "INT8", "halves", "MXFP4"};
    static const char *const ways_names[] = {"", ", biased", ", biased softmax", ", as gpt-oss"};
    const struct mixture m = make_mixture(kind, group, experts, used, hidden, inter, tokens, way);
    const u32 blocks = gpu_multiprocessors();
    const struct left all = run(m, tokens, "step", blocks);
    const double worst = m.w_up.empty() ? 0 : worst_of(m, all, MIN(tokens, 7u));
    bool fewer = true;
    char what[200], ways[100] = "";
    for (u32 n : {1u, 20u, 70u})
        if (n < tokens)
            fewer &= same(all, run(m, n, "step", blocks - 1));
    if (gpu_choose_groups(false)) { /* as on other cards */
        bool others = true;
        for (u32 n : {tokens, 20u})
            others &= n > tokens || same(all, run(m, n, "step", blocks));
        gpu_choose_groups(true);
        fewer &= others;
        snprintf(ways, sizeof ways, ", %s", others ? "others" : "OTHER BITS: others");
    }
    struct mixture narrow = m; /* as where few rows fit shared memory */
    narrow.up.experts.few_rows = MIN(m.up.experts.few_rows, 1u);
    narrow.down.experts.few_rows = MIN(m.down.experts.few_rows, 2u);
    for (const char *kernel : {"prefill_experts", "prefill_experts_fp4", "decode"}) {
        bool here = true, any = does(m, kernel);
        for (u32 n : {strcmp(kernel, "decode") == 0 ? 65u : tokens, 3u, 8u})
            if (n <= tokens && any)
                here &= same(all, run(n == 8 ? narrow : m, n, kernel, blocks));
        if (any)
            snprintf(ways + strlen(ways), 30, "%s%s", here ? ", " : ", OTHER BITS: ", kernel);
        fewer &= here;
    }
    snprintf(what, sizeof what, "%s %u: %u of %u experts%s, %u x %u, %u tokens: max error %.1e%s",
             names[kind], group, used, experts, ways_names[way], hidden, inter, tokens, worst,
             ways);
    double size = 0; /* not all of it 0, and nothing else than numbers */
    for (u32 i = 0; i < tokens * hidden; i++)
        size += fabs(all.x[i] - m.x[i]);
    report(size > 0 && isfinite(size) && fewer && worst < 4e-3, what);
}

/* Each operation alone, with its launch: experts as those of qwen3-30b-a3b. */
static void bench(u32 tokens)
{
    static const char *const names[] = {"route", "choose", "up", "down", "mix"};
    const struct mixture m = make_mixture(MATRIX_INT4, 128, 128, 8, 2048, 768, tokens, SOFTMAX);
    const u32 blocks = gpu_multiprocessors();
    for (const char *kernel : {"step", "decode", "prefill_experts"}) {
        struct gpu_run p;
        if (!does(m, kernel))
            continue;
        prepare_run(&p, m, tokens);
        gpu_launch(kernel, blocks, p.shared_bytes + STEP_SHARED_BYTES, &p, sizeof p);
        printf("%-16s %5u tokens, us:", kernel, tokens);
        for (u32 i = 2; i < 7; i++) { /* choose counts on, behind route only */
            p.first = i % 5 == 1 ? 0 : i % 5;
            p.last = i % 5 + 1;
            printf(" %s %.1f", names[i % 5],
                   (double)gpu_time_us(kernel, blocks, p.shared_bytes + STEP_SHARED_BYTES, &p,
                                       sizeof p, 10));
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    if (argc > 3 && strcmp(argv[3], "--bench") == 0) {
        for (u32 tokens : {8u, 32u, 64u, 512u, 2048u})
            bench(tokens);
        return 0;
    }
    for (u32 s : {0u, 2u, 238u}) { /* scales that are 0, and the largest but infinity */
        vector<float> plain, bias;
        pack_mxfp4(2, 1, 16, 96, s, &plain, &bias);
    }
    test(MATRIX_HALF, 0, 8, 2, 64, 48, 9);
    test(MATRIX_HALF, 0, 5, 3, 320, 136, 80);
    test(MATRIX_HALF, 0, 40, 4, 1040, 200, 20);
    test(MATRIX_HALF, 0, 6, 2, 64, 48, 70, BIASED);
    test(MATRIX_HALF, 0, 40, 4, 320, 136, 20, BIASED);
    test(MATRIX_HALF, 0, 64, 6, 64, 48, 70, BIASED_SOFTMAX);
    test(MATRIX_HALF, 0, 200, 4, 320, 136, 20, BIASED_SOFTMAX);
    test(MATRIX_HALF, 0, 8, 2, 64, 48, 70, GPT_OSS);
    test(MATRIX_INT8, 128, 8, 2, 256, 136, 80, GPT_OSS);
    test(MATRIX_INT4, 128, 8, 2, 256, 136, 80, GPT_OSS);
    test(MATRIX_INT4, 32, 8, 2, 64, 48, 70, GPT_OSS);
    test(MATRIX_FP4, 32, 8, 4, 96, 160, 70, GPT_OSS);
    test(MATRIX_FP4, 32, 8, 4, 160, 96, 20, SOFTMAX);
    test(MATRIX_FP4, 32, 4, 2, 32, 32, 9, GPT_OSS);
    test(MATRIX_FP4, 32, 3, 2, 2880, 64, 9,
         GPT_OSS); /* slices of 384, the last of 256, 64 of padding */
    test(MATRIX_FP4, 32, 3, 2, 64, 2880, 9, GPT_OSS);
    test(MATRIX_INT8, 128, 8, 2, 256, 136, 80);
    test(MATRIX_INT8, 32, 8, 2, 64, 48, 70);
    test(MATRIX_INT4, 128, 8, 2, 256, 136, 80);
    test(MATRIX_INT4, 32, 8, 2, 64, 48, 70);
    test(MATRIX_INT4, 128, 6, 2, 528, 136, 300);
    test(MATRIX_INT4, 128, 2, 1, 1104, 64, 66); /* longer slices */
    test(MATRIX_INT4, 128, 2, 1, 64, 1104, 66);
    test(MATRIX_INT4, 32, 4, 1, 144, 264, 530);
    if (argc < 2 || strcmp(argv[1], "--some") != 0)
        for (enum way way : {SOFTMAX, BIASED})
            test(MATRIX_INT4, 128, 130, 8, 272, 136, 100, way);
    if (gpu_is_real()) {
        test(MATRIX_INT4, 128, 128, 8, 2048, 768, 2048);
        test(MATRIX_INT4, 128, 8, 2, 4096, 14336, 600);
        test(MATRIX_INT4, 32, 64, 6, 2048, 1408, 1500);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0;
}
