"""The run: its states and transitions, its reasons in words, new runs, and idempotency keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from wakeful.errors import FailedPrecondition

TriggerName = Literal[
    "schedule",
    "user",
    "agent",
    "signal",
    "replay",
    "backfill",
    "chain",
    "heartbeat",
    "alert",
    "hook",
    "event",
]
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
    "subscription_ended": "its subscription ended",
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
    "not_started": "the program or function could not be started",
    "not_allowed": "the operator does not allow this program or task",
    "not_found": "the target does not exist",
    "not_registered": "no process has the function",
    "arguments": "the payload does not have the arguments of the function",
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
    "delay_replaced": "another delay with the same id replaced it",
    "delay_cancelled": "its instance cancelled the delay",
    "instance_deleted": "its instance was deleted",
    "context_length": "the conversation is too long for the model",
    "empty_answer": "the model returned an empty answer",
    "refused": "the model refused to answer",
    "content_filter": "a content filter stopped the answer",
    "answer_length": "the answer was cut at its greatest length",
    "max_steps": "too many rounds of tool calls",
    "event_gap": "events of its MCP server were lost",
    "event_ended": "its MCP server ended the subscription",
    "event_refused": "its MCP server does not accept the subscription",
    "chat_key": "the key of the model's service is missing or not accepted",
}


class RunState(StrEnum):
    """The state of a run. A terminal state never changes."""

    #: it waits for its time, a slot, or an executor
    PENDING = "pending"
    #: it was launched, and its outcome is not known yet
    RUNNING = "running"
    #: an attempt failed, and it is tried again
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    #: its last attempt failed, or nobody claimed it in time
    FAILED = "failed"
    #: a person, an edit or a newer run stopped it
    CANCELLED = "cancelled"
    #: its target was not launched: overlap, precheck, budget or active hours
    SKIPPED = "skipped"
    #: its tick passed while nothing could start it
    MISSED = "missed"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return not MOVES[self]

    def move(self, to: RunState) -> RunState:
        """Return `to` if the transition is allowed; raise FailedPrecondition otherwise.

        >>> RunState.PENDING.move(RunState.RUNNING)
        <RunState.RUNNING: 'running'>
        """
        if to not in MOVES[self]:
            allowed = " or ".join(sorted(MOVES[self])) or "nothing: it has ended"
            raise FailedPrecondition(f"a {self} run cannot become {to}; it can become {allowed}")
        return to


#: Runs that were reported as done and whose work is being verified: a filter of lists, beside the states.
#: Such a run is `running`, and `verifying` says so too.
VERIFYING_STATE: Final = "verifying"
#: The states by which lists of runs are filtered.
LISTED_STATES: Final[tuple[str, ...]] = (*(state.value for state in RunState), VERIFYING_STATE)

#: The allowed transitions. A pending run fails if it is not claimed in time, and is cancelled if a newer one
#: supersedes it. A running one is skipped if its target is not launched: there is nothing to do (`precheck`),
#: its budget is used up, or it is outside its active hours.
MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.PENDING: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.RUNNING: frozenset(
        {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.RETRYING, RunState.SKIPPED}
    ),
    RunState.RETRYING: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
    RunState.SKIPPED: frozenset(),
    RunState.MISSED: frozenset(),
}


class RunDetails(NamedTuple):
    """What few runs have. It is written after the insert, so that other inserts stay small."""

    #: the session of a turn
    session: str | None = None
    #: how many jobs in a row an agent made for itself, up to the job of this run
    depth: int = 0
    #: compact JSON of what is added to the payload
    context: str | None = None
    #: how many follow-up runs in a row, each caused by the end of the one before, led to this run
    chain_length: int = 0


class NewRun(NamedTuple):
    """A run to insert: only the columns that an insert sets, since a storm builds 100,000."""

    id: str
    #: None for a signal that was sent
    job_id: str | None
    workspace: str
    agent: str
    job_name: str | None
    #: the tick; for a run that is no tick, the time of the request
    scheduled_ms: int
    #: when it may start; jitter and catch-up make it differ from `scheduled_ms`
    fire_ms: int
    trigger: str
    triggered_by: str | None
    state: str
    reason: str | None
    #: how many ticks a missed run stands for, from `scheduled_ms` to `until_ms`
    covers: int
    #: of a missed run, its last tick
    until_ms: int | None
    attempt: int
    #: the worker of a run that is inserted as running
    worker: str | None
    lane: str
    #: whether it waits until no other run of its job is live (every overlap policy but `allow`)
    serial: bool
    #: when it may be taken: set while pending or retrying, None otherwise
    due_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    idempotency_key: str
    replay_of: str | None
    #: its own payload where it is not the job's, as compact JSON
    payload: str | None
    #: of a pull run, how long it waits for an executor each time it is due; None: a worker takes the run
    claim_timeout_ms: int | None = None
    #: what a process must have to take it (`start_rules.Requirement`): a name, '' for nothing, and the
    #: lowest version of it
    requires: str = ""
    requires_version: int = 0
    #: the instance of an agent class that handles the run (`wakeful.run.instances`), its name, and the type
    #: of the signal
    instance_id: str | None = None
    instance: str | None = None
    signal: str | None = None
    #: not a column
    details: RunDetails | None = None

    @property
    def column_values(self) -> tuple[object, ...]:
        """The values to insert, in the order of the fields: all but the details."""
        return self[:-1]

    @property
    def is_pull(self) -> bool:
        """Whether executors claim the run."""
        return self.claim_timeout_ms is not None

    @property
    def claim_deadline_ms(self) -> int | None:
        """Until when the run waits for an executor."""
        if self.claim_timeout_ms is None or self.due_ms is None:
            return None
        return self.due_ms + self.claim_timeout_ms


class Upstream(NamedTuple):
    """The run that a follow-up run comes after, as it is handed on (`after.output`)."""

    job: str
    run: str
    state: str
    output: str | None
    error: str | None


class Follower(NamedTuple):
    """A job that fires after another job's run, or the heartbeat that a run wakes, and that run."""

    job_id: str
    workspace: str
    agent: str
    name: str
    policy: str
    work: str
    after_run_id: str
    after_finished_ms: int
    #: `chain` or `heartbeat`
    trigger: TriggerName = "chain"
    #: of a follow-up run: the run before it
    upstream: Upstream | None = None
    #: the depth of that run: this one is at least as deep
    after_depth: int = 0
    #: how many follow-up runs in a row led to that run
    after_chain_length: int = 0


