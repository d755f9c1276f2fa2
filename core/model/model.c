#include "core/model/model.h"

#include "core/base/file.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/model/config.h"
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

struct opening {
    const char *dir;
    struct arena *keep, *scratch;
    struct model *m;
    struct config config;
    struct tensors tensors;
    bool pools; /* the folder was made for embeddings */
    struct err_text *e;
};

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

/* The bare class of a model, as embedding models are saved, gives its tensors no prefix. */
static enum err name_bare(struct opening *o)
{
    const struct str prefix = STR("model.");
    if (!tensors_find(&o->tensors, "embed_tokens.weight"))
        return ERR_OK;
    for (u32 i = 0; i < o->tensors.n; i++) {
        struct str *name = &o->tensors.v[i]->name;
        char *to = arena_take(o->keep, prefix.n + name->n, 1);
        if (!to)
            return arena_full(o->keep, o->dir, o->e);
        memcpy(to, prefix.p, prefix.n);
        memcpy(to + prefix.n, name->p, name->n);
        *name = (struct str){to, prefix.n + name->n};
    }
    return tensors_index(&o->tensors, o->e);
}

/* --- binding ---------------------------------------------------------------------------------- */

/* The dot-terminated prefix of one layer's tensors. */
struct place_name {
    char text[96];
};

PRINTF_LIKE(2, 3) static const char *format(struct place_name *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(name->text, sizeof name->text, fmt, args);
    va_end(args);
    return name->text;
}

static bool module_stored(const struct opening *o, const char *module)
{
    static const char *const kinds[] = {"weight", "qweight", "weight_packed"};
    struct place_name s;
    for (size_t i = 0; i < COUNTOF(kinds); i++)
        if (tensors_find(&o->tensors, format(&s, "%s.%s", module, kinds[i])))
            return true;
    return false;
}

/* Phi-3 fuses q, k, v and gate, up; some quantizers (GPTQModel 7.7) write them apart. */
static void find_fused(struct opening *o)
{
    if (o->config.fused && module_stored(o, "model.layers.0.self_attn.q_proj"))
        o->m->n_qkv = 3;
    if (o->config.fused && module_stored(o, "model.layers.0.mlp.gate_proj"))
        o->m->n_gate_up = 2;
}

static enum err bind_norms(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[][4] = {
        [NORMS_BEFORE] = {"input", "post_attention", NULL, NULL},
        [NORMS_AFTER] = {NULL, NULL, "post_attention", "post_feedforward"},
        [NORMS_AROUND] = {"input", "pre_feedforward", "post_attention", "post_feedforward"},
        [NORMS_GLM] = {"input", "post_attention", "post_self_attn", "post_mlp"}};
    const struct tensor **norms[] = {&l->norm_attention, &l->norm_mlp, &l->norm_after_attention,
                                     &l->norm_after_mlp};
    struct place_name s;
    for (u32 j = 0; j < COUNTOF(norms); j++) {
        const char *name = names[o->config.norms][j];
        if (name)
            TRY(bind_vector(b, format(&s, "model.layers.%u.%s_layernorm.weight", i, name),
                            o->m->hidden, norms[j]));
    }
    if (o->m->qk_norm && !l->delta) {
        TRY(bind_vector(b, format(&s, "model.layers.%u.self_attn.q_norm.weight", i),
                        layer_qk_norm_n(o->m, l, o->m->heads), &l->norm_q));
        TRY(bind_vector(b, format(&s, "model.layers.%u.self_attn.k_norm.weight", l->kv_layer),
                        layer_qk_norm_n(o->m, l, l->kv_heads), &l->norm_k));
    }
    return ERR_OK;
}

