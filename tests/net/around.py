"""What is around the connections: Unix sockets, sockets handed over, the service manager, addresses
that are refused, and that nothing is allocated once the server is ready."""
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

from harness import EXEC, OBJECTS, Echo, everything, get, read_reply, request, run_all, test, until

FOLDER = tempfile.TemporaryDirectory()
SOCKET = os.path.join(FOLDER.name, "s")


def read(name):
    with open(name) as f:
        return f.read()


def unix():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(SOCKET)
    return s


@test
def unix_socket():
    with Echo(listen=f"unix:{SOCKET}", unix_mode=0o600) as e:
        assert stat.S_IMODE(os.stat(SOCKET).st_mode) == 0o600
        assert request(unix(), get()) == (200, b"ok\n")
        s = unix()  # a big body, a big answer, and the end of the peer
        s.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
        s.sendall(b"a" * 500000)
        with s.makefile("rb") as f:
            assert read_reply(f)[2] == b"a" * 500000
        s.sendall(get("/after?60000"))
        s.close()
        until(lambda: b'"app_gone":1' in request(unix(), get("/counts"))[1])
        second = Echo(listen=f"unix:{SOCKET}")
        assert second.process.wait(10) == 5 and "cannot bind" in second.text()
        assert request(unix(), get()) == (200, b"ok\n")
    assert not os.path.exists(SOCKET)


@test
def stale_socket_is_replaced():
    e = Echo(listen=f"unix:{SOCKET}", ends=False)
    e.process.kill()
    e.process.wait()
    assert os.path.exists(SOCKET)
    with Echo(listen=f"unix:{SOCKET}"):
        assert request(unix(), get()) == (200, b"ok\n")
    with open(SOCKET, "w") as f:
        f.write("no socket")
    e = Echo(listen=f"unix:{SOCKET}")
    assert e.process.wait(10) == 5
    with open(SOCKET) as f:
        assert f.read() == "no socket"
    os.unlink(SOCKET)


@test
def peer_credentials():
    me = os.getuid()
    with Echo(listen=f"unix:{SOCKET}", unix_uids=f"12345, {me}"):
        assert request(unix(), get()) == (200, b"ok\n")
    with Echo(listen=f"unix:{SOCKET}", unix_uids="12345") as e:
        s = unix()
        try:
            s.sendall(get())
            assert everything(s) == b""
        except (ConnectionResetError, BrokenPipeError):
            pass
        until(lambda: "unix_denied" in e.text() and f"uid={me}" in e.text())


@test
def several_and_ipv6():
    addresses = f"127.0.0.1:0, [::1]:0, unix:{SOCKET}"
    with Echo(listen=addresses) as e:
        assert request(e.connect(), get())[0] == 200
        assert request(unix(), get())[0] == 200
        s = socket.socket(socket.AF_INET6)
        s.connect(("::1", e.ports[1]))
        assert request(s, get())[0] == 200


