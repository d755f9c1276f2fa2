#include "core/model/config.h"
#include "tests/unit/unit.h"

#include <math.h>

static struct arena scratch;

static struct arena *emptied(void)
{
    if (!scratch.base && arena_open(&scratch, "scratch", 64 * MIB, false, &(struct err_text){0}))
        return NULL;
    arena_reset(&scratch, 0);
    return &scratch;
}

static enum err read_config(const char *text, struct quant *q, struct err_text *e)
{
    *e = (struct err_text){0};
    return config_quant_parse(emptied(), str_of(text), "quantize_config.json", q, e);
}

#define CT(format, weights, inputs)                                                 \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                 \
    "\",\"quantization_status\":\"compressed\",\"ignore\":[\"lm_head\"],"           \
    "\"kv_cache_scheme\":null,\"sparsity_config\":{},\"transform_config\":{},"      \
    "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":" weights \
    ",\"input_activations\":" inputs ",\"output_activations\":null}}}"
#define W4                                                                                       \
    "{\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\",\"group_size\":" \
    "32}"
#define AUTO_ROUND(packing, extra)                                                      \
    "{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:" packing         \
    "\",\"bits\":4,\"group_size\":64,\"sym\":true,\"data_type\":\"int\",\"iters\":200," \
    "\"block_name_to_quantize\":\"model.layers\",\"extra_config\":{" extra "}}"
#define W8 "{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"channel\"}"
#define A8 \
    "{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"token\",\"dynamic\":true}"

