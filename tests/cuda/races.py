"""Steps of small models by the kernels that look for races (tests/fakecuda/races.h): each kind of
card, of matrix and of numbers of tokens. Accesses that nothing puts in order, within a block or
between blocks, are a failure, and are told with their lines of code; but for those of KNOWN.

usage: races.py FOLDER [NAME..]   with zigcuda, golden and what is in races/; without names: all
"""
import os
import re
import subprocess
import sys

OBJECTS = os.path.abspath(sys.argv[1])
LIBRARY = os.path.join(OBJECTS, "races/libcuda.so.1")
MODELS = "tests/golden/models/"
BENCH = ["bench", "--device.kind", "cuda", "--cuda.library", LIBRARY, "--cuda.step_time", "300s",
         "--repeat", "1"]
RACE = re.compile(r"race: (kernel \w+, \w+) 0x\w+: (block \d+, thread \d+ \w+) at \+(0x\w+), "
                  r"(block \d+, thread \d+ \w+) at \+(0x\w+)")

# Functions that reads are in and that writes are in, and why nothing comes of it.
KNOWN = {
    # Copies of pages bring positions that this step writes as they were or as they will be: they
    # are put in their place from registers (splits_mend_page), or seen by nobody.
    ("splits_", "rope_put_kv"),
    ("splits_", "rope_put_bytes"),
    # A row in `one_token` is added to by whose block has asked for all of it, and met. The hardware
    # keeps that order, the memory model does not promise it; asking again takes 1.5 % of a step.
    ("one_begin", "vector_embed"),
    ("one_begin", "few_finish"),
    # What is read where there is nothing, so that all lanes read, is not looked at.
    ("rope_read", "rope_write_q"),
}


def bench(model, *words, **options):
    """Words of `zigcuda bench`."""
    return [os.path.join(OBJECTS, "zigcuda"), *BENCH, "--model", model, *words,
            *(w for k, v in options.items() for w in ("--" + k, v))]


def steps(model, **options):
    """Decoding, and prompts."""
    return bench(MODELS + model, depth="4", generate="3", **options)


def golden(*models):
    """Steps whose logits and tokens are compared as well."""
    return [os.path.join(OBJECTS, "golden"), "--cuda=" + LIBRARY, "tests/golden", *models]


RUNS = {
    # On Hopper `mid_..` takes what has groups of 128, or none.
    "int4": ({}, steps("llama-gptq4-col", batch="1,3,6,20,40,100", prompt="70,20")),
    "int8": ({}, steps("llama-ct8", batch="1,3,20", prompt="70")),
    "halves": ({}, steps("phi3-long-bf16", batch="1,3,20", prompt="70")),
    # Three splits a unit, and more items a team than are looked up at a time, three times.
    "long_rows": ({}, bench("image/demo", "--steps", prompt="none", batch="26", depth="300",
                            generate="1")),
    "kv_of_bytes": ({}, steps("llama-gptq4-col", **{"engine.kv_type": "int8"}, batch="1,3,6",
                              prompt="20")),
    "small_groups": ({}, golden("qwen3-awq")),
    "bytes": ({}, golden("llama-ct-w8a8")),
    "norms_behind": ({}, golden("gemma2-f32", "olmo2-gptq4", "glm4-gptq4")),
    "experts": ({}, golden("mixtral-awq", "qwen3-moe-step-bf16", "glm4-moe-ct4",
                           "gpt-oss-many-mxfp4")),
    "long_experts": ({}, steps("qwen3-moe-wide-gptq4-col", batch="1,3", prompt="150")),
    "other_cards": ({"ZIGCUDA_FAKE": "sm=86"},
                    steps("llama-gptq4-col", batch="1,3,20", prompt="150")),
    "other_cards_small_groups": ({"ZIGCUDA_FAKE": "sm=86"}, golden("phi3-gptq4-act")),
}


# Operations alone.
TESTS = {
    "linear": ({}, [os.path.join(OBJECTS, "races/linear_test"), "--some"]),
    "attention": ({}, [os.path.join(OBJECTS, "races/attention_test"), "1b", "qwen3", "gemma2",
                       "group of 17", "70 rows", "bytes, 64", "bytes, 256", "sinks, window",
                       "sinks, 17", "sinks, bytes"]),
    "sample": ({}, [os.path.join(OBJECTS, "races/sample_test")]),
    "delta": ({}, [os.path.join(OBJECTS, "races/delta_test")]),
    "mixtures": ({}, [os.path.join(OBJECTS, "races/experts_test"), "--some"]),
}


def lines_of(addresses, module):
    """What stands at these in a file: [(function, file:line)], callers behind."""
    if not addresses:
        return {}
    # An address is where a call returns to.
    said = subprocess.run(["addr2line", "-Cfia", "-e", module,
                           *(hex(int(a, 16) - 1) for a in addresses)],
                          check=True, stdout=subprocess.PIPE).stdout.decode()
    frames = []
    for line in said.splitlines():
        if line.startswith("0x"):
            frames.append([])
        elif len(frames[-1]) and len(frames[-1][-1]) == 1:
            frames[-1][-1].append(os.path.basename(line.split(" ")[0]))
        else:
            frames[-1].append([re.sub(r"[<(].*", "", line.replace("void ", ""))])
    ours = [[f for f in of if not f[1].startswith("emulate")] or of for of in frames]
    return dict(zip(addresses, ours))


def is_known(one, other):
    """Frames of both, in either order."""
    def has(frames, name):
        return any(f[0].startswith(name) for f in frames)
    return any(has(a, read) and has(b, write) for read, write in KNOWN
               for a, b in ((one, other), (other, one)))


def words(frames):
    return " < ".join(" ".join(f) for f in frames[:4])


def check(name, environment, command):
    done = subprocess.run(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode()
    races = RACE.findall(text)
    module = command[0] if command[0].startswith(os.path.join(OBJECTS, "races")) else LIBRARY
    at = lines_of(sorted({r[i] for r in races for i in (2, 4)}), module)
    bad = [r for r in races if not is_known(at[r[2]], at[r[4]])]
    good = done.returncode == 0 and not bad and len(races) == text.count("race:")
    print("ok  " if good else "FAIL", name, flush=True)
    for where, one, a, other, b in bad:
        print(f"  {where}\n    {one}: {words(at[a])}\n    {other}: {words(at[b])}")
    if done.returncode:
        print(text[-600:])
    return good


results = [check(name, *{**RUNS, **TESTS}[name]) for name in sys.argv[2:] or {**RUNS, **TESTS}]
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
