#!/usr/bin/env python3
"""Makes, re-makes and re-checks the goldens in tests/golden/models (see README.md).

    make.py                 build the venv if missing, make every model that is missing
    make.py --force [NAME]  make these (or all) again
    make.py --check [NAME]  recompute the goldens of the committed folders and compare
    make.py --tools [NAME]  hold the quantized weights against the tool that made them

Everything runs on the CPU, from fixed seeds. Scratch goes to build/goldens.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "..", "build", "goldens")
VENV = os.path.join(BUILD, "venv")
PYTHON = os.path.join(VENV, "bin", "python")
OVERLAY = os.path.join(BUILD, "transformers4")  # put before the venv on PYTHONPATH
MODELS = os.path.join(HERE, "models")

# GPTQModel asks for a newer torch than llm-compressor allows; it runs with the older one.
NO_DEPS = ["gptqmodel==7.7.0", "device-smi==0.5.7", "pypcre==0.6.4", "tokenicer==0.0.14",
           "logbar==0.4.15", "defuser==0.0.28", "torchao==0.18.0"]
# AutoAWQ's last release knows transformers up to 4.51; the same writes config.json's old form.
# llm-compressor 0.6 is there too, since later ones no longer write actorder "group".
TRANSFORMERS4 = ["transformers==4.51.3", "huggingface_hub==0.36.2", "tokenizers==0.21.4",
                 "datasets==3.6.0", "autoawq==0.2.9", "llmcompressor==0.6.0.1",
                 "compressed-tensors==0.10.2"]

# Each of these in f32 and in the three formats that people download most.
CORE = ["llama", "llama3", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma2", "gemma3"]
EXTRA = [("llama-form4", "f16"), ("llama-linear", "bf16"), ("llama-yarn", "f16"),
         ("qwen2-window", "f16"), ("phi3-long", "bf16"), ("gemma", "bf16"),
         ("mistral-sharded", "f16"), ("gemma3-seeing", "bf16"), ("mistral3-seeing", "f16"),
         ("qwen2-5-vl", "bf16"), ("qwen3-vl", "bf16"), ("qwen3-vl-moe", "bf16"),
         ("llama", "f16"), ("llama", "bf16"), ("qwen3-embedding", "bf16"),
         ("qwen3-moe-step", "bf16"), ("qwen3-moe-joined", "bf16"), ("mixtral", "f32")]
EXPERTS = ["qwen3-moe", "mixtral"]
MORE = ["granite", "olmo2"]
COMMON = ["gptq4", "awq", "ct4"]
OTHER = ["gptq4-asym", "gptq4-v2", "gptq4-act", "gptq8", "gptq4-col", "ct4-asym", "ct4-act",
         "ct8", "ct-w8a8"]
OTHER_FAMILIES = ["llama", "qwen2", "phi3"]
# AutoAWQ lacks them, GPTQModel's AWQ fails on gemma 3's two rotary embeddings, and on positions
# of three kinds
AWQ_RTN = ["gemma3", "qwen3-5"]
AUTOAWQ = ["llama", "llama3", "mistral", "mixtral", "qwen2", "qwen3", "qwen3-moe-many",
           "phi3", "gemma2"]
# quantized from bfloat16, the rest from float16
BF16 = ["qwen3", "qwen3-moe", "qwen3-moe-many", "qwen3-moe-wide", "smollm3", "gemma2", "gemma3",
        "granite", "olmo2", "olmo3", "olmoe", "glm", "glm4", "granitemoe", "seed-oss", "ernie4-5",
        "ernie4-5-moe",
        "ministral", "ministral3", "minicpm", "hunyuan", "exaone4", "qwen2-moe", "glm4-moe",
        "qwen3-5", "qwen3-5-seeing", "qwen3-5-moe", "lfm2", "gemma4", "granite-hybrid-form5",
        "granite-h",
        "nemotron-h", "nemotron-h-mixed"]

# in names of folders, where not the family's
NAMES = {"qwen3-5-seeing": "qwen3-5", "lfm2-plain": "lfm2",
         "granite-hybrid-form5": "granite-hybrid", "granite-h-short": "granite-h",
         "nemotron-h-short": "nemotron-h", "nemotron-h-mixed": "nemotron-h-moe"}


def plan():
    """[(name, family, format)] in the order of models.tsv"""
    rows = [(f, "f32") for f in CORE] + EXTRA
    rows += [(f, q) for q in COMMON for f in CORE]
    rows += [(f, q) for q in OTHER for f in OTHER_FAMILIES]
    rows += [(f, q) for q in ["bf16", "gptq4", "gptq4-act", "ct4"] for f in EXPERTS]
    rows += [("qwen3-moe-many", "awq"), ("mixtral", "awq"), ("qwen3-moe-wide", "gptq4-col")]
    rows += [(f, q) for f in MORE for q in ["f32", "bf16"] + COMMON]
    rows += [("glm", "bf16"), ("glm4", "f32"), ("glm4", "bf16"), ("glm4", "gptq4"),
             ("glm4", "ct4")]
    rows += [("granitemoe", "bf16"), ("granitemoe", "ct4"), ("minicpm", "f32"),
             ("minicpm", "gptq4")]
    rows += [("olmo3", "bf16"), ("olmo3", "gptq4"), ("olmoe", "f32"), ("olmoe", "ct4"),
             ("olmoe", "gptq4")]
    rows += [("seed-oss", "bf16"), ("seed-oss", "ct4"), ("ernie4-5", "bf16"), ("ernie4-5", "gptq4"),
             ("ernie4-5-moe", "bf16"), ("ernie4-5-moe", "ct4")]
    rows += [("ministral", "bf16"), ("ministral", "ct4"), ("ministral3", "bf16"),
             ("ministral3", "ct4"), ("hunyuan", "f32"), ("hunyuan", "gptq4"), ("exaone4", "f32"),
             ("exaone4", "gptq4"),
             ("qwen2-moe", "bf16"), ("qwen2-moe", "ct4"),
             ("glm4-moe", "bf16"), ("glm4-moe", "ct4")]
    rows += [("qwen3-5", "f32"), ("qwen3-5-seeing", "bf16"), ("qwen3-5-moe", "bf16"),
             ("qwen3-5-seeing", "ct4"), ("qwen3-5-moe", "ct4"), ("qwen3-5", "gptq4"),
             ("qwen3-5", "awq"), ("qwen3-next", "bf16")]
    rows += [("gpt-oss", "mxfp4"), ("gpt-oss-many", "mxfp4")]
    rows += [("lfm2", "bf16"), ("lfm2-plain", "f32"), ("lfm2", "ct4"), ("lfm2", "gptq4"),
             ("lfm2-form4", "bf16"), ("lfm2-moe", "bf16")]
    rows += [("gemma4", "bf16"), ("gemma4-seeing", "bf16"), ("gemma4-dense", "f32"),
             ("gemma4-moe", "bf16"), ("gemma4", "ct4"), ("gemma4", "gptq4")]
    rows += [("granite-hybrid", "bf16"), ("granite-hybrid-form5", "ct4"),
             ("granite-h-short", "f32"), ("granite-h", "ct4"), ("granite-h-moe", "bf16")]
    rows += [("nemotron-h-short", "f32"), ("nemotron-h", "ct4"),
             ("nemotron-h-moe", "bf16"), ("nemotron-h-mixed", "ct4")]
    return [(f"{NAMES.get(f, f)}-{q}", f, q) for f, q in rows]


def setup():
    if not os.path.exists(VENV + "/ready"):
        subprocess.check_call([sys.executable, "-m", "venv", VENV])
        pip = [PYTHON, "-m", "pip", "install", "-q"]
        subprocess.check_call(pip + ["-r", HERE + "/requirements.txt"])
        subprocess.check_call(pip + ["--no-deps"] + NO_DEPS)
        subprocess.check_call(pip + ["--no-deps", "--target", OVERLAY] + TRANSFORMERS4)
        open(VENV + "/ready", "w").close()


def env(overlay=False):
    e = dict(os.environ, CUDA_VISIBLE_DEVICES="", PYTHONHASHSEED="0", HF_HUB_OFFLINE="1",
             TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    e.pop("PYTHONPATH", None)
    if overlay:
        e["PYTHONPATH"] = OVERLAY
    return e


# ---- the rest runs inside the venv ------------------------------------------------------------

def tool(script, args, overlay=False):
    """One process for all models of one tool; the end of its log is shown when it fails."""
    if not args:
        return
    log = os.path.join(BUILD, "log-" + script + ("-4" if overlay else "") + ".txt")
    with open(log, "w") as f:
        rc = subprocess.call([PYTHON, os.path.join(HERE, script)] + args, stdout=f, stderr=f,
                             env=env(overlay), cwd=BUILD)
    if rc:
        sys.exit(f"{script} failed, the end of {log}:\n" + open(log).read()[-3000:])


def ends_texts(folder):
    """The tokenizer puts </s> behind every text, as those of embedding models do."""
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as f:
        j = json.load(f)
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    j["post_processor"]["single"].append(end)
    j["post_processor"]["special_tokens"]["</s>"] = {"id": "</s>", "ids": [1], "tokens": ["</s>"]}
    with open(path, "w") as f:
        json.dump(j, f, ensure_ascii=False, separators=(",", ":"))


def copy_tokenizer(folder, form4):
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
              "special_tokens_map.json"):
        src = os.path.join(BUILD, "tok4" if form4 else "tok5", f)
        dst = os.path.join(folder, f)
        if os.path.exists(src):
            shutil.copy(src, dst)
        elif os.path.exists(dst):
            os.remove(dst)


def tidy(folder):
    """Drops logs and recipes, and this machine's scratch path from GPTQModel's notes."""
    keep = ("config.json", "generation_config.json", "quantize_config.json")
    beside = ("modules.json", "1_Pooling", "config_sentence_transformers.json")
    for f in os.listdir(folder):
        if not (f.endswith(".safetensors") or f.endswith(".index.json") or f in keep + beside):
            os.remove(os.path.join(folder, f))
    for f in keep:
        path = os.path.join(folder, f)
        if os.path.exists(path) and "offload_to_disk_path" in open(path).read():
            j = json.load(open(path))
            (j.get("quantization_config") or j)["meta"].pop("offload_to_disk_path")
            with open(path, "w") as out:
                json.dump(j, out, indent=2)


def source_of(family, fmt):
    from importlib.metadata import version
    if fmt in ("f32", "f16", "bf16"):
        return "transformers " + ("4.51.3" if family == "llama-form4" else version("transformers"))
    if fmt == "mxfp4":
        return f"transformers {version('transformers')}, codes of the experts by families.py"
    if fmt == "awq":
        return ("AutoAWQ 0.2.9" if family in AUTOAWQ else
                "round-to-nearest by quantize.py" if family in AWQ_RTN else
                "GPTQModel " + version("gptqmodel"))
    if fmt.startswith("gptq"):
        joined = ", its gate_proj and up_proj joined into gate_up_proj" \
            if family in ("phi3", "glm4") else ""
        return "GPTQModel " + version("gptqmodel") + joined
    if fmt == "ct4-act":
        return "llm-compressor 0.6.0.1, compressed-tensors 0.10.2"
    return f"llm-compressor {version('llmcompressor')}, compressed-tensors " + \
        version("compressed-tensors")


def under4(family, fmt):
    """Which models are made under transformers 4, config.json's old form with them."""
    return family == "llama-form4" or fmt == "ct4-act" or (fmt == "awq" and family in AUTOAWQ)


