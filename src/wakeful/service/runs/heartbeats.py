"""Heartbeats of executors: they renew the leases of claimed runs.

Run and attempt are the fence: a heartbeat renews only the leases of the attempts that it names. Heartbeats
that arrive together are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from wakeful.document import policy_or_default
from wakeful.engine.completer import LoggedConsequences, log_outcome
from wakeful.errors import FailedPrecondition, TooManyFollowUps
from wakeful.logs import get_logger
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished, conclude, find_timeout
from wakeful.service.batcher import Batcher, in_rounds
from wakeful.store.port import Store
from wakeful.store.rows import Renewal, RunView

#: The most runs of one heartbeat or release.
MAX_HEARTBEATS: Final = 1_000

log = get_logger("wakeful.service")


class Renewed(NamedTuple):
    """The runs whose leases were renewed, and those that timed out, with their errors."""

    kept: set[str]
    timed_out: dict[str, str]


class Heartbeats:
    """Renews the leases of claimed runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: by workspace: one that waits for a lock holds up no other
        self._batchers: WeakValueDictionary[str, Batcher[Sequence[Renewal], Renewed]] = WeakValueDictionary()

    async def renew(self, workspace: str, renewals: Sequence[Renewal]) -> Renewed:
        """Renew the leases of different runs, and fail the attempts that timed out."""
        if not renewals:
            return Renewed(set(), {})

        async def write(batch: Sequence[Sequence[Renewal]]) -> Sequence[Renewed]:
            return await self._write(workspace, batch)

        new = Batcher("wakeful-heartbeats", write, most=MAX_HEARTBEATS, weigh=len)
        return await self._batchers.setdefault(workspace, new).add(renewals)

    async def _write(self, workspace: str, batch: Sequence[Sequence[Renewal]]) -> Sequence[Renewed]:
        members = [(number, each) for number, renewals in enumerate(batch) for each in renewals]
        results = [Renewed(set(), {}) for _ in batch]
        for several in in_rounds(members, lambda member: member[1].run_id):
            renewed = await self._renew(workspace, [each for _, each in several])
            for number, each in several:
                if each.run_id in renewed.kept:
                    results[number].kept.add(each.run_id)
                elif each.run_id in renewed.timed_out:
                    results[number].timed_out[each.run_id] = renewed.timed_out[each.run_id]
        return results

    async def _renew(self, workspace: str, renewals: Sequence[Renewal]) -> Renewed:
        now_ms = self._store.clock.now_ms()
        renewed = await self._store.renew(now_ms, workspace, renewals)
        waiting = {each.run_id for each in renewals if each.waiting is not None}
        errors: dict[str, str] = {}
        ended: dict[str, list[Finished]] = {}
        for run in renewed:
            policy = policy_or_default(run.policy)
            outcome = find_timeout(run.started_ms, policy, now_ms)
            if outcome is not None and run.id not in waiting:
                finished = conclude(
                    run.id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms,
                    failed_attempts=run.failed_attempts,
                )  # fmt: skip
                ended.setdefault(run.worker or "", []).append(finished)
                errors[run.id] = outcome.error
        for holder, outcomes in ended.items():
            await self._end(holder, outcomes)
        return Renewed({run.id for run in renewed} - errors.keys(), errors)

    async def _end(self, holder: str, outcomes: Sequence[Finished]) -> None:
        """Write the outcomes of attempts of this executor that timed out, and log them."""
        rule = LoggedConsequences(consequences)
        try:
            written = await self._store.finish(holder, outcomes, rule)
        except TooManyFollowUps:  # not of one run
            for each in outcomes:
                await self._end(holder, [each])
            return
        for each in outcomes:
            if each.run_id in written:
                log_outcome(log, each, {"run_id": each.run_id, "job_id": each.job_id}, holder)
        rule.log(log)


def not_claimed(run: RunView) -> FailedPrecondition:
    """Return the error for a run that its executor does not hold any more."""
    if run.verifying:
        return FailedPrecondition(f"run '{run.id}' was reported as done and is being verified; stop")
    return FailedPrecondition(f"run '{run.id}' is {run.state} and not claimed by you; stop working on it")
