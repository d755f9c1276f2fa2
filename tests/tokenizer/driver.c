/* Runs a tokenizer over records from standard input, for tests/tokenizer/compare.py.
 *
 *     tokenizer_driver DIR < records > answers
 *
 * A record is a command byte, a u32 length and that many bytes; an answer is a u32 length and
 * bytes (all little-endian, as on every machine we run on):
 *   e/E  encode text without/with special tokens added; i: special tokens are plain text
 *        -> u32 ids, or the one word 0xffffffff when the text is refused
 *   d/D  decode u32 ids without/with skip_special_tokens -> text
 *   s/S  the same id by id -> for every id, and for the end, u32 length and text
 *   b    u32 id -> its own bytes
 *   r    a split pattern -> nothing, or why it is refused
 *   t    text -> u32 start and end of every match of that pattern; 0xffffffff when it takes too
 * long m    u32 count: loads DIR that many times -> f64 milliseconds of the best load, u64 bytes
 * kept
 */
#include "core/model/split.h"
#include "core/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { IDS_MAX = 16 << 20 };

static struct arena keep, scratch, space;
static char *input, *output, *work;
static u32 *ids;
static size_t output_n, work_bytes;

static void die(const struct err_text *e)
{
    fprintf(stderr, "%s\n", e->text);
    exit(EXIT_MODEL);
}

static void add(const void *p, size_t n)
{
    ASSERT(n <= 256 * MIB - output_n);
    memcpy(output + output_n, p, n);
    output_n += n;
}

static void encode(const struct tokenizer *t, struct str text, u32 flags)
{
    struct err_text e = {0};
    u32 n, refused = UINT32_MAX;
    size_t need = tokenizer_work_bytes(t, text.n);
    ASSERT(need <= work_bytes);
    memset(work, 0xa5, MIN(need, (size_t)4096)); /* nothing may rely on zeroes */
    if (tokenizer_encode(t, text, flags, work, need, ids, IDS_MAX, &n, &e) == ERR_OK)
        add(ids, n * sizeof *ids);
    else
        add(&refused, sizeof refused);
}

static void decode(const struct tokenizer *t, const u32 *list, size_t n, bool skip)
{
    struct err_text e = {0};
    size_t bytes;
    if (tokenizer_decode(t, list, n, skip, output, 256 * MIB, &bytes, &e) != ERR_OK)
        die(&e);
    output_n = bytes;
}

static void stream(const struct tokenizer *t, const u32 *list, size_t n, bool skip)
{
    char piece[DECODE_PIECE_BYTES];
    struct decode_stream d = decode_start(t, skip);
    for (size_t i = 0; i <= n; i++) {
        u32 got = i < n ? decode_push(&d, list[i], piece) : decode_end(&d, piece);
        add(&got, sizeof got);
        add(piece, got);
    }
}

static struct split *pattern;

static void compile(struct str regex)
{
    static struct arena patterns;
    struct err_text e = {0};
    if (!patterns.base && arena_open(&patterns, "patterns", 64 * MIB, false, &e) != ERR_OK)
        die(&e);
    arena_reset(&patterns, 0);
    pattern = NULL;
    if (split_compile(&patterns, regex, "driver", &pattern, &e) != ERR_OK)
        add(e.text, strlen(e.text));
}

static void matches(struct str text)
{
    struct split_budget budget = {.steps = split_steps(text.n)};
    struct split_scan scan = {.budget = &budget};
    size_t start, end = 0;
    u32 refused = UINT32_MAX;
    while (pattern && split_next(pattern, text, end, &scan, &start, &end)) {
        u32 span[2] = {(u32)start, (u32)end};
        add(span, sizeof span);
    }
    if (budget.over) {
        output_n = 0;
        add(&refused, sizeof refused);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void load(const char *dir, struct tokenizer **t)
{
    struct err_text e = {0};
    if (arena_open(&keep, "boot", LIMIT_BOOT_ARENA_BYTES, false, &e) != ERR_OK ||
        arena_open(&scratch, "scratch", LIMIT_SCRATCH_ARENA_BYTES, false, &e) != ERR_OK ||
        tokenizer_load(&keep, &scratch, dir, t, &e) != ERR_OK)
        die(&e);
    arena_close(&scratch);
}

static void measure(const char *dir, u32 count)
{
    struct tokenizer *t;
    double best = 1e9;
    u64 kept = keep.used_bytes;
    for (u32 i = 0; i < count; i++) {
        struct arena real = keep;
        double from = now_ms();
        load(dir, &t);
        best = MIN(best, now_ms() - from);
        arena_close(&keep);
        keep = real;
    }
    add(&best, sizeof best);
    add(&kept, sizeof kept);
}

static void answer(const struct tokenizer *t, const char *dir, char command, size_t n)
{
    const u32 *list = (const u32 *)(const void *)input;
    struct str text = {input, n};
    output_n = 0;
    switch (command) {
    case 'e':
    case 'E':
        encode(t, text, command == 'E' ? ENCODE_ADD_SPECIAL : 0);
        break;
    case 'i':
        encode(t, text, ENCODE_NO_SPECIAL_TEXT);
        break;
    case 'd':
    case 'D':
        decode(t, list, n / 4, command == 'D');
        break;
    case 's':
    case 'S':
        stream(t, list, n / 4, command == 'S');
        break;
    case 'b':
        output_n = tokenizer_bytes(t, list[0], output);
        break;
    case 'r':
        compile(text);
        break;
    case 't':
        matches(text);
        break;
    case 'm':
        measure(dir, list[0]);
        break;
    default:
        fprintf(stderr, "unknown command %d\n", command);
        exit(EXIT_USAGE);
    }
}

int main(int argc, char **argv)
{
    struct err_text e = {0};
    struct tokenizer *t;
    char command;
    u32 n;
    if (argc != 2) {
        fprintf(stderr, "usage: tokenizer_driver DIR < records > answers\n");
        return EXIT_USAGE;
    }
    load(argv[1], &t);
    if (arena_open(&space, "driver", 3 * GIB, false, &e) != ERR_OK)
        die(&e);
    work_bytes = GIB + 512 * MIB;
    input = arena_alloc(&space, 64 * MIB, 16);
    output = arena_alloc(&space, 256 * MIB + DECODE_PIECE_BYTES, 16);
    ids = ARENA_NEW(&space, u32, IDS_MAX);
    work = arena_alloc(&space, work_bytes, 16);
    ASSERT(input && output && ids && work);
    while (fread(&command, 1, 1, stdin) == 1) {
        if (fread(&n, 4, 1, stdin) != 1 || n > 64 * MIB || fread(input, 1, n, stdin) != n) {
            fprintf(stderr, "a record is cut off\n");
            return EXIT_USAGE;
        }
        answer(t, argv[1], command, n);
        n = (u32)output_n;
        if (fwrite(&n, 4, 1, stdout) != 1 || fwrite(output, 1, output_n, stdout) != output_n)
            return EXIT_SYSTEM;
    }
    return EXIT_OK;
}
