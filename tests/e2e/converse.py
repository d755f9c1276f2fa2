"""WebSockets at /v1/responses, by the OpenAI client and by raw frames against `zigcuda serve`: a
small model whose text is noise, and one that writes what a script says.

usage: converse.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import jsonschema
import openai
from openai.lib.responses_websocket import ResponsesWebSocketLimits, ResponsesWebSocketSession
import websockets.exceptions

import scripted
import server

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
TEMPLATE = """{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}{%- for m in messages %}{{ m.role }}:
{%- for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}]
{%- endfor %}{{ m.tool_call_id }} {{ m.content }}
{% endfor %}{{ messages[-1].content }}{# <tool_call> #}"""
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "%s"}}</tool_call>'
SCRIPTS = {"two": "I ask twice.\n" + CALL % "A" + "\n" + CALL % "B",
           "plain": "Grüße, and good bye.", "quote": 'He said: "no\\yes" </b>\n\tand é.'}
LONG = dict(max_output_tokens=120, ignore_eos=True)
UPGRADE = (b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
           b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
LIMITS = ResponsesWebSocketLimits(max_lanes=2, max_events_per_lane=999, max_events=999,
                                  max_bytes_per_lane=1 << 24, max_bytes=1 << 24,
                                  max_response_bytes=None)
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


SERVER = server.Server(MODEL_DIR)
scripted.make(FOLDER.name, TEMPLATE, SCRIPTS)
SCRIPTED = server.Server(FOLDER.name)
NAMES = {SERVER: MODEL, SCRIPTED: os.path.basename(FOLDER.name)}


def client_of(at, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{at.port}/v1", api_key=key, max_retries=0)


def post(at, body):
    request = urllib.request.Request(f"http://127.0.0.1:{at.port}/v1/responses",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode()


def metric(at, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{at.port}/metrics", timeout=20) as page:
        return next(float(l.split()[-1]) for l in page.read().decode().splitlines()
                    if l.startswith(name + " "))


def until(true, what):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Talk:
    """One WebSocket of the client, and what is asked in all its requests."""

    def __init__(self, at=SERVER, **wish):
        self.at = at
        self.wish = {"model": NAMES.get(at, MODEL), "max_output_tokens": 3, "temperature": 0,
                     **wish}
        self.c = client_of(at).responses.connect(
            websocket_connection_options={"max_size": None}).enter()

    def send(self, event):
        self.c.send_raw(event if isinstance(event, str) else json.dumps(event))

    def ask(self, input=None, **more):
        """All events of one request; more: its fields."""
        fields = {"type": "response.create", **self.wish, **more}
        if input is not None:
            fields["input"] = input
        self.send(fields)
        return self.events()

    def events(self):
        seen = [self.c.recv()]
        while seen[-1].type not in ("response.completed", "response.incomplete", "response.failed",
                                    "error"):
            seen.append(self.c.recv())
        if seen[-1].type != "error":
            assert [e.sequence_number for e in seen] == list(range(len(seen)))
        return seen

    def response(self, input=None, **more):
        last = self.ask(input, **more)[-1]
        assert last.type != "error", last
        return last.response

    def refused(self, event, code, param=None, status=400):
        """What is refused leaves the WebSocket as it was."""
        self.send(event)
        e = self.c.recv()
        assert (e.type, e.status) == ("error", status), e
        assert (e.error.code, e.error.param) == (code, param), e
        return e.error.message

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.close()


def said(response):
    return [(i.content[0].text,) if i.type == "message" else (i.name, i.arguments)
            for i in response.output]


def given(response):
    """The output, as it goes back in the input of who sends all of it."""
    return [i.to_dict() for i in response.output]


def same(a, b):
    """But for ids, times, and what was found in the cache."""
    assert said(a) == said(b), (said(a), said(b))
    assert a.status == b.status and a.usage.total_tokens == b.usage.total_tokens, (a, b)
    assert a.usage.input_tokens == b.usage.input_tokens, (a.usage, b.usage)
    a, b = a.to_dict(), b.to_dict()
    for d in a, b:
        for key in ("id", "created_at", "output", "usage", "previous_response_id"):
            del d[key]
    assert a == b, (a, b)


def whole(at, **body):
    return openai.types.responses.Response.model_validate_json(post(at, body))


def frame(payload, first=0x81):
    mask, n = os.urandom(4), len(payload)
    size = bytes([0x80 | n]) if n < 126 else b"\xfe" + n.to_bytes(2, "big")
    return bytes([first]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def read_frame(f):
    first, n = f.read(2)
    n = int.from_bytes(f.read(2 if n == 126 else 8), "big") if n > 125 else n
    return first & 15, f.read(n)


def connect(port, upgrade=b"", buffered=None):
    s = socket.socket()
    s.settimeout(60)
    if buffered:  # the kernel's buffers hold little
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffered)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
    s.connect(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(upgrade)
    return s


def read_events(f):
    """Behind the head of the upgrade's reply, until one ends a response."""
    assert b" 101 " in f.readline()
    while f.readline() != b"\r\n":
        pass
    got = []
    while not got or got[-1]["type"] not in ("response.incomplete", "error"):
        opcode, payload = read_frame(f)
        assert opcode == 1, (opcode, payload)
        got.append(json.loads(payload))
    return got


@check
def turns_say_what_the_whole_conversation_says():
    user = {"role": "user", "content": [{"type": "input_text", "text": "\"é\"\n"}]}
    for wish in (dict(temperature=0), dict(temperature=1.0, seed=3, instructions="Be brief."),
                 dict(top_p=0.9, temperature=0.8, seed=5, max_output_tokens=5)):
        with Talk(**wish) as t:
            items, previous = [], {}
            for new in "Hello there", [user], [user, {"role": "user", "content": "Go"}], "So":
                items += new if isinstance(new, list) else [{"role": "user", "content": new}]
                r = t.response(new, **previous)
                assert r.previous_response_id == previous.get("previous_response_id")
                same(r, whole(t.at, input=items, **t.wish))
                assert not previous or r.usage.input_tokens_details.cached_tokens > 0, r.usage
                items += given(r)
                previous = {"previous_response_id": r.id}


@check
def fields_are_of_one_request():
    with Talk(SCRIPTED) as t:
        r = t.response("Hi", instructions="Be brief.", tools=[WEATHER], metadata={"a": "b"})
        second = t.response("<|plain|>", previous_response_id=r.id)
        assert second.instructions is None and second.tools == [] and second.metadata == {}
        items = [{"role": "user", "content": "Hi"}, *given(r),
                 {"role": "user", "content": "<|plain|>"}]
        same(second, whole(t.at, input=items, **t.wish))


@check
def turns_with_calls():
    with Talk(SCRIPTED, tools=[WEATHER], max_output_tokens=900) as t:
        r = t.response("<|two|>", include=["message.output_text.logprobs"], top_logprobs=2)
        assert said(r) == [("I ask twice.",), ("get_weather", '{"city": "A"}'),
                           ("get_weather", '{"city": "B"}')], said(r)
        assert r.output[0].content[0].logprobs
        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "<|quote|>"}
                   for c in r.output[1:]]
        second = t.response(results, previous_response_id=r.id)
        items = [{"role": "user", "content": "<|two|>"}, *given(r), *results]
        same(second, whole(t.at, input=items, **t.wish))
        assert said(second) == [(SCRIPTS["quote"],)]
        items += [*given(second), {"role": "user", "content": "<|plain|>"}]
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
        third = t.response([reasoning, items[-1]], previous_response_id=second.id)
        same(third, whole(t.at, input=items, **t.wish))
        assert said(third) == [(SCRIPTS["plain"],)]
        cut = t.response("<|two|>", max_output_tokens=12)
        assert cut.status == "incomplete"


@check
def events_are_those_of_http():
    def plain(event):
        text = event if isinstance(event, str) else json.dumps(event.to_dict())
        v = json.loads(text, object_hook=lambda d: {
            k: v for k, v in d.items() if k not in ("id", "item_id", "created_at", "call_id",
                                                    "cached_tokens")})
        return v
    for more in {}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}:
        with Talk(SCRIPTED, tools=[WEATHER], max_output_tokens=900, metadata={"a": "b"},
                  **more) as t:
            got = [plain(e) for e in t.ask("<|two|>", stream=True)]
            stream = post(t.at, {"input": "<|two|>", **t.wish, "stream": True})
            want = [plain(l[6:]) for l in stream.splitlines() if l.startswith("data: {")]
            assert got == want, next((g, w) for g, w in zip(got, want) if g != w)


@check
def a_prompt_can_be_prepared():
    text = "A long beginning. " * 6
    with Talk() as t:
        events = t.ask(text, generate=False, max_output_tokens=99, min_tokens=7)
        r = events[-1].response
        assert [e.type for e in events] == ["response.created", "response.in_progress",
                                            "response.completed"]
        assert (r.status, r.output, r.usage.output_tokens) == ("completed", [], 0), r
        assert r.incomplete_details is None and r.usage.input_tokens > 30
        for input, more in (("More", []), ([], [])):
            begun = t.response(text, generate=False)
            r = t.response(input, previous_response_id=begun.id)
            items = [{"role": "user", "content": text}]
            items += [{"role": "user", "content": input}] if input else []
            same(r, whole(t.at, input=items, **t.wish))
            assert r.usage.input_tokens_details.cached_tokens >= begun.usage.input_tokens - 31
        begun = t.response("a", generate=False)
        same(t.response(previous_response_id=begun.id), whole(t.at, input="a", **t.wish))
        same(t.response(text, generate=True), whole(t.at, input=text, **t.wish))


@check
def only_the_newest_is_there():
    with Talk() as t, Talk() as other:
        message = {"type": "response.create", **t.wish, "input": "Hi"}
        lost = "previous_response_not_found"
        assert "has none" in t.refused({**message, "previous_response_id": "resp_1"}, lost,
                                       "previous_response_id")
        first = t.response("Hello")
        second = t.response("Go on", previous_response_id=first.id)
        for id in first.id, "resp_1", second.id + "0", second.id[:-1]:
            assert second.id in t.refused({**message, "previous_response_id": id}, lost,
                                          "previous_response_id")
        other.refused({**message, "previous_response_id": second.id}, lost, "previous_response_id")
        # What was refused has changed nothing, and an empty id asks for nothing.
        t.refused({**message, "previous_response_id": second.id, "top_p": 7}, "invalid_value",
                  "top_p")
        third = t.response("Now", previous_response_id=second.id)
        items = []
        for text, r in (("Hello", first), ("Go on", second), ("Now", third)):
            items += [{"role": "user", "content": text}]
            if r is third:
                same(r, whole(t.at, input=items, **t.wish))
            items += given(r)
        for none in None, "":
            r = t.response("Hello", previous_response_id=none)
            same(r, first)
            assert r.previous_response_id is None
        t.refused({**message, "previous_response_id": third.id}, lost, "previous_response_id")


@check
def what_is_wrong_is_named():
    with Talk() as t:
        good = {"type": "response.create", **t.wish, "input": "Hi"}
        for text in "{", "", '{"a": 1, "a": 2}', '{"type": "response.create"} x':
            t.refused(text, "invalid_json")
        for text in "[]", "7", '"response.create"', "null":
            t.refused(text, "invalid_type")
        for type in None, 1, {}:
            t.refused({**good, "type": type}, "missing_required_parameter", "type")
        t.refused({k: v for k, v in good.items() if k != "type"}, "missing_required_parameter",
                  "type")
        for type in "response.cancel", "session.update", "cancel", "":
            assert "close the WebSocket" in t.refused({**good, "type": type}, "invalid_value",
                                                      "type")
        for code, param, more in (
                ("unknown_parameter", "nonsense", {"nonsense": 1}),
                ("unknown_parameter", "response", {"response": {"input": "Hi"}}),
                ("unsupported_parameter", "stream_id", {"stream_id": "a"}),
                ("unsupported_value", "stream", {"stream": False}),
                ("unsupported_value", "store", {"store": True}),
                ("unsupported_parameter", "background", {"background": True}),
                ("unsupported_parameter", "conversation", {"conversation": "c"}),
                ("unsupported_parameter", "prompt_cache_options",
                 {"prompt_cache_options": {"prewarm": True}}),
                ("invalid_type", "generate", {"generate": "no"}),
                ("invalid_type", "previous_response_id", {"previous_response_id": 1}),
                ("invalid_type", "input", {"input": []}),
                ("missing_required_parameter", "input", {"input": None}),
                ("missing_required_parameter", "model", {"model": None}),
                ("invalid_value", "input[1].role", {"input": [
                    {"role": "user", "content": "a"}, {"role": "nobody", "content": "a"}]}),
                ("context_length_exceeded", "input", {"input": "word " * 5000})):
            t.refused({**good, **more}, code, param)
        t.refused({**good, "model": "other"}, "model_not_found", "model", 404)
        # What was asked before is told apart from what is new.
        r = t.response("Hello")
        for item in {"role": "nobody", "content": "a"}, {"type": "item_reference", "id": r.id}:
            param = "input[0]." + ("role" if "role" in item else "type")
            t.refused({**good, "previous_response_id": r.id, "input": [item]}, "invalid_value",
                      param)
        assert t.response("Go on", previous_response_id=r.id, store=False, stream=True,
                          background=False, stream_id=None, user="me").status
    log = SERVER.text()
    line = [l for l in log.splitlines() if "param=stream_id" in l][-1]
    assert "path=/v1/responses" in line and "status=400" in line and "method=GET" in line, line


@check
def broken_arguments_are_gone_on_from():
    """A call that was cut off is in the prompt with what there is of it, as over HTTP."""
    with Talk(SCRIPTED, tools=[WEATHER]) as t:
        for tokens in range(2, 60):
            r = t.response("<|two|>", max_output_tokens=tokens)
            if r.output[-1].type == "function_call":
                break
        assert r.status == "incomplete" and r.output[-1].arguments != '{"city": "A"}', r
        try:
            json.loads(r.output[-1].arguments or "{}")
            raise server.Skip("the script was cut before its arguments")
        except json.JSONDecodeError:
            pass
        assert t.response([{"type": "function_call_output", "call_id": r.output[-1].call_id,
                            "output": "<|two|>"}], previous_response_id=r.id,
                          max_output_tokens=2).status == "incomplete"


@check
def one_at_a_time():
    with Talk() as t:
        message = {"type": "response.create", **t.wish, "input": "Hi"}
        t.send({**message, **LONG})
        t.send(message)
        t.send("{")
        t.send({"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"})
        seen = [t.c.recv()]
        while seen[-1].type not in ("response.steer.failed", "response.incomplete"):
            seen.append(t.c.recv())
        steer = seen[-1]
        errors = [e.error.code for e in seen if e.type == "error"]
        assert errors == ["busy", "invalid_json"], errors
        assert steer.error.code == "steering_not_supported" and steer.steer.input == "Stop"
        assert steer.steer.previous_response_id == "resp_1"
        while seen[-1].type != "response.incomplete":
            seen.append(t.c.recv())
        numbers = [e.sequence_number for e in seen if e.type != "error"]
        assert numbers == list(range(len(numbers))), numbers
        t.send({"type": "response.steer", "input": ["x" * 300000]})
        back = t.c.recv()
        assert back.steer.input == ["x" * 300000] and back.sequence_number == 0
        r = t.response("Hello")
        assert t.response("Go on", previous_response_id=r.id).output


@check
def who_leaves_is_cancelled():
    before = metric(SERVER, "zigcuda_cancelled_by_client_total")
    for end in (lambda t: t.c.close(), lambda t: t.c._connection.socket.shutdown(2)):
        t = Talk()
        t.send({"type": "response.create", **t.wish, **LONG, "input": "Hi"})
        assert t.c.recv().type == "response.created"
        end(t)
        until(lambda: metric(SERVER, "zigcuda_requests_running") == 0, "its sequence stays")
    if metric(SERVER, "zigcuda_cancelled_by_client_total") == before:
        raise server.Skip("the machine was faster than who left")
    assert "why=gone" in SERVER.text()
    until(lambda: metric(SERVER, "zigcuda_websockets") == 0, "a WebSocket stays")
    assert metric(SERVER, "zigcuda_conversation_blocks") == \
        metric(SERVER, "zigcuda_conversation_blocks_free")


@check
def what_fails_is_gone():
    lost, param = "previous_response_not_found", "previous_response_id"
    with Talk() as t:
        message = {"type": "response.create", **t.wish, "input": "Hi"}
        for deadline in [1, 2, 3, 4, 6, 8] * 5:
            first = t.response("Hello")
            last = t.ask("Hi", previous_response_id=first.id, deadline_ms=deadline, **LONG)[-1]
            if last.type == "error":  # refused, as it would come too late: then nothing is lost
                assert last.error.code == "deadline_exceeded", last
                assert t.response("Hi", previous_response_id=first.id).output
            elif last.type == "response.failed":
                assert last.response.status == "failed"
                assert last.response.error.code == "deadline_exceeded"
                for id in first.id, last.response.id:
                    assert "has failed" in t.refused({**message, param: id}, lost, param)
                assert t.response("Hello").output_text == first.output_text
                return
    raise server.Skip("the machine was faster than every deadline")


@check
def memory_is_bounded():
    """Those that rested longest make room; who is too long is told so."""
    flags = ("--server.conversation_memory", "65536", "--server.body_max", "65536",
             "--engine.queue", "1")
    with server.Server(MODEL_DIR, *flags) as small, contextlib.ExitStack() as stack:
        blocks = metric(small, "zigcuda_conversation_blocks")
        with Talk(small) as t:  # reasoning takes no room
            t.response([{"type": "reasoning", "id": "x" * 30000}, {"role": "user", "content": "a"}])
            assert metric(small, "zigcuda_conversation_blocks_free") == blocks - 1
        # Arguments of a call, which this template does not tell to the model.
        big = [{"type": "function_call", "call_id": "c", "name": "f",
                "arguments": json.dumps({"a": "x" * 20000})}, {"role": "user", "content": "Hi"}]
        talks = [stack.enter_context(Talk(small)) for _ in range(6)]
        message = {"type": "response.create", **talks[0].wish, "input": "Go on"}
        newest = [t.response(big) for t in talks]
        fits = 6 - int(metric(small, "zigcuda_conversations_lost_total"))
        assert 1 < fits < 6 and 20 * fits <= blocks, (fits, blocks)
        for t, r in zip(talks[:-fits], newest):
            assert "server.conversation_memory" in t.refused(
                {**message, "previous_response_id": r.id}, "previous_response_not_found",
                "previous_response_id")
        items = [*big, None, {"role": "user", "content": "Go on"}]
        for t, r in zip(talks[-fits:], newest[-fits:]):
            again = t.response("Go on", previous_response_id=r.id)
            items[2:-1] = given(r)
            same(again, whole(small, input=items, **t.wish))
        # A body's length is the limit of what is kept and asked together.
        big[0]["arguments"] = json.dumps({"a": "x" * 40000})
        r = talks[0].response(big)
        assert "server.body_max" in talks[0].refused(
            {**message, "input": big, "previous_response_id": r.id}, "request_too_large", "input",
            413)
        assert talks[0].response("Go on", previous_response_id=r.id).output
    with server.Server(MODEL_DIR, "--server.conversation_memory", "1", "--engine.queue", "1",
                       "--engine.slots", "1", "--engine.step_tokens", "8") as tiny, \
            Talk(tiny) as t:
        r = t.response(big)
        assert "no room" in t.refused({**message, "previous_response_id": r.id},
                                      "previous_response_not_found", "previous_response_id")
        r = t.response("Hi")
        assert t.response("Hi", previous_response_id=r.id).output


@check
def long_ends_reach_the_client():
    with server.Server(MODEL_DIR, "--server.output", "16384") as small, Talk(small) as t:
        r = t.response("Hello", include=["message.output_text.logprobs"], top_logprobs=20, **LONG)
        assert len(r.output[0].content[0].logprobs) == 120
        with connect(small.port, UPGRADE, 2048) as s, s.makefile("rb") as f:
            s.sendall(frame(json.dumps({"type": "response.create", **t.wish, "top_logprobs": 20,
                                        "include": ["message.output_text.logprobs"],
                                        "max_output_tokens": 30, "input": "Hi"}).encode()))
            time.sleep(1)
            last = read_events(f)[-1]["response"]
            assert len(last["output"][0]["content"][0]["logprobs"]) == 30
        until(lambda: metric(small, "zigcuda_body_buffers_used") == 0, "a buffer stays")
        t.refused({"type": "response.create", **t.wish, "previous_response_id": r.id,
                   "input": "word " * 999}, "context_length_exceeded", "input")
    with server.Server(MODEL_DIR, "--server.body_max", "65536") as small, Talk(small) as t:
        last = t.ask("Hello", include=["message.output_text.logprobs"], top_logprobs=20, **LONG)[-1]
        assert last.type == "response.failed" and last.response.error.code == "reply_too_large"
        assert t.response("Hello").output


@check
def keys_are_needed():
    made = subprocess.run([*server.BINARY, "key", "new", "alice"], capture_output=True, check=True)
    path = os.path.join(FOLDER.name, "keys")
    with open(path, "wb") as f:
        f.write(made.stderr)
    key = made.stdout.decode().strip()
    with server.Server(MODEL_DIR, "--keys.file", path, "--keys.requests", "1") as s:
        try:
            client_of(s).responses.connect().enter()
            raise AssertionError("it came in without a key")
        except websockets.exceptions.InvalidStatus as e:
            assert e.response.status_code == 401
        connections = [client_of(s, key).responses.connect().enter() for _ in range(2)]
        event = {"type": "response.create", "model": MODEL, "input": "Hi", **LONG}
        for c in connections:
            c.send(event)  # the second is one too many, unless the first was quicker
        ends = []
        for c in connections:
            last = next(e for e in c if e.type in ("error", "response.incomplete"))
            ends.append(last.type)
            assert last.type != "error" or last.status == 429, last
            c.close()
        assert ends[0] == "response.incomplete", ends
        assert "key=alice" in s.text()


@check
def sessions_of_the_client():
    with client_of(SCRIPTED).responses.connect() as connection, \
            ResponsesWebSocketSession(connection, limits=LIMITS) as session:
        lane, wish = session.default, dict(model=NAMES[SCRIPTED], temperature=0)
        lane.send({"type": "response.create", "input": "<|quote|>", "generate": False, **wish})
        begun = lane.get_final_response(timeout=30)
        lane.send({"type": "response.create", "input": [], "previous_response_id": begun.id,
                   **wish})
        r = lane.get_final_response(timeout=30)
        assert r.output_text == SCRIPTS["quote"], r
        lane.send({"type": "response.create", "input": "<|plain|>", "previous_response_id": r.id,
                   **wish})
        assert lane.get_final_response(timeout=30).output_text == SCRIPTS["plain"]

    async def talk():
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{SCRIPTED.port}/v1", api_key="none")
        async with client, client.responses.connect() as connection:
            await connection.response.create(input="<|plain|>", **wish)
            text = ""
            async for event in connection:
                text += event.delta if event.type == "response.output_text.delta" else ""
                if event.type == "response.completed":
                    return text
    assert asyncio.run(talk()) == SCRIPTS["plain"]


@check
def frames_in_any_pieces():
    """A short exchange, cut at every offset, and its message in two fragments at every offset."""
    message = json.dumps({"type": "response.create", "model": NAMES[SCRIPTED], "temperature": 0,
                          "max_output_tokens": 2, "input": "<|plain|>"}).encode()
    want = None

    def exchange(*pieces):
        nonlocal want
        with connect(SCRIPTED.port) as s:
            for i, piece in enumerate(pieces):
                if i:
                    time.sleep(0.002)
                s.sendall(piece)
            with s.makefile("rb") as f:
                got = read_events(f)
                s.sendall(frame(b"\x03\xe8", 0x88))
                assert read_frame(f) == (8, b"\x03\xe8") and f.read() == b""
        shown = [(e["type"], e.get("delta")) for e in got]
        want = want or shown
        assert shown == want and len(shown) > 6, shown
    data = UPGRADE + frame(message)
    exchange(data)
    for cut in range(1, len(data)):
        exchange(data[:cut], data[cut:])
    for cut in range(len(message) + 1):
        exchange(UPGRADE + frame(message[:cut], 1) + frame(b"ping", 0x8a) +
                 frame(message[cut:], 0x80))


@check
def the_document_has_it():
    with urllib.request.urlopen(f"http://127.0.0.1:{SCRIPTED.port}/openapi.json", timeout=20) as r:
        document = json.load(r)
    schema = {**document, "$ref": "#/components/schemas/ResponseCreate"}
    fits = jsonschema.Draft202012Validator(schema).is_valid
    with Talk(SCRIPTED) as t:
        good = {"type": "response.create", **t.wish, "input": "<|plain|>"}
        assert fits(good) and t.response("<|plain|>").output
        for field, value, may in (("type", "response.cancel", False), ("generate", False, True),
                                  ("generate", "no", False), ("stream", True, True),
                                  ("stream", False, False), ("store", True, False),
                                  ("stream_id", "a", False), ("stream_id", None, True),
                                  ("background", True, False), ("nonsense", 1, False),
                                  ("nonsense", None, True), ("previous_response_id", None, True),
                                  ("previous_response_id", 1, False), ("tools", [WEATHER], True),
                                  ("input", "", True), ("input", 7, False)):
            event = {**good, field: value}
            assert fits(event) == may, event
            t.send(event)
            assert (t.events()[-1].type != "error") == may, event
    assert "websocket" in json.dumps(document["paths"]["/v1/responses"]["get"]).lower()


failed = server.run(checks)
SERVER.end()
SCRIPTED.end()
FOLDER.cleanup()
sys.exit(failed != 0)
