"""Workflow targets: the DAG is read from the store of workflows, and handed to another target.

    {"kind": "workflow", "workflowId": "invoices", "version": 3, "userId": "ada",
     "to": {"kind": "webhook", "url": "https://example.com/execute"}}

Whoever executes it gets `{"dag": …, "meta": {…}}` as its payload and need know nothing of schedules: the DAG
as it was stored, to the byte, and beside it who it is for, which instant it is for, and the key by which a
thing is done once. Without a `to`, or with a pull target there, the run waits to be claimed, and the claim
carries the same payload (`dag_and_meta`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Final, Protocol

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, NotFound, Unavailable, WakefulError
from wakeful.instants import iso_utc
from wakeful.job import Json
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, Launcher, kept
from wakeful.launch.pull import check_pull
from wakeful.outcome import Failed, Outcome
from wakeful.store.workflows import WorkflowRow

#: How much memory the versions take that are kept.
CACHE_BYTES: Final = 16 * 1024 * 1024


class WorkflowReader(Protocol):
    """The one thing that is asked of a store here."""

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """That version of the workflow."""
        ...


class WorkflowCache:
    """Keeps the versions of workflows that were read, up to so many bytes: a version never changes.

    The one that was not used for the longest time goes first. What is not there is asked for again.
    """

    def __init__(self, workflows: WorkflowReader, max_bytes: int = CACHE_BYTES) -> None:
        self._workflows = workflows
        self._max_bytes = max_bytes
        self._rows: OrderedDict[tuple[str, str, int], WorkflowRow] = OrderedDict()
        self._bytes = 0

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """That version of the workflow."""
        key = workspace, workflow_id, version
        row = self._rows.get(key)
        if row is not None:
            self._rows.move_to_end(key)
            return row
        row = await self._workflows.workflow(workspace, workflow_id, version)
        if row is not None and key not in self._rows and getsizeof(row.dag) <= self._max_bytes:
            self._rows[key] = row
            self._bytes += getsizeof(row.dag)
            while self._bytes > self._max_bytes:
                _, gone = self._rows.popitem(last=False)
                self._bytes -= getsizeof(gone.dag)
        return row


class WorkflowLauncher:
    """Takes DAGs to whatever executes them.

    `reach` finds the launcher of a kind of target, or None where there is none in this process.
    """

    kind = "workflow"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(self, workflows: WorkflowReader, reach: Callable[[str], Launcher | None]) -> None:
        self._workflows = WorkflowCache(workflows)
        self._reach = reach

    async def open(self) -> None:
        """Nothing to get ready: the launchers behind are opened for themselves."""

    async def close(self) -> None:
        """Nothing to let go."""

    def check(self, target: Mapping[str, Json]) -> None:
        """Refuse a workflow that is not named, and a `to` that could never be reached."""
        workflow_version(target)
        to = _to(target)
        kind = to.get("kind")
        if kind == "pull":
            check_pull(to)
        elif kind == self.kind:
            raise InvalidArgument("target: a workflow cannot go to another workflow; give what runs its DAG")
        else:
            launcher = self._reach(str(kind))
            if launcher is None:
                raise InvalidArgument(f"target: no launcher for '{kind}' here, to which the workflow goes")
            launcher.check(to)

    async def start(self, run: Launch) -> Outcome:
        """Load the DAG and hand it on. One that is not there may be on its way: it is tried again."""
        to = _to(run.target)
        launcher = self._reach(str(to.get("kind")))
        if launcher is None or launcher is self:
            error = f"no launcher for '{to.get('kind')}' in this process, to which the workflow goes"
            return Failed(kept(error), reason="not_registered", counted=False)
        try:
            payload = await dag_and_meta(self._workflows, run)
        except NotFound as error:
            return Failed(kept(error.message), reason="workflow_missing")
        except InvalidArgument as error:
            return Failed(kept(error.message), permanent=True, reason="invalid_target")
        except Unavailable as error:
            return Failed(kept(error.message), reason="unavailable", counted=False)
        except WakefulError as error:
            return Failed(kept(error.message), reason="workflow_unreadable")
        handed_on = run.sent_to(to, payload)
        if run.timeout_ms is not None or launcher.default_timeout_ms >= self.default_timeout_ms:
            return await launcher.start(handed_on)
        # The engine knows only how long a workflow may take: how long a post may, we know.
        try:
            async with asyncio.timeout(launcher.default_timeout_ms / 1000) as limit:
                return await launcher.start(handed_on)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failed(f"timed out after {launcher.default_timeout_ms / 1000:g} s", reason="timeout")


async def dag_and_meta(workflows: WorkflowReader, run: Launch) -> str:
    """What an executor is given for a run of a workflow: compact JSON of `{"dag": …, "meta": …}`.

    NotFound: that version of the workflow is not there. InvalidArgument: the target names none.
    """
    workflow_id, version = workflow_version(run.target)
    row = await workflows.workflow(run.workspace, workflow_id, version)
    if row is None:
        raise NotFound(
            f"there is no version {version} of the workflow '{workflow_id}' in the workspace "
            f"'{run.workspace}'; deploy it"
        )
    return f'{{"dag":{row.dag},"meta":{payload_to_text(meta_of(run))}}}'


def meta_of(run: Launch) -> dict[str, Json]:
    """What an executor is told beside the DAG.

    `source` is `schedule` or whatever else triggered the run; `payload` is there if the run has one.
    """
    workflow_id, version = workflow_version(run.target)
    meta: dict[str, Json] = {
        "source": run.trigger,
        "user_id": run.target.get("userId"),
        "scheduled_for": iso_utc(run.scheduled_ms),
        "idempotency_key": run.idempotency_key,
        "run_id": run.id,
        "attempt": run.attempt,
        "workflow_id": workflow_id,
        "version": version,
    }
    if run.payload_text is not None:
        meta["payload"] = run.payload
    return meta


def workflow_version(target: Mapping[str, Json]) -> tuple[str, int]:
    """The workflow's id and version that a target names; InvalidArgument where it names none."""
    workflow_id, version = target.get("workflowId"), target.get("version")
    if not isinstance(workflow_id, str) or not workflow_id:
        raise InvalidArgument("target: a workflow target needs a workflowId, such as 'invoices'")
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidArgument("target: a workflow target needs a version, such as 3")
    return workflow_id, version


def _to(target: Mapping[str, Json]) -> Mapping[str, Json]:
    to = target.get("to")
    return to if isinstance(to, dict) else {"kind": "pull"}
