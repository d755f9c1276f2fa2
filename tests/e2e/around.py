"""`zigcuda serve` beside its surroundings: proxies, the names it is called by, its log.

usage: around.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

import server

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def ask(method, path, body=None, headers=None, port=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request(method, path, body and json.dumps(body),
              {"content-type": "application/json", **(headers or {})})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, r.headers, text


def wish(**more):
    return {"model": MODEL, "prompt": "Hello", "max_tokens": 8, "seed": 1, **more}


def until(good, what, seconds=20):
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def post(path, body):
    text = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


@check
def streams_pass_a_proxy_at_once():
    """nginx holds replies back until its buffers are full, unless it is told not to."""
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    with server.Server(MODEL_DIR) as s:
        for path, body in ("/v1/completions", wish()), ("/v1/chat/completions", chat):
            for stream in True, False:
                _, headers, _ = ask("POST", path, {**body, "stream": stream}, port=s.port)
                assert ("event-stream" in headers["Content-Type"]) == stream, headers
                assert headers["X-Accel-Buffering"] == ("no" if stream else None), headers


@check
def any_host_is_taken_on_unix_sockets():
    """No browser can be led there by DNS; pages that a proxy lets in are looked at as ever."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sock")
        with server.Server(MODEL_DIR, listen=f"127.0.0.1:0,unix:{path}") as s:
            def status(more):
                with socket.socket(socket.AF_UNIX) as c:
                    c.connect(path)
                    c.sendall(b"GET /health HTTP/1.1\r\n" + more + b"Connection: close\r\n\r\n")
                    return int(b"".join(iter(lambda: c.recv(65536), b""))[9:12])
            for host in b"localhost", b"box.example:80", b"api_backend", b"":
                assert status(b"Host: " + host + b"\r\n") == 200, host
            assert status(b"Host: box.example\r\nOrigin: https://evil.example\r\n") == 403
            assert ask("GET", "/health", headers={"Host": "box.example"}, port=s.port)[0] == 403


@check
def a_star_takes_any_host():
    with server.Server(MODEL_DIR, "--server.hosts", "box.example., *") as s:
        for host in "box.example", "evil.example:80", "localhost":
            assert ask("GET", "/health", headers={"Host": host}, port=s.port)[0] == 200, host
        assert ask("GET", "/health", headers={"Host": "a", "Origin": "http://b"},
                   port=s.port)[0] == 403, "pages of other sites need server.origins as ever"


