#!/usr/bin/env python3
"""Writes hostile and broken model folders, one a rejection, for the tests of the model readers.

    bad.py OUT          writes OUT/NAME/... and OUT/expect.tsv
    bad.py OUT NAME...  only these

expect.tsv has a line a folder: name, class, then strings that the message must contain, with tabs
between them (the file at fault first, then the key, tensor or value). Classes: `model`, opening
the folder is refused with EXIT_MODEL; `render`, opening it or rendering its chat template is
refused; `ok`, the folder is unusual but valid and has to work. Each folder is one of models/ with
one thing changed. Python's standard library only; the same bytes each time.
"""
import json
import os
import shutil
import struct
import sys

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
PLAIN, SHARDED, GPTQ, ACT = "llama-f16", "mistral-sharded-f16", "llama-gptq4", "llama-gptq4-act"
MOE = "qwen3-moe-step-bf16"
WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
TOKENIZER, TEMPLATE = "tokenizer.json", "chat_template.jinja"
NORM = "model.norm.weight"
CASES = []


def case(name, base, change, needles, kind="model"):
    CASES.append((name, base, change, [needles] if isinstance(needles, str) else needles, kind))


# ---- changes: each takes the folder ------------------------------------------------------------

def read(d, f):
    with open(os.path.join(d, f), "rb") as h:
        return h.read()


def write(d, f, data):
    with open(os.path.join(d, f), "wb") as h:
        h.write(data if isinstance(data, bytes) else data.encode())


def raw(f, change):
    """change(bytes) -> bytes"""
    return lambda d: write(d, f, change(read(d, f)))


def edit(f, change):
    """change(parsed JSON) in place, or returning what to write instead"""
    def run(d):
        j = json.loads(read(d, f))
        new = change(j)
        write(d, f, json.dumps(j if new is None else new))
    return run


def put(j, path, value):
    *way, last = path.split(".")
    for key in way:
        j = j[key]
    j[last] = value


def config(path, value):
    return edit(CONFIG, lambda j: put(j, path, value))


def drop(f, key):
    return edit(f, lambda j: j.pop(key) and None)


def remove(f):
    return lambda d: os.remove(os.path.join(d, f))


def parts(data):
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]


def joined(header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def header(change):
    """change(header dict, body) in place, or returning (header, body)"""
    def run(d):
        h, body = parts(read(d, WEIGHTS))
        new = change(h, body)
        write(d, WEIGHTS, joined(*(new or (h, body))))
    return run


def entry(key, value, tensor=NORM):
    return header(lambda h, b: put(h[tensor], key, value))


def header_text(change):
    def run(d):
        h, body = parts(read(d, WEIGHTS))
        write(d, WEIGHTS, joined(change(json.dumps(h).encode()), body))
    return run


def values(tensor, code, change):
    """change(list of the tensor's values) in place"""
    def run(d):
        h, body = parts(read(d, WEIGHTS))
        begin, end = h[tensor]["data_offsets"]
        v = list(struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}",
                               body[begin:end]))
        change(v)
        write(d, WEIGHTS, joined(h, body[:begin] + struct.pack(f"<{len(v)}{code}", *v)
                                 + body[end:]))
    return run


def without(*tensors):
    """Leaves tensors out, the offsets closed up."""
    def run(d):
        h, body = parts(read(d, WEIGHTS))
        out, kept = b"", {}
        for name, t in sorted(((n, t) for n, t in h.items() if n != "__metadata__"),
                              key=lambda x: x[1]["data_offsets"]):
            if name in tensors:
                continue
            begin, end = t["data_offsets"]
            kept[name] = dict(t, data_offsets=[len(out), len(out) + end - begin])
            out += body[begin:end]
        write(d, WEIGHTS, joined(kept, out))
    return run


def first(h):
    return min((n for n in h if n != "__metadata__"), key=lambda n: h[n]["data_offsets"])


def last(h):
    return max((n for n in h if n != "__metadata__"), key=lambda n: h[n]["data_offsets"])


def shift(h, name, begin, end):
    o = h[name]["data_offsets"]
    h[name]["data_offsets"] = [o[0] + begin, o[1] + end]


def add_empty(h, count):
    end = h[last(h)]["data_offsets"][1]
    for i in range(count):
        h[f"x{i}"] = dict(dtype="F16", shape=[0], data_offsets=[end, end])


def first_value(v, x):
    v[0] = x


# ---- safetensors -------------------------------------------------------------------------------

def size_field(n):
    return raw(WEIGHTS, lambda b: struct.pack("<Q", n) + b[8:])


