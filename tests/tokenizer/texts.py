"""Generated texts for compare.py: seeded, of all scripts, and unpleasant on purpose."""

import random

WORDS = (
    "the of and to in is that it was for on are as with his they at be this from have or by "
    "one had not but what all were when we there can an your which their said if do will each "
    "about how up out them then she many some so these would other into has more her two like "
    "him see time could no make than first been its who now people my made over did down only "
    "way find use may water long little very after words called just where most know get "
    "through back much before go good new write our used me man too any day same right look "
    "Straße naïve café façade coöperate 東京 日本語 你好 世界 привет мир как дела Γειά σου κόσμε "
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดี ชาวโลก 안녕하세요 세계 tiếng Việt"
).split()
RANGES = [
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x250, 0x2FF),
    (0x300, 0x36F),
    (0x370, 0x3FF),
    (0x400, 0x52F),
    (0x591, 0x5F4),
    (0x600, 0x6FF),
    (0x900, 0x97F),
    (0x980, 0xDFF),
    (0xE00, 0xE5B),
    (0xF00, 0xFD4),
    (0x1000, 0x109F),
    (0x10A0, 0x10FF),
    (0x1100, 0x11FF),
    (0x1200, 0x137C),
    (0x13A0, 0x13F5),
    (0x1AB0, 0x1AC0),
    (0x1D00, 0x1DFF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2070, 0x20FF),
    (0x2100, 0x23FF),
    (0x2460, 0x24FF),
    (0x2580, 0x27BF),
    (0x2C00, 0x2DFF),
    (0x3000, 0x30FF),
    (0x3131, 0x318E),
    (0x3400, 0x3500),
    (0x4E00, 0x9FFF),
    (0xA640, 0xA7FF),
    (0xAC00, 0xD7A3),
    (0xD7B0, 0xD7FB),
    (0xE000, 0xE0FF),
    (0xF900, 0xFAFF),
    (0xFB00, 0xFDFF),
    (0xFE00, 0xFFFF),
    (0x10000, 0x105FF),
    (0x10D40, 0x10D6F),
    (0x11000, 0x119FF),
    (0x16FE0, 0x16FF6),
    (0x1D160, 0x1D1FF),
    (0x1D400, 0x1D7FF),
    (0x1F000, 0x1FAFF),
    (0x20000, 0x20200),
    (0x2F800, 0x2FA1D),
    (0xE0000, 0xE01EF),
]
EMOJI = ["👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "❤️", "🧑🏿‍🚀", "😀", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "⛹🏻‍♀️"]
CONTRACTIONS = [
    "'s",
    "'S",
    "'ſ",
    "'t",
    "'T",
    "'re",
    "'RE",
    "'rE",
    "'ve",
    "'Ve",
    "'m",
    "'M",
    "'ll",
    "'LL",
    "'lL",
    "'d",
    "'D",
    "'x",
    "''s",
    "’s",
    "'",
    "'r",
    "'l",
    "'v",
    "'ſt",
    "'Ll's",
]
SPACES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n",
    "\n ",
    "  \n  ",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\u0085",
    "\v",
    "\f",
    "\r",
    "\u1680",
    "\u200b",
    "\ufeff",
    "\u180e",
    " \r\n\r\n ",
    "\n/",
    "\u202f",
]
DIGITS = [
    "0",
    "7",
    "12",
    "123",
    "1234",
    "12345678",
    "3.14",
    "1,000,000",
    "²",
    "½",
    "①②③",
    "Ⅷ",
    "٣٤٥",
    "१२३",
    "万",
    "𝟘𝟙",
    "𐵀𐵁",
    "༳",
    "1e-5",
    "0x1F",
    "〇",
    "㊿",
]
MARKS = [
    "\u0301",
    "\u0327",
    "\u0323\u0307",
    "\u0307\u0323",
    "\u0308\u0301",
    "\u20dd",
    "\u094d",
    "\u093c",
    "\u05bc\u05b4",
    "\u064b\u0651",
    "\u3099",
    "\u309a",
    "\u0345",
    "\u1ab0",
    "\u16ff0",
    "\u0f71\u0f72",
    "\u1161\u11a8",
    "\ufe0f",
    "\u0334\u0316",
]
CASED = [
    "camelCase",
    "HTTPServer",
    "ABCdef",
    "McDonald's",
    "iPhone'S",
    "ǅungla",
    "ʰªʷ",
    "ªB",
    "ÀÉ'll",
    "ΑΒΓδε",
    "Ⅳx",
    "ßẞ",
    "x\u0301Y\u0301Z",
    "\u0301ABC",
    "A\u0301B",
    "中A文b",
    "AʰB",
    "あA",
]
CODE = [
    "def f(x):\n    return x\n",
    "// ---- ///\n",
    "#include <stdio.h>\r\n",
    "</div>\n\n",
    "{}[]();",
    "a->b != c",
    "$$x^2$$",
    "...",
    "?!",
    "---\n---",
    "/*/",
    "\\n",
    "@#%&",
    "\"'",
    "``",
    "/\n/\r/",
]
ODD = [
    "▁",
    "▁▁",
    "<0x41>",
    "<0xE4>",
    "Ġ",
    "Ċ",
    "<unk>",
    "\x00",
    "\x01\x02",
    "\x1b[0m",
    "\x7f",
    "\x80",
    "\u00ad",
    "\ufffd",
    "\uffff",
    "\U0010ffff",
    "क्षि",
    "가각힣",
    "한국",
    "\u1112\u1161\u11ab",
    "Å",
    "Å",
    "ﬁ",
    "ǆ",
    "İi",
    "ſs",
    "\u0958",
    "\ufb2c",
    "\U0001d15e",
    "\u0390",
    "\u1f82",
    "\u2126",
    "豈",
]


