#!/usr/bin/env python3
"""Writes a model folder of a known shape with made-up weights, to time the start from files: GPTQ 4
bit symmetric in groups of 128 (embedding and head bf16), or bf16. The tokenizer is the demo
model's, so what it says means nothing; activations stay of order 1.

usage: folder.py llama-3.1-8b|llama-3.2-1b|qwen3-4b DIR [bf16]   (4.5 to 6 GB; DIR is made)
"""
import json
import math
import os
import random
import shutil
import struct
import sys

import pathlib

DEMO = pathlib.Path(__file__).resolve().parents[2] / "image/demo"
GROUP, BLOCK = 128, 1 << 20


def llama3(factor):
    return {"rope_theta": 500000.0,
            "rope_scaling": {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
                             "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}


# From the published config.json of each model, as in core/model/shape.c.
SHAPES = {
    "llama-3.1-8b": {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "vocab_size": 128256, "max_position_embeddings": 131072,
                     "rms_norm_eps": 1e-5, "tie_word_embeddings": False, **llama3(8.0)},
    "llama-3.2-1b": {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
                     "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "vocab_size": 128256, "max_position_embeddings": 131072,
                     "rms_norm_eps": 1e-5, "tie_word_embeddings": True, **llama3(32.0)},
    "qwen3-4b": {"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
                 "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
                 "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
                 "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True},
}


def bf16(value):
    return struct.pack("<f", value)[2:]


def noise(scale):
    """A block of bf16 numbers in (-scale, scale), whose length is no multiple of a row's: rows that
    are the same would make tokens that are."""
    draw = random.Random(1)
    words = [bf16(draw.uniform(-scale, scale)) for _ in range((1 << 14) - 1)]
    return b"".join(words) * (BLOCK // (2 << 14))


class Tensors:
    """What will be in the file: name, type, shape, and a block that is repeated to fill it."""

    def __init__(self):
        self.list = []

    def add(self, name, dtype, shape, block):
        size = {"I32": 4}.get(dtype, 2) * math.prod(shape)
        self.list.append((name, dtype, shape, size, block))

    def write(self, path):
        header, at = {}, 0
        for name, dtype, shape, size, _ in self.list:
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for *_, size, block in self.list:
                for done in range(0, size, len(block)):
                    f.write(block[:size - done])
        return at


def linear(tensors, name, n, k, plain):
    if plain:
        tensors.add(f"{name}.weight", "BF16", [n, k], noise(math.sqrt(3 / k)))
        return
    groups = k // GROUP
    index = b"".join(struct.pack("<i", i // GROUP) for i in range(k))
    tensors.add(f"{name}.qweight", "I32", [k // 8, n], QUANTS)
    tensors.add(f"{name}.qzeros", "I32", [groups, n // 8], b"\x77" * BLOCK)
    scale = bf16(1 / (4.6 * math.sqrt(k)))
    tensors.add(f"{name}.scales", "BF16", [groups, n], scale * (BLOCK // 2))
    tensors.add(f"{name}.g_idx", "I32", [k], index)


def fill(config, plain):
    tensors = Tensors()
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", hidden // heads)
    ones = bf16(1) * (BLOCK // 2)
    tensors.add("model.embed_tokens.weight", "BF16", [config["vocab_size"], hidden], noise(1))
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        for name, n, k in (("self_attn.q_proj", heads * dim, hidden),
                           ("self_attn.k_proj", kv_heads * dim, hidden),
                           ("self_attn.v_proj", kv_heads * dim, hidden),
                           ("self_attn.o_proj", hidden, heads * dim),
                           ("mlp.gate_proj", inter, hidden), ("mlp.up_proj", inter, hidden),
                           ("mlp.down_proj", hidden, inter)):
            linear(tensors, f"{at}.{name}", n, k, plain)
        norms = ["input_layernorm", "post_attention_layernorm"]
        for name in norms:
            tensors.add(f"{at}.{name}.weight", "BF16", [hidden], ones)
        for name in ("q_norm", "k_norm") if config["model_type"] == "qwen3" else ():
            tensors.add(f"{at}.self_attn.{name}.weight", "BF16", [dim], ones)
    tensors.add("model.norm.weight", "BF16", [hidden], ones)
    if not config["tie_word_embeddings"]:
        tensors.add("lm_head.weight", "BF16", [config["vocab_size"], hidden],
                    noise(math.sqrt(3 / hidden)))
    return tensors


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in SHAPES or sys.argv[3:] not in ([], ["bf16"]):
        sys.exit(__doc__)
    config, folder, plain = dict(SHAPES[sys.argv[1]]), sys.argv[2], len(sys.argv) == 4
    config |= {"torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 0,
               "eos_token_id": 2}
    if not plain:
        config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": GROUP,
                                         "sym": True, "desc_act": False, "lm_head": False,
                                         "checkpoint_format": "gptq"}
    os.makedirs(folder, exist_ok=True)
    for name in "tokenizer.json", "tokenizer_config.json":
        shutil.copy(DEMO / name, folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    size = fill(config, plain).write(os.path.join(folder, "model.safetensors"))
    print(f"{folder}: {size / 1e9:.2f} GB")


QUANTS = random.Random(2).randbytes(BLOCK)
main()
