#!/usr/bin/env python3
"""Writes core/model/unicode_table.c: what each code point is to the `tokenizers` library.

The library mixes several engines, each with its own Unicode version (Oniguruma for the split
patterns, Rust's standard library for digits, the regex crate around added tokens, another crate
for NFC). So nothing is taken from a Unicode file here: every property of every code point is
asked from the library itself. Run with the pinned version of tests/requirements.txt:

    build/venv/bin/python tests/tokenizer/unicode_gen.py [--check]

--check compares with the committed file instead of writing it. Takes half a minute.
"""

import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

TARGET = "core/model/unicode_table.c"
CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CPS))
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]
CATEGORIES = (
    "Cn Cc Cf Co Cs Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp"
).split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai".split()

DECOMPOSED_MAX = 4
BLOCK_BITS, MIDDLE_BITS = 4, 5  # as core/model/unicode.h has them; no others take less room


def matches(regex):
    """The set of code points that an Oniguruma class matches."""
    split = pre_tokenizers.Split(Regex(regex + "+"), "removed", invert=True)
    found = set()
    for _, (a, b) in split.pre_tokenize_str(TEXT):
        found.update(CPS[a:b])
    return found


def runs(split):
    """Which code points a pre-tokenizer keeps apart from the others."""
    found = set()
    # runs alternate between those and the others; the first run (control characters) is of others
    for i, (_, (a, b)) in enumerate(split.pre_tokenize_str(TEXT)):
        if i % 2:
            found.update(CPS[a:b])
    return found


def digits():
    """Rust's char::is_numeric."""
    found = runs(pre_tokenizers.Digits(individual_digits=False))
    assert ord("5") in found and ord("a") not in found
    return found


def marks():
    """What the Punctuation pre-tokenizer takes for it: more than \\p{P}, and of another Unicode."""
    found = runs(pre_tokenizers.Punctuation("contiguous"))
    assert ord("$") in found and ord("a") not in found
    return found


