#!/usr/bin/env python3
"""`ninja repro`: two builds of one tree, in two folders of different depth, give the same bytes.
Each copy has the files as they are now (changes take part) and the history that `zigcuda version`
shows. Of the GPU kernels a few are compiled, for one architecture, as all of them take long.
"""
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


def find_nvcc():
    """Puts the compiler of the kernels, which may lie in this build, into PATH, if there is one."""
    found = subprocess.run(["sh", "config/nvcc.sh"], cwd=tree.ROOT, stdout=subprocess.PIPE)
    if found.returncode == 0:
        os.environ["PATH"] = os.path.dirname(found.stdout.decode()) + ":" + os.environ["PATH"]
    return found.returncode == 0


def contents(where, names):
    found = []
    for name in names:
        with open(os.path.join(where, name), "rb") as f:
            found.append(f.read())
    return found


def program(where):
    copy(where)
    run(["./configure", "--sm=none"], where)
    run(["ninja"], where)
    return contents(where, ["build/zigcuda"])


def kernels(where):
    assembler = os.path.join(tree.ROOT, "build/ptxas")  # the one that this folder would use
    if os.path.isdir(assembler):
        os.symlink(assembler, os.path.join(where, "build/ptxas"))
    run(["./configure", "--sm=86"], where)
    some = ["--card=sm_86", "some.cubin", "pack", "delta"]
    run([sys.executable, "tests/cuda/alone.py", *some], where)
    return contents(where, ["some.cubin"])


def same(pool, build, folders):
    one, *others = pool.map(build, folders)
    return all(other == one for other in others) and one


with tempfile.TemporaryDirectory() as top:
    folders = [os.path.join(top, name) for name in ("a", "rather/deep/folder/b")]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        good = bool(same(pool, program, folders))
        if find_nvcc():
            good = bool(same(pool, kernels, folders)) and good
print("ok   reproducible" if good else "FAIL reproducible: two builds differ")
print(f"{int(good)} passed, {int(not good)} failed, 0 skipped")
sys.exit(not good)
