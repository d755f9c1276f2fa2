#include "core/base/utf8.h"
#include "core/model/split.h"
#include "core/model/tokenizer.h"
#include "tests/unit/unit.h"

#include <stdlib.h>

/* A tokenizer.json is written here with ' for ". Parts that a test does not give are null. */
struct parts {
    const char *vocab, *merges, *added, *normalizer, *pre, *post, *decoder, *options, *config, *map;
};

static struct arena keep, scratch;
static struct err_text problem;

static void arenas(void)
{
    keep = arena_over("keep", arena_alloc(&unit_arena, 24 * MIB, 16), 24 * MIB);
    scratch = arena_over("scratch", arena_alloc(&unit_arena, 24 * MIB, 16), 24 * MIB);
}

static void arenas_empty(void)
{
    arena_reset(&keep, 0);
    arena_reset(&scratch, 0);
}

static const char * or (const char *s, const char *missing)
{
    return s ? s : missing;
}

static size_t json_of(const struct parts *p, char *out, size_t cap)
{
    int n = snprintf(out, cap,
                     "{'version':'1.0','truncation':null,'padding':null,'added_tokens':[%s],"
                     "'normalizer':%s,'pre_tokenizer':%s,'post_processor':%s,'decoder':%s,"
                     "'model':{'type':'BPE'%s,'vocab':{%s},'merges':[%s]}}",
                     or (p->added, ""), or (p->normalizer, "null"), or (p->pre, "null"),
                     or (p->post, "null"), or (p->decoder, "null"), or (p->options, ""), p->vocab,
                     or (p->merges, ""));
    ASSERT(n > 0 && (size_t)n < cap);
    for (int i = 0; i < n; i++)
        if (out[i] == '\'')
            out[i] = '"';
    return (size_t)n;
}

/* A copy without a byte behind it, of text with ' for "; of NULL nothing. */
static struct str quoted(const char *text)
{
    size_t n = text ? strlen(text) : 0;
    char *copy = text ? arena_alloc(&unit_arena, n, 1) : NULL;
    for (size_t i = 0; i < n; i++)
        copy[i] = text[i] == '\'' ? '"' : text[i];
    return (struct str){copy, n};
}

/* Parses n bytes of text, and tokenizer_config.json and special_tokens_map.json with ' for ". */
static struct tokenizer *parse_all(const char *text, size_t n, const char *config, const char *map)
{
    struct tokenizer *t = NULL;
    size_t mark = unit_arena.used_bytes;
    char *copy = arena_alloc(&unit_arena, n, 1);
    memcpy(copy, text, n);
    const struct tokenizer_source from[TOKENIZER_FILES] = {{"dir/tokenizer.json", {copy, n}},
                                                           {"dir/config.json", quoted(config)},
                                                           {"dir/map.json", quoted(map)}};
    problem = (struct err_text){0};
    enum err r = tokenizer_parse(&keep, &scratch, from, &t, &problem);
    arena_reset(&unit_arena, mark);
    return r == ERR_OK ? t : NULL;
}

static struct tokenizer *parse(const char *text, size_t n, const char *config)
{
    return parse_all(text, n, config, NULL);
}

static struct tokenizer *make(const struct parts *p)
{
    static char text[1 << 20];
    struct tokenizer *t = parse_all(text, json_of(p, text, sizeof text), p->config, p->map);
    if (!t)
        printf("    %s\n", problem.text);
    return t;
}

/* The ids of text, "1 2 3", with work memory of exactly the promised size. */
static const char *encoded(const struct tokenizer *t, struct str text, u32 flags)
{
    static char out[4096];
    u32 ids[512], n, at = 0;
    struct err_text e = {0};
    size_t mark = unit_arena.used_bytes, bytes = tokenizer_work_bytes(t, text.n);
    void *work = arena_alloc(&unit_arena, bytes, 16);
    enum err r = tokenizer_encode(t, text, flags, work, bytes, ids, COUNTOF(ids), &n, &e);
    arena_reset(&unit_arena, mark);
    if (r != ERR_OK)
        return err_name(r);
    out[0] = 0;
    for (u32 i = 0; i < n; i++)
        at += (u32)snprintf(out + at, sizeof out - at, i ? " %u" : "%u", ids[i]);
    return out;
}

static bool encodes(const struct tokenizer *t, const char *text, u32 flags, const char *want)
{
    const char *got = encoded(t, str_of(text), flags);
    if (strcmp(got, want) != 0)
        printf("    \"%s\" gives %s, not %s\n", text, got, want);
    return strcmp(got, want) == 0;
}

/* --- decoding ------------------------------------------------------------------------------- */

/* Appends 'text':id, with the bytes of text in the byte-level alphabet, to json[cap]. */
static void vocab_bytes(char *json, size_t cap, const u8 *p, size_t n, u32 id)
{
    size_t at = strlen(json);
    at += (size_t)snprintf(json + at, cap - at, "%s\"", id ? "," : "");
    for (size_t i = 0; i < n; i++) {
        u32 b = p[i], cp = b;
        if (b < 0x21)
            cp = 0x100 + b;
        else if (b >= 0x7f && b <= 0xa0)
            cp = 0x121 + b - 0x7f;
        else if (b == 0xad)
            cp = 0x143;
        at += (size_t)snprintf(json + at, cap - at, "\\u%04x", cp);
    }
    at += (size_t)snprintf(json + at, cap - at, "\":%u", id);
    ASSERT(at < cap);
}

