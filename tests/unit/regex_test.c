#include "core/engine/grammar.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

static struct grammar g;

/* The pattern as it is, not as JSON; more: words beside it. */
static bool compiles(const char *pattern, const char *more, struct err_text *e)
{
    static char schema[1 << 16];
    const struct json *v = NULL;
    struct json_out o = json_out_over(schema, sizeof schema - 64);
    json_open(&o, '{');
    json_key(&o, "pattern");
    json_put_str(&o, str_of(pattern));
    snprintf(schema + o.n, 64, "%s}", more);
    return json_parse(&unit_arena, str_of(schema), "schema", ERR_REQUEST, &v, e) == ERR_OK &&
           grammar_compile(&g, v, e) == ERR_OK;
}

static const struct {
    const char *pattern, *more;
    const char *whole[8], *begun[6], *none[10]; /* as JSON, from behind the quote */
} cases[] = {
    {"^[a-c]x*$", "", {"a\"", "cxx\"", "\\u0061\""}, {"", "b", "ax"}, {"\"", "d", "aa", "ax "}},
    {"b",
     "",
     {"b\"", "abc\"", "bb\"",
      "\\n\xc3\xa9"
      "b\""},
     {"", "aaa"},
     {"\"", "aa\""}},
    {"^b", "", {"b\"", "bc\""}, {"b"}, {"a", "\\n", "\xc3"}},
    {"b$", "", {"b\"", "ab\"", "bab\""}, {"ba"}, {"ba\""}},
    {"^$", "", {"\""}, {""}, {"a", "\\", "\xc3"}},
    {"", "", {"\"", "x\""}, {"x"}, {"\x01"}},
    {"^a|b$", "", {"a\"", "ax\"", "xb\"", "b\""}, {"x"}, {"\"", "xa\""}},
    {"(^a|b)c", "", {"ac\"", "xbc\"", "acx\""}, {"xac"}, {"xac\"", "bb\""}},
    {"^(?:ab|a(?<n>c|d){2,3})+$",
     "",
     {"ab\"", "acd\"", "abaddcab\""},
     {"ac"},
     {"ac\"", "accccc", "b"}},
    {"^a{2}b{0}c{0,2}d{1,}?$", "", {"aad\"", "aaccddd\""}, {"aa"}, {"ab", "aab", "aaccc", "aa\""}},
    {"^(a?){3}b$", "", {"b\"", "aaab\""}, {"aaa"}, {"aaaa"}},
    {"^(a*)*$", "", {"\"", "aaaa\""}, {"a"}, {"b"}},
    {"^(|a|bc)$", "", {"\"", "a\"", "bc\""}, {"b"}, {"b\"", "ab"}},
    {"^\\d{3}-\\d{2}$", "", {"123-45\""}, {"12"}, {"12-", "1234", "\xd9"}},
    {"^\\w+\\s\\S$", "", {"a_9\\tx\"", "a \xc3\xa9\""}, {"a\\"}, {"\xc3", "a\\\\", "a  "}},
    {"^[^\\d\\s]$",
     "",
     {"x\"", "\\\"\"", "\\u0000\""},
     {"\\u002"},
     {"1", " ", "\\n", "\\u0020", "\xc3"}},
    {"^.$",
     "",
     {"a\"", "\xf0\x9f\x98\x80\"", "\\t\""},
     {"\xf0\x9f"},
     {"\\n", "\xe2\x80\xa8", "ab"}},
    {"^[\xc3\xa9\xe2\x82\xac-\xe2\x82\xae]$",
     "", /* é, euro to tugrik */
     {"\xc3\xa9\"", "\xe2\x82\xad\"", "\\u20AE\""},
     {"\xe2\x82", "\\u20"},
     {"\xc3\xa8", "\xe2\x83", "\xe2\x82\xaf", "e", "\\u21", "\\u1", "\xf0"}},
    {"^[\xf0\x9f\x98\x80-\xf0\x9f\x98\x82]$",
     "",
     {"\xf0\x9f\x98\x81\""},
     {"\xf0", "\xf0\x9f\x98"},
     {"\\", "\xf0\x90", "\xf0\x9f\x98\x83", "\xf1", "\xc3"}},
    {"^[\\x41\\u0042\\-\\]^]+$", "", {"AB-]^\""}, {"A"}, {"C", "\\\\"}},
    {"^\\/\\.\\*\\t\\0$", "", {"/.*\\t\\u0000\"", "\\/.*\\t\\u0000\""}, {"/.*\\"}, {"/x"}},
    {"^a+$", ", \"minLength\": 2, \"maxLength\": 3", {"aa\"", "aaa\""}, {"a"}, {"a\"", "aaaa"}},
    {"^(a|bcd)$", ", \"minLength\": 2", {"bcd\""}, {"b"}, {"a"}},
    {"^(a|bcd)e*$", ", \"maxLength\": 2", {"a\"", "ae\""}, {"a"}, {"b"}},
    {"^a*$", ", \"type\": [\"string\", \"null\"]", {"aaa\""}, {"a"}, {"b"}},
};

static int reads_string(const char *text)
{
    char all[256];
    snprintf(all, sizeof all, "\"%s", text);
    return unit_reads(&g, all);
}

