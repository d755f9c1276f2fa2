/* See emulate.h. Fibers are switched by a few instructions. The scheduler goes from warp to warp
 * and stays with one as long as any of its lanes can go on, since most of what they wait for is
 * each other: a lane that has to wait switches to the next itself. None is switched to whose
 * meeting is not complete. Stacks, blocks and warps are kept from one grid to the next.
 */
#include "kernels/cuda/gpu.cuh"
#include "tests/fakecuda/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    STACK_BYTES = 256 << 10, /* kernels under the sanitizers take a lot */
    STACK_STEP = 9 * 64,     /* stacks begin at different cache lines */
    PAGE_BYTES = 4096,
    IDLE_MAX = 1000, /* rounds in which nothing happens but looking */
    COPIES = 1024,   /* of one thread, not yet waited for */
    LATE = 8192,     /* what happens when a barrier of the block is waited for */
};

enum gathering {
    SYNC,
    SYNC_ANY,
    EXCHANGE,
    MULTIPLY,
    MULTIPLY_BYTES,
    LOAD_TILES,
    LOAD_TILES_TRANSPOSED,
    GROUP
};

struct meeting { /* of n fibers, again and again */
    u32 n, here, turn;
    u32 first; /* number of its first */
    enum gathering what;
};

struct warp {
    struct meeting meeting;
    struct running *fibers; /* [lanes] */
    u32 lanes, left;
    const struct meeting *at; /* NULL, or all that are left wait until its turn is not `turn` */
    u32 turn;
    u32 given[2][32]; /* exchanges take turns, as lanes still read the one before */
    struct lane brought[32];
};

struct copy {
    void *to;
    const void *from;
    u32 group, bytes, zeros; /* bytes to copy; zeros behind them */
    bool made;
};

struct barrier { /* a word of shared memory */
    u16 phase, count, pending;
    u16 bulk; /* times 16 bytes that are expected and have not come */
};
static_assert(sizeof(struct barrier) == 8, "gpu_barrier_init");

struct late {
    struct barrier *barrier;
    struct running *of; /* arrives when this one has made so many copies; or NULL: a bulk copy */
    u32 copies, bytes;
    void *to;
    const void *from;
};

struct block {
    struct meeting meeting, all, team[SPLITS_TEAMS];
    struct late *late; /* [LATE] */
    u32 n_late;
    bool any[2]; /* what the threads of this meeting said, and of the last */
    u8 *shared;
    u32 shared_bytes;
};

struct running {
    struct fiber fiber; /* first */
    void *stack_pointer;
    struct block *block;
    const struct meeting *at; /* NULL, or waits until its turn is no longer `turn` */
    u32 turn, exchanges;
    struct copy *copies; /* ring of COPIES */
    u32 copies_done, copies_made, groups;
    u64 paused; /* the round in which it paused last */
    bool done;
};

extern "C" {
const emulated *emulated_kernels;
}
struct fiber *fiber_now;

static void *scheduler_pointer;
static struct { /* the warp that runs */
    struct warp *warp;
    u32 lane;     /* the next one to look at */
    bool more;    /* one of those before could go on */
    u32 n, n_new; /* of all warps in this round: see run_grid */
} lanes;
static const emulated *kernel_now;
static const void *params_now;
static u64 round_now = 1;

static struct { /* what is kept */
    u32 fibers, blocks, shared_bytes;
    size_t warps;
    u8 *stacks, *shared;
    struct running *running;
    struct copy *copies;
    struct late *late;
    struct block *block;
    struct warp *warp;
} pool;

const u32 emulate_capability = GPU_CAPABILITY;
bool emulate_groups = GPU_CAPABILITY >= 900;

emulated::emulated(const char *name, void (*entry)(const void *), size_t params_bytes,
                   const u32 *sizes)
    : name(name), entry(entry), params_bytes(params_bytes), sizes(sizes), next(emulated_kernels)
{
    emulated_kernels = this;
}

