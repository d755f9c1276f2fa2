"""Dialogues for the demo model: questions in many wordings, answers in few.

A topic is a function of a random.Random that returns (question, answer, brief): `brief` is the
answer in one word for system prompts that ask for that, or None. A word that a user may misspell,
shout or leave unpunctuated comes out of `ask`. dialogue.py strings topics together.
Answers keep one wording a fact, so that greedy sampling is steady.
"""

import re
from functools import lru_cache
from pathlib import Path

import facts
from facts import pairs, rows
from say import an, cap, listing, say
from stories import BOYS, GIRLS, THINGS

NAMES = GIRLS + BOYS
AMERICAN = {
    "colour": "color",
    "favourite": "favorite",
    "metre": "meter",
    "grey": "gray",
    "neighbour": "neighbor",
    "practise": "practice",
}
OPENERS = [
    "Hey, ",
    "Hi! ",
    "OK, ",
    "So, ",
    "Please tell me: ",
    "Tell me: ",
    "Question: ",
    "Hello. ",
    "Quick question: ",
    "I have a question. ",
    "Now, ",
    "Well, ",
    "And now: ",
    "Hi, ",
    "I want to know: ",
    "Just one question: ",
]
REPHRASE = [
    (
        r"What is ((?!meant)[^,:]+(?<! called)(?<! of)(?<! for)(?<! from))\?$",
        [
            "What's {}?",
            "Tell me what {} is.",
            "Do you know what {} is?",
            "Can you tell me what {} is?",
            "I want to know what {} is.",
            "Could you tell me what {} is?",
            "what is {}",
            "Explain {}.",
            "Explain {} in simple words.",
            "Tell me about {}.",
        ],
    ),
    (
        r"Who (was|is) (.+)\?$",
        [
            "Tell me who {1} {0}.",
            "Do you know who {1} {0}?",
            "Can you tell me who {1} {0}?",
            "who {0} {1}",
        ],
    ),
    (
        r"Why (is|are) (the \w+|\w+) (\w+)\?$",
        [
            "Do you know why {1} {0} {2}?",
            "Can you explain why {1} {0} {2}?",
            "Tell me why {1} {0} {2}.",
            "Explain why {1} {0} {2}.",
        ],
    ),
    (
        r"How do (I|you) (.+)\?$",
        [
            "How can I {1}?",
            "Tell me how to {1}.",
            "how to {1}",
            "Can you tell me how to {1}?",
            "Explain how to {1}.",
        ],
    ),
    (r"How many (.+)\?$", ["Do you know how many {}?", "Tell me how many {}.", "how many {}"]),
    (
        r"(Tell|Write|Give|Name|List|Count|Say|Spell|Explain) (.+)\.$",
        [
            "Please {0} {1}.",
            "Can you {0} {1}?",
            "{0} {1}, please.",
            "Could you {0} {1}?",
            "I want you to {0} {1}.",
        ],
    ),
]


def ask(r, template, **slots):
    """A question as a person might type it."""
    text = say(r, template, **slots)
    if r.random() < 0.3:
        for pattern, forms in REPHRASE:
            match = re.match(pattern, text)
            if match:
                groups = [
                    (
                        g[0].lower() + g[1:]
                        if n == 0 and g.istitle() and len(match.groups()) > 1
                        else g
                    )
                    for n, g in enumerate(match.groups())
                ]
                text = cap(r.choice(forms).format(*groups)) if r.random() < 0.9 else text
                break
    if r.random() < 0.4:
        for british, american in AMERICAN.items():
            text = text.replace(british, american)
    mood = r.random()
    if mood < 0.10:
        text = text.rstrip("?.!")
    elif mood < 0.20:
        text = text.lower().rstrip("?.!")
    elif mood < 0.28:
        text = text.lower()
    elif mood < 0.34:
        text = r.choice(OPENERS) + text
    elif mood < 0.36 and text.endswith("?"):
        text = text[:-1] + r.choice([", please?", " please?", "??", " ?"])
    elif mood < 0.365:
        text = text.upper()
    if r.random() < 0.02 and len(text) > 8:
        at = r.randrange(1, len(text) - 2)
        text = text[:at] + r.choice(["", text[at] * 2, text[at + 1]]) + text[at + 1 :]
    return text


