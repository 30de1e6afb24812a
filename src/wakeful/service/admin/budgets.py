"""Budgets: the limits of one day (UTC), what was used, and the check before a run is requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wakeful.document.guards import budget
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument, PermissionDenied, ResourceExhausted
from wakeful.job.job import NO_WORK, Json
from wakeful.job.start_rules import BudgetBlock, BudgetOwner, StartDecision, find_block, may_start
from wakeful.run.usage import day_of
from wakeful.service.auth.access import Principal
from wakeful.store.port import Store


class Budgets:
    """Reads usage and checks budgets."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, owner: BudgetOwner, job_name: str | None = None) -> None:
        """Raise ResourceExhausted if a budget of the job, its agent or its workspace is used up today."""
        decision = (await self.may_request(owner.workspace))(owner, job_name)
        if not decision:
            raise ResourceExhausted(decision.message, daily=True)

    async def may_request(self, workspace: str) -> Callable[[BudgetOwner, str | None], StartDecision]:
        """Return a function that decides whether a run of a workspace may be requested.

        It decides by the budgets as they are now.
        """
        blocks, now_ms = await self._blocks(workspace), self._store.clock.now_ms()

        def decide(owner: BudgetOwner, job_name: str | None) -> StartDecision:
            block = find_block(blocks, owner.workspace, owner.agent, owner.job)
            return may_start("user", 1, NO_WORK, now_ms, block, job_name, at_request=True)

        return decide

    async def _blocks(self, workspace: str) -> dict[BudgetOwner, BudgetBlock]:
        """Return the budgets of a workspace that are used up today, by owner."""
        blocks = await self._store.budget_blocks(self._today(), workspace)
        return {block.owner: block for block in reversed(blocks)}

    async def spent(self, workspace: str, agent: str = "", job_id: str = "") -> dict[str, Json]:
        """Return today's usage. The caller has authorized access to the owner."""
        tokens, cost = await self._store.spent(BudgetOwner(workspace, agent, job_id), self._today())
        return {"tokens": tokens, "cost": cost}

    def _today(self) -> int:
        return day_of(self._store.clock.now_ms())


def read_budget(value: object) -> str | None:
    """Return the budget of a document as stored text; null is no budget."""
    if value is None:
        return None
    try:
        return compact(budget(value))
    except InvalidArgument as error:
        raise InvalidArgument(f"budget: {error.message}") from error


def check_tighter(
    principal: Principal, new: Mapping[str, Json] | None, old: Mapping[str, Json] | None
) -> None:
    """Raise PermissionDenied if an agent's key raises or removes the budget of a job.

    The budget of a job protects against that agent. Adding a cap is always allowed.

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
    new_cap, old_cap = (new or {}).get(cap), old[cap]
    return not isinstance(new_cap, int | float) or not isinstance(old_cap, int | float) or new_cap > old_cap
