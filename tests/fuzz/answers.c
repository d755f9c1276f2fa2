/* libFuzzer: a JSON Schema, a NUL, and a text. Whatever the schema: it is a grammar or refused with
 * a message. Whatever the text: what a grammar lets through as a whole is JSON, and behind each of
 * its bytes masks have the tokens that the grammar reads. And read for calls and thoughts, in one
 * piece or in two, it gives the same; without calls it is what it was, and arguments made of XML
 * are JSON, which fits the schema where a grammar has made the XML; and so do calls and JSON in
 * messages that a grammar has made.
 */
#include "core/engine/foresee.h"
#include "core/engine/mask.h"
#include "core/model/answer.h"
#include "net/kinds.h"
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

static void check_foreseen(const struct grammar *g, const struct grammar_state *s, struct str said)
{
    static struct grammar_state at;
    char *own = malloc(said.n + 1), out[64];
    memcpy(own, said.p, said.n);
    u32 n = foresee(g, s, foresee_blanks((struct str){own, said.n}), out, sizeof out);
    grammar_copy(&at, s);
    ASSERT(grammar_read(g, &at, (struct str){out, n}));
    free(own);
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
        if (i < MASKED) {
            check_mask(&g, &s);
            check_foreseen(&g, &s, (struct str){text.p, i});
        }
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
    while (tool_end(&r, &piece))
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
                                         "tools <arg_key>",
                                         "tools <param name=",
                                         "tools <|tool_call>",
                                         "tools <|tool_call_start|>"};
    static struct told whole, parts;
    for (u32 i = 0; i < COUNTOF(taught); i++) {
        const struct tool_format *f = tool_format_of(str_of(taught[i]));
        take(f, text, 0, &whole);
        take(f, text, cut, &parts);
        ASSERT(whole.calls == parts.calls && whole.n == parts.n);
        ASSERT(memcmp(whole.p, parts.p, whole.n) == 0);
        bool as_json = !tool_call_tags(f) && memmem(text.p, text.n, "\"name\"", 6);
        if (tool_format_is_typed(f) && !as_json) /* which is as it was written */
            check_arguments(f, text);
        ASSERT(whole.calls || (whole.n == text.n && memcmp(whole.p, text.p, text.n) == 0));
    }
}

/* --- calls in XML and literals by a schema ---------------------------------------------------- */

/* kinds_read's list: where it is only for a request. */
static u32 kinds_listed(const void *of, u64 parameter)
{
    const struct str *list = of;
    for (size_t i = 0; i < list->n; i += sizeof(u64)) {
        u64 one;
        memcpy(&one, list->p + i, sizeof one);
        if (((one ^ parameter) & ~(u64)TOOL_ANY) == 0)
            return one & TOOL_ANY;
    }
    return TOOL_ANY;
}

/* A text of the grammar, by bytes that choose among those that may come; 1: a mark as it is. */
static size_t say(const struct grammar *g, struct str by, const char *mark, char *out, size_t most)
{
    struct grammar_state s, to;
    size_t n = 0, at = 0;
    grammar_begin(g, &s);
    for (size_t i = 0; i < by.n && n + 1 < most; i += at == 0) {
        u8 c = (u8)by.p[i] & 127;
        u32 k = 0;
        if (c == 1) {
            c = (u8)mark[at++];
            at = mark[at] ? at : 0;
        }
        do { /* ASCII where there is such a one */
            out[n] = (char)(k < 127 ? 1 + (c + 126 + k) % 127 : k + 1);
            grammar_copy(&to, &s);
        } while (!grammar_step(g, &to, (u8)out[n]) && ++k < 255);
        if (k == 255)
            break;
        grammar_copy(&s, &to);
        if (n < MASKED)
            check_mask(g, &s);
        n++;
    }
    return grammar_complete(g, &s) ? n : 0;
}

/* Where a schema asks for nothing, numbers are longer and lists are deeper than grammars have them.
 */
