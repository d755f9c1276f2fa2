"""POST /v1/messages, by the Anthropic client against `zigcuda serve`: a small model whose text is
noise, and models that write what a script says.

usage: messages.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import anthropic

import scripted
import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
# The roles and what was said, with calls and results; the last message says which script.
TEMPLATE = """{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}{%- for m in messages %}{{ m.role }}:
{%- for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}]
{%- endfor %}{{ m.tool_call_id }} {{ m.content }}
{% endfor %}{{ messages[-1].content }}{{ reasoning_effort }}{# <tool_call> #}"""
WEATHER = {"name": "get_weather", "description": "The weather in a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "%s"}}</tool_call>'
LONG = json.dumps({"text": "".join(f"line {i}: \"{i * 7919}\" é\n" for i in range(40))})
SCRIPTS = {
    "one": "\n\n" + CALL % "Zürich",
    "two": "I ask twice.\n" + CALL % "A" + "\n" + CALL % "B",
    "between": "First. " + CALL % "Oslo" + " Then, a < b.",
    "none": "No tool for <tool> that, nor <tool_call> this; a < b.",
    "long": f'<tool_call>{{"name": "write", "arguments": {LONG}}}</tool_call>',
    "odd": '<tool_call>{"name": "get_weather", "arguments": {"city": "C", "city": "D"}}'
           "</tool_call>",
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


def client_of(at, **more):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{at.port}", max_retries=0,
                               **({"api_key": "none"} | more))


NOISE, TOLD = client_of(SERVER), client_of(SCRIPTED)
EXTENSIONS = ("temperature", "top_p", "top_k", "seed", "ignore_eos", "min_tokens", "deadline_ms")


def ask(messages="Hello", client=NOISE, **more):
    extra = {k: more.pop(k) for k in EXTENSIONS if k in more}
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return client.messages.create(model=MODEL if client is NOISE else "scripted",
                                  messages=messages, extra_body=extra, **{"max_tokens": 12} | more)


def tell(script, **more):
    more = {"max_tokens": 900, "temperature": 0, "tools": [WEATHER]} | more
    return ask(more.pop("messages", f"<|{script}|>"), TOLD, **more)


def blocks(message):
    """What is said, without the ids."""
    return [(b.text,) if b.type == "text" else (b.name, b.input) for b in message.content]


def joined(stream):
    """The events of a stream, put together: blocks, the reason of the end and the usage."""
    said, events = [], list(stream)
    kinds = [e.type for e in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    start, delta = events[0].message, events[-2]
    assert start.content == [] and start.stop_reason is None and start.id.startswith("msg_")
    for e in events[1:-2]:
        if e.type == "content_block_start":
            assert e.index == len(said)
            said.append([e.content_block, "", True])
        elif e.type == "content_block_delta":
            block = said[e.index]
            assert block[2] and e.index == len(said) - 1
            block[1] += e.delta.text if e.delta.type == "text_delta" else e.delta.partial_json
        else:
            assert e.type == "content_block_stop" and e.index == len(said) - 1, e
            said[e.index][2] = False
    assert not any(open for _, _, open in said)
    return start, said, delta


def both(script, **more):
    """Whole and streamed say the same but for ids."""
    whole = tell(script, **more)
    start, said, delta = joined(tell(script, stream=True, **more))
    assert whole.stop_reason == delta.delta.stop_reason
    assert whole.stop_sequence == delta.delta.stop_sequence
    assert whole.usage.output_tokens == delta.usage.output_tokens
    assert delta.usage.input_tokens == start.usage.input_tokens
    streamed = []
    for block, text, _ in said:
        try:
            streamed.append((text,) if block.type == "text" else (block.name, json.loads(text)))
        except json.JSONDecodeError:
            streamed.append((block.name, {"INVALID_JSON": text} if text else {}))
    if script != "odd":
        assert blocks(whole) == streamed, (blocks(whole), streamed)
    ids = [b.id for b in whole.content if b.type == "tool_use"]
    ids += [b.id for b, _, _ in said if b.type == "tool_use"]
    assert len(set(ids)) == len(ids) and all(len(i) == 9 and i.isalnum() for i in ids)
    assert whole.id != start.id
    return blocks(whole), whole.stop_reason


@check
def shape_of_a_message():
    m = ask(temperature=0, system="Be brief.", metadata={"user_id": "me"}, service_tier="auto",
            thinking={"type": "disabled"}, cache_control={"type": "ephemeral"})
    assert (m.type, m.role, m.model) == ("message", "assistant", MODEL)
    assert m.id.startswith("msg_") and m.stop_reason in ("end_turn", "max_tokens")
    assert m.stop_sequence is None and m._request_id.startswith("req-")
    text, = m.content
    assert text.type == "text" and text.text
    assert m.usage.output_tokens <= 12 and m.usage.cache_creation_input_tokens == 0
    again = ask(temperature=0, system="Be brief.")
    assert again.content == m.content
    assert (again.usage.input_tokens + again.usage.cache_read_input_tokens ==
            m.usage.input_tokens + m.usage.cache_read_input_tokens)


@check
def it_says_what_a_chat_says():
    url = f"http://127.0.0.1:{SERVER.port}/v1/chat/completions"
    for seed in range(4):
        wish = dict(temperature=1.0, top_p=0.9, seed=seed, max_tokens=20)
        chat = httpx.post(url, json={"model": MODEL, **wish, "messages": [
            {"role": "system", "content": "S\nT"}, {"role": "user", "content": "Hello"}]}).json()
        system = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}},
                  {"type": "text", "text": "T"}]
        m = ask(system=system, **wish)
        assert m.content[0].text == chat["choices"][0]["message"]["content"]
        usage = m.usage.input_tokens + m.usage.cache_read_input_tokens
        assert usage == chat["usage"]["prompt_tokens"]
        ended = chat["choices"][0]["finish_reason"] == "stop"
        assert m.stop_reason == ("end_turn" if ended else "max_tokens")
        start, said, delta = joined(ask(system=system, stream=True, **wish))
        assert said[0][1] == m.content[0].text
        assert (start.usage.input_tokens + start.usage.cache_read_input_tokens) == usage


