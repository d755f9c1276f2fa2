"""Goldens: logits and greedy tokens of a model folder by transformers, CPU, float32, eager.

The prompt is searched, not given: of many random texts of N_PROMPT tokens the one is taken whose
greedy path keeps the widest gap between the best and the second logit, so that an engine that
sums in another order still walks the same path (W8A8: see choose). Logits then come from one
uncached forward pass over prompt + greedy tokens, and the cached path of the search must agree.
"""
import copy
import json
import random
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import (AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText,
                          Mxfp4Config)

import dequant
import tokenizer

N_PROMPT, N_GREEDY, N_ROWS, CANDIDATES = 40, 64, 16, 160
GAP_MIN = 4e-3  # of the largest logit: twice what a relative error of 1e-3 on both can close
WORDS = tokenizer.TEXT.split() + ["42", "7.5", "Z\u00fcrich,", "don't", "OK!", "(x)", "-"]


def fake_quant(module, args):
    """W8A8: activations per token as vLLM's kernel rounds them: scale absmax/127, symmetric."""
    x = args[0]
    peak = x.abs().amax(-1, keepdim=True)
    q = torch.where(peak > 0, x * (127.0 / peak), torch.zeros_like(x)).round().clamp(-128, 127)
    return (q * (peak / 127.0),)


def join_experts(weights, count):
    """Experts that llm-compressor took apart, as granitemoe's files have them."""
    weights = dict(weights)
    for first in [n for n in weights if n.endswith(".experts.0.down_proj.weight")]:
        of = first[:first.index("experts.0.")]

        def take(leaf):
            names = [f"{of}experts.{e}.{leaf}.weight" for e in range(count)]
            return torch.stack([weights.pop(n) for n in names])
        weights[of + "input_linear.weight"] = torch.cat([take("gate_proj"), take("up_proj")], 1)
        weights[of + "output_linear.weight"] = take("down_proj")
    return weights


def as_granite(config):
    """MiniCPM's arithmetic by granite's keys."""
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    config = dict(config, model_type="granite", architectures=["GraniteForCausalLM"],
                  embedding_multiplier=config["scale_emb"],
                  residual_multiplier=config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
                  attention_multiplier=head_dim ** -0.5,
                  logits_scaling=config["hidden_size"] / config["dim_model_base"])
    config["rope_parameters"] = dict(config.pop("rope_scaling"), rope_theta=config["rope_theta"])
    return config


