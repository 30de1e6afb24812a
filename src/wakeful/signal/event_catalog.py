"""The MCP events that Wakeful serves: their names, arguments and payloads. Pure.

One declaration per event; `events/list`, the check of arguments, and the filters follow from it. An event
about time has the arguments of a schedule. All others have filters: an event passes if each filter that is
given equals the field of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument, NotFound
from wakeful.values.json_value import Json, compact, list_choices, quote
from wakeful.values.stored_text import UNSTORABLE, is_storable

#: The event of a schedule.
TICK: Final = "schedule.tick"
#: How events are delivered.
DELIVERY: Final = ("webhook", "poll")
#: The most bytes of the arguments of a subscription.
MAX_ARGUMENTS: Final = 16 * 1024

_TEXT: Final[dict[str, Json]] = {"type": "string"}
_OPTIONAL: Final[dict[str, Json]] = {"type": ["string", "null"]}
_INSTANT: Final[dict[str, Json]] = {"type": "string", "format": "date-time"}


class EventDefinition(NamedTuple):
    """An event that can be subscribed to."""

    name: str
    description: str
    #: JSON schemas of the arguments, by name
    arguments: Mapping[str, Json]
    #: JSON schemas of the fields of the payload
    payload: Mapping[str, Json]
    required: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the definition as `events/list` returns it."""
        return {
            "name": self.name,
            "description": self.description,
            "delivery": [*DELIVERY],
            "inputSchema": {
                "type": "object",
                "properties": dict(self.arguments),
                "required": [*self.required],
                "additionalProperties": False,
            },
            "payloadSchema": {
                "type": "object",
                "properties": dict(self.payload),
                "required": [*self.payload],
            },
        }


_RUN: Final = (
    "runId", "job", "agent", "state", "reason", "trigger", "scheduledAt", "finishedAt", "output", "error",
)  # fmt: skip
_INCIDENT: Final = (
    "incidentId", "job", "agent", "cause", "error", "state", "failedRuns", "openedAt", "runId",
)  # fmt: skip


def _changed(
    name: str, description: str, payload: tuple[str, ...], filters: Mapping[str, str] | None = None
) -> EventDefinition:
    """Return an event of the changelog: each of its filters is a text."""
    about = {"agent": "Only of this agent.", **({"job": "Only of this job."} if "job" in payload else {})}
    arguments: dict[str, Json] = {
        key: {**_TEXT, "description": text} for key, text in {**about, **(filters or {})}.items()
    }
    fields: dict[str, Json] = {field: {} for field in payload}
    return EventDefinition(name, description, arguments, fields)


EVENTS: Final[Mapping[str, EventDefinition]] = {
    event.name: event
    for event in (
        EventDefinition(
            TICK,
            "An instant of a schedule, such as every weekday at nine. Each is delivered once, in order, also "
            "after the server was down.",
            {
                "schedule": {
                    "type": ["string", "object"],
                    "description": "When: a cron expression, 'every 15m', an instant, or words such as "
                    "'every weekday at 9am'.",
                },
                "tz": {**_TEXT, "description": "The time zone of the schedule, such as Europe/Berlin."},
                "dstGap": {**_TEXT, "description": "A time in the hour that DST skips: run_after or skip."},
                "dstOverlap": {**_TEXT, "description": "A time in the hour that DST repeats: first or both."},
                "message": {**_TEXT, "description": "What to do then. It is part of each event."},
            },
            {
                "scheduledAt": _INSTANT,
                "number": {"type": "integer", "description": "1 for the first tick of the subscription."},
                "nextAt": {"type": ["string", "null"], "format": "date-time"},
                "message": _OPTIONAL,
            },
            required=("schedule",),
        ),
        _changed(
            "run.finished",
            "A run succeeded, failed, or ended without being started.",
            _RUN,
            {
                "state": "Only runs that ended so: succeeded, failed, cancelled, skipped or missed.",
                "trigger": "Only runs that were started so, such as schedule or user.",
                "label": "Only runs of jobs with this label: its name, or name=value.",
            },
        ),
        _changed("incident.opened", "A job began to fail for a new cause.", _INCIDENT),
        _changed("incident.recovered", "A job succeeded again after an incident.", _INCIDENT),
        _changed(
            "approval.requested",
            "A job that an agent made waits for the approval of a person.",
            ("jobId", "job", "agent"),
        ),
        _changed(
            "verification.requested",
            "The work of a run waits for a person to confirm it.",
            ("runId", "job", "agent", "output"),
        ),
        _changed("job.changed", "A job was created, changed or deleted.", ("jobId", "job", "agent")),
        _changed(
            "signal.emitted",
            "An agent emitted a signal.",
            ("type", "id", "runId", "job", "agent", "instance"),
            {"type": "Only signals of this type; * stands for any characters, as in report.*"},
        ),
        _changed("budget.exhausted", "A budget of the day was used up.", ("agent", "jobId", "cap", "most")),
    )
}


