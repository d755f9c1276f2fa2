/* Finds accesses to memory that nothing puts in order, within a block and between blocks, of
 * kernels compiled with EMULATE_RACES and -fsanitize=thread, whose hooks races.cc has; without, all
 * of this is nothing. Each thread of the grid has a vector clock (Flanagan and Freund, FastTrack,
 * PLDI 2009), which barriers, meetings and atomics with fences join. So a race is found in whatever
 * order the fibers run, and where no value tells.
 *
 * What is taken for ordered is what CUDA promises, and one thing more that the hardware keeps: a
 * warp's exchanges order its lanes' accesses, as __syncwarp does. Awaited rows (NOT_YET in step.h)
 * are asked for by volatile reads: one that finds NOT_YET does not count; one that finds a value
 * does, but orders nothing except what the same thread writes there. So who clears a row has to
 * come behind all others who asked for it, by other means.
 */
#ifndef ZIGCUDA_RACES_H
#define ZIGCUDA_RACES_H

#include "core/base/base.h"

#ifdef EMULATE_RACES
enum { RACES_THREADS = 8192 }; /* of a grid */
enum { EMULATE_EARLY = 1 };    /* copies happen as early as they may, */
u32 races_found(void);         /* one for each two places of code */
#define RACES_HOOK(name, ...) void name(__VA_ARGS__)
#else
enum { RACES_THREADS = 0 };
enum { EMULATE_EARLY = 0 }; /* or as late */
#define RACES_HOOK(name, ...)                               \
    template <class... any> static inline void name(any...) \
    {                                                       \
    }
#endif

/* A grid begins. Its threads have numbers 0..n - 1, `per_block` to a block, a multiple of 32. What
 * happened before is in order. What is in [stacks, end) is nobody else's, parameters are constant.
 */
RACES_HOOK(races_begin, const char *kernel, u32 n, u32 per_block, const u8 *stacks, const u8 *end,
           const void *params, size_t params_bytes);

/* What the running fiber does, in code at `pc`. */
RACES_HOOK(races_read, const void *p, u32 bytes, const void *pc);
RACES_HOOK(races_write, const void *p, u32 bytes, const void *pc);
RACES_HOOK(races_update, const void *p, u32 bytes, const void *pc); /* an atomic */
/* Products of a batch that is under way read n tiles `stride` apart, and as many `further` on. */
RACES_HOOK(races_products, const u8 *tiles, u32 n, u32 stride, u32 further, const void *pc);
RACES_HOOK(races_commit, void);
RACES_HOOK(races_wait, u32 batches);     /* no more than so many are under way */
RACES_HOOK(races_atomic, const void *p); /* relaxed: what is in front of its last fence is with p */
RACES_HOOK(races_release, const void *p); /* all that it knows is with p, */
RACES_HOOK(races_acquire, const void *p); /* and known to who acquires that */
RACES_HOOK(races_fence, void);

/* n fibers from number `first` on have met. */
RACES_HOOK(races_meet, u32 first, u32 n);

/* A barrier in shared memory begins; somebody arrives; a phase is over; somebody saw that. */
RACES_HOOK(races_barrier, const void *barrier);
RACES_HOOK(races_arrive, const void *barrier);
RACES_HOOK(races_phase, const void *barrier);
RACES_HOOK(races_passed, const void *barrier);

/* A copy that nobody but this barrier tells of. */
RACES_HOOK(races_copy, void *to, const void *from, u32 bytes, const void *barrier, const void *pc);

#endif
