#include "core/base/json.h"

#include "config/limits.h"
#include "core/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct parser {
    struct arena *a;
    const char *p, *end, *start;
    const char *source;
    enum err code;
    u32 nodes;
    struct err_text *e;
};

/* A limit, as text. */
#define AS_TEXT(x) #x
#define NUMBER(limit) AS_TEXT(limit)

static enum err bad(struct parser *s, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *q = s->start; q < s->p; q++) {
        column = *q == '\n' ? 1 : column + 1;
        line += *q == '\n';
    }
    return err_set(s->e, s->code, "%s: line %zu, column %zu: %s", s->source, line, column, what);
}

static void skip_space(struct parser *s)
{
    while (s->p < s->end && json_is_blank(*s->p))
        s->p++;
}

static bool hex4(const char *p, u32 *out)
{
    u32 v = 0;
    for (int i = 0; i < 4; i++) {
        u32 c = (u8)p[i], digit;
        if (c - '0' <= 9)
            digit = c - '0';
        else if ((c | 32) - 'a' <= 5)
            digit = (c | 32) - 'a' + 10;
        else
            return false;
        v = v << 4 | digit;
    }
    *out = v;
    return true;
}

/* \uXXXX at s->p (after the u), with its low half when it is a surrogate. */
static enum err unicode_escape(struct parser *s, u32 *cp)
{
    if (s->end - s->p < 4 || !hex4(s->p, cp))
        return bad(s, "\\u needs four hexadecimal digits");
    s->p += 4;
    if (*cp < 0xd800 || *cp > 0xdfff)
        return ERR_OK;
    u32 low;
    if (*cp > 0xdbff || s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u' ||
        !hex4(s->p + 2, &low) || low < 0xdc00 || low > 0xdfff) {
        char text[128];
        snprintf(text, sizeof text,
                 "\\u%04x is half of a surrogate pair: the text was cut inside a character (an "
                 "emoji?); send both halves or none",
                 *cp);
        s->p -= 6; /* where the escape stands */
        return bad(s, text);
    }
    s->p += 6;
    *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
    return ERR_OK;
}

static enum err escape(struct parser *s, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end)
        return bad(s, "text ends inside a string");
    char c = *s->p++;
    if (c == 'u') {
        u32 cp;
        TRY(unicode_escape(s, &cp));
        *out += utf8_encode(cp, *out);
        return ERR_OK;
    }
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit)
        return bad(s, "unknown escape in a string");
    *(*out)++ = to[hit - from];
    return ERR_OK;
}

static enum err string(struct parser *s, struct str *out)
{
    const char *q = ++s->p; /* find the end first: unescaping never makes a string longer */
    bool plain = true;      /* printable ASCII without escapes, which is nearly all there is */
    for (; q < s->end && *q != '"'; q++) {
        plain &= (u8)*q >= 0x20 && (u8)*q < 0x80 && *q != '\\';
        q += *q == '\\';
    }
    if (q >= s->end)
        return bad(s, "string without an end");
    char *text = arena_alloc(s->a, (size_t)(q - s->p) + 1, 1), *t = text;
    if (!text)
        return arena_full(s->a, s->source, s->e);
    if (plain) {
        memcpy(t, s->p, (size_t)(q - s->p));
        t += q - s->p;
        s->p = q;
    }
    while (s->p < q) {
        u8 c = (u8)*s->p;
        if (c == '\\') {
            s->p++;
            TRY(escape(s, &t));
        } else if (c < 0x20) {
            return bad(s, "control character in a string");
        } else if (c < 0x80) {
            *t++ = *s->p++;
        } else {
            u32 cp, n = utf8_decode(s->p, (size_t)(q - s->p), &cp);
            if (n == 0)
                return bad(s, "not UTF-8");
            memcpy(t, s->p, n);
            t += n;
            s->p += n;
        }
    }
    s->p = q + 1;
    *out = (struct str){text, (size_t)(t - text)};
    return ERR_OK;
}

static bool digits(struct parser *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static bool not_finite(struct parser *s)
{
    const struct str rest = {s->p, (size_t)(s->end - s->p)}, infinity = STR("Infinity"),
                     nan = STR("NaN");
    const size_t n = str_starts(rest, infinity) ? infinity.n : str_starts(rest, nan) ? nan.n : 0;
    s->p += n;
    return n;
}

static enum err number(struct parser *s, struct str *out)
{
    const char *from = s->p;
    if (*s->p == '-')
        s->p++;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!digits(s) && !(s->code == ERR_MODEL && not_finite(s)))
        return bad(s, "not a JSON value");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!digits(s))
            return bad(s, "number needs a digit after the point");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!digits(s))
            return bad(s, "number needs a digit in its exponent");
    }
    *out = arena_str(s->a, (struct str){from, (size_t)(s->p - from)});
    return out->p ? ERR_OK : arena_full(s->a, s->source, s->e);
}

