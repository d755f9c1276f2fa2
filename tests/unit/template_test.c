#include "config/limits.h"
#include "core/model/template.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char out[64 << 10];

/* Compiles and renders; the text is in out[0..*n). */
static enum err render(const char *source, size_t length, const char *vars_text, size_t cap,
                       size_t *n, struct err_text *e)
{
    struct template *t;
    const struct json *vars;
    *e = (struct err_text){0};
    *n = 0;
    char *exact = arena_alloc(&unit_arena, length, 1); /* reads past the end show up */
    memcpy(exact, source, length);
    TRY(template_compile(&unit_arena, (struct str){exact, length}, "test", &t, e));
    TRY(json_parse(&unit_arena, str_of(vars_text), "vars", ERR_REQUEST, &vars, e));
    return template_render(t, vars, 0, &unit_arena, out, cap, n, e);
}

static bool fails(const char *source, enum err want, const char *text)
{
    struct err_text e;
    size_t n, mark = unit_arena.used_bytes;
    enum err err = render(source, strlen(source), "{\"l\":[1,2,3]}", sizeof out, &n, &e);
    arena_reset(&unit_arena, mark);
    if (err != want || !strstr(e.text, text))
        printf("    %.60s: error %s: %s\n", source, err_name(err), e.text);
    return err == want && strstr(e.text, text);
}

static bool renders(const char *source, const char *vars, const char *want)
{
    struct err_text e;
    size_t n, mark = unit_arena.used_bytes;
    enum err err = render(source, strlen(source), vars, sizeof out, &n, &e);
    bool same = err == ERR_OK && n == strlen(want) && memcmp(out, want, n) == 0;
    arena_reset(&unit_arena, mark);
    if (!same)
        printf("    %.60s: %.*s%s\n", source, (int)n, out, e.text);
    return same;
}

void template_renders(void)
{
    CHECK(renders("{% for m in l %}\n{{ m }}{{ ',' if not loop.last }}\n{% endfor %}\n",
                  "{\"l\":[1,2.50,\"x\"]}", "1,\n2.5,\nx\n"));
    CHECK(renders("{{ tools is none }}{{ nope }}", "{}", "True"));
    CHECK(renders("{{ strftime_now('%Y-%m-%d') }}", "{}", "1970-01-01"));
    CHECK(renders("{{ x|tojson }}", "{\"x\":{\"a\":[1.0,1e22,18446744073709551616]}}",
                  "{\"a\": [1.0, 1e+22, 18446744073709551616]}"));
}

static bool reads(const char *source)
{
    struct template *t;
    struct err_text e;
    size_t mark = unit_arena.used_bytes;
    ASSERT(template_compile(&unit_arena, str_of(source), "test", &t, &e) == ERR_OK);
    bool yes = template_reads(t, "x");
    arena_reset(&unit_arena, mark);
    return yes;
}

void template_tells_what_it_reads(void)
{
    CHECK(reads("{{ x }}") && reads("{% if x is defined %}a{% endif %}"));
    CHECK(reads("{% for m in l %}{{ x }}{% endfor %}") && reads("{% set x = x or 1 %}{{ x }}"));
    CHECK(reads("{% if not x %}{% set x = 1 %}{% endif %}{{ x }}"));
    CHECK(reads("{% macro f() %}{{ x }}{% endmacro %}{{ f() }}"));
    CHECK(!reads("") && !reads("x{{ y }}{{ y.x }}{{ y['x'] }}"));
    CHECK(!reads("{% set x = 1 %}{{ x }}"));
}

/* Nested to the ceiling of the source, by a string that repeats. */
static bool fails_repeated(const char *head, const char *part, u32 times, const char *tail,
                           enum err want, const char *text)
{
    size_t mark = unit_arena.used_bytes, part_n = strlen(part), head_n = strlen(head);
    char *s = arena_alloc(&unit_arena, head_n + times * part_n + strlen(tail) + 1, 1), *p = s;
    p = mempcpy(p, head, head_n);
    for (u32 i = 0; i < times; i++)
        p = mempcpy(p, part, part_n);
    memcpy(p, tail, strlen(tail));
    bool ok = fails(s, want, text);
    arena_reset(&unit_arena, mark);
    return ok;
}

