"""Reads jobs whose target cannot be launched, or whose output cannot be delivered, for `wakeful doctor`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final, NamedTuple

from wakeful.document import payload_from_text, work_from_text
from wakeful.errors import InvalidArgument
from wakeful.service.jobs.save_warnings import undeliverable
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter, JobRow
from wakeful.values.json_value import Json

#: How many jobs are read in all, and at once: each may be large.
MAX_JOBS: Final = 5_000
_PAGE: Final = 200


class CheckedTargets(NamedTuple):
    """What was found."""

    #: how many agents and enabled jobs have such a target of their own
    number: int
    #: those that cannot be launched: the agent or the job, and why
    broken: list[tuple[str, str]]
    #: whether there are more jobs than were read
    more: bool


async def read_targets(
    store: Store, workspace: str | None, kind: str, check: Callable[[Mapping[str, Json]], None]
) -> CheckedTargets:
    """Check the targets of that kind of a workspace, or of all (None), with the launcher of this process."""
    number, room = 0, MAX_JOBS
    broken: list[tuple[str, str]] = []

    def examine(name: str, target: Json) -> None:
        nonlocal number
        if not isinstance(target, dict) or target.get("kind") != kind:
            return
        number += 1
        try:
            check(target)
        except InvalidArgument as error:
            broken.append((name, error.message.removeprefix("target: ")))

    for place in [workspace] if workspace else [row.name for row in await store.workspaces()]:
        for agent in await store.agents(place):
            examine(f"agent {agent.name}", payload_from_text(agent.target))
        only = JobFilter(place, include_disabled=False, target_kind=kind)
        async for job in _read_jobs(store, only, room + 1):
            if room == 0:
                return CheckedTargets(number, broken, more=True)
            examine(f"{job.agent}/{job.name}", _own_target(job.work))
            room -= 1
    return CheckedTargets(number, broken, more=False)


async def read_undelivered(store: Store, workspace: str | None, channels: Collection[str]) -> list[str]:
    """Return the enabled jobs whose output cannot be delivered: their channel is missing or unknown."""
    found: list[str] = []
    room = MAX_JOBS
    for place in [workspace] if workspace else [row.name for row in await store.workspaces()]:
        of_agents = {agent.name: agent.channel for agent in await store.agents(place)}
        async for job in _read_jobs(store, JobFilter(place, include_disabled=False), room):
            room -= 1
            try:
                work = work_from_text(job.work) if '"deliver"' in job.work else None
            except InvalidArgument:  # the planner reports it
                continue
            if work is not None and work.deliver:
                channel = work.channel or of_agents.get(job.agent)
                if undeliverable(channel, channels) is not None:
                    found.append(f"{job.agent}/{job.name}")
        if room <= 0:
            break
    return found


async def _read_jobs(store: Store, only: JobFilter, most: int) -> AsyncIterator[JobRow]:
    """Yield jobs, a page at a time."""
    after: tuple[str, str] | None = None
    while most > 0:
        size = min(_PAGE, most)
        rows = await store.jobs(only._replace(after=after, limit=size))
        for row in rows:
            yield row
        if len(rows) < size:
            return
        most -= size
        after = rows[-1].agent, rows[-1].name


def _own_target(text: str) -> Json:
    """Return the target that launches the runs of a job, if it is not that of its agent."""
    try:
        work = work_from_text(text)
    except InvalidArgument:  # the planner reports it
        return None
    return None if work.inherited else dict(work.final_target or {})