static enum err word(struct parser *s, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0)
        return bad(s, "not a JSON value");
    s->p += n;
    return ERR_OK;
}

static enum err value(struct parser *s, u32 depth, struct json *v);

/* Keys are compared by an open-addressed table of their hashes, so that a hostile object with very
 * many keys costs no more than its length. */
static enum err refuse_duplicates(struct parser *s, const struct json *object)
{
    if (object->n < 2)
        return ERR_OK;
    size_t mark = s->a->used_bytes, slots = 4;
    while (slots < 2 * (size_t)object->n)
        slots *= 2;
    const struct json **table = ARENA_NEW(s->a, const struct json *, slots);
    if (!table)
        return arena_full(s->a, s->source, s->e);
    for (const struct json *m = object->child; m; m = m->next) {
        size_t at = str_hash(m->key) & (slots - 1);
        for (; table[at]; at = (at + 1) & (slots - 1))
            if (str_eq(table[at]->key, m->key)) {
                char text[128];
                snprintf(text, sizeof text, "key \"%.*s\" stands twice in one object",
                         (int)MIN(m->key.n, (size_t)64), m->key.p);
                return bad(s, text);
            }
        table[at] = m;
    }
    arena_reset(s->a, mark);
    return ERR_OK;
}

/* Members of an object or elements of an array; s->p is behind the opening bracket. */
static enum err children(struct parser *s, u32 depth, struct json *v)
{
    bool object = v->type == JSON_OBJECT;
    char close = object ? '}' : ']';
    const struct json **link = &v->child;
    skip_space(s);
    if (s->p < s->end && *s->p == close) {
        s->p++;
        return ERR_OK;
    }
    for (;;) {
        struct json *m = ARENA_NEW(s->a, struct json, 1);
        if (!m)
            return arena_full(s->a, s->source, s->e);
        skip_space(s);
        if (object) {
            if (s->p == s->end || *s->p != '"')
                return bad(s, "an object needs a key in quotes here");
            TRY(string(s, &m->key));
            skip_space(s);
            if (s->p == s->end || *s->p != ':')
                return bad(s, "':' is missing behind a key");
            s->p++;
        }
        TRY(value(s, depth + 1, m));
        *link = m;
        link = &m->next;
        v->n++;
        skip_space(s);
        if (s->p < s->end && *s->p == ',') {
            s->p++;
            continue;
        }
        if (s->p == s->end || *s->p != close)
            return bad(s, object ? "',' or '}' is missing" : "',' or ']' is missing");
        s->p++;
        return object ? refuse_duplicates(s, v) : ERR_OK;
    }
}

static enum err value(struct parser *s, u32 depth, struct json *v)
{
    if (depth > LIMIT_JSON_DEPTH)
        return bad(s, "nested deeper than " NUMBER(LIMIT_JSON_DEPTH) " levels");
    if (++s->nodes > LIMIT_JSON_NODES)
        return bad(s, "more than " NUMBER(LIMIT_JSON_NODES) " values");
    skip_space(s);
    if (s->p == s->end)
        return bad(s, "text ends where a value should stand");
    switch (*s->p) {
    case '{':
    case '[':
        v->type = *s->p++ == '{' ? JSON_OBJECT : JSON_ARRAY;
        return children(s, depth, v);
    case '"':
        v->type = JSON_STRING;
        return string(s, &v->text);
    case 't':
        v->type = JSON_TRUE;
        return word(s, "true");
    case 'f':
        v->type = JSON_FALSE;
        return word(s, "false");
    case 'n':
        v->type = JSON_NULL;
        return word(s, "null");
    default:
        v->type = JSON_NUMBER;
        return number(s, &v->text);
    }
}

enum err json_parse(struct arena *a, struct str text, const char *source, enum err code,
                    const struct json **out, struct err_text *e)
{
    struct parser s = {.a = a,
                       .p = text.p,
                       .start = text.p,
                       .end = text.p + text.n,
                       .source = source,
                       .code = code,
                       .e = e};
    if (str_starts(text, STR("\xef\xbb\xbf"))) /* a BOM, which RFC 8259 lets readers overlook */
        s.start = s.p += 3;
    struct json *root = ARENA_NEW(a, struct json, 1);
    if (!root)
        return arena_full(a, source, e);
    TRY(value(&s, 0, root));
    skip_space(&s);
    if (s.p != s.end)
        return bad(&s, "text goes on behind the value");
    *out = root;
    return ERR_OK;
}

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->child; m; m = m->next)
        if (str_is(m->key, key))
            return m;
    return NULL;
}

