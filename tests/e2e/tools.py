"""Tools, by the OpenAI client against `zigcuda serve` with models that write calls as the families
do.

usage: tools.py   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import tempfile

import jsonschema
import openai

import scripted
import server

try:
    import httpx2 as httpx
except ImportError:
    import httpx

# What transformers does with messages that have calls and results, and with tools.
TEMPLATE = """{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}{%- for m in messages %}{{ m.role }}:
{%- for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments.city }}]
{%- endfor %}{{ m.tool_call_id }} {{ m.content }}
{% endfor %}{{ messages[-1].content }}{# MARK #}"""
MARKS = {"hermes": "<tool_call>", "mistral": "[TOOL_CALLS]", "mistral11": "[TOOL_CALLS] [ARGS]",
         "phi": "<|tool_call|>",
         "llama": 'in the format {"name": function name, "parameters": dictionary of}',
         "xml": "<tool_call> <function=NAME> <parameter=KEY>", "glm": "<tool_call>NAME <arg_key>",
         "minicpm": '<function name="NAME"> <param name="KEY">'}
XML = ("xml", "glm", "minicpm")
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}}}
LONG = json.dumps({"text": "".join(f"line {i}: \"{i * 7919}\" é\n" for i in range(60))})
TYPES = {"s": "12", "o": "null", "n": "[1,\n {\"a\": \"€\"}]", "b": "True", "u": "no \"JSON\"",
         "e": "1", "r": "true", "long": LONG.replace("\\u00e9", "€")}
TYPED = {"type": "function", "function": {"name": "typed", "parameters": {
    "type": "object", "$defs": {"word": {"enum": ["true", "false"]}}, "properties": {
        "s": {"type": "string"}, "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "n": {"type": "array"}, "b": {"type": "boolean"}, "e": {"enum": ["1", "2"]},
        "r": {"$ref": "#/$defs/word"}, "long": {"type": "string"}}}}}


def in_xml(family, name, parameters, between="\n"):
    """A call as the families that write XML do."""
    if family == "glm":
        text = "".join(f"{between}<arg_key>{k}</arg_key>{between}<arg_value>{v}</arg_value>"
                       for k, v in parameters.items())
        return f"<tool_call>{name}{text}{between}</tool_call>"
    if family == "minicpm":
        text = "".join(f'<param name="{k}"><![CDATA[{v}]]></param>' if set("<&\n") & set(v)
                       else f'{between}<param name="{k}">{v}</param>'
                       for k, v in parameters.items())
        return f'<function name="{name}">{text}</function>'
    text = "".join(f"{between}<parameter={k}>\n{v}\n</parameter>" for k, v in parameters.items())
    return f"<tool_call>{between}<function={name}>{text}{between}</function>{between}</tool_call>"


def xml_scripts(family):
    def weather(city, between="\n"):
        return in_xml(family, "get_weather", {"city": city}, between)
    return {
        "one": "\n\n" + weather("京都"),
        "thinks": "<think>\nOh </tool_call>\n</think>\n\n" + weather("C"),
        "bare": weather("京<都> \n", ""),
        "two": "I ask twice.\n" + weather("A") + "\n" + weather("B", "") + "\n",
        "none": "No <function> for <tool> that, nor <tool_call> this; a < b.",
        "broken": f"First {weather('7')[:12]}get_weather no, then.</tool_call>",
        "typed": in_xml(family, "typed", TYPES),
        "wrong": "So: " + in_xml(family, "get_time", {"zone": "Moon"}),
        "json": '{"n": 12, "s": "<tool_call>get_weather<function=get_weather>"}',
    }


