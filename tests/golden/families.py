"""Tiny random-weight models of every family, saved by transformers itself.

build(name, dtype, folder) makes the model `name` of FAMILIES with weights drawn from a fixed
seed, and writes it with save_pretrained. Weights are scaled so that activations stay O(1) and
logits are well spread; every tensor (biases and norms too) is random, so that a forgotten or
swapped tensor changes the logits. Run with transformers 5, or with transformers 4 for the
names of FORM4, which thereby get a config.json in that version's form.
"""
import json
import math
import os

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

TRANSFORMERS5 = int(transformers.__version__.split(".")[0]) >= 5
BASE = dict(vocab_size=288, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=0, eos_token_id=1, pad_token_id=None, tie_word_embeddings=False)


def blocks(pattern):
    """nemotron_h's layers_block_type"""
    names = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    return [names[c] for c in pattern]


ABSENT = ()  # a key of BASE that config.json is not to have

LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)


def longrope(original):
    """Phi-3's per-frequency factors: short and long differ enough for a mix-up to show."""
    return dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                original_max_position_embeddings=original,
                short_factor=[1.0, 1.1, 1.25, 1.5, 1.8, 2.2],
                long_factor=[1.3, 2.0, 3.1, 4.7, 7.0, 11.0])


# name: (model_type, what differs from BASE, seed)
FAMILIES = {
    "llama": ("llama", dict(intermediate_size=128,
                            rope_parameters=dict(rope_type="default", rope_theta=10000.0)), 1),
    "llama3": ("llama", dict(vocab_size=293, tie_word_embeddings=True,
                             rope_parameters=dict(rope_theta=5000.0, **LLAMA3)), 2),
    "llama-form4": ("llama", dict(num_hidden_layers=1, tie_word_embeddings=True,
                                  attention_bias=True, mlp_bias=True, rope_theta=5000.0,
                                  rope_scaling=LLAMA3), 3),
    "llama-linear": ("llama", dict(num_hidden_layers=1, tie_word_embeddings=True,
                                   num_key_value_heads=4, rope_parameters=dict(
                                       rope_type="linear", rope_theta=10000.0, factor=2.5)), 4),
    "llama-yarn": ("llama", dict(num_hidden_layers=1, tie_word_embeddings=True,
                                 num_key_value_heads=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0,
        original_max_position_embeddings=64)), 5),
    "mistral": ("mistral", dict(sliding_window=16, tie_word_embeddings=True), 6),
    "ministral": ("ministral", dict(head_dim=32, sliding_window=16, tie_word_embeddings=True,
                                    layer_types=["sliding_attention", "full_attention"]), 34),
    "ministral3": ("ministral3", dict(num_hidden_layers=1, head_dim=32, tie_word_embeddings=True,
                                      rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=32.0, mscale=1.0, mscale_all_dim=1.0,
        original_max_position_embeddings=8, llama_4_scaling_beta=0.7)), 35),
    "hunyuan": ("hunyuan_v1_dense", dict(head_dim=128, num_attention_heads=2,
                                         num_key_value_heads=1, tie_word_embeddings=True,
                                         rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0)), 63),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True), 7),
    "qwen2-window": ("qwen2", dict(tie_word_embeddings=True, use_sliding_window=True,
                                   sliding_window=16, max_window_layers=1), 8),
    "qwen3": ("qwen3", dict(head_dim=32, tie_word_embeddings=True), 9),
    "smollm3": ("smollm3", dict(no_rope_layer_interval=2,
                                tie_word_embeddings=True), 10),
    "phi3": ("phi3", dict(tie_word_embeddings=True, rope_parameters=longrope(128),
                          original_max_position_embeddings=128), 11),
    "phi3-long": ("phi3", dict(num_hidden_layers=1, rope_parameters=longrope(32), sliding_window=24,
                               original_max_position_embeddings=32), 12),
    "gemma": ("gemma", dict(num_hidden_layers=1, head_dim=32, num_key_value_heads=1,
                             tie_word_embeddings=True), 13),
    "gemma2": ("gemma2", dict(head_dim=32, sliding_window=16, query_pre_attn_scalar=24,
                              attn_logit_softcapping=4.0, final_logit_softcapping=6.0,
                              tie_word_embeddings=True), 14),
    "gemma3": ("gemma3_text", dict(head_dim=32, sliding_window=16,
                                   sliding_window_pattern=2, query_pre_attn_scalar=24,
                                   rope_parameters=dict(
                                       full_attention=dict(rope_type="linear", factor=4.0,
                                                           rope_theta=1000000.0),
                                       sliding_attention=dict(rope_type="default",
                                                              rope_theta=10000.0)),
                                   tie_word_embeddings=True), 15),
    "seed-oss": ("seed_oss", dict(head_dim=32, num_hidden_layers=1, attention_out_bias=True,
                                  tie_word_embeddings=True), 32),
    "ernie4-5": ("ernie4_5", dict(head_dim=32, num_hidden_layers=1, use_bias=True,
                                  tie_word_embeddings=True), 33),
    "glm": ("glm", dict(num_hidden_layers=1, head_dim=32, attention_bias=True), 27),
    "glm4": ("glm4", dict(head_dim=16, attention_bias=True, tie_word_embeddings=True), 28),
    "glm4-moe": ("glm4_moe", dict(head_dim=32, n_routed_experts=6, num_experts_per_tok=2,
                                  moe_intermediate_size=32, n_shared_experts=2,
                                  routed_scaling_factor=1.7, first_k_dense_replace=1,
                                  attention_bias=True, use_qk_norm=True,
                                  tie_word_embeddings=True), 42),
    "ernie4-5-moe": ("ernie4_5_moe", dict(
        num_hidden_layers=3, head_dim=16, moe_num_experts=6, moe_k=2, moe_intermediate_size=32,
        moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=1,
        rope_parameters=dict(rope_type="default", rope_theta=500000.0),
        tie_word_embeddings=True), 66),
    "granite": ("granite", dict(embedding_multiplier=6.0, attention_multiplier=0.15,
                                residual_multiplier=0.7, logits_scaling=2.5, rms_norm_eps=1e-3,
                                tie_word_embeddings=True), 23),
    # MiniCPM, which transformers has no class for, is granite with multipliers by other names
    "minicpm": ("granite", dict(embedding_multiplier=12.0, attention_multiplier=0.25,
                                residual_multiplier=1.4 / 2 ** 0.5, logits_scaling=2.0,
                                tie_word_embeddings=True, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=256,
        short_factor=[1.0, 1.01, 1.1, 1.3, 1.5, 2.0, 3.0, 5.0],
        long_factor=[1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 9.0])), 67),
    "granitemoe": ("granitemoe", dict(num_local_experts=6, num_experts_per_tok=2,
                                      intermediate_size=32, embedding_multiplier=6.0,
                                      attention_multiplier=0.15, residual_multiplier=0.7,
                                      logits_scaling=2.5, tie_word_embeddings=True), 31),
    "olmo2": ("olmo2", dict(rope_parameters=dict(rope_type="default", rope_theta=5000.0)), 24),
    "olmo3": ("olmo3", dict(sliding_window=16, num_hidden_layers=4, intermediate_size=64,
                            rope_parameters=dict(
                                full_attention=dict(rope_type="yarn", factor=4.0,
                                                    rope_theta=500000.0,
                                                    original_max_position_embeddings=64),
                                sliding_attention=dict(rope_type="default",
                                                       rope_theta=500000.0))), 25),
    "exaone4": ("exaone4", dict(sliding_window=16, sliding_window_pattern=2), 36),
    "olmoe": ("olmoe", dict(num_hidden_layers=1, num_experts=8, num_experts_per_tok=3,
                            intermediate_size=32, num_key_value_heads=4), 26),
    "qwen2-moe": ("qwen2_moe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                                    shared_expert_intermediate_size=96, mlp_only_layers=[1],
                                    intermediate_size=64, tie_word_embeddings=True), 38),
    "qwen3-moe": ("qwen3_moe", dict(num_hidden_layers=1, num_experts=8, num_experts_per_tok=3,
                                    moe_intermediate_size=32, norm_topk_prob=True,
                                    tie_word_embeddings=True), 18),
    # rows of several spans of 128 inputs, the last one cut short
    "qwen3-moe-wide": ("qwen3_moe", dict(num_hidden_layers=1, hidden_size=320, head_dim=32,
                                         num_experts=6, num_experts_per_tok=3,
                                         moe_intermediate_size=192, norm_topk_prob=True), 30),
    # AutoAWQ quantizes its router as well, which takes multiples of 32
    "qwen3-moe-many": ("qwen3_moe", dict(num_hidden_layers=1, num_experts=32, num_experts_per_tok=2,
                                         moe_intermediate_size=32, norm_topk_prob=True,
                                         tie_word_embeddings=True), 22),
    "qwen3-moe-step": ("qwen3_moe", dict(num_experts=6, num_experts_per_tok=2,
                                         moe_intermediate_size=32, norm_topk_prob=False,
                                         decoder_sparse_step=2, intermediate_size=64,
                                         tie_word_embeddings=True), 19),
    # all experts of a layer joined in two tensors
    "qwen3-moe-joined": ("qwen3_moe", dict(head_dim=32, num_experts=6, num_experts_per_tok=1,
                                           moe_intermediate_size=32, norm_topk_prob=False,
                                           mlp_only_layers=[1], intermediate_size=64,
                                           tie_word_embeddings=True), 21),
    "mixtral": ("mixtral", dict(num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2,
                                intermediate_size=32, tie_word_embeddings=True), 20),
}

