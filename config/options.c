#include "config/options.h"

#include "config/value.h"
#include "core/base/file.h"

/* Debian's header says that handlers get no line number, its library passes one all the same.
 * Lines are counted here, so it does not matter. */
#include <ini.h>

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define DEFAULT_FILE "/etc/zigcuda.ini"

enum option_type {
    OPTION_TYPE_int,
    OPTION_TYPE_size,
    OPTION_TYPE_time,
    OPTION_TYPE_mode,
    OPTION_TYPE_float,
    OPTION_TYPE_bool,
    OPTION_TYPE_string,
    OPTION_TYPE_choice,
};

struct option {
    const char *flag, *section, *key; /* "--engine.slots", "engine", "slots" */
    enum option_type type;
    size_t at, text_at; /* the field, and for a string its bytes, in struct options */
    double min, max;
    const char *help;
    const char *choices; /* "ENGINE_KV_TYPE_AUTO, ENGINE_KV_TYPE_F16, ..." */
};

#define OPTION_TEXT_int(name) 0
#define OPTION_TEXT_size(name) 0
#define OPTION_TEXT_time(name) 0
#define OPTION_TEXT_mode(name) 0
#define OPTION_TEXT_float(name) 0
#define OPTION_TEXT_bool(name) 0
#define OPTION_TEXT_string(name) offsetof(struct options, name##_text)
#define OPTION_TEXT_choice(name) 0

