#include "tests/unit/unit.h"

#include "core/main/cache.h"
#include "core/main/kernel_arg.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool value_is(const char *text, u32 bytes, u64 value)
{
    static struct kernel_arg a;
    struct err_text e = {0};
    return kernel_arg_value(text, &a, &e) == ERR_OK && a.bytes == bytes && a.value == value;
}

void kernel_argument_values(void)
{
    static const struct {
        const char *text;
        u32 bytes;
        u64 value;
    } good[] = {
        {"f32:1.5", 4, 0x3fc00000},
        {"f32:-0", 4, 0x80000000},
        {"f32:0x1p-149", 4, 1},
        {"f32:inf", 4, 0x7f800000},
        {"f64:1e300", 8, 0x7e37e43c8800759c},
        {"f16:1.5", 2, 0x3e00},
        {"f16:65504", 2, 0x7bff},
        {"f16:65519", 2, 0x7bff}, /* rounds down to the largest */
        {"f16:2049", 2, 0x6800},  /* a tie goes to even */
        {"bf16:1.5", 2, 0x3fc0},
        {"bf16:1.00390625", 2, 0x3f80}, /* a tie goes to even: 1 + 2^-8 */
        {"bf16:1.01171875", 2, 0x3f82}, /* and here up: 1 + 3 * 2^-8 */
        {"i8:-128", 1, 0x80},
        {"i32:-1", 4, 0xffffffff},
        {"i64:-9223372036854775808", 8, 0x8000000000000000},
        {"i64:9223372036854775807", 8, 0x7fffffffffffffff},
        {"u8:255", 1, 255},
        {"u32:0xdeadbeef", 4, 0xdeadbeef},
        {"u32:010", 4, 10},
        {"u64:18446744073709551615", 8, UINT64_MAX},
    };
    static const char *const wrong[] = {"",
                                        "1.5",
                                        "f32",
                                        "f32:",
                                        "f32:x",
                                        "f32:1 ",
                                        "f32: 1",
                                        "f32:1e39",
                                        "f16:65520",
                                        "bf16:1e39",
                                        "i8:128",
                                        "i8:-129",
                                        "u8:256",
                                        "u8:-1",
                                        "i32:2147483648",
                                        "i32:1.5",
                                        "i32:",
                                        "i32:--1",
                                        "i32: 1",
                                        "i32:0x",
                                        "i64:9223372036854775808",
                                        "i64:-9223372036854775809",
                                        "u64:18446744073709551616",
                                        "u128:1",
                                        "pointer:1",
                                        "F32:1"};
    for (u32 i = 0; i < COUNTOF(good); i++)
        CHECK(value_is(good[i].text, good[i].bytes, good[i].value));
    for (u32 i = 0; i < COUNTOF(wrong); i++) {
        static struct kernel_arg a;
        struct err_text e = {0};
        CHECK(kernel_arg_value(wrong[i], &a, &e) == ERR_USAGE && strstr(e.text, "--arg"));
    }
}

void kernel_argument_buffers(void)
{
    static const struct {
        const char *text, *in, *out;
        u64 bytes;
    } good[] = {
        {"in:a.bin", "a.bin", "", 0},
        {"in:a:b", "a:b", "", 0},
        {"out:4096", "", "", 4096},
        {"out:4 KiB:b.bin", "", "b.bin", 4096},
        {"out:1:/x:y", "", "/x:y", 1},
        {"inout:a.bin", "a.bin", "", 0},
        {"inout:a.bin:b.bin", "a.bin", "b.bin", 0},
    };
    static const char *const wrong[] = {"",
                                        "in",
                                        "in:",
                                        "out:",
                                        "out:0",
                                        "out:x",
                                        "out:-1",
                                        "out:8:",
                                        "inout:",
                                        "inout::b",
                                        "inout:a:",
                                        "io:a",
                                        "out:999 TiB",
                                        "out:99999999999999999999"};
    static struct kernel_arg a;
    for (u32 i = 0; i < COUNTOF(good); i++) {
        struct err_text e = {0};
        CHECK(kernel_arg_buffer(good[i].text, &a, &e) == ERR_OK);
        CHECK(strcmp(a.in_path, good[i].in) == 0 && strcmp(a.out_path, good[i].out) == 0);
        CHECK(a.buffer_bytes == good[i].bytes && a.bytes == 8 && a.type == KERNEL_BUFFER);
        CHECK(a.in == (good[i].text[0] == 'i') && a.out == (strstr(good[i].text, "out:") != NULL));
    }
    for (u32 i = 0; i < COUNTOF(wrong); i++) {
        struct err_text e = {0};
        CHECK(kernel_arg_buffer(wrong[i], &a, &e) == ERR_USAGE && strstr(e.text, "--buf"));
    }
}