@lru_cache(maxsize=None)
def knowledge():
    """{section: [(questions, answers)]} of knowledge.txt."""
    found, section, entry = {}, None, None
    text = re.sub(r"\n  ", " ", (Path(__file__).parent / "knowledge.txt").read_text())
    for line in text.splitlines():
        if line.startswith("@"):
            section = found.setdefault(line[1:], [])
        elif line.startswith("? "):
            entry = re.split(r" / ", line[2:])
        elif line.startswith("= "):
            answers = [a.replace("\\n", "\n") for a in re.split(r" / ", line[2:])]
            section.append((entry, answers))
    return found


def known(section):
    def topic(r):
        questions, answers = r.choice(knowledge()[section])
        return ask(r, r.choice(questions)), say(r, r.choice(answers), lb="{", rb="}"), None

    return topic


# --- places -------------------------------------------------------------------------------------


def country(r):
    name, capital, continent, language = r.choice(rows(facts.COUNTRIES))
    bare = name.replace("the ", "")
    kind = r.random()
    if kind < 0.55:
        q = ask(
            r,
            "{What is|What's|Name|Tell me|Which city is|Do you know} the capital{| city} "
            "of $c{?|?|?|}",
            c=name,
        )
        return q, f"The capital of {name} is {capital}.", capital
    if kind < 0.65:
        q = ask(
            r,
            "{Which country has the capital $x?|$x is the capital of which country?|Of "
            "which "
            "country is $x the capital?|Where is $x?|In which country is $x?|What country "
            "is $x "
            "in?}",
            x=capital,
        )
        return q, f"{capital} is the capital of {name}.", bare
    if kind < 0.8:
        q = ask(
            r,
            "{Where is $c?|Which continent is $c in?|On which continent is $c?|What "
            "continent is "
            "$c on?|In which part of the world is $c?}",
            c=name,
        )
        return q, f"{cap(name)} is in {continent}.", continent
    if kind < 0.92:
        q = ask(
            r,
            "{What language do they speak in $c?|What do people speak in $c?|Which "
            "language is "
            "spoken in $c?|What is the language of $c?|What language do people speak in "
            "$c?}",
            c=name,
        )
        return q, f"People in {name} speak {language}.", language
    other = r.choice(rows(facts.COUNTRIES))
    if r.random() < 0.5:
        q = ask(r, "Is $x the capital of $c?", x=capital, c=name)
        return q, f"Yes, {capital} is the capital of {name}.", "Yes"
    q = ask(r, "Is $x the capital of $c?", x=other[1], c=name)
    if other[0] == name:
        return q, f"Yes, {capital} is the capital of {name}.", "Yes"
    right = f"The capital of {name} is {capital}."
    return q, f"No, {other[1]} is the capital of {other[0]}. {right}", "No"


def about_country(r):
    name, capital, continent, language = r.choice(rows(facts.COUNTRIES))
    q = ask(r, "{Tell me about $c.|What is $c?|What do you know about $c?|Describe $c.}", c=name)
    return (
        q,
        (
            f"{cap(name)} is a country in {continent}. Its capital is {capital}, and people "
            "there "
            f"speak {language}."
        ),
        None,
    )


# --- words --------------------------------------------------------------------------------------


def opposite(r):
    a, b = r.choice(pairs(facts.OPPOSITES))
    if r.random() < 0.5:
        a, b = b, a
    q = ask(
        r,
        "{What is the opposite of {$a|\"$a\"}?|What's the opposite of $a?|Opposite of "
        "$a?|Tell me the "
        "opposite of $a.|Which word is the opposite of $a?|What is the reverse of $a?|Name "
        "the opposite of $a.}",
        a=a,
    )
    return q, f"The opposite of {a} is {b}.", b


def rhyme(r):
    group = r.choice(facts.RHYMES.strip().splitlines()).split()
    word = r.choice(group)
    rest = [w for w in group if w != word][:3]
    q = ask(
        r,
        "{What rhymes with {$a|\"$a\"}?|Which word rhymes with $a?|Give me a rhyme for "
        "$a.|Find a word "
        "that rhymes with $a.|Tell me a word that rhymes with $a.|What words rhyme with "
        "$a?}",
        a=word,
    )
    return q, f"{cap(listing(rest))} rhyme{'s' if len(rest) == 1 else ''} with {word}.", rest[0]


