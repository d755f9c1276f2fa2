#include "core/base/box.h"
#include "core/base/date.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static bool parses_as(enum err code, const char *text, size_t n)
{
    const struct json *v;
    struct err_text e = {0};
    size_t mark = unit_arena.used_bytes;
    char *copy = arena_alloc(&unit_arena, n + 1, 1); /* exact size: reads past the end show up */
    memcpy(copy, text, n);
    bool ok = json_parse(&unit_arena, (struct str){copy, n}, "test", code, &v, &e) == ERR_OK;
    arena_reset(&unit_arena, mark);
    return ok;
}

static bool parses(const char *text, size_t n)
{
    return parses_as(ERR_REQUEST, text, n);
}

void json_accepts_and_rejects(void)
{
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "1e5",
        "-1.5E-3",
        "\"\"",
        " [1 , 2 ] ",
        "{\"a\":{\"b\":[null]}}",
        "\"\\u00e9\\ud83d\\ude00\"",
        "\"\xc3\xa9\"",
        "true",
        "false",
        "null",
        "\"\\\"\\\\\\/\"",
        "\xef\xbb\xbf{}",
    };
    static const char *const bad[] = {
        "",
        "\xef\xbb\xbf",
        "\xef\xbb{}",
        "\xef\xbb\xbf\xef\xbb\xbf{}",
        "{}\xef\xbb\xbf",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\" 1}",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "nul",
        "truex",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\n\"",
        "\"abc",
        "\"\\\"",
        "[1 2]",
        "1 2",
        "{\"a\":1,\"a\":2}",
        "\xff",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "\"\xc0\x80\"",
        "'a'",
        "[,1]",
        "{\"a\"}",
        "//",
    };
    for (size_t i = 0; i < COUNTOF(good); i++)
        CHECK(parses(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNTOF(bad); i++)
        CHECK(!parses(bad[i], strlen(bad[i])));
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    CHECK(!parses(deep, 200));
}