# A language model beside eyes that only have to be there: name: (model_type, vision_config)
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
              image_size=28, patch_size=14)
PATCHES = dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, out_hidden_size=64,
               num_position_embeddings=16, patch_size=4, deepstack_visual_indexes=[])
EMBEDDING = {"qwen3-embedding"}  # saved as the bare class: names without model., no lm_head
SEEING = {
    "qwen2-5-vl": ("qwen2_5_vl", dict(depth=1, out_hidden_size=64, fullatt_block_indexes=[0],
                                      num_heads=2, **VISION)),
    "qwen3-vl": ("qwen3_vl", dict(depth=1, out_hidden_size=64, num_position_embeddings=16,
                                  num_heads=2, deepstack_visual_indexes=[0], **VISION)),
    "qwen3-vl-moe": ("qwen3_vl_moe", dict(depth=1, out_hidden_size=64, num_position_embeddings=16,
                                          num_heads=2, deepstack_visual_indexes=[0], **VISION)),
    "qwen3-5-seeing": ("qwen3_5", PATCHES),
    "qwen3-5-moe": ("qwen3_5_moe", PATCHES),
    "gemma4-seeing": ("gemma4", dict(position_embedding_size=16, head_dim=8, pooling_kernel_size=1,
                                     num_key_value_heads=2, **VISION)),
    "gemma3-seeing": ("gemma3", dict(model_type="siglip_vision_model", **VISION)),
    "mistral3-seeing": ("mistral3", dict(model_type="pixtral", head_dim=8, **VISION)),
}
# and beside ears: name: audio_config
HEARING = {"gemma4-seeing": dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                 subsampling_conv_channels=[4, 4], output_proj_dims=16)}
FAMILIES["qwen3-embedding"] = ("qwen3", dict(head_dim=32, num_hidden_layers=1,
                                             num_attention_heads=2, num_key_value_heads=1,
                                             intermediate_size=64, tie_word_embeddings=True), 18)
