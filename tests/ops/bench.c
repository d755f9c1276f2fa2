/* `ops --bench [set [threads]]`: what the matrices of a Llama-3.2-1B cost in one kernel set.
 * Decode (m = 1) is shown as a share of the read bandwidth measured over the same bytes in
 * alternation with it; prefill (m = 512) as operations a second. Each figure is the best of
 * ROUNDS; enough copies of a matrix are walked that no cache holds them.
 */
#include "tests/ops/ops.h"

#include "kernels/cpu/cpuid.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 7, THREADS_MAX = 64, COPIES_MAX = 512 };

static const struct ops_case shapes[] = {
    {"gptq4 2048x2048", WEIGHT_GPTQ, 4, 2048, 2048, 128, DTYPE_F16, .zeros = true},
    {"gptq4 512x2048", WEIGHT_GPTQ, 4, 512, 2048, 128, DTYPE_F16, .zeros = true},
    {"gptq4 8192x2048", WEIGHT_GPTQ, 4, 8192, 2048, 128, DTYPE_F16, .zeros = true},
    {"gptq4 2048x8192", WEIGHT_GPTQ, 4, 2048, 8192, 128, DTYPE_F16, .zeros = true},
    {"gptq4 128256x2048", WEIGHT_GPTQ, 4, 128256, 2048, 128, DTYPE_F16, .zeros = true},
    {"awq4 2048x2048", WEIGHT_AWQ, 4, 2048, 2048, 128, DTYPE_F16, .zeros = true},
    {"awq4 8192x2048", WEIGHT_AWQ, 4, 8192, 2048, 128, DTYPE_F16, .zeros = true},
    {"awq4 2048x8192", WEIGHT_AWQ, 4, 2048, 8192, 128, DTYPE_F16, .zeros = true},
    {"gptq8 2048x2048", WEIGHT_GPTQ, 8, 2048, 2048, 128, DTYPE_F16, .zeros = true},
    {"gptq4 g32 2880x2880", WEIGHT_GPTQ, 4, 2880, 2880, 32, .type = DTYPE_F16},
    {"mxfp4 2880x2880", WEIGHT_MXFP4, 4, 2880, 2880, .type = DTYPE_BF16, .row_step = 1},
    {"w8a8 2048x2048", WEIGHT_INT8, 8, 2048, 2048, 0, DTYPE_F32, .w8a8 = true},
    {"bf16 2048x2048", WEIGHT_PLAIN, 0, 2048, 2048, 0, .type = DTYPE_BF16},
    {"bf16 128256x2048", WEIGHT_PLAIN, 0, 128256, 2048, 0, .type = DTYPE_BF16},
};

/* What the threads do in one round, over all copies of the matrix. */
enum job { JOB_READ, JOB_READ_AHEAD, JOB_READ_WIDE, JOB_MULTIPLY, JOB_END };

static struct {
    enum job job;
    u32 threads, copies, m;
    bool wide; /* AVX-512 loads are there */
    struct ops_run run[COPIES_MAX];
    const u8 *bytes;
    size_t bytes_n;
    float *y;
    void *scratch[THREADS_MAX];
    u64 sums[THREADS_MAX * 8];
    pthread_barrier_t start, end;
    u32 arrived; /* spinning barrier between preparing and multiplying */
} b;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef u64 lanes __attribute__((vector_size(64), aligned(8)));

