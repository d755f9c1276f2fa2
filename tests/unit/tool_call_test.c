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
static const char nemotron[] = "{{ tools }}<TOOLCALL>[{\"name\": \"tool_name1\"";
static const char llama[] =
    "{{ tools }}{\"name\": function name, \"parameters\": dictionary of ...}";
static const char xml[] = "{{ tools }}<tool_call><function={{ name }}><parameter={{ key }}>";
static const char gemma[] = "{{ tools }}<|tool_call>call:";
static const char lfm[] = "List of tools: {{ tools }}";
static const char minicpm[] = "{{ tools }}<function name=\"{{ name }}\"><param name=\"{{ key }}\">";
static const char glm[] = "{{ tools }}<tool_call>{{ name }}<arg_key>";

/* Of f and g, s is text and o text or null. */
static u32 kinds(const void *of, u64 parameter)
{
    u32 found = TOOL_ANY;
    ASSERT(of == xml);
    for (u32 i = 0; i < 2; i++) {
        struct str name = i ? STR("g") : STR("f");
        found = parameter == tool_parameter(name, STR("s"))   ? 0
                : parameter == tool_parameter(name, STR("o")) ? TOOL_NULL
                                                              : found;
    }
    return found;
}

static struct tool_reader reader_of(const char *format)
{
    return tool_reader_of(tool_format_of(str_of(format)), (struct tool_types){kinds, xml});
}

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
    while (tool_end(r, &piece))
        tell(t, &piece);
    if (t->any)
        t->text[t->n++] = ')';
    t->text[t->n] = 0;
    return t->text;
}

