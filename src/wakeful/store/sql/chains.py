"""Chains of jobs (`after`): who follows whom, and that no job follows itself.

A transaction that gives a job another name or another `after` locks the chains of its agent first and checks
them last, as they will be after the commit. So two such transactions cannot make a cycle together.

Also the runs that followed from a run, and where a bounded search through runs ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from wakeful.errors import ResourceExhausted, TooManyFollowUps
from wakeful.job.job import check_chain
from wakeful.store.rows import JobRow
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import first_id, is_id

#: The most jobs that come after one job, and the most runs that follow from several outcomes in one
#: transaction: with more of them, other tenants would wait for it.
MOST_FOLLOWERS: Final = 1_000
MOST_FOLLOW_UPS: Final = 1_000
#: jobs_after: a range of it for each of the jobs
MOST_FOLLOWED: Final = """
    SELECT u.name FROM unnest($3::text[]) u (name)
    WHERE (SELECT count(*) FROM (
        SELECT 1 FROM jobs j
        WHERE j.workspace = $1 AND j.agent = $2 AND j.after_job = u.name AND j.after_job IS NOT NULL
            AND j.deleted_at IS NULL
        LIMIT $4 + 1) f) > $4
    LIMIT 1"""
#: jobs_after: a range of it
FOLLOWERS: Final = """
    SELECT j.name FROM jobs j
    WHERE j.workspace = $1 AND j.agent = $2 AND j.after_job = $3 AND j.after_job IS NOT NULL
        AND j.deleted_at IS NULL
    LIMIT $4"""
#: jobs_after: a range of it
FOLLOWER_IDS: Final = """
    SELECT j.id::text FROM jobs j
    WHERE j.workspace = $1 AND j.agent = $2 AND j.after_job = $3 AND j.after_job IS NOT NULL
        AND j.deleted_at IS NULL"""
#: jobs_name, once for each job; UNION ends at a job that was found before
BEFORE: Final = """
    WITH RECURSIVE found (name, after_job) AS (
        SELECT j.name, j.after_job FROM jobs j
        WHERE j.workspace = $1 AND j.agent = $2 AND j.name = ANY($3::text[]) AND j.deleted_at IS NULL
        UNION
        SELECT j.name, j.after_job FROM found f JOIN jobs j
            ON j.workspace = $1 AND j.agent = $2 AND j.name = f.after_job AND j.deleted_at IS NULL)
    SELECT name, after_job FROM found"""


def _after(exists: str, more: str = "") -> str:
    """Return the statement that reads jobs with `after` whose job before them exists, or does not."""
    return f"""
    SELECT f.workspace, f.agent, f.name, f.after_job FROM jobs f
    WHERE f.workspace >= $1 AND f.workspace <= $2 AND f.after_job IS NOT NULL AND f.deleted_at IS NULL
        AND {exists} (SELECT 1 FROM jobs j
        WHERE j.workspace = f.workspace AND j.agent = f.agent AND j.name = f.after_job
            AND j.deleted_at IS NULL {more})
    LIMIT $3"""


#: jobs_after, all of it, and jobs_name, once for each
DANGLING: Final = _after("NOT EXISTS")
#: jobs_after, all of it, and jobs_name, once for each
CHAINED: Final = _after("EXISTS", "AND j.after_job IS NOT NULL")
#: the primary key
OWNER: Final = "SELECT workspace, agent FROM jobs WHERE id = $1"


class ChainChange(Exception):
    """A change of a job affects its chain, and the chains of its agent are not locked yet."""


def most_candidates(outcomes: int) -> int | None:
    """Return how many jobs that follow from so many outcomes are read; None: all, since it is one outcome."""
    return None if outcomes == 1 else MOST_FOLLOW_UPS + 1


def check_follow_ups(candidates: int, outcomes: int) -> None:
    """Raise TooManyFollowUps if there are more than are written at once."""
    if outcomes > 1 and candidates > MOST_FOLLOW_UPS:
        raise TooManyFollowUps(f"more than {MOST_FOLLOW_UPS} runs follow from {outcomes} outcomes")


def affects_chain(old: JobRow, new: JobRow) -> bool:
    """Return whether a change of a job can make a cycle, or leaves its followers without it."""
    return new.name != old.name or (new.after_job is not None and new.after_job != old.after_job)


async def lock(session: SqlSession, owners: Iterable[tuple[str, str]]) -> None:
    """Lock the chains of these agents (workspace, agent). It is the first lock of a transaction."""
    for workspace, agent in sorted(set(owners)):
        await session.lock_name(f"chains:{workspace}/{agent}")


async def lock_of_job(session: SqlSession, job_id: str) -> None:
    """Lock the chains of the agent of this job."""
    owner = await session.row(OWNER, job_id) if is_id(job_id) else None
    if owner is not None:
        workspace, agent = owner
        await lock(session, [(workspace, agent)])


async def check(session: SqlSession, written: Sequence[JobRow]) -> None:
    """Raise InvalidArgument if one of these jobs, as they are written, comes after itself.

    ResourceExhausted: too many jobs come after one.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for row in written:
        if row.after_job is not None:
            names.setdefault((row.workspace, row.agent), []).append(row.name)
    for (workspace, agent), starts in names.items():
        after = await jobs_before(session, workspace, agent, starts)
        for name in starts:
            check_chain(name, after)
        upstream = sorted({after[name] or "" for name in starts})
        full = await session.value(MOST_FOLLOWED, workspace, agent, upstream, MOST_FOLLOWERS)
        if full is not None:
            raise ResourceExhausted(
                f"after: {MOST_FOLLOWERS} jobs come after '{full}' already, which is the most; let one of "
                "them start the others"
            )