def beside_added_token(**flags):
    """Encodes X + mark for every code point X; yields (X, start of the token that was found)."""
    mark = "\u241e"
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken(mark, normalized=False, **flags)])
    other = [c for c in CPS if chr(c) != mark]
    for i in range(0, len(other), 50000):
        part = other[i : i + 50000]
        text = "".join("#" + chr(c) + mark for c in part)
        found = {}
        enc = tokenizer.encode(text)
        for token, (a, b) in zip(enc.ids, enc.offsets):
            if token == 1:
                found[(b - 1) // 3] = a
        for k, c in enumerate(part):
            yield c, found[k] - 3 * k if k in found else None


def nfd_each(strings):
    return normalizers.NFD().normalize_str("\n".join(strings)).split("\n")


def nfc_each(strings):
    return normalizers.NFC().normalize_str("\n".join(strings)).split("\n")


def combining_classes():
    """Canonical combining classes, found by which marks change places."""
    cps = [c for c in CPS if c != 10]
    decomposed = nfd_each([chr(c) for c in cps])
    own = {c for c, d in zip(cps, decomposed) if d == chr(c)}
    low, high = "\u0334", "\u0301"  # classes 1 and 230
    after = nfd_each([chr(c) + low for c in cps])
    before = nfd_each([high + chr(c) for c in cps])
    some = {
        c for c, x, y in zip(cps, after, before) if c in own and (x[0] != chr(c) or y[0] != high)
    } | {ord(low), ord(high)}
    samples = {}  # Python's data only names the classes; the library may know fewer marks
    for c in sorted(some):
        samples.setdefault(unicodedata.combining(chr(c)), chr(c))
    assert 0 not in samples
    classes = {c: set() for c in some}
    for k, mark in samples.items():
        left = nfd_each([chr(c) + mark for c in some])  # swapped when class(c) > k
        right = nfd_each([mark + chr(c) for c in some])  # swapped when class(c) < k
        for c, x, y in zip(some, left, right):
            if c == ord(mark) or (x == chr(c) + mark and y == mark + chr(c)):
                classes[c].add(k)
    assert all(len(v) == 1 for v in classes.values()), "a class without a sample"
    return {c: v.pop() for c, v in classes.items()}


def hangul(c):
    return 0xAC00 <= c < 0xAC00 + 11172


def compositions():
    """(code point -> full decomposition), ((a, b) -> composite); Hangul is left to arithmetic."""
    cps = [c for c in CPS if c != 10 and not hangul(c)]
    decomposed = {c: d for c, d in zip(cps, nfd_each([chr(c) for c in cps])) if d != chr(c)}
    composed = nfc_each(decomposed.values())
    pairs = {}
    for (c, d), back in zip(decomposed.items(), composed):
        if back == chr(c):
            first = normalizers.NFC().normalize_str(d[:-1])
            assert len(first) == 1 and len(d) > 1, hex(c)
            pairs[ord(first), ord(d[-1])] = c
    return decomposed, pairs


def check_contractions(category):
    """What (?i:...) matches behind an apostrophe, of all that may have a case: ASCII, U+017F."""
    cased = [c for c in CPS if CATEGORIES[category[c]] not in ("Cn", "Co", "Lo")]
    regex = Regex("^(?i:" + "|".join(CONTRACTIONS) + ")")
    split = pre_tokenizers.Split(regex, "removed", invert=True)
    expected = {"'" + x for x in "stmdSTMD\u017f"}
    for pair in ("re", "ve", "ll"):
        expected |= {
            "'" + a + b for a in (pair[0], pair[0].upper()) for b in (pair[1], pair[1].upper())
        }
    lines = pre_tokenizers.Split(
        Regex("(?i:" + "|".join(CONTRACTIONS) + ")"), "removed", invert=True
    )
    found = set()
    shapes = [("", "")] + [(a, "") for a in "rRvVlL"] + [("", b) for b in "eElL"]
    for before, after in shapes:
        text = "\n".join("'" + before + chr(c) + after for c in cased)
        found |= {x for x, _ in lines.pre_tokenize_str(text)}
    assert found == expected, found ^ expected
    assert split.pre_tokenize_str("'\u017f")


def numbered(names):
    """Code point -> which of these properties it has; each has one at most."""
    classes = [r"\p{%s}" % name for name in names]
    # Neighbours that have one and the same are found together, and one of them is asked for all.
    split = pre_tokenizers.Split(Regex("|".join(c + "+" for c in classes)), "removed", invert=True)
    runs = [CPS[a:b] for _, (a, b) in split.pre_tokenize_str(TEXT)]
    firsts = "".join(chr(run[0]) for run in runs)
    found = {}
    for i, regex in enumerate(classes):
        one = pre_tokenizers.Split(Regex(regex), "removed", invert=True)
        for _, (a, _) in one.pre_tokenize_str(firsts):
            for c in runs[a]:
                assert c not in found, (hex(c), names[i])
                found[c] = i
    return found


def check_categories(category):
    """Groups and \\d are unions of categories: core/model/split_class.c has them as such."""

    def union(*names):
        return {c for c, i in category.items() if CATEGORIES[i].startswith(names)}

    assert set(category) == set(CPS)
    for group in "CLMNPSZ":
        assert matches(r"\p{%s}" % group) == union(group), group
    assert matches(r"\d") == union("Nd")


def properties(combining, decomposed, pairs):
    space = matches(r"\s")
    assert matches(r"\S") == set(CPS) - space
    word = {c for c, at in beside_added_token(single_word=True) if at is None} | set()
    blank = {c for c, at in beside_added_token(lstrip=True) if at == 1}
    # code points that NFC may change, or that may join what stands before them
    care = set(combining) | {c for c in decomposed if nfc_each([chr(c)])[0] != chr(c)}
    care |= {b for _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    return [space, digits(), word, blank, care, marks(),
            matches(r"\w")]


def rows(values, form="%d"):
    line = "   "
    for v in values:
        item = " " + form % v + ","
        if len(line) + len(item) > 100:
            yield line
            line = "   "
        line += item
    yield line


def staged(values, n):
    """Which of the blocks of n values comes where, and these, each once."""
    blocks = {}
    stage = [
        blocks.setdefault(tuple(values[i : i + n]), len(blocks)) for i in range(0, len(values), n)
    ]
    return stage, blocks


def render():
    combining = combining_classes()
    decomposed, pairs = compositions()
    sets = properties(combining, decomposed, pairs)
    bits = [0] * 0x110000
    for i, members in enumerate(sets):
        for c in members:
            bits[c] |= 1 << i
    category, script = numbered(CATEGORIES), numbered(SCRIPTS)
    check_categories(category)
    check_contractions(category)
    kinds = {}
    kind = [
        kinds.setdefault(
            (b, combining.get(c, 0), category.get(c, 0), script.get(c, -1) + 1), len(kinds)
        )
        for c, b in enumerate(bits)
    ]
    assert len(kinds) <= 256
    middle, blocks = staged(kind, 1 << BLOCK_BITS)
    top, middles = staged(middle, 1 << MIDDLE_BITS)
    assert len(middles) <= 256
    pool, maps, high = [], [], {}

    def short(c):  # core/model/unicode.h: unicode_wide
        return c if c < 0x10000 else 0xD800 + high.setdefault(c, len(high))

    for c in sorted(decomposed):
        d = [short(ord(x)) for x in decomposed[c]]
        assert 1 <= len(d) <= DECOMPOSED_MAX
        maps.append((short(c), len(pool) * DECOMPOSED_MAX + len(d) - 1))
        pool += d
    triples = [tuple(map(short, (a, b, pairs[a, b]))) for a, b in sorted(pairs)]
    assert len(high) <= 0x800 and len(pool) * DECOMPOSED_MAX <= 0x10000
    out = [
        "/* Generated by tests/tokenizer/unicode_gen.py "
        "from the tokenizers library; do not edit. */",
        '#include "core/model/unicode.h"',
        "",
        "/* clang-format off */",
        "const u8 unicode_top[] = {",
        *rows(top),
        "};",
        "const u16 unicode_middle[] = {",
        *rows([k for b in middles for k in b]),
        "};",
        "const u8 unicode_kind[] = {",
        *rows([k for b in blocks for k in b]),
    ]
    out += ["};", "const struct unicode_bits unicode_bits_of[] = {"]
    out += [*rows(["{0x%x, %d, %d, %d}" % k for k in kinds], "%s"), "};"]
    out += [
        "const u32 unicode_kind_count = %d;" % len(kinds),
        "const char unicode_categories[] =",
        '    "%s";' % "".join(CATEGORIES),
        'const char *const unicode_scripts[] = {"%s", NULL};' % '", "'.join(["", *SCRIPTS]),
    ]
    out += [
        "const u32 unicode_decomposed_count = %d;" % len(maps),
        "const struct unicode_decomposed unicode_decomposed[] = {",
        *rows(["{0x%x, %d}" % m for m in maps], "%s"),
        "};",
        "const u16 unicode_pool[] = {",
        *rows(pool, "0x%x"),
        "};",
    ]
    out += [
        "const u32 unicode_pair_count = %d;" % len(pairs),
        "const struct unicode_pair unicode_pairs[] = {",
        *rows(["{0x%x, 0x%x, 0x%x}" % t for t in triples], "%s"),
        "};",
        "const u32 unicode_high[] = {",
        *rows(high, "0x%x"),
        "};",
        "",
    ]
    return "\n".join(out)


def main():
    text = render()
    if "--check" in sys.argv[1:]:
        with open(TARGET) as f:
            same = f.read() == text
        print(
            "ok   unicode_table"
            if same
            else "FAIL unicode_table: %s is not what the library says" % TARGET
        )
        sys.exit(0 if same else 1)
    with open(TARGET, "w") as f:
        f.write(text)


main()