FAMILIES["qwen2-5-vl"] = ("qwen2_5_vl_text", dict(num_hidden_layers=1, rope_parameters=dict(
    rope_type="default", rope_theta=10000.0, mrope_section=[2, 3, 3])), 39)
INTERLEAVED = dict(rope_type="default", rope_theta=10000.0, mrope_section=[6, 5, 5],
                   mrope_interleaved=True)
FAMILIES["qwen3-vl"] = ("qwen3_vl_text", dict(num_hidden_layers=1, head_dim=32,
                                              rope_parameters=INTERLEAVED), 40)
FAMILIES["qwen3-vl-moe"] = ("qwen3_vl_moe_text", dict(
    num_hidden_layers=1, head_dim=32, num_experts=6, num_experts_per_tok=2,
    moe_intermediate_size=48, rope_parameters=INTERLEAVED), 41)
# every fourth layer attends, the others are gated delta nets
FAMILIES["qwen3-5"] = ("qwen3_5_text", dict(
    num_hidden_layers=4, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=32, linear_value_head_dim=64, tie_word_embeddings=True), 43)
# heads of a delta net as large as those in use, and the keys of config.json that files in use have
HYBRID = dict(
    num_hidden_layers=4, head_dim=64, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
    layer_types=["linear_attention"] * 3 + ["full_attention"], full_attention_interval=4,
    attn_output_gate=True, mamba_ssm_dtype="float32", mlp_only_layers=[],
    mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
    rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25,
                         mrope_section=[3, 3, 2], mrope_interleaved=True))
FAMILIES["qwen3-5-seeing"] = ("qwen3_5_text", HYBRID, 44)
FAMILIES["qwen3-5-moe"] = ("qwen3_5_moe_text", dict(
    HYBRID, linear_key_head_dim=64, linear_value_head_dim=32, num_experts=6, num_experts_per_tok=2,
    moe_intermediate_size=32, shared_expert_intermediate_size=64, intermediate_size=ABSENT), 48)
