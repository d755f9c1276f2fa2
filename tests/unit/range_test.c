#include "core/engine/grammar.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct grammar g;

static bool compiles(const char *schema)
{
    const struct json *v = NULL;
    struct err_text e = {0};
    return json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, &e) == ERR_OK &&
           grammar_compile(&g, v, &e) == ERR_OK;
}

/* Bounds in hundredths; NO: none. */
enum { NO = -1000000, WHOLE_MAX = 3, FRACTION_MAX = 3 };
static struct bounds {
    bool whole, low_open, high_open;
    i64 low, high;
} b;

struct text {
    char p[16];
    u32 n, whole, fraction;
    i64 value; /* without its sign, as digits */
    bool point;
};

static bool is_between(const struct text *t)
{
    i64 value = t->value * 10000;
    for (u32 i = 0; i < t->fraction; i++)
        value /= 10;
    value = t->p[0] == '-' ? -value : value; /* in ten thousandths */
    return (b.low == NO || value > b.low * 100 || (value == b.low * 100 && !b.low_open)) &&
           (b.high == NO || value < b.high * 100 || (value == b.high * 100 && !b.high_open));
}

static u32 wrong;

static void expect(const struct text *t, bool is)
{
    if (!is && wrong++ < 5)
        printf("between %lld and %lld, %d %d %d: %s\n", (long long)b.low, (long long)b.high,
               b.whole, b.low_open, b.high_open, t->p);
}

/* All that can follow: is each text read as one between the bounds is, and each beginning as one
 * that some such text has? Returns whether there is one. */
static bool walk(struct text t)
{
    static const char digits[] = "0129";
    bool any = false, negative_zero = t.p[0] == '-' && b.low != NO && b.low >= 0;
    bool whole = t.whole && (!t.point || t.fraction);
    bool fits = whole && is_between(&t) && !negative_zero;
    t.p[t.n] = 0;
    int how = unit_reads(&g, t.p);
    expect(&t, (how == 1) == fits);
    any = fits;
    for (const char *d = digits; *d; d++) {
        struct text next = t;
        bool zero = t.whole == 1 && t.value == 0 && !t.point;
        if (zero || (t.point ? t.fraction == FRACTION_MAX : t.whole == WHOLE_MAX))
            continue;
        next.p[next.n++] = *d;
        next.value = next.value * 10 + (*d - '0');
        next.whole += !t.point;
        next.fraction += t.point;
        any = walk(next) || any;
    }
    if (!b.whole && t.whole && !t.point) {
        struct text next = t;
        next.p[next.n++] = '.';
        next.point = true;
        any = walk(next) || any;
    }
    bool longer = (b.low == NO || b.high == NO) && !t.point; /* than what is tried here */
    if (t.n && t.fraction < FRACTION_MAX && (any || !longer))
        expect(&t, (how >= 0) == any);
    return any;
}

static void put_bound(char *schema, size_t room, const char *name, bool open, i64 value)
{
    char text[64];
    if (value == NO)
        return;
    snprintf(text, sizeof text, ", \"%s%s\": %s%lld.%02lld", open ? "exclusiveM" : "m", name,
             value < 0 ? "-" : "", (long long)(value < 0 ? -value : value) / 100,
             (long long)(value < 0 ? -value : value) % 100);
    size_t n = strlen(schema);
    snprintf(schema + n, room - n, "%s", text);
}

void range_is_exact(void)
{
    static const i64 values[] = {NO, -12900, -102, -1, 0, 2, 100, 129, 1000};
    u32 tried = 0;
    for (u32 i = 0; i < COUNTOF(values) * COUNTOF(values) * 8; i++) {
        char schema[256];
        u32 pair = i / 8;
        b = (struct bounds){i & 1, i >> 1 & 1, i >> 2 & 1, values[pair / COUNTOF(values)],
                            values[pair % COUNTOF(values)]};
        if ((b.low == NO && (b.high == NO || b.low_open)) || (b.high == NO && b.high_open))
            continue;
        snprintf(schema, sizeof schema, "{\"type\": \"%s\"", b.whole ? "integer" : "number");
        put_bound(schema, sizeof schema, "inimum", b.low_open, b.low);
        put_bound(schema, sizeof schema, "aximum", b.high_open, b.high);
        snprintf(schema + strlen(schema), 2, "}");
        if (!compiles(schema)) {
            CHECK(b.low != NO && b.high != NO && b.low >= b.high - 100);
            continue;
        }
        bool any = walk((struct text){.p = ""});
        any = walk((struct text){.p = "-", .n = 1}) || any;
        CHECK(any);
        tried++;
    }
    CHECK(tried > 200 && wrong == 0);
}

void range_knows_numbers_of_any_form(void)
{
    static const struct {
        const char *schema, *fits[4], *none[4];
    } cases[] = {
        {"{\"type\": \"integer\", \"minimum\": -9223372036854775808, \"maximum\": 1e30}",
         {"0", "-999999999999999", "999999999999999"},
         {"1.0", "1000000000000000"}},
        {"{\"type\": \"integer\", \"minimum\": 1.2e1, \"maximum\": 2005e-2}",
         {"12", "20"},
         {"11", "21", "2e1", "1.5e1"}},
        {"{\"type\": \"integer\", \"minimum\": 0}", {"0", "70"}, {"-0", "-1"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0}",
         {"0.00000000000001", "1", "99999999999999.9", "999999999999999"},
         {"0", "0.0", "0.00000000000000", "-1"}},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 0e5, \"exclusiveMaximum\": 1000e-3}",
         {"0.5", "0.99999999999999"},
         {"1", "0.999999999999999", "0.0", "5e-1"}},
        {"{\"type\": \"number\", \"minimum\": 0.1, \"maximum\": 0.10000}",
         {"0.1", "0.100"},
         {"0.11", "0.0", "1", "-0"}},
        {"{\"type\": \"number\", \"minimum\": 10000000000000, \"exclusiveMaximum\": 1e13}",
         {0},
         {0}},
        {"{\"type\": \"array\", \"items\": {\"maximum\": -5}, \"maxItems\": 2}",
         {"[-5,-5.0]", "[ -123456 ]"},
         {"[-4", "[5", "[-0"}},
        {"{\"minimum\": 0, \"maximum\": 1e400}", {"7.5"}, {"-0"}},
        {"{\"exclusiveMinimum\": -1e400}", {"0", "-0.0", "-7.5"}, {"1e5"}},
    };
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        CHECK(compiles(cases[i].schema) == (cases[i].fits[0] != NULL));
        for (u32 k = 0; k < COUNTOF(cases[i].fits) && cases[i].fits[k]; k++)
            if (unit_reads(&g, cases[i].fits[k]) != 1) {
                printf("%s: %s\n", cases[i].schema, cases[i].fits[k]);
                CHECK(!"fits");
            }
        for (u32 k = 0; k < COUNTOF(cases[i].none) && cases[i].none[k]; k++)
            if (unit_reads(&g, cases[i].none[k]) == 1) {
                printf("%s: %s\n", cases[i].schema, cases[i].none[k]);
                CHECK(!"does not fit");
            }
    }
}
