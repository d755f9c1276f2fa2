/* See races.h. Writes are known by bytes, reads by words. What is known of a word has half a cache
 * line, as most of the time goes for coming by it: bytes that were not written together have a
 * place of their own. An epoch is a number of a warp, one
 * higher each time its lanes meet or one of them releases; it goes on from grid to grid, so that
 * what is older than a grid's first needs no forgetting.
 */
#include "tests/fakecuda/races.h"

#include "kernels/cuda/gpu.cuh"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    COPIERS = 32, /* of a block: lanes that stand for bulk copies, by their barriers */
    LANES = RACES_THREADS,
    WARPS = LANES / 32,
    CLOCKS = 1 << 16,  /* of addresses that are released in a grid */
    READERS = 1 << 21, /* words of a grid that several warps read, in no order */
    REPORTS = 1000,
    WORD_BYTES = 4,
    STRETCH = 128,  /* lanes of a clock that are known of or not */
    PRODUCTS = 64,  /* of a thread, under way */
    FOLD_BITS = 38, /* addresses that are equal in so many bits are taken for one */
};

struct writer {
    u32 epoch, pc;
    u16 lane;
    bool atomic;
};

struct word {             /* four bytes of memory: who wrote them, and who has read of them since */
    struct writer writer; /* of all bytes, or of none: see struct bytes */
    u16 warp;             /* that read last: lanes of it.. */
    bool apart;           /* the bytes have each its writer */
    u32 pc, read_epoch, mask; /* ..in that epoch at last, */
    u32 readers; /* or those of several warps: number, from 1; which use of that is in `mask` */
};
static_assert(sizeof(struct word) == 32, "half a cache line");

struct bytes { /* of a word */
    struct writer of[WORD_BYTES];
};

struct reader {
    u32 use; /* else it is of an earlier one */
    u32 epoch, mask;
};

struct readers {
    u32 next;             /* free ones: number of the next */
    u32 some[WARPS / 32]; /* bits: which warps there are */
    struct reader warp[WARPS];
};

struct clock { /* epochs of lanes: accesses up to there are known */
    u64 some;  /* bits: of these stretches; of the others, none */
    u32 at[LANES];
};
static_assert(LANES / STRETCH <= 64, "bits of a clock");

struct products {
    const u8 *tiles;
    u32 n, stride, further, batch;
    const void *pc;
};

struct lane {
    u32 epoch;
    u32 n_products, batches;
    bool has_more, has_fenced, has_seen;
};

struct lane_clocks {
    struct clock more;   /* known to it alone, until its warp meets */
    struct clock fenced; /* what it knew at its last fence */
    struct clock seen;   /* with what it has looked at; known behind its next fence */
};

struct warp_clock {
    u32 now, met; /* epoch; that since the warp met last */
    struct clock known;
};

static struct address { /* a hash table */
    const void *p;
    u32 clock, grid; /* number of its clock; grid of which this is */
} addresses[2 * CLOCKS];

static struct {
    struct word *words;
    struct bytes *bytes; /* of each word */
    struct readers *readers;
    struct clock *clocks;
    struct lane *lane;
    struct lane_clocks *of_lane;
    struct products (*products)[PRODUCTS];
    struct warp_clock *warp;
} memory;

static struct {
    const char *kernel;
    const u8 *stacks, *end, *params, *params_end;
    u32 lanes, threads, per_block, serial, first_epoch, last_epoch, readers, free_readers, clocks;
    u32 use; /* of readers, in all grids */
} grid;

static struct {
    u32 pc[2];
} reported[REPORTS];
static u32 n_reported;
static uintptr_t code;

u32 races_found(void)
{
    return n_reported;
}

static void *take(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        perror("races: mmap");
        abort();
    }
    return p;
}

/* Large pages, where what is used lies close together. */
static void *take_large(size_t bytes)
{
    void *p = take(bytes);
    madvise(p, bytes, MADV_HUGEPAGE); /* a matter of time only */
    return p;
}

