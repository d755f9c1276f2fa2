"""`zigcuda serve` as curl sees it: HTTP/1.0 and 1.1, kept connections, chunked uploads, Expect:
100-continue, HEAD, a Unix socket, TLS, an answer that streams.

usage: curl.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import server

MODEL_DIR = sys.argv[1]
MODEL = os.path.basename(MODEL_DIR.rstrip("/"))
FOLDER = tempfile.TemporaryDirectory()
KEY, CERTIFICATE = server.certificate(FOLDER.name, "ec")
SOCKET = os.path.join(FOLDER.name, "sock")
SERVER = server.Server(MODEL_DIR, "--tls.certificate", CERTIFICATE, "--tls.key", KEY,
                       listen=f"plain:127.0.0.1:0,127.0.0.1:0,unix:{SOCKET}")
PLAIN, SECURE = (int(a.rpartition(":")[2]) for a in SERVER.addresses[:2])
URL = f"http://127.0.0.1:{PLAIN}"
WISH = {"model": MODEL, "prompt": "Hello", "max_tokens": 8, "seed": 1}
JSON = ("-H", "Content-Type: application/json")
checks = []


def check(function):
    checks.append((function.__name__, function))
    return function


def curl(*words, body=None):
    """What curl wrote, head and trace included where asked for: (stdout, stderr). It has to end
    well; ~/.curlrc is not read."""
    r = subprocess.run(["curl", "-q", "-sS", "--noproxy", "*", "--max-time", "20", *words],
                       input=body, capture_output=True)
    assert r.returncode == 0, (words, r.returncode, r.stderr[-300:])
    return r.stdout.decode(), r.stderr.decode()


def status_of(*words, body=None):
    return curl("-o", os.devnull, "-w", "%{http_version} %{http_code} %{size_download}", *words,
                body=body)[0]


def text_of(reply):
    return json.loads(reply)["choices"][0]["text"]


WANTED = text_of(curl(*JSON, "-d", json.dumps(WISH), URL + "/v1/completions")[0])


@check
def one_dot_zero():
    assert status_of("-0", URL + "/health").startswith("1.1 200 ")
    head, _ = curl("-0", "-i", URL + "/health")
    assert "transfer-encoding" not in head.lower() and "connection: close" in head.lower(), head
    assert text_of(curl("-0", *JSON, "-d", json.dumps(WISH), URL + "/v1/completions")[0]) == WANTED
    head, _ = curl("-0", "-i", "-N", *JSON, "-d", json.dumps({**WISH, "stream": True}),
                   URL + "/v1/completions")
    assert "transfer-encoding" not in head.lower() and head.endswith("data: [DONE]\n\n"), head


@check
def kept_connections():
    _, trace = curl("-v", *[URL + "/health"] * 5)
    assert trace.count("HTTP/1.1 200 OK") == 5 and trace.count("Re-using existing conn") == 4
    _, trace = curl("-0", "-v", *[URL + "/health"] * 2)
    assert "Re-using existing conn" not in trace


@check
def http_to_the_port_of_tls():
    head, _, body = curl("-i", *JSON, "-d", json.dumps(WISH),
                         f"http://127.0.0.1:{SECURE}/v1/completions")[0].partition("\r\n\r\n")
    error = json.loads(body)["error"]
    assert head.startswith("HTTP/1.1 400 ") and "use https://" in error["message"], error
    assert error["code"] == "invalid_http" and "application/json" in head, head
    assert re.search(r"method=- path=- status=400 .*code=invalid_http", SERVER.text())


@check
def head_and_options():
    head, _ = curl("-I", URL + "/health")
    assert head.startswith("HTTP/1.1 200 OK\r\n") and "Content-Length: " in head, head
    head, _ = curl("-i", "-X", "OPTIONS", URL + "/v1/completions")
    assert head.startswith("HTTP/1.1 204 ") and "Allow: " in head, head


def upload(text, *words):
    """-T - sends from stdin, in chunks, as curl cannot know how long it is."""
    return curl("-v", "-X", "POST", *JSON, *words, "-T", "-", URL + "/v1/completions", body=text)


@check
def chunked_uploads():
    reply, trace = upload(json.dumps(WISH).encode())
    assert "> Transfer-Encoding: chunked" in trace and text_of(reply) == WANTED
    big = json.dumps(WISH).encode()[:-1] + b" " * 300000 + b"}"
    reply, trace = upload(big)
    assert text_of(reply) == WANTED, reply[:200]
    reply, trace = upload(b"[" + b" " * (3 << 20))
    assert "HTTP/1.1 413 " in trace, trace[-500:]


@check
def expect_100_continue():
    expect = ("-H", "Expect: 100-continue", "--expect100-timeout", "15")
    reply, trace = curl("-v", *JSON, *expect, "-d", json.dumps(WISH), URL + "/v1/completions")
    assert "HTTP/1.1 100 Continue" in trace and text_of(reply) == WANTED, trace
    assert "Done waiting for 100-continue" not in trace
    reply, trace = upload(json.dumps(WISH).encode(), *expect)
    assert "HTTP/1.1 100 Continue" in trace and text_of(reply) == WANTED, trace
    _, trace = curl("-v", *expect, "-H", "Content-Type: text/plain", "-d", "x" * 5000,
                    URL + "/v1/completions")
    assert "100 Continue" not in trace and "HTTP/1.1 415 " in trace, "refused before the body"
    _, trace = curl("-v", *JSON, "-H", "Expect: nonsense", "-d", "{}", URL + "/v1/completions")
    assert "HTTP/1.1 417 " in trace, trace[-300:]


@check
def unix_socket():
    reply, _ = curl("--unix-socket", SOCKET, *JSON, "-d", json.dumps(WISH),
                    "http://localhost/v1/completions")
    assert text_of(reply) == WANTED
    assert status_of("--unix-socket", SOCKET, "http://localhost/health").startswith("1.1 200 ")


@check
def tls():
    ca = ("--cacert", CERTIFICATE, f"https://localhost:{SECURE}/v1/completions")
    reply, trace = curl("-v", "--http1.1", *JSON, "-d", json.dumps(WISH), *ca)
    assert text_of(reply) == WANTED and "TLSv1.2" in trace, trace[-500:]
    _, trace = curl("-v", *JSON, "-d", json.dumps(WISH), *ca)
    assert "server accepted http/1.1" in trace, "ALPN offers h2 and http/1.1"
    r = subprocess.run(["curl", "-q", "-sS", "--noproxy", "*", "--tls-max", "1.1",
                        "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0", *ca], capture_output=True)
    assert r.returncode == 35, (r.returncode, r.stderr)
    end = subprocess.run(["openssl", "x509", "-noout", "-enddate", "-in", CERTIFICATE],
                         capture_output=True, check=True).stdout.decode().strip()
    when = ssl.cert_time_to_seconds(end.partition("=")[2])
    page = curl(URL + "/metrics")[0]
    said = re.search(r"^zigcuda_tls_certificate_end_timestamp_seconds (\S+)$", page, re.M)
    assert said and float(said[1]) == when, (end, said)


@check
def a_reload_of_each_by_itself():
    """A key that goes does not stay because the certificate is bad, nor the other way round."""
    folder = os.path.join(FOLDER.name, "reload")
    os.mkdir(folder)
    key, certificate = server.certificate(folder, "ec")
    words = [subprocess.run([*server.BINARY, "key", "new", name], capture_output=True, check=True)
             for name in ("alice", "bob")]
    (alice, first), (bob, second) = ((w.stdout.decode().strip(), w.stderr.decode())
                                     for w in words)
    keys = os.path.join(folder, "keys")

    def put(path, text):
        with open(path, "w") as f:
            f.write(text)

    put(keys, first)
    with server.Server(MODEL_DIR, "--tls.certificate", certificate, "--tls.key", key,
                       "--keys.file", keys) as s:
        def status(k):
            return status_of("--cacert", trusted, "-H", f"Authorization: Bearer {k}",
                             f"https://localhost:{s.port}/v1/models").split()[1]

        def reload(*events):
            seen = len(s.text())
            s.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 10
            while not all(e in s.text()[seen:] for e in events):
                assert time.monotonic() < end, s.text()[seen:]
                time.sleep(0.02)

        trusted = os.path.join(folder, "trusted")
        with open(certificate) as f:
            old = f.read()
        put(trusted, old)
        assert (status(alice), status(bob)) == ("200", "401")
        put(keys, second)
        put(certificate, "rubbish")
        reload("event=reloaded what=keys.file keys=1", "event=reload_failed what=tls.certificate")
        assert (status(alice), status(bob)) == ("401", "200")
        put(keys, "rubbish")
        server.certificate(folder, "ec")
        reload("event=reload_failed what=keys.file", "event=reloaded what=tls.certificate")
        with open(certificate) as f:
            new = f.read()
        assert new != old
        put(trusted, new)
        assert (status(alice), status(bob)) == ("401", "200")


@check
def a_certificate_waits_for_its_place():
    """There is room for two. A third comes as soon as no handshake has the first any more."""
    folder = os.path.join(FOLDER.name, "third")
    os.mkdir(folder)
    key, certificate = server.certificate(folder, "ec")
    with server.Server(MODEL_DIR, "--tls.certificate", certificate, "--tls.key", key) as s:
        def until(event, n=1):
            end = time.monotonic() + 10
            while s.text().count(event) < n:
                assert time.monotonic() < end, s.text()[-500:]
                time.sleep(0.02)

        slow = socket.create_connection(("127.0.0.1", s.port))
        slow.sendall(b"\x16\x03\x01")  # a record begins
        time.sleep(0.3)
        server.certificate(folder, "ec")
        s.process.send_signal(signal.SIGHUP)
        until("event=reloaded")
        server.certificate(folder, "ec")
        s.process.send_signal(signal.SIGHUP)
        until("event=reload_waits")
        assert s.text().count("event=reloaded") == 1 and "reload_failed" not in s.text()
        slow.close()
        until("event=reloaded", 2)
        assert status_of("--cacert", certificate, f"https://localhost:{s.port}/health").split()[1] \
            == "200"


@check
def a_stream():
    reply, _ = curl("-N", *JSON, "-d", json.dumps({**WISH, "stream": True}),
                    URL + "/v1/completions")
    lines = [l[6:] for l in reply.split("\n\n") if l.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert "".join(json.loads(l)["choices"][0]["text"] for l in lines[:-1]) == WANTED


failed = server.run(checks)
SERVER.end()
sys.exit(failed != 0)
