/* A folder of results that can be made again, a file each, named by the key's 32 bytes in
 * hexadecimal: 8 bytes of magic, the SHA-256 of the content, the content. A file that is cut,
 * changed or of another kind is found out by that and counts as not there. Writers put a whole file
 * in place with one rename, so that readers and other writers never see half of one. Nothing is
 * ever removed but by the user. Limit: LIMIT_KERNEL_FILE_BYTES a file.
 */
#ifndef ZIGCUDA_CACHE_H
#define ZIGCUDA_CACHE_H

#include "config/limits.h"
#include "core/base/arena.h"

/* `asked`, or when that is empty $XDG_CACHE_HOME/zigcuda or ~/.cache/zigcuda (XDG Base Directory
 * Specification). ERR_SYSTEM: nothing is set, or the path is too long. */
MUST enum err cache_folder(const char *asked, char out[LIMIT_PATH_BYTES], struct err_text *e);

enum cache_found { CACHE_NONE, CACHE_DAMAGED, CACHE_HIT };

/* The content is taken from `a`. */
enum cache_found cache_get(const char *folder, const u8 key[32], struct arena *a, struct str *out);

/* Makes the folder where it is missing. */
MUST enum err cache_put(const char *folder, const u8 key[32], struct str content,
                        struct err_text *e);

#endif
