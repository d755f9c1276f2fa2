"""The command line as a user meets it: answers, exit codes, messages, Ctrl-C, no allocation.

usage: cli.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
Prints `ok NAME` or `FAIL NAME: why` a check.
"""
import contextlib
import json
import os
import pty
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import server

BINARY = shlex.split(os.environ["ZIGCUDA"])
MODEL = sys.argv[1]
checks = []


def check(function):
    checks.append(function)
    return function


def zigcuda(*args, stdin=None, want=0):
    r = subprocess.run([*BINARY, *args], input=stdin, capture_output=True, timeout=120)
    out, err = r.stdout.decode(), r.stderr.decode(errors="replace")
    assert r.returncode == want, f"{args}: exit {r.returncode}, not {want}: {err[-300:]}"
    return out, err


def run(*args, **kwargs):
    return zigcuda("run", "--model", MODEL, *args, **kwargs)[0]


def lines(*args):
    return [json.loads(line) for line in run("--json", *args).splitlines()]


def peak_kib(*args, want=0, preexec_fn=None):
    """The most memory of one process that was resident, as the kernel counts it."""
    process = subprocess.Popen([*BINARY, *args], stdout=subprocess.DEVNULL, preexec_fn=preexec_fn)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == want, f"{args}: exit {process.returncode}, not {want}"
    return usage.ru_maxrss


@check
def help_lists_every_command():
    out, _ = zigcuda("--help")
    for name in ("serve", "run", "info", "plan", "bench", "kernel", "key", "config", "version"):
        assert re.search(rf"^\s+{name}\b", out, re.M), name
        assert "usage" in zigcuda(name, "--help")[0], name
        assert zigcuda(name, "-h") == zigcuda(name, "--help"), name
    assert zigcuda("-h")[0] == out and zigcuda("--version") == zigcuda("version")


@check
def help_does_not_need_a_good_file():
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("[server]\nlissten = 1\n")
        f.flush()
        for name in ("serve", "run", "info", "plan", "bench", "kernel", "config"):
            whole = zigcuda(name, "--help")[0]
            assert zigcuda(name, "--config", f.name, "--help")[0] == whole, name
            assert zigcuda(name, "--help", f"--config={f.name}")[0] == whole, name
        r = subprocess.run([*BINARY, "plan", "--modell", "x", "--config", f.name],
                           capture_output=True, timeout=120)
        assert r.returncode and b"lissten" in r.stderr, r


@check
def wrong_use_says_what_to_do():
    for args, words in (
        (["nonsense"], "nonsense"),
        (["run", "--model", MODEL, "--seeed", "1", "x"], "--seed"),
        (["run", "--model", MODEL, "--top-p", "7", "x"], "1"),
        (["run", "--model", MODEL, "--max-tokens"], "value"),
        (["run", "--model", MODEL, "--max-tokens", "1.5", "x"], "whole number from 1 to 1048576"),
        (["run", "--mod", MODEL, "x"], "--mod; --help"),
        (["bench", "--model", MODEL, "--batch", "257"], "--batch"),
        (["bench", "--model", MODEL, "--depth", "1,x"], "'1,x'"),
        (["bench", "--model", MODEL, "--prompt", "0"], "'0'"),
        (["run", "--model", MODEL, "one", "two"], "two"),
        (["run", "hello"], "--model"),
        (["run", "--model", MODEL, "--min-tokens", "5", "--max-tokens", "4", "x"],
         "--min-tokens is 5 and --max-tokens is 4"),
        (["run", "--model", MODEL, "--system", "y", "--raw", "x"], "--raw has no place for --sys"),
        (["run", "--model", MODEL, "--logprobs", "x"], "--json"),
        (["run", "--model", MODEL, "--top-logprobs", "2", "x"], "--json"),
        (["run", "--model", MODEL, *["--stop", "y"] * 17, "x"],
         "--stop: 17 texts; the limit is 16"),
        (["plan", "--model", MODEL, "--shape", "100m"], "--shape and --model"),
        (["bench", "--model", MODEL, "--shape", "100m"], "--shape and --model"),
        (["plan", "--model", MODEL, "--bits", "4"], "--bits and --head-bits are of a --shape"),
        (["bench", "--model", MODEL, "--head-bits", "16"], "--bits and --head-bits are of a --sh"),
    ):
        _, err = zigcuda(*args, want=2)
        assert words in err, (args, err)
    _, err = zigcuda("run", "--model", "/no/such/folder", "x", want=4)
    assert "no model folder /no/such/folder (model.dir; nothing" in err, err
    _, err = zigcuda("info", "--model", f"{MODEL}/model.safetensors", want=4)
    assert "model.safetensors is no folder: model.dir is one" in err, err
    _, err = zigcuda("run", "--model", MODEL, "--device.kind=cuda", "x", want=6)
    assert "cuda" in err, err