void template_hits_its_ceilings(void)
{
    CHECK(fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_LIMIT, "TEMPLATE_CALLS"));
    CHECK(fails("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
                "{{ f(60) }}",
                ERR_LIMIT, "TEMPLATE_STEPS"));
    CHECK(fails("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
                ERR_LIMIT, "TEMPLATE_STEPS"));
    CHECK(fails("{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
                "{% endfor %}",
                ERR_LIMIT, "memory"));
    CHECK(fails("{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
                "{% endfor %}",
                ERR_LIMIT, "memory"));
    CHECK(fails("{{ 'abcdefgh' * 999999999 }}", ERR_LIMIT, ""));
    CHECK(fails("{{ [0] * 9223372036854775807 }}", ERR_LIMIT, "too long"));
    CHECK(fails("{% for i in range(100000) %}0123456789{% endfor %}", ERR_TOO_LONG, "65536"));
    CHECK(fails("{% set s = 'x' * 30000000 %}{% for i in range(1000) %}{{ s|length }}"
                "{% endfor %}",
                ERR_LIMIT, "bytes of text"));
    CHECK(fails("{% set n = namespace() %}{% set n.n = n %}{{ n }}", ERR_LIMIT, "TEMPLATE_CALLS"));
    CHECK(fails("{{ range(100001) }}", ERR_REQUEST, "range too big"));
    CHECK(fails("{{ 9223372036854775807 + 1 }}", ERR_REQUEST, "64 bits"));
    CHECK(fails("{{ -9223372036854775807 - 1 - 1 }}", ERR_REQUEST, "64 bits"));
    CHECK(fails_repeated("{{ ", "(", 5000, "1", ERR_MODEL, "TEMPLATE_DEPTH"));
    CHECK(fails_repeated("{{ ", "- ", 5000, "1 }}", ERR_MODEL, "TEMPLATE_DEPTH"));
    CHECK(fails_repeated("{{ ", "not ", 5000, "1 }}", ERR_MODEL, "TEMPLATE_DEPTH"));
    CHECK(fails_repeated("{{ 1", " if 1 else 1", 5000, " }}", ERR_MODEL, "TEMPLATE_DEPTH"));
    CHECK(fails_repeated("", "{% if 1 %}", 5000, "", ERR_MODEL, "TEMPLATE_DEPTH"));
    CHECK(fails_repeated("{{ 1", " + 1", 5000, " }}", ERR_LIMIT, "TEMPLATE_CALLS"));
    CHECK(fails_repeated("{{ 1", "|string", 5000, " }}", ERR_LIMIT, "TEMPLATE_CALLS"));
    CHECK(fails_repeated("{{ 'x'", ".a", 5000, " }}", ERR_LIMIT, "TEMPLATE_CALLS"));
    CHECK(fails_repeated("", "x", 300000, "", ERR_MODEL, "LIMIT_TEMPLATE_BYTES"));
}

void template_says_where(void)
{
    CHECK(fails("a\n{% include 'x' %}", ERR_MODEL, "test: line 2, column 4: the tag 'include'"));
    CHECK(fails("{{ 1|nosuch }}", ERR_MODEL, "line 1, column 6: the filter 'nosuch'"));
    CHECK(fails("{{ l is nosuch }}", ERR_MODEL, "the test 'nosuch'"));
    CHECK(fails("{{ l|map('nosuch') }}", ERR_MODEL, "the filter 'nosuch'"));
    CHECK(fails("{{ 'a'.zfill(3) }}", ERR_MODEL, "the method 'zfill'"));
    CHECK(fails("{{ cycler() }}", ERR_MODEL, "'cycler' is not supported"));
    CHECK(fails("{% for i in l recursive %}{% endfor %}", ERR_MODEL, "recursive"));
    CHECK(fails("\n\n  {{ nope.x }}", ERR_REQUEST, "line 3, column 11: 'nope' is undefined"));
    CHECK(fails("{{ raise_exception('roles must alternate') }}", ERR_REQUEST, "must alternate"));
    CHECK(fails("{{ l.append(1) }}", ERR_REQUEST, "'append' is undefined"));
    CHECK(fails("\xff", ERR_MODEL, "UTF-8"));
}