static bool is_plain(const struct json *v, u32 depth)
{
    bool plain = depth < 16 &&
                 !(v->type == JSON_NUMBER && (v->text.n > 15 || memchr(v->text.p, 'e', v->text.n) ||
                                              memchr(v->text.p, 'E', v->text.n)));
    for (const struct json *m = v->child; m && plain; m = m->next)
        plain = is_plain(m, depth + 1);
    return plain;
}

/* What a schema lets through in XML, a reader makes JSON of that fits the schema. */
static void check_fits(const struct json *schema, struct str said, const struct tool_format *f)
{
    static struct grammar g;
    static struct grammar_state s;
    static char arguments[1 << 14], again[1 << 14];
    struct refusal refusal = {0};
    struct err_text e = {0};
    struct str list;
    struct json name = {.type = JSON_STRING, .text = STR("f"), .key = STR("name")},
                parameters = *schema;
    struct json function = {.type = JSON_OBJECT, .n = 2, .child = &name, .key = STR("function")},
                tool = {.type = JSON_OBJECT, .n = 1, .child = &function},
                tools = {.type = JSON_ARRAY, .n = 1, .child = &tool};
    const struct json *v;
    struct piece piece;
    size_t n = 0;
    name.next = &parameters;
    parameters.key = STR("parameters");
    parameters.next = NULL;
    if (!kinds_read(&a, &tools, &list, &refusal))
        return;
    struct tool_reader r = tool_reader_of(f, (struct tool_types){kinds_listed, &list});
    while (tool_next(&r, &said, &piece) || tool_end(&r, &piece)) {
        ASSERT(piece.part != PART_TEXT);
        if (piece.part == PART_NAME)
            continue;
        ASSERT(piece.text.n < sizeof arguments - n);
        memcpy(arguments + n, piece.text.p, piece.text.n);
        n += piece.text.n;
    }
    ASSERT(r.calls == 1);
    enum err code = json_parse(&a, (struct str){arguments, n}, "arguments", ERR_REQUEST, &v, &e);
    bool believed = n > TOOL_VALUE_BYTES; /* a list that is longer, and breaks behind that */
    ASSERT(code == ERR_OK || believed || strstr(e.text, "twice")); /* of any name */
    if (code != ERR_OK || !is_plain(v, 0))
        return;
    struct json_out o = json_out_over(again, sizeof again);
    json_put_tree(&o, v);
    if (o.full || grammar_compile(&g, schema, &e) != ERR_OK)
        return;
    grammar_begin(&g, &s);
    for (size_t i = 0; i < o.n; i++)
        if (!grammar_step(&g, &s, (u8)again[i]))
            abort();
    ASSERT(grammar_complete(&g, &s));
}

static void check_xml(struct str schema, struct str text)
{
    static const char *const taught[] = {"tools <parameter=", "tools <arg_key>",
                                         "tools <param name=", "tools <|tool_call>",
                                         "tools <|tool_call_start|>"};
    static struct grammar g;
    static char said[1 << 12];
    const struct json *v;
    struct err_text e = {0};
    if (json_parse(&a, schema, "schema", ERR_REQUEST, &v, &e) != ERR_OK || v->type != JSON_OBJECT)
        return;
    for (u32 i = 0; i < COUNTOF(taught); i++) {
        const struct tool_format *f = tool_format_of(str_of(taught[i]));
        const struct tool_tags *own = tool_call_tags(f);
        struct grammar_tags tags = {0};
        if (own)
            tags = (struct grammar_tags){str_of(own->key), str_of(own->key_end), str_of(own->value),
                                         str_of(own->value_end), own->lines};
        struct grammar_call call = {.open = tool_call_open(f, true),
                                    .name = STR("f"),
                                    .middle = tool_call_middle(f),
                                    .tags = own ? &tags : NULL,
                                    .parameters = v};
        struct str close = tool_call_close(f, true);
        e = (struct err_text){0};
        if (grammar_compile_calls(&g, &call, 1, close, (struct str){0}, &e) != ERR_OK) {
            ASSERT(e.code == ERR_REQUEST && e.text[0]);
            continue;
        }
        size_t n = say(&g, text, own ? own->value_end : "\"", said, sizeof said);
        if (n)
            check_fits(v, (struct str){said, n}, f);
    }
}

