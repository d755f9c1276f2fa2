"""The CUDA backend inside `zigcuda`, on a driver that runs on host memory (tests/fakecuda): the
same tokens as the CPU's f32 kernels, what a step costs in driver calls, that nothing is taken once
it is ready, the memory plan and its errors, and what the benchmark prints.

usage: cuda.py LIBCUDA MODEL_DIR   (the fake one; environment: ZIGCUDA, how to run the binary)
Prints `ok NAME` or `FAIL NAME: why` a check.
"""
import http.client
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import server

BINARY = shlex.split(os.environ["ZIGCUDA"])
LIBRARY, MODEL_DIR = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
DEMO = "image/demo"  # whose heads have 64 dimensions
CUDA = [f"--cuda.library={LIBRARY}"]
CPU = ["--device.kind", "cpu", "--cpu.activations", "f32"]
PROMPT = "The quick brown fox jumps over the lazy dog, again and again."
TAKES = "cuMemAlloc|cuMemHostAlloc|cuMemHostRegister|cuModuleLoad|cuStreamCreate|cuEventCreate"
checks = []


def check(function):
    checks.append(function)
    return function


def zigcuda(*words, fake="", log="", want=0):
    env = {**os.environ, "ZIGCUDA_FAKE": fake, "ZIGCUDA_FAKE_LOG": log}
    r = subprocess.run([*BINARY, *words], env=env, capture_output=True, timeout=240)
    err = r.stderr.decode()
    assert "misuse" not in err, err[-500:]
    assert r.returncode == want, f"{words}: exit {r.returncode}, not {want}: {err[-500:]}"
    return r.stdout.decode(), err


def tokens(device, *flags, model=MODEL_DIR, prompt=PROMPT, n=24, log="", fake=""):
    out, _ = zigcuda("run", "--model", model, "--raw", "--json", "--max-tokens", str(n), *flags,
                     *device, prompt, log=log, fake=fake)
    lines = [json.loads(line) for line in out.splitlines()]
    return [(x["id"], x.get("logprob")) for x in lines if "id" in x]


def logged(path):
    """The calls of the log, by name, in order."""
    with open(path) as f:
        return re.findall(r"^\d+ (cu\w+)", f.read(), re.M)


@check
def same_tokens_as_the_cpu():
    for flags in (["--temperature", "0"],
                  ["--temperature", "0", "--repetition-penalty", "1.3"],
                  ["--temperature", "0", "--presence-penalty", "1", "--frequency-penalty", "0.5"],
                  ["--temperature", "0", "--top-logprobs", "3"]):
        cpu, cuda = tokens(CPU, *flags), tokens(CUDA, *flags)
        assert [t for t, _ in cpu] == [t for t, _ in cuda], f"{flags}: {cpu} {cuda}"
        assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(cpu, cuda) if a), flags


@check
def long_prompt():
    """More than PREFILL_TOKENS: by the kernels `prefill_..`, attention by one of its own."""
    with open(os.path.join(DEMO, "config.json")) as f:
        layers = json.load(f)["num_hidden_layers"]
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        flags = ["--temperature", "0", "--top-logprobs", "1"]
        cpu = tokens(CPU, *flags, model=DEMO, prompt=PROMPT * 5, n=1)
        cuda = tokens(CUDA, *flags, model=DEMO, prompt=PROMPT * 5, n=1, log=log)
        launches = logged(log).count("cuLaunchCooperativeKernel")
    assert [t for t, _ in cpu] == [t for t, _ in cuda], f"{cpu} {cuda}"
    assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(cpu, cuda)), f"{cpu} {cuda}"
    # and what is before the first layer's; the head, of another kind; the choice of the token
    assert launches == 3 * layers + 3, launches


