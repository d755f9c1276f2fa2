#!/usr/bin/env python3
"""What kinds of requests cost: milliseconds a token of N at once that are of one kind, or half of
them of another. All ask greedily for as many tokens unless their kind says otherwise; whole
replies, so that reading them costs nothing. What a model of made-up weights (folder.py) says is
noise, but it has to fit a given form all the same.

usage: kinds.py FOLDER [--kinds=text,texts,order,own,text+own] [--streams=1,8,32] [--tokens=N]
                [--rounds=N] [-- FLAG OF THE SERVER ...]
environment: ZIGCUDA, how to run the binary
"""
import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
import server  # noqa: E402

TEXT = {"type": "string", "minLength": 20, "maxLength": 60}
LINE = {"type": "object", "required": ["name", "unit", "amount", "price", "tags"],
        "additionalProperties": False,
        "properties": {"name": TEXT, "unit": {"enum": ["kg", "l", "m", "piece"]},
                       "amount": {"type": "integer"}, "price": {"type": "number"},
                       "tags": {"type": "array", "items": TEXT, "maxItems": 3}}}
ORDER = {"type": "object", "required": ["customer", "date", "lines", "paid", "remark"],
         "additionalProperties": False,
         "properties": {"customer": TEXT, "date": {"type": "string", "format": "date"},
                        "lines": {"type": "array", "items": LINE, "minItems": 8},
                        "paid": {"type": "boolean"}, "remark": {"type": "string"}}}
TEXTS = {"type": "array", "minItems": 100, "items": {"type": "string", "minLength": 20}}


def schema(of):
    return {"type": "json_schema", "json_schema": {"name": "form", "strict": True, "schema": of}}


def own(number):
    """No two requests have the same."""
    members = {**ORDER["properties"], f"field {number}": {"type": "integer"}}
    return schema({**ORDER, "properties": members})


FREE = {"ignore_eos": True}
KINDS = {  # the fields of a request beyond those that all have, by its number
    "text": lambda _: FREE,
    "texts": lambda _: {"response_format": schema(TEXTS)},  # a list of strings
    "order": lambda _: {"response_format": schema(ORDER)},  # a schema that all share
    "own": lambda n: {"response_format": own(n)},  # a schema of each request's own
    "object": lambda _: {"response_format": {"type": "json_object"}},
    "warm": lambda _: {**FREE, "temperature": 1},
    "top_p": lambda _: {**FREE, "temperature": 1, "top_p": 0.9},
    "top_k": lambda _: {**FREE, "temperature": 1, "top_k": 40},
    "min_p": lambda _: {**FREE, "temperature": 1, "min_p": 0.05},
    "typical": lambda _: {**FREE, "temperature": 1, "typical_p": 0.9},
    "penalties": lambda _: {**FREE, "frequency_penalty": 0.5, "presence_penalty": 0.5,
                            "repetition_penalty": 1.1},
    "bias": lambda _: {**FREE, "logit_bias": {str(100 + 7 * i): -100 for i in range(300)}},
    "logprobs": lambda _: {**FREE, "logprobs": True},
    "top": lambda _: {**FREE, "logprobs": True, "top_logprobs": 20},
    "stops": lambda _: {**FREE, "stop": ["\n\nno such text", "###none", "</never>", "stop here"]},
}


def ask(port, model, tokens, number, kind, out):
    body = {"model": model, "max_tokens": tokens, "temperature": 0,
            "messages": [{"role": "user", "content": f"Order number {number}, as it came in."}],
            **KINDS[kind](number)}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    begin = time.perf_counter()
    c.request("POST", "/v1/chat/completions", json.dumps(body),
              {"Content-Type": "application/json"})
    reply = json.loads(c.getresponse().read())
    c.close()
    assert "usage" in reply, reply
    out.append((time.perf_counter() - begin) * 1e3 / reply["usage"]["completion_tokens"])


def together(port, model, tokens, kinds, number):
    """Milliseconds a token of each kind of request, all begun at once."""
    out = {kind: [] for kind in kinds}
    threads = [threading.Thread(target=ask, args=(port, model, tokens, f"{number}.{i}", kind,
                                                  out[kind]))
               for i, kind in enumerate(kinds)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {kind: statistics.mean(times) for kind, times in out.items()}


def measured(port, words, n, tokens, rounds):
    """A cell: n requests of the kinds in `words`, as many of each."""
    kinds = words.split("+")
    got = [together(port, "kinds", tokens, kinds * max(1, n // len(kinds)), f"{n}.{words}.{r}")
           for r in range(rounds)]
    return ", ".join(f"{statistics.median(v):.3f} ({min(v):.3f}-{max(v):.3f})"
                     for kind in kinds for v in [[g[kind] for g in got]])


def main():
    args = sys.argv[1:]
    flags = args[args.index("--") + 1:] if "--" in args else []
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("--kinds", default="text,texts,order,own,text+own")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args(args[:args.index("--")] if flags else args)
    streams, cells = [int(n) for n in a.streams.split(",")], a.kinds.split(",")
    print("| at once | " + " | ".join(cells) + " |\n|" + "---|" * (1 + len(cells)))
    with server.Server(a.model, "--engine.slots", str(max(streams)), "--server.bodies", "256",
                       "--model.name", "kinds", *flags) as s:
        together(s.port, "kinds", 8, ["text", "order"], "first")
        for n in streams:
            print(f"| {n} | " + " | ".join(measured(s.port, words, n, a.tokens, a.rounds)
                                           for words in cells) + " |", flush=True)


main()
