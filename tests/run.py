#!/usr/bin/env python3
"""The one test runner: `ninja test` and `ninja asan` call it; so may you, with names of
tests/run.list behind it:

    tests/run.py [--objects=build] [--where=x86_64] [--exec=] [-v] [NAME...]

Each line of tests/run.list is a program or script. What it prints decides what is counted: a line
that begins with "ok ", "FAIL " or "skip " is one test; one that prints none of these counts as one
test by its exit status. A status other than 0 without a FAIL line is a failure too. Whatever is
missing (a tool, the venv) is a failed test where the environment says CI=true, and else a skipped
one. The last line is `N passed, N failed, N skipped`; the exit status is 1 if anything failed.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import string
import subprocess
import sys
import time

TIMEOUT_S = 900
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV_PYTHON = "build/venv/bin/python3"


class Entry:
    def __init__(self, line, number):
        fields = line.split(None, 3)
        if len(fields) != 4:
            sys.exit(f"tests/run.list:{number}: want: name where needs command")
        self.name, where, needs, self.command = fields
        self.where = where.split(",")
        self.needs = [] if needs == "-" else needs.split(",")
        self.sleeps = "sleeps" in self.needs
        self.needs = [n for n in self.needs if n != "sleeps"]

    def missing(self):
        for need in self.needs:
            path = VENV_PYTHON if need == "venv" else need
            if not (os.path.exists(path) if "/" in path else shutil.which(need)):
                return need
        return None


def read_list(where):
    with open("tests/run.list") as f:
        lines = [(n, l.strip()) for n, l in enumerate(f, 1)]
    entries = [Entry(l, n) for n, l in lines if l and not l.startswith("#")]
    return [e for e in entries if where in e.where]


def run(entry, args):
    """Returns (passed, failed, skipped, seconds, output)."""
    missing = entry.missing()
    if missing:
        text = f"needs {missing}, which is not here: ./configure --with-deps installs it\n"
        in_ci = os.environ.get("CI") == "true"
        return (0, 1, 0, 0.0, text) if in_ci else (0, 0, 1, 0.0, text)
    arch = "aarch64" if args.where == "aarch64" else "x86_64"
    values = {"o": args.objects, "exec": args.exec, "python": sys.executable,
              "venv": VENV_PYTHON, "arch": arch}
    command = string.Template(entry.command).substitute(values)
    env = dict(os.environ, LC_ALL="C.UTF-8", ZIGCUDA_OBJECTS=args.objects, ZIGCUDA_ARCH=arch,
               ZIGCUDA=f"{args.exec} {args.objects}/zigcuda".strip())
    start = time.monotonic()
    p = subprocess.Popen(command, shell=True, env=env, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output = p.communicate(timeout=TIMEOUT_S)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        output = p.communicate()[0].decode("utf-8", "replace")
        output += f"\nFAIL {entry.name}: stopped after {TIMEOUT_S} seconds\n"
    found = {word: len(re.findall(rf"^{word}\s", output, re.M)) for word in ("ok", "FAIL", "skip")}
    if p.returncode != 0 and found["FAIL"] == 0:
        output += f"\nFAIL {entry.name}: exit status {p.returncode} of: {command}\n"
        found["FAIL"] = 1
    if not any(found.values()):
        found["ok"] = 1
    return found["ok"], found["FAIL"], found["skip"], time.monotonic() - start, output


def report(entry, result, verbose):
    passed, failed, skipped, seconds, output = result
    word = "FAIL" if failed else "skip" if not passed else "ok"
    counts = f"{passed} passed" + (f", {failed} failed" if failed else "")
    counts += f", {skipped} skipped" if skipped else ""
    print(f"{word:4} {entry.name:16} {counts:40} {seconds:6.1f} s", flush=True)
    lines = output.splitlines()
    if not failed and not verbose:
        lines = [l for l in lines if l.startswith("skip ")] if passed else lines
    elif failed and not verbose:
        lines = [l for l in lines if not re.match(r"ok\s", l)][-60:]
    for line in lines:
        print("    " + line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", default="build")
    parser.add_argument("--where", default="x86_64")
    parser.add_argument("--exec", default="")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-j", "--jobs", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    os.chdir(ROOT)
    entries = read_list(args.where)
    unknown = set(args.names) - {e.name for e in entries}
    if unknown:
        sys.exit(f"tests/run.list has no such test here: {' '.join(sorted(unknown))}")
    entries = [e for e in entries if not args.names or e.name in args.names]
    totals = [0, 0, 0]
    pools = concurrent.futures.ThreadPoolExecutor
    with pools(args.jobs) as pool, pools(1) as beside:  # these take no core
        jobs = {(beside if e.sleeps else pool).submit(run, e, args): e for e in entries}
        for job in concurrent.futures.as_completed(jobs):
            report(jobs[job], job.result(), args.verbose)
            totals = [t + n for t, n in zip(totals, job.result())]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    sys.exit(totals[1] != 0 or sum(totals) == 0)


main()
