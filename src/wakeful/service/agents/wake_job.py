"""The job through which an agent with a target of its own is woken without a job of anybody's."""

from __future__ import annotations

from wakeful.agents.sessions import LANE
from wakeful.errors import AlreadyExists
from wakeful.job import Definition, Work, inherit
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.service.agents.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.job_context import Directory, JobContext
from wakeful.service.jobs.job_factory import without_ticks
from wakeful.store.port import Store
from wakeful.store.row_mapping import row_of
from wakeful.store.rows import JobRow
from wakeful.store.sessions import WAKE_JOB


class WakeJob:
    """Has such a job when one is needed. It goes where its agent does, also when that changes."""

    def __init__(self, store: Store, directory: Directory, keyring: Keyring) -> None:
        self._store = store
        self._directory = directory
        self._keyring = keyring

    async def job(self, workspace: str, agent: str) -> tuple[Work, JobRow | None]:
        """What is launched, and the agent's job; None where its runs wait to be claimed, which takes no job.

        What is launched goes to the agent's target, in the lane of conversations.
        """
        return await self._directory.with_context(workspace, agent, self._job)

    async def _job(self, context: JobContext) -> tuple[Work, JobRow | None]:
        work = inherit(Work(lane=LANE), context.target)
        if work.pulled:
            return work, None
        row = await self._store.job(context.workspace, context.agent, WAKE_JOB)
        if row is not None:
            return work, row
        now_ms = self._store.clock.now_ms()
        definition = Definition(
            WAKE_JOB, None, work=work, description="Made when the agent was woken by hand."
        )
        row = row_of(without_ticks(context.workspace, context.agent, definition, now_ms))
        if signed_by_agent(work, context.inherited):
            row = with_agents_secret(row, context.inherited, now_ms)
        elif needs_secret(definition):
            row = row._replace(secret=self._keyring.seal(new_secret()))
        try:
            await self._store.create_jobs(
                [row], agents={(context.workspace, context.agent): context.inherited}
            )
        except AlreadyExists:
            return await self._job(context)
        return work, row
