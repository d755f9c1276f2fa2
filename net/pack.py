#!/usr/bin/env python3
"""pack.py OUT FILE: a file as core/base/lzma.h unpacks it, behind its size (u32, little endian)."""

import lzma
import struct
import sys

FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 4, "pb": 4,
            "dict_size": 1 << 26}]

with open(sys.argv[2], "rb") as f:
    data = f.read()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<I", len(data)) + lzma.compress(data, lzma.FORMAT_RAW, filters=FILTERS))
