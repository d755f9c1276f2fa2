#include "core/model/safetensors.h"

#include "config/limits.h"
#include "core/base/json.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    u32 bits;
    enum dtype type;
} dtypes[] = {
    {"F32", 32, DTYPE_F32},
    {"F16", 16, DTYPE_F16},
    {"BF16", 16, DTYPE_BF16},
    {"I8", 8, DTYPE_I8},
    {"U8", 8, DTYPE_U8},
    {"I32", 32, DTYPE_I32},
    {"I64", 64, DTYPE_I64},
    {"F64", 64, DTYPE_OTHER},
    {"BOOL", 8, DTYPE_OTHER},
    {"I16", 16, DTYPE_OTHER},
    {"U16", 16, DTYPE_OTHER},
    {"U32", 32, DTYPE_OTHER},
    {"U64", 64, DTYPE_OTHER},
    {"C64", 64, DTYPE_OTHER},
    {"F4", 4, DTYPE_OTHER},
    {"F6_E2M3", 6, DTYPE_OTHER},
    {"F6_E3M2", 6, DTYPE_OTHER},
    {"F8_E5M2", 8, DTYPE_OTHER},
    {"F8_E4M3", 8, DTYPE_OTHER},
    {"F8_E8M0", 8, DTYPE_OTHER},
    {"F8_E4M3FNUZ", 8, DTYPE_OTHER},
    {"F8_E5M2FNUZ", 8, DTYPE_OTHER},
};

const char *dtype_name(enum dtype type)
{
    static const char *const names[] = {
        [DTYPE_NONE] = "none", [DTYPE_F32] = "f32", [DTYPE_F16] = "f16",
        [DTYPE_BF16] = "bf16", [DTYPE_I8] = "i8",   [DTYPE_U8] = "u8",
        [DTYPE_I32] = "i32",   [DTYPE_I64] = "i64", [DTYPE_OTHER] = "another type"};
    return names[type];
}

enum err tensors_init(struct tensors *t, struct arena *keep, struct arena *scratch,
                      struct err_text *e)
{
    ASSERT(keep != scratch);
    *t = (struct tensors){.v = ARENA_NEW(scratch, struct tensor *, LIMIT_TENSORS),
                          .used = ARENA_NEW(scratch, bool, LIMIT_TENSORS),
                          .keep = keep,
                          .scratch = scratch};
    return t->v && t->used ? ERR_OK : arena_full(scratch, "tensor index", e);
}

/* --- one header ---------------------------------------------------------------------------- */

struct header {
    const char *path;
    struct str data;
    struct err_text *e;
};

#define REFUSE(h, name, fmt, ...)                                      \
    err_set((h)->e, ERR_MODEL, "%s: tensor \"%.*s\": " fmt, (h)->path, \
            (int)MIN((name).n, (size_t)200), (name).p __VA_OPT__(, ) __VA_ARGS__)

static enum err parse_shape(const struct header *h, const struct json *v, struct tensor *t)
{
    if (!v || v->type != JSON_ARRAY)
        return REFUSE(h, t->name, "shape is %s, an array is expected", json_type_name(v));
    if (v->n > TENSOR_RANK_MAX)
        return REFUSE(h, t->name, "shape has %u dimensions, at most %d are supported", v->n,
                      TENSOR_RANK_MAX);
    t->rank = v->n;
    u32 i = 0;
    for (const struct json *d = v->child; d; d = d->next)
        if (!json_u64(d, &t->shape[i++]))
            return REFUSE(h, t->name, "shape holds what is no integer from 0 up");
    return ERR_OK;
}

/* The bytes that shape and width ask for. */
static enum err tensor_bytes(const struct header *h, const struct tensor *t, u32 bits, size_t *out)
{
    size_t n = bits;
    for (u32 i = 0; i < t->rank; i++)
        if (!size_mul(n, t->shape[i], &n))
            return REFUSE(h, t->name, "the product of its shape overflows");
    if (n % 8)
        return REFUSE(h, t->name, "its shape is no whole number of bytes");
    *out = n / 8;
    return ERR_OK;
}

