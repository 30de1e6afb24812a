"""Creates the runs to insert: for ticks, for requests, and for jobs that follow another. Pure."""

from __future__ import annotations

import hashlib
from typing import Protocol

from wakeful.document import policy_from_text, work_from_text
from wakeful.errors import Unavailable
from wakeful.job.job import HEARTBEAT_JOB, MAX_CHAIN, WAKE_JOB, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.job.start_rules import NOTHING, Requirement, agent_requirement, find_requirement, may_start
from wakeful.run.instances import HEARTBEAT_SIGNAL, JOB_SIGNAL, WAKE_SIGNAL, instance_id
from wakeful.run.planning import Becomes, TickVerdict
from wakeful.run.run import Follower, NewRun, RunDetails, TriggerName, Upstream, tick_key
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import clean_text


class JobIdentity(Protocol):
    """What a run copies from its job."""

    @property
    def id(self) -> str:
        """The job's id."""
        ...

    @property
    def workspace(self) -> str:
        """The job's workspace."""
        ...

    @property
    def agent(self) -> str:
        """The job's agent."""
        ...

    @property
    def name(self) -> str:
        """The job's name."""
        ...


def claim_timeout_ms(work: Work, policy: Policy) -> int | None:
    """Return how long a pull run waits for an executor: as the target says, else the job.

    None for a run that a worker takes.
    """
    if not work.pulled:
        return None
    target = work.target or {}
    own = target.get("claimTimeoutMs") if target.get("kind") == "pull" else None
    return own if isinstance(own, int) else policy.claim_timeout_ms


def tick_run(
    job: JobIdentity,
    policy: Policy,
    work: Work,
    verdict: TickVerdict,
    now_ms: int,
    worker: str | None,
) -> NewRun:
    """Return the run of a tick: running under `worker` if that is given, else as the verdict says.

    The tick of an agent class is a signal, and never starts at once: it waits in the mailbox of its instance.
    """
    tick, fire, becomes, reason, covers, until, _ = verdict
    over = becomes is Becomes.SKIPPED or becomes is Becomes.MISSED
    # By position: keyword arguments take four times as long, and a storm creates 100,000 runs.
    run = NewRun(
        new_id(now_ms),
        job.id,
        job.workspace,
        job.agent,
        job.name,
        tick,
        fire,
        "schedule",
        None,
        "running" if worker else becomes.value if over else "pending",
        reason,
        covers,
        until,
        0 if over else 1,
        worker,
        work.lane,
        policy.overlap != "allow",
        None if over or worker else fire,
        max(now_ms, fire) if worker else None,
        now_ms if over else None,
        tick_key(job.id, tick),
        None,
        None,
        None if worker else claim_timeout_ms(work, policy),
        *find_requirement(work, job.workspace, job.agent),
    )
    if work.depth:
        run = run._replace(details=run_details(work))
    if worker or work.instance is None:
        return run
    return signal_of_job(run, work, job_signal(job.name))


def manual_run(
    *,
    job_id: str | None,
    workspace: str,
    agent: str,
    job_name: str | None,
    lane: str,
    trigger: TriggerName,
    now_ms: int,
    scheduled_ms: int | None = None,
    triggered_by: str | None = None,
    serial: bool = False,
    payload: str | None = None,
    claim_ms: int | None = None,
    requirement: Requirement = NOTHING,
    details: RunDetails | None = None,
) -> NewRun:
    """Return a run that is no tick: due now, with a key of its own.

    `claim_ms` is how long a pull run waits for an executor (`claim_timeout_ms`), `requirement` what a process
    must have to take it (`find_requirement`).
    """
    run_id = new_id(now_ms)
    return NewRun(
        id=run_id,
        job_id=job_id,
        workspace=workspace,
        agent=agent,
        job_name=job_name,
        scheduled_ms=now_ms if scheduled_ms is None else scheduled_ms,
        fire_ms=now_ms,
        trigger=trigger,
        triggered_by=triggered_by,
        state="pending",
        reason=None,
        covers=1,
        until_ms=None,
        attempt=1,
        worker=None,
        lane=lane,
        serial=serial,
        due_ms=now_ms,
        started_ms=None,
        finished_ms=None,
        idempotency_key=hashlib.sha256(f"{job_id or agent}:{run_id}".encode()).hexdigest(),
        replay_of=None,
        payload=payload,
        claim_timeout_ms=claim_ms,
        requires=requirement.name,
        requires_version=requirement.version,
        details=details,
    )


def run_details(work: Work) -> RunDetails | None:
    """Return the details that a run has from its job.

    >>> run_details(Work(depth=2))
    RunDetails(session=None, depth=2, context=None, chain_length=0)
    """
    return RunDetails(depth=work.depth) if work.depth else None


