/* libFuzzer: a JSON Schema, a NUL, and a text. Whatever the schema: it is a grammar or refused with
 * a message. Whatever the text: what a grammar lets through as a whole is JSON, and behind each of
 * its bytes masks have the tokens that the grammar reads. And read for calls, in one piece or in
 * two, it gives the same; without calls it is what it was, and arguments made of XML are JSON.
 */
#include "core/engine/mask.h"
#include "core/model/tool_call.h"
#include "tests/unit/words.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static struct arena a;

enum { MASKED = 40 /* bytes of a text behind which masks are looked at */ };

static void check_mask(const struct grammar *g, const struct grammar_state *s)
{
    static struct arena keep;
    static struct masker masker;
    static const struct sampling sampling = {.n_stop = 1, .stop = {5}};
    u64 bits[MASK_WORDS(WORDS)];
    struct err_text e = {0};
    if (!masker.kept) {
        struct tokenizer *t = NULL;
        if (arena_open(&keep, "fuzz", (size_t)64 << 20, false, &e) == ERR_OK)
            t = words_tokenizer(&keep, all_words, WORDS);
        if (!t || !mask_lay_out(&masker, &keep, t, WORDS, 3))
            abort();
    }
    mask_put(&masker, g, s, &sampling, bits);
    for (u32 id = 0; id < WORDS; id++) {
        bool fits =
            id == sampling.stop[0] ? grammar_complete(g, s) : words_fit(g, s, all_words[id]);
        ASSERT((bits[id / 64] >> id % 64 & 1) == fits);
    }
}

static void check_grammar(struct str schema, struct str text)
{
    static struct grammar g;
    static struct grammar_state s;
    struct err_text e = {0};
    const struct json *v;
    if (json_parse(&a, schema, "schema", ERR_REQUEST, &v, &e) != ERR_OK)
        return;
    if (grammar_compile(&g, v, &e) != ERR_OK) {
        ASSERT(e.code == ERR_REQUEST && e.text[0]);
        return;
    }
    grammar_begin(&g, &s);
    for (size_t i = 0; i < text.n; i++) {
        if (i < MASKED)
            check_mask(&g, &s);
        if (!grammar_step(&g, &s, (u8)text.p[i]))
            return;
    }
    if (!grammar_complete(&g, &s))
        return;
    enum err code = json_parse(&a, text, "the answer", ERR_REQUEST, &v, &e);
    ASSERT(code == ERR_OK || strstr(e.text, "twice")); /* keys of any name */
}

struct told {
    char p[1 << 16];
    size_t n;
    u32 calls;
};

static void tell(struct told *t, const struct piece *piece)
{
    if (piece->part == PART_NAME)
        t->p[t->n++] = 0;
    ASSERT(piece->text.n && piece->text.n < sizeof t->p - t->n - 1);
    memcpy(t->p + t->n, piece->text.p, piece->text.n);
    t->n += piece->text.n;
}

/* Of any function, a parameter may be what its number says. */
static u32 kinds(const void *of, u64 parameter)
{
    ASSERT(of);
    return parameter % 5 ? parameter & TOOL_ANY : 0;
}

static u32 only_text(const void *of, u64 parameter)
{
    return of ? (u32)parameter : 0;
}

static void take(const struct tool_format *f, struct str text, size_t cut, struct told *t)
{
    struct tool_reader r = tool_reader_of(f, (struct tool_types){kinds, f});
    struct piece piece;
    struct str parts[] = {{text.p, cut}, {text.p + cut, text.n - cut}};
    t->n = 0;
    for (u32 i = 0; i < 2; i++)
        while (tool_next(&r, &parts[i], &piece))
            tell(t, &piece);
    if (tool_end(&r, &piece))
        tell(t, &piece);
    t->calls = r.calls;
}

/* Where all values are text, arguments are JSON whatever they are, and of calls that are over
 * whole.
 */
static void check_arguments(const struct tool_format *f, struct str text)
{
    struct tool_reader r = tool_reader_of(f, (struct tool_types){only_text, NULL});
    struct json_prefix json = {0};
    struct piece piece;
    bool called = false;
    while (tool_next(&r, &text, &piece)) {
        if (piece.part != PART_ARGUMENTS) {
            ASSERT(!called || json_prefix_complete(&json));
            called = piece.part == PART_NAME;
            json = (struct json_prefix){0};
            continue;
        }
        for (size_t i = 0; i < piece.text.n; i++)
            if (!json_prefix_step(&json, piece.text.p[i]))
                abort();
    }
}

static void check_calls(struct str text, size_t cut)
{
    static const char *const taught[] = {"tools <tool_call>",
                                         "tools [TOOL_CALLS]",
                                         "tools [TOOL_CALLS] [ARGS]",
                                         "tools <|tool_call|>",
                                         "tools \"parameters\": dictionary",
                                         "tools <parameter=",
                                         "tools <arg_key>"};
    static struct told whole, parts;
    for (u32 i = 0; i < COUNTOF(taught); i++) {
        const struct tool_format *f = tool_format_of(str_of(taught[i]));
        take(f, text, 0, &whole);
        take(f, text, cut, &parts);
        ASSERT(whole.calls == parts.calls && whole.n == parts.n);
        ASSERT(memcmp(whole.p, parts.p, whole.n) == 0);
        if (tool_format_is_xml(f))
            check_arguments(f, text);
        ASSERT(whole.calls || (whole.n == text.n && memcmp(whole.p, text.p, text.n) == 0));
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    struct err_text e = {0};
    if (!a.base && arena_open(&a, "fuzz", (size_t)256 << 20, false, &e) != ERR_OK)
        abort();
    const u8 *end = n ? memchr(data, 0, n) : NULL;
    if (!end || n > 4096)
        return 0;
    size_t schema_n = (size_t)(end - data), text_n = n - schema_n - 1;
    char *schema = malloc(schema_n + 1), *text = malloc(text_n + 1);
    memcpy(schema, data, schema_n);
    memcpy(text, end + 1, text_n);
    check_grammar((struct str){schema, schema_n}, (struct str){text, text_n});
    check_calls((struct str){text, text_n}, schema_n % (text_n + 1));
    arena_reset(&a, 0);
    free(schema);
    free(text);
    return 0;
}