@check
def the_log_says_why_and_who():
    """Error code, param (as harmless as it is made up), address; who left and who was dropped."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sock")
        with server.Server(MODEL_DIR, "--server.output=16KiB",
                           listen=f"127.0.0.1:0,[::1]:0,unix:{path}") as s:
            def logged(*ends):
                for end in ends:
                    until(lambda: re.search(end + r"\n", s.text()), f"no log line like {end}")

            def stream(read, kind=socket.AF_UNIX, to=path):
                with socket.socket(kind) as c:
                    c.connect(to)
                    c.sendall(post("/v1/completions", wish(
                        n=8, max_tokens=200, ignore_eos=True, logprobs=5, stream=True)))
                    read(c)
            ask("GET", "/nothing", port=s.port)
            ask("POST", "/v1/completions", wish(max_tokens=-2), port=s.port)
            ask("POST", "/v1/completions", wish(**{'x" status=200 \n': 1}), port=s.port)
            with socket.create_connection(("::1", int(s.addresses[1].rpartition(":")[2]))) as c:
                c.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                c.recv(9)
            logged(r"status=404 .*key=- peer=127.0.0.1 code=not_found",
                   r"status=400 .*peer=127.0.0.1 code=\w+ param=max_tokens",
                   r"status=400 .*peer=127.0.0.1 code=\w+ param=x\?\?status\?200\S*",
                   r"path=/v2 status=404 .*peer=::1 code=not_found")
            stream(lambda c: c.recv(99))
            logged(r"status=499 .*peer=- why=gone")
            stream(lambda c: until(lambda: "why=slow" in s.text(), "who reads nothing stays"))
            logged(r"status=499 .*peer=- why=slow_reader")
            ask("POST", "/v1/completions", wish(), port=s.port)
            logged(r"status=200 .*peer=127.0.0.1")


def exchange(port, data):
    """What comes back for these bytes: (status, head, JSON)."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as c:
        c.sendall(data)
        answer = b"".join(iter(lambda: c.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), head.decode(), json.loads(body)


@check
def paths_that_miss_say_what_was_meant():
    """A 404 as ever, and never served, but one that a person can act on."""
    chat, base = "/v1/chat/completions", "base URL ends in /v1"
    cases = [("//v1/chat/completions", f"did you mean {chat}?", base),
             ("/chat/completions", f"did you mean {chat}?", base),
             ("/completions", "did you mean /v1/completions?", base),
             ("/models", "did you mean /v1/models?", base),
             (f"/models/{MODEL}", f"did you mean /v1/models/{MODEL}?", base),
             ("/v1/v1/chat/completions", f"did you mean {chat}?", base),
             ("/v1//chat/completions", f"did you mean {chat}?", base),
             ("/api/v1/chat/completions", f"did you mean {chat}?", base),
             ("/v1/chat/completions/", f"did you mean {chat}?", base),
             ("/v1/models/", "did you mean /v1/models?", base),
             ("/v1/health", "did you mean /health?"), ("//metrics/", "did you mean /metrics?"),
             ("/v1/tokenize", "did you mean /tokenize?"),
             ("/api/chat", "Ollama's own API is not served", chat),
             ("/api/generate", "Ollama's own API is not served", chat),
             ("/v1/api/tags", "Ollama's own API is not served", chat),
             ("/embeddings", "did you mean /v1/embeddings?", base),
             ("/responses", "did you mean /v1/responses?", base),
             ("/v1/responses/resp_1", "no response is kept here", "input"),
             ("/messages", "did you mean /v1/messages?", base),
             ("/v1/messages/batches", "Anthropic's API", "count_tokens")]
    cases += [(path, "/openapi.json lists") for path in (
        "/v1", "/v1/", "//", "/nothing", "/v1/nothing", "/apiary", "/v1/embeddings2",
        "/" + "a" * 5000, "//v1/models/" + "a" * 5000, "/%76%31/models")]
    with server.Server(MODEL_DIR) as s:
        for path, *words in cases:
            for method, body in ("POST", wish()), ("GET", None):
                status, _, text = ask(method, path, body, port=s.port)
                error = json.loads(text)["error"]
                assert status == 404 and error["code"] == "not_found", (path, text)
                assert all(w in error["message"] for w in words), (path, error["message"])
                assert len(words) > 1 or "base URL" not in error["message"], error["message"]


@check
def replies_that_nothing_can_keep():
    """Longer than server.output while others have all of server.bodies: a 503 that says so, never
    half a reply, though the socket would take a part."""
    flags = "--server.bodies=1", "--server.output=16KiB"
    body = wish(n=16, max_tokens=200, ignore_eos=True, logprobs=5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sock")
        with server.Server(MODEL_DIR, *flags, listen=f"127.0.0.1:0,unix:{path}") as s:
            def whole(request):
                with socket.socket(socket.AF_UNIX) as c:
                    c.settimeout(30)
                    c.connect(path)
                    c.sendall(request)
                    r = http.client.HTTPResponse(c)
                    r.begin()
                    return r.status, r.headers, json.loads(r.read())

            upload = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
                      b"Content-Type: application/json\r\n\r\n{")
            document = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n"
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                c.sendall(upload)
                time.sleep(0.2)
                for request, where in (post("/v1/completions", body), "/v1/completions"), (
                        document, "/openapi.json"):
                    status, headers, reply = whole(request)
                    assert status == 503 and headers["Retry-After"] == "1", (status, headers)
                    error = reply["error"]
                    assert error["code"] == "bodies_full", error
                    assert "(server.bodies)" in error["message"], error
                    line = rf"path={where} status=503 .* code=bodies_full\n"
                    until(lambda: re.search(line, s.text()), "no line of the log")
                assert 'text="all server.bodies = 1 are in use; raise it"' in s.text()
                assert whole(post("/v1/completions", wish()))[0] == 200  # what is short is sent
            until(lambda: whole(document)[0] == 200, "the buffer is not given back")
            status, headers, reply = whole(post("/v1/completions", body))
            assert status == 200 and len(reply["choices"]) == 16
            assert int(headers["Content-Length"]) > 280000, headers["Content-Length"]
            # the one buffer has the request's body, and then the reply to that
            long = post("/tokenize", {"prompt": "a b " * 1000, "return_token_strs": True})
            head, _, text = long.partition(b"\r\n\r\n")
            text = text + b" " * 60000
            head = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(text), head)
            status, headers, reply = whole(head + b"\r\n\r\n" + text)
            assert status == 200 and int(headers["Content-Length"]) > 16384, (status, reply)


