"""Budgets: what may be used on one day (UTC), what was, and what is refused when that is all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from wakeful.document.guards import budget
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, PermissionDenied, ResourceExhausted
from wakeful.job import Json
from wakeful.service.auth.access import Principal
from wakeful.store.budgets import BudgetBlock, BudgetOwner
from wakeful.store.port import Store
from wakeful.store.quotas import day_of

_WORDS: Final = {"tokensPerDay": "{most:.0f} tokens", "costPerDay": "a cost of {most:g}"}


class Budgets:
    """Says what was used, and refuses what would use more."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, owner: BudgetOwner, job: str | None = None) -> None:
        """ResourceExhausted where a cap of the job, its agent or its workspace has been reached today."""
        reached = (await self.reached())(owner, job)
        if reached is not None:
            raise ResourceExhausted(reached)

    async def reached(self) -> Callable[[BudgetOwner, str | None], str | None]:
        """Says of whoever, in a sentence, which cap has been reached today; None: none has."""
        holds = {hold.owner: hold for hold in reversed(await self._store.holds(self._today()))}

        def said(owner: BudgetOwner, job: str | None) -> str | None:
            levels = (owner, BudgetOwner(owner.workspace, owner.agent), BudgetOwner(owner.workspace))
            hold = next((holds[level] for level in levels if level in holds), None)
            return None if hold is None else _reached(hold, job)

        return said

    async def weigh(self, owner: BudgetOwner) -> None:
        """A budget is another now: hold what is over it, and no longer what is not."""
        await self._store.weigh(self._store.clock.now_ms(), [owner])

    async def spent(self, workspace: str, agent: str = "", job_id: str = "") -> dict[str, Json]:
        """What was used today. Whether they may know is asked by whoever shows what it is of."""
        tokens, cost = await self._store.spent(BudgetOwner(workspace, agent, job_id), self._today())
        return {"tokens": tokens, "cost": cost}

    def _today(self) -> int:
        return day_of(self._store.clock.now_ms())


def read_budget(value: object) -> str | None:
    """The budget of a document, as it is kept; null is none."""
    if value is None:
        return None
    try:
        return compact(budget(value))
    except InvalidArgument as error:
        raise InvalidArgument(f"budget: {error.message}") from error


def check_tighter(
    principal: Principal, new: Mapping[str, Json] | None, old: Mapping[str, Json] | None
) -> None:
    """Refuse an agent's key a job's budget that is looser than the one before; everybody else may.

    A job's budget is somebody's guard against that very agent. A cap that is not there is no cap, so one more
    is always tighter.

    >>> agent = Principal("key:1", "agent", "acme", "writer")
    >>> check_tighter(agent, {"tokensPerDay": 50, "costPerDay": 1}, {"tokensPerDay": 100})
    >>> check_tighter(agent, {"tokensPerDay": 101}, {"tokensPerDay": 100})
    Traceback (most recent call last):
    wakeful.errors.PermissionDenied: budget: a key of the role 'agent' may lower a job's budget...
    """
    if principal.role == "agent" and old is not None and any(_above(cap, new, old) for cap in old):
        raise PermissionDenied(
            "budget: a key of the role 'agent' may lower a job's budget, not raise or remove it; "
            f"leave it at {compact(dict(old))} or below, or ask an admin"
        )


def _above(cap: str, new: Mapping[str, Json] | None, old: Mapping[str, Json]) -> bool:
    given, most = (new or {}).get(cap), old[cap]
    return not isinstance(given, int | float) or not isinstance(most, int | float) or given > most


def _reached(hold: BudgetBlock, job: str | None) -> str:
    if hold.job:
        subject = f"job '{job or hold.job}'"
    else:
        subject = f"agent '{hold.agent}'" if hold.agent else f"workspace '{hold.workspace}'"
    much = _WORDS.get(hold.cap, "{most:g}").format(most=hold.most)
    return (
        f"{subject} may use {much} a day ({hold.cap}), and has; "
        "wait until midnight UTC, or give it a larger budget"
    )
