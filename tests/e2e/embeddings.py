"""POST /v1/embeddings, by the OpenAI client against `zigcuda serve`: an embedding model, held to
what transformers and sentence-transformers make of it, and changes of its folder.

usage: embeddings.py MODELS_DIR [FLAG...]   (environment: ZIGCUDA, how to run the binary)
"""
import base64
import json
import math
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import jsonschema
import openai

import server

MODELS, FLAGS = sys.argv[1], sys.argv[2:]
CUDA = any(f.startswith("--cuda.library") for f in FLAGS)
NAME = "qwen3-embedding-bf16"
FOLDER = os.path.join(MODELS, NAME)
HIDDEN, CONTEXT, SLOTS, QUEUE = 64, 256, 8, 64
INT8_KV = "--engine.kv_type=int8" in FLAGS
TOLERANCE = 1e-2 if INT8_KV else 3e-3 if CUDA else 1e-3
TEMPORARY = tempfile.TemporaryDirectory()
with open(FOLDER + "/golden.embeddings.json") as f:
    GOLDEN = json.load(f)
with open(FOLDER + "/golden.embeddings.f32", "rb") as f:
    ROWS = [list(row) for row in struct.iter_unpack(f"<{HIDDEN}f", f.read())]
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def check_once(function):
    """What is the same whoever computes."""
    return function if CUDA else check(function)


def client_of(at, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{at.port}/v1", api_key=key, max_retries=0,
                         timeout=120)


SERVER = server.Server(FOLDER, *FLAGS)
CLIENT = client_of(SERVER)


def as_f32(v):
    return struct.pack(f"<{len(v)}f", *v)


def embed(input, client=CLIENT, model=NAME, **more):
    """As f32, however they were written: the client decodes base64 only if it asks by itself."""
    data = client.embeddings.create(input=input, model=model, **more).data
    raw = [base64.b64decode(d.embedding) if isinstance(d.embedding, str) else as_f32(d.embedding)
           for d in data]
    return [list(struct.unpack(f"<{len(r) // 4}f", r)) for r in raw]


