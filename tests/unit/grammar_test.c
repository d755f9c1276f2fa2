#include "core/engine/grammar_pool.h"
#include "tests/unit/unit.h"
#include "tests/unit/words.h"

#include <string.h>

static struct grammar g;

static bool compiles(const char *schema, struct err_text *e)
{
    const struct json *v = NULL;
    if (schema && json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, e) != ERR_OK)
        return false;
    return grammar_compile(&g, v, e) == ERR_OK;
}

static const struct {
    const char *schema;
    const char *whole[8], *begun[6], *none[10];
} cases[] = {
    {NULL, /* any object */
     {"{}", " {\n }", "{\"a\": [1, -2.5e+3, \"x\\u00e9\\n\", true, false, null, {}]}", "{\"\":0}",
      "{\"k\": \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}", "{\"a\":[[],[[]]],\"b\":0.5}"},
     {"", "{", "{\"a\"", "{\"a\": 1,", "{\"a\": \"\xe2\x82", "{\"a\": \"\\u00"},
     {"[", "1", "{,", "{a", "{\"a\": 01", "{\"a\": +", "{\"a\": tru\"", "{\"a\": \"\x01",
      "{\"a\": \"\\ud8", "{\"a\": 1}}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"ab\": {\"type\": "
     "\"string\"}, \"c\": {\"type\": \"boolean\"}}, \"required\": [\"a\", \"c\"]}",
     {"{\"a\": 1, \"c\": true}", "{\"a\":-0,\"ab\":\"x\",\"c\":false}"},
     {"{\"a", "{\"a\": 1, \"a", "{\"a\": 123456789012345"},
     {"{}", "{\"c", "{\"ab", "{\"a\": 1}", "{\"a\": 1.", "{\"a\": 1, \"c\": true,",
      "{\"a\": 1, \"d", "{\"a\": 1234567890123456", "{\"a\": null"}},
    {"{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}",
     {"{}", "{ }"},
     {"{"},
     {"{\""}},
    {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"number\"}}",
     {"{}", "{\"x\": 1, \"y\": 2.5}"},
     {"{\"x\": 1e1"},
     {"{\"x\": \"", "{\"x\": 1e123"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 2}",
     {"[1]", "[1,2]", " [ 1 , 2 ]"},
     {"[", "[1,"},
     {"[]", "[1,2,", "[1.", "[,"}},
    {"{\"type\": \"array\", \"maxItems\": 0}", {"[]"}, {"["}, {"[1", "[["}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"a\\u0041\xe2\x82\xac\""},
     {"\"a", "\"abc"},
     {"\"a\"", "\"abcd", "1"}},
    {"{\"enum\": [\"red\", \"redder\", 1, 12, null, [1, {\"a\": 2}]]}",
     {"\"red\"", "\"redder\"", "1", "12", "null", "[1,{\"a\":2}]"},
     {"\"re", "nul"},
     {"\"blue", "13", "2", "\"redd\"", "[1, "}},
    {"{\"const\": \"x\\\"y\"}", {"\"x\\\"y\""}, {"\"x\\"}, {"\"xy"}},
    {"{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"kind\": {\"const\": \"a\"}, \"n\": "
     "{\"type\": \"integer\"}}, \"required\": [\"kind\", \"n\"]}, {\"type\": \"object\", "
     "\"properties\": {\"kind\": {\"const\": \"b\"}, \"s\": {\"type\": [\"string\", \"null\"]}}, "
     "\"required\": [\"kind\", \"s\"]}, {\"type\": \"null\"}]}",
     {"null", "{\"kind\": \"a\", \"n\": 1}", "{\"kind\": \"b\", \"s\": null}"},
     {"{\"kind\": \"", "{\"kind\": \"b\", \"s\": \""},
     {"{\"kind\": \"a\", \"s", "{\"kind\": \"c", "{\"n", "1"}},
    {"{\"$ref\": \"#/$defs/node\", \"$defs\": {\"node\": {\"type\": \"object\", \"properties\": "
     "{\"v\": {\"type\": \"integer\"}, \"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/node\"}, "
     "{\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"]}}}",
     {"{\"v\": 1, \"next\": null}",
      "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
     {"{\"v\":1,\"next\":{"},
     {"{\"v\":1}", "{\"v\":1,\"next\":1"}},
    {"{\"$ref\": \"#\"}", {0}, {"", " "}, {"{", "1", "\""}}, /* says nothing */
    {"{\"title\": \"T\", \"description\": \"anything\"}",
     {"1", "[]", "{\"a\": {}}", "null"},
     {"-"},
     {"x"}},
    {"{\"allOf\": [{\"type\": \"integer\"}], \"description\": \"as pydantic writes it\"}",
     {"5", "0"},
     {"-"},
     {"5.", "00"}},
    {"{\"oneOf\": [{\"$ref\": \"#/$defs/A\"}, {\"$ref\": \"#/$defs/B\"}], \"discriminator\": "
     "{\"propertyName\": \"k\"}, \"$defs\": {\"A\": {\"type\": \"object\", \"properties\": {\"k\": "
     "{\"type\": \"string\", \"const\": \"a\"}}, \"required\": [\"k\"]}, \"B\": {\"type\": "
     "\"object\", \"properties\": {\"k\": {\"enum\": [\"b\", \"c\"], \"type\": \"string\"}, "
     "\"of\": "
     "{\"type\": \"array\", \"items\": {\"oneOf\": [{\"$ref\": \"#/$defs/A\"}, {\"$ref\": "
     "\"#/$defs/B\"}]}}}, \"required\": [\"k\"]}}}",
     {"{\"k\": \"a\"}", "{\"k\": \"b\"}", "{\"k\":\"c\",\"of\":[{\"k\":\"b\",\"of\":[]}]}"},
     {"{\"k\": \"b\", \"of"},
     {"{}", "{\"k\": \"d", "{\"k\": \"a\", \"of"}},
    {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": [\"string\", \"null\"]}, {\"enum\": "
     "[true]}]}",
     {"1", "\"x\"", "null", "true"},
     {"-"},
     {"f", "1."}},
    {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"a\": {}}, \"required\": [\"a\"]}, "
     "{\"type\": \"object\", \"properties\": {\"b\": {}}, \"required\": [\"b\"]}]}",
     {"{\"a\": 1}", "{\"b\": 1}"},
     {"{"},
     {"{}", "{\"a\": 1, "}},
    {"{\"oneOf\": [{\"const\": 0}, {\"enum\": [1, \"0\"]}, {\"type\": \"object\", \"properties\": "
     "{\"a\": {}}, \"required\": [\"a\"], \"additionalProperties\": false}, {\"type\": \"object\", "
     "\"properties\": {\"a\": {}, \"b\": {}}, \"required\": [\"b\"], \"additionalProperties\": "
     "false}]}",
     {"0", "1", "\"0\"", "{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": 2}"},
     {"{"},
     {"2"}},
    {"{\"type\": [\"string\", \"null\"], \"enum\": [\"a\", null]}",
     {"\"a\"", "null"},
     {"n"},
     {"1"}},
    {"{\"required\": []}", {"{}"}, {"{"}, {"1"}},
};