def load(folder):
    """The folder as a float32 model; quantized weights by dequant.py."""
    config = dequant.folder_config(folder)
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    if config["model_type"] == "minicpm":
        config = as_granite(config)
    elif "quantization_config" not in config:
        model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        return model.eval()
    if config.get("quantization_config", {}).get("quant_method") == "mxfp4":
        # by itself exact, in bf16
        return auto.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager",
            quantization_config=Mxfp4Config(dequantize=True)).float().eval()
    weights, q, names = dequant.folder_weights(folder)
    if config["model_type"] == "mixtral":  # llm-compressor writes names of other models
        for a, b in (("mlp.experts", "block_sparse_moe.experts"), ("gate_proj", "w1"),
                     ("up_proj", "w3"), ("down_proj", "w2")):
            weights = {n.replace(a, b) if ".experts." in n else n: w for n, w in weights.items()}
    if config["model_type"] == "granitemoe":
        weights = join_experts(weights, config["num_local_experts"])
    config.pop("quantization_config", None)
    with tempfile.TemporaryDirectory() as tmp:
        save_file(weights, tmp + "/model.safetensors", metadata={"format": "pt"})
        with open(tmp + "/config.json", "w") as f:
            json.dump(config, f)
        model, info = auto.from_pretrained(
            tmp, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    if q and q.get("format") == "int-quantized":
        for n, m in model.named_modules():
            if n in names:
                m.register_forward_pre_hook(fake_quant)
    return model.eval()


def prompts(tok, seed, count):
    rng = random.Random(seed)
    out = []
    while len(out) < count:
        text = rng.choice(WORDS)
        while len(tok.encode(text).ids) < N_PROMPT:
            text += rng.choice([" ", " ", " ", "\n"]) + rng.choice(WORDS)
        if len(tok.encode(text).ids) == N_PROMPT:
            out.append(text)
    return out


@torch.no_grad()
def walk(model, ids):
    """Greedy with the KV cache. -> tokens [B][N_GREEDY], smallest relative gap [B]"""
    past, step, tokens = None, ids, []
    gap = torch.full((ids.shape[0],), 1e9)
    for _ in range(N_GREEDY):
        out = model(step, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[:, -1]
        top = logits.topk(2).values
        gap = torch.minimum(gap, (top[:, 0] - top[:, 1]) / logits.abs().amax(1))
        step = logits.argmax(1, keepdim=True)
        tokens.append(step)
    return torch.cat(tokens, 1), gap


@torch.no_grad()
def rows(model, prompt, greedy):
    """Logits after the last 8 prompt tokens and after the first 8 greedy ones, by one forward."""
    logits = model(torch.tensor([prompt + greedy]), use_cache=False).logits[0]
    first = len(prompt) - N_ROWS // 2
    path = logits[len(prompt) - 1:-1]
    top = path.topk(2).values
    gap = ((top[:, 0] - top[:, 1]) / path.abs().amax(1)).min().item()
    return logits[first:first + N_ROWS].numpy(), path.argmax(1).tolist(), gap


@torch.no_grad()
def noise_difference(model, tokens):
    """How far rounding noise (4e-7 of each weight) moves the golden rows: [B], of the largest
    logit. Where activations are quantized a value near a rounding tie flips and moves far."""
    first, end = N_PROMPT - N_ROWS // 2, N_PROMPT + N_ROWS // 2
    clean = model(tokens[:, :end], use_cache=False).logits[:, first:]
    worst = torch.zeros(len(tokens))
    gen = torch.Generator().manual_seed(7)
    for _ in range(8):
        noisy = copy.deepcopy(model)
        for p in noisy.parameters():
            p.mul_(1 + 4e-7 * torch.randn(p.shape, generator=gen))
        moved = noisy(tokens[:, :end], use_cache=False).logits[:, first:]
        worst = torch.maximum(worst, (moved - clean).abs().amax((1, 2)) / clean.abs().amax((1, 2)))
    return worst


def choose(model, texts, tok, vocab, steady):
    ids = torch.tensor([tok.encode(t).ids for t in texts])
    greedy, gap = walk(model, ids)
    specials = len(tokenizer.SPECIALS)
    ok = ((greedy >= specials) & (greedy < min(vocab, tokenizer.VOCAB))).all(1)
    distinct = torch.tensor([len(set(g.tolist())) for g in greedy])
    score = torch.where(ok, gap, torch.tensor(-1.0))
    noise = None
    if steady:  # of the paths with gap enough, the one that noise moves least
        noise = noise_difference(model, torch.cat([ids, greedy], 1))
        score = torch.where(score > GAP_MIN, 1 - noise, torch.tensor(-1.0))
    for floor in (16, 10, 6, 3, 1):  # prefer paths that are not a short loop
        masked = torch.where(distinct >= floor, score, torch.tensor(-1.0))
        if masked.max() > (1 - 1e-4 if steady else GAP_MIN):
            break
    best = int(masked.argmax())
    return texts[best], ids[best].tolist(), greedy[best].tolist(), int(distinct[best]), \
        None if noise is None else noise[best].item()


@torch.no_grad()
def embed(folder, texts):
    """By the bare model: the last token's state behind the final norm, normalised. -> ids, rows"""
    tok = Tokenizer.from_file(folder + "/tokenizer.json")
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = [tok.encode(t).ids for t in texts]
    states = [model.eval()(torch.tensor([i])).last_hidden_state[0, -1] for i in ids]
    return ids, torch.nn.functional.normalize(torch.stack(states)).numpy()


def write_embeddings(folder):
    texts = [t for t in tokenizer.TEXT.split("\n")] + ["OK!", " ".join(WORDS), "Z\u00fcrich, 42"]
    ids, rows = embed(folder, texts)
    rows.astype("<f4").tofile(folder + "/golden.embeddings.f32")
    with open(folder + "/golden.embeddings.json", "w") as f:
        json.dump(dict(texts=texts, ids=ids, file="golden.embeddings.f32",
                       shape=list(rows.shape)), f, indent=1)
        f.write("\n")


def check_embeddings(folder):
    """Recomputes them, by transformers and, where it is installed, by sentence-transformers."""
    with open(folder + "/golden.embeddings.json") as f:
        golden = json.load(f)
    kept = np.fromfile(folder + "/golden.embeddings.f32", "<f4").reshape(golden["shape"])
    ids, rows = embed(folder, golden["texts"])
    assert ids == golden["ids"]
    worst = np.abs(rows - kept).max()
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return float(worst)
    theirs = SentenceTransformer(folder, device="cpu", model_kwargs=dict(dtype=torch.float32))
    return float(max(worst, np.abs(theirs.encode(golden["texts"]) - kept).max()))


def write(folder, family, fmt, source, seed):
    model = load(folder)
    vocab = model.config.get_text_config().vocab_size
    tok = Tokenizer.from_file(folder + "/tokenizer.json")
    steady = "w8a8" in fmt
    texts = prompts(tok, seed, 4 * CANDIDATES if steady else CANDIDATES)
    text, prompt, greedy, distinct, noise = choose(model, texts, tok, vocab, steady)
    logits, again, gap = rows(model, prompt, greedy)
    assert again == greedy, "cached and uncached paths differ"
    assert gap > GAP_MIN, f"{folder}: gap {gap}"
    logits.astype("<f4").tofile(folder + "/golden.f32")
    half = N_ROWS // 2
    golden = dict(
        family=family, format=fmt, source=source,
        tolerance=1e-4 if fmt == "f32" else 5e-3 if steady else 2e-3,  # one flip moves 3e-3
        tolerance_meaning="max |engine - golden| over all rows <= tolerance * max |golden|",
        golden_by="transformers, float32, cpu, eager attention, one uncached forward",
        prompt_text=text, prompt=prompt, greedy=greedy, greedy_text=tok.decode(greedy),
        min_gap_relative=gap, distinct_greedy=distinct,
        logits=dict(file="golden.f32", dtype="f32le", shape=[N_ROWS, vocab],
                    prefill=dict(rows=[0, half], positions=[len(prompt) - half, len(prompt)],
                                 offset_bytes=0),
                    decode=dict(rows=[half, N_ROWS],
                                positions=[len(prompt), len(prompt) + half],
                                offset_bytes=half * vocab * 4)))
    if noise is not None:
        golden["noise_difference"] = noise
    with open(folder + "/golden.json", "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
    return gap, distinct, np.abs(logits).max(), logits.std()


def check(folder):
    """Recomputes a committed golden. -> (relative difference of logits, greedy tokens agree)"""
    with open(folder + "/golden.json") as f:
        golden = json.load(f)
    model = load(folder)
    logits, path, _ = rows(model, golden["prompt"], golden["greedy"])
    kept = np.fromfile(folder + "/golden.f32", "<f4").reshape(golden["logits"]["shape"])
    walked, _ = walk(model, torch.tensor([golden["prompt"]]))
    same = path == golden["greedy"] == walked[0].tolist()
    return float(np.abs(logits - kept).max() / np.abs(kept).max()), same
