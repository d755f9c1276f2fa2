"""Quantized tensors to float32 weights, written from the layout documents alone (numpy), so that
goldens do not lean on the arithmetic of the tool that made the file. check() then holds every
weight against that tool's own dequantisation, which rounds to the scale's 16-bit type.

  gptq  qweight/qzeros: one LSB-first stream of `bits` fields in 32-bit words, down K for the
        weights and along N for the zero points; format "gptq" stores z-1, "gptq_v2" stores z.
  awq   8 nibbles a word along N in the order 0,2,4,6,1,3,5,7.
  ct    pack-quantized: fields u = q + 2^(bits-1), along K for weights, along N for zero points;
        int-quantized: plain int8.
  mxfp4 blocks of 32 inputs: two codes in a byte, the lower half first, of a sign, two bits of
        exponent and one of fraction; times 2^(scale - 127).
"""
import importlib.util
import json
import shutil
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

SUFFIXES = ("blocks", "qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale",
            "weight_shape", "weight_zero_point", "weight_g_idx")


def fields(words, bits):
    """[..., W] uint32 -> [..., W*32/bits]: the LSB-first stream cut into fields."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    out = (words[..., None] >> shifts) & np.uint32((1 << bits) - 1)
    return out.reshape(*words.shape[:-1], -1).astype(np.int64)


def words(t):
    return t.numpy().view(np.uint32)


def gptq(t, q):
    bits = q["bits"]
    code = fields(words(t["qweight"]).T.copy(), bits)  # [N][K]
    zero = fields(words(t["qzeros"]), bits)            # [G][N]
    if q.get("checkpoint_format", "gptq") == "gptq":
        zero = (zero + 1) & ((1 << bits) - 1)
    scale = t["scales"].float().numpy()                # [G][N]
    k = np.arange(code.shape[1])
    group = k // (q["group_size"] if q["group_size"] > 0 else len(k))
    if q["desc_act"]:
        group = t["g_idx"].numpy()
    return scale.T[:, group] * (code - zero.T[:, group]).astype(np.float32)


def awq(t, q):
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # column 8c+j sits in nibble order[j] of word c

    def columns(w):
        x = fields(words(w), 4)
        return x.reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape[0], -1)
    code, zero = columns(t["qweight"]), columns(t["qzeros"])  # [K][N], [G][N]
    group = np.arange(code.shape[0]) // q["group_size"]
    scale = t["scales"].float().numpy()
    return (scale[group] * (code - zero[group]).astype(np.float32)).T


def ct_packed(t, args):
    n, k = t["weight_shape"].tolist()
    bits = args["num_bits"]
    code = fields(words(t["weight_packed"]), bits)[:, :k]
    zero = np.full(t["weight_scale"].shape, 1 << (bits - 1))
    if "weight_zero_point" in t:
        zero = fields(words(t["weight_zero_point"].contiguous()).T.copy(), bits)[:, :n].T
    group = np.arange(k) // (args["group_size"] or k)
    if "weight_g_idx" in t:
        group = t["weight_g_idx"].numpy()
    scale = t["weight_scale"].float().numpy()
    return scale[:, group] * (code - zero[:, group]).astype(np.float32)


def ct_int(t, args):
    zero = t["weight_zero_point"].float() if "weight_zero_point" in t else 0.0
    return ((t["weight"].float() - zero) * t["weight_scale"].float()).numpy()


def mxfp4(t):
    code = fields(words(t["blocks"]), 4)  # [E][N][K / 32][32]
    value = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)[code & 7]
    power = np.ldexp(np.float32(1.0), t["scales"].numpy().astype(np.int32) - 127)
    out = np.where(code & 8, -value, value) * power[..., None]
    return out.reshape(*out.shape[:2], -1)


def split(tensors):
    """-> (plain tensors, {linear name: its quantized tensors})"""
    plain, quant = {}, {}
    tensors = {n.replace("_proj_blocks", "_proj.blocks").replace("_proj_scales", "_proj.scales"): t
               for n, t in tensors.items()}
    owners = {n.rsplit(".", 1)[0] for n in tensors if n.rsplit(".", 1)[1] in SUFFIXES}
    for name, t in tensors.items():
        owner, leaf = name.rsplit(".", 1)
        if owner in owners and leaf != "bias":
            quant.setdefault(owner, {})[leaf] = t
        else:
            plain[name] = t
    return plain, quant


def linear(t, q):
    if q["quant_method"] == "gptq":
        return gptq(t, q)
    if q["quant_method"] == "awq":
        return awq(t, q)
    if q["quant_method"] == "mxfp4":
        return mxfp4(t)
    args = q["config_groups"]["group_0"]["weights"]
    return ct_packed(t, args) if q["format"] == "pack-quantized" else ct_int(t, args)


def folder_config(folder):
    with open(folder + "/config.json") as f:
        return json.load(f)


def folder_weights(folder):
    """-> (float32 state dict, quantization_config or None, names of the quantized linears)"""
    q = folder_config(folder).get("quantization_config")
    plain, quant = split(load_file(folder + "/model.safetensors"))
    out = {n: t.float() for n, t in plain.items()}
    for name, t in quant.items():
        out[name + ".weight"] = torch.from_numpy(np.ascontiguousarray(linear(t, q)))
    return out, q, sorted(quant)


# ---- the tools' own dequantisation -----------------------------------------------------------

def tool_gptq(folder):
    from gptqmodel import BACKEND, GPTQModel
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copytree(folder, tmp, dirs_exist_ok=True)
        tensors = load_file(folder + "/model.safetensors")
        for name in [n for n in tensors if ".gate_up_proj." in n]:  # as the tool has it, see
            t = tensors.pop(name)                                   # quantize.join_gate_up
            halves = (t, t) if name.endswith("g_idx") else t.chunk(2, 1)
            for part, half in zip((".gate_proj.", ".up_proj."), halves):
                tensors[name.replace(".gate_up_proj.", part)] = half.contiguous().clone()
        save_file(tensors, tmp + "/model.safetensors", metadata=dict(format="pt"))
        model = GPTQModel.load(tmp, device="cpu", backend=BACKEND.TORCH)
        out = {n: m.dequantize_weight().T for n, m in model.model.named_modules()
               if hasattr(m, "qweight")}
    for name in [n for n in out if n.endswith(".gate_proj")]:
        out[name.replace(".gate_proj", ".gate_up_proj")] = torch.cat(
            [out[name], out[name.replace(".gate_proj", ".up_proj")]])
    return out


def tool_awq(folder, packing_utils):
    """AutoAWQ's dequantize_gemm, loaded by path: its package wants transformers 4."""
    spec = importlib.util.spec_from_file_location("packing_utils", packing_utils)
    mod = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    q = folder_config(folder)["quantization_config"]
    _, quant = split(load_file(folder + "/model.safetensors"))
    return {n: mod.dequantize_gemm(t["qweight"], t["qzeros"], t["scales"], 4, q["group_size"]).T
            for n, t in quant.items()}


