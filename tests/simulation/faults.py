"""Seeded faults between a replica and its database.

A call may be slow, fail before it is executed, fail after it was executed (the caller cannot distinguish the
two), stall for longer than a lease, or crash its process, before or just after the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.machine import Machine
from wakeful.errors import Unavailable
from wakeful.store.plans import Planned
from wakeful.store.sqlite import SqliteStore
from wakeful.values.clock import SteeredClock


class Crash(BaseException):
    """The process has crashed; its code must not handle this."""


@dataclass
class Odds:
    """Faults in percent of the calls that change something; other calls have a tenth of these rates."""

    crash: float = 0
    #: the call fails and was not executed
    refused: float = 0
    #: the call fails but was executed
    doubt: float = 0
    #: the database does not respond for about `stall_s`
    stall: float = 0
    stall_s: float = 60
    #: maximum latency of a call in each direction
    way_s: float = 0

    @property
    def calm(self) -> bool:
        """Whether there are no faults."""
        return not (self.crash or self.refused or self.doubt or self.stall)


CALM = Odds()
_WEIGHTY = (
    "plan", "take", "finish", "finish_and_take", "record_check", "rescue", "release", "give_back", "beat",
    "send", "take_deliveries", "finish_deliveries", "feed", "end_subscription",
)  # fmt: skip


class CrashingStore:
    """The store of a replica, with faults injected into every call."""

    def __init__(
        self, store: SqliteStore, machine: Machine, odds: Odds, rng: Random, *, steered: bool
    ) -> None:
        self._store = store
        self._machine = machine
        self._rng = rng
        self._steered = SteeredClock() if steered else None
        self._silent_until = 0.0
        self.odds = odds
        self.clock = self._steered or store.clock
        self.notifies_other_processes = store.notifies_other_processes
        #: called when the process crashes
        self.on_crash: Callable[[str], None] = lambda where: None
        #: called on other faults with the seconds until recovery
        self.on_trouble: Callable[[float], None] = lambda seconds: None

    def listen(self, received: Callable[[str], None]) -> None:
        """Register a listener; a dead process receives no notifications."""
        self._store.listen(lambda topic: None if self._machine.dead else received(topic))

    def silence(self, seconds: float) -> None:
        """Stall all current and new calls for so long."""
        self._silent_until = max(self._silent_until, asyncio.get_running_loop().time() + seconds)
        self.on_trouble(seconds)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def fated(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, call, args, kwargs)

        return fated

    async def _call(self, name: str, call: Any, args: Any, kwargs: Any) -> Any:
        self._live()
        before, after = self._fates(name)
        await self._way(before)
        if before == "crash":
            self._die(f"before {name}")
        if before == "refused":
            self.on_trouble(30)
            raise Unavailable(f"{name}: no connection")
        answer = await call(*args, **kwargs)
        now_us = self._store.clock.now_us()  # type: ignore[attr-defined]
        if self._matters(name, answer):
            after = self._fate("crash", "doubt", "stall")
        if after == "crash":
            self._die(f"after {name}")
        await self._way(after)
        if self._steered is not None:
            self._steered.steer(now_us)
        if after == "doubt":
            self.on_trouble(30)
            raise Unavailable(f"{name}: no answer")
        if name == "finish_and_take":
            return sorted(answer[0]), answer[1]
        return sorted(answer) if isinstance(answer, set) else answer

    def _fates(self, name: str) -> tuple[str | None, str | None]:
        """Choose the faults before and after a call that changes nothing."""
        if name in _WEIGHTY and self._rng.random() < 0.1:
            return self._fate("crash", "refused", "stall"), None
        return None, None

    def _fate(self, *kinds: str) -> str | None:
        roll = self._rng.random() * 100
        for kind in kinds:
            roll -= getattr(self.odds, kind)
            if roll < 0:
                return kind
        return None

    @staticmethod
    def _matters(name: str, answer: Any) -> bool:
        """Whether the call changed something."""
        if isinstance(answer, Planned):
            return bool(answer.runs)
        if name == "record_check":
            return bool(answer)
        if name == "take_deliveries":
            return bool(answer[0])
        return any(answer) if name == "finish_and_take" else isinstance(answer, set | list) and bool(answer)

    async def _way(self, fate: str | None) -> None:
        if fate == "stall":
            self.silence(self.odds.stall_s * self._rng.uniform(0.5, 3))
        if self.odds.way_s and self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.random() ** 2 * self.odds.way_s)
        loop = asyncio.get_running_loop()
        while loop.time() < self._silent_until:
            await asyncio.sleep(self._silent_until - loop.time())
        self._live()

    def _live(self) -> None:
        if self._machine.dead:
            raise Crash("long dead")

    def _die(self, where: str) -> None:
        self.on_crash(where)
        raise Crash(where)


def fated(store: CrashingStore, number: int, after: bool, error: type[BaseException] | None = None) -> None:
    """Make the process crash, or raise the error, before or after its call of that number."""
    calls, real = 0, CrashingStore._call

    async def call(name: str, *rest: object) -> object:
        nonlocal calls
        calls += 1
        if calls != number:
            return await real(store, name, *rest)
        if after:
            await real(store, name, *rest)
        if error is not None:
            raise error(f"call {number}, {name}: no answer")
        store._die(f"{'after' if after else 'before'} {name}")
        raise AssertionError("it is dead")

    store._call = call  # type: ignore[method-assign, assignment]