@check
def first_mistakes_are_told():
    for args, words in (
        (["srve"], "no command 'srve' (did you mean serve?)"),
        (["server"], "(did you mean serve?)"),
        (["Run"], "(did you mean run?)"),
        (["xy"], "no command 'xy'; zigcuda --help"),
        (["--model", MODEL, "serve"], "a command comes before the flags"),
        (["serve", MODEL], "one argument too many (a model's folder goes behind --model)"),
        (["serve", "--port", "80"], "unknown flag --port (did you mean --server.listen?)"),
        (["serve", "--host=0.0.0.0"], "unknown flag --host (did you mean --server.listen?)"),
        (["serve", "-m", MODEL], "unknown flag -m (did you mean --model.dir?)"),
        (["plan", f"--model='{MODEL}'"], "leave out the quotes"),
        (["help", "nonsense"], None),
    ):
        out, err = zigcuda(*args, want=2 if words else 0)
        assert words is None or words in err and not out, (args, err)
    assert zigcuda("help", "serve") == zigcuda("serve", "--help") != zigcuda("help")
    with tempfile.TemporaryDirectory() as folder:
        hub = os.path.join(folder, "models--a--b")
        os.makedirs(os.path.join(hub, "snapshots"))
        for dir, words in (("~/x", "~ and $ mean nothing here"),
                           ("$HOME/x", "~ and $ mean nothing"),
                           ("/x # my model", "a comment has a line of its own"),
                           ("some/x", f"nothing is downloaded; looked for in {os.getcwd()})"),
                           (folder, f"{folder} has no config.json: model.dir is a folder with"),
                           (hub, f"in a folder of {hub}/snapshots (model.dir)")):
            ini = os.path.join(folder, "some.ini")
            with open(ini, "w") as f:
                f.write(f"[model]\ndir = {dir}\n")
            _, err = zigcuda("plan", "--config", ini, want=4)
            assert words in err, (dir, err)


@check
def a_name_is_text():
    for name in (b"caf\xe9", b"\xc0\x80"):
        _, err = zigcuda("serve", "--model", MODEL, b"--model.name=" + name, want=3)
        assert "model.name" in err and "UTF-8" in err, err


@check
def an_answer_streams_and_ends():
    out = run("--max-tokens", "8", "Hello")
    assert out.endswith("\n") and len(out) > 1


@check
def the_same_line_gives_the_same_answer():
    args = ("--max-tokens", "24", "--temperature", "1.5", "--raw", "Once there was")
    first = run(*args)
    assert first == run(*args) == run("--seed", "0", *args)
    assert first == run("--cpu.threads=1", *args)
    assert any(run("--seed", str(seed), *args) != first for seed in range(1, 6))


@check
def a_seed_has_the_range_of_the_api():
    low, high = -(1 << 63), (1 << 63) - 1
    args = ("--max-tokens", "24", "--temperature", "1.5", "--raw", "Once there was")
    answers = {run("--seed", str(seed), *args) for seed in (0, -1, low, high)}
    assert len(answers) > 1 and run(f"--seed={low}", *args) in answers
    for seed in (low - 1, high + 1, "x", "1.0", ""):
        _, err = zigcuda("run", "--model", MODEL, "--seed", str(seed), "x", want=2)
        assert f"'{seed}' is not a whole number from {low} to {high}" in err, err


