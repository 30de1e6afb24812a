"""Values as text for people: durations, numbers, money, instants, states. Pure; used as Jinja filters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from wakeful.service.auth.actor_names import actor_key, actor_name, subject_name
from wakeful.service.auth.masking import mask_alerts, mask_value
from wakeful.values.instance_names import instance_to_path

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
#: An instant in a sentence of a service.
_INSTANT: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
#: Characters that change the direction of the text after them.
_OVERRIDES: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
#: The units of distances, each with the distance from which the next one is used; also in static/time.js.
_DISTANCES: Final = (
    ("s", 1_000, 60_000),
    ("min", 60_000, 3_600_000),
    ("h", 3_600_000, 172_800_000),
    ("d", 86_400_000, math.inf),
)

#: The word for each state of a run.
STATES: Final[Mapping[str, str]] = {
    "pending": "Pending",
    "running": "Running",
    "verifying": "Verifying",
    "to-confirm": "Waits for confirmation",
    "retrying": "Retrying",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "skipped": "Skipped",
    "missed": "Missed",
    "active": "Active",
    "paused": "Paused",
    "disabled": "Disabled",
    "failing": "Failing",
    "approval": "Waits for approval",
    "ended": "Ended",
    "open": "Open",
    "acknowledged": "Acknowledged",
    "closed": "Closed",
}

#: What each trigger of a run means.
TRIGGERS: Final[Mapping[str, str]] = {
    "schedule": "Schedule",
    "user": "Run by a person",
    "agent": "Run by an agent",
    "signal": "Signal",
    "replay": "Replay",
    "backfill": "Backfill",
    "chain": "After another job",
    "heartbeat": "Heartbeat",
    "alert": "Alert",
    "hook": "Trigger URL",
    "event": "Event",
}


def duration(ms: float | None) -> str:
    """Return a duration with at most two units.

    >>> duration(0), duration(850), duration(1_500), duration(61_000), duration(90_061_000), duration(None)
    ('0 ms', '850 ms', '1.5 s', '1 m 1 s', '1 d 1 h', '–')
    """
    if ms is None:
        return "–"
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 1_000:
        return f"{round(ms)} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f}".removesuffix(".0") + " s"
    rest = round(ms)
    parts: list[str] = []
    for unit, size in _UNITS:
        amount, rest = divmod(rest, size)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def number(value: float | None) -> str:
    """Return a number with separators.

    >>> number(1234567), number(0.25), number(None)
    ('1,234,567', '0.25', '–')
    """
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")


def count(value: int, limit: int | None = None) -> str:
    """Return a count; one that reached the limit of its query has a plus sign.

    >>> count(12), count(1_000, 1_000)
    ('12', '1,000+')
    """
    return f"{value:,}+" if limit is not None and value >= limit else f"{value:,}"


def money(value: float | None) -> str:
    """Return a cost in dollars.

    >>> money(0), money(0.0042), money(12.5), money(1234.5), money(None)
    ('$0.00', '$0.0042', '$12.50', '$1,234.50', '–')
    """
    if value is None:
        return "–"
    if 0 < value < 0.01:
        return f"${value:.4f}".rstrip("0") if value >= 0.0001 else "<$0.0001"
    return f"${value:,.2f}"


def percent(value: float | None) -> str:
    """Return a ratio as a percentage.

    >>> percent(0.123), percent(1), percent(0.0004), percent(None)
    ('12.3 %', '100 %', '<0.1 %', '–')
    """
    if value is None:
        return "–"
    if 0 < value < 0.001:
        return "<0.1 %"
    return f"{value * 100:.1f}".removesuffix(".0") + " %"


def at(ms: int | None, tz: str | None = None) -> str:
    """Return an instant to the second, in a zone.

    >>> at(0), at(0, "Europe/Berlin")
    ('1970-01-01 00:00:00 UTC', '1970-01-01 01:00:00 CET')
    """
    if ms is None:
        return "–"
    there = local(ms, tz)
    # `strftime` takes three times as long.
    return f"{there.isoformat(' ', 'seconds')[:19]} {there.tzname()}"


def with_times(text: str, tz: str | None = None) -> str:
    """Return a sentence whose instants are as on pages.

    >>> with_times("It resumes at 1970-01-01T00:00:00.250Z.", "Europe/Berlin")
    'It resumes at 1970-01-01 01:00:00 CET.'
    >>> with_times("no such time: 1970-13-01T00:00:00Z, 9999-12-31T23:59:59Z", "Asia/Tokyo")
    'no such time: 1970-13-01T00:00:00Z, 9999-12-31T23:59:59Z'
    """

    def local_time(found: re.Match[str]) -> str:
        try:
            return at(round(datetime.fromisoformat(found[0]).timestamp() * 1000), tz)
        except (ValueError, OverflowError):
            return found[0]

    return _INSTANT.sub(local_time, text)


def iso(ms: int) -> str:
    """Return an instant in ISO 8601, in UTC, with milliseconds.

    >>> iso(1)
    '1970-01-01T00:00:00.001Z'
    """
    return f"{local(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03d}Z"


def local(ms: int, tz: str | None = None) -> datetime:
    """Return an instant in a zone."""
    instant = _EPOCH + timedelta(milliseconds=ms)
    return instant if tz is None or tz == "UTC" else instant.astimezone(ZoneInfo(tz))


def known_zone(name: str | None) -> str:
    """Return a time zone that exists: this one, or else UTC.

    >>> known_zone("Europe/Berlin"), known_zone("../etc/passwd"), known_zone(None)
    ('Europe/Berlin', 'UTC', 'UTC')
    """
    return name if name in _zones() else "UTC"


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def clock(ms: int, tz: str | None = None) -> str:
    """Return the time of day of an instant, to the minute.

    >>> clock(0), clock(0, "Europe/Berlin")
    ('00:00', '01:00')
    """
    return f"{local(ms, tz):%H:%M}"


def relative(ms: int | None, now_ms: int) -> str:
    """Return how far an instant is away, rounded to one unit.

    >>> relative(61_000, 0), relative(0, 7_140_000), relative(3_599_000, 0), relative(0, 500)
    ('in 1 min', '2 h ago', 'in 1 h', 'now')
    >>> relative(None, 0), relative(0, 172_800_000)
    ('–', '2 d ago')
    """
    if ms is None:
        return "–"
    away = abs(ms - now_ms)
    if away < 1_000:
        return "now"
    unit, size = next(
        (unit, size) for unit, size, end in _DISTANCES if (away + size // 2) // size * size < end
    )
    text = f"{(away + size // 2) // size} {unit}"
    return f"in {text}" if ms > now_ms else f"{text} ago"


def trigger_word(trigger: str) -> str:
    """Return what a trigger means.

    >>> trigger_word("chain"), trigger_word("other")
    ('After another job', 'other')
    """
    return TRIGGERS.get(trigger, trigger)


def state_word(state: str) -> str:
    """Return the word for a state."""
    return STATES.get(state, state.replace("_", " ").capitalize())


def pretty(value: object) -> str:
    """Return JSON with indentation; text that is JSON is indented too, and other text stays as it is."""
    if isinstance(value, str):
        try:
            return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def json_line(value: object) -> str:
    """Return a value as JSON on one line, and null as a dash.

    >>> json_line({"a": "ü"}), json_line(None)
    ('{"a": "ü"}', '–')
    """
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


def json_start(value: object, length: int = 1_000) -> str:
    """Return the beginning of a value as JSON on one line; the rest, which may be large, is not written.

    >>> json_start({"a": [1, 2, 3]}, 9), json_start({"a": 1}), json_start(None)
    ('{"a": [1…', '{"a": 1}', '–')
    """
    if value is None:
        return "–"
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part
        if len(text) > length:
            break
    return cut(text, length)


def cut(text: str, length: int = 1_000) -> str:
    """Return the beginning of a text.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def shorten(text: str | None, length: int = 120) -> str:
    """Return the first line of a text, cut at a length."""
    if not text:
        return ""
    line, _, rest = text.partition("\n")
    return line[: length - 1] + "…" if len(line) > length or (rest and len(line) >= length) else line


