"""Template expansion for the corpus generators.

`say(r, "{Hello|Hi}[ there], $name!", name="Ann")`: `{a|b}` picks one alternative, `[a]` keeps
its inside half of the time, `$name` is replaced from the keyword arguments. Braces and brackets
nest. Nothing can be escaped: text with braces in it goes in as a `$` argument.
`r` is a random.Random; the same seed gives the same text.
"""

import re
from functools import lru_cache

_SPECIAL = re.compile(r"[{}\[\]|]")


def _parse(text, pos, closing):
    """Alternatives up to `closing`: a list of sequences of str | (kind, alternatives)."""
    alternatives, sequence = [], []
    while pos < len(text):
        hit = _SPECIAL.search(text, pos)
        if not hit:
            sequence.append(text[pos:])
            pos = len(text)
            break
        if hit.start() > pos:
            sequence.append(text[pos : hit.start()])
        char, pos = hit.group(), hit.end()
        if char in "{[":
            inner, pos = _parse(text, pos, "}" if char == "{" else "]")
            sequence.append((char, inner))
        elif char == "|" and closing:
            alternatives.append(sequence)
            sequence = []
        elif char == closing:
            alternatives.append(sequence)
            return alternatives, pos
        else:
            raise ValueError(f"stray {char!r} in template {text!r}")
    if closing:
        raise ValueError(f"missing {closing!r} in template {text!r}")
    return [sequence], pos


@lru_cache(maxsize=None)
def _compiled(text):
    return _parse(text, 0, "")[0][0]


def _expand(r, sequence, out):
    for part in sequence:
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "{" or r.random() < 0.5:
            _expand(r, part[1][int(r.random() * len(part[1]))], out)


_SLOT = re.compile(r"\$([A-Za-z_]+)")


def say(r, template, **slots):
    out = []
    _expand(r, _compiled(template), out)
    text = "".join(out)
    if "$" in text:
        text = _SLOT.sub(lambda m: str(slots[m.group(1)]), text)
    return text


def an(noun):
    """The noun with its indefinite article."""
    vowel = noun[0].lower() in "aeiou" and not re.match(r"(?i)(uni|use|eu|one|ute|uku)", noun)
    return ("an " if vowel or re.match(r"hour|honest|heir\b", noun) else "a ") + noun


def cap(text):
    return text[:1].upper() + text[1:]


def listing(items, word="and"):
    items = list(items)
    if len(items) < 3:
        return f" {word} ".join(items)
    return ", ".join(items[:-1]) + f" {word} " + items[-1]
