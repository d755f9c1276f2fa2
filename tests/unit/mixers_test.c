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

#define MAMBA(more)                                          \
    TYPES("mamba", "attention", "linear_attention", "mamba") \
    ","                                                      \
    "\"shared_intermediate_size\":96,\"num_local_experts\":0,\"mamba_d_state\":32" more
#define HEADS(n) ",\"mamba_n_heads\":" #n

/* granite-4.0-h-tiny's config.json, shortened, with four layers. */
void mixers_mamba(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"GraniteMoeHybridForCausalLM\"],\"attention_bias\":false,"
                "\"attention_multiplier\":0.0078125,\"embedding_multiplier\":12,"
                "\"hidden_act\":\"silu\",\"hidden_size\":1536,\"intermediate_size\":512,"
                "\"layer_types\":[\"mamba\",\"mamba\",\"attention\",\"mamba\"],"
                "\"logits_scaling\":6,\"mamba_chunk_size\":256,\"mamba_conv_bias\":true,"
                "\"mamba_d_conv\":4,\"mamba_d_head\":64,\"mamba_d_state\":128,"
                "\"mamba_expand\":2,\"mamba_n_groups\":1,\"mamba_n_heads\":48,"
                "\"mamba_proj_bias\":false,\"max_position_embeddings\":131072,"
                "\"model_type\":\"granitemoehybrid\",\"num_attention_heads\":12,"
                "\"num_experts_per_tok\":6,\"num_hidden_layers\":4,"
                "\"num_key_value_heads\":4,\"num_local_experts\":64,"
                "\"position_embedding_type\":\"nope\",\"residual_multiplier\":0.22,"
                "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":10000,"
                "\"shared_intermediate_size\":1024,\"tie_word_embeddings\":true,"
                "\"vocab_size\":100352}",
                &m, &c, &e) == ERR_OK);
    const struct delta_shape *d = &m.delta;
    CHECK(m.layers[0].delta && !m.layers[2].delta && m.layers[3].delta && d->mamba && c.conv_bias);
    CHECK(d->key_heads == 1 && d->value_heads == 48 && d->key_dim == 128 && d->value_dim == 64);
    CHECK(d->norm_groups == 1 && !m.mlp_ungated && c.block[3] == 3 && !c.blocks);
    CHECK(d->taps == 4 && d->eps == 1e-5f && m.norm_eps > 2e-4f && m.norm_eps < 2.1e-4f);
    CHECK(delta_inputs(d) == 1 && delta_row_n(d) == 6448 && delta_channels(d) == 3328);
    CHECK(delta_outputs(d, 0) == 6448 && delta_state_floats(d) == 48 * 128 * 64 + 3 * 3328);
    CHECK(delta_place(d, DELTA_PART_Z).at == 0 && delta_place(d, DELTA_PART_V).at == 3072);
    CHECK(delta_place(d, DELTA_PART_K).at == 6144 && delta_place(d, DELTA_PART_Q).at == 6272);
    CHECK(delta_place(d, DELTA_PART_A).at == 6400);
    CHECK(delta_conv_row(d, 0) == 3200 && delta_conv_row(d, 128) == 3072);
    CHECK(delta_conv_row(d, 256) == 0 && delta_conv_row(d, 3327) == 3071);
    CHECK(m.layers[0].mixture && m.experts == 64 && m.experts_used == 6 && m.n_gate_up == 1);
    CHECK(m.expert_intermediate == 512 && m.shared_intermediate == 1024);
    CHECK(opens("granitemoehybrid",
                MAMBA(HEADS(4) ",\"mamba_d_head\":\"auto\",\"mamba_n_groups\":2,\"mamba_d_conv\":2,"
                               "\"mamba_conv_bias\":false,"
                               "\"time_step_limit\":[0.0,{\"__float__\":\"Infinity\"}]"),
                &m, &c)); /* as transformers 5 writes it */
    CHECK(opens("granitemoehybrid", MAMBA(HEADS(4) ",\"time_step_limit\":[0.0,Infinity]"), &m, &c));
    CHECK(opens("granitemoehybrid",
                MAMBA(HEADS(4) ",\"mamba_d_head\":\"auto\",\"mamba_n_groups\":2,\"mamba_d_conv\":2,"
                               "\"mamba_conv_bias\":false"),
                &m, &c));
    CHECK(m.layers[0].delta && m.layers[2].delta && !c.conv_bias && !m.experts);
    CHECK(m.delta.value_dim == 32 && m.delta.key_heads == 2 && m.delta.taps == 2);
    CHECK(delta_place(&m.delta, DELTA_PART_K).at == 256 &&
          delta_place(&m.delta, DELTA_PART_Q).at == 320);
    CHECK(delta_place(&m.delta, DELTA_PART_Q).step == 32 &&
          delta_place(&m.delta, DELTA_PART_Z).step == 64);
}