@check
def ends():
    assert ask(max_tokens=3, ignore_eos=True).stop_reason == "max_tokens"
    assert both("plain") == ([(SCRIPTS["plain"],)], "end_turn")
    said, reason = both("plain", stop_sequences=["xyz", "and"])
    assert (said, reason) == ([("Grüße, ",)], "stop_sequence")
    assert tell("plain", stop_sequences=["xyz", "and"]).stop_sequence == "and"
    assert tell("plain", stop_sequences=["G"]).content == []
    assert both("plain", stop_sequences=["G"]) == ([], "stop_sequence")


@check
def the_clients_own_stream():
    with TOLD.messages.stream(model="scripted", max_tokens=900, tools=[WEATHER],
                              messages=[{"role": "user", "content": "<|between|>"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert [b.type for b in final.content] == ["text", "tool_use", "text"]
    assert final.content[1].input == {"city": "Oslo"} and final.stop_reason == "tool_use"
    assert text == final.content[0].text + final.content[2].text


@check
def calls_come_whole_and_streamed():
    assert both("one") == ([("get_weather", {"city": "Zürich"})], "tool_use")
    two = [("get_weather", {"city": "A"}), ("get_weather", {"city": "B"})]
    assert both("two") == ([("I ask twice.",), *two], "tool_use")
    single = {"type": "auto", "disable_parallel_tool_use": True}
    assert both("two", tool_choice=single)[0] == [("I ask twice.",), two[0]]
    assert [len(b) for b in both("between")[0]] == [1, 2, 1]
    assert both("none") == ([(SCRIPTS["none"],)], "end_turn")
    assert both("long") == ([("write", json.loads(LONG))], "tool_use")
    said, reason = both("long", max_tokens=40)
    assert reason == "max_tokens" and LONG.startswith(said[0][1]["INVALID_JSON"])
    said, _ = both("odd")  # a key twice: clients would differ in what they read
    assert said == [("get_weather", {"INVALID_JSON": '{"city": "C", "city": "D"}'})]
    assert both("one", tools=[])[0] == both("one", tool_choice={"type": "none"})[0]
    assert both("one", tools=[]) == ([(SCRIPTS["one"],)], "end_turn")


@check
def calls_that_are_demanded_come():
    time = {"name": "get_time", "type": "custom", "strict": True, "input_schema": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}}
    for choice in {"type": "any"}, {"type": "tool", "name": "get_time"}:
        tools = [time] if choice["type"] == "any" else [WEATHER, time]
        said, reason = both("plain", tools=tools, tool_choice=choice)
        assert reason == "tool_use" and said[0][0] == "get_time", said
        assert said[0][1]["zone"] in ("UTC", "CET")
    odd = {**time, "input_schema": {"type": "object", "properties": {"n": {"not": {}}}}}
    assert "tools[0].input_schema.properties.n.not" in refused(tools=[odd])


@check
def a_turn_goes_back_as_it_came():
    for script in "two", "one":
        first = tell(script)
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "<|none|>"}
                   for b in first.content if b.type == "tool_use"]
        turn = [{"role": "user", "content": f"<|{script}|>"},
                {"role": "assistant", "content": first.content},
                {"role": "user", "content": [*results, {"type": "text", "text": "<|plain|>"}]}]
        assert blocks(tell("", messages=turn)) == [(SCRIPTS["plain"],)]
        turn[2]["content"] = [*results[:-1], {**results[-1], "is_error": True, "content": [
            {"type": "text", "text": "<|plain|>"}]}]
        assert blocks(tell("", messages=turn)) == [(SCRIPTS["plain"],)]
        # As a chat it would be one assistant message with its calls, and their results.
        calls = [b for b in first.content if b.type == "tool_use"]
        said = "".join(b.text for b in first.content if b.type == "text")
        chat = [{"role": "user", "content": f"<|{script}|>"},
                {"role": "assistant", "content": said, "tool_calls": [
                    {"id": c.id, "type": "function", "function": {
                        "name": c.name, "arguments": json.dumps(c.input)}} for c in calls]},
                *[{"role": "tool", "tool_call_id": c.id,
                   "content": "Error: <|plain|>" if c is calls[-1] else "<|none|>"} for c in calls]]
        tools = [{"type": "function", "function": {
            "name": WEATHER["name"], "description": WEATHER["description"],
            "parameters": WEATHER["input_schema"]}}]
        reply = httpx.post(f"http://127.0.0.1:{SCRIPTED.port}/v1/chat/completions", json={
            "model": "scripted", "messages": chat, "tools": tools, "max_tokens": 9}).json()
        count = TOLD.messages.count_tokens(model="scripted", messages=turn, tools=[WEATHER])
        assert count.input_tokens == reply["usage"]["prompt_tokens"]


