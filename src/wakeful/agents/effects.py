"""What a handler returned, turned into what is written with the outcome of its run.

All validation is here: a `Refused` says why the outcome is a failed attempt instead. Nothing is written.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wakeful.agents.class_registry import RegisteredClass
from wakeful.agents.directives import (
    CancelCron,
    CancelDelay,
    Delay,
    Directive,
    Emit,
    Recipient,
    SetCron,
    SetState,
    Stop,
)
from wakeful.agents.schedules import read_schedule
from wakeful.agents.state import StateObject, StateType, state_from_text, state_to_text
from wakeful.document import Defaults
from wakeful.errors import InvalidArgument
from wakeful.run.instances import DIRECTIVE_REFUSED, ScheduleChange, Send, schedule_job_name
from wakeful.signal.signals import Signal
from wakeful.values.instance_names import instance_to_source
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import quote

#: The most directives of one handler, and the most bytes of the signals that it sends.
MAX_DIRECTIVES: Final = 1_000
MAX_SIGNALS: Final = 1 << 20

UNKNOWN_DIRECTIVE: Final = "unknown_directive"
INVALID_STATE: Final = "invalid_state"
#: How many calls of each handler `UnsavedChanges` checks.
_CHECKED: Final = 10


class Refused(Exception):
    """What a handler returned cannot be written."""

    def __init__(self, message: str, reason: str, *, permanent: bool = True, counted: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        #: whether a retry cannot succeed
        self.permanent = permanent
        #: whether the attempt counts as a failed one
        self.counted = counted


@dataclass(slots=True)
class Returned:
    """The directives that a handler returned, and the output of its run."""

    directives: list[Directive] = field(default_factory=list)
    output: str | None = None


@dataclass(slots=True)
class DirectiveEffects:
    """What the directives change."""

    #: the state as it was read, and as it will be
    old_text: str
    state_text: str
    sends: list[Send] = field(default_factory=list)
    #: delays that are kept in memory
    volatile: list[Send] = field(default_factory=list)
    #: the ids of delays that are set or cancelled
    delay_ids: dict[str, None] = field(default_factory=dict)
    schedules: dict[tuple[bool, str], ScheduleChange] = field(default_factory=dict)
    emitted: list[str] = field(default_factory=list)
    stop: bool = False


def read_returned(value: object) -> Returned:
    """Return what a handler returned: nothing, text, a directive, or an iterable of them.

    >>> read_returned([Stop(), None, "done"])
    Returned(directives=[Stop()], output='done')
    """
    returned = Returned()
    if value is None:
        return returned
    if isinstance(value, Directive | str):
        parts: Iterable[object] = (value,)
    elif isinstance(value, Iterable) and not isinstance(value, Mapping | bytes | bytearray):
        parts = value
    else:
        raise Refused(_unknown_directive_text(value), UNKNOWN_DIRECTIVE)
    texts = []
    for part in parts:
        if isinstance(part, Directive):
            returned.directives.append(part)
        elif isinstance(part, str):
            texts.append(part)
        elif part is not None:  # `Emit(...) if changed else None`
            raise Refused(_unknown_directive_text(part), UNKNOWN_DIRECTIVE)
    if len(returned.directives) > MAX_DIRECTIVES:
        raise Refused(
            f"the handler returned {len(returned.directives)} directives; at most {MAX_DIRECTIVES}",
            DIRECTIVE_REFUSED,
        )
    if texts:
        returned.output = "\n".join(texts)
    return returned


def instance_source(workspace: str, agent: str, instance: str) -> str:
    """Return the `source` of signals that an instance sends."""
    return f"/workspaces/{workspace}/agents/{agent}/instances/{instance_to_source(instance)}"


def effects(
    directives: Sequence[Directive],
    registered: RegisteredClass,
    instance: str,
    state_text: str,
    now_ms: int,
    defaults: Defaults | None = None,
    received: Signal | None = None,
) -> DirectiveEffects:
    """Return the effects of the directives in their order, or raise Refused.

    `defaults` are those of the agent's jobs; they are needed if there is a `SetCron`. `received` is the
    signal that was handled: the instance may send it to itself again, which is no duplicate.
    """
    result = DirectiveEffects(state_text, state_text)
    state: StateObject | None = None
    for each in directives:
        match each:
            case SetState():
                state = _change_state(registered, state, state_text, each)
            case Emit():
                _emit(result, registered, instance, each, now_ms, received)
            case Delay():
                own = registered.agent, instance
                send = _send(registered, instance, each.signal, *own, now_ms, received)
                if each.id is not None:
                    _end_delay(result, each.id)
                to = result.sends if each.durable else result.volatile
                to.append(send._replace(delay_ms=each.ms, delay_id=each.id))
            case CancelDelay():
                _end_delay(result, each.id)
            case SetCron():
                change = _set_cron(registered, instance, each, now_ms, defaults or Defaults())
                result.schedules[False, each.job_id] = change
            case CancelCron():
                key = each.declared, each.job_id
                result.schedules[key] = _cancel_cron(registered, instance, each, now_ms, defaults)
            case Stop():
                result.stop = True
            case _:
                raise Refused(_unknown_directive_text(each), UNKNOWN_DIRECTIVE)
    if state is not None:
        try:
            result.state_text = state_to_text(state)
        except InvalidArgument as error:
            raise Refused(error.message, INVALID_STATE) from None
    size = sum(map(len, result.emitted)) + sum(len(send.text) for send in (*result.sends, *result.volatile))
    if size > MAX_SIGNALS:
        raise Refused(
            f"the handler sends signals of {size} characters; at most {MAX_SIGNALS} at once: store large "
            "data elsewhere and send a reference",
            DIRECTIVE_REFUSED,
        )
    return result


def _end_delay(result: DirectiveEffects, delay_id: str) -> None:
    """End the delay of this id, also if the same handler has set it."""
    result.sends = [send for send in result.sends if send.delay_id != delay_id]
    result.delay_ids[delay_id] = None


def _change_state(
    registered: RegisteredClass, state: StateObject | None, state_text: str, change: SetState
) -> StateObject:
    try:
        if change.replace:
            return registered.state.replace(change.changes)
        assert isinstance(change.changes, Mapping)
        old = state_from_text(state_text) if state is None else state
        return registered.state.merge(old, change.changes)
    except InvalidArgument as error:
        raise Refused(f"SetState: {error.message}", INVALID_STATE) from None


def _emit(
    result: DirectiveEffects,
    registered: RegisteredClass,
    instance: str,
    emit: Emit,
    now_ms: int,
    received: Signal | None,
) -> None:
    match emit.to:
        case None:
            signal = emit.signal.sent(_source(registered, instance), utc_datetime(now_ms))
            result.emitted.append(signal.to_text())
        case Recipient():
            to = registered.agent, instance
            result.sends.append(_send(registered, instance, emit.signal, *to, now_ms, received))
        case agent, name:
            result.sends.append(_send(registered, instance, emit.signal, agent, name, now_ms, received))


def _send(
    registered: RegisteredClass,
    instance: str,
    signal: Signal,
    agent: str,
    recipient: str,
    now_ms: int,
    received: Signal | None,
) -> Send:
    again = signal is received and (agent, recipient) == (registered.agent, instance)
    sent = signal.sent(_source(registered, instance), utc_datetime(now_ms))
    return Send(
        agent,
        recipient,
        sent.type,
        sent.to_text(),
        sent.source or "",
        None if sent.generated_id or again else sent.id,
    )


def _source(registered: RegisteredClass, instance: str) -> str:
    return instance_source(registered.workspace, registered.agent, instance)


def _set_cron(
    registered: RegisteredClass, instance: str, cron: SetCron, now_ms: int, defaults: Defaults
) -> ScheduleChange:
    try:
        definition = read_schedule(
            cron.document(registered.options),
            schedule_job_name(instance, "dynamic", cron.job_id),
            instance,
            now_ms=now_ms,
            defaults=defaults,
        )
    except InvalidArgument as error:
        # A retry may succeed: the time zone database may be back, or the operator may allow the zone.
        message = f"SetCron '{cron.job_id}': {error.message}"
        raise Refused(message, DIRECTIVE_REFUSED, permanent=False) from None
    return ScheduleChange(cron.job_id, definition)


def _cancel_cron(
    registered: RegisteredClass, instance: str, cron: CancelCron, now_ms: int, defaults: Defaults | None
) -> ScheduleChange:
    document = dict(registered.schedules).get(cron.job_id) if cron.declared else None
    definition = None
    if document is not None:
        name = schedule_job_name(instance, "declared", cron.job_id)
        with contextlib.suppress(InvalidArgument):  # one that cannot be read has no job to cancel
            definition = read_schedule(
                document, name, instance, now_ms=now_ms, defaults=defaults or Defaults()
            )
    return ScheduleChange(cron.job_id, definition, cron.declared)


def _unknown_directive_text(value: object) -> str:
    if isinstance(value, Signal):
        return f"unknown directive {quote(value)}; to send a signal, return Emit(signal)"
    if isinstance(value, type) and issubclass(value, Directive):
        return f"unknown directive {value.__name__}; it is a class: write {value.__name__}(…)"
    return (
        f"unknown directive {quote(value)}; a handler returns SetState, Emit, Delay, CancelDelay, SetCron, "
        "CancelCron, Stop, text, or a list of them"
    )


class UnsavedChanges:
    """Finds handlers that change `ctx.state` in place, which stores nothing: a `SetState` is missing.

    It checks only the first calls of each handler that return no `SetState`: later ones cost nothing.
    """

    def __init__(self) -> None:
        self._checks: Counter[tuple[type, str]] = Counter()

    def find(self, registered: RegisteredClass, handler: str, value: object, text: str) -> bool:
        """Return whether a handler changed its copy of the state; for each handler at most once."""
        key = registered.cls, handler
        if self._checks[key] >= _CHECKED:
            return False
        self._checks[key] += 1
        if not _is_changed(registered.state, value, text):
            return False
        self._checks[key] = _CHECKED
        return True


def _is_changed(state: StateType, value: object, text: str) -> bool:
    try:
        return state.replace(value) != state.replace(state.load(state_from_text(text)))
    except Exception:  # what cannot be stored was not there before; the code of the state may raise anything
        return True