SCRIPTS = {
    **{family: xml_scripts(family) for family in XML},
    "hermes": {
        "one": '\n\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n'
               "</tool_call>",
        "two": 'I ask twice.\n<tool_call>{"name": "get_weather", "arguments": {"city": "A"}}'
               '</tool_call>\n<tool_call>{"name":"get_weather","arguments":{"city":"B"}}'
               "</tool_call>",
        "none": "No tool for <tool> that, nor <tool_call> this; a < b.",
        "broken": 'First <tool_call>{"name": 7, "arguments": {}}</tool_call> then.',
        "wrong": 'So: <tool_call>\n{"name": "get_time", "arguments": {"zone": 7}}\n</tool_call>',
        "long": f'<tool_call>{{"name": "write", "arguments": {LONG}}}</tool_call>',
        "bare": '<tool_call>{"name": "get_weather", "arguments": {"city": "Köln"}}</tool_call>',
        "json": ' {"n": 12, "s": "<tool_call>{"}',
    },
    "mistral": {"one": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}}]'},
    "mistral11": {"one": 'Sure.[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}'},
    "phi": {"one": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}}]'
                   "<|/tool_call|>"},
    "parts": {"one": '<function name="get_weather"><param name="city">Oslo</param></function>'},
    "llama": {"one": '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
              "text": 'It is {"name": "get_weather", "parameters": {}}.'},
}
SPECIAL = {"mistral": ("[TOOL_CALLS]",), "mistral11": ("[TOOL_CALLS]",),
           "phi": ("<|tool_call|>",), "parts": ("<function", "</function>", "<param")}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {
    "type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
    "required": ["n", "s"]}}}
FOLDER = tempfile.TemporaryDirectory()
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


class Model:
    """A server of its own with the scripts of a family; of several choices the first is read."""

    def __init__(self, family, template=None):
        folder = os.path.join(FOLDER.name, family)
        os.makedirs(folder, exist_ok=True)
        scripted.make(folder, template or TEMPLATE.replace("MARK", MARKS[family]),
                      SCRIPTS.get(family, {"one": "Hello."}), SPECIAL.get(family, ()))
        self.server, self.name = server.Server(folder), family
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0,
                                    http_client=httpx.Client(timeout=60))

    def ask(self, script, stream=False, **more):
        """Content, calls as (id, name, arguments), finish reason; streamed ones put together."""
        more = {"tools": [WEATHER], "max_tokens": 900, "temperature": 0} | more
        messages = more.pop("messages", [{"role": "user", "content": f"<|{script}|>"}])
        reply = self.client.chat.completions.create(model=self.name, messages=messages,
                                                    stream=stream, **more)
        if not stream:
            choice = reply.choices[0]
            calls = [(c.id, c.function.name, c.function.arguments)
                     for c in choice.message.tool_calls or []]
            return choice.message.content, calls, choice.finish_reason
        text, calls, finish = "", [], None
        for chunk in reply:
            choice = chunk.choices[0]
            if choice.index:
                continue
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for c in choice.delta.tool_calls or []:
                if c.index == len(calls):
                    assert c.id and c.type == "function" and c.function.name
                    calls.append((c.id, c.function.name, ""))
                id, name, arguments = calls[c.index]
                calls[c.index] = (id, name, arguments + c.function.arguments)
        return text or None, calls, finish

    def both(self, script, **more):
        """Whole and streamed say the same but for ids, which are no two alike."""
        whole, streamed = self.ask(script, **more), self.ask(script, True, **more)
        assert strip(whole) == strip(streamed), f"{whole} {streamed}"
        ids = [c[0] for c in whole[1] + streamed[1]]
        assert len(set(ids)) == len(ids) and all(len(i) == 9 and i.isalnum() for i in ids), ids
        return strip(whole)

    def refused(self, param, **more):
        try:
            self.ask("one", **more)
        except openai.BadRequestError as e:
            assert e.param == param, e
            return e.message
        raise AssertionError(f"taken: {more}")

    def __enter__(self):
        return self

    def __exit__(self, *how):
        self.server.__exit__(*how)


def strip(answer):
    text, calls, finish = answer
    return text, [(name, arguments) for _, name, arguments in calls], finish


