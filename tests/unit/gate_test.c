#include "net/admission.h"
#include "net/keys.h"
#include "net/params.h"
#include "net/store.h"
#include "tests/unit/unit.h"

void store_chains_keep_their_bytes(void)
{
    enum { BLOCKS = 16, CHAINS = 5 };
    struct store s;
    struct chain c[CHAINS];
    CHECK(store_open(&s, &unit_arena, BLOCKS));
    for (u32 round = 0; round < 50; round++) {
        for (u32 i = 0; i < CHAINS; i++)
            store_take(&s, &c[i], 3 * STORE_BLOCK_BYTES);
        CHECK(s.free == 1 && store_need(3 * STORE_BLOCK_BYTES) == 3 && store_need(0) == 1);
        for (u32 k = 0; k < 3 * STORE_BLOCK_BYTES / 12; k++)
            for (u32 i = 0; i < CHAINS; i++)
                store_put(&s, &c[i], &(u32[3]){i, k, round}, 12);
        for (u32 i = 0; i < CHAINS; i++) {
            struct chain_reader r = store_from(&c[i]);
            u32 got[3];
            for (u32 k = 0; k < 3 * STORE_BLOCK_BYTES / 12; k++)
                CHECK(store_get(&s, &c[i], &r, got, 12) && got[0] == i && got[1] == k &&
                      got[2] == round);
            CHECK(!store_get(&s, &c[i], &r, got, 12));
        }
        for (u32 i = 0; i < CHAINS; i++)
            store_give(&s, &c[(i * 2 + round) % CHAINS]);
        CHECK(s.free == BLOCKS);
    }
}

/* Chains grow in turn, by pieces of any length: each keeps what it was given, and no block is lost.
 */
void store_chains_grow(void)
{
    enum { BLOCKS = 64, CHAINS = 3 };
    struct store s;
    struct chain c[CHAINS] = {0};
    u8 piece[700], got[sizeof piece];
    CHECK(store_open(&s, &unit_arena, BLOCKS));
    for (u32 round = 0; round < 3; round++) {
        for (u32 k = 0; k < 60; k++)
            for (u32 i = 0; i < CHAINS; i++) {
                u32 n = (k * 37 + i * 211) % sizeof piece;
                memset(piece, (int)(k * CHAINS + i + round), n);
                u32 free = s.free, lacks = (u32)store_lacks(&c[i], n);
                CHECK(lacks <= 1 + (c[i].blocks > 0) && lacks <= s.free);
                store_grow(&s, &c[i], n);
                store_put(&s, &c[i], piece, n);
                CHECK(s.free == free - lacks && store_need(c[i].n) == c[i].blocks);
            }
        for (u32 i = 0; i < CHAINS; i++) {
            struct chain_reader r = store_from(&c[i]);
            for (u32 k = 0; k < 60; k++) {
                u32 n = (k * 37 + i * 211) % sizeof piece;
                memset(piece, (int)(k * CHAINS + i + round), n);
                CHECK(store_get(&s, &c[i], &r, got, n) && memcmp(got, piece, n) == 0);
            }
            CHECK(r.at == c[i].n);
        }
        for (u32 i = 0; i < CHAINS; i++)
            store_give(&s, &c[i]);
        CHECK(s.free == BLOCKS);
    }
}

void store_is_written_in_any_order(void)
{
    enum { PIECE = 300, PIECES = 17 };
    struct store s;
    struct chain other, c;
    struct chain_reader r;
    u8 piece[PIECE], want[PIECE];
    CHECK(store_open(&s, &unit_arena, 16));
    store_take(&s, &other, STORE_BLOCK_BYTES);
    store_take(&s, &c, PIECE * PIECES);
    store_give(&s, &other);
    for (u32 i = 0; i < PIECES; i++) {
        u32 at = i * 5 % PIECES;
        memset(piece, (int)at + 1, sizeof piece);
        store_set(&s, &c, at * PIECE, piece, PIECE);
    }
    r = store_from(&c);
    for (u32 i = 0; i < PIECES; i++) {
        memset(want, (int)i + 1, sizeof want);
        CHECK(store_get(&s, &c, &r, piece, PIECE) && memcmp(piece, want, PIECE) == 0);
    }
    CHECK(!store_get(&s, &c, &r, piece, 1));
    store_give(&s, &c);
    CHECK(s.free == 16);
}

