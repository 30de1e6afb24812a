"""Whether the directives of handlers can be stored. Pure.

An outcome whose directives cannot be stored is a failed attempt. What follows from the others is in
`wakeful.run.signal_rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wakeful.run.instances import MAX_SCHEDULES, instance_id
from wakeful.run.outcome import Finished, Handled
from wakeful.run.signal_rules import SignalFacts, key_of_change, last_changes, signal_keys
from wakeful.values.plural import plural


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
            if sent:
                taken.signals.update(sent)
                taken.known.update(signal_keys(handled))
                taken.instances.update(new)
                taken.totals.update(_count(new))
            checked.append(outcome)
        else:
            checked.append(handled.refusal._replace(error=error))
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
    for send in handled.sends:
        agent_class = facts.classes.get((handled.workspace, send.agent))
        to = f"instance '{send.instance}' of agent '{send.agent}'"
        what = "Delay" if send.delay_ms else "Emit"
        if agent_class is None:
            return f"{what}: agent '{send.agent}' has no class in this workspace; register one", sent, new
        recipient = instance_id(handled.workspace, send.agent, send.instance)
        there = facts.instances.get(recipient)
        if there is not None and there.status == "stopped":
            return f"{what}: {to} is stopped; start it", sent, new
        if send.id is not None and (recipient, send.source, send.id) in taken.known:
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
