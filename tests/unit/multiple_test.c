/* multipleOf, held to plain arithmetic, and to its promise that no text ends up where nothing fits.
 */
#include "core/engine/grammar.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct grammar g;

static bool compiles(const char *schema, struct err_text *e)
{
    const struct json *v = NULL;
    return json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, e) == ERR_OK &&
           grammar_compile(&g, v, e) == ERR_OK;
}

/* In thousandths; NO: none. */
enum { NO = -1000000, WHOLE_MAX = 2, FRACTION_MAX = 3 };
static struct numbers {
    bool whole, low_open, high_open;
    i64 step, low, high;
} want;

static void put_number(char *schema, size_t room, const char *name, i64 value)
{
    size_t n = strlen(schema);
    i64 size = value < 0 ? -value : value;
    if (value != NO)
        snprintf(schema + n, room - n, ", \"%s\": %s%lld.%03lld", name, value < 0 ? "-" : "",
                 (long long)size / 1000, (long long)size % 1000);
}

static u32 wrong;

static bool compiles_wanted(void)
{
    char schema[256];
    struct err_text e = {0};
    snprintf(schema, sizeof schema, "{\"type\": \"%s\"", want.whole ? "integer" : "number");
    put_number(schema, sizeof schema, "multipleOf", want.step);
    put_number(schema, sizeof schema, want.low_open ? "exclusiveMinimum" : "minimum", want.low);
    put_number(schema, sizeof schema, want.high_open ? "exclusiveMaximum" : "maximum", want.high);
    size_t n = strlen(schema);
    snprintf(schema + n, sizeof schema - n, "}");
    bool some = compiles(schema, &e);
    wrong += !some && !strstr(e.text, "schema: no multiple");
    return some;
}

/* --- against all texts of few digits ---------------------------------------------------------- */

struct text {
    char p[16];
    u32 n, whole, fraction;
    i64 value; /* without its sign, as digits */
    bool point;
};

/* How many digits behind the point the step has. */
static u32 behind(void)
{
    return want.whole || want.step % 1000 == 0 ? 0
           : want.step % 100 == 0              ? 1
           : want.step % 10 == 0               ? 2
                                               : 3;
}

static bool is_wanted(const struct text *t)
{
    i64 value = t->value;
    bool negative = t->p[0] == '-';
    for (u32 i = t->fraction; i < 3; i++)
        value *= 10;
    if (!t->whole || (t->point && !t->fraction) || (t->point && want.whole) ||
        t->fraction > behind() || value % want.step ||
        (negative && want.low != NO && want.low >= 0))
        return false;
    value = negative ? -value : value;
    return (want.low == NO || value > want.low || (value == want.low && !want.low_open)) &&
           (want.high == NO || value < want.high || (value == want.high && !want.high_open));
}

static void expect(const struct text *t, bool is)
{
    if (!is && wrong++ < 5)
        printf("%lld from %lld to %lld, %d %d %d: %.*s\n", (long long)want.step,
               (long long)want.low, (long long)want.high, want.whole, want.low_open, want.high_open,
               (int)t->n, t->p);
}

/* All that can follow, whether or not the grammar (s->n 0: not any more) reads it. Returns whether
 * some of it is wanted. */
static bool walk(const struct text *t, const struct grammar_state *s)
{
    bool any = is_wanted(t), open = !t->point && (t->p[0] == '-' ? want.low : want.high) == NO;
    expect(t, (s->n && grammar_complete(&g, s)) == any);
    for (const char *c = "0123456789."; *c; c++) {
        struct text next = *t;
        struct grammar_state to;
        bool zero = t->whole == 1 && t->value == 0 && !t->point;
        if (*c == '.' ? t->point || !t->whole
                      : zero || (t->point ? t->fraction == FRACTION_MAX : t->whole == WHOLE_MAX))
            continue;
        next.p[next.n++] = *c;
        next.point = t->point || *c == '.';
        next.whole += !next.point;
        next.fraction += t->point;
        next.value = *c == '.' ? t->value : t->value * 10 + (*c - '0');
        grammar_copy(&to, s);
        if (s->n)
            (void)grammar_step(&g, &to, (u8)*c);
        any = walk(&next, &to) || any;
    }
    if (t->n && (any || !open)) /* else it may be longer than what is tried here */
        expect(t, (s->n > 0) == any);
    return any;
}

