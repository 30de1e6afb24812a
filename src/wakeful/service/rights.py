"""What a caller may do with an object: the operations that the services do not refuse to it (`may` in JSON).

The rules are those of the services: the permission of each operation, and the checks of `agent_policy` and
`run_origin`. An operation is listed even if the state of the object leaves it without effect, such as `pause`
of a job that is paused: the state is beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from wakeful.errors import PermissionDenied, WakefulError
from wakeful.evolution.suggestion import Suggestion
from wakeful.job.job import JobRecord
from wakeful.job.self_scheduling import check_outside
from wakeful.run.incidents import Incident
from wakeful.service.auth.access import LOCAL, Action, Principal, check_person, permit
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_policy import (
    AgentTargetPolicy,
    check_change,
    check_ending,
    check_not_internal,
    check_payload,
    is_internal,
)
from wakeful.service.jobs.run_origin import AgentCall, RunOrigins
from wakeful.signal.event_catalog import is_event_job
from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.instances import InstanceRow
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.values.bounded_cache import MB, BoundedCache

#: The operations of each kind of object, with the permission that each takes.
JOB: Final[Mapping[str, Action]] = {
    "run": "run",
    "run-with-payload": "run",
    "pause": "job.write",
    "resume": "job.write",
    "skip-next": "job.write",
    "backfill": "run",
    "edit": "job.write",
    "rotate-secret": "job.write",
    "hook": "job.write",
    "delete": "job.write",
}
RUN: Final[Mapping[str, Action]] = {
    "cancel": "run",
    "stop": "run",
    "complete": "work",
    "verify": "verify",
    "replay": "dead-letter",
    "discard": "dead-letter",
}
AGENT: Final[Mapping[str, Action]] = {
    "add-job": "job.write",
    "message": "run",
    "signal": "signal",
    "start-instance": "instance.write",
    "wake": "wake",
    "edit": "agent.write",
    "rotate-secret": "agent.write",
    "delete": "agent.write",
}
INSTANCE: Final[Mapping[str, Action]] = {
    "start": "instance.write",
    "pause": "instance.pause",
    "resume": "instance.pause",
    "hibernate": "instance.write",
    "signal": "signal",
    "stop": "instance.write",
    "delete": "instance.write",
}
INCIDENT: Final[Mapping[str, Action]] = {"acknowledge": "incident.acknowledge"}
SUGGESTION: Final[Mapping[str, Action]] = dict.fromkeys(("apply", "dismiss", "rollback"), "suggestion.decide")
KEY: Final[Mapping[str, Action]] = {"revoke": "key"}
WORKSPACE: Final[Mapping[str, Action]] = {
    "add-agent": "agent.write",
    "add-key": "key",
    "set-quota": "operate",
    "edit": "operate",
}

#: What changes a job, or makes it fire earlier or more often than its owner said.
_CHANGES: Final = frozenset(JOB) - {"run", "run-with-payload"}
_STARTS: Final = frozenset({"run", "run-with-payload", "backfill"})
_ENDS: Final = frozenset({"cancel", "stop"})

_WEIGHT: Final = 200


class Rights:
    """The rights of one caller in one workspace, on objects that it may read."""

    def __init__(
        self,
        principal: Principal,
        workspace: str,
        policy: AgentTargetPolicy | None = None,
        contexts: Mapping[str, JobContext] | None = None,
        call: AgentCall | None = None,
        creator: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._principal = principal
        self._workspace = workspace
        self._policy = policy
        #: by agent, and the call: of a caller that is no person
        self._contexts = contexts or {}
        self._call = call
        self._creator = creator
        self._permitted: dict[int, tuple[str, ...]] = {}

    def job(self, job: JobRecord) -> list[str]:
        """Return what the caller may do with a job.

        An agent's key may also delete an admin's job during one of its runs; that is not listed.
        """
        refused = {"delete"} if is_internal(job.definition) else set()
        if is_event_job(job.name):
            refused |= JOB.keys() - {"pause", "resume", "skip-next"}
        if not self._principal.is_person:
            refused |= self._refused(job)
        return self._of(JOB, refused)

    def run(self, run: RunView) -> list[str]:
        """Return what the caller may do with a run."""
        refused: set[str] = set()
        if _refuses(check_person, self._principal, ""):
            refused.add("verify")
        if self._principal.role == "agent":
            if _refuses(check_not_internal, self._principal, run.job_name, ALERT_JOBS):
                return []
            # Without a known creator the job may be an admin's.
            creator = "" if run.job_id is None else self._creator(run.job_id)
            if _refuses(check_ending, self._principal, "admin:" if creator is None else creator, run):
                refused |= _ENDS
        return self._of(RUN, refused)

    def agent(self, row: AgentRow) -> list[str]:
        """Return what the caller may do with an agent."""
        call, context = self._call, self._contexts.get(row.name)
        outside = call is not None and call.run is None and context is not None
        if outside and context is not None and _refuses(check_outside, context.bounds, row.name):
            return self._of(AGENT, {"add-job"})
        return self._of(AGENT)

    def instance(self, _: InstanceRow) -> list[str]:
        """Return what the caller may do with an instance."""
        return self._of(INSTANCE)

    def incident(self, _: Incident) -> list[str]:
        """Return what the caller may do with an incident."""
        return self._of(INCIDENT)

    def suggestion(self, _: Suggestion) -> list[str]:
        """Return what the caller may do with a suggestion."""
        return self._of(SUGGESTION)

    def key(self, _: KeyRow) -> list[str]:
        """Return what the caller may do with a key."""
        return self._of(KEY)

    def workspace(self, row: WorkspaceRow) -> list[str]:
        """Return what the caller may do with a workspace."""
        refused = {"add-key"} if _refuses(check_person, self._principal, "") else set()
        return self._of(WORKSPACE, refused)

    def _of(self, operations: Mapping[str, Action], refused: Iterable[str] = ()) -> list[str]:
        permitted = self._permitted.get(id(operations))
        if permitted is None:
            permitted = self._permitted[id(operations)] = tuple(
                name
                for name, action in operations.items()
                if not _refuses(permit, self._principal, action, self._workspace)
            )
        return [name for name in permitted if name not in refused] if refused else [*permitted]

    def _refused(self, job: JobRecord) -> set[str]:
        """Return what is refused to a caller that is no person, besides its permissions."""
        principal, call = self._principal, self._call
        if _refuses(check_not_internal, principal, job.name):
            return set(JOB)
        refused: set[str] = set()
        if _refuses(check_change, principal, job):
            refused |= _CHANGES
        if _refuses(check_payload, principal, job):
            refused.add("run-with-payload")
        context = self._contexts.get(job.agent)
        if context is None or call is None or self._policy is None:
            return refused
        if _refuses(self._policy.check_payload, principal, job.definition.work, context):
            refused |= {"run-with-payload", "hook"}
        if _refuses(call.check_approved, job) or _refuses(call.start, job.id):
            refused |= _STARTS
        if _refuses(call.add_trigger_url, job, context):
            refused.add("hook")
        if not job.enabled and _refuses(call.changed, job, replace(job, enabled=True), context):
            refused.add("resume")
        return refused


#: The rights of a Python program with the scheduler in its own process.
LOCAL_RIGHTS: Final = Rights(LOCAL, "")


class RightsReader:
    """Reads what the rights of a caller depend on; for a person that is nothing."""

    def __init__(
        self, store: Store, accounts: Accounts, origins: RunOrigins, policy: AgentTargetPolicy
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._origins = origins
        self._policy = policy
        #: by the id of a job: who created it never changes
        self._creators: BoundedCache[str, str] = BoundedCache(2 * MB)

    async def load(
        self, principal: Principal, workspace: str, agents: Iterable[str] = (), runs: Iterable[RunView] = ()
    ) -> Rights:
        """Return the rights of a caller that may read the workspace.

        `agents` are those of the jobs, and `runs` the runs that are asked about. The creators of their jobs
        are read with one statement, and only the first time.
        """
        if principal.is_person:
            return Rights(principal, workspace)
        if principal.role == "agent":
            await self._load_creators({run.job_id for run in runs if run.job_id is not None})
        contexts = {agent: await self._accounts.context(workspace, agent) for agent in {*agents}}
        call = None
        if contexts:
            try:
                call = await self._origins.call(principal, workspace, principal.agent or next(iter(contexts)))
            except WakefulError:  # the run of the call has ended: each change is refused for that
                contexts = {}
        return Rights(principal, workspace, self._policy, contexts, call, self._creators.get)

    async def _load_creators(self, job_ids: Iterable[str]) -> None:
        wanted = sorted(id for id in job_ids if self._creators.get(id) is None)
        if wanted:
            found = await self._store.job_creators(wanted)
            for id in wanted:  # a job that is pruned has no creator any more
                self._creators.put(id, found.get(id, ""), _WEIGHT)


def _refuses(check: Callable[..., object], *args: object) -> bool:
    """Return whether a check of the services refuses a call."""
    try:
        check(*args)
    except PermissionDenied:
        return True
    return False
