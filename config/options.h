/* Configuration: the rows of config/options.def as typed fields, read from an ini file and from
 * flags. What comes later wins: default, file, flag. A value that is wrong is never replaced: it is
 * an error with file and line (or flag), what the option takes, and the nearest known name.
 *
 * The caller owns struct options; it holds its own strings, so it must not be copied or moved, and
 * nothing else has to stay. Limits: LIMIT_INI_BYTES a file, LIMIT_INI_LINE_BYTES a line, and the
 * bounds of each row. Form of the file: [section], key = value, comments on lines of their own
 * behind ';' or '#', LF or CRLF, a UTF-8 BOM at the start is skipped; each key stands once.
 */
#ifndef ZIGCUDA_OPTIONS_H
#define ZIGCUDA_OPTIONS_H

#include "config/limits.h"
#include "core/base/arena.h"
#include "core/base/base.h"
#include "core/base/err.h"

#ifndef OPTIONS_DEF /* a test has rows of its own */
#define OPTIONS_DEF "config/options.def"
#endif

/* enum option_engine_kv_type and so on */
#define OPTION_ENUM_int(...)
#define OPTION_ENUM_size(...)
#define OPTION_ENUM_time(...)
#define OPTION_ENUM_mode(...)
#define OPTION_ENUM_float(...)
#define OPTION_ENUM_bool(...)
#define OPTION_ENUM_string(...)
#define OPTION_ENUM_choice(name, ...) enum option_##name{__VA_ARGS__};
#define OPTION(section, key, type, value, min, max, help, ...) \
    OPTION_ENUM_##type(section##_##key, __VA_ARGS__)
#include OPTIONS_DEF
#undef OPTION

/* OPTION_engine_slots and so on: places in the table */
enum {
#define OPTION(section, key, ...) OPTION_##section##_##key,
#include OPTIONS_DEF
#undef OPTION
    OPTION_COUNT
};

#define OPTION_FIELD_int(name, max) u64 name;
#define OPTION_FIELD_size(name, max) size_t name;
#define OPTION_FIELD_time(name, max) u64 name;
#define OPTION_FIELD_mode(name, max) u64 name;
#define OPTION_FIELD_float(name, max) double name;
#define OPTION_FIELD_bool(name, max) bool name;
#define OPTION_FIELD_string(name, max) \
    const char *name;                  \
    char name##_text[(max) + 1];
#define OPTION_FIELD_choice(name, max) enum option_##name name;

enum { OPTION_FROM_DEFAULT = 0, OPTION_FROM_FLAG = -1 };

struct options {
#define OPTION(section, key, type, value, min, max, ...) OPTION_FIELD_##type(section##_##key, max)
#include OPTIONS_DEF
#undef OPTION
    int from[OPTION_COUNT];      /* OPTION_FROM_*, or the line of `file` */
    char file[LIMIT_PATH_BYTES]; /* that was read; "" for none */
};

void options_default(struct options *o);

/* Reads the file that --config FILE or --config=FILE names, else /etc/zigcuda.ini where that
 * exists. Looks at no other flag; "--" ends them. ERR_CONFIG for the file, ERR_USAGE for the flag.
 */
MUST enum err options_load(struct options *o, struct arena *scratch, int argc, char **argv,
                           struct err_text *e);

/* The same with the path given, and with the text given (`path` is for messages). */
MUST enum err options_file(struct options *o, struct arena *scratch, const char *path,
                           struct err_text *e);
MUST enum err options_text(struct options *o, struct str text, const char *path,
                           struct err_text *e);

/* True for --section.key of the table, --model, --threads and --config. All take a value. */
bool options_is_flag(struct str name);

/* One flag for which options_is_flag is true; the last of its kind wins. --config does nothing
 * here. ERR_USAGE. */
MUST enum err options_flag(struct options *o, struct str name, const char *value,
                           struct err_text *e);

/* The flag that was meant by an unknown one (with or without "--"); NULL when none is near. */
const char *options_nearest(struct str name);

/* To stdout. TABLE: option, value, source. INI: a file that says the same as `o`, defaults
 * commented out. MARKDOWN: the reference of README.md, which is the same for every `o`. */
enum options_form { OPTIONS_TABLE, OPTIONS_INI, OPTIONS_MARKDOWN };
void options_print(const struct options *o, enum options_form form);

#endif