void regex_reads_what_matches(void)
{
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        struct err_text e = {0};
        bool right = compiles(cases[i].pattern, cases[i].more, &e);
        for (u32 k = 0; k < COUNTOF(cases[i].whole) && cases[i].whole[k]; k++)
            right = right && reads_string(cases[i].whole[k]) == 1;
        for (u32 k = 0; k < COUNTOF(cases[i].begun) && cases[i].begun[k]; k++)
            right = right && reads_string(cases[i].begun[k]) == 0;
        for (u32 k = 0; k < COUNTOF(cases[i].none) && cases[i].none[k]; k++)
            right = right && reads_string(cases[i].none[k]) == -1;
        if (!right)
            printf("pattern %u: %s: %s\n", i, cases[i].pattern, e.text);
        CHECK(right);
    }
}

void regex_says_what_it_does_not_know(void)
{
    static const char *const refused[][2] = {
        {"a(?=b)", "byte 1"},   {"(?!b)", "byte 0"},     {"(?<=a)b", "byte 0"},
        {"(?i)a", "byte 0"},    {"(a)\\1", "byte 3"},    {"\\bword", "byte 0"},
        {"\\p{L}", "byte 0"},   {"a**", "byte 2"},       {"a*+", "byte 2"},
        {"*a", "byte 0"},       {"a{2", "byte 1"},       {"a{3,2}", "byte 1"},
        {"^*", "byte 0"},       {"[]", "byte 0"},        {"[b-a]", "byte 1"},
        {"[a", "byte 0"},       {"(a", "byte 0"},        {"a)", "byte 1"},
        {"\\ud83d", "byte 0"},  {"\\xg0", "byte 0"},     {"[\\w-z]", "byte 1"},
        {"\\", "byte 0"},       {"[[:alpha:]]", "["},    {"(?P<n>a)", "byte 0"},
        {"a{100000}", "10000"}, {"[^\\s\\S]", "no text"}};
    for (u32 i = 0; i < COUNTOF(refused); i++) {
        struct err_text e = {0};
        if (compiles(refused[i][0], "", &e) || !strstr(e.text, refused[i][1]) ||
            !strstr(e.text, "schema.pattern: ")) {
            printf("%s: %s\n", refused[i][0], e.text);
            CHECK(!"refused, and why");
        }
    }
}

void regex_has_ceilings(void)
{
    static const char *const refused[][2] = {
        {"((((a{9}){9}){9}){9})", "1024 steps"},
        {"(((((()*)*){9999}){9999}){9999}b){3000}", "1024 steps"},
        {"(a|b)*a(a|b){12}$", "1024 states"},
        {"^[ab]{300}[cd]{300}[ef]{200}[gh]{99}[ij][kl][mn][op][qr]$", "8192"},
        {"((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))", "32 nested"}};
    static char text[4096];
    struct err_text e = {0};
    for (u32 i = 0; i < COUNTOF(refused); i++) {
        e = (struct err_text){0};
        if (compiles(refused[i][0], "", &e) || !strstr(e.text, refused[i][1])) {
            printf("%s: %s\n", refused[i][0], e.text);
            CHECK(!"refused");
        }
    }
    e = (struct err_text){0};
    for (u32 i = 0; i < 65; i++)
        text[i] = (char)('0' + i);
    text['\\' - '0'] = text['?' - '0'] = text['^' - '0'] = text['[' - '0'] = text[']' - '0'] = ' ';
    CHECK(compiles(text, "", &e));
    text[0] = 0;
    for (u32 i = 0; i < 65; i++)
        snprintf(text + strlen(text), 8, "\\u%04x", i);
    CHECK(!compiles(text, "", &e) && strstr(e.text, "64 different"));
    /* The same pattern is there once. */
    const struct json *v = NULL;
    CHECK(json_parse(&unit_arena,
                     STR("{\"properties\": {\"a\": {\"pattern\": \"^x$\"}, \"b\": {\"pattern\": "
                         "\"^x$\"}, \"c\": {\"pattern\": \"^y$\"}}}"),
                     "schema", ERR_REQUEST, &v, &e) == ERR_OK);
    CHECK(grammar_compile(&g, v, &e) == ERR_OK && g.patterns.n == 2);
}

static u32 random_of(u32 *seed, u32 n)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % n;
}

/* Bytes at random, of those that fit: nothing is begun that cannot be finished, and at least every
 * second time something else than the end fits until it is far. */
void regex_leads_to_an_end(void)
{
    static const char *const formats[] = {"date", "time", "date-time", "uuid", "ipv4", "email"};
    u32 seed = 1;
    for (u32 i = 0; i < COUNTOF(cases) + COUNTOF(formats); i++) {
        struct err_text e = {0};
        char format[64];
        const struct json *v = NULL;
        bool own = i < COUNTOF(cases);
        snprintf(format, sizeof format, "{\"type\": \"string\", \"format\": \"%s\"}",
                 formats[own ? 0 : i - COUNTOF(cases)]);
        CHECK(own ? compiles(cases[i].pattern, cases[i].more, &e)
                  : json_parse(&unit_arena, str_of(format), "s", ERR_REQUEST, &v, &e) == ERR_OK &&
                        grammar_compile(&g, v, &e) == ERR_OK);
        for (u32 round = 0; round < 20; round++) {
            struct grammar_state s;
            grammar_begin(&g, &s);
            for (u32 n = 0; n < 200 && !grammar_closed(&s); n++) {
                struct grammar_state at;
                u32 from = random_of(&seed, 256), k = 0;
                for (; k < 256; k++) {
                    grammar_copy(&at, &s);
                    if (grammar_step(&g, &at, (u8)(from + k)))
                        break;
                }
                CHECK(k < 256);
                grammar_copy(&s, &at);
            }
        }
    }
}
