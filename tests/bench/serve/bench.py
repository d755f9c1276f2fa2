"""What the server costs, on this machine, in Markdown on stdout:

  health   requests a second of GET /health on kept connections, against nginx serving a file of the
           same length: one worker each, pinned to one core, wrk on another, in alternation
  latency  time the host adds before a step and after it, from the server's own histograms; serving
           thread, client and workers on cores of their own; and how often the serving thread lost
           its core meanwhile, to others of this machine or to the hypervisor
  streams  streams open at the same time: as many as the server can be told to hold
  first    time to the first token of short requests, alone and while long prompts are read
  long     the same beside one prompt of --long-tokens tokens; MODEL_DIR's config.json is given as
           many positions as that takes, in a copy: the answers are noise, the times are not

usage: bench.py MODEL_DIR [health|latency|streams|first|long ...] [--requests=N] [--long-tokens=N]
                [--json=FILE] [-- FLAG OF THE SERVER ...]
environment: ZIGCUDA, how to run the binary. `health` needs nginx and wrk (Debian: nginx-light,
wrk), which ./configure --with-deps does not install: nginx's package starts a daemon. The others
need Python alone.
"""
import argparse
import atexit
import http.client
import json
import os
import random
import re
import resource
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "e2e"))
import server  # noqa: E402

args = sys.argv[1:]
FLAGS = ["--engine.drafts=0"]  # of the server: the same is asked again and again
FLAGS += args[args.index("--") + 1:] if "--" in args else []
parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("model")
parser.add_argument("parts", nargs="*")
parser.add_argument("--requests", type=int, default=2000)
parser.add_argument("--long-tokens", type=int, default=32768)
parser.add_argument("--json", default="")
ARGS = parser.parse_args(args[:args.index("--")] if "--" in args else args)
MODEL_DIR = ARGS.model
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
SERVER_CORE, CLIENT_CORE = 0, min(1, os.cpu_count() - 1)


def load():
    return f"load average {os.getloadavg()[0]:.1f}"


RESULTS = {}


def keep(part, result):
    RESULTS[part] = {"load": os.getloadavg()[0], **result}


def metrics(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return text


# --- health ------------------------------------------------------------------------

NGINX = """
daemon off; worker_processes 1; worker_cpu_affinity {mask}; pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
    open_file_cache max=10 inactive=60s; open_file_cache_valid 60s;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port}; location / {{ root {folder}; default_type text/plain; }} }}
}}
"""


class Nginx:
    def __init__(self, body):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        folder = os.path.join(FOLDER.name, "nginx")
        os.mkdir(folder)
        os.chmod(FOLDER.name, 0o755)  # the worker is another user
        with open(os.path.join(folder, "health"), "wb") as f:
            f.write(body)
        path = os.path.join(folder, "conf")
        with open(path, "w") as f:
            f.write(NGINX.format(folder=folder, port=self.port, mask=bin(1 << SERVER_CORE)[2:]))
        self.process = subprocess.Popen(["nginx", "-c", path], stderr=subprocess.DEVNULL)
        atexit.register(self.end)
        end = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert time.monotonic() < end and self.process.poll() is None, "nginx does not start"
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait(10)


def wrk(port, connections, seconds):
    text = subprocess.run(["taskset", "-c", str(CLIENT_CORE), "wrk", "-t1", f"-c{connections}",
                           f"-d{seconds}s", f"http://127.0.0.1:{port}/health"],
                          capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))


def health(rounds=5, seconds=2):
    if not shutil.which("nginx") or not shutil.which("wrk"):
        sys.exit("health needs nginx and wrk (apt-get install nginx-light wrk)")
    print(f"\n## GET /health on kept connections ({load()})\n")
    print("| connections | nginx | zigcuda | ratio: least | median | most |")
    print("|---|---|---|---|---|---|")
    nginx = Nginx(b'{"status":"ok"}')
    with server.Server(MODEL_DIR, "--server.pin", "true", "--server.core", str(SERVER_CORE),
                       "--cpu.threads", "1") as s:
        for connections in (1, 32, 128):
            rows = [(wrk(nginx.port, connections, seconds), wrk(s.port, connections, seconds))
                    for _ in range(rounds)]
            ratios = sorted(b / a for a, b in rows)
            medians = [statistics.median(r[i] for r in rows) for i in (0, 1)]
            print(f"| {connections} | {medians[0]:.0f}/s | {medians[1]:.0f}/s | {ratios[0]:.2f} | "
                  f"{statistics.median(ratios):.2f} | {ratios[-1]:.2f} |", flush=True)


