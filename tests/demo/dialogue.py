"""Whole dialogues: topics that need the dictionary, a story or the earlier turns, and the mixer.

`Mixer(lexicon).dialogue(r)` returns [(role, text), ...] that starts with an optional system turn
and ends with an assistant turn. `lexicon` is what corpus.py read from WordNet: objects with word,
pos ('n', 'v', 'a'), gloss, examples, kind (the more general word or None), weight.
"""

import chat
import chatter
import facts
import sums
from chat import NAMES, ask, known, plain_words
from say import an, cap, listing, say
from stories import BEASTS, COLOURS, FOODS, FRIENDLY, PLACES, THINGS, cast, story

HOBBIES = [
    "football",
    "music",
    "chess",
    "books",
    "swimming",
    "cooking",
    "dancing",
    "drawing",
    "cats",
    "dogs",
    "trains",
    "space",
    "gardening",
    "running",
    "fishing",
    "old films",
    "mathematics",
    "computers",
    "tennis",
    "travelling",
    "birds",
    "horses",
    "pizza",
    "tea",
    "coffee",
    "chocolate",
]
SYLLABLES = (
    "bla blor cra dro fli flo gra gri klo mor nar pli quo ra shi sna snor spi tra tro vor "
    "wim wo zan zi"
).split()
ENDINGS = (
    "bble ddle ffin gle kker lux mbo nk nter pper rble rp sk stle tter vian xel zzo nia "
    "ron dian lork"
).split()
SURNAMES = (
    "Smith Jones Brown Miller Wilson Taylor Moore Clark Hall Young King Wright Hill Green "
    "Baker "
    "Carter Parker Collins Murphy Cook Bell Ward Cox Gray Wood Watson Kelly Price "
    "Bennett"
).split()


# --- stories ------------------------------------------------------------------------------------


def tell_story(r):
    subject = r.choice([None, None, r.choice(BEASTS), r.choice(FRIENDLY), "girl", "boy"])
    slots, plot, text = story(r, subject)
    about = {
        "lost": f"a lost {slots['thing']}",
        "share": "sharing",
        "fear": "being brave",
        "learn": "learning something new",
        "rescue": "helping an animal",
        "lie": "telling the truth",
        "journey": "an adventure",
        "party": "a birthday",
        "seed": "a seed",
        "race": "a race",
        "quarrel": "two friends",
        "wish": "a wish",
        "newcomer": "a new friend",
        "storm": "a storm",
        "machine": "a machine",
        "night": "the night",
        "cold_guest": "a kind heart",
    }[plot]
    options = [
        an(slots["kind"]),
        about,
        f"{an(slots['kind'])} named {slots['N']}",
        f"{an(slots['kind'])} and {slots['F']}",
        an(f"{slots['trait']} {slots['kind']}"),
        slots["N"],
    ]
    if slots["place"] in text:
        options.append(f"{an(slots['kind'])} {slots['at']}")
    plain = subject is None and r.random() < 0.6
    q = ask(
        r,
        (
            "{{Tell|Write} me a [short |little ]story.|{Tell|Write} a [short ]story.|A story, "
            "please.|Can you tell "
            "me a [short ]story?|Do you know a story?|I want to hear a story.|Tell me a "
            "bedtime story.|Story"
            " time!|Make up a story.|Another story, please.|Write a short story for "
            "children.}"
            if plain
            else "{Tell me a [short |little ]story about $a.|Write a [short ]story about $a.|"
            "Can you tell me a story "
            "about $a?|A story about $a, please.|I want a story about $a.|Make up a story about "
            "$a.|Please write a "
            "story about $a.|Do you know a story about $a?}"
        ),
        a=r.choice(options),
    )
    return q, text, None


def continue_story(r):
    _, _, text = story(r)
    cut = text.find(". ", r.randrange(30, 160)) + 1
    if cut < 20:
        return tell_story(r)
    q = say(
        r,
        "{Continue {this|the} story|Go on|Finish {this|the} story|What happens "
        "next|Complete this story}: $t",
        t=text[:cut],
    )
    return q, text[cut:].strip(), None


