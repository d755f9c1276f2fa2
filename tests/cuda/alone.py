"""An image of some kernels alone: compiled in seconds, and small enough for compute-sanitizer,
which patches all that an image has before the first launch.

usage: alone.py [--card sm_90] IMAGE KERNEL...   (in a configured tree; a pattern is a kernel, too)

Code of a kernel is that of the whole image, instruction by instruction. Tests of operations take
such an image (linear_test --gpu IMAGE NAME) as far as its kernels go: linears want `pack` besides.
What ptxas says of registers and spills is printed.
"""
import argparse
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = "kernels/cuda/step.cu"
KERNEL = re.compile(
    r"^GPU_KERNEL(?:_OF)?\((.*)\)\n{\n(?:(?!}).*\n)*}\n|^MID_KERNEL\((.*)\)\n", re.M)


def name(match):
    """GPU_KERNEL(name, params, ..), GPU_KERNEL_OF(threads, name, ..), MID_KERNEL(name, ..)."""
    words = [w.strip() for w in (match[1] or match[2]).split(",")]
    return words[1] if match[0].startswith("GPU_KERNEL_OF") else words[0]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("  ")[0])
    parser.add_argument("--card", default="sm_90")
    parser.add_argument("image")
    parser.add_argument("kernel", nargs="+")
    a = parser.parse_args()
    text = pathlib.Path(SOURCE).read_text()
    names = [name(m) for m in KERNEL.finditer(text)]
    wanted = {n for n in names if any(fnmatch.fnmatch(n, k) for k in a.kernel)}
    missing = [k for k in a.kernel if not fnmatch.filter(names, k)]
    if missing:
        sys.exit(f"no kernel {missing[0]}; there are {', '.join(names)}")
    out = f"build/gpu/{a.card}.cubin"
    commands = subprocess.run(["ninja", "-t", "commands", out], check=True, text=True,
                              capture_output=True).stdout.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/step.cu"
        pathlib.Path(source).write_text(
            KERNEL.sub(lambda m: m[0] if name(m) in wanted else "", text))
        for command in commands:
            if "build/gpu/" not in command:
                continue
            command = command.replace("build/gpu/", folder + "/").replace(SOURCE, source)
            command = re.sub(r"(\S*ptxas) -arch", r"\1 -v -arch", command)
            done = subprocess.run(["sh", "-c", command], text=True, capture_output=True)
            if done.returncode:
                sys.exit(done.stdout + done.stderr)
        said = pathlib.Path(f"{folder}/{a.card}.cubin.said").read_text()
        shutil.copy(f"{folder}/{a.card}.cubin", a.image)
    for kernel, bytes_, registers in re.findall(
            r"entry function '(\w+)'.*\n.*\n *(.*)\n.*Used (\d+) registers", said):
        print(f"{kernel}: {registers} registers, {bytes_}")


if __name__ == "__main__":
    main()