# --- latency ---------------------------------------------------------------------------


def cores():
    """One CPU of each physical core that this process may use."""
    seen, chosen = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as f:
                siblings = f.read().strip()
        except OSError:
            siblings = str(cpu)
        if siblings not in seen:
            seen.add(siblings)
            chosen.append(cpu)
    return chosen


def places():
    """Cores of the serving thread, the client, and the workers. The first core is left to the
    machine where there are enough; where there are two, client and worker share one."""
    c = cores()
    if len(c) >= 4:
        return c[1], c[2], c[3:7]
    return (c[0], c[1], c[2:]) if len(c) == 3 else (c[0], c[-1], c[-1:])


def histogram(text, name):
    rows = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)$', text, re.M)
    total = re.search(rf"^{name}_sum (\S+)$", text, re.M)
    assert rows and total, f"no histogram {name}"
    return [(float(edge), int(n)) for edge, n in rows], float(total.group(1))


def quantiles(before, after):
    """Mean, and upper edges of the buckets in which quantiles lie, in microseconds; None: in the
    last bucket, which has none (above 0.1 s)."""
    (old, old_sum), (new, new_sum) = before, after
    counts = [(1e6 * edge, b - a) for (edge, b), (_, a) in zip(new, old)]
    total = counts[-1][1]
    assert total, "nothing was measured"
    row = {"count": total, "mean_us": round(1e6 * (new_sum - old_sum) / total, 2)}
    for q in (0.5, 0.99, 0.999, 0.9999):
        edge = next(edge for edge, n in counts if n >= q * total)
        row[f"p{100 * q:g}_us"] = round(edge, 1) if edge < float("inf") else None
    return row


def stream_text(**more):
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content":
                       "Tell me a story about a cat and a dog."}], "stream": True,
                       "ignore_eos": True, **more}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body


def exchange(connections, requests, tokens, pause):
    """`requests` streams, one after another on each of the connections, all of them at once."""
    asked = 0
    selector = selectors.DefaultSelector()
    for c in connections:
        selector.register(c, selectors.EVENT_READ, bytearray())

    def ask_next(c):
        nonlocal asked
        asked += 1
        c.sendall(stream_text(max_tokens=tokens, seed=asked))
    for c in connections:
        ask_next(c)
    open_now = len(connections)
    while open_now:
        for key, _ in selector.select():
            piece = key.fileobj.recv(65536)
            assert piece, f"closed after {bytes(key.data[-300:])}"
            key.data.extend(piece)
            if not key.data.endswith(b"\r\n0\r\n\r\n"):
                continue
            assert key.data.startswith(b"HTTP/1.1 200 ") and b"[DONE]" in key.data, key.data[:300]
            key.data.clear()
            if asked < requests:
                time.sleep(pause)
                ask_next(key.fileobj)
            else:
                open_now -= 1


def disturbed(pid, core):
    """How often the serving thread was preempted, and milliseconds its core was stolen by the
    hypervisor, since the start; 0 where the kernel does not say."""
    with open(f"/proc/{pid}/task/{pid}/status") as f:
        preempted = re.search(r"nonvoluntary_ctxt_switches:\s+(\d+)", f.read())
    with open("/proc/stat") as f:
        stolen = re.search(rf"^cpu{core} +(?:\d+ +){{7}}(\d+)", f.read(), re.M)
    ticks = int(stolen.group(1)) if stolen else 0
    return int(preempted.group(1)) if preempted else 0, ticks * 1000 // os.sysconf("SC_CLK_TCK")


WAYS = {"submit": "request read, step submitted", "write": "step finished, bytes in the socket"}


