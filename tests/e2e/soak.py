"""Thousands of requests with random disconnects, stalls and bad bodies: nothing leaks, nothing is
allocated, and the daemon answers as before.

usage: soak.py MODEL_DIR [REQUESTS [SEED]] [--strict]
environment: ZIGCUDA, how to run the binary

--strict: traced by strace, no system call about memory is made, and the resident set does not grow
(a sanitizer's own memory would count).
"""
import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time

import server

STRICT = "--strict" in sys.argv
WORDS = [w for w in sys.argv[1:] if w != "--strict"]
MODEL_DIR = WORDS[0]
REQUESTS = int(WORDS[1]) if len(WORDS) > 1 else 2000
SEED = int(WORDS[2]) if len(WORDS) > 2 else 1
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
WORKERS = 12
SLOTS, QUEUE = 8, 64
FOLDER = tempfile.TemporaryDirectory()
PATIENCE_S = 0.15  # of the server, for a peer that sends or takes nothing
FLAGS = ["--engine.slots", str(SLOTS), "--engine.queue", str(QUEUE), "--server.output", "16384"]
FLAGS += [w for o in ("header_time", "body_time", "write_time")
          for w in ("--server." + o, f"{int(1000 * PATIENCE_S)}ms")]
KINDS = {"ask": 12, "two": 4, "bad": 5, "leave": 5, "half": 5, "slow": 4, "stall": 1, "deaf": 1,
         "talk": 3}


def completion(r):
    body = {"model": MODEL, "prompt": "Hello " * r.randrange(1, 20),
            "max_tokens": r.randrange(1, 60), "stream": r.random() < 0.5,
            "n": r.choice((1, 1, 1, 2, 3))}
    if r.random() < 0.3:
        body["logprobs"] = r.randrange(6)
    if r.random() < 0.2:
        body["deadline_ms"] = r.randrange(1, 50)
    if r.random() < 0.2:
        body["priority"] = r.randrange(-2, 3)
    if r.random() < 0.2:
        body.update(prompt=[body["prompt"], "Hi"], echo=True)
    return json.dumps(body).encode()


def response(r):
    return json.dumps({"model": MODEL, "input": "Hello " * r.randrange(1, 20),
                       "max_output_tokens": r.randrange(1, 60), "stream": r.random() < 0.5,
                       "metadata": {"a": "x" * r.choice((0, 9, 9000, 90000))},
                       "include": r.choice(([], ["message.output_text.logprobs"]))}).encode()


def message(r):
    return json.dumps({"model": MODEL, "max_tokens": r.randrange(1, 60), "system": "Be brief.",
                       "messages": [{"role": "user", "content": "Hello " * r.randrange(1, 20)}],
                       "stop_sequences": ["a b"], "stream": r.random() < 0.5}).encode()


OTHERS = {"/v1/responses": response, "/v1/messages": message}
LONG = json.dumps({"model": MODEL, "prompt": "Hello", "n": 8, "max_tokens": 200, "logprobs": 5,
                   "ignore_eos": True, "stream": True}).encode()