void grammar_reads_what_fits(void)
{
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        struct err_text e = {0};
        CHECK(compiles(cases[i].schema, &e));
        for (u32 k = 0; k < COUNTOF(cases[i].whole) && cases[i].whole[k]; k++)
            if (unit_reads(&g, cases[i].whole[k]) != 1) {
                printf("schema %u: %s\n", i, cases[i].whole[k]);
                CHECK(!"fits");
            }
        for (u32 k = 0; k < COUNTOF(cases[i].begun) && cases[i].begun[k]; k++)
            if (unit_reads(&g, cases[i].begun[k]) < 0) {
                printf("schema %u: %s\n", i, cases[i].begun[k]);
                CHECK(!"may begin so");
            }
        for (u32 k = 0; k < COUNTOF(cases[i].none) && cases[i].none[k]; k++)
            if (unit_reads(&g, cases[i].none[k]) >= 0) {
                printf("schema %u: %s\n", i, cases[i].none[k]);
                CHECK(!"does not fit");
            }
    }
}

void grammar_says_what_it_does_not_keep(void)
{
    static const char *const refused[][2] = {
        {"{\"type\": \"integer\", \"not\": {}}", "schema.not"},
        {"{\"type\": \"integer\", \"minimum\": \"1\"}", "schema.minimum"},
        {"{\"minimum\": 1, \"exclusiveMinimum\": 1}", "one of them"},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 1, \"exclusiveMaximum\": 2}", "no number"},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 1, \"maximum\": 1}", "no number"},
        {"{\"type\": \"integer\", \"minimum\": 1e15}", "no number"},
        {"{\"type\": \"number\", \"maximum\": -10000000000000000000000}", "no number"},
        {"{\"type\": \"number\", \"minimum\": 0.1234567890123456}", "at most 15 digits"},
        {"{\"type\": \"number\", \"exclusiveMaximum\": 1e-14}", "at most 14 digits"},
        {"{\"const\": 5, \"minimum\": 1}", "alone"},
        {"{\"enum\": [4, 8], \"multipleOf\": 4}", "alone"},
        {"{\"multipleOf\": 0}", "schema.multipleOf: must be a number above 0"},
        {"{\"multipleOf\": -2}", "schema.multipleOf: must be a number above 0"},
        {"{\"multipleOf\": \"2\"}", "schema.multipleOf: must be a number above 0"},
        {"{\"multipleOf\": 1234567890.0}",
         "schema.multipleOf: 1234567890.0 has more than 9 digits"},
        {"{\"multipleOf\": 1e-9}", "schema.multipleOf: 1e-9 has more than 9 digits"},
        {"{\"multipleOf\": 1e400}", "schema.multipleOf: 1e400 has more than 9 digits"},
        {"{\"items\": {\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 8, \"maximum\": "
         "13}}",
         "schema.items: no multiple"},
        {"{\"type\": \"integer\", \"multipleOf\": 0.4, \"exclusiveMinimum\": 0, "
         "\"exclusiveMaximum\": 2}",
         "schema: no multiple"},
        {"{\"multipleOf\": 2, \"minimum\": 999999999999999}", "schema: no multiple"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"items\": {\"pattern\": \"a(?=b)\"}}}}",
         "schema.properties.a.items.pattern: byte 1 (\"(?=b)\")"},
        {"{\"type\": \"string\", \"pattern\": 1}", "schema.pattern"},
        {"{\"type\": \"string\", \"pattern\": \"^ab$\", \"maxLength\": 1}",
         "no text of that length"},
        {"{\"type\": \"string\", \"pattern\": \"^ab?$\", \"minLength\": 3}",
         "no text of that length"},
        {"{\"type\": \"string\", \"pattern\": \"a^\"}", "no text matches"},
        {"{\"type\": \"string\", \"pattern\": \"a\", \"format\": \"date\"}", "exclude each other"},
        {"{\"type\": \"object\", \"properties\": {\"a\": {}}, \"additionalProperties\": {}}",
         "additionalProperties"},
        {"{\"type\": \"object\", \"required\": [\"a\"]}", "one of properties"},
        {"{\"type\": \"float\"}", "type must be"},
        {"{\"type\": []}", "type must be"},
        {"{\"anyOf\": [{}, {\"not\": {}}]}", "schema.anyOf[1].not"},
        {"{\"anyOf\": [{}, {\"oneOf\": []}]}", "schema.anyOf[1]: "},
        {"{\"items\": {\"oneOf\": [{}, {\"type\": \"string\"}]}}", "schema.items: an answer might"},
        {"{\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"integer\"}, {\"type\": \"number\"}]}",
         "both oneOf[1] and oneOf[2]"},
        {"{\"oneOf\": [{\"enum\": [1, 2]}, {\"enum\": [3, 1.0]}]}", "oneOf[0] and oneOf[1]"},
        /* a string fits the second one, too */
        {"{\"oneOf\": [{\"type\": \"string\"}, {\"properties\": {\"a\": {}}}]}", "oneOf[0]"},
        /* and of these names that neither knows may come */
        {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"a\": {}}, \"required\": [\"a\"]}, "
         "{\"type\": \"object\", \"properties\": {\"b\": {}}}]}",
         "oneOf[0] and oneOf[1]"},
        {"{\"oneOf\": [{\"$ref\": \"#\"}, {\"type\": \"string\"}]}", "oneOf[0] and oneOf[1]"},
        {"{\"type\": \"string\", \"enum\": [\"a\", 1]}", "not of the type"},
        {"{\"type\": \"string\", \"anyOf\": [{\"type\": [\"string\", \"null\"]}]}",
         "not of the type"},
        {"{\"enum\": [\"a\"], \"minLength\": 2}", "alone"},
        {"{\"required\": [\"a\"]}", "one of properties"},
        {"{\"allOf\": [{}, {}]}", "allOf"},
        {"{\"enum\": []}", "enum"},
        {"{\"enum\": [1], \"properties\": {}}", "alone"},
        {"{\"$ref\": \"#/$defs/none\"}", "leads to nothing"},
        {"{\"$ref\": \"http://x/y\"}", "$ref"},
        {"{\"type\": \"string\", \"maxLength\": -1}", "maxLength"},
        {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", "so long and so short"},
        {"[]", "must be an object"},
        {"false", "must be an object"}};
    for (u32 i = 0; i < COUNTOF(refused); i++) {
        struct err_text e = {0};
        if (compiles(refused[i][0], &e) || !strstr(e.text, refused[i][1])) {
            printf("%s: %s\n", refused[i][0], e.text);
            CHECK(!"refused, and why");
        }
        CHECK(e.code == ERR_REQUEST);
    }
}

