"""Requests without max_tokens take KV pages as they go on: in a cache that holds one context and a
half, six of them are answered beside each other, each as alone.

usage: pages.py MODEL_DIR [FLAG...]   (environment: ZIGCUDA, how to run the binary; FLAGs go to
every server, such as --cuda.library; the model's context is 256, a page of its cache 4 KiB)
"""
import concurrent.futures
import http.client
import json
import re
import sys

import server

MODEL_DIR, *FLAGS = sys.argv[1:]
CUDA = any(f.startswith("--cuda.library") for f in FLAGS)
WISHES = [{"model": "pages", "prompt": f"Number {i}.", "temperature": 0, "ignore_eos": True,
           "logprobs": 1} for i in range(6)]


def ask(port, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    c.request(method, path, json.dumps(body) if body else None,
              {"content-type": "application/json"} if body else {})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    assert r.status == 200, text
    return text


def answers(at_once, *flags):
    """What each is answered, and how many were in slots at most."""
    most = 0
    with server.Server(MODEL_DIR, "--model.name", "pages", "--engine.slots", "6", *FLAGS,
                       *flags) as s:
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            got = [pool.submit(ask, s.port, "POST", "/v1/completions", w) for w in WISHES]
            while not all(g.done() for g in got):
                page = ask(s.port, "GET", "/metrics")
                most = max(most, int(re.search(r"^zigcuda_requests_running (\d+)", page, re.M)[1]))
    return [json.loads(g.result())["choices"] for g in got], most


def a_small_cache_serves_many():
    alone, _ = answers(1)
    for drafts in ("5",) if CUDA else ("0", "5"):
        beside, running = answers(6, "--engine.kv", "96KiB", "--engine.drafts", drafts)
        assert beside == alone and running > 3, (running, drafts)


sys.exit(server.run([("a_small_cache_serves_many", a_small_cache_serves_many)]))
