#include "core/model/model.h"

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/model/bind.h"
#include "core/model/pooling.h"
#include "core/model/quant.h"
#include "core/model/safetensors.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- small files ------------------------------------------------------------------------------ */

static enum err read_text(struct opening *o, const char *path, struct str *text)
{
    return file_read(o->scratch, path, LIMIT_CONFIG_FILE_BYTES, ERR_MODEL, text, o->e);
}

static enum err read_main_config(struct opening *o)
{
    char path[LIMIT_PATH_BYTES];
    struct str text;
    TRY(file_path(path, o->dir, STR("config.json"), o->e));
    TRY(read_text(o, path, &text));
    return config_parse(o->keep, o->scratch, text, path, o->m, &o->config, o->e);
}

static enum err read_quant_config(struct opening *o, const char *name)
{
    char path[LIMIT_PATH_BYTES];
    struct str text;
    TRY(file_path(path, o->dir, str_of(name), o->e));
    if (o->config.quant.method != QUANT_NONE || !file_exists(path))
        return ERR_OK;
    TRY(read_text(o, path, &text));
    return config_quant_parse(o->scratch, text, path, &o->config.quant, o->e);
}

static enum err read_optional(struct opening *o, const char *name, size_t max_bytes,
                              enum err (*parse)(struct arena *, struct str, const char *,
                                                struct model *, struct err_text *))
{
    char path[LIMIT_PATH_BYTES];
    struct str text;
    TRY(file_path(path, o->dir, str_of(name), o->e));
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(o->scratch, path, max_bytes, ERR_MODEL, &text, o->e));
    return parse(o->scratch, text, path, o->m, o->e);
}

/* --- weight files ----------------------------------------------------------------------------- */

static enum err add_file(struct opening *o, struct str name)
{
    char path[LIMIT_PATH_BYTES];
    TRY(file_path(path, o->dir, name, o->e));
    struct str kept = arena_str(o->keep, str_of(path)), *file = &o->m->files[o->m->files_n];
    if (!kept.p)
        return arena_full(o->keep, path, o->e);
    TRY(file_map(kept.p, ERR_MODEL, file, o->e));
    o->m->paths[o->m->files_n++] = kept.p;
    o->m->file_bytes += file->n;
    return safetensors_parse(&o->tensors, o->scratch, *file, kept.p, o->e);
}

/* A name inside the folder and nothing else: shard names are hostile. */
static bool plain_name(struct str s)
{
    if (s.n == 0 || s.n > 200 || s.p[0] == '.' || !str_ends(s, STR(".safetensors")))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if ((u8)s.p[i] <= 0x20 || (u8)s.p[i] >= 0x7f || s.p[i] == '/' || s.p[i] == '\\')
            return false;
    return true;
}

