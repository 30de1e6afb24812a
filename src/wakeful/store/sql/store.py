"""One store for both databases.

`port.py` says what each method promises. Here each method names a kind of transaction and an operation, and
the driver of the database runs it. `operations.py` lists the operations that each database implements; those
that both share are in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from wakeful.errors import Unstorable
from wakeful.forecast.peaks import TimingCount
from wakeful.job.capabilities import NO_CAPABILITIES, Capabilities, capabilities_to_text
from wakeful.job.self_scheduling import ChargeRule
from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.run.alerts import Alert, AlertEvent, DueIncident, Notification
from wakeful.run.consequences import Consequences
from wakeful.run.incidents import Incident
from wakeful.run.outcome import Finished
from wakeful.run.usage import ReservationRequest, Reserved, Spent
from wakeful.store.audit import AuditEntry, always, written
from wakeful.store.changelog import ChangeRow, TransactionEvents
from wakeful.store.deliveries import Delivery, DeliveryResult
from wakeful.store.idempotency import Keyed
from wakeful.store.incidents import IncidentFilter
from wakeful.store.lane_shares import NOT_SHARED, LaneUse
from wakeful.store.migrations import check_schema, schema_error
from wakeful.store.port import NO_SLOTS, Planned, TakeNext
from wakeful.store.rows import (
    AwaitingRun,
    BeatResult,
    DueJob,
    Extension,
    JobPlan,
    RunView,
    TakenRun,
    UnfinishedRun,
)
from wakeful.store.sessions import HistoryEntry, SessionKey, SessionRule, SessionUpdate, SessionView
from wakeful.store.sql import budgets, callbacks, history, incidents, prechecks, queries
from wakeful.store.sql.admin import SqlAdmin
from wakeful.store.sql.base import Recorded
from wakeful.store.sql.driver import Session, urgent
from wakeful.store.sql.figures import SqlFigures, SqlLive
from wakeful.store.sql.hooks import SqlHooks
from wakeful.store.sql.instances import SqlInstances
from wakeful.store.sql.jobs_and_runs import SqlJobsAndRuns
from wakeful.store.sql.new_runs import TicksTaken, note_decided
from wakeful.store.sql.overviews import SqlOverviews
from wakeful.store.sql.reports import SqlReports
from wakeful.store.sql.run_counts import SqlRunCounts
from wakeful.store.sql.suggestions import SqlSuggestions
from wakeful.store.sql.verifications import SqlVerifications
from wakeful.store.sql.web_sessions import SqlWebSessions
from wakeful.store.stats import Backlog, ConnectionUse, DueRequirement, RecentRun, WorkspaceStats
from wakeful.values.stored_text import cleaned

D = TypeVar("D")

#: Changes that are further ahead were written while the clock was wrong.
_FUTURE_MS: Final = 3_600_000


class SqlStore(
    SqlAdmin[D],
    SqlJobsAndRuns[D],
    SqlInstances[D],
    SqlHooks[D],
    SqlLive[D],
    SqlRunCounts[D],
    SqlFigures[D],
    SqlSuggestions[D],
    SqlVerifications[D],
    SqlWebSessions[D],
    SqlOverviews[D],
    SqlReports[D],
):
    """A store in an SQL database. Each method is that of `port.Store`."""

    #: where the next pass of `prune` continues
    _prune_after = ""

    @property
    def kind(self) -> str:
        return self._driver.kind

    @property
    def notifies_other_processes(self) -> bool:
        return self._driver.notifies_other_processes

    @property
    def newest_schema(self) -> int:
        return self._driver.newest_schema

    async def open(self) -> None:
        await self._driver.open()

    async def schema(self) -> int:
        return await self._read(queries.schema)

    async def ping(self) -> None:
        await self.workspace("default")

    async def close(self) -> None:
        await self._driver.close()

    def listen(self, listener: Callable[[str], None]) -> None:
        self._driver.listen(listener)

    # --- planning ---------------------------------------------------------------------------------

    @urgent
    async def plan(self, until_ms: int, limit: int, decide: Callable[[DueJob], JobPlan | None]) -> Planned:
        plan, now_ms = self._operations.planning.plan, self.clock.now_ms()
        try:
            return await self._driver.write(plan, now_ms, until_ms, limit, decide)
        except TicksTaken as taken:
            await self._driver.write(self._shared(note_decided), taken.runs)
            return Planned(taken.claimed, [], repeat=True)

    @urgent
    async def next_wake_ms(self) -> int | None:
        return await self._driver.read(self._operations.planning.next_wake_ms)

    # --- running ----------------------------------------------------------------------------------

    @urgent
    async def take(
        self,
        now_ms: int,
        worker: str,
        free: Mapping[str, int],
        capabilities: Capabilities = NO_CAPABILITIES,
        prefetch: Mapping[str, int] = NO_SLOTS,
        usage: Mapping[str, LaneUse] = NOT_SHARED,
    ) -> list[TakenRun]:
        take = self._operations.leases.take
        return await self._driver.write(take, now_ms, worker, free, capabilities, prefetch, usage)

    @urgent
    async def take_suspects(
        self,
        now_ms: int,
        worker: str,
        lanes: Sequence[str],
        capabilities: Capabilities = NO_CAPABILITIES,
        limit: int = 1,
    ) -> list[TakenRun]:
        take = self._operations.leases.take_suspects
        return await self._driver.write(take, now_ms, worker, lanes, capabilities, limit)

    @urgent
    async def next_due_ms(
        self, after_ms: int, lanes: Sequence[str], capabilities: Capabilities = NO_CAPABILITIES
    ) -> int | None:
        return await self._driver.read(self._operations.leases.next_due_ms, after_ms, lanes, capabilities)

    @urgent
    async def finish(self, worker: str, finished: Sequence[Finished], consequences: Consequences) -> set[str]:
        finish, now_ms = self._operations.outcomes.finish, self.clock.now_ms()
        try:
            return await self._write(finish, self.clock, now_ms, worker, finished, consequences)
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    @urgent
    async def finish_and_take(
        self, worker: str, finished: Sequence[Finished], consequences: Consequences, take_next: TakeNext
    ) -> tuple[set[str], list[TakenRun]]:
        finish, now_ms = self._operations.leases.finish_and_take, self.clock.now_ms()
        try:
            return await self._write(finish, self.clock, now_ms, worker, finished, consequences, take_next)
        except self._driver.unstorable as error:
            raise Unstorable(f"an outcome cannot be stored: {error}") from error

    async def record_check(
        self, run_id: str, attempt: int, worker: str, context: str | None, precheck: str
    ) -> bool:
        record = self._shared(prechecks.record)
        return await self._driver.write(record, run_id, attempt, worker, context, precheck)

    async def extend_callbacks(self, extensions: Sequence[Extension]) -> set[str]:
        return await self._driver.write(self._shared(callbacks.extend), extensions)

    async def note_callback(self, run_id: str, attempt: int, problem: str | None) -> None:
        await self._driver.write(self._shared(callbacks.note), run_id, attempt, problem)

    async def awaiting_runs(self, after: str, limit: int) -> list[AwaitingRun]:
        return await self._read(callbacks.awaiting, self._driver.kind, after, limit)

    @urgent
    async def beat(
        self, worker: str, now_ms: int, holding: Sequence[str], capabilities: Capabilities | None = None
    ) -> BeatResult:
        beat = self._operations.leases.beat
        text = None if capabilities is None else capabilities_to_text(capabilities)
        lost, required = await self._driver.write_one(beat, worker, now_ms, holding, text)
        return BeatResult(lost, schema_error(required, self._driver.newest_schema))

    async def check_schema(self) -> None:
        check_schema(
            await self._driver.read(self._operations.leases.required_schema), self._driver.newest_schema
        )

    @urgent
    async def lost(self, worker: str, holding: Sequence[str]) -> set[str]:
        return await self._driver.read(self._operations.leases.lost, worker, holding)

    @urgent
    async def limit_heartbeats(self, now_ms: int) -> None:
        await self._driver.write(self._operations.leases.limit_heartbeats, now_ms)

    @urgent
    async def rescue(
        self,
        now_ms: int,
        dead_before_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
        spared_before_ms: int = 0,
    ) -> list[str]:
        rescue = self._operations.leases.rescue
        return await self._write(
            rescue, self.clock, now_ms, dead_before_ms, limit, judge, consequences, spared_before_ms
        )

    @urgent
    async def release(self, worker: str, now_ms: int, keep: Sequence[tuple[str, int]] | None = None) -> int:
        return await self._driver.write(self._operations.leases.release, worker, now_ms, keep)

    @urgent
    async def give_back(self, worker: str, now_ms: int, runs: Sequence[tuple[str, int]]) -> int:
        return await self._driver.write(self._operations.leases.give_back, worker, now_ms, runs)

    @urgent
    async def record_starts(self, worker: str, starts: Sequence[tuple[str, int, int]]) -> None:
        await self._driver.write_one(self._operations.leases.record_starts, worker, starts)

    async def prune(self, before_ms: int, limit: int) -> int:
        pruned, self._prune_after = await self._driver.write(
            self._operations.leases.prune, before_ms, limit, self._prune_after
        )
        return pruned

    # --- executors --------------------------------------------------------------------------------

    async def claim(
        self,
        now_ms: int,
        worker: str,
        workspace: str,
        agents: Sequence[str] | None,
        lanes: Sequence[str] | None,
        limit: int,
        claim_id: str | None = None,
    ) -> list[tuple[TakenRun, RunView]]:
        claim = self._operations.executors.claim
        return await self._driver.write(claim, now_ms, worker, workspace, agents, lanes, limit, claim_id)

    async def release_claims(
        self,
        now_ms: int,
        workspace: str,
        worker: str,
        runs: Sequence[tuple[str, int]] = (),
        claim_id: str | None = None,
        agent: str | None = None,
    ) -> list[str]:
        release = self._operations.executors.release_claims
        return await self._driver.write(release, now_ms, workspace, worker, runs, claim_id, agent)

    async def renew(
        self,
        now_ms: int,
        workspace: str,
        held: Sequence[tuple[str, int]],
        agent: str | None = None,
        worker: str | None = None,
        waiting: Mapping[str, str] | None = None,
    ) -> list[UnfinishedRun]:
        renew = self._operations.executors.renew
        return await self._driver.write_one(renew, now_ms, workspace, held, agent, worker, waiting or {})

    async def next_claim_ms(
        self, after_ms: int, workspace: str, agents: Sequence[str] | None, lanes: Sequence[str] | None
    ) -> int | None:
        next_ms = self._operations.executors.next_claim_ms
        return await self._driver.read(next_ms, after_ms, workspace, agents, lanes)

    @urgent
    async def expire(
        self,
        now_ms: int,
        limit: int,
        judge: Callable[[UnfinishedRun], Finished],
        consequences: Consequences,
    ) -> list[str]:
        expire = self._operations.executors.expire
        return await self._write(expire, self.clock, now_ms, limit, judge, consequences)

    # --- sessions ---------------------------------------------------------------------------------

    async def update_session(
        self,
        key: SessionKey,
        now_ms: int,
        judge: SessionRule,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[SessionUpdate] | None = None,
        charge: ChargeRule | None = None,
    ) -> SessionUpdate:
        recorded = Recorded(entries, always, keyed, charge)
        return await self._record(recorded, self._operations.sessions.update_session, key, now_ms, judge)

    async def take_turns(self, now_ms: int, limit: int, judge: SessionRule) -> int:
        return await self._driver.write(self._operations.sessions.take_turns, now_ms, limit, judge)

    async def next_turn(self, now_ms: int) -> tuple[bool, int | None]:
        return await self._read(queries.next_turn, now_ms)

    async def sessions(self, workspace: str, agent: str, after: str | None, limit: int) -> list[SessionView]:
        return await self._driver.read(self._operations.sessions.sessions, workspace, agent, after, limit)

    async def session(self, key: SessionKey) -> SessionView | None:
        return await self._driver.read(self._operations.sessions.session, key)

    async def history(
        self, key: SessionKey, before: int | None = None, limit: int = 50
    ) -> list[HistoryEntry]:
        return await self._read(history.history, key, before, limit)

    async def delete_session(
        self, key: SessionKey, now_ms: int, judge: SessionRule, entries: Sequence[AuditEntry] = ()
    ) -> SessionUpdate | None:
        delete = self._operations.sessions.delete_session
        recorded: Recorded[SessionUpdate | None] = Recorded(entries)
        return await self._record(recorded, delete, key, now_ms, judge)

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        async def prune(session: Session) -> int:
            pruned = await history.prune(session, before_ms, limit)
            if pruned < limit:  # nothing of them is left: a session that is added again starts with number 1
                await queries.prune_sessions(session, before_ms)
            return pruned

        return await self._driver.write(self._shared(prune))

    # --- deliveries -------------------------------------------------------------------------------

    async def take_deliveries(
        self, now_ms: int, worker: str, until_ms: int, limit: int, without: Sequence[str] = ()
    ) -> tuple[list[Delivery], int]:
        take = self._operations.deliveries.take_deliveries
        return await self._driver.write(take, now_ms, worker, until_ms, limit, without)

    async def finish_deliveries(
        self, now_ms: int, worker: str, results: Sequence[DeliveryResult]
    ) -> set[str]:
        # The error may quote a channel.
        storable = [
            each if each.error is None else each._replace(error=cleaned(each.error)) for each in results
        ]
        return await self._driver.write(
            self._operations.deliveries.finish_deliveries, now_ms, worker, storable
        )

    async def next_delivery_ms(self, after_ms: int) -> int | None:
        return await self._read(queries.next_delivery_ms, after_ms)

    # --- budgets and alerts -----------------------------------------------------------------------

    async def spent(self, owner: BudgetOwner, day: int) -> Spent:
        return await self._read(budgets.spent, owner, day)

    @urgent
    async def budget_blocks(self, day: int, workspace: str | None = None) -> list[BudgetBlock]:
        return await self._read(budgets.budget_blocks, day, workspace)

    @urgent
    async def budget_owners(self) -> set[BudgetOwner]:
        return await self._read(budgets.budget_owners)

    async def budget_owners_of(self, workspace: str, agents: Sequence[str]) -> set[BudgetOwner]:
        return await self._read(budgets.budget_owners_of, workspace, agents)

    async def reserve(self, now_ms: int, request: ReservationRequest) -> Reserved:
        return await self._driver.write(self._operations.usage.reserve, now_ms, request)

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[AlertEvent], Sequence[Alert]]
    ) -> int:
        async def run(db: D, events: TransactionEvents) -> int:
            session = self._driver.session(db)
            taken, runs = await budgets.take_alert_events(session, now_ms, limit, judge)
            failed = [event for event in taken if event.kind == "failed"]
            if failed:
                await incidents.adopt_failures(session, events, failed)
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return len(taken)

        return await self._driver.write(run)

    # --- incidents --------------------------------------------------------------------------------

    async def incident(self, workspace: str, incident_id: str) -> Incident | None:
        return await self._read(incidents.incident, workspace, incident_id)

    async def incidents_by_ids(self, ids: Sequence[str]) -> list[Incident]:
        return await self._read(incidents.by_ids, ids) if ids else []

    async def incidents(self, only: IncidentFilter) -> list[Incident]:
        return await self._read(incidents.incidents, only)

    async def acknowledge_incident(
        self,
        workspace: str,
        incident_id: str,
        change: Callable[[Incident], Incident | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Incident | None:
        async def run(db: D, events: TransactionEvents) -> tuple[Incident | None, bool]:
            session = self._driver.session(db)
            return await incidents.acknowledge(session, events, workspace, incident_id, change)

        recorded: Recorded[tuple[Incident | None, bool]] = Recorded(entries, written)
        incident, _ = await self._record(recorded, run)
        return incident

    async def notify_incidents(
        self, now_ms: int, limit: int, decide: Callable[[DueIncident], Notification]
    ) -> tuple[int, int | None]:
        async def run(db: D, events: TransactionEvents) -> tuple[int, int | None]:
            session = self._driver.session(db)
            taken, runs = await incidents.take_due(session, now_ms, limit, decide)
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return taken, await incidents.next_notify_ms(session)

        return await self._driver.write(run)

    async def prune_incidents(self, before_ms: int) -> None:
        await self._driver.write(self._shared(incidents.prune), before_ms)

    async def prune_budgets(self, before_ms: int) -> None:
        await self._driver.write(self._shared(budgets.prune), before_ms)

    # --- changelog and stats ----------------------------------------------------------------------

    async def _number_changes(self) -> None:
        """Number committed changes, in a database that does not number them when they are written."""

    async def changes(self, after: int, limit: int = 20) -> list[ChangeRow]:
        await self._number_changes()
        return await self._read(queries.changes, after, limit)

    async def last_change(self) -> int:
        await self._number_changes()
        return await self._driver.read(self._operations.changelog.last_change)

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        await self._number_changes()  # a pruned row without a number would leave no gap to detect
        future_ms, prune = self.clock.now_ms() + _FUTURE_MS, self._operations.changelog.prune_changes
        return await self._driver.write_one(prune, before_ms, limit, future_ms)

    async def workspace_stats(self, workspace: str, agent: str | None = None) -> WorkspaceStats:
        return await self._driver.read(self._operations.stats.workspace_stats, workspace, agent)

    async def recent_runs(
        self, workspace: str, since_ms: int, limit: int, agent: str | None = None
    ) -> list[RecentRun]:
        return await self._read(queries.recent_runs, workspace, since_ms, limit, agent)

    async def backlog(self, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
        return await self._driver.read(self._operations.stats.backlog, now_ms, alive_since_ms, agents)

    async def workers(self, since_ms: int) -> list[str]:
        return await self._read(queries.workers, since_ms)

    async def capabilities(self, since_ms: int) -> list[Capabilities]:
        return await self._read(queries.capabilities, since_ms)

    async def due_requirements(self, now_ms: int) -> list[DueRequirement]:
        return await self._driver.read(self._operations.stats.due_requirements, now_ms)

    async def expired_leases(self, workspace: str | None, before_ms: int) -> int:
        return await self._driver.read(self._operations.stats.expired_leases, workspace, before_ms)

    async def dead_letters_by_reason(self, workspace: str | None, limit: int) -> list[tuple[str, int]]:
        return await self._read(queries.dead_letters_by_reason, workspace, limit)

    async def delivery_counts(
        self, workspace: str | None, since_ms: int, limit: int
    ) -> list[tuple[str, str, int]]:
        return await self._read(queries.delivery_counts, workspace, since_ms, limit)

    async def timings(self, workspace: str, agent: str | None = None) -> list[TimingCount]:
        read = self._operations.stats.timings_page
        after: tuple[str, str] | None = ("", "")
        found: dict[tuple[str, str, int], TimingCount] = {}
        while after is not None:
            page, after = await self._driver.read(read, workspace, agent, after)
            for each in page:
                known = found.get(each[:3])
                found[each[:3]] = each if known is None else known.merged(each)
        return list(found.values())

    async def database_size(self) -> int:
        return await self._driver.read(self._operations.stats.database_size)

    async def connection_use(self) -> ConnectionUse | None:
        return None
