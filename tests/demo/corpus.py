#!/usr/bin/env python3
"""Builds the corpus of the demo model: text of Debian packages plus what the generators write.

    corpus.py --out build/demo [--dialogues 900000] [--stories 110000] [--seed 1]

Each package is fetched with `apt-get download` and unpacked under OUT/deb (nothing is installed).
Written are train.txt and held.txt, one document a line of JSON: {"text": ...} or {"turns": [...]}.

| package            | text                                        | licence                      |
|--------------------|---------------------------------------------|------------------------------|
| wordnet-base       | definitions and example sentences           | WordNet 3.0 (permissive)     |
| r-cran-janeaustenr | six novels by Jane Austen                   | public domain                |
| gnome-user-docs    | the GNOME help pages                        | CC-BY-SA 3.0                 |
| debian-handbook    | The Debian Administrator's Handbook, en-US  | GPL 2+ or CC-BY-SA 3.0+      |
"""

import argparse
import html
import json
import math
import random
import re
import struct
import subprocess
import zlib
from multiprocessing import Pool
from pathlib import Path
from types import SimpleNamespace

import dialogue
from say import an, cap
from stories import story

PACKAGES = ("wordnet-base r-cran-janeaustenr gnome-user-docs debian-handbook").split()
DOCUMENT_CHARS = 3200
HELD_SHARE = 0.005


def unpack(out):
    """The folder of each package, fetched if it is not there."""
    places = {}
    for name in PACKAGES:
        place = out / "deb" / "x" / name
        if not place.is_dir():
            (out / "deb").mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", name], cwd=out / "deb", check=True)
            deb = next((out / "deb").glob(name + "_*.deb"))
            subprocess.run(["dpkg", "-x", deb, place], check=True)
        places[name] = place
    return places


# --- WordNet (the file format is described in its manual page wndb(5WN)) --------------------------

EVERYDAY = 25  # the weight of a word of definitions.txt; that of the others is 0.15 to 10
ARTIFACT, COUNTED = 6, {5, 6, 18}
CONCRETE = {5, 6, 8, 13, 17, 18, 19, 20, 27}  # numbers of lexicographer files: animal, artifact...
PLACE_OR_NAME = re.compile(r"[A-Z0-9]")
CLUMSY = re.compile(
    r"\b(genus|slur|offensive|sexual|penis|vagina|coitus|obscene|vulgar|prostitut\w*|rape\w*|"
    r"ethnic|Nazi|torture|suicide|sex|intercourse|genital\w*|excrement|buttocks|"
    r"disparaging|dirty word|copulat\w*|whore|bitch|breast\w*|naked|semen)\b",
    re.I,
)


def read_wordnet(place):
    """Entries for words whose sense was seen in tagged text, most frequent sense first."""
    folder = place / "usr/share/wordnet"
    counts = {}
    for line in (folder / "cntlist.rev").read_text().splitlines():
        sense, number, count = line.split()
        word, _, key = sense.partition("%")
        counts[word, int(key[0]), int(number)] = int(count)
    entries, synsets = [], {}
    for number, name in ((1, "noun"), (2, "verb"), (3, "adj")):
        for line in (folder / f"data.{name}").read_text().splitlines():
            if line[0] == " ":
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            pointers = fields[5 + 2 * int(fields[3], 16) :]
            parent = next(
                (pointers[i + 1] for i in range(0, len(pointers) - 3, 4) if pointers[i] == "@"),
                None,
            )
            synsets[number, fields[0]] = (words, parent, gloss.strip(), int(fields[1]))
        for line in (folder / f"index.{name}").read_text().splitlines():
            if line[0] == " ":
                continue
            fields = line.split()
            word, n_pointers = fields[0], int(fields[3])
            offsets = fields[6 + n_pointers :]
            count = counts.get((word, number, 1), counts.get((word, 5, 1), 0) if number == 3 else 0)
            entry = make_entry(word, number, synsets, offsets[0], count)
            if entry:
                entries.append(entry)
    return entries


