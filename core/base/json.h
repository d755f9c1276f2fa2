/* JSON (RFC 8259) into a tree in an arena, and back out into a bounded buffer.
 *
 * The parser is strict: UTF-8 checked, lone surrogates refused, duplicate keys refused, one value
 * and white space only, depth and node ceilings from config/limits.h. One byte order mark may stand
 * before it. Numbers keep their text, so that integers stay exact; in a model's files they may be
 * Infinity, -Infinity and NaN, as Python writes them. The tree lives in the arena that was handed
 * in and may point into it only (strings are copied), so the text can go away.
 */
#ifndef ZIGCUDA_JSON_H
#define ZIGCUDA_JSON_H

#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_type type;
    u32 n;                    /* children of an array or object */
    struct str text;          /* string: unescaped; number: as written */
    struct str key;           /* when this is a member of an object */
    const struct json *child; /* first child */
    const struct json *next;  /* next sibling */
};

/* White space of JSON. */
static inline bool json_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Parses all of `text`. `source` names it in messages ("config.json"), which give line and column.
 * Errors carry `code` (ERR_MODEL for files, ERR_REQUEST for bodies). */
MUST enum err json_parse(struct arena *a, struct str text, const char *source, enum err code,
                         const struct json **out, struct err_text *e);

/* A member of an object, or NULL (also when `object` is NULL or no object). */
const struct json *json_get(const struct json *object, const char *key);
/* What a JSON pointer (RFC 6901) leads to, through objects alone and without escapes, or NULL. */
const struct json *json_find(const struct json *v, struct str pointer);

/* Exact conversions; false when the value is no such number. 1.0 and 1e2 are no integers. */
MUST bool json_u64(const struct json *v, u64 *out);
MUST bool json_i64(const struct json *v, i64 *out);
MUST bool json_f64(const struct json *v, double *out); /* finite */

/* "a string", "null", ... for messages. */
const char *json_type_name(const struct json *v);

/* --- writing --------------------------------------------------------------------------------
 * Appends to a bounded buffer; when it is full, `full` sticks and nothing more is written. */
struct json_out {
    char *p;
    size_t n, cap;
    bool full;
    bool comma; /* the next value needs one */
};

struct json_out json_out_over(char *p, size_t cap);
void json_open(struct json_out *o, char bracket);  /* '{' or '[' */
void json_close(struct json_out *o, char bracket); /* '}' or ']' */
void json_key(struct json_out *o, const char *key);
void json_key_str(struct json_out *o, struct str key);
void json_put_str(struct json_out *o, struct str s); /* escapes; invalid UTF-8 becomes U+FFFD */
/* A string in pieces, each of whole characters. */
void json_open_str(struct json_out *o);
void json_put_piece(struct json_out *o, struct str s);
void json_close_str(struct json_out *o);
void json_put_number(struct json_out *o, struct str text); /* as it stands in JSON */
void json_put_u64(struct json_out *o, u64 v);
void json_put_i64(struct json_out *o, i64 v);
/* Finite; reads back as the same f32, at most JSON_F32_BYTES with its comma. */
enum { JSON_F32_BYTES = 16 };
void json_put_f32(struct json_out *o, float v);
void json_put_f64(struct json_out *o, double v, int digits); /* not finite: null */
void json_put_bool(struct json_out *o, bool v);
void json_put_null(struct json_out *o);
void json_put_tree(struct json_out *o, const struct json *v);
/* A key with its value. */
void json_pair_text(struct json_out *o, const char *key, const char *v);
void json_pair_u64(struct json_out *o, const char *key, u64 v);
void json_pair_null(struct json_out *o, const char *key);

/* --- making --------------------------------------------------------------------------------
 * Trees that were not parsed. The first missing piece of memory sticks in `full`. */
struct json_tree {
    struct json *v;
    const struct json **end;
    bool full;
};

/* `text` is not copied. NULL: the arena is full. */
struct json *json_make(struct arena *a, enum json_type type, struct str text);
struct json_tree json_grow(struct json *v); /* an empty object or array, or NULL */
/* Appends `child`, which is in no other tree; `key` is not copied. */
void json_append(struct json_tree *t, struct str key, struct json *child);

#endif
