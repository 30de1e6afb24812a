"""What to do about a failed attempt, in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BY_REASON: Final[Mapping[str, str]] = {
    "timeout": "Raise timeoutMs of the job, or make the target faster.",
    "network": "Check that the address is right and that the receiver runs.",
    "address_refused": "Use a public address, or let the operator set WAKEFUL_ALLOW_PRIVATE_TARGETS.",
    "not_registered": "Start a process that registers this function, or correct its name in the target.",
    "not_allowed": "Let the operator add it to WAKEFUL_COMMANDS or WAKEFUL_CELERY_TASKS.",
    "not_found": "Check the name of the program or of the agent in the target.",
    "exit": "Read the output of the program; it ended with an error.",
    "killed": "The program was killed; check its memory and its timeout.",
    "lost": "The worker died during the run. Check its logs and its memory.",
    "expired": "Start an executor that claims runs of this agent, or raise claimTimeoutMs.",
    "gone": "The receiver answered 410, so the job is paused. Set another URL, then resume the job.",
    "invalid_target": "Correct the target of the job.",
    "secret_unreadable": "Start the server with the WAKEFUL_SECRET_KEY that encrypted the secret.",
    "unverified": "The target reported success, but the verification did not confirm it. Check what it did.",
    "evidence_missing": "Let the target return the evidence that the job requires.",
    "directive_refused": "The directives of the handler could not be stored; the error says why.",
    "unavailable": "The database or a service was not available. The run is tried again.",
    "broker_unavailable": "Check that the broker runs and is reachable from the server.",
    "no_stream": "Create a stream with the subject, or let the operator set WAKEFUL_NATS_CREATE_STREAMS.",
    "too_large": "Send a smaller payload, or raise the limit of the receiver (NATS: max_payload).",
    "workflow_missing": "Add this version of the workflow, or correct workflowId and version.",
    "history_unreadable": "Delete the history of the session, or run the job without continuity.",
    "budget": "Raise the budget, or wait until midnight UTC. Then replay the run.",
    "precheck_failed": "Correct the precheck; the target was not launched.",
}


def failure_advice(reason: str | None, response_code: int | None) -> str | None:
    """Return what to do about a failed attempt; None if there is nothing to add to its error.

    >>> failure_advice("http", 401)
    'The receiver refused the credentials. Check the headers of the target, and the secret that it verifies.'
    >>> failure_advice(None, None) is None
    True
    """
    if response_code is not None and reason in (None, "http"):
        return _of_status(response_code)
    return _BY_REASON.get(reason or "")


def _of_status(code: int) -> str | None:
    if code in (401, 403):
        return (
            "The receiver refused the credentials. Check the headers of the target, and the secret that it "
            "verifies."
        )
    if code in (404, 405):
        return "Check the URL of the target: the receiver has no such path for POST."
    if code == 429:
        return "The receiver limits requests. Run the job less often, or use another lane."
    if 300 <= code < 400:
        return "Redirects are not followed. Set the URL to which it leads."
    if 400 <= code < 500:
        return "The receiver refused the request. Compare the body with what it expects."
    if code >= 500:
        return "The receiver failed. Read its logs; the id of this run is in x-wakeful-run-id."
    return None
