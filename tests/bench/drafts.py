"""Tokens a step by guesses (engine.drafts), in files that were changed: what commits of this
repository made of a file, where the prompt has the file as it was, or only the prediction; in texts
that repeat little; and in short answers of one kind. No model runs: see tests/bench/drafts.c.

usage: build/venv/bin/python3 tests/bench/drafts.py [--edits 150] [--drafts 3,7,15]
           [--ms T0,T1,...]    what steps of 1, 1+1, ... tokens take (zigcuda bench --guesses)
"""
import argparse
import glob
import itertools
import json
import os
import random
import struct
import subprocess

import tokenizers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = (".c", ".h", ".cuh", ".py", ".md")
VOCABULARY = 32000


def git(*words):
    p = subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE,
                       stderr=subprocess.DEVNULL)
    return p.stdout.decode("utf-8", "replace")


def tokenizer():
    """Byte-level BPE of this repository's own files."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    names = [os.path.join(ROOT, n) for n in git("ls-files").split() if n.endswith(KINDS)]
    t.train(names, tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return t


def edits(count):
    """(subject of the commit, file before it, file after it): one file of a commit, of which less
    than half has changed."""
    found, commits = [], git("log", "--format=%H").split()
    random.Random(1).shuffle(commits)
    for commit in commits:
        for line in git("diff", "--numstat", "--diff-filter=M", commit + "^", commit).splitlines():
            more, less, name = line.split("\t")
            if not name.endswith(KINDS) or "=>" in name:
                continue
            old, new = (git("show", f"{c}:{name}") for c in (commit + "^", commit))
            if old and 1500 < len(new) < 40000 and \
                    2 <= int(more) + int(less) < new.count("\n") / 2:
                found.append((git("log", "-1", "--format=%s", commit).strip(), old, new))
                break
        if len(found) == count:
            break
    return found


def reading(rng):
    """What a machine may be told to say of a value."""
    kind, value = rng.choice(["temperature", "pressure", "humidity"]), round(rng.uniform(5, 95), 1)
    about = "above its limit of 80; call maintenance" if value > 80 else "within its normal range"
    return json.dumps({"sensor": f"{kind[0].upper()}-{rng.randint(1, 40)}", "kind": kind,
                       "value": value, "status": "alarm" if value > 80 else "ok",
                       "message": f"The {kind} is {about}.", "sure": round(rng.random(), 2)})


def letter(rng):
    more = rng.choice(["If you have any questions, please reply to this message.",
                       "Our team is happy to help you at any time.",
                       f"You can follow it with the number {rng.randint(1000, 99999)}."])
    name = rng.choice(["Anna", "Bob", "Clara", "Dan"])
    return f"Dear {name},\n\nthank you for your order. Your " \
           f"parcel will arrive in {rng.choice(['Paris', 'Rome', 'Oslo'])} on the " \
           f"{rng.randint(4, 20)}th. {more}\n\nKind regards,\nThe shop team"


def sample(t, prompt, answer, prediction=""):
    ids = [t.encode(text).ids for text in (prompt, answer, prediction)]
    flat = [i for part in ids for i in part]
    return struct.pack(f"3I{len(flat)}I", *map(len, ids), *flat)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--edits", type=int, default=150)
    parser.add_argument("--drafts", default="3,7,15")
    parser.add_argument("--ms", default="")
    args = parser.parse_args()
    ms = [float(x) for x in args.ms.split(",") if x]
    t, changed, rng = tokenizer(), edits(args.edits), random.Random(2)
    plain = [open(n, errors="replace").read()[:20000]
             for n in sorted(glob.glob("/usr/lib/python3*/*.py"))[:100]]
    texts = {
        "old file in the prompt": [sample(t, f"{old}\n{what}", new) for what, old, new in changed],
        "old file as prediction": [sample(t, what, new, old) for what, old, new in changed],
        "new file, nothing known": [sample(t, what, new) for what, old, new in changed],
        "other files": [sample(t, "Write.\n", text) for text in plain if len(text) > 1000],
        "readings in JSON": [sample(t, f"Reading {i}: ", reading(rng)) for i in range(300)],
        "letters": [sample(t, f"Order {i}: ", letter(rng)) for i in range(300)],
    }
    for name, samples in texts.items():
        for most, *alone in itertools.product(args.drafts.split(","), ("alone", "")):
            p = subprocess.run([os.path.join(ROOT, "build/drafts"), most, *filter(None, alone)],
                               input=b"".join(samples), stdout=subprocess.PIPE, check=True)
            n, said, steps, guessed, right, *with_ = map(int, p.stdout.split())
            line = f"{name:24} {n:4} texts {alone[0]:5} {most:>3} guesses: {said / steps:6.3f} " \
                   f"tokens a step, {100 * right / max(guessed, 1):5.1f} % right"
            if len(ms) >= len(with_):
                line += f", {said * ms[0] / sum(a * b for a, b in zip(with_, ms)):6.3f} as fast"
            print(line)


main()
