"""Which jobs a list shows, or an operation is about: a filter, several named jobs, or one by name or id.

A label filter is `team=ops`, or `team` for any value. An id is looked up before a name, because a name may
have the form of an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard, get_args

from wakeful.document.kinds import LONGEST_LABEL
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, WakefulError
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import is_internal
from wakeful.signal.event_catalog import is_event_job
from wakeful.store.internal_jobs import INTERNAL_JOBS
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
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
FIELDS: Final = ("q", "state", "creator", "createdBy", "schedule", "target", "internal")
#: The values of fields that have few.
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "state": JOB_STATES,
    "creator": CREATORS,
    "schedule": SCHEDULE_KINDS,
    "internal": ("show", "hide"),
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
    #: `hide`: without internal jobs
    internal: str | None = None

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
            internal=self.internal != "hide",
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
        texts["internal"],
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


# --- several jobs ----------------------------------------------------------------------------------

#: The most jobs of one operation.
MAX_JOBS: Final = 10_000
#: The most characters of their rows, without payloads, which may be large and are not needed.
MAX_CHARACTERS: Final = 32_000_000
_PAGE: Final = 500
_HOW: Final = (
    'select jobs: {"jobs": ["digest", "ops/tidy"]} by name or id, {"agent": "ops"}, '
    '{"label": ["team=ops"]}, {"state": "failing"}, or {"all": true}'
)


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Which jobs: `jobs` by name, `agent/name` or id; else those that the filter finds."""

    jobs: tuple[str, ...] = ()
    #: with `jobs`: its agent is that of names without one
    only: JobQuery = field(default_factory=JobQuery)

    @property
    def agent(self) -> str | None:
        """The agent that is named."""
        return self.only.agent


def read_selection(document: Mapping[str, object]) -> JobSelection:
    """Return the selection of a request: `jobs`, or `agent`, `label` or `labels`, a filter, or `all`.

    >>> read_selection({"agent": "ops", "label": "team=ops", "state": "paused"}).only.labels
    (('team', 'ops'),)
    """
    jobs, agent, everything = document.get("jobs"), document.get("agent"), document.get("all")
    if agent is not None and not _is_text(agent):
        raise InvalidArgument("agent: give the name of an agent")
    if everything is not None and not isinstance(everything, bool):
        raise InvalidArgument("all: write true to select every job")
    only = read_job_query(document, agent, _labels(document))
    filtered = only != JobQuery(agent)
    if jobs is not None:
        if filtered or everything:
            raise InvalidArgument("jobs: name jobs, or give a filter (label, all); not both")
        if not isinstance(jobs, list) or not jobs or not all(map(_is_text, jobs)):
            raise InvalidArgument("jobs: give a list of names or ids, such as ['digest', 'ops/tidy']")
        if len(jobs) > MAX_JOBS:
            raise InvalidArgument(f"jobs: at most {MAX_JOBS} in one request, not {len(jobs)}")
        return JobSelection(tuple(dict.fromkeys(jobs)), only)
    if agent is None and not filtered and not everything:
        raise InvalidArgument(_HOW)
    return JobSelection((), only)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and is_storable(value)


def _labels(document: Mapping[str, object]) -> Mapping[str, str] | Sequence[str]:
    given = document.get("label")
    if given is None:
        given = document.get("labels")
    elif document.get("labels") is not None:
        raise InvalidArgument("label, labels: give one of them")
    if given is None:
        return ()
    if isinstance(given, str):
        return [given]
    values = given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else None
    if values is None or not all(isinstance(value, str) for value in values):
        raise InvalidArgument("label: write 'name=value' or 'name', or a list of them")
    return given  # type: ignore[return-value]


async def select_jobs(
    store: Store, accounts: Accounts, principal: Principal, workspace: str, selection: JobSelection
) -> list[JobRow]:
    """Return the selected jobs without their payloads, by agent and name; named ones in their order.

    If a name is unknown, one error lists all unknown names. A filter finds no internal jobs of Wakeful.
    """
    if selection.jobs:
        return await _find_named_jobs(store, principal, workspace, selection)
    rows: list[JobRow] = []
    size = 0
    after: tuple[str, str] | None = None
    only = selection.only.filter(principal, workspace)._replace(limit=_PAGE)
    while True:
        found = await store.jobs(only._replace(after=after))
        added = [without_payload(row) for row in found if not _is_internal(row)]
        rows += added
        size += _characters(added)
        if len(rows) > MAX_JOBS or size > MAX_CHARACTERS:
            what = f"{MAX_JOBS} jobs" if len(rows) > MAX_JOBS else f"{MAX_CHARACTERS} characters of jobs"
            raise InvalidArgument(
                f"the filter selects more than {what}, the most of one request; narrow it by agent or label"
            )
        if len(found) < _PAGE:
            break
        after = found[-1].agent, found[-1].name
    if not rows and selection.agent is not None:
        await accounts.agent(workspace, selection.agent)
    return rows


async def _find_named_jobs(
    store: Store, principal: Principal, workspace: str, selection: JobSelection
) -> list[JobRow]:
    rows: dict[str, JobRow] = {}
    errors: list[WakefulError] = []
    by_id = await _jobs_by_id(store, principal, workspace, selection)
    size = _characters(by_id.values())
    for job in selection.jobs:
        try:
            row = by_id.get(job)
            if row is None:
                row = without_payload(
                    await _find_named_job(store, principal, workspace, job, selection.agent)
                )
                size += _characters([row])
            rows[row.id] = row
        except WakefulError as error:
            errors.append(error)
        if size > MAX_CHARACTERS:
            raise InvalidArgument(
                f"jobs: they have more than {MAX_CHARACTERS} characters, the most of one request; name fewer"
            )
    if errors:
        raise type(errors[0])("\n".join(error.message for error in errors))
    return list(rows.values())


async def _jobs_by_id(
    store: Store, principal: Principal, workspace: str, selection: JobSelection
) -> dict[str, JobRow]:
    """Return those jobs that are selected by their id, a few statements for all."""
    ids = [job for job in selection.jobs if is_id(job)]
    agents = {selection.agent, principal.agent} - {None}
    return {
        row.id: without_payload(row)
        for start in range(0, len(ids), _PAGE)
        for row in await store.jobs_by_ids(ids[start : start + _PAGE])
        if row.workspace == workspace and all(agent == row.agent for agent in agents)
    }


async def _find_named_job(
    store: Store, principal: Principal, workspace: str, job: str, agent: str | None
) -> JobRow:
    named, slash, name = job.partition("/")
    if slash or agent is not None:
        owner = visible_agent(principal, named if slash else agent)
        assert owner is not None
        row = await find_job(store, workspace, owner, name if slash else job)
        if row is None:
            raise no_job(job)
        return row
    return await find_job_of_any_agent(store, principal, workspace, job)


def without_payload(row: JobRow) -> JobRow:
    """Return a job without its payload: thousands of them, each with one, would fill the memory."""
    return row._replace(payload=None)


def _characters(rows: Iterable[JobRow]) -> int:
    return sum(len(part) for row in rows for part in row if isinstance(part, str))


def _is_internal(row: JobRow) -> bool:
    try:
        return is_event_job(row.name) or (
            row.name in INTERNAL_JOBS and is_internal(job_from_row(row).definition)
        )
    except InvalidArgument:  # it cannot be read: the others are found
        return True
