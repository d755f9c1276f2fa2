#include "core/base/file.h"

#include "config/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool file_exists(const char *path)
{
    return access(path, R_OK) == 0;
}

/* getdents64 by hand, as opendir allocates. */
void file_names(const char *dir, void (*each)(const char *name, void *arg), void *arg)
{
    struct entry {
        u64 ino, off;
        u16 bytes;
        u8 type;
        char name[];
    };
    _Alignas(u64) char entries[4096];
    long n;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    while ((n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct entry *entry = (const void *)(entries + at);
            at += entry->bytes;
            each(entry->name, arg);
        }
    close(fd);
}

enum err file_path(char *out, const char *dir, struct str name, struct err_text *e)
{
    int n = snprintf(out, LIMIT_PATH_BYTES, "%s/%.*s", dir, (int)MIN(name.n, (size_t)4096), name.p);
    if (n < 0 || n >= LIMIT_PATH_BYTES)
        return err_set(e, ERR_MODEL, "%.100s...: path is longer than %d bytes", dir,
                       LIMIT_PATH_BYTES);
    return ERR_OK;
}

static enum err open_regular(const char *path, enum err code, int *fd, size_t *bytes,
                             struct err_text *e)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
    if (*fd < 0)
        return err_set_errno(e, code, "cannot open %s", path);
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return err_set(e, code, "%s is not a regular file", path);
    }
    *bytes = (size_t)st.st_size;
    return ERR_OK;
}

static enum err read_all(int fd, char *p, size_t n, const char *path, enum err code,
                         struct err_text *e)
{
    for (size_t got = 0; got < n;) {
        ssize_t r = read(fd, p + got, n - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set_errno(e, code, "cannot read %s", path);
        if (r == 0)
            return err_set(e, code, "%s became shorter while it was read", path);
        got += (size_t)r;
    }
    return ERR_OK;
}

/* What git leaves in the place of a large file. */
static enum err check_pointer(struct str text, const char *path, enum err code, struct err_text *e)
{
    if (!str_starts(text, STR("version https://git-lfs.github.com/")))
        return ERR_OK;
    return err_set(e, code,
                   "%s is a Git LFS pointer in the place of the file: install git-lfs, and run "
                   "'git lfs pull' in that folder",
                   path);
}

enum err file_read(struct arena *a, const char *path, size_t max_bytes, enum err code,
                   struct str *out, struct err_text *e)
{
    int fd;
    size_t bytes;
    TRY(open_regular(path, code, &fd, &bytes, e));
    enum err r = ERR_OK;
    char *p = NULL;
    if (bytes > max_bytes)
        r = err_set(e, code, "%s has %zu bytes; the limit is %zu", path, bytes, max_bytes);
    else if (!(p = arena_alloc(a, bytes + 1, 16)))
        r = arena_full(a, path, e);
    else
        r = read_all(fd, p, bytes, path, code, e);
    close(fd);
    *out = (struct str){p, bytes};
    return r == ERR_OK ? check_pointer(*out, path, code, e) : r;
}

enum err file_map(const char *path, enum err code, struct str *out, struct err_text *e)
{
    int fd;
    size_t bytes;
    TRY(open_regular(path, code, &fd, &bytes, e));
    void *p = bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int saved = errno;
    close(fd);
    if (bytes == 0)
        return err_set(e, code, "%s is empty", path);
    errno = saved;
    if (p == MAP_FAILED && saved == ENOMEM)
        return memory_unmapped(e, bytes, path);
    if (p == MAP_FAILED)
        return err_set_errno(e, code, "cannot map %s", path);
    *out = (struct str){p, bytes};
    return check_pointer(*out, path, code, e);
}
