#!/usr/bin/env python3
"""What answers of a given form cost: milliseconds a token of N requests at once that are free
(text), lists of texts, orders by one schema, orders by schemas of their own, and free ones and such
half and half. All ask greedily for as many tokens; whole replies, so that reading them costs
nothing. What a model of made-up weights (folder.py) says is noise, but it has to fit all the same.

usage: forms.py FOLDER [--streams=1,8,32] [--tokens=N] [--rounds=N] [-- FLAG OF THE SERVER ...]
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


FORMS = {"text": lambda _: None, "texts": lambda _: schema(TEXTS),
         "order": lambda _: schema(ORDER), "own": own}


def ask(port, model, tokens, number, form, out):
    form = form(number)
    body = {"model": model, "max_tokens": tokens, "temperature": 0, "ignore_eos": form is None,
            "messages": [{"role": "user", "content": f"Order number {number}, as it came in."}]}
    if form:
        body["response_format"] = form
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    begin = time.perf_counter()
    c.request("POST", "/v1/chat/completions", json.dumps(body),
              {"Content-Type": "application/json"})
    reply = json.loads(c.getresponse().read())
    c.close()
    assert "usage" in reply, reply
    out.append((time.perf_counter() - begin) * 1e3 / reply["usage"]["completion_tokens"])


def together(port, model, tokens, forms, number):
    """Milliseconds a token of each kind of request, all begun at once."""
    out = {name: [] for name in forms}
    threads = [threading.Thread(target=ask, args=(port, model, tokens, f"{number}.{i}",
                                                  FORMS[name], out[name]))
               for i, name in enumerate(forms)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {name: statistics.mean(times) for name, times in out.items()}


def main():
    args = sys.argv[1:]
    flags = args[args.index("--") + 1:] if "--" in args else []
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args(args[:args.index("--")] if flags else args)
    streams = [int(n) for n in a.streams.split(",")]
    print("| at once | text | texts | order | own | half text | half own |\n|" + "---|" * 7)
    with server.Server(a.model, "--engine.slots", str(max(streams)), "--server.bodies", "128",
                       "--model.name", "forms", *flags) as s:
        together(s.port, "forms", 8, ["text", "order"], "first")
        for n in streams:
            kinds = [["text"] * n, ["texts"] * n, ["order"] * n, ["own"] * n,
                     ["text", "own"] * (n // 2)]
            got = {i: [together(s.port, "forms", a.tokens, kind, f"{n}.{i}.{r}")
                       for r in range(a.rounds)] for i, kind in enumerate(kinds) if kind}
            cells = [(i, kinds[i][0]) for i in range(4)] + [(4, "text"), (4, "own")]
            print(f"| {n} | " + " | ".join(
                "{:.3f} ({:.3f}-{:.3f})".format(statistics.median(v), min(v), max(v))
                for i, name in cells for v in [[g[name] for g in got.get(i, [])] or [0]])
                + " |", flush=True)


main()
