#include "core/model/rope.h"

#include <math.h>

static float *new_table(struct arena *keep, u32 dims, struct rope *out, const struct fields *k)
{
    float *f = ARENA_NEW(keep, float, MAX(dims / 2, 1));
    if (!f) {
        arena_full(keep, k->file, k->e);
        *k->failed = true;
    }
    *out = (struct rope){.dims = dims, .scale = 1, .freq = f};
    return f;
}

/* theta^(2i/d): the base that every type starts from. */
static float base_power(double theta, u32 i, u32 dims)
{
    return powf((float)theta, (float)(2 * i) / (float)dims);
}

static void fill_default(float *f, u32 dims, double theta)
{
    for (u32 i = 0; i < dims / 2; i++)
        f[i] = 1 / base_power(theta, i, dims);
}

static double factor_of(const struct fields *k)
{
    return fields_f64(k, "factor", KEY_REQUIRED, 1e-6, 1e6);
}

/* Context the model was trained with, before its stretching. */
static u32 original_of(const struct fields *k, const struct rope_setting *s)
{
    if (s->original)
        return s->original;
    return fields_u32(k, "original_max_position_embeddings", s->context, 1, LIMIT_CONTEXT);
}

static void scale_llama3(float *f, u32 dims, const struct fields *k, const struct rope_setting *s)
{
    float factor = (float)factor_of(k);
    double low = fields_f64(k, "low_freq_factor", KEY_REQUIRED, 1e-6, 1e6);
    double high = fields_f64(k, "high_freq_factor", KEY_REQUIRED, 1e-6, 1e6);
    u32 original = original_of(k, s);
    if (high <= low) {
        fields_refuse(k, "high_freq_factor", "it must be above low_freq_factor");
        return;
    }
    for (u32 i = 0; i < dims / 2; i++) {
        float wave = (float)(2 * M_PI) / f[i];
        if (wave > (float)(original / low)) {
            f[i] /= factor;
        } else if (wave >= (float)(original / high)) {
            float smooth = ((float)original / wave - (float)low) / (float)(high - low);
            f[i] = (1 - smooth) * f[i] / factor + smooth * f[i];
        }
    }
}

