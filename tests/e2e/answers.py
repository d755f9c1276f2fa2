"""Answers that have to be JSON, or to fit a schema: of models with random weights, which would say
anything else. What comes is read by jsonschema.

usage: answers.py MODEL_DIR... [--option=VALUE...]   (environment: ZIGCUDA, how to run the binary)
"""
from __future__ import annotations

import concurrent.futures
import datetime
import fractions
import ipaddress
import json
import os
import random
import sys
import uuid
from typing import Annotated, Literal

import jsonschema
import openai
import pydantic

import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

MODELS = [a for a in sys.argv[1:] if a[0] != "-"]
FLAGS = [a for a in sys.argv[1:] if a[0] == "-"]
ROUNDS = 10 if FLAGS else 150  # an emulator is slow
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


class Model:
    def __init__(self, folder=MODELS[0], *flags):
        self.server = server.Server(folder, *FLAGS, *flags)
        self.name = os.path.basename(folder.rstrip("/"))
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0,
            http_client=httpx.Client(timeout=120))

    def ask(self, schema=None, **more):
        format = {"type": "json_object"} if schema is None else {
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        return self.client.chat.completions.create(
            **{"model": self.name, "messages": [{"role": "user", "content": "Hello"}],
               "max_tokens": 120, "response_format": format} | more)

    def __enter__(self):
        return self

    def __exit__(self, *how):
        self.server.__exit__(*how)


def bounds_of(rng, kind):
    """Wide enough for a multiple of each step to be between them."""
    low = rng.choice([0, 1, -1, rng.uniform(-200, 200), rng.randint(-10**9, 10**9)])
    low = round(low, rng.choice([0, 1, 6]))
    high = low + rng.choice([1, .5, 99, 10**6]) + (kind == "integer")
    step = rng.choice([.01, .05, .125, .5, 1, 2.5, 3, 10, 60, 1e3, 604800, .002])
    steps = [("multipleOf", step)] if rng.random() < .5 else []
    high += 2 * step * len(steps)
    pairs = [(rng.choice(["minimum", "exclusiveMinimum"]), low),
             (rng.choice(["maximum", "exclusiveMaximum"]), round(high, 6))]
    if rng.random() < .3:
        pairs = rng.sample(pairs, rng.randint(1 - len(steps), 1))
    return dict(steps + pairs)


FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email"]


def pattern_of(rng, depth=0):
    """With something in it that each engine reads as its own; never one that nothing matches."""
    pieces = [".", "é", "[a-z]", "[^a-z\\s]", "\\d", "\\w", "\\s", "\\S", "\\D", "[^\\w]", "\\.",
              "\\u00e9", "[\\u20a0-\\u20bf]", "😀", '"', "\\\\", "(ab|c|)", "(?:x{2}|[yz]?)"]
    parts = [rng.choice(pieces) + rng.choice(["", "", "?", "{2}", "{1,3}", "{0,4}"])
             for _ in range(rng.randint(1, 4))]
    if depth < 2 and rng.random() < .4:
        parts.append("(" + pattern_of(rng, depth + 1) + ")")
    text = "|".join(["".join(parts)] + ["b+"] * (rng.random() < .2))
    around = ["^(?:_)$", "^(?:_)$", "^(?:_)$", "^(?:_)", "_"]
    return text if depth else rng.choice(around).replace("_", text, 1)


FORMAT_CHECKER = jsonschema.FormatChecker(["date", "email"])


def format_check(name):
    """Of texts; other values have no format."""
    return lambda is_one: FORMAT_CHECKER.checks(name, ValueError)(
        lambda value: not isinstance(value, str) or is_one(value))


@format_check("uuid")
def is_uuid(text):
    return str(uuid.UUID(text)) == text.lower()


@format_check("ipv4")
def is_ipv4(text):
    return str(ipaddress.IPv4Address(text)) == text


@format_check("date-time")
def is_date_time(text):
    return datetime.datetime.fromisoformat(text).tzinfo is not None and text[10] == "T"


@format_check("time")
def is_time(text):
    return datetime.time.fromisoformat(text).tzinfo is not None


def exact(text):
    """Floats have no 0.01 of which another one could be a multiple."""
    return json.loads(text, parse_float=fractions.Fraction)


def schema_of(rng, depth=0):
    deep = ["array", "object", "union", "one", "types", "any", "names"] if depth < 3 else []
    kind = rng.choice(["string", "integer", "number", "boolean", "null", "enum", "const", *deep])
    if kind in ("integer", "number") and rng.random() < .7:
        return {"type": kind} | bounds_of(rng, kind)
    if kind in ("integer", "number", "boolean", "null"):
        return {"type": kind}
    if kind == "string" and rng.random() < .3:
        return {"type": "string", "format": rng.choice(FORMATS)}
    if kind == "string" and rng.random() < .6:
        return {"type": "string", "pattern": pattern_of(rng)} | rng.choice([
            {}, {"minLength": 1}, {"maxLength": 30}])
    if kind == "string":
        least = rng.randint(0, 4)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 6)}
    if kind == "enum":
        values = ["a", "ab", 1, 12, None, True, 1.5, "é\"x", [1, "b"], {"k": 2}]
        return {"enum": rng.sample(values, rng.randint(1, 5))}
    if kind == "const":
        return {"const": rng.choice(["x", 3, {"q": [1]}])}
    if kind == "array":
        least = rng.randint(0, 2)
        return {"type": "array", "items": schema_of(rng, depth + 1), "minItems": least,
                "maxItems": least + rng.randint(0, 2)}
    if kind == "object":
        names = rng.sample(["a", "ab", "abc", "b", "é", '"q"', "long_name"], rng.randint(0, 4))
        return {"type": "object", "properties": {n: schema_of(rng, depth + 1) for n in names},
                "required": [n for n in names if rng.random() < .6],
                "additionalProperties": False}
    if kind == "union":
        return {"anyOf": [schema_of(rng, depth + 1) for _ in range(rng.randint(1, 4))]}
    if kind == "one":
        tags = rng.sample(["a", "ab", 1, 10, True, None], rng.randint(1, 4))
        return {"oneOf": [{"type": "object", "properties": {
            "tag": {"const": t}, "x": schema_of(rng, depth + 1)}, "required": ["tag"]}
            for t in tags] + [{"type": rng.choice(["integer", "array"])}]}
    if kind == "types":
        return {"type": rng.sample(["string", "integer", "null", "boolean"], 2), "maxLength": 3}
    return {} if kind == "any" else {"type": "object",
                                     "additionalProperties": schema_of(rng, depth + 1)}


