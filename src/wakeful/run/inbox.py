"""The inbox: what waits for a person to decide. Pure.

An item follows from what is stored; there is no table of items:

- `verification`: a run with `verify: manual` that was reported as done
- `approval`: a job that an agent made or changed, and that a person has to approve before it has ticks
- `suggestion`: an open suggestion
- `incident`: an open incident that nobody has acknowledged

The id of an item is its kind and the id of what it is about, such as `verification:<run>`.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from wakeful.errors import InvalidArgument, NotFound
from wakeful.values.ids import is_id

InboxKind = Literal["verification", "approval", "suggestion", "incident"]
INBOX_KINDS: Final[tuple[InboxKind, ...]] = get_args(InboxKind)
#: What a person can decide. An incident is acknowledged, which is to approve it.
InboxAction = Literal["approve", "reject"]
INBOX_ACTIONS: Final[dict[InboxKind, tuple[InboxAction, ...]]] = {
    "verification": ("approve", "reject"),
    "approval": ("approve", "reject"),
    "suggestion": ("approve", "reject"),
    "incident": ("approve",),
}
#: How far items of a kind are counted.
COUNTED: Final = 1_000
#: How much of a text an item shows.
MAX_DETAIL: Final = 400


class InboxRow(NamedTuple):
    """An item, as it is read."""

    kind: InboxKind
    #: the id of the run, the job, the suggestion or the incident
    subject_id: str
    workspace: str
    agent: str
    job_id: str | None
    job_name: str | None
    #: the run that is verified, or the last that failed
    run_id: str | None
    since_ms: int
    until_ms: int | None
    #: the attempt of the run, or the version of the job; None: of an incident
    version: int | None
    #: the beginning of the output, the description, the figures as JSON, or the beginning of the error
    text: str | None
    #: the rule of a suggestion, or the cause of an incident
    what: str | None = None
    #: of a suggestion: the change as JSON
    change: str | None = None

    @property
    def id(self) -> str:
        """The id of the item."""
        return f"{self.kind}:{self.subject_id}"

    @property
    def position(self) -> tuple[int, str]:
        """Where it stands in the list, which begins with the greatest."""
        return self.since_ms, self.subject_id

    @property
    def title(self) -> str:
        """What waits, in a sentence."""
        job = f"job '{self.job_name}'" if self.job_name is not None else "a run without a job"
        if self.kind == "verification":
            return f"Confirm the work of {job} of agent '{self.agent}'"
        if self.kind == "approval":
            return f"Approve {job} of agent '{self.agent}'"
        if self.kind == "suggestion":
            return f"Better settings for {job} of agent '{self.agent}'"
        return f"{job[0].upper()}{job[1:]} of agent '{self.agent}' fails: {self.what}"


def write_position(row: InboxRow) -> str:
    """Return the position of an item as text, for the next page."""
    since_ms, subject_id = row.position
    return f"{since_ms}.{subject_id}"


def parse_position(text: str | None) -> tuple[int, str] | None:
    """Return the position of an item, or raise InvalidArgument; None for None.

    >>> parse_position("1800000000000.01980000-0000-7000-8000-000000000000")
    (1800000000000, '01980000-0000-7000-8000-000000000000')
    """
    if text is None:
        return None
    since_ms, _, subject_id = text.partition(".")
    if not (since_ms.isascii() and since_ms.isdigit() and len(since_ms) < 16 and is_id(subject_id)):
        raise InvalidArgument("cursor: use that of the previous page, or leave it out")
    return int(since_ms), subject_id


def parse_item_id(item_id: str) -> tuple[InboxKind, str]:
    """Return the kind of an item, and the id of what it is about; NotFound if it is the id of none.

    >>> parse_item_id("approval:01980000-0000-7000-8000-000000000000")
    ('approval', '01980000-0000-7000-8000-000000000000')
    """
    kind, _, subject_id = item_id.partition(":")
    for known in INBOX_KINDS:
        if kind == known and is_id(subject_id):
            return known, subject_id
    raise NotFound(f"no item '{item_id[:64]}' in the inbox; list the inbox to see the ids of its items")