/* A tokenizer with the 256 bytes as ids 0 to 255 and all longer substrings of text behind them. */
static struct tokenizer *bytes_tokenizer(const char *text)
{
    static char vocab[1 << 19];
    size_t n = strlen(text);
    u32 id = 0;
    vocab[0] = 0;
    for (; id < 256; id++)
        vocab_bytes(vocab, sizeof vocab, &(u8){(u8)id}, 1, id);
    for (size_t len = 2; len <= n; len++)
        for (size_t i = 0; i + len <= n; i++) {
            size_t k = 0;
            while (memcmp(text + k, text + i, len) != 0)
                k++;
            if (k == i)
                vocab_bytes(vocab, sizeof vocab, (const u8 *)text + i, len, id++);
        }
    return make(&(struct parts){.vocab = vocab, .decoder = "{'type':'ByteLevel'}"});
}

static u32 bytes_id(const struct tokenizer *t, const char *p, size_t n)
{
    char json[512] = "", content[256];
    size_t at = 0;
    vocab_bytes(json, sizeof json, (const u8 *)p, n, 0);
    for (char *q = json + 1; *q == '\\'; q += 6)
        at +=
            utf8_encode((u32)strtoul((char[]){q[2], q[3], q[4], q[5], 0}, NULL, 16), content + at);
    return (u32)tokenizer_id(t, (struct str){content, at});
}

/* Streams ids on from d; false when a piece is not UTF-8 or the whole is not `want`. */
static bool streams_on(struct decode_stream d, const u32 *ids, u32 n, struct str want)
{
    static char out[64 * 1024], piece[DECODE_PIECE_BYTES];
    size_t at = 0;
    for (u32 i = 0; i <= n; i++) {
        u32 got = i < n ? decode_push(&d, ids[i], piece) : decode_end(&d, piece);
        if (!utf8_valid((struct str){piece, got}))
            return false;
        memcpy(out + at, piece, got);
        at += got;
    }
    return str_eq((struct str){out, at}, want);
}

static bool streams(const struct tokenizer *t, const u32 *ids, u32 n, struct str want)
{
    return streams_on(decode_start(t, false), ids, n, want);
}

static bool decodes(const struct tokenizer *t, const u32 *ids, u32 n, bool skip, const char *want)
{
    char out[4096];
    size_t bytes;
    struct err_text e = {0};
    return tokenizer_decode(t, ids, n, skip, out, sizeof out, &bytes, &e) == ERR_OK &&
           str_eq((struct str){out, bytes}, str_of(want));
}

void tokenizer_stream_split_everywhere(void)
{
    const char *text = "a\xc3\xa9 \xe4\xbd\xa0\xf0\x9f\x98\x80\xcc\x81z\xef\xbf\xbd!";
    size_t n = strlen(text);
    arenas();
    struct tokenizer *t = bytes_tokenizer(text);
    CHECK(t);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++) {
            size_t ends[] = {0, i, j, n};
            u32 ids[3], count = 0;
            for (int k = 0; k < 3; k++)
                if (ends[k + 1] > ends[k])
                    ids[count++] = bytes_id(t, text + ends[k], ends[k + 1] - ends[k]);
            CHECK(streams(t, ids, count, str_of(text)));
            CHECK(decodes(t, ids, count, false, text));
        }
}

/* Every string of up to five bytes from the corners of UTF-8, against decoding it in one go. */
void tokenizer_stream_broken_bytes(void)
{
    static const u8 corner[] = {0x41, 0x80, 0x9f, 0xa0, 0xc3, 0xe0, 0xed, 0xf0, 0xf4};
    arenas();
    struct tokenizer *t = bytes_tokenizer("");
    CHECK(t);
    for (u32 code = 0; code < 9 * 9 * 9 * 9 * 9; code++) {
        char text[5], want[16];
        u32 ids[5], want_n = 0, cp, rest = code;
        for (int i = 0; i < 5; i++, rest /= 9) {
            ids[i] = corner[rest % 9];
            text[i] = (char)ids[i];
        }
        for (u32 i = 0, len; i < 5; i += len) {
            len = utf8_decode(text + i, 5 - i, &cp);
            memcpy(want + want_n, len ? text + i : "\xef\xbf\xbd", len ? len : 3);
            want_n += len ? len : 3;
            len = len ? len : utf8_bad_length(text + i, 5 - i);
        }
        CHECK(streams(t, ids, 5, (struct str){want, want_n}));
    }
}

#define CHAIN                                                                               \
    "{'type':'Sequence','decoders':[{'type':'Replace','pattern':{'String':'\xe2\x96\x81'}," \
    "'content':' '},{'type':'ByteFallback'},{'type':'Fuse'},{'type':'Strip','content':' '," \
    "'start':1,'stop':0}]}"

