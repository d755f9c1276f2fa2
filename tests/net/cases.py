"""WebSocket (RFC 6455) in the order of Autobahn's case list, group by group; the cases are our own.
Frames go out whole, frame by frame and byte by byte, a piece when the one before has been read.
Binary messages are not taken here (1003), and no extension is: groups 12 and 13 have nothing to
compress.
"""
import itertools
import select
import struct

from harness import Local, run_all, taken, test
from websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, Peer, TEXT, UPGRADE, frame

HELLO = b"Hello, world!"
GREEK = "κόσμε".encode()
NORMAL, PROTOCOL, UNSUPPORTED, NOT_UTF8, TOO_BIG = 1000, 1002, 1003, 1007, 1009


def close(code, reason=b""):
    return frame(CLOSE, struct.pack(">H", code) + reason)


def pieces_of(frames):
    """The ways to send: at once, frame by frame, byte by byte (or in odd pieces if it is long)."""
    data = b"".join(frames)
    step = 1 if len(data) < 600 else 997
    return [data], frames, [data[i:i + step] for i in range(0, len(data), step)]


def send(p, pieces):
    for piece in pieces:
        try:
            p.s.sendall(piece)
        except BrokenPipeError:  # it has closed; what it said before lies ready
            return
        taken(p.s)


def case(e, frames, answers, code):
    """frames in; answers out; then the close code: ours where the frames end well, else its own."""
    for pieces in pieces_of(frames):
        p = Peer(e)
        send(p, pieces)
        for answer in answers:
            got = p.receive()
            assert got == answer, (frames, got, answer)
        if code is None:
            send(p, [close(NORMAL)])
        p.closed(NORMAL if code is None else code)


def silent(p):
    return not select.select([p.s], [], [], 0)[0]


@test
def group_1_framing():
    with Local(output=300000) as e:
        for n in (0, 125, 126, 127, 128, 65535, 65536):
            case(e, [frame(TEXT, b"*" * n)], [(TEXT, b"*" * n)], None)
            case(e, [frame(BINARY, b"\xfe" * n)], [], UNSUPPORTED)
        mask, text = b"\0\0\0\0", b"*" * 125
        for head in (b"\x81\xfe\x00\x7d", b"\x81\xff" + struct.pack(">Q", 125),
                     b"\x81\xff" + struct.pack(">Q", 65535), b"\x81\xff" + b"\xff" * 8):
            case(e, [head + mask + text], [], PROTOCOL)  # the shortest length is the only one
        case(e, [b"\x81\x7d" + text], [], PROTOCOL)  # not masked
        case(e, [b"\x88\x00"], [], PROTOCOL)


@test
def group_2_pings_and_pongs():
    with Local() as e:
        for payload in (b"", HELLO, b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125):
            case(e, [frame(PING, payload)], [(PONG, payload)], None)
            case(e, [frame(PONG, payload)], [], None)  # unasked: nothing comes
            case(e, [frame(PONG, payload), frame(PING, b"p")], [(PONG, b"p")], None)
        case(e, [frame(PING, b"\xfe" * 126)], [], PROTOCOL)
        case(e, [frame(PONG, b"\xfe" * 126)], [], PROTOCOL)
        many = [b"payload-%d" % i for i in range(10)]
        case(e, [frame(PING, m) for m in many], [(PONG, m) for m in many], None)


@test
def group_3_reserved_bits():
    with Local() as e:
        for rsv in range(1, 8):
            for opcode in (TEXT, BINARY, CLOSE, PING, PONG):
                case(e, [frame(opcode, b"", rsv=rsv)], [], PROTOCOL)
            case(e, [frame(TEXT, HELLO), frame(TEXT, HELLO, rsv=rsv), frame(PING)],
                 [(TEXT, HELLO)], PROTOCOL)
            case(e, [frame(TEXT, HELLO, fin=False), frame(CONTINUATION, HELLO, rsv=rsv)], [],
                 PROTOCOL)


@test
def group_4_opcodes():
    with Local() as e:
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
            for payload in (b"", HELLO):
                case(e, [frame(opcode, payload)], [], PROTOCOL)
                case(e, [frame(TEXT, HELLO), frame(opcode, payload), frame(PING)],
                     [(TEXT, HELLO)], PROTOCOL)


