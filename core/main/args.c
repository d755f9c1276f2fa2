#include "core/main/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_help(const char *usage, const struct arg *table, u32 rows)
{
    printf("usage: %s\n\n", usage);
    for (u32 i = 0; i < rows; i++) {
        char left[48];
        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].value ? " " : "",
                 table[i].value ? table[i].value : "");
        printf("  %-24s %s\n", left, table[i].help);
    }
    printf("  %-24s instead of /etc/zigcuda.ini\n"
           "  %-24s any option of the configuration file (zigcuda config lists them)\n",
           "--config FILE", "--section.key VALUE");
}

static enum err range(const struct arg *a, const char *text, struct err_text *e)
{
    if (a->type == ARG_FLOAT)
        return err_set(e, ERR_USAGE, "%s: '%s' is not a number from %g to %g", a->name, text,
                       a->min, a->max);
    if (a->type == ARG_I64) /* whose ends no double has */
        return err_set(e, ERR_USAGE, "%s: '%s' is not a whole number from %lld to %lld", a->name,
                       text, (long long)INT64_MIN, (long long)INT64_MAX);
    return err_set(e, ERR_USAGE, "%s: '%s' is not a whole number from %.0f to %.0f", a->name, text,
                   a->min, a->max);
}

static enum err store(const struct arg *a, const char *text, struct err_text *e)
{
    char *end;
    errno = 0;
    if (a->type == ARG_STRING) {
        *(const char **)a->to = text;
        return ERR_OK;
    }
    if (a->type == ARG_WORDS) {
        struct arg_words *words = a->to;
        if (words->n == ARG_WORDS_MAX)
            return err_set(e, ERR_USAGE, "%s: more than %d of its kind", a->name, ARG_WORDS_MAX);
        words->at[words->n].flag = a->name;
        words->at[words->n++].value = text;
        return ERR_OK;
    }
    if (a->type == ARG_FLOAT) {
        double v = strtod(text, &end);
        if (end == text || *end || !isfinite(v) || v < a->min || v > a->max)
            return range(a, text, e);
        *(float *)a->to = (float)v;
        return ERR_OK;
    }
    if (a->type == ARG_I64) {
        *(i64 *)a->to = strtoll(text, &end, 10);
        return end == text || *end || errno ? range(a, text, e) : ERR_OK;
    }
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || *end || errno || text[0] == '-' || (double)v < a->min || (double)v > a->max)
        return range(a, text, e);
    if (a->type == ARG_U32)
        *(u32 *)a->to = (u32)v;
    else
        *(u64 *)a->to = v;
    return ERR_OK;
}

static const struct arg *find(const struct arg *table, u32 rows, struct str name)
{
    for (u32 i = 0; i < rows; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

static enum err unknown(const struct arg *table, u32 rows, struct str name, struct err_text *e)
{
    const char *near = options_nearest(name);
    u32 best = 4; /* a worse guess helps nobody, nor one that differs in more than half */
    for (u32 i = 0; i < rows; i++) {
        u32 d = str_distance(name, str_of(table[i].name));
        if (d < best && 2 * (size_t)d + 2 <= name.n) {
            best = d;
            near = table[i].name;
        }
    }
    return err_set(e, ERR_USAGE, "unknown flag %.*s%s%s%s; --help lists the flags", STR_ARG(name),
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static enum err parse(struct options *options, int argc, char **argv, const struct arg *table,
                      u32 rows, const char **positional, u32 cap, u32 *n, const char *usage,
                      bool *helped, struct err_text *e)
{
    bool flags = true;
    *n = 0;
    *helped = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (flags && strcmp(word, "--") == 0) {
            flags = false;
        } else if (flags && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(usage, table, rows);
            *helped = true;
            return ERR_OK;
        } else if (!flags || word[0] != '-' || word[1] == 0) {
            if (*n == cap)
                return err_set(e, ERR_USAGE, "'%s' is one argument too many%s", word,
                               cap == 1 ? " (quote a prompt)"
                                        : " (a model's folder goes behind --model); --help lists "
                                          "the flags");
            positional[(*n)++] = word;
        } else {
            const char *equals = strchr(word, '=');
            struct str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
            const struct arg *a = find(table, rows, name);
            if (a && a->type == ARG_FLAG && !equals) {
                *(bool *)a->to = true;
                continue;
            }
            bool option = !a && options_is_flag(name);
            if (!a && !option)
                return unknown(table, rows, name, e);
            if (a && a->type == ARG_FLAG)
                return err_set(e, ERR_USAGE, "%s takes no value", a->name);
            const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
            if (!value)
                return err_set(e, ERR_USAGE, "%s needs a value", word);
            TRY(option ? options_flag(options, name, value, e) : store(a, value, e));
        }
    }
    return ERR_OK;
}

enum err args_parse(struct box *b, int argc, char **argv, const struct arg *table, u32 rows,
                    const char **positional, u32 cap, u32 *n, const char *usage, bool *helped,
                    struct err_text *e)
{
    struct err_text of_file = {0};
    const enum err loaded = options_load(&b->options, &b->scratch, argc, argv, &of_file);
    const enum err parsed =
        parse(&b->options, argc, argv, table, rows, positional, cap, n, usage, helped, e);
    if (loaded == ERR_OK || *helped)
        return parsed;
    *e = of_file;
    return loaded;
}