static void reserve(void)
{
    Dl_info info;
    const size_t words = ((size_t)1 << FOLD_BITS) / WORD_BYTES;
    memory.words = (struct word *)take_large(words * sizeof *memory.words);
    memory.bytes = (struct bytes *)take_large(words * sizeof *memory.bytes);
    memory.readers = (struct readers *)take_large(READERS * sizeof *memory.readers);
    memory.clocks = (struct clock *)take(CLOCKS * sizeof *memory.clocks);
    memory.lane = (struct lane *)take(LANES * sizeof *memory.lane);
    memory.of_lane = (struct lane_clocks *)take(LANES * sizeof *memory.of_lane);
    memory.products = (struct products(*)[PRODUCTS])take(LANES * sizeof *memory.products);
    memory.warp = (struct warp_clock *)take(WARPS * sizeof *memory.warp);
    if (dladdr((void *)races_begin, &info))
        code = (uintptr_t)info.dli_fbase;
}

static void need(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "races: kernel %s: %s\n", grid.kernel, what);
    abort();
}

/* --- clocks -------------------------------------------------------------------------------- */

static void clear(struct clock *c)
{
    c->some = 0;
}

static u32 get(const struct clock *c, u32 lane)
{
    return c->some >> lane / STRETCH & 1 ? c->at[lane] : 0;
}

static void set(struct clock *c, u32 lane, u32 epoch)
{
    const u32 i = lane / STRETCH;
    if (!(c->some >> i & 1))
        memset(c->at + i * STRETCH, 0, STRETCH * sizeof c->at[0]);
    c->some |= 1ull << i;
    c->at[lane] = epoch;
}

static void join(struct clock *to, const struct clock *from)
{
    for (u64 some = from->some; some; some &= some - 1) {
        const u32 i = (u32)__builtin_ctzll(some);
        u32 *at = to->at + i * STRETCH;
        const u32 *other = from->at + i * STRETCH;
        if (to->some >> i & 1)
            for (u32 j = 0; j < STRETCH; j++)
                at[j] = MAX(at[j], other[j]);
        else
            memcpy(at, other, STRETCH * sizeof *at);
    }
    to->some |= from->some;
}

static void copy(struct clock *to, const struct clock *from)
{
    clear(to);
    join(to, from);
}

static struct lane *me(void)
{
    return &memory.lane[fiber_now->number];
}

static struct lane_clocks *my_clocks(void)
{
    return &memory.of_lane[fiber_now->number];
}

static struct warp_clock *my_warp(void)
{
    return &memory.warp[fiber_now->number / 32];
}

static u32 next_epoch(struct warp_clock *w)
{
    w->now++;
    grid.last_epoch = MAX(grid.last_epoch, w->now);
    return w->now;
}

/* What the running fiber knows, and its own accesses until now; those to come have another epoch.
 */
static void tell(struct clock *to)
{
    struct lane *l = me();
    join(to, &my_warp()->known);
    if (l->has_more)
        join(to, &my_clocks()->more);
    set(to, fiber_now->number, l->epoch);
    l->epoch = next_epoch(my_warp());
}

static void learn(const struct clock *from)
{
    struct lane *l = me();
    struct clock *more = &my_clocks()->more;
    if (!l->has_more)
        clear(more);
    l->has_more = true;
    join(more, from);
}

static bool is_known(u32 lane, u32 epoch)
{
    return lane == fiber_now->number || get(&my_warp()->known, lane) >= epoch ||
           (me()->has_more && get(&my_clocks()->more, lane) >= epoch);
}