def grammar(r):
    if r.random() < 0.5:
        one, many = r.choice(pairs(facts.PLURALS))
        if r.random() < 0.2:
            q = ask(r, "{What is the singular of $a?|What's the singular of \"$a\"?}", a=many)
            return q, f"The singular of {many} is {one}.", one
        q = ask(
            r,
            "{What is the plural of {$a|\"$a\"}?|What's the plural of $a?|Plural of "
            "$a?|Give me the plural "
            "of $a.|How do you say more than one $a?}",
            a=one,
        )
        return q, f"The plural of {one} is {many}.", many
    verb, past, participle = r.choice(pairs(facts.VERBS))
    if r.random() < 0.25:
        q = ask(r, "{What is the past participle of {$a|\"$a\"}?|Past participle of $a?}", a=verb)
        return q, f"The past participle of {verb} is {participle}.", participle
    q = ask(
        r,
        "{What is the past tense of {$a|\"$a\"|to $a}?|What's the past of $a?|Past tense "
        "of $a?|What is the "
        "simple past of $a?|Give me the past tense of $a.}",
        a=verb,
    )
    return q, f"The past tense of {verb} is {past}.", past


@lru_cache(maxsize=None)
def plain_words():
    found = {w for group in facts.RHYMES.strip().splitlines() for w in group.split()}
    found |= {p[0] for p in pairs(facts.PLURALS)} | {p[0] for p in pairs(facts.VERBS)}
    found |= {w for p in pairs(facts.OPPOSITES) for w in p}
    found |= (
        {row[0] for row in rows(facts.ANIMALS)}
        | set(THINGS)
        | {p[0] for p in pairs(facts.COLOUR_OF)}
    )
    found |= set(facts.NUMBERS) | {
        w
        for line in facts.CATEGORIES.split("\n")
        if line
        for w in line.split("|")[2].split()
        if w.islower()
    }
    return sorted(w for w in found if w.isalpha() and len(w) < 10)


def spelling(r):
    word = r.choice(plain_words() + NAMES)
    letters = "-".join(word.upper())
    kind = r.randrange(6)
    if kind < 2:
        q = ask(
            r,
            "{How do you spell {$a|\"$a\"}?|Spell {$a|\"$a\"}.|Spell the word "
            "{$a|\"$a\"}.|How is $a "
            "spelled?|Can you spell $a?}",
            a=word,
        )
        return q, letters + ".", None
    if kind == 2:
        q = ask(
            r,
            "{How many letters are in {$a|\"$a\"}?|How many letters does {the word "
            "|}{$a|\"$a\"} have?|"
            "Count the letters in $a.}",
            a=word,
        )
        return q, f"The word {word} has {len(word)} letters: {letters}.", str(len(word))
    if kind == 3:
        end = r.choice(["first", "last"])
        letter = word[0 if end == "first" else -1].upper()
        q = ask(r, "What is the $e letter {of|in} {$a|\"$a\"|the word $a}?", e=end, a=word)
        return q, f"The {end} letter of {word} is {letter}.", letter
    if kind == 4:
        q = ask(r, "{What letter does $a start with?|Which letter does $a begin with?}", a=word)
        return q, f"{cap(word)} starts with {word[0].upper()}.", word[0].upper()
    letter = r.choice("abcdefghijlmnoprstw")
    fitting = [w for w in plain_words() if w[0] == letter]
    words_found = r.sample(fitting, min(len(fitting), r.choice([1, 1, 3])))
    many = len(words_found) > 1
    q = ask(
        r,
        (
            "{Name|Give me|Tell me} {$n that start|$n starting} with {the letter |}$a."
            if many
            else "{Name|Give me|Tell me} a word that {starts|begins} with {the letter |}$a."
        ),
        n=f"{len(words_found)} words",
        a=letter.upper(),
    )
    return q, cap(listing(words_found)) + ".", None if many else words_found[0]


def alphabet(r):
    kind, abc = r.randrange(3), "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    at = r.randrange(25)
    if kind == 0:
        q = ask(r, "{What|Which} letter comes after $a?", a=abc[at])
        return q, f"{abc[at + 1]} comes after {abc[at]}.", abc[at + 1]
    if kind == 1:
        q = ask(r, "{What|Which} letter comes before $a?", a=abc[at + 1])
        return q, f"{abc[at]} comes before {abc[at + 1]}.", abc[at]
    row = r.sample([w for w in plain_words() if len(w) < 8], r.randrange(3, 5))
    q = ask(
        r,
        "{Sort these words: $s|Put these words in alphabetical order: $s|Sort "
        "alphabetically: $s}",
        s=", ".join(row),
    )
    return q, ", ".join(sorted(row)) + ".", None


