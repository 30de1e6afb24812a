"""Waking an agent by hand, without a job of anybody's."""

from __future__ import annotations

from typing import Final

from wakeful.document import Defaults
from wakeful.engine.births import claim_timeout_ms, lane_of, of_trigger
from wakeful.errors import AlreadyExists
from wakeful.ids import new_id
from wakeful.job import Definition, Job, Work, inherit
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.policy import DEFAULT_POLICY
from wakeful.service.access import Principal
from wakeful.service.budgets import Budgets
from wakeful.service.directory import Directory, Home
from wakeful.service.making import needs_secret
from wakeful.service.triggered import payload_of
from wakeful.store.guarding import Owner
from wakeful.store.port import Store
from wakeful.store.records import row_of, view_of
from wakeful.store.rows import JobRow, RunView

#: The job that an agent with a target of its own is woken through: it has no ticks, and what every launch
#: needs, such as a secret to sign with.
BY_HAND: Final = "woken-by-hand"


class WakeService:
    """Wakes agents."""

    def __init__(self, store: Store, directory: Directory, keyring: Keyring, defaults: Defaults) -> None:
        self._store = store
        self._directory = directory
        self._keyring = keyring
        self._defaults = defaults
        self._budgets = Budgets(store)

    async def wake(self, who: Principal, workspace: str, agent: str, payload: object = None) -> RunView:
        """A run of the agent, now, with this payload: pending, until its target or an executor takes it."""
        await self._directory.enter(who, "wake", workspace, agent)
        await self._directory.agent(workspace, agent)
        home = await self._directory.home(workspace, agent)
        own = payload_of(payload, self._defaults.max_payload_bytes)
        await self._budgets.check(Owner(workspace, agent))
        work = inherit(Work(), home.target)
        job = None if work.pulled else await self._job(home, work)
        now_ms = self._store.clock.now_ms()
        run = of_trigger(
            job_id=job.id if job else None,
            workspace=workspace,
            agent=agent,
            job_name=job.name if job else None,
            lane=lane_of(work),
            trigger="user",
            now_ms=now_ms,
            triggered_by=who.actor,
            payload=own,
            claim_ms=claim_timeout_ms(work, DEFAULT_POLICY),
        )
        await self._store.add_runs([run], [who.entry(workspace, "agent.wake", agent)])
        return view_of(run, now_ms)

    async def _job(self, home: Home, work: Work) -> JobRow:
        row = await self._store.job(home.workspace, home.agent, BY_HAND)
        if row is not None:
            return row
        now_ms = self._store.clock.now_ms()
        definition = Definition(
            BY_HAND, None, work=work, description="Made when the agent was woken by hand."
        )
        row = row_of(
            Job(
                id=new_id(now_ms),
                workspace=home.workspace,
                agent=home.agent,
                definition=definition,
                enabled=True,
                anchor_ms=now_ms,
                next_ms=None,
                wake_ms=None,
                created_ms=now_ms,
                updated_ms=now_ms,
            ),
            self._keyring.seal(new_secret()) if needs_secret(definition) else None,
        )
        try:
            await self._store.create_jobs([row])
        except AlreadyExists:
            return await self._job(home, work)
        return row