static int by_text(const void *a, const void *b)
{
    const struct str *x = &(*(const struct json *const *)a)->text;
    const struct str *y = &(*(const struct json *const *)b)->text;
    int c = memcmp(x->p, y->p, MIN(x->n, y->n));
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* The members of weight_map sorted by shard name, each name checked. */
static enum err sort_map(struct opening *o, const char *path, const struct json *map,
                         const struct json ***out)
{
    const struct json **v = ARENA_NEW(o->scratch, const struct json *, map->n);
    u32 n = 0;
    if (!v)
        return arena_full(o->scratch, path, o->e);
    for (const struct json *m = map->child; m; m = m->next) {
        if (m->type != JSON_STRING || !plain_name(m->text))
            return err_set(o->e, ERR_MODEL,
                           "%s: weight_map sends \"%.*s\" to \"%.*s\", which is no name of a "
                           ".safetensors file in this folder",
                           path, STR_ARG(m->key), STR_ARG(m->text));
        v[n++] = m;
    }
    qsort(v, n, sizeof *v, by_text);
    *out = v;
    return ERR_OK;
}

static enum err check_mapped(struct opening *o, const char *path, const struct json *map)
{
    for (const struct json *m = map->child; m; m = m->next) {
        const struct tensor *t =
            memchr(m->key.p, 0, m->key.n) ? NULL : tensors_find(&o->tensors, m->key.p);
        if (!t || !str_eq(str_of(strrchr(t->file, '/') + 1), m->text))
            return err_set(o->e, ERR_MODEL, "%s: weight_map: tensor \"%.*s\" is not in %.*s", path,
                           STR_ARG(m->key), STR_ARG(m->text));
    }
    return ERR_OK;
}

static enum err open_shards(struct opening *o, const char *path)
{
    struct str text;
    const struct json *root, *map, **sorted;
    TRY(file_read(o->scratch, path, LIMIT_SAFETENSORS_HEADER_BYTES, ERR_MODEL, &text, o->e));
    TRY(json_parse(o->scratch, text, path, ERR_MODEL, &root, o->e));
    map = json_get(root, "weight_map");
    if (!map || map->type != JSON_OBJECT || map->n == 0 || map->n > LIMIT_TENSORS)
        return err_set(o->e, ERR_MODEL,
                       "%s: weight_map must be an object with 1 to %u tensors (LIMIT_TENSORS in "
                       "config/limits.h)",
                       path, LIMIT_TENSORS);
    TRY(sort_map(o, path, map, &sorted));
    for (u32 i = 0; i < map->n; i++) {
        if (i && str_eq(sorted[i]->text, sorted[i - 1]->text))
            continue;
        if (o->m->files_n == LIMIT_SHARDS)
            return err_set(o->e, ERR_MODEL,
                           "%s: more than %d files (LIMIT_SHARDS in "
                           "config/limits.h)",
                           path, LIMIT_SHARDS);
        TRY(add_file(o, sorted[i]->text));
    }
    TRY(tensors_index(&o->tensors, o->e));
    return check_mapped(o, path, map);
}

struct lone {
    u32 n;
    char name[NAME_MAX + 1];
};

static void count_weights(const char *name, void *arg)
{
    struct lone *lone = arg;
    if (plain_name(str_of(name)) && ++lone->n == 1)
        snprintf(lone->name, sizeof lone->name, "%s", name);
}

/* The one file of weights in a folder without the usual names: "gptq_model-4bit-128g.safetensors"
 * and the like, as AutoGPTQ had them. */
static enum err open_lone(struct opening *o)
{
    struct lone lone = {0};
    file_names(o->dir, count_weights, &lone);
    if (lone.n == 1) {
        TRY(add_file(o, str_of(lone.name)));
        return tensors_index(&o->tensors, o->e);
    }
    if (lone.n)
        return err_set(o->e, ERR_MODEL,
                       "%s holds %u .safetensors files, but neither model.safetensors nor "
                       "model.safetensors.index.json, which tells what is in which; get that as "
                       "well, or leave one file",
                       o->dir, lone.n);
    return err_set(o->e, ERR_MODEL,
                   "%s holds neither model.safetensors nor model.safetensors.index.json; weights "
                   "in other files (.bin, .gguf) must be converted to safetensors first",
                   o->dir);
}

static enum err open_weights(struct opening *o)
{
    char single[LIMIT_PATH_BYTES], index[LIMIT_PATH_BYTES];
    TRY(file_path(single, o->dir, STR("model.safetensors"), o->e));
    TRY(file_path(index, o->dir, STR("model.safetensors.index.json"), o->e));
    TRY(tensors_init(&o->tensors, o->keep, o->scratch, o->e));
    o->m->files = ARENA_NEW(o->keep, struct str, LIMIT_SHARDS);
    o->m->paths = ARENA_NEW(o->keep, const char *, LIMIT_SHARDS);
    if (!o->m->files || !o->m->paths)
        return arena_full(o->keep, o->dir, o->e);
    if (file_exists(single)) {
        TRY(add_file(o, STR("model.safetensors")));
        return tensors_index(&o->tensors, o->e);
    }
    if (file_exists(index))
        return open_shards(o, index);
    return open_lone(o);
}

static bool is_text_part(struct str name)
{
    return str_starts(name, STR("model.layers.")) || str_starts(name, STR("model.norm.")) ||
           str_starts(name, STR("model.embed_tokens."));
}

/* The language model of one that sees under the names it has alone: its tensors are called
 * language_model.model.X and language_model.lm_head.X, or model.language_model.X and lm_head.X, by
 * the version that wrote them, or as they are where what sees is called visual.X. Those of the rest
 * get names that nobody asks for. */
static enum err name_text_part(struct opening *o)
{
    static const char *const cuts[] = {"language_model.", "model.language_", "model."};
    for (u32 i = 0; i < o->tensors.n; i++) {
        struct str *name = &o->tensors.v[i]->name;
        u32 c = is_text_part(*name) ? COUNTOF(cuts) : 0;
        while (c < COUNTOF(cuts) && !str_starts(*name, str_of(cuts[c])))
            c++;
        size_t n = c < COUNTOF(cuts) ? strlen(cuts[c]) : 0;
        *name = (struct str){name->p + n, name->n - n};
    }
    return tensors_index(&o->tensors, o->e);
}

static enum err name_after(struct opening *o, struct str prefix, struct str rest, struct str *out)
{
    char *to = arena_take(o->keep, prefix.n + rest.n, 1);
    if (!to)
        return arena_full(o->keep, o->dir, o->e);
    memcpy(to, prefix.p, prefix.n);
    memcpy(to + prefix.n, rest.p, rest.n);
    *out = (struct str){to, prefix.n + rest.n};
    return ERR_OK;
}

/* nemotron_h: published files say backbone.X for what transformers 5 calls model.X. */
static enum err name_backbone(struct opening *o)
{
    const struct str old = STR("backbone."), new = STR("model.");
    for (u32 i = 0; i < o->tensors.n; i++) {
        struct str *name = &o->tensors.v[i]->name;
        if (str_starts(*name, old))
            TRY(name_after(o, new, (struct str){name->p + old.n, name->n - old.n}, name));
    }
    return tensors_index(&o->tensors, o->e);
}

/* The bare class of a model, as embedding models are saved, gives its tensors no prefix. */
static enum err name_bare(struct opening *o)
{
    const char *embed = o->config.blocks ? "embeddings.weight" : "embed_tokens.weight";
    if (!tensors_find(&o->tensors, embed))
        return ERR_OK;
    for (u32 i = 0; i < o->tensors.n; i++) {
        struct str *name = &o->tensors.v[i]->name;
        TRY(name_after(o, STR("model."), *name, name));
    }
    return tensors_index(&o->tensors, o->e);
}

/* --- the folder ------------------------------------------------------------------------------- */

static struct str take_last(struct str *path)
{
    const char *slash = memrchr(path->p, '/', path->n);
    size_t before = slash ? (size_t)(slash - path->p) : 0;
    struct str last = {path->p + before + (slash != NULL), path->n - before - (slash != NULL)};
    path->n = before;
    return last;
}

/* The cache of Hugging Face's tools has Qwen/Qwen3-4B-AWQ as models--Qwen--Qwen3-4B-AWQ/snapshots/
 * and 40 hexadecimal digits, the revision: nobody would know that name. Changes `path` where it is
 * such a one. */
static bool hub_name(char *path, struct str *name, struct str *revision)
{
    struct str rest = str_of(path), last = take_last(&rest), middle = take_last(&rest);
    struct str repo = take_last(&rest), dashes = STR("--"), prefix = STR("models--");
    if (last.n != 40 || strspn(last.p, "0123456789abcdef") != 40 || !str_is(middle, "snapshots") ||
        !str_starts(repo, prefix) || repo.n == prefix.n)
        return false;
    char *at = path + (repo.p - path) + prefix.n, *end = path + (repo.p - path) + repo.n;
    char *between = memmem(at, (size_t)(end - at), dashes.p, dashes.n);
    if (between) { /* names themselves have no two dashes */
        *between = '/';
        memmove(between + 1, between + 2, (size_t)(end - between) - 2);
        end--;
    }
    *name = (struct str){at, (size_t)(end - at)};
    *revision = last;
    return true;
}

/* The folder's own name, also when it was given as "." or through a link. */
static struct str folder_name(const char *dir, char *real, size_t cap, struct str *revision)
{
    char link[64];
    struct str name;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, real, cap - 1);
    if (fd >= 0)
        close(fd);
    if (n > 0) {
        real[n] = 0;
        dir = real;
        if (hub_name(real, &name, revision))
            return name;
    }
    const char *slash = strrchr(dir, '/');
    return str_of(slash && slash[1] ? slash + 1 : dir);
}

