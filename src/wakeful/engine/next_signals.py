"""The signals that follow others of the same instance in their slot.

The transaction that writes the outcome of a signal also takes the next one of the instance, if it is due and
this process can handle it (`Store.finish_and_take`). So a signal keeps its slot until its outcome is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from wakeful.capabilities import Capabilities
from wakeful.engine.in_flight import InFlight
from wakeful.engine.lease import Lease
from wakeful.outcome import Finished
from wakeful.store.port import TakeNext
from wakeful.store.rows import TakenRun

#: How many signals of an instance follow one another before other runs of the lane may have the slot.
MOST_IN_A_ROW: Final = 16


class NextSignals:
    """Decides which slots of ended signals the next ones may use, and prepares those that were taken."""

    def __init__(
        self,
        lease: Lease,
        lease_ms: int,
        prepare: Callable[[TakenRun, Lease], InFlight],
        capabilities: Callable[[], Capabilities],
    ) -> None:
        self._lease = lease
        self._lease_s = lease_ms / 1000
        self._prepare = prepare
        self._capabilities = capabilities
        #: when the last transaction began that takes signals
        self._since = 0.0
        #: no signal follows any more: the process stops
        self.closed = False

    def request(self, batch: Iterable[Finished], in_flight: Mapping[str, InFlight]) -> TakeNext | None:
        """Return what to take with these outcomes; None: nothing."""
        if self.closed or not self._lease.valid:
            return None
        lanes = {}
        for each in batch:
            run = in_flight.get(each.run_id) if each.instance_id is not None else None
            if run is not None and run.holds_slot and run.follows < MOST_IN_A_ROW:
                lanes[each.run_id] = run.lane
        if not lanes:
            return None
        self._since = asyncio.get_running_loop().time()
        return TakeNext(lanes, self._capabilities())

    def follow(
        self, ended: Iterable[InFlight], written: Collection[str], taken: Sequence[TakenRun]
    ) -> list[InFlight] | None:
        """Return the signals to submit, each with the slot of the one before it.

        None if they may belong to another worker already, or the process stops: they must be released.
        """
        if self.closed or asyncio.get_running_loop().time() - self._since >= self._lease_s:
            return None
        before = {run.launch.instance_id: run for run in ended if run.launch.id in written}
        runs = []
        for each in taken:
            run, previous = self._prepare(each, self._lease), before[each.instance_id]
            run.follows = previous.follows + 1
            previous.holds_slot = False
            runs.append(run)
        return runs
