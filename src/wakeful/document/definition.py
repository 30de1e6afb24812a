"""A job document read into a definition, patched, and written out again: the way there and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from wakeful.document.fields import ABOUT, POLICY, TIMING, WORK
from wakeful.document.reading import MAX_TOLD, Defaults, Given, Problems, Reading
from wakeful.document.target import TARGET_FIELDS, fold_target, workflow_fields
from wakeful.document.timing import TIMING_FIELDS, check_zone, read_timing
from wakeful.document.values import camel, duration, json_value, shown, slug
from wakeful.errors import InvalidArgument
from wakeful.job import Definition, Json, Work
from wakeful.policy import Policy
from wakeful.schedule import At

_IGNORED: Final = frozenset({"enabled", "agentId"}) | {
    # What a job is shown with beside: a document that was read may come back as it is.
    "id", "workspace", "disabledReason", "nextAt", "nextAtMs", "explain", "runCount", "failures", "revision",
    "createdAt", "createdBy", "updatedAt", "nextTicks", "spent", "pauseNote", "pausedUntil", "lastRuns",
}  # fmt: skip
_DURATIONS: Final = {
    field.name.removesuffix("Ms"): field.name for field in POLICY if field.name.endswith("Ms")
}
#: every name that a document may use, and the field that it means
_NAMES: Final[dict[str, str]] = {
    **{name: name for name in ("name", "schedule", "tz", *TARGET_FIELDS, "payload")},
    **{field.name: field.name for field in (*TIMING, *WORK, *POLICY, *ABOUT)},
    **_DURATIONS,
    "cron": "schedule",
}
#: what people call it elsewhere
_MEANT: Final = {
    **dict.fromkeys(("every", "at", "in", "when", "interval"), "schedule"),
    **dict.fromkeys(("expr", "cronExpr", "expression"), "cron"),
    **dict.fromkeys(("timezone", "timeZone", "zone"), "tz"),
    **dict.fromkeys(("url", "webhook"), "webhookUrl"),
    **dict.fromkeys(("prompt", "text", "input"), "message"),
    **dict.fromkeys(("retries", "maxRetries"), "maxAttempts"),
    **dict.fromkeys(("holidays", "calendar", "calendars"), "exclude"),
    "dependsOn": "after",
    "tags": "labels",
}


def read_definition(
    document: Mapping[str, object],
    *,
    now_ms: int,
    defaults: Defaults,
    stored: bool = False,
    old: Definition | None = None,
) -> Definition:
    """The definition that a document spells, or InvalidArgument with a line for each field that is wrong.

    A `stored` document was right once, so that an `at` may be in the past. With `old`, the definition that
    this one takes the place of, a schedule may stay as it is though its time is over.

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
    given = {name: item for name, item in _given(document, problems).items() if item.value is not None}
    return _definition(Reading(given, problems, now_ms, defaults, stored, old.timing if old else None))


def patch_definition(
    old: Definition, patch: Mapping[str, object], *, now_ms: int, defaults: Defaults
) -> Definition:
    """The definition with the fields of a patch changed, judged whole.

    A null puts a field back to its default. A schedule without a zone of its own keeps the one there was; a
    `tz` alone moves a cron schedule to another zone, and leaves the instant of an `at` where it is. What
    follows from the kind of schedule (`deleteAfterRun`) follows the new one, unless somebody chose it.

    >>> old = read_definition(
    ...     {"name": "digest", "schedule": "0 7 * * *", "tz": "Europe/Berlin"}, now_ms=0, defaults=Defaults()
    ... )
    >>> patch_definition(old, {"schedule": "0 8 * * *"}, now_ms=0, defaults=Defaults()).timing.schedule
    CronSchedule(expr='0 8 * * *', tz='Europe/Berlin')
    """
    problems = Problems()
    given = _given(patch, problems)
    kept = {name: Given(name, value) for name, value in write_definition(old).items()}
    for name in _superseded(given, old):
        kept.pop(name, None)
    schedule = kept.get("schedule")
    if "tz" in given and schedule is not None and isinstance(schedule.value, dict):
        schedule.value.pop("tz", None)
    merged = {
        name: item
        for name, item in {**kept, **given}.items()
        if item.value is not None or (name in given and name in TARGET_FIELDS)
    }
    return _definition(
        Reading(merged, problems, now_ms, defaults, old_timing=old.timing, old_target=old.work.own_target)
    )


