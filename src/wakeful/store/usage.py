"""What usage means, and when a cap is reached. Pure."""

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
from wakeful.start_rules import BudgetOwner
from wakeful.store.budgets import Spent
from wakeful.store.quotas import day_of

#: What a run calls what it used: all of it, or else in two parts.
_WHOLE: Final = ("tokens", "totalTokens", "total_tokens")
_PARTS: Final = (
    "inputTokens",
    "input_tokens",
    "prompt_tokens",
    "outputTokens",
    "output_tokens",
    "completion_tokens",
)
#: What is counted of one run, and of one day, at most: sums stay numbers that JSON and databases can hold.
MOST_TOKENS: Final = 2**53


class Weighed(NamedTuple):
    """An owner with what was used today, the text that its budget stands in, and the caps that hold it."""

    workspace: str
    agent: str
    job: str
    tokens: int
    cost: float
    #: its budget, as compact JSON; of a job, its `work`
    text: str | None
    #: the caps, with commas between
    held: str | None

    @property
    def owner(self) -> BudgetOwner:
        """Whose it is."""
        return BudgetOwner(self.workspace, self.agent, self.job)


class BudgetChange(NamedTuple):
    """A cap that is reached, or is not any more (`most` is None)."""

    owner: BudgetOwner
    cap: str
    most: float | None
    used: float


def usage_of(text: str | None) -> Spent | None:
    """What a run used, by what it says; None: nothing that can be counted.

    >>> usage_of('{"tokens":1200,"cost":0.02}')
    Spent(tokens=1200, cost=0.02)
    >>> usage_of('{"prompt_tokens":1000,"completion_tokens":200}')
    Spent(tokens=1200, cost=0.0)
    """
    try:
        said = json.loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    tokens = next((_number(said[name]) for name in _WHOLE if name in said), None)
    if tokens is None:
        tokens = sum(_number(said.get(name)) for name in _PARTS)
    spent = capped(tokens, _number(said.get("cost")))
    return spent if spent != Spent() else None


def capped(tokens: float, cost: float) -> Spent:
    """So much, or the most that is counted.

    >>> capped(math.inf, 1e308)
    Spent(tokens=9007199254740992, cost=1000000000000.0)
    """
    return Spent(int(min(tokens, MOST_TOKENS)), min(cost, MOST_COST))


def additions(
    finished: Iterable[Finished], owners: Mapping[str, BudgetOwner]
) -> dict[tuple[BudgetOwner, int], Spent]:
    """What is added to whose spending, by owner and day, in the order in which rows are locked.

    `owners` names the job of each run that used anything, or where it has none its agent.
    """
    added: dict[tuple[BudgetOwner, int], Spent] = {}
    for outcome in finished:
        used, owner = usage_of(outcome.usage), owners.get(outcome.run_id)
        if used is None or owner is None:
            continue
        levels = {owner, BudgetOwner(owner.workspace, owner.agent), BudgetOwner(owner.workspace)}
        for level in levels:
            key = level, day_of(outcome.finished_ms)
            before = added.get(key, Spent())
            added[key] = capped(before.tokens + used.tokens, before.cost + used.cost)
    return dict(sorted(added.items()))


def changes(weighed: Iterable[Weighed]) -> list[BudgetChange]:
    """Which caps are reached that were not, and which are not any more."""
    found = []
    for one in weighed:
        used = {"tokensPerDay": float(one.tokens), "costPerDay": one.cost}
        caps = _budget(one)
        held = set((one.held or "").split(",")) - {""}
        for cap, so_much in used.items():
            most = caps.get(cap)
            if isinstance(most, int | float) and so_much >= most:
                if cap not in held:
                    found.append(BudgetChange(one.owner, cap, float(most), so_much))
            elif cap in held:
                found.append(BudgetChange(one.owner, cap, None, so_much))
    return found


def details_of(change: BudgetChange) -> str:
    """What an incident says of a cap that was reached."""
    return compact({"cap": change.cap, "most": change.most, "used": change.used})


def _budget(one: Weighed) -> Mapping[str, Json]:
    if one.text is None:
        return {}
    if not one.job:
        read = json.loads(one.text)
        return read if isinstance(read, dict) else {}
    try:
        return work_from_text(one.text).budget or {}
    except InvalidArgument:  # whoever plans it says so
        return {}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0