def poem(r):
    x = r.choice(
        HOBBIES
        + [
            "the wind",
            "my garden",
            "my school",
            "the morning",
            "a bird",
            "a horse",
            "bread",
            "home",
            "my mother",
            "a train",
            "the city",
            "a river",
            "a robot",
            "a star",
        ]
    )
    text = r.choice(
        [
            "I thought about $x today,\nand all my worries went away.\nI wrote it down, I made it "
            "rhyme,\nand I will read it "
            "many a time.",
            "When I am sad and skies are grey,\nI think of $x and feel okay.\nA little thought, a "
            "little light,\nand "
            "everything is warm and bright.",
        ]
    ).replace("$x", x)
    text = "\n".join(cap(line) for line in text.split("\n"))
    q = ask(
        r,
        "{Write [me ]a [short ]poem about $x.|A poem about $x, please.|Can you write a "
        "poem about $x?|Make a "
        "rhyme about $x.}",
        x=x,
    )
    return q, text, None


# --- reading from the prompt --------------------------------------------------------------------


def reading(r):
    """Questions whose answers stand in the prompt."""
    people = r.sample(NAMES, r.choice([2, 2, 3]))
    items = r.sample(THINGS, len(people))
    tints = r.sample(COLOURS, len(people))
    places = [p[1] for p in r.sample(PLACES, len(people))]
    i = r.randrange(len(people))
    kind = r.randrange(4)
    if kind == 0:
        text = " ".join(f"{p} has {an(c + ' ' + t)}." for p, c, t in zip(people, tints, items))
        owned = an(tints[i] + " " + items[i])
        q, a, b = r.choice(
            [
                (f"Who has the {items[i]}?", f"{people[i]} has the {items[i]}.", people[i]),
                (f"What does {people[i]} have?", f"{people[i]} has {owned}.", items[i]),
                (f"What colour is the {items[i]}?", f"The {items[i]} is {tints[i]}.", tints[i]),
                (f"Who has something {tints[i]}?", f"{people[i]} has {owned}.", people[i]),
            ]
        )
    elif kind == 1:
        text = " ".join(f"{p} is {w}." for p, w in zip(people, places))
        q, a, b = r.choice(
            [
                (f"Where is {people[i]}?", f"{people[i]} is {places[i]}.", None),
                (f"Who is {places[i]}?", f"{people[i]} is {places[i]}.", people[i]),
            ]
        )
    elif kind == 2:
        foods = r.sample(HOBBIES, len(people))
        text = " ".join(f"{p} likes {f}." for p, f in zip(people, foods))
        q, a, b = r.choice(
            [
                (f"What does {people[i]} like?", f"{people[i]} likes {foods[i]}.", foods[i]),
                (f"Who likes {foods[i]}?", f"{people[i]} likes {foods[i]}.", people[i]),
            ]
        )
    else:
        ages = r.sample(range(3, 90), len(people))
        text = " ".join(f"{p} is {n} years old." for p, n in zip(people, ages))
        old = ages.index(max(ages))
        q, a, b = r.choice(
            [
                (f"How old is {people[i]}?", f"{people[i]} is {ages[i]} years old.", str(ages[i])),
                ("Who is the oldest?", f"{people[old]} is the oldest.", people[old]),
            ]
        )
    return (f"{text} {q}" if r.random() < 0.8 else f"{q} {text}"), a, b


def echo(r, sentence=None):
    """Says what it is told to say; `sentence` is one more text to take, if there is one."""
    text = r.choice(
        [
            sentence or fake(r),
            sentence or r.choice(NAMES) + " " + fake(r, True),
            " ".join(
                r.choice([fake(r), r.choice(plain_words())]) for _ in range(r.randrange(1, 6))
            ),
            str(r.randrange(10 ** r.randrange(1, 9))),
            r.choice(plain_words()),
            " ".join(r.sample(plain_words(), r.randrange(2, 5))),
            "I like " + r.choice(HOBBIES),
            story(r)[2].split(".")[0],
            r.choice(NAMES),
        ]
    )
    kind = r.randrange(5)
    if kind < 3 or "\"" in text:
        q = ask(
            r,
            "{Repeat after me: $t|Say \"$t\".|Repeat: $t|Say: $t|Write \"$t\".|Please say "
            "$t|Just say $t}",
            t="\0",
        )
        return q.replace("\0", text), text, None
    if kind == 3:
        q = ask(
            r,
            "{Write \"$t\" in capital letters.|Write $t in capitals.|Make this upper case: $t}",
            t="\0",
        )
        return q.replace("\0", text.lower()), text.upper(), None
    word = text.split()[0].strip(",")
    n = r.randrange(2, 6)
    q = ask(
        r,
        "{Say {$t|\"$t\"} $n times.|Repeat $t $n times.|Write $t $n times.}",
        t="\0",
        n=facts.NUMBERS[n],
    )
    return q.replace("\0", word), " ".join([word] * n), None


