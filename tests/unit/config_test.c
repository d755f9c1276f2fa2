#include "tests/unit/config_text.h"

#include <math.h>

/* Is it the base of heads of 128 dimensions? */
static bool near_theta(const struct model *m, double theta)
{
    return fabs(m->rope[0].freq[1] - pow(theta, -1 / 64.0)) < 1e-6;
}

#define KV "\"num_key_value_heads\":2"

void config_class_defaults(void)
{
    struct model m;
    struct config c;
    CHECK(opens("llama", "", &m, &c));
    CHECK(m.kv_heads == 4 && m.head_dim == 16 && m.norm_eps == 1e-6f && !m.tied);
    CHECK(m.activation == ACT_SILU && m.rope[0].dims == 16 && m.rope[0].scale == 1);
    CHECK(m.embed_scale == 1 && m.attention_scale == 0.25f && m.layers[3].window == 0);
    CHECK(!c.qkv_bias && !c.o_bias && !c.mlp_bias && m.bos == -1 && m.n_eos == 0);
    CHECK(opens("mistral", KV, &m, &c));
    CHECK(m.layers[0].window == 4096 && m.layers[3].window == 4096);
    CHECK(opens("mistral", KV ",\"sliding_window\":null", &m, &c) && m.layers[0].window == 0);
    CHECK(opens("qwen2", KV, &m, &c));
    CHECK(c.qkv_bias && !c.o_bias && m.layers[3].window == 0);
    CHECK(opens("qwen3", KV, &m, &c));
    CHECK(m.head_dim == 128 && m.qk_norm == QK_NORM_HEADS && !c.qkv_bias);
    CHECK(opens("smollm3", KV, &m, &c));
    CHECK(m.tied && m.layers[2].rope == ROPE_FULL && m.layers[3].rope == ROPE_SETS);
    CHECK(opens("phi3", KV, &m, &c));
    CHECK(c.fused && m.n_qkv == 1 && m.n_gate_up == 1 && m.norm_eps == 1e-5f);
    CHECK(opens("gemma2", KV, &m, &c));
    CHECK(m.head_dim == 256 && m.tied && m.norm_plus_one && m.embed_scale == 8);
    CHECK(m.activation == ACT_GELU_TANH && m.attention_softcap == 50 && m.logit_softcap == 30);
    CHECK(m.layers[0].window == 4096 && m.layers[1].window == 0 && c.norms == NORMS_AROUND);
    CHECK(m.attention_scale == 1.0f / 16);
    CHECK(opens("gemma3_text", KV ",\"sliding_window_pattern\":3", &m, &c));
    CHECK(m.attention_softcap == 0 && m.logit_softcap == 0 && m.qk_norm == QK_NORM_HEADS);
    CHECK(m.layers[1].rope == ROPE_LOCAL && m.layers[1].window == 4096);
    CHECK(m.layers[2].rope == ROPE_FULL && m.layers[2].window == 0);
    CHECK(m.rope[ROPE_FULL].freq[1] < m.rope[ROPE_LOCAL].freq[1]); /* theta 1e6 and 1e4 */
    CHECK(opens("gemma", KV, &m, &c) && c.norms == NORMS_BEFORE && m.embed_scale == 8);
    CHECK(opens("gemma", KV ",\"hidden_act\":\"gelu\",\"hidden_activation\":null", &m, &c));
    CHECK(m.activation == ACT_GELU_TANH); /* gemma-2b and gemma-7b as they came first */
    CHECK(opens("llama", "\"hidden_act\":\"gelu\"", &m, &c) && m.activation == ACT_GELU);
    CHECK(opens("glm4", KV, &m, &c) && c.norms == NORMS_GLM && m.rope_pairs && m.n_qkv == 3);
    CHECK(m.n_gate_up == 1 && c.qkv_bias && !c.o_bias && m.head_dim == 128 && !m.norm_plus_one);
    CHECK(m.rope[0].dims == 64 && m.norm_eps == 1.5625e-7f && m.attention_softcap == 0);
    CHECK(opens("glm4", "\"attention_bias\":false", &m, &c) && !c.qkv_bias && m.kv_heads == 2);
    CHECK(opens("glm", "\"partial_rotary_factor\":0.25", &m, &c) && c.norms == NORMS_BEFORE);
    CHECK(m.rope_pairs && m.rope[0].dims == 32 && m.n_gate_up == 1 && c.qkv_bias && !c.o_bias);
    CHECK(opens("olmo2", KV, &m, &c) && c.norms == NORMS_AFTER && m.qk_norm == QK_NORM_ROWS);
    CHECK(layer_qk_norm_n(&m, m.layers, m.heads) == 64 &&
          layer_qk_norm_n(&m, m.layers, m.kv_heads) == 32);
    CHECK(m.norm_eps == 1e-5f && m.attention_scale == 0.25f && m.attention_softcap == 0);
    CHECK(!m.norm_plus_one && m.embed_scale == 1 && m.activation == ACT_SILU && !m.tied);
    CHECK(opens("olmo3", KV ",\"rope_theta\":500000", &m, &c) && c.norms == NORMS_AFTER);
    CHECK(m.layers[2].window == 4096 && m.layers[3].window == 0 && m.qk_norm == QK_NORM_ROWS);
    CHECK(m.layers[2].rope == ROPE_LOCAL && m.layers[3].rope == ROPE_FULL);
}

/* Families whose files say in their own ways which matrices have biases. */
void config_biases(void)
{
    struct model m;
    struct config c;
    CHECK(opens("seed_oss", KV, &m, &c) && c.qkv_bias && !c.o_bias && !c.mlp_bias && !m.tied);
    CHECK(m.head_dim == 128 && m.norm_eps == 1e-6f && !m.rope_pairs && m.n_gate_up == 2);
    CHECK(near_theta(&m, 1e4) && m.attention_scale == (float)(1 / sqrt(128)));
    CHECK(opens("seed_oss", KV ",\"attention_bias\":false,\"attention_out_bias\":true", &m, &c));
    CHECK(!c.qkv_bias && c.o_bias && !c.mlp_bias);
    CHECK(opens("seed_oss", KV ",\"mlp_bias\":true", &m, &c) && c.mlp_bias && !c.o_bias);
    CHECK(opens("ernie4_5", "", &m, &c) && !c.qkv_bias && !c.o_bias && !c.mlp_bias && m.tied);
    CHECK(m.head_dim == 128 && m.norm_eps == 1e-5f && m.rope_pairs && m.rope[0].dims == 128);
    CHECK(m.kv_heads == 2 && near_theta(&m, 5e5) && m.n_gate_up == 2);
    CHECK(opens("ernie4_5", "\"use_bias\":true,\"compression_ratio\":1.0", &m, &c));
    CHECK(c.qkv_bias && c.o_bias && c.mlp_bias);
}

#define SLIDES(a, b, c, d)                                                              \
    "\"layer_types\":[\"" a "_attention\",\"" b "_attention\",\"" c "_attention\",\"" d \
    "_attention\"]"

