"""The status page in headless Chromium, driven through its DevTools pipe: it loads without a
request to anybody else, shows the load, and its chat box gets an answer.

usage: page.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import server

TIMEOUT_S = 40


class Browser:
    """One page of a Chromium: commands go in and replies come out as JSON, each ended by a zero
    byte, over descriptors 3 and 4 (--remote-debugging-pipe). Events are kept in `events`."""

    def __init__(self, folder):
        ours, theirs = os.pipe(), os.pipe()  # commands to it; replies from it
        self.log = open(os.path.join(folder, "log"), "w+b")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--disable-component-update",
                 "--no-proxy-server", f"--user-data-dir={folder}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "sh", "chromium", *flags],
            pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, env=dict(os.environ, HOME=folder))
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.back = ours[1], theirs[0]
        os.set_blocking(self.back, False)
        self.data, self.events, self.number, self.session = b"", [], 0, None
        self.end = time.monotonic() + TIMEOUT_S

    def receive(self):
        while b"\0" not in self.data:
            try:
                piece = os.read(self.back, 1 << 16)
                assert piece, f"chromium has ended: {self.tail()}"
                self.data += piece
            except BlockingIOError:
                assert time.monotonic() < self.end, f"no reply: {self.tail()}"
                time.sleep(0.01)
        message, _, self.data = self.data.partition(b"\0")
        return json.loads(message)

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-600:]

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.receive()
            if reply.get("id") == self.number:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def open(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def value(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in r, r
        return r["result"].get("value")

    def until(self, expression):
        while not self.value(expression):
            assert time.monotonic() < self.end, (expression, self.value("document.body.innerText"))
            time.sleep(0.05)

    def seen(self, method):
        return [e["params"] for e in self.events if e.get("method") == method]

    def close(self):
        os.close(self.to)  # the pipe's end is the browser's
        os.close(self.back)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def load(browser, origin):
    browser.open()
    browser.call("Page.navigate", url=origin + "/")
    browser.until("document.querySelectorAll('.tile').length > 5")
    assert browser.value("document.getElementById('state').textContent") == "ready"
    tiles = browser.value("document.getElementById('tiles').innerText")
    assert "of 8" in tiles and "KV pages held" in tiles, tiles
    rows = browser.value("document.querySelectorAll('#memory tr').length")
    assert rows > 5, f"the memory plan has {rows} rows"


ANSWERED = ("+[...document.querySelectorAll('.tile')].map((t) => t.innerText)"
            ".find((t) => t.startsWith('Answered')).match(/\\d+/)[0]")


def chat(browser):
    before = browser.value(ANSWERED)
    browser.value("document.getElementById('say').value = 'Tell me a story about a mouse.';"
                  "document.getElementById('form').requestSubmit()")
    browser.until("document.querySelectorAll('#talk p').length == 2 &&"
                  "!document.getElementById('send').disabled")
    said = browser.value("[...document.querySelectorAll('#talk p')].map((p) => p.textContent)")
    errors = browser.value("document.querySelectorAll('#talk .error').length")
    assert errors == 0 and said[0].startswith("Tell me") and len(said[1]) > 10, said
    browser.until(f"{ANSWERED} === {before + 1}")  # the tiles are drawn anew each second


def quiet(browser, origin):
    urls = [r["request"]["url"] for r in browser.seen("Network.requestWillBeSent")]
    assert any(u.endswith("/v1/chat/completions") for u in urls), urls
    others = [u for u in urls if not u.startswith((origin + "/", "data:,"))]
    assert not others, f"asked somebody else: {others}"
    errors = [e["exceptionDetails"] for e in browser.seen("Runtime.exceptionThrown")]
    errors += [e["entry"] for e in browser.seen("Log.entryAdded") if
               e["entry"]["level"] in ("error", "warning")]
    assert not errors, errors


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, \
            server.Server(sys.argv[1]) as s:
        origin = f"http://127.0.0.1:{s.port}"
        browser = Browser(folder)
        try:
            return server.run([("page loads", lambda: load(browser, origin)),
                               ("chat answers", lambda: chat(browser)),
                               ("nothing from elsewhere", lambda: quiet(browser, origin))])
        finally:
            browser.close()


sys.exit(main() != 0)
