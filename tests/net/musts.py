"""The duties of RFC 9112 and RFC 9110, row by row (tests/net/musts.list, which explains itself),
held against a real server: each vector whole, cut in two at every offset, and byte by byte. A piece
is sent when the one before it has been read: the peer is a Unix socket, which tells.

usage: musts.py echo [TEST...] | musts.py api MODEL_DIR [TEST...]
"""
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from email.utils import parsedate_to_datetime

from harness import Local, run_all, taken, test, unix

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.join(os.path.dirname(HERE), "e2e")
COUNTS = {"9112": 85, "9110": 204}
KINDS = ("client", "proxy", "cache", "never", "paper")
FOLDER = tempfile.TemporaryDirectory()
SOCKET = os.path.join(FOLDER.name, "socket")
WHERE = sys.argv.pop(1)
MODEL_DIR = sys.argv.pop(1) if WHERE == "api" else None

# --- the list --------------------------------------------------------------------------------


class Vector:
    def __init__(self, where, expect, text):
        self.where = where
        self.text = text
        words = expect.split(",")
        self.statuses = [w for w in words if re.fullmatch(r"\d{3}\??", w)]
        self.body = next((w[5:].encode() for w in words if w.startswith("body=")), None)
        self.has = [w[1:].partition("=")[::2] for w in words if w[0] == "+"]
        self.lacks = [w[1:] for w in words if w[0] == "-"]
        ends = [w for w in words if w in ("keep", "close")]
        rest = [w for w in words if w[0] not in "+-" and not w.startswith("body=")]
        assert len(ends) == 1 and len(rest) == len(self.statuses) + 1, expect
        self.keep = ends == ["keep"]

    def bytes(self, key):
        text = self.text.replace("|", "\r\n").replace("{H}", "Host: localhost")
        text = text.replace("{KEY}", key)
        parts = re.split(r"\\x([0-9a-f]{2})", text)
        parts[1::2] = [chr(int(p, 16)) for p in parts[1::2]]
        return "".join(parts).encode("latin-1")


class Row:
    def __init__(self, line):
        self.rfc, self.section, self.duty = line.split(None, 2)
        self.vectors, self.checks, self.tests, self.reasons = [], [], [], []

    def add(self, line):
        word, rest = line.split(None, 1)
        if word in ("both", "echo", "api"):
            self.vectors.append(Vector(word, *line.split(None, 2)[1:]))
        else:
            {"always": self.checks, "by": self.tests, "-": self.reasons}[word].append(rest)


def read_rows():
    rows = []
    with open(os.path.join(HERE, "musts.list")) as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith(" "):
                rows[-1].add(line.strip())
            elif line and not line.startswith("#"):
                rows.append(Row(line))
    return rows


ROWS = read_rows()


def source(name):
    for folder in (HERE, E2E):
        path = os.path.join(folder, name + ".py")
        if os.path.exists(path):
            with open(path) as f:
                return f.read()
    raise AssertionError(f"no {name}.py")


@test
def every_row_is_shown_or_explained():
    for rfc, n in COUNTS.items():
        assert sum(r.rfc == rfc for r in ROWS) == n, rfc
    for r in ROWS:
        where = f"{r.rfc} {r.section} {r.duty}"
        assert r.vectors or r.checks or r.tests or r.reasons, where
        assert all(c in CHECKS for c in r.checks), where
        for t in r.tests:
            file, name = t.split(".")
            assert re.search(rf"^@(test|check)\ndef {name}\(", source(file), re.M), (where, t)
        for reason in r.reasons:
            kind, _, why = reason.partition(": ")
            assert kind in KINDS and why, (where, reason)
    assert {c for r in ROWS for c in r.checks} == set(CHECKS)


# --- replies ---------------------------------------------------------------------------------

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
LISTS = ("allow", "connection", "vary", "upgrade", "access-control-allow-methods",
         "access-control-allow-headers", "access-control-expose-headers")
OF_REQUESTS = ("host", "expect", "te", "range", "accept", "if-match", "if-none-match", "referer",
               "authorization", "max-forwards")


