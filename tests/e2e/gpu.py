"""The CUDA backend against a driver that runs on host memory (tests/fakecuda) and fails on demand:
every driver call in turn, errors after which only a new process helps, steps that hang, the memory
of boxes whose GPU shares it, and what is allocated once the server is ready.

usage: gpu.py LIBCUDA MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import server

LIBRARY, MODEL_DIR = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
GPU = ["--device.kind", "cuda", "--cuda.library", LIBRARY]
RUN = ["--max-tokens", "4", "--seed", "1", "--json", "Hello"]
ALLOCATES = re.compile(r"cu(MemAlloc|MemHostAlloc|MemHostRegister|ModuleLoad|StreamCreate|"
                       r"EventCreate|GraphInstantiate)")
FOLDER = tempfile.TemporaryDirectory()
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def environment(log=None, fail="", **fake):
    text = ",".join(f"{k}={v}" for k, v in fake.items())
    return {**os.environ, "ZIGCUDA_FAKE": text, "ZIGCUDA_FAKE_FAIL": fail,
            "ZIGCUDA_FAKE_LOG": log or ""}


def zigcuda(*args, env=None, want=0):
    """Exit status, stdout, stderr; `want` None: any status."""
    done = subprocess.run([*server.BINARY, *args, "--model", MODEL_DIR, *GPU], timeout=120,
                          env=env or environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert want is None or done.returncode == want, f"{args}: {done.returncode}: {err[-600:]}"
    assert "misuse" not in err, err[-600:]
    return done.returncode, out, err


def calls_of(log):
    """[(name, result, remarks)] of a log of the fake."""
    with open(log) as f:
        return [(m[1], int(m[2]), m[3]) for m in
                (re.match(r"\d+ (cu\w+) (\d+)(.*)", line) for line in f) if m]


def log_path(name):
    return os.path.join(FOLDER.name, name)


class Gpu(server.Server):
    def __init__(self, *flags, env, gpu=GPU):
        before = dict(os.environ)
        os.environ.update(env)
        try:
            super().__init__(MODEL_DIR, *gpu, *flags)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def ask(self, method, path, body=None, timeout=30):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, json.dumps(body) if body else None,
                      {"content-type": "application/json"} if body else {})
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def text_of(self, prompt="Hello", n=6):
        status, body = self.ask("POST", "/v1/completions", wish(prompt, n))
        assert status == 200, body
        return json.loads(body)["choices"][0]["text"]


def wish(prompt="Hello", n=6, **more):
    return {"model": MODEL, "prompt": prompt, "max_tokens": n, "seed": 1, "temperature": 0,
            "ignore_eos": True, **more}


# --- one command -----------------------------------------------------------------------------

@check
def the_answer_is_there_and_the_rules_are_kept():
    log = log_path("run")
    zigcuda("run", *RUN, env=environment(log))
    calls = calls_of(log)
    assert all(r in (0, 600) for _, r, _ in calls), [c for c in calls if c[1] not in (0, 600)]
    assert any(name == "cuLaunchCooperativeKernel" for name, _, _ in calls)


def tokens_of(out):
    return [line for line in out.splitlines() if '"token"' in line or '"text"' in line]


@check
def who_waits_for_a_card_ends_when_asked():
    """systemctl stop, while a boot waits for a device that never comes."""
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(
            [*server.BINARY, "serve", "--model", MODEL_DIR, *GPU, "--cuda.wait", "60s",
             "--server.listen", "127.0.0.1:0"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(late=100000))
        while b"event=gpu_wait" not in (line := process.stderr.readline()):
            assert line, "it does not wait"
        start = time.monotonic()
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == -number and time.monotonic() - start < 10, process.returncode


@check
def cards_with_less_shared_memory_say_the_same():
    """Their blocks have no room for rings of weights, or only for small ones."""
    said = [tokens_of(zigcuda("run", *RUN, env=environment(sm=sm))[1]) for sm in (80, 86, 90, 120)]
    assert said[0] and said.count(said[0]) == len(said), said


@check
def each_driver_call_fails_in_turn():
    """The answer is right or there is an error that names the result, with its exit status."""
    log = log_path("sweep")
    _, right, _ = zigcuda("run", *RUN, env=environment(log))
    assert tokens_of(right), right
    count, tries = {}, []
    for name, _, _ in calls_of(log):
        count[name] = count.get(name, 0) + 1
        if count[name] > 40 or (name.startswith("cuDevice") and count[name] > 3):
            continue # more of the same
        tries.append((name, count[name], 719, "CUDA_ERROR_LAUNCH_FAILED"))
        if "Alloc" in name:
            tries.append((name, count[name], 2, "CUDA_ERROR_OUT_OF_MEMORY"))

    def one(what):
        name, n, code, words = what
        status, out, err = zigcuda("run", *RUN, "--cuda.wait", "0",
                                   env=environment(fail=f"{name}:{n}:{code}"), want=None)
        if status == 0:
            assert tokens_of(out) == tokens_of(right), (what, out)
            return 0
        assert status == (5 if code == 2 else 6), (what, status, err[-600:])
        assert words in err and err.count("zigcuda run: ") == 1, (what, err[-600:])
        return 1

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        told = sum(pool.map(one, tries))
    assert told > len(tries) / 2, (told, len(tries))


@check
def each_kernel_fails_in_turn():
    log = log_path("kernels")
    zigcuda("run", *RUN, env=environment(log))
    n = sum(name.startswith("cuLaunch") and "Kernel" in name for name, _, _ in calls_of(log))
    for i in range(1, n + 1):
        status, _, err = zigcuda("run", *RUN, env=environment(fail=f"kernel:{i}:700"), want=None)
        assert status == 6 and "CUDA_ERROR_ILLEGAL_ADDRESS" in err, (i, status, err[-600:])


@check
def a_hanging_step_ends_the_command():
    start = time.monotonic()
    _, _, err = zigcuda("run", *RUN, "--cuda.step_time", "1s",
                        env=environment(fail="kernel:20:hang"), want=6)
    assert "cuda.step_time" in err and time.monotonic() - start < 20, err[-600:]


@check
def a_driver_that_refuses_the_kernels_is_told_by_its_age():
    env = environment(version=12080, fail="cuModuleLoadData:1:209")
    _, _, err = zigcuda("run", *RUN, env=env, want=6)
    assert all(w in err for w in ("NO_BINARY_FOR_GPU", "CUDA 12.8", "sm_90", "README")), err


@check
def a_card_without_kernels_is_told_before_its_context():
    log = os.path.join(FOLDER.name, "old-card")
    _, _, err = zigcuda("run", *RUN, env=environment(sm=70, log=log), want=6)
    assert "capability 7.0" in err and "device.kind" in err, err
    with open(log) as f:
        assert "cuDevicePrimaryCtxRetain" not in f.read()


# --- memory ----------------------------------------------------------------------------------

@check
def a_small_card_says_what_it_needs():
    _, _, err = zigcuda("run", *RUN, env=environment(memory="8M"), want=5)
    assert "MiB" in err and "engine." in err, err


@check
def an_integrated_gpu_takes_memory_of_the_box_in_pieces():
    log = log_path("jetson")
    jetson = {"integrated": 1, "memory": "8G", "sm": 87, "largest": "1G", "name": "Orin"}
    zigcuda("run", *RUN, env=environment(log, **jetson))
    sizes = [int(m.group(1)) for m in (re.match(r" (\d+) bytes at", text)
                                       for name, _, text in calls_of(log)
                                       if name == "cuMemAlloc_v2") if m]
    assert sizes and max(sizes) <= 1 << 30, sizes
    _, plan, _ = zigcuda("plan", env=environment(**jetson))
    total = [line for line in plan.splitlines() if "can give" in line]
    assert total and "device" in plan, plan


@check
def a_fitted_cache_leaves_an_integrated_gpus_box_some_memory():
    """Of 600 MB nine parts in ten and what the host needs would be more than all."""
    path = log_path("meminfo")
    with open(path, "w") as f:
        f.write("MemTotal: 900000 kB\nMemAvailable: 600000 kB\n")
    own = ["unshare", "-rm", "sh", "-ec", "mount --bind $1 /proc/meminfo; shift; exec \"$@\"", "sh",
           path]
    try:
        subprocess.run([*own, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise server.Skip("no mounts of one's own here") from None
    with server.Server("image/demo", *GPU, "--engine.slots", "256", prefix=own,
                       environment=environment(integrated=1, sm=87)) as s:
        assert "misuse" not in s.text()


@check
def nothing_is_allocated_once_ready():
    log = log_path("ready")
    with Gpu(env=environment(log)) as s:
        before = len(calls_of(log))
        for i in range(4):
            s.text_of("Hello " * i + "you", 5 + i)
        after = calls_of(log)[before:]
        assert any(name == "cuLaunchCooperativeKernel" for name, _, _ in after)
        assert not [name for name, _, _ in after if ALLOCATES.match(name)], after
        assert "misuse" not in s.text()


@check
def metrics_tell_of_the_card():
    log = log_path("metrics")
    nvml = {**environment(log), "LD_LIBRARY_PATH": os.path.dirname(LIBRARY)}

    def page(s):
        status, text = s.ask("GET", "/metrics")
        assert status == 200, text
        return {name: float(value) for name, value in
                re.findall(r"^(zigcuda_(?:gpu|device)_\S+) (\S+)$", text, re.M)}

    with Gpu(env=nvml) as s:
        before = page(s)
        s.text_of(n=5)
        now = page(s)
        assert {k: v for k, v in now.items() if "_gpu_" in k} == {
            "zigcuda_gpu_power_watts": 123.4, "zigcuda_gpu_temperature_celsius": 61,
            'zigcuda_gpu_clock_hertz{domain="sm"}': 1755e6,
            'zigcuda_gpu_clock_hertz{domain="memory"}': 3201e6,
            'zigcuda_gpu_memory_bytes{kind="used"}': 3 << 30,
            'zigcuda_gpu_memory_bytes{kind="total"}': 8 << 30,
            **{f'zigcuda_gpu_throttle{{reason="{r}"}}': r in ("power_cap", "heat")
               for r in ("idle", "clocks_set", "power_cap", "sync_boost", "heat", "power_brake",
                         "hardware", "display")}}, now
        step, weights = "zigcuda_device_step_", "zigcuda_device_weight_bytes_"
        steps = now[step + "seconds_count"] - before[step + "seconds_count"]
        assert steps == 5, steps
        took = now[step + "seconds_sum"] - before[step + "seconds_sum"]
        least, most = now[step + "min_seconds"], now[step + "max_seconds"]
        assert 0 < least <= took / steps <= most, now
        assert now[weights + "total"] == now[step + "weight_bytes"] * now[step + "seconds_count"]
        fastest = now[weights + 'per_second{step="fastest"}']
        assert abs(fastest * least / now[step + "weight_bytes"] - 1) < 1e-9, now
        assert 0 < now[weights + 'per_second{step="newest"}'] <= fastest, now
        assert "no_telemetry" not in s.text()
    with Gpu("--log.level=debug", env={**nvml, "ZIGCUDA_FAKE_NVML": "nvmlInit_v2:9"}) as s:
        now = page(s)
        assert not [name for name in now if "_gpu_" in name], now
        assert now[step + "seconds_count"] > 0
        assert "no_telemetry" in s.text() and "NVML error 9" in s.text(), s.text()[-600:]
    with Gpu(env={**nvml, "ZIGCUDA_FAKE_NVML": "nvmlDeviceGetPowerUsage:3"}) as s:
        now = page(s)
        assert "zigcuda_gpu_power_watts" not in now, now
        assert "zigcuda_gpu_temperature_celsius" in now, now


# --- a lost device ---------------------------------------------------------------------------

WELL = {}


def well():
    """What a server without trouble answers, and how many kernels it runs until it is ready."""
    if not WELL:
        log = log_path("well")
        with Gpu(env=environment(log)) as s:
            WELL["kernels"] = sum(name.startswith("cuLaunch") and "Kernel" in name
                                  for name, _, _ in calls_of(log))
            WELL["text"] = s.text_of()
    return WELL


def watch(s, seen, stop):
    """As a load balancer does."""
    while not stop.is_set():
        try:
            seen.append(s.ask("GET", "/ready")[0])
        except (OSError, http.client.HTTPException) as e:  # who had accepted it is no more
            seen.append(type(e).__name__)
        time.sleep(0.01)


def formed(n):
    schema = {"type": "array", "minItems": 50, "items": {"type": "string", "minLength": 5}}
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": n,
            "stream": True, "response_format": {
                "type": "json_schema", "json_schema": {"name": "texts", "schema": schema}}}


def lose(code, flags, words, flag, form=False, nth=10):
    """A stream breaks off with an error, and then the same process serves again. What /ready said
    meanwhile."""
    fail = f"kernel:{well()['kernels'] + nth}:{code}:{flag}"
    path, body = ("/v1/chat/completions", formed(40)) if form else ("/v1/completions",
                                                                    wish(n=40, stream=True))
    seen, stop = [], threading.Event()
    with Gpu(*flags, env=environment(fail=fail, delay_us=2000)) as s:
        watcher = threading.Thread(target=watch, args=(s, seen, stop))
        watcher.start()
        try:
            status, said = s.ask("POST", path, body)
            assert status == 200 and '"device_failed"' in said, said[-600:]
            time.sleep(0.5)  # from here on peers wait in the listener
            assert s.text_of() == well()["text"], "another answer"
            time.sleep(0.1)
        finally:
            stop.set()
            watcher.join()
        text = s.text()
        assert text.count("event=ready") == 2 and "event=restart" in text, text[-900:]
        assert words in text and s.process.poll() is None, text[-900:]
    assert seen[-1] == 200 and "ConnectionRefusedError" not in seen, seen
    return seen


def lost(code, *flags, words):
    """/ready says 503 for a quarter of a second, which a busy box may sleep through."""
    for i in range(3):
        if 503 in lose(code, flags, words, log_path(f"lost-{code}-{i}")):
            return
    raise AssertionError("/ready never said 503")


@check
def a_lost_device_is_told_and_the_process_starts_again():
    for code, name in ((700, "ILLEGAL_ADDRESS"), (719, "LAUNCH_FAILED")):
        lost(code, words=f"CUDA_ERROR_{name}")


@check
def a_device_is_lost_between_logits_and_their_mask():
    """One of two launches behind each other is what makes logits, the other samples."""
    for nth in 20, 21:
        lose(719, (), "CUDA_ERROR_LAUNCH_FAILED", log_path(f"mask-{nth}"), True, nth)
        lose("hang", ("--cuda.step_time", "500ms"), "cuda.step_time", log_path(f"hang-{nth}"), True,
             nth)


@check
def a_hanging_step_is_told_and_the_process_starts_again():
    lost("hang", "--cuda.step_time", "500ms", words="cuda.step_time")


@check
def a_spinning_server_sees_it_too():
    lost(716, "--server.wait", "spin", words="CUDA_ERROR_MISALIGNED_ADDRESS")


@check
def a_device_lost_for_good_ends_the_process():
    """The second start fails, and says why; the service manager takes over."""
    copy = log_path("libcuda.so.1")
    shutil.copy(LIBRARY, copy)
    s = Gpu(env=environment(fail=f"kernel:{well()['kernels'] + 5}:719"), gpu=[*GPU[:3], copy])
    try:
        os.remove(copy)
        s.ask("POST", "/v1/completions", wish(n=40))
        assert s.process.wait(20) == 6, s.text()[-600:]
        assert copy in s.text().split("event=restart")[1], s.text()[-600:]
    finally:
        s.process.kill()
        s.process.wait()
        s.log.close()


sys.exit(server.run(checks) != 0)
