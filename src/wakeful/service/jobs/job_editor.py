"""Change stored jobs. A change is checked whole, in the transaction that writes it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from wakeful.document import patch_definition
from wakeful.engine.calendar_loader import compute_ticks, excludes_something, has_calendar, load
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.job import job as job_rules
from wakeful.job.job import Definition, JobRecord, StaleJob, inherit
from wakeful.job.start_rules import find_requirement
from wakeful.launch.secrets import ROTATION_MS, Keyring, format_secret, new_secret
from wakeful.run.job_transitions import edit_job
from wakeful.run.run import NewRun
from wakeful.service.admin.limits import Budgets, check_tighter
from wakeful.service.agents.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.access import Action, Principal
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_policy import (
    AgentTargetPolicy,
    check_change,
    check_deletable,
    check_not_event_job,
    check_not_internal,
    check_not_reserved,
    check_removal,
    is_admin_owned,
)
from wakeful.service.auth.masking import unmask
from wakeful.service.jobs.job_batches import check_owner
from wakeful.service.jobs.job_factory import SaveResult, check_lane, read_enabled
from wakeful.service.jobs.job_query import find_job, no_job
from wakeful.service.jobs.revision_rules import new_revision
from wakeful.service.jobs.run_origin import AgentCall, RunOrigins
from wakeful.service.jobs.save_warnings import (
    MOST_FOLLOWERS,
    SaveWarnings,
    check_new_chain,
    missing_upstream,
    no_upstream,
    untargeted,
    waits_for_approval,
)
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import Keyed
from wakeful.store.job_changes import end_pause, missed_runs, move_after_edit, overdue_runs
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.row_mapping import changed_row, job_from_row
from wakeful.store.rows import JobChange, JobRow, RunFilter
from wakeful.store.sql.suggestions import SuggestionDecision
from wakeful.values.bounded_cache import bypass
from wakeful.values.clock import Clock
from wakeful.values.json_value import Json, compact

P = ParamSpec("P")
T = TypeVar("T")

#: How often a job is looked up again that was deleted or renamed while a change of it was prepared.
_TRIES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDependencies:
    """What the job services need. Nothing has a default: a missing part would disable a check."""

    store: Store
    launchers: LauncherRegistry
    keyring: Keyring
    accounts: Accounts
    budgets: Budgets
    target_policy: AgentTargetPolicy
    #: the lanes of this process; None: it has no workers, and accepts every lane
    lanes: frozenset[str] | None
    #: the default quotas; None: nothing is charged
    allowance: Allowance | None
    #: how many requests a minute a trigger URL takes; 0: unlimited
    hooks_per_minute: int
    warnings: SaveWarnings
    origins: RunOrigins
    telemetry: RunTelemetry


class JobGone(NotFound):
    """The job was deleted or renamed while a change of it was prepared."""


def look_again(change: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Do a change again if its job was deleted or renamed meanwhile: another job may have the name now."""

    @wraps(change)
    async def repeat(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES):
            with contextlib.suppress(JobGone):
                return await change(*args, **kwargs)
        return await change(*args, **kwargs)

    return repeat


