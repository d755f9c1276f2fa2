#include "core/engine/mask.h"
#include "tests/unit/unit.h"
#include "tests/unit/words.h"

#include <stdio.h>

static struct masker c;
static struct grammar g;

/* Whatever a token is made of: it may come where the grammar reads it, and only there; a stop id
 * where the text may end. */
static void check(const char *what, const char *text)
{
    static const struct sampling sampling = {.n_stop = 1, .stop = {3}};
    u64 bits[MASK_WORDS(WORDS)];
    struct grammar_state s;
    grammar_begin(&g, &s);
    for (const char *p = text;; p++) {
        bool complete = grammar_complete(&g, &s), any = complete;
        bool some = mask_put(&c, &g, &s, &sampling, bits);
        for (u32 id = 0; id < WORDS; id++) {
            bool fits = id == sampling.stop[0] ? complete : words_fit(&g, &s, all_words[id]);
            any = any || fits;
            if ((bits[id / 64] >> id % 64 & 1) != fits) {
                printf("%s: before %s: token %u\n", what, p, id);
                CHECK(!"it may come as it is read");
            }
        }
        CHECK(some == any);
        if (!*p)
            break;
        CHECK(grammar_step(&g, &s, (u8)*p));
    }
    if (!grammar_complete(&g, &s)) {
        printf("%s\n", text);
        CHECK(!"complete");
    }
}

static void lay_out(void)
{
    struct tokenizer *t = words_tokenizer(&unit_arena, all_words, WORDS);
    CHECK(t && mask_lay_out(&c, &unit_arena, t, WORDS, 16));
}

void mask_has_what_the_grammar_reads(void)
{
    static const char *const cases[][2] = {
        {"{\"type\": \"object\"}", "{\"ab\": \"a\\u0061\xc3\xa9\", \"b\": [1, {\"\": null}]}"},
        {"{\"items\": {\"type\": \"string\", \"minLength\": 2, \"maxLength\": 5}}",
         "[\"abcab\",\"\xe2\x82\xac\\n\", \"\xc3\xa9\xc3\xa9\"]"},
        {"{\"items\": {\"type\": \"string\", \"pattern\": \"^[ab1\\u00e9]{2,4}$\"}}",
         "[\"ab\xc3\xa9\",\"\\u00e91\",\"aaaa\"]"},
        {"{\"items\": {\"pattern\": \"b\", \"maxLength\": 6}}", "[\"aab\",\"b\xe2\x82\xac\\\"\"]"},
        {"{\"items\": {\"anyOf\": [{\"type\": \"string\", \"maxLength\": 2}, {\"enum\": "
         "[\"abca\"]}, "
         "{\"type\": \"string\", \"pattern\": \"^a*$\"}]}}",
         "[\"ab\",\"abca\",\"aaaaaa\"]"},
        {"{\"properties\": {\"a\": {\"maxLength\": 3}, \"b\": {\"maxLength\": 3}}}",
         "{\"a\": \"ab\",\"b\":\"abc\"}"},
        {"{\"items\": {\"type\": \"number\", \"minimum\": -12, \"maximum\": 112}}",
         "[-10,112,1.0]"},
        {"{\"items\": {\"type\": \"number\", \"multipleOf\": 0.2, \"minimum\": -12}}",
         "[-10,112,1.0,0.2]"},
    };
    lay_out();
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        const struct json *v = NULL;
        struct err_text e = {0};
        CHECK(json_parse(&unit_arena, str_of(cases[i][0]), "s", ERR_REQUEST, &v, &e) == ERR_OK);
        CHECK(grammar_compile(&g, v, &e) == ERR_OK);
        check(cases[i][0], cases[i][1]);
    }
}

void mask_has_what_prose_and_thoughts_read(void)
{
    static const struct grammar_call call = {
        .open = STR("<{\""), .name = STR("b"), .middle = STR("\": ")};
    static const struct {
        const char *mark, *begin, *end; /* of calls; of thoughts; NULL: any text, no thoughts */
        const char *text;
    } cases[] = {
        {"<{", NULL, NULL, "a <b {< <{\"b\": {}} <"},
        {"", "<a", "</a", "<a<</</a\n<{\"b\": {}}"},
        {"<{", "<a", "<b", "<ab<<b \"<{\"b\": {}}"},
        {NULL, "<a", "</a", "\n<ab\xc3\xa9</</a\n\na<ab"},
        {NULL, "[a", "[a,b]", " [ab[[a[a,[a,b]"},
        {NULL, "ab", "ba", "ab<bbba b"}, /* marks that begin otherwise */
    };
    struct err_text e = {0};
    lay_out();
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        grammar_compile_text(&g);
        if (cases[i].mark)
            CHECK(grammar_compile_calls(&g, &call, 1, STR("}"), str_of(cases[i].mark), &e) ==
                  ERR_OK);
        for (u32 begun = 0; begun < (cases[i].begin ? 2 : 1); begun++) {
            if (cases[i].begin)
                CHECK(grammar_think(&g, str_of(cases[i].begin), str_of(cases[i].end), begun,
                                    UINT32_MAX, &e) == ERR_OK);
            check(cases[i].text, cases[i].text);
        }
    }
}