static bool reads(struct params *p, struct refusal *f, const char *body)
{
    static const struct model model = {.vocab = 100};
    const struct json *v;
    struct err_text e = {0};
    *f = (struct refusal){0};
    return json_parse(&unit_arena, str_of(body), "body", ERR_REQUEST, &v, &e) == ERR_OK &&
           params_read(p, PARAMS_EMBEDDING, v, &model, &unit_arena, f);
}

void params_of_embeddings(void)
{
    static struct params p;
    struct refusal f;
    CHECK(reads(&p, &f, "{\"model\":\"m\",\"input\":[\"a\"],\"user\":\"u\",\"priority\":3}"));
    CHECK(p.embeds && !p.base64 && !p.dimensions && p.add_special && p.no_answer);
    CHECK(p.priority == 3 && p.prompt->type == JSON_ARRAY && strcmp(p.prompt_field, "input") == 0);
    CHECK(reads(&p, &f,
                "{\"input\":\"a\",\"encoding_format\":\"base64\",\"dimensions\":5,"
                "\"deadline_ms\":9,\"add_special_tokens\":false,\"extra_body\":null}"));
    CHECK(p.base64 && p.dimensions == 5 && p.deadline_ms == 9 && !p.add_special);
    CHECK(reads(&p, &f, "{\"input\":\"a\",\"encoding_format\":\"float\"}") && !p.base64);
    CHECK(!reads(&p, &f, "{\"model\":\"m\"}") && strcmp(f.param, "input") == 0);
    CHECK(!reads(&p, &f, "{\"input\":\"a\",\"encoding_format\":1}") && f.status == 400);
    CHECK(!reads(&p, &f, "{\"input\":\"a\",\"dimensions\":0}") && f.status == 400);
    CHECK(!reads(&p, &f, "{\"input\":\"a\",\"temperature\":0}") &&
          strcmp(f.param, "temperature") == 0);
}

void keys_are_found_by_their_hash_only(void)
{
    static struct keys k;
    char key[KEY_TEXT_BYTES], hash[65], text[4096];
    struct err_text e = {0};
    u8 random[32] = {0};
    int n = 0;
    for (u8 i = 0; i < 20; i++) {
        random[0] = i;
        keys_make(random, key, hash);
        n += snprintf(text + n, sizeof text - (size_t)n, "# %u\r\n\n%s key-%u\r\n", i, hash, i);
    }
    CHECK(keys_parse(&k, str_of(text), "keys", &e) == ERR_OK && k.n == 20);
    for (u8 i = 0; i < 20; i++) {
        random[0] = i;
        keys_make(random, key, hash);
        CHECK(keys_find(&k, str_of(key)) == i);
        CHECK(keys_find(&k, str_of(hash)) == -1);
        CHECK(keys_find(&k, (struct str){key, strlen(key) - 1}) == -1);
    }
    CHECK(keys_find(&k, (struct str){0}) == -1);
    /* SHA-256 of "abc", FIPS 180-4 */
    CHECK(keys_parse(&k, STR("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad x"),
                     "keys", &e) == ERR_OK);
    CHECK(keys_find(&k, STR("abc")) == 0 && k.n == 1);
}

