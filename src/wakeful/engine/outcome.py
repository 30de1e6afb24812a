"""What becomes of a run when an attempt at it has ended: pure."""

from __future__ import annotations

from typing import Final

from wakeful.job import NO_WORK, Work
from wakeful.launch.port import AwaitingCallback, Failed, Outcome, Skipped, Succeeded
from wakeful.policy import Backoff, Policy
from wakeful.store.rows import Finished, RunView

#: The wait after a failure that does not count. Such a run is tried again without end, so that its wait
#: does not depend on the job's policy, and grows with the number of the attempt.
UNCOUNTED: Final = Backoff(base_ms=500, max_ms=60_000)


def conclude(
    run_id: str,
    job_id: str | None,
    attempt: int,
    policy: Policy,
    outcome: Outcome,
    started_ms: int,
    now_ms: int,
    work: Work = NO_WORK,
    *,
    failed_attempts: int = 0,
) -> Finished:
    """The row to write for an attempt that ended so. `failed_attempts` is how many failed before it.

    A success is delivered and wakes the heartbeat, where the job's `work` says so, and deletes a job that is
    to be deleted after its run. A failure is tried again by the backoff, or when the target asked for it if
    that is later, until `max_attempts` have failed or trying again will not help; then the run has failed,
    and a job that was to be deleted is disabled and stays. A failure that does not count is tried again after
    a wait of its own. A run that was skipped before its launch is no
    failure: it deletes such a job only if that has no tick to come, so that one may ask again and again until
    there is something to do, and then do it once.
    """
    if isinstance(outcome, Succeeded):
        return Finished(
            run_id, job_id, attempt, "succeeded", started_ms, now_ms,
            output=outcome.output, usage=outcome.usage, delete_job=policy.delete_after_run,
            deliver=(work.channel, work.to) if work.deliver else None, wake_heartbeat=work.wake_heartbeat,
            failed_attempts=failed_attempts, response_code=outcome.response_code,
        )  # fmt: skip
    if isinstance(outcome, Skipped):
        return Finished(
            run_id, job_id, attempt, "skipped", started_ms, now_ms,
            output=outcome.output, reason=outcome.reason, delete_job=policy.delete_after_run,
            failed_attempts=failed_attempts,
        )  # fmt: skip
    if isinstance(outcome, AwaitingCallback):
        wait_ms = outcome.timeout_ms or policy.timeout_ms or 600_000
        return Finished(
            run_id, job_id, attempt, "running", started_ms, now_ms, due_ms=now_ms + wait_ms,
            failed_attempts=failed_attempts, response_code=outcome.response_code,
        )  # fmt: skip
    failed_attempts += outcome.counted
    if not outcome.permanent and not (outcome.counted and failed_attempts >= policy.max_attempts):
        backoff_ms = (
            policy.backoff.delay_ms(failed_attempts, run_id)
            if outcome.counted
            else UNCOUNTED.delay_ms(attempt, run_id)
        )
        wait_ms = max(backoff_ms, outcome.retry_after_ms or 0)
        # There is a reason in any case: by it the next attempt knows that the target has been launched.
        return Finished(
            run_id, job_id, attempt, "retrying", started_ms, now_ms,
            due_ms=now_ms + wait_ms, error=outcome.error, reason=outcome.reason or "failed",
            usage=outcome.usage, failed_attempts=failed_attempts, response_code=outcome.response_code,
        )  # fmt: skip
    disable = (
        (outcome.reason or "failed") if outcome.pause_job else "failed" if policy.delete_after_run else None
    )
    return Finished(
        run_id, job_id, attempt, "failed", started_ms, now_ms,
        error=outcome.error, reason=outcome.reason or ("permanent" if outcome.permanent else None),
        usage=outcome.usage, disable_job=disable, disable_after=policy.disable_after,
        failed_attempts=failed_attempts, response_code=outcome.response_code,
    )  # fmt: skip


def overrun(run: RunView, policy: Policy, now_ms: int) -> Finished | None:
    """The row to write for a claimed run that has had all the time its job gives an attempt; else None.

    Whoever claimed it keeps it for as long as the heart beats, so the beat is when to ask.
    """
    outcome = timed_out(run.started_ms, policy, now_ms)
    if outcome is None:
        return None
    return conclude(
        run.id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms,
        failed_attempts=run.failed_attempts,
    )  # fmt: skip


def timed_out(started_ms: int | None, policy: Policy, now_ms: int) -> Failed | None:
    """The failure of an attempt that started then and has had all the time of its policy; else None."""
    limit_ms = policy.timeout_ms
    if started_ms is None or limit_ms is None or now_ms - started_ms < limit_ms:
        return None
    return Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout")


def lost(reason: str) -> Failed:
    """What an attempt comes to whose worker died, or that nobody completed."""
    return Failed(reason, reason="lost")
