"""POST /v1/responses, by the OpenAI client against `zigcuda serve`: a small model whose text is
noise, and models that write what a script says.

usage: responses.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import socket
import sys
import tempfile
import time

import openai
import pydantic

import scripted
import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
LOGPROBS = ["message.output_text.logprobs"]
# The roles and what was said, with calls and results; the last message says which script.
TEMPLATE = """{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}{%- for m in messages %}{{ m.role }}:
{%- for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}
{{- c.function.arguments.INVALID_JSON }}]
{%- endfor %}{{ m.tool_call_id }} {{ m.content }}
{% endfor %}{{ messages[-1].content }}{{ reasoning_effort }}{# <tool_call> #}"""
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather in a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "%s"}}</tool_call>'
LONG = json.dumps({"text": "".join(f"line {i}: \"{i * 7919}\" é\n" for i in range(40))})
SCRIPTS = {
    "one": "\n\n" + CALL % "Zürich",
    "two": "I ask twice.\n" + CALL % "A" + "\n" + CALL % "B",
    "between": "First. " + CALL % "Oslo" + " Then, a < b.",
    "none": "No tool for <tool> that, nor <tool_call> this; a < b.",
    "long": f'<tool_call>{{"name": "write", "arguments": {LONG}}}</tool_call>',
    "json": '{"name": "Ada", "age": 36}',
    "plain": "Grüße, and good bye.",
}
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


SERVER = server.Server(MODEL_DIR)
os.mkdir(os.path.join(FOLDER.name, "scripted"))
scripted.make(os.path.join(FOLDER.name, "scripted"), TEMPLATE, SCRIPTS)
SCRIPTED = server.Server(os.path.join(FOLDER.name, "scripted"))


def client_of(at):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{at.port}/v1", api_key="none", max_retries=0,
                         http_client=httpx.Client(timeout=60))


NOISE, TOLD = client_of(SERVER), client_of(SCRIPTED)


def ask(input="Hello", client=NOISE, **more):
    extra = {k: more.pop(k) for k in ("seed", "ignore_eos", "min_tokens", "deadline_ms")
             if k in more}
    more.setdefault("max_output_tokens", 12)
    return client.responses.create(model=MODEL if client is NOISE else "scripted", input=input,
                                   extra_body=extra, **more)


def tell(script, **more):
    more = {"max_output_tokens": 900, "temperature": 0, "tools": [WEATHER]} | more
    return ask(more.pop("input", f"<|{script}|>"), TOLD, **more)


def items(response):
    """What is said, without the ids."""
    return [(i.content[0].text,) if i.type == "message" else (i.name, i.arguments)
            for i in response.output]


def joined(stream):
    """The events of a stream, put together, and held against what its end says."""
    built, numbers, seen = {}, [], []
    for e in stream:
        numbers.append(e.sequence_number)
        seen.append(e.type)
        kind = e.type.removeprefix("response.")
        if kind == "output_item.added":
            assert e.output_index == len(built) and e.item.status == "in_progress"
            built[e.output_index] = {"id": e.item.id, "said": "", "logprobs": [], "open": True}
        elif kind.endswith(".delta"):
            item = built[e.output_index]
            assert item["open"] and item["id"] == e.item_id and len(built) == e.output_index + 1
            item["said"] += e.delta
            item["logprobs"] += getattr(e, "logprobs", None) or []
        elif kind == "output_text.done":
            item = built[e.output_index]
            assert e.text == item["said"] and e.item_id == item["id"]
            assert [t.token for t in e.logprobs] == [t.token for t in item["logprobs"]]
        elif kind == "content_part.done":
            assert e.part.text == built[e.output_index]["said"] and e.part.annotations == []
        elif kind == "function_call_arguments.done":
            assert e.arguments == built[e.output_index]["said"]
        elif kind == "output_item.done":
            item = built[e.output_index]
            said = e.item.content[0].text if e.item.type == "message" else e.item.arguments
            assert e.item.id == item["id"] and said == item["said"]
            item["open"], item["done"] = False, e.item
    assert numbers == list(range(len(numbers))), numbers
    assert seen[:2] == ["response.created", "response.in_progress"], seen
    assert [i["done"] for i in built.values()] == e.response.output, e
    assert seen[-1] == "response." + e.response.status
    return e.response


