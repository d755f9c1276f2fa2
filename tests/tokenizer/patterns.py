#!/usr/bin/env python3
"""Holds the split patterns (core/model/split.c) against Oniguruma as `tokenizers` has it.

    build/venv/bin/python tests/tokenizer/patterns.py [--patterns N] [--strings N] [--seed N]

The patterns of public models over hard strings; random patterns over random strings of the
characters that they name; what must be refused; and texts on which backtracking could be slow.
"""

import argparse
import array
import functools
import itertools
import os
import random
import re
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Regex, pre_tokenizers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare
import kinds
import texts

# Refused, each for what is named in the message.
REFUSED = {
    r"(?<=a)b": "group that is not supported",
    r"(?<!a)b": "group that is not supported",
    r"(?<name>a)": "group that is not supported",
    r"(?i)a": "group that is not supported",
    r"(?-i:a)": "group that is not supported",
    r"(a)\1": "escape that is not supported",
    r"\bx": "escape that is not supported",
    r"\Ax": "escape that is not supported",
    r"\X": "escape that is not supported",
    r"\p{Emoji}": "property that is not known",
    r"\p{Alphabetic}": "property that is not known",
    r"\pL": r"\p without",
    r"[[:alpha:]]": "[:..:]",
    r"[a": "without its ]",
    r"[]": "empty class",
    r"[a&&]": "empty class",
    r"[z-a]": "ends before it begins",
    r"[a-\d]": "ends before it begins",
    r"[\d-z]": "a - that is no range",
    r"(a": "without its )",
    r"a)": "without its group",
    r"*a": "nothing to repeat",
    r"a**": "repetition of a repetition",
    r"a{2}+": "with a + behind it",
    r"a{3,2}": "no count",
    r"a{": "no count",
    r"(a*)*": "may match nothing",
    r"(?=a)*": "assertion",
    r"(?i:ss)": "ligature",
    r"(?i:s(?:t))": "ligature",
    r"(?i:s{2})": "ligature",
    r"(?i:é)": "neither ASCII",
    r"(?i:\w)": "neither ASCII",
    r"(?i:[^s])": "[^..] in",
    r"(?i:\x73)": "code point in",
    r"\x80": "a byte that is no character",
    r"\ud800": "no code point",
    r"\x{110000}": "no code point",
    r"(?i:\x{41eeee})": "no code point",
    "a\\": "escape that is not supported",
    "(" * 40 + "a" + ")" * 40: "LIMIT_SPLIT_DEPTH",
    "[" * 40 + "a" + "]" * 40: "LIMIT_SPLIT_DEPTH",
    "(?:ab){600}": "LIMIT_SPLIT_CODE",
    "".join(map(chr, range(0x4E00, 0x4E50))): "LIMIT_SPLIT_CLASSES",
    "[" + "".join(map(chr, range(0x4E00, 0x6000, 2))) + "]": "LIMIT_SPLIT_ZONES",
    "a" * 20000: "LIMIT_SPLIT_BYTES",
}

# What any text may hold, on which a pattern could be slow; None: giving up is allowed.
SLOW = [
    (r"\s+$", " ", "x", True),
    (r"\s?\s+$", " ", "x", True),
    (r"\s+(?!\S)|\s+", " ", "x", True),
    (r"\s*[\r\n]+|x", " ", "x", True),
    (r"[a-z]+[0-9]|[a-z]", "a", "", True),
    (r"(?:a|b)+c", "ab", "", False),
    (r"(?:a+)+b", "a", "", False),
    (r"(?:a|a)*b", "a", "", False),
    (r"(?=(?:\d{3})+(?!\d))", "1", "", False),
    (r"\d{1,3}(?=(?:\d{3})*$)", "1", "", False),
]


def answers(records):
    return compare.drive(FOLDER, records)


@functools.lru_cache(20000)  # patterns come by the hundred for the same strings
def byte_offsets(s):
    """Of each character of a string, and of its end."""
    return array.array("I", itertools.accumulate((len(c.encode()) for c in s), initial=0))


def wanted(regex, strings):
    """Spans of the matches, in bytes."""
    split = pre_tokenizers.Split(Regex(regex), "removed", invert=True)
    for s in strings:
        spans = [span for _, span in split.pre_tokenize_str(s)]
        if not s.isascii():
            at = byte_offsets(s)
            spans = [(at[a], at[b]) for a, b in spans]
        yield spans


def got_spans(answer):
    a = array.array("I", answer)
    return [(x, y) for x, y in zip(a[::2], a[1::2]) if x != y]


def check(f, jobs):
    """Jobs are (regex, strings); what is refused here or there is not compared. How many were."""
    records, compared = [], 0
    for regex, strings in jobs:
        records.append((b"r", regex.encode()))
        records += [(b"t", s.encode()) for s in strings]
    found, at = answers(records), 0
    for regex, strings in jobs:
        refusal, mine = found[at].decode(errors="replace"), found[at + 1 : at + 1 + len(strings)]
        at += 1 + len(strings)
        if refusal:
            continue
        try:
            theirs = list(wanted(regex, strings))
        except Exception as e:
            f.check(False, "Oniguruma refuses it", regex, str(e))
            continue
        compared += 1
        for s, a, b in zip(strings, theirs, mine):
            f.check(a == got_spans(b), "spans", regex, s, a, got_spans(b))
    return compared


