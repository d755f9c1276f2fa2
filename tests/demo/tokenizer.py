#!/usr/bin/env python3
"""Trains the demo's tokenizer and packs the corpus into rows of tokens.

    tokenizer.py --data build/demo --out image/demo [--vocab 4096] [--rows-only]

The tokenizer is byte-level BPE with the split pattern of Llama 3. It is trained on text whose
digits are split off one by one, so no merge joins two digits and each digit is one token, although
the pattern itself takes up to three. Written are tokenizer.json, tokenizer_config.json (with the
chat template) and, in the data folder, train.bin and held.bin: rows of 1025 little-endian u16.
A row starts at the start of a document; each document starts with <|endoftext|>. The top bit marks
tokens that carry no loss: what system and user say, and the padding at the end of a row.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END, TURN, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTEXT = 1024
NO_LOSS = 0x8000


def texts(path, every=1):
    with open(path) as file:
        for n, line in enumerate(file):
            if n % every == 0:
                record = json.loads(line)
                yield (
                    record["text"] if "text" in record else "\n".join(t for _, t in record["turns"])
                )


def train_tokenizer(data, vocab):
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), split, bytes_]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END, TURN, STOP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(data / "train.txt", every=8), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, 0)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in (END, TURN, STOP)]
    )
    return tokenizer


def write_config(out):
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": STOP,
        "pad_token": END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def encode(tokenizer, records):
    """Arrays of u16 of a batch of documents."""
    pieces, spans = [], []
    for record in records:
        first = len(pieces)
        if "text" in record:
            pieces.append(record["text"])
        else:
            for role, text in record["turns"]:
                pieces += [role + "\n", text]
        spans.append((first, len(pieces), "text" in record))
    encoded = [e.ids for e in tokenizer.encode_batch_fast(pieces, add_special_tokens=False)]
    turn, stop = tokenizer.token_to_id(TURN), tokenizer.token_to_id(STOP)
    newline = tokenizer.encode("\n", add_special_tokens=False).ids
    for (first, last, plain), record in zip(spans, records):
        row = [0]
        if plain:
            row += encoded[first]
        else:
            for n in range(first, last, 2):
                said = encoded[n + 1] + [stop]
                if record["turns"][(n - first) // 2][0] != "assistant":
                    said = [t | NO_LOSS for t in said]
                row += (
                    [t | NO_LOSS for t in [turn] + encoded[n]]
                    + said
                    + [t | NO_LOSS for t in newline]
                )
        yield np.array(row, np.uint16)


def pack(tokenizer, source, target, seed):
    """Documents into rows, in shuffled order; one that is too long for a row is cut."""
    lines = source.read_text().splitlines()
    random.Random(seed).shuffle(lines)
    size, kept = CONTEXT + 1, 0
    waiting = []  # open rows: lists of arrays; a document goes into the first with room
    with open(target, "wb") as file:

        def close(parts):
            row = np.full(size, NO_LOSS, np.uint16)
            flat = np.concatenate(parts)
            row[: len(flat)] = flat
            row.tofile(file)

        for n in range(0, len(lines), 10_000):
            batch = [json.loads(line) for line in lines[n : n + 10_000]]
            for tokens in encode(tokenizer, batch):
                tokens = tokens[:size]
                kept += len(tokens)
                slot = next((s for s in waiting if s[0] + len(tokens) <= size), None)
                if slot is None:
                    slot = [0]
                    waiting.append(slot)
                slot[0] += len(tokens)
                slot.append(tokens)
                if slot[0] > size - 12 or len(waiting) > 12:
                    full = max(waiting, key=lambda s: s[0])
                    waiting.remove(full)
                    close(full[1:])
        for slot in waiting:
            close(slot[1:])
    rows = target.stat().st_size // (2 * size)
    print(f"{target.name}: {rows:,} rows, {kept:,} tokens, {100 * kept / (rows * size):.1f} % full")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--rows-only", action="store_true", help="keep the tokenizer of OUT")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.rows_only:
        tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    else:
        tokenizer = train_tokenizer(args.data, args.vocab)
        tokenizer.save(str(args.out / "tokenizer.json"))
        write_config(args.out)
    for seed, name in enumerate(("train", "held")):
        pack(tokenizer, args.data / f"{name}.txt", args.data / f"{name}.bin", seed)


if __name__ == "__main__":
    main()
