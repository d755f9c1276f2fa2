#!/usr/bin/env python3
"""A server that is asked by CLIENTS at once, each of which asks again as soon as it has its answer:
prompts of random token ids (nothing is cached), answers of so many tokens, streamed. Prints, for
each --beside (engine.prefill_beside), requests and tokens a second, the time to the first token,
and the gaps between tokens that a reader sees.

usage: load.py FOLDER [--clients=32] [--requests=128] [--prompt=1000] [--answer=128]
               [--beside=64,256] [-- FLAG OF THE SERVER ...]
environment: ZIGCUDA, how to run the binary
"""
import argparse
import itertools
import json
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
import server  # noqa: E402


def stream(port, body):
    """Seconds until the first token, and between those that follow."""
    text = json.dumps(body).encode()
    head = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n").encode()
    times, rest = [time.perf_counter()], b""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(head + text)
        while piece := s.recv(1 << 16):
            now = time.perf_counter()
            rest += piece
            n = rest.count(b'"text":')
            rest = rest[rest.rfind(b'"text":') + 7:] if n else rest
            times += [now] * n
    assert len(times) > 2, rest[-300:]
    return [b - a for a, b in itertools.pairwise(times)]


def client(port, numbers, args, first, gaps):
    for number in numbers:
        draw = random.Random(number)
        prompt = [draw.randrange(3, args.ids) for _ in range(args.prompt)]
        got = stream(port, {"model": "load", "prompt": prompt, "max_tokens": args.answer,
                            "ignore_eos": True, "temperature": 0, "stream": True})
        first.append(got[0])
        gaps += got[1:]


def percent(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] * 1e3


def load(args, beside, flags):
    with server.Server(args.model, "--engine.slots", str(args.clients), "--model.name", "load",
                       "--engine.prefill_beside", str(beside), "--engine.drafts", "0",
                       *flags) as s:
        numbers, first, gaps = iter(range(args.requests)), [], []
        begin = time.perf_counter()
        threads = [threading.Thread(target=client, args=(s.port, numbers, args, first, gaps))
                   for _ in range(args.clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        seconds = time.perf_counter() - begin
    print(f"| {beside} | {len(first) / seconds:.2f} | "
          f"{len(first) * (args.prompt + args.answer) / seconds:.0f} | "
          + " | ".join(f"{percent(values, q):.1f}" for values, q in (
              (first, 0.5), (first, 0.99), (gaps, 0.5), (gaps, 0.9), (gaps, 0.99), (gaps, 1)))
          + " |", flush=True)


def main():
    words = sys.argv[1:]
    flags = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    for name, value in (("clients", 32), ("requests", 128), ("prompt", 1000), ("answer", 128),
                        ("ids", 4000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--beside", default="64,256")
    args = parser.parse_args(words[:words.index("--")] if flags else words)
    print("| prefill_beside | requests/s | tokens/s, read and written | first p50, ms | p99 | "
          "gap p50 | p90 | p99 | most |\n|" + "---|" * 9)
    for beside in args.beside.split(","):
        load(args, int(beside), flags)


main()
