"""Which jobs a list shows, or an operation is about: the filter of every interface; one job by name or id.

A label filter is `team=ops`, or `team` for any value. An id is looked up before a name, because a name may
have the form of an id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from wakeful.document.kinds import LONGEST_LABEL
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.store.port import Store
from wakeful.store.rows import CREATORS, JOB_STATES, SCHEDULE_KINDS, JobFilter, JobOrder, JobRow, LabelFilter
from wakeful.values.ids import is_id
from wakeful.values.stored_text import is_storable

#: The interfaces import the order of lists from here: they do not use the store.
__all__ = [
    "CHOICES",
    "FIELDS",
    "LONGEST",
    "MAX_LABEL_FILTERS",
    "JobOrder",
    "JobQuery",
    "find_job",
    "find_job_of_any_agent",
    "no_job",
    "read_job_query",
    "read_label_filter",
    "read_order",
]

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

MAX_LABEL_FILTERS: Final = 10

#: How many jobs of one name an error lists.
_SHOWN: Final = 10


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


def read_label_filter(labels: Mapping[str, str] | Sequence[str]) -> LabelFilter:
    """Return the labels that a job must have; a text without `=` matches any value.

    >>> read_label_filter(["team=ops", "urgent"])
    (('team', 'ops'), ('urgent', None))
    """
    if isinstance(labels, Mapping):
        labels = [f"{name}={value}" for name, value in labels.items()]
    texts = [labels] if isinstance(labels, str) else labels
    if len(texts) > MAX_LABEL_FILTERS:
        raise InvalidArgument(f"label: at most {MAX_LABEL_FILTERS} labels, not {len(texts)}")
    wanted = []
    for text in texts:
        name, equals, value = text.partition("=")
        good = len(name) <= LONGEST_LABEL[0] and len(value) <= LONGEST_LABEL[1] and is_storable(text)
        if not name.strip() or not good:
            raise InvalidArgument(f"label: '{text[:64]}' is not a label; write 'name=value' or 'name'")
        wanted.append((name, value if equals else None))
    return tuple(dict.fromkeys(wanted))


async def find_job(store: Store, workspace: str, agent: str, job: str) -> JobRow | None:
    """Return the job of an agent with this id or name."""
    if is_id(job):
        row = await store.job_by_id(job)
        if row is not None and (row.workspace, row.agent) == (workspace, agent):
            return row
    return await store.job(workspace, agent, job)


async def find_job_of_any_agent(store: Store, principal: Principal, workspace: str, job: str) -> JobRow:
    """Return the job with this id, or with this name if one agent only has it.

    NotFound: the principal sees no such job. FailedPrecondition: several agents have a job of this name.
    """
    if is_id(job):
        row = await store.job_by_id(job)
        if row is not None and row.workspace == workspace and principal.agent in (None, row.agent):
            return row
    rows = await store.jobs(JobFilter(workspace, visible_agent(principal, None), name=job, limit=_SHOWN + 1))
    if not rows:
        raise no_job(job)
    if len(rows) > 1:
        names = ", ".join(f"{row.agent}/{row.name}" for row in rows[:_SHOWN])
        more = " and others" if len(rows) > _SHOWN else ""
        raise FailedPrecondition(
            f"several agents have a job '{job}': {names}{more}; name the agent, or give the id of the job"
        )
    return rows[0]


def no_job(name: str) -> NotFound:
    """Return the error for a job name or id that does not exist."""
    return NotFound(f"no job '{name}'; list the jobs to see their names")
