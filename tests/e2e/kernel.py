"""GPUs as a user meets them, on a driver that runs on host memory (tests/fakecuda): what `zigcuda
info` lists, how a device is chosen, what each missing thing is called, devices that come late, and
`zigcuda kernel run` from its arguments to its outputs, with every driver call failing in turn.

usage: kernel.py LIBCUDA [short]   (the fake one; environment: ZIGCUDA, how to run the binary)
With `short` every tenth driver call fails instead of each.
Prints `ok NAME`, `skip NAME: why` or `FAIL NAME: why` a check.
"""
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time

from server import Skip

BINARY = shlex.split(os.environ["ZIGCUDA"])
LIBRARY = os.path.abspath(sys.argv[1])
STEP = 10 if sys.argv[2:] == ["short"] else 1
FOLDER = os.path.dirname(LIBRARY)
NVRTC_MISSING = "compiling a .cu file needs"
AXPY = """
extern "C" __global__ void axpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
"""
# The fake driver runs kernels of its own; an image only has to name them.
PTX = """.version 8.0
.target sm_75
.address_size 64
.visible .entry axpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n) { ret; }
"""
N = 1000
checks = []


def check(function):
    checks.append(function)
    return function


def zigcuda(*args, want=0, fake="", fail="", library=LIBRARY, **extra):
    """stdout and stderr; `want`: the exit status, or None for any."""
    env = {**os.environ, "ZIGCUDA_FAKE": fake, "ZIGCUDA_FAKE_FAIL": fail, **extra}
    command = [*BINARY, *args] + ([f"--cuda.library={library}"] if library else [])
    r = subprocess.run(command, env=env, capture_output=True, timeout=120)
    out, err = r.stdout.decode(), r.stderr.decode()
    assert want is None or r.returncode == want, (
        f"{args}: exit {r.returncode}, not {want}: {out[-300:]} {err[-300:]}")
    return (out, err, r.returncode) if want is None else (out, err)


# --- zigcuda info -----------------------------------------------------------------------------

@check
def info_lists_the_devices():
    box = "devices=2,sm=87,multiprocessors=16,memory=8G,ecc=1,version=12060"
    out, _ = zigcuda("info", fake=box)
    devices = re.findall(r"^gpu ([01]) .*$", out, re.M)
    assert devices == ["0", "1"], out
    for word in ("CUDA 12.6", "sm_87", "16 SMs", "8.0 GiB", "ECC on",
                 "GPU-7a696763-7564-6120-6661-", "0000:01:00.0", "0000:02:00.0",
                 "chosen by cuda.device"):
        assert word in out, (word, out)


@check
def a_part_of_a_gpu_has_its_own_uuid():
    box, uuid = "name=NVIDIA A100-SXM4-40GB MIG 1g.5gb,sm=80", "MIG-7a696763-7564-6120-6661-"
    out, _ = zigcuda("info", f"--cuda.device={uuid}", fake=box)
    assert uuid in out and "chosen by cuda.device" in out, out
    out, _ = zigcuda("info", "--cuda.device=GPU-7a696763", fake=box)
    assert "no GPU of this box" in out and uuid in out, out


@check
def info_says_why_there_is_none():
    out, _ = zigcuda("info", library=None)
    assert re.search(r"^gpu      not used: no NVIDIA GPU", out, re.M) or os.path.exists(
        "/dev/nvidiactl"), out
    out, _ = zigcuda("info", "--device.kind=cpu")
    assert "device.kind is cpu" in out, out
    out, _ = zigcuda("info", library="/nowhere/libcuda.so.1")
    assert "/nowhere/libcuda.so.1" in out and "libcuda1" in out, out


@check
def an_integrated_gpu_shares_the_box():
    out, _ = zigcuda("info", fake="integrated=1,memory=64G")
    assert "shared with the CPU" in out, out
    free, box = re.search(r"(\S+ \w+) free \(what the box can give\)", out), re.search(
        r"^memory\s+(\S+ \w+) available", out, re.M)
    number = [float(m.group(1).split()[0]) for m in (free, box)]
    assert abs(number[0] - number[1]) < 0.2 * number[1] + 1, out