/* What follows a prompt begins with the blank that is between words, unless that has no text. */
static void behind_prompts(const struct tokenizer *t, u32 mark, u32 a, u32 byte)
{
    static const u32 none = 99;
    const struct {
        u32 ids[3], n;
        const char *want;
    } prompts[] = {{{0}, 0, "a"},        {{none, none}, 2, "a"},  {{mark}, 1, " a"},
                   {{mark, a}, 2, " a"}, {{a, mark, a}, 3, " a"}, {{none, byte, a}, 3, " a"},
                   {{a, byte}, 2, " a"}, {{byte}, 1, "a"}};
    for (size_t i = 0; i < COUNTOF(prompts); i++) {
        struct decode_stream d = decode_behind(t, false, prompts[i].ids, prompts[i].n);
        CHECK(streams_on(d, (u32[]){mark, a}, 2, str_of(prompts[i].want)));
    }
}

void tokenizer_fallback_runs(void)
{
    enum { UNK, MARK, A, E4, BD, A0, FF, PLUS };
    static const struct {
        u32 ids[8], n;
        const char *full, *streamed;
    } cases[] = {
        {{A, E4, BD, A0, A},
         5,
         "a\xe4\xbd\xa0"
         "a",
         NULL},
        {{E4, BD, A0, E4, BD, A0}, 6, "\xe4\xbd\xa0\xe4\xbd\xa0", NULL},
        {{E4, BD, A},
         3,
         "\xef\xbf\xbd\xef\xbf\xbd"
         "a",
         NULL}, /* one U+FFFD a token */
        {{E4, BD}, 2, "\xef\xbf\xbd\xef\xbf\xbd", NULL},
        {{FF, E4, BD, A0}, 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", NULL},
        {{FF, A, E4, BD, A0},
         5,
         "\xef\xbf\xbd"
         "a\xe4\xbd\xa0",
         NULL},
        /* only the full decode can take the first character back */
        {{E4, BD, A0, FF},
         4,
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd",
         "\xe4\xbd\xa0\xef\xbf\xbd"},
        {{MARK, A, MARK, A}, 4, "a a", NULL},
        {{MARK, MARK, A}, 3, " a", NULL},
        {{99, A, 0xffffffff}, 3, "a", NULL},
        {{PLUS}, 1, "\x0f", NULL}, /* Rust parses "+f" */
    };
    arenas();
    struct tokenizer *t = make(&(struct parts){
        .vocab = "'<unk>':0,'\xe2\x96\x81':1,'a':2,'<0xE4>':3,'<0xBD>':4,'<0xA0>':5,'<0xFF>':6,"
                 "'<0x+f>':7",
        .decoder = CHAIN,
        .options = ",'byte_fallback':true",
    });
    CHECK(t);
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        const char *streamed = cases[i].streamed ? cases[i].streamed : cases[i].full;
        CHECK(decodes(t, cases[i].ids, cases[i].n, false, cases[i].full));
        CHECK(streams(t, cases[i].ids, cases[i].n, str_of(streamed)));
    }
    behind_prompts(t, MARK, A, E4);
    char out[LIMIT_TOKEN_BYTES];
    CHECK(tokenizer_bytes(t, E4, out) == 1 && (u8)out[0] == 0xe4);
    CHECK(tokenizer_bytes(t, MARK, out) == 1 && out[0] == ' ');
    CHECK(tokenizer_bytes(t, 99, out) == 0);
}

/* --- encoding ------------------------------------------------------------------------------- */

#define SMALL_VOCAB "'<unk>':0,'<s>':1,'a':2,'b':3,'c':4,'ab':5,'bc':6,'abc':7,' ':8,'\\n':9"

