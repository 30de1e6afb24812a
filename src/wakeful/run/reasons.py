"""The machine-readable reasons of runs, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Why a run did not succeed. Another reason is shown as it is, with spaces.
REASONS: Final[Mapping[str, str]] = {
    # A tick or a run that did not start.
    "overlap": "another run was running (overlapPolicy skip)",
    "queue_full": "too many runs were waiting (maxQueued)",
    "asked": "the tick was skipped on request",
    "precheck": "the precheck found nothing to do",
    "budget": "a budget was used up",
    "outside_hours": "outside the active hours",
    "chain_limit": "it would be run 101 of a chain, each fired by the one before",
    "replaced": "replaced by a newer run",
    "superseded": "superseded by a newer run",
    "downtime": "no server was running, and the job does not catch up",
    "too_old": "older than the catch-up window",
    "newer_tick_runs": "the job catches up with the latest tick only",
    "edited": "the job was edited",
    "paused": "the job was paused",
    "deleted": "the job was deleted",
    "job_disabled": "the job was disabled",
    "job_deleted": "the job was deleted",
    "stopped": "stopped on request",
    "cancelled": "cancelled on request",
    "expired": "no executor claimed it in time",
    # An attempt that failed.
    "http": "the target answered with an error status",
    "network": "the target could not be reached",
    "timeout": "it took too long",
    "lost": "its worker died",
    "gone": "the target no longer exists (410)",
    "permanent": "the target reported a permanent error",
    "failed": "the target reported an error",
    "exit": "the program ended with an error",
    "killed": "the program was killed",
    "not_started": "the program could not be started",
    "not_allowed": "the operator does not allow this program or task",
    "not_found": "the target does not exist",
    "not_registered": "no process has the function",
    "not_delivered": "the output could not be delivered",
    "busy": "other messages wait for the service of its channel",
    "invalid_target": "the target is not valid",
    "target_changed": "the target was changed while the run waited",
    "address_refused": "the address of the target is not allowed",
    "bad_response": "the target answered in a form that cannot be read",
    "secret_unreadable": "the secret of the job cannot be decrypted",
    "unreadable": "the stored run cannot be read",
    "unstorable": "the outcome could not be stored",
    "unavailable": "the database or a service was not available",
    "disconnected": "the executor disconnected before it got the run",
    "broker": "the broker refused the message",
    "broker_unavailable": "the broker could not be reached",
    "no_stream": "no stream of the broker has the subject",
    "too_large": "the message is too large for its receiver",
    "taken_over": "its worker died while it sent the run, which is sent again",
    "unknown": "the outcome is not known",
    "workflow_missing": "this version of the workflow does not exist",
    "workflow_unreadable": "the workflow cannot be read",
    "history_unreadable": "the history of the session cannot be read",
    "precheck_failed": "the precheck failed",
    "unverified": "the work was not verified",
    "evidence_missing": "the required evidence is missing",
    "directive_refused": "a directive of the handler was refused",
    "context_length": "the conversation is too long for the model",
    "empty_answer": "the model returned an empty answer",
    "refused": "the model refused to answer",
    "content_filter": "a content filter stopped the answer",
    "answer_length": "the answer was cut at its greatest length",
    "max_steps": "too many rounds of tool calls",
    "chat_key": "the key of the model's service is missing or not accepted",
}


def reason_text(reason: str | None, response_code: int | None = None) -> str:
    """Return a reason in words; with the status of the response, if that is the reason.

    >>> reason_text("http"), reason_text("http", 503)
    ('the target answered with an error status', 'the target answered with status 503')
    >>> reason_text("overlap"), reason_text("other_cause"), reason_text(None)
    ('another run was running (overlapPolicy skip)', 'other cause', '')
    """
    if reason is None:
        return ""
    if reason == "http" and response_code is not None:
        return f"the target answered with status {response_code}"
    return REASONS.get(reason, reason.replace("_", " "))
