#!/usr/bin/env python3
"""lean.py FILE: takes out of GPU code, a cubin or PTX, what only people and debuggers read."""

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


def main():
    with open(sys.argv[1], "rb") as f:
        code = f.read()
    lean = without_frames if code[:4] == b"\x7fELF" else without_comments
    with open(sys.argv[1], "wb") as f:
        f.write(lean(code))


main()