@check
def json_lines_add_up():
    got = lines("--max-tokens", "12", "--top-logprobs", "3", "--temperature", "0", "Hello there")
    *tokens, end = got
    assert end["completion_tokens"] == len(tokens) <= 12
    for t in tokens:
        top = t["top_logprobs"]
        assert len(top) == 3 and top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"]
        assert t["id"] == top[0]["id"] and abs(t["logprob"] - top[0]["logprob"]) < 1e-6
    text = "".join(t["text"] for t in tokens)
    assert text == run("--max-tokens", "12", "--temperature", "0", "Hello there")[:-1]


@check
def stop_and_length():
    args = ("--temperature", "0", "--max-tokens", "20", "Hello there")
    text = run(*args)[:-1]
    stop = text[4:7]
    assert run("--stop", stop, *args)[:-1] == text[: text.index(stop)]
    assert lines("--stop", stop, *args)[-1]["finish_reason"] == "stop"
    for stops in (stop, "never"), ("never", stop):
        assert run("--stop", stops[0], "--stop", stops[1], *args)[:-1] == text[: text.index(stop)]


@check
def a_prompt_from_stdin():
    args = ("--temperature", "0", "--max-tokens", "6")
    assert run(*args, "-", stdin=b"Hello there\n") == run(*args, "Hello there")
    _, err = zigcuda("run", "--model", MODEL, *args, stdin=b"\xff\xfe", want=2)
    assert "UTF-8" in err, err


@check
def a_long_prompt_is_refused_with_both_numbers():
    """And with what it is that bounds the context."""
    for more, by in ((["--model.context=64"], "model.context"), ([], "all that the model has"),
                     (["--engine.kv=640KiB"], "what fits the KV cache, engine.kv")):
        _, err = zigcuda("run", "--model", MODEL, *more, "--raw", "word " * 3000, want=2)
        numbers = re.search(rf"has (\d+) tokens; the context is (\d+) tokens \({by}\)", err)
        assert numbers and int(numbers[1]) >= 3000 > 1024 >= int(numbers[2]), err


@check
def a_prompt_of_too_many_bytes_is_refused():
    for more, stdin in (["--system", "x" * 2000, "x" * 64000], None), (["-"], b"x" * 66000):
        _, err = zigcuda("run", "--model", MODEL, "--model.context=64", *more, stdin=stdin, want=2)
        assert err.startswith("zigcuda run: the prompt has more than 65536 bytes, "), err
        assert "64 tokens (model.context)" in err, err


@check
def plan_and_info():
    out, _ = zigcuda("plan", "--model", MODEL)
    for word in ("KV cache", "weights", "total", "engine.kv"):
        assert word in out, word
    out, _ = zigcuda("info", "--model", MODEL)
    for word in ("cpu", "chosen", "layers", "vocabulary"):
        assert word in out, word


@check
def a_context_that_does_not_fit_is_refused():
    kv = "--engine.kv=640KiB"
    _, err = zigcuda("plan", "--model", MODEL, kv, "--model.context=1024", want=5)
    assert "model.context is 1024 tokens" in err and "engine.kv = 640 KiB" in err, err
    fits = int(re.search(r"has room for (\d+)", err)[1])
    for words in ([f"--model.context={fits}"], []):
        out, _ = zigcuda("plan", "--model", MODEL, kv, *words)
        assert f"context of {fits}, " in out, out


@check
def a_pipe_in_a_folder_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(os.path.join(folder, "config.json"))
        for command in (["run", "x"], ["plan"], ["info"]):
            _, err = zigcuda(*command, "--model", folder, want=4)
            assert "config.json is not a regular file" in err, err


