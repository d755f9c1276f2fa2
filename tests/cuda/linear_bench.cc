/* Timings of the linears of real shapes on a GPU: microseconds, share of the floor (bytes, or
 * operations), GB/s, TFLOP/s. Weights come from a pool larger than any cache, in turns.
 *
 *   linear_bench --gpu IMAGE [SHAPE [TOKENS]]    SHAPE: one of those below, or "8B layer";
 *                                               TOKENS: up to 2048
 */
#include "tests/cuda/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static u64 seed = 1;

static u32 random_u32(void) /* splitmix64 */
{
    u64 z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (u32)(z >> 32);
}

static const double bytes_a_second = 4.55e12, operations_a_second = 790e12; /* H200 */

struct shape {
    const char *name;
    u32 k, parts, n[LINEAR_PARTS];
    u32 input, output, kind; /* groups of 128, scales f16, zeros unless HALF */
};

static const struct shape shapes[] = {
    {"8B qkv", 4096, 1, {6144}, INPUT_NORM, OUTPUT_STORE, MATRIX_INT4},
    {"8B o", 4096, 1, {4096}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
    {"8B gate+up", 4096, 1, {28672}, INPUT_NORM, OUTPUT_GATE, MATRIX_INT4},
    {"8B down", 14336, 1, {4096}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
    {"8B head half", 4096, 1, {128256}, INPUT_NORM, OUTPUT_STORE, MATRIX_HALF},
    {"8B gate+up int8", 4096, 1, {28672}, INPUT_NORM, OUTPUT_GATE, MATRIX_INT8},
    {"1B qkv", 2048, 1, {3072}, INPUT_NORM, OUTPUT_STORE, MATRIX_INT4},
    {"1B o", 2048, 1, {2048}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
    {"1B gate+up", 2048, 1, {16384}, INPUT_NORM, OUTPUT_GATE, MATRIX_INT4},
    {"1B down", 8192, 1, {2048}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
    {"1B gate+up half", 2048, 1, {16384}, INPUT_NORM, OUTPUT_GATE, MATRIX_HALF},
    {"4B qkv", 2560, 1, {6144}, INPUT_NORM, OUTPUT_STORE, MATRIX_INT4},
    {"4B o", 4096, 1, {2560}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
    {"4B gate+up", 2560, 1, {19456}, INPUT_NORM, OUTPUT_GATE, MATRIX_INT4},
    {"4B down", 9728, 1, {2560}, INPUT_ROWS, OUTPUT_ADD, MATRIX_INT4},
};

enum { BENCH_TOKENS = 2048, BENCH_COLUMNS = 128256, BENCH_OPS = 64 };
static const size_t pool_bytes = (size_t)2200 << 20;

struct bench {
    u8 *pool; /* weights, taken in turns so that no cache holds them */
    size_t at;
    struct op ops[BENCH_OPS];
    u32 n_ops;
    double bytes, operations;
    struct op_linear like;  /* buffers */
    u32 tokens, ring_bytes; /* ring_bytes: of `decode`; 0: `step` */
};

static void *from_pool(struct bench *b, size_t bytes)
{
    bytes = ROUND_UP(bytes, (size_t)256);
    if (b->at + bytes > pool_bytes)
        b->at = 0;
    b->at += bytes;
    return b->pool + b->at - bytes;
}

static void add_op(struct bench *b, const struct shape *s)
{
    struct op_linear l = b->like;
    u32 at = 0, of_group = s->kind == MATRIX_HALF ? s->k : 128;
    l.in.k = l.in.room = l.in.features = s->k;
    l.in.stride = s->k + 16;
    l.in.kind = s->input;
    l.in.eps = 1e-5f;
    l.in.group = s->kind == MATRIX_INT4 ? of_group : 0;
    l.parts = s->parts;
    l.output = s->output;
    for (u32 i = 0; i < s->parts; i++) {
        struct matrix *m = &l.part[i];
        m->kind = s->kind;
        m->n = s->n[i];
        m->k = s->k;
        m->group = of_group;
        m->groups = s->k / of_group;
        m->scale_type = DTYPE_F16;
        m->slice = ROUND_UP(CEIL_DIV(s->k, (u32)MATRIX_SLICES), (u32)MATRIX_K_UNIT);
        size_t data = (size_t)m->n * m->k * (4 << m->kind) / 8, groups = (size_t)m->n * m->groups;
        m->data = (u8 *)from_pool(b, data);
        m->scales = from_pool(b, s->kind == MATRIX_HALF ? m->n * 4 : groups * 2);
        b->bytes += (double)data + (s->kind == MATRIX_HALF ? 4.0 * m->n : 2.0 * (double)groups);
        b->operations += 2.0 * m->n * m->k * b->tokens;
        l.at[i] = at;
        at += m->n;
    }
    l.y_stride = at;
    b->ops[b->n_ops].kind = OP_LINEAR;
    b->ops[b->n_ops++].linear = l;
}

static u32 shared_bytes(void)
{
    return (gpu_shared_bytes_max() - (u32)STEP_SHARED_BYTES) & ~127u;
}

static void time_ops(struct bench *b, const char *name, u32 times)
{
    struct gpu_step step = {};
    struct gpu_run p = {};
    step.n_tokens = b->tokens;
    p.step = gpu_copy_of(&step, 1);
    p.state.barrier = (u32 *)gpu_take(8);
    p.last = b->n_ops;
    u32 whole = shared_bytes();
    for (u32 i = 0; i + 1 < b->n_ops; i++)
        b->ops[i].ahead = b->ops[i + 1].kind == OP_LINEAR ? i + 1 : 0;
    p.ops = gpu_copy_of(b->ops, b->n_ops);
    p.ring_bytes = b->ring_bytes;
    p.shared_bytes = (whole - GPU_WARPS * p.ring_bytes) & ~127u;
    const char *prefill = gpu_prefill_of(b->ops[0].linear.part[0].kind, b->tokens, whole);
    prefill = prefill ? prefill : gpu_mid_of(&b->ops[0].linear, b->tokens, whole);
    const char *one = b->ops[0].kind == OP_LINEAR
                          ? gpu_one_of(&b->ops[0].linear, b->tokens, whole + STEP_SHARED_BYTES)
                          : NULL;
    if (one) {
        p.ring_bytes = 0;
        p.shared_bytes = whole - ONE_RINGS_BYTES;
    }
    double us = (double)gpu_time_us(one            ? one
                                    : p.ring_bytes ? "decode"
                                    : prefill      ? prefill
                                                   : "step",
                                    gpu_multiprocessors(), whole + (u32)STEP_SHARED_BYTES, &p,
                                    sizeof p, 5) /
                times;
    double bytes = b->bytes / times, operations = b->operations / times;
    double floor_us = 1e6 * fmax(bytes / bytes_a_second, operations / operations_a_second);
    printf("%-16s %5u tokens  %9.2f us  %5.1f %% of the floor  %7.1f GB/s  %6.1f TFLOP/s\n", name,
           b->tokens, us, 100 * floor_us / us, bytes / us / 1e3, operations / us / 1e6);
    fflush(stdout);
    b->n_ops = 0;
    b->bytes = b->operations = 0;
}

static void fill(u8 *to, size_t bytes, u32 mask)
{
    std::vector<u32> some((size_t)4 << 20);
    for (u32 &v : some) /* as halves: small positive scales */
        v = (random_u32() & mask) | 0x1c001c00;
    for (size_t i = 0; i < bytes; i += some.size() * 4)
        gpu_put(to + i, some.data(), MIN(some.size() * 4, bytes - i));
}

static void run_bench(const char *only, u32 only_tokens)
{
    static const u32 tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, BENCH_TOKENS};
    static struct bench b;
    size_t x_bytes = (size_t)BENCH_TOKENS * (14336 + 16) * 4;
    b.pool = (u8 *)gpu_take(pool_bytes);
    fill(b.pool, pool_bytes, 0x03ff03ff);
    struct op_linear *l = &b.like;
    l->in.x = (float *)gpu_take(x_bytes);
    fill((u8 *)l->in.x, x_bytes, 0x8fffffff);
    l->in.norm = (float *)gpu_take(16384 * 4);
    l->in.prepared = (u16 *)gpu_take((size_t)BENCH_TOKENS * 14336 / 128 * PREPARED_GROUP_BYTES);
    l->in.prepared_scale = (float *)gpu_take(ROUND_UP(BENCH_TOKENS, 128) * MATRIX_SLICES * 4);
    l->in.prepared_factor = (float *)gpu_take(BENCH_TOKENS * 4);
    l->y = (float *)gpu_take((size_t)BENCH_TOKENS * BENCH_COLUMNS * 4);
    l->old = l->y;
    l->partial = (float *)gpu_take(LINEAR_PARTIALS * sizeof(float));
    l->arrived = (u32 *)gpu_take(LINEAR_COUNTERS * sizeof(u32));
    l->awaited = gpu_awaited_sums();
    for (u32 i = 0; i < (only_tokens ? 1 : COUNTOF(tokens)); i++) {
        const u32 t = b.tokens = only_tokens ? only_tokens : tokens[i];
        memset(b.ops, 0, sizeof b.ops);
        b.ring_bytes = decode_ring_bytes(t, 4096, 0, shared_bytes());
        for (b.n_ops = 0; b.n_ops < 32; b.n_ops++)
            b.ops[b.n_ops].kind = OP_GATE;
        time_ops(&b, "meeting", 32);
        for (const struct shape &s : shapes) {
            if (only && strcmp(s.name, only) != 0)
                continue;
            u32 times = strstr(s.name, "head") ? 2 : 16;
            b.ring_bytes = decode_ring_bytes(t, s.k, 0, shared_bytes());
            for (u32 i = 0; i < times; i++)
                add_op(&b, &s);
            time_ops(&b, s.name, times);
        }
        if (only && strcmp(only, "8B layer") != 0)
            continue;
        b.ring_bytes = decode_ring_bytes(t, 14336, 0, shared_bytes());
        for (u32 i = 0; i < 32; i++)
            add_op(&b, &shapes[i % 4]);
        time_ops(&b, "8B layer", 8);
    }
}

int main(int argc, char **argv)
{
    gpu_open(argc, argv);
    if (!gpu_is_real()) {
        fprintf(stderr, "usage: linear_bench --gpu IMAGE [SHAPE [TOKENS]]\n");
        return 2;
    }
    const u32 tokens = argc > 4 ? (u32)strtoul(argv[4], NULL, 10) : 0;
    if (tokens > BENCH_TOKENS) {
        fprintf(stderr, "linear_bench: %u tokens; up to %u\n", tokens, BENCH_TOKENS);
        return 2;
    }
    run_bench(argc > 3 ? argv[3] : NULL, tokens);
    return 0;
}
