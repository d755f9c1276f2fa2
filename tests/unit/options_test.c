#include "config/options.h"
#include "config/value.h"
#include "core/base/file.h"
#include "tests/unit/unit.h"

static struct options o;
static struct err_text e;

/* Reads a text into fresh options, from a buffer of its exact size: reads past the end show up. */
static enum err read_text(const char *text, size_t n)
{
    size_t mark = unit_arena.used_bytes;
    char *copy = arena_alloc(&unit_arena, n + 1, 1);
    memcpy(copy, text, n);
    copy[n] = 'x'; /* no NUL helps */
    options_default(&o);
    e = (struct err_text){0};
    enum err r = options_text(&o, (struct str){copy, n}, "t.ini", &e);
    ASSERT(r == e.code);
    arena_reset(&unit_arena, mark);
    return r;
}

static bool good(const char *text)
{
    return read_text(text, strlen(text)) == ERR_OK;
}

/* Refused with a message that contains `part`. */
static bool bad(const char *text, const char *part)
{
    bool ok = read_text(text, strlen(text)) == ERR_CONFIG && strstr(e.text, part);
    if (!ok)
        printf("    %s\n", e.text);
    return ok;
}

static bool flag(const char *name, const char *value, const char *part)
{
    e = (struct err_text){0};
    enum err r = options_flag(&o, str_of(name), value, &e);
    return part ? r == ERR_USAGE && strstr(e.text, part) : r == ERR_OK;
}

void value_whole_numbers(void)
{
    u64 v = 7;
    CHECK(value_int(STR("0"), &v) && v == 0);
    CHECK(value_int(STR("18446744073709551615"), &v) && v == UINT64_MAX);
    static const char *const no[] = {"",
                                     "-1",
                                     "+1",
                                     " 1",
                                     "1 ",
                                     "1.0",
                                     "1e3",
                                     "0x10",
                                     "1k",
                                     "18446744073709551616",
                                     "99999999999999999999999"};
    for (size_t i = 0; i < COUNTOF(no); i++)
        CHECK(!value_int(str_of(no[i]), &v) && v == UINT64_MAX);
}

void value_sizes(void)
{
    u64 v = 7;
    char text[VALUE_TEXT_MAX];
    CHECK(value_size(STR("0"), &v) && v == 0);
    CHECK(value_size(STR("512"), &v) && v == 512);
    CHECK(value_size(STR("512B"), &v) && v == 512);
    CHECK(value_size(STR("3KiB"), &v) && v == 3072);
    CHECK(value_size(STR("3 MiB"), &v) && v == 3 * MIB);
    CHECK(value_size(STR("2 GiB"), &v) && v == 2 * GIB);
    CHECK(value_size(STR("1 TiB"), &v) && v == 1024 * GIB);
    static const char *const no[] = {"",       "GiB",    "1 GB",         "1G",    "1.5 GiB",
                                     "1 GiB ", "-1 GiB", "16777216 TiB", "1 gib", "1\tGiB"};
    for (size_t i = 0; i < COUNTOF(no); i++)
        CHECK(!value_size(str_of(no[i]), &v) && v == 1024 * GIB);
    static const u64 round[] = {0, 1, 1023, 1024, 1536 * MIB, 3 * GIB, UINT64_MAX};
    for (size_t i = 0; i < COUNTOF(round); i++)
        CHECK(value_size(str_of(value_put_size(round[i], text)), &v) && v == round[i]);
    CHECK(strcmp(value_put_size(1536 * MIB, text), "1536 MiB") == 0);
}

void value_times(void)
{
    u64 v = 7;
    char text[VALUE_TEXT_MAX];
    CHECK(value_time(STR("0"), &v) && v == 0);
    CHECK(value_time(STR("250 ms"), &v) && v == 250);
    CHECK(value_time(STR("30s"), &v) && v == 30000);
    static const char *const no[] = {"", "30", "1 m", "1.5 s", "ms", "18446744073709552 s", "s1"};
    for (size_t i = 0; i < COUNTOF(no); i++)
        CHECK(!value_time(str_of(no[i]), &v) && v == 30000);
    static const u64 round[] = {0, 1, 999, 1000, 1500, 60000};
    for (size_t i = 0; i < COUNTOF(round); i++)
        CHECK(value_time(str_of(value_put_time(round[i], text)), &v) && v == round[i]);
}

