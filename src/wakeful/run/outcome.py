"""What one attempt's outcome means for its run: succeeded, failed, skipped, or tried again, and when. Pure.

A launcher returns an `Outcome`. `conclude` turns it into a `Finished`: the new state of the run, and the
changes of its job. What follows from it for other rows is in `wakeful.run.consequences`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.run.conversations import HistoryAppend, RunOfConversation, history_entries, may_add_history
from wakeful.run.instances import DIRECTIVE_REFUSED, InstanceLimits, ScheduleChange, Send, instance_id
from wakeful.run.prechecks import ONCE, Checked
from wakeful.values.stored_text import clean_json, clean_text

#: The backoff after a failure that does not count. Such a run is retried without limit, so its delay does
#: not depend on the job's policy and grows with the attempt number.
UNCOUNTED: Final = Backoff(base_ms=500, max_ms=60_000)
#: The reason of a run that its precheck skipped.
PRECHECK: Final = "precheck"
#: The reason of a retrying run whose same attempt is launched again: its worker died, and its broker may have
#: accepted the message. Stores do not raise the attempt of such a run.
TAKEN_OVER: Final = "taken_over"


class Handled(NamedTuple):
    """What a handler returned, validated. It is written in the transaction of the outcome, or not at all."""

    workspace: str
    agent: str
    instance: str
    #: the revision of the state that the handler saw
    revision: int
    #: the version of the class that handled the signal
    version: int
    #: the new state as compact JSON; None: unchanged
    data: str | None = None
    #: when each type was handled last, and which keys were seen, as compact JSON; None: unchanged
    memory: str | None = None
    sends: tuple[Send, ...] = ()
    #: the ids of delays that it sets or cancels: those that have not begun end
    delay_ids: tuple[str, ...] = ()
    schedules: tuple[ScheduleChange, ...] = ()
    stop: bool = False
    #: the signals without a recipient, as a compact JSON array
    emitted: str | None = None
    #: why the state cannot be read or migrated: the instance is blocked, and nothing else changes
    block: str | None = None
    #: returns the outcome to write if the directives cannot be stored; `signal_rules` sets its error
    refusal: Callable[[], Finished] | None = None
    #: how many instances may exist: a signal to another one that does not exist would add it
    limits: InstanceLimits = InstanceLimits()
    #: how many jobs in a row an agent made for itself, up to this run: what the handler starts is as deep
    depth: int = 0

    @property
    def instance_id(self) -> str:
        """The id of the instance."""
        return instance_id(self.workspace, self.agent, self.instance)


class Succeeded(NamedTuple):
    """The target did the work."""

    #: what it returned, truncated by `launch.port.kept`
    output: str | None = None
    #: compact JSON of what it used (tokens, cost)
    usage: str | None = None
    #: the status code of the target's response, if it has one
    response_code: int | None = None
    #: of a signal: what its handler returned
    handled: Handled | None = None
    #: compact JSON of the evidence that it reported; '': none, and an earlier attempt may have had some
    evidence: str | None = None
    #: why evidence that it reported could not be read
    evidence_error: str | None = None


class Failed(NamedTuple):
    """The attempt failed."""

    #: an error message for people, truncated by `launch.port.kept`
    error: str
    #: a retry cannot succeed
    permanent: bool = False
    #: the delay that the target requests before the next attempt
    retry_after_ms: int | None = None
    #: the target no longer exists: disable the job
    pause_job: bool = False
    #: a machine-readable reason: `gone`, `address_refused`, `not_registered` …
    reason: str | None = None
    #: compact JSON of what it used despite the failure
    usage: str | None = None
    #: the status code of the target's response, if it has one
    response_code: int | None = None
    #: whether the attempt counts towards `max_attempts`. False if the cause is Wakeful or its deployment: a
    #: function that is not registered in this process, an unreachable database
    counted: bool = True
    #: of a signal whose instance is blocked by this failure: `Handled.block`
    handled: Handled | None = None
    #: compact JSON of the evidence that it reported
    evidence: str | None = None
    #: the beginning of what the target answered nevertheless
    output: str | None = None


_REFUSED: Final = Failed(DIRECTIVE_REFUSED, reason=DIRECTIVE_REFUSED)


class Skipped(NamedTuple):
    """The target was not launched, and nothing is wrong: there was nothing to do, or it was not allowed."""

    #: the reason in a sentence, truncated by `launch.port.kept`
    output: str | None = None
    #: a machine-readable reason: `precheck`, `budget`, `outside_hours`
    reason: str = PRECHECK


class AwaitingCallback(NamedTuple):
    """The target accepted the run and reports its result later (`completion: "callback"`, or a broker)."""

    #: how long to wait for the report, from now; after that the attempt has failed
    timeout_ms: int
    #: the status code of the target's response, if it has one
    response_code: int | None = None


class Verification(NamedTuple):
    """The check of a run that was reported as done, as it is stored with the run."""

    #: compact JSON of the job's `verify`
    verify: str
    #: what a process must have to do it (`start_rules.Requirement`)
    requires: str = ""
    #: when it is due, from now: for `manual`, how long a person has to confirm the run
    delay_ms: int = 0


class AwaitingVerification(NamedTuple):
    """The target did the work by its own account. The run succeeds when that is verified (`verify`)."""

    verification: Verification
    output: str | None = None
    usage: str | None = None
    response_code: int | None = None
    #: as in `Succeeded`
    evidence: str | None = None


Outcome = Succeeded | Failed | AwaitingCallback | AwaitingVerification | Skipped


class Finished(NamedTuple):
    """The end of one attempt. A store writes it only if run, attempt and worker still match."""

    run_id: str
    job_id: str | None
    attempt: int
    #: succeeded, failed, cancelled, skipped, retrying; or running, for a run that awaits its callback or its
    #: verification
    state: str
    started_ms: int
    finished_ms: int
    #: retrying: when the next attempt is due; running: the deadline of the callback; None: it is verified
    due_ms: int | None = None
    output: str | None = None
    error: str | None = None
    reason: str | None = None
    #: compact JSON of what the run used (tokens, cost)
    usage: str | None = None
    #: delete the job; a skipped run does so only if the job has no next tick
    delete_job: bool = False
    #: disable the job for this reason
    disable_job: str | None = None
    #: disable the job after this number of consecutive failed runs
    disable_after: int | None = None
    #: deliver the output to this channel and recipient; None: to those of the agent
    deliver: tuple[str | None, str | None] | None = None
    #: what the precheck of the run changes at its job, of a run that succeeded or was skipped
    checked: Checked | None = None
    #: the evidence to write; '': remove that of an earlier attempt; None: leave it
    evidence: str | None = None
    #: the verification that the run awaits
    verification: Verification | None = None
    #: fire the heartbeat of the run's agent
    wake_heartbeat: bool = False
    #: what it appends to the histories of sessions
    history: tuple[HistoryAppend, ...] = ()
    #: how many failed attempts of the run count towards `max_attempts`, including this one
    failed_attempts: int = 0
    #: the status code of the target's response, if it has one
    response_code: int | None = None
    #: of a signal run: its instance, and what its handler returned
    instance_id: str | None = None
    handled: Handled | None = None
    #: whether the usage was counted before, when the run was reported as done
    usage_counted: bool = False
    #: True: it was lost together with other runs of its worker, and is tried again on its own; False: it was
    #: tried so, and its worker lives; None: neither
    suspect: bool | None = None
    #: of a report from outside: the executor that had claimed the run
    executor: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is a success from which nothing follows but what follows from every success."""
        return self.state == "succeeded" and self[_REQUESTS] == _NO_REQUESTS