static void check(const char *format, const char *text, size_t n, const char *wanted, u32 *calls)
{
    static struct told whole, cut;
    CHECK(tool_format_of(str_of(format)));
    struct tool_reader first = reader_of(format);
    whole = (struct told){0};
    take(&first, text, n, &whole);
    finish(&first, &whole);
    if (wanted && strcmp(whole.text, wanted) != 0) {
        printf("of %s:\n  got    %s\n  wanted %s\n", text, whole.text, wanted);
        CHECK(!"as wanted");
    }
    for (size_t at = 0; at <= n + 1; at++) { /* n + 1: byte by byte */
        struct tool_reader r = reader_of(format);
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

static void is_text(const char *format, const char *text);

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
    reads(nemotron,
          "So.\n\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
          "\"arguments\": {}}]</TOOLCALL>",
          "T(So.)N(f)A({\"a\": 1})N(g)A({})");
    reads(llama, "\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "N(f)A({\"a\": 1})");
    reads(llama,
          "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
          "{\"name\": \"g\", \"parameters\": {}}",
          "N(f)A({})N(g)A({})");

    CHECK(tool_format_is_special(tool_format_of(str_of(mistral))));
    CHECK(!tool_format_is_special(tool_format_of(str_of(hermes))));
    CHECK(!tool_format_of(STR("{{ messages }} <tool_call>")));        /* takes no tools */
    CHECK(!tool_format_of(STR("{{ tools }} <tool_call><function="))); /* of no known form */
    CHECK(tool_format_is_typed(tool_format_of(str_of(xml))));
    CHECK(tool_format_is_typed(tool_format_of(str_of(glm))));
    CHECK(!tool_format_is_typed(tool_format_of(str_of(hermes))));
    CHECK(tool_format_is_typed(tool_format_of(str_of(minicpm))));
    CHECK(tool_format_is_special(tool_format_of(str_of(minicpm))));
    CHECK(!tool_format_of(STR("{{ tools }} {{ messages }}")));
    const struct tool_format *g = tool_format_of(str_of(gemma)), *l = tool_format_of(str_of(lfm));
    CHECK(tool_format_is_special(g) && tool_format_is_typed(g) && !tool_format_is_python(g));
    CHECK(tool_format_is_special(l) && tool_format_is_typed(l) && tool_format_is_python(l));
    CHECK(tool_format_of(STR("tools <|tool_call_start|>")) == l && !tool_call_tags(l));
}

void tool_calls_in_xml(void)
{
    reads(xml,
          "Let me see.\n\n<tool_call>\n<function=f>\n<parameter=s>\nZ\xc3\xbcrich\n</parameter>\n"
          "<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>",
          "T(Let me see.)N(f)A({\"s\": \"Z\xc3\xbcrich\", \"n\": 3})");
    reads(xml,
          "<tool_call><function=f></function></tool_call>\n <tool_call>\n<function=g.h-2>\n"
          "</function>\n</tool_call>\nDone. \n",
          "N(f)A({})N(g.h-2)A({})T(Done. \n)");
    reads(xml, "<tool_call><function=f></tool_call>!", "N(f)A({})T(!)");

    /* Forgotten marks. */
    reads(xml, "I do.\n<function=f>\n<parameter=s>a</parameter>\n</function>\n</tool_call>\n",
          "T(I do.)N(f)A({\"s\": \"a\"})");
    reads(xml, "<function=f><parameter=s>a</parameter></function><function=g></function>so",
          "N(f)A({\"s\": \"a\"})N(g)A({})T(so)");
    reads(xml, "<tool_call><function=f><parameter=s>a</parameter></tool_call> so",
          "N(f)A({\"s\": \"a\"})T(so)");
    reads(xml,
          "<tool_call><function=f><parameter=s>a</parameter>\n<tool_call><function=g></function>",
          "N(f)A({\"s\": \"a\"})N(g)A({})");
    reads(xml, "<tool_call><function=f><parameter=s>a</parameter><function=g><parameter=s>",
          "N(f)A({\"s\": \"a\"})N(g)A({\"s\": \")");
    reads(xml, "<tool_call><tool_call>\n<function=f></function></tool_call></tool_call>",
          "T(<tool_call>)N(f)A({})T(</tool_call>)");
    reads(xml, "<tool_call><function=f><parameter=s>a</parameter> so <b> on</function>",
          "N(f)A({\"s\": \"a\"})"); /* what stands between is of nothing */
    reads(xml, "<function=f></function><b>", "N(f)A({})T(<b>)");
    reads(xml, "<function=f></function></tool_ca!", "N(f)A({})T(</tool_ca!)");

    /* Texts: a line end in front and behind is not theirs, and nothing else ends them. */
    reads(xml, "<function=f><parameter=s>\n\n a\n\nb \n\n</parameter></function>",
          "N(f)A({\"s\": \"\\n a\\n\\nb \\n\"})");
    reads(xml, "<function=f><parameter=s>\n</parameter><parameter=o></parameter></function>",
          "N(f)A({\"s\": \"\", \"o\": \"\"})");
    reads(xml,
          "<function=f><parameter=s></parameter  \n</paramete</function></parameter></function>",
          "N(f)A({\"s\": \"</parameter  \\n</paramete</function>\"})");
    reads(xml, "<function=f><parameter=s>\"\\\b\f\n\r\t\x01\x1f\x7f/</parameter></function>",
          "N(f)A({\"s\": \"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f/\"})");
    reads(xml, "<function=f><parameter=a \"b\"\\\n></parameter></function>",
          "N(f)A({\"a \\\"b\\\"\\\\\\n\": \"\"})");
    reads(xml, "<function=f><parameter=s>12</parameter><parameter=s>null</parameter></function>",
          "N(f)A({\"s\": \"12\", \"s\": \"null\"})");

    /* Cut off by max_tokens. */
    reads(xml, "<function=f><parameter=s>\nabc\n</param", "N(f)A({\"s\": \"abc)");
    reads(xml, "<function=f><parameter=s>\nabc</parameter>\n</func", "N(f)A({\"s\": \"abc\")");
    reads(xml, "<function=f><parameter=s>\nabc</parameter>\n</function>\n</tool_",
          "N(f)A({\"s\": \"abc\"})");
    reads(xml, "<function=f><parameter=n>12", "N(f)A({\"n\": )");
    reads(xml, "<function=f><parameter=na", "N(f)A({\"na)");

    reads(
        glm,
        "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a\nb\n</arg_value>\n<arg_key>n</arg_key>\n"
        "<arg_value>[1, 2]</arg_value>\n</tool_call>",
        "N(f)A({\"s\": \"a\\nb\\n\", \"n\": [1, 2]})");
    reads(glm,
          "I ask.\n<tool_call> f<arg_key>s</arg_key><arg_value><b>\"</b></arg_value></tool_call>"
          "<tool_call>g</tool_call>\nso",
          "T(I ask.)N(f)A({\"s\": \"<b>\\\"</b>\"})N(g)A({})T(so)");
    reads(glm, "<tool_call>f<arg_key>s</arg_key><arg_key>n</arg_key></tool_call>",
          "N(f)A({\"s\": null, \"n\": null})"); /* no values */
    reads(glm, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value><tool_call>g</tool_call>",
          "N(f)A({\"s\": \"a\"})N(g)A({})");
    reads(glm, "<tool_call>f<arg_key>n</arg_key><arg_value>[\"</arg_value></tool_call>",
          "N(f)A({\"n\": \"[\\\"\"})"); /* which could have been a list with the mark */
    reads(glm,
          "<tool_call>f<arg_key>n</arg_key><arg_value>[\"</arg_value></tool_call>"
          "<tool_call>g</tool_call>so",
          "N(f)A({\"n\": \"[\\\"\"})N(g)A({})T(so)");
    reads(glm, "<tool_call>f<arg_key>a<b</arg_key>", "N(f)A({\"a<b\": )");
}

void tool_calls_in_attributes(void)
{
    reads(minicpm,
          "I see.\n<function name=\"f\"><param name=\"s\">Z\xc3\xbcrich</param>"
          "<param name=\"n\">[1, \"</param>\"]</param></function>\n"
          "<function name=\"g.h-2\"></function>\nso",
          "T(I see.)N(f)A({\"s\": \"Z\xc3\xbcrich\", \"n\": [1, \"</param>\"]})N(g.h-2)A({})T(so)");
    reads(minicpm,
          "<function name=\"f\" >\n  <param name=\"s\">a\n</param>\n  <param "
          "name=\"n\">True</param>\n"
          "</function>",
          "N(f)A({\"s\": \"a\\n\", \"n\": true})");
    reads(minicpm,
          "<function name=\"f\"><param name=\"s\">a</param><function name=\"g\"></function>",
          "N(f)A({\"s\": \"a\"})N(g)A({})"); /* a forgotten mark */

    /* CDATA, as the whole of a value; its own end does not come in it. */
    reads(minicpm,
          "<function name=\"f\"><param name=\"s\"><![CDATA[a < b && </param>\n]] ]>]]]>"
          "</param><param name=\"n\"><![CDATA[{\"a\": \"]]>\"}]]></param>"
          "<param name=\"m\"><![CDATA[[[1]]]]></param></function>.",
          "N(f)A({\"s\": \"a < b && </param>\\n]] ]>]\", \"n\": {\"a\": \"]]>\"}, "
          "\"m\": [[1]]})T(.)");
    reads(minicpm,
          "<function name=\"f\"><param name=\"s\"><![CDATA[]]></param><param "
          "name=\"o\"><![CDATA[null]]> "
          "</param><param name=\"n\"><![CDATA[]]></param></function>",
          "N(f)A({\"s\": \"\", \"o\": null, \"n\": \"\"})");
    reads(minicpm,
          "<function name=\"f\"><param name=\"s\"><![CDAT[a]]> <![CDATA[b]]></param></function>",
          "N(f)A({\"s\": \"<![CDAT[a]]> <![CDATA[b]]>\"})");
    reads(minicpm, "<function name=\"f\"><param name=\"n\"><![CDATA[[\"a]]></param></function>!",
          "N(f)A({\"n\": \"[\\\"a\"})T(!)"); /* which could have been a list with the mark */

    /* Cut off by max_tokens. */
    reads(minicpm, "<function name=\"f\"><param name=\"s\">abc</par", "N(f)A({\"s\": \"abc)");
    reads(minicpm, "<function name=\"f\"><param name=\"s\"><![CDATA[abc]]", "N(f)A({\"s\": \"abc)");
    reads(minicpm, "<function name=\"f\"><param name=\"s\"><![CDATA[abc]]></p",
          "N(f)A({\"s\": \"abc)");
    reads(minicpm, "<function name=\"f\"><param na", "T(<function name=\"f\"><param na)");
    reads(minicpm, "so <function name=\"f\"", "T(so <function name=\"f\")");
    is_text(minicpm, "<function name=f><param name=\"s\">a</param></function>");
    is_text(minicpm, "<function name=\"\"><param name=\"s\">a</param></function>");
    is_text(minicpm, "<function name=\"f\" so><param name=\"s\">a</param></function>");
    is_text(minicpm, "<function name=\"f\">so</function>");
    is_text(minicpm, "<function name=\"f\">\n <parameter name=\"s\">a</parameter></function>");
}

/* A text between Gemma's quotes. */
#define Q(text) "<|\"|>" text "<|\"|>"
#define CALL(text) "<|tool_call>call:f{" text "}<tool_call|>"
#define LFM(text) "<|tool_call_start|>[" text "]<|tool_call_end|>"

void tool_calls_in_literals(void)
{
    reads(gemma,
          "I look.\n" CALL("s:" Q("Z\xc3\xbcrich, \"a\" {b}\n") ",n:-3.5e1,on:true,x:null,list:[" Q(
              "a") ",1,[],{}],o2:{k e y:" Q("") ",q:{" Q("k") ":[false]}}") "\n",
          "T(I look.)N(f)A({\"s\": \"Z\xc3\xbcrich, \\\"a\\\" {b}\\n\", \"n\": -3.5e1, \"on\": "
          "true, \"x\": null, \"list\": [\"a\", 1, [], {}], \"o2\": {\"k e y\": \"\", \"q\": "
          "{\"k\": [false]}}})");
    reads(gemma, CALL("") "<|tool_call>call:g.h-2{n:1}<tool_call|> So.",
          "N(f)A({})N(g.h-2)A({\"n\": 1})T(So.)");
    reads(gemma,
          "<|tool_call>call:f {\"s\": \"a\\n\\u00e9\\\"\", \"n\": [1, {\"b\": null}]}<tool_call|>",
          "N(f)A({\"s\": \"a\\n\\u00e9\\\"\", \"n\": [1, {\"b\": null}]})"); /* JSON */
    reads(gemma, "<|tool_call>f{ n : 1 , m : None }<tool_call|>",
          "N(f)A({\"n\": 1, \"m\": null})"); /* what is forgotten, and blanks */
    reads(gemma, CALL("s:" Q("<|\"|<|\"<tool_call|>")) "x",
          "N(f)A({\"s\": \"<|\\\"|<|\\\"<tool_call|>\"})T(x)");

    /* Without quotes, and by the schema. */
    reads(gemma, CALL("s:12,o:12,n:12,m:New York ,s:true,o:null,k:1."),
          "N(f)A({\"s\": \"12\", \"o\": \"12\", \"n\": 12, \"m\": \"New York\", \"s\": \"true\", "
          "\"o\": null, \"k\": \"1.\"})");
    reads(gemma, CALL("o:[12],s:{a:1}"), "N(f)A({\"o\": [12], \"s\": {\"a\": 1}})");

    /* Brackets and values that are forgotten; the end of a call ends it. */
    reads(gemma, "<|tool_call>call:f{n:[1,{a:2}<tool_call|>x",
          "N(f)A({\"n\": [1, {\"a\": 2}]})T(x)");
    reads(gemma, "<|tool_call>call:f{n:1 <tool_call|>x", "N(f)A({\"n\": 1})T(x)");
    reads(gemma, "<|tool_call>call:f{n:<tool_call|>x", "N(f)A({\"n\": null})T(x)");
    reads(gemma, "<|tool_call>call:f{n<tool_call|>x", "N(f)A({\"n\": null})T(x)");
    reads(gemma, "<|tool_call>call:f{n:1,<tool_call|>x", "N(f)A({\"n\": 1})T(x)");
    reads(gemma, CALL("n,m:,k:{a},b"),
          "N(f)A({\"n\": null, \"m\": null, \"k\": {\"a\": null}, \"b\": null})");
    reads(gemma, "<|tool_call>call:f{n:[1}x<tool_call|>", "N(f)A({\"n\": [1]})T(x<tool_call|>)");
    reads(gemma, CALL("n:" Q("a") " so, m:2"),
          "N(f)A({\"n\": \"a\", \"m\": 2})"); /* what stands between is of nothing */

    /* Cut off by max_tokens. */
    reads(gemma, "<|tool_call>call:f{s:<|\"|>ab<|\"|", "N(f)A({\"s\": \"ab)");
    reads(gemma, "<|tool_call>call:f{n:12", "N(f)A({\"n\": )");
    reads(gemma, "<|tool_call>call:f{n:12}<tool_c", "N(f)A({\"n\": 12})");

    reads(
        lfm,
        LFM("f(s=\"a\", n=-3, x=None, on=True, l=['b', [1.5]], o2={\"k\": False, 'q': {}})") "I "
                                                                                             "ask."
                                                                                             "\n",
        "N(f)A({\"s\": \"a\", \"n\": -3, \"x\": null, \"on\": true, \"l\": [\"b\", [1.5]], "
        "\"o2\": {\"k\": false, \"q\": {}}})T(I ask.\n)");
    reads(lfm, "Hm." LFM("f(), a.b( n = 1 )"), "T(Hm.)N(f)A({})N(a.b)A({\"n\": 1})");
    reads(lfm, "<|tool_call_start|>f(n=null)<|tool_call_end|>x", "N(f)A({\"n\": null})T(x)");
    reads(lfm, "<|tool_call_start|>[f(n=1)<|tool_call_end|>x", "N(f)A({\"n\": 1})T(x)");
    reads(lfm, "<|tool_call_start|>[f(n=[1<|tool_call_end|>x", "N(f)A({\"n\": [1]})T(x)");
    reads(lfm, LFM("{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\"}"),
          "N(f)A({\"a\": 1})N(g)A({})");
    reads(lfm, LFM("f(s=12, o=None, m=2026-11-28)"),
          "N(f)A({\"s\": \"12\", \"o\": null, \"m\": \"2026-11-28\"})");

    /* Strings of Python; quotes in them that nobody has escaped. */
    reads(lfm, LFM("f(s=\"\\n\\t\\\\\\\"\\'\\/\\x41\\u00E9\\d\\x4\\u12\\\n\")"),
          "N(f)A({\"s\": \"\\n\\t\\\\\\\"'\\/\\u0041\\u00E9\\\\d\\\\x4\\\\u12\"})");
    reads(lfm, LFM("f(s='it's \"so\"', m='sed -n '1,9p' f', k='')"),
          "N(f)A({\"s\": \"it's \\\"so\\\"\", \"m\": \"sed -n '1,9p' f\", \"k\": \"\"})");
    reads(lfm, LFM("f(s='''a \"\"\" ''b\\'''', m=\"\"\"\"\"\" , k='a' , l=\"\" )"),
          "N(f)A({\"s\": \"a \\\"\\\"\\\" ''b'\", \"m\": \"\", \"k\": \"a\", \"l\": \"\"})");
    reads(lfm, LFM("f(s=\"a \x01\n\")"), "N(f)A({\"s\": \"a \\u0001\\n\"})");
}

/* Beyond what is held, and what brackets count. */
void tool_calls_in_long_literals(void)
{
    char text[2048], wanted[2048];
    u32 calls = 0;
    for (int n = TOOL_VALUE_BYTES - 2; n <= TOOL_VALUE_BYTES + 1; n++) {
        const char *quote = n < TOOL_VALUE_BYTES ? "" : "\"";
        snprintf(text, sizeof text, CALL("%0*d:1%0*d"), n, 7, n - 1, 0);
        snprintf(wanted, sizeof wanted, "N(f)A({\"%0*d\": %s1%0*d%s})", n, 7, quote, n - 1, 0,
                 quote);
        reads(gemma, text, wanted);
    }
    for (int n = 1; n < 99; n++) {
        snprintf(text, sizeof text, "<|tool_call>call:f{a:%0*d<tool_call|>x", n, 0);
        memset(strstr(text, "a:") + 2, '[', (size_t)n);
        check(gemma, text, strlen(text), NULL, &calls);
    }
    memset(text, 1, 400);
    memcpy(text, "<|tool_call>call:f{", 19);
    check(gemma, text, 400, NULL, &calls);
    CHECK(calls == 99);
}

void tool_calls_in_literals_that_are_none(void)
{
    static const char *const in_gemma[] = {"<|tool_call>",
                                           "<|tool_call>call:",
                                           "<|tool_call>call:f",
                                           "<|tool_call>call:f so {",
                                           "<|tool_call>call:{n:1}<tool_call|>",
                                           "<|tool_call>call:f(n=1)<tool_call|>",
                                           "<|tool_call>call:\"f\"{n:1}<tool_call|>",
                                           "<|tool_call> \n",
                                           "call:f{n:1}",
                                           "<|tool_call|>call:f{n:1}<tool_call|>",
                                           "a <b> <|tool_cal <tool_call|>"};
    static const char *const in_lfm[] = {
        "<|tool_call_start|>[",       LFM(""),      LFM("f"), LFM("(n=1)"), LFM("f{n:1}"),
        "[f(n=1)] <|tool_call_end|>", "[link](url)"};
    for (u32 i = 0; i < COUNTOF(in_gemma); i++)
        is_text(gemma, in_gemma[i]);
    for (u32 i = 0; i < COUNTOF(in_lfm); i++)
        is_text(lfm, in_lfm[i]);
    char text[2048];
    snprintf(text, sizeof text, "<|tool_call>call:%065d{}<tool_call|>", 0);
    is_text(gemma, text);
    snprintf(text, sizeof text, "<|tool_call>call:%0600d{}<tool_call|>", 0);
    is_text(gemma, text);
}

/* A value of f's parameter, in both forms. */
static void is_value(const char *key, const char *text, const char *wanted)
{
    char all[4096], told[4096];
    snprintf(told, sizeof told, "N(f)A({\"%s\": %s})", key, wanted);
    snprintf(all, sizeof all, "<function=f><parameter=%s>\n%s\n</parameter></function>", key, text);
    reads(xml, all, told);
    snprintf(all, sizeof all,
             "<tool_call>f<arg_key>%s</arg_key><arg_value>%s</arg_value></tool_call>", key, text);
    reads(glm, all, told);
}

void tool_values_in_xml(void)
{
    static const char *const json[] = {"0",
                                       "-1",
                                       "1.50",
                                       "-0.5e+3",
                                       "1E400",
                                       "true",
                                       "false",
                                       "null",
                                       "{}",
                                       "[]",
                                       "\"\"",
                                       "\"a\\u00e9\\n\"",
                                       "{\"a\": [1, {\"b\": null}], \"c\": \"}</p\"}",
                                       "[[],\n [true]\n]"};
    static const char *const texts[] = {
        "a",         "01",  "1.",         ".5",         "+1",    "1e",   "-",
        "- 1",       "1 2", "1,000",      "0x10",       "NaN",   "nul",  "nulls",
        "truth",     "Tru", "Truest",     "None of it", "TRUE",  "[",    "[1",
        "[INFO] so", "{",   "{a}",        "{'a': 1}",   "{} {}", "[1],", "[1,]",
        "{1: 2}",    "a]",  "2026-11-28", "1 < 2",      "<b>",   "}"};
    char text[2048], wanted[2052];
    for (u32 i = 0; i < COUNTOF(json); i++) {
        is_value("n", json[i], json[i]);
        snprintf(text, sizeof text, " \n\t%s \n ", json[i]);
        is_value("n", text, json[i]);
    }
    for (u32 i = 0; i < COUNTOF(texts); i++) {
        snprintf(wanted, sizeof wanted, "\"%s\"", texts[i]);
        is_value("n", texts[i], wanted);
        is_value("o", texts[i], wanted);
        is_value("s", texts[i], wanted);
    }
    is_value("n", " True ", "true");
    is_value("n", "False", "false");
    is_value("n", "None\n", "null");
    is_value("o", "None", "null");
    is_value("o", " null ", "null");
    is_value("o", "12", "\"12\"");
    is_value("o", "true", "\"true\"");
    is_value("o", "True", "\"True\"");
    is_value("o", "{}", "\"{}\"");
    is_value("o", "\"a\"", "\"\\\"a\\\"\"");
    is_value("s", "None", "\"None\"");
    is_value("s", "{\"a\": 1}", "\"{\\\"a\\\": 1}\"");

    /* Marks in strings of JSON are none, unless it turns out to be no JSON. */
    is_value("n", "[\"</parameter>\", \"</arg_value>\\\"</arg_value>\"]",
             "[\"</parameter>\", \"</arg_value>\\\"</arg_value>\"]");
    snprintf(text, sizeof text, "[\"%0*d</parameter></arg_value>\"]", 2 * TOOL_VALUE_BYTES, 0);
    is_value("n", text, text);
    reads(xml, "<function=f><parameter=n>[\"a</parameter>\n<parameter=s>b</parameter></function>!",
          "N(f)A({\"n\": \"[\\\"a\", \"s\": \"b\"})T(!)");
    reads(xml, "<function=f><parameter=n>[\"a</parameter></function>so<function=g></function>\n!",
          "N(f)A({\"n\": \"[\\\"a\"})T(so)N(g)A({})T(!)");
    reads(
        glm,
        "<tool_call>f<arg_key>n</arg_key><arg_value>[\"a</arg_value><arg_key>m</arg_key><arg_value>"
        "[\"b</arg_value>\n</tool_call>",
        "N(f)A({\"n\": \"[\\\"a\", \"m\": \"[\\\"b\"})");

    /* Longer than what is held: lists and objects go on, all else is text; so is what is no JSON
     * by then. */
    snprintf(text, sizeof text, "{\"a\": [%0*d, \" %0500d \" ] }", 1, 0, 0);
    is_value("n", text, text);
    snprintf(text, sizeof text, "[%*s1]", TOOL_VALUE_BYTES, "");
    is_value("n", text, text);
    snprintf(text, sizeof text, "%*s1", TOOL_VALUE_BYTES - 1, "");
    is_value("n", text, "1");
    snprintf(text, sizeof text, "%*s1", TOOL_VALUE_BYTES + 1, "");
    snprintf(wanted, sizeof wanted, "\"%s\"", text);
    is_value("n", text, wanted);
    snprintf(text, sizeof text, "1%0*d", TOOL_VALUE_BYTES, 0);
    snprintf(wanted, sizeof wanted, "\"%s\"", text);
    is_value("n", text, wanted);
    snprintf(text, sizeof text, "%0900d\xe2\x82\xac", 0);
    snprintf(wanted, sizeof wanted, "\"%s\"", text);
    is_value("s", text, wanted);
    memset(text, 1, TOOL_VALUE_BYTES);
    text[TOOL_VALUE_BYTES] = 0;
    wanted[0] = '"';
    for (u32 i = 0; i <= TOOL_VALUE_BYTES; i++)
        snprintf(wanted + 1 + 6 * (size_t)i, 7, "%s", i < TOOL_VALUE_BYTES ? "\\u0001" : "\"");
    is_value("s", text, wanted);
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
    static const char *const in_xml[] = {
        "",
        "a <b> <tool_cal <function <tool_call> <function> </tool_call>",
        "<tool_call>\n<function=f>\n",
        "<tool_call>\n<function=f> so",
        "<tool_call>\n<function=f>\n<parameters=a>",
        "<tool_call>\n<function=f>\n<parameter",
        "<tool_call>\n<function=f\n>\n<parameter=a>",
        "<tool_call>\n<function= f><parameter=a>",
        "<tool_call>\n<function=><parameter=a>",
        "<tool_call>\n<function=\"f\"><parameter=a>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        "<function=f> is what it is called; </function>",
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        "</function>\n</tool_call>\n",
        " \n <tool_call> \n "};
    for (u32 i = 0; i < COUNTOF(in_xml); i++)
        is_text(xml, in_xml[i]);
    is_text(glm, "<tool_call>");
    is_text(glm, "<tool_call>f");
    is_text(glm, "<tool_call>\n f \n<arg_key");
    is_text(glm, "<tool_call>f g</tool_call>");
    is_text(glm, "<tool_call>f<arg_keys>a</arg_keys></tool_call>");
    is_text(glm, "<tool_call></tool_call>");
    is_text(glm, "<tool_call><arg_key>a</arg_key></tool_call>");
    is_text(glm, "<tool_call>f<br></tool_call>");
    is_text(glm, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
    is_text(glm, "<tool_call>\n<function=f>\n<parameter=a>");

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
    is_text(xml, text);
    is_text(glm, text);
    snprintf(text, sizeof text, "<function=%065d><parameter=", 0);
    is_text(xml, text);
    snprintf(text, sizeof text, "<tool_call>%065d<arg_key>", 0);
    is_text(glm, text);
    snprintf(text, sizeof text, "<tool_call>f%*s<arg_key>", 600, "");
    is_text(glm, text);
    for (u32 blanks = 0; blanks < 600; blanks++) { /* before a call they never make it none */
        snprintf(text, sizeof text, "a%*s<function=f></function>", (int)blanks, "");
        u32 calls = 0;
        check(xml, text, strlen(text), NULL, &calls);
        CHECK(calls == 1);
    }
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
                                         "<function=f>",
                                         "<function=",
                                         "<parameter=a>",
                                         "<parameter=s>",
                                         "</parameter>",
                                         "</function>",
                                         "<tool_call>f",
                                         "<function name=\"f\">",
                                         "<param name=\"a\">",
                                         "<param name=\"s\">",
                                         "</param>",
                                         "<![CDATA[",
                                         "]]>",
                                         "<arg_key>a</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "1",
                                         "<|tool_call>call:f{",
                                         "<tool_call|>",
                                         "<|\"|>",
                                         "a:",
                                         "<|tool_call_start|>[f(",
                                         "<|tool_call_end|>",
                                         "s='",
                                         "')",
                                         "<"};
    static const char *const all[] = {hermes, mistral, mistral11, phi, llama,  xml,
                                      glm,    gemma,   gemma,     lfm, minicpm};
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
        struct tool_reader r = reader_of(all[i % COUNTOF(all)]);
        static struct told told;
        told = (struct told){0};
        take(&r, text, n, &told);
        finish(&r, &told);
        CHECK(r.calls || strcmp(told.text, as_text) == 0);
        check(all[i % COUNTOF(all)], text, n, NULL, &calls);
    }
    CHECK(calls > 20);
}
