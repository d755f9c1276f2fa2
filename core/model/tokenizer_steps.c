#include "core/model/tokenizer_load.h"
#include "core/model/unicode.h"

static bool absent(const struct json *v)
{
    return !v || v->type == JSON_NULL;
}

/* Runs `each` over the members of a Sequence. */
static enum err sequence(struct loader *l, const struct json *v, const char *where, const char *key,
                         u32 depth, enum err (*each)(struct loader *, const struct json *, u32))
{
    const struct json *list;
    TRY(load_list(l, v, where, key, &list));
    if (depth >= 4)
        return REFUSE(l, "%s: Sequences are nested too deep", where);
    for (const struct json *m = list->child; m; m = m->next)
        TRY(each(l, m, depth + 1));
    return ERR_OK;
}

static enum err too_many(struct loader *l, const char *where)
{
    return REFUSE(l, "%s has more than %d steps", where, STEPS_MAX);
}

/* {"String": "..."}; a Regex is refused with its text. */
static enum err literal(struct loader *l, const struct json *v, const char *where, struct str *out)
{
    const struct json *pattern = json_get(v, "pattern");
    const struct json *regex = json_get(pattern, "Regex");
    if (regex)
        return REFUSE(l, "%s.pattern: this regular expression is not supported here: %.*s", where,
                      STR_ARG(regex->text));
    TRY(load_str(l, pattern, where, "String", out));
    if (out->n == 0)
        return REFUSE(l, "%s.pattern.String is empty", where);
    return load_keep(l, *out, out);
}

/* --- normalizer ----------------------------------------------------------------------------- */

enum err load_normalizer(struct loader *l, const struct json *v, u32 depth)
{
    struct tokenizer *t = l->t;
    struct str type;
    if (absent(v))
        return ERR_OK;
    TRY(load_str(l, v, "normalizer", "type", &type));
    if (str_is(type, "Sequence"))
        return sequence(l, v, "normalizer", "normalizers", depth, load_normalizer);
    if (t->normal_n == STEPS_MAX)
        return too_many(l, "normalizer");
    struct normal_step s = {0};
    if (str_is(type, "NFC")) {
        s.kind = NORMAL_NFC;
    } else if (str_is(type, "Prepend")) {
        s.kind = NORMAL_PREPEND;
        TRY(load_str(l, v, "normalizer", "prepend", &s.content));
        TRY(load_keep(l, s.content, &s.content));
    } else if (str_is(type, "Replace")) {
        s.kind = NORMAL_REPLACE;
        TRY(literal(l, v, "normalizer", &s.pattern));
        TRY(load_str(l, v, "normalizer", "content", &s.content));
        TRY(load_keep(l, s.content, &s.content));
    } else {
        return REFUSE(l,
                      "normalizer \"%.*s\" is not supported (NFC, Prepend, Replace and Sequence "
                      "are)",
                      STR_ARG(type));
    }
    if (s.content.n > LIMIT_TOKEN_BYTES)
        return REFUSE(l,
                      "normalizer puts %zu bytes in; the limit is %d (LIMIT_TOKEN_BYTES in "
                      "config/limits.h)",
                      s.content.n, LIMIT_TOKEN_BYTES);
    t->normal[t->normal_n++] = s;
    return ERR_OK;
}

/* --- pre-tokenizer -------------------------------------------------------------------------- */

