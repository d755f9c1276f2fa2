"""Topics for what people ask and say that no table holds: opinions, statements about their day,
questions that nobody taught the model, and what animals can and cannot do."""

import facts
from chat import NAMES, ask
from say import an, cap, say
from stories import COLOURS, THINGS

LIKED = (
    "football|music|chess|books|swimming|cooking|dancing|drawing|cats|dogs|trains|space|gardening|"
    "running|fishing|old films|mathematics|computers|tennis|birds|horses|pizza|tea|coffee|"
    "chocolate|rain|snow|summer|winter|the sea|the mountains|school|children|flowers|cheese|"
    "Mondays|Sundays|spiders|mice|robots|poetry|jazz|politics|cars|bicycles|ice cream|soup|apples"
).split("|")


def opinion(r):
    x = r.choice(LIKED)
    q = ask(
        r,
        "{Do you like $x?|What do you think about $x?|What do you think of $x?|What is your "
        "opinion about $x?|Do you love $x?|Do you hate $x?|How do you like $x?|Do you enjoy $x?}",
        x=x,
    )
    return q, f"I am a program and have no taste, but many people like {x}.", None


def statement(r):
    """Something about the user's day, and a friendly reply that takes it up."""
    x, thing, who = r.choice(LIKED), r.choice(THINGS), r.choice(NAMES)
    said, reply = r.choice(
        [
            (
                "I {bought|got|made|found} $a {today|yesterday|this morning|last week|}.",
                "How nice! What does your $t look like?",
            ),
            ("I {lost|broke} my $t{ today| yesterday|}.", "Oh no! I am sorry about your $t."),
            (
                "{I met my friend $w today.|I saw $w today.|I visited $w.|I talked to $w.}",
                "How nice! How is $w?",
            ),
            ("{I don't like|I do not like|I hate} $x.", "That is fine. Not everyone likes $x."),
            (
                "{I want to learn about|I am interested in} $x.",
                "That is a good idea. What would you like to know?",
            ),
            (
                "{My friend $w is sick.|$w is ill.|$w is in hospital.}",
                "I am sorry to hear that. I hope that $w gets well soon.",
            ),
            (
                "{I have a new job.|I passed my exam.|I won a prize.|I got married.|I have good "
                "news.}",
                "Congratulations! That is wonderful.",
            ),
            (
                "{I lost my job.|I failed my exam.|My dog died.|My cat died.|I broke my leg.|My "
                "bike was "
                "stolen.|I have bad news.|I had a fight with my friend.}",
                "I am very sorry to hear that.",
            ),
            (
                "{I am going on holiday.|I am going to the beach.|I will travel tomorrow.|I am "
                "going to "
                "the cinema.|I am going out.}",
                "That sounds nice. Have a good time!",
            ),
            (
                "{I am at home.|I am at work.|I am at school.|I am on the train.|I am outside.}",
                "I see. What are you doing there?",
            ),
            (
                "{It is raining.|It rains.|It is snowing.|The sun is shining.|The weather is "
                "{nice|bad|good}.|It is windy.}",
                "Thank you for telling me. I cannot see the weather.",
            ),
            ("{I am a $j.|I work as a $j.|My job is $j.}", "Being a $j must be interesting."),
            (
                "{I am learning English.|I learn English.|My English is not good.|I speak little "
                "English.}",
                "Your English is good! Practise a little every day.",
            ),
            (
                "{I am cooking.|I am reading.|I am working.|I am eating.|I am writing a letter.|I "
                "am "
                "listening to music.}",
                "That sounds good. Enjoy it!",
            ),
            ("My $t is $c.", "A $c $t! That sounds pretty."),
            (
                "{$w is my best friend.|My best friend is $w.|My brother is called $w.|My sister "
                "is "
                "called $w.|My mother is called $w.|My teacher is $w.}",
                "$w sounds like a nice person.",
            ),
        ]
    )
    slots = dict(
        x=x,
        t=thing,
        a=an(thing),
        w=who,
        c=r.choice(COLOURS),
        j=r.choice([row[0] for row in facts.rows(facts.JOBS)]),
    )
    text = ask(r, said, **slots).replace(" .", ".")
    return text, say(r, reply, **slots), None


