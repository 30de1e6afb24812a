"""Jobs that an agent makes: the run that makes them, what they carry, and their bounds.

A call with a key of the role `agent`, or with `x-wakeful-run-id` and any key, is not a person's. It is valid
while that run is running. The rules are in `wakeful.job.self_scheduling`; here they are applied to a
change, and what it makes is charged to the run in the transaction that writes it.

A program that holds an agent's key and does not send the header acts outside a run: it is not known whether
one of the agent's runs makes the call. `approval` applies to it, and `selfScheduling.outsideRuns` refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from wakeful.document import work_from_text, work_to_text
from wakeful.errors import NotFound, PermissionDenied
from wakeful.job.job import Definition, JobRecord, Origin, Work
from wakeful.job.self_scheduling import (
    APPROVAL,
    CallingRun,
    RunCharge,
    SelfScheduling,
    charge_for,
    check_added,
    check_depth,
    check_outside,
    check_repeatable,
    run_not_running,
    starts,
)
from wakeful.run.job_transitions import disable_job
from wakeful.run.run import NewRun, RunDetails
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sessions import SessionMessage
from wakeful.values.json_value import camel

#: The catch-up policy of jobs that an agent makes, unless they set one.
_CATCHUP: Final = "latest"


class AgentCall:
    """A call of an agent, or in a run. It lives for one call, and counts what the call makes."""

    def __init__(
        self, principal: Principal, agent: str, run: CallingRun | None, bounds: SelfScheduling
    ) -> None:
        self._principal = principal
        self._agent = agent
        self._bounds = bounds
        self.run = run
        #: the names or ids of what it makes or starts; a transaction may be repeated
        self._made: set[str] = set()

    @property
    def unattended(self) -> bool:
        """Whether it is made in a run that no person started."""
        return self.run is not None and not self.run.attended

    @property
    def depth(self) -> int:
        """The depth of what it makes."""
        return 1 + (self.run.depth if self.run else 0)

    @property
    def origin(self) -> Origin | None:
        """The conversation of its run: the session of a turn, or where the job of the run was made."""
        run = self.run
        if run is None or run.agent != self._agent:  # sessions belong to an agent
            return None
        if run.session is not None:
            return Origin(run.session, run.channel, run.to)
        return work_from_text(run.work).origin if run.work else None

    def charge(self) -> RunCharge | None:
        """Return what to charge to its run; None if it makes nothing or has no run."""
        return charge_for(self._bounds, self.run, len(self._made)) if self._made else None

    def completed(self, document: Mapping[str, object], old: Work | None = None) -> Mapping[str, object]:
        """Return the document of a job with the defaults of jobs that agents make; `old` is its work before.

        Output goes to the conversation unless the document says otherwise.
        """
        given = {camel(str(name)) for name, value in document.items() if value is not None}
        more: dict[str, object] = {}
        if self._principal.role == "agent" and "catchupPolicy" not in given:
            more["catchupPolicy"] = _CATCHUP
        origin = self.origin if old is None else old.origin
        if origin is not None and origin.channel is not None and document.get("deliver") is not False:
            more["deliver"] = True
            if not given & {"channel", "to"}:
                more |= {"channel": origin.channel, "to": origin.to}
        return {**document, **more} if more else document

    def new_job(self, row: JobRow, context: JobContext) -> JobRow:
        """Return the row of a new job with its depth and origin, disabled if its agent needs approval."""
        definition = job_from_row(row).definition
        check_added(self._bounds, self.run, definition, self._agent)
        self._made.add(row.name)
        work = replace(definition.work, depth=self.depth, origin=self.origin)
        row = row._replace(work=work_to_text(work))
        if not context.approval:
            return row
        return row._replace(enabled=False, disabled_reason=APPROVAL, next_ms=None, wake_ms=None)

    def redefined(self, old: JobRecord, new: JobRecord, context: JobContext, now_ms: int) -> JobRecord:
        """Return a job with another definition. If its agent needs approval, the job waits for it again."""
        if context.approval or old.disabled_reason == APPROVAL:
            self._check_enabling(old, new, context)
            new = disable_job(new, now_ms, APPROVAL)
        return self.changed(old, new, context)

    def changed(self, old: JobRecord, new: JobRecord, context: JobContext) -> JobRecord:
        """Return a job after a change, within the bounds of the call; deeper if the change starts it."""
        self._made.discard(old.id)
        self._check_enabling(old, new, context)
        if not starts(old, new):
            return new
        check_added(self._bounds, self.run, new.definition, self._agent)
        if not self.unattended:
            return new
        self._made.add(old.id)
        return replace(new, definition=_deeper(new.definition, self.depth))

    def apply(self, row: JobRow, change: JobChange | None, context: JobContext) -> JobChange | None:
        """Return a change of a job that is no edit, within the bounds of the call."""
        if change is None:
            return None
        new = job_from_row(change.job)
        within = self.changed(job_from_row(row), new, context)
        return change if within is new else change._replace(job=changed_row(change.job, within))

    def add_trigger_url(self, job: JobRecord, context: JobContext) -> None:
        """Count a trigger URL like a job; PermissionDenied if the call may not create it: it fires often."""
        if self.run is None:
            check_outside(self._bounds, self._agent)
        check_repeatable(self._bounds, self.run, f"trigger URL of job '{job.name}'")
        if context.approval:
            raise PermissionDenied(
                f"job '{job.name}': agent '{job.agent}' needs approval, so only a person can create the "
                "trigger URL of its jobs; ask an admin"
            )
        self.start(job.id)

    def check_approved(self, job: JobRecord) -> None:
        """Raise PermissionDenied if the job waits for approval: it does not run before."""
        if job.disabled_reason == APPROVAL:
            raise PermissionDenied(f"job '{job.name}' waits for approval; ask a person to enable it")

    def triggered(self, runs: list[NewRun]) -> list[NewRun]:
        """Return runs that the call starts, as deep as jobs that it makes."""
        self.start(*(run.id for run in runs))
        return [_run_at(run, self.depth) for run in runs] if self.unattended else runs

    def sent(self, message: SessionMessage) -> SessionMessage:
        """Return a message that the call sends; its turn is as bounded as the run that sends it.

        If keys of the agent may make no jobs outside a run, a message outside a run is not a person's either:
        else its turn could make them.
        """
        if self.run is None and not self._bounds.outside_runs:
            return message._replace(trigger="chain")
        if not self.unattended:
            return message._replace(trigger="agent" if self._principal.role == "agent" else "user")
        self.start(message.id)
        return message._replace(trigger="chain", depth=self.depth)

    def start(self, *ids: str) -> None:
        """Count what the call starts, like jobs, if an agent makes it in a run that no person started.

        A program with another key may run jobs that people made, as often as it needs.
        """
        if self.run is not None and self.unattended and self._principal.role == "agent":
            check_depth(self._bounds, self.run)
            self._made.update(ids)

    @staticmethod
    def _check_enabling(old: JobRecord, new: JobRecord, context: JobContext) -> None:
        enables = (new.enabled and not old.enabled) or (not old.enabled and new.pause_until_ms is not None)
        if enables and (context.approval or old.disabled_reason == APPROVAL):
            raise PermissionDenied(
                f"job '{old.name}': agent '{old.agent}' needs approval, so only a person can enable its "
                f"jobs; ask an admin (wakeful resume {old.agent}/{old.name})"
            )


class RunOrigins:
    """Finds the run that makes a call."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def call(self, principal: Principal, workspace: str, agent: str) -> AgentCall | None:
        """Return a call about jobs of this agent; None if a person makes it.

        NotFound for a run that does not exist or is not the principal's, FailedPrecondition for one that is
        not running.
        """
        if principal.is_person:
            return None
        run = await self._run(principal, workspace)
        context = await self._accounts.context(workspace, run.agent if run else agent)
        return AgentCall(principal, agent, run, context.bounds)

    async def _run(self, principal: Principal, workspace: str) -> CallingRun | None:
        if principal.run_id is None:
            return None
        run = await self._store.calling_run(principal.run_id)
        own = run is not None and run.workspace == workspace and principal.agent in (None, run.agent)
        if run is None or not own:
            raise NotFound(
                f"x-wakeful-run-id: no run '{principal.run_id[:64]}'; send the id of the run that makes the "
                "call, or leave it out (unset WAKEFUL_RUN_ID)"
            )
        if run.state != "running":
            raise run_not_running(run.id, run.state)
        return run


def _deeper(definition: Definition, depth: int) -> Definition:
    work = definition.work
    return definition if work.depth >= depth else replace(definition, work=replace(work, depth=depth))


def _run_at(run: NewRun, depth: int) -> NewRun:
    details = run.details or RunDetails()
    return run._replace(details=details._replace(depth=max(details.depth, depth)))