/* In the files of a model alone. */
void json_not_finite(void)
{
    static const char *const good[] = {"Infinity", "[0.0,Infinity]", "{\"a\":-Infinity}", "NaN"};
    static const char *const bad[] = {"Infinit", "Infinityy", "-",   "inf",
                                      "nan",     "+Infinity", "NaN1"};
    const struct json *v;
    struct err_text e = {0};
    double x;
    u64 n;
    for (size_t i = 0; i < COUNTOF(good); i++)
        CHECK(parses_as(ERR_MODEL, good[i], strlen(good[i])) && !parses(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNTOF(bad); i++)
        CHECK(!parses_as(ERR_MODEL, bad[i], strlen(bad[i])));
    CHECK(json_parse(&unit_arena, STR("-Infinity"), "test", ERR_MODEL, &v, &e) == ERR_OK);
    CHECK(v->type == JSON_NUMBER && str_is(v->text, "-Infinity"));
    CHECK(!json_f64(v, &x) && !json_u64(v, &n));
}

void json_numbers_are_exact(void)
{
    const struct json *v;
    struct err_text e = {0};
    struct str text = STR("[18446744073709551615,18446744073709551616,-9223372036854775808,1.0,7]");
    CHECK(json_parse(&unit_arena, text, "t", ERR_MODEL, &v, &e) == ERR_OK);
    u64 u;
    i64 i;
    const struct json *c = v->child;
    CHECK(json_u64(c, &u) && u == UINT64_MAX);
    c = c->next;
    CHECK(!json_u64(c, &u));
    c = c->next;
    CHECK(!json_u64(c, &u) && json_i64(c, &i) && i == INT64_MIN);
    c = c->next;
    CHECK(!json_u64(c, &u));
    c = c->next;
    CHECK(json_u64(c, &u) && u == 7);
}

void json_f32_reads_back(void)
{
    static const float some[] = {0,     -0.0f,       1,       -1,       99999999.f,  1e8f,  1e-4f,
                                 1e30f, 9.9999e-5f,  1e-45f,  0.1f,     9.9999995f,  10,    1000,
                                 0.5f,  0.99999999f, 1.5e-5f, -1.2e-7f, 123456.789f, 1e-38f};
    char text[JSON_F32_BYTES + 1];
    u32 random = 1;
    for (u32 i = 0; i < 300000; i++) {
        float v, back;
        random = random * 1664525u + 1013904223u;
        u32 bits = random ^ random >> 9;
        memcpy(&v, &bits, sizeof v);
        v = i < COUNTOF(some) ? some[i] : i % 2 ? v : ldexpf((float)(i32)bits, -31 - (int)(i % 15));
        if (!isfinite(v))
            continue;
        struct json_out o = json_out_over(text, JSON_F32_BYTES - 1); /* and a comma */
        json_put_f32(&o, v);
        CHECK(!o.full);
        text[o.n] = 0;
        back = (float)strtod(text, NULL);
        CHECK(memcmp(&v, &back, sizeof v) == 0);
    }
}

void json_writes_what_it_reads(void)
{
    static const char want[] =
        "[0,9,10,18446744073709551615,0,-1,-9223372036854775808,9223372036854775807,null,"
        "\"a~\x7f\",\"\\\"\xc3\xa4\\\\ \\n\\u0001b\",\"\xef\xbf\xbd\",\"\"]";
    static const u64 counts[] = {0, 9, 10, UINT64_MAX};
    static const i64 whole[] = {0, -1, INT64_MIN, INT64_MAX};
    char text[sizeof want];
    for (size_t cap = 0; cap < sizeof want; cap++) {
        struct json_out o = json_out_over(text, cap);
        json_open(&o, '[');
        for (size_t i = 0; i < COUNTOF(counts); i++)
            json_put_u64(&o, counts[i]);
        for (size_t i = 0; i < COUNTOF(whole); i++)
            json_put_i64(&o, whole[i]);
        json_put_f32(&o, NAN);
        json_put_str(&o, STR("a~\x7f"));
        json_put_str(&o, STR("\"\xc3\xa4\\ \n\x01"
                             "b"));
        json_put_str(&o, STR("\xff"));
        json_put_str(&o, STR(""));
        json_close(&o, ']');
        CHECK(o.full == (cap < sizeof want - 1) && o.n <= cap);
        CHECK(o.full || memcmp(text, want, o.n) == 0);
    }
}

void json_prefixes_never_crash(void)
{
    static const char text[] =
        "{\"a\\u00e9\\ud83d\\ude00\":[1.5e3,true,{\"b\":\"\xf0\x9f\x98\x80\"}]}";
    for (size_t n = 0; n < sizeof text - 1; n++)
        CHECK(!parses(text, n));
    CHECK(parses(text, sizeof text - 1));
}

/* Every string of 1 to 3 bytes and every 4-byte one with lead f0..f4, against the ranges of
 * Unicode 15 table 3-7 written out. */
static bool valid_reference(const u8 *b, size_t n)
{
    if (n == 1)
        return b[0] < 0x80;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xc0) != 0x80)
            return false;
    u32 c;
    if (n == 2) {
        c = (b[0] & 0x1fu) << 6 | (b[1] & 0x3f);
        return (b[0] & 0xe0) == 0xc0 && c >= 0x80;
    }
    if (n == 3) {
        c = (b[0] & 0xfu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3f);
        return (b[0] & 0xf0) == 0xe0 && c >= 0x800 && (c < 0xd800 || c > 0xdfff);
    }
    c = (b[0] & 7u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 | (b[3] & 0x3f);
    return (b[0] & 0xf8) == 0xf0 && c >= 0x10000 && c <= 0x10ffff;
}

void utf8_every_short_string(void)
{
    for (u32 v = 0; v < 1u << 24; v++) {
        u8 b[3] = {(u8)(v >> 16), (u8)(v >> 8), (u8)v};
        u32 cp = 0, n = utf8_decode((char *)b, 3, &cp), want = 0;
        for (u32 k = 1; k <= 3 && !want; k++)
            want = valid_reference(b, k) ? k : 0;
        if (n != want)
            CHECK(n == want);
        char back[4];
        if (n && (utf8_encode(cp, back) != n || memcmp(back, b, n) != 0))
            CHECK(!"round trip");
    }
    for (u32 v = 0; v < 8u << 24; v += 7) { /* a seventh of the 4-byte ones */
        u8 b[4] = {(u8)(0xf0 + (v >> 24)), (u8)(v >> 16), (u8)(v >> 8), (u8)v};
        u32 cp, n = utf8_decode((char *)b, 4, &cp);
        if ((n == 4) != valid_reference(b, 4))
            CHECK(!"four bytes");
    }
}