static enum err bind_attention(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    struct place_name s;
    u32 hidden = o->m->hidden, out = o->m->heads * l->head_dim;
    u32 q = out * (1 + o->m->attention_gated), kv = l->kv_heads * l->head_dim;
    u32 matrices = !layer_stores(o->m, l) ? 1 : o->config.values_are_keys && !l->window ? 2 : 3;
    if (o->m->n_qkv == 1)
        TRY(bind_linear(b, format(&s, "model.layers.%u.self_attn.qkv_proj", i), q + 2 * kv, hidden,
                        o->config.qkv_bias, &l->qkv[0]));
    for (u32 j = 0; o->m->n_qkv == 3 && j < matrices; j++)
        TRY(bind_linear(b, format(&s, "model.layers.%u.self_attn.%s", i, names[j]), j ? kv : q,
                        hidden, o->config.qkv_bias, &l->qkv[j]));
    if (matrices == 2)
        l->qkv[2] = l->qkv[1];
    if (o->config.gpt_oss)
        TRY(bind_vector(b, format(&s, "model.layers.%u.self_attn.sinks", i), o->m->heads,
                        &l->sinks));
    return bind_linear(b, format(&s, "model.layers.%u.self_attn.o_proj", i), hidden, out,
                       o->config.o_bias, &l->o);
}

static enum err bind_delta(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    static const char *const names[][DELTA_INPUTS] = {
        {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}, {"in_proj_qkvz", "in_proj_ba"}};
    const struct delta_shape *d = &o->m->delta;
    struct delta_net *net = l->delta;
    struct place_name s;
    for (u32 j = 0; j < delta_inputs(d); j++)
        TRY(bind_linear(b, format(&s, "model.layers.%u.linear_attn.%s", i, names[d->joined][j]),
                        delta_outputs(d, j), o->m->hidden, false, &net->in[j]));
    TRY(bind_stack(b, format(&s, "model.layers.%u.linear_attn.conv1d.weight", i), delta_channels(d),
                   1, d->taps, &net->conv));
    TRY(bind_vector(b, format(&s, "model.layers.%u.linear_attn.A_log", i), d->value_heads,
                    &net->a_log));
    TRY(bind_vector(b, format(&s, "model.layers.%u.linear_attn.dt_bias", i), d->value_heads,
                    &net->dt_bias));
    TRY(bind_vector(b, format(&s, "model.layers.%u.linear_attn.norm.weight", i), d->value_dim,
                    &net->norm));
    return bind_linear(b, format(&s, "model.layers.%u.linear_attn.out_proj", i), o->m->hidden,
                       delta_values(d), false, &l->o);
}

/* The MLP whose modules are called model.layers.I.OF... */
static enum err bind_mlp(struct opening *o, struct binder *b, u32 i, const char *of, u32 wide,
                         struct layer *l)
{
    struct place_name s;
    u32 hidden = o->m->hidden;
    bool bias = o->config.mlp_bias;
    if (o->m->n_gate_up == 1) {
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.gate_up_proj", i, of), 2 * wide, hidden,
                        bias, &l->gate_up[0]));
    } else {
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.gate_proj", i, of), wide, hidden, bias,
                        &l->gate_up[0]));
        TRY(bind_linear(b, format(&s, "model.layers.%u.%s.up_proj", i, of), wide, hidden, bias,
                        &l->gate_up[1]));
    }
    return bind_linear(b, format(&s, "model.layers.%u.%s.down_proj", i, of), hidden, wide, bias,
                       &l->down);
}

/* How the modules of a mixture are called: `of` within the layer, then the router, gate, up and
 * down of an expert, and those of all experts joined (gate and up in one). Those of Mixtral come
 * mixed, too, as transformers 5 has other names in memory than in its files: GPTQModel writes the
 * first, llm-compressor the third. The last but one are gemma4's, the last granitemoe's. */
