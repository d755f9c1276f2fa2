"""The CUDA backend on a card of sm_75: tests/fakecuda with the kernels as they are compiled for it
and 64 KiB of shared memory a block, where heads of 256 dimensions fit to the byte.

usage: turing.py LIBCUDA   (build/sm75/libcuda.so.1; environment: ZIGCUDA, how to run the binary)
Prints `ok NAME` or `FAIL NAME: why` a check.
"""
import json
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

BINARY = shlex.split(os.environ["ZIGCUDA"])
CUDA = ["--cuda.library", os.path.abspath(sys.argv[1])]
CPU = ["--device.kind", "cpu", "--cpu.activations", "f32"]
LIKE = "tests/golden/models/llama-f32"  # what the models made here are like
HEADS, KV_HEADS, HIDDEN, INNER, VOCAB = 4, 2, 64, 128, 288
PROMPT = "The quick brown fox jumps over the lazy dog, again and again. " * 4


def write_model(folder, head_dim):
    """One layer of random weights, in f32."""
    draw = random.Random(head_dim)
    sizes = {"q_proj": (HEADS * head_dim, HIDDEN), "k_proj": (KV_HEADS * head_dim, HIDDEN),
             "v_proj": (KV_HEADS * head_dim, HIDDEN), "o_proj": (HIDDEN, HEADS * head_dim)}
    sizes = {f"model.layers.0.self_attn.{k}": v for k, v in sizes.items()}
    sizes |= {f"model.layers.0.mlp.{k}_proj": (INNER, HIDDEN) for k in ("gate", "up")}
    sizes |= {"model.layers.0.mlp.down_proj": (HIDDEN, INNER), "lm_head": (VOCAB, HIDDEN),
              "model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,),
              "model.layers.0.input_layernorm": (HIDDEN,),
              "model.layers.0.post_attention_layernorm": (HIDDEN,)}
    header, data = {}, b""
    for name, shape in sizes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [draw.gauss(0, 0.2) if len(shape) > 1 else 1 for _ in range(n)]
        header[name + ".weight"] = {"dtype": "F32", "shape": shape,
                                    "data_offsets": [len(data), len(data) + 4 * n]}
        data += struct.pack(f"<{n}f", *values)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(LIKE, "config.json")) as f:
        config = json.load(f)
    config |= {"head_dim": head_dim, "num_hidden_layers": 1, "max_position_embeddings": 1024}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    for name in "tokenizer.json", "tokenizer_config.json", "generation_config.json":
        shutil.copy(os.path.join(LIKE, name), folder)


def run(folder, device, log=""):
    return subprocess.run([*BINARY, "run", "--model", folder, "--raw", "--json", "--max-tokens",
                           "12", "--temperature", "0", "--top-logprobs", "1", *device, PROMPT],
                          env={**os.environ, "ZIGCUDA_FAKE_LOG": log}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)


def tokens(done):
    assert done.returncode == 0 and b"misuse" not in done.stderr, done.stderr[-500:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(x["id"], x["logprob"]) for x in lines if "id" in x]


def heads_of_256(folder):
    """Such as Gemma's: the same tokens as on the CPU, by a prompt of two splits."""
    write_model(folder, 256)
    log = os.path.join(folder, "log")
    cpu, cuda = tokens(run(folder, CPU)), tokens(run(folder, CUDA, log))
    assert len(cpu) == 12 and [t for t, _ in cpu] == [t for t, _ in cuda], f"{cpu} {cuda}"
    assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(cpu, cuda)), f"{cpu} {cuda}"
    with open(log) as f:
        text = f.read()
    kernels = set(re.findall(r"cuLaunchCooperativeKernel 0 (\w+)", text))
    assert kernels == {"step"}, kernels


def heads_of_512_are_refused(folder):
    write_model(folder, 512)
    done = run(folder, CUDA)
    said = done.stderr.decode()
    assert done.returncode == 6 and "heads of 512 dimensions need" in said, said
    assert f"has {64 << 10}" in said and "misuse" not in said, said


def main():
    failed = 0
    for check in heads_of_256, heads_of_512_are_refused:
        try:
            with tempfile.TemporaryDirectory() as folder:
                check(folder)
            print("ok  ", check.__name__, flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed += 1
            print("FAIL", check.__name__ + ":", str(e)[:1500], flush=True)
    print(f"{2 - failed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
