"""Wake an agent without a job of its own: the internal job through which it runs, and the service."""

from __future__ import annotations

from collections.abc import Callable

from wakeful.agents.sessions import LANE
from wakeful.document import work_from_text
from wakeful.job.capabilities import requirement_of
from wakeful.job.job import Definition, Work, inherit
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.job.start_rules import BudgetOwner
from wakeful.launch.secrets import Keyring, new_secret
from wakeful.run.factory import claim_timeout_ms, manual_run, signal_of_job
from wakeful.run.instances import WAKE_SIGNAL
from wakeful.service.admin.budgets import Budgets
from wakeful.service.agents.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.job_editor import run_as_it_is
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.service.jobs.run_origin import RunOrigins
from wakeful.service.runs.manual_runs import read_payload
from wakeful.store.accounts import AgentRow, no_agent
from wakeful.store.idempotency import Keyed
from wakeful.store.internal_jobs import InternalChange, InternalRules
from wakeful.store.port import Store
from wakeful.store.row_mapping import row_of
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sessions import WAKE_JOB


class WakeJobs:
    """Creates the wake job of an agent on demand. It has the target of the agent."""

    def __init__(self, store: Store, accounts: Accounts, keyring: Keyring) -> None:
        self._store = store
        self._accounts = accounts
        self._keyring = keyring

    async def job(self, workspace: str, agent: str) -> tuple[Work, JobRow]:
        """Return the work of a wake and the wake job. Its runs move with the job if the target changes.

        The work is that of the job: it has the target of the agent, in the lane of conversations. An agent
        that is deleted meanwhile is not added again: that is NotFound.
        """
        row = await self._store.job(workspace, agent, WAKE_JOB)
        if row is None:
            row = await self._create(workspace, agent)
        return work_from_text(row.work), row

    async def _create(self, workspace: str, agent: str) -> JobRow:
        """Add the wake job in a transaction that holds the agent, unless it exists by then."""
        found: list[JobRow] = []

        def add_missing(owner: AgentRow, old: JobRow | None) -> InternalChange | None:
            found[:] = [self._new_job(owner) if old is None else old]
            return InternalChange(add=found[0]) if old is None else None

        def internal(owner: AgentRow) -> InternalRules:
            return {WAKE_JOB: lambda old: add_missing(owner, old)}

        if await self._store.put_agent(workspace, agent, lambda old: None, internal=internal) is None:
            raise no_agent(agent)
        return found[0]

    def _new_job(self, owner: AgentRow) -> JobRow:
        context = self._accounts.new_context(owner.workspace, owner.name, None, owner)
        work = inherit(Work(lane=LANE), context.target)
        now_ms = self._store.clock.now_ms()
        definition = Definition(
            WAKE_JOB, None, work=work, description="Made when the agent was woken by hand."
        )
        row = row_of(unscheduled_job(owner.workspace, owner.name, definition, now_ms))
        if signed_by_agent(work, owner.inherited):
            return with_agents_secret(row, owner.inherited, now_ms)
        if needs_secret(definition):
            return row._replace(secret=self._keyring.seal(new_secret()))
        return row


class WakeService:
    """Wakes agents on request."""

    def __init__(
        self,
        store: Store,
        accounts: Accounts,
        budgets: Budgets,
        wake_jobs: WakeJobs,
        origins: RunOrigins,
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._wake_jobs = wake_jobs
        self._budgets = budgets
        self._origins = origins
        #: called with each run that a request has created
        self.on_triggered: Callable[[RunView], None] = lambda run: None

    async def wake(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        payload: object = None,
        *,
        keyed: Keyed[RunView] | None = None,
    ) -> RunView:
        """Create a pending run of the agent with this payload."""
        await self._accounts.authorize(principal, "wake", workspace, agent)
        view = await run_as_it_is(None, lambda: self._wake(principal, workspace, agent, payload, keyed))
        self.on_triggered(view)
        return view

    async def _wake(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        payload: object,
        keyed: Keyed[RunView] | None,
    ) -> RunView:
        await self._accounts.agent(workspace, agent)
        call = await self._origins.call(principal, workspace, agent)
        own = read_payload(payload, self._accounts.defaults.max_payload_bytes)
        await self._budgets.check(BudgetOwner(workspace, agent))
        work, job = await self._wake_jobs.job(workspace, agent)
        now_ms = self._store.clock.now_ms()
        run = manual_run(
            job_id=job.id,
            workspace=workspace,
            agent=agent,
            job_name=job.name,
            lane=work.lane,
            trigger="agent" if call else "user",
            now_ms=now_ms,
            triggered_by=principal.actor,
            payload=own,
            claim_ms=claim_timeout_ms(work, DEFAULT_POLICY),
            requirement=requirement_of(work, workspace, agent),
        )
        run = signal_of_job(run, work, WAKE_SIGNAL)
        if call is not None:
            (run,) = call.triggered([run])
        entry = principal.entry(workspace, "agent.wake", agent)
        response: Keyed[list[RunView]] | None = keyed.of(lambda runs: runs[0]) if keyed else None
        charge = call.charge if call else None
        (view,) = await self._store.add_runs([run], [entry], response, charge, job.version)
        return view
