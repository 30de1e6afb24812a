"""The facade for jobs, runs and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from wakeful.errors import Unstorable
from wakeful.job.self_scheduling import CallingRun, ChargeRule
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry, always, written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed
from wakeful.store.jobs import EntryForJob, EntryForRun, FollowRename, Replay
from wakeful.store.quotas import Allowance
from wakeful.store.revisions import RevisionRow
from wakeful.store.rows import (
    VERIFYING,
    AttemptView,
    JobChange,
    JobFilter,
    JobRow,
    ManualRunRule,
    RunFilter,
    RunView,
)
from wakeful.store.sql import base, chains, history, prechecks, revisions, suggestions, verifications
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.suggestions import SuggestionDecision

D = TypeVar("D")

#: the primary key, once for each
CLEAR_DEAD: Final = "UPDATE runs SET dead = false WHERE id = ANY($1::uuid[])"


class SqlJobsAndRuns(SqlBase[D]):
    """Jobs, runs and dead letters in an SQL database. Each method is that of `port.Store`."""

    # --- jobs -------------------------------------------------------------------------------------

    async def create_jobs(
        self,
        jobs: Sequence[JobRow],
        entries: Sequence[AuditEntry] = (),
        allowance: Allowance | None = None,
        keyed: Keyed[None] | None = None,
        agents: Mapping[tuple[str, str], Inherited] | None = None,
        charge: ChargeRule | None = None,
    ) -> None:
        now_ms = self.clock.now_ms()
        chained = [job for job in jobs if job.after_job is not None]

        async def create(db: D, events: TransactionEvents) -> None:
            session = self._driver.session(db)
            await chains.lock(session, [(job.workspace, job.agent) for job in chained])
            await history.delete_of_new_jobs(session, [job[1:4] for job in jobs])
            await self._operations.jobs.create_jobs(db, events, now_ms, jobs, allowance, agents)
            await chains.check(session, chained)

        await self._record(Recorded(entries, always, keyed, charge), create)

    async def job(self, workspace: str, agent: str, name: str) -> JobRow | None:
        return await self._driver.read(self._operations.jobs.job, workspace, agent, name)

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        return await self._driver.read(self._operations.jobs.job_by_id, job_id, deleted)

    async def jobs_by_ids(self, ids: Sequence[str]) -> list[JobRow]:
        return await self._driver.read(self._operations.jobs.jobs_by_ids, ids)

    async def jobs(self, only: JobFilter) -> list[JobRow]:
        return await self._driver.read(self._operations.jobs.list_jobs, only)

    async def count_jobs(self, only: JobFilter, most: int) -> int:
        return await self._driver.read(self._operations.jobs.count_jobs, only, most)

    async def change_job(
        self,
        job_id: str,
        change: Callable[[JobRow], JobChange | None],
        entries: Sequence[AuditEntry] = (),
        agent: Inherited | None = None,
        suggestion: SuggestionDecision | None = None,
        charge: ChargeRule | None = None,
        follow: FollowRename | None = None,
        keyed: Keyed[JobRow | None] | None = None,
    ) -> JobRow | None:
        async def write(db: D, events: TransactionEvents, chains_locked: bool) -> tuple[JobRow | None, bool]:
            session = self._driver.session(db)
            if chains_locked:
                await chains.lock_of_job(session, job_id)
            locked = None if suggestion is None else await suggestions.lock(session, suggestion)
            before: JobRow | None = None
            decided: JobChange | None = None

            def decide(old: JobRow) -> JobChange | None:
                nonlocal before, decided
                before, decided = old, change(old)
                if decided is not None and not chains_locked and chains.affects_chain(old, decided.job):
                    raise chains.ChainChange
                return decided

            row, changed = await self._operations.jobs.change_job(
                db, events, self.clock, job_id, decide, agent
            )
            if row is not None and decided is not None and decided.revision is not None:
                await revisions.add(session, row.id, row.version - 1, decided.revision, row.updated_ms)
            if row is not None and decided is not None and decided.budget:
                owners = [BudgetOwner(row.workspace, row.agent, row.id)]
                await self._operations.usage.check_budgets(db, events, self.clock.now_ms(), owners)
            if row is not None and before is not None and chains.affects_chain(before, row):
                if row.name != before.name:
                    await history.delete_of_new_jobs(session, [row[1:4]])
                if row.name != before.name and follow is not None:
                    await self._rename_upstream(db, events, before, row, follow)
                await chains.check(session, [row])
            if suggestion is not None and locked is not None and row is not None:
                await suggestions.decide(session, suggestion, locked, row)
                events.suggested([locked.id])
                changed = True
            return row, changed

        response: Keyed[tuple[JobRow | None, bool]] | None = keyed.of(lambda done: done[0]) if keyed else None
        recorded = Recorded(entries, written, response, charge)
        try:
            row, _ = await self._record(recorded, write, False)
        except chains.ChainChange:
            row, _ = await self._record(recorded, write, True)
        return row

    async def _rename_upstream(
        self, db: D, events: TransactionEvents, old: JobRow, new: JobRow, follow: FollowRename
    ) -> None:
        """Let the jobs that come after a job, which has another name now, still come after it."""
        session = self._driver.session(db)
        followers = await chains.follower_ids(session, old.workspace, old.agent, old.name)
        if not followers:
            return
        changes: dict[str, JobChange] = {}

        def change(follower: JobRow) -> JobChange:
            changes[follower.id] = follow(follower, new)
            return changes[follower.id]

        for row in await self._operations.jobs.change_jobs(db, events, self.clock, followers, change, None):
            revision = changes[row.id].revision
            if revision is not None:
                await revisions.add(session, row.id, row.version - 1, revision, row.updated_ms)

    async def change_jobs(
        self,
        job_ids: Sequence[str],
        change: Callable[[JobRow], JobChange | None],
        entry: EntryForJob,
        agents: Mapping[tuple[str, str], Inherited] | None = None,
        charge: ChargeRule | None = None,
    ) -> list[JobRow]:
        def entries(changed: list[JobRow]) -> list[AuditEntry]:
            return [entry(row) for row in changed]

        write = self._operations.jobs.change_jobs
        recorded = Recorded(entries, charge=charge)
        return await self._record(recorded, write, self.clock, job_ids, change, agents)

    async def delete_job(
        self,
        job_id: str,
        now_ms: int,
        reason: str,
        entries: Sequence[AuditEntry] = (),
        due_runs: Callable[[JobRow], Sequence[NewRun]] = lambda job: (),
    ) -> bool:
        delete = self._operations.jobs.delete_job
        return await self._record(Recorded(entries), delete, self.clock, job_id, now_ms, reason, due_runs)

    async def revisions(self, job_id: str) -> list[RevisionRow]:
        return await self._read(revisions.revisions, job_id)

    async def jobs_before(self, workspace: str, agent: str, names: Sequence[str]) -> dict[str, str | None]:
        return await self._read(chains.jobs_before, workspace, agent, names)

    async def dangling_jobs(self, workspace: str | None, limit: int) -> list[tuple[str, str, str, str]]:
        return await self._read(chains.dangling, workspace, limit)

    async def chained_jobs(self, workspace: str | None, limit: int) -> list[tuple[str, str, str, str]]:
        return await self._read(chains.chained, workspace, limit)

    async def followers(self, workspace: str, agent: str, name: str, limit: int) -> list[str]:
        return await self._read(chains.followers, workspace, agent, name, limit)

    async def precheck_state(self, job_id: str) -> str | None:
        return await self._read(prechecks.state, job_id)

    # --- runs -------------------------------------------------------------------------------------

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
        charge: ChargeRule | None = None,
        version: int | None = None,
    ) -> list[RunView]:
        add, now_ms = self._operations.runs.add_runs, self.clock.now_ms()
        return await self._record(Recorded(entries, always, keyed, charge), add, now_ms, runs, version)

    async def add_manual_run(
        self,
        run: NewRun,
        judge: ManualRunRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[RunView] | None = None,
        charge: ChargeRule | None = None,
        version: int | None = None,
    ) -> RunView:
        add, now_ms = self._operations.runs.add_manual_run, self.clock.now_ms()
        return await self._record(Recorded(entries, always, keyed, charge), add, now_ms, run, judge, version)

    async def cancel_run(
        self, run_id: str, now_ms: int, reason: str, *, running: bool, entries: Sequence[AuditEntry] = ()
    ) -> RunView | None:
        async def cancel(db: D, events: TransactionEvents) -> RunView | None:
            session = self._driver.session(db)
            if running:
                await verifications.lock(session, run_id)
            run = await self._operations.runs.cancel_run(db, events, run_id, now_ms, reason, running)
            if run is not None and run.worker == VERIFYING:
                await verifications.delete(session, run_id)
            return run

        return await self._record(Recorded(entries), cancel)

    async def complete_run(
        self, finished: Finished, consequences: Consequences, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        complete, now_ms = self._operations.runs.complete_run, self.clock.now_ms()
        return await self._record(Recorded(entries), complete, self.clock, now_ms, finished, consequences)

    async def complete_runs(
        self,
        holder: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
        entry: EntryForRun | None = None,
    ) -> set[str]:
        def entries(written: set[str]) -> list[AuditEntry]:
            return (
                [] if entry is None else [entry(each.run_id) for each in finished if each.run_id in written]
            )

        finish, now_ms = self._operations.outcomes.finish, self.clock.now_ms()
        try:
            return await self._record(
                Recorded(entries), finish, self.clock, now_ms, holder, finished, consequences
            )
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def calling_run(self, run_id: str) -> CallingRun | None:
        return await self._read(base.calling_run, run_id)

    async def run(self, run_id: str) -> RunView | None:
        return await self._driver.read(self._operations.runs.run, run_id)

    async def runs_by_ids(self, ids: Sequence[str]) -> list[RunView]:
        return await self._driver.read(self._operations.runs.runs_by_ids, ids)

    async def runs(self, only: RunFilter) -> list[RunView]:
        return await self._driver.read(self._operations.runs.list_runs, only)

    async def follow_up_runs(self, run_id: str, limit: int = 50) -> list[RunView]:
        ids = await self._read(chains.follow_up_ids, run_id, limit)
        return sorted(await self.runs_by_ids(ids), key=lambda run: run.id) if ids else []

    async def sent_signals(
        self, workspace: str, run_id: str, ended_ms: int, limit: int = 50
    ) -> list[RunView]:
        ids = await self._read(chains.signal_ids, workspace, run_id, ended_ms, limit)
        return sorted(await self.runs_by_ids(ids), key=lambda run: run.id) if ids else []

    async def run_horizon(self, workspace: str, before: str, count: int) -> str | None:
        return await self._read(chains.horizon, workspace, before, count)

    async def attempts(self, run_id: str) -> list[AttemptView]:
        return await self._driver.read(self._operations.runs.attempts, run_id)

    # --- dead letters -----------------------------------------------------------------------------

    async def replay_runs(
        self,
        workspace: str,
        which: Sequence[str] | int,
        make: Replay,
        entry: EntryForRun | None = None,
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        now_ms = self.clock.now_ms()

        async def replay(db: D, events: TransactionEvents) -> list[RunView]:
            letters = await self._operations.runs.lock_dead_letters(db, workspace, which)
            made = [(letter.run.id, make(letter)) for letter in letters]
            replayed = {dead: run._replace(replay_of=dead) for dead, run in made if run is not None}
            if not replayed:
                return []
            views = await self._operations.runs.add_runs(db, events, now_ms, list(replayed.values()), None)
            await self._driver.session(db).execute(CLEAR_DEAD, list(replayed))
            return views

        def entries(replayed: list[RunView]) -> list[AuditEntry]:
            return [entry(str(run.replay_of)) for run in replayed] if entry else []

        return await self._record(Recorded(entries, keyed=keyed), replay)

    async def discard_runs(
        self, workspace: str, which: Sequence[str] | int, entry: EntryForRun | None = None
    ) -> list[str]:
        async def discard(db: D, _: TransactionEvents) -> list[str]:
            letters = await self._operations.runs.lock_dead_letters(db, workspace, which)
            discarded = [letter.run.id for letter in letters]
            await self._driver.session(db).execute(CLEAR_DEAD, discarded)
            return discarded

        def entries(discarded: list[str]) -> list[AuditEntry]:
            return [entry(run_id) for run_id in discarded] if entry else []

        return await self._record(Recorded(entries), discard)
