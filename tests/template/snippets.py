"""Short templates: every filter, test, method, operator and whitespace rule, with cases in which
both engines must refuse. expressions.txt has one expression a line, fragments.txt one template a
line, as a JSON string."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
VARS = {
    "s": "Hello World", "u": "Größe ÄÖÜ ñ 你好 🙂", "e": "", "n": None, "t": True, "f": False,
    "i": 7, "z": 0, "neg": -3, "x": 2.5, "big": 123456789012, "huge": 12345678901234567890123,
    "l": [3, 1, 2], "ls": ["b", "a", "C"], "le": [], "nest": [[1, 2], [3, 4]], "sp": "  a b  c ",
    "d": {"a": 1, "b": {"c": [1, 2, {"k": "v"}]}, "items": "own", "x y": 5},
    "q": "it's \"q\" \\ \n\t\x01\x7f\u200b", "ml": "one\ntwo\n\nthree\r\nfour",
    "ms": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None},
           {"role": "user", "content": "there", "n": 2}, {"content": "x"}],
    "fl": [0.1, 1.0, 1e16, 1e15, 123456789.123, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, -0.0,
           3.0e22, 1 / 3],
}


def lines(name):
    with open(os.path.join(HERE, name), encoding="utf-8", newline="\n") as f:
        return f.read().split("\n")[:-1]


def balanced(text):
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))


def floats():
    """Doubles whose shortest decimal is hard: powers of two and their neighbours."""
    for e in range(-1074, 1024, 3):
        yield 2.0 ** e
        yield 2.0 ** e * (1 + 2.0 ** -52)
        yield -(2.0 ** e) * (2 - 2.0 ** -52)


def cases():
    for e in lines("expressions.txt"):
        yield "{{ " + e + " }}", VARS
        first = e.split(", ")[0]
        if balanced(first):
            yield "{% if " + first + " %}y{% else %}n{% endif %}", VARS
            yield "{% set v = " + first + " %}{{ v }}|{{ v|string|length }}", VARS
    for t in map(json.loads, lines("fragments.txt")):
        yield t, VARS
        yield "x\n" + t + "\ny", VARS
    yield "{{ f }} {{ f|tojson }}", {"f": list(floats())}
    letters = [*range(1, 0x500), *range(0x1e00, 0x2000)]
    alphabet = "".join(chr(c) for c in letters if chr(c).isalpha())
    for how in ("string", "length", "reverse", "tojson", "tojson(ensure_ascii=true)"):
        yield "{{ [a]|first|" + how + " }}{{ [a] }}", {"a": alphabet}
