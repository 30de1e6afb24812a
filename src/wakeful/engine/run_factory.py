"""How runs are born: the rows for ticks, for what people trigger, and for what follows another run. Pure."""

from __future__ import annotations

import contextlib
import hashlib

from wakeful.document import policy_from_text, work_from_text
from wakeful.engine.active_hours import OUTSIDE_HOURS, closed
from wakeful.errors import InvalidArgument
from wakeful.ids import new_id
from wakeful.job import Work
from wakeful.planning import Becomes, Verdict
from wakeful.policy import DEFAULT_POLICY, Policy
from wakeful.run import TriggerName, tick_key
from wakeful.store.port import is_pull_lane, pull_lane
from wakeful.store.rows import DueJob, Follower, JobRow, RunRow


def lane_of(work: Work) -> str:
    """The lane its runs take a place in; those that somebody else executes take none of ours."""
    return pull_lane(work.lane) if work.pulled else work.lane


def claim_timeout_ms(work: Work, policy: Policy) -> int:
    """How long its runs wait to be claimed: as its target says, else the job."""
    target = work.target or {}
    own = target.get("claimTimeoutMs") if target.get("kind") == "pull" else None
    return own if isinstance(own, int) else policy.claim_timeout_ms


def claim_deadline(lane: str, due_ms: int, claim_ms: int = DEFAULT_POLICY.claim_timeout_ms) -> int | None:
    """Until when a run of this lane waits to be claimed; None where a worker takes it, whenever that is."""
    return due_ms + claim_ms if is_pull_lane(lane) else None


def tick_run(
    job: DueJob | JobRow,
    policy: Policy,
    lane: str,
    verdict: Verdict,
    now_ms: int,
    worker: str | None,
    claim_ms: int = DEFAULT_POLICY.claim_timeout_ms,
) -> RunRow:
    """The run of a tick: running under `worker` where one is given, else as its verdict says.

    One that is to be claimed waits for that no longer than `claim_ms`.
    """
    tick, fire, becomes, reason, covers, until, _ = verdict
    over = becomes is Becomes.SKIPPED or becomes is Becomes.MISSED
    if not over:
        until = claim_deadline(lane, fire, claim_ms)
    # By position, since a storm bears a hundred thousand of them: names would take four times as long.
    return RunRow(
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
        lane,
        policy.overlap != "allow",
        None if over or worker else fire,
        max(now_ms, fire) if worker else None,
        now_ms if over else None,
        tick_key(job.id, tick),
        None,
        None,
    )


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
    claim_ms: int = DEFAULT_POLICY.claim_timeout_ms,
) -> RunRow:
    """A run that is no tick: due now, with a key of its own. For `claim_ms`, see `tick_run`."""
    run_id = new_id(now_ms)
    return RunRow(
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
        until_ms=claim_deadline(lane, now_ms, claim_ms),
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
    )


def follow_up_run(follower: Follower) -> RunRow:
    """The run of a job that fires after another's, or of the heartbeat that another wakes.

    One that cannot be read gets its run too, and whoever takes it says so: the run before is written all the
    same. One that executors would claim, outside the hours of its job, is skipped from the start: nobody may
    be awake who would find out.
    """
    work, policy, lane = Work(), DEFAULT_POLICY, Work().lane
    with contextlib.suppress(InvalidArgument):
        policy = policy_from_text(follower.policy)
        work = work_from_text(follower.work)
        lane = lane_of(work)
    run = manual_run(
        job_id=follower.job_id,
        workspace=follower.workspace,
        agent=follower.agent,
        job_name=follower.name,
        lane=lane,
        trigger=follower.trigger,
        now_ms=follower.after_finished_ms,
        triggered_by=follower.after_run_id,
        serial=policy.overlap != "allow",
        claim_ms=claim_timeout_ms(work, policy),
    )
    if not is_pull_lane(lane) or closed(work, run.trigger, run.attempt, run.fire_ms) is None:
        return run
    return run._replace(
        state="skipped", reason=OUTSIDE_HOURS, attempt=0, until_ms=None, due_ms=None, finished_ms=run.fire_ms
    )
