"""Which jobs a list shows, or an operation on several jobs is about: the same filter in every interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.jobs.label_filter import read_label_filter
from wakeful.store.rows import CREATORS, JOB_STATES, SCHEDULE_KINDS, JobFilter, JobOrder, LabelFilter
from wakeful.values.stored_text import is_storable

#: The interfaces import the order of lists from here: they do not use the store.
__all__ = ["CHOICES", "FIELDS", "LONGEST", "JobOrder", "JobQuery", "read_job_query", "read_order"]

#: The longest text of a filter.
LONGEST: Final = 256
#: The fields of a filter besides the agent and the labels.
FIELDS: Final = ("q", "state", "creator", "createdBy", "schedule", "target")
#: The values of fields that have few.
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "state": JOB_STATES,
    "creator": CREATORS,
    "schedule": SCHEDULE_KINDS,
    "sort": get_args(JobOrder),
}


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A filter; None does not filter."""

    agent: str | None = None
    labels: LabelFilter = ()
    #: a part of `agent/name`
    q: str | None = None
    state: str | None = None
    #: `person` or `agent`
    creator: str | None = None
    created_by: str | None = None
    #: the kinds of schedule and target
    schedule: str | None = None
    target: str | None = None

    def filter(self, principal: Principal, workspace: str) -> JobFilter:
        """Return the filter of the store, limited to what the principal sees."""
        return JobFilter(
            workspace,
            visible_agent(principal, self.agent),
            labels=self.labels,
            q=self.q,
            state=self.state,
            creator=self.creator,
            created_by=self.created_by,
            schedule_kind=self.schedule,
            target_kind=self.target,
        )


def read_job_query(
    given: Mapping[str, object], agent: str | None = None, labels: Mapping[str, str] | Sequence[str] = ()
) -> JobQuery:
    """Return the filter of a request. A missing field, a null or an empty text does not filter.

    >>> read_job_query({"q": "Report", "state": "paused", "creator": ""}).q
    'report'
    >>> read_job_query({"creator": "robot"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: creator: 'robot' is not one of person, agent
    """
    texts = {field: _text(field, given.get(field)) for field in FIELDS}
    q = texts["q"]
    return JobQuery(
        agent,
        read_label_filter(labels),
        q.lower() if q else None,
        texts["state"],
        texts["creator"],
        texts["createdBy"],
        texts["schedule"],
        texts["target"],
    )


def read_order(value: object) -> JobOrder:
    """Return the order of a list: by name unless it says otherwise."""
    return "next" if _text("sort", value) == "next" else "name"


def _text(field: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not is_storable(value) or len(value) > LONGEST:
        raise InvalidArgument(f"{field}: write a text of at most {LONGEST} characters")
    text = value.strip()
    choices = CHOICES.get(field)
    if text and choices is not None and text not in choices:
        raise InvalidArgument(f"{field}: '{text[:64]}' is not one of {', '.join(choices)}")
    return text or None
