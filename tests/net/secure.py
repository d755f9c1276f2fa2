"""TLS as a peer sees it: keys and files of every kind, versions and suites, resumption, client
certificates, reload under load, and handshakes that go wrong."""
import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import warnings

from harness import Echo, everything, get, read_reply, request, run_all, test, until
from websocket import TEXT, UPGRADE, frame

warnings.simplefilter("ignore", DeprecationWarning)
FILES = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(FILES.name, name)


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=FILES.name)


def make(name, key, issuer=None, days=30, ca=False):
    """NAME.key and NAME.crt, self-signed or by `issuer`."""
    if key.startswith("rsa"):
        openssl("genrsa", "-traditional", "-out", f"{name}.key", key[3:])
    else:
        openssl("ecparam", "-name", key, "-genkey", "-noout", "-out", f"{name}.key")
    openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
    with open(path(f"{name}.ext"), "w") as f:
        f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                f"basicConstraints=critical,CA:{'TRUE' if ca else 'FALSE'}\n")
    sign = ["-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key", "-CAcreateserial"] if issuer else \
        ["-signkey", f"{name}.key"]
    openssl("x509", "-req", "-in", f"{name}.csr", "-extfile", f"{name}.ext", "-days", str(days),
            "-sha256", "-out", f"{name}.crt", *sign)


make("ca", "prime256v1", ca=True)
make("ec", "prime256v1", "ca")
make("ec384", "secp384r1", "ca")
make("rsa", "rsa2048", "ca")
make("rsa4096", "rsa4096", "ca")
make("other", "prime256v1")
openssl("pkcs8", "-topk8", "-nocrypt", "-in", "rsa.key", "-out", "rsa8.key")
openssl("pkcs8", "-topk8", "-nocrypt", "-in", "ec.key", "-out", "ec8.key")
openssl("pkcs8", "-topk8", "-passout", "pass:x", "-in", "ec.key", "-out", "locked.key")


def serve(name="ec", key=None, **settings):
    return Echo(certificate=path(f"{name}.crt"), key=path(f"{key or name}.key"), **settings)


def context(client=None, ca="ca"):
    c = ssl.create_default_context(cafile=path(f"{ca}.crt"))
    c.set_alpn_protocols(["http/1.1"])
    if client:
        c.load_cert_chain(path(f"{client}.crt"), path(f"{client}.key"))
    return c


def connect(e, c=None, **more):
    return (c or context()).wrap_socket(e.connect(), server_hostname="localhost", **more)


def by_hand(raw):
    """TLS whose records the caller moves: the session, what has come, what is to go."""
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    s = context().wrap_bio(i, o, server_hostname="localhost")
    while True:
        try:
            s.do_handshake()
            return s, i, o
        except ssl.SSLWantReadError:
            raw.sendall(o.read())
            i.write(raw.recv(65536))


def counts(e, c=None):
    import json
    return json.loads(request(connect(e, c), get("/counts"))[1])


@test
def keys_of_every_kind():
    for name, key in (("ec", "ec"), ("ec", "ec8"), ("ec384", "ec384"), ("rsa", "rsa"),
                      ("rsa", "rsa8"), ("rsa4096", "rsa4096")):
        with serve(name, key) as e, connect(e) as s, s.makefile("rb") as f:
            assert s.version() == "TLSv1.2" and s.selected_alpn_protocol() == "http/1.1"
            s.sendall(get())
            assert read_reply(f)[2] == b"ok\n"


@test
def lines_may_end_as_in_windows():
    for name in "ec.crt", "ec.key", "ec8.key", "rsa.crt", "rsa.key", "ca.crt":
        with open(path(name), "rb") as f, open(path("crlf-" + name), "wb") as g:
            g.write(f.read().replace(b"\n", b"\r\n"))
    for name, key in ("ec", "ec"), ("ec", "ec8"), ("rsa", "rsa"):
        with serve("crlf-" + name, "crlf-" + key, client_ca=path("crlf-ca.crt")) as e:
            assert request(connect(e, context("ec")), get()) == (200, b"ok\n")


