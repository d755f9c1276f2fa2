#!/usr/bin/env python3
"""Held-out perplexity of the demo model in f32, bf16 and INT4, and chats with the INT4 folder.

    eval.py --folder image/demo [--model DIR --data DIR] [--ask "What is a horse?"]

The INT4 folder is read as any reader of GPTQ would: unpacked here to float weights, which a
transformers LlamaForCausalLM then runs. Fails if INT4 is more than 3 % worse.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import train

QUESTIONS = """
Hello!
Who are you?
What is a horse?
What is the capital of France?
What is 7 + 5?
How many legs does a spider have?
Tell me a story about a fox.
What is the opposite of hot?
Why is the sky blue?
What colour is a banana?
What day comes after Monday?
Is an elephant bigger than a mouse?
Who is Brumbo Kettlewick?
What time is it?
Name three fruits.
How do I make tea?
What is a GPU?
How do you spell house?
What does a baker do?
Tell me a joke.
"""


def unpacked(folder):
    """Float weights by name of a GPTQ (version 1) folder."""
    raw = load_file(folder / "model.safetensors")
    shifts = torch.arange(0, 32, 4)
    weights = {k: v.float() for k, v in raw.items() if k.endswith(".weight")}
    for name in (k.removesuffix(".qweight") for k in raw if k.endswith(".qweight")):
        q, z = raw[name + ".qweight"], raw[name + ".qzeros"]
        q = (q[:, None, :] >> shifts[None, :, None] & 15).flatten(0, 1)  # [K][N]
        z = (z[:, :, None] >> shifts & 15).flatten(1) + 1  # [K/g][N]
        group = raw[name + ".g_idx"].long()
        scales = raw[name + ".scales"].float()
        weights[name + ".weight"] = ((q - z[group]) * scales[group]).T.contiguous()
    return weights


def load(folder, weights):
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**config))
    missing, extra = model.load_state_dict(weights, strict=False)
    assert not extra and missing == ["lm_head.weight"], (missing, extra)
    model.tie_weights()
    return model.float().eval()


@torch.no_grad()
def perplexity(model, rows):
    total, count = 0.0, 0
    for row in rows.split(4):
        ids, labels = train.batch_of(row)
        logits = model(ids).logits.float()
        total += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        ).item()
        count += (labels != -100).sum().item()
    return math.exp(total / count)


@torch.no_grad()
def answer(model, tokenizer, messages, limit=200):
    """The greedy answer to a list of messages."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        eos_token_id=[2, 0],
        pad_token_id=0,
    )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", type=Path, help="the folder of the model before quantisation")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=64, help="held-out rows of 1024 tokens")
    parser.add_argument("--ask", action="append", help="a question; may be given again")
    args = parser.parse_args()
    model = load(args.folder, unpacked(args.folder))
    if args.model:
        rows = train.rows_of(args.data / "held.bin", "cpu")
        rows = rows[torch.linspace(0, len(rows) - 1, args.rows).long()]
        before = load(
            args.model,
            {k: v.float() for k, v in load_file(args.model / "model.safetensors").items()},
        )
        fine, coarse = perplexity(before, rows), perplexity(model, rows)
        half = perplexity(before.bfloat16(), rows)
        worse = 100 * (coarse / min(fine, half) - 1)
        print(f"perplexity {fine:.4f}, in bf16 {half:.4f}, in INT4 {coarse:.4f}: {worse:+.2f} %")
        assert worse <= 3.0, "INT4 is more than 3 % worse"
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    for question in args.ask or QUESTIONS.strip().splitlines():
        print(
            f"> {question}\n{answer(model, tokenizer, [{'role': 'user', 'content': question}])}\n"
        )


if __name__ == "__main__":
    main()
