"""The facade for jobs, runs and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from wakeful.errors import Unstorable
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry, always, was_written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed, is_claiming
from wakeful.store.plans import ManualRunRule
from wakeful.store.quotas import Allowance
from wakeful.store.rows import (
    VERIFYING,
    DeadLetter,
    JobChange,
    JobRow,
    RunView,
)
from wakeful.store.sql import base, chains, history, revisions, suggestions, verifications
from wakeful.store.sql import jobs as job_reads
from wakeful.store.sql import runs as run_reads
from wakeful.store.sql.base import Recorded, SqlBase, log_entries, reads, reads_now
from wakeful.store.sql.suggestions import SuggestionDecision
from wakeful.store.sql.usage import check_budgets, check_caps

#: Returns the run that replays a dead letter, or None to leave it.
Replay = Callable[[DeadLetter], NewRun | None]
#: Returns the change of a job that comes after another one, which has been renamed to the second.
FollowRename = Callable[[JobRow, JobRow], JobChange]
#: Returns the audit entry for a job that was changed.
EntryForJob = Callable[[JobRow], AuditEntry]
#: Returns the audit entry for the run of that id.
EntryForRun = Callable[[str], AuditEntry]

#: the primary key, once for each
CLEAR_DEAD: Final = "UPDATE runs SET dead = false WHERE id = ANY($1::uuid[])"


class SqlJobsAndRuns(SqlBase):
    """Jobs, runs and dead letters."""

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
        """Add jobs, all or none. AlreadyExists names the first whose name is taken. Topic: `jobs`.

        Agents that do not exist are added. With an `allowance` each job is charged to its workspace and its
        agent; ResourceExhausted names the bucket, and nothing is charged. `agents` is what the jobs were
        prepared with, by (workspace, agent): AgentChanged if the agent differs. The agents stay locked
        against changes until the end of the transaction. InvalidArgument: a job would come after itself, by
        `after` of these and other jobs. `charge` returns what is counted for the run that
        makes the call, here and in the calls below: FailedPrecondition if that run is not running any more,
        ResourceExhausted if it has made as much as it may, and then nothing is written.
        """
        now_ms = self.clock.now_ms()
        chained = [job for job in jobs if job.after_job is not None]

        async def create(db: Any, events: TransactionEvents) -> None:
            session = self._driver.session(db)
            await chains.lock(session, [(job.workspace, job.agent) for job in chained])
            await self._operations.jobs.create_jobs(db, events, now_ms, jobs, allowance, agents)
            await chains.check(session, chained)

        await self._record(Recorded(entries, always, keyed, charge), create)

    taken_names = reads(job_reads.taken_names)
    job = reads(job_reads.job)
    job_and_blocks = reads(job_reads.job_and_blocks)
    job_by_id = reads(job_reads.job_by_id)
    job_with_runs = reads_now(job_reads.job_with_runs)
    jobs_by_ids = reads(job_reads.jobs_by_ids)
    existing_jobs = reads(job_reads.existing_jobs)
    job_creators = reads(job_reads.job_creators)
    job_labels = reads(job_reads.job_labels)
    jobs = reads(job_reads.jobs)
    count_jobs = reads(job_reads.count_jobs)

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
        """Lock the job, and write what `change` returns with `version` one higher. Topic: `jobs`.

        None from `change` leaves the job unchanged; an exception rolls everything back. AlreadyExists: the
        new name is taken. `id`, `workspace`, `created_ms` and `created_by` stay. Withdrawn runs end at the
        job's new `updated_ms`. Runs are inserted as by `plan`: a tick that has a run keeps it. With a `move`,
        waiting runs go to that lane (topic: `runs`), and running ones with their next attempt. Returns the
        job afterwards, or None if there is none. `agent` is what `change` relies on: AgentChanged, before
        `change` is called, if the job's agent differs. With `suggestion`, that suggestion is written too,
        also if the job stays. InvalidArgument: the job would come after itself. If the name changes, `follow`
        is called with each job that comes after this one, and with this one, for the change that is written
        in the same transaction.
        """

        async def write(
            db: Any, events: TransactionEvents, chains_locked: bool
        ) -> tuple[JobRow | None, bool]:
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
                await check_budgets(self._driver.session(db), events, self.clock.now_ms(), owners)
            if row is not None and before is not None and chains.affects_chain(before, row):
                if row.name != before.name:
                    await history.delete_of_new_jobs(session, [row.key])
                if row.name != before.name and follow is not None:
                    await self._rename_upstream(db, events, before, row, follow)
                await chains.check(session, [row])
            if suggestion is not None and locked is not None and row is not None:
                await suggestions.decide(session, suggestion, locked, row)
                events.record_suggestions([locked.id])
                changed = True
            return row, changed

        response: Keyed[tuple[JobRow | None, bool]] | None = keyed.of(lambda done: done[0]) if keyed else None
        recorded = Recorded(entries, was_written, response, charge)
        try:
            row, _ = await self._record(recorded, write, False)
        except chains.ChainChange:
            row, _ = await self._record(recorded, write, True)
        return row

    async def _rename_upstream(
        self, db: Any, events: TransactionEvents, old: JobRow, new: JobRow, follow: FollowRename
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
        """Do `change_job` for several jobs in one transaction; return those that changed, in any order.

        An entry is written for each of them. `change` may not change the name or the agent. `agents` is what
        it relies on, by (workspace, agent).
        """

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
        """Delete the job and cancel its pending runs. Running and retrying ones go on. False: no such job.

        `due_runs` gets the locked job and returns the runs of ticks that were due and not yet planned; they
        are inserted as by `plan`. An exception of it rolls everything back.
        """
        delete = self._operations.jobs.delete_job
        return await self._record(Recorded(entries), delete, self.clock, job_id, now_ms, reason, due_runs)

    revisions = reads(revisions.revisions)
    jobs_before = reads(chains.jobs_before)
    dangling_jobs = reads(chains.dangling)
    chained_jobs = reads(chains.chained_jobs)
    followers = reads(chains.followers)

    # --- runs -------------------------------------------------------------------------------------

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
        charge: ChargeRule | None = None,
        versions: Sequence[int | None] = (),
        day: int | None = None,
    ) -> list[RunView]:
        """Add runs that are not ticks, all or none. AlreadyExists: an id is taken.

        Returns them as stored. With a key, an empty list is stored as a response too. NotFound: a job was
        deleted; none is deleted before the runs are written. A replay needs no job. StaleJob: the job of a
        run is not at the version that the run has in `versions`. With `day`, CapReached: a cap of the
        workspace, an agent or a job of it is reached on that day. Topics: `runs`, `pull_runs`.
        """
        if keyed is None and charge is None and not is_claiming():
            added = await self._add_at_once(runs, entries, versions, day)
            if added is not None:
                log_entries(entries)
                return added
        add, now_ms = self._operations.runs.add_runs, self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> list[RunView]:
            if day is not None:
                await check_caps(self._driver.session(db), day, {run.workspace for run in runs})
            return await add(db, events, now_ms, runs, versions)

        return await self._record(Recorded(entries, always, keyed, charge), write)

    async def _add_at_once(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry],
        versions: Sequence[int | None],
        day: int | None,
    ) -> list[RunView] | None:
        """Do `add_runs` at less cost, where the database can. None: nothing is written."""
        return None

    async def add_manual_run(
        self,
        run: NewRun,
        judge: ManualRunRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[RunView] | None = None,
        charge: ChargeRule | None = None,
        version: int | None = None,
    ) -> RunView:
        """Add a run that is not a tick as `judge` decides, given the live runs of its job. Topic: `runs`.

        Meanwhile no planner plans the job, and no worker starts a serial run of it. `LiveRuns.waiting` has
        its pending serial runs without those of a backfill. Runs that `judge` cancels end as by `cancel_run`.
        Errors as of `add_runs`.
        """
        add, now_ms = self._operations.runs.add_manual_run, self.clock.now_ms()
        return await self._record(Recorded(entries, always, keyed, charge), add, now_ms, run, judge, version)

    async def cancel_run(
        self, run_id: str, now_ms: int, reason: str, *, running: bool, entries: Sequence[AuditEntry] = ()
    ) -> RunView | None:
        """Cancel a pending or retrying run or, with `running`, a running one.

        Topics: `stop:<id>` for a running one, whose worker's outcome is dropped; and `runs`,
        since another run may have its turn. None: no such run. FailedPrecondition: it is in another state.
        """

        async def cancel(db: Any, events: TransactionEvents) -> RunView | None:
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
        """Write the outcome of a running run that was reported from outside, as `finish` does.

        For a claimed run, and for one with a callback: the caller decides which runs those
        are. Fenced by run and attempt: the first report counts, and what the worker writes later of this
        attempt is dropped. If a worker holds the run, `stop:<id>:<attempt>` is published. False: the run is
        not running in that attempt, or is being verified.
        """
        complete, now_ms = self._operations.runs.complete_run, self.clock.now_ms()
        return await self._record(Recorded(entries), complete, self.clock, now_ms, finished, consequences)

    async def complete_runs(
        self,
        holder: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
        entry: EntryForRun | None = None,
    ) -> set[str]:
        """Write outcomes that were reported from outside, in one transaction, as `finish` does.

        For claimed runs, whose holder is `ANY_EXECUTOR`, and for runs that await their callbacks, which have
        none. Each is fenced by run and attempt. `entry` returns the audit entry of each that is written.
        Returns the ids that were written. Unstorable: the database cannot store one of them; none is written.
        """

        def entries(written: set[str]) -> list[AuditEntry]:
            return (
                [] if entry is None else [entry(each.run_id) for each in finished if each.run_id in written]
            )

        finish, now_ms = self._operations.outcomes.finish, self.clock.now_ms()
        try:
            if not is_claiming():
                all_entries = entries({each.run_id for each in finished})
                written = await self._complete_at_once(holder, finished, consequences, all_entries)
                if written is not None:
                    log_entries(all_entries)
                    return written
            return await self._record(
                Recorded(entries), finish, self.clock, now_ms, holder, finished, consequences
            )
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def _complete_at_once(
        self,
        holder: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
        entries: Sequence[AuditEntry],
    ) -> set[str] | None:
        """Do `complete_runs` at less cost, where the database can. None: nothing is written."""
        return None

    calling_run = reads(base.calling_run)
    run = reads(run_reads.read_run)
    run_with_attempts = reads(run_reads.run_with_attempts)
    runs_by_ids = reads(run_reads.runs_by_ids)
    run_agents = reads(run_reads.run_agents)
    reported_runs = reads(run_reads.reported_runs)
    runs = reads(run_reads.runs)

    async def follow_up_runs(self, run_id: str, limit: int = 50) -> list[RunView]:
        """Return the runs that the end of a run caused (chains, heartbeats, alerts) and its replays."""
        ids = await self._read(chains.follow_up_ids, run_id, limit)
        return sorted(await self.runs_by_ids(ids), key=lambda run: run.id) if ids else []

    async def sent_signals(
        self, workspace: str, run_id: str, ended_ms: int, limit: int = 50
    ) -> list[RunView]:
        """Return the signals that a run sent to instances when it ended. Only runs nearby are considered."""
        ids = await self._read(chains.signal_ids, workspace, run_id, ended_ms, limit)
        return sorted(await self.runs_by_ids(ids), key=lambda run: run.id) if ids else []

    run_horizon = reads(chains.horizon)
    attempts = reads(run_reads.attempts)

    # --- dead letters -----------------------------------------------------------------------------

    async def replay_runs(
        self,
        workspace: str,
        which: Sequence[str] | int,
        make: Replay,
        entry: EntryForRun | None = None,
        keyed: Keyed[list[RunView]] | None = None,
    ) -> list[RunView]:
        """Add new runs for dead letters, which stop being ones, all or none. Returns the new runs.

        `which` are ids, or how many of the oldest of the workspace. Ids that are no dead letters of it are
        ignored, and one for which `make` returns None stays. The new runs are in the order of the ids, or of
        age, with the old id in `replay_of`. Topic: `runs`. With `entry`, each replayed dead letter has one.
        """
        now_ms = self.clock.now_ms()

        async def replay(db: Any, events: TransactionEvents) -> list[RunView]:
            letters = await run_reads.lock_dead_letters(self._driver.session(db), workspace, which)
            made = [(letter.run.id, make(letter)) for letter in letters]
            replayed = {dead: run._replace(replay_of=dead) for dead, run in made if run is not None}
            if not replayed:
                return []
            views = await self._operations.runs.add_runs(db, events, now_ms, list(replayed.values()), ())
            await self._driver.session(db).execute(CLEAR_DEAD, list(replayed))
            return views

        def entries(replayed: list[RunView]) -> list[AuditEntry]:
            return [entry(str(run.replay_of)) for run in replayed] if entry else []

        return await self._record(Recorded(entries, keyed=keyed), replay)

    async def discard_runs(
        self, workspace: str, which: Sequence[str] | int, entry: EntryForRun | None = None
    ) -> list[str]:
        """Discard dead letters; their runs stay. Returns their ids. Arguments as in `replay_runs`."""

        async def discard(db: Any, _: TransactionEvents) -> list[str]:
            letters = await run_reads.lock_dead_letters(self._driver.session(db), workspace, which)
            discarded = [letter.run.id for letter in letters]
            await self._driver.session(db).execute(CLEAR_DEAD, discarded)
            return discarded

        def entries(discarded: list[str]) -> list[AuditEntry]:
            return [entry(run_id) for run_id in discarded] if entry else []

        return await self._record(Recorded(entries), discard)