@check
def the_answer_goes_on():
    """In a last message that is the assistant's."""
    chat = {"model": MODEL, "seed": 1, "max_tokens": 12, "continue_final_message": True,
            "messages": [{"role": "user", "content": "Hi"},
                         {"role": "assistant", "content": "A b"}]}
    reply = httpx.post(f"http://127.0.0.1:{SERVER.port}/v1/chat/completions", json=chat).json()
    m = ask(chat["messages"], seed=1)
    assert m.content[0].text == reply["choices"][0]["message"]["content"]
    assert "tool_result" in refused(messages=[
        {"role": "user", "content": "a"}, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "x", "name": "f", "input": {}}]}])


@check
def tokens_are_counted():
    system = [{"type": "text", "text": "Be brief."}]
    for more in {}, {"system": "Be brief."}, {"system": system}:
        n = NOISE.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}], **more).input_tokens
        usage = ask(**more).usage
        assert n == usage.input_tokens + usage.cache_read_input_tokens
    messages = [{"role": "user", "content": "<|one|>"}]
    plain = TOLD.messages.count_tokens(model="scripted", messages=messages).input_tokens
    tools = TOLD.messages.count_tokens(model="scripted", messages=messages, tools=[WEATHER],
                                       tool_choice={"type": "auto"}).input_tokens
    assert tools > plain > 5
    refused(path="/count_tokens", max_tokens=5)
    refused(path="/count_tokens", model="other", status=404)
    refused(path="/count_tokens", model=None)
    refused(path="/count_tokens", messages=[])