ALPHABET = "aAbBsSkKſK1٣²½ \t\n\r\u00a0\u0085\u2028é中あ가,.-'’&[]{}^$|/\u0301ǅʰⅧ😀"
ATOMS = [
    *"abAsk1 ,'’é中",
    r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\p{L}", r"\p{N}", r"\P{L}", r"\p{^N}", r"\p{Lu}",
    r"\p{Ll}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\p{Han}", r"\p{Letter}",
    r"\r", r"\n", r"\t", r"\.", r"\-", r"\x41", r"\x{4e2d}", r"\u00e9", ".", "[ab]", "[^ab]",
    "[a-z]", "[^\\s\\p{L}\\p{N}]", "[\\r\\n]", "[一-龥]", "[^一-龥a-f]", "[a-z&&[^aeb]]",
    "[\\w&&\\D]",    "[^\\d&&[^1]]", "[a[b1]]", "[.,$^|(){}-]", "[-a]", "[\\]\\[]",
    "[\\x{4e00}-\\x{9fff}]", "[^(\\s|[.,])]",
    "(?i:s)", "(?i:'s|'t|'k)", "(?i:[a-s])", "(?i:’s)", "^", "$", "(?!\\S)", "(?=a)", "(?!a|b1)",
    "(?=.?b)",
]  # fmt: skip
COUNTS = "? * + {2} {1,2} {2,} {,2} ?? *? +? {1,2}? ?+ *+ ++".split()


def random_pattern(r, depth=0):
    def sequence():
        out = ""
        for _ in range(r.randint(1, 4)):
            if depth < 3 and r.random() < 0.2:
                atom = r.choice(["(?:", "(", "(?>", "(?=", "(?!", "(?i:"])
                atom += random_pattern(r, depth + 1) + ")"
            else:
                atom = r.choice(ATOMS)
            out += atom + (r.choice(COUNTS) if r.random() < 0.45 else "")
        return out

    return "|".join(sequence() for _ in range(min(int(r.expovariate(0.8)) + 1, 4)))


def short(r):
    return "".join(r.choice(ALPHABET) * r.choice([1, 1, 1, 2, 5]) for _ in range(r.randint(0, 12)))


def check_random(f, seed, n):
    r, total = random.Random(seed), 0
    for _ in range(0, n, 2000):
        jobs = []
        for _ in range(min(n, 2000)):
            regex, strings = random_pattern(r), [short(r) for _ in range(12)]
            if re.search(r"\)[*+{]", regex):  # Oniguruma could take for ever
                strings = [s[:9] for s in strings]
            jobs.append((regex, strings))
        total += check(f, jobs)
    f.check(total > n // 4, "most random patterns are refused", total, n)
    return total


def check_properties(f):
    """Each category, group and script over all code points."""
    names = "L M N P S Z C Letter Mark Number Punctuation Symbol Separator Other".split()
    names += "Cn Cc Cf Co Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk".split()
    names += "So Zs Zl Zp Han Hiragana Katakana Hangul Latin Greek Cyrillic Arabic".split()
    names += ["Hebrew", "Thai"]
    classes = [r"\p{%s}+" % n for n in names]
    classes += [r"\s+", r"\d+", r"\w+", r"\W+", r"[\w]+", r"[\W]+", r"[^\s]+", ".+"]
    classes += [r"[^\p{L}a]+"]
    folds = ["(?i:%s)+" % c for c in "abcdefghijklmnopqrstuvwxyz"] + ["(?i:[r-t'])+", "(?i:[a-z])+"]
    everything = ["".join(texts.code_points())]
    done = check(f, [(c, everything) for c in classes + folds])
    f.check(done == len(classes) + len(folds), "a class is refused", done)


def check_refused(f):
    for regex, why in REFUSED.items():
        got = answers([(b"r", regex.encode())])[0].decode(errors="replace")
        f.check(why in got and "pre_tokenizer.pattern" in got, "refusal", regex[:80], why, got)


def check_slow(f):
    n = 1 << 20
    for regex, unit, end, linear in SLOW:
        text = (unit * n)[:n] + end
        from_s = time.time()
        got = answers([(b"r", regex.encode()), (b"t", text.encode())])
        took = time.time() - from_s
        f.check(got[0] == b"" and took < 5, "slow", regex, took)
        f.check(not linear or got[1] != b"\xff\xff\xff\xff", "given up", regex)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--patterns", type=int, default=12000)
    p.add_argument("--strings", type=int, default=4000)
    p.add_argument("--seed", type=int, default=11)
    a = p.parse_args()
    kinds.make("gpt2", False, FOLDER)
    f = compare.Failures("patterns")
    check_refused(f)
    check_slow(f)
    check_properties(f)
    everything = list(texts.everything())  # beyond the first planes there is nothing new
    strings = texts.texts(29, a.strings) + everything[:40] + everything[-24:]
    strings += texts.giants(1 << 12)
    jobs = [(regex, strings) for regex in kinds.PATTERNS.values()]
    known = check(f, jobs)
    f.check(known == len(jobs), "a pattern of a public model is refused", known, len(jobs))
    total = check_random(f, a.seed, a.patterns)
    print(
        "%s patterns: %d of models, %d of %d random ones"
        % ("FAIL" if f.n else "ok  ", known, total, a.patterns)
    )
    sys.exit(f.n > 0)


FOLDER = "build/tests/tokenizer/patterns"
if __name__ == "__main__":
    main()
