"""What a handler gets besides its signal, and what an instance remembers besides its state.

The memory has when each type was handled last, and which keys were seen. It is bounded, and stored as compact
JSON next to the state. It changes only with the outcome of a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from wakeful.errors import InvalidArgument
from wakeful.launch.port import Launch
from wakeful.logs import EventLogger, get_logger
from wakeful.signal.signals import Signal
from wakeful.values.clock import Clock
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json, compact, json_from_stored, quote
from wakeful.values.stored_text import is_storable

#: How many keys of `ctx.seen`, and how many types of signals, an instance remembers. The oldest go first.
MAX_KEYS: Final = 1_000
MAX_TYPES: Final = 100
#: A longer key is remembered by its digest, as is one that cannot be stored.
_LONGEST_KEY: Final = 64

_log = get_logger("wakeful.agent")


class ContextClock:
    """The clock of the database, for handlers."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        return self._clock.now_ms()

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return utc_datetime(self._clock.now_ms())


class InstanceContext:
    """The instance of an agent object: what `on_thaw` and `on_hibernate` get."""

    def __init__(
        self, workspace: str, agent: str, instance: str, clock: Clock, read_state: Callable[[], Any]
    ) -> None:
        self.workspace = workspace
        self.agent = agent
        #: the name of the instance
        self.instance = instance
        self._clock = clock
        self._read_state = read_state
        self._state: Any = None
        self._has_state = False

    @property
    def state(self) -> Any:
        """A copy of the state: a dict, or an object of the type that the class declares.

        A change of it is not stored: return `SetState`.
        """
        if not self._has_state:
            self._state, self._has_state = self._read_state(), True
        return self._state

    @state.setter
    def state(self, value: object) -> None:
        raise AttributeError("ctx.state cannot be set; return SetState(...) from the handler")

    @property
    def clock(self) -> ContextClock:
        """The clock of the database: `now()`, and `now_ms()` in epoch milliseconds."""
        return ContextClock(self._clock)

    def now(self) -> datetime:
        """Return the current time in UTC, by the clock of the database."""
        return utc_datetime(self._clock.now_ms())

    @property
    def log(self) -> EventLogger:
        """A logger whose events name the agent and the instance."""
        return _log.bind(**self._log_fields())

    def _log_fields(self) -> dict[str, object]:
        return {"workspace": self.workspace, "agent": self.agent, "instance": self.instance}


class Context(InstanceContext):
    """What a handler gets besides its signal."""

    def __init__(
        self,
        run: Launch,
        instance: str,
        signal: Signal,
        clock: Clock,
        state: object,
        memory: Memory,
        dedupe_ms: int,
    ) -> None:
        super().__init__(run.workspace, run.agent, instance, clock, lambda: state)
        self._run = run
        self.signal = signal
        self._memory = memory
        self._dedupe_ms = dedupe_ms

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt and replay of the run. Pass it to other systems."""
        return self._run.idempotency_key

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.attempt

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.id

    @property
    def scheduled_at(self) -> datetime:
        """When the signal was due: of a schedule, its tick."""
        return self._run.scheduled_at

    @property
    def last_run(self) -> datetime | None:
        """When this instance last handled a signal of this type with success; None: never."""
        last_ms = self._memory.last_run_ms(self.signal.type)
        return None if last_ms is None else utc_datetime(last_ms)

    def seen(self, key: object) -> bool:
        """Return whether this instance has handled this key before; if not, it has when the run succeeds.

        Keys are remembered for `dedupe_for`, at most 1,000 of them. A number is the same key as its text.
        """
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidArgument(f"ctx.seen: {quote(key)} is not a key; give text or a whole number")
        return self._memory.see(str(key), self._clock.now_ms(), self._dedupe_ms)

    def _log_fields(self) -> dict[str, object]:
        return {**self._run.log_fields, "instance": self.instance, "signal": self.signal.type}


class Memory:
    """The memory of an instance while one signal is handled.

    >>> memory = Memory(None)
    >>> memory.see("order-7", now_ms=1, keep_ms=10), memory.see("order-7", now_ms=2, keep_ms=10)
    (False, True)
    >>> memory.to_text("order.paid", now_ms=2, keep_ms=10)
    '{"runs":{"order.paid":2},"seen":{"order-7":1}}'
    """

    __slots__ = ("_runs", "_seen")

    def __init__(self, text: str | None) -> None:
        stored = _load_memory(text)
        self._runs = _times(stored.get("runs"))
        self._seen = _times(stored.get("seen"))

    def last_run_ms(self, type: str) -> int | None:
        """Return when a signal of this type was handled last."""
        return self._runs.get(type)

    def see(self, key: str, now_ms: int, keep_ms: int) -> bool:
        """Return whether the key was seen in the last `keep_ms`; from now on it was."""
        if len(key) > _LONGEST_KEY or not is_storable(key):
            key = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        seen_ms = self._seen.get(key)
        if seen_ms is not None and seen_ms > now_ms - keep_ms:
            return True
        self._seen.pop(key, None)  # a key that is seen again becomes the newest
        self._seen[key] = now_ms
        return False

    def to_text(self, type: str, now_ms: int, keep_ms: int) -> str:
        """Return the memory as text after a signal of this type was handled."""
        self._runs.pop(type, None)
        self._runs[type] = now_ms
        if len(self._runs) > MAX_TYPES:
            self._runs = dict(list(self._runs.items())[-MAX_TYPES:])
        value: dict[str, Json] = {"runs": {**self._runs}}
        if self._seen:
            fresh = [(key, ms) for key, ms in self._seen.items() if ms > now_ms - keep_ms]
            value["seen"] = dict(fresh[-MAX_KEYS:])
        return compact(value)


def _load_memory(text: str | None) -> dict[str, object]:
    """Return the stored object; an empty one for text that cannot be read: it only avoids repetition."""
    try:
        value = json_from_stored(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _times(value: object) -> dict[str, int]:
    if not value or not isinstance(value, dict):
        return {}
    return {key: ms for key, ms in value.items() if isinstance(ms, int)}
