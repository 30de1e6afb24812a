"""The job through which an agent with a target of its own is woken without a job of anybody's."""

from __future__ import annotations

from wakeful.agents.sessions import LANE
from wakeful.errors import AlreadyExists
from wakeful.job import Definition, Work, inherit
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.service.directory import Home
from wakeful.service.making import needs_secret, without_ticks
from wakeful.store.port import Store
from wakeful.store.records import row_of
from wakeful.store.rows import JobRow
from wakeful.store.talking import BY_HAND


class ByHand:
    """Has such a job when one is needed. It goes where its agent does, also when that changes."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store = store
        self._keyring = keyring

    @staticmethod
    def work(home: Home) -> Work:
        """What is launched: at the agent's target, in the lane of conversations."""
        return inherit(Work(lane=LANE), home.target)

    async def job(self, home: Home) -> JobRow | None:
        """The agent's; None where its runs wait to be claimed, which takes no job."""
        work = self.work(home)
        if work.pulled:
            return None
        row = await self._store.job(home.workspace, home.agent, BY_HAND)
        if row is not None:
            return row
        now_ms = self._store.clock.now_ms()
        definition = Definition(
            BY_HAND, None, work=work, description="Made when the agent was woken by hand."
        )
        job = without_ticks(home.workspace, home.agent, definition, now_ms)
        row = row_of(job, self._keyring.seal(new_secret()) if needs_secret(definition) else None)
        try:
            await self._store.create_jobs([row])
        except AlreadyExists:
            return await self.job(home)
        return row
