#include "core/model/pooling.h"

#include "core/base/file.h"
#include "core/model/fields.h"

struct reader {
    struct arena *scratch;
    const char *dir;
    char path[LIMIT_PATH_BYTES];
    struct err_text *e;
};

/* A small JSON file of the folder; *root NULL: it is not there. */
static enum err read_file(struct reader *r, const char *name, const struct json **root)
{
    struct str text;
    *root = NULL;
    TRY(file_path(r->path, r->dir, str_of(name), r->e));
    if (!file_exists(r->path))
        return ERR_OK;
    TRY(file_read(r->scratch, r->path, LIMIT_CONFIG_FILE_BYTES, ERR_MODEL, &text, r->e));
    return json_parse(r->scratch, text, r->path, ERR_MODEL, root, r->e);
}

/* Writers up to version 5 have a flag a way of pooling, of which several can be true; later ones
 * a name, or a list of them. */
static enum err check_pooling(struct reader *r, const struct json *root)
{
    const struct str prefix = STR("pooling_mode_");
    const struct json *mode = json_get(root, "pooling_mode");
    struct str found = STR("mean tokens"); /* of a file that says nothing */
    u32 n = 0;
    if (mode && mode->type == JSON_ARRAY && mode->n == 1)
        mode = mode->child;
    if (mode)
        found = mode->type == JSON_STRING ? mode->text : STR("no single one");
    for (const struct json *v = root->child; v && !mode; v = v->next) {
        if (!str_starts(v->key, prefix) || v->type != JSON_TRUE)
            continue;
        found = n++ ? STR("no single one") : (struct str){v->key.p + prefix.n, v->key.n - prefix.n};
    }
    if (str_is(found, "lasttoken"))
        return ERR_OK;
    return err_set(r->e, ERR_MODEL,
                   "%s: the pooling is %.*s; an embedding is made of the last token here "
                   "(lasttoken), or not at all",
                   r->path, STR_ARG(found));
}

/* The name of a module's class, without where it lies: that differs between versions. */
static struct str class_of(const struct json *module)
{
    const struct json *type = json_get(module, "type");
    struct str s = type && type->type == JSON_STRING ? type->text : STR("");
    const char *dot = memrchr(s.p, '.', s.n);
    return dot ? (struct str){dot + 1, s.n - (size_t)(dot + 1 - s.p)} : s;
}

/* Transformer, Pooling, and Normalize or not. */
static enum err check_modules(struct reader *r, const struct json *root, bool *raw)
{
    static const char *const wanted[] = {"Transformer", "Pooling", "Normalize"};
    const struct json *v = root->child;
    if (root->type != JSON_ARRAY || root->n > LIMIT_MODULES)
        return err_set(r->e, ERR_MODEL, "%s: a list of at most %u modules is expected", r->path,
                       LIMIT_MODULES);
    for (u32 i = 0; i < MAX(root->n, 2u); i++, v = v->next) {
        struct str class = v ? class_of(v) : STR("nothing");
        if (i >= COUNTOF(wanted) || !str_is(class, wanted[i]))
            return err_set(r->e, ERR_MODEL,
                           "%s: module %u is %.*s; Transformer, Pooling and Normalize are "
                           "supported, in this order",
                           r->path, i, STR_ARG(class));
    }
    *raw = root->n < COUNTOF(wanted);
    return ERR_OK;
}

static enum err check_folder(struct reader *r, struct embedding *out, bool *pools)
{
    const struct json *root;
    TRY(read_file(r, "modules.json", &root));
    *pools = file_exists(r->path);
    if (root)
        TRY(check_modules(r, root, &out->raw));
    TRY(read_file(r, "1_Pooling/config.json", &root));
    if (root)
        TRY(check_pooling(r, root));
    else if (*pools)
        return err_set(r->e, ERR_MODEL, "%s is missing, which modules.json needs", r->path);
    TRY(read_file(r, "sentence_bert_config.json", &root));
    const struct json *lower = json_get(root, "do_lower_case");
    if (lower && lower->type == JSON_TRUE)
        return err_set(r->e, ERR_MODEL, "%s: do_lower_case is not supported", r->path);
    return ERR_OK;
}

enum err pooling_read(struct arena *keep, struct arena *scratch, const char *dir,
                      struct embedding *out, bool *pools, struct err_text *e)
{
    size_t mark = scratch->used_bytes;
    struct err_text why = {0};
    struct reader r = {.scratch = scratch, .dir = dir, .e = &why};
    enum err code = check_folder(&r, out, pools);
    arena_reset(scratch, mark);
    if (code == ERR_OK || out->refused)
        return ERR_OK;
    out->refused = arena_str(keep, str_of(why.text)).p;
    return out->refused ? ERR_OK : arena_full(keep, dir, e);
}