void value_numbers_and_switches(void)
{
    double d = 7;
    bool b;
    char text[VALUE_TEXT_MAX];
    CHECK(value_float(STR("0.25"), &d) && d == 0.25);
    CHECK(value_float(STR("-1e-3"), &d) && d == -1e-3);
    static const char *const no[] = {"",   "nan", "inf", "1e999", "0x1p3", " 1",
                                     "1 ", "1,5", "--1", "e",     "1.2.3"};
    for (size_t i = 0; i < COUNTOF(no); i++)
        CHECK(!value_float(str_of(no[i]), &d) && d == -1e-3);
    static const double round[] = {0, 1, 0.1, 1.0 / 3, 1e300, -2.5, 5e-324};
    for (size_t i = 0; i < COUNTOF(round); i++)
        CHECK(value_float(str_of(value_put_float(round[i], text)), &d) && d == round[i]);
    CHECK(value_bool(STR("on"), &b) && b && value_bool(STR("yes"), &b) && b);
    CHECK(value_bool(STR("true"), &b) && b && value_bool(STR("1"), &b) && b);
    CHECK(value_bool(STR("off"), &b) && !b && value_bool(STR("no"), &b) && !b);
    CHECK(value_bool(STR("false"), &b) && !b && value_bool(STR("0"), &b) && !b);
    CHECK(!value_bool(STR(""), &b) && !value_bool(STR("On"), &b) && !value_bool(STR("2"), &b));
}

void options_defaults(void)
{
    options_default(&o);
    CHECK(strcmp(o.model_dir, "") == 0 && o.model_context == 0);
    CHECK(o.engine_slots == 0 && o.engine_queue == 64 && o.engine_step_tokens == 0);
    CHECK(o.engine_prefill_beside == 0 && o.engine_max_tokens == 0 && o.engine_kv == 0);
    CHECK(o.engine_kv_type == ENGINE_KV_TYPE_AUTO && o.engine_prefix_cache);
    CHECK(o.device_kind == DEVICE_KIND_AUTO && o.cpu_activations == CPU_ACTIVATIONS_AUTO);
    CHECK(strcmp(o.cpu_kernels, "auto") == 0 && o.cpu_threads == 0 && o.engine_prefix_cache);
    CHECK(o.memory_host_max == 0 && o.file[0] == 0);
    for (u32 i = 0; i < OPTION_COUNT; i++)
        CHECK(o.from[i] == OPTION_FROM_DEFAULT);
}

void options_take_every_type(void)
{
    CHECK(good("; comment\n# comment\n\n[model]\ndir = /models/a b;c\n[engine]\nslots=3\n"
               "kv : 2 GiB\n  kv_type\t= f32\nprefix_cache = off\n[cpu]\nactivations = int8\n"
               "[device] ; the device\nkind = cuda"));
    CHECK(strcmp(o.model_dir, "/models/a b;c") == 0 && o.model_dir == o.model_dir_text);
    CHECK(o.engine_slots == 3 && o.engine_kv == 2 * GIB && !o.engine_prefix_cache);
    CHECK(o.engine_kv_type == ENGINE_KV_TYPE_F32 && o.cpu_activations == CPU_ACTIVATIONS_INT8);
    CHECK(o.device_kind == DEVICE_KIND_CUDA);
    CHECK(o.from[OPTION_model_dir] == 5 && o.from[OPTION_engine_kv_type] == 9);
    CHECK(o.from[OPTION_device_kind] == 14 && o.from[OPTION_engine_queue] == OPTION_FROM_DEFAULT);
}

