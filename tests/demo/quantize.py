#!/usr/bin/env python3
"""Quantises the trained model to INT4 with GPTQ and writes the folder that zigcuda ships.

    quantize.py --model DIR --data DIR --out image/demo [--group 128] [--rows 96]

GPTQ (Frantar et al., 2022, arXiv 2210.17323): the columns of a matrix are rounded one after
another, and the error of each is spread over the columns that are left, weighted by the inverse
Hessian of the layer's inputs on calibration text. Layers are done in order, each on the outputs of
the already quantised ones. Rounding is symmetric (zero point 8); the scale of a group is the best
of a few clips of its range.

Layout per linear with K inputs and N outputs, as AutoGPTQ writes it (version 1): qweight I32
[K/8][N], eight values a word, lowest bits first; qzeros I32 [K/g][N/8], which store the zero point
less one; scales F16 [K/g][N]; g_idx I32 [K].
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import train

ZERO = 8
STAGES = [  # matrices that see the same input, in the order of the forward pass
    ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    ["self_attn.o_proj"],
    ["mlp.gate_proj", "mlp.up_proj"],
    ["mlp.down_proj"],
]


def best_scale(weight, importance):
    """F16 scales [N][1] of one group, weight [N][g]: the clip with the least weighted error."""
    best, chosen = None, None
    top = weight.abs().amax(1, keepdim=True).clamp(min=1e-5)
    for clip in torch.linspace(0.6, 1.05, 19):
        scale = (top * clip / ZERO).half().float()
        error = (
            (round_to(weight, scale) * scale - weight).pow(2).mul(importance).sum(1, keepdim=True)
        )
        chosen = scale if best is None else torch.where(error < best, scale, chosen)
        best = error if best is None else torch.minimum(error, best)
    return chosen


def round_to(weight, scale):
    return torch.clamp(torch.round(weight / scale), -ZERO, ZERO - 1)


def gptq(weight, hessian, group):
    """Integers -8..7 [N][K] and scales [K/g][N] of weight [N][K]."""
    w, (n, k) = weight.double().clone(), weight.shape
    h = hessian.double()
    h += torch.eye(k) * 0.01 * h.diagonal().mean()
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    quantised, scales = torch.zeros(n, k, dtype=torch.int32), torch.zeros(k // group, n)
    for first in range(0, k, group):
        span = slice(first, first + group)
        scale = best_scale(w[:, span].float(), 1 / inverse.diagonal()[span].float().pow(2))
        scales[first // group] = scale[:, 0]
        errors = torch.zeros(n, group, dtype=torch.float64)
        for i in range(first, first + group):
            q = round_to(w[:, i], scale[:, 0].double())
            quantised[:, i] = q.int()
            error = (w[:, i] - q * scale[:, 0]) / inverse[i, i]
            w[:, i : first + group] -= error[:, None] * inverse[i, i : first + group]
            errors[:, i - first] = error
        w[:, first + group :] -= errors @ inverse[span, first + group :]
    return quantised, scales


def pack(values):
    """Eight 4-bit fields a word along the first axis: [rows][columns] -> I32 [rows/8][columns]."""
    fields = values.view(-1, 8, values.shape[1]).to(torch.int64)
    words = sum(fields[:, i] << (4 * i) for i in range(8))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).contiguous()


def layout(name, quantised, scales, group):
    k, n = quantised.shape[1], quantised.shape[0]
    zeros = torch.full((n, k // group), ZERO - 1)
    return {
        name + ".qweight": pack(quantised.T + ZERO),
        name + ".qzeros": pack(zeros).T.contiguous(),
        name + ".scales": scales.half(),
        name + ".g_idx": torch.arange(k, dtype=torch.int32) // group,
    }


@torch.no_grad()
def hessians(block, states, names, cos, sin):
    """X^T X of the input that the named matrices share; states: [rows][tokens][hidden]"""
    module = block.get_submodule(names[0])
    total = torch.zeros(module.in_features, module.in_features)

    def add(_, inputs):
        x = inputs[0].flatten(0, 1)
        total.add_(x.T @ x)

    handle = module.register_forward_pre_hook(add)
    for row in states.split(8):
        block(row, cos, sin)
    handle.remove()
    return total


@torch.no_grad()
def quantise(model, ids, group):
    """All linears of the model, in place; returns the tensors of the checkpoint."""
    tensors = {}
    states = model.embed_tokens(ids)
    cos, sin = model.cos[: ids.shape[1]], model.sin[: ids.shape[1]]
    for number, block in enumerate(model.layers):
        for names in STAGES:
            hessian = hessians(block, states, names, cos, sin)
            for name in names:
                weight = block.get_submodule(name).weight
                quantised, scales = gptq(weight, hessian, group)
                weight.copy_(quantised * scales.T.repeat_interleave(group, 1))
                tensors |= layout(f"model.layers.{number}.{name}", quantised, scales, group)
        states = torch.cat([block(row, cos, sin) for row in states.split(8)])
        print(f"layer {number} done", flush=True)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--rows", type=int, default=96, help="calibration rows of 1024 tokens")
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text())
    train.CONFIG.update(config)
    state = load_file(args.model / "model.safetensors")
    model = train.Llama(config)
    model.load_state_dict({k.removeprefix("model."): v.float() for k, v in state.items()})
    rows = train.rows_of(args.data / "train.bin", "cpu")
    picks = torch.linspace(0, len(rows) - 1, args.rows).long()
    tensors = quantise(model, train.batch_of(rows[picks])[0], args.group)
    for name, value in state.items():
        if "_proj" not in name:
            tensors[name] = value.half()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    config["quantization_config"] = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": args.group,
        "sym": True,
        "desc_act": False,
        "damp_percent": 0.01,
        "true_sequential": True,
        "lm_head": False,
        "checkpoint_format": "gptq",
    }
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {
        "bos_token_id": 0,
        "eos_token_id": [2, 0],
        "pad_token_id": 0,
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
        "max_new_tokens": 256,
    }
    (args.out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


if __name__ == "__main__":
    main()