struct text {
    char p[1 << 18];
    size_t n;
};

static void put(struct text *t, const char *what)
{
    size_t n = strlen(what);
    memcpy(t->p + t->n, what, n + 1);
    t->n += n;
}

/* A schema of n parts, each with its number, of `digits` digits. */
static bool compiles_parts(const char *open, const char *part, const char *close, u32 n, int digits,
                           struct err_text *e)
{
    static struct text schema;
    char number[128];
    schema.n = 0;
    put(&schema, open);
    for (u32 i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%0*u", digits, i);
        put(&schema, i ? ", " : "");
        put(&schema, "\"p");
        put(&schema, number);
        put(&schema, part);
    }
    put(&schema, close);
    return compiles(schema.p, e);
}

/* Every ceiling, passed or not. */
void grammar_has_ceilings(void)
{
    static const struct {
        const char *open, *part, *close;
        int digits;
    } parts[] = {{"{\"properties\": {", "\": {}", "}}", 1},
                 {"{\"enum\": [", "\"", "]}", 1},
                 {"{\"enum\": [", "\"", "]}", 100}};
    for (u32 i = 0; i < COUNTOF(parts); i++)
        for (u32 most = 0; most < 2; most++) {
            struct err_text e = {0};
            CHECK(compiles_parts(parts[i].open, parts[i].part, parts[i].close, most ? 600 : 100,
                                 parts[i].digits, &e) != (most == 1));
            CHECK(!most || strstr(e.text, "more than"));
        }
    /* Deeper than the answer may be: it has to end. */
    static struct text text;
    CHECK(compiles(NULL, &(struct err_text){0}));
    put(&text, "{\"a\":");
    for (u32 i = 0; i < LIMIT_SCHEMA_DEPTH - 1; i++)
        put(&text, "[");
    CHECK(unit_reads(&g, text.p) == 0);
    put(&text, "[");
    CHECK(unit_reads(&g, text.p) == -1);
    /* Blanks come to an end. */
    CHECK(unit_reads(&g, " {") == 0 && unit_reads(&g, "  ") == -1 && unit_reads(&g, "\n\n") == -1);
    CHECK(unit_reads(&g, "{ \"") == 0 && unit_reads(&g, "{  ") == -1 &&
          unit_reads(&g, "{ \n") == -1);
    CHECK(unit_reads(&g, "{\n\n") == 0 && unit_reads(&g, "{\n\n\n") == -1 &&
          unit_reads(&g, "{\n \n") == -1);
    text.n = 0;
    put(&text, "{\n\n");
    for (u32 i = 0; i < GRAMMAR_INDENT; i++)
        put(&text, " ");
    CHECK(unit_reads(&g, text.p) == 0);
    put(&text, " ");
    CHECK(unit_reads(&g, text.p) == -1);
}

