#include "config/limits.h"
#include "core/model/safetensors.h"
#include "tests/unit/unit.h"

/* A file of this header and `data` zero bytes. */
static struct str file_of(const char *header, size_t header_n, size_t data)
{
    struct str f = {arena_alloc(&unit_arena, 8 + header_n + data, 1), 8 + header_n + data};
    char *p = (char *)f.p;
    for (int i = 0; i < 8; i++)
        p[i] = (char)((u64)header_n >> 8 * i);
    memcpy(p + 8, header, header_n);
    return f;
}

static struct arena scratch; /* emptied by parse */
static struct str parsed;    /* the copy of the file that was parsed, ending at unreadable memory */

static enum err parse(struct str file, struct tensors *t, struct err_text *e)
{
    *e = (struct err_text){0};
    if (!scratch.base && arena_open(&scratch, "scratch", 256 * MIB, false, e) != ERR_OK)
        return e->code;
    arena_reset(&scratch, 0);
    parsed = unit_guarded(file);
    enum err r = tensors_init(t, &unit_arena, &scratch, e);
    return r ? r : safetensors_parse(t, &scratch, parsed, "test.safetensors", e);
}

static const char good_header[] =
    " {\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[4,16],\"more\":null},"
    "\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"},"
    "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
    "\"half\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[16,17]}}  ";

void safetensors_accepts_what_the_format_allows(void)
{
    struct tensors t;
    struct err_text e;
    struct str file = file_of(good_header, strlen(good_header), 17);
    CHECK(parse(file, &t, &e) == ERR_OK);
    CHECK(tensors_index(&t, &e) == ERR_OK);
    CHECK(t.n == 4);
    const struct tensor *b = tensors_take(&t, "b");
    CHECK(b && b->type == DTYPE_F16 && b->rank == 2 && b->shape[0] == 2 && b->shape[1] == 3);
    CHECK(b->bytes == 12 && (const char *)b->data == parsed.p + parsed.n - 17 + 4);
    const struct tensor *a = tensors_find(&t, "a");
    CHECK(a && a->rank == 0 && a->bytes == 4);
    CHECK(tensors_find(&t, "empty") && !tensors_find(&t, "aa") && !tensors_find(&t, ""));
    CHECK(tensors_find(&t, "half")->type == DTYPE_OTHER);
    CHECK(t.used[2] && !t.used[0]); /* as their data lie: a, empty, b, half */
    CHECK(parse(file_of("{}", 2, 0), &t, &e) == ERR_OK && t.n == 0);
}

#define ONE(dtype, shape, offsets) \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

