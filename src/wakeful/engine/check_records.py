"""Records the answers of prechecks before the launch."""

from __future__ import annotations

from wakeful.launch.port import Launch
from wakeful.launch.precheck import RecordCheck
from wakeful.run.prechecks import Checked, checked_to_text
from wakeful.store.port import Store


def recorder(store: Store, worker: str) -> RecordCheck:
    """Return what records answers for the runs of this worker or executor."""

    async def record(run: Launch, context: str | None, checked: Checked) -> bool:
        return await store.record_check(run.id, run.attempt, worker, context, checked_to_text(checked))

    return record
