"""HTTP over TCP: framing, keeping, closing, bounds and time, as a peer sees them."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import (Echo, Local, everything, get, read_reply, request, run_all, taken, test,
                     until)

POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n"


@test
def keeps_connections():
    with Echo() as e:
        c = http.client.HTTPConnection("127.0.0.1", e.port)
        for i in range(20):
            c.request("POST", "/echo", body=b"x" * i * 100)
            r = c.getresponse()
            assert (r.status, r.read()) == (200, b"x" * i * 100)
            assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", r.headers["Date"])
        c.close()
        assert e.counts()["accepted"] == 2


@test
def closes_when_asked():
    with Echo() as e:
        for ask in (get(extra="Connection: close\r\n"), b"GET /health HTTP/1.0\r\n\r\n"):
            s = e.connect()
            s.sendall(ask + get())
            data = everything(s)
            assert data.count(b"HTTP/1.1 200") == 1 and b"Connection: close" in data
        s = e.connect()
        s.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
        with s.makefile("rb") as f:
            for _ in range(2):
                status, fields, body = read_reply(f)
                assert (status, fields["connection"], body) == (200, "keep-alive", b"ok\n")


@test
def pipelines():
    with Echo() as e:
        s = e.connect()
        parts = [get(), POST + b"Content-Length: 3\r\n\r\nabc",
                 POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                 get("/after?30"), get("/nothing"), b"HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n",
                 get("/stream?3")]
        s.sendall(b"".join(parts) * 40)
        with s.makefile("rb") as f:
            for _ in range(40):
                assert read_reply(f)[2] == b"ok\n"
                assert read_reply(f)[2] == b"abc"
                assert read_reply(f)[2] == b"abcde"
                assert read_reply(f)[2] == b"late\n"
                assert read_reply(f)[0] == 404
                assert read_reply(f, head_only=True)[1]["content-length"] == "3"
                assert read_reply(f)[2] == b"data: 3\n\ndata: 2\n\ndata: 1\n\n"


@test
def any_split():
    """Two requests, cut at every offset into two packets."""
    data = (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            + POST + b"Content-Length: 2\r\n\r\nde")
    with Echo() as e:
        for cut in range(1, len(data)):
            with e.connect() as s, s.makefile("rb") as f:
                s.sendall(data[:cut])
                time.sleep(0.002)
                s.sendall(data[cut:])
                assert read_reply(f)[2] == b"abc" and read_reply(f)[2] == b"de"


@test
def byte_by_byte():
    with Echo() as e, e.connect() as s, s.makefile("rb") as f:
        for b in POST + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n":
            s.sendall(bytes([b]))
        assert read_reply(f)[2] == b"abc"


@test
def bodies_of_every_size():
    with Echo(body_max=300000) as e, e.connect() as s, s.makefile("rb") as f:
        for n in (0, 1, 4096, 16384, 20000, 20480, 20481, 65536, 299999, 300000):
            body = bytes(i % 251 for i in range(n))
            s.sendall(POST + b"Content-Length: %d\r\n\r\n" % n + body)
            assert read_reply(f)[2] == body
            pieces = [body[i:i + 7777] for i in range(0, n, 7777)]
            s.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            for p in pieces:
                s.sendall(b"%x\r\n" % len(p) + p + b"\r\n")
            s.sendall(b"0\r\n\r\n")
            assert read_reply(f)[2] == body, n
        assert e.counts()["bodies_used"] == 0


@test
def refuses():
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    cases = [
        (400, b"GET / HTTP/1.1\r\n\r\n"), (400, b"\x16\x03\x01"), (400, b"GET /\n"),
        (400, POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (400, chunked + b"z\r\n"), (400, chunked + b"1\r\nab\r\n"),
        (411, POST + b"\r\n"), (403, b"POST /forbidden HTTP/1.1\r\nHost: a\r\n\r\n"),
        (413, POST + b"Content-Length: 1048577\r\n\r\n"),
        (413, chunked + b"100001\r\n"),
        (413, chunked + b"fffff\r\n" + b"a" * 0xfffff + b"\r\n2\r\n"),
        (414, b"GET /" + b"a" * 9000), (431, b"GET / HTTP/1.1\r\nA: " + b"a" * 9000),
        (415, POST + b"Content-Length: 1\r\nContent-Encoding: gzip\r\n\r\na"),
        (417, POST + b"Content-Length: 1\r\nExpect: x\r\n\r\na"),
        (501, b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), (505, b"GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
        (501, POST + b"Transfer-Encoding: br, chunked\r\n\r\n"),
        (403, b"GET /forbidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        (405, b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        (405, b"PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"),
    ]
    with Echo() as e:
        for status, data in cases:
            s = e.connect()
            s.sendall(data + get())  # what follows a refusal is never taken for a request
            answer = everything(s)
            assert answer.startswith(b"HTTP/1.1 %d " % status), (status, data[:80], answer[:200])
            assert answer.count(b"\r\nDate:") == 1 and b"Connection: close" in answer, answer
        s = e.connect()
        s.sendall(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"\r\nAllow: POST\r\n" in s.recv(4096) # RFC 9110 section 15.5.6
        assert e.counts()["bodies_used"] == 0


@test
def options_of_the_server():
    with Echo() as e, e.connect() as s, s.makefile("rb") as f:
        s.sendall(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n" + get())
        status, fields, _ = read_reply(f)
        assert status == 204 and "content-length" not in fields and "POST" in fields["allow"]
        assert read_reply(f)[2] == b"ok\n"


@test
def continues():
    with Echo() as e, e.connect() as s, s.makefile("rb") as f:
        for n in (3, 100000):
            s.sendall(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % n)
            assert (f.readline(), f.readline()) == (b"HTTP/1.1 100 Continue\r\n", b"\r\n")
            s.sendall(b"a" * n)
            assert read_reply(f)[2] == b"a" * n
        s.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        assert read_reply(f)[2] == b"abc"  # the body is here: no 100
        s.sendall(b"POST /forbidden HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                  b"Content-Length: 3\r\n\r\n")
        assert read_reply(f)[0] == 403


@test
def all_body_buffers_in_use():
    with Echo(bodies=2) as e:
        held = [e.connect() for _ in range(2)]
        for s in held:
            s.sendall(POST + b"Content-Length: 100000\r\n\r\na")
        until(lambda: e.counts()["bodies_used"] == 2)
        s = e.connect()
        s.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        answer = everything(s)
        assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer
        status, body = request(e.connect(), POST + b"Content-Length: 3\r\n\r\nabc")
        assert (status, body) == (200, b"abc")  # small bodies need none
        held.pop().close()
        until(lambda: e.counts()["bodies_used"] == 1)
        body = b"a" * 30000
        assert request(e.connect(), POST + b"Content-Length: 30000\r\n\r\n" + body)[0] == 200


@test
def bodies_that_nobody_reads():
    """Only a POST borrows a body buffer: with another method's body none of them can be held."""
    head = b"GET /health HTTP/1.1\r\nHost: a\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    with Echo(bodies=1) as e:
        s = e.connect()
        with s.makefile("rb") as f:
            s.sendall(chunked + b"3\r\nabc\r\n")
            time.sleep(0.1)
            body = b"a" * 30000
            assert request(e.connect(), POST + b"Content-Length: 30000\r\n\r\n" + body)[1] == body
            s.sendall(b"3000\r\n" + b"d" * 0x3000 + b"\r\n0\r\n\r\n" + get("/nothing"))
            assert read_reply(f)[2] == b"ok\n" and read_reply(f)[0] == 404
        for more in (chunked + b"6000\r\n", chunked + b"1000\r\n" + b"a" * 4096 + b"\r\n4000\r\n",
                     head + b"Content-Length: 30000\r\n\r\n"):
            s = e.connect()
            s.sendall(more)
            assert everything(s).startswith(b"HTTP/1.1 413")
        assert e.counts()["bodies_used"] == 0