@check
def few_tokens_in_one_launch():
    """A prompt that a row of `mid_.._rows` takes: all layers together."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        flags = ["--temperature", "0", "--top-logprobs", "1"]
        cpu = tokens(CPU, *flags, model=DEMO, n=1)
        cuda = tokens(CUDA, *flags, model=DEMO, n=1, log=log)
        launches = logged(log).count("cuLaunchCooperativeKernel")
    assert [t for t, _ in cpu] == [t for t, _ in cuda], f"{cpu} {cuda}"
    assert all(abs(a - b) < 0.05 for (_, a), (_, b) in zip(cpu, cuda)), f"{cpu} {cuda}"
    assert launches == 3, launches  # the layers; the head, of another kind; the choice of the token


@check
def card_to_come():
    """The PTX inside, which has `step` only."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        now = tokens(CUDA, "--temperature", "0")
        later = tokens(CUDA, "--temperature", "0", fake="sm=130", log=log)
        with open(log) as f:
            found = set(re.findall(r"cuModuleGetFunction 0 (\w+)", f.read()))
    assert now == later, f"{now} {later}"
    assert found == {"step", "pack", "read_all"}, found


@check
def prompt_logprobs():
    """More rows of logits than one pass over the head has."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "echo": True,
            "logprobs": 2}
    got = []
    for device in CPU, CUDA:
        with server.Server(MODEL_DIR, "--engine.slots", "2",
                           *device) as s:
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            c.request("POST", "/v1/completions", json.dumps(body),
                      {"content-type": "application/json"})
            got.append(json.loads(c.getresponse().read())["choices"][0])
            c.close()
    cpu, cuda = (g["logprobs"]["token_logprobs"] for g in got)
    assert got[0]["text"] == got[1]["text"] and len(cpu) == len(cuda) > 40
    assert all(abs(a - b) < 0.05 for a, b in zip(cpu[1:], cuda[1:])), (cpu, cuda)


def decode_calls(*flags, form=None):
    """The driver calls of an answer of 20 tokens: any, or one of a given form."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        with server.Server(MODEL_DIR, *CUDA, *flags, environment={"ZIGCUDA_FAKE_LOG": log}) as s:
            begin = len(logged(log))
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            body = {"model": MODEL, "max_tokens": 20, "temperature": 0}
            if form:
                body |= {"messages": [{"role": "user", "content": PROMPT}], "response_format": form}
            else:
                body |= {"prompt": PROMPT, "ignore_eos": True}
            c.request("POST", "/v1/chat/completions" if form else "/v1/completions",
                      json.dumps(body), {"content-type": "application/json"})
            reply = json.loads(c.getresponse().read())
            assert reply["usage"]["completion_tokens"] == 20, reply
            c.close()
            calls = logged(log)[begin:]
    return [n for n in calls if n != "cuStreamQuery"]


@check
def three_calls_a_step():
    calls = decode_calls("--server.wait", "spin")
    launches = calls.count("cuLaunchCooperativeKernel")
    copies = calls.count("cuMemcpyHtoDAsync_v2")
    assert launches == 1 + 2 * 19, calls  # the prompt in one, then each step and its sampling
    assert copies == 20 + 2, f"{copies} copies"  # and once sampling, once the page table
    assert len(calls) == launches + copies, calls


@check
def four_calls_a_step_of_a_given_form():
    """Its mask is one more, sent when the step is on its way."""
    texts = {"type": "array", "minItems": 20, "items": {"type": "string", "minLength": 5}}
    calls = decode_calls("--server.wait", "spin", "--engine.drafts", "0", form={
        "type": "json_schema", "json_schema": {"name": "texts", "schema": texts}})
    behind_prompt = calls[-4 * 19:]
    assert behind_prompt == ["cuMemcpyHtoDAsync_v2", "cuLaunchCooperativeKernel"] * 38, calls


@check
def six_calls_a_step_for_a_sleeper():
    calls = decode_calls("--server.wait", "block")
    assert calls.count("cuLaunchHostFunc") == 20 and len(calls) == 121, calls


@check
def nothing_is_taken_once_ready():
    for wait in "spin", "block":
        assert not [c for c in decode_calls("--server.wait", wait) if re.match(TAKES, c)]


@check
def host_memory_is_there_once_ready():
    """All of it, though a thread takes its pages while weights are on their way."""
    with server.Server(MODEL_DIR, *CUDA, "--log.level", "debug") as s:
        want = int(re.search(r"event=ready start_ms=\S+ host_bytes=(\d+)", s.text())[1])
        with open(f"/proc/{s.process.pid}/smaps", encoding="utf-8") as f:
            maps = re.findall(r"^Size: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB\n(?:.*\n)*?VmFlags:(.*)",
                              f.read(), re.M)
    arenas = [(int(size), int(rss)) for size, rss, flags in maps if " hg" in flags]
    assert sum(size for size, _ in arenas) * 1024 >= want, (want, arenas)
    assert all(size == rss for size, rss in arenas), (want, arenas)