FAMILIES["qwen3-next"] = ("qwen3_next", dict(
    num_hidden_layers=4, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=32, linear_value_head_dim=64, num_experts=6, num_experts_per_tok=2,
    moe_intermediate_size=32, shared_expert_intermediate_size=48, norm_topk_prob=True), 46)
FAMILIES["gemma3-seeing"] = FAMILIES["gemma3"][:2] + (16,)
FAMILIES["mistral3-seeing"] = ("mistral", dict(num_hidden_layers=1, head_dim=32,
                                               sliding_window=None), 17)

# with these seeds no expert of a golden's tokens has another close behind, which rounding could
# put in its place
GPT_OSS = dict(num_hidden_layers=2, num_attention_heads=8, bos_token_id=None, rms_norm_eps=1e-5)
FAMILIES["gpt-oss"] = ("gpt_oss", dict(
    GPT_OSS, hidden_size=96, intermediate_size=160, head_dim=64, num_local_experts=6,
    num_experts_per_tok=3, sliding_window=8, max_position_embeddings=16384,
    layer_types=["sliding_attention", "full_attention"],
    rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0,
                         beta_slow=1.0, truncate=False,
                         original_max_position_embeddings=512)), 83)
FAMILIES["gpt-oss-many"] = ("gpt_oss", dict(
    GPT_OSS, intermediate_size=32, head_dim=32, num_local_experts=32, num_experts_per_tok=4,
    sliding_window=12, max_position_embeddings=1024, tie_word_embeddings=True,
    layer_types=["full_attention", "sliding_attention"],
    rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0,
                         beta_slow=1.0, truncate=False,
                         original_max_position_embeddings=256)), 90)

# layers that attend beside convolutions of three tokens; the size of the MLP follows from three
# more keys: 2/3 of 144, times 1.3, in whole pieces of 32, is 128
LFM2 = dict(num_hidden_layers=4, layer_types=["conv", "conv", "full_attention", "conv"],
            conv_L_cache=3, conv_bias=False, tie_word_embeddings=True)
FAMILIES["lfm2"] = ("lfm2", dict(LFM2, intermediate_size=144, block_auto_adjust_ff_dim=True,
                                 block_ffn_dim_multiplier=1.3, block_multiple_of=32), 50)
FAMILIES["lfm2-form4"] = ("lfm2", dict(FAMILIES["lfm2"][1], num_hidden_layers=2,
                                       layer_types=["conv", "full_attention"]), 58)
FAMILIES["lfm2-plain"] = ("lfm2", dict(LFM2, block_auto_adjust_ff_dim=False), 51)
FAMILIES["lfm2-moe"] = ("lfm2_moe", dict(
    LFM2, layer_types=["conv", "full_attention", "conv", "conv"], num_dense_layers=1,
    num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, use_expert_bias=True,
    norm_topk_prob=True, routed_scaling_factor=1.5), 105)

S, F = "sliding_attention", "full_attention"
GEMMA4 = dict(
    intermediate_size=64, head_dim=32, global_head_dim=64, sliding_window=8,
    final_logit_softcapping=30.0, vocab_size_per_layer_input=288, tie_word_embeddings=True,
    rope_parameters=dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25,
                            rope_theta=1000000.0),
        sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
# as E2B, beside eyes and ears as E4B, as 31B and as 26B-A4B
FAMILIES["gemma4"] = ("gemma4_text", dict(
    GEMMA4, num_hidden_layers=6, layer_types=[S, S, F] * 2, num_kv_shared_layers=3,
    use_double_wide_mlp=True, num_key_value_heads=1, hidden_size_per_layer_input=32), 53)
FAMILIES["gemma4-seeing"] = ("gemma4_text", dict(
    GEMMA4, hidden_size=96, num_hidden_layers=5, layer_types=[S, F, S, S, F], head_dim=16,
    global_head_dim=32, num_attention_heads=6, pad_token_id=0, sliding_window=12,
    num_kv_shared_layers=2, hidden_size_per_layer_input=32), 62)
DENSE = dict(GEMMA4, num_hidden_layers=4, layer_types=[S, F] * 2, head_dim=16, global_head_dim=32,
             attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
             use_bidirectional_attention="vision")
FAMILIES["gemma4-dense"] = ("gemma4_text", DENSE, 55)
FAMILIES["gemma4-moe"] = ("gemma4_text", dict(
    DENSE, num_hidden_layers=2, layer_types=[S, F], enable_moe_block=True, num_experts=4,
    top_k_experts=2, moe_intermediate_size=32), 248)

