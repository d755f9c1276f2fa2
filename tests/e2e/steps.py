"""A prompt gives the same log probabilities, whatever the size of the steps that it is read in.

usage: steps.py MODEL_DIR [FLAG...]   (environment: ZIGCUDA, how to run the binary; FLAGs go to
every server, such as --device.kind cuda)

Prompts are long, of tokens at random: how kernels part their work depends on how many tokens a step
has. What is printed of an answer can be compared from one build to another.
"""
import hashlib
import json
import os
import random
import sys
import urllib.request

import server

MODEL, FLAGS = sys.argv[1], sys.argv[2:]
STEPS = [1024, 64, 130, 256, 384, 512, 640, 768]
PROMPTS = [900, 640, 333, 160]


def prompts():
    with open(os.path.join(MODEL, "config.json")) as f:
        config = json.load(f)
    draw, most = random.Random(5), config["max_position_embeddings"] - 8
    return [[draw.randrange(config["vocab_size"] // 8, config["vocab_size"] // 2)
             for _ in range(min(n, most))] for n in PROMPTS]


def answers(step):
    """What a server with such steps says of each prompt's tokens, and of some more."""
    flags = ["--engine.step_tokens", str(step), "--engine.prefix_cache", "false"]
    with server.Server(MODEL, *FLAGS, *flags) as s:
        got = []
        for ids in prompts():
            body = {"model": os.path.basename(MODEL.rstrip("/")), "prompt": ids, "echo": True,
                    "max_tokens": 6, "temperature": 0, "logprobs": 2, "ignore_eos": True}
            with urllib.request.urlopen(urllib.request.Request(
                    f"http://127.0.0.1:{s.port}/v1/completions", json.dumps(body).encode(),
                    {"content-type": "application/json"}), timeout=300) as reply:
                got.append(json.dumps(json.load(reply)["choices"], sort_keys=True))
        return got


def main():
    first, failed = answers(STEPS[0]), 0
    print("     prompts:", *(f"{len(p)} tokens {hashlib.sha256(a.encode()).hexdigest()[:12]}"
                             for p, a in zip(prompts(), first)))
    longest = max(len(p) for p in prompts())
    steps = [s for s in STEPS[1:] if s < longest]
    for step in steps:
        differ = [len(p) for p, a, b in zip(prompts(), answers(step), first) if a != b]
        print("FAIL" if differ else "ok  ", f"steps of {step} as those of {STEPS[0]}",
              f"(not: prompts of {differ})" if differ else "", flush=True)
        failed += bool(differ)
    print(f"{len(steps) - failed} passed, {failed} failed")
    return 1 if failed or not steps else 0


if __name__ == "__main__":
    sys.exit(main())
