"""Short stories in simple English, made of beats.

A plot in stories.txt is a list of beats, a beat a list of templates (see say.py), and one template
of each beat is taken. The slots are filled by a cast: hero, friend, place, thing, food. Every
sentence was written for this project.
"""

import re
from functools import lru_cache
from pathlib import Path

from say import an, cap, say

GIRLS = (
    "Lily Anna Mia Sara Emma Lucy Nora Ella Rosa Amy Zoe Maya Julia Clara Hanna Kate Ruth Ida "
    "Eva Tina Molly Grace Alice Jane"
).split()
BOYS = (
    "Tom Ben Max Sam Leo Tim Jack Noah Paul Omar Finn Adam Oscar Peter Luke Hugo Emil Ravi Dan "
    "Theo Joe Carl Eric Nick"
).split()
BEASTS = (
    "fox rabbit bear mouse owl cat dog frog duck hedgehog squirrel turtle sheep goat pony "
    "hen crow penguin lion elephant monkey tiger wolf deer pig beaver otter"
).split()
FRIENDLY = (
    "dragon",
    "robot",
    "giant",
    "wizard",
    "knight",
    "princess",
    "prince",
    "king",
    "queen",
    "farmer",
    "sailor",
    "baker",
    "fisherman",
    "gardener",
    "pirate",
    "ghost",
    "fairy",
)
PLACES = [
    ("forest", "in the forest", "among the trees"),
    ("park", "in the park", "near the pond"),
    ("village", "in a small village", "by the old well"),
    ("farm", "on a farm", "behind the " "barn"),
    ("beach", "at the beach", "between the rocks"),
    ("garden", "in the garden", "under the " "bushes"),
    ("town", "in a quiet town", "near the market"),
    ("lake", "by a lake", "in the tall " "grass"),
    ("mountain", "on a green mountain", "under a big stone"),
    ("castle", "in an old castle", "at the foot of the tower"),
    ("river", "by the river", "under the bridge"),
    ("city", "in a big city", "on a busy " "street"),
    ("island", "on a little island", "in the warm sand"),
    ("school", "at school", "behind the library"),
]
THINGS = (
    "ball kite book key hat toy boat drum lamp bell ring basket doll coin box map scarf "
    "flute "
    "bike cup blanket umbrella shell pencil"
).split()
COLOURS = "red blue green yellow white black brown golden silver purple orange pink".split()
FOODS = [
    "apple",
    "cake",
    "cookie",
    "sandwich",
    "pie",
    "pear",
    "carrot",
    "bun",
    "bowl of soup",
    "piece of bread",
    "plum",
    "pancake",
    "piece of cheese",
]
TRAITS = "kind brave curious clever shy cheerful lazy careful gentle proud honest patient".split()
FEARS = [
    ("the dark", "turn off the light"),
    ("deep water", "go into the water"),
    ("loud thunder", "listen to the storm"),
    ("high places", "climb the ladder"),
    ("big dogs", "pass the gate"),
    ("speaking in front of people", "stand up and speak"),
]
SKILLS = [
    ("swim", "swam"),
    ("ride a bike", "rode"),
    ("sing", "sang"),
    ("read", "read"),
    ("draw a horse", "drew"),
    ("bake bread", "baked"),
    ("play the drum", "played"),
    ("fly a kite", "flew the kite"),
    ("climb a tree", "climbed"),
    ("skate", "skated"),
]


@lru_cache(maxsize=None)
def plots():
    """{plot: [[template of the first beat, ...], ...]} of stories.txt."""
    found = {}
    text = re.sub(r"\n  ", " ", (Path(__file__).parent / "stories.txt").read_text())
    for line in text.splitlines():
        if line.startswith("@"):
            beats = found.setdefault(line[1:], [])
        elif line.startswith("*"):
            beats.append([])
        elif line.startswith("- "):
            beats[-1].append(line[2:])
    return found


def cast(r, subject=None):
    """Slots for one story; `subject` is a kind of hero (an animal, 'girl', ...) or None."""
    kind = subject or r.choice(["girl", "boy", "girl", "boy", r.choice(BEASTS), r.choice(FRIENDLY)])
    she = kind in ("girl", "princess", "queen", "fairy", "hen") or (
        kind not in ("boy", "prince", "king") and r.random() < 0.5
    )
    name = r.choice(GIRLS if she else BOYS)
    friend = r.choice([n for n in GIRLS + BOYS if n != name])
    if r.random() < 0.3:
        friend = "the " + r.choice([b for b in BEASTS if b != kind])
    place, at, spot = r.choice(PLACES)
    trait, colour, food = r.choice(TRAITS), r.choice(COLOURS), an(r.choice(FOODS))
    fear, brave = r.choice(FEARS)
    skill, skilled = r.choice(SKILLS)
    look = r.choice(["little ", "young ", "small ", trait + " ", "", trait + " little "])
    he, him, his = ("she", "her", "her") if she else ("he", "him", "his")
    return dict(
        N=name,
        F=friend,
        kind=kind,
        a_hero=an(look + kind),
        place=place,
        at=at,
        At=cap(at),
        spot=spot,
        parent=r.choice(["mother", "father", "grandmother"]),
        trait=trait,
        colour=colour,
        food=food,
        fear=fear,
        brave=brave,
        skill=skill,
        skilled=skilled,
        thing=r.choice(THINGS),
        he=he,
        him=him,
        his=his,
        He=cap(he),
        His=cap(his),
        himself="herself" if she else "himself",
    )


PARTS = ("open", "likes", "when", "close")


def story(r, subject=None, plot=None):
    """(slots, plot, text). Paragraph breaks fall between beats."""
    tale, slots = plots(), cast(r, subject)
    plot = plot or r.choice([p for p in tale if p not in PARTS])
    start = [r.choice(tale["open"][0])] + r.sample(tale["likes"][0], r.choice([0, 1, 1, 2]))
    beats = [" ".join(say(r, line, **slots) for line in start)]
    for beat in tale[plot]:
        slots["when"] = say(r, r.choice(tale["when"][0]))
        beats.append(say(r, r.choice(beat), **slots))
    if r.random() < 0.45:
        beats.append(say(r, r.choice(tale["close"][0]), **slots))
    text, style = cap(beats[0]), r.random()
    for n, beat in enumerate(beats[1:]):
        gap = "\n\n" if (style < 0.5 and n % 2 == 0) or style > 0.9 else " "
        text += gap + cap(beat)
    # A sentence may begin with a slot that holds "the owl".
    return slots, plot, re.sub(r"([.!?]\s+)the ", r"\1The ", text)