def follow_up_run(follower: Follower) -> NewRun:
    """Return the run of a job that fires after another job's run, or of a heartbeat that a run wakes.

    A job that cannot be read gets a run too, which fails when it is taken: the outcome that fires it, and
    those that are written with it, are written in any case. A pull run that may not start is skipped at once:
    executors may not be running, so a later check could come too late. A run beyond `MAX_CHAIN` follow-up
    runs in a row is skipped: jobs that fire each other end there.
    """
    try:
        policy, work = policy_from_text(follower.policy), work_from_text(follower.work)
        return _follow_up_run(follower, policy, work, claim_timeout_ms(work, policy))
    except Exception:
        return _follow_up_run(follower, DEFAULT_POLICY, Work(), None)


def _follow_up_run(follower: Follower, policy: Policy, work: Work, claim_ms: int | None) -> NewRun:
    run = manual_run(
        job_id=follower.job_id,
        workspace=follower.workspace,
        agent=follower.agent,
        job_name=follower.name,
        lane=work.lane,
        trigger=follower.trigger,
        now_ms=follower.after_finished_ms,
        triggered_by=follower.after_run_id,
        serial=policy.overlap != "allow",
        claim_ms=claim_ms,
        requirement=find_requirement(work, follower.workspace, follower.agent),
        details=RunDetails(
            depth=max(work.depth, follower.after_depth), chain_length=follower.after_chain_length + 1
        ),
    )
    if follower.after_chain_length >= MAX_CHAIN:
        return as_skipped(run, "chain_limit", run.fire_ms)
    if work.after_output and follower.upstream is not None:
        context = upstream_context(follower.upstream)
        run = run._replace(details=(run.details or RunDetails())._replace(context=context))
    if not run.is_pull:
        return signal_of_job(run, work, job_signal(follower.name))
    try:
        decision = may_start(run.trigger, run.attempt, work, run.fire_ms, None)
    except Unavailable:  # the time zone cannot be read now: a claim checks it again
        return run
    return run if decision else as_skipped(run, str(decision.reason), run.fire_ms)


def upstream_context(upstream: Upstream) -> str:
    """Return the context of a follow-up run, as compact JSON.

    >>> upstream_context(Upstream("extract", "0190a0b0", "succeeded", "12 rows", None))
    '{"upstream":{"job":"extract","run":"0190a0b0","state":"succeeded","output":"12 rows"}}'
    """
    found: dict[str, Json] = {
        "job": upstream.job,
        "run": upstream.run,
        "state": upstream.state,
        "output": None if upstream.output is None else clean_text(upstream.output),
    }
    if upstream.error is not None:
        found["error"] = clean_text(upstream.error)
    return compact({"upstream": found})


def as_skipped(run: NewRun, reason: str, now_ms: int) -> NewRun:
    """Return the run as one that is skipped before its first attempt."""
    return run._replace(state="skipped", reason=reason, attempt=0, due_ms=None, finished_ms=now_ms)


def job_signal(job_name: str | None) -> str:
    """Return the type of the signals that runs of a job become, unless its target names one.

    >>> job_signal("digest"), job_signal("heartbeat")
    ('wakeful.job', 'wakeful.heartbeat')
    """
    if job_name == HEARTBEAT_JOB:
        return HEARTBEAT_SIGNAL
    return WAKE_SIGNAL if job_name == WAKE_JOB else JOB_SIGNAL


def signal_of_job(run: NewRun, work: Work, signal_type: str = JOB_SIGNAL) -> NewRun:
    """Return the run of a job, wake or message as a signal, if its target is an agent class; else the run.

    The type of the signal is in the target, else `signal_type`. A pending run is hidden in the mailbox of its
    instance until it is its turn.
    """
    instance = work.instance
    if instance is None:
        return run
    return as_instance_signal(run, instance, target_signal(work) or signal_type)


def target_signal(work: Work) -> str | None:
    """Return the type of signals that the target of a job names.

    >>> target_signal(Work({"kind": "agent", "signal": "report.generate"}))
    'report.generate'
    """
    own = work.target.get("signal") if work.target else None
    return own if isinstance(own, str) and own else None


def as_instance_signal(run: NewRun, instance: str, signal_type: str) -> NewRun:
    """Return the run as a signal to an instance of its agent."""
    return run._replace(
        serial=False,
        due_ms=None,
        requires=agent_requirement(run.workspace, run.agent),
        instance_id=instance_id(run.workspace, run.agent, instance),
        instance=instance,
        signal=signal_type,
    )