void options_bounds(void)
{
    CHECK(good("[engine]\nslots = 1\n") && good("[engine]\nslots = 256\n"));
    CHECK(bad("[engine]\nqueue = 0\n", "t.ini:2: engine.queue is '0'; it has to be a whole number "
                                       "from 1 to 4096"));
    CHECK(bad("[engine]\n\n\nslots = 257", "t.ini:4: engine.slots is '257'"));
    CHECK(bad("[engine]\nslots = 8 # comment", "'8 # comment'"));
    CHECK(bad("[engine]\nslots = 8 # comment", "256; a comment has a line of its own"));
    CHECK(bad("[engine]\nslots = 8 ; comment", "256; a comment has a line of its own"));
    CHECK(bad("[engine]\nslots = \"8\"",
              "engine.slots is '\"8\"'; it has to be a whole number from "
              "0 to 256; leave out the quotes"));
    CHECK(bad("[model]\ndir = \"/x\"\n", "model.dir is '\"/x\"'; it has to be text"));
    CHECK(bad("[server]\nlisten = '[::1]:80'\n", "control characters; leave out the quotes"));
    CHECK(good("[model]\ndir = /x\"y\"\n") && good("[model]\ndir = \"\n"));
    CHECK(bad("[engine]\nkv = 1.5 GiB\n", "or TiB; take a smaller unit instead of a fraction"));
    CHECK(bad("[engine]\nslots = 1.5\n", "") && !strstr(e.text, "unit"));
    CHECK(bad("[engine]\nslots =\n", "engine.slots is ''"));
    CHECK(good("[engine]\nkv = 16 TiB\n"));
    CHECK(bad("[engine]\nkv = 17 TiB\n", "a size from 0 to 16 TiB"));
    CHECK(bad("[engine]\nkv = 4 GB\n", "t.ini:2: engine.kv is '4 GB'"));
    CHECK(bad("[engine]\nkv_type = f64\n", "it has to be auto or f16 or f32"));
    CHECK(bad("[engine]\nkv_type = F16\n", "auto or f16 or f32"));
    CHECK(bad("[cpu]\npin = maybe\n", "it has to be auto or on or off"));
    CHECK(good("[cpu]\nkernels = 1234567890123456789012345678901\n"));
    CHECK(bad("[cpu]\nkernels = 12345678901234567890123456789012\n", "at most 31 bytes"));
    CHECK(strcmp(o.cpu_kernels, "auto") == 0);
}

void options_unknown_names(void)
{
    CHECK(bad("[engine]\nslot = 4\n", "t.ini:2: there is no option 'engine.slot'; did you mean "
                                      "engine.slots?"));
    CHECK(bad("[cpu]\nslots = 4\n", "did you mean engine.slots?"));
    CHECK(bad("[engine]\nzzzzzzzz = 4\n", "'engine.zzzzzzzz'; zigcuda config lists"));
    CHECK(bad("[engin]\nslots = 4\n", "t.ini:1: there is no section [engin]; did you mean "
                                      "[engine]?"));
    CHECK(bad("[nothing_like_it]\n", "t.ini:1: there is no section [nothing_like_it]; zigcuda"));
    CHECK(bad("slots = 4\n", "t.ini:1: 'slots' stands before the first [section]; did you mean "
                             "slots below [engine]?"));
    CHECK(bad("model = /x\n", "'model' stands before the first [section]; did you mean dir below "
                              "[model]?"));
    CHECK(bad("model.dir = /x\n", "did you mean dir below [model]?"));
    CHECK(bad("{\"a\": 1}\n", "before the first [section]; zigcuda config --ini prints a file"));
    CHECK(bad("engine:\n  slots: 4\n", "t.ini:1: a section is written [engine]"));
    CHECK(bad("[server]\nport = 80\n", "'server.port'; did you mean server.listen?"));
    CHECK(bad("[server]\napi_key = x\n", "did you mean keys.file?"));
    CHECK(bad("[model]\npath = /x\n", "did you mean model.dir?"));
    CHECK(bad("[]\nslots = 4\n", "there is no section []"));
    char text[600];
    snprintf(text, sizeof text, "[engine%0300d]\n", 0);
    CHECK(bad(text, "there is no section [engine000"));
    snprintf(text, sizeof text, "[engine]\nslots%0300d = 1\n", 0);
    CHECK(bad(text, "t.ini:2: there is no option 'engine.slots000"));
}

