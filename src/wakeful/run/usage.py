"""What runs use, and which caps of budgets that reaches. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wakeful.document import work_from_text
from wakeful.document.guards import MOST_COST
from wakeful.errors import InvalidArgument
from wakeful.job.policy import DAY_MS
from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.run.outcome import Finished
from wakeful.values.json_value import Json, compact

#: The fields in which a run reports its tokens: the total, the input and the output. The first that has a
#: number counts.
_TOTAL: Final = ("tokens", "totalTokens", "total_tokens")
_INPUT: Final = ("inputTokens", "input_tokens", "prompt_tokens")
_OUTPUT: Final = ("outputTokens", "output_tokens", "completion_tokens")
#: Input from a cache, which `input_tokens` does not include if these are reported (Anthropic).
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
#: The longest text that is read as a number.
_LONGEST_NUMBER: Final = 32
#: The largest count for one run and for one day, so that sums stay numbers that JSON and databases can hold.
MOST_TOKENS: Final = 2**53


class Spent(NamedTuple):
    """What was used on one day."""

    tokens: int = 0
    cost: float = 0.0


class Ledger(NamedTuple):
    """What a run under a budget has used so far."""

    attempt: int
    #: used by earlier attempts
    earlier: Spent = Spent()
    #: used by this attempt, and counted already
    used: Spent = Spent()


class ReservationRequest(NamedTuple):
    """What an attempt reserves before it starts, and before each of its requests to a model."""

    workspace: str
    agent: str
    run_id: str
    attempt: int
    #: what the attempt has used so far; None: what is recorded
    used: Spent | None = None
    #: what the next step may use; None: not known, so all that the budget of a run leaves
    need: Spent | None = None


class ReservationFacts(NamedTuple):
    """What the database holds when a reservation is decided."""

    #: the budgets of the run's job, agent and workspace, in this order
    budgets: Mapping[BudgetOwner, Mapping[str, Json]]
    #: what these used today
    spent: Mapping[BudgetOwner, Spent]
    #: what other running runs have reserved
    reserved: Mapping[BudgetOwner, Spent]
    ledger: Ledger | None
    #: whether the attempt is running; of one that was stopped, only what it has used is counted
    running: bool = True


class Reserved(NamedTuple):
    """The answer to a reservation. True if the next step may start."""

    #: the cap that is reached
    reached: BudgetBlock | None = None
    #: the rest is reserved for steps under way, which may use less: ask again
    wait: bool = False
    #: the attempt is not running any more
    lost: bool = False

    def __bool__(self) -> bool:
        return self == _RESERVED


_RESERVED: Final = Reserved()


class ReservationDecision(NamedTuple):
    """What to write for a reservation, and the answer."""

    answer: Reserved
    ledger: Ledger
    reserved: Spent
    #: usage that is not counted yet
    added: Spent


class OwnerUsage(NamedTuple):
    """An owner with today's usage, its budget, and the caps that are reached already."""

    workspace: str
    agent: str
    job: str
    tokens: int
    cost: float
    #: its budget, as compact JSON; for a job, its `work`
    text: str | None
    #: the caps, separated by commas
    blocked: str | None

    @property
    def owner(self) -> BudgetOwner:
        """The owner of the budget."""
        return BudgetOwner(self.workspace, self.agent, self.job)


class BudgetChange(NamedTuple):
    """A cap that is newly reached, or no longer reached (`most` is None)."""

    owner: BudgetOwner
    cap: str
    most: float | None
    used: float


def utc_day(now_ms: int) -> int:
    """Return the day (UTC) of that instant, counted from 1970.

    >>> utc_day(86_399_999), utc_day(86_400_000)
    (0, 1)
    """
    return now_ms // DAY_MS


def parse_usage(text: str | None) -> Spent | None:
    """Return what a run used according to its report; None if nothing in it can be counted.

    A total that is missing, not a number, or less than its parts does not hide the parts.

    >>> parse_usage('{"tokens":1200,"cost":0.02}')
    Spent(tokens=1200, cost=0.02)
    >>> parse_usage('{"prompt_tokens":1000,"completion_tokens":200}')
    Spent(tokens=1200, cost=0.0)
    >>> parse_usage('{"total_tokens":null,"prompt_tokens":900,"completion_tokens":100}')
    Spent(tokens=1000, cost=0.0)
    """
    try:
        report = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict):
        return None
    parts = _first(report, _INPUT) + _first(report, _OUTPUT)
    if "input_tokens" in report:
        parts += sum(_number(report.get(name)) for name in _CACHED)
    spent = limit_usage(max(_first(report, _TOTAL), parts), _number(report.get("cost")))
    return spent if spent != Spent() else None


def limit_usage(tokens: float, cost: float) -> Spent:
    """Return this usage, limited to the largest counts.

    >>> limit_usage(math.inf, 1e308)
    Spent(tokens=9007199254740992, cost=1000000000000.0)
    """
    return Spent(int(min(tokens, MOST_TOKENS)), min(cost, MOST_COST))


def budget_levels(owner: BudgetOwner) -> list[BudgetOwner]:
    """Return whose budgets apply to a job, or to an agent: its own, its agent's and its workspace's."""
    agent, workspace = BudgetOwner(owner.workspace, owner.agent), BudgetOwner(owner.workspace)
    return [owner, agent, workspace] if owner.job else [agent, workspace]


