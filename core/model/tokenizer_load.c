#include "core/model/tokenizer_load.h"

#include "core/base/file.h"
#include "core/base/json.h"

#include <stdlib.h>

/* --- typed members, with refusals that name file and key ------------------------------------ */

enum err load_str(struct loader *l, const struct json *object, const char *where, const char *key,
                  struct str *out)
{
    const struct json *v = json_get(object, key);
    if (!v || v->type != JSON_STRING)
        return REFUSE(l, "%s.%s must be a string, not %s", where, key, json_type_name(v));
    *out = v->text;
    return ERR_OK;
}

enum err load_bool(struct loader *l, const struct json *object, const char *where, const char *key,
                   bool missing, bool *out)
{
    const struct json *v = json_get(object, key);
    *out = missing;
    if (!v || v->type == JSON_NULL)
        return ERR_OK;
    if (v->type != JSON_TRUE && v->type != JSON_FALSE)
        return REFUSE(l, "%s.%s must be true or false, not %s", where, key, json_type_name(v));
    *out = v->type == JSON_TRUE;
    return ERR_OK;
}

enum err load_list(struct loader *l, const struct json *object, const char *where, const char *key,
                   const struct json **out)
{
    *out = json_get(object, key);
    if (!*out || (*out)->type != JSON_ARRAY)
        return REFUSE(l, "%s.%s must be an array, not %s", where, key, json_type_name(*out));
    return ERR_OK;
}

enum err load_full(struct loader *l, const struct arena *a)
{
    return arena_full(a, l->path, l->e);
}

enum err load_keep(struct loader *l, struct str s, struct str *out)
{
    *out = arena_str(l->keep, s);
    return out->p ? ERR_OK : load_full(l, l->keep);
}

/* --- model ---------------------------------------------------------------------------------- */

/* What this program does not do must be off. */
static enum err model_options(struct loader *l, const struct json *model)
{
    struct bpe *b = &l->t->bpe;
    struct str type;
    TRY(load_str(l, model, "model", "type", &type));
    if (!str_is(type, "BPE"))
        return REFUSE(l, "model.type is \"%.*s\"; only \"BPE\" is supported", STR_ARG(type));
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < COUNTOF(affixes); i++) {
        const struct json *v = json_get(model, affixes[i]);
        if (v && v->type != JSON_NULL && !(v->type == JSON_STRING && v->text.n == 0))
            return REFUSE(l, "model.%s is not supported; it must be null or empty", affixes[i]);
    }
    const struct json *dropout = json_get(model, "dropout");
    double p = 0;
    if (dropout && dropout->type != JSON_NULL && (!json_f64(dropout, &p) || p != 0))
        return REFUSE(l, "model.dropout must be null or 0: encoding is not random");
    TRY(load_bool(l, model, "model", "fuse_unk", false, &b->fuse_unk));
    TRY(load_bool(l, model, "model", "byte_fallback", false, &b->byte_fallback));
    return load_bool(l, model, "model", "ignore_merges", false, &b->ignore_merges);
}

/* 1 + the highest id. Ids may be left out: Phi-4-mini has none from 200000 to 200017. */
static enum err vocab_ids(struct loader *l, const struct json *vocab, u32 *n)
{
    *n = 0;
    for (const struct json *m = vocab->child; m; m = m->next) {
        u64 id;
        if (!json_u64(m, &id) || id >= LIMIT_VOCAB)
            return REFUSE(l,
                          "model.vocab[\"%.*s\"] is %.*s; an id from 0 to %u is expected "
                          "(LIMIT_VOCAB in config/limits.h)",
                          STR_ARG(m->key), STR_ARG(m->text), LIMIT_VOCAB - 1);
        *n = MAX(*n, (u32)id + 1);
    }
    return ERR_OK;
}

