"""Planning passes, and runs with the workers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wakeful.errors import Unstorable
from wakeful.job.start_rules import NO_CAPABILITIES, Capabilities, capabilities_to_text
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.lane_shares import NOT_SHARED, LaneOccupancy
from wakeful.store.migrations import check_schema, schema_error
from wakeful.store.plans import NO_SLOTS, DueJob, JobPlan, Planned, TakeNext
from wakeful.store.rows import BeatResult, TakenRun, UnfinishedRun
from wakeful.store.sql import prechecks
from wakeful.store.sql.base import SqlBase, reads, writes
from wakeful.store.sql.driver import SqlSession, Texts, urgent
from wakeful.store.sql.new_runs import TicksTaken, note_decided

#: runs_running and runs_waiting, a look each; or live_runs_of_job. Whether a serial run (`r`, in PostgreSQL
#: the live run `l`) may start: no run of its job is running, none in the same state is older, and a pending
#: one waits for those that retry
HAS_THE_TURN: Final = Texts(
    sqlite="""
        NOT EXISTS (SELECT 1 FROM runs o INDEXED BY runs_running
            WHERE o.job_id = r.job_id AND o.state = 'running')
        AND NOT EXISTS (SELECT 1 FROM runs o INDEXED BY runs_waiting
            WHERE o.job_id = r.job_id AND o.state IN ('pending', 'retrying') AND o.state = r.state
            AND (o.scheduled_at, o.id) < (r.scheduled_at, r.id))
        AND (r.state = 'retrying' OR NOT EXISTS (SELECT 1 FROM runs o INDEXED BY runs_waiting
            WHERE o.job_id = r.job_id AND o.state IN ('pending', 'retrying') AND o.state = 'retrying'))""",
    postgresql="""
    NOT EXISTS (SELECT FROM live_runs o WHERE o.job_id = l.job_id AND o.run_id <> l.run_id AND (
        o.state = 'running'
        OR o.state = l.state AND (o.scheduled_at, o.run_id) < (l.scheduled_at, l.run_id)
        OR o.state = 'retrying' AND l.state = 'pending'))""",
)

#: SQLite: jobs_wake. PostgreSQL: cursors_wake. Its first entry
NEXT_WAKE: Final = Texts(
    sqlite="SELECT min(wake_at) FROM jobs INDEXED BY jobs_wake WHERE wake_at IS NOT NULL",
    postgresql="SELECT wake_at FROM cursors WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1",
)
#: SQLite: runs_due. PostgreSQL: live_runs_due. The first entry after that instant, once for each lane and
#: requirement
NEXT_DUE: Final = Texts(
    sqlite="""
        SELECT min((SELECT min(due_at) FROM runs INDEXED BY runs_due
            WHERE lane = f.lane AND is_pull = 0 AND requires = c.name AND due_at > $1
            AND state IN ('pending', 'retrying') AND requires_version <= c.version))
        FROM unnest($2::text[]) f (lane) CROSS JOIN unnest($3::text[], $4::integer[]) c (name, version)""",
    postgresql="""
        SELECT min(d.due_at)
        FROM unnest($2::text[]) f (lane) CROSS JOIN unnest($3::text[], $4::integer[]) c (name, version)
        CROSS JOIN LATERAL (
            SELECT due_at FROM live_runs
            WHERE lane = f.lane AND NOT is_pull AND requires = c.name AND due_at > $1
                AND requires_version <= c.version
            ORDER BY due_at LIMIT 1) d""",
)
#: the primary key
BEAT: Final = """
    INSERT INTO workers (name, beat_at, started_at, capabilities) VALUES ($1, $2, $2, coalesce($3, '{}'))
    ON CONFLICT (name) DO UPDATE SET beat_at = $2, capabilities = coalesce($3, workers.capabilities)"""
#: the table, all of it
REQUIRED_SCHEMA: Final = "SELECT max(version) FROM schema_version WHERE breaking"
#: the primary key of runs, once for each
NOT_HELD: Final = """
    SELECT h.id::text FROM unnest($2::uuid[]) h (id)
    WHERE NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.id = h.id AND r.state = 'running' AND r.worker = $1 AND NOT r.is_pull)"""
#: the table, all of it
LIMIT_WORKERS: Final = "UPDATE workers SET beat_at = $1 WHERE beat_at > $1"
#: SQLite: runs_running, all of it. PostgreSQL: live_runs_held, all of it; the runs' primary key for each
LIMIT_EXECUTORS: Final = Texts(
    sqlite="""
        UPDATE runs INDEXED BY runs_running SET beat_at = $1
        WHERE state = 'running' AND is_pull AND beat_at > $1""",
    postgresql="""
        UPDATE runs SET beat_at = $1 FROM live_runs l
        WHERE coalesce(l.state, '') = 'running' AND l.is_pull AND runs.id = l.run_id AND runs.beat_at > $1""",
)
#: the primary key
RECORD_START: Final = """
    UPDATE runs SET started_at = $4
    WHERE id = $2 AND attempt = $3 AND worker = $1 AND state = 'running' AND started_at IS NULL"""


async def next_wake_ms(session: SqlSession) -> int | None:
    """Return the earliest `wake_at` of all jobs."""
    found: int | None = await session.value(NEXT_WAKE)
    return found


async def next_due_ms(
    session: SqlSession, after_ms: int, lanes: Sequence[str], capabilities: Capabilities = NO_CAPABILITIES
) -> int | None:
    """Return the earliest `due_at` after `after_ms` of runs that a worker of these lanes could take."""
    names, versions = list(capabilities), list(capabilities.values())
    found: int | None = await session.value(NEXT_DUE, after_ms, list(lanes), names, versions)
    return found


async def beat(
    session: SqlSession, worker: str, now_ms: int, holding: Sequence[str], capabilities: str | None
) -> tuple[set[str], int]:
    """Record a heartbeat. Returns which of these runs the worker lost, and the schema that is required."""
    await session.execute(BEAT, worker, now_ms, capabilities)
    return await find_lost(session, worker, holding), await required_schema(session)


async def required_schema(session: SqlSession) -> int:
    """Return the newest breaking migration of the database."""
    return int(await session.value(REQUIRED_SCHEMA))


async def find_lost(session: SqlSession, worker: str, holding: Sequence[str]) -> set[str]:
    """Return which of these runs the worker does not hold any more. Changes nothing."""
    return set(await session.column(NOT_HELD, worker, list(holding))) if holding else set()


async def limit_heartbeats(session: SqlSession, now_ms: int) -> None:
    """Set heartbeats of workers and executors that are later than now to now: the clock was set back."""
    await session.execute(LIMIT_WORKERS, now_ms)
    await session.execute(LIMIT_EXECUTORS, now_ms)


class SqlRunning(SqlBase):
    """Planning passes, and runs with the workers that hold them."""

    #: where the next pass of `prune` continues
    _prune_after = ""

    @urgent
    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        """Claim up to `limit` jobs with `wake_at <= until_ms`, oldest first, and write what `decide` returns.

        Claimed jobs are locked against other planners until the end; jobs that another planner holds are
        skipped. None from `decide` leaves a job unchanged. A tick that has a run already does not get another
        one: its job learns that tick (`DueJob.decided_ticks`), the pass writes nothing else, and the caller
        repeats it (`Planned.repeat`). A run to cancel that has ended stays as it is; running ones are
        published (`stop:<id>`). Pending runs are published (`runs`), and so are cancelled ones, since another
        run may have waited for them. Statements: claim, live runs, insert, cancel, advance.
        """
        plan, now_ms = self._operations.planning.plan, self.clock.now_ms()
        try:
            return await self._driver.write(plan, now_ms, until_ms, limit, decide)
        except TicksTaken as taken:
            await self._driver.write(self._shared(note_decided), taken.runs)
            return Planned(taken.claimed, [], repeat=True)

    next_wake_ms = urgent(reads(next_wake_ms))

    @urgent
    async def take(
        self,
        now_ms: int,
        worker: str,
        free: Mapping[str, int],
        capabilities: Capabilities = NO_CAPABILITIES,
        prefetch: Mapping[str, int] = NO_SLOTS,
        usage: Mapping[str, LaneOccupancy] = NOT_SHARED,
    ) -> list[TakenRun]:
        """Mark due runs as running under this worker, up to the given number per lane, longest due first.

        A pending or retrying run with `due_at <= now_ms` is due. Runs that require something else than the
        capabilities of the worker's process (`start_rules.can_take`) are not read. A serial run is taken
        only if no other run of its job is running or retrying and, if it is pending, no older one is pending:
        they start one at a time, in the order of their ticks. Two retrying runs of one job, which an edit or
        a race may leave, go in tick order. `attempt` of a retrying run goes up by one; `started_at` becomes
        `now_ms`. Two workers never take one run. A run without a job has the policy and the work `{}`.
        Returned longest due first over all lanes, then by age.

        `prefetch` is how many more runs to take per lane that start later, when a slot is free. Such a run is
        running without `started_at` (`TakenRun.slot` is `later`). Its start is written with its outcome, or
        by `record_starts`. The first due run that may not be prefetched (`prefetch_rules`) ends them.

        `usage` names the lanes that are shared (`lane_shares`): if more runs are due there than may be taken,
        they are chosen so that workspaces by their weight, and then agents, have equal parts of what is used
        and taken; of one agent, longest due first. `TakenRun.weight` is the weight of its workspace then.

        Suspects are not taken: runs that were lost together with others of their worker.
        """
        take = self._operations.leases.take
        return await self._driver.write(take, now_ms, worker, free, capabilities, prefetch, usage)

    @urgent
    async def take_suspects(
        self,
        now_ms: int,
        worker: str,
        lanes: Sequence[str],
        capabilities: Capabilities = NO_CAPABILITIES,
        limit: int = 1,
    ) -> list[TakenRun]:
        """Take the suspects of these lanes that are due longest, as by `take`.

        If `limit` allows several, those that were lost more than once are not taken.
        """
        take = self._operations.leases.take_suspects
        return await self._driver.write(take, now_ms, worker, lanes, capabilities, limit)

    next_due_ms = urgent(reads(next_due_ms))

    @urgent
    async def finish(self, worker: str, finished: Sequence[Finished], consequences: Consequences) -> set[str]:
        """Write how attempts ended, each only if its run is still running under this worker and attempt.

        Returns the ids that were written. An attempt that is not the last goes into `attempts`. What follows
        for jobs, with the states of their prechecks, and for other runs is decided by `consequences`
        (`wakeful.run.consequences`) and written in the same transaction. Retrying, follow-up and waiting runs
        whose turn has come are published (`runs`). Unstorable: a value cannot be stored, and nothing
        was written. With `state == "running"` the run awaits its callback until `due_at`, without a worker,
        or its verification (`store.sql.verifications`). Output, error, reason and usage are written in
        every case.
        """
        finish, now_ms = self._operations.outcomes.finish, self.clock.now_ms()
        try:
            return await self._write(finish, self.clock, now_ms, worker, finished, consequences)
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    @urgent
    async def finish_and_take(
        self, worker: str, finished: Sequence[Finished], consequences: Consequences, take_next: TakeNext
    ) -> tuple[set[str], list[TakenRun]]:
        """Do `finish`; then take the next runs of these instances, and other runs, as `take_next` allows.

        The next run of an instance is taken as by `take` if it is pending, due, and in the lane of the run
        that ended (`TakenRun.slot` is `previous`). So a signal that waits behind another needs no transaction
        of its own to start. The others are taken by `take`, after all effects of the outcomes.
        """
        finish, now_ms = self._operations.leases.finish_and_take, self.clock.now_ms()
        try:
            return await self._write(finish, self.clock, now_ms, worker, finished, consequences, take_next)
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def record_check(
        self, run_id: str, attempt: int, worker: str, context: str | None, precheck: str
    ) -> bool:
        """Write the context of a run, and what its precheck decided (`prechecks.check_to_text`).

        False, and nothing is written, if the run is not running under this worker and attempt. The state of
        the precheck, and `once`, take effect with the outcome (`Finished.checked`).
        """
        record = self._shared(prechecks.record)
        return await self._driver.write(record, run_id, attempt, worker, context, precheck)

    @urgent
    async def beat(
        self, worker: str, now_ms: int, holding: Sequence[str], capabilities: Capabilities | None = None
    ) -> BeatResult:
        """Record a heartbeat. Returns which of these runs the worker lost, and if the schema is too new.

        `capabilities` is what the worker's process can launch; None leaves what is recorded.
        """
        text = None if capabilities is None else capabilities_to_text(capabilities)
        lost, required = await self._driver.write_one(
            lambda db: beat(self._driver.session(db), worker, now_ms, holding, text)
        )
        return BeatResult(lost, schema_error(required, self._driver.newest_schema))

    async def check_schema(self) -> None:
        """Raise IncompatibleSchema if the database has a schema that this code does not support."""
        check_schema(await self._read(required_schema), self._driver.newest_schema)

    find_lost = urgent(reads(find_lost))
    limit_heartbeats = urgent(writes(limit_heartbeats))

    @urgent
    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
        spared_before_ms: int = 0,
    ) -> list[str]:
        """End the attempts of workers without a heartbeat since, and of runs whose callback is overdue.

        Likewise for a claimed run whose lease was not renewed since, whatever else its executor holds. Such
        runs, and those with a callback, are spared if they started before `spared_before_ms`. A worker that
        never sent a heartbeat counts from the start of its run. At most `limit` runs, longest started first.
        `judge` returns the outcome of each; it is written as by `finish`. Dead workers without runs are
        deleted. Two rescuers never judge one run. Returns the ids that were written.
        """
        rescue = self._operations.leases.rescue
        return await self._write(
            rescue, self.clock, now_ms, dead_before_ms, limit, judge, consequences, spared_before_ms
        )

    @urgent
    async def release(self, worker: str, now_ms: int, keep: Sequence[tuple[str, int]] | None = None) -> int:
        """Delete the worker and retry at once the runs that it holds. Returns how many.

        With `keep` the worker stays, and so do these attempts (run id and attempt): it releases runs whose
        claim was committed while the response was lost. The attempts go into `attempts` with the error
        `released`. Topic: `runs`.
        """
        return await self._driver.write(self._operations.leases.release, worker, now_ms, keep)

    @urgent
    async def give_back(self, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]) -> int:
        """Release these prefetched attempts (run id and attempt), which have not started. Returns how many.

        Only those that the worker still holds, without a recorded start. They are due since their `fire_at`,
        so they keep their place among the runs that wait. Otherwise as `release`.
        """
        return await self._driver.write(self._operations.leases.give_back, worker, now_ms, runs)

    @urgent
    async def record_starts(self, worker: str, starts: Sequence[tuple[str, int, int]]) -> None:
        """Write when prefetched attempts started: run id, attempt, instant. Others are not changed."""
        rows = [(worker, *start) for start in sorted(starts)]  # runs are locked in the order of their ids
        await self._driver.write_one(lambda db: self._driver.session(db).execute_many(RECORD_START, rows))

    async def prune(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` terminal runs that finished before then, except dead letters, and deleted
        jobs without runs. Returns how many runs."""
        pruned, self._prune_after = await self._driver.write(
            self._operations.leases.prune, before_ms, limit, self._prune_after
        )
        return pruned
