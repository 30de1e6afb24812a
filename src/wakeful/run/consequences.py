"""What follows from the outcomes of runs, for their jobs and for other runs. Pure, the same for every store.

A store writes a batch of outcomes, reads the `Facts` that `needs` names, calls `consequences` and writes the
`Effects`, all in one transaction. What an outcome means for its own run is in `wakeful.run.outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.job.start_rules import BudgetOwner
from wakeful.run.alerts import SKEW_MS
from wakeful.run.conversations import HistoryAppend
from wakeful.run.factory import follow_up_run
from wakeful.run.incidents import Incident, IncidentChange, IncidentJob, IncidentLog
from wakeful.run.outcome import TAKEN_OVER, Finished
from wakeful.run.prechecks import ONCE, Checked
from wakeful.run.run import Follower, NewRun, Upstream
from wakeful.run.usage import Spent, parse_usage, usage_by_owner
from wakeful.values.ids import new_id

#: The reasons for which runs end that have not started when their job is disabled or deleted.
JOB_DISABLED: Final = "job_disabled"
JOB_DELETED: Final = "job_deleted"


class Candidate(NamedTuple):
    """An enabled job that may fire after a run: by `after`, or as the heartbeat of the run's agent."""

    job_id: str
    workspace: str
    agent: str
    name: str
    policy: str
    work: str
    run_id: str
    #: the end of the run after which it fires: `succeeded`, `failed` or `finished` (either)
    on: str = "finished"
    #: whether a run of it that is not a tick is pending
    waiting: bool = False
    #: the job of the run, by which it fires
    after: str = ""
    #: how deep the run is
    after_depth: int = 0
    #: how many follow-up runs in a row led to the run
    after_chain_length: int = 0


class Needs(NamedTuple):
    """Which facts a batch needs. Besides these: `fires_followers` and `resets_failures`."""

    #: the outcomes that are not plain successes
    special: Sequence[Finished] = ()
    #: jobs with a failed run
    failed_jobs: Collection[str] = ()
    #: jobs that the batch may disable or delete
    ending_jobs: Collection[str] = ()
    #: runs that disable or delete their job, unless the job continues (`Facts.has_next`)
    ending_runs: Sequence[str] = ()
    #: runs that fire the heartbeat of their agent
    waking_runs: Sequence[str] = ()
    #: runs that report usage
    usage_runs: Sequence[str] = ()
    #: entries to append to the histories of sessions
    history: Sequence[HistoryAppend] = ()
    #: jobs that a precheck changes
    checked_jobs: Collection[str] = ()


class Facts(NamedTuple):
    """What the database holds before the effects of a batch."""

    #: consecutive failures, by job: of every job with a failed run, and of those with a succeeded run whose
    #: count is not 0, or that have an open incident. A job that no longer exists is absent
    failures: Mapping[str, int] = {}
    #: those of `Needs.ending_jobs` that have a next tick
    has_next: Collection[str] = ()
    #: by run: when it was written, and when its job was last edited (`edit_times`); at least for
    #: `Needs.ending_runs` whose job has a next tick
    edits: Mapping[str, tuple[int, int]] = {}
    #: the jobs that may fire after a run of the batch
    followers: Sequence[Candidate] = ()
    #: the heartbeats that may fire after `Needs.waking_runs`
    heartbeats: Sequence[Candidate] = ()
    #: the job of each of `Needs.usage_runs`, or its agent if it has no job
    owners: Mapping[str, BudgetOwner] = {}
    #: those of `Needs.failed_jobs` whose failures are incidents: not of deleted jobs, nor of alert jobs
    incident_jobs: Mapping[str, IncidentJob] = {}
    #: of every job in `failures` and `Needs.ending_jobs`: the incidents that are open, and those that were
    #: closed at most `REOPEN_WITHIN_MS` ago
    incidents: Sequence[Incident] = ()
    #: the revision of the precheck of each of `Needs.checked_jobs`
    revisions: Mapping[str, int] = {}
    #: of those of `Needs.usage_runs` that are under a budget: what of their attempt is counted already
    counted: Mapping[str, Spent] = {}


class JobEnd(NamedTuple):
    """When and why a job is disabled."""

    at_ms: int
    reason: str


class PrecheckState(NamedTuple):
    """The state that a precheck left at its job, compact JSON or None, and the new revision."""

    state: str | None
    revision: int


class Withdrawal(NamedTuple):
    """Runs of a job to cancel because they have not started: its pending ticks and those recorded ahead."""

    job_id: str
    at_ms: int
    reason: str
    #: cancel its other pending runs too
    manual: bool = False


