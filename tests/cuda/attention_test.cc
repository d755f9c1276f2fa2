/* OP_ROPE and OP_ATTENTION against a plain double-precision reference, and against themselves: the
 * same sequences, cut into steps in many ways, beside other rows, on any number of blocks and with
 * any shared memory, must give the same bits. Unused pages hold NaNs and unused page table entries
 * point nowhere.
 *
 * g++ -std=gnu++17 -O2 -mf16c -Wall -Wextra -Wno-unknown-pragmas -I. -static-libstdc++ \
 *     -static-libgcc -o attention_test tests/cuda/attention_test.cc tests/cuda/harness.cc \
 *     tests/fakecuda/{atomics,emulate,tensor}.cc -x c++ kernels/cuda/step.cu -ldl
 * attention_test [--gpu step.cubin [--bench]] [NAME...]   (--bench: only timings)
 */
#include "tests/cuda/harness.h"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>

using std::string;
using std::vector;

static u32 passed, failed;

static void report(bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s\n", what);
}

static u64 random_state = 1;

static double random_unit(void) /* splitmix64 to [-1, 1) */
{
    u64 z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return (double)(z >> 11) / (double)(1ull << 52) - 1;
}

/* --- shapes and sequences ------------------------------------------------------------------ */

struct shape {
    const char *name;
    u32 heads, kv_heads, dim, window;
    float softcap;
    bool norm;
    u32 rope_dims;
    float gain; /* of q: how sharp the weights are */
    vector<u32> lengths;
    bool int8; /* pages of bytes */
    bool sinks = false;
    u32 span = 0;        /* queries are multiplied beyond so many positions; 0: not */
    bool turned = false; /* heads are normed once they are rotated */
};

struct sequence {
    u32 n, flags;
    vector<float> qkv;  /* [n][(heads + 2 kv_heads) * dim] */
    vector<double> out; /* [n][heads * dim] reference */
};

struct test_case {
    struct shape s;
    vector<float> norm_q, norm_k, freq, freq_long;
    vector<float> sinks; /* [heads], or empty */
    vector<sequence> sequences;
    double value_max; /* largest |v| */
};

static u32 row_floats(const struct shape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->dim;
}

static double to_half(double v)
{
    volatile float half = (float)(half_float)(float)v; /* gcc calls a slow function otherwise */
    return half;
}

static double rope_scale(const struct shape *s)
{
    return s->turned ? 1 : 1.25;
}

static void norm_head(vector<double> *v, const vector<float> &norm)
{
    double sum = 0;
    for (double e : *v)
        sum += e * e;
    for (size_t i = 0; i < v->size(); i++)
        (*v)[i] = (*v)[i] / sqrt(sum / (double)v->size() + 1e-6) * norm[i];
}

/* As OP_ROPE: norm, then rotation, or the other way around. */
static vector<double> turned(const struct test_case *t, const struct sequence *q, const float *x,
                             const vector<float> &norm, u32 pos)
{
    const struct shape *s = &t->s;
    vector<double> v(x, x + s->dim);
    if (s->norm && !s->turned)
        norm_head(&v, norm);
    const vector<float> &freq = q->flags & ROW_ROPE_LONG ? t->freq_long : t->freq;
    u32 half = s->rope_dims / 2;
    for (u32 i = 0; i < half; i++) {
        double angle = (float)pos * freq[i], scale = rope_scale(s);
        double c = cos(angle) * scale, d = sin(angle) * scale;
        double a = v[i], b = v[half + i];
        v[i] = a * c - b * d;
        v[half + i] = b * c + a * d;
    }
    if (s->norm && s->turned)
        norm_head(&v, norm);
    return v;
}

/* q enters the tensor core as halves, scaled by a power of two. */
static void round_query(vector<double> *q)
{
    double largest = 0;
    for (double v : *q)
        largest = fmax(largest, fabs(v));
    double power = largest > 0 ? exp2(13 - floor(log2(largest))) : 1;
    for (double &v : *q)
        v = to_half(v * power) / power;
}

/* Of the queries of a span of positions. */
static float query_scale(u32 span)
{
    return 1 + 0.75f * (float)span;
}

/* What is seen of a key or value head in a page: halves, or bytes times a scale that is a half. */
static vector<double> in_page(const struct shape *s, vector<double> v)
{
    double largest = 0, scale;
    for (double &x : v) {
        x = (float)fmin(fmax(x, -65504.0), 65504.0);
        largest = fmax(largest, fabs(x));
    }
    scale = to_half(largest / 127);
    if (scale * 127 < largest)
        scale = to_half(scale + fmax(scale * 1.2 / 2048, 4e-8)); /* the next half */
    for (double &x : v)
        x = to_half(!s->int8 ? x : scale == 0 ? 0 : rint(x / scale) * scale);
    return v;
}

