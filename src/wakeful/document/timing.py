"""The timing of a job document: its schedule and zone, its start and end, and its excluded days.

Fields that are valid alone can make a job that never fires together. Such a job is refused when it is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from wakeful.document.fields import TIMING
from wakeful.document.kinds import read_zone
from wakeful.document.reading import Defaults, DocumentReader
from wakeful.errors import InvalidSchedule
from wakeful.job.job import Timing
from wakeful.schedule.calendars import NOTHING
from wakeful.schedule.schedules import (
    At,
    CronSchedule,
    Every,
    Schedule,
    explain_schedule,
    names_zone,
    parse_schedule,
    schedule_from_json,
)
from wakeful.values.instants import LATEST_MS
from wakeful.values.json_value import camel_keys, quote, refuse, whole_number

TIMING_FIELDS: Final = ("tz", *(field.name for field in TIMING))
_BEFORE_ALL: Final = -1  # as the current time, it puts no instant in the past
_SHOWN_ZONES: Final = 10
_NEVER_KEPT: Final = (
    "it never fires: exclude covers every tick in the years whose holidays are known; "
    "choose other times, or exclude less"
)


def read_timing(reading: DocumentReader) -> Timing | None:
    """Return the timing of a document; None if it has no schedule or an invalid one, which is recorded."""
    values, problems = reading.values, reading.problems
    known = len(problems)
    if "schedule" not in values:
        for name in TIMING_FIELDS:
            if name in values:
                problems.add(name, "it has no effect without a schedule; give one, or leave it out")
        return None
    tz: str | None = None
    if "tz" in values:
        with problems.of("tz"):
            tz = read_zone(values["tz"].value)
    schedule: Schedule | None = None
    with problems.of(values["schedule"].name):
        schedule = _schedule(values["schedule"].value, tz, reading)
    instants: dict[str, int] = {}
    for name in ("startAt", "endAt"):
        if name in values:
            with problems.of(name):
                zone_name = (tz or reading.defaults.tz) if schedule is None else schedule.tz or "UTC"
                instants[name] = _instant(values[name].value, zone_name)
    rest = reading.read(TIMING)
    if schedule is None:
        return None
    timing = Timing(schedule, instants.get("startAt"), instants.get("endAt"), **rest)
    if len(problems) == known and not reading.stored and timing != reading.old_timing:
        _check(timing, reading)
    return timing


def check_zone(tz: str, defaults: Defaults, *, named: bool = True) -> None:
    """Raise InvalidArgument for a zone that the operator does not allow, whether it is named or inherited.

    >>> check_zone("Asia/Tokyo", Defaults(tz_allowlist=frozenset({"Europe/Berlin"})), named=False)
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: 'Asia/Tokyo', the zone of jobs that name none, is not allowed ...
    """
    allowed = defaults.tz_allowlist
    if allowed is None or tz in allowed:
        return
    some = ", ".join(sorted(allowed)[:_SHOWN_ZONES]) + (" …" if len(allowed) > _SHOWN_ZONES else "")
    if named:
        refuse(f"'{tz}' is not allowed here; the operator allows {some}")
    refuse(f"'{tz}', the zone of jobs that name none, is not allowed here; name one of these: {some}")


def _schedule(value: Any, tz: str | None, reading: DocumentReader) -> Schedule:
    if isinstance(value, At | Every | CronSchedule):
        value = value.to_json()
    elif isinstance(value, datetime):
        value = value.isoformat()
    elif isinstance(value, timedelta):
        value = {"kind": "every", "everyMs": value // timedelta(milliseconds=1)}
    elif isinstance(value, Mapping):
        value = camel_keys(value)
    if reading.stored and isinstance(value, Mapping):
        return schedule_from_json(value)
    own = value.get("tz") if isinstance(value, Mapping) else None
    if isinstance(own, str) and tz is not None and own != tz:
        raise InvalidSchedule(f"its tz '{own[:64]}' is not the job's, '{tz}'; give one of the two")
    try:
        return _parse_schedule(value, tz, reading.now_ms, reading)
    except InvalidSchedule:
        if reading.old_timing is not None:
            with suppress(InvalidSchedule):
                schedule = _parse_schedule(value, tz, _BEFORE_ALL, reading)
                if schedule == reading.old_timing.schedule:
                    return schedule
        raise


def _parse_schedule(value: Any, tz: str | None, now_ms: int, reading: DocumentReader) -> Schedule:
    schedule = parse_schedule(value, now_ms=now_ms, default_tz=reading.defaults.tz, tz=tz)
    if schedule.tz == "UTC" and not isinstance(schedule, CronSchedule):
        # With or without an explicit UTC it is the same schedule: an interval keeps its anchor.
        return replace(schedule, tz=None)
    return schedule


def _instant(value: object, tz: str) -> int:
    ms = whole_number(value)
    if ms is not None:
        if not 0 <= ms <= LATEST_MS:
            refuse(
                f"{quote(ms)} is out of range; milliseconds since 1970 go up to {LATEST_MS}, the end of 9998"
            )
        return ms
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        refuse(f"{quote(value)} is not a time; write '2027-03-01T09:00', or milliseconds since 1970")
    at = parse_schedule({"kind": "at", "at": value}, now_ms=_BEFORE_ALL, tz=tz)
    assert isinstance(at, At)
    return at.at_ms


def _check(timing: Timing, reading: DocumentReader) -> None:
    """Record the problems of the timing as a whole, at the time it is written."""
    problems, now, start, end = reading.problems, reading.now_ms, timing.start_ms, timing.end_ms
    tz = timing.schedule.tz or "UTC"
    with problems.of("tz"):
        if _names_zone(reading):
            check_zone(tz, reading.defaults)
        elif timing.schedule.tz is not None:  # an interval or an instant in UTC has no zone
            check_zone(tz, reading.defaults, named=False)
    if start is not None and end is not None and end <= start:
        problems.add("endAt", f"{_wall(end, tz)} is not after startAt, {_wall(start, tz)}; move one of them")
    elif end is not None and end <= now:
        problems.add("endAt", f"{_wall(end, tz)} is in the past; it is now {_wall(now, tz)}")
    else:
        first = timing.ticks(now if start is None else start).next(now)
        if first is None:
            problems.record(reading.values["schedule"].name, InvalidSchedule(_why_never(timing, tz, now)))
        elif timing.exclude.regions and _beyond_reach(timing, first, now):
            problems.record(reading.values["schedule"].name, InvalidSchedule(_NEVER_KEPT))


def _beyond_reach(timing: Timing, first_ms: int, now_ms: int) -> bool:
    """Return whether all ticks are excluded in the years whose holidays are known."""
    reach = timing.exclude.reach_year()
    if reach is None or datetime.fromtimestamp(first_ms / 1000, UTC).year <= reach:
        return False
    plain = replace(timing, exclude=NOTHING).ticks(now_ms).next(now_ms)
    return plain is not None and datetime.fromtimestamp(plain / 1000, UTC).year <= reach


def _names_zone(reading: DocumentReader) -> bool:
    """Return whether the document names a zone instead of inheriting one."""
    return "tz" in reading.values or names_zone(reading.values["schedule"].value)


def _why_never(timing: Timing, tz: str, now_ms: int) -> str:
    start, end = timing.start_ms, timing.end_ms
    if not isinstance(timing.schedule, At):
        possible = (
            ("from startAt on", start is not None),
            ("up to endAt", end is not None),
            ("outside the days of exclude", bool(timing.exclude)),
        )
        limits = ", ".join(limit for limit, is_set in possible if is_set)
        return f"it never fires: it has no tick {limits or 'any more'}; choose other times, or wider limits"
    at = timing.schedule.at_ms
    if start is not None and at < start:
        why = f"before startAt, {_wall(start, tz)}"
    elif end is not None and at > end:
        why = f"after endAt, {_wall(end, tz)}"
    elif at <= now_ms:
        why = f"in the past (it is now {_wall(now_ms, tz)})"
    else:
        why = "on an excluded day"
    return f"{_wall(at, tz)} is {why}: it would never fire; choose another time"


def _wall(ms: int, tz: str) -> str:
    return explain_schedule(At(ms, tz)).removeprefix("Once, at ")
