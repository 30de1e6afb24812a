"""Agent classes and instances: what both databases share."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from wakeful.errors import NotFound
from wakeful.job.self_scheduling import ChargeRule
from wakeful.run.instances import CLOSED, AgentClass, DeclaredSchedule, InstanceLimits, instance_id
from wakeful.run.signal_rules import Arrival
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.idempotency import Keyed
from wakeful.store.instances import (
    UNLOAD_TOPIC,
    ChangedInstance,
    DelayRow,
    InstanceFilter,
    InstanceRow,
    InstanceRule,
    InstanceView,
    Received,
)
from wakeful.store.mailbox_rules import DELAY_SOURCE, KEEP_DELAY_ID_MS, check_instances
from wakeful.store.quotas import INSTANCES
from wakeful.store.rows import JobRow
from wakeful.store.sql import erasure, jobs
from wakeful.store.sql.accounts import add_agent
from wakeful.store.sql.base import Recorded, SqlBase, publishes, reads, reads_now, writes
from wakeful.store.sql.conditions import Conditions
from wakeful.store.sql.driver import Row, SqlSession, Texts
from wakeful.values.json_value import Json

CLASS_COLUMNS: Final = "workspace, agent, version, policy, definition, hash"
#: the primary key
CLASS: Final = f"SELECT {CLASS_COLUMNS} FROM agent_classes WHERE workspace = $1 AND agent = $2"
#: the primary key. Waits for a transaction that deletes the agent, and that one for this one
HOLD_CLASS: Final = "SELECT 1 FROM agent_classes WHERE workspace = $1 AND agent = $2 FOR KEY SHARE"
#: the primary key. A class that differs in nothing is not written
PUT_CLASS: Final = """
    INSERT INTO agent_classes AS c (workspace, agent, version, policy, definition, hash, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (workspace, agent) DO UPDATE SET version = excluded.version, policy = excluded.policy,
        definition = excluded.definition, hash = excluded.hash, updated_at = excluded.updated_at
    WHERE c.version <= excluded.version AND (c.version <> excluded.version OR c.policy <> excluded.policy
        OR c.definition <> excluded.definition OR c.hash <> excluded.hash)"""
INSTANCE_COLUMNS: Final = (
    "i.id::text, i.workspace, i.agent, i.name, i.status, i.note, i.data, i.version, i.revision, i.memory, "
    "i.sequence, i.schedules_hash, i.schedules_version, i.handled_at, i.hibernated_at, i.created_at, "
    "i.updated_at"
)
#: the primary key
INSTANCE: Final = f"SELECT {INSTANCE_COLUMNS} FROM instances i WHERE i.id = $1"
#: runs_mailbox and runs_exposed, or live_runs_mailbox and live_runs_exposed, once for each. $1: now
_VIEW_COLUMNS: Final = Texts(
    sqlite=f"""{INSTANCE_COLUMNS},
    (SELECT count(*) FROM runs INDEXED BY runs_mailbox
        WHERE instance_id = i.id AND state = 'pending' AND fire_at <= $1),
    (SELECT count(*) FROM runs INDEXED BY runs_mailbox
        WHERE instance_id = i.id AND state = 'pending' AND fire_at > $1),
    (SELECT id FROM runs INDEXED BY runs_exposed WHERE instance_id = i.id
        AND (state IN ('running', 'retrying') OR state = 'pending' AND due_at IS NOT NULL)
        AND state <> 'pending')""",
    postgresql=f"""{INSTANCE_COLUMNS},
    (SELECT count(*) FROM live_runs l
        WHERE l.instance_id = i.id AND l.state = 'pending' AND l.fire_at <= $1),
    (SELECT count(*) FROM live_runs l
        WHERE l.instance_id = i.id AND l.state = 'pending' AND l.fire_at > $1),
    (SELECT l.run_id::text FROM live_runs l
        WHERE l.instance_id = i.id AND (l.state <> 'pending' OR l.due_at IS NOT NULL)
            AND l.state <> 'pending')""",
)
#: the primary key
VIEW: Final = Texts(*(f"SELECT {columns} FROM instances i WHERE i.id = $2" for columns in _VIEW_COLUMNS))
#: the primary key, once for each
VIEWS: Final = Texts(
    *(f"SELECT {columns} FROM instances i WHERE i.id = ANY($2::uuid[])" for columns in _VIEW_COLUMNS)
)
#: runs_mailbox or live_runs_mailbox: a range of it, in its order
PENDING: Final = Texts(
    sqlite="""
    SELECT id FROM runs INDEXED BY runs_mailbox WHERE instance_id = $1 AND state = 'pending'
    ORDER BY fire_at, sequence LIMIT $2""",
    postgresql="""
    SELECT run_id::text FROM live_runs WHERE instance_id = $1 AND state = 'pending'
    ORDER BY fire_at, sequence LIMIT $2""",
)
#: runs_mailbox or live_runs_mailbox: a range of it, in its order; the primary key of runs for each
DELAYS: Final = Texts(
    sqlite="""
    SELECT id, signal, fire_at FROM runs INDEXED BY runs_mailbox
    WHERE instance_id = $1 AND state = 'pending' AND fire_at > $2 AND job_id IS NULL
    ORDER BY fire_at, sequence LIMIT $3""",
    postgresql="""
    SELECT l.run_id::text, r.signal, l.fire_at FROM live_runs l JOIN runs r ON r.id = l.run_id
    WHERE l.instance_id = $1 AND l.state = 'pending' AND l.fire_at > $2 AND l.job_id IS NULL
    ORDER BY l.fire_at, l.sequence LIMIT $3""",
)
#: the primary key: a range of it
DELAY_IDS: Final = f"""
    SELECT run_id::text, id FROM signal_ids
    WHERE instance_id = $1 AND source = '{DELAY_SOURCE}' AND expires_at > $2"""
#: the primary key; every column of an `InstanceRow` in its order, but not `sequence`
ADD_INSTANCE: Final = """
    INSERT INTO instances (id, workspace, agent, name, status, note, data, version, revision, memory,
        schedules_hash, schedules_version, handled_at, hibernated_at, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"""
#: the primary key
CHANGE_INSTANCE: Final = """
    UPDATE instances SET status = $2, note = $3, data = $4, version = $5, revision = $6, memory = $7,
        schedules_hash = $8, schedules_version = $9, handled_at = $10, hibernated_at = $11, updated_at = $12
    WHERE id = $1"""
#: instances_schedules: the ranges below and above the hash
STALE: Final = """
    SELECT name FROM instances
    WHERE workspace = $1 AND agent = $2 AND schedules_hash < $3 AND schedules_version <= $4
        AND status <> 'stopped' AND status <> 'deleting'
    UNION ALL SELECT name FROM instances
    WHERE workspace = $1 AND agent = $2 AND schedules_hash > $3 AND schedules_version <= $4
        AND status <> 'stopped' AND status <> 'deleting'
    LIMIT $5"""
#: the primary key, once for each
HIBERNATE: Final = "UPDATE instances SET hibernated_at = $2 WHERE id = ANY($1::uuid[])"
#: the primary key, once for each
DELETE_INSTANCES: Final = "DELETE FROM instances WHERE id = ANY($1::uuid[])"
#: the primary key: a range of it for each. An instance of the same name has the same id, and begins anew
DELETE_SIGNAL_IDS: Final = "DELETE FROM signal_ids WHERE instance_id = ANY($1::uuid[])"
#: instances_deleting
DELETING: Final = "SELECT id::text FROM instances WHERE status = 'deleting' ORDER BY id LIMIT $1"
#: runs_of_instance: the beginning of a range of it
HAS_RUNS: Final = "SELECT 1 FROM runs WHERE instance_id = $1 LIMIT 1"
#: signal_ids_expires: its beginning; the primary key for each
PRUNE_SIGNAL_IDS: Final = """
    DELETE FROM signal_ids WHERE (instance_id, source, id) IN (
        SELECT instance_id, source, id FROM signal_ids WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)"""
#: the primary key, once for each
LIMITS: Final = """
    SELECT agent, most FROM quotas
    WHERE workspace = $1 AND agent = ANY($2::text[]) AND bucket = $3 AND most IS NOT NULL"""
#: instances_schedules: of a range of it, as many as the limit and one more
COUNT_OF_AGENT: Final = """
    SELECT count(*) FROM (SELECT 1 FROM instances
        WHERE workspace = $1 AND agent = $2 AND status <> 'stopped' LIMIT $3) counted"""
COUNT_OF_WORKSPACE: Final = """
    SELECT count(*) FROM (SELECT 1 FROM instances
        WHERE workspace = $1 AND status <> 'stopped' LIMIT $2) counted"""


# --- classes --------------------------------------------------------------------------------------------


async def put_class(session: SqlSession, agent_class: AgentClass, now_ms: int) -> AgentClass:
    """Write what the database knows of a class, unless it knows a higher version. Returns what it knows.

    The agent is added if it does not exist.
    """
    owner = agent_class.workspace, agent_class.agent
    await add_agent(session, *owner, now_ms)
    await session.execute(
        PUT_CLASS, *owner, agent_class.version, agent_class.policy, definition_text(agent_class),
        agent_class.hash, now_ms,
    )  # fmt: skip
    stored = await read_agent_class(session, *owner)
    return stored or agent_class


async def read_agent_class(session: SqlSession, workspace: str, agent: str) -> AgentClass | None:
    """Return the class of an agent."""
    row = await session.row(CLASS, workspace, agent)
    return None if row is None else read_class(row)


async def hold_class(session: SqlSession, workspace: str, agent: str) -> None:
    """Keep an agent with a class from being deleted before this transaction ends. NotFound: there is none."""
    if await session.row(HOLD_CLASS, workspace, agent) is None:
        raise NotFound(f"no agent '{agent}' that has a class: it was deleted; register the class again")


def definition_text(agent_class: AgentClass) -> str:
    """Return the column `definition` of a class, as compact JSON."""
    schedules: list[Json] = [[each.schedule_id, dict(each.document)] for each in agent_class.schedules]
    document: dict[str, Json] = {
        "mailbox": agent_class.mailbox,
        "dedupeMs": agent_class.dedupe_ms,
        "lane": agent_class.lane,
        "schedules": schedules,
        "handles": list(agent_class.handles),
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def read_class(row: Row) -> AgentClass:
    """Return a class from `CLASS_COLUMNS`."""
    workspace, agent, version, policy, definition, hash_ = row
    document = json.loads(definition)
    return AgentClass(
        workspace,
        agent,
        version,
        policy,
        document["mailbox"],
        document["dedupeMs"],
        document["lane"],
        tuple(DeclaredSchedule(schedule_id, each) for schedule_id, each in document["schedules"]),
        tuple(document["handles"]),
        hash_,
    )


# --- instances ------------------------------------------------------------------------------------------


async def find_instance(session: SqlSession, instance_id: str) -> InstanceRow | None:
    """Return an instance."""
    row = await session.row(INSTANCE, instance_id)
    return None if row is None else InstanceRow(*row)


async def write_instance(session: SqlSession, row: InstanceRow, *, new: bool) -> None:
    """Write an instance; `sequence` stays as it is."""
    head, tail = row[:10], row[11:]
    if new:
        await session.execute(ADD_INSTANCE, *head, *tail)
    else:
        await session.execute(CHANGE_INSTANCE, row.id, *head[4:], *tail[:4], row.updated_ms)


@dataclass(slots=True)
class InstancePlan:
    """What rules decided about several instances, by their ids."""

    #: in the order of the rules
    result: list[ChangedInstance] = field(default_factory=list)
    #: the rows to add and to change
    added: list[InstanceRow] = field(default_factory=list)
    updated: list[InstanceRow] = field(default_factory=list)
    #: the instances to delete
    gone: list[str] = field(default_factory=list)
    #: whose runs are cancelled: instance, reason, and whether also the one that is running
    cancelled: list[tuple[str, str, bool]] = field(default_factory=list)
    created: list[JobRow] = field(default_factory=list)
    changed: list[JobRow] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    #: as in `InstanceChange`
    active: bool | None = None
    #: whether more instances count towards the limits
    grows: bool = False

    @property
    def written(self) -> list[str]:
        """The instances that still exist and whose next run may be exposed."""
        return [row.id for row in (*self.added, *self.updated)]


def plan_changes(
    workspace: str,
    agent: str,
    names: Mapping[str, str],
    rows: Mapping[str, InstanceRow],
    schedules: Iterable[JobRow],
    rules: Mapping[str, InstanceRule],
) -> InstancePlan:
    """Return what the rule of each of these instances decides. `names` has their names by id."""
    plan = InstancePlan()
    jobs_of: defaultdict[str | None, list[JobRow]] = defaultdict(list)
    for job in schedules:
        jobs_of[job.instance_id].append(job)
    for own, name in names.items():
        old = rows.get(own)
        change = rules[name](old, jobs_of[own])
        if change is None:
            plan.result.append(ChangedInstance(old))
            continue
        row = change.row._replace(
            id=own, workspace=workspace, agent=agent, name=name, sequence=old.sequence if old else 0
        )
        if change.delete:
            plan.gone.append(own)
        elif old is None:
            plan.added.append(row)
        else:
            plan.updated.append(row)
        plan.result.append(ChangedInstance(None if change.delete else row, True))
        if change.cancel is not None:
            plan.cancelled.append((own, change.cancel, change.cancel_running))
        plan.created += change.created
        plan.changed += change.changed
        plan.deleted += change.deleted
        plan.active = plan.active if change.active is None else change.active
        plan.grows |= not change.delete and row.status not in CLOSED and (old is None or old.status in CLOSED)
    return plan


async def write_changes(session: SqlSession, events: TransactionEvents, plan: InstancePlan) -> None:
    """Write the rows of a plan. Duplicate: another transaction has added one of them."""
    events.record_instances(row.id for row in (*plan.added, *plan.updated))
    for row in sorted(plan.added):  # in the order of the ids, as all transactions do
        await write_instance(session, row, new=True)
    for row in plan.updated:
        await write_instance(session, row, new=False)


async def delete_rows(session: SqlSession, events: TransactionEvents, plan: InstancePlan) -> None:
    """Delete the instances of a plan that are gone, with the ids of their signals; unload closed ones."""
    closed = [*plan.gone, *(row.id for row in plan.updated if row.status == "deleting")]
    if closed:
        await session.execute(DELETE_SIGNAL_IDS, closed)
        for instance in closed:
            events.publish(f"{UNLOAD_TOPIC}{instance}")
    if plan.gone:
        await session.execute(DELETE_INSTANCES, plan.gone)


def instance_view(row: Row) -> InstanceView:
    """Return an instance from `_VIEW_COLUMNS`."""
    *columns, due, delays, active_run = row
    return InstanceView(InstanceRow(*columns), due + delays, active_run, delays)


def list_statement(only: InstanceFilter, now_ms: int) -> tuple[Texts, list[object]]:
    """Return the statement that lists instances, and its arguments. instances_name: a range, in its order."""
    found = Conditions(now_ms)
    found.compare("i.workspace", "=", only.workspace)
    found.compare("i.agent", "=", only.agent)
    found.compare("i.status", "=", only.status)
    if only.after is not None:
        agent, name = map(found.mark, only.after)
        found.add(f"(i.agent, i.name) > ({agent}, {name})")
    rest = f"WHERE {found.text()} ORDER BY i.agent, i.name LIMIT {found.mark(only.limit)}"
    return Texts(*(f"SELECT {columns} FROM instances i {rest}" for columns in _VIEW_COLUMNS)), found.args


async def read_instance(
    session: SqlSession, now_ms: int, workspace: str, agent: str, name: str
) -> InstanceView | None:
    """Return an instance with its mailbox."""
    row = await session.row(VIEW, now_ms, instance_id(workspace, agent, name))
    return None if row is None else instance_view(row)


async def read_instances(session: SqlSession, now_ms: int, ids: Sequence[str]) -> list[InstanceView]:
    """Return these instances with their mailboxes, as far as they exist, in any order."""
    return [instance_view(row) for row in await session.rows(VIEWS, now_ms, list(ids))]


async def list_instances(session: SqlSession, now_ms: int, only: InstanceFilter) -> list[InstanceView]:
    """Return the instances that match, by agent and name."""
    statement, args = list_statement(only, now_ms)
    return [instance_view(row) for row in await session.rows(statement, *args)]


async def deleting_instances(session: SqlSession, limit: int) -> list[str]:
    """Return the ids of instances whose history is being erased."""
    return await session.column(DELETING, limit)


async def has_runs_of(session: SqlSession, instance_id: str) -> bool:
    """Return whether there is a run of an instance, also of one that was deleted."""
    return await session.value(HAS_RUNS, instance_id) is not None


async def pending_runs(session: SqlSession, instance: str, limit: int) -> list[str]:
    """Return the ids of the pending runs of an instance, in the order in which it handles them."""
    return await session.column(PENDING, instance, limit)


async def read_delays(session: SqlSession, now_ms: int, instance: str, limit: int) -> list[DelayRow]:
    """Return the first delays of an instance that are not due yet, in their order."""
    rows = await session.rows(DELAYS, instance, now_ms, limit)
    named = await session.rows(DELAY_IDS, instance, now_ms + KEEP_DELAY_ID_MS) if rows else ()
    ids = dict(map(tuple, named))
    return [DelayRow(run_id, signal, fire_ms, ids.get(run_id)) for run_id, signal, fire_ms in rows]


async def stale_instances(session: SqlSession, agent_class: AgentClass, limit: int) -> list[str]:
    """Return names of instances that are not stopped and have other declared schedules than this class.

    Without those whose schedules are of a higher version.
    """
    return await session.column(
        STALE, agent_class.workspace, agent_class.agent, agent_class.hash, agent_class.version, limit
    )


async def record_hibernation(
    session: SqlSession,
    events: TransactionEvents,
    instance_ids: Sequence[str],
    now_ms: int,
    *,
    publish: bool = False,
) -> None:
    """Record that these instances hibernate.

    With `publish`, every process unloads them. Topic: `hibernate:<id>`.
    """
    await session.execute(HIBERNATE, list(instance_ids), now_ms)
    for each in instance_ids if publish else ():
        events.publish(f"{UNLOAD_TOPIC}{each}")


async def prune_signal_ids(session: SqlSession, now_ms: int, limit: int) -> int:
    """Delete up to `limit` ids of signals that have expired. Returns how many."""
    return await session.execute(PRUNE_SIGNAL_IDS, now_ms, limit)


async def instance_limits(
    session: SqlSession, workspace: str, agents: Collection[str], limits: InstanceLimits
) -> dict[str, int]:
    """Return how many instances these agents may have, and the workspace (''). Absent: no limit."""
    rows = await session.rows(LIMITS, workspace, ["", *agents], INSTANCES)
    found = {**dict.fromkeys(agents, limits.per_agent), "": limits.per_workspace}
    found |= dict(map(tuple, rows))
    return {agent: most for agent, most in found.items() if most is not None}


def check_addition(limits: InstanceLimits, agent: str) -> None:
    """Raise NotFound if an instance may not be added."""
    if not limits.may_add:
        raise NotFound(f"the instance of agent '{agent}' does not exist any more")


async def check_limits(session: SqlSession, workspace: str, limits: Mapping[str, int]) -> None:
    """Raise ResourceExhausted if there are more instances than `limits` allows, new ones included."""
    for agent, most in limits.items():
        of_agent = f"agent '{agent}' of " if agent else ""
        check_instances(
            f"{of_agent}workspace '{workspace}'", await _count(session, workspace, agent, most + 1), most
        )


async def room(
    session: SqlSession, workspace: str, limits: Mapping[str, int], added: Counter[str]
) -> dict[tuple[str, str], int]:
    """Return how many instances may be added under each of these limits, by (workspace, agent).

    `added` is how many of the instances of each agent this transaction has added already: they do not count.
    """
    added = added + Counter({"": added.total()})
    return {
        (workspace, agent): most
        - (await _count(session, workspace, agent, most + added[agent]) - added[agent])
        for agent, most in limits.items()
    }


async def _count(session: SqlSession, workspace: str, agent: str, most: int) -> int:
    """Return how many instances there are that are not stopped, up to `most`."""
    if agent:
        return int(await session.value(COUNT_OF_AGENT, workspace, agent, most))
    return int(await session.value(COUNT_OF_WORKSPACE, workspace, most))


class SqlInstances(SqlBase):
    """Instances."""

    put_class = writes(put_class)
    agent_class = reads(read_agent_class)

    async def send(
        self,
        arrivals: Sequence[Arrival],
        mailbox: int,
        limits: InstanceLimits | None = None,
        entries: Sequence[AuditEntry] = (),
        keyed: Keyed[list[Received]] | None = None,
        charge: ChargeRule | None = None,
    ) -> list[Received]:
        """Store signals in mailboxes, all or none, in this order; add instances that do not exist.

        A signal with an id that the instance has received before is not stored. FailedPrecondition: an
        instance is stopped. ResourceExhausted: more than `mailbox` runs would be pending in a mailbox, or
        there would be more instances than `limits` allow. All signals are for instances of one agent.
        `charge` is as in `create_jobs`; duplicates alone charge nothing.
        Topics: `runs`, and `instances` if an instance was added.
        """
        recorded = Recorded(entries, _any_new, keyed, charge)
        send, now_ms = self._operations.instances.send, self.clock.now_ms()
        return await self._record(recorded, send, now_ms, arrivals, mailbox, limits)

    async def change_instance(
        self,
        workspace: str,
        agent: str,
        name: str,
        now_ms: int,
        rule: InstanceRule,
        entries: Sequence[AuditEntry] = (),
        limits: InstanceLimits | None = None,
        keyed: Keyed[InstanceRow | None] | None = None,
        charge: ChargeRule | None = None,
    ) -> InstanceRow | None:
        """Lock an instance and its schedules, and write what `rule` returns. Returns the row afterwards.

        A new instance counts towards `limits` (ResourceExhausted). Only a change writes the entries and the
        `charge`, which is as in `create_jobs`. Topics: `jobs`, `runs`, and `stop:<id>` for a running run that
        is cancelled.
        """
        recorded: Recorded[list[ChangedInstance]] = Recorded(
            entries, _any_changed, None if keyed is None else keyed.of(_row), charge
        )
        changed = await self._change(recorded, workspace, agent, now_ms, {name: rule}, limits)
        return _row(changed)

    async def change_instances(
        self,
        workspace: str,
        agent: str,
        now_ms: int,
        rules: Mapping[str, InstanceRule],
        entries: Callable[[Sequence[ChangedInstance]], Sequence[AuditEntry]],
        limits: InstanceLimits | None = None,
        charge: ChargeRule | None = None,
    ) -> list[ChangedInstance]:
        """Do `change_instance` for several instances of an agent in one transaction, each with its rule.

        Returns what became of each, in the order of `rules`. `entries` gets the same.
        """
        recorded: Recorded[list[ChangedInstance]] = Recorded(entries, _any_changed, None, charge)
        return await self._change(recorded, workspace, agent, now_ms, rules, limits)

    async def _change(
        self,
        recorded: Recorded[list[ChangedInstance]],
        workspace: str,
        agent: str,
        now_ms: int,
        rules: Mapping[str, InstanceRule],
        limits: InstanceLimits | None,
    ) -> list[ChangedInstance]:
        change = self._operations.instances.change_instances
        return await self._record(
            recorded,
            change, self.clock, workspace, agent, now_ms, rules, limits,
        )  # fmt: skip

    deleting_instances = reads(deleting_instances)
    has_runs_of = reads(has_runs_of)

    async def erase_instance(self, instance_id: str, limit: int) -> bool:
        """Delete up to `limit` runs of an instance that is `deleting`, with all that belongs to them.

        The last call deletes the instance. Returns whether there is more to erase. Another process may do
        the same meanwhile.
        """
        if await self._driver.write(
            self._operations.instances.erase_instance, self.clock.now_ms(), instance_id, limit
        ):
            return True
        row = await self._read(find_instance, instance_id)
        if row is None or row.status != "deleting":
            return False
        responses = await self._read(erasure.find_responses, row)
        return await self._driver.write(self._shared(erasure.finish), row, responses)

    instance = reads_now(read_instance)
    instances_by_ids = reads_now(read_instances)
    instances = reads_now(list_instances)
    delays = reads_now(read_delays)
    schedules = reads(jobs.schedules)
    stale_instances = reads(stale_instances)
    record_hibernation = publishes(record_hibernation)
    prune_signal_ids = writes(prune_signal_ids)


def _any_new(received: Sequence[Received]) -> bool:
    """Return whether any signal was stored."""
    return any(not each.duplicate for each in received)


def _any_changed(changed: Sequence[ChangedInstance]) -> bool:
    """Return whether anything was written."""
    return any(each.changed for each in changed)


def _row(changed: Sequence[ChangedInstance]) -> InstanceRow | None:
    return changed[0].row