/* keys, values: what is seen, [position][KV head]. */
static void reference_row(const struct test_case *t, struct sequence *q, u32 pos, u32 head,
                          const vector<vector<double>> &keys, const vector<vector<double>> &values)
{
    const struct shape *s = &t->s;
    u32 kv_head = head / (s->heads / s->kv_heads), stride = row_floats(s);
    vector<double> query =
        turned(t, q, &q->qkv[(size_t)pos * stride + head * s->dim], t->norm_q, pos);
    round_query(&query);
    for (double &v : query)
        v *= s->span ? query_scale(pos / s->span) : 1;
    u32 first = s->window && pos + 1 > s->window ? pos + 1 - s->window : 0;
    vector<double> score(pos + 1);
    double top = -INFINITY, sum = 0, *out = &q->out[((size_t)pos * s->heads + head) * s->dim];
    for (u32 key = first; key <= pos; key++) {
        double x = 0;
        for (u32 i = 0; i < s->dim; i++)
            x += query[i] * keys[(size_t)key * s->kv_heads + kv_head][i];
        x /= sqrt(s->dim);
        score[key] = s->softcap > 0 ? s->softcap * tanh(x / s->softcap) : x;
        top = fmax(top, score[key]);
    }
    for (u32 key = first; key <= pos; key++) {
        double p = exp(score[key] - top);
        sum += p;
        for (u32 i = 0; i < s->dim; i++)
            out[i] += p * values[(size_t)key * s->kv_heads + kv_head][i];
    }
    if (s->sinks)
        sum += exp(t->sinks[head] - top);
    for (u32 i = 0; i < s->dim; i++)
        out[i] /= sum;
}

static void reference(const struct test_case *t, struct sequence *q)
{
    const struct shape *s = &t->s;
    vector<vector<double>> keys, values;
    for (u32 pos = 0; pos < q->n; pos++)
        for (u32 h = 0; h < s->kv_heads; h++) {
            const float *k = &q->qkv[(size_t)pos * row_floats(s) + (s->heads + h) * s->dim];
            const float *v = k + s->kv_heads * s->dim;
            keys.push_back(in_page(s, turned(t, q, k, t->norm_k, pos)));
            values.push_back(in_page(s, vector<double>(v, v + s->dim)));
        }
    q->out.assign((size_t)q->n * s->heads * s->dim, 0);
    for (u32 pos = 0; pos < q->n; pos++)
        for (u32 h = 0; h < s->heads; h++)
            reference_row(t, q, pos, h, keys, values);
}

/* Its numbers do not depend on what ran before. */
static struct test_case make_case(const struct shape &s)
{
    random_state = 1;
    struct test_case t = {s, {}, {}, {}, {}, {}, {}, 0};
    for (u32 i = 0; i < s.dim; i++) {
        t.norm_q.push_back((float)(1 + 0.5 * random_unit()));
        t.norm_k.push_back((float)(1 + 0.5 * random_unit()));
    }
    for (u32 i = 0; i < s.rope_dims / 2; i++) {
        t.freq.push_back((float)pow(10000, -2.0 * i / s.rope_dims));
        t.freq_long.push_back(t.freq.back() / (1 + (float)i));
    }
    for (u32 i = 0; i < s.heads && s.sinks; i++) /* one far above all scores, one far below */
        t.sinks.push_back(i == 1 ? 300 : i == 3 ? -300 : (float)random_unit() * 6);
    for (u32 n : s.lengths) {
        struct sequence q = {n, t.sequences.size() % 2 ? (u32)ROW_ROPE_LONG : 0, {}, {}};
        for (size_t i = 0; i < (size_t)n * row_floats(&s); i++) {
            u32 head = (u32)(i % row_floats(&s) / s.dim);
            double v = random_unit() * (head < s.heads ? s.gain : 1);
            if (head >= s.heads + s.kv_heads) { /* values of very different sizes */
                u32 pos = (u32)(i / row_floats(&s));
                v *= pos % 5 == 4 ? 8 : pos % 7 == 6 ? 1e-3 : 1;
                t.value_max = fmax(t.value_max, fabs(v));
            }
            q.qkv.push_back((float)v);
        }
        reference(&t, &q);
        t.sequences.push_back(q);
    }
    return t;
}

/* --- the device's side ------------------------------------------------------------------------ */

struct device {
    u32 few_shared_bytes; /* not 0: steps of few tokens run in `decode`, with so much */
    const char *kernel;   /* that steps whose rows have one token each run in, or NULL */
    struct op ops[2];
    struct op *device_ops;
    struct gpu_run run;
    struct gpu_step *step;
    struct gpu_row *rows;
    u32 *token_row, *pages;
    u32 stride, tokens_max, blocks, arrived_n;
    vector<vector<u32>> tables; /* of each sequence */
};

