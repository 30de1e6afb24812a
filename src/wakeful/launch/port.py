"""The contract of launchers.

The engine builds a `Launch` for each attempt of a run and awaits `Launcher.start(launch)`, which returns an
`Outcome`. A launcher does not decide what becomes of the run: the engine decides by the outcome whether and
when there is another attempt.

- **Timeouts**: the engine cancels `start`. A launcher lets CancelledError pass and cleans up what it can.
- **Exceptions**: a launcher returns `Failed` for every error of the target. An exception is a bug; the engine
  treats it as `Failed`, not permanent.
- **At least once**: the same run may be started again after a crash, here or on another replica, with the
  same `idempotency_key`. A launcher passes that key to its target.
- **Concurrency**: `start` is called for hundreds of runs at once on one event loop.

All attempts of a run, and its replays, are one trace: its id is the beginning of their idempotency key. The
id of a launch span follows from the key and the attempt. So every replica knows the spans of every other
one without storing them, and a receiver gets the same ids whether or not tracing is on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple, Protocol, runtime_checkable

from wakeful.document import timing_from_text
from wakeful.errors import InvalidArgument
from wakeful.job.job import Continuity
from wakeful.run.outcome import Outcome
from wakeful.run.prechecks import Watch, with_context
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json

#: How much of the output of a run is kept, in bytes of UTF-8.
MAX_OUTPUT: Final = 16 * 1024
#: How much of a response or of a command's stdout is read, in bytes: the `usage` in it may follow the output.
MAX_READ: Final = 256 * 1024
#: How much of the output of a failed attempt is kept: each attempt has its own.
MAX_FAILED_OUTPUT: Final = 2 * 1024
#: The timeout of an attempt if neither the job nor the launcher sets one.
DEFAULT_TIMEOUT_MS: Final = 600_000

#: The payload that is not parsed yet: a value that JSON does not have, and that copies and pickles as itself.
_UNREAD: Final = Ellipsis
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NO_TRACE: Final = "0" * 32


class SealedSecrets(NamedTuple):
    """The webhook secrets of a job, encrypted as they are stored."""

    secret: bytes
    #: the previous secret, which signs too until `old_secret_until_ms`
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None


class _OfNoInstance:
    """What only the runs of instances have (`SignalLaunch`)."""

    __slots__ = ()

    #: the name and the id of its instance, the type of the signal, and the state as it was when the run was
    #: taken
    instance: str | None = None
    instance_id: str | None = None
    signal: str | None = None
    state_text: str | None = None
    state_version: int = 0
    revision: int = 0
    memory: str | None = None
    depth: int = 0
    #: when its instance was created
    instance_created_ms: int | None = None


@dataclass(slots=True, eq=False, repr=False)
class Launch(_OfNoInstance):
    """One attempt of a run: what a launcher gets, and what a function target receives as `run`.

    It is cheap to build, because a storm builds 100,000: the payload is parsed on first access. It belongs to
    one attempt and is not shared, so the payload may be changed.

    >>> run = Launch(
    ...     "r1",
    ...     "digest",
    ...     "j1",
    ...     "default",
    ...     "default",
    ...     '{"message":"hello"}',
    ...     1_741_392_000_000,
    ...     1_741_392_000_000,
    ...     1,
    ...     "schedule",
    ...     "key",
    ...     {"kind": "function", "name": "digest"},
    ... )
    >>> run.message, run.scheduled_at.isoformat(), run.attempt
    ('hello', '2025-03-08T00:00:00+00:00', 1)
    """

    id: str
    #: the job's name and id; None for a run that wakes an agent without a job
    job: str | None
    job_id: str | None
    workspace: str
    agent: str
    #: the stored compact JSON; None if there is no payload
    payload_text: str | None
    #: the tick
    scheduled_ms: int
    #: when it should start: the tick with jitter, or its time in a catch-up
    fire_ms: int
    #: 1 for the first
    attempt: int
    trigger: str
    #: equal for every retry and replay, so that a receiver can act once
    idempotency_key: str
    #: the target of the job or its agent: `kind`, and the fields of that kind
    target: Mapping[str, Json]
    #: the timeout that the job sets; None: `default_timeout_ms` of the launcher applies
    timeout_ms: int | None = None
    #: whether a conversation starts without history
    stateless: bool = False
    #: the secrets that sign a webhook; read with the claim, so that a launch needs no query
    secrets: SealedSecrets | None = None
    #: the stored schedule of its job, and the anchor of an interval
    timing: str | None = None
    anchor_ms: int | None = None
    #: how many ticks were missed since the previous one that became a run
    missed: int = 0
    #: the session of a turn
    session: str | None = None
    #: how the job continues what was said before; None: as its target says
    continuity: Continuity | None = None
    #: with tracing: the W3C trace context of its launch span, which receivers continue
    traceparent: str | None = None
    #: whether this attempt was launched before, by a process that died: a broker may have its message
    taken_over: bool = False
    #: whether the target was launched before, by an earlier attempt
    retried: bool = field(init=False)
    #: how many earlier attempts failed and count towards `max_attempts`; `attempt` is larger after others
    failed_attempts: int = 0
    #: whether its precheck still has to be asked
    unchecked: bool = False
    #: whether a budget applies to it: each step that uses something needs a reservation
    budgeted: bool = False
    #: the context of the run, and the state and the decision of its precheck; None: it has none of them
    watch: Watch | None = None
    _payload: object = field(default=_UNREAD, init=False)

    def __post_init__(self) -> None:
        self.retried = self.attempt > 1

    @property
    def payload(self) -> Json:
        """The parsed payload; None if there is none."""
        if self._payload is _UNREAD:
            self._payload = None if self.payload_text is None else json.loads(self.payload_text)
        return self._payload  # type: ignore[return-value]

    @property
    def message(self) -> str | None:
        """The payload's `message`, if it is text."""
        payload = self.payload
        message = payload.get("message") if isinstance(payload, dict) else None
        return message if isinstance(message, str) else None

    @property
    def context(self) -> Json:
        """What the precheck found, and with `after.output` the run before it; None if there is neither.

        It is also `context` in the payload.
        """
        return None if self.watch is None or self.watch.context is None else json.loads(self.watch.context)

    @property
    def state(self) -> Json:
        """The state that the last precheck of the job left; None if there is none."""
        return None if self.watch is None or self.watch.state is None else json.loads(self.watch.state)

    def add_context(self, context: str) -> None:
        """Set the context, compact JSON, and add it to the payload."""
        self.watch = (self.watch or Watch())._replace(context=context)
        self.payload_text = with_context(self.payload_text, context)
        if isinstance(self._payload, dict):  # a precheck function may have changed it
            self._payload["context"] = self.context
        else:
            self._payload = _UNREAD

    @property
    def scheduled_at(self) -> datetime:
        """The tick, in UTC."""
        return utc_datetime(self.scheduled_ms)

    @property
    def previous_ms(self) -> int | None:
        """The previous tick by the current schedule of the job; None if there is none."""
        if self.timing is None or self.anchor_ms is None:
            return None
        return timing_from_text(self.timing).ticks(self.anchor_ms).prev(self.scheduled_ms)

    @property
    def previous_tick(self) -> datetime | None:
        """The previous tick, in UTC."""
        ms = self.previous_ms
        return None if ms is None else utc_datetime(ms)

    def with_target(self, target: Mapping[str, Json], payload_text: str | None) -> Launch:
        """Return the same attempt for another target: for launchers that delegate."""
        other = copy(self)
        other.target, other.payload_text, other._payload = target, payload_text, _UNREAD
        return other

    @property
    def log_fields(self) -> dict[str, object]:
        """The fields of log events about this attempt."""
        return {
            "run_id": self.id,
            "job_id": self.job_id,
            "job": self.job,
            "agent": self.agent,
            "workspace": self.workspace,
            "attempt": self.attempt,
            "trace_id": None if self.traceparent is None else self.traceparent[3:35],
        }

    def __repr__(self) -> str:
        return f"<Launch {self.id} of {self.job or self.agent}, attempt {self.attempt}>"