void quant_settings(void)
{
    struct quant q;
    struct err_text e;
    CHECK(read_config("{\"bits\":4,\"group_size\":128,\"desc_act\":false}", &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_GPTQ && q.bits == 4 && q.group == 128 && q.symmetric);
    CHECK(q.zero_plus_one && !q.act_order && q.act_order_said);
    CHECK(read_config("{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":true,"
                      "\"sym\":false,\"checkpoint_format\":\"gptq_v2\",\"format\":\"gptq_v2\","
                      "\"dynamic\":{\"-:.*mlp\":{}},\"pack_dtype\":\"int32\"}",
                      &q, &e) == ERR_OK);
    CHECK(q.group == 0 && !q.symmetric && !q.zero_plus_one && q.act_order);
    CHECK(read_config("{\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\",\"zero_point\":true}",
                      &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_AWQ && q.group == 64 && !q.symmetric);
    CHECK(read_config(CT("pack-quantized", W4, "null"), &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_PACKED && q.bits == 4 && q.group == 32 && q.symmetric);
    CHECK(read_config(CT("int-quantized", W8, A8), &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_INT8 && q.int8_activations && q.group == 0);
    CHECK(read_config(AUTO_ROUND("auto_gptq",
                                 "\"model.layers.1.mlp.up_proj\":{\"bits\":16},"
                                 "\"lm_head\":{\"bits\":4,\"group_size\":64,\"sym\":true,"
                                 "\"act_bits\":null,\"data_type\":\"int\"}"),
                      &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_GPTQ && q.zero_plus_one && q.group == 64 && !q.act_order_said);
    CHECK(read_config(AUTO_ROUND("gptqmodel", ""), &q, &e) == ERR_OK);
    CHECK(q.method == QUANT_GPTQ && !q.zero_plus_one);
    CHECK(read_config(AUTO_ROUND("auto_awq", ""), &q, &e) == ERR_OK && q.method == QUANT_AWQ);
}

void quant_refusals(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"bits\":3,\"group_size\":128}", "bits is 3: 4 and 8"},
        {"{\"group_size\":128}", "bits is missing"},
        {"{\"bits\":4}", "group_size is missing"},
        {"{\"bits\":4,\"group_size\":0}", "group_size is 0"},
        {"{\"bits\":4,\"group_size\":-2}", "group_size is -2"},
        {"{\"bits\":4,\"group_size\":32,\"checkpoint_format\":\"marlin\"}",
         "checkpoint_format is \"marlin\""},
        {"{\"bits\":4,\"group_size\":32,\"is_marlin_format\":true}", "is_marlin_format is true"},
        {"{\"bits\":4,\"group_size\":32,\"format\":\"gptq_p\"}", "format is \"gptq_p\""},
        {"{\"bits\":4,\"group_size\":32,\"format\":\"gptq\",\"checkpoint_format\":\"gptq_v2\"}",
         "says otherwise"},
        {"{\"bits\":4,\"group_size\":32,\"pack_dtype\":\"int64\"}", "pack_dtype is \"int64\""},
        {"{\"bits\":4,\"group_size\":32,\"dynamic\":{\"+:.*down\":{\"bits\":8}}}", "\"+:.*down\""},
        {"{\"bits\":4,\"group_size\":32,\"desc_act\":\"yes\"}", "desc_act is \"yes\""},
        {"{\"quant_method\":\"hqq\",\"bits\":4}", "quant_method is \"hqq\""},
        {"{\"quant_method\":\"awq\",\"bits\":8,\"group_size\":32}", "bits is 8: AWQ has 4"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemv\"}",
         "version is \"gemv\""},
        {AUTO_ROUND("exllamav2", ""), "packing_format is \"auto_round:exllamav2\""},
        {AUTO_ROUND("auto_gptq", "\"lm_head\":{\"bits\":8}"),
         "extra_config.lm_head is an object: it has other bits"},
        {AUTO_ROUND("auto_gptq", "\"lm_head\":{\"group_size\":32}"), "extra_config.lm_head is"},
        {AUTO_ROUND("auto_gptq", "\"a.b\":{\"act_bits\":8}"), "extra_config.a.b.act_bits is 8"},
        {"{\"quant_method\":\"intel/auto-round\",\"packing_format\":\"auto_round:auto_awq\","
         "\"bits\":8,\"group_size\":32}",
         "bits is 8: AWQ has 4"},
        {CT("float-quantized", W8, "null"), "format is \"float-quantized\""},
        {CT("pack-quantized", W4, A8), "quantised inputs"},
        {CT("int-quantized", W4, A8), "strategy"},
        {CT("pack-quantized", "null", "null"), "weights is null"},
        {CT("pack-quantized", "{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"channel\"}",
            "null"),
         "type is \"float\""},
        {CT("pack-quantized", "{\"num_bits\":4,\"strategy\":\"tensor\"}", "null"),
         "strategy is \"tensor\""},
        {CT("int-quantized", W8, "{\"num_bits\":8,\"strategy\":\"tensor\",\"dynamic\":false}"),
         "input_activations.dynamic is false"},
        {CT("int-quantized", W8,
            "{\"num_bits\":8,\"strategy\":\"token\",\"dynamic\":true,\"symmetric\":false}"),
         "symmetric is false"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
         "\"config_groups\":{\"a\":{},\"b\":{}}}",
         "exactly one group"},
        {"{\"quant_method\":\"compressed-tensors\",\"kv_cache_scheme\":{\"num_bits\":8}}",
         "kv_cache_scheme"},
        {"{\"quant_method\":\"compressed-tensors\",\"transform_config\":{\"a\":1}}",
         "transform_config"},
        {"{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"2:4\"}}",
         "sparsity_config.format"},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct quant q;
        struct err_text e;
        bool refused = read_config(cases[i].text, &q, &e) == ERR_MODEL;
        if (!refused || !strstr(e.text, cases[i].says))
            printf("    case %zu (%s): %s\n", i, cases[i].says, e.text);
        CHECK(refused && strstr(e.text, cases[i].says));
        CHECK(strstr(e.text, "quantize_config.json: "));
    }
}

/* --- views: one layer "p" of a file made here ------------------------------------------------- */

struct entry {
    const char *name, *dtype;
    u32 d0, d1; /* d1 0: one dimension */
    const void *data;
    size_t bytes;
};

/* Builds a file of these tensors whose data begins at address modulo 4 = `skew`, and opens it. */
static bool open_file(const struct entry *v, u32 n, u32 skew, struct tensors *t)
{
    char header[2048];
    struct err_text e = {0};
    size_t h = 0, at = 0;
    for (u32 i = 0; i < n; i++) {
        char d1[16] = "";
        if (v[i].d1)
            snprintf(d1, sizeof d1, ",%u", v[i].d1);
        h += (size_t)snprintf(header + h, sizeof header - h,
                              "%s\"p.%s\":{\"dtype\":\"%s\",\"shape\":[%u%s],"
                              "\"data_offsets\":[%zu,%zu]}",
                              i ? "," : "{", v[i].name, v[i].dtype, v[i].d0, d1, at,
                              at + v[i].bytes);
        at += v[i].bytes;
    }
    header[h++] = '}';
    while ((8 + h) % 4 != skew)
        header[h++] = ' ';
    char *p = arena_alloc(&unit_arena, 8 + h + at, 16);
    for (u32 i = 0; i < 8; i++)
        p[i] = (char)(h >> 8 * i);
    memcpy(p + 8, header, h);
    char *data = p + 8 + h;
    for (u32 i = 0; i < n; data += v[i++].bytes)
        memcpy(data, v[i].data, v[i].bytes);
    struct arena *a = emptied();
    return tensors_init(t, &unit_arena, a, &e) == ERR_OK &&
           safetensors_parse(t, a, (struct str){p, 8 + h + at}, "f", &e) == ERR_OK &&
           tensors_index(t, &e) == ERR_OK;
}

static enum err bind(struct tensors *t, const struct quant *q, u32 n, u32 k, bool bias,
                     struct weight *w, struct err_text *e)
{
    struct binder b = {t, &unit_arena, q, "dir", "hidden_size 32", e};
    *e = (struct err_text){0};
    return bind_linear(&b, "p", n, k, bias, w);
}

enum { N = 8, K = 32, G = 2 };
static u32 words[N * K];
static u16 scales[G * N];
static u32 zeros[G * N];
static i32 order[K];

/* GPTQ 4 bit, group 16: qweight [K/8][N], qzeros [G][N/8], scales [G][N]. */
static bool gptq_file(u32 zero_word, const i32 *index, u32 skew, struct tensors *t)
{
    for (u32 i = 0; i < COUNTOF(zeros); i++)
        zeros[i] = zero_word;
    struct entry v[] = {{"qweight", "I32", K / 8, N, words, 4 * K / 8 * N},
                        {"qzeros", "I32", G, N / 8, zeros, 4 * G * N / 8},
                        {"scales", "F16", G, N, scales, 2 * G * N},
                        {"g_idx", "I32", K, 0, index, 4 * K}};
    return open_file(v, index ? 4 : 3, skew, t);
}

static const struct quant gptq = {.method = QUANT_GPTQ,
                                  .bits = 4,
                                  .group = 16,
                                  .symmetric = true,
                                  .zero_plus_one = true,
                                  .act_order_said = true};

void gptq_views(void)
{
    struct tensors t;
    struct weight w;
    struct err_text e;
    struct quant q = gptq;
    CHECK(gptq_file(0x77777777, NULL, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK);
    CHECK(w.kind == WEIGHT_GPTQ && w.bits == 4 && w.group == 16 && w.groups == 2 && !w.zeros);
    CHECK(w.n == N && w.k == K && w.scale_type == DTYPE_F16 && !w.group_index && !w.bias);
    CHECK(memcmp(w.data, words, 4 * K / 8 * N) == 0 && strcmp(w.name, "p") == 0);
    /* symmetric by the config, other zero points in the file: these count, unless they are the
     * middle in the other version */
    CHECK(gptq_file(0x77677777, NULL, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK);
    CHECK(w.zeros && w.zero_plus_one);
    CHECK(gptq_file(0x88888888, NULL, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL);
    CHECK(strstr(e.text, "p.qzeros") && strstr(e.text, "symmetric gptq_v2, but checkpoint_format"));
    q.zero_plus_one = false; /* v2 stores z itself */
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && !w.zeros);
    q.symmetric = false;
    CHECK(gptq_file(0x12345678, NULL, 1, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK);
    CHECK(w.zeros && memcmp(w.zeros, zeros, 4) == 0);
    /* shapes that the config does not ask for */
    CHECK(bind(&t, &q, N, 2 * K, false, &w, &e) == ERR_MODEL && strstr(e.text, "has shape [4, 8]"));
    CHECK(bind(&t, &q, 2 * N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "[4, 16]"));
    CHECK(bind(&t, &q, N + 1, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "multiples"));
    CHECK(bind(&t, &q, N, K, true, &w, &e) == ERR_MODEL && strstr(e.text, "\"p.bias\" is missing"));
    q.bits = 8;
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL);
    static const struct quant none = {0};
    CHECK(bind(&t, &none, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "is quantized, but"));
}

void gptq_group_index(void)
{
    struct tensors t;
    struct weight w;
    struct err_text e;
    struct quant q = gptq;
    for (u32 i = 0; i < K; i++)
        order[i] = (i32)(i / 16);
    CHECK(gptq_file(0x77777777, order, 0, &t));
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && !w.group_index);
    memset(order, 0, sizeof order); /* all zero: k / group, whatever desc_act says */
    q.act_order = true;
    CHECK(gptq_file(0x77777777, order, 0, &t));
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && !w.group_index);
    for (u32 i = 0; i < K; i++)
        order[i] = (i32)(i % 2);
    for (u32 skew = 0; skew < 4; skew++) { /* copied where it is not aligned */
        CHECK(gptq_file(0x77777777, order, skew, &t));
        CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && w.group_index);
        CHECK((uintptr_t)w.group_index % 4 == 0 && memcmp(w.group_index, order, 4 * K) == 0);
    }
    q.act_order = false; /* the file has an order, the config says none */
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "p.g_idx"));
    q.act_order_said = false;
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && w.group_index);
    order[K - 1] = 0; /* 17 and 15 members */
    CHECK(gptq_file(0x77777777, order, 0, &t));
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "17 inputs to group 0"));
    static const i32 outside[] = {-1, 2, INT32_MAX, INT32_MIN};
    for (u32 i = 0; i < 4; i++) {
        order[K - 1] = outside[i];
        CHECK(gptq_file(0x77777777, order, 0, &t));
        CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL);
        CHECK(strstr(e.text, "group outside 0 to 1"));
    }
    q.act_order = true;
    CHECK(gptq_file(0x77777777, NULL, 0, &t));
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "p.g_idx"));
}

