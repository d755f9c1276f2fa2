/* API keys: a file with one line a key, `sha256 name`, where sha256 is the hash of the key in
 * hexadecimal: who reads the file can not use the keys. '#' begins a comment line. Keys have 256
 * random bits, so a plain hash is enough. Every stored hash is compared in full on every check.
 * Limits: LIMIT_KEYS, LIMIT_KEY_NAME_BYTES, LIMIT_KEY_FILE_BYTES.
 */
#ifndef ZIGCUDA_KEYS_H
#define ZIGCUDA_KEYS_H

#include "config/limits.h"
#include "core/base/arena.h"

struct key {
    u8 hash[32];
    char name[LIMIT_KEY_NAME_BYTES + 1]; /* for log lines */
};

struct keys {
    struct key at[LIMIT_KEYS];
    u32 n;
};

enum { KEY_TEXT_BYTES = 3 + 64 + 1 }; /* "zc-", 64 hexadecimal digits, NUL */

/* Reads the file at `path`; an error names line and what is wrong. On an error *k is unchanged, so
 * a reload can fail without locking anybody out. */
MUST enum err keys_read(struct keys *k, struct arena *scratch, const char *path,
                        struct err_text *e);
MUST enum err keys_parse(struct keys *k, struct str text, const char *path, struct err_text *e);

/* May a key be called so? */
bool keys_is_name(struct str name);

/* The index of the key, or -1. Time does not depend on what is stored. */
i32 keys_find(const struct keys *k, struct str key);
i32 keys_find_hash(const struct keys *k, const u8 hash[32]);

/* A fresh key from 32 random bytes, and the hash for the file, both as text. */
void keys_make(const u8 random[32], char key[KEY_TEXT_BYTES], char hash[65]);

/* SHA-256 (FIPS 180-4), which is how keys are stored. */
void keys_hash(struct str bytes, u8 out[32]);

#endif