void mixers_mamba_refusals(void)
{
    static const struct {
        const char *more, *says;
    } cases[] = {
        {MAMBA(HEADS(0)), "mamba_n_heads is 0: an integer from 1 to 256"},
        {MAMBA(HEADS(257)), "mamba_n_heads is 257: an integer"},
        {MAMBA(HEADS(3)), "hidden_size 128 is no multiple of it"},
        {MAMBA(""), "mamba_d_head is missing: heads of 1 dimensions"},
        {MAMBA(HEADS(16)), "heads of 8 dimensions; multiples of 16 up to 128"},
        {MAMBA(HEADS(1) ",\"mamba_expand\":4"), "heads of 256 dimensions"},
        {MAMBA(HEADS(4) ",\"mamba_expand\":0"), "mamba_expand is 0"},
        {MAMBA(HEADS(4) ",\"mamba_d_head\":16"), "mamba_d_head is 16: mamba_n_heads 4 times it"},
        {MAMBA(HEADS(4) ",\"mamba_d_head\":0"), "mamba_d_head is 0: an integer from 1"},
        {MAMBA(HEADS(4) ",\"mamba_d_head\":\"wide\""), "mamba_d_head is \"wide\""},
        {MAMBA(HEADS(4) ",\"mamba_n_groups\":0"), "mamba_n_groups is 0: an integer from 1"},
        {MAMBA(HEADS(4) ",\"mamba_n_groups\":3"), "no multiple of mamba_n_groups (3)"},
        {MAMBA("0" HEADS(4)), "mamba_d_state is 320: an integer from 1 to 128"},
        {MAMBA("9" HEADS(2)), "mamba_d_state is 329"},
        {MAMBA(HEADS(4) ",\"mamba_d_conv\":1"), "mamba_d_conv is 1: an integer from 2 to 8"},
        {MAMBA(HEADS(4) ",\"mamba_d_conv\":9"), "mamba_d_conv is 9"},
        {MAMBA(HEADS(4) ",\"mamba_conv_bias\":1"), "mamba_conv_bias is 1: true or false"},
        {MAMBA(HEADS(4) ",\"mamba_proj_bias\":true"), "mamba_proj_bias is true: only false"},
        {MAMBA(HEADS(4) ",\"hidden_act\":\"gelu\""), "hidden_act is \"gelu\": of layers of"},
        {MAMBA(HEADS(4) ",\"time_step_limit\":[0.0,1.0]"), "time_step_limit is an array: only"},
        {MAMBA(HEADS(4) ",\"time_step_limit\":[]"), "time_step_limit is an array: only"},
        {MAMBA(HEADS(4) ",\"time_step_limit\":[0.1,{\"__float__\":\"Infinity\"}]"), "only [0.0"},
        {MAMBA(HEADS(4) ",\"layers_block_type\":[\"mamba\"]"), "layers_block_type is an array: a"},
        {TYPES("mamba", "mamba", "mamba", "mamba") ",\"shared_intermediate_size\":96",
         "layer_types is an array: no layer has"},
        {TYPES("mamba", "attention", "mamba", "mamba") ",\"shared_intermediate_size\":96",
         "mamba_d_head is missing"},
        {TYPES("mamba", "attention", "mamba", "mamba") ",\"shared_intermediate_size\":96" HEADS(4),
         "mamba_d_state is missing"},
    };
    struct model m;
    struct config c;
    struct err_text e;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        CHECK(parse(config_text("granitemoehybrid", cases[i].more), &m, &c, &e) == ERR_MODEL);
        if (!strstr(e.text, cases[i].says))
            printf("    %s\n", e.text);
        CHECK(strstr(e.text, cases[i].says));
    }
}

