"""What a success means for a job with `verify` or `evidence`, and what follows from the check. Pure.

An attempt whose required evidence is missing has failed (`unverified`). With `verify`, a run that was
reported as done stays running until it is verified. The verification is stored with the run, so that another
replica continues it: the target is not launched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.document.values import compact
from wakeful.document.verification import MANUAL, timeout_ms
from wakeful.job.capabilities import function_requirement
from wakeful.job.job import Json, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.job.start_rules import BUDGET
from wakeful.run.evidence import collect_evidence
from wakeful.run.outcome import AwaitingVerification, Failed, Finished, Succeeded, Verification, conclude
from wakeful.run.prechecks import checked_from_text

#: The reason of an attempt that was not verified.
UNVERIFIED: Final = "unverified"
#: How often a check is tried that fails itself, as opposed to one that says no. A process that dies in the
#: middle of it counts.
MAX_TRIES: Final = 3
#: How long a verification waits for a process that can do it.
WAIT_MS: Final = 3_600_000
_BACKOFF: Final = Backoff(base_ms=1_000, max_ms=30_000)


class Verdict(NamedTuple):
    """The result of a check: whether the work was done."""

    verified: bool
    reason: str = ""


def judge_success(work: Work, done: Succeeded) -> Succeeded | Failed | AwaitingVerification:
    """Return the outcome of an attempt that was reported as done.

    >>> judge_success(Work(evidence=("external_id",)), Succeeded("done")).reason
    'unverified'
    >>> judge_success(Work(), Succeeded("done"))
    Succeeded(output='done', usage=None, response_code=None, handled=None, evidence=None, evidence_error=None)
    """
    if work.verify is None and not work.evidence:
        return done
    text, problem = collect_evidence(work.evidence, done.output, done.evidence, done.evidence_error)
    if problem is not None:
        return Failed(
            problem,
            reason=UNVERIFIED,
            usage=done.usage,
            response_code=done.response_code,
            evidence=text,
        )
    done = done._replace(evidence=text or "")
    if work.verify is None or done.handled is not None:
        return done
    return AwaitingVerification(
        _verification(work.verify), done.output, done.usage, done.response_code, done.evidence
    )


def _verification(verify: Mapping[str, Json]) -> Verification:
    kind = verify.get("kind")
    name = verify.get("name")
    requires = function_requirement(name) if kind == "function" and isinstance(name, str) else ""
    return Verification(compact(dict(verify)), requires, timeout_ms(verify) if kind == MANUAL else 0)


def outcome_of(verdict: Verdict | Failed, done: Succeeded, tries: int) -> Succeeded | Failed | None:
    """Return the outcome of the attempt after a check; None: the check itself failed, and is tried again.

    >>> outcome_of(Verdict(False, "HTTP 404"), Succeeded("done"), 1).error
    'not verified: HTTP 404'
    """
    if isinstance(verdict, Verdict) and verdict.verified:
        return done
    if isinstance(verdict, Failed):
        if verdict.reason == BUDGET:
            return verdict._replace(usage=done.usage, response_code=done.response_code)
        if not verdict.permanent and tries < MAX_TRIES:
            return None
        error, permanent = f"verify: {verdict.error}", verdict.permanent
    else:
        error, permanent = "not verified", False
        if verdict.reason:
            error = f"{error}: {verdict.reason}"
    return Failed(
        error, permanent=permanent, reason=UNVERIFIED, usage=done.usage, response_code=done.response_code
    )


def retry_ms(tries: int, run_id: str) -> int:
    """Return the delay before a check that failed itself is tried again."""
    return _BACKOFF.delay_ms(tries, run_id)


def conclude_verified(
    run_id: str,
    job_id: str | None,
    attempt: int,
    policy: Policy,
    outcome: Succeeded | Failed,
    started_ms: int,
    now_ms: int,
    work: Work,
    failed_attempts: int,
    precheck: str | None,
) -> Finished:
    """Return the end of an attempt after its verification. Its usage was counted when it was reported.

    `precheck` is what the precheck of the run decided, as it is stored.
    """
    finished = conclude(
        run_id, job_id, attempt, policy, outcome, started_ms, now_ms, work,
        failed_attempts=failed_attempts,
        checked=None if precheck is None else checked_from_text(precheck),
    )  # fmt: skip
    return finished._replace(usage_counted=True)
