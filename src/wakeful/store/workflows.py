"""Workflows: documents by id and version. A version never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from wakeful.store.audit import AuditEntry


class WorkflowRow(NamedTuple):
    """A version of a workflow."""

    workspace: str
    id: str
    version: int
    #: compact JSON
    dag: str
    created_ms: int


class WorkflowStore(Protocol):
    """The part of a store that holds workflows."""

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[AuditEntry] = ()) -> bool:
        """Add a version. False: it exists with the same content. AlreadyExists: with another content."""
        ...

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """Return that version."""
        ...

    async def workflows(self, workspace: str, wanted: Sequence[tuple[str, int]]) -> list[WorkflowRow]:
        """Return those of these versions (id, version) that exist, in any order."""
        ...
