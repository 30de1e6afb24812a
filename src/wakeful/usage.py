"""What runs use, and which caps of budgets that reaches. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from wakeful.document import work_from_text
from wakeful.document.guards import MOST_COST
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument
from wakeful.job import Json
from wakeful.outcome import Finished
from wakeful.policy import DAY_MS
from wakeful.start_rules import BudgetOwner

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


def day_of(now_ms: int) -> int:
    """Return the day (UTC) of that instant, counted from 1970.

    >>> day_of(86_399_999), day_of(86_400_000)
    (0, 1)
    """
    return now_ms // DAY_MS


def usage_of(text: str | None) -> Spent | None:
    """Return what a run used according to its report; None if nothing in it can be counted.

    A total that is missing, not a number, or less than its parts does not hide the parts.

    >>> usage_of('{"tokens":1200,"cost":0.02}')
    Spent(tokens=1200, cost=0.02)
    >>> usage_of('{"prompt_tokens":1000,"completion_tokens":200}')
    Spent(tokens=1200, cost=0.0)
    >>> usage_of('{"total_tokens":null,"prompt_tokens":900,"completion_tokens":100}')
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
    spent = capped(max(_first(report, _TOTAL), parts), _number(report.get("cost")))
    return spent if spent != Spent() else None


def capped(tokens: float, cost: float) -> Spent:
    """Return this usage, limited to the largest counts.

    >>> capped(math.inf, 1e308)
    Spent(tokens=9007199254740992, cost=1000000000000.0)
    """
    return Spent(int(min(tokens, MOST_TOKENS)), min(cost, MOST_COST))


def usage_by_owner(
    outcomes: Iterable[Finished], owners: Mapping[str, BudgetOwner]
) -> dict[tuple[BudgetOwner, int], Spent]:
    """Return the usage to add, by owner and day, in lock order.

    `owners` names the job of each run that reports usage, or its agent if it has no job. Usage counts for
    that owner, for its agent and for its workspace.
    """
    added: dict[tuple[BudgetOwner, int], Spent] = {}
    for outcome in outcomes:
        used, owner = usage_of(outcome.usage), owners.get(outcome.run_id)
        if used is None or owner is None:
            continue
        for level in {owner, BudgetOwner(owner.workspace, owner.agent), BudgetOwner(owner.workspace)}:
            key = level, day_of(outcome.finished_ms)
            before = added.get(key, Spent())
            added[key] = capped(before.tokens + used.tokens, before.cost + used.cost)
    return dict(sorted(added.items()))


def budget_changes(owners: Iterable[OwnerUsage]) -> list[BudgetChange]:
    """Return the caps that are newly reached, and those that are no longer reached."""
    found = []
    for one in owners:
        caps = _budget(one)
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


def _budget(one: OwnerUsage) -> Mapping[str, Json]:
    if one.text is None:
        return {}
    if not one.job:
        read = json.loads(one.text)
        return read if isinstance(read, dict) else {}
    try:
        return work_from_text(one.text).budget or {}
    except InvalidArgument:  # the planner reports it
        return {}


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
