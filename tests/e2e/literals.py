"""Calls in literals, and thoughts, as Gemma 4 and LFM 2 write them, by the OpenAI client against
`zigcuda serve` with models that write so.

usage: literals.py [FLAGS of serve]   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import sys
import tempfile

import openai

import scripted
import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

STYLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "template", "styles")
SAID = '{"city": "Oslo, \\"é\\"", "days": 3, "note": "12", "tags": ["a", {"b": null}]}'
GEMMA = {
    "asks": '<|channel>thought\nWhere, <b>?\n<channel|><|tool_call>call:weather{city:<|"|>Oslo, "é"'
            '<|"|>,days:3,note:12,tags:[<|"|>a<|"|>,{b:null}]}<tool_call|>',
    "first": 'I ask.<|tool_call>call:weather{}<tool_call|><|tool_call>call:now{}<tool_call|>',
    "again": "<|channel>thought\none<channel|>Yes.<|channel>thought\ntwo<channel|>",
    "empty": "<|channel>thought\n<channel|>No.<|channel>thought\n<channel|>",
    "none": "What is <|tool_call>call:weather?",
    "json": '<|channel>thought\nI see<channel|>{"n": 12}',
    "never": "<|channel>thought\nI go on and on",
}
LFM = {
    "asks": "<think>Where, <b>?</think><|tool_call_start|>[weather(city='Oslo, \"é\"', days=3, "
            "note=12, tags=['a', {'b': None}])]<|tool_call_end|>",
    "first": "I ask.<|tool_call_start|>[weather(), now()]<|tool_call_end|>",
    "json": '<think>I see</think>{"n": 12}',
    "none": "What is <|tool_call_start|>[weather]?",
    "never": "<think>I go on and on",
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": "string"}}}}}
NOW = {"type": "function", "function": {"name": "now", "strict": True, "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
    "additionalProperties": False}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}
FOLDER = tempfile.TemporaryDirectory()
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def serve(name, style, scripts, marks=()):
    folder = os.path.join(FOLDER.name, name)
    os.mkdir(folder)
    with open(os.path.join(STYLES, style + ".jinja")) as f:
        template = f.read() + "{{ '\\n' + messages[-1].content if add_generation_prompt }}"
    scripted.make(folder, template, scripts, marks)
    s = server.Server(folder, *sys.argv[1:])
    s.client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none",
                             max_retries=0, http_client=httpx.Client(timeout=60))
    s.name = name
    return s


SERVERS = {"gemma": serve("gemma", "gemma4", GEMMA), "lfm": serve("lfm", "lfm25", LFM)}


def ask_one(s, script, stream, **more):
    """Thoughts, content, calls as (name, arguments), why it ended."""
    extra = {k: more.pop(k) for k in ("thinking_token_budget", "reasoning_format") if k in more}
    reply = s.client.chat.completions.create(
        model=s.name, messages=[{"role": "user", "content": f"<|{script}|>"}], stream=stream,
        extra_body=extra, **{"max_tokens": 300, "temperature": 0, **more})
    if not stream:
        message = reply.choices[0].message
        calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
        return (getattr(message, "reasoning_content", None), message.content or "", calls,
                reply.choices[0].finish_reason)
    thought, said, calls, finish = "", "", [], None
    for chunk in reply:
        delta = chunk.choices[0].delta
        thought += getattr(delta, "reasoning_content", None) or ""
        said += delta.content or ""
        for c in delta.tool_calls or []:
            if c.index == len(calls):
                calls.append((c.function.name, ""))
            calls[c.index] = (calls[c.index][0], calls[c.index][1] + c.function.arguments)
        finish = chunk.choices[0].finish_reason or finish
    return thought or None, said, calls, finish


def ask(name, script, **more):
    s = SERVERS[name] if isinstance(name, str) else name
    whole, streamed = ask_one(s, script, False, **more), ask_one(s, script, True, **more)
    assert whole == streamed, (whole, streamed)
    return whole


@check
def thoughts_are_told_apart():
    assert ask("gemma", "again") == ("one\n\ntwo", "Yes.", [], "stop"), ask("gemma", "again")
    assert ask("gemma", "empty") == (None, "No.", [], "stop"), ask("gemma", "empty")
    assert ask("gemma", "again", reasoning_format="none")[1] == GEMMA["again"]
    for name in SERVERS:
        assert ask(name, "json") == ("I see", '{"n": 12}', [], "stop"), ask(name, "json")
        for more in {}, {"tools": [NOW]}:
            assert ask(name, "json", response_format=FORMAT, **more)[:2] == ("I see", '{"n": 12}')
        thought, said, _, finish = ask(name, "never", thinking_token_budget=3, max_tokens=40)
        assert thought and "I go on and on".startswith(thought) and "<" not in said, (thought, said)


@check
def calls_are_told_apart():
    for name, scripts in ("gemma", GEMMA), ("lfm", LFM):
        assert ask(name, "asks", tools=[WEATHER]) == (
            "Where, <b>?", "", [("weather", SAID)], "tool_calls"), ask(
                name, "asks", tools=[WEATHER])
        assert ask(name, "first", tools=[WEATHER]) == (
            None, "I ask.", [("weather", "{}"), ("now", "{}")], "tool_calls")
        assert ask(name, "none", tools=[WEATHER]) == (None, scripts["none"], [], "stop")


@check
def calls_that_are_demanded_come():
    for name in SERVERS:
        for script in "asks", "first", "none", "json":
            thought, said, calls, finish = ask(name, script, tools=[NOW], tool_choice="required",
                                               thinking_token_budget=20)
            assert (said, len(calls), finish) == ("", 1, "tool_calls"), (said, calls, finish)
            assert calls[0][0] == "now" and json.loads(calls[0][1])["zone"] in ("UTC", "CET"), calls
        for script in "asks", "first":
            calls = ask(name, script, tools=[NOW, WEATHER])[2]
            assert all(json.loads(a).get("zone") in ("UTC", "CET") for n, a in calls if n == "now")


@check
def marks_may_be_special_tokens():
    for name, style, text, marks in (
            ("g", "gemma4", '<|channel>thought\nHm<channel|><|tool_call>call:weather{days:3,city:'
             '<|"|>Oslo', ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>')),
            ("l", "lfm25", "<think>Hm</think><|tool_call_start|>[weather(city='Oslo', days=3)]"
             "<|tool_call_end|>", ("<|tool_call_start|>", "<|tool_call_end|>"))):
        with serve(name, style, {"asks": text}, marks) as s:
            thought, said, calls, finish = ask(s, "asks", tools=[WEATHER])
            assert (thought, said, finish) == ("Hm", "", "tool_calls"), (thought, said, finish)
            assert "Oslo" in calls[0][1] and "<" not in calls[0][1], calls
            calls = ask(s, "asks", tools=[NOW], tool_choice="required")[2]
            assert json.loads(calls[0][1])["zone"] in ("UTC", "CET"), calls


def prompt(s, messages, **more):
    body = {"model": s.name, "messages": messages, "add_special_tokens": False, **more}
    url = f"http://127.0.0.1:{s.port}"
    tokens = httpx.post(url + "/tokenize", json=body).json()["tokens"]
    return httpx.post(url + "/detokenize", json={
        "model": s.name, "tokens": tokens}).json()["prompt"]


@check
def a_turn_goes_back_to_the_template():
    turns = [{"role": "user", "content": "Hm?"},
             {"role": "assistant", "content": "I ask.", "reasoning_content": "why", "tool_calls": [
                 {"id": "abcdefghi", "type": "function", "function": {
                     "name": "f", "arguments": '{"a": "é", "b": [true]}'}},
                 {"id": "bcdefghij", "type": "function", "function": {
                     "name": "g", "arguments": "{}"}}]},
             {"role": "tool", "tool_call_id": "abcdefghi", "content": "22"}]
    said = prompt(SERVERS["gemma"], turns, tools=[WEATHER])
    assert ('<|turn>model\n<|channel>thought\nwhy\n<channel|><|tool_call>call:f{a:<|"|>é<|"|>,'
            'b:[true]}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_response>response:f{value:'
            '<|"|>22<|"|>}<tool_response|>') in said, said
    for thinks in False, True:
        said = prompt(SERVERS["gemma"], turns[:1],
                      chat_template_kwargs={"enable_thinking": thinks})
        assert ("<|think|>" in said) == thinks, said
        assert ("<|turn>model\n<|channel>thought\n<channel|>" in said) == (not thinks), said
    said = prompt(SERVERS["lfm"], turns, tools=[WEATHER])
    assert ("<think>why</think>I ask.<|tool_call_start|>[f(a='é', b=[True]), g()]"
            "<|tool_call_end|><|im_end|>") in said, said
    with serve("left", "lfm2", {"x": "Yes."}) as s:
        said = prompt(s, turns, tools=[WEATHER])
        assert ('I ask.<|tool_call_start|>[f(a="é", b=[true]), g()]<|tool_call_end|><|im_end|>'
                ) in said, said


failed = server.run(checks)
for one in SERVERS.values():
    one.end()
FOLDER.cleanup()
sys.exit(failed != 0)