/* NVIDIA-Nemotron-Nano-9B-v2's config.json, shortened, with 11 blocks. */
void mixers_nemotron(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"NemotronHForCausalLM\"],\"attention_bias\":false,"
                "\"bos_token_id\":1,\"chunk_size\":128,\"conv_kernel\":4,\"eos_token_id\":12,"
                "\"expand\":2,\"head_dim\":128,\"hidden_size\":4480,"
                "\"hybrid_override_pattern\":\"M-MM*-M-*M-\",\"intermediate_size\":15680,"
                "\"layer_norm_epsilon\":1e-05,\"mamba_head_dim\":80,\"mamba_hidden_act\":"
                "\"silu\",\"mamba_num_heads\":128,\"mamba_proj_bias\":false,"
                "\"max_position_embeddings\":131072,\"mlp_bias\":false,\"mlp_hidden_act\":"
                "\"relu2\",\"model_type\":\"nemotron_h\",\"n_groups\":8,"
                "\"num_attention_heads\":40,\"num_hidden_layers\":11,\"num_key_value_heads\":8,"
                "\"residual_in_fp32\":false,\"rms_norm_eps\":1e-05,\"sliding_window\":null,"
                "\"ssm_state_size\":128,\"tie_word_embeddings\":false,\"time_step_limit\":"
                "[0.0,Infinity],\"time_step_max\":0.1,\"time_step_min\":0.001,\"use_bias\":false,"
                "\"use_conv_bias\":true,\"vocab_size\":131072}",
                &m, &c, &e) == ERR_OK);
    static const struct {
        u32 block, intermediate;
        bool attends;
    } layers[] = {{0, 15680, false}, {2, 0, false}, {3, 0, false},    {4, 15680, true},
                  {6, 15680, false}, {8, 0, true},  {9, 15680, false}};
    const struct delta_shape *d = &m.delta;
    CHECK(m.layers_n == COUNTOF(layers));
    for (u32 i = 0; i < m.layers_n; i++) {
        const struct layer *l = &m.layers[i];
        CHECK(c.block[i] == layers[i].block && l->intermediate == layers[i].intermediate);
        CHECK(layer_attends(l) == layers[i].attends && l->rope == ROPE_SETS && l->kv_layer == i);
        CHECK(layer_has_mlp(l) == (l->intermediate != 0) && l->scale == 1);
    }
    CHECK(c.blocks && c.norms == NORMS_BLOCKS && c.conv_bias && !c.mlp_bias && !c.qkv_bias);
    CHECK(m.mlp_ungated && m.n_gate_up == 1 && m.activation == ACT_RELU && !m.tied);
    CHECK(d->mamba && d->norm_groups == 8 && d->key_heads == 8 && d->value_heads == 128);
    CHECK(d->key_dim == 128 && d->value_dim == 80 && d->taps == 4 && d->eps == 1e-5f);
    CHECK(m.norm_eps == 1e-5f && m.head_dim == 128 && delta_row_n(d) == 22656);
}

#define BLOCKS(list)                                                         \
    KV ",\"mamba_num_heads\":4,\"mamba_head_dim\":16,\"ssm_state_size\":16," \
       "\"n_groups\":2,\"layers_block_type\":[" list "]"
#define OTHERS(more) BLOCKS("\"mamba\",\"mlp\",\"attention\",\"linear_attention\"") "," more
#define LETTERS(text)                                                                       \
    KV ",\"mamba_num_heads\":4,\"mamba_head_dim\":16,\"ssm_state_size\":16,\"n_groups\":2," \
       "\"hybrid_override_pattern\":\"" text "\""

void mixers_nemotron_forms(void)
{
    struct model m;
    struct config c;
    CHECK(opens("nemotron_h", OTHERS("\"mlp_bias\":true,\"use_conv_bias\":false"), &m, &c));
    CHECK(m.layers_n == 3 && c.mlp_bias && !c.conv_bias && m.delta.norm_groups == 2);
    CHECK(m.head_dim == 128 && m.layers[0].delta && !m.layers[1].delta && m.layers[2].delta);
    CHECK(m.layers[0].intermediate == 128 && !m.layers[1].intermediate);
    CHECK(opens("nemotron_h", OTHERS("\"hybrid_override_pattern\":\"M-*M\""), &m, &c));
    CHECK(opens("nemotron_h", LETTERS("*-*-"), &m, &c)); /* without Mamba */
    CHECK(m.layers_n == 2 && !m.delta.value_heads && m.mlp_ungated);
    CHECK(opens("nemotron_h", OTHERS("\"time_step_limit\":[0.0,{\"__float__\":\"Infinity\"}]"), &m,
                &c)); /* as transformers 5 writes it */
}

