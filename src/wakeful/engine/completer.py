"""The completer: writes the outcomes of attempts in batches, each of what arrived during the last write.

An outcome that cannot be written is retried: it is lost only if the process dies, and then the rescuer
takes the run. If the database refuses a value, or a schedule has the name of another job, the batch is
divided to find the outcome, which is written without its output. Any other error is taken for a temporary
one: the batch is retried several times, then divided to find the outcome that causes it. That one is
retried after the others. Its output is dropped only if the database accepts the outcome without it and,
several times afterwards, not with it: a database that fails as a whole drops nothing. The outcome of a
signal whose directives cannot be written becomes a failed attempt instead.

What became of ticks and attempts is logged after the transaction that wrote it has committed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from wakeful.engine.loop import Loop
from wakeful.engine.tracing import Tracing
from wakeful.errors import AlreadyExists, DatabaseFault, InvalidArgument, Unavailable
from wakeful.logs import EventLogger, get_logger
from wakeful.run.consequences import Consequences, Effects, Facts
from wakeful.run.outcome import Finished
from wakeful.run.planning import Becomes, TickVerdict
from wakeful.run.prechecks import ONCE
from wakeful.run.run import NewRun
from wakeful.store.plans import DueJob, TakeNext
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun
from wakeful.values.clock import Clock
from wakeful.values.instants import iso_utc

_MAX_BATCH: Final = 2_000
_UNSTORABLE: Final = "its output could not be stored"
_REASON: Final = "unstorable"
_REFUSED: Final = "its directives could not be stored"
#: How often a batch is retried as a whole after a database fault.
_BATCH_RETRIES: Final = 3
#: An output is dropped after so many faults, each while the database accepts the outcome without it.
_MAX_FAULTS: Final = 3

log = get_logger("wakeful.completer")


def log_decisions(
    log: EventLogger,
    decided: Sequence[tuple[NewRun, TickVerdict]],
    ended: Sequence[tuple[DueJob, str]],
    written: Collection[str],
) -> None:
    """Log the ticks that do not start at once, each with the reason, and the jobs that have no more ticks."""
    for run, verdict in decided:
        if run.id not in written:
            continue
        about = {
            "run_id": run.id,
            "job_id": run.job_id,
            "job": run.job_name,
            "agent": run.agent,
            "workspace": run.workspace,
            "scheduled_at": iso_utc(run.scheduled_ms),
            "reason": verdict.reason,
        }
        if verdict.becomes is Becomes.SKIPPED:
            log.info("run.skipped", **about)
        elif verdict.becomes is Becomes.MISSED:
            until = None if verdict.until_ms is None else iso_utc(verdict.until_ms)
            log.warning("run.missed", **about, ticks=verdict.covers, until=until)
        else:
            log.info("run.queued", **about, fire_at=iso_utc(run.fire_ms))
    for job, reason in ended:
        log.info("job.disabled", **job.log_fields, reason=reason)


def log_outcome(log: EventLogger, finished: Finished, about: Mapping[str, object], worker: str) -> None:
    """Log the outcome of an attempt. Successes are logged at the debug level: there may be thousands."""
    state, reason, error = finished.state, finished.reason, finished.error
    ms = finished.finished_ms - finished.started_ms
    if state == "succeeded":
        log.debug("run.succeeded", **about, worker=worker, ms=ms, status=finished.response_code)
    elif state == "running" and finished.verification is not None:
        log.debug("run.verifying", **about, worker=worker, status=finished.response_code)
    elif state == "running":
        log.debug("run.awaiting_callback", **about, worker=worker, status=finished.response_code)
    elif state == "retrying":
        next_at = None if finished.due_ms is None else iso_utc(finished.due_ms)
        log.info("run.retrying", **about, worker=worker, reason=reason, error=error, ms=ms, next_at=next_at)
    elif state == "failed":
        log.warning(
            "run.failed", **about, worker=worker, reason=reason, error=error, ms=ms, dead_letter=True
        )  # fmt: skip
    elif state == "skipped":
        log.info("run.skipped", **about, worker=worker, reason=reason)


class LoggedConsequences:
    """`consequences`, remembering the effects so that they can be logged after the commit."""

    def __init__(self, consequences: Consequences) -> None:
        self._consequences = consequences
        self._effects: Effects | None = None
        self._outcomes: Sequence[Finished] = ()

    def __call__(self, outcomes: Sequence[Finished], facts: Facts) -> Effects:
        """Return the effects. A transaction that is repeated replaces them."""
        self._outcomes = outcomes
        self._effects = self._consequences(outcomes, facts)
        return self._effects

    def as_written(self, batch: Sequence[Finished]) -> Sequence[Finished]:
        """Return the outcomes as they were written: those with refused directives are failed attempts."""
        outcomes, self._outcomes = self._outcomes, ()
        if all(each.handled is None for each in batch):
            return batch
        written = {each.run_id: each for each in outcomes}
        return [written.get(each.run_id, each) for each in batch]

    def log(self, log: EventLogger) -> None:
        """Log the jobs that the outcomes disabled or deleted, and the runs that follow."""
        effects, self._effects = self._effects, None
        if effects is None:
            return
        for job_id, end in effects.disabled.items():
            level = log.info if end.reason == ONCE else log.warning  # it is done, nothing is wrong
            level("job.disabled", job_id=job_id, reason=end.reason)
        for job_id in effects.deleted:
            log.info("job.deleted", job_id=job_id, reason="its last run succeeded")
        for run in effects.runs:
            log.info(
                "run.follows", run_id=run.id, job_id=run.job_id, job=run.job_name, agent=run.agent,
                workspace=run.workspace, after_run_id=run.triggered_by, reason=run.trigger,
            )  # fmt: skip


class Completer(Loop):
    """Collects outcomes and writes them."""

    name = "completer"

    def __init__(
        self, worker: str, store: Store, clock: Clock, max_sleep_ms: int, consequences: Consequences
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self.worker_name = worker
        self._store = store
        self._consequences = LoggedConsequences(consequences)
        self._finished: list[Finished] = []
        #: with tracing: when the write of the present batch began
        self.began_ns: int | None = None
        self.tracing: Tracing | None = None
        self._batch_size = _MAX_BATCH
        #: faults since the last successful write, and those that single outcomes cause themselves, by run
        self._faults = 0
        self._fault_counts: Counter[str] = Counter()
        #: whether the last write failed
        self._failed = False
        #: set by the worker: which runs to take in the transaction that writes a batch; None: none
        self.take_next: Callable[[Sequence[Finished]], TakeNext | None] = lambda batch: None
        #: held during such a transaction: it may commit although it fails here
        self.taking = asyncio.Lock()
        #: set by the worker: called with each batch, the ids of the runs that were written, and those that
        #: were taken
        self.on_written: Callable[[Sequence[Finished], set[str], Sequence[TakenRun]], None] = (
            lambda batch, written, taken: None
        )
        #: set by the worker: called if such a transaction failed or came back too late
        self.on_uncertain: Callable[[], None] = lambda: None

    def add(self, finished: Finished) -> None:
        """Add an outcome to write."""
        self._finished.append(finished)
        if len(self._finished) == 1:
            self.wake()

    @property
    def will_write(self) -> bool:
        """Whether outcomes wait to be written, and the last write succeeded."""
        return bool(self._finished) and not self._failed

    @property
    def unwritten(self) -> int:
        """The number of outcomes that are not written yet."""
        return len(self._finished)

    async def step(self) -> None:
        """Write all outcomes."""
        await asyncio.sleep(0)  # so that outcomes of one moment share a batch
        while self._finished:
            batch = _one_of_each_run(self._finished[: self._batch_size])
            if self.tracing is not None:
                self.began_ns = self.tracing.now_ns()
            try:
                written, taken = await self._write(batch)
                self._failed = False
            except (AlreadyExists, InvalidArgument) as error:
                if not self._halve(batch):
                    self._replace_first(batch[0], _without_output(batch[0], error), error)
                continue
            except Exception as error:
                if isinstance(error, Unavailable) and not isinstance(error, DatabaseFault):
                    raise
                if not isinstance(error, Unavailable):
                    log.exception("outcomes.fault", count=len(batch))
                    error = DatabaseFault(f"outcomes cannot be written: {type(error).__name__}: {error}")
                self._faults += 1
                if self._faults <= _BATCH_RETRIES:
                    raise error from None
                if not self._halve(batch):
                    await self._requeue(batch[0], error)
                continue
            self.report_progress()  # under constant load this loop does not end
            self._consequences.log(log)
            self._faults = 0
            self._batch_size = min(self._batch_size * 2, _MAX_BATCH)
            if self._fault_counts:
                for each in batch:
                    del self._fault_counts[each.run_id]
            del self._finished[: len(batch)]
            if len(written) < len(batch):
                for each in batch:
                    if each.run_id not in written:
                        # Not a fault: the run was stopped, completed from outside, or lost.
                        log.info(
                            "run.fenced", run_id=each.run_id, job_id=each.job_id, attempt=each.attempt,
                            worker=self.worker_name, would_be=each.state,
                        )  # fmt: skip
            self.on_written(self._consequences.as_written(batch), written, taken)

    async def _write(self, batch: Sequence[Finished]) -> tuple[set[str], Sequence[TakenRun]]:
        """Write a batch. Returns the ids that were written, and the runs that were taken."""
        take_next = self.take_next(batch)
        try:
            if take_next is None:
                return await self._store.finish(self.worker_name, batch, self._consequences), ()
            async with self.taking:
                return await self._store.finish_and_take(
                    self.worker_name, batch, self._consequences, take_next
                )
        except BaseException:
            self._failed = True
            if take_next is not None:
                self.on_uncertain()
            raise

    def _halve(self, batch: Sequence[Finished]) -> bool:
        """Continue with half of this batch. Returns False if it is a single outcome."""
        if len(batch) > 1:
            self._batch_size = len(batch) // 2
        return len(batch) > 1

    async def _requeue(self, one: Finished, error: Exception) -> None:
        """Retry this outcome after the others, at last without what causes faults. Raises the error."""
        lesser = _without_output(one, error)
        while lesser is not None and not await self._would_accept(lesser):
            lesser = _without_output(lesser, error)
        if lesser is not None:
            self._fault_counts[one.run_id] += 1
            if self._fault_counts[one.run_id] >= _MAX_FAULTS:
                del self._fault_counts[one.run_id]
                self._replace_first(one, lesser, error)
        self._finished.append(self._finished.pop(0))
        raise error

    async def _would_accept(self, outcome: Finished) -> bool:
        """Return whether the database commits, and accepts this outcome. It is written and rolled back."""
        try:
            await self._store.beat(self.worker_name, self.clock.now_ms(), ())
            await self._store.finish(self.worker_name, [outcome], _roll_back)
        except _RolledBack:
            return True
        except Exception:
            return False
        return False  # it is fenced, so nothing was written

    def _replace_first(self, one: Finished, lesser: Finished | None, error: Exception) -> None:
        """Replace the first outcome by one with less. Raises the error if there is none."""
        log.error(
            "run.unwritable", run_id=one.run_id, job_id=one.job_id, attempt=one.attempt,
            worker=self.worker_name, exc_info=error,
        )  # fmt: skip
        if lesser is None:
            self._finished.append(self._finished.pop(0))
            raise error
        self._finished[0] = lesser


def _one_of_each_run(batch: Sequence[Finished]) -> Sequence[Finished]:
    """Return the outcomes before the second one of a run.

    Several attempts of a run can wait: one was lost, or written without a response, and the next has ended.
    """
    seen = {each.run_id for each in batch}
    if len(seen) == len(batch):
        return batch
    for number, each in enumerate(batch):
        if each.run_id not in seen:
            return batch[:number]
        seen.remove(each.run_id)
    return batch


class _RolledBack(Exception):
    """Raised in a transaction that is tried and not committed."""


def _roll_back(finished: Sequence[Finished], facts: Facts) -> Effects:
    """Raise in the transaction, after the outcomes are written."""
    raise _RolledBack


def _without_output(one: Finished, error: Exception) -> Finished | None:
    """Return the outcome without its output; None if there is nothing to drop.

    What it adds to histories, and its evidence, are dropped if it cannot be written without output, and at
    last its usage. A signal whose directives cannot be stored has not succeeded: it becomes a failed attempt.
    """
    if one.reason == _REASON:
        if one.history or one.evidence:
            return one._replace(history=(), evidence=None)
        return one._replace(usage=None) if one.usage else None
    if one.handled is not None and one.handled.refusal is not None:
        why = error.message if isinstance(error, AlreadyExists) else type(error).__name__
        return one.handled.refusal()._replace(error=f"{_REFUSED} ({why})")
    message = f"{_UNSTORABLE} ({type(error).__name__})"
    return one._replace(output=None, error=message, reason=_REASON)