void tokenizer_encode_small(void)
{
    arenas();
    struct tokenizer *t = make(&(struct parts){
        .vocab = SMALL_VOCAB,
        .merges = "'b c','a b',['ab','c'],['a','bc']",
        .added = "{'id':1,'content':'<s>','special':true,'normalized':false},"
                 "{'id':10,'content':'aa','special':false,'normalized':false,'single_word':true},"
                 "{'id':11,'content':'<x>','special':false,'normalized':false,'lstrip':true,"
                 "'rstrip':true},{'id':12,'content':'<x>y','special':true,'normalized':false},"
                 "{'id':13,'content':'\\t','normalized':false,'lstrip':true,'rstrip':true}",
        .options = ",'unk_token':'<unk>','fuse_unk':true",
        .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'B','type_id':0}},"
                "{'Sequence':{'id':'A','type_id':0}}],'special_tokens':{'B':{'id':'B','ids':[1,2],"
                "'tokens':['<s>','a']}}}",
        .config = "{'bos_token':'<s>','unk_token':{'content':'<unk>'}}",
    });
    CHECK(t);
    CHECK(encodes(t, "", 0, ""));
    CHECK(encodes(t, "", ENCODE_ADD_SPECIAL, "1 2"));
    CHECK(encodes(t, "abc", ENCODE_ADD_SPECIAL, "1 2 7")); /* b c first, then a bc */
    CHECK(encodes(t, "abab", 0, "5 5"));
    CHECK(encodes(t, "xyaz", 0, "0 2 0"));
    CHECK(encodes(t, "b<s>b", 0, "3 1 3"));
    CHECK(encodes(t, "b<s>b", ENCODE_NO_SPECIAL_TEXT, "3 0 3"));
    CHECK(encodes(t,
                  "aa b aaa \xc3\xa9"
                  "aa",
                  0, "10 8 3 8 2 2 2 8 0 2 2"));
    CHECK(encodes(t, "a \n <x>  b<x>y", 0, "2 11 3 12")); /* the longest */
    CHECK(tokenizer_id(t, STR("<x>y")) == 12 && tokenizer_id(t, STR("zz")) == -1);
    CHECK(tokenizer_vocab(t) == 14 && tokenizer_is_special(t, 12) && !tokenizer_is_special(t, 11));
    CHECK(str_is(tokenizer_content(t, 7), "abc") && tokenizer_content(t, 14).n == 0);
    CHECK(str_is(tokenizer_bos(t), "<s>") && str_is(tokenizer_unk(t), "<unk>"));
    CHECK(tokenizer_eos(t).n == 0 && tokenizer_pad(t).n == 0);
    CHECK(encodes(t, "b\t\tb", 0, "3 13 3")); /* the second is within what the first swallows */
    CHECK(decodes(t, (u32[]){1, 7, 2, 12}, 4, true, "abc a"));
}

/* As in Phi-4-mini: its special tokens stand in model.vocab behind ids that nobody has. */
void tokenizer_vocab_gaps(void)
{
    struct parts p = {
        .vocab = "'a':0,'ab':4,'b':2,'<e>':6,'<p>':9",
        .merges = "'a b'",
        .added = "{'id':6,'content':'<e>','special':true,'normalized':false},"
                 "{'id':9,'content':'<p>','special':true,'normalized':false},"
                 "{'id':10,'content':'<u>','special':true,'normalized':false}",
    };
    arenas();
    struct tokenizer *t = make(&p);
    CHECK(t && tokenizer_vocab(t) == 11 && tokenizer_pieces(t) == 10);
    CHECK(encodes(t, "ab<e>ba<p><u>", 0, "4 6 2 0 9 10"));
    CHECK(encodes(t, "", 0, "") && tokenizer_content(t, 5).n == 0 && !tokenizer_is_special(t, 5));
    CHECK(decodes(t, (u32[]){1, 0, 3, 5, 2, 7, 8}, 7, true, "a b")); /* joined by a blank */
    p.decoder = "{'type':'ByteLevel'}";
    t = make(&p);
    CHECK(t && decodes(t, (u32[]){1, 4, 3, 8, 2}, 5, true, "abb"));
}

/* What tokenizer_config.json says of tokens beyond tokenizer.json, as transformers takes it. */
void tokenizer_config_tokens(void)
{
    struct parts p = {
        .vocab = SMALL_VOCAB,
        .merges = "'b c','a b',['ab','c'],['a','bc']",
        .added = "{'id':1,'content':'<s>','special':true,'normalized':false},"
                 "{'id':10,'content':'<x>','special':false,'normalized':false}",
        .options = ",'unk_token':'<unk>','fuse_unk':true",
        .config = "{'eos_token':'<x>','pad_token':'[PAD]','unk_token':'<unk>',"
                  "'additional_special_tokens':['<y>','<x>'],'added_tokens_decoder':{"
                  "'12':{'content':'<z>','special':false,'normalized':false},"
                  "'11':{'content':'[PAD]','special':false,'normalized':false},"
                  "'1':{'content':'<s>','special':false,'normalized':false,'rstrip':true},"
                  "'99':{'content':'<x>','special':false,'normalized':false,'lstrip':true}}}",
    };
    arenas();
    struct tokenizer *t = make(&p);
    CHECK(t && tokenizer_vocab(t) == 14);
    CHECK(encodes(t, "<s> b", 0, "1 3")); /* the flags of tokenizer_config.json win */
    CHECK(encodes(t, "b <x> b", 0, "3 10 8 3"));
    CHECK(encodes(t, "<z>[PAD]<y>", 0, "12 11 13"));
    CHECK(tokenizer_is_special(t, 1) && tokenizer_is_special(t, 10)); /* once, and by its role */
    CHECK(tokenizer_is_special(t, 11) && !tokenizer_is_special(t, 12));
    CHECK(tokenizer_is_special(t, 13) && tokenizer_is_special(t, 0)); /* <unk>: was only a piece */
    CHECK(encodes(t, "b<unk>b", 0, "3 0 3") && str_is(tokenizer_pad(t), "[PAD]"));

    arenas_empty();
    p.config = "{'pad_token':'[PAD]','mask_token':{'content':'<m>','lstrip':true},"
               "'extra_special_tokens':{'image_token':'<y>'}}";
    t = make(&p);
    CHECK(t && encodes(t, "[PAD]b <m><y>", 0, "11 3 12 13") && tokenizer_is_special(t, 13));
    static const char *const configs[] = {
        "{'added_tokens_decoder':[]}", "{'added_tokens_decoder':{'x':{'content':'<y>'}}}",
        "{'added_tokens_decoder':{'12':{'content':'<y>'}}}", /* 11 would be next */
        "{'added_tokens_decoder':{'11':{'content':'<y>','rstrip':1}}}"};
    for (size_t i = 0; i < COUNTOF(configs); i++) {
        static char text[1 << 14];
        arenas_empty();
        CHECK(!parse(text, json_of(&p, text, sizeof text), configs[i]));
        CHECK(problem.code == ERR_MODEL && strstr(problem.text, "dir/config.json: added_tokens_d"));
    }
}