class Effects(NamedTuple):
    """What to write. Each field is empty for most batches."""

    #: attempts that did not end their run
    attempts: Sequence[Finished]
    #: the new counts of consecutive failures, by job, as far as they change
    failures: Mapping[str, int]
    #: jobs to disable if they are enabled, or would be by themselves: after a pause, or with their agent
    disabled: Mapping[str, JobEnd]
    #: jobs to delete, and when
    deleted: Mapping[str, int]
    #: what to cancel of the jobs that are disabled or deleted
    withdrawn: Sequence[Withdrawal]
    #: incidents that are new or changed
    incidents: Sequence[IncidentChange]
    #: usage to add, by owner and day, in lock order
    usage: Mapping[tuple[BudgetOwner, int], Spent]
    #: the runs of followers and heartbeats
    runs: Sequence[NewRun]
    #: outputs to deliver: run, channel, recipient
    deliveries: Sequence[tuple[str, str | None, str | None]]
    #: the new states of prechecks, by job
    precheck_states: Mapping[str, PrecheckState] = {}
    #: what the attempts of runs under a budget have used in all, by run
    settled: Mapping[str, Spent] = {}


#: What follows from a batch of outcomes: `consequences`, as it is passed to a store.
Consequences = Callable[[Sequence[Finished], Facts], Effects]


def needs(outcomes: Iterable[Finished]) -> Needs:
    """Return which facts `consequences` needs for this batch."""
    special = _special(outcomes)
    if not special:
        return Needs()
    ending = [each for each in special if each.delete_job or each.disable_job is not None]
    limited = [each for each in special if each.disable_after is not None]
    return Needs(
        special,
        {each.job_id for each in special if each.state == "failed" and each.job_id is not None},
        {each.job_id for each in (*ending, *limited) if each.job_id is not None},
        [each.run_id for each in ending if each.job_id is not None],
        [each.run_id for each in special if each.wake_heartbeat],
        [each.run_id for each in special if each.usage is not None and not each.usage_counted],
        [entry for each in special for entry in each.history],
        {each.job_id for each in special if each.checked is not None and each.job_id is not None},
    )


def fires_followers(outcomes: Iterable[Finished]) -> list[str]:
    """Return the runs that jobs may fire after. Needed only if any job has `after`."""
    return [each.run_id for each in outcomes if each.state in ("succeeded", "failed") and each.job_id]


def resets_failures(outcomes: Iterable[Finished]) -> list[str]:
    """Return the jobs with a succeeded run. Needed only if any job has failures or an open incident."""
    return [each.job_id for each in outcomes if each.state == "succeeded" and each.job_id]


def first_of_each_run(outcomes: Sequence[Finished]) -> Sequence[Finished]:
    """Return the outcomes without those of a run that has one already: the first report counts."""
    first: dict[str, Finished] = {}
    for each in outcomes:
        first.setdefault(each.run_id, each)
    return outcomes if len(first) == len(outcomes) else list(first.values())