static const struct mixture_names {
    const char *of, *router, *leaf[3], *joined[2];
} mixture_names[] = {{"mlp.",
                      "gate",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"}},
                     {"block_sparse_moe.",
                      "gate",
                      {"w1", "w3", "w2"},
                      {"experts.gate_up_proj", "experts.down_proj"}},
                     {"block_sparse_moe.",
                      "gate",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"}},
                     {"",
                      "router.proj",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"experts.gate_up_proj", "experts.down_proj"}},
                     {"block_sparse_moe.",
                      "router.layer",
                      {"gate_proj", "up_proj", "down_proj"},
                      {"input_linear.weight", "output_linear.weight"}}};

/* The names that layer i has; where it has none, those of the family's files. */
static const struct mixture_names *find_names(const struct opening *o, u32 i)
{
    struct place_name s;
    const struct mixture_names *usual = &mixture_names[str_is(o->m->model_type, "mixtral")];
    if (str_is(o->m->model_type, "granitemoe"))
        return &mixture_names[COUNTOF(mixture_names) - 1];
    for (const struct mixture_names *m = mixture_names; m < mixture_names + COUNTOF(mixture_names);
         m++) {
        format(&s, "model.layers.%u.%sexperts.0.%s", i, m->of, m->leaf[2]);
        if (module_stored(o, s.text))
            return m;
        format(&s, "model.layers.%u.%s%s", i, m->of, m->joined[0]);
        if (tensors_find(&o->tensors, s.text))
            return m;
    }
    return usual;
}

/* n rows of a plain matrix or one of MXFP4, from `first` on, every one or every second. */
static struct weight rows_of(const struct weight *w, size_t first, u32 n, u32 step)
{
    const size_t value_bytes = w->kind == WEIGHT_PLAIN ? 2 * dtype_bytes(w->type) : 1;
    struct weight part = *w;
    part.data = (const u8 *)w->data + first * w->k * value_bytes / 2;
    part.n = n;
    if (w->kind == WEIGHT_PLAIN)
        return part;
    part.scales = (const u8 *)w->scales + first * w->groups;
    part.bias = (const u8 *)w->bias + first * dtype_bytes(w->bias_type);
    part.row_step = step;
    return part;
}

/* All experts of a layer in two tensors, [experts][gate, up][wide][hidden] and
 * [experts][hidden][wide]: as transformers 5 has them in memory, and saves them where it is told
 * not to keep to the usual form of files. */
static enum err bind_joined(struct opening *o, struct binder *b, u32 i,
                            const struct mixture_names *names, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    u32 wide = m->expert_intermediate;
    struct weight gate_up, down;
    TRY(bind_stack(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[0]),
                   m->experts, 2 * wide, m->hidden, &gate_up));
    TRY(bind_stack(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[1]),
                   m->experts, m->hidden, wide, &down));
    for (u32 e = 0; e < m->experts; e++) {
        for (u32 j = 0; j < 2; j++)
            x->experts[e].gate_up[j] = rows_of(&gate_up, (2 * (size_t)e + j) * wide, wide, 1);
        x->experts[e].down = rows_of(&down, (size_t)e * m->hidden, m->hidden, 1);
    }
    return ERR_OK;
}

/* gpt-oss: of each expert, gates and ups take turns. */
static enum err bind_gpt_oss(struct opening *o, struct binder *b, u32 i, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    u32 wide = m->expert_intermediate;
    struct weight gate_up, down;
    TRY(bind_linear(b, format(&s, "model.layers.%u.mlp.router", i), m->experts, m->hidden, true,
                    &x->router));
    TRY(bind_mxfp4(b, format(&s, "model.layers.%u.mlp.experts.gate_up_proj", i), m->experts,
                   2 * wide, m->hidden, &gate_up));
    TRY(bind_mxfp4(b, format(&s, "model.layers.%u.mlp.experts.down_proj", i), m->experts, m->hidden,
                   wide, &down));
    for (u32 e = 0; e < m->experts; e++) {
        for (u32 j = 0; j < 2; j++)
            x->experts[e].gate_up[j] = rows_of(&gate_up, 2 * (size_t)e * wide + j, wide, 2);
        x->experts[e].down = rows_of(&down, (size_t)e * m->hidden, m->hidden, 1);
    }
    return ERR_OK;
}

static enum err bind_mixture_norms(struct opening *o, struct binder *b, u32 i,
                                   struct mixture_norms *x)
{
    const u32 hidden = o->m->hidden;
    const struct {
        const char *name;
        u32 n;
        const struct tensor **to;
    } vectors[] = {{"router.scale", hidden, &x->router},
                   {"router.per_expert_scale", o->m->experts, &x->scale},
                   {"pre_feedforward_layernorm_2.weight", hidden, &x->experts},
                   {"post_feedforward_layernorm_1.weight", hidden, &x->after_shared},
                   {"post_feedforward_layernorm_2.weight", hidden, &x->after_experts}};
    struct place_name s;
    for (u32 j = 0; j < COUNTOF(vectors); j++)
        TRY(bind_vector(b, format(&s, "model.layers.%u.%s", i, vectors[j].name), vectors[j].n,
                        vectors[j].to));
    return ERR_OK;
}

