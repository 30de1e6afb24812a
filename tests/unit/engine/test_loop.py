"""How a loop of the engine ends."""

from __future__ import annotations

import asyncio

from wakeful.engine.loop import Loop
from wakeful.errors import Unavailable
from wakeful.values.clock import SystemClock


class Waiting(Loop):
    """A loop whose first step answers a cancellation with an error."""

    steps = 0

    async def step(self) -> int | None:
        self.steps += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.steps > 1:
                raise
            raise Unavailable("the connection did not return") from None
        return None


async def test_a_step_that_fails_when_it_is_cancelled_does_not_keep_its_loop() -> None:
    loop = Waiting(SystemClock(), 1)
    running = asyncio.create_task(loop.run())
    while not loop.steps:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=5)
    assert running.done()
    assert running.cancelled()
