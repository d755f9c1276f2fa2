#!/usr/bin/env python3
"""Trains the demo model: LlamaForCausalLM in plain PyTorch, one GPU, bfloat16.

    train.py --data DIR --out DIR [--minutes 9.2] [--batch 128] [--resume FILE] [--smoke]

Data are the rows that tokenizer.py packs. The schedule is warmup, constant, linear decay to zero
over the last part (WSD), measured in wall clock: a run always ends decayed and in time. Matrices of
the blocks are trained by Muon (momentum, then an approximate orthogonalisation by Newton-Schulz
steps; Keller Jordan, 2024), embeddings and norms by AdamW. OUT/model.safetensors holds the
weights in float16 under their Hugging Face names, and is also written every two minutes.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 4096,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 9,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float16",
    "use_cache": True,
}
NO_LOSS = 0x8000


class Norm(nn.Module):
    """RMSNorm: float32 inside, rounded before the weight, as in transformers."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * y.to(x.dtype)


def rotate(x, cos, sin):
    """Half-split rotary embedding. x: [batch][heads][tokens][head_dim]"""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.size = c["hidden_size"], c["head_dim"]
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = nn.Linear(d, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(d, self.kv * self.size, bias=False)
        self.v_proj = nn.Linear(d, self.kv * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv, self.size).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.kv, 1)
        v = v.repeat_interleave(self.heads // self.kv, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, wide = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(d, wide, bias=False)
        self.up_proj = nn.Linear(d, wide, bias=False)
        self.down_proj = nn.Linear(wide, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """State-dict names equal those of LlamaForCausalLM behind the prefix `model.`."""

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        half = c["head_dim"] // 2
        inverse = c["rope_theta"] ** (-torch.arange(half).float() / half)
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(), inverse)
        self.register_buffer("cos", torch.cat((angle.cos(),) * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat((angle.sin(),) * 2, -1), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = math.sqrt(2 * c["num_hidden_layers"]) if deep else 1
                nn.init.normal_(p, std=c["initializer_range"] / scale)

    def forward(self, ids):
        """ids: [batch][tokens] -> logits [batch][tokens][vocab]"""
        x = F.embedding(ids, self.embed_tokens.weight)
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.bfloat16)
        cos, sin = (t[: ids.shape[1]].to(x.dtype) for t in (self.cos, self.sin))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def loss(self, ids, labels):
        logits = self(ids).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def orthogonal(g):
    """Newton-Schulz steps towards the nearest orthogonal matrix, for a stack [n][rows][columns]."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon:
    """Nesterov momentum made orthogonal; matrices of one shape are handled as a stack."""

    def __init__(self, params, decay, momentum=0.95):
        self.decay, self.momentum, self.groups = decay, momentum, {}
        for p in params:
            self.groups.setdefault(p.shape, []).append(p)
        self.buffers = {
            s: torch.zeros(len(g), *s, device=g[0].device) for s, g in self.groups.items()
        }
        self.update = torch.compile(self.direction) if params[0].is_cuda else self.direction

    def direction(self, grads, buffer):
        buffer = buffer * self.momentum + grads
        rows, columns = grads.shape[-2:]
        scale = 0.2 * math.sqrt(
            max(rows, columns)
        )  # the step size that AdamW would take (Moonlight)
        return buffer, orthogonal(grads + self.momentum * buffer) * scale

    @torch.no_grad()
    def step(self, lr):
        for shape, params in self.groups.items():
            grads = torch.stack([p.grad for p in params]).float()
            self.buffers[shape], steps = self.update(grads, self.buffers[shape])
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(params, list(steps.to(params[0].dtype).unbind(0)), alpha=-lr)
            for p in params:
                p.grad = None


def rows_of(path, device):
    """Packed rows as int16: [rows][context + 1]"""
    raw = np.fromfile(path, np.int16).reshape(-1, CONFIG["max_position_embeddings"] + 1)
    return torch.from_numpy(raw).to(device)


def batch_of(rows):
    """Token ids and labels of int16 rows; the label of a token that carries no loss is -100."""
    raw = rows.int() & 0xFFFF
    ids = (raw & ~NO_LOSS).long()
    labels = torch.where((raw & NO_LOSS) != 0, -100, ids)
    return ids[:, :-1].contiguous(), labels[:, 1:].contiguous()


@torch.no_grad()
def evaluate(model, rows, device, batch):
    total, count = 0.0, 0
    for n in range(0, len(rows), batch):
        ids, labels = batch_of(rows[n : n + batch])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model.loss(ids, labels).item()
        kept = (labels != -100).sum().item()
        total, count = total + loss * kept, count + kept
    return total / count


def save(model, out):
    weights = {"model." + k: v.half().contiguous().cpu() for k, v in model.state_dict().items()}
    save_file(weights, out / "part.safetensors", metadata={"format": "pt"})
    (out / "part.safetensors").rename(out / "model.safetensors")


def rate(done):
    """The share of the full learning rate after the share `done` of the run."""
    return min(1.0, done / 0.02, (1 - done) / 0.4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.2)
    parser.add_argument("--batch", type=int, default=128, help="rows of 1024 tokens a step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--resume", type=Path)
    parser.add_argument(
        "--start", type=float, default=0.0, help="where on the schedule to begin, 0..1"
    )
    parser.add_argument(
        "--stop", type=float, default=1.0, help="where on the schedule to end, 0..1"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a tiny model, for a test without a GPU"
    )
    args = parser.parse_args()
    began = time.time()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.smoke:
        CONFIG.update(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    train, held = (rows_of(args.data / f"{n}.bin", device) for n in ("train", "held"))
    model = Llama(CONFIG).to(device)
    if args.resume:
        model.load_state_dict(
            {k.removeprefix("model."): v.float() for k, v in load_file(args.resume).items()}
        )
    matrices = [p for n, p in model.named_parameters() if n.startswith("layers") and p.dim() == 2]
    others = [
        p for n, p in model.named_parameters() if not (n.startswith("layers") and p.dim() == 2)
    ]
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(train):,} rows",
        flush=True,
    )
    muon = Muon(matrices, args.decay)
    adam = torch.optim.AdamW(
        others, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=device == "cuda"
    )
    loss_of = torch.compile(model.loss) if device == "cuda" else model.loss

    picks, step, saved, begun, epoch = torch.empty(0, dtype=torch.long), 0, began, None, 0
    losses = []
    while True:
        # The clock of the schedule starts after the compiler has run.
        begun = time.time() if step == 3 else begun
        room = args.minutes * 60 - (begun - began) if begun else None
        share = (time.time() - begun) / room if begun and room > 0 else float(bool(begun))
        if share >= 1:
            break
        done = args.start + (args.stop - args.start) * share
        if len(picks) < args.batch:
            picks, epoch = torch.randperm(len(train)), epoch + 1
        now, picks = picks[: args.batch], picks[args.batch :]
        ids, labels = batch_of(train[now.to(device)])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(ids, labels)
        loss.backward()
        lr = args.lr * rate(done if begun else args.start + 1e-3)
        adam.param_groups[0]["lr"] = lr
        adam.step()
        adam.zero_grad(set_to_none=True)
        muon.step(lr)
        losses.append(loss.detach())
        step += 1
        if step % 100 == 0 or step in (1, 10):
            mean = torch.stack(losses).mean().item()
            losses = []
            speed = (
                (step - 3)
                * args.batch
                * CONFIG["max_position_embeddings"]
                / max(time.time() - (begun or began), 1e-9)
            )
            print(
                f"{time.time() - began:6.1f} s step {step} epoch {epoch} at {done:.3f} lr {lr:.2e} "
                f"loss {mean:.4f} {speed / 1e6:.2f} Mtok/s",
                flush=True,
            )
        if time.time() - saved > 120:
            save(model, args.out)
            saved = time.time()
    save(model, args.out)
    print(
        f"held-out loss {evaluate(model, held, device, 32):.4f} after {step} steps, "
        f"{step * args.batch * CONFIG['max_position_embeddings'] / 1e6:.0f} Mtok, {epoch} epochs",
        flush=True,
    )


if __name__ == "__main__":
    main()