/* none: no grammar, as nothing is wanted. */
static void walk_all(bool none)
{
    struct text t = {.p = ""}, negative = {.p = "-", .n = 1};
    struct grammar_state s;
    grammar_begin(&g, &s);
    s.n = none ? 0 : s.n;
    (void)walk(&t, &s);
    if (s.n)
        (void)grammar_step(&g, &s, '-');
    (void)walk(&negative, &s);
}

void multiple_is_exact(void)
{
    static const i64 steps[] = {1, 10, 70, 125, 250, 500, 1000, 2500, 3000, 7350, 10000, 12000};
    static const i64 bounds[][2] = {{NO, NO},      {0, NO},       {NO, -1},       {-99000, 99000},
                                    {-2000, 3005}, {7349, 7350},  {-12000, -70},  {20, 30},
                                    {13000, NO},   {NO, 52500},   {-8000, 0},     {-65, -60},
                                    {0, 1},        {1001, 11999}, {24000, 24000}, {-7350, 7350}};
    u32 tried = 0, refused = 0;
    for (u32 i = 0; i < COUNTOF(steps) * COUNTOF(bounds); i++) {
        u32 k = i % COUNTOF(bounds);
        want = (struct numbers){.whole = i % 3 == 0,
                                .low_open = i % 5 == 0,
                                .high_open = i % 7 < 2,
                                .step = steps[i / COUNTOF(bounds)],
                                .low = bounds[k][0],
                                .high = bounds[k][1]};
        bool some = compiles_wanted();
        walk_all(!some);
        tried += some;
        refused += !some;
    }
    CHECK(tried > 120 && refused > 20 && wrong == 0);
}

/* --- no way leads nowhere --------------------------------------------------------------------- */

enum { STATES = 1 << 18 };

static struct {
    u64 seen[STATES]; /* by hash; 0: free */
    u32 n, stuck;
} states;

/* Is it a new one? */
static bool enter(const struct grammar_state *s)
{
    const struct grammar_frame *f = &s->threads[0].frames[0];
    u64 key = (u64)1 << 63 | (u64)f->phase << 48 | (u64)f->c << 32 | (u64)f->b << 16 | f->a;
    u64 at = key * 0x9e3779b97f4a7c15 >> 46;
    while (states.seen[at] && states.seen[at] != key)
        at = (at + 1) % STATES;
    bool is_new = states.seen[at] == 0;
    states.seen[at] = key;
    states.n += is_new;
    return is_new;
}

/* Every state behind some digits that can be reached. A number has an end, so where each of them
 * may end or go on, an end is reached from each. */
static void visit(const struct grammar_state *s)
{
    bool leads = grammar_complete(&g, s);
    ASSERT(s->n == 1 && s->threads[0].depth == 1 && states.n < STATES / 2);
    for (const char *c = "-.0123456789"; *c; c++) {
        struct grammar_state to;
        grammar_copy(&to, s);
        if (!grammar_step(&g, &to, (u8)*c))
            continue;
        leads = true;
        if (enter(&to))
            visit(&to);
    }
    states.stuck += !leads;
}

static void visit_all(void)
{
    struct grammar_state s;
    memset(&states, 0, sizeof states);
    grammar_begin(&g, &s);
    visit(&s);
}

void multiple_never_gets_stuck(void)
{
    static const i64 steps[] = {1, 10, 70, 125, 500, 1000, 2500, 7000, 10000, 97000, 360000};
    static const i64 bounds[][2] = {{NO, NO},     {0, NO},          {NO, -1},     {-99999, 12345},
                                    {20000, NO},  {-360000, 10001}, {0, 1000000}, {7001, 13999},
                                    {-8, 999000}, {123456, 654321}};
    u32 tried = 0;
    for (u32 i = 0; i < COUNTOF(steps) * COUNTOF(bounds) * 2; i++) {
        u32 k = i / 2 % COUNTOF(bounds);
        want = (struct numbers){.whole = i % 2 == 0,
                                .low_open = i % 5 == 0,
                                .high_open = i % 7 < 2,
                                .step = steps[i / 2 / COUNTOF(bounds)],
                                .low = bounds[k][0],
                                .high = bounds[k][1]};
        if (!compiles_wanted())
            continue;
        visit_all();
        tried++;
        CHECK(states.stuck == 0 && states.n > 0);
    }
    CHECK(tried > 180 && wrong == 0);
}

/* --- steps of any size ------------------------------------------------------------------------ */

/* Goes on by what may come, by chance, to where nothing may. Returns how often it could have ended,
 * each time a multiple; 0: it is stuck. */
