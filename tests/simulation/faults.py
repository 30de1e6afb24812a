"""All that can go wrong between a replica and its database, by the choice of a seed.

A call may take its time, fail before it is made, fail after it was made (and nobody can tell the two
apart), find that nobody answers for longer than a lease, or be the last thing that its process does: before
anything was written, or just after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.machine import Machine
from wakeful.clock import SteeredClock
from wakeful.errors import Unavailable
from wakeful.store.port import Planned
from wakeful.store.sqlite import SqliteStore


class Crash(BaseException):
    """The process is gone. Nobody in it hears of this."""


@dataclass
class Odds:
    """How often, of a hundred calls that matter, what goes wrong; calls that do nothing count a tenth."""

    crash: float = 0
    #: the database says that it cannot be reached, and has done nothing
    refused: float = 0
    #: it says so, but it has done it
    doubt: float = 0
    #: nobody answers, for as long as `stall_s` says
    stall: float = 0
    stall_s: float = 60
    #: how long a call takes there and back, at most
    way_s: float = 0

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong."""
        return not (self.crash or self.refused or self.doubt or self.stall)


CALM = Odds()
_WEIGHTY = ("plan", "take", "finish", "rescue", "release", "beat")


class CrashingStore:
    """The store as a replica has it. Everything it asks goes through here, and none of it is safe."""

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
        #: the process dies
        self.on_crash: Callable[[str], None] = lambda where: None
        #: something else went wrong, and it will be some seconds before all is well
        self.on_trouble: Callable[[float], None] = lambda seconds: None

    def listen(self, heard: Callable[[str], None]) -> None:
        """The dead hear nothing."""
        self._store.listen(lambda topic: None if self._machine.dead else heard(topic))

    def silence(self, seconds: float) -> None:
        """From now on nobody answers, for so long: calls under way and new ones wait."""
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
            raise Unavailable(f"{name}: nobody there")
        answer = await call(*args, **kwargs)
        now_us = self._store.clock.now_us()  # type: ignore[attr-defined]
        if self._matters(answer):
            after = self._fate("crash", "doubt", "stall")
        if after == "crash":
            self._die(f"after {name}")
        await self._way(after)
        if self._steered is not None:
            self._steered.steer(now_us)
        if after == "doubt":
            self.on_trouble(30)
            raise Unavailable(f"{name}: no answer")
        return sorted(answer) if isinstance(answer, set) else answer

    def _fates(self, name: str) -> tuple[str | None, str | None]:
        """What happens on the way there, and on the way back where the call turns out to do nothing."""
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
    def _matters(answer: object) -> bool:
        """Whether it changed something."""
        return (
            bool(answer.runs)
            if isinstance(answer, Planned)
            else isinstance(answer, set | list) and bool(answer)
        )

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
