"""Random templates from a grammar. Expressions are mostly, not always, well typed, so that most
templates render and some are refused."""

import random
import re

VARS = {
    "s": "Hello World",
    "t": " pad\n",
    "u": "Grüße 你好 🙂",
    "e": "",
    "i": 7,
    "j": -3,
    "z": 0,
    "x": 2.5,
    "y": True,
    "n": None,
    "l": [3, 1, 2, 1],
    "m": ["b", "A", "c d", ""],
    "le": [],
    "d": {"a": 1, "b": {"c": [1, "two", None]}, "role": "user"},
    "ms": [
        {"role": "system", "content": "Be good"},
        {"role": "user", "content": " hi "},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1}}}],
        },
        {"role": "user"},
    ],
}

# Leaves, split at blanks where there is no list.
LEAVES = {
    "str": [
        "s",
        "t",
        "u",
        "e",
        '"a"',
        "'b c'",
        "''",
        "'\\n'",
        "'é'",
        '"it\'s"',
        "'Hello'",
        "'-'",
        "'x' \"y\"",
        "'\\u00e9\\t'",
    ],
    "int": "i j z i j z 0 1 2 3 5 10 42".split(),
    "num": "i j x z x 0 1 2.5 0.1 1e3 3 10.0".split(),
    "bool": "y true false True False".split(),
    "list": [
        "l",
        "m",
        "le",
        "ms",
        "[]",
        "[1, 2]",
        "['a', 'b']",
        "[1, 'a', none]",
        "(1, 2)",
        "range(3)",
        "[[1, 2], [3, 4]]",
    ],
    "dict": [
        "d",
        "d.b",
        "ms[0]",
        "ms[1]",
        "ms[2]",
        "ms[-1]",
        "{}",
        "{'a': 1}",
        "dict(a=1, b='x')",
        "{'a': {'b': 2}, 'c': [1]}",
        "{1: 'x', 'y': none}",
    ],
    "any": "s t u e i j z x y n l m le d ms v w k nope v w k none nope 1 'a' [] true".split(),
}

