#!/usr/bin/env python3
"""image.py OUT KIND:NUMBER:FILE...: joins GPU code for kernels/cuda/image.h and packs it.

KIND is sm (a cubin) or ptx, NUMBER the compute capability (86). Code for cards of one generation is
much alike, so it is packed as one stream, what runs on the slowest hosts first: who wants a later
one unpacks those before it as well.
"""

import lzma
import struct
import sys

GROUPS = (("sm", (90,)), ("sm", (87, 86, 89, 80)), ("sm", (75,)), ("sm", (110, 120, 100)),
          ("ptx", (75, 80)))
PTX = 1 << 16
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 4, "pb": 4,
            "dict_size": 1 << 26, "nice_len": 273}]


def main():
    codes = {}
    for arg in sys.argv[2:]:
        kind, number, path = arg.split(":", 2)
        with open(path, "rb") as f:
            codes[kind, int(number)] = f.read() + (b"\0" if kind == "ptx" else b"")
    left = set(codes) - {(kind, n) for kind, numbers in GROUPS for n in numbers}
    assert not left, f"{left}: in no group"

    entries, packed = [], b""
    at = 4 + len(codes) * struct.calcsize("<5I")
    for kind, numbers in GROUPS:
        group = b""
        members = []
        for n in numbers:
            code = codes.get((kind, n))
            if code:
                members.append((n | (PTX if kind == "ptx" else 0), len(group), len(code)))
                group += code + bytes(-len(code) % 16)
        if members:
            stream = lzma.compress(group, lzma.FORMAT_RAW, filters=FILTERS)
            entries += [(code, at + len(packed), len(stream), first, n)
                        for code, first, n in members]
            packed += stream
    with open(sys.argv[1], "wb") as f:
        f.write(struct.pack("<I", len(entries)))
        for e in entries:
            f.write(struct.pack("<5I", *e))
        f.write(packed)


main()
