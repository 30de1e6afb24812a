"""What becomes of runs that are added to mailboxes, the same for every store. Pure.

A store locks the instances of the runs, reads their `Mailbox` and calls `admit`. A run that may not enter is
refused with an error if a request adds it, and recorded as skipped otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from wakeful.errors import FailedPrecondition, ResourceExhausted
from wakeful.run.factory import as_skipped
from wakeful.run.instances import CLOSED, INSTANCE_DELETED, MAILBOX_FULL, STOPPED, InstanceStatus
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.run.signal_rules import Arrival
from wakeful.store.instances import Received
from wakeful.store.plans import TakeNext
from wakeful.store.quotas import INSTANCES
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import RunView
from wakeful.values.plural import plural

#: The identity of a signal: instance, source, id.
SignalKey: TypeAlias = tuple[str, str, str]
#: How many runs may wait in a mailbox whose class is not known.
USUAL_MAILBOX: Final = 1_000
#: The source of the ids of delays: signals have none with a space. They are stored as those of signals are.
DELAY_SOURCE: Final = "wakeful delay"
#: How long the id of a delay is remembered after it was due: its run may wait for so long and be replaced.
KEEP_DELAY_ID_MS: Final = 30 * 24 * 3_600_000
#: The reasons of runs that may not enter a mailbox.
_REFUSED: Final = (STOPPED, INSTANCE_DELETED, MAILBOX_FULL)
#: The reason of a first run that was pruned, while its duplicates are still recognised.
PRUNED: Final = "pruned"


class Mailbox(NamedTuple):
    """The mailbox of a locked instance."""

    status: InstanceStatus = "active"
    #: the version of the class that wrote the state
    version: int = 0
    #: the last number that a run got
    sequence: int = 0
    #: how many runs are pending and due, and how many may be
    waiting: int = 0
    limit: int = USUAL_MAILBOX
    #: whether a run is running or retrying
    busy: bool = False
    #: when the exposed pending run fires; None: there is none
    exposed_ms: int | None = None


class Admission(NamedTuple):
    """What to write for new runs, in this order."""

    #: instances whose exposed pending run is hidden, because a new one comes before it
    hidden: Sequence[str]
    #: the runs with their numbers, in the order in which they were given; a skipped run has no number
    runs: Sequence[tuple[NewRun, int | None]]
    #: the last number of each instance
    sequences: Mapping[str, int]


def admit(
    runs: Sequence[NewRun], mailboxes: Mapping[str, Mailbox], now_ms: int, *, strict: bool
) -> Admission:
    """Return what to write for these pending runs of the given mailboxes.

    The run that is next in an idle mailbox of an active instance is exposed. A run for a stopped instance
    or a full mailbox is skipped; with `strict`, FailedPrecondition or ResourceExhausted is raised instead. A
    delay is not in the mailbox until it is due: `signal_rules` compares it with its own limit.
    """
    entered: list[tuple[NewRun, int | None]] = []
    sequences = {instance: mailbox.sequence for instance, mailbox in mailboxes.items()}
    #: how many runs were added that are no delays
    added: Counter[str] = Counter()
    #: the position in `entered` of the first new run of each mailbox
    first: dict[str, int] = {}
    for run in runs:
        instance = str(run.instance_id)
        mailbox = mailboxes[instance]
        delay = _is_delay(run, now_ms)
        reason = _refusal(mailbox, 0 if delay else mailbox.waiting + added[instance])
        if reason is not None:
            if strict:
                raise refusal_error(run, reason, mailbox.limit)
            entered.append((as_skipped(run, reason, now_ms), None))
            continue
        sequences[instance] += 1
        added[instance] += not delay
        entered.append((run._replace(due_ms=None), sequences[instance]))
        if instance not in first or run.fire_ms < entered[first[instance]][0].fire_ms:
            first[instance] = len(entered) - 1
    hidden = []
    for instance, position in first.items():
        mailbox = mailboxes[instance]
        run, number = entered[position]
        if mailbox.status != "active" or mailbox.busy:
            continue
        if mailbox.exposed_ms is not None:
            if run.fire_ms >= mailbox.exposed_ms:
                continue
            hidden.append(instance)
        entered[position] = run._replace(due_ms=run.fire_ms, requires_version=mailbox.version), number
    return Admission(
        hidden,
        entered,
        {key: number for key, number in sequences.items() if number > mailboxes[key].sequence},
    )


def refused_ticks(runs: Iterable[NewRun]) -> list[str]:
    """Return the jobs of ticks that were skipped because they may not enter their mailbox."""
    return [
        run.job_id
        for run in runs
        if run.state == "skipped" and run.reason in _REFUSED and run.job_id is not None
    ]


def refusal_error(run: NewRun, reason: str, limit: int) -> Exception:
    """Return the error for a run that may not enter its mailbox."""
    return refusal(run.agent, str(run.instance), reason, limit)


def refusal(agent: str, instance: str, reason: str, limit: int) -> Exception:
    """Return the error for what an instance does not accept: it is closed, or its mailbox is full."""
    to = f"instance '{instance}' of agent '{agent}'"
    if reason in (STOPPED, INSTANCE_DELETED):
        return FailedPrecondition(f"{to} {CLOSED['stopped' if reason == STOPPED else 'deleting']}")
    return ResourceExhausted(
        f"the mailbox of {to} is full: {plural(limit, 'signal')} may wait; send it again when the instance "
        f"has handled some"
    )


def check_instances(owner: str, count: int, limit: int) -> None:
    """Raise ResourceExhausted if there are more instances than the limit, new ones included."""
    if count > limit:
        raise ResourceExhausted(
            f"{owner} may have {plural(limit, 'instance')} ({INSTANCES}), and would have more; "
            f"stop instances that are not needed any more, or ask the operator to raise the limit"
        )


def pruned_view(duplicate: NewRun, first_id: str, now_ms: int) -> RunView:
    """Return a first run that was pruned, as far as its duplicate shows it. How it ended is not known."""
    return view_of_new_run(duplicate, now_ms)._replace(
        id=first_id, state="succeeded", reason=PRUNED, due_ms=None
    )


def _is_delay(run: NewRun, now_ms: int) -> bool:
    """Return whether a run is a signal that waits for its time. A tick counts towards the mailbox at once."""
    return run.job_id is None and run.fire_ms > now_ms


def _refusal(mailbox: Mailbox, waiting: int) -> str | None:
    """Return why no other run may enter if so many wait; None if one may."""
    if mailbox.status in CLOSED:
        return STOPPED if mailbox.status == "stopped" else INSTANCE_DELETED
    return MAILBOX_FULL if waiting >= mailbox.limit else None


def slots_of_instances(
    finished: Iterable[Finished], written: Collection[str], take_next: TakeNext
) -> dict[str, str]:
    """Return the lane in which the next run of each instance may start, for outcomes that are written."""
    return {
        each.instance_id: take_next.lanes[each.run_id]
        for each in finished
        if each.instance_id is not None and each.run_id in take_next.lanes and each.run_id in written
    }


def signal_key(arrival: Arrival) -> SignalKey:
    """Return the identity of a signal that has an id."""
    return str(arrival.run.instance_id), arrival.source, str(arrival.signal_id)


def ids_to_remember(arrivals: Iterable[Arrival]) -> list[tuple[str | None, str, str, str, int]]:
    """Return the rows of `signal_ids` for these signals: instance, source, id, run, until when."""
    rows = []
    for each in arrivals:
        run = each.run
        if each.signal_id is not None:
            rows.append((run.instance_id, each.source, each.signal_id, run.id, each.expires_ms))
        if each.delay_id is not None:
            until_ms = run.fire_ms + KEEP_DELAY_ID_MS
            rows.append((run.instance_id, DELAY_SOURCE, each.delay_id, run.id, until_ms))
    return rows


def signal_result(
    arrival: Arrival, known: Mapping[SignalKey, str], views: Mapping[str, RunView], now_ms: int
) -> Received:
    """Return what became of a signal: its own run, or the first run of the same signal.

    `known` has the first run of each signal with an id, `views` these runs as far as they still exist.
    """
    run = arrival.run
    first = run.id if arrival.signal_id is None else known[signal_key(arrival)]
    return Received(views.get(first) or pruned_view(run, first, now_ms), duplicate=first != run.id)