# <kind> is an expression of that kind, in parentheses where it needs them.
RULES = {
    "any": """<any> or <any>; <any> and <any>; <any> if <bool> else <any>; <dict>.a; <dict>.b
        <dict>.nope; <dict>['a']; <dict>.b.c; <dict>.get('a'); <list>[<int>]; <str>[<int>]
        <any>|default(<any>); <any>|default(<any>, true); <list>|first; <list>|last; <list>|min
        <list>|max; <list>|sum; <str>; <str>; <int>; <num>; <bool>; <list>; <dict>""",
    "str": """<str> + <str>; <str> ~ <any> ~ <any>; <str>|upper; <str>|lower; <str>|title
        <str>|capitalize; <str>|trim; <str>|string; <str>|reverse; <str>|e; <str>|indent; <str>|safe
        <str>|indent(2, true); <str>|replace('l', 'L'); <str>|replace('', '-', 2); <str>|trim('Hd')
        <str>.upper(); <str>.lower(); <str>.title(); <str>.strip(); <str>.lstrip('H ')
        <str>.rstrip(); <str>.replace('o', '0'); <str>.capitalize(); <str>.split(' ')[0]
        <str>.split()[-1]
        <str>.join(['p', 'q']); <str>.format(1); <str>.removeprefix('He'); <list>|join(<str>)
        <any>|tojson; <any>|tojson; <any>|tojson(indent=2); <any>|tojson(sort_keys=true)
        <any>|tojson(indent=1, separators=(',', ':')); <any>|tojson(ensure_ascii=true)
        <any>|string; <str> * 0; <str> * 2; '%s-%s' % (<any>, <num>); <str> if <bool> else <str>
        (<str>|string)[0]; (<str>|string)[-1]; (<str>|string)[1:]; (<str>|string)[:-1]
        (<str>|string)[::-1]; (<str>|string)[:3]; (<str>|string)[1:8:2]; (<str>|string)[5:1:-1]
        <macro>; <macro>; <macro>""",
    "int": """<int> + <int>; <int> - <int>; <int> * <int>; <int> // <int>; <int> % <int>; -<int>
        +<int>; <str>|length; <list>|count; <dict>|length; <any>|int; <int>|abs; <int>|round
        <int>|float|int""",
    "num": """<num> + <num>; <num> - <num>; <num> * <num>; <num> / <num>; <num> // <num>
        <num> % <num>
        <num>|abs; <num>|round; <num>|round(1); <num>|float; <num>|int; <num>|round(2, 'floor')
        2 ** 3; 1.5 ** 2; 3 ** -1; 2 ** 0.5; <int>""",
    "bool": """<str> == <str>; <num> != <num>; <int> < <int>; <list> == <list>; <str> >= <str>
        <num> > <int>; <list> <= <list>; not <any>; <bool> and <bool>; <bool> or <bool>
        <any> is defined; <any> is not defined; <any> is none; <any> is string; <any> is mapping
        <any> is sequence; <any> is iterable; <any> is number; <any> is integer; <any> is float
        <any> is boolean; <any> is true; <any> is not false; <int> is odd; <int> is even
        <int> is divisibleby 3; <int> is divisibleby(2); <int> is eq 3; <int> is gt(1)
        <int> is in [1, 2]; <str> in <str>; <str> not in <str>; <any> in <list>; <any> not in <list>
        <str> in <dict>; <str>.startswith(<str>); <str>.endswith(<str>); <int> < <int> <= <num>""",
    "list": """<list> + <list>; <list>|list; <list>|sort; <list>|reverse|list; <list>|unique|list
        <list>|map('string')|list; <list>|select|list; <list>|reject('none')|list
        <list>|select('defined')|list; <list>|map('length')|list; <list>|map('upper')|list
        <list>|sort(reverse=true); <list>|reject('equalto', 1)|list; ms|map(attribute='role')|list
        ms|selectattr('role', 'equalto', 'user')|list; ms|rejectattr('content')|list
        ms|selectattr('content', 'string')|map(attribute='content')|list
        <str>.split(); <str>.split('l')
        ms|map(attribute='content', default='-')|list; <str>.split(none, 1); [<any>, <any>]
        <dict>.keys()|list; <dict>.values()|list; <dict>.items()|list; (<any>, <any>); <str>|list
        <dict>|list; (<list>|list)[1:]; (<list>|list)[:-1]; (<list>|list)[::-1]; (<list>|list)[-2:]
        <dict>|dictsort; <dict>|items|list""",
    "dict": """{'a': <any>, 'b': <any>}; dict(<dict>, k=<any>); {'a': {'b': <any>}}.a
        <list>|first""",
}
RULES = {kind: [r.strip() for r in re.split("[;\n]", text)] for kind, text in RULES.items()}
LOOP = "index index0 first last length revindex previtem nextitem cycle(1,2) changed(v)".split()
TEXT = ["", " ", "\n", "\n  ", "x", "text\n", "  y  ", "\n\n", "é ", "\t", "{ ", "a\n b", "} ", "%"]


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.macros = []

    def pick(self, *options):
        return self.r.choice(options)

    def often(self, p):
        return self.r.random() < p

    def expr(self, kind="any", depth=3):
        if self.often(0.03):
            kind = self.r.choice(list(RULES))
        if depth <= 0 or self.often(0.2):
            return self.r.choice(LEAVES[kind])
        rule = self.r.choice(RULES[kind])
        if rule == "<macro>":
            return self.call() if self.macros else self.expr(kind, depth - 1)
        text = re.sub(
            "<(str|int|num|bool|list|dict|any)>",
            lambda m: self.operand(m.group(1), depth - 1),
            rule,
        )
        return text

    def operand(self, kind, depth):
        e = self.expr(kind, depth)
        return f"({e})" if self.often(0.1) or " " in e or "|" in e or e[0] in "-+" else e

    def call(self):
        name, params = self.r.choice(self.macros)
        given = (self.expr("any", 1) for _ in range(self.r.randrange(params + 1)))
        return f"{name}({', '.join(given)})"

    # --- statements ---

    def tag(self, inner):
        signs = ["", "", "", "-", "-", "+"]
        return "{%" + self.r.choice(signs) + " " + inner + " " + self.r.choice(signs) + "%}"

    def block(self, head, depth):
        return self.tag(head) + self.body(depth) + self.tag("end" + head.split()[0])

    def body(self, depth):
        parts = (self.r.choice(TEXT) + self.statement(depth) for _ in range(self.pick(1, 1, 2)))
        return "".join(parts) + self.r.choice(TEXT)

    def statement(self, depth):
        makers = (
            [self.put] * 6
            + [self.set] * 3
            + [self.branch] * 3
            + [self.loop] * 4
            + [self.comment, self.capture, self.scope, self.count, self.macro]
        )
        return (self.r.choice(makers) if depth > 0 else self.put)(depth - 1)

    def put(self, depth):
        return "{{" + self.pick("", "-") + " " + self.expr() + " " + self.pick("", "-") + "}}"

    def set(self, depth):
        if self.often(0.3):
            return self.tag(f"set v, w = {self.expr('any', 1)}, {self.expr('any', 1)}")
        return self.tag(f"set {self.pick('v', 'w', 'k', 's', 'i', 'l')} = {self.expr()}")

    def branch(self, depth):
        out = self.tag(f"if {self.expr('bool')}") + self.body(depth)
        if self.often(0.3):
            out += self.tag(f"elif {self.expr('bool')}") + self.body(depth)
        if self.often(0.4):
            out += self.tag("else") + self.body(depth)
        return out + self.tag("endif")

    def loop(self, depth):
        head = self.pick(
            f"v in {self.expr('list', 2)}",
            f"k in {self.expr('list', 2)}",
            "v in ms",
            f"k, v in {self.operand('dict', 1)}{self.pick('.items()', '|items')}",
        )
        if self.often(0.25):
            head += f" if {self.expr('bool', 2)}"
        body = self.body(depth)
        if self.often(0.5):
            body += "{{ loop." + self.r.choice(LOOP) + " }}"
        if self.often(0.2):
            jump = self.tag(self.pick("break", "continue"))
            body = self.tag(f"if {self.expr('bool', 1)}") + jump + self.tag("endif") + body
        if self.often(0.2):
            body += self.tag("else") + self.body(depth)
        return self.tag("for " + head) + body + self.tag("endfor")

    def comment(self, depth):
        return "{#" + self.pick("", "-", "+") + " note " + self.pick("", "-", "+") + "#}"

    def capture(self, depth):
        return self.block(
            self.pick(
                "set v", "set w", "set v | upper", "filter trim", "filter replace('a', 'b') | upper"
            ),
            depth,
        )

    def scope(self, depth):
        variables = f"with v = {self.expr()}, k = {self.expr()}"
        return self.block(self.pick(variables, "generation"), depth)

    def count(self, depth):
        return (
            self.tag("set ns = namespace(a=0)")
            + self.tag(f"for q in {self.expr('list', 1)}")
            + self.tag("set ns.a = ns.a + loop.index")
            + self.tag("endfor")
            + "{{ ns.a }}"
        )

    def macro(self, depth):
        name, params = self.pick("f", "g"), self.r.randrange(3)
        signature = ", ".join(["v", f"w={self.expr('any', 1)}"][:params])
        outer, self.macros = self.macros, []  # no recursion: it would only be refused
        out = self.block(f"macro {name}({signature})", depth)
        self.macros = [*outer, (name, params)]
        return out + "{{ " + self.call() + " }}"


def cases(seed, count):
    for i in range(count):
        g = Grammar(seed * 1_000_003 + i)
        yield g.body(g.pick(0, 1, 1, 2, 2, 3)), VARS
