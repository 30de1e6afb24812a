"""The heartbeat: an internal job that wakes an agent at intervals, if its document has a `heartbeat`.

It is an ordinary job with the target of the agent: its runs are listed, and people may pause and run it. It
is created, changed and deleted with the agent's document, in the same transaction. Keys of the role `agent`
may only read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wakeful.document import read_definition
from wakeful.document.agents import heartbeat, heartbeat_job
from wakeful.errors import InvalidArgument
from wakeful.job.job import inherit
from wakeful.run.job_transitions import edit_job
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.jobs.job_editor import audit_details
from wakeful.service.jobs.job_factory import JobFactory
from wakeful.service.jobs.revision_rules import new_revision
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import InternalChange, InternalRules
from wakeful.store.job_changes import schedule_change
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_from_row
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS
from wakeful.values.json_value import Json, compact

_LABELS: Final[dict[str, Json]] = json.loads(HEARTBEAT_LABELS)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of a document: `text` is stored with the agent, `job` is the document of its job."""

    text: str | None = None
    job: Mapping[str, Json] | None = None


NO_HEARTBEAT: Final = Heartbeat()


class Heartbeats:
    """Decides about heartbeat jobs, in the transaction that writes their agent."""

    def __init__(self, store: Store, factory: JobFactory) -> None:
        self._store = store
        self._factory = factory

    def read(self, value: object, tz: str | None, channel: str | None) -> Heartbeat:
        """Read the `heartbeat` of a document; `tz` and `channel` are those of its agent."""
        try:
            beat = heartbeat(value)
        except InvalidArgument as error:
            raise _refused(error) from error
        if beat is None:
            return NO_HEARTBEAT
        about: dict[str, Json] = {"description": "Lets its agent look around by itself.", "labels": _LABELS}
        return Heartbeat(compact(beat), {"name": HEARTBEAT, **heartbeat_job(beat, tz, channel), **about})

    def rules(self, principal: Principal, context: JobContext, beat: Heartbeat) -> InternalRules:
        """Return what creates, changes or deletes the heartbeat job to match.

        The same heartbeat again changes nothing: not the pause, nor the next tick.
        """
        return {HEARTBEAT: partial(self._decide, principal, context, beat.job)}

    @staticmethod
    def owns(row: JobRow) -> bool:
        """Return whether a job is a heartbeat, and not a user's job of that name."""
        return row.name == HEARTBEAT and row.labels == HEARTBEAT_LABELS

    def _decide(
        self,
        principal: Principal,
        context: JobContext,
        document: Mapping[str, Json] | None,
        row: JobRow | None,
    ) -> InternalChange | None:
        def entry(action: str, details: str = "{}") -> AuditEntry:
            return principal.entry(context.workspace, action, f"{context.agent}/{HEARTBEAT}", details)

        if document is None:
            owned = row is not None and self.owns(row)
            return InternalChange(delete=True, entry=entry("job.delete")) if owned else None
        if row is not None and not self.owns(row):
            raise InvalidArgument(
                f"heartbeat: agent '{context.agent}' has a job '{HEARTBEAT}' that is not a heartbeat; "
                "delete or rename it"
            )
        now_ms, about = self._store.clock.now_ms(), audit_details(document)
        try:
            made = self._factory.make(context, document, now_ms, principal.creator)
            if row is None:
                return InternalChange(add=made.row, entry=entry("job.create", about))
            change = _changed(principal, context, document, row, now_ms)
        except InvalidArgument as error:
            raise _refused(error) from error
        return None if change is None else InternalChange(change=change, entry=entry("job.update", about))


def _changed(
    principal: Principal, context: JobContext, document: Mapping[str, Json], row: JobRow, now_ms: int
) -> JobChange | None:
    """Return the change of a heartbeat to match the document. What it inherits is written already."""
    old = job_from_row(row)
    definition = read_definition(document, now_ms=now_ms, defaults=context.defaults, old=old.definition)
    definition = replace(definition, work=inherit(definition.work, context.target))
    if changed_row(row, replace(old, definition=definition)) == row:
        return None
    new = changed_row(row, edit_job(old, definition, now_ms))
    revision = new_revision(old.definition, definition, principal.creator)
    return schedule_change(row, new, now_ms)._replace(revision=revision)


def _refused(error: InvalidArgument) -> InvalidArgument:
    return InvalidArgument("\n".join(f"heartbeat: {line}" for line in error.message.splitlines()))