def usage_by_owner(
    outcomes: Iterable[Finished], owners: Mapping[str, BudgetOwner], counted: Mapping[str, Spent]
) -> dict[tuple[BudgetOwner, int], Spent]:
    """Return the usage to add, by owner and day, in lock order.

    `owners` names the job of each run that reports usage, or its agent if it has no job. Usage counts for
    that owner, for its agent and for its workspace. `counted` is what of the attempt is counted already.
    """
    added: dict[tuple[BudgetOwner, int], Spent] = {}
    for outcome in outcomes:
        used, owner = parse_usage(outcome.usage), owners.get(outcome.run_id)
        if used is None or owner is None:
            continue
        more = _difference(used, counted.get(outcome.run_id, Spent()))
        if more == Spent():
            continue
        for level in budget_levels(owner):
            key = level, utc_day(outcome.finished_ms)
            added[key] = add(added.get(key, Spent()), more)
    return dict(sorted(added.items()))


def add(one: Spent, other: Spent) -> Spent:
    """Return the sum, limited to the largest counts."""
    return limit_usage(one.tokens + other.tokens, one.cost + other.cost)


def decide_reservation(request: ReservationRequest, facts: ReservationFacts, day: int) -> ReservationDecision:
    """Decide whether the next step of an attempt may start, and what it reserves.

    It may start while what was used and what others have reserved is below each cap. So a cap is exceeded
    by at most the last step that started below it.
    """
    ledger = facts.ledger or Ledger(request.attempt)
    if ledger.attempt != request.attempt:
        ledger = Ledger(request.attempt, add(ledger.earlier, ledger.used))
    added = Spent() if request.used is None else _difference(request.used, ledger.used)
    ledger = ledger._replace(used=add(ledger.used, added))
    if not facts.running:
        return ReservationDecision(Reserved(lost=True), ledger, Spent(), added)
    run = add(ledger.earlier, ledger.used)
    left: dict[str, float] = {}
    wait = False
    for owner, caps in facts.budgets.items():
        spent = add(facts.spent.get(owner, Spent()), added)
        others = facts.reserved.get(owner, Spent())
        for cap, used, reserved in (
            ("tokensPerDay", float(spent.tokens), float(others.tokens)),
            ("costPerDay", spent.cost, others.cost),
            ("tokensPerRun", float(run.tokens), 0.0),
            ("costPerRun", run.cost, 0.0),
        ):
            most = caps.get(cap)
            if not isinstance(most, int | float):
                continue
            if used >= most:
                reached = Reserved(BudgetBlock(day, *owner, cap, float(most)))
                return ReservationDecision(reached, ledger, Spent(), added)
            wait = wait or used + reserved >= most
            if cap.endswith("PerRun"):
                left[cap] = min(left.get(cap, math.inf), most - used)
    if wait:
        return ReservationDecision(Reserved(wait=True), ledger, Spent(), added)
    need = request.need
    if need is None:
        need = limit_usage(left.get("tokensPerRun", 0), left.get("costPerRun", 0.0))
    return ReservationDecision(_RESERVED, ledger, need, added)


def budget_changes(owners: Iterable[OwnerUsage]) -> list[BudgetChange]:
    """Return the caps that are newly reached, and those that are no longer reached."""
    found = []
    for one in owners:
        caps = budget_from_text(one.text, of_job=bool(one.job))
        blocked = set((one.blocked or "").split(",")) - {""}
        for cap, used in {"tokensPerDay": float(one.tokens), "costPerDay": one.cost}.items():
            most = caps.get(cap)
            if isinstance(most, int | float) and used >= most:
                if cap not in blocked:
                    found.append(BudgetChange(one.owner, cap, float(most), used))
            elif cap in blocked:
                found.append(BudgetChange(one.owner, cap, None, used))
    return found


def incident_details(change: BudgetChange) -> str:
    """Return the details of the incident for a cap that is reached, as compact JSON."""
    return compact({"cap": change.cap, "most": change.most, "used": change.used})


def budget_from_text(text: str | None, *, of_job: bool) -> Mapping[str, Json]:
    """Return the caps of a stored budget: compact JSON, or the `work` of a job. Empty if there are none."""
    if text is None:
        return {}
    if not of_job:
        read = json.loads(text)
        return read if isinstance(read, dict) else {}
    try:
        return work_from_text(text).budget or {}
    except InvalidArgument:  # the planner reports it
        return {}


def _difference(used: Spent, counted: Spent) -> Spent:
    """Return what of `used` is not counted yet."""
    return Spent(max(0, used.tokens - counted.tokens), max(0.0, used.cost - counted.cost))


def _first(report: Mapping[str, object], names: Iterable[str]) -> float:
    """Return the first number above 0 of these fields, or 0."""
    return next((number for name in names if (number := _number(report.get(name)))), 0.0)


def _number(value: object) -> float:
    """Return a number above 0 (also one written as text), or 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    if isinstance(value, str) and len(value) > _LONGEST_NUMBER:
        return 0.0
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond any float
        number = math.inf if isinstance(value, int) and value > 0 else 0.0
    except ValueError:
        return 0.0
    return number if number > 0 else 0.0
