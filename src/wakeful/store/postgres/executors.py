"""Claims and leases of executors in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wakeful.store.jobs import WorkflowRow
from wakeful.store.port import claim_topic
from wakeful.store.postgres import pull_statements as sql
from wakeful.store.postgres.leases import start
from wakeful.store.postgres.runs import runs_by_ids
from wakeful.store.postgres.waiting_runs import release_runs
from wakeful.store.rows import RunView, TakenRun, UnfinishedRun
from wakeful.values.ids import is_id

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def claim(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
    limit: int,
    claim_id: str | None,
) -> list[tuple[TakenRun, RunView]]:
    """Mark due pull runs of a workspace as running under this executor. See `Store.claim`."""
    if agents is None:
        picked = await db.fetch(sql.CLAIMABLE, now_ms, workspace, _lanes(lanes), limit)
    else:
        names = sorted(set(agents))
        picked = await db.fetch(sql.CLAIMABLE_OF_AGENTS, now_ms, workspace, _lanes(lanes), limit, names)
    taken = await start(db, events, now_ms, worker, picked, now_ms, claim_id)
    if not taken:
        return []
    views = {view.id: view for view in await runs_by_ids(db, [run.id for run in taken])}
    return [(run, views[run.id]) for run in taken]


async def taken_runs(db: Db, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]:
    """Return runs that are running, with what a launch needs of each."""
    views = {view.id: view for view in await runs_by_ids(db, ids)}
    return [(TakenRun(*row), views[row[0]]) for row in await db.fetch(sql.TAKEN_RUNS, list(ids))]


async def renew(
    db: Db,
    now_ms: int,
    workspace: str,
    held: Sequence[tuple[str, int]],
    agent: str | None,
    worker: str | None,
    waiting: Mapping[str, str],
) -> list[UnfinishedRun]:
    """Renew the leases of these runs. See `Store.renew`."""
    known = sorted(each for each in held if is_id(each[0]))
    if not known:
        return []
    ids, attempts = zip(*known, strict=True)  # lock runs in the order of their ids
    notes = [waiting.get(run_id) for run_id in ids]
    rows = await db.fetch(sql.RENEW, now_ms, list(ids), list(attempts), workspace, agent, worker, notes)
    return [UnfinishedRun(*row) for row in rows]


async def release_claims(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    workspace: str,
    worker: str,
    runs: Sequence[tuple[str, int]],
    claim_id: str | None,
    agent: str | None,
) -> list[str]:
    """Retry claimed runs immediately. See `Store.release_claims`."""
    whose = worker, workspace, agent
    held: list[str] = []
    named = sorted(each for each in runs if is_id(each[0]))
    if named:
        ids, attempts = map(list, zip(*named, strict=True))
        held += [run_id for (run_id,) in await db.fetch(sql.RETURNABLE, *whose, ids, attempts)]
    if claim_id is not None:
        found = await db.fetch(sql.RETURNABLE_OF_CLAIM, *whose, claim_id)
        held += [run_id for (run_id,) in found if run_id not in held]
        events.publish(claim_topic(workspace, worker, claim_id))
    await release_runs(db, events, now_ms, held)
    return held


async def workflows(db: Db, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
    """Return these workflow versions, without those that do not exist. See `Store.workflows`."""
    ids, versions = [key[0] for key in wanted], [key[1] for key in wanted]
    return [WorkflowRow(*row) for row in await db.fetch(sql.WORKFLOWS, workspace, ids, versions)]


async def next_claim_ms(
    db: Db, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
) -> int | None:
    """Return when the next claimable run is due. See `Store.next_claim_ms`."""
    names = None if agents is None else list(agents)
    due: int | None = await db.fetchval(sql.NEXT_CLAIMABLE, after_ms, workspace, _lanes(lanes), names)
    return due


def _lanes(lanes: Sequence[str] | None) -> list[str] | None:
    return None if lanes is None else list(lanes)
