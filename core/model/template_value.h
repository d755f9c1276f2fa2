/* Values of chat templates, as Python sees them: 16-byte tagged structs over one work memory.
 *
 * Strings are UTF-8 slices counted in characters where Python counts characters; lists and dicts
 * never change once built (the sandbox refuses it), so slices and views share memory. The work
 * memory is filled from both ends: text grows from the low end, so that `a + b` extends `a` in
 * place while it is the newest text (building a prompt piece by piece is not quadratic), objects
 * from the high end. The caller of a rendering owns the memory; nothing outlives the rendering.
 *
 * Errors stick: the first failure sets rt.failed and its sentence, every function then answers
 * undefined, and every loop stops. Limits: LIMIT_TEMPLATE_STEPS, _DEPTH, _WORK_BYTES.
 */
#ifndef ZIGCUDA_TEMPLATE_VALUE_H
#define ZIGCUDA_TEMPLATE_VALUE_H

#include "core/base/arena.h"
#include "core/base/json.h"

enum val_type {
    V_UNDEF, /* s[n]: the name that was looked up, for messages */
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* an integer beyond 64 bits from JSON, s[n]: its digits; printed, never computed */
    V_FLOAT,
    V_STR,
    V_LIST, /* items[n] */
    V_TUPLE,
    V_DICT,
    V_VIEW, /* of a dict; n: enum view_kind */
    V_RANGE,
    V_GEN,   /* a generator: used up by one pass */
    V_SPACE, /* namespace(): a dict that {% set ns.x %} writes */
    V_LOOP,
    V_MACRO,
    V_FUNC,   /* a global function */
    V_METHOD, /* bound to a value */
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct val {
    u8 type;
    bool markup; /* a string that `safe` or `escape` marked: + escapes the other side */
    u32 n;
    union {
        i64 i;
        double f;
        const char *s;
        const struct val *items;
        struct dict *dict;
        struct range *range;
        struct gen *gen;
        struct loop *loop;
        const struct macro *macro;
        const struct func *func;
        const struct bound *bound;
    };
};
_Static_assert(sizeof(struct val) == 16, "values travel in two registers");

struct pair {
    struct val key, value;
};

struct dict {
    u32 n, cap, slots;  /* slots: a power of two, or 0 while the dict is small */
    struct pair *pairs; /* in order of insertion */
    u32 *index;         /* [slots]: 1 + position in pairs, 0 is free */
};

struct range {
    i64 start, stop, step, n;
};

struct bound {
    struct val self;
    const struct func *func;
};

/* Text being written: the output, or (cap 0) a string at the low end of the work memory. */
struct sink {
    char *p;
    size_t n, cap;
};

struct rt {
    const struct template *t;
    char *lo, *hi; /* the free middle of the work memory */
    struct sink out;
    u64 bytes; /* of text handled */
    u32 steps, depth;
    u32 pos; /* offset of the node being evaluated, for messages */
    bool failed, building;
    i64 now_s;
    struct val *globals; /* [names of the template]: variables of the request, then functions */
    struct scope *scope;
    struct err_text *e;
};

/* --- failure and ceilings --- */
void rt_fail(struct rt *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void rt_limit(struct rt *r, const char *what);
void rt_too_long(struct rt *r);             /* the output is full */
bool rt_step(struct rt *r);                 /* false: over the ceiling (or failed before) */
bool rt_charge(struct rt *r, size_t bytes); /* of text looked at or written; 64 are a step */
bool rt_enter(struct rt *r);                /* one level deeper; pair with rt_leave when true */
void rt_leave(struct rt *r);
void *rt_alloc(struct rt *r, size_t n, size_t size); /* uninitialised objects, NULL: failed */

/* --- making values --- */
static inline struct val val_none(void)
{
    return (struct val){.type = V_NONE};
}
static inline struct val val_bool(bool b)
{
    return (struct val){.type = V_BOOL, .i = b};
}
static inline struct val val_int(i64 i)
{
    return (struct val){.type = V_INT, .i = i};
}
static inline struct val val_float(double f)
{
    return (struct val){.type = V_FLOAT, .f = f};
}
static inline struct val val_str(const char *s, size_t n)
{
    return (struct val){.type = V_STR, .n = (u32)n, .s = s};
}
static inline struct val val_undef(struct str name)
{
    return (struct val){.type = V_UNDEF, .n = (u32)name.n, .s = name.p};
}
static inline struct str val_text(struct val v)
{
    return (struct str){v.s, v.n};
}
static inline bool val_is_num(struct val v)
{
    return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT;
}
static inline bool val_is_seq(struct val v)
{
    return v.type == V_LIST || v.type == V_TUPLE;
}
struct val val_nothing(void); /* undefined without a name */
struct val val_list(const struct val *items, size_t n);
struct val val_tuple2(struct rt *r, struct val a, struct val b);
struct val val_json(struct rt *r, const struct json *j);
struct val val_view(struct val dict, enum view_kind kind);

/* --- dicts --- */
struct dict *dict_new(struct rt *r, u32 cap);
const struct val *dict_get(struct rt *r, const struct dict *d, struct val key); /* or NULL */
const struct val *dict_get_str(struct rt *r, const struct dict *d, struct str key);
void dict_put(struct rt *r, struct dict *d, struct val key, struct val value);
bool val_hashable(struct val v);

/* --- what Python answers --- */
const char *val_type_name(struct val v); /* "str", "list", ... */
bool val_truthy(struct val v);
bool val_eq(struct rt *r, struct val a, struct val b);
int val_cmp(struct rt *r, struct val a, struct val b); /* < 0, 0, > 0; fails on unlike types */
bool val_in(struct rt *r, struct val needle, struct val hay);
i64 val_len(struct rt *r, struct val v); /* -1: has no length, no failure set */
double val_num(struct val v);            /* of val_is_num */
struct val val_item(struct rt *r, struct val obj, struct val key);  /* obj[key] */
struct val val_attr(struct rt *r, struct val obj, struct str name); /* obj.name */
struct val val_slice(struct rt *r, struct val obj, struct val from, struct val to, struct val by);

/* --- iteration --- */
struct iter {
    struct val src;
    i64 at;
};
bool iter_open(struct rt *r, struct iter *it, struct val v); /* false: failed, not iterable */
bool iter_next(struct rt *r, struct iter *it, struct val *out);
bool val_iterable(struct val v);
struct val iter_list(struct rt *r, struct iter *it); /* what is left, as a list */
struct val val_to_list(struct rt *r, struct val v);

/* A generator: `next` makes one value from its state, false at the end or on failure. */
struct gen {
    bool (*next)(struct rt *r, struct gen *g, struct val *out);
    bool started, done;
    struct val src, arg;
    struct iter it;
    const void *def;         /* filter or test to apply */
    const struct args *args; /* as called */
    struct val seen;         /* unique: a dict of the keys */
    bool negate, by_attr;
};
struct val gen_new(struct rt *r, struct gen g);
struct val gen_over_list(struct rt *r, struct val list);

/* --- arguments of a call --- */
struct kwarg {
    struct str name;
    struct val value;
};
struct args {
    u32 n, kn;
    struct val *pos;
    struct kwarg *kw;
};

/* A callable in C. params: names separated by blanks ("old new count"), `required` of them must be
 * given; "/ " in front: no keywords. The function gets them in order, V_UNDEF with s == NULL where
 * absent (see arg_absent). variadic: takes `args` as they are. */
struct func {
    const char *name, *params;
    u8 required;
    bool variadic;
    struct val (*run)(struct rt *r, struct val self, const struct val *a, const struct args *args);
};
enum { FUNC_PARAMS_MAX = 6 };
struct val func_call(struct rt *r, const struct func *f, struct val self, const struct args *args);
bool arg_absent(struct val v);

#endif