@check
def every_format_is_read():
    for family in ("mistral", "mistral11", "phi", "llama"):
        with Model(family) as m:
            want = ("Sure." if family == "mistral11" else None,
                    [("get_weather", '{"city": "Oslo"}')], "tool_calls")
            assert m.both("one") == want, (family, m.both("one"))
            if family == "llama":
                assert m.both("text") == (SCRIPTS[family]["text"], [], "stop")
            text, calls, finish = m.ask("one", tools=openai.NOT_GIVEN)
            assert not calls and finish == "stop" and "get_weather" in text


@check
def marks_have_special_tokens_in_them():
    """As MiniCPM 5's may; without tools none is shown."""
    with Model("parts", TEMPLATE.replace("MARK", MARKS["minicpm"])) as m:
        oslo = [("get_weather", '{"city": "Oslo"}')]
        assert m.both("one") == (None, oslo, "tool_calls"), m.both("one")
        assert m.both("one", tool_choice="required")[1] == oslo
        text, calls, finish = m.ask("one", tools=openai.NOT_GIVEN)
        assert not calls and "<function" not in (text or ""), text


@check
def calls_come_whole_and_streamed():
    with Model("hermes") as m:
        assert m.both("one") == (None, [("get_weather", '{"city": "Zürich"}')], "tool_calls")
        two = [("get_weather", '{"city": "A"}'), ("get_weather", '{"city":"B"}')]
        assert m.both("two") == ("I ask twice.", two, "tool_calls")
        assert m.both("two", parallel_tool_calls=False) == ("I ask twice.", two[:1], "tool_calls")
        for script in ("none", "broken"):
            assert m.both(script) == (SCRIPTS["hermes"][script], [], "stop"), m.both(script)
        text, calls, finish = m.both("long")
        assert (text, finish) == (None, "tool_calls") and calls == [("write", LONG)]
        assert json.loads(calls[0][1]) == json.loads(LONG)
        text, calls, finish = m.both("long", max_tokens=40)
        assert finish == "length" and LONG.startswith(calls[0][1]) and calls[0][1]
        assert m.both("two", n=2, max_tokens=900) == ("I ask twice.", two, "tool_calls")


@check
def xml_becomes_arguments():
    """By the types of the schema, whole and streamed; unfinished where tokens run out."""
    for family in XML:
        with Model(family) as m:
            kyoto = [("get_weather", '{"city": "京都"}')]
            assert m.both("one") == (None, kyoto, "tool_calls"), m.both("one")
            two = [("get_weather", '{"city": "A"}'), ("get_weather", '{"city": "B"}')]
            assert m.both("two") == ("I ask twice.", two, "tool_calls"), m.both("two")
            assert m.both("two", n=2) == ("I ask twice.", two, "tool_calls")
            assert m.both("two", parallel_tool_calls=False)[1] == two[:1]
            for script in ("none", "broken"):
                assert m.both(script) == (SCRIPTS[family][script], [], "stop"), m.both(script)
            text, calls, finish = m.both("typed", tools=[WEATHER, TYPED])
            assert (text, calls[0][0], finish) == (None, "typed", "tool_calls")
            typed = {**TYPES, "o": None, "n": [1, {"a": "€"}], "b": True}
            assert json.loads(calls[0][1]) == typed, calls
            text, others, finish = m.both("typed")  # of no function that is known
            assert json.loads(others[0][1]) == {**typed, "s": 12, "e": 1, "r": True,
                                                "long": json.loads(TYPES["long"])}
            text, part, finish = m.both("typed", tools=[TYPED], max_tokens=150)
            assert finish == "length" and calls[0][1].startswith(part[0][1]), part
            assert len(part[0][1]) > 300
            assert "".join(m.ask("one", tools=openai.NOT_GIVEN)[0]) == SCRIPTS[family]["one"]