def make(rows):
    import torch
    import families
    import tokenizer
    tokenizer.build(BUILD + "/tok5")
    tool("tokenizer.py", [BUILD + "/tok4"], overlay=True)
    types = dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16)
    build4, by4, by5 = [], [], []
    for name, family, fmt in rows:
        out = os.path.join(MODELS, name)
        shutil.rmtree(out, ignore_errors=True)
        half = "bf16" if family in BF16 else "f16"
        src = os.path.join(BUILD, "src", f"{family}-{half}")
        if fmt in types:
            if family in families.FORM4:
                build4 += [family, "float16", out]
            else:
                families.build(family.replace("-sharded", ""), types[fmt], out,
                               "50KB" if "sharded" in family else None)
        elif fmt == "mxfp4":
            families.build_mxfp4(family, out)
        elif under4(family, fmt):
            build4 += [family, "float16", src + "-4"]
            by4 += [src + "-4", out, fmt]
        else:
            families.build(family, types[half], src)
            copy_tokenizer(src, False)
            if fmt == "awq":
                fmt = "awq-rtn" if family in AWQ_RTN else "awq-gptqmodel"
            by5 += [src, out, fmt]
    tool("families.py", build4, overlay=True)
    for src in by4[::3]:
        copy_tokenizer(src, True)
    tool("quantize.py", by4, overlay=True)
    for kind in ("gptq", "ct"):  # the two libraries patch torch, each gets its own process
        part = [a for i in range(0, len(by5), 3) for a in by5[i:i + 3]
                if (kind == "ct") == by5[i + 2].startswith("ct")]
        tool("quantize.py", part)


