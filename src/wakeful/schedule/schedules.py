"""Schedules as values: `At` (once), `Every` (an interval) and `CronSchedule` (a cron expression).

`parse_schedule` reads every accepted form and raises InvalidSchedule for anything else. It returns the normal
form, which `to_json` writes and `schedule_from_json` reads. A schedule stores the zone that applied when it
was read; `at` and `every` leave out a zone that is UTC by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Final, Literal

from wakeful.cron import Cron
from wakeful.cron.expression import parse
from wakeful.cron.zone import zone
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.schedule.natural_time import Document, closest_phrase, parse_phrase
from wakeful.schedule.phrase_words import named_zones, unknown_zone
from wakeful.values.duration import LONGEST, parse_duration, spell_duration
from wakeful.values.instants import LATEST_MS

SHORTEST_INTERVAL_MS: Final = 1000
_END_OF_1970_MS: Final = 31_536_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_TEXT: Final = 1000
_ISO_TIME: Final = re.compile(r"[0-9]{4}(-|[0-9]{4}T)")
#: What a cron expression or a macro begins with.
_FORM_STARTS: Final = frozenset("0123456789*?@")
_KEYS: Final = {"at": ("atMs", "at"), "every": ("everyMs", "every"), "cron": ("expr",)}
_OPTIONAL_KEYS: Final = {"kind", "tz", *(key for keys in _KEYS.values() for key in keys)}
_FORMS: Final = (
    "write a cron expression ('0 9 * * 1-5'), words ('every weekday at 9:00'), a macro ('@daily'), "
    "'every 15m', 'in 20m', or a time ('2027-03-01T09:00')"
)


@dataclass(frozen=True, slots=True)
class At:
    """Once, at an instant in epoch milliseconds."""

    at_ms: int
    tz: str | None = None
    kind: ClassVar[Literal["at"]] = "at"

    @property
    def at(self) -> datetime:
        """The instant, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.at_ms)

    def to_json(self) -> dict[str, object]:
        """Return the normal form.

        >>> At(1741392000000).to_json()
        {'kind': 'at', 'atMs': 1741392000000}
        """
        return _with_tz({"kind": "at", "atMs": self.at_ms}, self.tz)


@dataclass(frozen=True, slots=True)
class Every:
    """At a fixed interval in milliseconds."""

    every_ms: int
    tz: str | None = None
    kind: ClassVar[Literal["every"]] = "every"

    @property
    def every(self) -> timedelta:
        """The interval."""
        return timedelta(milliseconds=self.every_ms)

    def to_json(self) -> dict[str, object]:
        """Return the normal form.

        >>> Every(300000).to_json()
        {'kind': 'every', 'everyMs': 300000}
        """
        return _with_tz({"kind": "every", "everyMs": self.every_ms}, self.tz)


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """By a cron expression, in the local time of a zone (UTC by default)."""

    expr: str
    tz: str | None = None
    kind: ClassVar[Literal["cron"]] = "cron"

    def to_json(self) -> dict[str, object]:
        """Return the normal form.

        >>> CronSchedule("0 9 * * 1-5", "Asia/Ho_Chi_Minh").to_json()
        {'kind': 'cron', 'expr': '0 9 * * 1-5', 'tz': 'Asia/Ho_Chi_Minh'}
        """
        return _with_tz({"kind": "cron", "expr": self.expr}, self.tz)