@test
def group_5_fragments():
    def part(text, fin=False):
        return frame(CONTINUATION, text, fin)
    first, last, whole = frame(TEXT, b"one", fin=False), part(b"two", True), frame(TEXT, HELLO)
    with Local() as e:
        for opcode in (PING, PONG, CLOSE):  # are never fragmented
            case(e, [frame(opcode, b"one", fin=False), last], [], PROTOCOL)
        case(e, [first, last], [(TEXT, b"onetwo")], None)
        case(e, [first, frame(PING, b"p"), last], [(PONG, b"p"), (TEXT, b"onetwo")], None)
        for fin in (True, False):  # nothing to go on with
            case(e, [part(b"x", fin), whole], [], PROTOCOL)
            case(e, [part(b"x", fin), first, last] * 2, [], PROTOCOL)
        case(e, [first, last, part(b"x"), whole], [(TEXT, b"onetwo")], PROTOCOL)
        for opcode in (TEXT, BINARY):  # a message inside a message
            case(e, [first, frame(opcode, b"two")], [], PROTOCOL)
        case(e, [first, part(b"2"), frame(PING, b"p"), part(b"3"), part(b"4"), frame(PING, b"q"),
                 part(b"5", True)], [(PONG, b"p"), (PONG, b"q"), (TEXT, b"one2345")], None)
        p = Peer(e)  # pings are answered before the message is whole
        send(p, [first, frame(PING, b"p")])
        assert p.receive() == (PONG, b"p")
        send(p, [last])
        assert p.receive() == (TEXT, b"onetwo")


