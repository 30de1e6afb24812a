"""What follows from the directives of handlers for instances, mailboxes and schedules. Pure.

A store that writes outcomes of signal runs locks their instances and the recipients of their signals, reads
the `SignalFacts`, and calls `refuse`: an outcome whose directives cannot be stored becomes a failed
attempt, and the others of the batch are not affected. For the outcomes that pass their fence it calls
`signal_effects` and writes the result in the same transaction.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from wakeful.errors import FailedPrecondition
from wakeful.job.job import JobRecord, ScheduleKey
from wakeful.run.factory import as_instance_signal, as_skipped, manual_run
from wakeful.run.instances import (
    CLOSED,
    DELAY_CANCELLED,
    DELAY_REPLACED,
    MAX_DELAYS,
    MAX_SCHEDULES,
    STOPPED,
    AgentClass,
    InstanceStatus,
    ScheduleChange,
    Send,
    instance_id,
)
from wakeful.run.job_transitions import (
    CANCELLED_BY_AGENT,
    WAKEFUL,
    disable_job,
    is_pausable,
    one_time_ms,
    schedule_job,
)
from wakeful.run.outcome import Finished, Handled
from wakeful.run.run import NewRun, RunDetails
from wakeful.values.plural import plural


class InstanceFacts(NamedTuple):
    """An instance that is locked."""

    status: InstanceStatus
    revision: int
    #: how many of its runs are pending and due
    waiting: int
    #: how many dynamic schedules it has
    schedules: int = 0
    #: how many of its runs are pending and not due yet
    delayed: int = 0


class SignalFacts(NamedTuple):
    """What the database holds before the effects of a batch."""

    #: by id: the instances of the runs, and the recipients that exist
    instances: Mapping[str, InstanceFacts] = {}
    #: by (workspace, agent): the classes of both
    classes: Mapping[tuple[str, str], AgentClass] = {}
    #: the schedules that the batch sets or cancels, and all schedules of an instance that stops; None: its
    #: job cannot be read. One that does not exist is absent
    schedules: Mapping[ScheduleKey, JobRecord | None] = {}
    #: the job of each of `schedules`
    job_ids: Mapping[ScheduleKey, str] = {}
    #: the signals of the batch (instance, source, id) that arrived before
    duplicates: frozenset[tuple[str, str, str]] = frozenset()
    #: by (workspace, agent): the agents of these schedules that are not active
    inactive: frozenset[tuple[str, str]] = frozenset()
    #: the recipients that do not exist
    new: frozenset[str] = frozenset()
    #: by (workspace, agent), and (workspace, ''): how many instances may be added. Absent: no limit
    room: Mapping[tuple[str, str], int] = {}
    #: by (instance, id): the pending runs of the delays that the batch sets or cancels
    delays: Mapping[tuple[str, str], str] = {}


class Arrival(NamedTuple):
    """A signal to store in a mailbox."""

    run: NewRun
    #: with an id: the signal is stored only if the instance has not received (source, id) before
    source: str = ""
    signal_id: str | None = None
    #: until when the id is remembered
    expires_ms: int = 0
    #: the id of the delay
    delay_id: str | None = None


class InstanceUpdate(NamedTuple):
    """What an outcome changes in the row of its instance."""

    instance_id: str
    handled_ms: int
    #: None: the state, and its version, stay as they are
    data: str | None
    version: int
    #: None: unchanged
    memory: str | None
    #: None: unchanged
    status: InstanceStatus | None = None
    note: str | None = None


class SignalEffects(NamedTuple):
    """What to write, in the order of the fields; but schedules are deleted before others are created.

    A schedule that takes the place of one that cannot be read has its name.
    """

    instances: Sequence[InstanceUpdate] = ()
    #: new schedules
    created: Sequence[JobRecord] = ()
    #: schedules that change; their ticks that have not started and no longer match are withdrawn
    changed: Sequence[JobRecord] = ()
    #: schedules to delete, and when
    deleted: Mapping[str, int] = {}
    arrivals: Sequence[Arrival] = ()
    #: instances that stopped: cancel their pending runs
    stopped: Sequence[str] = ()
    #: the signals that went out: run, JSON array
    emitted: Sequence[tuple[str, str]] = ()
    #: pending delays that end: run, reason. After `arrivals`: cancelling exposes the next run
    cancelled: Sequence[tuple[str, str]] = ()


def instances_to_lock(outcomes: Iterable[Finished]) -> list[str]:
    """Return the instances to lock for these outcomes: their own and the recipients, in lock order."""
    found: set[str] = set()
    for outcome in outcomes:
        if outcome.instance_id is not None:
            found.add(outcome.instance_id)
        if outcome.handled is not None:
            found.update(recipients(outcome.handled))
    return sorted(found)


def recipients(handled: Handled) -> dict[str, tuple[str, str, str]]:
    """Return the recipients of signals: workspace, agent and name by id."""
    return {
        instance_id(handled.workspace, send.agent, send.instance): (
            handled.workspace,
            send.agent,
            send.instance,
        )
        for send in handled.sends
    }


def any_delay(handled: Iterable[Handled]) -> bool:
    """Return whether a handler delays a signal."""
    return any(send.delay_ms for each in handled for send in each.sends)


def new_of_agents(handled: Iterable[Handled], new: Collection[str]) -> dict[str, Counter[str]]:
    """Return how many of the recipients are new, by workspace and agent."""
    found: dict[str, Counter[str]] = {}
    names = {key: name for one in handled for key, name in recipients(one).items() if key in new}
    for workspace, agent, _ in names.values():
        found.setdefault(workspace, Counter())[agent] += 1
    return found


def schedule_keys(handled: Handled) -> list[ScheduleKey]:
    """Return the schedules that the handler sets or cancels. If it stops, all schedules are needed."""
    return [key_of_change(handled, change) for change in last_changes(handled)]


def delay_keys(handled: Iterable[Handled]) -> list[tuple[str, str]]:
    """Return (instance, id) of the delays that are set or cancelled."""
    return [(each.instance_id, delay_id) for each in handled for delay_id in each.delay_ids]


def signal_keys(handled: Handled) -> list[tuple[str, str, str]]:
    """Return (instance, source, id) of the signals that may have arrived before."""
    return [
        (instance_id(handled.workspace, send.agent, send.instance), send.source, send.id)
        for send in handled.sends
        if send.id is not None
    ]


def signal_effects(outcomes: Iterable[Finished], facts: SignalFacts, now_ms: int) -> SignalEffects:
    """Return what follows from these outcomes, which were not refused and have passed their fence."""
    instances: list[InstanceUpdate] = []
    created: dict[str, JobRecord] = {}
    changed: list[JobRecord] = []
    deleted: dict[str, int] = {}
    arrivals: list[Arrival] = []
    stopped: list[str] = []
    emitted: list[tuple[str, str]] = []
    cancelled: list[tuple[str, str]] = []
    known = set(facts.duplicates)
    for outcome in outcomes:
        handled = outcome.handled
        if handled is None:
            continue
        own = outcome.instance_id or handled.instance_id
        if handled.block is not None:
            instances.append(InstanceUpdate(own, now_ms, None, 0, None, "blocked", handled.block))
            continue
        if outcome.state != "succeeded":
            continue
        instances.append(
            InstanceUpdate(
                own,
                outcome.finished_ms,
                handled.data,
                handled.version,
                handled.memory,
                "stopped" if handled.stop else None,
            )
        )
        if handled.stop:
            stopped.append(own)
            deleted |= {job_id: now_ms for key, job_id in facts.job_ids.items() if key.instance_id == own}
        elif handled.schedules:
            for change in last_changes(handled):
                _apply(handled, change, facts, now_ms, created, changed, deleted)
        ending = dict.fromkeys(handled.delay_ids, DELAY_CANCELLED)
        for send in handled.sends:
            arrival = _arrival(handled, send, facts, now_ms, outcome.run_id)
            key = (str(arrival.run.instance_id), send.source, send.id or "")
            if send.id is not None and key in known:
                ending.pop(send.delay_id or "", None)  # it changes nothing
                continue
            if send.delay_id is not None:
                ending[send.delay_id] = DELAY_REPLACED
            known.add(key)
            if not (handled.stop and arrival.run.instance_id == own):
                arrivals.append(arrival)
        if not handled.stop:
            cancelled += [
                (facts.delays[own, delay_id], reason)
                for delay_id, reason in ending.items()
                if (own, delay_id) in facts.delays
            ]
        if handled.emitted is not None:
            emitted.append((outcome.run_id, handled.emitted))
    if stopped:  # whichever came first, no signal waits in a mailbox that is closed
        arrivals = [
            each._replace(run=as_skipped(each.run, STOPPED, now_ms))
            if each.run.instance_id in stopped
            else each
            for each in arrivals
        ]
    return SignalEffects(
        instances, list(created.values()), changed, deleted, arrivals, stopped, emitted, cancelled
    )


def signal_run(
    agent_class: AgentClass,
    instance: str,
    signal_type: str,
    text: str,
    now_ms: int,
    *,
    source: str = "",
    signal_id: str | None = None,
    delay_ms: int = 0,
    delay_id: str | None = None,
    triggered_by: str | None = None,
    depth: int = 0,
) -> Arrival:
    """Return the run of a signal that is no tick. It is hidden in the mailbox until it is its turn.

    With a `signal_id`, the idempotency key follows from the instance, the source and the id. `depth` is that
    of the run that sends it.
    """
    workspace, agent = agent_class.workspace, agent_class.agent
    run = manual_run(
        job_id=None,
        workspace=workspace,
        agent=agent,
        job_name=None,
        lane=agent_class.lane,
        trigger="signal",
        now_ms=now_ms,
        triggered_by=triggered_by,
        payload=text,
        details=RunDetails(depth=depth) if depth else None,
    )
    run = as_instance_signal(run, instance, signal_type)
    if delay_ms:
        run = run._replace(scheduled_ms=now_ms + delay_ms, fire_ms=now_ms + delay_ms)
    if signal_id is not None:
        seed = f"{run.instance_id}:{source}:{signal_id}"
        run = run._replace(idempotency_key=hashlib.sha256(seed.encode()).hexdigest())
    return Arrival(run, source, signal_id, now_ms + agent_class.dedupe_ms, delay_id)


def _apply(
    handled: Handled,
    change: ScheduleChange,
    facts: SignalFacts,
    now_ms: int,
    created: dict[str, JobRecord],
    changed: list[JobRecord],
    deleted: dict[str, int],
) -> None:
    """Add what one change of a schedule does."""
    key = key_of_change(handled, change)
    job_id, old = facts.job_ids.get(key), facts.schedules.get(key)
    if change.declared:
        job = old
        if job_id is None and change.definition is not None:  # a new instance gets its schedules later
            owner = handled.workspace, handled.agent
            job = schedule_job(key, *owner, change.definition, None, now_ms, WAKEFUL)
        if job is not None and is_pausable(job):
            job = disable_job(job, now_ms, CANCELLED_BY_AGENT)
            if job_id is None:
                created[job.id] = job
            else:
                changed.append(job)
        return
    if change.definition is None:
        if job_id is not None:
            deleted[job_id] = now_ms
        return
    owner, made_by = (handled.workspace, handled.agent), f"agent:{handled.agent}/{handled.instance}"
    definition = change.definition
    if handled.depth:
        definition = replace(definition, work=replace(definition.work, depth=handled.depth))
    active, at_ms = owner not in facts.inactive, one_time_ms(definition)
    if old is not None and (at_ms is None or at_ms > now_ms or old.disabled_reason == "paused"):
        try:
            job = schedule_job(key, *owner, definition, old, now_ms, made_by, active=active)
        except FailedPrecondition:  # it is over: it begins anew
            pass
        else:
            if job is not None:
                changed.append(job)
            return
    if job_id is not None:  # it is over, or cannot be read: replace it
        deleted[job_id] = now_ms
    job = schedule_job(key, *owner, definition, None, now_ms, made_by, active=active)
    if job is not None:
        created[job.id] = job


def _arrival(handled: Handled, send: Send, facts: SignalFacts, now_ms: int, run_id: str) -> Arrival:
    return signal_run(
        facts.classes[handled.workspace, send.agent],
        send.instance,
        send.type,
        send.text,
        now_ms,
        source=send.source,
        signal_id=send.id,
        delay_ms=send.delay_ms,
        delay_id=send.delay_id,
        triggered_by=run_id,
        depth=handled.depth,
    )


def key_of_change(handled: Handled, change: ScheduleChange) -> ScheduleKey:
    """Return the identity of the schedule that is set or cancelled."""
    return ScheduleKey(handled.instance_id, "declared" if change.declared else "dynamic", change.schedule_id)


def last_changes(handled: Handled) -> list[ScheduleChange]:
    """Return the last change of each schedule, in the order of the directives."""
    last: dict[tuple[bool, str], ScheduleChange] = {}
    for change in handled.schedules:
        key = change.declared, change.schedule_id
        last.pop(key, None)
        last[key] = change
    return list(last.values())


def refuse(outcomes: Sequence[Finished], facts: SignalFacts) -> Sequence[Finished]:
    """Return the outcomes; those whose directives cannot be stored as the failed attempts that they are.

    Each outcome is checked after those before it: two that each fill half of a mailbox may not both fit.
    """
    taken = _Taken(Counter(), set(facts.duplicates), set(), Counter())
    checked: list[Finished] = []
    for outcome in outcomes:
        handled = outcome.handled
        if handled is None or handled.block is not None or handled.refusal is None:
            checked.append(outcome)
            continue
        error, sent, new = _refusal(handled, outcome.instance_id or handled.instance_id, facts, taken)
        if error is None:
            if handled.sends:
                taken.signals.update(sent)
                taken.known.update(signal_keys(handled))
                taken.instances.update(new)
                taken.totals.update(_count(new))
            checked.append(outcome)
        else:
            checked.append(handled.refusal()._replace(error=error))
    return checked


class _Taken(NamedTuple):
    """What the outcomes of a batch take that are not refused."""

    #: how many signals each mailbox gets
    signals: Counter[str]
    known: set[tuple[str, str, str]]
    #: the instances that they add, and how many these are by the keys of `SignalFacts.room`
    instances: set[str]
    totals: Counter[tuple[str, str]]


def _refusal(
    handled: Handled,
    own_id: str,
    facts: SignalFacts,
    taken: _Taken,
) -> tuple[str | None, Mapping[str, int], Mapping[str, tuple[str, str]]]:
    """Return why the directives cannot be stored; else None, and what they take: signals and instances."""
    own = facts.instances.get(own_id)
    if own is None or own.revision != handled.revision:
        return "the state of the instance was changed while the handler ran", {}, {}
    if not handled.sends and not handled.schedules:
        return None, {}, {}
    sent: Counter[str] = Counter()
    new: dict[str, tuple[str, str]] = {}
    # To the instance itself, of which a batch has one outcome.
    delays = -sum((own_id, delay_id) in facts.delays for delay_id in handled.delay_ids)
    for send in handled.sends:
        agent_class = facts.classes.get((handled.workspace, send.agent))
        to = f"instance '{send.instance}' of agent '{send.agent}'"
        what = "Delay" if send.delay_ms else "Emit"
        if agent_class is None:
            return f"{what}: agent '{send.agent}' has no class in this workspace; register one", sent, new
        recipient = instance_id(handled.workspace, send.agent, send.instance)
        there = facts.instances.get(recipient)
        if there is not None and there.status in CLOSED:
            return f"{what}: {to} {CLOSED[there.status]}", sent, new
        if send.id is not None and (recipient, send.source, send.id) in taken.known:
            continue
        if send.delay_ms:
            delays += 1
            if (there.delayed if there else 0) + delays > MAX_DELAYS:
                return f"Delay: {to} has {MAX_DELAYS} delays, and can have no more", sent, new
            continue
        waiting = (there.waiting if there else 0) + taken.signals[recipient] + sent[recipient]
        if waiting >= agent_class.mailbox:
            return f"{what}: the mailbox of {to} is full ({agent_class.mailbox} signals wait)", sent, new
        sent[recipient] += 1
        if recipient in facts.new and recipient not in taken.instances:
            new[recipient] = handled.workspace, send.agent
    if new and not _has_room(facts, taken.totals + _count(new)):
        names = plural(len(new), "recipient")
        return f"Emit: {names} would have to be added, and the quota of instances is used up", sent, new
    more = 0
    for change in last_changes(handled):
        exists = key_of_change(handled, change) in facts.job_ids
        if change.declared:
            continue
        if change.definition is not None:
            more += not exists
        elif exists:
            more -= 1
    if more > 0 and own.schedules + more > MAX_SCHEDULES:
        return f"SetCron: an instance has at most {MAX_SCHEDULES} schedules; cancel some", sent, new
    return None, sent, new


def _count(new: Mapping[str, tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return how many instances these are, by the keys of `SignalFacts.room`."""
    return Counter(new.values()) + Counter((workspace, "") for workspace, _ in new.values())


def _has_room(facts: SignalFacts, count: Counter[tuple[str, str]]) -> bool:
    return all(count[owner] <= room for owner, room in facts.room.items())
