"""Runs that are executed elsewhere: claimed by executors, or awaiting their reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, ClaimScope
from wakeful.store.rows import AwaitingRun, Extension, Renewal, UnfinishedRun
from wakeful.store.sql.base import SqlBase, reads, writes
from wakeful.store.sql.driver import SqlSession, Texts, urgent
from wakeful.store.sql.running import HAS_THE_TURN
from wakeful.values.ids import is_id

#: the primary key, for each, in the order of ids. A run that is being verified has no deadline
LOCK_AWAITING: Final = """
    SELECT r.id::text FROM unnest($1::uuid[], $2::integer[]) g (run_id, attempt)
    JOIN runs r ON r.id = g.run_id AND r.attempt = g.attempt
    WHERE r.state = 'running' AND r.awaiting_callback AND r.due_at IS NOT NULL
    ORDER BY r.id FOR UPDATE OF r"""
#: the primary key, for each
EXTEND: Final = """
    UPDATE runs SET due_at = g.due_at FROM unnest($1::uuid[], $2::timestamptz[]) g (run_id, due_at)
    WHERE runs.id = g.run_id AND runs.due_at < g.due_at"""
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
_LITE: Final = """FROM runs r INDEXED BY {0}
    WHERE r.workspace = s.workspace {1} AND r.state IN ('pending', 'retrying') AND r.is_pull
        AND (s.lanes IS NULL OR strpos(s.lanes, char(30) || r.lane || char(30)) > 0) AND r.due_at"""
_LIVE: Final = """FROM live_runs l
    WHERE l.workspace = s.workspace {1} AND l.is_pull
        AND (s.lanes IS NULL OR strpos(s.lanes, chr(30) || l.lane || chr(30)) > 0) AND l.due_at"""


def _claimable(source: str, run: str, turn: str) -> str:
    """Return the statement that says whether a range has a run to claim, and when its next one is due."""
    of_all = source.format("runs_claimable", "")
    of_agent = source.format("runs_claimable_of_agent", f"AND {run}.agent = s.agent")

    def either(query: str) -> str:
        return f"CASE WHEN s.agent IS NULL THEN {query.format(of_all)} ELSE {query.format(of_agent)} END"

    now = either(f"EXISTS (SELECT 1 {{0}} <= $1 AND (NOT {run}.serial OR ({turn})))")
    then = either(f"(SELECT {run}.due_at {{0}} > $1 ORDER BY {run}.due_at LIMIT 1)")
    return f"""
        SELECT s.number, {now}, {then}
        FROM unnest($2::integer[], $3::text[], $4::text[], $5::text[]) s (number, workspace, agent, lanes)"""


#: SQLite: runs_claimable or runs_claimable_of_agent. PostgreSQL: live_runs_claimable or
#: live_runs_claimable_of_agent. Two ranges of it, until a run is found, for each
CLAIMABLE: Final = Texts(
    sqlite=_claimable(_LITE, "r", HAS_THE_TURN.sqlite),
    postgresql=_claimable(_LIVE, "l", HAS_THE_TURN.postgresql),
)


async def extend(session: SqlSession, extensions: Sequence[Extension]) -> set[str]:
    """Extend the deadlines of runs that await their reports, as progress is reported.

    A later deadline stays. Returns the ids of the runs that await a report in that attempt.
    """
    known = {each.run_id: each for each in extensions if is_id(each.run_id)}
    rows = await session.rows(LOCK_AWAITING, list(known), [each.attempt for each in known.values()])
    awaiting = [run_id for (run_id,) in rows]
    if awaiting:
        await session.execute(EXTEND, awaiting, [known[run_id].due_ms for run_id in awaiting])
    return set(awaiting)


async def note(session: SqlSession, run_id: str, attempt: int, problem: str | None) -> None:
    """Write why a run that awaits its report is not executed, as its error; None: it is executed."""
    await session.execute(NOTE, run_id, attempt, problem)


async def awaiting(session: SqlSession, after: str, limit: int) -> list[AwaitingRun]:
    """Return runs that await a report, in the order of their ids, after that id; '': from the first."""
    return [AwaitingRun(*row) for row in await session.rows(AWAITING, after or FIRST_ID, limit)]


async def claimable_ms(session: SqlSession, now_ms: int, scopes: Sequence[ClaimScope]) -> list[int | None]:
    """Return for each scope `now_ms` if it has a run to claim, else when the next one is due, or None."""
    ranges: dict[ClaimScope, list[int]] = {}
    for number, scope in enumerate(scopes):
        for part in scope.coarse_ranges():
            ranges.setdefault(part, []).append(number)
    places, earliest = list(ranges.values()), list[int | None]([None] * len(scopes))
    given = zip(*((part.workspace, part.agent, part.lanes_text) for part in ranges), strict=True)
    rows = (
        await session.rows(CLAIMABLE, now_ms, list(range(len(places))), *map(list, given)) if ranges else ()
    )
    for place, is_due, next_ms in rows:
        due_ms = now_ms if is_due else next_ms
        for number in places[place] if due_ms is not None else ():
            known_ms = earliest[number]
            earliest[number] = due_ms if known_ms is None else min(known_ms, due_ms)
    return earliest


class SqlExecutors(SqlBase):
    """Runs that are executed elsewhere: claimed by executors, or awaiting their reports."""

    async def claim(
        self, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]
    ) -> list[list[ClaimedRun]]:
        """Mark pull runs of this workspace as running under executors: for each request those it gets.

        The result is that of the same requests one after the other. Each gets runs of its scope, longest due
        first, up to its limit. As `take`, for pull runs. `worker` of a request is only a label: two executors
        may have the same, and a worker of a replica too. The lease of each run begins at `now_ms`; `renew`
        renews it, and `rescue` ends the attempt when it has expired. `claim_id` names the claim for
        `release_claims`.
        """
        return await self._driver.write(self._operations.executors.claim, now_ms, workspace, requests)

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

    async def renew(self, now_ms: int, workspace: str, renewals: Sequence[Renewal]) -> list[UnfinishedRun]:
        """Renew the leases of claimed runs, each with its own conditions.

        Returns those that are still claimed and running in that attempt, in any order. Others are not
        changed.
        """
        return await self._driver.write_one(self._operations.executors.renew, now_ms, workspace, renewals)

    claimable_ms = reads(claimable_ms)

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

    extend_callbacks = writes(extend)
    note_callback = writes(note)
    awaiting_runs = reads(awaiting)