/* The clock of an address; NULL: nobody has released it, unless it is to be made. */
static struct clock *clock_of(const void *p, bool make)
{
    u32 i = (u32)((uintptr_t)p * 0x9e3779b97f4a7c15u >> 47);
    while (addresses[i].grid == grid.serial && addresses[i].p != p)
        i = (i + 1) % COUNTOF(addresses);
    struct address *a = &addresses[i];
    if (a->grid != grid.serial) {
        if (!make)
            return NULL;
        need(grid.clocks < CLOCKS, "too many addresses are released");
        *a = {p, grid.clocks++, grid.serial};
        clear(&memory.clocks[a->clock]);
    }
    return &memory.clocks[a->clock];
}

void races_begin(const char *kernel, u32 n, u32 per_block, const u8 *stacks, const u8 *end,
                 const void *params, size_t bytes)
{
    if (!memory.words)
        reserve();
    const u32 lanes = n + n / per_block * COPIERS;
    grid.kernel = kernel;
    grid.stacks = stacks;
    grid.end = end;
    grid.params = (const u8 *)params;
    grid.params_end = grid.params + bytes;
    grid.lanes = lanes;
    grid.threads = n;
    grid.per_block = per_block;
    grid.serial++;
    grid.first_epoch = ++grid.last_epoch;
    grid.readers = grid.free_readers = grid.clocks = 0;
    need(lanes <= LANES, "too many threads");
    need(grid.last_epoch < (u32)-1 / 2, "too many epochs");
    for (u32 i = 0; i < n; i++) {
        struct lane *l = &memory.lane[i];
        l->epoch = grid.first_epoch;
        l->has_more = l->has_fenced = l->has_seen = false;
        l->n_products = l->batches = 0;
    }
    for (u32 i = 0; i < CEIL_DIV(n, 32); i++) {
        struct warp_clock *w = &memory.warp[i];
        w->now = w->met = grid.first_epoch;
        clear(&w->known);
    }
}

void races_meet(u32 first, u32 n)
{
    static struct clock all;
    struct warp_clock *warps = &memory.warp[first / 32];
    struct lane *lanes = &memory.lane[first];
    const u32 n_warps = CEIL_DIV(n, 32);
    struct clock *to = n_warps > 1 ? &all : &warps->known;
    if (n_warps > 1) {
        clear(&all);
        for (u32 i = 0; i < n_warps; i++)
            join(&all, &warps[i].known);
    }
    for (u32 i = 0; i < n; i++) {
        if (lanes[i].has_more)
            join(to, &memory.of_lane[first + i].more);
        lanes[i].has_more = false;
    }
    for (u32 i = 0; i < n; i++)
        set(to, first + i, warps[i / 32].now);
    for (u32 i = 0; i < n_warps; i++) {
        if (n_warps > 1)
            copy(&warps[i].known, &all);
        warps[i].met = next_epoch(&warps[i]);
    }
    for (u32 i = 0; i < n; i++)
        lanes[i].epoch = warps[i / 32].now;
}

void races_release(const void *p)
{
    tell(clock_of(p, true));
}

void races_acquire(const void *p)
{
    const struct clock *c = clock_of(p, false);
    if (c)
        learn(c);
}

void races_fence(void)
{
    struct lane *l = me();
    struct lane_clocks *clocks = my_clocks();
    if (l->has_seen)
        learn(&clocks->seen);
    l->has_seen = false;
    l->has_fenced = true;
    clear(&clocks->fenced);
    tell(&clocks->fenced);
}

void races_atomic(const void *p)
{
    struct lane *l = me();
    struct clock *c = clock_of(p, l->has_fenced);
    if (!c)
        return;
    struct lane_clocks *clocks = my_clocks();
    if (l->has_fenced)
        join(c, &clocks->fenced);
    if (!l->has_seen)
        clear(&clocks->seen);
    l->has_seen = true;
    join(&clocks->seen, c);
}

/* --- barriers: at the address what is released to the phase, behind it what the last one had -- */

static const void *last_of(const void *barrier)
{
    return (const u8 *)barrier + 1;
}

void races_barrier(const void *barrier)
{
    clear(clock_of(barrier, true));
    clear(clock_of(last_of(barrier), true));
}

void races_arrive(const void *barrier)
{
    races_release(barrier);
}