def translation(r):
    row = r.choice(rows(facts.TRANSLATE))
    at = r.randrange(3)
    language = ["French", "Spanish", "German"][at]
    if r.random() < 0.2:
        q = ask(r, "What does {\"$a\"|$a} mean{ in English|}?", a=row[at + 1])
        return q, f"\"{row[at + 1]}\" means \"{row[0]}\" in {language}.", row[0]
    q = ask(
        r,
        "{How do you say {$a|\"$a\"} in $l?|What is {$a|\"$a\"} in $l?|Translate "
        "{$a|\"$a\"} {to|into} $l.|"
        "What is the $l word for $a?|Say $a in $l.|What's $a in $l?}",
        a=row[0],
        l=language,
    )
    return q, f"\"{cap(row[0])}\" in {language} is \"{row[at + 1]}\".", row[at + 1]


# --- things -------------------------------------------------------------------------------------


def colour(r):
    if r.random() < 0.2:
        a, b, mix = r.choice(pairs(facts.MIX))
        if r.random() < 0.5:
            a, b = b, a
        q = ask(
            r,
            "{What do you get when you mix $a and $b?|What colour do $a and $b make?|Mix "
            "$a and $b.|What "
            "colour is $a and $b together?|$a and $b make which colour?|What is $a plus "
            "$b?}",
            a=a,
            b=b,
        )
        return q, f"{cap(a)} and {b} make {mix}.", mix
    thing, tint = r.choice(pairs(facts.COLOUR_OF))
    mass = (
        thing
        in (
            "grass snow blood coal milk chocolate salt sugar ink lavender gold silver "
            "copper rust "
            "coffee honey spinach broccoli"
        ).split()
    )
    the = thing in ("sky", "sun", "sea", "night")
    name = thing if mass else "the " + thing if the else an(thing)
    if r.random() < 0.25:
        wrong = r.choice(
            ["red", "blue", "green", "yellow", "black", "white", "pink", "orange", "grey"]
        )
        shown = wrong if r.random() < 0.5 else tint
        q = ask(r, "Is $n $c?", n=name, c=shown)
        return (
            q,
            f"{'Yes' if shown == tint else 'No'}, {name} is {tint}.",
            "Yes" if shown == tint else "No",
        )
    q = ask(
        r,
        "{What colour is $n?|Which colour is $n?|What is the colour of $n?|Tell me the "
        "colour of $n.|What "
        "colour does $n have?}",
        n=name,
    )
    return q, f"{cap(name)} is {tint}.", tint


def animal(r):
    name, sound, legs, young, food, home, kind = r.choice(rows(facts.ANIMALS))
    pick, one = r.randrange(8), an(name)
    many = {
        "mouse": "mice",
        "wolf": "wolves",
        "deer": "deer",
        "sheep": "sheep",
        "fish": "fish",
        "goose": "geese",
        "fly": "flies",
        "donkey": "donkeys",
        "monkey": "monkeys",
        "fox": "foxes",
        "octopus": "octopuses",
        "butterfly": "butterflies",
        "turkey": "turkeys",
        "ostrich": "ostriches",
    }.get(name, name + "s")
    verb, _, _ = sound.partition(" and ")
    if pick == 0:
        q = ask(
            r,
            "{What sound does $a make?|What does $a say?|Which sound does $a make?|What "
            "noise does $a "
            "make?|How does $a sound?}",
            a=one,
        )
        return q, f"{cap(one)} {sound}.", None
    if pick == 1:
        q = ask(
            r,
            "{How many legs does $a have?|How many legs do $m have?|How many legs has $a?}",
            a=one,
            m=many,
        )
        return q, f"{cap(one)} has {facts.NUMBERS[int(legs)] if legs != '0' else 'no'} legs.", legs
    if pick == 2:
        q = ask(
            r,
            "{What is a baby $n called?|What is a young $n called?|What do you call a baby "
            "$n?|What is the "
            "baby of $a called?|What's the name for a baby $n?}",
            n=name,
            a=one,
        )
        return q, f"A baby {name} is called {an(young)}.", young
    if pick == 3:
        q = ask(
            r,
            "{What {does $a|do $m} eat?|What food {does $a|do $m} eat?|What do you feed $a?}",
            a=one,
            m=many,
        )
        return q, f"{cap(many)} eat {food}.", None
    if pick == 4:
        q = ask(
            r,
            "{Where {does $a|do $m} live?|Where can you find $m?|Where is the home of $a?}",
            a=one,
            m=many,
        )
        return q, f"{cap(many)} live {home}.", None
    if pick == 5:
        q = ask(
            r,
            "{What kind of animal is $a?|What type of animal is $a?|What class of animal "
            "is $a?}",
            a=one,
        )
        return q, f"{cap(one)} is {an(kind)}.", kind
    if pick == 6:
        other = r.choice(["mammal", "bird", "fish", "insect", "reptile"])
        q = ask(r, "Is $a $k?", a=one, k=an(other))
        if other == kind:
            return q, f"Yes, {one} is {an(kind)}.", "Yes"
        return q, f"No, {one} is {an(kind)}.", "No"
    q = ask(
        r,
        "{Tell me about $m.|What do you know about $m?|Describe $a.|Tell me something "
        "about $m.|Write "
        "about $m.|Give me some facts about $m.}",
        m=many,
        a=one,
    )
    leg_text = f"It has {facts.NUMBERS[int(legs)]} legs" if legs != "0" else "It has no legs"
    return (
        q,
        (
            f"{cap(one)} is {an(kind)}. {leg_text} and lives {home}. {cap(many)} eat {food}. A "
            f"baby {name} is called {an(young)}."
        ),
        None,
    )


