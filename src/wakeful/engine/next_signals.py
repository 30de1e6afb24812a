"""The signals that follow others of the same instance in their slot.

The transaction that writes the outcome of a signal also takes the next one of the instance, if it is due and
this process can handle it (`Store.finish_and_take`). So a signal keeps its slot until its outcome is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from wakeful.engine.in_flight import InFlight
from wakeful.engine.lease import Lease
from wakeful.store.rows import TakenRun


def slots_to_follow(ended: Iterable[InFlight], most: Callable[[str], int]) -> dict[str, str]:
    """Return the ended signals whose slot the next one of their instance may use, each with its lane.

    `most` returns how many of a lane may follow one another.
    """
    return {
        run.launch.id: run.lane
        for run in ended
        if run.launch.instance_id is not None and run.holds_slot and run.follows < most(run.lane)
    }


def following(
    ended: Iterable[InFlight],
    written: Collection[str],
    taken: Sequence[TakenRun],
    prepare: Callable[[TakenRun, Lease], InFlight],
    lease: Lease,
) -> list[InFlight]:
    """Return the taken signals, ready to submit, each with the slot of the one before it."""
    next_signals = [run for run in taken if run.slot == "previous"]
    if not next_signals:
        return []
    before = {run.launch.instance_id: run for run in ended if run.launch.id in written}
    runs = []
    for each in next_signals:
        run, previous = prepare(each, lease), before[each.instance_id]
        run.follows = previous.follows + 1
        previous.holds_slot = False
        runs.append(run)
    return runs