def latency_rows(wait, place):
    serving, client, workers = place
    rows = []
    os.sched_setaffinity(0, {serving, *workers})  # inherited
    flags = ["--server.wait", wait, "--server.pin", "true", "--server.core", str(serving),
             "--cpu.threads", str(len(workers)), *FLAGS]
    with server.Server(MODEL_DIR, *flags) as s:
        os.sched_setaffinity(0, {client})
        for at_once in (1, 8):
            connections = [socket.create_connection(("127.0.0.1", s.port), timeout=60)
                           for _ in range(at_once)]
            for c in connections:
                c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            exchange(connections, 50, 8, 0)
            before, calm = metrics(s.port), disturbed(s.process.pid, serving)
            exchange(connections, ARGS.requests, 8, 0.0005 if at_once == 1 else 0)
            after, end = metrics(s.port), disturbed(s.process.pid, serving)
            for way in WAYS if at_once == 1 else ["write"]:
                name = f"zigcuda_{way}_seconds"
                rows.append({"wait": wait, "at_once": at_once, "way": way,
                             **quantiles(histogram(before, name), histogram(after, name)),
                             "preempted": end[0] - calm[0], "stolen_ms": end[1] - calm[1]})
            for c in connections:
                c.close()
    return rows


def latency():
    place, before = places(), os.sched_getaffinity(0)
    print(f"\n## What the host adds ({load()})\n\n{ARGS.requests} requests of 8 streamed tokens; "
          f"serving thread on core {place[0]}, client on {place[1]}, workers on "
          f"{', '.join(map(str, place[2]))}; microseconds, quantiles are upper edges of buckets\n")
    print("| wait | streams at once | from, to | count | mean | p50 | p99 | p99.9 | p99.99 | "
          "preempted | stolen |\n|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    result = []
    for wait in ("spin", "block"):
        for r in latency_rows(wait, place):
            edges = [r[f"p{q}_us"] for q in ("50", "99", "99.9", "99.99")]
            edges = " | ".join(f"{edge:g}" if edge else "> 100000" for edge in edges)
            print(f"| {r['wait']} | {r['at_once']} | {WAYS[r['way']]} | {r['count']} | "
                  f"{r['mean_us']} | {edges} | {r['preempted']} times | "
                  f"{r['stolen_ms']} ms |", flush=True)
            result.append(r)
        os.sched_setaffinity(0, before)
    keep("latency", {"cores": place, "rows": result})


# --- streams -----------------------------------------------------------------------


def streams(slots=256, queue=4096):
    """Opens as many streams as the server can be told to hold (LIMIT_SLOTS + LIMIT_QUEUE), reads
    them all to the end, and counts how many were open at once: head there, end not."""
    count = slots + queue
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    flags = ["--server.connections", str(count + 8), "--engine.slots", str(slots),
             "--engine.queue", str(queue), "--server.reply_memory", "64MiB",
             "--server.output", "16384", *FLAGS]
    with server.Server(MODEL_DIR, *flags) as s:
        selector = selectors.DefaultSelector()
        connections = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(count)]
        begin = time.monotonic()
        for i, c in enumerate(connections):  # those that get a slot at once hold it for a while
            c.sendall(stream_text(max_tokens=200 if i < slots else 8))
            c.setblocking(False)
            selector.register(c, selectors.EVENT_READ, bytearray())
        now = peak = done = 0
        while selector.get_map():
            for key, _ in selector.select():
                piece, so_far = key.fileobj.recv(65536), key.data
                now += bool(piece) and not so_far
                so_far += piece
                peak = max(peak, now)
                if not piece or so_far.endswith(b"\r\n0\r\n\r\n"):
                    done += so_far.startswith(b"HTTP/1.1 200 ") and b"data: [DONE]" in so_far
                    now -= bool(so_far)
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        seconds = time.monotonic() - begin
        with open(f"/proc/{s.process.pid}/status") as f:
            rss = int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))
    print(f"\n## Streams ({load()})\n\n{count} asked for at once, {slots} slots: {peak} open at "
          f"the same time, {done} complete, all over after {seconds:.1f} s; resident at most "
          f"{rss >> 10} MiB", flush=True)
    keep("streams", {"asked": count, "open": peak, "complete": done, "seconds": round(seconds, 1),
                     "resident_mib": rss >> 10})


# --- first -------------------------------------------------------------------------


def ask(port, **more):
    """Seconds to the first bytes of the stream."""
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "stream": True, **more}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    begin = time.perf_counter()
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    first = r.read1() and time.perf_counter() - begin
    r.read()
    c.close()
    assert r.status == 200, r.status
    return first


def percent(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] * 1e3