void options_forms_of_a_file(void)
{
    CHECK(good("") && good("\n\n") && good("[engine]") && good("\xef\xbb\xbf"));
    CHECK(good("\xef\xbb\xbf[engine]\r\nslots = 5\r\n\r\nqueue = 9\r\n"));
    CHECK(o.engine_slots == 5 && o.engine_queue == 9 && o.from[OPTION_engine_queue] == 4);
    CHECK(bad("\xef\xbb\xbf[engin]\n", "t.ini:1: there is no section [engin]"));
    CHECK(good("[engine]\nslots = 5\n[cpu]\npin = off\n[engine]\nqueue = 9\n"));
    CHECK(
        bad("[engine]\nslots = 5\nslots = 5\n", "t.ini:3: engine.slots stands on line 2 already"));
    CHECK(bad("[engine]\nslots = 5\n[cpu]\n[engine]\nslots = 6\n", "t.ini:5: engine.slots stands"));
    CHECK(bad("[engine]\nslots\n", "t.ini:2: the line is neither [section] nor key = value"));
    CHECK(bad("[engine\nslots = 3\n", "t.ini:1: the line is neither"));
    CHECK(bad("[engine] slots = 4\n", "t.ini:1: 'slots = 4' stands behind [engine]"));
    CHECK(bad("[engine]\nslots = 4\rqueue = 4\n", "t.ini:2: column 10 holds control character "
                                                  "0x0d"));
    CHECK(read_text("[engine]\nslots = 4\0\n", 20) == ERR_CONFIG && strstr(e.text, "0x00"));
    CHECK(read_text("\xff\xfe[\0e\0", 6) == ERR_CONFIG && strstr(e.text, "t.ini:1: column 4"));
    CHECK(good("[model]\ndir = a\n  b = c\n") == false && strstr(e.text, "t.ini:3: there is no"));
}

void options_long_lines(void)
{
    enum { EXTRA = 64 };
    char *text = arena_alloc(&unit_arena, LIMIT_INI_LINE_BYTES + EXTRA, 1);
    memset(text, ';', LIMIT_INI_LINE_BYTES + EXTRA);
    CHECK(read_text(text, LIMIT_INI_LINE_BYTES) == ERR_OK);
    CHECK(read_text(text, LIMIT_INI_LINE_BYTES + 1) == ERR_CONFIG);
    CHECK(strstr(e.text, "t.ini:1: the line has 8193 bytes; the limit is 8192"));
    /* The rest of a long line is not taken for a line. */
    static const char tail[] = "[engine]\nslots = 4\n";
    memcpy(text + LIMIT_INI_LINE_BYTES, tail, sizeof tail);
    CHECK(read_text(text, LIMIT_INI_LINE_BYTES + sizeof tail - 1) == ERR_CONFIG);
    CHECK(o.engine_slots == 0);
    /* The longest path is taken, one more byte is not. */
    int n = snprintf(text, 16, "[model]\ndir=");
    memset(text + n, 'p', LIMIT_PATH_BYTES);
    CHECK(read_text(text, (size_t)n + LIMIT_PATH_BYTES - 1) == ERR_OK);
    CHECK(strlen(o.model_dir) == LIMIT_PATH_BYTES - 1);
    CHECK(read_text(text, (size_t)n + LIMIT_PATH_BYTES) == ERR_CONFIG);
    CHECK(strstr(e.text, "t.ini:2: model.dir is 'ppp") && strstr(e.text, "at most 4095 bytes"));
}

void options_prefixes_and_noise_never_crash(void)
{
    static const char text[] =
        "\xef\xbb\xbf; c\r\n[model]\ndir = /a ;b\n[engine]\nslots = 12\n"
        "kv = 3 GiB\nkv_type = f16\nprefix_cache = no\n[server] # x\npin=1\n";
    char copy[sizeof text];
    static const char noise[] = "\0\n\r[]=:;# \t\x7f\xff\x30";
    CHECK(good(text));
    for (size_t n = 0; n < sizeof text - 1; n++)
        (void)read_text(text, n);
    for (size_t i = 0; i < sizeof text - 1; i++)
        for (size_t k = 0; k < sizeof noise - 1; k++) {
            memcpy(copy, text, sizeof text);
            copy[i] = noise[k];
            (void)read_text(copy, sizeof text - 1);
        }
    CHECK(good(text) && o.engine_slots == 12 && o.engine_kv == 3 * GIB);
}