def steps(m):
    lines = httpx.get(f"http://127.0.0.1:{m.server.port}/metrics").text.splitlines()
    return next(float(l.split()[1]) for l in lines if l.startswith("zigcuda_steps_total "))


@check
def guesses_change_no_answer():
    """Also of whom others choose beside, and where tokens are counted."""
    toy = {"type": "object", "properties": {"name": {"enum": ["red", "blue"]},
                                            "count": {"type": "integer", "minimum": 0}},
           "required": ["name", "count"], "additionalProperties": False}
    toys = {"type": "array", "items": toy, "minItems": 4}
    seeds, length = (range(1), 20) if FLAGS else (range(4), 120)

    def said(m, seed, **more):
        reply = m.ask(toys, seed=seed, max_tokens=length, logprobs=True, top_logprobs=2, **more)
        return reply.choices[0].message.content, repr(reply.choices[0].logprobs)

    with Model("image/demo", "--engine.drafts=0") as m:
        right = [said(m, seed) for seed in seeds]
        counted = said(m, 1, frequency_penalty=0.5)
    with Model("image/demo") as m:
        for seed in seeds:
            before = steps(m)
            assert said(m, seed, extra_body={"prediction": {"type": "content",
                                                            "content": right[seed][0]}}) \
                == right[seed]
            assert steps(m) - before < (1 if FLAGS else 0.85) * length, (steps(m) - before, length)
        assert said(m, 1, frequency_penalty=0.5) == counted
        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert list(pool.map(lambda seed: said(m, seed), seeds)) == right


@check
def every_answer_fits():
    """Of random schemas, with all that changes how tokens are chosen."""
    for folder in MODELS:
        rng, ended = random.Random(1), 0
        with Model(folder) as m:
            for i in range(ROUNDS):
                schema = schema_of(rng) if i % 8 else None
                more = {"temperature": rng.choice([0, 1, 2]), "seed": i, "n": rng.choice([1, 2])}
                if rng.random() < .3:
                    more |= {"top_p": .9, "extra_body": {"top_k": 20, "min_p": .01}}
                if rng.random() < .3:
                    more |= {"presence_penalty": 1, "logprobs": True, "top_logprobs": 2}
                for choice in m.ask(schema, **more).choices:
                    if choice.finish_reason == "length":
                        continue
                    assert choice.finish_reason == "stop", choice
                    jsonschema.validate(
                        exact(choice.message.content),
                        exact(json.dumps({"type": "object"} if schema is None else schema)),
                        format_checker=FORMAT_CHECKER)
                    ended += 1
        assert ended > ROUNDS / 2, f"{folder}: {ended} have ended"


@check
def answers_are_the_same_whole_streamed_and_among_others():
    schema = {"type": "array", "items": {"type": "integer"}, "maxItems": 30}
    with Model(MODELS[0]) as m:
        whole = [m.ask(schema, seed=i).choices[0].message.content for i in range(6)]
        assert len(set(whole)) > 3
        streams = [m.ask(schema, seed=i, stream=True) for i in range(6)]
        plain = m.client.chat.completions.create(
            model=m.name, messages=[{"role": "user", "content": "Hi"}], max_tokens=40, seed=1)
        texts = ["".join(c.choices[0].delta.content or "" for c in s) for s in streams]
        assert texts == whole, (texts, whole)
        again = m.client.chat.completions.create(
            model=m.name, messages=[{"role": "user", "content": "Hi"}], max_tokens=40, seed=1)
        assert plain.choices == again.choices