# as granite-4.0-350m, -1b and -micro: all layers attend, and no experts
FAMILIES["granite-hybrid"] = ("granitemoehybrid", dict(
    layer_types=["attention"] * 2, num_local_experts=0, num_experts_per_tok=0,
    shared_intermediate_size=96, position_embedding_type="rope", embedding_multiplier=6.0,
    attention_multiplier=0.15, residual_multiplier=0.7, logits_scaling=2.5, mamba_n_heads=8,
    tie_word_embeddings=True), 57)
FAMILIES["granite-hybrid-form5"] = FAMILIES["granite-hybrid"][:2] + (59,)

# as the others of granite 4.0: most layers are Mamba 2, and nothing rotates. eps is so large that
# it counts which norms have it divided by the square of a multiplier
GRANITE_H = dict(
    num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=32, rms_norm_eps=1e-2,
    position_embedding_type="nope", embedding_multiplier=6.0, attention_multiplier=0.15,
    residual_multiplier=0.6, logits_scaling=2.5, mamba_n_heads=8, mamba_n_groups=2,
    mamba_d_state=16, mamba_chunk_size=32, layer_types=["mamba", "attention"],
    tie_word_embeddings=True)
FAMILIES["granite-h-short"] = ("granitemoehybrid", dict(
    GRANITE_H, num_key_value_heads=1, mamba_d_conv=3, mamba_conv_bias=False), 60)
FAMILIES["granite-h"] = ("granitemoehybrid", dict(
    GRANITE_H, num_hidden_layers=4, layer_types=["mamba", "mamba", "attention", "mamba"],
    shared_intermediate_size=96, mamba_d_state=32, mamba_n_heads=4), 61)
# heads as large as those in use
FAMILIES["granite-h-moe"] = ("granitemoehybrid", dict(
    GRANITE_H, num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, mamba_n_groups=1,
    mamba_d_state=128, mamba_n_heads=2), 205)

# as Nemotron Nano v2: blocks of Mamba 2, attention and MLPs without gates, some mixers without an
# MLP behind them
NEMOTRON_H = dict(
    num_hidden_layers=ABSENT, head_dim=32, mamba_num_heads=4, mamba_head_dim=32, ssm_state_size=32,
    n_groups=2, chunk_size=32)
FAMILIES["nemotron-h"] = ("nemotron_h", dict(
    NEMOTRON_H, layers_block_type=blocks("M-M*-MM-*-")), 64)
FAMILIES["nemotron-h-short"] = ("nemotron_h", dict(
    NEMOTRON_H, layers_block_type=blocks("MM-*"), hidden_size=48, intermediate_size=32,
    head_dim=16, num_key_value_heads=1, mamba_head_dim=16, ssm_state_size=16,
    conv_kernel=3, use_conv_bias=False, mlp_bias=True, layer_norm_epsilon=1e-2), 65)

# as Nemotron 3 Nano, with experts in the place of MLPs, or of some
NEMOTRON_MOE = dict(NEMOTRON_H, n_routed_experts=6, num_experts_per_tok=2,
                    moe_intermediate_size=48, moe_shared_expert_intermediate_size=96,
                    routed_scaling_factor=1.7)
FAMILIES["nemotron-h-moe"] = ("nemotron_h", dict(
    NEMOTRON_MOE, layers_block_type=blocks("MEM*EME")), 97)
FAMILIES["nemotron-h-mixed"] = ("nemotron_h", dict(
    NEMOTRON_MOE, layers_block_type=blocks("ME*-ME"), moe_intermediate_size=32,
    moe_shared_expert_intermediate_size=64, norm_topk_prob=False), 87)

FORM4 = {"llama-form4"}