void config_ministral(void)
{
    struct model m;
    struct config c;
    CHECK(opens("ministral", KV, &m, &c) && m.layers[0].window == 4096 && !c.qkv_bias);
    CHECK(m.layers[3].window == 4096 && m.norm_eps == 1e-6f && m.head_dim == 16);
    CHECK(opens("ministral", KV ",\"sliding_window\":null", &m, &c) && m.layers[0].window == 0);
    CHECK(opens("ministral",
                KV ",\"sliding_window\":8," SLIDES("full", "sliding", "sliding", "full"), &m, &c));
    CHECK(m.layers[0].window == 0 && m.layers[1].window == 8 && m.layers[3].window == 0);
    CHECK(m.layers[0].rope == ROPE_FULL && m.layers[1].rope == ROPE_FULL);

    /* as Ministral-3 has it, but shorter; text of a model that sees or alone */
    static const char rope[] =
        KV ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"type\":\"yarn\",\"rope_theta\":1e6,"
           "\"factor\":16.0,\"original_max_position_embeddings\":16,\"beta_fast\":32.0,"
           "\"beta_slow\":1.0,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"llama_4_scaling_beta\":%s}";
    char more[512];
    struct err_text e;
    snprintf(more, sizeof more, rope, "0.1");
    CHECK(opens("ministral3", more, &m, &c) && m.context == 256 && m.rope[0].scale == 1);
    CHECK(m.query_span == 16 && m.query_scale[0] == 1 && m.query_scale[1] == 1.06931472f);
    CHECK(m.query_scale[15] == 1.27725887f);
    CHECK(m.head_dim == 128 && m.norm_eps == 1e-5f && m.layers[0].window == 0 && !m.tied);
    snprintf(more, sizeof more, rope, "0");
    CHECK(opens("ministral3", more, &m, &c) && m.context == 256 && !m.query_scale);
    char text[2048];
    snprintf(text, sizeof text, "{\"model_type\":\"mistral3\",\"text_config\":%s}",
             config_text("ministral3", more));
    CHECK(parse(text, &m, &c, &e) == ERR_OK && c.sees && str_is(m.model_type, "ministral3"));
}

void config_exaone4(void)
{
    struct model m;
    struct config c;
    CHECK(opens("exaone4", KV, &m, &c) && c.norms == NORMS_AFTER && m.qk_norm == QK_NORM_HEADS);
    CHECK(m.layers[2].window == 4096 && m.layers[2].rope == ROPE_FULL && m.norm_eps == 1e-5f);
    CHECK(m.layers[3].window == 0 && m.layers[3].rope == ROPE_SETS && !c.qkv_bias && !c.o_bias);
    CHECK(opens("exaone4", KV ",\"sliding_window\":8,\"sliding_window_pattern\":2", &m, &c));
    CHECK(m.layers[0].window == 8 && m.layers[1].window == 0 && m.layers[1].rope == ROPE_SETS);
    /* EXAONE-4.0-32B, and 1.2B */
    CHECK(opens(
        "exaone4",
        KV ",\"sliding_window_pattern\":\"LLLG\"," SLIDES("full", "sliding", "sliding", "full"), &m,
        &c));
    CHECK(m.layers[0].window == 0 && m.layers[0].rope == ROPE_SETS);
    CHECK(m.layers[1].window == 4096 && m.layers[1].rope == ROPE_FULL);
    CHECK(opens("exaone4",
                KV ",\"sliding_window\":null,\"sliding_window_pattern\":null," SLIDES(
                    "full", "full", "full", "full"),
                &m, &c));
    for (u32 i = 0; i < 4; i++)
        CHECK(m.layers[i].window == 0 && m.layers[i].rope == ROPE_FULL);
}

/* granite-3.1-2b-instruct's numbers. */
void config_multipliers(void)
{
    struct model m;
    struct config c;
    CHECK(opens("granite",
                "\"attention_multiplier\":0.015625,\"embedding_multiplier\":12.0,"
                "\"logits_scaling\":8.0,\"residual_multiplier\":0.22,\"rms_norm_eps\":1e-05,"
                "\"attention_bias\":true,\"mlp_bias\":true",
                &m, &c));
    CHECK(m.attention_scale == 1.0f / 64 && m.logit_scale == 0.125f);
    CHECK(m.embed_scale == (float)(12 / 0.22) && m.norm_eps == (float)(1e-5 / (0.22 * 0.22)));
    CHECK(c.o_bias && c.mlp_bias && !c.rounds_embed_scale && !m.norm_plus_one);
    CHECK(opens("granite", "", &m, &c)); /* all of them 1 */
    CHECK(m.attention_scale == 1 && m.embed_scale == 1 && m.logit_scale == 1);
    CHECK(m.norm_eps == 1e-6f && !m.tied && m.kv_heads == 4 && m.layers[0].window == 0);
    CHECK(opens("llama", "\"attention_multiplier\":0.5", &m, &c) && m.attention_scale == 0.25f);
    CHECK(opens("gemma2", KV, &m, &c) && c.rounds_embed_scale && m.logit_scale == 1);
}

#define HYBRID "\"shared_intermediate_size\":96,\"layer_types\":"
#define ATTEND "[\"attention\",\"attention\",\"attention\",\"full_attention\"]"

void config_granite_hybrid(void)
{
    struct model m;
    struct config c;
    CHECK(opens("granitemoehybrid",
                HYBRID ATTEND ",\"position_embedding_type\":\"rope\",\"num_local_experts\":0,"
                              "\"logits_scaling\":4,\"mamba_n_heads\":0",
                &m, &c));
    CHECK(m.layers[3].intermediate == 96 && m.n_gate_up == 1 && m.n_qkv == 3 && c.shared_mlp);
    CHECK(m.layers[3].rope == ROPE_FULL && !m.tied && m.logit_scale == 0.25f && m.kv_heads == 4);
    CHECK(opens("granitemoehybrid",
                HYBRID "[],\"layers_block_type\":" ATTEND ",\"position_embedding_type\":null", &m,
                &c));
    CHECK(m.layers[0].rope == ROPE_SETS && m.layers[3].rope == ROPE_SETS && !m.delta.value_heads);
    CHECK(m.experts == 8 && m.experts_used == 2 && m.layers[0].mixture && c.shared_mlp);
    CHECK(m.expert_intermediate == 128 && m.shared_intermediate == 96 && !m.shared_gated);
    CHECK(m.experts_renormalized && m.experts_scale == 1 && m.intermediate == 96);
}

#define MOE "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