def post(body, at=SERVER, path="/v1/embeddings", headers={}):
    """-> status, the reply as text"""
    request = urllib.request.Request(f"http://127.0.0.1:{at.port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def metrics(at):
    with urllib.request.urlopen(f"http://127.0.0.1:{at.port}/metrics") as reply:
        return reply.read().decode()


def refused(body, status, param, *words, at=SERVER, code=None, **more):
    got, text = post(body, at, **more)
    error = json.loads(text)["error"]
    assert got == status and error["param"] == param, (str(body)[:200], got, error)
    assert code is None or error["code"] == code, (body, error)
    for word in words:
        assert str(word) in error["message"], (word, error)


def close(a, b, tolerance=None):
    assert len(a) == len(b), (len(a), len(b))
    worst = max(abs(x - y) for x, y in zip(a, b))
    assert worst <= (tolerance or TOLERANCE), worst


def length(v):
    return math.sqrt(sum(x * x for x in v))


def texts(n, seed=1):
    rng = random.Random(seed)
    words = " ".join(GOLDEN["texts"]).split()
    return [" ".join(rng.choice(words) for _ in range(rng.randint(1, 40))) for _ in range(n)]


@check
def what_others_compute():
    for encoding in ("float", "base64", None):
        more = {"encoding_format": encoding} if encoding else {}
        for got, want in zip(embed(GOLDEN["texts"], **more), ROWS):
            close(got, want)
            assert abs(length(got) - 1) < 1e-6
    for got, want in zip(embed(GOLDEN["ids"]), ROWS):
        close(got, want)
    for text, ids, want in zip(GOLDEN["texts"], GOLDEN["ids"], ROWS):
        a, b = embed(text)[0], embed(ids)[0]
        close(a, want)
        assert a == b
    plain = embed("OK!", extra_body={"add_special_tokens": False})[0]
    assert plain == embed(GOLDEN["ids"][GOLDEN["texts"].index("OK!")][:-1])[0] != embed("OK!")[0]


@check_once
def the_reply():
    status, text = post({"model": NAME, "input": ["one", "OK!"], "user": "me"})
    reply = json.loads(text)
    tokens = json.loads(post({"prompt": "one"}, path="/tokenize")[1])["count"] + \
        json.loads(post({"prompt": "OK!"}, path="/tokenize")[1])["count"]
    assert status == 200 and list(reply) == ["object", "data", "model", "usage"]
    assert reply["object"] == "list" and reply["model"] == NAME
    assert reply["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    for i, d in enumerate(reply["data"]):
        assert list(d) == ["object", "index", "embedding"]
        assert d["object"] == "embedding" and d["index"] == i and len(d["embedding"]) == HIDDEN
    raw = json.loads(post({"model": NAME, "input": ["one", "OK!"], "encoding_format": "base64"})[1])
    for a, b in zip(reply["data"], raw["data"]): # the floats read back as they were
        assert as_f32(a["embedding"]) == base64.b64decode(b["embedding"])
    assert f"path=/v1/embeddings status=200" in SERVER.text()
    assert f"tokens_in={tokens} tokens_out=0" in SERVER.text()


@check
def same_bits_whatever_else():
    """More inputs than there are places, beside each other and a chat, against each alone; and in
    small pieces, without a prefix cache."""
    some = texts(200)
    together = embed(some, encoding_format="float")
    ends = threading.Thread(target=lambda: CLIENT.completions.create(
        model=NAME, prompt="on and on", max_tokens=150, extra_body={"ignore_eos": True}))
    ends.start()
    assert together == embed(some, encoding_format="float")
    ends.join()
    picked = range(0, 200, 9)
    assert [together[i] for i in picked] == [embed(some[i])[0] for i in picked]
    flags = ["--engine.step_tokens=11", "--engine.slots=3", "--engine.prefix_cache=off",
             "--engine.queue=1"] + ([] if CUDA else ["--cpu.threads=2"])
    with server.Server(FOLDER, *FLAGS, *flags) as small:
        again = embed([some[i] for i in picked], client_of(small))
        assert [together[i] for i in picked] == again


@check_once
def dimensions():
    full = embed("OK!")[0]
    for n in (1, 2, 33, HIDDEN):
        cut = embed("OK!", dimensions=n)[0]
        close(cut, [x / length(full[:n]) for x in full[:n]], 1e-6)
    refused({"model": NAME, "input": "a", "dimensions": HIDDEN + 1}, 400, "dimensions", 65, 64)
    refused({"model": NAME, "input": "a", "dimensions": 0}, 400, "dimensions", 0)
    refused({"model": NAME, "input": "a", "dimensions": 1.5}, 400, "dimensions", 1.5)


@check_once
def what_is_refused():
    long = [2] * (CONTEXT + 1)
    for body, param, words in [
            ({"model": NAME}, "input", ["missing"]),
            ({"model": NAME, "input": None}, "input", ["missing"]),
            ({"model": NAME, "input": ""}, "input", ["input 0", "empty"]),
            ({"model": NAME, "input": []}, "input", ["empty list"]),
            ({"model": NAME, "input": ["a", ""]}, "input", ["input 1", "empty"]),
            ({"model": NAME, "input": [[5], []]}, "input", ["input 1", "empty"]),
            ({"model": NAME, "input": 5}, "input", ["string"]),
            ({"model": NAME, "input": {"text": "a"}}, "input", ["string"]),
            ({"model": NAME, "input": ["a", 5]}, "input", ["input 1", "string"]),
            ({"model": NAME, "input": [5, "a"]}, "input", ["input 0", "entry 1"]),
            ({"model": NAME, "input": [[5], [288]]}, "input", ["input 1", "below 288"]),
            ({"model": NAME, "input": [[5], long]}, "input", ["input 1", 257, 256]),
            ({"model": NAME, "input": ["a", "7 " * 300]}, "input", ["input 1", 256]),
            ({"model": NAME, "input": ["a"] * 2049}, "input", [2048]),
            ({"model": NAME, "input": "a", "encoding_format": "int8"}, "encoding_format",
             ["float"]),
            ({"model": NAME, "input": "a", "stream": True}, "stream", ["stream"]),
            ({"model": NAME, "input": "a", "dimension": 5}, "dimension", ["dimensions"]),
            ({"model": NAME, "input": "a", "truncate_prompt_tokens": -1}, "truncate_prompt_tokens",
             ["never cut"]),
            ({"model": NAME, "input": "a", "priority": 2000}, "priority", [2000]),
            ({"input": "a"}, "model", ["missing"])]:
        refused(body, 400, param, *words)
    refused({"model": "other", "input": "a"}, 404, "model", "other", code="model_not_found")
    assert len(embed([[2] * CONTEXT])[0]) == HIDDEN # may fill it
    with server.Server(FOLDER, *FLAGS, "--server.reply_memory=64KiB", "--engine.queue=1",
                       "--engine.slots=1", "--engine.step_tokens=64") as tight:
        refused({"model": NAME, "input": ["a"] * 1000, "dimensions": 60}, 400, "input",
                "server.reply_memory", at=tight)


@check_once
def the_document():
    """What it lets through is answered, and what is answered fits it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{SERVER.port}/openapi.json") as reply:
        document = json.load(reply)

    def fits(value, schema):
        schema = {**document, "$ref": f"#/components/schemas/{schema}"}
        return not list(jsonschema.Draft202012Validator(schema).iter_errors(value))

    asked = {"model": NAME, "input": "a"}
    for encoding in "float", "base64":
        reply = json.loads(post({**asked, "encoding_format": encoding})[1])
        assert fits(reply, "Embeddings") and not fits({**reply, "data": [[1.0]]}, "Embeddings")
    for key, value, may in [
            ("input", ["a", "b"], True), ("input", [3, 4], True), ("input", [[3], [4, 5]], True),
            ("input", "", False), ("input", [], False), ("input", ["a", [3]], True),
            ("input", [[]], False), ("input", ["a", ""], False), ("input", [-1], False),
            ("dimensions", 0, False), ("dimensions", None, True), ("encoding_format", "x", False),
            ("encoding_format", None, True), ("stream", False, False), ("user", "me", True),
            ("unknown", None, True), ("extra_body", {}, True), ("extra_body", {"a": 1}, False),
            ("deadline_ms", 0, False), ("deadline_ms", 60000, True), ("priority", -5, True),
            ("add_special_tokens", False, True), ("add_special_tokens", 1, False)]:
        status, text = post({**asked, key: value})
        assert fits({**asked, key: value}, "EmbeddingRequest") == may, (key, value)
        assert (status == 200) == may, (key, value, text)


@check
def many():
    inputs = [[3 + i % 200, 7, i % 11 + 3] for i in range(2048)]
    got = embed(inputs, encoding_format="base64", dimensions=16)
    assert len(got) == 2048 and got[5] == embed(inputs[5], dimensions=16)[0]
    kinds = {tuple(i): g for i, g in zip(inputs, got)}
    assert all(kinds[tuple(i)] == g for i, g in zip(inputs, got))


def ask(at, body, version="1.1", path=None):
    """A connection, or one over the socket at path, that has asked and reads nothing yet."""
    s = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    s.connect(path or ("127.0.0.1", at.port))
    body = json.dumps(body)
    s.sendall(f"POST /v1/embeddings HTTP/{version}\r\nHost: localhost\r\nContent-Type: "
              f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return s


def logged(at, what):
    deadline = time.monotonic() + 30
    while not (lines := [x for x in at.text().splitlines() if what in x]):
        assert time.monotonic() < deadline, at.text()[-500:]
    return lines


@check_once
def replies_longer_than_a_body():
    """In pieces, as they are read; the same as those that are sent whole."""
    inputs = [[3 + i % 200, 7, i % 11 + 3] for i in range(1500)]
    body = {"model": NAME, "input": inputs}
    flags = ["--server.body_max=64KiB", "--server.output=16KiB", "--server.write_time=2s",
             "--server.reply_memory=4MiB"]
    path = os.path.join(TEMPORARY.name, "sock")
    with server.Server(FOLDER, *FLAGS, "--server.reply_memory=4MiB") as at:
        want = [post({**body, "encoding_format": e}, at) for e in ("base64", "float")]
    with server.Server(FOLDER, *FLAGS, *flags, listen=f"127.0.0.1:0,unix:{path}") as at:
        got = [post({**body, "encoding_format": e}, at) for e in ("base64", "float")]
        assert got == want and len(got[1][1]) > 1000000, (got[0][0], want[0][0])
        # Slowly, with more than the kernel keeps: in nobody's way, and not too slow as long as
        # bytes are taken within write_time. Then the connection goes on.
        with ask(at, body, path=path) as s:
            begin, rest = time.monotonic(), b""
            while time.monotonic() < begin + 3:
                rest += s.recv(10000)
                time.sleep(0.05)
            assert embed(inputs[0], client_of(at))
            assert at.text().count("tokens_in=4500") == 2, at.text()[-500:]  # those got
            while not rest.endswith(b"\r\n0\r\n\r\n"):
                rest += (piece := s.recv(1 << 16))
                assert piece, (len(rest), at.text()[-300:])
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert rest.startswith(b"HTTP/1.1 200") and s.recv(99).startswith(b"HTTP/1.1 200")
        with ask(at, body, "1.0") as s:
            whole = b"".join(iter(lambda: s.recv(1 << 16), b""))
        head, _, whole = whole.partition(b"\r\n\r\n")
        assert whole.decode() == want[1][1] and b"chunked" not in head, head
        with ask(at, body, path=path) as s:
            s.recv(5000)
        assert "why=gone" in logged(at, "status=499")[0]
        with ask(at, body, path=path):
            assert len(logged(at, "why=slow_reader")) == 1
        assert len(embed(inputs[:9], client_of(at))) == 9


def folder(name, change):
    path = os.path.join(TEMPORARY.name, name)
    shutil.copytree(FOLDER, path)
    change(path)
    return path


def edit(path, name, **keys):
    with open(os.path.join(path, name)) as f:
        value = json.load(f)
    value = {k: v for k, v in {**value, **keys}.items() if v != "gone"} \
        if isinstance(value, dict) else keys["value"]
    with open(os.path.join(path, name), "w") as f:
        json.dump(value, f)


def modules(path, *kinds):
    edit(path, "modules.json", value=[
        {"idx": i, "name": str(i), "path": f"{i}_{k.split('.')[-1]}" if i else "", "type": k}
        for i, k in enumerate(kinds)])


OLD = "sentence_transformers.models."
LAST = "pooling_mode_lasttoken"


@check
def folders_that_pool_otherwise():
    """Embeddings are refused, everything else goes on."""
    for name, change, words in [
            ("mean", lambda p: edit(p, "1_Pooling/config.json", **{
                LAST: False, "pooling_mode_mean_tokens": True}), ["mean_tokens", "1_Pooling"]),
            ("two", lambda p: edit(p, "1_Pooling/config.json", pooling_mode_mean_tokens=True),
             ["no single one"]),
            ("newer-cls", lambda p: edit(p, "1_Pooling/config.json", pooling_mode="cls"), ["cls"]),
            ("alone", lambda p: (os.remove(p + "/modules.json"), edit(
                p, "1_Pooling/config.json", pooling_mode=["mean", "max"])), ["no single one"]),
            ("no-pooling", lambda p: shutil.rmtree(p + "/1_Pooling"), ["1_Pooling", "missing"]),
            ("dense", lambda p: modules(p, OLD + "Transformer", OLD + "Pooling", OLD + "Dense"),
             ["module 2", "Dense"]),
            ("four", lambda p: modules(p, OLD + "Transformer", OLD + "Pooling", OLD + "Normalize",
                                       OLD + "Normalize"), ["module 3"]),
            ("lower", lambda p: open(p + "/sentence_bert_config.json", "w").write(
                '{"do_lower_case": true}'), ["do_lower_case"]),
            ("both-ways", lambda p: edit(p, "config.json", is_causal=False), ["is_causal"]),
            ("no-json", lambda p: open(p + "/modules.json", "w").write("["), ["modules.json"])]:
        with server.Server(folder(name, change), *FLAGS) as at:
            refused({"model": name, "input": "a"}, 400, "model", *words, at=at,
                    code="no_embeddings")
            body = {"model": name, "prompt": "a", "max_tokens": 2}
            assert post(body, at, "/v1/completions")[0] == 200


@check_once
def folders_of_other_forms():
    new = "sentence_transformers.base.modules."
    for name, change in [
            ("newer", lambda p: (edit(p, "1_Pooling/config.json", **{
                "pooling_mode": "lasttoken", LAST: "gone"}),
                modules(p, new + "transformer.Transformer", new + "pooling.Pooling",
                        new + "normalize.Normalize"))),
            ("no-files", lambda p: (os.remove(p + "/modules.json"),
                                    shutil.rmtree(p + "/1_Pooling")))]:
        with server.Server(folder(name, change), *FLAGS) as at:
            close(embed("OK!", client_of(at), name)[0], embed("OK!")[0], 1e-9)
    with server.Server(folder("raw", lambda p: modules(p, OLD + "Transformer", OLD + "Pooling")),
                       *FLAGS) as at:
        raw, cut = (embed("OK!", client_of(at), "raw", **m)[0] for m in ({}, {"dimensions": 9}))
        assert length(raw) > 2 and raw[:9] == cut
        close([x / length(raw) for x in raw], embed("OK!")[0], 1e-6)
    sizes = lambda p: edit(p, "config.json", matryoshka_dimensions=[16, 32])
    with server.Server(folder("sizes", sizes), *FLAGS) as at:
        for n in (16, 32, HIDDEN):
            assert len(embed("OK!", client_of(at), "sizes", dimensions=n)[0]) == n
        refused({"model": "sizes", "input": "a", "dimensions": 17}, 400, "dimensions",
                "matryoshka_dimensions", at=at)


@check
def a_model_without_a_head():
    """As the larger ones are: not tied, and no lm_head. Nothing else is to be had of them."""
    bare = lambda p: edit(p, "config.json", tie_word_embeddings=False, architectures=["Qwen3Model"])
    path = folder("bare", bare)
    with server.Server(path, *FLAGS) as at:
        assert embed("OK!", client_of(at), "bare") == embed("OK!")
        for route, body in [("/v1/completions", {"prompt": "a"}),
                            ("/v1/chat/completions", {"messages": [{"role": "user",
                                                                    "content": "a"}]})]:
            refused({"model": "bare", **body}, 400, "model", "lm_head", "/v1/embeddings", at=at,
                    path=route)
    run = subprocess.run([*server.BINARY, "run", "--model", path, *FLAGS, "a"],
                         capture_output=True, text=True)
    assert run.returncode == 4 and "no lm_head" in run.stderr, run


@check
def any_chat_model():
    name = "llama-gptq4"
    with server.Server(os.path.join(MODELS, name), *FLAGS) as at:
        one, two = embed(["a b c", "a b d"], client_of(at), name)
        assert abs(length(one) - 1) < 1e-6 and abs(length(two) - 1) < 1e-6 and one != two


@check_once
def limits_of_keys_and_time():
    keys = os.path.join(TEMPORARY.name, "keys")
    made = subprocess.run([*server.BINARY, "key", "new", "alice"], capture_output=True, text=True)
    with open(keys, "w") as f:
        f.write(made.stderr)
    with server.Server(FOLDER, *FLAGS, f"--keys.file={keys}", "--keys.rate=2",
                       "--engine.slots=1", "--engine.queue=1", "--engine.step_tokens=2",
                       "--server.reply_memory=4MiB") as at:
        body = {"model": NAME, "input": "a"}
        headers = {"Authorization": "Bearer " + made.stdout.strip()}
        refused(body, 401, None, at=at)
        assert post(body, at, headers=headers)[0] == 200
        refused({**body, "input": [[5] * 200] * 300, "deadline_ms": 1}, 504, "deadline_ms", at=at,
                headers=headers)
        deadline = time.monotonic() + 20  # of that one a step may be under way still
        while "queue_full" in post(body, at, headers=headers)[1]:
            assert time.monotonic() < deadline
        refused(body, 429, None, "keys.rate", at=at, headers=headers, code="key_rate")
        assert "key=alice" in at.text() and "status=504" in at.text()


@check_once
def full_queue_and_clients_that_leave():
    """One slot and one place: who comes third is told; the first leaves, and its inputs with it."""
    flags = ["--engine.slots=1", "--engine.queue=1", "--engine.step_tokens=2",
             "--server.reply_memory=4MiB"]
    with server.Server(FOLDER, *FLAGS, *flags) as at:
        s = ask(at, {"model": NAME, "input": [[5 + i % 7] * 250 for i in range(600)],
                     "encoding_format": "base64"})
        deadline = time.monotonic() + 30
        while "zigcuda_requests_running 1" not in metrics(at):
            assert time.monotonic() < deadline
        refused({"model": NAME, "input": "a"}, 429, None, at=at, code="queue_full")
        s.close()
        while post({"model": NAME, "input": "a"}, at)[0] != 200:
            assert time.monotonic() < deadline
        line = [x for x in at.text().splitlines() if "status=499" in x]
        assert len(line) == 1 and "why=gone" in line[0]


if __name__ == "__main__":
    with SERVER:
        failed = server.run(checks)
    TEMPORARY.cleanup()
    sys.exit(failed > 0)
