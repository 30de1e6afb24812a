"""Directives: what a handler wants to happen. They take effect with the outcome of its run, or not at all.

A directive is an immutable value that is checked when it is created. A handler returns one, or several in a
list. The launcher turns them into `wakeful.run.outcome.Handled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo

from wakeful.agents.schedules import check_document, check_job_id, schedule_document, scheduled_signal
from wakeful.errors import InvalidArgument
from wakeful.job.job import check_slug
from wakeful.run.instances import MAX_DELAY_ID
from wakeful.signal.signals import Signal, check_text
from wakeful.values.duration import LONGEST, parse_duration
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import Json, quote


class Recipient(Enum):
    """A recipient that is known when the handler runs."""

    #: the instance that handles the signal
    SELF = "self"

    def __repr__(self) -> str:
        return self.name


#: The instance that returns the directive.
SELF: Final = Recipient.SELF

_NOT_GIVEN: Final = object()


class Directive:
    """The base class of all directives."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False)
class SetState(Directive):
    """Change the state of the instance: merge top-level keys, or replace all of it.

    >>> SetState(count=3)
    SetState(changes={'count': 3}, replace=False)
    >>> SetState({"count": 0}, replace=True).replace
    True

    A mapping without `replace` is merged too: for keys that are no Python names.
    """

    #: the keys to change; with `replace`, the new state: a mapping, or an object of the type of the state
    changes: object
    replace: bool

    def __init__(self, new: object = _NOT_GIVEN, /, *, replace: bool = False, **changes: object) -> None:
        if not isinstance(replace, bool):
            raise InvalidArgument(
                f"SetState: replace is {quote(replace)}, but it is true or false; to set a key of that name, "
                "write SetState({'replace': …})"
            )
        if new is not _NOT_GIVEN and changes:
            raise InvalidArgument("SetState: give a new state or single keys, not both")
        if replace and new is _NOT_GIVEN:
            raise InvalidArgument("SetState: replace needs the new state, as in SetState(new, replace=True)")
        if new is not _NOT_GIVEN and not replace and not isinstance(new, Mapping):
            raise InvalidArgument(
                f"SetState: {type(new).__name__} is not a mapping of changes; write SetState(count=1), or "
                "SetState(new, replace=True) to replace the whole state"
            )
        object.__setattr__(self, "changes", changes if new is _NOT_GIVEN else new)
        object.__setattr__(self, "replace", replace)


@dataclass(frozen=True, slots=True, init=False)
class Emit(Directive):
    """Send a signal: to an instance, to `SELF`, or out.

    A signal without a recipient is recorded on the run, published on `/events`, and delivered to the channel
    of the agent if it has one.

    >>> Emit("report.ready", to=("archive", "eu")).to
    ('archive', 'eu')
    """

    signal: Signal
    to: Recipient | tuple[str, str] | None

    def __init__(
        self, signal: Signal | str, to: Recipient | tuple[str, str] | list[str] | None = None
    ) -> None:
        object.__setattr__(self, "signal", _signal("Emit", signal))
        object.__setattr__(self, "to", _recipient(to))


@dataclass(frozen=True, slots=True, init=False)
class Delay(Directive):
    """Send a signal to this instance after a delay, counted from the commit by the clock of the database.

    The delay is in milliseconds, a `timedelta`, or text such as `"5m"`. With `durable=False` it is in memory
    only, and lost with the process. One with an `id` replaces the delay of this instance that has the same
    `id` and has not begun; `CancelDelay` cancels it.

    >>> Delay("5m", "task.retry").ms, Delay(5_000, Signal("task.retry", {"attempt": 2})).durable
    (300000, True)
    >>> Delay("1h", "task.escalate", id="escalate").id
    'escalate'
    """

    ms: int
    signal: Signal
    durable: bool
    id: str | None

    def __init__(
        self,
        ms: int | timedelta | str,
        signal: Signal | str,
        durable: bool = True,
        *,
        id: str | None = None,
    ) -> None:
        if id is not None and not durable:
            raise InvalidArgument("Delay: only a durable delay has an id; leave one of the two out")
        object.__setattr__(self, "ms", _milliseconds(ms))
        object.__setattr__(self, "signal", _signal("Delay", signal))
        object.__setattr__(self, "durable", bool(durable))
        object.__setattr__(self, "id", None if id is None else _delay_id("Delay", id))