@check
def every_refusal_has_a_code():
    """What HTTP itself is refused with, too: in the answer, in the log and in /openapi.json."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    typed = head + b"Content-Type: application/json\r\n"
    get = b"GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    socketed = get + b"Connection: Upgrade, close\r\nSec-WebSocket-Version: 1\r\n\r\n"
    cases = [(400, b"nonsense\r\n\r\n", "invalid_http"),
             (408, b"GET / HTTP/1.1\r\n", "request_timeout"),
             (408, typed + b"Content-Length: 9\r\n\r\n{", "request_timeout"),
             (411, head + b"\r\n", "length_required"),
             (413, typed + b"Content-Length: 99999999999\r\n\r\n", "request_too_large"),
             (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", "uri_too_long"),
             (415, head + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\n{",
              "unsupported_encoding"),
             (417, head + b"Expect: tea\r\nContent-Length: 1\r\n\r\n{", "expectation_failed"),
             (421, b"GET https://localhost/ HTTP/1.1\r\nHost: a\r\n\r\n", "tls_required"),
             (426, socketed, "upgrade_required"),
             (431, b"GET / HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n", "headers_too_large"),
             (501, b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", "not_implemented"),
             (505, b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", "version_not_supported")]
    for text in "{", "nonsense", '{"a": 1, "a": 2}', "[" * 100:
        body = b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text.encode())
        cases.append((400, typed + body, "invalid_json"))
    with server.Server(MODEL_DIR, "--server.header_time=300ms", "--server.body_time=300ms") as s:
        document = ask("GET", "/openapi.json", port=s.port)[2].decode()
        for n, (status, data, code) in enumerate(cases):
            got, _, reply = exchange(s.port, data)
            assert got == status and reply["error"]["code"] == code, (status, code, reply)
            lines = r" status=%d .* code=%s\n" % (status, code)
            want = sum(c[::2] == (status, code) for c in cases[:n + 1])
            until(lambda: len(re.findall(lines, s.text())) == want, f"no line of {code}")
            assert code in document, code


def linked(folder):
    """The model, as Hugging Face's cache has it: links to files elsewhere."""
    os.makedirs(folder)
    for name in os.listdir(MODEL_DIR):
        os.symlink(os.path.abspath(os.path.join(MODEL_DIR, name)), os.path.join(folder, name))
    return folder


@check
def a_model_of_the_hubs_cache_has_its_name_there():
    revision = "0123456789abcdef0123456789abcdef01234567"
    names = {f"models--Some-Org--Model-4B/snapshots/{revision}": "Some-Org/Model-4B",
             f"models--gpt2/snapshots/{revision}": "gpt2",
             f"models--/snapshots/{revision}": revision,
             f"models--a--b/snapshots/{revision[1:]}": revision[1:],
             f"models--a--b/snapshots/{revision[1:]}G": revision[1:] + "G",
             f"models--a--b/other/{revision}": revision, f"a--b/snapshots/{revision}": revision}
    prints = set()
    with tempfile.TemporaryDirectory() as cache:
        for path, name in names.items():
            folder = linked(os.path.join(cache, path))
            quoted = name.replace("/", "%2F")
            with server.Server(folder) as s:
                for at in "", "/" + name, "/" + quoted:
                    status, _, text = ask("GET", "/v1/models" + at, port=s.port)
                    text = json.loads(text)
                    assert status == 200 and text.get("data", [text])[0]["id"] == name, text
                assert ask("GET", "/v1/models/" + revision[:9], port=s.port)[0] == 404
                assert json.loads(ask("GET", "/status", port=s.port)[2])["model"] == name
                page = ask("GET", "/metrics", port=s.port)[2].decode()
                assert f'model="{name}"' in page and f'{{model_name="{name}"}}' in page
                status, _, text = ask("POST", "/v1/completions", wish(model=name), port=s.port)
                assert status == 200 and json.loads(text)["model"] == name
                prints.add(json.loads(text)["system_fingerprint"])
                if name != revision:
                    assert ask("POST", "/v1/completions", wish(model=revision),
                               port=s.port)[0] == 404
        one = linked(os.path.join(cache, "models--gpt2/snapshots", revision[::-1]))
        link = os.path.join(cache, "link")
        os.symlink(one, link)
        with server.Server(link) as s:
            text = json.loads(ask("POST", "/v1/completions", wish(model="gpt2"), port=s.port)[2])
            assert text["system_fingerprint"] not in prints, "another revision, the same print"
        with server.Server(link, "--model.name", "mine/own") as s:
            assert ask("GET", "/v1/models/mine%2fown", port=s.port)[0] == 200
        p = subprocess.run([*server.BINARY, "plan", "--model", os.path.join(cache, "models--gpt2")],
                           capture_output=True, text=True)
        assert p.returncode == 4 and "models--gpt2/snapshots (model.dir)" in p.stderr, p