def consequences(
    outcomes: Sequence[Finished],
    facts: Facts,
    follow_up: Callable[[Follower], NewRun] = follow_up_run,
    incident_id: Callable[[int], str] = new_id,
) -> Effects:
    """Return what follows from these outcomes, in their order. At most one is of each run.

    - A failed run adds one to the consecutive failures of its job, a success sets them to 0, and no other
      state changes them. The job is disabled when they reach `disable_after`.
    - A failed run opens an incident or adds to one, and a success recovers those of its job. The incidents of
      a job that is deleted are closed; a job that is disabled because it fails keeps them.
    - An outcome can disable or delete its job. It does not if the job has a next tick and either was edited
      after the run was written, or the run was skipped. A job that is deleted is not disabled as well.
    - The precheck of a run changes its job only if the revision of the job is the one that the check saw: an
      edit and each new state raise it. So of two runs at once, the first to end writes its state.
    - The ticks of such a job that have not started are withdrawn; if it is deleted, all its pending runs.
    - A job with `after` fires after each run that ends in that way. The heartbeat of an agent fires once,
      after the first run that wakes it, unless one is waiting. Jobs that the batch ends do not fire.
    """
    special = _special(outcomes)
    if not special and not facts.failures and not facts.followers:
        return Effects([], {}, {}, {}, [], [], {}, [], [])
    failures = dict(facts.failures)
    disabled: dict[str, JobEnd] = {}
    deleted: dict[str, int] = {}
    incidents = IncidentLog(facts.incident_jobs, facts.incidents, incident_id)
    prechecks = _Prechecks(facts.revisions)
    for each in outcomes if failures else special:
        job_id, state = each.job_id, each.state
        if job_id in failures:
            if state == "succeeded":
                failures[job_id] = 0
                incidents.recover_job(each)
            elif state == "failed":
                failures[job_id] += 1
                if each.disable_after is not None and failures[job_id] >= each.disable_after:
                    disabled.setdefault(job_id, JobEnd(each.finished_ms, "failed"))
        if state == "failed":
            incidents.add_failure(each, failures.get(job_id or "", 1))
        if job_id is None:
            continue
        current = each.checked is None or prechecks.apply(job_id, each.checked)
        if _goes_on(each, job_id, facts, current):
            continue
        if each.delete_job:
            deleted.setdefault(job_id, each.finished_ms)
            incidents.close_job(job_id, each.finished_ms, JOB_DELETED)
        elif each.disable_job is not None:
            disabled.setdefault(job_id, JobEnd(each.finished_ms, each.disable_job))
    for job_id in deleted:
        disabled.pop(job_id, None)
    followers = _followers(outcomes, facts) if facts.followers or facts.heartbeats else ()
    return Effects(
        [each for each in special if each.state == "retrying" and each.reason != TAKEN_OVER],
        {job_id: count for job_id, count in failures.items() if count != facts.failures[job_id]},
        disabled,
        deleted,
        [
            *(Withdrawal(job_id, end.at_ms, JOB_DISABLED) for job_id, end in disabled.items()),
            *(Withdrawal(job_id, at_ms, JOB_DELETED, manual=True) for job_id, at_ms in deleted.items()),
        ],
        incidents.changes(),
        usage_by_owner(special, facts.owners, facts.counted) if facts.owners else {},
        [follow_up(each) for each in followers if each.job_id not in disabled and each.job_id not in deleted],
        [(each.run_id, *each.deliver) for each in special if each.deliver is not None],
        prechecks.states,
        {
            each.run_id: parse_usage(each.usage) or Spent()
            for each in special
            if each.run_id in facts.counted and not each.usage_counted
        },
    )


class _Prechecks:
    """Applies what prechecks decided, in the order of the outcomes."""

    def __init__(self, revisions: Mapping[str, int]) -> None:
        self._revisions = revisions
        #: the new states, by job
        self.states: dict[str, PrecheckState] = {}

    def apply(self, job_id: str, checked: Checked) -> bool:
        """Set the state of the job. Returns whether the check is current; else it changes nothing."""
        newer = self.states.get(job_id)
        revision = newer.revision if newer is not None else self._revisions.get(job_id)
        if revision != checked.revision:
            return False
        if checked.sets_state:
            self.states[job_id] = PrecheckState(checked.state, revision + 1)
        return True


def _special(outcomes: Iterable[Finished]) -> list[Finished]:
    """Return the outcomes from which something follows by themselves: all but plain successes."""
    return [each for each in outcomes if not each.is_plain]


def edit_times(written_ms: int, edited_ms: int, now_ms: int) -> tuple[int, int]:
    """Return an entry of `Facts.edits`. An edit of the future, after a wrong clock, came before the run."""
    is_before = written_ms <= now_ms + SKEW_MS < edited_ms
    return written_ms, written_ms if is_before else edited_ms


def _goes_on(outcome: Finished, job_id: str, facts: Facts, current: bool) -> bool:
    """Whether the job outlives a run that would end it. `current`: its precheck may still change the job."""
    if outcome.disable_job == ONCE and not outcome.delete_job:
        return not current
    written_ms, edited_ms = facts.edits.get(outcome.run_id, (0, 0))
    return job_id in facts.has_next and (outcome.state == "skipped" or edited_ms > written_ms)


def _followers(outcomes: Sequence[Finished], facts: Facts) -> list[Follower]:
    """Return the jobs that fire, in the order of the runs they follow; heartbeats come last."""
    position = {each.run_id: number for number, each in enumerate(outcomes)}
    found = []
    for job in sorted(facts.followers, key=lambda job: (position[job.run_id], job.name)):
        run = outcomes[position[job.run_id]]
        if run.state in ("succeeded", "failed") and job.on in (run.state, "finished"):
            upstream = Upstream(job.after, run.run_id, run.state, run.output, run.error)
            found.append(
                Follower(
                    *job[:7], run.finished_ms, "chain", upstream, job.after_depth, job.after_chain_length
                )
            )
    heartbeats: dict[str, Follower] = {}
    for job in sorted(facts.heartbeats, key=lambda job: position[job.run_id]):
        run = outcomes[position[job.run_id]]
        if run.wake_heartbeat and not job.waiting:
            beat = Follower(
                *job[:7], run.finished_ms, "heartbeat", None, job.after_depth, job.after_chain_length
            )
            heartbeats.setdefault(job.job_id, beat)
    return [*found, *heartbeats.values()]