INLINE u64 read_loop(const u8 *p, size_t n, u32 prefetch)
{
    lanes sum[4] = {0};
    for (size_t i = 0; i + 256 <= n; i += 256) {
        const lanes *at = (const void *)(p + i);
        for (u32 v = 0; v < 4; v++) {
            if (prefetch)
                __builtin_prefetch(p + i + prefetch + v * 64);
            sum[v] += at[v];
        }
    }
    lanes all = sum[0] + sum[1] + sum[2] + sum[3];
    return all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static u64 read_wide(const u8 *p, size_t n, u32 prefetch)
{
    return read_loop(p, n, prefetch);
}
#else
#define read_wide read_loop
#endif

/* CPUs differ in which way of reading is fastest: the roof is the best of several. */
static u64 read_bytes(const u8 *p, size_t n, enum job job)
{
    if (job == JOB_READ)
        return read_loop(p, n, 0);
    if (job == JOB_READ_AHEAD)
        return b.wide ? read_wide(p, n, 2048) : read_loop(p, n, 2048);
    return b.wide ? read_wide(p, n, 0) : read_loop(p, n, 1024);
}

static void meet(u32 *round)
{
    *round += b.threads;
    __atomic_add_fetch(&b.arrived, 1, __ATOMIC_ACQ_REL);
    while ((i32)(__atomic_load_n(&b.arrived, __ATOMIC_ACQUIRE) - *round) < 0)
        ;
}

static void multiply_all(u32 self, u32 *round)
{
    for (u32 c = 0; c < b.copies; c++) {
        struct ops_run *r = &b.run[c];
        u32 n = r->w->n, tile = r->ops->tile_n, tiles = CEIL_DIV(n, tile);
        struct activations *a = &b.run[c % 2].a; /* two: a slow thread may still read one */
        a->m = b.m;
        r->ops->act_prepare(a, r->packed, b.m * self / b.threads, b.m * (self + 1) / b.threads);
        meet(round);
        u32 n0 = tiles * self / b.threads * tile;
        u32 n1 = MIN(n, tiles * (self + 1) / b.threads * tile);
        r->ops->matmul(r->packed, a, b.y, n, n0, n1, b.scratch[self]);
    }
}

static void *worker(void *arg)
{
    u32 self = (u32)(size_t)arg, round = 0;
    for (;;) {
        pthread_barrier_wait(&b.start);
        if (b.job == JOB_END)
            return NULL;
        if (b.job <= JOB_READ_WIDE) {
            size_t share = b.bytes_n / b.threads / 4096 * 4096;
            b.sums[self * 8] += read_bytes(b.bytes + share * self, share, b.job);
        } else {
            multiply_all(self, &round);
        }
        pthread_barrier_wait(&b.end);
    }
}

static double run_job(enum job job, u32 m)
{
    b.job = job;
    b.m = m;
    double from = now();
    pthread_barrier_wait(&b.start);
    pthread_barrier_wait(&b.end);
    return now() - from;
}

static double read_roof(void)
{
    double best = INFINITY;
    for (enum job job = JOB_READ; job <= JOB_READ_WIDE; job++)
        best = fmin(best, run_job(job, 1));
    return (double)b.bytes_n / best;
}

static int by_size(const void *p, const void *q)
{
    double x = *(const double *)p, y = *(const double *)q;
    return x < y ? -1 : x > y;
}

/* Copies of one shape beside each other; returns the bytes of one that a product reads. */
static size_t fill(const struct linear_ops *ops, const struct ops_case *c, size_t total, float *x)
{
    static struct weight first, weights[COPIES_MAX];
    first = ops_weight(c, 1);
    size_t cells = (size_t)c->n * c->k, size = c->bits ? cells * c->bits / 8 : cells * 2;
    size_t groups = c->bits ? (size_t)first.groups * c->n : 0;
    size_t extra = groups * (c->type == DTYPE_F32 ? 4 : 2) + (c->zeros ? groups * c->bits / 8 : 0);
    b.copies = (u32)MAX(2, MIN(COPIES_MAX, total / size));
    size_t packed = ops->pack_bytes(&first), each = ROUND_UP(packed ? packed : size, 4096);
    u8 *bytes = ops_alloc(each * b.copies + 2 * MIB);
    bytes = (u8 *)ROUND_UP((size_t)bytes, 2 * MIB);
    madvise(bytes, each * b.copies, getenv("OPS_SMALL_PAGES") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    b.bytes = bytes;
    b.bytes_n = each * b.copies;
    for (u32 i = 0; i < b.copies; i++) {
        weights[i] = first;
        b.run[i] = ops_start(ops, &first, x, 512, 1);
        if (!packed) {
            memcpy(bytes + i * each, first.data, size);
            weights[i].data = bytes + i * each;
        }
        b.run[i].packed = ops_alloc(sizeof(struct packed));
        ops->pack(&weights[i], bytes + i * each, b.run[i].packed, 0, 1);
        b.run[i].w = &weights[i];
    }
    return size + extra;
}

static void bench_shape(const struct linear_ops *ops, const struct ops_case *c)
{
    size_t total = 192 * MIB;
    float *x = ops_alloc((size_t)512 * c->k * 4);
    u64 seed = 7;
    for (size_t i = 0; i < (size_t)512 * c->k; i++)
        x[i] = ops_normal(&seed);
    size_t bytes = fill(ops, c, total, x);
    b.y = ops_alloc((size_t)512 * c->n * 4);
    for (u32 t = 0; t < b.threads; t++)
        b.scratch[t] = ops_alloc(ops->scratch_bytes(c->k));
    double share[ROUNDS], rate = 0, roof = 0;
    for (u32 r = 0; r < ROUNDS; r++) {
        double read = read_roof();
        double mine = (double)bytes * b.copies / run_job(JOB_MULTIPLY, 1);
        share[r] = mine / read;
        rate = fmax(rate, mine);
        roof = fmax(roof, read);
    }
    qsort(share, ROUNDS, sizeof *share, by_size);
    printf("%-18s %7.2f %7.2f %6.1f%%", c->name, rate / 1e9, roof / 1e9, 100 * share[ROUNDS / 2]);
    static const u32 sizes[] = {4, 16, 512};
    u32 copies = b.copies;
    for (u32 s = 0; s < COUNTOF(sizes); s++) {
        double best = INFINITY, work = 2.0 * c->n * c->k * sizes[s];
        b.copies = (u32)MAX(1, MIN(copies, 2e10 / work));
        for (u32 r = 0; r < 3; r++)
            best = fmin(best, run_job(JOB_MULTIPLY, sizes[s]) / b.copies);
        printf(" %8.1f", work / best / 1e9);
    }
    printf("\n");
    fflush(stdout);
}

static void bench_set(const struct kernel_set *set, u32 threads, const char *only)
{
    pthread_t ids[THREADS_MAX];
    struct cpu_features f;
    cpu_features_read(&f);
    b.wide = f.avx512;
    b.threads = threads;
    b.arrived = 0;
    pthread_barrier_init(&b.start, NULL, threads + 1);
    pthread_barrier_init(&b.end, NULL, threads + 1);
    for (u32 i = 0; i < threads; i++)
        ASSERT(pthread_create(&ids[i], NULL, worker, (void *)(size_t)i) == 0);
    printf("\n%s, %u thread%s\n%-18s %7s %7s %7s %8s %8s %8s\n", set->name, threads,
           threads > 1 ? "s" : "", "matrix", "GB/s", "read", "share", "GOP/s 4", "16", "512");
    for (size_t i = 0; i < COUNTOF(shapes); i++)
        if (!only || strncmp(shapes[i].name, only, strlen(only)) == 0) {
            size_t mark = ops_mark();
            bench_shape(set->linear, &shapes[i]);
            ops_reset(mark);
        }
    b.job = JOB_END;
    pthread_barrier_wait(&b.start);
    for (u32 i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

int ops_bench(int argc, char **argv)
{
    const struct kernel_set *set = kernels_choose(argc > 0 ? argv[0] : NULL, 0);
    u32 threads = argc > 1 ? (u32)strtoul(argv[1], NULL, 10) : 2;
    if (!set || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: ops --bench [set [threads [matrix]]]; sets of this CPU:");
        for (u32 i = 0; kernel_sets[i]; i++)
            if (kernel_sets[i]->supported())
                fprintf(stderr, " %s", kernel_sets[i]->name);
        fprintf(stderr, "\n");
        return 2;
    }
    bench_set(set, threads, argc > 2 ? argv[2] : NULL);
    return 0;
}
