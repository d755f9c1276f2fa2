#!/usr/bin/env python3
"""Where the time of a start goes: starts `zigcuda serve` on a folder some times, ends it when it is
ready, and prints for each phase of its debug log the least, median and most milliseconds. The
first start reads the folder from disk if it has to, and is not counted. Folders of real shapes are
made by folder.py.

usage: start.py ZIGCUDA FOLDER [TIMES] [flags of zigcuda serve ...]
"""
import re
import signal
import statistics
import subprocess
import sys
import time


def start(command):
    """[(phase, ms)] of one start, whole time last."""
    begin, phases, ready = time.monotonic(), [], None
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    seen = []
    for line in process.stderr:
        now = (time.monotonic() - begin) * 1e3
        seen.append(line)
        phase = re.search(r"event=phase name=(\S+) ms=(\S+)", line)
        if phase:
            phases.append((phase[1], float(phase[2])))
        if "event=ready start_ms=" in line:
            booted = now
        if "event=ready model=" in line:
            ready = now
            process.send_signal(signal.SIGTERM)
    if process.wait() != 0 or ready is None:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}: {''.join(seen[-5:])}")
    exec_ms = booted - sum(ms for _, ms in phases)
    return [("exec, options", exec_ms), *phases, ("first token", ready - booted), ("all", ready)]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary, folder, *rest = sys.argv[1:]
    times = int(rest.pop(0)) if rest and rest[0].isdigit() else 5
    command = [binary, "serve", "--model", folder, "--server.listen", "127.0.0.1:0",
               "--log.level", "debug", *rest]
    runs = [start(command) for _ in range(times + 1)][1:]
    print(f"{'phase':16}{'least ms':>10}{'median':>10}{'most':>10}")
    for rows in zip(*runs):
        ms = [ms for _, ms in rows]
        print(f"{rows[0][0]:16}{min(ms):10.1f}{statistics.median(ms):10.1f}{max(ms):10.1f}")


main()