@test
def sends_the_chain():
    make("middle", "prime256v1", "ca", ca=True)
    make("leaf", "prime256v1", "middle")
    with open(path("leaf.crt"), "ab") as f, open(path("middle.crt"), "rb") as g:
        f.write(b"\ncomment between\n" + g.read().rstrip(b"\n"))  # the last line lacks its newline
    with serve("leaf") as e:
        assert request(connect(e), get()) == (200, b"ok\n")


@test
def suites():
    with serve("ec") as e:
        for suite in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
                      "ECDHE-ECDSA-CHACHA20-POLY1305"):
            c = context()
            c.set_ciphers(suite)
            with connect(e, c) as s:
                assert s.cipher()[0] == suite
        for suite in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "AES128-GCM-SHA256"):
            c = context()
            c.set_ciphers(suite + ":@SECLEVEL=0")
            c.maximum_version = ssl.TLSVersion.TLSv1_2
            refused(lambda: connect(e, c))
        c = context()
        c.set_ciphers("DEFAULT:@SECLEVEL=0")
        c.minimum_version, c.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        refused(lambda: connect(e, c))
        c = context()
        c.set_alpn_protocols(["h2"])
        refused(lambda: connect(e, c))
        until(lambda: counts(e)["tls_failures"] >= 5)


def refused(f):
    try:
        s = f()
        s.sendall(get())
        assert s.recv(10) == b"", "it was accepted"
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError):
        pass


@test
def resumes():
    with serve("rsa") as e:
        c = context()
        c.options |= ssl.OP_NO_TICKET
        with connect(e, c) as s:
            session = s.session
            request(s, get())
        with connect(e, c, session=session) as s:
            assert s.session_reused
            assert request(s, get()) == (200, b"ok\n")
        assert counts(e)["tls_resumed"] == 1
        e.process.send_signal(signal.SIGHUP)
        until(lambda: counts(e)["reloads"] == 1)
        with connect(e, c, session=session) as s:
            assert not s.session_reused


@test
def bodies_and_pipelines():
    with serve("ec", body_max=3000000, output=300000) as e, connect(e) as s, s.makefile("rb") as f:
        for n in (0, 1, 16384, 20000, 100000, 2500000):
            body = bytes(i % 251 for i in range(n))
            head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n
            sender = threading.Thread(target=s.sendall, args=(head + body,))
            sender.start()
            sender.join()
            assert read_reply(f)[2] == body, n
        s.sendall(get() * 500 + get("/stream?300") + get("/after?20") + get())
        for _ in range(500):
            assert read_reply(f)[2] == b"ok\n"
        assert read_reply(f)[2].endswith(b"data: 1\n\n")
        assert read_reply(f)[2] == b"late\n" and read_reply(f)[2] == b"ok\n"


@test
def says_goodbye():
    """close_notify both ways: the end of a reply without length cannot be forged."""
    with serve() as e:
        with connect(e) as s:
            s.sendall(get(extra="Connection: close\r\n"))
            assert everything(s).endswith(b"ok\n")  # raises if TLS did not end well
        with serve(idle_ms=300) as idle, connect(idle) as s:
            s.sendall(get())
            assert everything(s).endswith(b"ok\n")  # the same, when the server has waited enough
        s = connect(e)
        s.sendall(get("/after?60000"))
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            s.settimeout(5)
            s.unwrap()
        until(lambda: counts(e)["app_gone"] == 1)