def both(script, **more):
    """Whole and streamed say the same but for ids."""
    whole, streamed = tell(script, **more), joined(tell(script, stream=True, **more))
    assert items(whole) == items(streamed), (items(whole), items(streamed))
    assert (whole.status, whole.usage.output_tokens) == (
        streamed.status, streamed.usage.output_tokens)
    calls = [i.call_id for r in (whole, streamed) for i in r.output if i.type == "function_call"]
    ids = [i.id for r in (whole, streamed) for i in r.output]
    assert len(set(calls)) == len(calls) and all(len(c) == 9 and c.isalnum() for c in calls)
    assert len(set(ids)) == len(ids) and whole.id != streamed.id
    return items(whole), whole.status


@check
def shape_of_a_response():
    r = ask(temperature=0, instructions="Be brief.", metadata={"a": "b"}, top_p=0.5, user="me",
            safety_identifier="s", prompt_cache_key="k", service_tier="auto", store=False,
            truncation="auto", parallel_tool_calls=False, text={"format": {"type": "text"}})
    assert r.object == "response" and r.id.startswith("resp_") and r.model == MODEL
    assert (r.instructions, r.metadata, r.top_p, r.temperature) == ("Be brief.", {"a": "b"}, 0.5, 0)
    assert (r.user, r.safety_identifier, r.prompt_cache_key) == ("me", "s", "k")
    assert r.parallel_tool_calls is False and r.tool_choice == "auto" and r.tools == []
    assert r.text.format.type == "text" and r.max_output_tokens == 12 and r.error is None
    assert r.truncation == "auto" and ask().truncation == "disabled"
    assert r.to_dict()["store"] is False and r.previous_response_id is None
    message, = r.output
    part, = message.content
    assert (message.type, message.role, part.type) == ("message", "assistant", "output_text")
    assert part.annotations == [] and part.logprobs == [] and r.output_text == part.text
    u = r.usage
    assert u.total_tokens == u.input_tokens + u.output_tokens and u.output_tokens <= 12
    assert u.input_tokens_details.cached_tokens >= 0
    assert u.output_tokens_details.reasoning_tokens == 0
    assert ask(temperature=0).usage.input_tokens < u.input_tokens


@check
def it_says_what_a_chat_says():
    for seed in range(4):
        wish = dict(temperature=1.0, top_p=0.9, extra_body={"seed": seed})
        chat = NOISE.chat.completions.create(
            model=MODEL, messages=[{"role": "system", "content": "S"},
                                   {"role": "user", "content": "Hello"}], max_tokens=20, **wish)
        wish.pop("extra_body")
        r = ask(instructions="S", max_output_tokens=20, seed=seed, **wish)
        assert r.output_text == chat.choices[0].message.content
        assert r.usage.input_tokens == chat.usage.prompt_tokens
        assert (r.status == "completed") == (chat.choices[0].finish_reason == "stop")
        s = joined(ask(instructions="S", max_output_tokens=20, seed=seed, stream=True, **wish))
        assert s.output_text == r.output_text and s.usage.output_tokens == r.usage.output_tokens


@check
def ends():
    r = ask(max_output_tokens=3, ignore_eos=True)
    assert (r.status, r.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert r.output[0].status == "incomplete" and r.usage.output_tokens == 3
    r = joined(ask(max_output_tokens=3, ignore_eos=True, stream=True))
    assert (r.status, r.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    r = tell("plain")
    assert r.status == "completed" and r.incomplete_details is None
    assert r.output[0].status == "completed" and r.output_text == SCRIPTS["plain"]
    nothing = tell("", input="</s>", tools=openai.NOT_GIVEN)  # its next token is not a script's
    assert len(nothing.output) == 1


@check
def logprobs_are_those_of_a_chat():
    chat = NOISE.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}],
                                         max_tokens=12, logprobs=True, top_logprobs=3,
                                         temperature=0)
    want = [(e.token, e.logprob, e.bytes, [t.token for t in e.top_logprobs])
            for e in chat.choices[0].logprobs.content]
    wish = dict(input="Hi", temperature=0, include=LOGPROBS, top_logprobs=3)
    whole, streamed = ask(**wish), joined(ask(stream=True, **wish))
    for r in whole, streamed:
        got = [(e.token, e.logprob, e.bytes, [t.token for t in e.top_logprobs])
               for e in r.output[0].content[0].logprobs]
        assert got == want, (got, want)
    assert ask(input="Hi", temperature=0).output[0].content[0].logprobs == []
    for stream in False, True:  # those of calls are not told
        r = tell("between", include=LOGPROBS, stream=stream)
        texts = [i.content[0] for i in (joined(r) if stream else r).output if i.type == "message"]
        for text in texts:
            said = "".join(e.token for e in text.logprobs)
            assert text.text.strip() in said and "get_weather" not in said, (text.text, said)


