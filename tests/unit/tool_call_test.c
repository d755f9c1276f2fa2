/* Each text is read whole, byte by byte and cut in two at every offset: always the same comes out.
 */
#include "core/model/tool_call.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static const char hermes[] = "{% if tools %} <tool_call> {% endif %}";
static const char mistral[] = "{% if tools %}[AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]";
static const char mistral11[] = "{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}";
static const char phi[] = "{{ tools }}<|tool_call|>";
static const char llama[] =
    "{{ tools }}{\"name\": function name, \"parameters\": dictionary of ...}";

/* What has come: T(text) N(name) A(arguments), neighbours of one kind in one. */
struct told {
    char text[8192];
    size_t n;
    enum part last;
    bool any;
};

static void tell(struct told *t, const struct piece *p)
{
    if (!t->any || p->part != t->last || p->part == PART_NAME) {
        if (t->any)
            t->text[t->n++] = ')';
        t->text[t->n++] = "TNA"[p->part];
        t->text[t->n++] = '(';
    }
    t->any = true;
    t->last = p->part;
    memcpy(t->text + t->n, p->text.p, p->text.n);
    t->n += p->text.n;
}

static void take(struct tool_reader *r, const char *p, size_t n, struct told *t)
{
    struct str text = {p, n};
    struct piece piece;
    while (tool_next(r, &text, &piece)) {
        CHECK(piece.text.n > 0 && piece.text.n <= 4096);
        tell(t, &piece);
    }
    CHECK(text.n == 0);
}

static const char *finish(struct tool_reader *r, struct told *t)
{
    struct piece piece;
    if (tool_end(r, &piece))
        tell(t, &piece);
    if (t->any)
        t->text[t->n++] = ')';
    t->text[t->n] = 0;
    return t->text;
}

static void check(const char *format, const char *text, size_t n, const char *wanted, u32 *calls)
{
    static struct told whole, cut;
    const struct tool_format *f = tool_format_of(str_of(format));
    CHECK(f != NULL);
    struct tool_reader first = tool_reader_of(f);
    whole = (struct told){0};
    take(&first, text, n, &whole);
    finish(&first, &whole);
    if (wanted && strcmp(whole.text, wanted) != 0) {
        printf("of %s:\n  got    %s\n  wanted %s\n", text, whole.text, wanted);
        CHECK(!"as wanted");
    }
    for (size_t at = 0; at <= n + 1; at++) { /* n + 1: byte by byte */
        struct tool_reader r = tool_reader_of(f);
        cut = (struct told){0};
        if (at <= n) {
            take(&r, text, at, &cut);
            take(&r, text + at, n - at, &cut);
        }
        for (size_t i = 0; at > n && i < n; i++)
            take(&r, text + i, 1, &cut);
        CHECK(strcmp(finish(&r, &cut), whole.text) == 0 && r.calls == first.calls);
    }
    *calls += first.calls;
}

static void reads(const char *format, const char *text, const char *wanted)
{
    u32 calls = 0;
    check(format, text, strlen(text), wanted, &calls);
}