void config_experts(void)
{
    struct model m;
    struct config c;
    CHECK(opens("qwen3_moe", MOE ",\"num_experts\":8", &m, &c)); /* as transformers 4 names it */
    CHECK(m.experts == 8 && m.experts_used == 2 && m.expert_intermediate == 32);
    CHECK(!m.experts_renormalized && m.qk_norm == QK_NORM_HEADS && m.kv_heads == 4 &&
          m.head_dim == 16);
    for (u32 i = 0; i < 4; i++)
        CHECK(m.layers[i].mixture && m.layers[i].mixture->experts && m.layers[i].window == 0);
    CHECK(opens("qwen3_moe",
                MOE ",\"num_local_experts\":8,\"norm_topk_prob\":true,\"mlp_only_layers\":[3,99],"
                    "\"decoder_sparse_step\":2,\"sliding_window\":4096,\"head_dim\":32",
                &m, &c)); /* as 5 does */
    CHECK(m.experts == 8 && m.experts_renormalized && m.head_dim == 32 && m.intermediate == 128);
    CHECK(!m.layers[0].mixture && m.layers[1].mixture && !m.layers[2].mixture);
    CHECK(!m.layers[3].mixture && m.layers[1].window == 0);
    CHECK(opens("mixtral",
                "\"num_local_experts\":8,\"num_experts_per_tok\":8,"
                "\"num_key_value_heads\":2,\"router_aux_loss_coef\":0.02",
                &m, &c));
    CHECK(m.experts == 8 && m.experts_used == 8 && m.expert_intermediate == 128);
    CHECK(m.experts_renormalized && m.norm_eps == 1e-5f && m.layers[0].window == 0);
    CHECK(m.rope[ROPE_FULL].freq[1] < 0.2f); /* 1e6^-(1/8) */
    CHECK(opens("qwen2_moe",
                KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96,"
                   "\"mlp_only_layers\":[1],\"sliding_window\":0",
                &m, &c)); /* as 5 writes it */
    CHECK(m.experts == 8 && m.expert_intermediate == 32 && m.shared_intermediate == 96);
    CHECK(c.qkv_bias && !c.o_bias && !m.experts_renormalized && !m.layers[1].mixture);
    CHECK(opens("qwen2_moe",
                KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96,"
                   "\"qkv_bias\":false,\"sliding_window\":4096",
                &m, &c));
    CHECK(!c.qkv_bias && m.layers[1].mixture && m.layers[0].window == 0);
    CHECK(opens("granitemoe",
                "\"num_local_experts\":40,\"num_experts_per_tok\":8,\"logits_scaling\":6.0", &m,
                &c));
    CHECK(m.experts == 40 && m.expert_intermediate == 128 && m.experts_renormalized);
    CHECK(m.logit_scale == (float)(1 / 6.0) && m.layers[0].mixture && !c.mlp_bias);
    CHECK(opens("olmoe", "\"num_experts\":8,\"num_experts_per_tok\":3,\"clip_qkv\":null", &m, &c));
    CHECK(m.experts == 8 && m.expert_intermediate == 128 && !m.experts_renormalized);
    CHECK(m.qk_norm == QK_NORM_ROWS && c.norms == NORMS_BEFORE && m.layers[3].mixture);
    CHECK(opens("olmoe", "\"num_experts\":8,\"num_experts_per_tok\":3,\"norm_topk_prob\":true", &m,
                &c));
    CHECK(m.experts_renormalized);
    CHECK(opens("qwen3", KV, &m, &c) && m.experts == 0 && !m.layers[0].mixture);
}

#define GLM KV "," MOE ",\"n_routed_experts\":8"

/* glm4_moe: GLM-4.5 and its like. */
void config_biased_experts(void)
{
    struct model m;
    struct config c;
    CHECK(opens("glm4_moe", GLM, &m, &c)); /* what the class has for all the rest */
    CHECK(m.experts == 8 && m.experts_used == 2 && m.expert_intermediate == 32);
    CHECK(m.experts_renormalized && m.experts_scale == 1 && c.router_bias && c.more_layers == 1);
    CHECK(m.shared_intermediate == 32 && !m.shared_gated && m.intermediate == 128);
    CHECK(!m.layers[0].mixture && m.layers[1].mixture && m.layers[3].mixture);
    CHECK(m.qk_norm == QK_NORM_NONE && !c.qkv_bias && !c.o_bias && !m.tied && !m.rope_pairs);
    CHECK(m.rope[ROPE_FULL].dims == 8 && m.head_dim == 16 && m.norm_eps == 1e-5f);
    CHECK(c.norms == NORMS_BEFORE && m.n_gate_up == 2 && m.n_qkv == 3);
    CHECK(opens("glm4_moe",
                GLM ",\"num_local_experts\":8,\"n_shared_experts\":3,\"norm_topk_prob\":false,"
                    "\"routed_scaling_factor\":2.5,\"first_k_dense_replace\":3,"
                    "\"num_nextn_predict_layers\":2,\"num_mtp_layers\":5,\"n_group\":1,"
                    "\"topk_group\":1,\"use_qk_norm\":true,\"attention_bias\":true,"
                    "\"head_dim\":32,\"partial_rotary_factor\":0.25",
                &m, &c));
    CHECK(m.shared_intermediate == 96 && !m.experts_renormalized && m.experts_scale == 2.5f);
    CHECK(!m.layers[2].mixture && m.layers[3].mixture && c.more_layers == 2);
    CHECK(m.qk_norm == QK_NORM_HEADS && c.qkv_bias && !c.o_bias && m.rope[ROPE_FULL].dims == 8);
    CHECK(opens("glm4_moe", GLM ",\"first_k_dense_replace\":0,\"num_mtp_layers\":0", &m, &c));
    CHECK(m.layers[0].mixture && c.more_layers == 0);
    CHECK(opens("qwen2_moe", KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96",
                &m, &c));
    CHECK(m.shared_gated && m.experts_scale == 1 && !c.router_bias && c.more_layers == 0);
}

/* gemma3 and mistral3: the language model in text_config, with the defaults of its class. The
 * first is gemma-3-4b-it, the second Mistral-Small-3.1. */
void config_text_parts(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"architectures\":["
                "\"Gemma3ForConditionalGeneration\"],\"text_config\":{\"hidden_size\":2560,"
                "\"intermediate_size\":10240,\"model_type\":\"gemma3_text\","
                "\"num_hidden_layers\":34,\"rope_scaling\":{\"factor\":8.0,\"rope_type\":"
                "\"linear\"},\"sliding_window\":1024},\"vision_config\":{\"hidden_size\":1152}}",
                &m, &c, &e) == ERR_OK);
    CHECK(c.sees && !c.headless && m.tied && m.n_eos == 2 && str_is(m.model_type, "gemma3_text"));
    CHECK(m.heads == 8 && m.kv_heads == 4 && m.head_dim == 256 && m.vocab == 262208);
    CHECK(m.context == 131072 && m.layers[4].window == 1024 && m.layers[5].window == 0);
    CHECK(m.rope[ROPE_FULL].freq[0] == 0.125f && m.rope[ROPE_LOCAL].freq[0] == 1);
    CHECK(m.attention_scale == 1.0f / 16 && m.activation == ACT_GELU_TANH);
    CHECK(
        parse("{\"model_type\":\"mistral3\",\"text_config\":{\"head_dim\":128,\"hidden_size\":5120,"
              "\"intermediate_size\":32768,\"max_position_embeddings\":131072,"
              "\"num_attention_heads\":32,\"num_hidden_layers\":40,\"num_key_value_heads\":8,"
              "\"rope_theta\":1000000000.0,\"sliding_window\":null,\"vocab_size\":131072},"
              "\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128}}",
              &m, &c, &e) == ERR_OK);
    CHECK(c.sees && !m.tied && str_is(m.model_type, "mistral") && c.quant.method == QUANT_AWQ);
    CHECK(m.layers[0].window == 0 && m.kv_heads == 8 && m.heads == 32);
}

/* As in Qwen2.5-VL-7B-Instruct-AWQ, whose text part's keys are beside the others, and in
 * Qwen3-VL-8B-Instruct. */