def pages(*flags, kib=2 << 20):
    """KV pages of the plan on a card with so much memory; None: refused for lack of it."""
    env = {**os.environ, "ZIGCUDA_FAKE": f"memory={kib}K"}
    r = subprocess.run([*BINARY, "plan", "--model", MODEL_DIR, *CUDA, *flags], env=env,
                       capture_output=True, timeout=60)
    out, err = r.stdout.decode(), r.stderr.decode()
    if r.returncode:
        assert r.returncode == 5 and "cuda.memory_share" in err, err
        assert ("Lower engine.kv" in err) == ("--engine.kv" in flags), err
        return None
    for row in ("device  packed weights", "device  KV cache", "pinned  GPU steps", "device  total"):
        assert row in out, out
    return int(re.search(r"KV cache.* (\d+) pages", out).group(1))


@check
def kv_cache_takes_what_is_left():
    most = pages()
    few, many = 1 << 10, 2 << 20
    while many - few > 64:  # the least card that does
        middle = (few + many) // 2
        few, many = (few, middle) if pages(kib=middle) else (middle, many)
    assert 0 < pages(kib=many) < most, (many, pages(kib=many), most)
    assert pages("--cuda.memory_share", "50", kib=many) is None
    assert pages("--engine.kv", "64KiB") < most
    assert pages("--engine.kv", "4GiB") == most
    assert pages("--engine.kv", "4GiB", kib=many) is None
    _, err = zigcuda("plan", "--model", MODEL_DIR, *CUDA, "--engine.kv", "1", want=3)
    assert "engine.kv is 1 bytes; one KV page" in err, err


@check
def steps_are_short_where_a_display_limits_them():
    def step_tokens(fake, *flags):
        out, _ = zigcuda("plan", "--model", DEMO, *CUDA, *flags, fake=fake)
        return int(re.search(r"steps of (\d+) tokens", out).group(1))

    slow = "sm=86,clock=10000"
    assert step_tokens(slow) == 512
    assert step_tokens("sm=86,timeout=1") == 512
    assert step_tokens(slow + ",timeout=1") == 128
    assert step_tokens(slow + ",timeout=1", "--engine.slots", "200") == 256
    assert step_tokens(slow + ",timeout=1", "--engine.step_tokens", "700") == 700


@check
def large_cards_have_more_slots():
    def slots(fake, *flags):
        out, _ = zigcuda("plan", "--model", DEMO, *CUDA, *flags, fake=fake)
        return int(re.search(r" (\d+) slots, \d+ waiting", out).group(1))

    assert slots("memory=17179869184") == 8
    assert slots("memory=25769803776") == 32
    assert slots("memory=85899345920") == 128
    assert slots("memory=85899345920,integrated=1") == 8  # is the box's
    assert slots("memory=85899345920", "--engine.slots", "5") == 5
    assert slots("memory=85899345920", "--engine.step_tokens", "64") == 8


@check
def other_pages_are_refused():
    _, err = zigcuda("plan", "--model", MODEL_DIR, *CUDA, "--engine.kv_type", "f32", want=3)
    assert "engine.kv_type is f32, which the CUDA backend has not" in err, err


@check
def int8_pages_take_half():
    def page_bytes(kind):
        pages = ("--engine.kv_type", kind)
        out, _ = zigcuda("plan", "--model", MODEL_DIR, *CUDA, *pages)
        assert re.search(r"KV cache.* pages of 16 tokens, " + kind, out), out
        _, err = zigcuda("plan", "--model", MODEL_DIR, *CUDA, *pages, "--engine.kv=1", want=3)
        return int(re.search(r"one KV page of 16 tokens needs (\d+)", err)[1])

    f16, int8 = page_bytes("f16"), page_bytes("int8")
    assert f16 / 2 < int8 < f16 * 0.6, (f16, int8)