/* Where tokenizer_config.json has no added_tokens_decoder, special_tokens_map.json wins. */
void tokenizer_special_tokens_map(void)
{
    static char text[1 << 14];
    struct parts p = {
        .vocab = SMALL_VOCAB,
        .added = "{'id':1,'content':'<s>','special':false,'normalized':false}",
        .config = "{'bos_token':'a','add_bos_token':true,'additional_special_tokens':['<x>']}",
        .map = "{'bos_token':{'content':'<s>'},'pad_token':'[PAD]',"
               "'additional_special_tokens':['<y>']}",
    };
    arenas();
    struct tokenizer *t = make(&p);
    CHECK(t && str_is(tokenizer_bos(t), "<s>") && str_is(tokenizer_pad(t), "[PAD]"));
    CHECK(encodes(t, "b<x><y>", ENCODE_ADD_SPECIAL, "1 3 11 12") && tokenizer_is_special(t, 1));
    arenas_empty();
    p.config = NULL;
    CHECK((t = make(&p)) && str_is(tokenizer_bos(t), "<s>"));
    arenas_empty();
    p.config = "{'bos_token':'a','added_tokens_decoder':{}}";
    CHECK((t = make(&p)) && str_is(tokenizer_bos(t), "a") && tokenizer_pad(t).n == 0);
    size_t n = json_of(&p, text, sizeof text);
    arenas_empty();
    CHECK(!parse_all(text, n, "{}", "[]") && strstr(problem.text, "dir/map.json: must be an obj"));
    arenas_empty();
    CHECK(!parse_all(text, n, "{}", "{'eos_token':'zz'}"));
    CHECK(strstr(problem.text, "dir/map.json: eos_token \"zz\" is no token"));
}

/* Which classes put bos and eos around a text by themselves. */
void tokenizer_config_frames(void)
{
    static const struct {
        const char *config, *ids;
    } cases[] = {
        {"{'bos_token':'<s>'}", "1 3 4"},
        {"{'bos_token':'<s>','add_bos_token':false}", "3"},
        {"{'bos_token':'<s>','add_bos_token':true,'tokenizer_class':'LlamaTokenizerFast'}", "1 3"},
        {"{'bos_token':'<s>','add_bos_token':null,'tokenizer_class':'GemmaTokenizer'}", "3"},
        {"{'bos_token':'<s>','add_eos_token':false,'tokenizer_class':'LlamaTokenizer'}", "1 3"},
        {"{'eos_token':'a','add_eos_token':true,'tokenizer_class':'LlamaTokenizer'}", "3 2"},
        {"{'bos_token':'<s>','add_bos_token':false,'tokenizer_class':'PreTrainedTokenizerFast'}",
         "1 3 4"},
        {"{'bos_token':'<s>','eos_token':'a','add_eos_token':true,'tokenizer_class':"
         "'PreTrainedTokenizer'}",
         "1 3 4"},
    };
    arenas();
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        arenas_empty();
        struct tokenizer *t = make(&(struct parts){
            .vocab = SMALL_VOCAB,
            .added = "{'id':1,'content':'<s>','special':true,'normalized':false}",
            .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'B'}},"
                    "{'Sequence':{'id':'A'}},{'SpecialToken':{'id':'E'}}],'special_tokens':{"
                    "'B':{'id':'B','ids':[1]},'E':{'id':'E','ids':[4]}}}",
            .config = cases[i].config,
        });
        CHECK(t && encodes(t, "b", ENCODE_ADD_SPECIAL, cases[i].ids));
    }
}

void tokenizer_encode_refuses(void)
{
    static const char *const bad[] = {"\xff", "a\xc0\x80", "\xed\xa0\x80", "ab\xe4\xbd",
                                      "\xf4\x90\x80\x80"};
    arenas();
    struct tokenizer *t = make(&(struct parts){.vocab = SMALL_VOCAB});
    CHECK(t);
    for (size_t i = 0; i < COUNTOF(bad); i++)
        CHECK(strcmp(encoded(t, str_of(bad[i]), 0), "REQUEST") == 0);
    u32 ids[3] = {99, 99, 99}, n;
    struct err_text e = {0};
    size_t bytes = tokenizer_work_bytes(t, 4);
    void *work = arena_alloc(&unit_arena, bytes, 16);
    CHECK(tokenizer_encode(t, STR("ab"), 0, work, bytes, ids, 2, &n, &e) == ERR_OK && n == 2);
    CHECK(tokenizer_encode(t, STR("abca"), 0, work, bytes, ids, 2, &n, &e) == ERR_LIMIT);
    CHECK(ids[2] == 99 && strstr(e.text, "4 tokens"));
}

