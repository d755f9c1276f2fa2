/* OP_CONVOLVE, OP_DELTA and OP_DELTA_END, OP_SHORT, OP_QUERIES and OP_GATES against plain
 * double-precision references; and the same bits for a token however its sequence is cut, whoever
 * shares the step, by any number of blocks.
 *
 * g++ -std=gnu++17 -O2 -mf16c -Wall -Wextra -Wno-unknown-pragmas -I. -static-libstdc++ \
 *     -static-libgcc -o delta_test tests/cuda/delta_test.cc tests/cuda/harness.cc \
 *     tests/fakecuda/{atomics,emulate,tensor}.cc -x c++ kernels/cuda/step.cu -ldl
 * delta_test [--gpu step.cubin [N]]       N: timings, by N blocks a multiprocessor
 */
#include "tests/cuda/harness.h"

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

static float random_unit(void) /* [-1, 1), splitmix64 */
{
    u64 z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (float)(i32)(u32)(z >> 32) / 2147483648.0f;
}

static vector<float> random_floats(size_t n, float size, float about = 0)
{
    vector<float> v(n);
    for (float &x : v)
        x = random_unit() * size + about;
    return v;
}

static float *floats_of(const vector<float> &v)
{
    return gpu_copy_of(v.data(), v.size());
}

