/* The guest: glibc, living in this static musl process, so that the GPU driver's shared objects
 * can be loaded. guest_open does what the kernel does at exec: it maps the box's own loader
 * (ld-linux-*.so) and a small embedded glibc program (helper.c), builds a stack with arguments,
 * environment and auxiliary vector, and jumps to the loader, which starts glibc and then the
 * helper, which hands dlopen and dlsym back. From then on two C libraries share the thread; each
 * finds its own data through the thread pointer, so a call into the guest swaps that register
 * (GUEST_CALL), 14 ns a pair.
 *
 * What makes this sound, and has to stay so:
 * - No page is ever writable and executable: code is mapped from its file, the helper's from a
 *   memfd. systemd's MemoryDenyWriteExecute can stay on.
 * - Only the main thread opens, loads and calls. Other threads of ours never enter the guest; an
 *   assertion sees it.
 * - In the expression of GUEST_CALL nothing of ours runs but the call: no errno, no printf, no
 *   function of musl. Fetch arguments before. One call, no GUEST_CALL inside another.
 * - Guest threads may call functions of ours (callbacks). These run on glibc's thread pointer: they
 *   may read and write memory and atomics, and call nothing of musl, since most of it uses TLS.
 * - Signals have no handler of ours where there is a guest (guest_open asserts it), since one could
 *   run on the guest's thread pointer. They are blocked and read by signalfd, as serve and run do,
 *   or keep the default action, as in the commands that Ctrl-C simply ends. Guest threads inherit
 *   the mask of the thread at the call that makes them: who reads by signalfd blocks before
 *   guest_open.
 * - brk belongs to glibc's malloc: we have none.
 * - The loader registers this thread's robust list, clear_child_tid and rseq area with the kernel
 *   anew. musl uses the first for robust mutexes and the second when the main thread ends before
 *   the process; we do neither. The areas are absolute addresses in memory that stays mapped, so
 *   the kernel writes to the right place whichever thread pointer is set.
 * - The process ends by _exit or by returning from main: musl's exit runs, then exit_group; atexit
 *   functions of the guest do not run and guest threads are not waited for.
 * - The loader ends the process when something does not suit it. So a forked child tries first, and
 *   what the loader said there becomes our error. Open the guest early in the boot, while there is
 *   little memory to copy page tables of.
 * - AT_SECURE is what the kernel gave us: LD_LIBRARY_PATH and LD_PRELOAD work as for any program.
 *
 * Under the sanitizers the process has a glibc already and these functions are dlopen and dlsym.
 */
#ifndef ZIGCUDA_GUEST_H
#define ZIGCUDA_GUEST_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

/* Boots glibc in this process; once it has, does nothing. The guest's stack is taken from `a` and
 * stays in use for the life of the process. ERR_DEVICE: the box has no (fitting) glibc. */
MUST enum err guest_open(struct arena *a, struct err_text *e);

/* Loads a shared object as dlopen(name, RTLD_NOW | RTLD_LOCAL) does, and so searches where that
 * does. ERR_DEVICE with dlerror's words when it cannot. It is never unloaded. */
MUST enum err guest_load(const char *name, void **lib, struct err_text *e);

/* The address of a symbol; NULL: not there. Functions are to be called in GUEST_CALL. */
void *guest_symbol(void *lib, const char *name);

/* Where the box's glibc loader is: the interpreter of one of its programs if that is glibc's, else
 * `standard`, the path that the ABI fixes. Apart from guest_open for the tests. */
MUST enum err guest_find(const char *const *programs, u32 n, const char *standard,
                         char out[LIMIT_PATH_BYTES], struct err_text *e);

#ifdef __SANITIZE_ADDRESS__

#define GUEST_CALL(call) (call)

#else

struct guest_thread {
    uintptr_t ours, theirs; /* thread pointers; 0 before guest_open */
    bool fsgsbase;          /* x86-64: the kernel lets user code write FS by an instruction */
};
extern struct guest_thread guest_thread;

/* The value of `call`, a call through a function pointer of the guest (not void). */
#define GUEST_CALL(call)                        \
    ({                                          \
        guest_enter();                          \
        __typeof__(call) guest_value_ = (call); \
        guest_pointer_set(guest_thread.ours);   \
        guest_value_;                           \
    })

static inline uintptr_t guest_pointer(void)
{
    uintptr_t p;
#if defined(__x86_64__)
    __asm__ volatile("mov %%fs:0, %0" : "=r"(p)); /* the ABI's pointer to itself */
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(p));
#endif
    return p;
}

static inline void guest_pointer_set(uintptr_t p)
{
#if defined(__x86_64__)
    if (guest_thread.fsgsbase) {
        __asm__ volatile("wrfsbase %0" ::"r"(p) : "memory");
    } else { /* arch_prctl(ARCH_SET_FS), without touching errno */
        long r = 158;
        __asm__ volatile("syscall" : "+a"(r) : "D"(0x1002L), "S"(p) : "rcx", "r11", "memory");
    }
#elif defined(__aarch64__)
    __asm__ volatile("msr tpidr_el0, %0" ::"r"(p) : "memory");
#endif
}

static inline void guest_enter(void)
{
    ASSERT(guest_thread.theirs && guest_pointer() == guest_thread.ours);
    guest_pointer_set(guest_thread.theirs);
}

#endif
#endif
