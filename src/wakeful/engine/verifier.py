"""The verifier: checks runs that were reported as done, and writes their outcomes (`verify`).

Verifications are stored (`store.sql.verifications`). A worker takes one with a lease that is longer than the
check may take. If the process dies, another one checks the run again: the target is not launched again.
A check that fails itself is tried again a few times. Then, and if it says no, the attempt has failed with the
reason `unverified`. A run that a person verifies (`manual`) is due at its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from wakeful.document import policy_from_text, work_from_text
from wakeful.document.guards import MANUAL, timeout_ms
from wakeful.engine.completer import LoggedConsequences, log_outcome
from wakeful.engine.launcher_registry import LauncherRegistry, build_launch
from wakeful.engine.loop import Loop
from wakeful.errors import DatabaseFault, InvalidArgument, Unavailable, WakefulError
from wakeful.job.job import NO_WORK, Work
from wakeful.job.policy import DEFAULT_POLICY, Policy
from wakeful.job.start_rules import Requirement, can_take
from wakeful.launch.budgets import BudgetCache, BudgetGate
from wakeful.launch.function import error_text
from wakeful.launch.port import Launch
from wakeful.launch.verify import VerifyLaunch, verify_run
from wakeful.logs import get_logger
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Failed, Finished, Succeeded, with_history
from wakeful.run.verification import (
    MAX_TRIES,
    WAIT_MS,
    Verdict,
    conclude_verified,
    retry_ms,
    verified_outcome,
)
from wakeful.store.port import Store
from wakeful.store.sql.verifications import DueVerification
from wakeful.values.clock import Clock
from wakeful.values.duration import spell_duration
from wakeful.values.instants import iso_utc
from wakeful.values.json_value import Json

#: The most checks at once, and those of one workspace: a check that hangs takes up to ten minutes.
MAX_CONCURRENT: Final = 128
MAX_PER_WORKSPACE: Final = 32
#: Seconds that checks have to end when the process stops.
_GRACE_S: Final = 2.0
#: The pause after a result could not be written.
_RETRY_S: Final = 0.5

log = get_logger("wakeful.verifier")


class _Job(NamedTuple):
    """What the outcome of a run depends on."""

    policy: Policy
    work: Work
    #: the stored text of what was sent
    payload: str | None


#: In place of a job that cannot be read.
_UNREADABLE: Final = _Job(DEFAULT_POLICY, NO_WORK, None)


class Verifier(Loop):
    """Runs checks and writes their results."""

    name = "verifier"
    follows_time = True

    def __init__(
        self,
        worker_name: str,
        store: Store,
        clock: Clock,
        launchers: LauncherRegistry,
        consequences: Consequences,
        on_finished: Callable[[Sequence[Finished], list[int], list[tuple[str, str, str]]], None],
        on_checked: Callable[[str], None],
        budgets: BudgetCache,
        gate: BudgetGate,
        *,
        max_sleep_ms: int,
        lease_ms: int,
    ) -> None:
        super().__init__(clock, max_sleep_ms)
        self._worker_name = worker_name
        self._store = store
        self._launchers = launchers
        self._consequences = consequences
        #: called with each written outcome, as by the worker
        self._on_finished = on_finished
        #: called with each result: `verified`, `unverified` or `error`
        self._on_checked = on_checked
        self._budgets = budgets
        self._gate = gate
        self._lease_ms = lease_ms
        #: the last take: it is not cancelled, because its verifications may have a lease already
        self._taking: asyncio.Task[int] | None = None
        self._checks: dict[str, asyncio.Task[None]] = {}
        #: the number of checks, by workspace
        self._by_workspace: Counter[str] = Counter()

    @property
    def is_busy(self) -> bool:
        """Whether checks are under way."""
        return bool(self._checks)

    def stop_run(self, run_id: str) -> None:
        """Stop the check of a run that was cancelled."""
        check = self._checks.get(run_id)
        if check is not None:
            check.cancel()

    async def run(self) -> None:
        """Run until cancelled; then give running checks a moment, and release the others."""
        try:
            await super().run()
        finally:
            if self._taking is not None:
                await asyncio.wait({self._taking}, timeout=_GRACE_S)
            checks = set(self._checks.values())
            if checks:
                await asyncio.wait(checks, timeout=_GRACE_S)
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)

    async def step(self) -> int | None:
        """Take as many due verifications as there are free places, and start their checks."""
        counts = self._by_workspace
        full = [workspace for workspace, count in counts.items() if count >= MAX_PER_WORKSPACE]
        # All that are taken may be of one workspace.
        most = max((count for count in counts.values() if count < MAX_PER_WORKSPACE), default=0)
        free = min(MAX_CONCURRENT - len(self._checks), MAX_PER_WORKSPACE - most)
        if free <= 0:
            return None  # the first that ends wakes the loop
        now_ms = self.clock.now_ms()
        due_ms = await self._store.next_verification_ms(0)
        if due_ms is None or due_ms > now_ms:
            return due_ms
        self._taking = asyncio.create_task(self._take(now_ms, free, full), name="wakeful-verifications")
        taken = await asyncio.shield(self._taking)
        return now_ms if taken == free else await self._store.next_verification_ms(now_ms)

    async def _take(self, now_ms: int, free: int, full: Sequence[str]) -> int:
        """Start up to so many checks, none of the workspaces that are `full`. Returns how many."""
        taken = await self._store.take_verifications(
            now_ms,
            self._worker_name,
            self._launchers.capabilities(),
            now_ms - WAIT_MS,
            free,
            lambda verify: now_ms + _limit_ms(verify) + self._lease_ms,
            full,
        )
        for due in taken:
            check = asyncio.create_task(self._verify(due), name="wakeful-verification")
            self._checks[due.run.id] = check
            self._by_workspace[due.run.workspace] += 1
            check.add_done_callback(partial(self._end_check, due.run.id, due.run.workspace))
        return len(taken)

    def _end_check(self, run_id: str, workspace: str, check: asyncio.Task[None]) -> None:
        self._by_workspace[workspace] -= 1
        if not self._by_workspace[workspace]:
            del self._by_workspace[workspace]
        if self._checks.get(run_id) is check:  # not a later check of the run
            del self._checks[run_id]
        self.wake()

    async def _verify(self, due: DueVerification) -> None:
        """Check a run and write the result. On cancellation, another process may check it at once."""
        held = self._worker_name, due.tries
        try:
            job, verdict = await self._check(due)
            view = due.view
            done = Succeeded(view.output, view.usage, view.response_code)
            outcome = verified_outcome(verdict, done, due.tries)
            if outcome is None:
                assert isinstance(verdict, Failed)
                await self._try_again(due, held, verdict)
                return
            self._on_checked("verified" if isinstance(outcome, Succeeded) else "unverified")
            await self._write(due, held, job, outcome)
        except asyncio.CancelledError:
            # Nothing is changed if the run was cancelled. If the database does not respond, the lease ends.
            with contextlib.suppress(WakefulError, TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._store.postpone_verification(
                        due.run.id, held, self.clock.now_ms(), counts=False
                    )
            raise
        except Exception as error:
            if isinstance(error, Unavailable) and not isinstance(error, DatabaseFault):
                # Its lease ends, and it is checked again.
                log.warning("verification.unwritten", **due.run.log_fields, error=error.message)
                return
            log.exception("verification.error", **due.run.log_fields)
            await self._retry_or_fail(due, held, error)

    async def _retry_or_fail(self, due: DueVerification, held: tuple[str, int], error: Exception) -> None:
        """Try again after an unexpected error, at last with an outcome that can be written in any case."""
        failed = Failed(
            f"its outcome could not be stored ({type(error).__name__})", permanent=True, reason="unstorable"
        )
        try:
            if due.tries < MAX_TRIES:
                await self._try_again(due, held, failed)
            else:
                self._on_checked("unverified")
                await self._write(
                    due._replace(run=due.run._replace(precheck=None)), held, _UNREADABLE, failed
                )
        except Exception as again:  # its lease ends, and it is checked again
            log.warning("verification.unwritten", **due.run.log_fields, error=error_text(again))

    async def _check(self, due: DueVerification) -> tuple[_Job, Verdict | Failed]:
        run = due.run
        try:
            policy, work = policy_from_text(run.policy), work_from_text(run.work)
            launch = build_launch(run, policy, work, run.payload, run)
        except InvalidArgument as error:
            return _UNREADABLE, Failed(f"its job cannot be read: {error.message}", permanent=True)
        except Exception as error:
            log.exception("verification.error", **run.log_fields)
            return _UNREADABLE, Failed(error_text(error))
        launch.budgeted = work.budget is not None or self._budgets.apply_to(run.workspace, run.agent)
        return _Job(policy, work, launch.payload_text), await self._ask(due, launch)

    async def _ask(self, due: DueVerification, launch: Launch) -> Verdict | Failed:
        try:
            verify: Mapping[str, Json] = _read(due.verify)
        except InvalidArgument as error:
            return Failed(error.message, permanent=True)
        if verify.get("kind") == MANUAL:
            limit = spell_duration(timeout_ms(verify))
            return Verdict(False, f"it was not confirmed within {limit}")
        requirement = Requirement(due.requires)
        if not can_take(self._launchers.capabilities(), requirement):
            return Verdict(False, requirement.advice)
        if launch.budgeted and verify.get("kind") != "http":  # a request with GET uses nothing
            refused = await self._gate.verify(launch)
            if refused is not None:
                return refused
        request = VerifyLaunch(launch, due.view.output, due.view.evidence)
        return await verify_run(self._launchers.verifier(verify.get("kind")), request, verify)

    async def _try_again(self, due: DueVerification, held: tuple[str, int], failed: Failed) -> None:
        """Postpone a verification whose check failed itself."""
        due_ms = self.clock.now_ms() + retry_ms(due.tries, due.run.id)
        self._on_checked("error")
        log.info(
            "verification.retrying", **due.run.log_fields, error=failed.error, tries=due.tries,
            next_at=iso_utc(due_ms),
        )  # fmt: skip
        await self._store.postpone_verification(due.run.id, held, due_ms, counts=True)

    async def _write(
        self,
        due: DueVerification,
        held: tuple[str, int],
        job: _Job,
        outcome: Succeeded | Failed,
    ) -> None:
        """Write the outcome. While the database is unavailable, try until the lease ends."""
        run, view = due.run, due.view
        now_ms = self.clock.now_ms()
        finished = conclude_verified(
            run.id, run.job_id, run.attempt, job.policy, outcome, view.started_ms or now_ms, now_ms,
            job.work, run.failed_attempts, run.precheck,
        )  # fmt: skip
        finished = with_history(finished, view, view.job_name, job.work, job.payload)
        until_ms = now_ms + self._lease_ms
        rule = LoggedConsequences(self._consequences)
        while True:
            try:
                written = await self._store.finish_verification(finished, rule, held)
                break
            except WakefulError:
                if self.clock.now_ms() >= until_ms:
                    raise
                await asyncio.sleep(_RETRY_S)
        if not written:
            log.info(
                "run.fenced", run_id=run.id, job_id=run.job_id, attempt=run.attempt,
                worker=self._worker_name, would_be=finished.state,
            )  # fmt: skip
            return
        log_outcome(log, finished, run.log_fields, self._worker_name)
        rule.log(log)
        self._on_finished([finished], [], [(run.workspace, run.agent, finished.state)])


def _limit_ms(verify: str) -> int:
    """Return how long a stored check may take. A `manual` one takes no time when its deadline has passed."""
    try:
        read = _read(verify)
        return 0 if read.get("kind") == MANUAL else timeout_ms(read)
    except InvalidArgument:  # `_ask` reports it
        return 0


def _read(verify: str) -> Mapping[str, Json]:
    """Return a stored check; InvalidArgument if it cannot be read."""
    try:
        found = json.loads(verify)
        timeout_ms(found)
        return dict(found)
    except Exception as error:
        raise InvalidArgument(f"its check cannot be read: {error_text(error)}") from error