@check
def xml_comes_behind_thoughts():
    for family in XML:
        with Model(family, TEMPLATE.replace("MARK", MARKS[family] + " <think> </think>")) as m:
            for more in {}, {"tool_choice": "required"}:
                text, calls, finish = m.both("thinks", **more)
                assert (text, calls) == (None, [("get_weather", '{"city": "C"}')]), (text, calls)


@check
def xml_in_other_dialects():
    schema = TYPED["function"]["parameters"]
    typed = {**TYPES, "o": None, "n": [1, {"a": "€"}], "b": True}
    for family in XML:
        with Model(family) as m:
            ask = {"model": m.name, "max_tokens": 900}
            reply = httpx.post(m.url + "/v1/messages", json={
                **ask, "messages": [{"role": "user", "content": "<|typed|>"}],
                "tools": [{"name": "typed", "input_schema": schema}]}, timeout=60).json()
            assert [(b["name"], b["input"]) for b in reply["content"]] == [("typed", typed)], reply
            ask["max_output_tokens"] = ask.pop("max_tokens")
            reply = httpx.post(m.url + "/v1/responses", json={
                **ask, "input": "<|typed|>",
                "tools": [{"type": "function", "name": "typed", "parameters": schema}]},
                timeout=60).json()
            assert json.loads(reply["output"][0]["arguments"]) == typed, reply


@check
def a_turn_in_xml_goes_back():
    """By templates that are written as those of Qwen 3 Coder and GLM 4.5 are."""
    here = os.path.dirname(os.path.abspath(__file__))
    for family, style in zip(XML, ("qwen3_coder", "glm45")):
        with open(os.path.join(here, "..", "template", "styles", style + ".jinja")) as f:
            template = f.read()
        with Model(family, template + "{{ messages[-1].content }}") as m:
            args = {"city": "京都 <b>", "n": [1, None], "o": {"a": "\n"}}
            call = {"id": "abcdefghi", "type": "function", "function": {
                "name": "get_weather", "arguments": json.dumps(args)}}
            turn = [{"role": "user", "content": "?"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "abcdefghi", "content": "<|one|>"}]
            body = {"model": m.name, "messages": turn, "tools": [WEATHER],
                    "add_special_tokens": False}
            ids = httpx.post(m.url + "/tokenize", json=body).json()["tokens"]
            prompt = httpx.post(m.url + "/detokenize",
                                json={"model": m.name, "tokens": ids}).json()["prompt"]
            texts = {"city": "京都 <b>", "n": "[1, null]", "o": '{"a": "\\n"}'}
            assert in_xml(family, "get_weather", texts) in prompt, ascii(prompt)
            assert m.both("", messages=turn)[1] == [("get_weather", '{"city": "京都"}')]


@check
def strings_of_tools_have_a_limit():
    with Model("xml", "{# <parameter= tools #}{{ messages[-1].content }}") as m:
        def of(n, schema):
            return [tool(parameters={"type": "object",
                                     "properties": {f"p{i}": schema for i in range(n)}})]
        assert m.both("one", tools=of(4096, {"type": "string"}))[2] == "tool_calls"
        assert "4096" in m.refused("tools", tools=of(4097, {"type": "string"}))
        assert m.both("one", tools=of(4097, {"type": "number"}))[2] == "tool_calls"
        both = {"anyOf": [{"$ref": "#/$defs/a"}] * 2}
        for n, fits in ((1, True), (2000, False)):
            loop = [tool(parameters={**of(n, both)[0]["function"]["parameters"],
                                     "$defs": {"a": both}})]
            if fits:
                assert m.both("one", tools=loop)[2] == "tool_calls"
            else:
                assert "65536" in m.refused("tools", tools=loop)


