#include "core/main/cache.h"

#include "core/base/file.h"
#include "net/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 32 };
static const char magic[MAGIC_BYTES] = "zigcuda1";

enum err cache_folder(const char *asked, char out[LIMIT_PATH_BYTES], struct err_text *e)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (asked[0])
        n = snprintf(out, LIMIT_PATH_BYTES, "%s", asked);
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, LIMIT_PATH_BYTES, "%s/zigcuda", xdg);
    else if (home && home[0] == '/')
        n = snprintf(out, LIMIT_PATH_BYTES, "%s/.cache/zigcuda", home);
    else
        return err_set(e, ERR_SYSTEM,
                       "no folder for the cache: neither XDG_CACHE_HOME nor HOME is set");
    if (n < 0 || n >= LIMIT_PATH_BYTES - 128) /* room for a file's name */
        return err_set(e, ERR_SYSTEM, "the cache's path is too long");
    return ERR_OK;
}

static void file_of(const char *folder, const u8 key[32], char out[LIMIT_PATH_BYTES])
{
    int n = snprintf(out, LIMIT_PATH_BYTES, "%s/", folder);
    for (u32 i = 0; i < 32; i++)
        n += snprintf(out + n, (size_t)(LIMIT_PATH_BYTES - n), "%02x", key[i]);
}

enum cache_found cache_get(const char *folder, const u8 key[32], struct arena *a, struct str *out)
{
    char path[LIMIT_PATH_BYTES];
    u8 hash[32];
    struct str file;
    struct err_text ignored = {0};
    file_of(folder, key, path);
    if (!file_exists(path))
        return CACHE_NONE;
    if (file_read(a, path, LIMIT_KERNEL_FILE_BYTES, ERR_SYSTEM, &file, &ignored) != ERR_OK ||
        file.n < HEAD_BYTES || memcmp(file.p, magic, MAGIC_BYTES) != 0)
        return CACHE_DAMAGED;
    *out = (struct str){file.p + HEAD_BYTES, file.n - HEAD_BYTES};
    keys_hash(*out, hash);
    return memcmp(hash, file.p + MAGIC_BYTES, sizeof hash) == 0 ? CACHE_HIT : CACHE_DAMAGED;
}

/* --- writing ---------------------------------------------------------------------------------- */

static enum err make_folder(const char *folder, struct err_text *e)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s", folder);
    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c && c != '/')
            continue;
        *p = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return err_set_errno(e, ERR_SYSTEM, "cannot make the folder %s", path);
        *p = c;
        if (!c)
            return ERR_OK;
    }
}

static bool write_all(int fd, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = write(fd, (const u8 *)p + done, n - done);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return false;
        done += (size_t)r;
    }
    return true;
}

enum err cache_put(const char *folder, const u8 key[32], struct str content, struct err_text *e)
{
    char path[LIMIT_PATH_BYTES], fresh[LIMIT_PATH_BYTES + 32];
    u8 head[HEAD_BYTES];
    memcpy(head, magic, MAGIC_BYTES);
    keys_hash(content, head + MAGIC_BYTES);
    TRY(make_folder(folder, e));
    file_of(folder, key, path);
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set_errno(e, ERR_SYSTEM, "cannot make %s", fresh);
    bool good = write_all(fd, head, sizeof head) && write_all(fd, content.p, content.n) &&
                fsync(fd) == 0; /* or a power cut could leave the name without the bytes */
    int saved = errno;
    close(fd);
    errno = saved;
    if (good && rename(fresh, path) == 0)
        return ERR_OK;
    enum err r = err_set_errno(e, ERR_SYSTEM, "cannot write %s", path);
    unlink(fresh);
    return r;
}
