"""Quotas: who is charged for new jobs, which limit applies, and what a store does with them.

A bucket belongs to an owner: (workspace, agent), where the agent '' stands for the whole workspace. The table
`quotas` holds limits and use. A limit that is set there takes precedence over the installation's default.
The functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from wakeful.errors import ResourceExhausted
from wakeful.run.usage import utc_day
from wakeful.store.rows import JobRow
from wakeful.values.plural import plural

#: Counts jobs created since midnight UTC.
CREATE_JOB: Final = "scheduler.createJob"
#: Counts existing jobs, without deleted ones. Only its limit is stored.
LIVE_JOBS: Final = "scheduler.liveJobs"
#: Counts instances of agent classes. Only its limit is stored.
INSTANCES: Final = "instances"
BUCKETS: Final = (CREATE_JOB, LIVE_JOBS, INSTANCES)
#: The buckets whose use is counted, not stored.
_COUNTED: Final = (LIVE_JOBS, INSTANCES)

#: (workspace, agent), or (workspace, '') for the whole workspace
QuotaOwner: TypeAlias = tuple[str, str]


class QuotaRow(NamedTuple):
    """A bucket: its limit and its use."""

    workspace: str
    #: '' for the whole workspace
    agent: str
    bucket: str
    #: None: the installation's default applies
    limit: int | None
    used: int


class Allowance(NamedTuple):
    """The installation's default limits; None is no limit."""

    #: jobs created per day
    create_per_workspace: int | None = None
    create_per_agent: int | None = None
    #: jobs that exist
    live_per_workspace: int | None = None
    live_per_agent: int | None = None


class Charged(NamedTuple):
    """An owner's buckets after new jobs were charged: the limits that are set, and today's use."""

    workspace: str
    agent: str
    create_limit: int | None
    created: int
    live_limit: int | None


class Stored(NamedTuple):
    """A row of the table `quotas`. For LIVE_JOBS and INSTANCES, `used` is counted, not stored."""

    agent: str
    bucket: str
    limit: int | None
    used: int
    #: the day (UTC, counted from 1970) of `used`
    day: int


def owners(jobs: Iterable[JobRow]) -> list[QuotaOwner]:
    """Return the agents of these jobs, in lock order."""
    return sorted({(job.workspace, job.agent) for job in jobs})


def charges(jobs: Iterable[JobRow]) -> dict[QuotaOwner, int]:
    """Return how many jobs each owner is charged for, in lock order."""
    agents = Counter((job.workspace, job.agent) for job in jobs)
    workspaces: Counter[QuotaOwner] = Counter()
    for (workspace, _), count in agents.items():
        workspaces[workspace, ""] += count
    return dict(sorted((agents + workspaces).items()))


def check_created(charged: Iterable[Charged], added: Mapping[QuotaOwner, int], allowance: Allowance) -> None:
    """Raise ResourceExhausted if an owner has created too many jobs today."""
    for owner in charged:
        usual = allowance.create_per_agent if owner.agent else allowance.create_per_workspace
        limit = usual if owner.create_limit is None else owner.create_limit
        if limit is not None and owner.created > limit:
            new = added[owner.workspace, owner.agent]
            most = plural(limit, "job")
            raise ResourceExhausted(
                f"{_owner(owner.workspace, owner.agent)} may create {most} a day ({CREATE_JOB}): "
                f"it has created {owner.created - new} today, and {new} more would be too many; "
                f"wait until midnight UTC, or ask the operator to raise the limit",
                daily=True,
            )


def live_limits(charged: Iterable[Charged], allowance: Allowance) -> dict[QuotaOwner, int]:
    """Return the limit of existing jobs of each owner that has one."""
    limits = {}
    for owner in charged:
        usual = allowance.live_per_agent if owner.agent else allowance.live_per_workspace
        limit = usual if owner.live_limit is None else owner.live_limit
        if limit is not None:
            limits[owner.workspace, owner.agent] = limit
    return limits


def check_live(live: Mapping[QuotaOwner, int], limits: Mapping[QuotaOwner, int]) -> None:
    """Raise ResourceExhausted if an owner has too many jobs, new ones included."""
    for owner, limit in limits.items():
        if live.get(owner, 0) > limit:
            raise ResourceExhausted(
                f"{_owner(*owner)} may have {plural(limit, 'job')} ({LIVE_JOBS}), and would have more; "
                f"delete jobs that are not needed any more, or ask the operator to raise the limit"
            )


def list_buckets(workspace: str, stored: Iterable[Stored], now_ms: int) -> list[QuotaRow]:
    """Return all buckets of the workspace, and those of its agents that have a limit or use.

    Besides the rows of the table, `stored` has one for each agent with jobs: of LIVE_JOBS, without a limit,
    `used` being their number; and likewise of INSTANCES.
    """
    found: dict[tuple[str, str], tuple[int | None, int]] = {("", bucket): (None, 0) for bucket in BUCKETS}
    today = utc_day(now_ms)
    for agent, bucket, limit, used, day in stored:
        known, sum_ = found.get((agent, bucket), (None, 0))
        counted = used if bucket in _COUNTED or day - today in (0, 1) else 0
        found[agent, bucket] = known if limit is None else limit, sum_ + counted
        if bucket in _COUNTED and agent:
            whole, total = found["", bucket]
            found["", bucket] = whole, total + counted
    return [
        QuotaRow(workspace, agent, bucket, limit, used)
        for (agent, bucket), (limit, used) in sorted(found.items())
        if not agent or limit is not None or used
    ]


def _owner(workspace: str, agent: str) -> str:
    return f"agent '{agent}' of workspace '{workspace}'" if agent else f"workspace '{workspace}'"
