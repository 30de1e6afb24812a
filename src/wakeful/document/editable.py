"""A job as people write it: without defaults, with durations and schedules as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast
from zoneinfo import ZoneInfo

from wakeful.document.definition import read_definition, write_definition
from wakeful.document.fields import DECLARED
from wakeful.document.reading import Defaults
from wakeful.duration import format_duration
from wakeful.values.json_value import Json

#: The first fields of the text; the others follow in their order in the document.
_FIRST: Final = ("name", "description", "schedule", "tz", "target", "message", "payload")
#: The fields of a job that belong to its definition.
DEFINITION: Final = ("name", "tz", "payload", *(field.name for field in DECLARED))


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
