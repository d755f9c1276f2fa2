"""testssl.sh (Debian's package) against the TLS port of `zigcuda serve`, with an ECDSA and an RSA
certificate: whatever it rates LOW or worse is a failure, but for the list below.

usage: testssl.py MODEL_DIR   (environment: ZIGCUDA, how to run the binary)
"""
import json
import os
import subprocess
import sys
import tempfile
import threading

import server

MODEL_DIR = sys.argv[1]
FOLDER = tempfile.TemporaryDirectory()
CALM = ("OK", "INFO")
# Finding of testssl.sh: why it is none of ours.
EXPECTED = {
    "TLS1_3": "BearSSL has TLS 1.2",
    "engine_problem": "about the openssl of this machine",
    "cert_chain_of_trust": "the test's certificate is signed by itself",
    "cert_revocation": "so nobody could revoke it",
    "HSTS": "binds all ports of a host name (RFC 6797, 8.3); a daemon on one port can not ask that",
}
# What has to be among the findings, calm: a scan that broke off must not count as a good one.
WANTED = ("TLS1_2", "cipher_order", "cert_subjectAltName", "heartbleed", "CCS", "ROBOT",
          "secure_renego", "secure_client_renego", "CRIME_TLS", "BREACH", "POODLE_SSL",
          "fallback_SCSV", "SWEET32", "FREAK", "DROWN", "LOGJAM", "BEAST", "LUCKY13", "RC4")
PARTS = ("--protocols", "--std", "--pfs", "--server-preference", "--server-defaults", "--headers",
         "--vulnerable")


def scan(kind):
    path = os.path.join(FOLDER.name, kind + ".json")
    key, certificate = server.certificate(FOLDER.name, kind)
    with server.Server(MODEL_DIR, "--tls.certificate", certificate, "--tls.key", key) as s:
        r = subprocess.run(["testssl", "--quiet", "--warnings", "off", "--color", "0", "--nodns",
                            "none", "--ip", "127.0.0.1", "--jsonfile", path, *PARTS,
                            f"https://localhost:{s.port}"], cwd=FOLDER.name,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=170)
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        raise AssertionError(f"testssl: exit {r.returncode}: {r.stdout[-600:]}") from None


def check(kind):
    findings = scan(kind)
    bad = [f"{f['severity']} {f['id']}: {f['finding'][:120]}" for f in findings
           if f["severity"] not in CALM and f["id"] not in EXPECTED]
    assert not bad, "; ".join(bad)
    calm = {f["id"] for f in findings if f["severity"] in CALM}
    missing = [w for w in WANTED if w not in calm]
    assert not missing, f"not looked at: {missing}"


# Both at once: a scan mostly waits.
results = {}


def keep(kind):
    try:
        check(kind)
    except Exception as e:
        results[kind] = e


threads = [threading.Thread(target=keep, args=(k,)) for k in ("ec", "rsa")]
[t.start() for t in threads]
[t.join() for t in threads]


def tell(kind):
    if kind in results:
        raise results[kind]


sys.exit(server.run([(f"testssl {k}", lambda k=k: tell(k)) for k in ("ec", "rsa")]) != 0)
