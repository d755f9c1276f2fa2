/* libFuzzer: the reader of weight files. Whatever the header says, a tensor that it accepts lies in
 * the file, and the data is not read.
 */
#include "core/model/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static void check(const struct tensors *t, const char *file, size_t n)
{
    for (u32 i = 0; i < t->n; i++) {
        const struct tensor *v = t->v[i];
        const char *at = v->data;
        ASSERT(tensors_find(t, v->name.p) == v);
        ASSERT(at >= file && (size_t)(at - file) <= n && v->bytes <= n - (size_t)(at - file));
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct arena keep, scratch;
    struct err_text e = {0};
    struct tensors t;
    if (!keep.base && (arena_open(&keep, "keep", (size_t)512 << 20, false, &e) != ERR_OK ||
                       arena_open(&scratch, "scratch", (size_t)512 << 20, false, &e) != ERR_OK))
        abort();
    char *file = malloc(n + 1);
    memcpy(file, data, n);
    ASSERT(tensors_init(&t, &keep, &scratch, &e) == ERR_OK);
    enum err code = safetensors_parse(&t, &scratch, (struct str){file, n}, "a.safetensors", &e);
    if (code == ERR_OK)
        code = tensors_index(&t, &e);
    ASSERT(code == ERR_OK || e.text[0]);
    if (code == ERR_OK)
        check(&t, file, n);
    arena_reset(&keep, 0);
    arena_reset(&scratch, 0);
    free(file);
    return 0;
}
