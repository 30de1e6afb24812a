"""Waking an agent by hand, without a job of anybody's."""

from __future__ import annotations

from wakeful.document import Defaults
from wakeful.policy import DEFAULT_POLICY
from wakeful.run_factory import claim_timeout_ms, lane_of, manual_run
from wakeful.service.admin.budgets import Budgets
from wakeful.service.agents.wake_job import WakeJob
from wakeful.service.auth.access import Principal
from wakeful.service.auth.job_context import Directory
from wakeful.service.runs.manual_runs import payload_of
from wakeful.start_rules import BudgetOwner
from wakeful.store.idempotency import Keyed
from wakeful.store.port import Store
from wakeful.store.rows import RunView


class WakeService:
    """Wakes agents."""

    def __init__(self, store: Store, directory: Directory, by_hand: WakeJob, defaults: Defaults) -> None:
        self._store = store
        self._directory = directory
        self._by_hand = by_hand
        self._defaults = defaults
        self._budgets = Budgets(store)

    async def wake(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        payload: object = None,
        *,
        keyed: Keyed[RunView] | None = None,
    ) -> RunView:
        """A run of the agent, now, with this payload: pending, until its target or an executor takes it."""
        await self._directory.authorize(principal, "wake", workspace, agent)
        await self._directory.agent(workspace, agent)
        own = payload_of(payload, self._defaults.max_payload_bytes)
        await self._budgets.check(BudgetOwner(workspace, agent))
        work, job = await self._by_hand.job(workspace, agent)
        now_ms = self._store.clock.now_ms()
        run = manual_run(
            job_id=job.id if job else None,
            workspace=workspace,
            agent=agent,
            job_name=job.name if job else None,
            lane=lane_of(work),
            trigger="user",
            now_ms=now_ms,
            triggered_by=principal.actor,
            payload=own,
            claim_ms=claim_timeout_ms(work, DEFAULT_POLICY),
        )
        entry = principal.entry(workspace, "agent.wake", agent)
        (view,) = await self._store.add_runs(
            [run], [entry], keyed.of(lambda runs: runs[0]) if keyed else None
        )
        return view
