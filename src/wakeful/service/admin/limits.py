"""Budgets and quotas.

A budget limits one day (UTC): what was used, and the check before a run is requested. Quotas limit jobs and
requests: list their usage, set their limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from wakeful.document.guards import budget
from wakeful.errors import InvalidArgument, PermissionDenied, ResourceExhausted
from wakeful.job.job import NO_WORK, JobRecord, check_slug
from wakeful.job.start_rules import BudgetBlock, BudgetOwner, StartDecision, find_block, may_start
from wakeful.run.usage import utc_day
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.filters import check_choices
from wakeful.store.port import Store
from wakeful.store.quotas import BUCKETS as BUCKETS
from wakeful.store.quotas import CREATE_JOB as CREATE_JOB
from wakeful.store.quotas import INSTANCES as INSTANCES
from wakeful.store.quotas import LIVE_JOBS as LIVE_JOBS
from wakeful.store.quotas import QuotaRow
from wakeful.values.json_value import Json, compact

_LARGEST: Final = 2**31 - 1


class Budgets:
    """Reads usage and checks budgets."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, owner: BudgetOwner, job_name: str | None = None) -> None:
        """Raise ResourceExhausted if a budget of the job, its agent or its workspace is used up today."""
        self.check_blocks(await self._store.budget_blocks(self.today(), owner.workspace), owner, job_name)

    def check_blocks(
        self, blocks: Sequence[BudgetBlock], owner: BudgetOwner, job_name: str | None = None
    ) -> None:
        """Raise ResourceExhausted if one of these used-up budgets applies to the job."""
        decision = self._decide(blocks)(owner, job_name)
        if not decision:
            raise ResourceExhausted(decision.message, daily=True)

    async def may_request(self, workspace: str) -> Callable[[BudgetOwner, str | None], StartDecision]:
        """Return a function that decides whether a run of a workspace may be requested.

        It decides by the budgets as they are now.
        """
        return self._decide(await self._store.budget_blocks(self.today(), workspace))

    async def used_up(self, workspace: str, jobs: Iterable[JobRecord]) -> dict[str, str]:
        """Return what says that a budget of a job, its agent or its workspace is used up, by the job's id."""
        decide = await self.may_request(workspace)
        found = {job.id: decide(BudgetOwner(workspace, job.agent, job.id), job.name) for job in jobs}
        return {job_id: decision.message for job_id, decision in found.items() if not decision}

    def _decide(self, blocks: Sequence[BudgetBlock]) -> Callable[[BudgetOwner, str | None], StartDecision]:
        found, now_ms = {block.owner: block for block in reversed(blocks)}, self._store.clock.now_ms()

        def decide(owner: BudgetOwner, job_name: str | None) -> StartDecision:
            block = find_block(found, owner.workspace, owner.agent, owner.job)
            return may_start("user", 1, NO_WORK, now_ms, block, job_name, at_request=True)

        return decide

    async def spent(self, workspace: str, agent: str = "", job_id: str = "") -> dict[str, Json]:
        """Return today's usage. The caller has authorized access to the owner."""
        tokens, cost = await self._store.read_spent(BudgetOwner(workspace, agent, job_id), self.today())
        return {"tokens": tokens, "cost": cost}

    def today(self) -> int:
        """Return the day in UTC, counted from 1970-01-01."""
        return utc_day(self._store.clock.now_ms())


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


class QuotaService:
    """Lists and sets quotas."""

    def __init__(
        self, store: Store, accounts: Accounts, defaults: Mapping[tuple[str, bool], int | None]
    ) -> None:
        self._store = store
        self._accounts = accounts
        #: the installation's limits by bucket and whether they are those of an agent; None: no limit
        self.defaults = defaults

    async def list(self, principal: Principal, workspace: str) -> list[QuotaRow]:
        """List limits and usage; an agent sees its own."""
        await self._accounts.authorize(principal, "quota.read", workspace)
        only = visible_agent(principal, None)
        return await self._store.quotas(workspace, self._store.clock.now_ms(), only)

    async def set(
        self,
        principal: Principal,
        workspace: str,
        agent: str | None,
        bucket: str,
        limit: int | None,
        check: Callable[[int | None], None] | None = None,
    ) -> None:
        """Set the limit of the workspace (`agent` is None) or of one agent; None removes it.

        `check` gets the limit that is set now; if it raises, nothing changes.
        """
        await self._accounts.authorize(principal, "operate", workspace)
        check_choices("bucket", (bucket,), BUCKETS)
        if agent == "":
            raise InvalidArgument("agent: it is empty; name one, or leave it out for the whole workspace")
        if agent is not None:
            check_slug(agent, "agent")
        if limit is not None and not 0 <= limit <= _LARGEST:
            raise InvalidArgument(f"limit: write a whole number from 0 to {_LARGEST}, or null for none")
        details = compact({"bucket": bucket, "limit": limit})
        entry = principal.entry(workspace, "quota.set", agent or workspace, details)
        await self._store.set_quota(workspace, agent or "", bucket, limit, [entry], check)
