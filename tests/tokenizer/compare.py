#!/usr/bin/env python3
"""Holds core/model/tokenizer against the `tokenizers` library.

    build/venv/bin/python tests/tokenizer/compare.py [--strings N] [--giant BYTES] [KIND...]

For every kind of kinds.py, with and without added tokens: trains a tokenizer.json with the library,
then compares through build/tokenizer_driver encoding (without and with special tokens added, and
with special tokens as plain text) of generated strings, refusal of invalid UTF-8, full decoding and
streamed decoding of what was encoded and of random ids. The merges reach over the cuts of the
pre-tokenizers, so that a wrong cut gives other ids. Two processes; a few minutes.
"""

import argparse
import array
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pool

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, processors
from tokenizers.decoders import DecodeStream

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kinds
import texts

DRIVER = os.path.join(os.environ.get("ZIGCUDA_OBJECTS", "build"), "tokenizer_driver")
FOLDER = "build/tests/tokenizer"
STRINGS = []  # for kinds without and with added tokens
GIANTS = []


def drive(folder, records):
    """Answers of the driver to (command, bytes) records."""
    with tempfile.TemporaryFile() as f, tempfile.TemporaryFile() as out:
        for command, data in records:
            f.write(command + struct.pack("<I", len(data)) + data)
        f.seek(0)
        run = subprocess.run([DRIVER, folder], stdin=f, stdout=out, stderr=subprocess.PIPE)
        if run.returncode:
            raise RuntimeError(
                "driver on %s: status %d: %s" % (folder, run.returncode, run.stderr.decode())
            )
        out.seek(0)
        data = out.read()
    answers, at = [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        answers.append(data[at + 4 : at + 4 + n])
        at += 4 + n
    assert len(answers) == len(records), "the driver stopped early"
    return answers


def pack(ids):
    return array.array("I", ids).tobytes()


class Failures:
    def __init__(self, name):
        self.name, self.n = name, 0

    def check(self, ok, what, *details):
        if not ok:
            self.n += 1
            if self.n <= 5:
                print("FAIL %s: %s: %s" % (self.name, what, " | ".join(ascii(d) for d in details)))


def compare_encode(f, library, folder, strings, others):
    """Every string without special tokens; some (`others`) with them, and with special tokens as
    plain text. Returns the ids, for decoding."""

    def encode(some, special):
        return [e.ids for e in library.encode_batch_fast(some, add_special_tokens=special)]

    some = strings[:others]
    plain, framed = encode(strings, False), encode(some, True)
    library.encode_special_tokens = True
    as_text = encode(some, False)
    library.encode_special_tokens = False
    runs = ((b"e", strings, plain), (b"E", some, framed), (b"i", some, as_text))
    answers = drive(folder, [(c, s.encode()) for c, texts_of, _ in runs for s in texts_of])
    at = 0
    for command, texts_of, want in runs:
        for s, ids, got in zip(texts_of, want, answers[at:]):
            if got != pack(ids):
                f.check(False, "encode " + command.decode(), s, ids, list(array.array("I", got)))
        at += len(texts_of)
    return plain


def compare_broken(f, library, folder, n):
    strings = texts.broken(17, n)
    for b, got in zip(strings, drive(folder, [(b"e", b) for b in strings])):
        try:
            want = pack(library.encode(b.decode(), add_special_tokens=False).ids)
        except UnicodeDecodeError:
            want = b"\xff\xff\xff\xff"
        f.check(got == want, "invalid UTF-8", b)


def random_ids(library, n):
    """Lists of ids that nobody would encode: bytes out of order, specials, ids out of range."""
    r = random.Random(23)
    size = library.get_vocab_size()
    byte_ids = [
        i for i in (library.token_to_id("<0x%02X>" % b) for b in range(256)) if i is not None
    ]
    single = [i for i in range(size) if len(library.id_to_token(i)) == 1]
    chars = [library.encode(c, add_special_tokens=False).ids for c in "é你😀a\u0301ꙮ𐵀"]
    lists = []
    for _ in range(n):
        ids = []
        for _ in range(r.randint(1, 12)):
            k = r.random()
            if k < 0.35 and byte_ids:
                ids.append(r.choice(byte_ids))
            elif k < 0.5:
                ids.append(r.choice(single))
            elif k < 0.7:
                ids += r.choice(chars)[: r.randint(1, 4)]
            elif k < 0.75:
                ids.append(r.choice([0, 1, 2, size, size + 7, 0xFFFFFFFF]))
            else:
                ids.append(r.randrange(size))
        lists.append(ids)
    return lists


def settled(tokens, full):
    """What a stream must have said in the end: the full text, unless a run of byte tokens broke
    after a complete character (then the stream keeps that character). Returns None where this
    program of three lines cannot tell."""
    run = b""
    for t in tokens + [""]:
        if len(t) == 6 and t.startswith("<0x") and t.endswith(">"):
            run += bytes([int(t[3:5], 16)])
            continue
        try:
            run.decode()
        except UnicodeDecodeError as e:
            if e.start > 0:
                return None
        run = b""
    return full


def library_stream(library, ids, skip):
    """The library's own stream: text so far after each id; None where it gives up."""
    stream, so_far, out = DecodeStream(skip_special_tokens=skip), "", []
    for i in ids:
        try:
            so_far += stream.step(library, i) or ""
        except Exception:
            return None
        out.append(so_far)
    return out


def pieces(answer):
    at, out = 0, []
    while at < len(answer):
        n = struct.unpack_from("<I", answer, at)[0]
        out.append(answer[at + 4 : at + 4 + n])
        at += 4 + n
    return out


def compare_decode(f, library, folder, lists, streams):
    for skip, full, piecewise in ((False, b"d", b"s"), (True, b"D", b"S")):
        packed = [pack(ids) for ids in lists]
        want = library.decode_batch(lists, skip_special_tokens=skip)
        answers = drive(folder, [(full, p) for p in packed] + [(piecewise, p) for p in packed])
        for k, (ids, text) in enumerate(zip(lists, want)):
            got, parts = answers[k], pieces(answers[len(lists) + k])
            if got != text.encode():
                f.check(False, "decode", ids, text, got)
            joined = b"".join(parts)
            if joined != got:
                tokens = [t for t in map(library.id_to_token, ids) if t is not None]
                f.check(settled(tokens, text) is None, "stream", ids, text, joined)
            if k >= streams:
                continue
            said = b""
            theirs = library_stream(library, ids, skip)
            if theirs and not text.startswith(theirs[-1]):
                theirs = None  # the library's stream disagrees with its own decode
            for i, part in enumerate(parts):
                part.decode()  # never half a character
                said += part
                if theirs and i < len(theirs) and joined == got:
                    f.check(said.startswith(theirs[i].encode()), "late", ids, i, theirs[i], said)


def compare_config(f, library, folder, strings):
    """add_bos_token and add_eos_token of tokenizer_config.json replace the post-processor."""
    path = os.path.join(folder, "tokenizer_config.json")
    for bos, eos in ((True, True), (False, True), (True, False), (False, False)):
        with open(path, "w") as out:
            out.write(
                '{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": %s%s}'
                % (str(bos).lower(), ', "add_eos_token": true' if eos else "")
            )
        copy = Tokenizer.from_str(library.to_str())
        copy.post_processor = processors.TemplateProcessing(
            ("<s> " if bos else "") + "$A" + (" </s>" if eos else ""),
            "$A $B",
            [(t, library.token_to_id(t)) for t in ("<s>", "</s>")],
        )
        answers = drive(folder, [(b"E", s.encode()) for s in strings])
        for s, got in zip(strings, answers):
            f.check(got == pack(copy.encode(s).ids), "add_bos/eos", bos, eos, s)
    os.remove(path)


def run_kind(job):
    name, added = job
    folder = os.path.join(FOLDER, name + ("-added" if added else ""))
    shutil.rmtree(folder, ignore_errors=True)
    from_s = time.time()
    library = kinds.make(name, added, folder)
    f = Failures(os.path.basename(folder))
    strings, count = STRINGS[added], len(STRINGS[added])
    ids = compare_encode(f, library, folder, strings, count if added else count // 8)
    if not added:
        compare_encode(f, library, folder, GIANTS, 0)
    compare_broken(f, library, folder, count // 25)
    lists = random_ids(library, count // 4)
    compare_decode(f, library, folder, lists, count // 50)
    compare_decode(f, library, folder, ids[: count // 2], count // 50)
    compare_config(f, library, folder, strings[:200])
    print(
        "%s %s: %d strings, %d id lists, %.1f s"
        % (
            "FAIL" if f.n else "ok  ",
            f.name,
            len(strings) + (0 if added else len(GIANTS)),
            len(lists) + count // 2,
            time.time() - from_s,
        ),
        flush=True,
    )
    return f.n


def main():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--strings", type=int, default=30000, help="a kind, with and without added tokens"
    )
    p.add_argument("--giant", type=int, default=1 << 14, help="bytes of the longest texts")
    p.add_argument("kinds", nargs="*", choices=[[], *kinds.KINDS])
    a = p.parse_args()
    names = a.kinds or list(kinds.KINDS)
    jobs = [(name, added) for name in names for added in (False, True)]
    framing = ["<s>", "</s>"]
    STRINGS.append(texts.texts(7, a.strings, framing))  # before the fork: every kind takes the same
    STRINGS.append(texts.texts(8, a.strings, framing + [t.content for t in kinds.ADDED]))
    GIANTS.extend([*texts.giants(a.giant), *texts.everything()])
    with Pool(2) as pool:
        bad = pool.map(run_kind, jobs, chunksize=1)
    print("%d kinds equal, %d differ" % (bad.count(0), len(bad) - bad.count(0)))
    sys.exit(any(bad))


if __name__ == "__main__":
    main()