static enum err parse_tensor(const struct header *h, const struct json *m, struct tensor *t)
{
    const struct json *dtype = json_get(m, "dtype"), *span = json_get(m, "data_offsets");
    if (m->type != JSON_OBJECT)
        return REFUSE(h, t->name, "is %s, an object is expected", json_type_name(m));
    if (!dtype || dtype->type != JSON_STRING)
        return REFUSE(h, t->name, "dtype is %s, a string is expected", json_type_name(dtype));
    u32 bits = 0;
    for (size_t i = 0; i < COUNTOF(dtypes); i++)
        if (str_is(dtype->text, dtypes[i].name)) {
            bits = dtypes[i].bits;
            t->type = dtypes[i].type;
            t->type_name = dtypes[i].name;
        }
    if (bits == 0)
        return REFUSE(h, t->name, "unknown dtype \"%.*s\"", STR_ARG(dtype->text));
    TRY(parse_shape(h, json_get(m, "shape"), t));
    u64 begin, end;
    if (!span || span->type != JSON_ARRAY || span->n != 2 || !json_u64(span->child, &begin) ||
        !json_u64(span->child->next, &end))
        return REFUSE(h, t->name, "data_offsets must be two integers from 0 up");
    if (begin > end || end > h->data.n)
        return REFUSE(h, t->name, "data_offsets [%llu, %llu] lie outside the %zu bytes of data",
                      (unsigned long long)begin, (unsigned long long)end, h->data.n);
    size_t want;
    TRY(tensor_bytes(h, t, bits, &want));
    t->data = h->data.p + begin;
    t->bytes = (size_t)(end - begin);
    if (want != t->bytes)
        return REFUSE(h, t->name, "shape and dtype ask for %zu bytes, data_offsets give %zu", want,
                      t->bytes);
    return ERR_OK;
}