static void make_pages(struct device *d, const struct test_case *t)
{
    u32 next = 0, total = 0;
    for (const struct sequence &q : t->sequences)
        total += CEIL_DIV(q.n, (u32)LIMIT_PAGE_TOKENS);
    u32 pool = total * 2 + 3;
    vector<u32> unused;
    for (u32 i = 0; i < pool; i++)
        unused.push_back(i);
    for (u32 i = pool - 1; i > 0; i--)
        std::swap(unused[i], unused[(u32)((random_unit() + 1) / 2 * i)]);
    d->run.state.pages_stride = 0;
    for (const struct sequence &q : t->sequences)
        d->run.state.pages_stride =
            MAX(d->run.state.pages_stride, CEIL_DIV(q.n, (u32)LIMIT_PAGE_TOKENS) + 3);
    vector<u32> table(t->sequences.size() * d->run.state.pages_stride, 0xfffffff0u);
    for (size_t i = 0; i < t->sequences.size(); i++)
        for (u32 p = 0; p < CEIL_DIV(t->sequences[i].n, (u32)LIMIT_PAGE_TOKENS); p++)
            table[i * d->run.state.pages_stride + p] = unused[next++];
    d->run.state.pages = gpu_copy_of(table.data(), table.size());
    size_t halves = (size_t)pool * t->s.kv_heads * PAGE_HEAD_BYTES(t->s.dim, t->s.int8) / 2;
    vector<u16> garbage(halves);
    for (u16 &v : garbage)
        v = random_unit() < 0 ? 0x7e01 : random_unit() < 0 ? 0xfc00 : 0x7bff; /* NaN, -inf, 65504 */
    struct op_attention *op = &d->ops[0].attention;
    op->k = (u8 *)gpu_copy_of(garbage.data(), halves);
    op->v = (u8 *)gpu_copy_of(garbage.data(), halves);
}

static void make_op(struct device *d, const struct test_case *t, u32 partial_rows)
{
    const struct shape *s = &t->s;
    struct op_attention *op = &d->ops[0].attention;
    u32 dim = ROUND_UP(s->dim, 16u);
    d->stride = row_floats(s) + (s->dim % 4 ? 6 : 8); /* rows of whole heads of 4 are aligned */
    op->stride = d->stride;
    op->out_stride = s->heads * s->dim + 2;
    op->qkv = (float *)gpu_take((size_t)d->tokens_max * d->stride * 4);
    op->out = (float *)gpu_take((size_t)d->tokens_max * op->out_stride * 4);
    op->partial = (float *)gpu_take((size_t)partial_rows * (dim + 4) * 4);
    op->partial_rows = partial_rows;
    op->arrived = (u32 *)gpu_take(d->blocks * SPLITS_TEAMS * 4);
    op->norm_q = s->norm ? gpu_copy_of(t->norm_q.data(), s->dim) : NULL;
    op->norm_k = s->norm ? gpu_copy_of(t->norm_k.data(), s->dim) : NULL;
    op->rope = {gpu_copy_of(t->freq.data(), t->freq.size()), s->rope_dims, (float)rope_scale(s)};
    op->rope_long = {gpu_copy_of(t->freq_long.data(), t->freq.size()), s->rope_dims,
                     (float)rope_scale(s)};
    op->heads = s->heads;
    op->kv_heads = s->kv_heads;
    op->head_dim = s->dim;
    op->window = s->window;
    op->eps = 1e-6f;
    op->scale = (float)(1 / sqrt(s->dim));
    op->softcap = s->softcap;
    op->int8 = s->int8;
    vector<float> sinks = t->sinks;
    for (float &v : sinks)
        v *= (float)M_LOG2E;
    op->sinks = s->sinks ? gpu_copy_of(sinks.data(), sinks.size()) : NULL;
    vector<float> scales;
    for (u32 i = 0; i < 32; i++)
        scales.push_back(query_scale(i));
    op->query_scale = s->span ? gpu_copy_of(scales.data(), scales.size()) : NULL;
    op->query_part = s->span ? 1.0f / (float)s->span : 0;
    if (s->turned) {
        const vector<float> ones(s->dim, 1);
        op->turned_q = op->norm_q;
        op->turned_k = op->norm_k;
        op->norm_q = op->norm_k = gpu_copy_of(ones.data(), ones.size());
    }
    d->ops[1] = d->ops[0];
    d->ops[0].kind = OP_ROPE;
    d->ops[1].kind = OP_ATTENTION;
    d->device_ops = gpu_copy_of(d->ops, 2);
}

static struct device make_device(const struct test_case *t, u32 blocks, u32 shared_bytes,
                                 u32 few_shared_bytes, u32 partial_rows)
{
    struct device d = {};
    for (const struct sequence &q : t->sequences)
        d.tokens_max += q.n;
    d.few_shared_bytes = few_shared_bytes;
    d.blocks = blocks;
    make_pages(&d, t);
    make_op(&d, t, partial_rows);
    d.step = (struct gpu_step *)gpu_take(sizeof *d.step);
    d.rows = (struct gpu_row *)gpu_take(t->sequences.size() * sizeof *d.rows);
    d.token_row = (u32 *)gpu_take(d.tokens_max * 4);
    d.run.ops = d.device_ops;
    d.run.step = d.step;
    d.run.state.barrier = (u32 *)gpu_take(8);
    d.run.last = 2;
    d.run.shared_bytes = shared_bytes;
    return d;
}