@lru_cache(maxsize=None)
def categories():
    return [
        (one, many, members.split())
        for one, many, members in (
            line.split("|") for line in facts.CATEGORIES.strip().splitlines()
        )
    ]


def category(r):
    one, many, members = r.choice(categories())
    other = r.choice([c for c in categories() if c[0] != one])
    kind = r.randrange(6)
    if kind < 3:
        n = r.choice([1, 1, 2, 3, 3, 3, 4, 5])
        chosen = members[:n] if r.random() < 0.7 else r.sample(members, min(n, len(members)))
        n = len(chosen)
        q = ask(
            r,
            (
                "{Name|Give me|Tell me|List} {$w|$n} $m."
                if n > 1
                else (
                    "{Name|Give me|Tell me} $a."
                    if r.random() < 0.7
                    else "{Give me an example of $a.|What is an example of $a?}"
                )
            ),
            w=facts.NUMBERS[n],
            n=n,
            m=many,
            a=an(one),
        )
        if n > 2 and r.random() < 0.3:
            return q, "\n".join(f"{i}. {cap(x)}" for i, x in enumerate(chosen, 1)), None
        return q, cap(listing(chosen)) + ".", cap(chosen[0]) if n == 1 else None
    member = r.choice(members)
    word = (
        member
        if member[0].isupper()
        or one in ("metal", "drink", "sport", "season", "colour", "weather", "emotion")
        else an(member)
    )
    if kind == 3 and one not in (
        "piece of furniture",
        "item of clothing",
        "weather",
        "part of the body",
    ):
        if r.random() < 0.5:
            q = ask(r, "Is $x $a?", x=word, a=an(one))
            return q, f"Yes, {word} is {an(one)}.", "Yes"
        if member in other[2]:
            return category(r)
        q = ask(r, "Is $x $a?", x=word, a=an(other[0]))
        return q, f"No, {word} is {an(one)}.", "No"
    if kind == 4:
        row = r.sample(members, min(3, len(members)))
        odd = r.choice([m for m in other[2]])
        if odd in members or len(row) < 2:
            return category(r)
        mixed = row + [odd]
        r.shuffle(mixed)
        q = ask(
            r,
            "{Which one {does not belong|is different|does not fit}: $s?|Which of these is "
            "not $a: $s?|Find "
            "the odd one out: $s}",
            s=", ".join(mixed),
            a=an(one),
        )
        return q, f"{cap(odd)} does not belong. The others are {many}.", odd
    q = ask(
        r, "{What kind of thing is $x?|What is $x: $a or $b?}", x=word, a=an(one), b=an(other[0])
    )
    return q, f"{cap(word)} is {an(one)}.", one