static void reads_as(int wanted, const char *const *texts)
{
    for (; *texts; texts++)
        CHECK(unit_reads(&g, *texts) == wanted);
}

static bool compiles_calls(const char *mark, const char *close, struct err_text *e)
{
    const struct json *v = NULL;
    static const char schema[] = "{\"properties\": {\"x\": {\"type\": \"integer\"}}}";
    struct grammar_call calls[] = {
        {.open = STR("<c>{\"name\": \""), .name = STR("get"), .middle = STR("\", \"arguments\": ")},
        {.open = STR("<c>{\"name\": \""),
         .name = STR("get_x"),
         .middle = STR("\", \"arguments\": "),
         .number = 1}};
    if (json_parse(&unit_arena, STR(schema), "schema", ERR_REQUEST, &v, e) != ERR_OK)
        return false;
    calls[1].parameters = v;
    return grammar_compile_calls(&g, calls, 2, str_of(close), str_of(mark), e) == ERR_OK;
}

void grammar_reads_calls(void)
{
    static const char *const whole[] = {
        "<c>{\"name\": \"get\", \"arguments\": {\"y\": [1]}}</c>",
        "<c>\n{\"name\": \"get_x\", \"arguments\": {\"x\": 1}}\n</c>",
        "<c>{\"name\": \"get_x\", \"arguments\": { } } </c>"};
    static const char *const none[] = {"{",
                                       " <c>",
                                       "<c>{\"name\": \"got",
                                       "<c>{\"name\": \"get_x\", \"arguments\": {\"y",
                                       "<c>{\"name\": \"get\", \"arguments\": [",
                                       "<c>   {",
                                       "<c >",
                                       "<c>{\"name\": \"get\", \"arguments\": {}}</c> "};
    struct err_text e = {0};
    CHECK(compiles_calls("", "}</c>", &e));
    for (u32 i = 0; i < COUNTOF(whole); i++)
        CHECK(unit_reads(&g, whole[i]) == 1);
    for (u32 i = 0; i < COUNTOF(none); i++)
        CHECK(unit_reads(&g, none[i]) == -1);
    CHECK(unit_reads(&g, "<c>{\"name\": \"get\", \"arguments\": {}}<") == 0);

    CHECK(compiles_calls("", "", &e)); /* closed by the value */
    CHECK(unit_reads(&g, "<c>{\"name\": \"get\", \"arguments\": {}") == 1);
    CHECK(unit_reads(&g, "<c>{\"name\": \"get\", \"arguments\": {}}") == -1);

    /* With a mark: prose, and calls in it. */
    char text[256];
    CHECK(compiles_calls("<c>", "}</c>", &e));
    CHECK(unit_reads(&g, "") == 1 && unit_reads(&g, "a < b <c") == 1 &&
          unit_reads(&g, "<<c") == 1 && unit_reads(&g, "<<c>x") == -1);
    for (u32 i = 0; i < COUNTOF(whole); i++) {
        snprintf(text, sizeof text, "Well: %s %s.", whole[i], whole[0]);
        CHECK(unit_reads(&g, text) == 1);
        text[strlen("Well: ") + strlen(whole[i]) - 1] = 0;
        CHECK(unit_reads(&g, text) == 0);
    }
    CHECK(unit_reads(&g, "x<c>{\"name\": \"get_x\", \"arguments\": {\"x\": \"") == -1);
    CHECK(compiles_calls("<c>", "", &e));
    CHECK(unit_reads(&g, "<c>{\"name\": \"get\", \"arguments\": {}") == 1);
    CHECK(unit_reads(&g, "<c>{\"name\": \"get\", \"arguments\": {} and so on") == 1);
}

