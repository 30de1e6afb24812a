"""What a launcher must do for Wakeful. Read this, and you know what every target promises.

The engine builds a `Launch` for each attempt of a run and awaits `Launcher.start(launch)`, which answers
with an `Outcome`. A launcher never decides what becomes of the run: whether and when there is another
attempt is the engine's business, and what it needs to know for that stands in the outcome.

- **Timeouts** are the engine's: it cancels `start`. A launcher lets CancelledError pass, and leaves
  nothing behind that it could have cleaned up.
- **Exceptions**: a launcher answers `Failed` for whatever goes wrong out there. One that raises has a bug;
  the engine treats it as `Failed`, not permanent.
- **At least once**: the same run may be started again after a crash, here or on another replica, with the
  same `idempotency_key`. Launchers hand that key on to wherever they go.
- **Many at once**: `start` is called for hundreds of runs side by side on one event loop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from wakeful.document import timing_from_text
from wakeful.instants import utc_datetime
from wakeful.job import Json
from wakeful.outcome import Outcome

#: How much of what a run said is kept, in bytes of UTF-8.
MAX_OUTPUT: Final = 16 * 1024
#: How long an attempt may take where neither the job nor the launcher says otherwise.
DEFAULT_TIMEOUT_MS: Final = 600_000

_UNREAD: Final = object()


class SealedSecrets(NamedTuple):
    """The webhook secrets of a job as they are stored: encrypted."""

    secret: bytes
    #: the one before it, which signs too until then
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None


class Launch:
    """One attempt of a run: what a launcher gets, and what a function target receives as `run`.

    Cheap to build, for a storm builds a hundred thousand of them: nothing is parsed before it is asked
    for. It is made for one attempt and not shared; the payload may be changed without harm to others.

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

    __slots__ = (
        "_payload",
        "agent",
        "anchor_ms",
        "attempt",
        "fire_ms",
        "id",
        "idempotency_key",
        "job",
        "job_id",
        "missed",
        "payload_text",
        "scheduled_ms",
        "secrets",
        "stateless",
        "target",
        "timeout_ms",
        "timing",
        "trigger",
        "workspace",
    )

    def __init__(
        self,
        id: str,
        job: str | None,
        job_id: str | None,
        workspace: str,
        agent: str,
        payload_text: str | None,
        scheduled_ms: int,
        fire_ms: int,
        attempt: int,
        trigger: str,
        idempotency_key: str,
        target: Mapping[str, Json],
        timeout_ms: int | None = None,
        stateless: bool = False,
        secrets: SealedSecrets | None = None,
        timing: str | None = None,
        anchor_ms: int | None = None,
        missed: int = 0,
    ) -> None:
        self.id = id
        #: the job's name and id, or None for a run that woke an agent without a job
        self.job = job
        self.job_id = job_id
        self.workspace = workspace
        self.agent = agent
        #: compact JSON as it is stored, or None where there is no payload
        self.payload_text = payload_text
        #: the tick itself, whenever it fires
        self.scheduled_ms = scheduled_ms
        #: when it was to start: the tick and its jitter, or its turn in a catch-up
        self.fire_ms = fire_ms
        #: 1 for the first
        self.attempt = attempt
        self.trigger = trigger
        #: the same through every retry and replay: what a receiver uses to do a thing once
        self.idempotency_key = idempotency_key
        #: where it goes, as the job or its agent has it: `kind` and what that kind needs
        self.target = target
        #: how long the job lets an attempt take; None where it does not say, and `default_timeout_ms` holds
        self.timeout_ms = timeout_ms
        #: whether a conversation is to start afresh
        self.stateless = stateless
        #: what signs a webhook; read with the claim, so that a launch reads nothing from the database
        self.secrets = secrets
        #: its job's schedule, as it is stored, and the anchor of an interval
        self.timing = timing
        self.anchor_ms = anchor_ms
        #: how many ticks were missed since the one before it that became a run
        self.missed = missed
        self._payload: Json | object = _UNREAD

    @property
    def payload(self) -> Json:
        """The payload, parsed when first asked for; None where there is none."""
        if self._payload is _UNREAD:
            self._payload = None if self.payload_text is None else json.loads(self.payload_text)
        return self._payload  # type: ignore[return-value]

    @property
    def message(self) -> str | None:
        """What the agent is to be told: the payload's `message`, if it has one and it is text."""
        payload = self.payload
        message = payload.get("message") if isinstance(payload, dict) else None
        return message if isinstance(message, str) else None

    @property
    def scheduled_at(self) -> datetime:
        """The tick, in UTC."""
        return utc_datetime(self.scheduled_ms)

    @property
    def previous_ms(self) -> int | None:
        """The tick before this one, by the schedule that its job has now; None where there is none."""
        if self.timing is None or self.anchor_ms is None:
            return None
        return timing_from_text(self.timing).ticks(self.anchor_ms).prev(self.scheduled_ms)

    @property
    def previous_tick(self) -> datetime | None:
        """The same, in UTC."""
        ms = self.previous_ms
        return None if ms is None else utc_datetime(ms)

    def sent_to(self, target: Mapping[str, Json], payload_text: str | None) -> Launch:
        """The same attempt on its way to another target: for launchers that hand a run on."""
        return Launch(
            self.id,
            self.job,
            self.job_id,
            self.workspace,
            self.agent,
            payload_text,
            self.scheduled_ms,
            self.fire_ms,
            self.attempt,
            self.trigger,
            self.idempotency_key,
            target,
            self.timeout_ms,
            self.stateless,
            self.secrets,
            self.timing,
            self.anchor_ms,
            self.missed,
        )

    def __repr__(self) -> str:
        return f"<Launch {self.id} of {self.job or self.agent}, attempt {self.attempt}>"


class Launcher(Protocol):
    """The code that takes runs to targets of one kind."""

    #: the `kind` of the targets it serves
    kind: str
    #: how long an attempt may take where the job does not say
    default_timeout_ms: int

    async def open(self) -> None:
        """Get ready, in the event loop that will call `start`."""
        ...

    async def close(self) -> None:
        """Let go of everything. No `start` is under way, and none will come."""
        ...

    def check(self, target: Mapping[str, Json]) -> None:
        """Refuse with InvalidArgument a target that could never be launched: asked before a job is saved."""
        ...

    async def start(self, run: Launch) -> Outcome:
        """Take this attempt to its target, and say how it went."""
        ...


def kept(text: str, limit: int = MAX_OUTPUT) -> str:
    """As much of a text as is kept, in a form that every database can store.

    >>> kept("grün", limit=3)
    'gr'
    >>> kept("a\\x00b")
    'a�b'
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text if len(text) <= limit else text[:limit]
    # A character has at most four bytes: what is past `limit` characters need not be encoded to be dropped.
    return text[:limit].encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
