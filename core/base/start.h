/* What other programs have of a dynamic loader, and a static one does for itself. */
#ifndef ZIGCUDA_START_H
#define ZIGCUDA_START_H

#include "core/base/base.h"

/* Makes what is constant once it has addresses (PT_GNU_RELRO: pointers to functions, the GOT)
 * read-only. musl does that in programs with a dynamic loader alone. */
void start_protect(void);

#endif