void grammar_reads_json_or_calls(void)
{
    static const char *const
        whole[] = {"{\"x\": 1}", " {\"x\":1}", "<c>{\"name\": \"get\", \"arguments\": {}}</c>",
                   " <c>{\"name\": \"get_x\", \"arguments\": {\"x\": 2}}</c>", NULL},
        *const open[] = {"", " ", "{", "<", "<c>{\"name\": \"g", NULL},
        *const none[] = {"a",     "1",  "{}", "{\"x\": 1}<",
                         "<c>{}", "<{", "{<", "<c>{\"name\": \"get\", \"arguments\": {}}</c>{",
                         NULL};
    static const char schema[] =
        "{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"type\": \"object\", \"properties\": "
        "{\"x\": {\"const\": 1}}, \"required\": [\"x\"]}}}";
    const struct json *v = NULL;
    struct err_text e = {0};
    CHECK(json_parse(&unit_arena, STR(schema), "schema", ERR_REQUEST, &v, &e) == ERR_OK);
    CHECK(compiles_calls("", "}</c>", &e) && grammar_or_json(&g, v, &e) == ERR_OK);
    reads_as(1, whole);
    reads_as(0, open);
    reads_as(-1, none);
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), true, UINT32_MAX, &e) == ERR_OK);
    CHECK(unit_reads(&g, "a<c></t>\n\n<c>{\"name\": \"get\", \"arguments\": {}}</c>") == 1 &&
          unit_reads(&g, "{</t>{\"x\": 1}") == 1 && unit_reads(&g, "{</t>a") == -1);

    CHECK(compiles_calls("", "}</c>", &e) && grammar_or_json(&g, NULL, &e) == ERR_OK);
    CHECK(unit_reads(&g, "{}") == 1 && unit_reads(&g, "<c>") == 0 && unit_reads(&g, "[") == -1);
    CHECK(json_parse(&unit_arena, STR("{\"type\": [\"object\", \"null\"]}"), "schema", ERR_REQUEST,
                     &v, &e) == ERR_OK);
    CHECK(compiles_calls("", "}</c>", &e) && grammar_or_json(&g, v, &e) == ERR_REQUEST);
    CHECK(strcmp(e.text, "schema: must be of type object beside tools") == 0);
}

static bool compiles_tags(const char *schema, bool mark, struct err_text *e)
{
    const struct json *v = NULL;
    return json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, e) == ERR_OK &&
           words_calls(&g, v, mark, e) == ERR_OK;
}

