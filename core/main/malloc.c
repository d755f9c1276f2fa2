/* malloc is not used: memory comes from arenas. The libraries of this program can be told not to
 * call it either; should one do so, that is a bug which shows itself here instead of taking memory
 * behind the plan. Linked into zigcuda only; all of the family, or musl's own would be linked too.
 */
#include "core/base/base.h"

#include <stdlib.h>

#ifndef __SANITIZE_ADDRESS__

void *malloc(size_t bytes)
{
    (void)bytes;
    ASSERT(!"malloc called");
}

void *calloc(size_t n, size_t bytes)
{
    (void)n, (void)bytes;
    ASSERT(!"calloc called");
}

void *realloc(void *p, size_t bytes)
{
    (void)p, (void)bytes;
    ASSERT(!"realloc called");
}

void *aligned_alloc(size_t align, size_t bytes)
{
    (void)align, (void)bytes;
    ASSERT(!"aligned_alloc called");
}

void free(void *p)
{
    ASSERT(!p);
}

#endif