@check
def schemas_are_kept_to():
    schema = {"type": "object", "properties": {"name": {"type": "string"},
                                               "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for tools in [], [WEATHER]:
        m = tell("json", tools=tools,
                 output_config={"format": {"type": "json_schema", "schema": schema}})
        assert json.loads(m.content[0].text) == {"name": "Ada", "age": 36}
    schema["properties"]["age"]["not"] = {}
    assert "output_config.format.schema.properties.age.not" in refused(
        output_config={"format": {"type": "json_schema", "schema": schema}})


def refused(status=400, path="", client=TOLD, **more):
    fields = {"model": "scripted", "messages": [{"role": "user", "content": "<|one|>"}], **more}
    if not path:
        fields.setdefault("max_tokens", 9)
    r = client._client.post(str(client.base_url).rstrip("/") + "/v1/messages" + path, json=fields)
    e = r.json()
    assert r.status_code == status, (more, r.status_code, r.text[:300])
    assert set(e) == {"type", "error", "request_id"} and e["type"] == "error", e
    assert e["request_id"] == r.headers["request-id"] == r.headers["x-request-id"]
    assert set(e["error"]) == {"type", "message"}, e
    assert e["error"]["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]
    return e["error"]["message"]


@check
def every_wrong_field_is_named():
    for word, more in (
            ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": None}),
            ("max_tokens", {"max_tokens": 10 ** 6}), ("temperature", {"temperature": 3}),
            ("top_p", {"top_p": 0}), ("top_k", {"top_k": -2}), ("stream", {"stream": 1}),
            ("stop_sequences", {"stop_sequences": "a"}),
            ("stop_sequences", {"stop_sequences": [1]}),
            ("stop_sequences", {"stop_sequences": ["a"] * 17}),
            ("stop_sequences", {"stop_sequences": ["a" * 257]}),
            ("system", {"system": 1}), ("system[0]", {"system": [{"type": "image"}]}),
            ("system[1].more", {"system": [{"type": "text", "text": "a"},
                                           {"type": "text", "text": "a", "more": 1}]}),
            ("metadata", {"metadata": "a"}), ("metadata.more", {"metadata": {"more": 1}}),
            ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
            ("thinking", {"thinking": {"type": "sometimes"}}),
            ("cache_control", {"cache_control": 1}), ("container", {"container": "c"}),
            ("context_management", {"context_management": {"edits": []}}),
            ("mcp_servers", {"mcp_servers": [{}]}), ("inference_geo", {"inference_geo": "eu"}),
            ("speed", {"speed": "fast"}), ("output_config", {"output_config": 1}),
            ("output_config.more", {"output_config": {"more": 1}}),
            ("output_config.effort", {"output_config": {"effort": 1}}),
            ("output_config.format", {"output_config": {"format": {"type": "text"}}}),
            ("output_config.format", {"tools": [WEATHER], "output_config": {"format": {
                "type": "json_schema", "schema": {}}}}),
            ("tools", {"tools": {}}), ("tools[0].type", {"tools": [{"type": "bash_20250124"}]}),
            ("tools[1].name", {"tools": [WEATHER, {"name": "a b"}]}),
            ("tools[0].input_schema", {"tools": [{**WEATHER, "input_schema": []}]}),
            ("tools[0].description", {"tools": [{**WEATHER, "description": 1}]}),
            ("tools[0].strict", {"tools": [{**WEATHER, "strict": 1}]}),
            ("tools[0].defer_loading", {"tools": [{**WEATHER, "defer_loading": True}]}),
            ("tool_choice", {"tool_choice": "auto"}),
            ("tool_choice", {"tool_choice": {"type": "x"}}),
            ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "tool"}}),
            ("tool_choice", {"tool_choice": {"type": "any"}}),
            ("tool_choice.name", {"tools": [WEATHER],
                                  "tool_choice": {"type": "auto", "name": "f"}}),
            ("no function 'other'", {"tools": [WEATHER], "tool_choice": {
                "type": "tool", "name": "other"}}),
            ("tool_choice.disable_parallel_tool_use", {"tools": [WEATHER], "tool_choice": {
                "type": "auto", "disable_parallel_tool_use": 1}}),
            ("'n'", {"n": 2}), ("'max_completion_tokens'", {"max_completion_tokens": 2}),
            ("messages", {"messages": None}), ("messages", {"messages": []}),
            ("messages", {"messages": "a"})):
        assert word in refused(**more), (word, more, refused(**more))
    assert "other" in refused(404, model="other")
    assert "model" in refused(model=None)
    assert "output_config.effort" in refused(client=NOISE, model=MODEL,
                                             output_config={"effort": "low"})
    assert "context" in refused(client=NOISE, model=MODEL, messages=[
        {"role": "user", "content": "word " * 5000}])


