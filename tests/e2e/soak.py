"""Thousands of requests with random disconnects, stalls and bad bodies: nothing leaks, nothing is
allocated, and the daemon answers as before.

usage: soak.py MODEL_DIR [REQUESTS [SEED]]   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import random
import re
import socket
import sys
import threading
import time

import server

MODEL_DIR = sys.argv[1]
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
WORKERS = 12


def completion(r):
    body = {"model": MODEL, "prompt": "Hello " * r.randrange(1, 20),
            "max_tokens": r.randrange(1, 60), "stream": r.random() < 0.5,
            "n": r.choice((1, 1, 1, 2, 3))}
    if r.random() < 0.3:
        body["logprobs"] = r.randrange(6)
    if r.random() < 0.2:
        body["deadline_ms"] = r.randrange(1, 50)
    return json.dumps(body).encode()


def broken(r):
    good = completion(r)
    return r.choice((good[:r.randrange(len(good))], b"[" * 70, b"{}", b"\xff" + good, b"[]" * 999,
                     good.replace(b"max_tokens", b"max_tokns"), b'{"a":' * 40, b"1e999"))


def head(path, length):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\nConnection: close\r\n\r\n").encode()


def one(r, port, counts):
    """One request of one random kind; counts what was answered."""
    kind = r.choice(("ask", "ask", "ask", "bad", "leave", "stall", "half", "slow"))
    body = broken(r) if kind == "bad" else completion(r)
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    with s:
        text = head(r.choice(("/v1/completions", "/v1/completions", "/tokenize", "/nothing")),
                    len(body)) + body
        if kind in ("half", "stall"):
            s.sendall(text[:r.randrange(len(text))])
            time.sleep(0.05 if kind == "stall" else 0)
            return
        if kind == "slow":
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
        counts.append(reply.split(b" ", 2)[1].decode())


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    with open(f"/proc/{pid}/maps") as f:
        return rss, len(f.readlines()), len(os.listdir(f"/proc/{pid}/fd"))


def batch(port, requests, seed):
    counts, errors = [], []

    def work(i):
        r = random.Random(seed * 1000 + i)
        for _ in range(requests // WORKERS):
            try:
                one(r, port, counts)
            except (ConnectionError, socket.timeout, IndexError) as e:
                errors.append(e)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(WORKERS)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return counts, errors


def metrics(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = b""
    while piece := s.recv(65536):
        text += piece
    s.close()
    assert b"zigcuda_ready" in text, text[:300]
    return {n: float(v) for n, v in re.findall(r"^(zigcuda_\w+) (\S+)$", text.decode(), re.M)}


def soak():
    with server.Server(MODEL_DIR) as s:
        batch(s.port, 10 * WORKERS, SEED)
        before = memory(s.process.pid)
        counts, errors = batch(s.port, REQUESTS, SEED + 1)
        end = time.monotonic() + 20
        while True:
            m = metrics(s.port)
            if m["zigcuda_requests_running"] + m["zigcuda_requests_waiting"] == 0 and \
                    m["zigcuda_connections"] <= 1:
                break
            assert time.monotonic() < end, m
            time.sleep(0.05)
        after = memory(s.process.pid)
        seen = {c: counts.count(c) for c in sorted(set(counts))}
        print(f"    {REQUESTS} requests: {seen}, {len(errors)} reset; rss {before[0]} -> "
              f"{after[0]} KiB, maps {before[1]} -> {after[1]}, "
              f"descriptors {before[2]} -> {after[2]}")
        assert seen.get("200", 0) > REQUESTS / 10 and "500" not in seen, seen
        assert after[1] == before[1], "memory was mapped"
        assert abs(after[2] - before[2]) <= 1, "descriptors leak"
        assert m["zigcuda_reply_blocks"] == m["zigcuda_reply_blocks_free"], "reply blocks leak"
        assert m["zigcuda_kv_usage_ratio"] == 0, "pages leak"
        assert m["zigcuda_waiting_prompt_tokens"] == 0, "the count of waiting tokens drifts"
        assert m["zigcuda_body_buffers_used"] == 0, "body buffers leak"


sys.exit(server.run([("soak", soak)]) != 0)
