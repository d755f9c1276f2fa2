/* The code of config/options.c once more, over a table with a row of every type: the real table
 * need not use each. The public names get a prefix, as the real ones are linked too. */
#define OPTIONS_DEF "tests/unit/options_types.def"
#define options_default types_default
#define options_load types_load
#define options_file types_file
#define options_text types_text
#define options_is_flag types_is_flag
#define options_flag types_flag
#define options_nearest types_nearest
#define options_print types_print
#include "config/options.c"

#include "tests/unit/unit.h"

static struct options o;

/* The text of the value after setting it, or the message; every way in gives the same. */
static const char *set(const char *flag, const char *value)
{
    static char text[ERR_TEXT_MAX];
    static struct options by_file;
    char line[200], got[VALUE_TEXT_MAX], file[VALUE_TEXT_MAX];
    struct err_text e = {0}, fe = {0};
    const struct option *p = find(str_of(flag));
    options_default(&by_file);
    snprintf(line, sizeof line, "[t]\n%s = %s\n", p->key, value);
    enum err r = options_flag(&o, str_of(flag), value, &e);
    enum err f = options_text(&by_file, str_of(line), "f", &fe);
    if ((r == ERR_OK) != (f == ERR_OK))
        return "file and flag disagree";
    if (r == ERR_OK && strcmp(value_text(&o, p, got), value_text(&by_file, p, file)) != 0)
        return "file and flag give two values";
    snprintf(text, sizeof text, "%s", r == ERR_OK ? value_text(&o, p, got) : e.text);
    return text;
}

#define SETS(flag, value, want) (strcmp(set(flag, value), want) == 0)
#define REFUSES(flag, value, want) (strcmp(set(flag, value), flag " is '" value "'; " want) == 0)

void options_of_every_type(void)
{
    options_default(&o);
    CHECK(o.t_int == 5 && o.t_size == 4096 && o.t_time == 1500 && o.t_float == 0.5 && !o.t_bool);
    CHECK(strcmp(o.t_string, "ab") == 0 && o.t_choice == T_CHOICE_TWO);
    for (u32 i = 0; i < OPTION_COUNT; i++) { /* what is printed is taken */
        char text[VALUE_TEXT_MAX], value[VALUE_TEXT_MAX];
        snprintf(value, sizeof value, "%s", value_text(&o, &table[i], text));
        CHECK(strcmp(set(table[i].flag, value), value) == 0);
        CHECK(o.from[i] == OPTION_FROM_FLAG);
    }

    CHECK(SETS("--t.int", "2", "2") && SETS("--t.int", "9", "9") && o.t_int == 9);
    CHECK(REFUSES("--t.int", "1", "it has to be a whole number from 2 to 9"));
    CHECK(REFUSES("--t.int", "10", "it has to be a whole number from 2 to 9") && o.t_int == 9);
    CHECK(SETS("--t.size", "1024", "1 KiB") && SETS("--t.size", "1 MiB", "1 MiB"));
    CHECK(REFUSES("--t.size", "1023",
                  "it has to be a size from 1 KiB to 1 MiB, in bytes, KiB, MiB, GiB or TiB"));
    CHECK(REFUSES("--t.size", "2MiB",
                  "it has to be a size from 1 KiB to 1 MiB, in bytes, KiB, MiB, GiB or TiB"));
    CHECK(SETS("--t.time", "10 ms", "10 ms") && SETS("--t.time", "60s", "60 s"));
    CHECK(o.t_time == 60000);
    CHECK(REFUSES("--t.time", "9 ms", "it has to be a time from 10 ms to 60 s, in ms or s"));
    CHECK(REFUSES("--t.time", "61 s", "it has to be a time from 10 ms to 60 s, in ms or s"));
    CHECK(REFUSES("--t.time", "20", "it has to be a time from 10 ms to 60 s, in ms or s"));
    CHECK(o.t_mode == 0600 && SETS("--t.mode", "644", "0644") && SETS("--t.mode", "0", "0000"));
    CHECK(REFUSES("--t.mode", "0661", "it has to be permission bits in octal, from 0000 to 0660"));
    CHECK(REFUSES("--t.mode", "0680", "it has to be permission bits in octal, from 0000 to 0660"));
    CHECK(SETS("--t.float", "-1", "-1") && SETS("--t.float", "2.5", "2.5") && o.t_float == 2.5);
    CHECK(REFUSES("--t.float", "2.51", "it has to be a number from -1 to 2.5"));
    CHECK(REFUSES("--t.float", "-1.1", "it has to be a number from -1 to 2.5"));
    CHECK(REFUSES("--t.float", "nan", "it has to be a number from -1 to 2.5"));
    CHECK(SETS("--t.bool", "yes", "on") && o.t_bool && SETS("--t.bool", "0", "off") && !o.t_bool);
    CHECK(REFUSES("--t.bool", "2", "it has to be on or off"));
    CHECK(SETS("--t.string", "", "") && SETS("--t.string", "a ;b", "a ;b"));
    CHECK(REFUSES("--t.string", "abcde",
                  "it has to be text of at most 4 bytes without control "
                  "characters"));
    CHECK(SETS("--t.choice", "one", "one") && o.t_choice == T_CHOICE_ONE);
    CHECK(REFUSES("--t.choice", "three", "it has to be one or two"));
    CHECK(REFUSES("--t.choice", "", "it has to be one or two"));
}