/* One word of a quarter megabyte; and the work memory that was promised is enough for texts that
 * grow. */
void tokenizer_encode_long(void)
{
    static const char *const units[] = {"a", "ab", "abc", " ", "\xcc\x81", "\xf0\x9d\x85\xa0"};
    arenas();
    struct tokenizer *t = make(&(struct parts){
        .vocab = "'\xe2\x96\x81':0,'a':1,'b':2,'ab':3,'aa':4,'aaaa':5,'abab':6",
        .merges = "'a b','a a','aa aa','ab ab'",
        .normalizer = "{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'Prepend',"
                      "'prepend':'\xe2\x96\x81'},{'type':'Replace','pattern':{'String':' '},"
                      "'content':'\xe2\x96\x81'}]}",
    });
    CHECK(t);
    size_t bytes = tokenizer_work_bytes(t, MIB / 4);
    void *work = arena_alloc(&unit_arena, bytes, 16);
    u32 *ids = ARENA_NEW(&unit_arena, u32, MIB), n;
    char *text = ARENA_NEW(&unit_arena, char, MIB / 4);
    CHECK(work && ids && text);
    for (size_t u = 0; u < COUNTOF(units); u++) {
        struct err_text e = {0};
        size_t len = strlen(units[u]), size = MIB / 4 / len * len;
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % len];
        enum err r =
            tokenizer_encode(t, (struct str){text, size}, 0, work, bytes, ids, MIB, &n, &e);
        CHECK(r == ERR_OK);
        if (u == 0)
            CHECK(n == 1 + MIB / 16);
        if (u == 1)
            CHECK(n == 1 + MIB / 16);
        if (u == 3)
            CHECK(n == 1 + MIB / 4);
    }
}

/* --- splits --------------------------------------------------------------------------------- */

/* The ends of the matches of a pattern in text, "1 3"; or the refusal; or the limit. */
static const char *split_ends(const char *regex, struct str text)
{
    static char out[ERR_TEXT_MAX];
    struct err_text e = {0};
    struct split_budget budget = {.steps = split_steps(text.n)};
    struct split_scan scan = {.budget = &budget};
    struct split *split;
    size_t start, end = 0, at = 0;
    out[0] = 0;
    if (split_compile(&keep, str_of(regex), "file", &split, &e) != ERR_OK) {
        snprintf(out, sizeof out, "%s", e.text);
        return out;
    }
    while (split_next(split, text, end, &scan, &start, &end) && at < 64)
        at += (size_t)snprintf(out + at, sizeof out - at, at ? " %zu" : "%zu", end);
    return budget.over ? budget.over : out;
}

void split_patterns(void)
{
    static const struct {
        const char *regex, *text, *ends;
    } cases[] = {
        {"a|ab", "abab", "1 3"},       /* the first that fits, not the longest */
        {"(?:a|ab)c", "abcac", "3 5"}, /* which another may follow */
        {"a+?b?", "aab", "1 3"},       /* lazy */
        {"a++a|b", "aab", "3"},        /* possessive: nothing is given back */
        {"(?>a|ab)c", "abcac", "5"},   /* nor here */
        {"\\s+(?!\\S)|\\s+", "a   b ", "3 4 6"},
        {"(?i:'s|k)", "'S'\xc5\xbf\xe2\x84\xaa", "2 5 8"}, /* long s, Kelvin */
        {"[^a-y&&[^b]]+", "azbac", "3"},
        {"\\s+$", "a  \nb ", "3 6"},
        {"^a", "aa\na", "1 4"},
        {"(?=(?:1{3})+(?!1))", "1111111", "1 4"}, /* matches of nothing are cuts */
        {"[\xe4\xb8\x80-\xe9\xbe\xa5]+|\\p{^Han}", "\xe4\xbd\xa0\xe5\xa5\xbd!", "6 7"},
        {"a{2,3}b{,1}", "aaaab", "3"},
    };
    arenas();
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        const char *ends = split_ends(cases[i].regex, str_of(cases[i].text));
        if (strcmp(ends, cases[i].ends) != 0)
            printf("    %s: %s, not %s\n", cases[i].regex, ends, cases[i].ends);
        CHECK(strcmp(ends, cases[i].ends) == 0);
        arenas_empty();
    }
}

