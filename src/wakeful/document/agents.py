"""The settings of an agent in a document.

- `deliverTo`: where its keys may have output delivered, besides its own channel
- `queue`: how messages wait in its sessions, and the names of sessions
- `selfScheduling` and `approval`: the bounds of the jobs that it makes for itself
- `heartbeat`: its interval and its active hours
- `evolution`: whether its jobs are analyzed
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from wakeful.document.fields import MAX_MESSAGE
from wakeful.document.kinds import (
    Kind,
    Reader,
    check_names,
    choice,
    copy_object,
    flag,
    hours,
    milliseconds,
    read_as,
    read_object,
    read_zone,
    replace_duration,
    text,
    whole,
)
from wakeful.schedule.schedules import SHORTEST_INTERVAL_MS
from wakeful.values.duration import MINUTE
from wakeful.values.json_value import Json, camel_keys, quote, refuse

MAX_ADDRESSES: Final = 100
_ADDRESS_EXAMPLE: Final = '[{"channel": "telegram", "to": "123456789"}]'
#: The session of a message that names none.
MAIN: Final = "main"
Mode = Literal["queue", "followup", "interrupt"]
Drop = Literal["old", "new"]
_LONGEST_DEBOUNCE_MS: Final = 60_000
#: The name of a session, as a regular expression.
SESSION_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}"
_SESSION_NAME: Final = re.compile(SESSION_NAME)
QUEUE_FIELDS: Final[dict[str, Kind]] = {
    "mode": choice(Mode),
    "cap": whole(1, 1_000),
    "drop": choice(Drop),
    "debounceMs": milliseconds(0, _LONGEST_DEBOUNCE_MS),
    "turns": whole(1, 100),
}
#: The value of `approval` of an agent whose jobs wait for a person.
REQUIRED: Final = "required"
_BOUNDS_EXAMPLE: Final = '{"recurring": true, "perRun": 10, "depth": 5}'
SELF_SCHEDULING_FIELDS: Final[dict[str, Kind]] = {
    "recurring": flag,
    "perRun": whole(0, 1_000),
    "depth": whole(0, 100),
    "outsideRuns": flag,
}
#: The interval of a heartbeat that sets none.
DEFAULT_EVERY_MS: Final = 30 * MINUTE
#: The message of a heartbeat that sets none.
DEFAULT_MESSAGE: Final = (
    "This is your heartbeat: nobody wrote to you. Look whether anything needs attention: what you were asked "
    "to watch, what is due, what was left unfinished. Do what you may do by yourself, and say in a few words "
    "what somebody has to know. If nothing needs attention, answer HEARTBEAT_OK and no more."
)


HEARTBEAT_FIELDS: Final[dict[str, Reader]] = {
    "everyMs": milliseconds(SHORTEST_INTERVAL_MS),
    "activeHours": hours,
    "tz": read_zone,
    "message": text(MAX_MESSAGE),
    "deliver": flag,
    "channel": text(),
    "to": text(1024),
    "stateless": flag,
}
#: Other names of the field, which are true or false.
OTHER_NAMES: Final = ("evolutionMetrics", "evolution_metrics")
EVOLUTION_FIELDS: Final = ("evolution", *OTHER_NAMES)
SUGGEST: Final = "suggest"
OFF: Final = "off"
_EVOLUTION_VALUES: Final = {SUGGEST: True, OFF: False}


class DeliveryAddress(NamedTuple):
    """A channel and one recipient there; None: any recipient."""

    channel: str
    to: str | None = None


def deliver_to(value: object) -> tuple[DeliveryAddress, ...]:
    """Return the addresses in a document.

    >>> deliver_to([{"channel": "slack"}, {"channel": "telegram", "to": "123"}])
    (DeliveryAddress(channel='slack', to=None), DeliveryAddress(channel='telegram', to='123'))
    """
    if not isinstance(value, list | tuple):
        refuse(f"{quote(value)} is not a list; write {_ADDRESS_EXAMPLE}, or leave it out")
    if len(value) > MAX_ADDRESSES:
        refuse(f"it has {len(value)} entries; at most {MAX_ADDRESSES}")
    addresses = []
    for each in value:
        values = read_object(each, _ADDRESS_EXAMPLE)
        check_names(values, "an entry", ("channel", "to"))
        if values.get("channel") is None:
            refuse(f"an entry needs a channel; write {_ADDRESS_EXAMPLE}")
        to = values.get("to")
        addresses.append(
            DeliveryAddress(
                str(read_as("channel", text(), values["channel"])),
                None if to is None else str(read_as("to", text(1_024), to)),
            )
        )
    return tuple(addresses)


def write_addresses(addresses: tuple[DeliveryAddress, ...]) -> list[Json]:
    """Return the addresses as JSON."""
    return [
        {"channel": channel} if to is None else {"channel": channel, "to": to} for channel, to in addresses
    ]


def queue(value: object) -> dict[str, Json]:
    """Return how messages wait in an agent's sessions.

    >>> queue({"mode": "interrupt", "debounce": "2s"})
    {'mode': 'interrupt', 'debounceMs': 2000}
    """
    values = read_object(value, '{"mode": "queue", "cap": 10, "drop": "old", "debounceMs": 800}')
    replace_duration(values, "debounce")
    check_names(values, "a queue", tuple(QUEUE_FIELDS))
    for name, read in QUEUE_FIELDS.items():
        if name in values:
            values[name] = read_as(name, read, values[name])
    return copy_object(values)


def is_session_name(name: str) -> bool:
    """Return whether a session can have this name.

    >>> is_session_name("telegram:123456789"), is_session_name("a b")
    (True, False)
    """
    return _SESSION_NAME.fullmatch(name) is not None


def session_name(value: object) -> str:
    """Return the name of a session; `main` for None.

    >>> session_name(None), session_name("telegram:123456789")
    ('main', 'telegram:123456789')
    """
    if value is None:
        return MAIN
    if not isinstance(value, str) or not is_session_name(value):
        refuse(
            f"session: {quote(value)} is not a valid name of a session; use letters, digits and . _ : @ + -, "
            "at most 128, such as 'telegram:123456789'"
        )
    return value


def self_scheduling(value: object) -> dict[str, Json]:
    """Return the bounds of an agent.

    >>> self_scheduling({"recurring": True, "per_run": 10})
    {'recurring': True, 'perRun': 10}
    """
    values = read_object(value, _BOUNDS_EXAMPLE)
    check_names(values, "selfScheduling", tuple(SELF_SCHEDULING_FIELDS))
    return copy_object(
        {
            name: read_as(name, read, values[name])
            for name, read in SELF_SCHEDULING_FIELDS.items()
            if name in values
        }
    )


def approval(value: object) -> str | None:
    """Return whether jobs that the agent makes wait for a person: `required`, or None.

    >>> approval("required"), approval("none")
    ('required', None)
    """
    if value in (None, "none"):
        return None
    if value != REQUIRED:
        refuse(f"{quote(value)} is not a kind of approval; write 'required', or 'none'")
    return REQUIRED


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
            f"{quote(value)} is not a heartbeat; write true, null for none, or an object such as "
            '{"every": "30m", "activeHours": "08:00-22:00"}'
        )
    values: dict[str, object] = {} if value is True else camel_keys(value)
    replace_duration(values, "every")
    check_names(values, "a heartbeat", tuple(HEARTBEAT_FIELDS))
    return copy_object(
        {"everyMs": DEFAULT_EVERY_MS}
        | {
            name: read_as(name, read, values[name])
            for name, read in HEARTBEAT_FIELDS.items()
            if name in values
        }
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


def evolution(document: Mapping[str, object]) -> str | None:
    """Return `suggest` if a document turns evolution on, else None.

    YAML reads `off` as false, so true and false are accepted too.

    >>> evolution({"evolution": "suggest"}), evolution({"evolution_metrics": True})
    ('suggest', 'suggest')
    >>> evolution({"evolution": "off"}), evolution({"evolution": False}), evolution({})
    (None, None, None)
    """
    given = {name: document[name] for name in EVOLUTION_FIELDS if document.get(name) is not None}
    wanted = {name: _is_evolution_on(name, value) for name, value in given.items()}
    if len(set(wanted.values())) > 1:
        refuse(f"{' and '.join(wanted)} contradict each other; give one of them")
    return SUGGEST if True in wanted.values() else None


def _is_evolution_on(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if name in OTHER_NAMES:
        refuse(f"{name}: write true or false")
    if isinstance(value, str) and value in _EVOLUTION_VALUES:
        return _EVOLUTION_VALUES[value]
    refuse(f"{name}: {quote(value)} is not one of {SUGGEST} and {OFF}")
