/* Renders templates for tests/template/compare.py. Records on standard input: two u32 (little
 * endian) lengths, the template, the variables as a JSON object. Answers on standard output: one
 * byte (0 text, 1 refused by the compiler, 2 error while rendering, 3 a ceiling), a u32 length,
 * the text. The clock stands at the seconds given on the command line.
 */
#include "core/model/template.h"

#include <stdio.h>
#include <stdlib.h>

enum { OUT_BYTES = 4 << 20 };

static struct arena keep, work;
static char out[OUT_BYTES];

static bool read_u32(u32 *v)
{
    return fread(v, sizeof *v, 1, stdin) == 1;
}

static void answer(u8 status, const char *p, size_t n)
{
    u32 length = (u32)n;
    fwrite(&status, 1, 1, stdout);
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(p, 1, n, stdout);
}

static void render(struct str source, struct str vars_text, i64 now_s)
{
    struct err_text e = {0};
    struct template *t;
    const struct json *vars;
    size_t n;
    if (template_compile(&keep, source, "template", &t, &e) != ERR_OK) {
        answer(1, e.text, strlen(e.text));
        return;
    }
    if (json_parse(&keep, vars_text, "vars", ERR_REQUEST, &vars, &e) != ERR_OK) {
        fprintf(stderr, "driver: %s\n", e.text);
        exit(1);
    }
    enum err err = template_render(t, vars, now_s, &work, out, sizeof out, &n, &e);
    if (err != ERR_OK)
        answer(err == ERR_LIMIT ? 3 : 2, e.text, strlen(e.text));
    else
        answer(0, out, n);
}

int main(int argc, char **argv)
{
    struct err_text e = {0};
    u32 a, b;
    i64 now_s = argc > 1 ? atoll(argv[1]) : 0;
    if (arena_open(&keep, "keep", 64 * MIB, false, &e) != ERR_OK ||
        arena_open(&work, "work", 16 * MIB, false, &e) != ERR_OK) {
        fprintf(stderr, "driver: %s\n", e.text);
        return 1;
    }
    while (read_u32(&a) && read_u32(&b)) {
        arena_reset(&keep, 0);
        char *p = arena_alloc(&keep, (size_t)a + b + 1, 1);
        if (!p || fread(p, 1, (size_t)a + b, stdin) != (size_t)a + b) {
            fprintf(stderr, "driver: a record is cut off\n");
            return 1;
        }
        render((struct str){p, a}, (struct str){p + a, b}, now_s);
    }
    return 0;
}
