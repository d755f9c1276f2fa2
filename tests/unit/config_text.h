/* Texts of config.json in tests, and what becomes of them. */
#ifndef ZIGCUDA_CONFIG_TEXT_H
#define ZIGCUDA_CONFIG_TEXT_H

#include "core/model/config.h"
#include "tests/unit/unit.h"

/* A config.json of a small model: `more` is put behind the keys that give the shape. */
static inline const char *config_text(const char *type, const char *more)
{
    char *text = arena_alloc(&unit_arena, 4096, 1);
    snprintf(text, 4096,
             "{\"model_type\":\"%s\",\"hidden_size\":64,\"intermediate_size\":128,"
             "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":300,"
             "\"max_position_embeddings\":256%s%s}",
             type, *more ? "," : "", more);
    return text;
}

/* A part of the unit arena, since scratch must be another arena than the one for what stays. */
static inline struct arena *scratch(void)
{
    static struct arena a;
    a = arena_over("scratch", arena_alloc(&unit_arena, 256 * KIB, 16), 256 * KIB);
    return &a;
}

static inline enum err parse(const char *text, struct model *m, struct config *c,
                             struct err_text *e)
{
    *m = (struct model){0};
    *e = (struct err_text){0};
    return config_parse(&unit_arena, scratch(), str_of(text), "dir/config.json", m, c, e);
}

static inline bool opens(const char *type, const char *more, struct model *m, struct config *c)
{
    struct err_text e;
    enum err r = parse(config_text(type, more), m, c, &e);
    if (r != ERR_OK)
        printf("    %s\n", e.text);
    return r == ERR_OK;
}

#endif
