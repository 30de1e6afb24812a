"""Whether a run may start: budgets and active hours. Pure.

`may_start` decides it by what is known without a query. It is called by the planner for a tick, by the worker
for an attempt, by the services for a claim of an executor and for a request (manual run, backfill, replay,
wake, message), and by `run_factory` for a follow-up run. An attempt under a budget also needs a reservation
(`wakeful.launch.budget_gate`), whatever started its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from wakeful.job.job import Work
from wakeful.schedule.hours import within

BlockReason = Literal["budget", "outside_hours"]
BLOCK_REASONS: Final[tuple[BlockReason, ...]] = get_args(BlockReason)

#: Triggers without a request. Active hours apply to these only.
_AUTOMATIC: Final = frozenset({"schedule", "chain", "heartbeat"})
#: Triggers whose runs are skipped, rather than failed, if a budget is used up before they start.
_SKIPPED: Final = _AUTOMATIC | {"backfill"}
#: Triggers that no budget applies to: an alert tells of a budget that is used up, and uses nothing.
UNBUDGETED: Final = frozenset({"alert"})
#: The reason of a run that a budget ends.
BUDGET: Final = "budget"


class BudgetOwner(NamedTuple):
    """What a budget applies to: a job (by id), an agent, or a whole workspace."""

    workspace: str
    agent: str = ""
    job: str = ""


class BudgetBlock(NamedTuple):
    """A cap that has been reached."""

    #: the day in UTC, counted from 1970-01-01
    day: int
    workspace: str
    agent: str
    job: str
    #: `tokensPerDay`, `costPerDay`, `tokensPerRun` or `costPerRun`
    cap: str
    most: float

    @property
    def owner(self) -> BudgetOwner:
        """What the cap applies to."""
        return BudgetOwner(self.workspace, self.agent, self.job)


class StartDecision(NamedTuple):
    """Whether a run may start. True if it may."""

    #: None if the run may start
    reason: BlockReason | None = None
    message: str = ""

    def __bool__(self) -> bool:
        return self.reason is None


ALLOWED: Final = StartDecision()


def may_start(
    trigger: str,
    attempt: int,
    work: Work,
    at_ms: int,
    block: BudgetBlock | None,
    job_name: str | None = None,
    *,
    at_request: bool = False,
) -> StartDecision:
    """Return whether an attempt may start at this instant. `block` is the budget that is used up, if any.

    Outside the active hours only a first attempt is refused. With `at_request` the decision is for a request,
    before its run exists: active hours do not apply.

    >>> night = Work(active_hours="08:00-22:00", hours_tz="UTC")
    >>> may_start("schedule", 1, night, 0, None)
    StartDecision(reason='outside_hours', message='the job runs from 08:00 to 22:00 (UTC)')
    >>> bool(may_start("user", 1, night, 0, None)), bool(may_start("schedule", 2, night, 0, None))
    (True, True)
    """
    if block is not None and (at_request or trigger not in UNBUDGETED):
        return StartDecision("budget", describe_block(block, job_name))
    hours = work.active_hours
    if hours is None or at_request or attempt > 1 or trigger not in _AUTOMATIC:
        return ALLOWED
    tz = work.hours_tz or "UTC"
    if within(hours, tz, at_ms):
        return ALLOWED
    return StartDecision("outside_hours", f"the job runs from {hours.replace('-', ' to ')} ({tz})")


def find_block(
    blocks: Mapping[BudgetOwner, BudgetBlock], workspace: str, agent: str, job_id: str | None
) -> BudgetBlock | None:
    """Return the used-up budget that applies to a job: its own, else its agent's, else its workspace's."""
    block = blocks.get(BudgetOwner(workspace, agent, job_id)) if job_id else None
    return block or blocks.get(BudgetOwner(workspace, agent)) or blocks.get(BudgetOwner(workspace))


def is_skipped(trigger: str, *, retried: bool) -> bool:
    """Return whether a run that a budget ends is `skipped`: nobody asked for it, and it has not started.

    Any other run that reaches a cap is `failed`, so that it is a dead letter and can be replayed.
    """
    return trigger in _SKIPPED and not retried


def describe_block(block: BudgetBlock, job_name: str | None) -> str:
    """Return which cap is reached, and what to do, in a sentence."""
    if block.cap in ("tokensPerRun", "costPerRun"):
        amount = f"{block.most:.0f} tokens" if block.cap == "tokensPerRun" else f"{block.most:g}"
        return f"the run has used its budget of {amount} ({block.cap}); raise the budget, and replay the run"
    if block.job:
        subject = f"job '{job_name or block.job}'"
    else:
        subject = f"agent '{block.agent}'" if block.agent else f"workspace '{block.workspace}'"
    amount = f"{block.most:.0f} tokens" if block.cap == "tokensPerDay" else f"{block.most:g}"
    return (
        f"{subject} has used its budget of {amount} a day ({block.cap}); "
        "wait until midnight UTC, or raise the budget"
    )
