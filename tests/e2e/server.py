"""A `zigcuda serve` of its own for a test: started, asked for its addresses, ended."""
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time

BINARY = shlex.split(os.environ["ZIGCUDA"])


class Server:
    def __init__(self, model, *flags, listen="127.0.0.1:0", prefix=(),
                 environment=None):
        self.log = tempfile.TemporaryFile()
        command = [*prefix, *BINARY, "serve", "--model", model, "--server.listen", listen, *flags]
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL,
                                        env={**os.environ, **(environment or {})})
        deadline = time.monotonic() + 60
        while "event=ready" not in self.text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"{command}: not ready: {self.text()[-500:]}")
            time.sleep(0.02)
        self.addresses = re.findall(r"event=listening address=(\S+)", self.text())

    def text(self):
        """Read by place: the file's own is shared with the process, which writes there."""
        log = self.log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace")

    @property
    def port(self):
        return int(self.addresses[0].rpartition(":")[2])

    def end(self, want=0):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        assert code == want, f"exit {code}: {self.text()[-500:]}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
            self.process.wait()
        else:
            self.end()
        self.log.close()


def certificate(folder, kind):
    """Paths of a fresh key and its self-signed certificate for localhost; kind: ec or rsa."""
    key, path = (os.path.join(folder, f"{kind}-{n}.pem") for n in ("key", "cert"))
    how = {"ec": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa": ("rsa:2048",)}[kind]
    subprocess.run(["openssl", "req", "-x509", "-newkey", *how, "-nodes", "-keyout", key, "-out",
                    path, "-days", "365", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, capture_output=True)
    return key, path


class Skip(Exception):
    """Why a check cannot run here."""


def run(checks):
    """Runs (name, function) pairs, prints a line each, and answers how many failed."""
    failed = skipped = 0
    for name, function in checks:
        try:
            function()
            print(f"ok   {name}", flush=True)
        except Skip as why:
            skipped += 1
            print(f"skip {name}: {why}", flush=True)
        except Exception as e:
            failed += 1
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
    print(f"{len(checks) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return failed