def frame(payload, first=0x81):
    n, mask = len(payload), os.urandom(4)
    size = bytes([0x80 | n]) if n < 126 else b"\xfe" + n.to_bytes(2, "big")
    return bytes([first]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def talk(r):
    """What a WebSocket at /v1/responses is told: not all of it waits for its turn, or is right."""
    text = (b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    for _ in range(r.randrange(1, 4)):
        event = {"type": r.choice(("response.create",) * 5 + ("response.steer",)), "model": MODEL,
                 "input": "Hello " * r.randrange(1, r.choice((9, 2000))),
                 "generate": r.random() < 0.7, "max_output_tokens": r.randrange(1, 9)}
        if r.random() < 0.2:
            event["previous_response_id"] = "resp_1"
        text += frame(json.dumps(event).encode()[:None if r.random() < 0.9 else 9])
    return text


def broken(r):
    good = completion(r)
    return r.choice((good[:r.randrange(len(good))], b"[" * 70, b"{}", b"\xff" + good, b"[]" * 999,
                     good.replace(b"max_tokens", b"max_tokns"), b'{"a":' * 40, b"1e999"))


def head(path, length, then="close"):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\nConnection: {then}\r\n\r\n").encode()


def one(r, port, counts):
    """One peer of one random kind; counts what was answered. two: pipelined; half: gone in the
    middle; stall: silent in the middle until the server has enough; deaf: reads nothing."""
    kind = r.choices(list(KINDS), KINDS.values())[0]
    path = r.choice(("/v1/completions", "/v1/completions", "/tokenize", "/nothing", *OTHERS))
    good = OTHERS.get(path, completion)(r)
    body = LONG if kind == "deaf" else broken(r) if kind == "bad" else good
    with socket.socket() as s:
        s.settimeout(60)
        if kind == "deaf":  # so that the kernel's buffers, whose sizes follow these, hold little
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        s.connect(("127.0.0.1", port))
        text = head(path, len(body)) + body
        if kind == "talk":
            s.sendall(talk(r))
            time.sleep(r.random() * 0.05)
            if r.random() < 0.5:
                s.sendall(frame(b"\x03\xe8", 0x88))
                while s.recv(65536):
                    pass
            return
        if kind in ("half", "stall"):
            s.sendall(text[:r.randrange(1, len(text))])
            if kind == "half":
                return
        elif kind == "deaf":
            s.sendall(head("/v1/completions", len(body)) + body)
            time.sleep(2 * PATIENCE_S)
            return
        elif kind == "two":
            s.sendall(head("/tokenize", len(body), "keep-alive") + body + text)
        elif kind == "slow":
            cut = r.randrange(len(text))
            s.sendall(text[:cut])
            time.sleep(0.01)
            s.sendall(text[cut:])
        else:
            s.sendall(text)
        if kind == "leave":
            time.sleep(r.random() * 0.02)
            return
        reply = b""
        while piece := s.recv(65536):
            reply += piece
        found = re.findall(rb"HTTP/1\.1 (\d+) ", reply)
        if kind == "stall":  # 404: refused before the body; nothing: not even a head came
            assert found in ([b"408"], [b"404"], []), reply[:200]
        else:
            assert len(found) == (2 if kind == "two" else 1), (kind, reply[:200])
        counts += [kind + " " + c.decode() for c in found]


def memory(pid):
    """Resident KiB, the mappings as text, open descriptors."""
    with open(f"/proc/{pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    with open(f"/proc/{pid}/maps") as f:
        return rss, f.read(), len(os.listdir(f"/proc/{pid}/fd"))


def batch(port, requests, seed):
    counts, errors = [], []

    def work(i):
        r = random.Random(seed * 1000 + i)
        for _ in range(requests // WORKERS):
            try:
                one(r, port, counts)
            except (OSError, AssertionError) as e:
                errors.append(e)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(WORKERS)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors, errors[:3]
    return counts


def metrics(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = b""
    while piece := s.recv(65536):
        text += piece
    s.close()
    assert b"zigcuda_ready" in text, text[:300]
    return {n: float(v) for n, v in re.findall(r"^(zigcuda_\w+) (\S+)$", text.decode(), re.M)}


def quiet(port):
    """Metrics once nothing is in work."""
    end = time.monotonic() + 20
    while True:
        m = metrics(port)
        if m["zigcuda_requests_running"] + m["zigcuda_requests_waiting"] == 0 and \
                m["zigcuda_connections"] <= 1:
            return m
        assert time.monotonic() < end, m
        time.sleep(0.05)


def whole_house(port):
    """One request that needs every slot and every place of the queue."""
    n = 8
    body = json.dumps({"model": MODEL, "prompt": ["Hello"] * ((SLOTS + QUEUE) // n), "n": n,
                       "max_tokens": 2, "ignore_eos": True}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(head("/v1/completions", len(body)) + body)
        reply = b""
        while piece := s.recv(65536):
            reply += piece
    assert reply.startswith(b"HTTP/1.1 200 "), reply[:400]
    assert len(json.loads(reply.partition(b"\r\n\r\n")[2])["choices"]) == SLOTS + QUEUE


def traced(path, since, until):
    """Lines of strace between two times."""
    with open(path) as f:
        lines = [l.split(None, 2) for l in f]
    calls = [l for l in lines if len(l) == 3 and re.match(r"\w+\(", l[2])]
    assert calls, "strace saw nothing, not even the start"
    return [l for l in calls if since <= float(l[1]) <= until]


def check(before, after, m, seen, calls):
    codes = {c.split()[1] for c in seen}
    assert codes <= {"200", "400", "404", "408", "429", "504"}, seen
    assert seen.get("ask 200", 0) > REQUESTS / 20, seen
    assert seen.get("stall 408", 0) > 0, seen
    assert m["zigcuda_slow_readers_dropped_total"] > 0, "nobody was too slow"
    assert after[1] == before[1], "memory was mapped"
    assert abs(after[2] - before[2]) <= 1, "descriptors leak"
    assert m["zigcuda_reply_blocks"] == m["zigcuda_reply_blocks_free"], "reply blocks leak"
    assert m["zigcuda_conversation_blocks"] == m["zigcuda_conversation_blocks_free"], "they leak"
    assert m["zigcuda_kv_usage_ratio"] == 0, "pages leak"
    assert m["zigcuda_waiting_prompt_tokens"] == 0, "the count of waiting tokens drifts"
    assert m["zigcuda_body_buffers_used"] == 0, "body buffers leak"
    if STRICT:
        assert after[0] <= before[0] + 64, f"resident memory grows: {before[0]} to {after[0]} KiB"
        assert not calls, f"system calls about memory: {calls[:3]}"


def soak():
    trace = os.path.join(FOLDER.name, "trace")
    # -D: the server stays our child; the filter stops it at these calls only.
    prefix = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-ttt", "-e", "trace=%memory",
              "-o", trace] if STRICT else []
    with server.Server(MODEL_DIR, *FLAGS, prefix=prefix) as s:
        batch(s.port, 10 * WORKERS, SEED)
        quiet(s.port)
        whole_house(s.port)
        quiet(s.port)
        before, since = memory(s.process.pid), time.time()
        counts = batch(s.port, REQUESTS, SEED + 1)
        m = quiet(s.port)
        whole_house(s.port)
        after, until = memory(s.process.pid), time.time()
    seen = {c: counts.count(c) for c in sorted(set(counts))}
    print(f"    {REQUESTS} peers: {seen}; rss {before[0]} -> {after[0]} KiB, "
          f"descriptors {before[2]} -> {after[2]}")
    check(before, after, m, seen, traced(trace, since, until) if STRICT else [])


sys.exit(server.run([("soak", soak)]) != 0)
