#include "tests/unit/config_text.h"

#define KV "\"num_key_value_heads\":2"
#define TYPES(a, b, c, d) KV ",\"layer_types\":[\"" a "\",\"" b "\",\"" c "\",\"" d "\"]"
#define CONV TYPES("conv", "full_attention", "conv", "conv")
#define MOE "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

/* LFM2-1.2B's config.json, shortened. */
void mixers_lfm2(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"Lfm2ForCausalLM\"],\"block_auto_adjust_ff_dim\":true,"
                "\"block_dim\":2048,\"block_ff_dim\":12288,\"block_ffn_dim_multiplier\":1.0,"
                "\"block_multiple_of\":256,\"block_norm_eps\":1e-05,\"block_use_swiglu\":true,"
                "\"bos_token_id\":1,\"conv_L_cache\":3,\"conv_bias\":false,\"conv_dim\":2048,"
                "\"conv_dim_out\":2048,\"eos_token_id\":7,\"full_attn_idxs\":[2,5,8,10,12,14],"
                "\"hidden_size\":2048,\"max_position_embeddings\":128000,\"model_type\":\"lfm2\","
                "\"norm_eps\":1e-05,\"num_attention_heads\":32,\"num_heads\":32,"
                "\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"rope_theta\":1000000.0,"
                "\"use_pos_enc\":true,\"vocab_size\":65536}",
                &m, &c, &e) == ERR_OK);
    CHECK(m.intermediate == 8192 && m.head_dim == 64 && m.kv_heads == 8 && m.tied);
    CHECK(m.norm_eps == 1e-5f && m.qk_norm == QK_NORM_HEADS && c.norms == NORMS_LFM2);
    CHECK(m.conv_taps == 3 && model_has_states(&m) && model_attention_layers(&m) == 6);
    CHECK(m.layers[0].conv && !m.layers[2].conv && m.layers[13].conv && !m.layers[14].conv);
    CHECK(layer_state_floats(&m, &m.layers[0]) == 4096 && !layer_state_floats(&m, &m.layers[2]));
    CHECK(model_state_bytes(&m) == 10 * 4096 * sizeof(float));
    CHECK(model_row_n(&m) == 3 * 2048 && model_mixed_n(&m) == 2048);
    u32 n;
    CHECK(layer_inputs(&m, &m.layers[0], &n) == m.layers[0].qkv && n == 1);
}

/* The MLP of LFM2-350M and of LFM2-2.6B, and what other keys make of it. */
void mixers_adjusted_mlp(void)
{
    static const struct {
        const char *more;
        u32 wide;
    } cases[] = {
        {KV ",\"block_ff_dim\":6656", 4608},
        {KV ",\"block_ff_dim\":10752,\"block_auto_adjust_ff_dim\":false", 10752},
        {KV ",\"block_ff_dim\":100,\"block_multiple_of\":1,\"block_ffn_dim_multiplier\":1.3", 85},
        {KV ",\"block_ff_dim\":100,\"block_ffn_dim_multiplier\":null", 66},
        {KV ",\"block_multiple_of\":80", 160},
    };
    struct model m;
    struct config c;
    for (size_t i = 0; i < COUNTOF(cases); i++)
        CHECK(opens("lfm2", cases[i].more, &m, &c) && m.intermediate == cases[i].wide);
    CHECK(model_attention_layers(&m) == 4 && m.conv_taps == 0 && !model_has_states(&m));
    CHECK(opens("lfm2", CONV ",\"conv_L_cache\":8,\"tie_embedding\":false", &m, &c));
    CHECK(m.layers[0].conv && !m.layers[1].conv && m.conv_taps == 8 && !m.tied);
}

void mixers_lfm2_moe(void)
{
    struct model m;
    struct config c;
    CHECK(opens("lfm2_moe", MOE "," CONV, &m, &c));
    CHECK(m.intermediate == 128 && m.expert_intermediate == 32 && m.activation == ACT_SILU);
    CHECK(!m.layers[1].mixture && m.layers[2].mixture && c.router_bias);
    CHECK(m.experts_renormalized && m.experts_scale == 1 && m.experts_least == 1e-6f);
    CHECK(opens("lfm2_moe",
                MOE "," CONV ",\"num_dense_layers\":0,\"norm_topk_prob\":false,"
                    "\"routed_scaling_factor\":2.5",
                &m, &c));
    CHECK(m.layers[0].mixture && !m.experts_renormalized && m.experts_scale == 2.5f);
}

void mixers_refusals(void)
{
    static const struct {
        const char *type, *more, *says;
    } cases[] = {
        {"lfm2", CONV ",\"conv_bias\":true", "conv_bias is true: only false"},
        {"lfm2", CONV ",\"conv_L_cache\":1", "conv_L_cache is 1: an integer from 2 to 8"},
        {"lfm2", CONV ",\"conv_L_cache\":9", "conv_L_cache is 9: an integer from 2 to 8"},
        {"lfm2", CONV ",\"hidden_act\":\"gelu\"", "hidden_act is \"gelu\": only silu"},
        {"lfm2", CONV ",\"attention_bias\":true", "attention_bias is true: lfm2 has none"},
        {"lfm2", CONV ",\"sliding_window\":8", "sliding_window is 8: lfm2 has none"},
        {"lfm2", CONV ",\"norm_eps\":2", "norm_eps is 2"},
        {"lfm2", TYPES("conv", "linear_attention", "conv", "conv"), "full_attention and conv are"},
        {"lfm2", TYPES("conv", "conv", "conv", "conv"), "layer_types is an array: no layer has"},
        {"lfm2", KV ",\"layer_types\":[\"conv\"]", "layer_types is an array: a list of 4 names"},
        {"lfm2", KV ",\"full_attn_idxs\":[]", "full_attn_idxs is an array: no layer has"},
        {"lfm2", KV ",\"full_attn_idxs\":[1,4]", "full_attn_idxs is an array: a list of"},
        {"lfm2", KV ",\"full_attn_idxs\":1", "full_attn_idxs is 1: a list of numbers"},
        {"lfm2", KV ",\"block_ff_dim\":0", "block_ff_dim is 0"},
        {"lfm2", KV ",\"block_ff_dim\":1", "an MLP of 0 features"},
        {"lfm2", KV ",\"block_ffn_dim_multiplier\":\"1\"", "block_ffn_dim_multiplier is \"1\""},
        {"lfm2", KV ",\"block_ff_dim\":200000,\"block_ffn_dim_multiplier\":9", "an MLP of 1200128"},
        {"lfm2", KV ",\"block_multiple_of\":0", "block_multiple_of is 0"},
        {"lfm2_moe", KV "," MOE, "layer_types is missing: a list of 4 names"},
        {"lfm2_moe", MOE "," CONV ",\"use_expert_bias\":false", "use_expert_bias is false: only"},
        {"lfm2_moe", MOE "," CONV ",\"num_dense_layers\":-1", "num_dense_layers is -1"},
        {"lfm2_moe", MOE "," CONV ",\"routed_scaling_factor\":0", "routed_scaling_factor is 0"},
    };
    struct model m;
    struct config c;
    struct err_text e;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        CHECK(parse(config_text(cases[i].type, cases[i].more), &m, &c, &e) == ERR_MODEL);
        if (!strstr(e.text, cases[i].says))
            printf("    %s\n", e.text);
        CHECK(strstr(e.text, cases[i].says));
    }
}
