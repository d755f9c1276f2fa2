/* Files of the model folder and the configuration: read whole into an arena, or mapped read-only.
 * Paths and sizes are bounded by config/limits.h; messages name the path.
 */
#ifndef ZIGCUDA_FILE_H
#define ZIGCUDA_FILE_H

#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

/* True when `path` can be opened for reading. */
bool file_exists(const char *path);

/* Calls `each` with the names in a folder, "." and ".." among them, in no order; with none when the
 * folder cannot be read. */
void file_names(const char *dir, void (*each)(const char *name, void *arg), void *arg);

/* dir + "/" + name into out[LIMIT_PATH_BYTES]. */
MUST enum err file_path(char *out, const char *dir, struct str name, struct err_text *e);

/* The whole file, NUL-terminated behind its n bytes. More than max_bytes is an error. */
MUST enum err file_read(struct arena *a, const char *path, size_t max_bytes, enum err code,
                        struct str *out, struct err_text *e);

/* Maps a whole file read-only and shared; it stays mapped for the life of the process. */
MUST enum err file_map(const char *path, enum err code, struct str *out, struct err_text *e);

#endif