@test
def goodbyes_of_who_does_not_read():
    """close_notify while output waits: ours cannot go out, and what comes behind his is not read.
    He has gone; a server that waited for him would be woken by those bytes again and again."""
    with serve(output=12 << 20, write_ms=60000, idle_ms=60000) as e:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", e.port))
        s, i, o = by_hand(raw)
        s.write(UPGRADE)
        raw.sendall(o.read())
        i.write(raw.recv(65536))
        assert s.read(12) == b"HTTP/1.1 101"
        for _ in range(1000):  # more comes back than the kernel's buffers hold
            s.write(frame(TEXT, b"x" * 10000))
            raw.sendall(o.read())
        until(lambda: counts(e)["ws_messages_in"] == 1000)
        with contextlib.suppress(ssl.SSLError):
            s.unwrap()
        raw.sendall(o.read() + b"\x17\x03\x03\x00\x20" + b"y" * 32)
        until(lambda: counts(e)["app_gone"] == 1)
        raw.close()


@test
def idle_peers_do_not_hold_up_the_end():
    """They get a goodbye; a record that has come in part is waited for."""
    for part in (0, 3, 5, 20):
        with serve() as e:
            idle, late = connect(e), e.connect()
            s, i, o = by_hand(late)
            s.write(get())
            late.sendall(o.read())
            i.write(late.recv(65536))
            assert s.read(65536).endswith(b"ok\n")
            with idle.makefile("rb") as f:
                idle.sendall(get())
                read_reply(f)
            s.write(get())
            record = o.read()
            late.sendall(record[:part])
            time.sleep(0.1)
            start = time.monotonic()
            e.process.send_signal(signal.SIGTERM)
            assert idle.recv(1) == b""  # a close_notify: without one it raises
            if part:
                late.sendall(record[part:])
                while piece := late.recv(65536):
                    i.write(piece)
                assert s.read(65536).endswith(b"ok\n")
                late.close()
            e.process.wait(10)
            assert time.monotonic() - start < 1, part


@test
def names_change_nothing():
    """A server name (SNI, RFC 6066 section 3) is read over, whatever it says."""
    c = context()
    c.check_hostname = False
    with serve() as e:
        for name in (None, "nobody.example", "xn--nxasmq6b.example", "a" * 63 + ".b" * 90, "127.1"):
            with c.wrap_socket(e.connect(), server_hostname=name) as s:
                assert request(s, get()) == (200, b"ok\n")