/* The pieces by id into strings; no id twice. */
static enum err vocab_order(struct loader *l, const struct json *vocab, struct str *strings,
                            size_t *text_bytes)
{
    for (const struct json *m = vocab->child; m; m = m->next) {
        u64 id = 0;
        ASSERT(json_u64(m, &id)); /* vocab_ids looked */
        if (strings[id].p)
            return REFUSE(l, "model.vocab gives id %u to \"%.*s\" and to \"%.*s\"", (u32)id,
                          STR_ARG(strings[id]), STR_ARG(m->key));
        if (m->key.n > LIMIT_TOKEN_BYTES)
            return REFUSE(l,
                          "model.vocab: piece %u has %zu bytes; the limit is %d "
                          "(LIMIT_TOKEN_BYTES in config/limits.h)",
                          (u32)id, m->key.n, LIMIT_TOKEN_BYTES);
        strings[id] = m->key;
        *text_bytes += m->key.n;
    }
    return ERR_OK;
}

static enum err model_vocab(struct loader *l, const struct json *model, const struct json *added)
{
    struct bpe *b = &l->t->bpe;
    const struct json *vocab = json_get(model, "vocab");
    if (!vocab || vocab->type != JSON_OBJECT || vocab->n == 0)
        return REFUSE(l, "model.vocab must be an object with pieces and ids");
    u32 n;
    size_t text_bytes = 0;
    TRY(vocab_ids(l, vocab, &n));
    if (n + (u64)added->n + l->named_n > LIMIT_VOCAB)
        return REFUSE(l,
                      "model.vocab has %u ids; the limit, added tokens included, is %u "
                      "(LIMIT_VOCAB in config/limits.h)",
                      n, LIMIT_VOCAB);
    struct str *strings = ARENA_NEW(l->scratch, struct str, n);
    if (!strings)
        return load_full(l, l->scratch);
    TRY(vocab_order(l, vocab, strings, &text_bytes));
    for (const struct json *a = added->child; a; a = a->next) {
        const struct json *content = json_get(a, "content");
        text_bytes += content ? content->text.n : 0;
    }
    for (u32 i = 0; i < l->named_n; i++)
        text_bytes += l->named[i].content.n;
    if (!vocab_open(&b->vocab, l->keep, n + added->n + l->named_n, text_bytes))
        return load_full(l, l->keep);
    for (u32 i = 0; i < n; i++) { /* keys differ: the JSON parser saw to it */
        if (strings[i].p)
            ASSERT(vocab_add(&b->vocab, strings[i]) == i);
        else
            vocab_skip(&b->vocab);
    }
    b->model_n = n;
    bpe_index(b);

    const struct json *unk = json_get(model, "unk_token");
    b->unk = BPE_NONE;
    if (unk && unk->type != JSON_NULL) {
        b->unk = unk->type == JSON_STRING ? vocab_find(&b->vocab, unk->text) : BPE_NONE;
        if (b->unk == BPE_NONE)
            return REFUSE(l, "model.unk_token \"%.*s\" is not in model.vocab", STR_ARG(unk->text));
    }
    return ERR_OK;
}

/* "a b" or ["a", "b"]. */
static bool merge_parts(const struct json *m, struct str *a, struct str *b)
{
    if (m->type == JSON_ARRAY && m->n == 2 && m->child->type == JSON_STRING &&
        m->child->next->type == JSON_STRING) {
        *a = m->child->text;
        *b = m->child->next->text;
        return true;
    }
    const char *space = m->type == JSON_STRING ? memchr(m->text.p, ' ', m->text.n) : NULL;
    if (!space)
        return false;
    *a = (struct str){m->text.p, (size_t)(space - m->text.p)};
    *b = (struct str){space + 1, m->text.n - a->n - 1};
    return !memchr(b->p, ' ', b->n);
}

/* The id of a + b, or BPE_NONE. `last` is the one of the rule before: files list their rules in the
 * order of what they make, so the next id is mostly this one or the next and needs no search. */
static u32 merged_id(const struct bpe *b, struct str first, struct str second, u32 last)
{
    char joined[LIMIT_TOKEN_BYTES];
    size_t n = first.n + second.n;
    for (u32 id = last; id <= last + 1 && id < b->model_n; id++) {
        struct str s = vocab_str(&b->vocab, id);
        if (s.n == n && str_starts(s, first) && str_ends(s, second))
            return id;
    }
    if (n > sizeof joined)
        return BPE_NONE;
    memcpy(joined, first.p, first.n);
    memcpy(joined + first.n, second.p, second.n);
    return vocab_find(&b->vocab, (struct str){joined, n});
}

