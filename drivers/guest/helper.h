/* What the helper program hands over to guest.c: glibc's own loader functions. guest.c makes the
 * struct and passes its address in a row of the auxiliary vector that no kernel uses.
 */
#ifndef ZIGCUDA_HELPER_H
#define ZIGCUDA_HELPER_H

enum { AT_ZIGCUDA_BRIDGE = 0x7a637564 };

struct guest_bridge {
    void *(*dlopen)(const char *name, int flags);
    void *(*dlsym)(void *lib, const char *name);
    char *(*dlerror)(void);
    void (*back)(void); /* of guest.c: does not return */
};

#endif
