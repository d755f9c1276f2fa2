"""WebSocket (RFC 6455) as a peer sees it."""
import select
import struct
import time

from harness import Echo, read_head, run_all, test, until
from websocket import BINARY, CLOSE, PING, PONG, Peer, TEXT, UPGRADE, frame


@test
def echoes():
    with Echo(body_max=200000, output=300000) as e:
        p = Peer(e, early=frame(TEXT, b"at once"))
        assert p.receive() == (TEXT, b"at once")
        for n in (0, 1, 125, 126, 127, 20000, 65535, 65536, 200000):
            p.send(TEXT, b"x" * n)
            assert p.receive() == (TEXT, b"x" * n), n
        for b in frame(TEXT, "grüße".encode()):
            p.s.sendall(bytes([b]))
        assert p.receive() == (TEXT, "grüße".encode())
        p.s.sendall(frame(TEXT, b"m") * 5000)
        for _ in range(5000):
            assert p.receive() == (TEXT, b"m")
        assert e.counts()["open_ws"] == 1
        p.send(CLOSE, struct.pack(">H", 1000) + b"bye")
        p.closed(1000)
        until(lambda: e.counts()["open_ws"] == 0 and e.counts()["bodies_used"] == 0)


@test
def fragments_and_control_frames():
    with Echo() as e:
        p = Peer(e)
        p.s.sendall(frame(TEXT, b"a\xe2", fin=False) + frame(PING, b"one")
                    + frame(0, b"\x82", fin=False) + frame(PONG, b"unasked") + frame(0, b"\xacb"))
        assert p.receive() == (PONG, b"one")
        assert p.receive() == (TEXT, b"a\xe2\x82\xacb")
        p.send(PING, b"p" * 125)
        assert p.receive() == (PONG, b"p" * 125)


@test
def close_codes():
    cases = [(b"", None), (struct.pack(">H", 1001), 1001), (struct.pack(">H", 3000) + b"x", 3000),
             (b"\x03", 1002), (struct.pack(">H", 1005), 1002),
             (struct.pack(">H", 1000) + b"\xff", 1007)]
    with Echo() as e:
        for payload, code in cases:
            p = Peer(e)
            p.send(CLOSE, payload)
            if code is None:
                assert p.receive() == (CLOSE, b"") and p.f.read() == b""
            else:
                p.closed(code)
        for data, code in ((frame(BINARY, b"x"), 1003), (frame(TEXT, b"\xff"), 1007),
                           (frame(TEXT, b"a" * 126)[:1] + b"\x01a", 1002), (frame(3), 1002),
                           (frame(TEXT, b"\xc3"), 1007), (frame(0, b"x"), 1002),
                           (b"\x81\xff" + struct.pack(">Q", 1 << 40) + b"abcd", 1009),
                           (frame(TEXT, b"a" * (1 << 20), fin=False) + frame(0, b"b"), 1009)):
            p = Peer(e)
            p.s.sendall(data)
            p.closed(code)
        p = Peer(e)  # the server begins; messages behind its close frame are not read
        p.s.sendall(frame(TEXT, b"close") + frame(TEXT, b"late"))
        opcode, payload = p.receive()
        assert (opcode, payload) == (CLOSE, struct.pack(">H", 1000) + b"as you said")
        p.send(CLOSE, payload[:2])
        assert p.f.read() == b""
        p = Peer(e)
        p.send(TEXT, b"close")
        p.receive()
        assert p.f.read() == b""  # a peer that never answers is not waited for long
        until(lambda: e.counts()["open_ws"] == 0)
        assert e.counts()["app_gone"] == 14, e.counts()


@test
def upgrades_that_are_none():
    with Echo() as e:
        for old, new, status in ((b"Version: 13", b"Version: 8", 426), (b"GET", b"HEAD", 426),
                                 (b"Upgrade: websocket", b"Upgrade: h2c", 426),
                                 (b"keep-alive, Upgrade", b"keep-alive", 426),
                                 (b"dGhl", b"", 400), (b"HTTP/1.1", b"HTTP/1.0", 426)):
            with e.connect() as s, s.makefile("rb") as f:
                s.sendall(UPGRADE.replace(old, new))
                got, fields = read_head(f)
                assert got == status, (old, got)
                assert status != 426 or fields["sec-websocket-version"] == "13"


@test
def pings_the_silent():
    with Echo(idle_ms=300) as e:
        p, q = Peer(e), Peer(e)
        for _ in range(3):
            assert p.receive() == (PING, b"")
            p.send(PONG)
        until(lambda: e.counts()["app_gone"] == 1)
        assert q.receive() == (PING, b"") and q.f.read() == b""


@test
def disconnects_and_floods():
    with Echo(write_ms=500) as e:
        p = Peer(e)
        p.s.close()
        until(lambda: e.counts()["app_gone"] == 1)
        p = Peer(e)  # sends and does not read: what it is answered fills its bound
        p.s.settimeout(5)
        try:
            while True:
                p.s.sendall(frame(TEXT, b"x" * 10000) * 20)
        except OSError:
            pass
        until(lambda: e.counts()["app_gone"] == 2)
        p = Peer(e)
        p.s.settimeout(5)
        pings = frame(PING, b"x" * 125) * 1000
        try:
            while True:
                p.s.sendall(pings)
        except OSError:
            pass
        until(lambda: e.counts()["app_gone"] == 3)
        assert e.counts()["open"] == 1


@test
def no_body_buffer_left():
    with Echo(bodies=1) as e:
        p, q = Peer(e), Peer(e)
        p.send(TEXT, b"a", fin=False)
        until(lambda: e.counts()["bodies_used"] == 1)
        q.send(TEXT, b"a", fin=False)
        q.closed(1013)
        p.send(0, b"b")
        assert p.receive() == (TEXT, b"ab")


@test
def pieces_that_take_too_long():
    """A message in pieces holds a body buffer: it has server.body_time, whatever else comes."""
    def more():
        p.send(PONG)
        p.send(0, b"b", fin=False)
        return select.select([p.s], [], [], 0.1)[0]

    with Echo(bodies=1, body_ms=1500) as e:
        p = Peer(e)
        p.send(TEXT, b"a", fin=False)
        time.sleep(0.2)
        p.send(0, b"b")
        assert p.receive() == (TEXT, b"ab")
        p.send(TEXT, b"a", fin=False)
        until(more)
        p.closed(1008)
        c = e.counts()
        assert c["bodies_used"] == 0 and c["timeout_body"] == 1 and c["app_gone"] == 1, c


run_all()