def run_as_it_is(start: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Start runs of a job again if it was changed meanwhile: they wait where its target says.

    If the caller expects a `version`, a change is an error.
    """

    @wraps(start)
    async def repeat(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES):
            try:
                return await start(*args, **kwargs)
            except StaleJob:
                if kwargs.get("version") is not None:
                    raise
        return await start(*args, **kwargs)

    return repeat


class SuggestionEdit(NamedTuple):
    """The suggestion that an edit applies or rolls back, and its audit entry."""

    decision: SuggestionDecision
    entry: AuditEntry


class JobEditor:
    """Changes, deletes and finds stored jobs. The other parts of `JobService` build on it."""

    def __init__(self, dependencies: JobDependencies) -> None:
        self._store = dependencies.store
        self._launchers = dependencies.launchers
        self._keyring = dependencies.keyring
        self._accounts = dependencies.accounts
        self._target_policy = dependencies.target_policy
        self._lanes = dependencies.lanes
        self._warnings = dependencies.warnings
        self._origins = dependencies.origins

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    @look_again
    async def update(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
        suggestion: SuggestionEdit | None = None,
    ) -> SaveResult:
        """Change the fields that a patch names; with `version`, only if the job is still at that version.

        `suggestion` is the suggestion that the patch comes from: it is written in the same transaction.
        """
        row = await self.find_row(principal, "job.write", workspace, agent, name)
        check_owner(patch, agent)
        call = await self._origins.call(principal, workspace, agent)
        now_ms = self._clock.now_ms()

        def patched(old: JobRecord, context: JobContext) -> Definition:
            check_version(old, version)
            given = unmask(patch, old.definition)
            return patch_definition(old.definition, given, now_ms=now_ms, defaults=context.defaults)

        if has_calendar(row.timing) or excludes_something(patch):
            context = await self._accounts.context(workspace, agent)
            await compute_ticks(partial(patched, job_from_row(row), context), now_ms)
        entry = principal.entry(workspace, "job.update", f"{agent}/{row.name}", audit_details(patch))
        return await self.edit(
            principal, row, patched, entry, read_enabled(patch), call=call, suggestion=suggestion
        )

    async def delete(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> tuple[str, ...]:
        """Delete the job; with `version`, only if it is still at that version. Returns warnings.

        A running run continues, waiting runs are cancelled, and its runs stay readable. Jobs that come after
        it do not fire any more: the warnings name them.
        """
        deleted = await self._delete(principal, workspace, agent, name, version)
        with contextlib.suppress(Unavailable):  # it is deleted
            followers = await self._store.followers(workspace, agent, deleted, MOST_FOLLOWERS)
            return tuple(no_upstream(follower, deleted) for follower in followers)
        return ()

    @look_again
    async def _delete(
        self, principal: Principal, workspace: str, agent: str, name: str, version: int | None
    ) -> str:
        """Delete the job, and return its name."""
        row = await self._find_row(principal, "job.write", workspace, agent, name)
        check_deletable(row)
        if is_admin_owned(principal, row):
            running = RunFilter(workspace, agent, row.id, ("running",))
            check_removal(principal, row, await self._store.runs(running))
        now_ms = self._clock.now_ms()

        def leave(found: JobRow) -> tuple[NewRun, ...]:
            check_name(found, row.name)
            check_version(found, version)
            return overdue_runs(found, now_ms)

        entry = principal.entry(workspace, "job.delete", f"{agent}/{row.name}")
        if not await self._store.delete_job(row.id, now_ms, "deleted", [entry], leave):
            raise no_job(name)
        return row.name

    async def rotate_secret(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        *,
        version: int | None = None,
        keyed: Keyed[SaveResult] | None = None,
    ) -> SaveResult:
        """Give the job a new webhook secret. For a day, deliveries are signed with both secrets."""
        secret = new_secret()

        def rotated(context: JobContext, row: JobRow) -> JobChange | None:
            check_not_event_job(row)
            if row.secret is None:
                raise FailedPrecondition(f"job '{row.name}' has no webhook, so it has no secret to rotate")
            if signed_by_agent(job_from_row(row).definition.work, context.inherited):
                raise FailedPrecondition(
                    f"job '{row.name}' is signed with the secret of its agent '{agent}', whose webhook it "
                    f"inherits; rotate that one: POST /agents/{agent}/rotate-secret"
                )
            now_ms = self._clock.now_ms()
            until_ms = now_ms + ROTATION_MS
            now = row._replace(old_secret=row.secret, old_secret_until_ms=until_ms, updated_ms=now_ms)
            return JobChange(now._replace(secret=self._keyring.seal(secret)))

        def saved(row: JobRow | None) -> SaveResult:
            if row is None:
                raise no_job(name)
            return SaveResult(row, format_secret(secret))

        async def change(context: JobContext) -> JobRow:
            return await self.change_row(
                principal,
                "job.rotate-secret",
                workspace,
                agent,
                name,
                partial(rotated, context),
                version,
                context.inherited,
                keyed=keyed.of(saved) if keyed else None,
            )

        return saved(await self._accounts.with_context(workspace, agent, change))

    async def edit(
        self,
        principal: Principal,
        row: JobRow,
        edit: Callable[[JobRecord, JobContext], Definition],
        entry: AuditEntry,
        enabled: bool | None = None,
        *,
        call: AgentCall | None,
        dry_run: bool = False,
        suggestion: SuggestionEdit | None = None,
    ) -> SaveResult:
        """Change the definition of a job to what `edit` returns, and enable or disable it."""

        async def change(context: JobContext) -> SaveResult:
            return await self._edit(context, principal, row, edit, entry, enabled, call, dry_run, suggestion)

        return await self._accounts.with_context(row.workspace, row.agent, change)

    async def _edit(
        self,
        context: JobContext,
        principal: Principal,
        found: JobRow,
        edit: Callable[[JobRecord, JobContext], Definition],
        entry: AuditEntry,
        enabled: bool | None,
        call: AgentCall | None,
        dry_run: bool,
        suggestion: SuggestionEdit | None,
    ) -> SaveResult:
        new_secrets: list[bytes] = []
        changed = rescheduled = False

        def apply(row: JobRow) -> JobChange | None:
            nonlocal changed, rescheduled
            changed = rescheduled = False  # forget a try that was rolled back
            new_secrets.clear()
            check_name(row, found.name)
            row = end_pause(row, self._clock.now_ms()) if context.active else row
            old = job_from_row(row)
            definition = edit(old, context)
            before = old.definition.work
            work = replace(definition.work, origin=before.origin, depth=before.depth)
            definition = replace(definition, work=inherit(work, context.target))
            if enabled and not context.active:
                raise agent_inactive(context)
            # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
            same = changed_row(row, replace(old, definition=definition)) == row
            if same and enabled in (None, old.enabled):
                return None
            changed, rescheduled = True, definition.timing != old.definition.timing
            check_change(principal, row)
            if not same:
                check_not_event_job(row)
            check_not_internal(principal, definition.name)
            check_not_reserved(definition.name, old.definition)
            check_tighter(principal, definition.work.budget, old.definition.work.budget)
            self._target_policy.check(principal, definition.work, context, old.definition.work)
            self._target_policy.check_delivery(principal, definition.work, context, old.definition.work)
            self._launchers.check(definition.work.target)
            self._launchers.check_precheck(definition.work)
            self._launchers.check_verify(definition.work)
            check_lane(definition.work, self._lanes)
            now_ms = self._clock.now_ms()
            job = edit_job(old, definition, now_ms, enabled, active=context.active)
            if call is not None:
                job = call.changed(old, job, context) if same else call.redefined(old, job, context, now_ms)
                definition = job.definition
            changed_to = changed_row(row, job)
            if signed_by_agent(definition.work, context.inherited):
                changed_to = with_agents_secret(changed_to, context.inherited, now_ms)
            elif needs_secret(definition) and row.secret in (None, context.inherited.secret):
                new_secrets.append(new_secret())
                changed_to = changed_to._replace(
                    secret=self._keyring.seal(new_secrets[0]), old_secret=None, old_secret_until_ms=None
                )
            revision = None if same else new_revision(old.definition, job.definition, principal.creator)
            budget = definition.work.budget != old.definition.work.budget
            change = JobChange(changed_to, move=move_after_edit(old, job), revision=revision, budget=budget)
            if definition.timing != old.definition.timing:
                return change._replace(
                    withdraw="edited", runs=missed_runs(row, now_ms, "edited"), keeps=job.has_tick
                )
            if old.enabled and job.disabled_reason == "max_runs":
                return change._replace(runs=missed_runs(row, now_ms, "edited"))
            if old.enabled and not job.enabled:
                return change._replace(withdraw="paused", runs=missed_runs(row, now_ms, "paused"))
            return change

        if dry_run:
            row = await self._store.job_by_id(found.id)
            with bypass():
                change = None if row is None else apply(row)
            if row is not None and change is not None:
                row = change.job._replace(version=row.version + 1)
                await check_new_chain(self._store, row)
        else:
            charge = call.charge if call else None
            entries = [entry] if suggestion is None else [entry, suggestion.entry]
            decision = None if suggestion is None else suggestion.decision
            row = await self._store.change_job(
                found.id, apply, entries, context.inherited, decision, charge, partial(_follow, principal)
            )
        if row is None:
            raise JobGone("the job was deleted meanwhile")
        saved = SaveResult(row, format_secret(new_secrets[0]) if new_secrets else None, changed=changed)
        definition = saved.job.definition
        week = self._warnings.week(row.workspace) if rescheduled else None
        told = waits_for_approval(row) + (self._warnings.of_schedule(row, week) if week is not None else ())
        told += self._warnings.of_delivery(saved.job, context.channel) + self._warnings.of_event(row)
        with contextlib.suppress(Unavailable):  # it is written: a new secret is returned only now
            told += await self._warnings.of_job(
                row.workspace,
                row.agent,
                row.name,
                untargeted(definition),
                find_requirement(definition.work, row.workspace, row.agent),
            )
            told += (await missing_upstream(self._store, [row])).get(row.name, ())
        saved = saved._replace(warnings=told)
        return saved._replace(secret=None) if dry_run else saved

    @look_again
    async def change_row(
        self,
        principal: Principal,
        action: str,
        workspace: str,
        agent: str,
        name: str,
        change: Callable[[JobRow], JobChange | None],
        version: int | None = None,
        inherited: Inherited | None = None,
        details: str = "{}",
        keyed: Keyed[JobRow | None] | None = None,
    ) -> JobRow:
        """Write what `change` decides for the job, at the version that is expected."""
        found = await self.find_row(principal, "job.write", workspace, agent, name)
        call = await self._origins.call(principal, workspace, agent)
        context = await self._accounts.context(workspace, agent) if call else None

        def checked(row: JobRow) -> JobChange | None:
            check_name(row, found.name)
            check_version(row, version)
            changed = change(row)
            return changed if call is None or context is None else call.apply(row, changed, context)

        entry = principal.entry(workspace, action, f"{agent}/{found.name}", details)
        charge = call.charge if call else None
        after = await self._store.change_job(
            found.id, checked, [entry], inherited, charge=charge, keyed=keyed
        )
        if after is None:
            raise no_job(name)
        return after

    async def find_row(
        self, principal: Principal, action: Action, workspace: str, agent: str, name: str
    ) -> JobRow:
        """Return the job if the principal may perform the action on it; NotFound if there is none."""
        row = await self._find_row(principal, action, workspace, agent, name)
        if action == "job.write":
            check_change(principal, row)
        return row

    async def _find_row(
        self,
        principal: Principal,
        action: Action,
        workspace: str,
        agent: str,
        name: str,
        find: Callable[[Store, str, str, str], Awaitable[JobRow | None]] = find_job,
    ) -> JobRow:
        await self._accounts.authorize(principal, action, workspace, agent)
        if action != "read":
            check_not_internal(principal, name)  # also if there is no such job
        row = await find(self._store, workspace, agent, name)
        if row is None:
            raise no_job(name)
        if action != "read":
            check_not_internal(principal, row.name)
        if action == "run":
            check_not_event_job(row)
        await load([row.timing], self._clock.now_ms())
        await self._accounts.names.load((row.created_by,))
        return row


def check_name(job: JobRow, name: str) -> None:
    """Raise JobGone if the job has another name than when it was found."""
    if job.name != name:
        raise JobGone(f"job '{name}' was renamed to '{job.name}' meanwhile")


def _follow(principal: Principal, follower: JobRow, renamed: JobRow) -> JobChange:
    """Return the change of a job that comes after one that has been renamed."""
    new = follower._replace(after_job=renamed.name, updated_ms=renamed.updated_ms)
    try:
        revision = new_revision(
            job_from_row(follower).definition, job_from_row(new).definition, principal.creator
        )
    except InvalidArgument:  # it cannot be read
        revision = None
    return JobChange(new, revision=revision)


def audit_details(document: Mapping[str, object]) -> str:
    """Return the audit details of a document: its schedule, and the names of its fields."""
    schedule = document.get("schedule", document.get("cron"))
    fields: list[Json] = [*sorted(str(key)[:64] for key in document)[:64]]
    about: dict[str, Json] = {"fields": fields}
    if isinstance(schedule, str):
        about["schedule"] = schedule[:200]
    elif isinstance(schedule, Mapping):
        about["schedule"] = {str(key)[:64]: str(value)[:200] for key, value in list(schedule.items())[:8]}
    return compact(about)


def agent_inactive(context: JobContext) -> FailedPrecondition:
    """Return the error for enabling a job whose agent is not active."""
    return FailedPrecondition(f"the agent '{context.agent}' is not active; activate it to resume its jobs")


def check_version(job: JobRecord | JobRow, version: int | None) -> None:
    """Raise FailedPrecondition if the job is at another version."""
    job_rules.check_version(job.name, job.version, version)
