"""Answers in messages, as gpt-oss writes them ("harmony"), in all dialects: thoughts, texts and
calls, by the OpenAI and Anthropic clients against `zigcuda serve` with models that write so.

usage: harmony.py [FLAGS of serve]   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import re
import sys
import tempfile

import anthropic
import openai

import scripted
import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "..", "template", "styles", "harmony.jinja")) as f:
    TEMPLATE = f.read()
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
PREAMBLE, NEXT = "<|channel|>commentary<|message|>", "<|end|><|start|>assistant"
OSLO, JSON = '{"city": "Oslo <|end|> \\"é\\""}', " <|constrain|>json<|message|>"
CALL = f"<|channel|>commentary to=functions.get_weather{JSON}{OSLO}"
THOUGHT, SAID = "I see <|end|>; a <| b.\n\nSo é", " Yes, it is < 4.\n"
SCRIPTS = {
    "both": f"{ANALYSIS}{THOUGHT}{NEXT}{FINAL}{SAID}",
    "easy": f"{ANALYSIS}Hm{NEXT}{FINAL}Yes.",
    "final": f"{FINAL}{SAID}",
    "asks": f"{ANALYSIS}Where, then?{NEXT}{CALL}",
    "early": f" to=functions.get_weather<|channel|>commentary json<|message|>{OSLO}",
    "first": f"{PREAMBLE}I ask.{NEXT}{CALL}",
    "two": f"{CALL}<|call|><|start|>assistant to=functions.get_time<|channel|>commentary json"
           "<|message|>{\"zone\": 7}<|call|>",
    "wrong": f"{ANALYSIS}Hm{NEXT}<|channel|>commentary to=functions.get_time{JSON}"
             '{"zone": "Moon"}',
    "unknown": f"{ANALYSIS}Hm{NEXT}<|channel|>commentary to=browser.search code<|message|>x < y",
    "plain": "No <|header|> here, nor <|end|> there",
    "cut": f"{ANALYSIS}So{NEXT}<|channel|>fin",
    "never": f"{ANALYSIS}I go on and on",
    "json": f'{ANALYSIS}Now {{"a": it is{NEXT}{FINAL}{{"n": 12, "s": "<|end|><|start|>"}}',
    "bare": f'{FINAL}{{"n": 34, "s": ""}}',
    "text": "Not JSON at all, 7.",
    "mixed": f"{ANALYSIS}one{NEXT}{PREAMBLE}two{NEXT}{ANALYSIS}three{NEXT}{ANALYSIS}four{NEXT}"
             f"{FINAL}five",
}
WEATHER = {"type": "function", "function": {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"],
    "additionalProperties": False}}}
STRICT = {"type": "function", "function": {**TIME["function"], "strict": True}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
          "required": ["n", "s"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
FOLDER = tempfile.TemporaryDirectory()
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def serve(name, template, scripts, marks=()):
    folder = os.path.join(FOLDER.name, name)
    os.mkdir(folder)
    scripted.make(folder, template, scripts, marks)
    return server.Server(folder, *sys.argv[1:])


def client_of(s):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0,
                         http_client=httpx.Client(timeout=60))


SERVER = serve("messages", TEMPLATE + "{{ '\\n' + messages[-1].content if add_generation_prompt }}",
               SCRIPTS)
URL = f"http://127.0.0.1:{SERVER.port}"
OPENAI = client_of(SERVER)
ANTHROPIC = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


def ask(script, stream=False, client=OPENAI, model="messages", **more):
    """Thoughts, content, calls as (name, arguments), why it ended."""
    extra = {k: more.pop(k) for k in ("thinking_token_budget", "include_reasoning",
                                      "reasoning_format") if k in more}
    more = {"max_tokens": 300, "temperature": 0} | more
    reply = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": f"<|{script}|>"}], stream=stream,
        extra_body=extra, **more)
    if not stream:
        choice = reply.choices[0]
        message = choice.message
        calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or []]
        return (getattr(message, "reasoning_content", None), message.content or "", calls,
                choice.finish_reason)
    thought, said, calls, finish = "", "", [], None
    for chunk in reply:
        choice = chunk.choices[0]
        delta = choice.delta
        thought += getattr(delta, "reasoning_content", None) or ""
        said += delta.content or ""
        for c in delta.tool_calls or []:
            if c.index == len(calls):
                calls.append((c.function.name, ""))
            calls[c.index] = (calls[c.index][0], calls[c.index][1] + c.function.arguments)
        finish = choice.finish_reason or finish
    return thought or None, said, calls, finish


def both(script, **more):
    whole, streamed = ask(script, **more), ask(script, True, **more)
    assert whole == streamed, (whole, streamed)
    return whole


@check
def messages_are_told_apart():
    assert both("both") == (THOUGHT, SAID, [], "stop"), both("both")
    assert both("final") == (None, SAID, [], "stop")
    assert both("plain") == (None, SCRIPTS["plain"], [], "stop"), both("plain")
    assert both("cut") == ("So", "", [], "stop"), both("cut")
    assert both("never") == ("I go on and on", "", [], "stop")
    assert both("mixed") == ("one\n\nthree\n\nfour", "two\n\nfive", [], "stop"), both("mixed")
    assert both("both", tools=[WEATHER]) == (THOUGHT, SAID, [], "stop")
    for n in range(1, 30):  # no beginning shows a mark, but for one that is not whole
        thought, said, calls, finish = both("mixed", max_tokens=n)
        thought, said = (re.sub("<[|a-z]*$", "", s or "") for s in (thought, said))
        assert "one\n\nthree\n\nfour".startswith(thought), thought
        assert "two\n\nfive".startswith(said), said


@check
def thoughts_can_be_left():
    assert both("both", include_reasoning=False) == (None, SAID, [], "stop")
    assert both("both", reasoning_format="none") == (None, SCRIPTS["both"], [], "stop")
    thought, said, calls, finish = both("asks", reasoning_format="none", tools=[WEATHER])
    assert (thought, said) == (None, f"{ANALYSIS}Where, then?"), said
    assert calls == [("get_weather", OSLO)], calls


@check
def calls_are_told_apart():
    oslo = [("get_weather", OSLO)]
    for more in {}, {"tool_choice": "auto"}:
        assert both("asks", tools=[WEATHER], **more) == (
            "Where, then?", "", oslo, "tool_calls"), both("asks", tools=[WEATHER], **more)
    assert both("early", tools=[WEATHER]) == (None, "", oslo, "tool_calls")
    assert both("first", tools=[WEATHER]) == (None, "I ask.", oslo, "tool_calls")
    two = [*oslo, ("get_time", '{"zone": 7}')]
    assert both("two", tools=[WEATHER]) == (None, "", two, "tool_calls"), both("two")
    assert both("two", tools=[WEATHER], parallel_tool_calls=False)[2] == oslo
    assert both("unknown", tools=[WEATHER])[:3] == ("Hm", "", [("browser.search", "x < y")])
    thought, said, calls, finish = both("asks", tools=[WEATHER], tool_choice="none")
    assert (thought, calls, finish) == ("Where, then?", [], "stop") and OSLO in said, said


@check
def calls_that_are_demanded_come():
    for more in {"tool_choice": "required"}, {"tool_choice": {
            "type": "function", "function": {"name": "get_weather"}}}:
        assert both("asks", tools=[WEATHER], **more)[:3] == (
            "Where, then?", "", [("get_weather", OSLO)]), both("asks", tools=[WEATHER], **more)
    for script in "both", "easy", "final", "plain", "wrong", "first", "two", "unknown":
        thought, said, calls, finish = both(script, tools=[TIME], tool_choice="required",
                                            thinking_token_budget=9)
        assert (said, finish, len(calls)) == ("", "tool_calls", 1), (script, said, calls, finish)
        assert calls[0][0] == "get_time" and json.loads(calls[0][1])["zone"] in ("UTC", "CET")
        assert thought == "Hm" or script not in ("easy", "wrong", "unknown"), (script, thought)


@check
def strict_functions_are_kept_to():
    assert both("easy", tools=[STRICT, WEATHER]) == ("Hm", "Yes.", [], "stop")
    assert both("asks", tools=[STRICT, WEATHER])[:3] == (
        "Where, then?", "", [("get_weather", OSLO)])
    assert both("first", tools=[STRICT, WEATHER])[1:3] == ("I ask.", [("get_weather", OSLO)])
    for script in "wrong", "unknown", "early", "two", "plain":
        thought, said, calls, finish = both(script, tools=[STRICT], thinking_token_budget=9)
        for name, arguments in calls:
            assert name == "get_time", (script, calls)
            assert json.loads(arguments)["zone"] in ("UTC", "CET"), calls
        assert "Moon" not in said and "<|message|>" not in said, said
    assert both("wrong", tools=[STRICT])[0] == "Hm"


@check
def what_has_a_form_comes_last():
    said = SCRIPTS["json"].partition(FINAL)[2]
    assert both("json", response_format=FORMAT) == (
        'Now {"a": it is', said, [], "stop"), both("json", response_format=FORMAT)
    assert both("bare", response_format=FORMAT) == (None, '{"n": 34, "s": ""}', [], "stop")
    assert both("json", response_format={"type": "json_object"})[1] == said
    for script in "text", "plain", "asks", "first", "early", "final":
        _, said, calls, finish = both(script, response_format=FORMAT)
        assert calls == [], (script, calls)
        if finish == "stop":
            assert isinstance(json.loads(said)["n"], int), (script, said)
        else:
            assert "<|" not in said.partition('"s":')[0], said
    tools = {"response_format": FORMAT, "tools": [WEATHER]}
    assert both("json", **tools) == both("json", response_format=FORMAT)
    assert both("bare", **tools) == (None, '{"n": 34, "s": ""}', [], "stop")
    assert both("asks", **tools) == ("Where, then?", "", [("get_weather", OSLO)], "tool_calls")
    for script in SCRIPTS:
        _, said, calls, finish = both(script, **tools)
        assert not (said and calls), (said, calls)
        assert finish != "stop" or isinstance(json.loads(said)["n"], int), (script, said)
        assert finish != "tool_calls" or isinstance(json.loads(calls[0][1]), dict), calls
    free = ask("json", response_format=FORMAT, reasoning_format="none")
    assert free[:2] == (None, SCRIPTS["json"]), free


@check
def a_budget_ends_thoughts():
    for n in (0, 1, 3):
        thought, said, _, finish = ask("json", thinking_token_budget=n, response_format=FORMAT)
        assert finish == "length" or isinstance(json.loads(said)["n"], int), said
        assert len(thought or "") <= 14 * (n + 1), (n, thought)
        thought, said, calls, finish = ask("never", thinking_token_budget=n, max_tokens=80)
        thought = (thought or "").rstrip("\0")
        assert "I go on and on".startswith(thought) and "<|ch" not in said, (thought, said)
        thought, said, calls, finish = ask("asks", thinking_token_budget=n, tools=[WEATHER],
                                           max_tokens=80)
        assert len(thought or "") <= 14 * (n + 1), (n, thought)
    assert both("easy", thinking_token_budget=200) == ("Hm", "Yes.", [], "stop")
    assert both("asks", thinking_token_budget=200, tools=[WEATHER])[:3] == (
        "Where, then?", "", [("get_weather", OSLO)])


@check
def marks_may_be_special_tokens():
    marks = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>")
    oslo = '{"city": "Oslo"}'
    for name, text, demands in (
            ("early", "<|start|>assistant to=functions.get_weather<|channel|>commentary "
                      f"<|constrain|>json<|message|>{oslo}<|end|>", [{}]),
            ("late", f"<|channel|>commentary to=functions.get_weather{JSON}{oslo}",
             [{}, {"tool_choice": "required"}])):
        with serve(name, TEMPLATE + "{{ '\\n' + messages[-1].content }}", {"asks": text},
                   marks) as s:
            for more in demands:
                for stream in False, True:
                    assert ask("asks", stream, client_of(s), name, tools=[WEATHER], **more) == (
                        None, "", [("get_weather", oslo)], "tool_calls")
    scripts = {"think": f"{ANALYSIS}a <b<|end|>"}
    with serve("think", TEMPLATE + "{{ '\\n' + messages[-1].content }}", scripts, marks) as s:
        for stream in False, True:
            assert ask("think", stream, client_of(s), "think") == ("a <b", "", [], "stop")


def prompt(messages, **more):
    body = {"model": "messages", "messages": messages, "add_special_tokens": False, **more}
    reply = httpx.post(URL + "/tokenize", json=body).json()
    assert "tokens" in reply, reply
    return httpx.post(URL + "/detokenize", json={
        "model": "messages", "tokens": reply["tokens"]}).json()["prompt"]


@check
def a_turn_goes_back_to_the_template():
    user = {"role": "user", "content": "Hm?"}
    for extra in {}, {"content": "I ask."}:
        call = {"role": "assistant", "content": None, "reasoning_content": "why", "tool_calls": [
            {"id": "abcdefghi", "type": "function",
             "function": {"name": "f", "arguments": '{"a": "é"}'}}], **extra}
        turns = [user, call, {"role": "tool", "tool_call_id": "abcdefghi", "content": "22"}]
        said = prompt(turns, tools=[WEATHER])
        both_said = "why\n\nI ask." if extra else "why"
        assert (f"<|start|>assistant{ANALYSIS}{both_said}<|end|><|start|>assistant "
                'to=functions.f<|channel|>commentary json<|message|>{"a": "é"}<|call|>'
                '<|start|>functions.f to=assistant<|channel|>commentary<|message|>"22"<|end|>'
                ) in said, said
    first = OPENAI.chat.completions.create(
        model="messages", temperature=0, messages=[{"role": "user", "content": "<|asks|>"}],
        tools=[WEATHER]).choices[0].message
    said = prompt([user, first.model_dump(), {
        "role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "1"}], tools=[WEATHER])
    assert f"{ANALYSIS}Where, then?<|end|>" in said and OSLO in said, said
    assert f"{FINAL}so<|end|>" in prompt([user, {
        "role": "assistant", "content": "so", "reasoning_content": "why", "tool_calls": []}, user])
    assert "Effort: high" in prompt([user], chat_template_kwargs={"reasoning_effort": "high"})
    low, high = (OPENAI.chat.completions.create(
        model="messages", messages=[user], max_tokens=1, reasoning_effort=effort).usage
        for effort in ("low", "medium"))
    assert low.prompt_tokens < high.prompt_tokens, (low, high)


@check
def a_message_can_go_on():
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "\n<|text|>"}]
    for stream in False, True:
        reply = OPENAI.chat.completions.create(
            model="messages", messages=turns, temperature=0, stream=stream, max_tokens=100,
            extra_body={"add_generation_prompt": False, "continue_final_message": True})
        said = "".join(c.choices[0].delta.content or "" for c in reply) if stream else (
            reply.choices[0].message.content)
        assert said == SCRIPTS["text"], said
    turns[1]["content"] = "\n<|bare|>"
    reply = OPENAI.chat.completions.create(
        model="messages", messages=turns, temperature=0, response_format=FORMAT, max_tokens=100,
        extra_body={"add_generation_prompt": False, "continue_final_message": True})
    said = reply.choices[0].message.content
    assert said.lstrip().startswith("{") and reply.choices[0].message.model_extra.get(
        "reasoning_content") is None, said


@check
def responses_have_items():
    flat = {"type": "function", **WEATHER["function"]}
    for script, kinds, more in (("both", ["reasoning", "message"], {}),
                                ("asks", ["reasoning", "function_call"], {"tools": [flat]}),
                                ("first", ["message", "function_call"], {"tools": [flat]}),
                                ("json", ["reasoning", "message"], {"text": {"format": {
                                    "type": "json_schema", "name": "n", "schema": SCHEMA}}})):
        more |= {"model": "messages", "input": f"<|{script}|>", "temperature": 0,
                 "max_output_tokens": 300}
        whole = OPENAI.responses.create(**more)
        assert [i.type for i in whole.output] == kinds, whole
        for e in OPENAI.responses.create(stream=True, **more):
            pass
        assert e.type == "response.completed"
        assert [i.type for i in e.response.output] == kinds and e.response.usage == whole.usage
        if kinds[0] == "reasoning":
            assert whole.usage.output_tokens_details.reasoning_tokens > 0
        if script == "both":
            assert whole.output[0].content[0].text == THOUGHT and whole.output_text == SAID
            again = OPENAI.responses.create(model="messages", max_output_tokens=16, input=[
                {"role": "user", "content": "a"}, *(i.model_dump() for i in whole.output),
                {"role": "user", "content": "<|final|>"}])
            assert again.output_text and SAID.startswith(again.output_text), again
        if kinds[1] == "function_call":
            assert whole.output[1].arguments == e.response.output[1].arguments == OSLO
        if script == "json":
            assert json.loads(whole.output_text)["n"] == 12


@check
def messages_have_blocks():
    tool = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}
    for script, kinds, more in (("both", ["thinking", "text"], {}),
                                ("asks", ["thinking", "tool_use"], {"tools": [tool]}),
                                ("first", ["text", "tool_use"], {"tools": [tool]})):
        more = {"max_tokens": 300, "extra_body": {"temperature": 0}, "model": "messages",
                "messages": [{"role": "user", "content": f"<|{script}|>"}], **more}
        whole = ANTHROPIC.messages.create(**more)
        assert [b.type for b in whole.content] == kinds, whole
        with ANTHROPIC.messages.stream(**more) as stream:
            streamed = stream.get_final_message()
        assert [b.type for b in streamed.content] == kinds, streamed
        if kinds[0] == "thinking":
            assert whole.content[0].thinking == streamed.content[0].thinking
        if kinds[1] == "tool_use":
            assert whole.content[1].input == streamed.content[1].input == json.loads(OSLO)
            assert whole.stop_reason == streamed.stop_reason == "tool_use"


failed = server.run(checks)
SERVER.end()
FOLDER.cleanup()
sys.exit(failed != 0)
