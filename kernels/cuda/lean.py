#!/usr/bin/env python3
"""lean.py [--names] FILE: takes out of GPU code, a cubin or PTX, what only people and debuggers
read. --names: registers and labels of each PTX function are numbered as they come, which image.py
makes less of.
"""

import re
import struct
import sys

# Of an ELF file's sections (elf.h): name, type, flags, address, offset, size, ..
SECTION = struct.Struct("<IIQQQQIIQQ")


def without_frames(code):
    """A cubin without what debuggers want to know of stack frames: zeros in its place."""
    at, = struct.unpack_from("<Q", code, 0x28)
    n, names = struct.unpack_from("<HH", code, 0x3c)
    sections = [SECTION.unpack_from(code, at + i * SECTION.size) for i in range(n)]
    code = bytearray(code)
    for s in sections:
        name = sections[names][4] + s[0]
        if code[name:name + 13] == b".debug_frame\0":
            code[s[4]:s[4] + s[5]] = bytes(s[5])
    return bytes(code)


def without_comments(code):
    """PTX, with a space where there were some."""
    lines = (b" ".join(line.split()) for line in code.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith(b"//")) + b"\n"


def with_names(code):
    """What PTX calls them is without meaning, but for %r<N>, which says how many there are."""
    lines, names, label = [], {}, re.compile(rb"(%(?:rd|rs|r|fd|f|p)|\$L)(?:__BB\d+_)?(\d+)\b")

    def named(match):
        kind, number = match.groups()
        own = names.setdefault(kind, {})
        return b"%s%d" % (kind, own.setdefault(number, len(own) + (kind != b"$L")))

    for line in code.splitlines():
        if line.startswith((b".visible", b".func", b".entry", b".weak", b".extern")):
            names = {}
        lines.append(label.sub(named, line))
    return b"\n".join(lines) + b"\n"


def main():
    with open(sys.argv[-1], "rb") as f:
        code = f.read()
    code = without_frames(code) if code[:4] == b"\x7fELF" else without_comments(code)
    with open(sys.argv[-1], "wb") as f:
        f.write(with_names(code) if "--names" in sys.argv else code)


main()