@dataclass(slots=True, eq=False, repr=False)
class SignalLaunch(Launch):
    """One attempt of a signal run. It is a class of its own, so that other launches stay small."""

    instance: str | None = None
    instance_id: str | None = None
    signal: str | None = None
    state_text: str | None = None
    state_version: int = 0
    revision: int = 0
    memory: str | None = None
    depth: int = 0
    instance_created_ms: int | None = None


class Launcher(Protocol):
    """Launches runs on targets of one kind. One that inherits from this class needs to write `start` only."""

    #: the `kind` of the targets it serves
    kind: str
    #: the timeout of an attempt if the job sets none
    default_timeout_ms: int

    async def open(self) -> None:
        """Prepare, in the event loop that calls `start`."""
        return

    async def close(self) -> None:
        """Release all resources. No `start` is running, and none follows."""
        return

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target that can never be launched. Called before a job is saved."""
        return

    async def start(self, run: Launch) -> Outcome:
        """Launch this attempt and return its outcome."""
        ...


@runtime_checkable
class SelectiveLauncher(Protocol):
    """A launcher that can launch only some runs of its kind, such as those of registered functions.

    This process takes only the runs that it can launch. It publishes `capabilities` for the others.
    """

    #: called when `capabilities` changes, from any thread; set by the engine
    on_capabilities_changed: Callable[[], object]

    def capabilities(self) -> Mapping[str, int]:
        """Return what it can launch (`wakeful.job.start_rules`), each name with its highest version."""
        ...


def truncate(text: str, limit: int = MAX_OUTPUT) -> str:
    """Return the beginning of a text, up to `limit` bytes, in a form that every database can store.

    >>> truncate("grün", limit=3)
    'gr'
    >>> truncate("a\\x00b")
    'a�b'
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text if len(text) <= limit else text[:limit]
    # A character has at least one byte, so only the first `limit` characters need to be encoded.
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