void races_phase(const void *barrier)
{
    struct clock *now = clock_of(barrier, true), *last = clock_of(last_of(barrier), true);
    copy(last, now);
    clear(now);
}

void races_passed(const void *barrier)
{
    races_acquire(last_of(barrier));
}

/* --- accesses ------------------------------------------------------------------------------ */

static bool is_reported(u32 pc, u32 other_pc)
{
    for (u32 i = 0; i < n_reported; i++)
        if (reported[i].pc[0] == pc && reported[i].pc[1] == other_pc)
            return true;
    return n_reported == REPORTS;
}

/* Once for each two places of code; for addr2line, as bytes from the library's or program's begin.
 */
static __attribute__((noinline)) void report(const void *p, const char *does, u32 pc, u32 other,
                                             const char *did, u32 other_pc)
{
    if (is_reported(pc, other_pc))
        return;
    const u32 block =
        other < grid.threads ? other / grid.per_block : (other - grid.threads) / COPIERS;
    reported[n_reported].pc[0] = pc;
    reported[n_reported++].pc[1] = other_pc;
    fprintf(stderr,
            "race: kernel %s, %s %p: block %u, thread %u %s at +%#x, block %u, thread %u %s at "
            "+%#x\n",
            grid.kernel,
            (const u8 *)p >= fiber_now->shared && (const u8 *)p < fiber_now->shared + (256 << 10)
                ? "shared"
                : "global",
            p, fiber_now->number / grid.per_block, fiber_now->number % grid.per_block, does, pc,
            block, other < grid.threads ? other % grid.per_block : grid.per_block, did, other_pc);
}

static inline bool is_ours(const void *p)
{
    const u8 *at = (const u8 *)p;
    return !fiber_now || (at >= grid.stacks && at < grid.end) ||
           (at >= grid.params && at < grid.params_end);
}

static inline struct word *word_at(uintptr_t at)
{
    return &memory.words[(at & (((uintptr_t)1 << FOLD_BITS) - 1)) / WORD_BYTES];
}

/* The next word of [*at, end), and which of its bytes these are; *at behind it. */
static struct word *next_word(uintptr_t *at, uintptr_t end, u32 *bytes)
{
    const uintptr_t word = *at / WORD_BYTES * WORD_BYTES, first = *at - word;
    const uintptr_t last = MIN(end - word, (uintptr_t)WORD_BYTES);
    *bytes = (1u << last) - (1u << first);
    *at = word + WORD_BYTES;
    return word_at(word);
}

/* Are accesses of all lanes of a warp known up to that epoch? */
static bool is_known_of_all(u32 warp, u32 epoch)
{
    const struct clock *known = &my_warp()->known;
    u32 older = 0;
    if (!(known->some >> warp * 32 / STRETCH & 1))
        return false;
    for (u32 i = 0; i < 32; i++)
        older |= known->at[warp * 32 + i] < epoch;
    return !older;
}

/* First lane of those of a warp whose access in that epoch is not known; LANES: none. */
static u32 unknown(u32 warp, u32 epoch, u32 mask)
{
    if (epoch < grid.first_epoch)
        return LANES;
    for (const u32 all = mask; mask; mask &= mask - 1) {
        u32 lane = warp * 32 + (u32)__builtin_ctz(mask);
        if (!is_known(lane, epoch))
            return lane;
        if (mask == all && is_known_of_all(warp, epoch))
            break;
    }
    return LANES;
}

static struct bytes *bytes_of(const struct word *w)
{
    return &memory.bytes[w - memory.words];
}

static __attribute__((noinline)) void report_write(const struct writer *by, const void *p,
                                                   const char *does, u32 pc)
{
    report(p, does, pc, by->lane, by->atomic ? "updated" : "wrote", by->pc);
}

static bool is_behind(const struct writer *by, bool atomic)
{
    return by->epoch < grid.first_epoch || (atomic && by->atomic) || is_known(by->lane, by->epoch);
}