void config_positions_of_three_kinds(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    const char *flat =
        "{\"architectures\":[\"Qwen2_5_VLForConditionalGeneration\"],\"eos_token_id\":151645,"
        "\"hidden_size\":3584,\"intermediate_size\":18944,\"max_position_embeddings\":128000,"
        "\"max_window_layers\":28,\"model_type\":\"%s\",\"num_attention_heads\":28,"
        "\"num_hidden_layers\":28,\"num_key_value_heads\":4,\"quantization_config\":{\"bits\":4,"
        "\"group_size\":128,\"modules_to_not_convert\":[\"visual\"],\"quant_method\":\"awq\","
        "\"version\":\"gemm\",\"zero_point\":true},\"rms_norm_eps\":1e-06,\"rope_scaling\":"
        "{\"mrope_section\":[16,24,24],%s\"type\":\"mrope\"},\"rope_theta\":1000000.0,"
        "\"sliding_window\":32768,\"tie_word_embeddings\":false,\"use_sliding_window\":false,"
        "\"vision_config\":{\"hidden_size\":1280},\"vocab_size\":152064}";
    const char *const names[] = {"qwen2_5_vl", "qwen2_vl"};
    const char *const types[] = {"", "\"rope_type\":\"default\","};
    char text[2048], name[32];
    for (size_t i = 0; i < 4; i++) {
        snprintf(text, sizeof text, flat, names[i / 2], types[i % 2]);
        snprintf(name, sizeof name, "%s_text", names[i / 2]);
        CHECK(parse(text, &m, &c, &e) == ERR_OK);
        CHECK(c.sees && !c.headless && c.qkv_bias && !c.o_bias && c.quant.method == QUANT_AWQ);
        CHECK(str_is(m.model_type, name) && m.kv_heads == 4 && m.head_dim == 128);
        CHECK(m.layers[27].window == 0 && m.rope[ROPE_FULL].scale == 1 && m.eos[0] == 151645);
        CHECK(fabsf(m.rope[ROPE_FULL].freq[32] - 1e-3f) < 1e-9f);
    }
    CHECK(parse("{\"architectures\":[\"Qwen3VLForConditionalGeneration\"],\"model_type\":"
                "\"qwen3_vl\",\"text_config\":{\"attention_bias\":false,\"eos_token_id\":151645,"
                "\"head_dim\":128,\"hidden_size\":4096,\"intermediate_size\":12288,"
                "\"max_position_embeddings\":262144,\"model_type\":\"qwen3_vl_text\","
                "\"num_attention_heads\":32,\"num_hidden_layers\":36,\"num_key_value_heads\":8,"
                "\"rope_scaling\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],"
                "\"rope_type\":\"default\"},\"rope_theta\":5000000,\"vocab_size\":151936},"
                "\"tie_word_embeddings\":false,\"vision_config\":{\"depth\":27}}",
                &m, &c, &e) == ERR_OK);
    CHECK(c.sees && !c.qkv_bias && m.qk_norm == QK_NORM_HEADS && m.context == 262144);
}

/* Qwen3.5-27B's config.json, shortened; and one of experts, one of qwen3_next. */
void config_delta_nets(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":"
                "\"qwen3_5\",\"text_config\":{\"attention_bias\":false,\"attn_output_gate\":true,"
                "\"eos_token_id\":248044,\"full_attention_interval\":4,\"head_dim\":256,"
                "\"hidden_size\":5120,\"intermediate_size\":17408,\"linear_conv_kernel_dim\":4,"
                "\"linear_key_head_dim\":128,\"linear_num_key_heads\":16,"
                "\"linear_num_value_heads\":48,\"linear_value_head_dim\":128,"
                "\"mamba_ssm_dtype\":\"float32\",\"max_position_embeddings\":262144,"
                "\"mtp_num_hidden_layers\":1,\"num_attention_heads\":24,\"num_hidden_layers\":64,"
                "\"num_key_value_heads\":4,\"output_gate_type\":\"swish\",\"rope_parameters\":{"
                "\"mrope_interleaved\":true,\"mrope_section\":[11,11,10],\"rope_type\":"
                "\"default\",\"rope_theta\":10000000,\"partial_rotary_factor\":0.25},"
                "\"vocab_size\":248320},\"tie_word_embeddings\":false,\"vision_config\":{}}",
                &m, &c, &e) == ERR_OK);
    CHECK(str_is(m.model_type, "qwen3_5_text") && c.sees && m.norm_plus_one && m.attention_gated);
    CHECK(m.rope[0].dims == 64 && m.context == 262144 && model_attention_layers(&m) == 16);
    CHECK(m.layers[2].delta && !m.layers[3].delta && m.layers[62].delta && !m.layers[63].delta);
    CHECK(delta_channels(&m.delta) == 10240 && delta_values(&m.delta) == 6144);
    CHECK(model_qkv_n(&m) == 2 * 24 * 256 + 2 * 4 * 256 && delta_row_n(&m.delta) == 16480);
    CHECK(delta_place(&m.delta, DELTA_PART_K).at == 2048 && !m.delta.joined);
    CHECK(delta_place(&m.delta, DELTA_PART_Z).at == 10240 &&
          delta_place(&m.delta, DELTA_PART_Z).step == 384);
    CHECK(delta_place(&m.delta, DELTA_PART_A).at == 16432 &&
          delta_place(&m.delta, DELTA_PART_A).step == 3);
    CHECK(opens("qwen3_5_moe_text",
                "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                "\"shared_expert_intermediate_size\":64,\"layer_types\":[\"full_attention\","
                "\"linear_attention\",\"linear_attention\",\"full_attention\"]",
                &m, &c));
    CHECK(!m.layers[0].delta && m.layers[1].delta && m.layers[2].delta && !m.layers[3].delta);
    CHECK(m.experts_renormalized && m.shared_gated && m.delta.value_heads == 32);
    CHECK(opens("qwen3_next",
                "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                "\"shared_expert_intermediate_size\":64,\"linear_num_key_heads\":2,"
                "\"linear_num_value_heads\":4,\"linear_key_head_dim\":16,"
                "\"linear_value_head_dim\":32",
                &m, &c));
    CHECK(m.experts_renormalized && m.delta.joined && delta_inputs(&m.delta) == 2);
    CHECK(delta_place(&m.delta, DELTA_PART_V).at == 32 &&
          delta_place(&m.delta, DELTA_PART_V).step == 160);
    CHECK(delta_place(&m.delta, DELTA_PART_B).at == 320 &&
          delta_place(&m.delta, DELTA_PART_A).at == 322 &&
          delta_place(&m.delta, DELTA_PART_A).step == 4);
    CHECK(opens("qwen3_5_text", "\"full_attention_interval\":1", &m, &c));
    CHECK(m.delta.value_heads == 0 && m.attention_gated && model_attention_layers(&m) == 4);
}

#define MXFP4 "\"quantization_config\":{\"quant_method\":\"mxfp4\"}"
#define OSS KV ",\"num_local_experts\":8,\"num_experts_per_tok\":2," MXFP4

