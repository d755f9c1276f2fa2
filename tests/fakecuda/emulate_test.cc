/* The emulator itself: each primitive of gpu.cuh against a plain computation, blocks that meet, and
 * that a kernel which breaks the rules is stopped with a message. --bench prints times. */
#include "kernels/cuda/grid.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct job {
    u32 *out;
    const float *from;
    u32 *barrier;
    u32 n;
};

GPU_KERNEL(shuffles, struct job, 1)
{
    u32 i = gpu_block() * GPU_THREADS + gpu_thread();
    u32 lane = gpu_lane(), v = 100 * i + 7;
    u32 next = gpu_shuffle(v, (lane + 1) & 31);
    float across = gpu_shuffle_xor((float)lane, 5);
    u32 odd = gpu_ballot(lane & 1);
    float sum = gpu_sum_warp((float)lane), most = gpu_max_warp((float)(lane ^ 9));
    u32 right = 100 * (i - lane + ((lane + 1) & 31)) + 7;
    p.out[i] = next == right && across == (float)(lane ^ 5) && odd == 0xaaaaaaaau &&
               sum == 496.0f && most == 31.0f;
}

/* Each block adds to what its neighbour wrote before the barrier, many times. */
GPU_KERNEL(meets, struct job, 1)
{
    u32 blocks = gpu_blocks(), me = gpu_block();
    for (u32 turn = 0; turn < p.n; turn++) {
        u32 from = p.out[turn % 2 * blocks + (me + 1) % blocks];
        if (gpu_thread() == 0)
            p.out[(turn + 1) % 2 * blocks + me] = from + 1;
        gpu_grid_sync(p.barrier);
    }
}

