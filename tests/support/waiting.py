"""Wait for conditions, without fixed delays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar, overload

from wakeful import Wakeful
from wakeful.job.job import JobRecord
from wakeful.model import Job, Run
from wakeful.service.auth.access import LOCAL

T = TypeVar("T")

#: Seconds after which a test fails; long enough for a busy machine.
PATIENCE = 120.0
#: Seconds between two checks. Between queries they grow: the waiting must not take the time of the work.
_PAUSE = 0.01
_LONGEST_PAUSE = 0.1


def soon(after_ms: int = 150) -> int:
    """Return an instant shortly after now, in epoch ms, as the start of an interval."""
    return time.time_ns() // 1_000_000 + after_ms


def epoch_ms(at: datetime | None) -> int:
    """Return an instant in epoch milliseconds; 0 for None."""
    return 0 if at is None else round(at.timestamp() * 1000)


async def starting_soon(save: Callable[[int], Awaitable[Job]]) -> int:
    """Save a job whose first tick is a moment ahead. Returns that instant.

    If the instant has passed when the job is saved, it is saved again with one that is further ahead.
    """
    for after_ms in (150, 600, 2_400, 9_600, 38_400):
        start = soon(after_ms)
        saved = await save(start)
        if epoch_ms(saved.next_at) == start:
            return start
    raise AssertionError("the first tick has passed each time that the job was saved")


@overload
async def eventually(check: Callable[[], Awaitable[T]]) -> T: ...
@overload
async def eventually(check: Callable[[], T]) -> T: ...
async def eventually(check: Callable[[], object]) -> object:
    """Call `check` until it returns a true value, and return that."""
    answer: object = None
    pause = _PAUSE
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = check()
                if isinstance(answer, Awaitable):
                    answer = await answer
                    pause = min(1.2 * pause, _LONGEST_PAUSE)
                if answer:
                    return answer
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"no result after {PATIENCE:g} s; the last value: {answer!r}") from None


async def over(app: Wakeful, run_id: str) -> Run:
    """Wait until a run has finished, and return it."""
    async with asyncio.timeout(PATIENCE):
        return await app.runs.wait(run_id, poll=0.03)


async def in_state(app: Wakeful, run_id: str, state: str) -> Run:
    """Wait until a run is in that state, and return it."""

    async def look() -> Run | None:
        run = await app.runs.get(run_id)
        return run if run.state == state else None

    found = await eventually(look)
    assert found is not None
    return found


async def runs_of(app: Wakeful, name: str) -> list[Run]:
    """Return the runs of a job, oldest first, also if it was deleted."""
    return [run for run in reversed(await app.runs.list(limit=1000)) if run.job == name]


async def the_run_of(app: Wakeful, name: str) -> Run:
    """Wait for the only run of a job, and return it."""
    (run,) = await eventually(lambda: runs_of(app, name))
    return run


async def stored(app: Wakeful, name: str) -> JobRecord:
    """Return a job as it is stored, with what the public model does not show."""
    return await app.services.jobs.get(LOCAL, "default", "default", name)


async def gone(app: Wakeful, name: str) -> None:
    """Wait until the job is deleted."""

    async def look() -> bool:
        return name not in {job.name for job in await app.jobs.list()}

    await eventually(look)