@check
def logprobs_stay_those_of_tokens():
    with Model("hermes") as m:
        plain = {"model": m.name, "messages": [{"role": "user", "content": "<|two|>"}],
                 "logprobs": True, "temperature": 0}

        def tokens(stream, **more):
            asked = {**plain, "stream": stream, **more}
            reply = m.client.chat.completions.create(**asked)
            chunks = reply if stream else [reply]
            return [e.token for c in chunks if c.choices[0].logprobs
                    for e in c.choices[0].logprobs.content or []]
        whole = tokens(False, tools=[WEATHER])
        assert whole == tokens(True, tools=[WEATHER]) and len(whole) > 5
        assert "".join(whole) == SCRIPTS["hermes"]["two"]


@check
def a_turn_goes_back_as_it_came():
    """Tools and calls reach the template; results of tools are answered."""
    with Model("hermes") as m:
        first = m.client.chat.completions.create(
            model=m.name, tools=[WEATHER], messages=[{"role": "user", "content": "<|one|>"}])
        message = first.choices[0].message
        call = message.tool_calls[0]
        turn = [{"role": "user", "content": "<|one|>"}, message.model_dump(),
                {"role": "tool", "tool_call_id": call.id, "content": "<|none|>"}]
        assert m.both("none", messages=turn)[0] == SCRIPTS["hermes"]["none"]
        # As clients have it that put it together from a stream, and others.
        again = {**call.model_dump(), "index": 0, "provider_specific_fields": None}
        for calls in [again], [{**again, "function": {**again["function"], "thought": ""}}]:
            of_stream = {"role": "assistant", "tool_calls": calls}
            assert m.both("none", messages=[turn[0], of_stream, turn[2]])[1] == []
        m.refused("messages[1].tool_calls", messages=[
            turn[0], {"role": "assistant", "tool_calls": [{**again, "more": 1}]}, turn[2]])

        def text(**body):
            body = {"model": m.name, "messages": turn, "add_special_tokens": False, **body}
            ids = httpx.post(m.url + "/tokenize", json=body).json()["tokens"]
            return httpx.post(m.url + "/detokenize",
                              json={"model": m.name, "tokens": ids}).json()["prompt"]
        prompt = text(tools=[WEATHER])
        assert prompt.startswith(f"TOOLS {json.dumps([WEATHER])}\n"), prompt
        assert f"assistant:[{call.id} get_weather Zürich]" in prompt, prompt
        assert f"tool:{call.id} " in prompt and not text().startswith("TOOLS")


@check
def choices_of_tools():
    with Model("hermes") as m:
        text, calls, finish = m.both("one", tool_choice="none")
        assert text == SCRIPTS["hermes"]["one"] and (calls, finish) == ([], "stop")
        assert m.both("one", tool_choice="auto")[2] == "tool_calls"
        assert m.both("one", tools=[])[2] == "stop"
        named = {"type": "function", "function": {"name": "get_weather"}}
        assert "get_weather" in m.refused("tool_choice", tool_choice=named, tools=[TIME])
        for choice in ("any", {"type": "allowed_tools"}, {"type": "function"}):
            m.refused("tool_choice", tool_choice=choice)
        m.refused("tool_choice", tool_choice="required", tools=[])


def allow(mode, *tools):
    named = [{"type": "function", "function": {"name": t["function"]["name"]}} for t in tools]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


@check
def tools_that_are_allowed_are_all_there_are():
    with Model("hermes") as m:
        want = m.both("one", tools=[TIME], tool_choice="required")
        assert m.both("one", tools=[WEATHER, TIME], tool_choice=allow("required", TIME)) == want
        assert want[1][0][0] == "get_time" and want[2] == "tool_calls", want
        assert m.both("one", tools=[TIME, WEATHER], tool_choice=allow("auto", WEATHER)) == \
            m.both("one", tools=[WEATHER])
        assert "get_time" in m.refused("tool_choice", tools=[WEATHER],
                                       tool_choice=allow("auto", WEATHER, TIME))
        assert "512" in m.refused("tool_choice", tools=[WEATHER] * 513,
                                  tool_choice=allow("auto", WEATHER))
        assert "mode" in m.refused("tool_choice", tool_choice=allow("any", WEATHER))
        assert "tools" in m.refused("tool_choice", tool_choice=allow("auto"))
        m.refused("tool_choice", tools=[], tool_choice=allow("auto", WEATHER))


