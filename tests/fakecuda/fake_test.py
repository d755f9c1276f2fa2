#!/usr/bin/env python3
"""The fake driver by its own functions: tests/fakecuda/fake_test.py LIBRARY. Each check runs in a
process of its own, since the library reads its environment once. Of one in a folder sm75 only the
card is checked."""
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import time

OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_VALUE, NO_DEVICE = 2, 3, 1, 100
INVALID_CONTEXT, INVALID_HANDLE, NOT_FOUND, NOT_READY, NO_BINARY = 201, 400, 500, 600, 209
ILLEGAL_ADDRESS, OUT_OF_RESOURCES, TOO_LARGE, NOT_PERMITTED, ECC = 700, 701, 720, 800, 214
AXPY = b".version 8.0\n.target sm_75\n.visible .entry axpy(.param .f32 a) { ret; }"
IMAGE = "build/gpu/image.fatbin"


class Driver:
    """Calls by name; `want` is the expected result."""

    def __init__(self, library=sys.argv[1]):
        self.lib = ctypes.CDLL(library)

    def __call__(self, name, *args, want=0):
        got = getattr(self.lib, name)(*args)
        assert got == want, f"{name}: {got}, wanted {want}"

    def out(self, kind, name, *args, want=0):
        value = kind()
        self(name, ctypes.byref(value), *args, want=want)
        return value

    def start(self):
        self("cuInit", 0)
        context = self.out(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", 0)
        self("cuCtxSetCurrent", context)
        return self

    def take(self, n, want=0):
        return self.out(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(n), want=want).value

    def put(self, to, data, stream=None, want=0):
        self("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), data, ctypes.c_size_t(len(data)), stream,
             want=want)

    def get(self, at, n, stream=None, want=0):
        data = ctypes.create_string_buffer(n)
        self("cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(at), ctypes.c_size_t(n), stream,
             want=want)
        return data.raw

    def pinned(self, n):
        return self.out(ctypes.c_void_p, "cuMemHostAlloc", ctypes.c_size_t(n), 2).value

    def stream(self):
        return self.out(ctypes.c_void_p, "cuStreamCreate", 1)

    def axpy(self):
        module = self.out(ctypes.c_void_p, "cuModuleLoadData", AXPY)
        return self.out(ctypes.c_void_p, "cuModuleGetFunction", module, b"axpy")

    def launch(self, f, x, y, n, stream=None, grid=4, block=256, shared=0, want=0, together=False):
        values = [ctypes.c_float(2), ctypes.c_uint64(x), ctypes.c_uint64(y), ctypes.c_uint32(n)]
        array = (ctypes.c_void_p * 4)(*(ctypes.addressof(v) for v in values))
        name = "cuLaunchCooperativeKernel" if together else "cuLaunchKernel"
        self(name, f, grid, 1, 1, block, 1, 1, shared, stream, array, *([] if together else [None]),
             want=want)

    def run(self, n=1000, **how):
        """axpy on n numbers; what comes back."""
        x, y = self.take(4 * n), self.take(4 * n)
        self.put(x, struct.pack(f"{n}f", *range(n)))
        self.put(y, struct.pack(f"{n}f", *[1] * n))
        self.launch(self.axpy(), x, y, n, **how)
        return struct.unpack(f"{n}f", self.get(y, 4 * n))


def devices(d):
    d("cuInit", 0, want=NO_DEVICE)
    d("cuDeviceGetCount", None, want=NOT_INITIALIZED)
    d("cuInit", 0)
    assert d.out(ctypes.c_int, "cuDeviceGetCount").value == 2
    assert d.out(ctypes.c_int, "cuDriverGetVersion").value == 12060
    text = ctypes.create_string_buffer(64)
    d("cuDeviceGetName", text, 64, 1)
    assert text.value == b"Orin"
    d("cuDeviceGetPCIBusId", text, 64, 1)
    assert text.value == b"0000:02:00.0", text.value
    d("cuDeviceGetUuid_v2", text, 1)
    assert text.raw[:16] == b"zigcuda fake gp\x01"
    for attribute, want in ((75, 8), (76, 7), (16, 5), (18, 1), (32, 1), (97, 163 << 10)):
        assert d.out(ctypes.c_int, "cuDeviceGetAttribute", attribute, 1).value == want
    d("cuDeviceGet", ctypes.byref(ctypes.c_int()), 2, want=101)
    d("cuStreamSynchronize", None, want=INVALID_CONTEXT)
    d.start()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    d("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (1 << 30, 4 << 30)
    d.take((1 << 30) + 1, want=OUT_OF_MEMORY)
    d.take(1 << 30, want=OUT_OF_MEMORY)  # `largest`
    d.pinned(1 << 20)
    d("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert free.value == (1 << 30) - (1 << 20)


def memory(d):
    d.start()
    p = d.take(1000)
    assert d.get(p, 1000) == b"\xff" * 1000
    d.put(p, bytes(range(250)) * 4)
    d("cuMemsetD8Async", ctypes.c_uint64(p + 1), 7, ctypes.c_size_t(2), None)
    d("cuMemsetD32Async", ctypes.c_uint64(p + 4), 0x01020304, ctypes.c_size_t(1), None)
    assert d.get(p, 9) == bytes((0, 7, 7, 3, 4, 3, 2, 1, 8))
    d.get(p + 1, 1000, want=INVALID_VALUE)
    d.put(p + 999, b"ab", want=INVALID_VALUE)
    q = d.take(100)
    d("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(q), ctypes.c_uint64(p), ctypes.c_size_t(100), None)
    assert d.get(q, 4) == bytes((0, 7, 7, 3))
    d("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(q), ctypes.c_uint64(p), ctypes.c_size_t(101), None,
      want=INVALID_VALUE)
    d("cuMemFree_v2", ctypes.c_uint64(p + 8), want=INVALID_VALUE)
    d("cuMemFree_v2", ctypes.c_uint64(p))
    d("cuMemFree_v2", ctypes.c_uint64(p), want=INVALID_VALUE)
    d.get(p, 4, want=INVALID_VALUE)


def pinned(d):
    d.start()
    host = d.pinned(4096)
    device = d.out(ctypes.c_uint64, "cuMemHostGetDevicePointer_v2", ctypes.c_void_p(host + 8),
                   0).value
    assert device != host + 8
    ctypes.memmove(host + 8, b"words", 5)
    assert d.get(device, 5) == b"words"
    d.get(host + 8, 5, want=INVALID_VALUE)  # a host's address
    other = ctypes.create_string_buffer(8192)
    d("cuMemHostRegister_v2", other, ctypes.c_size_t(8192), 2)
    d("cuMemHostRegister_v2", other, ctypes.c_size_t(16), 2, want=712)
    d("cuMemHostUnregister", other)
    d("cuMemFreeHost", ctypes.c_void_p(host))
    d("cuMemFreeHost", ctypes.c_void_p(host), want=INVALID_VALUE)


def order(d):
    """Work runs later than it is submitted, and reads pinned memory when it runs."""
    d.start()
    stream, p, host = d.stream(), d.take(4), d.pinned(4)
    ctypes.memset(host, 1, 4)
    d("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(p), ctypes.c_void_p(host), ctypes.c_size_t(4), stream)
    ctypes.memset(host, 2, 4)
    d("cuStreamQuery", stream, want=NOT_READY)
    d("cuStreamSynchronize", stream)
    assert d.get(p, 4) == b"\x02" * 4
    d.put(p, b"abcd", stream)  # pageable: taken at once
    d("cuStreamQuery", stream, want=NOT_READY)
    assert d.get(p, 4, stream) == b"abcd"


def events(d):
    d.start()
    one, two = d.stream(), d.stream()
    begin, end = (d.out(ctypes.c_void_p, "cuEventCreate", 0) for _ in range(2))
    host = d.pinned(4)
    p = d.take(4)
    d("cuEventRecord", begin, one)
    d("cuMemsetD8Async", ctypes.c_uint64(p), 9, ctypes.c_size_t(4), one)
    d("cuEventRecord", end, one)
    d("cuEventQuery", end, want=NOT_READY)
    d("cuStreamWaitEvent", two, end, 0)
    d("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(p), ctypes.c_size_t(4), two)
    d("cuStreamSynchronize", two)
    assert ctypes.string_at(host, 4) == b"\x09" * 4
    d("cuEventSynchronize", end)
    assert d.out(ctypes.c_float, "cuEventElapsedTime", begin, end).value >= 20
    done = []
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda arg: done.append((arg, d.lib.cuCtxSynchronize())))
    d("cuLaunchHostFunc", one, call, ctypes.c_void_p(5))
    assert not done
    d("cuCtxSynchronize")
    assert done == [(5, NOT_PERMITTED)]
    d("cuEventDestroy_v2", end)
    d("cuEventQuery", end, want=INVALID_HANDLE)
    d("cuStreamDestroy_v2", one)
    d("cuStreamQuery", one, want=INVALID_HANDLE)
    d("cuStreamQuery", begin, want=INVALID_HANDLE)


def kernels(d):
    d.start()
    assert d.run() == tuple(2 * i + 1 for i in range(1000))
    assert d.run(together=True, grid=3, n=600) == tuple(2 * i + 1 for i in range(600))
    f, p = d.axpy(), d.take(4)
    at, size = ctypes.c_size_t(), ctypes.c_size_t()
    for index, want in enumerate(((0, 4), (8, 8), (16, 8), (24, 4))):
        d("cuFuncGetParamInfo", f, ctypes.c_size_t(index), ctypes.byref(at), ctypes.byref(size))
        assert (at.value, size.value) == want
    d("cuFuncGetParamInfo", f, ctypes.c_size_t(4), ctypes.byref(at), None, want=INVALID_VALUE)
    assert d.out(ctypes.c_int, "cuOccupancyMaxActiveBlocksPerMultiprocessor", f, 256,
                 ctypes.c_size_t(0)).value == 4
    d.launch(f, p, p, 0, shared=50000, want=INVALID_VALUE)
    d("cuFuncSetAttribute", f, 8, 50000)
    d.launch(f, p, p, 0, shared=50000)
    d.launch(f, p, p, 0, grid=14, together=True, want=TOO_LARGE)
    d.launch(f, p, p, 0, block=1025, want=INVALID_VALUE)
    module = d.out(ctypes.c_void_p, "cuModuleLoadData", AXPY)
    d("cuModuleGetFunction", ctypes.byref(f), module, b"step", want=NOT_FOUND)
    d("cuModuleUnload", module)
    d("cuModuleGetFunction", ctypes.byref(f), module, b"axpy", want=INVALID_HANDLE)
    d("cuModuleLoadData", ctypes.byref(module), b"no image of any kind", want=218)


def images(d):
    d.start()
    with open(IMAGE, "rb") as f:
        image = f.read()
    module = d.out(ctypes.c_void_p, "cuModuleLoadData", image)
    step = d.out(ctypes.c_void_p, "cuModuleGetFunction", module, b"step")
    d.launch(step, 0, 0, 0, block=257, want=OUT_OF_RESOURCES)


def old_device(d):
    d.start()
    with open(IMAGE, "rb") as f:
        d("cuModuleLoadData", ctypes.byref(ctypes.c_void_p()), f.read(), want=NO_BINARY)


def turing(d):
    """What such a card has, and what it refuses."""
    d.start()
    for attribute, want in ((75, 7), (76, 5), (97, 64 << 10), (81, 64 << 10), (39, 1024)):
        assert d.out(ctypes.c_int, "cuDeviceGetAttribute", attribute, 0).value == want
    f = d.axpy()
    d("cuFuncSetAttribute", f, 8, (64 << 10) + 1, want=INVALID_VALUE)
    d("cuFuncSetAttribute", f, 8, 64 << 10)
    for shared, want in ((0, 4), (20 << 10, 3), (32 << 10, 2), (64 << 10, 1), ((64 << 10) + 1, 0)):
        assert d.out(ctypes.c_int, "cuOccupancyMaxActiveBlocksPerMultiprocessor", f, 256,
                     ctypes.c_size_t(shared)).value == want
    assert d.out(ctypes.c_int, "cuOccupancyMaxActiveBlocksPerMultiprocessor", f, 768,
                 ctypes.c_size_t(0)).value == 1
    d.launch(f, 0, 0, 0, grid=3, shared=64 << 10, together=True)
    d.launch(f, 0, 0, 0, grid=4, shared=64 << 10, together=True, want=TOO_LARGE)
    d.launch(f, 0, 0, 0, shared=(64 << 10) + 1, want=INVALID_VALUE)
    if not os.path.exists(IMAGE):
        return
    with open(IMAGE, "rb") as image:
        module = d.out(ctypes.c_void_p, "cuModuleLoadData", image.read())
    for name in b"step", b"decode", b"decode_kv8", b"delta", b"pack", b"read_all":
        d("cuModuleGetFunction", ctypes.byref(f), module, name)
    for name in b"prefill_int4", b"prefill_attention", b"mid_16", b"mid_half", b"one_token_kv8":
        d("cuModuleGetFunction", ctypes.byref(f), module, name, want=NOT_FOUND)


def graphs(d):
    d.start()
    stream, p = d.stream(), d.take(4 * 64)
    d("cuMemsetD32Async", ctypes.c_uint64(p), 0x3f800000, ctypes.c_size_t(64), stream)
    d("cuStreamBeginCapture_v2", stream, 0)
    d.launch(d.axpy(), p, p, 64, stream)
    d("cuStreamSynchronize", stream, want=900)
    graph = ctypes.c_void_p()
    d("cuStreamEndCapture", stream, ctypes.byref(graph))
    run = d.out(ctypes.c_void_p, "cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
    d("cuGraphDestroy", graph)
    assert struct.unpack("f", d.get(p, 4, stream)) == (1,)
    for _ in range(3):  # 1 -> 3 -> 9 -> 27
        d("cuGraphLaunch", run, stream)
    assert struct.unpack("2f", d.get(p + 8, 8, stream)) == (27, 27)


def fault(d):
    """A kernel beyond its memory is stopped, and the context is lost."""
    d.start()
    p = d.take(256)
    d.launch(d.axpy(), p, p, 65)
    d("cuCtxSynchronize", want=ILLEGAL_ADDRESS)
    d.take(4, want=ILLEGAL_ADDRESS)


def late_use(d):
    d.start()
    p, q = d.take(256), d.take(256)
    d("cuMemFree_v2", ctypes.c_uint64(q))
    d.launch(d.axpy(), q, p, 64)
    d("cuCtxSynchronize", want=ILLEGAL_ADDRESS)


def nth_call(d):
    d.start()
    d.take(4)
    d.take(4, want=OUT_OF_MEMORY)
    d.take(4)


def any_call(d):
    d("cuInit", 0)
    context = d.out(ctypes.c_void_p, "cuDevicePrimaryCtxRetain", 0)
    d("cuCtxSetCurrent", context)
    d.take(4, want=ECC)
    d.take(4, want=ECC)  # it stays


def nth_kernel(d):
    d.start()
    stream, f, p = d.stream(), d.axpy(), d.take(256)
    d.launch(f, p, p, 64, stream)
    d("cuStreamSynchronize", stream)
    d.launch(f, p, p, 64, stream)
    d("cuStreamSynchronize", stream, want=719)
    d("cuStreamQuery", stream, want=719)


def hang(d):
    d.start()
    stream, p = d.stream(), d.take(256)
    d.launch(d.axpy(), p, p, 64, stream)
    time.sleep(0.05)
    d("cuStreamQuery", stream, want=NOT_READY)


FLAG = "{folder}/failed"  # of this run
CHECKS = [  # check, environment, words of stderr
    (devices, {"ZIGCUDA_FAKE": "devices=2,name=Orin,sm=87,multiprocessors=5,integrated=1,ecc=1,"
               "memory=4G,taken=3G,largest=64M,version=12060,late=1"}, "misuse: cuStreamSync"),
    (memory, {}, "byte 0 of 1000 of freed device memory"),
    (pinned, {}, "by the host's address"),
    (order, {"ZIGCUDA_FAKE": "delay_us=20000"}, None),
    (events, {"ZIGCUDA_FAKE": "delay_us=20000"}, "called in a host function"),
    (kernels, {}, "50000 bytes of shared memory"),
    (graphs, {}, "a wait while work is captured"),
    (fault, {}, "0 bytes behind the end of 256 bytes of device memory"),
    (late_use, {}, "byte 0 of 256 of freed device memory"),
    (nth_call, {"ZIGCUDA_FAKE_FAIL": "cuMemAlloc_v2:2:2"}, None),
    (any_call, {"ZIGCUDA_FAKE_FAIL": "any:4:214"}, None),
    (nth_kernel, {"ZIGCUDA_FAKE_FAIL": "kernel:2:719"}, None),
    (nth_kernel, {"ZIGCUDA_FAKE_FAIL": "kernel:2:719:" + FLAG}, None),
    (kernels, {"ZIGCUDA_FAKE_FAIL": "kernel:2:719:" + FLAG}, ""),  # it was made
    (hang, {"ZIGCUDA_FAKE_FAIL": "kernel:1:hang"}, None),
]
if os.path.exists(IMAGE):
    CHECKS += [(images, {}, ""), (old_device, {"ZIGCUDA_FAKE": "sm=61"}, None)]


if os.path.basename(os.path.dirname(os.path.abspath(sys.argv[1]))) == "sm75":
    CHECKS = [(turing, {}, "set to 65537")]


def check(function, environment, words, folder):
    log = os.path.join(folder, "log")
    environment = {k: v.format(folder=folder) for k, v in environment.items()}
    done = subprocess.run([sys.executable, __file__, sys.argv[1], function.__name__],
                          env={**os.environ, **environment, "ZIGCUDA_FAKE_LOG": log},
                          stderr=subprocess.PIPE, timeout=60)
    said = done.stderr.decode()
    misuse = "misuse:" in said
    with open(log) as f:
        logged = f.read()
    os.remove(log)
    good = done.returncode == 0 and (words or "") in said and (words is not None or not misuse)
    good = good and "1 cu" in logged and ("misuse:" in logged) == misuse
    print(f"{'ok  ' if good else 'FAIL'} {function.__name__}{'' if good else ': ' + said[-900:]}")
    return good


def main():
    if len(sys.argv) > 2:
        globals()[sys.argv[2]](Driver())
        sys.stderr.flush()
        os._exit(0)  # a thread may hang for ever
    with tempfile.TemporaryDirectory() as folder:
        passed = sum([check(*c, folder) for c in CHECKS])
    print(f"{passed} passed, {len(CHECKS) - passed} failed")
    sys.exit(passed != len(CHECKS))


main()