@check
def calls_come_whole_and_streamed():
    assert both("one") == ([("get_weather", '{"city": "Zürich"}')], "completed")
    two = [("get_weather", '{"city": "A"}'), ("get_weather", '{"city": "B"}')]
    assert both("two") == ([("I ask twice.",), *two], "completed"), both("two")
    assert both("two", parallel_tool_calls=False)[0] == [("I ask twice.",), two[0]]
    between = both("between")[0]
    assert [len(i) for i in between] == [1, 2, 1] and between[2][0].endswith("a < b."), between
    assert both("none")[0] == [(SCRIPTS["none"],)]
    said, status = both("long")
    assert said == [("write", LONG)] and json.loads(said[0][1]) == json.loads(LONG)
    said, status = both("long", max_output_tokens=40)
    assert status == "incomplete" and LONG.startswith(said[0][1]) and said[0][1]
    assert both("one", tools=[])[0] == both("one", tool_choice="none")[0]
    assert both("one", tools=openai.NOT_GIVEN)[0] == [(SCRIPTS["one"],)]


@check
def calls_that_are_demanded_come():
    time = {"type": "function", "name": "get_time", "strict": True, "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}}
    named = {"type": "function", "name": "get_time"}
    for choice in "required", named, {"type": "allowed_tools", "mode": "required",
                                      "tools": [named]}:
        tools = [time] if choice == "required" else [WEATHER, time]
        said, status = both("plain", tools=tools, tool_choice=choice)
        assert status == "completed" and said[0][0] == "get_time", said
        assert json.loads(said[0][1])["zone"] in ("UTC", "CET")
    r = tell("plain", tools=[time], tool_choice="required")
    assert r.tools[0].name == "get_time" and r.tool_choice == "required"
    odd = {**time, "parameters": {"type": "object", "properties": {"n": {"not": {}}}}}
    assert "tools[0].parameters.properties.n.not" in refused("tools", tools=[odd])


@check
def a_turn_goes_back_as_it_came():
    for script in "between", "two":
        first = tell(script, include=LOGPROBS)
        turn = [{"role": "user", "content": f"<|{script}|>"}, *first.to_dict()["output"],
                *[{"type": "function_call_output", "call_id": i.call_id, "output": "<|plain|>"}
                  for i in first.output if i.type == "function_call"],
                {"type": "reasoning", "id": "r", "summary": []}]
        assert items(tell("", input=turn)) == [(SCRIPTS["plain"],)]
    # As a chat it would be one assistant message with both calls, and two results.
    calls = [i for i in first.output if i.type == "function_call"]
    chat = [{"role": "user", "content": "<|two|>"},
            {"role": "assistant", "content": first.output_text, "tool_calls": [
                {"id": c.call_id, "type": "function",
                 "function": {"name": c.name, "arguments": c.arguments}} for c in calls]},
            *[{"role": "tool", "tool_call_id": c.call_id, "content": "<|plain|>"} for c in calls]]
    tools = [{"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}]
    same = TOLD.chat.completions.create(model="scripted", messages=chat, tools=tools, max_tokens=9)
    assert tell("", input=turn).usage.input_tokens == same.usage.prompt_tokens
    # One that was cut off is told to the template by a name for it.
    def told(arguments):
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
        output = {"type": "function_call_output", "call_id": "c", "output": "<|plain|>"}
        return tell("", input=[turn[0], call, output]).usage.input_tokens
    for cut in '{"city": "C', '{"city": "C", "city": "D"}', "no":
        assert told(cut) == told(json.dumps({"INVALID_JSON": cut})) != told("{}"), cut


@check
def input_of_every_kind():
    wish = dict(max_output_tokens=8, tools=openai.NOT_GIVEN, temperature=0)
    part = {"type": "input_text", "text": "<|plain|>"}
    for input in ("<|plain|>", [{"role": "user", "content": "<|plain|>"}],
                  [{"type": "message", "role": "developer", "content": [part]}],
                  [{"role": "system", "content": ""}, {"role": "user", "content": [part]}],
                  [{"role": "user", "content": "a", "id": "x", "status": "completed"},
                   {"role": "assistant", "content": [{"type": "output_text", "text": "b",
                                                      "annotations": [], "logprobs": []}]},
                   {"role": "user", "content": [{"type": "input_text", "text": "a"}, part]}],
                  [{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
                   {"type": "function_call_output", "call_id": "c", "output": [part]}]):
        said = tell("", input=input, **wish).output_text
        assert SCRIPTS["plain"].startswith(said) and said, (input, said)


@check
def tokens_are_counted():
    def count(**more):
        said = NOISE.responses.input_tokens.count(**more)
        assert said.object == "response.input_tokens", said
        return said.input_tokens
    wish = dict(input="How many are these?", instructions="Count.")
    n = count(model=MODEL, **wish)
    assert n == ask(max_output_tokens=1, **wish).usage.input_tokens == count(**wish), n
    assert count(input="How many are these?") < n
    wrong = [({"model": "other", **wish}, 404, "model"), ({}, 400, "input"),
             ({"input": 5}, 400, "input"), ({**wish, "extra_body": {"top": 5}}, 400, "top")]
    for more, status, param in wrong:
        try:
            count(**more)
            raise AssertionError(f"{more} was counted")
        except openai.APIStatusError as e:
            assert (e.status_code, e.param) == (status, param), (more, e)


@check
def formats():
    class Person(pydantic.BaseModel):
        name: str
        age: int
    assert TOLD.responses.parse(model="scripted", input="<|json|>", text_format=Person,
                                temperature=0).output_parsed == Person(name="Ada", age=36)
    with TOLD.responses.stream(model="scripted", input="<|json|>", text_format=Person,
                               temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert json.loads(text) and final.output_parsed == Person(name="Ada", age=36)
    for tools in openai.NOT_GIVEN, [WEATHER]:
        r = tell("json", tools=tools, text={"format": {"type": "json_object"}})
        assert json.loads(r.output_text) == {"name": "Ada", "age": 36}
        assert r.text.format.type == "json_object"


def refused(param, status=400, client=TOLD, input="<|one|>", **more):
    fields = {"model": "scripted", "input": input, **more}
    r = client._client.post(str(client.base_url) + "responses", json=fields)
    e = r.json().get("error", {})
    assert r.status_code == status and e["param"] == param, (param, r.status_code, r.text[:300])
    assert set(e) == {"message", "type", "param", "code"} and e["message"]
    return e["message"]


@check
def every_wrong_field_is_named():
    function = {**WEATHER, "type": "function"}
    for param, more in (
            ("temperature", {"temperature": 2.5}), ("top_p", {"top_p": 0}),
            ("max_output_tokens", {"max_output_tokens": 0}),
            ("max_output_tokens", {"max_output_tokens": "many"}),
            ("max_output_tokens", {"max_output_tokens": 10 ** 6}),
            ("top_logprobs", {"top_logprobs": 21, "include": LOGPROBS}),
            ("top_logprobs", {"top_logprobs": 2}), ("include", {"include": ["file_search"]}),
            ("include", {"include": "x"}), ("include", {"include": [1]}),
            ("stream", {"stream": "yes"}), ("instructions", {"instructions": 1}),
            ("stream_options", {"stream_options": {"include_usage": True}}),
            ("store", {"store": True}), ("background", {"background": True}),
            ("previous_response_id", {"previous_response_id": "resp_1"}),
            ("conversation", {"conversation": {"id": "c"}}), ("prompt", {"prompt": {"id": "p"}}),
            ("truncation", {"truncation": "some"}), ("metadata", {"metadata": {"a": 1}}),
            ("metadata", {"metadata": "a"}), ("text", {"text": 1}),
            ("text.verbosity", {"text": {"verbosity": "low"}}),
            ("text.format", {"text": {"format": {"type": "xml"}}}),
            ("text.format", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
            ("text.format.more", {"text": {"format": {"type": "text", "more": 1}}}),
            ("text.format", {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}},
                             "tools": [WEATHER]}),
            ("reasoning", {"reasoning": "low"}), ("reasoning.summary", {"reasoning": {
                "summary": "detailed"}}), ("reasoning.effort", {"reasoning": {"effort": 3}}),
            ("tools", {"tools": {}}), ("tools[0].type", {"tools": [{"type": "web_search"}]}),
            ("tools[1].type", {"tools": [WEATHER, {"type": "mcp"}]}),
            ("tools[0].name", {"tools": [{"type": "function"}]}),
            ("tools[0].name", {"tools": [{**function, "name": "a b"}]}),
            ("tools[0].parameters", {"tools": [{**function, "parameters": []}]}),
            ("tools[0].description", {"tools": [{**function, "description": 1}]}),
            ("tools[0].strict", {"tools": [{**function, "strict": "yes"}]}),
            ("tools[0].defer_loading", {"tools": [{**function, "defer_loading": True}]}),
            ("tool_choice", {"tool_choice": "any"}), ("tool_choice", {"tool_choice": "required"}),
            ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "function"}}),
            ("tool_choice", {"tools": [WEATHER], "tool_choice": {
                "type": "function", "name": "other"}}),
            ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "web_search"}}),
            ("parallel_tool_calls", {"parallel_tool_calls": 1}),
            ("max_tool_calls", {"max_tool_calls": 1}), ("moderation", {"moderation": {}}),
            ("context_management", {"context_management": [{}]}),
            ("prompt_cache_options", {"prompt_cache_options": {"mode": "explicit"}}),
            ("messages", {"messages": []}), ("max_tokens", {"max_tokens": 1}),
            ("n", {"n": 2}), ("response_format", {"response_format": {"type": "text"}}),
            ("deadline_ms", {"deadline_ms": 0}), ("min_tokens", {"min_tokens": -1})):
        refused(param, **more)
    assert "input" in refused("previous_response_id", previous_response_id="resp_1")
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {
        "n": {"not": {}}}}}
    assert "text.format.schema.properties.n.not" in refused("text.format",
                                                            text={"format": schema})
    refused("model", 404, model="other")
    refused("model", model=None)
    refused("input", client=NOISE, model=MODEL, input="word " * 5000)
    assert "does not read reasoning.effort" in refused(
        "reasoning.effort", client=NOISE, model=MODEL, reasoning={"effort": "low"})
    assert tell("plain", tools=[], reasoning={"effort": ""}).output_text


