"""Random templates from a grammar. Expressions are mostly, not always, well typed, so that most
templates render and some are refused."""
import random

VARS = {
    "s": "Hello World", "t": " pad\n", "u": "Grüße 你好 🙂", "e": "", "i": 7, "j": -3, "z": 0, "x": 2.5,
    "y": True, "n": None, "l": [3, 1, 2, 1], "m": ["b", "A", "c d", ""], "le": [],
    "d": {"a": 1, "b": {"c": [1, "two", None]}, "role": "user"},
    "ms": [{"role": "system", "content": "Be good"}, {"role": "user", "content": " hi "},
           {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1}}}]},
           {"role": "user"}],
}
NAMES = ["s", "t", "u", "e", "i", "j", "z", "x", "y", "n", "l", "m", "le", "d", "ms", "v", "w", "k", "nope"]
BY_TYPE = {"str": ["s", "t", "u", "e"], "int": ["i", "j", "z"], "num": ["i", "j", "x", "z"],
           "list": ["l", "m", "le"], "dict": ["d"], "bool": ["y"], "any": NAMES}


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.loops = 0
        self.macros = []

    def pick(self, *options):
        return self.r.choice(options)

    def often(self, p):
        return self.r.random() < p

    # --- expressions ---

    def literal(self, kind):
        r = self.r
        if kind == "str":
            return r.choice(['"a"', "'b c'", "''", "'\\n'", "'é'", '"it\'s"', "'Hello'", "'-'", "'x' \"y\"", "'\\u00e9\\t'"])
        if kind == "int":
            return str(r.choice([0, 1, 2, 3, 5, 10, 42]))
        if kind == "num":
            return r.choice(["0", "1", "2.5", "0.1", "1e3", "3", "10.0"])
        if kind == "bool":
            return r.choice(["true", "false", "True", "False"])
        if kind == "list":
            return r.choice(["[]", "[1, 2]", "['a', 'b']", "[1, 'a', none]", "(1, 2)", "range(3)", "[[1, 2], [3, 4]]"])
        if kind == "dict":
            return r.choice(["{}", "{'a': 1}", "{'a': {'b': 2}, 'c': [1]}", "dict(a=1, b='x')"])
        return r.choice(["none", "nope", self.literal(self.pick("str", "int", "num", "bool", "list", "dict"))])

    def expr(self, kind="any", depth=3):
        if self.often(0.03):
            kind = self.pick("str", "int", "num", "bool", "list", "dict", "any")
        if depth <= 0 or self.often(0.15):
            return self.literal(kind) if self.often(0.5) else self.r.choice(BY_TYPE[kind])
        e = getattr(self, "make_" + kind)(depth - 1)
        return f"({e})" if self.often(0.2) or " " in e or "|" in e else e

    def make_any(self, n):
        kind = self.pick("str", "int", "num", "bool", "list", "dict")
        c = self.r.randrange(8)
        if c == 0:
            return f"{self.expr('any', n)} {self.pick('or', 'and')} {self.expr('any', n)}"
        if c == 1:
            return f"{self.expr(kind, n)} if {self.expr('bool', n)} else {self.expr(kind, n)}"
        if c == 2:
            return f"{self.expr('dict', n)}{self.pick('.a', '.b', '.nope', chr(91) + repr('a') + chr(93), '.b.c', '.get(' + repr('a') + ')')}"
        if c == 3:
            return f"{self.expr('list', n)}[{self.expr('int', n)}]"
        if c == 4:
            return f"{self.expr('any', n)}|default({self.expr(kind, n)}{self.pick('', ', true')})"
        if c == 5:
            return f"{self.expr('list', n)}|{self.pick('first', 'last', 'min', 'max', 'sum')}"
        return self.expr(kind, n)

    def make_str(self, n):
        s = self.expr("str", n)
        c = self.r.randrange(12)
        if c == 0:
            return f"{s} + {self.expr('str', n)}"
        if c == 1:
            return f"{s} ~ {self.expr('any', n)} ~ {self.expr('any', n)}"
        if c == 2:
            return f"({s}|string)[" + self.pick("0", "-1", "1:", ":-1", "::-1", ":3", "-2:", "1:8:2", "5:1:-1") + "]"
        if c == 3:
            return s + "|" + self.pick("upper", "lower", "title", "capitalize", "trim", "string", "reverse", "e", "indent",
                                       "indent(2, true)", "replace('l', 'L')", "replace('', '-', 2)", "trim('Hd')", "safe")
        if c == 4:
            return s + "." + self.pick("upper()", "lower()", "title()", "strip()", "lstrip('H ')", "rstrip()", "replace('o', '0')",
                                       "capitalize()", "split(' ')[0]", "split()[-1]", "join(['p', 'q'])", "format(1)", "removeprefix('He')")
        if c == 5:
            return f"{self.expr('list', n)}|join({self.expr('str', 0)})"
        if c == 6:
            return f"{self.expr('any', n)}|tojson" + self.pick("", "(indent=2)", "(indent=1, separators=(',', ':'))", "(sort_keys=true)", "(ensure_ascii=true)")
        if c == 7:
            return f"{self.expr('any', n)}|string"
        if c == 8:
            return f"{s} * {self.pick('0', '1', '2', '3')}"
        if c == 9 and self.macros:
            name, params = self.r.choice(self.macros)
            args = [self.expr("any", 1) for _ in range(self.r.randrange(params + 1))]
            return f"{name}({', '.join(args)})"
        if c == 10:
            return f"'%s-%s' % ({self.expr('any', 0)}, {self.expr('num', 0)})"
        return f"{s} if {self.expr('bool', n)} else {self.expr('str', n)}"

    def make_int(self, n):
        a = self.expr("int", n)
        c = self.r.randrange(7)
        if c < 3:
            return f"{a} {self.pick('+', '-', '*', '//', '%')} {self.expr('int', n)}"
        if c == 3:
            return f"{self.expr(self.pick('str', 'list', 'dict'), n)}|{self.pick('length', 'count')}"
        if c == 4:
            return self.pick("-", "+") + a
        if c == 5:
            return f"{self.expr('any', n)}|int"
        return a + "|" + self.pick("abs", "round", "int", "float|int")

    def make_num(self, n):
        a = self.expr("num", n)
        c = self.r.randrange(5)
        if c < 2:
            return f"{a} {self.pick('+', '-', '*', '/', '//', '%')} {self.expr('num', n)}"
        if c == 2:
            return a + "|" + self.pick("abs", "round", "round(1)", "float", "int", "round(2, 'floor')")
        if c == 3:
            return f"{self.pick('2', '1.5', '3')} ** {self.pick('2', '0', '-1', '0.5')}"
        return self.expr("int", n)

    def make_bool(self, n):
        c = self.r.randrange(9)
        kind = self.pick("str", "num", "int", "list")
        if c == 0:
            return f"{self.expr(kind, n)} {self.pick('==', '!=', '<', '>', '<=', '>=')} {self.expr(kind, n)}"
        if c == 1:
            return f"not {self.expr('any', n)}"
        if c == 2:
            return f"{self.expr('bool', n)} {self.pick('and', 'or')} {self.expr('bool', n)}"
        if c == 3:
            return f"{self.expr('any', n)} is {self.pick('', 'not ')}{self.pick('defined', 'undefined', 'none', 'string', 'mapping', 'sequence', 'iterable', 'number', 'integer', 'float', 'boolean', 'true', 'false')}"
        if c == 4:
            return f"{self.expr('int', n)} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'eq 3', 'gt(1)', 'in [1, 2]')}"
        if c == 5:
            return f"{self.expr('str', n)} {self.pick('in', 'not in')} {self.expr('str', n)}"
        if c == 6:
            return f"{self.expr('any', n)} {self.pick('in', 'not in')} {self.expr('list', n)}"
        if c == 7:
            return f"{self.expr('str', n)}.{self.pick('startswith', 'endswith')}({self.expr('str', 0)})"
        return f"{self.expr('int', n)} < {self.expr('int', n)} <= {self.expr('num', n)}"

    def make_list(self, n):
        a = self.expr("list", n)
        c = self.r.randrange(9)
        if c == 0:
            return f"{a} + {self.expr('list', n)}"
        if c == 1:
            return f"({a}|list)[" + self.pick("1:", ":-1", "::-1", ":2", "-2:", "::2") + "]"
        if c == 2:
            return a + "|" + self.pick("list", "sort", "reverse|list", "unique|list", "map('string')|list", "select|list", "reject('none')|list",
                                       "select('defined')|list", "map('length')|list", "map('upper')|list", "sort(reverse=true)", "reject('equalto', 1)|list")
        if c == 3:
            return "ms|" + self.pick("map(attribute='role')|list", "selectattr('role', 'equalto', 'user')|list", "rejectattr('content')|list",
                                     "selectattr('content', 'string')|map(attribute='content')|list", "map(attribute='content', default='-')|list")
        if c == 4:
            return f"{self.expr('str', n)}.split({self.pick('', repr(' '), repr('l'), 'none, 1')})"
        if c == 5:
            return f"[{self.expr('any', n)}, {self.expr('any', n)}]"
        if c == 6:
            return f"{self.expr('dict', n)}.{self.pick('keys', 'values', 'items')}()|list"
        if c == 7:
            return f"({self.expr('any', n)}, {self.expr('any', n)})"
        return f"{self.expr(self.pick('str', 'dict'), n)}|list"

    def make_dict(self, n):
        c = self.r.randrange(4)
        if c == 0:
            return f"{{'a': {self.expr('any', n)}, 'b': {self.expr('any', n)}}}"
        if c == 1:
            return f"dict({self.expr('dict', n)}, k={self.expr('any', n)})"
        if c == 2:
            return f"ms[{self.pick('0', '1', '2', '-1')}]"
        return self.pick("d", "d.b", "{'a': {'b': 1}}.a", "{1: 'x', 'y': none}")

    # --- statements ---

    def text(self):
        return self.pick("", " ", "\n", "\n  ", "x", "text\n", "  y  ", "\n\n", "é ", "\t", "{ ", "a\n b", "} ", "%")

    def tag(self, inner):
        return "{%" + self.pick("", "", "", "-", "-", "+") + " " + inner + " " + self.pick("", "", "", "-", "-", "+") + "%}"

    def body(self, depth):
        return "".join(self.text() + self.statement(depth) for _ in range(self.r.randrange(1, 3 + (depth < 2)))) + self.text()

    def isolated(self, depth):
        """A body in which no loop or new macro of the outside can be used up."""
        loops, self.loops = self.loops, 0
        out = self.body(depth)
        self.loops = loops
        return out

    def statement(self, depth):
        c = self.r.randrange(20)
        if depth <= 0 or c < 6:
            return "{{" + self.pick("", "-", "") + " " + self.expr() + " " + self.pick("", "-", "") + "}}"
        d = depth - 1
        if c < 9:
            name = self.pick("v", "w", "k", "s", "i", "l")
            return self.tag(self.pick(f"set {name} = {self.expr()}", f"set {name} = {self.expr()}", f"set v, w = {self.expr('any', 1)}, {self.expr('any', 1)}"))
        if c < 12:
            out = self.tag(f"if {self.expr('bool')}") + self.body(d)
            if self.often(0.3):
                out += self.tag(f"elif {self.expr('bool')}") + self.body(d)
            if self.often(0.4):
                out += self.tag("else") + self.body(d)
            return out + self.tag("endif")
        if c < 15:
            return self.for_loop(d)
        if c == 15:
            return "{#" + self.pick("", "-") + " note " + self.pick("", "-", "+") + "#}"
        if c == 16:
            return self.tag("set " + self.pick("v", "w")) + self.isolated(d) + self.tag("endset")
        if c == 17:
            return self.pick(lambda: self.tag(f"with v = {self.expr()}, k = {self.expr()}") + self.isolated(d) + self.tag("endwith"),
                             lambda: self.tag("filter " + self.pick("upper", "trim", "replace('a', 'b')")) + self.isolated(d) + self.tag("endfilter"),
                             lambda: self.tag("generation") + self.isolated(d) + self.tag("endgeneration"))()
        if c == 18:
            return self.tag("set ns = namespace(a=0)") + self.tag(f"for q in {self.expr('list', 1)}") + self.tag("set ns.a = ns.a + loop.index") + self.tag("endfor") + "{{ ns.a }}"
        return self.macro(d)

    def for_loop(self, d):
        target, source = self.pick(("v", self.expr("list", 2)), ("k", self.expr("list", 2)), ("k, v", f"{self.expr('dict', 1)}{self.pick('.items()', '|items')}"), ("v", "ms"))
        cond = f" if {self.expr('bool', 2)}" if self.often(0.25) else ""
        self.loops += 1
        body = self.body(d)
        if self.often(0.5):
            body += "{{ loop." + self.pick("index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "cycle(1, 2)") + " }}"
        if self.often(0.2):
            body = self.tag(f"if {self.expr('bool', 1)}") + self.tag(self.pick("break", "continue")) + self.tag("endif") + body
        self.loops -= 1
        other = self.tag("else") + self.body(d) if self.often(0.2) else ""
        return self.tag(f"for {target} in {source}{cond}") + body + other + self.tag("endfor")

    def macro(self, d):
        name, params = self.pick("f", "g"), self.r.randrange(3)
        sig = ", ".join(["v", f"w={self.expr('any', 1)}"][:params])
        macros, self.macros = self.macros, []
        body = self.isolated(d)
        self.macros = macros + [(name, params)]
        return self.tag(f"macro {name}({sig})") + body + self.tag("endmacro")

    def template(self):
        return self.body(self.pick(0, 1, 1, 2, 2, 3))


def cases(seed, count):
    for i in range(count):
        yield Grammar(seed * 1_000_003 + i).template(), VARS
