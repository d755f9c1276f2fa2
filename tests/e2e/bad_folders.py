#!/usr/bin/env python3
"""Model folders that must open and folders that must be refused.

    bad_folders.py ZIGCUDA...      for instance: build/zigcuda

`ZIGCUDA plan --model FOLDER` has to exit with the class of the error and to print a sentence that
names what is wrong. Folders: the golden models (all open), the hostile ones that
tests/golden/bad.py makes (where only rendering shows it: `ZIGCUDA run`), and the small changes to a
good one below. A signal, a time-out or a message without the wanted words is a failure.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(os.path.dirname(HERE), "golden")
MODELS = os.path.join(GOLDEN, "models")
OK, MODEL = 0, 4
TIMEOUT_S = 60


def load(path):
    """A safetensors file as {name: (dtype, shape, bytes)}."""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"],
                   data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


def save(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


class Folder:
    """A copy of a golden model that is about to be changed."""

    def __init__(self, base, directory):
        self.path = directory
        os.mkdir(directory)
        for name in os.listdir(os.path.join(MODELS, base)):
            if not name.startswith("golden."):
                shutil.copy(os.path.join(MODELS, base, name), directory)

    def file(self, name):
        return os.path.join(self.path, name)

    def config(self, **changes):
        with open(self.file("config.json")) as f:
            config = json.load(f)
        for key, value in changes.items():
            if value is None:
                config.pop(key, None)
            else:
                config[key] = value
        with open(self.file("config.json"), "w") as f:
            json.dump(config, f)

    def tensors(self, change):
        path = self.file("model.safetensors")
        tensors = load(path)
        change(tensors)
        save(path, tensors)

    def shard(self, names=("a.safetensors", "b.safetensors"), change=lambda weight_map: None):
        """Splits the weights over two files; `change` may spoil the map."""
        tensors = load(self.file("model.safetensors"))
        os.remove(self.file("model.safetensors"))
        half = len(tensors) // 2
        parts = [dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])]
        weight_map = {}
        for name, part in zip(names, parts):
            save(self.file(os.path.basename(name)), part)
            weight_map.update({tensor: name for tensor in part})
        change(weight_map)
        with open(self.file("model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map}, f)


LAYER = "model.layers.0."
FLOATS = ("F32", [4], bytes(16))
ONES = ("F32", [4], struct.pack("<4f", 1, 1, 1, 1))


def add(name, tensor):
    return lambda folder: folder.tensors(lambda t: t.update({name: tensor}))


def drop(name):
    return lambda folder: folder.tensors(lambda t: t.pop(name))


def cut(tensors, name):
    dtype, shape, data = tensors[name]
    tensors[name] = (dtype, [shape[0] - 1] + shape[1:], data[:-len(data) // shape[0]])


def tied_copy(folder):
    folder.config(tie_word_embeddings=True)
    folder.tensors(lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]}))


def rename(change):
    """change(a tensor's name) -> its new one"""
    return lambda folder: folder.tensors(lambda tensors: [
        tensors.update({change(name): tensors.pop(name)}) for name in list(tensors)])


def seeing5(name):
    """As transformers 5 has them in memory: model.language_model.X, model.vision_tower.X."""
    if name.startswith("language_model.lm_head."):
        return name.replace("language_model.", "")
    return "model." + name.replace("language_model.model.", "language_model.")


def as_published(folder):
    """Qwen2.5-VL's files, of transformers before 4.52: the keys of the text part beside the rest.
    Its names are those that its goldens have."""
    path = folder.file("config.json")
    with open(path) as f:
        config = json.load(f)
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    config |= text | {"rope_theta": rope["rope_theta"], "rope_scaling": {
        "mrope_section": rope["mrope_section"], "type": "mrope"}}
    with open(path, "w") as f:
        json.dump(config, f)


def transposed(folder):
    """As Qwen3-VL's mixtures are published, in bf16: [experts][inputs][outputs]."""
    def change(tensors):
        for name in list(tensors):
            if ".experts." in name:
                dtype, (experts, n, k), data = tensors[name]
                tensors[name] = (dtype, [experts, k, n], data)
    folder.tensors(change)


def tokenizer(change):
    """change(tokenizer.json, tokenizer_config.json)"""
    def run(folder):
        names = folder.file("tokenizer.json"), folder.file("tokenizer_config.json")
        files = []
        for name in names:
            with open(name, encoding="utf-8") as f:
                files.append(json.load(f))
        change(*files)
        for name, parts in zip(names, files):
            with open(name, "w", encoding="utf-8") as f:
                json.dump(parts, f)
    return run


def quant(**changes):
    def change(folder):
        with open(folder.file("config.json")) as f:
            config = json.load(f)["quantization_config"]
        folder.config(quantization_config={**config, **changes})
    return change


def auto_round(packing):
    """The config that AutoRound writes for the same tensors."""
    return lambda folder: folder.config(quantization_config={
        "bits": 4, "group_size": 32, "sym": False, "data_type": "int", "iters": 200,
        "quant_method": "auto-round", "packing_format": packing, "autoround_version": "0.6.0",
        "block_name_to_quantize": "model.layers"})


def lfs_pointer(name):
    return lambda folder: write(folder.file(name), "version https://git-lfs.github.com/spec/v1\n"
                                "oid sha256:" + 64 * "0" + "\nsize 4976698672\n")


def separate_quant_config(folder):
    with open(folder.file("config.json")) as f:
        config = json.load(f)["quantization_config"]
    config.pop("quant_method")
    folder.config(quantization_config=None)
    with open(folder.file("quantize_config.json"), "w") as f:
        json.dump(config, f)


def no_quant_config(folder):
    folder.config(quantization_config=None)
    if os.path.exists(folder.file("quantize_config.json")):
        os.remove(folder.file("quantize_config.json"))


def unaligned(folder):
    """Every tensor at an odd address, as old writers left them."""
    tensors = load(folder.file("model.safetensors"))
    save(folder.file("model.safetensors"), {"odd": ("U8", [1], b"x"), **tensors})


# name, model it starts from, the change, exit class, words of the message
CHANGES = [
    ("stray rope table", "llama-f32", add(LAYER + "self_attn.rotary_emb.inv_freq", FLOATS), OK, ""),
    ("stray tensor of nobody", "llama-f32", add("vision.weight", FLOATS), OK, ""),
    ("bias of zeros", "llama-f32", add(LAYER + "mlp.up_proj.bias", FLOATS), OK, ""),
    ("bias nobody asked for", "llama-f32", add(LAYER + "mlp.up_proj.bias", ONES), MODEL,
     "mlp.up_proj.bias"),
    ("layer nobody asked for", "llama-f32", add("model.layers.9.mlp.up_proj.weight", FLOATS), MODEL,
     "model.layers.9."),
    ("norm nobody asked for", "llama-f32", add(LAYER + "self_attn.q_norm.weight", ONES), MODEL,
     "q_norm.weight"),
    ("fewer layers in config.json", "llama-f32", lambda f: f.config(num_hidden_layers=1), MODEL,
     "model.layers.1."),
    ("no norm", "llama-f32", drop("model.norm.weight"), MODEL, "\"model.norm.weight\" is missing"),
    ("short matrix", "llama-f32",
     lambda f: f.tensors(lambda t: cut(t, LAYER + "self_attn.k_proj.weight")), MODEL,
     "k_proj.weight"),
    ("no head", "llama-f32", drop("lm_head.weight"), OK, ""),
    ("no head, a classifier", "llama-f32",
     lambda f: (drop("lm_head.weight")(f),
                f.config(architectures=["LlamaForSequenceClassification"])),
     MODEL, "architectures names no ...ForCausalLM"),
    ("no head, tied", "llama-f32",
     lambda f: (drop("lm_head.weight")(f), f.config(tie_word_embeddings=True)), OK, ""),
    ("a head beside tied embeddings", "llama-f32", lambda f: f.config(tie_word_embeddings=True),
     MODEL, "lm_head.weight is no copy"),
    ("a copy beside tied embeddings", "llama-f32", tied_copy, OK, ""),
    ("unaligned", "llama-f32", unaligned, OK, ""),
    ("unaligned gptq", "llama-gptq4-act", unaligned, OK, ""),
    ("gptq of AutoRound", "llama-gptq4", auto_round("auto_round:auto_gptq"), OK, ""),
    ("awq of AutoRound", "llama-awq", auto_round("auto_round:auto_awq"), OK, ""),
    ("quantize_config.json", "llama-gptq4", separate_quant_config, OK, ""),
    ("no quantization config", "llama-gptq4", no_quant_config, MODEL, "is quantized, but"),
    ("another group size", "llama-gptq4", quant(group_size=64), MODEL, "qzeros"),
    ("v2 said of v1", "llama-gptq4", quant(checkpoint_format="gptq_v2", format="gptq_v2"), MODEL,
     "checkpoint_format"),
    ("zero points of their own, said symmetric", "llama-gptq4-asym", quant(sym=True), OK, ""),
    ("other names of a text part", "gemma3-seeing-bf16", rename(seeing5), OK, ""),
    ("other names, and a head", "mistral3-seeing-f16", rename(seeing5), OK, ""),
    ("other names, of one whose text part has none", "qwen2-5-vl-bf16",
     rename(lambda n: n if n.startswith("lm_head.") else "model." + n.replace(
         "model.", "language_model.")), OK, ""),
    ("no text_config", "qwen2-5-vl-bf16", as_published, OK, ""),
    ("experts transposed", "qwen3-vl-moe-bf16", transposed, MODEL, "experts.gate_up_proj"),
    ("no text_config where there has to be one", "qwen3-vl-bf16", lambda f: f.config(
        text_config=None), MODEL, "text_config"),
    ("layer nobody asked for, of a text part without a name", "qwen2-5-vl-bf16",
     add("model.layers.9.mlp.up_proj.weight", FLOATS), MODEL, "model.layers.9."),
    ("layer nobody asked for, of a text part", "gemma3-seeing-bf16",
     add("language_model.model.layers.9.mlp.up_proj.weight", FLOATS), MODEL,
     "model.layers.9."),
    ("other rope type", "llama-f32",
     lambda f: f.config(rope_parameters={"rope_type": "dynamic", "factor": 2.0}), MODEL, "dynamic"),
    ("a pad token beyond the vocabulary", "llama-f32",
     tokenizer(lambda t, c: c.update(pad_token="[PAD]")), OK, ""),
    ("a bos token beyond the vocabulary", "llama-f32",
     tokenizer(lambda t, c: (
         t["added_tokens"].append({"id": 288, "content": "[BOS]", "special": True}),
         c.update(bos_token="[BOS]", add_bos_token=True, tokenizer_class="LlamaTokenizer"))),
     MODEL, "token ids up to 288, but vocab_size"),
    ("shards", "llama-f32", lambda f: f.shard(), OK, ""),
    ("shard in a folder", "llama-f32", lambda f: f.shard(("sub/a.safetensors", "b.safetensors")),
     MODEL, "sub/a.safetensors"),
    ("shard above", "llama-f32", lambda f: f.shard(("../a.safetensors", "b.safetensors")), MODEL,
     "../a.safetensors"),
    ("shard of another kind", "llama-f32", lambda f: f.shard(("a.bin", "b.safetensors")), MODEL,
     "a.bin"),
    ("missing shard", "llama-f32",
     lambda f: f.shard(change=lambda m: m.update(x="c.safetensors")), MODEL, "c.safetensors"),
    ("tensor in no shard", "llama-f32",
     lambda f: f.shard(change=lambda m: m.update(x="a.safetensors")), MODEL,
     "\"x\" is not in a.safetensors"),
    ("tensor in another shard", "llama-f32",
     lambda f: f.shard(change=lambda m: m.update(
         {k: "b.safetensors" for k, v in list(m.items())[:1]})), MODEL, "is not in b.safetensors"),
    ("two shards with one tensor", "llama-f32",
     lambda f: (f.shard(), shutil.copy(f.file("a.safetensors"), f.file("c.safetensors")),
                f.config(), add_to_map(f, "c.safetensors")), MODEL, "stands in"),
    ("only .bin weights", "llama-f32",
     lambda f: os.rename(f.file("model.safetensors"), f.file("pytorch_model.bin")), MODEL,
     "converted to safetensors"),
    ("weights under another name", "llama-gptq4",
     lambda f: os.rename(f.file("model.safetensors"),
                         f.file("gptq_model-4bit-128g.safetensors")), OK, ""),
    ("shards without an index", "llama-f32",
     lambda f: (f.shard(), os.remove(f.file("model.safetensors.index.json"))), MODEL,
     "holds 2 .safetensors files"),
    ("file cut short", "llama-f32",
     lambda f: os.truncate(f.file("model.safetensors"), 40000), MODEL, "outside the"),
    *[("Git LFS pointer of " + name, base, lfs_pointer(name), MODEL, f"{name} is a Git LFS pointer")
      for base, name in [("llama-f32", "model.safetensors"), ("llama-f32", "tokenizer.json"),
                         ("llama-f32", "config.json"),
                         ("mistral-sharded-f16", "model-00002-of-00004.safetensors")]],
    ("empty file", "llama-f32", lambda f: os.truncate(f.file("model.safetensors"), 0), MODEL,
     "is empty"),
    ("sampling default out of range", "llama-f32",
     lambda f: write(f.file("generation_config.json"), '{"temperature": -2}'), MODEL,
     "generation_config.json: temperature"),
]


def add_to_map(folder, shard):
    path = folder.file("model.safetensors.index.json")
    with open(path) as f:
        index = json.load(f)
    first = next(iter(index["weight_map"]))
    index["weight_map"][first] = shard
    write(path, json.dumps(index))


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class Runner:
    def __init__(self, zigcuda):
        self.zigcuda = zigcuda
        self.passed = self.failed = 0

    def check(self, name, folder, classes, *words, command=("plan",)):
        start = time.monotonic()
        try:
            p = subprocess.run(self.zigcuda + [command[0], "--model", folder, *command[1:]],
                               stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            code, text = p.returncode, p.stdout.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            code, text = "a time-out", ""
        text = text.replace(folder, "DIR")
        good = code in classes and all(w in text for w in words)
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name} ({(time.monotonic() - start) * 1e3:.0f} ms)")
        if not good:
            print(f"    exit {code}, {classes} expected, with the words: {', '.join(words)}")
            print(f"    {text.strip()[:400]}")


def hostile(runner, directory):
    """The folders of bad.py: class `model` is refused on opening, `render` at the latest when a
    prompt is rendered."""
    subprocess.run([sys.executable, os.path.join(GOLDEN, "bad.py"), directory], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(directory, "expect.tsv")) as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    for name, kind, *words in rows:
        folder = os.path.join(directory, name)
        if kind == "render":
            runner.check(name, folder, (MODEL,), *words, command=("run", "Hi"))
        else:
            runner.check(name, folder, (OK if kind == "ok" else MODEL,), *words)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    runner = Runner(sys.argv[1:])
    for name in sorted(os.listdir(MODELS)):
        runner.check(name, os.path.join(MODELS, name), (OK,))
    with tempfile.TemporaryDirectory() as scratch:
        for i, (name, base, change, exit_class, words) in enumerate(CHANGES):
            folder = Folder(base, os.path.join(scratch, f"change{i}"))
            change(folder)
            runner.check(name, folder.path, (exit_class,), words)
        hostile(runner, os.path.join(scratch, "hostile"))
    print(f"{runner.passed} passed, {runner.failed} failed")
    sys.exit(runner.failed != 0)


if __name__ == "__main__":
    main()