static enum err model_merge(struct loader *l, const struct json *m, u32 rank, u32 *last)
{
    struct bpe *b = &l->t->bpe;
    struct str part[2];
    if (!merge_parts(m, &part[0], &part[1]))
        return REFUSE(l, "model.merges[%u] must be \"a b\" or [\"a\", \"b\"]", rank);
    u32 id[2];
    for (int i = 0; i < 2; i++)
        if ((id[i] = vocab_find(&b->vocab, part[i])) == BPE_NONE)
            return REFUSE(l, "model.merges[%u] names \"%.*s\", which is not in model.vocab", rank,
                          STR_ARG(part[i]));
    u32 merged = merged_id(b, part[0], part[1], *last);
    if (merged == BPE_NONE)
        return REFUSE(l, "model.merges[%u] makes \"%.*s%.*s\", which is not in model.vocab", rank,
                      STR_ARG(part[0]), STR_ARG(part[1]));
    if (!bpe_merges_add(b, id[0], id[1], rank, merged))
        return REFUSE(l, "model.merges[%u] repeats the pair \"%.*s\" \"%.*s\"", rank,
                      STR_ARG(part[0]), STR_ARG(part[1]));
    *last = merged;
    return ERR_OK;
}

static enum err model_merges(struct loader *l, const struct json *model)
{
    const struct json *merges;
    TRY(load_list(l, model, "model", "merges", &merges));
    if (merges->n > LIMIT_MERGES)
        return REFUSE(l,
                      "model.merges has %u rules; the limit is %u (LIMIT_MERGES in "
                      "config/limits.h)",
                      merges->n, LIMIT_MERGES);
    if (!bpe_merges_open(&l->t->bpe, l->keep, merges->n))
        return load_full(l, l->keep);
    u32 rank = 0, last = 0;
    for (const struct json *m = merges->child; m; m = m->next)
        if (m->type != JSON_STRING || !str_starts(m->text, STR("#version")))
            TRY(model_merge(l, m, rank++, &last));
    return ERR_OK;
}

/* --- added tokens --------------------------------------------------------------------------- */

/* The id is the vocabulary's, or the next free one. The library only warns when the file says
 * another; a model was trained with the file's, so that is refused here. */
static enum err added_id(struct loader *l, u64 id, const char *where, struct added *a)
{
    struct vocab *vocab = &l->t->bpe.vocab;
    a->id = vocab_find(vocab, a->content);
    if (a->id == BPE_NONE)
        a->id = vocab_add(vocab, a->content);
    else if (a->id >= l->t->bpe.model_n)
        return REFUSE(l, "%s: \"%.*s\" stands there twice", where, STR_ARG(a->content));
    if (id != NO_ID && a->id != id)
        return REFUSE(l, "%s.id of \"%.*s\" is %llu; %s it must be %u", where, STR_ARG(a->content),
                      (unsigned long long)id,
                      a->id < l->t->bpe.model_n ? "by model.vocab" : "to go on without a gap",
                      a->id);
    return ERR_OK;
}

/* What is looked for: the content as the normalizers would write it. */
static enum err added_pattern(struct loader *l, struct added *a)
{
    a->content = vocab_str(&l->t->bpe.vocab, a->id);
    a->pattern = a->content;
    if (!a->normalized || l->t->normal_n == 0)
        return ERR_OK;
    size_t mark = l->scratch->used_bytes, used = 0, result;
    size_t bytes = tokenizer_normal_bytes(l->t, a->content.n, &result);
    u8 *work = arena_alloc(l->scratch, bytes, 16);
    if (!work)
        return load_full(l, l->scratch);
    struct str s = tokenizer_normalize(l->t, a->content, work, &used);
    if (s.n == 0 || s.n > LIMIT_TOKEN_BYTES)
        return REFUSE(l,
                      "added_tokens: \"%.*s\" has %zu bytes when it is normalized; 1 to %d are "
                      "possible",
                      STR_ARG(a->content), s.n, LIMIT_TOKEN_BYTES);
    if (!str_eq(s, a->content))
        TRY(load_keep(l, s, &a->pattern));
    arena_reset(l->scratch, mark);
    return ERR_OK;
}