void arena_limits(void)
{
    static _Alignas(64) u8 memory[256];
    memset(memory, 0, sizeof memory);
    struct arena a = arena_over("small", memory, sizeof memory);
    u8 *p = arena_alloc(&a, 3, 1);
    u64 *q = ARENA_NEW(&a, u64, 4);
    CHECK(p && q && (uintptr_t)q % 8 == 0);
    q[0] = 7;
    CHECK(!ARENA_NEW(&a, u64, SIZE_MAX / 4)); /* the product wraps */
    CHECK(!arena_alloc(&a, 256, 1));
    arena_reset(&a, 0);
    u64 *again = arena_alloc(&a, 64, 8);
    for (int i = 0; i < 8; i++)
        CHECK(again[i] == 0);
    arena_reset(&a, 0);
    u8 *dirty = arena_take(&a, 128, 1);
    CHECK(dirty == memory && !arena_take(&a, 129, 1));
    memset(dirty, 9, 128);
    arena_reset(&a, 0);
    dirty = arena_alloc(&a, 200, 1);
    for (int i = 0; dirty && i < 200; i++)
        CHECK(dirty[i] == 0);
}

static u32 pieces;

static void between(void)
{
    pieces++;
}

/* Who is asked to end while gigabytes are taken does so between two pieces. */
void arena_is_populated_in_pieces(void)
{
    struct arena a;
    struct err_text e = {0};
    const size_t bytes = 2 * ARENA_PIECE_BYTES + 4096;
    static u8 resident[2 * ARENA_PIECE_BYTES / 4096 + 1];
    CHECK(arena_open(&a, "pieces", bytes, false, &e) == ERR_OK);
    arena_populate(&a, between);
    CHECK(pieces == 3);
    CHECK(mincore(a.base, bytes, (void *)resident) == 0);
    const bool emulated = madvise(a.base, 4096, 12345) == 0; /* qemu's takes no advice at all */
    for (size_t i = 0; i < sizeof resident; i++)
        if (!(resident[i] & 1) && !emulated)
            CHECK(!"a page is missing");
    arena_close(&a);
}

static bool formats(i64 seconds, const char *conversions, const char *want)
{
    struct date d = date_of(seconds);
    char text[256];
    u32 n = 0;
    for (; *conversions; conversions++) {
        n += date_format(&d, *conversions, false, text + n);
        text[n++] = '|';
    }
    return str_is((struct str){text, n}, want);
}

/* Wanted texts are what Python's datetime prints for these times in the C locale. */
void date_formats(void)
{
    CHECK(formats(0, "cFTjUWVGuwy",
                  "Thu Jan  1 00:00:00 1970|1970-01-01|00:00:00|001|00|00|01|1970|"
                  "4|4|70|"));
    CHECK(formats(1709210096, "ABdIpjUWVGus",
                  "Thursday|February|29|12|PM|060|08|09|09|2024|4|1709210096|"));
    CHECK(formats(1735603199, "FTVGuUWj", "2024-12-30|23:59:59|01|2025|1|52|53|365|"));
    CHECK(formats(1609459200, "FVGUW", "2021-01-01|53|2020|00|00|"));
    CHECK(formats(-1, "FTsjV", "1969-12-31|23:59:59|-1|365|01|"));
    CHECK(formats(951782400, "xXrRDhekl",
                  "02/29/00|00:00:00|12:00:00 AM|00:00|02/29/00|Feb|29| 0|12|"));
    CHECK(formats(4102444799, "Fa", "2099-12-31|Thu|"));
    struct date d = date_of(0);
    char text[DATE_TEXT];
    CHECK(date_format(&d, 'd', true, text) == 1 && text[0] == '1');
    CHECK(date_format(&d, 'Z', false, text) == 0 && date_format(&d, 'Q', false, text) == 0);
}

/* A service is bound by its own cgroup and by those above it. */
void box_memory(void)
{
    static const char stat[] = "anon 1048576\nfile 9437184\ninactive_file 6291456\n"
                               "active_file 2097152\nunevictable 0\n";
    static const char *const files[] = {
        "/proc/meminfo",
        "/proc/self/cgroup",
        "/sys/fs/cgroup/system.slice/zigcuda.service/memory.max",
        "/sys/fs/cgroup/system.slice/zigcuda.service/memory.current",
        "/sys/fs/cgroup/system.slice/zigcuda.service/memory.stat",
        "/sys/fs/cgroup/system.slice/memory.high",
        "/sys/fs/cgroup/memory.max"};
    char root[] = P_tmpdir "/unit-box-XXXXXX";
    CHECK(mkdtemp(root));
    CHECK(box_available_bytes_of(root) > 0); /* without /proc, too */
    CHECK(unit_put(root, files[0], "MemTotal:  300000 kB\nMemAvailable:  102400 kB\n"));
    CHECK(box_available_bytes_of(root) == 100 * MIB);
    CHECK(unit_put(root, files[1], "1:name=systemd:/\n0::/system.slice/zigcuda.service\n"));
    CHECK(box_available_bytes_of(root) == 100 * MIB);
    CHECK(unit_put(root, files[2], "max\n") && unit_put(root, files[3], "10485760\n"));
    CHECK(box_available_bytes_of(root) == 100 * MIB);
    CHECK(unit_put(root, files[2], "52428800\n"));
    CHECK(box_available_bytes_of(root) == 40 * MIB);
    CHECK(unit_put(root, files[4], stat)); /* 8 MiB of it are pages of files */
    CHECK(box_available_bytes_of(root) == 48 * MIB);
    CHECK(unit_put(root, files[5], "20971520\n"));
    CHECK(box_available_bytes_of(root) == 20 * MIB);
    CHECK(unit_put(root, files[6], "8388608\n")); /* as a container has it */
    CHECK(box_available_bytes_of(root) == 8 * MIB);
    CHECK(unit_put(root, files[2], "1048576\n"));
    CHECK(box_available_bytes_of(root) == 1); /* used up, which is not the same as not known */
    for (u32 i = 0; i < COUNTOF(files); i++)
        unit_drop(root, files[i]);
    CHECK(access(root, F_OK) != 0);
}