def places(server):
    """The CPUs that each thread but the first may run on, and those of the first."""
    pid, others = server.process.pid, []
    for thread in os.listdir(f"/proc/{pid}/task"):
        if int(thread) != pid:
            others.append(os.sched_getaffinity(int(thread)))
    return others, os.sched_getaffinity(pid)


@check
def workers_are_pinned_where_they_fill_the_cores():
    """Two instances with fewer would share the first cores while others are idle."""
    cores = sorted(os.sched_getaffinity(0))
    with server.Server(MODEL_DIR) as s:
        workers, mask = places(s)
    if len(workers) < len(cores):
        raise server.Skip("a quota of CPU time")
    assert mask == set(cores) and sorted(map(min, workers)) == cores, workers
    assert all(len(w) == 1 for w in workers), workers
    last = {cores[-1]}
    with server.Server(MODEL_DIR, prefix=("taskset", "-c", str(cores[-1]))) as s:
        assert places(s) == ([last], last), "the mask that was inherited"
    if len(cores) == 1:
        raise server.Skip("one core")
    few = "--cpu.threads", str(len(cores) - 1)
    with server.Server(MODEL_DIR, *few) as s:
        assert places(s)[0] == (len(cores) - 1) * [set(cores)], "fewer go where it is idle"
    with server.Server(MODEL_DIR, *few, "--cpu.pin", "on") as s:
        assert sorted(places(s)[0], key=min) == [{c} for c in cores[:-1]], "as it was asked"
    with server.Server(MODEL_DIR, "--cpu.pin", "off") as s:
        assert places(s)[0] == len(cores) * [set(cores)]


@check
def what_asks_for_nothing_is_taken():
    """Fields that clients send though they want nothing of them: the same answer as without."""
    talk = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "seed": 1}
    with server.Server(MODEL_DIR, "--engine.max_tokens", "12") as s:
        def post(path, body):
            status, _, text = ask("POST", path, body, port=s.port)
            return status, json.loads(text)
        both = [{"stop": ""}, {"stop": []}, {"stop": [""]}, {"stop": None}, {"max_tokens": -1},
                {"logit_bias": {}}, {"n": 1}, {"extra_body": {}}, {"extra_body": None},
                {"stream_options": None}, {"stream_options": {}}, {"guided_json": None},
                {"best_of": None}, {"store": None}, {"min_p": 0}, {"user": None}]
        chats = [{"max_completion_tokens": None}, {"max_completion_tokens": -1},
                 {"max_completion_tokens": -1, "max_tokens": 3}, {"modalities": ["text"]},
                 {"response_format": {"type": "text"}}, {"functions": []}, {"functions": None},
                 {"function_call": "none"}, {"store": False}, {"reasoning_effort": None},
                 {"verbosity": None}, {"verbosity": "medium"}, {"web_search_options": None},
                 {"audio": None}, {"prediction": None}, {"top_logprobs": 0}, {"top_logprobs": None}]
        texts = [{"suffix": ""}, {"suffix": None}, {"best_of": 1}, {"logprobs": False},
                 {"logprobs": None}, {"max_completion_tokens": None}, {"tools": None}]
        plain = {**wish(), "max_tokens": None}
        for path, body, lists, key in (("/v1/chat/completions", talk, both + chats, "message"),
                                       ("/v1/completions", plain, both + texts, "text")):
            _, want = post(path, body)
            assert want["usage"]["completion_tokens"] == 12, want
            for more in lists:
                status, got = post(path, {**body, **more})
                assert status == 200 and got["choices"][0][key] == want["choices"][0][key] \
                    and got["usage"]["completion_tokens"] == 12, (path, more, got)
        for field, value, word in (
                ("verbosity", "low", "medium"), ("web_search_options", {}, "leave it out"),
                ("max_tokens", -2, "-2"), ("stream_options", {"include_usage": True}, "stream"),
                ("extra_body", {"top_k": 3}, "beside"), ("num_ctx", 2048, "model.context"),
                ("repeat_penalty", 1.1, "repetition_penalty"), ("num_predict", 5, "max_tokens"),
                ("n_predict", -1, "max_tokens"), ("think", False, "chat_template_kwargs"),
                ("enable_thinking", False, "chat_template_kwargs"),
                ("thinking", {"type": "disabled"}, "chat_template_kwargs"),
                ("guided_json", {}, "response_format"),
                ("structured_outputs", {"choice": ["a"]}, "response_format"),
                ("reasoning_effort", "low", "does not read")):
            status, got = post("/v1/chat/completions", {**talk, field: value})
            assert status == 400 and got["error"]["param"] == field, (field, got)
            assert word in got["error"]["message"], got


