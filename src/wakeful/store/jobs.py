"""Jobs, runs and workflows, as users create, change and list them: what a store does with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from wakeful.job.self_scheduling import CallingRun, ChargeRule
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.quotas import Allowance
from wakeful.store.rows import (
    AttemptView,
    DeadLetter,
    JobChange,
    JobFilter,
    JobRow,
    ManualRunRule,
    RunFilter,
    RunView,
)
from wakeful.store.suggestions import SuggestionDecision

#: Returns the run that replays a dead letter, or None to leave it.
Replay = Callable[[DeadLetter], NewRun | None]
#: Returns the change of a job that comes after another one, which has been renamed to the second.
FollowRename = Callable[[JobRow, JobRow], JobChange]
#: Returns the audit entry for a job that was changed.
EntryForJob = Callable[[JobRow], AuditEntry]
#: Returns the audit entry for the run of that id.
EntryForRun = Callable[[str], AuditEntry]


class JobStore(Protocol):
    """The part of a store that holds jobs."""

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
        ...

    async def job(self, workspace: str, agent: str, name: str) -> JobRow | None:
        """Return the job of that name, unless deleted."""
        ...

    async def job_by_id(self, job_id: str, *, deleted: bool = False) -> JobRow | None:
        """Return the job of that id, unless deleted; with `deleted` also then."""
        ...

    async def jobs_by_ids(self, ids: Sequence[str]) -> list[JobRow]:
        """Return those of these jobs that exist and are not deleted, in any order."""
        ...

    async def jobs(self, only: JobFilter) -> list[JobRow]:
        """Return jobs, ordered by agent and name, or by their next tick."""
        ...

    async def count_jobs(self, only: JobFilter, most: int) -> int:
        """Return how many jobs match, at most `most`. The position in the list and the limit do not count."""
        ...

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
        ...

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
        ...

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
        ...

    async def followers(self, workspace: str, agent: str, name: str, limit: int) -> list[str]:
        """Return the names of the jobs that fire after the job of that name (`after`)."""
        ...

    async def jobs_before(self, workspace: str, agent: str, names: Sequence[str]) -> dict[str, str | None]:
        """Return those of these jobs that exist and the jobs before them, each with its `after`."""
        ...

    async def dangling_jobs(self, workspace: str | None, limit: int) -> list[tuple[str, str, str, str]]:
        """Return jobs that come after one that does not exist: workspace, agent, name, and that name.

        Without a workspace, those of all workspaces.
        """
        ...

    async def chained_jobs(self, workspace: str | None, limit: int) -> list[tuple[str, str, str, str]]:
        """Return jobs that come after one that comes after another, as `dangling_jobs` does.

        Jobs that come after each other are among them.
        """
        ...

    async def precheck_state(self, job_id: str) -> str | None:
        """Return the state that the last precheck of the job left, as compact JSON."""
        ...


class RunStore(Protocol):
    """The part of a store that holds runs and dead letters."""

    async def add_runs(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[RunView]] | None = None,
        charge: ChargeRule | None = None,
        version: int | None = None,
    ) -> list[RunView]:
        """Add runs that are not ticks, all or none. AlreadyExists: an id is taken. Topic: `runs`.

        Returns them as stored. With a key, an empty list is stored as a response too. NotFound: a job was
        deleted; none is deleted before the runs are written. A replay needs no job. FailedPrecondition: the
        job is not at this version.
        """
        ...

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
        ...

    async def cancel_run(
        self, run_id: str, now_ms: int, reason: str, *, running: bool, entries: Sequence[AuditEntry] = ()
    ) -> RunView | None:
        """Cancel a pending or retrying run or, with `running`, a running one.

        Topics: `stop:<id>` for a running one, whose worker's outcome is dropped; and `runs`,
        since another run may have its turn. None: no such run. FailedPrecondition: it is in another state.
        """
        ...

    async def complete_run(
        self, finished: Finished, consequences: Consequences, entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """Write the outcome of a running run that was reported from outside, as `finish` does.

        For a claimed run, and for one with a callback: the caller decides which runs those
        are. Fenced by run and attempt: the first report counts, and what the worker writes later of this
        attempt is dropped. If a worker holds the run, `stop:<id>:<attempt>` is published. False: the run is
        not running in that attempt, or is being verified.
        """
        ...

    async def complete_runs(
        self,
        holder: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
        entry: EntryForRun | None = None,
    ) -> set[str]:
        """Write outcomes that were reported from outside, in one transaction, as `finish` does.

        For claimed runs of one executor, which is their holder, and for runs that await their callbacks,
        which have none. Each is fenced by run, attempt and holder. `entry` returns the audit entry of each
        that is written. Returns the ids that were written. Unstorable: the database cannot store one of them;
        none is written.
        """
        ...

    async def calling_run(self, run_id: str) -> CallingRun | None:
        """Return the run in which a call is made, with its conversation and the work of its job."""
        ...

    async def run(self, run_id: str) -> RunView | None:
        """Return the run of that id."""
        ...

    async def runs_by_ids(self, ids: Sequence[str]) -> list[RunView]:
        """Return those of these runs that exist, in any order."""
        ...

    async def runs(self, only: RunFilter) -> list[RunView]:
        """Return runs, newest first (by id)."""
        ...

    async def follow_up_runs(self, run_id: str, limit: int = 50) -> list[RunView]:
        """Return the runs that the end of a run caused (chains, heartbeats, alerts) and its replays."""
        ...

    async def sent_signals(
        self, workspace: str, run_id: str, ended_ms: int, limit: int = 50
    ) -> list[RunView]:
        """Return the signals that a run sent to instances when it ended. Only runs nearby are considered."""
        ...

    async def run_horizon(self, workspace: str, before: str, count: int) -> str | None:
        """Return the id of the run that is `count` runs older than the id `before`; None: there are fewer.

        A search for runs that no index finds is limited to the runs after it (`RunFilter.since`).
        """
        ...

    async def attempts(self, run_id: str) -> list[AttemptView]:
        """Return the attempts of a run before its last, in order."""
        ...

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
        ...

    async def discard_runs(
        self, workspace: str, which: Sequence[str] | int, entry: EntryForRun | None = None
    ) -> list[str]:
        """Discard dead letters; their runs stay. Returns their ids. Arguments as in `replay_runs`."""
        ...


class WorkflowRow(NamedTuple):
    """A version of a workflow."""

    workspace: str
    id: str
    version: int
    #: compact JSON
    dag: str
    created_ms: int


class WorkflowStore(Protocol):
    """The part of a store that holds workflows."""

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Add a version. False: it exists with the same content. AlreadyExists: with another content."""
        ...

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version."""
        ...

    async def workflows(self, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
        """Return those of these versions (id, version) that exist, in any order."""
        ...
