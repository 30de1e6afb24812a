"""The heartbeat of an agent in a document: its interval and its active hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.fields import MAX_MESSAGE
from wakeful.document.kinds import Reader, flag, hours, milliseconds, text
from wakeful.document.objects import check_names, copy_object, read_as, replace_duration
from wakeful.document.timing import read_zone
from wakeful.document.values import camel_keys, refuse, shown
from wakeful.duration import MINUTE
from wakeful.job.job import Json
from wakeful.schedule.schedules import SHORTEST_INTERVAL_MS

#: The interval of a heartbeat that sets none.
DEFAULT_EVERY_MS: Final = 30 * MINUTE
#: The message of a heartbeat that sets none.
DEFAULT_MESSAGE: Final = (
    "This is your heartbeat: nobody wrote to you. Look whether anything needs attention: what you were asked "
    "to watch, what is due, what was left unfinished. Do what you may do by yourself, and say in a few words "
    "what somebody has to know. If nothing needs attention, answer HEARTBEAT_OK and no more."
)


FIELDS: Final[dict[str, Reader]] = {
    "everyMs": milliseconds(SHORTEST_INTERVAL_MS),
    "activeHours": hours,
    "tz": read_zone,
    "message": text(MAX_MESSAGE),
    "deliver": flag,
    "channel": text(),
    "to": text(1024),
    "stateless": flag,
}


def heartbeat(value: object) -> dict[str, Json] | None:
    """Return the heartbeat with its interval; None if there is none.

    >>> heartbeat(True), heartbeat({"every": "1h", "activeHours": "8-22"})
    ({'everyMs': 1800000}, {'everyMs': 3600000, 'activeHours': '08:00-22:00'})
    >>> heartbeat(None), heartbeat(False)
    (None, None)
    """
    if value is None or value is False:
        return None
    if value is not True and not isinstance(value, Mapping):
        refuse(
            f"{shown(value)} is not a heartbeat; write true, null for none, or an object such as "
            '{"every": "30m", "activeHours": "08:00-22:00"}'
        )
    values: dict[str, object] = {} if value is True else camel_keys(value)
    replace_duration(values, "every")
    check_names(values, "a heartbeat", tuple(FIELDS))
    return copy_object(
        {"everyMs": DEFAULT_EVERY_MS}
        | {name: read_as(name, read, values[name]) for name, read in FIELDS.items() if name in values}
    )


def heartbeat_job(beat: Mapping[str, Json], tz: str | None, channel: str | None) -> dict[str, Json]:
    """Return the document of the job for a heartbeat; `tz` and `channel` are those of its agent.

    Its output is delivered if there is a channel, unless the heartbeat sets `deliver`.

    >>> job = heartbeat_job({"everyMs": 1800000}, "Europe/Berlin", "telegram")
    >>> job["schedule"], job["tz"], job["deliver"]
    ({'kind': 'every', 'everyMs': 1800000}, 'Europe/Berlin', True)
    """
    fields = {name: value for name, value in beat.items() if name != "everyMs"}
    return {
        "message": DEFAULT_MESSAGE,
        "tz": tz,
        "deliver": "channel" in beat or channel is not None,
        **fields,
        "schedule": {"kind": "every", "everyMs": beat["everyMs"]},
        "overlapPolicy": "skip",
        "catchupPolicy": "none",
    }
