"""The facade for verifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from wakeful.job.capabilities import Capabilities
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.rows import VERIFYING
from wakeful.store.sql import verifications
from wakeful.store.sql.base import Recorded, SqlBase
from wakeful.store.verifications import DueVerification, VerificationView

D = TypeVar("D")


class SqlVerifications(SqlBase[D]):
    """Verifications in an SQL database. Each method is that of `port.Store`."""

    async def take_verifications(
        self,
        now_ms: int,
        worker: str,
        capabilities: Capabilities,
        waiting_since_ms: int,
        limit: int,
        lease_until_ms: Callable[[str], int],
        without: Sequence[str] = (),
    ) -> list[DueVerification]:
        async def run(db: D, _: TransactionEvents) -> list[DueVerification]:
            taken = await verifications.take(
                self._driver.session(db), now_ms, worker, capabilities, waiting_since_ms, limit,
                lease_until_ms, without,
            )  # fmt: skip
            if not taken:
                return []
            runs = await self._operations.executors.taken_runs(db, list(taken))
            found = {run.id: (run, view) for run, view in runs}
            return [
                DueVerification(*found[run_id], verify, tries, requires, at_ms)
                for run_id, _, verify, tries, requires, at_ms in taken.values()
            ]

        return await self._driver.write(run)

    async def finish_verification(
        self,
        finished: Finished,
        consequences: Consequences,
        held: tuple[str, int] | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> bool:
        async def run(db: D, events: TransactionEvents) -> bool:
            session, now_ms = self._driver.session(db), self.clock.now_ms()
            reporter = await verifications.held_by(session, finished, held)
            if reporter is None:
                return False
            finish = self._operations.outcomes.finish
            written = await finish(db, events, self.clock, now_ms, VERIFYING, [finished], consequences)
            if written:
                await verifications.end(session, finished, *reporter)
            else:  # it was cancelled
                await verifications.delete(session, finished.run_id)
            return bool(written)

        return await self._record(Recorded(entries), run)

    async def postpone_verification(
        self, run_id: str, held: tuple[str, int], due_ms: int, *, counts: bool
    ) -> bool:
        async def run(db: D, events: TransactionEvents) -> bool:
            session = self._driver.session(db)
            found = await verifications.postpone(session, run_id, held, due_ms, counts=counts)
            if found:
                events.publish("verifications")
            return found

        return await self._driver.write(run)

    async def verification(self, run_id: str) -> VerificationView | None:
        return await self._read(verifications.read, run_id)

    async def next_verification_ms(self, after_ms: int) -> int | None:
        return await self._read(verifications.next_due_ms, after_ms)