static const struct option table[OPTION_COUNT] = {
#define OPTION(section, key, type, value, min, max, help, ...) \
    {"--" #section "." #key,                                   \
     #section,                                                 \
     #key,                                                     \
     OPTION_TYPE_##type,                                       \
     offsetof(struct options, section##_##key),                \
     OPTION_TEXT_##type(section##_##key),                      \
     (double)(min),                                            \
     (double)(max),                                            \
     help,                                                     \
     #__VA_ARGS__},
#include OPTIONS_DEF
#undef OPTION
};

static const struct {
    const char *flag, *option;
} aliases[] = {{"--model", "--model.dir"}, {"--threads", "--cpu.threads"}};

/* What other servers call it, too far from our names to be found by letters. */
static const struct {
    const char *name, *option;
} elsewhere[] = {{"api-key", "--keys.file"},
                 {"api_key", "--keys.file"},
                 {"c", "--model.context"},
                 {"ctx-size", "--model.context"},
                 {"gpu-memory-utilization", "--cuda.memory_share"},
                 {"host", "--server.listen"},
                 {"m", "--model.dir"},
                 {"max-model-len", "--model.context"},
                 {"max-num-seqs", "--engine.slots"},
                 {"model", "--model.dir"},
                 {"parallel", "--engine.slots"},
                 {"path", "--model.dir"},
                 {"port", "--server.listen"},
                 {"served-model-name", "--model.name"},
                 {"ssl-certfile", "--tls.certificate"},
                 {"ssl-keyfile", "--tls.key"},
                 {"t", "--cpu.threads"}};

/* --- finding ------------------------------------------------------------------------------------
 */

static const struct option *find(struct str flag)
{
    for (size_t i = 0; i < COUNTOF(aliases); i++)
        if (str_is(flag, aliases[i].flag))
            flag = str_of(aliases[i].option);
    for (u32 i = 0; i < OPTION_COUNT; i++)
        if (str_is(flag, table[i].flag))
            return &table[i];
    return NULL;
}

static const struct option *find_key(const char *section, const char *key)
{
    for (u32 i = 0; i < OPTION_COUNT; i++)
        if (strcmp(table[i].section, section) == 0 && strcmp(table[i].key, key) == 0)
            return &table[i];
    return NULL;
}

/* Is a guess at `name` with this distance better than the one with *best? A guess that differs in
 * more than half of its bytes helps nobody. */
static bool nearer(struct str name, u32 distance, u32 *best)
{
    bool yes = distance < *best && 2 * (size_t)distance <= name.n;
    if (yes)
        *best = distance;
    return yes;
}

/* The option that "section.key" or "key" was meant to be; a right key in a wrong section is near.
 */
static const struct option *nearest(struct str name, u32 *best)
{
    const struct option *found = NULL;
    const char *dot = memrchr(name.p, '.', name.n);
    struct str key = name;
    if (dot)
        key = (struct str){dot + 1, name.n - (size_t)(dot + 1 - name.p)};
    for (size_t i = 0; i < COUNTOF(elsewhere); i++)
        if (str_is(key, elsewhere[i].name)) {
            const struct option *option = find(str_of(elsewhere[i].option));
            ASSERT(option);
            *best = 0;
            return option;
        }
    for (u32 i = 0; i < OPTION_COUNT; i++) {
        u32 whole = str_distance(name, str_of(table[i].flag + 2));
        u32 part = str_distance(key, str_of(table[i].key)) + 1;
        if (nearer(name, MIN(whole, part), best))
            found = &table[i];
    }
    return found;
}

const char *options_nearest(struct str name)
{
    u32 best = 4;
    while (str_starts(name, STR("-")))
        name = (struct str){name.p + 1, name.n - 1};
    const struct option *option = nearest(name, &best);
    const char *found = option ? option->flag : NULL;
    for (size_t i = 0; i < COUNTOF(aliases); i++)
        if (nearer(name, str_distance(name, str_of(aliases[i].flag + 2)), &best))
            found = aliases[i].flag;
    return nearer(name, str_distance(name, STR("config")), &best) ? "--config" : found;
}

/* --- values -------------------------------------------------------------------------------------
 */

/* Choice number n as it is written: ENGINE_KV_TYPE_F16 is f16. False behind the last. */
static bool choice(const struct option *p, u32 n, char out[VALUE_TEXT_MAX])
{
    size_t prefix = strlen(p->section) + strlen(p->key) + 2, used = 0;
    const char *c = p->choices;
    for (; n > 0; n--) {
        c = strchr(c, ',');
        if (!c)
            return false;
        c += strspn(c, ", ");
    }
    ASSERT(strlen(c) > prefix);
    for (c += prefix; *c && *c != ','; c++) {
        ASSERT(used + 1 < VALUE_TEXT_MAX);
        out[used++] = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    }
    out[used] = 0;
    return true;
}

/* What an option takes, for messages: "a whole number from 1 to 256". */
static const char *takes(const struct option *p, char *out, size_t cap)
{
    char a[VALUE_TEXT_MAX], b[VALUE_TEXT_MAX];
    int n = 0;
    switch (p->type) {
    case OPTION_TYPE_int:
        snprintf(out, cap, "a whole number from %.0f to %.0f", p->min, p->max);
        break;
    case OPTION_TYPE_size:
        snprintf(out, cap, "a size from %s to %s, in bytes, KiB, MiB, GiB or TiB",
                 value_put_size((u64)p->min, a), value_put_size((u64)p->max, b));
        break;
    case OPTION_TYPE_time:
        snprintf(out, cap, "a time from %s to %s, in ms or s", value_put_time((u64)p->min, a),
                 value_put_time((u64)p->max, b));
        break;
    case OPTION_TYPE_mode:
        snprintf(out, cap, "permission bits in octal, from %04o to %04o", (u32)p->min, (u32)p->max);
        break;
    case OPTION_TYPE_float:
        snprintf(out, cap, "a number from %s to %s", value_put_float(p->min, a),
                 value_put_float(p->max, b));
        break;
    case OPTION_TYPE_bool:
        snprintf(out, cap, "on or off");
        break;
    case OPTION_TYPE_string:
        snprintf(out, cap, "text of at most %.0f bytes without control characters", p->max);
        break;
    case OPTION_TYPE_choice:
        for (u32 i = 0; choice(p, i, a) && n < (int)cap; i++)
            n += snprintf(out + n, cap - (size_t)n, "%s%s", i ? " or " : "", a);
        break;
    }
    return out;
}

static bool is_control(char c)
{
    return (u8)c < 0x20 || c == 0x7f;
}

static bool quoted(struct str s)
{
    return s.n >= 2 && (s.p[0] == '"' || s.p[0] == '\'') && s.p[s.n - 1] == s.p[0];
}

/* What is wrong with a value that was not taken, where that is one of the usual mistakes. */
static const char *advice(const struct option *p, struct str s)
{
    bool unit = p->type == OPTION_TYPE_size || p->type == OPTION_TYPE_time;
    if (quoted(s))
        return "; leave out the quotes";
    if (memmem(s.p, s.n, " #", 2) || memmem(s.p, s.n, " ;", 2))
        return "; a comment has a line of its own";
    return unit && memchr(s.p, '.', s.n) ? "; take a smaller unit instead of a fraction" : "";
}

static bool store_string(struct options *o, const struct option *p, struct str s)
{
    char *text = (char *)o + p->text_at;
    if ((double)s.n > p->max || quoted(s))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (is_control(s.p[i]))
            return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    *(const char **)(void *)((char *)o + p->at) = text;
    return true;
}

static bool store_choice(void *to, const struct option *p, struct str s)
{
    char name[VALUE_TEXT_MAX];
    for (u32 i = 0; choice(p, i, name); i++)
        if (str_is(s, name)) {
            *(u32 *)to = i; /* gcc's enum without negative values */
            return true;
        }
    return false;
}

static bool store_whole(u64 *to, const struct option *p, struct str s)
{
    u64 v;
    bool ok = p->type == OPTION_TYPE_int    ? value_int(s, &v)
              : p->type == OPTION_TYPE_size ? value_size(s, &v)
              : p->type == OPTION_TYPE_mode ? value_mode(s, &v)
                                            : value_time(s, &v);
    if (!ok || (double)v < p->min || (double)v > p->max)
        return false;
    *to = v;
    return true;
}

/* Text into the field; false, and the field as it was, when the option does not take it. */
static bool store(struct options *o, const struct option *p, struct str s)
{
    void *to = (char *)o + p->at;
    double v;
    switch (p->type) {
    case OPTION_TYPE_int:
    case OPTION_TYPE_size:
    case OPTION_TYPE_time:
    case OPTION_TYPE_mode:
        return store_whole(to, p, s);
    case OPTION_TYPE_float:
        if (!value_float(s, &v) || v < p->min || v > p->max)
            return false;
        *(double *)to = v;
        return true;
    case OPTION_TYPE_bool:
        return value_bool(s, to);
    case OPTION_TYPE_string:
        return store_string(o, p, s);
    case OPTION_TYPE_choice:
        return store_choice(to, p, s);
    }
    return false;
}

/* The value as the file and the flags take it. */
static const char *value_text(const struct options *o, const struct option *p,
                              char out[VALUE_TEXT_MAX])
{
    const void *from = (const char *)o + p->at;
    switch (p->type) {
    case OPTION_TYPE_int:
        snprintf(out, VALUE_TEXT_MAX, "%llu", (unsigned long long)*(const u64 *)from);
        break;
    case OPTION_TYPE_size:
        return value_put_size(*(const size_t *)from, out);
    case OPTION_TYPE_time:
        return value_put_time(*(const u64 *)from, out);
    case OPTION_TYPE_mode:
        snprintf(out, VALUE_TEXT_MAX, "%04o", (u32) * (const u64 *)from);
        break;
    case OPTION_TYPE_float:
        return value_put_float(*(const double *)from, out);
    case OPTION_TYPE_bool:
        return *(const bool *)from ? "on" : "off";
    case OPTION_TYPE_string:
        return *(const char *const *)from;
    case OPTION_TYPE_choice:
        ASSERT(choice(p, *(const u32 *)from, out));
    }
    return out;
}

void options_default(struct options *o)
{
    memset(o, 0, sizeof *o);
#define OPTION(section, key, type, value, ...) o->section##_##key = value;
#include OPTIONS_DEF
#undef OPTION
}

/* --- the file -----------------------------------------------------------------------------------
 */

struct reader {
    struct options *o;
    const char *path;
    struct str rest; /* lines not read yet */
    int line;        /* of the latest one; from 1 */
    enum err err;    /* the first error */
    struct err_text *e;
};

static struct str skip_blanks(struct str s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    return s;
}

static enum err unknown_section(const struct reader *r, struct str name)
{
    const char *near = NULL;
    u32 best = 4;
    for (u32 i = 0; i < OPTION_COUNT; i++) {
        if (str_is(name, table[i].section))
            return ERR_OK;
        if (nearer(name, str_distance(name, str_of(table[i].section)), &best))
            near = table[i].section;
    }
    return err_set(r->e, ERR_CONFIG, "%s:%d: there is no section [%.*s]%s%s%s", r->path, r->line,
                   STR_ARG(name), near ? "; did you mean [" : "; zigcuda config lists the options",
                   near ? near : "", near ? "]?" : "");
}

/* inih cuts long section names and overlooks what stands behind a section and sections without
 * keys; those are errors here. */
static enum err check_section(const struct reader *r, struct str line)
{
    line = skip_blanks(line);
    const char *end = line.n > 0 && line.p[0] == '[' ? memchr(line.p, ']', line.n) : NULL;
    if (!end)
        return ERR_OK;
    struct str name = {line.p + 1, (size_t)(end - line.p) - 1};
    struct str behind = skip_blanks((struct str){end + 1, line.n - name.n - 2});
    if (behind.n > 0 && behind.p[0] != ';' && behind.p[0] != '#')
        return err_set(r->e, ERR_CONFIG,
                       "%s:%d: '%.*s' stands behind [%.*s]; put it on its own line", r->path,
                       r->line, STR_ARG(behind), STR_ARG(name));
    return unknown_section(r, name);
}

static enum err check_line(const struct reader *r, struct str line)
{
    if (line.n > LIMIT_INI_LINE_BYTES)
        return err_set(r->e, ERR_CONFIG, "%s:%d: the line has %zu bytes; the limit is %d", r->path,
                       r->line, line.n, LIMIT_INI_LINE_BYTES);
    for (size_t i = 0; i < line.n; i++)
        if (is_control(line.p[i]) && line.p[i] != '\t')
            return err_set(r->e, ERR_CONFIG,
                           "%s:%d: column %zu holds control character 0x%02x; the file has to be "
                           "plain text",
                           r->path, r->line, i + 1, (u8)line.p[i]);
    return check_section(r, line);
}

/* inih's own readers hand a long line on in pieces, as if each were a line; this one refuses. */
static char *next_line(char *to, int cap, void *arg)
{
    struct reader *r = arg;
    if (r->rest.n == 0)
        return NULL;
    const char *end = memchr(r->rest.p, '\n', r->rest.n);
    struct str line = {r->rest.p, end ? (size_t)(end - r->rest.p) : r->rest.n};
    size_t taken = line.n + (end != NULL);
    r->rest = (struct str){r->rest.p + taken, r->rest.n - taken};
    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    r->line++;
    r->err = check_line(r, line);
    if (r->err != ERR_OK)
        return NULL;
    ASSERT(line.n < (size_t)cap);
    memcpy(to, line.p, line.n);
    to[line.n] = 0;
    return to;
}

/* A key above all sections, such as model = ..., or what is no ini file. */
static enum err unknown_place(const struct reader *r, const char *key)
{
    u32 best = 4;
    const struct option *near = nearest(str_of(key), &best);
    for (u32 i = 0; i < OPTION_COUNT; i++)
        if (strcmp(key, table[i].section) == 0 && best > 0)
            return err_set(r->e, ERR_CONFIG, "%s:%d: a section is written [%s]", r->path, r->line,
                           key);
    if (!near)
        return err_set(r->e, ERR_CONFIG,
                       "%s:%d: '%.100s' stands before the first [section]; zigcuda config --ini "
                       "prints a file",
                       r->path, r->line, key);
    return err_set(r->e, ERR_CONFIG,
                   "%s:%d: '%.100s' stands before the first [section]; did you mean %s below [%s]?",
                   r->path, r->line, key, near->key, near->section);
}

static enum err unknown_key(const struct reader *r, const char *section, const char *key)
{
    if (!section[0])
        return unknown_place(r, key);
    char name[160];
    u32 best = 4;
    snprintf(name, sizeof name, "%s.%.100s", section, key);
    const struct option *near = nearest(str_of(name), &best);
    const char *hint = near ? "; did you mean " : "; zigcuda config lists the options";
    return err_set(r->e, ERR_CONFIG, "%s:%d: there is no option '%s'%s%s%s", r->path, r->line, name,
                   hint, near ? near->flag + 2 : "", near ? "?" : "");
}

static enum err take_pair(const struct reader *r, const char *section, const char *key,
                          const char *value)
{
    char want[256];
    const struct option *p = find_key(section, key);
    if (!p)
        return unknown_key(r, section, key);
    int *from = &r->o->from[p - table];
    if (*from > 0)
        return err_set(r->e, ERR_CONFIG, "%s:%d: %s stands on line %d already", r->path, r->line,
                       p->flag + 2, *from);
    if (!store(r->o, p, str_of(value)))
        return err_set(r->e, ERR_CONFIG, "%s:%d: %s is '%.200s'; it has to be %s%s", r->path,
                       r->line, p->flag + 2, value, takes(p, want, sizeof want),
                       advice(p, str_of(value)));
    *from = r->line;
    return ERR_OK;
}

static int on_pair(void *arg, const char *section, const char *key, const char *value)
{
    struct reader *r = arg;
    r->err = take_pair(r, section, key, value);
    return r->err == ERR_OK;
}

enum err options_text(struct options *o, struct str text, const char *path, struct err_text *e)
{
    struct reader r = {.o = o, .path = path, .rest = text, .e = e};
    if (str_starts(text, STR("\xef\xbb\xbf")))
        r.rest = (struct str){text.p + 3, text.n - 3};
    ini_use_stack = true; /* no malloc */
    ini_max_line = LIMIT_INI_LINE_BYTES + 1;
    ini_stop_on_first_error = true;
    ini_allow_multiline = false;
    ini_allow_no_value = false;
    ini_allow_inline_comments = false; /* they would cut a value such as "a ;b" */
    int bad = ini_parse_stream(next_line, &r, on_pair, &r);
    if (r.err == ERR_OK && bad != 0)
        r.err = err_set(e, ERR_CONFIG, "%s:%d: the line is neither [section] nor key = value", path,
                        r.line);
    return r.err;
}

enum err options_file(struct options *o, struct arena *scratch, const char *path,
                      struct err_text *e)
{
    struct str text;
    size_t mark = scratch->used_bytes;
    if (strlen(path) >= sizeof o->file)
        return err_set(e, ERR_CONFIG, "%.100s...: the path is longer than %zu bytes", path,
                       sizeof o->file - 1);
    TRY(file_read(scratch, path, LIMIT_INI_BYTES, ERR_CONFIG, &text, e));
    memcpy(o->file, path, strlen(path) + 1);
    enum err r = options_text(o, text, path, e);
    arena_reset(scratch, mark);
    return r;
}

/* --- flags --------------------------------------------------------------------------------------
 */

bool options_is_flag(struct str name)
{
    return str_is(name, "--config") || find(name) != NULL;
}

enum err options_flag(struct options *o, struct str name, const char *value, struct err_text *e)
{
    char want[256];
    const struct option *p = find(name);
    if (str_is(name, "--config"))
        return ERR_OK;
    ASSERT(p);
    if (!store(o, p, str_of(value)))
        return err_set(e, ERR_USAGE, "%.*s is '%.200s'; it has to be %s%s", STR_ARG(name), value,
                       takes(p, want, sizeof want), advice(p, str_of(value)));
    o->from[p - table] = OPTION_FROM_FLAG;
    return ERR_OK;
}

/* What --config names; NULL when it is not given. */
static enum err named_file(int argc, char **argv, const char **path, struct err_text *e)
{
    *path = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value = NULL;
        if (strncmp(argv[i], "--config=", 9) == 0)
            value = argv[i] + 9;
        else if (strcmp(argv[i], "--config") != 0)
            continue;
        else if (i + 1 < argc)
            value = argv[++i];
        if (!value || !value[0])
            return err_set(e, ERR_USAGE, "--config needs the name of a file");
        if (*path)
            return err_set(e, ERR_USAGE, "--config stands twice; one file is read");
        *path = value;
    }
    return ERR_OK;
}

enum err options_load(struct options *o, struct arena *scratch, int argc, char **argv,
                      struct err_text *e)
{
    const char *path;
    struct stat st;
    TRY(named_file(argc, argv, &path, e));
    /* One that is there and cannot be read, even a link to nowhere, is an error: only its absence
     * is a choice. */
    if (!path && lstat(DEFAULT_FILE, &st) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return ERR_OK;
    enum err r = options_file(o, scratch, path ? path : DEFAULT_FILE, e);
    return r != ERR_OK && path && !o->file[0] ? err_of(e, "--config") : r; /* it was not read */
}

/* --- printing -----------------------------------------------------------------------------------
 */

static void print_table(const struct options *o)
{
    char value[VALUE_TEXT_MAX];
    printf("%-23s %-23s %s\n", "option", "value", "from");
    for (u32 i = 0; i < OPTION_COUNT; i++) {
        printf("%-23s %-23s ", table[i].flag + 2, value_text(o, &table[i], value));
        if (o->from[i] > 0)
            printf("%s:%d\n", o->file, o->from[i]);
        else
            printf("%s\n", o->from[i] == OPTION_FROM_FLAG ? "flag" : "default");
    }
}

static void print_ini(const struct options *o)
{
    char value[VALUE_TEXT_MAX], want[256];
    const char *section = "";
    printf(
        "# Generated by `zigcuda config --ini`. zigcuda reads /etc/zigcuda.ini where it exists, "
        "or\n"
        "# what --config FILE names; a flag --section.key=value wins over the file. A line such "
        "as\n"
        "# `#slots = 8` shows a default. Sizes are in bytes or take KiB, MiB, GiB or TiB; times\n"
        "# take ms or s. Values have no quotes, a comment has a line of its own.\n");
    for (u32 i = 0; i < OPTION_COUNT; i++) {
        const struct option *p = &table[i];
        if (strcmp(p->section, section) != 0)
            printf("\n[%s]\n", p->section);
        section = p->section;
        printf("# %s\n# Takes %s.\n", p->help, takes(p, want, sizeof want));
        const char *text = value_text(o, p, value);
        printf("%s%s =%s%s\n", o->from[i] == OPTION_FROM_DEFAULT ? "#" : "", p->key,
               text[0] ? " " : "", text);
    }
}

static void print_markdown(void)
{
    static struct options defaults;
    char value[VALUE_TEXT_MAX], want[256];
    options_default(&defaults);
    printf("| option | default | takes | what it does |\n|---|---|---|---|\n");
    for (u32 i = 0; i < OPTION_COUNT; i++) {
        const struct option *p = &table[i];
        printf("| `%s` | %s | %s | %s |\n", p->flag + 2, value_text(&defaults, p, value),
               takes(p, want, sizeof want), p->help);
    }
}

void options_print(const struct options *o, enum options_form form)
{
    if (form == OPTIONS_TABLE)
        print_table(o);
    else if (form == OPTIONS_INI)
        print_ini(o);
    else
        print_markdown();
}