def other_order(folder, tensor):
    """Two inputs of a weight with act-order change places."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        begin, end = json.loads(f.read(n))[tensor]["data_offsets"]
        f.seek(0)
        data = bytearray(f.read())
    groups = data[8 + n + begin:8 + n + end]
    last = next(i for i in range(0, len(groups), 4) if groups[i:i + 4] != groups[:4])
    groups[:4], groups[last:last + 4] = groups[last:last + 4], groups[:4]
    data[8 + n + begin:8 + n + end] = groups
    os.remove(path)
    with open(path, "wb") as f:
        f.write(data)


@check
def experts_of_two_orders_are_refused():
    """Never a silent run on the CPU: device.kind is auto or cuda."""
    models = os.path.dirname(MODEL_DIR.rstrip("/"))
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.join(folder, "model")
        shutil.copytree(os.path.join(models, "qwen3-moe-gptq4-act"), folder)
        other_order(folder, "model.layers.0.mlp.experts.1.up_proj.g_idx")
        moe = ["--model", folder]
        for kind in ([], ["--device.kind", "cuda"]):
            for words in (["plan", *moe], ["run", *moe, "--raw", "x"], ["info", *moe],
                          ["serve", *moe, "--server.listen=127.0.0.1:0"]):
                _, err = zigcuda(*words, *CUDA, *kind, want=6)
                assert "mlp.experts.1.up_proj" in err and "act-order" in err, err
                assert "set device.kind" in err.lower(), err
        zigcuda("run", *moe, "--raw", "--max-tokens", "2", *CUDA, *CPU, "x")


@check
def experts_are_computed():
    models = os.path.dirname(MODEL_DIR.rstrip("/"))
    moe = ["--model", os.path.join(models, "qwen3-moe-gptq4"), "--raw", "--max-tokens", "8",
           "--temperature", "0", "The mouse"]
    out, _ = zigcuda("run", *moe, *CUDA)
    assert out == zigcuda("run", *moe, *CPU, "--cpu.activations=f32")[0] and out, out
    out, _ = zigcuda("plan", "--shape", "moe-2b", *CUDA, fake="memory=16G")
    assert "packed weights" in out, out


OWN = os.path.join(os.path.dirname(MODEL_DIR.rstrip("/")), "gemma4-ct4")
LARGE = ["plan", "--shape", "gemma-4-e4b", *CUDA]  # whose table has 5.25 GiB


def place_of_inputs(*flags, fake=""):
    """Where the plan has the table of per-layer inputs, and its KV pages."""
    out, err = zigcuda(*LARGE, *flags, fake=fake)
    place = re.search(r"^(\w+) +per-layer inputs +5.2 GiB .* cuda.layer_inputs$", out, re.M)[1]
    weights = re.search(r"^device +packed weights +3.2 GiB", out, re.M)
    assert weights and (place == "pinned") == ("event=layer_inputs" in err), (out, err)
    assert bool(re.search(r"^pinned +total +5.3 GiB", out, re.M)) == (place == "pinned"), out
    return place, int(re.search(r"KV cache.* (\d+) pages", out)[1])


@check
def layer_inputs_in_host_memory():
    """The same bits, and the table is taken there once."""
    flags = ["--temperature", "0", "--top-logprobs", "2"]
    with tempfile.TemporaryDirectory() as folder:
        for prompt in "x", PROMPT * 3:
            log = os.path.join(folder, prompt[:1])
            card, host = (tokens(CUDA, *flags, "--cuda.layer_inputs", place, model=OWN, n=8,
                                 prompt=prompt, log=log if place == "host" else "")
                          for place in ("device", "host"))
            assert card == host and len(host) == 8, f"{card} {host}"
        with open(log) as f:
            calls = f.read()
    out, _ = zigcuda("plan", "--model", OWN, *CUDA, "--cuda.layer_inputs=host")
    kib = int(re.search(r"^pinned +per-layer inputs +(\d+) KiB", out, re.M)[1])
    for name in "cuMemHostAlloc", "cuMemcpyDtoHAsync_v2":
        assert len(re.findall(rf"{name} 0 {kib << 10} bytes", calls)) == 1, calls[-3000:]


@check
def layer_inputs_lie_where_there_is_room():
    assert place_of_inputs(fake="memory=24G")[0] == "device"
    assert place_of_inputs(fake="memory=8G")[0] == "pinned"
    assert place_of_inputs("--cuda.layer_inputs=host", fake="memory=24G")[0] == "pinned"
    # where both are possible: by what is asked of the KV cache, or one sequence of the context
    place, few = place_of_inputs("--cuda.layer_inputs=device", fake="memory=12G")
    assert place == "device" and place_of_inputs(fake="memory=12G")[1] > few
    assert place_of_inputs("--memory.host_max=3GiB", fake="memory=12G") == ("device", few)
    for wish, want in (("--engine.kv=64MiB", "device"), ("--engine.kv=4GiB", "pinned"),
                       (f"--model.context={few * 16}", "device"),
                       (f"--model.context={few * 20}", "pinned")):
        assert place_of_inputs(wish, fake="memory=12G")[0] == want, wish


@check
def layer_inputs_that_do_not_fit_are_refused():
    def refused(words, *flags, fake="memory=8G", want=5):
        _, err = zigcuda(*LARGE, *flags, fake=fake, want=want)
        assert all(w in err for w in words), err

    refused(["the weights and buffers need", "let cuda.layer_inputs be auto or host"],
            "--cuda.layer_inputs=device")
    refused(["engine.kv asks for", "let cuda.layer_inputs be auto or host"],
            "--cuda.layer_inputs=device", "--engine.kv=6GiB", fake="memory=12G")
    refused(["memory.host_max is 3.0 GiB", "per-layer inputs 5.2 GiB (cuda.layer_inputs)"],
            "--memory.host_max=3GiB")
    refused(["cuda.layer_inputs is host, but Fake GPU has no memory of its own"],
            "--cuda.layer_inputs=host", fake="memory=24G,integrated=1", want=3)
    out, _ = zigcuda(*LARGE, fake="memory=24G,integrated=1")
    assert re.search("^device +per-layer inputs", out, re.M), out


@check
def calls_for_layer_inputs_fail_in_turn():
    def failed(name, n, code):
        os.environ["ZIGCUDA_FAKE_FAIL"] = f"{name}:{n}:{code}"
        try:
            return zigcuda("run", "--model", OWN, "--raw", *CUDA, "--cuda.layer_inputs=host", "x",
                           want=5 if code == 2 else 6)[1]
        finally:
            del os.environ["ZIGCUDA_FAKE_FAIL"]

    err = failed("cuMemHostAlloc", 1, 2)
    assert ("pinned host memory for the per-layer inputs (cuda.layer_inputs)" in err and
            "CUDA_ERROR_OUT_OF_MEMORY" in err), err
    for name in "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemcpyDtoHAsync_v2":
        assert "CUDA_ERROR_LAUNCH_FAILED" in failed(name, 1, 719), name


@check
def integrated_gpu():
    """It takes its memory in pieces."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        zigcuda("run", "--model", MODEL_DIR, "--raw", "--max-tokens", "2", *CUDA, "x", log=log,
                fake="integrated=1,sm=87,largest=600M")
        assert "cuMemAlloc_v2" in logged(log)


