/* Debian's libbearssl.a is built for glibc with _FORTIFY_SOURCE; its checked copies do not exist in
 * musl. The size of the destination is checked here as there. */
#include "core/base/base.h"

#ifndef __GLIBC__

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
void *__memmove_chk(void *to, const void *from, size_t n, size_t room);
void *__memset_chk(void *to, int c, size_t n, size_t room);

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
    ASSERT(n <= room);
    return memcpy(to, from, n);
}

void *__memmove_chk(void *to, const void *from, size_t n, size_t room)
{
    ASSERT(n <= room);
    return memmove(to, from, n);
}

void *__memset_chk(void *to, int c, size_t n, size_t room)
{
    ASSERT(n <= room);
    return memset(to, c, n);
}

#endif