void options_flags(void)
{
    char value[] = "/models/x";
    CHECK(good("[engine]\nslots = 5\n"));
    CHECK(flag("--engine.slots", "6", NULL) && o.engine_slots == 6);
    CHECK(o.from[OPTION_engine_slots] == OPTION_FROM_FLAG);
    CHECK(flag("--engine.slots", "7", NULL) && o.engine_slots == 7);
    CHECK(flag("--engine.slots", "257", "--engine.slots is '257'; it has to be a whole number"));
    CHECK(o.engine_slots == 7);
    CHECK(flag("--model", value, NULL));
    value[0] = 'X'; /* options hold their own text */
    CHECK(strcmp(o.model_dir, "/models/x") == 0);
    CHECK(flag("--model", "a\nb", "--model is 'a?b'"));
    CHECK(flag("--model", "'/x'", "leave out the quotes"));
    CHECK(flag("--threads", "2", NULL) && o.cpu_threads == 2);
    CHECK(flag("--config", "anything", NULL));
    CHECK(options_is_flag(STR("--engine.slots")) && options_is_flag(STR("--model")));
    CHECK(options_is_flag(STR("--threads")) && options_is_flag(STR("--config")));
    CHECK(!options_is_flag(STR("engine.slots")) && !options_is_flag(STR("--engine.slot")));
    CHECK(!options_is_flag(STR("--slots")) && !options_is_flag(STR("--")));
}

static bool near(const char *name, const char *want)
{
    const char *got = options_nearest(str_of(name));
    return want ? got && strcmp(got, want) == 0 : !got;
}

void options_nearest_names(void)
{
    CHECK(near("--engine.slot", "--engine.slots") && near("--slots", "--engine.slots"));
    CHECK(near("--cpu.slots", "--engine.slots") && near("--modle", "--model"));
    CHECK(near("--thread", "--threads") && near("--confg", "--config"));
    CHECK(near("--log.levle", "--log.level") && near("engine.kv-type", "--engine.kv_type"));
    CHECK(near("--port", "--server.listen") && near("--host", "--server.listen"));
    CHECK(near("-m", "--model.dir") && near("-model", "--model.dir"));
    CHECK(near("--max-model-len", "--model.context") && near("--api-key", "--keys.file"));
    CHECK(near("--ssl-keyfile", "--tls.key") && near("--ssl-certfile", "--tls.certificate"));
    CHECK(near("--gpu-memory-utilization", "--cuda.memory_share") && near("-t", "--cpu.threads"));
    CHECK(near("--served-model-name", "--model.name") && near("--parallel", "--engine.slots"));
    CHECK(near("--x", NULL) && near("--", NULL) && near("", NULL));
    CHECK(near("--something.else.entirely", NULL));
}

void options_load_finds_its_file(void)
{
    char *none[] = {"run", "--", "--config", "x"};
    char *twice[] = {"run", "--config", "a", "--config=b"};
    char *open_end[] = {"run", "--config"};
    char *empty[] = {"run", "--config="};
    char *gone[] = {"run", "--config=no/such/file.ini"};
    char *folder[] = {"run", "--config", "/"};
    options_default(&o);
    e = (struct err_text){0};
    /* Only where the machine has no configuration of its own: it is not this test's to read. */
    if (!file_exists("/etc/zigcuda.ini"))
        CHECK(options_load(&o, &unit_arena, COUNTOF(none), none, &e) == ERR_OK && !o.file[0]);
    CHECK(options_load(&o, &unit_arena, COUNTOF(twice), twice, &e) == ERR_USAGE);
    e = (struct err_text){0};
    CHECK(options_load(&o, &unit_arena, COUNTOF(open_end), open_end, &e) == ERR_USAGE);
    e = (struct err_text){0};
    CHECK(options_load(&o, &unit_arena, COUNTOF(empty), empty, &e) == ERR_USAGE);
    e = (struct err_text){0};
    CHECK(options_load(&o, &unit_arena, COUNTOF(gone), gone, &e) == ERR_CONFIG);
    CHECK(strstr(e.text, "no/such/file.ini"));
    e = (struct err_text){0};
    CHECK(options_load(&o, &unit_arena, COUNTOF(folder), folder, &e) == ERR_CONFIG);
}
