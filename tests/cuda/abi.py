"""Our declarations of the CUDA driver API against the cuda.h of a toolkit: every function of
drivers/cuda/driver.def (its symbol, and the machine type of each parameter), every constant of
drivers/cuda/driver.h, every result of drivers/cuda/result.def, both ways.

usage: abi.py [cuda.h]     Without one: CUDA_HOME, the usual folders, the wheels of build/venv.
Where there is no cuda.h all of it is skipped: the build needs none either.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HANDLES = {"CUcontext": "context", "CUstream": "stream", "CUevent": "event", "CUmodule": "module",
           "CUfunction": "function", "CUgraph": "graph", "CUgraphExec": "graph_exec"}
# A pointer is a pointer; what it points to is compared where it is not opaque.
TYPES = {"unsigned int": "u32", "CUdeviceptr": "u64", "CUdevice": "int", "unsigned char": "u8",
         "unsigned long long": "u64", "cuuint64_t": "u64", "CUuuid": "struct cuda_uuid",
         "CUdevice_attribute": "enum", "CUfunction_attribute": "enum", "CUjit_option": "enum",
         "CUstreamCaptureMode": "enum", "CUhostFn": "function *",
         **{k: f"struct cuda_{v} *" for k, v in HANDLES.items()}}


def find_header():
    wheels = os.path.join(ROOT, "build/*/lib/python*/site-packages/nvidia/*/include")
    places = [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"),
              *glob.glob("/usr/local/cuda*/include"), "/usr/include", *glob.glob(wheels)]
    return next((p for p in (os.path.join(d, "cuda.h") for d in places) if os.path.exists(p)), None)


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return re.sub(r"/\*.*?\*/|//[^\n]*", " ", f.read(), flags=re.S)


def split(parameters):
    """Top-level commas only: a pointer to a function has some of its own."""
    out, depth = [""], 0
    for c in parameters:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return [p.strip() for p in out if p.strip() not in ("", "void")]


def machine_type(parameter):
    if re.search(r"\(\s*\*\s*\w*\s*\)\s*\(", parameter):
        return "function*"
    p = re.sub(r"\b(const)\b", " ", parameter)
    stars = p.count("*")
    words = p.replace("*", " ").split()
    if words[0] == "enum":
        words = ["enum"] + words[2:]
    for n in (3, 2, 1):  # the longest known type; a name may follow
        base = " ".join(words[:n])
        if base in TYPES:
            base = TYPES[base]
            break
    else:
        base = " ".join(words[:2]) if words[0] == "struct" else words[0]
    return base.replace(" *", "") + "*" * (stars + base.count("*"))


def theirs(header):
    """symbol -> machine types, with the suffix that the header's macros add."""
    renamed = dict(re.findall(r"#define\s+(cu\w+)\s+(cu\w+)\s", header))
    renamed.update(re.findall(r"#define\s+(cu\w+)\s+__CUDA_API_PT(?:DS|SZ)\((cu\w+)\)", header))
    found = {}
    for name, parameters in re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;]*)\)\s*;", header):
        found.setdefault(name, []).append([machine_type(p) for p in split(parameters)])
    for name, symbol in renamed.items():
        if name in found and symbol not in found:
            found[symbol] = found[name]
    return found


def ours():
    text = text_of(os.path.join(ROOT, "drivers/cuda/driver.def"))
    for m in re.finditer(r"CUDA_CALL\((\w+), (\d+), (\w+), (\w+),", text):
        rest, depth, at = text[m.end():].lstrip(), 0, 0
        for at, c in enumerate(rest):
            depth += (c == "(") - (c == ")")
            if depth == 0:
                break
        yield m.group(4), [machine_type(p) for p in split(rest[1:at])]


def check(name, wrong):
    print(f"FAIL {name}: " + "; ".join(wrong[:5]) if wrong else f"ok   {name}")
    return bool(wrong)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else find_header()
    if not path:
        print("skip abi: no cuda.h here (a toolkit, or the wheel nvidia-cuda-runtime)")
        return 0
    header = text_of(path)
    functions = theirs(header)
    rows = list(ours())
    assert len(rows) > 40, "the rows of driver.def were not understood"
    wrong = [f"{s}: {t} is none of {functions.get(s)}" for s, t in rows
             if t not in functions.get(s, [])]
    bad = check("cuda_functions_are_those_of_cuda_h", wrong)

    values = {n: int(v, 0) for n, v in
              re.findall(r"\b(CU(?:DA)?_[A-Z0-9_]+)\s*=?\s+(0x[0-9a-fA-F]+|\d+)\b", header)}
    text = text_of(os.path.join(ROOT, "drivers/cuda/driver.h"))
    constants = re.findall(r"\b(CU_[A-Z0-9_]+) = (0x[0-9a-fA-F]+|\d+)", text)
    assert len(constants) > 40
    bad |= check("cuda_constants_are_those_of_cuda_h",
                 [f"{n} is {values.get(n)}" for n, v in constants if values.get(n) != int(v, 0)])

    enum = re.search(r"typedef enum cudaError_enum\s*\{(.*?)\}\s*CUresult", header, re.S).group(1)
    known = {n: int(v) for n, v in re.findall(r"CUDA_(\w+)\s*=\s*(\d+)", enum)}
    text = text_of(os.path.join(ROOT, "drivers/cuda/result.def"))
    table = {n: int(c) for c, n in re.findall(r"CUDA_RESULT\((\d+), (\w+),", text)}
    assert len(known) > 90
    wrong = [f"{n} is {known[n]}, not {table.get(n)}" for n in known if table.get(n) != known[n]]
    newer = [n for n in table if n not in known]
    bad |= check("cuda_results_are_those_of_cuda_h", wrong)
    if newer:
        print(f"     ({path} is older than these: {' '.join(newer)})")
    return bad


sys.exit(main())
