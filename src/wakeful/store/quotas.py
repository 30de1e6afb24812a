"""What a quota means: who is charged for new jobs, which limit holds, and what is said when it is reached.

Pure. A bucket belongs to an owner: (workspace, agent), where the agent '' stands for the whole workspace. A
limit that somebody set goes before the installation's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from wakeful.errors import ResourceExhausted
from wakeful.store.office import BUCKETS, CREATE_JOB, LIVE_JOBS, Allowance, QuotaRow
from wakeful.store.rows import JobRow

#: (workspace, agent), or (workspace, '') for the whole of it
Owner: TypeAlias = tuple[str, str]

_DAY_MS: Final = 86_400_000


class Charged(NamedTuple):
    """An owner's buckets once new jobs have been charged to it: the limits that were set, and today's use."""

    workspace: str
    agent: str
    create_limit: int | None
    created: int
    live_limit: int | None


class Stored(NamedTuple):
    """A row of the table `quotas`; of LIVE_JOBS, what is used is counted, not stored."""

    agent: str
    bucket: str
    limit: int | None
    used: int
    #: the day (UTC, counted from 1970) that `used` is of
    day: int


def day_of(now_ms: int) -> int:
    """The day (UTC) of that instant, counted from 1970.

    >>> day_of(86_399_999), day_of(86_400_000)
    (0, 1)
    """
    return now_ms // _DAY_MS


def owners(jobs: Iterable[JobRow]) -> list[Owner]:
    """The agents of these jobs, in the order in which they are locked."""
    return sorted({(job[1], job[2]) for job in jobs})


def charges(jobs: Iterable[JobRow]) -> dict[Owner, int]:
    """How many jobs each owner is charged for, in the order in which owners are locked."""
    agents = Counter((job.workspace, job.agent) for job in jobs)
    workspaces: Counter[Owner] = Counter()
    for (workspace, _), count in agents.items():
        workspaces[workspace, ""] += count
    return dict(sorted((agents + workspaces).items()))


def check_created(charged: Iterable[Charged], added: Mapping[Owner, int], allowance: Allowance) -> None:
    """ResourceExhausted where an owner has created more jobs today than it may."""
    for owner in charged:
        usual = allowance.create_per_agent if owner.agent else allowance.create_per_workspace
        limit = usual if owner.create_limit is None else owner.create_limit
        if limit is not None and owner.created > limit:
            new = added[owner.workspace, owner.agent]
            raise ResourceExhausted(
                f"{_whose(owner.workspace, owner.agent)} may create {_jobs(limit)} a day ({CREATE_JOB}): "
                f"it has created {owner.created - new} today, and {new} more would be too many; "
                f"wait until midnight UTC, or ask the operator to raise the limit",
                daily=True,
            )


def live_limits(charged: Iterable[Charged], allowance: Allowance) -> dict[Owner, int]:
    """How many jobs the owners may have that may not have any number."""
    limits = {}
    for owner in charged:
        usual = allowance.live_per_agent if owner.agent else allowance.live_per_workspace
        limit = usual if owner.live_limit is None else owner.live_limit
        if limit is not None:
            limits[owner.workspace, owner.agent] = limit
    return limits


def check_live(live: Mapping[Owner, int], limits: Mapping[Owner, int]) -> None:
    """ResourceExhausted where an owner has more jobs, the new ones among them, than it may."""
    for owner, limit in limits.items():
        if live.get(owner, 0) > limit:
            raise ResourceExhausted(
                f"{_whose(*owner)} may have {_jobs(limit)} ({LIVE_JOBS}), and would have more; "
                f"delete jobs that are not needed any more, or ask the operator to raise the limit"
            )


def listed(workspace: str, stored: Iterable[Stored], now_ms: int) -> list[QuotaRow]:
    """What is shown of a workspace's quotas: both buckets of its own, and of its agents what is set or used.

    `stored` has besides the table's rows one for each agent with jobs, of LIVE_JOBS and without a limit, that
    says how many they are.
    """
    found: dict[tuple[str, str], tuple[int | None, int]] = {("", bucket): (None, 0) for bucket in BUCKETS}
    today = day_of(now_ms)
    for agent, bucket, limit, used, day in stored:
        known, sum_ = found.get((agent, bucket), (None, 0))
        counted = used if bucket == LIVE_JOBS or day >= today else 0
        found[agent, bucket] = known if limit is None else limit, sum_ + counted
        if bucket == LIVE_JOBS and agent:
            whole, total = found["", LIVE_JOBS]
            found["", LIVE_JOBS] = whole, total + counted
    return [
        QuotaRow(workspace, agent, bucket, limit, used)
        for (agent, bucket), (limit, used) in sorted(found.items())
        if not agent or limit is not None or used
    ]


def _whose(workspace: str, agent: str) -> str:
    return f"agent '{agent}' of workspace '{workspace}'" if agent else f"workspace '{workspace}'"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