@test
def https_targets():
    with serve() as e, connect(e) as s, s.makefile("rb") as f:
        s.sendall(b"GET https://localhost/health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_reply(f)[2] == b"ok\n"


@test
def client_certificates():
    make("client", "prime256v1", "ca")
    make("client_rsa", "rsa2048", "ca")
    with serve(client_ca=path("ca.crt")) as e:
        for name in ("client", "client_rsa"):
            assert request(connect(e, context(name)), get()) == (200, b"ok\n")
        refused(lambda: connect(e))
        refused(lambda: connect(e, context("other")))
        assert counts(e, context("client"))["tls_failures"] == 2


@test
def reloads_under_load():
    """New certificates reach new peers, and no connection is dropped meanwhile."""
    for name in ("live.crt", "live.key"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path(name))

    def install(name):
        for end in ("crt", "key"):
            os.replace(_copy(f"{name}.{end}"), path(f"live.{end}"))

    stop, failures, seen = threading.Event(), [], set()

    def load(kept):
        try:
            while not stop.is_set():
                with connect(e) as s, s.makefile("rb") as f:
                    for _ in range(50 if kept else 1):
                        s.sendall(get())
                        assert read_reply(f)[2] == b"ok\n"
                        seen.add(s.cipher()[0].split("-")[1])
        except Exception as error:
            failures.append(repr(error))

    install("ec")
    with serve("live") as e:
        held = connect(e)
        threads = [threading.Thread(target=load, args=(i % 2,)) for i in range(4)]
        for t in threads:
            t.start()
        for i in range(10):
            install(["rsa", "ec"][i % 2])
            e.process.send_signal(signal.SIGHUP)
            time.sleep(0.15)
        stop.set()
        for t in threads:
            t.join()
        assert not failures, failures
        assert seen == {"ECDSA", "RSA"}, seen
        assert counts(e)["reloads"] >= 5
        assert request(held, get()) == (200, b"ok\n")
        with open(path("live.key"), "w") as f:  # a broken file changes nothing
            f.write("nonsense")
        before = counts(e)["reloads"]
        e.process.send_signal(signal.SIGHUP)
        until(lambda: "echo: reload: tls.key: " in e.text())
        assert counts(e)["reloads"] == before
        e.process.send_signal(signal.SIGHUP)  # and does not count as a generation in use
        assert request(connect(e), get()) == (200, b"ok\n")


def _copy(name):
    with open(path(name), "rb") as f, open(path(name + ".new"), "wb") as g:
        g.write(f.read())
    return path(name + ".new")


@test
def third_generation_waits():
    """A handshake that hangs holds its certificate; a second reload is then refused, not fatal."""
    with serve(header_ms=1500) as e:
        hanging = e.connect()
        hanging.sendall(b"\x16\x03\x01")
        time.sleep(0.1)
        e.process.send_signal(signal.SIGHUP)
        until(lambda: counts(e)["reloads"] == 1)
        e.process.send_signal(signal.SIGHUP)
        until(lambda: "handshakes still use" in e.text())
        everything(hanging)
        e.process.send_signal(signal.SIGHUP)
        until(lambda: counts(e)["reloads"] == 2)


@test
def broken_handshakes():
    with serve(header_ms=500) as e:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01",
                     os.urandom(3000), b"\x16\x03\x03\x40\x00" + b"\x01" * 16384, b"\x16"):
            s = e.connect()
            with contextlib.suppress(OSError):
                s.sendall(data)
                everything(s)
        assert request(connect(e), get()) == (200, b"ok\n")
        assert counts(e)["open"] == 1


@test
def http_without_tls_is_told_so():
    """In plain HTTP, once, whatever pieces it comes in; the rest of what it sends is read over."""
    start = time.monotonic()
    with serve() as e:
        for data in (get(), get().replace(b"GET", b"HEAD"), b"GET http://a/ HTTP/1.1\r\n\r\n",
                     b"OPTIONS * HTTP/1.1\r\n\r\n", b"DELETE",
                     b"POST /echo HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + b"a" * 300000):
            for cut in 0, 2:
                s = e.connect()
                s.sendall(data[:cut])
                time.sleep(0.02)
                s.sendall(data[cut:])
                answer = everything(s)
                assert answer.startswith(b"HTTP/1.1 400 "), (data[:20], answer)
                assert b"\r\nConnection: close\r\n" in answer and answer.count(b"HTTP/1.1") == 1
                assert answer.endswith(b"\r\n\r\nthis port speaks TLS: use https://"), answer
        for data in b"GOT / HTTP/1.1\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"GET", b"\x16\x03GET ":
            s = e.connect()
            s.sendall(data)
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_WR)
                assert b"HTTP" not in everything(s), data
        with connect(e) as s:  # nor in the middle of TLS
            raw = socket.socket(fileno=s.detach())
            raw.settimeout(20)  # as s had: its descriptor does not block
            raw.sendall(get())
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in everything(raw)
        i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            context().wrap_bio(i, o, server_hostname="localhost").do_handshake()
        s = e.connect()
        s.sendall(o.read())
        assert s.recv(1) == b"\x16"
        s.sendall(get())
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in everything(s)
        n = counts(e)
        assert n["tls_failures"] >= 12 and n["open"] == 1
        said = e.text().count("refused text=\"HTTP without TLS came to a port with TLS")
        assert 1 <= said <= 1 + time.monotonic() - start, said  # one a second


