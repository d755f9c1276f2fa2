"""A WebSocket peer for tests: frames as a client sends them, and what it reads."""
import contextlib
import os
import struct

from harness import read_head

UPGRADE = (b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
           b"Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode, payload=b"", fin=True, rsv=0):
    n, key = len(payload), os.urandom(4)
    length = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 \
        else b"\xff" + struct.pack(">Q", n)
    mask = int.from_bytes((key * (n // 4 + 1))[:n], "big")
    masked = (int.from_bytes(payload, "big") ^ mask).to_bytes(n, "big")
    return bytes([(0x80 if fin else 0) | rsv << 4 | opcode]) + length + key + masked


class Peer:
    def __init__(self, e, early=b"", upgrade=UPGRADE):
        self.s = e.connect()
        self.s.sendall(upgrade + early)
        self.f = self.s.makefile("rb")
        status, self.fields = read_head(self.f)
        assert status == 101
        assert self.fields["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    def send(self, *a, **k):
        self.s.sendall(frame(*a, **k))

    def receive(self):
        first, n = self.f.read(2)
        assert first & 0xf0 == 0x80 and n < 128
        if n >= 126:
            n = int.from_bytes(self.f.read(2 if n == 126 else 8), "big")
        return first & 15, self.f.read(n)

    def closed(self, code):
        opcode, payload = self.receive()
        assert opcode == CLOSE and payload[:2] == struct.pack(">H", code), (opcode, payload)
        with contextlib.suppress(BrokenPipeError):
            self.send(CLOSE, payload[:2])
        assert self.f.read() == b""
        self.s.close()
