"""A workspace whose runs fill a lane does not keep those of another waiting for all of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.integration.conftest import QUICK, SELDOM, NewApp
from tests.support.waiting import eventually
from wakeful import Function, Launch
from wakeful.app.jobs import Jobs

SLOTS = 4


async def test_a_free_slot_goes_to_the_workspace_that_has_fewer(new_app: NewApp):
    app = new_app(config=replace(QUICK, lanes={"cron": SLOTS}))
    calls: list[tuple[str, asyncio.Event]] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append((run.workspace, asyncio.Event()))
        await calls[-1][1].wait()

    async def end_one_of(workspace: str) -> str:
        """End a call of this workspace. Returns which workspace the next one is of."""
        before = len(calls)
        next(over for owner, over in calls if owner == workspace and not over.is_set()).set()
        await eventually(lambda: len(calls) > before)
        return calls[-1][0]

    async with app:
        flood, small = (Jobs(app.services, workspace, "default") for workspace in ("flood", "small"))
        for jobs, count in ((flood, 20), (small, 5)):
            await jobs.create("job", schedule=SELDOM, target=Function("work"), overlap_policy="allow")
            for _ in range(count):
                await jobs.run("job")
            await eventually(lambda: len(calls) == SLOTS)
        assert [owner for owner, _ in calls] == ["flood"] * SLOTS
        assert [await end_one_of("flood") for _ in range(2)] == ["small", "small"]
        while len(calls) < 25:
            await end_one_of(next(owner for owner, over in calls if not over.is_set()))
        assert "small" not in [owner for owner, _ in calls[SLOTS + 2 * 5 + SLOTS :]], (
            "it had half of the slots"
        )
        for _, over in calls:
            over.set()
