/* What a grammar leaves no choice about, behind every byte of a text: it is read by the grammar,
 * and where nothing is said about it, it is what was written by hand.
 */
#include "core/engine/foresee.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static struct grammar g;
static char out[256];

static void behind(const char *text, u32 room, struct str *got)
{
    struct grammar_state s;
    grammar_begin(&g, &s);
    for (const char *p = text; *p; p++)
        CHECK(grammar_step(&g, &s, (u8)*p));
    u32 n = foresee(&g, &s, foresee_blanks(str_of(text)), out, room);
    CHECK(n <= room);
    for (u32 i = 0; i < n; i++)
        CHECK(grammar_step(&g, &s, (u8)out[i]));
    *got = (struct str){out, n};
}

static void foresees(const char *text, const char *wanted)
{
    struct str got = {0};
    behind(text, sizeof out, &got);
    if (!str_is(got, wanted)) {
        printf("behind %s:\n  got    %.*s\n  wanted %s\n", text, (int)got.n, got.p, wanted);
        CHECK(!"as wanted");
    }
}

static void compile(const char *schema)
{
    const struct json *v;
    struct err_text e = {0};
    CHECK(json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, &e) == ERR_OK);
    CHECK(grammar_compile(&g, v, &e) == ERR_OK);
}

void foresee_what_has_to_come(void)
{
    compile("{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "
            "{\"type\": \"integer\"}, \"of\": {\"type\": \"object\", \"properties\": {\"kind\": "
            "{\"const\": \"person\"}, \"tags\": {\"items\": {\"type\": \"string\"}, \"type\": "
            "\"array\"}}, \"required\": [\"kind\", \"tags\"]}, \"mood\": {\"enum\": [\"glad\", "
            "\"grim\", \"sad\"]}}, \"required\": [\"name\", \"age\", \"of\", \"mood\"]}");
    foresees("", "{\"name\": \"");
    foresees("{", "\"name\": \"");
    foresees("{\"na", "me\": \"");
    foresees("{\"name\":", " \"");
    foresees("{\"name\": ", "\"");
    foresees("{\"name\": \"A", "");
    foresees("{\"name\": \"A\"", ", \"age\":");
    foresees("{\"name\": \"A\", \"age\": 3", "");
    foresees("{\"name\": \"A\", \"age\": 3,", " \"of\": {\"kind\": \"person\", \"tags\": [");
    foresees("{\"name\": \"A\", \"age\": 3, \"of\": {\"kind\": \"p", "erson\", \"tags\": [");
    foresees("{\"name\": \"A\", \"age\": 3, \"of\": {\"kind\": \"person\", \"tags\": [\"x\"]",
             "}, \"mood\":");
    foresees(
        "{\"name\": \"A\", \"age\": 3, \"of\": {\"kind\": \"person\", \"tags\": []}, \"mood\": "
        "\"gl",
        "ad\"}");
    foresees(
        "{\"name\": \"A\", \"age\": 3, \"of\": {\"kind\": \"person\", \"tags\": []}, \"mood\": "
        "\"g",
        "");
    struct str cut = {0};
    behind("{\"name\":", 1, &cut);
    CHECK(cut.n == 0);
    behind("{\"name\":", 2, &cut);
    CHECK(cut.n == 2);

    /* The blanks are those of the answer. */
    foresees("{\"name\":\"A\",\"age\":3,", "\"of\":{\"kind\":\"person\",\"tags\":[");
    foresees("{\n  \"name\": \"A\",\n  \"age\": 3,", "\n  \"of\": {");
    foresees("{\n  \"name\": \"A\",\n  \"age\": 3,\n  ", "\"of\": {");
    foresees("{\n  \"name\": \"A\",\n  \"age\": 3,\n  \"of\": {\n    \"kind\": \"person\"",
             ",\n    \"tags\": [");
    foresees("{\n  \"name\": \"A\",\n  \"age\": 3,\n  \"of\": {", "");
    foresees("{\n  \"name\": \"A\",\n  \"age\": 3,\n  \"of\": {\n    ",
             "\"kind\": \"person\",\n    \"tags\": [");
}

void foresee_nothing_where_there_is_a_choice(void)
{
    compile("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}, \"ab\": "
            "{\"type\": [\"integer\", \"null\"]}, \"b\": {\"anyOf\": [{\"type\": \"string\"}, "
            "{\"type\": \"null\"}]}}, \"required\": [\"ab\"]}");
    foresees("", "{"); /* "a" may be left out */
    foresees("{", "");
    foresees("{\"a", "");
    foresees("{\"ab", "\":");
    foresees("{\"ab\": 1", "");
    foresees("{\"ab\": null", ""); /* "b" may come */
    foresees("{\"ab\": 1, ", "");
    foresees("{\"ab\": 1, \"b\": null", "}");
    compile("{\"type\": \"object\", \"additionalProperties\": {\"type\": \"string\"}}");
    foresees("", "{");
    foresees("{", "");
    foresees("{\"x\"", ": \"");
    foresees("{\"x\": \"y\"", "");
}

void foresee_calls(void)
{
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": "
                                 "\"string\"}}, \"required\": [\"x\"]}";
    const struct json *v;
    struct err_text e = {0};
    CHECK(json_parse(&unit_arena, STR(schema), "schema", ERR_REQUEST, &v, &e) == ERR_OK);
    struct grammar_call calls[] = {{.open = STR("<c>{\"name\": \""),
                                    .name = STR("get"),
                                    .middle = STR("\", \"arguments\": "),
                                    .parameters = v},
                                   {.open = STR("<c>{\"name\": \""),
                                    .name = STR("put"),
                                    .middle = STR("\", \"arguments\": "),
                                    .parameters = v}};
    CHECK(grammar_compile_calls(&g, calls, 1, STR("}</c>"), (struct str){0}, &e) == ERR_OK);
    foresees("", "<c>{\"name\": \"get\", \"arguments\": {\"x\": \"");
    foresees("<c>{\"name\": \"get\", \"arguments\": {\"x\": \"a\"", "}}</c>");
    CHECK(grammar_compile_calls(&g, calls, 2, STR("}</c>"), (struct str){0}, &e) == ERR_OK);
    foresees("", "");
    foresees("<c>{\"name\": \"g", "et\", \"arguments\": {\"x\": \"");
    CHECK(grammar_think(&g, STR("<t>"), STR("</t>"), false, 9, &e) == ERR_OK);
    foresees("", "");
    foresees("<t>a", "");
    CHECK(grammar_compile_calls(&g, calls, 1, STR("}</c>"), STR("<c>"), &e) == ERR_OK);
    foresees("so ", "");
    foresees("so <c>", "{\"name\": \"get\", \"arguments\": {\"x\": \"");
}

void foresee_messages(void)
{
    struct err_text e = {0};
    CHECK(grammar_compile(&g, NULL, &e) == ERR_OK);
    CHECK(grammar_head(&g, STR("<h>"), &e) == ERR_OK);
    foresees("", "<h>{");
    CHECK(grammar_think(&g, STR("<t>"), STR("<e>"), false, 9, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<s>"), &e) == ERR_OK);
    foresees("", "");
    foresees("<t>a<e><s>", "");
    foresees("<t>a<e><s><", "h>{");
    foresees("<t>a<e><s><h>{}", "");
}