def tool_ct(folder):
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.utils.quantization_config import CompressedTensorsConfig
    sees = "text_config" in folder_config(folder)
    auto = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    model = auto.from_pretrained(
        folder, torch_dtype="auto",
        quantization_config=CompressedTensorsConfig(run_compressed=False))
    return {n[:-7]: p for n, p in model.named_parameters() if n.endswith(".weight")}


def tool_mxfp4(folder):
    from transformers import AutoModelForCausalLM, Mxfp4Config
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=Mxfp4Config(dequantize=True))
    return {n: p.transpose(1, 2) for n, p in model.named_parameters()
            if n.endswith(("experts.gate_up_proj", "experts.down_proj"))}


def check(folder, packing_utils, theirs=None):
    """-> (largest difference between the formulas above and the tool, as a fraction of what the
    tool's rounding to its 16-bit type may do; number of linears)"""
    ours, q, names = folder_weights(folder)
    method = q["quant_method"]
    if theirs is None:
        theirs = (tool_gptq(folder) if method == "gptq" else
                  tool_awq(folder, packing_utils) if method == "awq" else
                  tool_mxfp4(folder) if method == "mxfp4" else tool_ct(folder))
    worst = 0.0
    for n in names:
        a, b = ours[n + ".weight"], theirs[n].detach()
        allowed = a.abs() * torch.finfo(b.dtype).eps + 1e-7
        worst = max(worst, ((a - b.float()).abs() / allowed).max().item())
    return worst, len(names)


if __name__ == "__main__":  # FOLDER OUT: compressed-tensors 0.10 is run as a process of its own
    import sys
    save_file({n: t.detach().contiguous() for n, t in tool_ct(sys.argv[1]).items()}, sys.argv[2])