static enum err bind_mixture(struct opening *o, struct binder *b, u32 i, struct mixture *x)
{
    struct place_name s;
    const struct model *m = o->m;
    const struct mixture_names *names = find_names(o, i);
    u32 wide = m->expert_intermediate, hidden = m->hidden;
    if (o->config.gpt_oss)
        return bind_gpt_oss(o, b, i, x);
    TRY(bind_linear(b, format(&s, "model.layers.%u.%s%s", i, names->of, names->router), m->experts,
                    hidden, false, &x->router));
    if (o->config.router_bias)
        TRY(bind_vector(
            b,
            format(&s, "model.layers.%u.%s%s.e_score_correction_bias", i, names->of, names->router),
            m->experts, &x->bias));
    if (x->norms)
        TRY(bind_mixture_norms(o, b, i, x->norms));
    format(&s, "model.layers.%u.%s%s", i, names->of, names->joined[0]);
    if (tensors_find(&o->tensors, s.text))
        return bind_joined(o, b, i, names, x);
    for (u32 e = 0; e < m->experts; e++)
        for (u32 j = 0; j < 3; j++) {
            struct weight *to = j < 2 ? &x->experts[e].gate_up[j] : &x->experts[e].down;
            format(&s, "model.layers.%u.%sexperts.%u.%s", i, names->of, e, names->leaf[j]);
            TRY(bind_linear(b, s.text, j < 2 ? wide : hidden, j < 2 ? hidden : wide, false, to));
        }
    return ERR_OK;
}

/* What a mixture has beside its experts: one more, and what its answer may be multiplied by. */
static enum err bind_shared(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    struct place_name s;
    struct weight *share = &l->mixture->share;
    bool gated = o->m->shared_gated;
    TRY(bind_mlp(o, b, i,
                 gated               ? "mlp.shared_expert"
                 : l->mixture->norms ? "mlp"
                                     : "mlp.shared_experts",
                 o->m->shared_intermediate, l));
    if (!gated)
        return ERR_OK;
    TRY(bind_linear(b, format(&s, "model.layers.%u.mlp.shared_expert_gate", i), 1, o->m->hidden,
                    false, share));
    if (share->int8_activations)
        return err_set(o->e, ERR_MODEL,
                       "%s/config.json: quantization_config: int8 activations of %s are not "
                       "supported; it has to be among those that are ignored",
                       o->dir, share->name);
    return ERR_OK;
}

/* What a layer ends with, where the family has it. */
static enum err bind_layer_end(struct opening *o, struct binder *b, u32 i, struct layer *l)
{
    struct place_name s;
    const struct tensor *scale;
    u32 n = o->m->own.n, hidden = o->m->hidden;
    if (o->config.gemma4) {
        TRY(bind_vector(b, format(&s, "model.layers.%u.layer_scalar", i), 1, &scale));
        l->scale = half_load(scale->data, scale->type, 0);
    }
    if (!n)
        return ERR_OK;
    TRY(bind_linear(b, format(&s, "model.layers.%u.per_layer_input_gate", i), n, hidden, false,
                    &l->own_gate));
    TRY(bind_linear(b, format(&s, "model.layers.%u.per_layer_projection", i), hidden, n, false,
                    &l->own_out));
    return bind_vector(b, format(&s, "model.layers.%u.post_per_layer_input_norm.weight", i), hidden,
                       &l->norm_after_own);
}

static float round_f16(float x)
{
    int exponent;
    float fraction = frexpf(x, &exponent); /* 11 significant bits; sqrt(hidden) is in range */
    return ldexpf(rintf(ldexpf(fraction, 11)), exponent - 11);
}

static float round_bf16(float x)
{
    int exponent;
    float fraction = frexpf(x, &exponent); /* 8 significant bits */
    return ldexpf(rintf(ldexpf(fraction, 8)), exponent - 8);
}

static float round_to(enum dtype type, float x)
{
    return type == DTYPE_BF16 ? round_bf16(x) : type == DTYPE_F16 ? round_f16(x) : x;
}

