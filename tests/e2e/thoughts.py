"""Thoughts, told apart from what is said, in all dialects: by the OpenAI and Anthropic clients
against `zigcuda serve` with models that think as the families do.

usage: thoughts.py [FLAGS of serve]   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
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

# What Qwen 3 and its like do with earlier thoughts, and with enable_thinking.
TEMPLATE = """{%- for m in messages %}{{ m.role }}:
{%- if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}
{%- for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %} {{ m.content }}
{% endfor %}{{ messages[-1].content if add_generation_prompt }}
{%- if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{# tools <tool_call> #}"""
OPEN = "{{ messages[-1].content }}<think>{# </think> #}"
MAGISTRAL = "{{ messages[-1].content }}{# [THINK] [/THINK] #}"
PLAIN = "{{ messages[-1].content }}"
THOUGHT, SAID = "I see <tool_call>; a < b.\n\nSo é", "Yes, it is.\n"
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
SCRIPTS = {
    "both": f"<think>\n{THOUGHT}\n</think>\n\n{SAID}",
    "call": f"<think>Where, then?</think>\n{CALL}",
    "never": "<think>\nI go on and on",
    "empty": "<think>\n\n</think>\n\nAt once.",
    "none": "No <think> here</think>, and not </think> there.",
    "json": '<think>\nNow {"a": it is\n</think>\n\n{"n": 12}',
    "bare": '{"n": 34}',
}
WEATHER = {"type": "function", "function": {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
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


SERVER = serve("thinks", TEMPLATE, SCRIPTS)
URL = f"http://127.0.0.1:{SERVER.port}"
OPENAI = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0,
                       http_client=httpx.Client(timeout=60))
ANTHROPIC = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


def ask(script, stream=False, client=OPENAI, model="thinks", **more):
    """Thoughts, content, names of calls, why it ended, tokens that were thought."""
    extra = {k: more.pop(k) for k in ("thinking_token_budget", "include_reasoning",
                                      "reasoning_format", "chat_template_kwargs", "min_tokens")
             if k in more}
    more = {"max_tokens": 300, "temperature": 0} | more
    if stream:
        more["stream_options"] = {"include_usage": True}
    reply = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": f"<|{script}|>"}], stream=stream,
        extra_body=extra, **more)
    if not stream:
        choice, used = reply.choices[0], reply.usage
        message = choice.message
        calls = [c.function.name for c in message.tool_calls or []]
        return (getattr(message, "reasoning_content", None), message.content or "", calls,
                choice.finish_reason, used.completion_tokens_details.reasoning_tokens)
    thought, said, calls, finish = "", "", [], None
    for chunk in reply:
        if not chunk.choices:
            used = chunk.usage
            continue
        choice = chunk.choices[0]
        delta = choice.delta
        assert not (said or calls) or not getattr(delta, "reasoning_content", None)
        thought += getattr(delta, "reasoning_content", None) or ""
        said += delta.content or ""
        calls += [c.function.name for c in delta.tool_calls or [] if c.function.name]
        finish = choice.finish_reason or finish
    return (thought or None, said, calls, finish,
            used.completion_tokens_details.reasoning_tokens)


def both(script, **more):
    whole, streamed = ask(script, **more), ask(script, True, **more)
    assert whole == streamed, (whole, streamed)
    return whole[:4]


@check
def thoughts_are_told_apart():
    assert both("both") == (THOUGHT, SAID, [], "stop"), both("both")
    assert both("empty") == (None, "At once.", [], "stop"), both("empty")
    assert both("none") == (None, SCRIPTS["none"], [], "stop"), both("none")
    assert both("never") == ("I go on and on", "", [], "stop"), both("never")
    assert both("call", tools=[WEATHER]) == ("Where, then?", "", ["get_weather"], "tool_calls")
    assert both("both", tools=[WEATHER]) == (THOUGHT, SAID, [], "stop")
    assert both("both", include_reasoning=False) == (None, SAID, [], "stop")
    assert both("both", reasoning_format="none") == (None, SCRIPTS["both"], [], "stop")
    assert both("both", reasoning_format="deepseek") == (THOUGHT, SAID, [], "stop")


@check
def their_tokens_are_counted():
    thoughts = ask("never")[4]
    used = OPENAI.chat.completions.create(
        model="thinks", messages=[{"role": "user", "content": "<|never|>"}], temperature=0,
        max_tokens=300).usage
    assert 0 < used.completion_tokens - thoughts <= 4, (used, thoughts)  # the mark, and the end
    assert ask("none")[4] == 0 and ask("empty")[4] > 0


@check
def logprobs_are_of_all_tokens():
    plain = {"model": "thinks", "messages": [{"role": "user", "content": "<|both|>"}],
             "logprobs": True, "temperature": 0}
    whole = OPENAI.chat.completions.create(**plain).choices[0].logprobs.content
    streamed = [t for c in OPENAI.chat.completions.create(stream=True, **plain)
                for t in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])]
    assert [t.token for t in whole] == [t.token for t in streamed]
    assert "".join(t.token for t in whole) == SCRIPTS["both"]