@test
def times_out():
    with Echo(header_ms=300, body_ms=300, idle_ms=300, write_ms=300) as e:
        silent, head, body, idle = (e.connect() for _ in range(4))
        head.sendall(b"GET /")
        body.sendall(POST + b"Content-Length: 10\r\n\r\nabc")
        idle.sendall(get())
        start = time.monotonic()
        assert everything(silent) == b""
        assert everything(head).startswith(b"HTTP/1.1 408")
        assert everything(body).startswith(b"HTTP/1.1 408")
        assert everything(idle).count(b"HTTP/1.1") == 1
        assert 0.2 < time.monotonic() - start < 5
        slow = e.connect()  # a byte in time does not help
        with slow:
            try:
                for b in get() * 20:
                    slow.sendall(bytes([b]))
                    time.sleep(0.05)
                assert False, "a slow head was accepted"
            except (BrokenPipeError, ConnectionResetError):
                pass
        c = e.counts()
        assert c["timeout_header"] == 3 and c["timeout_body"] == 1 and c["timeout_idle"] == 1, c


@test
def drops_slow_readers():
    with Echo(write_ms=500) as e:
        flood = e.connect()
        flood.sendall(get("/flood"))
        until(lambda: e.counts()["dropped_slow"] == 1)
        until(lambda: e.counts()["app_gone"] == 1)
        whole = e.connect()  # waits in the output buffer until write_ms
        whole.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(8):
            whole.sendall(get("/big?1000000"))
        until(lambda: e.counts()["timeout_write"] == 1)
        assert e.counts()["bodies_used"] == 0 and e.counts()["open"] == 1