# The fields that ask for something beyond the run itself, and their values if they ask for nothing. Comparing
# one slice is several times faster than testing each field.
_REQUESTS: Final = slice(Finished._fields.index("usage"), Finished._fields.index("history") + 1)
_NO_REQUESTS: Final = tuple(Finished._field_defaults[name] for name in Finished._fields[_REQUESTS])


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
    instance_id: str | None = None,
    checked: Checked | None = None,
) -> Finished:
    """Return the row to write for an attempt. `failed_attempts` counts the failed ones before it.

    A success is delivered and fires the heartbeat if the job's `work` requires it, and deletes a job with
    `delete_after_run`. A failure is retried after the backoff, or after the delay that the target requests if
    that is longer, until `max_attempts` have failed or the error is permanent. Then the run has failed, and a
    job with `delete_after_run` is disabled and kept. A failure that does not count is retried after
    `UNCOUNTED`. A skipped run is not a failure: it deletes a job with `delete_after_run` only if the job has
    no next tick, so a precheck can refuse many ticks until one has work to do. What the precheck decided
    (`checked`) goes along with a success and a skipped run. What the handler of a signal returned goes along,
    with the failed attempt that is written if its directives cannot be stored. A run
    that awaits its verification has not ended: what follows from a success follows from the verification.
    """
    if checked is not None and not checked.changes:
        checked = None
    if isinstance(outcome, Succeeded):
        handled = outcome.handled
        if handled is not None:
            refusal = partial(
                conclude, run_id, job_id, attempt, policy, _REFUSED, started_ms, now_ms, work,
                failed_attempts=failed_attempts, instance_id=instance_id,
            )  # fmt: skip
            handled = handled._replace(refusal=refusal)
        return Finished(
            run_id, job_id, attempt, "succeeded", started_ms, now_ms,
            output=outcome.output, usage=outcome.usage, delete_job=policy.delete_after_run,
            deliver=(work.channel, work.to) if work.deliver else None, wake_heartbeat=work.wake_heartbeat,
            failed_attempts=failed_attempts, response_code=outcome.response_code, instance_id=instance_id,
            handled=handled, checked=checked, evidence=outcome.evidence,
            disable_job=ONCE if checked is not None and checked.once else None,
        )  # fmt: skip
    if isinstance(outcome, Skipped):
        return Finished(
            run_id, job_id, attempt, "skipped", started_ms, now_ms,
            output=outcome.output, reason=outcome.reason, delete_job=policy.delete_after_run,
            failed_attempts=failed_attempts, instance_id=instance_id,
            # A retry may be skipped for another reason: then what the check found is found again.
            checked=checked if outcome.reason == PRECHECK else None,
        )  # fmt: skip
    if isinstance(outcome, AwaitingCallback):
        return Finished(
            run_id, job_id, attempt, "running", started_ms, now_ms, due_ms=now_ms + outcome.timeout_ms,
            failed_attempts=failed_attempts, response_code=outcome.response_code, instance_id=instance_id,
        )  # fmt: skip
    if isinstance(outcome, AwaitingVerification):
        return Finished(
            run_id, job_id, attempt, "running", started_ms, now_ms, output=outcome.output,
            usage=outcome.usage, evidence=outcome.evidence, verification=outcome.verification,
            failed_attempts=failed_attempts, response_code=outcome.response_code,
        )  # fmt: skip
    failed_attempts += outcome.counted
    if not outcome.permanent and not (outcome.counted and failed_attempts >= policy.max_attempts):
        backoff_ms = (
            policy.backoff.delay_ms(failed_attempts, run_id)
            if outcome.counted
            else UNCOUNTED.delay_ms(attempt, run_id)
        )
        delay_ms = max(backoff_ms, outcome.retry_after_ms or 0)
        # The reason is always set: it tells the next attempt that the target has been launched before.
        return Finished(
            run_id, job_id, attempt, "retrying", started_ms, now_ms,
            due_ms=now_ms + delay_ms, output=outcome.output, error=outcome.error,
            reason=outcome.reason or "failed",
            usage=outcome.usage, failed_attempts=failed_attempts, response_code=outcome.response_code,
            instance_id=instance_id, handled=outcome.handled, evidence=outcome.evidence,
        )  # fmt: skip
    disable = (
        (outcome.reason or "failed") if outcome.pause_job else "failed" if policy.delete_after_run else None
    )
    return Finished(
        run_id, job_id, attempt, "failed", started_ms, now_ms,
        output=outcome.output, error=outcome.error,
        reason=outcome.reason or ("permanent" if outcome.permanent else None),
        usage=outcome.usage, disable_job=disable, disable_after=policy.disable_after,
        failed_attempts=failed_attempts, response_code=outcome.response_code, instance_id=instance_id,
        evidence=outcome.evidence,
    )  # fmt: skip


