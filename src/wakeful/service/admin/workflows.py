"""Workflows: store and read versions. A version never changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, NotFound
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.store.rows import WorkflowRow
from wakeful.values.json_value import json_value

_MAX_DAG_BYTES: Final = 256 * 1024
_LARGEST: Final = 2**31 - 1


class WorkflowService:
    """Stores versions of workflows: opaque documents that are passed to an executor."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def put(
        self, principal: Principal, workspace: str, workflow_id: str, version: int, dag: object
    ) -> bool:
        """Store a version and return whether it is new. Refuse another document under the same version."""
        await self._accounts.authorize(principal, "workflow.write", workspace)
        _check(workflow_id, version)
        if not isinstance(dag, Mapping) or not dag:
            raise InvalidArgument("dag: write the workflow as a JSON object that is not empty")
        try:
            text = payload_to_text(json_value(dag, _MAX_DAG_BYTES))
        except InvalidArgument as error:
            raise InvalidArgument(f"dag: {error.message}") from error
        assert text is not None
        row = WorkflowRow(workspace, workflow_id, version, text, self._store.clock.now_ms())
        entry = principal.entry(workspace, "workflow.put", f"{workflow_id}/{version}")
        return await self._store.put_workflow(row, [entry])

    async def get(self, principal: Principal, workspace: str, workflow_id: str, version: int) -> WorkflowRow:
        """Return a version, or raise NotFound."""
        await self._accounts.authorize(principal, "read", workspace)
        _check(workflow_id, version)
        row = await self._store.workflow(workspace, workflow_id, version)
        if row is None:
            raise NotFound(f"no workflow '{workflow_id}' with version {version}")
        return row


def _check(workflow_id: str, version: int) -> None:
    if not 0 < len(workflow_id) <= 200 or not workflow_id.isprintable():
        raise InvalidArgument("workflow: its id is text of 1 to 200 characters")
    if not 0 <= version <= _LARGEST:
        raise InvalidArgument(f"version: write a whole number from 0 to {_LARGEST}")
