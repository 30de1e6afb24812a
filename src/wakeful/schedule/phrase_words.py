"""The words of schedules in English: days, months and numbers, names of zones, and misspelled words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from wakeful.cron.zone import is_abbreviation, similar_zone, zone
from wakeful.errors import InvalidSchedule

WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SHORT_DAYS: Final = {"tues": 1, "wednes": 2, "thur": 3, "thurs": 3} | {
    day[:3]: number for number, day in enumerate(WEEKDAYS)
}
MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
NUMBERS: Final = {
    word: str(number)
    for number, words in enumerate(
        (
            *("a an one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
            *("eleven", "twelve", "thirteen", "fourteen", "fifteen"),
        ),
        start=1,
    )
    for word in words.split()
} | {"twenty": "20", "thirty": "30", "forty": "40", "forty-five": "45", "sixty": "60", "ninety": "90"}
NTH: Final = {"first": "1", "second": "2", "third": "3", "fourth": "4", "fifth": "5"}

#: A word that can be a zone, with what leads to it.
_ZONE: Final = re.compile(r"\s(?:in )?(\(?)([A-Za-z][\w+-]*(?:/[A-Za-z][\w+-]*)*)(\)?)(?!\S)")
#: More words than a schedule has. Each may be looked up as a zone, three times.
_MOST_WORDS: Final = 40
_ZONE_WORDS: Final = frozenset({"UTC", "GMT"})
#: What these words begin with gives them another meaning: "biweekly" is not "weekly" misspelled.
_OTHER_RATE: Final = ("bi", "semi", "tri")

#: The words of phrases, to correct misspelled ones.
_VOCABULARY: Final = frozenset(
    (
        *WEEKDAYS, *(f"{day}s" for day in WEEKDAYS), *SHORT_DAYS, *MONTHS, *NTH,
        *"every on at in the of and to through last next this other after from now am pm noon midday".split(),
        *"minute minutes hour hours hourly day days daily week weeks weekly month monthly midnight".split(),
        *"weekday weekdays weekend weekends workday workdays today tomorrow tonight".split(),
        *"morning afternoon evening night".split(),
    )
)  # fmt: skip


def closest_word(word: str) -> str:
    """Return a word of phrases that resembles this one, a number in digits; else the word itself."""
    if word in _VOCABULARY or word[0].isdigit() or word.startswith(_OTHER_RATE):
        return word
    if word in NUMBERS:
        return NUMBERS[word]
    found = difflib.get_close_matches(word, _VOCABULARY, n=1, cutoff=0.75)
    return found[0] if found else word


def named_zones(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield each word that may be a zone: the text without it, the word, and the zone; None if unknown.

    A zone is in parentheses, has a slash, is an abbreviation, or is an unknown word in capitals.

    >>> list(named_zones("9am PST on weekdays"))
    [('9am on weekdays', 'PST', None)]
    """
    whole = text.strip(" .!")
    for match in islice(_ZONE.finditer(whole), _MOST_WORDS):
        word = match[2]
        sure = (match[1] and match[3]) or "/" in word or word.upper() in _ZONE_WORDS or is_abbreviation(word)
        if sure or (word.isupper() and 2 <= len(word) <= 5 and word.lower() not in _VOCABULARY):
            tz = None if is_abbreviation(word) else zone_name(word)
            yield whole[: match.start()] + whole[match.end() :], word, tz


def unknown_zone(text: str, rest: str, word: str) -> InvalidSchedule:
    """Return the error for a schedule whose zone is unknown, and that is right without it."""
    meant = similar_zone(word) or "Europe/Berlin"
    what = "no IANA time zone" if zone_name(word) is None else "a zone without summer time"
    return InvalidSchedule(
        f"'{text.strip()[:64]}': '{word}' is {what}; did you mean {meant}? The rest is a "
        f"schedule: write '{rest[:64]} {meant}', or give the zone in tz"
    )


def zone_name(word: str) -> str | None:
    """Return the name of a zone, written in any case; None for another word."""
    if word.upper() in _ZONE_WORDS:
        return "UTC"
    capitals = "/".join("_".join(part.capitalize() for part in each.split("_")) for each in word.split("/"))
    for name in (word, capitals, word.upper()):
        try:
            return zone(name).name
        except InvalidSchedule:
            continue
    return None