/* --- messages -----------------------------------------------------------------------------------
 */

static const char harmony[] = "tools <|channel|> <|message|>";

/* Of a text that a grammar has made: calls are of "f" and fit the schema; json: so does the text.
 */
static void check_parts(const struct json *schema, const struct answer_format *f, struct str said)
{
    static struct grammar g;
    static struct grammar_state s;
    struct answer_reader r = answer_reader_of(f);
    struct err_text e = {0};
    struct piece piece;
    enum part wanted = f->calls ? PART_ARGUMENTS : PART_TEXT, last = PART_THOUGHT;
    bool open = false;
    if (grammar_compile(&g, schema, &e) != ERR_OK)
        abort();
    while (answer_next(&r, &said, &piece) || answer_end(&r, &piece)) {
        ASSERT(piece.part != PART_NAME || str_is(piece.text, "f"));
        ASSERT(!open || piece.part == wanted);
        if (piece.part == wanted && last != wanted)
            grammar_begin(&g, &s);
        last = piece.part;
        open = last == wanted || last == PART_NAME;
        for (size_t i = 0; last == wanted && i < piece.text.n; i++)
            if (!grammar_step(&g, &s, (u8)piece.text.p[i]))
                abort();
    }
    ASSERT(last != PART_NAME && (last != wanted || grammar_complete(&g, &s)));
    ASSERT(f->calls || last == wanted);
}

static bool think(struct grammar *g, const struct thought_format *t, bool begun)
{
    struct err_text e = {0};
    return grammar_think(g, str_of(t->begin), str_of(t->end), begun, 99, &e) == ERR_OK &&
           grammar_think_on(g, str_of(t->next), &e) == ERR_OK;
}

static void check_messages(struct str schema, struct str text)
{
    static struct grammar g;
    static char said[1 << 12];
    const struct tool_format *calls = tool_format_of(str_of(harmony));
    const struct thought_format *t = thought_format_of(str_of(harmony));
    const struct json *v;
    struct err_text e = {0};
    if (json_parse(&a, schema, "schema", ERR_REQUEST, &v, &e) != ERR_OK || v->type != JSON_OBJECT)
        return;
    struct str end = str_of(t->end), next = str_of(t->next);
    const struct grammar_call heads[] = {
        {.open = end, .name = next, .middle = str_of(t->text), .text = true},
        {.open = end, .name = next, .middle = str_of(t->preamble), .text = true},
        {.open = tool_call_open(calls, false),
         .name = STR("f"),
         .middle = tool_call_middle(calls),
         .parameters = v}};
    struct answer_format f = {.thoughts = t, .first = THOUGHTS_MAY, .calls = calls};
    for (u32 i = 0; i < 6; i++) { /* any text, or a call is demanded; where it begins */
        bool any = i % 2;
        f.first = (enum thoughts)(i / 2);
        if (grammar_compile_calls(&g, any ? heads : heads + 2, any ? 3 : 1, STR(""),
                                  any ? end : (struct str){0}, &e) != ERR_OK)
            break;
        grammar_messages(&g, f.first == THOUGHTS_NONE ? 0 : (u32)(end.n + next.n));
        if (f.first != THOUGHTS_NONE && !think(&g, t, f.first == THOUGHTS_OPEN))
            break;
        size_t n = say(&g, text, t->end, said, sizeof said);
        if (n)
            check_parts(v, &f, (struct str){said, n});
    }
    f = (struct answer_format){.thoughts = t, .first = THOUGHTS_MAY, .formed = true};
    if (grammar_compile(&g, v, &e) != ERR_OK || grammar_head(&g, str_of(t->text), &e) != ERR_OK ||
        !think(&g, t, false))
        return;
    size_t n = say(&g, text, t->end, said, sizeof said);
    if (n)
        check_parts(v, &f, (struct str){said, n});
}