static inline void check_writes(const struct word *w, u32 bytes, const void *p, const char *does,
                                u32 pc, bool atomic)
{
    if (!w->apart) {
        if (!is_behind(&w->writer, atomic))
            report_write(&w->writer, p, does, pc);
        return;
    }
    for (; bytes; bytes &= bytes - 1) {
        const struct writer *by = &bytes_of(w)->of[__builtin_ctz(bytes)];
        if (!is_behind(by, atomic))
            report_write(by, p, does, pc);
    }
}

/* NULL: those of one warp have read, or of none. */
static struct readers *readers_of(const struct word *w)
{
    return w->readers && w->read_epoch >= grid.first_epoch ? &memory.readers[w->readers - 1] : NULL;
}

static void check_reads(const struct word *w, const void *p, u32 pc)
{
    const struct readers *r = readers_of(w);
    u32 lane = r ? (u32)LANES : unknown(w->warp, w->read_epoch, w->mask);
    for (u32 i = 0; r && i < WARPS / 32; i++)
        for (u32 some = r->some[i]; some && lane == LANES; some &= some - 1) {
            const u32 warp = i * 32 + (u32)__builtin_ctz(some);
            lane = unknown(warp, r->warp[warp].epoch, r->warp[warp].mask);
        }
    if (lane != LANES)
        report(p, "writes", pc, lane, "read", w->pc);
}

/* Who accesses memory: a lane, its epoch, and that since which its warp has not met. */
struct who {
    u32 lane, epoch, met;
};

static struct who myself(void)
{
    return {fiber_now->number, me()->epoch, my_warp()->met};
}

/* One more lane of a warp has read: those before the warp met last are behind this one. */
static void add_reader(u32 *epoch, u32 *mask, struct who who)
{
    u32 mine = 1u << who.lane % 32;
    *mask = *epoch >= who.met ? *mask | mine : mine;
    *epoch = MAX(*epoch, who.epoch);
}

static struct reader *new_reader(struct readers *r, u32 warp, u32 use)
{
    r->some[warp / 32] |= 1u << warp % 32;
    r->warp[warp] = {use, 0, 0};
    return &r->warp[warp];
}

/* From now on there are readers of several warps. */
static void new_readers(struct word *w)
{
    const u32 number = grid.free_readers ? grid.free_readers : ++grid.readers;
    need(number <= READERS, "too many words are read by several warps");
    struct readers *r = &memory.readers[number - 1];
    if (grid.free_readers)
        grid.free_readers = r->next;
    memset(r->some, 0, sizeof r->some);
    grid.use++;
    *new_reader(r, w->warp, grid.use) = {grid.use, w->read_epoch, w->mask};
    w->readers = number;
    w->mask = grid.use;
}

static void forget_reads(struct word *w)
{
    struct readers *r = readers_of(w);
    if (r) {
        r->next = grid.free_readers;
        grid.free_readers = w->readers;
    }
    w->read_epoch = w->readers = 0;
}

static void put_first_read(struct word *w, struct who who)
{
    w->warp = (u16)(who.lane / 32);
    w->read_epoch = who.epoch;
    w->mask = 1u << who.lane % 32;
    w->readers = 0;
}

static inline void put_read(struct word *w, u32 pc, struct who who)
{
    const u32 warp = who.lane / 32;
    w->pc = pc;
    if (w->read_epoch < grid.first_epoch) {
        put_first_read(w, who);
        return;
    }
    if (!w->readers) {
        if (w->warp == warp) {
            add_reader(&w->read_epoch, &w->mask, who);
            return;
        }
        if (unknown(w->warp, w->read_epoch, w->mask) == LANES) {
            put_first_read(w, who);
            return;
        }
        new_readers(w);
    }
    struct readers *r = &memory.readers[w->readers - 1];
    struct reader *reader = &r->warp[warp];
    if (reader->use != w->mask)
        reader = new_reader(r, warp, w->mask);
    add_reader(&reader->epoch, &reader->mask, who);
}