/* words_calls' two forms: a schema with an even number of words is of the one with lines. */
void grammar_reads_tags(void)
{
    static const char schema[] =
        "{\"properties\": {\"n\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}, "
        "\"e\": {\"enum\": [\"x\", \"x y\", null, \"\\\"\\u0001\"]}}, \"required\": [\"s\"]%s}";
    static const struct {
        const char *text;
        int reads;
    } lines[] = {{"<a>a<b=s></a></b></a>", 1},
                 {"<a>a\n<b=s>\n <b=s> </b>\n\n</a>\n</b>\n</a>", 1},
                 {"<a>a<b=n> 12 \n</a><b=s>12</a><b=e>x</a></b></a>", 1},
                 {"<a>a<b=s></a><b=e>\nx y\n</a></b></a>", 1},
                 {"<a>a<b=s></a><b=e>null</a></b></a>", 1},
                 {"<a>a<b=s></a><b=e>\"\x01</a></b></a>", 1},
                 {"<a>a<b=s></a></b></a", 0},
                 {"<a>a<b=s></a></b></a>\n", -1},
                 {"<a>a</", -1}, /* s is missing */
                 {"<a>a<b=e", -1},
                 {"<a>a<b=s></a><b=n", -1}, /* comes before s */
                 {"<a>a<b=s></a><b=s", -1},
                 {"<a>a<b=n>a", -1},
                 {"<a>a<b=n>\"", -1},
                 {"<a>a<b=n>1 2", -1},
                 {"<a>a<b=n></", -1},
                 {"<a>a<b=s></a><b=e>\n\n", -1},
                 {"<a>a<b=s></a><b=e> ", -1},
                 {"<a>a<b=s></a><b=e>x\n\n", -1},
                 {"<a>a<b=s></a><b=e>x ", 0}, /* y */
                 {"<a>a<b=s></a><b=e>x <", -1},
                 {"<a>a \n ", -1},
                 {"<a>a b", -1},
                 {"<a>a x", -1},
                 {"<a>\na", -1},
                 {"<a>ab</b></a>", 1}, /* of which nothing is known */
                 {"<a>ab\n<b=any\n thing>\n\n1</a><b=>x</a></b></a>", 1},
                 {"<a>ab<c", -1}};
    char text[512];
    struct err_text e = {0};
    snprintf(text, sizeof text, schema, "");
    CHECK(compiles_tags(text, false, &e));
    for (u32 i = 0; i < COUNTOF(lines); i++)
        if (unit_reads(&g, lines[i].text) != lines[i].reads) {
            printf("%s\n", lines[i].text);
            CHECK(!"as wanted");
        }
    CHECK(compiles_tags(text, true, &e));
    CHECK(unit_reads(&g, "a <a>a<b=s></a></b></a> b <a>ab</b></a>") == 1);
    CHECK(unit_reads(&g, "a <a> a") == -1 && unit_reads(&g, "a <a>a<b=s></a></b>") == 0);

    snprintf(text, sizeof text, schema, ", \"type\": \"object\"");
    CHECK(compiles_tags(text, false, &e));
    CHECK(unit_reads(&g, "<a>a\n<a>s</a>\n<b>\n</b>\n<a>e</a><b>x y</b></b></a>") == 1);
    CHECK(unit_reads(&g, "<a>a<a>s</a><b></a></b><a>e</a><b>\n") == -1);
    CHECK(unit_reads(&g, "<a>a<a>s</a><b></b><a>e</a><b>x\n") == -1);
    CHECK(unit_reads(&g, "<a>ab<a>x</b></a> <b></b></b></a>") == 1);

    static const char *const refused[] = {
        "{\"minLength\": 1}",
        "{\"format\": \"date\", \"type\": \"string\"}",
        "{\"type\": [\"string\", \"integer\"]}",
        "{\"enum\": [\"a\", true]}",
        "{\"enum\": [\"\"]}",
        "{\"enum\": [\"a\\n\"]}",
        "{\"const\": \"a</a>\"}",
        "{\"anyOf\": [{\"const\": \"a\"}, {\"type\": \"object\"}]}"};
    for (u32 i = 0; i < COUNTOF(refused); i++) {
        snprintf(text, sizeof text, "{\"properties\": {\"k\": %s}, \"title\": \"\"}", refused[i]);
        CHECK(!compiles_tags(text, false, &e));
        CHECK(strstr(e.text, "tools[0].function.parameters.properties.k: "));
    }
    CHECK(!compiles_tags("{\"properties\": {\"a>\": {}}}", false, &e));
    CHECK(!compiles_tags("{\"additionalProperties\": {\"type\": \"string\"}}", false, &e));
    CHECK(compiles_tags("{\"additionalProperties\": {}}", false, &e));
}

static const struct grammar *take(struct grammar_pool *p, const char *schema)
{
    const struct json *v = NULL;
    struct err_text e = {0};
    struct grammar *spare = grammar_pool_spare(p);
    if (json_parse(&unit_arena, str_of(schema), "s", ERR_REQUEST, &v, &e) != ERR_OK ||
        grammar_compile(spare, v, &e) != ERR_OK)
        return NULL;
    return grammar_pool_take(p, spare);
}

/* Requests of one schema share a grammar, also one after another, as long as others do not need its
 * place; what is in use stays. */