class NotAllowed(InvalidArgument):
    """A program, a variable or a task that the operator does not allow."""


class SpanIds(NamedTuple):
    """The ids of a span, as numbers."""

    trace_id: int
    span_id: int

    def traceparent(self, sampled: bool = True) -> str:
        """Return the header `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(sampled):02d}"


def launch_ids(idempotency_key: str, attempt: int) -> SpanIds:
    """Return the ids of the launch span of an attempt.

    >>> launch_ids("0123456789abcdef" * 4, 1).traceparent()
    '00-0123456789abcdef0123456789abcdef-0123456789abcdf1-01'
    """
    digits = _digits(idempotency_key)
    # All zeros is invalid.
    return SpanIds(int(digits[:32], 16) or 1, _span_id(digits, attempt))


def launch_traceparent(idempotency_key: str, attempt: int) -> str:
    """Return the header `traceparent` of an attempt: that of `launch_ids`, for every webhook.

    >>> launch_traceparent("manual:0190", 2) == launch_ids("manual:0190", 2).traceparent()
    True
    """
    digits = _digits(idempotency_key)
    trace = digits[:32]
    if trace == _NO_TRACE:
        return launch_ids(idempotency_key, attempt).traceparent()
    return f"00-{trace}-{_span_id(digits, attempt):016x}-01"


def _digits(idempotency_key: str) -> str:
    # The key of a tick is a hash already.
    if _DIGEST.fullmatch(idempotency_key):
        return idempotency_key
    return sha256(idempotency_key.encode()).hexdigest()


def _span_id(digits: str, attempt: int) -> int:
    return (int(digits[32:48], 16) + attempt) % (2**64 - 1) + 1