void tool_calls_of_every_format(void)
{
    reads(hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}\n</tool_call>",
          "N(f)A({\"a\": [1, {}]})");
    reads(hermes,
          "I look.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>"
          "{\"name\": \"g.h-2\", \"arguments\": {\"s\": \"a\\\"}{\\\\\"}}</tool_call> Done. \n",
          "T(I look.)N(f)A({})N(g.h-2)A({\"s\": \"a\\\"}{\\\\\"})T(Done. \n)");
    reads(hermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "N(f)A({})");
    reads(hermes,
          "<tool_call>{\"type\": \"function\", \"name\": \"f\", \"id\": \"1\"}</tool_call>!",
          "N(f)A({})T(!)");
    reads(hermes,
          "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"x\": {\"}\": []}}"
          "</tool_call>",
          "N(f)A({\"a\": 1})"); /* members behind the arguments */
    reads(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>so",
          "N(f)A({\"a\": 1})T(so)"); /* forgotten brackets */
    reads(hermes,
          "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]</tool_call>",
          "N(f)A({})N(g)A({})");
    reads(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<tool_call>\"",
          "N(f)A({\"a\": \"<tool_call>\")"); /* cut off by max_tokens */
    reads(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_c", "N(f)A({})");

    reads(mistral,
          "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"},"
          " {\"name\": \"g\", \"arguments\": {}}]",
          "N(f)A({\"a\": 1})N(g)A({})");
    reads(mistral, "Yes.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] ", "T(Yes.)N(f)A({})");
    reads(mistral11, "[TOOL_CALLS]f[ARGS]{\"a\": {}}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}",
          "N(f)A({\"a\": {}})N(g)A({})");
    reads(phi, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>",
          "N(f)A({\"a\": 1})");
    reads(llama, "\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "N(f)A({\"a\": 1})");
    reads(llama,
          "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
          "{\"name\": \"g\", \"parameters\": {}}",
          "N(f)A({})N(g)A({})");

    CHECK(tool_format_is_special(tool_format_of(str_of(mistral))));
    CHECK(!tool_format_is_special(tool_format_of(str_of(hermes))));
    CHECK(!tool_format_of(STR("{{ messages }} <tool_call>")));        /* takes no tools */
    CHECK(!tool_format_of(STR("{{ tools }} <tool_call><function="))); /* XML */
    CHECK(!tool_format_of(STR("{{ tools }} {{ messages }}")));
}

/* Text stays what it is, to the byte. */
static void is_text(const char *format, const char *text)
{
    char wanted[4096];
    snprintf(wanted, sizeof wanted, *text ? "T(%s)" : "%s", text);
    reads(format, text, wanted);
}

void tool_calls_that_are_none(void)
{
    static const char *const texts[] = {
        "",
        " ",
        "Hello  world. \n\n",
        "a < b <<tool_call",
        "<tool_call>",
        "<tool_call>\n{",
        "<tool_call>{\"name\": 7}",
        "<tool_call>{\"name\": \"\"}",
        "<tool_call>{}</tool_call>",
        "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": 1}",
        "<tool_call>{\"name\": \"\\u0066\"}",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"",
        "<tool_call>f()</tool_call>",
        "{\"name\": \"f\", \"arguments\": {}}",
        "h\xc3\xa9 <\xe2\x82\xac>",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"};
    for (u32 i = 0; i < COUNTOF(texts); i++)
        is_text(hermes, texts[i]);
    is_text(llama, "The answer is {\"name\": \"f\", \"parameters\": {}}");
    is_text(llama, "{\"answer\": 42}");
    is_text(llama, "{\"name\": \"Ada\", \"age\": 36}");
    is_text(mistral11, "[TOOL_CALLS][ARGS]{}");
    is_text(mistral11, "[TOOL_CALLS]f[ARGS] x");

    /* A name beyond its limit; and a way to the arguments beyond what is held. */
    char text[2048];
    snprintf(text, sizeof text, "<tool_call>{\"name\": \"%065d\", \"arguments\": {}}", 0);
    is_text(hermes, text);
    snprintf(text, sizeof text, "<tool_call>{\"note\": \"%0600d\xe2\x82\xac\", \"name\": \"f\"}",
             0);
    is_text(hermes, text);
    snprintf(text, sizeof text, "<tool_call>{\"note\": \"%0*d\xe2\x82\xac\"}", TOOL_HELD_BYTES - 24,
             0);
    is_text(hermes, text);
    snprintf(text, sizeof text, "a%*s<tool_call>", 700, "");
    is_text(hermes, text);
}

void tool_calls_of_noise(void)
{
    static const char *const pieces[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<tool",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         "\"name\": \"f\"",
                                         "\"arguments\": {",
                                         ", ",
                                         "\"",
                                         "\\",
                                         " ",
                                         "\n",
                                         "x",
                                         ";",
                                         ":",
                                         "<|tool_call|>",
                                         "<|/tool_call|>",
                                         "{\"name\": \"g\", \"arguments\": {}}",
                                         "<"};
    static const char *const all[] = {hermes, mistral, mistral11, phi, llama};
    u32 seed = 1, calls = 0;
    for (u32 i = 0; i < 3000; i++) {
        char text[512];
        size_t n = 0;
        for (u32 k = 0; k < 8; k++) {
            seed = seed * 1664525 + 1013904223;
            const char *piece = pieces[(seed >> 8) % COUNTOF(pieces)];
            memcpy(text + n, piece, strlen(piece));
            n += strlen(piece);
        }
        text[n] = 0;
        char as_text[600];
        snprintf(as_text, sizeof as_text, "T(%s)", text);
        struct tool_reader r = tool_reader_of(tool_format_of(str_of(all[i % COUNTOF(all)])));
        static struct told told;
        told = (struct told){0};
        take(&r, text, n, &told);
        finish(&r, &told);
        CHECK(r.calls || strcmp(told.text, as_text) == 0);
        check(all[i % COUNTOF(all)], text, n, NULL, &calls);
    }
    CHECK(calls > 20);
}
