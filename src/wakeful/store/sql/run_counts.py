"""Counts of finished runs, by hour and by job and day.

The counts of a job are one row for each period of 28 days, with the days as text (`read_days`): most jobs
run a few times a day, and a row for each day takes many times the space. `job_run_counts` has a row for each
day; replicas of schema 17 write it. Both are read until the latter is pruned.

They are counted after the fact, from the changelog: what a transaction finished is counted once, whatever
stops in between, because the position in the changelog and the counts change in one transaction. Runs that
finished before the first pass are counted by a scan of the table, newest first.

A run counts at the time when it finished. A missed run counts as all the ticks that it covers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from random import random
from typing import Final, NamedTuple

from wakeful.store.changelog import FINISHED
from wakeful.store.sql.base import reads, writes
from wakeful.store.sql.driver import Row, SqlSession, Texts
from wakeful.store.sql.stats import SqlStats
from wakeful.values.ids import is_id

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
#: How many days one row of a job counts.
PERIOD_DAYS: Final = 28
#: The scan of existing runs counts those that finish until so long after the first pass; the changelog is
#: read from the first pass on. So the clocks of replicas may differ by this much.
OVERLAP_MS: Final = 10_000
#: The scan begins so long after that: by then, every outcome from before is written.
SETTLED_MS: Final = 60_000
#: How many rows of the changelog a pass reads.
_ROWS: Final = 200
#: How many rows of the changelog, and how many of their runs, are added to the counts when they are read.
_TAIL_ROWS: Final = 50
_TAIL_RUNS: Final = 2_000
_TRIES: Final = 3
#: A text of more characters is compacted: about three times one with a run on each day.
_LONG_DAYS: Final = 1_000
#: The share of passes that look for such texts.
_COMPACTING: Final = 0.125
#: higher than every period
_LAST_PERIOD: Final = 1_000_000
#: higher than every id
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"


def _texts(text: str) -> Texts:
    """Return a statement with `{hour}`, `{day}` and `{took}` of a finished run."""
    hour, day = (f"floor(extract(epoch FROM finished_at) * 1000 / {ms})::integer" for ms in (HOUR_MS, DAY_MS))
    took = "greatest(0, coalesce(extract(epoch FROM finished_at - started_at) * 1000, 0))::bigint"
    return Texts(
        sqlite=text.format(
            hour=f"finished_at / {HOUR_MS}",
            day=f"finished_at / {DAY_MS}",
            took="max(0, coalesce(finished_at - started_at, 0))",
        ),
        postgresql=text.format(hour=hour, day=day, took=took),
    )


#: the primary key
POSITION: Final = "SELECT position, since_at, scanned::text FROM run_counts_position WHERE id = 1"
#: the primary key
LOCK_POSITION: Final = f"{POSITION} FOR UPDATE SKIP LOCKED"
#: the primary key: its last entry
ANY_RUN: Final = "SELECT id FROM runs ORDER BY id DESC LIMIT 1"
#: the primary key
BEGIN: Final = """
    INSERT INTO run_counts_position (id, position, since_at, scanned) VALUES (1, $1, $2, $3)
    ON CONFLICT (id) DO NOTHING"""
#: the primary key
ADVANCE: Final = "UPDATE run_counts_position SET position = $1, scanned = $2, since_at = $3 WHERE id = 1"
#: changes_seq (PostgreSQL) or the primary key (SQLite), in its order
NEW_CHANGES: Final = f"""
    SELECT seq, count, CASE WHEN kind = '{FINISHED}' THEN items END FROM changes
    WHERE seq IS NOT NULL AND seq > $1 ORDER BY seq LIMIT $2"""
#: the primary key: a range, backwards
OLDER_RUNS: Final = "SELECT id::text, state FROM runs WHERE id < $1 ORDER BY id DESC LIMIT $2"
#: changes_seq and changes_new (PostgreSQL), or the primary key (SQLite): the end
UNCOUNTED: Final = Texts(
    sqlite=f"SELECT items FROM changes WHERE seq > $1 AND kind = '{FINISHED}' ORDER BY seq LIMIT $2",
    postgresql=f"""
    (SELECT items FROM changes WHERE seq IS NOT NULL AND seq > $1 AND kind = '{FINISHED}'
        ORDER BY seq LIMIT $2)
    UNION ALL (SELECT items FROM changes WHERE seq IS NULL AND kind = '{FINISHED}' ORDER BY id LIMIT $2)""",
)
#: the primary key: a range
HOURS: Final = """
    SELECT hour, state, sum(runs)::bigint FROM run_counts WHERE workspace = $1 AND hour >= $2 AND hour < $3
    GROUP BY hour, state ORDER BY hour, state"""
#: the primary key: a range
HOURS_OF_AGENT: Final = HOURS.replace("workspace = $1", "workspace = $1 AND agent = $4")
#: the primary key: a range
DAYS: Final = """
    SELECT day, state, runs, duration_ms FROM job_run_counts WHERE job_id = $1 AND day >= $2
    ORDER BY day, state"""
#: the primary keys, once for each
ADD_HOURS: Final = _texts("""
    INSERT INTO run_counts (workspace, hour, agent, state, runs)
    SELECT workspace, {hour}, agent, state, sum(covers) FROM runs
    WHERE id = ANY($1::uuid[]) AND finished_at >= $2 AND finished_at < $3
    GROUP BY 1, 2, 3, 4
    ON CONFLICT (workspace, hour, agent, state) DO UPDATE SET runs = run_counts.runs + excluded.runs""")
#: the primary keys, once for each. What a pass counts is appended; `compact_periods` adds it up later
ADD_DAYS: Final = _texts(f"""
    INSERT INTO job_run_periods (job_id, period, days)
    SELECT job_id, day / {PERIOD_DAYS}, string_agg(' ' || (day % {PERIOD_DAYS})
        || CASE state WHEN 'skipped' THEN 'k' ELSE substr(state, 1, 1) END || runs || ',' || took, '')
    FROM (
        SELECT job_id, {{day}} AS day, state, sum(covers) AS runs, sum({{took}}) AS took FROM runs
        WHERE id = ANY($1::uuid[]) AND finished_at >= $2 AND finished_at < $3 AND job_id IS NOT NULL
            AND state IN ('succeeded', 'failed', 'cancelled', 'skipped', 'missed')
        GROUP BY 1, 2, 3) d
    GROUP BY 1, 2
    ON CONFLICT (job_id, period) DO UPDATE SET days = job_run_periods.days || excluded.days""")
#: the primary keys of runs and job_run_periods, once for each
LONG_PERIODS: Final = """
    SELECT p.job_id::text, p.period, p.days
    FROM (SELECT DISTINCT job_id FROM runs WHERE id = ANY($1::uuid[]) AND job_id IS NOT NULL) j
    /*+ CROSS */ JOIN job_run_periods p ON p.job_id = j.job_id AND length(p.days) > $2"""
#: the primary key: a range, once for each
PERIODS: Final = """
    SELECT job_id::text, period, days FROM job_run_periods
    WHERE job_id = ANY($1::uuid[]) AND period >= $2 AND period <= $3"""
#: the primary key, once for each
WRITE_PERIODS: Final = """
    INSERT INTO job_run_periods (job_id, period, days)
    SELECT p.job_id, p.period, p.days
    FROM unnest($1::uuid[], $2::integer[], $3::text[]) p (job_id, period, days)
    WHERE true ON CONFLICT (job_id, period) DO UPDATE SET days = excluded.days"""
#: the primary key, once for each
RECENT_HOURS: Final = _texts("""
    SELECT {hour}, state, agent, sum(covers) FROM runs
    WHERE id = ANY($1::uuid[]) AND finished_at >= $2 AND workspace = $3 GROUP BY 1, 2, 3""")
#: the primary key, once for each
RECENT_DAYS: Final = _texts("""
    SELECT {day}, state, sum(covers), sum({took})::bigint FROM runs
    WHERE id = ANY($1::uuid[]) AND finished_at >= $2 AND job_id = $3 GROUP BY 1, 2""")
#: run_counts_hour: its beginning
PRUNE_HOURS: Final = """
    DELETE FROM run_counts WHERE (workspace, hour, agent, state) IN (
        SELECT workspace, hour, agent, state FROM run_counts WHERE hour < $1 ORDER BY hour LIMIT $2)"""
#: job_run_counts_day: its beginning
PRUNE_DAYS: Final = """
    DELETE FROM job_run_counts WHERE (job_id, day, state) IN (
        SELECT job_id, day, state FROM job_run_counts WHERE day < $1 ORDER BY day LIMIT $2)"""
#: job_run_periods_period: its beginning
PRUNE_PERIODS: Final = """
    DELETE FROM job_run_periods WHERE (job_id, period) IN (
        SELECT job_id, period FROM job_run_periods WHERE period < $1 ORDER BY period LIMIT $2)"""

#: The states of finished runs, and their letters in the days of a period.
_LETTERS: Final = {"succeeded": "s", "failed": "f", "cancelled": "c", "skipped": "k", "missed": "m"}
_STATES: Final = {letter: state for state, letter in _LETTERS.items()}
_ENTRY: Final = re.compile(r" (\d+)([a-z])(\d+),(\d+)")


class CountedRuns(NamedTuple):
    """The result of a pass."""

    #: how many runs it counted
    runs: int
    #: whether there is more to count
    more: bool


class HourCount(NamedTuple):
    """Runs that finished within an hour (UTC, counted from 1970)."""

    hour: int
    state: str
    runs: int

    @property
    def at_ms(self) -> int:
        """The beginning of the hour."""
        return self.hour * HOUR_MS


class DayCount(NamedTuple):
    """Runs of a job that finished on a day (UTC, counted from 1970)."""

    day: int
    state: str
    runs: int
    #: the time that these runs took, added up
    duration_ms: int

    @property
    def at_ms(self) -> int:
        """The beginning of the day."""
        return self.day * DAY_MS

    def add(self, other: DayCount) -> DayCount:
        """Return the sum of two counts of one day and state."""
        return DayCount(self.day, self.state, self.runs + other.runs, self.duration_ms + other.duration_ms)


def add_to_days(days: str, count: DayCount) -> str:
    """Return the text of a period with this count added.

    An entry is the number of the day in the period, the letter of the state, the runs and their time.

    >>> add_to_days("", DayCount(PERIOD_DAYS + 3, "failed", 1, 512))
    ' 3f1,512'
    >>> add_to_days(" 3f1,512 4s1,20", DayCount(PERIOD_DAYS + 3, "failed", 2, 8))
    ' 3f3,520 4s1,20'
    """
    key = f" {count.day % PERIOD_DAYS}{_LETTERS[count.state]}"
    found = days.find(key)
    if found < 0:
        return f"{days}{key}{count.runs},{count.duration_ms}"
    begin = found + len(key)
    entry, space, rest = days[begin:].partition(" ")
    runs, duration_ms = entry.split(",")
    return f"{days[:begin]}{int(runs) + count.runs},{int(duration_ms) + count.duration_ms}{space}{rest}"


def read_days(period: int, days: str) -> Iterator[DayCount]:
    """Yield the counts of a period.

    >>> list(read_days(1, " 3f1,512"))
    [DayCount(day=31, state='failed', runs=1, duration_ms=512)]
    """
    for day, letter, runs, duration_ms in _ENTRY.findall(days):
        yield DayCount(period * PERIOD_DAYS + int(day), _STATES[letter], int(runs), int(duration_ms))


class Position(NamedTuple):
    """How far the counts are."""

    #: the last change that is counted
    change: int
    since_ms: int
    #: None: the scan is complete
    scanned: str | None

    def scans(self, now_ms: int) -> bool:
        """Return whether a pass scans the table."""
        return self.scanned is not None and now_ms >= self.since_ms + SETTLED_MS

    def is_current(self, last_change: int, now_ms: int) -> bool:
        """Return whether there is nothing to count."""
        return self.change >= last_change and not self.scans(now_ms)


#: later than every run
_END_MS: Final = 253_370_764_800_000
_BEGINNING_MS: Final = 0


async def begin(session: SqlSession, last_change: int, now_ms: int) -> None:
    """Set the first position, if there is none. `last_change` was read before.

    Without runs there is nothing to scan, and all that finish are counted from the changelog.
    """
    empty = await session.row(ANY_RUN) is None
    since_ms = _BEGINNING_MS if empty else now_ms + OVERLAP_MS
    await session.execute(BEGIN, last_change, since_ms, None if empty else _LAST_ID)


async def position(session: SqlSession) -> Position | None:
    """Return the position. None: nothing was ever counted."""
    row = await session.row(POSITION)
    return None if row is None else Position(*row)


async def count(session: SqlSession, now_ms: int, limit: int) -> CountedRuns:
    """Count runs. See `Store.count_runs`."""
    row = await session.row(LOCK_POSITION)
    if row is None:  # another process counts
        return CountedRuns(0, more=False)
    at = Position(*row)
    changes = await session.rows(NEW_CHANGES, at.change, _ROWS)
    change, run_ids, more = _page(changes, at.change, limit)
    if run_ids:
        await _add(session, run_ids, at.since_ms, _END_MS)
    counted, scanned = len(run_ids), at.scanned
    if not more and scanned is not None and at.scans(now_ms):
        older = await session.rows(OLDER_RUNS, scanned, limit)
        ended = [run_id for run_id, state in older if state in _LETTERS]
        if ended:
            await _add(session, ended, _BEGINNING_MS, at.since_ms)
        counted += len(ended)
        scanned = older[-1][0] if len(older) == limit else None
        more = scanned is not None
    if (change, scanned) != (at.change, at.scanned):
        # After the scan, what an earlier time was written for late is counted, too.
        since_ms = _BEGINNING_MS if scanned is None else at.since_ms
        await session.execute(ADVANCE, change, scanned, since_ms)
    return CountedRuns(counted, more)


def _page(changes: Sequence[Row], change: int, limit: int) -> tuple[int, list[str], bool]:
    """Return the last change of the rows that are taken, their finished runs, and whether there are more.

    At least one row is taken, and no further one that would exceed the limit.
    """
    run_ids: list[str] = []
    for seq, number, items in changes:
        if items is not None:
            if run_ids and len(run_ids) + number > limit:
                return change, run_ids, True
            run_ids += items.split("\n")
        change = seq
    return change, run_ids, len(changes) == _ROWS


async def _add(session: SqlSession, run_ids: list[str], from_ms: int, until_ms: int) -> None:
    """Add these runs to the counts, as far as they finished in this time. The position is locked."""
    await session.execute(ADD_HOURS, run_ids, from_ms, until_ms)
    if await session.execute(ADD_DAYS, run_ids, from_ms, until_ms) and random() < _COMPACTING:
        await compact_periods(session, await session.rows(LONG_PERIODS, run_ids, _LONG_DAYS))


async def compact_periods(session: SqlSession, rows: Sequence[Row]) -> None:
    """Add up the entries of each day and state in these rows of `LONG_PERIODS`."""
    if not rows:
        return
    texts = []
    for _, period, text in rows:
        days = ""
        for each in read_days(period, text):
            days = add_to_days(days, each)
        texts.append(days)
    await session.execute(WRITE_PERIODS, [row[0] for row in rows], [row[1] for row in rows], texts)


async def hours(
    session: SqlSession, workspace: str, agent: str | None, from_ms: int, until_ms: int
) -> list[HourCount]:
    """Return the counts of the hours that begin in [from_ms, until_ms), by hour and state.

    `agent` None: of all agents of the workspace. Runs that are not counted yet are added, if they are
    few; here and in `job_run_counts`.
    """
    first, end = -(-from_ms // HOUR_MS), -(-until_ms // HOUR_MS)
    given = (workspace, first, end) if agent is None else (workspace, first, end, agent)
    tail, (rows,) = await _with_tail(session, (HOURS if agent is None else HOURS_OF_AGENT, given))
    counts = Counter({(hour, state): runs for hour, state, runs in rows})
    if tail is not None:
        for hour, state, of_agent, runs in await session.rows(
            RECENT_HOURS, tail.run_ids, tail.since_ms, workspace
        ):
            if first <= hour < end and agent in (None, of_agent):
                counts[hour, state] += runs
    return [HourCount(*key, runs) for key, runs in sorted(counts.items())]


async def days(session: SqlSession, job_id: str, from_ms: int) -> list[DayCount]:
    """Return the counts of a job from the day of `from_ms` on, by day and state."""
    if not is_id(job_id):
        return []
    first = from_ms // DAY_MS
    tail, (periods, rows) = await _with_tail(
        session, (PERIODS, ([job_id], first // PERIOD_DAYS, _LAST_PERIOD)), (DAYS, (job_id, first))
    )
    found = [DayCount(*row) for row in rows]
    for _, period, text in periods:
        found += read_days(period, text)
    if tail is not None:
        recent = await session.rows(RECENT_DAYS, tail.run_ids, tail.since_ms, job_id)
        found += [DayCount(*row) for row in recent]
    counts: dict[tuple[int, str], DayCount] = {}
    for each in found:
        old = counts.get((each.day, each.state))
        counts[each.day, each.state] = each if old is None else old.add(each)
    return sorted(each for each in counts.values() if each.day >= first)


class _Tail(NamedTuple):
    """Runs that are not counted yet."""

    since_ms: int
    run_ids: list[str]


async def _with_tail(
    session: SqlSession, *statements: tuple[str, tuple[object, ...]]
) -> tuple[_Tail | None, list[Sequence[Row]]]:
    """Return the rows of statements about counts, and the runs that are not in them yet.

    PostgreSQL runs each statement on a snapshot of its own, so all are read again if there was a pass in
    between. There is no tail if it is long: then it is counted soon.
    """
    for _ in range(_TRIES):
        row = await session.row(POSITION)
        if row is None:
            return None, [() for _ in statements]
        at = Position(*row)
        items = await session.column(UNCOUNTED, at.change, _TAIL_ROWS)
        rows = [await session.rows(statement, *given) for statement, given in statements]
        after = await session.row(POSITION)
        if after is not None and after[0] == at.change:
            run_ids = "\n".join(items).split("\n") if items else []
            short = 0 < len(run_ids) <= _TAIL_RUNS
            return _Tail(at.since_ms, run_ids) if short else None, rows
    return None, rows


async def prune(session: SqlSession, before_ms: int, limit: int) -> int:
    """Delete up to `limit` counts each of older hours and days. Returns how many."""
    pruned = await session.execute(PRUNE_HOURS, before_ms // HOUR_MS, limit)
    pruned += await session.execute(PRUNE_PERIODS, before_ms // DAY_MS // PERIOD_DAYS, limit)
    return pruned + await session.execute(PRUNE_DAYS, before_ms // DAY_MS, limit)


class SqlRunCounts(SqlStats):
    """Counts of finished runs."""

    async def count_runs(self, now_ms: int, limit: int) -> CountedRuns:
        """Count finished runs that are not counted yet: about `limit` from the changelog or the table.

        Nothing is counted while another process counts.
        """
        last = await self.last_change()  # in PostgreSQL, this numbers the changes
        counted = await self._read(position)
        if counted is None:
            # Not the time from before the wait for an answer: what finished meanwhile may be in `last`.
            now_ms = max(now_ms, self.clock.now_ms())
            await self._driver.write(self._shared(begin), last, now_ms)
        elif counted.is_current(last, now_ms):
            return CountedRuns(0, more=False)
        return await self._driver.write(self._shared(count), now_ms, limit)

    run_counts = reads(hours)
    job_run_counts = reads(days)
    prune_run_counts = writes(prune)