const struct json *json_find(const struct json *v, struct str pointer)
{
    while (v && pointer.n) {
        const struct json *m = v->type == JSON_OBJECT && pointer.p[0] == '/' ? v->child : NULL;
        const char *end = memchr(pointer.p + 1, '/', pointer.n - 1);
        size_t n = end ? (size_t)(end - pointer.p) : pointer.n;
        while (m && !str_eq(m->key, (struct str){pointer.p + 1, n - 1}))
            m = m->next;
        v = m;
        pointer = (struct str){pointer.p + n, pointer.n - n};
    }
    return v;
}

bool json_u64(const struct json *v, u64 *out)
{
    if (!v || v->type != JSON_NUMBER)
        return false;
    u64 r = 0;
    for (size_t i = 0; i < v->text.n; i++) {
        u32 digit = (u32)(u8)v->text.p[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(r, 10, &r) || __builtin_add_overflow(r, digit, &r))
            return false;
    }
    *out = r;
    return true;
}

bool json_i64(const struct json *v, i64 *out)
{
    if (!v || v->type != JSON_NUMBER)
        return false;
    bool negative = v->text.p[0] == '-';
    struct json abs = *v;
    abs.text.p += negative;
    abs.text.n -= negative;
    u64 r;
    if (!json_u64(&abs, &r) || r > (u64)INT64_MAX + negative)
        return false;
    *out = negative ? (i64)(0 - r) : (i64)r;
    return true;
}

bool json_f64(const struct json *v, double *out)
{
    if (!v || v->type != JSON_NUMBER)
        return false;
    *out = strtod(v->text.p, NULL); /* the text ends in a NUL: arena_str */
    return isfinite(*out);
}

const char *json_type_name(const struct json *v)
{
    static const char *const names[] = {"null",     "false",    "true",     "a number",
                                        "a string", "an array", "an object"};
    return v ? names[v->type] : "missing";
}

/* --- writing ------------------------------------------------------------------------------ */

struct json_out json_out_over(char *p, size_t cap)
{
    return (struct json_out){.p = p, .cap = cap};
}