static int by_span(const void *a, const void *b)
{
    const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;
    const char *xb = x->data, *yb = y->data;
    if (xb != yb)
        return xb < yb ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorts v by span; the spans must follow each other without hole or overlap and fill the data. */
static enum err check_cover(const struct header *h, struct tensor **v, u32 n)
{
    const char *at = h->data.p, *end = h->data.p + h->data.n;
    qsort(v, n, sizeof *v, by_span);
    for (u32 i = 0; i < n; i++) {
        const char *p = v[i]->data;
        if (p != at)
            return REFUSE(h, v[i]->name, "its data %s",
                          p > at ? "leaves a hole behind the tensor before it"
                                 : "overlaps that of another tensor");
        at += v[i]->bytes;
    }
    if (at != end)
        return err_set(h->e, ERR_MODEL, "%s: %zu bytes behind the last tensor belong to none",
                       h->path, (size_t)(end - at));
    return ERR_OK;
}

static enum err add_tensors(struct tensors *t, const struct header *h, const struct json *root)
{
    u32 first = t->n;
    struct tensor *own = ARENA_NEW(t->keep, struct tensor, root->n);
    if (!own)
        return arena_full(t->keep, h->path, h->e);
    for (const struct json *m = root->child; m; m = m->next) {
        if (str_is(m->key, "__metadata__")) {
            if (m->type != JSON_OBJECT)
                return REFUSE(h, m->key, "is %s, an object is expected", json_type_name(m));
            for (const struct json *s = m->child; s; s = s->next)
                if (s->type != JSON_STRING)
                    return REFUSE(h, m->key, "holds %s, only strings are allowed",
                                  json_type_name(s));
            continue;
        }
        own->name = arena_str(t->keep, m->key);
        own->file = h->path;
        if (!own->name.p)
            return arena_full(t->keep, h->path, h->e);
        TRY(parse_tensor(h, m, own));
        t->v[t->n++] = own++;
    }
    return check_cover(h, t->v + first, t->n - first);
}

static enum err refuse_count(const char *path, struct err_text *e)
{
    return err_set(e, ERR_MODEL, "%s: more than %u tensors (LIMIT_TENSORS in config/limits.h)",
                   path, LIMIT_TENSORS);
}

/* True when more than `max` objects open directly inside the outer one. A look before the tree is
 * built, so that a bloated header is refused at the cost of reading as many entries. */
static bool too_many(struct str header, u32 max)
{
    u32 depth = 0, n = 0;
    bool quoted = false;
    for (const char *p = header.p, *end = p + header.n; p < end; p++) {
        if (quoted && *p == '\\')
            p++;
        else if (*p == '"')
            quoted = !quoted;
        else if (!quoted && (*p == '{' || *p == '['))
            n += ++depth == 2;
        else if (!quoted && (*p == '}' || *p == ']'))
            depth--;
        if (n > max)
            return true;
    }
    return false;
}

enum err safetensors_parse(struct tensors *t, struct arena *scratch, struct str file,
                           const char *path, struct err_text *e)
{
    if (file.n < 8)
        return err_set(e, ERR_MODEL, "%s has %zu bytes; the header length alone takes 8", path,
                       file.n);
    u64 n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | (u8)file.p[i];
    if (n > LIMIT_SAFETENSORS_HEADER_BYTES)
        return err_set(e, ERR_MODEL, "%s: header length %llu is above the limit of %u", path,
                       (unsigned long long)n, LIMIT_SAFETENSORS_HEADER_BYTES);
    if (n > file.n - 8)
        return err_set(e, ERR_MODEL, "%s: header length %llu is longer than the file (%zu bytes)",
                       path, (unsigned long long)n, file.n);
    struct header h = {path, {file.p + 8 + n, file.n - 8 - (size_t)n}, e};
    struct str text = {file.p + 8, (size_t)n};
    if (too_many(text, LIMIT_TENSORS - t->n + 1)) /* one more is __metadata__ */
        return refuse_count(path, e);
    size_t mark = scratch->used_bytes;
    const struct json *root;
    enum err r = json_parse(scratch, text, path, ERR_MODEL, &root, e);
    if (r == ERR_OK && root->type != JSON_OBJECT)
        r = err_set(e, ERR_MODEL, "%s: the header is %s, an object is expected", path,
                    json_type_name(root));
    u32 metadata = r == ERR_OK && json_get(root, "__metadata__") != NULL;
    if (r == ERR_OK && root->n - metadata > LIMIT_TENSORS - t->n)
        r = refuse_count(path, e);
    if (r == ERR_OK)
        r = add_tensors(t, &h, root);
    arena_reset(scratch, mark);
    return r;
}

/* --- the set --------------------------------------------------------------------------------- */

static u32 *slot_of(const struct tensors *t, struct str name)
{
    size_t at = str_hash(name) & (t->slots - 1);
    while (t->table[at] && !str_eq(t->v[t->table[at] - 1]->name, name))
        at = (at + 1) & (t->slots - 1);
    return &t->table[at];
}

enum err tensors_index(struct tensors *t, struct err_text *e)
{
    t->slots = 4;
    while (t->slots < 2 * (size_t)t->n)
        t->slots *= 2;
    t->table = ARENA_NEW(t->scratch, u32, t->slots);
    if (!t->table)
        return arena_full(t->scratch, "tensor index", e);
    for (u32 i = 0; i < t->n; i++) {
        u32 *slot = slot_of(t, t->v[i]->name);
        if (*slot)
            return err_set(e, ERR_MODEL, "tensor \"%.*s\" stands in %s and in %s",
                           STR_ARG(t->v[i]->name), t->v[*slot - 1]->file, t->v[i]->file);
        *slot = i + 1;
    }
    return ERR_OK;
}

const struct tensor *tensors_find(const struct tensors *t, const char *name)
{
    u32 at = *slot_of(t, str_of(name));
    return at ? t->v[at - 1] : NULL;
}

const struct tensor *tensors_take(struct tensors *t, const char *name)
{
    u32 at = *slot_of(t, str_of(name));
    if (!at)
        return NULL;
    t->used[at - 1] = true;
    return t->v[at - 1];
}
