"""Workflow and pull targets.

A workflow target loads a DAG from the store and passes it to another target:

    {"kind": "workflow", "workflowId": "invoices", "version": 3, "userId": "ada",
     "to": {"kind": "webhook", "url": "https://example.com/execute"}}

The target gets `{"dag": …, "meta": {…}}` as its payload: the stored bytes of the DAG, and the user, the tick
and the idempotency key. Without `to`, or with a pull target, the run waits to be claimed, and the claim has
the same payload (`dag_and_meta`).

A pull target launches nothing. The run stays pending until an executor claims it, which keeps it by its
heartbeats:

    {"kind": "pull", "claimTimeoutMs": 600000}
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, NotFound, Unavailable, WakefulError
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, Launcher, truncate
from wakeful.run.outcome import Failed, Outcome
from wakeful.store.rows import WorkflowRow
from wakeful.values.bounded_cache import MB, BoundedCache, text_size
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json

_FIELDS: Final = frozenset({"kind", "claimTimeoutMs"})
_WORKFLOW_FIELDS: Final = ("workflowId", "version", "userId", "to")
_YEAR_MS: Final = 366 * 86_400_000


def check_pull(target: Mapping[str, Json]) -> None:
    """Raise InvalidArgument for an invalid pull target.

    >>> check_pull({"kind": "pull", "claimTimeoutMs": "5m"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: target: claimTimeoutMs is a whole number of milliseconds, such as 600000
    """
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(
            f"target: a pull target has no field '{unknown[0][:64]}'; its only field is claimTimeoutMs"
        )
    wait_ms = target.get("claimTimeoutMs", 1)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or not 1 <= wait_ms <= _YEAR_MS:
        raise InvalidArgument("target: claimTimeoutMs is a whole number of milliseconds, such as 600000")


class WorkflowReader(Protocol):
    """The part of a store that reads workflows."""

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version of the workflow."""
        ...


class WorkflowCache:
    """A cache of workflow versions, limited in bytes. A version never changes."""

    def __init__(self, workflows: WorkflowReader) -> None:
        self._workflows = workflows
        self._rows: BoundedCache[tuple[str, str, int], WorkflowRow] = BoundedCache(16 * MB)

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version of the workflow."""
        key = workspace, workflow_id, version
        row = self._rows.get(key)
        if row is None:
            row = await self._workflows.workflow(workspace, workflow_id, version)
            if row is not None:
                self._rows.put(key, row, text_size(row.dag))
        return row


class WorkflowLauncher(Launcher):
    """Passes DAGs to other targets. `find_launcher` returns the launcher of a kind, or None."""

    kind = "workflow"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def __init__(self, workflows: WorkflowReader, find_launcher: Callable[[str], Launcher | None]) -> None:
        self._workflows = WorkflowCache(workflows)
        self._find_launcher = find_launcher

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target without a workflow, or an invalid `to`."""
        unknown = sorted(target.keys() - {"kind", *_WORKFLOW_FIELDS})
        if unknown:
            raise InvalidArgument(
                f"target: a workflow target has no field '{unknown[0][:64]}'; it has "
                f"{', '.join(_WORKFLOW_FIELDS)}"
            )
        workflow_version(target)
        to = _to(target)
        kind = to.get("kind")
        if kind == "pull":
            check_pull(to)
        elif kind == self.kind:
            raise InvalidArgument(
                "target: a workflow cannot go to another workflow; set the target that runs its DAG"
            )
        else:
            launcher = self._find_launcher(str(kind))
            if launcher is None:
                raise InvalidArgument(f"target: no launcher for '{kind}' here, the target of the workflow")
            launcher.check(to)

    async def start(self, run: Launch) -> Outcome:
        """Load the DAG and launch it on its target. A missing DAG is retried: it may be deployed soon."""
        to = _to(run.target)
        launcher = self._find_launcher(str(to.get("kind")))
        if launcher is None or launcher is self:
            error = f"no launcher for '{to.get('kind')}' in this process, the target of the workflow"
            return Failed(truncate(error), reason="not_registered", counted=False)
        try:
            payload = await dag_and_meta(self._workflows, run)
        except NotFound as error:
            return Failed(truncate(error.message), reason="workflow_missing")
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        except Unavailable as error:
            return Failed(truncate(error.message), reason="unavailable", counted=False)
        except WakefulError as error:
            return Failed(truncate(error.message), reason="workflow_unreadable")
        delegated = run.with_target(to, payload)
        if run.timeout_ms is not None or launcher.default_timeout_ms >= self.default_timeout_ms:
            return await launcher.start(delegated)
        # The engine applies the timeout of workflows, so the shorter one of the target is applied here.
        try:
            async with asyncio.timeout(launcher.default_timeout_ms / 1000) as limit:
                return await launcher.start(delegated)
        except TimeoutError:
            if not limit.expired():
                raise
            return Failed(f"timed out after {launcher.default_timeout_ms / 1000:g} s", reason="timeout")


async def dag_and_meta(workflows: WorkflowReader, run: Launch) -> str:
    """Return the payload of a workflow run: compact JSON of `{"dag": …, "meta": …}`.

    Raises NotFound if that version does not exist, and InvalidArgument if the target names none.
    """
    workflow_id, version = workflow_version(run.target)
    row = await workflows.workflow(run.workspace, workflow_id, version)
    if row is None:
        raise NotFound(
            f"there is no version {version} of the workflow '{workflow_id}' in the workspace "
            f"'{run.workspace}'; deploy it"
        )
    return f'{{"dag":{row.dag},"meta":{payload_to_text(workflow_meta(run))}}}'


def workflow_meta(run: Launch) -> dict[str, Json]:
    """Return the metadata beside the DAG. `source` is the trigger; `payload` exists if the run has one."""
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
    """Return the workflow id and version of a target. Raises InvalidArgument."""
    workflow_id, version = target.get("workflowId"), target.get("version")
    if not isinstance(workflow_id, str) or not workflow_id:
        raise InvalidArgument("target: a workflow target needs a workflowId, such as 'invoices'")
    if not isinstance(version, int) or isinstance(version, bool):
        raise InvalidArgument("target: a workflow target needs a version, such as 3")
    return workflow_id, version


def _to(target: Mapping[str, Json]) -> Mapping[str, Json]:
    to = target.get("to")
    return to if isinstance(to, dict) else {"kind": "pull"}
