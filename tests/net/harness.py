"""What the transport's end-to-end tests share: a running echo (tests/net/echo.c), raw sockets, and
a list of tests. Each prints "ok name" or "FAIL name" for tests/run.py."""
import array
import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import traceback

OBJECTS = os.environ.get("ZIGCUDA_OBJECTS", "build")
EXEC = shlex.split(os.environ.get("ZIGCUDA", "zigcuda"))[:-1]
TIMEOUT_S = 20
TESTS = []


def test(f):
    TESTS.append(f)
    return f


def run_all():
    failed = 0
    wanted = sys.argv[1:]
    for f in TESTS:
        if wanted and f.__name__ not in wanted:
            continue
        try:
            f()
            print(f"ok   {f.__name__}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"FAIL {f.__name__}", flush=True)
    sys.exit(failed != 0)


class Echo:
    """A running echo; `with Echo(connections=8) as e`. It has to end well when told to."""

    def __init__(self, env=None, pass_fds=(), prefix=(), ends=True, **settings):
        words = [f"{k}={v}" for k, v in settings.items()]
        self.ends = ends
        self.log = tempfile.TemporaryFile()
        command = [*prefix, *EXEC, f"{OBJECTS}/echo", *words]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.log,
                                        env=dict(os.environ, **(env or {})), pass_fds=pass_fds)
        until(lambda: "echo: ready" in self.text() or self.process.poll() is not None)
        self.ports = [int(p) for p in re.findall(r" listening address=\S+:(\d+) ", self.text())]
        self.port = self.ports[0] if self.ports else 0

    def text(self):
        """Read by place: the file's own is shared with the process, which writes there."""
        log = self.log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode("utf-8", "replace")

    def __enter__(self):
        assert self.process.poll() is None, self.text()
        return self

    def __exit__(self, kind, *rest):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(TIMEOUT_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind is None and self.ends:
            assert self.process.returncode == 0, (self.process.returncode, self.text())

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def counts(self):
        head, body = request(self.connect(), b"GET /counts HTTP/1.1\r\nHost: a\r\n\r\n")
        return json.loads(body)


class Local(Echo):
    """An echo on a Unix socket: its peers can tell when it has read what they sent."""

    def __init__(self, **settings):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "socket")
        long = {f"{k}_ms": 60000 for k in ("header", "body", "idle", "write")}
        super().__init__(listen=f"unix:{self.path}", **{**long, **settings})

    def connect(self):
        return unix(self.path)


def unix(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(TIMEOUT_S)
    s.connect(path)
    return s


def taken(s):
    """Waits until the peer at the other end of a Unix socket has read all that was sent."""
    left = array.array("i", [1])
    end = time.monotonic() + TIMEOUT_S
    while left[0]:
        fcntl.ioctl(s, termios.TIOCOUTQ, left)
        assert time.monotonic() < end, "it does not read"
        os.sched_yield()


def until(condition, seconds=TIMEOUT_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def read_head(f):
    """The head of a reply from a file: (status, {lower-case name: value})."""
    status = f.readline()
    assert re.fullmatch(rb"HTTP/1\.1 \d\d\d [A-Za-z ]+\r\n", status), status
    fields = {}
    for line in iter(f.readline, b"\r\n"):
        assert line.endswith(b"\r\n"), line
        name, value = line[:-2].decode().split(": ", 1)
        assert name.lower() not in fields, name
        fields[name.lower()] = value
    return int(status[9:12]), fields


def read_reply(f, head_only=False):
    """Reads one reply of a kept connection: (status, fields, body)."""
    status, fields = read_head(f)
    body = b""
    if head_only or status in (204, 304) or status < 200:
        return status, fields, body
    if fields.get("transfer-encoding") == "chunked":
        while size := int(f.readline(), 16):
            body += f.read(size)
            assert f.read(2) == b"\r\n"
        assert f.readline() == b"\r\n"
    elif "content-length" in fields:
        body = f.read(int(fields["content-length"]))
        assert len(body) == int(fields["content-length"])
    else:
        body = f.read()
    return status, fields, body


def request(s, data):
    """Sends all, reads one reply, closes: (status, body)."""
    with s, s.makefile("rb") as f:
        s.sendall(data)
        status, fields, body = read_reply(f)
        return status, body


def everything(s):
    """All bytes until the peer closes; a reset is told apart by an exception."""
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data


def get(path="/health", extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{extra}\r\n".encode()
