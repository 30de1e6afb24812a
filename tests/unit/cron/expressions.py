"""Random expressions, of every shape that the language has.

They are made from any `random.Random`: a seeded one for tables that are the same on every machine, or
Hypothesis's own, which shrinks.
"""

from __future__ import annotations

from random import Random

from tests.unit.cron.oracle import DAY_NAMES, MONTH_NAMES, has_a_day


def in_some_case(random: Random, name: str) -> str:
    return random.choice([name, name.lower(), name.capitalize()])


def value(random: Random, low: int, high: int, names: list[str] | None = None) -> str:
    """A number, or now and then the name that means it."""
    chosen = random.randint(low, high)
    if names and random.randint(0, 2) == 0:
        return in_some_case(random, names[(chosen - low) % len(names)])
    return str(chosen)


def item(random: Random, low: int, high: int, names: list[str] | None = None) -> str:
    """One member of a list: a value, a range, a range in steps, or from a value on in steps."""
    shape = random.choice(["value", "value", "range", "range/step", "value/step"])
    if shape == "value":
        return value(random, low, high, names)
    step = random.randint(1, max(2, (high - low) // 2))
    if shape == "value/step":
        return f"{value(random, low, high, names)}/{step}"
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    if names and random.randint(0, 2) == 0:
        first, last = min(first, low + len(names) - 1), min(last, low + len(names) - 1)
        span = f"{in_some_case(random, names[first - low])}-{in_some_case(random, names[last - low])}"
    else:
        span = f"{first}-{last}"
    return span if shape == "range" else f"{span}/{step}"


def star(random: Random, low: int, high: int) -> str:
    """A star, a star in steps, or a list that begins with one."""
    step = random.randint(2, max(2, (high - low) // 2))
    return random.choice(["*", "*", f"*/{step}", f"*/{step}", f"*/{step},{value(random, low, high)}"])


def numbers(random: Random, low: int, high: int, stars: int = 2, names: list[str] | None = None) -> str:
    """A field without anything special; `stars` times in ten it begins with one."""
    if random.randint(1, 10) <= stars:
        return star(random, low, high)
    return ",".join(item(random, low, high, names) for _ in range(random.choice([1, 1, 1, 2, 3])))


def day_of_month(random: Random) -> str:
    if random.randint(1, 10) <= 5:
        return random.choice(["*", "*", "*", "?", "*/2", "*/7", "*/10,4"])
    special = [
        "L",
        f"L-{random.randint(1, 12)}",
        "LW",
        f"{random.randint(1, 31)}W",
        item(random, 1, 31),
        item(random, 1, 31),
        item(random, 1, 31),
    ]
    return ",".join(random.choice(special) for _ in range(random.choice([1, 1, 1, 2])))


def day_of_week(random: Random) -> str:
    if random.randint(1, 10) <= 5:
        return random.choice(["*", "*", "*", "?", "*/2", "*/3"])
    first, last = random.sample(range(7), 2)
    special = [
        f"{value(random, 0, 7, DAY_NAMES)}L",
        f"{value(random, 0, 7, DAY_NAMES)}#{random.randint(1, 5)}",
        f"{in_some_case(random, DAY_NAMES[first])}-{in_some_case(random, DAY_NAMES[last])}",
        f"{first}-{last}",
        f"{first}-{last}/{random.randint(1, 3)}",
        item(random, 0, 7, DAY_NAMES),
        item(random, 0, 7, DAY_NAMES),
    ]
    return ",".join(random.choice(special) for _ in range(random.choice([1, 1, 1, 2])))


def month(random: Random) -> str:
    if random.randint(1, 10) <= 7:
        return "*"
    return numbers(random, 1, 12, names=MONTH_NAMES)


def cycle(random: Random) -> str:
    """Every so many-th day or week."""
    length = random.choice([2, 3, 7, random.randint(2, 52)])
    offset = random.choice(["", f"+{random.randint(0, length - 1)}"])
    weekdays = random.choice(["*", "MON", "0", "7,3", "FRI-MON", "1-5/2"])
    return random.choice([f"*%{length}{offset} * *", f"* * {weekdays}%{length}{offset}"])


def day_fields(random: Random) -> str:
    """Day of month, month and day of week, in which there is at least one day."""
    if random.randint(1, 10) == 1:
        return cycle(random)
    while True:
        fields = f"{day_of_month(random)} {month(random)} {day_of_week(random)}"
        if has_a_day(f"0 0 {fields}"):
            return fields


def hour(random: Random) -> str:
    """Rather often one of the small hours, where clocks change."""
    if random.randint(1, 10) <= 4:
        return ",".join(item(random, 0, 4) for _ in range(random.choice([1, 1, 2])))
    return numbers(random, 0, 23, stars=4)


def expression(random: Random) -> str:
    """Five fields."""
    return f"{numbers(random, 0, 59)} {hour(random)} {day_fields(random)}"


def expression_with_seconds(random: Random) -> str:
    """Six fields."""
    return f"{numbers(random, 0, 59, stars=4)} {expression(random)}"


def expression_with_years(random: Random) -> str:
    """Seven fields, the last a handful of years; there may be no day for it."""
    years = random.choice(
        ["*", f"{random.randint(1970, 2199)}", f"{random.randint(1970, 2199)}/7", "2020-2040/3"]
    )
    return f"0 0 0 {day_of_month(random)} {month(random)} {day_of_week(random)} {years}"
