"""Read, cancel, replay and complete runs."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Final, get_args

from wakeful.document import payload_to_text
from wakeful.engine.completer import LoggedConsequences, log_outcome
from wakeful.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, WakefulError
from wakeful.job.start_rules import BudgetOwner
from wakeful.launch.port import truncate
from wakeful.logs import get_logger
from wakeful.run.consequences import consequences
from wakeful.run.instances import instance_id
from wakeful.run.outcome import Succeeded, with_history
from wakeful.run.run import LISTED_STATES, NewRun, TriggerName
from wakeful.run.verification import Verdict, conclude_verified, verified_outcome
from wakeful.service.admin.limits import Budgets
from wakeful.service.auth.access import Action, Principal, check_person, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.agent_policy import check_ending, check_not_internal
from wakeful.service.filters import check_choices
from wakeful.service.runs.completions import Completion, job_of_run, no_run
from wakeful.service.runs.manual_runs import replay_run
from wakeful.service.runs.report_batches import ReportBatches
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.idempotency import Keyed
from wakeful.store.internal_jobs import ALERT_JOBS
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, DeadLetter, RunFilter, RunView
from wakeful.store.sql.runs import MOST_ATTEMPTS
from wakeful.values.clock import Clock
from wakeful.values.instance_names import check_instance
from wakeful.values.json_value import Json, compact

#: The most dead letters that one call replays or discards.
MANY: Final = 1_000

#: The longest reason of a rejected run.
MAX_REASON: Final = 1_000

log = get_logger("wakeful.service")


class _NotDead(Exception):
    """The run to be replayed is not a dead letter."""


class RunService:
    """Reads, cancels, replays and completes runs."""

    def __init__(self, store: Store, accounts: Accounts, budgets: Budgets, telemetry: RunTelemetry) -> None:
        self._store = store
        self._accounts = accounts
        self._budgets = budgets
        self._telemetry = telemetry
        #: outcomes that are reported from outside
        self.reports = ReportBatches(store, accounts, telemetry)

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def get(self, principal: Principal, workspace: str, run_id: str) -> RunView:
        """Return the run of that id, or raise NotFound."""
        return await self._one(principal, "read", workspace, run_id)

    async def read(
        self, principal: Principal, workspace: str, run_id: str
    ) -> tuple[RunView, list[AttemptView]]:
        """Return the run of that id with its newest attempts, including the present one, or NotFound."""
        await self._accounts.authorize(principal, "read", workspace)
        run, earlier = await self._store.run_with_attempts(run_id) or (None, [])
        if run is None or run.workspace != workspace or principal.agent not in (None, run.agent):
            raise no_run(run_id)
        await self._accounts.names.load((run.triggered_by,))
        # Between two attempts, or cancelled there, the last attempt is among them already.
        if run.started_ms is None or (earlier and earlier[-1].attempt == run.attempt):
            return run, earlier
        return run, [
            *earlier[1 - MOST_ATTEMPTS :], AttemptView(
                run.attempt, run.shown_worker, run.started_ms, run.finished_ms, run.error, run.response_code,
                run.output if run.state == "failed" else None,
            )
        ]  # fmt: skip

    async def list(
        self,
        principal: Principal,
        workspace: str,
        agent: str | None = None,
        *,
        job_id: str | None = None,
        states: Sequence[str] = (),
        trigger: str | None = None,
        dead: bool = False,
        instance: str | None = None,
        before: str | None = None,
        since: str | None = None,
        limit: int = 50,
        offset: int = 0,
        to_confirm: bool = False,
    ) -> list[RunView]:
        """List runs, newest first; `before` is the id of the last run of the previous page.

        `since` is the lowest id. `instance` is an instance of the agent. `offset` is how many of the first
        ones are left out. `to_confirm`: only those that wait for a person to confirm their work.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        check_choices("state", states, LISTED_STATES)
        check_choices("trigger", () if trigger is None else (trigger,), get_args(TriggerName))
        visible = visible_agent(principal, agent)
        own = None
        if instance is not None:
            if visible is None:
                raise InvalidArgument("instance: it needs its agent; give agent too")
            own = instance_id(workspace, visible, check_instance(instance))
        runs = await self._store.runs(
            RunFilter(
                workspace,
                visible,
                job_id,
                tuple(states),
                trigger,
                dead,
                before,
                limit,
                own,
                since,
                offset,
                to_confirm,
            )
        )
        if not runs:
            await self._accounts.check_agent(principal, workspace, agent)
        await self._accounts.names.load(run.triggered_by for run in runs)
        return runs

    async def cancel(
        self, principal: Principal, workspace: str, run_id: str, reason: str = "cancelled"
    ) -> RunView:
        """Cancel a waiting run: pending, or between two attempts."""
        return await self._end(principal, workspace, run_id, reason, running=False)

    async def stop(
        self, principal: Principal, workspace: str, run_id: str, reason: str = "stopped"
    ) -> RunView:
        """Stop a running run."""
        return await self._end(principal, workspace, run_id, reason, running=True)

    async def replay(
        self, principal: Principal, workspace: str, run_id: str, *, keyed: Keyed[RunView] | None = None
    ) -> RunView:
        """Run a dead letter again, as a new run with the same key and the next attempt."""
        dead = await self._one(principal, "dead-letter", workspace, run_id)
        await self._budgets.check(BudgetOwner(workspace, dead.agent, dead.job_id or ""), dead.job_name)
        now_ms = self._clock.now_ms()

        def first(replays: Sequence[RunView]) -> RunView:
            if not replays:  # raised inside the transaction, so that a key stores nothing
                raise _NotDead
            return replays[0]

        try:
            replay = first(
                await self._store.replay_runs(
                    workspace,
                    [run_id],
                    lambda letter: replay_run(principal, letter, now_ms),
                    lambda dead: principal.entry(workspace, "run.replay", dead),
                    keyed.of(first) if keyed else None,
                )
            )
        except _NotDead:
            raise await self._no_letter(run_id) from None
        self._telemetry.record_trigger(replay)
        return replay

    async def discard(self, principal: Principal, workspace: str, run_id: str) -> None:
        """Discard a dead letter permanently."""
        await self._one(principal, "dead-letter", workspace, run_id)
        if not await self._discard_letters(principal, workspace, [run_id]):
            raise await self._no_letter(run_id)

    async def replay_many(
        self,
        principal: Principal,
        workspace: str,
        run_ids: Sequence[str] | None = None,
        *,
        keyed: Keyed[Sequence[str]] | None = None,
    ) -> Sequence[str]:
        """Replay these dead letters, or the oldest thousand without ids; return the ids of those replayed.

        Ids that are not dead letters, and those without budget, are left out. ResourceExhausted: none has
        budget.
        """
        await self._accounts.authorize(principal, "dead-letter", workspace)
        which, now_ms = _which(run_ids), self._clock.now_ms()
        may_request = await self._budgets.may_request(workspace)
        refused: list[str] = []

        def again(letter: DeadLetter) -> NewRun | None:
            old = letter.run
            decision = may_request(BudgetOwner(workspace, old.agent, old.job_id or ""), old.job_name)
            if not decision:
                refused.append(decision.message)
                return None
            return replay_run(principal, letter, now_ms)

        def ids(replays: Sequence[RunView]) -> Sequence[str]:
            if refused and not replays:
                raise ResourceExhausted(refused[0])
            return [str(run.replay_of) for run in replays]

        return ids(
            await self._store.replay_runs(
                workspace,
                which,
                again,
                lambda dead: principal.entry(workspace, "run.replay", dead),
                keyed.of(ids) if keyed else None,
            )
        )

    async def discard_many(
        self, principal: Principal, workspace: str, run_ids: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Discard these dead letters, or the oldest thousand without ids; return their ids."""
        await self._accounts.authorize(principal, "dead-letter", workspace)
        return await self._discard_letters(principal, workspace, _which(run_ids))

    async def complete(
        self,
        principal: Principal,
        workspace: str,
        run_id: str,
        status: str,
        *,
        attempt: int | None = None,
        output: str | None = None,
        error: str | None = None,
        usage: str | None = None,
        evidence: str | None = None,
        permanent: bool = False,
        counted: bool = True,
    ) -> RunView:
        """Complete a run that is executed outside: a claimed run, or one with a callback.

        A run with a callback can be completed as soon as its attempt is running, before its target has
        responded. The first report of an attempt counts. `attempt` is required for a claimed run: an executor
        that lost its lease must not complete the attempt of another. A success without the evidence that the
        job requires is a failed attempt. With `verify`, the run stays running until it is verified. A failure
        that is `permanent` is not retried; one that is not `counted` is retried without limit.
        """
        report = Completion(run_id, status, attempt, output, error, usage, evidence, permanent, counted)
        return await self.reports.complete(principal, workspace, report)

    async def verify(
        self,
        principal: Principal,
        workspace: str,
        run_id: str,
        verified: bool,
        *,
        reason: str | None = None,
        attempt: int | None = None,
    ) -> RunView:
        """Confirm the work of a run that was reported as done, or reject it; for people.

        A rejected attempt has failed (`unverified`). FailedPrecondition: the run is not being verified, or
        is at another attempt.
        """
        run, now_ms = await self._one(principal, "verify", workspace, run_id), self._clock.now_ms()
        check_person(principal, f"confirm run '{run_id}'")
        if not run.verifying or attempt not in (None, run.attempt):
            raise _not_verifying(run, attempt)
        row, policy, work = await job_of_run(self._store, run)
        done = Succeeded(run.output, run.usage, run.response_code)
        outcome = verified_outcome(Verdict(verified, truncate(reason or "")), done, tries=1)
        assert outcome is not None
        finished = conclude_verified(
            run_id, run.job_id, run.attempt, policy, outcome, run.started_ms or now_ms, now_ms, work,
            run.failed_attempts, run.precheck,
        )  # fmt: skip
        payload = run.payload if run.payload is not None or row is None else row.payload
        finished = with_history(finished, run, run.job_name, work, payload or payload_to_text(work.body))
        details: dict[str, Json] = {"verified": verified, **({"reason": reason} if reason else {})}
        entry = principal.entry(workspace, "run.verify", run_id, compact(details))
        rule = LoggedConsequences(consequences)
        if not await self._store.finish_verification(finished, rule, entries=[entry]):
            raise _not_verifying(await self.get(principal, workspace, run_id), run.attempt)
        self._telemetry.record_completion(finished, run)
        log_outcome(log, finished, run.log_fields, principal.actor)
        rule.log(log)
        return await self.get(principal, workspace, run_id)

    async def _one(self, principal: Principal, action: Action, workspace: str, run_id: str) -> RunView:
        await self._accounts.authorize(principal, "read", workspace)
        run = await self._store.run(run_id)
        if run is None or run.workspace != workspace or principal.agent not in (None, run.agent):
            raise no_run(run_id)
        await self._accounts.authorize(principal, action, workspace, run.agent)
        if action != "read":
            check_not_internal(principal, run.job_name, ALERT_JOBS)
        await self._accounts.names.load((run.triggered_by,))
        return run

    async def _end(
        self, principal: Principal, workspace: str, run_id: str, reason: str, *, running: bool
    ) -> RunView:
        found = await self._one(principal, "run", workspace, run_id)
        if principal.role == "agent" and found.job_id is not None:
            job = await self._store.job_by_id(found.job_id, deleted=True)
            if job is not None:
                check_ending(principal, job.created_by, found)
        entry = principal.entry(workspace, "run.stop" if running else "run.cancel", run_id)
        run = await self._store.cancel_run(
            run_id, self._clock.now_ms(), reason, running=running, entries=[entry]
        )
        if run is None:
            raise no_run(run_id)
        return run

    async def _discard_letters(
        self, principal: Principal, workspace: str, which: Sequence[str] | int
    ) -> builtins.list[str]:
        return await self._store.discard_runs(
            workspace, which, lambda dead: principal.entry(workspace, "run.discard", dead)
        )

    async def _no_letter(self, run_id: str) -> WakefulError:
        """Return why a run was neither replayed nor discarded."""
        run = await self._store.run(run_id)
        if run is None:
            return no_run(run_id)
        before = ", and was replayed or discarded before" if run.state == "failed" else ""
        return FailedPrecondition(f"run '{run_id}' is not a dead letter: it is {run.state}{before}")


def _which(run_ids: Sequence[str] | None) -> Sequence[str] | int:
    if run_ids is not None and len(run_ids) > MANY:
        raise InvalidArgument(f"ids: at most {MANY} at once, not {len(run_ids)}")
    return MANY if run_ids is None else run_ids


def _not_verifying(run: RunView, attempt: int | None) -> FailedPrecondition:
    if run.verifying:
        return FailedPrecondition(f"run '{run.id}' is at attempt {run.attempt}, not {attempt}")
    return FailedPrecondition(f"run '{run.id}' is {run.state} and does not wait to be verified")