/* gpt-oss-20b's own file, but for half of its layers. */
void config_gpt_oss(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"GptOssForCausalLM\"],\"attention_bias\":true,"
                "\"eos_token_id\":200002,\"experts_per_token\":4,\"head_dim\":64,\"hidden_act\":"
                "\"silu\",\"hidden_size\":2880,\"initial_context_length\":4096,"
                "\"intermediate_size\":2880,\"max_position_embeddings\":131072,\"model_type\":"
                "\"gpt_oss\",\"num_attention_heads\":64,\"num_experts_per_tok\":4,"
                "\"num_hidden_layers\":12,\"num_key_value_heads\":8,\"num_local_experts\":32,"
                "\"quantization_config\":{\"modules_to_not_convert\":[\"lm_head\"],"
                "\"quant_method\":\"mxfp4\"},\"rms_norm_eps\":1e-05,\"rope_scaling\":{"
                "\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":32.0,"
                "\"original_max_position_embeddings\":4096,\"rope_type\":\"yarn\",\"truncate\":"
                "false},\"rope_theta\":150000,\"sliding_window\":128,\"swiglu_limit\":7.0,"
                "\"tie_word_embeddings\":false,\"vocab_size\":201088}",
                &m, &c, &e) == ERR_OK);
    CHECK(c.gpt_oss && c.qkv_bias && c.o_bias && !c.mlp_bias && !c.router_bias);
    CHECK(c.quant.method == QUANT_MXFP4 && m.activation == ACT_GPT_OSS && m.eos[0] == 200002);
    CHECK(m.experts == 32 && m.experts_used == 4 && m.expert_intermediate == 2880);
    CHECK(m.experts_renormalized && m.experts_scale == 1 && m.shared_intermediate == 0);
    CHECK(m.layers[0].window == 128 && m.layers[1].window == 0 && m.layers[11].window == 0);
    CHECK(m.rope[0].dims == 64 && fabsf(m.rope[0].scale - 1.3465736f) < 1e-6f);
    CHECK(opens("gpt_oss", OSS "," SLIDES("full", "full", "sliding", "full"), &m, &c));
    CHECK(m.head_dim == 64 && m.kv_heads == 2 && m.layers[2].window == 128 && !m.layers[0].window);
}

void config_keys_are_honoured(void)
{
    struct model m;
    struct config c;
    CHECK(opens("llama",
                "\"attention_bias\":true,\"mlp_bias\":true,\"head_dim\":32,"
                "\"hidden_act\":\"gelu\",\"eos_token_id\":[2,7,2],\"bos_token_id\":1,"
                "\"tie_word_embeddings\":true,\"rms_norm_eps\":1e-5",
                &m, &c));
    CHECK(c.qkv_bias && c.o_bias && c.mlp_bias && m.head_dim == 32 && m.activation == ACT_GELU);
    CHECK(m.n_eos == 2 && m.eos[1] == 7 && m.bos == 1 && m.tied);
    CHECK(opens("qwen2",
                KV ",\"use_sliding_window\":true,\"sliding_window\":9,"
                   "\"max_window_layers\":2",
                &m, &c));
    CHECK(m.layers[1].window == 0 && m.layers[2].window == 9);
    CHECK(opens("qwen3",
                KV ",\"use_sliding_window\":true,\"sliding_window\":9,\"layer_types\":["
                   "\"sliding_attention\",\"full_attention\",\"full_attention\","
                   "\"sliding_attention\"]",
                &m, &c));
    CHECK(m.layers[0].window == 9 && m.layers[1].window == 0 && m.layers[3].window == 9);
    CHECK(opens("smollm3",
                KV ",\"no_rope_layers\":[0,1,1,0],\"use_sliding_window\":true,"
                   "\"sliding_window\":5",
                &m, &c));
    CHECK(m.layers[0].rope == ROPE_SETS && m.layers[1].rope == ROPE_FULL);
    CHECK(m.layers[0].window == 5 && m.layers[1].window == 0);
    CHECK(opens("phi3", KV ",\"sliding_window\":11,\"partial_rotary_factor\":0.75", &m, &c));
    CHECK(m.layers[2].window == 11 && m.rope[0].dims == 12);
    CHECK(opens("gemma2",
                KV ",\"query_pre_attn_scalar\":64,\"attn_logit_softcapping\":null,"
                   "\"final_logit_softcapping\":20.5",
                &m, &c));
    CHECK(m.attention_scale == 0.125f && m.attention_softcap == 0 && m.logit_softcap == 20.5f);
}

static bool same_rope(const struct rope *a, const struct rope *b)
{
    return a->dims == b->dims && a->scale == b->scale &&
           memcmp(a->freq, b->freq, a->dims / 2 * sizeof *a->freq) == 0;
}

void config_both_transformers_forms(void)
{
    struct model v4, v5;
    struct config c;
    CHECK(opens("llama",
                "\"torch_dtype\":\"float16\",\"rope_theta\":5e5,\"rope_scaling\":{"
                "\"type\":\"linear\",\"factor\":4}",
                &v4, &c));
    CHECK(opens("llama",
                "\"dtype\":\"float16\",\"rope_parameters\":{\"rope_theta\":500000,"
                "\"rope_type\":\"linear\",\"factor\":4.0}",
                &v5, &c));
    CHECK(same_rope(&v4.rope[0], &v5.rope[0]) && v4.rope[0].freq[0] == 0.25f);
    CHECK(opens("gemma3_text",
                KV ",\"rope_theta\":2e6,\"rope_local_base_freq\":3e4,"
                   "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}",
                &v4, &c));
    CHECK(opens("gemma3_text",
                KV ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":2e6,"
                   "\"rope_type\":\"linear\",\"factor\":8},\"sliding_attention\":{"
                   "\"rope_theta\":3e4,\"rope_type\":\"default\"}}",
                &v5, &c));
    CHECK(same_rope(&v4.rope[0], &v5.rope[0]) && same_rope(&v4.rope[1], &v5.rope[1]));
    CHECK(v4.rope[0].freq[0] == 0.125f && v4.rope[1].freq[0] == 1);
    /* as Olmo-3-7B has it, and as 5 writes that */
    CHECK(opens("olmo3",
                "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8.0,"
                "\"attention_factor\":1.2,\"original_max_position_embeddings\":64}",
                &v4, &c));
    CHECK(opens("olmo3",
                "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5e5,\"rope_type\":"
                "\"yarn\",\"factor\":8.0,\"attention_factor\":1.2,"
                "\"original_max_position_embeddings\":64},\"sliding_attention\":{"
                "\"rope_type\":\"default\"}}",
                &v5, &c));
    CHECK(same_rope(&v4.rope[0], &v5.rope[0]) && same_rope(&v4.rope[1], &v5.rope[1]));
    CHECK(v4.rope[0].scale == 1.2f && v4.rope[1].scale == 1);
    /* null in place of an object, as transformers 4 writes it */
    CHECK(opens("llama", "\"rope_scaling\":null,\"rope_parameters\":null", &v4, &c));
}

static bool near(const struct rope *r, u32 dims, const u32 *at, const double *want, u32 n)
{
    if (r->dims != dims)
        return false;
    for (u32 i = 0; i < n; i++)
        if (!(fabs(r->freq[at ? at[i] : i] - want[i]) <= 4e-7 * want[i])) {
            printf("    frequency %u is %.9g, %.9g expected\n", at ? at[i] : i,
                   (double)r->freq[at ? at[i] : i], want[i]);
            return false;
        }
    return true;
}

/* Tables computed in double precision by a few lines of Python from the formulas of the papers. */
void rope_tables(void)
{
    struct model m;
    struct config c;
    static const double plain[] = {1,    0.316227766,   0.1,   0.0316227766,
                                   0.01, 0.00316227766, 0.001, 0.000316227766};
    CHECK(opens("llama", "", &m, &c) && near(&m.rope[0], 16, NULL, plain, 8));
    CHECK(m.rope_long_from == 0 && same_rope(&m.rope[0], &m.rope_long[0]));

    static const double stretched[] = {0.25,   0.0790569415,   0.025,   0.00790569415,
                                       0.0025, 0.000790569415, 0.00025, 7.90569415e-05};
    CHECK(opens("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", &m, &c));
    CHECK(near(&m.rope[0], 16, NULL, stretched, 8));

    static const u32 at3[] = {0, 10, 13, 14, 15, 16, 17, 18, 31};
    static const double llama3[] = {1,
                                    0.0165604401,
                                    0.00483942135,
                                    0.00321144599,
                                    0.00129054793,
                                    0.000429556797,
                                    9.7082878e-05,
                                    1.94616382e-05,
                                    9.41830673e-08};
    CHECK(opens("llama",
                "\"head_dim\":64,\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":"
                "\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4,"
                "\"original_max_position_embeddings\":8192}",
                &m, &c));
    CHECK(near(&m.rope[0], 64, at3, llama3, 9) && m.rope[0].scale == 1);
}

