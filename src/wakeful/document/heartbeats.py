"""The heartbeat of an agent, as people write it: how often it looks around by itself, and at which hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.cron import zone
from wakeful.document.fields import MAX_MESSAGE
from wakeful.document.objects import copied, durations, only, read_as
from wakeful.document.values import Reader, camel_keys, flag, hours, milliseconds, refuse, shown, text
from wakeful.duration import MINUTE
from wakeful.job import Json
from wakeful.schedule import SHORTEST_INTERVAL_MS

#: How often, where nobody says.
DEFAULT_EVERY_MS: Final = 30 * MINUTE
#: What the agent is told, where nobody says.
DEFAULT_MESSAGE: Final = (
    "This is your heartbeat: nobody wrote to you. Look whether anything needs attention: what you were asked "
    "to watch, what is due, what was left unfinished. Do what you may do by yourself, and say in a few words "
    "what somebody has to know. If nothing needs attention, answer HEARTBEAT_OK and no more."
)


def _tz(value: object) -> str:
    if not isinstance(value, str):
        refuse(f"{shown(value)} is not text; give the name of a zone, such as 'Europe/Berlin'")
    return zone(value).name


FIELDS: Final[dict[str, Reader]] = {
    "everyMs": milliseconds(SHORTEST_INTERVAL_MS),
    "activeHours": hours,
    "tz": _tz,
    "message": text(MAX_MESSAGE),
    "deliver": flag,
    "channel": text(255),
    "to": text(1024),
    "stateless": flag,
}


def heartbeat(value: object) -> dict[str, Json] | None:
    """What somebody wrote, with how often at its default where that is left open; None: there is none.

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
    given: dict[str, object] = {} if value is True else camel_keys(value)
    durations(given, "every")
    only(given, "a heartbeat", tuple(FIELDS))
    return copied(
        {"everyMs": DEFAULT_EVERY_MS}
        | {name: read_as(name, read, given[name]) for name, read in FIELDS.items() if name in given}
    )


def heartbeat_job(beat: Mapping[str, Json], tz: str | None, channel: str | None) -> dict[str, Json]:
    """The fields of the job that such a heartbeat is; `tz` and `channel` are those of its agent.

    What it says is delivered where there is a channel to deliver it to, unless it says otherwise.

    >>> job = heartbeat_job({"everyMs": 1800000}, "Europe/Berlin", "telegram")
    >>> job["schedule"], job["tz"], job["deliver"]
    ({'kind': 'every', 'everyMs': 1800000}, 'Europe/Berlin', True)
    """
    said = {name: value for name, value in beat.items() if name != "everyMs"}
    return {
        "message": DEFAULT_MESSAGE,
        "tz": tz,
        "deliver": "channel" in beat or channel is not None,
        **said,
        "schedule": {"kind": "every", "everyMs": beat["everyMs"]},
        "overlapPolicy": "skip",
        "catchupPolicy": "none",
    }