def first(requests=60, readers=4):
    print(f"\n## First token of short requests ({load()})\n")
    print("| step_tokens | beside them | long ones | p50 | p99 | most |\n|---|---|---|---|---|---|")
    for step_tokens in (512, 128):
        with server.Server(MODEL_DIR, "--engine.step_tokens", str(step_tokens), *FLAGS) as s:
            first_rows(s.port, step_tokens, requests, readers)


def first_rows(port, step_tokens, requests, readers):
    words = "the cat and the dog went to the big old house and then they "
    stop, times, numbers = threading.Event(), [], iter(range(1, 1 << 30))

    def read_long():
        while not stop.is_set():  # each begins with another number: nothing is cached
            times.append(ask(port, prompt=f"{next(numbers)} " + words * 65, max_tokens=1))
    for beside in (0, readers):
        threads = [threading.Thread(target=read_long) for _ in range(beside)]
        for thread in threads:
            thread.start()
        time.sleep(0.2 if beside else 0)
        got = []
        for i in range(requests):
            got.append(ask(port, prompt=f"Hello {i}", max_tokens=2))
            time.sleep(0.005)
        stop.set()
        for thread in threads:
            thread.join()
        stop.clear()
        long = f"{len(times)}, {percent(times, 0.5):.0f} ms each" if times else "none"
        print(f"| {step_tokens} | {f'{beside} readers of long prompts' if beside else 'nothing'} | "
              f"{long} | {percent(got, 0.5):.1f} ms | {percent(got, 0.99):.1f} ms | "
              f"{max(got) * 1e3:.1f} ms |", flush=True)


# --- long --------------------------------------------------------------------------


def long_model(tokens):
    """A copy of the model with room for so many positions. What it says there is noise."""
    folder = os.path.join(FOLDER.name, "long", MODEL)
    os.makedirs(folder)
    for name in os.listdir(MODEL_DIR):
        if name != "config.json":
            os.symlink(os.path.abspath(os.path.join(MODEL_DIR, name)), os.path.join(folder, name))
    with open(os.path.join(MODEL_DIR, "config.json")) as f:
        config = json.load(f)
    config["max_position_embeddings"] = 1 << tokens.bit_length()
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return folder, config["vocab_size"]


def long_rows(s, step_tokens, ids):
    took = []

    def read_long():
        took.append(ask(s.port, prompt=ids, max_tokens=1, ignore_eos=True))
    rows = []
    for beside in (False, True):
        thread = threading.Thread(target=read_long)
        if beside:
            thread.start()
            time.sleep(0.5)
        got, i = [], 0
        while (thread.is_alive() if beside else i < 60):
            got.append(ask(s.port, prompt=f"Hello {beside} {i}", max_tokens=2))
            i += 1
            time.sleep(0.02)
        if beside:
            thread.join()
        rows.append({"step_tokens": step_tokens, "beside": len(ids) if beside else 0,
                     "requests": len(got), "p50_ms": round(percent(got, 0.5), 2),
                     "p99_ms": round(percent(got, 0.99), 2), "most_ms": round(percent(got, 1), 2),
                     "long_s": round(took[0], 2) if beside else None})
        r = rows[-1]
        what = f"{len(ids)} tokens, {took[0]:.1f} s" if beside else "nothing"
        print(f"| {step_tokens} | {what} | {len(got)} | {r['p50_ms']} ms | {r['p99_ms']} ms | "
              f"{r['most_ms']} ms |", flush=True)
    return rows


def long():
    tokens = ARGS.long_tokens
    folder, vocab = long_model(tokens)
    chance = random.Random(1)
    ids = [chance.randrange(16, vocab) for _ in range(tokens)]
    print(f"\n## First token of short requests beside one long prompt ({load()})\n")
    print("| step_tokens | beside them | requests | p50 | p99 | most |\n|---|---|---|---|---|---|")
    rows = []
    for step_tokens in (512, 128):
        flags = ["--engine.step_tokens", str(step_tokens), "--engine.slots", "4", *FLAGS]
        with server.Server(folder, *flags) as s:
            rows += long_rows(s, step_tokens, ids)
    keep("long", {"rows": rows})


PARTS = {"health": health, "latency": latency, "streams": streams, "first": first, "long": long}
for part in ARGS.parts or PARTS:
    PARTS[part]()
if ARGS.json:
    with open(ARGS.json, "w") as out:
        json.dump(RESULTS, out, indent=1)
