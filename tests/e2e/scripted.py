"""A model that says what it is told to: for tests of what becomes of a text that a model writes.

Attention and MLP are zero and every token's embedding is a direction of its own, so that the next
token depends on the last one alone: lm_head says which. A script is cut into tokens that no other
one has; its first token stands at the end of the prompt, as the last message says which script.
"""
import array
import json
import os
import random
import re
import struct

HEAD = 64


def byte_letters():
    """The letters that byte-level BPE has for the 256 bytes (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def misread(piece):
    """Blanks and "<" would take that of a start token, which stands behind blanks in a prompt; and
    what has only letters that stand for bytes is these bytes."""
    letters = set(byte_letters().values())
    return piece.strip() == "<" or (not piece.isascii() and letters.issuperset(piece))


def cut(text, taken, rng):
    """Into pieces of 2 to 14 characters that are not in `taken` yet, or None; adds them."""
    if not text:
        return []
    for n in rng.sample(range(2, 15), 13):
        piece = text[:n]
        if len(piece) < n or piece in taken or misread(piece):
            continue
        taken.add(piece)
        rest = cut(text[n:], taken, rng)
        if rest is not None:
            return [piece, *rest]
        taken.remove(piece)
    return None


def chains(scripts, marks):
    """For each script its tokens, the start token first. Marks are tokens of their own."""
    taken, rng = set(marks), random.Random(1)
    for name, text in scripts.items():
        parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", text) if marks else [text]
        yield [f"<|{name}|>", *(piece for part in parts for piece in
                                ([part] if part in marks else cut(part, taken, rng)))]


def make(folder, template, scripts, marks=()):
    """marks: special tokens; each in one script at most, and there once."""
    letters = byte_letters()
    vocab = {letters[b]: b for b in range(256)}
    tokens = [*[letters[b] for b in range(256)], "</s>"]
    after = {}
    for chain in chains(scripts, marks):
        for piece in chain:
            tokens.append(piece)
        ids = range(len(tokens) - len(chain), len(tokens))
        after.update(zip(ids, [*ids[1:], 256]))
    special = {*marks, *(f"<|{name}|>" for name in scripts)}
    size = -(-len(tokens) // HEAD) * HEAD
    added = [{"id": i, "content": t, "special": i == 256 or t in special,
              "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in enumerate(tokens) if i >= 256]
    write_json(folder, "tokenizer.json", {
        "version": "1.0",
        "added_tokens": added, "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}})
    write_json(folder, "tokenizer_config.json",
               {"chat_template": template, "eos_token": "</s>"})
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": size, "intermediate_size": HEAD, "num_hidden_layers": 1,
        "num_attention_heads": size // HEAD, "num_key_value_heads": 1, "head_dim": HEAD,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 4096,
        "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": size,
        "eos_token_id": 256})
    write_weights(os.path.join(folder, "model.safetensors"), size, after)


def write_json(folder, name, tree):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(tree, f)


def sparse(rows, columns, ones):
    matrix = array.array("f", bytes(4 * rows * columns))
    for row, column, value in ones:
        matrix[row * columns + column] = value
    return [rows, columns], matrix.tobytes()


def write_weights(path, n, after):
    layer = "model.layers.0."
    norm = [n], array.array("f", [1.0] * n).tobytes()
    tensors = {"model.embed_tokens.weight": sparse(n, n, [(i, i, 1.0) for i in range(n)]),
               "lm_head.weight": sparse(n, n, [(b, a, 4.0) for a, b in after.items()]),
               "model.norm.weight": norm, layer + "input_layernorm.weight": norm,
               layer + "post_attention_layernorm.weight": norm}
    for name, rows, columns in (("self_attn.q_proj", n, n), ("self_attn.k_proj", HEAD, n),
                                ("self_attn.v_proj", HEAD, n), ("self_attn.o_proj", n, n),
                                ("mlp.gate_proj", HEAD, n), ("mlp.up_proj", HEAD, n),
                                ("mlp.down_proj", n, HEAD)):
        tensors[layer + name + ".weight"] = sparse(rows, columns, [])
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            f.write(data)
