"""What can be done with a job that is there. A change is judged whole, in the transaction that writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from wakeful.bounded_cache import bypass
from wakeful.clock import Clock
from wakeful.document import patch_definition
from wakeful.document.values import compact
from wakeful.engine.calendar_loader import excludes_something, has_calendar, load, work_out
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound
from wakeful.job import Definition, JobRecord, Json, inherit
from wakeful.launch.secrets import ROTATION_MS, Keyring, new_secret, shown
from wakeful.run import NewRun
from wakeful.service.admin.budgets import Budgets, check_tighter
from wakeful.service.agents.inheritance import needs_secret, signed_by_agent, with_agents_secret
from wakeful.service.auth.access import Action, Principal
from wakeful.service.auth.accounts import Accounts, JobContext
from wakeful.service.auth.agent_target_policy import AgentTargetPolicy, check_not_internal, check_not_reserved
from wakeful.service.auth.masking import unmasked
from wakeful.service.auth.ownership import check_change, check_removal, is_admin_owned
from wakeful.service.jobs.chains import check_chain
from wakeful.service.jobs.job_factory import SaveResult, check_lane
from wakeful.service.jobs.job_transitions import edited, missed_runs, moved
from wakeful.start_rules import BudgetOwner
from wakeful.store.accounts import Inherited
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.row_mapping import changed_row, job_of
from wakeful.store.rows import JobChange, JobRow, RunFilter


class JobChanges:
    """Changes jobs."""

    def __init__(
        self,
        store: Store,
        targets: LauncherRegistry,
        keyring: Keyring,
        accounts: Accounts,
        lanes: Iterable[str] | None,
        budgets: Budgets,
        target_policy: AgentTargetPolicy,
    ) -> None:
        self._store = store
        self._targets = targets
        self._keyring = keyring
        self._accounts = accounts
        self._lanes = frozenset(lanes or ()) or None  # a process without lanes speaks for others
        self._budgets = budgets
        self._target_policy = target_policy

    @property
    def _clock(self) -> Clock:
        return self._store.clock

    async def update(
        self,
        principal: Principal,
        workspace: str,
        agent: str,
        name: str,
        patch: Mapping[str, object],
        *,
        version: int | None = None,
    ) -> SaveResult:
        """Change the fields that a patch names; with `version`, only if the job is still at that one."""
        row = await self._row(principal, "job.write", workspace, agent, name)
        now_ms = self._clock.now_ms()
        await check_chain(self._store, workspace, agent, name, patch.get("after"))

        def patched(old: JobRecord, context: JobContext) -> Definition:
            check_version(old, version)
            given = unmasked(patch, old.definition)
            return patch_definition(old.definition, given, now_ms=now_ms, defaults=context.defaults)

        if has_calendar(row.timing) or excludes_something(patch):
            context = await self._accounts.context(workspace, agent)
            await work_out(partial(patched, job_of(row), context), now_ms)
        entry = principal.entry(workspace, "job.update", f"{agent}/{name}", audit_details(patch))
        return await self._edit(principal, row, patched, entry, read_enabled(patch))

    async def delete(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> None:
        """Delete it; with `version`, only if it is still at that one.

        What runs goes on; what has not started is withdrawn; its runs can still be seen.
        """
        row = await self._found(principal, "job.write", workspace, agent, name)
        if is_admin_owned(principal, row):
            running = RunFilter(workspace, agent, row.id, ("running",))
            check_removal(principal, row, await self._store.runs(running))
        now_ms = self._clock.now_ms()

        def leave(row: JobRow) -> tuple[NewRun, ...]:
            check_version(row, version)
            return _overdue(row, now_ms)

        entry = principal.entry(workspace, "job.delete", f"{agent}/{name}")
        if not await self._store.delete_job(row.id, now_ms, "deleted", [entry], leave):
            raise no_job(name)

    async def rotate_secret(
        self, principal: Principal, workspace: str, agent: str, name: str, *, version: int | None = None
    ) -> SaveResult:
        """Give it a new webhook secret. For a day, deliveries are signed with both."""
        secret = new_secret()

        def rotated(context: JobContext, row: JobRow) -> JobChange | None:
            if row.secret is None:
                raise FailedPrecondition(f"job '{name}' has no webhook, so it has no secret to rotate")
            if signed_by_agent(job_of(row).definition.work, context.inherited):
                raise FailedPrecondition(
                    f"job '{name}' is signed with the secret of its agent '{agent}', whose webhook it "
                    f"inherits; rotate that one: POST /agents/{agent}/rotate-secret"
                )
            now_ms = self._clock.now_ms()
            until_ms = now_ms + ROTATION_MS
            now = row._replace(old_secret=row.secret, old_secret_until_ms=until_ms, updated_ms=now_ms)
            return JobChange(now._replace(secret=self._keyring.seal(secret)))

        async def change(context: JobContext) -> JobRow:
            checked = partial(rotated, context)
            return await self._change(
                principal, "job.rotate-secret", workspace, agent, name, checked, version, context.inherited
            )

        row = await self._accounts.with_context(workspace, agent, change)
        return SaveResult(row, shown(secret))

    # --- inside ----------------------------------------------------------------------------------

    async def _edit(
        self,
        principal: Principal,
        row: JobRow,
        edit: Callable[[JobRecord, JobContext], Definition],
        entry: AuditEntry,
        enabled: bool | None = None,
        *,
        dry_run: bool = False,
    ) -> SaveResult:
        async def change(context: JobContext) -> SaveResult:
            return await self._edit_for(context, principal, row.id, edit, entry, enabled, dry_run)

        return await self._accounts.with_context(row.workspace, row.agent, change)

    async def _edit_for(
        self,
        context: JobContext,
        principal: Principal,
        job_id: str,
        edit: Callable[[JobRecord, JobContext], Definition],
        entry: AuditEntry,
        enabled: bool | None,
        dry_run: bool,
    ) -> SaveResult:
        made: list[bytes] = []
        rebudgeted: list[bool] = []
        changed = False

        def apply(row: JobRow) -> JobChange | None:
            nonlocal changed
            old = job_of(row)
            definition = edit(old, context)
            definition = replace(definition, work=inherit(definition.work, context.target))
            if enabled and not context.active:
                raise agent_inactive(context)
            # Texts are compared, not values: to Python 1 and true are equal, to a receiver they are not.
            same = changed_row(row, replace(old, definition=definition)) == row
            if same and enabled in (None, old.enabled):
                return None
            changed = True
            rebudgeted.append(definition.work.budget != old.definition.work.budget)
            check_change(principal, row)
            check_not_internal(principal, definition.name)
            check_not_reserved(definition.name, old.definition)
            check_tighter(principal, definition.work.budget, old.definition.work.budget)
            self._target_policy.check(principal, definition.work, context, old.definition.work)
            self._target_policy.check_delivery(principal, definition.work, context, old.definition.work)
            self._targets.check(definition.work.target)
            self._targets.check_precheck(definition.work)
            check_lane(definition.work, self._lanes)
            now_ms = self._clock.now_ms()
            job = edited(old, definition, now_ms, enabled)
            made[:] = []
            changed_to = changed_row(row, job)
            if signed_by_agent(definition.work, context.inherited):
                changed_to = with_agents_secret(changed_to, context.inherited, now_ms)
            elif needs_secret(definition) and row.secret in (None, context.inherited.secret):
                made[:] = [new_secret()]
                changed_to = changed_to._replace(
                    secret=self._keyring.seal(made[0]), old_secret=None, old_secret_until_ms=None
                )
            change = JobChange(changed_to, move=moved(old, job))
            if definition.timing != old.definition.timing:
                return change._replace(
                    withdraw="edited", born=missed_runs(row, now_ms, "edited"), keeps=job.has_tick
                )
            if old.enabled and not job.enabled:
                return change._replace(withdraw="paused", born=missed_runs(row, now_ms, "paused"))
            return change

        if dry_run:
            row = await self._store.job_by_id(job_id)
            with bypass():
                change = None if row is None else apply(row)
            row = row if change is None else change.job
        else:
            row = await self._store.change_job(job_id, apply, [entry], context.inherited)
        if row is None:
            raise NotFound("the job was deleted meanwhile")
        if dry_run:
            return SaveResult(row, changed=changed)
        if rebudgeted and rebudgeted[-1]:
            await self._budgets.weigh(BudgetOwner(row.workspace, row.agent, row.id))
        return SaveResult(row, shown(made[0]) if made else None, changed=changed)

    async def _change(
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
    ) -> JobRow:
        row = await self._row(principal, "job.write", workspace, agent, name)

        def checked(row: JobRow) -> JobChange | None:
            check_version(row, version)
            return change(row)

        entry = principal.entry(workspace, action, f"{agent}/{name}", details)
        after = await self._store.change_job(row.id, checked, [entry], inherited)
        if after is None:
            raise no_job(name)
        return after

    async def _row(
        self, principal: Principal, action: Action, workspace: str, agent: str, name: str
    ) -> JobRow:
        """The job, if they may do this with it."""
        row = await self._found(principal, action, workspace, agent, name)
        if action == "job.write":
            check_change(principal, row)
        return row

    async def _found(
        self, principal: Principal, action: Action, workspace: str, agent: str, name: str
    ) -> JobRow:
        await self._accounts.authorize(principal, action, workspace, agent)
        if action != "read":
            check_not_internal(principal, name)
        row = await self._store.job(workspace, agent, name)
        if row is None:
            raise no_job(name)
        await load([row.timing], self._clock.now_ms())
        return row


def audit_details(document: Mapping[str, object]) -> str:
    """What the audit says of a document: its schedule, and the names of the rest."""
    schedule = document.get("schedule", document.get("cron"))
    fields: list[Json] = [*sorted(str(key)[:64] for key in document)[:64]]
    about: dict[str, Json] = {"fields": fields}
    if isinstance(schedule, str):
        about["schedule"] = schedule[:200]
    elif isinstance(schedule, Mapping):
        about["schedule"] = {str(key)[:64]: str(value)[:200] for key, value in list(schedule.items())[:8]}
    return compact(about)


def _overdue(row: JobRow, now_ms: int) -> tuple[NewRun, ...]:
    """What a job leaves behind that is deleted; nothing, where it cannot be read: it goes all the same."""
    try:
        return missed_runs(row, now_ms, "deleted")
    except InvalidArgument:
        return ()


def agent_inactive(context: JobContext) -> FailedPrecondition:
    """The error for enabling a job whose agent is not active."""
    return FailedPrecondition(f"the agent '{context.agent}' is not active; make it so, and its jobs go on")


def check_version(job: JobRecord | JobRow, version: int | None) -> None:
    """Refuse what was made up for another version of the job."""
    if version is not None and job.version != version:
        raise FailedPrecondition(
            f"job '{job.name}' has changed: it is at version {job.version}, not {version}; read it again"
        )


def read_enabled(document: Mapping[str, object]) -> bool | None:
    """Whether a document says that the job is to be enabled; None: it says nothing of it."""
    enabled = document.get("enabled")
    if enabled is None or isinstance(enabled, bool):
        return enabled
    raise InvalidArgument("enabled: write true or false")


def no_job(name: str) -> NotFound:
    """There is none of that name, or id."""
    return NotFound(f"no job '{name}'; list the jobs to see what there is")
