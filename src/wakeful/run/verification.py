"""What a success means for a job with `verify` or `evidence`, and what follows from the check. Pure.

An attempt whose required evidence is missing has failed (`unverified`). With `verify`, a run that was
reported as done stays running until it is verified. The verification is stored with the run, so that another
replica continues it: the target is not launched again.

Evidence shows that the work of a run was done, such as the id of the record that it created. It is a JSON
object. An executor reports it with `complete`, a command writes it to a file, and other targets return it as
fields of their JSON output. The job names the fields that a success must have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.document.guards import MANUAL, timeout_ms
from wakeful.errors import InvalidArgument
from wakeful.job.job import Work
from wakeful.job.policy import Backoff, Policy
from wakeful.job.start_rules import BUDGET, function_requirement
from wakeful.run.outcome import AwaitingVerification, Failed, Finished, Succeeded, Verification, conclude
from wakeful.run.prechecks import check_from_text
from wakeful.values.json_value import Json, compact, json_text

#: The largest evidence, in bytes of compact JSON.
MAX_EVIDENCE: Final = 16 * 1024
#: Names that are read from the output of a job that sets `verify` or `evidence`, besides those it names.
CONVENTIONAL: Final = ("external_id", "result_url", "summary", "artifacts")
_EMPTY: Final[tuple[Json, ...]] = (None, "", [], {})
_EXAMPLE: Final = 'write an object, such as {"external_id": "inv-17"}'
#: The reason of an attempt that was not verified.
UNVERIFIED: Final = "unverified"
#: How often a check is tried that fails itself, as opposed to one that says no. A process that dies in the
#: middle of it counts.
MAX_TRIES: Final = 3
#: How long a verification waits for a process that can do it.
WAIT_MS: Final = 3_600_000
_BACKOFF: Final = Backoff(base_ms=1_000, max_ms=30_000)


class Evidence(NamedTuple):
    """The evidence of an attempt."""

    #: compact JSON; None: there is none
    text: str | None
    #: why it is not sufficient; None: it is
    problem: str | None = None


def read_evidence(text: str | bytes) -> str:
    """Return the text of reported evidence as compact JSON, or raise InvalidArgument.

    >>> read_evidence('{"external_id": "inv-17"}')
    '{"external_id":"inv-17"}'
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"it is not valid JSON; {_EXAMPLE}") from None
    return write_evidence(value)


def write_evidence(value: object) -> str:
    """Return evidence as compact JSON, or raise InvalidArgument if it is not an object, or is too large."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"it is not an object; {_EXAMPLE}")
    return json_text(value, MAX_EVIDENCE)


def collect_evidence(
    names: Sequence[str], output: str | None, reported: str | None, error: str | None = None
) -> Evidence:
    """Return the evidence of a success: what was reported, and else the fields of its JSON output.

    A field that is null or empty is missing. `error` says why what was reported could not be read.

    >>> collect_evidence(["external_id"], '{"external_id": 17, "rows": 3}', None)
    Evidence(text='{"external_id":17}', problem=None)
    >>> collect_evidence(["external_id"], "done", '{"summary":"done"}')
    Evidence(text='{"summary":"done"}', problem="the evidence 'external_id' is missing")
    """
    found = _fields(output, (*names, *CONVENTIONAL)) | evidence_object(reported)
    text = reported
    if found:
        try:
            text = write_evidence(found)
        except InvalidArgument as invalid:  # of the output: what was reported is valid
            found, error = evidence_object(reported), error or invalid.message
    missing = [f"'{name}'" for name in names if found.get(name) in _EMPTY]
    if not missing:
        return Evidence(text)
    why = f": {error}" if error else ""
    are = "is" if len(missing) == 1 else "are"
    return Evidence(text, f"the evidence {', '.join(missing)} {are} missing{why}")


def evidence_object(text: str | None) -> dict[str, Json]:
    """Return stored evidence as an object; empty if there is none.

    >>> evidence_object('{"external_id":17}'), evidence_object(None)
    ({'external_id': 17}, {})
    """
    if not text:
        return {}
    found: dict[str, Json] = json.loads(text)
    return found


def _fields(output: str | None, names: Iterable[str]) -> dict[str, Json]:
    """Return these fields of JSON output, unless they are empty."""
    if output is None or not output.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):  # also output that was cut
        return {}
    return {name: value[name] for name in names if value.get(name) not in _EMPTY}


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


def verified_outcome(verdict: Verdict | Failed, done: Succeeded, tries: int) -> Succeeded | Failed | None:
    """Return the outcome of the attempt after a check; None: the check itself failed, and is tried again.

    >>> verified_outcome(Verdict(False, "HTTP 404"), Succeeded("done"), 1).error
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
        checked=None if precheck is None else check_from_text(precheck),
    )  # fmt: skip
    return finished._replace(usage_counted=True)
