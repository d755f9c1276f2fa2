"""The same request gives the same tokens and logprobs, whatever else happens: alone, in changing
batches, with its prompt cut into other chunks, with and without prefix hits and guesses.

usage: same.py MODEL_DIR [REQUESTS [FLAG...]]   (environment: ZIGCUDA, how to run the binary; FLAGs
go to every server, such as --device.kind cuda)

Every request is first answered by a server that runs one at a time without a prefix cache; then by
servers with other step sizes, all at once in random order, and once more from their prefix caches;
at last by one that has room for guesses.
"""
import concurrent.futures
import http.client
import json
import os
import random
import re
import sys
import threading
import time
import urllib.request

import server

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 60
FLAGS = sys.argv[3:]
AT_ONCE, FEW = 64, 3
TEXT = {"type": "string", "maxLength": 12}
FORMS = [{"type": "object"}, {"type": "array", "items": TEXT},
         {"type": "object", "properties": {"a": TEXT, "b": {"type": "integer"}}, "required": ["b"]},
         {"type": "string", "pattern": "^[a-z]+( [0-9]{2})*$"}]
draw = random.Random(4)
mine = threading.local()


def request(i):
    """A few shared beginnings, so that prefixes are found; every kind of sampling; some answers of
    a given form."""
    words = [str(draw.randrange(3)) * 20, "".join(draw.choice("abc def ghi.") for _ in range(90))]
    body = {"model": MODEL, "prompt": (words[0] + words[1])[:draw.randrange(1, 110)],
            "max_tokens": draw.randrange(1, 24), "logprobs": draw.randrange(0, 4), "seed": i,
            "temperature": draw.choice([0, 0, 0.7, 1.3]), "ignore_eos": True}
    if draw.randrange(3) == 0:
        body |= {"top_k": draw.randrange(1, 50), "top_p": draw.random(), "min_p": 0.01}
    if draw.randrange(4) == 0:
        body |= {"presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.2}
    if draw.randrange(3) == 0:
        body["priority"] = draw.randrange(-2, 3)
    return formed(body) if draw.randrange(4) == 0 else body


def formed(body):
    """The same as a chat, whose answer has to fit a schema."""
    top = body.pop("logprobs")
    return body | {
        "messages": [{"role": "user", "content": body.pop("prompt")}], "ignore_eos": False,
        "logprobs": top > 0, **({"top_logprobs": top} if top else {}),
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "form", "schema": draw.choice(FORMS)}}}


def ask(port, body):
    """Over the thread's own connection, which ends with the thread."""
    if not hasattr(mine, "connection"):
        mine.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    mine.connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    r = mine.connection.getresponse()
    reply = json.loads(r.read())
    assert r.status == 200, reply
    return reply


def guesses():
    """Is anything guessed? Not of a model with states, which take nothing back."""
    with open(os.path.join(MODEL_DIR, "config.json")) as f:
        text = f.read()
    return not any(s in text for s in ("linear_num_value_heads", "conv_L_cache",
                                       '"linear_attention"', '"mamba"',
                                       '"hybrid_override_pattern"'))


def answers(wishes, rounds, at_once, *flags):
    """The answers of a server with these flags, in the order of wishes, once a round; and how long
    that took in seconds."""
    got, begin = [], time.monotonic()
    with server.Server(MODEL_DIR, "--engine.queue", "4096", *FLAGS, *flags) as s:
        for _ in range(rounds):
            order = list(range(len(wishes)))
            draw.shuffle(order)
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                replies = list(pool.map(lambda i: ask(s.port, wishes[i]), order))
            got.append([r for _, r in sorted(zip(order, replies), key=lambda pair: pair[0])])
        with urllib.request.urlopen(f"http://127.0.0.1:{s.port}/metrics") as reply:
            right = re.search(rb"^zigcuda_draft_tokens_right_total (\d+)$", reply.read(), re.M)
        assert at_once != FEW or (int(right[1]) > 0) == guesses(), right
    return got, time.monotonic() - begin


def cached(replies):
    """Share of the prompt tokens that came from the prefix cache."""
    usage = [r["usage"] for r in replies]
    return (sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage) /
            sum(u["prompt_tokens"] for u in usage))


def main():
    wishes = [request(i) for i in range(REQUESTS)]
    (alone,), seconds = answers(wishes, 1, 1, "--engine.slots", "1", "--engine.prefix_cache",
                                "false", "--engine.step_tokens", "512")
    print(f"{REQUESTS} requests alone: {seconds:.1f} s")
    ways = [("64 at once, steps of 512", 2, AT_ONCE,
             ["--engine.slots", "64", "--engine.step_tokens", "512", "--engine.checkpoints",
              "256"]),
            ("64 at once, steps of 80", 1, AT_ONCE,
             ["--engine.slots", "64", "--engine.step_tokens", "80", "--engine.prefill_beside",
              "7"]),
            ("7 at once, steps of 19", 1, AT_ONCE,
             ["--engine.slots", "7", "--engine.step_tokens", "19", "--engine.prefix_cache",
              "false"]),
            ("3 at once, with guesses", 1, FEW,
             ["--engine.slots", "16", "--engine.drafts", "13"])]
    passed = failed = 0
    for name, rounds, at_once, flags in ways:
        replies, seconds = answers(wishes, rounds, at_once, *flags)
        for i, got in enumerate(replies):
            differ = [k for k in range(REQUESTS) if got[k]["choices"] != alone[k]["choices"]]
            wrong = bool(differ) or (i > 0 and not cached(got))
            what = (f"{name}, round {i + 1}: {REQUESTS - len(differ)} of {REQUESTS} the same, "
                    f"{cached(got):.0%} of their prompts cached ({seconds:.1f} s)")
            print("FAIL" if wrong else "ok  ", what)
            if differ:
                print("    first:", json.dumps(wishes[differ[0]]))
                print("    alone:", json.dumps(alone[differ[0]]["choices"])[:600])
                print("    now:  ", json.dumps(got[differ[0]]["choices"])[:600])
            passed += not wrong
            failed += wrong
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