/* Has this lane read the word since it was written? Then what it writes there is behind that. */
static bool has_read(const struct word *w, struct who who)
{
    const struct readers *r = readers_of(w);
    const u32 warp = who.lane / 32, mine = 1u << who.lane % 32;
    if (r)
        return r->warp[warp].use == w->mask && r->warp[warp].mask & mine;
    return w->warp == warp && w->read_epoch >= grid.first_epoch && w->mask & mine;
}

static void put_write(struct word *w, u32 bytes, u32 pc, struct who who, bool atomic)
{
    const struct writer by = {who.epoch, pc, (u16)who.lane, atomic};
    if (bytes == (1 << WORD_BYTES) - 1) {
        w->writer = by;
        w->apart = false;
        return;
    }
    struct bytes *of = bytes_of(w);
    for (u32 i = 0; i < WORD_BYTES && !w->apart; i++)
        of->of[i] = w->writer;
    w->apart = true;
    for (; bytes; bytes &= bytes - 1)
        of->of[__builtin_ctz(bytes)] = by;
}

static u32 place_of(const void *pc)
{
    return (u32)((uintptr_t)pc - code);
}

/* The same as access_read of a word by the running fiber, where that is soon done. */
static inline bool read_soon(struct word *w, const void *pc, struct who who)
{
    const struct writer by = w->writer;
    const u32 warp = who.lane / 32;
    if (w->apart || (by.epoch >= grid.first_epoch && by.lane != who.lane &&
                     get(&memory.warp[warp].known, by.lane) < by.epoch))
        return false;
    if (w->read_epoch < grid.first_epoch) {
        put_first_read(w, who);
    } else if (w->readers) {
        struct reader *reader = &memory.readers[w->readers - 1].warp[warp];
        if (reader->use != w->mask)
            return false;
        add_reader(&reader->epoch, &reader->mask, who);
    } else if (w->warp == warp) {
        add_reader(&w->read_epoch, &w->mask, who);
    } else {
        return false;
    }
    w->pc = place_of(pc);
    return true;
}

static __attribute__((noinline)) void access_read(const void *p, u32 n, const void *pc,
                                                  struct who who)
{
    uintptr_t at = (uintptr_t)p, end = at + n;
    u32 bytes;
    while (at < end) {
        struct word *w = next_word(&at, end, &bytes);
        check_writes(w, bytes, p, "reads", place_of(pc), false);
        put_read(w, place_of(pc), who);
    }
}

static void access_write(const void *p, u32 n, const void *pc, struct who who)
{
    uintptr_t at = (uintptr_t)p, end = at + n;
    u32 bytes;
    while (at < end) {
        struct word *w = next_word(&at, end, &bytes);
        if (!has_read(w, who))
            check_writes(w, bytes, p, "writes", place_of(pc), false);
        check_reads(w, p, place_of(pc));
        put_write(w, bytes, place_of(pc), who, false);
        forget_reads(w);
    }
}

static inline void read_of(const void *p, u32 bytes, const void *pc)
{
    const struct who who = myself();
    if ((uintptr_t)p % WORD_BYTES || bytes % WORD_BYTES) {
        access_read(p, bytes, pc, who);
        return;
    }
    for (u32 i = 0; i < bytes; i += WORD_BYTES) {
        const u8 *at = (const u8 *)p + i;
        if (!read_soon(word_at((uintptr_t)at), pc, who))
            access_read(at, WORD_BYTES, pc, who);
    }
}

void races_read(const void *p, u32 bytes, const void *pc)
{
    if (!is_ours(p))
        read_of(p, bytes, pc);
}

void races_write(const void *p, u32 bytes, const void *pc)
{
    if (!is_ours(p))
        access_write(p, bytes, pc, myself());
}