def make_entry(word, number, synsets, offset, count):
    words, parent, gloss, lexfile = synsets[number, offset]
    if (
        not re.fullmatch(r"[a-z]+(_[a-z]+)?", word)
        or len(word) < 3
        or CLUMSY.search(gloss + " " + word)
    ):
        return None
    spelled = next((w for w in words if w.lower().split("(")[0] == word), word)
    if PLACE_OR_NAME.search(spelled):
        return None
    # Common words come often; a thing that one can see or touch comes even if it is rare.
    concrete = number == 1 and lexfile in CONCRETE
    weight = min(math.sqrt(count), 10) * (1 if number == 1 else 0.4) + (0.15 if concrete else 0)
    if count == 0 and (not concrete or "_" in word):
        return None
    meaning = re.sub(r"\s*\([^)]*\)", "", re.split(r'; "|;', gloss)[0]).strip(" ,:")
    if not 8 < len(meaning) < 110 or '"' in meaning:
        return None
    examples = [
        cap(x) + ("" if x[-1] in ".!?" else ".")
        for x in re.findall(r'"([^"]+)"', gloss)
        if len(x.split()) > 3 and word.replace("_", " ") in x
    ]
    kind = None
    if parent:
        up = synsets[number, parent][0][0].replace("_", " ")
        kind = (
            up
            if up.islower() and up not in ("entity", "object", "artifact", "whole", "matter")
            else None
        )
    plain = word.replace("_", " ")
    countable = number == 1 and meaning.startswith(("a ", "an ", "any ", "one ", "the "))
    subject = (
        an(plain) if countable and meaning.startswith(("a ", "an ", "any ", "one ")) else plain
    )
    if number == 2 and meaning.startswith("to "):
        meaning = meaning[3:]
    others = [w.replace("_", " ") for w in words if w.islower() and w.isidentifier() and w != word]
    return SimpleNamespace(
        synonyms=others,
        word=plain,
        pos="nva"[number - 1],
        gloss=meaning,
        examples=examples[:3],
        kind=kind,
        weight=weight,
        countable=countable,
        subject=subject,
    )


def everyday(entries):
    """The entries with the words of definitions.txt in front, which replace WordNet's."""
    found, pos = [], None
    for line in (Path(__file__).parent / "definitions.txt").read_text().splitlines():
        if line.startswith("@"):
            pos = line[1:]
        elif line and not line.startswith("#"):
            word, _, gloss = line.partition(": ")
            old = next(
                (e for e in entries if e.word == word and e.pos == pos.replace("m", "n")), None
            )
            counted = pos == "n"
            found.append(
                SimpleNamespace(
                    word=word,
                    pos=pos.replace("m", "n"),
                    gloss=gloss,
                    weight=EVERYDAY,
                    kind=None,
                    countable=counted,
                    subject=an(word) if counted else word,
                    examples=old.examples if old else [],
                    synonyms=old.synonyms if old else [],
                )
            )
    taken = {(e.word, e.pos) for e in found}
    return found + [e for e in entries if (e.word, e.pos) not in taken]


def definitions(entries):
    """WordNet as running text."""
    for e in entries:
        lead = {
            "n": f"{cap(e.subject)} is {e.gloss}.",
            "v": f"To {e.word} means to {e.gloss}.",
            "a": f"{cap(e.word)} means {e.gloss}.",
        }[e.pos]
        yield " ".join([lead] + e.examples)


# --- books --------------------------------------------------------------------------------------


def lazy_load_strings(path):
    """Strings of an R lazy-load database: blocks of u32 size and zlib data, each a serialized
    object; a character string in it is u32 flags with type 9, i32 length, bytes (R Internals,
    'Serialization Formats')."""
    data, at = path.read_bytes(), 0
    while at + 8 < len(data):
        # The size in front of a block is that of the unpacked data; zlib says where the block ends.
        unpacker = zlib.decompressobj()
        block = unpacker.decompress(data[at + 4 :])
        at = len(data) - len(unpacker.unused_data)
        for match in re.finditer(rb"\x00[\x00-\x04]\x00\x09", block):
            size = (
                struct.unpack_from(">i", block, match.end())[0]
                if match.end() + 4 <= len(block)
                else -1
            )
            if 0 <= size < 4000:
                yield block[match.end() + 4 : match.end() + 4 + size].decode("utf-8", "replace")