#define MIXED(more) LETTERS("M-*E") ",\"n_routed_experts\":8" more
#define SOME ",\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
#define SHARED(wide) ",\"moe_shared_expert_intermediate_size\":" #wide

/* NVIDIA-Nemotron-3-Nano-30B-A3B's config.json, shortened, with 9 blocks. */
void mixers_nemotron_experts(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(parse("{\"architectures\":[\"NemotronHForCausalLM\"],\"attention_bias\":false,"
                "\"conv_kernel\":4,\"eos_token_id\":2,\"expand\":2,\"head_dim\":128,"
                "\"hidden_size\":2688,\"hybrid_override_pattern\":\"MEMEM*EME\","
                "\"intermediate_size\":1856,\"layer_norm_epsilon\":1e-05,\"mamba_head_dim\":64,"
                "\"mamba_hidden_act\":\"silu\",\"mamba_num_heads\":64,\"mamba_proj_bias\":false,"
                "\"max_position_embeddings\":262144,\"mlp_bias\":false,\"mlp_hidden_act\":"
                "\"relu2\",\"model_type\":\"nemotron_h\",\"moe_intermediate_size\":1856,"
                "\"moe_shared_expert_intermediate_size\":3712,\"n_group\":1,\"n_groups\":8,"
                "\"n_routed_experts\":128,\"n_shared_experts\":1,\"norm_eps\":1e-05,"
                "\"norm_topk_prob\":true,\"num_attention_heads\":32,\"num_experts_per_tok\":6,"
                "\"num_hidden_layers\":9,\"num_key_value_heads\":2,\"partial_rotary_factor\":1.0,"
                "\"rope_theta\":10000,\"routed_scaling_factor\":2.5,\"ssm_state_size\":128,"
                "\"tie_word_embeddings\":false,\"topk_group\":1,\"use_bias\":false,"
                "\"use_conv_bias\":true,\"vocab_size\":131072}",
                &m, &c, &e) == ERR_OK);
    static const u32 blocks[] = {0, 2, 4, 5, 7};
    CHECK(m.layers_n == COUNTOF(blocks));
    for (u32 i = 0; i < m.layers_n; i++) {
        const struct layer *l = &m.layers[i];
        CHECK(c.block[i] == blocks[i] && layer_attends(l) == (i == 3) && !l->intermediate);
        CHECK(layer_has_mlp(l) == (i != 2) && (l->mixture != NULL) == (i != 2));
    }
    CHECK(m.experts == 128 && m.experts_used == 6 && m.expert_intermediate == 1856);
    CHECK(m.shared_intermediate == 3712 && !m.shared_gated && m.experts_renormalized);
    CHECK(m.experts_scale == 2.5f && m.experts_least == 1e-20f && c.router_bias);
    CHECK(m.mlp_ungated && m.activation == ACT_RELU && model_expert_parts(&m) == 1);
    CHECK(opens("nemotron_h", MIXED(SOME SHARED(96) ",\"norm_topk_prob\":false"), &m, &c));
    CHECK(m.layers_n == 2 && m.layers[0].intermediate == 128 && !m.layers[0].mixture);
    CHECK(m.layers[1].mixture && !m.layers[1].intermediate && !m.experts_renormalized);
    CHECK(opens("nemotron_h", LETTERS("M-*-") SOME, &m, &c) && !m.experts); /* keys that lie idle */
}