@check
def what_has_a_form_comes_behind_them():
    assert both("json", response_format=FORMAT) == (
        'Now {"a": it is', '{"n": 12}', [], "stop"), both("json", response_format=FORMAT)
    assert both("bare", response_format=FORMAT) == (None, '{"n": 34}', [], "stop")
    assert both("call", tools=[WEATHER], tool_choice="required") == (
        "Where, then?", "", ["get_weather"], "tool_calls")
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    assert both("call", tools=[strict])[:3] == ("Where, then?", "", ["get_weather"])


@check
def a_budget_ends_them():
    for n in (0, 1, 3):
        thought, said, _, finish, used = ask("json", thinking_token_budget=n,
                                             response_format=FORMAT)
        assert finish == "stop" and isinstance(json.loads(said)["n"], int), said
        assert len(thought or "") <= 14 * (n + 1), (n, thought)  # the mark's token may have some
        assert used <= 3 + n + len("</think>"), used  # the mark is spelled: no token is like it
    assert both("json", thinking_token_budget=200, response_format=FORMAT)[0] == 'Now {"a": it is'
    thought, said, _, finish, _ = ask("never", thinking_token_budget=2, max_tokens=60)
    assert thought and "I go on and on".startswith(thought) and finish == "length", thought
    assert both("both", thinking_token_budget=200) == (THOUGHT, SAID, [], "stop")
    assert both("none", thinking_token_budget=0) == (None, SCRIPTS["none"], [], "stop")
    try:
        ask("both", thinking_token_budget=5, min_tokens=2)
        raise AssertionError("taken")
    except openai.BadRequestError as e:
        assert e.param == "min_tokens", e


def prompt(messages, route="/tokenize", **more):
    body = {"model": "thinks", "messages": messages, "add_special_tokens": False, **more}
    ids = httpx.post(URL + route, json=body).json()["tokens"]
    return httpx.post(URL + "/detokenize", json={"model": "thinks", "tokens": ids}).json()["prompt"]


@check
def they_go_back_to_the_template():
    user, tail = {"role": "user", "content": "Hm?"}, "assistant:(why) so\nuser: Hm?"
    for key in ("reasoning_content", "reasoning"):
        turn = [user, {"role": "assistant", "content": "so", key: "why"}, user]
        assert tail in prompt(turn), prompt(turn)
    for other in (None, ""):
        turn[1]["reasoning_content"] = other
        assert tail in prompt(turn), prompt(turn)
    turn[1]["reasoning_content"] = "why"
    assert tail in prompt(turn)
    assert "assistant: so" in prompt([user, {"role": "assistant", "content": "so",
                                            "reasoning_content": ""}, user])
    first = OPENAI.chat.completions.create(
        model="thinks", temperature=0, messages=[{"role": "user", "content": "<|both|>"}])
    sent = first.choices[0].message.model_dump()
    assert f"({THOUGHT}) {SAID}" in prompt([user, sent, user])


@check
def thinking_can_be_switched():
    user = [{"role": "user", "content": "x"}]
    off = "<think>\n\n</think>\n\n"
    assert not prompt(user).endswith(off)
    assert prompt(user, chat_template_kwargs={"enable_thinking": False}).endswith(off)
    counted = [ANTHROPIC.messages.count_tokens(model="thinks", messages=user, **more).input_tokens
               for more in ({}, {"thinking": {"type": "disabled"}},
                            {"thinking": {"type": "enabled", "budget_tokens": 1024}})]
    assert counted[1] > counted[0] == counted[2], counted

    def tokens(**more):
        return OPENAI.chat.completions.create(model="thinks", messages=user, max_tokens=1,
                                              **more).usage.prompt_tokens
    assert tokens(reasoning_effort="none") > tokens()
    try:
        tokens(reasoning_effort="low")
        raise AssertionError("taken")
    except openai.BadRequestError as e:
        assert e.param == "reasoning_effort" and '"none"' in e.message, e