def finish(rows):
    import goldens
    for name, family, fmt in rows:
        folder = os.path.join(MODELS, name)
        tidy(folder)
        copy_tokenizer(folder, under4(family, fmt))
        if "embedding" in family:
            ends_texts(folder)
            goldens.write_embeddings(folder)
        gap, distinct, peak, std = goldens.write(folder, family, fmt, source_of(family, fmt),
                                                 sum(name.encode()))
        if family == "minicpm":
            import families
            families.rewrite(folder, families.minicpm)
        print(f"{name:20} gap {gap:.4f} distinct {distinct:2} peak {peak:.1f} std {std:.1f}",
              flush=True)


def list_models():
    with open(os.path.join(HERE, "models.tsv"), "w") as out:
        for name, family, fmt in plan():
            path = os.path.join(MODELS, name, "golden.json")
            if os.path.exists(path):
                out.write(f"{name}\t{family}\t{fmt}\t{json.load(open(path))['tolerance']:g}\n")


def check(rows):
    import goldens
    bad = 0
    for name, _, fmt in rows:
        diff, same = goldens.check(os.path.join(MODELS, name))
        if "embedding" in name:
            diff = max(diff, goldens.check_embeddings(os.path.join(MODELS, name)))
        ok = same and diff < 2e-5
        bad += not ok
        print(f"{'ok ' if ok else 'BAD'} {name:20} logits {diff:.1e} greedy "
              f"{'same' if same else 'DIFFER'}", flush=True)
    return bad