@check
def every_wrong_item_is_named():
    text = {"type": "input_text", "text": "a"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "o"}
    user = {"role": "user", "content": "a"}
    for where, item in (
            ("", "text"), (".role", {"content": "a"}), (".role", {**user, "role": "tool"}),
            (".content", {"role": "user"}), (".content", {**user, "content": None}),
            (".content", {**user, "content": [1]}), (".content", {**user, "content": [{}]}),
            (".content", {**user, "content": [{"type": "input_image", "image_url": "x"}]}),
            (".content", {**user, "content": [{"type": "refusal", "refusal": "x"}]}),
            (".content", {**user, "content": [{"type": "input_text"}]}),
            (".content.more", {**user, "content": [{**text, "more": 1}]}),
            (".phase", {**user, "phase": "commentary"}), (".type", {**user, "type": "mcp_call"}),
            (".type", {"type": "item_reference", "id": "x"}),
            (".call_id", {**call, "call_id": None}), (".name", {**call, "name": 1}),
            (".arguments", {**call, "arguments": {}}),
            (".namespace", {**call, "namespace": "x"}),
            (".call_id", {**output, "call_id": 1}), (".output", {**output, "output": {}}),
            (".output", {**output, "output": [{"type": "input_file"}]}),
            (".name", {**output, "name": "x"})):
        refused("input[1]" + where, input=[user, item])
    for input in None, [], {}, 1:
        refused("input", input=input)
    refused("input[1]", input=[{"type": "reasoning"}])


