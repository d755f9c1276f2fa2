/* Reading tokenizer.json, in two files: tokenizer_load.c (vocabulary, merges, added tokens,
 * tokenizer_config.json and special_tokens_map.json) and tokenizer_steps.c (normalizer,
 * pre-tokenizer, decoder and post-processor). Each function fills its part of l->t or refuses with
 * file and key.
 */
#ifndef ZIGCUDA_TOKENIZER_LOAD_H
#define ZIGCUDA_TOKENIZER_LOAD_H

#include "core/base/json.h"
#include "core/model/tokenizer_parts.h"

#include <stdio.h>

/* A token that tokenizer_config.json or special_tokens_map.json names: in added_tokens_decoder, or
 * as a special one. */
struct named {
    const struct json *v; /* its flags, or a string */
    struct str content;
    u64 id;     /* of added_tokens_decoder; NO_ID for the others */
    bool role;  /* bos_token and the like: special whatever its flags say */
    bool known; /* never a new token: without it the model cannot begin or end */
};
#define NO_ID UINT64_MAX

struct loader {
    struct arena *keep, *scratch;
    const struct tokenizer_source *from;
    const char *path;          /* of the file that is read now */
    const struct json *config; /* tokenizer_config.json, or an empty object */
    const struct json *map;    /* special_tokens_map.json where that counts, or NULL */
    struct named *named;       /* in scratch, in the order in which transformers adds them */
    u32 named_n;
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

/* The refusal of an arena that is full. */
enum err load_full(struct loader *l, const struct arena *a);

/* v is the value of the key of that name, NULL or null where there is none. `depth` counts nested
 * Sequences. */
MUST enum err load_normalizer(struct loader *l, const struct json *v, u32 depth);
MUST enum err load_pre_tokenizer(struct loader *l, const struct json *v, u32 depth);
MUST enum err load_decoder(struct loader *l, const struct json *v);
MUST enum err load_post_processor(struct loader *l, const struct json *v, u32 depth);

#endif
