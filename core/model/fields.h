/* Reading a configuration object key by key. The first refusal sticks in `failed` and in the error
 * text; every later getter then answers its default, so a reader asks for all its keys and looks
 * once at the end. Messages name file, key path and value. Owns nothing.
 */
#ifndef ZIGCUDA_FIELDS_H
#define ZIGCUDA_FIELDS_H

#include "core/base/json.h"

struct fields {
    const struct json *object; /* NULL reads as an empty object */
    const char *file;          /* path, for messages */
    char within[64];           /* "rope_scaling." or "" */
    bool *failed;
    struct err_text *e;
};

#define KEY_REQUIRED (-1e300) /* as the default of fields_f64: the key must be there */
enum { KEY_U32_REQUIRED = UINT32_MAX };

/* The object `root`, which must be one. *failed is set to false first. */
struct fields fields_of(const struct json *root, const char *file, bool *failed,
                        struct err_text *e);

/* The object under `key`; object is NULL when it is missing or null; anything else is refused. */
struct fields fields_in(const struct fields *k, const char *key);

/* The value under `key`; NULL when it is missing or null. */
const struct json *fields_get(const struct fields *k, const char *key);

/* An integer in [min, max] (written as one: 1.0 is refused), a finite number in [min, max], true or
 * false, a string. A missing or null key gives `absent`; for numbers see KEY_REQUIRED. */
u32 fields_u32(const struct fields *k, const char *key, u32 absent, u32 min, u32 max);
double fields_f64(const struct fields *k, const char *key, double absent, double min, double max);
bool fields_bool(const struct fields *k, const char *key, bool absent);
struct str fields_str(const struct fields *k, const char *key, const char *absent);

/* Refuses: "FILE: WITHIN.KEY is VALUE: WHY". */
enum err fields_refuse(const struct fields *k, const char *key, const char *why_fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
