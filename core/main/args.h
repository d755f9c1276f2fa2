/* The flags of one command: a table of its own, and behind it every option of config/options.def as
 * --section.key=value. `--name value` and `--name=value` are the same; "--" ends the flags.
 */
#ifndef ZIGCUDA_ARGS_H
#define ZIGCUDA_ARGS_H

#include "core/main/boot.h"

enum arg_type { ARG_FLAG, ARG_U32, ARG_U64, ARG_I64, ARG_FLOAT, ARG_STRING, ARG_WORDS };

enum { ARG_WORDS_MAX = 128 };

struct arg_words { /* of a flag that may come again; several flags may share one, in their order */
    u32 n;
    struct {
        const char *flag, *value;
    } at[ARG_WORDS_MAX];
};

struct arg {
    const char *name; /* "--seed" */
    enum arg_type type;
    void *to;          /* bool, u32, u64, i64, float, const char * or struct arg_words */
    double min, max;   /* of numbers; an i64 may be any */
    const char *value; /* "N", for the help text */
    const char *help;
};

/* The configuration file, then argv[1..argc), into b->options. What is no flag goes to
 * positional[cap]; *n counts it. --help prints `usage` and the table, whatever the file is like,
 * and sets *helped. */
MUST enum err args_parse(struct box *b, int argc, char **argv, const struct arg *table, u32 rows,
                         const char **positional, u32 cap, u32 *n, const char *usage, bool *helped,
                         struct err_text *e);

#endif