@test
def big_replies_reach_slow_readers():
    with Echo(bodies=2) as e, e.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(get("/big?1000000", "Connection: close\r\n"))
        data = b""
        while piece := s.recv(50000):
            data += piece
            time.sleep(0.005)
        assert data.endswith(b"\r\n\r\n" + b"b" * 1000000)


@test
def kept_connections_of_slow_readers():
    """An answer is being taken: that is no time between two requests, and nobody to drop first."""
    def ask(e):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", e.port))
        s.sendall(get("/big?4000000"))  # more than the kernel's buffers hold
        until(lambda: e.counts()["bodies_used"] == 1)
        return s

    with Echo(bodies=2, body_max=4 << 20, idle_ms=300, write_ms=20000) as e:
        with ask(e) as s, s.makefile("rb") as f:
            time.sleep(1)
            assert read_reply(f)[2] == b"b" * 4000000
            s.sendall(get())
            assert read_reply(f)[2] == b"ok\n"
            assert everything(s) == b""  # then it is idle
    with Echo(bodies=2, body_max=4 << 20, connections=4) as e:
        with ask(e) as s, s.makefile("rb") as f:
            held = [e.connect() for _ in range(3)]
            for h in held:
                h.sendall(b"GET / HTT")
            assert request(e.connect(), get()) == (200, b"ok\n")
            assert read_reply(f)[2] == b"b" * 4000000


@test
def sees_the_peer_go():
    with Echo() as e:
        for path in ("/after?60000", "/stream?100000000"):
            before = e.counts()["app_gone"]
            s = e.connect()
            s.sendall(get(path) + get() * 2000)  # more than the input buffer holds
            time.sleep(0.05)
            s.close()
            until(lambda: e.counts()["app_gone"] == before + 1)
        s = e.connect()  # half closed, before its answer: gone as well
        s.sendall(get("/after?60000"))
        s.shutdown(socket.SHUT_WR)
        assert everything(s) == b""
        s = e.connect()  # half closed behind requests that are answered at once
        s.sendall(get() * 3)
        s.shutdown(socket.SHUT_WR)
        assert everything(s).count(b"HTTP/1.1 200") == 3
        until(lambda: e.counts()["open"] == 1)