def random_char(r):
    if r.random() < 0.03:
        c = r.randrange(0x110000)
        return chr(c) if not 0xD800 <= c <= 0xDFFF else "x"
    low, high = r.choice(RANGES)
    return chr(r.randint(low, high))


def script(r):
    low, high = r.choice(RANGES)
    return "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 8)))


def word(r):
    w = WORDS[min(int(r.expovariate(0.04)), len(WORDS) - 1)]
    k = r.random()
    return w.upper() if k < 0.1 else w.capitalize() if k < 0.25 else w


def long_run(r):
    unit = r.choice(
        [
            " ",
            "\n",
            "a",
            "A",
            "0",
            "-",
            "=",
            "\t",
            "\u0301",
            "é",
            "你",
            "▁",
            "😀",
            "'s",
            "ab",
            " a",
            "\r\n",
            "\u3000",
            "x\u0323\u0307",
            "가",
            "\u1161",
            "١",
        ]
    )
    return unit * int(r.expovariate(0.02) + 2)


def fragment(r):
    k = r.random()
    if k < 0.34:
        return word(r)
    if k < 0.52:
        return r.choice(SPACES) if r.random() < 0.4 else " "
    if k < 0.58:
        return r.choice(CONTRACTIONS)
    if k < 0.64:
        return r.choice(DIGITS)
    if k < 0.68:
        return r.choice(MARKS)
    if k < 0.72:
        return r.choice(CASED)
    if k < 0.76:
        return r.choice(CODE)
    if k < 0.80:
        return r.choice(ODD)
    if k < 0.83:
        return r.choice(EMOJI)
    if k < 0.91:
        return script(r)
    if k < 0.985:
        return random_char(r)
    return long_run(r)


def texts(seed, n, tokens=()):
    """n strings; `tokens` are sprinkled over them."""
    r = random.Random(seed)
    out = []
    for _ in range(n):
        parts = []
        for _ in range(min(int(r.expovariate(0.12)) + 1, 60)):
            if tokens and r.random() < 0.15:
                parts.append(r.choice(["", "", " ", "  ", "x", "\n", "_", "é"]) + r.choice(tokens))
            else:
                parts.append(fragment(r))
        out.append("".join(parts))
    return out


def giants(n):
    """A few texts of about n bytes; at a megabyte anything quadratic would show."""
    r = random.Random(5)
    yield from (
        c * (n // len(c.encode()))
        for c in [
            "a",
            " ",
            "\n",
            "7",
            "ab",
            "\u0301",
            "▁",
            "é",
            " a",
            "你",
            "😀",
            "A",
            "x\u0323\u0307",
        ]
    )
    yield "".join(fragment(r) for _ in range(n // 8))
    yield "".join(r.choice("abcde") for _ in range(n))
    yield "".join(r.choice(MARKS) for _ in range(n // 8))


def code_points():
    """Of the planes that have characters all, of the others those at their ends."""
    return [
        chr(c)
        for c in range(0x110000)
        if not 0xD800 <= c <= 0xDFFF and (c >> 16 in (0, 1, 2, 3, 14) or (c + 128) & 0xFFFF < 256)
    ]


def everything():
    """Every code point: among its neighbours, and between a letter and a mark."""
    cps = code_points()
    for i in range(0, len(cps), 2048):
        yield "".join(cps[i : i + 2048])
    for i in range(0, 0x3000, 512):
        yield "".join("a" + c + "B\u0301 " for c in cps[i : i + 512])


def corpus(seed=1):
    """Lines to train small vocabularies on; the oddities come often enough to be merged."""
    r = random.Random(seed)
    for _ in range(6000):
        yield "".join(
            (word(r) + " ") if r.random() < 0.5 else fragment(r) for _ in range(r.randint(3, 16))
        )
    for _ in range(3000):
        yield "".join(
            r.choice(r.choice([CONTRACTIONS, SPACES, DIGITS, MARKS, CASED, CODE, WORDS]))
            for _ in range(r.randint(2, 6))
        )


def broken(seed, n):
    """Byte strings, most of them not UTF-8."""
    r = random.Random(seed)
    out = []
    for t in texts(seed, n):
        b = bytearray(t.encode())
        for _ in range(r.randint(1, 3)):
            k, at = r.random(), r.randrange(len(b) + 1)
            if k < 0.4:
                b.insert(at, r.randint(0x80, 0xFF))
            elif k < 0.7 and at < len(b):
                del b[at]
            else:
                b[at:at] = r.choice(
                    [
                        b"\xc0\x80",
                        b"\xed\xa0\x80",
                        b"\xf4\x90\x80\x80",
                        b"\xe0\x80\x80",
                        b"\xf8\x88\x80\x80\x80",
                        b"\xe4\xbd",
                        b"\xf0\x9f\x98",
                        b"\xff",
                    ]
                )
        out.append(bytes(b))
    return out