async def jobs_before(
    session: SqlSession, workspace: str, agent: str, names: Sequence[str]
) -> dict[str, str | None]:
    """Return those of these jobs that exist and the jobs before them, each with its `after`."""
    return dict(map(tuple, await session.rows(BEFORE, workspace, agent, list(names))))


async def followers(session: SqlSession, workspace: str, agent: str, name: str, limit: int) -> list[str]:
    """Return the names of the jobs that fire after the job of that name (`after`)."""
    return sorted(await session.column(FOLLOWERS, workspace, agent, name, limit))


async def follower_ids(session: SqlSession, workspace: str, agent: str, name: str) -> list[str]:
    """Return the ids of the jobs that fire after a job."""
    return await session.column(FOLLOWER_IDS, workspace, agent, name)


async def dangling(session: SqlSession, workspace: str | None, limit: int) -> list[tuple[str, str, str, str]]:
    """Return jobs that come after one that does not exist: workspace, agent, name, and that name.

    Without a workspace, those of all workspaces.
    """
    rows = await session.rows(DANGLING, workspace or "", workspace or "~", limit)
    return [(of_workspace, agent, name, after) for of_workspace, agent, name, after in rows]


async def chained_jobs(
    session: SqlSession, workspace: str | None, limit: int
) -> list[tuple[str, str, str, str]]:
    """Return jobs that come after one that comes after another, as `dangling_jobs` does.

    Jobs that come after each other are among them.
    """
    rows = await session.rows(CHAINED, workspace or "", workspace or "~", limit)
    return [(of_workspace, agent, name, after) for of_workspace, agent, name, after in rows]


#: Where the signals of a run are: recorded shortly after it ended, among so many runs.
_BEFORE_MS: Final = 1_000
_AFTER_MS: Final = 5_000
_NEARBY: Final = 5_000
#: runs_replay_of
REPLAYS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.replay_of = $1 AND r.replay_of IS NOT NULL ORDER BY r.id LIMIT $2"""
#: runs_follow_up
FOLLOW_UPS: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.triggered_by = $1 AND r.trigger IN ('chain', 'heartbeat', 'alert') ORDER BY r.id LIMIT $2"""
#: runs_of_workspace: a range of it. A run sends its signals in the transaction that ends it
SIGNALS: Final = """
    SELECT s.id::text FROM (
        SELECT r.id, r.triggered_by FROM runs r
        WHERE r.workspace = $1 AND r.id >= $2 AND r.id < $3 ORDER BY r.id LIMIT $4) s
    WHERE s.triggered_by = $5 ORDER BY s.id LIMIT $6"""
#: runs_of_workspace: a range of it, backwards
HORIZON: Final = """
    SELECT r.id::text FROM runs r
    WHERE r.workspace = $1 AND r.id < $2 ORDER BY r.id DESC LIMIT 1 OFFSET $3"""


async def follow_up_ids(session: SqlSession, run_id: str, limit: int) -> list[str]:
    """Return the ids of the runs that a run caused, and of its replays, in order."""
    if not is_id(run_id):
        return []
    replays = await session.column(REPLAYS, run_id, limit)
    return sorted([*replays, *await session.column(FOLLOW_UPS, run_id, limit)])[:limit]


async def signal_ids(
    session: SqlSession, workspace: str, run_id: str, ended_ms: int, limit: int
) -> list[str]:
    """Return the ids of the signals that a run sent when it ended, as far as they are found nearby."""
    since, until = first_id(max(0, ended_ms - _BEFORE_MS)), first_id(ended_ms + _AFTER_MS)
    return await session.column(SIGNALS, workspace, since, until, _NEARBY, run_id, limit)


async def horizon(session: SqlSession, workspace: str, before: str, count: int) -> str | None:
    """Return the id of the run that is `count` runs older than the id `before`; None: there are fewer.

    A search for runs that no index finds is limited to the runs after it (`RunFilter.since`).
    """
    return await session.value(HORIZON, workspace, before, count) if is_id(before) else None
