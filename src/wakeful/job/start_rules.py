"""Whether a run may start, and which process may take it. Pure.

`may_start` decides it by what is known without a query. It is called by the planner for a tick, by the
worker for an attempt, by the services for a claim of an executor and for a request (manual run, backfill,
replay, wake, message), and by `wakeful.run.factory` for a follow-up run. An attempt under a budget also
needs a reservation (`wakeful.launch.budgets`), whatever started its run.

A requirement is a name and the lowest version: `function:digest` for a function, `agent:WORKSPACE/AGENT`
for the class of an agent, `celery` for any Celery app, `celery:APP` for the app of that name, and '' for a
target that every process can launch. A process may take a run if it has the requirement's name in at least
that version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from wakeful.job.job import Work
from wakeful.schedule.day_rules import within

#: What a process can launch: the name of each requirement, and the highest version. '' is always included.
Capabilities = Mapping[str, int]

_FUNCTION: Final = "function:"
_AGENT: Final = "agent:"
#: The requirement of runs with Celery targets that name no app.
CELERY: Final = "celery"
_CELERY_APP: Final = f"{CELERY}:"
#: Names are part of an index, whose entries are limited.
_MAX_BYTES: Final = 200
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


class Requirement(NamedTuple):
    """What a process must have to launch a run."""

    name: str
    version: int = 0

    @property
    def description(self) -> str:
        """What is missing in a process that does not meet it.

        >>> Requirement("function:digest").description
        "the function 'digest'"
        >>> Requirement("agent:default/report", 3).description
        "version 3 of the class of agent 'report'"
        """
        if self.name == CELERY:
            return "a Celery app"
        if self.name.startswith(_CELERY_APP):
            return f"the Celery app '{self.name.removeprefix(_CELERY_APP)}'"
        if self.name.startswith(_FUNCTION):
            return f"the function '{self.name.removeprefix(_FUNCTION)}'"
        workspace, _, agent = self.name.removeprefix(_AGENT).partition("/")
        version = f"version {self.version} of " if self.version > 1 else ""
        return f"{version}the class of agent '{agent or workspace}'"

    @property
    def advice(self) -> str:
        """What to do if no running replica meets it.

        >>> Requirement("function:digest").advice
        "no running replica has the function 'digest'; start a process that registers it"
        """
        if is_celery(self.name):
            return f"no running replica has {self.description}; start one with WAKEFUL_CELERY_APP"
        return f"no running replica has {self.description}; start a process that registers it"


NOTHING: Final = Requirement("")
_CELERY: Final = Requirement(CELERY)
#: The capabilities of a process without functions and agents.
NO_CAPABILITIES: Final[Capabilities] = MappingProxyType({"": 0})


def function_requirement(name: str) -> str:
    """Return the requirement's name for a function. A name that cannot be stored in an index becomes a hash.

    >>> function_requirement("digest")
    'function:digest'
    >>> function_requirement("d" * 1000)[:22]
    'function:sha256-e8cec1'
    """
    return _requirement(_FUNCTION, name)


def celery_requirement(app: str) -> str:
    """Return the requirement's name for the Celery app of that name.

    >>> celery_requirement("shop")
    'celery:shop'
    """
    return _requirement(_CELERY_APP, app)


def is_celery(requirement: str) -> bool:
    """Return whether this is the name of a requirement of Celery targets.

    >>> is_celery("celery"), is_celery("celery:shop"), is_celery("function:celery")
    (True, True, False)
    """
    return requirement == CELERY or requirement.startswith(_CELERY_APP)


def _requirement(kind: str, name: str) -> str:
    if not name.isprintable() or len(name.encode()) > _MAX_BYTES:
        return f"{kind}sha256-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
    return kind + name


def agent_requirement(workspace: str, agent: str) -> str:
    """Return the requirement's name for the class of an agent.

    >>> agent_requirement("default", "report")
    'agent:default/report'
    """
    return f"{_AGENT}{workspace}/{agent}"


def is_called(target: Mapping[str, object] | None) -> bool:
    """Return whether calls with arguments start runs of this target (`enqueue`): it needs no schedule."""
    return target is not None and target.get("kind") == "function" and target.get("arguments") is True


def find_requirement(work: Work, workspace: str, agent: str) -> Requirement:
    """Return what the runs of a job require.

    >>> find_requirement(Work({"kind": "function", "name": "digest"}), "default", "default")
    Requirement(name='function:digest', version=0)
    >>> find_requirement(Work({"kind": "celery", "task": "add", "app": "shop"}), "default", "default")
    Requirement(name='celery:shop', version=0)
    >>> find_requirement(Work({"kind": "webhook", "url": "https://a.example"}), "default", "default")
    Requirement(name='', version=0)
    """
    target = work.target  # not `final_target`: this is called for each run of a storm
    if target is None:
        return NOTHING
    kind = target.get("kind")
    if kind == "workflow":
        to = target.get("to")
        target = to if isinstance(to, dict) else {}
        kind = target.get("kind")
    if kind == "function":
        name = target.get("name")
        return _function(name) if isinstance(name, str) else NOTHING
    if kind == CELERY:
        app = target.get("app")
        return _celery(app) if isinstance(app, str) else _CELERY
    return Requirement(agent_requirement(workspace, agent)) if kind == "agent" else NOTHING


@lru_cache(maxsize=4096)
def _function(name: str) -> Requirement:
    return Requirement(function_requirement(name))


@lru_cache(maxsize=256)
def _celery(app: str) -> Requirement:
    return Requirement(celery_requirement(app))


def can_take(capabilities: Capabilities, requirement: Requirement) -> bool:
    """Return whether a process may take a run with this requirement.

    >>> can_take({"": 0, "agent:default/report": 2}, Requirement("agent:default/report", 3))
    False
    """
    return capabilities.get(requirement.name, -1) >= requirement.version


def capabilities_to_text(capabilities: Capabilities) -> str:
    """Return capabilities as stored text; equal ones have equal texts.

    >>> capabilities_to_text({"function:digest": 0, "": 0})
    '{"":0,"function:digest":0}'
    """
    return json.dumps(dict(capabilities), separators=(",", ":"), sort_keys=True)


def capabilities_from_text(text: str) -> Capabilities:
    """Return the capabilities that `capabilities_to_text` wrote."""
    found: dict[str, int] = json.loads(text)
    return found


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
