"""Start runs that people, programs and trigger URLs request.

Those that arrive together are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from wakeful.job.self_scheduling import ChargeRule
from wakeful.run.run import NewRun
from wakeful.service.batcher import Batcher
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed, is_claiming
from wakeful.store.port import Store
from wakeful.store.rows import RunView

_LARGEST_BATCH: Final = 200


class _RequestedRun(NamedTuple):
    """A run to write, and the version of its job."""

    run: NewRun
    version: int
    entries: Sequence[AuditEntry]
    #: the day whose caps must be checked; None: they have been
    day: int | None


class RunStarter:
    """Writes requested runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: by workspace: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[str, Batcher[_RequestedRun, RunView]] = WeakValueDictionary()

    async def start(
        self,
        run: NewRun,
        version: int,
        entries: Sequence[AuditEntry] = (),
        *,
        keyed: Keyed[RunView] | None = None,
        charge: ChargeRule | None = None,
        day: int | None = None,
    ) -> RunView:
        """Write a run of a job that is at this version; see `Store.add_runs`."""
        if keyed is not None or charge is not None or is_claiming():
            # Not batched: the key and the charge are of this run, and waiting for them would delay the batch.
            response: Keyed[list[RunView]] | None = keyed.of(lambda runs: runs[0]) if keyed else None
            (view,) = await self._store.add_runs([run], entries, response, charge, [version], day)
            return view
        new = Batcher(
            "wakeful-requested-runs", self._write, most=_LARGEST_BATCH, lock=lambda item: item.run.job_id
        )
        batcher = self._batchers.setdefault(run.workspace, new)
        return await batcher.add(_RequestedRun(run, version, entries, day))

    async def _write(self, batch: Sequence[_RequestedRun]) -> Sequence[RunView]:
        entries = [entry for each in batch for entry in each.entries]
        versions = [each.version for each in batch]
        day = max((each.day for each in batch if each.day is not None), default=None)
        return await self._store.add_runs([each.run for each in batch], entries, versions=versions, day=day)