@check
def calls_that_are_demanded_come():
    """Whatever the model would say; with arguments that follow their schema."""
    zone = {"enum": ["UTC", "CET"]}
    for family in MARKS:
        with Model(family) as m:
            for script in SCRIPTS[family]:
                text, calls, finish = m.both(script, tools=[TIME], tool_choice="required")
                assert not text and finish == "tool_calls" and len(calls) == 1, (text, calls)
                name, arguments = calls[0]
                assert name == "get_time" and jsonschema.validate(json.loads(arguments), {
                    "type": "object", "required": ["zone"], "properties": {"zone": zone},
                    "additionalProperties": False}) is None
            named = {"type": "function", "function": {"name": "get_time"}}
            text, calls, finish = m.both("one", tools=[WEATHER, TIME], tool_choice=named)
            assert not text and finish == "stop" and [c[0] for c in calls] == ["get_time"]


@check
def strict_functions_are_kept_to():
    """A call of a strict one follows its schema; what is said besides is free."""
    strict = {**TIME, "function": {**TIME["function"], "strict": True}}
    for family in MARKS:
        with Model(family) as m:
            if family == "llama":
                assert "required" in m.refused("tools", tools=[strict])
                continue
            text, calls, finish = m.both("one", tools=[WEATHER, strict])
            assert finish == "tool_calls" and calls[0][0] == "get_weather", (text, calls)
            assert json.loads(calls[0][1])["city"] in ("Zürich", "Oslo", "京都")
            if family not in ("hermes", *XML):
                continue
            # Where the script says 7 it is left, and the model has nothing more to say.
            text, calls, finish = m.both("wrong", tools=[WEATHER, strict], max_tokens=200)
            assert text.startswith("So:") and calls[0][0] == "get_time", (text, calls)
            assert json.loads(calls[0][1])["zone"] in ("UTC", "CET")
            odd = tool(parameters={"type": "object", "properties": {"n": {"not": {}}}})
            why = m.refused("tools", tools=[odd], tool_choice="required")
            assert "tools[0].function.parameters.properties.n.not" in why, why
            odd["function"]["strict"] = False
            text, calls, finish = m.both("one", tools=[odd], tool_choice="required")
            assert calls[0][0] == "get_weather" and finish in ("tool_calls", "length")


@check
def an_answer_has_its_form_or_is_a_call():
    """response_format beside tools: a text that fits, in which no mark counts, or one call."""
    for family in MARKS:
        with Model(family) as m:
            if family == "llama":
                assert "mark" in m.refused("response_format", response_format=FORMAT)
                continue
            script = "bare" if "bare" in SCRIPTS[family] else "one"
            text, calls, finish = m.both(script, response_format=FORMAT)
            if family != "mistral11":
                assert not text and finish == "tool_calls", (family, text, calls, finish)
                assert calls == m.both(script)[1]
            for script in SCRIPTS[family]:
                text, calls, finish = m.both(script, response_format=FORMAT, max_tokens=200)
                assert not (text and calls), (text, calls)
                if finish == "stop":
                    jsonschema.validate(json.loads(text), FORMAT["json_schema"]["schema"])
                elif finish == "tool_calls":
                    assert isinstance(json.loads(calls[0][1]), dict)
            if "json" in SCRIPTS[family]:
                said = SCRIPTS[family]["json"], [], "stop"
                assert m.both("json", response_format=FORMAT) == said, said
                assert m.both("json", response_format={"type": "json_object"}) == said, said
            _, calls, finish = m.both("one", response_format=FORMAT, tools=[TIME],
                                      tool_choice="required")
            assert finish == "tool_calls" and calls[0][0] == "get_time", calls
            words = {**FORMAT["json_schema"], "schema": {"type": "string"}}
            assert "object" in m.refused("response_format", response_format={
                **FORMAT, "json_schema": words})