def tick_key(job_id: str, scheduled_ms: int) -> str:
    """Return the idempotency key of a tick: equal on every replica, for every retry and replay.

    >>> tick_key("j", 1_741_392_000_000) == hashlib.sha256(b"j:1741392000").hexdigest()
    True
    >>> tick_key("j", 1_741_392_000_250) == hashlib.sha256(b"j:1741392000.250").hexdigest()
    True
    """
    seconds, ms = divmod(scheduled_ms, 1000)
    epoch = f"{seconds}.{ms:03d}" if ms else str(seconds)
    return hashlib.sha256(f"{job_id}:{epoch}".encode()).hexdigest()


def check_cancellable(run_id: str, state: str, *, running: bool) -> None:
    """Raise FailedPrecondition for a run that cannot be cancelled or, with `running`, stopped.

    >>> check_cancellable("r1", "retrying", running=False)
    >>> check_cancellable("r1", "retrying", running=True)
    Traceback (most recent call last):
    wakeful.errors.FailedPrecondition: run 'r1' is retrying: cancel it instead
    """
    waits = state in (RunState.PENDING, RunState.RETRYING)
    if state == RunState.RUNNING if running else waits:
        return
    advice = (
        "cancel it instead" if waits else
        "stop it instead" if state == RunState.RUNNING else
        "it has ended"
    )  # fmt: skip
    raise FailedPrecondition(f"run '{run_id}' is {state}: {advice}")


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