# --- what it cannot know ------------------------------------------------------------------------


def fake(r, title=False):
    word = "".join(r.choice(SYLLABLES) for _ in range(r.randrange(1, 3))) + r.choice(ENDINGS)
    return cap(word) if title else word


def unknown(r):
    kind = r.randrange(5)
    if kind < 2:
        w = fake(r)
        q = ask(
            r,
            "{What is $a?|What does {$w|\"$w\"} mean?|Define $w.|What is the meaning of "
            "$w?|Tell me about $w.|"
            "What is $w?|Explain $w.|What do you know about $w?}",
            w=w,
            a=an(w),
        )
        return q, "I do not know that word.", None
    if kind == 2:
        first = r.choice([r.choice(NAMES), fake(r, True)])
        name = first + " " + r.choice([r.choice(SURNAMES), fake(r, True)])
        q = ask(
            r,
            "{Who is $n?|Who was $n?|Tell me about $n.|Do you know $n?|When was $n "
            "born?|Where does $n "
            "live?|What did $n do?|Who is $n and what does $n do?}",
            n=name,
        )
        return q, "I do not know who that is.", None
    if kind == 3:
        place = fake(r, True)
        q = ask(
            r,
            "{What is the capital of $p?|Where is $p?|What language do they speak in "
            "$p?|Tell me about $p.|How "
            "many people live in $p?}",
            p=place,
        )
        return q, "I do not know a place with that name.", None
    name, capital, _, _ = r.choice(facts.rows(facts.COUNTRIES))
    q = ask(
        r,
        "{How many people live in {$n|$c}?|What is the population of {$n|$c}?|Who is the "
        "mayor of $c?|What is "
        "the weather in $c?|What is the best restaurant in $c?|How far is it from $c to "
        "$d?|How do I get to "
        "$c?|How big is $n?|When was $c founded?|How much does a flight to $c cost?}",
        n=name,
        c=capital,
        d=r.choice(facts.rows(facts.COUNTRIES))[1],
    )
    return q, "I do not know that.", None


# --- things the user says about themselves ------------------------------------------------------


def remember(r):
    """(statement, reply, [(later question, answer)])"""
    name, kind = r.choice([r.choice(NAMES), fake(r, True)]), r.randrange(6)
    hobby, city = r.choice(HOBBIES), r.choice(facts.rows(facts.COUNTRIES))[1]
    if kind < 2:
        return (
            ask(
                r,
                "{My name is $n.|I am $n.|I'm $n.|Hi, I'm $n.|Hello, my name is $n.|Call "
                "me $n.|You can call me "
                "$n.|Hi! I am $n.}",
                n="\0",
            ).replace("\0", name),
            f"Nice to meet you, {name}!",
            [
                (
                    "{What is my name?|What's my name?|Do you remember my name?|Who am I?|Do you "
                    "know my name?|Say my "
                    "name.}",
                    f"Your name is {name}.",
                )
            ],
        )
    if kind == 2:
        return (
            ask(r, "{I like $h.|I love $h.|My hobby is $h.|I really like $h.}", h=hobby),
            (
                f"{cap(hobby)}! That sounds nice. What do you like about it?"
                if r.random() < 0.5
                else "That is nice!"
            ),
            [
                (
                    "{What do I like?|Do you remember what I like?|What is it that I like?}",
                    f"You like {hobby}.",
                )
            ],
        )
    if kind == 3:
        return (
            ask(
                r, "{I live in $c.|I come from $c.|I am from $c.|My home is in $c.}", c="\0"
            ).replace("\0", city),
            f"{city} must be an interesting place.",
            [
                (
                    "{Where do I live?|Where do I come from?|Where am I from?|In which city do I "
                    "live?}",
                    f"You are from {city}.",
                )
            ],
        )
    if kind == 4:
        age = r.randrange(5, 90)
        return (
            ask(r, "{I am $a years old.|I'm $a.|I am $a.|My age is $a.}", a=age),
            f"{age} is a good age!",
            [
                (
                    "{How old am I?|What is my age?|Do you know how old I am?}",
                    f"You are {age} years old.",
                )
            ],
        )
    pet, colour = r.choice(["dog", "cat", "horse", "rabbit", "parrot", "mouse"]), r.choice(COLOURS)
    if r.random() < 0.5:
        return (
            ask(
                r,
                "{I have a $p called $n.|My $p is called $n.|I have a $p. Its name is "
                "$n.|My $p's name is $n.}",
                p=pet,
                n="\0",
            ).replace("\0", name),
            f"{name} is a lovely name for a {pet}!",
            [
                (
                    "{What is my $p called?|What is the name of my $p?|How is my $p "
                    "called?}".replace("$p", pet),
                    f"Your {pet} is called {name}.",
                ),
                (
                    "{What pet do I have?|Which animal do I have?|Do I have a pet?}",
                    f"You have a {pet}.",
                ),
            ],
        )
    return (
        ask(r, "My favourite colour is $c.", c=colour),
        f"{cap(colour)} is a beautiful colour.",
        [
            (
                "{What is my favourite colour?|Which colour do I like?}",
                f"Your favourite colour is {colour}.",
            )
        ],
    )