def sequences():
    """UTF-8 from both sides of every border (RFC 3629 section 4)."""
    borders = [0x00, 0x24, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfff9, 0xfffd, 0xfffe,
               0xffff, 0x10000, 0x24b62, 0x10ffff]
    borders += [plane << 16 | last for plane in range(1, 17) for last in (0xfffe, 0xffff)]
    good = [chr(c).encode() for c in borders] + [GREEK, "hello€world".encode()]
    lonely = [bytes([b]) for b in range(0x80, 0x100)]
    followed = [b + b" " for b in lonely]
    runs = [b"\x80\xbf" * n for n in (1, 2, 3)] + [bytes(range(0x80, 0xc0))]
    cut = [s[:n] for s in good for n in range(1, len(s))]
    overlong = [b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xf0\x80\x80\xaf",
                b"\xf0\x8f\xbf\xbf", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"]
    beyond = [b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xf8\x88\x80\x80\x80",
              b"\xfb\xbf\xbf\xbf\xbf", b"\xfc\x84\x80\x80\x80\x80", b"\xfd\xbf\xbf\xbf\xbf\xbf",
              b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]
    halves = [bytes([0xed, a, b]) for a in (0xa0, 0xad, 0xae, 0xaf, 0xb0, 0xbe, 0xbf)
              for b in (0x80, 0xbf)]
    pairs = [a + b for a in halves[:4] for b in halves[-4:]]
    return good + lonely + followed + runs + cut + overlong + beyond + halves + pairs


def is_utf8(data):
    try:
        data.decode("utf-8", "strict")
        return True
    except UnicodeDecodeError:
        return False


def may_go_on(data):
    """Whether a good text begins like this: if any bytes do behind a cut character, these do."""
    return any(is_utf8(data + bytes(rest)) for n in range(4)
               for rest in itertools.product(b"\x80\xbf", repeat=n))


def first_wrong(data):
    """How many bytes show that no good text begins like this; None: it may yet be good."""
    return next((n for n in range(1, len(data) + 1) if not may_go_on(data[:n])), None)


@test
def group_6_utf8():
    with Local(connections=32) as e:
        case(e, [frame(TEXT)], [(TEXT, b"")], None)
        case(e, [frame(TEXT, fin=False), frame(CONTINUATION, fin=False), frame(CONTINUATION)],
             [(TEXT, b"")], None)
        case(e, [frame(TEXT, fin=False), frame(CONTINUATION, b"middle", fin=False),
                 frame(CONTINUATION)], [(TEXT, b"middle")], None)
        for text in sequences():
            good, inside = is_utf8(text), b"a" + text + b"z"
            code = None if good else NOT_UTF8
            case(e, [frame(TEXT, text)], [(TEXT, text)] if good else [], code)
            case(e, [frame(TEXT, inside)], [(TEXT, inside)] if good else [], code)
            parts = [frame(CONTINUATION, bytes([b]), fin=False) for b in text]
            case(e, [frame(TEXT, fin=False), *parts, frame(CONTINUATION)],
                 [(TEXT, text)] if good else [], code)


@test
def group_6_fails_fast():
    """A wrong byte ends the connection when it comes: not sooner, and not with the frame."""
    with Local(connections=32) as e:
        for text in sequences():
            wrong = first_wrong(text)
            if wrong is None:
                continue
            for behind in (b"", GREEK):
                data = behind + text + b" and more"
                whole = frame(TEXT, data)
                at = len(whole) - len(data) + len(behind) + wrong
                p = Peer(e)
                send(p, [whole[:at - 1]])
                assert silent(p), text
                send(p, [whole[at - 1:at]])
                p.closed(NOT_UTF8)
                p = Peer(e)
                send(p, [frame(TEXT, data[:len(behind)], fin=False)] +
                     [frame(CONTINUATION, bytes([b]), fin=False) for b in text[:wrong - 1]])
                assert silent(p), text
                send(p, [frame(CONTINUATION, text[wrong - 1:wrong], fin=False)])
                p.closed(NOT_UTF8)


@test
def group_7_closing():
    with Local(connections=32, output=600000) as e:
        whole, first = frame(TEXT, HELLO), frame(TEXT, HELLO, fin=False)
        case(e, [whole, close(NORMAL)], [(TEXT, HELLO)], NORMAL)
        for behind in (close(NORMAL), frame(CLOSE), frame(PING), whole,
                       frame(CONTINUATION, HELLO)):  # is not read any more
            case(e, [close(NORMAL), behind], [], NORMAL)
        case(e, [first, close(NORMAL), frame(CONTINUATION, HELLO)], [], NORMAL)
        big = b"x" * 100000
        case(e, [frame(TEXT, big), whole, close(NORMAL), frame(PING)],
             [(TEXT, big), (TEXT, HELLO)], NORMAL)
        for pieces in pieces_of([frame(CLOSE)]):
            p = Peer(e)
            send(p, pieces)
            assert p.receive() == (CLOSE, b"") and p.f.read() == b""
        case(e, [frame(CLOSE, b"a")], [], PROTOCOL)
        for reason in (b"", HELLO, GREEK, b"*" * 123):
            case(e, [close(NORMAL, reason)], [], NORMAL)
        case(e, [close(NORMAL, b"*" * 124)], [], PROTOCOL)
        for text in sequences():
            case(e, [close(NORMAL, text)], [], NORMAL if is_utf8(text) else NOT_UTF8)
        good = [*range(1000, 1004), *range(1007, 1015), 3000, 3999, 4000, 4999]
        for code in good:
            case(e, [close(code)], [], code)
        for code in (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
            case(e, [close(code)], [], PROTOCOL)


@test
def group_9_sizes():
    with Local(body_max=1 << 20, output=3 << 20) as e:
        for n in (64 << 10, 256 << 10, 1 << 20):
            case(e, [frame(TEXT, b"x" * n)], [(TEXT, b"x" * n)], None)
        text = b"0123456789abcdef" * (8 << 10)
        for n in (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10):  # fragments, then chops
            parts = [text[i:i + n] for i in range(0, len(text), n)]
            frames = [frame(TEXT, parts[0], fin=False)]
            frames += [frame(CONTINUATION, t, fin=False) for t in parts[1:]]
            frames += [frame(CONTINUATION)]
            case(e, frames, [(TEXT, text)], None)
            p, whole = Peer(e), frame(TEXT, text)
            send(p, [whole[i:i + n] for i in range(0, len(whole), n)])
            assert p.receive() == (TEXT, text)
        p = Peer(e)
        for n in (0, 16, 64, 256, 1024, 4096):  # one after the other
            for _ in range(200):
                p.send(TEXT, b"*" * n)
                assert p.receive() == (TEXT, b"*" * n)
        limit = b"x" * (1 << 20)  # a byte more than server.body_max
        case(e, [frame(TEXT, limit + b"x")], [], TOO_BIG)
        case(e, [frame(TEXT, limit, fin=False), frame(CONTINUATION, b"x")], [], TOO_BIG)
        p = Peer(e)  # its head alone says that it is too long
        send(p, [frame(TEXT, limit + b"x")[:14]])
        p.closed(TOO_BIG)


@test
def group_10_fragments_of_a_sender():
    text = b"*" * 65536
    parts = [text[i:i + 1300] for i in range(0, len(text), 1300)]
    frames = [frame(CONTINUATION if i else TEXT, t, fin=i == len(parts) - 1)
              for i, t in enumerate(parts)]
    with Local(output=300000) as e:
        case(e, frames, [(TEXT, text)], None)


@test
def groups_12_and_13_no_extension():
    offers = ("permessage-deflate", "permessage-deflate; client_max_window_bits, x-unknown")
    with Local() as e:
        for offer in offers:
            line = f"Sec-WebSocket-Extensions: {offer}\r\nSec-WebSocket-Protocol: a, b\r\n\r\n"
            p = Peer(e, upgrade=UPGRADE[:-2] + line.encode())
            assert "sec-websocket-extensions" not in p.fields
            assert "sec-websocket-protocol" not in p.fields
            p.send(TEXT, HELLO)
            assert p.receive() == (TEXT, HELLO)
            p.send(TEXT, b"\xf2\x48\xcd\xc9\xc9\x07\x00", rsv=4)  # "Hello", deflated
            p.closed(PROTOCOL)


run_all()