void mask_has_what_json_or_calls_read(void)
{
    static const struct grammar_call call = {
        .open = STR("<a>{\""), .name = STR("b"), .middle = STR("\": ")};
    static const char *const texts[] = {" {\"a\": \"<a>\"}", "<a>{\"b\": {}}", "\n<a>{\"b\": {}}"};
    struct err_text e = {0};
    lay_out();
    for (u32 thinks = 0; thinks < 2; thinks++)
        for (u32 i = 0; i < COUNTOF(texts); i++) {
            char text[64];
            CHECK(grammar_compile_calls(&g, &call, 1, STR("}"), STR(""), &e) == ERR_OK);
            CHECK(grammar_or_json(&g, NULL, &e) == ERR_OK);
            if (thinks)
                CHECK(grammar_think(&g, STR("<b>"), STR("</b>"), false, UINT32_MAX, &e) == ERR_OK);
            snprintf(text, sizeof text, "%s%s", thinks ? "<b>{<a></b>" : "", texts[i]);
            check(texts[i], text);
        }
}

void mask_has_what_messages_read(void)
{
    static const struct grammar_call calls[] = {
        {.open = STR("<a><b>"), .name = STR("<"), .middle = STR("ab>"), .text = true},
        {.open = STR("<a><b>"), .name = STR("<b"), .middle = STR(">")}};
    static const char *const texts[] = {"<ab>a b\n<a<a><b><ab>b<a", "<a a>a <<a><b><ab>\"",
                                        "<ab><a><b><b>{\"ab\": 1}", "<a a>b<a><b><b>{}"};
    struct err_text e = {0};
    lay_out();
    for (u32 i = 0; i < COUNTOF(texts); i++) {
        CHECK(grammar_compile_calls(&g, calls, 2, STR(""), STR("<a>"), &e) == ERR_OK);
        grammar_messages(&g, 6);
        CHECK(grammar_think(&g, STR("<a a>"), STR("<a>"), false, UINT32_MAX, &e) == ERR_OK);
        CHECK(grammar_think_on(&g, STR("<b>"), &e) == ERR_OK);
        check(texts[i], texts[i]);
    }
    CHECK(grammar_compile(&g, NULL, &e) == ERR_OK);
    CHECK(grammar_head(&g, STR("<ab>"), &e) == ERR_OK);
    CHECK(grammar_think(&g, STR("<a a>"), STR("<a>"), false, UINT32_MAX, &e) == ERR_OK);
    CHECK(grammar_think_on(&g, STR("<b>"), &e) == ERR_OK);
    check("JSON", "<a a>a<\n<a><b><ab>{\"a\": \"<\"}");
}

void mask_has_what_tags_read(void)
{
    static const char *const tags[][2] = {
        {"{\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"integer\"}}, "
         "\"required\": [\"b\"]}",
         "<a>a<b=a>\nab\n<</a</a>\n<b=b>\n12\n</a></b></a>"},
        {"{\"properties\": {\"a\": {\"enum\": [\"a b\", \"ab\"]}, \"b\": {\"items\": {\"type\": "
         "\"string\", \"maxLength\": 3}}}, \"additionalProperties\": false}",
         "<a>a\n<b=a>\na b\n</a><b=b>[\"ab<\", \"a\"]</a></b></a>"},
        {"{\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"enum\": [\"a\", "
         "\"ab\"]}}, \"title\": \"\"}",
         "<a>ab<b=a\">1</a>\n<b=>\"</a></b>\n</a>"},
        {"{\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"enum\": [\"a\", \"ab\"]}}, "
         "\"type\": \"object\", \"title\": \"\"}",
         "<a>a\n<a>a</a>\n<b>ab\n<</b>\n<a>b</a><b>ab</b></b></a>"},
        {"{\"type\": \"object\"}", "<a>a<a>1\n</a> <b> \n</b><a></a><b></b></b></a>"}};
    struct err_text e = {0};
    const struct json *v = NULL;
    char text[256];
    lay_out();
    for (u32 i = 0; i < COUNTOF(tags); i++) {
        CHECK(json_parse(&unit_arena, str_of(tags[i][0]), "s", ERR_REQUEST, &v, &e) == ERR_OK);
        CHECK(words_calls(&g, v, false, &e) == ERR_OK);
        check(tags[i][0], tags[i][1]);
        CHECK(words_calls(&g, v, true, &e) == ERR_OK);
        snprintf(text, sizeof text, "a<%s ab", tags[i][1]);
        check(tags[i][0], text);
    }
}
