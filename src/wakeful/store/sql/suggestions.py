"""Suggestions for jobs (`wakeful.evolution.suggestion`), and the summaries of runs that they follow from.

`suggestions` has one row per suggestion. UNIQUE (job_id, rule) among open ones. A suggestion is applied and
rolled back in the transaction that changes its job (`Store.change_job`). It outlives its job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.errors import NotFound
from wakeful.evolution.rules import RunSummary
from wakeful.evolution.suggestion import Suggestion
from wakeful.store.audit import AuditEntry, was_written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import column_name, insert, select_list
from wakeful.store.rows import JobRow
from wakeful.store.sql.base import Recorded, SqlBase, publishes, reads, writes
from wakeful.store.sql.conditions import Conditions
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.values.duration import DAY, WEEK
from wakeful.values.ids import first_id, is_id

_COLUMNS: Final = select_list(Suggestion._fields, "s", {"id": "s.id::text", "job_id": "s.job_id::text"})
#: The first field that changes, and all from there on.
_FIRST: Final = Suggestion._fields.index("status")
_CHANGING: Final = ", ".join(
    f"{column_name(name)} = ${number}" for number, name in enumerate(Suggestion._fields[_FIRST:], 2)
)

#: the primary key, and suggestions_open
ADD: Final = f"{insert('suggestions', Suggestion._fields)} ON CONFLICT DO NOTHING"
#: the primary key
CHANGE: Final = f"UPDATE suggestions SET {_CHANGING} WHERE id = $1"
#: the primary key
REFRESH: Final = f"{CHANGE} AND status = 'open'"
#: the primary key
SUGGESTION: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = $1 AND s.workspace = $2"
#: the primary key, once for each
BY_IDS: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = ANY($1::uuid[])"
#: the primary key
LOCK_SUGGESTION: Final = f"SELECT {_COLUMNS} FROM suggestions s WHERE s.id = $1 FOR UPDATE"
#: the table, all of it; for each that was decided, the primary key of jobs
PRUNE: Final = """
    DELETE FROM suggestions WHERE decided_at < $1 AND (status = 'withdrawn' OR NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.id = suggestions.job_id AND j.deleted_at IS NULL))"""


class SuggestionFilter(NamedTuple):
    """Which suggestions to list; None does not filter."""

    workspace: str
    agent: str | None = None
    #: the id or the name of a job
    job: str | None = None
    statuses: tuple[str, ...] = ()
    #: only suggestions with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50


class SuggestionDecision(NamedTuple):
    """A change of a suggestion in the transaction that changes its job."""

    suggestion_id: str
    #: gets the locked suggestion, and the job afterwards; FailedPrecondition rolls everything back
    decide: Callable[[Suggestion, JobRow], Suggestion]


def list_statement(only: SuggestionFilter) -> tuple[str, list[object]]:
    """Return the statement for a list: it reads one index backwards.

    That is suggestions_of_job, suggestions_of_agent, suggestions_waiting or suggestions_of_workspace.
    """
    found = Conditions()
    found.compare("s.workspace", "=", only.workspace)
    if only.statuses:
        named = ", ".join(f"'{status}'" for status in only.statuses)
        found.add(f"s.status = {named}" if len(only.statuses) == 1 else f"s.status IN ({named})")
    where, end = found.of_jobs("s", only.agent, only.job, only.before, only.limit)
    return f"SELECT {_COLUMNS} FROM suggestions s WHERE {where} {end}", found.args


async def suggestion(session: SqlSession, workspace: str, suggestion_id: str) -> Suggestion | None:
    """Return the suggestion of that id."""
    row = await session.row(SUGGESTION, suggestion_id, workspace) if is_id(suggestion_id) else None
    return None if row is None else Suggestion(*row)


async def by_ids(session: SqlSession, ids: Sequence[str]) -> list[Suggestion]:
    """Return those of these suggestions that exist, in any order."""
    return [Suggestion(*row) for row in await session.rows(BY_IDS, list(ids))] if ids else []


async def suggestions(session: SqlSession, only: SuggestionFilter) -> list[Suggestion]:
    """Return the suggestions that match, newest first."""
    if only.before is not None and not is_id(only.before):
        return []
    statement, args = list_statement(only)
    return [Suggestion(*row) for row in await session.rows(statement, *args)]


async def write(session: SqlSession, events: TransactionEvents, changed: Sequence[Suggestion]) -> None:
    """Add suggestions, or give open ones of the same id these values. Others stay as they are.

    A second open suggestion of one rule for a job is not added.
    """
    for each in changed:  # few: most analyses change none
        if await session.execute(REFRESH, each.id, *each[_FIRST:]):
            events.record_suggestions([each.id])
        elif await session.execute(ADD, *each):
            events.record_suggestions([each.id])
            if each.status == "open":
                events.record_waiting("suggestion", [each.id])


async def change_one(
    session: SqlSession,
    events: TransactionEvents,
    workspace: str,
    suggestion_id: str,
    decide: Callable[[Suggestion], Suggestion | None],
) -> tuple[Suggestion | None, bool]:
    """Lock the suggestion and write what `decide` returns. Returns it, and whether it was written."""
    old = await _lock(session, suggestion_id)
    if old is None or old.workspace != workspace:
        return None, False
    new = decide(old)
    if new is None:
        return old, False
    await session.execute(CHANGE, new.id, *new[_FIRST:])
    events.record_suggestions([new.id])
    return new, True


async def lock(session: SqlSession, decision: SuggestionDecision) -> Suggestion:
    """Lock the suggestion that a change of a job is about."""
    found = await _lock(session, decision.suggestion_id)
    if found is None:
        raise NotFound("the suggestion was deleted meanwhile")
    return found


async def decide(session: SqlSession, decision: SuggestionDecision, locked: Suggestion, job: JobRow) -> None:
    """Write the suggestion after its job was changed."""
    new = decision.decide(locked, job)
    await session.execute(CHANGE, locked.id, *new[_FIRST:])


async def prune(session: SqlSession, before_ms: int) -> None:
    """Delete suggestions that were withdrawn before then, or decided before then if their job is gone."""
    await session.execute(PRUNE, before_ms)


async def _lock(session: SqlSession, suggestion_id: str) -> Suggestion | None:
    row = await session.row(LOCK_SUGGESTION, suggestion_id) if is_id(suggestion_id) else None
    return None if row is None else Suggestion(*row)


#: What counts: runs of a schedule, or after another job, since the job was last changed.
_RUNS: Final = """
    FROM jobs j JOIN runs r ON r.job_id = j.id
    WHERE j.id = ANY($1::uuid[]) AND r.id >= $2 AND r.id < $3 AND r.scheduled_at >= j.updated_at
        AND r.trigger IN ('schedule', 'chain') AND r.state <> 'missed'"""

#: the primary key of jobs, and a range of runs_of_job for each
COUNTS: Final = f"""
    SELECT r.job_id::text, min(r.scheduled_at), max(r.scheduled_at), count(*),
        sum(CASE WHEN r.state IN ('skipped', 'cancelled')
            AND r.reason IN ('overlap', 'queue_full', 'replaced', 'superseded') THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'succeeded' THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'failed' THEN 1 ELSE 0 END),
        sum(CASE WHEN r.state = 'failed' AND r.reason = 'timeout' THEN 1 ELSE 0 END)
    {_RUNS} GROUP BY r.job_id"""


def _texts(text: str) -> Texts:
    """Return a statement with `{took}`, from the planned start to the end, and `{late}`, to the start."""
    between = {"took": ("r.finished_at", "r.fire_at"), "late": ("r.started_at", "r.fire_at")}
    ms = {name: f"({end} - {begin})" for name, (end, begin) in between.items()}
    return Texts(
        sqlite=text.format(**ms),
        postgresql=text.format(**{name: f"(extract(epoch FROM {each}) * 1000)" for name, each in ms.items()}),
    )


#: The duration that nine of ten runs do not exceed: the primary key of jobs, and a range of runs_of_job for
#: each
DURATIONS: Final = _texts(f"""
    SELECT d.job_id::text, d.took FROM (
        SELECT r.job_id, {{took}} AS took, count(*) OVER (PARTITION BY r.job_id) AS ended,
            row_number() OVER (PARTITION BY r.job_id ORDER BY r.finished_at - r.fire_at) AS place
        {_RUNS} AND r.state IN ('succeeded', 'failed') AND r.finished_at IS NOT NULL) d
    WHERE d.place = (d.ended * 9 + 9) / 10""")
#: The delays of starts, in all and at instants when many jobs fire: the primary key of jobs, and a range of
#: runs_of_job for each. A run that was retried is left out: it has the time of its last start
DELAYS: Final = _texts(f"""
    SELECT t.job_id::text, count(*), sum(t.late), sum(CASE WHEN t.jobs >= $4 THEN 1 ELSE 0 END),
        sum(CASE WHEN t.jobs >= $4 THEN t.jobs ELSE 0 END),
        sum(CASE WHEN t.jobs >= $4 THEN t.late ELSE 0 END)
    FROM (
        SELECT r.job_id, {{late}} AS late, count(*) OVER (PARTITION BY r.fire_at) AS jobs
        {_RUNS} AND r.attempt = 1 AND r.started_at IS NOT NULL) t
    GROUP BY t.job_id""")


class Totals:
    """What the slices of the time amount to for one job."""

    def __init__(self) -> None:
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        #: ticks, overlapped, succeeded, failed, timed out
        self.counts = [0] * 5
        #: started, delays, ticks at peaks, jobs at peaks, delays at peaks
        self.delays = [0.0] * 5

    def add_counts(self, first_ms: int, last_ms: int, counts: Sequence[int]) -> None:
        """Add a row of `COUNTS`."""
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)
        self.counts = [old + int(new) for old, new in zip(self.counts, counts, strict=True)]

    def add_delays(self, delays: Sequence[float]) -> None:
        """Add a row of `DELAYS`."""
        self.delays = [old + float(new) for old, new in zip(self.delays, delays, strict=True)]

    def summary(self, duration_ms: int | None) -> RunSummary:
        """Return the summary."""
        started, late, peak_ticks, jobs, peak_late = self.delays
        ticks, overlapped, succeeded, failed, timed_out = self.counts
        return RunSummary(
            first_ms=self.first_ms,
            last_ms=self.last_ms,
            ticks=ticks,
            overlapped=overlapped,
            succeeded=succeeded,
            failed=failed,
            timed_out=timed_out,
            duration_ms=duration_ms,
            started=round(started),
            delay_ms=_mean(late, started),
            peak_ticks=round(peak_ticks),
            peak_jobs=_mean(jobs, peak_ticks),
            peak_delay_ms=_mean(peak_late, peak_ticks),
        )


async def add_slice(
    session: SqlSession,
    job_ids: Sequence[str],
    between_ms: tuple[int, int],
    peak_jobs: int,
    totals: dict[str, Totals],
) -> None:
    """Add the runs of these jobs that were created in this time."""
    first, end = map(first_id, between_ms)
    for job_id, first_ms, last_ms, *counts in await session.rows(COUNTS, list(job_ids), first, end):
        totals.setdefault(job_id, Totals()).add_counts(first_ms, last_ms, counts)
    if totals:
        for job_id, *late in await session.rows(DELAYS, list(totals), first, end, peak_jobs):
            totals[job_id].add_delays(late)


async def read_durations(
    session: SqlSession, job_ids: Sequence[str], between_ms: tuple[int, int]
) -> dict[str, int]:
    """Return the duration that nine of ten runs do not exceed, by job."""
    first, end = map(first_id, between_ms)
    rows = await session.rows(DURATIONS, list(job_ids), first, end)
    return {job_id: round(duration_ms) for job_id, duration_ms in rows}


def _mean(total: float, count: float) -> int:
    return round(total / count) if count else 0


#: How much of the runs one statement reads: those of so much time, or of so many jobs.
_SLICE_MS: Final = WEEK
_JOBS_AT_ONCE: Final = 10


class SqlSuggestions(SqlBase):
    """Suggestions."""

    suggestion = reads(suggestion)
    suggestions = reads(suggestions)
    suggestions_by_ids = reads(by_ids)

    write_suggestions = publishes(write)

    async def change_suggestion(
        self,
        workspace: str,
        suggestion_id: str,
        change: Callable[[Suggestion], Suggestion | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Suggestion | None:
        """Lock the suggestion and write what `change` returns; None leaves it. Returns it afterwards.

        Returns None if there is no such suggestion.
        """
        recorded: Recorded[tuple[Suggestion | None, bool]] = Recorded(entries, was_written)
        write = self._with_events(change_one)
        found, _ = await self._record(recorded, write, workspace, suggestion_id, change)
        return found

    async def run_summaries(
        self, job_ids: Sequence[str], since_ms: int, peak_jobs: int
    ) -> Mapping[str, RunSummary]:
        """Return what the runs of these jobs amount to since then, and since each job was last changed.

        A peak is an instant at which so many of these jobs fire. Jobs without runs are left out. The database
        computes it, a week at a time: a row for each job is read, not the runs.
        """
        end_ms = self.clock.now_ms() + DAY
        totals: dict[str, Totals] = {}
        for first_ms in range(since_ms, end_ms, _SLICE_MS) if job_ids else ():
            between = first_ms, min(first_ms + _SLICE_MS, end_ms)
            await self._read(add_slice, job_ids, between, peak_jobs, totals)
        found: dict[str, int] = {}
        overlapped = [job_id for job_id, total in totals.items() if total.counts[1]]
        for first in range(0, len(overlapped), _JOBS_AT_ONCE):
            ids = overlapped[first : first + _JOBS_AT_ONCE]
            found.update(await self._read(read_durations, ids, (since_ms, end_ms)))
        return {job_id: total.summary(found.get(job_id)) for job_id, total in totals.items()}

    prune_suggestions = writes(prune)
