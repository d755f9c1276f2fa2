/* Reading tokenizer.json, in two files: tokenizer_load.c (vocabulary, merges, added tokens,
 * tokenizer_config.json) and tokenizer_steps.c (normalizer, pre-tokenizer, decoder and
 * post-processor). Each function fills its part of l->t or refuses with file and key.
 */
#ifndef ZIGCUDA_TOKENIZER_LOAD_H
#define ZIGCUDA_TOKENIZER_LOAD_H

#include "core/base/json.h"
#include "core/model/tokenizer_parts.h"

#include <stdio.h>

struct loader {
    struct arena *keep, *scratch;
    const char *path; /* of the file that is read now */
    struct tokenizer *t;
    struct err_text *e;
};

#define REFUSE(l, fmt, ...) \
    err_set((l)->e, ERR_MODEL, "%s: " fmt, (l)->path __VA_OPT__(, ) __VA_ARGS__)

/* Members of an object; `where` is its path in the file. load_bool takes null for missing. */
MUST enum err load_str(struct loader *l, const struct json *object, const char *where,
                       const char *key, struct str *out);
MUST enum err load_bool(struct loader *l, const struct json *object, const char *where,
                        const char *key, bool missing, bool *out);
MUST enum err load_list(struct loader *l, const struct json *object, const char *where,
                        const char *key, const struct json **out);

/* A copy in the keep arena. */
MUST enum err load_keep(struct loader *l, struct str s, struct str *out);

/* v is the value of the key of that name, NULL or null where there is none. `depth` counts nested
 * Sequences. */
MUST enum err load_normalizer(struct loader *l, const struct json *v, u32 depth);
MUST enum err load_pre_tokenizer(struct loader *l, const struct json *v, u32 depth);
MUST enum err load_decoder(struct loader *l, const struct json *v);
MUST enum err load_post_processor(struct loader *l, const struct json *v, u32 depth);

#endif