void rope_yarn_and_longrope(void)
{
    struct model m;
    struct config c;
    static const u32 at_yarn[] = {0, 20, 24, 30, 36, 40, 41, 63};
    static const double yarn[] = {1,
                                  0.0133352143,
                                  0.00537532149,
                                  0.00106436098,
                                  0.000179841156,
                                  4.44569853e-05,
                                  3.58253143e-05,
                                  3.1023444e-07};
    CHECK(opens("qwen3",
                KV ",\"rope_theta\":1000000,\"rope_scaling\":{\"rope_type\":\"yarn\","
                   "\"factor\":4.0,\"original_max_position_embeddings\":32768}",
                &m, &c));
    CHECK(near(&m.rope[0], 128, at_yarn, yarn, 8) && m.rope[0].scale == 1.138629436f);
    /* as DeepSeek-R1-0528-Qwen3-8B has it: times 1.138629436 */
    static const char attn_factor[] =
        KV ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
           "\"original_max_position_embeddings\":32768,\"attn_factor\":0.8782488562869419%s}";
    char more[256];
    snprintf(more, sizeof more, attn_factor, "");
    CHECK(opens("qwen3", more, &m, &c) && m.rope[0].scale == 1);
    snprintf(more, sizeof more, attn_factor, ",\"attention_factor\":1.5");
    CHECK(opens("qwen3", more, &m, &c) && m.rope[0].scale == 1.5f);

    static const u32 at_soft[] = {0, 3, 6, 9, 12, 15};
    static const double soft[] = {1,        0.177827941,   0.025771617, 0.000702926656,
                                  0.000125, 2.22284926e-05};
    CHECK(opens("llama",
                "\"head_dim\":32,\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,"
                "\"original_max_position_embeddings\":2048,\"beta_fast\":16,"
                "\"beta_slow\":2,\"truncate\":false,\"mscale\":0.7,"
                "\"mscale_all_dim\":1.3}",
                &m, &c));
    CHECK(near(&m.rope[0], 32, at_soft, soft, 6) && m.rope[0].scale == 0.901783987f);

    static const double near_by[] = {
        1, 0.195857699, 0.0386799069, 0.00769230769, 0.00153888192, 0.000309439256};
    static const double far_off[] = {1,       0.107721735,    0.0116039721,
                                     0.00125, 0.000134652168, 1.45049651e-05};
    static const char longrope[] =
        KV ",\"partial_rotary_factor\":0.75,\"original_max_position_embeddings\":128,"
           "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.1,1.2,1.3,1.4,1.5],"
           "\"long_factor\":[1,2,4,8,16,32]}";
    CHECK(opens("phi3", longrope, &m, &c));
    CHECK(near(&m.rope[0], 12, NULL, near_by, 6) && near(&m.rope_long[0], 12, NULL, far_off, 6));
    CHECK(m.rope_long_from == 128); /* context 256: sqrt(1 + ln 2 / ln 128) */
    CHECK(m.rope[0].scale == sqrtf(1 + 1 / 7.0f) && m.rope_long[0].scale == m.rope[0].scale);
}