void grammar_pool_shares(void)
{
    static const char *const a = "{\"properties\": {\"a\": {\"maxLength\": 3}, \"n\": "
                                 "{\"minimum\": 0, \"multipleOf\": 0.5}}}",
                             *const b = "{\"properties\": {\"a\": {\"maxLength\": 4}}}",
                             *const c = "{\"pattern\": \"^a{2,3}$\"}",
                             *const d = "{\"pattern\": \"^a{2,4}$\"}";
    struct grammar_pool p;
    CHECK(grammar_pool_open(&p, &unit_arena, 2));
    const struct grammar *of_a = take(&p, a), *again = take(&p, a);
    u64 serial = of_a->serial;
    CHECK(of_a && again == of_a);
    grammar_pool_give(&p, of_a);
    const struct grammar *of_b = take(&p, b);
    CHECK(of_b && of_b != of_a && of_b->serial != serial && of_a->serial == serial);
    grammar_pool_give(&p, again);
    grammar_pool_give(&p, of_b);
    CHECK(take(&p, a) == of_a && of_a->serial == serial);
    const struct grammar *of_c = take(&p, c);
    grammar_pool_give(&p, of_c);
    const struct grammar *of_d = take(&p, d);
    CHECK(of_c && of_d && of_d != of_a && of_d->serial != of_c->serial);
    CHECK(unit_reads(of_d, "\"aaaa\"") == 1 && unit_reads(of_c, "\"aaaa\"") == -1);
    CHECK(unit_reads(of_a, "{\"a\": \"123\"}") == 1 && unit_reads(of_a, "{\"a\": \"1234") == -1);
    grammar_pool_give(&p, of_d);
    CHECK(take(&p, b) && of_a->serial == serial);
}

void grammar_reads_thoughts(void)
{
    static const char schema[] = "{\"enum\": [\"a\", 1]}";
    static const char *const whole[] = {"1", " \"a\"", "<t></t>1",
                                        "\n<t>\n{\"</</t</t >x\xe2\x82</t>\n\n \"a\"", NULL},
                             *const begun[] = {"",     "<",      "\n<t",      "<t>",
                                               "<t>1", "<t></t", "<t></t>\n", NULL},
                             *const none[] = {"<t1",     "x<t>", "<t></t>x",        "<t></t></",
                                              "\n\n\n<", "1<",   "<t></t>\n\n\n\n", NULL};
    static const char *const within[] = {"</t>1", "<t>1</t>1", NULL}, *const on[] = {"1", NULL},
                             *const out[] = {"</t>2", NULL};
    struct err_text e = {0};
    CHECK(compiles(schema, &e));
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), false, UINT32_MAX, &e) == ERR_OK);
    reads_as(1, whole);
    reads_as(0, begun);
    reads_as(-1, none);
    CHECK(compiles(schema, &e));
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), true, UINT32_MAX, &e) == ERR_OK);
    reads_as(1, within);
    reads_as(0, on);
    reads_as(-1, out);

    /* Calls that are demanded, and prose, which may end where no call is open. */
    CHECK(compiles_calls("", "}</c>", &e));
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(unit_reads(&g, "<t><c>{</t>\n<c>{\"name\": \"get\", \"arguments\": {}}</c>") == 1);
    CHECK(unit_reads(&g, "<t>a</t>") == 0 && unit_reads(&g, "<t>a</t>b") == -1);
    CHECK(compiles_calls("<c>", "}</c>", &e));
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(unit_reads(&g, "<t><c>no</t>") == 1 && unit_reads(&g, "<t>a</t>b <c>x") == -1);
    CHECK(unit_reads(&g, "<t>a") == 1); /* which is prose, too */
    CHECK(compiles_calls("<c>", "}</c>", &e));
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), true, UINT32_MAX, &e) == ERR_OK);
    CHECK(unit_reads(&g, "a<c>b") == 0 && unit_reads(&g, "a</t>b") == 1);
}

/* Messages: <h> begins one, <e> ends it, <s> is behind that. */
static void messages(const char *mark, bool begun, bool thinks)
{
    const struct grammar_call calls[] = {
        {.open = STR("<e><s>"), .name = STR("<h"), .middle = STR(">"), .text = true},
        {.open = STR("<e><s><to "), .name = STR("f"), .middle = STR(">")}};
    struct err_text e = {0};
    u32 from = *mark ? 0 : 1;
    CHECK(grammar_compile_calls(&g, calls + from, 2 - from, STR(""), str_of(mark), &e) == ERR_OK);
    grammar_messages(&g, begun ? 6 : 0);
    if (!thinks)
        return;
    CHECK(grammar_think(&g, STR("<t>"), STR("<e>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<s>"), &e) == ERR_OK);
}