static void put(struct json_out *o, const char *p, size_t n)
{
    if (o->full || n > o->cap - o->n) {
        o->full = true;
        return;
    }
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

static void separate(struct json_out *o)
{
    if (o->comma)
        put(o, ",", 1);
    o->comma = true;
}

void json_open(struct json_out *o, char bracket)
{
    separate(o);
    put(o, &bracket, 1);
    o->comma = false;
}

void json_close(struct json_out *o, char bracket)
{
    put(o, &bracket, 1);
    o->comma = true;
}

static bool is_plain(u8 c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static void escaped(struct json_out *o, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t plain = i; /* most of what is written, and some of it is long: at once */
        while (i < s.n && is_plain((u8)s.p[i]))
            i++;
        put(o, s.p + plain, i - plain);
        if (i == s.n)
            break;
        u8 c = (u8)s.p[i];
        u32 cp, n = utf8_decode(s.p + i, s.n - i, &cp);
        if (n == 0) {
            put(o, "\xef\xbf\xbd", 3);
            n = utf8_bad_length(s.p + i, s.n - i);
        } else if (c == '"' || c == '\\') {
            put(o, (char[]){'\\', (char)c}, 2);
        } else if (c == '\n') {
            put(o, "\\n", 2);
        } else if (c < 0x20) {
            char text[8];
            put(o, text, (size_t)snprintf(text, sizeof text, "\\u%04x", c));
        } else {
            put(o, s.p + i, n);
        }
        i += n;
    }
}

static void quoted(struct json_out *o, struct str s)
{
    put(o, "\"", 1);
    escaped(o, s);
    put(o, "\"", 1);
}

void json_key(struct json_out *o, const char *key)
{
    json_key_str(o, str_of(key));
}

void json_key_str(struct json_out *o, struct str key)
{
    separate(o);
    quoted(o, key);
    put(o, ":", 1);
    o->comma = false;
}

void json_put_str(struct json_out *o, struct str s)
{
    separate(o);
    quoted(o, s);
}

void json_open_str(struct json_out *o)
{
    separate(o);
    put(o, "\"", 1);
}

void json_put_piece(struct json_out *o, struct str s)
{
    escaped(o, s);
}

void json_close_str(struct json_out *o)
{
    put(o, "\"", 1);
}

void json_put_number(struct json_out *o, struct str text)
{
    separate(o);
    put(o, text.p, text.n);
}

static void put_digits(struct json_out *o, u64 v)
{
    char text[20], *p = text + sizeof text;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    put(o, p, (size_t)(text + sizeof text - p));
}

void json_put_u64(struct json_out *o, u64 v)
{
    separate(o);
    put_digits(o, v);
}

void json_put_i64(struct json_out *o, i64 v)
{
    separate(o);
    if (v < 0)
        put(o, "-", 1);
    put_digits(o, v < 0 ? 0 - (u64)v : (u64)v);
}

void json_put_f64(struct json_out *o, double v, int significant)
{
    char text[40];
    separate(o);
    if (isfinite(v))
        put(o, text, (size_t)snprintf(text, sizeof text, "%.*g", significant, v));
    else
        put(o, "null", 4);
}

/* Nine digits tell any f32 from its neighbours. Whoever writes many of them has no time for printf,
 * which is left with what is very large or small. */
void json_put_f32(struct json_out *o, float v)
{
    static const double tens[] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                  1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    char text[2 + 5 + 9 + 1], *p = text;
    double a = fabs((double)v);
    int point = 0; /* digits before it */
    if (!(a < 1e8) || (a != 0 && a < 1e-4)) {
        json_put_f64(o, v, 9);
        return;
    }
    while (a >= tens[MAX(point, 0)] && a >= 1)
        point++;
    while (a != 0 && a < 1 && a * tens[1 - point] < 1)
        point--;
    u64 digits = (u64)(a * tens[9 - point] + 0.5);
    if (digits >= 1000000000) {
        digits /= 10;
        point++;
    }
    if (signbit(v))
        *p++ = '-';
    if (point <= 0)
        *p++ = '0';
    for (int i = 0; i < 9; i++) {
        if (i == MAX(point, 0)) {
            *p++ = '.';
            for (int zero = point; zero < 0; zero++)
                *p++ = '0';
            if (digits == 0 && i > 0)
                break;
        }
        *p++ = (char)('0' + digits / 100000000);
        digits = digits % 100000000 * 10;
        if (digits == 0 && i >= MAX(point, 0))
            break;
    }
    if (p[-1] == '.')
        *p++ = '0';
    separate(o);
    put(o, text, (size_t)(p - text));
}

void json_put_bool(struct json_out *o, bool v)
{
    separate(o);
    put(o, v ? "true" : "false", v ? 4 : 5);
}

void json_put_null(struct json_out *o)
{
    separate(o);
    put(o, "null", 4);
}

/* Depth is that of what was parsed, or made: LIMIT_JSON_DEPTH and a few. */
void json_put_tree(struct json_out *o, const struct json *v)
{
    if (v->type == JSON_STRING) {
        json_put_str(o, v->text);
        return;
    }
    if (v->type < JSON_ARRAY) {
        static const char *const words[] = {"null", "false", "true"};
        json_put_number(o, v->type == JSON_NUMBER ? v->text : str_of(words[v->type]));
        return;
    }
    json_open(o, v->type == JSON_ARRAY ? '[' : '{');
    for (const struct json *m = v->child; m; m = m->next) {
        if (v->type == JSON_OBJECT)
            json_key_str(o, m->key);
        json_put_tree(o, m);
    }
    json_close(o, v->type == JSON_ARRAY ? ']' : '}');
}

void json_pair_text(struct json_out *o, const char *key, const char *v)
{
    json_key(o, key);
    json_put_str(o, str_of(v));
}

void json_pair_u64(struct json_out *o, const char *key, u64 v)
{
    json_key(o, key);
    json_put_u64(o, v);
}

void json_pair_null(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_put_null(o);
}

/* --- making --------------------------------------------------------------------------------- */

struct json *json_make(struct arena *a, enum json_type type, struct str text)
{
    struct json *v = ARENA_NEW(a, struct json, 1);
    if (v)
        *v = (struct json){.type = type, .text = text};
    return v;
}

struct json_tree json_grow(struct json *v)
{
    struct json_tree t = {.v = v, .full = !v};
    if (v)
        t.end = &v->child;
    return t;
}

void json_append(struct json_tree *t, struct str key, struct json *child)
{
    t->full |= !child;
    if (t->full)
        return;
    child->key = key;
    child->next = NULL;
    *t->end = child;
    t->end = &child->next;
    t->v->n++;
}