def post(port, path, **body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, json.load(r)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


@check
def a_template_with_what_is_not_supported_leaves_plain_text():
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.join(folder, "m")
        shutil.copytree(MODEL, folder)
        with open(f"{folder}/chat_template.jinja", "w") as f:
            f.write("\n{% include 'a' %}")
        where = "chat_template.jinja: line 2, column 4: the tag 'include'"
        _, err = zigcuda("run", "--model", folder, "Hi", want=4)
        assert where in err and "--raw continues" in err, err
        out, err = zigcuda("run", "--model", folder, "--raw", "--max-tokens", "2", "Hi")
        assert out and "event=no_chat" in err and where in err, err
        with server.Server(folder) as s:
            assert where in s.text(), s.text()
            status, r = post(s.port, "/v1/chat/completions", model="m",
                             messages=[{"role": "user", "content": "Hi"}])
            assert status == 400 and r["error"]["code"] == "no_chat_template", r
            assert f"not supported; use /v1/completions. {where}" in r["error"]["message"], r
            assert post(s.port, "/v1/completions", model="m", prompt="Hi", max_tokens=2)[0] == 200


@check
def a_broken_template_is_the_model_s_fault():
    """Unless it has no place for --system."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        for text, words, system in (
            ("{% if %}", "line 1, column 7: an expression is missing", 4),
            ("{{ nothing.at.all }}", "'nothing' is undefined", 2),
            ("{{ raise_exception('no system message') if messages|length > 1 }}", "no system", 2),
        ):
            with open(f"{folder}/chat_template.jinja", "w") as f:
                f.write(text)
            args = ("run", "--model", folder, "--max-tokens", "2", "Hello")
            if "length" not in text:
                assert words in zigcuda(*args, want=4)[1], text
            assert words in zigcuda(*args, "--system", "Be brief", want=system)[1], text


@check
def options_that_would_do_nothing_are_refused():
    """Before anything is loaded, and by `plan` as by `serve`."""
    for options, words in (
        (["--server.pin=on", "--server.core=1000"], "server.core is 1000, on which"),
        (["--server.wait=spin", "--server.core=4095"], "server.core is 4095, on which"),
        (["--keys.rate=5"], "keys.rate and keys.requests bound each key, and without keys."),
        (["--keys.requests=1"], "keys.rate and keys.requests bound each key, and without"),
    ):
        for command in ("plan", "serve"):
            _, err = zigcuda(command, "--model", MODEL, "--log.level=debug",
                             "--server.listen=127.0.0.1:0", *options, want=3)
            assert words in err and "name=engine" not in err and "listening" not in err, err


@check
def a_file_that_is_not_there_is_told_with_its_option():
    for options, words in (
        (["--keys.file=/nope"], "keys.file: cannot open /nope: No such file"),
        (["--keys.file=/dev/null"], "keys.file: /dev/null is not a regular file"),
        (["--tls.certificate=/nope", "--tls.key=/nope"], "tls.certificate: cannot open /nope: No"),
        (["--config=/nope"], "--config: cannot open /nope: No such file"),
    ):
        _, err = zigcuda("serve", "--model", MODEL, "--log.format=text", *options, want=3)
        assert err.startswith("zigcuda serve: " + words), err


@check
def serve_ends_in_the_form_of_its_log():
    """Once log.format is known; the longest error of all is whole."""
    def last(*args, want=4):
        _, err = zigcuda("serve", "--model", folder, *args, want=want)
        assert err.count("\n") == 1, err
        return err

    why = 'no model folder /no"such'
    for folder in '/no"such', '/no"such' + "\\" * 4000:
        line = json.loads(last("--log.format=json"))
        assert line["level"] == "error" and line["event"] == "fatal", line
        assert line["why"].startswith(why), line
    assert len(line["why"]) == 1023, line
    folder = '/no"such'
    assert re.match(r'time=\S+ level=error event=fatal why="no model folder /no\\"such', last())
    assert last("--log.format=text").startswith("zigcuda serve: " + why)
    err = last("--log.format=json", "--keys.rate=x", want=2)
    assert err.startswith("zigcuda serve: --keys.rate is 'x'"), err


@check
def names_that_never_match_are_refused():
    for option, value in (("origins", "a.example"), ("origins", "https://a.example/"),
                          ("origins", "https://"), *(("hosts", name) for name in (
                              "foo bar", "http://x", "x/", ".example", "*.example", "a..example",
                              "box.example:80", "b\u00fcro.example"))):
        _, err = zigcuda("serve", "--model", MODEL, f"--server.{option}={value}",
                         "--server.listen=127.0.0.1:0", want=3)
        assert f"server.{option}: '{value}'" in err, err


@check
def the_unit_is_sound():
    with open("image/zigcuda.service") as f:
        unit = f.read()
    program = "/usr/local/bin/zigcuda"  # which `ninja install` replaces
    assert unit.count("/usr/local") == 1 and f"ExecStart={program} serve\n" in unit
    analyze = shutil.which("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/zigcuda.service"
        with open(path, "w") as f:
            f.write(unit.replace(program, os.path.abspath(BINARY[-1])))
        if analyze:
            p = subprocess.run([analyze, "verify", path], capture_output=True, text=True)
            assert p.returncode == 0 and not p.stderr, p.stderr


@check
def what_the_box_refuses_is_not_ready_first():
    """RLIMIT_MEMLOCK and RLIMIT_RTPRIO; who has the capabilities is refused nothing."""
    for option, limit in ("lock=on", "-l"), ("fifo=99", "-r"):
        p = subprocess.Popen(["sh", "-c", f'ulimit {limit} 0; exec "$@"', "sh", *BINARY, "serve",
                              "--model", MODEL, "--server.listen=127.0.0.1:0",
                              f"--server.{option}"], stderr=subprocess.PIPE, text=True)
        lines = []
        for line in p.stderr:
            lines.append(line)
            if "event=ready" in line:
                p.terminate()
        assert p.wait(30) in (0, 5), lines
        text = "".join(lines)
        assert ("event=fatal" in text) == (p.returncode == 5) != ("event=ready" in text), text
        assert p.returncode == 0 or "server." + option.split("=")[0] in text, text


@check
def too_little_memory_names_the_option():
    _, err = zigcuda("run", "--model", MODEL, "--memory.host_max=64KiB", "x", want=5)
    assert "memory.host_max" in err and "engine.kv" in err, err
    for options, words in (
        ((), "lower what takes most: connections 69.9 MiB (server.connections), request work "
             "48.0 MiB (server.body_max), KV cache"),
        (("--engine.slots=64",), "lower what takes most: KV cache 288 MiB (engine.kv), conn"),
        (("--server.body_max=8MiB",), "lower what takes most: request work 192 MiB (server.body"),
    ):
        for command in ("plan", "serve"):
            out, err = zigcuda(command, "--model", MODEL, "--server.listen=127.0.0.1:0",
                               "--memory.host_max=100MiB", *options, want=5)
            assert words in err and ("KV cache" in out) == (command == "plan"), (out, err)


@check
def a_shape_is_planned_as_a_folder_would_be_served():
    """And nothing of it is taken: these weights have 15 GiB."""
    def rows(*args):
        return {line[:26].rstrip() for line in zigcuda("plan", *args)[0].splitlines()[1:-1]}

    assert rows("--shape", "100m") == rows("--model", MODEL)
    large = ("plan", "--shape", "llama-3.1-8b", "--bits", "16", "--memory.host_max=1MiB")
    assert peak_kib(*large, want=5) < 100 << 10
    experts = ("plan", "--shape", "qwen3-30b-a3b", "--memory.host_max=1MiB")
    assert peak_kib(*experts, want=5) < 100 << 10


@check
def random_weights_are_host_memory():
    bench = ("bench", "--shape", "100m", "--engine.slots=1", "--engine.kv=1MiB", "--prompt", "16",
             "--batch", "1", "--generate", "1", "--json")
    assert json.loads(zigcuda(*bench)[0])["host_bytes"] > 100 << 20
    _, err = zigcuda(*bench, "--memory.host_max=100MiB", want=5)
    assert "random weights 84" in err and "(--shape)" in err, err


@check
def a_context_of_one_token_is_none():
    for command in "plan", "serve":
        _, err = zigcuda(command, "--model", MODEL, "--server.listen=127.0.0.1:0",
                         "--model.context=1", want=3)
        assert "model.context is 1 token" in err, err


@check
def an_error_stands_behind_the_output():
    r = subprocess.run([*BINARY, "plan", "--model", MODEL, "--memory.host_max=10MiB"],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert r.returncode == 5 and r.stdout.splitlines()[-1].startswith(b"zigcuda plan: "), r.stdout


@check
def a_kv_cache_of_8_bits_takes_less():
    layers, kv_heads, dim, page = 9, 2, 64, 16
    for kind, head in ("f16", page * dim * 2), ("f32", page * dim * 4), ("int8", page * (dim + 4)):
        page_bytes = layers * 2 * kv_heads * head
        flags = ("--model", MODEL, f"--engine.kv_type={kind}", "--device.kind=cpu")
        _, err = zigcuda("plan", *flags, "--engine.kv=1", want=3)
        assert f"one KV page of 16 tokens needs {page_bytes}" in err, err
        out, _ = zigcuda("plan", *flags, f"--engine.kv={300 * page_bytes}")
        row = next(line for line in out.splitlines() if "KV cache" in line)
        assert f" {300 * page_bytes / 2**20:.1f} MiB  300 pages of 16 tokens, {kind} " in row, row
        bench = ("bench", *flags, "--prompt", "none", "--generate", "1", "--repeat", "1", "--json")
        told = json.loads(zigcuda(*bench)[0])
        assert told["kv_token_bytes"] == page_bytes / page and f"{kind} KV" in told["device"], told


@check
def fingerprints_tell_kv_caches_apart():
    prints = set()
    for kind in "f16", "f32", "int8":
        with server.Server(MODEL, "--device.kind=cpu", f"--engine.kv_type={kind}") as s:
            prints.add(re.search(r"fingerprint=(\S+)", s.text())[1])
    assert len(prints) == 3, prints


@check
def a_kv_cache_of_8_bits_says_the_same():
    for prompt, n in (("Tell me a short story about a brave mouse.", 120), ("Who are you?", 28)):
        f16, int8 = ([line["id"] for line in lines("--temperature", "0", "--cpu.activations=f32",
                                                   f"--engine.kv_type={kind}", prompt)[:-1]]
                     for kind in ("f16", "int8"))
        assert f16 == int8 and len(f16) == n, (f16, int8)


@check
def a_kv_cache_that_was_asked_for():
    for command in (["plan"], ["run", "x"]):
        _, err = zigcuda(*command, "--model", MODEL, "--engine.kv=1", want=3)
        assert "engine.kv is 1 bytes; one KV page of 16 tokens needs 73728" in err, err
        _, err = zigcuda(*command, "--model", MODEL, "--engine.kv=16TiB", "--engine.slots=256",
                         "--memory.host_max=1GiB", want=5)
        assert "memory.host_max is 1.0 GiB" in err and "KV cache 1.1 GiB (engine.kv)" in err, err


@check
def a_limit_of_address_space_is_named():
    for limit, arena in (2 << 30, "scratch"), (6 << 30, "host"):
        r = subprocess.run([*BINARY, "run", "--model", MODEL, "--engine.slots=256", "x"],
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit,) * 2),
                           capture_output=True, timeout=60)
        err = r.stderr.decode()
        assert r.returncode == 5 and f"the {arena} arena: this process may have {limit} of " \
            "address space (RLIMIT_AS)" in err, err


@check
def a_long_context_takes_no_memory_before_it_is_used():
    """The whole of this one has 576 MiB, and may be used to its end."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        with open(f"{MODEL}/config.json") as f:
            config = {**json.load(f), "max_position_embeddings": 131072}
        with open(f"{folder}/config.json", "w") as f:
            json.dump(config, f)
        assert peak_kib("run", "--model", folder, "--max-tokens", "4", "Hello") < 300 << 10
        n = ["--min-tokens", "2000", "--max-tokens", "2000"]
        assert lines("--model", folder, *n, "Hello")[-1]["completion_tokens"] == 2000


@check
def bench_prints_json():
    out, _ = zigcuda("bench", "--model", MODEL, "--json", "--prompt", "32", "--batch", "1,2",
                     "--generate", "8", "--repeat", "1")
    rows = json.loads(out)["rows"]
    assert [r["test"] for r in rows] == ["pp32", "tg8", "tg8"]
    assert all(r["tokens_per_second"] > 0 for r in rows)
    out, _ = zigcuda("bench", "--model", MODEL, "--json", "--prompt", ",".join(["1"] * 1000),
                     "--batch", "none", "--repeat", "1")
    assert len(json.loads(out)["rows"]) == 1000 and len(out) > 64 << 10


@check
def json_lines_hold_the_longest_tokens():
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(MODEL):
            os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
        name = os.path.join(folder, "tokenizer.json")
        with open(name) as f:
            t = json.load(f)
        os.remove(name)
        many = "\u0101" * 2000  # control bytes: six characters each in JSON
        t["model"]["merges"] = []
        t["model"]["vocab"] = {w if len(w) == 1 or w.startswith("<") else f"{i}{many}": i
                               for w, i in t["model"]["vocab"].items()}
        with open(name, "w") as f:
            json.dump(t, f)
        out, _ = zigcuda("run", "--model", folder, "--raw", "--json", "--top-logprobs", "20",
                         "--max-tokens", "4", "Hello")
        tokens = [json.loads(line) for line in out.splitlines()][:-1]
        assert tokens and max(map(len, out.splitlines())) > 64 << 10, len(out)


def stdout_of(output, *args, want):
    """`zigcuda args` behind a shell's redirection of its files; its stderr."""
    command = 'exec "$@" ' + output
    r = subprocess.run(["sh", "-c", command, "sh", *BINARY, *args], stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert r.returncode == want, f"{args} {output}: exit {r.returncode}, not {want}: {r.stderr}"
    return r.stderr.decode()


@check
def output_that_cannot_be_written_is_an_error():
    for output in (">/dev/full", ">&-"):
        for args in (["--help"], ["version"], ["config"], ["info"], ["plan", "--model", MODEL],
                     ["run", "--model", MODEL, "--max-tokens", "4", "Hello"]):
            assert "cannot write the " in stdout_of(output, *args, want=5), (output, args)


def files_of(pid):
    names = {}
    for n in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            names[n] = os.readlink(f"/proc/{pid}/fd/{n}")
    return names


@check
def a_port_in_use_is_found_before_the_load():
    with socket.create_server(("127.0.0.1", 0)) as s, tempfile.TemporaryDirectory() as folder:
        path, address = f"{folder}/socket", f"127.0.0.1:{s.getsockname()[1]}"
        _, err = zigcuda("serve", "--model", MODEL, "--log.level=debug", "--server.listen",
                         f"unix:{path},{address}", want=5)
        assert f"cannot bind {address}: Address in use" in err and "name=engine" not in err, err
        assert not os.path.exists(path)


@check
def closed_files_stay_closed():
    """Nothing else gets the number of stdin, stdout or stderr, to be read or written by mistake."""
    args = ("run", "--model", MODEL, "--max-tokens", "4")
    assert "stdin: Bad file descriptor" in stdout_of("<&-", *args, want=5)
    stdout_of("2>&-", *args, "Hello", want=0)
    process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *BINARY, "serve",
                                "--model", MODEL, "--server.listen=127.0.0.1:0"])
    try:
        end = time.monotonic() + 60
        while "socket:" not in "".join(files_of(process.pid).values()):
            assert process.poll() is None and time.monotonic() < end, "it does not listen"
            time.sleep(0.05)
        assert [files_of(process.pid)[n] for n in "012"] == ["/"] * 3
    finally:
        process.kill()
        process.wait()


