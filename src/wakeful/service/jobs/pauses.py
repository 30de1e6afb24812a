"""Pause and resume jobs, and skip one tick. The state changes are in `job_transitions`."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from wakeful.job.job import JobRecord
from wakeful.job.self_scheduling import APPROVAL
from wakeful.run.factory import tick_run
from wakeful.run.job_transitions import SKIP_REASON, is_pausable, pause_job, resume_job, skip_tick
from wakeful.run.planning import fire_ms
from wakeful.schedule.schedules import At, parse_schedule
from wakeful.service.auth.access import Principal, check_person
from wakeful.service.auth.accounts import JobContext
from wakeful.service.jobs.job_editor import JobEditor, agent_inactive, check_version
from wakeful.service.jobs.job_query import no_job
from wakeful.service.row_codec import instant
from wakeful.store.job_changes import end_pause, missed_runs
from wakeful.store.row_mapping import changed_row, job_from_row, view_of_new_run
from wakeful.store.rows import JobChange, JobRow, RunFilter, RunView
from wakeful.values.json_value import compact
from wakeful.values.stored_text import UNSTORABLE, is_storable

#: The longest note of a pause.
MAX_NOTE: Final = 500
_TRIES: Final = 5
_MANY: Final = 1_000


class SkippedTick(NamedTuple):
    """The run that records the skipped tick, and the job afterwards."""

    run: RunView
    job: JobRecord


class JobPauses(JobEditor):
    """Pauses and resumes jobs."""

    async def pause(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        note: object = None,
        until: object = None,
        version: int | None = None,
    ) -> JobRecord:
        """Stop the ticks of a job and cancel its planned runs. Ticks during the pause are not missed.

        The planner resumes the job at `until` (an instant, or text such as 'in 2h'). A job that is paused
        already keeps its note and its end, unless one of them is given.
        """
        text = read_note(note)
        context = await self._accounts.context(workspace, agent)

        def pause(row: JobRow) -> JobChange | None:
            return pause_change(row, self._clock.now_ms(), text, until, context.defaults.tz)

        details = pause_details(text, until)
        return job_from_row(
            await self.change_row(
                principal, "job.pause", workspace, agent, name, pause, version, details=details
            )
        )

    async def resume(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> JobRecord:
        """Start the ticks of a job again, from now."""

        async def change(context: JobContext) -> JobRow:
            def checked(row: JobRow) -> JobChange | None:
                return resume_change(row, context, self._clock.now_ms())

            return await self.change_row(
                principal, "job.resume", workspace, agent, name, checked, version, context.inherited
            )

        return job_from_row(await self._accounts.with_context(workspace, agent, change))

    async def decide_approval(
        self,
        principal: Principal,
        workspace: str,
        job_id: str,
        approved: bool,
        *,
        note: object = None,
        version: int | None = None,
    ) -> JobRecord:
        """Resume a job that waits for approval, or pause it; for people.

        FailedPrecondition: it does not wait, or is at another version, so it is not what the person has seen.
        """
        text = read_note(note)
        found = await self._store.job_by_id(job_id)
        if found is None or found.workspace != workspace or principal.agent not in (None, found.agent):
            raise no_job(job_id)
        agent, action = found.agent, "job.resume" if approved else "job.pause"
        check_person(principal, f"decide about job '{found.name}'")
        if principal.role == "agent":
            raise PermissionDenied(f"only a person can approve job '{found.name}'; ask an admin")

        async def change(context: JobContext) -> JobRow:
            def decide(row: JobRow) -> JobChange | None:
                if row.disabled_reason != APPROVAL:
                    state = "active" if row.enabled else f"disabled ({row.disabled_reason})"
                    raise FailedPrecondition(
                        f"job '{row.name}' does not wait for approval: it is {state} since "
                        f"{instant(row.updated_ms)}"
                    )
                now_ms = self._clock.now_ms()
                if approved:
                    return resume_change(row, context, now_ms)
                return JobChange(changed_row(row, pause_job(job_from_row(row), now_ms, text)))

            return await self.change_row(
                principal, action, workspace, agent, job_id, decide, version, context.inherited,
                compact({"approved": approved, **({"note": text} if text else {})}),
            )  # fmt: skip

        return job_from_row(await self._accounts.with_context(workspace, agent, change))

    async def skip_next(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> SkippedTick:
        """Record the next tick of a job as skipped, with the reason `asked`.

        If the run of that tick is recorded already, ahead of its time, it is cancelled with the same reason.
        """
        for _ in range(_TRIES):
            row = await self.find_row(principal, "job.write", workspace, agent, name)
            entry = principal.entry(workspace, "job.skip-next", f"{agent}/{row.name}")
            check_version(row, version)
            now_ms = self._clock.now_ms()
            ahead = await self._recorded_ahead(job_from_row(row), now_ms)
            if ahead is not None:
                try:
                    running = ahead.state == "running"
                    run = await self._store.cancel_run(
                        ahead.id, now_ms, SKIP_REASON, running=running, entries=[entry]
                    )
                except FailedPrecondition:  # it started, or another request cancelled it
                    continue
                if run is not None:
                    return SkippedTick(run, job_from_row(row))
                continue
            done: list[RunView] = []

            def skip(now: JobRow, seen: JobRow = row, done: list[RunView] = done) -> JobChange | None:
                done.clear()  # a transaction may be repeated
                check_version(now, version)
                if now.next_ms != seen.next_ms:
                    return None
                job, at_ms = job_from_row(now), self._clock.now_ms()
                changed, verdict = skip_tick(job, at_ms)
                definition = job.definition
                run = tick_run(now, definition.policy, definition.work, verdict, at_ms, None)
                done.append(view_of_new_run(run, at_ms))
                return JobChange(changed_row(now, changed), runs=(run,))

            after = await self._store.change_job(row.id, skip, [entry])
            if after is None:
                raise no_job(name)
            if done:
                return SkippedTick(done[-1], job_from_row(after))
        raise FailedPrecondition(f"the ticks of job '{name}' are being planned; try again")

    async def _recorded_ahead(self, job: JobRecord, now_ms: int) -> RunView | None:
        """Return the run of the next tick if it is recorded ahead of its time."""
        ticks, policy, work = job.ticks, job.definition.policy, job.definition.work
        if ticks is None:
            return None
        live = RunFilter(job.workspace, job.agent, job.id, ("pending", "running"), "schedule", limit=_MANY)
        ahead = [
            run
            for run in await self._store.runs(live)
            # A tick that is caught up later is not the next tick.
            if run.fire_ms > now_ms and run.fire_ms == fire_ms(job.id, ticks, policy, run.scheduled_ms, work)
        ]
        return min(ahead, key=lambda run: run.scheduled_ms, default=None)


def pause_change(
    row: JobRow, now_ms: int, note: str | None, until: object, default_tz: str
) -> JobChange | None:
    """Return the change that pauses a job; None if it is paused already and gets no new note and end."""
    row = end_pause(row, now_ms)
    job = job_from_row(row)
    until_ms = _pause_end(until, job, default_tz, now_ms)
    if row.enabled:
        changed = changed_row(row, pause_job(job, now_ms, note, until_ms))
        return JobChange(changed, withdraw="paused", runs=missed_runs(row, now_ms, "paused"))
    if note is None and until_ms is None and not is_pausable(job):
        return None
    if row.disabled_reason != "paused" and not is_pausable(job):
        raise FailedPrecondition(
            f"job '{row.name}' is disabled ({row.disabled_reason}), not paused; "
            "pause it without a note and an end, or enable it first"
        )
    return JobChange(changed_row(row, pause_job(job, now_ms, note, until_ms)))


def resume_change(row: JobRow, context: JobContext, now_ms: int) -> JobChange | None:
    """Return the change that resumes a job; None if it is enabled."""
    if row.enabled:
        return None
    if not context.active:
        raise agent_inactive(context)
    ended = end_pause(row, now_ms)
    return JobChange(ended if ended.enabled else changed_row(row, resume_job(job_from_row(row), now_ms)))


def pause_details(note: str | None, until: object) -> str:
    """Return the audit details of a pause."""
    given = {"note": note, "until": None if until is None else str(until)[:64]}
    return compact({field: value for field, value in given.items() if value is not None})


def read_note(value: object) -> str | None:
    """Return the note of a pause, or None."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_NOTE:
        raise InvalidArgument(f"note: write why it is paused, in at most {MAX_NOTE} characters")
    if not is_storable(value):
        raise InvalidArgument(f"note: {UNSTORABLE}")
    return value.strip() or None


def _pause_end(value: object, job: JobRecord, default_tz: str, now_ms: int) -> int | None:
    """Return when a pause ends. Text without a zone is in the zone of the job."""
    if value is None:
        return None
    timing = job.definition.timing
    tz = (timing.schedule.tz if timing else None) or default_tz
    given = {"kind": "at", "atMs": value} if isinstance(value, int) and not isinstance(value, bool) else value
    try:
        if isinstance(given, str | dict):
            at = parse_schedule(given, now_ms=now_ms, tz=tz)
            if isinstance(at, At):
                return at.at_ms
    except InvalidArgument as error:
        raise InvalidArgument(f"until: {error.message.removeprefix('atMs ')}") from error
    raise InvalidArgument(
        "until: write when the pause ends, such as '2027-03-01T09:00', 'in 2h' or milliseconds since 1970"
    )