static const char rich[] =
    "{%- macro m(a, b=1, *) -%}{{ a ~ b }}{%- endmacro -%}\n{# c #}{% raw %}{{ }}{% endraw %}"
    "{% set ns = namespace(x='a' 'b\\x41\\u00e9\\101\\n', y=[1, 2.5e3, (1,), {'k': none}]) %}"
    "{% for k, (v, w) in [[1, [2, 3]]] if k is not divisibleby 2 or not w is in [1] -%}"
    "  {%+ if loop.first and ns.y[::-1][0].k is defined +%} {{ m(k, b=w)|replace('1', 'x')|upper }}"
    "{% elif k //2 ** 2 >= 1 < 3 != 4 %}{% continue %}{% else %}{% break %}{% endif %}"
    "{% else %}{{ 'a' if v else l|map(attribute='x.y')|list|tojson(indent=2) }}{% endfor %}"
    "{% set z | trim %} {{ 0x1F + 1_0 - -3 % 2 * 4 / 5 }} {% endset %}{{ z[1:] + \"\xc3\xa9\" }}"
    "{% with q = 1 %}{% filter upper %}{% generation %}x{% endgeneration %}{% endfilter %}"
    "{% endwith %}{{ 'a {} %s'.format(1) % 'x' }}{{ l|sort(reverse=true)|join(', ') }}";

void template_prefixes_never_crash(void)
{
    struct err_text e;
    size_t n, mark = unit_arena.used_bytes;
    for (size_t cut = 0; cut < sizeof rich; cut++) {
        enum err err = render(rich, cut, "{\"l\":[1]}", sizeof out, &n, &e);
        CHECK((err == ERR_OK) == (e.code == ERR_OK));
        arena_reset(&unit_arena, mark);
    }
}

void template_broken_bytes_never_crash(void)
{
    static const char with[] = "{}%#()[]'\"\\|.-+ \n,:=~*/0ax_\xc3\x00";
    struct err_text e;
    size_t n, mark = unit_arena.used_bytes;
    char text[sizeof rich];
    for (size_t at = 0; at < sizeof rich - 1; at++)
        for (size_t k = 0; k < sizeof with; k++) {
            memcpy(text, rich, sizeof rich);
            text[at] = with[k];
            enum err err = render(text, sizeof rich - 1, "{\"l\":[1]}", sizeof out, &n, &e);
            CHECK((err == ERR_OK) == (e.code == ERR_OK));
            arena_reset(&unit_arena, mark);
        }
}

/* Rendering with every amount of memory and of output: an error or the same text. */
void template_small_memory(void)
{
    static const char source[] = "{% for m in l %}{{ m|tojson }}{{ 'a' * m }}"
                                 "{% set x %}{{ x }}{{ m }}{% endset %}{% endfor %}{{ d }}";
    static _Alignas(16) char memory[16 << 10];
    static char small[256];
    struct err_text e = {0};
    struct template *t;
    const struct json *vars;
    size_t n, full;
    CHECK(template_compile(&unit_arena, STR(source), "test", &t, &e) == ERR_OK);
    CHECK(json_parse(&unit_arena, STR("{\"l\":[1,2,3],\"d\":{\"a\":[1],\"b\":\"c\"}}"), "v",
                     ERR_REQUEST, &vars, &e) == ERR_OK);
    CHECK(template_render(t, vars, 0, &unit_arena, out, sizeof out, &full, &e) == ERR_OK);
    u32 good = 0;
    for (size_t bytes = 0; bytes <= sizeof memory; bytes += 16) {
        struct arena work = arena_over("work", memory, bytes);
        e = (struct err_text){0};
        enum err err = template_render(t, vars, 0, &work, small, sizeof small, &n, &e);
        CHECK(err == ERR_LIMIT || (n == full && memcmp(small, out, n) == 0));
        good += err == ERR_OK;
    }
    CHECK(good > 0);
    for (size_t cap = 0; cap < full; cap++) {
        struct arena work = arena_over("work", memory, sizeof memory);
        e = (struct err_text){0};
        CHECK(template_render(t, vars, 0, &work, small, cap, &n, &e) == ERR_TOO_LONG);
    }
}

