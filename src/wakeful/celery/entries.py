"""The entries of a beat schedule as jobs. Pure.

Each entry becomes a job with a `celery` target. Its label names the app, so that jobs whose entry was removed
can be found. Options that Celery does not have are in `options["wakeful"]` of the entry:

    "options": {"queue": "reports", "wakeful": {"overlapPolicy": "skip", "timeout": "5m"}}

Celery's crontab runs on days that match both the day of the month and the day of the week. A cron expression
runs on days that match either of them, unless one of the two fields starts with `*`. So a crontab that has
both is written in a form that cron reads as both: `MON#1` for the Monday of the first seven days, or a field
that starts with `*/31` (the 1st) or `*/7` (Sunday). Where there is no such form, it is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from celery.schedules import crontab, schedule
from kombu.utils import json as kombu_json

from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job.job import MAX_NAME
from wakeful.store.internal_jobs import is_reserved
from wakeful.values.json_value import Json

_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
#: The days of the month on which each weekday occurs for the first, second, third and fourth time.
_WEEKS: Final = tuple(frozenset(range(first, first + 7)) for first in (1, 8, 15, 22))
#: Where a relative interval starts: a full hour, and midnight in UTC.
_ALIGNED: Final = "2020-01-01T00:00:00Z"
_LEAST: Final = timedelta(seconds=1)
#: The label of jobs that come from a beat schedule. Its value is the name of the app.
LABEL: Final = "celery-beat"
#: Beat does not retry tasks, runs them next to each other, and sends one that is overdue when it starts,
#: once: ticks that are more than a moment late are missed, and the newest of them is sent.
DEFAULTS: Final[Mapping[str, Json]] = {
    "overlapPolicy": "allow",
    "catchupPolicy": "latest",
    "maxAttempts": 1,
    "timeout": "24h",
}
_ENTRY_FIELDS: Final = frozenset({"task", "schedule", "args", "kwargs", "options", "relative"})
#: Fields of a job that the entry itself has.
_OWN: Final = frozenset({"name", "schedule", "target", "labels"})
_HASH: Final = 8


def convert_schedule(value: Any, tz: str, *, relative: bool = False) -> dict[str, Json]:
    """Return the fields of a job (`schedule`, `startAt`) for the schedule of a beat entry.

    Raises InvalidSchedule for one that Wakeful cannot keep.

    >>> convert_schedule(30.0, "UTC")
    {'schedule': {'kind': 'every', 'everyMs': 30000}}
    >>> convert_schedule(crontab(minute=0, hour=7), "Europe/Berlin")
    {'schedule': {'kind': 'cron', 'expr': '0 7 * * *', 'tz': 'Europe/Berlin'}}
    """
    if isinstance(value, crontab):
        return {"schedule": {"kind": "cron", "expr": crontab_expression(value), "tz": tz}}
    if isinstance(value, int | float) and not isinstance(value, bool):
        every = timedelta(seconds=value)
    elif isinstance(value, timedelta):
        every = value
    elif type(value) is schedule:
        every, relative = value.run_every, relative or value.relative
    else:
        raise InvalidSchedule(
            f"a schedule of type {type(value).__module__}.{type(value).__qualname__} has no equivalent; use "
            "crontab, a timedelta or a number of seconds"
        )
    if every < _LEAST:
        raise InvalidSchedule(f"an interval of {every.total_seconds():g} s is too short; at least 1 s")
    fields: dict[str, Json] = {"schedule": {"kind": "every", "everyMs": every // timedelta(milliseconds=1)}}
    if relative:
        fields["startAt"] = _ALIGNED
    return fields


def crontab_expression(entry: Any) -> str:
    """Return the cron expression of a Celery crontab. Raises InvalidSchedule if there is none.

    >>> crontab_expression(crontab(minute="*/15", hour="22-2", day_of_week="mon-fri"))
    '*/15 0-2,22-23 * * 1-5'
    >>> crontab_expression(crontab(0, 9, day_of_month="1-7", day_of_week="mon"))
    '0 9 * * MON#1'
    >>> crontab_expression(crontab(0, 9, day_of_month="1,15", day_of_week="mon"))
    '0 9 */31,15 * 1'
    >>> crontab_expression(crontab(0, 9, day_of_month="13", day_of_week="fri"))
    Traceback (most recent call last):
    wakeful.errors.InvalidSchedule: day_of_month='13' and day_of_week='fri' must both match in Celery, and ...
    """
    minute = _field(entry._orig_minute, entry.minute, range(60))
    hour = _field(entry._orig_hour, entry.hour, range(24))
    month = _field(entry._orig_month_of_year, entry.month_of_year, range(1, 13))
    days, weekdays = frozenset(entry.day_of_month), frozenset(entry.day_of_week)
    day = _field(entry._orig_day_of_month, days, range(1, 32))
    weekday = _field(entry._orig_day_of_week, weekdays, range(7))
    if not day.startswith("*") and not weekday.startswith("*"):
        if days in _WEEKS:
            week = _WEEKS.index(days) + 1
            day, weekday = "*", ",".join(f"{_DAYS[each]}#{week}" for each in sorted(weekdays))
        elif 1 in days:
            day = ",".join(filter(None, ("*/31", _ranges(days - {1}))))
        elif 0 in weekdays:
            weekday = ",".join(filter(None, ("*/7", _ranges(weekdays - {0}))))
        else:
            raise InvalidSchedule(
                f"day_of_month={entry._orig_day_of_month!r} and day_of_week={entry._orig_day_of_week!r} must "
                "both match in Celery, and no cron expression says so; keep day_of_month, and return early "
                "in the task on other days of the week"
            )
    return f"{minute} {hour} {day} {month} {weekday}"


def _field(text: object, values: Iterable[int], full: range) -> str:
    """Return a field of an expression.

    The text stays if it is `*` or a step, which cron reads in the same way. Otherwise it is written from its
    values: Celery also has ranges that pass the end of the day, and collections.
    """
    found = frozenset(values)
    if isinstance(text, str) and text.startswith("*/") and text[2:].isdecimal():
        return text
    return "*" if found == frozenset(full) else _ranges(found)


def _ranges(values: Iterable[int]) -> str:
    """Return numbers as a list of ranges.

    >>> _ranges({1, 2, 3, 7})
    '1-3,7'
    """
    spans: list[list[int]] = []
    for value in sorted(values):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def convert_entries(
    entries: Mapping[str, Any], app_name: str, tz: str, *, in_target: bool = False
) -> dict[str, dict[str, Json]]:
    """Return the job documents by the names of their entries. `in_target`: their targets name the app.

    Raises InvalidArgument that names every entry that cannot be converted, and why.

    >>> job = convert_entries({"add": {"task": "app.add", "schedule": 30, "args": (1, 2)}}, "app", "UTC")[
    ...     "add"
    ... ]
    >>> job["schedule"], job["target"]
    ({'kind': 'every', 'everyMs': 30000}, {'kind': 'celery', 'task': 'app.add', 'args': [1, 2]})
    """
    names, found, problems = job_names(entries), {}, []
    for name, entry in entries.items():
        try:
            found[name] = {"name": names[name], **_document(name, entry, app_name, tz, in_target)}
        except (InvalidArgument, InvalidSchedule) as error:
            problems.append((name, error.message))
    if problems:
        raise unusable(problems)
    return found


def unusable(problems: Iterable[tuple[str, str]]) -> InvalidArgument:
    """Return the error for entries that cannot be jobs.

    >>> print(unusable([("sunset", "a solar schedule has no equivalent")]).message)
    beat_schedule: 1 entry cannot be scheduled:
      'sunset': a solar schedule has no equivalent
    """
    lines = [f"  '{name}': {message}" for name, message in problems]
    count = "1 entry" if len(lines) == 1 else f"{len(lines)} entries"
    return InvalidArgument("\n".join([f"beat_schedule: {count} cannot be scheduled:", *lines]))


def job_names(entries: Iterable[str]) -> dict[str, str]:
    """Return the name of each entry's job: a slug.

    Entries with the same slug, and with one that is reserved for Wakeful, get a hash of their name.

    >>> job_names(["Send report", "celery.backend_cleanup"])
    {'Send report': 'send-report', 'celery.backend_cleanup': 'celery-backend-cleanup'}
    >>> job_names(["a b", "a.b"])
    {'a b': 'a-b-c8687a08', 'a.b': 'a-b-2e7336dc'}
    >>> job_names(["Heartbeat"])
    {'Heartbeat': 'heartbeat-9df89427'}
    """
    slugs = {name: re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in entries}
    count = Counter(slug for slug in slugs.values() if 0 < len(slug) <= MAX_NAME and not is_reserved(slug))
    return {name: slug if count[slug] == 1 else _hash(name, slug) for name, slug in slugs.items()}


def _hash(name: str, slug: str) -> str:
    start = slug[: MAX_NAME - _HASH - 1].strip("-") or "entry"
    if is_reserved(f"{start}-"):  # a prefix that is reserved
        start = f"beat-{start}"[: MAX_NAME - _HASH - 1].strip("-")
    return f"{start}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:_HASH]}"


def _document(name: str, entry: Any, app_name: str, tz: str, in_target: bool) -> dict[str, Json]:
    if not isinstance(entry, Mapping):
        raise InvalidArgument("an entry is a dict with 'task' and 'schedule'")
    unknown = sorted(str(each) for each in entry.keys() - _ENTRY_FIELDS)
    if unknown:
        raise InvalidArgument(f"'{unknown[0][:64]}' is not a field of an entry")
    task, schedule = entry.get("task"), entry.get("schedule")
    if not isinstance(task, str) or not task:
        raise InvalidArgument("'task' is missing: the name of the task")
    if schedule is None:
        raise InvalidArgument("'schedule' is missing: a crontab, a timedelta or a number of seconds")
    options = dict(entry.get("options") or {})
    own = options.pop("wakeful", {})
    if not isinstance(own, Mapping) or _OWN & own.keys():
        raise InvalidArgument(
            f"options['wakeful'] is a dict of job fields, without {', '.join(sorted(_OWN))}"
        )
    defaults = dict(DEFAULTS)
    # Other policies either send all ticks, or none that is missed, or skip those that overlap.
    if {**DEFAULTS, **own}.items() >= {"overlapPolicy": "allow", "catchupPolicy": "latest"}.items():
        defaults["misfireGrace"] = "1s"
    return {
        **{field: value for field, value in defaults.items() if f"{field}Ms" not in own},
        "description": f"The entry {name!r} of the beat schedule of {app_name}.",
        **convert_schedule(schedule, tz, relative=bool(entry.get("relative"))),
        **own,
        "target": _target(task, entry, options) | ({"app": app_name} if in_target else {}),
        "labels": {LABEL: app_name},
    }


def _target(task: str, entry: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Json]:
    target: dict[str, Json] = {"kind": "celery", "task": task}
    if entry.get("args"):
        target["args"] = _json(list(entry["args"]), "args")
    if entry.get("kwargs"):
        target["kwargs"] = _json(dict(entry["kwargs"]), "kwargs")
    queue = options.pop("queue", None)
    if queue is not None:
        target["queue"] = str(getattr(queue, "name", queue))
    if options:
        target["options"] = _json(options, "options")
    return target


def _json(value: object, field: str) -> Json:
    """Return a value as Celery's JSON serializer writes it: it keeps dates, UUIDs and decimals."""
    try:
        found: Json = json.loads(kombu_json.dumps(value))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{field}: {error}; the arguments are kept as JSON") from error
    return found