static enum err bind_own_inputs(struct opening *o, struct binder *b, struct binder *unquantized)
{
    struct own_inputs *own = &o->m->own;
    u32 all = o->m->layers_n * own->n;
    if (!all)
        return ERR_OK;
    TRY(bind_linear(unquantized, "model.embed_tokens_per_layer", o->m->vocab, all, false,
                    &own->embed));
    TRY(bind_linear(b, "model.per_layer_model_projection", all, o->m->hidden, false,
                    &own->project));
    own->scale = round_to(own->embed.type, sqrtf((float)own->n));
    return bind_vector(b, "model.per_layer_projection_norm.weight", own->n, &own->norm);
}

/* A head of its own beside tie_word_embeddings: transformers 4 lets the embedding win, 5 the head,
 * so it has to be a copy. */
static enum err check_tied(struct opening *o, const struct weight *embed)
{
    const struct tensor *head = tensors_take(&o->tensors, "lm_head.weight");
    if (!head || (head->type == embed->type && head->bytes == weight_data_bytes(embed) &&
                  memcmp(head->data, embed->data, head->bytes) == 0))
        return ERR_OK;
    return err_set(o->e, ERR_MODEL,
                   "%s/config.json: tie_word_embeddings is true, but lm_head.weight is no copy of "
                   "model.embed_tokens.weight; say false to use it, or remove the tensor",
                   o->dir);
}

/* The embedding is always plain: rows are looked up, not multiplied. The head shares it when the
 * config ties them and when the file has no head. */
static enum err bind_ends(struct opening *o, struct binder *b)
{
    struct model *m = o->m;
    static const struct quant plain = {0};
    struct binder unquantized = *b;
    unquantized.quant = &plain;
    TRY(bind_linear(&unquantized, "model.embed_tokens", m->vocab, m->hidden, false, &m->embed));
    if (o->config.rounds_embed_scale)
        m->embed_scale = round_to(m->embed.type, m->embed_scale);
    TRY(bind_own_inputs(o, b, &unquantized));
    TRY(bind_vector(b, "model.norm.weight", m->hidden, &m->norm_final));
    bool stored = module_stored(o, "lm_head");
    m->headless = !m->tied && !stored && (o->config.headless || o->pools);
    if (m->headless && !o->config.bare && !o->pools)
        return err_set(o->e, ERR_MODEL,
                       "%s/config.json: architectures names no ...ForCausalLM, and the weights "
                       "have no lm_head: this model does not predict tokens",
                       o->dir);
    if (m->tied)
        TRY(check_tied(o, &m->embed));
    m->tied |= !stored;
    if (!m->tied)
        return bind_linear(b, "lm_head", m->vocab, m->hidden, false, &m->head);
    m->head = m->embed;
    m->head.name = "lm_head";
    return ERR_OK;
}

static bool all_zero(const struct tensor *t)
{
    for (size_t i = 0; i < t->bytes; i++)
        if (((const u8 *)t->data)[i])
            return false;
    return true;
}

/* Some files have k and v of layers that do not use them. */
static bool is_unused_key(const struct opening *o, struct str name)
{
    static const char *const parts[] = {"k_proj.", "v_proj.", "k_norm.", "v_norm."};
    struct place_name s;
    for (u32 i = 0; i < o->m->layers_n; i++)
        for (u32 j = 0; o->m->layers[i].kv_layer != i && j < COUNTOF(parts); j++)
            if (str_starts(name, str_of(format(&s, "model.layers.%u.self_attn.%s", i, parts[j]))))
                return true;
    return false;
}

static bool of_more_layers(const struct opening *o, struct str name)
{
    struct place_name s;
    for (u32 i = 0; i < o->config.more_layers; i++)
        if (str_starts(name, str_of(format(&s, "model.layers.%u.", o->m->layers_n + i))))
            return true;
    return false;
}

/* Tensors that nothing asked for. Tables that old versions saved are ignored, and so are biases
 * that add nothing (some GPTQ writers store them everywhere). Any other tensor of the text model
 * would mean that the config describes another model than the file. */