void awq_views(void)
{
    struct tensors t;
    struct weight w;
    struct err_text e;
    struct quant q = {.method = QUANT_AWQ, .bits = 4, .group = 16};
    for (u32 i = 0; i < COUNTOF(zeros); i++)
        zeros[i] = 0x88888888;
    struct entry v[] = {{"qweight", "I32", K, N / 8, words, 4 * K * N / 8},
                        {"qzeros", "I32", G, N / 8, zeros, 4 * G * N / 8},
                        {"scales", "BF16", G, N, scales, 2 * G * N},
                        {"bias", "F16", N, 0, scales, 2 * N}};
    CHECK(open_file(v, 4, 0, &t) && bind(&t, &q, N, K, true, &w, &e) == ERR_OK);
    CHECK(w.kind == WEIGHT_AWQ && !w.zeros && w.bias && w.bias_type == DTYPE_F16);
    CHECK(w.scale_type == DTYPE_BF16 && w.groups == 2 && !w.zero_plus_one);
    zeros[1] = 0x88888887;
    CHECK(open_file(v, 3, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK && w.zeros);
    q.symmetric = true; /* what is stored counts */
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_OK && w.zeros);
    q.group = 24;
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "whole groups"));
}

void compressed_tensors_views(void)
{
    struct tensors t;
    struct weight w;
    struct err_text e;
    struct quant q = {.method = QUANT_PACKED, .bits = 4, .group = 16, .symmetric = true};
    i64 shape[2] = {N, K};
    struct entry v[] = {{"weight_packed", "I32", N, K / 8, words, 4 * N * K / 8},
                        {"weight_scale", "F32", N, G, words, 4 * N * G},
                        {"weight_shape", "I64", 2, 0, shape, sizeof shape},
                        {"weight_zero_point", "I32", 1, G, zeros, 4 * G}};
    CHECK(open_file(v, 3, 3, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK);
    CHECK(w.kind == WEIGHT_PACKED && !w.zeros && w.groups == 2 && w.scale_type == DTYPE_F32);
    q.symmetric = false;
    CHECK(bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL && strstr(e.text, "zero_point"));
    CHECK(open_file(v, 4, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_OK && w.zeros);
    shape[1] = K + 1;
    CHECK(open_file(v, 4, 0, &t) && bind(&t, &q, N, K, false, &w, &e) == ERR_MODEL);
    CHECK(strstr(e.text, "weight_shape"));

    struct quant q8 = {
        .method = QUANT_INT8, .bits = 8, .symmetric = true, .int8_activations = true};
    struct entry v8[] = {{"weight", "I8", N, K, words, N * K},
                         {"weight_scale", "F16", N, 1, scales, 2 * N}};
    CHECK(open_file(v8, 2, 0, &t) && bind(&t, &q8, N, K, false, &w, &e) == ERR_OK);
    CHECK(w.kind == WEIGHT_INT8 && w.bits == 8 && w.int8_activations && w.groups == 1);
    CHECK(open_file(v8, 1, 0, &t) && bind(&t, &q8, N, K, false, &w, &e) == ERR_MODEL);
}

void plain_views(void)
{
    struct tensors t;
    struct weight w;
    struct err_text e;
    struct entry v[] = {{"weight", "BF16", N, K, words, 2 * N * K}};
    CHECK(open_file(v, 1, 1, &t));
    CHECK(bind(&t, &gptq, N, K, false, &w, &e) == ERR_OK); /* left plain by the quantizer */
    CHECK(w.kind == WEIGHT_PLAIN && w.type == DTYPE_BF16 && w.bits == 0 && w.groups == 1);
    CHECK(bind(&t, &gptq, K, N, false, &w, &e) == ERR_MODEL && strstr(e.text, "asks for [32, 8]"));
    v[0].dtype = "I16";
    CHECK(open_file(v, 1, 0, &t) && bind(&t, &gptq, N, K, false, &w, &e) == ERR_MODEL);
    CHECK(strstr(e.text, "f32, f16 or bf16"));
}

static float bf16(const void *p, size_t i)
{
    u16 h;
    memcpy(&h, (const u16 *)p + i, 2);
    u32 bits = (u32)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

void shape_fills_its_weights(void)
{
    struct model *m, *again;
    struct err_text e = {0};
    CHECK(model_shape(&unit_arena, emptied(), "100m", 4, 4, 7, &m, &e) == ERR_OK);
    CHECK(model_shape(&unit_arena, emptied(), "100m", 4, 4, 7, &again, &e) == ERR_OK);
    CHECK(m->random && !m->tied && m->files_n == 1 && m->file_bytes > 80 * MIB);
    CHECK(memcmp(m->files[0].p, again->files[0].p, m->file_bytes) == 0);
    const struct weight *down = &m->layers[11].down;
    CHECK(down->kind == WEIGHT_GPTQ && down->k == 2048 && down->groups == 16 && !down->zeros);
    CHECK((const char *)down->scales + 2 * 768 * 16 <= m->files[0].p + m->files[0].n);
    CHECK(memcmp(down->data, m->layers[10].down.data, 4096) != 0);
    /* dequantised, a row has root mean square near 1/sqrt(k) */
    double sum = 0;
    for (u32 k = 0; k < 2048; k++) {
        u32 word;
        memcpy(&word, (const char *)down->data + 4 * (size_t)(k / 8 * 768), 4);
        double x = ((double)(word >> k % 8 * 4 & 15) - 8) * bf16(down->scales, k / 128 * 768);
        sum += x * x;
    }
    CHECK(sum > 0.5 && sum < 2);
    for (u32 i = 0; i < 4096; i++)
        CHECK(isfinite(bf16(m->embed.data, i)) && fabsf(bf16(m->embed.data, i)) < 0.1f);
    const size_t bytes = m->file_bytes; /* for a plan nothing is made */
    CHECK(model_shape(&unit_arena, emptied(), "100m", 4, 4, 0, &m, &e) == ERR_OK);
    CHECK(!m->random && m->file_bytes == bytes && !m->files[0].p && !m->layers[0].down.data);
    CHECK(model_even_pos(m) == 4096); /* 768 * (2 * 16 * 64 + 3 * 2048) / (2 * 12 * 64) */
    for (u32 i = 0; i < 12; i++) {
        CHECK(model_even_pos(m) == 4096 * 12 / (12 - i));
        m->layers[i].window = 100;
    }
    CHECK(model_even_pos(m) == 0);
    CHECK(model_shape(&unit_arena, emptied(), "100b", 4, 4, 7, &m, &e) == ERR_USAGE);
}