FOLLOW = [
    (
        "{Are you sure?|Really?|Is that true?|Is that right?|Are you certain?}",
        "I think so, but I am a very small model and can be wrong.",
    ),
    (
        "{Why?|Why is that?|How come?|Why so?}",
        "I cannot explain it well. I am only a very small model.",
    ),
    (
        "{How do you know that?|Who told you that?|Where did you learn that?}",
        "I learned it from the texts I was trained on.",
    ),
    (
        "{Thanks|Thank you|Thank you!|Thanks!|Great, thanks.}",
        "You are welcome! Is there anything else?",
    ),
    (
        "{OK|Okay|I see.|Interesting.|Good.|Good to know.}",
        "Is there anything else you would like to know?",
    ),
]

SYSTEMS = [
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "You are an assistant.",
    "Be helpful.",
    "You are a helpful AI assistant that answers questions.",
    "Answer the user's questions.",
    "You are a small language model.",
    "Be polite and helpful.",
    "You help people.",
    "You are a teacher. Answer simply.",
    "Answer truthfully.",
    "Be concise.",
    "Keep your answers short.",
]


class Mixer:
    """Draws topics by weight; holds the lexicon."""

    def __init__(self, lexicon):
        self.lexicon = lexicon
        self.weights = [entry.weight for entry in lexicon]
        total, self.bounds = 0.0, []
        for weight in self.weights:
            total += weight
            self.bounds.append(total)
        self.nouns = [entry for entry in lexicon if entry.pos == "n"]
        self.pool = []
        self.table = [
            (7, known("persona")),
            (7, known("smalltalk")),
            (13, known("general")),
            (3, known("howto")),
            (5, known("refuse")),
            (4, unknown),
            (6, chat.country),
            (1, chat.about_country),
            (9, sums.sums),
            (2, sums.word_problem),
            (5, sums.number_sense),
            (2, chat.opposite),
            (1.5, chat.rhyme),
            (2, chat.grammar),
            (3, chat.spelling),
            (1, chat.alphabet),
            (1.5, chat.translation),
            (2, chat.colour),
            (5, chat.animal),
            (4, chat.category),
            (2, chat.compare),
            (2, chat.use),
            (1.5, chat.job),
            (1.5, chat.calendar),
            (8, tell_story),
            (1.5, continue_story),
            (0.5, poem),
            (2.5, reading),
            (3, self.repeat),
            (16, self.define),
            (1.5, self.sentence),
            (1, self.synonym),
            (1.5, chatter.opinion),
            (2, chatter.statement),
            (3, chatter.untaught),
            (1.5, chatter.ability),
            (1, chatter.author),
            (0.7, chatter.state),
        ]
        self.topics = [topic for _, topic in self.table]
        self.shares = [share for share, _ in self.table]

    def entry(self, r):
        if not self.pool:
            self.pool = r.choices(self.lexicon, cum_weights=self.bounds, k=4096)
        return self.pool.pop()

    def topic(self, r):
        return r.choices(self.topics, self.shares)[0](r)

    def define(self, r):
        e = self.entry(r)
        if e.pos == "n":
            q = ask(
                r,
                "{What is $a?|What is $a?|What is $w?|What does {$w|\"$w\"} mean?|Define "
                "$w.|Define \"$w\".|What "
                "is the meaning of $w?|Explain what $a is.|What is meant by $w?|Meaning of "
                "$w?}",
                w=e.word,
                a=an(e.word) if e.countable else e.word,
            )
            if e.countable and e.word[-1] not in "sxyhfz" and r.random() < 0.06:
                q = ask(
                    r,
                    "{What are $ws?|Tell me about $ws.|What is meant by $ws?}".replace(
                        "$ws", e.word + "s"
                    ),
                )
            if e.kind and r.random() < 0.08:
                q = ask(
                    r,
                    "{What kind of thing is $a?|Of what kind is $a?|Is $a a kind of $k?}",
                    a=an(e.word),
                    k=e.kind,
                )
                yes = "Yes, " if " kind of " + e.kind in q.lower() else ""
                return q, cap(f"{yes}{an(e.word)} is a kind of {e.kind}."), None
            return q, f"{cap(e.subject)} is {e.gloss}.", None
        if e.pos == "v":
            q = ask(
                r,
                "{What does {to $w|\"to $w\"|$w|\"$w\"} mean?|Define {to |}$w.|What is the "
                "meaning of {to |}$w?|"
                "What is it to $w?}",
                w=e.word,
            )
            return q, f"To {e.word} means to {e.gloss}.", None
        q = ask(
            r,
            "{What does {$w|\"$w\"} mean?|Define $w.|What is the meaning of "
            "{$w|\"$w\"}?|What does it mean to be "
            "$w?}",
            w=e.word,
        )
        return q, f"{cap(e.word)} means {e.gloss}.", None

    def sentence(self, r):
        e = self.entry(r)
        if not e.examples:
            word = r.choice(plain_words())
            return echo(r) if len(word) < 2 else self.define(r)
        q = ask(
            r,
            "{Use {$w|\"$w\"} in a sentence.|{Make|Write} a sentence with {$w|\"$w\"|the "
            "word $w}.|Give me an example "
            "sentence with $w.|Give me a sentence {with|using} {$w|the word $w}.}",
            w=e.word,
        )
        return q, r.choice(e.examples), None

    def repeat(self, r):
        e = self.entry(r)
        return echo(r, r.choice(e.examples or [cap(e.gloss)]).replace("\"", ""))

    def synonym(self, r):
        e = self.entry(r)
        while not e.synonyms:
            e = self.entry(r)
        q = ask(
            r,
            "{What is another word for {$w|\"$w\"}?|What is a synonym {of|for} {$w|\"$w\"}?|Give "
            "me "
            "another word for $w.|Which word means the same as $w?|Name a synonym for $w.}",
            w=e.word,
        )
        return q, f"Another word for {e.word} is {e.synonyms[0]}.", e.synonyms[0]

    def dialogue(self, r):
        shape = r.random()
        turns = []
        if shape < 0.06:
            return self.one_word(r)
        if shape < 0.10:
            return self.styled(r)
        if shape < 0.18:
            turns.append(("system", r.choice(SYSTEMS)))
        if r.random() < 0.09:
            return turns + self.memory(r)
        if r.random() < 0.05:
            return turns + self.chain(r)
        count = r.choice([1, 1, 1, 1, 1, 2, 2, 3, 4, 5])
        for n in range(count):
            q, a, _ = self.topic(r)
            turns += [("user", q), ("assistant", a)]
            if r.random() < 0.06:
                q, a = r.choice(FOLLOW)
                turns += [("user", ask(r, q)), ("assistant", a)]
        return turns

    def memory(self, r):
        turns, later = [], []
        for _ in range(r.choice([1, 1, 2])):
            text, reply, questions = remember(r)
            turns += [("user", text), ("assistant", reply)]
            later += [r.choice(questions)]
        for _ in range(r.choice([0, 0, 1, 2])):
            q, a, _ = self.topic(r)
            turns += [("user", q), ("assistant", a)]
        seen = set()
        for q, a in r.sample(later, len(later)):
            if q[:12] not in seen:
                seen.add(q[:12])
                turns += [("user", ask(r, q)), ("assistant", a)]
        return turns

    def chain(self, r):
        """'And of Spain?', 'And 3 + 4?': questions that lean on the one before."""
        turns, kind = [], r.randrange(4)
        n = r.randrange(2, 5)
        if kind == 0:
            for i, (name, capital, _, _) in enumerate(r.sample(facts.rows(facts.COUNTRIES), n)):
                q = say(
                    r,
                    (
                        "What is the capital of $c?"
                        if i == 0
                        else "{And of $c?|And $c?|What about $c?|And the capital of $c?|Now $c.}"
                    ),
                    c=name,
                )
                turns += [("user", q), ("assistant", f"The capital of {name} is {capital}.")]
        elif kind == 1:
            for i, (a, b) in enumerate(r.sample(facts.pairs(facts.OPPOSITES), n)):
                q = say(
                    r,
                    (
                        "What is the opposite of $a?"
                        if i == 0
                        else "{And of $a?|And $a?|What about $a?}"
                    ),
                    a=a,
                )
                turns += [("user", q), ("assistant", f"The opposite of {a} is {b}.")]
        elif kind == 2:
            for i in range(n):
                a, b = r.randrange(30), r.randrange(30)
                q = say(
                    r,
                    "What is $s?" if i == 0 else "{And $s?|What about $s?|Now $s.}",
                    s=f"{a} + {b}",
                )
                turns += [("user", q), ("assistant", f"{a} + {b} = {a + b}.")]
        else:
            for i, row in enumerate(r.sample(facts.rows(facts.ANIMALS), n)):
                q = say(
                    r,
                    "What sound does $a make?" if i == 0 else "{And $a?|What about $a?}",
                    a=an(row[0]),
                )
                turns += [("user", q), ("assistant", f"{cap(an(row[0]))} {row[1]}.")]
        return turns

    def brief_topic(self, r):
        while True:
            q, a, brief = self.topic(r)
            if brief:
                return q, a, cap(str(brief))

    def one_word(self, r):
        """One-word answers, asked for by the system prompt or by the user."""
        order = r.choice(
            [
                "Answer with one word.",
                "Answer in one word.",
                "Only answer with one word.",
                "Give one-word answers.",
                "Reply with a single word.",
                "One word answers only.",
            ]
        )
        if r.random() < 0.4:
            q, _, brief = self.brief_topic(r)
            q = f"{q} {order}" if q[-1] in ".?!" else f"{q}. {order}"
            return [("user", q), ("assistant", brief)]
        turns = [("system", r.choice(["", "You are a helpful assistant. "]) + order)]
        for _ in range(r.choice([1, 1, 2, 3])):
            q, _, brief = self.brief_topic(r)
            turns += [("user", q), ("assistant", brief)]
        return turns

    def styled(self, r):
        """System prompts that name the assistant or change how it writes."""
        kind, name = r.randrange(4), r.choice(NAMES + [fake(r, True), "Robo", "Max", "Bot"])
        if kind == 0:
            system = say(
                r,
                "{Your name is $n.|You are $n.|You are $n, a helpful assistant.|You "
                "are called $n.|You are an "
                "assistant named $n.}",
                n=name,
            )
            q = ask(
                r,
                "{What is your name?|Who are you?|What's your name?|Who is this?|Introduce "
                "yourself.|Do you have "
                "a name?}",
            )
            turns = [("system", system), ("user", q), ("assistant", f"My name is {name}.")]
            for _ in range(r.choice([0, 0, 1, 2])):
                q, a, _ = self.topic(r)
                turns[-2:-2] = [("user", q), ("assistant", a)]
            return turns
        orders, change = [
            (
                [
                    "You are a pirate.",
                    "Talk like a pirate.",
                    "You are a pirate. Answer like a pirate.",
                ],
                lambda a: "Arr! " + a.rstrip() + " Yo ho ho!",
            ),
            (
                [
                    "Answer in capital letters.",
                    "Write everything in capital letters.",
                    "Use only upper case letters.",
                ],
                lambda a: a.upper(),
            ),
            (
                [
                    "End every answer with \"meow\".",
                    "You are a cat. Say meow after every answer.",
                    "You are a cat.",
                ],
                lambda a: a.rstrip() + " Meow!",
            ),
        ][kind - 1]
        turns = [("system", r.choice(orders))]
        for _ in range(r.choice([1, 1, 2, 3])):
            q, a, _ = self.topic(r)
            while len(a) > 300 or "\n" in a:
                q, a, _ = self.topic(r)
            turns += [("user", q), ("assistant", change(a))]
        return turns
