"""Chat templates in the styles of the model families (styles/*.jinja, written for this test after
the prompt formats they document), times message lists that are odd in every way we know."""
import glob
import itertools
import os

HERE = os.path.dirname(os.path.abspath(__file__))

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\" & <here> in München",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Where\nit is"},
        "days": {"type": "integer", "minimum": 1, "maximum": 1.5e3},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {"type": ["string", "number"]},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "free": {}}, "required": ["city"]}, "return": {"type": "number"}}}
EMPTY_TOOL = {"type": "function", "function": {
    "name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}


def msg(role, content, **more):
    return {"role": role, "content": content, **more}


def tool_call(arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def calls(content, *arguments):
    return msg("assistant", content, tool_calls=[tool_call(a) for a in arguments])


def answer(content, id="abcdefghi"):
    return msg("tool", content, tool_call_id=id)


U, A, S = msg("user", "Hi there"), msg("assistant", "Hello."), msg("system", "Be brief.")
CALL = calls("", {"city": "Köln", "days": 3, "x": None, "f": 1.0})
TEXT = {"type": "text", "text": " What? "}
LISTS = [
    # turns in and out of order
    [], [S], [U], [A], [S, U], [U, A], [U, A, U], [S, U, A, U], [U, U], [A, U], [S, S, U],
    [S, U, U, A, A], [S, U] + [A, U] * 20, [msg("wizard", "x")], [U, msg("ipython", "out"), A],
    # white space, other scripts, what looks like a template
    [msg("system", " \n spaced \t "), msg("user", "  \n\ta b \n")], [msg("user", "")],
    [msg("user", "Grüße 你好 🙂 \u200d é \x00\x1f\x7f \u2028 </s> {{ x }} {% y %}")],
    [msg("user", "\u3000\xa0x\u2003\n")],
    # missing keys, content that is no string
    [msg("user", None)], [S, msg("user", "x"), msg("assistant", None)], [{"role": "user"}],
    [{"content": "x"}], [{}], [U, {}], [msg(None, "x")], [msg("user", 5)], [msg("user", 1.5)],
    [msg("user", True)], [msg("user", ["a", "b"])], [msg("user", [])],
    [msg("user", {"content": "in", "text": "t"})],
    [msg("user", [TEXT, {"type": "image"}, TEXT])], [msg("user", [{"type": "video"}])],
    [msg("system", [TEXT]), msg("user", [{"type": "image_url", "image_url": {"url": "x"}}])],
    [msg("user", [{"text": "no type"}])],
    # tools
    [U, answer("22 °C")], [U, CALL], [U, CALL, answer("22"), A],
    [S, U, CALL, msg("tool", "22"), msg("tool", '{"a": 1}'), A, U],
    [U, calls(None, '{"city": "Köln"}'), answer({"t": 22.5}, "123456789")],
    [U, calls("wait", {}, {"b": [1, {"c": "d"}], "n": 10**20}), msg("tool", ["x", 1])],
    [U, calls("")], [U, msg("assistant", "x", tool_calls=None)],
    [U, msg("assistant", "x", tool_calls=[{"name": "w", "arguments": {"a": 1}}])],
    [U, msg("assistant", "", tool_calls=[tool_call({"a": "b"}, id="short")])],
    [msg("system", "s", tools='[{"x": 1}]'), U], [msg("system", "s", tools=None), U],
    # thoughts
    [U, msg("assistant", "<think>\nhm\n</think>\n\nyes"), U, msg("assistant", "<think></think>no")],
    [U, msg("assistant", "yes", reasoning_content="because")],
    [U, msg("assistant", "yes", thinking="because")],
    [U, msg("assistant", "", thinking="hm", tool_calls=[tool_call({"a": "b"})]), answer("22")],
    [U, msg("assistant", "x", thinking="hm", tool_calls=[tool_call({"a": "b"})])],
    [U, A, msg("user", "<tool_response>\nx\n</tool_response>")],
    [msg("system", "Think /no_think please"), U, A], [msg("system", "/think"), U],
    [msg("system", "All mine /system_override /think"), U],
    [U, {"role": "assistant", "content": "x", "items": [1], "extra": {"deep": [[[]]]}}],
]

OPTIONS = [
    {}, {"add_generation_prompt": True}, {"add_generation_prompt": False, "tools": [WEATHER]},
    {"add_generation_prompt": True, "tools": [WEATHER, EMPTY_TOOL]},
    {"add_generation_prompt": True, "tools": []},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True, "tools": [EMPTY_TOOL]},
    {"add_generation_prompt": True, "tools": [WEATHER], "tools_in_user_message": False,
     "date_string": "1 Jan 2030"},
    {"add_generation_prompt": True, "tools": [WEATHER], "reasoning_effort": "high"},
    {"add_generation_prompt": True, "custom_tools": [WEATHER],
     "builtin_tools": ["weather", "code_interpreter"]},
]


def templates():
    names = sorted(glob.glob(os.path.join(HERE, "styles", "*.jinja")))
    if len(names) < 20:
        raise SystemExit("tests/template/styles: templates are missing")
    for name in names:
        with open(name, encoding="utf-8", newline="") as f:
            yield f.read()


def cases():
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    every = list(templates())
    for text, messages, options in itertools.product(every, LISTS, OPTIONS):
        yield text, {"messages": messages, **tokens, **options}
    for text, messages in itertools.product(every, LISTS):
        yield text, {"messages": messages, "add_generation_prompt": True}  # no special tokens
        yield text.replace("{%-", "{%").replace("-%}", "%}"), {"messages": messages, **tokens}
    for text in every:
        yield text, {}