def to(kind, address):
    s = socket.socket(kind)
    s.settimeout(20)
    s.connect(address)
    return s


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@test
def addresses_of_both_kinds():
    """localhost is loopback, :PORT is everything, and both are IPv4 and IPv6 at the same port."""
    v4, v6 = (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")
    for text, want, more in (("localhost:%d", ["127.0.0.1:%d", "[::1]:%d"], {}),
                             (":%d", ["0.0.0.0:%d", "[::]:%d"], {"expose": 1}),
                             ("*:%d", ["0.0.0.0:%d", "[::]:%d"], {"expose": 1}),
                             ("plain:*:%d", ["0.0.0.0:%d", "[::]:%d"], {"expose": 1})):
        port = free_port()
        with Echo(listen=text % port, **more) as e:
            assert re.findall(r" listening address=(\S+) tls=no", e.text()) == [
                w % port for w in want], e.text()
            for kind, address in v4, v6:
                assert request(to(kind, (address, port)), get()) == (200, b"ok\n")
    port = free_port()  # whoever has one of them is not overlooked
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", port))
        s.listen()
        e = Echo(listen=f"localhost:{port}")
        assert e.process.wait(10) == 5 and f"cannot bind [::1]:{port}" in e.text(), e.text()


@test
def boxes_without_ipv6():
    """In a network of its own, as containers have it: no ::1, and that is a line of the log."""
    unshare = ["unshare", "-rn", "sh", "-c",
               "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up"
               ' && exec "$@"', "sh"]
    if EXEC or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        print("skip boxes_without_ipv6: no network of its own (unshare), or under qemu")
        return
    with Echo(prefix=unshare, listen="localhost:0") as e:
        assert len(e.ports) == 1 and e.process.poll() is None
        line = r'not_listening address=\[::1\]:0 text="this box has no IPv6 there"'
        assert re.search(line, e.text()), e.text()
    e = Echo(prefix=unshare, listen="[::1]:0")  # by its own name it is an error as ever
    assert e.process.wait(10) == 5 and "cannot bind [::1]:0" in e.text(), e.text()


@test
def addresses_that_are_refused():
    for address, words in (("0.0.0.0:0", "no TLS"), ("[::]:0", "no TLS"), (":0", "no TLS"),
                           ("*:0", "no TLS"), ("plain::0", "no TLS"),
                           ("box.example:80", "names"), ("localhost:", "names"), (":", "names"),
                           ("localhost:x", "names"), ("::1:80", "names"), ("*", "names"),
                           (":65536", "names"), ("*:http", "names"), ("LOCALHOST:80", "names"),
                           ("", "is empty"), ("127.0.0.1", "is none of"), ("1.2.3:4", "is none of"),
                           ("127.0.0.1:65536", "is none of"), ("unix:relative", "absolute"),
                           ("unix:/" + "a" * 120, "at most 107"), ("systemd", "LISTEN_FDS"),
                           (",".join(["127.0.0.1:0"] * 17), "more than 16"),
                           ("127.0.0.1:0,", None)):
        e = Echo(listen=address)
        if words is None:
            assert e.__exit__(None) is None
            continue
        assert e.process.wait(10) == 3 and words in e.text(), (address, e.text())
    with Echo(listen="0.0.0.0:0", expose=1) as e:
        assert request(e.connect(), get())[0] == 200
    e = Echo(listen="127.0.0.1:0", unix_uids="root")
    assert e.process.wait(10) == 3 and "server.unix_uids" in e.text()


@test
def inherited_sockets():
    a, b = socket.socket(), socket.socket(socket.AF_UNIX)
    a.bind(("127.0.0.1", 0))
    a.listen()
    b.bind(SOCKET)
    script = ("import os,sys;os.environ['LISTEN_PID']=str(os.getpid());"
              "os.dup2(int(sys.argv[1]),103);os.dup2(int(sys.argv[2]),104);"
              "os.dup2(103,3);os.dup2(104,4);os.execvp(sys.argv[3],sys.argv[3:])")
    prefix = [sys.executable, "-c", script, str(a.fileno()), str(b.fileno())]
    with Echo(prefix=prefix, env={"LISTEN_FDS": "2"}, listen="systemd",
              pass_fds=(a.fileno(), b.fileno())) as e:
        assert e.port == a.getsockname()[1]
        assert request(e.connect(), get())[0] == 200
        assert request(unix(), get())[0] == 200
        for level, option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY),
                              (socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
            assert a.getsockopt(level, option)  # accepted ones inherit them
        held = e.connect()
        held.sendall(get("/after?1500"))
        time.sleep(0.1)
        e.process.send_signal(signal.SIGTERM)  # the sockets live on in this process: no spinning
        assert everything(held).endswith(b"late\n")
        _, status, usage = os.wait4(e.process.pid, 0)
        e.process.returncode = os.waitstatus_to_exitcode(status)
        assert usage.ru_utime + usage.ru_stime < 1.0, usage
    assert os.path.exists(SOCKET)  # whoever made it keeps it
    os.unlink(SOCKET)


@test
def service_manager():
    path = os.path.join(FOLDER.name, "notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(path)
    manager.settimeout(10)
    with Echo(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"}) as e:
        seen = [manager.recv(200).decode() for _ in range(4)]
        assert seen == ["READY=1"] + ["WATCHDOG=1"] * 3, seen
        start = time.monotonic()
        for _ in range(5):
            assert manager.recv(200) == b"WATCHDOG=1"
        assert 0.3 < time.monotonic() - start < 2
        e.process.send_signal(signal.SIGHUP)
        seen = []
        while "READY=1" not in seen:
            seen.append(manager.recv(200).decode())
        seen = [s for s in seen if s != "WATCHDOG=1"]
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", seen[0]), seen
        e.process.send_signal(signal.SIGTERM)
        while manager.recv(200) != b"STOPPING=1":
            pass
    name = "\0echo-%d" % os.getpid()
    abstract = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    abstract.bind(name)
    abstract.settimeout(10)
    with Echo(env={"NOTIFY_SOCKET": "@" + name[1:]}):
        assert abstract.recv(200) == b"READY=1"
    assert abstract.recv(200) == b"STOPPING=1"
    with Echo(env={"NOTIFY_SOCKET": "@" + name[1:], "ZIGCUDA_LISTENERS": "1:"}):
        assert abstract.recv(200) == b"STATUS=\nREADY=1"  # of a process that began again


@test
def signals_that_mean_nothing():
    with Echo() as e:
        for number in signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGHUP:
            e.process.send_signal(number)
        assert request(e.connect(), get())[0] == 200 and e.process.poll() is None


@test
def descriptors():
    e = Echo(prefix=["sh", "-c", 'ulimit -n 100; exec "$@"', "sh"], connections=64)
    assert e.process.wait(10) == 5 and "server.connections = 64 needs 128" in e.text()
    with Echo(prefix=["sh", "-c", 'ulimit -Sn 100; exec "$@"', "sh"], connections=64) as e:
        peers = [e.connect() for _ in range(64)]
        for s in peers:
            assert request(s, get())[0] == 200


@test
def claims_the_box():
    """Core, scheduling class and locked memory, or an error that names the option."""
    last = max(os.sched_getaffinity(0))
    with Echo(core=last) as e:
        assert os.sched_getaffinity(e.process.pid) == {last}
    e = Echo(core=1000)
    assert e.process.wait(10) == 3 and "server.core = 1000" in e.text()
    e = Echo(fifo=1, connections=4, ends=False)
    if e.process.poll() is None:
        assert os.sched_getscheduler(e.process.pid) == os.SCHED_FIFO
    else:
        assert "server.fifo = 1" in e.text()
    e.__exit__(None)
    e = Echo(lock=1, connections=4, ends=False)
    if e.process.poll() is None:
        locked = re.search(r"VmLck:\s+(\d+)", read(f"/proc/{e.process.pid}/status"))
        assert int(locked.group(1)) > 1000 or "asan" in OBJECTS  # sanitizers make mlockall nothing
    else:
        assert "server.lock" in e.text()
    e.__exit__(None)


@test
def nothing_is_allocated():
    """Under strace: after ready no mmap, brk, munmap, open or clone, whatever is asked."""
    if not shutil.which("strace") or EXEC:
        print("skip nothing_is_allocated: no strace, or under qemu")
        return
    if "asan" in OBJECTS:
        print("skip nothing_is_allocated: the sanitizers allocate")
        return
    trace = os.path.join(FOLDER.name, "trace")
    calls = "mmap,munmap,mremap,brk,mprotect,clone,clone3,open,openat"
    with Echo(prefix=["strace", "-D", "-f", "-o", trace, "-e", f"trace={calls},writev", "-s", "20"],
              header_ms=300) as e:
        for _ in range(3):
            s = e.connect()
            s.sendall(get() * 100 + b"bad\r\n\r\n")
            everything(s)
            body = b"a" * 400000
            head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n"
            assert request(e.connect(), head + body)[1] == body
            assert request(e.connect(), get("/stream?100"))[0] == 200
            slow = e.connect()
            slow.sendall(b"GET")
            assert b"408" in everything(slow)
    lines = []
    until(lambda: "+++ exited" in read(trace))
    lines = read(trace).split("\n")
    ready = next(i for i, l in enumerate(lines) if "echo: ready" in l)
    left = [l for l in lines[ready + 1:] if re.search(rf"\b({calls.replace(',', '|')})\(", l)]
    assert not left, left


@test
def the_timer_is_armed_seldom():
    """Under strace: once for the deadlines of a peer, whatever he asks; who spins, never."""
    if not shutil.which("strace") or EXEC or "asan" in OBJECTS:
        print("skip the_timer_is_armed_seldom: no strace, or under qemu or sanitizers")
        return
    for spin in 0, 1:
        trace = os.path.join(FOLDER.name, f"timer{spin}")
        with Echo(prefix=["strace", "-D", "-o", trace, "-e", "trace=timerfd_settime"],
                  spin=spin) as e:
            s = e.connect()
            for _ in range(100):
                s.sendall(get())
                with s.makefile("rb") as f:
                    assert read_reply(f)[0] == 200
            s.close()
        until(lambda: "+++ exited" in read(trace))
        armed = re.findall(r"^timerfd_settime\(.*", read(trace), re.M)
        assert len(armed) <= (0 if spin else 3) and (armed or spin), armed


run_all()