def isolate(text: str | None) -> str:
    r"""Return a name for a title or a question, in which it cannot turn the text beside it round.

    Characters that override the direction are shown by their numbers; the rest stands between marks.

    >>> isolate("ann"), isolate("a\u202eb")
    ('ann', '\u2068a[U+202E]b\u2069')
    """
    if not text or text.isascii():
        return text or ""
    return f"\u2068{_OVERRIDES.sub(lambda found: f'[U+{ord(found[0]):04X}]', text)}\u2069"


def short_id(value: str) -> str:
    """Return the end of an id, which differs between ids of the same time."""
    return value[-8:]


#: The filters of the templates.
FILTERS: Final[Mapping[str, Callable[..., object]]] = {
    "actor_key": actor_key,
    "actor_name": actor_name,
    "subject_name": subject_name,
    "duration": duration,
    "number": number,
    "instance_path": instance_to_path,
    "bounded_count": count,
    "money": money,
    "percent": percent,
    "at": at,
    "with_times": with_times,
    "iso": iso,
    "clock": clock,
    "relative": relative,
    "state_word": state_word,
    "trigger_word": trigger_word,
    "pretty": pretty,
    "json_line": json_line,
    "json_start": json_start,
    "shorten": shorten,
    "isolate": isolate,
    "mask": mask_value,
    "mask_alerts": mask_alerts,
    "short_id": short_id,
}
