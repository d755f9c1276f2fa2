#!/usr/bin/env python3
"""`zigcuda config` from outside: sources and their order, messages and exit codes, and that what it
generates is current: config/zigcuda.ini and the option table of README.md. `tests/config.py
--write` renews both."""
import os
import shutil
import subprocess
import sys
import tempfile

import tree

ZIGCUDA = os.environ.get("ZIGCUDA", "build/zigcuda").split()
INI, README = "config/zigcuda.ini", "README.md"
BEGIN, END = "<!-- zigcuda config --markdown -->\n", "<!-- end -->\n"
USAGE, CONFIG, SYSTEM = 2, 3, 5
bad = 0


def run(*arguments, stdout=subprocess.PIPE):
    """Returns (status, stdout, stderr)."""
    p = subprocess.run([*ZIGCUDA, "config", *arguments], stdout=stdout, stderr=subprocess.PIPE)
    return p.returncode, (p.stdout or b"").decode(), p.stderr.decode()


def check(name, good, seen=""):
    global bad
    bad += not good
    print(f"{'ok  ' if good else 'FAIL'} {name}")
    if not good:
        print(f"    {seen}")


def rows(text):
    """{option: (value, source)} of the table."""
    parts = [line.split() for line in text.splitlines()[1:]]
    return {p[0]: (" ".join(p[1:-1]), p[-1]) for p in parts}


def readme_parts():
    with open(README) as f:
        text = f.read()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    return before, table, after


def generated(empty):
    return run("--config", empty, "--ini")[1], run("--config", empty, "--markdown")[1]


def write(empty):
    ini, markdown = generated(empty)
    before, _, after = readme_parts()
    with open(INI, "w") as f:
        f.write(ini)
    with open(README, "w") as f:
        f.write(before + BEGIN + markdown + END + after)


def sources(dir, empty):
    ini = os.path.join(dir, "some.ini")
    with open(ini, "w") as f:
        f.write("[engine]\nslots = 3\nkv = 2 GiB\n[engine]\nprefix_cache = no\n")
    status, out, err = run("--config", ini, "--engine.kv=512MiB", "--threads", "2")
    got = rows(out)
    check("default_file_flag", status == 0 and not err
          and got["engine.queue"] == ("64", "default")
          and got["engine.slots"] == ("3", f"{ini}:2")
          and got["engine.kv"] == ("512 MiB", "flag")
          and got["engine.prefix_cache"] == ("off", f"{ini}:5")
          and got["cpu.threads"] == ("2", "flag"), out + err)
    status, out, err = run("--ini", f"--config={ini}", "--engine.kv=512MiB", "--model", "/a ;b")
    again = os.path.join(dir, "again.ini")
    with open(again, "w") as f:
        f.write(out)
    status, table, err = run("--config", again)
    got = rows(table)
    check("ini_says_the_same", status == 0 and got["engine.slots"][0] == "3"
          and got["engine.kv"][0] == "512 MiB" and got["engine.prefix_cache"][0] == "off"
          and got["model.dir"][0] == "/a ;b" and got["engine.queue"][1] == "default"
          and sum(source != "default" for _, source in got.values()) == 4, table + err)
    # Each commented default, uncommented, is a value the option takes, and the default.
    lines = generated(empty)[0].splitlines(keepends=True)
    with open(again, "w") as f:
        f.writelines(l[1:] if l[0] == "#" and l[1:2].islower() else l for l in lines)
    status, table, err = run("--config", again)
    defaults = rows(run("--config", empty)[1])
    got = rows(table)
    check("defaults_can_be_uncommented", status == 0 and len(got) > 10
          and {k: v for k, (v, _) in got.items()} == {k: v for k, (v, _) in defaults.items()}
          and all(source.startswith(again) for _, source in got.values()), table + err)