static enum err added_length(struct loader *l, const char *where, struct str content)
{
    if (content.n <= LIMIT_TOKEN_BYTES)
        return ERR_OK;
    return REFUSE(l,
                  "%s.content has %zu bytes; the limit is %d (LIMIT_TOKEN_BYTES in "
                  "config/limits.h)",
                  where, content.n, LIMIT_TOKEN_BYTES);
}

static enum err added_flags(struct loader *l, const struct json *v, const char *where,
                            struct added *a)
{
    TRY(load_bool(l, v, where, "special", false, &a->special));
    TRY(load_bool(l, v, where, "single_word", false, &a->single_word));
    TRY(load_bool(l, v, where, "lstrip", false, &a->lstrip));
    TRY(load_bool(l, v, where, "rstrip", false, &a->rstrip));
    return load_bool(l, v, where, "normalized", !a->special, &a->normalized);
}

static enum err added_token(struct loader *l, const struct json *v, u32 index, struct added *a)
{
    char where[32];
    u64 id;
    snprintf(where, sizeof where, "added_tokens[%u]", index);
    TRY(load_str(l, v, where, "content", &a->content));
    if (a->content.n == 0)
        return ERR_OK; /* the library passes over it too */
    TRY(added_length(l, where, a->content));
    TRY(added_flags(l, v, where, a));
    if (!json_u64(json_get(v, "id"), &id) || id == NO_ID)
        return REFUSE(l, "%s.id must be a number of 0 or more", where);
    return added_id(l, id, where, a);
}

static int by_id(const void *p, const void *q)
{
    const struct added *a = p, *b = q;
    return (a->id > b->id) - (a->id < b->id);
}

