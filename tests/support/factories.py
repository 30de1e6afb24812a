"""Rows for store tests: complete defaults, of which a test overrides only what it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wakeful.run.consequences import Consequences, consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import Follower, NewRun, tick_key
from wakeful.store.accounts import AgentRow, WorkspaceRow
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, RunFilter, RunView, TakenRun
from wakeful.values.ids import new_id

#: Friday, 15 January 2027, 08:00 UTC
NOW = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


class FalseClock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


def job(name: str = "digest", **fields: Any) -> JobRow:
    """Return a job that is due now."""
    row = JobRow(
        id=new_id(NOW),
        workspace="default",
        agent="default",
        name=name,
        timing='{"kind":"every","everyMs":86400000}',
        policy='{"overlap":"queue"}',
        work='{"target":{"kind":"function","name":"digest"}}',
        payload=None,
        after_job=None,
        after_on=None,
        description="",
        labels="{}",
        secret=None,
        old_secret=None,
        old_secret_until_ms=None,
        enabled=True,
        disabled_reason=None,
        anchor_ms=NOW,
        next_ms=NOW,
        wake_ms=NOW,
        run_count=0,
        failures=0,
        version=1,
        created_ms=NOW - DAY,
        updated_ms=NOW - DAY,
    )
    return row._replace(**fields)


def asleep(name: str = "digest", **fields: Any) -> JobRow:
    """Return a job that is due in a day."""
    return job(name, **{"next_ms": NOW + DAY, "wake_ms": NOW + DAY, **fields})


def tick(of: JobRow | DueJob, at: int = NOW, **fields: Any) -> NewRun:
    """Return the pending run of a tick."""
    row = NewRun(
        id=new_id(NOW),
        job_id=of.id,
        workspace=of.workspace,
        agent=of.agent,
        job_name=of.name,
        scheduled_ms=at,
        fire_ms=at,
        trigger="schedule",
        triggered_by=None,
        state="pending",
        reason=None,
        covers=1,
        until_ms=None,
        attempt=1,
        worker=None,
        lane="cron",
        serial=True,
        due_ms=at,
        started_ms=None,
        finished_ms=None,
        idempotency_key=tick_key(of.id, at),
        replay_of=None,
        payload=None,
    )
    return row._replace(**fields)


def asked(of: JobRow, at: int = NOW, **fields: Any) -> NewRun:
    """Return a pending manual run."""
    return tick(of, at, **{"trigger": "user", "triggered_by": "ada", **fields})


def jobless(**fields: Any) -> NewRun:
    """Return a run that wakes an agent without a job."""
    return asked(job(), **{"job_id": None, "job_name": None, "payload": '{"message":"hello"}', **fields})


def held(run: NewRun, worker: str = "w1", since: int = NOW) -> NewRun:
    """Return the run as running under a worker."""
    return run._replace(state="running", worker=worker, due_ms=None, started_ms=since)


def over(run: NewRun, state: str = "succeeded", at: int = NOW) -> NewRun:
    """Return the run as finished."""
    return run._replace(state=state, due_ms=None, finished_ms=at)


def plan_of(of: DueJob, *runs: NewRun, **fields: Any) -> JobPlan:
    """Return a plan that creates these runs, with the next tick a day later."""
    row = JobPlan(
        job_id=of.id,
        next_ms=of.next_ms + DAY,
        wake_ms=of.next_ms + DAY,
        run_count=of.run_count + len(runs),
        enabled=True,
        disabled_reason=None,
        runs=runs,
    )
    return row._replace(**fields)


def fire(of: DueJob) -> JobPlan:
    """Return a plan that makes the due tick a pending run."""
    return plan_of(of, tick(of, of.next_ms))


def start(worker: str) -> Callable[[DueJob], JobPlan]:
    """Return a rule that makes the due tick a running run of this worker."""
    return lambda due: plan_of(due, held(tick(due, due.next_ms), worker))


def ended(run: NewRun | RunView | TakenRun, state: str = "succeeded", **fields: Any) -> Finished:
    """Return the outcome of the run's attempt, a second after its start."""
    row = Finished(run.id, run.job_id, run.attempt, state, NOW, NOW + SECOND)
    return row._replace(**fields)


def rules(follow_up: Callable[[Follower], NewRun]) -> Consequences:
    """Return the rule for outcomes, with follow-up runs created by this function."""
    return lambda outcomes, facts: consequences(outcomes, facts, follow_up)


def _no_follow_up(follower: Follower) -> NewRun:
    raise AssertionError(f"no job fires in this test, but {follower} does")


#: The rule for outcomes, for tests in which no job fires after a run.
alone = rules(_no_follow_up)


async def given_job(store: Store, name: str = "digest", *runs: Callable[[DueJob], NewRun]) -> JobRow:
    """Store a job with these runs, due again in a day."""
    row = job(name)
    await store.create_jobs([row])
    await store.plan(
        NOW, 1000, lambda due: plan_of(due, *[make(due) for make in runs]) if due.id == row.id else None
    )
    found = await store.job_by_id(row.id)
    assert found is not None
    return found


async def given_held(store: Store, worker: str = "w1", name: str = "digest") -> tuple[JobRow, RunView]:
    """Store a job with a tick that is running under a worker."""
    row = await given_job(store, name, lambda due: held(tick(due), worker))
    (run,) = await ticks_of(store, row)
    return row, run


#: The alert settings of `given_alerts`.
SAYS = '{"url":"https://a.example"}'


async def given_alerts(store: Store, *, agent: str | None = None, workspace: str | None = None) -> None:
    await store.put_workspace(WorkspaceRow("default", None, "", NOW, NOW, alerts=workspace))

    def put(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(alerts=agent)

    await store.put_agent("default", "default", put)


async def ticks_of(store: Store, of: JobRow) -> list[RunView]:
    """Return the job's runs, oldest first."""
    return (await store.runs(RunFilter(of.workspace, job_id=of.id, limit=10_000)))[::-1]


async def look(store: Store, run: NewRun | RunView | TakenRun | str) -> RunView:
    """Return the current run."""
    found = await store.run(run if isinstance(run, str) else run.id)
    assert found is not None
    return found


async def look_at_job(store: Store, of: JobRow) -> JobRow:
    """Return the current job."""
    found = await store.job_by_id(of.id)
    assert found is not None
    return found