/* Texts on which backtracking could take for ever end, or say which limit ended them. */
void split_long(void)
{
    static const struct {
        const char *regex, *unit, *ends;
    } cases[] = {
        {"\\s+$", " ", ""},
        {"\\s*[\\r\\n]+|\\s?\\s+$", " ", ""},
        {"[a-z]+[0-9]|[b-z]", "a", "262145"},
        {"(?:a+)+b", "a", "LIMIT_SPLIT_"},
        {"(?:a|a)*b", "a", "LIMIT_SPLIT_FRAMES"},
        {"(?:a|b)+c", "ab", "LIMIT_SPLIT_STEPS"},
        {"(?:a(?: a)*)+", "a a", "262144"},
    };
    arenas();
    size_t n = MIB / 4;
    char *text = ARENA_NEW(&unit_arena, char, n + 1);
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        for (size_t k = 0, unit = strlen(cases[i].unit); k < n; k++)
            text[k] = cases[i].unit[k % unit];
        text[n] = 'x';
        const char *ends = split_ends(cases[i].regex, (struct str){text, n + 1});
        if (strncmp(ends, cases[i].ends, strlen(cases[i].ends)) != 0 ||
            !cases[i].ends[0] != !ends[0])
            printf("    %s: %s\n", cases[i].regex, ends);
        CHECK(strncmp(ends, cases[i].ends, strlen(cases[i].ends)) == 0);
        CHECK(!cases[i].ends[0] == !ends[0]);
        arenas_empty();
    }
}

/* --- hostile files -------------------------------------------------------------------------- */

static const struct parts decent = {
    .vocab = SMALL_VOCAB,
    .merges = "'b c','a b',['ab','c']",
    .added = "{'id':1,'content':'<s>','special':true,'normalized':false},"
             "{'id':10,'content':'<x>','special':false,'normalized':true}",
    .normalizer = "{'type':'NFC'}",
    .pre = "{'type':'Sequence','pretokenizers':[{'type':'Digits','individual_digits':true},"
           "{'type':'ByteLevel','add_prefix_space':false,'use_regex':true}]}",
    .post = "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>'}},"
            "{'Sequence':{'id':'A'}}],'special_tokens':{'<s>':{'ids':[1]}}}",
    .decoder = "{'type':'ByteLevel'}",
    .options = ",'unk_token':'<unk>','dropout':null",
};

void tokenizer_truncated_everywhere(void)
{
    static char text[8192];
    arenas();
    size_t n = json_of(&decent, text, sizeof text);
    CHECK(parse(text, n, NULL));
    for (size_t i = 0; i < n; i++) {
        arenas_empty();
        CHECK(!parse(text, i, NULL));
        CHECK(problem.code == ERR_MODEL && strstr(problem.text, "dir/tokenizer.json: line 1"));
    }
}