@test
def tls_where_there_is_none():
    """The client can not read why: the log says what to do."""
    with serve(listen="127.0.0.1:0,plain:127.0.0.1:0") as both, Echo() as none:
        both.port, start = both.ports[1], time.monotonic()
        for e, words in ((none, "set tls.certificate and tls.key"),
                         (both, "without plain: or unix:")):
            for _ in range(3):
                refused(lambda: connect(e))
            assert request(e.connect(), b"\x16\x03\x01\x02\x00\x01") == (
                400, b"this port speaks HTTP without TLS: use http://")
            line = f"a TLS handshake came to a port without TLS; call it by http://, or .*{words}"
            said = len(re.findall(line + '" peer=127.0.0.1\n', e.text()))
            assert 1 <= said <= 1 + time.monotonic() - start, e.text()  # one a second
            assert b"TLS" not in request(e.connect(), b"\x16\x02\r\n\r\n")[1]


@test
def who_is_refused_gets_nothing():
    """A 503 is for who can read it."""
    with serve(connections=1) as e, connect(e) as s, s.makefile("rb") as f:
        s.sendall(get("/after?1500"))
        time.sleep(0.3)
        with contextlib.suppress(ConnectionResetError):
            assert everything(e.connect()) == b""
        assert "refused text=\"all server.connections = 1" in e.text()
        assert read_reply(f)[2] == b"late\n"


@test
def hellos_do_not_stall_others():
    """Many handshakes at once beside a peer that is being answered."""
    with serve("rsa", connections=300) as e, connect(e) as s, s.makefile("rb") as f:
        raw = [e.connect() for _ in range(100)]
        pairs = []
        for r in raw:
            i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
            t = context().wrap_bio(i, o, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                t.do_handshake()
            pairs.append(o.read())
        for r, hello in zip(raw, pairs):
            r.sendall(hello)
        worst = 0
        for _ in range(50):
            start = time.monotonic()
            s.sendall(get())
            read_reply(f)
            worst = max(worst, time.monotonic() - start)
        for r in raw:
            assert r.recv(1) == b"\x16"
            r.close()
        print(f"    worst answer beside 100 RSA handshakes: {worst * 1000:.1f} ms")
        assert worst < 2


@test
def refuses_wrong_files():
    with open(path("empty"), "w"):
        pass
    with open(path("long"), "w") as f:
        f.write("-----BEGIN CERTIFICATE-----\n" + "A" * 100000)
    with open(path("cut.crt"), "w") as f, open(path("ec.crt")) as g:
        f.write(g.read()[:300] + "\n-----END CERTIFICATE-----\n")
    openssl("genpkey", "-algorithm", "ed25519", "-out", "ed.key")
    cases = [("ec.crt", "ed.key", "ed.key is an Ed25519 or Ed448 key, which is not supported; RSA"),
             ("ec.crt", "rsa.key", "is not the key of the first certificate"),
             ("ec.crt", "other.key", "is not the key of the first certificate"),
             ("ec.crt", "locked.key", "is encrypted"), ("ec.crt", "ec.crt", "no private key"),
             ("ec.key", "ec.key", "certificates belong here"),
             ("none", "ec.key", "tls.certificate: cannot open"),
             ("ec.crt", "none", "tls.key: cannot open"),
             ("empty", "ec.key", "no certificate"), ("long", "ec.key", "the limit is 65536"),
             ("cut.crt", "ec.key", "tls.")]
    for crt, key, words in cases:
        e = Echo(certificate=path(crt), key=path(key))
        assert e.process.wait(10) == 3 and words in e.text(), (crt, key, e.text())
    for name, words in ("ec.key", ""), ("none", "cannot open"):
        e = Echo(certificate=path("ec.crt"), key=path("ec.key"), client_ca=path(name))
        assert e.process.wait(10) == 3 and f"tls.client_ca: {words}" in e.text(), e.text()


@test
def plain_beside_tls():
    with serve(listen="127.0.0.1:0,plain:127.0.0.1:0") as e:
        assert request(connect(e), get())[0] == 200
        e.port = e.ports[1]
        assert request(e.connect(), get())[0] == 200


run_all()
