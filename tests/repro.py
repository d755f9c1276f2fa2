#!/usr/bin/env python3
"""`ninja repro`: two builds of one tree, in two folders of different depth, give the same bytes.
Each copy has the files as they are now (changes take part) and the history that `zigcuda version`
shows. Of the GPU kernels one architecture is built, as the compiler takes long: one with fewer."""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

import tree


def run(command, where):
    done = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"FAIL reproducible: {' '.join(command)}\n{done.stdout.decode()}")
    return done.stdout


def copy(to):
    has_git = tree.git("rev-parse", "HEAD") is not None
    if has_git:
        run(["git", "clone", "-q", "--shared", "--no-checkout", tree.ROOT, to], tree.ROOT)
    for name in tree.files():
        target = os.path.join(to, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(tree.ROOT, name), target)
    if has_git:
        run(["git", "reset", "-q"], to)


def gpu():
    """The option for the kernels, and PATH with their compiler, which may lie in this build."""
    found = subprocess.run(["sh", "config/nvcc.sh"], cwd=tree.ROOT, stdout=subprocess.PIPE)
    if found.returncode != 0:
        return []
    os.environ["PATH"] = os.path.dirname(found.stdout.decode()) + ":" + os.environ["PATH"]
    return ["--sm=86"]


def build(where, options):
    copy(where)
    run(["./configure", *options], where)
    run(["ninja"], where)
    with open(os.path.join(where, "build/zigcuda"), "rb") as f:
        return f.read()


with tempfile.TemporaryDirectory() as top:
    folders = [os.path.join(top, name) for name in ("a", "rather/deep/folder/b")]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # what takes long leaves cores free
        one, two = pool.map(build, folders, [gpu()] * 2)
print("ok   reproducible" if one == two else "FAIL reproducible: the two binaries differ")
print(f"{int(one == two)} passed, {int(one != two)} failed, 0 skipped")
sys.exit(one != two)
