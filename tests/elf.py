#!/usr/bin/env python3
"""tests/elf.py BINARY ARCH: is it the file that DESIGN.md promises? Reads the ELF headers (gABI)
instead of trusting flags: Debian's `musl-gcc -static-pie`, for one, makes a dynamic binary."""
import struct
import sys

SIZE_MAX_BYTES = 5000000  # the promise, GPU kernels of every architecture included
ET_DYN, PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 3, 1, 2, 3, 4
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
DT_NEEDED, DT_TEXTREL, DT_FLAGS, DT_FLAGS_1 = 1, 22, 30, 0x6FFFFFFB
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 4, 8, 1, 0x08000000
X, W = 1, 2
MACHINES = {"x86_64": 62, "aarch64": 183}

path, arch = sys.argv[1:]
with open(path, "rb") as f:
    data = f.read()
bad = 0


def check(good, what):
    global bad
    bad += not good
    print(f"{'ok  ' if good else 'FAIL'} {what}")


assert data[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
kind, machine = struct.unpack_from("<HH", data, 16)
at, = struct.unpack_from("<Q", data, 32)
size, count = struct.unpack_from("<HH", data, 54)
segments = [struct.unpack_from("<IIQQQQQQ", data, at + i * size) for i in range(count)]
by_type = {s[0]: s for s in segments}
dynamic = {}
if PT_DYNAMIC in by_type:
    s = by_type[PT_DYNAMIC]
    for i in range(0, s[5], 16):
        tag, value = struct.unpack_from("<QQ", data, s[2] + i)
        dynamic[tag] = dynamic.get(tag, 0) | value
flags, flags_1 = dynamic.get(DT_FLAGS, 0), dynamic.get(DT_FLAGS_1, 0)

check(machine == MACHINES[arch], f"machine is {arch}")
check(kind == ET_DYN and flags_1 & DF_1_PIE, "position independent executable")
check(PT_INTERP not in by_type and DT_NEEDED not in dynamic, "static: no interpreter, no library")
check(PT_GNU_RELRO in by_type, "RELRO segment")
check(flags & DF_BIND_NOW or flags_1 & DF_1_NOW, "full RELRO: bound at start")
check(not flags & DF_TEXTREL and DT_TEXTREL not in dynamic, "no relocation of code")
check(not any(s[0] == PT_LOAD and s[1] & W and s[1] & X for s in segments),
      "no segment both writable and executable")
check(PT_GNU_STACK in by_type and not by_type[PT_GNU_STACK][1] & X, "stack not executable")
check(b".note.gnu.build-id" not in data, "no build-id")
check(len(data) <= SIZE_MAX_BYTES, f"{len(data)} bytes, at most {SIZE_MAX_BYTES}")
sys.exit(bad != 0)
