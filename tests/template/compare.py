#!/usr/bin/env python3
"""Renders the same templates with jinja2 (as transformers sets it up) and with ours, and compares
every byte; where one engine refuses, the other has to refuse, too.

usage: compare.py DRIVER... [--only styles|snippets|grammar] [--seed N] [--count N]
DRIVER is the command that runs build/template_driver."""

import argparse
import itertools
import multiprocessing
import os
import sys
import time
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import engines
import grammar
import snippets
import styles

warnings.simplefilter("ignore")  # Python's, about constants in compiled templates


def compare_batch(job):
    """(cases, refused by both, beyond our integers, [(source, theirs, ours)...]) of one batch."""
    driver, batch = job
    refused, beyond, bad = 0, 0, []
    for (source, variables), ours in zip(batch, engines.our_render(driver, batch)):
        if ours[0] == "error" and "beyond 64 bits" in ours[1]:
            beyond += 1  # the one declared difference
            continue
        theirs = engines.jinja_render(source, variables)
        refused += theirs[0] == ours[0] == "error"
        if theirs[0] != ours[0] or (theirs[0] == "ok" and theirs[1] != ours[1]):
            bad.append((source, theirs, ours))
    return len(batch), refused, beyond, bad


def batches(driver, cases):
    cases = iter(cases)
    while batch := list(itertools.islice(cases, 500)):
        yield driver, batch


def compare(name, cases, driver, pool):
    """Prints the first differences; returns how many there are."""
    start, n, refused, beyond, bad = time.time(), 0, 0, 0, 0
    for count, both, big, differ in pool.imap(compare_batch, batches(driver, cases)):
        n, refused, beyond = n + count, refused + both, beyond + big
        for source, theirs, ours in differ[: max(0, 40 - bad)]:
            print(f"{name}: {source!r}\n  jinja2: {theirs}\n  ours:   {ours}")
        bad += len(differ)
    idle = refused > 0.6 * n or beyond > 0.01 * n  # too many cases that say nothing
    verdict = "FAIL" if bad or idle else "ok  "
    print(
        f"{verdict} template {name}: {n} cases, {refused} refused by both, "
        f"{beyond} beyond 64 bits, {bad} differ, {time.time() - start:.1f} s",
        flush=True,
    )
    return bad + idle


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver", nargs="+")
    p.add_argument("--only")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=20000)
    a = p.parse_args()
    sets = {
        "styles": styles.cases,
        "snippets": snippets.cases,
        "grammar": lambda: grammar.cases(a.seed, a.count),
    }
    with multiprocessing.Pool() as pool:
        bad = sum(
            compare(name, make(), a.driver, pool)
            for name, make in sets.items()
            if a.only in (None, name)
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