def write_definition(definition: Definition) -> dict[str, Json]:
    """The whole document, every field of it, as `read_definition` reads it back.

    A target that is the agent's is not the document's to say: there it is null.

    >>> definition = read_definition({"name": "a", "schedule": "every 5m"}, now_ms=0, defaults=Defaults())
    >>> document = write_definition(definition)
    >>> document["schedule"], document["maxAttempts"], document["endAt"]
    ({'kind': 'every', 'everyMs': 300000}, 5, None)
    """
    timing, work = definition.timing, definition.work
    document: dict[str, Json] = {"name": definition.name}
    for field in TIMING:
        document[field.name] = None if timing is None else field.write(getattr(timing, field.attr))
    document["tz"] = None if timing is None else timing.schedule.tz or "UTC"
    for part, table in ((work, WORK), (definition.policy, POLICY), (definition, ABOUT)):
        document |= {field.name: field.write(getattr(part, field.attr)) for field in table}
    document["target"] = None if work.inherited else document["target"]
    return {**document, "payload": work.payload, **workflow_fields(work.own_target)}


def _given(document: Mapping[str, object], problems: Problems) -> dict[str, Given]:
    """What a document says, by field. Nulls are kept: in a patch they speak."""
    if not isinstance(document, Mapping):
        raise InvalidArgument(f"a job is an object with a name and a schedule, not {shown(document)}")
    given: dict[str, Given] = {}
    items: Iterable[tuple[object, object]] = document.items()
    for key, value in items:
        name = camel(key) if isinstance(key, str) else ""
        if name in _IGNORED:
            continue
        if name not in _NAMES:
            meant = _suggestion(name[:64]) if len(problems) < MAX_TOLD else ""
            problems.add(str(key)[:64], f"a job has no such field; {meant}")
            continue
        field = _NAMES[name]
        if field in given and given[field].value is not None:
            if value is not None:
                problems.add(field, f"it is given twice, as {given[field].name} and {key}; give it once")
            continue
        given[field] = Given(name, value)
    for field, item in list(given.items()):
        if item.name in _DURATIONS and item.value is not None:
            del given[field]
            with problems.of(item.name):
                given[field] = Given(item.name, duration(item.value))
    return given


def _suggestion(name: str) -> str:
    near = get_close_matches(name, [*_NAMES, *_MEANT], n=1)
    return f"did you mean {_MEANT.get(near[0], near[0])}?" if near else "leave it out"


def _definition(reading: Reading) -> Definition:
    given, problems = reading.given, reading.problems
    name = ""
    if "name" not in given:
        problems.add("name", "it is missing; give the job a name such as 'daily-report'")
    else:
        with problems.of("name"):
            name = slug("name")(given["name"].value)
    timing = read_timing(reading)
    about = reading.fields(ABOUT)
    if "schedule" not in given and "after" not in given:
        problems.add(
            "schedule", "it is missing; say when, as in '0 9 * * 1-5' or 'every 15m', or after which job"
        )
    if "after" in about and about["after"].job == name:
        problems.add("after", "a job cannot come after itself; name another one")
    work = reading.fields(WORK)
    if "active_hours" in work:
        work["hours_tz"] = (timing.schedule.tz or "UTC") if timing else reading.defaults.tz
        if timing is None and not reading.stored:
            with problems.of("activeHours"):
                check_zone(reading.defaults.tz, reading.defaults, named=False)
    targets = {field: given[field] for field in TARGET_FIELDS if field in given}
    work["target"] = fold_target(targets, reading.old_target, problems)
    if "payload" in given:
        with problems.of("payload"):
            longest = None if reading.stored else reading.defaults.max_payload_bytes
            work["payload"] = json_value(given["payload"].value, longest)
    policy = {
        "overlap": reading.defaults.overlap,
        "catchup": reading.defaults.catchup,
        "jitter_ms": reading.defaults.jitter_ms,
        "delete_after_run": timing is not None and isinstance(timing.schedule, At),
        **reading.fields(POLICY),
    }
    problems.tell()
    return Definition(name, timing, Policy(**policy), Work(**work), **about)


def _superseded(given: Mapping[str, Given], old: Definition) -> list[str]:
    """The fields of the old document that do not outlive a patch, though it does not name them."""
    gone = list(TARGET_FIELDS)  # the target is patched as a whole, from the old one
    if "schedule" not in given:
        return gone
    was_at = old.timing is not None and isinstance(old.timing.schedule, At)
    if old.policy.delete_after_run == was_at:
        gone.append("deleteAfterRun")
    schedule = given["schedule"].value
    if schedule is None:
        gone += TIMING_FIELDS
    elif isinstance(schedule, Mapping) and schedule.get("tz") is not None:
        gone.append("tz")
    return gone
