"""Topics about numbers for chat.py: arithmetic up to 100, comparing, counting, sorting."""

import facts
from chat import NAMES, ask
from say import cap, say


def words(n):
    if n < 21:
        return facts.NUMBERS[n]
    if n == 100:
        return "one hundred"
    tens = facts.TENS[n // 10 - 2]
    return tens if n % 10 == 0 else f"{tens}-{facts.NUMBERS[n % 10]}"


def small(r, most=100):
    return r.randrange(r.choice([6, 11, 11, 21, most + 1]))


def sums(r):
    """+, - with numbers up to 100, * up to 12 x 12 and its division."""
    op = r.choice("++--**/")
    a, b = small(r), small(r)
    if op == "*":
        a, b = r.randrange(r.choice([6, 11, 13])), r.randrange(r.choice([6, 11, 13]))
    if op == "-" and a < b and r.random() < 0.9:
        a, b = b, a
    if op == "/":
        b = r.randrange(1, 13)
        a = b * r.randrange(13)
    result = {"+": a + b, "-": a - b, "*": a * b, "/": a // max(b, 1)}[op]
    sign = {
        "+": ["+", "+", " + ", "plus", "and"],
        "-": ["-", " - ", "minus", "take away"],
        "*": ["*", " * ", "x", " x ", "times", "multiplied by"],
        "/": ["/", " / ", "divided by", ":"],
    }[op]
    word = r.choice(sign)
    x, y = (
        (words(a), words(b)) if word.isalpha() and max(a, b) < 101 and r.random() < 0.4 else (a, b)
    )
    gap = " " if word[0].isalpha() else ""
    sum_text = f"{x}{gap}{word}{gap}{y}"
    q = ask(
        r,
        (
            "{What is|What's|How much is|Calculate|Compute|Solve|What does|What do you get for}"
            " $s?"
            if r.random() < 0.7
            else "{$s|$s =|$s?|$s = ?|$s equals|How much is $s?}"
        ),
        s=sum_text,
    )
    q = q.replace("What does " + sum_text + "?", "What does " + sum_text + " make?")
    shown = {"*": "x"}.get(op, op)
    return q, f"{a} {shown} {b} = {result}.", str(result)


def word_problem(r):
    who, other = r.sample(NAMES, 2)
    thing = r.choice(["apples", "books", "coins", "balls", "eggs", "cookies", "pencils", "marbles"])
    a, b = r.randrange(2, 20), r.randrange(1, 10)
    if r.random() < 0.5:
        text = say(
            r,
            "$p has $a $t. {$o gives $p $b more|$p {gets|buys|finds} $b more}. How many "
            "$t does $p "
            "have{ now|}?",
            p=who,
            o=other,
            a=a,
            b=b,
            t=thing,
        )
        return text, f"{who} has {a} + {b} = {a + b} {thing}.", str(a + b)
    a, b = max(a, b) + 1, min(a, b)
    text = say(
        r,
        "$p has $a $t. $p {gives $b to $o|loses $b|eats $b|gives away $b}. How many $t "
        "{does $p "
        "have{ left| now|}|are left}?",
        p=who,
        o=other,
        a=a,
        b=b,
        t=thing,
    )
    left = thing if a - b > 1 else thing[:-1]
    return text, f"{who} has {a} - {b} = {a - b} {left} left.", str(a - b)


def number_sense(r):
    a, b = r.sample(range(101), 2)
    n = small(r)
    kind = r.randrange(12)
    if kind == 0:
        q = ask(
            r,
            "{Which is {bigger|larger|greater}|What is {bigger|larger}|Which number is "
            "bigger}, $a or "
            "$b?",
            a=a,
            b=b,
        )
        return q, f"{max(a, b)} is bigger than {min(a, b)}.", str(max(a, b))
    if kind == 1:
        q = ask(r, "Is $a {bigger|greater|larger|more} than $b?", a=a, b=b)
        return (
            q,
            (f"Yes, {a} is bigger than {b}." if a > b else f"No, {a} is smaller than {b}."),
            "Yes" if a > b else "No",
        )
    if kind == 2:
        q = ask(
            r,
            "{Is $n even or odd?|Is $n an even number?|Is $n odd?|Is the number $n even?}",
            n=n,
        )
        even = n % 2 == 0
        claim = f"{n} is {'even' if even else 'odd'}"
        if "or" in q.lower().split():
            return q, claim + ".", "Even" if even else "Odd"
        yes = even == ("even" in q.lower())
        return q, f"{'Yes' if yes else 'No'}, {claim}.", "Yes" if yes else "No"
    if kind == 3:
        n = r.randrange(2, 50)
        factor = next((d for d in range(2, n) if n % d == 0), None)
        q = ask(r, "{Is $n a prime number?|Is $n prime?|Is the number $n prime?}", n=n)
        return (
            q,
            (
                f"No, {n} is not prime: {n} = {factor} x {n // factor}."
                if factor
                else f"Yes, {n} is a prime number."
            ),
            "No" if factor else "Yes",
        )
    if kind == 4:
        first, last = r.choice([(1, r.randrange(3, 21)), (r.randrange(1, 30), 0), (0, 10)])
        last = last or first + r.randrange(3, 9)
        q = ask(
            r,
            "Count {from $a to $b|to $b}." if first == 1 else "Count from $a to $b.",
            a=first,
            b=last,
        )
        return q, ", ".join(map(str, range(first, last + 1))) + ".", None
    if kind == 5:
        first = r.choice([10, 5, 20, r.randrange(4, 21)])
        q = ask(
            r,
            "{Count {down|backwards} from $a.|Count {down|backwards} from $a to {1|one}.}",
            a=first,
        )
        return q, ", ".join(map(str, range(first, 0, -1))) + ".", None
    if kind == 6:
        q = ask(
            r,
            "{What {number |}comes after $n?|Which number comes after $n?|What is the next "
            "number "
            "after $n?}",
            n=n,
        )
        return q, f"{n + 1} comes after {n}.", str(n + 1)
    if kind == 7:
        n = max(n, 1)
        q = ask(r, "{What {number |}comes before $n?|Which number comes before $n?}", n=n)
        return q, f"{n - 1} comes before {n}.", str(n - 1)
    if kind == 8:
        q = ask(
            r,
            "{{Write|Spell} $n {in|as} words.|How do you write $n in words?|{Write|Spell} "
            "the number $n "
            "{in|as} words.}",
            n=n,
        )
        return q, cap(words(n)) + ".", words(n)
    if kind == 9:
        step, first = r.choice([1, 2, 3, 5, 10]), r.choice([0, 1, 2, 5, 10])
        row = [first + step * i for i in range(5)]
        q = ask(
            r,
            "{What comes next: $s?|What is the next number: $s?|Continue: $s|Continue the "
            "row: $s}",
            s=", ".join(map(str, row[:4])),
        )
        return q, f"The next number is {row[4]}.", str(row[4])
    if kind == 10:
        n = r.randrange(51)
        if r.random() < 0.5:
            q = ask(r, "{What is {double|twice} $n?|What is the double of $n?|Double $n.}", n=n)
            return q, f"Double {n} is {2 * n}.", str(2 * n)
        q = ask(r, "{What is half of $n?|What is the half of $n?|What's half of $n?}", n=2 * n)
        return q, f"Half of {2 * n} is {n}.", str(n)
    row = r.sample(range(50), r.randrange(3, 6))
    text = r.choice([", ", " "]).join(map(str, row))
    way = r.randrange(3)
    if way == 0:
        q = ask(r, "{Sort|Order} {these numbers|the numbers}: $s", s=text)
        return q, ", ".join(map(str, sorted(row))) + ".", None
    most = way == 1
    q = ask(
        r,
        "{What|Which} is the $w{ number|}: $s?",
        w=r.choice(["largest", "biggest"] if most else ["smallest"]),
        s=text,
    )
    best = max(row) if most else min(row)
    return q, f"The {'largest' if most else 'smallest'} number is {best}.", str(best)