def tools(rows):
    import dequant
    bad = 0
    packing = os.path.join(OVERLAY, "awq", "utils", "packing_utils.py")
    for name, _, fmt in rows:
        if fmt in ("f32", "f16", "bf16"):
            continue
        folder, theirs = os.path.join(MODELS, name), None
        if fmt == "ct4-act":
            tool("dequant.py", [folder, BUILD + "/theirs.safetensors"], overlay=True)
            theirs = dequant.load_file(BUILD + "/theirs.safetensors")
        worst, count = dequant.check(folder, packing, theirs)
        ok = worst < 1.0 and count > 0
        bad += not ok
        print(f"{'ok ' if ok else 'BAD'} {name:20} {count} linears, {worst:.2f} of the "
              "rounding allowed", flush=True)
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--force", action="store_true")
    p.add_argument("--check", action="store_true")
    p.add_argument("--tools", action="store_true")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    if sys.prefix != os.path.realpath(VENV):
        setup()
        os.execve(PYTHON, [PYTHON, os.path.abspath(__file__)] + sys.argv[1:], env())
    known = [r[0] for r in plan()]
    if set(a.names) - set(known):
        sys.exit(f"unknown model {sorted(set(a.names) - set(known))}; known: {' '.join(known)}")
    rows = [r for r in plan() if not a.names or r[0] in a.names]
    if a.check or a.tools:
        sys.exit(1 if (check if a.check else tools)(rows) else 0)
    if not a.force:
        rows = [r for r in rows if not os.path.exists(os.path.join(MODELS, r[0], "golden.json"))]
    make([r for r in rows
          if a.force or not os.path.exists(os.path.join(MODELS, r[0], "config.json"))])
    finish(rows)
    list_models()


if __name__ == "__main__":
    main()