/* The dimension that turns `rotations` times over the original context. */
static double yarn_dim(double rotations, u32 dims, double theta, u32 original)
{
    return dims * log(original / (rotations * 2 * M_PI)) / (2 * log(theta));
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* What cos and sin are multiplied by. attention_factor is all of it; attn_factor goes on top of
 * what follows from the factor, as in vLLM and the paper's own code. transformers passes over it,
 * but in DeepSeek-R1-0528-Qwen3-8B it makes exactly 1 of the product: 1 is what was meant. */
static double yarn_attention(const struct fields *k, double factor)
{
    double mscale = fields_f64(k, "mscale", 0, -1e6, 1e6);
    double all = fields_f64(k, "mscale_all_dim", 0, -1e6, 1e6);
    double scale = mscale != 0 && all != 0 ? yarn_scale(factor, mscale) / yarn_scale(factor, all)
                                           : yarn_scale(factor, 1);
    scale *= fields_f64(k, "attn_factor", 1, 1e-6, 1e6);
    return fields_f64(k, "attention_factor", scale, 1e-6, 1e6);
}

static void scale_yarn(float *f, struct rope *out, double theta, const struct fields *k,
                       const struct rope_setting *s)
{
    u32 dims = out->dims, original = original_of(k, s);
    double factor = factor_of(k);
    double low = yarn_dim(fields_f64(k, "beta_fast", 32, 1e-3, 1e6), dims, theta, original);
    double high = yarn_dim(fields_f64(k, "beta_slow", 1, 1e-3, 1e6), dims, theta, original);
    if (fields_bool(k, "truncate", true)) {
        low = floor(low);
        high = ceil(high);
    }
    low = MAX(low, 0);
    high = MIN(high, dims - 1.0);
    if (low == high)
        high += 0.001;
    for (u32 i = 0; i < dims / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float keep = 1 - MIN(MAX(ramp, 0.0f), 1.0f);
        float stretched = 1 / ((float)factor * base_power(theta, i, dims));
        f[i] = stretched * (1 - keep) + f[i] * keep;
    }
    out->scale = (float)yarn_attention(k, factor);
}

/* The first part of a head's pairs turns as if all of them did, the others do not. */
static void scale_proportional(float *f, u32 dims, double partial, const struct fields *k)
{
    float factor = (float)fields_f64(k, "factor", 1, 1e-6, 1e6);
    u32 turning = (u32)(partial * dims / 2);
    for (u32 i = 0; i < dims / 2; i++)
        f[i] = i < turning ? f[i] / factor : 0;
}

static void divide_by(float *f, u32 dims, double theta, const struct fields *k, const char *key)
{
    const struct json *list = fields_get(k, key);
    if (!list || list->type != JSON_ARRAY || list->n != dims / 2) {
        fields_refuse(k, key, "a list of %u numbers is expected (half the rotated dimensions)",
                      dims / 2);
        return;
    }
    u32 i = 0;
    for (const struct json *v = list->child; v; v = v->next, i++) {
        double x;
        if (!json_f64(v, &x) || x < 1e-6 || x > 1e9) {
            fields_refuse(k, key, "it must hold numbers above 0 only");
            return;
        }
        f[i] = 1 / ((float)x * base_power(theta, i, dims));
    }
}

static void fill_longrope(struct arena *keep, float *f, struct rope *out, struct rope *out_long,
                          u32 *long_from, double theta, const struct fields *k,
                          const struct rope_setting *s)
{
    u32 dims = out->dims, original = original_of(k, s);
    static const char *const unsupported[] = {"short_mscale", "long_mscale"};
    for (size_t i = 0; i < COUNTOF(unsupported); i++)
        if (fields_get(k, unsupported[i]))
            fields_refuse(k, unsupported[i], "not supported");
    float *f_long = new_table(keep, dims, out_long, k);
    if (!f_long)
        return;
    divide_by(f, dims, theta, k, "short_factor");
    divide_by(f_long, dims, theta, k, "long_factor");
    double factor = fields_f64(k, "factor", (double)s->context / original, 1e-6, 1e6);
    double scale = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    out->scale = out_long->scale = (float)fields_f64(k, "attention_factor", scale, 1e-6, 1e6);
    *long_from = original;
    if (original < 2)
        fields_refuse(k, "original_max_position_embeddings", "it must be at least 2");
}

static struct str without_mrope(const struct rope_setting *s, struct str type)
{
    return s->mrope && str_is(type, "mrope") ? STR("default") : type;
}

/* rope_type, or its old name type. */
static struct str type_of(const struct fields *k, const struct rope_setting *s, const char **key)
{
    *key = fields_get(k, "rope_type") ? "rope_type" : "type";
    struct str type = without_mrope(s, fields_str(k, *key, "default"));
    if (!s->phi3) {
        if (fields_get(k, "type") && !str_eq(without_mrope(s, fields_str(k, "type", "")), type))
            fields_refuse(k, "type",
                          "rope_type says otherwise, and versions of transformers "
                          "differ in which of them they follow");
        return type;
    }
    if (str_is(type, "su") || str_is(type, "yarn") || str_is(type, "longrope"))
        return STR("longrope");
    if (!str_is(type, "default"))
        fields_refuse(k, *key, "phi3 has the types default and longrope");
    return STR("default");
}

/* Hunyuan's "dynamic" is static: a larger theta. */
static double alpha_theta(const struct fields *k, double theta, u32 dims)
{
    if (dims < 4)
        fields_refuse(k, "rope_type", "dynamic needs heads of at least 4 dimensions");
    return theta * pow(fields_f64(k, "alpha", KEY_REQUIRED, 1e-3, 1e9), dims / (dims - 2.0));
}

enum err rope_build(struct arena *keep, const struct fields *k, const struct rope_setting *s,
                    struct rope *out, struct rope *out_long, u32 *long_from)
{
    const char *type_key;
    struct str type = type_of(k, s, &type_key);
    double theta = fields_f64(k, "rope_theta", s->theta, 1.001, 1e12);
    double partial = fields_f64(k, "partial_rotary_factor", s->partial, 1e-3, 1);
    bool proportional = str_is(type, "proportional");
    u32 dims = proportional ? s->head_dim : (u32)(s->head_dim * partial);
    *long_from = 0;
    if (partial != 1 && !s->partial_allowed && !proportional)
        fields_refuse(k, "partial_rotary_factor", "this family rotates whole heads");
    if (dims % 2 || dims == 0)
        fields_refuse(
            k, "partial_rotary_factor",
            "%u of the %u dimensions of a head would be rotated; an even number is needed", dims,
            s->head_dim);
    if (*k->failed)
        return k->e->code;
    float *f = new_table(keep, dims, out, k);
    if (!f)
        return k->e->code;
    fill_default(f, dims, theta);
    if (proportional) {
        scale_proportional(f, dims, partial, k);
    } else if (str_is(type, "linear")) {
        float factor = (float)factor_of(k);
        for (u32 i = 0; i < dims / 2; i++)
            f[i] /= factor;
    } else if (str_is(type, "llama3")) {
        scale_llama3(f, dims, k, s);
    } else if (str_is(type, "yarn")) {
        scale_yarn(f, out, theta, k, s);
    } else if (str_is(type, "longrope")) {
        fill_longrope(keep, f, out, out_long, long_from, theta, k, s);
    } else if (str_is(type, "dynamic") && s->turned) {
        fill_default(f, dims, alpha_theta(k, theta, dims));
    } else if (!str_is(type, "default")) {
        fields_refuse(k, type_key,
                      "default, linear, proportional, llama3, yarn and longrope are supported");
    }
    if (s->turned && out->scale != 1)
        fields_refuse(k, type_key,
                      "it scales, and norms behind the rotation undo that; default and dynamic are "
                      "supported");
    if (*long_from == 0)
        *out_long = *out;
    return *k->failed ? k->e->code : ERR_OK;
}
