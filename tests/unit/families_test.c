#include "tests/unit/config_text.h"

#include <math.h>

#define KV "\"num_key_value_heads\":2"
#define ERNIE KV ",\"moe_num_experts\":8,\"moe_k\":2,\"moe_intermediate_size\":32"

void config_hunyuan(void)
{
    struct model m;
    struct config c;
    CHECK(opens("hunyuan_v1_dense", "\"head_dim\":128", &m, &c));
    CHECK(m.qk_norm == QK_NORM_TURNED && m.norm_eps == 1e-5f && m.kv_heads == m.heads && !m.tied);
    CHECK(!c.qkv_bias && !c.o_bias && m.rope[0].freq[32] == 0.01f);
    /* as Hunyuan-7B-Instruct has it: 1e4 * 1000^(128 / 126) */
    CHECK(opens("hunyuan_v1_dense",
                KV
                ",\"head_dim\":128,\"rope_theta\":10000.0,\"use_qk_norm\":true,\"use_cla\":false,"
                "\"attention_head_dim\":128,\"num_experts\":1,\"rope_scaling\":{\"alpha\":1000.0,"
                "\"beta_fast\":32,\"beta_slow\":1,\"factor\":1.0,\"mscale\":1.0,"
                "\"mscale_all_dim\":1.0,\"type\":\"dynamic\"}",
                &m, &c));
    CHECK(fabsf(m.rope[0].freq[32] * sqrtf(11158839.25f) - 1) < 1e-6f);
    CHECK(m.rope[0].scale == 1 && m.rope[0].dims == 128 && m.rope_long_from == 0);
}

/* ernie4_5_moe: ERNIE-4.5-21B-A3B and its like. */
void config_ernie_moe(void)
{
    struct model m;
    struct config c;
    CHECK(opens("ernie4_5_moe", ERNIE, &m, &c)); /* what the class has for all the rest */
    CHECK(m.experts == 8 && m.experts_used == 2 && m.expert_intermediate == 32);
    CHECK(m.experts_renormalized && m.experts_softmax && c.router_bias && m.experts_scale == 1);
    CHECK(m.experts_least == 1e-12f && m.shared_intermediate == 64 && !m.shared_gated);
    CHECK(!m.layers[0].mixture && m.layers[1].mixture && m.layers[3].mixture);
    CHECK(m.rope_pairs && m.tied && !c.qkv_bias && m.norm_eps == 1e-5f);
    CHECK(opens("ernie4_5_moe",
                ERNIE ",\"moe_num_shared_experts\":0,\"moe_layer_start_index\":0,"
                      "\"moe_layer_interval\":2,\"moe_layer_end_index\":2,"
                      "\"tie_word_embeddings\":false",
                &m, &c));
    CHECK(!m.layers[0].mixture && m.layers[1].mixture && !m.layers[2].mixture);
    CHECK(!m.layers[3].mixture && m.shared_intermediate == 0 && !m.tied);
}

#define MINICPM KV ",\"scale_emb\":12,\"scale_depth\":1.4,\"dim_model_base\":32"

/* MiniCPM4 and its like. */
void config_minicpm(void)
{
    struct model m;
    struct config c;
    CHECK(opens("minicpm", MINICPM, &m, &c)); /* r = 1.4 / sqrt(4) = 0.7 */
    CHECK(m.embed_scale == (float)(12 / 0.7) && m.norm_eps == (float)(1e-6 / 0.49));
    CHECK(m.logit_scale == 0.5f && m.attention_scale == 0.25f && m.tied && m.context == 256);
    CHECK(opens("minicpm",
                MINICPM ",\"num_experts\":0,\"tie_word_embeddings\":false,\"rms_norm_eps\":4.9e-5,"
                        "\"sparse_config\":{\"kernel_size\":32,\"dense_len\":128}",
                &m, &c));
    CHECK(m.context == 128 && !m.tied && m.norm_eps == (float)(4.9e-5 / 0.49));
}

void config_family_refusals(void)
{
    static const struct {
        const char *type, *more, *want;
    } cases[] = {
        {"hunyuan_v1_dense", KV ",\"use_cla\":true", "use_cla is true: layers that see keys"},
        {"hunyuan_v1_dense", KV ",\"use_qk_norm\":false", "use_qk_norm is false: only true"},
        {"hunyuan_v1_dense", KV ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1.0}",
         "rope_scaling.alpha is missing"},
        {"hunyuan_v1_dense",
         KV ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
            "\"original_max_position_embeddings\":64}",
         "rope_scaling.type is \"yarn\": it scales"},
        {"minicpm", KV, "scale_depth is missing"},
        {"minicpm", MINICPM ",\"num_experts\":8", "num_experts is 8: mixtures are not supported"},
        {"minicpm", MINICPM ",\"hidden_act\":\"fatrelu\"", "hidden_act is \"fatrelu\""},
        {"minicpm", MINICPM ",\"sparse_config\":{}", "sparse_config.dense_len is missing"},
        {"minicpm", KV ",\"scale_emb\":1,\"scale_depth\":1,\"dim_model_base\":0",
         "dim_model_base is 0"},
        {"ernie4_5_moe", KV, "moe_num_experts is missing"},
        {"ernie4_5_moe", KV ",\"moe_num_experts\":8", "moe_k is missing"},
        {"ernie4_5_moe", KV ",\"moe_num_experts\":8,\"moe_k\":9", "moe_k is 9: "},
        {"ernie4_5_moe", KV ",\"moe_num_experts\":8,\"moe_k\":2",
         "moe_intermediate_size is missing"},
        {"ernie4_5_moe", ERNIE ",\"moe_layer_interval\":0", "moe_layer_interval is 0"},
        {"ernie4_5_moe", ERNIE ",\"moe_layer_end_index\":-2", "moe_layer_end_index is -2"},
        {"ernie4_5_moe", ERNIE ",\"moe_norm_min\":1", "moe_norm_min is 1"},
        {"ernie4_5_moe", ERNIE ",\"use_bias\":true", "use_bias is true: only false"},
    };
    struct model m;
    struct config c;
    struct err_text e;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        bool refused = parse(config_text(cases[i].type, cases[i].more), &m, &c, &e) == ERR_MODEL;
        if (!refused || !strstr(e.text, cases[i].want))
            printf("    case %zu (%s): %s\n", i, cases[i].want, e.text);
        CHECK(refused && strstr(e.text, cases[i].want));
    }
}