void mixers_nemotron_refusals(void)
{
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"", "hybrid_override_pattern is missing: 1 to 256 blocks"},
        {LETTERS("M-*"), "num_hidden_layers is 4: hybrid_override_pattern has 3 blocks"},
        {LETTERS("M-*|"), "\"M-*|\": block 3: Mamba 2 (M, linear_attention, mamba), attention"},
        {LETTERS("M*-|"), "MLPs (-, mlp) and experts (E, moe) are supported"},
        {LETTERS("-M*-"), "block 0: an MLP or experts that no mixer is before are not supported"},
        {LETTERS("M*--"), "block 3: an MLP or experts that no mixer"},
        {LETTERS("M*-E"), "block 3: an MLP or experts that no mixer"},
        {LETTERS("M*E-"), "block 3: an MLP or experts that no mixer"},
        {LETTERS("EM*-"), "block 0: an MLP or experts that no mixer"},
        {LETTERS("M-*E"), "n_routed_experts is missing"},
        {BLOCKS("\"mamba\",\"moe\",\"attention\",\"mlp\""), "n_routed_experts is missing"},
        {MIXED(""), "num_experts_per_tok is missing"},
        {MIXED(",\"num_experts_per_tok\":2"), "moe_intermediate_size is missing"},
        {MIXED(SOME), "moe_shared_expert_intermediate_size is missing"},
        {MIXED(SOME SHARED(0)), "moe_shared_expert_intermediate_size is 0"},
        {MIXED(SOME SHARED(96) ",\"num_local_experts\":4"), "n_routed_experts says otherwise (8)"},
        {MIXED(SOME SHARED(96) ",\"n_shared_experts\":2"), "n_shared_experts is 2: only 1 is"},
        {MIXED(SOME SHARED(96) ",\"n_shared_experts\":0"), "n_shared_experts is 0: only 1 is"},
        {MIXED(SOME SHARED(96) ",\"moe_latent_size\":64"), "moe_latent_size is 64: only null"},
        {MIXED(SOME SHARED(96) ",\"n_group\":2"), "n_group is 2: experts in groups are not"},
        {MIXED(SOME SHARED(96) ",\"topk_group\":2"), "topk_group is 2: experts in groups"},
        {MIXED(SOME SHARED(96) ",\"routed_scaling_factor\":0"), "routed_scaling_factor is 0"},
        {MIXED(SOME SHARED(96) ",\"norm_topk_prob\":1"), "norm_topk_prob is 1: true or false"},
        {MIXED(SOME SHARED(96) ",\"mlp_hidden_act\":\"silu\""), "only relu2"},
        {LETTERS("M-M-"), "no layer has full_attention"},
        {BLOCKS("\"mamba\",7,\"attention\",\"mlp\""), "block 1: Mamba 2"},
        {BLOCKS(""), "layers_block_type is an array: 1 to 256"},
        {OTHERS("\"hybrid_override_pattern\":\"M-M*\""), "layers_block_type says otherwise"},
        {OTHERS("\"hybrid_override_pattern\":7"), "layers_block_type says otherwise"},
        {OTHERS("\"mlp_hidden_act\":\"silu\""), "mlp_hidden_act is \"silu\": only relu2"},
        {OTHERS("\"mamba_hidden_act\":\"gelu\""), "mamba_hidden_act is \"gelu\": of layers of"},
        {OTHERS("\"attention_bias\":true"), "attention_bias is true: nemotron_h has none"},
        {OTHERS("\"use_bias\":true"), "use_bias is true: only false"},
        {OTHERS("\"mamba_proj_bias\":true"), "mamba_proj_bias is true: only false"},
        {OTHERS("\"rms_norm_eps\":1e-6"), "layer_norm_epsilon says otherwise"},
        {OTHERS("\"attention_head_dim\":64"), "head_dim says otherwise (128)"},
        {OTHERS("\"sliding_window\":64"), "sliding_window is 64: nemotron_h has none"},
        {OTHERS("\"conv_kernel\":9"), "conv_kernel is 9: an integer from 2 to 8"},
        {OTHERS("\"mamba_d_conv\":4"), "mamba_d_conv is 4: only the name conv_kernel"},
        {OTHERS("\"time_step_limit\":[0.001,Infinity]"), "only [0.0, Infinity]"},
        {OTHERS("\"time_step_limit\":[0.0,NaN]"), "only [0.0, Infinity]"},
    };
    struct model m;
    struct config c;
    struct err_text e;
    for (size_t i = 0; i < COUNTOF(cases); i++) {
        CHECK(parse(config_text("nemotron_h", cases[i].more), &m, &c, &e) == ERR_MODEL);
        if (!strstr(e.text, cases[i].says))
            printf("    %s\n", e.text);
        CHECK(strstr(e.text, cases[i].says));
    }
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
