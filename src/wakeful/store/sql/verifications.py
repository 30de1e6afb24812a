"""Verifications: runs that were reported as done, and whose work is checked before they succeed.

- `verifications`: one row for each such run, added in the transaction that wrote the report
  (`Finished.verification`; topic: `verifications`), and deleted with the outcome of the check. `reported_by`
  is the worker or the executor that reported it. `tries` counts how often a worker took it.
- `runs.verifying_attempt` is the attempt that is verified. An attempt is verified once, so the number is not
  reset. Replicas of schema 17 do not write it; they know the run by its worker.
- The run awaits a callback without a deadline meanwhile, under the worker `VERIFYING`. This is its fence: no
  heartbeat or report of an executor matches it, and no rescuer ends it.
- A row is due at `due_at`. A worker that takes it moves that to the end of its lease, so another worker takes
  it if the first one dies. The row of a run that was cancelled meanwhile is deleted when it is due.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from wakeful.document.guards import MANUAL
from wakeful.job.start_rules import Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import VERIFICATION_REQUESTED, TransactionEvents
from wakeful.store.rows import VERIFYING, RunView, TakenRun
from wakeful.store.sql.base import Recorded, SqlBase, publishes, reads
from wakeful.store.sql.driver import SqlSession
from wakeful.store.sql.runs import IS_VERIFIED
from wakeful.store.sql.usage import note_waiting_runs
from wakeful.values.ids import is_id

#: the primary key, and that of runs
ADD: Final = """
    INSERT INTO verifications (run_id, attempt, reported_by, due_at, verify, requires, at, workspace)
    VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT r.workspace FROM runs r WHERE r.id = $1))"""
#: the primary key
MARK: Final = f"UPDATE runs SET worker = '{VERIFYING}', verifying_attempt = attempt WHERE id = $1"
#: the primary key
SET_EVIDENCE: Final = "UPDATE runs SET evidence = $2 WHERE id = $1"
#: verifications_due: a range of it, in its order; the primary key of runs for each
DUE: Final = """
    SELECT v.run_id::text, v.attempt, v.verify, v.tries + 1, v.requires, v.at FROM verifications v
    WHERE v.due_at <= $1 AND (v.requires = ANY($2::text[]) OR v.at <= $3)
        AND NOT coalesce((SELECT r.workspace FROM runs r WHERE r.id = v.run_id), '') = ANY($5::text[])
    ORDER BY v.due_at LIMIT $4 FOR UPDATE SKIP LOCKED"""
#: the primary key
TAKE: Final = "UPDATE verifications SET worker = $2, due_at = $3, tries = tries + 1 WHERE run_id = $1"
#: the primary key, once for each
VERIFIED: Final = f"""
    SELECT r.id::text, r.attempt FROM runs r
    WHERE r.id = ANY($1::uuid[]) AND {IS_VERIFIED}"""
#: the primary key
HELD: Final = """
    SELECT v.worker, v.tries, v.reported_by FROM verifications v WHERE v.run_id = $1 AND v.attempt = $2
    FOR UPDATE"""
#: the primary key
LOCK: Final = "SELECT v.run_id::text FROM verifications v WHERE v.run_id = $1 FOR UPDATE"
#: the primary key
DELETE: Final = "DELETE FROM verifications WHERE run_id = $1"
#: the primary key
POSTPONE: Final = """
    UPDATE verifications SET worker = NULL, due_at = $4, tries = tries - $5
    WHERE run_id = $1 AND worker = $2 AND tries = $3"""
#: the primary key. The run shows who reported it, not that it was verified
RESTORE_WORKER: Final = f"UPDATE runs SET worker = $2 WHERE id = $1 AND worker = '{VERIFYING}'"
#: the primary key of attempts
RESTORE_ATTEMPT: Final = "UPDATE attempts SET worker = $3 WHERE run_id = $1 AND attempt = $2"
#: the primary key
READ: Final = "SELECT v.verify, v.due_at, v.tries, v.at FROM verifications v WHERE v.run_id = $1"
#: verifications_due: the first entry after that instant
NEXT_DUE: Final = "SELECT min(due_at) FROM verifications WHERE due_at > $1"


class DueVerification(NamedTuple):
    """A verification that a worker has taken."""

    run: TakenRun
    view: RunView
    #: compact JSON of the job's `verify` when the run was reported
    verify: str
    #: how often it was taken, with this time: part of the fence
    tries: int
    #: what a process must have to do it
    requires: str
    #: when the run was reported as done
    reported_ms: int


class VerificationView(NamedTuple):
    """A verification, to show it."""

    verify: str
    #: when it is due; of a check under way, when its lease ends; `manual`: its deadline
    due_ms: int
    tries: int
    reported_ms: int


async def write_reports(
    session: SqlSession,
    events: TransactionEvents,
    now_ms: int,
    worker: str | None,
    outcomes: Sequence[Finished],
) -> None:
    """Write the evidence of these outcomes, and the verifications that their runs await."""
    evidence = [(each.run_id, each.evidence or None) for each in outcomes if each.evidence is not None]
    if evidence:
        await session.execute_many(SET_EVIDENCE, evidence)
    awaiting = [(each, each.verification) for each in outcomes if each.verification is not None]
    if awaiting:
        await session.execute_many(
            ADD,
            [
                (
                    each.run_id, each.attempt, each.executor or worker, now_ms + verification.delay_ms,
                    verification.verify, verification.requires, now_ms,
                )
                for each, verification in awaiting
            ],
        )  # fmt: skip
        await session.execute_many(MARK, [(each.run_id,) for each, _ in awaiting])
        events.publish("verifications")
        by_person = [
            each.run_id
            for each, verification in awaiting
            if json.loads(verification.verify).get("kind") == MANUAL
        ]
        for run_id in by_person:
            events.record_fact(VERIFICATION_REQUESTED, run_id)
        await note_waiting_runs(session, events, now_ms, by_person)


class _Due(NamedTuple):
    """A row of `DUE`."""

    run_id: str
    attempt: int
    verify: str
    tries: int
    requires: str
    at_ms: int


async def take(
    session: SqlSession,
    now_ms: int,
    worker: str,
    capabilities: Capabilities,
    waiting_since_ms: int,
    limit: int,
    lease_until_ms: Callable[[str], int],
    without: Sequence[str],
) -> dict[str, _Due]:
    """Take due verifications. Returns them by run, without those of runs that are not verified now."""
    rows = await session.rows(DUE, now_ms, list(capabilities), waiting_since_ms, limit, list(without))
    if not rows:
        return {}
    due = [_Due(*row) for row in rows]
    found = await session.rows(VERIFIED, [each.run_id for each in due])
    verified = {(run_id, attempt) for run_id, attempt in found}
    taken = {each.run_id: each for each in due if (each.run_id, each.attempt) in verified}
    if taken:
        await session.execute_many(
            TAKE, [(each.run_id, worker, lease_until_ms(each.verify)) for each in taken.values()]
        )
    stale = [(each.run_id,) for each in due if each.run_id not in taken]
    if stale:
        await session.execute_many(DELETE, stale)
    return taken


async def lock_verification(
    session: SqlSession, finished: Finished, held: tuple[str, int] | None
) -> tuple[str | None] | None:
    """Lock a verification. Returns who reported the run; None: there is none, or another worker has it."""
    row = await session.row(HELD, finished.run_id, finished.attempt) if is_id(finished.run_id) else None
    if row is None:
        return None
    worker, tries, reporter = row
    return (reporter,) if held is None or (worker, tries) == held else None


async def lock(session: SqlSession, run_id: str) -> None:
    """Lock the verification of a run, if there is one: before the run, as `finish_verification` does."""
    if is_id(run_id):
        await session.row(LOCK, run_id)


async def end(session: SqlSession, finished: Finished, reported_by: str | None) -> None:
    """Delete the verification of a run whose outcome is written, and restore the name of its worker."""
    await session.execute(DELETE, finished.run_id)
    await session.execute(RESTORE_WORKER, finished.run_id, reported_by)
    if finished.state == "retrying":
        await session.execute(RESTORE_ATTEMPT, finished.run_id, finished.attempt, reported_by)


async def delete(session: SqlSession, run_id: str) -> None:
    """Delete the verification of a run that was cancelled."""
    await session.execute(DELETE, run_id)
    await session.execute(RESTORE_WORKER, run_id, None)


async def postpone(
    session: SqlSession,
    events: TransactionEvents,
    run_id: str,
    held: tuple[str, int],
    due_ms: int,
    *,
    counts: bool,
) -> bool:
    """Make a verification due again. `counts`: whether the present try counts. False: it is not held."""
    found = bool(await session.execute(POSTPONE, run_id, *held, due_ms, 0 if counts else 1))
    if found:
        events.publish("verifications")
    return found


async def read(session: SqlSession, run_id: str) -> VerificationView | None:
    """Return the verification of a run, if it awaits one."""
    row = await session.row(READ, run_id) if is_id(run_id) else None
    return None if row is None else VerificationView(*row)


async def next_due_ms(session: SqlSession, after_ms: int) -> int | None:
    """Return when the next verification is due after that instant."""
    found: int | None = await session.value(NEXT_DUE, after_ms)
    return found


class SqlVerifications(SqlBase):
    """Verifications."""

    async def take_verifications(
        self,
        now_ms: int,
        worker: str,
        capabilities: Capabilities,
        waiting_since_ms: int,
        limit: int,
        lease_until_ms: Callable[[str], int],
        without: Sequence[str] = (),
    ) -> list[DueVerification]:
        """Take due verifications for this worker, longest due first, none of the workspaces `without`.

        Those that require something else than the capabilities are taken only if they were reported before
        `waiting_since_ms`. `lease_until_ms` returns when the lease ends, by the stored `verify`.
        """

        async def run(db: Any, _: TransactionEvents) -> list[DueVerification]:
            taken = await take(
                self._driver.session(db), now_ms, worker, capabilities, waiting_since_ms, limit,
                lease_until_ms, without,
            )  # fmt: skip
            if not taken:
                return []
            runs = await self._operations.executors.taken_runs(db, list(taken))
            found = {run.id: (run, view) for run, view in runs}
            return [
                DueVerification(*found[each.run_id], each.verify, each.tries, each.requires, each.at_ms)
                for each in taken.values()
                if each.run_id in found  # a run that was deleted meanwhile is left to the next try
            ]

        return await self._driver.write(run)

    async def finish_verification(
        self,
        finished: Finished,
        consequences: Consequences,
        held: tuple[str, int] | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> bool:
        """Write the outcome of a run after its verification, as `finish` does, and delete the verification.

        With `held`, only if that worker has taken it and not another one since (worker, `tries`). False: the
        run is not verified in that attempt, or another worker has it.
        """

        async def run(db: Any, events: TransactionEvents) -> bool:
            session, now_ms = self._driver.session(db), self.clock.now_ms()
            reporter = await lock_verification(session, finished, held)
            if reporter is None:
                return False
            finish = self._operations.outcomes.finish
            written = await finish(db, events, self.clock, now_ms, VERIFYING, [finished], consequences)
            if written:
                await end(session, finished, *reporter)
            else:  # it was cancelled
                await delete(session, finished.run_id)
            return bool(written)

        return await self._record(Recorded(entries), run)

    postpone_verification = publishes(postpone)
    verification = reads(read)
    next_verification_ms = reads(next_due_ms)