void races_update(const void *p, u32 n, const void *pc)
{
    uintptr_t at = (uintptr_t)p, end = at + n;
    u32 bytes;
    if (is_ours(p))
        return;
    while (at < end) {
        struct word *w = next_word(&at, end, &bytes);
        check_writes(w, bytes, p, "updates", place_of(pc), true);
        put_write(w, bytes, place_of(pc), myself(), true);
    }
}

/* By a volatile read. */
static void look(const void *p, u32 n, const void *pc)
{
    uintptr_t at = (uintptr_t)p, end = at + n;
    u32 bytes, value;
    memcpy(&value, p, sizeof value);
    if (is_ours(p) || value == NOT_YET)
        return;
    while (at < end)
        put_read(next_word(&at, end, &bytes), place_of(pc), myself());
}

void races_copy(void *to, const void *from, u32 bytes, const void *barrier, const void *pc)
{
    const u32 copier = (u32)((uintptr_t)barrier / sizeof(u64) % COPIERS);
    const u32 lane = grid.threads + fiber_now->number / grid.per_block * COPIERS + copier;
    const u32 epoch = ++grid.last_epoch;
    const struct who who = {lane, epoch, epoch};
    access_read(from, bytes, pc, who);
    access_write(to, bytes, pc, who);
    set(clock_of(barrier, true), lane, epoch);
}

static void read_tiles(const struct products *p)
{
    for (u32 i = 0; i < p->n; i++) {
        const u8 *tile = p->tiles + (size_t)i * p->stride + fiber_now->number % 32 * 4;
        races_read(tile, 4, p->pc);
        races_read(tile + p->further, 4, p->pc);
    }
}

void races_products(const u8 *tiles, u32 n, u32 stride, u32 further, const void *pc)
{
    struct lane *l = me();
    need(l->n_products < PRODUCTS, "too many products are under way");
    struct products *p = &memory.products[fiber_now->number][l->n_products++];
    *p = {tiles, n, stride, further, l->batches, pc};
    read_tiles(p);
}

void races_commit(void)
{
    me()->batches++;
}

void races_wait(u32 batches)
{
    struct lane *l = me();
    struct products *products = memory.products[fiber_now->number];
    u32 kept = 0;
    for (u32 i = 0; i < l->n_products; i++)
        if (products[i].batch + batches < l->batches)
            read_tiles(&products[i]);
        else
            products[kept++] = products[i];
    l->n_products = kept;
}

/* --- the compiler's hooks (gcc, tsan.cc) ------------------------------------------------------ */

#define EXPORT extern "C" __attribute__((visibility("hidden")))
#define HOOKS(n)                                         \
    EXPORT void __tsan_read##n(void *p)                  \
    {                                                    \
        races_read(p, n, __builtin_return_address(0));   \
    }                                                    \
    EXPORT void __tsan_write##n(void *p)                 \
    {                                                    \
        races_write(p, n, __builtin_return_address(0));  \
    }                                                    \
    EXPORT void __tsan_unaligned_read##n(void *p)        \
    {                                                    \
        races_read(p, n, __builtin_return_address(0));   \
    }                                                    \
    EXPORT void __tsan_unaligned_write##n(void *p)       \
    {                                                    \
        races_write(p, n, __builtin_return_address(0));  \
    }                                                    \
    EXPORT void __tsan_volatile_read##n(void *p)         \
    {                                                    \
        look(p, n, __builtin_return_address(0));         \
    }                                                    \
    EXPORT void __tsan_volatile_write##n(void *p)        \
    {                                                    \
        races_update(p, n, __builtin_return_address(0)); \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

EXPORT void __tsan_read_range(void *p, size_t bytes)
{
    races_read(p, (u32)bytes, __builtin_return_address(0));
}
EXPORT void __tsan_write_range(void *p, size_t bytes)
{
    races_write(p, (u32)bytes, __builtin_return_address(0));
}
EXPORT void __tsan_vptr_update(void **, void *)
{
}
EXPORT void __tsan_init(void)
{
}
