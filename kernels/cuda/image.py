#!/usr/bin/env python3
"""image.py OUT KIND:NUMBER:FILE...: joins GPU code for kernels/cuda/image.h and packs it.

KIND is sm (a cubin) or ptx, NUMBER the compute capability (86). Code for cards of one generation is
much alike, so it is packed as one stream, what runs on the slowest hosts first: who wants a later
one unpacks those before it as well. (For Turing that is 0.06 s more of the start than a stream of
its own, which took 25 KB more.) PTX has its registers numbered by kernels/cuda/lean.py, and is
written as kernels/cuda/ptx.h says.
"""

import lzma
import re
import struct
import sys

GROUPS = (("sm", (90,)), ("sm", (87, 86, 89, 80, 75)), ("sm", (110, 120, 100)),
          ("ptx", (75, 80)))
PTX = 1 << 16
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 4, "pb": 4,
            "dict_size": 1 << 26, "nice_len": 273}]
REGISTER = re.compile(rb"%(rd|rs|r|fd|f|p)(\d+)\b")
REGISTERS = 16384  # ptx.h


def near(text):
    """PTX with how long ago a register was used instead of its number."""
    lines, used = [], {}

    def told(match):
        kind, number = match[1], int(match[2])
        own = used.setdefault(kind, [])
        if number == len(own) + 1 <= REGISTERS:
            own.append(number)
            return b"%" + kind + b"*"
        behind = next(i for i in range(len(own)) if own[-1 - i] == number)
        own.append(own.pop(-1 - behind))
        return b"%" + kind + b"%d" % behind

    for line in text.split(b"\n"):
        if line.startswith((b".visible", b".func", b".entry", b".weak", b".extern")):
            used = {}
            line = b"\f" + line
        lines.append(REGISTER.sub(told, line))
    return b"\n".join(lines)


def main():
    codes = {}
    for arg in sys.argv[2:]:
        kind, number, path = arg.split(":", 2)
        with open(path, "rb") as f:
            codes[kind, int(number)] = f.read()
    left = set(codes) - {(kind, n) for kind, numbers in GROUPS for n in numbers}
    assert not left, f"{left}: in no group"

    entries, packed = [], b""
    at = 4 + len(codes) * struct.calcsize("<6I")
    for kind, numbers in GROUPS:
        group = b""
        members = []
        for n in numbers:
            code = codes.get((kind, n))
            if not code:
                continue
            packs = near(code) if kind == "ptx" else code
            members.append((n | (PTX if kind == "ptx" else 0), len(group), len(packs),
                            len(code) + 1 if kind == "ptx" else 0))
            group += packs + bytes(-len(packs) % 16)
        if members:
            stream = lzma.compress(group, lzma.FORMAT_RAW, filters=FILTERS)
            entries += [(code, at + len(packed), len(stream), *place)
                        for code, *place in members]
            packed += stream
    with open(sys.argv[1], "wb") as f:
        f.write(struct.pack("<I", len(entries)))
        for e in entries:
            f.write(struct.pack("<6I", *e))
        f.write(packed)


main()