/* The same in version 1, beside which version 2 may be there without memory. */
void box_memory_of_version_1(void)
{
    static const char lines[] = "12:memory:/docker/1f\n11:cpu,cpuacct:/docker/1f\n"
                                "1:name=systemd:/memory:x\n0::/docker/1f\n";
    static const char stat[] = "inactive_file 1\nactive_file 1\ntotal_cache 9437184\n"
                               "total_inactive_file 6291456\ntotal_active_file 2097152\n";
    static const char *const files[] = {"/proc/meminfo",
                                        "/proc/self/cgroup",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                        "/sys/fs/cgroup/memory/memory.stat",
                                        "/sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes",
                                        "/sys/fs/cgroup/memory/docker/1f/memory.usage_in_bytes"};
    char root[] = P_tmpdir "/unit-box-XXXXXX";
    CHECK(mkdtemp(root));
    CHECK(unit_put(root, files[0], "MemAvailable:  102400 kB\n"));
    CHECK(unit_put(root, files[1], lines));
    CHECK(unit_put(root, files[2], "9223372036854771712\n")); /* none */
    CHECK(unit_put(root, files[3], "10485760\n"));
    CHECK(box_available_bytes_of(root) == 100 * MIB);
    CHECK(unit_put(root, files[2], "52428800\n")); /* of the container, which sees it as the root */
    CHECK(box_available_bytes_of(root) == 40 * MIB);
    CHECK(unit_put(root, files[4], stat));
    CHECK(box_available_bytes_of(root) == 48 * MIB);
    CHECK(unit_put(root, files[5], "20971520\n") && unit_put(root, files[6], "1048576\n"));
    CHECK(box_available_bytes_of(root) == 19 * MIB);
    for (u32 i = 0; i < COUNTOF(files); i++)
        unit_drop(root, files[i]);
    CHECK(access(root, F_OK) != 0);
}

/* Whole CPUs of the least quota, one at the least. */
void box_cpus(void)
{
    static const char *const files[] = {
        "/proc/self/cgroup", "/sys/fs/cgroup/pod/one/cpu.max", "/sys/fs/cgroup/pod/cpu.max",
        "/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us"};
    char root[] = P_tmpdir "/unit-box-XXXXXX";
    CHECK(mkdtemp(root));
    CHECK(box_cpu_quota_of(root) == UINT32_MAX);
    CHECK(unit_put(root, files[0], "4:cpu,cpuacct:/pod\n3:cpuset:/\n0::/pod/one\n"));
    CHECK(unit_put(root, files[1], "max 100000\n"));
    CHECK(box_cpu_quota_of(root) == UINT32_MAX);
    CHECK(unit_put(root, files[2], "450000 100000\n"));
    CHECK(box_cpu_quota_of(root) == 4);
    CHECK(unit_put(root, files[1], "20000 10000\n"));
    CHECK(box_cpu_quota_of(root) == 2);
    CHECK(unit_put(root, files[3], "-1\n") && unit_put(root, files[4], "100000\n"));
    CHECK(box_cpu_quota_of(root) == 2);
    CHECK(unit_put(root, files[3], "150000\n"));
    CHECK(box_cpu_quota_of(root) == 1);
    CHECK(unit_put(root, files[3], "5000\n"));
    CHECK(box_cpu_quota_of(root) == 1);
    for (u32 i = 0; i < COUNTOF(files); i++)
        unit_drop(root, files[i]);
    CHECK(access(root, F_OK) != 0);
}
