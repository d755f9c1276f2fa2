/* libFuzzer: tokenizer.json, and text. The input is a tokenizer, then a 0 byte, then text that it
 * encodes; where the first part is empty, a byte-level tokenizer made here does, and what it
 * encodes comes back as it was.
 */
#include "core/base/utf8.h"
#include "core/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

/* The character that stands for a byte in the vocabularies of byte-level BPE: itself where it is
 * printable in Latin-1, else the next one from 256 on. */
static u32 stand_in(u32 byte)
{
    u32 next = 256;
    for (u32 b = 0; b < 256; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte)
            return printable ? b : next;
        next += !printable;
    }
    abort();
}

enum { TOKEN = 16 }; /* bytes of one with its id, at most */

static size_t put_token(char *p, u32 byte)
{
    u32 c = stand_in(byte);
    if (c == '"' || c == '\\')
        return (size_t)snprintf(p, TOKEN, "\"\\%c\":%u", (char)c, byte);
    if (c < 128)
        return (size_t)snprintf(p, TOKEN, "\"%c\":%u", (char)c, byte);
    return (size_t)snprintf(p, TOKEN, "\"%c%c\":%u", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 63)),
                            byte);
}

static struct str own_tokenizer(void)
{
    static char text[16384];
    size_t n = (size_t)snprintf(
        text, sizeof text,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
        "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
        "false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
        "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
        "\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{");
    for (u32 b = 0; b < 256; b++) {
        n += put_token(text + n, b);
        text[n++] = ',';
    }
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "\"th\":256,\"the\":257,\"\xc4\xa0t\":258},\"merges\":[[\"t\","
                          "\"h\"],[\"th\",\"e\"],[\"\xc4\xa0\",\"t\"]]}}");
    return (struct str){text, n};
}

static void encode(const struct tokenizer *t, struct str text, bool comes_back)
{
    enum { FLAGS = ENCODE_ADD_SPECIAL | ENCODE_NO_SPECIAL_TEXT };
    struct err_text e = {0};
    size_t work_bytes = tokenizer_work_bytes(t, text.n), bytes = 0, cap = text.n * 8 + 64;
    void *work = aligned_alloc(16, ROUND_UP(work_bytes, (size_t)16) + 16);
    u32 *ids = malloc(cap * sizeof *ids), got = 0;
    char *out = malloc(cap * 4);
    for (u32 flags = 0; flags <= FLAGS; flags++) {
        enum err code = tokenizer_encode(t, text, flags, work, work_bytes, ids, (u32)cap, &got, &e);
        ASSERT(code == ERR_OK ? got <= cap : e.text[0] != 0);
        for (u32 i = 0; code == ERR_OK && i < got; i++)
            ASSERT(ids[i] < tokenizer_vocab(t));
        if (code == ERR_OK &&
            tokenizer_decode(t, ids, got, false, out, cap * 4, &bytes, &e) == ERR_OK)
            ASSERT(!comes_back || (bytes == text.n && memcmp(out, text.p, bytes) == 0));
        else
            ASSERT(e.text[0] && !(comes_back && code == ERR_OK));
    }
    free(work);
    free(ids);
    free(out);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
    static struct arena keep, scratch, always;
    static struct tokenizer *own;
    struct tokenizer_source from[TOKENIZER_FILES] = {0};
    struct err_text e = {0};
    struct tokenizer *t;
    if (!own)
        from[TOKENIZER_JSON] = (struct tokenizer_source){"own", own_tokenizer()};
    if (!own && (arena_open(&keep, "keep", (size_t)256 << 20, false, &e) != ERR_OK ||
                 arena_open(&always, "own", (size_t)64 << 20, false, &e) != ERR_OK ||
                 arena_open(&scratch, "scratch", (size_t)256 << 20, false, &e) != ERR_OK ||
                 tokenizer_parse(&always, &scratch, from, &own, &e) != ERR_OK)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    char *copy = malloc(n + 1), *zero = memchr(memcpy(copy, data, n), 0, n);
    size_t head = zero ? (size_t)(zero - copy) : n, rest = zero ? n - head - 1 : 0;
    struct str text = {zero ? zero + 1 : copy, rest};
    if (head == 0) {
        encode(own, text, true);
    } else {
        from[TOKENIZER_JSON] = (struct tokenizer_source){"fuzz", {copy, head}};
        enum err code = tokenizer_parse(&keep, &scratch, from, &t, &e);
        ASSERT(code == ERR_OK || e.text[0]);
        if (code == ERR_OK)
            encode(t, text, false);
    }
    arena_reset(&keep, 0);
    arena_reset(&scratch, 0);
    free(copy);
    return 0;
}