/* One step: n[i] tokens of sequence i from at[i]; the outputs go behind out[i]. */
static void run_step(struct device *d, const struct test_case *t, const vector<u32> &at,
                     const vector<u32> &n, vector<vector<float>> *out)
{
    const struct op_attention *op = &d->ops[0].attention;
    vector<struct gpu_row> rows;
    vector<u32> token_row;
    vector<float> qkv;
    u32 width = row_floats(&t->s), out_width = t->s.heads * t->s.dim;
    for (u32 i = 0; i < n.size(); i++) {
        if (!n[i])
            continue;
        rows.push_back({i, (u32)token_row.size(), n[i], at[i], t->sequences[i].flags, 0});
        for (u32 j = 0; j < n[i]; j++) {
            const float *x = &t->sequences[i].qkv[(size_t)(at[i] + j) * width];
            token_row.push_back((u32)rows.size() - 1);
            qkv.insert(qkv.end(), x, x + width);
            qkv.resize(token_row.size() * d->stride, NAN);
        }
    }
    u32 tokens = (u32)token_row.size();
    struct gpu_step step = {};
    step.n_rows = (u32)rows.size();
    step.n_tokens = tokens;
    step.rows = d->rows;
    step.token_row = d->token_row;
    gpu_put(d->rows, rows.data(), rows.size() * sizeof rows[0]);
    gpu_put(d->token_row, token_row.data(), tokens * 4);
    gpu_put(op->qkv, qkv.data(), qkv.size() * 4);
    gpu_put(d->step, &step, sizeof step);
    vector<float> result((size_t)tokens * op->out_stride, NAN);
    vector<u32> arrived(d->blocks * SPLITS_TEAMS);
    gpu_put(op->out, result.data(), result.size() * 4);
    bool one = d->kernel && strcmp(d->kernel, "one_token") == 0 && tokens == 1;
    bool group = d->kernel && strcmp(d->kernel, "prefill_attention") == 0;
    bool several = d->kernel && strstr(d->kernel, "_rows");
    bool mid = d->kernel && !one && !group && tokens <= MID_TOKENS &&
               *std::max_element(n.begin(), n.end()) <= (several ? +FRESH_TOKENS : 1);
    bool decode = !mid && !group && !one && tokens <= FEW_TOKENS && d->few_shared_bytes;
    struct gpu_run run = d->run;
    run.shared_bytes = decode ? d->few_shared_bytes : run.shared_bytes;
    u32 launch_bytes = run.shared_bytes + STEP_SHARED_BYTES;
    run.shared_bytes -= one ? ONE_RINGS_BYTES : 0;
    run.first = decode || mid || one; /* without OP_ROPE */
    run.many_apart = group;
    const string kv8 = t->s.int8 && (mid || one || decode) ? "_kv8" : "";
    const string name = mid || one ? d->kernel : decode ? "decode" : "step";
    gpu_launch((name + kv8).c_str(), d->blocks, launch_bytes, &run, sizeof run);
    run.first = 1;
    if (group)
        gpu_launch(d->kernel, d->blocks, launch_bytes, &run, sizeof run);
    gpu_get(result.data(), op->out, result.size() * 4);
    for (u32 i = 0; i < tokens; i++) {
        const float *o = &result[(size_t)i * op->out_stride];
        vector<float> *to = &(*out)[rows[token_row[i]].slot];
        to->insert(to->end(), o, o + out_width);
    }
    gpu_get(arrived.data(), op->arrived, arrived.size() * 4);
    report(std::all_of(arrived.begin(), arrived.end(), [](u32 v) { return v << 1 == 0; }),
           "counters are left at zero, but for the highest bit");
}

/* Feeds all sequences: sequence i starts after start[i] steps (0 where there is no entry) and takes
 * chunk[i] tokens a step (the last entry for all beyond). */
static vector<vector<float>> run_all(const struct test_case *t, u32 blocks, u32 shared_bytes,
                                     u32 few_shared_bytes, u32 partial_rows,
                                     const vector<u32> &chunk, const vector<u32> &start,
                                     const char *kernel = NULL)
{
    struct device d = make_device(t, blocks, shared_bytes, few_shared_bytes, partial_rows);
    d.kernel = kernel;
    size_t count = t->sequences.size();
    vector<vector<float>> out(count);
    vector<u32> at(count), n(count);
    for (u32 step = 0;; step++) {
        bool any = false, waiting = false;
        for (size_t i = 0; i < count; i++) {
            bool begun = i >= start.size() || step >= start[i];
            u32 c = chunk[MIN(i, chunk.size() - 1)];
            n[i] = begun ? MIN(c, t->sequences[i].n - at[i]) : 0;
            any |= n[i] > 0;
            waiting |= !begun;
        }
        if (!any && !waiting)
            return out;
        if (any)
            run_step(&d, t, at, n, &out);
        for (size_t i = 0; i < count; i++)
            at[i] += n[i];
    }
}

/* --- tests --------------------------------------------------------------------------------- */

