#include "core/model/config.h"
#include "tests/unit/unit.h"

#include <math.h>

#define ROPE                                                                           \
    "\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":0.25,"         \
    "\"rope_theta\":1000000.0,\"rope_type\":\"proportional\"},\"sliding_attention\":{" \
    "\"rope_theta\":10000.0,\"rope_type\":\"default\"}}"
#define TYPES                                                                          \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"," \
    "\"sliding_attention\",\"full_attention\"]"

/* A small model: `more` is put behind the keys that give the shape. */
static enum err read(const char *more, struct model *m, struct config *c, struct err_text *e)
{
    char *text = arena_alloc(&unit_arena, 4096, 1);
    struct arena scratch =
        arena_over("scratch", arena_alloc(&unit_arena, 256 * KIB, 16), 256 * KIB);
    snprintf(text, 4096,
             "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"intermediate_size\":128,"
             "\"num_hidden_layers\":5,\"vocab_size\":262144,\"sliding_window\":16," TYPES "%s%s}",
             *more ? "," : "", more);
    *m = (struct model){0};
    *e = (struct err_text){0};
    return config_parse(&unit_arena, &scratch, str_of(text), "dir/config.json", m, c, e);
}

static bool refused(const char *more, const char *why)
{
    struct model m;
    struct config c;
    struct err_text e;
    bool was = read(more, &m, &c, &e) == ERR_MODEL && strstr(e.text, why);
    if (!was)
        printf("    %s: %s\n", more, e.text);
    return was;
}

void gemma4_defaults(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(read(ROPE, &m, &c, &e) == ERR_OK);
    CHECK(m.heads == 8 && m.kv_heads == 4 && m.head_dim == 512 && m.context == 131072 && m.tied);
    CHECK(m.layers[0].head_dim == 256 && m.layers[0].window == 16);
    CHECK(m.layers[1].head_dim == 512 && m.layers[1].window == 0 && m.layers[1].kv_heads == 4);
    CHECK(m.rope[ROPE_LOCAL].dims == 256 && m.rope[ROPE_FULL].dims == 512);
    CHECK(m.rope[ROPE_FULL].freq[63] > 0 && m.rope[ROPE_FULL].freq[64] == 0);
    CHECK(fabs(m.rope[ROPE_FULL].freq[1] - pow(1e6, -1 / 256.0)) < 1e-6);
    CHECK(m.own.n == 256 && m.attention_scale == 1 && m.v_norm && m.embed_scale == 8);
    CHECK(m.activation == ACT_GELU_TANH && !m.norm_plus_one && m.logit_softcap == 0);
    CHECK(model_qkv_n(&m) == (8 + 2 * 4) * 512 && m.layers[4].kv_layer == 4);
    CHECK(read("\"hidden_size_per_layer_input\":null," ROPE, &m, &c, &e) == ERR_OK && !m.own.n);
}

void gemma4_layers_share(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(read("\"num_kv_shared_layers\":3,\"use_double_wide_mlp\":true," ROPE, &m, &c, &e) ==
          ERR_OK);
    CHECK(m.layers[1].kv_layer == 1 && m.layers[2].kv_layer == 0 && m.layers[3].kv_layer == 0);
    CHECK(m.layers[4].kv_layer == 1 && m.layers[1].intermediate == 128);
    CHECK(m.layers[2].intermediate == 256 && m.intermediate == 256);
    u32 n;
    CHECK(layer_inputs(&m, &m.layers[4], &n) == m.layers[4].qkv && n == 1);
    CHECK(layer_inputs(&m, &m.layers[1], &n) == m.layers[1].qkv && n == 3);
    CHECK(refused("\"num_kv_shared_layers\":4," ROPE, "layer 1 has none of its kind"));
    CHECK(refused("\"num_kv_shared_layers\":5," ROPE, "0 to 4"));
}

void gemma4_heads_by_layer(void)
{
    struct model m;
    struct config c;
    struct err_text e;
    CHECK(read("\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2,\"global_head_dim\":64,"
               "\"enable_moe_block\":true,\"num_experts\":6,\"top_k_experts\":2,"
               "\"moe_intermediate_size\":32,\"final_logit_softcapping\":30," ROPE,
               &m, &c, &e) == ERR_OK);
    CHECK(c.values_are_keys && m.layers[1].kv_heads == 2 && m.layers[1].head_dim == 64);
    CHECK(m.layers[0].kv_heads == 4 && m.head_dim == 256 && m.logit_softcap == 30);
    CHECK(m.experts == 6 && m.experts_used == 2 && m.shared_intermediate == 128);
    CHECK(m.layers[0].mixture && m.layers[0].mixture->norms && m.experts_renormalized);
    CHECK(read("\"num_global_key_value_heads\":2," ROPE, &m, &c, &e) == ERR_OK);
    CHECK(m.layers[1].kv_heads == 4);
    CHECK(
        read("\"attention_k_eq_v\":true,\"per_layer_config\":{\"1\":{\"head_dim\":128,"
             "\"num_key_value_heads\":1},\"4\":{\"head_dim\":128,\"num_key_value_heads\":1}}," ROPE,
             &m, &c, &e) == ERR_OK);
    CHECK(m.layers[1].head_dim == 128 && m.layers[1].kv_heads == 1);
    CHECK(m.layers[4].head_dim == 128 && m.layers[4].kv_heads == 1);
}

void gemma4_refusals(void)
{
    CHECK(refused("", "rope_parameters"));
    CHECK(refused("\"global_head_dim\":1024," ROPE, "global_head_dim"));
    CHECK(refused("\"global_head_dim\":33," ROPE, "even"));
    CHECK(refused("\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3," ROPE, "multiple"));
    CHECK(refused("\"use_bidirectional_attention\":\"all\"," ROPE, "not supported"));
    CHECK(refused("\"vocab_size_per_layer_input\":1000," ROPE, "vocab_size (262144)"));
    CHECK(refused("\"per_layer_config\":{\"7\":{\"head_dim\":64}}," ROPE, "numbers of layers"));
    CHECK(refused("\"per_layer_config\":{\"x\":{}}," ROPE, "numbers of layers"));
    CHECK(refused("\"per_layer_config\":{\"1\":{\"hidden_size\":64}}," ROPE, "head_dim and"));
    CHECK(refused("\"per_layer_config\":{\"1\":{\"head_dim\":63}}," ROPE, "even"));
    CHECK(refused("\"per_layer_config\":{\"1\":{\"head_dim\":64}}," ROPE, "layers 1 and 4"));
    CHECK(refused("\"enable_moe_block\":true,\"num_experts\":4,\"top_k_experts\":5,"
                  "\"moe_intermediate_size\":32," ROPE,
                  "top_k_experts"));
}
