"""What the server costs, on this machine, in Markdown on stdout:

  health   requests a second of GET /health on kept connections, against nginx serving a file of the
           same length: one worker each, pinned to one core, wrk on another, in alternation
  added    time the host adds before a step and after it, from the server's own histograms
  streams  streams open at the same time
  first    time to the first token of short requests, alone and while long prompts are read

usage: bench.py MODEL_DIR [health|added|streams|first ...]
environment: ZIGCUDA, how to run the binary. `health` needs nginx and wrk (Debian: nginx-light,
wrk), which ./configure --with-deps does not install: nginx's package starts a daemon.
"""
import atexit
import http.client
import json
import os
import re
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

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
SERVER_CORE, CLIENT_CORE = 0, min(1, os.cpu_count() - 1)


def load():
    return f"load average {os.getloadavg()[0]:.1f}"


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


# --- added -------------------------------------------------------------------------


def buckets(text, name):
    rows = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)$', text, re.M)
    assert rows, f"no histogram {name}"
    return [(float(edge), int(n)) for edge, n in rows]


def quantile(before, after, q):
    """The edge at or below which a share q lies: an upper bound, in words."""
    counts = [(edge, b - a) for (edge, b), (_, a) in zip(after, before)]
    total = counts[-1][1]
    for edge, n in counts:
        if total and n >= q * total:
            return "> 100 ms" if edge == float("inf") else f"<= {1e6 * edge:g} us"
    return "-"


def ask(port, **more):
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "stream": True, **more}
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    begin = time.perf_counter()
    r = c.getresponse()
    first = r.read1() and time.perf_counter() - begin
    r.read()
    c.close()
    assert r.status == 200, r.status
    return first


def added(requests=400):
    print(f"\n## What the host adds, {requests} requests of 16 tokens in turn ({load()})\n")
    print("| wait | from, to | count | p50 | p99 | p99.9 |\n|---|---|---|---|---|---|")
    names = {"zigcuda_submit_seconds": "request read, step submitted",
             "zigcuda_write_seconds": "results seen, bytes in the socket"}
    for wait in ("block", "spin"):
        with server.Server(MODEL_DIR, "--server.wait", wait, "--cpu.threads", "1") as s:
            for _ in range(20):
                ask(s.port)
            before = metrics(s.port)
            for i in range(requests):
                ask(s.port, seed=i)
            after = metrics(s.port)
        for name, words in names.items():
            a, b = buckets(before, name), buckets(after, name)
            print(f"| {wait} | {words} | {b[-1][1] - a[-1][1]} | " +
                  " | ".join(quantile(a, b, q) for q in (0.5, 0.99, 0.999)) + " |", flush=True)


# --- streams -----------------------------------------------------------------------


def streams(count=4000):
    """Opens `count` streams, reads them all to the end, and counts how many were open at once:
    their head has come, their end has not."""
    body = json.dumps({"model": MODEL, "prompt": "Once", "max_tokens": 16, "stream": True,
                       "ignore_eos": True}).encode()
    text = (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
            f"\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body
    flags = ["--server.connections", str(count + 50), "--engine.slots", "64",
             "--engine.queue", "4096", "--server.reply_memory", "64MiB",
             "--server.output", "16384"]
    with server.Server(MODEL_DIR, *flags) as s:
        with open(f"/proc/{s.process.pid}/status") as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        selector, begin = selectors.DefaultSelector(), time.monotonic()
        for _ in range(count):
            c = socket.create_connection(("127.0.0.1", s.port))
            c.sendall(text)
            c.setblocking(False)
            selector.register(c, selectors.EVENT_READ, bytearray())
        now = peak = done = 0
        while selector.get_map():
            for key, _ in selector.select():
                piece, so_far = key.fileobj.recv(65536), key.data
                now += bool(piece) and not so_far
                so_far += piece
                peak = max(peak, now)
                if not piece:
                    done += so_far.startswith(b"HTTP/1.1 200 ") and b"data: [DONE]" in so_far
                    now -= bool(so_far)
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        seconds = time.monotonic() - begin
    print(f"\n## Streams ({load()})\n\n{count} asked for at once, 64 slots: {peak} open at the "
          f"same time, {done} complete, all over after {seconds:.1f} s; resident {rss >> 10} MiB "
          f"from the start", flush=True)


# --- first -------------------------------------------------------------------------


def percent(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))] * 1e3


def first(requests=60, readers=4):
    print(f"\n## First token of short requests ({load()})\n")
    print("| step_tokens | beside them | long ones | p50 | p99 | most |\n|---|---|---|---|---|---|")
    for step_tokens in (512, 128):
        with server.Server(MODEL_DIR, "--engine.step_tokens", str(step_tokens)) as s:
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


PARTS = {"health": health, "added": added, "streams": streams, "first": first}
for part in sys.argv[2:] or PARTS:
    PARTS[part]()
