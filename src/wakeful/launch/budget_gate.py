"""Reservations: an attempt under a budget asks before it starts, and before each request to a model.

A cap that is reached ends the run. If the rest of a budget is only reserved, by what other runs have under
way, a start is tried again later, and a request waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.errors import Unavailable
from wakeful.job.start_rules import BUDGET, BudgetBlock, describe_block, is_skipped
from wakeful.launch.port import Launch
from wakeful.launch.precheck import PRECHECK_FAILED
from wakeful.run.outcome import Failed, Skipped
from wakeful.run.usage import ReservationRequest, Reserved, Spent
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: The first and the longest pause before a request asks again, in seconds.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_ALL_RESERVED: Final = "the rest of a budget is reserved by other runs; it is tried again"
_LOST: Final = Failed("the attempt is not running any more", reason="lost", counted=False)


class BudgetGate:
    """Asks the store for reservations."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def start(self, run: Launch) -> Failed | Skipped | None:
        """Reserve what an attempt may use. Returns the outcome of one that may not start."""
        # The reason tells the next attempt that nothing was launched, and whether to ask the precheck.
        reason = PRECHECK_FAILED if run.unchecked else BUDGET
        try:
            answer = await self._ask(run, None, None)
        except Unavailable as error:
            return Failed(error.message, reason=reason, counted=False)
        if answer.wait:
            return Failed(_ALL_RESERVED, reason=reason, counted=False)
        return _outcome(run, answer, used=False)

    async def reserve(self, run: Launch, used: Spent, need: Spent) -> Failed | Skipped | None:
        """Reserve what the next request of an attempt may use, and count what it has used so far.

        Waits while the rest of a budget is reserved. Returns the outcome of an attempt that must end.
        """
        pause_s = _FIRST_PAUSE_S
        while (answer := await self._ask(run, used, need)).wait:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return _outcome(run, answer, used=used != Spent())

    async def count(self, run: Launch, used: Spent) -> None:
        """Count what an attempt has used that was stopped: it has no outcome that could report it."""
        await self._ask(run, used, Spent())

    async def verify(self, run: Launch) -> Failed | None:
        """Return the outcome of a run that may not be verified, because a cap is reached."""
        reached = (await self._ask(run, None, Spent())).reached
        return None if reached is None else _failed(run, reached)

    async def _ask(self, run: Launch, used: Spent | None, need: Spent | None) -> Reserved:
        request = ReservationRequest(run.workspace, run.agent, run.id, run.attempt, used, need)
        return await self._store.reserve(self._clock.now_ms(), request)


def _outcome(run: Launch, answer: Reserved, *, used: bool) -> Failed | Skipped | None:
    if answer.lost:
        return _LOST
    if answer.reached is None:
        return None
    if is_skipped(run.trigger, retried=run.retried or used):
        return Skipped(describe_block(answer.reached, run.job), BUDGET)
    return _failed(run, answer.reached)


def _failed(run: Launch, reached: BudgetBlock) -> Failed:
    return Failed(describe_block(reached, run.job), permanent=True, reason=BUDGET)
