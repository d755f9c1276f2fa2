#include "net/keys.h"

#include "core/base/file.h"

#include <bearssl.h>
#include <stdio.h>

void keys_hash(struct str bytes, u8 out[32])
{
    br_sha256_context c;
    br_sha256_init(&c);
    br_sha256_update(&c, bytes.p, bytes.n);
    br_sha256_out(&c, out);
}

static bool hex_digit(char c, u8 *out)
{
    if (c >= '0' && c <= '9')
        *out = (u8)(c - '0');
    else if (c >= 'a' && c <= 'f')
        *out = (u8)(c - 'a' + 10);
    else
        return false;
    return true;
}

static void hex_text(const u8 *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        *out++ = "0123456789abcdef"[p[i] >> 4];
        *out++ = "0123456789abcdef"[p[i] & 15];
    }
    *out = 0;
}

static bool read_hash(struct str s, u8 out[32])
{
    if (s.n < 64)
        return false;
    for (u32 i = 0; i < 32; i++) {
        u8 high, low;
        if (!hex_digit(s.p[2 * i], &high) || !hex_digit(s.p[2 * i + 1], &low))
            return false;
        out[i] = (u8)(high << 4 | low);
    }
    return true;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '@';
}

bool keys_is_name(struct str name)
{
    bool good = name.n > 0 && name.n <= LIMIT_KEY_NAME_BYTES;
    for (size_t i = 0; good && i < name.n; i++)
        good = name_char(name.p[i]);
    return good;
}

static enum err one_line(struct keys *k, struct str line, const char *path, u32 number,
                         struct err_text *e)
{
    struct key key = {0};
    if (k->n == LIMIT_KEYS)
        return err_set(e, ERR_CONFIG, "%s: more than %u keys", path, LIMIT_KEYS);
    if (!read_hash(line, key.hash) || line.n < 66 || line.p[64] != ' ')
        return err_set(e, ERR_CONFIG,
                       "%s: line %u: expected 64 lower-case hexadecimal digits, a blank and a name "
                       "('zigcuda key new NAME' prints such a line)",
                       path, number);
    struct str name = {line.p + 65, line.n - 65};
    if (!keys_is_name(name))
        return err_set(e, ERR_CONFIG,
                       "%s: line %u: a name has 1 to %u letters, digits or any of - _ . @", path,
                       number, LIMIT_KEY_NAME_BYTES);
    memcpy(key.name, name.p, name.n);
    for (u32 i = 0; i < k->n; i++)
        if (memcmp(k->at[i].hash, key.hash, sizeof key.hash) == 0)
            return err_set(e, ERR_CONFIG, "%s: line %u: the same key as '%s'", path, number,
                           k->at[i].name);
    k->at[k->n++] = key;
    return ERR_OK;
}

enum err keys_parse(struct keys *k, struct str text, const char *path, struct err_text *e)
{
    static struct keys fresh; /* 50 KB: too much for the stack */
    u32 number = 0;
    fresh.n = 0;
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        size_t n = end ? (size_t)(end - text.p) : text.n, step = end ? n + 1 : n;
        struct str line = {text.p, n};
        number++;
        while (line.n > 0 && (line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\r'))
            line.n--;
        if (line.n > 0 && line.p[0] != '#')
            TRY(one_line(&fresh, line, path, number, e));
        text.p += step;
        text.n -= step;
    }
    if (fresh.n == 0)
        return err_set(e, ERR_CONFIG,
                       "%s holds no key; 'zigcuda key new NAME' prints a key and the line for it",
                       path);
    *k = fresh;
    return ERR_OK;
}

enum err keys_read(struct keys *k, struct arena *scratch, const char *path, struct err_text *e)
{
    size_t mark = scratch->used_bytes;
    struct str text;
    enum err r = file_read(scratch, path, LIMIT_KEY_FILE_BYTES, ERR_CONFIG, &text, e);
    if (r == ERR_OK)
        r = keys_parse(k, text, path, e);
    arena_reset(scratch, mark);
    return r == ERR_OK ? r : err_of(e, "keys.file");
}

i32 keys_find_hash(const struct keys *k, const u8 hash[32])
{
    i32 found = -1;
    for (u32 i = 0; i < k->n; i++) {
        u32 differs = 0;
        for (u32 b = 0; b < sizeof k->at[i].hash; b++)
            differs |= (u32)(hash[b] ^ k->at[i].hash[b]);
        i32 same = -(i32)((differs - 1) >> 31); /* all ones when equal */
        found = (found & ~same) | ((i32)i & same);
    }
    return found;
}

i32 keys_find(const struct keys *k, struct str key)
{
    u8 hash[32];
    keys_hash(key, hash);
    return keys_find_hash(k, hash);
}

void keys_make(const u8 random[32], char key[KEY_TEXT_BYTES], char hash[65])
{
    u8 digest[32];
    memcpy(key, "zc-", 3);
    hex_text(random, 32, key + 3);
    keys_hash(str_of(key), digest);
    hex_text(digest, 32, hash);
}
