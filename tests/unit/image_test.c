#include "core/base/file.h"
#include "core/base/lzma.h"
#include "kernels/cuda/image.h"
#include "kernels/cuda/ptx.h"
#include "tests/unit/unit.h"

enum { TEXT = 1500, END = 11 };

/* What Python's lzma makes of text(), by the filters of kernels/cuda/image.py. */
static const u8 packed[] = {
    0x00, 0x00, 0x68, 0x7e, 0xce, 0x02, 0x42, 0xf1, 0xf5, 0x38, 0xbb, 0x75, 0x02, 0xf8, 0xe4, 0xb6,
    0x06, 0xf2, 0x68, 0xd4, 0x4b, 0x01, 0x47, 0x3c, 0x46, 0xdc, 0xd2, 0x71, 0x71, 0x70, 0xa8, 0x8f,
    0x7f, 0xd0, 0x50, 0xce, 0xef, 0x48, 0x6c, 0x98, 0x90, 0x74, 0xcc, 0x02, 0x32, 0xc3, 0xbe, 0xc8,
    0xa2, 0x80, 0x8f, 0xc4, 0xdb, 0xa8, 0x44, 0x95, 0x42, 0x4a, 0xff, 0x58, 0x39, 0x90, 0x06, 0x7c,
    0x4c, 0x21, 0x53, 0x59, 0xc0, 0x86, 0xcf, 0x8f, 0x2c, 0x6e, 0xe8, 0xf8, 0xd2, 0x08, 0xec, 0x7e,
    0x5e, 0x4b, 0xfa, 0x7a, 0xa6, 0xbd, 0x8c, 0x3a, 0x34, 0x3f, 0x1d, 0x76, 0xb9, 0xe8, 0x02, 0xb6,
    0x95, 0x57, 0x83, 0xb5, 0x7d, 0x57, 0x6d, 0x75, 0x84, 0x11, 0xd5, 0x6c, 0xc8, 0x27, 0xf6, 0xa2,
    0xfc, 0x6c, 0x39, 0x3d, 0x86, 0x5b, 0x66, 0x32, 0x86, 0xac, 0x3b, 0x40, 0x9b, 0xc9, 0x91, 0xdf,
    0x60, 0x28, 0xee, 0x0e, 0xc9, 0x3a, 0x68, 0x8c, 0xb2, 0x16, 0xf1, 0x05, 0x38, 0x0f, 0x40, 0xc6,
    0xc7, 0xd2, 0x4f, 0x40, 0xed, 0xec, 0x17, 0xcd, 0x51, 0xda, 0xb9, 0x0d, 0x9a, 0xaf, 0x98, 0x85,
    0x4d, 0x3b, 0xa8, 0x72, 0xd4, 0xa8, 0x1d, 0x87, 0xd4, 0xd9, 0x80, 0xff, 0xcc, 0x8a, 0x62, 0xe0,
};

/* Bytes that come again from near and far, and some that do not. */
static void text(u8 *out)
{
    for (u32 i = 0; i < TEXT; i++)
        if (i >= 64 && i % 97 < 60)
            out[i] = out[i - 64];
        else if (i >= 700 && i % 5)
            out[i] = out[i - 700];
        else
            out[i] = i * i >> 4 & 7;
}

static struct lzma work;

/* Of a copy that ends where memory ends. */
static bool unpacks(const u8 *in, size_t n, u8 *out, size_t out_bytes)
{
    struct str s = unit_guarded((struct str){(const char *)in, n});
    return lzma_unpack(&work, (const u8 *)s.p, n, out, out_bytes);
}

void lzma_unpacks(void)
{
    u8 want[TEXT], got[TEXT + 1];
    text(want);
    for (u32 n = 0; n <= TEXT; n++) {
        got[n] = 0xee;
        CHECK(unpacks(packed, sizeof packed, got, n));
        CHECK(memcmp(got, want, n) == 0 && got[n] == 0xee);
    }
    CHECK(!unpacks(packed, sizeof packed, got, TEXT + 1));
}

