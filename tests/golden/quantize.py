"""The quantizers: each function takes a float model folder and writes a quantized one with the
tool's own save. GPTQ is made by GPTQModel, AWQ by AutoAWQ (run under transformers 4, the newest
it knows) or by GPTQModel for the families that AutoAWQ lacks, compressed-tensors by
llm-compressor. All run on the CPU; calibration is random token ids from a fixed seed.
"""
import os
import shutil
import sys

os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

import torch

GROUP = 32
GPTQ = {  # format name: QuantizeConfig arguments
    "gptq4": dict(bits=4, sym=True),
    "gptq4-asym": dict(bits=4, sym=False),
    "gptq4-v2": dict(bits=4, sym=False, format="gptq_v2"),
    "gptq4-act": dict(bits=4, sym=True, desc_act=True, act_group_aware=False),
    "gptq8": dict(bits=8, sym=True),
    "gptq4-col": dict(bits=4, sym=True, group_size=-1, act_group_aware=False),
}
CT = {  # format name: (algorithm, weights, input activations)
    "ct4": ("rtn", dict(num_bits=4, symmetric=True, strategy="group", group_size=GROUP), None),
    "ct4-asym": ("rtn", dict(num_bits=4, symmetric=False, strategy="group", group_size=GROUP),
                 None),
    "ct4-act": ("gptq", dict(num_bits=4, symmetric=True, strategy="group", group_size=GROUP,
                             actorder="group"), None),
    "ct8": ("rtn", dict(num_bits=8, symmetric=True, strategy="channel"), None),
    "ct-w8a8": ("rtn", dict(num_bits=8, symmetric=True, strategy="channel"),
                dict(num_bits=8, symmetric=True, strategy="token", dynamic=True)),
}
CT_PLAIN = {  # model_type of one that sees: what stays as it is besides lm_head
    "qwen3_5": ["re:.*visual.*", "re:.*linear_attn.in_proj_[ab]$"],
    "qwen3_5_moe": ["re:.*visual.*", "re:.*linear_attn.*", "re:.*mlp.gate$",
                    "re:.*shared_expert_gate$"],
}


def calibration(rows=32, length=64):
    gen = torch.Generator().manual_seed(99)
    return torch.randint(4, 288, (rows, length), generator=gen)


def gptq(src, out, fmt, awq=False):
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
    from transformers import AutoConfig
    if awq:
        from gptqmodel.looper.awq_processor import AWQProcessor
        AWQProcessor.apply_clip = property(lambda p: False, lambda p, v: None)  # wants N % 64 == 0
        over = dict(bits=4, sym=False, method="awq", format="gemm")
    else:
        over = GPTQ[fmt]
    config = QuantizeConfig(**{"group_size": GROUP, "desc_act": False, "offload_to_disk": False,
                               "pack_impl": "original", **over})
    data = [dict(input_ids=r, attention_mask=[1] * len(r)) for r in calibration().tolist()]
    model = GPTQModel.load(src, config, device="cpu", backend=BACKEND.TORCH,
                           dtype=AutoConfig.from_pretrained(src).dtype)  # not "auto": bfloat16
    model.quantize(data, batch_size=4, calibration_data_min_length=1)
    rope = model.model.config.rope_parameters
    if isinstance(rope.get("full_attention"), dict):  # the tool adds flat keys to gemma 3's dict
        model.model.config.rope_parameters = {k: v for k, v in rope.items() if isinstance(v, dict)}
    model.save(out)
    if model.model.config.model_type in ("phi3", "glm4"):
        join_gate_up(out)
    os.path.exists(out + "/quant_log.csv") and os.remove(out + "/quant_log.csv")


def join_gate_up(out):
    """GPTQModel splits gate_up_proj of Phi-3 and GLM-4; the files of other tools have it fused."""
    from safetensors.torch import load_file, save_file
    path = out + "/model.safetensors"
    tensors = load_file(path)
    for name in [n for n in tensors if ".gate_proj." in n]:
        gate, up = tensors.pop(name), tensors.pop(name.replace(".gate_proj.", ".up_proj."))
        if name.endswith("g_idx"):
            assert torch.equal(gate, up)  # both see the same input
        else:
            gate = torch.cat([gate, up], 1)
        tensors[name.replace(".gate_proj.", ".gate_up_proj.")] = gate
    save_file(tensors, path, metadata=dict(format="pt"))


