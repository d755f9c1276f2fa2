/* libFuzzer: what the JSON parser takes, it writes back so that it reads the same; what it refuses,
 * it refuses with a message; and it reads nothing outside the text.
 */
#include "core/base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static void put(struct json_out *o, const struct json *v)
{
    if (v->type == JSON_STRING) {
        json_put_str(o, v->text);
    } else if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) {
        bool object = v->type == JSON_OBJECT;
        json_open(o, object ? '{' : '[');
        for (const struct json *c = v->child; c; c = c->next) {
            if (object)
                json_key_str(o, c->key);
            put(o, c);
        }
        json_close(o, object ? '}' : ']');
    } else if (v->type == JSON_NUMBER) {
        double d;
        i64 i;
        u64 u;
        if (json_u64(v, &u))
            json_put_u64(o, u);
        else if (json_i64(v, &i))
            json_put_i64(o, i);
        else if (json_f64(v, &d))
            json_put_f64(o, d, 17);
        else
            json_put_null(o);
    } else if (v->type == JSON_NULL) {
        json_put_null(o);
    } else {
        json_put_bool(o, v->type == JSON_TRUE);
    }
}

static bool same(const struct json *a, const struct json *b)
{
    double x, y;
    if (a->type == JSON_NUMBER && !json_f64(a, &x)) /* too large: written as null */
        return b->type == JSON_NULL;
    if (a->type != b->type || a->n != b->n || a->key.n != b->key.n ||
        memcmp(a->key.p ? a->key.p : "", b->key.p ? b->key.p : "", a->key.n) != 0)
        return false;
    if (a->type == JSON_NUMBER)
        return json_f64(a, &x) && json_f64(b, &y) && x == y;
    if (a->type == JSON_STRING)
        return a->text.n == b->text.n && memcmp(a->text.p, b->text.p, a->text.n) == 0;
    const struct json *c = a->child, *d = b->child;
    for (; c && d; c = c->next, d = d->next)
        if (!same(c, d))
            return false;
    return !c && !d;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct arena a;
    struct err_text e = {0};
    const struct json *v, *again;
    if (!a.base && arena_open(&a, "fuzz", (size_t)256 << 20, false, &e) != ERR_OK)
        abort();
    char *text = malloc(n + 1), *out = malloc(n * 8 + 64);
    memcpy(text, data, n);
    enum err code = json_parse(&a, (struct str){text, n}, "the text", ERR_REQUEST, &v, &e);
    ASSERT(code == ERR_OK || e.text[0]);
    if (code == ERR_OK) {
        struct json_out o = json_out_over(out, n * 8 + 64);
        memset(text, 0, n); /* nothing points into it */
        put(&o, v);
        ASSERT(!o.full);
        code = json_parse(&a, (struct str){out, o.n}, "what was written", ERR_REQUEST, &again, &e);
        ASSERT(code == ERR_OK && same(v, again));
    }
    arena_reset(&a, 0);
    free(text);
    free(out);
    return 0;
}
