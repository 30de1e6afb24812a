"""The jobs of an agent for programs without an event loop: `app.sync.jobs`."""

from __future__ import annotations

from typing import Literal, TypeVar, Unpack, overload

from wakeful.app.in_transaction import CallSteps, run_blocking
from wakeful.app.jobs import Jobs
from wakeful.client import sync
from wakeful.client.portal import Portal
from wakeful.job.policy import Overlap
from wakeful.model import Job, OverlapPolicy, Run
from wakeful.model.job_fields import JobFields, JsonLike

T = TypeVar("T")


class SyncJobs(sync.Jobs):
    """The methods of `app.jobs` without `await`; some may be called in a transaction of the caller."""

    def __init__(self, portal: Portal, inner: Jobs) -> None:
        super().__init__(portal, inner)
        self._jobs = inner

    def of(self, agent: str, workspace: str | None = None) -> SyncJobs:
        """Return the jobs of another agent."""
        return SyncJobs(self.portal, self._jobs.of(agent, workspace))

    def create(self, name: str, *, connection: object | None = None, **fields: Unpack[JobFields]) -> Job:
        """Create a job; with `connection`, in the transaction that the caller has begun on it."""
        if connection is None:
            return self.portal.run(lambda: self._jobs.create(name, **fields))
        return self._in_transaction(connection, self._jobs._create_steps(name, fields))

    def upsert(self, name: str, *, connection: object | None = None, **fields: Unpack[JobFields]) -> Job:
        """Create the job, or change it; with `connection`, create it in the transaction of the caller."""
        if connection is None:
            return self.portal.run(lambda: self._jobs.upsert(name, **fields))
        return self._in_transaction(connection, self._jobs._create_steps(name, fields, upsert=True))

    @overload
    def run(
        self,
        name: str,
        *,
        mode: Literal["force"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run: ...
    @overload
    def run(
        self,
        name: str,
        *,
        mode: Literal["due"],
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run | None: ...
    def run(
        self,
        name: str,
        *,
        mode: Literal["force", "due"] = "force",
        payload: JsonLike = None,
        overlap_policy: OverlapPolicy | Overlap | None = None,
        connection: object | None = None,
    ) -> Run | None:
        """Run a job now; with `connection`, when the transaction of the caller has committed."""
        if connection is None:
            return super().run(name, mode=mode, payload=payload, overlap_policy=overlap_policy)
        steps = self._jobs._run_steps(name, mode, payload, overlap_policy)
        return self._in_transaction(connection, steps)

    def _in_transaction(self, connection: object, steps: CallSteps[T]) -> T:
        return run_blocking(self.portal, self._jobs._services.store.kind, connection, steps)
