#include "core/main/kernel_arg.h"

#include "config/value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    u32 bytes;
    i64 min;
    u64 max; /* of whole numbers */
} types[] = {
    [KERNEL_F16] = {"f16", 2, 0, 0},
    [KERNEL_BF16] = {"bf16", 2, 0, 0},
    [KERNEL_F32] = {"f32", 4, 0, 0},
    [KERNEL_F64] = {"f64", 8, 0, 0},
    [KERNEL_I8] = {"i8", 1, INT8_MIN, INT8_MAX},
    [KERNEL_I16] = {"i16", 2, INT16_MIN, INT16_MAX},
    [KERNEL_I32] = {"i32", 4, INT32_MIN, INT32_MAX},
    [KERNEL_I64] = {"i64", 8, INT64_MIN, INT64_MAX},
    [KERNEL_U8] = {"u8", 1, 0, UINT8_MAX},
    [KERNEL_U16] = {"u16", 2, 0, UINT16_MAX},
    [KERNEL_U32] = {"u32", 4, 0, UINT32_MAX},
    [KERNEL_U64] = {"u64", 8, 0, UINT64_MAX},
    [KERNEL_BUFFER] = {"pointer", 8, 0, 0},
};

const char *kernel_type_name(enum kernel_type t)
{
    return types[t].name;
}

bool kernel_type_parse(struct str name, enum kernel_type *out, u32 *bytes)
{
    for (u32 t = 0; t < KERNEL_BUFFER; t++)
        if (str_is(name, types[t].name)) {
            *out = (enum kernel_type)t;
            *bytes = types[t].bytes;
            return true;
        }
    return false;
}

/* --- values ----------------------------------------------------------------------------------- */