static float *floats_or_null(const vector<float> &v)
{
    return v.empty() ? NULL : floats_of(v);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void launch(const struct op *ops, u32 n, const struct gpu_step &step, u32 blocks,
                   u32 shared_bytes = 0)
{
    static u32 *const barrier = (u32 *)gpu_take(8);
    struct gpu_run run = {};
    run.ops = gpu_copy_of(ops, n);
    run.step = gpu_copy_of(&step, 1);
    run.last = n;
    run.state.barrier = barrier;
    gpu_launch("delta", blocks, shared_bytes, &run, sizeof run);
}

/* --- delta nets ---------------------------------------------------------------------------- */

enum { SLOTS = 4, STEP_TOKENS = 128, BEHIND = 16 }; /* BEHIND: what else rows have */

struct net {
    struct op_delta op;                       /* on the card: room for STEP_TOKENS, SLOTS */
    vector<float> conv, a_log, dt_bias, norm; /* conv: [channels][taps] */
    vector<float> conv_bias, skip;            /* of Mamba; conv_bias, as norm, may be empty */
};

/* Parts of a row: one after another; all of a key head together but for b and a; z, v, k, q, a. */
enum layout { APART, JOINED, MAMBA, MAMBA_UNBIASED };

static void place_parts(struct op_delta *op, enum layout layout)
{
    struct delta_columns *parts[] = {&op->q, &op->k, &op->v, &op->z, &op->b, &op->a};
    const u32 value = op->shared * op->value_dim;
    if (layout >= MAMBA) {
        const u32 values = op->key_heads * value, keys = op->key_heads * op->key_dim;
        op->z = {0, value};
        op->v = {values, value};
        op->k = {2 * values, op->key_dim};
        op->q = {2 * values + keys, op->key_dim};
        op->a = {2 * values + 2 * keys, op->shared};
        return;
    }
    const bool joined = layout == JOINED;
    const u32 sizes[] = {op->key_dim, op->key_dim, value, value, op->shared, op->shared};
    u32 at = 0, all = 0;
    for (u32 i = 0; i < 6; i++) {
        *parts[i] = {at, joined ? 2 * op->key_dim + 2 * value : sizes[i]};
        at += joined ? sizes[i] : op->key_heads * sizes[i];
        all += i < 4 ? op->key_heads * sizes[i] : 0;
    }
    if (joined) {
        op->b = {all, 2 * op->shared};
        op->a = {all + op->shared, 2 * op->shared};
    }
}

static u32 column_of(const struct op_delta &op, u32 channel)
{
    const u32 keys = op.key_heads * op.key_dim, value = op.shared * op.value_dim;
    if (channel < keys)
        return op.q.at + channel / op.key_dim * op.q.step + channel % op.key_dim;
    if ((channel -= keys) < keys)
        return op.k.at + channel / op.key_dim * op.k.step + channel % op.key_dim;
    channel -= keys;
    return op.v.at + channel / value * op.v.step + channel % value;
}

/* Of no heads: a short convolution. Returns how many there are. */
static u32 list_ops(struct op ops[3], const struct op_delta &delta)
{
    const u32 kinds[] = {OP_CONVOLVE, OP_DELTA, OP_DELTA_END};
    const u32 n = delta.value_heads ? 3 : 1;
    for (u32 i = 0; i < n; i++) {
        ops[i].kind = delta.value_heads ? kinds[i] : (u32)OP_SHORT;
        ops[i].delta = delta;
    }
    return n;
}

static u32 outputs_of(const struct op_delta &op)
{
    return op.value_heads ? op.value_heads * op.value_dim : op.channels;
}

/* What all have: weights of the convolution, and room. */
static void take_room(struct net *net)
{
    struct op_delta *op = &net->op;
    vector<float> rows; /* [taps][channels] */
    net->conv = random_floats(op->channels * op->taps, 0.8f);
    for (u32 i = 0; i < op->taps * op->channels; i++)
        rows.push_back(net->conv[i % op->channels * op->taps + i / op->channels]);
    op->conv = floats_of(rows);
    op->in = (float *)gpu_take((size_t)STEP_TOKENS * op->stride * 4);
    op->out = (float *)gpu_take((size_t)STEP_TOKENS * op->out_stride * 4);
    op->state = floats_of(vector<float>((size_t)SLOTS * op->state_stride, NAN));
}

static struct net make_short(u32 channels, u32 taps)
{
    struct net net = {};
    net.op.channels = channels;
    net.op.taps = taps;
    net.op.stride = 3 * channels + BEHIND;
    net.op.out_stride = channels + BEHIND;
    net.op.state_stride = (taps - 1) * channels;
    take_room(&net);
    return net;
}

/* groups: of Mamba's norm; 0: it has none here. */
static struct net make_net(u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim, u32 taps,
                           enum layout layout, u32 groups = 0)
{
    struct net net = {};
    struct op_delta *op = &net.op;
    op->key_heads = key_heads;
    op->value_heads = value_heads;
    op->key_dim = key_dim;
    op->value_dim = value_dim;
    op->taps = taps;
    op->shared = value_heads / key_heads;
    op->norm_n = groups ? value_heads * value_dim / groups : value_dim;
    op->eps = 1e-6f;
    place_parts(op, layout);
    op->channels = 2 * key_heads * key_dim + value_heads * value_dim;
    op->stride = ROUND_UP(op->channels + value_heads * (value_dim + 2) + BEHIND, 16u);
    op->out_stride = value_heads * value_dim + BEHIND;
    op->mixed_stride = op->channels + 4 * value_heads + BEHIND;
    op->state_stride = value_heads * value_dim * key_dim + (taps - 1) * op->channels;
    net.a_log = random_floats(value_heads, 2, -1);
    net.dt_bias = random_floats(value_heads, 2, -1);
    if (layout >= MAMBA)
        net.skip = random_floats(value_heads, 1);
    if (layout < MAMBA || groups)
        net.norm = random_floats(groups ? value_heads * value_dim : value_dim, 1);
    if (layout == MAMBA)
        net.conv_bias = random_floats(op->channels, 1);
    op->a_log = floats_of(net.a_log);
    op->dt_bias = floats_of(net.dt_bias);
    op->norm = floats_or_null(net.norm);
    op->skip = floats_or_null(net.skip);
    op->conv_bias = floats_or_null(net.conv_bias);
    op->mixed = floats_of(vector<float>((size_t)STEP_TOKENS * op->mixed_stride, NAN));
    take_room(&net);
    return net;
}

/* Each norm_n of so many. */
static void norm_parts(const struct net &net, double *y, u32 all)
{
    const u32 n = net.op.norm_n;
    for (u32 at = 0; at < all; at += n) {
        double squares = 0;
        for (u32 j = at; j < at + n; j++)
            squares += y[j] * y[j];
        for (u32 j = at; j < at + n; j++)
            y[j] *= net.norm[j] / sqrt(squares / n + net.op.eps);
    }
}

/* Rows of a sequence go in, [tokens][value_heads][value_dim] come out. */
static vector<double> reference(const struct net &net, const vector<float> &in)
{
    const struct op_delta &op = net.op;
    const u32 tokens = (u32)(in.size() / op.stride), keys = op.key_dim, values = op.value_dim;
    const bool mamba = !net.skip.empty();
    vector<double> out, mixed(op.channels);
    vector<vector<double>> s(op.value_heads, vector<double>(keys * values));
    for (u32 t = 0; t < tokens; t++) {
        const float *row = &in[(size_t)t * op.stride];
        for (u32 c = 0; c < op.channels; c++) {
            double sum = net.conv_bias.empty() ? 0 : net.conv_bias[c];
            for (u32 i = 0; i < op.taps; i++)
                if (t + i + 1 >= op.taps)
                    sum += (double)net.conv[c * op.taps + i] *
                           in[(size_t)(t + i + 1 - op.taps) * op.stride + column_of(op, c)];
            mixed[c] = sum * sigmoid(sum);
        }
        for (u32 h = 0; h < op.value_heads; h++) {
            const u32 of = h / op.shared, nth = h % op.shared;
            const float *z = row + op.z.at + of * op.z.step + nth * values;
            const float a = row[op.a.at + of * op.a.step + nth];
            const float b = row[op.b.at + of * op.b.step + nth];
            const double *q = &mixed[of * keys];
            const double *k = q + op.key_heads * keys;
            const double *v = &mixed[2 * op.key_heads * keys + h * values];
            double qq = 1e-6, kk = 1e-6, squares = 0;
            for (u32 i = 0; i < keys; i++)
                qq += q[i] * q[i], kk += k[i] * k[i];
            const double q_by = mamba ? 1 : 1 / sqrt(qq * keys), k_by = mamba ? 1 : 1 / sqrt(kk);
            const double dt = log1p(exp((double)a + net.dt_bias[h]));
            const double decay = exp(-exp((double)net.a_log[h]) * dt);
            const double beta = mamba ? dt : sigmoid(b);
            vector<double> y(values);
            for (u32 j = 0; j < values; j++) {
                double seen = 0;
                for (u32 i = 0; i < keys; i++)
                    seen += (s[h][i * values + j] *= decay) * k[i] * k_by;
                for (u32 i = 0; i < keys; i++) {
                    s[h][i * values + j] += k[i] * k_by * beta * (v[j] - (mamba ? 0 : seen));
                    y[j] += s[h][i * values + j] * q[i] * q_by;
                }
                squares += y[j] * y[j];
                y[j] += mamba ? net.skip[h] * v[j] : 0;
            }
            for (u32 j = 0; j < values; j++) {
                const double gate = z[j];
                const double by = mamba ? 1 : net.norm[j] / sqrt(squares / values + op.eps);
                out.push_back(y[j] * by * gate * sigmoid(gate));
            }
        }
        if (mamba && !net.norm.empty())
            norm_parts(net, &out[(size_t)t * op.value_heads * values], op.value_heads * values);
    }
    return out;
}

static vector<double> short_reference(const struct net &net, const vector<float> &in)
{
    const struct op_delta &op = net.op;
    const u32 n = op.channels;
    vector<double> out;
    for (u32 t = 0; t < in.size() / op.stride; t++)
        for (u32 c = 0; c < n; c++) {
            double sum = 0;
            for (u32 i = 0; i < op.taps; i++)
                if (t + i + 1 >= op.taps) {
                    const float *row = &in[(size_t)(t + i + 1 - op.taps) * op.stride];
                    sum += (double)net.conv[c * op.taps + i] * row[c] * row[2 * n + c];
                }
            out.push_back(sum * in[(size_t)t * op.stride + n + c]);
        }
    return out;
}

struct sequence {
    vector<float> in; /* [tokens][stride] */
    u32 tokens, slot, chunk, done;
    vector<float> out; /* [tokens][outputs_of()] */
};

/* Steps until all are through, of up to `chunk` tokens of each. What is behind rows stays. */
static bool go(const struct net &net, vector<struct sequence *> all, u32 blocks)
{
    const struct op_delta &op = net.op;
    const u32 n = outputs_of(op);
    struct op ops[3] = {};
    const u32 n_ops = list_ops(ops, op);
    bool kept = true;
    for (;;) {
        vector<struct gpu_row> rows;
        vector<struct sequence *> of;
        vector<float> in, out;
        struct gpu_step step = {};
        for (struct sequence *q : all) {
            const u32 count = MIN(q->chunk, q->tokens - q->done);
            if (count == 0)
                continue;
            rows.push_back({q->slot, step.n_tokens, count, q->done, 0, 0});
            of.push_back(q);
            in.insert(in.end(), q->in.begin() + (size_t)q->done * op.stride,
                      q->in.begin() + (size_t)(q->done + count) * op.stride);
            step.n_tokens += count;
        }
        if (rows.empty())
            return kept;
        out.assign((size_t)step.n_tokens * op.out_stride, -7);
        gpu_put((void *)(uintptr_t)op.in, in.data(), in.size() * 4);
        gpu_put(op.out, out.data(), out.size() * 4);
        step.n_rows = (u32)rows.size();
        step.rows = gpu_copy_of(rows.data(), rows.size());
        launch(ops, n_ops, step, blocks, DELTA_SHARED_BYTES);
        gpu_get(out.data(), op.out, out.size() * 4);
        for (u32 r = 0; r < rows.size(); r++)
            for (u32 t = rows[r].first; t < rows[r].first + rows[r].n; t++) {
                const float *row = &out[(size_t)t * op.out_stride];
                of[r]->out.insert(of[r]->out.end(), row, row + n);
                of[r]->done++;
                for (u32 i = n; i < op.out_stride; i++)
                    kept &= row[i] == -7;
            }
    }
}

static struct sequence make_sequence(const struct net &net, u32 tokens, u32 slot, u32 chunk)
{
    return {random_floats((size_t)tokens * net.op.stride, 2), tokens, slot, chunk, 0, {}};
}

static void test_net(const struct net &net, const char *what)
{
    enum { TOKENS = 41 };
    struct sequence first = make_sequence(net, TOKENS, 1, TOKENS);
    bool same = go(net, {&first}, 3);
    const vector<double> want =
        net.op.value_heads ? reference(net, first.in) : short_reference(net, first.in);
    double worst = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        worst = fmax(worst, isnan(first.out[i]) ? INFINITY : fabs(first.out[i] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    for (u32 chunk : {1u, 2u, 5u, 16u, 17u}) /* where the slot was used before */
        for (bool alone : {true, false}) {
            struct sequence mine = first, before = make_sequence(net, 9, 3, 2),
                            behind = make_sequence(net, 30, 0, 14);
            mine.chunk = chunk;
            mine.slot = chunk % 2 ? 1 : 2;
            mine.done = 0;
            mine.out.clear();
            same &= alone ? go(net, {&mine}, chunk) : go(net, {&before, &mine, &behind}, 5);
            same &= memcmp(mine.out.data(), first.out.data(), mine.out.size() * 4) == 0;
        }
    printf("%s: max error %.1e of %.1e%s\n", what, worst, size, same ? "" : ", NOT same");
    report(worst < 2e-5 * size && same, what);
}

static void test_delta(u32 key_heads, u32 value_heads, u32 key_dim, u32 value_dim, u32 taps,
                       enum layout layout, u32 groups = 0)
{
    const char *const layouts[] = {"", " joined", " mamba", " mamba, no bias"};
    char what[96];
    int n = snprintf(what, sizeof what, "delta     keys %2u of %3u values %2u of %3u taps %u%s",
                     key_heads, key_dim, value_heads, value_dim, taps, layouts[layout]);
    if (groups)
        snprintf(what + n, sizeof what - (size_t)n, ", norms of %u",
                 value_heads * value_dim / groups);
    test_net(make_net(key_heads, value_heads, key_dim, value_dim, taps, layout, groups), what);
}

static void test_short(u32 channels, u32 taps)
{
    char what[96];
    snprintf(what, sizeof what, "short     channels %4u taps %u", channels, taps);
    test_net(make_short(channels, taps), what);
}

/* --- gated attention ----------------------------------------------------------------------- */

static void test_gated(u32 heads, u32 kv_heads, u32 dim)
{
    enum { TOKENS = 5 };
    const u32 queries = heads * dim, n_kv = 2 * kv_heads * dim;
    const u32 in_stride = 2 * queries + n_kv + 3, out_stride = queries + n_kv + 5;
    vector<float> in = random_floats((size_t)TOKENS * in_stride, 4), qkv(TOKENS * out_stride), out;
    struct op ops[2] = {};
    ops[0].kind = OP_QUERIES;
    ops[0].gated = {floats_of(in), floats_of(qkv), in_stride, out_stride, heads, kv_heads, dim};
    ops[1].kind = OP_GATES;
    ops[1].gated = ops[0].gated;
    struct gpu_step step = {};
    step.n_tokens = TOKENS;
    for (u32 t = 0; t < TOKENS; t++)
        for (u32 j = 0; j < queries + n_kv; j++)
            qkv[t * out_stride + j] =
                in[t * in_stride + (j < queries ? j / dim * 2 * dim + j % dim : queries + j)];
    out = qkv;
    launch(ops, 1, step, 3);
    gpu_get(out.data(), ops[0].gated.out, out.size() * 4);
    report(out == qkv, "queries");
    launch(ops + 1, 1, step, 2);
    gpu_get(out.data(), ops[0].gated.out, out.size() * 4);
    double worst = 0;
    for (u32 t = 0; t < TOKENS; t++)
        for (u32 j = 0; j < out_stride; j++) {
            const double gate =
                j < queries ? sigmoid(in[t * in_stride + j / dim * 2 * dim + dim + j % dim]) : 1;
            worst = fmax(worst, fabs(out[t * out_stride + j] - gate * qkv[t * out_stride + j]));
        }
    printf("gated     heads %2u %2u of %3u: max error %.1e\n", heads, kv_heads, dim, worst);
    report(worst < 2e-6, "gates");
}

/* --- timings ------------------------------------------------------------------------------- */

/* So many rows of so many tokens each, by so many blocks a multiprocessor. */
static void bench(struct net net, u32 n_rows, u32 tokens, u32 blocks)
{
    const size_t all = (size_t)n_rows * tokens;
    vector<struct gpu_row> rows;
    struct op ops[3] = {};
    struct gpu_step step = {};
    struct gpu_run run = {};
    net.op.in = floats_of(random_floats(all * net.op.stride, 1));
    net.op.out = (float *)gpu_take(all * net.op.out_stride * 4);
    net.op.state = (float *)gpu_take((size_t)n_rows * net.op.state_stride * 4);
    net.op.mixed = (float *)gpu_take(all * net.op.mixed_stride * 4);
    list_ops(ops, net.op);
    for (u32 r = 0; r < n_rows; r++)
        rows.push_back({r, r * tokens, tokens, 100, 0, 0});
    step.n_rows = n_rows;
    step.n_tokens = (u32)all;
    step.rows = gpu_copy_of(rows.data(), rows.size());
    run.ops = gpu_copy_of(ops, 3);
    run.step = gpu_copy_of(&step, 1);
    run.state.barrier = (u32 *)gpu_take(8);
    float us[3];
    for (u32 last : {1u, 2u, 3u}) {
        run.last = last;
        us[last - 1] = gpu_time_us("delta", blocks * gpu_multiprocessors(), DELTA_SHARED_BYTES,
                                   &run, sizeof run, 20);
    }
    printf(
        "%3u rows of %4u tokens: OP_CONVOLVE %.1f us, with OP_DELTA %.1f, with OP_DELTA_END %.1f\n",
        n_rows, tokens, us[0], us[1], us[2]);
}

static void bench_all(const struct net &net, const char *what, u32 blocks)
{
    printf("%s\n", what);
    for (u32 rows : {1u, 8u, 64u})
        bench(net, rows, 1, blocks);
    bench(net, 1, 64, blocks);
    bench(net, 1, 2048, blocks);
}

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    test_delta(1, 2, 128, 128, 4, APART);
    test_delta(2, 2, 32, 64, 4, APART);
    test_delta(2, 4, 32, 64, 4, JOINED);
    test_delta(2, 6, 16, 16, 2, JOINED);
    test_delta(1, 3, 48, 32, 4, APART);
    test_delta(1, 1, 112, 48, 8, APART);
    test_delta(1, 1, 128, 16, 3, APART);
    test_delta(1, 4, 128, 64, 4, MAMBA);
    test_delta(1, 3, 16, 16, 4, MAMBA);
    test_delta(2, 4, 64, 80, 4, MAMBA);
    test_delta(2, 2, 32, 128, 2, MAMBA_UNBIASED);
    test_delta(2, 4, 128, 80, 4, MAMBA, 2);
    test_delta(1, 3, 16, 48, 4, MAMBA, 3);
    test_delta(2, 32, 16, 80, 4, MAMBA_UNBIASED, 2);
    test_short(16, 2);
    test_short(48, 8);
    test_short(1040, 3);
    test_gated(4, 2, 64);
    test_gated(3, 1, 256);
    if (gpu_is_real() && argc > 3) {
        const u32 blocks = (u32)argv[3][0] - '0';
        bench_all(make_net(16, 48, 128, 128, 4, APART), "delta nets of 27B", blocks);
        bench_all(make_net(1, 48, 128, 64, 4, MAMBA), "Mamba of 7B, 1B active", blocks);
        bench_all(make_net(1, 128, 128, 64, 4, MAMBA), "Mamba of 32B, 9B active", blocks);
        bench_all(make_net(8, 128, 128, 80, 4, MAMBA, 8), "Mamba of 8B, norms of 1280", blocks);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