@check
def an_effort_is_of_the_template():
    """reasoning_effort is the template's variable, or a 400."""
    with tempfile.TemporaryDirectory() as folder:
        folder = linked(os.path.join(folder, "model"))
        path = os.path.join(folder, "chat_template.jinja")
        os.remove(path)

        def served(template, *asked):
            with open(path, "w") as f:
                f.write(template)
            with server.Server(folder, "--model.name", MODEL) as s:
                for more in asked:
                    status, _, text = ask("POST", "/v1/chat/completions", {
                        "model": MODEL, "messages": [{"role": "user", "content": "Hi"}],
                        "max_tokens": 1, **more}, port=s.port)
                    yield status, json.loads(text)
        effort = {"reasoning_effort": "high"}
        kwargs = {"chat_template_kwargs": effort}
        got = list(served("a{% if reasoning_effort %} {{ reasoning_effort * 9 }}{% endif %}",
                          {}, effort, kwargs, {**effort, **kwargs}, {"reasoning_effort": 3}))
        assert [status for status, _ in got] == [200, 200, 200, 400, 400], got
        none, field, variable = (r["usage"]["prompt_tokens"] for _, r in got[:3])
        assert none < field == variable
        assert {r["error"]["param"] for _, r in got[3:]} == {"reasoning_effort"}
        for template, word in (
                ("{% set reasoning_effort = 1 %}{{ reasoning_effort }}", "leave it out"),
                ("{{ messages[0].reasoning_effort }}a", "leave it out"),
                ("a{{ enable_thinking }}", 'say "none"')):
            [(status, r)] = served(template, effort)
            assert status == 400 and r["error"]["param"] == "reasoning_effort", r
            assert word in r["error"]["message"], r
        [(status, _)] = served("no thoughts", {"reasoning_effort": "none"})
        assert status == 200, "as it is"
        [(status, r)] = served("a</think>", {"reasoning_effort": "none"})
        assert status == 400 and r["error"]["param"] == "reasoning_effort", r


@check
def bodies_as_clients_write_them():
    """A byte order mark is no part of a body; half an emoji is refused, and where it stands."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}],
                       "max_tokens": 1}).encode()
    with server.Server(MODEL_DIR) as s:
        def post(text):
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
            c.request("POST", "/v1/chat/completions", text, {"content-type": "application/json"})
            r = c.getresponse()
            return r.status, json.loads(r.read())
        bom = b"\xef\xbb\xbf"
        assert post(bom + body)[0] == 200
        for bad in bom, bom + bom + body, body + bom, b" " + bom + body:
            assert post(bad)[0] == 400, bad
        for half in rb"\ud83d", rb"\ud83d\ud83d", rb"\ude00x", rb"\ud83d\u0041", rb"\ud83d\n":
            cut = body.replace(b"Hi", b"Hi " + half)
            for text in cut, bom + cut:
                status, r = post(text)
                assert status == 400 and f"column {cut.index(half) + 1}:" in r["error"]["message"] \
                    and f"{half[:6].decode()} is half" in r["error"]["message"], r
        assert post(body.replace(b"Hi", rb"\ud83d\ude00"))[0] == 200


@check
def what_is_constant_is_read_only():
    """PT_GNU_RELRO (elf.h) as memory has it: a header alone protects nothing."""
    with open(server.BINARY[-1], "rb") as f:
        head = f.read(4096)
    at, = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", head, at + i * size) for i in range(count)]
    [relro] = [s for s in segments if s[0] == 0x6474E552]
    first, last = relro[3] & -4096, relro[3] + relro[6] & -4096
    with server.Server(MODEL_DIR) as s, open(f"/proc/{s.process.pid}/maps") as f:
        path = os.path.realpath(server.BINARY[-1])
        own = [line.split() for line in f if line.rstrip().endswith(path)]
    own = [(*(int(n, 16) for n in range_.split("-")), may) for range_, may, *_ in own]
    base = own[0][0]
    seen = [may for begin, end, may in own if begin < base + last and end > base + first]
    assert seen == ["r--p"], own


sys.exit(server.run(checks) != 0)