@check
def what_asks_for_nothing_is_taken():
    nothing = {k: None for k in ("instructions", "metadata", "tools", "tool_choice", "text",
                                 "reasoning", "previous_response_id", "conversation", "prompt",
                                 "background", "include", "max_tool_calls", "unknown")}
    assert tell("plain", tools=openai.NOT_GIVEN).output_text == SCRIPTS["plain"]
    for fields in (nothing, {"background": False, "store": False, "include": []},
                   {"text": {"format": None, "verbosity": None}, "reasoning": {"effort": None}},
                   {"include": ["reasoning.encrypted_content"], "metadata": {}},
                   {"client_metadata": {"id": "x"}, "reasoning": {"summary": "auto"}}):
        r = TOLD._client.post(str(TOLD.base_url) + "responses", json={
            "model": "scripted", "input": "<|plain|>", "temperature": 0, **fields})
        assert r.status_code == 200, r.text


@check
def bodies_that_are_none():
    url = str(TOLD.base_url) + "responses"
    for body in "", "{", "[]", "7", '{"model": "scripted", "input": "\\ud800"}':
        r = TOLD._client.post(url, content=body, headers={"Content-Type": "application/json"})
        assert r.status_code == 400 and r.json()["error"]["message"], r.text
    big = {"model": "scripted", "input": "x", "instructions": "y" * (1 << 21)}
    assert TOLD._client.post(url, json=big).status_code == 413
    assert TOLD._client.get(url).status_code == 405
    r = TOLD._client.get(url + "/resp_1")
    assert r.status_code == 404 and "no response is kept" in r.json()["error"]["message"]