def storable(finished: Sequence[Finished]) -> Sequence[Finished]:
    """Return these outcomes with text that can be stored, shown and sent, whatever its source was.

    Characters that cannot be stored are replaced. Usage and evidence that are not JSON are left out.

    >>> outcome = Finished("r1", None, 1, "succeeded", 0, 0, output="a\\x00", usage="{")
    >>> [(each.output, each.usage) for each in storable([outcome])]
    [('a�', None)]
    """
    return [
        _storable(each) if each.output or each.error or each.usage or each.evidence else each
        for each in finished
    ]


def _storable(outcome: Finished) -> Finished:
    output, error, usage = outcome.output, outcome.error, outcome.usage
    return outcome._replace(
        output=output and clean_text(output),
        error=error and clean_text(error),
        usage=None if usage is None else clean_json(usage),
        evidence=outcome.evidence and (clean_json(outcome.evidence) or ""),
    )


def take_over(
    run_id: str,
    job_id: str | None,
    attempt: int,
    error: str,
    started_ms: int,
    now_ms: int,
    failed_attempts: int,
) -> Finished:
    """Return the row of a run whose worker died while it sent the run to a broker.

    The same attempt is launched again at once: the id of its message stays the same, so a broker that has
    the message drops the second one, and reports about it stay valid. It is not a failed attempt. An attempt
    is taken over once: if that launch is lost too, the attempt is lost.
    """
    return Finished(
        run_id, job_id, attempt, "retrying", started_ms, now_ms, due_ms=now_ms, error=error,
        reason=TAKEN_OVER, failed_attempts=failed_attempts,
    )  # fmt: skip


def find_timeout(started_ms: int | None, policy: Policy, now_ms: int) -> Failed | None:
    """Return the failure of an attempt that has run for as long as its policy allows, else None."""
    limit_ms = policy.timeout_ms
    if started_ms is None or limit_ms is None or now_ms - started_ms < limit_ms:
        return None
    return Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout")


def with_history(
    finished: Finished, run: RunOfConversation, job_name: str | None, work: Work, payload: str | None
) -> Finished:
    """Return the outcome with what it appends to histories. `payload` is the stored text of what was sent.

    Every outcome that can be a success goes through here: of a worker, of a report from outside, of a
    verification.
    """
    if finished.state != "succeeded" or not may_add_history(run, work):
        return finished
    said = None if payload is None else json.loads(payload)
    return finished._replace(
        history=history_entries(run, job_name, work, said, finished.output, finished.finished_ms)
    )