@check
def bench_rows():
    out, _ = zigcuda("bench", "--model", MODEL_DIR, *CUDA, "--prompt", "20", "--batch", "1,3",
                     "--depth", "16,100", "--generate", "3", "--repeat", "1", "--steps",
                     "--profile", "--json")
    report = json.loads(out)
    assert [r["test"] for r in report["rows"]] == ["pp20"] + 4 * ["step"], out
    assert all(r["read_gb_per_second"] > 0 for r in report["rows"][1:]), out
    ops = {r["operation"]: r["times_a_step"] for r in report["profile"]}
    layers = ops["attention"]
    assert layers > 0 and ops["qkv"] == ops["down"] == layers and ops["head"] == 1, ops
    assert report["device_bytes"] > 0


@check
def bench_kl_in_a_short_context():
    """The text is as long as the context: so are the page tables."""
    for context in ("40", "100"):
        out, _ = zigcuda("bench", "--model", MODEL_DIR, *CUDA, "--model.context", context,
                         "--prompt", "none", "--batch", "none", "--kl", "--json")
        assert 0 <= json.loads(out)["kl_mean"] < 0.01, out


def main():
    failed = 0
    for function in checks:
        try:
            function()
            print("ok  ", function.__name__, flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed += 1
            print("FAIL", function.__name__ + ":", str(e)[:1500], flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