void safetensors_refuses_what_it_forbids(void)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"", 0, "text ends"},
        {"[]", 0, "an object is expected"},
        {"{", 0, "line 1"},
        {"{\"a\xff\":1}", 0, "not UTF-8"},
        {"{} x", 0, "goes on"},
        {"{\"t\":1}", 0, "an object is expected"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "only strings"},
        {"{\"__metadata__\":[]}", 0, "an object is expected"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "stands twice"},
        {"{\"t\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"t\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, "stands twice"},
        {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is missing"},
        {"{\"t\":{\"dtype\":\"I8\",\"data_offsets\":[0,1]}}", 1, "shape is missing"},
        {"{\"t\":{\"dtype\":\"I8\",\"shape\":[1]}}", 1, "data_offsets must"},
        {ONE("1", "[1]", "[0,1]"), 1, "dtype is a number"},
        {ONE("\"F33\"", "[1]", "[0,4]"), 4, "unknown dtype \"F33\""},
        {ONE("\"I8\"", "1", "[0,1]"), 1, "shape is a number"},
        {ONE("\"I8\"", "[-1]", "[0,1]"), 1, "no integer from 0 up"},
        {ONE("\"I8\"", "[1.0]", "[0,1]"), 1, "no integer from 0 up"},
        {ONE("\"I8\"", "[1e0]", "[0,1]"), 1, "no integer from 0 up"},
        {ONE("\"I8\"", "[18446744073709551617]", "[0,1]"), 1, "no integer from 0 up"},
        {ONE("\"I8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "9 dimensions"},
        {ONE("\"I8\"", "[1]", "[0]"), 1, "data_offsets must"},
        {ONE("\"I8\"", "[1]", "[0,1,2]"), 1, "data_offsets must"},
        {ONE("\"I8\"", "[1]", "[-1,0]"), 1, "data_offsets must"},
        {ONE("\"I8\"", "[1]", "[1,0]"), 1, "outside"},
        {ONE("\"I8\"", "[2]", "[0,2]"), 1, "outside"},
        {ONE("\"I8\"", "[1]", "[18446744073709551615,18446744073709551615]"), 1, "outside"},
        {ONE("\"I8\"", "[2]", "[0,1]"), 1, "ask for 2 bytes"},
        {ONE("\"I8\"", "[]", "[0,0]"), 0, "ask for 1 bytes"},
        {ONE("\"F32\"", "[4194305,4194305,211106198978564]", "[0,16]"), 16, "overflows"},
        {ONE("\"F4\"", "[3]", "[0,2]"), 2, "no whole number of bytes"},
        {ONE("\"I8\"", "[1]", "[1,2]"), 2, "hole"},
        {ONE("\"I8\"", "[1]", "[0,1]"), 2, "belong to none"},
        {"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "overlaps"},
        {"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         2, "overlaps"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct tensors t;
        struct err_text e;
        size_t mark = unit_arena.used_bytes;
        struct str file = file_of(cases[i].header, strlen(cases[i].header), cases[i].data);
        bool refused = parse(file, &t, &e) == ERR_MODEL;
        if (!refused || !strstr(e.text, cases[i].says) || !strstr(e.text, "test.safetensors"))
            printf("    case %zu: %s\n", i, e.text);
        CHECK(refused && strstr(e.text, cases[i].says) && strstr(e.text, "test.safetensors"));
        arena_reset(&unit_arena, mark);
    }
}

void safetensors_refuses_every_truncation(void)
{
    struct tensors t;
    struct err_text e;
    struct str file = file_of(good_header, strlen(good_header), 17);
    for (size_t n = 0; n < file.n; n++) {
        size_t mark = unit_arena.used_bytes;
        CHECK(parse((struct str){file.p, n}, &t, &e) == ERR_MODEL);
        arena_reset(&unit_arena, mark);
    }
    /* and the header length lies in every way that keeps 8 + n inside the file or not */
    char *length = (char *)file.p;
    for (u64 n = 0; n < file.n + 2; n++) {
        size_t mark = unit_arena.used_bytes;
        for (int i = 0; i < 8; i++)
            length[i] = (char)(n >> 8 * i);
        bool right = n == strlen(good_header);
        CHECK((parse(file, &t, &e) == ERR_OK) == right);
        arena_reset(&unit_arena, mark);
    }
    memset(length, 0xff, 8);
    CHECK(parse(file, &t, &e) == ERR_MODEL && strstr(e.text, "above the limit"));
}

/* `n` empty tensors in one header. */
static struct str many(u32 n)
{
    size_t cap = (size_t)n * 80 + 16, used = 1;
    char *text = arena_alloc(&unit_arena, cap, 1);
    text[0] = '{';
    for (u32 i = 0; i < n; i++)
        used += (size_t)snprintf(
            text + used, cap - used,
            "%s\"t%u\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    text[used++] = '}';
    return file_of(text, used, 0);
}

void safetensors_counts_tensors(void)
{
    struct tensors t;
    struct err_text e;
    CHECK(parse(many(LIMIT_TENSORS), &t, &e) == ERR_OK);
    CHECK(tensors_index(&t, &e) == ERR_OK);
    for (u32 i = 0; i < LIMIT_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        if (!tensors_take(&t, name))
            CHECK(!"each is found");
    }
    arena_reset(&unit_arena, 0);
    CHECK(parse(many(LIMIT_TENSORS + 1), &t, &e) == ERR_MODEL && strstr(e.text, "LIMIT_TENSORS"));
}

void safetensors_refuses_one_name_in_two_files(void)
{
    struct tensors t;
    struct err_text e;
    struct str file = file_of(good_header, strlen(good_header), 17);
    CHECK(parse(file, &t, &e) == ERR_OK);
    CHECK(safetensors_parse(&t, &scratch, file, "second", &e) == ERR_OK);
    CHECK(tensors_index(&t, &e) == ERR_MODEL && strstr(e.text, "second"));
}

/* Whatever a changed byte makes of a header: a refusal, or tensors that lie inside the data. */
void safetensors_survives_changed_bytes(void)
{
    static const u8 values[] = {0, ' ', '"', ',', '0', '9', '[', ']', '\\', '{', '}', 0x80, 0xff};
    struct tensors t;
    struct err_text e;
    struct str file = file_of(good_header, strlen(good_header), 17);
    size_t mark = unit_arena.used_bytes;
    for (size_t i = 0; i < file.n - 17; i++)
        for (size_t v = 0; v < COUNTOF(values); v++) {
            u8 *p = (u8 *)file.p + i, was = *p;
            *p = values[v];
            enum err r = parse(file, &t, &e);
            for (u32 k = 0; r == ERR_OK && k < t.n; k++) {
                const char *at = t.v[k]->data;
                CHECK(at >= parsed.p + 8);
                CHECK(t.v[k]->bytes <= (size_t)(parsed.p + parsed.n - at));
            }
            CHECK(r == ERR_OK || e.text[0]);
            *p = was;
            arena_reset(&unit_arena, mark);
        }
}
