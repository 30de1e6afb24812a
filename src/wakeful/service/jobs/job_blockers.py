"""Why a job does not run, or its runs do not start, with what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from wakeful.job.capabilities import Requirement
from wakeful.job.job import AGENT_INACTIVE, JobRecord
from wakeful.job.self_scheduling import APPROVAL
from wakeful.service.runs.executors import RECENTLY
from wakeful.service.serializers import instant

#: What a person can do about it on the page of the job.
Remedy = Literal["resume", "edit", "agent", "budget", ""]

_DISABLED: Final[Mapping[str, tuple[str, str, Remedy]]] = {
    "paused": ("The job is paused", "Resume it to start its ticks again.", "resume"),
    AGENT_INACTIVE: ("Its agent is not active", "Activate the agent to resume its jobs.", "agent"),
    APPROVAL: (
        "It waits for approval",
        "An agent made this job. Check it, then resume it to approve.",
        "resume",
    ),
    "failed": (
        "It was disabled because it failed (disableAfter, or a one-time job)",
        "Correct the cause, replay the dead letter, then resume the job.",
        "resume",
    ),
    "gone": (
        "It is paused: its receiver answered 410 (gone)",
        "Set another URL, then resume it.",
        "edit",
    ),
    "max_runs": ("It ran as often as maxRuns allows", "Raise maxRuns to let it run again.", "edit"),
    "no_more_ticks": ("Its schedule has no more ticks", "Give it another schedule.", "edit"),
    "once": ("Its precheck ended it (once)", "Resume it to watch again.", "resume"),
    "evolution_off": ("The evolution of its agent is off", "Turn it on at the agent.", "agent"),
}


class Blocker(NamedTuple):
    """A reason, and what to do."""

    text: str
    advice: str
    remedy: Remedy = ""
    #: whether no run starts at all; else runs start late, or only on request
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the reasons depend on besides the job."""

    now_ms: int
    #: the message of the budget that is used up
    budget: str | None = None
    #: what its runs require and no live replica has
    unmet: Requirement | None = None
    #: whether any process that starts runs is alive
    workers: bool = True
    #: of a pull job: whether an executor asked for runs lately
    executor: bool = True
    #: used and total slots of its lane in this process; None: this process has no workers
    slots: tuple[int, int] | None = None
    #: the job that it comes after, if there is no such job
    missing_upstream: str | None = None


def blockers(job: JobRecord, facts: JobFacts) -> list[Blocker]:
    """Return why a job does not run; the most important reason first."""
    found: list[Blocker] = []
    definition = job.definition
    if not job.enabled:
        found.append(_disabled(job))
    elif definition.timing is None and definition.after is None:
        advice = "Run it by hand or by its trigger URL, or give it a schedule."
        found.append(Blocker("It has no schedule", advice, "edit", blocks=False))
    elif definition.timing is not None and job.next_ms is None:
        found.append(Blocker("It has no next tick", "Give it another schedule.", "edit"))
    if facts.missing_upstream is not None:
        advice = "Create that job, or let this one come after another one."
        found.append(
            Blocker(f"It comes after {facts.missing_upstream}, which does not exist", advice, "edit")
        )
    if facts.budget is not None:
        advice = "Runs start again tomorrow (UTC), or when the budget is raised."
        found.append(Blocker(f"A budget is used up: {facts.budget}", advice, "budget"))
    if facts.unmet is not None:
        found.append(Blocker("No running process can launch it", facts.unmet.advice))
    if definition.work.pulled:
        if not facts.executor:
            advice = "Start an executor that claims runs, or give the job a target."
            text = f"No executor has asked for runs of agent {job.agent} in the last {RECENTLY}"
            found.append(Blocker(text, advice, "edit"))
    elif not facts.workers:
        advice = "Start wakeful serve or wakeful worker."
        found.append(Blocker("No process that starts runs is alive", advice))
    elif facts.slots is not None and facts.slots[0] >= facts.slots[1]:
        lane, (used, total) = definition.work.lane, facts.slots
        advice = f"Runs wait for a free slot. Raise WAKEFUL_LANE_{lane.upper()}, or use another lane."
        found.append(Blocker(f"Lane {lane} is full ({used} of {total})", advice, blocks=False))
    return found


def _disabled(job: JobRecord) -> Blocker:
    reason = job.disabled_reason or "paused"
    other: tuple[str, str, Remedy] = (
        f"It is disabled: {reason.replace('_', ' ')}",
        "Resume it to start its ticks again.",
        "resume",
    )
    text, advice, remedy = _DISABLED.get(reason, other)
    if job.pause_note:
        text = f"{text}: {job.pause_note}"
    if job.pause_until_ms is not None:
        advice = f"It resumes by itself at {instant(job.pause_until_ms)}. {advice}"
    return Blocker(text, advice, remedy)
