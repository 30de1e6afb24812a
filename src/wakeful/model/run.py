"""Runs and their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated

from wakeful.model.codec import AgentName, Form, Id, InstanceName, InstantWithMs, May, Slug, resource
from wakeful.model.enums import DeliveryState, RunState, Trigger
from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of a run."""

    #: its number, from 1
    attempt: int
    #: the process that launched it
    worker: str | None
    started_at: datetime | None
    #: None while it runs
    finished_at: datetime | None
    #: the HTTP status of a webhook
    response_code: int | None
    #: why it failed
    error: str | None
    #: the beginning of what its target answered, if it failed
    output: str | None = None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The record of one tick or manual trigger: the public value of the Python API and clients.

    The fields from `attempts` on depend on the call that returns the run. Comparisons ignore them.
    """

    id: Id
    #: None for a signal that was sent
    job_id: Id | None
    workspace: Slug
    agent: AgentName
    #: the name of its job
    job: Slug | None
    #: the tick; for a run that is no tick, the time of the request
    scheduled_at: InstantWithMs
    #: when it may start: the tick with its jitter, or its time in a catch-up
    fire_at: datetime
    trigger: Trigger
    #: the user or key that triggered it
    triggered_by: str | None
    #: the name of that user or key; None: it has none
    triggered_by_name: Annotated[str | None, Form(name_of="triggered_by")] = None
    state: RunState
    #: why it has this state, in one word: `overlap`, `timeout` …
    reason: str | None
    #: how many ticks a missed run stands for
    covers: int
    #: how many ticks were missed between the previous run of the job and this one
    missed: int
    #: of a missed run: the last tick that it stands for
    until_at: datetime | None
    #: the number of its last launch, from 1
    attempt: int
    #: how many attempts failed and count towards `max_attempts`
    failed_attempts: int
    #: the process that runs it
    worker: str | None
    lane: str
    #: while pending or retrying: when it may start
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    #: the same through every retry and replay
    idempotency_key: str
    #: the id of the dead letter that it replays
    replay_of: Id | None
    payload: Json
    #: the HTTP status of a webhook
    response_code: int | None
    #: the beginning of the output
    output: str | None
    #: why it failed
    error: str | None
    #: what it used, such as tokens and cost
    usage: Json
    #: whether it is a dead letter: failed, and neither replayed nor discarded
    dead: bool
    delivery: DeliveryState
    #: why the delivery failed
    delivery_error: str | None
    created_at: datetime
    #: of a turn: its session
    session: str | None = None
    #: how many jobs in a row an agent made for itself, up to the job of this run
    depth: int = 0
    #: what its precheck found, and with `after.output` the run before it
    context: Json = None
    #: of a signal: the instance of the agent that handles it, and its type
    instance: InstanceName | None = None
    signal: str | None = None
    #: the signals that its handler sent out, as CloudEvents
    emitted: Annotated[tuple[Mapping[str, Json], ...], Form(nullable=True)] = ()
    #: what a process must have to take it, such as `function:digest` or `agent:default/report`, and the
    #: lowest version of it; None: every process can take it
    requires: str | None = None
    requires_version: int = 0
    #: whether it was reported as done and its work is not verified yet
    verifying: bool = False
    #: what shows that its work was done
    evidence: Mapping[str, Json] | None = None
    #: its attempts in order; only where one run is read, and the newest 200
    attempts: tuple[Attempt, ...] = field(default=(), compare=False)
    #: what it waits for, in words; None: it is over; only where one run is read
    waiting_for: str | None = field(default=None, compare=False)
    #: whether the instance had received the signal before, and this is the first run; only in `send`
    duplicate: bool = field(default=False, compare=False)
    #: the target of its job; only where it is claimed
    target: Mapping[str, Json] | None = field(default=None, compare=False)
    #: how long the attempt may take; only where it is claimed and its job sets one
    timeout: timedelta | None = field(default=None, compare=False)
    #: the W3C trace context of its attempt, to continue it; only where it is claimed
    traceparent: str | None = field(default=None, compare=False)
    #: what the caller may do with it, such as `cancel`; only where it is read
    may: May = field(default=(), compare=False)


@resource("Released")
@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The result of returning claimed runs, by their ids."""

    #: others can claim them
    released: tuple[Id, ...]
    #: not claimed by the caller in that attempt, and not changed
    lost: tuple[str, ...]


@resource("Heartbeats")
@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat, by the ids of the runs."""

    renewed: tuple[Id, ...]
    #: no longer claimed by the caller: stop working on them
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """The result of the report of one run among several."""

    id: str
    #: its new state; `running` while it is verified; None: the report was refused
    state: RunState | None
    #: why it was refused
    code: Annotated[str, Form("ErrorCode")] | None
    message: str | None


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """The result of each report, in the order of the request."""

    runs: tuple[ReportResult, ...]