Schedule = At | Every | CronSchedule


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the meaning of a schedule depends on, besides its text."""

    now_ms: int
    tz: str
    kept_tz: str | None
    #: whether the job or the schedule names the zone
    named: bool = False


def parse_schedule(
    value: str | Mapping[str, object], *, now_ms: int, default_tz: str = "UTC", tz: str | None = None
) -> Schedule:
    """Return the schedule of a text or a JSON object, or raise InvalidSchedule with a suggestion.

    The zone is the schedule's own, else `tz` (the job's), else `default_tz`.

    >>> parse_schedule("@daily", now_ms=0, tz="Europe/Berlin")
    CronSchedule(expr='0 0 * * *', tz='Europe/Berlin')
    >>> parse_schedule("in 20 minutes", now_ms=1_800_000_000_000)
    At(at_ms=1800001200000, tz=None)
    >>> parse_schedule({"kind": "every", "every": "15m"}, now_ms=0)
    Every(every_ms=900000, tz=None)
    """
    if isinstance(value, str):
        return _from_text(value, _reading(None, tz, default_tz, now_ms))
    if isinstance(value, Mapping):
        return _from_json(value, tz, default_tz, now_ms)
    raise InvalidSchedule(
        f"a schedule is text or an object with a kind, not {type(value).__name__}; {_FORMS}"
    )


def schedule_from_json(value: Mapping[str, object]) -> Schedule:
    """Return the schedule that `to_json` wrote, without validating it again.

    >>> schedule_from_json({"kind": "every", "everyMs": 300000})
    Every(every_ms=300000, tz=None)
    """
    kind, tz = value.get("kind"), value.get("tz")
    if tz is None or isinstance(tz, str):
        if kind == "cron" and isinstance(expr := value.get("expr"), str):
            return CronSchedule(expr, tz)
        if kind == "every" and isinstance(every_ms := value.get("everyMs"), int):
            return Every(every_ms, tz)
        if kind == "at" and isinstance(at_ms := value.get("atMs"), int):
            return At(at_ms, tz)
    raise InvalidSchedule(f"{_short(dict(value))} is not a schedule in its normal form")


def explain_schedule(schedule: Schedule) -> str:
    """Return the schedule in words.

    >>> explain_schedule(At(1803888000000, "Europe/Berlin"))
    'Once, at 2027-03-01 09:00 (Europe/Berlin)'
    >>> explain_schedule(Every(900000)), explain_schedule(Every(3600000))
    ('Every 15 minutes', 'Every hour')
    """
    match schedule:
        case At(at_ms, tz):
            return f"Once, at {_unambiguous_wall(at_ms, tz or 'UTC')} ({tz or 'UTC'})"
        case Every(every_ms):
            words = spell_duration(every_ms)
            return f"Every {words.removeprefix('1 ') if words.count(' ') == 1 else words}"
        case CronSchedule(expr, tz):
            return _shared_cron(expr, tz or "UTC").explain()


def names_zone(value: object) -> bool:
    """Return whether a schedule, as text or JSON, names its zone.

    >>> names_zone("every day at 9 Asia/Tokyo"), names_zone("0 9 * * MON")
    (True, False)
    """
    if isinstance(value, str):
        return any(tz is not None for _, _, tz in named_zones(value[:LONGEST_TEXT]))
    return isinstance(value, Mapping) and value.get("tz") is not None


def _reading(own: object, tz: str | None, default_tz: str, now_ms: int) -> _Reading:
    if own is not None and not isinstance(own, str):
        raise InvalidSchedule(f"tz is the name of a zone, such as 'Europe/Berlin', not {_short(own)}")
    explicit = own if own is not None else tz
    name = explicit if explicit is not None else default_tz
    zone(name)
    kept = None if explicit is None and name == "UTC" else name
    return _Reading(now_ms, name, kept, explicit is not None)


def _from_text(text: str, reading: _Reading) -> Schedule:
    """Return the schedule of a text: one of the exact forms, else words."""
    if len(text) > LONGEST_TEXT:
        raise InvalidSchedule(f"a schedule has at most {LONGEST_TEXT} characters; this one has {len(text)}")
    is_form = text.lstrip()[:1] in _FORM_STARTS and 5 <= len(text.split()) <= 9
    try:
        return _from_form(text, reading)
    except InvalidSchedule as error:
        if is_form and (schedule := _from_zoned_form(text, reading)) is not None:
            return schedule
        try:
            document = parse_phrase(text, now_ms=reading.now_ms, tz=reading.tz)
        except InvalidSchedule as unclear:
            raise (error if is_form else unclear) from None
        if document is None:
            meant = None if is_form else closest_phrase(text, now_ms=reading.now_ms, tz=reading.tz)
            if meant is None:
                raise
            raise InvalidSchedule(f"'{text[:64]}' is not a schedule; did you mean '{meant}'?") from None
    return _from_words(text, document, reading)


def _from_zoned_form(text: str, reading: _Reading) -> Schedule | None:
    """Return the schedule of a cron expression with its zone behind it; None for another text."""
    for rest, word, tz in named_zones(text):
        own = reading if tz is None else _in_zone(tz, text, reading)
        try:
            schedule = _from_form(rest, own)
        except InvalidSchedule:
            continue
        if tz is None:
            raise unknown_zone(text, rest, word)
        return schedule
    return None


def _in_zone(tz: str, text: str, reading: _Reading) -> _Reading:
    """Return the reading of a text that names this zone."""
    if tz == reading.tz:
        return reading
    if reading.named:
        raise InvalidSchedule(
            f"'{text[:64]}': its zone '{tz}' is not the job's, '{reading.tz}'; give one of the two"
        )
    return replace(reading, tz=tz, kept_tz=tz, named=True)


def _from_words(text: str, document: Document, reading: _Reading) -> Schedule:
    """Return the schedule of words, which `parse_phrase` has read."""
    quoted = f"'{text[:64]}'"
    reading = _in_zone(str(document.get("tz", reading.tz)), text, reading)
    match document:
        case {"atMs": int(at_ms)}:
            return _at(at_ms, quoted, reading)
        case {"at": str(at)}:
            return _at(_instant(at, reading), quoted, reading)
        case {"everyMs": int(every_ms)}:
            return _every(every_ms, quoted, reading)
    return _cron(str(document["expr"]), reading)


def _from_form(text: str, reading: _Reading) -> Schedule:
    normal = " ".join(text.split())
    word, _, rest = normal.lower().partition(" ")
    quoted = f"'{text[:64]}'"
    if word in ("every", "@every"):
        return _every(_milliseconds(f"1 {rest}" if rest.isalpha() else rest, text), quoted, reading)
    if word == "in":
        return _at(reading.now_ms + _milliseconds(rest, text), quoted, reading)
    if _ISO_TIME.match(normal.upper()):
        return _at(_instant(normal, reading), quoted, reading)
    if word.startswith("@") or (word[:1] in "0123456789*?" and 5 <= len(normal.split()) <= 7):
        return _cron(normal, reading)
    raise InvalidSchedule(f"{quoted} is not a schedule; {_FORMS}")


def _from_json(value: Mapping[str, object], tz: str | None, default_tz: str, now_ms: int) -> Schedule:
    # Some clients send all known fields, with null for no value.
    fields = {key: item for key, item in value.items() if item is not None or key not in _OPTIONAL_KEYS}
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KEYS:
        what = "a schedule needs a kind" if kind is None else f"unknown kind of schedule {_short(kind)}"
        raise InvalidSchedule(f"{what}: it is 'at', 'every' or 'cron'")
    keys = _KEYS[kind]
    takes = f"it takes {' or '.join(keys)}, and tz"
    extra = [key for key in fields if key not in (*keys, "tz")]
    if extra:
        raise InvalidSchedule(f"a schedule of kind '{kind}' has no {', '.join(map(_short, extra))}; {takes}")
    found = [key for key in keys if key in fields]
    if len(found) != 1:
        raise InvalidSchedule(
            f"a schedule of kind '{kind}' needs {' or '.join(keys)}{', not both' if found else ''}; {takes}"
        )
    reading = _reading(fields.get("tz"), tz, default_tz, now_ms)
    key, item = found[0], fields[found[0]]
    match key:
        case "atMs":
            at_ms = _whole(item, key)
            return _at(at_ms, f"atMs {_short(at_ms)}", reading)
        case "everyMs":
            every_ms = _whole(item, key)
            return _every(every_ms, f"everyMs {_short(every_ms)}", reading)
        case "at":
            text = _text(item, key, "an ISO 8601 time such as '2027-03-01T09:00'; milliseconds go into atMs")
            return _at(_instant(text, reading), f"at '{text[:64]}'", reading)
        case "every":
            text = _text(item, key, "a duration such as '15m'; milliseconds go into everyMs")
            return _every(_milliseconds(text, text), f"every '{text[:64]}'", reading)
        case _:
            expr = _text(item, key, "a cron expression such as '0 9 * * 1-5'")
            try:
                return _cron(expr, reading)
            except InvalidSchedule:
                with suppress(InvalidSchedule):
                    if isinstance(schedule := _from_text(expr, reading), CronSchedule):
                        return schedule
                raise


def _at(at_ms: int, what: str, reading: _Reading) -> At:
    if not 0 <= at_ms <= LATEST_MS:
        raise InvalidSchedule(
            f"{what} is out of range: a time lies in the years 1970 to 9998, in milliseconds"
        )
    if at_ms <= reading.now_ms:
        instead = "write a later time, or 'in 20m'"
        if at_ms < _END_OF_1970_MS and what.startswith("atMs"):
            instead = f"it looks like seconds: in milliseconds that is {at_ms * 1000}"
        raise InvalidSchedule(f"{what} is in the past; {_now(reading)}; {instead}")
    return At(at_ms, reading.kept_tz)


def _every(every_ms: int, what: str, reading: _Reading) -> Every:
    if every_ms < SHORTEST_INTERVAL_MS:
        hint = (
            f"; {every_ms} seconds are {every_ms * 1000}"
            if what.startswith("everyMs") and every_ms > 0
            else ""
        )
        raise InvalidSchedule(f"{what} is too short: an interval is at least {SHORTEST_INTERVAL_MS} ms{hint}")
    if every_ms > LONGEST:
        raise InvalidSchedule(f"{what} is too long: an interval is at most 100 years ({LONGEST} ms)")
    return Every(every_ms, reading.kept_tz)


def _cron(text: str, reading: _Reading) -> CronSchedule:
    expr = parse(text).text
    cron = _shared_cron(expr, reading.tz)
    now = reading.now_ms // 1000
    if cron.second_after(now) is None:
        last = cron.second_before(now + 1)
        reason = (
            "not within 100 years" if last is None else f"its last time was {_wall(last * 1000, reading.tz)}"
        )
        raise InvalidSchedule(f"'{text[:64]}' never fires any more: {reason}; {_now(reading)}")
    return CronSchedule(expr, reading.tz)


def _shared_cron(expr: str, tz: str) -> Cron:
    """Return the object that `Ticks` uses: the cache compares all four arguments."""
    return Cron.shared(expr, tz, "run_after", "first")


def _instant(text: str, reading: _Reading) -> int:
    normal = text.strip().upper()
    try:
        moment = datetime.fromisoformat(normal)
    except ValueError as error:
        raise InvalidSchedule(
            f"'{text[:64]}' is not a time ({error}); write '2027-03-01T09:00' or '2027-03-01T09:00+01:00'"
        ) from error
    if _is_date(normal):
        raise InvalidSchedule(f"'{text}' has no time of day; write '{moment.date()}T09:00'")
    if not 1970 <= moment.year <= 9998:
        raise InvalidSchedule(f"'{text}' is out of range: a time lies in the years 1970 to 9998")
    aware = moment if moment.tzinfo else zone(reading.tz).to_utc(moment)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _milliseconds(text: str, whole: str) -> int:
    try:
        return parse_duration(text)
    except InvalidArgument as error:
        where = "" if text == whole else f"'{whole[:64]}': "
        raise InvalidSchedule(f"{where}{error.message}") from error


def _whole(value: object, key: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 3e5 is a whole number
    raise InvalidSchedule(f"{key} is a whole number of milliseconds, not {_short(value)}")


def _text(value: object, key: str, expected: str) -> str:
    if not isinstance(value, str):
        raise InvalidSchedule(f"{key} is {expected}; it is text, not {_short(value)}")
    if len(value) > LONGEST_TEXT:
        raise InvalidSchedule(f"{key} has {len(value)} characters; it has at most {LONGEST_TEXT}")
    return value


def _now(reading: _Reading) -> str:
    local = "" if reading.tz == "UTC" else f" ({_wall(reading.now_ms, reading.tz)} in {reading.tz})"
    return f"it is now {_wall(reading.now_ms, 'UTC')} UTC{local}"


def _wall(ms: int, tz: str) -> str:
    """Return the local time in a zone, without trailing zeros."""
    moment = (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone(tz).tzinfo).replace(tzinfo=None)
    return moment.isoformat(" ", "milliseconds" if ms % 1000 else "seconds" if moment.second else "minutes")


def _unambiguous_wall(ms: int, tz: str) -> str:
    """Return the local time; with its offset, if the clocks show this time twice and it is the second one."""
    text, at = _wall(ms, tz), _EPOCH + timedelta(milliseconds=ms)
    if zone(tz).to_utc(datetime.fromisoformat(text)) == at:
        return text
    return text + at.astimezone(zone(tz).tzinfo).isoformat()[-6:]


def _with_tz(form: dict[str, object], tz: str | None) -> dict[str, object]:
    return form if tz is None else {**form, "tz": tz}


def _short(value: object) -> str:
    try:
        return repr(value)[:64]
    except ValueError:
        return "a number too long to print"
