#include "core/main/args.h"
#include "core/main/main.h"
#include "core/main/serve.h"

#include <stdio.h>

static enum err go(int argc, char **argv, struct err_text *e)
{
    static struct box b;
    static struct serve serve;
    const struct arg table[] = {
        {"--shape", ARG_STRING, &b.shape.name, 0, 0, "NAME", "as if a folder held a known shape"},
        {"--bits", ARG_U32, &b.shape.bits, 4, 16, "N", "of the shape's weights: 4, 8 or 16"},
        {"--head-bits", ARG_U32, &b.shape.head_bits, 4, 16, "N", "of its head: 4, 8 or 16"},
    };
    bool helped;
    u32 words;
    TRY(boot_begin(&b, e));
    TRY(args_parse(&b, argc, argv, table, COUNTOF(table), NULL, 0, &words,
                   "zigcuda plan --model DIR", &helped, e));
    if (helped)
        return ERR_OK;
    b.only_plan = true;
    TRY(boot_model(&b, e));
    TRY(serve_plan(&serve, &b, e));
    boot_print_plan(&b);
    return boot_check(&b, e);
}

int cmd_plan(int argc, char **argv)
{
    struct err_text e = {0};
    return main_end("plan", go(argc, argv, &e), &e);
}