@check
def pydantic_models_are_read_back():
    """As the client's parse() sends them: $defs, $ref, anyOf, enum; oneOf of what has a tag."""
    class Item(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=5, description="what it is called")
        count: Annotated[int, pydantic.Field(ge=1, lt=12)] | None
        price: float = pydantic.Field(gt=0, le=99.95, multiple_of=0.05)
        code: str = pydantic.Field(pattern=r"^[A-Z]{2}-\d{3}(\.[^\s\d]{1,2})?$")
        made: datetime.date
        at: datetime.datetime
        id: uuid.UUID

    class Order(pydantic.BaseModel):
        kind: str = pydantic.Field(max_length=3)
        items: list[Item] = pydantic.Field(max_length=2)
        paid: bool

    class Leaf(pydantic.BaseModel):
        kind: Literal["leaf"]
        on: bool

    class Pair(pydantic.BaseModel):
        kind: Literal["pair", "twins"]
        parts: list[Annotated[Leaf | Pair, pydantic.Field(discriminator="kind")]] = pydantic.Field(
            max_length=2)

    class Tree(pydantic.BaseModel):
        root: Annotated[Leaf | Pair, pydantic.Field(discriminator="kind")]

    def parsed(m, model, seed):
        reply = m.client.chat.completions.parse(
            model=m.name, messages=[{"role": "user", "content": "Hello"}], seed=seed,
            response_format=model)
        assert isinstance(reply.choices[0].message.parsed, model)
        return reply.choices[0].message.parsed

    with Model("image/demo") as m:
        for seed in range(5):
            assert len(parsed(m, Order, seed).items) <= 2
            parsed(m, Tree, seed)


@check
def an_answer_ends_where_nothing_may_follow():
    with Model() as m:
        for seed in range(10):
            reply = m.ask({"enum": ["yes", "no"]}, seed=seed, extra_body={"ignore_eos": True})
            assert json.loads(reply.choices[0].message.content) in ("yes", "no")
            assert reply.choices[0].finish_reason == "stop"
        reply = m.ask({"type": "string", "minLength": 400}, max_tokens=5)
        assert reply.choices[0].finish_reason == "length"
        assert m.ask({"$ref": "#"}).choices[0].finish_reason == "length"  # nothing fits


@check
def what_can_not_be_kept_is_refused():
    def refused(m, **more):
        try:
            m.ask(**more)
        except openai.BadRequestError as e:
            return e.param, e.message
        raise AssertionError(f"taken: {more}")

    with Model() as m:
        for schema, why in (({"type": "integer", "multipleOf": 12345678.25},
                             "json_schema.schema.multipleOf: 12345678.25 has more than 9 digits"),
                            ({"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13},
                             "json_schema.schema: no multiple"),
                            ({"type": "array", "uniqueItems": True},
                             "json_schema.schema.uniqueItems"),
                            ({"oneOf": [{}, {"type": "null"}]}, "oneOf[0] and oneOf[1]"),
                            ({"type": "object", "properties": {"a": {"pattern": "x(?!y)"}}},
                             "json_schema.schema.properties.a.pattern: byte 1"),
                            ({"pattern": "^a{5000}$"}, "1024 steps"),
                            ({"anyOf": [{"not": {}}]}, "json_schema.schema.anyOf[0].not"),
                            ({"enum": ["x" * 20000]}, "16384")):
            param, message = refused(m, schema=schema)
            assert param.startswith("response_format") and why in message, (param, message)
        for format in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_object", "x": 1},
                       {"type": "json_schema", "json_schema": {"name": "x"}},
                       {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}):
            assert refused(m, response_format=format)[0].startswith("response_format"), format
        assert refused(m, extra_body={"min_tokens": 3})[0] == "min_tokens"
        assert m.ask({"type": "null"}).choices[0].message.content.strip() == "null"
    with Model(MODELS[0], "--engine.grammars", "off") as m:
        assert "engine.grammars" in refused(m)[1]


@check
def what_a_schema_leaves_no_choice_about_is_guessed():
    """Of the first answer, whose keys have never been said: it takes 0.83 of the steps without."""
    keys = [f"{word} of the {thing}" for word, thing in zip(
        ("weight", "colour", "shape", "owner", "price", "age"),
        ("blanket", "elephant", "garden", "castle", "teacher", "river"))]
    schema = {"type": "object", "required": keys,
              "properties": {key: {"type": "boolean"} for key in keys}}
    with Model("image/demo", "--engine.drafts=0") as m:
        alone = m.ask(schema, temperature=0, max_tokens=300)
    with Model("image/demo") as m:
        before = steps(m)
        guessed = m.ask(schema, temperature=0, max_tokens=300)
        took = steps(m) - before
    assert guessed.choices[0].message.content == alone.choices[0].message.content
    assert list(json.loads(guessed.choices[0].message.content)) == keys
    assert took < 0.75 * guessed.usage.completion_tokens, (took, guessed.usage)


if __name__ == "__main__":
    raise SystemExit(server.run(checks[:3] if FLAGS else checks))
