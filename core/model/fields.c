#include "core/model/fields.h"

#include <stdarg.h>
#include <stdio.h>

struct fields fields_of(const struct json *root, const char *file, bool *failed, struct err_text *e)
{
    *failed = false;
    struct fields k = {.object = root, .file = file, .failed = failed, .e = e};
    if (root && root->type != JSON_OBJECT) {
        err_set(e, ERR_MODEL, "%s holds %s where an object is expected", file,
                json_type_name(root));
        *failed = true;
        k.object = NULL;
    }
    return k;
}

const struct json *fields_get(const struct fields *k, const char *key)
{
    const struct json *v = json_get(k->object, key);
    return v && v->type != JSON_NULL ? v : NULL;
}

struct fields fields_in(const struct fields *k, const char *key)
{
    struct fields in = *k;
    in.object = fields_get(k, key);
    snprintf(in.within, sizeof in.within, "%.40s%.20s.", k->within, key);
    if (in.object && in.object->type != JSON_OBJECT) {
        fields_refuse(k, key, "an object is expected");
        in.object = NULL;
    }
    return in;
}

static void describe(char *out, size_t cap, const struct json *v)
{
    if (v && v->type == JSON_STRING)
        snprintf(out, cap, "\"%.*s\"", (int)MIN(v->text.n, (size_t)100), v->text.p);
    else if (v && v->type == JSON_NUMBER)
        snprintf(out, cap, "%.*s", (int)MIN(v->text.n, (size_t)100), v->text.p);
    else
        snprintf(out, cap, "%s", json_type_name(v));
}

enum err fields_refuse(const struct fields *k, const char *key, const char *why_fmt, ...)
{
    char value[128], why[640];
    va_list args;
    va_start(args, why_fmt);
    vsnprintf(why, sizeof why, why_fmt, args);
    va_end(args);
    describe(value, sizeof value, json_get(k->object, key));
    *k->failed = true;
    return err_set(k->e, ERR_MODEL, "%s: %s%s is %s: %s", k->file, k->within, key, value, why);
}

u32 fields_u32(const struct fields *k, const char *key, u32 absent, u32 min, u32 max)
{
    const struct json *v = fields_get(k, key);
    u64 n = 0;
    if (!v && absent != KEY_U32_REQUIRED)
        return absent;
    if (json_u64(v, &n) && n >= min && n <= max)
        return (u32)n;
    fields_refuse(k, key, "an integer from %u to %u is expected", min, max);
    return MAX(min, 1);
}

double fields_f64(const struct fields *k, const char *key, double absent, double min, double max)
{
    const struct json *v = fields_get(k, key);
    double x = 0;
    if (!v && absent != KEY_REQUIRED)
        return absent;
    if (json_f64(v, &x) && x >= min && x <= max)
        return x;
    fields_refuse(k, key, "a number from %g to %g is expected", min, max);
    return min;
}

bool fields_bool(const struct fields *k, const char *key, bool absent)
{
    const struct json *v = fields_get(k, key);
    if (v && v->type != JSON_TRUE && v->type != JSON_FALSE)
        fields_refuse(k, key, "true or false is expected");
    return v ? v->type == JSON_TRUE : absent;
}

struct str fields_str(const struct fields *k, const char *key, const char *absent)
{
    const struct json *v = fields_get(k, key);
    if (!v)
        return str_of(absent);
    if (v->type == JSON_STRING)
        return v->text;
    fields_refuse(k, key, "a string is expected");
    return str_of(absent);
}
