"""Runs that are executed elsewhere: claimed by executors, or awaiting their reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.rows import AwaitingRun, Extension, RunView, TakenRun, UnfinishedRun
from wakeful.store.sql.base import SqlBase
from wakeful.store.sql.driver import SqlSession, Texts, urgent
from wakeful.values.ids import is_id

#: the primary key. A run that is being verified has no deadline
EXTEND: Final = """
    UPDATE runs SET due_at = CASE WHEN due_at < $3 THEN $3 ELSE due_at END
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND awaiting_callback AND due_at IS NOT NULL"""
#: the primary key
NOTE: Final = """
    UPDATE runs SET error = $3
    WHERE id = $1 AND attempt = $2 AND state = 'running' AND awaiting_callback AND due_at IS NOT NULL"""
#: lower than every id
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_COLUMNS: Final = """SELECT r.id::text, r.attempt, r.idempotency_key, coalesce(j.work, '{}'), r.requires,
        coalesce(j.updated_at > r.started_at AND r.response_code IS NULL, false)"""
_AWAITING: Final = "r.state = 'running' AND r.awaiting_callback AND r.due_at IS NOT NULL AND r.id > $1"
#: SQLite: runs_running, all of it. PostgreSQL: live_runs_held, those without a worker; the runs' primary key
AWAITING: Final = Texts(
    sqlite=f"""
        {_COLUMNS} FROM runs r INDEXED BY runs_running LEFT JOIN jobs j ON j.id = r.job_id
        WHERE {_AWAITING} ORDER BY r.id LIMIT $2""",
    postgresql=f"""
        {_COLUMNS} FROM live_runs l JOIN runs r ON r.id = l.run_id LEFT JOIN jobs j ON j.id = r.job_id
        WHERE coalesce(l.state, '') = 'running' AND l.worker IS NULL AND {_AWAITING}
        ORDER BY r.id LIMIT $2""",
)
#: runs_claimable or live_runs_claimable: the first matching entry after that instant
NEXT_CLAIMABLE: Final = Texts(
    sqlite="""
    SELECT due_at FROM runs INDEXED BY runs_claimable
    WHERE workspace = $2 AND due_at > $1 AND state IN ('pending', 'retrying') AND is_pull
        AND ($3 IS NULL OR lane = ANY($3::text[])) AND ($4 IS NULL OR agent = ANY($4::text[]))
    ORDER BY due_at LIMIT 1""",
    postgresql="""
    SELECT due_at FROM live_runs
    WHERE workspace = $2 AND is_pull AND due_at > $1 AND ($3::text[] IS NULL OR lane = ANY($3::text[]))
        AND ($4::text[] IS NULL OR agent = ANY($4::text[]))
    ORDER BY due_at LIMIT 1""",
)


async def extend(session: SqlSession, extensions: Sequence[Extension]) -> set[str]:
    """Extend the deadlines of runs that await their reports. Returns the ids of those that await one."""
    awaiting = set()
    for run_id, attempt, due_ms in sorted(extensions):  # rows are locked in the order of their ids
        if is_id(run_id) and await session.execute(EXTEND, run_id, attempt, due_ms) == 1:
            awaiting.add(run_id)
    return awaiting


async def note(session: SqlSession, run_id: str, attempt: int, problem: str | None) -> None:
    """Write why a run that awaits its report is not executed; None: it is."""
    await session.execute(NOTE, run_id, attempt, problem)


async def awaiting(session: SqlSession, after: str, limit: int) -> list[AwaitingRun]:
    """Return runs that await a report, after that id and in the order of their ids."""
    return [AwaitingRun(*row) for row in await session.rows(AWAITING, after or FIRST_ID, limit)]


async def next_claim_ms(
    session: SqlSession,
    after_ms: int,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
) -> int | None:
    """Return the earliest `due_at` after that instant of runs that such a claim could get."""
    given = None if lanes is None else list(lanes), None if agents is None else list(agents)
    row = await session.row(NEXT_CLAIMABLE, after_ms, workspace, *given)
    return None if row is None else int(row[0])


class SqlExecutors(SqlBase):
    """Runs that are executed elsewhere: claimed by executors, or awaiting their reports."""

    async def claim(
        self,
        now_ms: int,
        worker: str,
        workspace: str,
        agents: Sequence[str] | None,
        lanes: Sequence[str] | None,
        limit: int,
        claim_id: str | None = None,
    ) -> list[tuple[TakenRun, RunView]]:
        """Mark pull runs of this workspace as running under an executor, longest due first.

        As `take`, for pull runs; returns what a launch needs of each, and all its fields. `agents` and
        `lanes` filter; None does not. `worker` is only a label: two executors may have the same, and a worker
        of a replica too. The lease of each run begins at `now_ms`; `renew` renews it, and `rescue` ends the
        attempt when it has expired. `claim_id` names the claim for `release_claims`.
        """
        claim = self._operations.executors.claim
        return await self._driver.write(claim, now_ms, worker, workspace, agents, lanes, limit, claim_id)

    async def release_claims(
        self,
        now_ms: int,
        workspace: str,
        worker: str,
        runs: Sequence[tuple[str, int]] = (),
        claim_id: str | None = None,
        agent: str | None = None,
    ) -> list[str]:
        """Retry at once claimed runs of this executor that it does not execute. The attempts do not count.

        These attempts (id, attempt), and all runs that the claim of this name gave it. With `agent` only runs
        of that agent. Runs that it does not hold in that attempt are not changed. Returns the ids of those
        that were released. The attempts go into `attempts` with the error `released`. Topics: `runs`, and
        `claim_topic` of the claim.
        """
        release = self._operations.executors.release_claims
        return await self._driver.write(release, now_ms, workspace, worker, runs, claim_id, agent)

    async def renew(
        self,
        now_ms: int,
        workspace: str,
        held: Sequence[tuple[str, int]],
        agent: str | None = None,
        worker: str | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> list[UnfinishedRun]:
        """Renew the leases of these claimed runs (id, attempt).

        Returns those that are still claimed and running in that attempt, in any order; with `agent` only runs
        of that agent, with `worker` only those of this executor. Others are not changed. `waiting` says what
        the work of some of them, by id, waits for; they start now.
        """
        renew = self._operations.executors.renew
        return await self._driver.write_one(renew, now_ms, workspace, held, agent, worker, waiting or {})

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        """Return the earliest `due_at` after `after_ms` of runs that such a claim could get."""
        return await self._read(next_claim_ms, after_ms, workspace, agents, lanes)

    @urgent
    async def expire(
        self,
        now_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
    ) -> list[str]:
        """End pull runs that no executor claimed before their `claim_deadline`.

        At most `limit`, the longest overdue first. `judge` returns the outcome of each. It is written as by
        `finish`, and the run has neither worker nor start. A serial run does not expire while another of
        its job is running or retrying: meanwhile its time starts again, and it has at least `TURN_MS`, or all
        its time, when its turn comes. Returns the ids that were written.
        """
        expire = self._operations.executors.expire
        return await self._write(expire, self.clock, now_ms, limit, judge, consequences)

    async def extend_callbacks(self, extensions: Sequence[Extension]) -> set[str]:
        """Extend the deadlines of runs that await their reports, as progress is reported.

        A later deadline stays. Returns the ids of the runs that await a report in that attempt.
        """
        return await self._driver.write(self._shared(extend), extensions)

    async def note_callback(self, run_id: str, attempt: int, problem: str | None) -> None:
        """Write why a run that awaits its report is not executed, as its error; None: it is executed."""
        await self._driver.write(self._shared(note), run_id, attempt, problem)

    async def awaiting_runs(self, after: str, limit: int) -> list[AwaitingRun]:
        """Return runs that await a report, in the order of their ids, after that id; '': from the first."""
        return await self._read(awaiting, after, limit)
