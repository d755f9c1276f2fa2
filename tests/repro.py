#!/usr/bin/env python3
"""`ninja repro`: two builds of one tree, in two folders of different depth, give the same bytes.
Copies what git tracks and what it does not ignore (so that changes take part) with the history that
`zigcuda version` shows, builds both and compares the binaries."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(command, where):
    done = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"FAIL reproducible: {' '.join(command)}\n{done.stdout.decode()}")
    return done.stdout


def copy(to):
    if os.path.exists(os.path.join(ROOT, ".git")):
        run(["git", "clone", "-q", "--shared", "--no-checkout", ROOT, to], ROOT)
        names = run(["git", "ls-files", "-z", "-co", "--exclude-standard"], ROOT).split(b"\0")
    else:
        names = [os.path.relpath(os.path.join(d, f), ROOT).encode()
                 for d, _, files in os.walk(ROOT) for f in files]
        names = [n for n in names if not n.startswith(b"build/")]
    for name in filter(None, names):
        source, target = os.path.join(ROOT.encode(), name), os.path.join(to.encode(), name)
        if os.path.exists(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(source, target)
    if os.path.exists(os.path.join(to, ".git")):
        run(["git", "reset", "-q"], to)


def build(where):
    copy(where)
    run(["./configure"], where)
    run(["ninja"], where)
    with open(os.path.join(where, "build/zigcuda"), "rb") as f:
        return f.read()


with tempfile.TemporaryDirectory() as top:
    one = build(os.path.join(top, "a"))
    two = build(os.path.join(top, "a/rather/deep/folder/b"))
print("ok   reproducible" if one == two else "FAIL reproducible: the two binaries differ")
print(f"{int(one == two)} passed, {int(one != two)} failed, 0 skipped")
sys.exit(one != two)
