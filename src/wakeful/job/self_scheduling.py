"""Bounds for the jobs that an agent makes for itself. Pure.

An agent acts on text that other people wrote. In a run that a person started, its jobs are what that person
asked for. In any other run (a schedule, a chain, a heartbeat, a trigger URL …) nobody watches: there it makes
one-time jobs only, at most `per_run` in one run, and a chain of jobs that were made in runs of each other is
at most `depth` long. The document of the agent can allow more (`selfScheduling`).

What makes a job fire again counts as a new job: another schedule, enabling it, running it, a trigger URL. So
does what starts a run in another way: a backfill, a message, a signal, an instance that starts. Removing a
job gives nothing back. So neither edits nor loops of adding and removing get around the bounds. What follows
from a run without such a call (a chain, a heartbeat, a signal of a handler) is as deep as the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from wakeful.errors import FailedPrecondition, PermissionDenied, ResourceExhausted
from wakeful.job.job import Definition, JobRecord
from wakeful.schedule.schedules import At
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

#: The disabled reason of a job that waits until a person enables it.
APPROVAL: Final = "approval"
#: More than any run makes: the limit where there is none.
_UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SelfScheduling:
    """The bounds of an agent."""

    #: whether jobs with several ticks, after others, and on events may be made in an unattended run
    recurring: bool = False
    #: how many jobs may be made in one unattended run
    per_run: int = 5
    #: how many jobs in a row may each be made in a run of the one before
    depth: int = 3
    #: whether keys of the agent may make jobs outside a run, without `x-wakeful-run-id`
    outside_runs: bool = True


DEFAULT_BOUNDS: Final = SelfScheduling()


def read_bounds(document: Mapping[str, Json] | None) -> SelfScheduling:
    """Return the bounds in the document of an agent, as `document.agents` reads it.

    >>> read_bounds({"perRun": 20})
    SelfScheduling(recurring=False, per_run=20, depth=3, outside_runs=True)
    """
    given = document or {}
    per_run, depth = given.get("perRun"), given.get("depth")
    return SelfScheduling(
        recurring=given.get("recurring") is True,
        per_run=per_run if isinstance(per_run, int) else DEFAULT_BOUNDS.per_run,
        depth=depth if isinstance(depth, int) else DEFAULT_BOUNDS.depth,
        outside_runs=given.get("outsideRuns") is not False,
    )


class CallingRun(NamedTuple):
    """The run in which a call is made, as it is stored."""

    id: str
    workspace: str
    agent: str
    state: str
    trigger: str
    #: of a turn: its session, and where the last message of the session came from
    session: str | None
    channel: str | None
    to: str | None
    #: how many jobs in a row were made in runs of each other, up to the job of this run
    depth: int
    #: the stored work of its job
    work: str | None

    @property
    def attended(self) -> bool:
        """Whether a person started the run."""
        return is_attended(self.trigger, self.session)


class RunCharge(NamedTuple):
    """Jobs and runs to count for the run in which they are made."""

    run_id: str
    jobs: int
    #: the most that may be made in the run
    limit: int
    agent: str


#: Returns what a transaction charges to a run; it is called after the operation, which may decide it.
ChargeRule = Callable[[], RunCharge | None]


def is_attended(trigger: str, session: str | None) -> bool:
    """Return whether a person started a run: by hand, or by a message to a session.

    A program with the agent's own key, such as a bridge to a chat service, sends messages too (`agent`). A
    message that an unattended run sends has the trigger `chain`.

    >>> is_attended("user", None), is_attended("agent", "telegram:1"), is_attended("agent", None)
    (True, True, False)
    >>> any(is_attended(trigger, None) for trigger in ("schedule", "chain", "heartbeat", "hook", "event"))
    False
    """
    return trigger == "user" or (trigger == "agent" and session is not None)


def is_one_time(definition: Definition) -> bool:
    """Return whether a job fires once: at one instant, and neither after another job nor on events."""
    timing, others = definition.timing, (definition.after, definition.work.on)
    return timing is not None and isinstance(timing.schedule, At) and others == (None, None)


def starts(old: JobRecord, new: JobRecord) -> bool:
    """Return whether a change makes a job fire again, or more often, than it would have without it."""
    before, after = old.definition, new.definition
    if before.timing != after.timing or _chain(before) != _chain(after):
        return True
    if after.work.on is not None and before.work.on != after.work.on:
        return True
    if new.enabled and not old.enabled:
        return True
    if new.pause_until_ms is not None and not old.enabled and new.pause_until_ms != old.pause_until_ms:
        return True
    most, least = after.policy.max_runs, before.policy.max_runs
    return least is not None and (most is None or most > least)


def _chain(definition: Definition) -> tuple[str, str] | None:
    chain = definition.after
    return None if chain is None else (chain.job, chain.on)


def check_added(bounds: SelfScheduling, run: CallingRun | None, definition: Definition, agent: str) -> None:
    """Raise PermissionDenied if a call for an agent may not make this job; `run` is the run that makes it."""
    if run is None:
        check_outside(bounds, agent)
    elif not run.attended:
        if not is_one_time(definition):
            check_repeatable(bounds, run, "schedule")
        check_depth(bounds, run)


def check_repeatable(bounds: SelfScheduling, run: CallingRun | None, what: str) -> None:
    """Raise PermissionDenied if a call may not make a job that can fire more than once."""
    if run is None or run.attended or bounds.recurring:
        return
    raise PermissionDenied(
        f"{what}: no person started run '{run.id}' (trigger {run.trigger}), so only one-time jobs may be "
        "made in it; write a schedule such as 'in 20m' or an instant, or ask a person. An admin allows "
        f"more with {_setting(run.agent, 'recurring', 'true')}"
    )


def check_depth(bounds: SelfScheduling, run: CallingRun) -> None:
    """Raise PermissionDenied if a job or run that is made in this unattended run would be too deep."""
    if run.depth >= bounds.depth:
        raise PermissionDenied(
            f"run '{run.id}' ends a chain of {plural(run.depth, 'job')}, each made in a run of the one "
            f"before, and at most {bounds.depth} are allowed; report what is left to do, so that a person "
            f"can decide. An admin allows more with {_setting(run.agent, 'depth', bounds.depth + 1)}"
        )


def check_outside(bounds: SelfScheduling, agent: str) -> None:
    """Raise PermissionDenied if keys of the agent may not make jobs outside a run."""
    if not bounds.outside_runs:
        raise PermissionDenied(
            f"keys of agent '{agent}' may make jobs only in a run (selfScheduling.outsideRuns is false): "
            "send the id of the run in the header x-wakeful-run-id, or set WAKEFUL_RUN_ID, or ask an admin"
        )


def charge_for(bounds: SelfScheduling, run: CallingRun | None, jobs: int = 1) -> RunCharge | None:
    """Return what to charge to a run for jobs that are made or started in it; None without a run."""
    if run is None:
        return None
    return RunCharge(run.id, jobs, _UNLIMITED if run.attended else bounds.per_run, run.agent)


def refused_charge(charge: RunCharge, state: str | None, made: int) -> FailedPrecondition | ResourceExhausted:
    """Return the error for a charge that a run does not take: it has ended, or its limit is reached."""
    if state != "running":
        return run_not_running(charge.run_id, state)
    return ResourceExhausted(
        f"run '{charge.run_id}' has made or started {plural(made, 'job')}, of at most {charge.limit}; "
        "removed ones count too. Do the rest in a later run, or ask a person. An admin allows more with "
        f"{_setting(charge.agent, 'perRun', made + charge.jobs)}"
    )


def run_not_running(run_id: str, state: str | None) -> FailedPrecondition:
    """Return the error for a call in the name of a run that is not running."""
    what = f"is {state}" if state else "no longer exists"
    return FailedPrecondition(
        f"run '{run_id}' {what}: x-wakeful-run-id names the run that makes the call, while it is running; "
        "leave it out (unset WAKEFUL_RUN_ID) to act outside a run"
    )


def _setting(agent: str, name: str, value: object) -> str:
    return f"selfScheduling of agent '{agent}': {{\"{name}\": {value}}}"