class Reply:
    """The first reply in `data`; what is behind it is `rest`."""

    def __init__(self, data, request):
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, data
        self.request = request
        self.start, *self.lines = head.split(b"\r\n")
        self.status = int(self.start[9:12])
        self.fields = {}
        for line in self.lines:
            name, _, value = line.decode("latin-1").partition(":")
            self.fields[name.lower()] = value.strip()
        self.raw_body, self.body = self.cut(rest)
        self.rest = rest[len(self.raw_body):]

    def cut(self, rest):
        f = self.fields
        if self.status < 200 or self.status in (204, 304) or self.request.startswith(b"HEAD "):
            return b"", b""
        if "content-length" in f:
            body = rest[:int(f["content-length"])]
            assert len(body) == int(f["content-length"]), "cut short"
            return body, body
        if f.get("transfer-encoding") != "chunked":
            return rest, rest
        at, body = 0, b""
        while True:
            m = re.compile(rb"([0-9a-f]+)\r\n").match(rest, at)
            assert m, "no chunk"
            n, at = int(m[1], 16), m.end() + int(m[1], 16) + 2
            assert rest[at - 2:at] == b"\r\n"
            if n == 0:
                return rest[:at], body
            body += rest[m.end():at - 2]

    def words(self, name):
        return [w.strip().lower() for w in self.fields.get(name, "").split(",")]


def status_line(r):
    assert re.fullmatch(rb"HTTP/1\.1 [1-5]\d\d [\t -~]*", r.start), r.start
    assert r.status >= 200 or b" HTTP/1.0\r\n" not in r.request


def grammar(r):
    for line in r.lines:
        assert re.fullmatch(TOKEN + rb": [!-~](?:[\t -~]*[!-~])?", line), line
    assert len(r.fields) == len(r.lines), "a field stands twice"
    for name in LISTS:
        assert name not in r.fields or all(r.words(name)), name
    assert not set(r.fields) & set(OF_REQUESTS), r.fields


def framing(r):
    coded, sized = "transfer-encoding" in r.fields, "content-length" in r.fields
    assert not (coded and sized)
    assert not coded or r.fields["transfer-encoding"] == "chunked"
    assert not coded or b" HTTP/1.0\r\n" not in r.request
    assert not (coded or sized) or (r.status >= 200 and r.status != 204)
    assert r.status < 200 or r.status == 204 or r.status == 304 or coded or sized or \
        "close" in r.words("connection")


def date(r):
    if r.status < 200:
        return
    text = r.fields["date"]
    assert re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [JFMASOND][a-z]{2} \d{4} "
                        r"\d\d:\d\d:\d\d GMT", text), text
    assert abs(parsedate_to_datetime(text).timestamp() - time.time()) < 30


def closing(r):
    options = r.words("connection")
    assert set(options) <= {"", "close", "keep-alive", "upgrade"}, options
    assert r.status == 101 or ("close" in options) == r.last, (options, r.last)


def upgrade(r):
    assert ("upgrade" in r.fields) == (r.status in (101, 426))
    assert ("upgrade" in r.words("connection")) == ("upgrade" in r.fields)


def allow(r):
    assert r.status != 405 or r.fields["allow"]


def challenge(r):
    assert r.status != 401 or r.fields["www-authenticate"] == "Bearer"


def patience(r):
    """Looked at while a request comes in: answered()."""


CHECKS = {f.__name__: f for f in (status_line, grammar, framing, date, closing, upgrade, allow,
                                  challenge, patience)}

# --- the server ------------------------------------------------------------------------------


class Api:
    """A `zigcuda serve` with keys."""

    def __init__(self):
        sys.path.insert(0, E2E)
        import server
        made = subprocess.run([*server.BINARY, "key", "new", "test"], capture_output=True,
                              check=True)
        keys = os.path.join(FOLDER.name, "keys")
        with open(keys, "wb") as f:
            f.write(made.stderr)
        self.key = made.stdout.decode().strip()
        self.server = server.Server(MODEL_DIR, "--keys.file", keys, "--server.origins",
                                    "https://app.example", "--server.header_time", "60s",
                                    listen=f"unix:{SOCKET}")

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *a):
        self.server.__exit__(*a)

    def connect(self):
        return unix(SOCKET)


NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
GOODBYE = b"\x88\x80abcd"  # a WebSocket's close frame


def answered(v, s, data, sent):
    """Whether something came back; nothing may before the head is whole, but a refusal."""
    came = bool(select.select([s], [], [], 0)[0])
    refused = int(v.statuses[0].rstrip("?")) >= 400
    assert not came or refused or sent >= data.index(b"\r\n\r\n") + 4, s.recv(100)
    return came


def exchange(v, data, cuts, s):
    """Sends data in pieces, then what shows whether the connection lives; all that came back."""
    with s:
        at = 0
        try:
            for cut in cuts:
                s.sendall(data[at:cut])
                at = cut
                taken(s)
                if answered(v, s, data, at) and not v.keep:
                    break  # the rest is thrown away, and not waited for without end
            s.sendall(data[at:] + (GOODBYE if v.statuses[-1] == "101" else NEXT))
        except BrokenPipeError:
            assert not v.keep
        got = b""
        while piece := s.recv(65536):
            got += piece
        return got


def look(v, data, got):
    replies = []
    for want in v.statuses:
        if not want.endswith("?") or got.startswith(b"HTTP/1.1 " + want[:3].encode()):
            r = Reply(got, data)
            assert r.status == int(want[:3]), (r.status, v.statuses)
            replies.append(r)
            got = r.rest
    for r in replies:
        r.last = not v.keep and r is replies[-1]
        for check in CHECKS.values():
            check(r)
    for name, value in v.has:
        assert value in r.fields[name.lower()], (name, r.fields)
    for name in v.lacks:
        assert name.lower() not in r.fields, name
    assert v.body is None or r.body == v.body, r.body
    if r.status == 101:
        assert got == b"\x88\x00", got
    elif v.keep:
        after = Reply(got, NEXT)
        assert after.status == 200 and b"ok" in after.body and after.rest == b"", got
    else:
        assert got == b"", got


def serve():
    return Api() if WHERE == "api" else Local()


def run(cutting):
    bad = n = 0
    with serve() as server:
        for row in ROWS:
            for v in row.vectors:
                if v.where not in ("both", WHERE):
                    continue
                data = v.bytes(server.key if WHERE == "api" else "")
                try:
                    for cuts in cutting(len(data)):
                        at = cuts
                        look(v, data, exchange(v, data, cuts, server.connect()))
                        n += 1
                except Exception as e:
                    bad += 1
                    print(f"    {row.rfc} {row.section}: {v.text} cut at {at[:3]}: "
                          f"{type(e).__name__} {e}", flush=True)
    assert n > 100 and bad == 0, f"{bad} vectors fail"


# --- the tests -------------------------------------------------------------------------------


@test
def vectors_whole():
    run(lambda n: [[]])


@test
def vectors_cut_at_every_offset():
    run(lambda n: [[cut] for cut in range(1, n)])


@test
def vectors_byte_by_byte():
    run(lambda n: [range(1, n)])


@test
def head_is_get_without_content():
    """The same fields but for those of the moment, Content-Length among them."""
    moment = ("date", "x-request-id")
    paths = ["/health", "/nothing", "/big?100000", "/stream?3"]
    if WHERE == "api":
        paths = ["/health", "/ready", "/nothing", "/", "/v1/models", "/version", "/openapi.json"]
    with serve() as server:
        key = server.key if WHERE == "api" else ""
        for path in paths:
            got = []
            for method in ("GET", "HEAD"):
                request = (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           f"Authorization: Bearer {key}\r\n\r\n").encode()
                with server.connect() as s:
                    s.sendall(request)
                    data = b""
                    while piece := s.recv(65536):
                        data += piece
                r = Reply(data, request)
                assert r.rest == b"" and (method == "GET") == (r.body != b""), path
                got.append((r.status, {k: v for k, v in r.fields.items() if k not in moment}))
            assert got[0] == got[1], (path, got)


run_all()
