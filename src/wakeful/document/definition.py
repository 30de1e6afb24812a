"""Reading a job document into a definition, patching a definition, and writing it as a document.

`editable` returns a job as people write it: without defaults, with durations and schedules as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, cast
from zoneinfo import ZoneInfo

from wakeful.document.fields import ABOUT, DECLARED, OTHER, POLICY, RESPONSE_ONLY, TIMING, WORK
from wakeful.document.kinds import duration, slug
from wakeful.document.reading import MAX_REPORTED, Defaults, DocumentReader, NamedValue, Problems
from wakeful.document.target import TARGET_FIELDS, read_targets, workflow_fields
from wakeful.document.timing import TIMING_FIELDS, check_zone, read_timing
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition, Work
from wakeful.job.policy import Policy
from wakeful.job.start_rules import is_called
from wakeful.schedule.schedules import At, names_zone
from wakeful.values.duration import format_duration
from wakeful.values.json_value import Json, camel, json_value, quote

#: Names that are accepted and ignored here: the caller reads `enabled` and `agentId`.
IGNORED: Final = frozenset({"enabled", "agentId", *RESPONSE_ONLY})
_DURATIONS: Final = {field.duration_name: field.name for field in DECLARED if field.duration_name}
#: Every name that a document may use, and its field.
NAMES: Final[dict[str, str]] = {
    **{field.name: field.name for field in (*OTHER, *DECLARED) if field.name not in IGNORED},
    **_DURATIONS,
    "cron": "schedule",
    "scheduleText": "schedule",
}
#: Names from other schedulers, for the suggestion in an error message.
_FOREIGN_NAMES: Final = {
    **dict.fromkeys(("every", "at", "in", "when", "interval"), "schedule"),
    **dict.fromkeys(("expr", "cronExpr", "expression"), "cron"),
    **dict.fromkeys(("timezone", "timeZone", "zone"), "tz"),
    **dict.fromkeys(("url", "webhook"), "webhookUrl"),
    **dict.fromkeys(("prompt", "text", "input"), "message"),
    **dict.fromkeys(("retries", "maxRetries"), "maxAttempts"),
    **dict.fromkeys(("holidays", "calendar", "calendars"), "exclude"),
    **dict.fromkeys(("paused", "pause", "suspended", "disabled", "active", "enable"), "enabled"),
    **dict.fromkeys(("agent", "agentName"), "agentId"),
    **dict.fromkeys(("priority", "queue", "pool"), "lane"),  # work that must not wait has a lane of its own
    "retry": "maxAttempts",
    "timeoutSeconds": "timeout",
    "desc": "description",
    "dependsOn": "after",
    "overlap": "overlapPolicy",
    "catchup": "catchupPolicy",
    "tags": "labels",
}
#: The field to suggest for a name in lower case, and how much an unknown name must resemble it.
_SUGGESTED: Final[dict[str, str]] = {
    **{name.lower(): field for name, field in _FOREIGN_NAMES.items()},
    **{name.lower(): name for name in (*NAMES, "enabled", "agentId")},
}
_RESEMBLES: Final = 0.7
_JOB_NAME: Final = slug("name")
#: The first fields of the text; the others follow in their order in the document.
_FIRST: Final = ("name", "description", "schedule", "tz", "target", "message", "payload")
#: The fields of a job that belong to its definition.
DEFINITION: Final = ("name", "tz", "payload", *(field.name for field in DECLARED))


def read_definition(
    document: Mapping[str, object],
    *,
    now_ms: int,
    defaults: Defaults,
    stored: bool = False,
    old: Definition | None = None,
) -> Definition:
    """Return the definition of a document, or raise InvalidArgument with a line for each wrong field.

    A `stored` document was valid when it was written: an `at` may be in the past. With `old`, the definition
    that this one replaces, an unchanged schedule may be in the past too.

    >>> job = read_definition(
    ...     {"name": "digest", "cron": "0 7 * * *", "webhookUrl": "https://a.example", "timeout": "30s"},
    ...     now_ms=0,
    ...     defaults=Defaults(),
    ... )
    >>> job.timing.schedule, job.policy.timeout_ms
    (CronSchedule(expr='0 7 * * *', tz='UTC'), 30000)
    >>> read_definition({"name": "Digest", "schedule": "@daily", "jitter": 5}, now_ms=0, defaults=Defaults())
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: jitter: 5 is not a duration; write '30s' or '5m', or ...
    name: 'Digest' is not a slug; use lowercase letters, digits and inner hyphens, ...
    """
    problems = Problems()
    values = {name: item for name, item in _values(document, problems).items() if item.value is not None}
    return _definition(
        DocumentReader(values, problems, now_ms, defaults, stored, old.timing if old else None)
    )


def patch_definition(
    old: Definition, patch: Mapping[str, object], *, now_ms: int, defaults: Defaults
) -> Definition:
    """Return the definition with the fields of a patch changed; the result is validated as a whole.

    A null resets a field to its default. A schedule without a zone keeps the old zone; a `tz` alone moves a
    cron schedule to that zone, and leaves the instant of an `at` unchanged. The default of `deleteAfterRun`
    follows the kind of the new schedule, unless the old value was set explicitly.

    >>> old = read_definition(
    ...     {"name": "digest", "schedule": "0 7 * * *", "tz": "Europe/Berlin"}, now_ms=0, defaults=Defaults()
    ... )
    >>> patch_definition(old, {"schedule": "0 8 * * *"}, now_ms=0, defaults=Defaults()).timing.schedule
    CronSchedule(expr='0 8 * * *', tz='Europe/Berlin')
    """
    problems = Problems()
    changes = _values(patch, problems)
    kept = {name: NamedValue(name, value) for name, value in write_definition(old).items()}
    for name in _superseded_fields(changes, old):
        kept.pop(name, None)
    schedule = kept.get("schedule")
    if "tz" in changes and schedule is not None and isinstance(schedule.value, dict):
        schedule.value.pop("tz", None)
    merged = {
        name: item
        for name, item in {**kept, **changes}.items()
        if item.value is not None or (name in changes and name in TARGET_FIELDS)
    }
    return _definition(
        DocumentReader(
            merged, problems, now_ms, defaults, old_timing=old.timing, old_target=old.work.own_target
        )
    )


def write_definition(definition: Definition) -> dict[str, Json]:
    """Return the document with all its fields, as `read_definition` reads it.

    An inherited target is not part of the document: it is written as null.

    >>> definition = read_definition({"name": "a", "schedule": "every 5m"}, now_ms=0, defaults=Defaults())
    >>> document = write_definition(definition)
    >>> document["schedule"], document["maxAttempts"], document["endAt"]
    ({'kind': 'every', 'everyMs': 300000}, 5, None)
    """
    timing, work = definition.timing, definition.work
    document: dict[str, Json] = {"name": definition.name}
    for field in TIMING:
        document[field.name] = None if timing is None else field.kind.write(getattr(timing, field.attr))
    document["tz"] = None if timing is None else timing.schedule.tz or "UTC"
    for part, table in ((work, WORK), (definition.policy, POLICY), (definition, ABOUT)):
        document |= {field.name: field.kind.write(getattr(part, field.attr)) for field in table}
    document["target"] = None if work.inherited else document["target"]
    return {**document, "payload": work.payload, **workflow_fields(work.own_target)}


def _values(document: Mapping[str, object], problems: Problems) -> dict[str, NamedValue]:
    """Return the values of a document by field, with nulls, which have a meaning in a patch."""
    if not isinstance(document, Mapping):
        raise InvalidArgument(f"a job is an object with a name and a schedule, not {quote(document)}")
    values: dict[str, NamedValue] = {}
    items: Iterable[tuple[object, object]] = document.items()
    for key, value in items:
        name = camel(key) if isinstance(key, str) else ""
        if name in IGNORED:
            continue
        if name not in NAMES:
            hint = _suggestion(name[:64]) if len(problems) < MAX_REPORTED else ""
            problems.add(str(key)[:64], f"a job has no such field; {hint}")
            continue
        field = NAMES[name]
        if field in values and values[field].value is not None:
            if value is not None:
                problems.add(field, f"it is given twice, as {values[field].name} and {key}; give it once")
            continue
        values[field] = NamedValue(name, value)
    for field, item in list(values.items()):
        if item.name in _DURATIONS and item.value is not None:
            del values[field]
            with problems.of(item.name):
                values[field] = NamedValue(item.name, duration(item.value))
    return values


def _suggestion(name: str) -> str:
    near = get_close_matches(name.lower(), _SUGGESTED, n=1, cutoff=_RESEMBLES)
    return f"did you mean {_SUGGESTED[near[0]]}?" if near else "leave it out"


def _definition(reading: DocumentReader) -> Definition:
    values, problems = reading.values, reading.problems
    name = ""
    if "name" not in values:
        problems.add("name", "it is missing; give the job a name such as 'daily-report'")
    else:
        with problems.of("name"):
            name = _JOB_NAME(values["name"].value)
    timing = read_timing(reading)
    about = reading.read(ABOUT)
    work = reading.read(WORK)
    targets = {field: values[field] for field in TARGET_FIELDS if field in values}
    work["target"] = read_targets(targets, reading.old_target, problems)
    starts = "schedule" in values or "after" in values or work.get("trigger_url") or work.get("on")
    if not starts and not is_called(work["target"]):
        problems.add(
            "schedule",
            "it is missing; write '0 9 * * 1-5' or 'every 15m', or name another job in `after` or an event "
            "in `on`, or set `triggerUrl` to true for a job that only its trigger URL and manual runs start",
        )
    if "after" in about and about["after"].job == name:
        problems.add("after", "a job cannot come after itself; name another one")
    if "active_hours" in work:
        work["hours_tz"] = (timing.schedule.tz or "UTC") if timing else reading.defaults.tz
        if timing is None and not reading.stored:
            with problems.of("activeHours"):
                check_zone(reading.defaults.tz, reading.defaults, named=False)
    if "after" in about and about["after"].output:
        work["after_output"] = True
    if "payload" in values:
        with problems.of("payload"):
            longest = None if reading.stored else reading.defaults.max_payload_bytes
            work["payload"] = json_value(values["payload"].value, longest)
    policy = {
        "overlap": reading.defaults.overlap,
        "catchup": reading.defaults.catchup,
        "jitter_ms": reading.defaults.jitter_ms,
        "delete_after_run": timing is not None and isinstance(timing.schedule, At),
        **reading.read(POLICY),
    }
    problems.raise_all()
    return Definition(name, timing, Policy(**policy), Work(**work), **about)


def _superseded_fields(changes: Mapping[str, NamedValue], old: Definition) -> list[str]:
    """Return the fields of the old document that a patch drops without naming them."""
    names = list(TARGET_FIELDS)  # `read_targets` patches the old target
    if "schedule" not in changes:
        return names
    was_at = old.timing is not None and isinstance(old.timing.schedule, At)
    if old.policy.delete_after_run == was_at:
        names.append("deleteAfterRun")
    schedule = changes["schedule"].value
    if schedule is None:
        names += TIMING_FIELDS
    elif names_zone(schedule):
        names.append("tz")
    return names


def default_fields(defaults: Defaults | None = None) -> dict[str, Json]:
    """Return the fields of a minimal job: values equal to these are not shown."""
    document = {"name": "a", "schedule": "every 1h"}
    return write_definition(read_definition(document, now_ms=0, defaults=defaults or Defaults()))


def editable(job: Mapping[str, Json], defaults: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a job that differ from the defaults, and whether it is enabled."""
    names = (*_FIRST, *(name for name in DEFINITION if name not in _FIRST))
    document: dict[str, Json] = {
        name: job[name] for name in names if job.get(name) is not None and job[name] != defaults.get(name)
    }
    if isinstance(job.get("schedule"), dict):
        schedule = cast(dict[str, Json], job["schedule"])
        document["schedule"] = schedule_text(schedule, str(job.get("tz") or "UTC"))
        document["tz"] = job.get("tz")
    ordered = {name: document[name] for name in names if name in document}
    return {**ordered, "enabled": bool(job.get("enabled"))}


def schedule_text(schedule: Mapping[str, Json], tz: str) -> Json:
    """Return a schedule as people write it.

    >>> schedule_text({"kind": "cron", "expr": "0 9 * * *", "tz": "UTC"}, "UTC")
    '0 9 * * *'
    >>> schedule_text({"kind": "every", "everyMs": 900000}, "UTC")
    'every 15m'
    >>> schedule_text({"kind": "at", "atMs": 1_800_000_000_000}, "Europe/Berlin")
    '2027-01-15T09:00:00+01:00'
    """
    match schedule.get("kind"), schedule:
        case "cron", {"expr": str(expression)}:
            return expression
        case "every", {"everyMs": int(ms)}:
            return f"every {format_duration(ms)}"
        case "at", {"atMs": int(ms)}:
            return instant_text(ms, tz)
    return dict(schedule)


def instant_text(ms: int, tz: str) -> str:
    """Return an instant in a zone, with its offset.

    >>> instant_text(1_800_000_000_000, "Europe/Berlin")
    '2027-01-15T09:00:00+01:00'
    """
    at = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return at.astimezone(ZoneInfo(tz)).isoformat()