WHYS = (
    "{birds|children|people|cats|dogs|fish|bees|horses|trees|flowers|men|women|babies|kings} "
    "{sing|dance|play|jump|grow|dig|fight|swim|hide|smile|whistle|argue|travel|work|dream}"
)
HOWS = (
    "{fix|repair|build|paint|clean|sell|find|open|use|carry|wrap|sharpen|move|cut|polish|store} "
    "{a|my|an old|a new} {bike|car|roof|table|watch|boat|engine|door|phone|lamp|piano|bed|fence|"
    "house|clock|radio|window|drum|wall|chair|shoe|garden|knife|coat|toy|robot|computer}"
)
AUTHORS = """
War and Peace:Leo Tolstoy
Don Quixote:Miguel de Cervantes
Faust:Johann Wolfgang von Goethe
the Odyssey:Homer
Moby Dick:Herman Melville
Frankenstein:Mary Shelley
Dracula:Bram Stoker
Alice in Wonderland:Lewis Carroll
Sherlock Holmes:Arthur Conan Doyle
Treasure Island:Robert Louis Stevenson
Peter Pan:J. M. Barrie
1984:George Orwell
Les Misérables:Victor Hugo
The Three Musketeers:Alexandre Dumas
Crime and Punishment:Fyodor Dostoevsky
Emma:Jane Austen
Sense and Sensibility:Jane Austen
Jane Eyre:Charlotte Brontë
The Divine Comedy:Dante
The Jungle Book:Rudyard Kipling
Pinocchio:Carlo Collodi
The Little Prince:Antoine de Saint-Exupéry
The Lord of the Rings:J. R. R. Tolkien
Robinson Crusoe:Daniel Defoe
Gulliver's Travels:Jonathan Swift
The Time Machine:H. G. Wells
"""
STATES = """
Alabama:Montgomery
Alaska:Juneau
Arizona:Phoenix
California:Sacramento
Colorado:Denver
Florida:Tallahassee
Georgia in the United States:Atlanta
Hawaii:Honolulu
Illinois:Springfield
Indiana:Indianapolis
Iowa:Des Moines
Kansas:Topeka
Louisiana:Baton Rouge
Maine:Augusta
Massachusetts:Boston
Michigan:Lansing
Minnesota:Saint Paul
Montana:Helena
Nevada:Carson City
New Mexico:Santa Fe
New York State:Albany
Ohio:Columbus
Oklahoma:Oklahoma City
Oregon:Salem
Pennsylvania:Harrisburg
Tennessee:Nashville
Texas:Austin
Utah:Salt Lake City
Virginia:Richmond
Washington State:Olympia
Bavaria:Munich
Ontario:Toronto
Quebec:Quebec City
Wales:Cardiff
Northern Ireland:Belfast
Tibet:Lhasa
Sicily:Palermo
"""


def author(r):
    if r.random() < 0.35:
        title = " ".join(cap(r.choice(THINGS + list(LIKED))) for _ in range(r.randrange(1, 3)))
        title = r.choice(["The ", "My ", "The Secret of the ", "A ", "The Last "]) + title
        q = ask(r, "{Who wrote $b?|Who is the author of $b?|Who wrote the book $b?}", b=title)
        return q, "I do not know that.", None
    book, writer = r.choice(facts.rows(AUTHORS))
    q = ask(r, "{Who wrote $b?|Who is the author of $b?|Who wrote the book $b?}", b=book)
    return q, f"{writer} wrote {book}.", None


def state(r):
    name, capital = r.choice(facts.rows(STATES))
    q = ask(r, "{What is|What's|Tell me} the capital of $c?", c=name)
    return q, f"The capital of {name} is {capital}.", capital