static enum err pre_behavior(struct loader *l, const struct json *v, enum behavior *out)
{
    static const char *const names[] = {
        [ISOLATED] = "Isolated",
        [REMOVED] = "Removed",
        [CONTIGUOUS] = "Contiguous",
        [MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [MERGED_WITH_NEXT] = "MergedWithNext",
    };
    struct str name;
    TRY(load_str(l, v, "pre_tokenizer", "behavior", &name));
    for (u32 i = 0; i < COUNTOF(names); i++)
        if (str_is(name, names[i])) {
            *out = (enum behavior)i;
            return ERR_OK;
        }
    return REFUSE(l, "pre_tokenizer.behavior \"%.*s\" is not known", STR_ARG(name));
}

/* A regular expression that matches text: with \ in front of all that could mean something. */
static enum err escaped(struct loader *l, struct str text, struct str *out)
{
    char *p = ARENA_NEW(l->scratch, char, 2 * text.n);
    if (!p)
        return load_full(l, l->scratch);
    *out = (struct str){p, 0};
    for (size_t i = 0; i < text.n; i++) {
        if (strchr("\\.+*?()|[]{}^$#&-~", text.p[i]) && text.p[i])
            p[out->n++] = '\\';
        p[out->n++] = text.p[i];
    }
    return ERR_OK;
}

static enum err pre_pattern(struct loader *l, struct str regex, struct pre_step *s)
{
    s->kind = PRE_SPLIT;
    return split_compile(l->keep, regex, l->path, &s->split, l->e);
}

static enum err pre_split(struct loader *l, const struct json *v, struct pre_step *s)
{
    const struct json *pattern = json_get(v, "pattern"), *regex = json_get(pattern, "Regex");
    struct str text;
    TRY(load_bool(l, v, "pre_tokenizer", "invert", false, &s->invert));
    TRY(pre_behavior(l, v, &s->behavior));
    if (regex) {
        TRY(load_str(l, pattern, "pre_tokenizer.pattern", "Regex", &text));
    } else {
        TRY(literal(l, v, "pre_tokenizer", &text));
        TRY(escaped(l, text, &text));
    }
    return pre_pattern(l, text, s);
}

/* Metaspace of a pre-tokenizer or a decoder: its mark and when it is prepended. */
static enum err metaspace(struct loader *l, const struct json *v, const char *where,
                          struct str *mark, enum prepend *prepend)
{
    const struct json *scheme = json_get(v, "prepend_scheme");
    bool prefix;
    u32 cp;
    TRY(load_str(l, v, where, "replacement", mark));
    if (mark->n == 0 || unicode_next(mark->p, &cp) != mark->n)
        return REFUSE(l, "%s.replacement must be one character", where);
    TRY(load_keep(l, *mark, mark));
    *prepend = PREPEND_ALWAYS;
    if (scheme && (scheme->type != JSON_STRING ||
                   !(str_is(scheme->text, "always") || str_is(scheme->text, "first") ||
                     str_is(scheme->text, "never"))))
        return REFUSE(l, "%s.prepend_scheme must be always, first or never", where);
    if (scheme && !str_is(scheme->text, "always"))
        *prepend = str_is(scheme->text, "first") ? PREPEND_FIRST : PREPEND_NEVER;
    TRY(load_bool(l, v, where, "add_prefix_space", true, &prefix));
    if (!prefix && *prepend != PREPEND_NEVER)
        return REFUSE(l, "%s: add_prefix_space is false, but prepend_scheme is not never", where);
    return ERR_OK;
}

static enum err pre_bytes(struct loader *l, const struct json *v, struct pre_step *s)
{
    bool prefix, regex;
    TRY(load_bool(l, v, "pre_tokenizer", "add_prefix_space", true, &prefix));
    TRY(load_bool(l, v, "pre_tokenizer", "use_regex", true, &regex));
    s->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (regex)
        TRY(pre_pattern(l, STR(SPLIT_GPT2), s));
    s->kind = PRE_BYTES;
    return ERR_OK;
}

enum err load_pre_tokenizer(struct loader *l, const struct json *v, u32 depth)
{
    struct tokenizer *t = l->t;
    struct str type;
    if (absent(v))
        return ERR_OK;
    TRY(load_str(l, v, "pre_tokenizer", "type", &type));
    if (str_is(type, "Sequence"))
        return sequence(l, v, "pre_tokenizer", "pretokenizers", depth, load_pre_tokenizer);
    if (t->pre_n == STEPS_MAX)
        return too_many(l, "pre_tokenizer");
    struct pre_step s = {0};
    if (str_is(type, "Split")) {
        TRY(pre_split(l, v, &s));
    } else if (str_is(type, "ByteLevel")) {
        TRY(pre_bytes(l, v, &s));
    } else if (str_is(type, "Digits")) {
        bool each;
        TRY(load_bool(l, v, "pre_tokenizer", "individual_digits", false, &each));
        s.behavior = each ? ISOLATED : CONTIGUOUS;
        TRY(pre_pattern(l, STR(SPLIT_DIGIT), &s));
    } else if (str_is(type, "Punctuation")) {
        if (json_get(v, "behavior"))
            TRY(pre_behavior(l, v, &s.behavior));
        TRY(pre_pattern(l, STR(SPLIT_PUNCTUATION), &s));
    } else if (str_is(type, "Metaspace")) {
        s.kind = PRE_METASPACE;
        TRY(load_bool(l, v, "pre_tokenizer", "split", true, &s.each));
        TRY(metaspace(l, v, "pre_tokenizer", &s.mark, &s.prepend));
    } else {
        return REFUSE(l,
                      "pre_tokenizer \"%.*s\" is not supported (Split, ByteLevel, Digits, "
                      "Punctuation, Metaspace and Sequence are)",
                      STR_ARG(type));
    }
    for (u32 i = 0; i < t->pre_n; i++) /* one rewriting step: the work memory counts on it */
        if ((s.kind == PRE_BYTES || s.kind == PRE_METASPACE) &&
            (t->pre[i].kind == PRE_BYTES || t->pre[i].kind == PRE_METASPACE))
            return REFUSE(l, "pre_tokenizer: ByteLevel and Metaspace can stand only once");
    t->pre[t->pre_n++] = s;
    return ERR_OK;
}

/* --- decoder -------------------------------------------------------------------------------- */

/* A chain is [Replace | Metaspace]* ByteFallback? Fuse? Strip?; what stands out of this order is
 * refused. */
enum chain_stage { CHAIN_TOKENS, CHAIN_FALLBACK, CHAIN_FUSE, CHAIN_STRIP };

static enum err chain_tokens(struct loader *l, const struct json *v, struct str type)
{
    struct tokenizer *t = l->t;
    struct token_step s = {.content = STR(" ")};
    if (t->tokens_n == STEPS_MAX)
        return too_many(l, "decoder");
    if (str_is(type, "Metaspace")) {
        enum prepend prepend;
        TRY(metaspace(l, v, "decoder", &s.pattern, &prepend));
        s.not_in_first = prepend != PREPEND_NEVER;
    } else {
        TRY(literal(l, v, "decoder", &s.pattern));
        TRY(load_str(l, v, "decoder", "content", &s.content));
        TRY(load_keep(l, s.content, &s.content));
    }
    if (s.content.n > s.pattern.n)
        return REFUSE(l, "decoder: Replace makes \"%.*s\" longer, which is not supported",
                      STR_ARG(s.pattern));
    t->tokens[t->tokens_n++] = s;
    return ERR_OK;
}

static enum err chain_strip(struct loader *l, const struct json *v)
{
    struct tokenizer *t = l->t;
    struct str content;
    u64 start, stop;
    u32 cp;
    TRY(load_str(l, v, "decoder", "content", &content));
    if (content.n == 0 || unicode_next(content.p, &cp) != content.n)
        return REFUSE(l, "decoder: Strip.content must be one character");
    if (!json_u64(json_get(v, "start"), &start) || start > LIMIT_TOKEN_BYTES)
        return REFUSE(l, "decoder: Strip.start must be a number of 0 to %d", LIMIT_TOKEN_BYTES);
    if (!json_u64(json_get(v, "stop"), &stop) || stop != 0)
        return REFUSE(l, "decoder: Strip.stop must be 0: a stream cannot take back its end");
    memcpy(t->strip, content.p, content.n);
    t->strip_n = (u32)content.n;
    t->strip_max = (u32)start;
    return ERR_OK;
}

static enum err chain_step(struct loader *l, const struct json *v, enum chain_stage *stage)
{
    struct str type;
    enum chain_stage now;
    TRY(load_str(l, v, "decoder", "type", &type));
    if (str_is(type, "Replace") || str_is(type, "Metaspace"))
        now = CHAIN_TOKENS;
    else if (str_is(type, "ByteFallback"))
        now = CHAIN_FALLBACK;
    else if (str_is(type, "Fuse"))
        now = CHAIN_FUSE;
    else if (str_is(type, "Strip"))
        now = CHAIN_STRIP;
    else
        return REFUSE(l,
                      "decoder \"%.*s\" is not supported (ByteLevel, or a Sequence of Replace, "
                      "Metaspace, ByteFallback, Fuse and Strip is)",
                      STR_ARG(type));
    if (now < *stage || (now == *stage && now != CHAIN_TOKENS) ||
        (now == CHAIN_STRIP && *stage != CHAIN_FUSE))
        return REFUSE(l, "decoder: \"%.*s\" is not supported at this place of the Sequence",
                      STR_ARG(type));
    *stage = now;
    l->t->byte_fallback |= now == CHAIN_FALLBACK;
    if (now == CHAIN_TOKENS)
        return chain_tokens(l, v, type);
    return now == CHAIN_STRIP ? chain_strip(l, v) : ERR_OK;
}

enum err load_decoder(struct loader *l, const struct json *v)
{
    struct tokenizer *t = l->t;
    enum chain_stage stage = CHAIN_TOKENS;
    struct str type;
    t->decode = DECODE_JOIN;
    if (absent(v))
        return ERR_OK;
    TRY(load_str(l, v, "decoder", "type", &type));
    t->decode = DECODE_CHAIN;
    const struct json *list = NULL;
    if (str_is(type, "Sequence")) {
        TRY(load_list(l, v, "decoder", "decoders", &list));
        if (list->n == 1) /* a chain of one */
            TRY(load_str(l, v = list->child, "decoder", "type", &type));
    }
    if (str_is(type, "ByteLevel")) {
        t->decode = DECODE_BYTES;
        return ERR_OK;
    }
    if (!list)
        return chain_step(l, v, &stage);
    for (const struct json *m = list->child; m; m = m->next)
        TRY(chain_step(l, m, &stage));
    return ERR_OK;
}

/* --- post-processor ------------------------------------------------------------------------- */

/* Appends the ids that special_tokens has for a name. */
static enum err frame_add(struct loader *l, const struct json *processor, struct str name, u32 *ids,
                          u32 *n)
{
    const struct json *list = NULL, *all = json_get(processor, "special_tokens");
    for (const struct json *m = all && all->type == JSON_OBJECT ? all->child : NULL; m; m = m->next)
        if (str_eq(m->key, name))
            list = json_get(m, "ids");
    if (!list || list->type != JSON_ARRAY)
        return REFUSE(l, "post_processor.special_tokens has no ids for \"%.*s\"", STR_ARG(name));
    for (const struct json *m = list->child; m; m = m->next) {
        u64 id;
        if (!json_u64(m, &id) || id >= l->t->bpe.vocab.n)
            return REFUSE(l,
                          "post_processor.special_tokens[\"%.*s\"].ids: %.*s is no token (0 to "
                          "%u are)",
                          STR_ARG(name), STR_ARG(m->text), l->t->bpe.vocab.n - 1);
        if (*n == FRAME_MAX)
            return REFUSE(l, "post_processor puts more than %d tokens on one side", FRAME_MAX);
        ids[(*n)++] = (u32)id;
    }
    return ERR_OK;
}

/* The template of a single text: ids before it, the text ("A") once, ids behind it. They go around
 * what an earlier processor of the same Sequence has put there. */
static enum err frame(struct loader *l, const struct json *v)
{
    struct tokenizer *t = l->t;
    const struct json *single;
    u32 before[FRAME_MAX], before_n = 0, texts = 0;
    TRY(load_list(l, v, "post_processor", "single", &single));
    for (const struct json *m = single->child; m; m = m->next) {
        const struct json *special = json_get(m, "SpecialToken"), *text = json_get(m, "Sequence");
        struct str id;
        TRY(load_str(l, special ? special : text, "post_processor.single[]", "id", &id));
        if (special && texts)
            TRY(frame_add(l, v, id, t->behind, &t->behind_n));
        else if (special)
            TRY(frame_add(l, v, id, before, &before_n));
        else if (!str_is(id, "A") || texts++)
            return REFUSE(l, "post_processor.single must name the sequence \"A\" exactly once");
    }
    if (texts != 1)
        return REFUSE(l, "post_processor.single must name the sequence \"A\" exactly once");
    if (before_n + t->before_n > FRAME_MAX)
        return REFUSE(l, "post_processor puts more than %d tokens on one side", FRAME_MAX);
    memmove(t->before + before_n, t->before, t->before_n * sizeof *t->before);
    memcpy(t->before, before, before_n * sizeof *before);
    t->before_n += before_n;
    return ERR_OK;
}

enum err load_post_processor(struct loader *l, const struct json *v, u32 depth)
{
    struct str type;
    if (absent(v))
        return ERR_OK;
    TRY(load_str(l, v, "post_processor", "type", &type));
    if (str_is(type, "Sequence"))
        return sequence(l, v, "post_processor", "processors", depth, load_post_processor);
    if (str_is(type, "ByteLevel"))
        return ERR_OK; /* moves offsets only */
    if (str_is(type, "TemplateProcessing"))
        return frame(l, v);
    return REFUSE(l,
                  "post_processor \"%.*s\" is not supported (TemplateProcessing, ByteLevel and "
                  "Sequence are)",
                  STR_ARG(type));
}