def fill(model, seed):
    """Draws every parameter: O(1) activations, attention that looks somewhere, spread logits."""
    gen = torch.Generator().manual_seed(seed)
    gemma4 = model.config.model_type.startswith("gemma4")
    gemma = model.config.model_type.startswith("gemma") and not gemma4  # norms of 1 + w
    hybrid = model.config.model_type.startswith(("qwen3_5", "qwen3_next"))
    oss = model.config.model_type == "gpt_oss"
    tied = model.config.tie_word_embeddings
    embed = 0.06 if gemma or gemma4 else 0.45 if tied else 1.0  # gemma's times sqrt(hidden)
    embed /= getattr(model.config, "embedding_multiplier", 1)
    for name, p in sorted(model.named_parameters()):
        x = torch.randn(p.shape, generator=gen)
        if name.endswith("A_log"):
            x = 0.8 * x - 1.5  # a step keeps, by head, 30 to 96 % of the state
        elif name.endswith(".D"):
            x = 0.4 * x + 1.0
        elif name.endswith("sinks"):
            x = 2.0 * x + 4.0  # as the scores of many keys together
        elif name.endswith("bias"):
            x *= 1.5 if name.endswith("gate_up_proj_bias") else 0.3
        elif "norm" in name:
            x = 0.25 * x + (0.0 if gemma or hybrid and "linear_attn" not in name else 1.0)
            if name in ("model.norm.weight", "model.language_model.norm.weight"):
                x += 6.0 if gemma else 14.0 if gemma4 else 0.0  # the tied embedding is small
            if gemma4 and ".q_norm" in name:
                x *= p.shape[-1] ** -0.5  # in place of what scores are not divided by
        elif name.endswith(("router.scale", "per_expert_scale")):
            x = 0.4 * x + 1.0
        elif "router.proj" in name:
            x *= 1.5  # of what is divided by the root of hidden_size
        elif "embed_tokens_per_layer" in name:
            x *= 0.2
        elif "embed_tokens" in name or "embeddings" in name:
            x *= embed
        elif "lm_head" in name:
            x *= 0.45
        else:
            gain = 1.6 if any(s in name for s in ("q_proj", "k_proj", "qkv_proj")) else 1.3
            if oss:  # its rope multiplies scores as well
                gain = 1.2
            x *= (2.5 if gemma else gain) / math.sqrt(p.shape[-1])
        p.data.copy_(x)


def correct(model, seed):
    """Draws what is no parameter: what is added to the scores of experts when they are chosen, f32
    in files, whatever the type of the weights is, and what multiplies gemma 4's layers."""
    gen = torch.Generator().manual_seed(seed)
    for name, b in sorted(model.named_buffers()):
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            b.data = 0.3 * torch.randn(b.shape, generator=gen)
        elif name.endswith("layer_scalar"):
            b.data = (0.3 + torch.rand(b.shape, generator=gen)).to(b.dtype)


def kept_f32(model):
    """What files have in f32, whatever the type of the other weights: some of Qwen3.5's delta nets,
    Nemotron 3's routers."""
    kept = (("A_log", "linear_attn.norm.weight") if model.config.model_type.startswith("qwen3_5")
            else ("mixer.gate.weight",) if model.config.model_type == "nemotron_h" else ())
    return {n: p.data.clone() for n, p in model.named_parameters() if n.endswith(kept)}


def add_mtp(folder, seed):
    """The layer that guesses the token after the next, which transformers has no use for: a
    layer that attends, and what joins its two inputs."""
    path = folder + "/model.safetensors"
    tensors = load_file(path)
    gen = torch.Generator().manual_seed(seed)
    layer = "model.language_model.layers.3."
    alike = {"mtp.layers.0." + n[len(layer):]: t for n, t in tensors.items() if n.startswith(layer)}
    norm = tensors["model.language_model.norm.weight"]
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        alike[f"mtp.{name}.weight"] = norm
    alike["mtp.fc.weight"] = norm.new_empty(len(norm), 2 * len(norm))
    for name, t in sorted(alike.items()):
        tensors[name] = (0.1 * torch.randn(t.shape, generator=gen)).to(t.dtype)
    save_file(tensors, path, metadata=dict(format="pt"))


def rewrite(folder, change):
    """config.json as change(its values) leaves it"""
    with open(folder + "/config.json") as f:
        config = json.load(f)
    change(config)
    with open(folder + "/config.json", "w") as f:
        json.dump(dict(sorted(config.items())), f, indent=2)
        f.write("\n")


def older_qwen3_next(config):
    """As transformers 4 wrote it, which names no layer's type."""
    rope = config.pop("rope_parameters")
    config.pop("layer_types")
    config.update(torch_dtype=config.pop("dtype"), full_attention_interval=4, rope_scaling=None,
                  rope_theta=rope["rope_theta"], partial_rotary_factor=0.25)


def older_granite_hybrid(config):
    """As IBM publishes it: layers of the types "attention" and "mamba", two keys that only
    training reads."""
    config.update(torch_dtype=config.pop("dtype"), rope_scaling=None, init_method="mup",
                  rope_theta=config.pop("rope_parameters")["rope_theta"],
                  normalization_function="rmsnorm",
                  layer_types=[dict(full_attention="attention", linear_attention="mamba")[t]
                               for t in config["layer_types"]])
    config.pop("time_step_limit")