def awq(src, out):
    from awq import AutoAWQForCausalLM
    from transformers import PreTrainedTokenizerFast
    tok = PreTrainedTokenizerFast(tokenizer_file=src + "/tokenizer.json")
    model = AutoAWQForCausalLM.from_pretrained(src, device_map="cpu", torch_dtype=torch.float16)
    model.quantize(tok, quant_config=dict(zero_point=True, q_group_size=GROUP, w_bit=4,
                                          version="GEMM"),
                   calib_data=calibration().tolist(), max_calib_samples=32,
                   max_calib_seq_len=64, apply_clip=False)  # clipping wants N % 64 == 0
    model.save_quantized(out)


def awq_rtn(src, out):
    """Plain round-to-nearest in the AWQ GEMM layout, for a family that neither tool can walk."""
    import json
    from safetensors.torch import load_file, save_file
    shifts = 4 * torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # of the 8 columns of a word

    def pack(x):  # [rows][N] -> int32 [rows][N/8]
        x = (x.long().reshape(x.shape[0], -1, 8) << shifts).sum(-1)
        return torch.where(x >= 1 << 31, x - (1 << 32), x).int()
    tensors = {}
    for name, w in load_file(src + "/model.safetensors").items():
        if not name.endswith(("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight")):
            tensors[name] = w
            continue
        g = w.float().T.reshape(-1, GROUP, w.shape[0])  # [G][GROUP][N]
        low, high = g.amin(1).clamp(max=0), g.amax(1).clamp(min=0)
        scale = ((high - low) / 15).half()
        zero = (-low / scale.float()).round().clamp(0, 15)
        code = (g / scale.float()[:, None] + zero[:, None]).round().clamp(0, 15)
        base = name[:-len("weight")]
        tensors[base + "qweight"] = pack(code.reshape(-1, w.shape[0]))
        tensors[base + "qzeros"] = pack(zero)
        tensors[base + "scales"] = scale
    os.makedirs(out)
    save_file(tensors, out + "/model.safetensors", metadata=dict(format="pt"))
    with open(src + "/config.json") as f:
        config = json.load(f)
    plain = [n for n in ("in_proj_a", "in_proj_b") if any(n in t for t in tensors)] or None
    config["quantization_config"] = dict(quant_method="awq", bits=4, group_size=GROUP,
                                         zero_point=True, version="gemm",
                                         modules_to_not_convert=plain)
    with open(out + "/config.json", "w") as f:
        json.dump(config, f, indent=2)
    shutil.copy(src + "/generation_config.json", out)


def ct(src, out, fmt):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
    algorithm, weights, acts = CT[fmt]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights),
                                input_activations=QuantizationArgs(**acts) if acts else None)
    kind = GPTQModifier if algorithm == "gptq" else QuantizationModifier
    kept = CT_PLAIN.get(AutoConfig.from_pretrained(src).model_type, [])
    recipe = kind(config_groups={"group_0": scheme}, ignore=["lm_head"] + kept)
    auto = AutoModelForImageTextToText if kept else AutoModelForCausalLM
    model = auto.from_pretrained(src, torch_dtype="auto")
    data = Dataset.from_dict(dict(input_ids=calibration().tolist(),
                                  attention_mask=[[1] * 64] * 32))
    oneshot(model=model, recipe=recipe, dataset=data if algorithm == "gptq" else None,
            num_calibration_samples=32, max_seq_length=64)
    model.save_pretrained(out, save_compressed=True)


def run(src, out, fmt):
    shutil.rmtree(out, ignore_errors=True)
    if fmt in GPTQ:
        gptq(src, out, fmt)
    elif fmt in CT:
        ct(src, out, fmt)
    elif fmt == "awq":
        awq(src, out)
    elif fmt == "awq-gptqmodel":
        gptq(src, out, fmt, awq=True)
    elif fmt == "awq-rtn":
        awq_rtn(src, out)
    else:
        raise ValueError(fmt)


if __name__ == "__main__":  # SRC OUT FORMAT, three arguments a model
    for i in range(1, len(sys.argv), 3):
        run(*sys.argv[i:i + 3])
        print("made", sys.argv[i + 1], flush=True)