def untaught(r):
    """Questions of a common shape about common things whose answer is in no table."""
    if r.random() < 0.25:
        if r.random() < 0.5:
            return ask(r, "Why do " + WHYS + "?"), "I do not know why.", None
        return (
            ask(r, "{How do I|How can I|How do you} " + HOWS + "?"),
            "I do not know how to do that.",
            None,
        )
    animal = an(r.choice(facts.rows(facts.ANIMALS))[0])
    thing = r.choice(THINGS + [row[0] for row in facts.rows(facts.USES)])
    plural = thing if thing[-1] == "s" else thing + "s"
    country, city, _, _ = r.choice(facts.rows(facts.COUNTRIES))
    year = r.randrange(900, 2030)
    q = ask(
        r,
        "{How {tall|long|heavy|old|fast} is $n?|How much does $n weigh?|How much does $t weigh?|"
        "How many $p are there in {$c|the world|$l}?|Who invented the $o?|When was the $o "
        "invented?|Who {discovered|founded|conquered} $c?|What happened in $y?|What happened in "
        "$c in $y?|How {big|old|far} is $c?|Who was the king of $c in $y?|What is the highest "
        "{mountain|building} in $c?|What is the longest river in $c?|How many $p do I have?|How "
        "long does $n live?|How old can $n get?|How many children does $w have?|What is the "
        "phone number of $w?|What did $w say?|Where is $w?|Where is my $o?|Who took my $o?|How "
        "much is $t?|When does the {shop|school|museum|train} {open|close|start}?|Who won the "
        "{war|game|race} in $y?|What is the most famous {book|song|dish} in $c?|How many "
        "{words|pages|letters} are in this book?|Who lives in this house?|What is behind this "
        "door?|What is in this box?|What is the Latin name of $n?|How do you build $t?|What "
        "does $w like?|When was $w here?|How many people died in $y?|Who is the richest person "
        "in $c?|What is the fastest {car|train|ship} in $c?}",
        n=animal,
        t=an(thing),
        o=thing,
        p=plural,
        c=country,
        l=city,
        y=year,
        w=r.choice(NAMES),
    )
    return q, "I do not know that.", None


def ability(r):
    """Can a duck fly? Does a cow lay eggs?"""
    name, _, legs, _, _, _, kind = r.choice(facts.rows(facts.ANIMALS))
    one = an(name)
    flies = name in ("bee", "fly", "butterfly", "bat") or (
        kind == "bird" and name not in ("penguin", "hen", "rooster", "chicken", "turkey")
    )
    trait = r.randrange(5)
    if trait == 0:
        return (
            ask(r, "{Can $a fly?|Is $a able to fly?|Does $a fly?}", a=one),
            f"Yes, {one} can fly." if flies else f"No, {one} cannot fly.",
            "Yes" if flies else "No",
        )
    if trait == 1:
        lays = kind != "mammal" and name != "shark"
        return (
            ask(r, "{Does $a lay eggs?|Can $a lay eggs?}", a=one),
            f"Yes, {one} lays eggs." if lays else f"No, {one} does not lay eggs.",
            "Yes" if lays else "No",
        )
    if trait == 2:
        has = kind == "bird"
        return (
            ask(r, "{Does $a have feathers?|Has $a feathers?}", a=one),
            f"Yes, {one} has feathers." if has else f"No, {one} has no feathers.",
            "Yes" if has else "No",
        )
    if trait == 3:
        has = flies or kind == "bird"
        return (
            ask(r, "{Does $a have wings?|Has $a got wings?}", a=one),
            f"Yes, {one} has wings." if has else f"No, {one} has no wings.",
            "Yes" if has else "No",
        )
    n = r.choice([legs, "2", "4", "6", "8"])
    right = f"{one} has {facts.NUMBERS[int(legs)] if legs != '0' else 'no'} legs."
    return (
        ask(r, "Does $a have $n legs?", a=one, n=facts.NUMBERS[int(n)] if n != "0" else "no"),
        ("Yes, " if n == legs else "No, ") + right,
        "Yes" if n == legs else "No",
    )