def published_nemotron_h(config):
    """As NVIDIA publishes it: blocks as letters, a number that is none of JSON, eps twice."""
    letters = dict(linear_attention="M", full_attention="*", mlp="-", moe="E")
    types = config.pop("layers_block_type")
    config.update(torch_dtype=config.pop("dtype"), num_hidden_layers=len(types),
                  hybrid_override_pattern="".join(letters[t] for t in types),
                  rms_norm_eps=config["layer_norm_epsilon"], time_step_limit=[0.0, math.inf])


def published_gemma4(config):
    """As Google publishes it: what transformers says layer by layer since, in two keys."""
    text = config.get("text_config", config)
    full = list(text.pop("per_layer_config").values())[0]
    text.update(global_head_dim=full["head_dim"],
                num_global_key_value_heads=full.get("num_key_value_heads"))


def older_lfm2(config):
    """As Liquid published the first ones: the layers that attend by number, another name of
    intermediate_size, and keys that say again what others do."""
    types = config.pop("layer_types")
    config.pop("tie_word_embeddings")
    hidden = config["hidden_size"]
    config.update(torch_dtype=config.pop("dtype"), block_ff_dim=config.pop("intermediate_size"),
                  full_attn_idxs=[i for i, t in enumerate(types) if t == "full_attention"],
                  rope_theta=config.pop("rope_parameters")["rope_theta"], block_dim=hidden,
                  conv_dim=hidden, conv_dim_out=hidden, num_heads=config["num_attention_heads"],
                  block_norm_eps=config["norm_eps"], block_use_swiglu=True, use_pos_enc=True)


def minicpm(config):
    """By the keys of its own code; in the end, as transformers has none for these."""
    rope = config.pop("rope_parameters")
    config.pop("attention_multiplier")
    config.update(architectures=["MiniCPMForCausalLM"], model_type="minicpm",
                  torch_dtype=config.pop("dtype"), rope_theta=rope.pop("rope_theta"),
                  rope_scaling=rope, scale_emb=config.pop("embedding_multiplier"), scale_depth=1.4,
                  dim_model_base=int(config["hidden_size"] / config.pop("logits_scaling")))
    config.pop("residual_multiplier")


# config.json in the form of files in use, where that is another than transformers 5 writes
FORMS = {"qwen3-next": older_qwen3_next, "granite-hybrid": older_granite_hybrid,
         "granite-h-moe": older_granite_hybrid,
         "nemotron-h-short": published_nemotron_h, "nemotron-h-moe": published_nemotron_h,
         "lfm2-form4": older_lfm2, "gemma4": published_gemma4, "gemma4-seeing": published_gemma4,
         "gemma4-dense": published_gemma4, "gemma4-moe": published_gemma4}


def add_shared(folder, seed):
    """Keys and values of layers that take those of another, which the files of gemma 4 have
    nevertheless, and which are not used."""
    path = folder + "/model.safetensors"
    tensors = load_file(path)
    gen = torch.Generator().manual_seed(seed)
    at = "model.language_model.layers."
    for i, like in ((3, 2), (4, 1)):
        for leaf in ("k_proj", "v_proj", "k_norm"):
            t = tensors[f"{at}{like}.self_attn.{leaf}.weight"]
            tensors[f"{at}{i}.self_attn.{leaf}.weight"] = \
                (0.1 * torch.randn(t.shape, generator=gen)).to(t.dtype)
    save_file(tensors, path, metadata=dict(format="pt"))