static void compare(const struct test_case *t, const vector<vector<float>> &out)
{
    double worst = 0, square = 0, total = 0;
    for (size_t i = 0; i < out.size(); i++)
        for (size_t j = 0; j < out[i].size(); j++) {
            double e = fabs(out[i][j] - t->sequences[i].out[j]);
            worst = e > worst || isnan(e) ? e : worst;
            square += e * e;
            total += t->sequences[i].out[j] * t->sequences[i].out[j];
        }
    double relative = sqrt(square / total);
    const double may = t->s.int8 ? 3e-3 : 1e-3; /* a byte may be another one, where it is a tie */
    bool ok = worst < may * t->value_max && relative < may;
    printf(
        "%-28s heads %3u/%-3u dim %3u window %4u softcap %2.0f: max error %.1e of %.1e, relative "
        "%.1e\n",
        t->s.name, t->s.heads, t->s.kv_heads, t->s.dim, t->s.window, (double)t->s.softcap, worst,
        t->value_max, relative);
    report(ok, t->s.name);
}

static void same_bits(const struct test_case *t, const vector<vector<float>> &a,
                      const vector<vector<float>> &b, const char *how)
{
    for (size_t i = 0; i < b.size(); i++)
        for (size_t j = 0; j < a[i].size(); j++) {
            if (memcmp(&a[i][j], &b[i][j], 4) == 0)
                continue;
            u32 width = t->s.heads * t->s.dim;
            printf("%s, %s: sequence %zu position %zu head %zu dimension %zu: %.9g, not %.9g\n",
                   t->s.name, how, i, j / width, j % width / t->s.dim, j % t->s.dim,
                   (double)b[i][j], (double)a[i][j]);
            report(false, "same bits");
            return;
        }
    report(true, "same bits");
}

static vector<const char *> only; /* shapes with one of these in their names; none: all */

static void test_shape(const struct shape &s, bool thorough)
{
    struct test_case t = make_case(s);
    bool wanted = only.empty();
    for (const char *name : only)
        wanted |= strstr(s.name, name) != NULL;
    if (!wanted)
        return;
    u32 shared = (gpu_shared_bytes_max() - STEP_SHARED_BYTES) & ~127u,
        blocks = gpu_multiprocessors(), all = 1u << 20;
    u32 least = attention_shared_bytes(s.dim), few = MIN(MAX(61440u, least), shared);
    if (least > shared) /* the backend refuses such a model */
        return;
    bool mid = attention_is_low(s.heads, s.kv_heads, s.dim, s.rope_dims);
    vector<vector<float>> first = run_all(&t, blocks, shared, 0, 1 << 14, {all}, {});
    compare(&t, first);
    same_bits(&t, first, run_all(&t, 2, shared, 0, 1 << 14, {70, 1, 33}, {0, 2}),
              "chunks 70, 1, 33");
    same_bits(&t, first, run_all(&t, 5, shared, few, 1 << 14, {16, 130, 7}, {3, 0, 1}),
              "16, 130, 7");
    same_bits(&t, first, run_all(&t, 4, shared, least, 1 << 14, {8, 1}, {}), "8, 1; least memory");
    same_bits(&t, first, run_all(&t, 7, shared, few, 1 << 14, {131, 3, 2}, {}), "131, 3, 2");
    if (mid && gpu_prefill_of(MATRIX_INT4, PREFILL_TOKENS + 1, shared)) {
        same_bits(&t, first, run_all(&t, 2, shared, 0, 1 << 14, {1}, {0, 3}, "mid_16"), "mid_16");
        same_bits(&t, first, run_all(&t, blocks, shared, 0, 1 << 14, {1}, {2}, "mid_32"),
                  "mid_32, more");
        same_bits(&t, first, run_all(&t, 3, shared, 0, 0, {1}, {1, 0}, "mid_64"),
                  "mid_64, unshared");
        const char *name = "mid_16_rows";
        same_bits(&t, first, run_all(&t, 3, shared, 0, 1 << 14, {64, 1, 5}, {0, 2}, name),
                  "rows of 64, 1, 5");
        same_bits(&t, first, run_all(&t, 2, shared, 0, 1 << 14, {3, 61, 2}, {1}, name),
                  "rows of 3, 61, 2");
        same_bits(&t, first, run_all(&t, blocks, shared, 0, 1 << 14, {7, 16, 31}, {}, name),
                  "rows of 7, 16, 31");
        same_bits(&t, first, run_all(&t, 5, shared, 0, 0, {11, 4}, {2}, "mid_32_rows"),
                  "rows of 11, 4, unshared");
    }
    if (attention_is_grouped(s.dim) && gpu_prefill_of(MATRIX_INT4, PREFILL_TOKENS + 1, shared)) {
        const char *name = "prefill_attention";
        same_bits(&t, first, run_all(&t, blocks, shared, 0, 1 << 14, {all}, {}, name), "group");
        same_bits(&t, first, run_all(&t, 2, shared, 0, 1 << 14, {70, 1, 133}, {0, 2}, name),
                  "group, chunks 70, 1, 133");
        same_bits(&t, first, run_all(&t, 3, shared, 0, 1 << 14, {300, 17}, {1}, name),
                  "group, chunks 300, 17");
    }
    if (!thorough)
        return;
    same_bits(&t, first, run_all(&t, 1, MIN(MAX(90112u, least), shared), 0, 300, {7, 3, 100}, {}),
              "7, 3, 100");
    same_bits(&t, first, run_all(&t, 3, shared, few, 0, {5, 1, 1}, {1, 0}), "5, 1, unshared");
    same_bits(&t, first, run_all(&t, blocks, shared, 0, 1 << 14, {1}, {}), "one by one, step");
    t.sequences.resize(1);
    same_bits(&t, first, run_all(&t, 8, shared, few, 1 << 14, {1}, {}), "one by one");
    same_bits(&t, first, run_all(&t, blocks, shared, 0, 0, {1}, {}), "one by one, unshared");
    if (mid && gpu_prefill_of(MATRIX_INT4, PREFILL_TOKENS + 1, shared)) {
        same_bits(&t, first, run_all(&t, blocks, shared, 0, 1 << 14, {1}, {}, "one_token"), "one");
        same_bits(&t, first, run_all(&t, 17, shared, 0, 0, {1}, {}, "one_token"), "one, unshared");
    }
}