static enum err name_model(struct opening *o)
{
    char real[LIMIT_PATH_BYTES], quant[64];
    struct str revision = {0};
    o->m->dir = str_of(o->dir);
    o->m->name = arena_str(o->keep, folder_name(o->dir, real, sizeof real, &revision));
    o->m->revision = arena_str(o->keep, revision);
    quant_describe(&o->config.quant, o->m->layers[0].o.type, quant, sizeof quant);
    o->m->quant = arena_str(o->keep, str_of(quant));
    if (!o->m->name.p || !o->m->revision.p || !o->m->quant.p)
        return arena_full(o->keep, o->dir, o->e);
    return ERR_OK;
}

static enum err open_folder(struct opening *o)
{
    TRY(read_main_config(o));
    TRY(read_quant_config(o, "quantize_config.json"));
    TRY(read_quant_config(o, "quant_config.json"));
    TRY(read_optional(o, "generation_config.json", LIMIT_CONFIG_FILE_BYTES,
                      config_generation_parse));
    TRY(read_optional(o, "tokenizer_config.json", LIMIT_CONFIG_FILE_BYTES, config_tokenizer_parse));
    TRY(open_weights(o));
    if (o->config.sees)
        TRY(name_text_part(o));
    if (o->config.blocks)
        TRY(name_backbone(o));
    TRY(name_bare(o));
    TRY(pooling_read(o->keep, o->scratch, o->dir, &o->m->embedding, &o->pools, o->e));
    TRY(bind_model(o));
    return name_model(o);
}