def draw_mxfp4(folder, seed):
    """Experts as OpenAI publishes them, in the place of those in bf16: rows of blocks of 32 inputs,
    two in a byte, and an exponent a block, both drawn: each of the 16 codes is as likely. Gates
    and their counterparts reach beyond the limit of 7."""
    path = folder + "/model.safetensors"
    tensors = load_file(path)
    gen = torch.Generator().manual_seed(seed)
    for name in sorted(n for n in tensors if n.endswith((".gate_up_proj", ".down_proj"))):
        experts, k, n = tensors.pop(name).shape
        least = 122 if name.endswith(".gate_up_proj") else 118
        for leaf, low, high, shape in [("_blocks", 0, 256, (experts, n, k // 32, 16)),
                                       ("_scales", least, least + 4, (experts, n, k // 32))]:
            tensors[name + leaf] = torch.randint(low, high, shape, generator=gen,
                                                 dtype=torch.uint8)
    save_file(tensors, path, metadata=dict(format="pt"))


def published_gpt_oss(config):
    """As OpenAI wrote it: no dtype, rope in transformers 4's form, two keys that say again what
    others do, and one that transformers does not read."""
    rope = config.pop("rope_parameters")
    for key in ("dtype", "bos_token_id"):
        config.pop(key, None)
    config.update(rope_theta=rope.pop("rope_theta"), rope_scaling=rope, swiglu_limit=7.0,
                  experts_per_token=config["num_experts_per_tok"], pad_token_id=1,
                  initial_context_length=rope["original_max_position_embeddings"],
                  transformers_version="4.55.0.dev0", quantization_config=dict(
                      modules_to_not_convert=["model.layers.*.self_attn",
                                              "model.layers.*.mlp.router", "model.embed_tokens",
                                              "lm_head"], quant_method="mxfp4"))


def form4(over):
    """The same settings under transformers 4's names."""
    over = dict(over)
    rope = dict(over.pop("rope_parameters", {}))
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            over[key] = rope.pop(key)
    if rope.get("rope_type") == "longrope":  # Phi-3 of that time allows three keys only
        rope.pop("original_max_position_embeddings")
        rope["type"] = rope.pop("rope_type")
    if rope and rope.get("rope_type") != "default":
        over["rope_scaling"] = rope
    return over


def config_of(name):
    kind, over, _ = FAMILIES[name]
    over = over if TRANSFORMERS5 else form4(over)
    over = {k: v for k, v in {**BASE, **over}.items() if v is not ABSENT}
    if name in SEEING:
        outer, vision = SEEING[name]
        text = AutoConfig.for_model(kind, **over)
        ears = dict(audio_config=HEARING[name]) if name in HEARING else {}
        return AutoConfig.for_model(outer, text_config=text.to_dict(), vision_config=vision,
                                    tie_word_embeddings=text.tie_word_embeddings, **ears)
    return AutoConfig.for_model(kind, **over)


def embedding_files(folder):
    """What sentence-transformers keeps beside a model, in the form of Qwen3-Embedding's, whose
    config.json names the causal class though there is no head."""
    kinds = ["Transformer", "Pooling", "Normalize"]
    modules = [dict(idx=i, name=str(i), path=f"{i}_{kind}" if i else "",
                    type="sentence_transformers.models." + kind) for i, kind in enumerate(kinds)]
    ways = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
            "weightedmean_tokens", "lasttoken"]
    pooling = dict(word_embedding_dimension=BASE["hidden_size"],
                   **{"pooling_mode_" + w: w == "lasttoken" for w in ways}, include_prompt=True)
    prompts = dict(prompts=dict(query="Instruct: find\nQuery:", document=""),
                   default_prompt_name=None, similarity_fn_name="cosine")
    with open(folder + "/config.json") as f:
        config = json.load(f)
    config["architectures"] = ["Qwen3ForCausalLM"]
    os.makedirs(folder + "/1_Pooling", exist_ok=True)
    for name, value in (("config.json", config), ("modules.json", modules),
                        ("1_Pooling/config.json", pooling),
                        ("config_sentence_transformers.json", prompts)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")


def build(name, dtype, folder, shard=None):
    torch.manual_seed(0)
    auto = AutoModelForImageTextToText if name in SEEING else AutoModelForCausalLM
    model = auto.from_config(config_of(name)).to(torch.float32)
    fill(model, FAMILIES[name][2])
    kept = kept_f32(model)
    model = model.to(dtype)
    for n, p in model.named_parameters():
        p.data = kept.get(n, p.data)
    correct(model, FAMILIES[name][2])
    if TRANSFORMERS5:  # 4 takes it from the weights
        model.config.dtype = dtype
    model.generation_config.pad_token_id = None
    if name in EMBEDDING:
        model.base_model.save_pretrained(folder)
        embedding_files(folder)
        return
    joined = name.endswith("-joined") or name == "qwen3-5-moe"
    usual = {} if not joined else dict(save_original_format=False)
    model.save_pretrained(folder, max_shard_size=shard or "50MB", **usual)
    if "mtp_num_hidden_layers" in FAMILIES[name][1]:
        add_mtp(folder, FAMILIES[name][2])
    if name == "gemma4-seeing":
        add_shared(folder, FAMILIES[name][2])
    if name in FORMS:
        rewrite(folder, FORMS[name])


def build_mxfp4(name, folder):
    build(name, torch.bfloat16, folder)
    draw_mxfp4(folder, FAMILIES[name][2])
    rewrite(folder, published_gpt_oss)


if __name__ == "__main__":  # transformers 4 is run as a process of its own
    import sys
    for i in range(1, len(sys.argv), 3):
        build(sys.argv[i], getattr(torch, sys.argv[i + 1]), sys.argv[i + 2])
