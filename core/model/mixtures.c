#include "core/model/mixtures.h"

/* The number of experts has a name of its own, `key`, and another one in each version of
 * transformers. */
static u32 read_expert_count(const struct fields *k, const char *key)
{
    bool own = fields_get(k, key) != NULL, local = fields_get(k, "num_local_experts");
    u32 n = fields_u32(k, own || !local ? key : "num_local_experts", KEY_U32_REQUIRED, 1,
                       LIMIT_EXPERTS);
    if (own && local && fields_u32(k, "num_local_experts", 0, 1, LIMIT_EXPERTS) != n)
        fields_refuse(k, "num_local_experts", "%s says otherwise (%u)", key, n);
    return n;
}

/* mlp_only_layers: which layers have a plain MLP, by their numbers. */
static void read_plain_layers(const struct fields *k, bool plain[LIMIT_LAYERS])
{
    const char *key = "mlp_only_layers";
    const struct json *list = fields_get(k, key);
    u64 i;
    if (list && list->type != JSON_ARRAY)
        fields_refuse(k, key, "a list of numbers of layers is expected");
    for (const struct json *v = list ? list->child : NULL; v && !*k->failed; v = v->next)
        if (!json_u64(v, &i))
            fields_refuse(k, key, "a list of numbers of layers is expected");
        else if (i < LIMIT_LAYERS)
            plain[i] = true;
}

/* Qwen's: which layers have them, and one that all tokens take. */
static void read_qwen_mixtures(const struct fields *k, const struct family *f, struct model *m,
                               bool plain[LIMIT_LAYERS])
{
    u32 step = fields_u32(k, "decoder_sparse_step", 1, 1, LIMIT_LAYERS);
    for (u32 i = 0; i < m->layers_n; i++)
        plain[i] = (i + 1) % step != 0;
    read_plain_layers(k, plain);
    m->shared_gated = f->shared_expert;
    if (f->shared_expert)
        m->shared_intermediate = fields_u32(k, "shared_expert_intermediate_size", KEY_U32_REQUIRED,
                                            1, LIMIT_INTERMEDIATE);
}

/* Experts that are chosen by sigmoids and a bias, renormalized with `least`. Those of groups of
 * which only some are asked are not computed; with one group there is nothing to them. */
static void read_sigmoids(const struct fields *k, float least, struct model *m, struct config *c)
{
    static const char *const groups[] = {"n_group", "topk_group"};
    for (size_t i = 0; i < COUNTOF(groups); i++)
        if (fields_u32(k, groups[i], 1, 1, LIMIT_EXPERTS) != 1)
            fields_refuse(k, groups[i], "experts in groups are not supported");
    m->experts_scale = (float)fields_f64(k, "routed_scaling_factor", 1, 1e-4, 1e4);
    m->experts_least = least;
    c->router_bias = true;
}

/* GLM's: the first layers have none. */
static void read_glm_mixtures(const struct fields *k, struct model *m, struct config *c,
                              bool plain[LIMIT_LAYERS])
{
    u32 first = fields_u32(k, "first_k_dense_replace", 1, 0, LIMIT_LAYERS);
    for (u32 i = 0; i < first; i++)
        plain[i] = true;
    read_sigmoids(k, 1e-20f, m, c);
    u32 most = LIMIT_INTERMEDIATE / MAX(m->expert_intermediate, 1);
    m->shared_intermediate = m->expert_intermediate * fields_u32(k, "n_shared_experts", 1, 1, most);
    c->more_layers = fields_u32(k, "num_mtp_layers", 1, 0, LIMIT_LAYERS);
    c->more_layers = fields_u32(k, "num_nextn_predict_layers", c->more_layers, 0, LIMIT_LAYERS);
}

/* ernie4_5_moe's: every `interval`th of the layers from `start` to `end`. What stands in its files
 * beside the model (bind.c, of_more_layers) guesses further tokens. */
static void read_ernie_mixtures(const struct fields *k, struct model *m, struct config *c,
                                bool plain[LIMIT_LAYERS])
{
    const u32 start = fields_u32(k, "moe_layer_start_index", 1, 0, LIMIT_LAYERS),
              step = fields_u32(k, "moe_layer_interval", 1, 1, LIMIT_LAYERS);
    const double end = fields_f64(k, "moe_layer_end_index", -1, -1, LIMIT_LAYERS);
    for (u32 i = 0; i < m->layers_n; i++)
        plain[i] = i < start || (i + 1) % step != 0 || (end >= 0 && i > end);
    u32 most = LIMIT_INTERMEDIATE / MAX(m->expert_intermediate, 1);
    m->shared_intermediate =
        m->expert_intermediate * fields_u32(k, "moe_num_shared_experts", 2, 0, most);
    m->experts_least = (float)fields_f64(k, "moe_norm_min", 1e-12, 0, 1e-6);
    m->experts_softmax = true;
    c->router_bias = true;
    if (fields_bool(k, "use_bias", false))
        fields_refuse(k, "use_bias", "only false is supported");
}

/* lfm2_moe's: the same as GLM's, but of one group, and with none that all tokens take. */
static void read_lfm2_mixtures(const struct fields *k, struct model *m, struct config *c,
                               bool plain[LIMIT_LAYERS])
{
    u32 first = fields_u32(k, "num_dense_layers", 2, 0, LIMIT_LAYERS);
    for (u32 i = 0; i < first; i++)
        plain[i] = true;
    m->experts_scale = (float)fields_f64(k, "routed_scaling_factor", 1, 1e-4, 1e4);
    m->experts_least = 1e-6f;
    c->router_bias = fields_bool(k, "use_expert_bias", true);
    if (!c->router_bias)
        fields_refuse(k, "use_expert_bias", "only true is supported");
}