@dataclass(frozen=True, slots=True, init=False)
class CancelDelay(Directive):
    """Cancel the delay of this instance that has this id. If there is none, or it has begun, it is no error.

    >>> CancelDelay("escalate")
    CancelDelay(id='escalate')
    """

    id: str

    def __init__(self, id: str) -> None:
        object.__setattr__(self, "id", _delay_id("CancelDelay", id))


@dataclass(frozen=True, slots=True, init=False)
class SetCron(Directive):
    """Create or replace a schedule of this instance.

    At each tick the instance receives a signal with this type and data. An existing schedule with the same
    `job_id` is replaced; if the new one is invalid, the old one stays. `job_id` is the type of the signal by
    default. `policies` are job fields in snake_case, such as `catchup_policy="latest"`.

    >>> SetCron("*/5 * * * *", "heartbeat.tick", "heartbeat", tz="Europe/Berlin").job_id
    'heartbeat'
    >>> SetCron("61 * * * *", "heartbeat.tick", "heartbeat")
    Traceback (most recent call last):
    wakeful.errors.InvalidSchedule: SetCron 'heartbeat': schedule: ...
    """

    expr: object
    signal: str
    data: object
    job_id: str
    tz: str | ZoneInfo | None
    policies: Mapping[str, object]

    def __init__(
        self,
        expr: object,
        signal: Signal | str,
        job_id: str | None = None,
        tz: str | ZoneInfo | None = None,
        **policies: object,
    ) -> None:
        name, data = scheduled_signal(signal)
        set_ = object.__setattr__
        set_(self, "expr", expr)
        set_(self, "signal", name)
        set_(self, "data", data)
        set_(self, "job_id", check_job_id(name if job_id is None else job_id))
        set_(self, "tz", tz)
        set_(self, "policies", policies)
        try:
            check_document(self.document({}))
        except InvalidArgument as error:
            raise type(error)(f"SetCron '{self.job_id}': {error.message}") from None

    def document(self, class_options: Mapping[str, Json]) -> dict[str, Json]:
        """Return the job document without `name`; `class_options` are the fields that the class sets."""
        return schedule_document(self.expr, self.signal, self.data, self.tz, self.policies, class_options)


@dataclass(frozen=True, slots=True, init=False)
class CancelCron(Directive):
    """Cancel a schedule of this instance. An unknown `job_id` is no error.

    With `declared=True` it disables a schedule that the class declares, until the next `start`.
    """

    job_id: str
    declared: bool

    def __init__(self, job_id: str, declared: bool = False) -> None:
        object.__setattr__(self, "job_id", check_job_id(job_id))
        object.__setattr__(self, "declared", bool(declared))


@dataclass(frozen=True, slots=True)
class Stop(Directive):
    """Stop this instance: remove its schedules and cancel its pending signals.

    Later signals are refused until the instance is started again, with its initial state.
    """


def _signal(what: str, value: object) -> Signal:
    if isinstance(value, Signal):
        return value
    if isinstance(value, str):
        return Signal(value)
    raise InvalidArgument(f"{what}: {quote(value)} is not a signal; give a Signal, or the text of its type")


def _recipient(to: object) -> Recipient | tuple[str, str] | None:
    if to is None or isinstance(to, Recipient):
        return to
    if isinstance(to, tuple | list) and len(to) == 2 and all(isinstance(part, str) for part in to):
        return check_slug(to[0], "to: agent"), check_instance(to[1], "to: instance")
    raise InvalidArgument(
        f"Emit: to is {quote(to)}; write to=SELF or to=('agent', 'instance'), or leave it out to send it out"
    )


def _delay_id(what: str, value: object) -> str:
    return check_text(f"{what}: id", value, MAX_DELAY_ID)


def _milliseconds(value: object) -> int:
    if isinstance(value, timedelta):
        ms = value // timedelta(milliseconds=1)
    elif isinstance(value, str):
        ms = parse_duration(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = value
    else:
        raise InvalidArgument(
            f"Delay: {quote(value)} is not a delay; give whole milliseconds, a timedelta, or text like '5m'"
        )
    if not 0 <= ms <= LONGEST:
        raise InvalidArgument(f"Delay: {quote(value)} is out of range; a delay is from 0 to 100 years")
    return ms
