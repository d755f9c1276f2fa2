#include "tests/unit/words.h"

#include "core/base/json.h"

#include <stdio.h>
#include <string.h>

/* Tokens as bytes, of all that makes a difference in a string: plain, quotes at any place and what
 * may follow them, escapes and characters, whole and begun, broken ones. */
const char *const all_words[WORDS] = {"a",
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
                                      "true",
                                      "<",
                                      ">",
                                      "</",
                                      "a</a",
                                      "\n</a>",
                                      "</a><b=",
                                      "a><b=a>",
                                      ">a</a></b>"};

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

struct tokenizer *words_tokenizer(struct arena *a, const char *const *list, u32 n_words)
{
    static struct arena keep, scratch;
    static char text[1 << 14];
    struct json_out o = json_out_over(text, sizeof text);
    struct err_text e = {0};
    struct tokenizer *t = NULL;
    keep = arena_over("keep", arena_alloc(a, 24 * MIB, 16), 24 * MIB);
    scratch = arena_over("scratch", arena_alloc(a, 24 * MIB, 16), 24 * MIB);
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
    for (u32 i = 0; i < n_words; i++) {
        char key[64];
        u32 bytes = 0;
        for (const char *w = list[i]; *w; w++)
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

bool words_fit(const struct grammar *g, const struct grammar_state *s, const char *word)
{
    struct grammar_state at;
    bool fits = true;
    grammar_copy(&at, s);
    for (; *word && fits; word++)
        fits = grammar_step(g, &at, (u8)*word);
    return fits;
}

enum err words_calls(struct grammar *g, const struct json *schema, bool mark, struct err_text *e)
{
    static const struct grammar_tags tags[] = {
        {STR("<b="), STR(">"), STR(""), STR("</a>"), true},
        {STR("<a>"), STR("</a>"), STR("<b>"), STR("</b>"), false}};
    bool first = !schema || schema->n % 2 == 0;
    struct grammar_call calls[] = {
        {.open = STR("<a>"), .name = STR("a"), .middle = STR("<"), .parameters = schema},
        {.open = STR("<a>"), .name = STR("ab"), .middle = STR("<")}};
    calls[0].tags = calls[1].tags = &tags[!first];
    return grammar_compile_calls(g, calls, 2, STR("</b></a>"), mark ? STR("<a>") : STR(""), e);
}