@check
def a_stream_that_fails_says_so():
    stream = list(ask(ignore_eos=True, max_output_tokens=200, deadline_ms=8, stream=True))
    if stream[-1].type == "response.incomplete":
        raise server.Skip("the machine was faster than the deadline")
    error, failed = stream[-2:]
    assert (error.type, error.code) == ("error", "deadline_exceeded"), error
    assert failed.type == "response.failed" and failed.response.status == "failed"
    assert failed.response.error.code == "deadline_exceeded"
    assert [e.sequence_number for e in stream] == list(range(len(stream)))


@check
def long_ends_reach_slow_readers():
    """What a stream repeats can be longer than the output buffer, and than a reply may be."""
    wish = dict(model=MODEL, input="Hello", max_output_tokens=200, temperature=0,
                include=LOGPROBS, top_logprobs=20, stream=True, extra_body={"ignore_eos": True})
    with server.Server(MODEL_DIR, "--server.output", "16384", "--server.reply_memory",
                       "524288") as small:
        r = joined(client_of(small).responses.create(**wish))
        assert len(r.output[0].content[0].logprobs) == 200
        wide = {"model": MODEL, "input": "Hello", "max_output_tokens": 20, "ignore_eos": True,
                "stream": True, "metadata": {"a": "x" * 300000}}
        with socket.socket() as s:  # the kernel's buffers hold little
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
            s.connect(("127.0.0.1", small.port))
            body = json.dumps(wide).encode()
            s.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                      b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                      + body)
            time.sleep(1)
            got = b""
            while piece := s.recv(1 << 16):
                got += piece
        assert b"event: response.incomplete" in got and got.endswith(b"0\r\n\r\n"), got[-200:]
        wide["metadata"]["b"] = "x" * 400000
        r = client_of(small)._client.post(f"http://127.0.0.1:{small.port}/v1/responses", json=wide)
        assert r.status_code == 400 and "comes back" in r.text, r.text
    with server.Server(MODEL_DIR, "--server.body_max", "65536") as small:
        events = list(client_of(small).responses.create(**wish))
        assert events[-1].type == "response.failed", events[-1].type
        assert events[-2].code == "reply_too_large", events[-2]
        wish.pop("stream")
        try:
            client_of(small).responses.create(**wish)
            raise AssertionError("it fits")
        except openai.InternalServerError as e:
            assert e.code == "reply_too_large", e


@check
def the_document_has_it():
    import jsonschema
    document = TOLD._client.get(f"http://127.0.0.1:{SCRIPTED.port}/openapi.json").json()

    def fits(value, schema):
        schema = {**document, "$ref": f"#/components/schemas/{schema}"}
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    url = str(TOLD.base_url) + "responses"
    asked = {"model": "scripted", "input": "<|between|>", "tools": [WEATHER], "temperature": 0,
             "instructions": "x", "include": LOGPROBS, "top_logprobs": 2, "metadata": {"a": "b"}}
    reply = TOLD._client.post(url, json=asked).json()
    assert fits(asked, "ResponseRequest") and fits(reply, "Response")
    assert all(fits(i, "InputItem") for i in reply["output"]) and not fits(asked, "Response")
    for field, value, may in (("store", True, False), ("store", False, True), ("n", 1, False),
                              ("tools", [{"type": "mcp"}], False), ("input", [], False),
                              ("input", [{"role": "user", "content": "<|one|>"}], True),
                              ("input", [{"role": "tool", "content": "a"}], False),
                              ("truncation", "auto", True), ("truncation", "some", False),
                              ("text", {"verbosity": "medium"}, True), ("background", True, False),
                              ("previous_response_id", "x", False), ("unknown", None, True),
                              ("text", {"format": {"type": "text"}}, True),
                              ("text", {"verbosity": "low"}, False),
                              ("metadata", {"a": 1}, False), ("include", ["x"], False),
                              ("tool_choice", "any", False), ("reasoning", {"x": 1}, False)):
        assert fits({**asked, field: value}, "ResponseRequest") == may, (field, value)
        got = TOLD._client.post(url, json={**asked, field: value})
        assert (got.status_code == 200) == may, (field, value, got.text)


failed = server.run(checks)
SERVER.end()
SCRIPTED.end()
FOLDER.cleanup()
sys.exit(failed != 0)