def passes(filters: Mapping[str, Json], data: Mapping[str, Json]) -> bool:
    """Return whether an event with this payload passes the filters of a subscription.

    >>> finished = {"job": "digest", "state": "failed", "labels": {"team": "ops"}}
    >>> passes({"state": "failed", "label": "team=ops"}, finished), passes({"label": "team=dev"}, finished)
    (True, False)
    >>> passes({"type": "report.*"}, {"type": "report.done"}), passes({"label": "team"}, finished)
    (True, True)
    """
    return all(_passes(name, str(value), data) for name, value in filters.items())


def _passes(name: str, wanted: str, data: Mapping[str, Json]) -> bool:
    if name == "label":
        labels, (key, equals, value) = data.get("labels"), wanted.partition("=")
        return isinstance(labels, dict) and key in labels and (not equals or labels[key] == value)
    if name == "type":
        return fnmatchcase(str(data.get("type")), wanted)
    return data.get(name) == wanted


def find_event(name: object) -> EventDefinition:
    """Return the event of that name. Raises NotFound.

    >>> find_event("schedule.tick").required
    ('schedule',)
    """
    event = EVENTS.get(name) if isinstance(name, str) else None
    if event is None:
        raise NotFound(f"there is no event {quote(name)}; there is {list_choices(EVENTS)}")
    return event


def check_arguments(event: EventDefinition, arguments: object) -> dict[str, Json]:
    """Return the arguments of a subscription without nulls. Raises InvalidArgument.

    >>> check_arguments(find_event("schedule.tick"), {"schedule": "every 1h", "tz": None})
    {'schedule': 'every 1h'}
    """
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise InvalidArgument(f"arguments: it is an object, not {quote(arguments)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = sorted(given.keys() - event.arguments.keys())
    if unknown:
        raise InvalidArgument(
            f"arguments: {event.name} has no {quote(unknown[0])}; it has {list_choices(event.arguments)}"
        )
    missing = [name for name in event.required if name not in given]
    if missing:
        raise InvalidArgument(f"arguments: {event.name} needs '{missing[0]}'")
    for name, value in given.items():
        if not isinstance(value, str) and not (name == "schedule" and isinstance(value, dict)):
            raise InvalidArgument(f"arguments: '{name}' is a text, not {quote(value)}")
    text = compact(given)
    if not is_storable(text):
        raise InvalidArgument(f"arguments: {UNSTORABLE}")
    if len(text.encode()) > MAX_ARGUMENTS:
        raise InvalidArgument(f"arguments: they have more than {MAX_ARGUMENTS:,} bytes")
    return given


#: The beginning of the names of the jobs that deliver events.
JOB_PREFIX: Final = "wakeful-events-"
_JOB: Final = re.compile(JOB_PREFIX + "[0-9a-f]{32}")


def job_name(subscription_id: str) -> str:
    """Return the name of the job of a subscription.

    >>> job_name("sub_" + "0" * 32)[:20]
    'wakeful-events-00000'
    """
    return JOB_PREFIX + subscription_id.removeprefix("sub_")


def is_event_job(name: str | None) -> bool:
    """Return whether a job of this name delivers events: nobody else can give a job such a name.

    >>> is_event_job(job_name("sub_" + "0" * 32)), is_event_job("digest")
    (True, False)
    """
    return name is not None and _JOB.fullmatch(name) is not None