def refusals(dir):
    def refused(name, status, text, *arguments):
        got = run(*arguments)
        check(name, got[0] == status and text in got[2] and not got[1], got)

    ini = os.path.join(dir, "wrong.ini")
    with open(ini, "w") as f:
        f.write("[engine]\n\nslotz = 4\n")
    refused("unknown_key", CONFIG, f"{ini}:3: there is no option 'engine.slotz'; did you mean "
            "engine.slots?", "--config", ini)
    refused("missing_file", CONFIG, "--config: cannot open no/such.ini", "--config", "no/such.ini")
    with open(ini, "wb") as f:
        f.write(b"#" * (1 << 20) + b"\n")
    refused("large_file", CONFIG, f"{ini} has 1048577 bytes; the limit is 1048576",
            "--config", ini)
    refused("unknown_flag", USAGE, "--engine.slotz; did you mean --engine.slots",
            "--engine.slotz=4")
    refused("out_of_range", USAGE, "--engine.slots is '257'; it has to be a whole number from 0 to "
            "256", "--engine.slots", "257")
    refused("bad_unit", USAGE, "'4GB'; it has to be a size from 0 to 16 TiB", "--engine.kv=4GB")
    refused("no_value", USAGE, "--engine.kv needs a value", "--engine.kv")
    refused("no_file_name", USAGE, "--config needs the name of a file", "--config")
    refused("two_forms", USAGE, "--ini and --markdown are two forms", "--ini", "--markdown")
    for form in [], ["--ini"], ["--markdown"]:  # an early write may fail and the last one not
        with open("/dev/full", "wb") as full:
            status, _, err = run(*form, stdout=full)
        check(" ".join(["full_disk", *form]), status == SYSTEM and "cannot write" in err, err)


def etc_file(dir):
    """/etc/zigcuda.ini, in a root of its own; the static binary needs nothing else there."""
    def inside(*arguments):
        enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "chroot"]
        p = subprocess.run([*enter, dir, "/zigcuda", "config", *arguments],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return p.returncode, p.stdout.decode(), p.stderr.decode()

    shutil.copy(ZIGCUDA[0], os.path.join(dir, "zigcuda"))
    os.mkdir(os.path.join(dir, "etc"))
    status, out, err = inside()
    check("no_etc_file", status == 0 and rows(out)["engine.slots"] == ("0", "default"), out + err)
    etc = os.path.join(dir, "etc/zigcuda.ini")
    with open(etc, "w") as f:
        f.write("[engine]\nslots = 9\n")
    with open(os.path.join(dir, "other.ini"), "w") as f:
        f.write("[engine]\nqueue = 9\n")
    got = rows(inside()[1])
    check("etc_file_is_read", got["engine.slots"] == ("9", "/etc/zigcuda.ini:2"), got)
    got = rows(inside("--config", "/other.ini")[1])
    check("named_file_replaces_it", got["engine.slots"] == ("0", "default")
          and got["engine.queue"] == ("9", "/other.ini:2"), got)
    for name, target in ("dangling", "nowhere.ini"), ("looping", "zigcuda.ini"):
        os.remove(etc)
        os.symlink(target, etc)
        status, _, err = inside()
        check(f"{name}_link_is_no_default", status == CONFIG and "/etc/zigcuda.ini" in err, err)
    shutil.rmtree(os.path.join(dir, "etc"))
    os.symlink("etc", os.path.join(dir, "etc"))
    status, _, err = inside()
    check("unreadable_etc_is_no_default", status == CONFIG and "/etc/zigcuda.ini" in err, err)


def main():
    os.chdir(tree.ROOT)
    with tempfile.TemporaryDirectory() as dir:
        empty = os.path.join(dir, "empty.ini")
        open(empty, "w").close()
        if sys.argv[1:] == ["--write"]:
            write(empty)
            return
        sources(dir, empty)
        refusals(dir)
        ini, markdown = generated(empty)
        with open(INI) as f:
            check("zigcuda_ini_is_current", f.read() == ini, "run tests/config.py --write")
        check("readme_is_current", readme_parts()[1] == markdown, "run tests/config.py --write")
        if ZIGCUDA == ["build/zigcuda"]:
            etc_file(dir)
    sys.exit(bad != 0)


main()