void grammar_reads_messages(void)
{
    static const char *const whole[] =
        {"<h>", "<h>a<b", "<h>a<e><s><h>b", "<h>a<e><s><to f>{}", "<to f>{\"a\": 1}", NULL},
                             *const open[] = {"", "<h", "<h>a<e>", "<h>a<e><s>", "<to f>{", NULL},
                             *const none[] = {"a",
                                              "<t>",
                                              "<e>",
                                              "<h>a<e>b",
                                              "<h>a<e><s>b",
                                              "<h><e><s><t>",
                                              "<h><e><s><to g",
                                              "<to f>[",
                                              "<to f>{} ",
                                              "<to f>{}<",
                                              NULL};
    static const char *const thought[] = {"<t>a</e><s<e><s><h>b", "<h>b", "<t><e><s><to f>{}",
                                          "<t><h><e><s><h>a<e><s><h>", NULL},
                             *const thinks[] = {"<t>a", "<t><to g>", "<t><e", "<t><e><s>", NULL},
                             *const not [] = {"<t><e>a", "<t><e><s>a", "<t><e><s><t>", NULL};
    messages("<e>", true, false);
    reads_as(1, whole);
    reads_as(0, open);
    reads_as(-1, none);
    messages("<e>", true, true);
    reads_as(1, thought);
    reads_as(0, thinks);
    reads_as(-1, not );

    static const char *const within[] = {"", "a", "a<e><s><to f>{}", "a<e><s><h>b", NULL};
    messages("<e>", false, false); /* it goes on with a text */
    reads_as(1, within);
    messages("", true, true);
    CHECK(unit_reads(&g, "<to f>{}") == 1 && unit_reads(&g, "<t>a<e><s><to f>{}") == 1 &&
          unit_reads(&g, "<t>a<e><s><h") == -1 && unit_reads(&g, "<h") == -1);
    messages("", false, false);
    CHECK(unit_reads(&g, "<e><s><to f>{}") == 1 && unit_reads(&g, "a") == -1);
}

/* JSON in place of the text, or a call. */
static void json_or_calls_in_messages(void)
{
    static const char *const whole[] = {"<h>{}", "<to f>{}", "<t>{<e><s><h>{}",
                                        "<t>a<e><s><to f>{\"a\": 1}", NULL},
                             *const none[] = {"{", "<h>a", "<h>{}<", "<to f>{}<", "<t><e>{", NULL};
    const struct grammar_call calls[] = {
        {.open = STR("<e><s>"), .name = STR("<h"), .middle = STR(">"), .text = true},
        {.open = STR("<e><s><to "), .name = STR("f"), .middle = STR(">")}};
    struct err_text e = {0};
    CHECK(grammar_compile_calls(&g, calls, 2, STR(""), STR(""), &e) == ERR_OK);
    grammar_messages(&g, 6);
    CHECK(grammar_or_json(&g, NULL, &e) == ERR_OK);
    CHECK(grammar_think(&g, STR("<t>"), STR("<e>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<s>"), &e) == ERR_OK);
    reads_as(1, whole);
    reads_as(-1, none);
}

void grammar_reads_json_in_messages(void)
{
    json_or_calls_in_messages();
    static const char *const whole[] = {"<t>{<e><s><h>1", "<h>12",     "<h>-1.5", "<h>\"a\"",
                                        "<h>{}",          "<h>\"ab\"", "<h>null", NULL},
                             *const open[] = {"", "<t>1", "<t>1<e><s><h>", "<h>1.", "<h>\"a", NULL},
                             *const none[] = {"1",      "<t><e><h",    "<t><e><s>1", "<h>2x",
                                              "<h>{} ", "<h>\"a\"<e>", "<h><e>",     NULL};
    struct err_text e = {0};
    CHECK(compiles("{\"anyOf\": [{\"type\": \"number\"}, {\"enum\": [\"a\", \"ab\", null]}, "
                   "{\"type\": \"object\"}]}",
                   &e));
    CHECK(grammar_head(&g, STR("<h>"), &e) == ERR_OK);
    CHECK(grammar_think(&g, STR("<t>"), STR("<e>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<s>"), &e) == ERR_OK);
    reads_as(1, whole);
    reads_as(0, open);
    reads_as(-1, none);

    /* A budget: what ends the thought is all that may come, and what has to follow. */
    struct grammar_state s;
    CHECK(compiles("{\"type\": \"number\"}", &e));
    CHECK(grammar_head(&g, STR("<h>"), &e) == ERR_OK);
    CHECK(grammar_think(&g, STR("<t>"), STR("<e>"), false, 2, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<s>"), &e) == ERR_OK);
    grammar_begin(&g, &s);
    CHECK(grammar_read(&g, &s, STR("<t>")) && grammar_read(&g, &s, STR("ab")));
    CHECK(grammar_read(&g, &s, STR("c<")) && grammar_read(&g, &s, STR("e>")));
    CHECK(grammar_read(&g, &s, STR("<s>")) && grammar_read(&g, &s, STR("<h>")));
    CHECK(grammar_read(&g, &s, STR("7")) && grammar_complete(&g, &s));
    grammar_begin(&g, &s);
    CHECK(grammar_read(&g, &s, STR("<t>")) && grammar_read(&g, &s, STR("ab")));
    CHECK(grammar_read(&g, &s, STR("c")) && !grammar_read(&g, &s, STR("d")));
}