/* nemotron_h's: which layers have them is known (core/model/mixers.h), and the one that all tokens
 * take is of a size of its own. */
static void read_nemotron_mixtures(const struct fields *k, struct model *m, struct config *c,
                                   bool plain[LIMIT_LAYERS])
{
    for (u32 i = 0; i < m->layers_n; i++)
        plain[i] = !c->mixed[i];
    read_sigmoids(k, 1e-20f, m, c);
    m->shared_intermediate = fields_u32(k, "moe_shared_expert_intermediate_size", KEY_U32_REQUIRED,
                                        1, LIMIT_INTERMEDIATE);
    if (fields_u32(k, "n_shared_experts", 1, 0, LIMIT_EXPERTS) != 1)
        fields_refuse(k, "n_shared_experts", "only 1 is supported");
    if (fields_get(k, "moe_latent_size"))
        fields_refuse(k, "moe_latent_size", "only null is supported");
}

static bool has_mixtures(const struct fields *k, const struct family *f, const struct model *m,
                         const struct config *c)
{
    if (f->mixtures == MIXTURES_GEMMA4)
        return fields_bool(k, "enable_moe_block", false);
    bool some = f->mixtures != MIXTURES_NEMOTRON;
    for (u32 i = 0; i < m->layers_n; i++)
        some |= c->mixed[i];
    return some;
}

/* norms: they have some of their own. */
static enum err make_room(struct arena *keep, const struct fields *k, struct model *m,
                          const bool plain[LIMIT_LAYERS], bool norms)
{
    for (u32 i = 0; i < m->layers_n; i++) {
        if (plain[i])
            continue;
        struct mixture *x = m->layers[i].mixture = ARENA_NEW(keep, struct mixture, 1);
        if (x)
            x->experts = ARENA_NEW(keep, struct expert, m->experts);
        if (x && norms)
            x->norms = ARENA_NEW(keep, struct mixture_norms, 1);
        if (!x || !x->experts || (norms && !x->norms))
            return arena_full(keep, k->file, k->e);
    }
    return ERR_OK;
}

enum err mixtures_read(struct arena *keep, const struct fields *k, const struct family *f,
                       struct model *m, struct config *c)
{
    const bool glm = f->mixtures == MIXTURES_GLM, gemma4 = f->mixtures == MIXTURES_GEMMA4,
               lfm2 = f->mixtures == MIXTURES_LFM2, ernie = f->mixtures == MIXTURES_ERNIE,
               granite = f->mixtures == MIXTURES_GRANITE_HYBRID,
               nemotron = f->mixtures == MIXTURES_NEMOTRON;
    const char *used = gemma4 ? "top_k_experts" : ernie ? "moe_k" : "num_experts_per_tok";
    const char *count = glm || nemotron ? "n_routed_experts"
                        : ernie         ? "moe_num_experts"
                                        : "num_experts";
    bool plain[LIMIT_LAYERS] = {0};
    if (!has_mixtures(k, f, m, c))
        return ERR_OK;
    m->experts = granite ? fields_u32(k, "num_local_experts", 8, 0, LIMIT_EXPERTS)
                         : read_expert_count(k, count);
    if (granite && m->experts == 0)
        return ERR_OK;
    m->experts_used = fields_u32(k, used, granite ? 2 : KEY_U32_REQUIRED, 1, LIMIT_EXPERTS_USED);
    if (m->experts_used > m->experts)
        fields_refuse(k, used, "there are %u experts", m->experts);
    if (fields_u32(k, "experts_per_token", m->experts_used, 1, UINT32_MAX) != m->experts_used)
        fields_refuse(k, "experts_per_token", "num_experts_per_tok says otherwise (%u)",
                      m->experts_used); /* gpt-oss has both */
    m->expert_intermediate = m->intermediate;
    m->experts_renormalized = true;
    m->experts_scale = 1;
    const bool always = f->mixtures == MIXTURES_MIXTRAL || f->mixtures == MIXTURES_GPT_OSS ||
                        gemma4 || granite || ernie;
    if (!always && !f->renormalized)
        m->experts_renormalized =
            fields_bool(k, "norm_topk_prob", glm || lfm2 || nemotron || f->delta);
    if (f->mixtures == MIXTURES_QWEN || glm || lfm2 || gemma4 || nemotron || ernie)
        m->expert_intermediate =
            fields_u32(k, "moe_intermediate_size", KEY_U32_REQUIRED, 1, LIMIT_INTERMEDIATE);
    if (granite)
        m->expert_intermediate =
            fields_u32(k, "intermediate_size", KEY_U32_REQUIRED, 1, LIMIT_INTERMEDIATE);
    if (f->mixtures == MIXTURES_QWEN)
        read_qwen_mixtures(k, f, m, plain);
    if (glm)
        read_glm_mixtures(k, m, c, plain);
    if (ernie)
        read_ernie_mixtures(k, m, c, plain);
    if (gemma4 || granite)
        m->shared_intermediate = m->intermediate;
    if (lfm2)
        read_lfm2_mixtures(k, m, c, plain);
    if (nemotron)
        read_nemotron_mixtures(k, m, c, plain);
    return *k->failed ? k->e->code : make_room(keep, k, m, plain, gemma4);
}