void keys_files_that_are_wrong_change_nothing(void)
{
    static struct keys k = {.n = 7};
    static const char good[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    static const char *const bad[] = {"%s",       "%s ",        "%s a b", "x%s a", "%.63s a",
                                      "%.63sG a", "%s a\n%s b", "#%s a",  ""};
    for (u32 i = 0; i < COUNTOF(bad); i++) {
        char text[512];
        struct err_text e = {0};
        snprintf(text, sizeof text, bad[i], good, good);
        CHECK(keys_parse(&k, str_of(text), "keys", &e) == ERR_CONFIG && k.n == 7);
        CHECK(strstr(e.text, "keys"));
    }
}

void admission_predicts_and_refuses(void)
{
    static struct admission a;
    a = (struct admission){.slots = 4, .queue = 8, .queue_tokens = 100};
    struct engine_stats idle = {0}, some = {.running = 1}, most = {.running = 3},
                        full = {.running = 4}, first = {.waiting = 1, .running = 4},
                        long_queue = {.waiting = 7, .running = 4};
    struct refusal f = {0};
    CHECK(admission_wait_s(&a, &most) == 0 && admission_wait_s(&a, &long_queue) == 0);
    CHECK(admission_enter(&a, &long_queue, 1, 50, 1,
                          &f)); /* nothing is known: nothing is predicted */
    for (u32 i = 0; i < 50; i++)
        admission_measured(&a, 2, 0.5);
    CHECK(admission_wait_s(&a, &long_queue) > 3.99 && admission_wait_s(&a, &long_queue) < 4.01);
    struct engine_stats pages = {.waiting = 1, .running = 2, .blocked = true};
    CHECK(admission_wait_s(&a, &pages) > 1.99 && admission_wait_s(&a, &pages) < 2.01);
    pages.blocked = false; /* they have just come */
    CHECK(admission_wait_s(&a, &pages) == 0);
    CHECK(admission_enter(&a, &long_queue, 1, 50, 5000, &f));
    CHECK(!admission_enter(&a, &long_queue, 1, 50, 4000, &f) && f.status == 429);
    CHECK(f.retry_s == 5 && strcmp(f.param, "deadline_ms") == 0);
    CHECK(!admission_enter(&a, &some, 1, 50, 400, &f)); /* the first token comes after 0.5 s */
    CHECK(admission_enter(&a, &idle, 1, 50, 400, &f));  /* or not: nobody else would measure it */
    f = (struct refusal){0};
    CHECK(!admission_enter(&a, &long_queue, 2, 50, 0, &f) && strcmp(f.code, "queue_full") == 0);
    f = (struct refusal){0};
    first.waiting_tokens = 60;
    CHECK(!admission_enter(&a, &first, 1, 50, 0, &f) && strstr(f.text, "queue_tokens"));
    f = (struct refusal){0};
    CHECK(admission_enter(&a, &full, 1, 500, 0, &f)); /* alone it may */
    first.waiting_tokens = 0;                         /* they wait for a prompt that is read */
    CHECK(admission_enter(&a, &first, 1, 500, 0, &f));
}

void admission_shares_by_key(void)
{
    static struct admission a;
    a = (struct admission){.slots = 4, .queue = 8, .key_requests = 2, .key_rate = 6};
    struct refusal f = {0};
    u64 now = 1000000000;
    CHECK(admission_key_enter(&a, -1, now, &f));
    CHECK(admission_key_enter(&a, 3, now, &f) && admission_key_enter(&a, 3, now, &f));
    CHECK(!admission_key_enter(&a, 3, now, &f) && strcmp(f.code, "key_concurrency") == 0);
    CHECK(admission_key_enter(&a, 4, now, &f));
    f = (struct refusal){0};
    for (u32 i = 0; i < 4; i++) {
        admission_key_leave(&a, 3);
        CHECK(admission_key_enter(&a, 3, now, &f));
    }
    admission_key_leave(&a, 3);
    CHECK(!admission_key_enter(&a, 3, now, &f) && strcmp(f.code, "key_rate") == 0);
    CHECK(f.retry_s >= 10 && f.retry_s <= 11);
    f = (struct refusal){0};
    CHECK(!admission_key_enter(&a, 3, now + 9900000000, &f));
    f = (struct refusal){0};
    CHECK(admission_key_enter(&a, 3, now + 10100000000, &f));
}
