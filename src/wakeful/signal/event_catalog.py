"""The MCP events that Wakeful serves: their names, arguments and payloads. Pure.

One declaration per event; `events/list`, the check of arguments, and the filters follow from it. An event
about time has the arguments of a schedule. All others have filters: an event passes if each filter that is
given equals the field of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.errors import InvalidArgument, NotFound
from wakeful.values.json_value import Json, compact, list_choices, quote

#: The event of a schedule.
TICK: Final = "schedule.tick"
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
    delivery: tuple[str, ...] = ("webhook",)

    def to_json(self) -> dict[str, Json]:
        """Return the definition as `events/list` returns it."""
        return {
            "name": self.name,
            "description": self.description,
            "delivery": [*self.delivery],
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
    )
}


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
    if len(compact(given).encode("utf-8", "replace")) > MAX_ARGUMENTS:
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