/* Each part behind its letter, neighbours of one kind in one. */
static void read_answer(const struct answer_format *f, struct str text, size_t cut, struct told *t)
{
    struct answer_reader r = answer_reader_of(f);
    struct piece piece;
    struct str parts[] = {{text.p, cut}, {text.p + cut, text.n - cut}};
    enum part last = PART_NAME;
    t->n = 0;
    for (u32 i = 0; i < 3; i++)
        while (i < 2 ? answer_next(&r, &parts[i], &piece) : answer_end(&r, &piece)) {
            if (piece.part != last || piece.part == PART_NAME)
                t->p[t->n++] = "TNAR"[piece.part];
            last = piece.part;
            tell(t, &piece);
        }
    t->calls = r.calls.calls;
}

/* Told apart, a text with thoughts is the same in one piece and in two; and when they are left out
 * the rest is. */
static void check_thoughts(struct str text, size_t cut)
{
    static struct told whole, parts;
    const struct answer_format forms[] = {
        {.thoughts = thought_format_of(STR("</think>")), .first = THOUGHTS_MAY},
        {.thoughts = thought_format_of(STR("[/THINK]")), .first = THOUGHTS_OPEN},
        {.thoughts = thought_format_of(STR("</think>")),
         .first = THOUGHTS_MAY,
         .calls = tool_format_of(STR("tools <tool_call>"))},
        {.thoughts = thought_format_of(STR("</think>")), .first = THOUGHTS_OPEN, .left_out = true},
        {.thoughts = thought_format_of(STR("</think> </answer>")), .first = THOUGHTS_MAY},
        {.thoughts = thought_format_of(STR("</think> </answer>")),
         .first = THOUGHTS_MAY,
         .left_out = true,
         .calls = tool_format_of(STR("tools <tool_call>"))},
        {.thoughts = thought_format_of(STR("<channel|>")),
         .first = THOUGHTS_MAY,
         .calls = tool_format_of(STR("tools <|tool_call>"))},
        {.thoughts = thought_format_of(STR("<channel|>")), .left_out = true},
        {.thoughts = thought_format_of(str_of(harmony)), .first = THOUGHTS_MAY},
        {.thoughts = thought_format_of(str_of(harmony)),
         .first = THOUGHTS_MAY,
         .calls = tool_format_of(str_of(harmony))},
        {.thoughts = thought_format_of(str_of(harmony)),
         .first = THOUGHTS_NONE,
         .raw = true,
         .calls = tool_format_of(str_of(harmony))},
        {.thoughts = thought_format_of(str_of(harmony)), .first = THOUGHTS_OPEN, .left_out = true}};
    for (u32 i = 0; i < COUNTOF(forms); i++) {
        read_answer(&forms[i], text, 0, &whole);
        read_answer(&forms[i], text, cut, &parts);
        ASSERT(whole.calls == parts.calls && whole.n == parts.n);
        ASSERT(memcmp(whole.p, parts.p, whole.n) == 0);
        ASSERT(!forms[i].left_out || whole.n == 0 || whole.p[0] == 'T');
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
    check_xml((struct str){schema, schema_n}, (struct str){text, text_n});
    check_messages((struct str){schema, schema_n}, (struct str){text, text_n});
    check_calls((struct str){text, text_n}, schema_n % (text_n + 1));
    check_thoughts((struct str){text, text_n}, schema_n % (text_n + 1));
    arena_reset(&a, 0);
    free(schema);
    free(text);
    return 0;
}