def novels(place):
    lines = list(lazy_load_strings(place / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"))
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        text = re.sub(r"\s+", " ", paragraph).strip().replace("_", "").replace("--", " - ")
        if len(text) > 40 and not text.isupper():
            yield text


def pages(files):
    """Paragraphs of XML or HTML help pages."""
    for path in sorted(files):
        text = path.read_text(errors="replace")
        text = re.sub(r"(?s)<(head|script|style|info|screen|code|pre|code)\b.*?</\1>", " ", text)
        for paragraph in re.findall(
            r"(?s)<(?:p\b|div class=\"para\")[^>]*>(.*?)</(?:p|div)>", text
        ):
            plain = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", paragraph))).strip()
            if len(plain) > 60 and "©" not in plain and "http" not in plain:
                yield plain


def documents(paragraphs):
    """Neighbouring paragraphs joined up to DOCUMENT_CHARS."""
    held = ""
    for text in paragraphs:
        if held and len(held) + len(text) > DOCUMENT_CHARS:
            yield held
            held = ""
        held += ("\n\n" if held else "") + text[:DOCUMENT_CHARS]
    if held:
        yield held


# --- generated ----------------------------------------------------------------------------------


def generate(job):
    """One share of the generated documents, as JSON lines."""
    kind, seed, count, entries = job
    r = random.Random(f"{kind} {seed}")
    lines, mixer = set(), dialogue.Mixer(entries) if kind == "dialogue" else None
    for _ in range(count):
        record = {"turns": mixer.dialogue(r)} if mixer else {"text": story(r)[2]}
        lines.add(json.dumps(record, ensure_ascii=False))
    return sorted(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dialogues", type=int, default=900_000)
    parser.add_argument("--stories", type=int, default=110_000)
    parser.add_argument(
        "--book-copies", type=int, default=1, help="how often the packages' texts appear"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    place = unpack(args.out)
    entries = everyday(read_wordnet(place["wordnet-base"]))
    handbook = place["debian-handbook"].glob("usr/share/doc/debian-handbook/html/en-US/*.html")
    texts = [
        d
        for source in (
            novels(place["r-cran-janeaustenr"]),
            pages(place["gnome-user-docs"].glob("usr/share/help/C/**/*.page")),
            pages(handbook),
        )
        for d in documents(source)
    ]
    glosses = list(definitions(entries))
    print(
        f"{len(entries)} words, {len(texts)} documents of books with {sum(map(len, texts)):,} "
        "characters"
    )

    share = 10_000
    jobs = [
        (kind, f"{args.seed} {n}", min(share, total - n), entries)
        for kind, total in (("dialogue", args.dialogues), ("story", args.stories))
        for n in range(0, total, share)
    ]
    r = random.Random(args.seed)
    sizes = {"train": 0, "held": 0}
    with open(args.out / "train.txt", "w") as train, open(args.out / "held.txt", "w") as held:

        def write(lines):
            for line in lines:
                name, file = ("held", held) if r.random() < HELD_SHARE else ("train", train)
                sizes[name] += len(line)
                file.write(line + "\n")

        held_texts = set(r.sample(range(len(texts)), len(texts) // 100))
        for n, text in enumerate(texts):
            line = json.dumps({"text": text}, ensure_ascii=False)
            (held if n in held_texts else train).write(
                (line + "\n") * (1 if n in held_texts else args.book_copies)
            )
        for _ in range(args.book_copies):
            r.shuffle(glosses)
            train.writelines(
                json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in documents(glosses)
            )
        with Pool() as pool:
            for lines in pool.imap(generate, jobs):
                write(lines)
    print(sizes)


if __name__ == "__main__":
    main()
