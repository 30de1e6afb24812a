"""Which jobs an operation on several jobs is about: named ones, or those that a filter finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from wakeful.errors import InvalidArgument, WakefulError
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import is_internal
from wakeful.service.jobs.job_query import JobQuery, find_job, find_job_of_any_agent, no_job, read_job_query
from wakeful.store.internal_jobs import INTERNAL_JOBS
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow
from wakeful.values.ids import is_id
from wakeful.values.stored_text import is_storable

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


async def selected_jobs(
    store: Store, accounts: Accounts, principal: Principal, workspace: str, selection: JobSelection
) -> list[JobRow]:
    """Return the selected jobs without their payloads, by agent and name; named ones in their order.

    If a name is unknown, one error lists all unknown names. A filter finds no internal jobs of Wakeful.
    """
    if selection.jobs:
        return await _named_jobs(store, principal, workspace, selection)
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


async def _named_jobs(
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
                row = without_payload(await _named_job(store, principal, workspace, job, selection.agent))
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


async def _named_job(
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
    return row.name in INTERNAL_JOBS and is_internal(job_from_row(row).definition)
