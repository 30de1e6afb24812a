"""Subscriptions to MCP events. Each has an internal job, and its deliveries are runs of that job.

`subscriptions` has one row per subscription (`SubscriptionRow`), also after its end until it is pruned. The
secret that signs its deliveries is the secret of its job. A subscription and its job are written and ended
in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from wakeful.run.run import NewRun
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry, always
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import fields_before, insert, select_list
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql.base import Recorded, reads, writes
from wakeful.store.sql.changelog import SqlChangelog
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.sql.event_figures import EventFigures, event_figures
from wakeful.store.sql.people import key_end

#: The reason of an active subscription that lost events: its callback will be told.
GAP: Final = "gap"


class EventsMoved(Exception):
    """Events later than those that a subscription shall begin with are runs already."""


class EventPosition(NamedTuple):
    """How far events are runs."""

    #: the number of the last change whose events are runs
    change: int
    #: no run of them is scheduled later, and all of the following ones are: serial runs are in that order
    at_ms: int


class SubscriptionRow(NamedTuple):
    """A subscription to an event."""

    id: str
    workspace: str
    #: the agent that owns the job
    agent: str
    #: who subscribed, as in the audit
    principal: str
    event: str
    #: compact JSON
    arguments: str
    url: str
    job_id: str
    #: changes up to this number are not for it
    position: int
    created_ms: int
    refreshed_ms: int
    #: when it ends unless it is refreshed; None: never
    expires_ms: int | None = None
    ended_ms: int | None = None
    reason: str | None = None
    #: only in lists: the state and the time of its newest delivery
    last_state: str | None = None
    last_ms: int | None = None
    #: only of subscribers: whether its job is paused
    is_paused: bool = False

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.ended_ms is None


#: The fields that are columns.
_STORED: Final = fields_before(SubscriptionRow, "last_state")
_COLUMNS: Final = select_list(_STORED, "s", {"job_id": "s.job_id::text"})
#: the primary key
SUBSCRIPTION: Final = f"SELECT {_COLUMNS} FROM subscriptions s WHERE id = $1"
#: the primary key
LOCK_SUBSCRIPTION: Final = f"{SUBSCRIPTION} FOR UPDATE"
#: subscriptions_of_workspace: a range of it, backwards; for each, the end of runs_of_job
SUBSCRIPTIONS: Final = f"""
    SELECT {_COLUMNS},
        (SELECT state FROM runs r WHERE r.job_id = s.job_id ORDER BY r.id DESC LIMIT 1),
        (SELECT coalesce(finished_at, started_at, r.created_at) FROM runs r WHERE r.job_id = s.job_id
            ORDER BY r.id DESC LIMIT 1)
    FROM subscriptions s
    WHERE workspace = $1 AND (created_at < $2 OR created_at = $2 AND id < $3)
        AND ($4 = '' OR agent = $4) AND ($5 = '' OR principal = $5)
    ORDER BY created_at DESC, id DESC LIMIT $6"""
#: the primary key
DELETE_SUBSCRIPTION: Final = "DELETE FROM subscriptions WHERE id = $1"
ADD_SUBSCRIPTION: Final = insert("subscriptions", _STORED)
#: the primary key
REFRESH: Final = "UPDATE subscriptions SET refreshed_at = $2, expires_at = $3 WHERE id = $1"
#: the primary key
END: Final = "UPDATE subscriptions SET ended_at = $2, reason = $3 WHERE id = $1"
#: subscriptions_expires: its beginning
EXPIRED: Final = """
    SELECT id FROM subscriptions WHERE ended_at IS NULL AND expires_at IS NOT NULL AND expires_at <= $1
    ORDER BY expires_at LIMIT $2"""
#: runs_waiting (SQLite), live_runs_of_job (PostgreSQL)
WAITING_RUNS: Final = Texts(
    sqlite="""
    SELECT id FROM runs INDEXED BY runs_waiting WHERE job_id = $1 AND state IN ('pending', 'retrying')""",
    postgresql="SELECT run_id::text FROM live_runs WHERE job_id = $1 AND state IN ('pending', 'retrying')",
)
#: subscriptions_of_event, all of it; for each, a part of runs_waiting (SQLite), live_runs_of_job (PostgreSQL)
FULL: Final = Texts(
    sqlite="""
    SELECT s.id FROM subscriptions s INDEXED BY subscriptions_of_event WHERE s.ended_at IS NULL AND (
        SELECT 1 FROM runs r INDEXED BY runs_waiting
        WHERE r.job_id = s.job_id AND r.state IN ('pending', 'retrying') LIMIT 1 OFFSET $1) IS NOT NULL""",
    postgresql="""
    SELECT s.id FROM subscriptions s WHERE s.ended_at IS NULL AND (
        SELECT 1 FROM live_runs l
        WHERE l.job_id = s.job_id AND l.state IN ('pending', 'retrying') LIMIT 1 OFFSET $1) IS NOT NULL""",
)
#: the primary key
POSITION: Final = "SELECT position, at FROM event_position WHERE id = 1"
#: the primary key; writes nothing if there is a row
BEGIN_FEEDING: Final = "INSERT INTO event_position (id, position) VALUES (1, $1) ON CONFLICT DO NOTHING"
#: the primary key
LOCK_POSITION: Final = f"{POSITION} FOR UPDATE"
#: the primary key. The replica that moves the position writes the runs; a new subscription changes `at`
MOVE_POSITION: Final = """
    UPDATE event_position SET position = $3, at = $4 WHERE id = 1 AND position = $1 AND at = $2"""
#: subscriptions_of_event: a range of it for each workspace and event; the primary key of jobs for each
SUBSCRIBERS: Final = f"""
    SELECT {_COLUMNS}, j.enabled
    FROM unnest($1::text[], $2::text[]) w (in_workspace, named)
    /*+ CROSS */ JOIN subscriptions s ON s.workspace = w.in_workspace AND s.event = w.named
    /*+ CROSS */ JOIN jobs j ON j.id = s.job_id
    WHERE s.ended_at IS NULL"""
#: the primary key, once for each
LOSE: Final = f"""
    UPDATE subscriptions SET reason = '{GAP}'
    WHERE id = ANY($1::text[]) AND ended_at IS NULL AND reason IS NULL"""
#: subscriptions_of_event, all of it; the primary key of jobs for each
LOST: Final = f"""
    SELECT {_COLUMNS}
    FROM subscriptions s /*+ CROSS */ JOIN jobs j ON j.id = s.job_id
    WHERE s.ended_at IS NULL AND s.reason = '{GAP}'
        AND (j.enabled OR j.disabled_reason = 'no_more_ticks') LIMIT $1"""
#: the primary key. The replica that changes it writes the run
TELL: Final = f"""
    UPDATE subscriptions SET reason = NULL WHERE id = $1 AND ended_at IS NULL AND reason = '{GAP}'"""
#: subscriptions_of_event, all of it
SUBSCRIBED: Final = "SELECT DISTINCT event FROM subscriptions WHERE ended_at IS NULL"
#: the primary key, once for each. A transaction that ends one waits, and then cancels its new runs
HOLD: Final = """
    SELECT id FROM subscriptions WHERE id = ANY($1::text[]) AND ended_at IS NULL ORDER BY id FOR SHARE"""
#: subscriptions_ended: a range of it
PRUNE: Final = "DELETE FROM subscriptions WHERE ended_at IS NOT NULL AND ended_at < $1"

#: later than every subscription
_LATEST_MS: Final = 253_000_000_000_000


async def subscription(session: SqlSession, subscription_id: str) -> SubscriptionRow | None:
    """Return the subscription of that id, also if it has ended."""
    row = await session.row(SUBSCRIPTION, subscription_id)
    return None if row is None else SubscriptionRow(*row)


async def subscriptions(
    session: SqlSession,
    workspace: str,
    agent: str | None,
    principal: str | None = None,
    after: tuple[int, str] | None = None,
    limit: int = 100,
) -> list[SubscriptionRow]:
    """Return subscriptions of a workspace, an agent or a principal, the newest first.

    `after` is the creation time and the id of the last one of the page before.
    """
    begin = after or (_LATEST_MS, "")
    rows = await session.rows(SUBSCRIPTIONS, workspace, *begin, agent or "", principal or "", limit)
    return [SubscriptionRow(*row) for row in rows]


async def expired(session: SqlSession, now_ms: int, limit: int) -> list[str]:
    """Return the ids of active subscriptions that have expired."""
    return await session.column(EXPIRED, now_ms, limit)


async def full(session: SqlSession, most: int) -> list[str]:
    """Return the ids of active subscriptions with more waiting deliveries."""
    return await session.column(FULL, most)


async def event_position(session: SqlSession) -> EventPosition | None:
    """Return up to which change events are runs; None: nobody ever subscribed to changes."""
    row = await session.row(POSITION)
    return None if row is None else EventPosition(*row)


async def subscribers(session: SqlSession, wanted: Sequence[tuple[str, str]]) -> list[SubscriptionRow]:
    """Return the active subscriptions to these events, each a workspace and a name."""
    rows = await session.rows(SUBSCRIBERS, *map(list, zip(*wanted, strict=True)))
    return [SubscriptionRow(*row)._replace(is_paused=not is_enabled) for *row, is_enabled in rows]


async def subscribed_events(session: SqlSession) -> list[str]:
    """Return the names of the events that somebody is subscribed to."""
    return await session.column(SUBSCRIBED)


async def lose(session: SqlSession, subscription_id: str) -> int:
    """Record that an active subscription lost events: its callback will be told."""
    return await session.execute(LOSE, [subscription_id])


async def lost(session: SqlSession, limit: int) -> list[SubscriptionRow]:
    """Return active subscriptions whose callbacks must be told that events were lost."""
    return [SubscriptionRow(*row) for row in await session.rows(LOST, limit)]


async def prune(session: SqlSession, before_ms: int) -> int:
    """Delete subscriptions that ended before. Returns how many."""
    return await session.execute(PRUNE, before_ms)


async def _begin_feeding(session: SqlSession, last: int, position: int, runs: Sequence[NewRun] | None) -> int:
    """Return the position of a new subscription: no later change is fed without it, and after its `runs`."""
    begin = last if runs is None else position
    await session.execute(BEGIN_FEEDING, begin)
    (row,) = await session.rows(LOCK_POSITION)
    fed = EventPosition(*row)
    if runs is not None and fed.change > begin:
        raise EventsMoved
    at_ms = max([fed.at_ms + 1, *(run.scheduled_ms for run in runs or ())])
    await session.execute(MOVE_POSITION, *fed, fed.change, at_ms)  # a batch without it is not written
    return max(begin, fed.change)


class SqlSubscriptions(SqlChangelog):
    """Subscriptions to MCP events."""

    subscription = reads(subscription)

    subscriptions = reads(subscriptions)

    async def subscribe(
        self,
        row: SubscriptionRow,
        job: JobRow,
        entries: Callable[[SubscriptionRow], Sequence[AuditEntry]],
        allowance: Allowance | None = None,
        inherited: Inherited | None = None,
        runs: Sequence[NewRun] | None = None,
    ) -> SubscriptionRow:
        """Add the subscription and its job, or refresh the active one of this id; return it.

        It gets the changes from now on, or after its position and these `runs` for those before;
        EventsMoved: others are runs already. A refreshed one keeps its job and its position, and gets the
        expiry and the secret. None lasts longer than the key that subscribes, or than what its person may
        give to it. Quotas are charged as by `create_jobs`. AgentChanged: the agent has something else than
        `inherited` now. Topics: `jobs`, `runs`.
        """
        now_ms, last = self.clock.now_ms(), await self.last_change()

        async def write(db: Any, events: TransactionEvents) -> SubscriptionRow:
            session = self._driver.session(db)
            await session.lock_name(f"subscription:{row.id}")
            key_end_ms = await key_end(session, row.principal, now_ms)
            ends = [ms for ms in (row.expires_ms, key_end_ms) if ms is not None]
            new = row._replace(expires_ms=min(ends, default=None))
            old = await subscription(session, row.id)
            if old is not None and old.is_active and await self._follow(db, events, old, job):
                await session.execute(REFRESH, old.id, new.refreshed_ms, new.expires_ms)
                return old._replace(refreshed_ms=new.refreshed_ms, expires_ms=new.expires_ms)
            await session.execute(DELETE_SUBSCRIPTION, row.id)
            expected = None if inherited is None else {(row.workspace, row.agent): inherited}
            await self._operations.jobs.create_jobs(db, events, now_ms, [job], allowance, expected)
            if job.timing is None:  # its events come from the changelog
                new = new._replace(position=await _begin_feeding(session, last, row.position, runs))
            await session.execute(ADD_SUBSCRIPTION, *new[: len(_STORED)])
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return new

        return await self._record(Recorded(entries, always), write)

    async def _follow(self, db: Any, events: TransactionEvents, old: SubscriptionRow, job: JobRow) -> bool:
        """Give the job of a subscription the secret of `job`. Returns whether there is a job."""

        def change(row: JobRow) -> JobChange:
            return JobChange(row._replace(secret=job.secret, updated_ms=job.updated_ms))

        found, _ = await self._operations.jobs.change_job(db, events, self.clock, old.job_id, change, None)
        return found is not None

    async def end_subscription(
        self, subscription_id: str, reason: str, entries: Sequence[AuditEntry] = ()
    ) -> SubscriptionRow | None:
        """End an active subscription: delete its job and cancel its waiting runs. Topic: `runs`.

        Returns it as it was before, with the reason: `key_ended` if it expired with its key. None: there is
        no active one.
        """
        now_ms = self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> SubscriptionRow | None:
            session = self._driver.session(db)
            found = await session.row(LOCK_SUBSCRIPTION, subscription_id)
            old = None if found is None else SubscriptionRow(*found)
            if old is None or not old.is_active:
                return None
            old = old._replace(reason=reason)
            if reason == "expired":
                key_end_ms = await key_end(session, old.principal, now_ms)
                if key_end_ms is not None and key_end_ms <= now_ms:
                    old = old._replace(reason="key_ended")
            waiting = await session.column(WAITING_RUNS, old.job_id)
            cancelled = [(run_id, "subscription_ended") for run_id in waiting]
            await self._operations.runs.cancel_runs(db, events, now_ms, cancelled)
            await self._operations.jobs.delete_job(
                db, events, self.clock, old.job_id, now_ms, "subscription_ended", lambda job: ()
            )
            await session.execute(END, old.id, now_ms, old.reason)
            return old

        return await self._record(Recorded(entries, lambda old: old is not None), write)

    expired_subscriptions = reads(expired)
    full_subscriptions = reads(full)
    event_position = reads(event_position)
    subscribers = reads(subscribers)

    subscribed_events = reads(subscribed_events)

    async def feed(
        self,
        before: EventPosition,
        position: EventPosition,
        runs: Sequence[tuple[str, NewRun]],
        lost: Collection[str] = (),
    ) -> bool:
        """Move the position from `before`, and add the runs whose subscriptions (ids) are active.

        `lost` are subscriptions that lose events, because their jobs are paused.

        False: the position is another one, and nothing is written. Changes after it are not pruned.
        """
        now_ms = self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> bool:
            session = self._driver.session(db)
            if not await session.execute(MOVE_POSITION, *before, *position):
                return False
            held = set(await session.column(HOLD, sorted({identity for identity, _ in runs}))) if runs else ()
            added = [run for identity, run in runs if identity in held]
            if added:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, added)
            if lost:
                await session.execute(LOSE, sorted(lost))
            return True

        return await self._driver.write(write)

    async def tell_gap(self, subscription_id: str, run: NewRun) -> bool:
        """Add the run that tells a subscription of lost events. False: another replica did, or it ended."""
        now_ms = self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> bool:
            if not await self._driver.session(db).execute(TELL, subscription_id):
                return False
            await self._operations.insert_runs.insert_runs(db, events, now_ms, [run])
            return True

        return await self._driver.write(write)

    async def event_figures(self, workspace: str | None) -> EventFigures:
        """Return the figures of subscriptions and event sources of a workspace; None: of all."""
        await self._number_changes()  # those without a number wait for the feeder, too
        return await self._read(event_figures, workspace)

    lose_events = writes(lose)
    lost_subscriptions = reads(lost)
    prune_subscriptions = writes(prune)