static int by_pattern(const void *p, const void *q)
{
    struct str a = (*(const struct added *const *)p)->pattern;
    struct str b = (*(const struct added *const *)q)->pattern;
    int c = memcmp(a.p, b.p, MIN(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static enum err added_set(struct loader *l, bool normalized, struct added_set *set)
{
    struct tokenizer *t = l->t;
    set->at = ARENA_NEW(l->keep, const struct added *, t->added_n);
    if (!set->at)
        return load_full(l, l->keep);
    for (u32 i = 0; i < t->added_n; i++)
        if (t->added[i].normalized == normalized)
            set->at[set->n++] = &t->added[i];
    qsort(set->at, set->n, sizeof *set->at, by_pattern);
    for (u32 i = 0; i < set->n; i++) {
        if (i && str_eq(set->at[i]->pattern, set->at[i - 1]->pattern))
            return REFUSE(l, "added_tokens: \"%.*s\" and \"%.*s\" are the same when normalized",
                          STR_ARG(set->at[i - 1]->content), STR_ARG(set->at[i]->content));
        set->first[(u8)set->at[i]->pattern.p[0] + 1]++;
    }
    for (u32 i = 0; i < 256; i++)
        set->first[i + 1] += set->first[i];
    return ERR_OK;
}

/* Where a token with this id stands, or belongs, in t->added. */
static u32 added_place(const struct tokenizer *t, u32 id)
{
    u32 lo = 0, hi = t->added_n;
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        if (t->added[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* transformers adds what tokenizer_config.json names once more: the flags of added_tokens_decoder
 * win over tokenizer.json's, but what is special stays so. */
static enum err named_token(struct loader *l, const struct named *n)
{
    struct tokenizer *t = l->t;
    struct added a = {.content = n->content, .special = true};
    u32 id = vocab_find(&t->bpe.vocab, n->content);
    if (id == BPE_NONE && n->known)
        return ERR_OK; /* config_token refuses it */
    TRY(added_length(l, "added_tokens_decoder", a.content));
    if (n->v->type == JSON_OBJECT)
        TRY(added_flags(l, n->v, "added_tokens_decoder", &a));
    a.special |= n->role;
    if (id == BPE_NONE || !t->is_added[id]) {
        TRY(added_id(l, id == BPE_NONE ? n->id : NO_ID, "added_tokens_decoder", &a));
        u32 at = added_place(t, a.id);
        memmove(t->added + at + 1, t->added + at, (t->added_n - at) * sizeof *t->added);
        t->added[at] = a;
        t->added_n++;
        t->is_added[a.id] = 1;
        return ERR_OK;
    }
    struct added *old = &t->added[added_place(t, id)];
    a.id = id;
    a.special = old->special || (a.special && (n->role || n->id != NO_ID));
    if (n->id == NO_ID) /* flags from its place in the list, or none */
        old->special = a.special;
    else
        *old = a;
    return ERR_OK;
}

static enum err named_tokens(struct loader *l)
{
    const char *path = l->path;
    l->path = l->from[TOKENIZER_CONFIG].name;
    for (u32 i = 0; i < l->named_n; i++)
        TRY(named_token(l, &l->named[i]));
    l->path = path;
    return ERR_OK;
}

static enum err added_tokens(struct loader *l, const struct json *list)
{
    struct tokenizer *t = l->t;
    if (MAX(list->n, l->named_n) > LIMIT_ADDED_TOKENS)
        return REFUSE(l,
                      "added_tokens has %u entries; the limit is %d (LIMIT_ADDED_TOKENS in "
                      "config/limits.h)",
                      MAX(list->n, l->named_n), LIMIT_ADDED_TOKENS);
    t->added = ARENA_NEW(l->keep, struct added, list->n + l->named_n);
    t->is_added = ARENA_NEW(l->keep, u8, t->bpe.vocab.n_max);
    if (!t->added || !t->is_added)
        return load_full(l, l->keep);
    u32 index = 0;
    for (const struct json *v = list->child; v; v = v->next) {
        TRY(added_token(l, v, index++, &t->added[t->added_n]));
        t->added_n += t->added[t->added_n].content.n != 0;
    }
    qsort(t->added, t->added_n, sizeof *t->added, by_id);
    for (u32 i = 0; i < t->added_n; i++) {
        if (t->is_added[t->added[i].id]++)
            return REFUSE(l, "added_tokens: \"%.*s\" stands there twice",
                          STR_ARG(t->added[i].content));
    }
    TRY(named_tokens(l));
    for (u32 i = 0; i < t->added_n; i++)
        TRY(added_pattern(l, &t->added[i]));
    for (u32 i = 0; i < t->added_n; i++) {
        u32 id = vocab_find(&t->bpe.vocab, t->added[i].pattern);
        t->added[i].skipped = id != BPE_NONE && tokenizer_is_special(t, id);
    }
    TRY(added_set(l, false, &t->raw));
    return added_set(l, true, &t->normalized);
}

/* --- tokenizer_config.json ------------------------------------------------------------------ */

/* What is said of "bos_token" and the like, in the file that has the last word. */
static const struct json *role_of(const struct loader *l, const char *key)
{
    const struct json *v = l->map ? json_get(l->map, key) : NULL;
    return v ? v : json_get(l->config, key);
}

/* "bos_token": a string, or an object with "content", or null. */
static enum err config_token(struct loader *l, const char *key, struct str *out)
{
    const struct json *v = role_of(l, key);
    l->path = l->from[l->map && json_get(l->map, key) ? TOKENIZER_MAP : TOKENIZER_CONFIG].name;
    if (v && v->type == JSON_OBJECT)
        v = json_get(v, "content");
    *out = (struct str){"", 0};
    if (!v || v->type == JSON_NULL)
        return ERR_OK;
    u32 id = v->type == JSON_STRING ? vocab_find(&l->t->bpe.vocab, v->text) : BPE_NONE;
    if (id == BPE_NONE)
        return REFUSE(l, "%s \"%.*s\" is no token of tokenizer.json", key, STR_ARG(v->text));
    *out = vocab_str(&l->t->bpe.vocab, id);
    return ERR_OK;
}

/* Appends a name: a string, or an object with "content" and flags. Anything else is no name. */
static void add_name(struct loader *l, const struct json *v, u64 id, bool role, bool known)
{
    const struct json *content = v && v->type == JSON_OBJECT ? json_get(v, "content") : v;
    if (content && content->type == JSON_STRING && content->text.n)
        l->named[l->named_n++] = (struct named){v, content->text, id, role, known};
}

static int by_name_id(const void *p, const void *q)
{
    const struct named *a = p, *b = q;
    return (a->id > b->id) - (a->id < b->id);
}

/* What transformers (4 and 5) adds to tokenizer.json: added_tokens_decoder by id, the special
 * tokens, and further ones. */
static enum err config_names(struct loader *l)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    const struct json *decoder = json_get(l->config, "added_tokens_decoder");
    const struct json *more[] = {json_get(l->config, "additional_special_tokens"),
                                 json_get(l->config, "extra_special_tokens"),
                                 l->map ? json_get(l->map, "additional_special_tokens") : NULL};
    size_t n = COUNTOF(roles) + (decoder ? decoder->n : 0);
    if (decoder && decoder->type != JSON_OBJECT && decoder->type != JSON_NULL)
        return REFUSE(l, "added_tokens_decoder must be an object, not %s", json_type_name(decoder));
    for (u32 i = 0; i < COUNTOF(more); i++)
        n += more[i] ? more[i]->n : 0;
    l->named = ARENA_NEW(l->scratch, struct named, n);
    if (!l->named)
        return load_full(l, l->scratch);
    for (const struct json *v = decoder ? decoder->child : NULL; v; v = v->next) {
        struct json key = {.type = JSON_NUMBER, .text = v->key};
        u64 id;
        if (v->key.n == 0 || !json_u64(&key, &id) || id == NO_ID)
            return REFUSE(l, "added_tokens_decoder: \"%.*s\" is no token id", STR_ARG(v->key));
        if (v->type == JSON_OBJECT)
            add_name(l, v, id, false, false);
    }
    qsort(l->named, l->named_n, sizeof *l->named, by_name_id);
    for (u32 i = 0; i < COUNTOF(roles); i++)
        add_name(l, role_of(l, roles[i]), NO_ID, true, i < 3);
    for (u32 i = 0; i < COUNTOF(more); i++)
        for (const struct json *v = more[i] ? more[i]->child : NULL; v; v = v->next)
            add_name(l, v, NO_ID, false, false);
    return ERR_OK;
}

/* An object; *out stays as it is where there is no such file. */
static enum err read_object(struct loader *l, enum tokenizer_file file, const struct json **out)
{
    const struct tokenizer_source *from = &l->from[file];
    if (!from->text.p)
        return ERR_OK;
    l->path = from->name;
    TRY(json_parse(l->scratch, from->text, from->name, ERR_MODEL, out, l->e));
    if ((*out)->type != JSON_OBJECT)
        return REFUSE(l, "must be an object, not %s", json_type_name(*out));
    return ERR_OK;
}

static enum err config_read(struct loader *l)
{
    static const struct json none = {.type = JSON_OBJECT};
    l->config = &none;
    TRY(read_object(l, TOKENIZER_CONFIG, &l->config));
    if (!json_get(l->config, "added_tokens_decoder"))
        TRY(read_object(l, TOKENIZER_MAP, &l->map));
    l->path = l->from[TOKENIZER_CONFIG].name;
    return config_names(l);
}

/* The classes of transformers that put bos and eos around a text as add_bos_token and
 * add_eos_token say. The others leave that to the post-processor, whatever these keys hold. */
static bool frames_itself(const struct loader *l)
{
    static const char *const classes[] = {"Llama", "CodeLlama", "Gemma", "Cohere"};
    const struct json *class = json_get(l->config, "tokenizer_class");
    if (!class || class->type != JSON_STRING)
        return true;
    for (size_t i = 0; i < COUNTOF(classes); i++)
        if (str_starts(class->text, str_of(classes[i])))
            return true;
    return false;
}

static enum err config_apply(struct loader *l)
{
    struct tokenizer *t = l->t;
    const struct json *config = l->config, *add_bos = json_get(config, "add_bos_token");
    TRY(config_token(l, "bos_token", &t->bos));
    TRY(config_token(l, "eos_token", &t->eos));
    TRY(config_token(l, "unk_token", &t->unk));
    TRY(config_token(l, "pad_token", &t->pad));
    l->path = l->from[TOKENIZER_CONFIG].name;
    bool bos, eos, split;
    TRY(load_bool(l, config, "tokenizer_config", "split_special_tokens", false, &split));
    if (split)
        return REFUSE(l, "split_special_tokens is true: special tokens in a text would be "
                         "ordinary text, chat templates' own included; only false is supported");
    if ((!add_bos && !json_get(config, "add_eos_token")) || !frames_itself(l))
        return ERR_OK;
    TRY(load_bool(l, config, "tokenizer_config", "add_bos_token", !add_bos, &bos));
    TRY(load_bool(l, config, "tokenizer_config", "add_eos_token", false, &eos));
    t->before_n = bos && t->bos.n;
    t->behind_n = eos && t->eos.n;
    t->before[0] = vocab_find(&t->bpe.vocab, t->bos);
    t->behind[0] = vocab_find(&t->bpe.vocab, t->eos);
    return ERR_OK;
}

/* --- the file ------------------------------------------------------------------------------- */

static enum err parts(struct loader *l, const struct json *root)
{
    static const struct json none = {.type = JSON_ARRAY};
    const struct json *model = json_get(root, "model"), *added = json_get(root, "added_tokens");
    struct str version;
    TRY(load_str(l, root, "tokenizer", "version", &version));
    if (!str_is(version, "1.0"))
        return REFUSE(l, "version is \"%.*s\"; only \"1.0\" is supported", STR_ARG(version));
    if (!model || model->type != JSON_OBJECT)
        return REFUSE(l, "model must be an object, not %s", json_type_name(model));
    if (!added || added->type == JSON_NULL)
        added = &none;
    if (added->type != JSON_ARRAY)
        return REFUSE(l, "added_tokens must be an array, not %s", json_type_name(added));
    TRY(model_options(l, model));
    TRY(model_vocab(l, model, added));
    TRY(model_merges(l, model));
    TRY(load_normalizer(l, json_get(root, "normalizer"), 0));
    TRY(added_tokens(l, added));
    TRY(load_pre_tokenizer(l, json_get(root, "pre_tokenizer"), 0));
    TRY(load_decoder(l, json_get(root, "decoder")));
    return load_post_processor(l, json_get(root, "post_processor"), 0);
}

enum err tokenizer_parse(struct arena *keep, struct arena *scratch,
                         const struct tokenizer_source from[TOKENIZER_FILES],
                         struct tokenizer **out, struct err_text *e)
{
    struct loader l = {.keep = keep, .scratch = scratch, .from = from, .e = e};
    const struct json *root = NULL;
    TRY(read_object(&l, TOKENIZER_JSON, &root));
    l.t = ARENA_NEW(keep, struct tokenizer, 1);
    if (!l.t)
        return load_full(&l, keep);
    l.t->bos = l.t->eos = l.t->unk = l.t->pad = (struct str){"", 0};
    TRY(config_read(&l));
    l.path = from[TOKENIZER_JSON].name;
    TRY(parts(&l, root));
    TRY(config_apply(&l));
    *out = l.t;
    return ERR_OK;
}

enum err tokenizer_load(struct arena *keep, struct arena *scratch, const char *dir,
                        struct tokenizer **out, struct err_text *e)
{
    static const char *const names[TOKENIZER_FILES] = {
        [TOKENIZER_JSON] = "tokenizer.json",
        [TOKENIZER_CONFIG] = "tokenizer_config.json",
        [TOKENIZER_MAP] = "special_tokens_map.json",
    };
    char path[TOKENIZER_FILES][LIMIT_PATH_BYTES];
    size_t mark = scratch->used_bytes;
    struct tokenizer_source from[TOKENIZER_FILES];
    for (u32 i = 0; i < TOKENIZER_FILES; i++) {
        const size_t most =
            i == TOKENIZER_JSON ? LIMIT_TOKENIZER_FILE_BYTES : LIMIT_CONFIG_FILE_BYTES;
        TRY(file_path(path[i], dir, str_of(names[i]), e));
        from[i] = (struct tokenizer_source){.name = path[i]};
        if (i == TOKENIZER_JSON || file_exists(path[i]))
            TRY(file_read(scratch, path[i], most, ERR_MODEL, &from[i].text, e));
    }
    TRY(tokenizer_parse(keep, scratch, from, out, e));
    arena_reset(scratch, mark);
    return ERR_OK;
}