@check
def telemetry_is_told_where_there_is_a_library_for_it():
    def now(nvml=""):
        out, _ = zigcuda("info", ZIGCUDA_FAKE_NVML=nvml, LD_LIBRARY_PATH=FOLDER)
        return re.search(r"^ +(now .*|no telemetry.*)$", out, re.M).group(1)

    whole = ("now 123 W of 700 W, 61 C, SM 1755 MHz, memory 3201 MHz, 57 % busy, "
             "clocks lowered by: power cap, heat")
    assert now() == whole, now()
    for name, gone in (("nvmlDeviceGetPowerUsage", "123 W "),
                       ("nvmlDeviceGetTemperature", "61 C, "),
                       ("nvmlDeviceGetEnforcedPowerLimit", "of 700 W, ")):
        assert now(name + ":3").replace(",", "") == whole.replace(gone, "").replace(",", ""), name
    assert now("nvmlDeviceGetCurrentClocksThrottleReasons:3").endswith("not told")
    assert "NVML error 9" in now("nvmlInit_v2:9")
    assert "NVML error 6" in now("nvmlDeviceGetHandleByUUID:6")
    out, _ = zigcuda("info")  # where it is not installed
    assert "now " in out or "libnvidia-ml.so.1" in out, out


@check
def a_driver_in_a_folder_of_its_own_is_found():
    """As on NixOS, whose loader looks nowhere else."""
    own = ["unshare", "-rm", "sh", "-ec", "mount -t tmpfs none /run; d=/run/opengl-driver/lib; "
           "mkdir -p $d; cp $1 $d/libcuda.so.1; shift; exec \"$@\"", "sh"]
    try:
        subprocess.run([*own, LIBRARY, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise Skip("no mounts of one's own here")
    r = subprocess.run([*own, LIBRARY, *BINARY, "info", "--device.kind=cuda"], capture_output=True,
                       timeout=120)
    assert "Fake GPU" in r.stdout.decode(), r


@check
def the_librarys_name_is_enough():
    out, _ = zigcuda("info", "--device.kind=cuda", library=None, LD_LIBRARY_PATH=FOLDER)
    assert "device.kind is cuda" in out and "Fake GPU" in out, out
    start = time.monotonic()  # no device node here, and still no waiting for one
    out, _ = run_axpy(library=None, LD_LIBRARY_PATH=FOLDER)
    assert "Fake GPU" in out and time.monotonic() - start < 5, out
    _, err = run_axpy("--cuda.wait=200ms", library=None, fake="late=1000", want=6,
                      LD_LIBRARY_PATH=FOLDER)
    assert "device node" in err or os.path.exists("/dev/nvidiactl"), err


# --- choosing and starting --------------------------------------------------------------------

def run_axpy(*args, file="axpy.ptx", **kwargs):
    return zigcuda("kernel", "run", file, "--entry", "axpy", "--grid", "4", "--block", "256",
                   "--arg", "f32:2", "--buf", "in:x.f32", "--buf", "inout:y.f32:out.f32",
                   "--arg", f"i32:{N}", *args, **kwargs)


def chosen(device, **kwargs):
    return int(re.search(r"^gpu      (\d+) ", run_axpy(f"--cuda.device={device}", **kwargs)[0],
                         re.M).group(1))


@check
def a_device_is_chosen_by_index_uuid_or_pci():
    out, _ = zigcuda("info", fake="devices=3")
    uuids = re.findall(r"(GPU-[0-9a-f-]{36})", out)
    pci = re.findall(r"PCI (\S+),", out)
    assert len(uuids) == len(pci) == 3, out
    for i in range(3):
        short = pci[i].split(":", 1)[1]
        for name in (str(i), uuids[i], uuids[i].upper(), pci[i], short):
            assert chosen(name, fake="devices=3") == i, (name, i)


@check
def a_wrong_device_gets_the_list():
    for name in ("3", "GPU-ffff", "0000:77:00.0", "GPU-7a69"):  # the last fits all of them
        _, err = run_axpy(f"--cuda.device={name}", fake="devices=3", want=3)
        assert name in err and "0000:03:00.0" in err and "cuda.device" in err, err
    _, err = run_axpy("--cuda.device=first", want=3)
    assert "cuda.device" in err and "index" in err, err


@check
def an_old_driver_says_both_versions():
    _, err = run_axpy(fake="version=11080", want=6)
    assert "11.8" in err and "12.0" in err, err


@check
def a_library_that_is_no_driver():
    _, err = run_axpy(library="libm.so.6", want=6)
    assert "libm.so.6" in err and "cuDriverGetVersion" in err, err


@check
def results_of_the_start_are_told_with_help():
    for fail, words in (
        ("cuInit:1:803", ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "803", "Reboot")),
        ("cuInit:1:804", ("804", "cuda/compat")),
        ("cuDriverGetVersion:1:34", ("stub",)),
        ("cuDevicePrimaryCtxRetain:1:2", ("CUDA_ERROR_OUT_OF_MEMORY", "open a context")),
        ("cuDevicePrimaryCtxRetain:1:46", ("nvidia-smi",)),
    ):
        _, err, code = run_axpy(fail=fail, want=None)
        assert code == (5 if fail.endswith(":2") else 6), (fail, code, err)
        assert all(w in err for w in words), (fail, err)


@check
def devices_that_come_late_are_waited_for():
    start = time.monotonic()
    _, err = run_axpy("--cuda.wait=20s", fake="late=3")
    assert err.count("gpu_wait") == 1, err
    assert 0.1 < time.monotonic() - start < 15
    _, err = run_axpy("--cuda.wait=300ms", fake="late=1000", want=6)
    assert err.count("gpu_wait") == 1 and "CUDA_ERROR_NO_DEVICE" in err, err
    _, err = run_axpy("--cuda.wait=0", fake="late=1", want=6)
    assert "gpu_wait" not in err, err


# --- zigcuda kernel run -----------------------------------------------------------------------

def floats(path):
    with open(path, "rb") as f:
        return list(struct.unpack(f"<{N}f", f.read()))


WANTED = [1 + 2 * i for i in range(N)]


@check
def axpy_is_right_and_reported():
    out, err = run_axpy()
    assert floats("out.f32") == WANTED and floats("y.f32") == [1] * N
    assert "misuse" not in err, err
    for word in ("registers", "blocks an SM", "GB/s", f"{3 * 4 * N} bytes", "of 1 launch"):
        assert word in out, (word, out)


@check
def every_launch_finds_the_same_bytes():
    out, _ = run_axpy("--repeat", "7", "--warmup", "3")
    assert floats("out.f32") == WANTED and "of 7 launches" in out, out
    low, mean, high = map(float, re.search(r"min (\S+), mean (\S+), max (\S+) ms", out).groups())
    assert 0 <= low <= mean <= high, out


@check
def outputs_without_a_file_are_shown():
    args = ("kernel", "run", "axpy.ptx", "--entry", "axpy", "--grid", "4", "--block", "256",
            "--arg", "f32:0.5", "--buf", "in:x.f32", "--buf", "out:4000 B", "--arg", "i32:4")
    out, _ = zigcuda(*args)
    assert re.search(r"^output 3  out:4000 B, f32: 0 0.5 1 1.5 0 0 0 0 \.\.\.$", out, re.M), out
    out, _ = zigcuda(*args, "--show", "u16")
    assert "u16: 0 0 0 16128 0 16256 0 16320 ..." in out, out


@check
def a_cpp_name_is_found():
    with open("cpp.ptx", "w") as f:
        f.write(PTX.replace("axpy", "_Z4axpyfPKfPfi"))
    run_axpy(file="cpp.ptx")
    assert floats("out.f32") == WANTED
    _, err = run_axpy("--entry", "axp", file="cpp.ptx", want=2)
    assert "'axp'" in err and "it has _Z4axpyfPKfPfi" in err, err
    _, err, status = run_axpy(file="cpp.cu", want=None)
    assert NVRTC_MISSING in err or (status == 0 and floats("out.f32") == WANTED), err


@check
def an_image_that_does_not_fit_says_so():
    for text, words in (("rubbish", ["no .version", "CUDA_ERROR_INVALID_PTX"]),
                        (PTX.replace("75", "100"), ["NO_BINARY_FOR_GPU", "zigcuda info"])):
        with open("bad.ptx", "w") as f:
            f.write(text)
        _, err = run_axpy(file="bad.ptx", want=6)
        assert all(w in err for w in words), err


@check
def big_buffers_go_in_pieces():
    n = (9 << 20) // 4 + 3  # more than two pieces, and a rest
    data = struct.pack(f"<{n}I", *range(n))
    for name, content in (("big.in", data), ("one.f32", struct.pack("<f", 0))):
        with open(name, "wb") as f:
            f.write(content)
    zigcuda("kernel", "run", "axpy.ptx", "--entry", "axpy", "--grid", "1", "--block", "32",
            "--arg", "f32:0", "--buf", "in:one.f32", "--buf", "inout:big.in:big.out",
            "--arg", "i32:0")
    with open("big.out", "rb") as f:
        assert f.read() == data


@check
def wrong_use_says_what_to_do():
    base = ["kernel", "run", "axpy.ptx", "--entry", "axpy"]
    size = ["--grid", "1", "--block", "32"]
    x, y = ["--buf", "in:x.f32"], ["--buf", "inout:y.f32"]
    for args, words in (
        (["kernel"], ["zigcuda kernel run"]),
        (["kernel", "walk", "axpy.ptx"], ["zigcuda kernel run"]),
        (base[:3], ["--entry"]),
        (base, ["--grid"]),
        ([*base, "--grid", "0", "--block", "1"], ["--grid"]),
        ([*base, "--grid", "1", "--block", "4096"], ["--block", "1024"]),
        ([*base, "--grid", "1,70000", "--block", "32"], ["--grid", "65535"]),
        ([*base, *size, "--arg", "f32:x"], ["f32"]),
        ([*base, *size, "--arg", "f64:2", *x, *y, "--arg", "i32:4"],
         ["parameter 1", "4 bytes", "8"]),
        ([*base, *size, "--arg", "f32:2", *x, *y], ["4 parameters", "3"]),
        ([*base, *size, "--shared", "400000", "--arg", "f32:2", *x, *y, "--arg", "i32:4"],
         ["--shared"]),
        ([*base, *size, "--arg", "f32:2", "--buf", "in:none.bin", *y, "--arg", "i32:4"],
         ["none.bin"]),
        (["kernel", "run", "axpy.ptx", "--entry", "nothing", *size], ["nothing", "axpy"]),
        (["kernel", "run", "axpy.bin", "--entry", "axpy", *size], [".cubin"]),
        (["kernel", "run", "none.ptx", "--entry", "axpy", *size], ["none.ptx"]),
    ):
        _, err = zigcuda(*args, want=2)
        assert all(w in err for w in words) and "misuse" not in err, (args, err)


@check
def every_failing_call_is_an_error_that_names_it():
    for code, name in ((1, "INVALID_VALUE"), (719, "LAUNCH_FAILED"), (2, "OUT_OF_MEMORY")):
        for n in range(1, 200, STEP):
            out, err, status = run_axpy("--repeat", "2", "--cuda.wait=0", fail=f"any:{n}:{code}",
                                        want=None)
            if status == 0:
                if "time " not in out:
                    raise AssertionError(f"call {n}: {out}")
                if floats("out.f32") != WANTED:
                    raise AssertionError(f"call {n}: wrong numbers")
                if not calls_made(n):
                    break
                continue
            assert status in (2, 5, 6), (n, status, err)
            assert name in err or status == 2, (n, err)
            assert err.count("zigcuda kernel: ") == 1 and "misuse" not in err, (n, err)
        assert 40 < n < 200, f"{n} calls"


def calls_made(n):
    """Does a run make as many calls as n?"""
    log = os.path.abspath("calls.log")
    if not os.path.exists(log):
        run_axpy("--repeat", "2", ZIGCUDA_FAKE_LOG=log)
    with open(log) as f:
        return sum(1 for line in f if re.match(r"\d+ cu", line)) >= n


@check
def info_survives_every_failing_call():
    for n in range(1, 400, STEP):
        out, err = zigcuda("info", fake="devices=2", fail=f"any:{n}:999")
        assert "misuse" not in err and re.search(r"^gpu ", out, re.M), (n, out, err)
        if "CUDA_ERROR_UNKNOWN" not in out + err and "chosen by" in out and n > 80:
            return
    raise AssertionError("more calls than expected")


@check
def a_kernel_that_fails_is_told():
    _, err = run_axpy(fail="kernel:1:700", want=6)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in err and "started again" in err, err


# --- CUDA C++ ---------------------------------------------------------------------------------

def compile_axpy(*args, want=0):
    out, err, status = run_axpy(*args, file="axpy.cu", want=None)
    if NVRTC_MISSING in err:
        raise Skip("no libnvrtc on this box")
    assert status == want, (status, out, err)
    return out, err


@check
def without_nvrtc_the_package_is_named():
    _, err, status = run_axpy("--no-cache", file="axpy.cu", want=None)
    assert status == 0 or (NVRTC_MISSING in err and "cuda-nvrtc" in err and status == 6), err


@check
def cuda_cpp_is_compiled_once():
    def how(*args):
        out, err = compile_axpy("--cache", "cache", *args)
        assert floats("out.f32") == WANTED
        return re.search(r"^image .*?(compiled|from the cache)", out, re.M).group(1), out, err

    assert how()[0] == "compiled" and how()[0] == "from the cache"
    assert how("--option=-DUNUSED")[0] == "compiled" and how("--option=-DUNUSED")[0] != "compiled"
    assert how("--no-cache")[0] == "compiled"
    for name in os.listdir("cache"):
        with open(os.path.join("cache", name), "r+b") as f:
            f.seek(100)
            f.write(b"damaged")
    state, _, err = how()
    assert state == "compiled" and "damaged" in err, err
    assert how()[0] == "from the cache"
    with open("axpy.h", "w") as f:
        f.write("// nothing\n")
    with open("axpy.cu", "w") as f:
        f.write('#include "axpy.h"\n' + AXPY)
    assert "not cached" in how()[1] and "not cached" in how()[1]


@check
def the_compilers_log_is_shown():
    with open("axpy.cu", "w") as f:
        f.write(AXPY.replace("y[i]", "z[i]"))
    _, err = compile_axpy(want=2)
    assert 'identifier "z" is undefined' in err and "axpy.cu does not compile" in err, err


@check
def a_cache_that_cannot_be_written_is_no_failure():
    with open("axpy.cu", "w") as f:
        f.write(AXPY)
    with open("file", "w"):
        pass
    _, err = compile_axpy("--cache", "file/below")
    assert "not cached" in err and floats("out.f32") == WANTED, err


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        BINARY[-1] = os.path.abspath(BINARY[-1])
        os.chdir(folder)
        for name, text in (("axpy.ptx", PTX), ("axpy.bin", PTX), ("axpy.cu", AXPY),
                           ("cpp.cu", AXPY.replace('extern "C"', ""))):
            with open(name, "w") as f:
                f.write(text)
        for name, values in (("x.f32", range(N)), ("y.f32", [1] * N)):
            with open(name, "wb") as f:
                f.write(struct.pack(f"<{N}f", *values))
        for function in checks:
            start = time.time()
            try:
                function()
                print(f"ok   {function.__name__} ({time.time() - start:.1f} s)", flush=True)
            except Skip as why:
                print(f"skip {function.__name__}: {why}", flush=True)
            except Exception as error:  # a check that cannot run has failed
                failed += 1
                print(f"FAIL {function.__name__}: {type(error).__name__}: {error}", flush=True)
    return failed != 0


sys.exit(main())