static void test_all(void)
{
    /* name, heads, kv heads, dim, window, softcap, norm, rope dims, gain, lengths */
    test_shape({"llama", 8, 2, 128, 0, 0, false, 128, 3, {300, 40, 129}, false}, true);
    test_shape({"1b", 8, 2, 64, 0, 0, false, 64, 3, {140, 5, 17, 33}, false}, true);
    test_shape({"qwen3", 4, 1, 128, 0, 0, true, 128, 2, {150, 128}, false}, false);
    test_shape({"gemma2, window, softcap", 4, 2, 256, 40, 50, false, 256, 6, {200, 20}, false},
               true);
    test_shape({"window of a split", 2, 1, 32, 128, 0, false, 32, 3, {400, 140}, false}, true);
    test_shape({"window of one", 2, 2, 16, 1, 0, false, 16, 3, {150, 3}, false}, false);
    test_shape({"one head each", 3, 3, 80, 0, 0, false, 32, 3, {140, 60}, false}, false);
    test_shape({"groups of three", 9, 3, 96, 0, 20, false, 96, 4, {170, 64}, false}, false);
    test_shape({"group of 17", 17, 1, 64, 0, 0, true, 64, 3, {140, 30}, false}, true);
    test_shape({"group of 32", 64, 2, 32, 0, 0, false, 0, 3, {130, 18}, false}, false);
    test_shape({"tiny heads", 4, 2, 2, 0, 0, false, 2, 3, {140, 30}, false}, false);
    test_shape({"odd pairs", 4, 2, 22, 0, 0, true, 10, 3, {140, 30}, false}, false);
    test_shape({"192", 4, 1, 192, 0, 0, false, 64, 3, {140, 9}, false}, false);
    test_shape({"512", 2, 1, 512, 0, 0, false, 512, 3, {140, 9}, false}, false);
    vector<u32> lengths;
    for (u32 i = 0; i < 70; i++)
        lengths.push_back(i % 17 == 5 ? 150 : 1 + i % 7);
    test_shape({"70 rows", 2, 1, 16, 0, 0, false, 16, 3, lengths, false}, false);
    test_shape({"sharp", 4, 1, 128, 0, 0, false, 128, 300, {260, 9}, false}, false);
    test_shape({"bytes, 128", 8, 2, 128, 0, 0, false, 128, 3, {300, 40, 129}, true}, true);
    test_shape({"bytes, 64", 8, 2, 64, 0, 0, false, 64, 3, {140, 5, 17, 33}, true}, false);
    test_shape({"bytes, 256, window", 4, 2, 256, 40, 50, false, 256, 6, {200, 20}, true}, false);
    test_shape({"bytes, 17 heads", 17, 1, 80, 0, 0, true, 64, 3, {140, 30}, true}, false);
    test_shape({"bytes, odd pairs", 4, 2, 22, 1, 0, true, 10, 3, {140, 30}, true}, false);
    test_shape({"bytes, 512", 2, 1, 512, 0, 0, false, 512, 3, {140, 9}, true}, false);
    /* and bytes, sinks */
    test_shape({"sinks", 16, 2, 64, 0, 0, false, 64, 3, {300, 40, 129}, false, true}, true);
    test_shape({"sinks, window", 8, 1, 64, 128, 0, false, 64, 3, {270, 140, 9}, false, true}, true);
    test_shape({"sinks, bytes", 8, 1, 64, 128, 0, false, 64, 3, {200, 33}, true, true}, true);
    test_shape({"sinks, 128", 8, 2, 128, 0, 0, true, 128, 3, {300, 40}, false, true}, false);
    test_shape({"sinks, 256", 4, 2, 256, 40, 0, false, 256, 6, {200, 20}, false, true}, true);
    test_shape({"sinks, 17 heads", 17, 1, 80, 0, 0, true, 64, 3, {140, 30}, false, true}, true);
    test_shape({"sinks, odd pairs", 4, 2, 22, 0, 0, true, 10, 3, {140, 30}, true, true}, false);
    test_shape({"spans, softcap", 4, 2, 96, 0, 50, true, 64, 1, {140, 9}, true, false, 20}, false);
    test_shape({"turned", 8, 2, 128, 0, 0, true, 128, 1, {140, 40}, false, false, 20, true}, true);
    test_shape({"turned, bytes", 4, 2, 128, 0, 0, true, 128, 1, {140, 9}, true, false, 0, true},
               false);
    test_shape({"sinks, 512", 4, 1, 512, 0, 0, false, 512, 3, {140, 9}, false, true}, false);
}