for name, change in dict(
        empty=raw(WEIGHTS, lambda b: b""), short=raw(WEIGHTS, lambda b: b[:7]),
        missing=remove(WEIGHTS),
        header_past_end=raw(WEIGHTS, lambda b: struct.pack("<Q", len(b)) + b[8:]),
        header_over_100mb=size_field(100000001), header_wraps=size_field((1 << 64) - 1),
        header_zero=size_field(0),
        not_utf8=header_text(lambda t: t.replace(b"model.norm", b"model.n\xffrm")),
        not_json=header_text(lambda t: t[:-1]), not_object=header_text(lambda t: b"[" + t + b"]"),
        deep=header_text(lambda t: b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"),
        trailing=raw(WEIGHTS, lambda b: b + b"\0"), truncated=raw(WEIGHTS, lambda b: b[:-1]),
        bloat=header(lambda h, b: add_empty(h, 300000)),
        metadata_number=header(lambda h, b: put(h, "__metadata__", {"format": 1})),
        first_not_zero=header(lambda h, b: (
            [shift(h, n, 8, 8) for n in h if n != "__metadata__"], (h, bytes(8) + b))[1]),
        metadata_twice=header_text(lambda t: t[:-1] + b',"__metadata__":{}}')).items():
    case("st-" + name.replace("_", "-"), PLAIN, change, WEIGHTS)

for name, change in dict(
        duplicate_tensor=header_text(lambda t: t[:-1] + b',"model.norm.weight":' + json.dumps(
            json.loads(t)[NORM]).encode() + b"}"),
        negative_offset=entry("data_offsets", [-128, 0]),
        float_offset=header_text(lambda t: t.replace(
            b'"model.norm.weight": {"dtype": "F16", "shape": [64]',
            b'"model.norm.weight": {"dtype": "F16", "shape": [64.0]')),
        huge_offset=entry("data_offsets", [0, (1 << 64) + 128]),
        three_offsets=entry("data_offsets", [0, 64, 128]),
        offsets_object=entry("data_offsets", {"begin": 0}),
        no_dtype=header(lambda h, b: h[NORM].pop("dtype") and None),
        no_shape=header(lambda h, b: h[NORM].pop("shape") and None),
        no_offsets=header(lambda h, b: h[NORM].pop("data_offsets") and None),
        reversed=header(lambda h, b: h[NORM]["data_offsets"].reverse()),
        entry_not_object=header(lambda h, b: put(h, NORM.replace(".", "-"), 3)),
        shape_differs=entry("shape", [65]), shape_negative=entry("shape", [-64]),
        shape_overflows=entry("shape", [4194305, 4194305, 211106198978564]),
        shape_wraps_to_zero=entry("shape", [1 << 32, 1 << 32]),
        unknown_dtype=entry("dtype", "F12"), dtype_number=entry("dtype", 16),
        half_bytes=entry("dtype", "F4")).items():
    case("st-" + name.replace("_", "-"), PLAIN, change,
         [WEIGHTS, NORM.replace(".", "-") if name == "entry_not_object" else NORM])

case("st-overlap", PLAIN, header(lambda h, b: shift(h, last(h), -2, -2)), WEIGHTS)
case("st-alias", PLAIN, header(lambda h, b: put(h, "alias", dict(h[first(h)]))), WEIGHTS)
case("st-hole", PLAIN, header(lambda h, b: (shift(h, last(h), 2, 2), (h, b + b"\0\0"))[1]), WEIGHTS)
case("st-past-end", PLAIN, header(lambda h, b: shift(h, last(h), 0, 1 << 40)), WEIGHTS)
case("ok-padded-header", PLAIN, header_text(lambda t: b" " + t + b" " * 57), [], "ok")
case("ok-scalar-and-empty", PLAIN, header(lambda h, b: (
    put(h, "scalar", dict(dtype="F16", shape=[], data_offsets=[len(b), len(b) + 2])),
    put(h, "none", dict(dtype="F16", shape=[0, 9], data_offsets=[len(b) + 2, len(b) + 2])),
    (h, b + b"\0\0"))[2]), [], "ok")
case("ok-extra-field", PLAIN, entry("note", "ignored"), [], "ok")

# ---- shards ------------------------------------------------------------------------------------


def shard(value):
    return edit(INDEX, lambda j: j["weight_map"].__setitem__(NORM, value))


for name, value in dict(parent="../" + SHARDED + "/model-00001-of-00004.safetensors", dots="..",
                        absolute="/etc/passwd", inside="a/b.safetensors", empty="").items():
    case("shard-" + name, SHARDED, shard(value), [INDEX, value or NORM])
case("shard-number", SHARDED, shard(1), [INDEX, NORM])
case("shard-nul", SHARDED, shard("model\0.safetensors"), INDEX)
case("shard-file-missing", SHARDED, shard("model-9.safetensors"), "model-9.safetensors")
case("shard-tensor-missing", SHARDED, edit(INDEX, lambda j: j["weight_map"].__setitem__(
    "model.layers.7.mlp.up_proj.weight", j["weight_map"][NORM])),
    "model.layers.7.mlp.up_proj.weight")
case("shard-no-map", SHARDED, drop(INDEX, "weight_map"), [INDEX, "weight_map"])
case("shard-map-list", SHARDED, edit(INDEX, lambda j: put(j, "weight_map", [])),
     [INDEX, "weight_map"])
case("shard-index-list", SHARDED, edit(INDEX, lambda j: [j]), INDEX)
case("shard-twice", SHARDED, raw(INDEX, lambda b: b.replace(
    b'"weight_map": {', b'"weight_map": {"lm_head.weight": "a", "lm_head.weight": "b",')),
    [INDEX, "lm_head.weight"])

# ---- config.json ---------------------------------------------------------------------------------

for name, change in dict(
        missing=remove(CONFIG), empty=raw(CONFIG, lambda b: b""),
        truncated=raw(CONFIG, lambda b: b[:len(b) // 2]), list=edit(CONFIG, lambda j: [j]),
        deep=raw(CONFIG, lambda b: b"[" * 100000), not_utf8=raw(CONFIG, lambda b: b"\xff" + b),
        trailing=raw(CONFIG, lambda b: b + b"{}"),
        comment=raw(CONFIG, lambda b: b"// a model\n" + b),
        nan=raw(CONFIG, lambda b: b.replace(b'"rms_norm_eps": 1e-06', b'"rms_norm_eps": NaN')),
        too_long=raw(CONFIG, lambda b: b + b" " * (5 << 20))).items():
    case("config-" + name.replace("_", "-"), PLAIN, change, CONFIG)
case("config-duplicate", PLAIN, raw(CONFIG, lambda b: b.replace(
    b'"hidden_size": 64', b'"hidden_size": 64, "hidden_size": 64')), [CONFIG, "hidden_size"])

for key, wrong in dict(
        model_type=["mamba", 7, None], hidden_size=[0, -64, 64.5, 1 << 40, "64", None, 128],
        num_hidden_layers=[0, -1, 1000000000, 1.5], num_attention_heads=[0, 3, -4, 1 << 31],
        num_key_value_heads=[0, 3, 8, -2], head_dim=[0, -16, 15, 1 << 31], vocab_size=[
            0, -1, 1 << 40, 64], intermediate_size=[0, -1, 1 << 40], max_position_embeddings=[
            0, -1, 1 << 60], rms_norm_eps=[-1.0, "small"], hidden_act=["relu9", 1],
        attention_bias=["yes"]).items():
    for i, value in enumerate(wrong):
        case(f"config-{key.replace('_', '-')}-{i}", PLAIN, config(key, value), [CONFIG, key])

for i, (key, value) in enumerate([
        ("rope_theta", 0), ("rope_theta", -1.0), ("rope_theta", "1e4"), ("rope_type", "spiral"),
        ("rope_type", 3)]):
    case(f"rope-{i}", PLAIN, config("rope_parameters." + key, value), [CONFIG, key])
for i, (key, value) in enumerate([("factor", 0), ("factor", -4.0), ("factor", "four"),
                                  ("high_freq_factor", 1.0), ("low_freq_factor", 0)]):
    case(f"rope-llama3-{i}", "llama3-f32", config("rope_parameters." + key, value), [CONFIG, key])
for i, value in enumerate([[1.0] * 5, [1.0] * 7, [0.0] * 6, "long", None, ["1"] * 6]):
    case(f"rope-longrope-{i}", "phi3-f32", config("rope_parameters.long_factor", value),
         [CONFIG, "long_factor"])
case("window-negative", "mistral-f32", config("sliding_window", -1), [CONFIG, "sliding_window"])
case("layer-types-short", "gemma2-f32", config("layer_types", ["full_attention"]),
     [CONFIG, "layer_types"])
case("layer-types-unknown", "gemma2-f32", config("layer_types", ["full_attention", "linear"]),
     [CONFIG, "layer_types"])
case("no-rope-layers-short", "smollm3-f32", config("no_rope_layers", [1]),
     [CONFIG, "no_rope_layers"])

case("tensor-missing", PLAIN, without("model.layers.1.mlp.up_proj.weight"),
     "model.layers.1.mlp.up_proj.weight")
EXPERT = "model.layers.1.mlp.experts.3."
case("expert-missing", MOE, without(EXPERT + "up_proj.weight"), EXPERT + "up_proj.weight")
case("expert-last-missing", MOE, without(EXPERT.replace("3", "5") + "down_proj.weight"),
     EXPERT.replace("3", "5") + "down_proj.weight")
case("expert-shape", MOE, entry("shape", [64, 32], EXPERT + "up_proj.weight"),
     [EXPERT + "up_proj.weight", "6 experts of intermediate size 32"])
case("expert-extra", MOE, config("num_local_experts", 5), "model.layers.1.mlp.")
case("expert-wide", MOE, config("moe_intermediate_size", 64), "mlp.experts.0.gate_proj.weight")
case("expert-dense", MOE, config("mlp_only_layers", [1]), "model.layers.1.mlp.gate_proj.weight")
case("expert-everywhere", MOE, config("decoder_sparse_step", 1), "model.layers.0.mlp.gate.weight")
case("experts-missing", "qwen3-moe-gptq4", without(*(
    f"model.layers.0.mlp.experts.2.gate_proj.{leaf}" for leaf in
    ("qweight", "qzeros", "scales", "g_idx"))), "model.layers.0.mlp.experts.2.gate_proj.weight")
case("experts-joined-shape", "qwen3-moe-joined-bf16", config("num_local_experts", 4),
     "model.layers.0.mlp.gate.weight")
case("experts-joined-wide", "qwen3-moe-joined-bf16", config("moe_intermediate_size", 16),
     ["model.layers.0.mlp.experts.gate_up_proj", "[6, 32, 64]"])
for i, (key, value) in enumerate([
        ("num_experts_per_tok", 0), ("num_experts_per_tok", 7), ("num_experts_per_tok", None),
        ("num_local_experts", 0), ("num_local_experts", 100000), ("num_experts", 5),
        ("moe_intermediate_size", 0), ("mlp_only_layers", 1), ("mlp_only_layers", ["0"]),
        ("decoder_sparse_step", 0), ("norm_topk_prob", 1), ("use_sliding_window", True)]):
    case(f"experts-{i}", MOE, edit(CONFIG, lambda j, k=key, v=value: (
        put(j, "sliding_window", 16), put(j, k, v)) and None),
        [CONFIG, "num_local_experts" if key == "num_experts" else key])
for i, (key, value) in enumerate([
        ("residual_multiplier", 0), ("residual_multiplier", -0.22), ("residual_multiplier", "0.22"),
        ("embedding_multiplier", 0), ("embedding_multiplier", 1e9), ("attention_multiplier", 0),
        ("attention_multiplier", [1]), ("logits_scaling", 0), ("logits_scaling", -8)]):
    case(f"multiplier-{i}", "granite-f32", config(key, value), [CONFIG, key])
Q_NORM = "model.layers.0.self_attn.q_norm.weight"
AFTER = "model.layers.1.post_feedforward_layernorm.weight"
case("norm-after-missing", "olmo2-f32", without(AFTER), AFTER)
BEFORE = "model.layers.0.input_layernorm.weight"
case("norm-before-extra", "olmo2-f32", header(lambda h, b: (
    h.__setitem__(BEFORE, dict(dtype="F32", shape=[64], data_offsets=[len(b), len(b) + 256])),
    (h, b + bytes(256)))[1]), BEFORE)
for i, n in ((0, 16), (1, 32)):  # of a head; of the keys
    case(f"norm-rows-{i}", "olmo2-f32", entry("shape", [n, 64 // n], Q_NORM), Q_NORM)
case("norm-of-heads", "olmo2-f32", config("model_type", "qwen3"), "input_layernorm.weight")
case("seed-oss-without-bias", "seed-oss-bf16", config("attention_bias", False), "_proj.bias")
case("seed-oss-without-o", "seed-oss-bf16", config("attention_out_bias", False), "o_proj.bias")
case("seed-oss-bias", "seed-oss-ct4", config("mlp_bias", True), "mlp.gate_proj.bias")
case("ernie-without-bias", "ernie4-5-bf16", config("use_bias", False), "_proj.bias")
case("ernie-compressed", "ernie4-5-bf16", config("compression_ratio", 2.0),
     [CONFIG, "compression_ratio"])
DELTA = "model.layers.1.linear_attn."
for i, name in enumerate(("A_log", "dt_bias", "conv1d.weight", "norm.weight", "in_proj_a.weight",
                          "in_proj_z.weight", "out_proj.weight")):
    case(f"delta-without-{i}", "qwen3-5-f32", without(DELTA + name), DELTA + name)
case("delta-conv-shape", "qwen3-5-f32", entry("shape", [384, 4], DELTA + "conv1d.weight"),
     [DELTA + "conv1d.weight", "[384, 1, 4]", "linear_num_key_heads 2"])
for i, (key, value, says) in enumerate([
        ("linear_num_key_heads", 3, "linear_num_key_heads"),
        ("linear_num_value_heads", 8, "in_proj_qkv"), ("linear_key_head_dim", 48, "in_proj_qkv"),
        ("linear_value_head_dim", 40, "linear_value_head_dim"),
        ("linear_conv_kernel_dim", 3, "conv1d"), ("linear_conv_kernel_dim", 4.5, CONFIG),
        ("layer_types", ["linear_attention"] * 4, "layer_types"),
        ("layer_types", ["full_attention"] * 4, "model.layers.0.self_attn"),
        ("layer_types", ["linear_attention"] * 3, "layer_types")]):
    case(f"delta-{i}", "qwen3-5-f32", config(key, value), says)
LFM2 = "model.layers.1."
for i, name in enumerate((LFM2 + "conv.conv.weight", LFM2 + "conv.in_proj.weight",
                          LFM2 + "conv.out_proj.weight", LFM2 + "operator_norm.weight",
                          LFM2 + "ffn_norm.weight", LFM2 + "feed_forward.w3.weight",
                          "model.layers.2.self_attn.out_proj.weight",
                          "model.layers.2.self_attn.k_layernorm.weight",
                          "model.embedding_norm.weight")):
    case(f"lfm2-without-{i}", "lfm2-f32", without(name), name)
case("lfm2-conv-shape", "lfm2-f32", entry("shape", [64, 3], LFM2 + "conv.conv.weight"),
     [LFM2 + "conv.conv.weight", "[64, 1, 3]", "conv_L_cache 3"])
for i, (key, value, says) in enumerate([
        ("conv_bias", True, "conv_bias"), ("conv_L_cache", 1, "conv_L_cache"),
        ("conv_L_cache", 9, "conv_L_cache"), ("conv_L_cache", 4, "conv.conv.weight"),
        ("layer_types", ["conv"] * 4, "layer_types"), ("layer_types", ["conv"] * 3, "layer_types"),
        ("layer_types", ["conv", "mamba", "full_attention", "conv"], "layer_types"),
        ("layer_types", ["full_attention"] * 4, "model.layers.0.self_attn"),
        ("block_auto_adjust_ff_dim", True, "feed_forward.w1"), ("hidden_act", "gelu", "hidden_act"),
        ("block_ff_dim", 128, "feed_forward.w1"), ("norm_eps", "x", "norm_eps"),
        ("hidden_size", 72, "a multiple of 16")]):
    case(f"lfm2-{i}", "lfm2-f32", config(key, value), says)
EXPERT_BIAS = "model.layers.1.feed_forward.expert_bias"
case("lfm2-moe-bias", "lfm2-moe-bf16", without(EXPERT_BIAS), EXPERT_BIAS)
for i, (key, value, says) in enumerate([
        ("use_expert_bias", False, "use_expert_bias"), ("layer_types", None, "layer_types"),
        ("num_dense_layers", 2, "model.layers.1.feed_forward.w1"),
        ("num_dense_layers", 0, "model.layers.0.feed_forward.")]):
    case(f"lfm2-moe-{i}", "lfm2-moe-bf16", config(key, value), says)
case("exaone-norm", "exaone4-f32", without(AFTER), AFTER)
case("exaone-no-window", "exaone4-f32", config("sliding_window", None), [CONFIG, "layer_types"])
case("exaone-letters", "exaone4-f32", edit(CONFIG, lambda j: (
    j.pop("layer_types"), j.update(sliding_window_pattern="LG")) and None),
    [CONFIG, "sliding_window_pattern"])
case("exaone-none-slides", "exaone4-f32", config("layer_types", ["full_attention"] * 2),
     [CONFIG, "sliding_window"])
case("ministral-no-window", "ministral-bf16", config("sliding_window", None),
     [CONFIG, "layer_types"])
for i, (key, value) in enumerate([
        ("llama_4_scaling_beta", None), ("llama_4_scaling_beta", "0.1"),
        ("original_max_position_embeddings", None), ("rope_type", "dynamic")]):
    case(f"ministral3-{i}", "ministral3-bf16", config("rope_parameters." + key, value),
         [CONFIG, key])
for i, (key, value) in enumerate([
        ("alpha", None), ("alpha", "1000"), ("alpha", -1), ("rope_type", "ntk")]):
    case(f"hunyuan-{i}", "hunyuan-f32", config("rope_parameters." + key, value), [CONFIG, key])
case("hunyuan-norm", "hunyuan-gptq4", without("model.layers.1.self_attn.query_layernorm.weight"),
     "model.layers.1.self_attn.query_layernorm.weight")
SHARED = "model.layers.0.mlp.shared_expert"
case("shared-missing", "qwen2-moe-bf16", without(SHARED + ".up_proj.weight"),
     SHARED + ".up_proj.weight")
case("shared-gate-missing", "qwen2-moe-bf16", without(SHARED + "_gate.weight"),
     SHARED + "_gate.weight")
case("shared-wide", "qwen2-moe-bf16", config("shared_expert_intermediate_size", 64),
     [SHARED + ".gate_proj.weight", "shared_expert_intermediate_size 64"])
case("shared-unknown", "qwen2-moe-bf16", drop(CONFIG, "shared_expert_intermediate_size"),
     [CONFIG, "shared_expert_intermediate_size"])
case("shared-biases", "qwen2-moe-bf16", config("qkv_bias", False), "_proj.bias")
case("shared-windows", "qwen2-moe-bf16", edit(CONFIG, lambda j: j.update(
    use_sliding_window=True, sliding_window=16)), [CONFIG, "use_sliding_window"])


def int8_share(d):
    """The gate of the shared expert alone is W8A8."""
    def change(h, body):
        begin, end = h.pop(SHARED + "_gate.weight")["data_offsets"]
        for leaf, dtype, shape, first, last in [
                (SHARED + "_gate.weight", "I8", [1, 64], begin, begin + 64),
                (SHARED + "_gate.weight_scale", "BF16", [1, 1], begin + 64, begin + 66),
                ("filler", "U8", [end - begin - 66], begin + 66, end)]:
            h[leaf] = dict(dtype=dtype, shape=shape, data_offsets=[first, last])
    header(change)(d)
    quant = json.loads(read(os.path.join(MODELS, "llama-ct-w8a8"), CONFIG))["quantization_config"]
    config("quantization_config", quant)(d)


case("shared-int8", "qwen2-moe-bf16", int8_share, [CONFIG, SHARED + "_gate"])
case("shared-of-others", "qwen2-moe-bf16", config("model_type", "qwen3_moe"), "model.layers.0.")
def more_layers(n, count):
    """`n` layers are said to guess further tokens, and there are tensors of `count`."""
    def change(h, body):
        at = len(body)
        for i in range(count):
            h[f"model.layers.{2 + i}.eh_proj.weight"] = dict(
                dtype="F32", shape=[4], data_offsets=[at + 16 * i, at + 16 * i + 16])
        return h, body + bytes(range(16)) * count

    def run(d):
        header(change)(d)
        config("num_nextn_predict_layers", n)(d)
    return run


BIASED = "glm4-moe-bf16"
case("ok-more-layers", BIASED, more_layers(2, 2), [], "ok")
case("more-layers", BIASED, more_layers(1, 2), "model.layers.3.eh_proj.weight")
case("more-layers-none", BIASED, more_layers(0, 1), "model.layers.2.eh_proj.weight")
STATICS = "model.layers.1.mlp.moe_statics.e_score_correction_bias"
case("ernie-moe-bias-missing", "ernie4-5-moe-ct4", without(STATICS), STATICS)
case("ernie-moe-bias-flat", "ernie4-5-moe-bf16", entry("shape", [6], STATICS), STATICS)
case("ernie-moe-shared", "ernie4-5-moe-bf16", config("moe_num_shared_experts", 0),
     "shared_experts")
case("ernie-moe-layers", "ernie4-5-moe-bf16", config("moe_layer_end_index", 2),
     "model.layers.2.mlp.gate.weight")
BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
case("bias-missing", BIASED, without(BIAS), BIAS)
case("bias-type", BIASED, entry("dtype", "I32", BIAS), [BIAS, "I32"])
case("bias-short", BIASED, config("n_routed_experts", 5), "model.layers.1.mlp.gate")
case("biased-groups", BIASED, config("n_group", 2), [CONFIG, "n_group"])
case("biased-shared", BIASED, config("n_shared_experts", 1),
     ["model.layers.1.mlp.shared_experts.gate_proj.weight", "n_shared_experts 1"])
case("biased-shared-missing", BIASED, without("model.layers.1.mlp.shared_experts.up_proj.weight"),
     "model.layers.1.mlp.shared_experts.up_proj.weight")
case("biased-dense", BIASED, config("first_k_dense_replace", 0), "model.layers.0.mlp.gate")
case("biased-norms", BIASED, config("use_qk_norm", False), "_norm.weight")
case("bias-of-others", BIASED, edit(CONFIG, lambda j: j.update(
    model_type="qwen3_moe", num_experts=6, mlp_only_layers=[0])), "partial_rotary_factor")
case("glm-norm", "glm4-f32", without("model.layers.1.post_mlp_layernorm.weight"),
     "model.layers.1.post_mlp_layernorm.weight")
case("glm-without-bias", "glm4-f32", config("attention_bias", False), "_proj.bias")
case("glm-odd", "glm4-f32", config("rope_parameters.partial_rotary_factor", 0.2),
     [CONFIG, "partial_rotary_factor"])
case("glm-scaled", "glm4-f32", config("rope_parameters.rope_type", "dynamic"),
     [CONFIG, "rope_type"])
case("granitemoe-experts", "granitemoe-bf16", config("num_local_experts", 5),
     "block_sparse_moe.router.layer")
case("granitemoe-joined", "granitemoe-bf16", config("intermediate_size", 64),
     "block_sparse_moe.input_linear.weight")
case("granitemoe-apart", "granitemoe-ct4", without(*(
    f"model.layers.1.block_sparse_moe.experts.4.up_proj.weight_{leaf}" for leaf in
    ("packed", "scale", "shape"))), "model.layers.1.block_sparse_moe.experts.4.up_proj.weight")
HYBRID, FUSED = "granite-hybrid-bf16", "model.layers.1.shared_mlp.input_linear.weight"
for i, (key, value) in enumerate([
        ("layer_types", ["attention", "conv"]), ("layer_types", ["attention"]),
        ("layer_types", None), ("layers_block_type", ["mamba", "mamba"]),
        ("num_local_experts", 513), ("position_embedding_type", "alibi"),
        ("shared_intermediate_size", None), ("sliding_window", 8)]):
    case(f"hybrid-{i}", HYBRID, config(key, value), [CONFIG, key])
case("hybrid-width", HYBRID, config("shared_intermediate_size", 48),
     [FUSED.replace("1", "0"), "shared_intermediate_size 48"])
case("hybrid-without", HYBRID, without(FUSED), FUSED)
case("ok-hybrid", HYBRID, config("intermediate_size", 64), [], "ok")  # of experts
case("hybrid-experts", HYBRID, config("num_local_experts", 4), "num_experts_per_tok is 0")
MAMBA, MAMBA_MOE = "model.layers.0.mamba.", "model.layers.1.block_sparse_moe."
for i, name in enumerate(("A_log", "D", "dt_bias", "conv1d.weight", "conv1d.bias", "norm.weight",
                          "in_proj.weight", "out_proj.weight")):
    case(f"mamba-without-{i}", "granite-h-moe-bf16", without(MAMBA + name), MAMBA + name)
for i, (name, shape, says) in enumerate([
        ("conv1d.weight", [384, 4], "[384, 1, 4]"), ("D", [2, 1], "D"), ("A_log", [1, 2], "A_log"),
        ("norm.weight", [2, 64], "norm.weight"), ("conv1d.bias", [384, 1], "conv1d.bias")]):
    case(f"mamba-shape-{i}", "granite-h-moe-bf16", entry("shape", shape, MAMBA + name),
         [MAMBA + name, says, "mamba_n_groups 1, mamba_n_heads 2, mamba_d_state 128"])
for i, (key, value, says) in enumerate([
        ("mamba_n_groups", 2, "in_proj"), ("mamba_n_groups", 0, "mamba_n_groups"),
        ("mamba_n_heads", 0, "mamba_n_heads"), ("mamba_n_heads", 4, "mamba_d_head"),
        ("mamba_d_head", 65, "mamba_d_head"), ("mamba_d_head", 48, "mamba_d_head"),
        ("mamba_d_state", 144, "mamba_d_state"), ("mamba_d_state", 64, "in_proj"),
        ("mamba_d_state", None, "mamba_d_state"), ("mamba_expand", 3, "mamba_n_heads"),
        ("mamba_d_conv", 3, "conv1d"), ("mamba_conv_bias", False, "conv1d.bias"),
        ("mamba_proj_bias", True, "mamba_proj_bias"), ("time_step_limit", [0.01, 1], CONFIG),
        ("layer_types", ["attention"] * 2, "model.layers.0.self_attn"),
        ("num_local_experts", 5, "router.layer"), ("num_experts_per_tok", 5, CONFIG),
        ("num_local_experts", 0, "model.layers.0.block_sparse_moe"),
        ("intermediate_size", 48, "input_linear"), ("intermediate_size", None, CONFIG),
        ("shared_intermediate_size", 48, "shared_mlp.input_linear")]):
    case(f"mamba-{i}", "granite-h-moe-bf16", config(key, value), says)
case("ok-mamba", "granite-h-moe-bf16", config("mamba_d_head", "auto"), [], "ok")
for i, name in enumerate((MAMBA_MOE + "router.layer.weight", MAMBA_MOE + "output_linear.weight",
                          "model.layers.1.shared_mlp.output_linear.weight")):
    case(f"mamba-moe-without-{i}", "granite-h-moe-bf16", without(name), name)
NEMOTRON, BLOCK, PATTERN = "nemotron-h-f32", "layers.2.mixer.", "hybrid_override_pattern"
for i, name in enumerate(("embeddings.weight", "norm_f.weight", "layers.2.norm.weight",
                          BLOCK + "up_proj.weight", BLOCK + "up_proj.bias",
                          BLOCK + "down_proj.weight", "layers.3.mixer.q_proj.weight",
                          "layers.3.norm.weight", "layers.1.mixer.norm.weight",
                          "layers.1.mixer.in_proj.weight")):
    case(f"blocks-without-{i}", NEMOTRON, without("backbone." + name), "model." + name)
for i, (name, shape) in enumerate([(BLOCK + "up_proj.weight", [48, 32]),
                                   (BLOCK + "down_proj.bias", [48, 1]),
                                   ("layers.1.mixer.norm.weight", [2, 32])]):
    case(f"blocks-shape-{i}", NEMOTRON, entry("shape", shape, "backbone." + name),
         ["model." + name, "n_groups 2, mamba_num_heads 4, ssm_state_size 16"])
for i, (key, value, says) in enumerate([
        (PATTERN, "MM-E", "block 3"), (PATTERN, "MM--", "block 3"), (PATTERN, "-MM*", "block 0"),
        (PATTERN, "MM-*-", "num_hidden_layers"), (PATTERN, "MM-M", "full_attention"),
        (PATTERN, "M-M*", "model.layers.1"), (PATTERN, "MM**", "model.layers.2.mixer.q_proj"),
        (PATTERN, None, PATTERN), (PATTERN, "", PATTERN), (PATTERN, 4, PATTERN),
        ("layers_block_type", ["mamba", "mamba", "mlp", "moe"], PATTERN),
        ("layers_block_type", ["mamba", "mamba", "attention", "attention"], PATTERN),
        ("mlp_hidden_act", "silu", CONFIG), ("mlp_bias", False, "bias"), ("n_groups", 4, "in_proj"),
        ("n_groups", 3, "mamba_num_heads"), ("mamba_head_dim", 24, CONFIG),
        ("ssm_state_size", 32, "in_proj"), ("conv_kernel", 4, "conv1d"),
        ("use_conv_bias", True, "conv1d.bias"), ("attention_bias", True, CONFIG),
        ("use_bias", True, CONFIG), ("rms_norm_eps", 1e-5, CONFIG),
        ("time_step_limit", [0.0, 1.0], CONFIG), ("intermediate_size", 48, BLOCK + "up_proj")]):
    case(f"blocks-{i}", NEMOTRON, config(key, value), [key, says] if says == CONFIG else says)
case("ok-blocks", NEMOTRON, config("layers_block_type", ["mamba", "linear_attention", "mlp",
                                                         "attention"]), [], "ok")
case("ok-blocks-names", NEMOTRON, header(lambda h, b: (
    {n.replace("backbone.", "model."): t for n, t in h.items()}, b)), [], "ok")
case("ok-blocks-bare", NEMOTRON, lambda d: (without("lm_head.weight")(d), header(lambda h, b: (
    {n.replace("backbone.", ""): t for n, t in h.items()}, b))(d)), [], "ok")
case("ok-blocks-mtp", NEMOTRON, header(lambda h, b: (dict(h, **{"mtp.layers.0.norm.weight": dict(
    h["backbone.norm_f.weight"], data_offsets=[len(b), len(b) + 192])}), b + bytes(192))), [], "ok")
NEMOTRON_MOE, MOE_BLOCK = "nemotron-h-moe-bf16", "layers.4.mixer."
for i, name in enumerate(("gate.weight", "gate.e_score_correction_bias", "experts.5.up_proj.weight",
                          "experts.0.down_proj.weight", "shared_experts.up_proj.weight",
                          "shared_experts.down_proj.weight")):
    case(f"blocks-moe-without-{i}", NEMOTRON_MOE, without("backbone." + MOE_BLOCK + name),
         "model." + MOE_BLOCK + name)
for i, (name, shape) in enumerate([("gate.weight", [64, 6]), ("experts.5.up_proj.weight", [64, 48]),
                                   ("gate.e_score_correction_bias", [6, 1]),
                                   ("shared_experts.up_proj.weight", [64, 96])]):
    case(f"blocks-moe-shape-{i}", NEMOTRON_MOE,
         entry("shape", shape, "backbone." + MOE_BLOCK + name),
         ["model." + MOE_BLOCK + name, "6 experts of intermediate size 48, "
          "moe_shared_expert_intermediate_size 96"])
for i, (key, value, says) in enumerate([
        (PATTERN, "MEM*E-E", "block 5"), (PATTERN, "EMM*EME", "block 0"),
        (PATTERN, "MEM*-ME", "model.layers.4.mixer.up_proj"),
        (PATTERN, "MEM*EM*", "model.layers.6.mixer.q_proj"),
        ("n_routed_experts", 5, "model.layers.1.mixer.gate"), ("n_routed_experts", None, CONFIG),
        ("num_local_experts", 5, CONFIG), ("num_experts_per_tok", 7, CONFIG),
        ("num_experts_per_tok", 0, CONFIG), ("moe_intermediate_size", 32, "experts.0.up_proj"),
        ("moe_intermediate_size", None, CONFIG), ("moe_latent_size", 32, CONFIG),
        ("moe_shared_expert_intermediate_size", 48, "shared_experts.up_proj"),
        ("moe_shared_expert_intermediate_size", None, CONFIG), ("n_shared_experts", 2, CONFIG),
        ("n_group", 2, CONFIG), ("topk_group", 2, CONFIG), ("routed_scaling_factor", -1, CONFIG),
        ("mlp_bias", True, "shared_experts.up_proj.bias"), ("mlp_hidden_act", "gelu", CONFIG)]):
    case(f"blocks-moe-{i}", NEMOTRON_MOE, config(key, value),
         [key, says] if says == CONFIG else says)
case("ok-blocks-moe", NEMOTRON_MOE, config("layers_block_type", [
    "mamba", "moe", "linear_attention", "attention", "moe", "mamba", "moe"]), [], "ok")


def join_experts(h, body):
    """As transformers 5 has them in memory: up_proj and down_proj of all experts."""
    out, data = {}, b""
    for n, t in h.items():
        if ".experts." not in n and n != "__metadata__":
            begin, end = t["data_offsets"]
            out[n] = dict(t, data_offsets=[len(data), len(data) + end - begin])
            data += body[begin:end]
    for first in [n for n in h if ".experts.0." in n]:
        at = len(data)
        for e in range(6):
            begin, end = h[first.replace(".0.", f".{e}.")]["data_offsets"]
            data += body[begin:end]
        out[first.replace(".0.", ".")[:-len(".weight")]] = dict(
            h[first], shape=[6] + h[first]["shape"], data_offsets=[at, len(data)])
    return out, data


case("ok-blocks-moe-joined", NEMOTRON_MOE, header(join_experts), [], "ok")
OSS, SINKS = "gpt-oss-mxfp4", "model.layers.1.self_attn.sinks"
EXPERTS = "model.layers.1.mlp.experts."
for i, name in enumerate([
        SINKS, SINKS.replace("sinks", "q_proj.bias"), SINKS.replace("sinks", "o_proj.bias"),
        "model.layers.1.mlp.router.weight", "model.layers.1.mlp.router.bias",
        *(f"{EXPERTS}{m}_proj_{leaf}" for m in ("gate_up", "down")
          for leaf in ("blocks", "scales", "bias"))]):
    case(f"oss-without-{i}", OSS, without(name), name)
for i, (name, key, value) in enumerate([
        (SINKS, "shape", [4, 2]), (SINKS, "shape", [8, 1]), (SINKS, "dtype", "I16"),
        (EXPERTS + "gate_up_proj_blocks", "shape", [6, 320, 48]),
        (EXPERTS + "gate_up_proj_blocks", "shape", [6, 3, 320, 16]),
        (EXPERTS + "gate_up_proj_blocks", "shape", [6, 320, 6, 8]),
        (EXPERTS + "gate_up_proj_blocks", "dtype", "I8"),
        (EXPERTS + "gate_up_proj_scales", "shape", [6, 3, 320]),
        (EXPERTS + "gate_up_proj_scales", "dtype", "I8"),
        (EXPERTS + "gate_up_proj_bias", "shape", [6, 2, 160]),
        (EXPERTS + "down_proj_blocks", "shape", [6, 160, 3, 16]),
        (EXPERTS + "down_proj_blocks", "dtype", "I8"),
        (EXPERTS + "down_proj_scales", "shape", [6, 480]),
        (EXPERTS + "down_proj_bias", "shape", [96, 6])]):
    case(f"oss-tensor-{i}", OSS, entry(key, value, name), [name] + [value] * (key == "dtype"))
case("oss-bias-dtype", OSS, entry("dtype", "I16", EXPERTS + "down_proj_bias"),
     [EXPERTS + "down_proj_bias", "I16"])
for i, (key, value, says) in enumerate([
        ("hidden_size", 80, "hidden_size"), ("intermediate_size", 144, "intermediate_size"),
        ("intermediate_size", 96, "model.layers.0.mlp.experts.gate_up_proj"),
        ("num_local_experts", 5, "model.layers.0.mlp."),
        ("num_local_experts", 0, "num_local_experts"),
        ("num_experts_per_tok", 0, "num_experts_per_tok"),
        ("num_experts_per_tok", 7, "num_experts_per_tok"),
        ("experts_per_token", 2, "experts_per_token"),
        ("swiglu_limit", 6.0, "swiglu_limit"), ("swiglu_limit", 0, "swiglu_limit"),
        ("swiglu_limit", "7.0", "swiglu_limit"), ("hidden_act", "gelu", "hidden_act"),
        ("attention_bias", False, "_proj.bias"), ("sliding_window", None, "sliding_window"),
        ("sliding_window", -8, "sliding_window"),
        ("layer_types", ["full_attention"], "layer_types"),
        ("layer_types", ["full_attention", "linear_attention"], "layer_types"),
        ("rope_scaling.rope_type", "spiral", "rope_type"),
        ("rope_scaling.rope_type", "dynamic", "rope_type"), ("rope_scaling.factor", 0, "factor"),
        ("rope_scaling.truncate", "no", "truncate"),
        ("rope_scaling.original_max_position_embeddings", 0, "original_max_position_embeddings"),
        ("rope_theta", 0, "rope_theta"),
        ("quantization_config.quant_method", "mxfp8", "quant_method"),
        ("quantization_config", None, "quantization_config")]):
    case(f"oss-{i}", OSS, config(key, value),
         says if says.startswith(("_proj", "model.")) else [CONFIG, says])
case("ok-oss-no-limit", OSS, drop(CONFIG, "swiglu_limit"), [], "ok")
case("ok-oss-one-count", OSS, drop(CONFIG, "experts_per_token"), [], "ok")
case("mxfp4-of-others", MOE, config("quantization_config", dict(quant_method="mxfp4")),
     [CONFIG, "quant_method"])
case("oss-of-others", OSS, config("model_type", "mixtral"), CONFIG)
G4, G4_DENSE, G4_MOE = "gemma4-bf16", "gemma4-dense-f32", "gemma4-moe-bf16"
for i, name in enumerate([
        "model.layers.1.layer_scalar", "model.layers.1.per_layer_input_gate.weight",
        "model.layers.1.per_layer_projection.weight",
        "model.layers.1.post_per_layer_input_norm.weight",
        "model.embed_tokens_per_layer.weight", "model.per_layer_model_projection.weight",
        "model.per_layer_projection_norm.weight", "model.layers.1.self_attn.v_proj.weight",
        "model.layers.5.self_attn.q_norm.weight"]):
    case(f"gemma4-without-{i}", G4, without(name), name)
for i, name in enumerate([
        "router.proj.weight", "router.scale", "router.per_expert_scale",
        "pre_feedforward_layernorm_2.weight", "post_feedforward_layernorm_1.weight",
        "post_feedforward_layernorm_2.weight", "experts.down_proj", "mlp.up_proj.weight"]):
    name = "model.layers.1." + name
    case(f"gemma4-moe-without-{i}", G4_MOE, without(name), name)
for i, (name, key, value) in enumerate([
        ("model.layers.1.layer_scalar", "shape", [1, 1]),
        ("model.layers.1.layer_scalar", "dtype", "I16"),
        ("model.embed_tokens_per_layer.weight", "shape", [192, 288])]):
    case(f"gemma4-tensor-{i}", G4, entry(key, value, name), name)
for i, (base, key, value, says) in enumerate([
        (G4, "global_head_dim", 32, "self_attn.q_"), (G4, "global_head_dim", 0, "global_head_dim"),
        (G4, "global_head_dim", 1024, "global_head_dim"),
        (G4, "num_kv_shared_layers", 2, "model.layers.3.self_attn.k_"),
        (G4, "num_kv_shared_layers", 6, "num_kv_shared_layers"),
        (G4, "num_kv_shared_layers", 5, "num_kv_shared_layers"),
        (G4, "use_double_wide_mlp", False, "model.layers.3.mlp."),
        (G4, "hidden_size_per_layer_input", 0, "per_layer"),
        (G4, "hidden_size_per_layer_input", 16, "per_layer"),
        (G4, "vocab_size_per_layer_input", 300, "vocab_size_per_layer_input"),
        (G4, "use_bidirectional_attention", "all", "use_bidirectional_attention"),
        (G4, "rope_parameters", None, "rope_parameters"),
        (G4, "rope_parameters.sliding_attention.rope_type", "spiral", "rope_type"),
        (G4, "rope_parameters.full_attention.factor", 0, "factor"),
        (G4, "per_layer_config", {"9": {"head_dim": 64}}, "per_layer_config"),
        (G4, "per_layer_config", {"2": {"heads": 64}}, "per_layer_config"),
        (G4, "per_layer_config", {"2": 64}, "per_layer_config"),
        (G4_DENSE, "attention_k_eq_v", False, "self_attn.k_proj"),
        (G4_DENSE, "num_global_key_value_heads", 3, "num_global_key_value_heads"),
        (G4_MOE, "enable_moe_block", False, "model.layers.0."),
        (G4_MOE, "top_k_experts", 7, "top_k_experts"),
        (G4_MOE, "top_k_experts", None, "top_k_experts"),
        (G4_MOE, "num_experts", 5, "router.proj"), (G4_MOE, "num_experts", None, "num_experts"),
        (G4_MOE, "moe_intermediate_size", 16, "experts.gate_up_proj")]):
    case(f"gemma4-{i}", base, config(key, value), says)
case("clip-qkv", "olmoe-f32", config("clip_qkv", 8.0), [CONFIG, "clip_qkv"])
case("theta-differs", "olmo3-bf16", edit(CONFIG, lambda j: (
    j.pop("rope_parameters"), j.update(rope_theta=10000.0)) and None), [CONFIG, "rope_theta"])
case("theta-absent", "olmo3-bf16", drop(CONFIG, "rope_parameters"), [CONFIG, "rope_theta"])
case("tensor-missing-norm", PLAIN, without(NORM), NORM)
case("tensor-shape", PLAIN, entry("shape", [8, 8]), NORM)
case("tensor-transposed", PLAIN, entry("shape", [64, 128], "model.layers.0.mlp.up_proj.weight"),
     "model.layers.0.mlp.up_proj.weight")
case("tensor-dtype", PLAIN, entry("dtype", "I16"), [NORM, "I16"])
case("ok-head-absent", PLAIN, without("lm_head.weight"), [], "ok")

for i, value in enumerate([288, -1, [1, 4000000000], "1", 1.5]):
    case(f"eos-{i}", PLAIN, edit("generation_config.json", lambda j, v=value: put(
        j, "eos_token_id", v)), ["generation_config.json", "eos_token_id"])

# ---- quantized -----------------------------------------------------------------------------------

Q, UP = "quantization_config.", "model.layers.0.mlp.up_proj."
for i, (key, value) in enumerate([
        ("quant_method", "squeeze"), ("bits", 3), ("bits", "4"), ("bits", 0), ("bits", 32),
        ("group_size", 0), ("group_size", -2), ("group_size", 7), ("group_size", 1 << 40),
        ("checkpoint_format", "marlin"), ("checkpoint_format", "gptq_p"),
        ("is_marlin_format", True), ("sym", "yes"), ("desc_act", 1)]):
    case(f"gptq-{i}", GPTQ, config(Q + key, value), [CONFIG, key])
case("gptq-no-method", GPTQ, edit(CONFIG, lambda j: [
    j["quantization_config"].pop(k) for k in ("quant_method", "method")] and None),
    [CONFIG, "quant_method"])
case("gptq-no-bits", GPTQ, edit(CONFIG, lambda j: j["quantization_config"].pop("bits") and None),
     [CONFIG, "bits"])
case("gptq-no-config", GPTQ, lambda d: (drop(CONFIG, "quantization_config")(d),
                                        remove("quantize_config.json")(d)), CONFIG)
for leaf in ("scales", "qzeros"):
    case("gptq-no-" + leaf, GPTQ, without(UP + leaf), UP + leaf)
case("gptq-qweight-shape", GPTQ, entry("shape", [128, 8], UP + "qweight"), UP + "qweight")
case("gptq-qweight-dtype", GPTQ, entry("dtype", "F32", UP + "qweight"), UP + "qweight")
case("gptq-scales-dtype", GPTQ, entry("dtype", "I16", UP + "scales"), UP + "scales")
case("gptq-gidx-high", ACT, values(UP + "g_idx", "i", lambda v: first_value(v, 2)), UP + "g_idx")
case("gptq-gidx-negative", ACT, values(UP + "g_idx", "i", lambda v: first_value(v, -1)),
     UP + "g_idx")
case("gptq-gidx-missing", ACT, without(UP + "g_idx"), UP + "g_idx")
for i, (key, value) in enumerate([("version", "gemv_fast"), ("version", 4), ("bits", 3),
                                  ("group_size", 0), ("group_size", 48)]):
    case(f"awq-{i}", "llama-awq", config(Q + key, value), [CONFIG, key])
W = "config_groups.group_0.weights."
for i, (key, value) in enumerate([
        ("format", "nvfp4-pack-quantized"), ("format", 4), ("config_groups", {}),
        ("config_groups", []), ("transform_config", {"r": {"type": "hadamard"}}),
        ("sparsity_config", {"format": "sparse-24-bitmask"}), (W + "num_bits", 3),
        (W + "num_bits", 40), (W + "type", "float"), (W + "strategy", "block"),
        (W + "group_size", 0), (W + "group_size", 33), (W + "symmetric", "no")]):
    case(f"ct-{i}", "llama-ct4", config(Q + key, value), [CONFIG, key.split(".")[-1]])
case("ct-shape", "llama-ct4", values(UP + "weight_shape", "q", lambda v: first_value(v, 1 << 40)),
     UP + "weight_shape")
case("ct-gidx", "llama-ct4-act", values(UP + "weight_g_idx", "i", lambda v: first_value(v, 2)),
     UP + "weight_g_idx")
case("ct-activations", "llama-ct-w8a8", config(
    Q + "config_groups.group_0.input_activations.num_bits", 4), [CONFIG, "input_activations"])

# ---- tokenizer.json ------------------------------------------------------------------------------


def tokenizer(change):
    return edit(TOKENIZER, change)


def split(pattern):
    return dict(type="Sequence", pretokenizers=[
        dict(type="Split", pattern=pattern, behavior="Isolated", invert=False),
        dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)])


for name, change, needle in [
        ("missing", remove(TOKENIZER), TOKENIZER),
        ("truncated", raw(TOKENIZER, lambda b: b[:-40]), TOKENIZER),
        ("version", tokenizer(lambda j: put(j, "version", "2.0")), "version"),
        ("model-type", tokenizer(lambda j: put(j, "model.type", "Unigram")), "Unigram"),
        ("no-vocab", tokenizer(lambda j: j["model"].pop("vocab") and None), "vocab"),
        ("dropout", tokenizer(lambda j: put(j, "model.dropout", 0.5)), "dropout"),
        ("merge-unknown", tokenizer(lambda j: j["model"]["merges"].append(["zq", "e"])), "zq"),
        ("merge-result", tokenizer(lambda j: j["model"]["merges"].append(["z", "q"])), "zq"),
        ("merge-one-part", tokenizer(lambda j: j["model"]["merges"].append(["e"])), "merges"),
        ("merge-three-parts", tokenizer(lambda j: j["model"]["merges"].append("e r s")), "merges"),
        ("merge-number", tokenizer(lambda j: j["model"]["merges"].append(5)), "merges"),
        ("id-high", tokenizer(lambda j: j["model"]["vocab"].update(zz=288)), "288"),
        ("id-huge", tokenizer(lambda j: j["model"]["vocab"].update(zz=1 << 32)), "vocab"),
        ("id-negative", tokenizer(lambda j: j["model"]["vocab"].update(zz=-1)), "vocab"),
        ("id-float", tokenizer(lambda j: j["model"]["vocab"].update(zz=5.5)), "vocab"),
        ("id-twice", tokenizer(lambda j: j["model"]["vocab"].update(zz=5)), "5"),
        ("added-id", tokenizer(lambda j: j["added_tokens"].append(
            dict(j["added_tokens"][0], content="<new>", id=1 << 31))), "<new>"),
        ("long-token", tokenizer(lambda j: j["model"]["vocab"].update({"z" * 5000: 5})), "vocab"),
        ("regex", tokenizer(lambda j: put(j, "pre_tokenizer", split(dict(Regex="a|(?<=a)b")))),
         "(?<=a)b"),
        ("pre-tokenizer", tokenizer(lambda j: put(j, "pre_tokenizer", dict(type="Magic"))),
         "Magic"),
        ("normalizer", tokenizer(lambda j: put(j, "normalizer", dict(type="Rot13"))), "Rot13"),
        ("normalizer-regex", tokenizer(lambda j: put(j, "normalizer", dict(
            type="Replace", pattern=dict(Regex="(x*)*y"), content="z"))), "(x*)*y"),
        ("decoder", tokenizer(lambda j: put(j, "decoder", dict(type="Magic"))), "Magic"),
        ("post-processor", tokenizer(lambda j: put(j, "post_processor", dict(type="Magic"))),
         "Magic")]:
    case("tokenizer-" + name, PLAIN, change, [TOKENIZER] + [needle] * (needle != TOKENIZER))

# ---- chat template -------------------------------------------------------------------------------

for name, text in [
        ("syntax", "{% if %}"), ("unclosed", "{% for m in messages %}x"),
        ("statement", "{% include 'a' %}"), ("too-long", "x" * (300 << 10)),
        ("deep", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"),
        ("deep-blocks", "{% if true %}" * 5000 + "{% endif %}" * 5000),
        ("endless", "{% for i in range(999999) %}{% for j in range(999999) %}{% endfor %}"
                    "{% endfor %}"),
        ("recursion", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
        ("mutual", "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}"
                   "{% endmacro %}{{ f(1) }}"),
        ("bomb", "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
                 "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}"),
        ("repeat", "{{ 'x' * 99999999999 }}"),
        ("range", "{{ range(99999999999) | list | length }}"),
        ("escape", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
        ("filter", "{{ messages | attr('x') | nosuch }}"),
        ("raise", "{{ raise_exception('only users may speak') }}")]:
    needle = "only users may speak" if name == "raise" else "chat_template"
    case("template-" + name, PLAIN, lambda d, t=text: write(d, TEMPLATE, t), needle,
         "render")


def main():
    out, only = sys.argv[1], sys.argv[2:]
    names = [c[0] for c in CASES]
    assert len(set(names)) == len(names), "two cases of one name"
    os.makedirs(out, exist_ok=True)
    lines = []
    for name, base, change, needles, kind in CASES:
        if only and name not in only:
            continue
        folder = os.path.join(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(MODELS, base), folder,
                        ignore=shutil.ignore_patterns("golden.*"))
        before = {f: read(folder, f) for f in os.listdir(folder)}
        change(folder)
        after = {f: read(folder, f) for f in os.listdir(folder)}
        assert before != after, f"{name} changes nothing"
        lines.append("\t".join([name, kind] + needles) + "\n")
    with open(os.path.join(out, "expect.tsv"), "w") as f:
        f.writelines(lines)
    print(f"{len(lines)} folders in {out}")


if __name__ == "__main__":
    main()