@check
def prompts_can_begin_them():
    with serve("open", OPEN, {"open": "xx<think>since\n</think>\n\nso"}, ("<think>",)) as s:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none",
                               http_client=httpx.Client(timeout=60))
        for stream in (False, True):
            assert ask("open", stream, client, "open")[:4] == ("since", "so", [], "stop")


@check
def marks_may_be_special_tokens():
    script = {"one": "[THINK]hm[/THINK]yes"}
    with serve("magistral", MAGISTRAL, script, ("[/THINK]",)) as s:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none",
                               http_client=httpx.Client(timeout=60))
        for stream in (False, True):
            assert ask("one", stream, client, "magistral")[:4] == ("hm", "yes", [], "stop")


@check
def a_model_that_does_not_think_says_so():
    with serve("plain", PLAIN, {"both": SCRIPTS["both"]}) as s:
        url = f"http://127.0.0.1:{s.port}"
        client = openai.OpenAI(base_url=url + "/v1", api_key="none",
                               http_client=httpx.Client(timeout=60))
        assert ask("both", False, client, "plain")[:2] == (None, SCRIPTS["both"])
        assert ask("both", False, client, "plain", thinking_token_budget=1)[1] == SCRIPTS["both"]
        talk = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
        for kind, fine in (("adaptive", True), ("disabled", True), ("enabled", False)):
            thinking = {"type": kind} | ({} if fine else {"budget_tokens": 1024})
            try:
                talk.messages.create(model="plain", max_tokens=9, thinking=thinking,
                                     messages=[{"role": "user", "content": "<|both|>"}])
                assert fine, kind
            except anthropic.BadRequestError as e:
                assert not fine and "knows of no thoughts" in str(e), e


@check
def responses_have_items_of_reasoning():
    def create(script, **more):
        more = {"temperature": 0, "max_output_tokens": 300} | more
        return OPENAI.responses.create(model="thinks", input=f"<|{script}|>", **more)
    flat = {"type": "function", **WEATHER["function"]}
    for script, thought, kind, more in (("both", THOUGHT, "message", {}),
                                        ("call", "Where, then?", "function_call",
                                         {"tools": [flat]})):
        whole = create(script, **more)
        first, second = whole.output
        assert first.type == "reasoning" and first.id.startswith("rs_") and first.summary == []
        assert [(c.type, c.text) for c in first.content] == [("reasoning_text", thought)]
        assert second.type == kind and first.status == second.status == "completed"
        assert whole.usage.output_tokens_details.reasoning_tokens > 0
        seen, text = [], {"reasoning_text": "", "output_text": "", "function_call_arguments": ""}
        for e in create(script, stream=True, **more):
            seen.append(e.type)
            for part in text:
                if e.type == f"response.{part}.delta":
                    text[part] += e.delta
            if e.type == "response.reasoning_text.done":
                assert e.text == text["reasoning_text"] == thought and e.content_index == 0
        assert e.type == "response.completed"
        assert [i.type for i in e.response.output] == ["reasoning", kind]
        assert e.response.output[0].content[0].text == thought
        assert e.response.usage == whole.usage
        begin = seen.index("response.output_item.added")
        assert seen[begin:begin + 2] == ["response.output_item.added",
                                         "response.content_part.added"]
        end = seen.index("response.reasoning_text.done")
        assert seen[end:end + 4] == ["response.reasoning_text.done", "response.content_part.done",
                                     "response.output_item.done", "response.output_item.added"]
    assert whole.output_text == "" and create("both").output_text == SAID
    cut = create("never", max_output_tokens=3)
    assert [i.type for i in cut.output] == ["reasoning"] and cut.status == "incomplete"
    # With log probabilities: those of what is said, whole and streamed.
    more = {"include": ["message.output_text.logprobs"]}
    whole = create("both", **more).output[1].content[0].logprobs
    streamed = [t for e in create("both", stream=True, **more)
                if e.type == "response.output_text.delta" for t in e.logprobs]
    assert [t.token for t in whole] == [t.token for t in streamed]
    assert SAID in "".join(t.token for t in whole) and THOUGHT[:9] not in "".join(
        t.token for t in whole)

    # They come back as input, and a conversation keeps them.
    items = [i.model_dump() for i in create("both").output]
    again = OPENAI.responses.create(model="thinks", max_output_tokens=1, input=[
        {"role": "user", "content": "a"}, *items, {"role": "user", "content": "b"}])
    less = OPENAI.responses.create(model="thinks", max_output_tokens=1, input=[
        {"role": "user", "content": "a"}, items[1], {"role": "user", "content": "b"}])
    assert again.usage.input_tokens > less.usage.input_tokens
    for bad in ({"content": "text"}, {"content": [{"type": "text", "text": "x"}]},
                {"content": [{"type": "reasoning_text"}]}):
        reply = httpx.post(URL + "/v1/responses", json={
            "model": "thinks", "input": [{"type": "reasoning", "summary": [], **bad}]})
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"].startswith("input[0]"), reply.text