/* --- timings ------------------------------------------------------------------------------- */

struct bench {
    const char *name;
    u32 heads, kv_heads, dim, batch, tokens, context; /* positions after the step */
    bool int8;
};

enum { BENCH_KV_BYTES = 256 << 20, BENCH_LAYERS_MAX = 32, BENCH_REPEAT = 5 };

/* What an H200 reaches, for floors: bytes that read_all reads, dense halves, a us. */
static const double BENCH_BYTES_US = 4.55e6, BENCH_FLOP_US = 790e6;

static u16 *random_halves(size_t n)
{
    enum { PIECE = 1 << 20 };
    vector<u16> piece(PIECE);
    for (u16 &v : piece)
        v = (u16)(0x3400 + (int)(random_unit() * 1000));
    u16 *p = (u16 *)gpu_take(n * 2);
    for (size_t i = 0; i < n; i += PIECE)
        gpu_put(p + i, piece.data(), MIN(n - i, (size_t)PIECE) * 2);
    return p;
}

/* ROPE, then one ATTENTION a layer, so that keys and values come from memory, not from a cache. */
static u32 bench_ops(const struct bench *b, struct gpu_run *run, u32 tokens, u32 slot_pages)
{
    size_t layer_halves =
        (size_t)b->batch * slot_pages * b->kv_heads * PAGE_HEAD_BYTES(b->dim, b->int8) / 2;
    u32 layers = (u32)(BENCH_KV_BYTES / (layer_halves * 4)) + 1;
    layers = MIN(layers, (u32)BENCH_LAYERS_MAX);
    u32 width = (b->heads + 2 * b->kv_heads) * b->dim, partial_rows = 1 << 16;
    vector<float> qkv((size_t)tokens * width), freq(b->dim / 2);
    for (float &v : qkv)
        v = (float)random_unit();
    for (u32 i = 0; i < b->dim / 2; i++)
        freq[i] = (float)pow(10000, -2.0 * i / b->dim);
    struct op op = {};
    op.kind = OP_ROPE;
    op.attention.qkv = gpu_copy_of(qkv.data(), qkv.size());
    op.attention.rope = {gpu_copy_of(freq.data(), freq.size()), b->dim, 1};
    op.attention.out = (float *)gpu_take((size_t)tokens * b->heads * b->dim * 4);
    op.attention.partial = (float *)gpu_take((size_t)partial_rows * (b->dim + 20) * 4);
    op.attention.partial_rows = partial_rows;
    op.attention.arrived = (u32 *)gpu_take(4096);
    op.attention.stride = width;
    op.attention.out_stride = b->heads * b->dim;
    op.attention.heads = b->heads;
    op.attention.kv_heads = b->kv_heads;
    op.attention.head_dim = b->dim;
    op.attention.scale = (float)(1 / sqrt(b->dim));
    op.attention.int8 = b->int8;
    u16 *k = random_halves(layer_halves * layers), *v = random_halves(layer_halves * layers);
    vector<struct op> ops(layers + 1, op);
    for (u32 i = 0; i <= layers; i++) {
        ops[i].kind = i ? OP_ATTENTION : OP_ROPE;
        ops[i].attention.k = (u8 *)(k + layer_halves * (i ? i - 1 : 0));
        ops[i].attention.v = (u8 *)(v + layer_halves * (i ? i - 1 : 0));
    }
    run->ops = gpu_copy_of(ops.data(), ops.size());
    return layers;
}

/* Queries as OP_ROPE leaves them, two halves a word: for a kernel that is timed without it. */
static void bench_queries(const struct op *at, u32 tokens)
{
    struct op op;
    gpu_get(&op, at, sizeof op);
    vector<u32> qkv((size_t)tokens * op.attention.stride);
    for (u32 &v : qkv)
        v = 0x34003400 + (u32)(random_unit() * 500 + 500) * 0x10001;
    gpu_put((void *)op.attention.qkv, qkv.data(), qkv.size() * 4);
}

/* A number that tells whether two builds gave the same bits (FNV-1a of words). */
static u64 bench_bits(const struct op *at, u32 tokens)
{
    struct op op;
    gpu_get(&op, at, sizeof op);
    vector<u32> out((size_t)tokens * op.attention.out_stride);
    gpu_get(out.data(), op.attention.out, out.size() * 4);
    u64 bits = 14695981039346656037u;
    for (u32 v : out)
        bits = (bits ^ v) * 1099511628211;
    return bits;
}

