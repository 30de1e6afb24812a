"""The inbox: what waits for a person to decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from wakeful.model.codec import AgentName, Form, Id, May, Slug, resource
from wakeful.model.enums import InboxKind


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """Something that waits for a person to decide."""

    #: its kind and the id of what it is about, such as `verification:<run>`
    id: str
    kind: InboxKind
    workspace: Slug
    agent: AgentName
    job_id: Id | None
    #: the name of its job
    job: str | None
    #: the run to confirm, or the last run that failed
    run_id: Id | None
    #: what waits, in a sentence
    title: str
    #: the beginning of the output, the description, the figures in a sentence, or the beginning of the error
    detail: str | None
    #: since when it waits
    since: datetime
    #: when the decision is due: a run that is not confirmed by then has failed; None: it waits until decided
    until: datetime | None
    #: the attempt of the run, or the version of the job: send it with the decision; None: of an incident
    version: int | None
    #: the roles that may decide
    deciders: tuple[Annotated[str, Form("Role")], ...]
    #: what the caller may do: `approve`, `reject`; not in events
    may: May = field(default=(), compare=False)


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class InboxCounts:
    """How much waits for a person; each kind is counted up to 1,000."""

    total: int
    verification: int
    approval: int
    suggestion: int
    incident: int


@resource()
@dataclass(frozen=True, slots=True, kw_only=True)
class InboxDecision:
    """What a person decided about an item of the inbox."""

    #: of the item, which is no longer in the inbox
    id: str
    kind: InboxKind
    action: Annotated[str, Form("InboxAction")]
    #: of what it is about, such as `succeeded`, `retrying`, `active`, `paused`, `applied`, `acknowledged`
    state: str