void config_refusals(void)
{
    static const struct {
        const char *type, *more, *says; /* `says` stands in the message */
    } cases[] = {
        {"gpt2", "", "model_type is \"gpt2\": llama, mistral"},
        {"gemma3", "", "text_config.hidden_size is missing"},
        {"qwen3", KV ",\"rope_scaling\":{\"type\":\"mrope\"}",
         "rope_scaling.type is \"mrope\": default"},
        {"qwen2_5_vl", "\"text_config\":{\"model_type\":\"qwen9\"}",
         "text_config.model_type is \"qwen9\": llama, mistral"},
        {"gemma3", "\"text_config\":3", "text_config is 3: an object"},
        {"mistral3", "\"text_config\":{\"model_type\":\"ministral4\"}",
         "text_config.model_type is \"ministral4\": llama, mistral"},
        {"llama", "\"hidden_act\":\"relu\"", "hidden_act is \"relu\""},
        {"llama", "\"hidden_act\":3", "hidden_act is 3: a string"},
        {"gemma", "\"hidden_activation\":\"gelu\"", "hidden_activation is \"gelu\": versions"},
        {"llama", "\"num_key_value_heads\":3", "num_key_value_heads is 3"},
        {"llama", "\"num_key_value_heads\":0", "num_key_value_heads is 0: an integer from 1"},
        {"llama", "\"head_dim\":15", "head_dim is 15"},
        {"llama", "\"head_dim\":1024", "head_dim is 1024: an integer from 2 to 512"},
        {"llama", "\"rms_norm_eps\":-1", "rms_norm_eps is -1"},
        {"llama", "\"rms_norm_eps\":\"x\"", "rms_norm_eps is \"x\""},
        {"llama", "\"attention_bias\":1", "attention_bias is 1: true or false"},
        {"llama", "\"sliding_window\":8", "sliding_window is 8: llama has none"},
        {"llama", "\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
        {"llama", "\"eos_token_id\":300", "eos_token_id is 300"},
        {"llama", "\"eos_token_id\":[1,-1]", "eos_token_id is an array"},
        {"llama", "\"bos_token_id\":1.0", "bos_token_id is 1.0"},
        {"llama", "\"rope_theta\":0", "rope_theta is 0"},
        {"llama", "\"rope_scaling\":[1]", "rope_scaling is an array: an object"},
        {"llama", "\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}",
         "rope_scaling.rope_type is \"dynamic\": default, linear"},
        {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"rope_type\":\"default\",\"factor\":2}",
         "rope_scaling.type is \"linear\": rope_type says otherwise"},
        {"llama", "\"rope_scaling\":{\"type\":\"mrope\"}", "rope_scaling.type is \"mrope\""},
        {"llama", "\"rope_scaling\":{\"type\":\"linear\"}", "rope_scaling.factor is missing"},
        {"llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", "factor is 0"},
        {"llama", "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}", "low_freq_factor"},
        {"llama",
         "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":4}",
         "rope_parameters.high_freq_factor is 4"},
        {"llama", "\"rope_parameters\":{\"full_attention\":{}}", "one set for all layers"},
        {"gemma3_text", KV ",\"rope_parameters\":{\"rope_type\":\"default\"}",
         "gemma3_text needs full_attention"},
        {"phi3", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", "phi3 has the types"},
        {"phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}",
         "short_factor is an array: a list of 8"},
        {"mistral", KV ",\"attention_bias\":true", "attention_bias is true: mistral has none"},
        {"mistral", KV ",\"sliding_window\":0", "sliding_window is 0"},
        {"mistral",
         KV ",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
            "\"full_attention\"]",
         "layer_types is an array: mistral cannot"},
        {"qwen2", KV ",\"layer_types\":[\"full_attention\"]", "a list of 4 names"},
        {"qwen2",
         KV ",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\","
            "\"full_attention\"]",
         "layer 0 slides"},
        {"qwen3",
         KV ",\"layer_types\":[\"chunked_attention\",\"full_attention\",\"full_attention\","
            "\"full_attention\"]",
         "are supported"},
        {"qwen2", KV ",\"mlp_bias\":true", "mlp_bias is true: qwen2 has none"},
        {"smollm3", KV ",\"no_rope_layers\":[1,2,1,1]", "0 and 1 only"},
        {"smollm3", KV ",\"no_rope_layers\":[1,1]", "a list of 4 numbers"},
        {"gemma2", KV ",\"use_bidirectional_attention\":true", "use_bidirectional_attention"},
        {"gemma2", KV ",\"attn_logit_softcapping\":0", "attn_logit_softcapping is 0"},
        {"granite", "\"residual_multiplier\":0", "residual_multiplier is 0"},
        {"granite", "\"residual_multiplier\":-0.22", "residual_multiplier is -0.22"},
        {"granite", "\"embedding_multiplier\":\"12\"", "embedding_multiplier is \"12\""},
        {"granite", "\"attention_multiplier\":0", "attention_multiplier is 0"},
        {"granite", "\"logits_scaling\":0", "logits_scaling is 0"},
        {"granite", "\"sliding_window\":8", "sliding_window is 8: granite has none"},
        {"granitemoehybrid", "", "shared_intermediate_size is missing"},
        {"granitemoehybrid", HYBRID "null", "layer_types is null: a list of 4"},
        {"granitemoehybrid", HYBRID "[\"attention\",\"mamba\",1,2]", "attention and mamba are"},
        {"granitemoehybrid", HYBRID ATTEND ",\"num_local_experts\":513",
         "num_local_experts is 513: an integer from 0 to 512"},
        {"granitemoehybrid", HYBRID ATTEND ",\"num_experts_per_tok\":9", "there are 8 experts"},
        {"granitemoehybrid", HYBRID ATTEND ",\"position_embedding_type\":\"alibi\"",
         "rope and nope"},
        {"seed_oss", KV ",\"attention_out_bias\":1", "attention_out_bias is 1: true or false"},
        {"seed_oss", KV ",\"sliding_window\":8", "sliding_window is 8: seed_oss has none"},
        {"seed_oss", KV ",\"partial_rotary_factor\":0.5", "this family rotates whole heads"},
        {"ernie4_5", "\"use_bias\":\"no\"", "use_bias is \"no\": true or false"},
        {"ernie4_5", "\"attention_bias\":true", "attention_bias is true: ernie4_5 has none"},
        {"ernie4_5", "\"mlp_bias\":true", "mlp_bias is true: ernie4_5 has none"},
        {"ernie4_5", "\"compression_ratio\":4.0", "compression_ratio is 4.0: not supported"},
        {"ernie4_5", "\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}",
         "rope_scaling.rope_type is \"dynamic\": default, linear"},
        {"ministral", KV ",\"attention_bias\":true", "attention_bias is true: ministral has none"},
        {"ministral", KV ",\"sliding_window\":null," SLIDES("full", "sliding", "full", "full"),
         "layer 1 slides"},
        {"ministral3", KV, "rope_parameters.llama_4_scaling_beta is missing"},
        {"ministral3", KV ",\"rope_parameters\":{\"llama_4_scaling_beta\":0.1}",
         "rope_parameters.original_max_position_embeddings is missing"},
        {"ministral3", KV ",\"rope_parameters\":{\"llama_4_scaling_beta\":-1}",
         "llama_4_scaling_beta is -1"},
        {"ministral3",
         KV ",\"sliding_window\":8,\"rope_parameters\":{\"llama_4_scaling_beta\":0,"
            "\"original_max_position_embeddings\":16}," SLIDES("full", "sliding", "full", "full"),
         "layer_types is an array: ministral3 cannot do that in layer 0"},
        {"exaone4", KV ",\"attention_bias\":true", "attention_bias is true: exaone4 has none"},
        {"exaone4", KV ",\"sliding_window_pattern\":\"LLLG\"", "pattern is \"LLLG\": an integer"},
        {"exaone4", KV ",\"sliding_window_pattern\":null", "sliding_window_pattern is null"},
        {"exaone4", KV ",\"sliding_window\":8," SLIDES("full", "full", "full", "full"),
         "sliding_window is 8: no layer slides"},
        {"exaone4", KV ",\"sliding_window\":null," SLIDES("full", "sliding", "full", "full"),
         "layer 1 slides"},
        {"glm4", "\"partial_rotary_factor\":1.5", "partial_rotary_factor is 1.5"},
        {"glm4", "\"attention_bias\":1", "attention_bias is 1: true or false"},
        {"glm4", "\"mlp_bias\":true", "mlp_bias is true: glm4 has none"},
        {"glm4", "\"sliding_window\":8", "sliding_window is 8: glm4 has none"},
        {"glm4_moe", KV "," MOE, "n_routed_experts is missing"},
        {"glm4_moe", KV ",\"n_routed_experts\":8,\"num_experts_per_tok\":2",
         "moe_intermediate_size is missing"},
        {"glm4_moe", GLM ",\"num_local_experts\":9",
         "num_local_experts is 9: n_routed_experts says otherwise (8)"},
        {"glm4_moe", GLM ",\"n_group\":8", "n_group is 8: experts in groups are not supported"},
        {"glm4_moe", GLM ",\"topk_group\":4", "topk_group is 4: experts in groups"},
        {"glm4_moe", GLM ",\"n_shared_experts\":0", "n_shared_experts is 0"},
        {"glm4_moe", GLM ",\"n_shared_experts\":8193", "n_shared_experts is 8193"},
        {"glm4_moe", GLM ",\"routed_scaling_factor\":0", "routed_scaling_factor is 0"},
        {"glm4_moe", GLM ",\"first_k_dense_replace\":-1", "first_k_dense_replace is -1"},
        {"glm4_moe", GLM ",\"use_qk_norm\":1", "use_qk_norm is 1: true or false"},
        {"glm4_moe", GLM ",\"norm_topk_prob\":\"yes\"", "norm_topk_prob is \"yes\""},
        {"glm4_moe", GLM ",\"num_nextn_predict_layers\":257", "num_nextn_predict_layers is 257"},
        {"glm4_moe", GLM ",\"mlp_bias\":true", "mlp_bias is true: glm4_moe has none"},
        {"glm4_moe", GLM ",\"sliding_window\":8", "sliding_window is 8: glm4_moe has none"},
        {"gpt_oss", KV ",\"num_local_experts\":8,\"num_experts_per_tok\":2",
         "quantization_config is missing: gpt_oss is supported with experts in mxfp4"},
        {"llama", MXFP4, "quant_method is \"mxfp4\": of llama it is not supported"},
        {"gpt_oss", OSS ",\"swiglu_limit\":5", "swiglu_limit is 5: 7 is supported"},
        {"gpt_oss", OSS ",\"hidden_act\":\"gelu\"", "hidden_act is \"gelu\": only silu"},
        {"gpt_oss", KV "," MXFP4 ",\"num_local_experts\":8", "num_experts_per_tok is missing"},
        {"granitemoe", "\"num_local_experts\":4", "num_experts_per_tok is missing"},
        {"granitemoe", "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"logits_scaling\":0",
         "logits_scaling is 0"},
        {"olmo2", "\"sliding_window\":8", "sliding_window is 8: olmo2 has none"},
        {"olmo2", "\"mlp_bias\":true", "mlp_bias is true: olmo2 has none"},
        {"olmo3", "\"rope_theta\":10000", "rope_theta is 10000: versions of transformers"},
        {"olmo3", "", "rope_theta is missing: versions of transformers"},
        {"olmo3", "\"rope_theta\":500000,\"sliding_window\":null", "olmo3 needs one"},
        {"olmoe", "\"num_experts\":8,\"num_experts_per_tok\":2,\"clip_qkv\":8.0",
         "clip_qkv is 8.0: not supported"},
        {"qwen2_moe", KV "," MOE ",\"num_experts\":8",
         "shared_expert_intermediate_size is missing"},
        {"qwen2_moe",
         KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96,\"qkv_bias\":1",
         "qkv_bias is 1: true or false"},
        {"qwen2_moe",
         KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96,"
            "\"use_sliding_window\":true",
         "use_sliding_window is true: versions"},
        {"qwen2_moe",
         KV "," MOE ",\"num_experts\":8,\"shared_expert_intermediate_size\":96,"
            "\"use_sliding_window\":true,\"sliding_window\":0",
         "sliding_window is 0"},
        {"qwen3_moe", MOE, "num_experts is missing"},
        {"qwen3_moe", MOE ",\"num_experts\":1", "num_experts_per_tok is 2: there are 1"},
        {"qwen3_moe", MOE ",\"num_experts\":513", "num_experts is 513"},
        {"qwen3_moe", MOE ",\"num_experts\":8,\"num_local_experts\":9", "num_local_experts is 9"},
        {"qwen3_moe", MOE ",\"num_experts\":8,\"mlp_only_layers\":[0,-1]", "mlp_only_layers"},
        {"qwen3_moe", MOE ",\"num_experts\":8,\"mlp_only_layers\":1", "mlp_only_layers is 1"},
        {"qwen3_moe", MOE ",\"num_experts\":8,\"decoder_sparse_step\":0", "decoder_sparse_step"},
        {"qwen3_moe", MOE ",\"num_experts\":8,\"use_sliding_window\":true", "use_sliding_window"},
        {"qwen3_moe", "\"num_experts\":8,\"num_experts_per_tok\":2", "moe_intermediate_size"},
        {"qwen3_5_text", "\"attn_output_gate\":false", "attn_output_gate is false: only true"},
        {"qwen3_5_text", "\"output_gate_type\":\"sigmoid\"", "output_gate_type is \"sigmoid\""},
        {"qwen3_5_text", "\"linear_num_value_heads\":24", "linear_num_value_heads is 24: no mul"},
        {"qwen3_5_text", "\"linear_key_head_dim\":72", "linear_key_head_dim is 72: a multiple"},
        {"qwen3_5_text", "\"linear_value_head_dim\":144", "linear_value_head_dim is 144"},
        {"qwen3_5_text", "\"linear_conv_kernel_dim\":1", "linear_conv_kernel_dim is 1"},
        {"qwen3_5_text", "\"linear_conv_kernel_dim\":9", "linear_conv_kernel_dim is 9"},
        {"qwen3_5_text", "\"full_attention_interval\":5", "no layer has full_attention"},
        {"qwen3_5_text", "\"full_attention_interval\":0", "full_attention_interval is 0"},
        {"qwen3_5_text", "\"layer_types\":[\"full_attention\"]", "a list of 4 names"},
        {"qwen3_5_text", SLIDES("sliding", "full", "linear", "full"), "linear_attention are supp"},
        {"qwen3_5_text", SLIDES("linear", "linear", "linear", "linear"), "at least one is needed"},
        {"qwen3_5_text", "\"sliding_window\":8", "sliding_window is 8: qwen3_5_text has none"},
        {"qwen3_5_moe_text", "\"num_experts\":8,\"num_experts_per_tok\":2",
         "moe_intermediate_size is missing"},
        {"mixtral", KV ",\"num_local_experts\":8,\"num_experts_per_tok\":33", "from 1 to 32"},
        {"llama", "\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}",
         "quantization_config.quant_method is \"bitsandbytes\""},
    };
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        struct model m;
        struct config c;
        struct err_text e;
        bool refused = parse(config_text(cases[i].type, cases[i].more), &m, &c, &e) == ERR_MODEL;
        if (!refused || !strstr(e.text, cases[i].says))
            printf("    case %zu (%s): %s\n", i, cases[i].says, e.text);
        CHECK(refused && strstr(e.text, cases[i].says) && strstr(e.text, "dir/config.json: "));
    }
}