@check
def a_key_is_made_whole_or_not_at_all():
    """stderr is the file of keys: what goes there is the line of a key, or a comment."""
    out, err = zigcuda("key", "new", "alice")
    assert re.fullmatch(r"zc-[0-9a-f]{64}\n", out) and re.fullmatch(r"[0-9a-f]{64} alice\n", err)
    for args in ([], ["new"], ["old", "alice"], ["new", "Alice Smith"], ["new", ""],
                 ["new", "x" * 64], ["new", "--name"], ["new", "alice", "bob"]):
        out, err = zigcuda("key", *args, want=2)
        assert out == "" and re.fullmatch(r"# [^\n]+\n", err), (args, out, err)
    for output in (">/dev/full", ">&-"):
        err = stdout_of(output, "key", "new", "alice", want=5)
        assert re.fullmatch(r"# [^\n]+\n", err), err
    assert "usage" in zigcuda("key", "new", "--help")[0]


@check
def control_c_ends_the_wait_for_a_prompt():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = subprocess.Popen(
            [*BINARY, "run", "--model", MODEL, "--log.level=debug", "--log.format=text"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not (line := process.stderr.readline()).startswith(b"zigcuda: ready"):
            assert line, "it does not start"
        process.stdin.write(b"Tell me")
        process.stdin.flush()
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(20) == -number, (number, process.returncode)
        assert process.stderr.read() == process.stdout.read() == b""


@check
def a_terminal_is_told_what_is_waited_for():
    for more, words in ([], b"Ctrl-D"), (["--quiet"], b""):
        typed, stdin = pty.openpty()
        try:
            os.write(typed, b"Hello there\n\4")
            r = subprocess.run([*BINARY, "run", "--model", MODEL, "--max-tokens", "4", *more],
                               stdin=stdin, capture_output=True, timeout=60)
        finally:
            os.close(typed)
            os.close(stdin)
        assert r.returncode == 0 and r.stdout and words in r.stderr, r
        assert words or not r.stderr, r


@check
def signals_end_a_load():
    """One that waits from the start, blocked, is seen while the model is loaded."""
    for number in (signal.SIGINT, signal.SIGTERM):
        def waits():
            signal.pthread_sigmask(signal.SIG_BLOCK, [number])
            os.kill(os.getpid(), number)
        for command in (["run", "Hello"], ["serve", "--server.listen=127.0.0.1:0"]):
            r = subprocess.run([*BINARY, *command, "--model", MODEL], preexec_fn=waits,
                               capture_output=True, timeout=60)
            assert (r.returncode, r.stdout) == (-number, b""), (command, number, r)
        large = ("serve", "--model", MODEL, "--server.listen=127.0.0.1:0", "--engine.slots=256")
        assert peak_kib(*large, want=-number, preexec_fn=waits) < 500 << 10


@check
def control_c_is_clean():
    """It ends by the signal whenever that comes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        for bytes in (0, 1):
            process = subprocess.Popen(
                [*BINARY, "run", "--model", MODEL, "--min-tokens", "900", "--max-tokens", "900",
                 "--raw", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.read(bytes)
            process.send_signal(number)
            _, err = process.communicate(timeout=20)
            assert (process.returncode, err) == (-number, b""), (process.returncode, err)


@check
def a_closed_pipe_ends_it():
    """By SIGPIPE; where that is ignored, with a word."""
    for ignored in (False, True):
        process = subprocess.Popen(
            [*BINARY, "run", "--model", MODEL, "--min-tokens", "900", "--max-tokens", "900",
             "--raw", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            restore_signals=not ignored)
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(timeout=20)
        assert code == (5 if ignored else -signal.SIGPIPE), (code, err)
        assert err == (b"zigcuda run: cannot write the answer: Broken pipe\n" if ignored else b"")


@check
def no_allocation_after_ready():
    if len(BINARY) > 1 or not shutil.which("strace"):
        assert not (os.environ.get("CI") and len(BINARY) == 1), "strace is missing"
        print("skip no_allocation_after_ready: strace needs the binary itself")
        return
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run(["strace", "-f", "-s", "200", "-o", log.name, "-e",
                        "trace=mmap,munmap,brk,mremap,mprotect,write,clone,clone3", *BINARY, "run",
                        "--model", MODEL, "--log.level=debug", "--max-tokens", "64",
                        "--raw", "Once there was"],
                       check=True, capture_output=True, timeout=300)
        calls = log.read().splitlines()
    ready = [i for i, line in enumerate(calls) if "ready" in line and "write(2" in line]
    assert len(ready) == 1, f"{len(ready)} ready lines"
    assert any("mmap(" in line for line in calls[: ready[0]])
    after = [c for c in calls[ready[0]:] if re.search(r"\b(mmap|munmap|brk|mremap|clone3?)\(", c)]
    assert not after, after[:3]
    assert sum("write(1" in line for line in calls[ready[0]:]) > 10


def main():
    failed = 0
    for function in checks:
        start = time.time()
        try:
            function()
            print(f"ok   {function.__name__} ({time.time() - start:.1f} s)", flush=True)
        except Exception as error:  # a check that cannot run has failed
            failed += 1
            print(f"FAIL {function.__name__}: {type(error).__name__}: {error}", flush=True)
    return failed != 0


sys.exit(main())
