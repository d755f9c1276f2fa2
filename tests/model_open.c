/* model_open DIR...: opens each folder and prints one line about it, or the refusal.
 * Exit class of the first failure; also --shape=NAME,BITS,HEAD_BITS in place of a folder. */
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static enum err open_one(struct arena *keep, struct arena *scratch, const char *arg,
                         struct model **m, struct err_text *e)
{
    char name[64];
    u32 bits, head_bits;
    if (sscanf(arg, "--shape=%63[^,],%u,%u", name, &bits, &head_bits) == 3)
        return model_shape(keep, scratch, name, bits, head_bits, 1, m, e);
    return model_open(keep, scratch, arg, m, e);
}

int main(int argc, char **argv)
{
    int first = 0;
    for (int i = 1; i < argc; i++) {
        struct arena keep, scratch;
        struct err_text e = {0};
        struct model *m;
        if (arena_open(&keep, "boot", LIMIT_BOOT_ARENA_BYTES, &e) != ERR_OK ||
            arena_open(&scratch, "scratch", LIMIT_SCRATCH_ARENA_BYTES, &e) != ERR_OK) {
            fprintf(stderr, "%s\n", e.text);
            return EXIT_SYSTEM;
        }
        double start = now_ms();
        enum err r = open_one(&keep, &scratch, argv[i], &m, &e);
        double ms = now_ms() - start;
        if (r != ERR_OK) {
            printf("REFUSED %s %d %.1f ms: %s\n", argv[i], err_exit_class(r), ms, e.text);
            first = first ? first : err_exit_class(r);
        } else {
            printf("ok %.*s: %.*s %.*s, %u layers, hidden %u, heads %u/%u x %u, mlp %u, vocab %u, "
                   "context %u, %u end ids, %u files, %zu bytes, arena %zu, %.1f ms\n",
                   STR_ARG(m->name), STR_ARG(m->model_type), STR_ARG(m->quant), m->layers_n,
                   m->hidden, m->heads, m->kv_heads, m->head_dim, m->intermediate, m->vocab,
                   m->context, m->n_eos, m->files_n, m->file_bytes, keep.used_bytes, ms);
        }
        arena_close(&keep);
        arena_close(&scratch);
    }
    return first;
}