/* The last bytes only say that the stream ends. */
void lzma_survives_what_is_no_stream(void)
{
    u8 want[TEXT], got[TEXT], bad[sizeof packed];
    text(want);
    for (size_t n = 0; n < sizeof packed; n++)
        CHECK(!unpacks(packed, n, got, TEXT) || n >= sizeof packed - END);
    for (size_t i = 0; i < sizeof packed; i++)
        for (u32 bit = 1; bit < 256; bit <<= 1) {
            memcpy(bad, packed, sizeof packed);
            bad[i] ^= bit;
            bool whole = unpacks(bad, sizeof bad, got, TEXT);
            CHECK(!whole || i >= sizeof packed - END || memcmp(got, want, TEXT) != 0);
        }
}

/* Of copies that end where memory ends. */
static bool writes_out(const char *in, size_t n, const char *want, size_t want_n)
{
    static struct ptx_names names;
    char got[200];
    struct str from = unit_guarded((struct str){in, n});
    bool whole = want_n <= sizeof got && ptx_write_out(&names, from.p, n, got, want_n);
    return whole && memcmp(got, want, want_n) == 0;
}

void ptx_is_written_out(void)
{
    static const char in[] =
        "\f.func f\n.reg .b32 %r<9>;\nadd %r*, %r*, %r0;\nld %rd*, [%rd0+4];\n"
        "mov %r1, %tid.x;\nmov %r1, %r*;\n\f.func g\n@%p* bra $L0;\nmov %r*, %f*;";
    static const char want[] =
        ".func f\n.reg .b32 %r<9>;\nadd %r1, %r2, %r2;\nld %rd1, [%rd1+4];\n"
        "mov %r1, %tid.x;\nmov %r2, %r3;\n.func g\n@%p1 bra $L0;\nmov %r1, %f1;";
    const size_t n = sizeof in - 1, want_n = sizeof want - 1;
    char bad[sizeof in];
    CHECK(writes_out(in, n, want, want_n));
    CHECK(!writes_out("%f*%f1", 6, "%f1%f0", 6) && !writes_out("%f0", 3, "%f0", 3));
    CHECK(!writes_out("%f*%f99999999999", 16, "%f1%f1", 6));
    for (size_t i = 0; i < n; i++) {
        CHECK(!writes_out(in, i, want, want_n) && (i == want_n || !writes_out(in, n, want, i)));
        for (u32 c = 1; c < 128; c++) {
            memcpy(bad, in, n);
            bad[i] = (char)c;
            CHECK(in[i] == (char)c || !writes_out(bad, n, want, want_n));
        }
    }
}

void gpu_codes_are_what_was_compiled(void)
{
    for (u32 i = 0; i < gpu_codes_n(); i++) {
        const struct gpu_code *c = gpu_code(i);
        char path[64];
        struct str file;
        struct err_text e = {0};
        if (c->code & GPU_PTX)
            snprintf(path, sizeof path, "build/gpu/later_%u.ptx", c->code & ~GPU_PTX);
        else
            snprintf(path, sizeof path, "build/gpu/sm_%u.cubin", c->code);
        CHECK(file_read(&unit_arena, path, 64 * MIB, ERR_SYSTEM, &file, &e) == ERR_OK);
        const size_t nul = c->code & GPU_PTX ? 1 : 0, room = gpu_code_room(c);
        CHECK((nul ? c->text : c->bytes) == file.n + nul);
        const char *code = gpu_code_unpack(c, arena_alloc(&unit_arena, room, 16));
        CHECK(code && memcmp(code, file.p, file.n) == 0 && (!nul || code[file.n] == 0));
    }
}

/* NVIDIA's rules, for a program with all of the codes or some. */
void gpu_code_is_the_cards(void)
{
    static const struct {
        u32 card, code;
    } cases[] = {{75, 75},          {80, 80},
                 {86, 86},          {87, 87},
                 {88, 86},          {89, 89},
                 {90, 90},          {100, 100},
                 {101, 100},        {103, 100},
                 {110, 110},        {120, 120},
                 {121, 120},        {130, GPU_PTX | 80},
                 {95, GPU_PTX | 80}};
    CHECK(!gpu_code_for(7, 0) && !gpu_code_for(5, 3));
    for (u32 i = 0; i < COUNTOF(cases) && gpu_codes_n() == 10; i++) {
        const struct gpu_code *c = gpu_code_for(cases[i].card / 10, cases[i].card % 10);
        CHECK(c && c->code == cases[i].code);
    }
}