struct delta_place delta_place(const struct delta_shape *d, enum delta_part part)
{
    const u32 share = d->value_heads / d->key_heads, key = d->key_dim, value = share * d->value_dim;
    if (d->mamba) { /* z, v, k, q, a; b is not there */
        const u32 keys = d->key_heads * key, values = delta_values(d), v = values, k = 2 * values;
        const struct delta_place places[DELTA_PARTS] = {
            {k + keys, key}, {k, key}, {v, value}, {0, value}, {0, 0}, {k + 2 * keys, share}};
        return places[part];
    }
    const u32 sizes[DELTA_PARTS] = {key, key, value, value, share, share};
    const u32 first = part < DELTA_PART_B ? 0 : DELTA_PART_B,
              next = first ? DELTA_PARTS : DELTA_PART_B;
    const u32 before = first ? delta_channels(d) + delta_values(d) : 0;
    u32 at = 0, all = 0;
    for (u32 i = first; i < next; i++) {
        at += i < part ? sizes[i] : 0;
        all += sizes[i];
    }
    return d->joined ? (struct delta_place){before + at, all}
                     : (struct delta_place){before + at * d->key_heads, sizes[part]};
}

size_t model_state_bytes(const struct model *m)
{
    size_t floats = 0;
    for (u32 i = 0; i < m->layers_n; i++)
        floats += layer_state_floats(m, &m->layers[i]);
    return floats * sizeof(float);
}

u32 model_even_pos(const struct model *m)
{
    double products = 0, position = 0;
    for (u32 i = 0; i < m->layers_n; i++) {
        const struct layer *l = &m->layers[i];
        double mlp = l->mixture
                         ? (double)m->experts_used * m->expert_intermediate + m->shared_intermediate
                         : l->intermediate;
        double heads = layer_qkv_n(m, l) + (double)m->heads * l->head_dim;
        if (!l->delta && !layer_stores(m, l))
            heads = 2.0 * m->heads * l->head_dim;
        if (l->delta)
            heads = delta_row_n(&m->delta) + delta_values(&m->delta);
        if (l->conv)
            heads = 4.0 * m->hidden;
        products += m->hidden * (heads + (m->mlp_ungated ? 2 : 3) * mlp + 3.0 * m->own.n);
        position += l->window || !layer_attends(l) ? 0 : 2.0 * m->heads * l->head_dim;
    }
    return position > 0 ? (u32)MIN(MAX(products / position, 1.0), 1e9) : 0;
}

enum err model_open(struct arena *keep, struct arena *scratch, const char *dir, struct model **out,
                    struct err_text *e)
{
    size_t mark = scratch->used_bytes;
    struct str clean = arena_str(keep, str_of(dir));
    struct opening o = {.dir = clean.p, .keep = keep, .scratch = scratch, .e = e};
    while (clean.n > 1 && clean.p[clean.n - 1] == '/') /* "models/x/" is named "models/x" */
        ((char *)clean.p)[--clean.n] = 0;
    o.m = ARENA_NEW(keep, struct model, 1);
    enum err r = o.m && clean.p ? open_folder(&o) : arena_full(keep, dir, e);
    arena_reset(scratch, mark);
    *out = r == ERR_OK ? o.m : NULL;
    return r;
}

static void advise(struct str region, const char *at, size_t n, int advice)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (at < region.p || at + n > region.p + region.n)
        return;
    const size_t from = ROUND_UP((size_t)(at - region.p), page), end = (size_t)(at - region.p) + n;
    if (from < end - end % page)
        madvise((void *)(uintptr_t)(region.p + from), end - end % page - from, advice);
}

void model_advise(const struct model *m, const void *p, size_t n, int advice)
{
    for (u32 i = 0; i < m->files_n; i++)
        advise(m->files[i], p, n, advice);
    advise(m->made, p, n, advice);
}