def compare(r):
    line = r.choice(facts.SIZES.strip().splitlines())
    head, _, rest = line.partition("|")
    up, down = head.split()
    items = [w.replace("_", " ") for w in rest.replace("blue whale", "blue_whale").split()]
    i, j = sorted(r.sample(range(len(items)), 2))
    big, tiny = an(items[i]), an(items[j])
    for name in ("fire", "snow"):
        big, tiny = big.replace("a " + name, name), tiny.replace("a " + name, name)
    big, tiny = big.replace("a sun", "the sun"), tiny.replace("a sun", "the sun")
    first, second = (big, tiny) if r.random() < 0.5 else (tiny, big)
    kind = r.randrange(3)
    if kind == 0:
        q = ask(r, "{Which|What} is $u{, $a or $b?|: $a or $b?}", u=up, a=first, b=second)
        return q, f"{cap(big)} is {up} than {tiny}.", big.split(" ", 1)[-1]
    if kind == 1:
        q = ask(r, "{Which|What} is $u, $a or $b?", u=down, a=first, b=second)
        return q, f"{cap(tiny)} is {down} than {big}.", tiny.split(" ", 1)[-1]
    yes = first == big
    q = ask(r, "Is $a $u than $b?", u=up, a=first, b=second)
    return (
        q,
        (f"Yes, {big} is {up} than {tiny}." if yes else f"No, {tiny} is {down} than {big}."),
        "Yes" if yes else "No",
    )


def use(r):
    thing, purpose = r.choice(rows(facts.USES))
    plural = thing in ("scissors", "glasses")
    one = thing if plural else an(thing)
    if r.random() < 0.6:
        q = ask(
            r,
            "{What {is $a|do you use $a} for?|What can you do with $a?|What do you do with "
            "$a?|What do "
            "people use $a for?|Why do we need $a?}".replace(
                "is $a", "are $a" if plural else "is $a"
            ),
            a=one,
        )
        return q, f"You use {one} to {purpose}.", None
    q = ask(
        r,
        "{What do {I|you|we} need to $p?|What {do|can} {you|I} use to $p?|With what do you "
        "$p?|Which thing "
        "helps to $p?}",
        p=purpose,
    )
    return q, f"You need {one} to {purpose}.", thing


def job(r):
    name, does, place = r.choice(rows(facts.JOBS))
    kind = r.randrange(3)
    if kind == 0:
        q = ask(
            r,
            "{What does $a do?|What is the job of $a?|What is $a?|Who is $a?|What do you "
            "do as $a?}",
            a=an(name),
        )
        return q, f"{cap(an(name))} {does}.", None
    if kind == 1:
        q = ask(r, "{Where does $a work?|What is the work place of $a?}", a=an(name))
        return (
            q,
            (
                f"{cap(an(name))} works in {place}."
                if place not in ("a farm", "a plane", "a desk")
                else f"{cap(an(name))} works {'at' if place == 'a desk' else 'on'} {place}."
            ),
            None,
        )
    q = ask(
        r, "{Who $d?|What is the name of someone who $d?|What do you call a person who $d?}", d=does
    )
    return q, f"{cap(an(name))} {does}.", name


def calendar(r):
    kind = r.randrange(6)
    week = r.random() < 0.5
    row = facts.DAYS if week else facts.MONTHS
    at = r.randrange(len(row))
    unit = "day" if week else "month"
    if kind < 2:
        q = ask(r, "{What|Which} $u comes {after|next after} $a?", u=unit, a=row[at])
        nxt = row[(at + 1) % len(row)]
        return q, f"{nxt} comes after {row[at]}.", nxt
    if kind == 2:
        q = ask(r, "{What|Which} $u {comes|is} before $a?", u=unit, a=row[at])
        return q, f"{row[at - 1]} comes before {row[at]}.", row[at - 1]
    if kind == 3:
        q = ask(
            r,
            "{Today is $a. What day is {it |}tomorrow?|If today is $a, what day is tomorrow?}",
            a=facts.DAYS[at % 7],
        )
        nxt = facts.DAYS[(at + 1) % 7]
        return q, f"Tomorrow is {nxt}.", nxt
    at = r.randrange(12)
    if kind == 4:
        days = facts.MONTH_DAYS[at] + (" or 29" if at == 1 else "")
        q = ask(
            r,
            "How many days {are in|does} $a{ have|}?".replace(
                "{are in|does} $a{ have|}", r.choice(["are in $a", "does $a have"])
            ),
            a=facts.MONTHS[at],
        )
        return q, f"{facts.MONTHS[at]} has {days} days.", days
    size = r.choice([7, 12])
    at %= size
    row, unit = (
        (facts.DAYS, "day of the week") if size == 7 else (facts.MONTHS, "month of the year")
    )
    q = ask(r, "{What|Which} is the $o $u?", o=facts.ORDINALS[at], u=unit)
    return q, f"The {facts.ORDINALS[at]} {unit} is {row[at]}.", row[at]
