#include "core/main/main.h"

#include "config/options.h"

#include <stdio.h>

static const char usage[] =
    "usage: zigcuda config [--ini | --markdown] [--config FILE] [--section.key VALUE]...\n\n"
    "Prints every option, its value and where that comes from.\n\n"
    "  --ini        as a configuration file; what is not set is commented out\n"
    "  --markdown   the reference table of README.md\n";

static enum err flag(struct options *o, int argc, char **argv, int *i, struct err_text *e)
{
    const char *word = argv[*i], *equals = strchr(word, '=');
    struct str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
    if (!options_is_flag(name)) {
        const char *near = options_nearest(name);
        return err_set(e, ERR_USAGE, "unknown argument %.*s%s%s; --help lists them", STR_ARG(name),
                       near ? "; did you mean " : "", near ? near : "");
    }
    const char *value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!value)
        return err_set(e, ERR_USAGE, "%s needs a value", word);
    return options_flag(o, name, value, e);
}

static enum err go(int argc, char **argv, struct err_text *e)
{
    static struct options o;
    struct arena scratch;
    bool ini = false, markdown = false;
    TRY(arena_open(&scratch, "scratch", 2 * LIMIT_INI_BYTES, false, e));
    options_default(&o);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", usage);
            return ERR_OK;
        }
    TRY(options_load(&o, &scratch, argc, argv, e));
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--ini") == 0)
            ini = true;
        else if (strcmp(argv[i], "--markdown") == 0)
            markdown = true;
        else
            TRY(flag(&o, argc, argv, &i, e));
    if (ini && markdown)
        return err_set(e, ERR_USAGE, "--ini and --markdown are two forms; give one of them");
    options_print(&o, ini ? OPTIONS_INI : markdown ? OPTIONS_MARKDOWN : OPTIONS_TABLE);
    return ERR_OK;
}

int cmd_config(int argc, char **argv)
{
    struct err_text e = {0};
    return main_end("config", go(argc, argv, &e), &e);
}