/* Compiling with every amount of memory: an error, or the whole template. */
void template_small_keep(void)
{
    static const char whole[] = "{% macro m(a, b=[1, {'k': 'v' 'w'}], *c) %}{% endmacro %}";
    size_t used = 0, mark = unit_arena.used_bytes;
    char *memory = arena_alloc(&unit_arena, 64 << 10, 16);
    struct str sources[] = {
        STR(rich), STR(whole), STR("{{ f(1, a=2)[1:2:3] is odd if x }}"),
        STR("{% with a = 1, (b, c) = [1, 2] %}{% set d, e.f = a %}{% endwith %}")};
    sources[0].p = strchr(rich, '\n'); /* without its broken macro */
    sources[0].n = strlen(sources[0].p);
    for (u32 i = 0; i < COUNTOF(sources); i++)
        for (size_t bytes = 0; bytes < 64 << 10; bytes += 16 + bytes / 512 * 8) {
            struct arena keep = arena_over("keep", memory, bytes);
            struct err_text e = {0};
            struct template *t;
            memset(memory, 0, used);
            enum err err = template_compile(&keep, sources[i], "test", &t, &e);
            CHECK(err == e.code);
            used = keep.used_bytes;
        }
    arena_reset(&unit_arena, mark);
}

static bool write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!text)
        return unlink(path) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return fd >= 0 && close(fd) == 0 && ok;
}

/* The folder's template, rendered with `vars`, is `want`; NULL: there is none. */
static bool loads(const char *dir, const char *vars_text, const char *want)
{
    struct template *t = NULL;
    struct err_text e = {0};
    const struct json *vars;
    size_t n;
    if (template_load(&unit_arena, &unit_arena, dir, &t, &e) != ERR_OK || !t)
        return !want && e.code == ERR_OK;
    return json_parse(&unit_arena, str_of(vars_text), "v", ERR_REQUEST, &vars, &e) == ERR_OK &&
           template_render(t, vars, 0, &unit_arena, out, sizeof out, &n, &e) == ERR_OK && want &&
           n == strlen(want) && memcmp(out, want, n) == 0;
}

void template_loads_from_a_folder(void)
{
    static const char config[] = "tokenizer_config.json",
                      list[] = "{\"chat_template\":["
                               "{\"name\":\"default\",\"template\":\"D{{ tools }}\"},"
                               "{\"name\":\"tool_use\",\"template\":\"T{{ tools }}\"}]}";
    char dir[] = P_tmpdir "/zigcuda-template-XXXXXX";
    struct template *t;
    struct err_text e = {0};
    CHECK(mkdtemp(dir));
    CHECK(loads(dir, "{}", NULL));
    CHECK(write_file(dir, config, "{}") && loads(dir, "{}", NULL));
    CHECK(write_file(dir, config, "{\"chat_template\":null}") && loads(dir, "{}", NULL));
    CHECK(write_file(dir, config, "{\"chat_template\":\"A{{ x }}\"}"));
    CHECK(loads(dir, "{\"x\":1}", "A1"));
    CHECK(write_file(dir, config, list) && loads(dir, "{}", "DNone"));
    CHECK(loads(dir, "{\"tools\":[]}", "T[]") && loads(dir, "{\"tools\":null}", "DNone"));
    CHECK(write_file(dir, config, "{\"chat_template\":[]}"));
    CHECK(template_load(&unit_arena, &unit_arena, dir, &t, &e) == ERR_MODEL);
    e = (struct err_text){0};
    CHECK(write_file(dir, config, "{\"chat_template\":7}"));
    CHECK(template_load(&unit_arena, &unit_arena, dir, &t, &e) == ERR_MODEL);
    CHECK(write_file(dir, "chat_template.jinja", "J\n") && loads(dir, "{}", "J"));
    CHECK(write_file(dir, config, NULL) && write_file(dir, "chat_template.jinja", NULL));
    CHECK(rmdir(dir) == 0);
}
