"""Create and claim runs that wait for an executor."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.factories import MINUTE, NOW, asked, asleep, look
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.claim_requests import ClaimRequest, ClaimScope
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunView, TakenRun, UnfinishedRun

HOUR = 60 * MINUTE
LANE = "cron"
ME, YOU = "me", "you"


async def new_job(store: Store, name: str = "digest", **fields: object) -> JobRow:
    row = asleep(name, **fields)
    await store.create_jobs([row])
    return row


def pulled(of: JobRow, due: int = NOW, wait: int = HOUR, **fields: object) -> NewRun:
    """Return a run that waits for an executor, by default for an hour."""
    return asked(of, due, **{"serial": False, "lane": LANE, "claim_timeout_ms": wait, **fields})


async def claim_pairs(
    store: Store,
    now_ms: int,
    worker: str,
    workspace: str = "default",
    agents: Sequence[str] | None = None,
    lanes: Sequence[str] | None = None,
    limit: int = 10,
    claim_id: str | None = None,
) -> list[tuple[TakenRun, RunView]]:
    """Claim runs for one executor: what a launch needs of each, and all its fields."""
    request = ClaimRequest(ClaimScope.of(workspace, agents, lanes), worker, limit, claim_id)
    (claimed,) = await store.claim(now_ms, workspace, [request])
    return [(each.run, each.view) for each in claimed]


async def claim(
    store: Store, worker: str = ME, now: int = NOW, limit: int = 10, **only: object
) -> list[TakenRun]:
    agents, lanes = only.get("agents"), only.get("lanes")
    workspace = str(only.get("workspace", "default"))
    claimed = await claim_pairs(store, now, worker, workspace, agents, lanes, limit)  # type: ignore[arg-type]
    for run, view in claimed:
        assert view == await look(store, run)
    return [run for run, _ in claimed]


def refuse(lost: UnfinishedRun) -> Finished:
    raise AssertionError(f"nothing has expired, but {lost} has")


def retry_later(lost: UnfinishedRun) -> Finished:
    return Finished(lost.id, lost.job_id, lost.attempt, "retrying", lost.started_ms or 0, NOW, NOW + 2 * HOUR)