/* `from` in the decent file becomes `to`; the refusal must say `says`. */
static const struct {
    const char *from, *to, *says;
} hostile[] = {
    {"'1.0'", "'2.0'", "version is \"2.0\""},
    {"'BPE'", "'Unigram'", "model.type is \"Unigram\""},
    {"'model':{", "'model':[],'x':{", "model must be an object"},
    {"'dropout':null", "'dropout':0.1", "model.dropout"},
    {"'dropout':null", "'end_of_word_suffix':'</w>'", "model.end_of_word_suffix"},
    {"'dropout':null", "'byte_fallback':1", "model.byte_fallback must be true or false"},
    {"'unk_token':'<unk>'", "'unk_token':'zz'", "model.unk_token \"zz\""},
    {"'unk_token':'<unk>'", "'unk_token':[1]", "model.unk_token"},
    {"'abc':7", "'abc':8", "model.vocab gives id 8 to \"abc\" and to \" \""},
    {"'abc':7", "'abc':1048577", "model.vocab[\"abc\"] is 1048577; an id from 0 to"},
    {"'abc':7", "'abc':-1", "model.vocab[\"abc\"] is -1"},
    {"'abc':7", "'abc':1e1", "model.vocab[\"abc\"] is 1e1"},
    {"'abc':7", "'abc':18446744073709551623", "model.vocab[\"abc\"]"},
    {"'abc':7", "'abc':'7'", "model.vocab[\"abc\"]"},
    {"'abc':7", "'ab':7", "stands twice"},
    {"'b c'", "'b d'", "model.merges[0] names \"d\""},
    {"'b c'", "'c c'", "model.merges[0] makes \"cc\""},
    {"'b c'", "'b  c'", "model.merges[0] must be"},
    {"'b c'", "'bc'", "model.merges[0] must be"},
    {"'b c'", "['b']", "model.merges[0] must be"},
    {"'b c'", "['b',3]", "model.merges[0] must be"},
    {"'b c'", "'a b'", "model.merges[1] repeats"},
    {"'merges':[", "'merges':{},'x':[", "model.merges must be an array"},
    {"'added_tokens':[", "'added_tokens':3,'x':[", "added_tokens must be an array"},
    {"'id':10,", "'id':12,", "added_tokens[1].id of \"<x>\" is 12; to go on without a gap"},
    {"'id':1,", "'id':2,", "added_tokens[0].id of \"<s>\" is 2; by model.vocab it must be 1"},
    {"'id':1,", "", "added_tokens[0].id"},
    {"'<x>'", "'<s>'", "added_tokens"},
    {"'<x>'", "7", "added_tokens[1].content must be a string"},
    {"'special':true", "'special':'yes'", "added_tokens[0].special"},
    {"'NFC'", "'NFKC'", "normalizer \"NFKC\""},
    {"{'type':'NFC'}", "{'type':'Replace','pattern':{'Regex':' {2,}'},'content':''}", " {2,}"},
    {"{'type':'NFC'}", "{'type':'Replace','pattern':{'String':''},'content':''}", "is empty"},
    {"{'type':'NFC'}", "{'type':'Replace','pattern':{'String':'<x>'},'content':''}",
     "0 bytes when it is normalized"},
    {"'type':'Digits'", "'type':'Whitespace'", "pre_tokenizer \"Whitespace\""},
    {"'type':'Digits'", "'type':'Punctuation','behavior':1", "behavior must be a string"},
    {"'type':'Digits'", "'type':'Split','behavior':'Isolated','pattern':{'Regex':'a|(?<=b)c'}",
     "pattern, byte 2 (\"(?<=b)c\"): a group that is not supported: a|(?<=b)c"},
    {"'type':'Digits'", "'type':'Split','behavior':'Isolated','pattern':{'Regex':7}",
     "pattern.Regex must be a string"},
    {"'type':'Digits'", "'type':'Split','behavior':'Mixed','pattern':{'String':'-'}",
     "behavior \"Mixed\" is not known"},
    {"'type':'Digits'", "'type':'Metaspace','replacement':'__'", "must be one character"},
    {"'type':'Digits'", "'type':'Metaspace','replacement':'_','prepend_scheme':'x'",
     "prepend_scheme"},
    {"'type':'Digits'", "'type':'ByteLevel'", "only once"},
    {"'use_regex':true", "'use_regex':0", "pre_tokenizer.use_regex"},
    {"'TemplateProcessing'", "'BertProcessing'", "post_processor \"BertProcessing\""},
    {"{'Sequence':{'id':'A'}}", "{'Sequence':{'id':'B'}}", "exactly once"},
    {"{'Sequence':{'id':'A'}}", "{'Sequence':{'id':'A'}},{'Sequence':{'id':'A'}}", "exactly once"},
    {",{'Sequence':{'id':'A'}}", "", "exactly once"},
    {"'ids':[1]", "'ids':[11]", "ids: 11 is no token"},
    {"'ids':[1]", "'ids':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "more than 16 tokens"},
    {"{'<s>':{", "{'<z>':{", "no ids for \"<s>\""},
    {"'decoder':{'type':'ByteLevel'", "'decoder':{'type':'WordPiece'", "decoder \"WordPiece\""},
    {"'decoder':{", "'decoder':{'type':'Sequence','decoders':[{'type':'Strip'}]},'x':{",
     "not supported at this place"},
    {"'decoder':{", "'decoder':{'type':'Replace','pattern':{'String':'a'},'content':'bc'},'x':{",
     "longer"},
};

void tokenizer_hostile_files(void)
{
    static char good[8192], from[256], bad[16384];
    arenas();
    size_t n = json_of(&decent, good, sizeof good);
    for (size_t i = 0; i < COUNTOF(hostile); i++) {
        size_t from_n = strlen(hostile[i].from);
        for (size_t k = 0; k <= from_n; k++)
            from[k] = hostile[i].from[k] == '\'' ? '"' : hostile[i].from[k];
        char *at = strstr(good, from);
        CHECK(at);
        int bad_n = snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, hostile[i].to,
                             at + from_n);
        for (int k = 0; k < bad_n; k++)
            bad[k] = bad[k] == '\'' ? '"' : bad[k];
        arenas_empty();
        bool taken = parse(bad, (size_t)bad_n, NULL);
        if (taken || !strstr(problem.text, hostile[i].says))
            printf("    case %zu: %s\n", i, taken ? "accepted" : problem.text);
        CHECK(!taken && problem.code == ERR_MODEL);
        CHECK(strstr(problem.text, hostile[i].says) && strstr(problem.text, "dir/tokenizer.json"));
    }
    arenas_empty();
    CHECK(parse(good, n, "{'add_bos_token':true,'bos_token':'<s>','split_special_tokens':false}"));
    static const char *const configs[] = {
        "{'bos_token':'nope'}",          "[]", "{'eos_token':3}", "{'add_bos_token':'no'}",
        "{'split_special_tokens':true}", "{"};
    for (size_t i = 0; i < COUNTOF(configs); i++) {
        arenas_empty();
        CHECK(!parse(good, n, configs[i]) && strstr(problem.text, "dir/config.json"));
    }
}

/* Every single-byte change of a decent file is taken or refused, but never crashes, and what is
 * taken encodes. */
void tokenizer_changed_bytes(void)
{
    static char good[8192], bad[8192];
    static const char with[] = {'"', '}', '9', '\\', '\0', ',', (char)0xff};
    arenas();
    size_t n = json_of(&decent, good, sizeof good);
    u32 taken = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < COUNTOF(with); k++) {
            memcpy(bad, good, n);
            bad[i] = with[k];
            arenas_empty();
            struct tokenizer *t = parse(bad, n, NULL);
            taken += t != NULL;
            if (t)
                CHECK(strcmp(encoded(t, STR("ab<s> <x>1 abc\n"), ENCODE_ADD_SPECIAL), "") != 0);
        }
    CHECK(taken > 0);
}
