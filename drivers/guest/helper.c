#include "drivers/guest/helper.h"

#include <dlfcn.h>
#include <sys/auxv.h>

/* The program that glibc's loader believes to start: it fills the bridge and goes back. Built as a
 * glibc program without start files, and bound to the oldest versions of what it calls, so that a
 * glibc older than the build machine's takes it too; before 2.34 these functions lie in libdl.so.2,
 * which therefore is linked by name. Embedded into zigcuda as bytes. */
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define ALIGN_STACK __attribute__((force_align_arg_pointer)) /* no call brought us here */
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#define ALIGN_STACK
#endif
__asm__(".symver dlopen, dlopen@" OLDEST);
__asm__(".symver dlsym, dlsym@" OLDEST);
__asm__(".symver dlerror, dlerror@" OLDEST);

void _start(void);

ALIGN_STACK void _start(void)
{
    struct guest_bridge *b = (struct guest_bridge *)getauxval(AT_ZIGCUDA_BRIDGE);
    b->dlopen = dlopen;
    b->dlsym = dlsym;
    b->dlerror = dlerror;
    b->back();
    __builtin_unreachable();
}