@check
def every_wrong_message_is_named():
    text = {"type": "text", "text": "a"}
    use = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "x"}
    for word, role, content in (
            ("messages[1].role", "tool", "a"), ("messages[1].role", None, "a"),
            ("messages[1].content", "user", None), ("messages[1].content", "user", 1),
            ("messages[1].content[0].type", "user", [1]),
            ("messages[1].content[1].type", "user", [text, {"type": "image", "source": {}}]),
            ("messages[1].content[0].thinking", "assistant", [{"type": "thinking"}]),
            ("messages[1].content[0].type", "user", [{"type": "thinking", "thinking": "a"}]),
            ("messages[1].content[0]", "user", [{"type": "text"}]),
            ("messages[1].content[1].citations", "user", [text, {**text, "citations": [{}]}]),
            ("messages[1].content[2].type", "user", [text, text, use]),
            ("messages[1].content[0].type", "assistant", [result]),
            ("messages[1].content[0].id", "assistant", [{**use, "id": 1}]),
            ("messages[1].content[0].name", "assistant", [{**use, "name": None}]),
            ("messages[1].content[0].input", "assistant", [{**use, "input": "{}"}]),
            ("messages[1].content[0].caller", "assistant", [{**use, "caller": {"type": "x"}}]),
            ("messages[1].content[0].tool_use_id", "user", [{**result, "tool_use_id": 1}]),
            ("messages[1].content[0].is_error", "user", [{**result, "is_error": "no"}]),
            ("messages[1].content[0].content", "user", [{**result, "content": 1}]),
            ("messages[1].content[0].content[1]", "user", [{**result, "content": [
                text, {"type": "image"}]}]),
            ("messages[1].content[0].more", "user", [{**result, "more": 1}])):
        said = refused(messages=[{"role": "user", "content": "a"},
                                 {"role": role, "content": content}])
        assert word in said, (word, said)
    for message in 1, {"role": "user", "content": "a", "name": "x"}, {"role": "system"}:
        assert "messages[0]" in refused(messages=[message])


@check
def too_long_is_said_as_programs_know_it():
    """They ask with less when they read this."""
    why = refused(client=NOISE, model=MODEL, messages=[{"role": "user", "content": "a b " * 300}])
    assert re.search(r"prompt is too long: \d+ tokens > 255 maximum", why), why
    why = refused(client=NOISE, model=MODEL, max_tokens=256)
    assert re.search(r"`max_tokens` exceed context limit: \d+ \+ 256 > 256", why), why


@check
def errors_are_those_of_the_client():
    try:
        ask(temperature=9)
        raise AssertionError("taken")
    except anthropic.BadRequestError as e:
        assert "temperature" in str(e) and e.request_id.startswith("req-")
    try:
        NOISE.messages.create(model="other", max_tokens=1, messages=[])
        raise AssertionError("taken")
    except (anthropic.NotFoundError, anthropic.BadRequestError):
        pass
    url = f"http://127.0.0.1:{SERVER.port}/v1/messages"
    for body, status in (("", 400), ("{", 400), ("[]", 400), ('{"model": "\\ud800"}', 400),
                         ('{"x": "' + "y" * (3 << 20) + '"}', 413)):
        r = httpx.post(url, content=body, headers={"Content-Type": "application/json"})
        assert r.status_code == status and r.json()["type"] == "error", r.text[:300]
    r = httpx.get(url)
    assert r.status_code == 405 and r.json()["error"]["type"] == "invalid_request_error"
    r = httpx.post(url, content="a", headers={"Content-Type": "text/plain"})
    assert r.status_code == 415 and r.json()["type"] == "error"
    assert "count_tokens" in httpx.post(url + "/batches", json={}).json()["error"]["message"]


