"""`zigcuda serve` seen from outside, beyond what the OpenAI client does: routes against the OpenAPI
document, raw HTTP, WebSocket, disconnects, keys, loopback checks, overload, metrics, the end.

usage: serve.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import server

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
SERVER = server.Server(MODEL_DIR, "--server.origins", "https://app.example", "--server.hosts",
                       "box.example", "--server.heartbeat", "20ms", "--log.level", "debug")
SEEN = set()  # method, path, status and type of every answer, for the document
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def ask(method, path, body=None, headers=None, port=None):
    c = http.client.HTTPConnection("127.0.0.1", port or SERVER.port, timeout=30)
    headers = dict(headers or {})
    if body is not None and "content-type" not in headers:
        headers["content-type"] = "application/json"
    c.request(method, path, body if isinstance(body, (bytes, str, type(None)))
              else json.dumps(body), headers)
    r = c.getresponse()
    text = r.read()
    c.close()
    kind = r.getheader("content-type") or ""
    SEEN.add((method, path, r.status, kind.partition(";")[0]))
    return r.status, r.headers, json.loads(text) if "json" in kind and text else text


def wish(**more):
    return {"model": MODEL, "prompt": "Hello", "max_tokens": 8, "seed": 1, **more}


def metric(name, port=None):
    page = ask("GET", "/metrics", port=port)[2].decode()
    values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", page, re.M)
    assert values, f"no metric {name}"
    return sum(map(float, values))


def until(condition, what, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


# --- routes ------------------------------------------------------------------------


@check
def document_and_routes_agree():
    document = ask("GET", "/openapi.json")[2]
    for path, ways in document["paths"].items():
        path = path.replace("{id}", MODEL)
        for method in ("get", "post"):
            body = {} if method == "post" else None
            status, headers, reply = ask(method.upper(), path, body)
            if method in ways and "101" not in ways[method]["responses"]:
                assert status == 200 or (method == "post" and status == 400), (path, status)
            else:
                assert status == 405 and method.upper() not in headers["Allow"].split(", ") or \
                    "101" in str(ways.get("get")), (path, status)
            assert headers["X-Request-Id"].startswith("req-")
    assert ask("GET", "/nothing")[0] == 404 and ask("GET", "/v1/models/x")[0] == 404


@check
def open_routes_answer():
    assert ask("GET", "/health")[2] == {"status": "ok"} and ask("GET", "/ready")[0] == 200
    assert ask("GET", "/version")[2]["version"]
    assert ask("HEAD", "/health")[2] == b""
    status = ask("GET", "/status")[2]
    assert status["ready"] and status["model"] == MODEL and len(status["memory"]) > 5
    page = ask("GET", "/")[2].decode()
    assert "<title>zigcuda" in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!data:)", page), "an external resource"


@check
def bodies_that_are_wrong():
    for body in ("", "{", "[]", "nonsense", '{"model": NaN}', '{"a": 1, "a": 2}', "[" * 100,
                 '{"model": "\xff"}'.encode("latin1"), '"\\ud800"', "{} {}"):
        status, _, reply = ask("POST", "/v1/completions", body,
                               {"content-type": "application/json"})
        assert status == 400 and set(reply["error"]) == {"message", "type", "param", "code"}, body
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0x10", "1e-1e"):
        text = json.dumps(wish())[:-1] + f', "temperature": {number}}}'
        assert ask("POST", "/v1/completions", text)[0] == 400, number
    many = json.dumps(wish(prompt=[0] * 400000))
    assert ask("POST", "/v1/completions", many)[0] in (400, 413)
    assert ask("POST", "/v1/completions", "x" * (3 << 20))[0] == 413
    assert ask("POST", "/v1/completions", "{}", {"content-type": "text/plain"})[0] == 415
    for kind in {}, {"content-type": "application/x-www-form-urlencoded"}:  # as curl -d '' has it
        status, _, reply = ask("POST", "/v1/completions", headers=kind)
        assert status == 400 and reply["error"]["code"] == "empty_body", reply
    assert ask("GET", "/health")[0] == 200


@check
def a_seed_has_the_range_of_run():
    low, high = -(1 << 63), (1 << 63) - 1
    for seed in (low, high):
        assert ask("POST", "/v1/completions", wish(seed=seed))[0] == 200, seed
    for seed in (low - 1, high + 1, 1.0):
        status, _, r = ask("POST", "/v1/completions", wish(seed=seed))
        assert status == 400 and r["error"]["param"] == "seed", r
        assert f"a whole number from {low} to {high}" in r["error"]["message"], r


@check
def loopback_is_guarded():
    for host, want in (("localhost", 200), ("127.0.0.1:99", 200), ("[::1]:8080", 200),
                       ("box.example", 200), ("evil.example", 403),
                       ("localhost.evil.example", 403)):
        assert ask("GET", "/health", headers={"Host": host})[0] == want, host
    for origin, want in (("https://app.example", 200), ("https://evil.example", 403),
                         ("null", 403), (f"http://127.0.0.1:{SERVER.port}", 200)):
        assert ask("GET", "/version", headers={"Origin": origin})[0] == want, origin
    _, headers, _ = ask("OPTIONS", "/v1/completions", headers={
        "Origin": "https://app.example", "Access-Control-Request-Method": "POST"})
    assert headers["Access-Control-Allow-Origin"] == "https://app.example"
    allowed = headers["Access-Control-Allow-Headers"].split(", ")
    assert {"authorization", "content-type", "*"} <= set(allowed), "what clients of browsers send"
    _, headers, _ = ask("GET", "/version", headers={"Origin": "https://app.example"})
    assert "Retry-After" in headers["Access-Control-Expose-Headers"]


# --- streams ------------------------------------------------------------------------


def raw(text, port=None):
    s = socket.create_connection(("127.0.0.1", port or SERVER.port), timeout=20)
    s.sendall(text)
    return s


def post(path, body):
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


@check
def who_leaves_is_cancelled():
    before = metric("zigcuda_cancelled_by_client_total")
    for i in range(40):
        s = raw(post("/v1/completions", wish(prompt=["a", "b", "c", "d"], n=8, max_tokens=200,
                                             ignore_eos=True, stream=i % 2 == 0)))
        time.sleep(0.002 * (i % 5))
        s.close()
    until(lambda: metric("zigcuda_requests_running") + metric("zigcuda_requests_waiting") == 0,
          "sequences stay")
    assert metric("zigcuda_cancelled_by_client_total") > before + 5
    free, blocks = metric("zigcuda_reply_blocks_free"), metric("zigcuda_reply_blocks")
    assert free == blocks, f"{blocks - free} reply blocks are lost"
    status = ask("GET", "/status")[2]["load"]
    assert status["pages_free"] == status["pages"]


@check
def neighbours_change_nothing():
    alone = ask("POST", "/v1/completions", wish(max_tokens=40, logprobs=2))[2]["choices"]
    got = []

    def one(i):
        more = {} if i % 4 == 0 else {"seed": i, "prompt": f"Hello {i}"}
        status, _, r = ask("POST", "/v1/completions", wish(max_tokens=40, logprobs=2, **more)
                           if more == {} else {**wish(max_tokens=40), **more})
        got.append((i, status, r))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i, status, r in got:
        assert status == 200, r
        assert i % 4 or r["choices"] == alone, "a neighbour changed the answer"


@check
def choices_share_their_prompt():
    prompt = [60 + i % 90 for i in range(100)]
    before = metric("zigcuda_prefix_hits_total")
    status, _, r = ask("POST", "/v1/completions", wish(prompt=prompt, n=5, max_tokens=3))
    assert status == 200 and r["usage"]["prompt_tokens"] == 100
    assert metric("zigcuda_prefix_hits_total") - before == 4 * 96


@check
def silent_streams_have_a_heartbeat():
    busy = raw(post("/v1/completions", wish(n=40, max_tokens=240, ignore_eos=True)))
    s = raw(post("/v1/completions", wish(stream=True, max_tokens=2)))
    text = b""
    while b"[DONE]" not in text:
        text += s.recv(65536)
    busy.close()
    # Whether a pause came depends on the machine; what came has to be SSE.
    body = text.partition(b"\r\n\r\n")[2]
    pieces = re.sub(rb"(?m)^[0-9a-f]+\r\n|\r\n", b"", body)
    for line in pieces.split(b"\n"):
        assert line == b"" or line.startswith((b"data: ", b": ")), line


@check
def refusals_of_the_transport_have_ids():
    """What no route has seen is in header, body and log like the rest, each under its own id."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    chunked = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    cases = [(400, b"GET /health HTTP/1.1\r\n\r\n", "GET /health"),
             (400, b"\x16\x03\x01\r\n", "- -"),
             (400, head + chunked + b"x\r\n", "POST /v1/completions"),
             (408, b"GET /health HTTP/1.1\r\nHo", "GET /health"),
             (408, head + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
              "POST /v1/completions"),
             (411, head + b"\r\n", "POST /v1/completions"),
             (413, head + b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n",
              "POST /v1/completions"),
             (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", "- -"),
             (415, head + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\n{",
              "POST /v1/completions"),
             (417, head + b"Expect: tea\r\nContent-Length: 1\r\n\r\n{", "POST /v1/completions"),
             (421, b"GET https://localhost/health HTTP/1.1\r\nHost: a\r\n\r\n", "GET /health"),
             (431, b"GET /health HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n", "GET /health"),
             (501, b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", "- -"),
             (505, b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", "- -")]
    seen = set()
    with server.Server(MODEL_DIR, "--server.header_time", "300ms", "--server.body_time",
                       "300ms") as s:
        for status, data, where in cases:
            with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
                c.sendall(data)
                answer = b"".join(iter(lambda: c.recv(65536), b""))
            top, _, body = answer.partition(b"\r\n\r\n")
            name = re.search(rb"\r\nX-Request-Id: (req-[0-9a-f]{16})\r\n", top + b"\r\n")
            assert top.startswith(b"HTTP/1.1 %d " % status) and name, (status, answer)
            assert set(e := json.loads(body)["error"]) == {"message", "type", "param", "code"}, e
            method, _, path = where.partition(" ")
            SEEN.add((method, path, status, "application/json"))
            line = rf"id={name[1].decode()} method={method} path={path}\S* status={status} ms=(\S+)"
            until(lambda: re.search(line, s.text()), f"no log line like {line}")
            ms = float(re.search(line, s.text())[1])
            assert ms < 5000, f"{where}: {ms} ms"
            seen.add(name[1])
        assert len(seen) == len(cases)
        refused = ask("GET", "/nothing", port=s.port)[1]["X-Request-Id"]
        assert refused != ask("GET", "/health", port=s.port)[1]["X-Request-Id"]


@check
def what_nothing_is_at_is_logged():
    """As it was asked for, and cut: a target that is one holds no byte that ends a value or line.
    What stands behind its '?' may be anything, such as a key."""
    with server.Server(MODEL_DIR) as s:
        for method, path, line in (("PUT", "/nothing?key=secret", "PUT path=/nothing"),
                                   ("DELETE", "/v1/models", "DELETE path=/v1/models"),
                                   ("GET", "/a=b%0A%22x", 'GET path="/a=b%0A%22x"'),
                                   ("GET", "/" + "a" * 5000, "GET path=/" + "a" * 99)):
            assert ask(method, path, port=s.port)[0] in (404, 405)
            until(lambda: f" method={line} status=40" in s.text(), f"no log line like {line}")
        assert raw(b'GET /"x\x1b HTTP/1.1\r\nHost: a\r\n\r\n', s.port).recv(99)[9:12] == b"400"
        until(lambda: " method=- path=- status=400" in s.text(), "no log line of what is no target")
        assert "secret" not in s.text()


@check
def messages_that_are_too_long():
    """More text than a context can hold is refused like too many tokens, whatever the template."""
    for path in ("/v1/chat/completions", "/tokenize"):
        status, _, r = ask("POST", path, {"model": MODEL, "messages": [
            {"role": "user", "content": "word " * 14000}]})
        error = r["error"]
        assert status == 400 and error["code"] == "context_length_exceeded", r
        assert error["param"] == "messages" and "prompt is too long" in error["message"], r
        for word in ("65536 bytes", "256 tokens (all that the model has)"):
            assert word in error["message"], r
        assert ".jinja" not in error["message"], r


@check
def templates_that_fail_say_where_but_no_path():
    folder = os.path.join(FOLDER.name, "refusing")
    shutil.copytree(MODEL_DIR, folder)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write("\n{{ raise_exception('roles must alternate') }}")
    with server.Server(folder) as s:
        status, _, r = ask("POST", "/v1/chat/completions", talk(model="refusing"), port=s.port)
    assert status == 400, r
    assert r["error"]["message"] == "chat_template.jinja: line 2, column 19: roles must alternate"


@check
def what_bounds_the_context_is_named():
    for flags, by in (["--model.context=64"], "model.context"), ([], "all that the model has"), \
            (["--engine.kv=30KiB"], "what fits the KV cache, engine.kv"):
        with server.Server(MODEL_DIR, *flags) as s:
            for body in (wish(prompt=[5] * 300), wish(prompt="ab" * 200), wish(max_tokens=300),
                         wish(prompt="a" * 70000)):
                status, _, r = ask("POST", "/v1/completions", body, port=s.port)
                assert status == 400 and r["error"]["code"] == "context_length_exceeded", r
                assert f" tokens ({by})" in r["error"]["message"], (flags, r)


def folder_of_words():
    """The model with a tokenizer as in Llama 2: a word has its blank, a text's first one drops."""
    path = os.path.join(FOLDER.name, "words")
    shutil.copytree(MODEL_DIR, path)
    name = os.path.join(path, "tokenizer.json")
    with open(name) as f:
        t = json.load(f)
    size, mark = len(t["model"]["vocab"]), {"pattern": {"String": " "}, "content": "\u2581"}
    words = "<s> </s> <|im_start|> <|im_end|> <unk>".split()
    words += [f"<0x{b:02X}>" for b in range(256)]
    words += ["\u2581", "a", "b", "\u2581a", "\u2581b"]
    words += [f"word{i}" for i in range(len(words), size)]
    t["model"].update(vocab={w: i for i, w in enumerate(words)}, unk_token="<unk>",
                      byte_fallback=True, merges=["\u2581 a", "\u2581 b"])
    t["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", **mark}]}
    t["pre_tokenizer"] = None
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    t["decoder"] = {"type": "Sequence", "decoders": [
        back, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    with open(name, "w") as f:
        json.dump(t, f)
    return path, words.index("\u2581a"), words.index("\u2581b")


@check
def an_answer_goes_on_in_its_prompt():
    """The blank before its first word is there, but where the answer is a text of its own."""
    path, a, b = folder_of_words()
    bias = {"model": "words", "logit_bias": {str(b): 100}, "max_tokens": 2, "temperature": 0}
    with server.Server(path) as s:
        def text(way, **more):
            status, _, r = ask("POST", way, {**bias, **more}, port=s.port)
            assert status == 200, r
            whole = r["choices"][0]
            whole = whole["text"] if "text" in whole else whole["message"]["content"]
            r = ask("POST", way, {**bias, **more, "stream": True}, port=s.port)[2].decode()
            chunks = [json.loads(e[6:])["choices"][0] for e in r.split("\n\n")[:-2]]
            assert whole == "".join(c["text"] if "text" in c else c["delta"].get("content", "")
                                    for c in chunks)
            return whole
        for prompt in ("a", "<|im_end|>a", [a], [0, a]):
            assert text("/v1/completions", prompt=prompt) == " b b"
        assert text("/v1/completions", prompt="a", echo=True) == "a b b"
        assert text("/v1/completions", prompt="a", echo=True, logprobs=0) == "a b b"
        assert text("/v1/completions", prompt=[0]) == "b b"
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        assert text("/v1/chat/completions", messages=talk) == "b b"
        assert text("/v1/chat/completions", messages=talk, continue_final_message=True) == " b b"


# --- WebSocket ------------------------------------------------------------------------


class Socket:
    def __init__(self, port=None, extra=""):
        key = base64.b64encode(os.urandom(16)).decode()
        self.s = raw((f"GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket"
                      f"\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                      f"Sec-WebSocket-Key: {key}\r\n{extra}\r\n").encode(), port)
        self.f = self.s.makefile("rb")
        assert b" 101 " in self.f.readline()
        accept = base64.b64encode(hashlib.sha1(
            (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.f.readline()
        assert accept in head

    def frame(self, first, data=b""):
        size = bytes([0x80 | len(data)]) if len(data) < 126 else \
            b"\xfe" + struct.pack(">H", len(data))
        mask = os.urandom(4)
        self.s.sendall(bytes([first]) + size + mask +
                       bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def send(self, value):
        self.frame(0x81, json.dumps(value).encode())

    def receive(self):
        first, size = self.f.read(2)
        size = struct.unpack(">H", self.f.read(2))[0] if size == 126 else size
        data = self.f.read(size)
        return json.loads(data) if first & 15 == 1 else (first & 15, data)

    def close(self):
        self.f.close()
        self.s.close()

    def answer(self):
        chunks = []
        while not chunks or chunks[-1].get("type") != "done":
            chunks.append(self.receive())
        return chunks


def talk(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8,
            "seed": 1, **more}


@check
def websocket_streams_in_turn():
    whole = ask("POST", "/v1/chat/completions", talk())[2]["choices"][0]["message"]["content"]
    w = Socket()
    for _ in range(3):
        w.send(talk())
        chunks = w.answer()
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]
                       if c["choices"])
        assert text == whole and chunks[-2]["usage"]["completion_tokens"] > 0
        assert chunks[-1]["id"] == chunks[0]["id"]
    w.send(talk(stream_options={"include_usage": True}))  # a stream though it does not say so
    assert w.answer()[-2]["usage"]["completion_tokens"] > 0
    seen = {chunks[-1]["id"]}
    for wrong, param in (({"nonsense": 1}, "nonsense"), (talk(stream=False), "stream"),
                         ({"type": "foo"}, "type"), (talk(type="chat"), "type"),
                         ({"type": "cancel", "id": "x"}, "type"), ([], None)):
        w.send(wrong)
        refusal, done = w.answer()
        assert refusal["error"]["param"] == param, refusal
        assert done["id"].startswith("chatcmpl-") and done["id"] not in seen
        seen.add(done["id"])
    w.send(talk(stream=True))
    assert "error" not in w.answer()[-2]
    w.send({"type": "cancel"})  # nothing to cancel: nothing comes
    w.send(talk(max_tokens=200, ignore_eos=True))
    w.send({"type": "cancel"})
    chunks = w.answer()
    assert chunks[-1]["type"] == "done" and len(chunks) < 200
    assert chunks[-3]["choices"][0]["finish_reason"] == "cancelled"
    w.send(talk(max_tokens=200, ignore_eos=True))
    w.send(talk())
    both = w.answer() + w.answer()  # the second is refused, unless the first was quicker
    assert all(c["error"]["code"] == "busy" for c in both if "error" in c)
    assert len({c["id"] for c in both if c.get("type") == "done"}) == 2
    w.close()
    until(lambda: metric("zigcuda_websockets") == 0, "the WebSocket stays")
    until(lambda: metric("zigcuda_requests_running") == 0, "its sequence stays")


@check
def websocket_frames_are_checked():
    """What tests/net/cases.py shows of the transport, where the real thing answers."""
    want = ask("POST", "/v1/chat/completions", talk())[2]["choices"][0]["message"]["content"]
    w, body = Socket(), json.dumps(talk()).encode()
    for i in range(len(body)):
        w.frame(0 if i else 1, body[i:i + 1])
        if i % 20 == 0:
            w.frame(0x89, b"%d" % i)
            assert w.receive() == (10, b"%d" % i)
    w.frame(0x80)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in w.answer()[:-1]
                   if c["choices"])
    assert text == want
    w.frame(0x81, b"{")
    assert w.answer()[0]["error"]["type"] == "invalid_request_error"  # and it lives on
    w.frame(0x8a, b"unasked")
    w.frame(0x88, struct.pack(">H", 1000) + b"bye")
    assert w.receive() == (8, struct.pack(">H", 1000)) and w.f.read() == b""
    w.close()
    for first, data, code in ((0x82, b"x", 1003), (0x81, b"\xff", 1007), (0x81, b"\xc3", 1007),
                              (0xc1, body, 1002), (0x83, b"", 1002), (0x8b, b"", 1002),
                              (0x80, b"x", 1002), (0x09, b"", 1002), (0x89, b"x" * 126, 1002),
                              (0x88, b"x", 1002), (0x88, b"\x03\xed", 1002),
                              (0x88, b"\x03\xe8\xff", 1007), (0x88, b"\x0f\xa0", 4000)):
        w = Socket()
        w.frame(first, data)
        assert w.receive() == (8, struct.pack(">H", code)), (first, data)
        w.close()
    w = Socket()
    w.s.sendall(b"\x81\xff" + struct.pack(">Q", 1 << 40) + b"mask")
    assert w.receive() == (8, struct.pack(">H", 1009))
    w.close()
    until(lambda: metric("zigcuda_websockets") == 0, "a WebSocket stays")


# --- keys, rates, overload -----------------------------------------------------------------------


def new_key(name):
    r = subprocess.run([*server.BINARY, "key", "new", name], capture_output=True, check=True)
    return r.stdout.decode().strip(), r.stderr.decode()


@check
def keys_are_needed():
    key, line = new_key("alice")
    other, second = new_key("bob")
    path = os.path.join(FOLDER.name, "keys")
    with open(path, "w") as f:
        f.write("# who may come in\n" + line)
    with server.Server(MODEL_DIR, "--keys.file", path, "--keys.rate", "5",
                       "--log.level", "debug") as s:
        def status(k, way="/v1/models"):
            headers = {"Authorization": f"Bearer {k}"} if k else {}
            return ask("GET", way, headers=headers, port=s.port)[0]
        assert status(None, "/health") == 200 and status(None, "/ready") == 200
        assert status(None) == 401 and status("zc-" + "0" * 64) == 401 and status(key) == 200
        assert status(key[:-1]) == 401 and status(other) == 401
        assert ask("GET", "/v1/models", headers={"Authorization": f"Basic {key}"},
                   port=s.port)[0] == 401
        document = ask("GET", "/openapi.json", None, {"Authorization": f"Bearer {key}"}, s.port)[2]
        for way, methods in document["paths"].items():
            for method in methods.keys() - {"parameters"}:
                op, at = methods[method], way.replace("{id}", MODEL)
                got = ask(method.upper(), at, None, {"Upgrade": "websocket"}, s.port)[0]
                assert (got == 401) == ("security" not in op) == ("401" in op["responses"]), way
        auth = {"Authorization": f"bearer {key}"}
        got = [ask("POST", "/v1/completions", wish(max_tokens=1), auth, s.port) for _ in range(7)]
        assert [g[0] for g in got] == [200] * 5 + [429] * 2, [g[0] for g in got]
        assert 1 <= int(got[-1][1]["Retry-After"]) <= 13
        with open(path, "a") as f:
            f.write(second)
        s.process.send_signal(1)
        until(lambda: "event=reloaded" in s.text(), "no reload")
        assert status(other) == 200
        with open(path, "w") as f:
            f.write("rubbish")
        s.process.send_signal(1)
        until(lambda: "event=reload_failed" in s.text(), "no refusal of a bad file")
        assert status(other) == 200, "a bad file locked everybody out"
        assert key not in s.text() and "key=alice" in s.text()


@check
def keys_that_go():
    """A reload moves keys in the file and takes some away: what they have begun stays theirs."""
    (alice, first), (bob, second) = new_key("alice"), new_key("bob")
    path = os.path.join(FOLDER.name, "keys")

    def keys(lines, s=None):
        with open(path, "w") as f:
            f.write(lines)
        if s:
            before = s.text().count("event=reloaded")
            s.process.send_signal(signal.SIGHUP)
            until(lambda: s.text().count("event=reloaded") > before, "no reload")

    keys(first + second)
    with server.Server(MODEL_DIR, "--keys.file", path, "--keys.requests", "1") as s:
        def ask_as(key):
            return ask("POST", "/v1/completions", wish(), {"Authorization": f"Bearer {key}"},
                       s.port)[0]
        a, b = (Socket(s.port, f"Authorization: Bearer {k}\r\n") for k in (alice, bob))
        long = talk(n=60, max_tokens=200, ignore_eos=True)
        b.send(long)
        b.receive()
        keys("# alice has left\n" + second, s)
        assert ask_as(bob) == 429, "bob's request does not count any more"
        assert "error" not in b.answer()[-2]
        a.send(talk())
        assert a.answer()[0]["error"]["code"] == "invalid_api_key"
        b.send(talk())
        assert "error" not in b.answer()[-2]
        b.send(long)
        b.receive()
        keys(first, s)
        assert ask_as(alice) == 200, "bob's request counts against alice"
        b.send({"type": "cancel"})
        b.answer()
        assert ask_as(alice) == 200 and ask_as(bob) == 401
        for way, body in (("/v1/completions", wish()), ("/tokenize", {"prompt": "a"})):
            head, rest = post(way, body).split(b"\r\n\r\n", 1)
            keys(first + second, s)
            c = raw(head + f"\r\nAuthorization: Bearer {bob}\r\nExpect: 100-continue\r\n\r\n"
                    .encode(), s.port)
            assert c.recv(4096).startswith(b"HTTP/1.1 100 "), "its head was not admitted"
            keys(first, s)
            c.sendall(rest)
            assert c.recv(4096).startswith(b"HTTP/1.1 401 "), "answered without a key"
            c.close()
        a.close()
        b.close()
        assert s.text().count("key=alice") == 2 and s.text().count("key=bob") == 3


@check
def overload_is_refused():
    with server.Server(MODEL_DIR, "--engine.slots", "1", "--engine.queue", "2") as s:
        codes = []

        def one():
            r = ask("POST", "/v1/completions", wish(max_tokens=200, ignore_eos=True), port=s.port)
            codes.append((r[0], r[1]["Retry-After"]))
        for _ in range(4):
            threads = [threading.Thread(target=one) for _ in range(12)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        assert {c for c, _ in codes} <= {200, 429} and (200, None) in codes
        assert any(c == 429 for c, _ in codes) and all(w for c, w in codes if c == 429)
        assert metric("zigcuda_refused_busy_total", s.port) == sum(c == 429 for c, _ in codes)
        status, _, r = ask("POST", "/v1/completions", wish(n=4), port=s.port)
        assert status == 400 and r["error"]["param"] == "n"


@check
def spinning_needs_cores():
    cores = sorted(os.sched_getaffinity(0))
    flags = ["--server.wait", "spin", "--server.core", str(cores[0])]
    r = subprocess.run([*server.BINARY, "serve", "--model", MODEL_DIR, *flags],
                       capture_output=True, text=True, timeout=60,
                       preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))
    assert r.returncode != 0 and "a core for each thread" in r.stderr, r.stderr
    if len(cores) == 1:
        return
    with server.Server(MODEL_DIR, *flags, "--cpu.threads", "1") as s:
        for _ in range(3):
            status, _, r = ask("POST", "/v1/completions", wish(), port=s.port)
            assert status == 200, r
            time.sleep(0.1)
        assert metric("zigcuda_submit_seconds_count", s.port) == 3


@check
def whole_replies_that_do_not_fit():
    """Refused where that is certain at the start, ended where it is later, else told at the end."""
    long = {"max_tokens": 200, "ignore_eos": True}
    many = {**talk(**long), "n": 8, "logprobs": True, "top_logprobs": 20}
    with server.Server(MODEL_DIR, "--server.body_max", "64KiB", "--server.reply_memory", "8MiB",
                       "--engine.queue", "1300") as s:
        def refused(path, body, status, code, param, said=()):
            got, headers, r = ask("POST", path, body, port=s.port)
            assert got == status and r["error"]["code"] == code, (got, str(r)[:300])
            assert r["error"]["param"] == param, r
            for word in ("server.body_max", "65536", "stream", *said):
                assert word in r["error"]["message"], r
            assert status < 500 or headers["x-should-retry"] == "false"
            line = rf"id={headers['X-Request-Id']} .* tokens_out=(\d+)"
            until(lambda: re.search(line, s.text()), f"no log line like {line}")
            return int(re.search(line, s.text())[1])

        path = "/v1/completions"
        assert refused(path, wish(prompt=["Hello"] * 10, n=128), 400, "request_too_large", "prompt",
                       ["fewer choices"]) == 0
        assert refused(path, wish(prompt=[5] * 200, n=100, echo=True, logprobs=0), 400,
                       "request_too_large", "n", ["without echo"]) == 0
        out = refused("/v1/chat/completions", many, 500, "reply_too_large", None)
        assert 8 < out < 200, f"{out} tokens were computed for nothing"
        assert refused(path, wish(**long, n=20, logprobs=5), 500, "reply_too_large", None) == 4000
        assert refused(path, wish(**long, n=20, best_of=21, logprobs=5), 500, "reply_too_large",
                       None) == 4200
        assert ask("POST", path, wish(**long, n=8), port=s.port)[0] == 200
        status, _, r = ask("POST", "/v1/chat/completions", {**many, "stream": True}, port=s.port)
        assert status == 200 and r.endswith(b"data: [DONE]\n\n") and len(r) > 1 << 20, len(r)
        free = metric("zigcuda_reply_blocks_free", s.port)
        assert free == metric("zigcuda_reply_blocks", s.port)


def switches(pid):
    """How often threads of a process have gone to sleep since they began."""
    folder, n = f"/proc/{pid}/task", 0
    for task in os.listdir(folder):
        with open(f"{folder}/{task}/status") as f:
            n += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", f.read(), re.M).group(1))
    return n


@check
def an_idle_server_sleeps():
    """Its deadlines are far away: no thread of it wakes up, though a client is connected."""
    with server.Server(MODEL_DIR) as s:
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
        c.request("POST", "/v1/completions", json.dumps(wish(stream=True)),
                  {"content-type": "application/json"})
        assert c.getresponse().read().endswith(b"data: [DONE]\n\n")
        def woken(seconds):
            before = switches(s.process.pid)
            time.sleep(seconds)
            return switches(s.process.pid) - before
        until(lambda: woken(0.5) == 0, "the workers do not go to sleep")
        assert woken(2) == 0
        before = switches(s.process.pid)
        c.request("GET", "/health")
        assert c.getresponse().status == 200
        until(lambda: switches(s.process.pid) > before, "nothing was counted")
        c.close()


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", f.read(), re.M).group(1)) << 10


@check
def locked_memory_is_what_was_planned():
    """Address space that is only reserved, and weights that were packed, are not brought in."""
    if os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != -1:
        raise server.Skip("memory to lock is limited here (ulimit -l)")
    with server.Server(MODEL_DIR) as s:
        usual = resident(s.process.pid)
    with server.Server(MODEL_DIR, "--server.lock", "on") as s:
        assert ask("POST", "/v1/completions", wish(), port=s.port)[0] == 200
        assert resident(s.process.pid) < usual + (64 << 20), resident(s.process.pid)


@check
def metrics_are_sound():
    page = ask("GET", "/metrics")[2].decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    families = [re.sub(r"_total$", "", k) if v == "counter" else k for k, v in kinds.items()]
    assert len(set(families)) == len(families), "OpenMetrics has the family without _total"
    seen = set()
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"([a-z_:A-Z0-9]+)(\{.*\})? (\S+)", line).groups()
        float(value)
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in kinds or kinds.get(base) == "histogram", line
        assert line.rpartition(" ")[0] not in seen, line
        seen.add(line.rpartition(" ")[0])
    for name in ("queue", "first_token", "inter_token", "request", "step", "host", "submit",
                 "write"):
        assert metric(f"zigcuda_{name}_seconds_count") > 0, f"{name} is never measured"
    for name in ("steps_total", "prompt_tokens_total", "output_tokens_total", "prefix_hits_total",
                 "finished_total", "http_requests_total", "cancelled_by_client_total",
                 "batch_sequences_count", "batch_tokens_count", "connections_accepted_total"):
        assert metric(f"zigcuda_{name}") > 0, f"{name} is never counted"
    for name in ("requests_running", "requests_waiting", "kv_usage_ratio", "kv_pages",
                 "slow_readers_dropped_total", "clients_gone_total"):
        assert metric(f"zigcuda_{name}") >= 0
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total",
                 "prefix_cache_hits_total", "request_success_total", "iteration_tokens_total",
                 "request_queue_time_seconds", "time_to_first_token_seconds",
                 "inter_token_latency_seconds", "e2e_request_latency_seconds"):
        assert f"vllm:{name}" in kinds, name
    assert 'status="0"' not in page, "a status that no label has"
    buckets = [int(v) for v in re.findall(
        r'^zigcuda_first_token_seconds_bucket{le="[^"]+"} (\d+)$', page, re.M)]
    assert buckets == sorted(buckets) and buckets[-1] == metric("zigcuda_first_token_seconds_count")


@check
def a_log_that_nobody_reads_holds_up_nobody():
    process = subprocess.Popen([*server.BINARY, "serve", "--model", MODEL_DIR, "--log.level=debug",
                                "--log.rate=0", "--server.listen=127.0.0.1:0"],
                               stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    log = b""
    try:
        while b"event=ready model" not in log:
            log += process.stderr.readline()
        port = int(re.search(rb"address=127.0.0.1:(\d+) ", log)[1])
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(1000):  # more lines than a pipe of 64 KiB holds
            c.request("GET", "/health")
            c.getresponse().read()
        lines, deadline = [], time.monotonic() + 30
        while not any(b"event=suppressed" in line for line in lines):
            assert time.monotonic() < deadline, lines[-3:]
            time.sleep(0.2)
            c.request("GET", "/health")
            c.getresponse().read()
            os.set_blocking(process.stderr.fileno(), False)
            lines += process.stderr.readlines()
        lost = sum(int(n) for n in re.findall(rb"suppressed lines=(\d+)", b"".join(lines)))
        logged = sum(b" path=/health " in line for line in lines)  # a few are read in halves
        assert lost > 100 and lost + logged >= 990, (lost, logged)
    finally:
        process.kill()
        process.communicate()


@check
def weights_that_cannot_be_read_are_named():
    """By one line, however many workers see it, and the signal that would have ended it anyway."""
    folder = os.path.join(FOLDER.name, "cut")
    name = os.path.join(folder, "model.safetensors")
    for threads in 1, 2, 6, 6, 6:
        shutil.copytree(MODEL_DIR, folder, dirs_exist_ok=True)
        with server.Server(folder, f"--cpu.threads={threads}", "--cpu.pin=off") as s:
            s.end = lambda: None
            os.truncate(name, 4096)
            c = raw(post("/v1/completions", wish(model="cut")), s.port)
            with contextlib.suppress(ConnectionResetError):
                assert c.recv(100) == b""
            assert s.process.wait(30) == -signal.SIGBUS, s.process.returncode
            line = f"zigcuda: {name} cannot be read any more: it was cut short"
            assert s.text().count(line) == 1 and s.text().endswith("start again\n"), s.text()
            c.close()
    with server.Server(MODEL_DIR) as s:
        s.end = lambda: None
        s.process.send_signal(signal.SIGBUS)
        assert s.process.wait(30) == -signal.SIGBUS and "cannot be read" not in s.text()


@check
def the_end_answers_what_was_asked():
    with server.Server(MODEL_DIR) as s:
        c, late = (socket.create_connection(("127.0.0.1", s.port), timeout=20) for _ in range(2))
        c.sendall(post("/v1/completions", wish(n=40, max_tokens=200, ignore_eos=True)))
        late.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n")
        until(lambda: metric("zigcuda_requests_running", s.port), "it does not begin")
        s.process.send_signal(signal.SIGTERM)
        until(lambda: "event=drain" in s.text(), "it does not drain")
        late.sendall(b"\r\n")
        answer = late.recv(100)
        assert answer.startswith(b"HTTP/1.1 503 "), (answer, s.text()[-900:])
        late.close()
        code = s.process.wait(30)
        assert code == 0, (code, s.text()[-900:])
        text = b""
        while piece := c.recv(65536):
            text += piece
        assert text.startswith(b"HTTP/1.1 200 "), (text[:300], s.text()[-900:])
        assert b'"finish_reason":"length"' in text, text[-300:]
        s.end = lambda: None


@check
def the_end_in_the_middle_is_told():
    """Whether the time to drain is over, or a second signal comes."""
    long = {"max_tokens": 220, "ignore_eos": True}

    def rest(c):
        return b"".join(iter(lambda: c.recv(65536), b""))

    for flags, why in (["--server.drain_time=0"], "server.drain_time is over"), \
            ([], "told to end at once"):
        with server.Server(MODEL_DIR, "--engine.slots=64", *flags) as s:
            whole, stream = (socket.create_connection(("127.0.0.1", s.port)) for _ in range(2))
            whole.sendall(post("/v1/completions", wish(n=60, **long)))
            stream.sendall(post("/v1/completions", wish(stream=True, **long)))
            w = Socket(s.port)
            w.send(talk(**long))
            until(lambda: metric("zigcuda_requests_running", s.port) > 61, "they do not begin")
            s.process.send_signal(signal.SIGTERM)
            until(lambda: "event=drain" in s.text(), "it does not drain")
            if not flags:
                s.process.send_signal(signal.SIGTERM)
            assert s.process.wait(30) == 0
            s.end = lambda: None
            text = rest(whole)
            assert text.startswith(b"HTTP/1.1 503 "), (text[:300], s.text()[-900:])
            text = rest(stream)
            assert b"the server has ended before" in text and b"data: [DONE]\n" in text, text[-500:]
            refusal, done = w.answer()[-2:]
            assert refusal["error"]["code"] == "not_ready" and done["type"] == "done"
            ends = [line for line in s.text().splitlines() if "path=/v1/" in line]
            assert len(ends) == 3 and all("status=503" in line for line in ends), ends
            assert not any("tokens_in=0 " in line for line in ends), ends
            assert why in s.text(), s.text()


@check
def document_tells_what_was_seen():
    """Of all the answers above each has its status and type in the document."""
    document = ask("GET", "/openapi.json")[2]
    ask("GET", "/version", headers={"If-None-Match": "*"})
    ask("GET", "/version", headers={"If-Match": "x"})
    ask("GET", "/v1/chat/completions", headers={"Upgrade": "websocket"})
    shared, paths = document["components"]["responses"], document["paths"]
    for method, path, status, kind in SEEN:
        path = re.sub("^/v1/models/.+", "/v1/models/{id}", path.partition("?")[0])
        method = {"HEAD": "get"}.get(method, method.lower())
        if path not in paths or method == "options":
            assert status in (204, 403, 404, 405) or path == "-", (method, path, status)
            continue
        ways = paths[path].get(method, paths["/health"]["get"])["responses"]  # else a 405
        assert status != 405 or method not in paths[path] or "101" in ways, (method, path)
        told = ways.get(str(status), ways["default"])
        told = shared[told["$ref"].rpartition("/")[2]] if "$ref" in told else told
        assert str(status) in ways or str(status) in told["description"], (method, path, status)
        assert kind in told.get("content", [""]), (method, path, status, kind)
    seen = {str(status) for _, _, status, _ in SEEN}
    assert set(shared) - seen <= {"503", "504", "default", "messages"}, "told, and never seen"


failed = server.run(checks)
SERVER.end()
FOLDER.cleanup()
sys.exit(failed != 0)