@check
def demanded_xml_follows_its_schema():
    """Whatever script a model begins, and with what it would go on."""
    def of(**properties):
        return [tool(name="typed", parameters={
            "type": "object", "properties": properties, "additionalProperties": False,
            "required": [k for k in properties if k != "maybe"]})]

    tools = of(n={"type": "integer", "minimum": 3, "maximum": 3},
               w={"enum": ["New York", "a\"b"]}, o={"enum": ["x", None]}, maybe={"type": "null"},
               b={"type": "boolean"}, l={"type": "array", "items": {"const": "<"}, "maxItems": 2,
                                         "minItems": 1},
               d={"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]})
    schema = tools[0]["function"]["parameters"]
    for family in XML:
        with Model(family) as m:
            for script in SCRIPTS[family]:
                text, calls, finish = m.both(script, tools=tools, tool_choice="required")
                assert not text and finish == "tool_calls" and len(calls) == 1, (text, calls)
                jsonschema.validate(json.loads(calls[0][1]), schema)
            # Any text, as the model would have it; and any parameters where none are named.
            for more in ({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, {}):
                city = tool(parameters={"type": "object", "properties": {"city": more},
                                        "required": ["city"]})
                text, calls, finish = m.both("bare", tools=[city], tool_choice="required")
                assert calls == [("get_weather", '{"city": "京<都> \\n"}')], (more, calls)
            free = tool(parameters={"type": "object"})
            assert m.both("bare", tools=[free], tool_choice="required")[1] == calls
            none = tool(parameters={"type": "object", "additionalProperties": False})
            calls = m.both("bare", tools=[none], tool_choice="required")[1]
            assert calls == [("get_weather", "{}")], calls
            for why, odd in (("minLength", {"type": "string", "minLength": 1}),
                             ("other values", {"type": ["string", "number"]}),
                             ("other values", {"enum": ["1", 1]}),
                             ("one of its texts", {"enum": [""]}),
                             ("one of its texts", {"enum": ["</parameter></arg_value></param>"]})):
                said = m.refused("tools", tools=of(odd=odd), tool_choice="required")
                assert "tools[0].function.parameters.properties.odd: " in said and why in said, said
            assert "<" in m.refused("tools", tools=of(**{"<": {}}), tool_choice="required")
            assert "name" in m.refused("tools", tools=[tool(name="a<b")], tool_choice="required")


def tool(**more):
    return {"type": "function", "function": {**WEATHER["function"], **more}}


@check
def wrong_tools_are_refused():
    with Model("hermes") as m:
        for where, tools in ((".type", [{"type": "web_search"}]),
                             (".function", [{"type": "function", "name": "f"}]),
                             (".function.name", [tool(name="a b")]),
                             (".function.name", [tool(name="x" * 65)]),
                             (".function.name", [tool(name='"')]),
                             (".function.parameters", [tool(parameters=[])]),
                             (".function.description", [tool(description=1)]),
                             (".function.strict", [tool(strict="yes")])):
            m.refused("tools[0]" + where, tools=tools)
        m.refused("tools[1].type", tools=[WEATHER, {}])
        m.refused("tools[1].function.strict", tools=[tool(strict=True), tool(strict=1)])
        assert m.both("one", tools=[tool(strict=False, description=None)])[2] == "tool_calls"
        assert "use tools" in m.refused("functions", functions=[{"name": "f"}])


@check
def a_template_without_tools_says_so():
    with Model("plain", "{{ messages[-1].content }}") as m:
        assert "chat template" in m.refused("tools")
        assert m.ask("one", tools=[])[0] == "Hello."


if __name__ == "__main__":
    raise SystemExit(server.run(checks))