static u16 to_bf16(float f)
{
    u32 bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f))
        return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static float from_bf16(u16 h)
{
    u32 bits = (u32)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* False when a finite number becomes infinite in its type. */
static bool store_float(struct kernel_arg *a, double v)
{
    _Float16 half = (_Float16)v;
    float single = (float)v;
    u16 brain = to_bf16(single);
    switch (a->type) {
    case KERNEL_F16:
        memcpy(&a->value, &half, sizeof half);
        return !isinf((float)half) || isinf(v);
    case KERNEL_BF16:
        memcpy(&a->value, &brain, sizeof brain);
        return !isinf(from_bf16(brain)) || isinf(v);
    case KERNEL_F32:
        memcpy(&a->value, &single, sizeof single);
        return !isinf(single) || isinf(v);
    default:
        memcpy(&a->value, &v, sizeof v);
        return true;
    }
}

static bool store_whole(struct kernel_arg *a, const char *text)
{
    char *end;
    errno = 0;
    bool minus = text[0] == '-';
    bool hex = text[minus] == '0' && (text[minus + 1] | 0x20) == 'x';
    u64 v = strtoull(text + minus, &end, hex ? 16 : 10);
    char first = text[minus];
    if (first < '0' || first > '9' || *end || errno)
        return false;
    /* the most negative number has no positive twin, so both ends are compared unsigned */
    if (v > (minus ? (u64)0 - (u64)types[a->type].min : types[a->type].max))
        return false;
    v = minus ? (u64)0 - v : v;
    memcpy(&a->value, &v, a->bytes);
    return true;
}

static bool store(struct kernel_arg *a, const char *text)
{
    char *end;
    if (a->type > KERNEL_F64)
        return store_whole(a, text);
    double v = strtod(text, &end);
    return end != text && *end == 0 && text[0] != ' ' && store_float(a, v);
}

enum err kernel_arg_value(const char *text, struct kernel_arg *out, struct err_text *e)
{
    const char *colon = strchr(text, ':');
    *out = (struct kernel_arg){.text = text};
    if (!colon ||
        !kernel_type_parse((struct str){text, (size_t)(colon - text)}, &out->type, &out->bytes))
        return err_set(e, ERR_USAGE,
                       "--arg %s: it is TYPE:VALUE, such as f32:1.5; types are f16 bf16 f32 f64 i8 "
                       "i16 i32 i64 u8 u16 u32 u64",
                       text);
    if (!store(out, colon + 1))
        return err_set(e, ERR_USAGE, "--arg %s: '%s' is no %s", text, colon + 1,
                       kernel_type_name(out->type));
    return ERR_OK;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static bool put_path(char out[LIMIT_PATH_BYTES], const char *p, size_t n)
{
    if (n == 0 || n >= LIMIT_PATH_BYTES)
        return false;
    memcpy(out, p, n);
    out[n] = 0;
    return true;
}

enum err kernel_arg_buffer(const char *text, struct kernel_arg *out, struct err_text *e)
{
    *out = (struct kernel_arg){.type = KERNEL_BUFFER, .bytes = 8, .text = text};
    const char *rest = strchr(text, ':');
    struct str kind = {text, rest ? (size_t)(rest - text) : 0};
    const char *second = rest ? strchr(rest + 1, ':') : NULL;
    size_t n = !rest ? 0 : second ? (size_t)(second - rest - 1) : strlen(rest + 1);
    bool good = rest;
    out->in = str_is(kind, "in") || str_is(kind, "inout");
    out->out = str_is(kind, "out") || str_is(kind, "inout");
    if (good && str_is(kind, "in"))
        good = put_path(out->in_path, rest + 1, strlen(rest + 1)); /* may hold colons */
    else if (good && str_is(kind, "inout"))
        good = put_path(out->in_path, rest + 1, n);
    else if (good && str_is(kind, "out"))
        good = value_size((struct str){rest + 1, n}, &out->buffer_bytes) && out->buffer_bytes > 0;
    else
        good = false;
    if (good && out->out && second)
        good = put_path(out->out_path, second + 1, strlen(second + 1));
    if (!good)
        return err_set(e, ERR_USAGE,
                       "--buf %s: it is in:FILE, out:BYTES, out:BYTES:FILE, inout:FILE or "
                       "inout:FILE:FILE; BYTES such as 4096 or 4 KiB, at least 1",
                       text);
    if (out->buffer_bytes > LIMIT_KERNEL_BUFFER_BYTES)
        return err_set(e, ERR_USAGE, "--buf %s: the limit is %zu bytes", text,
                       LIMIT_KERNEL_BUFFER_BYTES);
    return ERR_OK;
}

/* --- sizes and printing ----------------------------------------------------------------------- */

enum err kernel_arg_size(const char *flag, const char *text, u32 out[3], struct err_text *e)
{
    const char *p = text;
    u32 n = 0;
    out[0] = out[1] = out[2] = 1;
    for (;;) {
        size_t digits = strspn(p, "0123456789");
        u64 v = digits > 0 && digits <= 10 ? strtoull(p, NULL, 10) : 0;
        if (v == 0 || v > INT32_MAX || n == 3)
            break;
        out[n++] = (u32)v;
        p += digits;
        if (*p == 0)
            return ERR_OK;
        if (*p++ != ',')
            break;
    }
    return err_set(e, ERR_USAGE, "%s '%s': it is X, X,Y or X,Y,Z, whole numbers from 1 on", flag,
                   text);
}

void kernel_arg_print(enum kernel_type t, const void *p, char out[32])
{
    u64 bits = 0;
    _Float16 half;
    float single;
    double wide;
    ASSERT(t < KERNEL_BUFFER);
    memcpy(&bits, p, types[t].bytes);
    memcpy(&half, &bits, sizeof half);
    memcpy(&single, &bits, sizeof single);
    memcpy(&wide, &bits, sizeof wide);
    u32 unused = 64 - 8 * types[t].bytes; /* sign: shift it up and back down */
    if (t == KERNEL_F16)
        snprintf(out, 32, "%.5g", (double)half);
    else if (t == KERNEL_BF16)
        snprintf(out, 32, "%.4g", (double)from_bf16((u16)bits));
    else if (t == KERNEL_F32)
        snprintf(out, 32, "%.9g", (double)single);
    else if (t == KERNEL_F64)
        snprintf(out, 32, "%.17g", wide);
    else if (types[t].min < 0)
        snprintf(out, 32, "%lld", (long long)((i64)(bits << unused) >> unused));
    else
        snprintf(out, 32, "%llu", (unsigned long long)bits);
}