/* out[m][n] = sum of a[m][k] b[k][n] over 16 x 16 x 8, by tiles loaded from shared memory. */
GPU_KERNEL(product, struct job, 1)
{
    u16 *a = (u16 *)gpu_shared(), *b = a + 256;
    u32 lane = gpu_lane(), g = lane / 4, t = lane % 4, ra[4], rb[4];
    float c[4] = {1, 1, 1, 1};
    for (u32 i = gpu_thread(); i < 384; i += GPU_THREADS)
        a[i] = gpu_half(p.from[i]);
    gpu_sync();
    if (gpu_warp() != 0)
        return;
    gpu_load_tiles(ra, a + (lane % 16) * 16 + lane / 16 * 8);
    gpu_load_tiles_transposed(rb, b + (lane % 16) * 8);
    for (u32 i = 0; i < p.n; i++)
        gpu_mma(c, ra, rb);
    float *out = (float *)p.out;
    for (u32 i = 0; i < 4; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

/* The same of bytes, 16 x 32 x 8, and the largest of a warp. */
GPU_KERNEL(product_of_bytes, struct job, 1)
{
    const u8 *a = (const u8 *)p.from, *b = a + 512; /* [16][32], [8][32] */
    u32 lane = gpu_lane(), g = lane / 4, t = lane % 4, ra[4], rb[2];
    i32 c[4] = {1, 1, 1, 1}, *out = (i32 *)p.out;
    for (u32 i = 0; i < 4; i++)
        memcpy(&ra[i], a + (g + i % 2 * 8) * 32 + i / 2 * 16 + 4 * t, 4);
    for (u32 i = 0; i < 2; i++)
        memcpy(&rb[i], b + g * 32 + i * 16 + 4 * t, 4);
    for (u32 i = 0; i < p.n; i++)
        gpu_mma_bytes(c, ra, rb);
    u32 most = gpu_most_warp((lane ^ 9) * 5);
    for (u32 i = 0; i < 4 && gpu_warp() == 0; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = most == 155 ? c[i] : 0;
}

GPU_KERNEL(diverges, struct job, 1)
{
    if (gpu_lane() == 3)
        gpu_warp_sync();
    else
        p.out[gpu_thread()] = gpu_shuffle(p.n, 0);
}

GPU_KERNEL(never_meets, struct job, 1)
{
    if (gpu_thread() < p.n)
        gpu_sync();
}

GPU_KERNEL(overruns, struct job, 1)
{
    gpu_shared()[p.n + gpu_thread()] = 1;
}

GPU_KERNEL(crooked, struct job, 1)
{
    gpu_copy16(gpu_shared() + 16 * gpu_thread(), (const u8 *)p.from + p.n);
    gpu_copy_commit();
    gpu_copy_wait<0>();
}

static u32 passed, failed;

static void check(const char *name, bool good)
{
    printf("%s %s\n", good ? "ok  " : "FAIL", name);
    good ? passed++ : failed++;
}

static const emulated *find(const char *name)
{
    const emulated *k = emulated_kernels;
    while (strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

static void check_shuffles(void)
{
    static u32 out[5 * GPU_THREADS];
    struct job j = {out, NULL, NULL, 0};
    bool good = true;
    emulate_grid(find("shuffles"), 5, GPU_THREADS, 0, &j);
    for (u32 i = 0; i < COUNTOF(out); i++)
        good &= out[i];
    check("shuffles", good);
    memset(out, 0, sizeof out);
    emulate_each(find("shuffles"), 5, GPU_THREADS, 0, &j);
    for (u32 i = 0; i < COUNTOF(out); i++)
        good &= out[i];
    check("blocks_one_by_one", good);
}

static void check_meetings(void)
{
    for (u32 blocks = 1; blocks <= 7; blocks += 2) {
        u32 out[14] = {0}, barrier[2] = {0, 0}, good = 0;
        struct job j = {out, NULL, barrier, 100};
        emulate_grid(find("meets"), blocks, GPU_THREADS, 0, &j);
        for (u32 i = 0; i < blocks; i++)
            good += out[i] == 100;
        check("blocks_meet", good == blocks);
    }
}

static void check_product(void)
{
    float in[384], out[128];
    bool good = true;
    for (u32 i = 0; i < 384; i++) /* small integers: exact in halves and sums */
        in[i] = (float)((int)(i * 37 % 61) - 30);
    struct job j = {(u32 *)(void *)out, in, NULL, 3};
    emulate_grid(find("product"), 1, GPU_THREADS, 4096, &j);
    for (u32 m = 0; m < 16; m++)
        for (u32 n = 0; n < 8; n++) {
            float sum = 0;
            for (u32 k = 0; k < 16; k++)
                sum += in[m * 16 + k] * in[256 + k * 8 + n];
            good &= out[m * 8 + n] == 1 + 3 * sum;
        }
    check("product", good);
}

static void check_product_of_bytes(void)
{
    alignas(16) u8 in[768];
    i32 out[128];
    bool good = true;
    for (u32 i = 0; i < 768; i++)
        in[i] = (u8)(i * 37 + i / 32 * 11);
    struct job j = {(u32 *)(void *)out, (const float *)(const void *)in, NULL, 3};
    emulate_grid(find("product_of_bytes"), 1, GPU_THREADS, 0, &j);
    for (u32 m = 0; m < 16; m++)
        for (u32 n = 0; n < 8; n++) {
            i32 sum = 0;
            for (u32 k = 0; k < 32; k++)
                sum += in[m * 32 + k] * (i8)in[512 + n * 32 + k];
            good &= out[m * 8 + n] == 1 + 3 * sum;
        }
    check("product_of_bytes", good);
}

static void check_halves(void)
{
    bool good = gpu_half(65520.0f) == 0x7c00 && gpu_half(1.0f) == 0x3c00 &&
                gpu_half(1.00048828125f) == 0x3c00 && gpu_half(5.9604645e-8f) == 1;
    for (u32 i = 0; i < 0x7c00; i++)
        good &= gpu_half(gpu_from_half((u16)i)) == i;
    check("halves", good);
}

/* In a child: what it says ends with `words`. */
static void check_stops(const char *kernel, u32 n, const char *words)
{
    static u32 barrier[2];
    static u32 out[GPU_THREADS];
    alignas(16) static float from[8];
    char said[4096] = "";
    size_t n_said = 0;
    int pipes[2], status = 0;
    if (pipe(pipes) != 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        struct job j = {out, from, barrier, n};
        emulate_each(find(kernel), 2, GPU_THREADS, 2048, &j);
        _exit(0);
    }
    close(pipes[1]);
    for (ssize_t got = 1; got > 0; n_said += (size_t)got)
        got = read(pipes[0], said + n_said, sizeof said - 1 - n_said);
    close(pipes[0]);
    waitpid(child, &status, 0);
    check(kernel, status != 0 && strstr(said, words));
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void bench(void)
{
    enum { TURNS = 1000 };
    static u32 out[5 * GPU_THREADS];
    u32 barrier[2] = {0, 0};
    float in[384] = {0}, product[128];
    double start = now_us();
    struct job meet = {out, NULL, barrier, TURNS};
    emulate_grid(find("meets"), 3, GPU_THREADS, 0, &meet);
    printf("grid of 3 blocks meets: %.1f us\n", (now_us() - start) / TURNS);
    struct job mma = {(u32 *)(void *)product, in, NULL, TURNS};
    start = now_us();
    emulate_grid(find("product"), 1, GPU_THREADS, 4096, &mma);
    printf("gpu_mma: %.2f us\n", (now_us() - start) / TURNS);
    struct job shuffle = {out, NULL, NULL, 0};
    start = now_us();
    for (u32 i = 0; i < TURNS; i++)
        emulate_grid(find("shuffles"), 1, GPU_THREADS, 0, &shuffle);
    printf("grid of 1 block, 13 shuffles a warp: %.1f us\n", (now_us() - start) / TURNS);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    check_shuffles();
    check_meetings();
    check_product();
    check_product_of_bytes();
    check_halves();
    check_stops("diverges", 0, "different operations");
    check_stops("never_meets", 100, "wait for each other for ever");
    check_stops("meets", 1, "wait for each other for ever"); /* as the launch is not cooperative */
    check_stops("overruns", 4000, "");
    check_stops("crooked", 4, "no multiple of 16");
    check_stops("crooked", 16, "not in shared memory");
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
