"""The loop that starts turns, on virtual time and with a store that is made up here."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.simulation.virtual_loop import FalseClock, VirtualLoop, run_virtually
from wakeful.agents.turn_starter import TurnStarter
from wakeful.store.port import Store


class FullSessions:
    """A store in which many sessions wait for running turns, so that a search takes long and finds few."""

    searched_s = 0.0
    searches = 0

    def listen(self, notified: object) -> None: ...

    async def next_turn(self, now_ms: int) -> tuple[bool, int | None]:
        return True, None

    async def take_turns(self, *given: Any) -> int:
        await asyncio.sleep(0.3)
        self.searched_s += 0.3
        self.searches += 1
        return self.searches % 2


def test_searching_among_many_full_sessions_leaves_time_for_others() -> None:
    async def story() -> float:
        store, loop = FullSessions(), asyncio.get_running_loop()
        starter = TurnStarter(cast(Store, store), FalseClock(cast(VirtualLoop, loop), 0), tick_ms=1_000)
        searching = asyncio.create_task(starter.run())
        while loop.time() < 30:  # other messages arrive, and other turns end
            starter.wake()
            await asyncio.sleep(0.01)
        searching.cancel()
        return store.searched_s / 30

    assert 0.1 < run_virtually(story()) < 0.25
