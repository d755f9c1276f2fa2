#include "core/engine/choose.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

/* Tokens as bytes, of all that makes a difference in a string: plain, quotes at any place and what
 * may follow them, escapes and characters, whole and begun, broken ones. */
static const char *const words[] = {"a",
                                    "b",
                                    "ab",
                                    "abc",
                                    "aaaa",
                                    " ",
                                    " a",
                                    " \"",
                                    "  ",
                                    " 1",
                                    "1",
                                    "12",
                                    "-",
                                    ".",
                                    "0",
                                    "\"",
                                    "a\"",
                                    "ab\"",
                                    "\",",
                                    "\",\"",
                                    "a\", \"b",
                                    "\"]",
                                    "abc\"]",
                                    "\"}",
                                    "\":",
                                    "\"\"",
                                    "\"a",
                                    "[\"",
                                    "[",
                                    "]",
                                    "{",
                                    "{\"",
                                    "}",
                                    ",",
                                    ":",
                                    "\\",
                                    "a\\",
                                    "\\\"",
                                    "\\\"\"",
                                    "\\n",
                                    "ab\\nb\"",
                                    "\\x",
                                    "\\u",
                                    "\\u00",
                                    "u0061",
                                    "\\u0061\"",
                                    "\\u0061\\u00e9",
                                    "\\ud83d",
                                    "\\uD7ff",
                                    "\\u00g",
                                    "\n",
                                    "a\n",
                                    "\"\n",
                                    "\x7f",
                                    "\xc3\xa9",
                                    "\xc3",
                                    "a\xc3",
                                    "\xa9",
                                    "\xa9\"",
                                    "\xe2\x82\xac",
                                    "\xe2\x82",
                                    "\xac\"]",
                                    "\xed\xa0",
                                    "\xf0\x9f\x98\x80\"",
                                    "\xf0\x9f",
                                    "\xff",
                                    "a\xff",
                                    "\xc3\"",
                                    "null",
                                    "true"};

/* Byte-level BPE writes bytes as characters: those that are none, from U+0100 on. */
static u32 put_byte(char *out, u8 byte)
{
    static const u8 none[][2] = {{0, 32}, {127, 160}, {173, 173}};
    u32 cp = 0x100, n = 0;
    for (u32 b = 0; b <= byte; b++) {
        bool is_none = false;
        for (u32 i = 0; i < COUNTOF(none); i++)
            is_none = is_none || (b >= none[i][0] && b <= none[i][1]);
        if (b == byte)
            cp = is_none ? 0x100 + n : b;
        n += is_none;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}

static struct tokenizer *make(void)
{
    static struct arena keep, scratch;
    static char text[1 << 14];
    struct json_out o = json_out_over(text, sizeof text);
    struct err_text e = {0};
    struct tokenizer *t = NULL;
    keep = arena_over("keep", arena_alloc(&unit_arena, 24 * MIB, 16), 24 * MIB);
    scratch = arena_over("scratch", arena_alloc(&unit_arena, 24 * MIB, 16), 24 * MIB);
    int n =
        snprintf(text, sizeof text,
                 "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
                 "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                 "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                 "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                 "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                 "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":");
    o.n = (size_t)n;
    json_open(&o, '{');
    for (u32 i = 0; i < COUNTOF(words); i++) {
        char key[64];
        u32 bytes = 0;
        for (const char *w = words[i]; *w; w++)
            bytes += put_byte(key + bytes, (u8)*w);
        json_key_str(&o, (struct str){key, bytes});
        json_put_u64(&o, i);
    }
    json_close(&o, '}');
    snprintf(text + o.n, sizeof text - o.n, "}}");
    const struct tokenizer_source from[TOKENIZER_FILES] = {{"dir/tokenizer.json", str_of(text)}};
    if (tokenizer_parse(&keep, &scratch, from, &t, &e) != ERR_OK)
        printf("%s\n", e.text);
    return t;
}

static struct chooser c;
static struct grammar g;

/* Is it chosen where no other one could be? */
static bool chosen(const struct grammar_state *s, u32 id)
{
    u32 prompt = 0;
    float *logits = choose_row(&c, 0);
    struct sampling sampling = {.top_p = 1, .repetition_penalty = 1};
    struct step_result result;
    for (u32 i = 0; i < COUNTOF(words); i++)
        logits[i] = i == id ? 1 : -INFINITY;
    return choose_token(&c,
                        &(struct choosing){.grammar = &g,
                                           .state = s,
                                           .sampling = &sampling,
                                           .tokens = &prompt,
                                           .n_prompt = 1,
                                           .n_tokens = 1,
                                           .logits = logits},
                        &result);
}

static bool reads(const struct grammar_state *s, u32 id)
{
    struct grammar_state at;
    grammar_copy(&at, s);
    bool fits = true;
    for (const char *w = words[id]; *w && fits; w++)
        fits = grammar_step(&g, &at, (u8)*w);
    return fits;
}

/* Whatever a token is made of: it may be chosen where the grammar reads it, and only there. */
void choose_takes_what_the_grammar_reads(void)
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
    };
    struct tokenizer *t = make();
    CHECK(t && choose_lay_out(&c, &unit_arena, t, COUNTOF(words), 1));
    for (u32 i = 0; i < COUNTOF(cases); i++) {
        const struct json *v = NULL;
        struct err_text e = {0};
        struct grammar_state s;
        CHECK(json_parse(&unit_arena, str_of(cases[i][0]), "s", ERR_REQUEST, &v, &e) == ERR_OK);
        CHECK(grammar_compile(&g, v, &e) == ERR_OK);
        grammar_begin(&g, &s);
        for (const char *p = cases[i][1];; p++) {
            for (u32 id = 0; id < COUNTOF(words); id++)
                if (chosen(&s, id) != reads(&s, id)) {
                    printf("%s: before %s: token %u\n", cases[i][0], p, id);
                    CHECK(!"chosen as it is read");
                }
            if (!*p)
                break;
            CHECK(grammar_step(&g, &s, (u8)*p));
        }
        CHECK(grammar_complete(&g, &s));
    }
}