@check
def keys():
    made = subprocess.run([*server.BINARY, "key", "new", "alice"], capture_output=True, check=True)
    path = os.path.join(FOLDER.name, "keys")
    with open(path, "wb") as f:
        f.write(made.stderr)
    key = made.stdout.decode().strip()
    with server.Server(MODEL_DIR, "--keys.file", path) as s:
        wish = dict(model=MODEL, max_tokens=2, messages=[{"role": "user", "content": "Hi"}])
        for how in {"api_key": key}, {"api_key": None, "auth_token": key}:
            assert client_of(s, **how).messages.create(**wish).type == "message"
        assert "key=alice" in s.text()
        for how in {"api_key": "zc-wrong"}, {"api_key": None, "auth_token": "zc-wrong"}:
            try:
                client_of(s, **how).messages.create(**wish)
                raise AssertionError("taken")
            except anthropic.AuthenticationError as e:
                assert e.body["error"]["type"] == "authentication_error", e.body
        r = httpx.post(f"http://127.0.0.1:{s.port}/v1/messages", json=wish)
        assert r.status_code == 401 and "x-api-key" in r.json()["error"]["message"]


@check
def a_stream_that_fails_says_so():
    url = f"http://127.0.0.1:{SERVER.port}/v1/messages"
    got = httpx.post(url, json={"model": MODEL, "max_tokens": 200, "stream": True,
                                "ignore_eos": True, "deadline_ms": 8,
                                "messages": [{"role": "user", "content": "Hi"}]}).text
    if "message_stop" in got:
        raise server.Skip("the machine was faster than the deadline")
    event, data = got.strip().split("\n\n")[-1].split("\n")
    error = json.loads(data.removeprefix("data: "))
    assert event == "event: error" and error["type"] == "error", got
    assert error["error"]["type"] == "timeout_error" and "deadline" in error["error"]["message"]


@check
def the_document_has_it():
    import jsonschema
    document = httpx.get(f"http://127.0.0.1:{SCRIPTED.port}/openapi.json").json()

    def fits(value, schema):
        schema = {**document, "$ref": f"#/components/schemas/{schema}"}
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    url = f"http://127.0.0.1:{SCRIPTED.port}/v1/messages"
    asked = {"model": "scripted", "messages": [{"role": "user", "content": "<|between|>"}],
             "tools": [WEATHER], "temperature": 0, "max_tokens": 400, "system": "x",
             "stop_sequences": ["xyz"], "metadata": {"user_id": "a"}}
    reply = httpx.post(url, json=asked).json()
    assert fits(asked, "MessagesRequest") and fits(reply, "MessagesReply"), reply
    assert fits(httpx.post(url, json={}).json(), "MessagesError")
    for field, value, may in (("max_tokens", None, False), ("n", 1, False), ("unknown", None, True),
                              ("tools", [{"type": "bash_20250124", "name": "b"}], False),
                              ("messages", [], False), ("stop_sequences", "a", False),
                              ("messages", [{"role": "tool", "content": "a"}], False),
                              ("thinking", {"type": "sometimes"}, False),
                              ("thinking", {"type": "disabled"}, True),
                              ("system", [{"type": "text", "text": "a"}], True),
                              ("tool_choice", {"type": "any"}, True),
                              ("tool_choice", "auto", False), ("speed", "fast", False)):
        assert fits({**asked, field: value}, "MessagesRequest") == may, (field, value)
        got = httpx.post(url, json={**asked, field: value})
        assert (got.status_code == 200) == may, (field, value, got.text)
    count = {k: asked[k] for k in ("model", "messages", "tools", "system")}
    assert fits(count, "CountRequest") and not fits(asked, "CountRequest")


failed = server.run(checks)
SERVER.end()
SCRIPTED.end()
FOLDER.cleanup()
sys.exit(failed != 0)