@test
def answers_beside_slow_peers():
    """Every slot is held by peers that send or read slowly; a new one is answered all the same."""
    with Echo(connections=16, header_ms=20000, body_ms=20000, idle_ms=20000) as e:
        held = [e.connect() for _ in range(16)]
        for i, s in enumerate(held):
            s.sendall([b"", b"GET / HTT", POST + b"Content-Length: 9\r\n\r\na", get()][i % 4])
        time.sleep(0.2)
        for _ in range(40):
            start = time.monotonic()
            assert request(e.connect(), get()) == (200, b"ok\n")
            assert time.monotonic() - start < 1
        assert e.counts()["evicted"] >= 1


@test
def refuses_when_all_slots_answer():
    with Echo(connections=4) as e:
        held = [e.connect() for _ in range(4)]
        for s in held:
            s.sendall(get("/after?1500"))
        time.sleep(0.2)
        told_it_is_full(e.connect())
        told_it_is_full(e.connect(), get())
        for s in held:
            with s.makefile("rb") as f:
                assert read_reply(f)[2] == b"late\n"
        assert e.counts()["refused"] == 2
        assert e.text().count("refused text=\"all server.connections = 4 are in use") == 1


def told_it_is_full(s, data=None):
    """A 503 to the end, and no reset that overtakes it, whatever of `data` the server has read."""
    if data:
        s.sendall(data)
    with s, s.makefile("rb") as f:
        status, fields, body = read_reply(f)
        assert status == 503 and fields["retry-after"] == "1" and fields["connection"] == "close"
        error = json.loads(body)["error"]
        assert "(server.connections)" in error["message"], error
        assert (error["type"], error["param"]) == ("server_error", None), error
        assert error["code"] == "connections_full" and f.read() == b""


@test
def who_is_refused_is_told():
    """Over TCP and Unix sockets, with what was sent unread; and nobody stays for long."""
    def open_files():
        return len(os.listdir(f"/proc/{e.process.pid}/fd"))

    with Local(connections=2) as e:
        held = [e.connect() for _ in range(2)]
        for s in held:
            s.sendall(get("/after?30000"))
            taken(s)
        before = open_files()
        for data in b"", get(), POST + b"Content-Length: 50000\r\n\r\n" + b"a" * 50000:
            told_it_is_full(e.connect(), data)
        e.process.send_signal(signal.SIGSTOP)  # then all of it is there before it is looked at
        late = [e.connect() for _ in range(40)]
        for s in late:
            s.sendall(get() * 100)
        e.process.send_signal(signal.SIGCONT)
        for s in late[1::2]:
            told_it_is_full(s)
        assert open_files() <= before + 8  # half of them have not even read it
        until(lambda: open_files() == before, 10)
        for s in late[::2]:
            told_it_is_full(s)
        for s in held:
            s.close()
        until(lambda: request(e.connect(), get()) == (200, b"ok\n"))
        assert e.counts()["refused"] >= 43


@test
def many_connections():
    with Echo(connections=1000, output=8192, bodies=1) as e:
        peers = [e.connect() for _ in range(900)]
        for i, s in enumerate(peers):
            s.sendall(POST + b"Content-Length: 4\r\n\r\n%04d" % i)
        for i, s in enumerate(peers):
            with s, s.makefile("rb") as f:
                assert read_reply(f)[2] == b"%04d" % i
        until(lambda: e.counts()["open"] == 1)


@test
def drains():
    e = Echo()
    idle, waiting, late, streaming = (e.connect() for _ in range(4))
    with idle.makefile("rb") as f:
        idle.sendall(get())
        read_reply(f)
    waiting.sendall(get("/after?700"))
    late.sendall(get("/after?300"))
    streaming.sendall(get("/stream?20000"))
    time.sleep(0.1)
    e.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    try:
        e.connect()
        assert False, "it still accepts"
    except ConnectionRefusedError:
        pass
    assert everything(idle) == b""
    for s in (waiting, late):
        answer = everything(s)
        assert b"200 OK" in answer and b"Connection: close" in answer and answer.endswith(b"late\n")
    assert everything(streaming).endswith(b"data: 1\n\n\r\n0\r\n\r\n")
    e.process.wait(10)
    e.__exit__(None)