static void stop(const struct fiber *at, const char *what)
{
    fprintf(stderr, "emulate: kernel %s, block %u, thread %u: %s\n", kernel_now->name, at->block,
            at->thread, what);
    abort();
}

void emulate_stop(const char *what)
{
    stop(fiber_now, what);
}

/* --- fibers -------------------------------------------------------------------------------- */

/* Saves the callee-saved registers and the stack pointer in *from, goes on at `to`. */
extern "C" void fiber_switch(void **from, void *to);
#ifdef __x86_64__
asm(".text\n.globl fiber_switch\n.hidden fiber_switch\nfiber_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
enum { SAVED_WORDS = 6 };
#else
asm(".text\n.globl fiber_switch\n.hidden fiber_switch\nfiber_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
#endif

static struct running *running_now(void)
{
    return (struct running *)fiber_now;
}

static bool waits(const struct running *f)
{
    return f->at && f->at->turn == f->turn;
}

/* Takes the next lane of the warp that can go on; NULL: none can. */
static struct running *next_lane(void)
{
    struct warp *w = lanes.warp;
    for (;;) {
        while (lanes.lane < w->lanes) {
            struct running *f = &w->fibers[lanes.lane++];
            if (f->done || waits(f) || f->paused == round_now)
                continue;
            lanes.n++;
            lanes.n_new += f->at || f->paused != round_now - 1;
            lanes.more = true;
            f->at = NULL;
            fiber_now = &f->fiber;
            return f;
        }
        if (!lanes.more)
            return NULL;
        lanes.more = false;
        lanes.lane = 0;
    }
}

/* The running fiber waits, or is done: another lane goes on, or the scheduler. */
static void leave(void)
{
    struct running *me = running_now(), *next = next_lane();
    fiber_switch(&me->stack_pointer, next ? next->stack_pointer : scheduler_pointer);
}

static void fiber_main(void)
{
    kernel_now->entry(params_now);
    running_now()->done = true;
    fiber_now->warp->left--;
    leave();
    abort(); /* a finished fiber is not resumed */
}

static void *new_stack(u8 *top)
{
    void **sp = (void **)top;
#ifdef __x86_64__
    *--sp = NULL; /* keeps the stack aligned as after a call */
    *--sp = (void *)fiber_main;
    for (u32 i = 0; i < SAVED_WORDS; i++)
        *--sp = NULL;
#else
    sp -= 20;
    memset(sp, 0, 160);
    sp[11] = (void *)fiber_main; /* x30 */
#endif
    return sp;
}

void fiber_pause(void)
{
    running_now()->paused = round_now;
    leave();
}

/* True for who comes last: it may act for all, and then calls `part`. The others come back when it
 * has. */
static bool meet(struct meeting *m, enum gathering what)
{
    struct running *me = running_now();
    emulate_check(m->here == 0 || m->what == what,
                  "threads wait for each other in different operations");
    m->what = what;
    if (++m->here == m->n)
        return true;
    me->at = m;
    me->turn = m->turn;
    leave();
    return false;
}

static void part(struct meeting *m)
{
    races_meet(m->first, m->n);
    m->here = 0;
    m->turn++;
}

void fiber_sync_block(void)
{
    struct meeting *m = &running_now()->block->meeting;
    if (meet(m, SYNC))
        part(m);
}

void fiber_sync_team(u32 team, u32 threads)
{
    struct meeting *m = &running_now()->block->team[team];
    emulate_check(team == fiber_now->thread / threads, "a thread meets another team");
    m->n = threads;
    m->first = running_now()->block->all.first + team * threads;
    if (meet(m, SYNC))
        part(m);
}

void fiber_sync_all(void)
{
    struct meeting *m = &running_now()->block->all;
    if (meet(m, SYNC))
        part(m);
}

bool fiber_sync_any(bool v)
{
    struct block *b = running_now()->block;
    bool *any = &b->any[b->meeting.turn & 1];
    *any = v || (*any && b->meeting.here > 0);
    if (meet(&b->meeting, SYNC_ANY))
        part(&b->meeting);
    return *any; /* the next meeting has the other one, and nobody ends it before we come */
}

void fiber_sync_warp(void)
{
    if (meet(&fiber_now->warp->meeting, SYNC))
        part(&fiber_now->warp->meeting);
}

const u32 *fiber_exchange(u32 mine)
{
    struct warp *w = fiber_now->warp;
    u32 *given = w->given[running_now()->exchanges++ & 1];
    given[fiber_now->thread & 31] = mine;
    if (meet(&w->meeting, EXCHANGE))
        part(&w->meeting);
    return given;
}

/* --- copies in the background -------------------------------------------------------------------
 */

/* Until somebody has waited, what a copy reads and writes must be left alone by others. */
static void see_copy(const struct copy *c, const void *pc)
{
    if (c->bytes)
        races_read(c->from, c->bytes, pc);
    races_write(c->to, c->bytes + c->zeros, pc);
}

static void make_copy(struct copy *c)
{
    if (c->made)
        return;
    memcpy(c->to, c->from, c->bytes);
    memset((u8 *)c->to + c->bytes, 0, c->zeros);
    c->made = true;
}

static void put_copy(struct copy copy, const void *pc)
{
    struct running *me = running_now();
    emulate_check(me->copies_made - me->copies_done < COPIES, "gpu_copy without gpu_copy_wait");
    struct copy *c = &me->copies[me->copies_made++ % COPIES];
    *c = copy;
    c->group = me->groups;
    see_copy(c, pc);
    if (EMULATE_EARLY || GPU_CAPABILITY < 800)
        make_copy(c);
}

void gpu_copy16(void *to, const void *from, bool read)
{
    emulate_shared(to);
    emulate_check((uintptr_t)from % 16 == 0, "gpu_copy16 from no multiple of 16");
    put_copy({to, from, 0, read ? 16u : 0u, read ? 0u : 16u, false}, __builtin_return_address(0));
}

void gpu_copy8(void *to, const void *from, u32 bytes)
{
    emulate_shared((const void *)((uintptr_t)to & ~(uintptr_t)15));
    emulate_check((uintptr_t)to % 8 == 0, "gpu_copy8 to no multiple of 8");
    emulate_check((uintptr_t)from % 8 == 0, "gpu_copy8 from no multiple of 8");
    put_copy({to, from, 0, bytes, 8 - bytes, false}, __builtin_return_address(0));
}

void gpu_copy4(void *to, const void *from, bool read)
{
    emulate_shared((const void *)((uintptr_t)to & ~(uintptr_t)15));
    emulate_check((uintptr_t)to % 4 == 0, "gpu_copy4 to no multiple of 4");
    emulate_check((uintptr_t)from % 4 == 0, "gpu_copy4 from no multiple of 4");
    put_copy({to, from, 0, read ? 4u : 0u, read ? 0u : 4u, false}, __builtin_return_address(0));
}

void gpu_copy_commit(void)
{
    running_now()->groups++;
}

static void copy_next(struct running *me)
{
    make_copy(&me->copies[me->copies_done++ % COPIES]);
}

void fiber_copy_wait(u32 n)
{
    struct running *me = running_now();
    while (me->copies_done != me->copies_made &&
           me->copies[me->copies_done % COPIES].group + n < me->groups) {
        see_copy(&me->copies[me->copies_done % COPIES], __builtin_return_address(0));
        copy_next(me);
    }
}

/* --- barriers ------------------------------------------------------------------------------ */

static struct barrier *barrier_at(u64 *word)
{
    const struct block *b = running_now()->block;
    u8 *at = (u8 *)word;
    emulate_check(at >= b->shared && at + 8 <= b->shared + b->shared_bytes &&
                      (uintptr_t)at % 8 == 0,
                  "a barrier is not in shared memory");
    return (struct barrier *)word;
}

void gpu_barrier_init(u64 *word, u32 count)
{
    struct barrier *b = barrier_at(word);
    emulate_check(count > 0 && count <= 0xffff, "a barrier of too many, or none");
    *b = {0, (u16)count, (u16)count, 0};
    races_barrier(word);
}

static void end_phase_if_over(struct barrier *b)
{
    if (b->pending || b->bulk)
        return;
    b->phase ^= 1;
    b->pending = b->count;
    races_phase(b);
}

static void arrive(struct barrier *b)
{
    emulate_check(b->pending > 0, "more arrive at a barrier than it counts");
    b->pending--;
    end_phase_if_over(b);
}

void gpu_barrier_arrive(u64 *word)
{
    races_arrive(word);
    arrive(barrier_at(word));
}

static void put_late(struct late late)
{
    struct block *b = running_now()->block;
    emulate_check(b->n_late < LATE, "too much happens before a barrier is waited for");
    b->late[b->n_late++] = late;
}

void gpu_barrier_arrive_copied(u64 *word)
{
    struct running *me = running_now();
    races_arrive(word);
    put_late({barrier_at(word), me, me->copies_made, 0, NULL, NULL});
}

void gpu_barrier_expect(u64 *word, u32 bytes)
{
    races_arrive(word);
    barrier_at(word)->bulk += bytes / 16;
    arrive(barrier_at(word));
}

void gpu_copy_bulk(void *to, const void *from, u32 bytes, u64 *word)
{
    fiber_sync_warp();
    if (gpu_lane())
        return;
    gpu_barrier_expect(word, bytes);
    gpu_copy_bulk_alone(to, from, bytes, word);
}

void gpu_copy_bulk_alone(void *to, const void *from, u32 bytes, u64 *word)
{
    struct barrier *b = barrier_at(word);
    emulate_check(bytes > 0 && bytes % 16 == 0, "gpu_copy_bulk of no multiple of 16");
    emulate_check((uintptr_t)from % 16 == 0, "gpu_copy_bulk from no multiple of 16");
    emulate_shared(to);
    emulate_shared((u8 *)to + bytes - 16);
    races_copy(to, from, bytes, word, __builtin_return_address(0));
    if (EMULATE_EARLY)
        memcpy(to, from, bytes);
    put_late({b, NULL, 0, bytes, to, from});
}

static void happen(const struct late *late)
{
    struct barrier *b = late->barrier;
    if (late->of) {
        while ((i32)(late->copies - late->of->copies_done) > 0)
            copy_next(late->of);
        arrive(b);
    } else {
        if (!EMULATE_EARLY)
            memcpy(late->to, late->from, late->bytes);
        emulate_check(b->bulk >= late->bytes / 16, "more bytes come than a barrier expects");
        b->bulk -= late->bytes / 16;
        end_phase_if_over(b);
    }
}

/* All that is late for a barrier happens, in an order of its own: the last first. */
static void hurry(struct block *block, const struct barrier *b)
{
    u32 kept = 0;
    for (u32 i = block->n_late; i-- > 0;)
        if (block->late[i].barrier == b)
            happen(&block->late[i]);
    for (u32 i = 0; i < block->n_late; i++)
        if (block->late[i].barrier != b)
            block->late[kept++] = block->late[i];
    block->n_late = kept;
}

bool gpu_barrier_passed(u64 *word, u32 parity)
{
    struct barrier *b = barrier_at(word);
    hurry(running_now()->block, b);
    if (b->phase != parity)
        races_passed(word);
    return b->phase != parity;
}

void gpu_barrier_wait(u64 *word, u32 parity)
{
    struct barrier *b = barrier_at(word);
    while (b->phase == parity) {
        hurry(running_now()->block, b);
        if (b->phase == parity)
            fiber_pause();
    }
    races_passed(word);
}

/* --- grids --------------------------------------------------------------------------------- */

static u8 *take(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        perror("emulate: mmap");
        abort();
    }
    return (u8 *)p;
}

static void guard(u8 *page)
{
    if (mprotect(page, PAGE_BYTES, PROT_NONE) != 0) {
        perror("emulate: mprotect");
        abort();
    }
}

/* Makes the pool large enough; what it had is forgotten, which happens a few times at most. */
static void reserve(u32 blocks, u32 threads, u32 shared_bytes)
{
    u32 n = blocks * threads;
    size_t warps = (size_t)blocks * CEIL_DIV(threads, 32),
           shared = ROUND_UP(shared_bytes, PAGE_BYTES);
    if (n > pool.fibers) {
        pool.stacks = take((size_t)n * STACK_BYTES);
        pool.running = (struct running *)take(n * sizeof *pool.running);
        pool.copies = (struct copy *)take((size_t)n * COPIES * sizeof *pool.copies);
        for (u32 i = 0; i < n; i++)
            guard(pool.stacks + (size_t)i * STACK_BYTES);
        pool.fibers = n;
    }
    if (warps > pool.warps) {
        pool.warp = (struct warp *)take(warps * sizeof *pool.warp);
        pool.warps = warps;
    }
    if (blocks > pool.blocks || shared > pool.shared_bytes) {
        pool.blocks = MAX(blocks, pool.blocks);
        pool.shared_bytes = MAX((u32)shared, pool.shared_bytes);
        size_t stride = pool.shared_bytes + PAGE_BYTES;
        pool.shared = take(pool.blocks * stride);
        pool.block = (struct block *)take(pool.blocks * sizeof *pool.block);
        pool.late = (struct late *)take((size_t)pool.blocks * LATE * sizeof *pool.late);
        for (u32 i = 0; i < pool.blocks; i++)
            guard(pool.shared + (i + 1) * stride - PAGE_BYTES);
    }
}

/* Shared memory ends where a page begins that must not be touched, and is NaN until written. */
static void set_block(struct block *b, u32 i, u32 number, u32 threads, u32 shared_bytes)
{
    u8 *end = pool.shared + (size_t)i * (pool.shared_bytes + PAGE_BYTES) + pool.shared_bytes;
    *b = {};
    b->meeting.n = threads == PREFILL_THREADS ? (u32)GPU_THREADS : threads;
    b->all.n = threads;
    b->meeting.first = b->all.first = number;
    b->shared = end - ROUND_UP(shared_bytes, 128);
    b->shared_bytes = shared_bytes;
    b->late = pool.late + (size_t)i * LATE;
    memset(b->shared, 0xff, shared_bytes);
}

static void set_warp(struct warp *w, struct running *fibers, u32 number, u32 lanes)
{
    w->meeting = {};
    w->at = NULL;
    w->meeting.first = number;
    w->meeting.n = w->lanes = w->left = lanes;
    w->fibers = fibers;
}

/* Blocks first.. of `of`, with the shared memory and numbers of the pool's blocks `place`... */
static u32 set_grid(u32 first, u32 blocks, u32 of, u32 place, u32 threads, u32 shared_bytes)
{
    u32 n_warps = 0;
    reserve(place + blocks, threads, shared_bytes);
    for (u32 b = 0; b < blocks; b++) {
        const u32 number = (place + b) * ROUND_UP(threads, 32u);
        set_block(&pool.block[b], place + b, number, threads, shared_bytes);
        for (u32 t = 0; t < threads; t++) {
            u32 i = b * threads + t;
            struct running *f = &pool.running[i];
            if (t % 32 == 0)
                set_warp(&pool.warp[n_warps++], f, number + t, MIN(32u, threads - t));
            *f = {};
            f->fiber = {t,
                        threads,
                        first + b,
                        of,
                        number + t,
                        pool.block[b].shared,
                        &pool.warp[n_warps - 1]};
            f->block = &pool.block[b];
            f->copies = pool.copies + (size_t)i * COPIES;
            f->stack_pointer =
                new_stack(pool.stacks + (size_t)(i + 1) * STACK_BYTES - i % 56 * STACK_STEP);
        }
    }
    return n_warps;
}

/* No lane of the warp could go on: if all wait for the same, it need not be looked at till then. */
static void look_why(struct warp *w)
{
    const struct running *last = NULL;
    for (u32 i = 0; i < w->lanes; i++) {
        const struct running *f = &w->fibers[i];
        if (f->done)
            continue;
        if (!waits(f) || (last && (f->at != last->at || f->turn != last->turn)))
            return;
        last = f;
    }
    w->at = last->at;
    w->turn = last->turn;
}

/* Lets the lanes of a warp run until none of them can. */
static void run_warp(struct warp *w)
{
    if (w->at && w->at->turn == w->turn)
        return;
    w->at = NULL;
    lanes.warp = w;
    lanes.lane = 0;
    lanes.more = false;
    const struct running *first = next_lane();
    if (first)
        fiber_switch(&scheduler_pointer, first->stack_pointer);
    else
        look_why(w);
}

/* Nobody can go on: says where the first of each kind of waiting is. */
static void stuck(u32 n_warps)
{
    static const char *const names[] = {
        "gpu_sync",      "gpu_sync_any",   "a warp's exchange",         "gpu_mma",
        "gpu_mma_bytes", "gpu_load_tiles", "gpu_load_tiles_transposed", "gpu_group_mma"};
    const struct running *last = NULL;
    for (u32 w = 0; w < n_warps; w++)
        for (u32 i = 0; i < pool.warp[w].lanes; i++) {
            const struct running *f = &pool.warp[w].fibers[i];
            if (f->done || (last && f->at == last->at))
                continue;
            fprintf(stderr, "emulate: block %u, thread %u waits in %s\n", f->fiber.block,
                    f->fiber.thread,
                    !f->at ? "a loop around gpu_pause"
                    : f->at == &pool.warp[w].meeting && f->at->what == SYNC ? "gpu_warp_sync"
                                                                            : names[f->at->what]);
            last = f;
        }
    stop(&last->fiber, "the threads wait for each other for ever");
}

/* Runs all in rounds. A round counts the lanes that could go on, and those of them that had not
 * just paused, as in a loop around a look at memory. */
static void run_grid(const emulated *kernel, u32 n_warps, const void *params)
{
    kernel_now = kernel;
    params_now = params;
    for (u32 left = n_warps, idle = 0; left;) {
        round_now++;
        lanes.n = lanes.n_new = 0;
        left = 0;
        for (u32 i = 0; i < n_warps; i++) {
            if (pool.warp[i].left)
                run_warp(&pool.warp[i]);
            left += pool.warp[i].left != 0;
        }
        idle = lanes.n_new ? 0 : idle + 1;
        if (left && (!lanes.n || idle == IDLE_MAX))
            stuck(n_warps);
    }
    fiber_now = NULL;
}

/* A grid of `blocks` begins, as races.cc sees it. */
static void begin(const emulated *kernel, u32 blocks, u32 threads, const void *params)
{
    const u32 per_block = ROUND_UP(threads, 32u);
    races_begin(kernel->name, blocks * per_block, per_block, pool.stacks,
                pool.stacks + (size_t)pool.fibers * STACK_BYTES, params, kernel->params_bytes);
}

void emulate_grid(const emulated *kernel, u32 blocks, u32 threads, u32 shared_bytes,
                  const void *params)
{
    const u32 n_warps = set_grid(0, blocks, blocks, 0, threads, shared_bytes);
    begin(kernel, blocks, threads, params);
    run_grid(kernel, n_warps, params);
}

/* Where they are many, races between blocks are not looked for. */
void emulate_each(const emulated *kernel, u32 blocks, u32 threads, u32 shared_bytes,
                  const void *params)
{
    const bool few = blocks <= RACES_THREADS / ROUND_UP(threads, 32u);
    reserve(few ? blocks : 1, threads, shared_bytes);
    for (u32 b = 0; b < blocks; b++) {
        const u32 n_warps = set_grid(b, 1, blocks, few ? b : 0, threads, shared_bytes);
        if (b == 0 || !few)
            begin(kernel, few ? blocks : 1, threads, params);
        run_grid(kernel, n_warps, params);
    }
}

/* --- tensor cores -------------------------------------------------------------------------- */

void emulate_mma(float c[4], const u32 a[4], const u32 b[2])
{
    struct warp *w = fiber_now->warp;
    struct lane *mine = &w->brought[fiber_now->thread & 31];
    mine->c = c;
    mine->a = a;
    mine->b = b;
    if (!meet(&w->meeting, MULTIPLY))
        return;
    tensor_multiply(w->brought);
    part(&w->meeting);
}

void emulate_mma_bytes(i32 c[4], const u32 a[4], const u32 b[2])
{
    struct warp *w = fiber_now->warp;
    struct lane *mine = &w->brought[fiber_now->thread & 31];
    mine->ints = c;
    mine->a = a;
    mine->b = b;
    if (!meet(&w->meeting, MULTIPLY_BYTES))
        return;
    tensor_multiply_bytes(w->brought);
    part(&w->meeting);
}

static void group_mma(struct lane lane, const void *pc)
{
    struct warp *w = fiber_now->warp;
    races_products(lane.row, lane.tokens / 8, lane.stride, lane.further, pc);
    emulate_shared(lane.row);
    emulate_shared(lane.row + (lane.tokens / 8 - 1) * (size_t)lane.stride + lane.further + 112);
    w->brought[fiber_now->thread & 31] = lane;
    if (!meet(&w->meeting, GROUP))
        return;
    tensor_multiply_group(w->brought);
    part(&w->meeting);
}

void emulate_group_mma(float *c, const u32 a[4], const u8 *tiles, u32 stride, u32 tokens,
                       u32 further)
{
    group_mma({c, a, NULL, NULL, tiles, stride, tokens, further, NULL},
              __builtin_return_address(0));
}

void emulate_group_mma_bytes(i32 *c, const u32 a[4], const u8 *tiles, u32 stride, u32 columns,
                             u32 further)
{
    group_mma({NULL, a, NULL, NULL, tiles, stride, columns, further, c},
              __builtin_return_address(0));
}

static void load(u32 r[4], const void *row, enum gathering what, const void *pc)
{
    struct warp *w = fiber_now->warp;
    struct lane *mine = &w->brought[fiber_now->thread & 31];
    emulate_shared(row);
    races_read(row, 16, pc);
    mine->r = r;
    mine->row = (const u8 *)row;
    if (!meet(&w->meeting, what))
        return;
    tensor_load_tiles(w->brought, what == LOAD_TILES_TRANSPOSED);
    part(&w->meeting);
}

void gpu_load_tiles(u32 r[4], const void *row)
{
    load(r, row, LOAD_TILES, __builtin_return_address(0));
}

void gpu_load_tiles_transposed(u32 r[4], const void *row)
{
    load(r, row, LOAD_TILES_TRANSPOSED, __builtin_return_address(0));
}

void emulate_shared(const void *p)
{
    const struct block *b = running_now()->block;
    const u8 *at = (const u8 *)p;
    emulate_check((uintptr_t)at % 16 == 0, "an address is no multiple of 16");
    emulate_check(at >= b->shared && at + 16 <= b->shared + b->shared_bytes,
                  "16 bytes are not in shared memory");
}
