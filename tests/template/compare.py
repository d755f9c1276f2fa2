#!/usr/bin/env python3
"""Renders the same templates with jinja2 (as transformers sets it up) and with ours, and compares
every byte; where one engine refuses, the other has to refuse, too.

usage: compare.py DRIVER... [--only styles|snippets|grammar] [--seed N] [--count N]
DRIVER is the command that runs build/template_driver."""
import argparse
import itertools
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import engines
import snippets
import styles


def compare(name, cases, driver):
    """Prints the first differences; (cases, refused by both, differences)."""
    start, n, refused, bad = time.time(), 0, 0, 0
    cases = iter(cases)
    while batch := list(itertools.islice(cases, 4000)):
        for (source, variables), ours in zip(batch, engines.our_render(driver, batch)):
            theirs = engines.jinja_render(source, variables)
            n += 1
            refused += theirs[0] == ours[0] == "error"
            if theirs[0] != ours[0] or (theirs[0] == "ok" and theirs[1] != ours[1]):
                bad += 1
                if bad <= 40:
                    print(f"{name}: {source!r}\n  jinja2: {theirs}\n  ours:   {ours}")
    print(f"{name}: {n} cases, {refused} refused by both, {bad} differ, {time.time() - start:.1f} s",
          flush=True)
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver", nargs="+")
    p.add_argument("--only")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=20000)
    a = p.parse_args()
    sets = {"styles": styles.cases, "snippets": snippets.cases}
    bad = sum(compare(name, make(), a.driver) for name, make in sets.items()
              if a.only in (None, name))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