static void bench_one(const struct bench *b)
{
    struct gpu_run run = {};
    struct gpu_step step = {};
    u32 tokens = b->batch * b->tokens, slot_pages = CEIL_DIV(b->context, (u32)LIMIT_PAGE_TOKENS);
    vector<u32> pages(b->batch * slot_pages), token_row(tokens);
    vector<struct gpu_row> rows;
    for (u32 i = 0; i < pages.size(); i++) /* scattered: a prime times i, modulo the number */
        pages[i] = (u32)((u64)i * 1000003 % pages.size());
    for (u32 i = 0; i < b->batch; i++)
        rows.push_back({i, i * b->tokens, b->tokens, b->context - b->tokens, 0, 0});
    for (u32 i = 0; i < tokens; i++)
        token_row[i] = i / b->tokens;
    step.n_rows = b->batch;
    step.n_tokens = tokens;
    step.rows = gpu_copy_of(rows.data(), rows.size());
    step.token_row = gpu_copy_of(token_row.data(), tokens);
    run.step = gpu_copy_of(&step, 1);
    run.state.pages = gpu_copy_of(pages.data(), pages.size());
    run.state.pages_stride = slot_pages;
    run.state.barrier = (u32 *)gpu_take(8);
    bool decode = tokens <= FEW_TOKENS;
    u32 bytes_all = gpu_shared_bytes_max(), blocks = gpu_multiprocessors();
    bytes_all = bytes_all / 128 * 128;
    run.shared_bytes = (u32)(bytes_all - STEP_SHARED_BYTES);
    u32 layers = bench_ops(b, &run, tokens, slot_pages);
    auto time_us = [&](u32 first, u32 last) {
        run.first = first;
        run.last = last;
        return gpu_time_us(decode ? b->int8 ? "decode_kv8" : "decode" : "step", blocks, bytes_all,
                           &run, sizeof run, BENCH_REPEAT);
    };
    bool fused = decode || tokens == b->batch;
    bool group = b->tokens > FRESH_TOKENS && attention_is_grouped(b->dim) &&
                 gpu_has_kernel("prefill_attention");
    float us = 0;
    u64 bits = 0;
    if (group) {
        run.first = 1;
        bench_queries(run.ops + 1, tokens);
        us = gpu_time_us("prefill_attention", blocks, bytes_all, &run, sizeof run, BENCH_REPEAT);
        bits = bench_bits(run.ops + 1, tokens);
    }
    float launch_us = time_us(0, 0), rope_us = fused ? 0 : time_us(0, 1) - launch_us;
    if (!group)
        us = (time_us(1, layers + 1) - launch_us) / (float)layers;
    double seen = b->context - (b->tokens - 1) / 2.0; /* keys of a token, on average */
    double bytes =
        (double)b->batch * b->context * b->kv_heads * (b->int8 ? b->dim * 2 + 4 : b->dim * 4);
    double work = 4.0 * tokens * seen * b->heads * b->dim;
    double floor_us = fmax(bytes / BENCH_BYTES_US, work / BENCH_FLOP_US);
    printf(
        "%-8s batch %3u tokens %4u context %5u: %7.1f us, floor %6.1f, %5.0f GB/s, %5.1f TFLOP/s",
        b->name, b->batch, b->tokens, b->context, (double)us, floor_us, bytes / us * 1e-3,
        work / us * 1e-6);
    double rope_bytes = tokens * 2.0 * b->dim * (3 * b->heads + 2 * 3 * b->kv_heads);
    if (group)
        printf("; bits %016llx", (unsigned long long)bits);
    if (!fused)
        printf("; rope %6.1f us, floor %5.1f", (double)rope_us, rope_bytes / BENCH_BYTES_US);
    printf("\n");
}

/* Is "NAME:BATCH:TOKENS:CONTEXT" in `list`? */
static bool bench_named(const struct bench *b, const char *list)
{
    char name[64];
    snprintf(name, sizeof name, "%s:%u:%u:%u", b->name, b->batch, b->tokens, b->context);
    return strstr(list, name) != NULL;
}

static void bench_all(void)
{
    static const struct bench shapes[] = {{"8b/4b", 32, 8, 128, 0, 0, 0, false},
                                          {"1b", 32, 8, 64, 0, 0, 0, false},
                                          {"gemma", 8, 4, 256, 0, 0, 0, false}};
    static const u32 sizes[][3] = {
        {1, 1, 128},      {1, 1, 1024},  {1, 1, 8192},  {1, 1, 32768},   {8, 1, 1024},
        {8, 1, 8192},     {32, 1, 1024}, {32, 1, 8192}, {64, 1, 1024},   {128, 1, 1024},
        {128, 1, 8192},   {1, 256, 256}, {1, 512, 512}, {1, 2048, 2048}, {1, 2048, 8192},
        {4, 512, 512},    {1, 16, 1024}, {1, 64, 1024}, {1, 128, 32768}, {1, 512, 32768},
        {1, 2048, 32768},
    };
    for (const struct bench &shape : shapes)
        for (const auto &size : sizes) {
            struct bench b = shape;
            b.batch = size[0];
            b.tokens = size[1];
            b.context = size[2];
            b.int8 = getenv("INT8") != NULL;
            if (!getenv("BENCH") || bench_named(&b, getenv("BENCH")))
                bench_one(&b);
        }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    gpu_open(argc, argv);
    if (argc > 3 && strcmp(argv[3], "--bench") == 0) {
        bench_all();
        return 0;
    }
    only.assign(argv + (gpu_is_real() ? 3 : 1), argv + argc);
    test_all();
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