static enum err check_leftovers(struct opening *o)
{
    for (u32 i = 0; i < o->tensors.n; i++) {
        const struct tensor *t = o->tensors.v[i];
        bool ours = str_starts(t->name, STR("model.")) || str_starts(t->name, STR("lm_head."));
        if (o->tensors.used[i] || !ours || str_ends(t->name, STR("rotary_emb.inv_freq")) ||
            str_ends(t->name, STR("rotary_emb.cos_cached")) ||
            str_ends(t->name, STR("rotary_emb.sin_cached")) ||
            (str_ends(t->name, STR(".bias")) && all_zero(t)) || of_more_layers(o, t->name) ||
            is_unused_key(o, t->name))
            continue;
        return err_set(o->e, ERR_MODEL,
                       "%s: tensor \"%.*s\" has no place in the %.*s model that config.json "
                       "describes; leaving it out would change the results",
                       t->file, STR_ARG(t->name), STR_ARG(o->m->model_type));
    }
    return ERR_OK;
}

/* The numbers that a wrong shape may come from, by their names in config.json. */
static void describe_shape(const struct opening *o, char *out, size_t cap)
{
    const struct model *m = o->m;
    char group[32] = "", experts[96] = "", shared[64] = "", delta[192] = "";
    if (o->config.quant.group)
        snprintf(group, sizeof group, ", group_size %u", o->config.quant.group);
    if (m->experts)
        snprintf(experts, sizeof experts, ", %u experts of intermediate size %u", m->experts,
                 m->expert_intermediate);
    if (m->shared_intermediate && !o->config.gemma4)
        snprintf(shared, sizeof shared, ", %s %u",
                 m->shared_gated ? "shared_expert_intermediate_size" : "n_shared_experts",
                 m->shared_intermediate / (m->shared_gated ? 1 : m->expert_intermediate));
    if (m->delta.value_heads)
        snprintf(delta, sizeof delta,
                 ", linear_num_key_heads %u, linear_num_value_heads %u, linear_key_head_dim %u, "
                 "linear_value_head_dim %u, linear_conv_kernel_dim %u",
                 m->delta.key_heads, m->delta.value_heads, m->delta.key_dim, m->delta.value_dim,
                 m->delta.taps);
    snprintf(
        out, cap,
        "hidden_size %u, intermediate_size %u, num_attention_heads %u, num_key_value_heads %u, "
        "head_dim %u, vocab_size %u%s%s%s%s",
        m->hidden, m->intermediate, m->heads, m->kv_heads, m->head_dim, m->vocab, experts, shared,
        delta, group);
}

static enum err bind_model(struct opening *o)
{
    char shape[512];
    struct binder b = {&o->tensors, o->keep, &o->config.quant, o->dir, shape, o->e};
    describe_shape(o, shape, sizeof shape);
    find_fused(o);
    TRY(bind_ends(o, &b));
    for (u32 i = 0; i < o->m->layers_n; i++) {
        struct layer *l = &o->m->layers[i];
        TRY(bind_norms(o, &b, i, l));
        TRY(l->delta ? bind_delta(o, &b, i, l) : bind_attention(o, &b, i, l));
        TRY(l->mixture ? bind_mixture(o, &b, i, l->mixture)
                       : bind_mlp(o, &b, i, "mlp", l->intermediate, l));
        if (l->mixture && o->m->shared_intermediate)
            TRY(bind_shared(o, &b, i, l));
        TRY(bind_layer_end(o, &b, i, l));
    }
    return check_leftovers(o);
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
    TRY(name_bare(o));
    TRY(pooling_read(o->keep, o->scratch, o->dir, &o->m->embedding, &o->pools, o->e));
    TRY(bind_model(o));
    return name_model(o);
}

struct delta_place delta_place(const struct delta_shape *d, enum delta_part part)
{
    const u32 share = d->value_heads / d->key_heads, key = d->key_dim, value = share * d->value_dim;
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
    const size_t layers = m->layers_n - model_attention_layers(m);
    return layers * delta_state_floats(&m->delta) * sizeof(float);
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
        products += m->hidden * (heads + 3 * mlp + 3.0 * m->own.n);
        position += l->window || l->delta ? 0 : 2.0 * m->heads * l->head_dim;
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

void model_advise(const struct model *m, const void *p, size_t n, int advice)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (u32 i = 0; i < m->files_n; i++) {
        const char *base = m->files[i].p, *at = p;
        if (at < base || at + n > base + m->files[i].n)
            continue;
        size_t from = ROUND_UP((size_t)(at - base), page);
        size_t to = (size_t)(at - base) + n;
        to -= to % page;
        if (from < to)
            madvise((void *)(uintptr_t)(base + from), to - from, advice);
    }
}
