"""What was done, and how much may be: the audit, the quotas, and the store of workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wakeful.document import payload_to_text
from wakeful.document.values import compact, json_value
from wakeful.errors import InvalidArgument, NotFound
from wakeful.job import check_slug
from wakeful.service.access import Principal, narrowed
from wakeful.service.directory import Directory
from wakeful.store.chain import flaw
from wakeful.store.office import BUCKETS, AuditRow, QuotaRow, WorkflowRow
from wakeful.store.port import Store

_PAGE: Final = 1_000
_MAX_DAG_BYTES: Final = 256 * 1024
_LARGEST: Final = 2**31 - 1


class Verified(NamedTuple):
    """What looking through an audit found."""

    #: how many entries were looked at
    entries: int
    #: what is wrong with the first that is not right; None: all are
    flaw: str | None


class AuditService:
    """Shows the audit, and looks whether anybody has laid hands on it."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory

    async def list(
        self, who: Principal, workspace: str, *, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """Entries, newest first; `before` is the number of the last one seen."""
        await self._directory.enter(who, "audit.read", workspace)
        return await self._store.audit(workspace, before=_LARGEST if before is None else before, limit=limit)

    async def verify(
        self, who: Principal, workspace: str, progress: Callable[[int], None] = lambda count: None
    ) -> Verified:
        """Follow the chain from its beginning: a changed, removed or reordered entry breaks it."""
        await self._directory.enter(who, "audit.read", workspace)
        newest, newest_hash = await self._store.audit_head(workspace)
        count, before = 0, ""
        while True:
            rows = await self._store.audit(workspace, after=count, limit=_PAGE)
            found = flaw(rows, count, before)
            for row in rows:
                if found is None and row.seq == newest and row.hash != newest_hash:
                    found = f"entry {newest} is not the one that was written last"
            if found is not None:
                return Verified(count + len(rows), found)
            if not rows:
                gone = f"entries {count + 1} to {newest} are gone" if count < newest else None
                return Verified(count, gone)
            count, before = rows[-1].seq, rows[-1].hash
            progress(count)


class QuotaService:
    """Shows and sets limits."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory

    async def list(self, who: Principal, workspace: str) -> list[QuotaRow]:
        """What is set and what is used; an agent sees its own."""
        await self._directory.enter(who, "quota.read", workspace)
        only = narrowed(who, None)
        rows = await self._store.quotas(workspace, self._store.clock.now_ms())
        return [row for row in rows if only in (None, row.agent)]

    async def set(
        self, who: Principal, workspace: str, agent: str | None, bucket: str, limit: int | None
    ) -> None:
        """Set a limit for the workspace (`agent` is None) or one of its agents; None takes it away."""
        await self._directory.enter(who, "operate", workspace)
        if bucket not in BUCKETS:
            raise InvalidArgument(f"bucket: '{bucket[:64]}' is not one of {', '.join(BUCKETS)}")
        if agent == "":
            raise InvalidArgument("agent: it is empty; name one, or leave it out for the whole workspace")
        if agent is not None:
            check_slug(agent, "agent")
        if limit is not None and not 0 <= limit <= _LARGEST:
            raise InvalidArgument(f"limit: write a whole number from 0 to {_LARGEST}, or null for none")
        told = compact({"bucket": bucket, "limit": limit})
        entry = who.entry(workspace, "quota.set", agent or workspace, told)
        await self._store.set_quota(workspace, agent or "", bucket, limit, [entry])


class WorkflowService:
    """Keeps versions of workflows: documents that are handed to an executor and never looked into."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory

    async def put(self, who: Principal, workspace: str, workflow_id: str, version: int, dag: object) -> bool:
        """Keep a version; whether it is new. The same again is no error, another under its number is one."""
        await self._directory.enter(who, "workflow.write", workspace)
        _check(workflow_id, version)
        if not isinstance(dag, Mapping) or not dag:
            raise InvalidArgument("dag: write the workflow as a JSON object with something in it")
        try:
            text = payload_to_text(json_value(dag, _MAX_DAG_BYTES))
        except InvalidArgument as error:
            raise InvalidArgument(f"dag: {error.message}") from error
        assert text is not None
        row = WorkflowRow(workspace, workflow_id, version, text, self._store.clock.now_ms())
        entry = who.entry(workspace, "workflow.put", f"{workflow_id}/{version}")
        return await self._store.put_workflow(row, [entry])

    async def get(self, who: Principal, workspace: str, workflow_id: str, version: int) -> WorkflowRow:
        """That version, or NotFound."""
        await self._directory.enter(who, "read", workspace)
        _check(workflow_id, version)
        row = await self._store.workflow(workspace, workflow_id, version)
        if row is None:
            raise NotFound(f"no workflow '{workflow_id}' of version {version}")
        return row


def _check(workflow_id: str, version: int) -> None:
    if not 0 < len(workflow_id) <= 200 or not workflow_id.isprintable():
        raise InvalidArgument("workflow: its id is text of 1 to 200 characters")
    if not 0 <= version <= _LARGEST:
        raise InvalidArgument(f"version: write a whole number from 0 to {_LARGEST}")