static u32 wander(u64 size, u32 decimals, u64 *seed)
{
    struct grammar_state s;
    u64 rest = 0;
    u32 fraction = 0, ends = 0;
    bool point = false, complete = false;
    grammar_begin(&g, &s);
    for (;;) {
        char may[16];
        u32 n = 0;
        for (const char *c = "-.0123456789"; *c; c++) {
            struct grammar_state to;
            grammar_copy(&to, &s);
            if (grammar_step(&g, &to, (u8)*c))
                may[n++] = *c;
        }
        if (n == 0)
            return complete ? ends : 0;
        *seed = *seed * 6364136223846793005 + 1442695040888963407;
        char c = may[(*seed >> 33) % n];
        (void)grammar_step(&g, &s, (u8)c);
        point = point || c == '.';
        if (c >= '0') {
            rest = (rest * 10 + (u64)(c - '0')) % size;
            fraction += point;
        }
        complete = grammar_complete(&g, &s);
        ends += complete;
        u64 left = rest;
        for (u32 i = fraction; i < decimals; i++)
            left = left * 10 % size;
        wrong += complete && (left || fraction > decimals);
    }
}

void multiple_of_large_steps(void)
{
    static const struct {
        const char *schema;
        u64 size;
        u32 decimals;
    } cases[] = {
        {"{\"type\": \"integer\", \"multipleOf\": 604800}", 604800, 0},
        {"{\"type\": \"number\", \"multipleOf\": 999999999, \"minimum\": 0}", 999999999, 0},
        {"{\"type\": \"number\", \"multipleOf\": 9.99999999}", 999999999, 8},
        {"{\"type\": \"number\", \"multipleOf\": 0.00000001, \"minimum\": -1}", 1, 8},
        {"{\"type\": \"integer\", \"multipleOf\": 1234.5678, \"exclusiveMinimum\": 0}", 6172839, 0},
        {"{\"type\": \"number\", \"multipleOf\": 524288, \"exclusiveMinimum\": 1234567890123, "
         "\"maximum\": 1234568890123.5}",
         524288, 0},
        {"{\"type\": \"number\", \"multipleOf\": 99991.5, \"minimum\": 999999999900000}", 999915,
         1},
    };
    u64 seed = 1;
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        struct err_text e = {0};
        wrong = 0;
        CHECK(compiles(cases[i].schema, &e));
        for (u32 k = 0; k < 300; k++)
            if (!wander(cases[i].size, cases[i].decimals, &seed) || wrong) {
                printf("%s\n", cases[i].schema);
                CHECK(!"an end, and only at multiples");
            }
    }
}

void multiple_of_any_form(void)
{
    static const struct {
        const char *schema, *fits[6], *none[6];
    } cases[] = {
        {"{\"type\": \"number\", \"multipleOf\": 1e-2}",
         {"0", "-0.0", "0.1", "0.10", "19.99", "-9999999999999.99"},
         {"0.001", "0.100", "1e1", "99999999999999.99", "00", "1."}},
        {"{\"type\": \"number\", \"multipleOf\": 2.50}",
         {"0", "2.5", "5", "5.0", "-7.5", "100000000000000"},
         {"1", "2.50", "0.5", "5.5", "6"}},
        {"{\"type\": \"integer\", \"multipleOf\": 2.5}",
         {"0", "-0", "5", "-10", "999999999999995"},
         {"2", "2.5", "5.0", "1000000000000000"}},
        {"{\"type\": \"integer\", \"multipleOf\": 1.0e3}", {"0", "-1000", "12000"}, {"100", "1e3"}},
        {"{\"type\": \"number\", \"multipleOf\": 3, \"exclusiveMinimum\": -3, \"maximum\": 3.5}",
         {"0", "3", "-0"},
         {"-3", "1", "6", "3.0", "3."}},
        {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 0, \"maximum\": 13}",
         {"0", "7"},
         {"-", "1", "14", "70", "6"}},
        {"{\"multipleOf\": 0.5, \"minimum\": 0.3, \"maximum\": 0.7}", {"0.5"}, {"0", "1", "0.4"}},
        {"{\"type\": [\"integer\", \"null\"], \"multipleOf\": 4}", {"null", "12"}, {"13", "tru"}},
        {"{\"items\": {\"type\": \"number\", \"multipleOf\": 0.25}, \"maxItems\": 2}",
         {"[0.75,-1.5]", "[ 3 ]"},
         {"[0.7]", "[0.750"}},
    };
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        struct err_text e = {0};
        CHECK(compiles(cases[i].schema, &e));
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