@test
def idle_peers_do_not_hold_up_the_end():
    """Though they do not close, and whatever they asked last; a part of a request does."""
    for part in (b"", b"GET /aft"):
        e = Echo()
        idle = [e.connect() for _ in range(20)]
        for i, s in enumerate(idle):
            with s.makefile("rb") as f:
                s.sendall(get("/health" if i % 2 else "/stream?10"))
                read_reply(f)
        late = e.connect()
        late.sendall(get() + part)
        until(lambda: e.counts()["requests"] > len(idle) + 1)
        time.sleep(0.1)
        start = time.monotonic()
        e.process.send_signal(signal.SIGTERM)
        for s in idle:
            assert everything(s) == b""
        if part:
            late.sendall(get("/after?10")[len(part):])
            assert everything(late).count(b"200 OK") == 2
            late.close()
        e.process.wait(10)
        assert time.monotonic() - start < 1, part
        e.__exit__(None)


@test
def drain_has_a_limit():
    for second in (False, True):
        e = Echo(drain_ms=60000 if second else 300)
        s = e.connect()
        s.sendall(get("/after?60000"))
        time.sleep(0.1)
        start = time.monotonic()
        e.process.send_signal(signal.SIGTERM)
        if second:
            time.sleep(0.1)
            e.process.send_signal(signal.SIGTERM)
        e.process.wait(10)
        assert time.monotonic() - start < 5
        e.__exit__(None)


@test
def accepts_under_drain_nothing_lost():
    """Requests that reached the kernel before SIGTERM are answered."""
    e = Echo(connections=300)
    e.process.send_signal(signal.SIGSTOP)
    peers = [e.connect() for _ in range(200)]
    for s in peers:
        s.sendall(get())
    e.process.send_signal(signal.SIGTERM)
    e.process.send_signal(signal.SIGCONT)
    for s in peers:
        assert b"200 OK" in everything(s)
    e.process.wait(10)
    e.__exit__(None)


@test
def curl_agrees():
    if not shutil.which("curl"):
        print("skip curl_agrees: no curl")
        return
    with Echo() as e:
        url = f"http://127.0.0.1:{e.port}"
        for flags in (["--http1.0"], ["--http1.1"], ["-H", "Expect: 100-continue"],
                      ["-H", "Transfer-Encoding: chunked"]):
            r = subprocess.run(["curl", "-sS", "--data-binary", "@-", *flags, url + "/echo"],
                               input=b"body" * 9000, stdout=subprocess.PIPE, timeout=20)
            if flags == ["--http1.0"] or r.returncode == 0:
                assert r.stdout == b"body" * 9000, (flags, r.stdout[:100])
            assert r.returncode == 0, flags


@test
def spins():
    with Echo(spin=1) as e:
        assert request(e.connect(), get()) == (200, b"ok\n")


@test
def storm():
    """Random requests, cuts and disconnects from many threads: nothing stays behind."""
    import random

    def peer(seed):
        rng = random.Random(seed)
        for _ in range(60):
            data = rng.choice([get(), get("/stream?50"), get("/after?20"), get("/big?200000"),
                               POST + b"Content-Length: 50000\r\n\r\n" + b"x" * 50000,
                               POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                               b"nonsense\r\n\r\n"])
            try:
                with e.connect() as s:
                    s.sendall(data[:rng.choice([len(data), rng.randrange(len(data))])])
                    if rng.random() < 0.5:
                        s.settimeout(0.05)
                        s.recv(rng.choice([1, 100, 100000]))
            except OSError:
                pass

    with Echo(connections=32, header_ms=1000, body_ms=1000) as e:
        threads = [threading.Thread(target=peer, args=(i,)) for i in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        until(lambda: e.counts()["open"] == 1)
        assert e.counts()["bodies_used"] == 0


run_all()