void config_shape_refusals(void)
{
    static const char *const keys[] = {"hidden_size",       "intermediate_size",
                                       "num_hidden_layers", "num_attention_heads",
                                       "vocab_size",        "max_position_embeddings"};
    static const char *const values[] = {
        "0",    "-4",   "64.0", "1e2",      "\"64\"",
        "true", "null", "[]",   "99999999", "18446744073709551680"};
    for (size_t i = 0; i < COUNTOF(keys); i++)
        for (size_t j = 0; j < COUNTOF(values); j++) {
            char text[1024];
            size_t n = (size_t)snprintf(text, sizeof text, "{\"model_type\":\"llama\"");
            for (size_t k = 0; k < COUNTOF(keys); k++)
                n += (size_t)snprintf(text + n, sizeof text - n, ",\"%s\":%s", keys[k],
                                      k == i ? values[j] : "4");
            snprintf(text + n, sizeof text - n, "}");
            struct model m;
            struct config c;
            struct err_text e;
            CHECK(parse(text, &m, &c, &e) == ERR_MODEL && strstr(e.text, keys[i]));
        }
}

void config_refuses_every_truncation(void)
{
    const char *text = config_text("gemma3_text", KV
                                   ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},"
                                   "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                                   "\"group_size\":32}");
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse(text, &m, &c, &e) == ERR_OK);
    for (size_t n = 0; n < strlen(text); n++) {
        size_t mark = unit_arena.used_bytes;
        struct str cut = unit_guarded((struct str){text, n});
        e = (struct err_text){0};
        CHECK(config_parse(&unit_arena, scratch(), cut, "t", &m, &c, &e) == ERR_MODEL);
        arena_reset(&unit_arena, mark);
    }
}

void config_generation(void)
{
    struct model m;
    struct config c;
    struct err_text e = {0};
    CHECK(opens("llama", "\"eos_token_id\":2", &m, &c));
    CHECK(config_generation_parse(scratch(),
                                  STR("{\"eos_token_id\":[2,9],\"temperature\":0.6,\"top_k\":20,"
                                      "\"top_p\":0.9,\"bos_token_id\":4,\"do_sample\":true}"),
                                  "g", &m, &e) == ERR_OK);
    CHECK(m.n_eos == 2 && m.eos[1] == 9 && m.bos == 4 && m.gen_temperature == 0.6f);
    CHECK(m.gen_top_k == 20 && m.gen_top_p == 0.9f && m.gen_min_p < 0);
    CHECK(
        config_tokenizer_parse(scratch(),
                               STR("{\"eos_token\":{\"content\":\"</s>\"},\"added_tokens_decoder"
                                   "\":{\"11\":{\"content\":\"</s>\"},\"3\":{\"content\":\"x\"}}}"),
                               "t", &m, &e) == ERR_OK);
    CHECK(m.n_eos == 3 && m.eos[2] == 11);
    CHECK(config_generation_parse(scratch(), STR("{\"temperature\":-1}"), "gen.json", &m, &e) ==
          ERR_MODEL);
    CHECK(strstr(e.text, "gen.json: temperature is -1"));
}
