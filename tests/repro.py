#!/usr/bin/env python3
"""`ninja repro`: two builds of one tree, in two folders of different depth, give the same bytes.
Each copy has the files as they are now (changes take part) and the history that `zigcuda version`
shows. Of the GPU kernels one architecture is compiled, as that takes long; only once where this
folder has it, which is then the other one.
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
    run(["ninja", *KERNELS], where)
    return contents(where, KERNELS)


def kernels_here():
    """Those of this folder's build; None where it has not built them."""
    asked = subprocess.run(["ninja", "-n", *KERNELS], cwd=tree.ROOT, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
    built = asked.returncode == 0 and b"no work to do" in asked.stdout
    return contents(tree.ROOT, KERNELS) if built else None


def same(pool, build, folders):
    one, *others = pool.map(build, folders)
    return all(other == one for other in others) and one


KERNELS = ["build/gpu/sm_86.cubin", "build/gpu/later_80.ptx"]
with tempfile.TemporaryDirectory() as top:
    folders = [os.path.join(top, name) for name in ("a", "rather/deep/folder/b")]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # what takes long leaves cores free
        good = bool(same(pool, program, folders))
        if find_nvcc():
            here = kernels_here()
            there = same(pool, kernels, folders[:1] if here else folders)
            good = good and bool(there) and here in (None, there)
print("ok   reproducible" if good else "FAIL reproducible: two builds differ")
print(f"{int(good)} passed, {int(not good)} failed, 0 skipped")
sys.exit(not good)
