/* How long it takes to find the tokens that fit: at each byte of a JSON text on standard input, as
 * a state that was never seen (masks that are kept help more, but not at first). Best of three, in
 * microseconds: of all states the mean, and the slowest ones with what stands before them.
 *
 * usage: masks MODEL_DIR [SCHEMA [think]] < TEXT   SCHEMA: a file, or any for any object; think:
 * behind <think> ... </think>, too
 */
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/engine/mask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8, BEFORE = 40, TEXT_MAX = 1 << 16, VOCAB_MAX = 1 << 20, ROUNDS = 3 };

static struct arena keep, scratch;
static struct masker masker;
static struct grammar grammar;
static char text[TEXT_MAX], schema[TEXT_MAX];
static u64 bits[MASK_WORDS(VOCAB_MAX)];

struct slow {
    u64 ns;
    size_t at;
};

static void die(const char *what)
{
    fprintf(stderr, "masks: %s\n", what);
    exit(1);
}

static size_t read_all(FILE *f, char *to)
{
    size_t n = f ? fread(to, 1, TEXT_MAX, f) : 0;
    if (n == 0 || n == TEXT_MAX)
        die("a text is missing, empty or too long");
    return n;
}

static void prepare(const char *dir, const char *path, bool think, u32 *vocab)
{
    const struct json *v = NULL;
    struct tokenizer *t;
    struct err_text e = {0};
    size_t bytes = 1 << 30;
    keep = arena_over("keep", calloc(1, bytes), bytes);
    scratch = arena_over("scratch", calloc(1, bytes), bytes);
    if (tokenizer_load(&keep, &scratch, dir, &t, &e) != ERR_OK)
        die(e.text);
    *vocab = tokenizer_vocab(t);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (path && json_parse(&keep, (struct str){schema, read_all(f, schema)}, path, ERR_REQUEST, &v,
                           &e) != ERR_OK)
        die(e.text);
    if (grammar_compile(&grammar, v, &e) != ERR_OK)
        die(e.text);
    if (think && grammar_think(&grammar, STR("<think>"), STR("</think>"), false, UINT32_MAX, &e))
        die(e.text);
    if (!mask_lay_out(&masker, &keep, t, *vocab, 16))
        die("no room");
}

static u64 time_of(const struct grammar_state *s)
{
    static const struct sampling sampling;
    struct clock clock = clock_system();
    u64 best = UINT64_MAX;
    for (u32 i = 0; i < ROUNDS; i++) {
        grammar.serial++; /* nothing of it is kept */
        u64 begin = clock_now_ns(&clock);
        (void)mask_put(&masker, &grammar, s, &sampling, bits);
        best = MIN(best, clock_now_ns(&clock) - begin);
    }
    return best;
}

int main(int argc, char **argv)
{
    struct slow slow[SHOWN + 1] = {0};
    struct grammar_state s;
    struct clock clock = clock_system();
    u32 vocab;
    u64 sum = 0;
    if (argc < 2)
        die("usage: masks MODEL_DIR [SCHEMA [think]] < TEXT");
    const char *path = argc > 2 && strcmp(argv[2], "any") != 0 ? argv[2] : NULL;
    prepare(argv[1], path, argc > 3, &vocab);
    size_t n = read_all(stdin, text);
    grammar_begin(&grammar, &s);
    u64 begin = clock_now_ns(&clock);
    time_of(&s);
    printf("%u tokens, read in %.1f ms\n", vocab, (double)(clock_now_ns(&clock) - begin) * 1e-6);
    size_t i = 0;
    for (; i < n && !grammar_closed(&s); i++) {
        struct slow now = {time_of(&s), i};
        sum += now.ns;
        u32 at = SHOWN;
        for (; at > 0 && slow[at - 1].ns < now.ns; at--)
            slow[at] = slow[at - 1];
        slow[at] = now;
        if (!grammar_step(&grammar, &s, (u8)text[i]))
            break;
    }
    printf("%zu of %zu bytes, mean %.1f us\n", i, n,
           (double)sum / (double)MAX(i, (size_t)1) * 1e-3);
    for (u32 k = 0; k < SHOWN && slow[k].ns; k++) {
        size_t from = slow[k].at > BEFORE ? slow[k].at - BEFORE : 0;
        printf("%8.1f us behind %.*s\n", (double)slow[k].ns * 1e-3, (int)(slow[k].at - from),
               text + from);
    }
    return 0;
}