@check
def a_conversation_keeps_them():
    from websockets.sync.client import connect
    with connect(URL.replace("http", "ws") + "/v1/responses") as ws:
        def turn(said, **more):
            ws.send(json.dumps({"type": "response.create", "model": "thinks", "temperature": 0,
                                "max_output_tokens": 200, "input": said, **more}))
            while True:
                e = json.loads(ws.recv())
                assert e["type"] != "error", e
                if e["type"] == "response.completed":
                    return e["response"]
        first = turn("<|both|>")
        second = turn("<|none|>", previous_response_id=first["id"])
        without = turn([{"role": "user", "content": "<|both|>"}, first["output"][1],
                        {"role": "user", "content": "<|none|>"}])
        assert second["usage"]["input_tokens"] > without["usage"]["input_tokens"]


@check
def messages_have_blocks_of_thinking():
    tool = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}

    def create(script, **more):
        more = {"max_tokens": 300, "extra_body": {"temperature": 0}} | more
        return ANTHROPIC.messages.create(
            model="thinks", messages=[{"role": "user", "content": f"<|{script}|>"}], **more)
    for script, thought, kind, more in (
            ("both", THOUGHT, "text", {}), ("call", "Where, then?", "tool_use", {"tools": [tool]}),
            ("both", THOUGHT, "text", {"thinking": {"type": "enabled", "budget_tokens": 1024}})):
        whole = create(script, **more)
        assert [b.type for b in whole.content] == ["thinking", kind], whole
        assert whole.content[0].thinking == thought and whole.content[0].signature == ""
        with ANTHROPIC.messages.stream(
                model="thinks", max_tokens=300, extra_body={"temperature": 0}, **more,
                messages=[{"role": "user", "content": f"<|{script}|>"}]) as stream:
            kinds = [e.delta.type for e in stream if e.type == "content_block_delta"]
            streamed = stream.get_final_message()
        assert [b.type for b in streamed.content] == ["thinking", kind]
        assert streamed.content[0].thinking == thought and kinds[0] == "thinking_delta"
        assert streamed.usage.output_tokens == whole.usage.output_tokens
        assert streamed.stop_reason == whole.stop_reason
    assert [b.type for b in create("empty").content] == ["text"]
    short = create("both", thinking={"type": "enabled", "budget_tokens": 1}, max_tokens=30)
    assert THOUGHT.startswith(short.content[0].thinking) and short.content[0].thinking != THOUGHT

    blocks = [b.model_dump() for b in create("both").content]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": blocks},
             {"role": "user", "content": "b"}]
    with_thoughts = ANTHROPIC.messages.count_tokens(model="thinks", messages=turns).input_tokens
    turns[1] = {"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": "x" * 300}, blocks[1]]}
    without = ANTHROPIC.messages.count_tokens(model="thinks", messages=turns).input_tokens
    assert with_thoughts > without, (with_thoughts, without)
    for bad in ({"type": "sometimes"}, {"type": "enabled", "budget_tokens": "x"}, []):
        reply = httpx.post(URL + "/v1/messages", json={
            "model": "thinks", "max_tokens": 1, "messages": turns, "thinking": bad})
        assert reply.status_code == 400 and "thinking" in reply.text, reply.text


failed = server.run(checks)
SERVER.end()
FOLDER.cleanup()
sys.exit(failed != 0)