void kernel_sizes(void)
{
    static const char *const wrong[] = {"",   "0",  "1,", ",1",         "1,2,3,4",    "1,0",
                                        "-1", "1 ", "1x", "2147483648", "99999999999"};
    struct err_text e = {0};
    u32 size[3];
    CHECK(kernel_arg_size("--grid", "7", size, &e) == ERR_OK);
    CHECK(size[0] == 7 && size[1] == 1 && size[2] == 1);
    CHECK(kernel_arg_size("--grid", "1,2147483647,3", size, &e) == ERR_OK);
    CHECK(size[0] == 1 && size[1] == INT32_MAX && size[2] == 3);
    for (u32 i = 0; i < COUNTOF(wrong); i++) {
        struct err_text why = {0};
        CHECK(kernel_arg_size("--grid", wrong[i], size, &why) == ERR_USAGE);
        CHECK(strstr(why.text, "--grid"));
    }
}

/* What a value prints as is read back as the same bytes. */
void kernel_values_print(void)
{
    static const char *const values[] = {
        "f16:0.099976", "bf16:3.141", "f32:3.14159274", "f64:3.1415926535897931",
        "i8:-128",      "i16:-1",     "i32:-5",         "i64:-9223372036854775808",
        "u8:200",       "u16:65535",  "u32:4294967295", "u64:18446744073709551615"};
    for (u32 i = 0; i < COUNTOF(values); i++) {
        static struct kernel_arg a, b;
        struct err_text e = {0};
        char number[32], text[64];
        CHECK(kernel_arg_value(values[i], &a, &e) == ERR_OK);
        kernel_arg_print(a.type, &a.value, number);
        snprintf(text, sizeof text, "%s:%s", kernel_type_name(a.type), number);
        CHECK(kernel_arg_value(text, &b, &e) == ERR_OK && a.value == b.value);
    }
}

void cache_finds_damage(void)
{
    char folder[] = "unit-cache-XXXXXX", deep[64], path[160];
    static const u8 key[32] = {0xab}, other[32] = {0xac};
    struct err_text e = {0};
    struct str got;
    CHECK(mkdtemp(folder));
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_NONE);
    CHECK(cache_put(deep, key, STR("the content"), &e) == ERR_OK);
    CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_HIT && str_is(got, "the content"));
    CHECK(cache_get(deep, other, &unit_arena, &got) == CACHE_NONE);

    snprintf(path, sizeof path, "%s/ab%062d", deep, 0);
    int fd = open(path, O_RDWR);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 40 + 11);
    for (off_t at = 0; at < st.st_size; at++) { /* each byte in turn */
        u8 byte;
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 0x20;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_DAMAGED);
        byte ^= 0x20;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
    }
    CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_HIT);
    for (off_t n = st.st_size - 1; n >= 0; n--) { /* each length */
        CHECK(ftruncate(fd, n) == 0);
        CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_DAMAGED);
    }
    close(fd);
    CHECK(cache_put(deep, key, STR("anew"), &e) == ERR_OK);
    CHECK(cache_get(deep, key, &unit_arena, &got) == CACHE_HIT && str_is(got, "anew"));

    CHECK(unlink(path) == 0 && rmdir(deep) == 0); /* so nothing else was left there */
    deep[strlen(deep) - 2] = 0;
    CHECK(rmdir(deep) == 0 && rmdir(folder) == 0);
}
